//! The most significant non-zero bit, by digits of four bits, as between two parties (`leading.rs`
//! there).
//!
//! 1. The borrows u_k = v_k ⊕ ρ_k at the lower ends of all digits but the lowest, as masked bits.
//! 2. Digit k is y = m_k − r_k − u_k mod 2^{w_k}, a function of public m_k and v_k and of (r_k,
//!    ρ_k), of which the dealer deals a one-hot vector of 2^{w_k + 1} bits. So shares of [y's
//!    leading bit is i] are local; opened.
//! 3. Zeros above, by groups of four digits from the top: polynomials, then once more between
//!    groups.
//! 4. Exactly one place is left, or none: the scale and the position are forms in the masks of
//!    places and of their sums modulo 2.
//!
//! phase     rounds                   bits per lane                                              from → to
//! offline   1                        cuts + Σ_k (2^{w_k + 1} − 1) + products + w(w + 1)/2 + …    dealer → worker 0
//! online    cuts + 1 + (0 to 2) + 1  2w for places, for each level of products, and for forms   worker ↔ worker
//!
//! Security: `docs/security/float-dealer.md`.

use super::form::{BitForms, Polynomials};
use super::joins::Cut;
use super::link::Dealt;
use super::share::{Bits, Ints};
use megrez_float::blocks::{Blocks, Leading, mask};
use megrez_kernels::Device;
use megrez_ring::bits;
use megrez_session::Error;

/// Bits of a digit.
const DIGIT: u32 = 4;
/// Digits of a group.
const GROUP: usize = 4;

/// (lowest bit, width) of the digits, from the top one down.
pub(super) fn digits(width: u32) -> Vec<(u32, u32)> {
    let digits: Vec<(u32, u32)> =
        (0..width).step_by(DIGIT as usize).map(|at| (at, DIGIT.min(width - at))).collect();
    digits.into_iter().rev().collect()
}

/// Where digits borrow.
pub(super) fn cuts(width: u32) -> Vec<Cut> {
    (DIGIT..width).step_by(DIGIT as usize).map(|at| Cut { at, borrow: true, zero: false }).collect()
}

/// The polynomials of a group of digits of such widths: inputs are whether each is zero, but for
/// the last, then the places of all but the first; outputs are those places where all above in the
/// group is zero, and with `whole` that all of it is, which takes the last zero as the last input.
pub(super) fn group(widths: &[u32], whole: bool) -> Vec<Vec<u32>> {
    let zeros = widths.len() - 1;
    let mut outputs = vec![];
    let mut input = zeros;
    for (above, width) in widths.iter().enumerate().skip(1) {
        for _ in 0..*width {
            outputs.push(vec![1 << input | ((1u32 << above) - 1)]);
            input += 1;
        }
    }
    if whole {
        outputs.push(vec![1 << input | ((1u32 << zeros) - 1)]);
    }
    outputs
}

/// The polynomials of `places` places below so many groups: inputs are whether those groups are
/// zero, then the places.
pub(super) fn below(groups: usize, places: usize) -> Vec<Vec<u32>> {
    (0..places).map(|i| vec![1 << (groups + i) | ((1u32 << groups) - 1)]).collect()
}

/// For a digit's m and v, and place i, all (r, ρ) such that the leading bit of m − r − (v ⊕ ρ) is
/// i: bit r + 2^w·ρ.
fn patterns(width: u32, m: u64, v: u64) -> Vec<u64> {
    let mut sets = vec![0; width as usize];
    for q in 0..2u64 << width {
        let y = m.wrapping_sub(q & mask(width)).wrapping_sub(v ^ (q >> width)) & mask(width);
        if y > 0 {
            sets[y.ilog2() as usize] |= 1 << q;
        }
    }
    sets
}

/// ⊕ of bits, of which there is one at least.
fn sum<'a>(mut bits: impl Iterator<Item = &'a Bits>) -> Bits {
    let first = bits.next().expect("a bit").clone();
    bits.fold(first, |sum, b| sum.xor(b))
}

impl<D: Device> Dealt<D> {
    /// MSNZB of each x, its position in so many bits.
    pub(super) fn leading_of<B>(&mut self, jobs: &[(&Ints, u32)]) -> Result<Vec<Leading<B>>, Error>
    where
        B: Blocks<Int = Ints, Bit = Bits>,
    {
        let places = self.places(jobs)?;
        let mut forms = vec![];
        for (places, &(x, width)) in places.iter().zip(jobs) {
            let used = 32 - (x.width - 1).leading_zeros();
            assert!(width >= used, "too narrow for the position");
            let (lanes, last) = (x.lanes(), x.width - 1);
            let scale: Vec<(u32, &Bits)> =
                places.iter().enumerate().map(|(i, b)| (last - i as u32, b)).collect();
            forms.push(self.weighted(x.width, lanes, 0, &scale));
            let bit = |b: u32| sum((0..places.len()).filter(|i| i >> b & 1 == 1).map(|i| &places[i]));
            let position: Vec<Bits> = (0..used).map(bit).collect();
            let position: Vec<(u32, &Bits)> = (0..used).zip(&position).collect();
            forms.push(self.weighted(width, lanes, 0, &position));
        }
        let mut ints = self.open_forms(forms)?.into_iter();
        let mut next = || ints.next().expect("two for each");
        let one =
            |places: &Vec<Bits>| Leading { scale: next(), position: next(), zero: sum(places.iter()).not() };
        Ok(places.iter().map(one).collect())
    }

