//! Prime fields F_p with p < 128, and their dense wire form: as many base-p digits in a 64-bit word
//! as fit.

/// A small prime and the constants that packing needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Prime {
    p: u8,
    digits: u8,
}

impl Prime {
    /// The field of `p` elements; `p` must be a prime in 3..=127.
    pub const fn new(p: u8) -> Self {
        assert!(p >= 3 && p <= 127, "primes from 3 to 127 are supported");
        let mut d = 2;
        while d * d <= p as u16 {
            assert!(!(p as u16).is_multiple_of(d), "p must be prime");
            d += 1;
        }
        let mut digits = 0;
        let mut power: u128 = p as u128;
        while power <= 1 << 64 {
            power *= p as u128;
            digits += 1;
        }
        Prime { p, digits }
    }

    /// The smallest prime above `n`, n ≤ 126.
    pub const fn above(n: u32) -> Self {
        let mut p = n + 1;
        loop {
            let mut d = 2;
            while d * d <= p && !p.is_multiple_of(d) {
                d += 1;
            }
            if d * d > p && p >= 3 {
                return Prime::new(p as u8);
            }
            p += 1;
        }
    }

    /// p.
    #[inline(always)]
    pub const fn p(self) -> u64 {
        self.p as u64
    }

    /// How many digits one 64-bit word of the wire holds: floor(64 / log2 p).
    #[inline(always)]
    pub const fn digits(self) -> usize {
        self.digits as usize
    }

    /// How many words `n` elements take on the wire.
    pub const fn words(self, n: usize) -> usize {
        n.div_ceil(self.digits as usize)
    }

    /// Bits per element on the wire, 64 / digits.
    pub fn wire_bits(self) -> f64 {
        64.0 / f64::from(self.digits)
    }

    /// x mod p for x < 2^16, without division or secret-dependent branches: floor(x·⌊2^24/p⌋ /
    /// 2^24) is the quotient or one less, so one conditional subtraction finishes.
    #[inline(always)]
    pub const fn reduce(self, x: u32) -> u32 {
        let p = self.p as u32;
        let quotient = ((x as u64 * ((1 << 24) / p) as u64) >> 24) as u32;
        let rest = x - quotient * p;
        rest - p * (rest >= p) as u32
    }

    /// Packs elements (each < p), the first of every group most significant, so that unpacking
    /// starts with it. The last word is filled with zeros.
    pub fn pack(self, elements: impl ExactSizeIterator<Item = u8>) -> Vec<u64> {
        let mut out = Vec::with_capacity(self.words(elements.len()));
        let (mut word, mut filled) = (0u64, 0usize);
        for e in elements {
            debug_assert!(u64::from(e) < self.p());
            word = word * self.p() + u64::from(e);
            filled += 1;
            if filled == self.digits() {
                out.push(word);
                (word, filled) = (0, 0);
            }
        }
        if filled > 0 {
            for _ in filled..self.digits() {
                word *= self.p();
            }
            out.push(word);
        }
        out
    }

    /// Unpacks `n` elements. Every result is < p whatever the words hold, so hostile words cannot
    /// leave the field.
    pub fn unpack(self, words: &[u64], n: usize) -> Vec<u8> {
        let mut out = vec![0u8; n];
        for (group, &word) in out.chunks_mut(self.digits()).zip(words) {
            let mut rest = word;
            for _ in group.len()..self.digits() {
                rest /= self.p();
            }
            for e in group.iter_mut().rev() {
                *e = (rest % self.p()) as u8;
                rest /= self.p();
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn digits_per_word_are_those_of_the_cost_tables() {
        let expected = [
            (3, 40),
            (5, 27),
            (7, 22),
            (11, 18),
            (13, 17),
            (17, 15),
            (19, 15),
            (23, 14),
            (29, 13),
            (37, 12),
            (67, 10),
            (127, 9),
        ];
        for (p, digits) in expected {
            assert_eq!(Prime::new(p).digits(), digits, "p = {p}");
        }
        assert_eq!([8, 12, 16, 24, 32, 64].map(|l| Prime::above(l).p()), [11, 13, 17, 29, 37, 67]);
    }

    #[test]
    fn reduction_is_exact_on_its_whole_range() {
        let primes = (3..=127u8).filter(|p| (2..*p).all(|d| p % d != 0));
        for p in primes.filter(|p| !cfg!(miri) || [3, 127].contains(p)) {
            let field = Prime::new(p);
            for x in (0..1 << 16).step_by(if cfg!(miri) { 255 } else { 1 }) {
                assert_eq!(field.reduce(x), x % u32::from(p), "{x} mod {p}");
            }
        }
    }

    proptest! {
        #[test]
        fn packing_is_undone(raw in prop::collection::vec(any::<u8>(), 0..100), which in 0usize..6) {
            let field = [3, 11, 17, 29, 67, 127].map(Prime::new)[which];
            let elements: Vec<u8> = raw.iter().map(|e| e % field.p() as u8).collect();
            let words = field.pack(elements.iter().copied());
            prop_assert_eq!(words.len(), field.words(elements.len()));
            prop_assert_eq!(field.unpack(&words, elements.len()), elements);
        }
    }
}
