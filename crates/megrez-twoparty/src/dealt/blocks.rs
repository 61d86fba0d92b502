//! [`Blocks`] between two workers and a dealer.
//!
//! Security: `docs/security/float-dealer.md`.

use super::form::{BitForms, Form, Polynomials};
use super::joins::Cut;
use super::link::{Dealt, Size};
use super::share::{Bits, Ints};
use megrez_float::blocks::{Blocks, Extend, Leading, Lookup, Multiply, Row, Select, Tally, Truncate, mask};
use megrez_kernels::Device;
use megrez_ring::bits;
use megrez_session::Error;

/// Bits of a one-hot digit that `round` takes whole.
pub(super) const ROUNDED: u32 = 5;

/// 1 − 2v: −1 for a public bit that is set.
fn sign(v: &Bits, lane: usize) -> u64 {
    1u64.wrapping_sub(2 * bits::get(&v.m, lane))
}

/// Low bits that a bit times `k` never has: they need no share of the bit's mask.
pub(super) fn tally_shift(k: u64, width: u32) -> u32 {
    k.trailing_zeros().min(width - 1)
}

/// Adds factor·2^shift times a bit.
fn with_bit(form: Form, shift: u32, bit: &Bits, factor: u64) -> Form {
    let form = form.public(|i| (bits::get(&bit.m, i) << shift).wrapping_mul(factor));
    form.term(shift, |i| sign(bit, i).wrapping_mul(factor), |i| bits::get(&bit.r, i))
}

/// 2^shift times ⌊x / 2^cut⌋, of which `borrow` is known.
fn quotient(form: Form, shift: u32, x: &Ints, cut: u32, borrow: &Bits) -> Form {
    let form = form.public(|i| x.m[i] >> cut << shift);
    with_bit(form.term(shift, |_| u64::MAX, |i| x.r[i] >> cut), shift, borrow, u64::MAX)
}

impl<D: Device> Dealt<D> {
    /// Public integers in so many lanes; asked for at workers.
    pub(super) fn known(&self, width: u32, lanes: usize, v: impl Fn(usize) -> u64) -> Ints {
        let zeros = vec![0; lanes];
        if self.deals() {
            return Ints { width, m: vec![], r: zeros.clone(), first: zeros };
        }
        Ints { width, m: (0..lanes).map(|i| v(i) & mask(width)).collect(), r: zeros, first: vec![] }
    }

    /// Public bits in so many lanes; asked for at workers.
    pub(super) fn known_bits(&self, n: usize, v: impl Fn(usize) -> u64) -> Bits {
        let zeros = vec![0; bits::words(n)];
        if self.deals() {
            return Bits { n, m: vec![], r: zeros.clone(), first: zeros };
        }
        Bits { n, m: bits::pack(n, v), r: zeros, first: vec![] }
    }

    /// fixed + Σ 2^i·bit.
    pub(super) fn weighted(&self, width: u32, lanes: usize, fixed: u64, of: &[(u32, &Bits)]) -> Form {
        let form = self.form(width, lanes).public(|_| fixed);
        of.iter().fold(form, |form, (shift, bit)| with_bit(form, *shift, bit, 1))
    }

    /// Answers to one cut of each integer.
    fn cut_each(&mut self, jobs: &[(&Ints, Cut)]) -> Result<Vec<super::digits::Answer>, Error> {
        let jobs: Vec<(&Ints, Vec<Cut>)> = jobs.iter().map(|&(x, cut)| (x, vec![cut])).collect();
        Ok(self.cuts(&jobs)?.into_iter().flatten().collect())
    }

    /// Signs, and whether all bits are zero where that is asked.
    fn signs(&mut self, jobs: &[&Ints], zero: bool) -> Result<Vec<(Bits, Option<Bits>)>, Error> {
        // One bit has nothing below it.
        let below = |x: &Ints| {
            let sign = Cut { at: x.width - 1, borrow: true, zero: false };
            let all = Cut { at: x.width, borrow: false, zero: true };
            if zero { vec![sign, all] } else { vec![sign] }
        };
        let wide: Vec<&Ints> = jobs.iter().filter(|x| x.width > 1).copied().collect();
        let asked: Vec<(&Ints, Vec<Cut>)> = wide.iter().map(|&x| (x, below(x))).collect();
        let mut answers = self.cuts(&asked)?.into_iter();
        let mut tops = self.bits_of(&wide.iter().map(|&x| (x, x.width - 1)).collect::<Vec<_>>())?.into_iter();
        let one = |x: &&Ints| {
            if x.width == 1 {
                let top = self.parity(x);
                let none = top.not();
                return (top, zero.then_some(none));
            }
            let mut answer = answers.next().expect("one for each").into_iter();
            let borrow = answer.next().and_then(|a| a.borrow).expect("asked for");
            (tops.next().expect("one for each").xor(&borrow), answer.next().and_then(|a| a.zero))
        };
        Ok(jobs.iter().map(one).collect())
    }

