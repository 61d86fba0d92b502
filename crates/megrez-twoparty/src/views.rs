//! What the parties see: messages and shares are uniform whatever the secrets are. And what a
//! hostile peer can do: nothing but end the session.

use crate::ot::Ots;
use crate::testing::{chi_square_is_plausible, two_parties};
use crate::{Bits, Ints, Sirnn};
use megrez_float::blocks::{Blocks, Extend, Factor, Lookup, Msb, Multiply, Select, Table, Truncate, mask};
use megrez_kernels::Cpu;
use megrez_net::Payload;
use megrez_prg::Key;
use megrez_session::{Error, Party, Phase, Tap};
use std::time::{Duration, Instant};

/// Lanes of these tests: every part of every message is whole bytes.
const LANES: usize = 1 << 12;

/// Width of the integers.
const WIDTH: u32 = 6;

/// Party `me`'s shares of x, y and a bit that are the same in all lanes. The shares themselves are
/// the same in all lanes too, unless `fresh`, so that all randomness in what follows is the
/// protocol's own.
fn inputs(me: usize, [x, y, c]: [u64; 3], fresh: bool) -> ([Ints; 2], Bits) {
    let words = Key::from_bytes([7; 32]).stream().words(3 * LANES);
    let share = |i: usize, lane: usize, secret: u64| {
        let r = if fresh { words[i * LANES + lane] } else { 0x5a5a + i as u64 };
        if me == 0 { r } else { secret.wrapping_sub(r) }
    };
    let ints = |i: usize, v: u64| Ints::new(WIDTH, (0..LANES).map(|lane| share(i, lane, v)).collect());
    ([ints(0, x), ints(1, y)], Bits::pack(LANES, |lane| share(2, lane, c)))
}

/// The names of what [`block`] can run.
const BLOCKS: [&str; 10] = [
    "and",
    "select",
    "negative",
    "negative_zero",
    "lookup",
    "truncate",
    "round",
    "multiply",
    "leading",
    "extend",
];

/// Runs one block; its results as integers.
fn block(name: &str, b: &mut Sirnn<Cpu>, [x, y]: &[Ints; 2], c: &Bits) -> Result<Vec<Ints>, Error> {
    let bits = |bits: Vec<Bits>| bits.iter().map(Bits::narrow).collect();
    Ok(match name {
        "and" => bits(b.and(&[(c, &x.bit(0))])?),
        "select" => b.select(&[Select { bit: c, ints: vec![x, y], bits: vec![] }])?.remove(0).ints,
        "negative" => bits(b.negative(&[x])?),
        "negative_zero" => bits(b.negative_zero(&[x])?.into_iter().flat_map(|(n, z)| [n, z]).collect()),
        "lookup" => {
            let table = Table::new(WIDTH, &[5, 3], 0, |i| vec![i * i, i >> 2]);
            b.lookup(&[Lookup { index: x, table: &table }])?.remove(0).ints
        }
        "truncate" => b.truncate(&[Truncate { x, cuts: &[2, 3] }])?.remove(0),
        "round" => b.round(&[(x, 3)])?,
        "multiply" => {
            let job = Multiply { x: Factor::unsigned(x), y: Factor::unsigned(y), width: 2 * WIDTH - 2 };
            b.multiply(&[job])?
        }
        "leading" => {
            let leading = b.leading(&[(x, 3)])?.remove(0);
            vec![leading.scale, leading.position, leading.zero.narrow()]
        }
        // The low bits are the input's own share; what is new is above them.
        _ => {
            let job = Extend { x, width: WIDTH + 4, signed: false, msb: Msb::Unknown };
            b.extend(&[job])?.iter().map(|z| z.map(4, |v| v >> WIDTH)).collect()
        }
    })
}

