//! `megrez boost`: boosted trees are grown as a job of the parties, on answers of several owners'
//! rows; and `megrez indicators`, which makes these answers.

use crate::cluster::{Needs, There};
use crate::jobs::begin;
use crate::options::Common;
use crate::train_options::Terms;
use clap::Args;
use megrez::train::{
    Boosting, Grows, Objective, StoredRows, Thresholds, Wanted, imagine_trees, propose, tree_options,
    validation_batch,
};
use megrez::{Error, ErrorKind, Result, npy};
use serde_json::json;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Args)]
pub(crate) struct Boost {
    /// What trees make small: `logistic`, of labels 0 and 1, or `squares`, of targets.
    #[arg(long, default_value = "logistic")]
    objective: Objective,
    /// How many trees, one an epoch.
    #[arg(long, value_name = "TREES", default_value_t = 20)]
    estimators: usize,
    /// Levels of a tree, from 1 to 8.
    #[arg(long, default_value_t = 4)]
    depth: u32,
    /// How much of its step a tree takes, up to 1.
    #[arg(long, default_value_t = 0.3)]
    rate: f32,
    /// Added to the second derivatives of a leaf, from 0.125 to 1024: XGBoost's λ.
    #[arg(long, default_value_t = 1.0)]
    penalty: f32,
    #[command(flatten)]
    terms: Terms,
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    there: There,
}

impl Boost {
    /// What the job says about itself.
    fn about(&self) -> String {
        let objective = match self.objective {
            Objective::Logistic => "logistic",
            Objective::Squares => "squares",
        };
        format!("{} trees of {} levels, {objective}, rate {}", self.estimators, self.depth, self.rate)
    }
}

pub(crate) fn run(args: &Boost, json: bool) -> Result<ExitCode> {
    args.common.request.only_fixed()?;
    args.common.request.only_private()?;
    let terms = &args.terms;
    if terms.data.is_empty() {
        return Err(Error::of(ErrorKind::Invalid, "rows are needed: --data"));
    }
    let mut cluster = args.there.connect(Needs::Own)?;
    let &Boost { objective, estimators: trees, depth, rate, penalty, .. } = args;
    let boosting = Boosting { objective, trees, depth, rate, penalty };
    let stored = StoredRows::named(&mut cluster, &terms.data)?;
    let (rows, columns) = (stored.count(), stored.columns()?);
    let validated = match &terms.validation[..] {
        [] => None,
        names => Some(validation_batch(StoredRows::named(&mut cluster, names)?.count())),
    };
    let options = tree_options(args.common.request.options()?);
    let rehearsal = imagine_trees(&boosting, rows, columns)?;
    let batches = if terms.keep.is_some() { &terms.run_batch[..] } else { &[] };
    let course = Grows { boosting: &boosting, rows, columns, batches, validated };
    let sets = [terms.data.clone(), terms.validation.clone()];
    let wanted = Wanted { about: args.about(), ..terms.wanted(cluster.name(), false, sets) };
    let proposal = propose(&mut cluster, args.common.protocol(), &course, (&options, &rehearsal), &wanted)?;
    let net = &args.common.request.net;
    begin(&mut cluster, &proposal, (terms, net), &[&proposal.job.start], None, json)
}

#[derive(Args)]
pub(crate) struct Indicators {
    /// The rows, .npy of [N, features].
    #[arg(long, value_name = "FILE")]
    inputs: PathBuf,
    /// The thresholds, .npy of [thresholds, 2]: the number of a feature, from 0, and what it is
    /// compared with. Read, or with --bins written.
    #[arg(long, value_name = "FILE")]
    thresholds: PathBuf,
    /// Choose thresholds that part each feature in so many bins at most, from 2 to 256: evenly over
    /// these rows, about which they say something, or over --range.
    #[arg(long, value_name = "COUNT")]
    bins: Option<usize>,
    /// Public bounds of all features, which --bins parts evenly.
    #[arg(
        long,
        value_name = "LOW,HIGH",
        value_delimiter = ',',
        num_args = 1,
        allow_hyphen_values = true,
        requires = "bins"
    )]
    range: Vec<f32>,
    /// Write the answers here, .npy of [N, thresholds]: 1 where a feature exceeds a threshold.
    #[arg(long, value_name = "FILE")]
    output: PathBuf,
}

pub(crate) fn indicators(args: &Indicators, json: bool) -> Result<ExitCode> {
    let rows = npy::load(&args.inputs)?;
    let thresholds = match (args.bins, &args.range[..]) {
        (None, _) => Thresholds::from_tensor(&npy::load(&args.thresholds)?)?,
        (Some(bins), []) => Thresholds::of_rows(&rows, bins)?,
        (Some(bins), &[low, high]) => {
            let features = rows.shape.dims().get(1).copied().unwrap_or(0);
            Thresholds::within([low, high], features, bins)?
        }
        _ => return Err(Error::of(ErrorKind::Invalid, "--range is two numbers: LOW,HIGH")),
    };
    npy::save(&args.output, &thresholds.indicators(&rows)?)?;
    if args.bins.is_some() {
        npy::save(&args.thresholds, &thresholds.to_tensor())?;
    }
    let (count, thresholds) = (rows.shape.dims()[0], thresholds.count());
    if json {
        println!(
            "{}",
            json!({ "schema": "megrez.indicators/1", "rows": count, "thresholds": thresholds, "file": args.output })
        );
    } else {
        println!("{count} rows are compared with {thresholds} thresholds in {}", args.output.display());
    }
    Ok(ExitCode::SUCCESS)
}
