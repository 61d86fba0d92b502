//! One binary for all tests: every suite is compiled and linked once.

mod attacks;
mod baselines;
mod bounds;
mod common;
mod conformance;
mod exhaustive;
mod floats;
mod lasting;
mod material;
mod maximum;
mod memory;
mod meteor;
mod printed_failures;
mod random_plans;
mod registry;
mod replicated;
mod sessions;
mod slices;
mod streamed;
mod tables;
mod views;
