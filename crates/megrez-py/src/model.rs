//! Compiled models.

use crate::arrays::{Given, Named, arrays, tensors};
use crate::refused;
use crate::wait::wait;
use megrez::inference::{default_frac, fastest, fitted, infer_plain, measure, relu_form, sign_bit};
use megrez::{Error, Result, embedded, infer};
use megrez_graph::onnx::{self, ImportOptions};
use megrez_graph::{Calibration, Comparison, CompileOptions, Graph, Interval, RangePolicy};
use megrez_net::NetProfile;
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

/// How to compile; `python/megrez/_model.py` says what each means.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct Options {
    batch: usize,
    shapes: BTreeMap<String, Vec<usize>>,
    ring: u32,
    frac: Option<u32>,
    input_range: (f64, f64),
    input_ranges: BTreeMap<String, (f64, f64)>,
    assume: bool,
    list: String,
    widths: Option<Vec<u32>>,
    bits: Option<u32>,
    cut: u32,
    fit: bool,
    calibration: Option<String>,
    form: String,
    protocol: String,
    net: String,
}

impl Options {
    fn net(&self) -> Result<NetProfile> {
        Ok(self.net.parse()?)
    }

    fn comparison(&self) -> Result<Comparison> {
        if !self.fit && self.calibration.is_none() {
            let sign = sign_bit(self.ring, &self.list, self.widths.as_deref(), self.bits, self.cut)?;
            return Ok(Comparison::Fixed(sign));
        }
        if self.cut > 0 || self.widths.is_some() {
            return Err(Error::Refused("fitted comparisons choose cut and widths themselves".into()));
        }
        let refuse = |what: String| Error::Refused(format!("the calibration {what}"));
        let read = |text: &String| -> Result<Calibration> {
            let read: Calibration =
                serde_json::from_str(text).map_err(|e| refuse(format!("is not understood: {e}")))?;
            read.check().map_err(refuse)?;
            Ok(read)
        };
        let calibration = self.calibration.as_ref().map(read).transpose()?;
        fitted(&self.list, self.bits, calibration, !self.net()?.is_unshaped())
    }

    fn compile(&self) -> Result<CompileOptions> {
        let interval = |(low, high)| Interval { low, high };
        let ranges = self.input_ranges.iter().map(|(name, &range)| (name.clone(), interval(range)));
        Ok(CompileOptions {
            ring: self.ring,
            frac: self.frac.unwrap_or(default_frac(self.ring)),
            input_range: interval(self.input_range),
            input_ranges: ranges.collect(),
            policy: if self.assume { RangePolicy::Assume } else { RangePolicy::Prove },
            comparison: self.comparison()?,
            relu: relu_form(if self.form == AUTO { "3r" } else { &self.form })?,
            sums: infer::find(&self.protocol)?.sums,
            ..CompileOptions::default()
        })
    }
}

/// The form of ReLU that leaves the choice to the network.
const AUTO: &str = "auto";

#[pymethods]
impl Model {
    /// Reads and compiles an ONNX model.
    #[staticmethod]
    fn compile(py: Python<'_>, onnx: Onnx, options: Options) -> PyResult<Self> {
        wait(py, None, move |_| {
            let bytes = match onnx {
                Onnx::Bytes(bytes) => bytes.to_vec(),
                Onnx::Path(path) => std::fs::read(&path).map_err(|e| Error::file(&path, e))?,
            };
            let mut source = Source { bytes, options: options.compile()?, shapes: options.shapes.clone() };
            let graph = source.graph(options.batch)?;
            let model = if options.form == AUTO {
                let (protocol, net) = (&options.protocol, options.net()?);
                let (model, chosen) =
                    fastest(&graph, embedded::CLIENT, &source.options, None, protocol, &net)?;
                // What was chosen holds for other batch sizes as well.
                source.options = chosen;
                model
            } else {
                infer::Model::new(&graph, embedded::CLIENT, &source.options)?
            };
            // Shapes that the caller gave count for more than the batch.
            let size = model.compiled.data_inputs.first().and_then(|i| i.shape.dims().first().copied());
            let batch = size.unwrap_or(options.batch);
            Ok(Model { source: Arc::new(source), model: Arc::new(model), batch })
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

    /// How large values get on data, as JSON.
    fn calibrate(&self, py: Python<'_>, data: Vec<Given<'_>>, margin: f64) -> PyResult<String> {
        let (model, data) = (Arc::clone(&self.model), tensors(&data)?);
        let calibration = wait(py, None, move |_| measure(&model, &data, margin))?;
        serde_json::to_string(&calibration).map_err(refused)
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
