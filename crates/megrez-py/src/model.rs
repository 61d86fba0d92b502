//! Compiled models.

use super::arrays::{Given, Named, arrays, tensors};
use super::error::{error, refused};
use super::wait::wait;
use megrez::calibrate::measure;
use megrez::{
    CompileRequest, Described, Disclosure, Error, ErrorKind, Forecast, Recipe, Result, Roles, check_apart,
    infer_plain,
};
use megrez_graph::onnx::{self, ImportOptions};
use megrez_graph::{DataInput, Graph, Tensor};
use megrez_net::NetProfile;
use megrez_service::embedded::CLIENT;
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
    compiled: Arc<megrez::Model>,
    batch: usize,
}

/// What can be compiled again for another batch size.
pub struct Source {
    bytes: Vec<u8>,
    options: ImportOptions,
    recipe: Recipe,
    /// Whether one input at a time gives what several give, or why not, once somebody has asked.
    apart: OnceLock<std::result::Result<(), String>>,
}

impl Source {
    /// Refuses data of several inputs for a model that runs on one at a time and gives other
    /// numbers then.
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
        Ok(onnx::read(&self.bytes, &ImportOptions { batch, ..self.options.clone() })?)
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
    /// Reads and compiles an ONNX model; `request` is a [`CompileRequest`] as JSON.
    #[staticmethod]
    fn compile(
        py: Python<'_>,
        model: Onnx,
        batch: usize,
        shapes: BTreeMap<String, Vec<usize>>,
        constants: BTreeMap<String, Given<'_>>,
        request: &str,
    ) -> PyResult<Self> {
        let (names, values): (Vec<_>, Vec<_>) = constants.into_iter().unzip();
        let constants = names.into_iter().zip(tensors(&values)?).collect();
        let request: CompileRequest = serde_json::from_str(request).map_err(refused)?;
        wait(py, None, move |_| {
            let (bytes, folder) = match model {
                Onnx::Bytes(bytes) => (bytes.to_vec(), None),
                Onnx::Path(path) => {
                    (std::fs::read(&path).map_err(|e| Error::file(&path, e))?, Some(onnx::folder(&path)))
                }
            };
            let options = ImportOptions { batch, shapes, constants, folder };
            let graph = onnx::read(&bytes, &options)?;
            // What is chosen holds for other batch sizes as well.
            let recipe = request.recipe(&graph, CLIENT)?;
            let compiled = recipe.compile(&graph, CLIENT)?;
            // Shapes that the caller gave count for more than the batch.
            let size = compiled.inputs().first().and_then(|i| i.shape.dims().first().copied());
            let source = Source { bytes, options, recipe, apart: OnceLock::new() };
            Ok(Model { source: Arc::new(source), compiled: Arc::new(compiled), batch: size.unwrap_or(batch) })
        })
    }

