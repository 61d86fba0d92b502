//! Wraps, and with them extensions and products.
//!
//! As an integer x = m − r + 2^w·u, u = [m < r]. Where x's top bit is known, m's and r's top bits
//! m_t and r_t tell u:
//!
//!   x_t = 0: u = (1 − m_t)·r_t        x_t = 1: u = (1 − m_t) + m_t·r_t        x_t = b: u = (1 − m_t)(r_t ∨ b) + m_t·(r_t ∧ b)
//!
//! Otherwise u is found by a comparison of all digits first. Two's complement is unsigned with
//! 2^(w−1) added to m, and taken off again. So x mod 2^width is public plus public times secret,
//! part by part; a product of two such sums is one again.
//!
//! Workers hold r_0 and r_1 as integers: r = r_0 + r_1 − 2^w·κ, and the dealer, who knows both,
//! deals κ. An extension keeps m and r in its low w bits, and opens u + κ modulo 2^(W−w) under a
//! mask of its own.
//!
//! phase     rounds  bits per lane                                             from → to
//! offline   1       extend: p·(W − w); product: Σ_k (W − s_k) over κ, all      dealer → worker 0
//!                   parts but r, and all pairs of parts
//! online    1       extend: 2(W − w); product: 2W                             worker ↔ worker
//!
//! Parts: r with s = 0, and where W > w with s = w: r_t; or r_t, ρ_b, r_t·ρ_b; or ρ_u; κ has s = w
//! too, and p counts it with them. A square has every pair once.
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
    /// Workers' shares of the secret, where they hold some: of r.
    held: Option<Held>,
}

/// Shares r_0 and r_1 of r as integers.
struct Held {
    /// At a worker.
    share: Vec<u64>,
    /// Where they are modulo less than the result is: their width, and at the dealer where they
    /// carry.
    carry: Option<(u32, Vec<u64>)>,
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

    /// What is public of the wrap, and its parts, at this party.
    fn wrap(&self, side: Side) -> Sum {
        let (x, w) = (self.x, self.x.width);
        let m_top = |i: usize| x.m[i].wrapping_add(self.offset()) >> (w - 1) & 1;
        let r_top = |i: usize| x.r[i] >> (w - 1);
        let part = |coefficient: &dyn Fn(usize) -> u64, secret: &dyn Fn(usize) -> u64| Part {
            shift: w,
            coefficient: side.at_workers(coefficient),
            secret: side.at_dealer(secret),
            held: None,
        };
        let (public, parts) = match &self.wrap {
            Wrap::None => (vec![], vec![]),
            Wrap::Known(false) => (side.at_workers(&|_| 0), vec![part(&|i| 1 ^ m_top(i), &r_top)]),
            Wrap::Known(true) => (side.at_workers(&|i| 1 ^ m_top(i)), vec![part(&m_top, &r_top)]),
            Wrap::Shared(b) => {
                let flipped = |i: usize| bits::get(&b.m, i);
                let rho = |i: usize| bits::get(&b.r, i);
                let sign = |i: usize| 1u64.wrapping_sub(2 * flipped(i));
                (
                    side.at_workers(&|i| (1 ^ m_top(i)) & flipped(i)),
                    vec![
                        part(&|i| 1 ^ m_top(i) ^ flipped(i), &r_top),
                        part(&|i| (1 ^ m_top(i)).wrapping_mul(sign(i)), &rho),
                        part(&|i| (2 * m_top(i)).wrapping_sub(1).wrapping_mul(sign(i)), &|i| {
                            r_top(i) & rho(i)
                        }),
                    ],
                )
            }
            Wrap::Found(u) => (
                side.at_workers(&|i| bits::get(&u.m, i)),
                vec![part(&|i| 1u64.wrapping_sub(2 * bits::get(&u.m, i)), &|i| bits::get(&u.r, i))],
            ),
        };
        Sum { public, parts }
    }

    /// The parts of the integer at this party.
    fn sum(&self, side: Side) -> Sum {
        let (x, w, offset) = (self.x, self.x.width, self.offset());
        let carry = (self.width > w).then(|| (w, side.at_dealer(&|i| x.carry(i))));
        let minus = Part {
            shift: 0,
            coefficient: side.at_workers(&|_| u64::MAX),
            secret: side.at_dealer(&|i| x.r[i]),
            held: Some(Held { share: side.at_workers(&|i| x.r[i]), carry }),
        };
        let mut sum = self.wrap(side);
        sum.parts.insert(0, minus);
        sum.public = match self.wrap {
            Wrap::None => x.m.clone(),
            _ => side.at_workers(&|i| {
                (x.m[i].wrapping_add(offset) & mask(w)).wrapping_add(sum.public[i] << w).wrapping_sub(offset)
            }),
        };
        sum
    }
}

