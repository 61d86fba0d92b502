//! What a layer does to the scale of its numbers.

use crate::options::Activations;

/// What a layer does to the number of fraction bits, for the placement of truncations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scale {
    /// Takes any scale and keeps it: comparisons, sums, rearrangements.
    Passes,
    /// Takes any scale; adds fraction bits without a product (division by 2^bits), and needs as
    /// many bits of room.
    Divides {
        /// The bits added.
        bits: u32,
    },
    /// Multiplies: takes operands that have been truncated, gives a product that must be truncated
    /// before the next one.
    Product,
    /// Multiplies, but truncates its operand itself after having made it smaller.
    ShrinksThenProduct,
    /// Is a function that multiplies, or that a table reads at any scale.
    Function,
    /// Takes any scale and truncates what it needs to; its result keeps the fraction bits that it
    /// has.
    Settles,
}

impl Scale {
    /// What it is with these activations.
    pub(crate) fn with(self, activations: Activations) -> Scale {
        match (self, activations) {
            (Scale::Function, Activations::Lookup | Activations::Tables) => Scale::ShrinksThenProduct,
            (Scale::Function, _) => Scale::Product,
            _ => self,
        }
    }
}
