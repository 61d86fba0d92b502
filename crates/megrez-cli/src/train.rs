//! `megrez train`: a model is trained on shares, here or on a cluster, or in the clear.

use crate::cluster::Place;
use crate::options::Common;
use crate::progress;
use crate::train_job::{self, AsJob};
use clap::Args;
use megrez::train::{
    Clear, Epoch, Learning as How, Loss, Optimiser, Rate, Rehearsal, Rows, Step, Trained, Training, accuracy,
    differentiate, rehearse, room, with_weights,
};
use megrez::{Backend, Error, ErrorKind, Result};
use megrez_graph::{CompileOptions, Graph, Tensor, npy};
use megrez_lab::bench::any_model;
use megrez_session::Phase;
use serde_json::json;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

/// At most so many steps are rehearsed in the clear.
const REHEARSED: usize = 200;

/// How a model learns.
#[derive(Args)]
#[command(next_help_heading = "Learning")]
pub(crate) struct Learning {
    /// What is made small: cross-entropy (of softmax) or mse.
    #[arg(long, default_value = "cross-entropy")]
    pub(crate) loss: Loss,
    /// Rows of a step.
    #[arg(long, default_value_t = 32)]
    pub(crate) batch: usize,
    /// The learning rate, c*2^-k with c below 16: 2^-4, 3*2^-6, 0.125.
    #[arg(long, default_value = "2^-4")]
    rate: Rate,
    /// How weights follow their gradients: sgd, adam or amsgrad.
    #[arg(long, default_value = "sgd", value_name = "NAME")]
    optimiser: String,
    /// Momentum, from 0 to 255/256 [default: 0; of adam and amsgrad 230/256].
    #[arg(long)]
    momentum: Option<f64>,
    /// Weight decay, c*2^-k as rates are: a step takes rate times this of each weight away.
    #[arg(long, value_name = "RATE")]
    weight_decay: Option<Rate>,
}

impl Learning {
    pub(crate) fn optimiser(&self) -> Result<Optimiser> {
        Optimiser::named(&self.optimiser, self.rate, self.momentum, self.weight_decay)
            .map_err(|what| Error::of(ErrorKind::Invalid, what))
    }
}

#[derive(Args)]
pub(crate) struct Train {
    /// The model with the weights that training begins with: an ONNX file, or a built-in network with
    /// random weights.
    #[arg(long, required_unless_present = "job")]
    model: Option<String>,
    /// The rows, .npy of [N, …].
    #[arg(long, value_name = "FILE", requires = "labels")]
    pub(crate) inputs: Option<PathBuf>,
    /// Their labels, .npy of class numbers [N] or of rows [N, K].
    #[arg(long, value_name = "FILE", requires = "inputs")]
    pub(crate) labels: Option<PathBuf>,
    /// How often every row is learnt from.
    #[arg(long, default_value_t = 1)]
    pub(crate) epochs: u32,
    /// Halve the rate after every so many epochs.
    #[arg(long, value_name = "EPOCHS")]
    halve_every: Option<NonZeroU32>,
    /// Train only these weights, by their own or their layer's name [default: all].
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    only: Vec<String>,
    /// Train in the clear, in float32: what to expect.
    #[arg(long)]
    plain: bool,
    /// Reveal the weights to this client, and write each here as NAME.npy.
    #[arg(long, value_name = "FOLDER")]
    pub(crate) weights: Option<PathBuf>,
    /// Count how often the revealed weights are right on these rows, in the clear.
    #[arg(long, value_name = "FILE", requires_all = ["test_labels", "weights"])]
    test_inputs: Option<PathBuf>,
    /// The labels of --test-inputs.
    #[arg(long, value_name = "FILE", requires = "test_inputs")]
    test_labels: Option<PathBuf>,
    /// Seed of a built-in network's weights and of the order of rows, never of shares.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Rehearse at most so many steps in the clear, on the rows of the command line: the plan is laid out for
    /// what they show. 0 for none: numbers are then taken to stay within --room.
    #[arg(long, value_name = "STEPS", default_value_t = REHEARSED)]
    rehearse: usize,
    /// Without a rehearsal, no number is taken to be larger than this, or than four times what
    /// made-up rows give.
    #[arg(long, default_value_t = 64.0)]
    room: f64,
    #[command(flatten)]
    pub(crate) learning: Learning,
    #[command(flatten)]
    pub(crate) job: AsJob,
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(flatten)]
    pub(crate) place: Place,
}

/// What training gave.
struct Trail {
    epochs: Vec<(f32, f64)>,
    weights: Option<Vec<(String, Tensor)>>,
    last: Option<Epoch>,
}

