//! All randomness of a session, made by hand: a draw is known by who asks for what where, and its
//! value in a lane is a digit of the lane's number, or a hash of it.
//!
//! A session works on tensors whose elements are *lanes*: element e of a tensor of shape [k, lanes]
//! belongs to lane e mod lanes. Every lane is an execution of its own, with its own secret and its
//! own randomness.

use megrez_prg::Key;
use megrez_session::{Name, Probe};
use std::collections::hash_map::{DefaultHasher, Entry};
use std::collections::{BTreeMap, HashMap};
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex};

/// What is known of a draw.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Draw {
    /// Values are in [0, domain).
    pub domain: u64,
    /// How many values a lane takes.
    pub count: usize,
    /// The parties that hold the stream, as bits.
    pub holders: u8,
}

/// One value of a draw in every lane: the draw's name and the place.
pub type Variable = (String, usize);

/// How a variable gets its values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// A hash of the lane.
    Random,
    /// A hash of the lane's block: the same for all lanes that are compared with each other.
    Block,
    /// A digit of the lane's number in its block.
    Digit {
        /// The product of the domains of the digits below.
        stride: usize,
    },
}

/// A protection taken away.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mutation {
    /// The draw's name.
    pub draw: String,
    /// What it gives instead.
    pub kind: Kind,
}

/// What a mutated draw gives.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Zeros.
    Zero,
    /// The values of another draw.
    SameAs(String),
    /// Place q gets the value of place q mod `period`: one value for all thresholds, or for both
    /// halves.
    Repeat {
        /// The period.
        period: usize,
    },
    /// Place q gets the value of place q − q mod `run`: one value for neighbouring elements.
    Stretch {
        /// The run.
        run: usize,
    },
}

/// The values of all draws in all lanes.
#[derive(Clone, Debug)]
pub struct Assignment {
    /// Lanes that differ; lanes past them repeat.
    pub total: usize,
    /// Lanes of one secret in one block.
    pub unknowns: usize,
    /// How many secrets; a lane's is a digit above the unknowns, or random.
    pub secrets: usize,
    /// Whether a lane's secret is random.
    pub random_secret: bool,
    /// Of variables; one that is not there is random.
    pub sources: HashMap<Variable, Source>,
    /// Added to every value of these variables.
    pub bumps: HashMap<Variable, u64>,
    /// These variables are drawn again.
    pub redrawn: HashMap<Variable, u64>,
    /// What distinguishes this assignment's hashes from others.
    pub salt: u64,
    /// The lane's number is moved by so much.
    pub offset: usize,
}

impl Assignment {
    /// Everything random.
    pub fn random(lanes: usize, secrets: usize, salt: u64) -> Self {
        Assignment {
            total: lanes,
            unknowns: 1,
            secrets,
            random_secret: true,
            sources: HashMap::new(),
            bumps: HashMap::new(),
            redrawn: HashMap::new(),
            salt,
            offset: 0,
        }
    }

    /// Which execution a lane is.
    fn number(&self, lane: usize) -> usize {
        (lane + self.offset) % self.total
    }

    /// Which secret a lane has.
    pub fn secret(&self, lane: usize) -> usize {
        let lane = self.number(lane);
        if self.random_secret {
            return (mix(lane as u64 ^ 0x5ec7_e700 ^ self.salt << 20) % self.secrets as u64) as usize;
        }
        lane / self.unknowns % self.secrets
    }

