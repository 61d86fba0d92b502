//! `megrez check`: every layer on shares against the clear; `megrez check --masks`: whether every
//! message is masked; `megrez check --faults`: whether damage is noticed.

use crate::options::{Common, Open, batch_or, rows};
use crate::outcome::verdict;
use crate::report::Page;
use clap::Args;
use megrez::{Error, ErrorKind, FixedModel, Model, Result, faults, first_batch, masks};
use megrez_lab::bench::any_model;
use megrez_report::Parts;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// How many inputs are checked where nobody says.
const BATCH: usize = 8;

#[derive(Args)]
pub(crate) struct Check {
    /// Instead of running anything: have a machine show that every message of this model's plan is
    /// masked, or name the one that is not. An ONNX file, or a built-in network.
    #[arg(long, value_name = "MODEL", conflicts_with_all = ["model", "input"])]
    masks: Option<String>,
    /// Instead of that: flip bits of what parties keep of this model between sessions, and show
    /// that every damaged copy is refused. An ONNX file, or a built-in network.
    #[arg(long, value_name = "MODEL", conflicts_with_all = ["model", "input", "masks"])]
    faults: Option<String>,
    /// The model, an ONNX file.
    #[arg(long, required_unless_present_any = ["masks", "faults"])]
    model: Option<PathBuf>,
    /// The data of an input, NAME=FILE.npy, for each of the model's; FILE.npy for a model of one.
    /// One batch of it is used.
    #[arg(long, required_unless_present_any = ["masks", "faults"], value_name = "[NAME=]FILE")]
    input: Vec<String>,
    #[command(flatten)]
    open: Open,
    /// How many inputs to check [default: 8, or as many as the model is made for].
    #[arg(long)]
    batch: Option<usize>,
    #[command(flatten)]
    page: Page,
    #[command(flatten)]
    common: Common,
}

pub(crate) fn run(args: &Check, json: bool) -> Result<ExitCode> {
    let Some(path) = &args.model else {
        return match (&args.masks, &args.faults) {
            (Some(model), _) => check_masks(args, model, json),
            (None, faults) => check_faults(args, faults.as_deref().unwrap_or_default(), json),
        };
    };
    let file = args.open.file(path)?;
    let data = file.names().load("--input", &args.input)?;
    let batch = batch_or(&file, args.batch, rows(&data).min(BATCH));
    let graph = file.graph(Some(&data), &args.open.shape, batch)?;
    let request = &args.common.request;
    let float = request.is_float()?;
    let mut backend = args.common.backend()?;
    let model = request.recipe_by_layer(&graph, backend.client())?.compile(&graph, backend.client())?;
    let frac = match &model {
        Model::Fixed(model) => Some(model.compiled.frac),
        Model::Float(_) => None,
    };
    let data = first_batch(&model, &data)?;
    let check = megrez::check(&mut backend, &model, &data, &args.common.run(1))?;
    let client = backend.client();
    let parts = Parts { check: Some(&check.layers()), ..Parts::default() };
    args.page.write(Some((&model, args.common.protocol(), client)), &parts)?;
    if json {
        let mut report = json!({ "schema": "megrez.check/1", "protocol": request.runs_under(),
            "batch": rows(&data), "layers": check.layers() });
        match float {
            true => report["numbers"] = json!("float32"),
            false => (report["ring"], report["frac"]) = (json!(request.ring), json!(frac)),
        }
        println!("{report}");
    } else {
        print!("{}", check.table());
    }
    Ok(verdict(check.is_right()))
}

/// The model to examine without data: a file, or a built-in network.
fn fixed(args: &Check, model: &str) -> Result<FixedModel> {
    let (request, protocol) = (&args.common.request, args.common.protocol());
    let path = Path::new(model);
    let graph = match path.extension().is_some_and(|e| e == "onnx") {
        true => args.open.file(path)?.graph(None, &args.open.shape, args.batch)?,
        false => any_model(model, args.batch.unwrap_or(1), 1)?,
    };
    match request.compile(&graph, "client")? {
        Model::Fixed(model) => Ok(model),
        Model::Float(_) => Err(Error::of(
            ErrorKind::Unsupported,
            format!("`{protocol}` computes in float32, which has nothing of this to examine"),
        )),
    }
}

fn check_masks(args: &Check, model: &str, json: bool) -> Result<ExitCode> {
    let protocol = args.common.protocol();
    masks::covers(protocol)?;
    let report = masks::examine(protocol, &fixed(args, model)?)?;
    match json {
        true => println!("{}", masks::json(protocol, &report)),
        false => print!("{}", masks::text(protocol, &report)),
    }
    Ok(verdict(report.is_masked()))
}

fn check_faults(args: &Check, model: &str, json: bool) -> Result<ExitCode> {
    let protocol = args.common.protocol();
    let found = faults::examine(protocol, &fixed(args, model)?)?;
    match json {
        true => println!("{}", faults::json(protocol, &found)),
        false => print!("{}", faults::text(protocol, &found)),
    }
    Ok(verdict(faults::is_right(&found)))
}
