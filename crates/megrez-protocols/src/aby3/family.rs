//! The sharing as this protocol has it. Its steps name it, and the suite lists the steps.

use crate::rss::Replicated;

/// Tells this protocol from others on the same sharing.
#[derive(Clone, Copy, Default)]
pub struct Protocol;

/// The suite on the ring of `W` and device `D`.
pub type Aby3<W, D> = Replicated<W, D, Protocol>;
