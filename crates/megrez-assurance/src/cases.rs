//! What mutants are made of: small plans that together take every kind of step in every form that a
//! protocol has, with what comes before and after it that a mask may be used by.

use megrez_engine::Options;
use megrez_passes::slice_rows;
use megrez_plan::{Beyond, Gives, List, Lookup, Op, Plan, Relu, ReluForm, SignBit, ValueId, View, Winner};
use megrez_protocols::registry;

/// A plan with a name.
pub struct Case {
    /// What it takes.
    pub name: &'static str,
    /// The plan.
    pub plan: Plan,
    /// How often it runs in one session.
    pub runs: u32,
    /// The inputs that last from the first run to the last.
    pub lasting: Vec<String>,
}

impl Case {
    fn once(name: &'static str, plan: Plan) -> Self {
        Case { name, plan, runs: 1, lasting: vec![] }
    }

    /// How the plan runs.
    pub fn options(&self) -> Options<'_> {
        Options { runs: self.runs, lasting: &self.lasting, streamed: false }
    }
}

/// Elements of every value. It has many divisors, so that parts of draws can be made equal.
const N: usize = 12;

fn digits(low: u32, cut: u32) -> SignBit {
    SignBit {
        list: List::Digits([vec![2; low as usize / 2], vec![1; low as usize % 2]].concat()),
        cut,
        bits: Some(low + 1),
    }
}

fn tree(bits: u32, cut: u32) -> SignBit {
    SignBit { list: List::Tree, cut, bits: Some(bits) }
}

fn relu(form: ReluForm, truncate: u32) -> Op {
    let sign = if form == ReluForm::Table {
        SignBit { list: List::Bits, cut: 2, bits: Some(4) }
    } else {
        digits(9, 2)
    };
    Op::Relu(Relu { sign, form, truncate })
}

/// 2^n segments of degree 2, with a cut: four are dealt as a table, sixteen as a key.
fn lookup(segments: i64) -> Op {
    let pieces = (0..3 * segments).map(|i| i * i - 40).collect();
    Op::Lookup(Lookup { cut: 2, low: 5, degree: 2, pieces, frac: 16, beyond: None })
}

/// Four segments of degree 2 with a line to the right of them, or nothing, by a key.
fn beside(slope: i64) -> Op {
    let beyond = Some(Beyond { bits: 16, constant: 3 * slope, slope });
    let pieces = (0..12).map(|i| i * i - 40).collect();
    Op::Lookup(Lookup { cut: 2, low: 5, degree: 2, pieces, frac: 16, beyond })
}

/// One step on several values along the first dimension, from two owners; the result goes to a
/// third, and is what a product has opened.
fn winner(name: &'static str, gives: Gives, dealt: bool) -> Option<Case> {
    let mut plan = Plan::new(64);
    let x = plan.input("x", "alice", [2, N].into(), 16);
    let y = plan.input("y", "bob", [1, N].into(), 16);
    let all = plan.step("all", Op::Concat { axis: 0 }, &[x, y]).ok()?;
    let op = Op::Winner(Winner { cut: 2, bits: 4, gives });
    let z = plan.step("step", if dealt { Op::Offloaded(Box::new(op)) } else { op }, &[all]).ok()?;
    plan.output("z", "carol", z);
    let next = plan.step("next", Op::Mul, &[z, if gives == Gives::Value { z } else { all }]).ok()?;
    plan.output("next", "carol", next);
    Some(Case::once(name, plan))
}

/// One step on fresh inputs; the result is multiplied by an input and both are received.
fn step(name: &'static str, op: Op, inputs: usize) -> Option<Case> {
    let mut plan = Plan::new(64);
    let x: Vec<ValueId> = (0..inputs.max(1))
        .map(|i| plan.input(&format!("x{i}"), ["alice", "bob"][i % 2], [N].into(), 16))
        .collect();
    let z = plan.step("step", op, &x[..inputs]).ok()?;
    plan.output("z", "carol", z);
    if let Ok(next) = plan.step("next", Op::Mul, &[z, x[0]]) {
        plan.output("next", "carol", next);
    }
    Some(Case::once(name, plan))
}

