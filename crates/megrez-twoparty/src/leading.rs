//! The most significant non-zero bit, by digits of four bits (SIRNN §3.5 with smaller digits).
//!
//! The integer is cut into digits; a look-up gives each digit's leading bit as four shared bits,
//! all zero for a zero digit. A digit counts where all digits above are zero: their products by
//! ranges, as in a comparison, then one AND under a common factor for the four. What is left is one
//! shared bit for each place, exactly one of them set; sums of their conversions give the scale and
//! the position.
//!
//! Security: `docs/security/secfloat.md`.

use crate::link::Sirnn;
use crate::share::{Bits, Ints};
use crate::triple::{AndShape, Bundle, Triple};
use megrez_float::blocks::{Blocks, Leading, Lookup, Table};
use megrez_kernels::Device;
use megrez_session::Error;

/// Bits of a digit.
pub(crate) const DIGIT: u32 = 4;

/// (cut, width) of all digits but the lowest.
pub(crate) fn cuts(width: u32) -> impl Iterator<Item = (u32, u32)> {
    (DIGIT..width).step_by(DIGIT as usize).map(move |cut| (cut, DIGIT.min(width - cut)))
}

/// Widths of all digits.
pub(crate) fn digits(width: u32) -> impl Iterator<Item = u32> {
    (0..width).step_by(DIGIT as usize).map(move |at| DIGIT.min(width - at))
}

/// Shapes of the ANDs for integers of (width, lanes), level by level: products of zeros, and at
/// last the digits' bits.
pub(crate) fn levels(jobs: &[(u32, usize)]) -> Vec<Vec<AndShape>> {
    let count = |width: u32| width.div_ceil(DIGIT) as usize;
    let longest = jobs.iter().map(|j| count(j.0)).max().unwrap_or(0);
    let mut levels = vec![];
    let mut step = 1;
    while step < longest {
        let joins = |&(width, lanes): &(u32, usize)| {
            (0..count(width)).filter(move |i| i & step != 0).map(move |_| AndShape { lanes, width: 1 })
        };
        levels.push(jobs.iter().flat_map(joins).collect());
        step *= 2;
    }
    let kept = |&(width, lanes): &(u32, usize)| {
        let below = count(width) - 1;
        digits(width).take(below).map(move |w| AndShape { lanes, width: w as usize })
    };
    levels.push(jobs.iter().flat_map(kept).collect());
    levels
}

/// The leading bit of a digit, as one bit for each place.
pub(crate) fn table(width: u32) -> Table {
    Table::new(width, &[], width as usize, |v| {
        (0..u64::from(width)).map(|i| u64::from(v >> i == 1)).collect()
    })
}

impl<D: Device> Sirnn<D> {
    /// For each integer, one bit for each of its places: whether it is the leading one.
    pub(crate) fn leading_bits<B>(&mut self, jobs: &[&Ints]) -> Result<Vec<Vec<Bits>>, Error>
    where
        B: Blocks<Int = Ints, Bit = Bits>,
    {
        let cut: Vec<(&Ints, Vec<(u32, u32)>)> = jobs.iter().map(|&x| (x, cuts(x.width).collect())).collect();
        let sizes: Vec<(u32, usize)> = jobs.iter().map(|x| (x.width, x.v.len())).collect();
        let levels = levels(&sizes);
        let (fields, triples) = self.fields(&cut, &levels.concat())?;
        let mut triples = triples.into_iter();
        let mut triples: Vec<Vec<Triple>> =
            levels.iter().map(|level| triples.by_ref().take(level.len()).collect()).collect();
        let digits: Vec<Vec<Ints>> = jobs
            .iter()
            .zip(fields)
            .map(|(x, higher)| [x.map(DIGIT.min(x.width), |v| v)].into_iter().chain(higher).collect())
            .collect();
        let tables: Vec<Table> = (1..=DIGIT).map(table).collect();
        let lookups: Vec<Lookup<'_, B>> = digits
            .iter()
            .flatten()
            .map(|d| Lookup { index: d, table: &tables[d.width as usize - 1] })
            .collect();
        let mut rows = self.rows(&lookups)?.into_iter();
        let places: Vec<Vec<Vec<Bits>>> = digits
            .iter()
            .map(|d| d.iter().map(|_| rows.next().expect("a row for each digit").bits).collect())
            .collect();

        // zero[d] becomes: digits d … top are zero.
        let first = self.me() == 0;
        let mut zero: Vec<Vec<Bits>> =
            places.iter().map(|digits| digits.iter().map(|bits| any(bits).flip(first)).collect()).collect();
        let last = triples.pop().expect("the digits' own level");
        self.suffixes(&mut zero, triples)?;
        let mut bundles = vec![];
        for (places, zero) in places.iter().zip(&zero) {
            for (d, bits) in places.iter().enumerate().take(places.len() - 1) {
                bundles.push(Bundle { x: &zero[d + 1], y: bits.iter().collect() });
            }
        }
        let mut kept = self.and_with(&bundles, last)?.into_iter();
        let gather = |digits: &Vec<Vec<Bits>>| {
            let top = digits.last().expect("a digit").clone();
            kept.by_ref().take(digits.len() - 1).chain([top]).flatten().collect()
        };
        Ok(places.iter().map(gather).collect())
    }

