//! The largest of K ≤ 16 values on MSS, or which of them it is, in two rounds whatever K is, with
//! nothing sent by the dealer online: every pair is compared by a dealt table, wins are counted,
//! and a second table says whose count is K − 1.
//!
//! Source: one-time truth tables (Ishai, Kushilevitz, Meldgaard, Orlandi and Paskin-Cherniavsky,
//! TCC 2013), as [`super::lookup`]; the order of cut values is that of [`super::maximum`].
//! Deviations: the first table is read at the difference of two masked values and gives a bit as
//! shares modulo 2^c, 2^c ≥ K, so that wins are added without a message; only counts are opened,
//! each under a mask of its own, and that of the first value never, since one of all wins.
//!
//! *Pairs.* For p < q, with y_i = (m_i >> cut) − (r_i >> cut), μ = (m_p >> cut) − (m_q >> cut) and
//! ρ likewise of the r: b_pq = [y_p ≥ y_q] = [(μ − ρ) mod 2^λ < 2^(λ−1)]. The dealer deals the
//! entries T(μ) of the lower half in Z_2^c; of the upper half, with t its top bit, T(μ) = t + (1 −
//! 2t)·T(μ − t·2^(λ−1)): half of the bits.
//!
//! *Counts.* s_i = Σ_{q>i} b_iq + Σ_{p<i} (1 − b_pi) for i ≥ 1, from 0 to K − 1, opens as
//! u_i = s_i + γ_i mod 2^c. All comparisons are of one vector of integers, so exactly one value
//! wins K − 1 times.
//!
//! *The winner.* For every u < 2^c the dealer deals w_i(u) = [u − γ_i = K − 1] and
//! w_i(u)·(r_i − r_0). The workers read entry u_i, and
//!
//!   z = x_0 + Σ_{i≥1} w_i·(x_i − x_0),    or the bits w_1 … w_{K−1} and w_0 = 1 − Σ w_i,
//!
//! is linear in what they hold, and opens under a fresh mask.
//!
//! phase     rounds  bits per element of the rest               from → to
//! offline   1       pairs·2^(λ−1)·c                            dealer → worker 0
//!                   2·(K−1)·2^c·ℓ                              dealer → worker 1
//! online    2       2·(K−1)·c, then 2ℓ                         worker ↔ worker
//!
//! with pairs = K(K−1)/2, c = ⌈log₂ K⌉; for the bits (K−1)·2^c·ℓ to worker 1, and 2Kℓ in the
//! second round.
//!
//! Workers see u_i, uniform because γ_i is, and an opening under a fresh mask, and uniform shares
//! of tables: of pairs worker 0, of counts worker 1. The dealer sees nothing. Workers read at
//! masked places only; no index of the dealer depends on its masks (on the CPU).
//!
//! Security: `docs/security/mizar.md`.

use super::family::Mizar;
use crate::mss::{DEALER, Data, DealtShare, Masks, Role, deal, deal_packed, draw, open, open_low};
use crate::{Call, Cost, Made, Operands, Step, Unit, Unsupported};
use megrez_kernels::{Bits, Device, DeviceError, Placement, Tensor};
use megrez_plan::{Gives, Lookup, Op, View};
use megrez_ring::{Shape, Word};
use megrez_session::{Error, Party};

/// The largest of K values of n elements each.
pub struct Winner<'a> {
    spec: &'a megrez_plan::Winner,
    k: usize,
    n: usize,
    shape: &'a Shape,
}

/// What a worker was dealt; nothing at the dealer.
pub struct Dealt<W: Word, D: Device> {
    /// Its shares of the pairs' tables, entry by entry, c bits each.
    pairs: Bits<D>,
    /// γ_i for i ≥ 1.
    counts: Tensor<W, D>,
    /// [w_i(u)], entry by entry.
    winner: DealtShare<W, D>,
    /// [w_i(u)·(r_i − r_0)], where the value is wanted.
    masked: Option<DealtShare<W, D>>,
}
encode_struct!(Dealt[W, D] => pairs, counts, winner, masked);

