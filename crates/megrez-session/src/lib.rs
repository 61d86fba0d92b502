//! One party in one session. A [`Party`] is the one handle that a protocol is given: its role, its
//! links to the other parties, the streams that it shares with them, the device that works for it,
//! the meter, and the name of the step that runs. It does no arithmetic.

mod error;
mod meter;
mod party;
mod turns;

pub use error::Error;
pub use meter::{Meter, Phase, Reading};
pub use party::{Name, Party, Probe, Sent, Statement, Tap, Transcript};
pub use turns::Turns;
