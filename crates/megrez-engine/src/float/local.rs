//! All parties in one process, each in a thread.

use super::{FloatInputs, collect_floats, provide_floats, serve_floats};
use crate::PartyReport;
use crate::client::PartyPort;
use crate::clients::Clients;
use crate::local::{LocalError, LocalOptions, parties};
use megrez_kernels::Cpu;
use megrez_plan::{FloatPlan, Input};
use megrez_session::Party;
use std::collections::HashMap;

/// What came out: per run and output the numbers, per run and party what it measured.
pub struct FloatRun {
    /// The outputs, for whomever they are.
    pub outputs: Vec<Vec<Vec<f32>>>,
    /// The reports.
    pub reports: Vec<Vec<PartyReport>>,
}

/// Runs a plan between threads: two, or three with a dealer. One client owns every input and learns
/// every output.
///
/// # Errors
/// If the inputs do not fit the plan, or a party fails.
pub fn run_floats(
    count: usize,
    plan: &FloatPlan,
    inputs: &FloatInputs<'_>,
    progress: &dyn Fn(u32),
    options: &LocalOptions,
) -> Result<FloatRun, LocalError> {
    let part = |party: &mut Party<Cpu>, clients: &mut dyn Clients| {
        serve_floats(plan, party.clone(), &HashMap::new(), clients, options.of_runs())
    };
    let client = |ports: &mut [&mut dyn PartyPort]| {
        let one = |run: u32| {
            let shared = |input: &Input| options.of_runs().shares(run, input);
            provide_floats(plan, &shared, &|input| inputs(run, input), ports)?;
            let outputs = collect_floats(plan, ports)?;
            progress(run);
            Ok(outputs)
        };
        (0..options.runs).map(one).collect::<Result<Vec<_>, _>>()
    };
    let (reports, outputs) = parties(count, &[Cpu::new(1)], options, part, client)?;
    let by_run = |run: usize| reports.iter().map(|party| party[run].clone()).collect();
    Ok(FloatRun { outputs, reports: (0..options.runs as usize).map(by_run).collect() })
}
