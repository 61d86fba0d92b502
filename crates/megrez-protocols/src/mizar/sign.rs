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

use super::family::{Lists, Mizar};
use crate::mss::{BitMask, DEALER, Data, Masks, RingMask, Role};
use crate::{Call, Cost, Made, Operands, Step, Unit, Unsupported, aegis, concurrent};
use megrez_kernels::{
    Bits, Device, Entries, Field, FieldShare, ListAlgebra, ListInput, ListSpec, ListStreams, Tensor,
};
use megrez_plan::{Op, SignBit};
use megrez_prg::Key;
use megrez_ring::{Shape, Word};
use megrez_session::{Error, Party};

/// The list of the figure, and that of digits: what the dealer deals and what workers make of it.
/// Randomness, zero-shares and the rotation are those of all lists
/// ([`megrez_kernels::MaskedLists`]). Devices have kernels for these lists, which equal this
/// algebra bit for bit.
#[derive(Clone, Debug)]
pub struct SignList(pub ListSpec);

impl ListAlgebra for SignList {
    fn field(&self) -> Field {
        Field::small(self.0.prime)
    }
    fn length(&self) -> usize {
        self.0.length()
    }
    fn dealt(&self) -> usize {
        self.0.dealt()
    }

    /// Offline: the bits of ρ = (r − 1) mod 2^(λ−1), or of its digits the indicators [ρ_d = q] for
    /// all q but the largest, of the cut mask r. The dealer keeps s = msb(−r mod 2^λ).
    fn deal(&self, r: u64, secret: &mut dyn FnMut(u64)) -> u64 {
        let (r, top) = (r >> self.0.cut, self.0.width - 1);
        let rho = r.wrapping_sub(1) & !(u64::MAX << top);
        match &self.0.entries {
            Entries::Bits => (0..top).rev().for_each(|i| secret((rho >> i) & 1)),
            Entries::Digits(widths) => {
                for (rho_d, width) in digits(rho, widths) {
                    (0..(1 << width) - 1).for_each(|q| secret(u64::from(rho_d == q)));
                }
            }
        }
        (r.wrapping_neg() >> top) & 1
    }

    /// Online, step 1: [u_i]_j = w_i·([t_i]_j + [j=0]·β_i).
    fn entries(&self, worker: &ListInput<'_>, entry: &mut dyn FnMut(i64)) {
        let (first, w) = (i64::from(worker.j == 0), worker.multipliers);
        match &self.0.entries {
            Entries::Bits => {
                self.first_differences(worker, |i, t_i, beta_i| entry(w[i] * (t_i + first * beta_i)));
            }
            Entries::Digits(widths) => self.digit_entries(widths, worker, |d, u_d| entry(w[d] * u_d)),
        }
    }

    fn kernel(&self) -> Option<&ListSpec> {
        Some(&self.0)
    }
}

impl SignList {
    /// Worker j's [t_i]_j = Σ_(k<i) [s_k]_j − [s_i]_j + [j=0] with [s_i]_j = [j=0]·m_i + (1 −
    /// 2m_i)·[ρ_i]_j, a share of [m_i ≠ ρ_i]: t_i is 0 at the first difference only. And β_i =
    /// msb(m) ⊕ Δ ⊕ m_i, 0 where that difference decides for the sign that the dealer is to see.
    /// The last place compares 0 with 1, for m = ρ.
    pub(crate) fn first_differences(&self, worker: &ListInput<'_>, mut place: impl FnMut(usize, i64, i64)) {
        let (top, first) = (self.0.width - 1, i64::from(worker.j == 0));
        let m = |position: u32| ((worker.value >> (self.0.cut + position)) & 1) as i64;
        let wanted = m(top) ^ worker.flip as i64;
        let mut sum = 0;
        for i in 0..top as usize {
            let (m_i, rho_i) = (m(top - 1 - i as u32), worker.dealt[i]);
            let s_i = first * m_i + (1 - 2 * m_i) * rho_i;
            place(i, sum - s_i + first, wanted ^ m_i);
            sum += s_i;
        }
        place(top as usize, sum, wanted);
    }

    /// As the figure with digits for bits: worker j's share of u_d = Σ_(k<d) (1 − eq_k) + 1 − dir_d
    /// with eq_d = [m_d = ρ_d] and dir_d = [m_d > ρ_d] if msb(m) ⊕ Δ = 1, else [m_d < ρ_d], or [m_d
    /// ≤ ρ_d] in the last place. Both are sums of the dealt indicators [ρ_d = q].
    fn digit_entries(&self, widths: &[u32], worker: &ListInput<'_>, mut place: impl FnMut(usize, i64)) {
        let first = i64::from(worker.j == 0);
        let m = worker.value >> self.0.cut;
        let wanted = (m >> (self.0.width - 1)) & 1 ^ worker.flip;
        let (mut indicators, mut unequal) = (worker.dealt, 0);
        for (d, (m_d, width)) in digits(m, widths).enumerate() {
            let (of_digit, rest) = indicators.split_at((1 << width) - 1);
            indicators = rest;
            // The indicator of the largest digit is one minus the others.
            let all_others: i64 = of_digit.iter().sum();
            let equal = of_digit.get(m_d as usize).copied().unwrap_or(first - all_others);
            let greater: i64 = of_digit[..m_d as usize].iter().sum();
            let direction = match (wanted, d + 1 == widths.len()) {
                (1, _) => greater,
                (_, true) => first - greater,
                (_, false) => first - greater - equal,
            };
            place(d, unequal + first - direction);
            unequal += first - equal;
        }
    }
}

/// The digits of a number's low bits, the most significant first, with their widths.
fn digits(low: u64, widths: &[u32]) -> impl Iterator<Item = (u64, u32)> + '_ {
    let mut left: u32 = widths.iter().sum();
    widths.iter().map(move |&width| {
        left -= width;
        ((low >> left) & ((1 << width) - 1), width)
    })
}

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
        let (own, online): (SignList, Box<dyn ListAlgebra>) = match lists {
            Lists::Own => {
                let own = SignList(ListSpec::new(sign, ring));
                (own.clone(), Box::new(own))
            }
            Lists::Aegis => {
                let own = SignList(aegis::spec(sign, ring));
                (own.clone(), Box::new(aegis::TwoLists(own)))
            }
            Lists::Concurrent => {
                let own = SignList(concurrent::spec(sign, ring));
                (own.clone(), Box::new(concurrent::SingleList(own)))
            }
        };
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
    use megrez_kernels::Reference;
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
