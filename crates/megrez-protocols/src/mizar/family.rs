//! The sharing as this protocol has it. Its steps name it, and the suite lists the steps.

use crate::mss::Masked;
use megrez_kernels::Baseline;

/// Which list: the protocol's own, or a baseline's.
pub type Lists = Option<Baseline>;

/// The suite on the ring of `W` and device `D`, with its own list or that of a baseline:
/// [`crate::aegis`], [`crate::concurrent`].
pub type Mizar<W, D> = Masked<W, D, Lists>;
