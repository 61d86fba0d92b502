//! The sharing as this protocol has it. Its steps name it, and the suite lists the steps.

use super::list::Lists;
use crate::mss::Masked;

/// The suite on the ring of `W` and device `D`, with one of the [`Lists`].
pub type Mizar<W, D> = Masked<W, D, Lists>;
