//! Predictions of a trained model on stored rows, whose columns may be of several owners: a job of
//! one step, which learns nothing. Who has a say in training has it here: the owners of the rows,
//! and those of the rows that the model was trained on.

use crate::job::run_plan;
use crate::stored::{ROWS, StoredRows};
use crate::{Learning, Rehearsal};
use megrez_graph::boosting::Boosting;
use megrez_graph::differentiate::{State, Step, forward};
use megrez_graph::{CompileOptions, Graph};
use megrez_plan::{KEPT, Kind, Plan};
use megrez_service::client::Cluster;
use megrez_service::training::{Job, Opening, Stage};
use megrez_service::wire::fresh_name;
use megrez_service::{Error, ErrorKind, Result};

/// The name under which a job opens what a model says of all rows.
pub const PREDICTED: &str = "predicted";

/// A model that a job has trained, at a batch of all rows that it is asked about.
pub struct Predicts {
    /// What it computes, and the state that it reads.
    model: (Graph, Vec<State>),
    /// The step that has trained it, for the ranges of that state.
    step: Step,
}

impl Predicts {
    /// A network, of which the weights count for nothing, and how it was trained: which weights are
    /// its state, and what belongs to the loss.
    ///
    /// # Errors
    /// If it cannot have been trained so.
    pub fn network(graph: &Graph, learning: &Learning) -> Result<Self> {
        let model = forward(graph, learning.loss, &learning.trained)?;
        Ok(Predicts { model, step: learning.step(graph)? })
    }

    /// Boosted trees of `columns` indicators.
    ///
    /// # Errors
    /// If there are no such trees.
    pub fn trees(boosting: &Boosting, rows: usize, columns: usize) -> Result<Self> {
        Ok(Predicts { model: boosting.model(rows, columns)?, step: boosting.step(rows, columns)? })
    }

    /// The step that has trained it.
    pub fn step(&self) -> &Step {
        &self.step
    }
}

/// What is asked.
pub struct Asked<'a> {
    /// The stored model, which a job has trained for this client.
    pub model: &'a str,
    /// What it computes.
    pub predicts: &'a Predicts,
    /// The rows.
    pub rows: StoredRows,
    /// For people: what the client says of it.
    pub about: &'a str,
}

/// Makes a job that runs a stored model on stored rows, all at once and in their order, and opens
/// to this client what it says of each.
///
/// # Errors
/// If the model's architecture does not fit the ring, or the rows do not go with it.
pub fn propose_predictions(
    cluster: &Cluster,
    protocol: &str,
    asked: Asked<'_>,
    (options, rehearsal): (&CompileOptions, &Rehearsal),
) -> Result<Job> {
    let (client, Predicts { model, step }) = (cluster.name().to_owned(), asked.predicts);
    let compiled = run_plan(model, step, &client, (options, rehearsal), &mut vec![])?;
    let mut plan = Plan::from_bytes(&compiled.plan).map_err(|e| Error::of(ErrorKind::Internal, e))?;
    asked.rows.fit((protocol, plan.ring, options.frac), options.input_range)?;
    for input in &mut plan.inputs {
        input.owner = KEPT.into();
        if compiled.data_inputs.iter().any(|data| data.name == input.name) {
            input.name = ROWS[0].into();
        }
    }
    // What lasts is read and written as the same: it is zeros before.
    let [output] = &mut plan.outputs[..] else {
        return Err(Error::of(ErrorKind::Invalid, "predictions are of a model of one output"));
    };
    (output.name, output.recipient) = (PREDICTED.into(), KEPT.into());
    let said = plan.value(plan.outputs[0].value).clone();
    let Kind::Ring { frac } = said.kind else {
        return Err(Error::of(ErrorKind::Unsupported, "the model's output is no number on the ring"));
    };
    plan.input(PREDICTED, KEPT, said.shape, frac);
    let job = Job {
        nonce: fresh_name()?,
        client: client.clone(),
        protocol: protocol.into(),
        data: asked.rows.sets,
        start: asked.model.into(),
        stages: vec![Stage { step: plan.to_bytes(), epochs: 1 }],
        shards: None,
        validation: None,
        bounds: vec![],
        rows: vec![ROWS[0].into()],
        opened: vec![Opening { state: PREDICTED.into(), recipient: client, every_epoch: false }],
        keep: None,
        about: asked.about.into(),
    };
    job.check()?;
    Ok(job)
}
