//! What a program costs before it runs: [`Blocks`] that know widths and lanes and nothing else.
//!
//! A program is run on [`Costing`] as it would be on shares; the cost is what the meter will read,
//! byte for byte, and no more rounds than it. The tests hold the two together.

pub use crate::cost::Cost;
pub use crate::sizes::{Lanes, Size};

use crate::compare::{self, Ask};
use crate::ot::Transfers;
use crate::ot::silent::refill_bytes;
use crate::ot::stock::Stock;
use crate::sizes::local_blocks;
use crate::triple::{self, AndShape};
use crate::{cot, leading, lookup};
use megrez_float::blocks::{Blocks, Extend, Factor, Leading, Lookup, Msb, Multiply, Row, Select, Truncate};
use std::convert::Infallible;

/// Prices of transfers of one kind.
#[derive(Clone, Copy, Debug)]
pub struct Costing {
    /// How their blocks are made.
    pub transfers: Transfers,
    /// Threads of each party.
    pub threads: usize,
    /// What was asked so far.
    pub cost: Cost,
    /// What is left of each party's stock of OTs in which it chooses.
    stock: [Stock; 2],
}

/// How the wrap of a factor is had.
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

impl Costing {
    /// Nothing is asked yet, of transfers with groups of so many bits, 0 for silent ones.
    #[must_use]
    pub fn new(group: u32) -> Self {
        let transfers = Transfers::of(group);
        Self { transfers, threads: 1, cost: Cost::default(), stock: [Stock::default(); 2] }
    }

    /// Between parties of so many threads each.
    #[must_use]
    pub fn with_threads(self, threads: usize) -> Self {
        Self { threads, ..self }
    }

    /// What was asked, after what fills up the stocks for it.
    fn pay(&mut self, cost: Cost) {
        self.cost.pay(cost);
        if self.transfers != Transfers::Silent {
            return;
        }
        loop {
            let refills = [0, 1].map(|party| self.stock[party].lacking(cost.chosen[party] as usize));
            if refills.iter().all(Option::is_none) {
                break;
            }
            let mut bytes = [0; 2];
            for (party, refill) in refills.into_iter().enumerate() {
                let Some(refill) = refill else { continue };
                let [asked, answered] = refill_bytes(refill);
                bytes[party] += asked;
                bytes[1 - party] += answered;
                self.stock[party].fill(refill);
            }
            self.cost.pay(Cost::new(bytes, 2));
        }
        self.stock.iter_mut().zip(cost.chosen).for_each(|(stock, n)| stock.take(n as usize));
    }

    fn carries(&mut self, jobs: &[(Vec<(u32, Ask)>, usize)], ands: &[usize], later: &[AndShape]) {
        self.pay(compare::cost(self.transfers, jobs, ands, later));
    }

    fn openings(&mut self, shapes: &[AndShape]) {
        self.pay(triple::opening_cost(shapes));
    }

    fn cots(&mut self, jobs: &[(usize, Option<usize>, u32)]) {
        self.pay(cot::cost(self.transfers, jobs));
    }

    fn ands(&mut self, shapes: &[AndShape]) {
        self.pay(triple::cost(self.transfers, shapes));
    }

    fn wraps(&mut self, jobs: &[(Size, Wrap)]) {
        let of = |wrap: Wrap| jobs.iter().filter(move |j| j.1 == wrap).map(|j| j.0);
        let carries: Vec<_> = of(Wrap::Unknown).map(|x| (vec![(x.width, Ask::Wrap)], x.lanes)).collect();
        self.carries(&carries, &of(Wrap::Shared).map(|x| x.lanes).collect::<Vec<_>>(), &[]);
    }

    fn widened(&mut self, jobs: &[(usize, u32)]) {
        let wide = jobs.iter().enumerate().filter(|(_, j)| j.1 > 1);
        let jobs: Vec<_> = wide.map(|(i, &(lanes, width))| (lanes, Some(i % 2), width - 1)).collect();
        self.cots(&jobs);
    }

