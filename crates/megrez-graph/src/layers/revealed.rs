//! Softmax, LogSoftmax and ArgMax at an output: computed by the recipient on what is revealed. The
//! recipient learns the input of the first of them, not just its result. Within a model ArgMax
//! compares all pairs ([`super::rank`]); for the others see [`super::softmax`].

use super::call::{Call, axis};
use super::lines::Lines;
use super::rank;
use crate::after::{After, MAX_NAME, MAX_NAMES};
use crate::layer::Layer;
use crate::lowering::{Lowering, Operand, Secret};
use crate::problem::{Refusal, refuse};
use crate::tensor::Tensor;
use megrez_plan::View;
use megrez_ring::Shape;
use std::sync::Arc;

struct OnRevealed {
    shape: Shape,
    after: After,
}

pub(super) fn arg_max(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    call.only(1, &["axis", "keepdims", "select_last_index"])?;
    let axis = axis(call.int("axis", 0)?, call.shape(0)?.rank())?;
    let (keep, last) = (call.int("keepdims", 1)? != 0, call.int("select_last_index", 0)? != 0);
    layer(call, After::ArgMax { axis, keep, last })
}

/// The names of numbers or, if `columns`, of the columns of the last dimension.
pub(crate) const LABELS: &str = "Labels";

pub(super) fn labels(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    call.only(1, &["names", "columns"])?;
    let names = call.strings("names")?.unwrap_or_default();
    let after = match call.int("columns", 0)? {
        0 => After::Labels { names },
        _ => After::Columns { names },
    };
    match after.fits(call.shape(0)?) {
        true => layer(call, after),
        false => refuse(
            format!(
                "has labels that are not those of its columns, more than {MAX_NAMES} of them, or longer ones than {MAX_NAME} bytes"
            ),
            "use other labels, or numbers",
        ),
    }
}

fn layer(call: &Call, after: After) -> Result<Arc<dyn Layer>, Refusal> {
    Ok(Arc::new(OnRevealed { shape: after.shape(call.shape(0)?), after }))
}

impl Layer for OnRevealed {
    fn shape(&self) -> &Shape {
        &self.shape
    }

    fn plain(&self, inputs: &[&Tensor]) -> Tensor {
        self.after.apply(inputs[0])
    }

    fn lower(&self, cx: &mut Lowering, inputs: &[Operand]) -> Result<Secret, Refusal> {
        let After::ArgMax { axis, last, .. } = self.after else {
            return refuse(
                "runs only on what is revealed, so it must be the last operator before an output",
                "end the model here, or move it to the end",
            );
        };
        let x = inputs[0].secret()?;
        let lines = Lines::new(cx.shape(x), &[axis]);
        let rows = lines.split(cx, x)?;
        let place = rank::first(cx, &rows, last)?;
        cx.view("shape", &place, View::whole(self.shape.clone()))
    }

    fn after(&self) -> Option<After> {
        Some(self.after.clone())
    }
}
