//! Strided views: one mechanism for reshape, transpose, slice, broadcast, and the taps of a pooling
//! window.

use megrez_ring::Shape;
use serde::{Deserialize, Serialize};

/// A rearrangement of a tensor: output element (i_0, …) is input element
/// `offset + Σ i_d · strides[d]`. A stride of 0 repeats, a negative one reverses.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct View {
    /// The shape of the result.
    pub shape: Shape,
    /// One stride per dimension, in elements of the flat input.
    pub strides: Vec<isize>,
    /// Where element 0 of the result stands.
    pub offset: usize,
}

impl View {
    /// The whole of a tensor of this shape, in order.
    pub fn whole(shape: Shape) -> Self {
        let strides = shape.strides().iter().map(|&s| s as isize).collect();
        View { shape, strides, offset: 0 }
    }

    /// The view of rows of so many elements each, where this one is of single elements.
    #[must_use]
    pub fn of_rows(&self, elements: usize) -> Self {
        let strides = self.strides.iter().map(|s| s * elements as isize).chain([1]).collect();
        let shape = [self.shape.dims(), &[elements]].concat().into();
        View { shape, strides, offset: self.offset * elements }
    }

    /// Whether it takes elements in order from the first: of an input with as many elements it only
    /// renames the shape.
    pub fn is_contiguous(&self) -> bool {
        self.offset == 0
            && self
                .strides
                .iter()
                .zip(self.shape.strides())
                .zip(self.shape.dims())
                .all(|((&s, whole), &dim)| dim == 1 || s == whole as isize)
    }

    /// Dimensions in another order: output dimension d is input dimension `order[d]`.
    pub fn transpose(shape: &Shape, order: &[usize]) -> Self {
        let strides = shape.strides();
        View {
            shape: order.iter().map(|&d| shape.dims()[d]).collect::<Vec<_>>().into(),
            strides: order.iter().map(|&d| strides[d] as isize).collect(),
            offset: 0,
        }
    }

    /// Elements `start`, `start + step`, … of one dimension, `count` of them.
    pub fn slice(shape: &Shape, axis: usize, start: usize, step: isize, count: usize) -> Self {
        let mut view = View::whole(shape.clone());
        let mut dims = shape.dims().to_vec();
        view.offset = start * shape.strides()[axis];
        view.strides[axis] *= step;
        dims[axis] = count;
        view.shape = dims.into();
        view
    }

    /// NumPy's broadcast to a larger shape; `None` if it does not broadcast.
    pub fn broadcast(shape: &Shape, to: &Shape) -> Option<Self> {
        if shape.broadcast(to).ok()? != *to {
            return None;
        }
        let missing = to.rank() - shape.rank();
        let strides = shape.strides();
        let stride = |d: usize| match d.checked_sub(missing) {
            Some(i) if shape.dims()[i] != 1 => strides[i] as isize,
            _ => 0,
        };
        Some(View { shape: to.clone(), strides: (0..to.rank()).map(stride).collect(), offset: 0 })
    }

    /// Whether every element lies inside an input of `elements` elements.
    pub fn fits(&self, elements: usize) -> bool {
        if self.strides.len() != self.shape.rank() {
            return false;
        }
        if self.shape.elements() == 0 {
            return true;
        }
        let (mut low, mut high) = (self.offset as i128, self.offset as i128);
        for (&stride, &dim) in self.strides.iter().zip(self.shape.dims()) {
            let reach = stride as i128 * (dim as i128 - 1);
            low += reach.min(0);
            high += reach.max(0);
        }
        low >= 0 && high < elements as i128
    }

    /// The input index of every output element, in order.
    pub fn indices(&self) -> impl Iterator<Item = usize> + '_ {
        let rank = self.shape.rank();
        let mut position = vec![0usize; rank];
        let mut at = self.offset as isize;
        (0..self.shape.elements()).map(move |_| {
            let here = at as usize;
            for d in (0..rank).rev() {
                position[d] += 1;
                at += self.strides[d];
                if position[d] < self.shape.dims()[d] {
                    break;
                }
                at -= self.strides[d] * position[d] as isize;
                position[d] = 0;
            }
            here
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn apply(view: &View) -> Vec<usize> {
        view.indices().collect()
    }

    #[test]
    fn views_address_what_they_say() {
        let s = Shape::from([2, 3]);
        assert_eq!(apply(&View::whole(s.clone())), [0, 1, 2, 3, 4, 5]);
        assert_eq!(apply(&View::transpose(&s, &[1, 0])), [0, 3, 1, 4, 2, 5]);
        assert_eq!(apply(&View::slice(&s, 1, 2, -2, 2)), [2, 0, 5, 3]);
        assert_eq!(
            apply(&View::broadcast(&Shape::from([3, 1]), &Shape::from([2, 3, 2])).unwrap()),
            [0, 0, 1, 1, 2, 2, 0, 0, 1, 1, 2, 2]
        );
        assert!(View::whole(s.clone()).is_contiguous() && !View::transpose(&s, &[1, 0]).is_contiguous());
    }

    #[test]
    fn views_outside_their_tensor_do_not_fit() {
        let s = Shape::from([4]);
        assert!(View::slice(&s, 0, 0, 1, 4).fits(4));
        assert!(!View::slice(&s, 0, 1, 1, 4).fits(4));
        assert!(!View::slice(&s, 0, 0, -1, 2).fits(4));
    }
}
