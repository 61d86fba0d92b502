//! Truncations of a shared word, as the parties compute them. x is the secret, f the bits to drop,
//! ℓ the ring; masks are uniform words. All of them give floor(x/2^f) or one more; where a mask
//! wraps around, the inexact ones are also off by 2^(ℓ−f): the big error e1.
//!
//! ```text
//! form            what the parties do                                                big errors
//! secureml        x0 = x + R, x1 = −R;  (x0 >> f) + −(−x1 >> f), logical shifts      |x| / 2^ℓ
//! aby3-printed    α = x + r opened;  (α >> f) − (r >> f), arithmetic shifts          |x| / 2^ℓ
//! mizar-fig10     m = x + r;  (m >> f) − (r >> f), logical shifts                    |x| / 2^ℓ
//! fixed-r         as aby3-printed with r = 2^f, always                               none: α − 2^f is the secret
//! truncate-first  aby3-printed on both operands before they are multiplied           (|x| + |w|) / 2^ℓ
//! exact           megrez: mizar-fig10, and the wrap is put right                     none for |x| < 2^(ℓ−2)
//! floor           no shares at all                                                   none
//! ```
//!
//! Shares of the result are not re-randomised: that would cancel out when they are added, and
//! nobody sees them here.

use megrez_ring::Word;
use serde::Serialize;

/// A form of truncation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Form {
    /// Two parties shift their shares (SecureML; Algorithm 1 of the truncation paper).
    #[serde(rename = "secureml")]
    SecureMl,
    /// The masked value is opened and shifted, and so was the dealt mask (ABY3; Algorithm 2 of the
    /// truncation paper).
    Aby3Printed,
    /// Masked value and mask are shifted (MIZAR, Fig. 10).
    MizarFig10,
    /// ABY3's with the constant 2^f where the random mask should be, as public implementations have
    /// it. Not secure.
    FixedR,
    /// No truncation after a product: both operands lose half of their fraction bits before, in
    /// ABY3's form.
    TruncateFirst,
    /// What megrez's protocols do.
    Exact,
    /// floor(x/2^f), the oracle.
    Floor,
}

impl Form {
    /// All forms.
    pub const ALL: [Form; 7] = [
        Form::SecureMl,
        Form::Aby3Printed,
        Form::MizarFig10,
        Form::FixedR,
        Form::TruncateFirst,
        Form::Exact,
        Form::Floor,
    ];

    /// The name on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Form::SecureMl => "secureml",
            Form::Aby3Printed => "aby3-printed",
            Form::MizarFig10 => "mizar-fig10",
            Form::FixedR => "fixed-r",
            Form::TruncateFirst => "truncate-first",
            Form::Exact => "exact",
            Form::Floor => "floor",
        }
    }

    /// The form of this name.
    pub fn named(name: &str) -> Option<Form> {
        Form::ALL.into_iter().find(|f| f.name() == name)
    }

    /// x / 2^f from shares under these masks; f < ℓ. The mask of forms with a dealt r is the sum of
    /// both.
    pub fn truncate<W: Word>(self, x: W, f: u32, masks: [W; 2]) -> W {
        let r = masks[0].add(masks[1]);
        match self {
            Form::SecureMl => {
                let [x0, x1] = [x.add(masks[0]), masks[0].neg()];
                x0.shr(f).add(x1.neg().shr(f).neg())
            }
            Form::Aby3Printed | Form::TruncateFirst => signed_shift(x.add(r), f).sub(signed_shift(r, f)),
            Form::MizarFig10 => x.add(r).shr(f).sub(r.shr(f)),
            Form::FixedR => {
                let r = W::ONE.shl(f);
                signed_shift(x.add(r), f).sub(signed_shift(r, f))
            }
            Form::Exact => exact(x.add(r), r, f),
            Form::Floor => signed_shift(x, f),
        }
    }
}

/// The truncation of m − r as megrez's protocols have it: (m'>>f) − 2^(ℓ−2−f) − (r>>f) +
/// (1−μ)·msb(r)·2^(ℓ−f) with m' = m + 2^(ℓ−2), μ = msb(m').
pub fn exact<W: Word>(m: W, r: W, f: u32) -> W {
    let quarter = W::ONE.shl(W::BITS - 2);
    let m = m.add(quarter);
    let y = m.shr(f).sub(quarter.shr(f)).sub(r.shr(f));
    let wraps = (1 - m.msb()) * r.msb();
    // 2^(ℓ−f) is 0 in the ring for f = 0.
    if f == 0 { y } else { y.add(W::from_u64(wraps << (W::BITS - f))) }
}

/// [x ≥ 0] of x = m − r as a comparison of `width` bits sees it after `cut` low bits are cut from m
/// and r each.
pub fn cut_sign<W: Word>(m: W, r: W, cut: u32, width: u32) -> bool {
    let difference = (m.to_u64() >> cut).wrapping_sub(r.to_u64() >> cut);
    (difference >> (width - 1)) & 1 == 0
}

