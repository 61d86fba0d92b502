//! NumPy's arrays and the library's tensors.

use super::error::refused;
use megrez_graph::Tensor;
use numpy::{PyArray1, PyArrayDyn, PyArrayMethods, PyReadonlyArrayDyn, PyUntypedArrayMethods};
use pyo3::prelude::*;

/// A contiguous array as Python hands it over.
pub type Given<'py> = PyReadonlyArrayDyn<'py, f32>;
/// A named array as Python gets it.
pub type Named<'py> = (String, Bound<'py, PyArrayDyn<f32>>);

/// Copies arrays, so that Python may change them meanwhile.
pub fn tensors(arrays: &[Given<'_>]) -> PyResult<Vec<Tensor>> {
    arrays
        .iter()
        .map(|array| {
            let values = array.as_slice().map_err(refused)?;
            Ok(Tensor::new(array.shape().to_vec(), values.to_vec()))
        })
        .collect()
}

/// Arrays of tensors, which are used up.
pub fn arrays(py: Python<'_>, tensors: Vec<(String, Tensor)>) -> PyResult<Vec<Named<'_>>> {
    tensors
        .into_iter()
        .map(|(name, tensor)| {
            let dims = tensor.shape.dims().to_vec();
            Ok((name, PyArray1::from_vec(py, tensor.data).reshape(dims)?))
        })
        .collect()
}
