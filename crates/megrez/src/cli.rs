//! The command line: parses, calls the library, prints.

use clap::{Args, Parser, Subcommand, ValueEnum};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use megrez::bench::{self, BenchOptions, any_model};
use megrez::bench_float::{self, FloatBench};
use megrez::bench_kernel::{self, KernelBench};
use megrez::check;
use megrez::client::{Cluster, RunOptions};
use megrez::config::{ClusterConfig, PartyConfig};
use megrez::device::{AnyDevice, DeviceChoice, open_each};
use megrez::generate::{Generation, LanguageModel, largest};
use megrez::infer::{Backend, Model};
use megrez::inference::Inference;
use megrez::inputs::{ModelFile, Names};
use megrez::party::{Policy, Service};
use megrez::proximity::{self, Proximity};
use megrez::report::Cost;
use megrez::secfloat::{self, FloatModel, ModelBench, Numbers, TrainBench, Work};
use megrez::wire::Source;
use megrez::{Error, Result, embedded, inference, masks, memory, study, tables};
use megrez_graph::onnx::{self, Dim, ImportOptions};
use megrez_graph::{
    Activations, Comparison, CompileOptions, Graph, Interval, PoolForm, RangePolicy, Tensor, npy,
};
use megrez_kernels::Device;
use megrez_net::{Config, Endpoint, Identity, NetProfile, PeerName, certs};
use megrez_plan::{MAX_THREADS, ReluForm, SignBit};
use megrez_protocols::registry;
use megrez_session::Phase;
use serde_json::json;
use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// As std's, but a reader that has gone (`megrez … | head`) is no reason to panic.
macro_rules! print {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        let _ = write!(std::io::stdout(), $($text)*);
    }};
}

/// As [`print`], with an end of line.
macro_rules! println {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stdout(), $($text)*);
    }};
}

/// As [`println`], to standard error.
macro_rules! eprintln {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($text)*);
    }};
}

/// Runs machine-learning models on data that nobody in the computation may see.
#[derive(Parser)]
#[command(name = "megrez", version)]
struct Cli {
    /// Print one JSON object instead of text.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Handwritten digits under a private LeNet: three processes on this machine.
    Demo(Demo),
    /// Run a model on data: here, or on a cluster.
    Infer(Infer),
    /// Continue a text with a language model, letter by letter: here, or on a cluster.
    Generate(Generate),
    /// Run a model on shares and in the clear, and compare every layer.
    Check(Check),
    /// Measure how large a model's values get on data, for --calibration.
    Calibrate(Calibrate),
    /// Measure an operation or a model.
    #[command(subcommand)]
    Bench(Bench),
    /// Measure what approximations do to accuracy and cost, in this process: no party runs them.
    #[command(subcommand)]
    Study(study::args::Study),
    /// Run an example.
    #[command(subcommand)]
    Example(Example),
    /// Measure the accuracy of floating point.
    #[command(subcommand)]
    Float(crate::float::Float),
    /// List the protocols, their operations and cost formulas.
    Protocols,
    /// One of two parties with one job; takes everything from standard input.
    #[command(hide = true)]
    PairParty,
    /// Make the certificates of a deployment.
    Certs(Certs),
    /// Run a party as a service.
    Party(PartyArgs),
    /// Keep a model's weights at a cluster, in shares.
    UploadModel(UploadModel),
    /// Make correlated randomness ahead at a cluster.
    Offline(Offline),
    /// Look for what is wrong with a deployment.
    Doctor(Doctor),
}

#[derive(Clone, Copy, ValueEnum)]
enum PartiesKind {
    /// Real processes over TLS.
    Process,
    /// Threads of this process over memory.
    Thread,
}

#[derive(Clone, Copy, ValueEnum)]
enum RangeArg {
    /// Refuse a model whose ranges cannot be proven.
    Prove,
    /// Run it anyway; reports say so.
    Assume,
}

#[derive(Clone, Copy, ValueEnum)]
enum ActivationsArg {
    /// Splines of four segments, fitted for the least error.
    Minimax,
    /// Splines of higher degree: a tenth of the error, two more rounds; on the 64-bit ring.
    Fine,
    /// Sigmoid and GELU as printed there, the others as ever.
    Mizar,
}

impl From<ActivationsArg> for Activations {
    fn from(argument: ActivationsArg) -> Self {
        match argument {
            ActivationsArg::Minimax => Activations::Minimax,
            ActivationsArg::Fine => Activations::Fine,
            ActivationsArg::Mizar => Activations::Mizar,
        }
    }
}

/// Options of everything that runs a plan.
#[derive(Args, Clone)]
struct Common {
    /// The protocol; `megrez protocols` lists them.
    #[arg(long, default_value = "mizar")]
    protocol: String,
    /// What is computed with: fixed, or float32 [default: what the protocol computes with].
    #[arg(long, value_enum)]
    numbers: Option<NumbersArg>,
    /// Bits of the ring: 32 or 64.
    #[arg(long, default_value_t = 64)]
    ring: u32,
    /// Fraction bits of fixed point [default: 16 on the 64-bit ring, 10 on the 32-bit ring].
    #[arg(long)]
    frac: Option<u32>,
    /// The network between the parties: loopback, lan, wan, or RTT,RATE such as 20ms,500mbps.
    #[arg(long, default_value = "loopback")]
    net: NetProfile,
    /// What a party is on this machine.
    #[arg(long, value_enum, default_value = "process")]
    parties: PartiesKind,
    /// Where parties on this machine compute: auto, cpu or cuda:N, one for all or one for each (cpu,cuda:0,cuda:0).
    #[arg(long, value_delimiter = ',', default_value = "auto")]
    device: Vec<DeviceChoice>,
    /// The list of the sign bit: bits or digits [default: digits for models, bits for single operations].
    #[arg(long)]
    list: Option<String>,
    /// Digit widths, most significant first [default: the best known for the number of bits].
    #[arg(long, value_delimiter = ',')]
    widths: Option<Vec<u32>>,
    /// Bits that a comparison looks at, sign included [default: all].
    #[arg(long)]
    bits: Option<u32>,
    /// Low bits that a comparison ignores.
    #[arg(long, default_value_t = 0)]
    cut: u32,
    /// The form of ReLU: 3r, 2r, 2r-fresh, table, or for models auto: what is fastest on the network.
    #[arg(long, default_value = "3r")]
    form: String,
    /// How pools find a maximum: tournament or all-pairs [default: tournament; what is fastest with --form auto, or under aby3, alkaid and meteor].
    #[arg(long)]
    pool: Option<String>,
    /// Under aby3 and alkaid: have ReLUs and maxima computed by MIZAR's steps, with party 2 as dealer, up to the size where that is
    /// faster on the network. The form is then that of these steps.
    #[arg(long)]
    mix: bool,
    /// What stands for smooth activations: minimax splines, or MIZAR's Appendix B to compare with.
    #[arg(long, value_enum, default_value = "minimax")]
    activations: ActivationsArg,
    /// Bits of a group of secfloat's transfer extension, 1, 2, 4 or 8: more is fewer bytes and more work.
    #[arg(long, default_value_t = 4)]
    group: u32,
    /// Threads of each party of secfloat [default: half of this machine's cores].
    #[arg(long)]
    threads: Option<u32>,
    /// Allow a protocol that does not protect the data.
    #[arg(long)]
    insecure: bool,
}

/// Options of everything that compiles a model.
#[derive(Args, Clone)]
struct ModelArgs {
    /// The bound of the data's magnitude: every input element must lie in [−B, B].
    #[arg(long, default_value_t = 1.0)]
    input_range: f64,
    /// What to do if a layer's range cannot be proven to fit the ring.
    #[arg(long, value_enum, default_value = "prove")]
    range: RangeArg,
    /// Compare only as many bits as each layer's proven range needs. The plan then shows the parties how large each
    /// layer's values may get, to a factor of two.
    #[arg(long)]
    fit: bool,
    /// As --fit, with magnitudes measured by `megrez calibrate`.
    #[arg(long)]
    calibration: Option<PathBuf>,
}