    /// Of y, a half and x, the borrow at r + 1 bits and the lowest bit of what x rounds to: y's bit
    /// r, if any bit below is set.
    fn rounded(&mut self, jobs: &[(&Ints, u32)]) -> Result<Vec<(Bits, Bits)>, Error> {
        let short: Vec<(&Ints, u32)> = jobs.iter().filter(|j| j.1 < ROUNDED).copied().collect();
        let long: Vec<(&Ints, u32)> = jobs.iter().filter(|j| j.1 >= ROUNDED).copied().collect();
        let sizes: Vec<(u32, usize)> = short.iter().map(|(y, r)| (r + 1, y.lanes())).collect();
        let digits = || short.iter().map(|(y, at)| y.r.iter().map(|v| v & mask(at + 1)).collect()).collect();
        let hot = self.one_hots(&sizes, digits)?;
        let deals = self.deals();
        let form = |(&(y, at), hot): (&(&Ints, u32), &super::digits::OneHots)| {
            BitForms::held(y.lanes(), 2, |which| {
                if deals {
                    return vec![];
                }
                let (all, m) = (1u32 << (at + 1), |i: usize| y.m[i] & mask(at + 1));
                // The digits of r with which m borrows; with which the digit of y is above 2^at:
                // those at 1 … 2^at − 1 above m.
                let above = mask(1 << at) & !1;
                let set = |m: u64| (above << m | above >> (u64::from(all) - m)) & mask(all);
                bits::pack(y.lanes(), |i| {
                    let hot = hot.words[0][i];
                    let share = if which == 0 { hot >> m(i) >> 1 } else { hot & set(m(i)) };
                    u64::from(share.count_ones())
                })
            })
        };
        let forms = short.iter().zip(&hot).map(form).collect();
        let mut of_short = self.open(vec![], forms)?.1.into_iter();

        let cuts = |(y, at): &(&Ints, u32)| {
            let low = Cut { at: *at, borrow: true, zero: true };
            // Where nothing is above, nothing borrows.
            let high = (at + 1 < y.width).then_some(Cut { at: at + 1, borrow: true, zero: false });
            std::iter::once(low).chain(high).collect()
        };
        let asked: Vec<(&Ints, Vec<Cut>)> = long.iter().map(|j| (j.0, cuts(j))).collect();
        let answers = self.cuts(&asked)?;
        let units = self.bits_of(&long)?;
        // Where the bits below are zero they do not borrow: bit r of y is m_r ⊕ r_r.
        let pairs =
            units.iter().zip(&answers).map(|(unit, a)| (unit, a[0].zero.as_ref().expect("asked for")));
        let ties = self.and(&pairs.collect::<Vec<_>>())?;
        let mut of_long = answers.into_iter().zip(units).zip(ties);
        let one = |(y, at): &(&Ints, u32)| {
            if *at < ROUNDED {
                let mut bits = of_short.next().expect("one for each").into_iter();
                let mut next = || bits.next().expect("two bits");
                return (next(), next());
            }
            let ((mut answer, unit), tie) = of_long.next().expect("one for each");
            let low = answer.remove(0).borrow.expect("asked for");
            let high =
                answer.pop().and_then(|a| a.borrow).unwrap_or_else(|| self.known_bits(y.lanes(), |_| 0));
            (high, unit.xor(&low).xor(&tie))
        };
        Ok(jobs.iter().map(one).collect())
    }
}

impl<D: Device> Blocks for Dealt<D> {
    type Int = Ints;
    type Bit = Bits;
    type Error = Error;

