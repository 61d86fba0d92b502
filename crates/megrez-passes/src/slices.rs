//! Slices: large steps as several smaller ones on rows of their own, so that a party computes one
//! while messages of another are under way.

use crate::{fresh_name, names};
use megrez_plan::{Kind, Op, Plan, PlanError, ValueId, View};
use megrez_ring::Shape;
use std::collections::{HashMap, HashSet};

/// From so many elements on a step is worth slices: with fewer its messages are short beside a
/// delay.
pub const SLICED_FROM: usize = 1 << 19;
/// So many slices: parties wait for the first message and after the last computation, and each
/// slice more makes that shorter and every slice's work less.
const SLICES: usize = 4;

/// Cuts steps that send something and make at least `large` elements along the first dimension.
/// Slices of one step become the operands of slices of the next, and are joined where a step needs
/// all of them. The plan computes the same values, and its messages are the same in more pieces,
/// each padded to whole bytes or words; rounds stay. Plans with noise stay as they are: what
/// privacy they have is read from their steps one by one.
pub fn slice_rows(plan: &mut Plan, large: usize) -> Result<(), PlanError> {
    if plan.steps.iter().any(|step| matches!(step.op, Op::Noise { .. })) {
        return Ok(());
    }
    let names = names(plan);
    let steps = std::mem::take(&mut plan.steps);
    let mut slicing = Slicing { plan, large, names, slices: HashMap::new(), apart: HashSet::new() };
    for step in steps {
        let operands = slicing.operands(&step.op, &step.inputs, step.output);
        if let Some(operands) = operands {
            slicing.cut(&step.name, &step.op, &step.inputs, &operands, step.output)?;
        } else {
            step.inputs.iter().try_for_each(|&input| slicing.join(&step.name, input))?;
            slicing.plan.steps.push(step);
        }
    }
    let outputs: Vec<(String, ValueId)> =
        slicing.plan.outputs.iter().map(|o| (o.name.clone(), o.value)).collect();
    outputs.iter().try_for_each(|(name, value)| slicing.join(name, *value))
}

/// What a step does with an operand, slice by slice.
#[derive(Clone, Copy, PartialEq)]
enum Operand {
    /// Takes the slice.
    Rows,
    /// Takes all of it.
    Whole,
}

struct Slicing<'a> {
    plan: &'a mut Plan,
    large: usize,
    names: HashSet<String>,
    /// The slices of a value, in order.
    slices: HashMap<ValueId, Vec<ValueId>>,
    /// Values that are there in slices only.
    apart: HashSet<ValueId>,
}

