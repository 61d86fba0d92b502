//! What all splines of smooth activations compute with: |x| up to T, x cut to ±T, and max(x, 0),
//! from one comparison and one selection.

use crate::lowering::{Above, Lowering, Secret};
use crate::problem::Refusal;
use crate::range::Range;

/// What the polynomial in u is for.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Form {
    /// centre + v·q(u), between centre − ½·height and centre + ½·height.
    Sigmoid { centre: f32, height: f32 },
    /// max(x, 0) + p(u), never below −depth.
    SmoothRelu { depth: f32 },
}

/// What a spline computes with.
pub(super) struct Pieces {
    /// t − T/2.
    pub(super) centred: Secret,
    /// v, of a sigmoid.
    pub(super) clamped: Option<Secret>,
    /// max(x, 0).
    pub(super) positive: Secret,
    /// By how many words a wrong comparison moves one of them.
    pub(super) wrong: i128,
}

impl Form {
    /// One comparison with −T, 0 and T, one selection.
    pub(super) fn pieces(self, cx: &mut Lowering, x: &Secret, end: f32) -> Result<Pieces, Refusal> {
        let end = cx.encode(end, cx.frac())?;
        let Above { parts, wrong, .. } = cx.above("compare", x, &[-end, 0, end])?;
        let Ok([a, b, c]) = <[Secret; 3]>::try_from(parts) else { unreachable!("one part per border") };
        // A wrong comparison moves a part by `wrong` words.
        let (wrong, bound) = (4 * wrong, i128::from(end));
        let centred = cx
            .combine("magnitude", &[(-1, &a), (2, &b), (-1, &c)], end - end / 2)?
            .within(Range::uniform(-bound / 2 - wrong - 1, bound / 2 + wrong + 1));
        let clamped = match self {
            Form::Sigmoid { .. } => Some(
                cx.combine("clamped", &[(1, &a), (-1, &c)], -end)?
                    .within(Range::uniform(-bound - wrong, bound + wrong)),
            ),
            Form::SmoothRelu { .. } => None,
        };
        Ok(Pieces { centred, clamped, positive: b, wrong })
    }

    /// The bounds of the result with `frac` fraction bits, given those of max(x, 0) with f: what
    /// the function promises and `slack`.
    pub(super) fn range(self, frac: u32, slack: f64, f: u32, positive: &Range) -> Range {
        let word = |v: f64| (v * 2f64.powi(frac as i32)).ceil() as i128;
        let slack = word(slack);
        match self {
            Form::Sigmoid { centre, height } => {
                let (centre, half) = (word(centre.into()), word(f64::from(height) / 2.0));
                Range::uniform(centre - half - slack, centre + half + slack)
            }
            Form::SmoothRelu { depth } => {
                let lowest = -word(depth.into()) - slack;
                let (_, highest) = positive.hull();
                Range::uniform(lowest, (highest << (frac - f)) + slack)
            }
        }
    }
}
