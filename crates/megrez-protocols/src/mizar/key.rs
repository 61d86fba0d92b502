//! The comparison of a ReLU by a key ([`super::relu`], form *key*): a distributed comparison
//! function whose payload is what selects. With m' and r' the λ compared bits of m and r, ρ = msb
//! r', μ = msb m', and m̂, r̂ the bits below:
//!
//!   [x ≥ 0] = 1 ⊕ msb(m' − r') = μ ⊕ U,   U = ρ + (1 − 2ρ)·G,   G = [m̂ ≥ r̂].
//!
//! The dealer deals ρ·(1, R, b) beside (R, b), as it deals them times its bit a for the other
//! forms, and a key for (1 − 2ρ)·G·(1, R, b): both together are shares of U, U·R, U·b. So the half
//! that μ chooses is formed as there, with U for the dealer's bit: x·(μ ⊕ U), opened under a fresh
//! mask, and nothing comes from or goes to the dealer online.
//!
//! A key serves the one value that has its mask. [`megrez_kernels::ComparisonKeys`] is the key;
//! what is sent of it are the corrections of λ−1 levels ([`super::half_tree`]) and of ⌈(λ−1)/4⌉
//! digits.
//!
//! Offline, one round, bits per element, w = 2ℓ (fused 2ℓ + f) being the payload:
//!
//!   dealer → worker 0    128·(λ−2) + ⌈(λ−1)/4⌉·w, and 384 in all
//!   dealer → worker 1    128·(λ−1) + ⌈(λ−1)/4⌉·w + 2ℓ (fused 3ℓ + 2f), and 384 in all
//!
//! Security: `docs/security/keys.md`.

use super::half_tree::{HalfTree, Size};
use super::halves::Shares;
use crate::mss::DEALER;
use crate::{Cost, Unit};
use megrez_kernels::{Device, KeyShare, KeySpec, Tensor};
use megrez_plan::Relu as Spec;
use megrez_ring::Word;
use megrez_session::{Error, Party};

/// A worker's key: its tree, with words 0 and 1 of the value corrections, and the third.
pub struct Dealt<W: Word, D: Device> {
    tree: HalfTree<W, D>,
    tops: Tensor<W, D>,
}
encode_struct!(Dealt[W, D] => tree, tops);

pub fn spec<W: Word>(relu: &Spec) -> KeySpec {
    KeySpec { cut: relu.sign.cut, width: relu.sign.width(W::BITS), truncate: relu.truncate }
}

/// The trees of `n` values.
fn size(spec: KeySpec, n: usize) -> Size {
    Size { trees: n, depth: spec.levels(), values: 2 * spec.digits() }
}

/// What the keys of `n` values cost.
pub fn cost<W: Word>(spec: KeySpec, n: usize) -> Cost {
    let cost = size(spec, n).cost::<W>();
    match spec.truncate {
        0 => cost,
        f => [0, 1]
            .into_iter()
            .fold(cost, |cost, worker| cost.offline(DEALER, worker, spec.digits() * n, Unit::Bits(f))),
    }
}

/// ρ of n masks.
pub fn top_bits<W: Word, D: Device>(
    device: &D,
    spec: KeySpec,
    masks: &D::Buf<W>,
) -> Result<D::Buf<u64>, Error> {
    Ok(device.bit_planes(masks, spec.cut + spec.width - 1, 1)?)
}

/// The dealer deals keys for `n` masks, which it knows; a worker gets its own.
pub fn deal<W: Word, D: Device>(
    party: &mut Party<D>,
    spec: KeySpec,
    n: usize,
    masks: impl FnOnce(&D) -> Result<D::Buf<W>, Error>,
) -> Result<Option<Dealt<W, D>>, Error> {
    let (f, count) = (spec.truncate, n * spec.digits());
    let mut tops = None;
    let tree = size(spec, n).deal(party, |device, permutations, roots| {
        let dealt = device.deal_keys(spec, permutations, &masks(device)?, roots)?;
        tops = if f == 0 { None } else { Some(device.pack_low(&dealt.tops, f)?) };
        Ok((dealt.first, dealt.others, dealt.values))
    })?;
    if let Some(packed) = tops {
        for worker in [0, 1] {
            party.send_bits(worker, "top-corrections", packed.clone(), count * f as usize)?;
        }
    }
    let Some(tree) = tree else { return Ok(None) };
    let tops = match f {
        0 => Tensor::new([0], party.device().upload(vec![])?),
        _ => {
            let packed = party.recv_bits(DEALER, "top-corrections", count * f as usize)?;
            Tensor::new([count], party.device().unpack_low(&packed, f, count)?)
        }
    };
    Ok(Some(Dealt { tree, tops }))
}

/// Whether worker j's keys are those of `n` values of this step.
pub fn holds<W: Word, D: Device>(spec: KeySpec, n: usize, j: usize, key: &Dealt<W, D>) -> bool {
    let tops = if spec.truncate == 0 { 0 } else { n * spec.digits() };
    size(spec, n).holds(j, &key.tree) && key.tops.elements() == tops
}

