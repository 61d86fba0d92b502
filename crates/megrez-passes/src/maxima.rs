//! Maxima by comparing all pairs, for protocols that have no such step of their own.

use megrez_plan::{List, Op, Plan, PlanError, SignBit, ValueId, View};
use std::collections::HashMap;

/// Replaces every [`Op::Maximum`] by comparisons of all pairs, conjunctions of their bits that say
/// which value wins, and selections: the rounds of a comparison, a conjunction and a selection,
/// where a tournament has those of a ReLU per level. A ReLU that is the only reader of a maximum
/// becomes a part of it, as one more value to win against; what it truncates is truncated beside
/// the comparisons. Nothing is cut: with approximate comparisons no value might win all its pairs.
///
/// Values keep their numbers; a maximum that has become part of its ReLU is no longer there.
pub fn spread_maxima(plan: &mut Plan) -> Result<(), PlanError> {
    let mut readers: HashMap<ValueId, Vec<usize>> = HashMap::new();
    for (at, step) in plan.steps.iter().enumerate() {
        step.inputs.iter().for_each(|&i| readers.entry(i).or_default().push(at));
    }
    let steps = std::mem::take(&mut plan.steps);
    let maximum = |value: ValueId| {
        let step = steps.iter().find(|s| s.output == value)?;
        let Op::Maximum(sign) = &step.op else { return None };
        let revealed = plan.outputs.iter().any(|o| o.value == value);
        (readers[&value].len() == 1 && !revealed).then_some((step, sign))
    };
    let mut joined = HashMap::new();
    for step in steps.iter().filter(|s| matches!(s.op, Op::Relu(_))) {
        if let Some(found) = maximum(step.inputs[0]) {
            joined.insert(step.inputs[0], found);
        }
    }
    for step in &steps {
        match &step.op {
            Op::Maximum(_) if joined.contains_key(&step.output) => {}
            Op::Maximum(sign) => {
                let sign = uncut(&[sign], plan.ring);
                largest(plan, &step.name, &step.inputs, sign, None, step.output)?;
            }
            Op::Relu(relu) if joined.contains_key(&step.inputs[0]) => {
                let (maximum, sign) = joined[&step.inputs[0]];
                let sign = uncut(&[sign, &relu.sign], plan.ring);
                largest(plan, &step.name, &maximum.inputs, sign, Some(relu.truncate), step.output)?;
            }
            _ => plan.steps.push(step.clone()),
        }
    }
    Ok(())
}

/// The steps of the largest of `x`; with `floor`, of `x` and 0, that many fraction bits dropped.
fn largest(
    plan: &mut Plan,
    name: &str,
    x: &[ValueId],
    sign: SignBit,
    floor: Option<u32>,
    output: ValueId,
) -> Result<(), PlanError> {
    let step = |plan: &mut Plan, part: String, op: Op, inputs: &[ValueId]| {
        plan.step(&format!("{name}/{part}"), op, inputs)
    };
    let shape = plan.value(x[0]).shape.clone();
    let rows = shape.dims()[0];
    // x_i − x_j for i < j, then x_i − 0.
    let mut differences = vec![];
    let mut number = HashMap::new();
    for i in 0..x.len() {
        for j in i + 1..x.len() {
            number.insert((i, j), differences.len());
            let op = Op::Combine { coefficients: vec![1, -1], constant: 0 };
            differences.push(step(plan, format!("difference{i}-{j}"), op, &[x[i], x[j]])?);
        }
    }
    let pairs = differences.clone();
    if floor.is_some() {
        differences.extend(x);
    }
    let all = step(plan, "all".into(), Op::Concat { axis: 0 }, &differences)?;
    let larger = step(plan, "compare".into(), Op::NonNegative(sign), &[all])?;
    let smaller = step(plan, "not".into(), Op::Not, &[larger])?;
    let of_all = plan.value(all).shape.clone();
    let slice = |at: usize| Op::View(View::slice(&of_all, 0, at * rows, 1, rows));
    // Without a floor the last value is what is left if no other wins.
    let contenders = if floor.is_some() { x.len() } else { x.len() - 1 };
    let values: Vec<ValueId> = match floor {
        None => (0..contenders).map(|i| pairs[number[&(i, x.len() - 1)]]).collect(),
        Some(0) => x.to_vec(),
        Some(bits) => {
            let all = step(plan, "values".into(), Op::Concat { axis: 0 }, x)?;
            let all = step(plan, "truncate".into(), Op::Truncate { bits }, &[all])?;
            let of_all = plan.value(all).shape.clone();
            let part = |i: usize| Op::View(View::slice(&of_all, 0, i * rows, 1, rows));
            (0..contenders)
                .map(|i| step(plan, format!("value{i}"), part(i), &[all]))
                .collect::<Result<_, _>>()?
        }
    };
    let mut summands = vec![];
    for (i, &value) in values.iter().enumerate().take(contenders) {
        let mut bits = vec![];
        for j in (0..x.len()).filter(|&j| j != i) {
            let (from, pair) = if i < j { (larger, (i, j)) } else { (smaller, (j, i)) };
            bits.push(step(plan, format!("bit{i}-{j}"), slice(number[&pair]), &[from])?);
        }
        if floor.is_some() {
            bits.push(step(plan, format!("bit{i}"), slice(pairs.len() + i), &[larger])?);
        }
        let wins = match bits[..] {
            [only] => only,
            _ => step(plan, format!("wins{i}"), Op::And, &bits)?,
        };
        summands.push(step(plan, format!("select{i}"), Op::SELECT, &[wins, value])?);
    }
    if floor.is_none() {
        summands.push(x[x.len() - 1]);
    }
    let sum = Op::Combine { coefficients: vec![1; summands.len()], constant: 0 };
    // The last step defines the value that was there before.
    plan.step_into(name, sum, &summands, output)
}

/// A comparison of as many bits as any of these looks at or cuts.
fn uncut(signs: &[&SignBit], ring: u32) -> SignBit {
    let width = signs.iter().map(|s| s.cut + s.width(ring)).max().unwrap_or(ring);
    SignBit { list: List::Bits, cut: 0, bits: Some(width.min(ring)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use megrez_plan::{Kind, Relu, ReluForm};

    #[test]
    fn a_relu_joins_the_maximum_that_only_it_reads() {
        let mut plan = Plan::new(64);
        let x = ["a", "b", "c", "d"].map(|name| plan.input(name, "alice", [3, 2].into(), 32));
        let relu = |truncate| Op::Relu(Relu { sign: SignBit::FULL, form: ReluForm::ThreeRounds, truncate });
        let first = plan.step("first", Op::Maximum(SignBit::FULL), &x).unwrap();
        let y = plan.step("y", relu(16), &[first]).unwrap();
        let second = plan.step("second", Op::Maximum(SignBit::FULL), &x[..3]).unwrap();
        let z = plan.step("z", relu(0), &[second]).unwrap();
        for (name, value) in [("y", y), ("second", second), ("z", z)] {
            plan.output(name, "alice", value);
        }
        spread_maxima(&mut plan).unwrap();
        plan.validate().unwrap();
        let count = |prefix: &str, op: fn(&Op) -> bool| {
            plan.steps.iter().filter(|s| s.name.starts_with(prefix) && op(&s.op)).count()
        };
        let and = |op: &Op| matches!(op, Op::And);
        assert_eq!((count("first", |_| true), count("y/", and), count("second/", and)), (0, 4, 2));
        assert_eq!(count("z", |op| matches!(op, Op::Relu(_))), 1, "its maximum is revealed");
        assert_eq!(plan.value(y).kind, Kind::Ring { frac: 16 });
    }
}
