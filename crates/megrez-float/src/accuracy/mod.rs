//! How far the math functions are from the truth, in units of the last place.
//!
//! The unit of a real r is the distance of the two single-precision numbers around it. Errors are
//! measured against double precision, whose own error is below 2^−27 of such a unit, and whatever
//! comes within [`DOUBT`] of the largest one can be measured again against MPFR. Results beyond the
//! normal numbers must be the zero or the infinity that rounding leads to.

pub mod mpfr;
mod numbers;
pub mod pairs;
mod reference;

pub use reference::{FUNCTIONS, Function};

use crate::any::in_the_clear;
use crate::format::{Format, Plain};
use mpfr::{Missing, Mpfr};
use numbers::{canonical, flushed};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// How much double precision may be wrong by, generously.
pub const DOUBT: f64 = 1e-6;

/// The largest error of a range of inputs.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Worst {
    /// In units of the last place.
    pub ulp: f64,
    /// The input, as bits.
    pub input: u32,
    /// What came out of it, as bits.
    pub output: u32,
}

impl Worst {
    /// No error yet.
    pub const NONE: Self = Self { ulp: 0.0, input: 0, output: 0 };

    /// The worse of the two, the smaller input if they are equal.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        if (other.ulp, self.input) > (self.ulp, other.input) { other } else { self }
    }
}

/// The error of `got` where `want` is the truth up to double precision.
#[must_use]
pub fn error(got: f32, want: f64) -> f64 {
    let smallest = f64::from(f32::MIN_POSITIVE);
    let wide = f64::from(got);
    if want.is_nan() || got.is_nan() {
        return if want.is_nan() && got.is_nan() { 0.0 } else { f64::INFINITY };
    }
    if want == 0.0 || wide == want {
        return if wide == want { 0.0 } else { f64::INFINITY };
    }
    if want.abs() < smallest && got == 0.0 {
        // Not what rounds up to a normal number.
        return if want.abs() < smallest * (1.0 - f64::from(f32::EPSILON) / 4.0) { 0.0 } else { 1.0 };
    }
    if got.is_infinite() {
        let right =
            wide.signum() == want.signum() && want.abs() >= f64::from(f32::MAX) * (1.0 + 2f64.powi(-25));
        return if right { 0.0 } else { f64::INFINITY };
    }
    if want.abs() >= 2f64.powi(128) {
        return f64::INFINITY;
    }
    (wide - want).abs() / unit(want)
}

/// The largest error of an operation's results, where double precision says what they ought to be:
/// for [`FUNCTIONS`] and the [`PRIMITIVES`](pairs::PRIMITIVES) that give numbers.
#[must_use]
pub fn worst(op: &str, x: &Plain, y: &Plain, got: &Plain) -> Option<f64> {
    let primitive = pairs::Primitive::named(op).filter(|p| p.name != "lt");
    let truth: Box<dyn Fn(f64, f64) -> f64> = match (primitive, Function::named(op)) {
        (Some(primitive), _) => Box::new(primitive.reference),
        (_, Some(function)) => Box::new(|x, _| (function.reference)(x)),
        _ => return None,
    };
    let (x, y, got) = (x.to_bits(), y.to_bits(), got.to_f32());
    let one = |i: usize| error(got[i], truth(flushed(x[i] as u32), flushed(y[i] as u32)));
    Some((0..got.len()).map(one).fold(0.0, f64::max))
}

/// The distance of the single-precision numbers around x, as if exponents had no bounds.
fn unit(x: f64) -> f64 {
    let exponent = (x.abs().to_bits() >> 52) as i32 - 1023;
    2f64.powi(exponent.clamp(-900, 900) - 23)
}

/// Runs a function on single-precision numbers in the clear, and holds every promise on the way to
/// the truth ([`Clear`](crate::Clear)).
///
/// # Panics
/// If a promise about a top bit is broken, or a result is not in canonical form.
#[must_use]
pub fn run(function: &Function, inputs: &[u32]) -> Vec<u32> {
    let bits: Vec<u64> = inputs.iter().map(|&b| u64::from(b)).collect();
    let x = Plain::from_bits(Format::FLOAT32, &bits).secret();
    let y = in_the_clear(|b| (function.run)(b, &x));
    canonical(function.name, &y)
}

