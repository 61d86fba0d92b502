//! Every primitive against exact arithmetic in four formats, and single precision against this
//! processor as well.

mod common;

use common::{Number, Numbers, inf, nan, number, round, zero};
use megrez_float::accuracy::pairs::{PRIMITIVES, check as check_pairs};
use megrez_float::blocks::{Blocks, mask};
use megrez_float::ops::{self, OPS, Output, operands};
use megrez_float::{AnyBlocks, Bit, Clear, Failure, Float, Format, Mixed, Plain, in_the_clear};
use megrez_float::{add, add_cheap, div, div_cheap, eq, le, lt, max, min, mul, relu, sqrt, square, sub};
use megrez_float::{from_fixed, plain_bits, plain_ints, secret_ints, to_fixed};
use rand::{Rng, SeedableRng, rngs::StdRng};

const FORMATS: [Format; 4] = [Format::FLOAT32, Format::BFLOAT16, Format::TF32, Format::WIDE];

type Op = fn(&mut AnyBlocks, &Float, &Float) -> Result<Float, Failure>;

fn run(op: Op, format: Format, x: &[u64], y: &[u64]) -> Vec<u64> {
    let [x, y] = [x, y].map(|v| Plain::from_bits(format, v).secret());
    let z = in_the_clear(|b| op(b, &x, &y));
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
            round(format, s ^ t, e + f - 2 * i64::from(format.q) - 8, (m * n) << 8, false)
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

fn exact_div(format: Format, x: Number, y: Number) -> u64 {
    use Number::{Finite, Inf, Nan, Zero};
    match (x, y) {
        (Nan, _) | (_, Nan) | (Zero(_), Zero(_)) | (Inf(_), Inf(_)) => nan(format),
        (Inf(s), Zero(t) | Finite(t, ..)) | (Finite(s, ..), Zero(t)) => inf(format, s ^ t),
        (Zero(s), Inf(t) | Finite(t, ..)) | (Finite(s, ..), Inf(t)) => zero(format, s ^ t),
        (Finite(s, e, m), Finite(t, f, n)) => {
            round(format, s ^ t, e - f - 64, (m << 64) / n, (m << 64) % n != 0)
        }
    }
}

fn exact_sqrt(format: Format, x: Number, _: Number) -> u64 {
    match x {
        Number::Nan | Number::Inf(true) | Number::Finite(true, ..) => nan(format),
        Number::Inf(false) => inf(format, false),
        Number::Zero(s) => zero(format, s),
        Number::Finite(false, e, m) => {
            let e = e - i64::from(format.q) - 64;
            let (e, n) = if e % 2 == 0 { (e / 2, m << 64) } else { ((e - 1) / 2, m << 65) };
            let root = n.isqrt();
            round(format, false, e, root, root * root != n)
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

#[test]
fn subtraction_is_addition_of_the_negative() {
    let (x, y) = Numbers::new(Format::FLOAT32, 7).pairs(10_000);
    let negative: Vec<u64> = y.iter().map(|b| b ^ 1 << 31).collect();
    assert_eq!(run(sub, Format::FLOAT32, &x, &y), run(add, Format::FLOAT32, &x, &negative));
}

#[test]
fn division_is_correctly_rounded() {
    check(div, exact_div, |x, y| x / y, 200_000);
}

#[test]
fn square_root_is_correctly_rounded() {
    check(|b, x, _| sqrt(b, x), exact_sqrt, |x, _| x.sqrt(), 200_000);
}

/// Every mantissa under both parities of the exponent.
#[test]
fn square_root_of_every_mantissa() {
    for chunk in 0..1 << 12 {
        let x: Vec<u64> = (0..1 << 12).map(|i| 0x3f80_0000 + (chunk << 12 | i)).collect();
        let z = run(|b, x, _| sqrt(b, x), Format::FLOAT32, &x, &x);
        for (x, z) in x.iter().zip(z) {
            assert_eq!(z as u32, f32::from_bits(*x as u32).sqrt().to_bits(), "{x:x}");
        }
    }
}

#[test]
fn cheap_division_is_the_quotient_or_its_neighbour_towards_zero() {
    let (x, y) = Numbers::new(Format::FLOAT32, 9).pairs(200_000);
    let exact = run(div, Format::FLOAT32, &x, &y);
    let cheap = run(div_cheap, Format::FLOAT32, &x, &y);
    let below = exact.iter().zip(&cheap).filter(|(e, c)| e != c).map(|(e, c)| assert_eq!(*c, e - 1)).count();
    assert!((1..100_000).contains(&below), "{below} differ");
}

#[test]
fn cheap_addition_is_within_one_unit() {
    let (x, y) = Numbers::new(Format::FLOAT32, 13).pairs(200_000);
    let exact = run(add, Format::FLOAT32, &x, &y);
    let cheap = run(add_cheap, Format::FLOAT32, &x, &y);
    // It may stop short of what rounds up: to the next binade, to infinity, to the smallest normal
    // number.
    let one_less = |e: u64| e & 0x7fff_ffff == 0x0080_0000 || e & 0x7fff_ffff == 0x7f80_0000;
    let differ = exact.iter().zip(&cheap).filter(|(e, c)| e != c);
    let below = differ.map(|(&e, &c)| assert!(c == e - 1 || one_less(e), "{c:x} for {e:x}")).count();
    assert!((1..100_000).contains(&below), "{below} differ");
}

#[test]
fn integers_and_fixed_point_come_back() {
    let format = Format::FLOAT32;
    let mut rng = StdRng::seed_from_u64(17);
    let shrunk = |v: u64, by: u32| v >> (by % 63);
    let words: Vec<u64> = (0..100_000).map(|_| shrunk(rng.random(), rng.random()) & mask(63)).collect();
    for (signed, frac) in [(false, 0), (true, 0), (true, 40)] {
        let x = in_the_clear(|b| {
            from_fixed(b, &secret_ints::<Clear>(Clear.public(63, &words)), signed, frac, format)
        });
        let value = |w: u64| if signed { ((w << 1) as i64 >> 1) as f32 } else { w as f32 };
        let want: Vec<f32> = words.iter().map(|&w| value(w) / 2f32.powi(frac as i32)).collect();
        assert_eq!(x.plain(), Plain::from_f32(&want));
    }
    let (x, _) = Numbers::new(format, 19).pairs(100_000);
    let x = Plain::from_bits(format, &x);
    for (width, frac) in [(32, 0), (32, 16), (16, 8), (3, 0), (37, 30)] {
        let got = in_the_clear(|b| to_fixed(b, &x.secret(), width, frac));
        let most = 2f64.powi(width as i32 - 1);
        for (value, got) in x.to_f32().into_iter().zip(plain_ints(&got).v) {
            let scaled = (f64::from(value) * 2f64.powi(frac as i32)).round_ties_even();
            let want = scaled.clamp(-most, most - 1.0) as i64;
            assert_eq!(got, want as u64 & mask(width), "{value:e} to {width} bits, {frac} of them fraction");
        }
    }
}

#[test]
fn comparisons_are_those_of_the_processor() {
    let format = Format::FLOAT32;
    let (x, y) = Numbers::new(format, 11).pairs(200_000);
    let [x, y] = [x, y].map(|v| Plain::from_bits(format, &v));
    let (xs, ys) = (x.to_f32(), y.to_f32());
    let [x, y] = [x, y].map(|v| v.secret());
    type Compare = fn(&mut AnyBlocks, &Float, &Float) -> Result<Bit, Failure>;
    let cases: [(Compare, fn(&f32, &f32) -> bool); 3] =
        [(lt, |x, y| x < y), (le, |x, y| x <= y), (eq, |x, y| x == y)];
    for (ours, theirs) in cases {
        let bits = in_the_clear(|b| ours(b, &x, &y));
        let want: Vec<u64> = xs.iter().zip(&ys).map(|(x, y)| u64::from(theirs(x, y))).collect();
        assert_eq!(plain_bits(&bits).0, want);
    }
    let cases: [(Op, fn(f32, f32) -> f32); 3] = [
        (max, |x, y| if x < y || y.is_nan() { y } else { x }),
        (min, |x, y| if y < x || y.is_nan() { y } else { x }),
        (|b, x, _| relu(b, x), |x, _| if x.is_sign_negative() && !x.is_nan() { 0.0 } else { x }),
    ];
    for (ours, theirs) in cases {
        let z = in_the_clear(|b| ours(b, &x, &y));
        let want: Vec<f32> = xs.iter().zip(&ys).map(|(&x, &y)| theirs(x, y)).collect();
        assert_eq!(z.plain().to_bits(), Plain::from_f32(&want).to_bits());
    }
}

/// What the paper or its code get wrong; see the head of `add.rs`.
#[test]
fn corrected_cases() {
    let cases: [(Op, f32, f32, f32); 8] = [
        (add, 1.0, -1.5 / (1 << 25) as f32, f32::from_bits(0x3f7f_ffff)),
        (sub, 1.0, 1.0, 0.0),
        (sub, 1e10, 1e10, 0.0),
        (mul, f32::from_bits(0x3f7f_ffff), f32::MIN_POSITIVE, 0.0),
        (mul, f32::INFINITY, f32::MIN_POSITIVE, f32::INFINITY),
        (div, 1.0, 0.0, f32::INFINITY),
        (sub, f32::INFINITY, f32::INFINITY, f32::NAN),
        (mul, 0.0, f32::INFINITY, f32::NAN),
    ];
    for (op, x, y, want) in cases {
        let bits = |v: f32| u64::from(v.to_bits());
        let z = run(op, Format::FLOAT32, &[bits(x)], &[bits(y)]);
        assert_eq!(z, Plain::from_f32(&[want]).to_bits(), "{x:e} and {y:e}");
    }
}

/// The pairs of `megrez float pairs`, a beginning of them.
#[test]
fn pairs_agree_with_the_processor() {
    for primitive in PRIMITIVES {
        assert_eq!(check_pairs(primitive, 300_000, 1, |_| {}), (0, None), "{}", primitive.name);
    }
}

/// A result by its bits, and whether it has the canonical form.
fn encoded(output: &Output) -> Vec<u64> {
    match output {
        Output::Float(z) => {
            let (plain, bits) = (z.plain(), z.plain().to_bits());
            assert_eq!(plain, Plain::from_bits(Format::FLOAT32, &bits), "canonical");
            bits
        }
        Output::Bit(z) => plain_bits(z).0,
        Output::Int(z) => plain_ints(z).v,
    }
}

/// Vectors that everybody knows: one number in all lanes, powers of two, and all kinds mixed.
fn known_numbers(lanes: usize, random: &[u64]) -> Vec<Vec<u64>> {
    let (inf, nan) = (f32::INFINITY, f32::NAN);
    let least = f32::MIN_POSITIVE;
    let one = [0.0, -0.0, 1.0, -1.0, 2.0, 0.5, -4.0, 3.0, 0.1, inf, -inf, nan, f32::MAX, least, 1e-40, 1e38];
    let same = one.iter().map(|c| vec![u64::from(c.to_bits()); lanes]);
    let turn = |of: &[f32]| (0..lanes).map(|i| u64::from(of[i % of.len()].to_bits())).collect::<Vec<_>>();
    let powers: Vec<f32> = (-126..128).map(|k| 2f32.powi(k) * if k % 3 == 0 { -1.0 } else { 1.0 }).collect();
    same.chain([turn(&one), turn(&powers), turn(&[1.0, -1.0]), random.to_vec()]).collect()
}

#[test]
fn operations_with_known_operands() {
    const LANES: usize = 2000;
    let (x, random) = Numbers::new(Format::FLOAT32, 23).pairs(LANES);
    let float = |b: &AnyBlocks, known: bool, v: &[u64]| {
        let plain = Plain::from_bits(Format::FLOAT32, v);
        if known { Float::public(b, &plain) } else { plain.secret() }
    };
    for op in OPS {
        for c in known_numbers(LANES, &random) {
            let sides: &[[bool; 2]] = match operands(op) {
                Some(2) => &[[true, false], [false, true], [true, true]],
                _ => &[[true, true], [false, false]],
            };
            for &[x_known, y_known] in sides {
                let [left, right] = if x_known { [&c, &x] } else { [&x, &c] };
                let result = |x_known: bool, y_known: bool| {
                    let out = in_the_clear(|b| {
                        let (left, right) = (float(b, x_known, left), float(b, y_known, right));
                        ops::run(op, b, &left, &right)
                    });
                    encoded(&out.expect("an operation"))
                };
                let (got, want) = (result(x_known, y_known), result(false, false));
                for i in 0..LANES {
                    let same = got[i] == want[i];
                    assert!(same, "{op} {:x} {:x}: {:x}, not {:x}", left[i], right[i], got[i], want[i]);
                }
            }
        }
    }
}

#[test]
fn what_is_known_stays_known() {
    let y = in_the_clear(|b| square(b, &Float::public(b, &Plain::from_f32(&[1.5, -2.0, 0.0]))));
    assert!(matches!((&y.man, &y.sign), (Mixed::Known(_), Mixed::Known(_))));
    assert_eq!(y.plain().to_f32(), [2.25, 4.0, 0.0]);
}
