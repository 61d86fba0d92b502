//! Gather by a secret index: the rows of a table that secret tokens name.
//!
//! The owner of the tokens shares each as a row of zeros with a one at its place, whole numbers
//! without fraction bits. The lookup is then one matrix product, exact, with the table's fraction
//! bits and no truncation; it sends as much as its result. The upload is as many words per token as
//! the table has rows. In floating point, numbers take the place of words, and a selection under
//! each that of the product.
//!
//! Rows of a public table are looked up by the owner of the tokens, who shares those.

use super::call::Call;
use crate::float::lowering::{FloatLowering, FloatOperand};
use crate::layer::Layer;
use crate::lowering::{Lowering, Operand, Secret};
use crate::problem::{Refusal, refuse};
use crate::scale::Scale;
use crate::tensor::Tensor;
use megrez_plan::{ValueId, View};
use megrez_ring::Shape;
use std::sync::Arc;

/// What is wrong with an index that is no token, and what to do.
const COMPUTED: (&str, &str) =
    ("gathers by a secret index that is computed", "index by an input of the model, reshaped at most");

struct Embedding {
    shape: Shape,
    /// Rows of the table.
    rows: usize,
    tokens: usize,
}

pub(super) fn embedding(call: &Call, axis: usize) -> Result<Arc<dyn Layer>, Refusal> {
    let (table, tokens) = (call.shape(0)?, call.shape(1)?);
    if axis != 0 || table.rank() < 2 {
        return refuse(
            format!("gathers by a secret index along dimension {axis} of {table}"),
            "a secret index picks rows of a table: dimension 0 of a matrix",
        );
    }
    if !call.is_constant(0) {
        return refuse("gathers by a secret index from a secret", "gather from a table of the model");
    }
    let shape = [tokens.dims(), &table.dims()[1..]].concat();
    Ok(Arc::new(Embedding { shape: shape.into(), rows: table.dims()[0], tokens: tokens.elements() }))
}

impl Layer for Embedding {
    fn shape(&self) -> &Shape {
        &self.shape
    }

    fn plain(&self, inputs: &[&Tensor]) -> Tensor {
        let width = inputs[0].data.len() / self.rows;
        // A token outside of the table has an empty row on shares; its owner's client refuses it.
        let row = |&token: &f32| match token as usize {
            row if token >= 0.0 && row < self.rows => inputs[0].data[row * width..(row + 1) * width].to_vec(),
            _ => vec![0.0; width],
        };
        Tensor::new(self.shape.clone(), inputs[1].data.iter().flat_map(row).collect())
    }

    fn lower(&self, cx: &mut Lowering, inputs: &[Operand]) -> Result<Secret, Refusal> {
        let tokens = inputs[1].secret()?;
        if cx.vocabulary(tokens) != Some(self.rows) {
            return refuse(COMPUTED.0, COMPUTED.1);
        }
        if cx.is_embedded(tokens) {
            return cx.looked_up(tokens, self.shape.clone());
        }
        let ones = cx.view("rows", tokens, View::whole([self.tokens, self.rows].into()))?;
        let y = match &inputs[0] {
            Operand::Public(table) => cx.times_public("product", &ones, table)?,
            table => cx.lookup("product", &ones, table.constant()?, self.rows)?,
        };
        cx.reshape("shape", &y, self.shape.clone())
    }

    fn float(&self, cx: &mut FloatLowering, inputs: &[FloatOperand]) -> Result<ValueId, Refusal> {
        let (table, tokens) = (cx.value(&inputs[0]), cx.value(&inputs[1]));
        if cx.vocabulary(tokens) != Some(self.rows) {
            return refuse(COMPUTED.0, COMPUTED.1);
        }
        let ones = cx.reshape("ones", tokens, [self.tokens, self.rows].into())?;
        let width = cx.shape(table).elements() / self.rows;
        let table = cx.reshape("table", table, [self.rows, width].into())?;
        let y = cx.lookup("rows", ones, table)?;
        cx.reshape("shape", y, self.shape.clone())
    }

    fn scale(&self) -> Scale {
        Scale::Passes
    }

    fn work(&self) -> u64 {
        (self.shape.elements() * self.rows) as u64
    }
}
