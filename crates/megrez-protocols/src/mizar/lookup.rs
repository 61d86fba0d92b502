//! A function of one value by a dealt table, on MSS: any piecewise polynomial in one round, with
//! nothing sent by the dealer online (but of a value whose mask is only known then, such as a
//! two-round ReLU's: its table is dealt online).
//!
//! The idea is that of one-time truth tables (Ishai, Kushilevitz, Meldgaard, Orlandi and
//! Paskin-Cherniavsky, TCC 2013): who holds the mask r deals the function of m − r for every m.
//! Deviations: the table is of the n bits m_h that choose a segment and no more; an entry is a
//! polynomial in the k bits m_l below them, which the workers evaluate on their shares; the value
//! opens under a fresh mask.
//!
//! With m' = m >> cut, m_h = (m' >> k) mod 2^n, m_l = m' mod 2^k and r likewise, x' = 2^k·h + l for
//! h = m_h − r_h mod 2^n and l = m_l − r_l ∈ (−2^k, 2^k). Entry q deals the coefficients C_i of the
//! piece of segment q − r_h moved by r_l:
//!
//!   Σ_i C_i(q)·t^i = Σ_i c_i(q − r_h)·(t − r_l)^i    so that    [z] = Σ_i [C_i(m_h)]·m_l^i.
//!
//! x' is ⌊x/2^cut⌋ or one more, h is ⌊x'/2^k⌋ or one more: carries of the masks' low bits,
//! functions of m and r as in the truncation. All words are modulo 2^ℓ and exact; only cut + k + n
//! low bits of x are looked at ([`megrez_plan::Lookup`] says what comes out elsewhere). What is
//! dealt is made for one mask, and serves the one value that has it.
//!
//! *Table* or *key*: where a table would be of more bits than a key, the dealer deals the key of a
//! point function ([`super::half_tree`], depth n) that pays (1, −r_l, …, (−r_l)^d) at r_h. Its
//! leaves are shares of which segment it is, without anybody knowing
//! ([`megrez_kernels::LookupKeys`] has the sum over them): the same words, from fewer bits and more
//! work.
//!
//! phase     rounds  bits per element                        from → to
//! offline   1       table: (d+1)·2^n·ℓ                      dealer → worker 1
//!                   key: 128·(n−1) + (d+1)·ℓ, and 384 in all  dealer → worker 0
//!                        128·n + (d+1)·ℓ, and 384 in all      dealer → worker 1
//! online    1       2ℓ                                      worker ↔ worker
//!
//! With [`megrez_plan::Beyond`] a key's tree goes on above the segments, to a bits more, and value
//! corrections there pay (1, −r), or what of it the line beside the segments needs: p words each.
//!
//!   key: 128·(a+n−1) + (d+1 + p·⌈a/4⌉)·ℓ to worker 0, 128 more to worker 1, and 384 to each in all
//!
//! Left as a sum ([`Op::Additive`]) nothing is opened: the workers keep their summands of z.
//!
//! Workers see the uniform m_z = z + r_z, r_z fresh; worker 1 also uniform shares of the table, or
//! both a key, which looks uniform to each. The dealer sees nothing. A worker reads at m_h, which
//! is masked; no index of the dealer depends on its mask (on the CPU).
//!
//! Security: `docs/security/mizar.md`, and of keys `docs/security/keys.md`.

use super::family::Mizar;
use super::half_tree::{HalfTree, Size};
use crate::mss::{DEALER, Data, DealtShare, Masks, Role, deal, open};
use crate::{Call, Cost, Made, Operands, Step, Unit, Unsupported};
use megrez_kernels::{Device, LookupKey};
use megrez_plan::Op;
use megrez_ring::{Shape, Word};
use megrez_session::{Error, Party};
use std::borrow::Cow;

/// f(x).
pub struct Lookup<'a> {
    /// With all segments written out where it is dealt as a table.
    f: Cow<'a, megrez_plan::Lookup>,
    shape: &'a Shape,
    /// Whether it is left as a sum.
    left: bool,
}

