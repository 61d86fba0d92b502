//! The floating-point operations on test data, in the clear and opened: what benchmarks and checks
//! compare.

use crate::Supplier;
pub use megrez_float::ops::{OPS, Output, operands, run, run_in_parts};
use megrez_float::{Format, Plain, plain_bits, plain_ints};
use megrez_prg::Key;
use megrez_session::Error;

/// Single-precision test data of all kinds: special values, values of similar size, values that
/// differ from those of the other seed of a pair (2n and 2n + 1) in their last bits only, and
/// arbitrary encodings.
#[must_use]
pub fn sample(seed: u64, lanes: usize) -> Plain {
    let words =
        |seed: u64| Key::agree("megrez 2026 test data", &seed.to_le_bytes(), &[]).stream().words(lanes);
    let common = words(u64::MAX - seed / 2);
    let one = |(i, (w, common)): (usize, (u64, u64))| {
        let sign = w & 0x8000_0000;
        match i % 16 {
            0 => sign | [0, 0x7f80_0000, 0x7fc0_0000, 0x3f80_0000][(w >> 40) as usize % 4],
            1..6 => w & 0x807f_ffff | (110 + (w >> 40) % 35) << 23,
            6..9 => sign | (common & 0x7fff_ffff) ^ w & 3,
            _ => w & 0xffff_ffff,
        }
    };
    let bits: Vec<u64> = words(seed).into_iter().zip(common).enumerate().map(one).collect();
    Plain::from_bits(Format::FLOAT32, &bits)
}

/// What an operation gives, opened.
#[derive(Debug, PartialEq)]
pub enum Opened {
    /// Numbers.
    Float(Plain),
    /// Truth values.
    Bit(Vec<bool>),
    /// Integers.
    Int(Vec<u64>),
}

impl Opened {
    /// Opens a result to the parties that compute; `None` at another.
    ///
    /// # Errors
    /// If the session breaks.
    pub fn of<S: Supplier>(b: &mut S, output: &Output) -> Result<Option<Self>, Error> {
        Ok(match output {
            Output::Float(z) => b.open(z)?.map(Self::Float),
            Output::Bit(z) => b.open_bits(z)?.map(Self::Bit),
            Output::Int(z) => b.open_ints(z)?.map(Self::Int),
        })
    }

    /// The result of a program that ran in the clear.
    #[must_use]
    pub fn plain(output: &Output) -> Self {
        match output {
            Output::Float(z) => Self::Float(z.plain()),
            Output::Bit(z) => Self::Bit(plain_bits(z).0.iter().map(|&v| v == 1).collect()),
            Output::Int(z) => Self::Int(plain_ints(z).v),
        }
    }

    /// In how many lanes two results differ.
    #[must_use]
    pub fn differences(&self, other: &Self) -> usize {
        match (self, other) {
            (Self::Float(x), Self::Float(y)) => {
                let same = |i: usize| {
                    [&x.zero, &x.inf, &x.nan, &x.sign].map(|f| f[i])
                        == [&y.zero, &y.inf, &y.nan, &y.sign].map(|f| f[i])
                        && (x.exp[i], x.man[i]) == (y.exp[i], y.man[i])
                };
                (0..x.man.len()).filter(|&i| !same(i)).count()
            }
            (Self::Bit(x), Self::Bit(y)) => x.iter().zip(y).filter(|(x, y)| x != y).count(),
            (Self::Int(x), Self::Int(y)) => x.iter().zip(y).filter(|(x, y)| x != y).count(),
            _ => usize::MAX,
        }
    }
}

/// The result in the clear; `None` if there is no such operation.
#[must_use]
pub fn in_the_clear(op: &str, x: &Plain, y: &Plain) -> Option<Opened> {
    megrez_float::in_the_clear(|b| run(op, b, &x.secret(), &y.secret())).as_ref().map(Opened::plain)
}
