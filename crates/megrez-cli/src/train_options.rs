//! What is said of a training, and the rows and weights that it names.

use crate::cluster::Place;
use crate::options::Common;
use clap::Args;
use megrez::train::{
    Budget, Learning as How, Loss, Optimiser, Rate, Rehearsal, Rows, Step, Trained, Wanted, rehearse, room,
};
use megrez::{Error, ErrorKind, Result};
use megrez_graph::{CompileOptions, Graph, Tensor, npy};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

/// At most so many steps are rehearsed in the clear.
const REHEARSED: usize = 200;

/// How a model learns.
#[derive(Args)]
#[command(next_help_heading = "Learning")]
pub(crate) struct Learning {
    /// What is made small: cross-entropy (of softmax), binary-cross-entropy (of a sigmoid for each
    /// output), hinge (of each output against zero) or mse.
    #[arg(long, default_value = "cross-entropy")]
    pub(crate) loss: Loss,
    /// Rows of a step.
    #[arg(long, default_value_t = 32)]
    pub(crate) batch: usize,
    /// The learning rate, c*2^-k with c below 16: 2^-4, 3*2^-6, 0.125.
    #[arg(long, default_value = "2^-4")]
    pub(crate) rate: Rate,
    /// How weights follow their gradients: sgd, adam or amsgrad.
    #[arg(long, default_value = "sgd", value_name = "NAME")]
    pub(crate) optimiser: String,
    /// Momentum, from 0 to 255/256 [default: 0; of adam and amsgrad 230/256].
    #[arg(long)]
    pub(crate) momentum: Option<f64>,
    /// Weight decay, c*2^-k as rates are: a step takes rate times this of each weight away.
    #[arg(long, value_name = "RATE")]
    pub(crate) weight_decay: Option<Rate>,
}

impl Learning {
    pub(crate) fn optimiser(&self) -> Result<Optimiser> {
        Optimiser::named(&self.optimiser, self.rate, self.momentum, self.weight_decay)
            .map_err(|what| Error::of(ErrorKind::Invalid, what))
    }
}

/// What the weights may tell of a row.
#[derive(Args)]
#[command(next_help_heading = "Privacy of rows")]
pub(crate) struct Private {
    /// Train with differential privacy: noise, so that no weights are more than e^EPSILON times as
    /// likely with one row as with another in its place. Losses are not covered.
    #[arg(long)]
    pub(crate) epsilon: Option<f64>,
    /// But with this probability, well below one over the number of rows.
    #[arg(long, default_value_t = 1e-5, requires = "epsilon")]
    pub(crate) delta: f64,
    /// The norm to which the gradient of a row is scaled down.
    #[arg(long, value_name = "NORM", default_value_t = 1.0, requires = "epsilon")]
    pub(crate) clip: f32,
}

#[derive(Args)]
pub(crate) struct Train {
    /// The model with the weights that training begins with: an ONNX file, or a built-in network
    /// with random weights.
    #[arg(long, required_unless_present = "job")]
    pub(crate) model: Option<String>,
    /// The rows, .npy of [N, …]. With --data they are only rehearsed on.
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
    pub(crate) halve_every: Option<NonZeroU32>,
    /// Train only these weights, by their own or their layer's name [default: all].
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    pub(crate) only: Vec<String>,
    /// Train in the clear, in float32: what to expect.
    #[arg(long)]
    pub(crate) plain: bool,
    /// Reveal the weights to this client, and write each here as NAME.npy.
    #[arg(long, value_name = "FOLDER")]
    pub(crate) weights_to: Option<PathBuf>,
    /// Count how often the model is right on these rows: at the end, in the clear, with the weights
    /// that --weights-to reveals; in a job after every epoch, on shares, as --validation.
    #[arg(long, value_name = "FILE", requires = "test_labels")]
    pub(crate) test_inputs: Option<PathBuf>,
    /// The labels of --test-inputs.
    #[arg(long, value_name = "FILE", requires = "test_inputs")]
    pub(crate) test_labels: Option<PathBuf>,
    /// Seed of a built-in network's weights and of the order of rows, never of shares.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Rehearse at most so many steps in the clear, on the rows of the command line: the plan is
    /// laid out for what they show. 0 for none: numbers are then taken to stay within --room.
    #[arg(long, value_name = "STEPS", default_value_t = REHEARSED)]
    pub(crate) rehearse: usize,
    /// Without a rehearsal, no number is taken to be larger than this, or than four times what
    /// made-up rows give.
    #[arg(long, default_value_t = 64.0)]
    pub(crate) room: f64,
    #[command(flatten)]
    pub(crate) learning: Learning,
    #[command(flatten)]
    pub(crate) private: Private,
    #[command(flatten)]
    pub(crate) job: AsJob,
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(flatten)]
    pub(crate) place: Place,
}

