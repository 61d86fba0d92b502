//! What the three parties' devices share: the labels that were drawn, who holds them, what was
//! sent, and what each party's rest depends on.

use super::deps::Deps;
use super::form::{Map, Rows, Run, Symbols, Term, Unit};
use crate::mutation::{Address, Mutation};
use megrez_plan::Plan;
use megrez_prg::{Key, Stream};
use megrez_session::{Name, Phase, Probe};
use std::any::Any;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Where labels come from.
pub(super) enum Source {
    /// A stream, uniform.
    Stream,
    /// An input of this owner: no mask to anybody.
    Input(String),
    /// The sum of two masked lists: uniform but for one zero at a uniform place with probability
    /// one half, *if* the draws named here are uniform, unknown to the receiver and in nothing else
    /// that it sees (lemma L, docs/security/mizar.md).
    List(Vec<u32>),
    /// The words of a comparison key: uniform, *if* one of the two draws of roots named here is
    /// uniform, unknown to the receiver and in nothing else that it sees (lemma K,
    /// docs/security/keys.md).
    Key([u32; 2]),
}

/// A draw.
pub(super) struct Draw {
    pub name: String,
    pub source: Source,
    /// Bit i: party i holds it.
    pub holders: u8,
    /// One past the last bit address.
    pub end: u64,
    /// The number of the whole draw in [`Deps`].
    pub id: u32,
    /// Of a stream between parties: its address, and how many elements were drawn.
    pub address: Option<Address>,
    pub elements: usize,
}

/// What a number in [`Deps`] means.
pub(super) struct Part {
    pub draw: u32,
    pub range: (u64, u64),
}

/// A message, or an output's share on its way to a client.
pub(super) struct Message {
    pub name: Name,
    /// The client who gets it, for outputs.
    pub client: Option<(String, String)>,
    pub rows: Arc<Rows>,
}

#[derive(Default)]
pub(super) struct State {
    pub draws: Vec<Draw>,
    pub parts: Vec<Part>,
    part_of: HashMap<(u32, u64, u64), u32>,
    by_key: HashMap<[u32; 8], u32>,
    names: HashMap<[u32; 8], (Address, u8)>,
    /// The key that two streams have in common, once it is known.
    common: Option<[u8; 32]>,
    /// Streams that repeat themselves.
    weak: HashMap<[u32; 8], Weak>,
    lists: HashMap<Vec<u32>, u32>,
    keys: HashMap<[u32; 2], u32>,
    pub messages: Vec<Message>,
    under_way: HashMap<Name, Box<dyn Any + Send + Sync>>,
    /// What each party gives to the host because it has been sent, as soon as it comes to that:
    /// steps run beside each other.
    sending: [Vec<Arc<Rows>>; 3],
    /// The steps of each session's plan by name, with their places in its order.
    steps: Vec<HashMap<String, usize>>,
    /// What a device could not follow: the check fails with it.
    pub trouble: Vec<String>,
}

/// When a message is sent, as far as that follows from the plan: in which run, in which phase, for
/// which step.
pub(super) type Step = (u32, Phase, usize);

/// How a stream repeats itself.
#[derive(Clone, Copy)]
enum Weak {
    One,
    Fold(usize),
}

impl State {
    /// The step of a message.
    pub fn step(&self, message: usize) -> Step {
        let name = &self.messages[message].name;
        let mut place = name.place.as_str();
        let steps = &self.steps[(name.run / RUNS) as usize];
        loop {
            match (steps.get(place), place.rfind('/')) {
                (Some(&step), _) => return (name.run, name.phase, step),
                (None, Some(end)) => place = &place[..end],
                (None, None) => return (name.run, name.phase, 0),
            }
        }
    }

    fn draw(&mut self, name: String, source: Source, holders: u8) -> u32 {
        let (draw, id) = (self.draws.len() as u32, self.parts.len() as u32);
        self.parts.push(Part { draw, range: (0, u64::MAX) });
        self.draws.push(Draw { name, source, holders, end: 0, id, address: None, elements: 0 });
        draw
    }

    /// The number of a range of labels.
    fn part(&mut self, draw: u32, (from, to): (u64, u64)) -> u32 {
        let whole = &self.draws[draw as usize];
        if from == 0 && to >= whole.end {
            return whole.id;
        }
        let next = self.parts.len() as u32;
        let id = *self.part_of.entry((draw, from, to)).or_insert(next);
        if id == next {
            self.parts.push(Part { draw, range: (from, to) });
        }
        id
    }
}

/// See the module.
pub(super) struct World {
    state: Mutex<State>,
    /// A deliberate fault.
    mutation: Option<Mutation>,
}

