//! Truncations that become parts of the products that read them.

use megrez_plan::{Kind, Op, Plan, PlanError, Step, ValueId};
use std::collections::{HashMap, HashSet};

/// For so many products at most a truncation is left out: each is dealt what it needs of the mask
/// anew.
const PRODUCTS: usize = 2;

/// How a value came from a truncation: by how many bits, and the steps from there, which rearrange
/// elements and nothing else, the last first.
struct Truncated {
    bits: u32,
    /// Places of steps, the truncation last.
    steps: Vec<usize>,
}

/// Has products, element by element, truncate their factors themselves ([`Op::MulTruncated`]),
/// where nothing but one or two such products reads what is truncated: a round and an opening less.
/// The plan computes the same values.
///
/// Steps that nothing reads any more are dropped, and the values that they made are no longer
/// there. Returned is what stands for them: the same values, not truncated.
pub fn truncate_in_products(plan: &mut Plan) -> Result<HashMap<ValueId, ValueId>, PlanError> {
    let made: HashMap<ValueId, usize> = plan.steps.iter().enumerate().map(|(i, s)| (s.output, i)).collect();
    let mut readers: HashMap<ValueId, Vec<usize>> = HashMap::new();
    for (at, step) in plan.steps.iter().enumerate() {
        step.inputs.iter().for_each(|&i| readers.entry(i).or_default().push(at));
    }
    let revealed: HashSet<ValueId> = plan.outputs.iter().map(|output| output.value).collect();
    let mut factors: HashMap<usize, Vec<Option<Truncated>>> = HashMap::new();
    for (at, step) in plan.steps.iter().enumerate() {
        let secret = |i: &ValueId| matches!(plan.value(*i).kind, Kind::Ring { .. });
        if step.op == Op::Mul && step.inputs.len() == 2 && step.inputs.iter().all(secret) {
            factors.insert(at, step.inputs.iter().map(|&i| truncated(plan, &made, i)).collect());
        }
    }
    // A truncation that something else reads as well stays, and with it those that would have gone
    // with the same products: until none is left to be kept.
    let mut kept: HashSet<usize> = HashSet::new();
    let mut products: HashMap<usize, usize> = HashMap::new();
    for of in factors.values() {
        // A square reads it once.
        let read: HashSet<usize> = of.iter().flatten().filter_map(|f| f.steps.last().copied()).collect();
        read.into_iter().for_each(|truncation| *products.entry(truncation).or_default() += 1);
    }
    kept.extend(
        products.into_iter().filter(|(_, count)| *count > PRODUCTS).map(|(truncation, _)| truncation),
    );
    // Where there is no room for both, the later one goes: what was there earlier waits for it.
    for of in factors.values() {
        let [Some(a), Some(b)] = &of[..] else { continue };
        if a.bits + b.bits > plan.ring {
            kept.extend([a, b].into_iter().min_by_key(|found| found.steps[0]).and_then(|a| a.steps.last()));
        }
    }
    loop {
        let goes = |found: &Truncated| !found.steps.iter().any(|step| kept.contains(step));
        let of = |at: &usize, i: usize| factors.get(at).and_then(|of| of[i].as_ref());
        // By all of its inputs: those of a square are one.
        let takes = |at: &usize, value: ValueId| {
            let inputs = plan.steps[*at].inputs.iter().enumerate().filter(|(_, input)| **input == value);
            let mut found = inputs.map(|(i, _)| of(at, i).is_some_and(goes));
            let drops = factors.get(at).is_some_and(|of| lost(plan, of, &kept).is_some());
            drops && found.all(|goes| goes)
        };
        let chains: HashSet<usize> = factors
            .values()
            .flatten()
            .flatten()
            .filter(|found| goes(found))
            .flat_map(|found| found.steps.iter().copied())
            .collect();
        let stays = |at: &usize| {
            let value = plan.steps[*at].output;
            let read = readers.get(&value).map_or(&[][..], Vec::as_slice);
            revealed.contains(&value)
                || read.iter().any(|reader| !chains.contains(reader) && !takes(reader, value))
        };
        let more: Vec<usize> = chains.iter().copied().filter(stays).collect();
        if more.is_empty() {
            break;
        }
        kept.extend(more);
    }
    rebuild(plan, factors, &kept)
}

/// The bits that the factors of a product lose, of those truncations that do not stay.
fn lost(plan: &Plan, of: &[Option<Truncated>], kept: &HashSet<usize>) -> Option<Vec<u32>> {
    let bits: Vec<u32> = of
        .iter()
        .map(|found| match found {
            Some(found) if !found.steps.iter().any(|step| kept.contains(step)) => found.bits,
            _ => 0,
        })
        .collect();
    let all = bits.iter().sum::<u32>();
    (all > 0 && all <= plan.ring).then_some(bits)
}

/// How a value came from a truncation, if it did.
fn truncated(plan: &Plan, made: &HashMap<ValueId, usize>, value: ValueId) -> Option<Truncated> {
    let (mut at, mut steps) = (value, vec![]);
    loop {
        let place = *made.get(&at)?;
        steps.push(place);
        let step = &plan.steps[place];
        match &step.op {
            Op::Truncate { bits } => {
                // What waits to be shared is truncated and shared in one go.
                let shared = matches!(plan.value(step.inputs[0]).kind, Kind::Ring { .. });
                return shared.then_some(Truncated { bits: *bits, steps });
            }
            Op::View(_) | Op::Gather { .. } | Op::Rescale { .. } => at = step.inputs[0],
            _ => return None,
        }
    }
}

