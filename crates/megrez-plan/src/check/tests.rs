use super::*;
use crate::{ConvGeometry, ValueId};

fn plan() -> Plan {
    let mut plan = Plan::new(64);
    let x = plan.input("x", "alice", [1, 3, 8, 8].into(), 16);
    let w = plan.input("w", "bob", [4, 3, 3, 3].into(), 16);
    let y = plan.step("conv/product", Op::Conv(ConvGeometry::default()), &[x, w]).unwrap();
    let y = plan.step("conv/truncate", Op::Truncate { bits: 16 }, &[y]).unwrap();
    plan.output("y", "alice", y);
    plan
}

#[test]
fn types_follow_from_the_steps() {
    let plan = plan();
    assert_eq!(plan.value(ValueId(3)), &Value { shape: [1, 4, 6, 6].into(), kind: Kind::Ring { frac: 16 } });
    assert_eq!(Plan::from_bytes(&plan.to_bytes()).unwrap(), plan);
}

#[test]
fn tampered_plans_are_refused() {
    let break_it = |change: fn(&mut Plan)| {
        let mut p = plan();
        change(&mut p);
        assert_ne!(p.hash(), plan().hash());
        assert!(Plan::from_bytes(&p.to_bytes()).is_err());
    };
    break_it(|p| p.ring = 63);
    break_it(|p| p.steps[1].inputs[0] = ValueId(99));
    break_it(|p| p.steps[1].name = "conv/product".into());
    break_it(|p| p.steps.swap(0, 1));
    break_it(|p| p.values[2].shape = [1].into());
    break_it(|p| p.outputs[0].recipient.clear());
    assert_eq!(Plan::from_bytes(&[7; 9]), Err(PlanError::Malformed));
}

/// How deep a reader calls itself is not for bytes from elsewhere to say.
#[test]
fn operations_are_nested_once() {
    let mut plan = Plan::new(64);
    let x = plan.input("x", "alice", [3].into(), 0);
    let relu = Op::Maximum(SignBit::FULL);
    let y = plan.step("y", Op::Offloaded(Box::new(relu.clone())), &[x, x]).unwrap();
    plan.output("y", "alice", y);
    let bytes = plan.to_bytes();
    assert_eq!(Plan::from_bytes(&bytes).unwrap(), plan);
    // The tag of an operation that holds another.
    let [once, twice] = [1, 2].map(|times| {
        let op = (0..times).fold(relu.clone(), |op, _| Op::Offloaded(Box::new(op)));
        postcard::to_allocvec(&op).unwrap()
    });
    let tag = &twice[..twice.len() - once.len()];
    let at = bytes.windows(once.len()).position(|w| w == once).unwrap();
    for depth in [1, 2, 100_000] {
        let deep = [&bytes[..at], &tag.repeat(depth), &bytes[at..]].concat();
        assert_eq!(Plan::from_bytes(&deep), Err(PlanError::Malformed), "{depth}");
    }
    assert_eq!(Plan::from_bytes(&bytes).unwrap(), plan, "one that was refused leaves no trace");
}

#[test]
fn widths_and_fraction_bits_are_bounded_whatever_they_are() {
    let compare = |cut, bits, frac| {
        let mut plan = Plan::new(64);
        let x = plan.input("x", "alice", [3].into(), frac);
        plan.step("bit", Op::NonNegative(SignBit { cut, bits, ..SignBit::FULL }), &[x]).map(|_| plan)
    };
    assert!(compare(1, Some(63), 0).is_ok() && compare(62, None, 0).is_ok());
    let wide = [(1, u32::MAX), (2, u32::MAX - 1), (63, u32::MAX - 62), (1, 64), (u32::MAX, 2)];
    for (cut, bits) in wide {
        assert!(compare(cut, Some(bits), 0).is_err(), "{cut} {bits}");
    }
    assert!(compare(63, None, 0).is_err() && compare(u32::MAX, None, 0).is_err());
    // Inputs are what their plan says, so their scales are looked at when it is read.
    let plan = compare(0, None, MAX_FRAC + 1).unwrap();
    assert!(plan.validate().is_err());
    let mut plan = Plan::new(64);
    let x = plan.input("x", "alice", [3].into(), MAX_FRAC);
    assert!(plan.step("product", Op::Mul, &[x, x]).is_err());
    // Values that no step makes, too.
    plan.define(Value { shape: [usize::MAX, 2].into(), kind: Kind::Bit });
    assert!(plan.validate().is_err());
}

#[test]
fn comparisons_with_many_are_bounded() {
    let compare = |ring, thresholds: Vec<i64>| {
        let mut plan = Plan::new(ring);
        let x = plan.input("x", "alice", [3, 5].into(), 4);
        let bits = plan.step("many", Op::CompareMany { sign: SignBit::FULL, thresholds }, &[x])?;
        Ok::<_, PlanError>(plan.value(bits).clone())
    };
    assert_eq!(compare(8, vec![-128, 127]), Ok(Value { shape: [2, 3, 5].into(), kind: Kind::Bit }));
    assert!(compare(8, vec![128]).is_err());
    assert!(compare(64, vec![i64::MIN, i64::MAX]).is_ok());
    assert!(compare(64, vec![]).is_err());
    assert!(compare(64, vec![0; MAX_THRESHOLDS]).is_ok());
    assert!(compare(64, vec![0; MAX_THRESHOLDS + 1]).is_err());
}

#[test]
fn maxima_are_of_a_few_values_of_one_kind() {
    let mut plan = Plan::new(8);
    let [x, y] = [2, 3].map(|frac| plan.input(&format!("x{frac}"), "alice", [3].into(), frac));
    let cut = |bits| Op::Maximum(SignBit { cut: 2, bits, ..SignBit::FULL });
    let z = plan.step("max", cut(None), &[x; MAX_OPERANDS]).unwrap();
    assert_eq!(plan.value(z), plan.value(x));
    for inputs in [&[x][..], &[x; MAX_OPERANDS + 1], &[x, y]] {
        assert!(plan.step("bad", cut(None), inputs).is_err(), "{inputs:?}");
    }
    assert!(plan.step("wide", cut(Some(7)), &[x; 2]).is_err());
}

#[test]
fn products_of_many_are_of_a_few_secrets_of_one_shape() {
    let mut plan = Plan::new(32);
    let [x, y] = [2, 3].map(|frac| plan.input(&format!("x{frac}"), "alice", [3].into(), frac));
    let wide = plan.input("wide", "alice", [4].into(), 2);
    let words = vec![1; 3];
    let public = plan.step("public", Op::Constant { shape: [3].into(), frac: 1, words }, &[]).unwrap();
    for (inputs, frac) in [(&[x, y, x][..], 7), (&[x, x, y, y], 10), (&[public, y], 4)] {
        let z = plan.step(&format!("z{frac}"), Op::Mul, inputs).unwrap();
        assert_eq!(plan.value(z), &Value { shape: [3].into(), kind: Kind::Ring { frac } });
    }
    for inputs in [&[x][..], &[x; MAX_FACTORS + 1], &[x, y, wide], &[x, y, public], &[public; 2]] {
        assert!(plan.step("bad", Op::Mul, inputs).is_err(), "{inputs:?}");
    }
    assert!(plan.step("left", Op::Additive(Box::new(Op::Mul)), &[x, y, x]).is_err());
}

#[test]
fn mistakes_name_the_step() {
    let mut plan = plan();
    let error = plan.step("fc/product", Op::MatMul, &[ValueId(0), ValueId(1)]).unwrap_err();
    assert!(error.to_string().starts_with("step `fc/product`: cannot multiply matrices"), "{error}");
}