impl Slicing<'_> {
    fn shape(&self, value: ValueId) -> &Shape {
        &self.plan.value(value).shape
    }

    /// How a step is cut that is: one of many elements that sends something, or a local one on
    /// slices.
    fn operands(&self, op: &Op, inputs: &[ValueId], output: ValueId) -> Option<Vec<Operand>> {
        let shape = self.shape(output);
        if !shape.dims().first()?.is_multiple_of(SLICES) {
            return None;
        }
        let operands = self.by_rows(op, inputs, shape)?;
        let sliced = |(&input, operand): (&ValueId, &Operand)| {
            *operand == Operand::Rows && self.slices.contains_key(&input)
        };
        // Of bits a message has 64 where it would have one word.
        let words = match op {
            Op::And | Op::BitMatMul | Op::Xor | Op::Not => shape.elements() / 64,
            _ => shape.elements(),
        };
        // What is local costs no message, and is cut where its operands are.
        let pays = match is_local(op, self.plan, inputs) {
            true => inputs.iter().zip(&operands).any(sliced) && words >= self.large / SLICES,
            false => words >= self.large,
        };
        pays.then_some(operands)
    }

    /// The operands of a step whose row i follows from row i of some of them.
    fn by_rows(&self, op: &Op, inputs: &[ValueId], shape: &Shape) -> Option<Vec<Operand>> {
        use Operand::{Rows, Whole};
        let dims = |at: usize| self.shape(inputs[at]).dims();
        let rows = shape.dims()[0];
        let same_rows = || inputs.iter().all(|&i| self.shape(i).dims().first() == Some(&rows));
        match op {
            Op::Additive(op) | Op::Offloaded(op) => self.by_rows(op, inputs, shape),
            Op::Combine { .. }
            | Op::Rescale { .. }
            | Op::Mul
            | Op::MulTruncated { .. }
            | Op::Truncate { .. }
            | Op::NonNegative(_)
            | Op::Relu(_)
            | Op::Maximum(_)
            | Op::Lookup(_)
            | Op::Reshare
            | Op::Select { .. }
            | Op::BitToRing
            | Op::LowBit
            | Op::Xor
            | Op::And
            | Op::Not => inputs.iter().all(|&i| self.shape(i) == shape).then(|| vec![Rows; inputs.len()]),
            Op::Conv(_) => Some(vec![Rows, Whole]),
            Op::MatMul if shape.rank() == 2 => Some(vec![Rows, Whole]),
            Op::MatMul | Op::BitMatMul => Some(vec![Rows; 2]),
            Op::TimesPublic(_) if shape.rank() > 1 => Some(vec![Rows]),
            Op::View(view) => (dims(0).first() == Some(&rows) && within_rows(view, self.shape(inputs[0])))
                .then(|| vec![Rows]),
            Op::Pad { before, after } if before[0] == 0 && after[0] == 0 => Some(vec![Rows]),
            Op::Sum { axis } | Op::Gather { axis, .. } if *axis > 0 => Some(vec![Rows]),
            Op::Concat { axis } if *axis > 0 && same_rows() => Some(vec![Rows; inputs.len()]),
            _ => None,
        }
    }

    /// The slices of a value.
    fn slices_of(&mut self, name: &str, value: ValueId) -> Result<Vec<ValueId>, PlanError> {
        if let Some(slices) = self.slices.get(&value) {
            return Ok(slices.clone());
        }
        let shape = self.shape(value).clone();
        let rows = shape.dims()[0] / SLICES;
        let slice = |i: usize| {
            let name = fresh_name(&mut self.names, &format!("{name}/rows{i}"));
            self.plan.step(&name, Op::View(View::slice(&shape, 0, i * rows, 1, rows)), &[value])
        };
        let slices = (0..SLICES).map(slice).collect::<Result<Vec<_>, _>>()?;
        self.slices.insert(value, slices.clone());
        Ok(slices)
    }

    fn cut(
        &mut self,
        name: &str,
        op: &Op,
        inputs: &[ValueId],
        operands: &[Operand],
        output: ValueId,
    ) -> Result<(), PlanError> {
        let mut of_slices = vec![vec![]; SLICES];
        for (&input, operand) in inputs.iter().zip(operands) {
            let slices = match operand {
                Operand::Rows => self.slices_of(name, input)?,
                Operand::Whole => {
                    self.join(name, input)?;
                    vec![input; SLICES]
                }
            };
            of_slices.iter_mut().zip(slices).for_each(|(inputs, slice)| inputs.push(slice));
        }
        let op = match op {
            Op::View(view) => {
                let mut dims = view.shape.dims().to_vec();
                dims[0] /= SLICES;
                &Op::View(View { shape: dims.into(), ..view.clone() })
            }
            op => op,
        };
        let mut slices = vec![];
        for (i, inputs) in of_slices.iter().enumerate() {
            let name = fresh_name(&mut self.names, &format!("{name}/{i}"));
            slices.push(self.plan.step(&name, op.clone(), inputs)?);
        }
        self.slices.insert(output, slices);
        self.apart.insert(output);
        Ok(())
    }

    /// Has a value there as a whole, for a step of this name.
    fn join(&mut self, name: &str, value: ValueId) -> Result<(), PlanError> {
        if !self.apart.remove(&value) {
            return Ok(());
        }
        let name = fresh_name(&mut self.names, &format!("{name}/all"));
        self.plan.step_into(&name, Op::Concat { axis: 0 }, &self.slices[&value].clone(), value)
    }
}

/// Whether a step sends nothing under any protocol.
fn is_local(op: &Op, plan: &Plan, inputs: &[ValueId]) -> bool {
    let public = |i: &ValueId| matches!(plan.value(*i).kind, Kind::Public { .. });
    match op {
        Op::Mul | Op::MatMul | Op::Conv(_) => inputs.iter().any(public),
        Op::Xor | Op::Not | Op::LowBit => true,
        op => op.is_linear(),
    }
}

/// Whether row i of a view is of row i of its input.
fn within_rows(view: &View, from: &Shape) -> bool {
    let row = from.strides()[0];
    let rest = View {
        shape: view.shape.dims()[1..].to_vec().into(),
        strides: view.strides[1..].to_vec(),
        offset: view.offset,
    };
    view.strides[0] == row as isize && rest.fits(row)
}

#[cfg(test)]
mod tests {
    use super::*;
    use megrez_plan::{ConvGeometry, Relu, ReluForm, SignBit};

