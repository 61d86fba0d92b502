//! The `megrez` command: a file for each command, which reads its options, calls the library and
//! prints.

#[macro_use]
mod print;

mod audit;
mod bench;
mod boost;
mod calibrate;
mod certs;
mod chat;
mod check;
mod cluster;
mod demo;
mod demo_train;
mod digits;
mod doctor;
mod example;
mod float;
mod generate;
mod infer;
mod jobs;
mod offline;
mod options;
mod outcome;
mod party;
mod plan;
mod predict;
mod progress;
mod protocols;
mod report;
mod shell;
mod stored;
mod study;
mod train;
mod train_job;
mod train_options;
mod upload;

use clap::{CommandFactory as _, Parser, Subcommand};
use megrez::Result;
use megrez_service::pair::Known;
use serde_json::json;
use std::ffi::OsString;
use std::process::ExitCode;

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
    Demo(demo::Demo),
    /// Two owners have a LeNet trained that nobody ever holds: three processes on this machine.
    DemoTrain(demo_train::DemoTrain),
    /// Run a model on data: here, or on a cluster.
    Infer(infer::Infer),
    /// Train a model on shares, or in the clear: here, or on a cluster.
    Train(Box<train_options::Train>),
    /// Continue a text with a language model, letter by letter: here, or on a cluster.
    Generate(generate::Generate),
    /// Talk with a language model that parties run, and that remembers what was said: here, or on a
    /// cluster.
    Chat(Box<chat::Chat>),
    /// Run a model on shares and in the clear, and compare every layer.
    Check(check::Check),
    /// Make a page of what a run printed with --json.
    Report(report::Report),
    /// What a run of a model would tell whom.
    #[command(subcommand)]
    Plan(plan::Plan),
    /// Measure how large a model's values get on data, for --calibration.
    Calibrate(calibrate::Calibrate),
    /// Measure an operation or a model.
    #[command(subcommand)]
    Bench(bench::Bench),
    /// Measure what approximations do to accuracy and cost, in this process: no party runs them.
    #[command(subcommand)]
    Study(study::Study),
    /// Run an example.
    #[command(subcommand)]
    Example(example::Example),
    /// Measure the accuracy of floating point.
    #[command(subcommand)]
    Float(float::Float),
    /// List the protocols, their operations and cost formulas.
    Protocols,
    /// List the operators that models may have.
    Operators,
    /// Print the script that completes this command in a shell.
    Completions(shell::Completions),
    /// Write a man page for every command into a folder.
    Man(shell::Man),
    /// One of two parties with one job; takes everything from standard input.
    #[command(hide = true)]
    PairParty,
    /// Make the certificates of a deployment.
    Certs(certs::Certs),
    /// Run a party as a service.
    Party(party::PartyArgs),
    /// What a party has written down of who asked it for what.
    #[command(subcommand)]
    Audit(audit::Audit),
    /// Keep a model's weights at a cluster, in shares.
    UploadModel(upload::UploadModel),
    /// Keep rows and labels at a cluster, in shares, to train on.
    UploadData(upload::UploadData),
    /// Grow boosted trees on what owners of rows have answered, as a job of the parties.
    Boost(Box<boost::Boost>),
    /// Compare rows with thresholds: the answers are what boosted trees learn from.
    Indicators(boost::Indicators),
    /// What a trained model says of rows that a cluster keeps, which may be of several owners.
    Predict(Box<predict::Predict>),
    /// Say to all parties that a training job may use this client's rows.
    Approve(jobs::Approve),
    /// How training jobs stand.
    Jobs(jobs::Jobs),
    /// Go on with a training job after its last checkpoint.
    Resume(jobs::Resume),
    /// Stop a training job.
    Stop(jobs::Stop),
    /// What a cluster keeps that this client owns or may use: models, rows, randomness made ahead.
    Stored(stored::Stored),
    /// Say who may use a model or rows that this client keeps at a cluster.
    Allow(stored::Allow),
    /// Remove a model, rows or randomness that this client keeps at a cluster.
    Remove(stored::Remove),
    /// Make correlated randomness ahead at a cluster.
    Offline(offline::Offline),
    /// Look for what is wrong with a deployment.
    Doctor(doctor::Doctor),
}

/// Parses the arguments, runs, and turns an error into a message and an exit code.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    megrez_service::heap::keep();
    let cli = Cli::parse_from(arguments);
    let json = cli.json;
    match run(&cli.command, json) {
        Ok(code) => code,
        Err(e) => {
            if json {
                let kind = e.kind().name();
                println!("{}", json!({ "schema": "megrez.error/1", "error": e.to_string(), "kind": kind }));
            }
            eprintln!("megrez: {e}");
            ExitCode::from(2)
        }
    }
}

fn operators(json: bool) -> ExitCode {
    let known = megrez_graph::layers::supported();
    match json {
        true => println!("{}", json!({ "schema": "megrez.operators/1", "operators": known })),
        false => known.iter().for_each(|op| println!("{op}")),
    }
    ExitCode::SUCCESS
}

