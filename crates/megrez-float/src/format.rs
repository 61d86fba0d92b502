//! Formats, and numbers in the clear.
//!
//! The rules for special values, the same in the clear and on shares:
//!
//! - Denormal inputs are zeros of their sign. A result is rounded to nearest, ties to even, as if
//!   the exponent had no bounds; below the smallest normal number it is then a zero of its sign,
//!   above the largest an infinity (x86 with FTZ and DAZ).
//! - Infinities and NaN behave as IEEE 754 says: ∞ − ∞, 0·∞, 0/0, ∞/∞, √x and log x of x < 0 are
//!   NaN; x/0 is ±∞; log 0 is −∞; anything with a NaN is NaN, and every comparison with one is
//!   false. There is one NaN, which is positive.
//! - A sum that is exactly zero is +0, unless both addends are −0.

use crate::blocks::mask;

/// A floating-point format: p exponent bits and q mantissa bits after the leading one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Format {
    /// Exponent bits, 3 to 11.
    pub p: u32,
    /// Mantissa bits after the leading one, 7 to 27.
    pub q: u32,
}

impl Format {
    /// IEEE single precision.
    pub const FLOAT32: Self = Self { p: 8, q: 23 };
    /// The upper half of single precision.
    pub const BFLOAT16: Self = Self { p: 8, q: 7 };
    /// NVIDIA's TensorFloat-32, 19 bits.
    pub const TF32: Self = Self { p: 8, q: 10 };
    /// Single precision with four more mantissa bits, for intermediate results.
    pub const WIDE: Self = Self { p: 8, q: 27 };

    /// The exponent of the smallest normal numbers.
    #[must_use]
    pub const fn min_exp(self) -> i64 {
        2 - (1 << (self.p - 1))
    }

    /// The exponent of the largest finite numbers.
    #[must_use]
    pub const fn max_exp(self) -> i64 {
        (1 << (self.p - 1)) - 1
    }

    /// Bits of the exponent's ring: two's complement with room for a sum.
    #[must_use]
    pub const fn exp_width(self) -> u32 {
        self.p + 2
    }

    /// Bits of the mantissa's ring: the leading one is its top bit.
    #[must_use]
    pub const fn man_width(self) -> u32 {
        self.q + 1
    }
}

/// Numbers in the clear, lane by lane, in the canonical form that every function takes and gives.
///
/// | | zero, inf, nan | exp | man |
/// | --- | --- | --- | --- |
/// | finite | 0, 0, 0 | from `min_exp` to `max_exp` | from 2^q to 2^(q+1) − 1 |
/// | zero | 1, 0, 0 | `min_exp` − 1 | 0 |
/// | infinity | 0, 1, 0 | `max_exp` + 1 | 2^q |
/// | NaN, with sign 0 | 0, 0, 1 | `max_exp` + 1 | 2^q |
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plain {
    /// The format.
    pub format: Format,
    /// Is a zero.
    pub zero: Vec<bool>,
    /// Is an infinity.
    pub inf: Vec<bool>,
    /// Is not a number.
    pub nan: Vec<bool>,
    /// Is negative.
    pub sign: Vec<bool>,
    /// The exponent in two's complement of `exp_width` bits.
    pub exp: Vec<u64>,
    /// The mantissa.
    pub man: Vec<u64>,
}

impl Plain {
    /// Reads numbers in the format's interchange encoding: sign, biased exponent, mantissa without
    /// the leading one.
    #[must_use]
    pub fn from_bits(format: Format, bits: &[u64]) -> Self {
        let Format { p, q } = format;
        let biased = |b: u64| b >> q & mask(p);
        let each = |f: &dyn Fn(u64) -> bool| bits.iter().map(|&b| f(b)).collect();
        let special = mask(p);
        Self {
            format,
            zero: each(&|b| biased(b) == 0),
            inf: each(&|b| biased(b) == special && b & mask(q) == 0),
            nan: each(&|b| biased(b) == special && b & mask(q) != 0),
            sign: each(&|b| b >> (p + q) & 1 == 1 && (biased(b) != special || b & mask(q) == 0)),
            exp: bits
                .iter()
                .map(|&b| biased(b).wrapping_add_signed(-format.max_exp()) & mask(p + 2))
                .collect(),
            man: bits
                .iter()
                .map(|&b| match biased(b) {
                    0 => 0,
                    e if e == special => 1 << q,
                    _ => 1 << q | b & mask(q),
                })
                .collect(),
        }
    }

    /// The interchange encoding. NaN becomes the positive quiet NaN without payload.
    #[must_use]
    pub fn to_bits(&self) -> Vec<u64> {
        let Format { p, q } = self.format;
        let one = |i: usize| {
            let sign = u64::from(self.sign[i]) << (p + q);
            if self.nan[i] {
                return mask(p) << q | 1 << (q - 1);
            }
            let biased = self.exp[i].wrapping_add_signed(self.format.max_exp()) & mask(p);
            sign | biased << q | self.man[i] & mask(q)
        };
        (0..self.man.len()).map(one).collect()
    }

    /// Single-precision numbers; denormal ones become zeros.
    #[must_use]
    pub fn from_f32(values: &[f32]) -> Self {
        let bits: Vec<u64> = values.iter().map(|v| u64::from(v.to_bits())).collect();
        Self::from_bits(Format::FLOAT32, &bits)
    }

    /// As single-precision numbers.
    ///
    /// # Panics
    /// If the format is another one.
    #[must_use]
    pub fn to_f32(&self) -> Vec<f32> {
        assert_eq!(self.format, Format::FLOAT32);
        self.to_bits().iter().map(|&b| f32::from_bits(b as u32)).collect()
    }
}
