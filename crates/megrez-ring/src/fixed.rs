//! Fixed point: a real number x̃ is the ring element round(x̃ · 2^frac), negative numbers in two's complement.

use crate::Word;

/// A real number that fixed point cannot hold.
#[derive(Debug, thiserror::Error, PartialEq)]
pub enum FixedError {
    /// NaN or infinite.
    #[error("element {index} is not a finite number: fixed point has no NaN and no infinity")]
    NotFinite {
        /// Where it stands, in row-major order.
        index: usize,
    },
    /// Too large for the ring.
    #[error(
        "element {index} exceeds the range ±2^{limit_log2} of a {bits}-bit ring with {frac} fraction bits: \
         scale the data down, use fewer fraction bits, or a larger ring"
    )]
    OutOfRange {
        /// Where it stands, in row-major order.
        index: usize,
        /// ℓ.
        bits: u32,
        /// The fraction bits.
        frac: u32,
        /// The range is ±2^this.
        limit_log2: i32,
    },
}

/// Encodes real numbers with `frac` fraction bits, rounding to nearest. Values must lie in (−2^(ℓ−2), 2^(ℓ−2))·2^−frac:
/// one bit is left free because exact truncation needs |x| < 2^(ℓ−2).
pub fn encode<W: Word>(values: &[f32], frac: u32) -> Result<Vec<W>, FixedError> {
    let scale = 2f64.powi(frac as i32);
    let limit_log2 = W::BITS as i32 - 2;
    let limit = 2f64.powi(limit_log2);
    values
        .iter()
        .enumerate()
        .map(|(index, &v)| {
            if !v.is_finite() {
                return Err(FixedError::NotFinite { index });
            }
            let scaled = (f64::from(v) * scale).round();
            if scaled.abs() >= limit {
                let limit_log2 = limit_log2 - frac as i32;
                return Err(FixedError::OutOfRange { index, bits: W::BITS, frac, limit_log2 });
            }
            Ok(W::from_i64(scaled as i64))
        })
        .collect()
}

/// Decodes ring elements with `frac` fraction bits.
pub fn decode<W: Word>(words: &[W], frac: u32) -> Vec<f32> {
    let scale = 2f64.powi(-(frac as i32));
    words.iter().map(|w| (w.to_i64() as f64 * scale) as f32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn decoding_undoes_encoding_to_half_a_unit(v in -1e4f32..1e4) {
            let w = encode::<u64>(&[v], 20).unwrap();
            prop_assert!((decode(&w, 20)[0] - v).abs() <= 2f32.powi(-10) * v.abs().max(1.0) * 2f32.powi(-10));
        }
    }

    #[test]
    fn what_does_not_fit_is_refused_by_place() {
        assert_eq!(encode::<u32>(&[0.0, f32::NAN], 8), Err(FixedError::NotFinite { index: 1 }));
        assert!(matches!(
            encode::<u32>(&[0.0, 0.0, 4.2e6], 8),
            Err(FixedError::OutOfRange { index: 2, limit_log2: 22, .. })
        ));
        assert!(encode::<u32>(&[-4.19e6], 8).is_ok());
    }
}
