//! Tensors on a device.

use crate::{Device, Elem};
use megrez_ring::Shape;

/// A tensor of elements on device `D`, row-major. It may hold shares, so it does not print.
pub struct Tensor<T: Elem, D: Device> {
    /// Its dimensions.
    pub shape: Shape,
    /// `shape.elements()` elements.
    pub buf: D::Buf<T>,
}

impl<T: Elem, D: Device> Tensor<T, D> {
    /// A tensor from its parts.
    pub fn new(shape: impl Into<Shape>, buf: D::Buf<T>) -> Self {
        Tensor { shape: shape.into(), buf }
    }
    /// How many elements there are.
    pub fn elements(&self) -> usize {
        self.shape.elements()
    }
    /// The same elements under another shape of as many elements.
    pub fn reshaped(&self, shape: Shape) -> Self {
        assert_eq!(shape.elements(), self.elements());
        Tensor { shape, buf: self.buf.clone() }
    }
}

impl<T: Elem, D: Device> Clone for Tensor<T, D> {
    fn clone(&self) -> Self {
        Tensor { shape: self.shape.clone(), buf: self.buf.clone() }
    }
}

/// A tensor of bits on device `D`, packed 64 to a word; bits past the end are zero.
pub struct Bits<D: Device> {
    /// Its dimensions.
    pub shape: Shape,
    /// `ceil(shape.elements() / 64)` words.
    pub buf: D::Buf<u64>,
}

impl<D: Device> Bits<D> {
    /// A tensor from its parts.
    pub fn new(shape: impl Into<Shape>, buf: D::Buf<u64>) -> Self {
        Bits { shape: shape.into(), buf }
    }
    /// How many bits there are.
    pub fn elements(&self) -> usize {
        self.shape.elements()
    }
}

impl<D: Device> Clone for Bits<D> {
    fn clone(&self) -> Self {
        Bits { shape: self.shape.clone(), buf: self.buf.clone() }
    }
}
