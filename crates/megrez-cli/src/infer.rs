//! `megrez infer`: a model on data, here or on a cluster.

use crate::cluster::{Needs, Place};
use crate::options::{Common, Open, rows};
use crate::progress;
use crate::report::Page;
use clap::Args;
use megrez::protocols::is_float;
use megrez::{
    Backend, Described, Forecast, Inference, Material, Mode, Model, ModelFile, Names, Result, RunOptions,
    StoredModel, check_apart,
};
use megrez_graph::{Graph, Tensor, npy};
use megrez_report::Parts;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Args)]
pub(crate) struct Infer {
    /// The model, an ONNX file; with a cluster, the name of a stored model may be given by
    /// --model-name instead.
    #[arg(long, required_unless_present = "model_name")]
    model: Option<PathBuf>,
    /// The name of a model that is stored at the cluster.
    #[arg(long, requires = "cluster", conflicts_with_all = ["model", "shape", "constant"])]
    model_name: Option<String>,
    /// The data of an input, NAME=FILE.npy, for each of the model's; FILE.npy for a model of one.
    #[arg(long, required = true, value_name = "[NAME=]FILE")]
    input: Vec<String>,
    #[command(flatten)]
    open: Open,
    /// Write an output here, as .npy, instead of showing it: NAME=FILE.npy; FILE.npy for a model of
    /// one.
    #[arg(long, value_name = "[NAME=]FILE")]
    output: Vec<String>,
    /// How many of the inputs go together in a run [default: all of them, or as many as the model
    /// is made for; fewer where a party would hold more than 768 MiB].
    #[arg(long)]
    batch: Option<usize>,
    /// How to run: execute, by parties; simulate, the protocol's steps in this process, where
    /// nothing is private; clear, in floating point.
    #[arg(long, default_value_t, conflicts_with_all = ["model_name", "cluster"])]
    mode: Mode,
    /// Run nothing: say what the protocol would cost.
    #[arg(long, conflicts_with = "model_name")]
    dry_run: bool,
    /// Print the cost of every layer.
    #[arg(long)]
    layers: bool,
    #[command(flatten)]
    page: Page,
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(flatten)]
    place: Place,
    /// Material made ahead by `megrez offline`, for the first run.
    #[arg(long, help_heading = "Cluster")]
    material: Option<String>,
}

/// Seconds from which on a run is foretold.
const LONG: f64 = 2.0;

/// What a party may hold of a run, as planned, before data is cut without being asked to. Runs of
/// that size have so many bytes that the rounds of one more are lost in them.
const MOST_HELD: u64 = 768 << 20;

/// What came out, and where each output is to be written.
type Inferred = (Inference, Vec<Option<PathBuf>>);

pub(crate) fn run(args: &Infer, json: bool) -> Result<ExitCode> {
    let inferred = match (&args.model_name, &args.model) {
        (Some(name), _) => Some(stored(args, name)?),
        (None, model) => file(args, model.as_ref().expect("clap asks for one of the two"), json)?,
    };
    let Some((inference, files)) = inferred else { return Ok(ExitCode::SUCCESS) };
    for ((_, output), file) in inference.outputs.iter().zip(&files) {
        if let Some(file) = file {
            npy::save(file, output)?;
        }
    }
    if json {
        let place = |name: &str| inference.outputs.iter().position(|(n, _)| n == name);
        let report = inference.json(&|name, output| match place(name).map(|i| (i, files[i].as_ref())) {
            Some((_, Some(file))) => json!(file),
            Some((i, None)) => json!(inference.elements(i)),
            None => json!(output.data),
        });
        println!("{report}");
    } else {
        show(&inference, &files, args.layers);
    }
    Ok(ExitCode::SUCCESS)
}

/// A model that is stored at a cluster.
fn stored(args: &Infer, name: &str) -> Result<Inferred> {
    let mut cluster = args.place.connect(needs(args))?.expect("clap asks for a cluster");
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
    let model = StoredModel::describe(&mut cluster, name, size)?;
    let data = Names::of_inputs(model.inputs()).load("--input", &args.input)?;
    let files = Names::of_outputs(model.outputs()).files("--output", &args.output)?;
    let options = options(args)?;
    let bar = progress::bar(rows(&data).div_ceil(size.max(1)) as u32, "private inference");
    let inference = model.infer(&mut cluster, &data, &options, &|run| progress::tick(&bar, run))?;
    drop(bar);
    written(&args.page, &inference, None)?;
    Ok((inference, files))
}