    fn lanes(&self, x: &Ints) -> usize {
        x.lanes()
    }
    fn bit_lanes(&self, x: &Bits) -> usize {
        x.n
    }
    fn width(&self, x: &Ints) -> u32 {
        x.width
    }
    fn public(&self, width: u32, v: &[u64]) -> Ints {
        self.known(width, v.len(), |i| v[i])
    }
    fn public_bits(&self, v: &[bool]) -> Bits {
        self.known_bits(v.len(), |i| u64::from(v[i]))
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
        x.weigh(k)
    }
    fn offset(&self, x: &Ints, k: u64) -> Ints {
        x.offset(k)
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
        let pack = |v: &[u64]| bits::pack(v.len(), |i| v[i]);
        Bits { n: x.lanes(), m: pack(&x.m), r: pack(&x.r), first: pack(&x.first) }
    }
    fn narrow(&self, b: &Bits) -> Ints {
        let unpack = |v: &[u64]| {
            if v.is_empty() { vec![] } else { (0..b.n).map(|i| bits::get(v, i)).collect() }
        };
        Ints { width: 1, m: unpack(&b.m), r: unpack(&b.r), first: unpack(&b.first) }
    }
    fn xor(&self, a: &Bits, b: &Bits) -> Bits {
        a.xor(b)
    }
    fn not(&self, a: &Bits) -> Bits {
        a.not()
    }
    fn gather(&self, x: &Ints, lanes: &[usize]) -> Ints {
        let of = |v: &[u64]| if v.is_empty() { vec![] } else { lanes.iter().map(|&i| v[i]).collect() };
        Ints { width: x.width, m: of(&x.m), r: of(&x.r), first: of(&x.first) }
    }
    fn gather_bits(&self, b: &Bits, lanes: &[usize]) -> Bits {
        let of = |v: &[u64]| {
            if v.is_empty() { vec![] } else { bits::pack(lanes.len(), |i| bits::get(v, lanes[i])) }
        };
        Bits { n: lanes.len(), m: of(&b.m), r: of(&b.r), first: of(&b.first) }
    }
    fn concat(&self, x: &[&Ints]) -> Ints {
        assert!(x.iter().all(|y| y.width == x[0].width), "widths differ");
        let of = |v: fn(&Ints) -> &Vec<u64>| x.iter().flat_map(|y| v(y).iter().copied()).collect();
        Ints { width: x[0].width, m: of(|y| &y.m), r: of(|y| &y.r), first: of(|y| &y.first) }
    }
    fn concat_bits(&self, b: &[&Bits]) -> Bits {
        let of = |v: fn(&Bits) -> &Vec<u64>| {
            let (mut all, mut n) = (vec![], 0);
            for part in b.iter().filter(|b| !v(b).is_empty()) {
                bits::append(&mut all, n, v(part), part.n);
                n += part.n;
            }
            all
        };
        let n = b.iter().map(|b| b.n).sum();
        Bits { n, m: of(|b| &b.m), r: of(|b| &b.r), first: of(|b| &b.first) }
    }

