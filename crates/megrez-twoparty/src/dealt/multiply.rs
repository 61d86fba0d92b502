//! Wraps, and with them extensions and products.
//!
//! As an integer x = m − r + 2^w·u, u = [m < r]. Where x's top bit is known, m's and r's top bits m_t and r_t tell u:
//!
//!   x_t = 0: u = (1 − m_t)·r_t        x_t = 1: u = (1 − m_t) + m_t·r_t        x_t = b: u = (1 − m_t)(r_t ∨ b) + m_t·(r_t ∧ b)
//!
//! Otherwise u is found by a comparison of all digits first. Two's complement is unsigned with 2^(w−1) added to m, and taken off
//! again. So x mod 2^width is public plus public times secret, part by part; a product of two such sums is one again.
//!
//! phase     rounds  bits per lane                                                      from → to
//! offline   1       extend: Σ_k (W − s_k); product: that of all parts and of all pairs  dealer → worker 0
//! online    1       2W                                                                 worker ↔ worker
//!
//! Parts: r with s = 0, and where W > w with s = w: r_t; or r_t, ρ_b, r_t·ρ_b; or ρ_u. In a product parts of a factor that is not widened
//! are held; a square has every pair once.
//!
//! Security: `docs/security/float-dealer.md`.

use super::form::Form;
use super::joins::Cut;
use super::link::Dealt;
use super::share::{Bits, Ints};
use megrez_float::blocks::{Extend, Factor, Msb, Multiply, mask};
use megrez_kernels::Device;
use megrez_ring::bits;
use megrez_session::Error;

/// An integer modulo 2^width: public + Σ coefficient·2^shift·secret.
struct Sum {
    /// At a worker.
    public: Vec<u64>,
    parts: Vec<Part>,
}

struct Part {
    shift: u32,
    /// At a worker.
    coefficient: Vec<u64>,
    /// At the dealer.
    secret: Vec<u64>,
    /// Workers' shares of the secret, where they hold some in the ring of the result; nothing is dealt then.
    held: Option<Vec<u64>>,
}

/// How the wrap of an integer is had: by what is known of its top bit, or by having been found.
enum Wrap {
    None,
    Known(bool),
    Shared(Bits),
    Found(Bits),
}

/// An integer that is wanted in `width` bits.
struct Wide<'a> {
    x: &'a Ints,
    signed: bool,
    width: u32,
    wrap: Wrap,
}