/// The errors of a function on some inputs; `each` sees those of at least `least`.
pub fn measure(function: &Function, inputs: &[u32], least: f64, mut each: impl FnMut(Worst)) {
    for (&input, output) in inputs.iter().zip(run(function, inputs)) {
        let ulp = error(f32::from_bits(output), (function.reference)(flushed(input)));
        if ulp >= least {
            each(Worst { ulp, input, output });
        }
    }
}

/// What an exhaustive check found.
#[derive(Clone, Debug)]
pub struct Report {
    /// How many inputs there were.
    pub inputs: u64,
    /// The largest error, by MPFR.
    pub worst: Worst,
    /// Inputs whose errors MPFR was asked for, all within [`DOUBT`] of the largest.
    pub confirmed: usize,
    /// How long it took.
    pub seconds: f64,
}

/// Inputs that one thread takes at a time.
const CHUNK: u64 = 1 << 20;
/// Lanes at a time: few enough to stay in the nearest cache.
const LANES: u64 = 1 << 10;

/// Runs a function on all 2^32 inputs, on so many threads, and tells `progress` of every part that
/// is done.
///
/// # Errors
/// If MPFR is not there.
pub fn exhaustive(
    function: &Function,
    threads: usize,
    progress: impl Fn(u64) + Sync,
) -> Result<Report, Missing> {
    sweep(function, 0..1 << 32, threads, progress)
}

/// As [`exhaustive`], for a range of inputs that starts and ends at multiples of 2^10.
///
/// # Errors
/// If MPFR is not there.
pub fn sweep(
    function: &Function,
    inputs: std::ops::Range<u64>,
    threads: usize,
    progress: impl Fn(u64) + Sync,
) -> Result<Report, Missing> {
    let mpfr = Mpfr::load()?;
    let start = Instant::now();
    let next = AtomicU64::new(inputs.start);
    let work = || {
        let mut near = Near::default();
        loop {
            let from = next.fetch_add(CHUNK, Ordering::Relaxed);
            if from >= inputs.end {
                return near;
            }
            let to = inputs.end.min(from + CHUNK);
            for at in (from..to).step_by(LANES as usize) {
                let lanes: Vec<u32> = (at..at + LANES).map(|x| x as u32).collect();
                let least = near.least();
                measure(function, &lanes, least, |worst| near.add(worst));
            }
            progress(to - from);
        }
    };
    let near = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(work)).collect();
        let mut all = Near::default();
        for thread in threads {
            let near = thread.join().expect("the check does not panic");
            near.0.into_iter().for_each(|worst| all.add(worst));
        }
        all
    });
    let mut worst = Worst::NONE;
    for candidate in &near.0 {
        worst = worst.or(confirm(&mpfr, function, *candidate)?);
    }
    let inputs = inputs.end - inputs.start;
    Ok(Report { inputs, worst, confirmed: near.0.len(), seconds: start.elapsed().as_secs_f64() })
}

/// The error by MPFR. Where a result is not a normal number the rules of [`error`] apply, which no
/// precision sharpens.
///
/// # Errors
/// If MPFR does not know the function.
pub fn confirm(mpfr: &Mpfr, function: &Function, found: Worst) -> Result<Worst, Missing> {
    let got = f32::from_bits(found.output);
    if !found.ulp.is_finite() || !got.is_normal() {
        return Ok(found);
    }
    let (want, rest) = mpfr.compare(function.name, flushed(found.input), f64::from(got))?;
    Ok(Worst { ulp: rest.abs() / unit(want), ..found })
}

/// The largest errors seen: those within [`DOUBT`] of the largest, at most so many.
#[derive(Default)]
struct Near(Vec<Worst>);

impl Near {
    const MOST: usize = 256;

    fn least(&self) -> f64 {
        self.0.first().map_or(0.0, |w| w.ulp - DOUBT)
    }

    fn add(&mut self, worst: Worst) {
        if worst.ulp >= self.least() {
            let at = self.0.partition_point(|w| (w.ulp, worst.input) > (worst.ulp, w.input));
            self.0.insert(at, worst);
            self.0.truncate(Self::MOST);
            let least = self.least();
            self.0.retain(|w| w.ulp >= least);
        }
    }
}