/// Steps on bits: two comparisons, then `build`.
fn bits(name: &'static str, build: impl Fn(&mut Plan, &[ValueId]) -> Option<ValueId>) -> Option<Case> {
    let mut plan = Plan::new(64);
    let x: Vec<ValueId> = (0..4).map(|i| plan.input(&format!("x{i}"), "alice", [N].into(), 16)).collect();
    let sign = |plan: &mut Plan, i: usize| {
        plan.step(&format!("bit{i}"), Op::NonNegative(digits(7, 0)), &[x[i]]).ok()
    };
    let signs: Option<Vec<ValueId>> = (0..4).map(|i| sign(&mut plan, i)).collect();
    let z = build(&mut plan, &[signs?, x].concat())?;
    plan.output("z", "carol", z);
    Some(Case::once(name, plan))
}

/// A product that is left as a sum and opened twice, with a value added between.
fn deferred() -> Option<Case> {
    let mut plan = Plan::new(64);
    let [x, y, w] = ["x", "y", "w"].map(|name| plan.input(name, "alice", [N].into(), 16));
    let sum = plan.step("product", Op::Additive(Box::new(Op::Mul)), &[x, y]).ok()?;
    let one = plan.step("one", Op::Truncate { bits: 16 }, &[sum]).ok()?;
    let w = plan.step("scaled", Op::Rescale { frac: 32 }, &[w]).ok()?;
    let more = plan.step("more", Op::Combine { coefficients: vec![2, 1], constant: 0 }, &[sum, w]).ok()?;
    let two = plan.step("two", relu(ReluForm::ThreeRounds, 16), &[more]).ok()?;
    plan.output("one", "carol", one);
    plan.output("two", "bob", two);
    Some(Case::once("deferred sum", plan))
}

/// A product and a function that are left as sums, put together in several ways with a value, and
/// shared twice.
fn reshared(name: &'static str, by_key: bool) -> Option<Case> {
    let mut plan = Plan::new(64);
    let [x, y] = ["x", "y"].map(|name| plan.input(name, "alice", [N].into(), 16));
    let left = |plan: &mut Plan, name: &str, op: Op, x: &[ValueId]| {
        plan.step(name, Op::Additive(Box::new(op)), x).ok()
    };
    let product = left(&mut plan, "product", Op::Mul, &[x, y])?;
    let looked_up = left(&mut plan, "looked-up", lookup(if by_key { 16 } else { 4 }), &[y])?;
    let fine = plan.step("fine", Op::Rescale { frac: 32 }, &[looked_up]).ok()?;
    let both = Op::Combine { coefficients: vec![2, -1], constant: 3 };
    let sum = plan.step("sum", both.clone(), &[product, fine]).ok()?;
    let scaled = plan.step("scaled", Op::Rescale { frac: 32 }, &[x]).ok()?;
    let more = plan.step("more", both, &[sum, scaled]).ok()?;
    let words = (0..N as i64).collect();
    let public = plan.step("public", Op::Constant { shape: [N].into(), frac: 0, words }, &[]).ok()?;
    let more = plan.step("times", Op::Mul, &[public, more]).ok()?;
    let one = plan.step("one", Op::Reshare, &[sum]).ok()?;
    let two = plan.step("two", Op::Reshare, &[more]).ok()?;
    let total = plan.step("total", Op::Sum { axis: 0 }, &[product]).ok()?;
    let total = plan.step("three", Op::Reshare, &[total]).ok()?;
    let next = plan.step("next", Op::Mul, &[one, two]).ok()?;
    for (name, value) in [("one", one), ("two", two), ("total", total), ("next", next)] {
        plan.output(name, "carol", value);
    }
    Some(Case::once(name, plan))
}