/// A table that says 1 at the entries that `one` holds for.
fn table(entries: usize, one: impl Fn(usize) -> bool) -> Lookup {
    let pieces = (0..entries).map(|h| one(h).into()).collect();
    Lookup { cut: 0, low: 0, degree: 0, pieces, frac: 0, beyond: None }
}

impl Winner<'_> {
    fn pairs(&self) -> usize {
        megrez_plan::Winner::pairs(self.k) * self.n
    }

    /// Entries of all pairs' tables.
    fn pair_entries(&self) -> usize {
        self.spec.entries() * self.pairs()
    }

    /// c.
    fn count_bits(&self) -> u32 {
        megrez_plan::Winner::count_bits(self.k)
    }

    /// Counts that are opened.
    fn counts(&self) -> usize {
        (self.k - 1) * self.n
    }

    /// Entries of the tables of all counts.
    fn count_entries(&self) -> usize {
        self.counts() << self.count_bits()
    }

    /// [h < 2^(λ−1)].
    fn order(&self) -> Lookup {
        table(2 * self.spec.entries(), |h| h < self.spec.entries())
    }

    /// [h = K − 1].
    fn all_wins(&self) -> Lookup {
        table(1 << self.count_bits(), |h| h == self.k - 1)
    }

    /// (x_p >> cut) − (x_q >> cut) for all pairs, of K values.
    fn differences<W: Word, D: Device>(&self, device: &D, x: &D::Buf<W>) -> Result<D::Buf<W>, DeviceError> {
        let x = device.shift_right(x, self.spec.cut)?;
        let (first, second): (Vec<usize>, Vec<usize>) = pairs(self.k).unzip();
        self.minus(device, &x, &first, &second)
    }

    /// x_i − x_0 for i ≥ 1.
    fn steps<W: Word, D: Device>(&self, device: &D, x: &D::Buf<W>) -> Result<D::Buf<W>, DeviceError> {
        let others: Vec<usize> = (1..self.k).collect();
        self.minus(device, x, &others, &vec![0; others.len()])
    }

    fn minus<W: Word, D: Device>(
        &self,
        device: &D,
        x: &D::Buf<W>,
        first: &[usize],
        second: &[usize],
    ) -> Result<D::Buf<W>, DeviceError> {
        let [a, b] = [first, second].map(|places| device.gather(x, [1, self.k, self.n], places));
        device.combine(&[(W::ONE, &a?), (W::ONE.neg(), &b?)], W::ZERO, first.len() * self.n)
    }

    /// Worker `j`'s shares of the counts of all but the first, from those of the lower halves.
    fn wins<W: Word, D: Device>(
        &self,
        device: &D,
        j: usize,
        masked: &D::Buf<W>,
        dealt: &D::Buf<u64>,
    ) -> Result<D::Buf<W>, DeviceError> {
        let (k, n, pairs_of_all) = (self.k, self.n, self.pairs());
        let differences = self.differences(device, masked)?;
        let dealt = device.unpack_low(dealt, self.count_bits(), self.pair_entries())?;
        let none = device.combine(&[], W::ZERO, pairs_of_all)?;
        let lower =
            device.open_looked_up(&table(self.spec.entries(), |_| false), &differences, &dealt, &none)?;
        let top = device.bit_planes(&differences, self.spec.bits - 1, 1)?;
        let upper = device.bit_times(&top, Some(&lower), pairs_of_all)?;
        let top = device.bit_times(&top, None, pairs_of_all)?;
        let first = if j == 0 { W::ONE } else { W::ZERO };
        let terms = [(W::ONE, &lower), (W::from_i64(-2), &upper), (first, &top)];
        let beats = device.combine(&terms, W::ZERO, pairs_of_all)?;
        // b in the row of the pair's first, −b in that of its second, which takes the 1 besides.
        let rows = (1..k).flat_map(|i| pairs(k).map(move |(p, q)| i64::from(p == i) - i64::from(q == i)));
        let signs = device.upload(rows.map(W::from_i64).collect())?;
        let sums = device.matmul(&signs, &beats, 1, [k - 1, megrez_plan::Winner::pairs(k), n])?;
        let seconds = (1..k).flat_map(|i| std::iter::repeat_n(W::from_u64(i as u64), n)).collect();
        let seconds = device.upload(seconds)?;
        device.combine(&[(W::ONE, &sums), (first, &seconds)], W::ZERO, self.counts())
    }

    /// Worker `j`'s share of the result, from its shares of w_i and w_i·(r_i − r_0).
    fn result<W: Word, D: Device>(
        &self,
        device: &D,
        j: usize,
        (m, r): (&D::Buf<W>, &D::Buf<W>),
        wins: &D::Buf<W>,
        masked: Option<&D::Buf<W>>,
    ) -> Result<D::Buf<W>, DeviceError> {
        let (k, n) = (self.k, self.n);
        let first = if j == 0 { W::ONE } else { W::ZERO };
        let Some(masked) = masked else {
            let others = device.sum(wins, [1, k - 1, n])?;
            let rest = device.combine(&[(W::ONE.neg(), &others)], first, n)?;
            let at = |offset, size: usize| View { offset, ..View::whole([size].into()) };
            let parts = [(&rest, at(0, n)), (wins, at(n, self.counts()))];
            return device.place(&parts.map(|(source, target)| Placement { source, target }), k * n);
        };
        let gains = device.products(&[(W::ONE, &self.steps(device, m)?, wins)], &[(W::ONE.neg(), masked)])?;
        let gain = device.sum(&gains, [1, k - 1, n])?;
        let [m, r] = [m, r].map(|x| device.view(x, &View::whole([n].into())));
        device.combine(&[(W::ONE, &gain), (first, &m?), (W::ONE.neg(), &r?)], W::ZERO, n)
    }
}