impl Lookup<'_> {
    /// Words of all tables.
    fn words(&self) -> usize {
        self.shape.elements() * self.f.pieces.len()
    }

    /// The keys of all values.
    fn keys(&self) -> Size {
        Size { trees: self.shape.elements(), depth: self.f.depth(), values: self.f.corrected() }
    }
}

/// What a worker was dealt; nothing at the dealer.
pub enum Dealt<W: Word, D: Device> {
    /// Its share of the tables.
    Table(Option<DealtShare<W, D>>),
    /// Its keys.
    Key(Option<HalfTree<W, D>>),
}
encode_enum!(Dealt[W: Word, D: Device] on D => 0 = Table, 1 = Key);

impl<'a, W: Word, D: Device> Step<'a, Mizar<W, D>> for Lookup<'a> {
    type Material = Dealt<W, D>;

    fn of(_: &Mizar<W, D>, call: Call<'a>) -> Option<Self> {
        let (call, left) = call.unshared();
        let Op::Lookup(f) = call.op else { return None };
        let f = if f.is_keyed(W::BITS) { Cow::Borrowed(f) } else { Cow::Owned(f.whole()) };
        Some(Lookup { f, shape: call.shape(), left })
    }

    fn cost(&self) -> Result<Cost, Unsupported> {
        let word = Unit::Bits(W::BITS);
        let dealt = match self.f.is_keyed(W::BITS) {
            true => self.keys().cost::<W>(),
            false => Cost::LOCAL.offline(DEALER, 1, self.words(), word),
        };
        Ok(if self.left { dealt } else { dealt.online_swap(1, 0, 1, self.shape.elements(), word) })
    }

    fn offline(
        &self,
        party: &mut Party<D>,
        inputs: &[&Masks<W, D>],
        _: Option<&Masks<W, D>>,
    ) -> Result<Self::Material, Error> {
        let r = inputs[0].ring();
        if self.f.is_keyed(W::BITS) {
            let keys = self.keys().deal(party, |device, permutations, roots| {
                let dealt = device.deal_lookup(&self.f, permutations, &r.total(device)?.buf, roots)?;
                Ok((dealt.first, dealt.others, dealt.values))
            })?;
            return Ok(Dealt::Key(keys));
        }
        let tables = deal(party, 1, "table", self.words(), |device| {
            Ok(device.lookup_tables(&self.f, &r.total(device)?.buf)?)
        })?;
        Ok(Dealt::Table(tables))
    }

    fn online(
        &self,
        party: &mut Party<D>,
        operands: Operands<'_, Mizar<W, D>>,
        dealt: Self::Material,
    ) -> Result<Made<Mizar<W, D>>, Error> {
        let Role::Worker(j) = Role::of(party) else { return Ok((Data::None, None)) };
        let (m, r) = operands.ring(0);
        let device = party.device();
        let nothing = self.left.then(|| device.upload(vec![W::ZERO; m.elements()])).transpose()?;
        let rz = nothing.as_ref().unwrap_or_else(|| &operands.fresh().share().buf);
        let share = match dealt {
            Dealt::Table(Some(tables)) => {
                device.open_looked_up(&self.f, &m.buf, &tables.words(device, self.words())?, rz)?
            }
            Dealt::Key(Some(key)) if self.keys().holds(j, &key) => {
                let permutations = &key.permutations.buf;
                let key = LookupKey {
                    root: &key.root.stream(),
                    first: key.first.as_ref().map(|first| &first.buf),
                    others: &key.others.buf,
                    values: &key.values.buf,
                    mask: &r.buf,
                };
                device.open_by_keys(&self.f, permutations, &m.buf, &key, rz)?
            }
            Dealt::Table(None) | Dealt::Key(_) => {
                return party.refuse("a worker was dealt nothing for a function, or for another");
            }
        };
        if self.left {
            return Ok((Data::of_sum(self.shape, share), None));
        }
        let mz = open(party, j, "looked-up", m.elements(), share)?;
        Ok((Data::of_ring(self.shape, Some(mz)), None))
    }
}

