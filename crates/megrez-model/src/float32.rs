//! Floating-point programs that are recorded while they run, as `megrez.float32` in Python does:
//! tapes of operations, executed by parties on this machine, two or with a dealer three, or in the
//! clear. All give the same bits.
//!
//! Or by the parties of a cluster, for several clients who write the same tapes and bring inputs of
//! their own: [`Connection`].
//!
//! The caller writes tapes; nothing comes back but what it asks to be opened. Values stay with the
//! parties until forgotten, so a program can go on after some of it was opened.

mod joint;
mod messages;

pub use joint::Connection;
pub use messages::{Reply, Request};

use crate::float::Work;
use joint::Joint;
use megrez_float::programs::tape::{self, Entry, Machine, Name, Shape, Value};
use megrez_float::{Format, Plain};
use megrez_kernels::Cpu;
use megrez_net::NetProfile;
use megrez_service::pair::{Child, Known, Processes};
use megrez_service::protocols;
use megrez_service::{Error, ErrorKind, Result};
use megrez_session::{Party, Phase};
use megrez_twoparty::dealt::Dealt;
use megrez_twoparty::ot::Ots;
use megrez_twoparty::{Sirnn, Supplier};
use serde::Deserialize;
use std::collections::HashMap;
use std::time::Instant;

/// The name of the job.
const NAME: &str = "float32";

/// The job of the parties, for [`pair::serve`](megrez_service::pair::serve).
pub const JOB: Known = Known::dialogue(NAME, serve);

/// Whoever runs the tapes.
enum Place {
    Clear(Machine),
    Processes(Processes),
    Joint(Box<Joint>),
    /// A run failed; whatever was kept is gone.
    Gone,
}

/// Parties, or none, and what they hold.
pub struct Pair {
    place: Place,
    shapes: HashMap<Name, Shape>,
}

impl Pair {
    /// Nobody: everything in the clear, in this process.
    #[must_use]
    pub fn clear() -> Self {
        Self { place: Place::Clear(Machine::default()), shapes: HashMap::new() }
    }

    /// The parties of a protocol, each a process of this machine.
    ///
    /// # Errors
    /// If the protocol does not compute in floating point, or they cannot be started.
    pub fn processes(protocol: &str, net: &NetProfile) -> Result<Self> {
        let protocol = protocols::find(protocols::in_floats(protocol)?)?;
        let processes = Processes::start(NAME, protocol.parties, &Work::default(), net)?;
        Ok(Self { place: Place::Processes(processes), shapes: HashMap::new() })
    }

    /// The parties of a cluster, for this client and others.
    ///
    /// # Errors
    /// If a file is missing or wrong, or a party cannot be reached.
    pub fn connect(connection: Connection) -> Result<Self> {
        let joint = Joint::new(connection)?;
        Ok(Self { place: Place::Joint(Box::new(joint)), shapes: HashMap::new() })
    }

    /// Runs a tape and opens values.
    ///
    /// # Errors
    /// If the request makes no sense, and then nothing has run; or if the parties fail, and then
    /// they are gone.
    pub fn run(&mut self, request: Request) -> Result<Reply> {
        if matches!(self.place, Place::Gone) {
            return Err(Error::of(ErrorKind::PeerLost, "the parties have ended"));
        }
        self.check(&request)?;
        for name in &request.forget {
            self.shapes.remove(name);
        }
        match &mut self.place {
            Place::Clear(machine) => Ok(in_the_clear(machine, &request)),
            Place::Processes(processes) => {
                let reply = on_shares(processes, &request);
                if reply.is_err() {
                    self.place = Place::Gone;
                }
                reply
            }
            Place::Joint(joint) => {
                let reply = joint.run(request, &self.shapes);
                if reply.is_err() {
                    self.place = Place::Gone;
                }
                reply
            }
            Place::Gone => unreachable!("seen above"),
        }
    }

