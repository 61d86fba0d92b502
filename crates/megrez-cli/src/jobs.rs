//! Training jobs that run without their client: `approve`, `jobs`, `resume` and `stop`.

use crate::cluster::{Needs, There};
use crate::progress;
use crate::train_options::Terms;
use clap::Args;
use megrez::train::{
    Bound, Consent, History, Job, JobId, OfJob, Proposal, RowSet, Stage, Standing, epsilon, guaranteed,
    history, of_job, wait,
};
use megrez::{Cluster, Error, ErrorKind, Result};
use megrez_net::NetProfile;
use megrez_service::approval::now_s;
use megrez_service::audit::Subject;
use serde_json::{Value, json};
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Reads a job from its file.
pub(crate) fn load(path: &Path) -> Result<Job> {
    Job::from_bytes(&std::fs::read(path).map_err(|e| Error::file(path, e))?)
}

/// A job's name in digits.
pub(crate) fn digits(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A job by its name, or the file that it is in.
fn id(text: &str) -> Result<JobId> {
    let path = Path::new(text);
    if path.exists() {
        return load(path).map(|job| job.id());
    }
    let digit = |i: usize| text.get(2 * i..2 * i + 2).and_then(|d| u8::from_str_radix(d, 16).ok());
    let bytes: Option<Vec<u8>> = (0..16).map(digit).collect();
    let id = bytes.filter(|_| text.len() == 32).and_then(|bytes| bytes.try_into().ok());
    id.ok_or_else(|| {
        let what = format!(
            "`{text}` is no file and no job's name of 32 hexadecimal digits: `megrez jobs` lists them"
        );
        Error::of(ErrorKind::Invalid, what)
    })
}

/// What a job does, line by line: all of it is what an approval binds.
pub(crate) fn describe(job: &Job) -> Result<Vec<String>> {
    let work = job.check()?;
    let mut lines = vec![format!("`{}` asks to train under `{}`", job.client, job.protocol)];
    let set = |set: &RowSet| {
        let beside = match &set.beside[..] {
            [] => String::new(),
            more => format!(", with the columns of the same rows in `{}`", more.join("`, `")),
        };
        format!("the {} rows `{}`{beside}", set.rows, set.name)
    };
    lines.extend(job.data.iter().map(|of| format!("on {}", set(of))));
    lines.push(format!(
        "{} epochs of {} steps on batches of {}, from the weights `{}`",
        job.epochs(),
        work.steps(job),
        work.all_batch(),
        job.start
    ));
    if work.shards > 1 {
        lines.push(format!(
            "the rows of a step come in {} shards of {}, with which the parties' replicas deal at the same time",
            work.shards, work.batch
        ));
    }
    if let (Some(of), Some(validated)) = (&job.validation, &work.validated) {
        let sets: Vec<String> = of.data.iter().map(set).collect();
        let (batches, batch) = (validated.batches, validated.batch);
        lines.push(format!(
            "after every epoch it counts on {}, and learns nothing from them: {batches} batches of {batch}, by the plan {}",
            sets.join(" and "),
            Subject::plan(&of.plan, false)
        ));
    }
    if !job.bounds.is_empty() {
        let bound = |bound: &Bound| format!("`{}` below 2^{}", bound.state, bound.below);
        let bounds: Vec<String> = job.bounds.iter().map(bound).collect();
        lines.push(format!(
            "OPENED to the parties after every epoch: whether the sums of squares are all within bounds, {}; else it ends",
            bounds.join(", ")
        ));
    }
    for opening in &job.opened {
        let elements = work.state(&opening.state).map_or(0, |value| value.shape.elements());
        let when = if opening.every_epoch { "after every epoch" } else { "at the end" };
        lines.push(format!(
            "OPENED to `{}` {when}: `{}`, {elements} numbers",
            opening.recipient, opening.state
        ));
    }
    let losses = job.opened.iter().any(|opening| opening.every_epoch);
    let private = of_job(job);
    lines.extend(private.map(|of| says_private(&of, losses)));
    for set in job.entries().filter(|set| losses && set.rows < 100) {
        lines.push(format!(
            "WARNING: `{}` has {} rows: whoever knows the others' learns much about each of them from a loss or a count",
            set.name, set.rows
        ));
    }
    if private.is_none() && job.opened.iter().any(|opening| !opening.every_epoch) && job.all_rows() < 1000 {
        lines.push(format!("WARNING: what is opened at the end can hold what {} rows are", job.all_rows()));
    }
    if let Some(keep) = &job.keep {
        let who = [std::slice::from_ref(&job.client), &keep.allow[..]].concat().join("`, `");
        let plan = |plan: &megrez_service::wire::ModelPlan| {
            format!("{} ({})", plan.batch, Subject::plan(&plan.plan, false))
        };
        let plans: Vec<String> = keep.plans.iter().map(plan).collect();
        lines.push(format!(
            "KEPT in shares as the model `{}`, which `{who}` may run as often as they like",
            keep.model
        ));
        lines.push(format!("in batches of, and by the plan: {}", plans.join(", ")));
    }
    let mut epoch = 1;
    for Stage { step, epochs } in &job.stages {
        let when = match job.stages.len() {
            1 => String::new(),
            _ => format!(" of epochs {epoch} to {}", epoch + epochs - 1),
        };
        epoch += epochs;
        let after = match &job.shards {
            Some(shards) => format!(", after {} for each shard", Subject::plan(&shards.plan, false)),
            None => String::new(),
        };
        lines.push(format!("a step{when} is the plan {}{after}", Subject::plan(step, false)));
    }
    if !job.about.is_empty() {
        lines.push(format!("of which `{}` says: {}", job.client, job.about.escape_debug()));
    }
    lines.push(format!("job {}, to be approved as {}", digits(&job.id()), digits(&job.hash())));
    Ok(lines)
}

/// What a job's weights may tell of a row; `losses` says that something is opened after every
/// epoch.
fn says_private(of: &OfJob, losses: bool) -> String {
    let OfJob { rho, range } = of;
    format!(
        "PRIVATE by the plans, as long as no number of a row is larger than {range}: ε = {:.2} at δ = 1e-5 for one row in \
         another's place (ρ = {rho:.4}){}",
        epsilon(*rho, 1e-5),
        if losses { "; of the weights, and not of what is opened after every epoch" } else { "" }
    )
}

/// A job that was written to a file and not begun.
pub(crate) fn proposed(job: &Job, path: &Path, json: bool) -> Result<ExitCode> {
    let lines = describe(job)?;
    if json {
        println!(
            "{}",
            json!({ "schema": "megrez.propose/1", "job": digits(&job.id()), "hash": digits(&job.hash()), "file": path, "says": lines })
        );
    } else {
        lines.iter().for_each(|line| println!("{line}"));
        println!(
            "written to {0}: the owners of the rows say `megrez approve --job {0} --of NAME`",
            path.display()
        );
    }
    Ok(ExitCode::SUCCESS)
}

/// Makes sure that a job keeps to the rules of whoever owns rows in it, as far as this client is
/// told them. The parties look again.
pub(crate) fn kept_to(cluster: &mut Cluster, job: &Job) -> Result<()> {
    let broken = cluster.broken_rules(job, guaranteed)?;
    if broken.is_empty() { Ok(()) } else { Err(Error::of(ErrorKind::NotPermitted, broken.join("; "))) }
}

/// When so many days are over: seconds since 1970.
pub(crate) fn in_days(days: u32) -> u64 {
    now_s().saturating_add(u64::from(days) * 24 * 3600)
}

#[derive(Args)]
pub(crate) struct Approve {
    /// The job's file, as `megrez train --propose` has written it.
    #[arg(long, value_name = "FILE")]
    job: PathBuf,
    /// The rows or weights of this client that the job may use.
    #[arg(long, value_delimiter = ',', required = true, value_name = "NAME")]
    of: Vec<String>,
    /// Take an approval back: the job neither begins nor goes on.
    #[arg(long)]
    withdraw: bool,
    /// For how many days the job may begin, or go on after it was interrupted [default: no end].
    #[arg(long, conflicts_with_all = ["withdraw", "show"], value_parser = clap::value_parser!(u32).range(1..=36_500))]
    days: Option<u32>,
    /// Show what the job does, and tell the parties nothing.
    #[arg(long, conflicts_with = "withdraw")]
    show: bool,
    #[command(flatten)]
    there: There,
}

pub(crate) fn approve(args: &Approve, json: bool) -> Result<ExitCode> {
    let job = load(&args.job)?;
    let lines = describe(&job)?;
    if let Some(name) = args.of.iter().find(|name| !job.uses(name)) {
        return Err(Error::of(ErrorKind::Invalid, format!("the job does not use `{name}`")));
    }
    let mut cluster = if args.show { None } else { Some(args.there.connect(Needs::Own)?) };
    if let Some(cluster) = cluster.as_mut().filter(|_| !args.withdraw) {
        kept_to(cluster, &job)?;
    }
    if !json {
        lines.iter().for_each(|line| println!("{line}"));
    }
    if let Some(cluster) = &mut cluster {
        let (job, of, until_s) = (job.hash(), args.of.clone(), args.days.map(in_days));
        cluster.consent(&Consent { job, of, withdrawn: args.withdraw, until_s })?;
    }
    let word = match (args.show, args.withdraw) {
        (true, _) => "shown",
        (_, true) => "withdrawn",
        _ => "approved",
    };
    if json {
        println!(
            "{}",
            json!({ "schema": "megrez.approve/1", "job": digits(&job.id()), "hash": digits(&job.hash()), "says": lines,
                "of": args.of, "state": word })
        );
    } else {
        println!("{word}");
    }
    Ok(ExitCode::SUCCESS)
}

/// A job for programs.
pub(crate) fn report(standing: &Standing, history: Option<&History>) -> Value {
    let state = &standing.parties[0];
    json!({ "job": digits(&state.id), "hash": digits(&state.hash), "client": state.client, "state": standing.word(),
        "epoch": standing.epoch(), "epochs": state.epochs, "step": standing.step(), "steps": state.steps,
        "losses": history.map(|history| &history.losses),
        "accuracies": history.map(|history| &history.accuracies),
        "validation_losses": history.map(|history| &history.validation_losses), "error": standing.failure().map(|e| e.to_string()) })
}

#[derive(Args)]
pub(crate) struct Jobs {
    /// One job, by its name or file, with what it has told this client [default: all].
    #[arg(long)]
    job: Option<String>,
    #[command(flatten)]
    there: There,
}

pub(crate) fn list(args: &Jobs, json: bool) -> Result<ExitCode> {
    let only = args.job.as_deref().map(id).transpose()?;
    let mut cluster = args.there.connect(Needs::Own)?;
    let standings = cluster.jobs(only, only.is_some())?;
    let mut reports = vec![];
    for standing in &standings {
        let job = standing.parties[0].job.as_deref();
        let told = job.map(|job| history(&cluster, job, standing)).transpose()?;
        reports.push(report(standing, told.as_ref()));
        if !json {
            let state = &standing.parties[0];
            println!(
                "{} {}: epoch {} of {}, step {} of {}, `{}`",
                digits(&state.id),
                standing.word(),
                standing.epoch(),
                state.epochs,
                standing.step(),
                state.steps,
                state.client
            );
            standing.failure().iter().for_each(|e| println!("  {e}"));
            let epochs = told.map(|told| says_epochs(&told)).unwrap_or_default();
            epochs.iter().enumerate().for_each(|(i, says)| println!("  epoch {}: {says}", i + 1));
        }
    }
    if json {
        println!("{}", json!({ "schema": "megrez.jobs/1", "jobs": reports }));
    }
    Ok(ExitCode::SUCCESS)
}

/// What is known of each epoch, in words.
fn says_epochs(history: &History) -> Vec<String> {
    let History { losses, accuracies, validation_losses, .. } = history;
    let epochs = losses.len().max(accuracies.len()).max(validation_losses.len());
    let says = |epoch: usize| {
        let loss = losses.get(epoch).map(|loss| format!("loss {loss:.4}"));
        let right = accuracies.get(epoch).map(|right| format!("{:.2} % right", right * 100.0));
        let other = validation_losses.get(epoch).map(|loss| format!("validation loss {loss:.4}"));
        loss.into_iter().chain(right).chain(other).collect::<Vec<_>>().join(", ")
    };
    (0..epochs).map(says).collect()
}

/// Follows a job until it no longer runs, and says each epoch's loss.
pub(crate) fn follow(cluster: &mut Cluster, job: &Job) -> Result<(Standing, History)> {
    let steps = job.check()?.steps(job);
    let bar = RefCell::new(None);
    let mut said = 0;
    let done = wait(cluster, job, &mut |standing, history| {
        let epochs = says_epochs(history);
        for (i, says) in epochs.iter().enumerate().skip(said) {
            eprintln!("epoch {} of {}: {says}", i + 1, job.epochs());
        }
        said = epochs.len();
        let mut bar = bar.borrow_mut();
        let bar = bar.get_or_insert_with(|| progress::bar(steps, "private training"));
        progress::tick(bar, standing.step())
    });
    drop(bar);
    done
}

/// Begins a job that was just made, or writes it down to be approved. `own` is stored for it alone:
/// nothing is left of that once the job has come to its end.
pub(crate) fn begin(
    cluster: &mut Cluster,
    proposal: &Proposal,
    (terms, net): (&Terms, &NetProfile),
    own: &[&String],
    weights: Option<&Path>,
    json: bool,
) -> Result<ExitCode> {
    let job = &proposal.job;
    kept_to(cluster, job)?;
    proposal.store_start(cluster)?;
    if let Some(path) = &terms.propose {
        std::fs::write(path, job.to_bytes()).map_err(|e| Error::file(path, e))?;
        return proposed(job, path, json);
    }
    cluster.train(job, net)?;
    if terms.detach {
        return go_on(cluster, job, true, None, json);
    }
    let done = follow(cluster, job)?;
    if done.0.word() == "done" {
        own.iter().try_for_each(|name| cluster.remove(name))?;
    }
    finish(job, &done, weights, json)
}

/// What following a job has shown, as training reports it.
pub(crate) fn finish(
    job: &Job,
    (standing, history): &(Standing, History),
    weights: Option<&Path>,
    json: bool,
) -> Result<ExitCode> {
    if let Some(folder) = weights.filter(|_| !history.weights.is_empty()) {
        crate::train_options::write_weights(folder, &history.weights)?;
    }
    if json {
        let mut report = report(standing, Some(history));
        report["schema"] = json!("megrez.train-job/1");
        report["model"] = json!(job.keep.as_ref().map(|keep| &keep.model));
        let private = |OfJob { rho, range }| json!({ "rho": rho, "epsilon": epsilon(rho, 1e-5), "delta": 1e-5, "range": range });
        report["privacy"] = json!(of_job(job).map(private));
        println!("{report}");
    } else {
        println!("job {} {}", digits(&job.id()), standing.word());
        let losses = job.opened.iter().any(|opening| opening.every_epoch);
        of_job(job).iter().for_each(|of| println!("{}", says_private(of, losses)));
        job.keep.iter().filter(|_| standing.word() == "done").for_each(|keep| {
            println!(
                "the weights are kept in shares as the model `{}`: megrez infer --model-name {}",
                keep.model, keep.model
            );
        });
    }
    Ok(ExitCode::SUCCESS)
}

#[derive(Args)]
pub(crate) struct Resume {
    /// The job, by its name or file.
    job: String,
    /// Do not wait for the end.
    #[arg(long)]
    detach: bool,
    /// Where to write weights that the job opens to this client.
    #[arg(long, value_name = "FOLDER")]
    weights_to: Option<PathBuf>,
    /// Shape the links: loopback, lan, wan, or a round-trip time and a rate such as 20ms,500mbps.
    #[arg(long, default_value = "loopback")]
    net: NetProfile,
    #[command(flatten)]
    there: There,
}

pub(crate) fn resume(args: &Resume, json: bool) -> Result<ExitCode> {
    let id = id(&args.job)?;
    let mut cluster = args.there.connect(Needs::Own)?;
    let standing = cluster.jobs(Some(id), true)?.pop();
    let job = standing.as_ref().and_then(|standing| standing.parties[0].job.as_deref().cloned());
    let (Some(standing), Some(job)) = (standing, job) else {
        return Err(Error::of(
            ErrorKind::Invalid,
            "not all parties have begun this job: begin it again with train --job FILE",
        ));
    };
    if !standing.runs() && standing.word() != "done" {
        cluster.train(&job, &args.net)?;
    }
    go_on(&mut cluster, &job, args.detach, args.weights_to.as_deref(), json)
}

/// After a job has begun: waits for it, or not.
pub(crate) fn go_on(
    cluster: &mut Cluster,
    job: &Job,
    detach: bool,
    weights: Option<&Path>,
    json: bool,
) -> Result<ExitCode> {
    if detach {
        let standing = cluster.jobs(Some(job.id()), false)?.pop();
        let standing =
            standing.ok_or_else(|| Error::of(ErrorKind::Internal, "the parties know no such job"))?;
        return finish(job, &(standing, History::default()), None, json);
    }
    let done = follow(cluster, job)?;
    finish(job, &done, weights, json)
}

#[derive(Args)]
pub(crate) struct Stop {
    /// The job, by its name or file.
    job: String,
    #[command(flatten)]
    there: There,
}

pub(crate) fn stop(args: &Stop, json: bool) -> Result<ExitCode> {
    let id = id(&args.job)?;
    args.there.connect(Needs::Own)?.stop(id)?;
    if json {
        println!("{}", json!({ "schema": "megrez.stop/1", "job": digits(&id) }));
    } else {
        println!("job {} stops at the border of a step", digits(&id));
    }
    Ok(ExitCode::SUCCESS)
}
