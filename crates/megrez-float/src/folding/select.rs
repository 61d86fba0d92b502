//! Selections, of which what is known is not sent.

use super::jobs::is_zero;
use crate::any::Mixed::{Known, Secret};
use crate::any::{AnyBlocks, Bit, Failure, Handle, Int, Object};
use crate::blocks::{Blocks, Row, Select};
use crate::clear::Bits;
use std::borrow::Cow;

/// What is selected of one job, and which it is.
struct Asked<'a> {
    at: usize,
    bit: Cow<'a, Handle>,
    ints: Vec<Cow<'a, Handle>>,
    bits: Vec<&'a Handle>,
}

impl AnyBlocks {
    /// As [`Blocks::select`]: with known integers only, the bits are widened instead.
    pub(super) fn rows(&mut self, jobs: &[Select<'_, Self>]) -> Result<Vec<Row<Self>>, Failure> {
        // Under a secret bit; elsewhere, and where a known integer is zero, all is local.
        let under = |job: &Select<'_, Self>| matches!(job.bit, Secret(_));
        let is_secret = |job: &Select<'_, Self>| {
            let ints = job.ints.iter().any(|x| matches!(x, Secret(_)));
            ints || job.bits.iter().any(|c| matches!(c, Secret(_)))
        };
        let picks = jobs.iter().any(|job| under(job) && is_secret(job));
        let mut rows: Vec<Row<Self>> = vec![];
        let mut asked: Vec<Asked<'_>> = vec![];
        for (at, job) in jobs.iter().enumerate() {
            let ints: Vec<&Int> = job.ints.iter().copied().filter(|x| under(job) && !is_zero(x)).collect();
            let bits = job.bits.iter().filter_map(|c| if let Secret(c) = c { Some(c) } else { None });
            let bits: Vec<&Handle> = bits.filter(|_| under(job)).collect();
            if !ints.is_empty() || !bits.is_empty() {
                let ints = ints.into_iter().map(|x| self.lower_ints(x)).collect();
                asked.push(Asked { at, bit: self.lower_bits(job.bit), ints, bits });
            }
            let int = |x: &&Int| match job.bit {
                Known(Bits(b)) => self.weigh(x, b),
                // Taken from `asked` below, but for zeros.
                Secret(_) => (*x).clone(),
            };
            let bit = |c: &&Bit| match (job.bit, c) {
                (Known(b), c) => self.kept(c, b),
                (b, Known(c)) => self.kept(b, c),
                _ => (*c).clone(),
            };
            rows.push(Row {
                ints: job.ints.iter().map(int).collect(),
                bits: job.bits.iter().map(bit).collect(),
            });
        }
        if asked.is_empty() {
            return Ok(rows);
        }
        let mut found: Vec<(Vec<Handle>, Vec<Handle>)> = vec![];
        if picks {
            let jobs: Vec<Select<'_, Object>> = asked
                .iter()
                .map(|a| Select {
                    bit: &*a.bit,
                    ints: a.ints.iter().map(|x| &**x).collect(),
                    bits: a.bits.clone(),
                })
                .collect();
            found.extend(self.0.select(&jobs)?.into_iter().map(|row| (row.ints, row.bits)));
        } else {
            let widest = |ints: &[Cow<'_, Handle>]| ints.iter().map(|x| self.0.width(x)).max().unwrap_or(1);
            let wide: Vec<(&Handle, u32)> = asked.iter().map(|a| (&*a.bit, widest(&a.ints))).collect();
            let wide = self.0.widen(&wide)?;
            for (asked, wide) in asked.iter().zip(wide) {
                let known = jobs[asked.at].ints.iter().filter(|x| !is_zero(x));
                let weighed = known.map(|x| {
                    let Known(k) = x else { unreachable!("nothing secret is chosen") };
                    self.0.weigh(&self.0.low(&wide, k.width), &k.v)
                });
                found.push((weighed.collect(), vec![]));
            }
        }
        for (asked, (ints, bits)) in asked.iter().zip(found) {
            let (job, row) = (&jobs[asked.at], &mut rows[asked.at]);
            let places = job.ints.iter().zip(&mut row.ints).filter(|(x, _)| !is_zero(x));
            places.zip(ints).for_each(|((_, place), x)| *place = Secret(x));
            let places = job.bits.iter().zip(&mut row.bits).filter(|(c, _)| matches!(c, Secret(_)));
            places.zip(bits).for_each(|((_, place), c)| *place = Secret(c));
        }
        Ok(rows)
    }
}