    /// Learns the shapes of a tape that makes sense.
    fn check(&mut self, request: &Request) -> Result<()> {
        let mut new: HashMap<Name, Shape> = HashMap::new();
        for (name, entry) in &request.tape {
            let of = |x: Name| new.get(&x).or_else(|| self.shapes.get(&x)).copied();
            let shape = tape::shape(entry, of).map_err(|e| Error::Refused(format!("entry {name}: {e}")))?;
            if let Entry::Input { owner, lanes } = entry {
                let given = request.numbers.get(name).map(Vec::len);
                let due = self.is_due(*owner, request)?.then_some(*lanes);
                if given != due {
                    let due = due.unwrap_or_default();
                    return Err(Error::Refused(format!("entry {name}: {due} numbers are due")));
                }
            }
            if self.shapes.contains_key(name) || new.insert(*name, shape).is_some() {
                return Err(Error::Refused(format!("entry {name}: the name is in use")));
            }
        }
        let mut asked = request.open.iter().chain(&request.forget);
        if let Some(name) = asked.find(|x| !new.contains_key(x) && !self.shapes.contains_key(x)) {
            return Err(Error::Refused(format!("there is no value {name}")));
        }
        self.shapes.extend(new);
        Ok(())
    }
}

impl Pair {
    /// Whether this process brings what `owner` owns.
    fn is_due(&self, owner: usize, request: &Request) -> Result<bool> {
        match &self.place {
            Place::Joint(joint) => {
                let name = request.clients.get(owner);
                let name = name.ok_or_else(|| Error::Refused(format!("there is no client {owner}")))?;
                Ok(name == joint.client())
            }
            _ if owner < 2 => Ok(true),
            _ => Err(Error::Refused(format!("there is no party {owner}"))),
        }
    }
}

fn in_the_clear(machine: &mut Machine, request: &Request) -> Reply {
    let start = Instant::now();
    let input = &mut |name, _| plain(&request.numbers[&name]).secret();
    megrez_float::in_the_clear(|b| machine.run(b, &request.tape, input));
    let seconds = start.elapsed().as_secs_f64();
    let opened = request.open.iter().map(|&name| machine.bits(name)).collect();
    request.forget.iter().for_each(|&name| machine.forget(name));
    Reply { opened, seconds, rounds: 0, sent_bytes: vec![0; 2] }
}

fn plain(bits: &[u32]) -> Plain {
    Plain::from_bits(Format::FLOAT32, &bits.iter().map(|&v| v.into()).collect::<Vec<_>>())
}

fn on_shares(processes: &mut Processes, request: &Request) -> Result<Reply> {
    let part = |party: usize| {
        let own =
            request.tape.iter().filter(|(_, e)| matches!(e, Entry::Input { owner, .. } if *owner == party));
        let numbers = own.map(|(name, _)| (*name, request.numbers[name].clone())).collect();
        Request { numbers, ..request.clone() }
    };
    processes.tell(&(0..processes.parties()).map(part).collect::<Vec<_>>())?;
    let replies: Vec<Reply> = processes.hear()?;
    // A dealer opens nothing.
    let [first, second, ..] = &replies[..] else { unreachable!("two parties or more") };
    if first.opened != second.opened {
        return Err(Error::of(ErrorKind::Internal, "the parties opened different values"));
    }
    Ok(Reply {
        opened: first.opened.clone(),
        seconds: replies.iter().fold(0.0, |most, r| r.seconds.max(most)),
        rounds: replies.iter().map(|r| r.rounds).max().unwrap_or_default(),
        sent_bytes: replies.iter().flat_map(|r| r.sent_bytes.clone()).collect(),
    })
}

/// A party's side: requests in, replies out, until there are no more.
fn serve(child: &mut Child, work: &serde_json::Value) -> Result<()> {
    let work = Work::deserialize(work).map_err(|e| Error::of(ErrorKind::Internal, e))?;
    let mut party = Party::start(child.network()?, Cpu::new(1))?;
    party.enter(Phase::Setup, 1);
    if party.parties() > 2 {
        return converse(child, Dealt::new(party)?);
    }
    let ots = Ots::set_up(&mut party, work.group)?;
    converse(child, Sirnn::new(party, ots).with_threads(work.threads as usize)?)
}

