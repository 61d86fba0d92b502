//! The floating-point operations by name, for benchmarks, checks and price lists.

use megrez_float::blocks::Blocks;
use megrez_float::{Float, div, lt, math, mul, relu, sqrt};

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
