//! Floating point between two parties: the protocol `secfloat`, its models and its benchmarks.

mod bench;
mod check;
mod example;
mod model;
mod train;

pub use bench::{ModelBench, bench_model, rows as price_rows};
pub use check::{FloatLayerCheck, check, table};
pub use example::{relevance, relevance_text};
pub use model::{FloatModel, infer, infer_stored, upload};
pub use train::{TrainBench, bench_training};

use crate::{Error, Result};
use megrez_protocols::registry;
pub use megrez_protocols::registry::{Numbers, SECFLOAT as PROTOCOL};
use serde::{Deserialize, Serialize};

/// How the parties work; results do not depend on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Work {
    /// Bits of a group of the transfer extension, 1, 2, 4 or 8: more is fewer bytes and more work.
    pub group: u32,
    /// Threads of each party, 1 to [`MAX_THREADS`](megrez_plan::MAX_THREADS).
    pub threads: u32,
}

/// Groups of four bits, and half of this machine's cores, for both parties are on it.
impl Default for Work {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Work { group: 4, threads: (cores as u32 / 2).clamp(1, megrez_plan::MAX_THREADS) }
    }
}

/// Whether `protocol` computes in floating point; refuses a choice of numbers that it does not have.
///
/// # Errors
/// With what to choose instead.
pub fn is_float(protocol: &str, numbers: Option<Numbers>) -> Result<bool> {
    let float = registry::find_any(protocol).is_some_and(|p| p.numbers == Numbers::Float32);
    match numbers {
        Some(Numbers::Float32) if !float => Err(Error::Refused(format!(
            "`{protocol}` computes in fixed point: for float32 say --protocol {}",
            PROTOCOL.name
        ))),
        Some(Numbers::Fixed) if float => Err(Error::Refused(format!(
            "`{}` computes in float32: leave out --numbers, or choose another protocol, such as --protocol mizar",
            PROTOCOL.name
        ))),
        _ => Ok(float),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_a_protocol_lacks_are_refused_with_a_remedy() {
        assert!(is_float("secfloat", None).unwrap() && is_float("secfloat", Some(Numbers::Float32)).unwrap());
        assert!(!is_float("mizar", None).unwrap() && !is_float("mizar", Some(Numbers::Fixed)).unwrap());
        let said = |p, n| is_float(p, Some(n)).unwrap_err().to_string();
        assert!(said("mizar", Numbers::Float32).contains("--protocol secfloat"));
        assert!(said("secfloat", Numbers::Fixed).contains("--protocol mizar"));
    }
}
