//! The shape of the list by which two workers let the dealer compare: one entry per bit (MIZAR,
//! Fig. 4) or one entry per digit. Its algebra stands with the protocol; devices have kernels for
//! lists of this shape.

use megrez_plan::{Fewest, List, SignBit};
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
    /// The list of a comparison on a ring of `ring` bits. The plan's rules have checked that the
    /// numbers fit.
    pub fn new(sign: &SignBit, ring: u32) -> Self {
        let width = sign.width(ring);
        let digits = |widths: &[u32]| (Entries::Digits(widths.to_vec()), widths.len() as u32);
        let (entries, length) = match &sign.list {
            List::Bits => (Entries::Bits, width),
            List::Digits(widths) => digits(widths),
            // What a tree is not made for.
            List::Tree => match List::digits(width, Fewest::Total) {
                List::Digits(widths) => digits(&widths),
                _ => (Entries::Bits, width),
            },
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