/// Sets up, runs a block, and returns this party's messages and results.
#[allow(clippy::type_complexity)]
fn observed(
    party: &mut Party<Cpu>,
    group: u32,
    name: &str,
    secrets: [u64; 3],
    fresh: bool,
) -> Result<(Vec<Vec<u8>>, Vec<Ints>), Error> {
    let ot = Ots::set_up(party, group)?;
    party.enter(Phase::Online, 0);
    let tap = Tap::default();
    party.tap(tap.clone());
    let (x, c) = inputs(party.me(), secrets, fresh);
    let mut b = Sirnn::new(party.clone(), ot);
    let results = block(name, &mut b, &x, &c)?;
    let sent = tap.lock().unwrap().iter().map(|s| s.bytes.clone()).collect();
    Ok((sent, results))
}

const SECRETS: [[u64; 3]; 3] = [[0, 0, 0], [63, 33, 1], [32, 1, 0]];

/// Holds a party's shares to a chi-square test against uniform ones.
fn shares_are_plausible(what: &str, share: &Ints) {
    let bits = share.width.min(8);
    let mut counts = vec![0f64; 1 << bits];
    share.v.iter().for_each(|v| counts[(v & mask(bits)) as usize] += 1.0);
    let expected = LANES as f64 / counts.len() as f64;
    let chi2: f64 = counts.iter().map(|c| (c - expected).powi(2) / expected).sum();
    let freedom = counts.len() as f64 - 1.0;
    assert!(
        chi2 < freedom + 6.0 * (2.0 * freedom).sqrt() + 6.0,
        "{what}: chi2 {chi2} for {freedom} degrees of freedom"
    );
}

#[test]
fn messages_and_shares_are_uniform_whatever_the_secrets_are() {
    for name in BLOCKS {
        for (i, secrets) in SECRETS.into_iter().chain(SECRETS).enumerate() {
            let group = if i < SECRETS.len() { 4 } else { 0 };
            let results = two_parties(|party| observed(party, group, name, secrets, false));
            for (party, result) in results.into_iter().enumerate() {
                let (messages, shares) = result.unwrap();
                assert!(!messages.is_empty(), "{name}: party {party} is silent");
                messages.iter().for_each(|message| chi_square_is_plausible(message));
                shares.iter().for_each(|share| shares_are_plausible(&format!("{name} {secrets:?}"), share));
            }
        }
    }
}

#[test]
fn garbage_of_the_right_size_gives_wrong_results_and_nothing_else() {
    for name in BLOCKS {
        let sizes: Vec<usize> = {
            let mut honest = two_parties(|party| observed(party, 4, name, [1, 2, 1], true));
            honest.pop().unwrap().unwrap().0.iter().map(Vec::len).collect()
        };
        let results = two_parties(|party| {
            if party.me() == 0 {
                return observed(party, 4, name, [1, 2, 1], true).map(|r| r.1.len());
            }
            Ots::set_up(party, 4)?;
            party.enter(Phase::Online, 0);
            for (i, &size) in sizes.iter().enumerate() {
                let words = Key::from_bytes([i as u8; 32]).stream().words(size.div_ceil(8));
                party.send(0, &i.to_string(), Payload::from_bytes(&bytemuck::cast_slice(&words)[..size]))?;
            }
            Ok(0)
        });
        // A message that is out of turn may be missed; whatever happens is a value.
        assert!(matches!(results[0], Ok(_) | Err(Error::Net(_) | Error::Size { .. })), "{name}");
    }
}

#[test]
fn short_messages_and_silence_end_the_session() {
    let start = Instant::now();
    for short in [true, false] {
        let results = two_parties(|party| {
            if party.me() == 0 {
                return observed(party, 4, "negative", [1, 2, 1], true).map(|_| ());
            }
            Ots::set_up(party, 4)?;
            party.enter(Phase::Online, 0);
            if short {
                party.send(0, "0", Payload::from_bytes(&[1, 2, 3]))?;
                // Stays until the other side has seen it.
                return party.recv(0, "never", 1).map(|_| ());
            }
            party.refuse("leaves")
        });
        let error = results[0].as_ref().unwrap_err();
        match error {
            Error::Size { from, got, .. } => assert!(short && (*from, *got) == (1, 3)),
            Error::Net(_) => assert!(!short),
            other => panic!("{other}"),
        }
    }
    assert!(start.elapsed() < Duration::from_secs(60));
}
