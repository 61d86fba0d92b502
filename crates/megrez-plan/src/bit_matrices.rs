//! The sizes of products of matrices of bits.

use megrez_ring::Shape;

/// What [`crate::Op::BitMatMul`] multiplies: x [batch, rows, inner, lanes] by y [batch, inner,
/// columns, lanes], of which one may have a single lane, which is every lane's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BitMatrices {
    /// Pairs of matrices.
    pub batch: usize,
    /// Rows of x.
    pub rows: usize,
    /// Columns of x, and rows of y.
    pub inner: usize,
    /// Columns of y.
    pub columns: usize,
    /// Lanes of each operand: as many as the result has, or one.
    pub lanes: [usize; 2],
}

impl BitMatrices {
    /// The sizes of operands of these shapes; `None` where they do not fit.
    pub fn of(x: &Shape, y: &Shape) -> Option<Self> {
        let (&[batch, rows, inner, of_x], &[other, depth, columns, of_y]) = (x.dims(), y.dims()) else {
            return None;
        };
        let fits = batch == other && inner == depth && inner > 0 && (of_x == of_y || of_x == 1 || of_y == 1);
        fits.then_some(BitMatrices { batch, rows, inner, columns, lanes: [of_x, of_y] })
    }

    /// Lanes of the result.
    pub fn lanes(&self) -> usize {
        let [x, y] = self.lanes;
        if x == 1 { y } else { x }
    }

    /// The result's shape.
    pub fn output(&self) -> Shape {
        [self.batch, self.rows, self.columns, self.lanes()].into()
    }

    /// Bits of the result.
    pub fn elements(&self) -> usize {
        self.output().elements()
    }

    /// Where x(b, i, k, l) and y(b, k, j, l) are, for the result's bit at `[b, i, j, l]`.
    pub fn operands(&self, [b, i, j, l]: [usize; 4], k: usize) -> [usize; 2] {
        let lane = |lanes: usize| if lanes == 1 { 0 } else { l };
        let [of_x, of_y] = self.lanes;
        [
            ((b * self.rows + i) * self.inner + k) * of_x + lane(of_x),
            ((b * self.inner + k) * self.columns + j) * of_y + lane(of_y),
        ]
    }
}
