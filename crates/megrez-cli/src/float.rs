//! `megrez float`: how good floating point is, measured in the clear. On shares it is the same, bit
//! for bit.

use clap::{Args, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use megrez::{Error, Result};
use megrez_float::accuracy::pairs::{self, PRIMITIVES, Primitive};
use megrez_float::accuracy::{self, FUNCTIONS, Function};
use serde_json::json;
use std::process::ExitCode;
use std::time::Instant;

/// What to measure.
#[derive(Subcommand)]
pub(crate) enum Float {
    /// A math function on all 2^32 single-precision inputs, against MPFR.
    Exhaustive(Exhaustive),
    /// A primitive on structured and random pairs, against this processor.
    Pairs(Pairs),
}

/// Options of `megrez float exhaustive`.
#[derive(Args)]
pub(crate) struct Exhaustive {
    /// The function.
    function: String,
    /// Threads [default: all].
    #[arg(long)]
    threads: Option<usize>,
}

/// Options of `megrez float pairs`.
#[derive(Args)]
pub(crate) struct Pairs {
    /// The primitive.
    op: String,
    /// How many pairs.
    #[arg(long, default_value_t = 1_000_000_000)]
    count: u64,
    /// Threads [default: all].
    #[arg(long)]
    threads: Option<usize>,
}

pub(crate) fn run(command: &Float, json: bool) -> Result<ExitCode> {
    let text = match command {
        Float::Exhaustive(args) => exhaustive(args, json)?,
        Float::Pairs(args) => check_pairs(args, json)?,
    };
    print!("{text}");
    Ok(ExitCode::SUCCESS)
}

fn threads(asked: Option<usize>) -> usize {
    asked.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from))
}

fn bar(length: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:40} {percent}% {per_sec}, {eta} left");
    ProgressBar::new(length).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

fn unknown(what: &str, name: &str, known: impl Iterator<Item = &'static str>) -> Error {
    let known: Vec<_> = known.collect();
    Error::Refused(format!("no {what} `{name}`; there are {}", known.join(", ")))
}

fn exhaustive(args: &Exhaustive, json: bool) -> Result<String> {
    let function = Function::named(&args.function)
        .ok_or_else(|| unknown("function", &args.function, FUNCTIONS.iter().map(|f| f.name)))?;
    let bar = bar(1 << 32);
    let report = accuracy::exhaustive(function, threads(args.threads), |n| bar.inc(n))
        .map_err(|e| Error::Refused(e.to_string()))?;
    bar.finish_and_clear();
    let input = report.worst.input;
    Ok(if json {
        let line = json!({
            "schema": "megrez.float/1",
            "function": function.name,
            "inputs": report.inputs,
            "max_ulp": report.worst.ulp,
            "argmax_hex": format!("{input:08x}"),
            "seconds": report.seconds,
        });
        format!("{line}\n")
    } else {
        format!(
            "{}: {} inputs, at most {:.6} ULP, at {:08x} ({:e}); {:.0} s\n",
            function.name,
            report.inputs,
            report.worst.ulp,
            input,
            f32::from_bits(input),
            report.seconds
        )
    })
}

fn check_pairs(args: &Pairs, json: bool) -> Result<String> {
    let primitive = Primitive::named(&args.op)
        .ok_or_else(|| unknown("primitive", &args.op, PRIMITIVES.iter().map(|p| p.name)))?;
    let (bar, start) = (bar(args.count), Instant::now());
    let (wrong, one) = pairs::check(primitive, args.count, threads(args.threads), |n| bar.inc(n));
    bar.finish_and_clear();
    if let Some((x, y)) = one {
        return Err(Error::Refused(format!(
            "{wrong} of {} pairs are wrong, such as {x:08x}, {y:08x}",
            args.count
        )));
    }
    let seconds = start.elapsed().as_secs_f64();
    Ok(if json {
        let line = json!({
            "schema": "megrez.float-pairs/1",
            "op": primitive.name,
            "pairs": args.count,
            "wrong": wrong,
            "seconds": seconds,
        });
        format!("{line}\n")
    } else {
        format!("{}: {} pairs, all as this processor has them; {seconds:.0} s\n", primitive.name, args.count)
    })
}
