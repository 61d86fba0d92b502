//! Math functions on a sample of all inputs: a few of every exponent and sign, and those that
//! others got wrong.

use megrez_float::accuracy::mpfr::Mpfr;
use megrez_float::accuracy::{DOUBT, FUNCTIONS, Function, Worst, confirm, error, measure, run};
use megrez_float::{AnyBlocks, Failure, Float, Plain, in_the_clear, math};
use rand::{Rng, SeedableRng, rngs::StdRng};

/// Every exponent and sign, with mantissas at both ends and scattered between.
fn strata() -> Vec<u32> {
    let mantissas: Vec<u32> =
        (0..8).chain((1 << 23) - 8..1 << 23).chain((1..100).map(|i| (i * 84_673) & 0x007f_ffff)).collect();
    (0..512).flat_map(|top: u32| mantissas.iter().map(move |m| top << 23 | m)).collect()
}

/// Arguments where the public SECFLOAT code exceeds one unit in sin(πx), log2 of 1 and its
/// neighbours, exp's last finite result and the first infinite one, and the borders of the
/// reductions; the number next to a multiple of π/2, the largest one, and others that are near.
const KNOWN: &[u32] = &[
    0x3ec4_07f5,
    0x3ed8_02bc,
    0x3f13_fea2,
    0x3fb6_00af,
    0x3fc9_ff51,
    0x3ed8_121a,
    0x3f13_f6f3,
    0x3f80_0000,
    0x3f7f_ffff,
    0x3f80_0001,
    0x42b1_7217,
    0x42b1_7218,
    0x42fc_0000,
    0x4300_0000,
    0x3e80_0000,
    0x3f00_0000,
    0x3eff_ffff,
    0x3f3f_ffff,
    0x3f40_0000,
    0x3fbf_ffff,
    0x3fc0_0000,
    0x4b00_0001,
    0x4b80_0001,
    0x3300_0000,
    0x337f_ffff,
    0x7f80_0000,
    0x7fc0_0000,
    0x7f7f_ffff,
    0x0000_0000,
    0x0080_0000,
    0x0040_0000,
    0x6f79_be45,
    0x7e80_0000,
    0x4b7f_ffff,
    0x4180_0000,
    0x3fc9_0fdb,
    0x40c9_0fdb,
    0x4649_0fdb,
    0x65a7_4e1f,
];

#[test]
fn math_is_within_one_unit_in_the_last_place() {
    let inputs: Vec<u32> = strata().into_iter().chain(KNOWN.iter().flat_map(|&x| [x, x | 1 << 31])).collect();
    for function in FUNCTIONS {
        measure(function, &inputs, 0.75, |w| {
            panic!("{} of {:08x} is {:08x}: {} ULP", function.name, w.input, w.output, w.ulp)
        });
    }
}

/// The double-precision references are as good as [`DOUBT`] says, wherever results are normal.
#[test]
fn references_agree_with_mpfr() {
    let mpfr = Mpfr::load().expect("MPFR, which every C compiler needs");
    let inputs: Vec<u32> = strata().into_iter().step_by(17).collect();
    for function in FUNCTIONS {
        let mut checked = 0;
        measure(function, &inputs, 0.0, |found| {
            let by_mpfr = confirm(&mpfr, function, found).expect("MPFR 4.2");
            assert!(
                (by_mpfr.ulp - found.ulp).abs() < DOUBT / 10.0,
                "{} {found:?} {by_mpfr:?}",
                function.name
            );
            checked += 1;
        });
        assert_eq!(checked, inputs.len());
    }
}

