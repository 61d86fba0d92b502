//! Plans of floating-point programs: straight lists of steps on secret single-precision numbers,
//! agreed by hash like plans on a ring, and as free of secrets. `megrez-graph` lowers models into
//! them, the engine walks them.

use crate::error::{Mistake, refuse};
use crate::{Input, Output, PlanError, ValueId, View};
use megrez_ring::Shape;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;

/// f(x) of every element.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Function {
    /// −x; local.
    Neg,
    /// |x|; local.
    Abs,
    /// max(x, +0), NaN stays.
    Relu,
    /// √x.
    Sqrt,
    /// e^x.
    Exp,
    /// ln x.
    Ln,
    /// 1/(1 + e^−x).
    Sigmoid,
    /// tanh x.
    Tanh,
    /// 2/√π·∫₀ˣ e^(−t²) dt.
    Erf,
    /// −1, 0 or 1; zeros and NaN stay.
    Sign,
    /// The nearest whole number, halves to the even one.
    Round,
    /// The largest whole number that is not above x.
    Floor,
    /// The smallest whole number that is not below x.
    Ceil,
    /// The nearest whole number towards zero.
    Trunc,
    /// sin x.
    Sin,
    /// cos x.
    Cos,
    /// tan x.
    Tan,
    /// The angle in [−π/2, π/2] whose sine is x.
    Asin,
    /// The angle in [0, π] whose cosine is x.
    Acos,
    /// The angle in (−π/2, π/2) whose tangent is x.
    Atan,
    /// sinh x.
    Sinh,
    /// cosh x.
    Cosh,
    /// ln(1 + x).
    Log1p,
}

/// An operation on the elements of two values.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Operation {
    /// x + y.
    Add,
    /// x − y.
    Sub,
    /// x·y.
    Mul,
    /// x/y.
    Div,
    /// The larger one; NaN if one is.
    Max,
    /// The smaller one; NaN if one is.
    Min,
    /// 1 if x < y, else 0: with a NaN, too. Zeros are equal.
    Less,
    /// 1 if x ≤ y, else 0.
    LessOrEqual,
    /// 1 if x = y, else 0.
    Equal,
    /// x^y.
    Pow,
}

/// What a step does. Sums are rounded once: terms are aligned to the largest of up to 4096 (16
/// products), added as integers, and sums of these likewise.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum FloatOp {
    /// A function of each element.
    Map(Function),
    /// An operation on two values of one shape, element by element.
    Pair(Operation),
    /// [.., m, k] · [.., k, n] with the same leading dimensions, summed over k.
    MatMul,
    /// The sums over the first dimension.
    Sum,
    /// The largest over the first dimension, NaN if one is: n become ⌈n/2⌉ by taking the larger of
    /// i and i + ⌈n/2⌉.
    Largest,
    /// A rearrangement; local.
    View(View),
    /// Elements of all inputs by their places, counted through one input after the other; one place
    /// further is +0. Local.
    Gather {
        /// The shape of the result.
        shape: Shape,
        /// One place for each of its elements.
        places: Vec<u32>,
    },
    /// Numbers that everybody knows, by their bits.
    Constant {
        /// The shape.
        shape: Shape,
        /// Its elements.
        bits: Vec<u32>,
    },
    /// [t, n] · [n, w] where each of the t rows has one 1 and zeros: the rows of a table that they
    /// name, exactly.
    Lookup,
    /// Of three values of one shape, the second where the first is not zero and the third where it
    /// is: whole, with their signs, infinities and NaN.
    Choose,
}

/// One step.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FloatStep {
    /// Its name, unique in the plan; the part before the first `/` is the layer.
    pub name: String,
    /// What to do.
    pub op: FloatOp,
    /// On which values.
    pub inputs: Vec<ValueId>,
    /// The value that it defines.
    pub output: ValueId,
}

/// Most threads that a plan may ask of a party.
pub const MAX_THREADS: u32 = 64;

/// The list of steps and everything that the parties must agree on.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FloatPlan {
    /// Bits of a group of the OT extension: 1, 2, 4 or 8. More is fewer bytes and more work. 0 is
    /// silent OTs: the fewest bytes for large plans, and one thread.
    pub group: u32,
    /// Threads of each party, 1 to [`MAX_THREADS`]: bytes and rounds depend on it a little, results
    /// do not.
    pub threads: u32,
    /// The shapes of the values that inputs and steps define.
    pub values: Vec<Shape>,
    /// The secret inputs.
    pub inputs: Vec<Input>,
    /// The steps in an order in which they can run.
    pub steps: Vec<FloatStep>,
    /// Who learns what.
    pub outputs: Vec<Output>,
}