/// A model in a file; nothing comes out of a dry run.
fn file(args: &Infer, model: &Path, json: bool) -> Result<Option<Inferred>> {
    let file = args.open.file(model)?;
    let data = file.names().load("--input", &args.input)?;
    let graph = file.graph(Some(&data), &args.open.shape, args.batch)?;
    // A file that fixes a batch of one has no graph of two, and is right about it.
    if args.batch == Some(1)
        && rows(&data) > 1
        && let Ok(two) = file.graph(Some(&data), &args.open.shape, Some(2))
    {
        check_apart(&two)?;
    }
    let options = options(args)?;
    args.common.request.is_float()?;
    let mode = if args.dry_run { Mode::Simulate } else { args.mode };
    let mut backend = mode.backend(|| match args.place.connect(needs(args))? {
        Some(cluster) => Ok(Backend::Remote(cluster)),
        None => args.common.backend(),
    })?;
    let model = args.common.request.compile(&graph, backend.client())?;
    let (graph, model) = match smaller(args, (&file, &data), &model, backend.client())? {
        Some(smaller) => smaller,
        None => (graph, model),
    };
    let files = Names::of_outputs(model.outputs()).files("--output", &args.output)?;
    let size = graph.inputs.first().and_then(|&id| graph.shape(id).dims().first().copied()).unwrap_or(1);
    let runs = rows(&data).div_ceil(size) as u32;
    let foretold = || Forecast::of(&model, args.common.protocol(), &options.net, runs);
    if args.dry_run {
        let foretold = foretold()?;
        match json {
            true => println!("{}", foretold.json()),
            false => print!("{}", foretold.table()),
        }
        return Ok(None);
    }
    if mode == Mode::Execute && !options.net.is_unshaped() {
        let foretold = foretold()?;
        if foretold.network_seconds() > LONG {
            eprint!("{}", foretold.table());
        }
    }
    let bar = progress::bar(runs, "private inference");
    let tick = |run| progress::tick(&bar, run);
    let inference = megrez::infer_as(mode, &mut backend, &model, &data, &options, &tick)?;
    drop(bar);
    written(&args.page, &inference, Some((&model, args.common.protocol(), backend.client())))?;
    Ok(Some((inference, files)))
}

/// The model for fewer inputs at a time, where nobody says how many, a run of all would take a
/// party more than [`MOST_HELD`], and it makes no difference to the numbers.
fn smaller(
    args: &Infer,
    (file, data): (&ModelFile, &[Tensor]),
    model: &Model,
    client: &str,
) -> Result<Option<(Graph, Model)>> {
    let (count, net) = (rows(data), &args.common.request.net);
    let whole = data
        .iter()
        .zip(model.inputs())
        .all(|(tensor, input)| tensor.shape == input.shape && tensor.shape.dims().first() == Some(&count));
    // Nothing is held in the clear.
    if args.batch.is_some() || args.mode == Mode::Clear || count < 2 || !whole {
        return Ok(None);
    }
    // What a protocol lacks is told by whoever runs it.
    let held = |model: &Model| {
        Forecast::of(model, args.common.protocol(), net, 1)
            .ok()
            .and_then(|cost| cost.memory_bytes)
            .unwrap_or(0)
    };
    let mut runs = held(model).div_ceil(MOST_HELD).clamp(1, count as u64) as usize;
    if runs == 1 || model.mixed(count).is_some() {
        return Ok(None);
    }
    loop {
        let size = count.div_ceil(runs);
        // A file that fixes how many go together is right about it.
        let Ok(graph) = file.graph(Some(data), &args.open.shape, Some(size)) else { return Ok(None) };
        let Ok(smaller) = args.common.request.compile(&graph, client) else { return Ok(None) };
        if size == 1 || held(&smaller) <= MOST_HELD {
            return Ok(Some((graph, smaller)));
        }
        // Not everything shrinks as the data does.
        runs += runs.div_ceil(2);
    }
}

/// The page of a run, without its numbers.
fn written(page: &Page, inference: &Inference, model: Option<(&Model, &str, &str)>) -> Result<()> {
    let run = inference.json(&|_, _| Value::Null);
    page.write(model, &Parts { run: Some(&run), ..Parts::default() })
}

/// Material that is named lies at one replica.
fn needs(args: &Infer) -> Needs {
    if args.material.is_some() { Needs::Own } else { Needs::Any }
}

/// How to run, with the material that is named.
fn options(args: &Infer) -> Result<RunOptions> {
    let material = args.material.as_deref().map(str::parse::<Material>).transpose()?;
    Ok(RunOptions { material: Material::ahead(material), ..args.common.run(1) })
}

/// A name from a file as it may be printed: no character steers the terminal.
fn plain(name: &str) -> String {
    name.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// Prints the outputs that no file takes, and the cost.
fn show(inference: &Inference, files: &[Option<PathBuf>], layers: bool) {
    let float = is_float(&inference.protocol);
    let named = inference.outputs.iter().zip(&inference.named);
    for (((name, output), named), _) in named.zip(files).filter(|(_, file)| file.is_none()) {
        if inference.outputs.len() > 1 {
            println!("{name} {:?}", output.shape.dims());
        }
        if !named.columns.is_empty() {
            println!("{}", named.columns.iter().map(|name| plain(name)).collect::<Vec<_>>().join(" "));
        }
        let lines = output.shape.dims().first().copied().unwrap_or(1);
        for row in output.data.chunks((output.data.len() / lines).max(1)) {
            let number = |v: &f32| match named.class(*v) {
                Some(name) => plain(name),
                None if float => format!("{v:e}"),
                None => format!("{v:.6}"),
            };
            println!("{}", row.iter().map(number).collect::<Vec<_>>().join(" "));
        }
    }
    print!("\n{}", inference.summary());
    if layers {
        print!("\n{}", inference.cost.layer_table());
    }
}