#[cfg(test)]
mod tests {
    use crate::mizar::Mizar;
    use crate::testing::World;
    use megrez_kernels::{Cpu, LookupKey, LookupKeys, LookupTables, Memory, PERMUTATION_WORDS, Reference};
    use megrez_plan::{Beyond, Lookup, Op};
    use megrez_prg::Key;
    use megrez_ring::Word;

    /// Pieces without rhyme or reason.
    fn pieces(degree: u32, index: u32) -> Vec<i64> {
        (0..(i64::from(degree) + 1) << index).map(|i| (i * i * 29 + i * 71 + 13) % 251 - 125).collect()
    }

    #[test]
    fn every_value_gives_a_neighbouring_piece_at_the_place() {
        let shapes = [
            (0, 4, 2, 4),
            (2, 3, 1, 3),
            (1, 0, 0, 7),
            (0, 7, 3, 1),
            (0, 2, 3, 6),
            (2, 1, 2, 5),
            (0, 0, 3, 8),
        ];
        let mut keyed = 0;
        for (cut, low, degree, index) in shapes {
            let f = Lookup { cut, low, degree, pieces: pieces(degree, index), frac: 3, beyond: None };
            keyed += usize::from(f.is_keyed(8));
            // Every word, several times, since masks decide which neighbour it is.
            let x: Vec<u64> = (0..256).cycle().take(8 * 256).collect();
            let world = World::new(Mizar::<u8, Reference>::default());
            let y = world.step(Op::Lookup(f.clone()), 3, &[&x]);
            for (x, y) in x.iter().zip(y) {
                let allowed = f.results(*x);
                assert!(allowed.iter().any(|z| *z as u8 as u64 == y), "f({x}) is {y}, not of {allowed:?}");
            }
        }
        assert!((2..shapes.len()).contains(&keyed), "both are tried, not {keyed} by keys");
    }

    /// What both workers' keys open to, for values m under masks r.
    fn by_keys<W: Word>(f: &Lookup, pairs: &[(W, W)]) -> Vec<W> {
        let device = Cpu::default();
        let up = |word: &dyn Fn(&(W, W)) -> W| device.upload(pairs.iter().map(word).collect()).unwrap();
        let (m, r, zero) = (up(&|p| p.0), up(&|p| p.1), up(&|_| W::ZERO));
        let roots = [1, 2].map(|seed| Key::from_bytes([seed; 32]).stream());
        let permutations = device.upload(Key::from_bytes([3; 32]).stream().words(PERMUTATION_WORDS)).unwrap();
        let dealt = device.deal_lookup(f, &permutations, &r, [&roots[0], &roots[1]]).unwrap();
        let share = |j: usize| {
            let first = (j == 1).then_some(&dealt.first);
            let (others, values) = (&dealt.others, &dealt.values);
            let key = LookupKey { root: &roots[j], first, others, values, mask: [&r, &zero][j] };
            device.open_by_keys(f, &permutations, &m, &key, &zero).unwrap()
        };
        share(0).iter().zip(share(1).iter()).map(|(a, b)| a.add(*b)).collect()
    }

    /// What must come out of x under the mask r. Where segments are looked at, x is what is left of
    /// it by the cut, also to the right of them.
    fn expected<W: Word>(f: &Lookup, x: u64, r: u64) -> W {
        let ones = |n: u32| (1u64 << n) - 1;
        let first = (x & ones(f.cut)) + (r & ones(f.cut)) > ones(f.cut);
        let place = (x >> f.cut).wrapping_add(u64::from(first));
        let second = (place & ones(f.low)) + (r >> f.cut & ones(f.low)) > ones(f.low);
        let (high, far) = ((place >> f.low).wrapping_add(u64::from(second)), 64 - f.depth() as u32);
        let (high, masked) = ((high << far) as i64 >> far, x.wrapping_add(r) >> (f.cut + f.low));
        let segments = f.segments() as u64;
        let near = high < (segments + masked % segments + 1) as i64;
        let x = if f.beyond.is_some() && near { place << f.cut } else { x };
        W::from_u64(f.at(x, if near && f.beyond.is_some() { [false, second] } else { [first, second] }))
    }

