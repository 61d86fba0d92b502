//! Primitives on many pairs, against this processor.
//!
//! A primitive of two single-precision numbers in double precision, rounded once more to 24 bits,
//! is the correctly rounded result: 53 ≥ 2·24 + 2. So that the exponent has no bounds before
//! flushing, tiny results are rounded 64 binades higher.

use super::numbers::{canonical, flushed};
use crate::any::{AnyBlocks, Failure, in_the_clear};
use crate::float::Float;
use crate::format::{Format, Plain};

/// A primitive of two numbers.
pub struct Primitive {
    /// Its name on the command line.
    pub name: &'static str,
    run: fn(&mut AnyBlocks, &Float, &Float) -> Result<Float, Failure>,
    pub(super) reference: fn(f64, f64) -> f64,
}

fn less(b: &mut AnyBlocks, x: &Float, y: &Float) -> Result<Float, Failure> {
    let less = crate::lt(b, x, y)?;
    let one = Float::constant(b, Format::FLOAT32, u64::from(1f32.to_bits()), x.lanes(b));
    let zero = Float::constant(b, Format::FLOAT32, 0, x.lanes(b));
    crate::choose(b, &less, &one, &zero)
}

/// All of them.
pub const PRIMITIVES: &[Primitive] = &[
    Primitive { name: "add", run: crate::add, reference: |x, y| x + y },
    Primitive { name: "sub", run: crate::sub, reference: |x, y| x - y },
    Primitive { name: "mul", run: crate::mul, reference: |x, y| x * y },
    Primitive { name: "div", run: crate::div, reference: |x, y| x / y },
    Primitive { name: "sqrt", run: |b, x, _| crate::sqrt(b, x), reference: |x, _| x.sqrt() },
    Primitive { name: "lt", run: less, reference: |x, y| f64::from(u8::from(x < y)) },
];

impl Primitive {
    /// The primitive of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        PRIMITIVES.iter().find(|p| p.name == name)
    }

    /// The pairs, of those given, whose results differ from this processor's.
    #[must_use]
    pub fn wrong(&self, x: &[u32], y: &[u32]) -> Vec<(u32, u32)> {
        let float = |bits: &[u32]| {
            let wide: Vec<u64> = bits.iter().map(|&b| u64::from(b)).collect();
            Plain::from_bits(Format::FLOAT32, &wide).secret()
        };
        let z = in_the_clear(|b| (self.run)(b, &float(x), &float(y)));
        let pairs = x.iter().zip(y).zip(canonical(self.name, &z));
        let differs =
            |&((&x, &y), z): &((&u32, &u32), u32)| single((self.reference)(flushed(x), flushed(y))) != z;
        pairs.filter(differs).map(|((&x, &y), _)| (x, y)).collect()
    }
}

/// Rounded to single precision with unbounded exponent, then flushed; all NaNs alike.
fn single(x: f64) -> u32 {
    let lifted = (x * 2f64.powi(64)) as f32;
    let rounded = if f64::from(lifted).abs() < 2f64.powi(64 - 126) {
        0f32.copysign(lifted)
    } else if x.abs() < 2f64.powi(-100) {
        (f64::from(lifted) * 2f64.powi(-64)) as f32
    } else {
        x as f32
    };
    if rounded.is_nan() { 0x7fc0_0000 } else { rounded.to_bits() }
}

/// Pairs of numbers, structured and random, the n-th of them always the same: mantissas that are
/// runs of ones, powers of two or random; exponents anywhere, equal, or as far apart as makes
/// numbers cancel, tie or just miss each other.
#[must_use]
pub fn pairs(from: u64, n: usize) -> (Vec<u32>, Vec<u32>) {
    (from..from + n as u64).map(pair).unzip()
}

fn pair(n: u64) -> (u32, u32) {
    let (r, s) = (mix(2 * n), mix(2 * n + 1));
    let mantissa = |kind: u64, k: u64, random: u64| {
        let top = 1u64 << 23;
        let mantissa = match kind & 7 {
            0 => 0,
            1 => top - 1,
            2 => 1 << (k % 23),
            3 => top - (1 << (k % 23)),
            4 => (1 << (k % 23)) - 1,
            _ => random,
        };
        mantissa & (top - 1)
    };
    let x_exp = r & 0xff;
    let y_exp = match s >> 61 {
        0 => x_exp,
        1 => x_exp + (s & 3) + 22,
        2 => (x_exp + 256 - 22).saturating_sub(s & 3),
        3 => x_exp + (s & 3),
        _ => s & 0xff,
    } & 0xff;
    let x = r >> 8 & 1 << 31 | x_exp << 23 | mantissa(r >> 8, r >> 11, r >> 40);
    let y = s >> 8 & 1 << 31 | y_exp << 23 | mantissa(s >> 8, s >> 11, s >> 40);
    (x as u32, y as u32)
}

/// SplitMix64, a public mixing function: test data only.
fn mix(n: u64) -> u64 {
    let mut z = n.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

/// Runs a primitive on the first `count` pairs, on so many threads; how many results are wrong, and
/// one such pair.
pub fn check(
    primitive: &Primitive,
    count: u64,
    threads: usize,
    progress: impl Fn(u64) + Sync,
) -> (u64, Option<(u32, u32)>) {
    const LANES: u64 = 1 << 10;
    let next = std::sync::atomic::AtomicU64::new(0);
    let work = || {
        let (mut wrong, mut one) = (0, None);
        loop {
            let from = next.fetch_add(1 << 18, std::sync::atomic::Ordering::Relaxed);
            if from >= count {
                return (wrong, one);
            }
            let to = count.min(from + (1 << 18));
            for at in (from..to).step_by(LANES as usize) {
                let (x, y) = pairs(at, LANES.min(to - at) as usize);
                let differing = primitive.wrong(&x, &y);
                wrong += differing.len() as u64;
                one = one.or(differing.first().copied());
            }
            progress(to - from);
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(work)).collect();
        let results = threads.into_iter().map(|t| t.join().expect("the check does not panic"));
        results.fold((0, None), |(n, one), (m, other)| (n + m, one.or(other)))
    })
}
