//! Products of integers of different widths: SIRNN §3.2 with shrinking words, the wrap of a known
//! top bit folded in.
//!
//! x of m bits and y of n ≥ m bits, both as unsigned views x', y' (a signed one is offset by half
//! its range), the product modulo 2^l with l ≤ m + n. With X_p = x'_p, less the offset at party 0,
//! and Y_p alike,
//!
//!   x·y = (X_0 + X_1)(Y_0 + Y_1) − 2^m·wrap(x')·(Y_0 + Y_1) − 2^n·wrap(y')·(X_0 + X_1)  (mod 2^l).
//!
//! Bit i of x'_p selects the peer's Y in l − i bits. The wraps select in l − m and l − n bits.
//! Where the top bit of x' is known to be 1 the wrap is t_0·t_1, so that the OT of bit m − 1
//! carries ±Y, the sign the giver's own top bit, and the wrap of x costs nothing; a known 0 alike.
//! The wrap of y takes one OT each way. A square needs X_0·X_1 once. Wider products extend y first.
//!
//! rounds              bits per lane, both directions
//! 2                   2·Σ_{i<m} (128/k + l − i) + 2·(128/k + l − n) if l > n + 2·(128/k + l − m) if l > m and x's top bit is not known
//! before: the wraps   as `wraps` for each top bit that is not known and whose wrap counts
//!
//! Security: `docs/security/secfloat.md`.

use crate::convert::{Hint, Wrap};
use crate::cot::{Cot, Word};
use crate::link::Sirnn;
use crate::share::{Bits, Ints};
use megrez_float::blocks::{Blocks, Extend, Factor, Msb, Multiply};
use megrez_kernels::Device;
use megrez_session::Error;

/// One side of a product, ready.
struct Side {
    view: Ints,
    /// X_p: the view without its offset, as a word.
    value: Vec<u64>,
    wrap: Option<Wrap>,
}

/// A product with the narrower factor first.
struct Product {
    x: Side,
    y: Side,
    width: u32,
    square: bool,
}

/// What a party gives and chooses in the OTs of one product beyond the bits of x.
struct Extra {
    choice: Bits,
    give: Vec<u64>,
    shift: u32,
}

fn copy<'a, B: Blocks>(f: &Factor<'a, B>) -> Factor<'a, B> {
    let msb = match &f.msb {
        Msb::Unknown => Msb::Unknown,
        Msb::Zero => Msb::Zero,
        Msb::One => Msb::One,
        Msb::Shared(bit) => Msb::Shared(*bit),
    };
    Factor { x: f.x, signed: f.signed, msb }
}

