//! All passes in their order: small steps to the dealer, other maxima spread, products left to
//! their truncation.

use megrez_passes::legalise;
use megrez_plan::{Op, Plan, SignBit};

#[test]
fn a_plan_becomes_one_for_equal_parties_and_stays_valid() {
    let mut plan = Plan::new(64);
    let [small, large] = [("a", 4), ("b", 9)].map(|(name, n)| plan.input(name, "alice", [n].into(), 16));
    let product = plan.step("product", Op::Mul, &[large, large]).unwrap();
    let y = plan.step("y", Op::Truncate { bits: 16 }, &[product]).unwrap();
    let kept = plan.step("small", Op::Maximum(SignBit::FULL), &[small, small]).unwrap();
    let spread = plan.step("large", Op::Maximum(SignBit::FULL), &[large, y]).unwrap();
    let pieces = vec![0, 1, 2, 3];
    let table = megrez_plan::Lookup { cut: 0, low: 3, degree: 1, pieces, frac: 16, beyond: None };
    let looked_up = plan.step("table", Op::Lookup(table), &[large]).unwrap();
    plan.output("looked up", "alice", looked_up);
    plan.output("small", "alice", kept);
    plan.output("large", "alice", spread);
    let (kind, shape) = (plan.value(spread).kind, plan.value(spread).shape.clone());

    legalise(&mut plan, 4).unwrap();
    plan.validate().unwrap();
    let of = |name: &str| &plan.steps.iter().find(|step| step.name == name).unwrap().op;
    assert!(matches!(of("product"), Op::Additive(_)));
    assert!(matches!(of("small"), Op::Offloaded(_)));
    assert!(matches!(of("table"), Op::Offloaded(_)), "of any size");
    assert!(plan.steps.iter().all(|step| !matches!(step.op, Op::Maximum(_))));
    assert_eq!(
        (plan.value(spread).kind, &plan.value(spread).shape),
        (kind, &shape),
        "readers see what they saw"
    );
}
