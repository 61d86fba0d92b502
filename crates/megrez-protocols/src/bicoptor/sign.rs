//! Sign of an additively shared value by a masked list of truncations. Improved Bicoptor
//! (Probabilistic truncation, Alg. 3-6), corrected, with the deterministic cut (Alg. 4) in front:
//! ReLU* with a calibrated scale cuts `cut` low bits.
//!
//! Cut: v = [x_0 >> k] − [−x_1 >> k], |v| bounded by λ = `bits` − 1 bits. The workers flip a common
//! coin t: q = v, or q = −v − 1 for t = 1 (x_0 complemented, x_1 negated), so that q ≥ 0 iff [x ≥
//! 0] ⊕ t = 1. With u_i = (q_0 >> i) − (−q_1 >> i), which is ⌊q / 2^i⌋ or one more, the list is
//!   q,   u_i + u_(i+1) − 1 for i = 0 … λ−1,   u_λ − 1.
//! For q > 0 the u_i fall to 1 and from 1 to 0 exactly once, at a sum of 1; for q = 0 all u_i are
//! 0, and for q < 0 none is positive. So the list has one zero if q ≥ 0 and none otherwise.
//!
//! Deviates from Alg. 6, which is *wrong and leaks* as printed:
//! - It flips −x, so that x = 0 never shows a zero. Running it on 2x + 1, the 1 added at worker 0,
//!   is what stands here: the sequence of 2v + 1 begins with v's own entries, and its first entry
//!   3q is 0 where q is.
//! - Its first sum is taken modulo 2^λ and wraps near |x| = 2^(λ+1)/3: a wrong sign or two zeros
//!   (λ = 7: ±85, ±86). Here every sum is taken modulo 2^(λ+1).
//! - It needs 2λ ≤ ℓ to have λ bits of the last truncation. Entry i is below 2^(λ+1−i), so it is
//!   taken modulo 2^min(λ+1, ℓ−k−i−1) here, and k + λ + 3 ≤ ℓ suffices.
//! - Shares are sent as they are. The helper dealt some of them and could compare: zero-shares make
//!   them uniform.
//! - The cut is made on the shares as they are. Whether it misreads a small negative value would
//!   then follow from their low bits, which the helper knows in part: before a cut the workers
//!   renew the sharing.
//! - A rotation instead of a shuffle (at most one zero, the others uniform and independent).
//!
//! Alg. 5, from Z_M to F_p, p ≥ M: both shares are read in 1 … M, worker 1's negated, so that their
//! difference is 0 in F_p only if it is 0 modulo M.
//!
//! phase     rounds  bits per element     from → to
//! online    2       2·(λ + 2)² + ℓ       workers → helper, helper → worker 0
//!
//! 226 at λ = 7, ℓ = 64; p is the smallest prime above 2^(λ+1). The result is [x ≥ 0] in shares of
//! Z_2^ℓ.
//!
//! Helper sees: λ + 2 elements whose sums are uniform non-zero, one of them replaced by zero at a
//! uniform place with probability ½ *while −2^(k+λ) ≤ x ≤ 2^(k+λ) − 2^k*; a value outside may show
//! it another number of zeros, that is, that it is outside. Worker 0 sees a uniform share of the
//! answer, worker 1 nothing.
//!
//! Security: `docs/security/bicoptor.md`.

use super::family::Bicoptor;
use crate::mss::{DEALER, Role, deal_words};
use crate::sharing::reveal;
use crate::{Call, Cost, Made, OnlineStep, Operands, Unit, Unsupported};
use megrez_kernels::{Device, Field, ListAlgebra, ListInput, ListStreams, Tensor};
use megrez_plan::{Op, SignBit};
use megrez_ring::{Shape, Word};
use megrez_session::{Error, Party};

/// The most bits that are compared: products in F_p fit a word.
const WIDEST: u32 = 30;

