//! Bit matrices on their side: 128 rows become one 128-bit block per column.

/// Words between the starts of two rows of [`Rows`]: no power of two, so that a column does not
/// fall into few cache sets.
const STRIDE: usize = 136;

/// Most words of a row.
pub const MAX_WORDS: usize = 128;

/// 128 rows of up to 8192 bits.
pub struct Rows(Vec<u64>);

impl Rows {
    /// All zero.
    #[must_use]
    pub fn new() -> Self {
        Self(vec![0; 128 * STRIDE])
    }

    /// Sets every row to zero.
    pub fn clear(&mut self) {
        self.0.fill(0);
    }

    /// Adds `words` to row `row`.
    pub fn add(&mut self, row: usize, words: &[u64]) {
        self.0[row * STRIDE..].iter_mut().zip(words).for_each(|(r, w)| *r ^= w);
    }

    /// Appends the first `n` columns; row r gives bit r.
    pub fn columns(&self, n: usize, out: &mut Vec<u128>) {
        for first in (0..n.div_ceil(64)).step_by(8) {
            // Eight words of each row, side by side, so that the compiler works on all of them at
            // once.
            let half = |from: usize| {
                let mut lanes: [[u64; 8]; 64] = std::array::from_fn(|r| {
                    let at = (from + r) * STRIDE + first;
                    self.0[at..at + 8].try_into().expect("eight words")
                });
                transpose(&mut lanes);
                lanes
            };
            let (low, high) = (half(0), half(64));
            for lane in 0..8 {
                let left = n.saturating_sub((first + lane) * 64).min(64);
                out.extend((0..left).map(|c| u128::from(low[c][lane]) | u128::from(high[c][lane]) << 64));
            }
        }
    }
}

/// Eight 64×64 transpositions at once, by halving.
fn transpose(a: &mut [[u64; 8]; 64]) {
    for (shift, keep) in [
        (32, 0x0000_0000_ffff_ffffu64),
        (16, 0x0000_ffff_0000_ffff),
        (8, 0x00ff_00ff_00ff_00ff),
        (4, 0x0f0f_0f0f_0f0f_0f0f),
        (2, 0x3333_3333_3333_3333),
        (1, 0x5555_5555_5555_5555),
    ] {
        for k in (0..64).filter(|k| k & shift == 0) {
            let (head, tail) = a.split_at_mut(k + shift);
            for (x, y) in head[k].iter_mut().zip(&mut tail[0]) {
                let t = (*x >> shift ^ *y) & keep;
                *x ^= t << shift;
                *y ^= t;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use megrez_prg::Key;

    #[test]
    fn columns_are_rows_on_their_side() {
        let words = Key::from_bytes([3; 32]).stream().words(128 * 17);
        let mut rows = Rows::new();
        for (r, row) in words.chunks(17).enumerate() {
            rows.add(r, row);
        }
        for n in [0, 1, 63, 64, 65, 512, 513, 1088] {
            let mut out = vec![];
            rows.columns(n, &mut out);
            assert_eq!(out.len(), n);
            for (c, column) in out.iter().enumerate() {
                for r in 0..128 {
                    assert_eq!((column >> r) as u64 & 1, words[r * 17 + c / 64] >> (c % 64) & 1);
                }
            }
        }
    }
}