impl Train {
    /// The model's name.
    pub(crate) fn model(&self) -> Result<&str> {
        self.model.as_deref().ok_or_else(|| Error::of(ErrorKind::Invalid, "a model is needed: --model"))
    }

    /// How it learns.
    fn trained(&self) -> Trained {
        if self.only.is_empty() { Trained::All } else { Trained::Only(self.only.clone()) }
    }

    /// What a row may tell, over all epochs.
    fn budget(&self) -> Option<Budget> {
        self.private.epsilon.map(|epsilon| Budget { epsilon, delta: self.private.delta })
    }

    /// The budget that the weights are held to. In the clear noise is a floating-point number,
    /// whose low bits hide nothing, and what does not protect the rows themselves protects none of
    /// them.
    fn kept(&self) -> Option<Budget> {
        self.budget().filter(|_| !self.plain && !self.common.insecure)
    }

    /// What the trained weights are held to, for programs.
    pub(crate) fn privacy(&self) -> Option<serde_json::Value> {
        let Budget { epsilon, delta } = self.kept()?;
        let noise = self.how().ok()?.privacy?.noise;
        Some(
            serde_json::json!({ "epsilon": epsilon, "delta": delta, "clip": self.private.clip, "noise": noise,
            "losses_covered": false }),
        )
    }

    /// The same for people.
    pub(crate) fn guarantee(&self) -> Option<String> {
        let Budget { epsilon, delta } = self.kept()?;
        Some(format!(
            "the weights have differential privacy: ε = {epsilon}, δ = {delta:.0e}, for one row in another's place; \
             the losses have none"
        ))
    }

