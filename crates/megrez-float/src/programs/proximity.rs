//! Is a point on Earth nearer to another one than a threshold? SECFLOAT, Appendix M.
//!
//! With latitudes ψ and longitudes φ the haversine of the central angle is δ = sin²((ψ_A −
//! ψ_B)/2) + cos ψ_A · cos ψ_B · sin²((φ_A − φ_B)/2), and the distance is below d exactly if δ <
//! sin²(d/2R). So only δ is computed, and compared with a public number. Angles are in half-turns:
//! degrees divided by 180.

use crate::add::{add, sub};
use crate::any::{AnyBlocks, Bit, Failure, Int};
use crate::blocks::Blocks;
use crate::compare::lt;
use crate::convert::from_fixed;
use crate::float::Float;
use crate::format::Format;
use crate::math::{cospi, sinpi};
use crate::mul::mul;
use crate::single::only;

/// Earth's mean radius in metres.
const RADIUS: f64 = 6_371_008.8;

/// sin²(d/2R) of a distance in metres, below half of Earth's circumference.
#[must_use]
pub fn threshold(metres: f64) -> f32 {
    (metres / (2.0 * RADIUS)).sin().powi(2) as f32
}

/// Bits and fraction bits of the coordinates of [`half_vector`].
pub const FIXED: (u32, u32) = (50, 48);

/// The point, in half-turns, as a vector of length ½ in fixed point: what a party that knows its
/// own point computes by itself.
#[must_use]
pub fn half_vector(latitude: f64, longitude: f64) -> [u64; 3] {
    let (psi, phi) = (latitude * std::f64::consts::PI, longitude * std::f64::consts::PI);
    let unit = [psi.cos() * phi.cos(), psi.cos() * phi.sin(), psi.sin()];
    unit.map(|x| (x * 2f64.powi(FIXED.1 as i32 - 1)).round() as i64 as u64)
}

/// Scenario I, each party knows a point: δ is the squared distance of their [`half_vector`]s, all
/// first coordinates, then all second and all third ones. 3 conversions, 3 multiplications and 2
/// additions.
///
/// The paper's arrangement takes 6 multiplications and 5 additions of floats; for points near each
/// other, which are those that matter, it subtracts what is almost equal after rounding it.
/// Differences in fixed point are exact, and free.
///
/// # Errors
/// If the blocks fail.
pub fn chord(b: &mut AnyBlocks, point: &Int, other: &Int) -> Result<Float, Failure> {
    let lanes = b.lanes(point) / 3;
    let difference = b.sub(point, other);
    let difference = from_fixed(b, &difference, true, FIXED.1, Format::FLOAT32)?;
    let squares = mul(b, &difference, &difference)?;
    super::sum(b, &squares, lanes)
}

/// Scenario II, everything is shared: δ of [latitude, longitude] in half-turns. 4 multiplications,
/// 3 additions, 2 sines and 2 cosines.
///
/// # Errors
/// If the blocks fail.
pub fn haversine(b: &mut AnyBlocks, point: &[Float; 2], other: &[Float; 2]) -> Result<Float, Failure> {
    let lanes = point[0].lanes(b);
    let first: Vec<_> = (0..lanes).collect();
    let second: Vec<_> = (lanes..2 * lanes).collect();
    let angles = Float::concat(b, &point.each_ref());
    let others = Float::concat(b, &other.each_ref());
    let difference = sub(b, &angles, &others)?;
    let halves = halved(b, &difference)?;
    let sines = sinpi(b, &halves)?;
    let squares = mul(b, &sines, &sines)?;
    let latitudes = Float::concat(b, &[&point[0], &other[0]]);
    let cosines = cospi(b, &latitudes)?;
    let (cosine, other_cosine) = (cosines.gather(b, &first), cosines.gather(b, &second));
    let product = mul(b, &cosine, &other_cosine)?;
    let (latitude, longitude) = (squares.gather(b, &first), squares.gather(b, &second));
    let product = mul(b, &product, &longitude)?;
    add(b, &latitude, &product)
}

/// δ below the threshold.
///
/// # Errors
/// If the blocks fail.
pub fn nearer(b: &mut AnyBlocks, delta: &Float, threshold: f32) -> Result<Bit, Failure> {
    let bits = u64::from(threshold.to_bits());
    let threshold = Float::constant(b, Format::FLOAT32, bits, delta.lanes(b));
    lt(b, delta, &threshold)
}

/// x/2 for x that is special or far from the smallest normal number: a difference of angles is.
fn halved(b: &mut AnyBlocks, x: &Float) -> Result<Float, Failure> {
    let finite = b.not(&x.special(b));
    let step = only(b.widen(&[(&finite, x.format.exp_width())])?);
    Ok(Float { exp: b.sub(&x.exp, &step), ..x.clone() })
}
