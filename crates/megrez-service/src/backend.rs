//! Running a plan somewhere: on parties of this machine, on threads of this process, or on a
//! cluster.

use crate::client::{Cluster, Inputs, Outcome, RunOptions};
use crate::embedded::{self, Parties};
use crate::launch::Program;
use crate::party::capacity::machine_mib;
use crate::protocols::{find, suite};
use crate::wire::Source;
use crate::{Error, ErrorKind, Result};
use megrez_device::{AnyDevice, DeviceChoice};
use megrez_engine::float::{FloatInputs, FloatRun, run_floats};
use megrez_engine::local::{LocalOptions, LocalSession};
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
        if !matches!(self, Backend::Remote(_)) {
            fits(plan, protocol.parties, machine_mib())?;
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

/// Refuses a plan whose inputs alone do not fit this machine's memory: each of its parties holds
/// two words of every number (the one of `clear` one), weights for as long as the session lasts.
fn fits(plan: &Plan, parties: usize, has_mib: Option<u64>) -> Result<()> {
    let elements = plan.inputs.iter().map(|input| plan.value(input.value).shape.elements() as u64);
    let bytes =
        u64::from(plan.ring.next_power_of_two() / 8) * if parties > 1 { 2 * parties as u64 } else { 1 };
    let mib = elements.fold(0, u64::saturating_add).saturating_mul(bytes) >> 20;
    match has_mib {
        Some(has) if mib > has => Err(Error::Refused(format!(
            "shares of the model's weights and data take {} GiB with all parties on this machine, which has {}: run the parties              on machines of their own (--cluster), or use a smaller model",
            mib.div_ceil(1 << 10),
            has >> 10
        ))),
        _ => Ok(()),
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
    let (protocol, options) = (&options.protocol, &local(options, clock));
    let session = LocalSession { devices, plan, inputs, progress, options };
    let run = session.run(&*suite(protocol, plan.ring)?)?;
    Ok(Outcome { outputs: run.outputs, reports: run.reports })
}

/// Threads run as long as it takes.
fn local(options: &RunOptions, clock: ClockKind) -> LocalOptions {
    LocalOptions {
        net: options.net.clone(),
        clock,
        runs: options.runs,
        lasting: options.lasting.clone(),
        streamed: options.streamed,
        timeout: Duration::from_secs(3600),
        tap: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_that_do_not_fit_the_machine_are_refused() {
        // As many weights as TinyLlama has, in one value.
        let mut plan = Plan::new(64);
        let x = plan.input("w", "owner", [1_100_048_384].into(), 16);
        plan.output("y", "owner", x);
        let refused = fits(&plan, 3, Some(32 << 10)).unwrap_err().to_string();
        assert!(refused.contains("50 GiB") && refused.contains("--cluster"), "{refused}");
        assert!(fits(&plan, 1, Some(32 << 10)).is_ok());
        assert!(fits(&plan, 3, Some(64 << 10)).is_ok() && fits(&plan, 3, None).is_ok());
        // Nothing is started, nothing is asked of anybody.
        let none: &Inputs<'_> = &|_, _| unreachable!("it is refused before");
        let mut many = Plan::new(64);
        let x = many.input("w", "owner", [1 << 46].into(), 16);
        many.output("y", "owner", x);
        let Err(refused) = Backend::threads().run(&many, &RunOptions::new("mizar"), none, &|_| {}) else {
            panic!("shares of 2^46 numbers fit")
        };
        assert!(refused.to_string().contains("GiB"));
    }
}
