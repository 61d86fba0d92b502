//! Comparisons of secret numbers, whose results stay secret: the tests of a number against zero, as
//! 0 and 1, and the staircases that are sums of such tests (Floor, Ceil, Round).
//!
//! They are exact on the fixed-point grid: numbers that the grid cannot tell apart are equal. A
//! staircase compares with every step in the range of its operand, all at once, so that its cost
//! grows with the range; one with too many steps is refused.

use super::call::{Call, FIXED_ONLY, refuse_floats};
use crate::float::lowering::{FloatLowering, FloatOperand};
use crate::layer::Layer;
use crate::lowering::{Lowering, Operand, Secret};
use crate::problem::{Refusal, out_of_range, refuse};
use crate::range::Range;
use crate::tensor::Tensor;
use megrez_plan::{Function, MAX_THRESHOLDS, Operation, ValueId, View};
use megrez_ring::Shape;
use std::sync::Arc;

/// [x > 0], [x ≥ 0] and [x = 0]; ONNX has no operators for them.
pub(crate) const POSITIVE: &str = "IsPositive";
pub(crate) const NOT_NEGATIVE: &str = "IsNotNegative";
pub(crate) const ZERO: &str = "IsZero";
/// [x < y], [x ≤ y] and [x = y] of floating point, where a difference would be rounded.
pub(crate) const LESS: &str = "IsLess";
pub(crate) const LESS_OR_EQUAL: &str = "IsLessOrEqual";
pub(crate) const EQUAL: &str = "IsEqual";
/// To the nearest whole number towards zero, as a cast to integers.
pub(crate) const TOWARDS_ZERO: &str = "TowardsZero";

/// The most steps of a staircase.
const MAX_STEPS: i128 = 1 << 10;

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Positive,
    NotNegative,
    Zero,
    /// −1, 0 or 1.
    Sign,
    Floor,
    Ceil,
    /// To the nearest whole number, halves to the even one.
    Round,
    TowardsZero,
}

struct Compare {
    kind: Kind,
    shape: Shape,
    fixed_only: bool,
}

fn compare(call: &Call, kind: Kind) -> Result<Arc<dyn Layer>, Refusal> {
    call.only(1, &[FIXED_ONLY])?;
    let fixed_only = call.int(FIXED_ONLY, 0)? != 0;
    Ok(Arc::new(Compare { kind, shape: call.shape(0)?.clone(), fixed_only }))
}

pub(super) fn positive(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    compare(call, Kind::Positive)
}

pub(super) fn not_negative(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    compare(call, Kind::NotNegative)
}

pub(super) fn zero(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    compare(call, Kind::Zero)
}

pub(super) fn sign(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    compare(call, Kind::Sign)
}

pub(super) fn floor(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    compare(call, Kind::Floor)
}

pub(super) fn ceil(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    compare(call, Kind::Ceil)
}

pub(super) fn round(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    compare(call, Kind::Round)
}

pub(super) fn towards_zero(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    compare(call, Kind::TowardsZero)
}

/// A comparison of two secret numbers in floating point.
struct Pair {
    operation: Operation,
    shape: Shape,
}

fn pair(call: &Call, operation: Operation) -> Result<Arc<dyn Layer>, Refusal> {
    call.only(2, &[])?;
    let (a, b) = (call.shape(0)?, call.shape(1)?);
    let Ok(shape) = a.broadcast(b) else {
        return refuse(format!("the shapes {a} and {b} do not broadcast"), "");
    };
    Ok(Arc::new(Pair { operation, shape }))
}

pub(super) fn less(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    pair(call, Operation::Less)
}

pub(super) fn less_or_equal(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    pair(call, Operation::LessOrEqual)
}

pub(super) fn equal(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    pair(call, Operation::Equal)
}

impl Layer for Pair {
    fn shape(&self) -> &Shape {
        &self.shape
    }

    fn plain(&self, inputs: &[&Tensor]) -> Tensor {
        let view = |t: &Tensor| t.view(&View::broadcast(&t.shape, &self.shape).expect("they broadcast")).data;
        let (x, y) = (view(inputs[0]), view(inputs[1]));
        let holds = |(x, y): (&f32, &f32)| match self.operation {
            Operation::Less => x < y,
            Operation::LessOrEqual => x <= y,
            _ => x == y,
        };
        Tensor::new(self.shape.clone(), x.iter().zip(&y).map(|pair| f32::from(holds(pair))).collect())
    }

    fn lower(&self, _cx: &mut Lowering, _inputs: &[Operand]) -> Result<Secret, Refusal> {
        refuse("is a comparison of floating point", "run it with --numbers float32")
    }

    fn float(&self, cx: &mut FloatLowering, inputs: &[FloatOperand]) -> Result<ValueId, Refusal> {
        let (x, y) = (cx.value(&inputs[0]), cx.value(&inputs[1]));
        cx.pair("compare", self.operation, x, y, &self.shape)
    }
}

impl Kind {
    fn of(self, x: f32) -> f32 {
        match self {
            Kind::Positive => f32::from(x > 0.0),
            Kind::NotNegative => f32::from(x >= 0.0),
            Kind::Zero => f32::from(x == 0.0),
            Kind::Sign if x == 0.0 => 0.0,
            Kind::Sign => x.signum(),
            Kind::Floor => x.floor(),
            Kind::Ceil => x.ceil(),
            Kind::Round => x.round_ties_even(),
            Kind::TowardsZero => x.trunc(),
        }
    }