pub(crate) fn run(args: &Train, json: bool) -> Result<ExitCode> {
    let invalid = |what: &str| Error::of(ErrorKind::Invalid, what);
    let batch = args.learning.batch;
    if batch == 0 || args.epochs == 0 {
        return Err(invalid("--batch and --epochs are at least 1"));
    }
    args.common.request.only_fixed()?;
    if args.job.wanted() {
        return train_job::run(args, json);
    }
    let model = any_model(args.model()?, batch, args.seed)?;
    let rows = rows(args, &model)?;
    let steps = (rows.count() / batch) as u32;
    if steps == 0 {
        return Err(invalid("there are fewer rows than one batch has: choose a smaller --batch"));
    }
    let test = match (&args.test_inputs, &args.test_labels) {
        (Some(inputs), Some(labels)) => Some(load(&model, args.learning.loss, inputs, labels)?),
        _ => None,
    };
    let trail =
        if args.plain { clear(args, &model, &rows, steps)? } else { private(args, &model, &rows, steps)? };
    if let (Some(folder), Some(weights)) = (&args.weights, &trail.weights) {
        write_weights(folder, weights)?;
    }
    let right = match (&test, &trail.weights) {
        (Some(test), Some(weights)) => Some(accuracy(&with_weights(&model, weights), test)?),
        _ => None,
    };
    let dropped = rows.count() - steps as usize * batch;
    if json {
        let epochs: Vec<_> = trail
            .epochs
            .iter()
            .map(|(loss, s)| json!({ "loss": loss, "seconds": s, "steps": steps }))
            .collect();
        println!(
            "{}",
            json!({ "schema": "megrez.train/1", "model": args.model, "plain": args.plain,
            "protocol": if args.plain { None } else { Some(args.common.protocol()) },
            "insecure": args.common.insecure && !args.plain, "batch": batch, "rows": rows.count(),
            "dropped": dropped, "epochs": epochs, "accuracy": right,
            "cost": trail.last.map(|epoch| epoch.cost), "weights": args.weights })
        );
    } else {
        if dropped > 0 {
            println!("{dropped} rows fill no batch and are left out of each epoch");
        }
        right.inspect(|right| println!("accuracy {:.2} %", right * 100.0));
        if let Some(epoch) = &trail.last {
            println!("a step of {batch} rows cost");
            print!("{}", epoch.cost.table());
        }
        args.weights.iter().for_each(|folder| println!("weights written to {}", folder.display()));
    }
    Ok(ExitCode::SUCCESS)
}

impl Train {
    /// The model's name.
    pub(crate) fn model(&self) -> Result<&str> {
        self.model.as_deref().ok_or_else(|| Error::of(ErrorKind::Invalid, "a model is needed: --model"))
    }

    /// How it learns.
    pub(crate) fn how(&self) -> Result<How> {
        Ok(How {
            loss: self.learning.loss,
            trained: trained(self),
            optimiser: self.learning.optimiser()?,
            halve_every: self.halve_every,
        })
    }

    /// What a job says of its step.
    pub(crate) fn about(&self) -> String {
        let Learning { loss, batch, rate, momentum, weight_decay, optimiser } = &self.learning;
        let model = self.model.as_deref().unwrap_or_default();
        let only = if self.only.is_empty() { "all weights".into() } else { self.only.join(", ") };
        let halved = self.halve_every.map_or(String::new(), |every| format!(" halved every {every} epochs"));
        let decay = weight_decay.map_or(String::new(), |decay| format!(", weight decay {decay}"));
        let momentum = momentum.map_or(String::new(), |momentum| format!(", momentum {momentum}"));
        let rate = rate.value();
        format!("{model}, {loss:?}, batch {batch}, {optimiser}, rate {rate}{halved}{momentum}{decay}, {only}")
    }
}

/// Writes each of the weights as a file of its own.
pub(crate) fn write_weights(folder: &Path, weights: &[(String, Tensor)]) -> Result<()> {
    std::fs::create_dir_all(folder).map_err(|e| Error::file(folder, e))?;
    for (name, tensor) in weights {
        let keep = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '.' };
        let name: String = name.strip_prefix("w.").unwrap_or(name).chars().map(keep).collect();
        npy::save(&folder.join(format!("{name}.npy")), tensor)?;
    }
    Ok(())
}

/// The rows of the command line.
pub(crate) fn rows(args: &Train, model: &Graph) -> Result<Rows> {
    let (Some(inputs), Some(labels)) = (&args.inputs, &args.labels) else {
        return Err(Error::of(ErrorKind::Invalid, "rows are needed: --inputs and --labels"));
    };
    load(model, args.learning.loss, inputs, labels)
}

