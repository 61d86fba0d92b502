//! `megrez audit`: what a party has written down of who asked it for what.

use clap::{Args, Subcommand};
use megrez::Result;
use megrez_service::audit;
use serde_json::json;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Subcommand)]
pub(crate) enum Audit {
    /// Go through a party's audit log: nothing was changed, removed or put in, or where.
    Verify(Verify),
}

#[derive(Args)]
pub(crate) struct Verify {
    /// The log, `audit.jsonl` in the party's data folder.
    file: PathBuf,
    /// What an earlier `verify` gave as the head, kept elsewhere: the log must still hold that
    /// line. Without it nobody can tell whether the end is missing, or everything is new.
    #[arg(long, value_name = "HASH")]
    head: Option<String>,
}

pub(crate) fn run(args: &Audit, json: bool) -> Result<ExitCode> {
    let Audit::Verify(args) = args;
    let found = audit::verify(&args.file, args.head.as_deref())?;
    let held = args.head.is_none() || found.found.is_some();
    if json {
        let mut report = json!(found);
        report["schema"] = json!("megrez.audit-check/1");
        report["whole"] = json!(held);
        println!("{report}");
    } else {
        println!(
            "{} lines, each follows from the one before it; {} were cut off by a crash",
            found.lines, found.cut
        );
        match (&args.head, found.found) {
            (Some(_), Some(line)) => println!("the line that was kept is line {line}"),
            (Some(head), None) => println!("no line is {head}: lines are missing, or this is another log"),
            (None, _) => {}
        }
        println!("head: {}", found.head);
    }
    Ok(crate::outcome::verdict(held))
}
