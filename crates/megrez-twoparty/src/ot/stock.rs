//! How many silent transfers there are, and what it takes to have more. Public: both parties count
//! alike, and so does whoever tells what a program costs.

/// Transfers that an iteration makes, from how many, with how many of them turned.
pub const N: usize = T << H;
/// See [`N`].
pub const K: usize = 72_576;
/// See [`N`].
pub const T: usize = 1269;
/// Levels of a tree.
pub const H: u32 = 10;
/// What an iteration takes of the stock.
pub const BASE: usize = K + T * H as usize;

/// How many transfers are there for one direction. Public, and the same at both parties.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stock {
    /// The first base was made.
    begun: bool,
    left: usize,
}

impl Stock {
    /// How many iterations to run beside each other before there can be `needed`, and whether the
    /// first base comes before them; none if there are.
    #[must_use]
    pub fn lacking(self, needed: usize) -> Option<Refill> {
        let left = if self.begun { self.left } else { BASE };
        if needed == 0 || self.begun && left >= needed + BASE {
            return None;
        }
        let wanted = (needed + BASE - left).div_ceil(N - BASE);
        Some(Refill { first: !self.begun, iterations: wanted.min(left / BASE) })
    }

    /// After a refill.
    pub fn fill(&mut self, refill: Refill) {
        let left = if refill.first { BASE } else { self.left };
        *self = Self { begun: true, left: left + refill.iterations * (N - BASE) };
    }

    /// After transfers were used.
    ///
    /// # Panics
    /// If there are not so many beside the base of the next iteration.
    pub fn take(&mut self, n: usize) {
        let spare = if self.begun { self.left - BASE } else { 0 };
        assert!(n <= spare, "transfers are reserved before they are used");
        self.left -= n;
    }
}

/// Iterations beside each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refill {
    /// The first base is made with them.
    pub first: bool,
    /// How many.
    pub iterations: usize,
}

impl Refill {
    /// Transfers that choose sides of trees.
    #[must_use]
    pub fn levels(self) -> usize {
        self.iterations * T * H as usize
    }
}