/// Whether this comparison can run, or why not.
pub(super) fn check(sign: &SignBit, ring: u32) -> Result<(), Unsupported> {
    let width = sign.width(ring);
    let most = ring.saturating_sub(sign.cut + 2).min(WIDEST);
    if (3..=most).contains(&width) {
        return Ok(());
    }
    Err(Unsupported(format!(
        "bicoptor compares 3 to {most} bits above a cut of {} on a ring of {ring}, not {width}: choose --bits, or \
         another protocol",
        sign.cut
    )))
}

/// The shape of a list.
#[derive(Clone, Copy)]
struct List {
    cut: u32,
    /// λ.
    magnitude: u32,
    /// Bits of a share after the cut.
    share: u32,
    field: Field,
}

impl List {
    fn new(sign: &SignBit, ring: u32) -> Self {
        let width = sign.width(ring);
        List { cut: sign.cut, magnitude: width - 1, share: ring - sign.cut, field: Field::above_power(width) }
    }

    fn unit(&self) -> Unit {
        Unit::Residue(self.field.p() as u32)
    }

    /// Worker `j`'s entries for x_0 or −x_1 and the coin, read in 1 … M; the sum's entry is 0 iff
    /// both workers' are equal.
    fn readings(&self, j: usize, share: u64, coin: u64, mut each: impl FnMut(u64)) {
        let low = u64::MAX >> (64 - self.share);
        let flip = coin.wrapping_neg();
        let one = u64::from(j == 0);
        // q_0, or −q_1: complemented at worker 0, negated at worker 1 if the coin says so.
        let cut = (share >> self.cut) & low;
        let q = ((cut ^ flip).wrapping_sub(flip * (1 - one))) & low;
        let mut entry = |value: u64, bits: u32| each((value.wrapping_sub(1) & (u64::MAX >> (64 - bits))) + 1);
        entry(q, self.magnitude + 1);
        for i in 0..self.magnitude {
            let sum = (q >> i).wrapping_add(q >> (i + 1));
            entry(sum.wrapping_sub(one), (self.magnitude + 1).min(self.share - i - 1));
        }
        entry((q >> self.magnitude).wrapping_sub(one), (self.magnitude + 1).min(self.share - self.magnitude));
    }
}

impl ListAlgebra for List {
    fn field(&self) -> Field {
        self.field
    }
    fn length(&self) -> usize {
        self.magnitude as usize + 2
    }
    fn entries(&self, worker: &ListInput<'_>, entry: &mut dyn FnMut(i64)) {
        let first = worker.j == 0;
        let share = if first { worker.value } else { worker.value.wrapping_neg() };
        let mut multipliers = worker.multipliers.iter();
        self.readings(worker.j, share, worker.flip, |reading| {
            let product = multipliers.next().expect("one for each entry") * reading as i64;
            entry(if first { product } else { -product });
        });
    }
}

/// The lists' messages, in round `round` of the step.
pub(super) fn list_cost(sign: &SignBit, ring: u32, n: usize, round: u32) -> Cost {
    let list = List::new(sign, ring);
    let entries = n * list.length();
    Cost::LOCAL.online(round, 0, DEALER, entries, list.unit()).online(round, 1, DEALER, entries, list.unit())
}

/// Workers send their lists and learn t; the helper learns [x ≥ 0] ⊕ t.
pub(super) fn compare<W: Word, D: Device>(
    party: &mut Party<D>,
    sign: &SignBit,
    share: Option<&Tensor<W, D>>,
    n: usize,
) -> Result<D::Buf<u64>, Error> {
    let list = List::new(sign, W::BITS);
    let packed = n * list.length() * list.field.bits() as usize;
    match Role::of(party) {
        Role::Worker(j) => {
            let share = &share.expect("workers hold shares").buf;
            // What a cut loses depends on the low bits of the shares. A new sharing makes a coin of
            // it.
            let share = if sign.cut == 0 {
                share.clone()
            } else {
                party.scope("renewed", |party| reveal::of_two(party, j, share, n))?
            };
            let coins = party.stream(1 - j, "coin")?;
            let coins = party.device().random_bits(&coins, n)?;
            let streams = [
                party.stream(1 - j, "multiplier")?,
                party.stream(1 - j, "zero-share")?,
                party.stream(1 - j, "rotation")?,
            ];
            let [multiplier, zero_share, rotation] = &streams;
            let streams = ListStreams { multiplier, zero_share, rotation };
            let words = party.device().masked_lists(&list, j, &share, None, &coins, &streams)?.remove(0);
            party.send_bits(DEALER, "list", words, packed)?;
            Ok(coins)
        }
        Role::Dealer => {
            let [a, b] = [party.recv_bits(0, "list", packed)?, party.recv_bits(1, "list", packed)?];
            let none = party.device().scan_lists(&list, [&[a], &[b]], n)?;
            Ok(party.device().xor(&[&none], true, n)?)
        }
    }
}

