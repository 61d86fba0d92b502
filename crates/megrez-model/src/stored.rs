//! Models whose weights the parties keep: stored by their owner, run by whoever may.

use crate::batches::{Described, Rows, apart, in_range, named};
use crate::fixed::{decode_output, encode_data};
use crate::float::{Work, spread};
use crate::inference::{End, Inference, Ran, finished, in_batches, without_material};
use crate::material::Material;
use crate::model::Recipe;
use crate::rows;
use megrez_graph::lower::{DataInput, ModelInput};
use megrez_graph::{CompileOptions, FloatOptions, Graph, Revealed, Tensor, compile, compile_floats};
use megrez_plan::{FloatPlan, Input, Plan};
use megrez_ring::{Shape, encode_words};
use megrez_service::client::{Cluster, Description, RunOptions};
use megrez_service::protocols::{in_floats, is_float};
use megrez_service::wire::{Ahead, ModelPlan, Source, USER, Upload, fresh_name};
use megrez_service::{Error, ErrorKind, Result};

/// A model that is stored at a cluster, as the parties describe it.
pub struct StoredModel {
    name: String,
    /// The protocol in whose sharing it is kept.
    pub protocol: String,
    /// What its owner approved: one batch size, with what its user needs to know.
    pub approved: ModelPlan,
    /// How many runs the parties have made randomness ahead for, for this client.
    pub stock: usize,
    plan: StoredPlan,
}

enum StoredPlan {
    Fixed(Plan),
    Float(FloatPlan),
}

impl Described for StoredModel {
    fn inputs(&self) -> &[DataInput] {
        &self.approved.data_inputs
    }

    fn outputs(&self) -> &[Revealed] {
        apart(&self.approved.outputs).0
    }

    fn guard(&self) -> Option<&Revealed> {
        apart(&self.approved.outputs).1
    }

    fn mixed(&self, rows: usize) -> Option<&Revealed> {
        match &self.plan {
            StoredPlan::Fixed(plan) => rows::mixed(plan, self.inputs(), self.outputs(), rows),
            StoredPlan::Float(plan) => rows::mixed_floats(plan, self.inputs(), self.outputs(), rows),
        }
    }
}

impl StoredModel {
    /// Asks the parties for a model in a batch size that its owner approved.
    ///
    /// # Errors
    /// If there is no such model for this client, or the parties describe it in different ways.
    pub fn describe(cluster: &mut Cluster, name: &str, batch: usize) -> Result<Self> {
        let Description { protocol, plan: approved, stock } = cluster.describe(name, batch)?;
        let refuse = |e: megrez_plan::PlanError| Error::of(ErrorKind::Unsupported, e);
        let plan = if is_float(&protocol) {
            let plan = FloatPlan::from_bytes(&approved.plan).map_err(refuse)?;
            check_description(name, &approved, plan.outputs.iter().map(|o| plan.shape(o.value)))?;
            StoredPlan::Float(plan)
        } else {
            let plan = Plan::from_bytes(&approved.plan).map_err(refuse)?;
            check_description(name, &approved, plan.outputs.iter().map(|o| &plan.value(o.value).shape))?;
            StoredPlan::Fixed(plan)
        };
        Ok(StoredModel { name: name.into(), protocol, approved, stock, plan })
    }

    /// As [`infer`](crate::inference::infer), at the cluster that keeps the model. Unless `options`
    /// name material, each run takes some of the [`stock`](Self::stock) while there is any.
    ///
    /// # Errors
    /// If the data does not fit, or a party refuses or fails.
    pub fn infer(
        &self,
        cluster: &mut Cluster,
        data: &[Tensor],
        options: &RunOptions,
        before: &dyn Fn(u32) -> Result<()>,
    ) -> Result<Inference> {
        without_material(&self.protocol, options)?;
        let mut options = RunOptions { protocol: self.protocol.clone(), ..options.clone() };
        if options.material == Ahead::Nothing && self.stock > 0 {
            options.material = Ahead::Stock;
        }
        in_batches(self, data, &options, before, &mut |options, rows| self.run(cluster, options, rows))
    }

    /// Has the parties make the correlated randomness of one run ahead, of the run that names it.
    ///
    /// # Errors
    /// If the protocol has no offline phase, or a party fails.
    pub fn prepare(&self, cluster: &mut Cluster) -> Result<Material> {
        cluster.prepare(&self.protocol, self.source()).map(Material)
    }

    /// Has the parties make correlated randomness until they have that of so many `runs` in stock.
    /// Returns what was made.
    ///
    /// # Errors
    /// Those of [`prepare`](Self::prepare). What was made before stays in stock.
    pub fn keep(&self, cluster: &mut Cluster, runs: usize) -> Result<Vec<Material>> {
        (self.stock..runs)
            .map(|_| cluster.prepare_stock(&self.protocol, self.source()).map(Material))
            .collect()
    }

    fn source(&self) -> Source {
        Source::Model { model: self.name.clone(), batch: self.approved.batch }
    }

