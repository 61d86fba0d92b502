//! Sign bit on MSS by a masked list. MIZAR, Fig. 4, and its generalisation to digits (DIG); the cut
//! of protocols on few bits (compare λ bits above the k lowest) is part of the list's
//! specification.
//!
//! Deviates from the figure: zero-shares z on both lists (the dealer made the shares of ρ, so
//! without them the ratio of the lists cancels w and gives the dealer m); ρ = (r−1) mod 2^(λ−1) is
//! the complement of r's low bits (r̂ = 0 then fits); Δ enters worker 0's share only; a uniform
//! rotation instead of a permutation (a list has at most one zero and its other entries are
//! uniform, so only the zero's place needs hiding).
//!
//! phase     rounds  bits per element            from → to
//! offline   1       dealt·log p                 dealer → worker 0
//! online    2       2·length·log p + 2          workers → dealer, dealer → workers
//!
//! with dealt = λ−1 and length = λ for the bit list, Σ(2^w − 1) and the number of digits for
//! digits; log p as packed on the wire, 64 / ⌊64 / log2 p⌋.
//!
//! The baselines (aegis, concurrent) differ in the lists online: theirs are stated in [`Baseline`],
//! ignore digits, and cost 4·λ·log p (aegis) and 2·λ·log p online. The dealer's view of the
//! concurrent list is that of the bit list; aegis leaks.
//!
//! Worker sees: its share of ρ, one uniform bit (b ⊕ r_y). Dealer sees: `length` elements whose
//! sums are uniform non-zero, one of them replaced by zero at a uniform place with probability ½,
//! independent of x because Δ is uniform.
//!
//! Security: `docs/security/mizar.md`.

use super::family::{Lists, Mizar};
use crate::mss::{BitMask, DEALER, Data, Masks, RingMask, Role};
use crate::{Call, Cost, Made, Operands, Step, Unit, Unsupported};
use megrez_kernels::{Baseline, Bits, Device, FieldShare, ListSpec, ListStreams, Tensor};
use megrez_plan::{Op, SignBit};
use megrez_prg::Key;
use megrez_ring::{Shape, Word};
use megrez_session::{Error, Party};

/// What a party keeps of the dealt digits or bits of ρ.
pub enum Dealt<D: Device> {
    /// Worker 0: its shares, as received.
    Shares(Bits<D>),
    /// Worker 1: the key of its shares.
    Stream(Key),
    /// Dealer: s = msb(−(r>>k) mod 2^λ).
    Signs(Bits<D>),
}

impl<D: Device> crate::Store<D> for Dealt<D> {
    fn write(&self, device: &D, out: &mut Vec<u8>) -> Result<(), crate::StoreError> {
        match self {
            Dealt::Shares(words) => {
                out.push(0);
                words.write(device, out)
            }
            Dealt::Stream(key) => {
                out.push(1);
                crate::Store::<D>::write(key, device, out)
            }
            Dealt::Signs(signs) => {
                out.push(2);
                signs.write(device, out)
            }
        }
    }
    fn read(device: &D, input: &mut &[u8]) -> Result<Self, crate::StoreError> {
        Ok(match crate::store::take(input, 1)?[0] {
            0 => Dealt::Shares(crate::Store::<D>::read(device, input)?),
            1 => Dealt::Stream(crate::Store::<D>::read(device, input)?),
            2 => Dealt::Signs(crate::Store::<D>::read(device, input)?),
            _ => return Err(crate::StoreError::Damaged),
        })
    }
}

/// The names of a baseline's messages.
const BASELINE_LISTS: [&str; 2] = ["list", "second-list"];

/// The lists of `n` values, which every comparison of this protocol is made of.
pub(super) struct List {
    lists: Lists,
    spec: ListSpec,
    n: usize,
}

impl List {
    pub fn new(lists: Lists, sign: &SignBit, ring: u32, n: usize) -> Self {
        let own = || ListSpec::new(sign, ring);
        List { lists, spec: lists.map_or_else(own, |baseline| baseline.spec(sign, ring)), n }
    }

    /// Without the dealer's answer.
    pub fn cost(&self) -> Cost {
        let (n, unit) = (self.n * self.spec.length(), Unit::Field(self.spec.prime));
        let dealt = Cost::LOCAL.offline(DEALER, 0, self.n * self.spec.dealt(), unit);
        (0..self.lists.map_or(1, Baseline::lists))
            .fold(dealt, |cost, _| cost.online(1, 0, DEALER, n, unit).online(1, 1, DEALER, n, unit))
    }

