//! The floating-point operations by name, for benchmarks, checks and price lists.

use megrez_float::blocks::Blocks;
use megrez_float::{Clear, Float, Format, Plain, div, lt, math, mul, relu, sqrt};
use megrez_prg::Key;

/// Names of all operations.
pub const OPS: &[&str] =
    &["lt", "mul", "add", "div", "sqrt", "sinpi", "cospi", "tanpi", "exp2", "exp", "log2", "ln", "relu"];

/// What an operation gives.
pub enum Output<B: Blocks> {
    /// Numbers.
    Float(Float<B>),
    /// Truth values.
    Bit(B::Bit),
}

/// x op y, or op of x alone; `None` if there is no such operation.
///
/// # Errors
/// If the blocks fail.
pub fn run<B: Blocks>(
    op: &str,
    b: &mut B,
    x: &Float<B>,
    y: &Float<B>,
) -> Result<Option<Output<B>>, B::Error> {
    let float = match op {
        "lt" => return Ok(Some(Output::Bit(lt(b, x, y)?))),
        "mul" => mul(b, x, y)?,
        "add" => megrez_float::add(b, x, y)?,
        "div" => div(b, x, y)?,
        "sqrt" => sqrt(b, x)?,
        "sinpi" => math::sinpi(b, x)?,
        "cospi" => math::cospi(b, x)?,
        "tanpi" => math::tanpi(b, x)?,
        "exp2" => math::exp2(b, x)?,
        "exp" => math::exp(b, x)?,
        "log2" => math::log2(b, x)?,
        "ln" => math::ln(b, x)?,
        "relu" => relu(b, x)?,
        _ => return Ok(None),
    };
    Ok(Some(Output::Float(float)))
}

/// Single-precision test data of all kinds: special values, values of similar size, values that differ from those of other
/// seeds in their last bits only, and arbitrary encodings.
#[must_use]
pub fn sample(seed: u64, lanes: usize) -> Plain {
    let words =
        |seed: u64| Key::agree("megrez 2026 test data", &seed.to_le_bytes(), &[]).stream().words(lanes);
    let common = words(u64::MAX);
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
}

impl Opened {
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
            _ => usize::MAX,
        }
    }
}

/// The result in the clear; `None` if there is no such operation.
#[must_use]
pub fn in_the_clear(op: &str, x: &Plain, y: &Plain) -> Option<Opened> {
    let (x, y) = (Float::public(&Clear, x), Float::public(&Clear, y));
    let Ok(out) = run(op, &mut Clear, &x, &y);
    Some(match out? {
        Output::Float(z) => Opened::Float(z.plain()),
        Output::Bit(z) => Opened::Bit(z.0.into_iter().map(|b| b == 1).collect()),
    })
}
