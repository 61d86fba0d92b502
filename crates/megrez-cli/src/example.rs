//! `megrez example`: floating point at work.

use crate::outcome::verdict;
use clap::{Args, Subcommand};
use megrez::protocols::in_floats;
use megrez::{Result, Work};
use megrez_lab::{proximity, relevance};
use megrez_net::NetProfile;
use std::process::ExitCode;

#[derive(Subcommand)]
pub(crate) enum Example {
    /// Whether points on Earth are near each other, in floating point between two processes that do
    /// not tell theirs, or three, one of which deals.
    Proximity(Proximity),
    /// A network whose numbers spread too far for fixed point, there and in floating point.
    Relevance(Relevance),
}

#[derive(Args)]
pub(crate) struct Proximity {
    /// The protocol: secfloat, or with a dealer mizar, aby3 or alkaid.
    #[arg(long, default_value = "secfloat")]
    protocol: String,
    /// 1: each party knows a point; 2: both points are shared.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=2))]
    scenario: u8,
    /// How many pairs of points.
    #[arg(long, default_value_t = 1000)]
    tests: usize,
    /// The distance in metres below which two points are near.
    #[arg(long, default_value_t = 500.0)]
    metres: f64,
    /// Bits of a group of the OT extension, 1, 2, 4 or 8: more is fewer bytes and more work. Or
    /// silent: the fewest for large runs.
    #[arg(long, default_value_t = 4, value_parser = megrez::request::group_bits)]
    group: u32,
    /// The network between the parties: loopback, lan, wan, or RTT,RATE such as 20ms,500mbps.
    #[arg(long, default_value = "loopback")]
    net: NetProfile,
    /// Seed of the points, never of shares.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Args)]
pub(crate) struct Relevance {
    /// How many users' features.
    #[arg(long, default_value_t = 1)]
    users: usize,
    /// Seed of weights and features, never of shares.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Bits of a group of the OT extension, 1, 2, 4 or 8, or silent.
    #[arg(long, default_value_t = 4, value_parser = megrez::request::group_bits)]
    group: u32,
}

pub(crate) fn run(example: &Example, json: bool) -> Result<ExitCode> {
    match example {
        Example::Proximity(args) => {
            let tests = proximity::Proximity {
                protocol: in_floats(&args.protocol)?.into(),
                scenario: args.scenario,
                tests: args.tests,
                metres: args.metres,
                group: args.group,
                net: args.net.clone(),
                seed: args.seed,
            };
            let report = proximity::run(&tests, true)?;
            print!("{}", if json { format!("{report}\n") } else { proximity::text(&report) });
            Ok(verdict(report["verified"] == true))
        }
        Example::Relevance(args) => {
            let default = Work::default();
            let threads = if args.group == 0 { 1 } else { default.threads };
            let work = Work { group: args.group, threads };
            let report = relevance::relevance(args.users, args.seed, work)?;
            print!("{}", if json { format!("{report}\n") } else { relevance::relevance_text(&report) });
            Ok(ExitCode::SUCCESS)
        }
    }
}