    /// Products of all bits from each one up, in ⌈log2⌉ rounds of ANDs, with triples for each.
    fn suffixes(&mut self, jobs: &mut [Vec<Bits>], triples: Vec<Vec<Triple>>) -> Result<(), Error> {
        for (level, triples) in triples.into_iter().enumerate() {
            let step = 1 << level;
            // Blocks of 2·step from the top: those in a lower half take the product of the upper
            // half.
            let pairs: Vec<(usize, usize, usize)> = jobs
                .iter()
                .enumerate()
                .flat_map(|(job, bits)| {
                    let from_top = move |i: usize| bits.len() - 1 - i;
                    let lower = (0..bits.len()).filter(move |i| i & step != 0);
                    lower.map(move |i| (job, from_top(i), from_top((i & !(step - 1)) - 1)))
                })
                .collect();
            let bundles: Vec<Bundle<'_>> = pairs
                .iter()
                .map(|&(job, to, with)| Bundle { x: &jobs[job][with], y: vec![&jobs[job][to]] })
                .collect();
            let products = self.and_with(&bundles, triples)?;
            for ((job, to, _), mut product) in pairs.into_iter().zip(products) {
                jobs[job][to] = product.pop().expect("one companion");
            }
        }
        Ok(())
    }

    /// MSNZB of each x, its position in so many bits.
    pub(crate) fn leading_of<B>(&mut self, jobs: &[(&Ints, u32)]) -> Result<Vec<Leading<B>>, Error>
    where
        B: Blocks<Int = Ints, Bit = Bits>,
    {
        let ints: Vec<&Ints> = jobs.iter().map(|j| j.0).collect();
        let places = self.leading_bits::<B>(&ints)?;
        // 2^(w−1−i) of a place needs its bit modulo 2^(i+1), bit b of the position modulo 2^(p−b).
        let positions: Vec<Vec<Bits>> = places
            .iter()
            .zip(jobs)
            .map(|(places, &(x, width))| {
                assert!(width >= 32 - (x.width - 1).leading_zeros(), "too narrow for the position");
                let used = 32 - (x.width - 1).leading_zeros();
                (0..used).map(|b| sum(places, |i| i >> b & 1 == 1)).collect()
            })
            .collect();
        let mut asked = vec![];
        for ((places, positions), &(_, width)) in places.iter().zip(&positions).zip(jobs) {
            asked.extend(places.iter().zip(1..));
            asked.extend(positions.iter().enumerate().map(|(b, bit)| (bit, width - b as u32)));
        }
        let mut wide = self.widen_bits(&asked)?.into_iter();
        let first = self.me() == 0;
        let one = |((places, positions), &(x, width)): ((&Vec<Bits>, &Vec<Bits>), &(&Ints, u32))| {
            let lanes = x.v.len();
            let mut add = |width: u32, shifts: &mut dyn Iterator<Item = u32>| {
                let mut total = vec![0u64; lanes];
                for shift in shifts {
                    let term = wide.next().expect("one for each bit");
                    total.iter_mut().zip(&term.v).for_each(|(t, v)| *t = t.wrapping_add(v << shift));
                }
                Ints::new(width, total)
            };
            let scale = add(x.width, &mut (0..x.width).rev());
            let position = add(width, &mut (0..positions.len() as u32));
            Leading { scale, position, zero: any(places).flip(first) }
        };
        Ok(places.iter().zip(&positions).zip(jobs).map(one).collect())
    }
}

/// The sum modulo 2 of those bits whose place is wanted.
fn sum(places: &[Bits], wanted: impl Fn(usize) -> bool) -> Bits {
    let zero = Bits::pack(places[0].n, |_| 0);
    places.iter().enumerate().filter(|(i, _)| wanted(*i)).fold(zero, |s, (_, b)| s.xor(b))
}

/// Whether any bit is set, where at most one is.
fn any(places: &[Bits]) -> Bits {
    sum(places, |_| true)
}
