//! The codes that make 1-of-2^b OTs out of one extension, and the map that folds a codeword's worth
//! of rows into 128 bits.
//!
//! A choice x of b bits is encoded by the simplex code: position i holds ⟨x, αⁱ⟩, where α generates
//! F_(2^b)*. Two different choices differ in 2^(b−1) of the 2^b − 1 positions. The code is repeated
//! until the distance is 128/k positions of k secret bits each, so that 128 bits of the sender's
//! secret stand between any two choices. b = 1 is plain repetition.
//!
//! Hashing wants 128 bits, not all positions. Position i is added to the rows in which xⁱ mod g has
//! a coefficient, with g of degree 2^(b−1). For these g the columns where any codeword is 1 are
//! independent (the tests try them all), so what stands between two choices is still uniform in all
//! 128 bits: the fold loses nothing.

/// Most choice bits of one OT.
pub const MAX_CHOICE: u32 = 4;

/// The simplex code of dimension b.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Code {
    b: u32,
}

impl Code {
    /// For 1-of-2^b OTs, b = 1 … [`MAX_CHOICE`].
    #[must_use]
    pub const fn new(b: u32) -> Self {
        assert!(b >= 1 && b <= MAX_CHOICE);
        Self { b }
    }

    /// b: bits of a choice.
    #[must_use]
    pub const fn choice_bits(self) -> u32 {
        self.b
    }

    /// 2^b: how many messages an OT chooses from.
    #[must_use]
    pub const fn messages(self) -> usize {
        1 << self.b
    }

    /// Positions of one copy.
    #[must_use]
    pub const fn positions(self) -> usize {
        (1 << self.b) - 1
    }

    /// Folded rows of one copy.
    #[must_use]
    pub const fn rows(self) -> usize {
        1 << (self.b - 1)
    }

    /// How often the code is repeated where a position has `k` secret bits.
    #[must_use]
    pub const fn copies(self, k: u32) -> usize {
        128 / (k as usize * self.rows())
    }

    /// αⁱ: position i of the codeword of x is the parity of x & αⁱ.
    #[must_use]
    pub fn generator(self, i: usize) -> u32 {
        power(i, [0b11, 0b111, 0b1011, 0b1_0011][self.b as usize - 1])
    }

    /// The folded rows that position i is added to, as a set of bits.
    #[must_use]
    pub fn fold(self, i: usize) -> u32 {
        power(i, [0b11, 0b111, 0b1_0111, 0b1_1011_1011][self.b as usize - 1])
    }

    /// Whether position i of the codeword of `choice` is 1.
    #[must_use]
    pub fn bit(self, choice: usize, i: usize) -> bool {
        (choice as u32 & self.generator(i)).count_ones() % 2 == 1
    }
}

/// xⁱ modulo a binary polynomial.
fn power(i: usize, modulus: u32) -> u32 {
    let top = 1 << modulus.ilog2();
    (0..i).fold(1, |p, _| if p << 1 & top != 0 { p << 1 ^ modulus } else { p << 1 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_are_a_full_distance_apart() {
        for b in 1..=MAX_CHOICE {
            let code = Code::new(b);
            for x in 1..code.messages() {
                let weight = (0..code.positions()).filter(|&i| code.bit(x, i)).count();
                assert_eq!(weight, code.rows(), "the code is linear: weight is distance");
            }
            for k in [1, 2, 4, 8] {
                assert_eq!(code.copies(k) * code.rows() * k as usize, 128);
            }
        }
    }

    #[test]
    fn folding_keeps_all_bits_between_any_two_choices() {
        for b in 1..=MAX_CHOICE {
            let code = Code::new(b);
            for x in 1..code.messages() {
                let mut basis: Vec<u32> = vec![];
                for i in (0..code.positions()).filter(|&i| code.bit(x, i)) {
                    let rest = basis.iter().fold(code.fold(i), |v, &t| v.min(v ^ t));
                    assert_ne!(rest, 0, "b = {b}, x = {x}: dependent columns");
                    basis.push(rest);
                }
                assert_eq!(basis.len(), code.rows());
            }
        }
    }
}
