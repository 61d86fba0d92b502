//! What a plan is said to hold, against what the allocator counts.

use crate::common::run_locally;
use megrez_engine::local::LocalOptions;
use megrez_engine::{check, local};
use megrez_plan::{List, Op, Plan, Relu, ReluForm, SignBit, View};
use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::HashMap;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};

/// The system's allocator, which counts when it is asked to: all tests of this binary allocate by
/// it, and threads that count wait for each other.
struct Counting;

static COUNTS: AtomicBool = AtomicBool::new(false);
static HELD: AtomicI64 = AtomicI64::new(0);
static MOST: AtomicI64 = AtomicI64::new(0);

impl Counting {
    /// That there are so many bytes more.
    fn count(bytes: i64) {
        if COUNTS.load(Relaxed) {
            MOST.fetch_max(HELD.fetch_add(bytes, Relaxed) + bytes, Relaxed);
        }
    }
}

// SAFETY: every call goes to the system's allocator as it is; the counters are not memory.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Counting::count(layout.size() as i64);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        Counting::count(-(layout.size() as i64));
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        Counting::count(size as i64 - layout.size() as i64);
        // SAFETY: as the caller promises.
        unsafe { System.realloc(memory, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Layers of products, each truncated, rectified in this form and turned round, of 2^16 values.
fn layers(count: usize, form: ReluForm) -> Plan {
    let mut plan = Plan::new(64);
    let n = 1 << 16;
    let mut x = plan.input("x", "owner", [n].into(), 8);
    let y = plan.input("y", "owner", [n].into(), 8);
    for layer in 0..count {
        let product = plan.step(&format!("{layer}/product"), Op::Mul, &[x, y]).unwrap();
        let sign = SignBit { list: List::Digits(vec![4, 4, 4, 3]), cut: 8, bits: Some(16) };
        let relu = Op::Relu(Relu { sign, form, truncate: 8 });
        x = plan.step(&format!("{layer}/relu"), relu, &[product]).unwrap();
        let turned = View::slice(&[n].into(), 0, n - 1, -1, n);
        x = plan.step(&format!("{layer}/turn"), Op::View(turned), &[x]).unwrap();
    }
    plan.output("z", "owner", x);
    plan
}

/// Alone in its process: see [`what_is_planned_is_what_the_allocator_counts`].
#[test]
#[ignore = "counts what the whole process allocates"]
fn alone() {
    COUNTS.store(true, Relaxed);
    let mut far = vec![];
    let three = ["mizar", "aby3", "alkaid", "meteor"].map(|p| (p, ReluForm::ThreeRounds));
    let all = three.into_iter().chain([("mizar", ReluForm::TwoRoundsFresh), ("mizar", ReluForm::TwoRounds)]);
    for (protocol, form, layers_of) in all.flat_map(|(p, form)| [(p, form, 2), (p, form, 8)]) {
        let plan = layers(layers_of, form);
        let planned = check(&*local::suite(protocol, 64).unwrap(), &plan).unwrap().memory.iter().sum::<u64>();
        let words: Vec<u64> = (0..1 << 16).collect();
        let inputs = HashMap::from(["x", "y"].map(|name| (name.to_owned(), words.clone())));
        let before = HELD.load(Relaxed);
        MOST.store(before, Relaxed);
        run_locally(protocol, &plan, &inputs, &LocalOptions::default()).unwrap();
        let counted = MOST.load(Relaxed) - before;
        let ratio = counted as f64 / planned as f64;
        eprintln!(
            "{protocol}, {form:?}, {layers_of} layers: {planned} planned, {counted} counted: {ratio:.2}"
        );
        // Parties are not at their peaks at once, and hold what is under way besides.
        far.extend((!(0.35..1.0).contains(&ratio)).then_some(ratio));
    }
    assert!(far.is_empty(), "{far:?} of what was planned was counted");
}

#[test]
fn what_is_planned_is_what_the_allocator_counts() {
    let mut child = Command::new(std::env::current_exe().unwrap());
    let run = child.args(["--exact", "memory::alone", "--ignored", "--test-threads=1", "--nocapture"]);
    let output = run.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("counted"), "{said}");
}
