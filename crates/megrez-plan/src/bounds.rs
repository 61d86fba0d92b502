//! Whether values keep to bounds, as one bit.

use crate::{Fewest, KEPT, Kind, List, Op, Plan, PlanError, SignBit, Value, View};

/// A value, by its name, and the logarithm of what the sum of its squares stays below.
pub type Bounded<'a> = (&'a str, &'a Value, u32);

impl Plan {
    /// The output of [`within_bounds`](Self::within_bounds).
    pub const WITHIN_BOUNDS: &'static str = "within-bounds";

    /// The plan that tells `recipient` whether kept values are within bounds, 1, or not, 0: the sum
    /// of squares s of each, one scalar product, is at least 0 and below 2^b. Of numbers that have
    /// left the ring and come back anywhere in it, s is within the bound by a chance of
    /// 2^(b + 2f − ℓ). All comparisons are counted, and what is opened is whether all hold.
    ///
    /// On a ring of ℓ bits; f fraction bits of the value, b + 2f ≤ ℓ − 2.
    ///
    /// # Errors
    /// If a value is no number on the ring, two have one name, or there are none.
    pub fn within_bounds(ring: u32, bounded: &[Bounded<'_>], recipient: &str) -> Result<Self, PlanError> {
        let mut plan = Plan::new(ring);
        let mut sums = vec![];
        for &(name, value, below) in bounded {
            let frac = match value.kind {
                Kind::Ring { frac }
                    if below.saturating_add(frac.saturating_mul(2)) <= ring.saturating_sub(2) =>
                {
                    frac
                }
                _ => return Err(PlanError::Malformed),
            };
            let n = value.shape.elements();
            let all = plan.input(name, KEPT, value.shape.clone(), frac);
            let mut flat = |part: &str, dims: [usize; 2]| {
                plan.step(&format!("{name}/{part}"), Op::View(View::whole(dims.into())), &[all])
            };
            let (row, column) = (flat("row", [1, n])?, flat("column", [n, 1])?);
            let sum = plan.step(&format!("{name}/squares"), Op::MatMul, &[row, column])?;
            // As words: sums of any scale stand in one row.
            let sum = plan.step(&format!("{name}/words"), Op::Rescale { frac: 0 }, &[sum])?;
            let most = (1i64 << (below + 2 * frac)) - 1;
            let room = Op::Combine { coefficients: vec![-1], constant: most };
            sums.extend([sum, plan.step(&format!("{name}/room"), room, &[sum])?]);
        }
        let sign = Op::NonNegative(SignBit { list: List::digits(ring, Fewest::Total), cut: 0, bits: None });
        let all = plan.step("bounds", Op::Concat { axis: 1 }, &sums)?;
        let kept = plan.step("bounds/kept", sign.clone(), &[all])?;
        let kept = plan.step("bounds/ones", Op::BitToRing, &[kept])?;
        let count = plan.step("bounds/count", Op::Sum { axis: 1 }, &[kept])?;
        let lacks = Op::Combine { coefficients: vec![1], constant: -(sums.len() as i64) };
        let lacks = plan.step("bounds/lacks", lacks, &[count])?;
        let none = plan.step("bounds/none", sign, &[lacks])?;
        let none = plan.step("bounds/bit", Op::BitToRing, &[none])?;
        plan.output(Self::WITHIN_BOUNDS, recipient, none);
        plan.validate()?;
        Ok(plan)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_that_the_ring_has_no_room_for_are_none() {
        let of = |frac| Value { shape: [3].into(), kind: Kind::Ring { frac } };
        let plan = |frac, below| Plan::within_bounds(64, &[("w", &of(frac), below)], "alice");
        assert!(plan(16, 30).is_ok() && plan(0, 62).is_ok());
        assert!(plan(16, 31).is_err() && plan(31, 1).is_err() && plan(0, u32::MAX).is_err());
        assert!(Plan::within_bounds(64, &[], "alice").is_err());
        let (value, bit) = (of(16), Value { shape: [3].into(), kind: Kind::Bit });
        assert!(Plan::within_bounds(64, &[("w", &bit, 1)], "alice").is_err());
        assert!(Plan::within_bounds(64, &[("w", &value, 1), ("w", &value, 1)], "alice").is_err());
        assert!(Plan::within_bounds(64, &[("w", &value, 1)], "").is_err());
    }
}