    /// The options of a [`CompileRequest`] that are given as JSON and mean nothing in floating
    /// point.
    #[staticmethod]
    fn unused_in_float(request: &str) -> PyResult<Vec<&'static str>> {
        let request: CompileRequest = serde_json::from_str(request).map_err(refused)?;
        Ok(request.unused_in_float())
    }

    /// Inputs per run.
    #[getter]
    fn batch(&self) -> usize {
        self.batch
    }

    /// The model's description, as JSON.
    fn describe(&self) -> String {
        let input = |i: &DataInput| json!({ "name": i.name, "shape": i.shape.dims(), "range": [i.range.low, i.range.high] });
        let inputs: Vec<_> = self.compiled.inputs().iter().map(input).collect();
        let outputs: Vec<&str> = self.compiled.outputs().iter().map(|o| o.name.as_str()).collect();
        let mut about = json!({ "batch": self.batch, "inputs": inputs, "outputs": outputs });
        let named: Vec<_> = self.compiled.outputs().iter().map(|o| (&o.name, o.named())).collect();
        about["classes"] =
            named.iter().map(|(name, named)| (name.to_string(), json!(named.classes))).collect();
        about["columns"] =
            named.iter().map(|(name, named)| (name.to_string(), json!(named.columns))).collect();
        about["layers"] = self.compiled.layers();
        match &*self.compiled {
            megrez::Model::Fixed(model) => {
                about["numbers"] = json!("fixed");
                about["frac"] = json!(model.compiled.frac);
                about["proven"] = json!(self.compiled.proven());
            }
            megrez::Model::Float(_) => about["numbers"] = json!("float32"),
        }
        if let Recipe::Fixed(options) = &self.source.recipe {
            about["ring"] = json!(options.ring);
        }
        about.to_string()
    }

    /// What a run under a protocol tells whom: as JSON, and as text. `roles` are the owner of the
    /// model, the owner of the data and the recipient.
    fn disclosure(&self, protocol: &str, roles: Option<[String; 3]>) -> PyResult<(String, String)> {
        let roles = roles.map_or_else(Roles::default, |[model_owner, data_owner, recipient]| Roles {
            model_owner,
            data_owner,
            recipient,
        });
        let found = Disclosure::of(&self.compiled, protocol, &roles).map_err(error)?;
        Ok((serde_json::to_string(&found).map_err(refused)?, found.text()))
    }

    /// What so many runs will cost under a protocol on a network: as JSON, and as text.
    fn forecast(&self, py: Python<'_>, protocol: &str, net: &str, runs: u32) -> PyResult<(String, String)> {
        let (model, protocol) = (self.model(protocol)?, protocol.to_owned());
        let net: NetProfile = net.parse().map_err(refused)?;
        let foretold = wait(py, None, move |_| Forecast::of(&model, &protocol, &net, runs))?;
        Ok((foretold.json().to_string(), foretold.table()))
    }

    /// The outputs in the clear.
    fn plain<'py>(&self, py: Python<'py>, data: Vec<Given<'py>>) -> PyResult<Vec<Named<'py>>> {
        let (model, data, apart) = (self.compiled.clone(), tensors(&data)?, self.apart());
        let work = move |_: &_| {
            apart(&data)?;
            infer_plain(&model, &data)
        };
        arrays(py, wait(py, None, work)?)
    }

    /// How large values get on data, as JSON.
    fn calibrate(&self, py: Python<'_>, data: Vec<Given<'_>>, margin: f64) -> PyResult<String> {
        let (model, data) = (self.compiled.clone(), tensors(&data)?);
        let calibration = wait(py, None, move |_| match &*model {
            megrez::Model::Fixed(model) => measure(model, &data, margin),
            megrez::Model::Float(_) => Err(Error::of(
                ErrorKind::Unsupported,
                "float32 holds values of any size: there is nothing to calibrate",
            )),
        })?;
        serde_json::to_string(&calibration).map_err(refused)
    }
}

impl Model {
    /// The compiled model, to keep while Python goes on; refused if it is not of the numbers that
    /// `protocol` computes with.
    pub fn model(&self, protocol: &str) -> PyResult<Arc<megrez::Model>> {
        self.compiled.goes_with(protocol).map_err(error)?;
        Ok(Arc::clone(&self.compiled))
    }

    /// Compiles the model for a run in which every layer is opened, when the time has come; refused
    /// if it is not of the numbers that `protocol` computes with.
    pub fn by_layer(
        &self,
        protocol: &str,
    ) -> PyResult<impl FnOnce() -> Result<megrez::Model> + Send + 'static> {
        self.compiled.goes_with(protocol).map_err(error)?;
        let (source, batch) = (Arc::clone(&self.source), self.batch);
        Ok(move || source.recipe.by_layer().compile(&source.graph(batch)?, CLIENT))
    }

    /// Checks data with [`Source::check_apart`], when the time has come.
    pub fn apart(&self) -> impl FnOnce(&[Tensor]) -> Result<()> + Send + 'static {
        let (source, batch) = (Arc::clone(&self.source), self.batch);
        move |data| source.check_apart(batch, data)
    }

    /// Reads the model at several batch sizes, when the time has come.
    pub fn graphs(
        &self,
        batches: Vec<usize>,
    ) -> impl FnOnce() -> Result<(Vec<Graph>, Recipe)> + Send + 'static {
        let source = Arc::clone(&self.source);
        move || {
            let graphs = batches.iter().map(|&batch| source.graph(batch)).collect::<Result<_>>()?;
            Ok((graphs, source.recipe.clone()))
        }
    }
}
