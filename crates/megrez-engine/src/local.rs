//! All parties of a session in one process, each in a thread, over links in memory: for tests, for
//! trying things out, and for exact costs under virtual time. One client owns every input and
//! learns every output.

use crate::client::{PartyPort, collect_where, provide};
use crate::clients::Clients;
use crate::serve::{Options, serve};
use crate::{PartyReport, Unsupported, check};
use megrez_kernels::Device;
use megrez_net::{ClockKind, NetProfile, Network, Payload};
use megrez_plan::{Input, KEPT, Output, Plan};
use megrez_protocols::AnySuite;
use megrez_session::{Error, Party, Tap};
use std::collections::HashMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// Ring elements of an input for a run.
pub type Inputs<'a> = dyn Fn(u32, &Input) -> Result<Vec<u64>, Error> + 'a;

/// How to run.
#[derive(Clone)]
pub struct LocalOptions {
    /// The network between the parties.
    pub net: NetProfile,
    /// Whether delays are waited for or reckoned.
    pub clock: ClockKind,
    /// How often to run the plan.
    pub runs: u32,
    /// The names of the inputs that last: shared in the first run, and held by the parties until
    /// the last.
    pub lasting: Vec<String>,
    /// Whether the material of a run is made while the one before goes on.
    pub streamed: bool,
    /// How long a party waits for another.
    pub timeout: Duration,
    /// Collects every message, for tests.
    pub tap: Option<Tap>,
}

impl Default for LocalOptions {
    fn default() -> Self {
        LocalOptions {
            net: NetProfile::loopback(),
            clock: ClockKind::Virtual,
            runs: 1,
            lasting: vec![],
            streamed: false,
            timeout: Duration::from_secs(60),
            tap: None,
        }
    }
}

impl LocalOptions {
    /// What parties and clients are told of it.
    pub(crate) fn of_runs(&self) -> Options<'_> {
        Options { runs: self.runs, lasting: &self.lasting, streamed: self.streamed }
    }
}

/// What came out.
pub struct LocalRun {
    /// Per run and output of the plan: the ring elements.
    pub outputs: Vec<Vec<Vec<u64>>>,
    /// Per run and party: what it measured.
    pub reports: Vec<Vec<PartyReport>>,
}

/// Why a local run failed.
#[derive(Debug, thiserror::Error)]
pub enum LocalError {
    /// No such protocol or ring.
    #[error("there is no protocol `{0}` on a ring of {1} bits; `megrez protocols` lists them")]
    Unknown(String, u32),
    /// The protocol lacks steps of the plan.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// A run failed.
    #[error(transparent)]
    Session(#[from] Error),
}

/// The protocol of this name, on the ring of 8 bits too. For tests of all crates: here every
/// protocol is compiled for the device of parties, once, since `megrez-service` takes what it finds
/// compiled (rustc shares generics between crates at opt-level 1).
#[cfg(feature = "testing")]
pub fn suite(protocol: &str, ring: u32) -> Option<Box<dyn AnySuite<megrez_device::AnyDevice>>> {
    megrez_protocols::registry::any_suite(protocol, ring)
}

/// Runs `plan` under `protocol` on the CPU; `inputs` are ring elements by input name. For tests.
#[cfg(feature = "testing")]
pub fn run(
    protocol: &str,
    plan: &Plan,
    inputs: &HashMap<String, Vec<u64>>,
    options: &LocalOptions,
) -> Result<LocalRun, LocalError> {
    let (devices, inputs) = (&[megrez_device::AnyDevice::default()], &given(inputs));
    let suite = suite(protocol, plan.ring);
    let suite = suite.ok_or_else(|| LocalError::Unknown(protocol.into(), plan.ring))?;
    LocalSession { devices, plan, inputs, progress: &|_| {}, options }.run(&*suite)
}

/// The same inputs in every run, by name.
#[cfg(feature = "testing")]
pub fn given(inputs: &HashMap<String, Vec<u64>>) -> impl Fn(u32, &Input) -> Result<Vec<u64>, Error> + '_ {
    |_, input| {
        let words = inputs.get(&input.name).cloned();
        words.ok_or_else(|| Error::Refused(format!("input `{}` was not given", input.name)))
    }
}

/// A plan with inputs of their own for every run, party i on device i of `devices`.
pub struct LocalSession<'a, D> {
    /// One device for all parties, or one for each.
    pub devices: &'a [D],
    /// What to run.
    pub plan: &'a Plan,
    /// Inputs of every run.
    pub inputs: &'a Inputs<'a>,
    /// Hears of every finished run.
    pub progress: &'a dyn Fn(u32),
    /// How.
    pub options: &'a LocalOptions,
}

