//! Bounds on the words that a value can hold. They are exact integers, propagated step by step with
//! the very weights that are shared, roundings of truncations included: what they prove holds for
//! every input in its declared range.

use megrez_ring::Shape;
use serde::{Deserialize, Serialize};

/// The real numbers from `low` to `high`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// The smallest.
    pub low: f64,
    /// The largest.
    pub high: f64,
}

impl Interval {
    /// All x with |x| ≤ `bound`.
    pub fn abs(bound: f64) -> Self {
        Interval { low: -bound.abs(), high: bound.abs() }
    }
}

/// What to do where the bounds do not prove that the ring is large enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RangePolicy {
    /// Refuse to compile, naming the layer.
    Prove,
    /// Where proofs end, take what was measured on data, with its margin
    /// ([`CompileOptions::measured`](crate::CompileOptions::measured)), and mark the layer. Numbers
    /// beyond it may give wrong results; `megrez check` counts them.
    Calibrated,
    /// Compile, and list the layers whose ranges are assumed.
    Assume,
}

/// Bounds of the words of a value: one pair for each slice along dimension 1 (channels, features),
/// or one for all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range(Vec<(i128, i128)>);

impl Range {
    /// The same bounds for every element.
    pub fn uniform(low: i128, high: i128) -> Self {
        Range(vec![(low, high)])
    }

    /// Bounds per channel; at least one pair.
    pub fn per_channel(bounds: Vec<(i128, i128)>) -> Self {
        assert!(!bounds.is_empty());
        Range(bounds)
    }

    /// The bounds of channel `c`.
    pub fn channel(&self, c: usize) -> (i128, i128) {
        if self.0.len() == 1 { self.0[0] } else { self.0[c] }
    }

    /// The bounds of all elements together.
    pub fn hull(&self) -> (i128, i128) {
        let low = self.0.iter().map(|b| b.0).min().unwrap_or(0);
        (low, self.0.iter().map(|b| b.1).max().unwrap_or(0))
    }

    /// Whether there are numbers between all these bounds.
    pub fn holds_any(&self) -> bool {
        self.0.iter().all(|(low, high)| low <= high)
    }

    /// The same bounds, forgetting the channels.
    pub fn merged(&self) -> Self {
        Range(vec![self.hull()])
    }

    /// The largest |x|.
    pub fn magnitude(&self) -> i128 {
        let (low, high) = self.hull();
        low.saturating_abs().max(high.saturating_abs())
    }

    /// The image under a non-decreasing function.
    pub fn map(&self, f: impl Fn(i128) -> i128) -> Self {
        Range(self.0.iter().map(|&(low, high)| (f(low), f(high))).collect())
    }

    /// Combines the bounds of two values of one shape, channel by channel.
    pub fn zip(&self, other: &Range, f: impl Fn((i128, i128), (i128, i128)) -> (i128, i128)) -> Self {
        let channels = self.0.len().max(other.0.len());
        Range((0..channels).map(|c| f(self.channel(c), other.channel(c))).collect())
    }

    /// The tighter of two bounds that both hold.
    pub fn tighten(&self, other: &Range) -> Self {
        self.zip(other, |a, b| (a.0.max(b.0), a.1.min(b.1)))
    }

    /// Σ coefficient · value + constant.
    pub fn combine(terms: &[(i64, &Range)], constant: i64) -> Self {
        let start = Range::uniform(constant.into(), constant.into());
        terms.iter().fold(start, |sum, (c, range)| {
            sum.zip(range, |s, r| {
                let (low, high) = times((i128::from(*c), i128::from(*c)), r);
                (s.0.saturating_add(low), s.1.saturating_add(high))
            })
        })
    }

    /// The product of two values of one shape.
    pub fn product(&self, other: &Range) -> Self {
        self.zip(other, times)
    }

    /// The square of a value.
    pub fn square(&self) -> Self {
        let square = |(low, high): (i128, i128)| {
            let (low, high) = (low.saturating_abs(), high.saturating_abs());
            let (small, large) = (low.min(high), low.max(high));
            (small.saturating_mul(small), large.saturating_mul(large))
        };
        let each = self.0.iter().map(|&(low, high)| {
            let (small, large) = square((low, high));
            (if low <= 0 && high >= 0 { 0 } else { small }, large)
        });
        Range(each.collect())
    }

    /// `count` values of these bounds added up.
    pub fn sum(&self, count: usize) -> Self {
        self.map(|b| b.saturating_mul(count as i128))
    }

    /// After division by 2^bits, to the nearest integer below or above.
    pub fn truncated(&self, bits: u32) -> Self {
        let up = |b: i128| -((-b) >> bits);
        Range(self.0.iter().map(|&(low, high)| (low >> bits, up(high))).collect())
    }

    /// With zeros among the elements.
    pub fn with_zero(&self) -> Self {
        Range(self.0.iter().map(|&(low, high)| (low.min(0), high.max(0))).collect())
    }

    /// Clamped to |x| ≤ `limit`.
    pub fn clamped(&self, limit: i128) -> Self {
        self.map(|b| b.clamp(-limit, limit))
    }

