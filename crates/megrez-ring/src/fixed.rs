//! Fixed point: a real number x̃ is the ring element round(x̃ · 2^frac), negative numbers in two's
//! complement.

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

/// Real numbers as integers with `frac` fraction bits, rounded to nearest, for a ring of `bits`
/// bits. Values must lie in (−2^(ℓ−2), 2^(ℓ−2))·2^−frac: one bit is left free because stochastic
/// truncation without large errors needs |x| < 2^(ℓ−2).
pub fn integers(bits: u32, values: &[f32], frac: u32) -> impl Iterator<Item = Result<i64, FixedError>> {
    let scale = 2f64.powi(frac as i32);
    let limit_log2 = bits as i32 - 2;
    let limit = 2f64.powi(limit_log2);
    values.iter().enumerate().map(move |(index, &v)| {
        if !v.is_finite() {
            return Err(FixedError::NotFinite { index });
        }
        let scaled = (f64::from(v) * scale).round();
        if scaled.abs() >= limit {
            return Err(FixedError::OutOfRange { index, bits, frac, limit_log2: limit_log2 - frac as i32 });
        }
        Ok(scaled as i64)
    })
}

/// The real number that an integer with `frac` fraction bits stands for.
fn real(integer: i64, frac: u32) -> f32 {
    (integer as f64 * 2f64.powi(-(frac as i32))) as f32
}

/// Encodes real numbers as elements of the ring of `W`: see [`integers`].
pub fn encode<W: Word>(values: &[f32], frac: u32) -> Result<Vec<W>, FixedError> {
    integers(W::BITS, values, frac).map(|v| v.map(W::from_i64)).collect()
}

/// Decodes ring elements with `frac` fraction bits.
pub fn decode<W: Word>(words: &[W], frac: u32) -> Vec<f32> {
    words.iter().map(|w| real(w.to_i64(), frac)).collect()
}

/// As [`encode`], for a ring whose width is known at run time, 8 to 64 bits; the unused high bits
/// of a word are zero.
pub fn encode_words(ring: u32, values: &[f32], frac: u32) -> Result<Vec<u64>, FixedError> {
    let unused = 64 - ring;
    integers(ring, values, frac).map(|v| v.map(|v| (v as u64) << unused >> unused)).collect()
}

/// As [`decode`], for words of [`encode_words`].
pub fn decode_words(ring: u32, words: &[u64], frac: u32) -> Vec<f32> {
    let unused = 64 - ring;
    words.iter().map(|&w| real((w << unused) as i64 >> unused, frac)).collect()
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
    fn words_are_ring_elements_whatever_the_width() {
        fn agree<W: Word>() {
            let values = [0.0, 1.5, -1.5, -0.25, 7.75, -8.0];
            let elements = encode::<W>(&values, 2).unwrap();
            let words: Vec<u64> = elements.iter().map(|w| w.to_u64()).collect();
            assert_eq!(encode_words(W::BITS, &values, 2), Ok(words.clone()));
            assert_eq!(decode_words(W::BITS, &words, 2), decode(&elements, 2));
            assert_eq!(decode(&elements, 2), values);
        }
        agree::<u8>();
        agree::<u16>();
        agree::<u32>();
        agree::<u64>();
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
