//! Compiled models.

use crate::arrays::{Given, Named, arrays, tensors};
use crate::wait::wait;
use crate::{error, refused};
use megrez::inference::{
    Described, check_apart, default_frac, fastest, fitted, infer_plain, measure, relu_form, sign_bit,
};
use megrez::secfloat::{FloatModel, PROTOCOL, Work, is_float};
use megrez::{Error, Result, embedded, infer};
use megrez_graph::onnx::{self, ImportOptions};
use megrez_graph::{
    Calibration, Comparison, CompileOptions, FloatLayer, Graph, Interval, LayerInfo, LayerRange, RangePolicy,
    Tensor,
};
use megrez_net::NetProfile;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

/// A model, compiled; immutable.
#[pyclass(frozen, module = "megrez._native")]
pub struct Model {
    source: Arc<Source>,
    compiled: Compiled,
    batch: usize,
}

/// A compiled model, by the numbers that it computes with.
#[derive(Clone)]
pub enum Compiled {
    /// Fixed point.
    Fixed(Arc<infer::Model>),
    /// Single precision.
    Float(Arc<FloatModel>),
}

/// How a model is compiled.
#[derive(Clone)]
pub enum How {
    /// To fixed point.
    Fixed(Box<CompileOptions>),
    /// To single precision.
    Float(Work),
}

/// What can be compiled again for another batch size.
pub struct Source {
    bytes: Vec<u8>,
    shapes: BTreeMap<String, Vec<usize>>,
    how: How,
    /// Whether one input at a time gives what several give, or why not, once somebody has asked.
    apart: OnceLock<std::result::Result<(), String>>,
}

impl Source {
    /// Refuses data of several inputs for a model that runs on one at a time and gives other numbers then.
    pub fn check_apart(&self, batch: usize, data: &[Tensor]) -> Result<()> {
        let rows = data.first().and_then(|d| d.shape.dims().first().copied()).unwrap_or(1);
        // What a fixed batch makes of two, the file says; nobody asks for two.
        if batch != 1 || rows <= 1 {
            return Ok(());
        }
        let apart = || self.graph(2).map_or(Ok(()), |two| check_apart(&two).map_err(|e| e.to_string()));
        self.apart.get_or_init(apart).clone().map_err(Error::Refused)
    }

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
    numbers: String,
    group: u32,
    threads: Option<u32>,
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

    fn how(&self) -> Result<How> {
        match self.numbers.as_str() {
            "fixed" => Ok(How::Fixed(Box::new(self.fixed()?))),
            "float32" => {
                let threads = self.threads.unwrap_or(Work::default().threads);
                Ok(How::Float(Work { group: self.group, threads }))
            }
            other => Err(Error::Refused(format!("numbers are \"fixed\" or \"float32\", not {other:?}"))),
        }
    }