impl FloatPlan {
    /// An empty plan.
    pub fn new(group: u32) -> Self {
        FloatPlan { group, threads: 1, values: vec![], inputs: vec![], steps: vec![], outputs: vec![] }
    }

    /// With so many threads at each party.
    #[must_use]
    pub fn with_threads(self, threads: u32) -> Self {
        FloatPlan { threads, ..self }
    }

    /// The shape of a value.
    ///
    /// # Panics
    /// If `id` is not of this plan.
    pub fn shape(&self, id: ValueId) -> &Shape {
        &self.values[id.0 as usize]
    }

    /// Declares a secret input.
    pub fn input(&mut self, name: &str, owner: &str, shape: Shape) -> ValueId {
        let value = self.define(shape);
        self.inputs.push(Input { name: name.into(), owner: owner.into(), value });
        value
    }

    /// Appends a step; the error names it.
    pub fn step(&mut self, name: &str, op: FloatOp, inputs: &[ValueId]) -> Result<ValueId, PlanError> {
        let shapes: Vec<&Shape> = inputs.iter().map(|&i| self.shape(i)).collect();
        let shape = op.output(&shapes).map_err(|e| e.at(name))?;
        let output = self.define(shape);
        self.steps.push(FloatStep { name: name.into(), op, inputs: inputs.to_vec(), output });
        Ok(output)
    }

    /// Declares who learns a value.
    pub fn output(&mut self, name: &str, recipient: &str, value: ValueId) {
        self.outputs.push(Output { name: name.into(), recipient: recipient.into(), value });
    }

    /// The agreement of the parties: a hash over every field.
    pub fn hash(&self) -> [u8; 32] {
        blake3::derive_key("megrez 2026 float plan hash", &self.to_bytes())
    }

    /// The canonical bytes of the plan.
    pub fn to_bytes(&self) -> Vec<u8> {
        postcard::to_allocvec(self).expect("a plan has no type that postcard cannot write")
    }

    /// Reads and validates a plan; `bytes` may come from anywhere.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, PlanError> {
        let plan: FloatPlan = postcard::from_bytes(bytes).map_err(|_| PlanError::Malformed)?;
        plan.validate()?;
        Ok(plan)
    }

    /// Checks everything that the walk relies on: the plan might have been built by somebody else.
    pub fn validate(&self) -> Result<(), PlanError> {
        let wrong = |step: &str, what: &str| Err(PlanError::Step { step: step.into(), what: what.into() });
        if ![0, 1, 2, 4, 8].contains(&self.group) {
            return wrong("(plan)", "groups of OTs have 1, 2, 4 or 8 bits, or 0 for silent ones");
        }
        if self.group == 0 && self.threads != 1 {
            return wrong("(plan)", "silent transfers work in one thread");
        }
        if !(1..=MAX_THREADS).contains(&self.threads) {
            return wrong("(plan)", "a party has 1 to 64 threads");
        }
        let mut names = HashSet::new();
        let mut defined = vec![false; self.values.len()];
        for input in &self.inputs {
            let sane = |shape: &Shape| shape.elements() > 0 && shape.clone().checked().is_ok();
            if !names.insert(&input.name) || !self.values.get(input.value.0 as usize).is_some_and(sane) {
                return wrong(&input.name, "an input has another's name, or is empty or absurdly large");
            }
            if std::mem::replace(&mut defined[input.value.0 as usize], true) {
                return wrong(&input.name, "its value is another input's");
            }
        }
        names.clear();
        for step in &self.steps {
            if step.name.is_empty() || !names.insert(&step.name) {
                return wrong(&step.name, "the name is empty, or an earlier step's");
            }
            if step.inputs.iter().any(|i| defined.get(i.0 as usize) != Some(&true)) {
                return wrong(&step.name, "reads what comes later");
            }
            let shapes: Vec<&Shape> = step.inputs.iter().map(|&i| self.shape(i)).collect();
            let output = step.op.output(&shapes).map_err(|e| e.at(&step.name))?;
            let at = step.output.0 as usize;
            if self.values.get(at) != Some(&output) || std::mem::replace(&mut defined[at], true) {
                return wrong(&step.name, "its output is not what it defines");
            }
        }
        if !defined.iter().all(|&d| d) {
            return wrong("(plan)", "some values are defined by nobody");
        }
        match self.outputs.iter().find(|o| o.value.0 as usize >= defined.len()) {
            Some(output) => wrong(&output.name, "there is no such value"),
            None => Ok(()),
        }
    }

    fn define(&mut self, shape: Shape) -> ValueId {
        self.values.push(shape);
        ValueId((self.values.len() - 1) as u32)
    }
}