/// Weights that are shared once and read twice in each of three runs, beside data that comes anew:
/// by a product and by `op`.
fn lasting(name: &'static str, op: Op) -> Option<Case> {
    let mut plan = Plan::new(64);
    let x = plan.input("x", "alice", [N].into(), 16);
    let w = plan.input("w", "bob", [N].into(), 16);
    let product = plan.step("product", Op::Mul, &[x, w]).ok()?;
    let z = plan.step("step", op, &[w]).ok()?;
    plan.output("product", "alice", product);
    plan.output("z", "carol", z);
    Some(Case { runs: 3, lasting: vec!["w".into()], ..Case::once(name, plan) })
}
/// Steps in slices, which are read by slices, twice, and whole.
fn slices() -> Option<Case> {
    let mut plan = Plan::new(64);
    let [x, y] =
        [("x", "alice"), ("y", "bob")].map(|(name, owner)| plan.input(name, owner, [4, 3].into(), 8));
    let product = plan.step("product", Op::Mul, &[x, y]).ok()?;
    let cut = plan.step("cut", Op::Truncate { bits: 8 }, &[product]).ok()?;
    let positive = plan.step("relu", relu(ReluForm::ThreeRounds, 0), &[cut]).ok()?;
    let twice = plan.step("twice", Op::Mul, &[positive, cut]).ok()?;
    let turned = Op::View(View::transpose(&[4, 3].into(), &[1, 0]));
    let turned = plan.step("turned", turned, &[positive]).ok()?;
    let all = plan.step("all", Op::MatMul, &[turned, positive]).ok()?;
    plan.output("twice", "alice", twice);
    plan.output("all", "carol", all);
    slice_rows(&mut plan, 12).ok()?;
    assert!(plan.steps.iter().any(|step| step.name == "twice/3"), "nothing was cut");
    Some(Case::once("steps in slices", plan))
}

