//! What a recipient who is also a party is sent, over all sharings of small values: the value,
//! under a new sharing of zero each time. And that the value and a party's own share determine the
//! whole sharing (`docs/security/composition.md`, tight sharings), which is why a value's carries
//! tell a recipient nothing that it does not hold.

use crate::aby3::{self, Aby3};
use crate::alkaid::{self, Alkaid};
use crate::meteor::{self, Meteor};
use crate::mizar::{self, Mizar};
use crate::mss::Mask;
use crate::rss::{Rss, after};
use crate::testing::session;
use crate::{Sharing as _, Suite, bicoptor};
use megrez_kernels::{Bits, Reference, Tensor};
use megrez_net::Payload;
use megrez_plan::{Kind, Value};
use megrez_ring::bits;
use std::collections::HashSet;

/// Parts of a sharing that are enumerated, for words: ends, powers and neighbours of the ring of 8
/// bits.
const WORDS: [u8; 6] = [0, 1, 2, 127, 128, 255];

/// All tuples of `parts` values, part by part.
fn everything(values: &[u8], parts: u32) -> Vec<Vec<u8>> {
    let n = values.len().pow(parts);
    (0..parts)
        .map(|part| (0..n).map(|i| values[i / values.len().pow(part) % values.len()]).collect())
        .collect()
}

/// For every party: no two sharings agree in the value and in the party's share.
fn tight(name: &str, shares: [Vec<&[u8]>; 3], value: &[u8]) {
    for (party, held) in shares.iter().enumerate() {
        let mut seen = HashSet::new();
        for (i, x) in value.iter().enumerate() {
            let known: Vec<u8> = held.iter().map(|part| part[i]).chain([*x]).collect();
            assert!(seen.insert(known), "{name}: party {party} is sent more than the value");
        }
    }
}

/// Holds what the recipient puts together to `value`, and what it is sent to a sharing that is new
/// each time.
fn reveals<S: Suite<Word = u8, Device = Reference>>(
    suite: &S,
    kind: Kind,
    value: &[u8],
    share: impl Fn(usize) -> (S::Masks, S::Data) + Sync,
) {
    let n = value.len();
    let run = || -> Vec<Payload> {
        session(|party| {
            let (masks, data) = share(party.me());
            let verified = suite.verify(party).unwrap();
            party.step("output/y", |party| suite.reveal(party, &masks, &data, &verified)).unwrap()
        })
    };
    let payloads = run();
    let of = Value { shape: [n].into(), kind };
    assert_eq!(suite.reconstruct(&of, &payloads).unwrap(), value);
    // Of eight bits, one sharing of zero in 256 is the same as the last.
    let changes = (0..16).any(|_| payloads != run());
    assert!(changes, "other keys, and the same messages: no sharing of zero");
    let past_the_end = |p: &Payload| kind == Kind::Bit && !p.is_empty() && p.words()[n / 64] >> (n % 64) != 0;
    assert!(!payloads.iter().any(past_the_end), "nothing is sent behind the last bit");
}

fn tensor(words: &[u8]) -> Tensor<u8, Reference> {
    Tensor::new([words.len()], words.to_vec().into())
}

fn packed(values: &[u8]) -> Bits<Reference> {
    Bits::new([values.len()], bits::pack(values.len(), |i| values[i].into()).into())
}

fn combined(parts: &[Vec<u8>], f: impl Fn(&[u8]) -> u8) -> Vec<u8> {
    (0..parts[0].len()).map(|i| f(&parts.iter().map(|p| p[i]).collect::<Vec<_>>())).collect()
}

const RING: Kind = Kind::Ring { frac: 0 };

/// m, r_0, r_1: who holds what.
fn of_mizar(p: &[Vec<u8>]) -> [Vec<&[u8]>; 3] {
    [vec![&p[0], &p[1]], vec![&p[0], &p[2]], vec![&p[1], &p[2]]]
}

#[test]
fn masked_values_with_a_dealer_are_tight() {
    let suite = Mizar::<u8, Reference>::default();
    let parts = everything(&WORDS, 3);
    let x = combined(&parts, |p| p[0].wrapping_sub(p[1]).wrapping_sub(p[2]));
    let share = |me: usize| match me {
        2 => (mizar::Masks::Ring(Mask::Dealer([tensor(&parts[1]), tensor(&parts[2])])), mizar::Data::None),
        j => (mizar::Masks::Ring(Mask::Worker(tensor(&parts[1 + j]))), mizar::Data::Ring(tensor(&parts[0]))),
    };
    tight("mizar", of_mizar(&parts), &x);
    reveals(&suite, RING, &x, share);

    let parts = everything(&[0, 1], 3);
    let x = combined(&parts, |p| p[0] ^ p[1] ^ p[2]);
    let share = |me: usize| match me {
        2 => (mizar::Masks::Bit(Mask::Dealer([packed(&parts[1]), packed(&parts[2])])), mizar::Data::None),
        j => (mizar::Masks::Bit(Mask::Worker(packed(&parts[1 + j]))), mizar::Data::Bit(packed(&parts[0]))),
    };
    tight("mizar, bits", of_mizar(&parts), &x);
    reveals(&suite, Kind::Bit, &x, share);
}