    /// Offline: the dealer deals ρ.
    pub fn deal<W: Word, D: Device>(
        &self,
        party: &mut Party<D>,
        mask: &RingMask<W, D>,
    ) -> Result<Dealt<D>, Error> {
        self.deal_of(party, |device| Ok(mask.total(device)?.buf))
    }

    /// As [`List::deal`], for masks that the dealer computes.
    pub fn deal_of<W: Word, D: Device>(
        &self,
        party: &mut Party<D>,
        masks: impl FnOnce(&D) -> Result<D::Buf<W>, Error>,
    ) -> Result<Dealt<D>, Error> {
        let words = self.spec.prime.words(self.n * self.spec.dealt());
        Ok(match Role::of(party) {
            Role::Dealer => {
                let r = masks(party.device())?;
                let other = party.stream(1, "rho")?;
                let (shares, signs) = party.device().deal_list(&self.spec, &r, &other)?;
                party.send_words(0, "rho", shares)?;
                Dealt::Signs(Bits::new([self.n], signs))
            }
            Role::Worker(0) => {
                Dealt::Shares(Bits::new([words * 64], party.recv_words(DEALER, "rho", words)?))
            }
            Role::Worker(_) => Dealt::Stream(party.stream_key(DEALER, "rho")?),
        })
    }

    /// Online. Workers send their lists and learn Δ; the dealer learns b = sgn(x) ⊕ Δ.
    pub fn compare<W: Word, D: Device>(
        &self,
        party: &mut Party<D>,
        masked: Option<&Tensor<W, D>>,
        dealt: &Dealt<D>,
    ) -> Result<D::Buf<u64>, Error> {
        match Role::of(party) {
            Role::Worker(j) => self.send(party, j, masked.expect("workers hold masked values online"), dealt),
            Role::Dealer => {
                let Dealt::Signs(signs) = dealt else {
                    return party.refuse("the dealer was given a worker's material");
                };
                let none = self.scan(party)?;
                Ok(party.device().xor(&[&signs.buf, &none], false, self.n)?)
            }
        }
    }

    /// Worker `j`'s lists; Δ.
    fn send<W: Word, D: Device>(
        &self,
        party: &mut Party<D>,
        j: usize,
        masked: &Tensor<W, D>,
        dealt: &Dealt<D>,
    ) -> Result<D::Buf<u64>, Error> {
        let flip = party.stream(1 - j, "flip")?;
        let flips = party.device().random_bits(&flip, self.n)?;
        let streams = [
            party.stream(1 - j, "multiplier")?,
            party.stream(1 - j, "zero-share")?,
            party.stream(1 - j, "rotation")?,
        ];
        let streams = ListStreams { multiplier: &streams[0], zero_share: &streams[1], rotation: &streams[2] };
        let stream;
        let share = match dealt {
            Dealt::Shares(words) => FieldShare::Packed(&words.buf),
            Dealt::Stream(key) => {
                stream = key.stream();
                FieldShare::Stream(&stream)
            }
            Dealt::Signs(_) => return party.refuse("a worker was given the dealer's material"),
        };
        let device = party.device();
        if let Some(baseline) = self.lists {
            let made =
                device.baseline_lists((baseline, &self.spec), j, &masked.buf, share, &flips, &streams)?;
            for (list, name) in made.into_iter().zip(BASELINE_LISTS) {
                party.send_words(DEALER, name, list)?;
            }
        } else {
            let list = device.masked_list(&self.spec, j, &masked.buf, share, &flips, &streams)?;
            party.send_words(DEALER, "list", list)?;
        }
        Ok(flips)
    }

    /// At the dealer: whether the lists of a value have no zero.
    fn scan<D: Device>(&self, party: &mut Party<D>) -> Result<D::Buf<u64>, Error> {
        let words = self.spec.prime.words(self.n * self.spec.length());
        Ok(if let Some(baseline) = self.lists {
            let mut of = |j: usize| {
                let names = BASELINE_LISTS[..baseline.lists()].iter();
                names.map(|name| party.recv_words(j, name, words)).collect::<Result<Vec<_>, _>>()
            };
            let lists = [of(0)?, of(1)?];
            party.device().scan_baseline((baseline, &self.spec), [&lists[0], &lists[1]], self.n)?
        } else {
            let lists = [party.recv_words(0, "list", words)?, party.recv_words(1, "list", words)?];
            party.device().scan_lists(&self.spec, [&lists[0], &lists[1]], self.n)?
        })
    }
}