#[derive(Args)]
struct Demo {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    model_args: ModelArgs,
    /// The folder of the example.
    #[arg(long, default_value = "examples/digits")]
    folder: PathBuf,
    /// Images per run.
    #[arg(long, default_value_t = 60)]
    batch: usize,
    /// Use the first N images only.
    #[arg(long)]
    images: Option<usize>,
    /// Print the cost of every layer.
    #[arg(long)]
    layers: bool,
}

#[derive(Args)]
struct Infer {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    model_args: ModelArgs,
    /// The model, an ONNX file; with a cluster, the name of a stored model may be given by --model-name instead.
    #[arg(long, required_unless_present = "model_name")]
    model: Option<PathBuf>,
    /// The name of a model that is stored at the cluster.
    #[arg(long, requires = "cluster", conflicts_with = "model")]
    model_name: Option<String>,
    /// The data of an input, NAME=FILE.npy, for each of the model's; FILE.npy for a model of one.
    #[arg(long, required = true, value_name = "[NAME=]FILE")]
    input: Vec<String>,
    /// The whole shape of an input, NAME=1,3,224,224, where the model leaves it open and the data is not to say it.
    #[arg(long, value_name = "[NAME=]SHAPE", conflicts_with = "model_name")]
    shape: Vec<String>,
    /// Write an output here, as .npy, instead of showing it: NAME=FILE.npy; FILE.npy for a model of one.
    #[arg(long, value_name = "[NAME=]FILE")]
    output: Vec<String>,
    /// How many of the inputs go together in a run [default: all of them, or as many as the model is made for].
    #[arg(long)]
    batch: Option<usize>,
    /// The cluster's file; without it, parties are started on this machine.
    #[arg(long)]
    cluster: Option<PathBuf>,
    /// The folder with this client's certificate (cluster only).
    #[arg(long, default_value = "certs")]
    certs: PathBuf,
    /// This client's name (cluster only).
    #[arg(long, default_value = "alice")]
    client: String,
    /// Material made ahead by `megrez offline`, for the first run (cluster only).
    #[arg(long)]
    material: Option<String>,
    /// Print the cost of every layer.
    #[arg(long)]
    layers: bool,
}

#[derive(Args)]
struct Generate {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    model_args: ModelArgs,
    /// The language model, an ONNX file: see examples/language.
    #[arg(long)]
    model: PathBuf,
    /// The letter of every token, in order.
    #[arg(long)]
    letters: PathBuf,
    /// The text to continue.
    #[arg(long)]
    prompt: String,
    /// How many letters to add.
    #[arg(long, default_value_t = 40)]
    tokens: usize,
    /// The cluster's file; without it, parties are started on this machine.
    #[arg(long)]
    cluster: Option<PathBuf>,
    /// The folder with this client's certificate (cluster only).
    #[arg(long, default_value = "certs")]
    certs: PathBuf,
    /// This client's name (cluster only).
    #[arg(long, default_value = "alice")]
    client: String,
}

#[derive(Args)]
struct Check {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    model_args: ModelArgs,
    /// Instead of running anything: have a machine show that every message of this model's plan is masked, or name the one that is
    /// not. An ONNX file, or a built-in network.
    #[arg(long, value_name = "MODEL", conflicts_with_all = ["model", "input"])]
    masks: Option<String>,
    /// The model, an ONNX file.
    #[arg(long, required_unless_present = "masks")]
    model: Option<PathBuf>,
    /// The data of an input, NAME=FILE.npy, for each of the model's; FILE.npy for a model of one. One batch of it is used.
    #[arg(long, required_unless_present = "masks", value_name = "[NAME=]FILE")]
    input: Vec<String>,
    /// The whole shape of an input, NAME=1,3,224,224, where the model leaves it open and the data is not to say it.
    #[arg(long, value_name = "[NAME=]SHAPE")]
    shape: Vec<String>,
    /// How many inputs to check [default: 8, or as many as the model is made for].
    #[arg(long)]
    batch: Option<usize>,
}

#[derive(Args)]
struct Calibrate {
    /// The model: an ONNX file, or a built-in network with random weights.
    #[arg(long)]
    model: String,
    /// Data like that of later runs, NAME=FILE.npy for each input; FILE.npy for a model of one; random images for a built-in network.
    #[arg(long, value_name = "[NAME=]FILE")]
    data: Vec<String>,
    /// The whole shape of an input, NAME=1,3,224,224, where the model leaves it open and the data is not to say it.
    #[arg(long, value_name = "[NAME=]SHAPE")]
    shape: Vec<String>,
    /// Seed of a built-in network's weights and data.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where to write the calibration.
    #[arg(long)]
    output: PathBuf,
    /// Room for values larger than any in the data.
    #[arg(long, default_value_t = 2.0)]
    margin: f64,
    /// Inputs at a time.
    #[arg(long, default_value_t = 16)]
    batch: usize,
}

#[derive(Subcommand)]
enum Bench {
    /// An operation on many elements.
    Op(BenchOp),
    /// A whole model on random data.
    Model(BenchModel),
    /// A table of a paper, with the figures measured here beside the printed ones.
    Table(BenchTable),
    /// The peak memory of each party on a GPU for a model, without running it: needs no GPU.
    Memory(BenchModel),
}

