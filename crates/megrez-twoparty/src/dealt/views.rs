//! What the parties see: every word that they are sent has a mask of its own, and the dealer is
//! sent none. And what a hostile peer can do: nothing but end the session or make results wrong.

use super::link::Size;
use super::tests::{bits, ints};
use super::{Bits, DEALER, Dealt, Ints};
use crate::client::{read, split, write};
use crate::testing::{chi_square_is_plausible, parties};
use crate::tests::Input;
use crate::wire::Reader;
use megrez_float::blocks::{Blocks, Extend, Factor, Lookup, Msb, Multiply, Select, Table, Tally, Truncate};
use megrez_float::{Format, Plain};
use megrez_kernels::Cpu;
use megrez_net::Payload;
use megrez_prg::Key;
use megrez_session::{Error, Name, Party, Phase, Probe, Tap};
use std::sync::Arc;

/// Lanes of these tests.
const LANES: usize = 1 << 12;

/// Width of the integers x and y.
const WIDTH: u32 = 6;

/// Width of an integer whose digits are joined twice, and whose places are in two groups.
const WIDE: u32 = 20;

/// The names of what [`block`] can run.
const BLOCKS: [&str; 30] = [
    "share",
    "accept",
    "and",
    "select",
    "select bits",
    "widen",
    "tally",
    "negative",
    "negative wide",
    "negative_zero",
    "negative_zero wide",
    "is_zero",
    "is_zero wide",
    "lookup",
    "lookup of 256 rows",
    "truncate",
    "truncate wide",
    "sticky",
    "sticky wide",
    "round",
    "round wide",
    "multiply",
    "multiply of known and shared",
    "square",
    "leading",
    "leading wide",
    "extend",
    "extend of known zero",
    "extend of known one",
    "extend of shared",
];

/// Those in which the dealer sends nothing.
const UNDEALT: [&str; 2] = ["share", "accept"];

/// Values and masks that are the same in all lanes, so that all randomness is the protocol's own.
struct Values {
    x: Ints,
    y: Ints,
    wide: Ints,
    byte: Ints,
    c: Bits,
    /// Numbers that a worker gives.
    own: Plain,
    /// This worker's share of numbers that a client gives.
    share: Option<Payload>,
}

impl Values {
    fn new(me: usize, [x, y, c]: [u64; 3]) -> Self {
        let all = |width: u32, v: u64, r: u64| -> Input { (width, vec![(v, r); LANES]) };
        let number = [0.0, 1.5, -3.25e7, f32::INFINITY][(x % 3 + c) as usize];
        let share = split(&[number], &Key::from_bytes([7; 32])).get(me).map(|share| {
            let lane = read(share, 1).unwrap()[0].pack();
            write((0..LANES).map(|_| lane))
        });
        Self {
            x: ints(me, &all(WIDTH, x, 21)),
            y: ints(me, &all(WIDTH, y, 44)),
            wide: ints(me, &all(WIDE, x << 14 | y, 0x5_a1c3)),
            byte: ints(me, &all(8, x << 2 | c, 0x9c)),
            c: bits(me, &all(1, c, 1)),
            own: Plain::from_f32(&[number; LANES]),
            share,
        }
    }
}