    fn run(&self, cluster: &mut Cluster, options: &RunOptions, rows: &Rows<'_>) -> Result<Ran> {
        let (inputs, end) = (self.inputs(), End::default());
        let mine = |input: &Input| inputs.iter().any(|d| d.name == input.name);
        let source = self.source();
        let given = |run: u32, input: &Input| {
            let wanted = named(inputs, input)?;
            Ok((wanted, rows(run, wanted)?))
        };
        match &self.plan {
            StoredPlan::Fixed(plan) => {
                let encode = |(wanted, rows): (&DataInput, Tensor)| encode_data(plan.ring, wanted, &rows);
                let words = |run: u32, input: &Input| end.keep(given(run, input).and_then(encode));
                let outcome = end.of(cluster.run(plan, source, options, &mine, &words, &|_| {}))?;
                in_range(self.guard(), &outcome.outputs)?;
                let finish =
                    |revealed: &Revealed, words: Vec<u64>| decode_output(plan.ring, revealed, &words);
                Ok(Ran {
                    outputs: finished(outcome.outputs, self.outputs(), finish),
                    reports: outcome.reports,
                })
            }
            StoredPlan::Float(plan) => {
                let encode = |(wanted, rows): (&DataInput, Tensor)| spread(wanted, rows);
                let numbers = |run: u32, input: &Input| end.keep(given(run, input).and_then(encode));
                let outcome = end.of(cluster.run_floats(plan, source, options, &mine, &numbers, &|_| {}))?;
                let outputs = finished(outcome.outputs, self.outputs(), Revealed::finish);
                Ok(Ran { outputs, reports: outcome.reports })
            }
        }
    }
}

/// Refuses a description that does not go with its plan: it comes from the parties. `shapes` are
/// those of the plan's outputs.
pub(crate) fn check_description<'a>(
    model: &str,
    approved: &ModelPlan,
    shapes: impl ExactSizeIterator<Item = &'a Shape>,
) -> Result<()> {
    if approved.outputs.is_empty() {
        return Err(Error::Refused(format!("`{model}` is no model: rows are trained on, and not run")));
    }
    let after = |output: &Revealed| {
        let mut shape = output.shape.clone();
        output.after.iter().all(|after| {
            let fits = after.fits(&shape);
            if fits {
                shape = after.shape(&shape);
            }
            fits
        })
    };
    let fits = shapes.len() == approved.outputs.len()
        && approved.outputs.iter().zip(shapes).all(|(o, shape)| o.shape == *shape && after(o))
        && approved.data_inputs.iter().all(|i| i.shape.clone().checked().is_ok());
    if fits {
        return Ok(());
    }
    Err(Error::Refused(format!(
        "the parties describe the stored model `{model}` and its plan differently: do not use it, and ask its owner to store it \
         again"
    )))
}

/// Keeps a model's weights at a cluster, in shares. `graphs` are the same model at the batch sizes
/// that may be run, and `allow` names the clients who may.
///
/// # Errors
/// Everything about the model that is not supported, or if a party refuses.
pub fn upload(
    cluster: &mut Cluster,
    name: &str,
    protocol: &str,
    graphs: &[Graph],
    recipe: &Recipe,
    allow: &[String],
) -> Result<()> {
    // Whoever uses the model takes the place of the user.
    let (owner, user) = (|| cluster.name().to_owned(), || USER.to_owned());
    let (mut plans, mut weights): (_, Vec<ModelInput>) = (vec![], vec![]);
    // All plans read the same weights, with as many fraction bits.
    let mut frac = None;
    for graph in graphs {
        let (plan, data_inputs, outputs, model_inputs) = match recipe {
            Recipe::Fixed(options) => {
                let mut options = CompileOptions {
                    model_owner: owner(),
                    data_owner: user(),
                    recipient: user(),
                    // Users have no table: what parties keep of a model does not hold it.
                    embed: false,
                    ..(**options).clone()
                };
                if let Some(frac) = frac {
                    (options.frac, options.deep_frac) = (frac, None);
                }
                let c = compile(graph, &options)?;
                frac = Some(c.frac);
                (c.plan.to_bytes(), c.data_inputs, c.outputs, c.model_inputs)
            }
            Recipe::Float(Work { group, threads }) => {
                let options = FloatOptions {
                    model_owner: owner(),
                    data_owner: user(),
                    recipient: user(),
                    group: *group,
                    threads: *threads,
                };
                let c = compile_floats(graph, &options)?;
                (c.plan.to_bytes(), c.data_inputs, c.outputs, c.model_inputs)
            }
        };
        let size = graph.inputs.first().and_then(|&id| graph.shape(id).dims().first().copied());
        let batch =
            size.ok_or_else(|| Error::Refused("the model has no input with a first dimension".into()))?;
        plans.push(ModelPlan { batch, plan, data_inputs, outputs });
        let read = |inputs: &[ModelInput]| -> Vec<_> {
            inputs.iter().map(|w| (w.name.clone(), w.shape.clone(), w.frac)).collect()
        };
        if !weights.is_empty() && read(&weights) != read(&model_inputs) {
            return Err(Error::Refused(format!(
                "at a batch of {batch} the model's weights are encoded otherwise than at the batches before: keep \
                 it once for each batch, or give --frac"
            )));
        }
        weights = model_inputs;
    }
    let weight = |input: &Input| {
        let weight = weights.iter().find(|w| w.name == input.name);
        weight.ok_or_else(|| Error::Refused(format!("the model has no weights `{}`", input.name)))
    };
    let (session, model, allow) = (fresh_name()?, name.into(), allow.to_vec());
    let protocol = match recipe {
        Recipe::Fixed(_) => protocol,
        Recipe::Float(_) => in_floats(protocol)?,
    };
    let upload = Upload {
        session,
        protocol: protocol.into(),
        model,
        plans,
        allow,
        rows: false,
        ids: None,
        within_s: None,
    };
    match recipe {
        Recipe::Fixed(options) => cluster.upload(upload, &|input| {
            let weight = weight(input)?;
            Ok(encode_words(options.ring, &weight.values, weight.frac)?)
        }),
        Recipe::Float(_) => cluster.upload_floats(upload, &|input| Ok(weight(input)?.values.clone())),
    }
}