fn converse(child: &mut Child, mut b: impl Supplier) -> Result<()> {
    let mut machine = Machine::default();
    for run in 0.. {
        let Some(request) = child.hear::<Request>()? else { break };
        let reply = answer(&mut b, &mut machine, &request, run);
        child.tell(&reply)?;
        if reply.is_err() {
            break;
        }
    }
    Ok(())
}

fn answer(b: &mut impl Supplier, machine: &mut Machine, request: &Request, run: u32) -> Result<Reply> {
    b.enter(Phase::Online, run);
    b.party_mut().barrier("start")?;
    let before = sent(b);
    let start = Instant::now();
    let mut inputs = HashMap::new();
    for (name, entry) in &request.tape {
        let Entry::Input { owner, lanes } = entry else { continue };
        let mine = request.numbers.get(name).map(|bits| plain(bits));
        let shared = b.share(*owner, &name.to_string(), Format::FLOAT32, *lanes, mine.as_ref())?;
        inputs.insert(*name, shared);
    }
    let mut input = |name, _| inputs.remove(&name).expect("shared above");
    b.step("tape", |b| machine.run(b, &request.tape, &mut input))?;
    let seconds = start.elapsed().as_secs_f64();
    let sent = sent(b) - before;
    let rounds = b.party().rounds();
    b.enter(Phase::Output, run);
    let open = |name: &Name| -> Result<Vec<u32>> {
        Ok(match machine.value(*name) {
            Value::Float(x) => b.open(x)?.iter().flat_map(Plain::to_bits).map(|v| v as u32).collect(),
            Value::Bit(x) => b.open_bits(x)?.into_iter().flatten().map(u32::from).collect(),
        })
    };
    let opened = request.open.iter().map(open).collect::<Result<_>>()?;
    request.forget.iter().for_each(|&name| machine.forget(name));
    Ok(Reply { opened, seconds, rounds, sent_bytes: vec![sent] })
}

/// Payload bytes that this party has sent for tapes so far, to all others.
fn sent(b: &impl Supplier) -> u64 {
    let (meter, parties) = (b.party().meter(), b.party().parties());
    [Phase::Offline, Phase::Online].iter().flat_map(|&phase| meter.total(phase, parties)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn apply(op: &str, of: &[Name]) -> Entry {
        Entry::Apply { op: op.into(), of: of.to_vec() }
    }

    #[test]
    fn values_stay_until_forgotten() {
        let mut pair = Pair::clear();
        let bits = |v: &[f32]| v.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        let first = Request {
            tape: vec![(1, Entry::Input { owner: 0, lanes: 2 }), (2, apply("mul", &[1, 1]))],
            numbers: [(1, bits(&[3.0, -0.5]))].into(),
            ..Request::default()
        };
        assert!(pair.run(first.clone()).unwrap().opened.is_empty());
        let second = Request {
            tape: vec![(3, apply("add", &[1, 2]))],
            open: vec![3, 2],
            forget: vec![2],
            ..Request::default()
        };
        assert_eq!(pair.run(second).unwrap().opened, [bits(&[12.0, -0.25]), bits(&[9.0, 0.25])]);
        for (wrong, why) in [
            (first, "the name is in use"),
            (Request { open: vec![2], ..Request::default() }, "there is no value 2"),
            (Request { forget: vec![9], ..Request::default() }, "there is no value 9"),
            (Request { tape: vec![(5, apply("mul", &[1, 2]))], ..Request::default() }, "there is no value 2"),
            (
                Request { tape: vec![(5, Entry::Input { owner: 0, lanes: 1 })], ..Request::default() },
                "1 numbers are due",
            ),
        ] {
            let error = pair.run(wrong).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
