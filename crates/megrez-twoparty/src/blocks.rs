//! [`Blocks`] for two parties.
//!
//! Security: `docs/security/secfloat.md`.

use crate::compare::{Ask, Carry};
use crate::link::Sirnn;
use crate::share::{Bits, Ints};
use crate::triple::{AndShape, Bundle, Triple};
use megrez_float::blocks::{Blocks, Extend, Leading, Lookup, Multiply, Row, Select, Truncate, mask};
use megrez_kernels::Device;
use megrez_session::Error;

impl<D: Device> Sirnn<D> {
    /// For each (cut, width) of each integer the `width` bits above the cut, and triples that are
    /// wanted `later`.
    pub(crate) fn fields(
        &mut self,
        jobs: &[(&Ints, Vec<(u32, u32)>)],
        later: &[AndShape],
    ) -> Result<(Vec<Vec<Ints>>, Vec<Triple>), Error> {
        let carries: Vec<Carry<'_>> = jobs
            .iter()
            .map(|(x, cuts)| Carry { v: &x.v, cuts: cuts.iter().map(|&(c, _)| (c, Ask::Wrap)).collect() })
            .collect();
        let (answers, _, triples) = self.carries(&carries, &[], later)?;
        let wraps: Vec<Bits> = answers.into_iter().flatten().map(|a| a.wrap.expect("asked for")).collect();
        let widths = jobs.iter().flat_map(|(_, cuts)| cuts.iter().map(|c| c.1));
        let asked: Vec<(&Bits, u32)> = wraps.iter().zip(widths).collect();
        let mut carries = self.widen_bits(&asked)?.into_iter();
        let fields = |(x, cuts): &(&Ints, Vec<(u32, u32)>)| {
            let field = |&(cut, width): &(u32, u32)| {
                let carry = carries.next().expect("one for each cut");
                x.map(width, |v| v >> cut).zip(&carry, u64::wrapping_add)
            };
            cuts.iter().map(field).collect()
        };
        Ok((jobs.iter().map(fields).collect(), triples))
    }

    /// ⌊x / 2^s⌋ plus or minus one bit that depends on its lowest bit and on whether the bits below
    /// s are zero: at `tie` the bit is taken off where the result is odd and they are, otherwise it
    /// is added where the result is even and they are not.
    fn shifted(&mut self, jobs: &[(&Ints, u32)], tie: bool) -> Result<Vec<Ints>, Error> {
        let carries: Vec<Carry<'_>> =
            jobs.iter().map(|&(x, s)| Carry { v: &x.v, cuts: vec![(s, Ask::Both)] }).collect();
        let later: Vec<AndShape> =
            jobs.iter().map(|(x, _)| AndShape { lanes: x.v.len(), width: 1 }).collect();
        let (answers, _, triples) = self.carries(&carries, &[], &later)?;
        let answers: Vec<(Bits, Bits)> = answers
            .into_iter()
            .flatten()
            .map(|a| (a.wrap.expect("asked for"), a.zero.expect("asked for")))
            .collect();
        let flip = !tie && self.me() == 0;
        let factors: Vec<(Bits, Bits)> = jobs
            .iter()
            .zip(&answers)
            .map(|(&(x, s), (wrap, zero))| (x.bit(s).xor(wrap).flip(flip), zero.flip(flip)))
            .collect();
        let bundles: Vec<Bundle<'_>> = factors.iter().map(|(x, y)| Bundle { x, y: vec![y] }).collect();
        let changed: Vec<Bits> = self.and_with(&bundles, triples)?.into_iter().flatten().collect();
        let mut asked = vec![];
        for ((&(x, s), (wrap, _)), changed) in jobs.iter().zip(&answers).zip(&changed) {
            asked.extend([(wrap, x.width - s), (changed, x.width - s)]);
        }
        let wide = self.widen_bits(&asked)?;
        let one = |(&(x, s), wide): (&(&Ints, u32), &[Ints])| {
            let quotient = x.map(x.width - s, |v| v >> s).zip(&wide[0], u64::wrapping_add);
            quotient.zip(&wide[1], if tie { u64::wrapping_sub } else { u64::wrapping_add })
        };
        Ok(jobs.iter().zip(wide.chunks(2)).map(one).collect())
    }

