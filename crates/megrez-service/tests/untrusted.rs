//! Bytes from elsewhere never make a party panic: what the fuzz targets look for, in small, without
//! a special toolchain.

use megrez_graph::{CompileOptions, compile, models};
use megrez_net::NetProfile;
use megrez_plan::{KEPT, Op, Plan};
use megrez_protocols::registry::PROTOCOLS;
use megrez_service::protocols::cost;
use megrez_service::training::{Bound, Job, Opening, RowSet, Stage, Validation};
use megrez_service::wire::{Ahead, Net, Reply, Request, Run, Source};
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
        streamed: false,
        net: Net::from(&NetProfile::lan()),
        material: Ahead::Batch([9; 16]),
        insecure: false,
        within_s: None,
    };
    postcard::to_allocvec(&Request::Run(run)).unwrap()
});

/// A job on a step that adds rows up.
static JOB: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut step = Plan::new(64);
    let x = step.input("rows.x", KEPT, [4].into(), 16);
    let w = step.input("w.sum", KEPT, [4].into(), 16);
    let sum = step.step("sum", Op::Combine { coefficients: vec![1, 1], constant: 0 }, &[x, w]).unwrap();
    step.output("w.sum", KEPT, sum);
    let job = Job {
        nonce: [5; 16],
        client: "alice".into(),
        protocol: "mizar".into(),
        data: vec![RowSet { name: "clinic".into(), rows: 9, beside: vec![] }],
        start: "begin".into(),
        stages: vec![Stage { step: step.to_bytes(), epochs: 3 }],
        shards: None,
        validation: None,
        bounds: vec![],
        rows: vec!["rows.x".into()],
        opened: vec![Opening { state: "w.sum".into(), recipient: "alice".into(), every_epoch: false }],
        keep: None,
        about: "sums".into(),
    };
    job.check().unwrap();
    job.to_bytes()
});

/// What is counted after an epoch can leave nothing in what is trained, and nothing beside what is
/// opened.
#[test]
fn a_validation_that_does_more_than_count_is_refused() {
    let mut whole = Job::from_bytes(&JOB).unwrap();
    let counts = |change: &dyn Fn(&mut Plan)| {
        let mut plan = Plan::new(64);
        let x = plan.input("rows.x", KEPT, [3].into(), 16);
        let w = plan.input("w.sum", KEPT, [4].into(), 16);
        let so_far = plan.input("so-far", KEPT, [1].into(), 16);
        let [x, w] =
            [("x", x), ("w", w)].map(|(name, value)| plan.step(name, Op::Sum { axis: 0 }, &[value]).unwrap());
        let add = Op::Combine { coefficients: vec![1; 3], constant: 0 };
        let sum = plan.step("sum", add, &[x, w, so_far]).unwrap();
        plan.output("so-far", KEPT, sum);
        change(&mut plan);
        plan.to_bytes()
    };
    let data = vec![RowSet { name: "held-out".into(), rows: 7, beside: vec![] }];
    whole.validation = Some(Validation { data, plan: counts(&|_| {}) });
    whole.opened.push(Opening { state: "so-far".into(), recipient: "alice".into(), every_epoch: true });
    let work = whole.check().unwrap();
    let validated = work.validated.as_ref().unwrap();
    assert_eq!((validated.batch, validated.batches, work.state("so-far").is_some()), (3, 2, true));
    assert!(whole.sets().eq(["clinic", "held-out"]) && whole.all_rows() == 9);
    assert_eq!(Job::from_bytes(&whole.to_bytes()).unwrap(), whole);
    let refused = |change: &dyn Fn(&mut Job)| {
        let mut job = whole.clone();
        change(&mut job);
        assert_ne!(job.hash(), whole.hash());
        job.check().map(drop).unwrap_err().to_string()
    };
    let plan =
        |change: &dyn Fn(&mut Plan)| refused(&|job| job.validation.as_mut().unwrap().plan = counts(change));
    assert!(
        plan(&|plan| plan.outputs[0].name = "w.sum".into()).contains("writes `w.sum`, which is not added")
    );
    assert!(plan(&|plan| plan.outputs[0].name = "other".into()).contains("writes `other`"));
    assert!(plan(&|plan| plan.outputs[0].recipient = "alice".into()).contains("gives `so-far` to `alice`"));
    assert!(plan(&|plan| plan.inputs[2].owner = "alice".into()).contains("asks `alice`"));
    assert!(plan(&|plan| plan.inputs[0].name = "more".into()).contains("a batch of each kind of its rows"));
    let other_weights = |plan: &mut Plan| {
        *plan = Plan::new(64);
        let x = plan.input("rows.x", KEPT, [3].into(), 16);
        plan.input("w.sum", KEPT, [4].into(), 8);
        plan.output("so-far", KEPT, x);
    };
    assert!(plan(&other_weights).contains("reads `w.sum` as another thing"));
    let short = |plan: &mut Plan| *plan = Plan { ring: 32, ..plan.clone() };
    assert!(plan(&short).contains("another ring"));
    let sets = |change: &dyn Fn(&mut Vec<RowSet>)| {
        refused(&|job| change(&mut job.validation.as_mut().unwrap().data))
    };
    assert!(sets(&|data| data[0].rows = 2).contains("2 rows, which fill no batch of 3"));
    assert!(sets(&|data| data.clear()).contains("0 rows"));
    assert!(
        sets(&|data| data[0].name = "clinic".into()).contains("none of them twice"),
        "what is learnt from"
    );
    assert!(refused(&|job| job.data.clear()).contains("at least one set"));
    // What is added up is opened, or it would be there to be opened by somebody else.
    assert!(refused(&|job| drop(job.opened.pop())).contains("not added up for it alone and opened"));
    assert!(refused(&|job| job.opened[1].every_epoch = false).contains("not added up"));
    // Wider than one number it is no count.
    let wide = |plan: &mut Plan| {
        *plan = Plan::new(64);
        let x = plan.input("rows.x", KEPT, [3].into(), 16);
        let so_far = plan.input("so-far", KEPT, [3].into(), 16);
        let add = Op::Combine { coefficients: vec![1; 2], constant: 0 };
        let sum = plan.step("sum", add, &[x, so_far]).unwrap();
        plan.output("so-far", KEPT, sum);
    };
    assert!(plan(&wide).contains("only single numbers"));
}