/// The cases that a protocol can run.
///
/// # Panics
/// If there is no such protocol.
pub fn of(protocol: &str) -> Vec<Case> {
    let registered = registry::find(protocol).expect("a protocol of the registry");
    let many = Op::CompareMany { sign: digits(9, 0), thresholds: vec![-3, 0, 5] };
    let by_tree = Op::CompareMany { sign: tree(22, 0), thresholds: vec![-3, 0, 5] };
    let sixth = |k: usize| move |plan: &mut Plan, b: &[ValueId]| plan.step("step", Op::And, &b[..k]).ok();
    let mut cases = vec![
        step("product", Op::Mul, 2),
        step("product of three", Op::Mul, 3),
        step("product of four", Op::Mul, 4),
        step("product, truncated before", Op::MulTruncated { bits: vec![8, 3] }, 2),
        step("product, one truncated before", Op::MulTruncated { bits: vec![0, 8] }, 2),
        step("square, truncated before", Op::MulTruncated { bits: vec![8] }, 1),
        step("truncation", Op::Truncate { bits: 8 }, 1),
        step("noise", Op::Noise { shape: [N].into(), frac: 16, deviation: 1 << 20 }, 0),
        step("sign, all bits", Op::NonNegative(SignBit::FULL), 1),
        step("sign, digits", Op::NonNegative(digits(9, 3)), 1),
        step("sign, a tree of many nodes", Op::NonNegative(tree(64, 0)), 1),
        step("sign, a tree of one node", Op::NonNegative(tree(14, 3)), 1),
        step("sign, a digit", Op::NonNegative(tree(4, 2)), 1),
        step("many thresholds by a tree", by_tree, 1),
        step("many thresholds", many, 1),
        step("maximum", Op::Maximum(digits(9, 0)), 4),
        step("lookup by table", lookup(4), 1),
        step("lookup by key", lookup(16), 1),
        step("lookup beside a line", beside(5), 1),
        step("lookup beside nothing", beside(0), 1),
        winner("winner's value", Gives::Value, false),
        winner("winner's place", Gives::OneHot, false),
        step("bits", Op::ToBits, 1),
        bits("select", |plan, b| plan.step("step", Op::SELECT, &[b[0], b[4]]).ok()),
        bits("select, truncated", |plan, b| {
            plan.step("step", Op::Select { truncate: 8 }, &[b[0], b[4]]).ok()
        }),
        bits("select, added up", |plan, b| {
            plan.step("step", Op::SelectSum { groups: vec![1, N - 1] }, &[b[0], b[4]]).ok()
        }),
        bits("bit to ring", |plan, b| plan.step("step", Op::BitToRing, &[b[0]]).ok()),
        bits("bits that are counted", |plan, b| {
            let numbers = plan.step("step", Op::Additive(Box::new(Op::BitToRing)), &[b[0]]).ok()?;
            let sum = plan.step("sum", Op::Sum { axis: 0 }, &[numbers]).ok()?;
            plan.step("shared", Op::Reshare, &[sum]).ok()
        }),
        bits("lowest bits", |plan, b| plan.step("step", Op::LowBit, &[b[4]]).ok()),
        bits("product of matrices of bits", |plan, b| {
            let low = plan.step("low", Op::LowBit, &[b[4]]).ok()?;
            let shaped = |to: [usize; 4]| Op::View(View::whole(to.into()));
            let x = plan.step("rows", shaped([2, 2, 3, 1]), &[b[0]]).ok()?;
            let y = plan.step("columns", shaped([2, 3, 1, 2]), &[low]).ok()?;
            plan.step("step", Op::BitMatMul, &[x, y]).ok()
        }),
        bits("polynomials of bits", |plan, b| {
            let slices = plan.step("slices", Op::View(View::whole([4, 3].into())), &[b[0]]).ok()?;
            let sums = vec![vec![vec![0], vec![1, 2]], vec![vec![0, 1, 2, 3], vec![1, 3]], vec![vec![2]]];
            plan.step("step", Op::BitPolynomials { sums }, &[slices]).ok()
        }),
        bits("and of two", sixth(2)),
        bits("and of three", sixth(3)),
        bits("and of four", sixth(4)),
        {
            let mut plan = Plan::new(64);
            let x = plan.input("x", "alice", [2].into(), 0);
            let bits = plan.step("bits", Op::ToBits, &[x]).ok();
            let sum = bits.and_then(|b| plan.step("sum", Op::AddBits, &[b, b]).ok());
            let ring = sum.and_then(|s| plan.step("ring", Op::FromBits, &[s]).ok());
            ring.map(|ring| {
                plan.output("z", "carol", ring);
                Case::once("words by their bits", plan)
            })
        },
        deferred(),
        slices(),
        reshared("sums that are shared", false),
        reshared("sums that are shared, by key", true),
        lasting("weights that last", Op::Truncate { bits: 8 }),
        lasting("weights that last, by key", relu(ReluForm::Key, 8)),
        lasting("weights that last, by tables of digits", relu(ReluForm::DigitTables, 8)),
        lasting("weights that last, compared", Op::NonNegative(digits(9, 3))),
        lasting("weights that last, compared by a tree", Op::NonNegative(tree(20, 3))),
    ];
    // One digit, three, and nodes below the last.
    for bits in [7, 24, 40] {
        let relu = Relu { sign: tree(bits, 3), form: ReluForm::DigitTables, truncate: 8 };
        cases.push(step("relu by tables of more or fewer digits", Op::Relu(relu), 1));
    }
    for truncate in [0, 8] {
        for (name, form) in [
            ("relu in three rounds", ReluForm::ThreeRounds),
            ("relu in two rounds", ReluForm::TwoRounds),
            ("relu in two rounds, fresh", ReluForm::TwoRoundsFresh),
            ("relu by table", ReluForm::Table),
            ("relu by key", ReluForm::Key),
            ("relu by tables of digits", ReluForm::DigitTables),
        ] {
            cases.push(step(name, relu(form, truncate), 1));
            if registered.deferred_resharing && truncate > 0 {
                cases.push(step("offloaded relu", Op::Offloaded(Box::new(relu(form, truncate))), 1));
            }
        }
    }
    if registered.deferred_resharing {
        for segments in [4, 16] {
            cases.push(step("offloaded lookup", Op::Offloaded(Box::new(lookup(segments))), 1));
            let beside = beside(i64::from(segments > 4));
            cases.push(step("offloaded lookup, beside", Op::Offloaded(Box::new(beside)), 1));
        }
        cases.push(winner("offloaded winner's value", Gives::Value, true));
        cases.push(winner("offloaded winner's place", Gives::OneHot, true));
        cases.push(step("offloaded maximum", Op::Offloaded(Box::new(Op::Maximum(digits(9, 0)))), 4));
    }
    cases.into_iter().flatten().collect()
}
