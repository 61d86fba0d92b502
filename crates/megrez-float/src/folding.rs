//! Blocks that compute by themselves what everybody knows: constants of a program, and whatever
//! follows from them.
//!
//! A vector is known or secret as a whole. What known vectors alone give is computed in the clear.
//! Of a known and a secret one a sum is local as ever, and so are, beyond that:
//!
//! | block | with a known operand |
//! | --- | --- |
//! | AND, selection by a known bit | local |
//! | selection of known integers | the bit, widened once; with secret ones in the same call, as ever |
//! | product | the secret factor, extended; local where it has the product's bits already |
//! | the others | have one operand |
//!
//! So every program costs less where an operand is public, none needs a form for it, and results
//! are those of the blocks below, bit for bit. Nothing is sent but by these.

mod jobs;
mod select;

use crate::any::Mixed::{Known, Secret};
use crate::any::{AnyBlocks, Bit, Failure, Handle, Int, Mixed, Object};
use crate::blocks::{Blocks, Extend, Factor, Leading, Lookup, Msb, Multiply, Row, Select, Tally, Truncate};
use crate::clear::{Bits, Clear, Ints};
use bytemuck::TransparentWrapper;
use jobs::Step::{Done, Left};
use jobs::{Hint, Side, Weighted, ints, run, secrets, sure, with_places, words};
use std::borrow::Cow;

impl AnyBlocks {
    /// Integers as the blocks below have them.
    pub fn lower_ints<'a>(&self, x: &'a Int) -> Cow<'a, Handle> {
        match x {
            Secret(x) => Cow::Borrowed(x),
            Known(v) => Cow::Owned(self.0.public(v.width, &v.v)),
        }
    }

    /// Bits as the blocks below have them.
    pub fn lower_bits<'a>(&self, x: &'a Bit) -> Cow<'a, Handle> {
        match x {
            Secret(x) => Cow::Borrowed(x),
            Known(Bits(v)) => Cow::Owned(self.0.public_bits(&v.iter().map(|&b| b == 1).collect::<Vec<_>>())),
        }
    }

    /// a ∧ k for known bits k; local.
    fn kept(&self, a: &Bit, k: &Bits) -> Bit {
        match a {
            Known(a) => Known(sure(Clear.and(&[(a, k)]))),
            _ if k.0.iter().all(|&k| k == 0) => Known(k.clone()),
            _ if k.0.iter().all(|&k| k == 1) => a.clone(),
            Secret(a) => Secret(self.0.parity(&self.0.weigh(&self.0.narrow(a), &k.0))),
        }
    }

    fn hint<'a>(&self, msb: &Msb<'a, Self>) -> Hint<'a> {
        match msb {
            Msb::Unknown => Hint::Unknown,
            Msb::Zero => Hint::Zero,
            Msb::One => Hint::One,
            Msb::Shared(Known(Bits(v))) if v.iter().all(|&b| b == 0) => Hint::Zero,
            Msb::Shared(Known(Bits(v))) if v.iter().all(|&b| b == 1) => Hint::One,
            Msb::Shared(bit) => Hint::Shared(self.lower_bits(bit)),
        }
    }

    /// A product with a known factor.
    fn weighted<'a>(&self, f: &Factor<'a, Self>, x: &'a Handle, mut k: Vec<u64>, width: u32) -> Weighted<'a> {
        // A product has its lowest bits from what all factors have in common.
        let shift = k.iter().fold(0, |any, v| any | v).trailing_zeros().min(width - 1);
        k.iter_mut().for_each(|v| *v >>= shift);
        Weighted { side: self.side(f, x), width: width - shift, k, shift }
    }

    /// A secret factor.
    fn side<'a>(&self, f: &Factor<'a, Self>, x: &'a Handle) -> Side<'a> {
        Side { x, signed: f.signed, msb: self.hint(&f.msb) }
    }
}

impl Blocks for AnyBlocks {
    type Int = Mixed<Handle, Ints>;
    type Bit = Mixed<Handle, Bits>;
    type Error = Failure;

    fn threads(&self) -> usize {
        self.0.threads()
    }
    fn parts<T: Send>(
        &mut self,
        n: usize,
        part: impl Fn(&mut Self, usize) -> Result<T, Failure> + Sync,
    ) -> Result<Vec<T>, Failure> {
        Blocks::parts(&mut self.0, n, |b, i| part(Self::wrap_mut(b), i))
    }

