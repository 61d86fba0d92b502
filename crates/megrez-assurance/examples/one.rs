use megrez_assurance::{masks::examine, plans};
use megrez_plan::*;
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let plan = match args[2].as_str() {
        "sign" | "many" | "bits" => {
            let mut plan = Plan::new(64);
            let x = plan.input("x", "alice", [70].into(), 32);
            let op = match args[2].as_str() {
                "sign" => Op::NonNegative(SignBit::FULL),
                "many" => Op::CompareMany { sign: SignBit::FULL, thresholds: vec![0, 5] },
                _ => Op::ToBits,
            };
            let z = plan.step("op", op, &[x]).unwrap();
            plan.output("z", "carol", z);
            plan
        }
        n => plans::random(&args[1], n.parse().unwrap()),
    };
    if args.len() > 3 {
        for i in &plan.inputs {
            println!("input {} {} v{}", i.name, i.owner, i.value.0);
        }
        for s in &plan.steps {
            println!(
                "{} {:?} {:?} -> v{}",
                s.name,
                s.op,
                s.inputs.iter().map(|i| i.0).collect::<Vec<_>>(),
                s.output.0
            );
        }
        for o in &plan.outputs {
            println!("output {} {} v{}", o.name, o.recipient, o.value.0);
        }
    }
    let report = examine(&args[1], &plan).unwrap();
    println!("{} messages {} views {} rows {:?}", report.messages, report.views, report.rows, report.lemmas);
    let mut seen = std::collections::BTreeMap::<String, usize>::new();
    for u in &report.unmasked {
        *seen
            .entry(format!("{} sees {} : {:?} with {:?}", u.observer, u.message, u.labels, u.with))
            .or_default() += 1;
    }
    for (k, v) in seen {
        println!("{v} x {k}");
    }
}
