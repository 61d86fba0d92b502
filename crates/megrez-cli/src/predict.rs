//! `megrez predict`: what a trained model says of rows that the parties keep.

use crate::cluster::{Needs, There};
use crate::jobs::{follow, kept_to, load, proposed};
use crate::options::Common;
use clap::Args;
use megrez::train::{
    Asked, Boosting, Job, Learning, Loss, Objective, Optimiser, PREDICTED, Predicts, Rate, StoredRows,
    Trained, imagine_trees, propose_predictions, room, tree_options,
};
use megrez::{Cluster, Error, ErrorKind, Result, npy};
use megrez_lab::bench::any_model;
use serde_json::json;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Args)]
pub(crate) struct Predict {
    /// The model that this client has had trained, by the name under which the parties keep it.
    #[arg(long, value_name = "NAME", required_unless_present = "job", requires = "data")]
    model_name: Option<String>,
    /// What training began with: an ONNX file, or a built-in network. Its weights are not read.
    #[arg(long)]
    model: Option<String>,
    /// In its place, how many boosted trees `megrez boost` has grown.
    #[arg(long, value_name = "TREES", conflicts_with_all = ["model", "only", "loss"])]
    estimators: Option<usize>,
    /// The levels of these trees.
    #[arg(long, value_name = "LEVELS", default_value_t = 4, requires = "estimators")]
    depth: u32,
    /// Rows that are stored at the cluster, by name; A,B are the rows of both, A+B the columns of
    /// the same rows. Labels among them are not read.
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    data: Vec<String>,
    /// Which loss it was trained by: cross-entropy, binary-cross-entropy, hinge or mse.
    #[arg(long, default_value = "cross-entropy")]
    loss: Loss,
    /// Only these weights were trained, as training was told [default: all].
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    only: Vec<String>,
    /// No number is taken to be larger than this, or than four times what made-up rows give.
    #[arg(long, default_value_t = 64.0)]
    room: f64,
    /// Write the predictions here, as .npy of [N, K].
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Write the job here and do not begin it: for the owners of the rows to approve.
    #[arg(long, value_name = "FILE", conflicts_with = "job")]
    propose: Option<PathBuf>,
    /// Begin this job, which --propose has written, or go on with it.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["model_name", "model", "estimators", "data"])]
    job: Option<PathBuf>,
    #[command(flatten)]
    there: There,
    #[command(flatten)]
    common: Common,
}

pub(crate) fn run(args: &Predict, json: bool) -> Result<ExitCode> {
    args.common.request.only_fixed()?;
    let mut cluster = args.there.connect(Needs::Own)?;
    let job = match &args.job {
        Some(path) => load(path)?,
        None => made(args, &mut cluster)?,
    };
    let me = cluster.name();
    if !job.opened.iter().any(|opening| opening.state == PREDICTED && opening.recipient == me) {
        return Err(Error::of(ErrorKind::Invalid, "the job opens no predictions to this client"));
    }
    kept_to(&mut cluster, &job)?;
    if let Some(path) = &args.propose {
        std::fs::write(path, job.to_bytes()).map_err(|e| Error::file(path, e))?;
        return proposed(&job, path, json);
    }
    cluster.train(&job, &args.common.request.net)?;
    let (_, history) = follow(&mut cluster, &job)?;
    let said = history.weights.iter().find(|(name, _)| name == PREDICTED);
    let (_, said) = said
        .ok_or_else(|| Error::of(ErrorKind::Invalid, "the job was stopped before its end: megrez resume"))?;
    if let Some(path) = &args.output {
        npy::save(path, said)?;
    }
    if json {
        println!(
            "{}",
            json!({ "schema": "megrez.predict/1", "shape": said.shape.dims(), "output": said.data, "file": args.output })
        );
    } else if let Some(path) = &args.output {
        println!("{} predictions are in {}", said.shape.dims()[0], path.display());
    } else {
        let width = said.shape.dims().get(1).copied().unwrap_or(1).max(1);
        for (row, numbers) in said.data.chunks_exact(width).enumerate() {
            let numbers: Vec<String> = numbers.iter().map(|number| format!("{number:.4}")).collect();
            println!("row {row}: {}", numbers.join(" "));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn made(args: &Predict, cluster: &mut Cluster) -> Result<Job> {
    let missing = |what: &str| Err(Error::of(ErrorKind::Invalid, format!("{what} needed")));
    let Some(stored) = &args.model_name else { return missing("--model-name and --data are") };
    let options = args.common.request.options()?;
    let rows = StoredRows::named(cluster, &args.data)?;
    let (options, predicts, rehearsal, of) = match (args.estimators, &args.model) {
        (Some(trees), _) => {
            let (options, columns) = (tree_options(options), rows.columns()?);
            // How they were grown makes no difference any more.
            let (objective, rate, penalty) = (Objective::Logistic, 1.0, 1.0);
            let boosting = Boosting { objective, trees, depth: args.depth, rate, penalty };
            let rehearsal = imagine_trees(&Boosting { trees: 1, ..boosting }, rows.count(), columns)?;
            let predicts = Predicts::trees(&boosting, rows.count(), columns)?;
            (options, predicts, rehearsal, format!("{trees} boosted trees"))
        }
        (None, Some(model)) => {
            let graph = any_model(model, rows.count(), 1)?;
            let trained = if args.only.is_empty() { Trained::All } else { Trained::Only(args.only.clone()) };
            // How weights moved makes no difference any more.
            let rate: Rate = "2^-4".parse().map_err(|what: String| Error::of(ErrorKind::Internal, what))?;
            let learning = Learning {
                loss: args.loss,
                trained,
                optimiser: Optimiser::sgd(rate),
                halve_every: None,
                privacy: None,
                shards: NonZeroU32::MIN,
            };
            let predicts = Predicts::network(&graph, &learning)?;
            let rehearsal = room(predicts.step(), options.input_range, args.room)?;
            (options, predicts, rehearsal, model.clone())
        }
        (None, None) => return missing("--model, or --estimators, is"),
    };
    let about = format!("predictions of `{stored}`, which is {of}");
    let asked = Asked { model: stored, predicts: &predicts, rows, about: &about };
    propose_predictions(cluster, args.common.protocol(), asked, (&options, &rehearsal))
}
