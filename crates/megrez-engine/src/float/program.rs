//! Recorded programs of several clients: each brings inputs of its own, and some learn outputs.
//! Every client writes the same program down, and the parties run it once all have brought the
//! same, by its hash.

use super::serve::SetUp;
use crate::client::PartyPort;
use crate::clients::Clients;
use crate::report::{Measured, PartyReport, StepReport};
use megrez_float::programs::tape::{self, Entry, Machine, Name, Shape, Value};
use megrez_float::{Float, Plain, on};
use megrez_kernels::{Device, Memory};
use megrez_plan::{Input, MAX_THREADS, Output, ValueId};
use megrez_prg::Key;
use megrez_session::{Error, Party, Phase};
use megrez_twoparty::client::{join, share_bytes, split};
use megrez_twoparty::dealt::{DEALER, Dealt, costing};
use megrez_twoparty::ot::Ots;
use megrez_twoparty::{Sirnn, Supplier};
use serde::de::{Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::time::Instant;

/// Most clients of a program.
pub const MAX_CLIENTS: usize = 16;
/// Most entries of a program.
pub const MAX_ENTRIES: usize = 1 << 20;
/// Most references of a program: operands of its entries, and clients of its openings.
pub const MAX_REFERENCES: usize = 1 << 22;
/// A program in memory has at most so many times its bytes as it travels, rounded up: an entry of
/// two bytes takes 40.
const PARSED: u64 = 24;

/// A program: a tape, whose entry i has the name i, and who brings and learns what.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Program {
    /// The names of all who take part, in an order that they have agreed on.
    #[serde(deserialize_with = "names")]
    pub clients: Vec<String>,
    /// The entries, in an order in which they can run; the owner of an input is a place in
    /// `clients`.
    #[serde(deserialize_with = "tape_of")]
    pub tape: Vec<Entry>,
    /// What is opened.
    #[serde(deserialize_with = "openings")]
    pub outputs: Vec<Opening>,
    /// Bits of a group of the OT extension: 1, 2, 4 or 8.
    pub group: u32,
    /// Threads of each party, 1 to [`MAX_THREADS`].
    pub threads: u32,
}

/// Numbers that somebody learns.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Opening {
    /// Which.
    pub value: Name,
    /// Who: places in the program's clients.
    pub to: Vec<usize>,
}

fn names<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<String>, D::Error> {
    d.deserialize_seq(AtMost { items: MAX_CLIENTS, references: 0, of: |_: &String| 0 })
}

fn tape_of<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<Entry>, D::Error> {
    let of = |entry: &Entry| entry.operands().len();
    d.deserialize_seq(AtMost { items: MAX_ENTRIES, references: MAX_REFERENCES, of })
}

fn openings<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<Opening>, D::Error> {
    d.deserialize_seq(AtMost { items: MAX_ENTRIES, references: MAX_REFERENCES, of: |o: &Opening| o.to.len() })
}

/// Takes in a sequence while it has not too many items, nor these too many references: a program
/// may come from anywhere.
struct AtMost<T> {
    items: usize,
    references: usize,
    of: fn(&T) -> usize,
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for AtMost<T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at most {} items with {} references", self.items, self.references)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<T>, A::Error> {
        let (mut items, mut left) = (vec![], Some(self.references));
        while let Some(item) = seq.next_element()? {
            left = left.and_then(|left| left.checked_sub((self.of)(&item)));
            if items.len() == self.items || left.is_none() {
                return Err(A::Error::invalid_length(items.len() + 1, &self));
            }
            items.push(item);
        }
        Ok(items)
    }
}

