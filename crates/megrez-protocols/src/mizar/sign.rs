//! Sign bit on MSS by a masked list. MIZAR, Fig. 4, and its generalisation to digits (DIG); the cut
//! of protocols on few bits (compare λ bits above the k lowest) is part of the list's
//! specification.
//!
//! Offline, the dealer deals shares [ρ_i] in F_p of the bits of ρ = (r − 1) mod 2^(λ−1), and keeps
//! s = msb(−r mod 2^λ). Online, with the workers' common Δ, w_i ≠ 0, z_i and rotation π, bits the
//! most significant first:
//!
//! 1. Worker j sends π(w_i·([t_i]_j + [j=0]·β_i) + (−1)^j·z_i), with s_i = [m_i ≠ ρ_i], t_i =
//!    Σ_(k<i) s_k − s_i + 1 and β_i = msb(m) ⊕ Δ ⊕ m_i. [`SignList`] is this step.
//! 2. The dealer has b = s ⊕ [no sum of both lists is 0], and sgn(x) = b ⊕ Δ.
//!
//! Deviates from the figure: zero-shares z on both lists (the dealer made the shares of ρ, so
//! without them the ratio of the lists cancels w and gives the dealer m); ρ is the complement of
//! (−r)'s low bits (r̂ = 0 then fits); Δ enters worker 0's share only; a uniform rotation instead
//! of a permutation (a list has at most one zero and its other entries are uniform, so only the
//! zero's place needs hiding).
//!
//! phase     rounds  bits per element            from → to
//! offline   1       dealt·log p                 dealer → worker 0
//! online    2       2·length·log p + 2          workers → dealer, dealer → workers
//!
//! with dealt = λ−1 and length = λ for the bit list, Σ(2^w − 1) and the number of digits for
//! digits; log p as packed on the wire, 64 / ⌊64 / log2 p⌋.
//!
//! [`crate::aegis`] and [`crate::concurrent`] differ in the lists online, which stand there.
//!
//! Worker sees: its share of ρ, one uniform bit (b ⊕ r_y). Dealer sees: `length` elements whose
//! sums are uniform non-zero, one of them replaced by zero at a uniform place with probability ½,
//! independent of x because Δ is uniform.
//!
//! Security: `docs/security/mizar.md`.

use super::family::Mizar;
use super::list::{Lists, SignList};
use crate::mss::{BitMask, DEALER, Data, Masks, RingMask, Role};
use crate::{Call, Cost, Made, Operands, Step, Unit, Unsupported};
use megrez_kernels::{Bits, Device, FieldShare, ListAlgebra, ListSpec, ListStreams, Tensor};
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

impl<D: Device> crate::Encode<D> for Dealt<D> {
    fn write(&self, device: &D, out: &mut Vec<u8>) -> Result<(), crate::EncodeError> {
        match self {
            Dealt::Shares(words) => {
                out.push(0);
                words.write(device, out)
            }
            Dealt::Stream(key) => {
                out.push(1);
                crate::Encode::<D>::write(key, device, out)
            }
            Dealt::Signs(signs) => {
                out.push(2);
                signs.write(device, out)
            }
        }
    }
    fn read(device: &D, input: &mut &[u8]) -> Result<Self, crate::EncodeError> {
        Ok(match crate::encode::take(input, 1)?[0] {
            0 => Dealt::Shares(crate::Encode::<D>::read(device, input)?),
            1 => Dealt::Stream(crate::Encode::<D>::read(device, input)?),
            2 => Dealt::Signs(crate::Encode::<D>::read(device, input)?),
            _ => return Err(crate::EncodeError::Damaged),
        })
    }
}

/// The names of the lists' messages.
const NAMES: [&str; 2] = ["list", "second-list"];

/// The lists of `n` values, which every comparison of this protocol is made of.
pub(super) struct List {
    /// What is dealt.
    own: SignList,
    /// What workers send.
    online: Box<dyn ListAlgebra>,
    n: usize,
}

impl List {
    pub fn new(lists: Lists, sign: &SignBit, ring: u32, n: usize) -> Self {
        let (own, online) = (lists.0)(sign, ring);
        List { own, online, n }
    }

    fn spec(&self) -> &ListSpec {
        &self.own.0
    }

    /// Without the dealer's answer.
    pub fn cost(&self) -> Cost {
        let (n, unit) = (self.n * self.spec().length(), Unit::Field(self.spec().prime));
        let dealt = Cost::LOCAL.offline(DEALER, 0, self.n * self.spec().dealt(), unit);
        (0..self.online.lists())
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
        let words = self.spec().prime.words(self.n * self.spec().dealt());
        Ok(match Role::of(party) {
            Role::Dealer => {
                let r = masks(party.device())?;
                let other = party.stream(1, "rho")?;
                let (shares, signs) = party.device().deal_list(&self.own, &r, &other)?;
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
        let lists = device.masked_lists(&*self.online, j, &masked.buf, Some(share), &flips, &streams)?;
        for (list, name) in lists.into_iter().zip(NAMES) {
            party.send_words(DEALER, name, list)?;
        }
        Ok(flips)
    }

    /// At the dealer: whether the lists of a value have no zero.
    fn scan<D: Device>(&self, party: &mut Party<D>) -> Result<D::Buf<u64>, Error> {
        let words = self.spec().prime.words(self.n * self.spec().length());
        let mut of = |j: usize| {
            let names = NAMES[..self.online.lists()].iter();
            names.map(|name| party.recv_words(j, name, words)).collect::<Result<Vec<_>, _>>()
        };
        let lists = [of(0)?, of(1)?];
        Ok(party.device().scan_lists(&*self.online, [&lists[0], &lists[1]], self.n)?)
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
    use super::*;
    use crate::testing::World;
    use megrez_kernels::{ListInput, Reference};
    use megrez_plan::List;

    /// The figure without parties: entries of both workers for every mask and flip, summed.
    #[test]
    fn the_entries_have_a_zero_where_the_figure_says() {
        for digits in [List::Bits, List::Digits(vec![3, 2]), List::Digits(vec![1, 3, 1])] {
            // 6 bits above a cut of 2.
            let sign = SignBit { list: digits, cut: 2, bits: Some(6) };
            let list = SignList(ListSpec::new(&sign, 8));
            let p = list.field().p() as i64;
            for (x, r, flip) in (0..1u64 << 13).map(|i| (i & 0x3f, i >> 6 & 0x3f, i >> 12)) {
                let (m, mut other) = ((x + r) << 2, vec![]);
                let mut dealt = vec![];
                let s = list.deal(r << 2, &mut |secret| {
                    other.push((secret * 5 + r + dealt.len() as u64) as i64 % p);
                    dealt.push(secret as i64 - other[dealt.len()]);
                });
                let multipliers: Vec<i64> = (0..list.length() as i64).map(|i| 1 + i % (p - 1)).collect();
                let entries = |j, dealt: &[i64]| {
                    let mut entries = vec![];
                    let input = ListInput { j, value: m, flip, dealt, multipliers: &multipliers };
                    list.entries(&input, &mut |entry| entries.push(entry));
                    entries
                };
                let (a, b) = (entries(0, &dealt), entries(1, &other));
                let zeros = a.iter().zip(&b).filter(|(a, b)| (*a + *b) % p == 0).count() as u64;
                assert!(zeros <= 1);
                assert_eq!(s ^ (1 - zeros) ^ flip, x >> 5, "{list:?}: x = {x}, r = {r}");
            }
        }
    }

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