    fn fixed(&self) -> Result<CompileOptions> {
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
            let (how, shapes) = (options.how()?, options.shapes.clone());
            let mut source = Source { bytes, how, shapes, apart: OnceLock::new() };
            let graph = source.graph(options.batch)?;
            let compiled = match &mut source.how {
                How::Float(work) => {
                    Compiled::Float(Arc::new(FloatModel::new(&graph, embedded::CLIENT, *work)?))
                }
                How::Fixed(fixed) if options.form == AUTO => {
                    let (protocol, net) = (&options.protocol, options.net()?);
                    let (model, chosen) = fastest(&graph, embedded::CLIENT, fixed, None, protocol, &net)?;
                    // What was chosen holds for other batch sizes as well.
                    **fixed = chosen;
                    Compiled::Fixed(Arc::new(model))
                }
                How::Fixed(fixed) => {
                    Compiled::Fixed(Arc::new(infer::Model::new(&graph, embedded::CLIENT, fixed)?))
                }
            };
            // Shapes that the caller gave count for more than the batch.
            let size = compiled.described().inputs().first().and_then(|i| i.shape.dims().first().copied());
            let batch = size.unwrap_or(options.batch);
            Ok(Model { source: Arc::new(source), compiled, batch })
        })
    }

    /// Inputs per run.
    #[getter]
    fn batch(&self) -> usize {
        self.batch
    }

    /// The model's description, as JSON.
    fn describe(&self) -> String {
        let inputs: Vec<_> = self
            .compiled
            .described()
            .inputs()
            .iter()
            .map(|i| json!({ "name": i.name, "shape": i.shape.dims(), "range": [i.range.low, i.range.high] }))
            .collect();
        let outputs: Vec<&str> =
            self.compiled.described().outputs().iter().map(|o| o.name.as_str()).collect();
        let mut about = json!({ "batch": self.batch, "inputs": inputs, "outputs": outputs });
        match &self.compiled {
            Compiled::Fixed(model) => {
                let compiled = &model.compiled;
                let layer = |(layer, range): (&LayerInfo, &LayerRange)| {
                    json!({ "layer": layer.name, "op": layer.op, "shape": layer.shape.dims(),
                        "range": [range.output.low, range.output.high], "bits": range.bits, "limit": range.limit,
                        "proven": range.proven })
                };
                about["numbers"] = json!("fixed");
                about["layers"] = compiled.layers.iter().zip(&compiled.ranges).map(layer).collect();
                about["proven"] = json!(compiled.ranges.iter().all(|r| r.proven));
            }
            Compiled::Float(model) => {
                let plan = &model.compiled.plan;
                let layer = |layer: &FloatLayer| json!({ "layer": layer.name, "op": layer.op, "shape": plan.shape(layer.value).dims() });
                about["numbers"] = json!("float32");
                about["layers"] = model.compiled.layers.iter().map(layer).collect();
            }
        }
        if let How::Fixed(options) = &self.source.how {
            (about["ring"], about["frac"]) = (json!(options.ring), json!(options.frac));
        }
        about.to_string()
    }

    /// The outputs in the clear.
    fn plain<'py>(&self, py: Python<'py>, data: Vec<Given<'py>>) -> PyResult<Vec<Named<'py>>> {
        let (model, data, apart) = (self.compiled.clone(), tensors(&data)?, self.apart());
        let work = move |_: &_| {
            apart(&data)?;
            infer_plain(model.graph(), model.described(), &data)
        };
        arrays(py, wait(py, None, work)?)
    }

    /// How large values get on data, as JSON.
    fn calibrate(&self, py: Python<'_>, data: Vec<Given<'_>>, margin: f64) -> PyResult<String> {
        let Compiled::Fixed(model) = self.compiled.clone() else {
            return Err(refused("float32 holds values of any size: there is nothing to calibrate"));
        };
        let data = tensors(&data)?;
        let calibration = wait(py, None, move |_| measure(&model, &data, margin))?;
        serde_json::to_string(&calibration).map_err(refused)
    }
}

impl Compiled {
    fn graph(&self) -> &Graph {
        match self {
            Compiled::Fixed(model) => &model.compiled.graph,
            Compiled::Float(model) => &model.compiled.graph,
        }
    }

    fn described(&self) -> &dyn Described {
        match self {
            Compiled::Fixed(model) => &**model,
            Compiled::Float(model) => &**model,
        }
    }
}

impl Model {
    /// The compiled model, to keep while Python goes on; refused if it is not of the numbers that `protocol` computes with.
    pub fn model(&self, protocol: &str) -> PyResult<Compiled> {
        match (&self.compiled, is_float(protocol, None).map_err(error)?) {
            (Compiled::Fixed(_), true) => {
                Err(refused(format!("`{protocol}` computes in float32: compile with numbers=\"float32\"")))
            }
            (Compiled::Float(_), false) => {
                let float = PROTOCOL.name;
                Err(refused(format!(
                    "the model is in float32: run it with protocol=\"{float}\", not {protocol}"
                )))
            }
            _ => Ok(self.compiled.clone()),
        }
    }

    /// Checks data with [`Source::check_apart`], when the time has come.
    pub fn apart(&self) -> impl FnOnce(&[Tensor]) -> Result<()> + Send + 'static {
        let (source, batch) = (Arc::clone(&self.source), self.batch);
        move |data| source.check_apart(batch, data)
    }

    /// Reads the model at several batch sizes, when the time has come.
    pub fn graphs(&self, batches: Vec<usize>) -> impl FnOnce() -> Result<(Vec<Graph>, How)> + Send + 'static {
        let source = Arc::clone(&self.source);
        move || {
            let graphs = batches.iter().map(|&batch| source.graph(batch)).collect::<Result<_>>()?;
            Ok((graphs, source.how.clone()))
        }
    }
}
