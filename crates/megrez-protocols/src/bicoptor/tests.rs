//! What a helper who is also the recipient of an output makes of the workers' shares.

use super::*;
use crate::mss::{Mask, RingMask};
use crate::testing::session;
use crate::{Sharing as _, Suite as _};
use megrez_kernels::{Reference, Tensor};
use megrez_net::Payload;
use megrez_plan::{List, Relu, ReluForm, SignBit};
use megrez_prg::Key;
use megrez_ring::Shape;
use megrez_session::{Error, Party};
use std::collections::HashSet;

const N: usize = 400;

fn words(payload: &Payload) -> &[u64] {
    payload.as_pod().unwrap()
}

/// What the helper knows of a step after it: its answers b', r, r_1, and what it dealt worker 1 of
/// b' and of r·b'.
struct Remembered {
    bits: Vec<u64>,
    r: Vec<u64>,
    r_1: Vec<u64>,
    a: Vec<u64>,
    ra: Vec<u64>,
}

/// The helper's part of a ReLU, word for word, by somebody who forgets nothing.
fn remember(party: &mut Party<Reference>, sign: &SignBit, shape: &Shape) -> Result<Remembered, Error> {
    let mask = RingMask::<u64, Reference>::fresh(party, shape)?;
    let bit = sign::compare::<u64, _>(party, sign, None, N)?;
    let bits: Vec<u64> = (0..N).map(|i| megrez_ring::bits::get(&bit, i)).collect();
    let r = mask.total(party.device())?.buf.to_vec();
    let mut deal = |label: &str, secret: Vec<u64>| -> Result<Vec<u64>, Error> {
        let other = party.stream(1, label)?.words(N);
        let share: Vec<u64> = secret.iter().zip(&other).map(|(s, o)| s.wrapping_sub(*o)).collect();
        party.send_ring::<u64>(0, label, share.into())?;
        Ok(other)
    };
    let a = deal("bit", bits.clone())?;
    let ra = deal("mask-bit", bits.iter().zip(&r).map(|(b, r)| b * r).collect())?;
    let Mask::Dealer([_, r_1]) = mask else { return party.refuse("is no helper") };
    Ok(Remembered { bits, r, r_1: r_1.buf.to_vec(), a, ra })
}

/// 1/a modulo 2^64 for an odd a.
fn inverse(a: u64) -> u64 {
    (0..6).fold(a, |y, _| y.wrapping_mul(2u64.wrapping_sub(a.wrapping_mul(y))))
}

#[test]
fn a_helper_who_is_the_recipient_learns_the_output_and_no_more() {
    // Behind a ReLU of negative numbers: every output is 0.
    let secret: Vec<i64> = (0..N as i64).map(|i| -1 - i).collect();
    let sign = SignBit { list: List::Bits, cut: 0, bits: Some(12) };
    let relu = Relu { sign: sign.clone(), form: ReluForm::ThreeRounds, truncate: 0 };
    let share_1: Vec<u64> = Key::from_bytes([7; 32]).stream().words(N);
    let share_0: Vec<u64> = secret.iter().zip(&share_1).map(|(&x, s)| (x as u64).wrapping_sub(*s)).collect();
    let shape = Shape::from([N]);
    let ran = session(|party| {
        let mine = [Some(&share_0), Some(&share_1), None][party.me()].cloned();
        let mine = mine.map(|s| Tensor::new(shape.clone(), s.into()));
        let step = |party: &mut Party<_>| match mine {
            None => Ok((None, Some(remember(party, &sign, &shape)?))),
            mine => {
                let share = relu::online::<u64, _>(party, &relu, mine.as_ref(), &shape, None)?;
                Ok((share.map(|s| Tensor::new(shape.clone(), s)), None))
            }
        };
        let (share, remembered) = party.step("relu", step).unwrap();
        let masks = Masks::Secret(shape.clone());
        let suite = Bicoptor::<u64, Reference>::default();
        let verified = suite.verify(party).unwrap();
        (party.step("output/y", |party| suite.reveal(party, &masks, &share, &verified)).unwrap(), remembered)
    });
    let (sent, known) = (ran[1].0.clone(), ran[2].1.as_ref().unwrap());
    let zero = words(&ran[0].0).iter().zip(words(&sent)).map(|(a, b)| a.wrapping_add(*b));
    assert!(zero.eq([0; N]) && ran[2].0.is_empty());
    // The output says that x is negative, so the workers' coin is δ = b'. Worker 1's share is (1 −
    // 2δ)(m·a − ra) − δ·r_1, from which m follows where a is odd: half of the time.
    let guess = |i: usize| {
        let epsilon = if known.bits[i] == 1 { u64::MAX } else { 1 };
        let scaled = epsilon.wrapping_mul(words(&sent)[i].wrapping_add(known.bits[i] * known.r_1[i]));
        let m = scaled.wrapping_add(known.ra[i]).wrapping_mul(inverse(known.a[i]));
        (known.a[i] & 1 == 1).then(|| m.wrapping_sub(known.r[i]))
    };
    let right = (0..N).filter(|&i| guess(i) == Some(secret[i] as u64)).count();
    assert_eq!(right, 0, "the helper computes {right} of {N} numbers behind a zero");
}