/// Runs one block. Promises about top bits may be broken: that changes no message's distribution.
fn block(name: &str, b: &mut Dealt<Cpu>, v: &Values) -> Result<(), Error> {
    let Values { x, y, wide, byte, c, .. } = v;
    let shared = Msb::Shared(c);
    match name {
        "share" => (0..DEALER).try_for_each(|owner| {
            let own = (b.party().me() == owner).then_some(&v.own);
            b.share(owner, Format::FLOAT32, LANES, own).map(drop)
        }),
        "accept" => b.accept(v.share.as_ref(), LANES).map(drop),
        "and" => b.and(&[(c, &b.parity(x))]).map(drop),
        "select" => b.select(&[Select { bit: c, ints: vec![x, y], bits: vec![] }]).map(drop),
        "select bits" => {
            let (one, other) = (b.parity(x), b.parity(y));
            b.select(&[Select { bit: c, ints: vec![wide], bits: vec![&one, &other] }]).map(drop)
        }
        "widen" => b.widen(&[(c, 9)]).map(drop),
        "tally" => {
            let terms = vec![(c, 3), (c, u64::MAX << 4), (c, 1 << 5)];
            b.tally(&[Tally { terms, width: 9 }]).map(drop)
        }
        "negative" => b.negative(&[x]).map(drop),
        "negative wide" => b.negative(&[wide, x]).map(drop),
        "negative_zero" => b.negative_zero(&[x]).map(drop),
        "negative_zero wide" => b.negative_zero(&[wide]).map(drop),
        "is_zero" => b.is_zero(&[x]).map(drop),
        "is_zero wide" => b.is_zero(&[wide]).map(drop),
        "lookup" => {
            let table = Table::new(WIDTH, &[5, 3], 1, |i| vec![i * i, i >> 2, i >> 1]);
            b.lookup(&[Lookup { index: x, table: &table }]).map(drop)
        }
        "lookup of 256 rows" => {
            let table = Table::new(8, &[11], 1, |i| vec![i * i, i >> 4]);
            b.lookup(&[Lookup { index: byte, table: &table }]).map(drop)
        }
        "truncate" => b.truncate(&[Truncate { x, cuts: &[2, 3] }]).map(drop),
        "truncate wide" => b.truncate(&[Truncate { x: wide, cuts: &[3, 18] }]).map(drop),
        "sticky" => b.sticky(&[(x, 3)]).map(drop),
        "sticky wide" => b.sticky(&[(wide, 17)]).map(drop),
        "round" => b.round(&[(x, 2), (x, 5)]).map(drop),
        "round wide" => b.round(&[(wide, 17)]).map(drop),
        "multiply" => {
            let y = Factor { x: y, signed: true, msb: Msb::Unknown };
            b.multiply(&[Multiply { x: Factor::unsigned(x), y, width: 2 * WIDTH - 2 }]).map(drop)
        }
        "multiply of known and shared" => {
            let x = Factor { x, signed: false, msb: Msb::One };
            b.multiply(&[Multiply { x, y: Factor { x: y, signed: true, msb: shared }, width: 2 * WIDTH }])
                .map(drop)
        }
        "square" => {
            let factor = || Factor { x, signed: false, msb: Msb::Shared(c) };
            b.multiply(&[Multiply { x: factor(), y: factor(), width: 2 * WIDTH }]).map(drop)
        }
        "leading" => b.leading(&[(x, 3)]).map(drop),
        "leading wide" => b.leading(&[(wide, 5), (x, 3)]).map(drop),
        "extend" => b.extend(&[Extend { x, width: WIDTH + 4, signed: false, msb: Msb::Unknown }]).map(drop),
        "extend of known zero" => {
            b.extend(&[Extend { x, width: WIDTH + 4, signed: true, msb: Msb::Zero }]).map(drop)
        }
        "extend of known one" => {
            b.extend(&[Extend { x, width: WIDTH + 4, signed: false, msb: Msb::One }]).map(drop)
        }
        "extend of shared" => {
            b.extend(&[Extend { x, width: WIDTH + 4, signed: true, msb: shared }]).map(drop)
        }
        _ => panic!("no block {name}"),
    }
}

/// A message: its receiver, its number, its bytes, and what they are made of.
struct Message {
    to: usize,
    number: u64,
    bytes: Vec<u8>,
    sizes: Vec<Size>,
}

impl Message {
    /// The values of a stream or of bytes that are made of the same.
    fn values(&self, words: &[u64]) -> Vec<Vec<u64>> {
        let mut reader = Reader::new(words);
        self.sizes.iter().map(|size| size.read(&mut reader)).collect()
    }

    fn own(&self) -> Vec<Vec<u64>> {
        self.values(Payload::from_bytes(&self.bytes).words())
    }

    /// x − y, value by value.
    fn difference(&self, x: &[Vec<u64>], y: &[Vec<u64>]) -> Vec<Vec<u64>> {
        self.sizes.iter().zip(x.iter().zip(y)).map(|(size, (x, y))| size.difference(x, y)).collect()
    }
}

