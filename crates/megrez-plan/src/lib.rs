//! The plan: a straight list of primitive steps on secret values, the same at every party and
//! agreed by hash before anything runs. It names who owns each input and who learns each output; it
//! holds no secret and no share.
//!
//! Layers are lowered into these primitives by `megrez-graph`; protocols implement the primitives;
//! the engine walks the list. Whatever a protocol may choose per step (lists, forms, widths) is
//! written in the step, so that every party makes the same choice.

mod bind;
mod bit_matrices;
mod bounds;
mod check;
mod error;
mod float;
mod lookup;
mod op;
mod public;
mod view;
mod winner;

pub use bit_matrices::BitMatrices;
pub use bounds::Bounded;
pub use error::PlanError;
pub use float::{FloatOp, FloatPlan, FloatStep, Function, MAX_THREADS, Operation};
pub use lookup::{Beyond, DIGIT, Lookup, MAX_DEGREE, MAX_SEGMENTS};
pub use op::{
    ConvGeometry, Fewest, List, MAX_DEVIATION, MAX_FACTORS, MAX_OPERANDS, MAX_TERMS, MAX_THRESHOLDS, Op,
    Relu, ReluForm, SignBit,
};
pub use public::PublicMatrix;
pub use view::View;
pub use winner::{Gives, MAX_CONTENDERS, MAX_WINNER_BITS, Winner};

use megrez_ring::Shape;
use serde::{Deserialize, Serialize};

/// A value of the plan: the index into [`Plan::values`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct ValueId(pub u32);

/// What a value is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Kind {
    /// A secret ring element with `frac` fraction bits.
    Ring {
        /// Fraction bits.
        frac: u32,
    },
    /// A secret ring element with `frac` fraction bits that is left as a sum of one summand per
    /// party: it is added, rearranged, multiplied by what is public, and truncated or shared;
    /// nothing else.
    Additive {
        /// Fraction bits.
        frac: u32,
    },
    /// A secret bit.
    Bit,
    /// Known to every party (constants of the architecture), with `frac` fraction bits.
    Public {
        /// Fraction bits.
        frac: u32,
    },
}

impl Kind {
    /// Fraction bits; 0 of a bit.
    pub fn frac(self) -> u32 {
        match self {
            Kind::Ring { frac } | Kind::Additive { frac } | Kind::Public { frac } => frac,
            Kind::Bit => 0,
        }
    }
}

/// The type of a value.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Value {
    /// Its dimensions.
    pub shape: Shape,
    /// Secret ring element, secret bit or public.
    pub kind: Kind,
}

/// One primitive step.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Step {
    /// The path that names the step in messages, streams and reports: `conv1/product`, `relu1`.
    /// Unique in the plan; the part before the first `/` is the layer.
    pub name: String,
    /// What to do.
    pub op: Op,
    /// On which values.
    pub inputs: Vec<ValueId>,
    /// The value that it defines.
    pub output: ValueId,
}

/// Owns inputs and receives outputs that stay with the parties in shares: an output for it is kept
/// under the output's name, and an input of it is what an earlier plan of the same client kept
/// under the input's name. Nobody learns it.
pub const KEPT: &str = "(kept)";

/// A secret input and its owner.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Input {
    /// The name that its owner knows it by.
    pub name: String,
    /// The client who provides it.
    pub owner: String,
    /// The value it defines.
    pub value: ValueId,
}

/// A value that one recipient learns.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Output {
    /// The name that the recipient knows it by.
    pub name: String,
    /// The client who learns it; nobody else does.
    pub recipient: String,
    /// The value that is opened to the recipient.
    pub value: ValueId,
}

/// The list of steps and everything that the parties must agree on.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// ℓ: 32, 40, 48 or 64 (8 and 16 in tests).
    pub ring: u32,
    /// The values that steps and inputs define.
    pub values: Vec<Value>,
    /// The secret inputs.
    pub inputs: Vec<Input>,
    /// The steps in an order in which they can run.
    pub steps: Vec<Step>,
    /// Who learns what.
    pub outputs: Vec<Output>,
}

impl Plan {
    /// An empty plan on the ring Z_2^`ring`.
    pub fn new(ring: u32) -> Self {
        Plan { ring, values: vec![], inputs: vec![], steps: vec![], outputs: vec![] }
    }

    /// The type of a value.
    ///
    /// # Panics
    /// If `id` is not of this plan; plans from elsewhere are checked once by [`Plan::validate`].
    pub fn value(&self, id: ValueId) -> &Value {
        &self.values[id.0 as usize]
    }

    /// Declares a secret input.
    pub fn input(&mut self, name: &str, owner: &str, shape: Shape, frac: u32) -> ValueId {
        let value = self.define(Value { shape, kind: Kind::Ring { frac } });
        self.inputs.push(Input { name: name.into(), owner: owner.into(), value });
        value
    }

    /// Appends a step, deriving the type of its output; the error names the step.
    pub fn step(&mut self, name: &str, op: Op, inputs: &[ValueId]) -> Result<ValueId, PlanError> {
        let types: Vec<&Value> = inputs.iter().map(|&i| self.value(i)).collect();
        let output = op.output(&types, self.ring).map_err(|e| e.at(name))?;
        let output = self.define(output);
        self.steps.push(Step { name: name.into(), op, inputs: inputs.to_vec(), output });
        Ok(output)
    }

    /// Appends a step that defines a value that is declared already, for passes that make a step of
    /// others: whoever read the value reads this step's. The value gets the type that the step
    /// gives it.
    pub fn step_into(
        &mut self,
        name: &str,
        op: Op,
        inputs: &[ValueId],
        output: ValueId,
    ) -> Result<(), PlanError> {
        self.step(name, op, inputs)?;
        let value = self.values.pop().expect("the step has defined it");
        self.values[output.0 as usize] = value;
        self.steps.last_mut().expect("just made").output = output;
        Ok(())
    }

    /// Derives the types of all outputs of steps again, for passes that replace the operations of
    /// steps; the error names the first step whose operation does not fit its inputs any more.
    pub fn retype(&mut self) -> Result<(), PlanError> {
        for at in 0..self.steps.len() {
            let step = &self.steps[at];
            let types: Vec<&Value> = step.inputs.iter().map(|&i| self.value(i)).collect();
            let value = step.op.output(&types, self.ring).map_err(|e| e.at(&step.name))?;
            let to = step.output.0 as usize;
            self.values[to] = value;
        }
        Ok(())
    }

    /// Declares who learns a value.
    pub fn output(&mut self, name: &str, recipient: &str, value: ValueId) {
        self.outputs.push(Output { name: name.into(), recipient: recipient.into(), value });
    }

    /// The agreement of the parties: a hash over every field.
    pub fn hash(&self) -> [u8; 32] {
        blake3::derive_key("megrez 2026 plan hash", &self.to_bytes())
    }

    /// The canonical bytes of the plan.
    pub fn to_bytes(&self) -> Vec<u8> {
        postcard::to_allocvec(self).expect("a plan has no type that postcard cannot write")
    }

    /// Reads and validates a plan; `bytes` may come from anywhere.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, PlanError> {
        let plan: Plan = postcard::from_bytes(bytes).map_err(|_| PlanError::Malformed)?;
        plan.validate()?;
        Ok(plan)
    }

    fn define(&mut self, value: Value) -> ValueId {
        self.values.push(value);
        ValueId((self.values.len() - 1) as u32)
    }
}