/// How large the numbers of a step get: on rows that the client has, or as it is taken to be without any.
pub(crate) fn rehearsal(
    args: &Train,
    step: &Step,
    rows: Option<&Rows>,
    options: &CompileOptions,
) -> Result<Rehearsal> {
    let Some(rows) = rows.filter(|_| args.rehearse > 0) else {
        if !(args.room.is_finite() && args.room >= 1.0) {
            return Err(Error::of(ErrorKind::Invalid, "--room is at least 1"));
        }
        return room(step, options.input_range, args.room);
    };
    let batches = rows.batches(step.batch, args.epochs, args.seed).take(args.rehearse);
    Ok(rehearse(step, batches)?.with_labels_of(rows))
}

fn load(model: &Graph, loss: Loss, inputs: &Path, labels: &Path) -> Result<Rows> {
    Rows::new(model, loss, npy::load(inputs)?, npy::load(labels)?)
}

fn trained(args: &Train) -> Trained {
    if args.only.is_empty() { Trained::All } else { Trained::Only(args.only.clone()) }
}

/// The step at each rate of the schedule.
fn stages(args: &Train, step: impl Fn(&How) -> Result<Step>) -> Result<Vec<Step>> {
    let how = args.how()?;
    let stages = how.stages(args.epochs)?.into_iter();
    stages.map(|(optimiser, _)| step(&How { optimiser, ..how.clone() })).collect()
}

/// Which of them an epoch takes, from 0.
fn stage(args: &Train, epoch: u32) -> usize {
    args.halve_every.map_or(0, |every| (epoch / every) as usize)
}

/// In the clear.
fn clear(args: &Train, model: &Graph, rows: &Rows, steps: u32) -> Result<Trail> {
    let learning = &args.learning;
    let steps_of = stages(args, |how| Ok(differentiate(model, how.loss, &how.trained, how.optimiser)?))?;
    let mut clear = Clear::new(&steps_of[0]);
    let mut epochs = vec![];
    for epoch in 0..args.epochs {
        clear.go_on(&steps_of[stage(args, epoch)]);
        let (start, order) = (Instant::now(), rows.order(args.seed, epoch));
        let mut sum = 0f64;
        for run in 0..steps {
            sum += f64::from(clear.step(rows.batch(&order, run, learning.batch))?.unwrap_or(f32::NAN));
        }
        let loss = (sum / f64::from(steps)) as f32;
        eprintln!("epoch {} of {}: loss {loss:.4}", epoch + 1, args.epochs);
        epochs.push((loss, start.elapsed().as_secs_f64()));
    }
    let weights = clear.state().into_iter().filter(|(name, _)| name.starts_with("w.")).collect();
    Ok(Trail { epochs, weights: args.weights.is_some().then_some(weights), last: None })
}

/// On shares.
fn private(args: &Train, model: &Graph, rows: &Rows, steps: u32) -> Result<Trail> {
    let (learning, request) = (&args.learning, &args.common.request);
    let steps_of = stages(args, |how| how.step(model))?;
    let step = &steps_of[0];
    let options = request.options()?;
    let rehearsal = rehearsal(args, step, Some(rows), &options)?;
    let mut backend = match args.place.connect()? {
        Some(cluster) => Backend::Remote(cluster),
        None => args.common.backend()?,
    };
    let mut training = Training::begin(&mut backend, step, &options, &rehearsal, args.common.run(1))?;
    let (mut epochs, mut last) = (vec![], None);
    for epoch in 0..args.epochs {
        if epoch > 0 && stage(args, epoch) > stage(args, epoch - 1) {
            training.go_on(&steps_of[stage(args, epoch)])?;
        }
        let (start, order) = (Instant::now(), rows.order(args.seed, epoch));
        let bar = progress::bar(steps, "private training");
        let batch = |run: u32| rows.batch(&order, run, learning.batch);
        let done = training.epoch(steps, &batch, &|run| {
            let _ = progress::tick(&bar, run);
        })?;
        bar.finish_and_clear();
        eprintln!("epoch {} of {}: loss {:.4}", epoch + 1, args.epochs, done.loss);
        epochs.push((done.loss, start.elapsed().as_secs_f64()));
        last = Some(done);
    }
    let seconds = last.as_ref().and_then(|epoch| epoch.cost.phases.get(&Phase::Online));
    seconds.inspect(|online| eprintln!("{:.3} s online a step", online.seconds.median));
    let weights = args.weights.is_some().then(|| training.weights()).transpose()?;
    Ok(Trail { epochs, weights, last })
}
