//! The guard: what rests on measured ranges is compared with them, and one bit says whether all of
//! it was right.
//!
//! A range is proven from those of a layer's operands. Where the proof is given up for what was
//! measured, the value itself is still proven to fit the ring as long as the operands are in their
//! ranges, so the comparisons with the measured bounds are exact. By induction over the layers: if
//! no comparison fails, every value was in the range that its steps were laid out for, and no word
//! has wrapped. If one fails, what follows may be wrong, the later comparisons too, but that one
//! has been counted: an element inside counts 1, one that is outside 0, and where comparisons are
//! wrong −1 to 1. So nothing makes up for an element outside, and no count exceeds twice the number
//! of elements, which the last comparison has room for.

use super::operand::Secret;
use super::plan::Lowering;
use crate::problem::Refusal;
use crate::range::Range;
use megrez_ring::Shape;

impl Lowering<'_> {
    /// Counts the elements of x that lie within these bounds, words at its scale.
    pub(super) fn guard(&mut self, x: &Secret, (low, high): (i128, i128)) -> Result<(), Refusal> {
        let word = |bound: i128| bound.clamp(i64::MIN.into(), i64::MAX.into()) as i64;
        let (shape, borders) = (self.shape(x).clone(), [word(low), word(high.saturating_add(1))]);
        let count = shape.elements();
        let reached = self.thermometer("guard", x, &borders)?;
        let reached = self.bit_to_ring("guard-number", &reached)?;
        let parts = self.unstack("guard-bound", &reached, &Shape::from([count]))?;
        let inside = self.combine_within(
            "guard-inside",
            &[(1, &parts[0]), (-1, &parts[1])],
            0,
            Range::uniform(-1, 1),
        )?;
        let inside = self.sum("guard-sum", &inside, 0)?;
        self.guards.push((inside, count));
        Ok(())
    }

    /// The bit that is 1 if some element was outside, as a number; `None` if nothing is guarded.
    pub(crate) fn guarded(&mut self) -> Result<Option<Secret>, Refusal> {
        let guards = std::mem::take(&mut self.guards);
        let all: usize = guards.iter().map(|(_, count)| count).sum();
        if guards.is_empty() {
            return Ok(None);
        }
        let terms: Vec<(i64, &Secret)> = guards.iter().map(|(inside, _)| (-1, inside)).collect();
        let most = 2 * all as i128;
        let beyond = Range::uniform(-1, most - 1);
        let beyond = self.combine_within("outside-beyond-one", &terms, all as i64 - 1, beyond)?;
        let any = self.reached("any", &beyond, most, true)?;
        self.bit_to_ring("any-number", &any).map(Some)
    }
}
