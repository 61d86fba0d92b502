//! Running a plan somewhere: on parties of this machine, on threads of this process, or on a
//! cluster.

use crate::client::{Cluster, Inputs, Outcome, RunOptions};
use crate::embedded::{self, Parties};
use crate::launch::Program;
use crate::protocols::find;
use crate::wire::Source;
use crate::{Error, ErrorKind, Result};
use megrez_device::{AnyDevice, DeviceChoice};
use megrez_engine::float::{FloatInputs, FloatRun, run_floats};
use megrez_engine::local::{LocalOptions, run_on};
use megrez_net::ClockKind;
use megrez_plan::{FloatPlan, Plan};
use std::time::Duration;

/// Where parties run.
pub enum Backend {
    /// Processes on this machine, over TLS.
    Processes(Parties, Cluster),
    /// Threads of this process, over memory: party i on device i, or all on the only one.
    Threads(Vec<AnyDevice>),
    /// As threads, on the processor; delays of the network are reckoned, not waited for.
    Simulated,
    /// A cluster of parties that run elsewhere.
    Remote(Cluster),
}

impl Backend {
    /// Threads of this process, on the processor.
    pub fn threads() -> Self {
        Backend::Threads(vec![AnyDevice::default()])
    }

    /// Starts parties for a protocol, on one device or on one for each.
    pub fn processes(program: impl Into<Program>, protocol: &str, devices: &[DeviceChoice]) -> Result<Self> {
        let parties = find(protocol)?.parties;
        if parties < 2 {
            return Err(Error::Refused(format!("`{protocol}` has one party: run it with --parties thread")));
        }
        let parties = Parties::start(program, parties, devices)?;
        let cluster = parties.connect()?;
        Ok(Backend::Processes(parties, cluster))
    }

    /// The name under which this client owns inputs and learns outputs.
    pub fn client(&self) -> &str {
        match self {
            Backend::Processes(_, cluster) | Backend::Remote(cluster) => cluster.name(),
            Backend::Threads(_) | Backend::Simulated => embedded::CLIENT,
        }
    }

    /// Runs a plan whose inputs and outputs are all this client's.
    pub fn run(
        &mut self,
        plan: &Plan,
        options: &RunOptions,
        inputs: &Inputs<'_>,
        progress: &dyn Fn(u32),
    ) -> Result<Outcome> {
        let protocol = find(&options.protocol)?;
        if protocol.insecure && !options.insecure {
            return Err(Error::of(
                ErrorKind::NotPermitted,
                format!(
                    "`{}` does not protect the data ({}); say `--insecure` if that is what you want",
                    protocol.name, protocol.security
                ),
            ));
        }
        match self {
            Backend::Processes(_, cluster) | Backend::Remote(cluster) => {
                cluster.run(plan, Source::Plan(plan.to_bytes()), options, &|_| true, inputs, progress)
            }
            Backend::Threads(devices) => {
                in_threads(devices, plan, options, inputs, progress, ClockKind::Real)
            }
            Backend::Simulated => {
                in_threads(&[AnyDevice::default()], plan, options, inputs, progress, ClockKind::Virtual)
            }
        }
    }

    /// Runs a plan of floating point whose inputs and outputs are all this client's.
    ///
    /// # Errors
    /// If a party refuses or fails.
    pub fn run_floats(
        &mut self,
        plan: &FloatPlan,
        options: &RunOptions,
        inputs: &FloatInputs<'_>,
        progress: &dyn Fn(u32),
    ) -> Result<FloatRun> {
        match self {
            Backend::Processes(_, cluster) | Backend::Remote(cluster) => {
                let source = Source::Plan(plan.to_bytes());
                cluster.run_floats(plan, source, options, &|_| true, inputs, progress)
            }
            Backend::Threads(_) | Backend::Simulated => {
                let parties = find(&options.protocol)?.parties;
                let clock = match self {
                    Backend::Simulated => ClockKind::Virtual,
                    _ => ClockKind::Real,
                };
                Ok(run_floats(parties, plan, inputs, progress, &local(options, clock))?)
            }
        }
    }
}

fn in_threads(
    devices: &[AnyDevice],
    plan: &Plan,
    options: &RunOptions,
    inputs: &Inputs<'_>,
    progress: &dyn Fn(u32),
    clock: ClockKind,
) -> Result<Outcome> {
    let run = run_on(devices, &options.protocol, plan, inputs, progress, &local(options, clock))?;
    Ok(Outcome { outputs: run.outputs, reports: run.reports })
}

/// Threads run as long as it takes.
fn local(options: &RunOptions, clock: ClockKind) -> LocalOptions {
    LocalOptions {
        net: options.net.clone(),
        clock,
        runs: options.runs,
        lasting: options.lasting.clone(),
        timeout: Duration::from_secs(3600),
        tap: None,
    }
}