#[test]
fn shares_that_are_sent_are_uniform_and_new_for_every_output() {
    let n = 1 << 14;
    let shape = Shape::from([n]);
    let sent = session(|party| {
        let me = party.me() as u8;
        let share = (me < 2).then(|| Tensor::new(shape.clone(), vec![40 + me; n].into()));
        let masks = Masks::Secret(shape.clone());
        let suite = Bicoptor::<u8, Reference>::default();
        ["a", "b"].map(|name| {
            let verified = suite.verify(party).unwrap();
            let reveal = |party: &mut Party<_>| suite.reveal(party, &masks, &share, &verified);
            party.step(&format!("output/{name}"), reveal).unwrap()
        })
    });
    for (a, b) in sent[0].iter().zip(&sent[1]) {
        let (a, b) = (a.as_bytes(), b.as_bytes());
        assert!(a.iter().zip(b).all(|(a, b)| a.wrapping_add(*b) == 81));
        let mut counts = [0f64; 256];
        a.iter().for_each(|&w| counts[w as usize] += 1.0);
        let chi: f64 = counts.iter().map(|c| (c - 64.0).powi(2) / 64.0).sum();
        assert!(chi < 256.0 + 7.0 * 512f64.sqrt(), "{chi}");
    }
    // One value that is opened twice: what is sent differs by all there is.
    let pairs = sent[0][0].as_bytes().iter().zip(sent[0][1].as_bytes());
    assert_eq!(pairs.map(|(a, b)| a.wrapping_sub(*b)).collect::<HashSet<u8>>().len(), 256);
}

#[test]
fn what_a_cut_loses_is_a_coin_and_no_function_of_earlier_shares() {
    // One sharing of −1 for all: whether the cut reads it as positive must not follow from it,
    // since the helper has dealt parts of it that hide earlier numbers.
    let (n, cut) = (4000, 3);
    let sign = SignBit { list: List::Bits, cut, bits: Some(8) };
    let shape = Shape::from([n]);
    for zero in [0u64, 5, 7, 1 << 40] {
        let shares = session(|party| {
            let mine = [Some(zero), Some(zero.wrapping_add(1).wrapping_neg()), None][party.me()];
            let mine = mine.map(|w| Tensor::new(shape.clone(), vec![w; n].into()));
            party.step("sign", |party| sign::online(party, &sign, mine.as_ref(), n)).unwrap()
        });
        let [Some(a), Some(b)] = [&shares[0], &shares[1]] else { panic!("workers hold shares") };
        let positive = a.iter().zip(b.iter()).filter(|(a, b)| a.wrapping_add(**b) == 1).count() as f64;
        let expected = n as f64 * (1.0 - 2f64.powi(-(cut as i32)));
        assert!((positive - expected).abs() < 6.0 * (expected / 8.0).sqrt(), "{zero}: {positive} of {n}");
    }
}
