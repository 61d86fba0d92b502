//! The finer splines of smooth activations: q or p of a higher degree in u, of [`super::spline`].
//!
//! With at most 16 fraction bits the degree is 7 ([`super::polynomial`]), three products deep
//! instead of two: two rounds, two products (a sigmoid: three) and as many truncations more. With
//! more fraction bits it is 15: two rounds and three products more again. They need the 64-bit
//! ring. `scripts/splines.py` fits the coefficients. Largest error over all x, in exact arithmetic:
//!
//! | function | degree 7: T | error | degree 15: T | error |
//! | --- | --- | --- | --- | --- |
//! | Sigmoid | 8 | 0.00017 | 16 | 0.000008 |
//! | Tanh | 4 | 0.00034 | 8 | 0.000016 |
//! | Erf | 2.75 | 0.00006 | 4 | 0.0000002 |
//! | Gelu | 3.75 | 0.00017 | 4 | 0.00007 |
//! | Swish (SiLU) | 8 | 0.0015 | 16 | 0.00008 |
//!
//! In degree 15 roundings of the powers of u come on top, some 2^−18 of a unit each.

use super::pieces::{Form, Pieces};
use super::polynomial::{argument_bits, degree_7, degree_15};
use crate::lowering::{Lowering, Secret};
use crate::problem::{Refusal, refuse};
use crate::range::Range;

/// The most fraction bits that degree 7 is good for.
const COARSE: u32 = 16;

/// The numbers of a finer spline: as those of [`super::spline::Spline`], with c0 to c7 or to c15
/// (of q for a sigmoid).
pub(super) struct Fine {
    end: f32,
    shift: u32,
    coefficients: &'static [f32],
    /// The largest error in exact arithmetic.
    pub(super) error: f32,
}