impl Program {
    /// Checks everything that running it relies on: the program may come from anywhere. Its values
    /// and openings may have `most` numbers together. Returns the shapes of the entries.
    ///
    /// # Errors
    /// What is wrong, and at which entry.
    pub fn check(&self, most: usize) -> Result<Vec<Shape>, String> {
        let count = self.clients.len();
        let names: HashSet<&String> = self.clients.iter().collect();
        if !(1..=MAX_CLIENTS).contains(&count) || names.len() != count {
            return Err(format!("a program has 1 to {MAX_CLIENTS} clients of different names"));
        }
        let silent = self.group == 0 && self.threads == 1;
        if !silent && ![1, 2, 4, 8].contains(&self.group) || !(1..=MAX_THREADS).contains(&self.threads) {
            return Err(format!(
                "groups of OTs have 1, 2, 4 or 8 bits, parties 1 to {MAX_THREADS} threads; silent OTs (0) one"
            ));
        }
        if self.tape.len() > MAX_ENTRIES {
            return Err(format!("a program has at most {MAX_ENTRIES} entries"));
        }
        let mut left = most;
        let mut take = |lanes: usize| {
            left = left.checked_sub(lanes).ok_or_else(|| format!("more than {most} numbers altogether"))?;
            Ok::<_, String>(())
        };
        let mut shapes: Vec<Shape> = vec![];
        for (name, entry) in self.tape.iter().enumerate() {
            let at = |e: String| format!("entry {name}: {e}");
            if let Entry::Input { owner, .. } = entry
                && *owner >= count
            {
                return Err(at(format!("there is no client {owner}")));
            }
            let of = |x: Name| shapes.get(usize::try_from(x).ok()?).copied();
            let shape = tape::shape(entry, of).map_err(at)?;
            if shape.lanes == 0 {
                return Err(at("no numbers".into()));
            }
            take(shape.lanes).map_err(at)?;
            shapes.push(shape);
        }
        for Opening { value, to } in &self.outputs {
            let shape = usize::try_from(*value).ok().and_then(|value| shapes.get(value));
            let numbers = shape.filter(|shape| !shape.truth);
            let shape = numbers.ok_or_else(|| format!("there are no numbers {value} to open"))?;
            let different: HashSet<usize> = to.iter().copied().collect();
            if to.is_empty() || different.len() < to.len() || to.iter().any(|&client| client >= count) {
                return Err(format!("value {value} is for nobody, or for one client twice"));
            }
            to.iter().try_for_each(|_| take(shape.lanes))?;
        }
        if self.outputs.is_empty() {
            return Err("nothing is opened".into());
        }
        Ok(shapes)
    }

    /// Bytes that a party holds at most while it runs: every value with what a step needs for it,
    /// and the program of so many bytes itself, twice.
    #[must_use]
    pub fn memory(shapes: &[Shape], bytes: usize) -> u64 {
        let lanes = shapes.iter().fold(0u64, |all, shape| all.saturating_add(shape.lanes as u64));
        lanes.saturating_mul(256).saturating_add(2 * PARSED * bytes as u64)
    }

    /// Bytes that a dealer sends for it at most: as if every lane went alone. It is had from the
    /// shapes and the cost of one lane of every operation, however many lanes and entries there
    /// are.
    ///
    /// # Panics
    /// If the program is not [checked](Self::check), or the shapes are another's.
    #[must_use]
    pub fn dealt(&self, shapes: &[Shape]) -> u64 {
        let mut known: HashMap<&str, u64> = HashMap::new();
        let mut all = 0u64;
        for (entry, shape) in self.tape.iter().zip(shapes) {
            let (key, lanes) = match entry {
                Entry::Sum { of, .. } => ("sum", shapes[*of as usize].lanes),
                Entry::FusedSum { of, .. } => ("fused-sum", shapes[*of as usize].lanes),
                Entry::Dot { of, .. } => ("dot", shapes[of[0] as usize].lanes),
                _ => (entry.key().unwrap_or_default(), shape.lanes),
            };
            if !key.is_empty() {
                let lane = *known.entry(key).or_insert_with(|| lane_cost(key, entry.operands().len()));
                all = all.saturating_add(lane.saturating_mul(lanes as u64));
            }
        }
        all
    }

    /// How many numbers clients give each party that computes, and how many it gives them,
    /// altogether.
    #[must_use]
    pub fn exchanged(&self, shapes: &[Shape]) -> [u64; 2] {
        let lanes = |value: Name| shapes[value as usize].lanes as u64;
        let given = self.inputs().map(|(.., lanes)| lanes as u64);
        [given.sum(), self.outputs.iter().map(|o| lanes(o.value) * o.to.len() as u64).sum()]
    }

    /// The inputs of a client, or of all: places on the tape, owners and lanes.
    fn inputs(&self) -> impl Iterator<Item = (usize, usize, usize)> {
        self.tape.iter().enumerate().filter_map(|(place, entry)| match entry {
            Entry::Input { owner, lanes } => Some((place, *owner, *lanes)),
            _ => None,
        })
    }

    fn numbered(&self) -> Vec<(Name, Entry)> {
        (0..).zip(self.tape.iter().cloned()).collect()
    }
}

/// What a dealer sends for one lane of the entries of a key.
fn lane_cost(key: &str, operands: usize) -> u64 {
    let entry = match key {
        "sum" => Entry::Sum { of: 0, lanes: 1 },
        "fused-sum" => Entry::FusedSum { of: 0, lanes: 1 },
        "dot" => Entry::Dot { of: [0, 0], lanes: 1 },
        "and" => Entry::And(2, 2),
        "choose" => Entry::Choose { bit: 2, yes: 1, no: 1 },
        // Of different operands: a square is cheaper than a product.
        op => Entry::Apply { op: op.into(), of: [1, 4][..operands].to_vec() },
    };
    let input = |lanes| Entry::Input { owner: 0, lanes };
    let known = Entry::Known(vec![true]);
    let tape = [(0, input(2)), (1, input(1)), (4, input(1)), (2, known), (3, entry)];
    let mut b = costing::Costing::default();
    let mut zeros = |_, lanes: usize| {
        Float::public(&costing::Costing::default(), &Plain::from_f32(&vec![0.0; lanes])).secret()
    };
    let Ok(()) = on(&mut b, |b| Machine::default().run(b, &tape, &mut zeros));
    b.cost.dealt
}

