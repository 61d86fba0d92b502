//! What the walks ask about the steps of a plan.

use megrez_kernels::Device;
use megrez_plan::{Kind, Op, Plan, Step, Value, ValueId};
use megrez_protocols::{AnySuite, Call, Cost};

/// The types of a step's inputs.
pub(crate) fn types<'a>(plan: &'a Plan, step: &Step) -> Vec<&'a Value> {
    step.inputs.iter().map(|&i| plan.value(i)).collect()
}

/// A step as a suite sees it; `inputs` are the types of its inputs.
pub(crate) fn call<'a>(plan: &'a Plan, step: &'a Step, inputs: &'a [&'a Value]) -> Call<'a> {
    Call { op: &step.op, inputs, output: plan.value(step.output) }
}

/// What a step costs; `None` if the suite does not have it.
pub(crate) fn step_cost<D: Device>(suite: &dyn AnySuite<D>, plan: &Plan, step: &Step) -> Option<Cost> {
    suite.cost(call(plan, step, &types(plan, step))).ok()
}

/// Whether a step sends anything, offline included: what an input's deferred masks put off is sent
/// online.
pub(crate) fn interactive<D: Device>(suite: &dyn AnySuite<D>, plan: &Plan, step: &Step) -> bool {
    step_cost(suite, plan, step).is_none_or(|cost| !cost.transfers.is_empty())
}

/// How many times each value is read; an output once more than its steps say, so that it stays.
pub(crate) fn readers(plan: &Plan) -> Vec<usize> {
    let mut readers = vec![0; plan.values.len()];
    plan.steps.iter().flat_map(|s| &s.inputs).for_each(|i| readers[i.0 as usize] += 1);
    plan.outputs.iter().for_each(|o| readers[o.value.0 as usize] += 1);
    readers
}

/// For each value how many steps' material its masks are needed for: of those that read it, and of
/// the one that makes it. Inputs and outputs count once more, and so stay.
pub(crate) fn unspent(plan: &Plan) -> Vec<usize> {
    let mut unspent = readers(plan);
    plan.steps.iter().for_each(|step| unspent[step.output.0 as usize] += 1);
    plan.inputs.iter().for_each(|input| unspent[input.value.0 as usize] += 1);
    unspent
}

/// The step that makes each value; none makes an input.
pub(crate) fn producers(plan: &Plan) -> Vec<Option<usize>> {
    let mut producers = vec![None; plan.values.len()];
    plan.steps.iter().enumerate().for_each(|(index, step)| producers[step.output.0 as usize] = Some(index));
    producers
}

/// From so many elements on masks that follow from others are made once more online and not held
/// until then.
const MADE_AGAIN: usize = 1 << 16;

/// The step whose result has large masks that follow from its inputs' alone: a linear one, which
/// draws nothing.
pub(crate) fn derived(plan: &Plan, value: ValueId, producers: &[Option<usize>]) -> Option<usize> {
    let step = producers[value.0 as usize]?;
    // Matrices in files are dear to multiply by.
    let cheap = plan.steps[step].op.is_linear() && !matches!(plan.steps[step].op, Op::TimesPublic(_));
    let Value { shape, kind } = plan.value(value);
    let secret = matches!(kind, Kind::Ring { .. } | Kind::Bit);
    (cheap && secret && shape.elements() >= MADE_AGAIN).then_some(step)
}