#[test]
fn special_arguments() {
    let (inf, nan) = (f32::INFINITY, f32::NAN);
    let cases: &[(&str, f32, f32)] = &[
        ("sqrt", -0.0, -0.0),
        ("sqrt", -1.0, nan),
        ("sinpi", 3.0, 0.0),
        ("sinpi", -2.0, -0.0),
        ("sinpi", inf, nan),
        ("cospi", 2.5, 0.0),
        ("cospi", 16_777_217.0, 1.0),
        ("cospi", 8_388_609.0, -1.0),
        ("tanpi", 0.5, inf),
        ("tanpi", 1.5, -inf),
        ("tanpi", -0.5, -inf),
        ("tanpi", 1.0, -0.0),
        ("tanpi", 0.25, 1.0),
        ("exp2", -inf, 0.0),
        ("exp2", inf, inf),
        ("exp2", 127.0, 2f32.powi(127)),
        ("exp2", -126.0, f32::MIN_POSITIVE),
        ("exp2", -127.0, 0.0),
        ("exp", -0.0, 1.0),
        ("exp", nan, nan),
        ("log2", 0.0, -inf),
        ("log2", -0.0, -inf),
        ("log2", 1.0, 0.0),
        ("log2", 0.125, -3.0),
        ("log2", -1.0, nan),
        ("sin", -inf, nan),
        ("cos", inf, nan),
        ("tan", inf, nan),
        ("cos", 0.0, 1.0),
        ("tan", -0.0, -0.0),
        ("tanh", -inf, -1.0),
        ("sigmoid", -inf, 0.0),
        ("sigmoid", inf, 1.0),
        ("atan", nan, nan),
        ("erf", -inf, -1.0),
        ("erf", -0.0, -0.0),
        ("erf", 4.0, 1.0),
        ("erf", nan, nan),
        ("ln", inf, inf),
        ("ln", -inf, nan),
        ("log10", 0.0, -inf),
        ("log10", 1.0, 0.0),
        ("log10", -2.0, nan),
        ("log1p", -0.0, -0.0),
        ("log1p", -1.0, -inf),
        ("log1p", -1.5, nan),
        ("log1p", inf, inf),
        ("log1p", 1e-30, 1e-30),
        ("expm1", -0.0, -0.0),
        ("expm1", -inf, -1.0),
        ("expm1", -200.0, -1.0),
        ("expm1", inf, inf),
        ("expm1", -1e-30, -1e-30),
        ("expm1", nan, nan),
        ("sinh", -inf, -inf),
        ("sinh", -0.0, -0.0),
        ("sinh", nan, nan),
        ("cosh", -inf, inf),
        ("cosh", 0.0, 1.0),
        ("cosh", nan, nan),
        ("asin", -0.0, -0.0),
        ("asin", 1.5, nan),
        ("asin", inf, nan),
        ("asin", nan, nan),
        ("acos", 1.0, 0.0),
        ("acos", -1.000_000_1, nan),
        ("acos", -inf, nan),
        ("acos", nan, nan),
        ("floor", -0.5, -1.0),
        ("floor", inf, inf),
        ("round", 2.5, 2.0),
        ("round", -0.25, -0.0),
        ("trunc", -0.75, -0.0),
    ];
    for &(name, x, want) in cases {
        let function = Function::named(name).expect("a known function");
        let got = f32::from_bits(run(function, &[x.to_bits()])[0]);
        assert!(got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan(), "{name}({x}) = {got}");
    }
}

#[test]
fn errors_are_measured_in_the_unit_of_the_truth() {
    assert_eq!(error(1.0, 1.0), 0.0);
    assert_eq!(error(1.0 + f32::EPSILON, 1.0), 1.0);
    assert_eq!(error(1.0, 1.0 - f64::from(f32::EPSILON) / 4.0), 0.5);
    assert_eq!(error(0.0, 1e-39), 0.0);
    assert_eq!(error(f32::INFINITY, 3.5e38), 0.0);
    assert!(error(f32::INFINITY, 3.4e38).is_infinite());
    assert!(error(0.0, 1e-37).is_finite() && error(0.0, 1e-37) > 1e6);
    assert!(error(1.0, 0.0).is_infinite());
    assert!(error(f32::NAN, 1.0).is_infinite());
    assert_eq!(Worst { ulp: 1.0, input: 3, output: 0 }.or(Worst { ulp: 1.0, input: 2, output: 0 }).input, 2);
}