    fn lanes(&self, x: &Int) -> usize {
        match x {
            Known(x) => x.v.len(),
            Secret(x) => self.0.lanes(x),
        }
    }
    fn bit_lanes(&self, x: &Bit) -> usize {
        match x {
            Known(x) => x.0.len(),
            Secret(x) => self.0.bit_lanes(x),
        }
    }
    fn width(&self, x: &Int) -> u32 {
        match x {
            Known(x) => x.width,
            Secret(x) => self.0.width(x),
        }
    }
    fn public(&self, width: u32, v: &[u64]) -> Int {
        Known(Clear.public(width, v))
    }
    fn public_bits(&self, v: &[bool]) -> Bit {
        Known(Clear.public_bits(v))
    }
    fn add(&self, x: &Int, y: &Int) -> Int {
        match (x, y) {
            (Known(x), Known(y)) => Known(Clear.add(x, y)),
            _ => Secret(self.0.add(&self.lower_ints(x), &self.lower_ints(y))),
        }
    }
    fn sub(&self, x: &Int, y: &Int) -> Int {
        match (x, y) {
            (Known(x), Known(y)) => Known(Clear.sub(x, y)),
            _ => Secret(self.0.sub(&self.lower_ints(x), &self.lower_ints(y))),
        }
    }
    fn scale(&self, x: &Int, k: u64) -> Int {
        match x {
            Known(x) => Known(Clear.scale(x, k)),
            Secret(x) => Secret(self.0.scale(x, k)),
        }
    }
    fn weigh(&self, x: &Int, k: &[u64]) -> Int {
        match x {
            Known(x) => Known(Clear.weigh(x, k)),
            Secret(x) => Secret(self.0.weigh(x, k)),
        }
    }
    fn offset(&self, x: &Int, k: u64) -> Int {
        match x {
            Known(x) => Known(Clear.offset(x, k)),
            Secret(x) => Secret(self.0.offset(x, k)),
        }
    }
    fn shift(&self, x: &Int, s: u32) -> Int {
        match x {
            Known(x) => Known(Clear.shift(x, s)),
            Secret(x) => Secret(self.0.shift(x, s)),
        }
    }
    fn low(&self, x: &Int, width: u32) -> Int {
        match x {
            Known(x) => Known(Clear.low(x, width)),
            Secret(x) => Secret(self.0.low(x, width)),
        }
    }
    fn parity(&self, x: &Int) -> Bit {
        match x {
            Known(x) => Known(Clear.parity(x)),
            Secret(x) => Secret(self.0.parity(x)),
        }
    }
    fn narrow(&self, b: &Bit) -> Int {
        match b {
            Known(b) => Known(Clear.narrow(b)),
            Secret(b) => Secret(self.0.narrow(b)),
        }
    }
    fn xor(&self, a: &Bit, b: &Bit) -> Bit {
        match (a, b) {
            (Known(a), Known(b)) => Known(Clear.xor(a, b)),
            _ => Secret(self.0.xor(&self.lower_bits(a), &self.lower_bits(b))),
        }
    }
    fn not(&self, a: &Bit) -> Bit {
        match a {
            Known(a) => Known(Clear.not(a)),
            Secret(a) => Secret(self.0.not(a)),
        }
    }
    fn gather(&self, x: &Int, lanes: &[usize]) -> Int {
        match x {
            Known(x) => Known(Clear.gather(x, lanes)),
            Secret(x) => Secret(self.0.gather(x, lanes)),
        }
    }
    fn gather_bits(&self, b: &Bit, lanes: &[usize]) -> Bit {
        match b {
            Known(b) => Known(Clear.gather_bits(b, lanes)),
            Secret(b) => Secret(self.0.gather_bits(b, lanes)),
        }
    }
    fn concat(&self, x: &[&Int]) -> Int {
        let known = x.iter().map(|x| if let Known(x) = x { Some(x) } else { None });
        if let Some(all) = known.collect::<Option<Vec<_>>>() {
            return Known(Clear.concat(&all));
        }
        let all: Vec<_> = x.iter().map(|x| self.lower_ints(x)).collect();
        Secret(self.0.concat(&all.iter().map(|x| &**x).collect::<Vec<_>>()))
    }
    fn concat_bits(&self, b: &[&Bit]) -> Bit {
        let known = b.iter().map(|b| if let Known(b) = b { Some(b) } else { None });
        if let Some(all) = known.collect::<Option<Vec<_>>>() {
            return Known(Clear.concat_bits(&all));
        }
        let all: Vec<_> = b.iter().map(|b| self.lower_bits(b)).collect();
        Secret(self.0.concat_bits(&all.iter().map(|b| &**b).collect::<Vec<_>>()))
    }

