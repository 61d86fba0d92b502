//! Values as rows of a matrix, for what works along some dimensions: reductions, Softmax,
//! LayerNormalization.

use super::call::{Call, axis};
use crate::float::lowering::FloatLowering;
use crate::lowering::{Lowering, Secret};
use crate::problem::{Refusal, refuse};
use crate::tensor::Tensor;
use megrez_plan::{ValueId, View};
use megrez_ring::Shape;

/// The dimensions of a shape in two groups: those that stay, and those that make a row.
#[derive(Clone, Debug)]
pub(crate) struct Lines {
    from: Shape,
    /// The dimensions that stay, then those of a row.
    order: Vec<usize>,
    /// How many rows there are.
    pub(crate) rows: usize,
    /// Elements of a row.
    pub(crate) size: usize,
}

impl Lines {
    /// Rows along these dimensions of a shape.
    pub(super) fn new(from: &Shape, along: &[usize]) -> Self {
        let stays = (0..from.rank()).filter(|d| !along.contains(d));
        let order: Vec<usize> = stays.chain((0..from.rank()).filter(|d| along.contains(d))).collect();
        let size = along.iter().map(|&d| from.dims()[d]).product();
        Lines { from: from.clone(), order, rows: from.elements() / size, size }
    }

    /// The axes of a reduction: an attribute of older operator sets, or input 1; all if there are
    /// none.
    pub(crate) fn of_call(call: &Call) -> Result<(Self, Vec<usize>), Refusal> {
        let shape = call.shape(0)?;
        let given = call.integers(1, "axes")?.unwrap_or_default();
        let mut axes = given.iter().map(|&a| axis(a, shape.rank())).collect::<Result<Vec<_>, _>>()?;
        axes.sort_unstable();
        axes.dedup();
        if axes.is_empty() {
            if call.int("noop_with_empty_axes", 0)? != 0 {
                return refuse("reduces nothing", "remove it");
            }
            axes = (0..shape.rank()).collect();
        }
        Ok((Lines::new(shape, &axes), axes))
    }

    /// The dimensions that stay, then those of a row.
    pub(crate) fn order(&self) -> &[usize] {
        &self.order
    }

    fn view(&self) -> View {
        View::transpose(&self.from, &self.order)
    }

    /// The matrix [rows, size].
    pub(super) fn split(&self, cx: &mut Lowering, x: &Secret) -> Result<Secret, Refusal> {
        let x = cx.view("lines", x, self.view())?;
        cx.reshape("rows", &x, [self.rows, self.size].into())
    }

    /// The matrix as the value that it came from.
    pub(super) fn join(&self, cx: &mut Lowering, y: &Secret) -> Result<Secret, Refusal> {
        let y = cx.reshape("unrows", y, self.view().shape)?;
        cx.view("unlines", &y, self.back())
    }

    /// As [`split`](Self::split), in floating point.
    pub(super) fn float_split(&self, cx: &mut FloatLowering, x: ValueId) -> Result<ValueId, Refusal> {
        let x = cx.view("lines", x, self.view())?;
        cx.reshape("rows", x, [self.rows, self.size].into())
    }

    /// As [`join`](Self::join), in floating point.
    pub(super) fn float_join(&self, cx: &mut FloatLowering, y: ValueId) -> Result<ValueId, Refusal> {
        let y = cx.reshape("unrows", y, self.view().shape)?;
        cx.view("unlines", y, self.back())
    }

    /// From the shape of [`view`](Self::view) back to the original one.
    fn back(&self) -> View {
        let mut back = vec![0; self.order.len()];
        self.order.iter().enumerate().for_each(|(to, &from)| back[from] = to);
        View::transpose(&self.view().shape, &back)
    }

    /// The elements row by row.
    pub(super) fn plain(&self, x: &Tensor) -> Tensor {
        x.view(&self.view()).reshape([self.rows, self.size])
    }

    /// The inverse of [`Lines::plain`].
    pub(super) fn plain_join(&self, rows: Vec<f32>) -> Tensor {
        let places = self.view();
        let mut y = Tensor::filled(self.from.clone(), 0.0);
        places.indices().zip(rows).for_each(|(at, v)| y.data[at] = v);
        y
    }
}