fn powers(x: &[f32], y: &[f32]) -> Vec<f32> {
    of_two(math::pow, x, y)
}

/// What a function of two numbers gives.
fn of_two(f: Two, x: &[f32], y: &[f32]) -> Vec<f32> {
    let float = |v: &[f32]| Plain::from_f32(v).secret();
    let z = in_the_clear(|b| f(b, &float(x), &float(y)));
    z.plain().to_f32()
}

type Two = fn(&mut AnyBlocks, &Float, &Float) -> Result<Float, Failure>;

/// Zeros of both signs, infinities, NaN, and what lies between.
const ENDS: [f32; 13] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    3.5,
    -0.75,
    f32::MIN_POSITIVE,
    -f32::MIN_POSITIVE,
    f32::MAX,
    f32::MIN,
    f32::INFINITY,
    f32::NEG_INFINITY,
    f32::NAN,
];

/// Pairs of numbers whose exponents are equal, near, or anywhere.
fn pairs(n: usize) -> (Vec<f32>, Vec<f32>) {
    let mut rng = StdRng::seed_from_u64(5);
    let mut pair = |i: usize| {
        let sign = |bit: bool| if bit { -1.0f32 } else { 1.0 };
        let x = rng.random_range(1.0..2.0f32) * 2f32.powi(rng.random_range(-126..127));
        let y = match i % 4 {
            0 => x * rng.random_range(0.5..2.0f32),
            1 => x * 2f32.powi(rng.random_range(-30..30)) * rng.random_range(1.0..2.0f32),
            2 if i.is_multiple_of(3) => x,
            _ => rng.random_range(1.0..2.0f32) * 2f32.powi(rng.random_range(-126..127)),
        };
        let (x, y) = (sign(rng.random()) * x, sign(rng.random()) * y);
        // Whatever overflowed or underflowed has its own test.
        if y.is_normal() { (x, y) } else { (x, x) }
    };
    (0..n).map(&mut pair).unzip()
}

#[test]
fn angles_and_distances_are_within_one_unit_on_a_sample() {
    let (x, y) = pairs(200_000);
    let truth: [(Two, fn(f64, f64) -> f64); 2] = [(math::atan2, f64::atan2), (math::hypot, f64::hypot)];
    for (f, truth) in truth {
        let mut worst = 0f64;
        for ((x, y), z) in x.iter().zip(&y).zip(of_two(f, &x, &y)) {
            let ulp = error(z, truth(f64::from(*x), f64::from(*y)));
            assert!(ulp < 0.75, "{x:e}, {y:e}: {z:e}, {ulp} ULP");
            worst = worst.max(ulp);
        }
        assert!(worst > 0.5, "the sample has hard cases");
    }
}

#[test]
fn special_angles_and_distances() {
    for x in ENDS {
        for (y, z) in ENDS.into_iter().zip(of_two(math::atan2, &[x; 13], &ENDS)) {
            let want = f64::from(x).atan2(f64::from(y));
            assert!(error(z, want) < 0.75, "atan2({x:e}, {y:e}) = {z:e}, not {want:e}");
            assert!(z.is_nan() || z.is_sign_negative() == want.is_sign_negative(), "{x:e}, {y:e}: {z:e}");
        }
        for (y, z) in ENDS.into_iter().zip(of_two(math::hypot, &[x; 13], &ENDS)) {
            let want = if x.is_nan() || y.is_nan() { f64::NAN } else { f64::from(x).hypot(f64::from(y)) };
            assert!(error(z, want) < 0.75 && !z.is_sign_negative(), "hypot({x:e}, {y:e}) = {z:e}");
        }
    }
}