    fn and(&mut self, jobs: &[(&Bits, &Bits)]) -> Result<Vec<Bits>, Error> {
        let product = |(a, b): &(&Bits, &Bits)| Polynomials {
            inputs: vec![(*a).clone(), (*b).clone()],
            outputs: vec![vec![0b11]],
        };
        let results = self.polynomials(&jobs.iter().map(product).collect::<Vec<_>>())?;
        Ok(results.into_iter().flatten().collect())
    }
    fn select(&mut self, jobs: &[Select<'_, Self>]) -> Result<Vec<Row<Self>>, Error> {
        // A bit's mask is dealt once, for the widest integer.
        let rho = |b: &Bits, i: usize| bits::get(&b.r, i);
        let size = |job: &Select<'_, Self>| match job.ints.iter().map(|x| x.width).max() {
            Some(width) => Size::Ints(width, job.bit.n),
            None => Size::Bits(0),
        };
        let sizes: Vec<Size> = jobs.iter().map(size).collect();
        let masks = self.deal(&sizes, || {
            let of = |job: &Select<'_, Self>| match job.ints[..] {
                [] => vec![],
                _ => (0..job.bit.n).map(|i| rho(job.bit, i)).collect(),
            };
            jobs.iter().map(of).collect()
        })?;
        let (mut forms, mut products) = (vec![], vec![]);
        for (job, mask) in jobs.iter().zip(&masks) {
            let (b, v) = (job.bit, |i: usize| bits::get(&job.bit.m, i));
            for x in &job.ints {
                let form = self.form(x.width, x.lanes()).public(|i| v(i).wrapping_mul(x.m[i]));
                let form = form.held(|i| v(i).wrapping_mul(x.r[i]).wrapping_neg());
                let form = form.held(|i| sign(b, i).wrapping_mul(x.m[i]).wrapping_mul(mask[i]));
                let rho = |i: usize| rho(b, i);
                forms.push(form.term(0, |i| sign(b, i).wrapping_neg(), |i| rho(i) * x.r[i]));
            }
            let with =
                |c: &&Bits| Polynomials { inputs: vec![b.clone(), (*c).clone()], outputs: vec![vec![0b11]] };
            products.extend(job.bits.iter().map(with));
        }
        let products = self.of_polynomials(&products);
        let (ints, bits) = self.open(forms, products)?;
        let (mut ints, mut bits) = (ints.into_iter(), bits.into_iter().flatten());
        let row = |job: &Select<'_, Self>| Row {
            ints: ints.by_ref().take(job.ints.len()).collect(),
            bits: bits.by_ref().take(job.bits.len()).collect(),
        };
        Ok(jobs.iter().map(row).collect())
    }
    fn widen(&mut self, jobs: &[(&Bits, u32)]) -> Result<Vec<Ints>, Error> {
        let wide = jobs.iter().filter(|j| j.1 > 1);
        let forms = wide.map(|&(bit, width)| self.weighted(width, bit.n, 0, &[(0, bit)])).collect();
        let mut opened = self.open_forms(forms)?.into_iter();
        let one = |&(bit, width): &(&Bits, u32)| {
            if width > 1 { opened.next().expect("one for each") } else { self.narrow(bit) }
        };
        Ok(jobs.iter().map(one).collect())
    }
    fn tally(&mut self, jobs: &[Tally<'_, Self>]) -> Result<Vec<Ints>, Error> {
        // One form, and so one opening, for each sum.
        let form = |job: &Tally<'_, Self>| {
            let form = self.form(job.width, job.terms[0].0.n);
            job.terms.iter().fold(form, |form, &(bit, k)| {
                let shift = tally_shift(k, job.width);
                with_bit(form, shift, bit, k.wrapping_shr(shift))
            })
        };
        self.open_forms(jobs.iter().map(form).collect())
    }
    fn negative(&mut self, jobs: &[&Ints]) -> Result<Vec<Bits>, Error> {
        Ok(self.signs(jobs, false)?.into_iter().map(|s| s.0).collect())
    }
    fn negative_zero(&mut self, jobs: &[&Ints]) -> Result<Vec<(Bits, Bits)>, Error> {
        let signs = self.signs(jobs, true)?.into_iter();
        Ok(signs.map(|(negative, zero)| (negative, zero.expect("asked for"))).collect())
    }
    fn is_zero(&mut self, jobs: &[&Ints]) -> Result<Vec<Bits>, Error> {
        let asked: Vec<(&Ints, Cut)> =
            jobs.iter().map(|x| (*x, Cut { at: x.width, borrow: false, zero: true })).collect();
        Ok(self.cut_each(&asked)?.into_iter().map(|a| a.zero.expect("asked for")).collect())
    }
    fn lookup(&mut self, jobs: &[Lookup<'_, Self>]) -> Result<Vec<Row<Self>>, Error> {
        self.rows(jobs)
    }
    fn extend(&mut self, jobs: &[Extend<'_, Self>]) -> Result<Vec<Ints>, Error> {
        self.extend_ints(jobs)
    }
    fn truncate(&mut self, jobs: &[Truncate<'_, Self>]) -> Result<Vec<Vec<Ints>>, Error> {
        let cuts =
            |j: &Truncate<'_, Self>| j.cuts.iter().map(|&at| Cut { at, borrow: true, zero: false }).collect();
        let asked: Vec<(&Ints, Vec<Cut>)> = jobs.iter().map(|j| (j.x, cuts(j))).collect();
        let answers = self.cuts(&asked)?;
        let mut forms = vec![];
        for (job, answers) in jobs.iter().zip(&answers) {
            for (&cut, answer) in job.cuts.iter().zip(answers) {
                let borrow = answer.borrow.as_ref().expect("asked for");
                let form = self.form(job.x.width - cut, job.x.lanes());
                forms.push(quotient(form, 0, job.x, cut, borrow));
            }
        }
        let mut opened = self.open_forms(forms)?.into_iter();
        Ok(jobs.iter().map(|j| opened.by_ref().take(j.cuts.len()).collect()).collect())
    }
    fn sticky(&mut self, jobs: &[(&Ints, u32)]) -> Result<Vec<Ints>, Error> {
        // 2⌊x / 2^(s+1)⌋, and one more unless the low s + 1 bits are zero.
        let cut = |(x, s): &(&Ints, u32)| Cut { at: s + 1, borrow: s + 1 < x.width, zero: true };
        let asked: Vec<(&Ints, Cut)> = jobs.iter().map(|j| (j.0, cut(j))).collect();
        let answers = self.cut_each(&asked)?;
        let form = |(&(x, s), answer): (&(&Ints, u32), &super::digits::Answer)| {
            let form = self.form(x.width - s, x.lanes()).public(|_| 1);
            let form = with_bit(form, 0, answer.zero.as_ref().expect("asked for"), u64::MAX);
            match &answer.borrow {
                Some(borrow) => quotient(form, 1, x, s + 1, borrow),
                None => form,
            }
        };
        let forms = jobs.iter().zip(&answers).map(form).collect();
        self.open_forms(forms)
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
        let halves: Vec<(Ints, u32)> = jobs.iter().map(|&(x, r)| (x.offset(1 << (r - 1)), r)).collect();
        let bits = self.rounded(&halves.iter().map(|(y, r)| (y, *r)).collect::<Vec<_>>())?;
        let form = |((y, r), (borrow, lowest)): (&(Ints, u32), &(Bits, Bits))| {
            let form = with_bit(self.form(y.width - r, y.lanes()), 0, lowest, 1);
            if r + 1 < y.width { quotient(form, 1, y, r + 1, borrow) } else { form }
        };
        let forms = halves.iter().zip(&bits).map(form).collect();
        self.open_forms(forms)
    }
}
