//! The sharing as this protocol has it. Its steps name it, and the suite lists the steps.

use crate::rss::Replicated;

/// How comparisons find a top bit.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub enum TopBit {
    /// By digits of two parts that parties know (`adder.rs`).
    #[default]
    Digits,
    /// By opening the value under a mask whose bits are shared ([`crate::falcon`]).
    Opened,
}

/// The suite on the ring of `W` and device `D`.
pub type Aby3<W, D> = Replicated<W, D, TopBit>;