impl FloatOp {
    /// The shape of the result.
    fn output(&self, inputs: &[&Shape]) -> Result<Shape, Mistake> {
        let one = || match inputs {
            [x] => Ok((*x).clone()),
            _ => refuse("takes one input"),
        };
        let shape = match self {
            FloatOp::Map(_) => one()?,
            FloatOp::Pair(_) => match inputs {
                [x, y] if x == y => (*x).clone(),
                _ => return refuse("takes two inputs of one shape"),
            },
            FloatOp::Choose => match inputs {
                [c, x, y] if c == x && x == y => (*x).clone(),
                _ => return refuse("takes three inputs of one shape"),
            },
            FloatOp::MatMul => {
                let [x, y] = inputs else { return refuse("takes two inputs") };
                let ([batch @ .., m, k], [other @ .., inner, n]) = (x.dims(), y.dims()) else {
                    return refuse("takes matrices");
                };
                if batch != other || k != inner || *k == 0 {
                    return refuse(format!("cannot multiply {x} by {y}"));
                }
                [batch, &[*m, *n]].concat().into()
            }
            FloatOp::Lookup => match inputs {
                [x, y] if x.rank() == 2 && y.rank() == 2 && x.dims()[1] == y.dims()[0] => {
                    [x.dims()[0], y.dims()[1]].into()
                }
                _ => return refuse("takes rows of zeros with a one, and a table of as many rows"),
            },
            FloatOp::Sum | FloatOp::Largest => match one()?.dims() {
                [n, rest @ ..] if *n > 0 => rest.to_vec().into(),
                _ => return refuse("takes a first dimension with an element"),
            },
            FloatOp::View(view) => {
                if !view.fits(one()?.elements()) {
                    return refuse("the view reaches outside its input");
                }
                view.shape.clone()
            }
            FloatOp::Gather { shape, places } => {
                let elements = inputs.iter().fold(0usize, |sum, s| sum.saturating_add(s.elements()));
                if inputs.is_empty() || places.iter().any(|&p| p as usize > elements) {
                    return refuse("a place lies outside of the inputs");
                }
                if shape.clone().checked().is_err() || places.len() != shape.elements() {
                    return refuse("the places do not fill the shape");
                }
                shape.clone()
            }
            FloatOp::Constant { shape, bits } => {
                let fills = shape.clone().checked().is_ok() && bits.len() == shape.elements();
                if !inputs.is_empty() || !fills {
                    return refuse("the numbers do not fill the shape");
                }
                shape.clone()
            }
        };
        match shape.clone().checked() {
            Ok(shape) if shape.elements() > 0 => Ok(shape),
            _ => refuse("its result is empty, or absurdly large"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> FloatPlan {
        let mut plan = FloatPlan::new(4);
        let x = plan.input("x", "alice", [2, 3].into());
        let w = plan.input("w", "bob", [3, 4].into());
        let y = plan.step("fc/product", FloatOp::MatMul, &[x, w]).unwrap();
        let y = plan.step("relu", FloatOp::Map(Function::Relu), &[y]).unwrap();
        plan.output("y", "alice", y);
        plan
    }

    #[test]
    fn plans_survive_the_wire() {
        let plan = plan();
        assert_eq!(FloatPlan::from_bytes(&plan.to_bytes()).unwrap(), plan);
        assert_ne!(FloatPlan { group: 8, ..plan.clone() }.hash(), plan.hash());
    }

    #[test]
    fn plans_that_cannot_run_are_refused() {
        let broken: [fn(&mut FloatPlan); 11] = [
            |p| p.group = 3,
            |p| (p.group, p.threads) = (0, 2),
            |p| p.threads = 0,
            |p| p.threads = 65,
            |p| p.steps[0].inputs[1] = ValueId(3),
            |p| p.steps[0].inputs.swap(0, 1),
            |p| p.values[2] = [2, 5].into(),
            |p| p.outputs[0].value = ValueId(9),
            |p| p.steps[1].name = p.steps[0].name.clone(),
            |p| p.values.push([1].into()),
            |p| p.inputs[1].name = "x".into(),
        ];
        for (i, breaks) in broken.iter().enumerate() {
            let mut plan = plan();
            breaks(&mut plan);
            assert!(FloatPlan::from_bytes(&plan.to_bytes()).is_err(), "{i}");
        }
        let mut plan = plan();
        let gather = FloatOp::Gather { shape: [1].into(), places: vec![7] };
        assert!(
            plan.step("out", gather, &[ValueId(0)]).is_err(),
            "place 6 of 6 elements is +0, 7 is outside"
        );
    }
}
