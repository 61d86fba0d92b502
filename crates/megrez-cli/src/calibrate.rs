//! `megrez calibrate`: how large a model's values get on data.

use crate::options::{Open, batch_or, rows};
use clap::Args;
use megrez::calibrate::measure_any;
use megrez::{Error, ErrorKind, Names, Result};
use megrez_graph::{Graph, Tensor};
use megrez_lab::bench::{any_model, test_image};
use megrez_ring::Shape;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Args)]
pub(crate) struct Calibrate {
    /// The model: an ONNX file, or a built-in network with random weights.
    #[arg(long)]
    model: String,
    /// Data like that of later runs, NAME=FILE.npy for each input; FILE.npy for a model of one;
    /// random images for a built-in network.
    #[arg(long, value_name = "[NAME=]FILE")]
    data: Vec<String>,
    #[command(flatten)]
    open: Open,
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

pub(crate) fn run(args: &Calibrate, json: bool) -> Result<ExitCode> {
    if args.batch == 0 {
        return Err(Error::Refused("--batch is at least 1".into()));
    }
    let path = Path::new(&args.model);
    let (graph, data) = match path.extension().is_some_and(|e| e == "onnx") {
        true => from_file(args, path)?,
        false => built_in(args)?,
    };
    let calibration = measure_any(&graph, &data, args.margin)?;
    let text = serde_json::to_string_pretty(&calibration).map_err(|e| Error::of(ErrorKind::Internal, e))?;
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

fn from_file(args: &Calibrate, path: &Path) -> Result<(Graph, Vec<Tensor>)> {
    let file = args.open.file(path)?;
    let data = file.names().load("--data", &args.data)?;
    // Whole batches where that is possible: one filled up with zeros would still be honest.
    let batch = batch_or(&file, None, args.batch.min(rows(&data)));
    Ok((file.graph(Some(&data), &args.open.shape, batch)?, data))
}

fn built_in(args: &Calibrate) -> Result<(Graph, Vec<Tensor>)> {
    let graph = any_model(&args.model, args.batch, args.seed)?;
    let input = |&id| (graph.value(id).name.clone(), graph.shape(id).clone());
    let inputs: Vec<(String, Shape)> = graph.inputs.iter().map(input).collect();
    let data = match &args.data[..] {
        [] => inputs.iter().map(|(_, s)| test_image(args.seed, 0, "input", s.clone())).collect(),
        files => Names::of_graph(&inputs).load("--data", files)?,
    };
    Ok((graph, data))
}
