//! `--report FILE.html` of the commands that run something, and `megrez report`, which makes the
//! same page of what they printed.

use clap::Args;
use megrez::{Disclosure, Error, ErrorKind, Model, Result, Roles};
use megrez_report::Parts;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Where a page goes.
#[derive(Args)]
pub(crate) struct Page {
    /// Write a page about this run here: its cost, whom it tells what, the model's ranges. The page
    /// holds no inputs, weights or outputs.
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,
}

impl Page {
    /// Writes it, if the caller wants one. `client` gives model and data, and learns the outputs.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write(&self, model: Option<(&Model, &str, &str)>, parts: &Parts<'_>) -> Result<()> {
        let Some(file) = &self.report else { return Ok(()) };
        let about = model.map(|(model, protocol, client)| -> Result<(Value, Value)> {
            let roles =
                Roles { model_owner: client.into(), data_owner: client.into(), recipient: client.into() };
            Ok((json!(Disclosure::of(model, protocol, &roles)?), model.layers()))
        });
        let about = about.transpose()?;
        let (disclosure, layers) = (about.as_ref().map(|a| &a.0), about.as_ref().map(|a| &a.1));
        save(file, &Parts { disclosure, layers, ..*parts })
    }
}

#[derive(Args)]
pub(crate) struct Report {
    /// What `megrez infer --json` or `megrez demo --json` printed.
    run: PathBuf,
    /// What an earlier run printed, to compare with.
    #[arg(long, value_name = "FILE.json")]
    before: Option<PathBuf>,
    /// What `megrez check --json` printed: the accuracy of every layer.
    #[arg(long, value_name = "FILE.json")]
    check: Option<PathBuf>,
    /// Where the page goes.
    #[arg(long, default_value = "report.html")]
    output: PathBuf,
}

pub(crate) fn run(args: &Report, json: bool) -> Result<ExitCode> {
    let run = load(&args.run)?;
    let before = args.before.as_deref().map(load).transpose()?;
    let check = args.check.as_deref().map(load).transpose()?;
    if let (Some(file), Some(check)) = (&args.check, &check)
        && check["schema"] != "megrez.check/1"
    {
        return Err(Error::file(file, "this is no report of `megrez check --json`"));
    }
    let check = check.as_ref().map(|check| &check["layers"]);
    save(&args.output, &Parts { run: Some(&run), before: before.as_ref(), check, ..Parts::default() })?;
    match json {
        true => println!("{}", json!({ "schema": "megrez.report/1", "file": args.output })),
        false => println!("{}", args.output.display()),
    }
    Ok(ExitCode::SUCCESS)
}

fn load(file: &Path) -> Result<Value> {
    let text = std::fs::read(file).map_err(|e| Error::file(file, e))?;
    serde_json::from_slice(&text).map_err(|e| Error::file(file, format!("this is no JSON: {e}")))
}

fn save(file: &Path, parts: &Parts<'_>) -> Result<()> {
    let page = megrez_report::page(parts).map_err(|e| Error::of(ErrorKind::Invalid, e))?;
    std::fs::write(file, page).map_err(|e| Error::file(file, e))
}