    /// A variable in every lane.
    fn values(&self, name: &str, place: usize, domain: u64, lanes: usize, out: &mut Vec<u8>) {
        let variable = (name.to_owned(), place);
        let mut hasher = DefaultHasher::new();
        (name, place).hash(&mut hasher);
        let id = hasher.finish();
        let source = self.sources.get(&variable).copied().unwrap_or(Source::Random);
        let bump = self.bumps.get(&variable).copied().unwrap_or(0);
        let salt = mix(self.salt ^ mix(self.redrawn.get(&variable).copied().unwrap_or(0))) ^ id;
        let value = |lane: usize| {
            let number = self.number(lane);
            let base = match source {
                Source::Random => mix(salt ^ mix(number as u64)),
                Source::Block => mix(salt ^ mix((number / (self.unknowns * self.secrets)) as u64)),
                Source::Digit { stride } => (number % self.unknowns / stride) as u64,
            };
            ((base % domain + bump) % domain) as u8
        };
        out.extend((0..lanes).map(value));
    }
}

/// A 64-bit finaliser: every bit of the result depends on every bit of `x`.
pub fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Values of one draw: place by place, every lane.
#[derive(Clone)]
pub struct Values {
    data: Arc<Vec<u8>>,
    lanes: usize,
    per_value: usize,
}

impl Values {
    /// Sample q of element e.
    #[inline(always)]
    pub fn at(&self, e: usize, q: usize) -> u8 {
        self.data[(e / self.lanes * self.per_value + q) * self.lanes + e % self.lanes]
    }
}

/// How the bytes of a message are read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// Ring elements, a byte each.
    Ring,
    /// Packed bits, so many to an element.
    Bits {
        /// Bits of one element that stand together.
        run: usize,
    },
    /// Packed numbers of so many bits.
    Low {
        /// The bits.
        width: u32,
    },
    /// Packed residues of as many bits as the prime takes.
    Residue {
        /// The prime.
        p: u8,
        /// Residues of one element that stand together.
        run: usize,
    },
    /// Packed elements of a prime field, so many to an element.
    Field {
        /// The prime.
        p: u8,
        /// Field elements of one element that stand together.
        run: usize,
    },
}

/// The randomness of one session, shared by its parties.
pub struct World {
    /// Lanes, a multiple of 64.
    pub lanes: usize,
    /// Who gets what.
    pub assignment: Assignment,
    /// What is broken.
    pub mutation: Option<Mutation>,
    /// All draws, if they are known from an earlier session.
    pub known: BTreeMap<String, Draw>,
    /// Bits of a dealt table's entry that stand together.
    pub table: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    names: HashMap<[u32; 8], String>,
    given: HashMap<[u8; 32], String>,
    occurrences: HashMap<String, usize>,
    holders: HashMap<String, u8>,
    draws: BTreeMap<String, Draw>,
    made: HashMap<String, Arc<Vec<u8>>>,
    formats: HashMap<u64, Format>,
}

