//! Rows of elements in bytes, as the portable code and the vectors both read them.

use super::ListSpec;

/// Lists have at most this many entries; rows of vectors are this long.
pub(super) const ROW: usize = 64;

/// The elements of the rows of one digit: where its bits stand and how many there are.
#[derive(Clone, Copy)]
pub(super) struct Digit {
    pub(super) shift: u32,
    /// 2^w − 1: the largest digit, and the number of dealt elements.
    pub(super) largest: u8,
    /// Its first dealt element.
    pub(super) offset: usize,
}

/// What a chunk's rows are made from: `dealt` share elements, `length` multipliers and zero-shares
/// and one rotation each.
pub(super) struct Rows<'a> {
    pub(super) spec: &'a ListSpec,
    pub(super) digits: &'a [Digit],
    pub(super) j: usize,
    pub(super) values: &'a [u64],
    pub(super) flips: &'a [u64],
    pub(super) first: usize,
    pub(super) share: &'a [u8],
    pub(super) multiplier: &'a [u8],
    pub(super) zero_share: &'a [u8],
    pub(super) rotation: &'a [u8],
}

impl Rows<'_> {
    /// The rows without the first `done` values.
    #[cfg(target_arch = "x86_64")]
    pub(super) fn from(&self, done: usize) -> Rows<'_> {
        let (length, dealt) = (self.spec.length(), self.spec.dealt());
        Rows {
            values: &self.values[done..],
            first: self.first + done,
            share: &self.share[done * dealt..],
            multiplier: &self.multiplier[done * length..],
            zero_share: &self.zero_share[done * length..],
            rotation: &self.rotation[done..],
            ..*self
        }
    }
}

/// For rows of dealt elements: element x is the indicator that `(ρ >> shift) & largest` equals `q`.
/// Padded to whole rows of vectors.
pub(super) struct Elements {
    pub(super) shift: Vec<u8>,
    pub(super) largest: Vec<u8>,
    pub(super) q: Vec<u8>,
}
