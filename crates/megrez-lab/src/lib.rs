//! What megrez is measured by: benchmarks of operations, kernels and models, the tables of the
//! papers beside figures measured here, studies of approximations, and examples. Nothing here is a
//! protocol, and nobody who runs models needs it.

pub mod bench;
pub mod proximity;
pub mod relevance;
pub mod study;
mod supplied;
pub mod tables;

use megrez_service::pair::Known;

/// The jobs of pairs of parties that this crate starts, for [`megrez_service::pair::serve`].
pub const JOBS: [Known; 3] = [
    Known::job::<bench::FloatBench>(),
    Known::job::<bench::TrainBench>(),
    Known::job::<proximity::Proximity>(),
];