impl<D: Device> Sirnn<D> {
    /// Products.
    pub(crate) fn products<B>(&mut self, jobs: &[Multiply<'_, B>]) -> Result<Vec<Ints>, Error>
    where
        B: Blocks<Int = Ints, Bit = Bits>,
    {
        // The narrower factor is chosen by, the wider one is given, and is widened where the result
        // has more bits than both.
        let pairs: Vec<(Factor<'_, B>, Factor<'_, B>)> = jobs
            .iter()
            .map(|job| {
                assert!(job.width >= job.x.x.width.max(job.y.x.width), "a product narrower than a factor");
                assert_eq!(job.x.x.v.len(), job.y.x.v.len(), "lanes differ");
                let swap = job.y.x.width < job.x.x.width;
                if swap { (copy(&job.y), copy(&job.x)) } else { (copy(&job.x), copy(&job.y)) }
            })
            .collect();
        let extensions: Vec<Extend<'_, B>> = jobs
            .iter()
            .zip(&pairs)
            .map(|(job, (x, y))| {
                let Factor { x: int, signed, msb } = copy(y);
                Extend { x: int, width: int.width.max(job.width.saturating_sub(x.x.width)), signed, msb }
            })
            .collect();
        let wider = self.extend_ints(&extensions)?;

        let mut views = vec![];
        let mut asked = vec![];
        for ((job, (x, y)), wider) in jobs.iter().zip(&pairs).zip(&wider) {
            let square = std::ptr::eq(x.x, y.x) && x.signed == y.signed && wider.width == y.x.width;
            // A widened unsigned factor begins with zeros.
            let widened = wider.width > y.x.width;
            let hint = if widened && !y.signed { Hint::Known(false) } else { Hint::new(&y.msb, y.signed) };
            let hint =
                if widened && y.signed && matches!(y.msb, Msb::Shared(_)) { Hint::Unknown } else { hint };
            views.push((self.unsigned(x.x, x.signed), self.unsigned(wider, y.signed), square));
            asked.push((job, Hint::new(&x.msb, x.signed), hint));
        }
        let mut wraps = vec![];
        let mut kept = vec![];
        for ((x, y, square), (job, x_hint, y_hint)) in views.iter().zip(asked) {
            let counts = [job.width > x.width, job.width > y.width && !square];
            kept.push(counts);
            wraps.extend([(x, x_hint), (y, y_hint)].into_iter().zip(counts).filter(|w| w.1).map(|w| w.0));
        }
        let mut wraps = self.wraps(&wraps)?.into_iter();
        let kept: Vec<[Option<Wrap>; 2]> =
            kept.into_iter().map(|counts| counts.map(|c| if c { wraps.next() } else { None })).collect();

        let mut products = vec![];
        for (((x, y, square), [x_wrap, y_wrap]), (job, (fx, fy))) in
            views.into_iter().zip(kept).zip(jobs.iter().zip(&pairs))
        {
            let side = |view: Ints, signed: bool, wrap| {
                let offset = if signed && self.me() == 0 { 1u64 << (view.width - 1) } else { 0 };
                Side { value: view.v.iter().map(|v| v.wrapping_sub(offset)).collect(), view, wrap }
            };
            let (x, y) = (side(x, fx.signed, x_wrap), side(y, fy.signed, y_wrap));
            products.push((Product { x, y, width: job.width, square }, fx.signed));
        }
        self.run(&products)
    }

    fn run(&mut self, products: &[(Product, bool)]) -> Result<Vec<Ints>, Error> {
        let mut sums: Vec<Vec<u64>> = vec![];
        let mut planes: Vec<Vec<Bits>> = vec![];
        let mut extras: Vec<Vec<Extra>> = vec![];
        let mut tops: Vec<Vec<u64>> = vec![];
        for (i, (product, signed)) in products.iter().enumerate() {
            let (x, y) = (&product.x, &product.y);
            // Party 0 chooses by the bits of x'_0, which has the offset that X_0 lacks: party 1
            // takes off 2^(m−1)·Y_1.
            let half = if *signed && self.me() == 1 { 1u64 << (x.view.width - 1) } else { 0 };
            let half = if product.square { 2 * half * (i as u64 % 2) } else { half };
            let local = |(&a, &b): (&u64, &u64)| a.wrapping_mul(b).wrapping_sub(half.wrapping_mul(b));
            let mut sum: Vec<u64> = x.value.iter().zip(&y.value).map(local).collect();
            let (extra, top) = product.corrections(&mut sum);
            planes.push((0..x.view.width).map(|i| x.view.bit(i)).collect());
            sums.push(sum);
            extras.push(extra);
            tops.push(top);
        }
        let mut cots = vec![];
        for (i, (product, _)) in products.iter().enumerate() {
            let (m, l, lanes) = (product.x.view.width, product.width, product.x.view.v.len());
            // A square's mixed term counts twice and runs one way, from the party that the number
            // of the job says.
            let (from, double) = if product.square { (Some(i % 2), 1) } else { (None, 0) };
            for (bit, plane) in (0..m).zip(&planes[i]) {
                let Some(width) = l.checked_sub(bit + double).filter(|&w| w > 0) else { continue };
                let folded = bit == m - 1 && !tops[i].is_empty();
                let give = if folded { &tops[i] } else { &product.y.value };
                let words = vec![Word { width, give, into: i, shift: bit + double }];
                cots.push(Cot { lanes, from, choice: &plane.w, words });
            }
            for extra in &extras[i] {
                let words =
                    vec![Word { width: l - extra.shift, give: &extra.give, into: i, shift: extra.shift }];
                cots.push(Cot { lanes, from: None, choice: &extra.choice.w, words });
            }
        }
        self.cots(&cots, &mut sums)?;
        Ok(sums.into_iter().zip(products).map(|(v, (product, _))| Ints::new(product.width, v)).collect())
    }
}

impl Product {
    /// Adds what the wraps cost locally, and returns the OTs that they take beyond the bits of x,
    /// and what the OT of x's highest bit gives instead of Y, if anything.
    fn corrections(&self, sum: &mut [u64]) -> (Vec<Extra>, Vec<u64>) {
        let mut extras = vec![];
        let mut top = vec![];
        // A square has 2^(m+1)·wrap·X in place of the two.
        let twice = u32::from(self.square);
        for (side, other, is_x) in [(&self.x, &self.y, true), (&self.y, &self.x, false)] {
            let Some(wrap) = &side.wrap else { continue };
            let shift = side.view.width + twice;
            if shift >= self.width {
                continue;
            }
            let own = |lane: usize| side.view.v[lane] >> (side.view.width - 1) & 1;
            match wrap {
                Wrap::Top(one) => {
                    // Known 1: t_p·other goes with the peer's top bit. Known 0: (1 − t_p)·other,
                    // and t_p·other is local.
                    let with = |lane: usize| if *one { own(lane) } else { 1 - own(lane) };
                    if !one {
                        for (lane, s) in sum.iter_mut().enumerate() {
                            *s = s.wrapping_sub(own(lane).wrapping_mul(other.value[lane]) << shift);
                        }
                    }
                    if is_x && !self.square {
                        let sign = |lane: usize| 1u64.wrapping_sub(2 * with(lane));
                        top = other.value.iter().enumerate().map(|(i, v)| v.wrapping_mul(sign(i))).collect();
                    } else {
                        let give = |(i, v): (usize, &u64)| with(i).wrapping_mul(*v).wrapping_neg();
                        let give = other.value.iter().enumerate().map(give).collect();
                        extras.push(Extra { choice: side.view.bit(side.view.width - 1), give, shift });
                    }
                }
                Wrap::Bit(bit) => {
                    for (lane, s) in sum.iter_mut().enumerate() {
                        *s = s.wrapping_sub(bit.get(lane).wrapping_mul(other.value[lane]) << shift);
                    }
                    let give = |(i, v): (usize, &u64)| v.wrapping_mul((2 * bit.get(i)).wrapping_sub(1));
                    let give = other.value.iter().enumerate().map(give).collect();
                    extras.push(Extra { choice: bit.clone(), give, shift });
                }
            }
        }
        (extras, top)
    }
}