impl World {
    /// A world with these lanes.
    pub fn new(
        assignment: Assignment,
        mutation: Option<Mutation>,
        known: BTreeMap<String, Draw>,
        table: usize,
    ) -> Self {
        let lanes = assignment.total.next_multiple_of(64);
        World { lanes, assignment, mutation, known, table, state: Mutex::default() }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// All draws that were made.
    pub fn draws(&self) -> BTreeMap<String, Draw> {
        self.state().draws.clone()
    }

    /// Has a key stand for a draw that is held by these parties.
    pub fn name(&self, key: &Key, name: &str, holders: u8) {
        let mut state = self.state();
        state.names.insert(*key.stream().key_words(), name.to_owned());
        *state.holders.entry(name.to_owned()).or_default() |= holders;
    }

    /// The name under a key, of a stream that party `me` reads.
    pub fn reader(&self, me: usize, key: &[u32; 8]) -> Option<String> {
        let mut state = self.state();
        let name = state.names.get(key)?.clone();
        *state.holders.entry(name.clone()).or_default() |= 1 << me;
        Some(name)
    }

    /// A draw of `elements` elements with `per_value` samples each.
    pub fn read(&self, name: &str, domain: u64, elements: usize, per_value: usize) -> Values {
        assert!(elements.is_multiple_of(self.lanes), "a draw of {elements} for {} lanes", self.lanes);
        let mut state = self.state();
        let data = self.made(&mut state, name, domain, elements / self.lanes * per_value);
        Values { data, lanes: self.lanes, per_value }
    }

    fn made(&self, state: &mut State, name: &str, domain: u64, count: usize) -> Arc<Vec<u8>> {
        let holders = state.holders.get(name).copied().unwrap_or(0);
        let draw = state.draws.entry(name.to_owned()).or_insert(Draw { domain, count, holders });
        draw.holders |= holders;
        assert!(
            (draw.domain, draw.count) == (domain, count),
            "the draw {name} is read as {count} of {domain} and as {} of {}",
            draw.count,
            draw.domain
        );
        if let Some(made) = state.made.get(name) {
            return made.clone();
        }
        let original = |name: &str, domain: u64, count: usize| {
            let mut out = Vec::with_capacity(count * self.lanes);
            (0..count).for_each(|q| self.assignment.values(name, q, domain, self.lanes, &mut out));
            out
        };
        let data = match &self.mutation {
            Some(Mutation { draw, kind }) if draw == name => match kind {
                Kind::Zero => vec![0; count * self.lanes],
                Kind::SameAs(other) => {
                    let from = self.known[other];
                    let other = original(other, from.domain, from.count);
                    let place = |q: usize| q % from.count * self.lanes;
                    let part = |q: usize| {
                        other[place(q)..][..self.lanes].iter().map(|&v| (u64::from(v) % domain) as u8)
                    };
                    (0..count).flat_map(part).collect()
                }
                Kind::Repeat { period } => {
                    let own = original(name, domain, count);
                    (0..count).flat_map(|q| own[q % period * self.lanes..][..self.lanes].to_vec()).collect()
                }
                Kind::Stretch { run } => {
                    let own = original(name, domain, count);
                    (0..count)
                        .flat_map(|q| own[(q - q % run) * self.lanes..][..self.lanes].to_vec())
                        .collect()
                }
            },
            _ => original(name, domain, count),
        };
        let data = Arc::new(data);
        state.made.insert(name.to_owned(), data.clone());
        data
    }

    /// Notes how a message with these words is read.
    pub fn note(&self, words: &[u8], format: Format) {
        let mut state = self.state();
        let at = state.formats.entry(content(words)).or_insert(format);
        if matches!(at, Format::Ring | Format::Bits { .. }) {
            *at = format;
        }
    }

    /// How a message is read.
    pub fn format(&self, words: &[u8]) -> Option<Format> {
        self.state().formats.get(&content(words)).copied()
    }
}

fn content(bytes: &[u8]) -> u64 {
    let mut hash = bytes.len() as u64;
    for chunk in bytes.chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        hash = mix(hash ^ u64::from_le_bytes(word));
    }
    hash
}

impl Probe for World {
    /// The same address has the same key in every session, so that what is made of it elsewhere
    /// than here repeats too.
    fn stream(&self, at: &Name, key: Key) -> Key {
        let [me, peer] = at.parties;
        let pair = match me == peer {
            true => format!("P{me} alone"),
            false => format!("P{} and P{}", me.min(peer), me.max(peer)),
        };
        let address = format!("{:?} {}: {} of {pair}", at.phase, at.place, at.label);
        let name = {
            let mut state = self.state();
            let State { given, occurrences, .. } = &mut *state;
            match given.entry(*key.expose()) {
                Entry::Occupied(name) => name.get().clone(),
                Entry::Vacant(slot) => {
                    let count = occurrences.entry(address.clone()).or_default();
                    *count += 1;
                    let name = if *count == 1 { address } else { format!("{address}, {count}") };
                    slot.insert(name).clone()
                }
            }
        };
        let key = Key::agree("megrez 2026 assurance", name.as_bytes(), &self.assignment.salt.to_le_bytes());
        self.name(&key, &name, 1 << me | 1 << peer);
        key
    }
}