    /// Where it is right.
    fn in_bounds(f: &Lookup, ring: u32, x: u64) -> bool {
        let Some(beyond) = f.beyond else { return true };
        let x = (x << (64 - ring)) as i64 >> (64 - ring);
        let (half, own) = (1i128 << (beyond.bits - 1), 1i128 << (f.cut + f.low + f.index_bits()));
        (own - half..half - (1 << (f.cut + f.low))).contains(&x.into())
    }

    /// Everything that the step computes, for all masks and all values: what the shares open to,
    /// and that it is the carries of the masks' low bits that decide.
    #[test]
    fn exhaustive_over_values_and_masks() {
        fn check<W: Word>(bits: u32, cut: u32, low: u32, degree: u32) {
            let index = bits - cut - low;
            of::<W>(bits, Lookup { cut, low, degree, pieces: pieces(degree, index), frac: 0, beyond: None });
        }
        fn of<W: Word>(bits: u32, f: Lookup) {
            let masks: Vec<W> = (0..1u64 << bits).map(W::from_u64).collect();
            let n = masks.len();
            let whole = f.whole();
            let tables = Reference.lookup_tables(&whole, &Reference.upload(masks.clone()).unwrap()).unwrap();
            let zero = Reference.upload(vec![W::ZERO; n]).unwrap();
            let values = || (0..1u64 << bits).filter(|&x| in_bounds(&f, bits, x));
            for x in values() {
                let masked: Vec<W> = masks.iter().map(|r| r.add(W::from_u64(x))).collect();
                let masked = Reference.upload(masked).unwrap();
                let y = Reference.open_looked_up(&whole, &masked, &tables, &zero).unwrap();
                for (r, y) in masks.iter().zip(Reference.download(y).unwrap()) {
                    assert_eq!(y, expected(&whole, x, r.to_u64()), "x = {x}, r = {r:?}");
                    assert!(f.results(x).iter().any(|z| W::from_u64(*z) == y));
                }
            }
            let all = values().flat_map(|x| masks.iter().map(move |r| (x, *r)));
            let pairs: Vec<(W, W)> = all.clone().map(|(x, r)| (r.add(W::from_u64(x)), r)).collect();
            for ((x, r), y) in all.zip(by_keys(&f, &pairs)) {
                assert_eq!(y, expected(&f, x, r.to_u64()), "by keys: x = {x}, r = {r:?}");
            }
        }
        check::<u8>(8, 0, 4, 2);
        check::<u8>(8, 3, 2, 1);
        check::<u16>(9, 0, 2, 2);
        check::<u16>(9, 2, 4, 3);
        check::<u16>(10, 0, 3, 2);
        check::<u16>(10, 1, 5, 3);
        // Beside the segments: zeros, a constant, a line; one to three digits.
        for (bits, cut, low, degree, index, constant, slope) in [
            (8, 0, 2, 1, 2, 0, 0),
            (8, 0, 1, 0, 2, -9, 0),
            (8, 1, 2, 2, 1, 4, 3),
            (8, 0, 0, 1, 1, 7, -2),
            (8, 2, 1, 1, 3, 0, 1),
            (9, 1, 1, 3, 2, 100, 5),
            (9, 0, 3, 2, 4, 0, -1),
            (10, 2, 1, 1, 2, -50, 6),
            (10, 0, 0, 1, 1, 3, 1),
        ] {
            let beyond = Some(Beyond { bits, constant, slope });
            let f = Lookup { cut, low, degree, pieces: pieces(degree, index), frac: 0, beyond };
            match bits {
                8 => of::<u8>(8, f),
                // The ring is larger than what is looked at.
                _ => of::<u16>(bits, f),
            }
        }
    }