impl Wide<'_> {
    /// Added to make the integer unsigned.
    fn offset(&self) -> u64 {
        if self.signed { 1 << (self.x.width - 1) } else { 0 }
    }

    /// The parts at this party.
    fn sum(&self, deals: bool) -> Sum {
        let (x, w, offset) = (self.x, self.x.width, self.offset());
        let lanes = x.lanes();
        let at_workers = |f: &dyn Fn(usize) -> u64| -> Vec<u64> {
            if deals { vec![] } else { (0..lanes).map(f).collect() }
        };
        let at_dealer = |f: &dyn Fn(usize) -> u64| -> Vec<u64> {
            if deals { (0..lanes).map(f).collect() } else { vec![] }
        };
        if matches!(self.wrap, Wrap::None) {
            let minus = Part {
                shift: 0,
                coefficient: at_workers(&|_| u64::MAX),
                secret: at_dealer(&|i| x.r[i]),
                held: Some(at_workers(&|i| x.r[i])),
            };
            return Sum { public: x.m.clone(), parts: vec![minus] };
        }
        let m = |i: usize| x.m[i].wrapping_add(offset) & mask(w);
        let m_top = |i: usize| m(i) >> (w - 1);
        let r_top = |i: usize| x.r[i] >> (w - 1);
        let part = |shift: u32, coefficient: &dyn Fn(usize) -> u64, secret: &dyn Fn(usize) -> u64| Part {
            shift,
            coefficient: at_workers(coefficient),
            secret: at_dealer(secret),
            held: None,
        };
        // What is public of the wrap, and its parts.
        let (wrapped, parts) = match &self.wrap {
            Wrap::None => unreachable!("returned above"),
            Wrap::Known(false) => (at_workers(&|_| 0), vec![part(w, &|i| 1 ^ m_top(i), &r_top)]),
            Wrap::Known(true) => (at_workers(&|i| 1 ^ m_top(i)), vec![part(w, &m_top, &r_top)]),
            Wrap::Shared(b) => {
                let flipped = |i: usize| bits::get(&b.m, i);
                let rho = |i: usize| bits::get(&b.r, i);
                let sign = |i: usize| 1u64.wrapping_sub(2 * flipped(i));
                (
                    at_workers(&|i| (1 ^ m_top(i)) & flipped(i)),
                    vec![
                        part(w, &|i| 1 ^ m_top(i) ^ flipped(i), &r_top),
                        part(w, &|i| (1 ^ m_top(i)).wrapping_mul(sign(i)), &rho),
                        part(w, &|i| (2 * m_top(i)).wrapping_sub(1).wrapping_mul(sign(i)), &|i| {
                            r_top(i) & rho(i)
                        }),
                    ],
                )
            }
            Wrap::Found(u) => (
                at_workers(&|i| bits::get(&u.m, i)),
                vec![part(w, &|i| 1u64.wrapping_sub(2 * bits::get(&u.m, i)), &|i| bits::get(&u.r, i))],
            ),
        };
        let public = at_workers(&|i| m(i).wrapping_add(wrapped[i] << w).wrapping_sub(offset));
        let minus = part(0, &|_| u64::MAX, &|i| x.r[i]);
        Sum { public, parts: std::iter::once(minus).chain(parts).collect() }
    }
}

/// public·part as a term, or what the workers hold of it.
fn single(form: Form, factor: &[u64], twice: u64, part: &Part) -> Form {
    let c = |i: usize| factor[i].wrapping_mul(part.coefficient[i]).wrapping_mul(twice);
    match &part.held {
        Some(share) => form.held(|i| c(i).wrapping_mul(share[i])),
        None => form.term(part.shift, c, |i| part.secret[i]),
    }
}

/// The product of two parts.
fn pair(form: Form, x: &Part, y: &Part, twice: u64) -> Form {
    form.term(
        x.shift + y.shift,
        |i| x.coefficient[i].wrapping_mul(y.coefficient[i]).wrapping_mul(twice),
        |i| x.secret[i].wrapping_mul(y.secret[i]),
    )
}

impl<D: Device> Dealt<D> {
    /// Integers in more bits: their wraps are found where nothing tells them.
    fn wide<'a, B>(&mut self, jobs: Vec<(&'a Ints, bool, Msb<'a, B>, u32)>) -> Result<Vec<Wide<'a>>, Error>
    where
        B: megrez_float::blocks::Blocks<Int = Ints, Bit = Bits>,
    {
        let one = |(x, signed, msb, width): (&'a Ints, bool, Msb<'a, B>, u32)| {
            let wrap = match msb {
                _ if width == x.width => Wrap::None,
                Msb::Unknown => Wrap::Found(Bits { n: 0, m: vec![], r: vec![] }),
                Msb::Zero => Wrap::Known(signed),
                Msb::One => Wrap::Known(!signed),
                Msb::Shared(bit) => Wrap::Shared(if signed { bit.not() } else { bit.clone() }),
            };
            Wide { x, signed, width, wrap }
        };
        let mut wide: Vec<Wide<'a>> = jobs.into_iter().map(one).collect();
        let unknown = |x: &&mut Wide<'a>| matches!(x.wrap, Wrap::Found(_));
        let moved: Vec<Ints> = wide.iter_mut().filter(unknown).map(|x| x.x.offset(x.offset())).collect();
        let cuts = |x: &Ints| vec![Cut { at: x.width, borrow: true, zero: false }];
        let asked: Vec<(&Ints, Vec<Cut>)> = moved.iter().map(|x| (x, cuts(x))).collect();
        let answers = self.cuts(&asked)?.into_iter().flatten();
        for (x, answer) in wide.iter_mut().filter(unknown).zip(answers) {
            x.wrap = Wrap::Found(answer.borrow.expect("asked for"));
        }
        Ok(wide)
    }

