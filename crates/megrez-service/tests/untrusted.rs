//! Bytes from elsewhere never make a party panic: what the fuzz targets look for, in small, without a special toolchain.

use megrez_graph::{CompileOptions, compile, models};
use megrez_net::NetProfile;
use megrez_plan::Plan;
use megrez_protocols::registry::PROTOCOLS;
use megrez_service::protocols::price;
use megrez_service::wire::{Net, Reply, Request, Run, Source};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use std::sync::LazyLock;

static PLAN: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let graph = models::build("net-b", 1, 0).unwrap();
    compile(&graph, &CompileOptions::default()).unwrap().plan.to_bytes()
});

static REQUEST: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let run = Run {
        session: [3; 16],
        protocol: "mizar".into(),
        source: Source::Model { model: "digits".into(), batch: 4 },
        runs: 2,
        lasting: vec!["weight".into()],
        net: Net::from(&NetProfile::lan()),
        material: Some([9; 16]),
        insecure: false,
    };
    postcard::to_allocvec(&Request::Run(run)).unwrap()
});

fn damaged(bytes: &[u8], changes: &[(Index, u8)], cut: Option<Index>) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for (at, value) in changes {
        let at = at.index(bytes.len());
        bytes[at] = *value;
    }
    if let Some(cut) = cut {
        bytes.truncate(cut.index(bytes.len()));
    }
    bytes
}

/// A plan that is accepted is valid, has one encoding, and can be priced or refused.
fn accepted_plans_are_sound(bytes: &[u8]) -> Result<(), TestCaseError> {
    if let Ok(plan) = Plan::from_bytes(bytes) {
        prop_assert!(plan.validate().is_ok());
        prop_assert_eq!(&Plan::from_bytes(&plan.to_bytes()).unwrap(), &plan);
        for protocol in PROTOCOLS {
            let _ = price(protocol.name, &plan);
        }
    }
    Ok(())
}

fn messages_are_read_or_refused(bytes: &[u8]) {
    let _ = postcard::from_bytes::<Reply>(bytes);
    if let Ok(Request::Run(run)) = postcard::from_bytes::<Request>(bytes) {
        let _ = run.net.profile();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn damaged_plans(changes in vec((any::<Index>(), any::<u8>()), 0..4), cut in any::<Option<Index>>()) {
        accepted_plans_are_sound(&damaged(&PLAN, &changes, cut))?;
    }

    #[test]
    fn damaged_requests(changes in vec((any::<Index>(), any::<u8>()), 0..4), cut in any::<Option<Index>>()) {
        messages_are_read_or_refused(&damaged(&REQUEST, &changes, cut));
    }

    #[test]
    fn any_bytes(bytes in vec(any::<u8>(), 0..200)) {
        accepted_plans_are_sound(&bytes)?;
        messages_are_read_or_refused(&bytes);
    }
}
