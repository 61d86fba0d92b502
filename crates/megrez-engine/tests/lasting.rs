//! Inputs that last are shared in the first run of a session and never again, and nobody keeps them
//! after the last.

use crate::common::session::{Ends, Port, each, session};
use megrez_device::AnyDevice;
use megrez_engine::client::{PartyPort, collect, provide};
use megrez_engine::float::run_floats;
use megrez_engine::local::LocalOptions;
use megrez_engine::{Options, serve};
use megrez_plan::{FloatOp, FloatPlan, Input, KEPT, Op, Plan};
use megrez_protocols::AnySuite;
use megrez_protocols::{aby3::Aby3, alkaid::Alkaid, bicoptor::Bicoptor, meteor::Meteor, mizar::Mizar};
use megrez_session::{Error, Party};
use std::cell::Cell;
use std::collections::HashMap;
use std::time::Duration;

const RUNS: u32 = 3;
const PATIENCE: Duration = Duration::from_secs(60);

/// x · w of a matrix of data and one of weights.
fn product() -> Plan {
    let mut plan = Plan::new(32);
    let x = plan.input("x", "owner", [2, 3].into(), 0);
    let w = plan.input("w", "owner", [3, 4].into(), 0);
    let y = plan.step("product", Op::MatMul, &[x, w]).unwrap();
    plan.output("y", "owner", y);
    plan
}

fn words(run: u32, input: &Input) -> Vec<u32> {
    match input.name.as_str() {
        "x" => (0..6).map(|i| i + 10 * run).collect(),
        _ => (0..12).map(|i: u32| i.wrapping_sub(5)).collect(),
    }
}

fn expected(run: u32) -> Vec<u32> {
    let (x, w): (Vec<u32>, Vec<u32>) =
        ((0..6).map(|i| i + 10 * run).collect(), (0..12).map(|i: u32| i.wrapping_sub(5)).collect());
    let cell = |i: usize| {
        let products = (0..3).map(|k| x[i / 4 * 3 + k].wrapping_mul(w[k * 4 + i % 4]));
        products.fold(0, u32::wrapping_add)
    };
    (0..8).map(cell).collect()
}

/// What an owner and one party say to each other in one run: the bytes of each share, and how many
/// input-mask keys there are.
type Said = (Vec<usize>, usize);

/// What is said in each run, and how many values each party still holds at the end. The owner gives
/// up before it shares anything in run `until`.
fn transcript(
    suite: &dyn AnySuite<AnyDevice>,
    lasting: &[String],
    until: u32,
) -> (Vec<[Said; 3]>, [usize; 3]) {
    let plan = product();
    let options = Options { runs: RUNS, lasting, streamed: false };
    let part = |party: &mut Party<AnyDevice>, ends: &mut Ends| {
        let mut stored = HashMap::new();
        let result = serve(suite, &plan, party, &mut stored, None, ends, options);
        assert_eq!(result.is_ok(), until == RUNS);
        Ok::<_, Error>(stored.len())
    };
    let (held, seen) = session(PATIENCE, each(part), |ports: &mut [Port; 3]| {
        let mut seen = vec![];
        for run in 0..until {
            let mut refs: Vec<&mut dyn PartyPort> =
                ports.iter_mut().map(|p| p as &mut dyn PartyPort).collect();
            let shared = |input: &Input| options.shares(run, input);
            provide(
                suite,
                &plan,
                &shared,
                &|input| Ok(words(run, input).into_iter().map(u64::from).collect()),
                &mut refs,
            )
            .unwrap();
            let outputs = collect(suite, &plan, "owner", &mut refs).unwrap();
            assert_eq!(outputs, [expected(run).into_iter().map(u64::from).collect::<Vec<_>>()]);
            seen.push([0, 1, 2].map(|j: usize| {
                let seen = std::mem::take(&mut ports[j].seen);
                (seen.data.iter().map(|share| share.as_bytes().len()).collect(), seen.mask_keys.len())
            }));
        }
        seen
    });
    (seen, held.map(Result::unwrap))
}

fn holds(suite: &dyn AnySuite<AnyDevice>) {
    let lasting = ["w".to_owned()];
    let (again, _) = transcript(suite, &[], RUNS);
    let (once, held) = transcript(suite, &lasting, RUNS);
    assert_eq!(held, [0; 3]);
    for run in 0..RUNS as usize {
        for ((once, keys), (again, all_keys)) in once[run].iter().zip(&again[run]) {
            // Data and weights, in the plan's order; after the first run, data alone.
            assert_eq!((again.len(), *all_keys), (2, 2));
            let shared = if run == 0 { 2 } else { 1 };
            assert_eq!((&once[..], *keys), (&again[..shared], shared), "run {run}");
        }
    }
    let (_, held) = transcript(suite, &lasting, 1);
    assert_eq!(held, [0; 3], "nothing is left of a session that has failed");
}

#[test]
fn weights_are_shared_in_the_first_run_and_gone_after_the_last() {
    holds(&Mizar::<u32, AnyDevice>::default());
    holds(&Aby3::<u32, AnyDevice>::default());
    holds(&Meteor::<u32, AnyDevice>::default());
    holds(&Alkaid::<u32, AnyDevice>::default());
    holds(&Bicoptor::<u32, AnyDevice>::default());
}

#[test]
fn what_a_run_keeps_is_not_taken_for_another_input_of_the_next() {
    for (owner, lasting) in [("owner", vec![]), ("owner", vec!["x".to_owned()]), (KEPT, vec![])] {
        let mut plan = Plan::new(32);
        let x = plan.input("x", owner, [3].into(), 0);
        let w = plan.input("w", "owner", [3].into(), 4);
        plan.output("y", "owner", x);
        plan.output("x", KEPT, w);
        let (suite, options) =
            (Mizar::<u32, AnyDevice>::default(), Options { runs: 2, lasting: &lasting, streamed: false });
        let part = |party: &mut Party<AnyDevice>, ends: &mut Ends| {
            serve(&suite, &plan, party, &mut HashMap::new(), None, ends, options).map(drop)
        };
        for result in session(PATIENCE, each(part), |_| ()).0 {
            let reason = result.unwrap_err().to_string();
            assert!(reason.contains("keeps `x` and reads another `x`"), "{owner}: {reason}");
        }
    }
}

#[test]
fn weights_in_floating_point_are_asked_for_once() {
    let mut plan = FloatPlan::new(4);
    let x = plan.input("x", "alice", [2].into());
    let w = plan.input("w", "alice", [2].into());
    let y = plan.step("y", FloatOp::Pair(megrez_plan::Operation::Mul), &[x, w]).unwrap();
    plan.output("y", "alice", y);
    let asked = Cell::new(0);
    let given = |run: u32, input: &Input| match input.name.as_str() {
        "x" => Ok(vec![run as f32, 0.5]),
        _ => {
            asked.set(asked.get() + 1);
            Ok(vec![3.0, -4.0])
        }
    };
    let options = LocalOptions { runs: RUNS, lasting: vec!["w".into()], ..LocalOptions::default() };
    let out = run_floats(2, &plan, &given, &|_| {}, &options).unwrap();
    assert_eq!(asked.get(), 1);
    for (run, outputs) in out.outputs.iter().enumerate() {
        assert_eq!(outputs[0], [3.0 * run as f32, -2.0]);
    }
}