/// Runs a block on [`Values`], and returns the messages that this party sends.
fn sent(party: &mut Party<Cpu>, name: &str, secrets: [u64; 3]) -> Result<Vec<Message>, Error> {
    let tap = Tap::default();
    party.tap(tap.clone());
    let values = Values::new(party.me(), secrets);
    let mut b = Dealt::new(party.clone())?;
    b.enter(Phase::Online, 0);
    block(name, &mut b, &values)?;
    let sent = tap.lock().unwrap();
    let message = |s: &megrez_session::Sent| {
        let number = s.name.rsplit('/').next().and_then(|n| n.parse().ok()).expect("a number");
        let sizes = b.made_of.iter().find(|m| m.0 == number).expect("a message").1.clone();
        Message { to: s.to, number, bytes: s.bytes.clone(), sizes }
    };
    Ok(sent.iter().map(message).collect())
}

/// x ⊕ y.
fn mixed(x: &[u8], y: &[u8]) -> Vec<u8> {
    assert_eq!(x.len(), y.len());
    x.iter().zip(y).map(|(x, y)| x ^ y).collect()
}

const SECRETS: [[u64; 3]; 3] = [[0, 0, 0], [63, 33, 1], [32, 1, 0]];

/// What each party sends in a block, under streams that follow from their names.
fn all_sent(name: &str, secrets: [u64; 3], other: Option<(usize, String)>) -> Vec<Vec<Message>> {
    let probe = Arc::new(Fixed { salt: format!("{name} {secrets:?}"), other });
    let results = parties(3, |party| {
        party.probe(probe.clone());
        sent(party, name, secrets)
    });
    results.into_iter().map(Result::unwrap).collect()
}

/// Each message's bytes, all lanes together, against the uniform distribution, and so the sums of
/// two messages of one party: a word without a mask and a mask that serves two messages of one
/// party stand out. It says nothing of words of one message with each other;
/// [`every_word_has_a_mask_of_its_own_that_is_in_none_before`] does.
#[test]
fn bytes_of_messages_are_uniform_and_the_dealer_is_sent_none() {
    for name in BLOCKS {
        for secrets in SECRETS {
            for (party, messages) in all_sent(name, secrets, None).into_iter().enumerate() {
                let deals = party != DEALER || !UNDEALT.contains(&name);
                assert_eq!(!messages.is_empty(), deals, "{name}: party {party}");
                let receiver = [1, 0, 0][party];
                for message in &messages {
                    assert_eq!(message.to, receiver, "{name}: party {party}");
                    chi_square_is_plausible(&message.bytes);
                }
                for (i, one) in messages.iter().enumerate() {
                    for other in messages[..i].iter().filter(|m| m.bytes.len() == one.bytes.len()) {
                        chi_square_is_plausible(&mixed(&one.bytes, &other.bytes));
                    }
                }
            }
        }
    }
}

/// The sum of two messages of two parties, all lanes together, against the uniform distribution: a
/// mask that two parties put into messages stands out.
#[test]
fn no_two_parties_mask_with_the_same() {
    for name in BLOCKS {
        for secrets in SECRETS {
            let all = all_sent(name, secrets, None);
            for (party, messages) in all.iter().enumerate() {
                for one in messages {
                    let others = all[..party].iter().flatten();
                    for other in others.filter(|m| m.bytes.len() == one.bytes.len()) {
                        chi_square_is_plausible(&mixed(&one.bytes, &other.bytes));
                    }
                }
            }
        }
    }
}

/// Streams under keys that follow from their names, but for one that is another.
struct Fixed {
    /// Sets tests apart.
    salt: String,
    /// Of worker j and the dealer, for a purpose.
    other: Option<(usize, String)>,
}

impl Fixed {
    fn key(&self, pair: [usize; 2], purpose: &str, other: bool) -> Key {
        let name = format!("{pair:?} {purpose} {}", self.salt);
        Key::agree("megrez 2026 test keys", name.as_bytes(), &[u8::from(other)])
    }
}

