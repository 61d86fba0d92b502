//! Compiled models.

use crate::arrays::{Given, Named, arrays, tensors};
use crate::error;
use crate::wait::wait;
use megrez::inference::{default_frac, infer_plain, relu_form, sign_bit};
use megrez::{Error, Result, embedded, infer};
use megrez_graph::onnx::{self, ImportOptions};
use megrez_graph::{Comparison, CompileOptions, Graph, Interval, RangePolicy};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

/// A model, compiled; immutable.
#[pyclass(frozen, module = "megrez._native")]
pub struct Model {
    source: Arc<Source>,
    model: Arc<infer::Model>,
    batch: usize,
}

/// What can be compiled again for another batch size.
pub struct Source {
    bytes: Vec<u8>,
    shapes: BTreeMap<String, Vec<usize>>,
    options: CompileOptions,
}

impl Source {
    /// The model at a batch size.
    fn graph(&self, batch: usize) -> Result<Graph> {
        Ok(onnx::read(&self.bytes, &ImportOptions { batch, shapes: self.shapes.clone() })?)
    }
}

/// An ONNX model: a file, or what would be in it.
#[derive(FromPyObject)]
enum Onnx {
    #[pyo3(transparent)]
    Bytes(PyBackedBytes),
    #[pyo3(transparent)]
    Path(PathBuf),
}

#[pymethods]
impl Model {
    /// Reads and compiles an ONNX model.
    #[staticmethod]
    #[pyo3(signature = (onnx, *, batch, shapes, ring, frac, input_range, input_ranges, assume, list, widths, bits, cut,
        form))]
    #[expect(clippy::too_many_arguments, reason = "they are named at the only caller, which documents them")]
    fn compile(
        py: Python<'_>,
        onnx: Onnx,
        batch: usize,
        shapes: BTreeMap<String, Vec<usize>>,
        ring: u32,
        frac: Option<u32>,
        input_range: (f64, f64),
        input_ranges: BTreeMap<String, (f64, f64)>,
        assume: bool,
        list: &str,
        widths: Option<Vec<u32>>,
        bits: Option<u32>,
        cut: u32,
        form: &str,
    ) -> PyResult<Self> {
        let interval = |(low, high)| Interval { low, high };
        let options = CompileOptions {
            ring,
            frac: frac.unwrap_or(default_frac(ring)),
            input_range: interval(input_range),
            input_ranges: input_ranges.into_iter().map(|(name, range)| (name, interval(range))).collect(),
            policy: if assume { RangePolicy::Assume } else { RangePolicy::Prove },
            comparison: Comparison::Fixed(sign_bit(ring, list, widths.as_deref(), bits, cut).map_err(error)?),
            relu: relu_form(form).map_err(error)?,
            ..CompileOptions::default()
        };
        wait(py, None, move |_| {
            let bytes = match onnx {
                Onnx::Bytes(bytes) => bytes.to_vec(),
                Onnx::Path(path) => std::fs::read(&path).map_err(|e| Error::file(&path, e))?,
            };
            let source = Source { bytes, shapes, options };
            let model = infer::Model::new(&source.graph(batch)?, embedded::CLIENT, &source.options)?;
            // Shapes that the caller gave count for more than the batch.
            let size = model.compiled.data_inputs.first().and_then(|i| i.shape.dims().first().copied());
            Ok(Model { source: Arc::new(source), model: Arc::new(model), batch: size.unwrap_or(batch) })
        })
    }

    /// Inputs per run.
    #[getter]
    fn batch(&self) -> usize {
        self.batch
    }

    /// The model's description, as JSON.
    fn describe(&self) -> String {
        let compiled = &self.model.compiled;
        let inputs: Vec<_> = compiled
            .data_inputs
            .iter()
            .map(|i| json!({ "name": i.name, "shape": i.shape.dims(), "range": [i.range.low, i.range.high] }))
            .collect();
        let layers: Vec<_> = compiled
            .layers
            .iter()
            .zip(&compiled.ranges)
            .map(|(layer, range)| {
                json!({ "layer": layer.name, "op": layer.op, "shape": layer.shape.dims(),
                    "range": [range.output.low, range.output.high], "bits": range.bits, "limit": range.limit,
                    "proven": range.proven })
            })
            .collect();
        let outputs: Vec<&str> = compiled.outputs.iter().map(|o| o.name.as_str()).collect();
        let options = &self.source.options;
        json!({ "batch": self.batch, "ring": options.ring, "frac": options.frac, "inputs": inputs,
            "outputs": outputs, "layers": layers, "proven": compiled.ranges.iter().all(|r| r.proven) })
        .to_string()
    }

    /// The outputs in the clear.
    fn plain<'py>(&self, py: Python<'py>, data: Vec<Given<'py>>) -> PyResult<Vec<Named<'py>>> {
        let (model, data) = (Arc::clone(&self.model), tensors(&data)?);
        arrays(py, wait(py, None, move |_| infer_plain(&model, &data))?)
    }
}

impl Model {
    /// The compiled model, to keep while Python goes on.
    pub fn model(&self) -> Arc<infer::Model> {
        Arc::clone(&self.model)
    }

    /// Reads the model at several batch sizes, when the time has come.
    pub fn graphs(
        &self,
        batches: Vec<usize>,
    ) -> impl FnOnce() -> Result<(Vec<Graph>, CompileOptions)> + Send + 'static {
        let source = Arc::clone(&self.source);
        move || {
            let graphs = batches.iter().map(|&batch| source.graph(batch)).collect::<Result<_>>()?;
            Ok((graphs, source.options.clone()))
        }
    }
}