impl<D: Device> LocalSession<'_, D> {
    /// Runs it under this suite.
    ///
    /// # Errors
    /// If the suite lacks a step, or a party fails.
    pub fn run(self, suite: &dyn AnySuite<D>) -> Result<LocalRun, LocalError> {
        check(suite, self.plan)?;
        let LocalSession { devices, plan, inputs, progress, options } = self;
        let part = |party: &mut Party<D>, clients: &mut dyn Clients| {
            serve(suite, plan, party, &mut HashMap::new(), None, clients, options.of_runs())
        };
        let client = |ports: &mut [&mut dyn PartyPort]| {
            let mut outputs = Vec::new();
            for run in 0..options.runs {
                let shares = |input: &Input| options.of_runs().shares(run, input);
                provide(suite, plan, &shares, &|input| inputs(run, input), ports)?;
                outputs.push(collect_where(suite, plan, &|o| o.recipient != KEPT, ports)?);
                progress(run);
            }
            Ok(outputs)
        };
        let (reports, outputs) = parties(suite.parties(), devices, options, part, client)?;
        let by_run = (0..options.runs as usize)
            .map(|run| reports.iter().map(|party| party[run].clone()).collect())
            .collect();
        Ok(LocalRun { outputs, reports: by_run })
    }
}

/// All parties of a session, each in a thread that does `part`, and the client who talks to all of
/// them, here: what the parties return, in order, and what the client does. Party i works on device
/// i of `devices`; a single device is everybody's.
pub(crate) fn parties<D: Device, T: Send, R>(
    count: usize,
    devices: &[D],
    options: &LocalOptions,
    part: impl Fn(&mut Party<D>, &mut dyn Clients) -> Result<T, Error> + Sync,
    client: impl FnOnce(&mut [&mut dyn PartyPort]) -> Result<R, Error>,
) -> Result<(Vec<T>, R), LocalError> {
    if devices.len() != 1 && devices.len() != count {
        let what = format!("{} devices for {} parties: give one, or one for each", devices.len(), count);
        return Err(Error::Refused(what).into());
    }
    let networks = Network::in_memory(count, &options.net, options.clock, options.timeout);
    std::thread::scope(|scope| {
        let mut ports = Vec::new();
        let mut running = Vec::new();
        for (network, device) in networks.into_iter().zip(devices.iter().cycle()) {
            let (port, mut clients) = pair();
            ports.push(port);
            let (part, device, tap) = (&part, device.clone(), options.tap.clone());
            running.push(scope.spawn(move || {
                let run = |clients: &mut dyn Clients| {
                    let mut party = Party::start(network.clone(), device)?;
                    if let Some(tap) = tap {
                        party.tap(tap);
                    }
                    part(&mut party, clients)
                };
                // A party that fails tells the others why.
                run(&mut clients).map_err(|e| match e {
                    Error::Net(e) if e.abort().is_some() => Error::Net(e),
                    e => Error::Net(network.fail(&e.to_string())),
                })
            }));
        }
        let mut refs: Vec<&mut dyn PartyPort> = ports.iter_mut().map(|p| p as &mut dyn PartyPort).collect();
        let result = match client(&mut refs) {
            // The client's own failure is what made the parties fail.
            Err(e) if !matches!(&e, Error::Refused(what) if what == GONE) => return Err(e.into()),
            result => result,
        };
        drop(ports);
        let returned: Result<Vec<T>, Error> =
            running.into_iter().map(|p| p.join().expect("a party does not panic")).collect();
        // A party's own reason says more than the client's "party went away".
        Ok((returned?, result?))
    })
}

/// The client's end.
pub(crate) struct Port {
    mask_keys: Receiver<Vec<u8>>,
    data: Sender<Payload>,
    outputs: Receiver<Payload>,
}

/// The party's end.
pub(crate) struct Ends {
    mask_keys: Sender<Vec<u8>>,
    data: Receiver<Payload>,
    outputs: Sender<Payload>,
}

pub(crate) fn pair() -> (Port, Ends) {
    let (key_in, key_out) = channel();
    let (data_in, data_out) = channel();
    let (output_in, output_out) = channel();
    let port = Port { mask_keys: key_out, data: data_in, outputs: output_out };
    (port, Ends { mask_keys: key_in, data: data_out, outputs: output_in })
}

pub(crate) const GONE: &str = "the other side of the run went away";

fn gone<E>(_: E) -> Error {
    Error::Refused(GONE.into())
}

impl PartyPort for Port {
    fn mask_key(&mut self) -> Result<Vec<u8>, Error> {
        self.mask_keys.recv().map_err(gone)
    }
    fn send(&mut self, share: Payload) -> Result<(), Error> {
        self.data.send(share).map_err(gone)
    }
    fn output(&mut self, _: usize) -> Result<Payload, Error> {
        self.outputs.recv().map_err(gone)
    }
}

impl Clients for Ends {
    fn mask_key(&mut self, _: &Input, mask_key: Vec<u8>) -> Result<(), Error> {
        self.mask_keys.send(mask_key).map_err(gone)
    }
    fn data(&mut self, _: &Input, _: usize) -> Result<Payload, Error> {
        self.data.recv().map_err(gone)
    }
    fn output(&mut self, _: &Output, share: Payload) -> Result<(), Error> {
        self.outputs.send(share).map_err(gone)
    }
}
