//! That a key is the comparison, and the two workers' halves of it alone are not.

use super::*;
use crate::{Cpu, PERMUTATION_WORDS};
use megrez_prg::RootKey;
use std::sync::Arc;

fn stream(seed: u8) -> Stream {
    RootKey::from_bytes([seed; 32]).derive(b"key").stream()
}

/// Both workers' sums at every masked word, for keys of these masks.
fn sums<W: Word>(spec: KeySpec, masks: &[W], masked: &[W]) -> Vec<Vec<W>> {
    let device = Cpu::default();
    let roots = [stream(1), stream(2)];
    let permutations = device.upload(stream(3).words(PERMUTATION_WORDS)).unwrap();
    let up = |x: &[W]| device.upload(x.to_vec()).unwrap();
    let dealt = device.deal_keys(spec, &permutations, &up(masks), [&roots[0], &roots[1]]).unwrap();
    let share = |j: usize| {
        let first = (j == 1).then_some(&dealt.first);
        let (others, values, tops) = (&dealt.others, &dealt.values, &dealt.tops);
        let key = KeyShare { root: &roots[j], first, others, values, tops };
        device.evaluate_keys(spec, &permutations, &up(masked), &key).unwrap()
    };
    let sum = |(a, b): (Arc<Vec<W>>, Arc<Vec<W>>)| a.iter().zip(&*b).map(|(a, b)| a.add(*b)).collect();
    share(0).into_iter().zip(share(1)).map(sum).collect()
}

/// What the sums are to be.
fn stated<W: Word>(spec: KeySpec, r: W, m: W) -> [W; 3] {
    let low = |x: W| (x.to_u64() >> spec.cut) % (1 << (spec.width - 1));
    let top = (r.to_u64() >> (spec.cut + spec.width - 1)) & 1 == 1;
    let words = [W::ONE, r.shr(spec.truncate), W::from_u64(r.msb())];
    words.map(|word| match (low(m) >= low(r), top) {
        (false, _) => W::ZERO,
        (true, false) => word,
        (true, true) => word.neg(),
    })
}

fn check<W: Word>(spec: KeySpec, masks: &[W], masked: &[W]) {
    for (p, sums) in sums(spec, masks, masked).iter().enumerate() {
        for ((&r, &m), &sum) in masks.iter().zip(masked).zip(sums) {
            assert_eq!(sum, stated(spec, r, m)[p], "part {p} of {spec:?} at m = {m:?}, r = {r:?}");
        }
    }
}

/// Every mask at every masked word of some bits.
fn every<W: Word>(bits: u32) -> (Vec<W>, Vec<W>) {
    let pairs = (0..1u64 << (2 * bits)).map(|i| (i >> bits, i & ((1 << bits) - 1)));
    pairs.map(|(r, m)| (W::from_u64(r), W::from_u64(m))).unzip()
}

#[test]
fn every_comparison_of_a_byte() {
    let (masks, masked) = every::<u8>(8);
    for cut in 0..7 {
        for width in 2..=8 - cut {
            let truncate = (cut + width) % 6;
            check(KeySpec { cut, width, truncate }, &masks, &masked);
        }
    }
}

#[test]
fn every_comparison_of_nine_and_ten_bits() {
    let (masks, masked) = every::<u16>(9);
    check(KeySpec { cut: 0, width: 9, truncate: 3 }, &masks, &masked);
    let (masks, masked) = every::<u16>(10);
    check(KeySpec { cut: 1, width: 9, truncate: 0 }, &masks, &masked);
    check(KeySpec { cut: 0, width: 10, truncate: 0 }, &masks, &masked);
}

#[test]
fn wide_comparisons_at_their_edges() {
    fn of<W: Word>() {
        let edges = |x: u64| [0, 1, 2, x, u64::MAX].map(|d| [x.wrapping_add(d), x.wrapping_sub(d)]);
        let near = [0, 1 << (W::BITS - 1), 1 << (W::BITS - 2), 1 << 15].map(edges);
        let words: Vec<u64> = near.into_iter().flatten().flatten().chain(stream(4).words(20)).collect();
        let pairs = words.iter().flat_map(|r| words.iter().map(|m| (W::from_u64(*r), W::from_u64(*m))));
        let (masks, masked): (Vec<W>, Vec<W>) = pairs.unzip();
        let ring = W::BITS;
        for (cut, width) in [(0, ring), (1, ring - 1), (3, ring - 7), (ring / 4, ring / 4)] {
            for truncate in [0, ring / 4] {
                check(KeySpec { cut, width, truncate }, &masks, &masked);
            }
        }
    }
    of::<u32>();
    of::<u64>();
}

/// One bit of any correction that is off is noticed by some walk.
#[test]
fn a_wrong_correction_is_a_wrong_sum() {
    let spec = KeySpec { cut: 0, width: 6, truncate: 2 };
    let device = Reference;
    let (masks, masked): (Vec<u8>, Vec<u8>) = every::<u8>(8);
    let roots = [stream(1), stream(2)];
    let permutations = device.upload(stream(3).words(PERMUTATION_WORDS)).unwrap();
    let up = |x: &[u8]| device.upload(x.to_vec()).unwrap();
    let dealt = device.deal_keys(spec, &permutations, &up(&masks), [&roots[0], &roots[1]]).unwrap();
    let wrong = |first: u64, others: u64, value: u8, top: u8| {
        let bad = |x: &Arc<Vec<u64>>, by: u64| Arc::new(x.iter().map(|x| x ^ by).collect::<Vec<_>>());
        let add = |x: &Arc<Vec<u8>>, by: u8| Arc::new(x.iter().map(|x| x.wrapping_add(by)).collect());
        let first = bad(&dealt.first, first);
        let (others, values) = (bad(&dealt.others, others), add(&dealt.values, value));
        let tops = add(&dealt.tops, top);
        let share = |j: usize| {
            let first = (j == 1).then_some(&first);
            let (others, values, tops) = (&others, &values, &tops);
            let key = KeyShare { root: &roots[j], first, others, values, tops };
            device.evaluate_keys(spec, &permutations, &up(&masked), &key).unwrap()
        };
        let (a, b) = (share(0), share(1));
        let right = |e: usize| {
            let stated = stated(spec, masks[e], masked[e]);
            (0..3).all(|p| a[p][e].wrapping_add(b[p][e]) == stated[p])
        };
        (0..masks.len()).filter(|&e| !right(e)).count()
    };
    assert_eq!(wrong(0, 0, 0, 0), 0);
    assert!(wrong(1 << 63, 0, 0, 0) > masks.len() / 2);
    assert!(wrong(0, 2, 0, 0) > masks.len() / 4);
    assert!(wrong(0, 0, 1, 0) > masks.len() / 4);
    assert!(wrong(0, 0, 0, 1) > masks.len() / 4);
}
