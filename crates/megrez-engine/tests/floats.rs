//! Floating-point plans between two parties, and with a dealer: bit for bit what they are in the
//! clear, and at the cost that is listed.

use megrez_engine::float::{dealt_cost, float_cost, in_the_clear, run_floats};
use megrez_engine::local::{LocalError, LocalOptions};
use megrez_plan::{FloatOp, FloatPlan, Function, Input, Operation, ValueId, View};
use megrez_session::{Error, Phase};

/// Every kind of step, on a few numbers.
fn everything() -> FloatPlan {
    let mut plan = FloatPlan::new(4);
    let x = plan.input("x", "alice", [2, 3].into());
    let w = plan.input("w", "bob", [3, 4].into());
    let mut step = |name: &str, op, inputs: &[ValueId]| plan.step(name, op, inputs).unwrap();
    let product = step("fc/product", FloatOp::MatMul, &[x, w]);
    let bits = [0.5f32, -1.5, 1e-30, f32::INFINITY].map(f32::to_bits).to_vec();
    let bias = step("fc/bias", FloatOp::Constant { shape: [4].into(), bits }, &[]);
    let spread = View::broadcast(&[4].into(), &[2, 4].into()).unwrap();
    let bias = step("fc/spread", FloatOp::View(spread), &[bias]);
    let sum = step("fc/sum", FloatOp::Pair(Operation::Add), &[product, bias]);
    let relu = step("relu", FloatOp::Map(Function::Relu), &[sum]);
    let places = vec![0, 3, 8, 8 + 2, 8 + 8, 1];
    let gathered = step("gather", FloatOp::Gather { shape: [3, 2].into(), places }, &[relu, product]);
    let total = step("sum", FloatOp::Sum, &[gathered]);
    let largest = step("largest", FloatOp::Largest, &[gathered]);
    let ratio = step("ratio", FloatOp::Pair(Operation::Div), &[total, largest]);
    use Operation::{Equal, Less, LessOrEqual, Max, Min, Mul, Pow, Sub};
    for op in [Sub, Mul, Max, Min, Less, LessOrEqual, Equal, Pow] {
        let name = format!("{op:?}");
        let y = plan.step(&name, FloatOp::Pair(op), &[ratio, total]).unwrap();
        plan.output(&name, "alice", y);
    }
    let choice = plan.step("choose", FloatOp::Choose, &[total, ratio, largest]).unwrap();
    plan.output("choice", "alice", choice);
    plan
}

fn functions() -> FloatPlan {
    let mut plan = FloatPlan::new(2);
    let x = plan.input("x", "alice", [9].into());
    let all = [
        Function::Neg,
        Function::Abs,
        Function::Relu,
        Function::Sqrt,
        Function::Exp,
        Function::Ln,
        Function::Sigmoid,
        Function::Tanh,
        Function::Erf,
        Function::Sign,
        Function::Round,
        Function::Floor,
        Function::Ceil,
        Function::Trunc,
        Function::Sin,
        Function::Cos,
        Function::Tan,
        Function::Asin,
        Function::Acos,
        Function::Atan,
        Function::Sinh,
        Function::Cosh,
        Function::Log1p,
    ];
    for f in all {
        let y = plan.step(&format!("{f:?}"), FloatOp::Map(f), &[x]).unwrap();
        plan.output(&format!("{f:?}"), "alice", y);
    }
    plan
}

/// What each step costs, by party: bytes to each other party, offline and online, and rounds.
fn costs_of(parties: usize, plan: &FloatPlan) -> Vec<([Vec<Vec<u64>>; 2], u32)> {
    if parties == 2 {
        let of = |b: &megrez_twoparty::costing::Cost| {
            ([vec![vec![0; 2]; 2], vec![vec![0, b.bytes[0]], vec![b.bytes[1], 0]]], b.rounds)
        };
        return float_cost(plan).iter().map(of).collect();
    }
    let of = |b: &megrez_twoparty::dealt::costing::Cost| {
        let offline = vec![vec![0; 3], vec![0; 3], vec![b.dealt, 0, 0]];
        ([offline, vec![vec![0, b.opened, 0], vec![b.opened, 0, 0], vec![0; 3]]], b.rounds)
    };
    dealt_cost(plan).iter().map(of).collect()
}