#[derive(Args)]
struct BenchOp {
    /// The operation.
    op: String,
    #[command(flatten)]
    common: Common,
    /// How many elements.
    #[arg(long, default_value_t = 1 << 17)]
    batch: usize,
    /// How many runs.
    #[arg(long, default_value_t = 3)]
    repeat: u32,
    /// Fraction bits that ReLU drops in the same step.
    #[arg(long, default_value_t = 0)]
    truncate: u32,
    /// m,k,n of a matrix product; m,k: rows and columns of softmax and layernorm.
    #[arg(long, value_delimiter = ',', default_values_t = [128, 500, 100])]
    shape: Vec<usize>,
    /// Elements that secfloat takes at a time: more take more memory, fewer more rounds.
    #[arg(long, default_value_t = 1 << 17)]
    lanes: usize,
    /// Seed of the test data, never of shares.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Args)]
struct BenchModel {
    /// The model: lenet, alexnet-cifar, vgg16-cifar, net-a, net-b, net-c, relevance, …, or an ONNX file.
    model: String,
    /// Measure a step of training instead: forward, backward and update, in floating point.
    #[arg(long)]
    train: bool,
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    model_args: ModelArgs,
    /// Inputs per run.
    #[arg(long, default_value_t = 1)]
    batch: usize,
    /// How many runs.
    #[arg(long, default_value_t = 5)]
    repeat: u32,
    /// Seed of weights and data, never of shares.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Subcommand)]
enum Example {
    /// Whether points on Earth are near each other, in floating point between two processes that do not tell theirs.
    Proximity(Proximity),
    /// A network whose numbers spread too far for fixed point, there and in floating point.
    Relevance(Relevance),
}

#[derive(Args)]
struct Relevance {
    /// How many users' features.
    #[arg(long, default_value_t = 1)]
    users: usize,
    /// Seed of weights and features, never of shares.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Bits of a group of the transfer extension, 1, 2, 4 or 8.
    #[arg(long, default_value_t = 4)]
    group: u32,
}

#[derive(Args)]
struct BenchTable {
    /// The table.
    #[arg(value_parser = clap::builder::PossibleValuesParser::new(tables::TABLES.iter().map(|t| t.name)))]
    name: String,
    /// One run of every row instead of three.
    #[arg(long)]
    quick: bool,
    /// Only rows whose name or system contains this, large ones too.
    #[arg(long)]
    only: Option<String>,
    /// Rows that take minutes or gigabytes, too.
    #[arg(long)]
    large: bool,
    /// Networks instead of the paper's: loopback, lan, wan, or RTT,RATE; may be given again.
    #[arg(long)]
    net: Vec<NetProfile>,
    /// What a party is on this machine.
    #[arg(long, value_enum, default_value = "process")]
    parties: PartiesKind,
    /// Where parties compute: auto, cpu or cuda:N, one for all or one for each.
    #[arg(long, value_delimiter = ',', default_value = "auto")]
    device: Vec<DeviceChoice>,
    /// Seed of weights and data, never of shares.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Args)]
struct Certs {
    /// The folder to write to.
    #[arg(long, default_value = "certs")]
    folder: PathBuf,
    /// How many parties.
    #[arg(long, default_value_t = 3)]
    parties: usize,
    /// Names of clients.
    #[arg(long, value_delimiter = ',', default_value = "alice")]
    clients: Vec<String>,
    /// Days until the certificates expire.
    #[arg(long, default_value_t = 365)]
    days: u32,
    /// Add one client to an existing folder instead.
    #[arg(long, conflicts_with_all = ["parties", "clients"])]
    add_client: Option<String>,
}

#[derive(Args)]
struct PartyArgs {
    /// The party's configuration file.
    #[arg(long, required_unless_present = "embedded")]
    config: Option<PathBuf>,
    /// Where to compute, whatever the file says: auto, cpu or cuda:N.
    #[arg(long)]
    device: Option<DeviceChoice>,
    /// Take everything from standard input; how `megrez` starts its own parties.
    #[arg(long, hide = true)]
    embedded: bool,
}

#[derive(Args)]
struct UploadModel {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    model_args: ModelArgs,
    /// The model, an ONNX file.
    #[arg(long)]
    model: PathBuf,
    /// The name to keep it under.
    #[arg(long)]
    name: String,
    /// The batch sizes that may be run.
    #[arg(long, value_delimiter = ',', default_value = "1")]
    batch: Vec<usize>,
    /// The whole shape of an input, NAME=1,3,224,224, where the model leaves more open than the batch.
    #[arg(long, value_name = "[NAME=]SHAPE")]
    shape: Vec<String>,
    /// The clients who may run it.
    #[arg(long, value_delimiter = ',')]
    allow: Vec<String>,
    /// The cluster's file.
    #[arg(long)]
    cluster: PathBuf,
    /// The folder with this client's certificate.
    #[arg(long, default_value = "certs")]
    certs: PathBuf,
    /// This client's name.
    #[arg(long, default_value = "bob")]
    client: String,
}

#[derive(Args)]
struct Offline {
    /// The stored model.
    #[arg(long)]
    model_name: String,
    /// The batch size.
    #[arg(long, default_value_t = 1)]
    batch: usize,
    /// The cluster's file.
    #[arg(long)]
    cluster: PathBuf,
    /// The folder with this client's certificate.
    #[arg(long, default_value = "certs")]
    certs: PathBuf,
    /// This client's name.
    #[arg(long, default_value = "alice")]
    client: String,
}

#[derive(Args)]
struct Doctor {
    /// The cluster's file; without it, this machine is examined.
    #[arg(long)]
    cluster: Option<PathBuf>,
    /// The folder with certificates.
    #[arg(long, default_value = "certs")]
    certs: PathBuf,
    /// Act as this client.
    #[arg(long, default_value = "alice")]
    client: String,
}

/// Parses the arguments, runs, and turns an error into a message and an exit code.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    megrez::heap::keep();
    let cli = Cli::parse_from(arguments);
    let json = cli.json;
    match run(cli) {
        Ok(code) => code,
        Err(e) => {
            if json {
                println!("{}", json!({ "schema": "megrez.error/1", "error": e.to_string() }));
            }
            eprintln!("megrez: {e}");
            ExitCode::from(2)
        }
    }
}

fn run(cli: Cli) -> Result<ExitCode> {
    match cli.command {
        Command::Demo(args) => demo(&args, cli.json),
        Command::Infer(args) => infer(&args, cli.json),
        Command::Check(args) => run_check(&args, cli.json),
        Command::Calibrate(args) => run_calibrate(&args, cli.json),
        Command::Bench(Bench::Op(args)) => bench_op(&args),
        Command::Generate(args) => run_generate(&args, cli.json),
        Command::Bench(Bench::Model(args)) => bench_model(&args),
        Command::Bench(Bench::Table(args)) => bench_table(&args, cli.json),
        Command::Bench(Bench::Memory(args)) => bench_memory(&args),
        Command::Example(Example::Proximity(args)) => {
            let report = proximity::run(&args, true)?;
            print!("{}", if cli.json { format!("{report}\n") } else { proximity::text(&report) });
            Ok(if report["verified"] == true { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        Command::Example(Example::Relevance(args)) => {
            let report =
                secfloat::relevance(args.users, args.seed, Work { group: args.group, ..Work::default() })?;
            print!("{}", if cli.json { format!("{report}\n") } else { secfloat::relevance_text(&report) });
            Ok(ExitCode::SUCCESS)
        }
        Command::PairParty => megrez::pair::serve().map(|()| ExitCode::SUCCESS),
        Command::Study(args) => {
            print!("{}", study::args::run(&args, cli.json)?);
            Ok(ExitCode::SUCCESS)
        }
        Command::Float(args) => {
            print!("{}", crate::float::run(&args, cli.json)?);
            Ok(ExitCode::SUCCESS)
        }
        Command::Protocols => protocols(cli.json),
        Command::Certs(args) => make_certs(&args, cli.json),
        Command::Party(args) => party(&args, cli.json),
        Command::UploadModel(args) => upload(&args, cli.json),
        Command::Offline(args) => offline(&args, cli.json),
        Command::Doctor(args) => doctor(&args, cli.json),
    }
}

#[derive(Clone, Copy, ValueEnum)]
enum NumbersArg {
    /// Fixed point on a ring.
    Fixed,
    /// IEEE single precision, correctly rounded.
    Float32,
}

impl Common {
    /// Whether to compute in floating point; refuses what does not go together.
    fn float(&self) -> Result<bool> {
        let numbers = self.numbers.map(|numbers| match numbers {
            NumbersArg::Fixed => Numbers::Fixed,
            NumbersArg::Float32 => Numbers::Float32,
        });
        let float = secfloat::is_float(&self.protocol, numbers)?;
        if float && (self.ring != 64 || self.frac.is_some()) {
            return Err(Error::Refused(
                "floating point has no ring and no fraction bits: leave out --ring and --frac".into(),
            ));
        }
        if ![1, 2, 4, 8].contains(&self.group) {
            return Err(Error::Refused("--group is 1, 2, 4 or 8".into()));
        }
        if self.threads.is_some_and(|n| !(1..=MAX_THREADS).contains(&n)) {
            return Err(Error::Refused(format!("--threads is 1 to {MAX_THREADS}")));
        }
        Ok(float)
    }

    /// How parties of secfloat work.
    fn work(&self) -> Work {
        let Work { threads, .. } = Work::default();
        Work { group: self.group, threads: self.threads.unwrap_or(threads) }
    }

    fn frac(&self) -> u32 {
        self.frac.unwrap_or(inference::default_frac(self.ring))
    }

    /// The comparison of a single operation.
    fn sign(&self, default: &str) -> Result<SignBit> {
        let list = self.list.as_deref().unwrap_or(default);
        inference::sign_bit(self.ring, list, self.widths.as_deref(), self.bits, self.cut)
    }

    /// The comparisons of a model.
    fn comparison(&self, model: &ModelArgs) -> Result<Comparison> {
        if !model.fit && model.calibration.is_none() {
            return Ok(Comparison::Fixed(self.sign("digits")?));
        }
        if self.cut > 0 || self.widths.is_some() {
            return Err(Error::Refused("fitted comparisons choose --cut and --widths themselves".into()));
        }
        let calibration = model.calibration.as_deref().map(inference::read_calibration).transpose()?;
        inference::fitted(
            self.list.as_deref().unwrap_or("digits"),
            self.bits,
            calibration,
            !self.net.is_unshaped(),
        )
    }

    fn form(&self) -> Result<ReluForm> {
        inference::relu_form(&self.form)
    }

    fn pool(&self) -> Result<Option<PoolForm>> {
        self.pool.as_deref().map(inference::pool_form).transpose()
    }

    /// Compiles a model, with the forms that are fastest on the network if the caller leaves them open.
    fn model(&self, graph: &Graph, client: &str, model: &ModelArgs) -> Result<Model> {
        if self.mix {
            let form = if self.form == "auto" { None } else { Some(self.form()?) };
            let fixed = Common { form: "3r".into(), ..self.clone() }.compile(model)?;
            let choice = (self.pool()?, form);
            let options = inference::fastest_mix(graph, client, &fixed, choice, &self.protocol, &self.net)?;
            return Model::new(graph, client, &options);
        }
        if self.form != "auto" {
            let mut options = self.compile(model)?;
            if self.pool.is_none() {
                options.pool = inference::fastest_pool(graph, client, &options, &self.protocol, &self.net)?;
            }
            return Model::new(graph, client, &options);
        }
        let fixed = Common { form: "3r".into(), ..self.clone() }.compile(model)?;
        Ok(inference::fastest(graph, client, &fixed, self.pool()?, &self.protocol, &self.net)?.0)
    }

    fn run(&self, runs: u32) -> RunOptions {
        RunOptions {
            protocol: self.protocol.clone(),
            runs,
            net: self.net.clone(),
            material: None,
            insecure: self.insecure,
        }
    }

    fn compile(&self, model: &ModelArgs) -> Result<CompileOptions> {
        if self.float()? {
            return Err(Error::Refused(format!(
                "`{}` computes in float32, which this command does not: choose another protocol, such as --protocol mizar",
                self.protocol
            )));
        }
        Ok(CompileOptions {
            ring: self.ring,
            frac: self.frac(),
            input_range: Interval::abs(model.input_range),
            policy: match model.range {
                RangeArg::Prove => RangePolicy::Prove,
                RangeArg::Assume => RangePolicy::Assume,
            },
            comparison: self.comparison(model)?,
            relu: self.form()?,
            pool: self.pool()?.unwrap_or(PoolForm::Tournament),
            sums: crate::infer::find(&self.protocol)?.sums,
            activations: self.activations.into(),
            ..CompileOptions::default()
        })
    }

    fn backend(&self) -> Result<Backend> {
        match self.parties {
            PartiesKind::Thread => {
                Ok(Backend::Threads(open_each(&self.device, crate::infer::find(&self.protocol)?.parties)?))
            }
            PartiesKind::Process => {
                Backend::processes(embedded::Program::current()?, &self.protocol, &self.device)
            }
        }
    }

    fn parties_name(&self) -> &'static str {
        match self.parties {
            PartiesKind::Process => "process",
            PartiesKind::Thread => "thread",
        }
    }
}

fn load_npy(path: &Path) -> Result<Tensor> {
    npy::load(path).map_err(|e| Error::Refused(e.to_string()))
}

fn load_model(path: &Path, batch: usize) -> Result<Graph> {
    Ok(onnx::read_file(path, &ImportOptions { batch, ..ImportOptions::default() })?)
}

/// A progress bar on a terminal, nothing elsewhere.
fn progress(runs: u32, what: &str) -> ProgressBar {
    let target = if std::io::stderr().is_terminal() && runs > 1 {
        ProgressDrawTarget::stderr()
    } else {
        ProgressDrawTarget::hidden()
    };
    let style =
        ProgressStyle::with_template("{msg} {bar:30} {pos}/{len} {elapsed}").expect("a fixed template");
    ProgressBar::with_draw_target(Some(u64::from(runs)), target)
        .with_style(style)
        .with_message(what.to_owned())
}

fn argmax(row: &[f32]) -> usize {
    (0..row.len()).fold(0, |best, i| if row[i] > row[best] { i } else { best })
}

fn demo(args: &Demo, json: bool) -> Result<ExitCode> {
    let images = load_npy(&args.folder.join("test_images.npy"))?;
    let labels = load_npy(&args.folder.join("test_labels.npy"))?;
    let graph = load_model(&args.folder.join("lenet.onnx"), args.batch)?;
    let n = args.images.unwrap_or(labels.data.len()).min(labels.data.len());
    if n == 0 || args.batch == 0 {
        return Err(Error::Refused("the demo needs at least one image per run".into()));
    }
    let runs = n.div_ceil(args.batch) as u32;
    let mut backend = args.common.backend()?;
    let model_args = ModelArgs { range: RangeArg::Prove, ..args.model_args.clone() };
    let model = args.common.model(&graph, backend.client(), &model_args)?;
    if !json {
        println!(
            "LeNet on {n} handwritten digits, {} per run, under {} on the ring Z_2^{}; network: {}",
            args.batch, args.common.protocol, args.common.ring, args.common.net
        );
    }
    let bar = progress(runs, "private inference");
    let data = [first_rows(&images, n)];
    let private = inference::infer(&mut backend, &model, &data, &args.common.run(1), &|run| tick(&bar, run))?;
    bar.finish_and_clear();
    let plain = inference::infer_plain(&model.compiled.graph, &model, &data)?;
    let ((_, private_logits), (_, plain_logits)) = (&private.outputs[0], &plain[0]);

    let (mut agree, mut right_private, mut right_plain, mut max_error) = (0, 0, 0, 0f64);
    let mut rows = Vec::new();
    let classes = private_logits.data.len() / n;
    let pairs = private_logits.data.chunks(classes).zip(plain_logits.data.chunks(classes));
    for (image, (private, plain)) in pairs.enumerate() {
        let error = private.iter().zip(plain).map(|(a, b)| f64::from((a - b).abs())).fold(0.0, f64::max);
        max_error = max_error.max(error);
        let label = labels.data[image] as usize;
        let (a, b) = (argmax(private), argmax(plain));
        agree += usize::from(a == b);
        right_private += usize::from(a == label);
        right_plain += usize::from(b == label);
        rows.push((image, label, a, b));
    }
    let cost = &private.cost;
    let share = |right: usize| right as f64 / n as f64;
    if json {
        println!(
            "{}",
            json!({
                "schema": "megrez.demo/1",
                "images": n,
                "agree": agree,
                "accuracy_private": share(right_private),
                "accuracy_plain": share(right_plain),
                "max_abs_error": max_error,
                "protocol": args.common.protocol,
                "insecure": args.common.insecure,
                "batch": args.batch,
                "cost": cost,
            })
        );
    } else {
        println!("image  label  private  plaintext");
        for (image, label, private, plain) in &rows {
            let mark = if private == plain { "" } else { "   <- differ" };
            println!("{image:>5}  {label:>5}  {private:>7}  {plain:>9}{mark}");
        }
        println!(
            "\nagreement {agree}/{n}; accuracy private {:.2}%, plaintext {:.2}%; largest error of a logit {max_error:.2e}",
            100.0 * share(right_private),
            100.0 * share(right_plain)
        );
        println!("\ncost of one run of {} images on {}", args.batch, cost.device.join(" | "));
        print!("{}", cost.table());
        if args.layers {
            print!("\n{}", cost.layer_table());
        }
    }
    Ok(if agree == n { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn identity(certs: &Path, client: &str) -> Result<Identity> {
    Ok(Identity::load(certs, &PeerName::client(client)?)?)
}

fn connect(cluster: &Path, certs: &Path, client: &str) -> Result<Cluster> {
    let config = ClusterConfig::load(cluster)?;
    Cluster::connect(&config.parties, &identity(certs, client)?, Duration::from_secs(10))
}

fn hex16(text: &str) -> Result<[u8; 16]> {
    let wrong = || Error::Refused(format!("`{text}` is no name of material: 32 hexadecimal digits"));
    let mut out = [0; 16];
    if text.len() != 32 || !text.is_ascii() {
        return Err(wrong());
    }
    for (byte, digits) in out.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        let digits = std::str::from_utf8(digits).map_err(|_| wrong())?;
        *byte = u8::from_str_radix(digits, 16).map_err(|_| wrong())?;
    }
    Ok(out)
}

/// Shows that a run begins.
fn tick(bar: &ProgressBar, run: u32) -> Result<()> {
    bar.set_position(run.into());
    Ok(())
}

/// The first `n` rows of an array.
fn first_rows(data: &Tensor, n: usize) -> Tensor {
    let mut dims = data.shape.dims().to_vec();
    let row: usize = dims[1..].iter().product();
    dims[0] = n.min(dims[0]);
    Tensor::new(dims.clone(), data.data[..dims[0] * row].to_vec())
}

/// How many rows data has, if it has any.
fn rows(data: &[Tensor]) -> usize {
    data.first().and_then(|d| d.shape.dims().first().copied()).unwrap_or(1)
}

/// What came out, and where each output is to be written.
type Inferred = (Inference, Vec<Option<PathBuf>>);

fn no_material(args: &Infer) -> Result<()> {
    match args.material {
        Some(_) => Err(Error::Refused("floating point has no offline phase: leave out --material".into())),
        None => Ok(()),
    }
}

/// A model that is stored at a cluster.
fn infer_stored(args: &Infer, model: &str, cluster: &Path) -> Result<Inferred> {
    let mut cluster = connect(cluster, &args.certs, &args.client)?;
    let size = match (args.batch, &args.input[..]) {
        (Some(size), _) => size,
        // The approved batch sizes are the parties' to know: the first array says which is meant.
        (None, inputs) => {
            let file = inputs.iter().find_map(|text| {
                let value = text.split_once('=').map_or(text.as_str(), |(_, value)| value);
                [text, value].into_iter().find_map(|path| npy::load(Path::new(path)).ok())
            });
            file.map_or(1, |data| rows(&[data]))
        }
    };
    let (protocol, approved) = cluster.describe(model, size)?;
    let data = Names::of_inputs(&approved.data_inputs).load("--input", &args.input)?;
    let files = Names::of_outputs(&approved.outputs).files("--output", &args.output)?;
    let bar = progress(rows(&data).div_ceil(size.max(1)) as u32, "private inference");
    let begun = |run| tick(&bar, run);
    let inference = if protocol == secfloat::PROTOCOL.name {
        no_material(args)?;
        let options = RunOptions { protocol, ..args.common.run(1) };
        secfloat::infer_stored(&mut cluster, model, &approved, &data, &options, &begun)?
    } else {
        let material = args.material.as_deref().map(hex16).transpose()?;
        let options = RunOptions { material, ..args.common.run(1) };
        inference::infer_stored(&mut cluster, model, (protocol, approved), &data, &options, &begun)?
    };
    bar.finish_and_clear();
    Ok((inference, files))
}

/// A model in a file.
fn infer_file(args: &Infer, model: &Path) -> Result<Inferred> {
    let file = ModelFile::open(model)?;
    let data = file.names().load("--input", &args.input)?;
    let graph = file.graph(Some(&data), &args.shape, args.batch)?;
    // A file that fixes a batch of one has no graph of two, and is right about it.
    if args.batch == Some(1)
        && rows(&data) > 1
        && let Ok(two) = file.graph(Some(&data), &args.shape, Some(2))
    {
        inference::check_apart(&two)?;
    }
    let float = args.common.float()?;
    let material = args.material.as_deref().map(hex16).transpose()?;
    let mut backend = match &args.cluster {
        Some(cluster) => Backend::Remote(connect(cluster, &args.certs, &args.client)?),
        None => args.common.backend()?,
    };
    let size = graph.inputs.first().and_then(|&id| graph.shape(id).dims().first().copied()).unwrap_or(1);
    let bar = progress(rows(&data).div_ceil(size) as u32, "private inference");
    let begun = |run| tick(&bar, run);
    let options = RunOptions { material, ..args.common.run(1) };
    let inferred = if float {
        no_material(args)?;
        let model = FloatModel::new(&graph, backend.client(), args.common.work())?;
        let files = Names::of_outputs(&model.compiled.outputs).files("--output", &args.output)?;
        (secfloat::infer(&mut backend, &model, &data, &options, &begun)?, files)
    } else {
        let model = args.common.model(&graph, backend.client(), &args.model_args)?;
        let files = Names::of_outputs(&model.compiled.outputs).files("--output", &args.output)?;
        (inference::infer(&mut backend, &model, &data, &options, &begun)?, files)
    };
    bar.finish_and_clear();
    Ok(inferred)
}

fn infer(args: &Infer, json: bool) -> Result<ExitCode> {
    let (inference, files) = match (&args.model_name, &args.cluster, &args.model) {
        (Some(name), Some(cluster), _) => infer_stored(args, name, cluster)?,
        (_, _, model) => infer_file(args, model.as_ref().expect("clap asks for one of the two"))?,
    };
    for ((_, output), file) in inference.outputs.iter().zip(&files) {
        if let Some(file) = file {
            npy::save(file, output).map_err(|e| Error::Refused(e.to_string()))?;
        }
    }
    if json {
        let place = |name: &str| inference.outputs.iter().position(|(n, _)| n == name);
        let report = inference.json(&|name, output| match place(name).and_then(|i| files[i].as_ref()) {
            Some(file) => json!(file),
            None => json!(output.data),
        });
        println!("{report}");
        return Ok(ExitCode::SUCCESS);
    }
    let shown = inference.outputs.iter().zip(&files).filter(|(_, file)| file.is_none());
    for ((name, output), _) in shown {
        if inference.outputs.len() > 1 {
            println!("{name} {:?}", output.shape.dims());
        }
        let lines = output.shape.dims().first().copied().unwrap_or(1);
        for row in output.data.chunks((output.data.len() / lines).max(1)) {
            let number = |v: &f32| match inference.protocol == secfloat::PROTOCOL.name {
                true => format!("{v:e}"),
                false => format!("{v:.6}"),
            };
            println!("{}", row.iter().map(number).collect::<Vec<_>>().join(" "));
        }
    }
    print!("\n{}", inference.summary());
    if args.layers {
        print!("\n{}", inference.cost.layer_table());
    }
    Ok(ExitCode::SUCCESS)
}

fn run_generate(args: &Generate, json: bool) -> Result<ExitCode> {
    let letters: Vec<char> =
        std::fs::read_to_string(&args.letters).map_err(|e| Error::file(&args.letters, e))?.chars().collect();
    let token = |c: char| {
        let place = letters.iter().position(|&l| l == c).map(|p| p as u32);
        place.ok_or_else(|| Error::Refused(format!("the model does not know the letter `{c}`")))
    };
    let prompt = args.prompt.chars().map(token).collect::<Result<Vec<u32>>>()?;
    if prompt.is_empty() || args.tokens == 0 {
        return Err(Error::Refused("a prompt has at least one letter, and so has its continuation".into()));
    }
    let written = |tokens: &[u32]| -> String {
        tokens.iter().map(|&t| letters.get(t as usize).copied().unwrap_or('?')).collect()
    };
    let model = LanguageModel::load(&args.model)?;
    let mut backend = match &args.cluster {
        Some(cluster) => Backend::Remote(connect(cluster, &args.certs, &args.client)?),
        None => args.common.backend()?,
    };
    let options = args.common.compile(&args.model_args)?;
    let mut generation = Generation::new(&model, &mut backend, options, args.common.run(1))?;
    if !json {
        print!("{}", args.prompt);
    }
    let (mut text, mut fresh, mut costs) = (prompt.clone(), prompt.clone(), vec![]);
    for _ in 0..args.tokens {
        let (logits, cost) = generation.read(&fresh)?;
        fresh = vec![largest(&logits)];
        if !json {
            print!("{}", written(&fresh));
            let _ = std::io::Write::flush(&mut std::io::stdout());
        }
        text.extend(&fresh);
        costs.push(cost);
    }
    let mut plain = prompt;
    for _ in 0..args.tokens {
        plain.push(largest(&model.plain(&plain)?));
    }
    let same = plain == text;
    let range = if generation.proven { "proven" } else { "assumed" };
    if json {
        let seconds = |c: &Cost| c.phases.get(&Phase::Online).map(|online| online.seconds.median);
        let seconds: Vec<Option<f64>> = costs.iter().map(seconds).collect();
        println!(
            "{}",
            json!({ "schema": "megrez.generate/1", "text": written(&text), "plain": written(&plain), "same": same,
            "protocol": args.common.protocol, "insecure": args.common.insecure, "range": range,
            "online_seconds": seconds, "last": costs.last() })
        );
    } else {
        println!("\n\nin the clear: {}", if same { "the same".into() } else { written(&plain) });
        println!("ranges: {range}; the last letter cost");
        costs.last().inspect(|cost| print!("{}", cost.table()));
    }
    Ok(if same { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn run_check(args: &Check, json: bool) -> Result<ExitCode> {
    let Some(path) = &args.model else {
        return check_masks(args, args.masks.as_deref().unwrap_or_default(), json);
    };
    let file = ModelFile::open(path)?;
    let data = file.names().load("--input", &args.input)?;
    // A model that fixes how many it takes is checked on so many.
    let open = file.inputs.iter().any(|i| !matches!(i.dims.as_deref(), Some([Dim::Fixed(_), ..] | [])));
    let batch = args.batch.or(open.then(|| rows(&data).min(8)));
    let graph = file.graph(Some(&data), &args.shape, batch)?;
    if args.common.float()? {
        return check_floats(args, &graph, &data, json);
    }
    let mut backend = args.common.backend()?;
    let model = if megrez::infer::find(&args.common.protocol)?.sums {
        // Every layer is opened: none may be left as a sum or become a part of the next.
        let common = Common { form: "3r".into(), ..args.common.clone() };
        let options = common.compile(&args.model_args)?;
        let options = CompileOptions { sums: false, pool: PoolForm::Tournament, ..options };
        Model::new(&graph, backend.client(), &options)?
    } else {
        args.common.model(&graph, backend.client(), &args.model_args)?
    };
    let data = inference::first_batch(&model, &data)?;
    let layers = check::check(&mut backend, &model, &data, &args.common.run(1))?;
    let outside: usize = layers.iter().map(|l| l.outside).sum();
    if json {
        println!(
            "{}",
            json!({ "schema": "megrez.check/1", "protocol": args.common.protocol, "ring": args.common.ring,
            "frac": args.common.frac(), "batch": rows(&data), "layers": layers })
        );
    } else {
        print!("{}", check::table(&layers));
    }
    Ok(if outside == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn check_masks(args: &Check, model: &str, json: bool) -> Result<ExitCode> {
    masks::covers(&args.common.protocol)?;
    let path = Path::new(model);
    let graph = match path.extension().is_some_and(|e| e == "onnx") {
        true => ModelFile::open(path)?.graph(None, &args.shape, args.batch)?,
        false => any_model(model, args.batch.unwrap_or(1), 1)?,
    };
    let protocol = &args.common.protocol;
    let model = args.common.model(&graph, "client", &args.model_args)?;
    let report = masks::examine(protocol, &model)?;
    match json {
        true => println!("{}", masks::json(protocol, &report)),
        false => print!("{}", masks::text(protocol, &report)),
    }
    Ok(if report.is_masked() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn check_floats(args: &Check, graph: &Graph, data: &[Tensor], json: bool) -> Result<ExitCode> {
    let mut backend = args.common.backend()?;
    let model = FloatModel::new(graph, backend.client(), args.common.work())?;
    let data = inference::first_batch(&model, data)?;
    let layers = secfloat::check(&mut backend, &model, &data, &args.common.run(1))?;
    if json {
        println!(
            "{}",
            json!({ "schema": "megrez.check/1", "protocol": args.common.protocol, "numbers": "float32",
            "batch": rows(&data), "layers": layers })
        );
    } else {
        print!("{}", secfloat::table(&layers));
    }
    let different: usize = layers.iter().map(|l| l.different).sum();
    Ok(if different == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn run_calibrate(args: &Calibrate, json: bool) -> Result<ExitCode> {
    if args.batch == 0 {
        return Err(Error::Refused("--batch is at least 1".into()));
    }
    let path = Path::new(&args.model);
    let (graph, data) = match path.extension().is_some_and(|e| e == "onnx") {
        true => {
            let file = ModelFile::open(path)?;
            let data = file.names().load("--data", &args.data)?;
            let open =
                file.inputs.iter().any(|i| !matches!(i.dims.as_deref(), Some([Dim::Fixed(_), ..] | [])));
            // Whole batches where that is possible: one filled up with zeros would still be honest.
            let batch = open.then(|| args.batch.min(rows(&data)));
            (file.graph(Some(&data), &args.shape, batch)?, data)
        }
        false => {
            let graph = any_model(&args.model, args.batch, args.seed)?;
            let inputs =
                graph.inputs.iter().map(|&id| (graph.value(id).name.clone(), graph.shape(id).clone()));
            let inputs: Vec<(String, megrez_ring::Shape)> = inputs.collect();
            let data = match &args.data[..] {
                [] => {
                    inputs.iter().map(|(_, s)| bench::test_image(args.seed, 0, "input", s.clone())).collect()
                }
                files => Names::of_graph(&inputs).load("--data", files)?,
            };
            (graph, data)
        }
    };
    let calibration = inference::measure_any(&graph, &data, args.margin)?;
    let text = serde_json::to_string_pretty(&calibration).map_err(|e| Error::Refused(e.to_string()))?;
    std::fs::write(&args.output, &text).map_err(|e| Error::file(&args.output, e))?;
    if json {
        println!("{}", json!(calibration));
    } else {
        println!("{:<20} {:>12}", "layer", "largest seen");
        calibration.layers.iter().for_each(|(layer, seen)| println!("{layer:<20} {seen:>12.4}"));
        println!("written to {}; bounds are {} times this", args.output.display(), args.margin);
    }
    Ok(ExitCode::SUCCESS)
}

fn bench_options(common: &Common, batch: usize, repeat: u32, seed: u64) -> Result<BenchOptions> {
    if batch == 0 || repeat == 0 {
        return Err(Error::Refused("--batch and --repeat are at least 1".into()));
    }
    Ok(BenchOptions {
        ring: common.ring,
        frac: common.frac(),
        batch,
        sign: common.sign("bits")?,
        form: if common.form == "auto" { ReluForm::ThreeRounds } else { common.form()? },
        pool: common.pool()?.unwrap_or(PoolForm::Tournament),
        activations: common.activations.into(),
        truncate: 0,
        shape: [1; 3],
        seed,
        run: common.run(repeat),
        parties: common.parties_name(),
    })
}

fn verdict(report: &serde_json::Value) -> ExitCode {
    println!("{report}");
    if report["verified"] == json!(true) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn bench_op(args: &BenchOp) -> Result<ExitCode> {
    if args.common.float()? {
        let processes = matches!(args.common.parties, PartiesKind::Process);
        let options = FloatBench {
            op: args.op.clone(),
            batch: args.batch,
            lanes: args.lanes,
            repeat: args.repeat,
            seed: args.seed,
            work: args.common.work(),
            net: args.common.net.clone(),
        };
        return Ok(verdict(&bench_float::bench(&options, processes)?));
    }
    let shape = match args.shape[..] {
        [m, k, n] => [m, k, n],
        [m, k] => [m, k, 1],
        _ => return Err(Error::Refused("--shape is m,k,n or m,k".into())),
    };
    if bench_kernel::OPS.contains(&args.op.as_str()) {
        let options = KernelBench {
            op: args.op.clone(),
            ring: args.common.ring,
            shape,
            batch: args.batch,
            repeat: args.repeat,
            seed: args.seed,
            device: DeviceChoice::each(&args.common.device, 1)?[0],
        };
        return Ok(verdict(&bench_kernel::bench(&options)?));
    }
    let options = bench_options(&args.common, args.batch, args.repeat, args.seed)?;
    let options = BenchOptions { truncate: args.truncate, shape, ..options };
    let mut backend = args.common.backend()?;
    Ok(verdict(&bench::bench_op(&mut backend, &args.op, &options)?))
}

fn bench_model(args: &BenchModel) -> Result<ExitCode> {
    if args.common.float()? {
        return bench_float_model(args);
    }
    if args.train {
        return Err(Error::Refused("models are trained in floating point only: --protocol secfloat".into()));
    }
    let options = bench_options(&args.common, args.batch, args.repeat, args.seed)?;
    let graph = any_model(&args.model, args.batch, args.seed)?;
    let mut backend = args.common.backend()?;
    // Random weights prove nothing about ranges; the result is compared with the clear all the same.
    let model = args.common.model(
        &graph,
        backend.client(),
        &ModelArgs { range: RangeArg::Assume, ..args.model_args.clone() },
    )?;
    Ok(verdict(&bench::bench_model(&mut backend, &args.model, &model, &options)?))
}

fn bench_table(args: &BenchTable, json: bool) -> Result<ExitCode> {
    let table = tables::table(&args.name)
        .ok_or_else(|| Error::Refused(format!("there is no table `{}`", args.name)))?;
    let choice = tables::Choice {
        only: args.only.clone(),
        nets: args.net.clone(),
        large: args.large,
        repeat: if args.quick { 1 } else { 3 },
        processes: matches!(args.parties, PartiesKind::Process),
        devices: args.device.clone(),
        seed: args.seed,
    };
    let watched = std::io::stderr().is_terminal();
    let report = tables::run(table, &choice, &|row| {
        if watched {
            eprintln!("{row}");
        }
    })?;
    if json {
        println!("{report}");
    } else {
        print!("{}", tables::text(&report));
    }
    Ok(if tables::verified(&report) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn bench_memory(args: &BenchModel) -> Result<ExitCode> {
    let graph = any_model(&args.model, args.batch, args.seed)?;
    let model_args = ModelArgs { range: RangeArg::Assume, ..args.model_args.clone() };
    let model = args.common.model(&graph, embedded::CLIENT, &model_args)?;
    let peaks = memory::planned_peaks(&args.common.protocol, &model.compiled.plan)?;
    println!(
        "{}",
        json!({
            "schema": "megrez.bench-memory/1",
            "model": args.model,
            "batch": args.batch,
            "protocol": args.common.protocol,
            "ring": args.common.ring,
            "planned_device_mib": peaks.iter().map(|&bytes| memory::mib(bytes)).collect::<Vec<f64>>(),
        })
    );
    Ok(ExitCode::SUCCESS)
}

fn bench_float_model(args: &BenchModel) -> Result<ExitCode> {
    if args.batch == 0 || args.repeat == 0 {
        return Err(Error::Refused("--batch and --repeat are at least 1".into()));
    }
    if args.train {
        let options = TrainBench {
            model: args.model.clone(),
            batch: args.batch,
            repeat: args.repeat,
            seed: args.seed,
            work: args.common.work(),
            rate: 0.125,
        };
        let processes = matches!(args.common.parties, PartiesKind::Process);
        return Ok(verdict(&secfloat::bench_training(&options, &args.common.net, processes)?));
    }
    let graph = any_model(&args.model, args.batch, args.seed)?;
    let mut backend = args.common.backend()?;
    let model = FloatModel::new(&graph, backend.client(), args.common.work())?;
    let options = ModelBench {
        name: args.model.clone(),
        batch: args.batch,
        seed: args.seed,
        run: args.common.run(args.repeat),
        parties: args.common.parties_name(),
    };
    Ok(verdict(&secfloat::bench_model(&mut backend, &model, &options)?))
}

/// The operations that `megrez protocols` prices, as benches name them.
const PRICED: &[&str] = &[
    "mul",
    "fixed-mul",
    "truncate",
    "sign-bit",
    "compare-many",
    "relu",
    "maxpool",
    "select",
    "and",
    "bit-to-ring",
    "sigmoid",
    "gelu",
];

fn protocols(json: bool) -> Result<ExitCode> {
    let mut rows = Vec::new();
    for protocol in registry::PROTOCOLS {
        let mut ops = Vec::new();
        for ring in [32, 64] {
            for op in PRICED {
                let options = BenchOptions {
                    ring,
                    frac: if ring == 32 { 10 } else { 16 },
                    batch: 64 * 3 * 5 * 7 * 11,
                    sign: SignBit::FULL,
                    form: ReluForm::ThreeRounds,
                    pool: PoolForm::Tournament,
                    activations: Activations::Minimax,
                    truncate: 0,
                    shape: [1; 3],
                    seed: 0,
                    run: RunOptions {
                        protocol: protocol.name.into(),
                        runs: 1,
                        net: NetProfile::loopback(),
                        material: None,
                        insecure: true,
                    },
                    parties: "",
                };
                let plan = bench::op_plan(op, "x", &options)?;
                let Ok(price) = megrez::infer::price(protocol.name, &plan) else { continue };
                let n = options.batch as f64;
                // An empty sum of floating-point numbers is −0.
                let bits = |phase| price.bits(phase) / n + 0.0;
                let rounds = price.critical_path(megrez_session::Phase::Online, 0.0, |_| 0.0).rounds;
                ops.push(json!({
                    "op": op,
                    "ring": ring,
                    "bits_per_element": {
                        "offline": bits(megrez_session::Phase::Offline),
                        "online": bits(megrez_session::Phase::Online),
                    },
                    "rounds": rounds,
                }));
            }
        }
        rows.push(json!({ "protocol": protocol, "operations": ops }));
    }
    rows.push(json!({ "protocol": secfloat::PROTOCOL, "operations": secfloat::price_rows() }));
    if json {
        println!("{}", json!({ "schema": "megrez.protocols/1", "protocols": rows }));
        return Ok(ExitCode::SUCCESS);
    }
    for row in &rows {
        let p = &row["protocol"];
        println!(
            "{}: {} parties; security: {}; source: {}",
            p["name"].as_str().unwrap_or_default(),
            p["parties"],
            p["security"].as_str().unwrap_or_default(),
            p["source"].as_str().unwrap_or_default()
        );
        for op in row["operations"].as_array().into_iter().flatten() {
            let numbers = match op["ring"].as_u64() {
                Some(ring) => format!("ring {ring:>2}"),
                None => op["numbers"].as_str().unwrap_or_default().to_owned(),
            };
            println!(
                "  {:<12} {numbers}: {:>7.1} bits offline, {:>7.1} bits online, {} rounds",
                op["op"].as_str().unwrap_or_default(),
                op["bits_per_element"]["offline"].as_f64().unwrap_or_default(),
                op["bits_per_element"]["online"].as_f64().unwrap_or_default(),
                op["rounds"]
            );
        }
    }
    println!(
        "bits are totals over all parties per output element; select, and, bit-to-ring include the comparison that makes the bit; compare-many has three thresholds"
    );
    Ok(ExitCode::SUCCESS)
}

fn make_certs(args: &Certs, json: bool) -> Result<ExitCode> {
    let files = match &args.add_client {
        Some(client) => certs::add_client(&args.folder, client, args.days)?,
        None => {
            let request = certs::Request {
                parties: args.parties,
                clients: args.clients.clone(),
                hosts: vec![],
                days: args.days,
            };
            certs::generate(&args.folder, &request)?
        }
    };
    if json {
        println!("{}", json!({ "schema": "megrez.certs/1", "files": files }));
    } else {
        files.iter().for_each(|f| println!("{}", f.display()));
        println!("give each party its own .pem and .key and ca.pem; keep ca.key off their machines");
    }
    Ok(ExitCode::SUCCESS)
}

fn party(args: &PartyArgs, json: bool) -> Result<ExitCode> {
    let Some(path) = &args.config else {
        embedded::serve_embedded()?;
        return Ok(ExitCode::SUCCESS);
    };
    let config = PartyConfig::load(path)?;
    let device = args.device.unwrap_or(config.device).open()?;
    let cluster = ClusterConfig::load(&config.cluster)?;
    let identity = Identity::load(&config.certs, &PeerName::party_of(config.party, cluster.parties.len())?)?;
    let endpoint = Arc::new(Endpoint::bind(Config {
        me: config.party,
        listen: config.listen.clone(),
        peers: cluster.parties,
        identity,
        limits: megrez::party::limits(Duration::from_secs(config.silence_seconds)),
    })?);
    let party = config.party;
    let log = move |line: &str| {
        if json {
            println!("{}", json!({ "schema": "megrez.log/1", "party": party, "line": line }));
        } else {
            eprintln!("{line}");
        }
    };
    let on = device.describe();
    log(&format!("party {party} listens on {} and computes on {on}", endpoint.local_addr()));
    let policy = Policy {
        data: config.data,
        allow_shaping: config.allow_shaping,
        allow_insecure: config.allow_insecure,
        max_sessions: config.max_sessions,
        max_elements: config.max_elements,
    };
    Service::new(endpoint, policy, device).run(log)?;
    Ok(ExitCode::SUCCESS)
}

fn upload(args: &UploadModel, json: bool) -> Result<ExitCode> {
    let mut cluster = connect(&args.cluster, &args.certs, &args.client)?;
    let file = ModelFile::open(&args.model)?;
    let graph = |&size: &usize| file.graph(None, &args.shape, Some(size));
    let graphs = args.batch.iter().map(graph).collect::<Result<Vec<_>>>()?;
    if args.common.float()? {
        secfloat::upload(&mut cluster, &args.name, &graphs, args.common.work(), &args.allow)?;
    } else {
        let options = args.common.compile(&args.model_args)?;
        inference::upload(&mut cluster, &args.name, &args.common.protocol, &graphs, &options, &args.allow)?;
    }
    Ok(uploaded(args, json))
}

fn uploaded(args: &UploadModel, json: bool) -> ExitCode {
    if json {
        println!(
            "{}",
            json!({ "schema": "megrez.upload/1", "model": args.name, "batches": args.batch, "allow": args.allow })
        );
    } else {
        println!("model `{}` is stored in shares; {} may run it", args.name, args.allow.join(", "));
    }
    ExitCode::SUCCESS
}

fn offline(args: &Offline, json: bool) -> Result<ExitCode> {
    let mut cluster = connect(&args.cluster, &args.certs, &args.client)?;
    let (protocol, _) = cluster.describe(&args.model_name, args.batch)?;
    let source = Source::Model { model: args.model_name.clone(), batch: args.batch };
    let name: String = cluster.prepare(&protocol, source)?.iter().map(|b| format!("{b:02x}")).collect();
    if json {
        println!("{}", json!({ "schema": "megrez.offline/1", "material": name }));
    } else {
        println!("material {name} is ready for one run: megrez infer --material {name}");
    }
    Ok(ExitCode::SUCCESS)
}

fn doctor(args: &Doctor, json: bool) -> Result<ExitCode> {
    let mut problems: Vec<String> = Vec::new();
    let mut parties = Vec::new();
    let client = PeerName::client(&args.client)?;
    let Some(cluster) = &args.cluster else {
        let device = AnyDevice::default().describe();
        let (gpus, why) = gpus();
        if json {
            println!(
                "{}",
                json!({ "schema": "megrez.doctor/1", "device": device, "gpus": gpus, "no_gpu": why, "problems": problems })
            );
        } else {
            println!("device: {device}\nrelease: {}", env!("CARGO_PKG_VERSION"));
            why.iter().for_each(|why| println!("gpu: none: {why}"));
            for gpu in &gpus {
                println!("gpu: {gpu}");
            }
            println!("give --cluster cluster.toml to examine a deployment");
        }
        return Ok(ExitCode::SUCCESS);
    };
    let config = ClusterConfig::load(cluster)?;
    match certs::inspect(&args.certs, &client) {
        Ok(report) => problems.extend(report.problems.iter().map(|p| format!("{}: {p}", report.name))),
        Err(e) => problems.push(format!("{client}: {e}")),
    }
    // Parties one by one, so that one that is down does not hide the others.
    match identity(&args.certs, &args.client) {
        Err(e) => problems.push(format!("{client}: {e}")),
        Ok(identity) => {
            for (i, address) in config.parties.iter().enumerate() {
                match examine(i, address, &identity) {
                    Ok((info, skew)) => {
                        if info.release != env!("CARGO_PKG_VERSION") {
                            problems.push(format!(
                                "party {i} runs release {}, this is {}: install one release everywhere",
                                info.release,
                                env!("CARGO_PKG_VERSION")
                            ));
                        }
                        if skew.abs() > 60_000 {
                            problems.push(format!(
                                "party {i}: its clock is off by {} s; certificates may look expired: run NTP",
                                skew / 1000
                            ));
                        }
                        parties.push(json!({ "party": i, "address": address, "reachable": true, "release": info.release,
                            "device": info.device, "clock_skew_ms": skew, "sessions": info.sessions }));
                    }
                    Err(e) => {
                        problems.push(format!("party {i} at {address}: {e}"));
                        parties.push(json!({ "party": i, "address": address, "reachable": false }));
                    }
                }
            }
        }
    }
    if json {
        println!("{}", json!({ "schema": "megrez.doctor/1", "parties": parties, "problems": problems }));
    } else {
        for p in &parties {
            println!("{p}");
        }
        problems.iter().for_each(|p| println!("problem: {p}"));
        if problems.is_empty() {
            println!("all parties are reachable, of one release, and their clocks agree");
        }
    }
    Ok(if problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Every GPU of this machine with what it can do or what is wrong with it; or why there is none.
fn gpus() -> (Vec<serde_json::Value>, Option<String>) {
    match megrez_cuda::Cuda::available() {
        Err(why) => (vec![], Some(why)),
        Ok(gpus) if gpus.is_empty() => (vec![], Some("the driver finds no GPU".into())),
        Ok(gpus) => {
            let examined = gpus.iter().map(|gpu| {
                json!({ "device": format!("cuda:{}", gpu.ordinal), "name": gpu.name,
                    "capability": format!("{}.{}", gpu.capability.0, gpu.capability.1),
                    "memory_mib": gpu.memory >> 20, "driver": format!("{}.{}", gpu.driver.0, gpu.driver.1),
                    "nvrtc": format!("{}.{}", gpu.nvrtc.0, gpu.nvrtc.1),
                    "problem": DeviceChoice::Cuda(gpu.ordinal).open().and_then(|d| works(&d)).err().map(|e| e.to_string()) })
            });
            (examined.collect(), None)
        }
    }
}

/// Compiles a kernel, runs it and compares: what a missing library or an unfit driver breaks.
fn works(device: &AnyDevice) -> Result<()> {
    let stream = megrez_prg::Key::from_bytes([0; 32]).stream();
    let made = device.random::<u64>(&stream, 1000).and_then(|made| device.download(made));
    match made {
        Ok(made) if made == stream.words(1000) => Ok(()),
        Ok(_) => Err(Error::Refused(
            "its kernels compute wrong numbers: do not use it; its driver or its memory may be broken".into(),
        )),
        Err(e) => Err(Error::Refused(e.to_string())),
    }
}

fn examine(party: usize, address: &str, identity: &Identity) -> Result<(megrez::wire::Info, i64)> {
    let mut one = Cluster::connect_one(party, address, identity, Duration::from_secs(5))?;
    let before = SystemTime::now();
    let info = one.info()?.remove(0);
    let middle = before + before.elapsed().unwrap_or_default() / 2;
    let here = middle.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as i64;
    if info.party != party {
        return Err(Error::Refused(format!("says that it is party {}", info.party)));
    }
    let skew = info.clock_ms as i64 - here;
    Ok((info, skew))
}