/// Whether y is off from x/2^f by more than the last bit.
pub fn is_big_error<W: Word>(x: W, f: u32, y: W) -> bool {
    y.sub(signed_shift(x, f)).to_u64() > 1
}

/// floor(x / 2^f) of a signed word.
fn signed_shift<W: Word>(x: W, f: u32) -> W {
    W::from_i64(x.to_i64() >> f)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Big errors among all 256 masks, and the sum of the last-bit errors of the others.
    fn over_all_masks(form: Form, x: i64, f: u32) -> (u64, u64) {
        let (mut big, mut small) = (0, 0);
        for r in 0..=255u8 {
            // Any split of r does: the forms use the first mask or the sum.
            let y = form.truncate(Word::from_i64(x), f, [r, 0]);
            assert_eq!(
                y,
                if form == Form::SecureMl {
                    y
                } else {
                    form.truncate(Word::from_i64(x), f, [7, r.wrapping_sub(7)])
                }
            );
            if is_big_error(Word::from_i64(x), f, y) {
                big += 1;
            } else {
                small += u64::from(y.wrapping_sub((x >> f) as u8));
            }
        }
        (big, small)
    }

    #[test]
    fn inexact_forms_err_for_exactly_x_of_the_masks() {
        for f in 1..6 {
            for x in -127i64..128 {
                for form in [Form::SecureMl, Form::Aby3Printed, Form::MizarFig10] {
                    assert_eq!(over_all_masks(form, x, f).0, x.unsigned_abs(), "{form:?}, x = {x}, f = {f}");
                }
            }
        }
    }

    #[test]
    fn the_printed_bound_holds_and_is_twice_too_careful() {
        // Theorem 1: at most 2^-(ℓ−ℓ_x−1) for |x| < 2^ℓ_x.
        for length in 1..7u32 {
            let worst = (1i64 << length) - 1;
            let bound = 256 >> (8 - length - 1);
            for form in [Form::SecureMl, Form::Aby3Printed] {
                let (big, _) = over_all_masks(form, worst, 3);
                assert!(big <= bound && 2 * (big + 1) >= bound, "{form:?}: {big} of 256, bound {bound}");
            }
        }
    }

    #[test]
    fn the_exact_form_has_no_big_error_and_no_bias() {
        for f in 1..6 {
            for x in -64i64..64 {
                let fraction = x.rem_euclid(1 << f) as u64;
                // One more in frac(x/2^f) of all masks.
                assert_eq!(over_all_masks(Form::Exact, x, f), (0, fraction * (256 >> f)), "x = {x}, f = {f}");
            }
        }
        // Beyond a quarter of the ring it is not exact.
        assert!(over_all_masks(Form::Exact, 65, 3).0 > 0 && over_all_masks(Form::Exact, -65, 3).0 > 0);
    }

    #[test]
    fn a_fixed_mask_hides_the_errors_and_nothing_else() {
        for x in -128i64..120 {
            assert_eq!(over_all_masks(Form::FixedR, x, 3), (0, 0), "rounds down, whatever the masks are");
        }
        // What all parties see is x + 2^f: different secrets give different openings, every time.
        assert!(
            (120..128).all(|x| over_all_masks(Form::FixedR, x, 3).0 == 256),
            "and still wraps at the top"
        );
    }

    #[test]
    fn truncating_first_errs_as_the_operands_do() {
        // P(some operand wraps) at ℓ = 8 over all pairs of masks, against P of the product at the
        // same scale.
        let (x, w, f) = (9u8, 7u8, 2);
        let mut wrong = 0;
        for a in 0..=255u8 {
            for b in 0..=255u8 {
                let operand = |v, r| is_big_error(v, f, Form::TruncateFirst.truncate(v, f, [r, 0]));
                wrong += u32::from(operand(x, a) || operand(w, b));
            }
        }
        let theory = 1.0 - (1.0 - 9.0 / 256.0) * (1.0 - 7.0 / 256.0);
        assert!((f64::from(wrong) / 65536.0 - theory).abs() < 1e-12);
        assert_eq!(over_all_masks(Form::Aby3Printed, 63, 2 * f).0, 63);
    }

    #[test]
    fn cut_comparisons_err_for_small_negative_numbers_only() {
        let (cut, width) = (3, 4);
        for x in -64i64..=56 {
            let wrong = (0..=255u8).filter(|&r| {
                let m = r.wrapping_add(x as u8);
                cut_sign(m, r, cut, width) != (x >= 0)
            });
            // −2^k < x < 0 counts as positive with probability 1 − |x|/2^k.
            let expected = if -8 < x && x < 0 { (8 - x.unsigned_abs()) * 32 } else { 0 };
            assert_eq!(wrong.count() as u64, expected, "x = {x}");
        }
        // Larger numbers than the comparison holds are a bug of whoever chose its width.
        assert!((0..=255u8).any(|r| !cut_sign(r.wrapping_add(70), r, cut, width)));
    }

    #[test]
    fn names_are_the_serialised_ones() {
        for form in Form::ALL {
            assert_eq!(serde_json::to_value(form).unwrap(), form.name());
            assert_eq!(Form::named(form.name()), Some(form));
        }
    }
}