    /// Top bits, and whether the other bits are zero where that is asked; and triples that are
    /// wanted `later`.
    #[allow(clippy::type_complexity)]
    fn signs(
        &mut self,
        jobs: &[&Ints],
        ask: Ask,
        later: &[AndShape],
    ) -> Result<(Vec<(Bits, Option<Bits>)>, Vec<Triple>), Error> {
        // One bit has nothing below it.
        let below = |x: &Ints| (x.width > 1).then(|| vec![(x.width - 1, ask)]);
        let carries: Vec<Carry<'_>> =
            jobs.iter().filter_map(|x| Some(Carry { v: &x.v, cuts: below(x)? })).collect();
        let (answers, _, triples) = self.carries(&carries, &[], later)?;
        let mut answers = answers.into_iter().flatten();
        let first = self.me() == 0;
        let one = |x: &&Ints| {
            let top = x.bit(x.width - 1);
            if x.width == 1 {
                return (top.clone(), Some(Bits::pack(top.n, |_| u64::from(first))));
            }
            let answer = answers.next().expect("one for each");
            (top.xor(&answer.wrap.expect("asked for")), answer.zero)
        };
        Ok((jobs.iter().map(one).collect(), triples))
    }
}

impl<D: Device> Blocks for Sirnn<D> {
    type Int = Ints;
    type Bit = Bits;
    type Error = Error;

    fn threads(&self) -> usize {
        self.thread_count()
    }
    fn parts<T: Send>(
        &mut self,
        n: usize,
        part: impl Fn(&mut Self, usize) -> Result<T, Error> + Sync,
    ) -> Result<Vec<T>, Error> {
        self.in_threads(n, part)
    }

    fn lanes(&self, x: &Ints) -> usize {
        x.v.len()
    }
    fn bit_lanes(&self, x: &Bits) -> usize {
        x.n
    }
    fn width(&self, x: &Ints) -> u32 {
        x.width
    }
    fn public(&self, width: u32, v: &[u64]) -> Ints {
        let keep = if self.me() == 0 { mask(width) } else { 0 };
        Ints { width, v: v.iter().map(|x| x & keep).collect() }
    }
    fn public_bits(&self, v: &[bool]) -> Bits {
        Bits::pack(v.len(), |i| u64::from(v[i] && self.me() == 0))
    }
    fn add(&self, x: &Ints, y: &Ints) -> Ints {
        x.zip(y, u64::wrapping_add)
    }
    fn sub(&self, x: &Ints, y: &Ints) -> Ints {
        x.zip(y, u64::wrapping_sub)
    }
    fn scale(&self, x: &Ints, k: u64) -> Ints {
        x.map(x.width, |v| v.wrapping_mul(k))
    }
    fn weigh(&self, x: &Ints, k: &[u64]) -> Ints {
        assert_eq!(x.v.len(), k.len(), "lanes differ");
        Ints::new(x.width, x.v.iter().zip(k).map(|(v, k)| v.wrapping_mul(*k)).collect())
    }
    fn offset(&self, x: &Ints, k: u64) -> Ints {
        if self.me() == 0 { x.map(x.width, |v| v.wrapping_add(k)) } else { x.clone() }
    }
    fn shift(&self, x: &Ints, s: u32) -> Ints {
        assert!(x.width + s <= 64, "shifted out of 64 bits");
        x.map(x.width + s, |v| v << s)
    }
    fn low(&self, x: &Ints, width: u32) -> Ints {
        assert!(width <= x.width, "low bits of a narrower integer");
        x.map(width, |v| v)
    }
    fn parity(&self, x: &Ints) -> Bits {
        x.bit(0)
    }
    fn narrow(&self, b: &Bits) -> Ints {
        b.narrow()
    }
    fn xor(&self, a: &Bits, b: &Bits) -> Bits {
        a.xor(b)
    }
    fn not(&self, a: &Bits) -> Bits {
        a.flip(self.me() == 0)
    }
    fn gather(&self, x: &Ints, lanes: &[usize]) -> Ints {
        Ints { width: x.width, v: lanes.iter().map(|&i| x.v[i]).collect() }
    }
    fn gather_bits(&self, b: &Bits, lanes: &[usize]) -> Bits {
        Bits::pack(lanes.len(), |i| b.get(lanes[i]))
    }
    fn concat(&self, x: &[&Ints]) -> Ints {
        assert!(x.iter().all(|y| y.width == x[0].width), "widths differ");
        Ints { width: x[0].width, v: x.iter().flat_map(|y| y.v.iter().copied()).collect() }
    }
    fn concat_bits(&self, b: &[&Bits]) -> Bits {
        let mut w = vec![];
        let mut n = 0;
        for part in b {
            megrez_ring::bits::append(&mut w, n, &part.w, part.n);
            n += part.n;
        }
        Bits { n, w }
    }

