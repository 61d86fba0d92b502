//! What a benchmark measures, and how far off results are.

use megrez::RunOptions;
use megrez_graph::{Activations, PoolForm};
use megrez_plan::{ReluForm, SignBit};

/// What to measure.
#[derive(Clone, Debug)]
pub struct BenchOptions {
    /// ℓ.
    pub ring: u32,
    /// Fraction bits.
    pub frac: u32,
    /// Elements of an operation, or inputs of a model.
    pub batch: usize,
    /// How the sign bit is computed.
    pub sign: SignBit,
    /// The form of ReLU.
    pub form: ReluForm,
    /// How `maxpool` finds the maxima.
    pub pool: PoolForm,
    /// What stands for smooth activations.
    pub activations: Activations,
    /// Fraction bits that ReLU drops in the same step.
    pub truncate: u32,
    /// m, k, n of a matrix product; m rows of k for `softmax` and `layernorm`.
    pub shape: [usize; 3],
    /// Seeds the test data, never shares.
    pub seed: u64,
    /// The protocol, the repetitions and the network.
    pub run: RunOptions,
    /// `process` or `thread`, for the report.
    pub parties: &'static str,
}

impl BenchOptions {
    /// One element on the 64-bit ring, with every choice as it is by default.
    pub fn new(run: RunOptions) -> Self {
        BenchOptions {
            ring: 64,
            frac: 16,
            batch: 1,
            sign: SignBit::FULL,
            form: ReluForm::ThreeRounds,
            pool: PoolForm::Tournament,
            activations: Activations::Minimax,
            truncate: 0,
            shape: [1; 3],
            seed: 1,
            run,
            parties: "thread",
        }
    }
}

/// Largest and mean absolute error.
#[derive(Default)]
pub(crate) struct Errors {
    pub max: f64,
    sum: f64,
    count: usize,
}

impl Errors {
    pub fn mean(&self) -> f64 {
        self.sum / self.count.max(1) as f64
    }

    pub fn add(&mut self, error: f64) {
        self.max = self.max.max(error);
        self.sum += error;
        self.count += 1;
    }
}