/// Runs on shares, between two and with a dealer, as [`holds_between`].
fn holds(plan: &FloatPlan, numbers: &dyn Fn(u32, &str) -> Vec<f32>) {
    for parties in [2, 3] {
        holds_between(parties, plan, numbers);
    }
}

/// Runs on shares, twice; compares every output with the clear and every step's bytes with its
/// cost.
fn holds_between(parties: usize, plan: &FloatPlan, numbers: &dyn Fn(u32, &str) -> Vec<f32>) {
    plan.validate().unwrap();
    let given = |run: u32, input: &Input| Ok(numbers(run, &input.name));
    let options = LocalOptions { runs: 2, ..LocalOptions::default() };
    let out = run_floats(parties, plan, &given, &|_| {}, &options).unwrap();
    let costs = costs_of(parties, plan);
    for run in 0..2u32 {
        let inputs: Vec<_> = plan.inputs.iter().map(|i| numbers(run, &i.name)).collect();
        let clear = in_the_clear(plan, &inputs);
        for (output, got) in plan.outputs.iter().zip(&out.outputs[run as usize]) {
            let bits = |v: &[f32]| v.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(got), bits(&clear[output.value.0 as usize]), "{}", output.name);
        }
        for (step, cost) in plan.steps.iter().zip(&costs) {
            for report in &out.reports[run as usize] {
                for (phase, want) in [Phase::Offline, Phase::Online].iter().zip(&cost.0) {
                    let these = report.sent.iter().filter(|r| r.phase == *phase && r.step == step.name);
                    let mut sent = vec![0; parties];
                    these.for_each(|r| sent.iter_mut().zip(&r.sent).for_each(|(all, more)| *all += more));
                    assert_eq!(sent, want[report.party], "{} at party {}", step.name, report.party);
                }
            }
        }
        let rounds: u32 = costs.iter().map(|b| b.1).sum();
        for report in &out.reports[run as usize] {
            assert!(report.phases[&Phase::Online].rounds <= rounds);
        }
    }
}

#[test]
fn every_step_is_what_it_is_in_the_clear_and_costs_what_it_should() {
    let numbers = |run: u32, name: &str| match name {
        "x" => vec![1.0, -2.5 + run as f32, 1e-7, 3e8, 0.0, -1e-20],
        _ => (0..12).map(|i| (i as f32 - 5.5) * 10f32.powi(i - 7 + run as i32)).collect(),
    };
    holds(&everything(), &numbers);
    let special = [0.0, -0.0, 1.0, -1.0, 0.7, 1e-30, 80.0, f32::INFINITY, f32::NAN];
    holds(&functions(), &|run, _| special.map(|v| if run == 0 { v } else { -v * 0.3 }).to_vec());
}