    /// Each channel's bounds `times` times in a row.
    pub fn repeat_each(&self, times: usize) -> Self {
        if self.0.len() == 1 {
            return self.clone();
        }
        Range(self.0.iter().flat_map(|&b| std::iter::repeat_n(b, times)).collect())
    }

    /// The bounds of these channels, in this order.
    pub fn pick(&self, channels: &[usize]) -> Self {
        if self.0.len() == 1 {
            return self.clone();
        }
        Range(channels.iter().map(|&c| self.0[c]).collect())
    }

    /// Channels of several values one after the other; each value with its number of channels.
    pub fn join(parts: &[(&Range, usize)]) -> Self {
        Range(parts.iter().flat_map(|(r, n)| (0..*n).map(|c| r.channel(c))).collect())
    }

    /// The bounds that hold for all of several values.
    pub fn hull_of(parts: &[&Range]) -> Self {
        let mut all = parts[0].clone();
        for part in &parts[1..] {
            all = all.zip(part, |a, b| (a.0.min(b.0), a.1.max(b.1)));
        }
        all
    }

    /// The bounds of known words once they are broadcast from `shape` to `to`.
    pub fn of_words(words: &[i64], shape: &Shape, to: &Shape) -> Self {
        // Where dimension 1 of `to` is found in `shape`.
        let axis =
            (shape.rank() + 1).checked_sub(to.rank()).filter(|&a| to.rank() > 1 && shape.dims()[a] > 1);
        let Some(axis) = axis else {
            let low = words.iter().min().copied().unwrap_or(0);
            return Range::uniform(low.into(), words.iter().max().copied().unwrap_or(0).into());
        };
        let (channels, stride) = (shape.dims()[axis], shape.strides()[axis]);
        let mut bounds = vec![(i128::MAX, i128::MIN); channels];
        for (i, &w) in words.iter().enumerate() {
            let bound = &mut bounds[i / stride % channels];
            *bound = (bound.0.min(w.into()), bound.1.max(w.into()));
        }
        Range(bounds)
    }
}

/// The bounds of a·b.
fn times(a: (i128, i128), b: (i128, i128)) -> (i128, i128) {
    let corners = [(a.0, b.0), (a.0, b.1), (a.1, b.0), (a.1, b.1)].map(|(x, y)| x.saturating_mul(y));
    (corners.into_iter().min().unwrap_or(0), corners.into_iter().max().unwrap_or(0))
}

/// The bounds of a sum of products of known words with values of these bounds.
#[derive(Clone, Copy, Default)]
pub(crate) struct Accumulator {
    low: i128,
    high: i128,
}

impl Accumulator {
    /// Adds word · x.
    pub(crate) fn add(&mut self, word: i64, x: (i128, i128)) {
        let w = i128::from(word);
        let (low, high) = if w >= 0 { x } else { (x.1, x.0) };
        self.low = self.low.saturating_add(w.saturating_mul(low));
        self.high = self.high.saturating_add(w.saturating_mul(high));
    }

    pub(crate) fn bounds(self) -> (i128, i128) {
        (self.low, self.high)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_follow_the_arithmetic() {
        let x = Range::per_channel(vec![(-2, 3), (0, 5)]);
        let y = Range::uniform(-1, 1);
        assert_eq!(Range::combine(&[(2, &x), (-3, &y)], 1), Range::per_channel(vec![(-6, 10), (-2, 14)]));
        assert_eq!(x.product(&y), Range::per_channel(vec![(-3, 3), (-5, 5)]));
        let z = Range::per_channel(vec![(-2, 3), (-4, -1), (2, 5)]);
        assert_eq!(z.square(), Range::per_channel(vec![(0, 9), (1, 16), (4, 25)]));
        assert_eq!(x.truncated(1), Range::per_channel(vec![(-1, 2), (0, 3)]));
        assert_eq!((x.hull(), x.magnitude()), ((-2, 5), 5));
        assert_eq!(x.repeat_each(2), Range::per_channel(vec![(-2, 3), (-2, 3), (0, 5), (0, 5)]));
    }

    #[test]
    fn words_are_bounded_along_dimension_1() {
        let to = Shape::from([2, 3, 4]);
        let along = |shape: Shape, words: &[i64]| Range::of_words(words, &shape, &to);
        assert_eq!(along([3, 1].into(), &[1, -2, 3]), Range::per_channel(vec![(1, 1), (-2, -2), (3, 3)]));
        assert_eq!(along([4].into(), &[1, -2, 3, 0]), Range::uniform(-2, 3));
        assert_eq!(
            along([1, 3, 2].into(), &[1, 2, 3, 4, 5, 6]),
            Range::per_channel(vec![(1, 2), (3, 4), (5, 6)])
        );
        assert_eq!(along([].into(), &[7]), Range::uniform(7, 7));
    }

    #[test]
    fn absurd_bounds_saturate() {
        let x = Range::uniform(i128::MIN / 2, i128::MAX / 2);
        assert_eq!(x.sum(1 << 20).hull(), (i128::MIN, i128::MAX));
    }
}
