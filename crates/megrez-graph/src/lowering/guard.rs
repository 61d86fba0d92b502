//! The guard: what rests on measured ranges is compared with them, and one bit says whether all of
//! it was right.
//!
//! A range is proven from those of a layer's operands. Where the proof is given up for what was
//! measured, the value itself is still proven to fit the ring as long as the operands are in their
//! ranges, so the comparisons with the measured bounds are exact. By induction over the layers: if
//! no comparison fails, every value was in the range that its steps were laid out for, and no word
//! has wrapped. If one fails, what follows may be wrong, the later comparisons too, but that one
//! has given 0 where all have to give 1, and no other gives more than 1.
//!
//! All values are compared together, when everything else is done: beside the layers, comparisons
//! would hold up steps that do not wait for them.

use super::operand::Secret;
use super::plan::Lowering;
use crate::problem::Refusal;
use crate::range::Range;
use std::collections::BTreeMap;

/// Where comparisons are fitted, what is compared together has as many bits, but for less than so
/// many. Where they are not, nothing follows from ranges, and all is compared together.
const GRAIN: u32 = 8;

impl Lowering<'_> {
    /// The bit that is 1 if some element of a guarded value was outside of its bounds, as a number;
    /// `None` if nothing is guarded.
    pub(crate) fn guarded(&mut self) -> Result<Option<Secret>, Refusal> {
        let guards = std::mem::take(&mut self.guards);
        if guards.is_empty() {
            return Ok(None);
        }
        let end = i128::from(i64::MAX);
        let word = |bound: i128| bound.clamp(-end, end) as i64;
        let mut groups: BTreeMap<Option<u32>, (i128, Vec<Secret>)> = BTreeMap::new();
        let mut all = 0;
        for (x, (low, high)) in &guards {
            let count = self.shape(x).elements();
            let x = self.reshape("elements", x, [count].into())?;
            let x = self.rescale("words", &x, 0)?;
            let above = self.combine("above", &[(1, &x)], -word(*low))?;
            let below = self.combine("below", &[(-1, &x)], word(*high))?;
            for distance in [above, below] {
                let most = distance.range.magnitude();
                let bits = (i128::BITS - most.leading_zeros()).next_multiple_of(GRAIN);
                let compared = self.exact_sign((1 << bits) - 1).bits;
                let (largest, group) = groups.entry(compared).or_default();
                *largest = most.max(*largest);
                group.push(distance);
                all += count;
            }
        }
        let mut inside = vec![];
        for (most, group) in groups.into_values() {
            let distances = self.concat("distances", &group.iter().collect::<Vec<_>>(), 0)?;
            let reached = self.reached("reached", &distances, most, false)?;
            let reached = self.bit_to_ring("reached-number", &reached)?;
            inside.push(self.sum("inside", &reached, 0)?);
        }
        let terms: Vec<(i64, &Secret)> = inside.iter().map(|inside| (-1, inside)).collect();
        let most = all as i128;
        let beyond = Range::uniform(-1, most - 1);
        let beyond = self.combine_within("outside-beyond-one", &terms, all as i64 - 1, beyond)?;
        let any = self.reached("any", &beyond, most, true)?;
        self.bit_to_ring("any-number", &any).map(Some)
    }
}