    fn extended(&mut self, jobs: &[(Size, u32, Wrap)]) {
        let wraps: Vec<_> = jobs.iter().filter(|j| j.1 > j.0.width).map(|j| (j.0, j.2)).collect();
        self.wraps(&wraps);
        let part = |(i, &(x, width, wrap)): (usize, &(Size, u32, Wrap))| {
            let bits = (width - x.width).checked_sub(u32::from(wrap != Wrap::Known)).filter(|&w| w > 0);
            bits.map(|bits| (x.lanes, Some(i % 2), bits))
        };
        let cots: Vec<_> = jobs.iter().enumerate().filter_map(part).collect();
        self.cots(&cots);
    }

    /// For each (cut, width) of each integer the `width` bits above the cut.
    fn fields(&mut self, jobs: &[(Size, Vec<(u32, u32)>)], later: &[AndShape]) {
        let cuts = |c: &[(u32, u32)]| c.iter().map(|c| (c.0, Ask::Wrap)).collect();
        let carries: Vec<_> = jobs.iter().map(|(x, c)| (cuts(c), x.lanes)).collect();
        self.carries(&carries, &[], later);
        let wide: Vec<_> = jobs.iter().flat_map(|(x, c)| c.iter().map(|c| (x.lanes, c.1))).collect();
        self.widened(&wide);
    }

    fn shifted(&mut self, jobs: &[(&Size, u32)]) -> Vec<Size> {
        let carries: Vec<_> = jobs.iter().map(|(x, s)| (vec![(*s, Ask::Both)], x.lanes)).collect();
        let ands: Vec<_> = jobs.iter().map(|(x, _)| AndShape { lanes: x.lanes, width: 1 }).collect();
        self.carries(&carries, &[], &ands);
        self.openings(&ands);
        let wide: Vec<_> = jobs.iter().flat_map(|(x, s)| [(x.lanes, x.width - s); 2]).collect();
        self.widened(&wide);
        jobs.iter().map(|(x, s)| Size { width: x.width - s, lanes: x.lanes }).collect()
    }

    fn signs(&mut self, jobs: &[&Size], ask: Ask, later: &[AndShape]) {
        let wide = jobs.iter().filter(|x| x.width > 1);
        let carries: Vec<_> = wide.map(|x| (vec![(x.width - 1, ask)], x.lanes)).collect();
        self.carries(&carries, &[], later);
    }
}

/// The factors, the narrower one first.
fn pair<'a, 'b>(job: &'a Multiply<'b, Costing>) -> (&'a Factor<'b, Costing>, &'a Factor<'b, Costing>) {
    if job.y.x.width < job.x.x.width { (&job.y, &job.x) } else { (&job.x, &job.y) }
}

fn row(table: &megrez_float::blocks::Table, lanes: usize) -> Row<Costing> {
    let ints = table.ints.iter().map(|&width| Size { width, lanes }).collect();
    Row { ints, bits: vec![Lanes(lanes); table.bits] }
}

impl Blocks for Costing {
    local_blocks!();

    fn threads(&self) -> usize {
        self.threads
    }
    fn parts<T: Send>(
        &mut self,
        n: usize,
        part: impl Fn(&mut Self, usize) -> Result<T, Infallible> + Sync,
    ) -> Result<Vec<T>, Infallible> {
        let threads = self.threads.min(n);
        if threads <= 1 {
            return (0..n).map(|i| part(self, i)).collect();
        }
        let mut costs = vec![Cost::default(); threads];
        let one = |i: usize| {
            let mut costing = Self { threads: 1, cost: Cost::default(), ..*self };
            let result = part(&mut costing, i);
            costs[i % threads].pay(costing.cost);
            result
        };
        let results = (0..n).map(one).collect();
        let sum = |of: fn(&Cost) -> [u64; 2]| [0, 1].map(|party| costs.iter().map(|c| of(c)[party]).sum());
        self.cost.pay(Cost {
            bytes: sum(|c| c.bytes),
            chosen: sum(|c| c.chosen),
            rounds: costs.iter().map(|b| b.rounds).max().unwrap_or(0),
        });
        results
    }

