//! The operations by name: for benchmarks, checks, lists of costs, and programs that come as data.

use crate::any::{AnyBlocks, Bit, Failure, Int};
use crate::blocks::Blocks;
use crate::float::Float;
use crate::format::Format;
use crate::programs::WORTH;
use crate::{
    add, add_cheap, div, div_cheap, eq, from_fixed, le, lt, math, max, min, mul, relu, sqrt, square, sub,
    to_fixed, whole,
};

/// Names of all operations.
pub const OPS: &[&str] = &[
    "lt",
    "le",
    "eq",
    "min",
    "max",
    "relu",
    "add",
    "add-cheap",
    "sub",
    "mul",
    "square",
    "div",
    "div-cheap",
    "sqrt",
    "sinpi",
    "cospi",
    "tanpi",
    "sin",
    "cos",
    "tan",
    "exp2",
    "exp",
    "log2",
    "ln",
    "log10",
    "log1p",
    "expm1",
    "pow",
    "sigmoid",
    "tanh",
    "sinh",
    "cosh",
    "asin",
    "acos",
    "atan",
    "atan2",
    "hypot",
    "fmod",
    "sign",
    "round",
    "floor",
    "ceil",
    "trunc",
    "erf",
    "to-fixed",
    "from-fixed",
];

/// Bits and fraction bits of the integers that `to-fixed` makes.
const FIXED: (u32, u32) = (32, 16);

/// What an operation gives.
pub enum Output {
    /// Numbers.
    Float(Float),
    /// Truth values.
    Bit(Bit),
    /// Integers.
    Int(Int),
}

impl Output {
    /// All lanes of all parts, of which there is one at least and all are of one kind.
    fn concat(b: &AnyBlocks, parts: &[Self]) -> Self {
        let ints = || parts.iter().filter_map(|p| if let Output::Int(x) = p { Some(x) } else { None });
        let bits = || parts.iter().filter_map(|p| if let Output::Bit(x) = p { Some(x) } else { None });
        let floats = || parts.iter().filter_map(|p| if let Output::Float(x) = p { Some(x) } else { None });
        match &parts[0] {
            Output::Float(_) => Output::Float(Float::concat(b, &floats().collect::<Vec<_>>())),
            Output::Bit(_) => Output::Bit(b.concat_bits(&bits().collect::<Vec<_>>())),
            Output::Int(_) => Output::Int(b.concat(&ints().collect::<Vec<_>>())),
        }
    }
}

/// How many operands an operation has; `None` if there is no such operation.
#[must_use]
pub fn operands(op: &str) -> Option<usize> {
    match op {
        "lt" | "le" | "eq" | "min" | "max" | "add" | "add-cheap" | "sub" | "mul" | "div" | "div-cheap"
        | "pow" | "atan2" | "hypot" | "fmod" => Some(2),
        _ => OPS.contains(&op).then_some(1),
    }
}

/// x op y, or op of x alone; `None` if there is no such operation.
///
/// `to-fixed` makes integers of 32 bits, 16 of them after the point; `from-fixed` takes x's
/// mantissas for such numbers, of 24 bits with a sign.
///
/// # Errors
/// If the blocks fail.
pub fn run(op: &str, b: &mut AnyBlocks, x: &Float, y: &Float) -> Result<Option<Output>, Failure> {
    let float = match op {
        "lt" => return Ok(Some(Output::Bit(lt(b, x, y)?))),
        "le" => return Ok(Some(Output::Bit(le(b, x, y)?))),
        "eq" => return Ok(Some(Output::Bit(eq(b, x, y)?))),
        "to-fixed" => return Ok(Some(Output::Int(to_fixed(b, x, FIXED.0, FIXED.1)?))),
        "from-fixed" => from_fixed(b, &x.man, true, FIXED.1, Format::FLOAT32)?,
        "min" => min(b, x, y)?,
        "max" => max(b, x, y)?,
        "relu" => relu(b, x)?,
        "add" => add(b, x, y)?,
        "add-cheap" => add_cheap(b, x, y)?,
        "sub" => sub(b, x, y)?,
        "mul" => mul(b, x, y)?,
        "square" => square(b, x)?,
        "div" => div(b, x, y)?,
        "div-cheap" => div_cheap(b, x, y)?,
        "sqrt" => sqrt(b, x)?,
        "sinpi" => math::sinpi(b, x)?,
        "cospi" => math::cospi(b, x)?,
        "tanpi" => math::tanpi(b, x)?,
        "sin" => math::sin(b, x)?,
        "cos" => math::cos(b, x)?,
        "tan" => math::tan(b, x)?,
        "exp2" => math::exp2(b, x)?,
        "exp" => math::exp(b, x)?,
        "log2" => math::log2(b, x)?,
        "ln" => math::ln(b, x)?,
        "log10" => math::log10(b, x)?,
        "log1p" => math::log1p(b, x)?,
        "expm1" => math::expm1(b, x)?,
        "pow" => math::pow(b, x, y)?,
        "sigmoid" => math::sigmoid(b, x)?,
        "tanh" => math::tanh(b, x)?,
        "sinh" => math::sinh(b, x)?,
        "cosh" => math::cosh(b, x)?,
        "asin" => math::asin(b, x)?,
        "acos" => math::acos(b, x)?,
        "atan" => math::atan(b, x)?,
        "atan2" => math::atan2(b, x, y)?,
        "hypot" => math::hypot(b, x, y)?,
        "fmod" => math::fmod(b, x, y)?,
        "sign" => whole::sign(b, x)?,
        "round" => whole::round(b, x)?,
        "floor" => whole::floor(b, x)?,
        "ceil" => whole::ceil(b, x)?,
        "trunc" => whole::trunc(b, x)?,
        "erf" => math::erf(b, x)?,
        _ => return Ok(None),
    };
    Ok(Some(Output::Float(float)))
}

/// As [`run`], in as many parts as run beside each other.
///
/// # Errors
/// If the blocks fail.
pub fn run_in_parts(op: &str, b: &mut AnyBlocks, x: &Float, y: &Float) -> Result<Option<Output>, Failure> {
    let lanes = x.lanes(b);
    let size = lanes.div_ceil(b.threads()).max(WORTH);
    let parts = b.parts(lanes.div_ceil(size).max(1), |b, i| {
        let range = i * size..lanes.min((i + 1) * size);
        run(op, b, &x.slice(b, range.clone()), &y.slice(b, range))
    })?;
    let parts: Option<Vec<Output>> = parts.into_iter().collect();
    Ok(parts.map(|parts| Output::concat(b, &parts)))
}