/// Comparisons and choices of numbers whose differences are none, on shares.
#[test]
fn comparisons_of_special_numbers() {
    let special = [0.0, -0.0, f32::MIN_POSITIVE, 1.0, -3e38, f32::INFINITY, f32::NEG_INFINITY, f32::NAN];
    let n = special.len();
    let mut plan = FloatPlan::new(4).with_threads(2);
    let [c, x, y] = ["c", "x", "y"].map(|name| plan.input(name, "alice", [n * n].into()));
    for op in [Operation::Less, Operation::LessOrEqual, Operation::Equal] {
        let y = plan.step(&format!("{op:?}"), FloatOp::Pair(op), &[x, y]).unwrap();
        plan.output(&format!("{op:?}"), "alice", y);
    }
    let chosen = plan.step("choose", FloatOp::Choose, &[c, x, y]).unwrap();
    plan.output("chosen", "alice", chosen);
    assert!(plan.clone().step("other", FloatOp::Choose, &[c, x]).is_err());
    let numbers = |run: u32, name: &str| match name {
        "c" => (0..n * n).map(|i| f32::from((i + run as usize).is_multiple_of(3)) * -1e-38).collect(),
        "x" => (0..n * n).map(|i| special[i / n]).collect::<Vec<_>>(),
        _ => (0..n * n).map(|i| special[(i + run as usize) % n]).collect(),
    };
    holds(&plan, &numbers);
    let clear = in_the_clear(&plan, &["c", "x", "y"].map(|name| numbers(0, name)));
    let (x, y) = (numbers(0, "x"), numbers(0, "y"));
    for i in 0..n * n {
        let truth = [x[i] < y[i], x[i] <= y[i], x[i] == y[i]].map(f32::from);
        let got = [0, 1, 2].map(|op| clear[plan.outputs[op].value.0 as usize][i]);
        assert_eq!(got, truth, "{} and {}", x[i], y[i]);
    }
}

/// A one at a secret place takes a row of a table as it is, special values and all.
#[test]
fn rows_of_tables() {
    let mut plan = FloatPlan::new(4).with_threads(2);
    let ones = plan.input("ones", "alice", [2, 5].into());
    let table = plan.input("table", "bob", [5, 130].into());
    let rows = plan.step("rows", FloatOp::Lookup, &[ones, table]).unwrap();
    plan.output("rows", "alice", rows);
    let special = [f32::NAN, -0.0, f32::NEG_INFINITY, 1e-30];
    let entry = |i: usize| if i.is_multiple_of(7) { special[i / 7 % 4] } else { i as f32 - 300.5 };
    let numbers = |run: u32, name: &str| match name {
        "ones" => (0..10).map(|i| f32::from(i == run as usize || i == 8)).collect(),
        _ => (0..5 * 130).map(entry).collect::<Vec<_>>(),
    };
    holds(&plan, &numbers);
    let clear = in_the_clear(&plan, &[numbers(1, "ones"), numbers(1, "table")]);
    let want = numbers(1, "table");
    let got = &clear[rows.0 as usize];
    assert!((0..130).all(|c| got[c].to_bits() == want[130 + c].to_bits()));
    assert!((0..130).all(|c| got[130 + c].to_bits() == want[3 * 130 + c].to_bits()));
    assert!(plan.step("other", FloatOp::Lookup, &[table, ones]).is_err());
}

/// Enough numbers for every thread to have some.
#[test]
fn threads_work_beside_each_other() {
    let mut plan = FloatPlan::new(8).with_threads(3);
    let x = plan.input("x", "alice", [2, 5000].into());
    let y = plan.step("relu", FloatOp::Map(Function::Relu), &[x]).unwrap();
    let z = plan.step("largest", FloatOp::Largest, &[y]).unwrap();
    plan.output("y", "alice", y);
    plan.output("z", "alice", z);
    holds(&plan, &|run, _| (0..10_000).map(|i| (i as f32 + run as f32).sin()).collect());
    let rounds: Vec<u32> = float_cost(&plan).iter().map(|b| b.rounds).collect();
    let alone: Vec<u32> = float_cost(&plan.with_threads(1)).iter().map(|b| b.rounds).collect();
    assert_eq!(rounds, alone, "three parts beside each other");
}

#[test]
fn inputs_of_another_size_are_refused() {
    let short = |_: u32, _: &Input| Ok(vec![1.0; 5]);
    let refused = run_floats(2, &functions(), &short, &|_| {}, &LocalOptions::default());
    match refused.map(|_| ()) {
        Err(LocalError::Session(Error::Refused(what))) => {
            assert!(what.contains("input `x` takes 9 elements, 5 were given"), "{what}")
        }
        other => panic!("{other:?}"),
    }
}
