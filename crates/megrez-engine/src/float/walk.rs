//! One step after the other, on whatever supplies the integer blocks.

use megrez_float::programs::{LANES, Matrix, each, fold, fused_sum, in_parts, lookup, pairwise};
use megrez_float::{
    AnyBlocks, Failure, Float, Format, Plain, add, choose, div, eq, le, lt, math, max, min, mul, relu, sqrt,
    square, sub, truth, whole,
};
use megrez_plan::{FloatOp, FloatPlan, Function, Operation, ValueId};

/// A plan on its way. Values go when nobody reads them any more.
pub struct Walk<'a> {
    plan: &'a FloatPlan,
    values: Vec<Option<Float>>,
    reads_left: Vec<usize>,
}

impl<'a> Walk<'a> {
    /// Before the first step. The plan is valid; `inputs` are in its order and of its shapes.
    pub fn new(plan: &'a FloatPlan, inputs: Vec<Float>) -> Self {
        let mut reads_left = vec![0; plan.values.len()];
        plan.steps.iter().flat_map(|s| &s.inputs).for_each(|i| reads_left[i.0 as usize] += 1);
        plan.outputs.iter().for_each(|o| reads_left[o.value.0 as usize] += 1);
        let mut values: Vec<_> = plan.values.iter().map(|_| None).collect();
        plan.inputs.iter().zip(inputs).for_each(|(input, x)| values[input.value.0 as usize] = Some(x));
        Walk { plan, values, reads_left }
    }

    /// As [`new`](Self::new), and every value stays.
    pub fn keeping_all(plan: &'a FloatPlan, inputs: Vec<Float>) -> Self {
        let mut walk = Self::new(plan, inputs);
        walk.reads_left.iter_mut().for_each(|left| *left += 1);
        walk
    }

    /// A value that is there.
    ///
    /// # Panics
    /// If it is not yet, or not any more.
    pub fn value(&self, id: ValueId) -> &Float {
        self.values[id.0 as usize].as_ref().expect("a valid plan reads what is there")
    }

    /// Does step `i`; every earlier one is done.
    ///
    /// # Errors
    /// If the blocks fail.
    pub fn step(&mut self, b: &mut AnyBlocks, i: usize) -> Result<(), Failure> {
        let step = &self.plan.steps[i];
        let inputs: Vec<_> = step.inputs.iter().map(|&id| self.value(id)).collect();
        let result = match &step.op {
            FloatOp::Map(f) => map(b, *f, inputs[0])?,
            FloatOp::Pair(Operation::Mul) if step.inputs[0] == step.inputs[1] => each(b, inputs[0], square)?,
            FloatOp::Pair(f) => pairwise(b, inputs[0], inputs[1], operation(*f))?,
            FloatOp::Choose => in_parts(b, inputs[0].lanes(b), 1, |b, range| {
                let [c, x, y] = [0, 1, 2].map(|i| inputs[i].slice(b, range.clone()));
                choose(b, &c.zero, &y, &x)
            })?,
            FloatOp::MatMul => self.product(b, step.inputs[0], step.inputs[1])?,
            FloatOp::Lookup => {
                let [ones, table] = [0, 1].map(|i| self.matrix(b, step.inputs[i]));
                lookup(b, &ones, &table)?.data
            }
            FloatOp::Sum => {
                let lanes = inputs[0].lanes(b) / self.terms(step.inputs[0]);
                fused_sum(b, inputs[0], lanes)?
            }
            FloatOp::Largest => reduce(b, inputs[0], self.terms(step.inputs[0]), max)?,
            FloatOp::View(view) => inputs[0].gather(b, &view.indices().collect::<Vec<_>>()),
            FloatOp::Gather { places, .. } => {
                let zero = Float::constant(b, Format::FLOAT32, 0, 1);
                let all = Float::concat(b, &inputs.into_iter().chain([&zero]).collect::<Vec<_>>());
                all.gather(b, &places.iter().map(|&p| p as usize).collect::<Vec<_>>())
            }
            FloatOp::Constant { bits, .. } => {
                let bits: Vec<u64> = bits.iter().map(|&v| v.into()).collect();
                Float::public(b, &Plain::from_bits(Format::FLOAT32, &bits))
            }
        };
        self.values[step.output.0 as usize] = Some(result);
        for id in &step.inputs {
            let left = &mut self.reads_left[id.0 as usize];
            *left -= 1;
            if *left == 0 {
                self.values[id.0 as usize] = None;
            }
        }
        Ok(())
    }

