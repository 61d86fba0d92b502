//! What layers compute on, and what steps give.

use crate::problem::{Refusal, refuse};
use crate::range::Range;
use crate::tensor::Tensor;
use megrez_plan::ValueId;
use megrez_ring::Shape;
use megrez_weights::Matrix;
use std::sync::Arc;

/// A secret value of the plan and the bounds of its words.
#[derive(Clone, Debug)]
pub struct Secret {
    /// The plan's value.
    pub id: ValueId,
    /// The bounds of its words.
    pub range: Range,
}

impl Secret {
    /// With bounds that the layer knows to hold as well.
    pub fn within(self, range: Range) -> Self {
        Secret { range: self.range.tighten(&range), ..self }
    }
}

/// Weights once they are in the plan.
#[derive(Clone, Debug)]
pub struct Weight {
    /// The plan's value: secret or public.
    pub id: ValueId,
    /// Its dimensions.
    pub shape: Shape,
    /// The encoded weights.
    pub words: Vec<i64>,
}

/// What a layer computes on.
#[derive(Clone, Debug)]
pub enum Operand {
    /// A secret value.
    Secret(Secret),
    /// Weights, not yet in the plan.
    Constant(Arc<Tensor>),
    /// A matrix that everybody knows, which only products read.
    Public(Arc<Matrix>),
}

/// A public matrix where none is read.
fn misplaced<T>() -> Result<T, Refusal> {
    refuse("computes on a public matrix", "make it weights of a product, or keep it private")
}

impl Operand {
    /// The secret value; refuses weights.
    pub fn secret(&self) -> Result<&Secret, Refusal> {
        match self {
            Operand::Secret(secret) => Ok(secret),
            Operand::Constant(_) => {
                refuse("computes on constants only", "compute them before you export the model")
            }
            Operand::Public(_) => misplaced(),
        }
    }

    /// The weights; refuses secret values.
    pub fn constant(&self) -> Result<&Arc<Tensor>, Refusal> {
        match self {
            Operand::Constant(tensor) => Ok(tensor),
            Operand::Secret(_) => refuse("needs constant weights", "make them constants of the model"),
            Operand::Public(_) => misplaced(),
        }
    }
}

/// How far a value is above some borders; see [`Lowering::above`](super::Lowering::above).
pub struct Above {
    /// max(x − border, 0) for each border. Where the comparison cuts bits, they may be negative
    /// instead of 0.
    pub parts: Vec<Secret>,
    /// The bits [x ≥ border] along a new first dimension.
    pub bits: Secret,
    /// By how many words a part may be negative.
    pub wrong: i128,
}
