//! What a program costs with a dealer before it runs: [`Blocks`] that know widths and lanes and
//! nothing else. The cost is what the meter will read, byte for byte, and no more rounds than it;
//! the tests hold the two together.

use super::blocks::{ROUNDED, tally_shift};
use super::digits::one_hot_words;
use super::form::products_of_masks;
use super::joins::{Cut, Joins};
use super::{leading, lookup::Live};
use crate::sizes::local_blocks;
pub use crate::sizes::{Lanes, Size};
use megrez_float::blocks::{
    Blocks, Extend, Factor, Leading, Lookup, Msb, Multiply, Row, Select, Tally, Truncate,
};
use std::convert::Infallible;

/// Bytes and rounds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Cost {
    /// Payload bytes from the dealer to worker 0, in the offline phase. It sends worker 1 none.
    pub dealt: u64,
    /// Payload bytes that each worker sends the other.
    pub opened: u64,
    /// Messages between the workers on the longest chain. The dealer's are one round, whatever they
    /// are.
    pub rounds: u32,
}

impl Cost {
    /// Bytes of all parties.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.dealt + 2 * self.opened
    }
}

/// Prices of what is asked.
#[derive(Clone, Copy, Debug, Default)]
pub struct Costing {
    /// What was asked so far.
    pub cost: Cost,
}

impl Costing {
    /// A message of the dealer.
    fn deal(&mut self, bits: usize) {
        self.cost.dealt += bits.div_ceil(8) as u64;
    }

    /// A message of the dealer, and one each way between the workers.
    fn round(&mut self, dealt: usize, opened: usize) {
        self.deal(dealt);
        self.cost.opened += opened.div_ceil(8) as u64;
        self.cost.rounds += u32::from(opened > 0);
    }

    fn cuts(&mut self, jobs: &[(Vec<Cut>, usize)]) {
        let bits: Vec<(Vec<(usize, usize)>, usize)> =
            jobs.iter().map(|(cuts, lanes)| (Joins::new(cuts).bits(), *lanes)).collect();
        for level in 0..bits.iter().map(|b| b.0.len()).max().unwrap_or(0) {
            let at = bits.iter().filter_map(|(bits, lanes)| Some((bits.get(level)?, lanes)));
            let (dealt, opened) =
                at.fold((0, 0), |(d, o), (bits, lanes)| (d + bits.0 * lanes, o + bits.1 * lanes));
            self.round(dealt, opened);
        }
    }

    fn signs(&mut self, jobs: &[&Size], zero: bool) {
        let wide: Vec<_> = jobs.iter().filter(|x| x.width > 1).collect();
        let below = |x: &Size| {
            let sign = Cut { at: x.width - 1, borrow: true, zero: false };
            let all = zero.then_some(Cut { at: x.width, borrow: false, zero: true });
            std::iter::once(sign).chain(all).collect()
        };
        self.cuts(&wide.iter().map(|x| (below(x), x.lanes)).collect::<Vec<_>>());
        self.deal(wide.iter().map(|x| x.lanes).sum());
    }

    /// Comparisons of those whose wraps nothing tells.
    fn wraps(&mut self, jobs: &[(Size, u32, Wrap)]) {
        let unknown = jobs.iter().filter(|j| j.1 > j.0.width && j.2 == Wrap::Unknown);
        let cut = |x: &Size| vec![Cut { at: x.width, borrow: true, zero: false }];
        self.cuts(&unknown.map(|(x, ..)| (cut(x), x.lanes)).collect::<Vec<_>>());
    }
}

/// How the wrap of an integer is had.
#[derive(Clone, Copy, PartialEq)]
enum Wrap {
    Unknown,
    Known,
    Shared,
}

impl Wrap {
    fn of(msb: &Msb<'_, Costing>) -> Self {
        match msb {
            Msb::Unknown => Self::Unknown,
            Msb::Zero | Msb::One => Self::Known,
            Msb::Shared(_) => Self::Shared,
        }
    }
}

/// Shifts of the parts of an integer that is wanted in `width` bits.
fn parts(x: &Size, width: u32, wrap: Wrap) -> Vec<u32> {
    let wraps = if wrap == Wrap::Shared { 3 } else { 1 };
    let wraps = if width > x.width { wraps } else { 0 };
    std::iter::once(0).chain(std::iter::repeat_n(x.width, wraps)).collect()
}