/// The one of the two that suits these fraction bits.
pub(super) fn of(fine: &'static [Fine; 2], frac: u32) -> &'static Fine {
    &fine[usize::from(frac > COARSE)]
}

pub(super) const SIGMOID: [Fine; 2] = [
    Fine {
        end: 8.0,
        shift: 2,
        coefficients: &[
            0.481_876_3,
            -0.412_027_6,
            0.280_725_6,
            -0.104_401_7,
            -0.068_847_7,
            0.132_710_1,
            -0.073_858_6,
            0.013_739_8,
        ],
        error: 0.00017,
    },
    Fine {
        end: 16.0,
        shift: 3,
        coefficients: &[
            0.499_671_8,
            -0.497_038_4,
            0.485_356_5,
            -0.454_532_8,
            0.418_585_9,
            -0.360_578_5,
            0.069_685_7,
            0.280_446_8,
            0.255_579_6,
            -0.921_092_1,
            -0.448_365_2,
            1.983_433_6,
            -0.769_663,
            -0.823_741,
            0.615_008_8,
            -0.082_753_8,
        ],
        error: 0.000_008,
    },
];

pub(super) const TANH: [Fine; 2] = [
    Fine {
        end: 4.0,
        shift: 1,
        coefficients: &[
            0.963_752_7,
            -0.824_055_2,
            0.561_451_2,
            -0.208_803_5,
            -0.137_695_4,
            0.265_420_2,
            -0.147_717_3,
            0.027_479_6,
        ],
        error: 0.00034,
    },
    Fine {
        end: 8.0,
        shift: 2,
        coefficients: &[
            0.999_343_6,
            -0.994_076_8,
            0.970_713,
            -0.909_065_5,
            0.837_171_8,
            -0.721_157_1,
            0.139_371_4,
            0.560_893_6,
            0.511_159_1,
            -1.842_184_2,
            -0.896_730_5,
            3.966_867_2,
            -1.539_326,
            -1.647_482_2,
            1.230_017_5,
            -0.165_507_6,
        ],
        error: 0.000_016,
    },
];

pub(super) const ERF: [Fine; 2] = [
    Fine {
        end: 2.75,
        shift: 1,
        coefficients: &[
            1.379_207,
            -1.511_245_2,
            0.830_669_6,
            0.651_514_8,
            -1.590_164_7,
            0.698_631_4,
            0.704_103_2,
            -0.602_297,
        ],
        error: 0.00006,
    },
    Fine {
        end: 4.0,
        shift: 1,
        coefficients: &[
            0.995_322_3,
            -0.953_987,
            0.788_641_2,
            -0.402_924_9,
            -0.147_947_3,
            0.567_758_1,
            -0.540_783_6,
            0.102_204,
            0.317_162_3,
            -0.322_633_3,
            0.018_899_8,
            0.156_530_8,
            -0.074_593_6,
            -0.022_436_4,
            0.021_687_9,
            -0.002_900_3,
        ],
        error: 0.000_000_2,
    },
];

pub(super) const GELU: [Fine; 2] = [
    Fine {
        end: 3.75,
        shift: 1,
        coefficients: &[
            -0.056_835_3,
            0.196_837_2,
            -0.211_886_5,
            -0.086_814,
            0.398_347_6,
            -0.251_708_4,
            -0.095_467_3,
            0.108_851_1,
        ],
        error: 0.00017,
    },
    Fine {
        end: 4.0,
        shift: 1,
        coefficients: &[
            -0.045_500_3,
            0.169_514_6,
            -0.215_964_2,
            0.035_429_9,
            0.287_958_9,
            -0.670_611_2,
            0.028_741_6,
            1.964_880_7,
            -0.088_925_4,
            -4.475_774_3,
            0.043_320_8,
            5.823_57,
            -0.011_035_9,
            -3.882_837_3,
            0.001_341_2,
            1.035_827_3,
        ],
        error: 0.000_07,
    },
];

/// The derivative of GELU, of degree 7: more degrees would have coefficients too large for the
/// roundings of powers.
const SLOPE: Fine = Fine {
    end: 4.0,
    shift: 1,
    coefficients: &[
        0.585_249_9,
        -0.804_349_3,
        0.803_576_2,
        -0.182_044_3,
        -0.533_405_3,
        0.434_982_9,
        0.060_337_9,
        -0.114_263_4,
    ],
    error: 0.00034,
};

pub(super) const GELU_SLOPE: [Fine; 2] = [SLOPE, SLOPE];

pub(super) const SWISH: [Fine; 2] = [
    Fine {
        end: 8.0,
        shift: 2,
        coefficients: &[
            -0.070_843_5,
            0.202_677_7,
            -0.297_189_6,
            0.218_158,
            0.259_934_7,
            -0.546_240_7,
            0.108_240_6,
            0.124_063_6,
        ],
        error: 0.0015,
    },
    Fine {
        end: 16.0,
        shift: 3,
        coefficients: &[
            -0.002_715_8,
            0.019_737_8,
            -0.060_292_5,
            0.103_050_6,
            -0.304_469_8,
            0.742_420_7,
            0.306_457_4,
            -2.391_327_4,
            -1.634_746_6,
            6.601_055,
            2.692_332_5,
            -10.065_871,
            -0.794_899_7,
            6.424_572,
            -0.201_735_5,
            -1.433_637_6,
        ],
        error: 0.000_08,
    },
];

impl Fine {
    /// On a value with f fraction bits; the result has f.
    pub(super) fn lower(&self, cx: &mut Lowering, x: &Secret, form: Form) -> Result<Secret, Refusal> {
        if cx.ring() < 64 {
            return refuse("the finer activations need the 64-bit ring", "leave out `--activations fine`");
        }
        let f = cx.frac();
        let Pieces { centred, clamped, positive, wrong } = form.pieces(cx, x, self.end)?;
        let argument = argument_bits(cx.ring());
        let u = cx.rescale("u", &centred, f + self.shift)?;
        let u = cx.rounded("u-rounded", &u, argument)?;
        // What roundings of the argument and of the powers make of the result.
        let (p, units) = match self.coefficients {
            [first @ .., _] if first.len() == 15 => {
                (degree_15(cx, &u, self.coefficients)?, 16.0 * self.weight())
            }
            _ => (degree_7(cx, &u, self.coefficients)?, 16.0),
        };
        let y = match (form, clamped) {
            (Form::Sigmoid { centre, .. }, Some(clamped)) => {
                let q =
                    cx.rounded("factor", &p, argument)?.within(Range::uniform(-8 << argument, 8 << argument));
                let v = cx.rescale("v", &clamped, f + self.shift)?;
                let y = cx.mul("last-product", &v, &q)?;
                let y = cx.rounded("scaled-back", &y, f)?;
                cx.combine("from-centre", &[(1, &y)], cx.encode(centre, f)?)?
            }
            _ => {
                let p = cx.rounded("correction", &p, f)?.within(Range::uniform(-8 << f, 8 << f));
                cx.combine("corrected", &[(1, &p), (1, &positive)], 0)?
            }
        };
        let slack = f64::from(self.error) + units * 2f64.powi(-(f.min(argument - 2) as i32));
        Ok(if wrong == 0 { y.within(form.range(f, slack, f, &positive.range)) } else { y })
    }

    /// Σ |c|.
    fn weight(&self) -> f64 {
        self.coefficients.iter().map(|c| f64::from(c.abs())).sum()
    }
}
