//! Models, made ready and run: what stands between a user's files and the parties.
//!
//! A model is read ([`inputs`]), compiled to fixed point or to single precision ([`model`], with
//! forms that [`choose`] finds for a network), its data is cut into batches ([`batches`]) where no
//! row depends on another, and it runs on whatever backend there is ([`inference`]), or where its
//! weights are kept ([`stored`]); or only as if ([`mode`]). What it will cost is known before
//! ([`forecast`]), what it did cost is reported alike everywhere ([`report`]). The examinations of
//! a model stand beside: layer by layer against the clear ([`check()`]), whether every message is
//! masked ([`masks`]), what a run tells whom ([`disclosure`]), what weights tell of a row
//! ([`privacy`]), whether parties notice damage ([`faults`]). Programs of floating point that no
//! model file describes are [`float32`].
//!
//! Programs use this through the facade, `megrez`, which alone promises its names.

pub mod batches;
pub mod calibrate;
pub mod check;
pub mod choose;
pub mod disclosure;
mod draft;
pub mod faults;
pub mod fixed;
pub mod float;
pub mod float32;
pub mod forecast;
pub mod generate;
pub mod inference;
pub mod inputs;
mod local;
pub mod masks;
pub mod material;
pub mod mode;
pub mod model;
pub mod privacy;
pub mod report;
mod rows;
mod sampling;
pub mod stored;

pub use check::check;
