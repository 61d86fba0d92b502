//! The sharing as this protocol has it. Its steps name it, and the suite lists the steps.

use crate::mss::Masked;

/// The protocol's own list, or the one of a protocol that it is compared with.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Lists {
    /// One list: MIZAR, Fig. 4, or digits.
    #[default]
    Own,
    /// Two lists: [`crate::aegis`].
    Aegis,
    /// The concurrent single list: [`crate::concurrent`].
    Concurrent,
}

/// The suite on the ring of `W` and device `D`, with one of the [`Lists`].
pub type Mizar<W, D> = Masked<W, D, Lists>;
