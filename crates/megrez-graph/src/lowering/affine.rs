//! Values that are sums of earlier ones, element by element: terms that occur twice cancel, where
//! bounds alone would count them twice.

use super::operand::Secret;
use crate::range::Range;

/// More terms than these are not followed.
const MOST: usize = 12;

/// Σ coefficient · value + constant of values of one shape, as integers: no word of it has wrapped.
#[derive(Clone)]
pub(super) struct Affine {
    terms: Vec<(i64, Secret)>,
    constant: i64,
}

impl Affine {
    /// A value by itself.
    pub(super) fn of(x: &Secret) -> Self {
        Affine { terms: vec![(1, x.clone())], constant: 0 }
    }

    /// Σ coefficient · sum + constant; `None` where it gets too long or too large to follow.
    pub(super) fn sum(terms: &[(i64, Affine)], constant: i64) -> Option<Self> {
        let mut sum = Affine { terms: vec![], constant };
        for (factor, affine) in terms {
            sum.constant = affine.constant.checked_mul(*factor)?.checked_add(sum.constant)?;
            for (coefficient, x) in &affine.terms {
                let coefficient = coefficient.checked_mul(*factor)?;
                match sum.terms.iter_mut().find(|(_, known)| known.id == x.id) {
                    Some((known, _)) => *known = known.checked_add(coefficient)?,
                    None => sum.terms.push((coefficient, x.clone())),
                }
            }
        }
        sum.terms.retain(|(coefficient, _)| *coefficient != 0);
        (sum.terms.len() <= MOST).then_some(sum)
    }

    /// The bounds that follow.
    pub(super) fn range(&self) -> Range {
        let terms: Vec<(i64, &Range)> = self.terms.iter().map(|(c, x)| (*c, &x.range)).collect();
        Range::combine(&terms, self.constant)
    }
}