    fn product(&self, b: &mut AnyBlocks, x: ValueId, y: ValueId) -> Result<Float, Failure> {
        let (left, right) = (self.plan.shape(x).dims(), self.plan.shape(y).dims());
        let ([batch @ .., m, k], [.., n]) = (left, right) else {
            unreachable!("valid plans multiply matrices")
        };
        let (m, k, n) = (*m, *k, *n);
        let (x, y) = (self.value(x), self.value(y));
        // One matrix a part.
        in_parts(b, batch.iter().product(), LANES, |b, range| {
            let i = range.start;
            let x = Matrix::new(b, m, k, x.slice(b, i * m * k..(i + 1) * m * k));
            let y = Matrix::new(b, k, n, y.slice(b, i * k * n..(i + 1) * k * n));
            Ok(x.fused_product(b, &y)?.data)
        })
    }

    /// A value of two dimensions.
    fn matrix(&self, b: &AnyBlocks, x: ValueId) -> Matrix {
        let &[rows, cols] = self.plan.shape(x).dims() else { unreachable!("a valid plan has a matrix here") };
        Matrix::new(b, rows, cols, self.value(x).clone())
    }

    /// The size of a value's first dimension.
    fn terms(&self, x: ValueId) -> usize {
        self.plan.shape(x).dims()[0]
    }
}

fn map(b: &mut AnyBlocks, f: Function, x: &Float) -> Result<Float, Failure> {
    match f {
        Function::Neg => Ok(x.neg(b)),
        Function::Abs => Ok(x.abs(b)),
        Function::Relu => each(b, x, relu),
        Function::Sqrt => each(b, x, sqrt),
        Function::Exp => each(b, x, math::exp),
        Function::Ln => each(b, x, math::ln),
        Function::Sigmoid => each(b, x, math::sigmoid),
        Function::Tanh => each(b, x, math::tanh),
        Function::Erf => each(b, x, math::erf),
        Function::Sign => each(b, x, whole::sign),
        Function::Round => each(b, x, whole::round),
        Function::Floor => each(b, x, whole::floor),
        Function::Ceil => each(b, x, whole::ceil),
        Function::Trunc => each(b, x, whole::trunc),
        Function::Sin => each(b, x, math::sin),
        Function::Cos => each(b, x, math::cos),
        Function::Tan => each(b, x, math::tan),
        Function::Asin => each(b, x, math::asin),
        Function::Acos => each(b, x, math::acos),
        Function::Atan => each(b, x, math::atan),
        Function::Sinh => each(b, x, math::sinh),
        Function::Cosh => each(b, x, math::cosh),
        Function::Log1p => each(b, x, math::log1p),
    }
}

/// An operation on two vectors of as many lanes.
type Lanewise = fn(&mut AnyBlocks, &Float, &Float) -> Result<Float, Failure>;

fn operation(f: Operation) -> Lanewise {
    match f {
        Operation::Add => add,
        Operation::Sub => sub,
        Operation::Mul => mul,
        Operation::Div => div,
        Operation::Max => max,
        Operation::Min => min,
        Operation::Pow => math::pow,
        Operation::Less => |b, x, y| {
            let bit = lt(b, x, y)?;
            truth(b, &bit, x)
        },
        Operation::LessOrEqual => |b, x, y| {
            let bit = le(b, x, y)?;
            truth(b, &bit, x)
        },
        Operation::Equal => |b, x, y| {
            let bit = eq(b, x, y)?;
            truth(b, &bit, x)
        },
    }
}

/// Folds `n` blocks of lanes into one, as many lanes at a time as there is room for.
fn reduce(b: &mut AnyBlocks, x: &Float, n: usize, f: Lanewise) -> Result<Float, Failure> {
    let lanes = x.lanes(b) / n;
    in_parts(b, lanes, n, |b, range| {
        let places = (0..n).flat_map(|block| range.clone().map(move |lane| block * lanes + lane));
        let part = x.gather(b, &places.collect::<Vec<_>>());
        fold(b, &part, range.len(), f)
    })
}