/// Bounds are of what lasts and is not opened, each once, and such that the ring has room for more.
#[test]
fn bounds_that_say_nothing_or_too_much_are_refused() {
    let mut whole = Job::from_bytes(&JOB).unwrap();
    whole.bounds = vec![Bound { state: "w.sum".into(), below: 20 }];
    whole.check().unwrap();
    let refused = |change: &dyn Fn(&mut Job)| {
        let mut job = whole.clone();
        change(&mut job);
        assert_ne!(job.hash(), whole.hash());
        job.check().map(drop).unwrap_err().to_string()
    };
    assert!(refused(&|job| job.bounds[0].state = "rows.x".into()).contains("no number that lasts"));
    assert!(refused(&|job| job.bounds.push(job.bounds[0].clone())).contains("twice"));
    for below in [31, 1000, u32::MAX] {
        assert!(refused(&|job| job.bounds[0].below = below).contains("they never get there"), "{below}");
    }
    assert!(refused(&|job| job.bounds[0].state = "w\n".into()).contains("names are up to"));
}

/// What a job may not be, each by itself.
#[test]
fn jobs_that_hide_something_are_refused() {
    let whole = Job::from_bytes(&JOB).unwrap();
    let refused = |change: &dyn Fn(&mut Job)| {
        let mut job = whole.clone();
        change(&mut job);
        assert_ne!(job.hash(), whole.hash());
        job.check().map(drop).unwrap_err().to_string()
    };
    let step = |change: &dyn Fn(&mut Plan)| {
        refused(&|job| {
            let mut step = Plan::from_bytes(&job.stages[0].step).unwrap();
            change(&mut step);
            job.stages[0].step = step.to_bytes();
        })
    };
    assert!(step(&|plan| plan.outputs[0].recipient = "alice".into()).contains("in every step"));
    assert!(step(&|plan| plan.inputs[1].owner = "bob".into()).contains("asks `bob`"));
    assert!(step(&|plan| plan.outputs[0].name = "rows.x".into()).contains("writes `rows.x`"));
    assert!(step(&|plan| plan.outputs[0].name = "w.other".into()).contains("writes `w.other`"));
    assert!(refused(&|job| job.rows[0] = "rows.y".into()).contains("rows"));
    assert!(refused(&|job| job.data.push(job.data[0].clone())).contains("none of them twice"));
    assert!(refused(&|job| job.data[0].rows = 3).contains("fill no batch"));
    assert!(refused(&|job| job.data[0].rows = usize::MAX).contains("fill no batch"));
    assert!(refused(&|job| job.stages[0].epochs = 0).contains("epochs"));
    assert!(refused(&|job| job.stages.clear()).contains("epochs"));
    assert!(refused(&|job| job.stages = vec![job.stages[0].clone(); 65]).contains("64 stages"));
    assert!(refused(&|job| job.stages[0].epochs = u32::MAX).contains("epochs"));
    // A later stage is looked at as the first is.
    let later = |change: &dyn Fn(&mut Plan)| {
        refused(&|job| {
            let mut step = Plan::from_bytes(&job.stages[0].step).unwrap();
            change(&mut step);
            job.stages.push(Stage { step: step.to_bytes(), epochs: 1 });
        })
    };
    assert!(later(&|plan| plan.outputs[0].recipient = "alice".into()).contains("in every step"));
    assert!(later(&|plan| plan.inputs[1].owner = "bob".into()).contains("asks `bob`"));
    let wider = |plan: &mut Plan| {
        *plan = Plan::new(64);
        let x = plan.input("rows.x", KEPT, [8].into(), 16);
        let w = plan.input("w.sum", KEPT, [8].into(), 16);
        let sum = Op::Combine { coefficients: vec![1, 1], constant: 0 };
        let sum = plan.step("sum", sum, &[x, w]).unwrap();
        plan.output("w.sum", KEPT, sum);
    };
    assert!(later(&wider).contains("different rows or state"));
    let mut two = whole.clone();
    two.stages.push(Stage { epochs: 2, ..two.stages[0].clone() });
    let work = two.check().unwrap();
    let place =
        |epoch| work.step(&two, epoch).map(|step| work.steps.iter().position(|s| std::ptr::eq(s, step)));
    assert_eq!(two.epochs(), 5);
    assert_eq!([1, 3, 4, 5].map(place), [Some(Some(0)), Some(Some(0)), Some(Some(1)), Some(Some(1))]);
    assert_eq!([0, 6].map(place), [None, None]);
    assert!(refused(&|job| job.opened[0].state = "rows.x".into()).contains("opens `rows.x`"));
    assert!(refused(&|job| job.opened[0].every_epoch = true).contains("after every epoch"));
    assert!(refused(&|job| job.opened[0].recipient = "x\u{1b}[1A\u{1b}[2K".into()).contains("names are"));
    assert!(refused(&|job| job.data[0].name = "clinic\u{202e}".into()).contains("names are"));
    let mut numbers = whole.clone();
    numbers.opened[0].every_epoch = true;
    assert!(numbers.check().map(drop).unwrap_err().to_string().contains("only single numbers"));
    assert!(refused(&|job| job.rows = vec!["rows.x".into(); 3]).contains("more rows than"));
    assert!(refused(&|job| job.opened.push(job.opened[0].clone())).contains("opens `w.sum` twice"));
}

/// An approval is of every bit of a job.
#[test]
fn no_two_jobs_have_one_hash() {
    let whole = Job::from_bytes(&JOB).unwrap();
    for bit in 0..JOB.len() * 8 {
        let mut bytes = JOB.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        if let Ok(job) = Job::from_bytes(&bytes) {
            assert_ne!(job.hash(), whole.hash(), "bit {bit}");
            assert_ne!(job, whole, "bit {bit}");
        }
    }
}

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
            let _ = cost(protocol.name, &plan);
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
    fn damaged_jobs(changes in vec((any::<Index>(), any::<u8>()), 0..4), cut in any::<Option<Index>>()) {
        if let Ok(job) = Job::from_bytes(&damaged(&JOB, &changes, cut)) {
            prop_assert!(job.check().is_ok());
        }
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
