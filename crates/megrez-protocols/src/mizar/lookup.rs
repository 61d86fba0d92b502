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
//! low bits of x are looked at ([`megrez_plan::Lookup`] says what comes out elsewhere). A table is
//! made for one mask, and serves the one value that has it.
//!
//! phase     rounds  bits per element   from → to
//! offline   1       (d+1)·2^n·ℓ        dealer → worker 0
//! online    1       2ℓ                 worker ↔ worker
//!
//! Workers see the uniform m_z = z + r_z, r_z fresh; worker 0 also uniform shares of the table. The
//! dealer sees nothing. A worker reads at m_h, which is masked; no index of the dealer depends on
//! its mask (on the CPU).
//!
//! Security: `docs/security/mizar.md`.

use super::family::Mizar;
use crate::mss::{DEALER, Data, Masks, Role, deal, open};
use crate::{Call, Cost, Made, Operands, Step, Unit, Unsupported};
use megrez_kernels::{Device, Tensor};
use megrez_plan::Op;
use megrez_ring::{Shape, Word};
use megrez_session::{Error, Party};

/// f(x).
pub struct Lookup<'a> {
    f: &'a megrez_plan::Lookup,
    shape: &'a Shape,
}

impl Lookup<'_> {
    /// Words of all tables.
    fn words(&self) -> usize {
        self.shape.elements() * self.f.pieces.len()
    }
}

impl<'a, W: Word, D: Device> Step<'a, Mizar<W, D>> for Lookup<'a> {
    /// A worker's share of the tables; nothing at the dealer.
    type Material = Option<Tensor<W, D>>;

    fn of(_: &Mizar<W, D>, call: Call<'a>) -> Option<Self> {
        let Op::Lookup(f) = call.op else { return None };
        Some(Lookup { f, shape: call.shape() })
    }

    fn cost(&self) -> Result<Cost, Unsupported> {
        let word = Unit::Bits(W::BITS);
        let dealt = Cost::LOCAL.offline(DEALER, 0, self.words(), word);
        Ok(dealt.online_swap(1, 0, 1, self.shape.elements(), word))
    }

    fn offline(
        &self,
        party: &mut Party<D>,
        inputs: &[&Masks<W, D>],
        _: Option<&Masks<W, D>>,
    ) -> Result<Self::Material, Error> {
        let r = inputs[0].ring();
        let tables = deal(party, "table", self.words(), |device| {
            Ok(device.lookup_tables(self.f, &r.total(device)?.buf)?)
        })?;
        Ok(tables.map(|tables| Tensor::new([self.words()], tables)))
    }

    fn online(
        &self,
        party: &mut Party<D>,
        operands: Operands<'_, Mizar<W, D>>,
        tables: Self::Material,
    ) -> Result<Made<Mizar<W, D>>, Error> {
        let (Role::Worker(j), Some(tables)) = (Role::of(party), tables) else {
            return Ok((Data::None, None));
        };
        let (m, _) = operands.ring(0);
        let rz = operands.fresh().share();
        let share = party.device().open_looked_up(self.f, &m.buf, &tables.buf, &rz.buf)?;
        let mz = open(party, j, "looked-up", m.elements(), share)?;
        Ok((Data::of_ring(self.shape, Some(mz)), None))
    }
}

#[cfg(test)]
mod tests {
    use crate::mizar::Mizar;
    use crate::testing::World;
    use megrez_kernels::{LookupTables, Memory, Reference};
    use megrez_plan::{Lookup, Op};
    use megrez_ring::Word;

    /// Pieces without rhyme or reason.
    fn pieces(degree: u32, index: u32) -> Vec<i64> {
        (0..(i64::from(degree) + 1) << index).map(|i| (i * i * 29 + i * 71 + 13) % 251 - 125).collect()
    }

    #[test]
    fn every_value_gives_a_neighbouring_piece_at_the_place() {
        for (cut, low, degree, index) in [(0, 4, 2, 4), (2, 3, 1, 3), (1, 0, 0, 7), (0, 7, 3, 1)] {
            let f = Lookup { cut, low, degree, pieces: pieces(degree, index), frac: 3 };
            // Every word, several times, since masks decide which neighbour it is.
            let x: Vec<u64> = (0..256).cycle().take(8 * 256).collect();
            let world = World::new(Mizar::<u8, Reference>::default());
            let y = world.step(Op::Lookup(f.clone()), 3, &[&x]);
            for (x, y) in x.iter().zip(y) {
                let allowed = f.results(*x);
                assert!(allowed.iter().any(|z| *z as u8 as u64 == y), "f({x}) is {y}, not of {allowed:?}");
            }
        }
    }

    /// Everything that the step computes, for all masks and all values: what the shares open to,
    /// and that it is the carries of the masks' low bits that decide.
    #[test]
    fn exhaustive_over_values_and_masks() {
        fn check<W: Word>(bits: u32, cut: u32, low: u32, degree: u32) {
            let index = bits - cut - low;
            let f = Lookup { cut, low, degree, pieces: pieces(degree, index), frac: 0 };
            let masks: Vec<W> = (0..1u64 << bits).map(W::from_u64).collect();
            let n = masks.len();
            let tables = Reference.lookup_tables(&f, &Reference.upload(masks.clone()).unwrap()).unwrap();
            let zero = Reference.upload(vec![W::ZERO; n]).unwrap();
            for x in 0..1u64 << bits {
                let masked: Vec<W> = masks.iter().map(|r| r.add(W::from_u64(x))).collect();
                let masked = Reference.upload(masked).unwrap();
                let y = Reference.open_looked_up(&f, &masked, &tables, &zero).unwrap();
                for (r, y) in masks.iter().zip(Reference.download(y).unwrap()) {
                    let (r, ones) = (r.to_u64(), |n: u32| (1u64 << n) - 1);
                    let first = (x & ones(cut)) + (r & ones(cut)) > ones(cut);
                    let place = (x >> cut) + u64::from(first);
                    let second = (place & ones(low)) + (r >> cut & ones(low)) > ones(low);
                    let expected = W::from_u64(f.at(x, [first, second]));
                    assert_eq!(y, expected, "x = {x}, r = {r}");
                    assert!(f.results(x).iter().any(|z| W::from_u64(*z) == y));
                }
            }
        }
        check::<u8>(8, 0, 4, 2);
        check::<u8>(8, 3, 2, 1);
        check::<u16>(9, 0, 2, 2);
        check::<u16>(9, 2, 4, 3);
        check::<u16>(10, 0, 3, 2);
        check::<u16>(10, 1, 5, 3);
    }

    #[test]
    fn a_wrong_table_is_seen() {
        // The pieces of a table that is dealt for another mask are those of other segments.
        let f = Lookup { cut: 0, low: 4, degree: 1, pieces: pieces(1, 4), frac: 0 };
        let tables = Reference.lookup_tables(&f, &Reference.upload(vec![16u8]).unwrap()).unwrap();
        let zero = Reference.upload(vec![0u8]).unwrap();
        let masked = Reference.upload(vec![5u8]).unwrap();
        let y = Reference.open_looked_up(&f, &masked, &tables, &zero).unwrap();
        let y = Reference.download(y).unwrap()[0];
        assert!(f.results(5).iter().all(|z| *z as u8 != y));
        assert_eq!(y, f.at(5u64.wrapping_sub(16), [false; 2]) as u8);
    }
}
