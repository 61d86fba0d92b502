//! Static tensor shapes.

use std::fmt;

/// More elements than this in one tensor are refused: shapes come from untrusted files.
const MAX_ELEMENTS: usize = 1 << 34;

/// The dimensions of a tensor, outermost first, row-major. A scalar has no dimensions and one
/// element.
#[derive(Clone, PartialEq, Eq, Hash, Default, serde::Serialize, serde::Deserialize)]
pub struct Shape(Vec<usize>);

/// A shape that cannot be used.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ShapeError {
    /// The element count is too large.
    #[error("shape {0:?} has more than 2^34 elements")]
    TooLarge(Shape),
    /// Two shapes that must agree do not.
    #[error("shapes {0:?} and {1:?} do not fit together")]
    Mismatch(Shape, Shape),
}

impl Shape {
    /// A shape from its dimensions.
    pub fn new(dims: impl Into<Vec<usize>>) -> Self {
        Shape(dims.into())
    }
    /// Checks the element count; call it on shapes from files and peers before allocating.
    pub fn checked(self) -> Result<Self, ShapeError> {
        let count = self.0.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
        match count {
            Some(n) if n <= MAX_ELEMENTS => Ok(self),
            _ => Err(ShapeError::TooLarge(self)),
        }
    }
    /// The dimensions.
    pub fn dims(&self) -> &[usize] {
        &self.0
    }
    /// How many dimensions there are.
    pub fn rank(&self) -> usize {
        self.0.len()
    }
    /// How many elements a tensor of this shape has.
    pub fn elements(&self) -> usize {
        self.0.iter().product()
    }
    /// The distance in elements between neighbours along each dimension, row-major.
    pub fn strides(&self) -> Vec<usize> {
        let mut strides = vec![1; self.0.len()];
        for i in (1..self.0.len()).rev() {
            strides[i - 1] = strides[i] * self.0[i];
        }
        strides
    }
    /// NumPy's broadcast of two shapes.
    pub fn broadcast(&self, other: &Shape) -> Result<Shape, ShapeError> {
        let rank = self.rank().max(other.rank());
        let dim = |s: &Shape, i: usize| if i + s.rank() < rank { 1 } else { s.0[i + s.rank() - rank] };
        (0..rank)
            .map(|i| match (dim(self, i), dim(other, i)) {
                (a, b) if a == b => Ok(a),
                (1, b) => Ok(b),
                (a, 1) => Ok(a),
                _ => Err(ShapeError::Mismatch(self.clone(), other.clone())),
            })
            .collect::<Result<Vec<_>, _>>()
            .map(Shape)
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dims: Vec<String> = self.0.iter().map(usize::to_string).collect();
        f.write_str(&dims.join("×"))
    }
}

impl<const N: usize> From<[usize; N]> for Shape {
    fn from(dims: [usize; N]) -> Self {
        Shape(dims.to_vec())
    }
}

impl From<Vec<usize>> for Shape {
    fn from(dims: Vec<usize>) -> Self {
        Shape(dims)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strides_and_counts() {
        let s = Shape::from([2, 3, 4]);
        assert_eq!((s.elements(), s.strides()), (24, vec![12, 4, 1]));
        assert_eq!(Shape::new([]).elements(), 1);
    }

    #[test]
    fn broadcasting_follows_numpy() {
        let s = |d: &[usize]| Shape::new(d);
        assert_eq!(s(&[4, 1, 3]).broadcast(&s(&[2, 1])).unwrap(), s(&[4, 2, 3]));
        assert!(s(&[2]).broadcast(&s(&[3])).is_err());
    }

    #[test]
    fn absurd_shapes_are_refused() {
        assert!(Shape::from([usize::MAX, 2]).checked().is_err());
        assert!(Shape::from([1 << 20, 1 << 20]).checked().is_err());
    }
}
