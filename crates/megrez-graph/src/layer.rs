//! What a layer is: a node that has been understood. Attributes are checked, constants read, the
//! output's shape is known. It says how to compute in the clear (the oracle) and how to compute on
//! secret values (a few primitive steps). The range of its output follows from the steps that it
//! emits, unless it knows a tighter one.

use crate::after::After;
use crate::float::lowering::{FloatLowering, FloatOperand};
use crate::gradients::{Gradients, NO_BACKWARD};
use crate::lowering::{Lowering, Operand, Secret};
use crate::node::Id;
use crate::problem::{Refusal, refuse};
use crate::scale::Scale;
use crate::tensor::{Constant, Tensor};
use megrez_plan::{ValueId, View};
use megrez_ring::Shape;

/// An operator applied to operands of known shapes.
pub trait Layer: Send + Sync {
    /// The output's dimensions.
    fn shape(&self) -> &Shape;

    /// Computes in the clear. `inputs` are the node's inputs in order, omitted ones left out;
    /// constants included.
    fn plain(&self, inputs: &[&Tensor]) -> Tensor;

    /// Emits the steps that compute on secret values. At least one of `inputs` is secret; omitted
    /// inputs are left out.
    fn lower(&self, cx: &mut Lowering, inputs: &[Operand]) -> Result<Secret, Refusal>;

    /// Emits the steps that compute in floating point, for layers that have such a form.
    fn float(&self, _cx: &mut FloatLowering, _inputs: &[FloatOperand]) -> Result<ValueId, Refusal> {
        refuse("has no floating-point form yet", "run the model in fixed point: --numbers fixed")
    }

    /// Appends the nodes of the gradients of the inputs that `wanted` marks, from the gradient of
    /// the output: for each input its gradient, of its shape, or nothing where none is wanted.
    /// Nodes, not steps: what holds for nodes (passes, ranges, calibration, the plain oracle,
    /// costs) then holds for them. `inputs` are the node's, omitted ones left out.
    fn backward(
        &self,
        _g: &mut Gradients,
        _inputs: &[Id],
        _output: Id,
        _of_output: Id,
        _wanted: &[bool],
    ) -> Result<Vec<Option<Id>>, Refusal> {
        refuse(NO_BACKWARD, "train only layers that come after it")
    }

    /// The input of which the layer needs what its own layer has left beside it
    /// ([`Lowering::leave`]): a ReLU's bit, a pool's bits, a loss beside its gradient.
    fn beside(&self) -> Option<usize> {
        None
    }

    /// Whether an input is there for the plain reference only: the steps of the layer do not read
    /// it.
    fn unread(&self, _input: usize) -> bool {
        false
    }

    /// What the layer does to the number of fraction bits.
    fn scale(&self) -> Scale {
        Scale::Passes
    }

    /// Of a layer that does nothing but multiply and add, so that its operands may have any number
    /// of fraction bits: how many times the product of its operands' largest numbers its result may
    /// be. With a constant operand, which is told by its place, that of the other's largest number
    /// alone.
    fn gain(&self, _constant: Option<(usize, &Tensor)>) -> Option<f64> {
        None
    }

    /// Whether each of its results is a sum of numbers of the last input, each times one of a row
    /// of the first.
    fn sums_rows(&self) -> bool {
        false
    }

    /// Whether it is such a layer.
    fn multilinear(&self) -> bool {
        self.gain(None).is_some()
    }

    /// The layer as a rearrangement of its first input; every other input only steers it.
    fn view(&self) -> Option<&View> {
        None
    }

    /// The elements of the output if they follow from shapes or from integer constants alone.
    fn fold_ints(&self, _inputs: &[&Tensor<i64>]) -> Option<Tensor<i64>> {
        None
    }

    /// The result, where shapes and constants alone decide it.
    fn known(&self) -> Option<Constant> {
        None
    }

    /// Whether x ≤ y implies f(x) ≤ f(y), element by element: only then may the layer trade places
    /// with a maximum.
    fn non_decreasing(&self) -> bool {
        false
    }

    /// The layer as work for the recipient, on what is revealed to them.
    fn after(&self) -> Option<After> {
        None
    }

    /// Multiplications or comparisons in the clear, roughly: what a report divides times by.
    fn work(&self) -> u64 {
        self.shape().elements() as u64
    }
}
