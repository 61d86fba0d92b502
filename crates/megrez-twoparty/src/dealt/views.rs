//! What the parties see: every message is uniform and independent of the secrets and of all that its receiver holds; the dealer hears
//! nothing. And what a hostile peer can do: nothing but end the session or make results wrong.

use super::tests::{bits, ints};
use super::{Bits, DEALER, Dealt, Ints};
use crate::testing::{chi_square_is_plausible, parties};
use crate::tests::Input;
use megrez_float::blocks::{Blocks, Extend, Factor, Lookup, Msb, Multiply, Select, Table, Truncate};
use megrez_kernels::Cpu;
use megrez_net::Payload;
use megrez_prg::Key;
use megrez_session::{Error, Name, Party, Phase, Probe, Tap};
use std::sync::Arc;

/// Lanes of these tests.
const LANES: usize = 1 << 12;

/// Width of the integers.
const WIDTH: u32 = 6;

/// The names of what [`block`] can run.
const BLOCKS: [&str; 13] = [
    "and",
    "select",
    "widen",
    "negative",
    "negative_zero",
    "is_zero",
    "lookup",
    "truncate",
    "sticky",
    "round",
    "multiply",
    "leading",
    "extend",
];

/// Runs one block on values and masks that are the same in all lanes, so that all randomness is the protocol's own.
fn block(name: &str, b: &mut Dealt<Cpu>, x: &[Ints; 2], c: &Bits) -> Result<(), Error> {
    let [x, y] = x;
    match name {
        "and" => b.and(&[(c, &b.parity(x))]).map(drop),
        "select" => b.select(&[Select { bit: c, ints: vec![x, y], bits: vec![] }]).map(drop),
        "widen" => b.widen(&[(c, 9)]).map(drop),
        "negative" => b.negative(&[x]).map(drop),
        "negative_zero" => b.negative_zero(&[x]).map(drop),
        "is_zero" => b.is_zero(&[x]).map(drop),
        "lookup" => {
            let table = Table::new(WIDTH, &[5, 3], 1, |i| vec![i * i, i >> 2, i >> 1]);
            b.lookup(&[Lookup { index: x, table: &table }]).map(drop)
        }
        "truncate" => b.truncate(&[Truncate { x, cuts: &[2, 3] }]).map(drop),
        "sticky" => b.sticky(&[(x, 3)]).map(drop),
        "round" => b.round(&[(x, 2), (x, 5)]).map(drop),
        "multiply" => {
            let y = Factor { x: y, signed: true, msb: Msb::Unknown };
            b.multiply(&[Multiply { x: Factor::unsigned(x), y, width: 2 * WIDTH - 2 }]).map(drop)
        }
        "leading" => b.leading(&[(x, 3)]).map(drop),
        _ => b.extend(&[Extend { x, width: WIDTH + 4, signed: false, msb: Msb::Unknown }]).map(drop),
    }
}

/// x, y and a bit in all lanes, under masks that are the same in all lanes.
fn inputs([x, y, c]: [u64; 3]) -> [Input; 3] {
    let all = |width: u32, v: u64, r: u64| (width, vec![(v, r); LANES]);
    [all(WIDTH, x, 21), all(WIDTH, y, 44), all(1, c, 1)]
}

/// A message: its receiver, its number, and its bytes.
struct Message {
    to: usize,
    number: u64,
    bytes: Vec<u8>,
}

/// Runs a block on [`inputs`], and returns the messages that this party sends.
fn sent(party: &mut Party<Cpu>, name: &str, secrets: [u64; 3]) -> Result<Vec<Message>, Error> {
    let tap = Tap::default();
    party.tap(tap.clone());
    let me = party.me();
    let [x, y, c] = inputs(secrets);
    let mut b = Dealt::new(party.clone())?;
    b.enter(Phase::Online, 0);
    block(name, &mut b, &[ints(me, &x), ints(me, &y)], &bits(me, &c))?;
    let sent = tap.lock().unwrap();
    let number = |name: &str| name.rsplit('/').next().and_then(|n| n.parse().ok()).expect("a number");
    Ok(sent.iter().map(|s| Message { to: s.to, number: number(&s.name), bytes: s.bytes.clone() }).collect())
}

/// x ⊕ y.
fn mixed(x: &[u8], y: &[u8]) -> Vec<u8> {
    assert_eq!(x.len(), y.len());
    x.iter().zip(y).map(|(x, y)| x ^ y).collect()
}

const SECRETS: [[u64; 3]; 3] = [[0, 0, 0], [63, 33, 1], [32, 1, 0]];