/// The pairs of `k` values in order.
fn pairs(k: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..k).flat_map(move |p| (p + 1..k).map(move |q| (p, q)))
}

impl<'a, W: Word, D: Device> Step<'a, Mizar<W, D>> for Winner<'a> {
    type Material = Option<Dealt<W, D>>;

    fn of(_: &Mizar<W, D>, call: Call<'a>) -> Option<Self> {
        let Op::Winner(spec) = call.op else { return None };
        let (&k, rest) = call.inputs[0].shape.dims().split_first()?;
        Some(Winner { spec, k, n: rest.iter().product(), shape: call.shape() })
    }

    fn cost(&self) -> Result<Cost, Unsupported> {
        let (count, word) = (Unit::Bits(self.count_bits()), Unit::Bits(W::BITS));
        let pairs = Cost::LOCAL.offline(DEALER, 0, self.pair_entries(), count);
        let dealt =
            (0..self.spec.words()).fold(pairs, |cost, _| cost.offline(DEALER, 1, self.count_entries(), word));
        Ok(dealt.online_swap(1, 0, 1, self.counts(), count).online_swap(2, 0, 1, self.shape.elements(), word))
    }

    fn offline(
        &self,
        party: &mut Party<D>,
        inputs: &[&Masks<W, D>],
        _: Option<&Masks<W, D>>,
    ) -> Result<Self::Material, Error> {
        let (r, entries) = (inputs[0].ring(), self.count_entries());
        let pairs = deal_packed(party, 0, "pairs", self.pair_entries(), self.count_bits(), |device| {
            let differences = self.differences(device, &r.total(device)?.buf)?;
            let tables = device.lookup_tables(&self.order(), &differences)?;
            // Entry by entry: the lower half stands first.
            Ok(device.view(&tables, &View::whole([self.pair_entries()].into()))?)
        })?;
        let counts = draw(party, "count", |party, key| {
            let n = self.counts();
            Ok(Tensor::new([n], party.device().random::<W>(&key.stream(), n)?))
        })?;
        let wins =
            |device: &D| Ok::<_, Error>(device.lookup_tables(&self.all_wins(), &counts.total(device)?.buf)?);
        let winner = deal(party, 1, "winner", entries, wins)?;
        let masked = match self.spec.gives {
            Gives::OneHot => None,
            Gives::Value => deal(party, 1, "mask-winner", entries, |device| {
                let steps = self.steps(device, &r.total(device)?.buf)?;
                let one = self.counts();
                let again = device.gather(&steps, [1, 1, one], &vec![0; entries / one.max(1)])?;
                Ok(device.products(&[(W::ONE, &wins(device)?, &again)], &[])?)
            })?,
        };
        Ok(pairs.zip(winner).map(|(pairs, winner)| Dealt {
            pairs: Bits::new([self.pair_entries() * self.count_bits() as usize], pairs),
            counts: counts.share().clone(),
            winner,
            masked,
        }))
    }

    fn online(
        &self,
        party: &mut Party<D>,
        operands: Operands<'_, Mizar<W, D>>,
        dealt: Self::Material,
    ) -> Result<Made<Mizar<W, D>>, Error> {
        let Role::Worker(j) = Role::of(party) else { return Ok((Data::None, None)) };
        let Some(dealt) = dealt.filter(|dealt| self.fits(dealt)) else {
            return party.refuse("a worker was dealt nothing for a winner, or for another");
        };
        let (m, r) = operands.ring(0);
        let n = self.counts();
        let device = party.device();
        let wins = self.wins(device, j, &m.buf, &dealt.pairs.buf)?;
        let share = device.combine(&[(W::ONE, &wins), (W::ONE, &dealt.counts.buf)], W::ZERO, n)?;
        let opened = open_low(party, j, "counts", n, self.count_bits(), &share)?;
        let device = party.device();
        let none = device.combine(&[], W::ZERO, n)?;
        let read = |tables: DealtShare<W, D>| -> Result<D::Buf<W>, Error> {
            let tables = tables.words(device, self.count_entries())?;
            Ok(device.open_looked_up(&self.all_wins(), &opened, &tables, &none)?)
        };
        let wins = read(dealt.winner)?;
        let masked = dealt.masked.map(read).transpose()?;
        let share = self.result(device, j, (&m.buf, &r.buf), &wins, masked.as_ref())?;
        let size = self.shape.elements();
        let rz = &operands.fresh().share().buf;
        let share = device.combine(&[(W::ONE, &share), (W::ONE, rz)], W::ZERO, size)?;
        let mz = open(party, j, "winner", size, share)?;
        Ok((Data::of_ring(self.shape, Some(mz)), None))
    }
}