    fn and(&mut self, jobs: &[(&Bits, &Bits)]) -> Result<Vec<Bits>, Error> {
        let bundles: Vec<Bundle<'_>> = jobs.iter().map(|&(x, y)| Bundle { x, y: vec![y] }).collect();
        Ok(self.and_bundles(&bundles)?.into_iter().flatten().collect())
    }
    fn select(&mut self, jobs: &[Select<'_, Self>]) -> Result<Vec<Row<Self>>, Error> {
        self.select_words(jobs)
    }
    fn widen(&mut self, jobs: &[(&Bits, u32)]) -> Result<Vec<Ints>, Error> {
        self.widen_bits(jobs)
    }
    fn negative(&mut self, jobs: &[&Ints]) -> Result<Vec<Bits>, Error> {
        Ok(self.signs(jobs, Ask::Wrap, &[])?.0.into_iter().map(|s| s.0).collect())
    }
    fn negative_zero(&mut self, jobs: &[&Ints]) -> Result<Vec<(Bits, Bits)>, Error> {
        let later: Vec<AndShape> = jobs.iter().map(|x| AndShape { lanes: x.v.len(), width: 1 }).collect();
        let (signs, triples) = self.signs(jobs, Ask::Both, &later)?;
        let first = self.me() == 0;
        let pairs: Vec<(Bits, Bits)> =
            signs.into_iter().map(|(negative, zero)| (negative, zero.expect("asked for"))).collect();
        let rest: Vec<Bits> = pairs.iter().map(|(negative, _)| negative.flip(first)).collect();
        let bundles: Vec<Bundle<'_>> =
            rest.iter().zip(&pairs).map(|(x, (_, zero))| Bundle { x, y: vec![zero] }).collect();
        let zeros = self.and_with(&bundles, triples)?;
        Ok(pairs.into_iter().map(|p| p.0).zip(zeros.into_iter().flatten()).collect())
    }
    fn is_zero(&mut self, jobs: &[&Ints]) -> Result<Vec<Bits>, Error> {
        let carries: Vec<Carry<'_>> =
            jobs.iter().map(|x| Carry { v: &x.v, cuts: vec![(x.width, Ask::Zero)] }).collect();
        let (answers, ..) = self.carries(&carries, &[], &[])?;
        Ok(answers.into_iter().flatten().map(|a| a.zero.expect("asked for")).collect())
    }
    fn lookup(&mut self, jobs: &[Lookup<'_, Self>]) -> Result<Vec<Row<Self>>, Error> {
        self.rows(jobs)
    }
    fn extend(&mut self, jobs: &[Extend<'_, Self>]) -> Result<Vec<Ints>, Error> {
        self.extend_ints(jobs)
    }
    fn truncate(&mut self, jobs: &[Truncate<'_, Self>]) -> Result<Vec<Vec<Ints>>, Error> {
        let cuts = |j: &Truncate<'_, Self>| j.cuts.iter().map(|&c| (c, j.x.width - c)).collect();
        let jobs: Vec<_> = jobs.iter().map(|j| (j.x, cuts(j))).collect();
        Ok(self.fields(&jobs, &[])?.0)
    }
    fn sticky(&mut self, jobs: &[(&Ints, u32)]) -> Result<Vec<Ints>, Error> {
        self.shifted(jobs, false)
    }
    fn multiply(&mut self, jobs: &[Multiply<'_, Self>]) -> Result<Vec<Ints>, Error> {
        self.products(jobs)
    }
    fn leading(&mut self, jobs: &[(&Ints, u32)]) -> Result<Vec<Leading<Self>>, Error> {
        self.leading_of(jobs)
    }
    fn round(&mut self, jobs: &[(&Ints, u32)]) -> Result<Vec<Ints>, Error> {
        // Half is added; where that leaves nothing below, it was a tie and an odd result is one too
        // high.
        let halves: Vec<Ints> = jobs.iter().map(|&(x, r)| self.offset(x, 1 << (r - 1))).collect();
        let jobs: Vec<(&Ints, u32)> = halves.iter().zip(jobs).map(|(x, &(_, r))| (x, r)).collect();
        self.shifted(&jobs, true)
    }
}