/// Shares of [x ≥ 0] in the ring, at the workers.
pub(super) fn online<W: Word, D: Device>(
    party: &mut Party<D>,
    sign: &SignBit,
    share: Option<&Tensor<W, D>>,
    n: usize,
) -> Result<Option<D::Buf<W>>, Error> {
    let bit = compare(party, sign, share, n)?;
    let answer = deal_words(party, 0, "answer", n, |device| Ok(device.bit_times::<W>(&bit, None, n)?))?;
    let (Role::Worker(j), Some(answer)) = (Role::of(party), answer) else { return Ok(None) };
    // t + (1 − 2t)·answer.
    let device = party.device();
    let (coin, product) = (device.bit_times::<W>(&bit, None, n)?, device.bit_times(&bit, Some(&answer), n)?);
    let public = if j == 0 { W::ONE } else { W::ZERO };
    let terms = [(W::ONE, &answer), (W::from_i64(-2), &product), (public, &coin)];
    Ok(Some(device.combine(&terms, W::ZERO, n)?))
}

/// [x ≥ 0] as 0 or 1.
pub struct Sign<'a> {
    sign: &'a SignBit,
    shape: &'a Shape,
}

impl<'a, W: Word, D: Device> OnlineStep<'a, Bicoptor<W, D>> for Sign<'a> {
    fn of(_: &Bicoptor<W, D>, call: Call<'a>) -> Option<Self> {
        let Op::NonNegative(sign) = call.op else { return None };
        Some(Sign { sign, shape: call.shape() })
    }

    fn cost(&self) -> Result<Cost, Unsupported> {
        check(self.sign, W::BITS)?;
        let n = self.shape.elements();
        Ok(list_cost(self.sign, W::BITS, n, 1).online(2, DEALER, 0, n, Unit::Bits(W::BITS)))
    }

    fn online(
        &self,
        party: &mut Party<D>,
        operands: Operands<'_, Bicoptor<W, D>>,
    ) -> Result<Made<Bicoptor<W, D>>, Error> {
        let share = online(party, self.sign, operands.share(0), self.shape.elements())?;
        Ok((share.map(|share| Tensor::new(self.shape.clone(), share)), None))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many entries of the sum are zero.
    fn zeros(list: &List, shares: [u64; 2], coin: u64) -> usize {
        let entries = |j: usize| {
            let mut entries = vec![];
            list.readings(j, shares[j], coin, |entry| entries.push(entry));
            entries
        };
        let (a, b) = (entries(0), entries(1));
        assert_eq!((a.len(), b.len()), (list.length(), list.length()));
        a.iter().zip(&b).filter(|(a, b)| (**a + list.field.p() - **b).is_multiple_of(list.field.p())).count()
    }

    /// Worker 1 is given −x_1.
    fn shares(x: u64, zero: u64, ring: u32) -> [u64; 2] {
        let low = u64::MAX >> (64 - ring);
        [zero & low, zero.wrapping_sub(x) & low]
    }

    #[test]
    fn a_list_has_one_zero_or_none_for_every_value_and_sharing() {
        for ring in 5..=10 {
            for bits in 3..=ring - 2 {
                let sign = SignBit { bits: Some(bits), ..SignBit::FULL };
                assert!(check(&sign, ring).is_ok());
                let list = List::new(&sign, ring);
                for x in -(1i64 << (bits - 1))..1 << (bits - 1) {
                    for zero in 0..1 << ring {
                        for coin in 0..2 {
                            let expected = usize::from((x >= 0) ^ (coin == 1));
                            let found = zeros(&list, shares(x as u64, zero, ring), coin);
                            assert_eq!(
                                found, expected,
                                "ring {ring}, {bits} bits, x = {x} as {zero}, coin {coin}"
                            );
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn the_cut_reads_small_negative_values_as_often_as_it_says() {
        let ring = 10;
        for (cut, bits) in [(1, 3), (2, 4), (3, 5), (2, 6)] {
            let sign = SignBit { cut, bits: Some(bits), ..SignBit::FULL };
            let list = List::new(&sign, ring);
            let top = 1i64 << (cut + bits - 1);
            for x in -top..=top - (1 << cut) {
                let read = |coin| {
                    let found = (0..1 << ring).map(|zero| zeros(&list, shares(x as u64, zero, ring), coin));
                    found.filter(|&n| n == 1 - coin as usize).count() as i64
                };
                let expected = match x {
                    0.. => 1 << ring,
                    _ => ((1 << cut) + x).max(0) << (ring - cut),
                };
                assert_eq!([read(0), read(1)], [expected; 2], "cut {cut}, {bits} bits, x = {x}");
            }
        }
    }

    #[test]
    fn values_outside_the_range_show() {
        // Neither coin makes a zero for some value that is too large: the helper sees fewer zeros
        // than half.
        let list = List::new(&SignBit { bits: Some(4), ..SignBit::FULL }, 10);
        let all = || (0..2).flat_map(|c| (0..1 << 10).map(move |z| (c, z)));
        let found = |x: u64| all().filter(|&(c, z)| zeros(&list, shares(x, z, 10), c) > 0).count();
        assert_eq!(found(7), 1 << 10);
        assert!((8..512).any(|x| found(x) != 1 << 10));
    }

    #[test]
    fn costs_are_those_of_the_paper_corrected() {
        use crate::Suite as _;
        use megrez_kernels::Reference;
        use megrez_plan::{Kind, Value};
        use megrez_session::Phase::{Offline, Online};
        for (lambda, bits) in [(7, 226.0), (15, 642.0)] {
            let sign = SignBit { bits: Some(lambda + 1), ..SignBit::FULL };
            let value = |kind| Value { shape: [1].into(), kind };
            let (ring, bit) = (value(Kind::Ring { frac: 0 }), value(Kind::Bit));
            let of = |op: Op, output: &Value| {
                let call = Call { op: &op, inputs: &[&ring], output };
                Bicoptor::<u64, Reference>::default().cost(call).unwrap()
            };
            let cost = of(Op::NonNegative(sign.clone()), &bit);
            assert_eq!((cost.bits(Offline), cost.bits(Online), cost.rounds(Online)), (0.0, bits, 2));
            let relu = megrez_plan::Relu { sign, form: megrez_plan::ReluForm::ThreeRounds, truncate: 0 };
            let cost = of(Op::Relu(relu), &ring);
            assert_eq!((cost.bits(Offline), cost.bits(Online), cost.rounds(Online)), (0.0, bits + 192.0, 2));
        }
    }

    #[test]
    fn wide_comparisons_are_refused_with_a_remedy() {
        assert!(check(&SignBit::FULL, 64).is_err_and(|why| why.0.contains("--bits")));
        for (cut, bits, ring, right) in
            [(0, 6, 8, true), (0, 7, 8, false), (3, 3, 8, true), (4, 3, 8, false), (0, 2, 64, false)]
        {
            let sign = SignBit { cut, bits: Some(bits), ..SignBit::FULL };
            assert_eq!(check(&sign, ring).is_ok(), right, "{bits} bits above {cut} of {ring}");
        }
    }
}
