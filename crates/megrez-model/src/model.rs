//! A compiled model, of either kind of numbers, and how to come by one.

use crate::batches::Described;
use crate::fixed::FixedModel;
use crate::float::{FloatModel, Work};
use megrez_graph::lower::DataInput;
use megrez_graph::{CompileOptions, FloatLayer, Graph, LayerInfo, LayerRange, Revealed};
use megrez_service::client::RunOptions;
use megrez_service::protocols::{find, in_floats, is_float};
use megrez_service::{Error, Result};
use serde_json::{Value as Json, json};

/// How to compile, with everything chosen that a request leaves to the network: it holds for every
/// batch size.
#[derive(Clone, Debug, PartialEq)]
pub enum Recipe {
    /// To fixed point.
    Fixed(Box<CompileOptions>),
    /// To single precision.
    Float(Work),
}

impl Recipe {
    /// The same for a run in which every layer is opened: none is left as a sum or becomes a part
    /// of the next, and none is guarded.
    #[must_use]
    pub fn by_layer(&self) -> Self {
        match self {
            Recipe::Fixed(options) => Recipe::Fixed(Box::new(CompileOptions {
                guard: false,
                defer_openings: false,
                sliced: None,
                defer_resharing: false,
                ..(**options).clone()
            })),
            Recipe::Float(work) => Recipe::Float(*work),
        }
    }

    /// Compiles a model all of whose inputs, weights included, belong to `client`, who also learns
    /// the outputs.
    ///
    /// # Errors
    /// Everything about the model that is not supported, and every range that does not fit.
    pub fn compile(&self, graph: &Graph, client: &str) -> Result<Model> {
        match self {
            Recipe::Fixed(options) => FixedModel::new(graph, client, options).map(Model::Fixed),
            Recipe::Float(work) => FloatModel::new(graph, client, *work).map(Model::Float),
        }
    }
}

/// A compiled model, ready to run on data in batches.
pub enum Model {
    /// In fixed point on a ring.
    Fixed(FixedModel),
    /// In single precision.
    Float(FloatModel),
}

impl Model {
    /// The graph that was compiled, after all passes.
    pub fn graph(&self) -> &Graph {
        match self {
            Model::Fixed(model) => &model.compiled.graph,
            Model::Float(model) => &model.compiled.graph,
        }
    }

    /// Whether the ranges of all layers are proven to fit the ring; `None` in single precision,
    /// which has none.
    pub fn proven(&self) -> Option<bool> {
        match self {
            Model::Fixed(model) => Some(model.compiled.ranges.iter().all(|r| r.proven)),
            Model::Float(_) => None,
        }
    }

    /// What the ranges of the layers rest on, the weakest of them: `proven`, `guarded` (calibrated,
    /// and looked at in every run), `calibrated` or `assumed`; `None` in single precision.
    pub fn basis(&self) -> Option<&'static str> {
        match self {
            Model::Fixed(model) => Some(match LayerRange::basis(&model.compiled.ranges) {
                "calibrated" if model.guard().is_some() => "guarded",
                basis => basis,
            }),
            Model::Float(_) => None,
        }
    }

    /// The layers in the order in which they run, for programs: name, operator and shape, and in
    /// fixed point what is known of their ranges.
    pub fn layers(&self) -> Json {
        match self {
            Model::Fixed(model) => {
                let layer = |(layer, range): (&LayerInfo, &LayerRange)| {
                    json!({ "layer": layer.name, "op": layer.op, "shape": layer.shape.dims(),
                        "range": [range.output.low, range.output.high], "bits": range.bits, "limit": range.limit,
                        "proven": range.proven, "calibrated": range.calibrated })
                };
                model.compiled.layers.iter().zip(&model.compiled.ranges).map(layer).collect()
            }
            Model::Float(model) => {
                let plan = &model.compiled.plan;
                let layer = |layer: &FloatLayer| json!({ "layer": layer.name, "op": layer.op, "shape": plan.shape(layer.value).dims() });
                model.compiled.layers.iter().map(layer).collect()
            }
        }
    }

    /// The protocol under which this model runs when it is asked for under `protocol`: a model in
    /// floating point has its own ([`in_floats`]).
    ///
    /// # Errors
    /// With what to do, where `protocol` computes with other numbers.
    pub fn goes_with(&self, protocol: &str) -> Result<&'static str> {
        match self {
            Model::Fixed(_) if is_float(protocol) => Err(Error::Refused(format!(
                "`{protocol}` computes in float32: compile with numbers=\"float32\""
            ))),
            Model::Fixed(_) => Ok(find(protocol)?.name),
            Model::Float(_) => in_floats(protocol),
        }
    }

    /// The options, with the protocol under which this model runs.
    ///
    /// # Errors
    /// Those of [`goes_with`](Self::goes_with).
    pub(crate) fn options(&self, options: &RunOptions) -> Result<RunOptions> {
        Ok(RunOptions { protocol: self.goes_with(&options.protocol)?.into(), ..options.clone() })
    }

    fn described(&self) -> &dyn Described {
        match self {
            Model::Fixed(model) => model,
            Model::Float(model) => model,
        }
    }
}

impl Described for Model {
    fn inputs(&self) -> &[DataInput] {
        self.described().inputs()
    }

    fn outputs(&self) -> &[Revealed] {
        self.described().outputs()
    }

    fn guard(&self) -> Option<&Revealed> {
        self.described().guard()
    }

    fn mixed(&self, rows: usize) -> Option<&Revealed> {
        self.described().mixed(rows)
    }
}
