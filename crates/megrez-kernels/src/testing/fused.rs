//! The fused steps of protocols.

use super::{Suite, host, same};
use crate::{
    BitProducts, ComparisonKeys, Device, FieldShare, KeyShare, KeySpec, ListAlgebra, ListStreams, LookupKey,
    LookupKeys, LookupTables, MaskedLists, Memory, OpenSelected, OpenTruncated, PERMUTATION_WORDS, Reference,
    Selected, SignTables, SignedSums, Truncation,
};
use megrez_plan::{Beyond, BitMatrices, Lookup};
use megrez_ring::{Word, bits};

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
        compare!(self, format!("truncation_carry ring {} n {n}", W::BITS), |d, up| {
            d.truncation_carry(up!(&x[2]), up!(&x[1]), up!(&x[3]))
        });
        for (j, f) in [0, 1].into_iter().flat_map(|j| [1, 3, W::BITS - 3].map(|f| (j, f))) {
            let what = format!("ring {} n {n} worker {j} f {f}", W::BITS);
            compare!(self, format!("open_truncated {what}"), |d, up| {
                let t = Truncation { bits: f, high: up!(&x[0]), top: up!(&x[1]) };
                d.open_truncated(j, up!(&x[2]), &t, up!(&x[3]))
            });
            compare!(self, format!("close_truncated {what}"), |d, up| {
                d.close_truncated(up!(&x[2]), f, [up!(&x[0]), up!(&x[1])])
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

    /// Sums with signs, of no, one and many terms; a row may occur twice.
    pub fn signed_sums(&self) {
        rings!(self.signed_sums_lengths());
    }

    fn signed_sums_lengths<W: Word>(&self) {
        self.lengths().iter().for_each(|&n| self.signed_sums_of::<W>(n));
    }

    /// Sums of `n` elements.
    pub fn signed_sums_of<W: Word>(&self, n: usize) {
        let base = self.words::<W>(n);
        for (rows, terms) in [(1, vec![]), (1, vec![0]), (3, vec![2, 0, 2, 1]), (22, (0..22).collect())] {
            let all = self.words::<W>(rows * n);
            // Planes are whole words.
            let signs = self.bits(2 * terms.len() * bits::words(n) * 64);
            let what = format!("signed_sum ring {} n {n} terms {}", W::BITS, terms.len());
            compare!(self, what, |d, up| d.signed_sum(up!(&base), up!(&all), &terms, up!(&signs)));
        }
    }

    /// Products of matrices of bits, of one lane and of several.
    pub fn bit_products(&self) {
        for &n in self.lengths() {
            for (batch, rows, inner, columns) in [(1, 1, 1, 1), (2, 3, 5, 4), (3, 1, 70, 2)] {
                let of = |x: usize, y: usize| BitMatrices { batch, rows, inner, columns, lanes: [x, y] };
                for sizes in [of(n, n), of(1, n), of(n, 1)] {
                    let [of_x, of_y] = sizes.lanes;
                    let x = self.bits(batch * rows * inner * of_x);
                    let y = self.bits(batch * inner * columns * of_y);
                    compare!(self, format!("bit_product {sizes:?}"), |d, up| {
                        d.bit_product(up!(&x), up!(&y), sizes)
                    });
                }
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
                let f = &Lookup { cut, low, degree, pieces, frac: 0, beyond: None };
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

    /// Keys of functions by pieces.
    pub fn lookup_keys(&self) {
        rings!(self.lookup_keys_of());
    }

    fn lookup_keys_of<W: Word>(&self) {
        let ring = W::BITS;
        // Every leaf of every value is looked at.
        for &n in self.lengths().iter().filter(|&&n| n <= 200) {
            let mut forms = vec![
                (0, 0, 0, 1, 0, [0; 2]),
                (0, 3, 1, 2, 0, [0; 2]),
                (2, 1, 3, 5, 0, [0; 2]),
                (1, 1, 2, 6, 0, [0; 2]),
                (0, ring - 4, 2, 4, 0, [0; 2]),
                (0, 1, 2, 3, 2, [0; 2]),
                (0, 0, 0, 1, 4, [-7, 0]),
                (1, 1, 3, 2, 3, [5, 3]),
            ];
            if ring >= 32 {
                // All bits; digits of four, and one that is shorter.
                forms.extend([(3, 5, 3, 6, ring - 14, [11, -4]), (0, 9, 2, 4, 8, [0, 1])]);
                // More segments than a device may expand side by side.
                forms.extend([(0, 3, 1, 9, 0, [0; 2]), (2, 4, 1, 8, 6, [3, 1])]);
            }
            for (cut, low, degree, index, above, [constant, slope]) in forms {
                let pieces: Vec<i64> =
                    self.words::<W>((degree as usize + 1) << index).into_iter().map(W::to_i64).collect();
                let bits = cut + low + index + above;
                let beyond = (above > 0).then_some(Beyond { bits, constant, slope });
                let f = &Lookup { cut, low, degree, pieces, frac: 0, beyond };
                let what = format!("ring {ring} n {n} {cut} {low} {degree} {index} {above}");
                let permutations = self.words::<u64>(PERMUTATION_WORDS);
                let (masks, masked, out) = (self.words::<W>(n), self.words::<W>(n), self.words::<W>(n));
                let share = self.words::<W>(n);
                let roots = [self.stream(), self.stream()];
                let roots = [&roots[0], &roots[1]];
                let dealt = {
                    let up = |x: &[W]| Reference.upload(x.to_vec()).unwrap();
                    let permutations = Reference.upload(permutations.clone()).unwrap();
                    Reference.deal_lookup(f, &permutations, &up(&masks), roots).unwrap()
                };
                let found =
                    self.device.deal_lookup(f, &self.up(&permutations), &self.up(&masks), roots).unwrap();
                self.same(&format!("first corrections {what}"), found.first, &dealt.first);
                self.same(&format!("corrections {what}"), found.others, &dealt.others);
                self.same(&format!("values {what}"), found.values, &dealt.values);
                for j in [0, 1] {
                    compare!(self, format!("open_by_keys {what} {j}"), |d, up| {
                        let (first, others, values) =
                            (up!(&dealt.first), up!(&dealt.others), up!(&dealt.values));
                        let first = (j == 1).then_some(first);
                        let key = LookupKey { root: roots[j], first, others, values, mask: up!(&share) };
                        d.open_by_keys(f, up!(&permutations), up!(&masked), &key, up!(&out))
                    });
                }
            }
        }
    }

    /// Keys of comparisons.
    pub fn comparison_keys(&self) {
        rings!(self.comparison_keys_of());
    }

    fn comparison_keys_of<W: Word>(&self) {
        let ring = W::BITS;
        for &n in self.lengths() {
            let forms = [(0, ring, 0), (1, 2, 0), (2, 5, ring - 3), (ring - 6, 6, 3), (0, 6, 1)];
            for (cut, width, truncate) in forms.into_iter().take(if n < 300 { 5 } else { 2 }) {
                self.keys_of::<W>(KeySpec { cut, width, truncate }, n);
            }
        }
    }

    /// Keys for `n` masks, and what both workers make of them at other values.
    pub fn keys_of<W: Word>(&self, spec: KeySpec, n: usize) {
        let what = format!("ring {} n {n} {spec:?}", W::BITS);
        let (masks, masked) = (self.words::<W>(n), self.words::<W>(n));
        let permutations: Vec<u64> = self.words(PERMUTATION_WORDS);
        let roots = [self.stream(), self.stream()];
        let of = [&roots[0], &roots[1]];
        let found = self.device.deal_keys(spec, &self.up(&permutations), &self.up(&masks), of).unwrap();
        let dealt = Reference.deal_keys(spec, &host(&permutations), &host(&masks), of).unwrap();
        same(&format!("first {what}"), self.down(found.first), &dealt.first);
        same(&format!("others {what}"), self.down(found.others), &dealt.others);
        same(&format!("values {what}"), self.down(found.values), &dealt.values);
        same(&format!("tops {what}"), self.down(found.tops), &dealt.tops);

        // A worker's key comes from the dealer: it may be anything.
        let hostile = |n: usize| self.words::<u64>(n);
        let words = [hostile(dealt.first.len()), hostile(dealt.others.len())];
        for (first, others) in [(&dealt.first[..], &dealt.others[..]), (&words[0], &words[1])] {
            for j in [0, 1] {
                let [first, others] = [first, others].map(|words| (self.up(words), host(words)));
                let key = KeyShare {
                    root: &roots[j],
                    first: (j == 1).then_some(&first.0),
                    others: &others.0,
                    values: &self.up(&dealt.values),
                    tops: &self.up(&dealt.tops),
                };
                let found = self.device.evaluate_keys(spec, &self.up(&permutations), &self.up(&masked), &key);
                let key = KeyShare {
                    root: &roots[j],
                    first: (j == 1).then_some(&first.1),
                    others: &others.1,
                    values: &dealt.values,
                    tops: &dealt.tops,
                };
                let expected = Reference.evaluate_keys(spec, &host(&permutations), &host(&masked), &key);
                for (p, (found, expected)) in found.unwrap().into_iter().zip(expected.unwrap()).enumerate() {
                    same(&format!("part {p} of worker {j} {what}"), self.down(found), &expected);
                }
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
