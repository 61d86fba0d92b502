//! Every primitive against exact arithmetic in four formats, and single precision against this processor as well.

mod common;

use common::{Number, Numbers, inf, nan, number, round, zero};
use megrez_float::{Clear, Float, Format, Plain, add, mul};
use std::convert::Infallible;

const FORMATS: [Format; 4] = [Format::FLOAT32, Format::BFLOAT16, Format::TF32, Format::WIDE];

type Op = fn(&mut Clear, &Float<Clear>, &Float<Clear>) -> Result<Float<Clear>, Infallible>;

fn run(op: Op, format: Format, x: &[u64], y: &[u64]) -> Vec<u64> {
    let [x, y] = [x, y].map(|v| Float::public(&Clear, &Plain::from_bits(format, v)));
    let Ok(z) = op(&mut Clear, &x, &y);
    let plain = z.plain();
    let bits = plain.to_bits();
    assert_eq!(
        plain.clone(),
        Plain { sign: plain.sign.clone(), ..Plain::from_bits(format, &bits) },
        "canonical"
    );
    bits
}

/// Holds `op` to `exact`, and in single precision to `hardware` wherever that does not underflow.
fn check(op: Op, exact: fn(Format, Number, Number) -> u64, hardware: fn(f32, f32) -> f32, lanes: usize) {
    for (seed, format) in FORMATS.into_iter().enumerate() {
        let (x, y) = Numbers::new(format, seed as u64).pairs(lanes);
        let z = run(op, format, &x, &y);
        for i in 0..lanes {
            let want = exact(format, number(format, x[i]), number(format, y[i]));
            assert_eq!(z[i], want, "{format:?}: {:x} and {:x} give {:x}, not {want:x}", x[i], y[i], z[i]);
            if format == Format::FLOAT32 {
                let flushed = |b: u64| Plain::from_bits(format, &[b]).to_f32()[0];
                let there = hardware(flushed(x[i]), flushed(y[i]));
                let same = there.to_bits() == want as u32 || there.is_nan() && want == nan(format);
                assert!(same || there.abs() <= f32::MIN_POSITIVE, "the oracle: {there} is not {want:x}");
            }
        }
    }
}

fn exact_mul(format: Format, x: Number, y: Number) -> u64 {
    use Number::{Finite, Inf, Nan, Zero};
    match (x, y) {
        (Nan, _) | (_, Nan) | (Zero(_), Inf(_)) | (Inf(_), Zero(_)) => nan(format),
        (Inf(s), Inf(t) | Finite(t, ..)) | (Finite(s, ..), Inf(t)) => inf(format, s ^ t),
        (Zero(s), Zero(t) | Finite(t, ..)) | (Finite(s, ..), Zero(t)) => zero(format, s ^ t),
        (Finite(s, e, m), Finite(t, f, n)) => {
            round(format, s ^ t, e + f - 2 * i64::from(format.q) - 8, m * n << 8, false)
        }
    }
}

fn exact_add(format: Format, x: Number, y: Number) -> u64 {
    use Number::{Finite, Inf, Nan, Zero};
    match (x, y) {
        (Nan, _) | (_, Nan) => nan(format),
        (Inf(s), Inf(t)) if s != t => nan(format),
        (Inf(s), _) | (_, Inf(s)) => inf(format, s),
        (Zero(s), Zero(t)) => zero(format, s && t),
        (Zero(_), Finite(s, e, m)) | (Finite(s, e, m), Zero(_)) => {
            round(format, s, e - i64::from(format.q) - 8, m << 8, false)
        }
        (Finite(s, e, m), Finite(t, f, n)) => {
            if (f, n) > (e, m) {
                return exact_add(format, y, x);
            }
            // Beyond 60 places the smaller one only breaks ties.
            let d = e - f;
            let low = if d <= 60 { n << (60 - d) } else { 1 };
            let sum = if s == t { (m << 60) + low } else { (m << 60) - low };
            match sum {
                0 => zero(format, false),
                _ => round(format, s, e - i64::from(format.q) - 60 - 8, sum << 8, false),
            }
        }
    }
}

#[test]
fn multiplication_is_correctly_rounded() {
    check(mul, exact_mul, |x, y| x * y, 200_000);
}

#[test]
fn addition_is_correctly_rounded() {
    check(add, exact_add, |x, y| x + y, 200_000);
}
