//! Math functions on a sample of all inputs: a few of every exponent and sign, and those that others got wrong.

use megrez_float::accuracy::mpfr::Mpfr;
use megrez_float::accuracy::{DOUBT, FUNCTIONS, Function, Worst, confirm, error, measure, run};

/// Every exponent and sign, with mantissas at both ends and scattered between.
fn strata() -> Vec<u32> {
    let mantissas: Vec<u32> =
        (0..8).chain((1 << 23) - 8..1 << 23).chain((1..100).map(|i| (i * 84_673) & 0x007f_ffff)).collect();
    (0..512).flat_map(|top: u32| mantissas.iter().map(move |m| top << 23 | m)).collect()
}

/// Arguments where the public SECFLOAT code exceeds one unit in sin(πx), log2 of 1 and its neighbours, exp's last finite
/// result and the first infinite one, and the borders of the reductions.
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
        ("ln", inf, inf),
        ("ln", -inf, nan),
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
