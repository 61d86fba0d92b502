//! `megrez study`: what approximations do.

use crate::digits::{Digits, rows};
use crate::train_options::Learning;
use clap::{Args, Subcommand};
use megrez::request::default_frac;
use megrez::train::{Learning as How, Trained};
use megrez::{Error, ErrorKind, Result, npy};
use megrez_graph::{CompileOptions, Tensor};
use megrez_lab::study::forms::Form;
use megrez_lab::study::{Subject, meteor_msb, relu_bits, training, truncation};
use serde::Serialize;
use std::io::{IsTerminal, Write};
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::process::ExitCode;

/// What to study.
#[derive(Subcommand)]
pub(crate) enum Study {
    /// How often truncations err, and what it does to a model's accuracy.
    Truncation(Truncation),
    /// Accuracy and cost against the number of bits that ReLUs compare.
    ReluBits(ReluBits),
    /// What truncations, fraction bits and rings make of training, beside floating point.
    Training(Box<Training>),
    /// METEOR's most significant bit as printed: its errors, what it reveals, and why it cannot be
    /// prepared.
    MeteorMsb(MeteorMsb),
}

/// Models and data.
#[derive(Args)]
pub(crate) struct Subjects {
    /// The models, ONNX files [default: lenet.onnx and cnn.onnx of the folder].
    #[arg(long)]
    model: Vec<PathBuf>,
    /// The folder of the example.
    #[arg(long, default_value = "examples/digits")]
    folder: PathBuf,
    /// Inputs that the models were not trained on, a .npy file [default: test_images.npy of the
    /// folder].
    #[arg(long)]
    data: Option<PathBuf>,
    /// Their classes, a .npy file [default: test_labels.npy of the folder].
    #[arg(long)]
    labels: Option<PathBuf>,
    /// Inputs per model.
    #[arg(long, default_value_t = 100)]
    images: usize,
}

/// Arguments of the truncation study.
#[derive(Args)]
pub(crate) struct Truncation {
    #[command(flatten)]
    subjects: Subjects,
    /// Fraction bits.
    #[arg(long, value_delimiter = ',', default_values_t = [8, 10, 13, 16, 20, 23, 26, 28])]
    frac: Vec<u32>,
    /// Bits of the rings: 64, 32 or both.
    #[arg(long, value_delimiter = ',', default_values_t = [64, 32])]
    ring: Vec<u32>,
    /// The forms of truncation: secureml, aby3-printed, mizar-fig10, fixed-r, truncate-first,
    /// exact, floor.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "secureml,aby3-printed,mizar-fig10,fixed-r,truncate-first,exact"
    )]
    form: Vec<String>,
    /// Truncations per error rate.
    #[arg(long, default_value_t = 1 << 20)]
    samples: usize,
}

/// Arguments of the study of training.
#[derive(Args)]
pub(crate) struct Training {
    /// An ONNX file, with whose weights every training begins, or a built-in network.
    #[arg(long, default_value = "lenet")]
    model: String,
    /// The rows, .npy of [N, …] [default: the example's digits].
    #[arg(long, value_name = "FILE", requires = "labels")]
    inputs: Option<PathBuf>,
    /// Their labels, .npy of class numbers [N] or of rows [N, K].
    #[arg(long, value_name = "FILE", requires = "inputs")]
    labels: Option<PathBuf>,
    /// How many of the rows, the last ones, are held out: nothing is learnt from them.
    #[arg(long, value_name = "ROWS", default_value_t = 60)]
    held_out: usize,
    /// How often every row is learnt from.
    #[arg(long, default_value_t = 10)]
    epochs: u32,
    /// Halve the rate after every so many epochs.
    #[arg(long, value_name = "EPOCHS")]
    halve_every: Option<NonZeroU32>,
    /// A training of each kind for each of these: an order of rows, and of a built-in network
    /// random weights.
    #[arg(long, value_delimiter = ',', default_values_t = [1])]
    seeds: Vec<u64>,
    /// Fraction bits.
    #[arg(long, value_delimiter = ',', default_values_t = [16, 13, 10])]
    frac: Vec<u32>,
    /// Bits of the rings: 32, 40, 48, 64.
    #[arg(long, value_delimiter = ',', default_values_t = [64])]
    ring: Vec<u32>,
    /// The forms of truncation: exact, floor, secureml, aby3-printed, mizar-fig10, fixed-r.
    #[arg(long, value_delimiter = ',', default_value = "exact,floor,mizar-fig10")]
    rounding: Vec<String>,
    /// Rehearse so many steps in the clear: plans are laid out for what they show.
    #[arg(long, value_name = "STEPS", default_value_t = 200)]
    rehearse: usize,
    #[command(flatten)]
    learning: Learning,
    #[command(flatten)]
    digits: Digits,
}

impl Training {
    /// The rows that are learnt from, and those that are held out.
    fn rows(&self) -> Result<[[Tensor; 2]; 2]> {
        let (x, y) = match (&self.inputs, &self.labels) {
            (Some(inputs), Some(labels)) => (npy::load(inputs)?, npy::load(labels)?),
            _ => self.digits.rows()?,
        };
        let count = |all: &Tensor| all.shape.dims().first().copied().unwrap_or(0);
        let all = count(&x);
        if count(&y) != all || self.held_out == 0 || self.held_out >= all {
            let what =
                format!("{all} rows with {} labels, of which {} are held out", count(&y), self.held_out);
            return Err(Error::of(ErrorKind::Invalid, what));
        }
        let split = all - self.held_out;
        let parts = [(0, split), (split, all)];
        Ok(parts.map(|(from, to)| [&x, &y].map(|all| rows(all, from, to))))
    }