    /// The least word of the grid with `frac` fraction bits at which the staircase is `step` or
    /// more.
    fn border(self, step: i128, frac: u32) -> i128 {
        let word = step << frac;
        match self {
            Kind::Ceil => word - (1 << frac) + 1,
            // Halves round to the even number: at an even step the half belongs to it.
            Kind::Round if frac > 0 => word - (1 << (frac - 1)) + (step & 1),
            Kind::TowardsZero if step <= 0 => word - (1 << frac) + 1,
            _ => word,
        }
    }

    /// The whole number of a word.
    fn step(self, word: i128, frac: u32) -> i128 {
        // The border of the floor is at the floor; those of the others are less than one apart from
        // it.
        let floor = word >> frac;
        (floor..=floor + 1).rev().find(|&step| self.border(step, frac) <= word).unwrap_or(floor)
    }
}

/// How many of these ascending thresholds x reaches, as a whole number without fraction bits.
fn reached(cx: &mut Lowering, x: &Secret, thresholds: &[i64]) -> Result<Secret, Refusal> {
    let shape = cx.shape(x).clone();
    let mut sums = vec![];
    for part in thresholds.chunks(MAX_THRESHOLDS) {
        let bits = cx.thermometer("compare", x, part)?;
        let ones = cx.bit_to_ring("number", &bits)?;
        let sum = cx.sum("reached", &ones, 0)?;
        sums.push(cx.reshape("shape", &sum, shape.clone())?);
    }
    let terms: Vec<(i64, &Secret)> = sums.iter().map(|sum| (1, sum)).collect();
    let all = Range::uniform(0, thresholds.len() as i128);
    Ok(if sums.len() == 1 { sums.remove(0) } else { cx.combine("all", &terms, 0)? }.within(all))
}

/// An operation on +0 and x.
fn number_first(cx: &mut FloatLowering, f: Operation, x: ValueId) -> Result<ValueId, Refusal> {
    let shape = cx.shape(x).clone();
    let zero = cx.public("zero", &Tensor::filled([], 0.0))?;
    cx.pair("compare", f, zero, x, &shape)
}

impl Layer for Compare {
    fn shape(&self) -> &Shape {
        &self.shape
    }

    fn plain(&self, inputs: &[&Tensor]) -> Tensor {
        Tensor::new(self.shape.clone(), inputs[0].data.iter().map(|&x| self.kind.of(x)).collect())
    }

    fn lower(&self, cx: &mut Lowering, inputs: &[Operand]) -> Result<Secret, Refusal> {
        let x = inputs[0].secret()?;
        let shape = cx.shape(x).clone();
        let whole = match self.kind {
            Kind::Positive => reached(cx, x, &[1])?,
            Kind::NotNegative => reached(cx, x, &[0])?,
            Kind::Zero => {
                let bits = cx.thermometer("compare", x, &[0, 1])?;
                let ones = cx.bit_to_ring("number", &bits)?;
                let ones = cx.unstack("part", &ones, &shape)?;
                cx.combine("equal", &[(1, &ones[0]), (-1, &ones[1])], 0)?.within(Range::uniform(0, 1))
            }
            Kind::Sign => {
                let steps = reached(cx, x, &[0, 1])?;
                cx.combine("sign", &[(1, &steps)], -1)?
            }
            kind => {
                let frac = cx.frac_of(x);
                let (low, high) = x.range.hull();
                let (first, last) = (kind.step(low, frac), kind.step(high, frac));
                if last - first > MAX_STEPS {
                    return out_of_range(
                        format!(
                            "its numbers may take {} whole values, and {MAX_STEPS} are the most",
                            last - first
                        ),
                        "declare a smaller input range, or scale the numbers down",
                    );
                }
                let border = |step| i64::try_from(kind.border(step, frac));
                // One border at least, so that there is something to compare with.
                let borders = (first + 1..=last.max(first + 1)).map(border);
                let Ok(borders) = borders.collect::<Result<Vec<i64>, _>>() else {
                    return refuse("its numbers do not fit the ring", "declare a smaller input range");
                };
                let steps = reached(cx, x, &borders)?;
                cx.combine("whole", &[(1, &steps)], first as i64)?.within(Range::uniform(first, last))
            }
        };
        let frac = cx.frac();
        cx.scaled_up(&whole, frac)
    }

    fn float(&self, cx: &mut FloatLowering, inputs: &[FloatOperand]) -> Result<ValueId, Refusal> {
        if self.fixed_only {
            return refuse_floats();
        }
        let x = cx.value(&inputs[0]);
        let function = match self.kind {
            Kind::Positive => return number_first(cx, Operation::Less, x),
            Kind::NotNegative => return number_first(cx, Operation::LessOrEqual, x),
            Kind::Zero => return cx.with_number("compare", Operation::Equal, x, 0.0),
            Kind::Sign => Function::Sign,
            Kind::Floor => Function::Floor,
            Kind::Ceil => Function::Ceil,
            Kind::Round => Function::Round,
            Kind::TowardsZero => Function::Trunc,
        };
        cx.map("whole", function, x)
    }

    fn non_decreasing(&self) -> bool {
        self.kind != Kind::Zero
    }
}