/// The processor's rest is exact; what it has below the normal numbers is a zero here.
#[test]
fn rests_of_divisions_are_exact() {
    let want = |x: f32, y: f32| {
        let rest = x % y;
        if rest.is_subnormal() { 0f32.copysign(x) } else { rest }
    };
    let (x, y) = pairs(100_000);
    let mut cases: Vec<(f32, f32)> = x.into_iter().zip(y).collect();
    cases.extend(ENDS.into_iter().flat_map(|x| ENDS.map(|y| (x, y))));
    // All distances of exponents, with mantissas next to both ends.
    let ends = [1.0f32, 1.0f32.next_up(), 1.5, 2.0f32.next_down()];
    for d in 0..=253 {
        cases.extend(
            ends.into_iter().flat_map(|m| ends.map(|n| (m * 2f32.powi(d - 126), n * 2f32.powi(-126)))),
        );
    }
    let (x, y): (Vec<f32>, Vec<f32>) = cases.iter().copied().unzip();
    for ((x, y), z) in cases.into_iter().zip(of_two(math::fmod, &x, &y)) {
        let want = want(x, y);
        assert!(
            z.to_bits() == want.to_bits() || z.is_nan() && want.is_nan(),
            "{x:e} % {y:e}: {z:e}, not {want:e}"
        );
    }
}

/// No sample of pairs is all of them: x over all magnitudes and next to 1, y such that the power
/// stays normal.
#[test]
fn powers_are_within_one_unit_on_a_sample() {
    let mut rng = StdRng::seed_from_u64(3);
    let n = 200_000;
    let mut pair = |i: usize| {
        let x: f32 = match i % 4 {
            0 => 1.0 + rng.random_range(-1.0..1.0) * 10f32.powi(rng.random_range(-7..-1)),
            1 => rng.random_range(0.1..10.0),
            _ => 2f32.powf(rng.random_range(-125.0..127.0)),
        };
        let most = 126.0 / f64::from(x).log2().abs().max(1e-30);
        let y = rng.random_range(-1.0..1.0) * most.min(1e30) * if i.is_multiple_of(3) { 0.01 } else { 1.0 };
        (x, y as f32)
    };
    let (x, y): (Vec<f32>, Vec<f32>) = (0..n).map(&mut pair).unzip();
    let mut worst = 0f64;
    for ((x, y), z) in x.iter().zip(&y).zip(powers(&x, &y)) {
        let ulp = error(z, f64::from(*x).powf(f64::from(*y)));
        assert!(ulp < 0.75, "{x:e}^{y:e} = {z:e}: {ulp} ULP");
        worst = worst.max(ulp);
    }
    assert!(worst > 0.5, "the sample has hard cases");
}

#[test]
fn special_powers() {
    let (inf, nan, zero) = (f32::INFINITY, f32::NAN, 0.0);
    let values = [
        zero,
        -zero,
        1.0,
        -1.0,
        2.0,
        -2.0,
        3.0,
        -3.0,
        0.5,
        -0.5,
        2.5,
        -2.5,
        1e-30,
        1e30,
        -1e30,
        inf,
        -inf,
        16_777_215.0,
        8_388_607.5,
        -8_388_607.0,
        1.000_000_1,
        0.999_999_94,
    ];
    for x in values {
        let y = values;
        for (y, z) in y.into_iter().zip(powers(&[x; 22], &y)) {
            // The library's 1 for (−1)^±∞ is ours as well: large floats are even integers.
            let want = f64::from(x).powf(f64::from(y));
            let ulp = error(z, want);
            assert!(ulp < 0.75, "{x:e}^{y:e} = {z:e}, not {want:e}");
            assert!(z.is_nan() || z.is_sign_negative() == want.is_sign_negative(), "{x:e}^{y:e} = {z:e}");
        }
        assert!(powers(&[x, nan], &[nan, x]).iter().all(|z| z.is_nan()), "a NaN makes NaN, also of 1");
    }
}
