//! The shape of the masked list by which two workers let the dealer compare: one entry per bit (MIZAR, Fig. 4) or one
//! entry per digit. The arithmetic of the entries is stated in [`crate::Reference`]; the protocol in `megrez-protocols`.

use megrez_plan::{List, SignBit};
use megrez_ring::Prime;

/// How a value is cut and split, and the field of its list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListSpec {
    /// Low bits of the value that are ignored, k.
    pub cut: u32,
    /// Bits compared, sign included, λ.
    pub width: u32,
    /// One entry per bit or per digit.
    pub entries: Entries,
    /// The field of the entries: the smallest prime above the number of entries.
    pub prime: Prime,
}

/// The entries of a list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Entries {
    /// λ entries; λ − 1 dealt elements.
    Bits,
    /// One entry per digit of these widths, most significant first; 2^w − 1 dealt elements each.
    Digits(Vec<u32>),
}

impl ListSpec {
    /// The list of a comparison on a ring of `ring` bits. The plan's rules have checked that the numbers fit.
    pub fn new(sign: &SignBit, ring: u32) -> Self {
        let width = sign.width(ring);
        let (entries, length) = match &sign.list {
            List::Bits => (Entries::Bits, width),
            List::Digits(widths) => (Entries::Digits(widths.clone()), widths.len() as u32),
        };
        ListSpec { cut: sign.cut, width, entries, prime: Prime::above(length) }
    }

    /// Entries per value: what each worker sends online.
    pub fn length(&self) -> usize {
        match &self.entries {
            Entries::Bits => self.width as usize,
            Entries::Digits(widths) => widths.len(),
        }
    }

    /// Field elements per value that the dealer deals offline.
    pub fn dealt(&self) -> usize {
        match &self.entries {
            Entries::Bits => self.width as usize - 1,
            Entries::Digits(widths) => widths.iter().map(|w| (1 << w) - 1).sum(),
        }
    }
}

/// Digit widths for a comparison of `lambda` ≥ 2 bits that send least online: of all lists of n digits of at most 4
/// bits, over every n, the one whose entries take the fewest bits online, and among those the fewest offline.
pub fn best_widths(lambda: u32) -> Vec<u32> {
    let bits = lambda.max(2) - 1;
    let candidates = (1..=bits).filter(|n| n * 4 >= bits).map(|n| {
        // As even as possible: 2^w is convex, so this deals the fewest elements.
        let (low, wider) = (bits / n, (bits % n) as usize);
        (0..n as usize).map(|i| low + u32::from(i < wider)).collect::<Vec<u32>>()
    });
    let cost = |widths: &Vec<u32>| {
        let per_element = Prime::above(widths.len() as u32).wire_bits();
        let dealt: u32 = widths.iter().map(|w| (1 << w) - 1).sum();
        // Online bits count fully, offline bits a quarter: they are made ahead, but not for nothing.
        2.0 * widths.len() as f64 * per_element + 0.25 * f64::from(dealt) * per_element
    };
    candidates.min_by(|a, b| cost(a).total_cmp(&cost(b))).unwrap_or_else(|| vec![1])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_those_of_the_cost_table() {
        let digits = |widths: &[u32]| SignBit {
            list: List::Digits(widths.to_vec()),
            cut: 0,
            bits: Some(widths.iter().sum::<u32>() + 1),
        };
        let eight = ListSpec::new(&digits(&[4, 3]), 64);
        assert_eq!((eight.prime.p(), eight.length(), eight.dealt()), (3, 2, 22));
        let full = ListSpec::new(&digits(&[&[3; 7][..], &[2; 21][..]].concat()), 64);
        assert_eq!((full.prime.p(), full.length(), full.dealt()), (29, 28, 112));
        let bits = ListSpec::new(&SignBit::FULL, 64);
        assert_eq!((bits.prime.p(), bits.length(), bits.dealt()), (67, 64, 63));
    }
}