/// Bits dealt of parts by themselves: r is held, but for where its shares carry.
fn singles(parts: &[u32], width: u32) -> usize {
    let above = parts.get(1).map_or(0, |s| (width - s) as usize);
    above * parts.len()
}

/// Bits dealt and opened of a rounding to `width` bits: with a quotient of one bit less above a
/// bit.
fn lifted(width: u32) -> (usize, usize) {
    let width = width as usize;
    (width + 2 * (width - 1), width)
}

impl Blocks for Costing {
    local_blocks!();

    fn and(&mut self, jobs: &[(&Lanes, &Lanes)]) -> Result<Vec<Lanes>, Infallible> {
        let lanes = jobs.iter().map(|j| j.0.0).sum();
        self.round(lanes, lanes);
        Ok(jobs.iter().map(|(x, _)| **x).collect())
    }
    fn select(&mut self, jobs: &[Select<'_, Self>]) -> Result<Vec<Row<Self>>, Infallible> {
        let ints: usize = jobs.iter().flat_map(|j| &j.ints).map(|x| x.width as usize * x.lanes).sum();
        let bits: usize = jobs.iter().flat_map(|j| &j.bits).map(|b| b.0).sum();
        let widest = |j: &Select<'_, Self>| j.ints.iter().map(|x| x.width).max().unwrap_or(0) as usize;
        self.deal(jobs.iter().map(|j| widest(j) * j.bit.0).sum());
        self.round(ints + bits, ints + bits);
        let row = |j: &Select<'_, Self>| Row {
            ints: j.ints.iter().map(|x| **x).collect(),
            bits: j.bits.iter().map(|b| **b).collect(),
        };
        Ok(jobs.iter().map(row).collect())
    }
    fn widen(&mut self, jobs: &[(&Lanes, u32)]) -> Result<Vec<Size>, Infallible> {
        let bits = jobs.iter().filter(|j| j.1 > 1).map(|j| j.0.0 * j.1 as usize).sum();
        self.round(bits, bits);
        Ok(jobs.iter().map(|(b, width)| Size { width: *width, lanes: b.0 }).collect())
    }
    fn tally(&mut self, jobs: &[Tally<'_, Self>]) -> Result<Vec<Size>, Infallible> {
        let dealt = |j: &Tally<'_, Self>| -> usize {
            j.terms.iter().map(|(b, k)| (j.width - tally_shift(*k, j.width)) as usize * b.0).sum()
        };
        let opened = jobs.iter().map(|j| j.width as usize * j.terms[0].0.0).sum();
        self.round(jobs.iter().map(dealt).sum(), opened);
        Ok(jobs.iter().map(|j| Size { width: j.width, lanes: j.terms[0].0.0 }).collect())
    }
    fn negative(&mut self, jobs: &[&Size]) -> Result<Vec<Lanes>, Infallible> {
        self.signs(jobs, false);
        Ok(jobs.iter().map(|x| Lanes(x.lanes)).collect())
    }
    fn negative_zero(&mut self, jobs: &[&Size]) -> Result<Vec<(Lanes, Lanes)>, Infallible> {
        self.signs(jobs, true);
        Ok(jobs.iter().map(|x| (Lanes(x.lanes), Lanes(x.lanes))).collect())
    }
    fn is_zero(&mut self, jobs: &[&Size]) -> Result<Vec<Lanes>, Infallible> {
        let cut = |x: &Size| vec![Cut { at: x.width, borrow: false, zero: true }];
        self.cuts(&jobs.iter().map(|x| (cut(x), x.lanes)).collect::<Vec<_>>());
        Ok(jobs.iter().map(|x| Lanes(x.lanes)).collect())
    }
    fn lookup(&mut self, jobs: &[Lookup<'_, Self>]) -> Result<Vec<Row<Self>>, Infallible> {
        let live: Vec<(Live, usize, &Lookup<'_, Self>)> =
            jobs.iter().map(|j| (Live::new(j.table), j.index.lanes, j)).collect();
        let used = live.iter().filter(|(live, ..)| live.count > 0);
        self.deal(used.map(|(_, n, j)| one_hot_words(j.table.index).sum::<u32>() as usize * n).sum());
        self.round(0, live.iter().map(|(live, n, _)| live.count * n).sum());
        let dealt = live.iter().map(|(live, n, j)| live.dealt(j.table.ints.len()) * n).sum();
        let ints = |(live, n, j): &(Live, usize, &Lookup<'_, Self>)| -> usize {
            let ints = live.columns[..j.table.ints.len()].iter().filter(|c| !c.1.is_empty());
            ints.map(|c| c.0 as usize * n).sum()
        };
        self.round(dealt, live.iter().map(ints).sum());
        let row = |j: &Lookup<'_, Self>| Row {
            ints: j.table.ints.iter().map(|&width| Size { width, lanes: j.index.lanes }).collect(),
            bits: vec![Lanes(j.index.lanes); j.table.bits],
        };
        Ok(jobs.iter().map(row).collect())
    }
    fn extend(&mut self, jobs: &[Extend<'_, Self>]) -> Result<Vec<Size>, Infallible> {
        let wide: Vec<_> = jobs.iter().map(|j| (*j.x, j.width, Wrap::of(&j.msb))).collect();
        self.wraps(&wide);
        let (mut dealt, mut opened) = (0, 0);
        for (x, width, wrap) in wide.iter().filter(|j| j.1 > j.0.width) {
            dealt += singles(&parts(x, *width, *wrap), *width) * x.lanes;
            opened += (width - x.width) as usize * x.lanes;
        }
        self.round(dealt, opened);
        Ok(jobs.iter().map(|j| Size { width: j.width, lanes: j.x.lanes }).collect())
    }
    fn truncate(&mut self, jobs: &[Truncate<'_, Self>]) -> Result<Vec<Vec<Size>>, Infallible> {
        let cut = |&at: &u32| Cut { at, borrow: true, zero: false };
        let cuts = |j: &Truncate<'_, Self>| j.cuts.iter().map(cut).collect();
        self.cuts(&jobs.iter().map(|j| (cuts(j), j.x.lanes)).collect::<Vec<_>>());
        let kept = |j: &Truncate<'_, Self>| -> usize {
            j.cuts.iter().map(|c| (j.x.width - c) as usize * j.x.lanes).sum()
        };
        let bits = jobs.iter().map(kept).sum();
        self.round(2 * bits, bits);
        let sizes = |j: &Truncate<'_, Self>| {
            j.cuts.iter().map(|c| Size { width: j.x.width - c, lanes: j.x.lanes }).collect()
        };
        Ok(jobs.iter().map(sizes).collect())
    }
    fn sticky(&mut self, jobs: &[(&Size, u32)]) -> Result<Vec<Size>, Infallible> {
        let cut =
            |(x, s): &(&Size, u32)| (vec![Cut { at: s + 1, borrow: s + 1 < x.width, zero: true }], x.lanes);
        self.cuts(&jobs.iter().map(cut).collect::<Vec<_>>());
        Ok(self.lift(jobs))
    }
    fn round(&mut self, jobs: &[(&Size, u32)]) -> Result<Vec<Size>, Infallible> {
        let short = jobs.iter().filter(|j| j.1 < ROUNDED);
        self.deal(short.clone().map(|(x, r)| ((2 << r) - 1) * x.lanes).sum());
        self.round(0, short.map(|(x, _)| 2 * x.lanes).sum());
        let long: Vec<_> = jobs.iter().filter(|j| j.1 >= ROUNDED).collect();
        let cuts = |(x, r): &(&Size, u32)| {
            let low = Cut { at: *r, borrow: true, zero: true };
            let high = (r + 1 < x.width).then_some(Cut { at: r + 1, borrow: true, zero: false });
            (std::iter::once(low).chain(high).collect(), x.lanes)
        };
        self.cuts(&long.iter().map(|j| cuts(j)).collect::<Vec<_>>());
        let lanes = long.iter().map(|j| j.0.lanes).sum();
        self.deal(lanes);
        self.round(lanes, lanes);
        Ok(self.lift(jobs))
    }
    fn multiply(&mut self, jobs: &[Multiply<'_, Self>]) -> Result<Vec<Size>, Infallible> {
        let square = |j: &Multiply<'_, Self>| std::ptr::eq(j.x.x, j.y.x) && j.x.signed == j.y.signed;
        let wide = |f: &Factor<'_, Self>, width: u32| (*f.x, width, Wrap::of(&f.msb));
        let mut asked = vec![];
        let (mut dealt, mut opened) = (0, 0);
        for j in jobs {
            let both = [wide(&j.x, j.width), wide(&j.y, j.width)];
            let used = &both[..if square(j) { 1 } else { 2 }];
            let of: Vec<Vec<u32>> = used.iter().map(|(x, width, wrap)| parts(x, *width, *wrap)).collect();
            let pair = |s: u32, t: u32| j.width.saturating_sub(s + t) as usize;
            let x = &of[0];
            let pairs: usize = match of.get(1) {
                Some(y) => x.iter().flat_map(|&s| y.iter().map(move |&t| pair(s, t))).sum(),
                None => (0..x.len())
                    .flat_map(|k| (0..=k).map(move |l| (k, l)))
                    .map(|(k, l)| pair(x[k], x[l]))
                    .sum(),
            };
            let lanes = j.x.x.lanes;
            dealt += (pairs + of.iter().map(|p| singles(p, j.width)).sum::<usize>()) * lanes;
            opened += j.width as usize * lanes;
            asked.extend_from_slice(used);
        }
        self.wraps(&asked);
        self.round(dealt, opened);
        Ok(jobs.iter().map(|j| Size { width: j.width, lanes: j.x.x.lanes }).collect())
    }
    fn leading(&mut self, jobs: &[(&Size, u32)]) -> Result<Vec<Leading<Self>>, Infallible> {
        let long: Vec<_> = jobs.iter().filter(|j| j.0.width > 4).collect();
        self.cuts(&long.iter().map(|j| (leading::cuts(j.0.width), j.0.lanes)).collect::<Vec<_>>());
        let (mut hot, mut places) = (0, 0);
        // Of both levels of products: dealt, opened.
        let mut levels = [(0, 0); 2];
        let (mut dealt, mut opened) = (0, 0);
        for &(x, width) in jobs {
            let digits: Vec<u32> = leading::digits(x.width).iter().map(|d| d.1).collect();
            let (last, above) = digits.split_last().expect("a digit");
            hot += (above.iter().map(|w| (2 << w) - 1).sum::<usize>() + (1 << last) - 1) * x.lanes;
            places += x.width as usize * x.lanes;
            let groups: Vec<&[u32]> = digits.chunks(4).collect();
            for (g, widths) in groups.iter().enumerate() {
                let outputs = leading::group(widths, g + 1 < groups.len());
                let below = leading::below(g, widths.iter().sum::<u32>() as usize);
                let below = if g > 0 { below } else { vec![] };
                for (level, outputs) in levels.iter_mut().zip([outputs, below]) {
                    level.0 += products_of_masks(&outputs).len() * x.lanes;
                    level.1 += outputs.len() * x.lanes;
                }
            }
            let used = 32 - (x.width - 1).leading_zeros();
            let position: u32 = (0..used).map(|b| width - b).sum();
            dealt += ((x.width * (x.width + 1) / 2 + position) as usize) * x.lanes;
            opened += ((x.width + width) as usize) * x.lanes;
        }
        self.deal(hot);
        self.round(0, places);
        levels.iter().for_each(|level| self.round(level.0, level.1));
        self.round(dealt, opened);
        let one = |(x, width): &(&Size, u32)| Leading {
            scale: **x,
            position: Size { width: *width, lanes: x.lanes },
            zero: Lanes(x.lanes),
        };
        Ok(jobs.iter().map(one).collect())
    }
}

impl Costing {
    /// The last round of `sticky` and `round`.
    fn lift(&mut self, jobs: &[(&Size, u32)]) -> Vec<Size> {
        let one = |(x, s): &(&Size, u32)| {
            let (dealt, opened) = lifted(x.width - s);
            (dealt * x.lanes, opened * x.lanes)
        };
        let (dealt, opened) = jobs.iter().map(one).fold((0, 0), |s, b| (s.0 + b.0, s.1 + b.1));
        self.round(dealt, opened);
        jobs.iter().map(|(x, s)| Size { width: x.width - s, lanes: x.lanes }).collect()
    }
}