/// A worker's shares of U and its products, from those of ρ and the key at its n masked values. A
/// key is used up.
pub fn evaluate<W: Word, D: Device>(
    device: &D,
    spec: KeySpec,
    (masked, n): (&D::Buf<W>, usize),
    key: Dealt<W, D>,
    shares: Shares<W, D>,
) -> Result<Shares<W, D>, Error> {
    let Dealt { tree, tops } = key;
    let share = KeyShare {
        root: &tree.root.stream(),
        first: tree.first.as_ref().map(|first| &first.buf),
        others: &tree.others.buf,
        values: &tree.values.buf,
        tops: &tops.buf,
    };
    let mut sums = device.evaluate_keys(spec, &tree.permutations.buf, masked, &share)?.into_iter();
    let mut plus = |x: D::Buf<W>| -> Result<D::Buf<W>, Error> {
        let sum = sums.next().expect("a sum for each word of the payload");
        Ok(device.combine(&[(W::ONE, &x), (W::ONE, &sum)], W::ZERO, n)?)
    };
    Ok(Shares {
        bit: plus(shares.bit)?,
        mask_bit: plus(shares.mask_bit)?,
        truncation: match shares.truncation {
            None => None,
            Some((parts, top_bit)) => Some((parts, plus(top_bit)?)),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mizar::Mizar;
    use crate::testing::World;
    use megrez_kernels::{
        ComparisonKeys, Cpu, Memory, OpenSelected, PERMUTATION_WORDS, Reference, Selected, Truncation,
    };
    use megrez_plan::{List, Op, ReluForm, SignBit};
    use megrez_prg::Key;

    fn sign(cut: u32, width: u32) -> SignBit {
        SignBit { list: List::Digits(vec![1; width as usize - 1]), cut, bits: Some(width) }
    }

    fn relu(cut: u32, width: u32, truncate: u32) -> Op {
        Op::Relu(Spec { sign: sign(cut, width), form: ReluForm::Key, truncate })
    }

    /// What the workers open for x + r under mask r, of all pairs: the step without its masks.
    fn opened<W: Word>(spec: KeySpec, pairs: &[(W, W)]) -> Vec<W> {
        let (device, f, n) = (Cpu::default(), spec.truncate, pairs.len());
        let up = |word: &dyn Fn(W, W) -> W| {
            device.upload(pairs.iter().map(|&(x, r)| word(x, r)).collect()).unwrap()
        };
        let (m, r) = (up(&|x, r| x.add(r)), up(&|_, r| r));
        let roots = [1, 2].map(|seed| Key::from_bytes([seed; 32]).stream());
        let permutations = device.upload(Key::from_bytes([3; 32]).stream().words(PERMUTATION_WORDS)).unwrap();
        let dealt = device.deal_keys(spec, &permutations, &r, [&roots[0], &roots[1]]).unwrap();
        // What is dealt beside the key: worker 1's shares are zeros here.
        let rho = top_bits(&device, spec, &r).unwrap();
        let top = up(&|_, r| W::from_u64(r.msb()));
        let high = up(&|_, r| r.shr(f));
        let secrets = [
            device.bit_times::<W>(&rho, None, n).unwrap(),
            device.bit_times(&rho, Some(&high), n).unwrap(),
            device.bit_times(&rho, Some(&top), n).unwrap(),
        ];
        let zeros = up(&|_, _| W::ZERO);
        let share = |j: usize| {
            let first = (j == 1).then_some(&dealt.first);
            let (others, values, tops) = (&dealt.others, &dealt.values, &dealt.tops);
            let key = KeyShare { root: &roots[j], first, others, values, tops };
            let sums = device.evaluate_keys(spec, &permutations, &m, &key).unwrap();
            let of = |p: usize| match (sums.get(p), j) {
                (Some(sum), 0) => {
                    device.combine(&[(W::ONE, &secrets[p]), (W::ONE, sum)], W::ZERO, n).unwrap()
                }
                (Some(sum), _) => sum.clone(),
                (None, _) => zeros.clone(),
            };
            let [bit, mask_bit, top_bit] = [0, 1, 2].map(of);
            let (high, top) = if j == 0 { (&high, &top) } else { (&zeros, &zeros) };
            let truncation = (f > 0).then_some((Truncation { bits: f, high, top }, &top_bit));
            let selected = Selected {
                masked: &m,
                mask: if j == 0 { &r } else { &zeros },
                choice: &top_bits(&device, spec, &m).unwrap(),
                flip: None,
                bit: &bit,
                mask_bit: &mask_bit,
                truncation,
                output_mask: &zeros,
            };
            device.open_selected(j, &selected).unwrap()
        };
        share(0).iter().zip(share(1).iter()).map(|(a, b)| a.add(*b)).collect()
    }

    /// The ReLU of the other forms, as a function of x and r.
    fn stated<W: Word>(spec: KeySpec, x: W, r: W) -> W {
        let (m, low) = (x.add(r).to_u64(), |k: u32| u64::MAX.checked_shr(64 - k).unwrap_or(0));
        let cut = |x: u64| x >> spec.cut & low(spec.width);
        let read = cut(m).wrapping_sub(cut(r.to_u64())) >> (spec.width - 1) & 1 == 0;
        let f = spec.truncate;
        let carry = (m & low(f)) < (r.to_u64() & low(f));
        match read {
            false => W::ZERO,
            true => W::from_i64((x.to_i64() >> f) + i64::from(carry)),
        }
    }

    /// Every x in range with every mask.
    fn exhaustive<W: Word>(spec: KeySpec) {
        let half = 1i64 << (spec.cut + spec.width - 1);
        let quarter = if spec.truncate == 0 { 1i64 << (W::BITS - 1) } else { 1i64 << (W::BITS - 2) };
        let range = (-half).max(-quarter)..=(half - (1 << spec.cut)).min(quarter - 1);
        let masks = || (0..1u64 << W::BITS).map(W::from_u64);
        let pairs: Vec<(W, W)> = range.flat_map(|x| masks().map(move |r| (W::from_i64(x), r))).collect();
        for (&(x, r), z) in pairs.iter().zip(opened(spec, &pairs)) {
            assert_eq!(z, stated(spec, x, r), "{spec:?}: x = {x:?}, r = {r:?}");
            if spec.cut <= spec.truncate && x.msb() == 1 {
                assert_eq!(z, W::ZERO, "{spec:?}: x = {x:?}, r = {r:?}");
            }
        }
    }

    #[test]
    fn every_value_with_every_mask_at_eight_bits() {
        for cut in 0..7 {
            for width in 2..=8 - cut {
                for truncate in 0..6 {
                    exhaustive::<u8>(KeySpec { cut, width, truncate });
                }
            }
        }
    }

    #[test]
    fn random_and_extreme_words_at_32_and_64_bits() {
        fn of<W: Word>() {
            let drawn = Key::from_bytes([9; 32]).stream().words(600);
            let half = W::ONE.shl(W::BITS - 1).to_u64();
            let edges =
                [0, 1, half, half - 1, half + 1, u64::MAX, half >> 1, (half >> 1) - 1, (half >> 1) + 1];
            for (cut, width, truncate) in [
                (0, W::BITS, 0),
                (0, W::BITS, 7),
                (W::BITS / 4, 16, 0),
                (13, 16, 13),
                (16, 16, 16),
                (5, 3, 9),
            ] {
                let spec = KeySpec { cut, width, truncate };
                let top = (cut + width - 1).min(if truncate == 0 { 63 } else { W::BITS - 2 });
                // A value below 2^top in magnitude.
                let small = |x: u64| W::from_i64((x as i64) >> (63 - top));
                let promised = |x: &W| i128::from(x.to_i64()) <= (1i128 << top) - (1i128 << cut);
                let values = drawn[..300].iter().map(|&x| small(x));
                let (end, step) = (1i64.wrapping_shl(top), 1i64 << cut);
                let close = [0, 1, -1, end.wrapping_sub(step), end.wrapping_neg(), step, -step];
                let values = values.chain(close.map(W::from_i64)).filter(promised);
                let masks = drawn[300..].iter().copied().chain(edges).map(W::from_u64).cycle();
                let pairs: Vec<(W, W)> = values.cycle().take(4000).zip(masks).collect();
                for (&(x, r), z) in pairs.iter().zip(opened(spec, &pairs)) {
                    assert_eq!(z, stated(spec, x, r), "{spec:?}: x = {x:?}, r = {r:?}");
                }
            }
        }
        of::<u32>();
        of::<u64>();
    }

    #[test]
    fn the_step_is_a_relu_and_costs_what_it_says() {
        let x: Vec<u64> = (0..256).cycle().take(4 * 256).collect();
        for (cut, width) in [(0, 8), (2, 6), (1, 2)] {
            let world = World::new(Mizar::<u8, Reference>::default());
            let half = 1i64 << (cut + width - 1);
            let y = world.step(relu(cut, width, 0), 3, &[&x]);
            for (x, y) in x.iter().map(|&x| x as i8 as i64).zip(y) {
                let in_range = (-half..=half - (1 << cut)).contains(&x);
                if in_range && (x >= 0 || x <= -(1 << cut)) {
                    assert_eq!(y as u8 as i8 as i64, x.max(0), "cut {cut}, width {width}: {x}");
                }
            }
        }
        crate::mizar::relu::tests::a_truncation_in_the_same_step(relu);
    }

    /// At 64 bits, f = k = λ = 16: what the design promises, 5,400 bits.
    #[test]
    fn bits_are_as_few_as_said() {
        let spec = KeySpec { cut: 16, width: 16, truncate: 16 };
        let of_key = cost::<u64>(spec, 1).bits(megrez_session::Phase::Offline);
        let dealt = 3 * 64 + 2 * 16;
        assert_eq!(of_key, f64::from(29 * 128 + 2 * 4 * (2 * 64 + 16) + 2 * 384));
        assert_eq!(of_key as u32 - 2 * 384 + dealt + 2 * 64, 5216);
    }
}