/// Which side of `lanes` lanes a party is on.
#[derive(Clone, Copy)]
struct Side {
    deals: bool,
    lanes: usize,
}

impl Side {
    fn at_workers(self, f: &dyn Fn(usize) -> u64) -> Vec<u64> {
        if self.deals { vec![] } else { (0..self.lanes).map(f).collect() }
    }

    fn at_dealer(self, f: &dyn Fn(usize) -> u64) -> Vec<u64> {
        if self.deals { (0..self.lanes).map(f).collect() } else { vec![] }
    }
}

/// public·part as a term, or what the workers hold of it.
fn single(form: Form, factor: &[u64], twice: u64, part: &Part) -> Form {
    let c = |i: usize| factor[i].wrapping_mul(part.coefficient[i]).wrapping_mul(twice);
    let Some(Held { share, carry }) = &part.held else {
        return form.term(part.shift, c, |i| part.secret[i]);
    };
    let form = form.held(|i| c(i).wrapping_mul(share[i]));
    match carry {
        Some((width, carry)) => form.term(*width, |i| c(i).wrapping_neg(), |i| carry[i]),
        None => form,
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
    fn wide<'a, B>(&mut self, jobs: Vec<(&'a Ints, bool, &Msb<'_, B>, u32)>) -> Result<Vec<Wide<'a>>, Error>
    where
        B: megrez_float::blocks::Blocks<Int = Ints, Bit = Bits>,
    {
        let one = |(x, signed, msb, width): (&'a Ints, bool, &Msb<'_, B>, u32)| {
            let wrap = match msb {
                _ if width == x.width => Wrap::None,
                Msb::Unknown => Wrap::Found(Bits { n: 0, m: vec![], r: vec![], first: vec![] }),
                Msb::Zero => Wrap::Known(signed),
                Msb::One => Wrap::Known(!signed),
                Msb::Shared(bit) => Wrap::Shared(if signed { bit.not() } else { (*bit).clone() }),
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
        let wide = self.wide(asked.map(|j| (j.x, j.signed, &j.msb, j.width)).collect())?;
        let deals = self.deals();
        let form = |x: &Wide<'_>| {
            let sum = x.wrap(Side { deals, lanes: x.x.lanes() });
            let form = self.form(x.width - x.x.width, x.x.lanes()).public(|i| sum.public[i]);
            let form = form.term(0, |_| 1, |i| x.x.carry(i));
            sum.parts.iter().fold(form, |form, p| form.term(0, |i| p.coefficient[i], |i| p.secret[i]))
        };
        let forms = wide.iter().map(form).collect();
        let mut opened = wide.iter().zip(self.open_forms(forms)?);
        let one = |j: &Extend<'_, B>| {
            assert!(j.width >= j.x.width, "extended to fewer bits");
            if j.width == j.x.width {
                return j.x.clone();
            }
            let (x, above) = opened.next().expect("one for each");
            let low = x.x.offset(x.offset());
            let keep = |v: &[u64], above: &[u64], less: u64| -> Vec<u64> {
                let lanes = v.iter().zip(above);
                lanes
                    .map(|(v, a)| v.wrapping_add(a << x.x.width).wrapping_sub(less) & mask(x.width))
                    .collect()
            };
            // The dealer's r is the sum of the shares as they are now, not of their low bits.
            let sum: Vec<u64> = if deals {
                (0..low.lanes()).map(|i| low.r[i].wrapping_add(low.carry(i) << low.width)).collect()
            } else {
                low.r
            };
            Ints {
                width: x.width,
                m: keep(&low.m, &above.m, x.offset()),
                r: keep(&sum, &above.r, 0),
                first: keep(&low.first, &above.first, 0),
            }
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
            factors.extend(asked.iter().map(|f| (f.x, f.signed, &f.msb, job.width)));
        }
        let deals = self.deals();
        let mut sums = self.wide(factors)?.into_iter().map(|x| x.sum(Side { deals, lanes: x.x.lanes() }));
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
