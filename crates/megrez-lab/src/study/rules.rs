//! What a walk does and counts.

use super::forms::Form;
use serde::Serialize;

/// How a walk truncates and compares.
#[derive(Clone, Debug, PartialEq)]
pub struct Rules {
    /// The truncation, also of those inside ReLUs, which then compare the truncated value.
    pub truncation: Form,
    /// Whether comparisons look only at the bits that the plan says, under the mask of the
    /// truncation, as the dealer protocol does. Without it they look at all bits. Needs
    /// [`Form::Exact`].
    pub cut: bool,
}

/// What happened to the elements of a walk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Counts {
    /// Truncated elements.
    pub truncations: f64,
    /// Of them, those off by more than the last bit.
    pub big_errors: f64,
    /// Compared elements.
    pub comparisons: f64,
    /// Of them, those whose sign was read wrongly and whose value was not below the last of f
    /// fraction bits.
    pub sign_errors: f64,
}

impl Counts {
    /// Adds what happened elsewhere.
    pub fn add(&mut self, other: Counts) {
        self.truncations += other.truncations;
        self.big_errors += other.big_errors;
        self.comparisons += other.comparisons;
        self.sign_errors += other.sign_errors;
    }

    /// Divided by a number of inputs.
    pub fn per(self, n: f64) -> Counts {
        Counts {
            truncations: self.truncations / n,
            big_errors: self.big_errors / n,
            comparisons: self.comparisons / n,
            sign_errors: self.sign_errors / n,
        }
    }
}