impl Winner<'_> {
    /// Whether this was dealt for this step.
    fn fits<W: Word, D: Device>(&self, dealt: &Dealt<W, D>) -> bool {
        dealt.pairs.elements() == self.pair_entries() * self.count_bits() as usize
            && dealt.counts.elements() == self.counts()
            && dealt.masked.is_some() == (self.spec.gives == Gives::Value)
    }
}

#[cfg(test)]
mod tests {
    use crate::mizar::Mizar;
    use crate::testing::World;
    use megrez_kernels::Reference;
    use megrez_plan::{Gives, Op, Plan, Winner};
    use megrez_prg::Key;
    use megrez_ring::{Shape, Word};

    /// The results on K rows of values, the value first, then K rows of bits.
    fn both<W: Word>(cut: u32, bits: u32, rows: &[Vec<i64>]) -> (Vec<i64>, Vec<Vec<i64>>) {
        let (k, n) = (rows.len(), rows[0].len());
        let mut plan = Plan::new(W::BITS);
        let x = plan.input("x", "owner", Shape::from([k, n]), 0);
        for (name, gives) in [("value", Gives::Value), ("one-hot", Gives::OneHot)] {
            let z = plan.step(name, Op::Winner(Winner { cut, bits, gives }), &[x]).unwrap();
            plan.output(name, "owner", z);
        }
        plan.validate().unwrap();
        let words: Vec<u64> = rows.iter().flatten().map(|&x| x as u64).collect();
        let signed = |z: &u64| W::from_u64(*z).to_i64();
        let z = World::new(Mizar::<W, Reference>::default()).run(&plan, &[&words]);
        let bits: Vec<i64> = z[1].iter().map(signed).collect();
        (z[0].iter().map(signed).collect(), bits.chunks_exact(n).map(<[i64]>::to_vec).collect())
    }