    fn and(&mut self, jobs: &[(&Lanes, &Lanes)]) -> Result<Vec<Lanes>, Infallible> {
        let shapes: Vec<_> = jobs.iter().map(|(x, _)| AndShape { lanes: x.0, width: 1 }).collect();
        self.ands(&shapes);
        Ok(jobs.iter().map(|(x, _)| **x).collect())
    }
    fn select(&mut self, jobs: &[Select<'_, Self>]) -> Result<Vec<Row<Self>>, Infallible> {
        let bits = |j: &Select<'_, Self>| j.ints.iter().map(|x| x.width).sum::<u32>() + j.bits.len() as u32;
        let cots: Vec<_> = jobs.iter().map(|j| (j.bit.0, None, bits(j))).collect();
        self.cots(&cots);
        let row = |j: &Select<'_, Self>| Row {
            ints: j.ints.iter().map(|x| **x).collect(),
            bits: j.bits.iter().map(|b| **b).collect(),
        };
        Ok(jobs.iter().map(row).collect())
    }
    fn widen(&mut self, jobs: &[(&Lanes, u32)]) -> Result<Vec<Size>, Infallible> {
        let sizes: Vec<_> = jobs.iter().map(|(b, width)| (b.0, *width)).collect();
        self.widened(&sizes);
        Ok(sizes.into_iter().map(|(lanes, width)| Size { width, lanes }).collect())
    }
    fn negative(&mut self, jobs: &[&Size]) -> Result<Vec<Lanes>, Infallible> {
        self.signs(jobs, Ask::Wrap, &[]);
        Ok(jobs.iter().map(|x| Lanes(x.lanes)).collect())
    }
    fn negative_zero(&mut self, jobs: &[&Size]) -> Result<Vec<(Lanes, Lanes)>, Infallible> {
        let ands: Vec<_> = jobs.iter().map(|x| AndShape { lanes: x.lanes, width: 1 }).collect();
        self.signs(jobs, Ask::Both, &ands);
        self.openings(&ands);
        Ok(jobs.iter().map(|x| (Lanes(x.lanes), Lanes(x.lanes))).collect())
    }
    fn is_zero(&mut self, jobs: &[&Size]) -> Result<Vec<Lanes>, Infallible> {
        let carries: Vec<_> = jobs.iter().map(|x| (vec![(x.width, Ask::Zero)], x.lanes)).collect();
        self.carries(&carries, &[], &[]);
        Ok(jobs.iter().map(|x| Lanes(x.lanes)).collect())
    }
    fn lookup(&mut self, jobs: &[Lookup<'_, Self>]) -> Result<Vec<Row<Self>>, Infallible> {
        let sizes: Vec<_> = jobs.iter().map(|j| (j.table, j.index.lanes)).collect();
        self.pay(lookup::cost(self.transfers, &sizes));
        Ok(jobs.iter().map(|j| row(j.table, j.index.lanes)).collect())
    }
    fn extend(&mut self, jobs: &[Extend<'_, Self>]) -> Result<Vec<Size>, Infallible> {
        let sizes: Vec<_> = jobs.iter().map(|j| (*j.x, j.width, Wrap::of(&j.msb))).collect();
        self.extended(&sizes);
        Ok(jobs.iter().map(|j| Size { width: j.width, lanes: j.x.lanes }).collect())
    }
    fn truncate(&mut self, jobs: &[Truncate<'_, Self>]) -> Result<Vec<Vec<Size>>, Infallible> {
        let sizes = |j: &Truncate<'_, Self>| j.cuts.iter().map(|&c| (c, j.x.width - c)).collect::<Vec<_>>();
        let cuts: Vec<_> = jobs.iter().map(|j| (*j.x, sizes(j))).collect();
        self.fields(&cuts, &[]);
        let done = |(x, cuts): (Size, Vec<(u32, u32)>)| {
            cuts.iter().map(|&(_, width)| Size { width, lanes: x.lanes }).collect()
        };
        Ok(cuts.into_iter().map(done).collect())
    }
    fn sticky(&mut self, jobs: &[(&Size, u32)]) -> Result<Vec<Size>, Infallible> {
        Ok(self.shifted(jobs))
    }
    fn round(&mut self, jobs: &[(&Size, u32)]) -> Result<Vec<Size>, Infallible> {
        Ok(self.shifted(jobs))
    }
    fn multiply(&mut self, jobs: &[Multiply<'_, Self>]) -> Result<Vec<Size>, Infallible> {
        let wide = |j: &Multiply<'_, Self>| {
            let (x, y) = pair(j);
            y.x.width.max(j.width.saturating_sub(x.x.width))
        };
        let extensions: Vec<_> =
            jobs.iter().map(|j| (*pair(j).1.x, wide(j), Wrap::of(&pair(j).1.msb))).collect();
        self.extended(&extensions);
        let mut wraps = vec![];
        let mut cots = vec![];
        for (i, job) in jobs.iter().enumerate() {
            let (x, y) = pair(job);
            let (m, n, l, lanes) = (x.x.width, wide(job), job.width, x.x.lanes);
            let square = std::ptr::eq(x.x, y.x) && x.signed == y.signed && n == m;
            let x_wrap = Wrap::of(&x.msb);
            let y_wrap = match (n > y.x.width, y.signed, Wrap::of(&y.msb)) {
                (false, _, wrap) => wrap,
                (true, false, _) => Wrap::Known,
                (true, true, Wrap::Shared) => Wrap::Unknown,
                (true, true, wrap) => wrap,
            };
            let (from, twice) = if square { (Some(i % 2), 1) } else { (None, 0) };
            cots.extend((0..m).filter(|b| l > b + twice).map(|b| (lanes, from, l - b - twice)));
            if l > m {
                wraps.push((Size { width: m, lanes }, x_wrap));
                if (x_wrap != Wrap::Known || square) && l > m + twice {
                    cots.push((lanes, None, l - m - twice));
                }
            }
            if l > n && !square {
                wraps.push((Size { width: n, lanes }, y_wrap));
                cots.push((lanes, None, l - n));
            }
        }
        self.wraps(&wraps);
        self.cots(&cots);
        Ok(jobs.iter().map(|j| Size { width: j.width, lanes: j.x.x.lanes }).collect())
    }
    fn leading(&mut self, jobs: &[(&Size, u32)]) -> Result<Vec<Leading<Self>>, Infallible> {
        let cuts = |x: &Size| -> Vec<(u32, u32)> { leading::cuts(x.width).collect() };
        let fields: Vec<_> = jobs.iter().map(|(x, _)| (**x, cuts(x))).collect();
        let widths: Vec<_> = jobs.iter().map(|(x, _)| (x.width, x.lanes)).collect();
        let levels = leading::levels(&widths);
        self.fields(&fields, &levels.concat());
        let tables: Vec<_> = (1..=leading::DIGIT).map(leading::table).collect();
        let lookups: Vec<_> = jobs
            .iter()
            .flat_map(|(x, _)| leading::digits(x.width).map(|w| (&tables[w as usize - 1], x.lanes)))
            .collect();
        self.pay(lookup::cost(self.transfers, &lookups));
        levels.iter().for_each(|level| self.openings(level));
        let wide = |(x, width): &(&Size, u32)| {
            let used = 32 - (x.width - 1).leading_zeros();
            let places = (1..=x.width).map(|w| (x.lanes, w));
            places.chain((0..used).map(|b| (x.lanes, width - b))).collect::<Vec<_>>()
        };
        let wide: Vec<_> = jobs.iter().flat_map(wide).collect();
        self.widened(&wide);
        let one = |(x, width): &(&Size, u32)| Leading {
            scale: **x,
            position: Size { width: *width, lanes: x.lanes },
            zero: Lanes(x.lanes),
        };
        Ok(jobs.iter().map(one).collect())
    }
}