    #[test]
    fn random_and_extreme_words_by_keys() {
        fn check<W: Word>() {
            let drawn = Key::from_bytes([7; 32]).stream().words(800);
            let edges = [0, 1, u64::MAX, u64::MAX >> 1, 1 << 63, (1 << 31) - 1, 1 << 31, u64::from(u32::MAX)];
            let words = || drawn.iter().copied().chain(edges).map(W::from_u64);
            let all = W::BITS;
            for (cut, low, degree, index, beyond) in [
                (0, 6, 3, 6, None),
                (3, 10, 1, 9, None),
                (5, 12, 2, 7, None),
                (0, 0, 0, 10, None),
                (0, all - 5, 3, 5, None),
                (0, 6, 3, 6, Some(Beyond { bits: all, constant: 1 << 20, slope: 0 })),
                (3, 7, 2, 5, Some(Beyond { bits: all, constant: -77, slope: 1 << 9 })),
                (2, 8, 1, 6, Some(Beyond { bits: all, constant: 0, slope: 0 })),
                (1, 5, 3, 4, Some(Beyond { bits: all, constant: 0, slope: -3 })),
            ] {
                let f = Lookup { cut, low, degree, pieces: pieces(degree, index), frac: 0, beyond };
                // As they are, and near to the segments.
                let small =
                    words().map(|x| W::from_i64(x.to_i64() >> (all.saturating_sub(cut + low + index + 2))));
                let (values, masks) = (words().chain(small), words().cycle().skip(17));
                let values = values.filter(|x| in_bounds(&f, all, x.to_u64()));
                let cases: Vec<(W, W)> = values.zip(masks).collect();
                let pairs: Vec<(W, W)> = cases.iter().map(|&(x, r)| (x.add(r), r)).collect();
                assert!(pairs.len() > 1500, "most of them are in bounds");
                for ((x, r), y) in cases.into_iter().zip(by_keys(&f, &pairs)) {
                    let (x, r) = (x.to_u64(), r.to_u64());
                    assert_eq!(y, expected(&f, x, r), "{cut} {low} {degree} {index}: x = {x:?}, r = {r:?}");
                }
            }
        }
        check::<u32>();
        check::<u64>();
    }

    /// A tree of the greatest depth, at places and masks of all sizes.
    #[test]
    fn a_function_of_all_16_bits_has_a_piece_for_each() {
        let f = Lookup { cut: 0, low: 0, degree: 0, pieces: pieces(0, 16), frac: 0, beyond: None };
        assert_eq!(f.segments(), megrez_plan::MAX_SEGMENTS);
        let drawn = Key::from_bytes([5; 32]).stream().words(12);
        let cases: Vec<(u16, u16)> = drawn.iter().map(|x| (*x as u16, (*x >> 16) as u16)).collect();
        let pairs: Vec<(u16, u16)> = cases.iter().map(|&(x, r)| (x.wrapping_add(r), r)).collect();
        for ((x, _), y) in cases.iter().zip(by_keys(&f, &pairs)) {
            assert_eq!(y, f.at(u64::from(*x), [false; 2]) as u16, "{x}");
        }
    }

    #[test]
    fn a_wrong_table_is_seen() {
        // The pieces of a table that is dealt for another mask are those of other segments.
        let f = Lookup { cut: 0, low: 4, degree: 1, pieces: pieces(1, 4), frac: 0, beyond: None };
        let tables = Reference.lookup_tables(&f, &Reference.upload(vec![16u8]).unwrap()).unwrap();
        let zero = Reference.upload(vec![0u8]).unwrap();
        let masked = Reference.upload(vec![5u8]).unwrap();
        let y = Reference.open_looked_up(&f, &masked, &tables, &zero).unwrap();
        let y = Reference.download(y).unwrap()[0];
        assert!(f.results(5).iter().all(|z| *z as u8 != y));
        assert_eq!(y, f.at(5u64.wrapping_sub(16), [false; 2]) as u8);
    }
}