#[test]
fn messages_are_uniform_whatever_the_secrets_are_and_the_dealer_hears_none() {
    for name in BLOCKS {
        for secrets in SECRETS {
            let results = parties(3, |party| sent(party, name, secrets));
            for (party, messages) in results.into_iter().map(Result::unwrap).enumerate() {
                assert!(!messages.is_empty(), "{name}: party {party} is silent");
                let receiver = [1, 0, 0][party];
                for message in &messages {
                    assert_eq!(message.to, receiver, "{name}: party {party}");
                    chi_square_is_plausible(&message.bytes);
                }
                // Messages of one party are independent: so are their differences.
                for (i, one) in messages.iter().enumerate() {
                    for other in messages[..i].iter().filter(|m| m.bytes.len() == one.bytes.len()) {
                        chi_square_is_plausible(&mixed(&one.bytes, &other.bytes));
                    }
                }
            }
        }
    }
}

/// Both workers' openings and the dealer's corrections of one block, lane by lane: what worker 0 receives is independent of what it
/// holds. One bit of each, in all four combinations alike, for every secret.
#[test]
fn what_a_worker_receives_is_independent_of_what_it_sends() {
    for name in BLOCKS {
        for secrets in SECRETS {
            let results = parties(3, |party| sent(party, name, secrets));
            let all: Vec<Vec<Message>> = results.into_iter().map(Result::unwrap).collect();
            for (mine, theirs) in all[0].iter().zip(&all[1]) {
                chi_square_is_plausible(&mixed(&mine.bytes, &theirs.bytes));
            }
        }
    }
}

/// Streams under keys that follow from their names, but for one that is another.
#[derive(Clone)]
struct Fixed {
    /// Of worker j and the dealer, for a purpose.
    other: Option<(usize, String)>,
}

impl Fixed {
    fn key(pair: [usize; 2], purpose: &str, other: bool) -> Key {
        Key::agree("megrez 2026 test keys", format!("{pair:?} {purpose}").as_bytes(), &[u8::from(other)])
    }
}

impl Probe for Fixed {
    fn stream(&self, name: &Name, _: Key) -> Key {
        let mut pair = name.parties;
        pair.sort_unstable();
        let other =
            self.other.as_ref().is_some_and(|(j, purpose)| pair == [*j, DEALER] && *purpose == name.label);
        Self::key(pair, &name.label, other)
    }
}

/// The mask rule, message by message: with another key for the stream that masks it, a message is another by just that, and nothing
/// that its receiver was sent before it is.
#[test]
fn every_message_has_a_mask_of_its_own_that_is_in_none_before() {
    for name in BLOCKS {
        let run = |other: Option<(usize, String)>| -> Vec<Vec<Message>> {
            let results = parties(3, |party| {
                party.probe(Arc::new(Fixed { other: other.clone() }));
                sent(party, name, SECRETS[1])
            });
            results.into_iter().map(Result::unwrap).collect()
        };
        let all = run(None);
        for (from, messages) in all.iter().enumerate() {
            for (at, message) in messages.iter().enumerate() {
                let (holder, kind) = if from == DEALER { (1, "deal") } else { (from, "mask") };
                let purpose = format!("{kind} {}", message.number);
                let changed = run(Some((holder, purpose.clone())));
                for (before, after) in all.iter().flatten().zip(changed.iter().flatten()) {
                    let earlier = before.to == message.to && before.number < message.number;
                    assert!(
                        !earlier || before.bytes == after.bytes,
                        "{name}: {purpose} is in {}",
                        before.number
                    );
                }
                let difference = mixed(&message.bytes, &changed[from][at].bytes);
                chi_square_is_plausible(&difference);
                // Of bits, the difference is that of the streams.
                if ["and", "negative", "negative_zero", "is_zero"].contains(&name) {
                    let words = |other: bool| {
                        let key = Fixed::key([holder, DEALER], &purpose, other);
                        key.stream().words(difference.len().div_ceil(8))
                    };
                    let [one, other] = [false, true].map(words);
                    let streams = mixed(bytemuck::cast_slice(&one), bytemuck::cast_slice(&other));
                    assert_eq!(difference[..], streams[..difference.len()], "{name}: {purpose}");
                }
            }
        }
    }
}

#[test]
fn garbage_of_the_right_size_gives_wrong_results_and_nothing_else() {
    for name in BLOCKS {
        for hostile in [1, DEALER] {
            let honest = parties(3, |party| sent(party, name, SECRETS[1]));
            let sizes: Vec<usize> =
                honest.into_iter().nth(hostile).unwrap().unwrap().iter().map(|m| m.bytes.len()).collect();
            let results = parties(3, |party| {
                if party.me() != hostile {
                    return sent(party, name, SECRETS[1]).map(|_| ());
                }
                let phase = if hostile == DEALER { Phase::Offline } else { Phase::Online };
                party.enter(phase, 0);
                for (i, &size) in sizes.iter().enumerate() {
                    let words = Key::from_bytes([i as u8; 32]).stream().words(size.div_ceil(8));
                    let bytes = &bytemuck::cast_slice(&words)[..size];
                    party.send(0, &i.to_string(), Payload::from_bytes(bytes))?;
                }
                Ok(())
            });
            // A message that is out of turn may be missed; whatever happens is a value.
            assert!(matches!(results[0], Ok(()) | Err(Error::Net(_) | Error::Size { .. })), "{name}");
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