    /// For each integer, one bit for each of its places from the lowest: whether it is the leading
    /// one.
    fn places(&mut self, jobs: &[(&Ints, u32)]) -> Result<Vec<Vec<Bits>>, Error> {
        let digits = self.places_of_digits(jobs)?;
        // Groups, from the top; in each the digits, from the top, with their places.
        let mut groups: Vec<Vec<Vec<Vec<Bits>>>> =
            digits.into_iter().map(|d| d.chunks(GROUP).map(<[_]>::to_vec).collect()).collect();
        let mut zeros: Vec<Vec<Bits>> = vec![vec![]; jobs.len()];

        let mut work = vec![];
        for groups in &groups {
            for (g, digits) in groups.iter().enumerate() {
                let whole = g + 1 < groups.len();
                let zero = |d: &Vec<Bits>| sum(d.iter()).not();
                let (last, above) = digits.split_last().expect("a digit");
                let last = whole.then(|| zero(last));
                let inputs: Vec<Bits> =
                    above.iter().map(zero).chain(digits[1..].iter().flatten().cloned()).chain(last).collect();
                let widths: Vec<u32> = digits.iter().map(|d| d.len() as u32).collect();
                let outputs = group(&widths, whole);
                if !outputs.is_empty() {
                    work.push(Polynomials { inputs, outputs });
                }
            }
        }
        let mut results = self.polynomials(&work)?.into_iter();
        for (groups, zeros) in groups.iter_mut().zip(&mut zeros) {
            let count = groups.len();
            for (g, digits) in groups.iter_mut().enumerate() {
                if digits.len() == 1 && g + 1 == count {
                    continue;
                }
                let mut bits = results.next().expect("one for each group").into_iter();
                digits[1..].iter_mut().flatten().for_each(|place| *place = bits.next().expect("a place"));
                zeros.extend(bits);
            }
        }

        let mut work = vec![];
        for (groups, zeros) in groups.iter().zip(&zeros) {
            for (g, digits) in groups.iter().enumerate().skip(1) {
                let places: Vec<Bits> = digits.iter().flatten().cloned().collect();
                let outputs = below(g, places.len());
                work.push(Polynomials {
                    inputs: zeros[..g].iter().cloned().chain(places).collect(),
                    outputs,
                });
            }
        }
        let mut results = self.polynomials(&work)?.into_iter();
        for digits in groups.iter_mut().flat_map(|groups| groups.iter_mut().skip(1)) {
            let bits = results.next().expect("one for each group");
            digits.iter_mut().flatten().zip(bits).for_each(|(place, bit)| *place = bit);
        }
        Ok(groups.into_iter().map(|groups| groups.into_iter().flatten().rev().flatten().collect()).collect())
    }

    /// For each digit of each integer, from the top, one bit for each of its places.
    fn places_of_digits(&mut self, jobs: &[(&Ints, u32)]) -> Result<Vec<Vec<Vec<Bits>>>, Error> {
        let asked: Vec<(&Ints, Vec<Cut>)> =
            jobs.iter().filter(|j| j.0.width > DIGIT).map(|j| (j.0, cuts(j.0.width))).collect();
        let mut answers = self.cuts(&asked)?.into_iter();
        // Every digit with its borrow; the lowest has none.
        let mut all: Vec<(&Ints, u32, u32, Option<Bits>)> = vec![];
        for &(x, _) in jobs {
            let borrows: Vec<Option<Bits>> = if x.width > DIGIT {
                answers.next().expect("one for each").into_iter().map(|a| a.borrow).collect()
            } else {
                vec![]
            };
            let borrows = std::iter::once(None).chain(borrows).rev();
            for ((at, width), borrow) in digits(x.width).into_iter().zip(borrows) {
                all.push((x, at, width, borrow));
            }
        }
        let sizes: Vec<(u32, usize)> =
            all.iter().map(|(x, _, width, b)| (width + u32::from(b.is_some()), x.lanes())).collect();
        let secret = |(x, at, width, borrow): &(&Ints, u32, u32, Option<Bits>)| -> Vec<u64> {
            let mask_of = |i: usize| borrow.as_ref().map_or(0, |b| bits::get(&b.r, i));
            x.r.iter().enumerate().map(|(i, r)| r >> at & mask(*width) | mask_of(i) << width).collect()
        };
        let hot = self.one_hots(&sizes, || all.iter().map(secret).collect())?;
        let deals = self.deals();
        let form =
            |((x, at, width, borrow), hot): (&(&Ints, u32, u32, Option<Bits>), &super::digits::OneHots)| {
                let sets: Vec<Vec<u64>> =
                    (0..2 << width).map(|i: u64| patterns(*width, i & mask(*width), i >> width)).collect();
                BitForms::held(x.lanes(), *width as usize, |place| {
                    if deals {
                        return vec![];
                    }
                    bits::pack(x.lanes(), |i| {
                        let v = borrow.as_ref().map_or(0, |b| bits::get(&b.m, i));
                        let public = x.m[i] >> at & mask(*width) | v << width;
                        u64::from((hot.words[0][i] & sets[public as usize][place]).count_ones())
                    })
                })
            };
        let forms = all.iter().zip(&hot).map(form).collect();
        let mut opened = self.open(vec![], forms)?.1.into_iter();
        Ok(jobs.iter().map(|j| opened.by_ref().take(digits(j.0.width).len()).collect()).collect())
    }
}
