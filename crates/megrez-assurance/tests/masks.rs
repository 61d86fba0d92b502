//! The symbolic checker against plans that are masked, and plans and protocols that are not.

use megrez_assurance::masks::{Report, examine};
use megrez_plan::{List, Op, Plan, Relu, ReluForm, SignBit};

const THREE: [&str; 6] = ["mizar", "concurrent", "aby3", "alkaid", "meteor", "alkaid-masked"];

fn digits(ring: u32) -> SignBit {
    let bits = ring - 1;
    SignBit {
        list: List::Digits([vec![3; bits as usize / 3], vec![1; bits as usize % 3]].concat()),
        cut: 0,
        bits: None,
    }
}

fn relu(form: ReluForm, truncate: u32) -> Op {
    Op::Relu(Relu { sign: digits(64), form, truncate })
}

/// A plan of one step on inputs of 70 elements.
fn one(op: &Op) -> Plan {
    let mut plan = Plan::new(64);
    let count = match op {
        Op::Mul | Op::Unshared(_) => 2,
        Op::Maximum(_) => 4,
        _ => 1,
    };
    let inputs: Vec<_> =
        (0..count).map(|i| plan.input(&format!("x{i}"), ["alice", "bob"][i % 2], [70].into(), 32)).collect();
    let z = plan.step("op", op.clone(), &inputs).unwrap();
    plan.output("z", "carol", z);
    plan.validate().unwrap();
    plan
}

fn show(report: &Report) -> String {
    let lines = report.unmasked.iter().map(ToString::to_string).chain(report.trouble.iter().cloned());
    lines.take(6).collect::<Vec<_>>().join("\n  ")
}

#[test]
fn single_steps_are_masked() {
    let ops = [
        ("product", Op::Mul),
        ("truncation", Op::Truncate { bits: 16 }),
        ("sign", Op::NonNegative(SignBit::FULL)),
        ("digits", Op::NonNegative(digits(64))),
        ("many", Op::CompareMany { sign: digits(64), thresholds: vec![-5, 0, 7] }),
        ("relu", relu(ReluForm::ThreeRounds, 0)),
        ("relu and truncation", relu(ReluForm::ThreeRounds, 16)),
        ("two rounds", relu(ReluForm::TwoRounds, 16)),
        ("two rounds, fresh", relu(ReluForm::TwoRoundsFresh, 16)),
        ("maximum", Op::Maximum(digits(64))),
        ("bits", Op::ToBits),
    ];
    let mut wrong = vec![];
    for protocol in THREE {
        for (name, op) in &ops {
            match examine(protocol, &one(op)) {
                Ok(report) if report.is_masked() => {
                    println!("{protocol} {name}: {} messages, {:?}", report.messages, report.lemmas);
                }
                Ok(report) => wrong.push(format!("{protocol} {name}:\n  {}", show(&report))),
                Err(e) => println!("{protocol} {name}: {e}"),
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
