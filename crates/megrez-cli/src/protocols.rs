//! `megrez protocols`: what there is, and what it costs.

use megrez::protocols::{FLOAT_PROTOCOLS, cost};
use megrez::{Result, RunOptions};
use megrez_lab::bench::{BenchOptions, op_plan, price_rows};
use megrez_protocols::registry;
use megrez_session::Phase;
use serde_json::json;
use std::process::ExitCode;

/// The operations that `megrez protocols` prices, as benches name them.
const PRICED: &[&str] = &[
    "mul",
    "fixed-mul",
    "truncate",
    "sign-bit",
    "compare-many",
    "winner",
    "relu",
    "maxpool",
    "select",
    "and",
    "bit-to-ring",
    "sigmoid",
    "gelu",
];

pub(crate) fn run(json: bool) -> Result<ExitCode> {
    let mut rows = Vec::new();
    for protocol in registry::PROTOCOLS {
        let mut ops = Vec::new();
        for ring in [32, 64] {
            for op in PRICED {
                let frac = if ring == 32 { 10 } else { 16 };
                let options = BenchOptions {
                    ring,
                    frac,
                    batch: 64 * 3 * 5 * 7 * 11,
                    ..BenchOptions::new(RunOptions::new(protocol.name))
                };
                let plan = op_plan(op, "x", &options)?;
                let Ok(cost) = cost(protocol.name, &plan) else { continue };
                let n = options.batch as f64;
                // An empty sum of floating-point numbers is −0.
                let bits = |phase| cost.bits(phase) / n + 0.0;
                let rounds = cost.rounds(Phase::Online);
                ops.push(json!({
                    "op": op,
                    "ring": ring,
                    "bits_per_element": {
                        "offline": bits(Phase::Offline),
                        "online": bits(Phase::Online),
                    },
                    "rounds": rounds,
                }));
            }
        }
        rows.push(json!({ "protocol": protocol, "operations": ops }));
    }
    rows.extend(
        FLOAT_PROTOCOLS.iter().map(|p| json!({ "protocol": p, "operations": price_rows(p.parties) })),
    );
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
        "bits are totals over all parties per output element; select, and, bit-to-ring include the comparison that makes the bit; compare-many has three thresholds; winner is the largest of ten values whose differences have eight bits"
    );
    Ok(ExitCode::SUCCESS)
}