/// The key words of a stream that gives zeros: no party agrees on it.
pub(super) const ZEROS: [u8; 32] = [0; 32];

/// More runs than a session has: those of the next session are counted from here on.
pub(super) const RUNS: u32 = 1 << 16;

impl World {
    /// Of sessions with these plans, one after the other.
    pub fn new(plans: &[&Plan], mutation: Option<Mutation>) -> Self {
        let steps =
            |plan: &&Plan| plan.steps.iter().enumerate().map(|(at, step)| (step.name.clone(), at)).collect();
        let steps = plans.iter().map(steps).collect();
        World { state: Mutex::new(State { steps, ..State::default() }), mutation }
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `n` labels of a stream for party `me`, each `stride` bits from the next.
    pub fn random(&self, me: usize, stream: &Stream, unit: Unit, n: usize) -> Rows {
        self.drawn(stream.key_words(), 1 << me, unit, n)
    }

    /// As [`World::random`], for a client with a key: `n` ring elements.
    pub fn drawn_by_client(&self, key: &Key, n: usize) -> Rows {
        self.drawn(&key_words(key), 0, Unit::Word, n)
    }

    fn drawn(&self, key: &[u32; 8], holders: u8, unit: Unit, n: usize) -> Rows {
        if *key == key_words(&Key::from_bytes(ZEROS)) {
            return Rows::new(unit, vec![Run::zero(n)]);
        }
        let draw = self.draw(key, holders, n as u64 * u64::from(stride(unit)));
        let weak = {
            let mut state = self.state();
            state.draws[draw as usize].elements = n;
            state.weak.get(key).copied()
        };
        let term = |map| Term { draw, start: 0, stride: stride(unit), map, coeff: 1 };
        let run = |len, map| Run { len, terms: vec![term(map)], deps: Deps::default() };
        let runs = match weak {
            None => vec![run(n, Map::Each)],
            Some(Weak::One) => vec![run(n, Map::Group(u32::MAX))],
            Some(Weak::Fold(parts)) => (0..parts).map(|_| run(n / parts, Map::Each)).collect(),
        };
        Rows::new(unit, runs)
    }

    /// The draw under a key; its labels reach to `end`.
    fn draw(&self, key: &[u32; 8], holders: u8, end: u64) -> u32 {
        let mut state = self.state();
        let draw = match state.by_key.get(key) {
            Some(&draw) => draw,
            None => {
                let (address, known) = match state.names.get(key) {
                    Some((address, known)) => (Some(address.clone()), *known),
                    None => (None, 0),
                };
                let name = address.as_ref().map_or_else(|| "a client's key".into(), ToString::to_string);
                let draw = state.draw(name, Source::Stream, known);
                state.draws[draw as usize].address = address;
                state.by_key.insert(*key, draw);
                draw
            }
        };
        let of = &mut state.draws[draw as usize];
        of.holders |= holders;
        of.end = of.end.max(end);
        draw
    }

    /// A secret input: one number for all its elements.
    pub fn input(&self, name: &str, owner: &str) -> Deps {
        let mut state = self.state();
        let draw = state.draw(format!("input `{name}`"), Source::Input(owner.into()), 0);
        Deps::one(state.draws[draw as usize].id)
    }

    /// The list that these draws mask.
    pub fn list(&self, draws: Vec<u32>, end: u64) -> u32 {
        let mut state = self.state();
        if let Some(&list) = state.lists.get(&draws) {
            return list;
        }
        let name = format!("list of {}", state.draws[draws[0] as usize].name);
        let list = state.draw(name, Source::List(draws.clone()), 0);
        state.draws[list as usize].end = end;
        state.lists.insert(draws, list);
        list
    }

    /// The comparison keys from these roots; their words are `end` bits.
    pub fn key(&self, roots: [u32; 2], end: u64) -> u32 {
        let mut state = self.state();
        if let Some(&key) = state.keys.get(&roots) {
            return key;
        }
        let name = format!("key of {}", state.draws[roots[0] as usize].name);
        let key = state.draw(name, Source::Key(roots), 0);
        state.draws[key as usize].end = end;
        state.keys.insert(roots, key);
        key
    }

    /// Anything that is computed from these buffers.
    pub fn rest(&self, inputs: &[&Rows]) -> Deps {
        let runs = inputs.iter().flat_map(|rows| &rows.runs);
        runs.fold(Deps::default(), |deps, run| deps.union(&self.rest_of(run)))
    }

    /// Anything that is computed from a run.
    pub fn rest_of(&self, run: &Run) -> Deps {
        let mut deps = run.deps.clone();
        if !run.terms.is_empty() {
            let mut state = self.state();
            for term in &run.terms {
                deps.insert(state.part(term.draw, term.range(run.len)) as usize);
            }
        }
        deps
    }

    /// Says that a check cannot be trusted, and why.
    pub fn trouble(&self, what: String) {
        self.state().trouble.push(what);
    }

    /// A share of an output on its way to its recipient.
    pub fn reveal(&self, name: Name, client: &str, output: &str, rows: Arc<Rows>) {
        let client = Some((client.to_owned(), output.to_owned()));
        self.state().messages.push(Message { name, client, rows });
    }
}

fn stride(unit: Unit) -> u32 {
    if unit == Unit::Bit { 1 } else { 64 }
}

pub(super) fn key_words(key: &Key) -> [u32; 8] {
    *key.stream().key_words()
}

/// A buffer whatever its elements: its rows, and a copy.
fn copied(buffer: &dyn Any) -> Option<(Arc<Rows>, Box<dyn Any + Send + Sync>)> {
    fn of<T: Send + 'static>(buffer: &dyn Any) -> Option<(Arc<Rows>, Box<dyn Any + Send + Sync>)> {
        let symbols = buffer.downcast_ref::<Symbols<T>>()?;
        Some((symbols.rows.clone(), Box::new(symbols.clone()) as Box<dyn Any + Send + Sync>))
    }
    of::<u64>(buffer).or_else(|| of::<u32>(buffer)).or_else(|| of::<u16>(buffer)).or_else(|| of::<u8>(buffer))
}

