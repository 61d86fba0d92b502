//! `megrez bench table`: a table of a paper.

use crate::options::PartiesKind;
use crate::outcome::verdict;
use clap::Args;
use clap::builder::PossibleValuesParser;
use megrez::{DeviceChoice, Error, Result};
use megrez_lab::tables;
use megrez_net::NetProfile;
use std::io::IsTerminal;
use std::process::ExitCode;

#[derive(Args)]
pub(crate) struct BenchTable {
    /// The table.
    #[arg(value_parser = PossibleValuesParser::new(tables::TABLES.iter().map(|t| t.name)))]
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

pub(crate) fn run(args: &BenchTable, json: bool) -> Result<ExitCode> {
    let table = tables::table(&args.name)
        .ok_or_else(|| Error::Refused(format!("there is no table `{}`", args.name)))?;
    let choice = tables::Choice {
        only: args.only.clone(),
        nets: args.net.clone(),
        large: args.large,
        repeat: if args.quick { 1 } else { 3 },
        processes: args.parties == PartiesKind::Process,
        devices: args.device.clone(),
        seed: args.seed,
    };
    let watched = std::io::stderr().is_terminal();
    let report = tables::run(table, &choice, &|row| {
        if watched {
            eprintln!("{row}");
        }
    })?;
    match json {
        true => println!("{report}"),
        false => print!("{}", tables::text(&report)),
    }
    Ok(verdict(tables::verified(&report)))
}
