//! The fused steps of protocols.

use super::{Suite, host, same};
use crate::{
    Device, FieldShare, ListAlgebra, ListStreams, LookupTables, MaskedLists, OpenSelected, OpenTruncated,
    Reference, Selected, SignTables, Truncation,
};
use megrez_plan::Lookup;
use megrez_ring::Word;

impl<D: Device> Suite<D> {
    /// Truncating and selected openings.
    pub fn openings(&self) {
        rings!(self.opening_lengths());
    }

    fn opening_lengths<W: Word>(&self) {
        self.lengths().iter().for_each(|&n| self.openings_of::<W>(n));
    }

    /// Openings of `n` elements.
    pub fn openings_of<W: Word>(&self, n: usize) {
        let x: Vec<Vec<W>> = (0..8).map(|_| self.words(n)).collect();
        let (choice, flip) = (self.bits(n), self.bits(n));
        for (j, f) in [0, 1].into_iter().flat_map(|j| [1, 3, W::BITS - 3].map(|f| (j, f))) {
            let what = format!("ring {} n {n} worker {j} f {f}", W::BITS);
            compare!(self, format!("open_truncated {what}"), |d, up| {
                let t = Truncation { bits: f, high: up!(&x[0]), top: up!(&x[1]) };
                d.open_truncated(j, up!(&x[2]), &t, up!(&x[3]))
            });
            for (flipped, truncated) in [(false, false), (true, false), (false, true), (true, true)] {
                compare!(self, format!("open_selected {what} {flipped} {truncated}"), |d, up| {
                    let flip = up!(&flip).clone();
                    let [masked, mask, bit, mask_bit, out, high, top, top_bit] =
                        std::array::from_fn(|i| up!(&x[i]).clone());
                    let t = Truncation { bits: f, high: &high, top: &top };
                    d.open_selected(
                        j,
                        &Selected {
                            masked: &masked,
                            mask: &mask,
                            choice: up!(&choice),
                            flip: flipped.then_some(&flip),
                            bit: &bit,
                            mask_bit: &mask_bit,
                            truncation: truncated.then_some((t, &top_bit)),
                            output_mask: &out,
                        },
                    )
                });
            }
        }
    }

    /// Tables of signs.
    pub fn sign_tables(&self) {
        rings!(self.sign_tables_of());
    }

    fn sign_tables_of<W: Word>(&self) {
        let ring = W::BITS;
        for &n in self.lengths() {
            let x = self.words::<W>(n);
            for (cut, width) in [(0, 1), (0, 2), (1, 6), (0, 7), (0, 8), (ring - 8, 8)] {
                let (what, bit) = (format!("{ring} {n} {cut} {width}"), self.bits(n));
                compare!(self, format!("sign_table {what}"), |d, up| d.sign_table(
                    cut,
                    width,
                    up!(&x),
                    up!(&bit)
                ));
                let table = self.bits(n << (width - 1));
                for j in [0, 1] {
                    compare!(self, format!("look_up_sign {what} {j}"), |d, up| d.look_up_sign(
                        cut,
                        width,
                        j,
                        up!(&x),
                        up!(&table)
                    ));
                }
            }
        }
    }

    /// Tables of functions by pieces.
    pub fn lookup_tables(&self) {
        rings!(self.lookup_tables_of());
    }

    fn lookup_tables_of<W: Word>(&self) {
        let ring = W::BITS;
        for &n in self.lengths() {
            let masks = self.words::<W>(n);
            let forms = [(0, 0, 0, 1), (0, 3, 1, 2), (1, 2, 2, 3), (2, 1, 3, 5), (0, ring - 4, 2, 4)];
            for (cut, low, degree, index) in forms {
                let pieces: Vec<i64> =
                    self.words::<W>((degree as usize + 1) << index).into_iter().map(W::to_i64).collect();
                let f = &Lookup { cut, low, degree, pieces, frac: 0 };
                let what = format!("ring {ring} n {n} {cut} {low} {degree} {index}");
                compare!(self, format!("lookup_tables {what}"), |d, up| d.lookup_tables(f, up!(&masks)));
                let (masked, out) = (self.words::<W>(n), self.words::<W>(n));
                let tables = self.words::<W>(n * f.pieces.len());
                compare!(self, format!("open_looked_up {what}"), |d, up| d.open_looked_up(
                    f,
                    up!(&masked),
                    up!(&tables),
                    up!(&out)
                ));
            }
        }
    }

    /// The lists of an algebra for `n` values, from both workers and with what hostile parties may
    /// send.
    pub fn list<W: Word>(&self, list: &dyn ListAlgebra, n: usize) {
        let what = format!("ring {} n {n} {:?}", W::BITS, list.kernel());
        let mut masks = self.words::<W>(n);
        // The edges of the comparison: masks and values around zero.
        let edges = [W::ZERO, W::ONE, W::ONE.neg(), W::ONE.shl(W::BITS - 1)];
        for (mask, edge) in masks.iter_mut().skip(1).zip(edges) {
            *mask = edge;
        }
        let values = self.words::<W>(n);
        let masked: Vec<W> = values.iter().zip(&masks).map(|(x, r)| x.add(*r)).collect();
        let flips = self.bits(n);
        let [other, multiplier, zero_share, rotation] = std::array::from_fn(|_| self.stream());
        let streams = ListStreams { multiplier: &multiplier, zero_share: &zero_share, rotation: &rotation };

        let (dealt, kept) = self.device.deal_list(list, &self.up(&masks), &other).unwrap();
        let (expected_dealt, expected_kept) = Reference.deal_list(list, &host(&masks), &other).unwrap();
        same(&format!("deal_list {what}"), self.down(dealt), &expected_dealt);
        same(&format!("deal_list sign {what}"), self.down(kept), &expected_kept);

        // A worker's dealt words come from the dealer, and the dealer's lists from workers: they
        // may be anything.
        let hostile: Vec<u64> = self.words(expected_dealt.len());
        let mut sent = vec![];
        for (j, packed) in [(0, Some(&expected_dealt[..])), (1, None), (1, Some(&hostile))] {
            compare!(self, format!("masked_lists {j} {} {what}", packed.is_some()), |d, up| {
                let words = packed.map(|words| up!(words).clone());
                let share = words.as_ref().map_or(FieldShare::Stream(&other), FieldShare::Packed);
                d.masked_lists(list, j, up!(&masked), Some(share), up!(&flips), &streams)
                    .map(|mut lists| lists.remove(0))
            });
            let words = packed.map(host);
            let share = words.as_ref().map_or(FieldShare::Stream(&other), FieldShare::Packed);
            let made = Reference.masked_lists(list, j, &host(&masked), Some(share), &host(&flips), &streams);
            sent.push(made.unwrap().remove(0).to_vec());
        }
        let hostile: Vec<u64> = self.words(sent[0].len());
        let top = vec![u64::MAX; hostile.len()];
        for [a, b] in [[&sent[0], &sent[1]], [&hostile, &sent[1]], [&hostile, &hostile], [&top, &top]] {
            compare!(self, format!("scan_lists {what}"), |d, up| {
                let [a, b] = [up!(a), up!(b)].map(|list| [list.clone()]);
                d.scan_lists(list, [&a, &b], n)
            });
        }
    }
}