/// One session in the world: what it sends is told apart from what others send under the same name.
pub(super) struct Session {
    pub world: Arc<World>,
    pub number: u32,
}

impl Session {
    fn name(&self, name: &Name) -> Name {
        Name { run: self.number * RUNS + name.run, ..name.clone() }
    }
}

impl Probe for Session {
    fn stream(&self, name: &Name, key: Key) -> Key {
        self.world.stream(name, key)
    }

    fn sent(&self, name: &Name, buffer: &dyn Any) {
        self.world.sent(&self.name(name), buffer);
    }

    fn received(&self, name: &Name) -> Option<Box<dyn Any>> {
        self.world.received(&self.name(name))
    }
}

impl World {
    fn stream(&self, name: &Name, key: Key) -> Key {
        let [a, b] = name.parties;
        let address = Address {
            parties: [a.min(b), a.max(b)],
            phase: format!("{:?}", name.phase),
            place: name.place.clone(),
            purpose: name.label.clone(),
        };
        let mut state = self.state();
        let (key, weak) = match &self.mutation {
            Some(Mutation::Zeros(of)) if *of == address => (Key::from_bytes(ZEROS), None),
            Some(Mutation::Same(one, other)) if [one, other].contains(&&address) => {
                (Key::from_bytes(*state.common.get_or_insert(*key.expose())), None)
            }
            Some(Mutation::Again(of)) if *of == address => {
                (Key::from_bytes(*state.common.get_or_insert(*key.expose())), None)
            }
            Some(Mutation::One(of)) if *of == address => (key, Some(Weak::One)),
            Some(Mutation::Fold(of, parts)) if *of == address => (key, Some(Weak::Fold(*parts))),
            _ => (key, None),
        };
        let holders = 1 << a | 1 << b;
        let words = key_words(&key);
        if let Some(weak) = weak {
            state.weak.insert(words, weak);
        }
        state.names.entry(words).or_insert((address, 0)).1 |= holders;
        if let Some(&draw) = state.by_key.get(&words) {
            state.draws[draw as usize].holders |= holders;
        }
        key
    }

    fn sent(&self, name: &Name, buffer: &dyn Any) {
        let Some((rows, copy)) = copied(buffer) else {
            return self.trouble(format!("{}/{} sends what is no buffer of symbols", name.place, name.label));
        };
        let mut state = self.state();
        state.under_way.insert(name.clone(), copy);
        if let Some(sending) = state.sending.get_mut(name.parties[0]) {
            sending.push(rows.clone());
        }
        state.messages.push(Message { name: name.clone(), client: None, rows });
    }

    fn received(&self, name: &Name) -> Option<Box<dyn Any>> {
        self.state().under_way.remove(name).map(|copy| copy as Box<dyn Any>)
    }

    /// Whether a party gives this to the host because it has just been sent.
    pub fn is_sent(&self, party: usize, rows: &Arc<Rows>) -> bool {
        let mut state = self.state();
        let Some(sending) = state.sending.get_mut(party) else { return false };
        let place = sending.iter().position(|sent| Arc::ptr_eq(sent, rows));
        place.map(|place| sending.swap_remove(place)).is_some()
    }

    /// Words that an owner sends to a party.
    pub fn received_input(&self, name: Name, rows: Rows) {
        self.state().messages.push(Message { name, client: None, rows: Arc::new(rows) });
    }
}