/// Shares what client `me` brings with the parties that compute: `numbers` by places on the tape.
///
/// # Errors
/// If an input has not as many numbers as the program says, or a party is lost.
pub fn provide_program(
    program: &Program,
    me: usize,
    numbers: &HashMap<usize, Vec<f32>>,
    parties: &mut [&mut dyn PartyPort],
) -> Result<(), Error> {
    for (place, _, lanes) in program.inputs().filter(|(_, owner, _)| *owner == me) {
        let given = numbers.get(&place).filter(|given| given.len() == lanes);
        let given = given.ok_or_else(|| Error::Refused(format!("entry {place}: {lanes} numbers are due")))?;
        let key = Key::random().map_err(|e| Error::Refused(format!("no randomness: {e}")))?;
        for (party, share) in parties.iter_mut().zip(split(given, &key)) {
            party.send(share)?;
        }
    }
    Ok(())
}

/// Learns what is opened to client `me`, in the program's order; `shapes` are the entries'.
///
/// # Errors
/// If a party is lost, or a share has not the right size.
pub fn collect_program(
    program: &Program,
    shapes: &[Shape],
    me: usize,
    parties: &mut [&mut dyn PartyPort],
) -> Result<Vec<Vec<f32>>, Error> {
    let mut opened = vec![];
    for output in program.outputs.iter().filter(|output| output.to.contains(&me)) {
        let n = shapes[output.value as usize].lanes;
        let shares =
            parties.iter_mut().take(2).map(|p| p.output(share_bytes(n))).collect::<Result<Vec<_>, _>>()?;
        let shares = shares
            .try_into()
            .map_err(|_| Error::Refused("floating point takes two parties that compute".into()))?;
        opened.push(join(&shares, n)?);
    }
    Ok(opened)
}

/// Runs a [checked](Program::check) program at this party, once the parties have agreed on it. On
/// an error the caller ends the session with it.
///
/// # Errors
/// If a client is lost or gives a wrong share, or the session breaks.
pub fn serve_program<D: Device>(
    program: &Program,
    mut party: Party<D>,
    clients: &mut dyn Clients,
) -> Result<PartyReport, Error> {
    party.enter(Phase::Setup, 1);
    let start = Instant::now();
    if party.parties() > 2 {
        let set_up = SetUp::new(start, &party);
        return run(program, Dealt::new(party)?, &set_up, clients);
    }
    let ots = Ots::set_up(&mut party, program.group)?;
    let set_up = SetUp::new(start, &party);
    let b = Sirnn::new(party, ots).with_threads(program.threads as usize)?;
    run(program, b, &set_up, clients)
}

fn run<S: Supplier>(
    program: &Program,
    mut b: S,
    set_up: &SetUp,
    clients: &mut dyn Clients,
) -> Result<PartyReport, Error> {
    let mut measured = Measured::default();
    let before = b.party().device().usage()?;
    b.party().meter().reset();

    let start = Instant::now();
    b.enter(Phase::Input, 0);
    let mut inputs: HashMap<Name, Float> = HashMap::new();
    for (place, owner, lanes) in program.inputs() {
        let share = match b.party().me() {
            DEALER => None,
            _ => {
                let (name, owner) = (format!("entry {place}"), program.clients[owner].clone());
                let input = Input { name, owner, value: ValueId(place as u32) };
                Some(clients.data(&input, share_bytes(lanes))?)
            }
        };
        inputs.insert(place as Name, b.accept(share.as_ref(), lanes)?);
    }
    measured.close(Phase::Input, start, b.party());

    b.party_mut().barrier("online")?;
    let start = Instant::now();
    b.enter(Phase::Online, 0);
    let mut machine = Machine::default();
    b.step("tape", |b| {
        let mut input = |name, _| inputs.remove(&name).expect("shared above");
        machine.run(b, &program.numbered(), &mut input)
    })?;
    measured.steps.push(StepReport::new(Phase::Online, "tape", (start, start.elapsed()), b.party()));
    measured.close(Phase::Online, start, b.party());

    let start = Instant::now();
    b.enter(Phase::Output, 0);
    for Opening { value, to } in &program.outputs {
        let Value::Float(numbers) = machine.value(*value) else { unreachable!("was checked") };
        let Some(share) = b.reveal(numbers) else { continue };
        for &client in to {
            let name = format!("entry {value}");
            let recipient = program.clients[client].clone();
            clients.output(&Output { name, recipient, value: ValueId(*value as u32) }, share.clone())?;
        }
    }
    measured.close(Phase::Output, start, b.party());
    Ok(set_up.added_to(measured.report(b.party(), before)?))
}