    /// Zero- or sign-extensions.
    pub(super) fn extend_ints<B>(&mut self, jobs: &[Extend<'_, B>]) -> Result<Vec<Ints>, Error>
    where
        B: megrez_float::blocks::Blocks<Int = Ints, Bit = Bits>,
    {
        let asked = jobs.iter().filter(|j| j.width > j.x.width);
        let wide = self.wide(asked.map(|j| (j.x, j.signed, msb(&j.msb), j.width)).collect())?;
        let deals = self.deals();
        let form = |x: &Wide<'_>| {
            let sum = x.sum(deals);
            let form = self.form(x.width, x.x.lanes()).public(|i| sum.public[i]);
            let part = |form: Form, p: &Part| form.term(p.shift, |i| p.coefficient[i], |i| p.secret[i]);
            sum.parts.iter().fold(form, part)
        };
        let forms = wide.iter().map(form).collect();
        let mut opened = self.open_forms(forms)?.into_iter();
        let one = |j: &Extend<'_, B>| {
            assert!(j.width >= j.x.width, "extended to fewer bits");
            if j.width == j.x.width { j.x.clone() } else { opened.next().expect("one for each") }
        };
        Ok(jobs.iter().map(one).collect())
    }

    /// Products.
    pub(super) fn products<B>(&mut self, jobs: &[Multiply<'_, B>]) -> Result<Vec<Ints>, Error>
    where
        B: megrez_float::blocks::Blocks<Int = Ints, Bit = Bits>,
    {
        let factor = |f: &Factor<'_, B>| std::ptr::from_ref(f.x);
        let square = |j: &Multiply<'_, B>| factor(&j.x) == factor(&j.y) && j.x.signed == j.y.signed;
        let mut factors = vec![];
        for job in jobs {
            assert!(job.width >= job.x.x.width.max(job.y.x.width), "a product narrower than a factor");
            let both = [&job.x, &job.y];
            let asked = &both[..if square(job) { 1 } else { 2 }];
            factors.extend(asked.iter().map(|f| (f.x, f.signed, msb(&f.msb), job.width)));
        }
        let deals = self.deals();
        let mut sums = self.wide(factors)?.into_iter().map(|x| x.sum(deals));
        let mut forms = vec![];
        for job in jobs {
            let mut form = self.form(job.width, job.x.x.lanes());
            let x = sums.next().expect("one for each factor");
            if square(job) {
                form = form.public(|i| x.public[i].wrapping_mul(x.public[i]));
                for (k, part) in x.parts.iter().enumerate() {
                    form = single(form, &x.public, 2, part);
                    for (l, other) in x.parts.iter().enumerate().take(k + 1) {
                        form = pair(form, part, other, if k == l { 1 } else { 2 });
                    }
                }
            } else {
                let y = sums.next().expect("one for each factor");
                form = form.public(|i| x.public[i].wrapping_mul(y.public[i]));
                form = x.parts.iter().fold(form, |form, part| single(form, &y.public, 1, part));
                form = y.parts.iter().fold(form, |form, part| single(form, &x.public, 1, part));
                for part in &x.parts {
                    form = y.parts.iter().fold(form, |form, other| pair(form, part, other, 1));
                }
            }
            forms.push(form);
        }
        self.open_forms(forms)
    }
}

/// The same hint.
fn msb<'a, B: megrez_float::blocks::Blocks>(msb: &Msb<'a, B>) -> Msb<'a, B> {
    match *msb {
        Msb::Unknown => Msb::Unknown,
        Msb::Zero => Msb::Zero,
        Msb::One => Msb::One,
        Msb::Shared(bit) => Msb::Shared(bit),
    }
}