impl Probe for Fixed {
    fn stream(&self, name: &Name, _: Key) -> Key {
        let mut pair = name.parties;
        pair.sort_unstable();
        let other =
            self.other.as_ref().is_some_and(|(j, purpose)| pair == [*j, DEALER] && *purpose == name.label);
        self.key(pair, &name.label, other)
    }
}

/// The mask rule, word by word: with another key for the stream that masks a message, each of its
/// words is another by just what the word of the stream at its place is another, and nothing that
/// its receiver was sent before is.
#[test]
fn every_word_has_a_mask_of_its_own_that_is_in_none_before() {
    for name in BLOCKS {
        let all = all_sent(name, SECRETS[1], None);
        for (from, messages) in all.iter().enumerate() {
            for (at, message) in messages.iter().enumerate() {
                let (holder, kind) = match (from, name) {
                    (DEALER, _) => (1, "deal"),
                    (_, "share") => (from, "enter"),
                    _ => (from, "mask"),
                };
                let purpose = format!("{kind} {}", message.number);
                let changed = all_sent(name, SECRETS[1], Some((holder, purpose.clone())));
                for (before, after) in all.iter().flatten().zip(changed.iter().flatten()) {
                    let earlier = before.to == message.to && before.number < message.number;
                    assert!(
                        !earlier || before.bytes == after.bytes,
                        "{name}: {purpose} is in {}",
                        before.number
                    );
                }
                let streams = Fixed { salt: format!("{name} {:?}", SECRETS[1]), other: None };
                let [one, other] = [false, true].map(|other| {
                    let key = streams.key([holder, DEALER], &purpose, other);
                    message.values(&key.stream().words(message.bytes.len().div_ceil(8)))
                });
                let (before, after) = (message.own(), changed[from][at].own());
                // A stream is added to what is opened, and taken off what is dealt.
                let want = if from == DEALER {
                    message.difference(&one, &other)
                } else {
                    message.difference(&other, &one)
                };
                assert!(message.difference(&after, &before) == want, "{name}: words of {purpose}");
            }
        }
    }
}

/// Whatever words a party sends in place of its own, each under the name of the one that is waited
/// for.
#[test]
fn garbage_of_the_right_size_gives_wrong_results_and_nothing_else() {
    for name in BLOCKS {
        for hostile in [1, DEALER] {
            let honest = all_sent(name, SECRETS[1], None);
            let results = parties(3, |party| {
                if party.me() != hostile {
                    return sent(party, name, SECRETS[1]).map(|_| ());
                }
                party.enter(if hostile == DEALER { Phase::Offline } else { Phase::Online }, 0);
                for message in &honest[hostile] {
                    let size = message.bytes.len();
                    let words = Key::from_bytes([message.number as u8; 32]).stream().words(size.div_ceil(8));
                    let bytes = &bytemuck::cast_slice(&words)[..size];
                    party.send(0, &message.number.to_string(), Payload::from_bytes(bytes))?;
                }
                let taken = honest.iter().flatten().filter(|m| m.to == hostile);
                taken.for_each(|m| drop(party.recv(0, &m.number.to_string(), m.bytes.len())));
                Ok(())
            });
            assert!(results[0].is_ok(), "{name}: {:?}", results[0]);
        }
    }
}

#[test]
fn short_messages_end_the_session() {
    for hostile in [1, DEALER] {
        let results = parties(3, |party| {
            if party.me() != hostile {
                return sent(party, "negative", SECRETS[1]).map(|_| ());
            }
            // The first message is dealt, the second opened.
            let (phase, label) = if hostile == DEALER { (Phase::Offline, "0") } else { (Phase::Online, "2") };
            party.enter(phase, 0);
            party.send(0, label, Payload::from_bytes(&[1, 2, 3]))?;
            party.recv(0, "never", 1).map(|_| ())
        });
        match results[0].as_ref().unwrap_err() {
            Error::Size { from, got, .. } => assert_eq!((*from, *got), (hostile, 3)),
            other => panic!("{other}"),
        }
    }
}