/// Components `first`, … of three: who holds what, beside the `common` parts before.
fn of_equals(p: &[Vec<u8>], common: usize) -> [Vec<&[u8]>; 3] {
    let held = |me: usize| {
        let own = [&p[common + me], &p[common + after(me)]];
        p[..common].iter().chain(own).map(Vec::as_slice).collect()
    };
    [held(0), held(1), held(2)]
}

#[test]
fn replicated_values_are_tight() {
    let suite = Aby3::<u8, Reference>::default();
    let parts = everything(&WORDS, 3);
    let x = combined(&parts, |p| p[0].wrapping_add(p[1]).wrapping_add(p[2]));
    let share = |me: usize| {
        let held = Rss { own: tensor(&parts[me]), next: tensor(&parts[after(me)]) };
        (aby3::Masks::Secret([x.len()].into()), aby3::Data::Ring(held))
    };
    tight("aby3", of_equals(&parts, 0), &x);
    reveals(&suite, RING, &x, share);

    let parts = everything(&[0, 1], 3);
    let x = combined(&parts, |p| p[0] ^ p[1] ^ p[2]);
    let share = |me: usize| {
        let held = Rss { own: packed(&parts[me]), next: packed(&parts[after(me)]) };
        (aby3::Masks::Secret([x.len()].into()), aby3::Data::Bit(held))
    };
    tight("aby3, bits", of_equals(&parts, 0), &x);
    reveals(&suite, Kind::Bit, &x, share);

    // m, known to all, and the components of r.
    let suite = Alkaid::<u8, Reference>::default();
    let parts = everything(&[0, 1], 4);
    let x = combined(&parts, |p| p[0] ^ p[1] ^ p[2] ^ p[3]);
    let share = |me: usize| {
        let r = Rss { own: packed(&parts[1 + me]), next: packed(&parts[1 + after(me)]) };
        (alkaid::Masks::Bit(r), alkaid::Data::Masked(packed(&parts[0])))
    };
    tight("alkaid, bits", of_equals(&parts, 1), &x);
    reveals(&suite, Kind::Bit, &x, share);
}

#[test]
fn masked_replicated_values_are_tight() {
    let suite = Meteor::<u8, Reference>::default();
    let parts = everything(&WORDS, 4);
    let x = combined(&parts, |p| p.iter().fold(0, |sum, part| sum.wrapping_add(*part)));
    let share = |me: usize| {
        let psi = Rss { own: tensor(&parts[1 + me]), next: tensor(&parts[1 + after(me)]) };
        (meteor::Masks::Ring(psi), meteor::Data::Ring(tensor(&parts[0])))
    };
    tight("meteor", of_equals(&parts, 1), &x);
    reveals(&suite, RING, &x, share);

    let parts = everything(&[0, 1], 4);
    let x = combined(&parts, |p| p[0] ^ p[1] ^ p[2] ^ p[3]);
    let share = |me: usize| {
        let psi = Rss { own: packed(&parts[1 + me]), next: packed(&parts[1 + after(me)]) };
        (meteor::Masks::Bit(psi), meteor::Data::Bit(packed(&parts[0])))
    };
    tight("meteor, bits", of_equals(&parts, 1), &x);
    reveals(&suite, Kind::Bit, &x, share);
}

/// A helper holds no share: this is why `bicoptor` masks its outputs.
#[test]
#[should_panic(expected = "is sent more than the value")]
fn plain_additive_shares_are_not_tight_for_a_helper() {
    let parts = everything(&WORDS, 2);
    let x = combined(&parts, |p| p[0].wrapping_add(p[1]));
    tight("additive", [vec![&parts[0]], vec![&parts[1]], vec![]], &x);
}

#[test]
fn a_helper_is_sent_uniform_shares_of_every_value() {
    // For every sharing: over many outputs, every share of worker 0 occurs, and worker 1's is what
    // is left.
    let suite = bicoptor::Bicoptor::<u8, Reference>::default();
    let parts = everything(&WORDS, 2);
    let x = combined(&parts, |p| p[0].wrapping_add(p[1]));
    let runs = 4000;
    let sent: Vec<Vec<Payload>> = session(|party| {
        let masks = bicoptor::Masks::Secret([x.len()].into());
        let data = (party.me() < 2).then(|| tensor(&parts[party.me()]));
        let verified = suite.verify(party).unwrap();
        let mut reveal = |run: usize| {
            let name = format!("output/{run}");
            party.step(&name, |party| suite.reveal(party, &masks, &data, &verified)).unwrap()
        };
        (0..runs).map(&mut reveal).collect()
    });
    for (i, x) in x.iter().enumerate() {
        let mut counts = [0f64; 256];
        for (zero, one) in sent[0].iter().zip(&sent[1]) {
            let (zero, one) = (zero.as_bytes()[i], one.as_bytes()[i]);
            assert_eq!(zero.wrapping_add(one), *x);
            counts[usize::from(zero)] += 1.0;
        }
        let expected = runs as f64 / 256.0;
        let chi: f64 = counts.iter().map(|c| (c - expected).powi(2) / expected).sum();
        assert!(chi < 255.0 + 7.0 * 510f64.sqrt(), "sharing {i}: {chi}");
    }
}