    fn names(plan: &Plan) -> Vec<&str> {
        plan.steps.iter().map(|step| step.name.as_str()).collect()
    }

    #[test]
    fn large_steps_are_cut_and_joined_where_all_of_them_is_needed() {
        let mut plan = Plan::new(64);
        let x = plan.input("x", "alice", [8, 2, 8, 8].into(), 8);
        let w = plan.input("w", "bob", [2, 2, 1, 1].into(), 8);
        let conv = plan.step("conv", Op::Conv(ConvGeometry::default()), &[x, w]).unwrap();
        let relu = Op::Relu(Relu { sign: SignBit::FULL, form: ReluForm::ThreeRounds, truncate: 8 });
        let y = plan.step("relu", relu, &[conv]).unwrap();
        // The first rows of every second image are no rows of slices; every second column is.
        let images = View::slice(&[8, 2, 8, 8].into(), 0, 0, 2, 4);
        let columns = View::slice(&[8, 2, 8, 8].into(), 3, 1, 2, 4);
        let a = plan.step("images", Op::View(images), &[y]).unwrap();
        let b = plan.step("columns", Op::View(columns), &[y]).unwrap();
        let b = plan.step("sum", Op::Sum { axis: 1 }, &[b]).unwrap();
        let small = plan.step("small", Op::Mul, &[b, b]).unwrap();
        [y, a, small].iter().enumerate().for_each(|(i, &value)| plan.output(&i.to_string(), "alice", value));
        let types: Vec<_> = plan.outputs.iter().map(|o| plan.value(o.value).clone()).collect();

        let mut stays = plan.clone();
        slice_rows(&mut stays, 1025).unwrap();
        assert_eq!(stays, plan);

        slice_rows(&mut plan, 1024).unwrap();
        plan.validate().unwrap();
        let cut = |name: &str| (0..SLICES).map(|i| format!("{name}/{i}")).collect::<Vec<_>>();
        let rows: Vec<String> = (0..SLICES).map(|i| format!("conv/rows{i}")).collect();
        let whole = |name: &str| vec![name.to_owned()];
        let expected = [
            rows,
            cut("conv"),
            cut("relu"),
            whole("images/all"),
            whole("images"),
            cut("columns"),
            cut("sum"),
            whole("small/all"),
            whole("small"),
        ];
        assert_eq!(names(&plan), expected.concat());
        let after: Vec<_> = plan.outputs.iter().map(|o| plan.value(o.value).clone()).collect();
        assert_eq!(after, types);
    }

    #[test]
    fn a_bit_is_no_word() {
        let mut plan = Plan::new(64);
        let x = plan.input("x", "alice", [8, 1024].into(), 8);
        let a = plan.step("a", Op::NonNegative(SignBit::FULL), &[x]).unwrap();
        let b = plan.step("b", Op::Not, &[a]).unwrap();
        let both = plan.step("both", Op::And, &[a, b]).unwrap();
        plan.output("y", "alice", both);
        slice_rows(&mut plan, 8192).unwrap();
        plan.validate().unwrap();
        let cut: Vec<&str> = names(&plan).into_iter().filter(|name| name.ends_with("/0")).collect();
        assert_eq!(cut, ["a/0"]);
    }

    #[test]
    fn what_has_no_even_slices_or_noise_stays() {
        let uneven = |rows: usize, columns: usize| {
            let mut plan = Plan::new(64);
            let x = plan.input("x", "alice", [rows, columns].into(), 8);
            let y = plan.step("y", Op::Mul, &[x, x]).unwrap();
            plan.output("y", "alice", y);
            plan
        };
        for (rows, columns, steps) in [(6, 64, 1), (4, 63, 9), (4, 64, 9)] {
            let mut plan = uneven(rows, columns);
            slice_rows(&mut plan, 1).unwrap();
            assert_eq!(plan.steps.len(), steps, "{rows} × {columns}");
        }
        let mut noisy = uneven(4, 64);
        let noise = Op::Noise { shape: [4, 64].into(), frac: 16, deviation: 3 };
        let n = noisy.step("noise", noise, &[]).unwrap();
        let sum = Op::Combine { coefficients: vec![1, 1], constant: 0 };
        let y = noisy.outputs[0].value;
        noisy.outputs[0].value = noisy.step("sum", sum, &[y, n]).unwrap();
        let before = noisy.clone();
        slice_rows(&mut noisy, 1).unwrap();
        assert_eq!(noisy, before);
    }
}