    fn known<'a>(&self, x: &'a Int) -> Option<&'a [u64]> {
        if let Known(x) = x { Some(&x.v) } else { None }
    }
    fn known_bits<'a>(&self, b: &'a Bit) -> Option<&'a [u64]> {
        if let Known(Bits(b)) = b { Some(b) } else { None }
    }

    fn and(&mut self, jobs: &[(&Bit, &Bit)]) -> Result<Vec<Bit>, Failure> {
        let mut steps = vec![];
        for &(x, y) in jobs {
            steps.push(match (x, y) {
                (Known(k), other) | (other, Known(k)) => Done(self.kept(other, k)),
                (Secret(x), Secret(y)) => Left((x, y)),
            });
        }
        run(steps, |jobs| Ok(secrets(self.0.and(jobs)?)))
    }
    fn select(&mut self, jobs: &[Select<'_, Self>]) -> Result<Vec<Row<Self>>, Failure> {
        self.rows(jobs)
    }
    fn widen(&mut self, jobs: &[(&Bit, u32)]) -> Result<Vec<Int>, Failure> {
        let mut steps = vec![];
        for &(bit, width) in jobs {
            steps.push(match bit {
                Known(k) => Done(Known(sure(Clear.widen(&[(k, width)])))),
                Secret(bit) => Left((bit, width)),
            });
        }
        run(steps, |jobs| Ok(secrets(self.0.widen(jobs)?)))
    }
    fn tally(&mut self, jobs: &[Tally<'_, Self>]) -> Result<Vec<Int>, Failure> {
        let (mut steps, mut public) = (vec![], vec![]);
        for Tally { terms, width } in jobs {
            let (mut known, mut secret) = (vec![], vec![]);
            for &(bit, k) in terms {
                match bit {
                    Known(bit) => known.push((bit, k)),
                    Secret(bit) => secret.push((bit, k)),
                }
            }
            let known = Tally { terms: known, width: *width };
            let sum = (!known.terms.is_empty()).then(|| sure(Clear.tally(&[known])));
            if secret.is_empty() {
                steps.push(Done(Known(sum.expect("a sum has a term"))));
            } else {
                steps.push(Left(Tally::<Object> { terms: secret, width: *width }));
                public.push(sum);
            }
        }
        run(steps, |jobs| {
            let secret = self.0.tally(jobs)?.into_iter().zip(public);
            let with = |(x, sum): (Handle, Option<Ints>)| match sum {
                Some(sum) => self.0.add(&x, &self.0.public(sum.width, &sum.v)),
                None => x,
            };
            Ok(secrets(secret.map(with).collect()))
        })
    }
    fn negative(&mut self, jobs: &[&Int]) -> Result<Vec<Bit>, Failure> {
        run(ints(jobs, |x| Known(sure(Clear.negative(&[x])))), |left| Ok(secrets(self.0.negative(left)?)))
    }
    fn negative_zero(&mut self, jobs: &[&Int]) -> Result<Vec<(Bit, Bit)>, Failure> {
        let clear = |x: &Ints| {
            let (negative, zero) = sure(Clear.negative_zero(&[x]));
            (Known(negative), Known(zero))
        };
        run(ints(jobs, clear), |left| {
            let tests = self.0.negative_zero(left)?;
            Ok(tests.into_iter().map(|(negative, zero)| (Secret(negative), Secret(zero))).collect())
        })
    }
    fn is_zero(&mut self, jobs: &[&Int]) -> Result<Vec<Bit>, Failure> {
        run(ints(jobs, |x| Known(sure(Clear.is_zero(&[x])))), |left| Ok(secrets(self.0.is_zero(left)?)))
    }
    fn lookup(&mut self, jobs: &[Lookup<'_, Self>]) -> Result<Vec<Row<Self>>, Failure> {
        let mut steps = vec![];
        for &Lookup { index, table } in jobs {
            steps.push(match index {
                Known(index) => {
                    let row = sure(Clear.lookup(&[Lookup { index, table }]));
                    let (ints, bits) = (row.ints.into_iter(), row.bits.into_iter());
                    Done(Row { ints: ints.map(Known).collect(), bits: bits.map(Known).collect() })
                }
                Secret(index) => Left(Lookup::<Object> { index, table }),
            });
        }
        run(steps, |jobs| {
            let row = |row: Row<Object>| Row { ints: secrets(row.ints), bits: secrets(row.bits) };
            Ok(self.0.lookup(jobs)?.into_iter().map(row).collect())
        })
    }
    fn extend(&mut self, jobs: &[Extend<'_, Self>]) -> Result<Vec<Int>, Failure> {
        let mut steps = vec![];
        for job in jobs {
            let Extend { x, width, signed, msb } = job;
            let (width, signed) = (*width, *signed);
            steps.push(match x {
                Known(x) => {
                    Done(Known(sure(Clear.extend(&[Extend { x, width, signed, msb: Msb::Unknown }]))))
                }
                Secret(x) => Left((Side { x, signed, msb: self.hint(msb) }, width)),
            });
        }
        run(steps, |left| {
            let jobs: Vec<Extend<'_, Object>> =
                left.iter().map(|(side, width)| side.extend(*width)).collect();
            Ok(secrets(self.0.extend(&jobs)?))
        })
    }
    fn truncate(&mut self, jobs: &[Truncate<'_, Self>]) -> Result<Vec<Vec<Int>>, Failure> {
        let mut steps = vec![];
        for &Truncate { x, cuts } in jobs {
            steps.push(match x {
                Known(x) => {
                    let fields = sure(Clear.truncate(&[Truncate { x, cuts }]));
                    Done(fields.into_iter().map(Known).collect())
                }
                Secret(x) => Left(Truncate::<Object> { x, cuts }),
            });
        }
        run(steps, |left| Ok(self.0.truncate(left)?.into_iter().map(secrets).collect()))
    }
    fn sticky(&mut self, jobs: &[(&Int, u32)]) -> Result<Vec<Int>, Failure> {
        let steps = with_places(jobs, |x, s| Known(sure(Clear.sticky(&[(x, s)]))));
        run(steps, |left| Ok(secrets(self.0.sticky(left)?)))
    }
    fn multiply(&mut self, jobs: &[Multiply<'_, Self>]) -> Result<Vec<Int>, Failure> {
        let mut steps = vec![];
        for job in jobs {
            let width = job.width;
            assert!(
                width >= self.width(job.x.x).max(self.width(job.y.x)),
                "a product narrower than a factor"
            );
            steps.push(match (job.x.x, job.y.x) {
                (Known(x), Known(y)) => {
                    let pairs = words(&job.x, x).into_iter().zip(words(&job.y, y));
                    let v: Vec<u64> = pairs.map(|(x, y)| x.wrapping_mul(y)).collect();
                    Done(Known(Clear.public(width, &v)))
                }
                (Secret(x), Known(k)) => Left(Err(self.weighted(&job.x, x, words(&job.y, k), width))),
                (Known(k), Secret(y)) => Left(Err(self.weighted(&job.y, y, words(&job.x, k), width))),
                (Secret(x), Secret(y)) => Left(Ok((self.side(&job.x, x), self.side(&job.y, y), width))),
            });
        }
        run(steps, |left| {
            let both = left.iter().filter_map(|job| job.as_ref().ok());
            let both: Vec<Multiply<'_, Object>> =
                both.map(|(x, y, width)| Multiply { x: x.factor(), y: y.factor(), width: *width }).collect();
            let wide = left.iter().filter_map(|job| job.as_ref().err());
            let wide: Vec<Extend<'_, Object>> =
                wide.filter(|w| w.width > self.0.width(w.side.x)).map(|w| w.side.extend(w.width)).collect();
            let mut both = if both.is_empty() { vec![] } else { self.0.multiply(&both)? }.into_iter();
            let mut wide = if wide.is_empty() { vec![] } else { self.0.extend(&wide)? }.into_iter();
            let mut one = |job: &Result<(Side<'_>, Side<'_>, u32), Weighted<'_>>| match job {
                Ok(_) => both.next().expect("one for each product"),
                Err(w) => {
                    let x = match w.width > self.0.width(w.side.x) {
                        true => wide.next().expect("one for each extension"),
                        false => self.0.low(w.side.x, w.width),
                    };
                    self.0.shift(&self.0.weigh(&x, &w.k), w.shift)
                }
            };
            Ok(left.iter().map(|job| Secret(one(job))).collect())
        })
    }
    fn leading(&mut self, jobs: &[(&Int, u32)]) -> Result<Vec<Leading<Self>>, Failure> {
        let steps = with_places(jobs, |x, width| {
            let Leading { scale, position, zero } = sure(Clear.leading(&[(x, width)]));
            Leading { scale: Known(scale), position: Known(position), zero: Known(zero) }
        });
        run(steps, |left| {
            let one = |Leading { scale, position, zero }: Leading<Object>| Leading {
                scale: Secret(scale),
                position: Secret(position),
                zero: Secret(zero),
            };
            Ok(self.0.leading(left)?.into_iter().map(one).collect())
        })
    }
    fn round(&mut self, jobs: &[(&Int, u32)]) -> Result<Vec<Int>, Failure> {
        let steps = with_places(jobs, |x, r| Known(sure(Clear.round(&[(x, r)]))));
        run(steps, |left| Ok(secrets(self.0.round(left)?)))
    }
}
