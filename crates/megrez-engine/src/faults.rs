//! Fault cases: whatever bit flips of what a party keeps between sessions, the party notices before
//! it computes with it.
//!
//! A plan's inputs and outputs are kept in shares, as the weights of an uploaded model and the
//! state of a language model are, and its material is made ahead, by all parties of a session in
//! this process. Then bits are flipped, one at a time, and each damaged copy is read as the service
//! would read it.

use crate::client::{PartyPort, provide};
use crate::clients::Clients;
use crate::inputs::Stored;
use crate::local::{LocalError, LocalOptions, parties};
use crate::serve::{Options, serve};
use crate::store::{self, BatchId, Binding, Id};
use crate::walk::offline;
use megrez_kernels::Device;
use megrez_plan::{Input, KEPT, Kind, Plan};
use megrez_prg::Key;
use megrez_protocols::{AnySuite, AnyValue};
use megrez_session::{Error, Party};

/// How many damaged copies of something were read, and how many of them were taken for whole.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Tried {
    /// Copies with one flipped bit.
    pub flips: usize,
    /// Those that were not refused.
    pub missed: usize,
}

impl std::iter::Sum for Tried {
    fn sum<I: Iterator<Item = Tried>>(all: I) -> Tried {
        all.fold(Tried::default(), |a, b| Tried { flips: a.flips + b.flips, missed: a.missed + b.missed })
    }
}

/// What came of the fault cases of a plan.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Faults {
    /// Material made ahead.
    pub material: Tried,
    /// Inputs kept in shares.
    pub inputs: Tried,
    /// Outputs kept in shares.
    pub outputs: Tried,
}

/// Flips up to `most` bits, spread evenly from the first to the last, of each thing that each party
/// keeps of a plan. Fails if the protocol lacks a step of the plan, or if what is whole is refused.
pub struct Examine<'a, D> {
    /// The name of the protocol.
    pub protocol: &'a str,
    /// What is kept of.
    pub plan: &'a Plan,
    /// How many bits of each thing.
    pub most: usize,
    /// Everybody's.
    pub device: D,
}

impl<D: Device> Examine<'_, D> {
    /// Does it, under this suite.
    ///
    /// # Errors
    /// As said above.
    pub fn run(self, suite: &dyn AnySuite<D>) -> Result<Faults, LocalError> {
        crate::check(suite, self.plan)?;
        let Examine { protocol, plan, most, device } = self;
        let devices = [device];
        let kept = |plan: &Plan| -> Result<Tried, LocalError> {
            let part = |party: &mut Party<D>, clients: &mut dyn Clients| {
                let mut stored = Stored::new();
                serve(suite, plan, party, &mut stored, None, clients, Options::default())?;
                stored.values().map(|value| kept_value(suite, party.device(), value, most)).sum()
            };
            let bits = |input: &Input| bits(plan.value(input.value).shape.elements());
            let client = |ports: &mut [&mut dyn PartyPort]| provide(suite, plan, &|_| true, &bits, ports);
            let (tried, ()) = parties(suite.parties(), &devices, &LocalOptions::default(), part, client)?;
            Ok(tried.into_iter().sum())
        };
        let made = |party: &mut Party<D>, _: &mut dyn Clients| material(suite, protocol, plan, party, most);
        let (made, ()) = parties(suite.parties(), &devices, &LocalOptions::default(), made, |_| Ok(()))?;
        let (inputs, outputs) = (kept(&inputs_of(plan))?, kept(&outputs_of(plan))?);
        Ok(Faults { material: made.into_iter().sum(), inputs, outputs })
    }
}

/// Values that are in the range of whatever reads them.
fn bits(n: usize) -> Result<Vec<u64>, Error> {
    let words = Key::random().map_err(|e| Error::Randomness(e.to_string()))?.stream().words(n);
    Ok(words.iter().map(|word| word & 1).collect())
}

fn kept_value<D: Device>(
    suite: &dyn AnySuite<D>,
    device: &D,
    value: &AnyValue,
    most: usize,
) -> Result<Tried, Error> {
    let bytes = store::encode_value(suite, device, value).map_err(refuse)?;
    flip(&bytes, most, |bytes| store::decode_value(suite, device, bytes).is_some())
}

fn refuse(e: impl std::fmt::Display) -> Error {
    Error::Refused(e.to_string())
}

/// Plans whose inputs, and whose outputs, stay with the parties.
fn inputs_of(plan: &Plan) -> Plan {
    let mut kept = Plan::new(plan.ring);
    for input in &plan.inputs {
        let value = plan.value(input.value);
        if let Kind::Ring { frac } = value.kind {
            let value = kept.input(&input.name, "owner", value.shape.clone(), frac);
            kept.output(&input.name, KEPT, value);
        }
    }
    kept
}

fn outputs_of(plan: &Plan) -> Plan {
    let mut kept = plan.clone();
    kept.inputs.iter_mut().for_each(|input| input.owner = "owner".into());
    kept.outputs.iter_mut().for_each(|output| output.recipient = KEPT.into());
    kept
}

fn material<D: Device>(
    suite: &dyn AnySuite<D>,
    protocol: &str,
    plan: &Plan,
    party: &mut Party<D>,
    most: usize,
) -> Result<Tried, Error> {
    party.barrier("material")?;
    let prepared = offline(suite, plan, party, 0, &|_| None, &mut vec![])?;
    let (batch, preparation) = (BatchId::default(), Id::default());
    let binding =
        Binding { batch, party: party.me(), stock: false, protocol, client: "owner", upload: None, plan };
    let bytes = store::encode(suite, party.device(), &binding, &preparation, &prepared).map_err(refuse)?;
    flip(&bytes, most, |bytes| store::decode(suite, party.device(), &binding, &preparation, bytes).is_ok())
}

/// Reads copies of `whole` with one bit flipped each.
fn flip(whole: &[u8], most: usize, read: impl Fn(&[u8]) -> bool) -> Result<Tried, Error> {
    if !read(whole) {
        return Err(Error::Refused("what is whole is taken for damaged".into()));
    }
    let bits = whole.len() * 8;
    let mut copy = whole.to_vec();
    let mut tried = Tried::default();
    let flips = most.min(bits);
    for number in 0..flips {
        let bit = number * (bits - 1) / (flips - 1).max(1);
        copy[bit / 8] ^= 1 << (bit % 8);
        tried.flips += 1;
        tried.missed += usize::from(read(&copy));
        copy[bit / 8] ^= 1 << (bit % 8);
    }
    Ok(tried)
}