fn run(command: &Command, json: bool) -> Result<ExitCode> {
    match command {
        Command::Demo(args) => demo::run(args, json),
        Command::DemoTrain(args) => demo_train::run(args, json),
        Command::Infer(args) => infer::run(args, json),
        Command::Train(args) => train::run(args, json),
        Command::Generate(args) => generate::run(args, json),
        Command::Chat(args) => chat::run(args, json),
        Command::Check(args) => check::run(args, json),
        Command::Plan(args) => plan::run(args, json),
        Command::Report(args) => report::run(args, json),
        Command::Calibrate(args) => calibrate::run(args, json),
        Command::Bench(args) => bench::run(args, json),
        Command::Study(args) => study::run(args, json),
        Command::Example(args) => example::run(args, json),
        Command::Float(args) => float::run(args, json),
        Command::Protocols => protocols::run(json),
        Command::Operators => Ok(operators(json)),
        Command::Completions(args) => shell::completions(args, Cli::command()),
        Command::Man(args) => shell::man(args, Cli::command()),
        Command::PairParty => pair_party().map(|()| ExitCode::SUCCESS),
        Command::Certs(args) => certs::run(args, json),
        Command::Party(args) => party::run(args, json),
        Command::Audit(args) => audit::run(args, json),
        Command::UploadModel(args) => upload::run(args, json),
        Command::UploadData(args) => upload::run_data(args, json),
        Command::Boost(args) => boost::run(args, json),
        Command::Indicators(args) => boost::indicators(args, json),
        Command::Predict(args) => predict::run(args, json),
        Command::Approve(args) => jobs::approve(args, json),
        Command::Jobs(args) => jobs::list(args, json),
        Command::Resume(args) => jobs::resume(args, json),
        Command::Stop(args) => jobs::stop(args, json),
        Command::Stored(args) => stored::list(args, json),
        Command::Allow(args) => stored::allow(args, json),
        Command::Remove(args) => stored::remove(args, json),
        Command::Offline(args) => offline::run(args, json),
        Command::Doctor(args) => doctor::run(args, json),
    }
}

/// Serves as one of two parties of the process at the other end of standard input, with any job
/// that there is.
///
/// # Errors
/// If that process makes no sense.
pub fn pair_party() -> Result<()> {
    let known: Vec<Known> = megrez_lab::JOBS.into_iter().chain([megrez::float32::JOB]).collect();
    megrez_service::pair::serve(&known)
}

#[cfg(test)]
mod tests {
    use super::*;
    use megrez::CompileRequest;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn without_options_a_request_is_the_default() {
        let cli = Cli::parse_from(["megrez", "infer", "--model", "m.onnx", "--input", "x.npy"]);
        let Command::Infer(args) = &cli.command else { panic!("another command") };
        assert_eq!(args.common.request, CompileRequest::default());
    }

    /// Python sends JSON: the same model under the same options is the same request, and so the
    /// same plan.
    #[test]
    fn options_and_json_say_the_same() {
        let line = "megrez infer --model m.onnx --input x.npy --protocol aby3 --net wan --offline-net lan --memory 512 --numbers fixed --ring 32 --frac 11 \
                    --activations fine --input-range -1,2 --range assume --declared r.toml --fit --calibration c.json --guard --list bits \
                    --widths 3,2 --bits 20 --cut 4 --form auto --keys 4096 --pool all-pairs --trees shape --weights public-int8 --mix --group 8 --threads 3";
        let Command::Infer(args) = Cli::parse_from(line.split_whitespace()).command else {
            panic!("another command")
        };
        let json = json!({ "protocol": "aby3", "net": "wan", "offline_net": "lan", "memory": 512, "numbers": "fixed", "ring": 32, "frac": 11,
            "activations": "fine", "input_range": [-1.0, 2.0], "input_ranges": {}, "ranges": "assume", "declared": "r.toml",
            "fit": true, "calibration": "c.json", "guard": true, "list": "bits", "widths": [3, 2], "bits": 20, "cut": 4, "form": "auto",
            "keys": 4096, "pool": "all-pairs", "trees": "shape", "weights": "public-int8", "mix": true, "group": 8, "threads": 3 });
        let options = json.as_object().map(serde_json::Map::len);
        assert_eq!(
            serde_json::to_value(CompileRequest::default()).unwrap().as_object().map(|o| o.len()),
            options
        );
        assert_eq!(serde_json::from_value::<CompileRequest>(json).unwrap(), args.common.request);
    }

    #[test]
    fn help_fits_two_screens() {
        let help = |name: &str| match Cli::try_parse_from(["megrez", name, "--help"]) {
            Err(help) => help.to_string(),
            Ok(_) => panic!("help is no command"),
        };
        for name in ["infer", "check", "generate", "demo", "upload-model"] {
            let help = help(name);
            // On a terminal of 100 columns.
            let lines: usize = help.lines().map(|line| line.chars().count().div_ceil(100).max(1)).sum();
            assert!(lines <= 100, "{name}: {lines} lines\n{help}");
        }
        let infer = help("infer");
        let headings = ["Numbers", "Ranges", "Steps of the protocol", "Floating point", "Parties", "Cluster"];
        for heading in headings {
            assert!(infer.contains(&format!("\n{heading}:\n")), "{heading} is not in {infer}");
        }
    }
}
