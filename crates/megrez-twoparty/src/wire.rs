//! Dense bits: what messages are made of.

use megrez_float::blocks::mask;
use megrez_net::Payload;
use megrez_ring::bits;

/// Bits one after the other.
#[derive(Default)]
pub struct Writer {
    words: Vec<u64>,
    acc: u128,
    filled: u32,
    n: usize,
}

impl Writer {
    /// Room for `n` bits.
    pub fn with_capacity(n: usize) -> Self {
        Self { words: Vec::with_capacity(bits::words(n) + 1), ..Self::default() }
    }

    /// Appends the low `width` bits of `value`; `width` is 1 to 64.
    #[inline]
    pub fn push(&mut self, value: u64, width: u32) {
        self.acc |= u128::from(value & mask(width)) << self.filled;
        self.filled += width;
        self.n += width as usize;
        if self.filled >= 64 {
            self.words.push(self.acc as u64);
            self.acc >>= 64;
            self.filled -= 64;
        }
    }

    /// Appends `n` packed bits.
    pub fn append(&mut self, packed: &[u64], n: usize) {
        let (whole, rest) = (n / 64, (n % 64) as u32);
        packed[..whole].iter().for_each(|&w| self.push(w, 64));
        if rest > 0 {
            self.push(packed[whole], rest);
        }
    }

    /// The bits in words.
    pub fn into_words(mut self) -> Vec<u64> {
        if self.filled > 0 {
            self.words.push(self.acc as u64);
        }
        self.words
    }

    /// The bits in as few bytes as hold them.
    pub fn into_payload(self) -> Payload {
        let bytes = bits::bytes(self.n);
        Payload::from_prefix(self.into_words(), bytes)
    }
}

/// Reads what a [`Writer`] wrote. The caller has checked that enough is there.
pub struct Reader<'a> {
    words: &'a [u64],
    at: usize,
}

impl<'a> Reader<'a> {
    /// From the first bit of the words.
    pub fn new(words: &'a [u64]) -> Self {
        Self { words, at: 0 }
    }

    /// The next `width` bits; `width` is 1 to 64.
    #[inline]
    pub fn next(&mut self, width: u32) -> u64 {
        let (word, shift) = (self.at / 64, (self.at % 64) as u32);
        self.at += width as usize;
        let mut v = self.words[word] >> shift;
        if shift + width > 64 {
            v |= self.words[word + 1] << (64 - shift);
        }
        v & mask(width)
    }

    /// The next `n` bits, packed.
    pub fn take(&mut self, n: usize) -> Vec<u64> {
        let mut out = Vec::with_capacity(bits::words(n));
        for _ in 0..n / 64 {
            out.push(self.next(64));
        }
        if !n.is_multiple_of(64) {
            out.push(self.next((n % 64) as u32));
        }
        out
    }

    /// Passes over `n` bits.
    pub fn skip(&mut self, n: usize) {
        self.at += n;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use megrez_prg::Key;

    #[test]
    fn what_was_written_is_read() {
        let words = Key::from_bytes([1; 32]).stream().words(300);
        let mut writer = Writer::default();
        for (i, &w) in words.iter().enumerate() {
            writer.push(w, i as u32 % 64 + 1);
            writer.append(&words[..3], i % 150);
        }
        let n = writer.n;
        let payload = writer.into_payload();
        assert_eq!(payload.len(), n.div_ceil(8));
        let mut reader = Reader::new(payload.words());
        for (i, &w) in words.iter().enumerate() {
            assert_eq!(reader.next(i as u32 % 64 + 1), w & mask(i as u32 % 64 + 1));
            let packed = reader.take(i % 150);
            assert!((0..i % 150).all(|j| bits::get(&packed, j) == bits::get(&words, j)));
        }
    }
}