    fn options(&self) -> Result<training::Options> {
        let (loss, optimiser) = (self.learning.loss, self.learning.optimiser()?);
        let learning = How {
            loss,
            trained: Trained::All,
            optimiser,
            halve_every: self.halve_every,
            privacy: None,
            shards: NonZeroU32::MIN,
        };
        Ok(training::Options {
            model: self.model.clone(),
            learning,
            batch: self.learning.batch,
            epochs: self.epochs,
            seeds: self.seeds.clone(),
            forms: forms(&self.rounding)?,
            rings: self.ring.clone(),
            fracs: self.frac.clone(),
            rehearsed: self.rehearse,
            options: CompileOptions::default(),
        })
    }
}

/// Truncations by their names.
fn forms(names: &[String]) -> Result<Vec<Form>> {
    let form = |name: &String| {
        let known = || Form::ALL.map(Form::name).join(", ");
        Form::named(name)
            .ok_or_else(|| Error::Refused(format!("there is no truncation `{name}`; there are: {}", known())))
    };
    names.iter().map(form).collect()
}

/// Arguments of the study of bits.
#[derive(Args)]
pub(crate) struct ReluBits {
    #[command(flatten)]
    subjects: Subjects,
    /// The numbers of bits, sign included.
    #[arg(long, value_delimiter = ',', default_values_t = [5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 32, 64])]
    bits: Vec<u32>,
    /// Bits of the ring: 32 or 64.
    #[arg(long, default_value_t = 64)]
    ring: u32,
    /// Fraction bits of fixed point [default: 16 on the 64-bit ring, 10 on the 32-bit ring].
    #[arg(long)]
    frac: Option<u32>,
    /// Inputs, others than those compared, whose magnitudes choose what to cut.
    #[arg(long, default_value_t = 60)]
    calibrate: usize,
    /// Room for values larger than any of those.
    #[arg(long, default_value_t = 2.0)]
    margin: f64,
}

/// Arguments of the study of METEOR's most significant bit.
#[derive(Args)]
pub(crate) struct MeteorMsb {
    /// Bits of the rings: 4 to 16 each, since every mask is tried.
    #[arg(long, value_delimiter = ',', default_values_t = [8, 16])]
    ring: Vec<u32>,
    /// Values besides 0 and L/2, evenly spread, where a ring has more.
    #[arg(long, default_value_t = 32)]
    values: u64,
    /// Draws of masks whose products are counted.
    #[arg(long, default_value_t = 1000)]
    draws: usize,
}

impl Subjects {
    fn load(&self) -> Result<Vec<Subject>> {
        let in_folder = |path: &Option<PathBuf>, name: &str| path.clone().unwrap_or(self.folder.join(name));
        let (data, labels) =
            (in_folder(&self.data, "test_images.npy"), in_folder(&self.labels, "test_labels.npy"));
        let models = match self.model.is_empty() {
            true => vec![self.folder.join("lenet.onnx"), self.folder.join("cnn.onnx")],
            false => self.model.clone(),
        };
        models.iter().map(|model| Subject::load(model, &data, &labels)).collect()
    }
}

/// What is being done, on a terminal; nothing elsewhere.
fn progress(what: &str) {
    let mut err = std::io::stderr();
    if err.is_terminal() {
        // A progress line that cannot be written is no reason to stop.
        let _ = write!(err, "\r\x1b[K{what}");
        let _ = err.flush();
    }
}

pub(crate) fn run(study: &Study, json: bool) -> Result<ExitCode> {
    match study {
        Study::Truncation(args) => {
            let options = truncation::Options {
                rings: args.ring.clone(),
                fracs: args.frac.clone(),
                forms: forms(&args.form)?,
                images: args.subjects.images,
                samples: args.samples,
            };
            show(&truncation::study(&args.subjects.load()?, &options, &progress)?, truncation::table, json);
        }
        Study::Training(args) => {
            let (options, [learnt, held_out]) = (args.options()?, args.rows()?);
            show(&training::study(&options, learnt, held_out, &progress)?, training::table, json);
        }
        Study::MeteorMsb(args) => {
            let options =
                meteor_msb::Options { rings: args.ring.clone(), values: args.values, draws: args.draws };
            show(&meteor_msb::study(&options, &progress)?, meteor_msb::table, json);
        }
        Study::ReluBits(args) => {
            let options = relu_bits::Options {
                ring: args.ring,
                frac: args.frac.unwrap_or(default_frac(args.ring)),
                bits: args.bits.clone(),
                images: args.subjects.images,
                calibration: args.calibrate,
                margin: args.margin,
            };
            show(&relu_bits::study(&args.subjects.load()?, &options, &progress)?, relu_bits::table, json);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints what a study has found, as one object or as tables.
fn show<S: Serialize>(study: &S, table: impl Fn(&S) -> String, json: bool) {
    progress("");
    if json {
        println!("{}", serde_json::to_string(study).expect("a report has plain fields"));
    } else {
        print!("{}", table(study));
    }
}