    /// Holds both results to what may come out.
    fn check<W: Word>(cut: u32, bits: u32, rows: &[Vec<i64>]) {
        let (values, one_hot) = both::<W>(cut, bits, rows);
        for e in 0..rows[0].len() {
            let x: Vec<i64> = rows.iter().map(|row| row[e]).collect();
            let w: Vec<i64> = one_hot.iter().map(|row| row[e]).collect();
            let won: Vec<usize> = (0..x.len()).filter(|&i| w[i] == 1).collect();
            assert!(won.len() == 1 && w.iter().all(|w| (0..2).contains(w)), "{x:?}: {w:?}");
            let largest = *x.iter().max().unwrap();
            let place = Winner::exact(&x);
            if cut == 0 {
                assert_eq!((values[e], won[0]), (largest, place), "{x:?}");
                continue;
            }
            // The two results need not agree on which it is.
            for z in [values[e], x[won[0]]] {
                assert!(x.contains(&z) && largest - z < 2 << cut, "{x:?}: {z}");
            }
        }
    }

    /// All rows of k values below `bound`, by columns; `times` over.
    fn all(k: u32, bound: i64, times: usize) -> Vec<Vec<i64>> {
        let count = bound.pow(k);
        let column = |i: u32| (0..count).map(move |v| v / bound.pow(i) % bound - bound / 2);
        (0..k).map(|i| column(i).cycle().take(count as usize * times).collect()).collect()
    }

    #[test]
    fn every_order_of_few_values_with_all_ties() {
        check::<u8>(0, 8, &all(2, 128, 2));
        check::<u8>(0, 6, &all(3, 16, 2));
        check::<u8>(0, 5, &all(4, 8, 2));
        check::<u8>(0, 4, &all(5, 4, 4));
        check::<u32>(0, 3, &all(6, 3, 4));
        check::<u32>(0, 2, &all(7, 2, 8));
    }

    #[test]
    fn a_cut_loses_less_than_two_units() {
        // |x_i − x_j| ≤ 2^(cut+λ−1) − 2^(cut+1).
        check::<u8>(1, 4, &all(2, 13, 40));
        check::<u8>(2, 4, &all(3, 25, 1));
        check::<u8>(3, 4, &all(2, 49, 4));
        check::<u32>(2, 3, &all(4, 9, 2));
        // And close to that: 1 counts as 1 unit once in 16 times, and 31 as 1 and not as 2, too;
        // then the first of them wins.
        let low = |rows: &[Vec<i64>]| both::<u64>(4, 6, rows).0.iter().filter(|&&z| z == 1).count();
        let [few, many] = [1, 31].map(|x| vec![x; 8000]);
        assert_eq!(low(&[many.clone(), few.clone()]), 0);
        let lost = low(&[few, many]);
        assert!((5..100).contains(&lost), "{lost} of 8000, where 31 are to be expected");
    }

    #[test]
    fn random_and_extreme_values_on_both_rings() {
        fn on<W: Word>() {
            for k in [2usize, 3, 5, 10, 15, 16] {
                let drawn = Key::from_bytes([k as u8; 32]).stream().words(k * 60);
                // Differences of 10 bits and a sign, anywhere in the ring, around its ends as well.
                let bases = [0, 1 << (W::BITS - 2), -(1i64 << (W::BITS - 2)), -512];
                let row = |i: usize| {
                    (0..60).map(|e| bases[e % 4] + (drawn[i * 60 + e] % 1024) as i64).collect::<Vec<_>>()
                };
                let rows: Vec<Vec<i64>> = (0..k).map(row).collect();
                check::<W>(0, 11, &rows);
                // Few of them, with many ties; cut.
                let few: Vec<Vec<i64>> =
                    rows.iter().map(|row| row.iter().map(|x| (x & 3) << 20).collect()).collect();
                check::<W>(18, 7, &few);
            }
        }
        on::<u32>();
        on::<u64>();
    }

    #[test]
    fn beyond_the_range_the_result_is_one_of_the_values_all_the_same() {
        // 0 < 3 < 6 < 0 modulo 8: nobody wins, and the first counts.
        let (values, bits) = both::<u8>(0, 3, &[vec![0; 50], vec![3; 50], vec![6; 50]]);
        assert_eq!((values, bits), (vec![0; 50], vec![vec![1; 50], vec![0; 50], vec![0; 50]]));
    }
}