/// The plan without the truncations that go.
fn rebuild(
    plan: &mut Plan,
    factors: HashMap<usize, Vec<Option<Truncated>>>,
    kept: &HashSet<usize>,
) -> Result<HashMap<ValueId, ValueId>, PlanError> {
    let gone: HashMap<usize, u32> = factors
        .iter()
        .filter(|(_, of)| lost(plan, of, kept).is_some())
        .flat_map(|(_, of)| of.iter().flatten())
        .filter(|found| !found.steps.iter().any(|step| kept.contains(step)))
        .flat_map(|found| found.steps.iter().map(|&step| (step, found.bits)))
        .collect();
    let steps = std::mem::take(&mut plan.steps);
    let mut stands_for: HashMap<ValueId, ValueId> = HashMap::new();
    for (at, step) in steps.into_iter().enumerate() {
        let Step { name, op, inputs, output } = step;
        let now = |id: &ValueId| stands_for.get(id).copied().unwrap_or(*id);
        if let Some(&bits) = gone.get(&at) {
            let from = now(&inputs[0]);
            let value = match op {
                Op::Truncate { .. } => from,
                Op::Rescale { frac } => plan.step(&name, Op::Rescale { frac: frac + bits }, &[from])?,
                other => plan.step(&name, other, &[from])?,
            };
            stands_for.insert(output, value);
            continue;
        }
        let bits = factors.get(&at).and_then(|of| lost(plan, of, kept));
        let inputs: Vec<ValueId> = inputs.iter().map(now).collect();
        match bits {
            Some(bits) if inputs[0] == inputs[1] && bits[0] == bits[1] => {
                plan.step_into(&name, Op::MulTruncated { bits: bits[..1].to_vec() }, &inputs[..1], output)?;
            }
            Some(bits) => plan.step_into(&name, Op::MulTruncated { bits }, &inputs, output)?,
            None => plan.step_into(&name, op, &inputs, output)?,
        }
    }
    Ok(stands_for)
}

#[cfg(test)]
mod tests {
    use super::*;
    use megrez_plan::View;

    fn names(plan: &Plan) -> Vec<&str> {
        plan.steps.iter().map(|step| step.name.as_str()).collect()
    }

    fn bits(plan: &Plan, name: &str) -> Vec<u32> {
        match &plan.steps.iter().find(|step| step.name == name).expect("a step").op {
            Op::MulTruncated { bits } => bits.clone(),
            _ => vec![],
        }
    }

    #[test]
    fn what_only_products_read_is_truncated_in_them() {
        let mut plan = Plan::new(64);
        let [x, y] = ["x", "y"].map(|name| plan.input(name, "alice", [4, 1].into(), 32));
        let w = plan.input("w", "bob", [4, 3].into(), 16);
        let one = plan.step("one", Op::Truncate { bits: 16 }, &[x]).unwrap();
        let square = plan.step("square", Op::Mul, &[one, one]).unwrap();
        let copies = View::broadcast(&[4, 1].into(), &[4, 3].into()).unwrap();
        let two = plan.step("two", Op::Truncate { bits: 8 }, &[y]).unwrap();
        let fine = plan.step("fine", Op::Rescale { frac: 20 }, &[two]).unwrap();
        let copies = plan.step("copies", Op::View(copies), &[fine]).unwrap();
        let product = plan.step("product", Op::Mul, &[copies, w]).unwrap();
        for (name, value) in [("square", square), ("product", product)] {
            plan.output(name, "alice", value);
        }
        let before = [square, product].map(|id| plan.value(id).clone());
        let stands_for = truncate_in_products(&mut plan).unwrap();
        plan.validate().unwrap();
        assert_eq!(names(&plan), ["square", "fine", "copies", "product"]);
        assert_eq!((bits(&plan, "square"), bits(&plan, "product")), (vec![16], vec![8, 0]));
        assert_eq!([square, product].map(|id| plan.value(id).clone()), before);
        assert_eq!((stands_for[&one], stands_for[&two]), (x, y));
        assert_eq!(plan.value(stands_for[&copies]).kind, Kind::Ring { frac: 28 });
    }

    #[test]
    fn what_others_read_stays() {
        let mut plan = Plan::new(64);
        let [w, x, y, z] = ["w", "x", "y", "z"].map(|name| plan.input(name, "alice", [2, 2].into(), 40));
        let cut = |plan: &mut Plan, name, bits, x| plan.step(name, Op::Truncate { bits }, &[x]).unwrap();
        let (a, b, c) = (cut(&mut plan, "a", 32, x), cut(&mut plan, "b", 32, y), cut(&mut plan, "c", 33, z));
        // 65 bits of both: the first stays, and the other is read by nobody else.
        let far = plan.step("far", Op::Mul, &[b, c]).unwrap();
        let both = plan.step("both", Op::Mul, &[a, b]).unwrap();
        let matrix = plan.step("matrix", Op::MatMul, &[a, a]).unwrap();
        for (name, value) in [("far", far), ("both", both), ("matrix", matrix)] {
            plan.output(name, "alice", value);
        }
        let often = cut(&mut plan, "often", 8, w);
        for (name, other) in [("p", x), ("q", y), ("r", w)] {
            let product = plan.step(name, Op::Mul, &[often, other]).unwrap();
            plan.output(name, "alice", product);
        }
        let steps = plan.steps.len();
        assert_eq!(truncate_in_products(&mut plan).unwrap(), HashMap::from([(c, z)]));
        plan.validate().unwrap();
        assert_eq!((plan.steps.len(), bits(&plan, "far")), (steps - 1, vec![0, 33]));
        assert_eq!(bits(&plan, "both"), []);
    }
}