    pub(crate) fn how(&self) -> Result<How> {
        let budget = self.budget();
        let privacy = budget.map(|budget| budget.privacy(self.private.clip, self.epochs)).transpose()?;
        Ok(How {
            privacy,
            loss: self.learning.loss,
            trained: self.trained(),
            optimiser: self.learning.optimiser()?,
            halve_every: self.halve_every,
            shards: NonZeroU32::MIN,
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
        let private = match self.budget() {
            Some(Budget { epsilon, delta }) => {
                format!(", (ε, δ) = ({epsilon}, {delta:.0e}) at clip {}", self.private.clip)
            }
            None => String::new(),
        };
        format!(
            "{model}, {loss:?}, batch {batch}, {optimiser}, rate {rate}{halved}{momentum}{decay}, {only}{private}"
        )
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

/// How large the numbers of a step get: on rows that the client has, or as it is taken to be
/// without any.
pub(crate) fn rehearsal(
    args: &Train,
    step: &Step,
    rows: Option<&Rows>,
    options: &CompileOptions,
) -> Result<Rehearsal> {
    // What rows have shown would stand in the plan, which no noise covers.
    let blind = args.rehearse == 0 || step.privacy.is_some();
    let Some(rows) = rows.filter(|_| !blind) else {
        if !(args.room.is_finite() && args.room >= 1.0) {
            return Err(Error::of(ErrorKind::Invalid, "--room is at least 1"));
        }
        return room(step, options.input_range, args.room);
    };
    let batches = rows.batches(step.batch, args.epochs, args.seed).take(args.rehearse);
    Ok(rehearse(step, batches)?.with_labels_of(rows))
}

pub(crate) fn load(model: &Graph, loss: Loss, inputs: &Path, labels: &Path) -> Result<Rows> {
    Rows::new(model, loss, npy::load(inputs)?, npy::load(labels)?)
}

/// What a job of the parties is besides how they learn.
#[derive(Args)]
#[command(next_help_heading = "As a job of the parties")]
pub(crate) struct Terms {
    /// Train on rows that are stored at the cluster, by name; A,B are the rows of both, A+B the
    /// columns of the same rows.
    #[arg(long, value_delimiter = ',', value_name = "NAME", requires = "cluster")]
    pub(crate) data: Vec<String>,
    /// Keep the weights in shares, as a stored model of this name.
    #[arg(long, value_name = "NAME", requires = "cluster")]
    pub(crate) keep: Option<String>,
    /// The clients who may run the kept model.
    #[arg(long, value_delimiter = ',', requires = "keep", value_name = "CLIENT")]
    pub(crate) allow: Vec<String>,
    /// The batch sizes in which the kept model may be run.
    #[arg(long, value_delimiter = ',', default_value = "1", value_name = "ROWS")]
    pub(crate) run_batch: Vec<usize>,
    /// Who learns the loss of each epoch: a client, or `nobody` [default: this client]. Who learns
    /// losses learns what is found on --validation; if nobody does, this client.
    #[arg(long, value_name = "CLIENT")]
    pub(crate) losses_to: Option<String>,
    /// After every epoch, count on these stored rows, as --data names them, how often the model is
    /// right, or take its loss where there are no classes. Nothing is learnt from them.
    #[arg(long, value_delimiter = ',', value_name = "NAME", requires = "cluster")]
    pub(crate) validation: Vec<String>,
    /// Write the job here, for the owners of the rows to approve, and do not begin it.
    #[arg(long, value_name = "FILE")]
    pub(crate) propose: Option<PathBuf>,
    /// Do not wait for the end: `megrez jobs` says how it stands.
    #[arg(long)]
    pub(crate) detach: bool,
}

impl Terms {
    /// What is wanted of a job on rows of these names, of which the second are only looked at;
    /// `silent` where nobody learns losses unless somebody is named.
    pub(crate) fn wanted(&self, me: &str, silent: bool, [data, validation]: [Vec<String>; 2]) -> Wanted {
        let losses_to = match self.losses_to.as_deref() {
            Some("nobody") => None,
            None if silent => None,
            named => Some(named.unwrap_or(me).to_owned()),
        };
        let metrics_to = losses_to.clone().unwrap_or_else(|| me.to_owned());
        Wanted {
            data,
            validation: (!validation.is_empty()).then_some((validation, metrics_to)),
            losses_to,
            keep: self.keep.clone(),
            allow: self.allow.clone(),
            ..Wanted::default()
        }
    }
}

/// Training by the parties alone.
#[derive(Args)]
#[command(next_help_heading = "As a job of the parties")]
pub(crate) struct AsJob {
    #[command(flatten)]
    pub(crate) terms: Terms,
    /// Begin with a stored model of this client that was trained before.
    #[arg(long, value_name = "NAME", requires = "cluster")]
    pub(crate) start: Option<String>,
    /// Go on whatever becomes of the weights. Otherwise the parties look after every epoch, in one
    /// bit, whether they are within bounds, and end the job if not.
    #[arg(long, requires = "cluster")]
    pub(crate) unguarded: bool,
    /// The rows of a step come in so many shards of one size: each replica of the parties deals
    /// with some at the same time, and their gradients are added up. Without replicas, with less
    /// memory.
    #[arg(long, default_value = "1", value_name = "COUNT", requires = "cluster")]
    pub(crate) shards: NonZeroU32,
    /// Begin this job, or go on with it.
    #[arg(long, value_name = "FILE", requires = "cluster")]
    pub(crate) job: Option<PathBuf>,
}

impl AsJob {
    /// Whether the parties are to train by themselves.
    pub(crate) fn wanted(&self) -> bool {
        let Terms { data, validation, keep, .. } = &self.terms;
        let stored = !data.is_empty() || !validation.is_empty() || keep.is_some();
        stored || self.job.is_some() || self.shards.get() > 1
    }
}
