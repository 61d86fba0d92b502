//! Both parties in one process, each in a thread.

use super::{FloatInputs, collect_floats, provide_floats, serve_floats};
use crate::PartyReport;
use crate::client::PartyPort;
use crate::local::{GONE, LocalOptions, pair};
use megrez_kernels::Cpu;
use megrez_net::Network;
use megrez_plan::{FloatPlan, Input};
use megrez_session::{Error, Party};
use std::collections::HashMap;

/// What came out: per run and output the numbers, per run and party what it measured.
pub struct FloatRun {
    /// The outputs, for whomever they are.
    pub outputs: Vec<Vec<Vec<f32>>>,
    /// The reports.
    pub reports: Vec<Vec<PartyReport>>,
}

/// Runs a plan between two threads. One client owns every input and learns every output.
///
/// # Errors
/// If the inputs do not fit the plan, or a party fails.
pub fn run_floats(
    plan: &FloatPlan,
    inputs: &FloatInputs<'_>,
    progress: &dyn Fn(u32),
    options: &LocalOptions,
) -> Result<FloatRun, Error> {
    let networks = Network::in_memory(2, &options.net, options.clock, options.timeout);
    std::thread::scope(|scope| {
        let (mut ports, mut parties) = (vec![], vec![]);
        for network in networks {
            let (port, mut ends) = pair();
            ports.push(port);
            parties.push(scope.spawn(move || {
                let mut run = || {
                    let mut party = Party::start(network.clone(), Cpu::new(1))?;
                    if let Some(tap) = options.tap.clone() {
                        party.tap(tap);
                    }
                    serve_floats(plan, party, &mut HashMap::new(), &mut ends, options.of_runs())
                };
                // A party that fails tells the other one why.
                run().map_err(|e| match e {
                    Error::Net(e) if e.abort().is_some() => Error::Net(e),
                    e => Error::Net(network.fail(&e.to_string())),
                })
            }));
        }
        let client = |ports: &mut Vec<_>| -> Result<Vec<Vec<Vec<f32>>>, Error> {
            let mut ports: Vec<&mut dyn PartyPort> =
                ports.iter_mut().map(|p| p as &mut dyn PartyPort).collect();
            let one = |run: u32| {
                let shared = |input: &Input| options.of_runs().shares(run, input);
                provide_floats(plan, &shared, &|input| inputs(run, input), &mut ports)?;
                let outputs = collect_floats(plan, &mut ports)?;
                progress(run);
                Ok(outputs)
            };
            (0..options.runs).map(one).collect()
        };
        let outputs = client(&mut ports);
        drop(ports);
        let reports: Result<Vec<Vec<PartyReport>>, Error> =
            parties.into_iter().map(|p| p.join().expect("a party does not panic")).collect();
        // The client's own failure made the parties fail; otherwise a party's reason says more.
        if let Err(Error::Refused(what)) = &outputs
            && what != GONE
        {
            return Err(Error::Refused(what.clone()));
        }
        let reports = reports?;
        let by_run = |run: usize| reports.iter().map(|party| party[run].clone()).collect();
        Ok(FloatRun { outputs: outputs?, reports: (0..options.runs as usize).map(by_run).collect() })
    })
}