/// What the dealer's answer of `n` bits sends.
pub(super) fn answer_cost(cost: Cost, n: usize) -> Cost {
    cost.online(2, DEALER, 0, n, Unit::Bits(1)).online(2, DEALER, 1, n, Unit::Bits(1))
}

/// The last round: the dealer, who has `n` bits b, answers with b ⊕ r_y, and the workers, who have
/// Δ, learn m of [x ≥ 0].
pub(super) fn answer<D: Device>(
    party: &mut Party<D>,
    bit: &D::Buf<u64>,
    n: usize,
    mask: &BitMask<D>,
) -> Result<Option<D::Buf<u64>>, Error> {
    match Role::of(party) {
        Role::Dealer => {
            let mask = mask.total_bits(party.device())?;
            let answer = party.device().xor(&[bit, &mask.buf], false, n)?;
            party.send_bits(0, "answer", answer.clone(), n)?;
            party.send_bits(1, "answer", answer, n)?;
            Ok(None)
        }
        Role::Worker(_) => {
            // sgn(x) = b ⊕ Δ, and [x ≥ 0] is its complement.
            let answer = party.recv_bits(DEALER, "answer", n)?;
            Ok(Some(party.device().xor(&[&answer, bit], true, n)?))
        }
    }
}

/// [x ≥ 0].
pub struct Sign<'a> {
    lists: Lists,
    sign: &'a SignBit,
    shape: &'a Shape,
}

impl Sign<'_> {
    fn list(&self, ring: u32) -> List {
        List::new(self.lists, self.sign, ring, self.shape.elements())
    }
}

impl<'a, W: Word, D: Device> Step<'a, Mizar<W, D>> for Sign<'a> {
    type Material = Dealt<D>;

    fn of(suite: &Mizar<W, D>, call: Call<'a>) -> Option<Self> {
        let Op::NonNegative(sign) = call.op else { return None };
        Some(Sign { lists: suite.variant, sign, shape: call.shape() })
    }

    fn cost(&self) -> Result<Cost, Unsupported> {
        Ok(answer_cost(self.list(W::BITS).cost(), self.shape.elements()))
    }

    fn offline(
        &self,
        party: &mut Party<D>,
        inputs: &[&Masks<W, D>],
        _: Option<&Masks<W, D>>,
    ) -> Result<Self::Material, Error> {
        self.list(W::BITS).deal(party, inputs[0].ring())
    }

    fn online(
        &self,
        party: &mut Party<D>,
        operands: Operands<'_, Mizar<W, D>>,
        dealt: Self::Material,
    ) -> Result<Made<Mizar<W, D>>, Error> {
        let bit = self.list(W::BITS).compare(party, operands.masked(0), &dealt)?;
        let m = answer(party, &bit, self.shape.elements(), operands.fresh_bits())?;
        Ok((Data::of_bits(self.shape, m), None))
    }
}

#[cfg(test)]
mod tests {
    use crate::mizar::Mizar;
    use crate::testing::World;
    use megrez_kernels::Reference;
    use megrez_plan::{List, Op, SignBit};

    #[test]
    fn the_sign_of_every_value_is_read_from_bits_and_from_digits() {
        let x: Vec<u64> = (0..256).collect();
        for list in [List::Bits, List::Digits(vec![3, 2, 2]), List::Digits(vec![4, 3])] {
            let sign = SignBit { list, cut: 0, bits: None };
            let world = World::new(Mizar::<u8, Reference>::default());
            let bits = world.step(Op::NonNegative(sign), 0, &[&x]);
            assert!(bits.iter().zip(&x).all(|(bit, x)| *bit == u64::from(*x < 128)));
        }
    }

    #[test]
    fn few_bits_above_a_cut_tell_the_sign_of_what_they_hold() {
        // 4 bits above 2: multiples of 4 from −32 to 28.
        let x: Vec<i64> = (-8..8).map(|i| 4 * i).collect();
        let words: Vec<u64> = x.iter().map(|x| *x as u8 as u64).collect();
        let sign = SignBit { list: List::Bits, cut: 2, bits: Some(4) };
        let bits = World::new(Mizar::<u8, Reference>::default()).step(Op::NonNegative(sign), 0, &[&words]);
        assert!(bits.iter().zip(&x).all(|(bit, x)| *bit == u64::from(*x >= 0)));
    }
}
