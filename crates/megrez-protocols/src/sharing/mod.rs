//! Sharings: who holds what of a value and of its mask, how an owner shares an input, what is local
//! on shares, and how a result leaves. [`mss`] has two workers and a dealer, [`rss`] and [`mrss`]
//! three equal parties, without and with masks, [`additive`] two workers and a helper.

pub mod additive;
mod constant;
mod input;
pub mod mrss;
pub mod mss;
mod noise;
pub(crate) mod reveal;
pub mod rss;

pub(crate) use constant::linear_of_publics;
pub use constant::{Constant, Publics};
pub use noise::Noise;

/// The choices that protocols on one sharing make differently.
pub trait Variant: Clone + Send + Sync + 'static {}

impl<T: Clone + Send + Sync + 'static> Variant for T {}
