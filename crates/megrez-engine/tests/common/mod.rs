//! What the proof tests share: a fixed generator for test data, statistics with known false-alarm
//! rates, sessions with hand-made parties and clients, and the sign-bit list in plain code, as
//! printed and as corrected.

pub mod list;
pub mod session;
pub mod stats;

use megrez_engine::local::{self, LocalError, LocalOptions, LocalRun, LocalSession};
use megrez_kernels::{Cpu, Device};
use megrez_plan::Plan;
use megrez_protocols::registry::{self, Visitor};
use std::collections::HashMap;

/// Runs a plan on any ring in this process. All tests come here, so that every suite is compiled
/// once.
pub fn run_locally(
    protocol: &str,
    plan: &Plan,
    inputs: &HashMap<String, Vec<u64>>,
    options: &LocalOptions,
) -> Result<LocalRun, LocalError> {
    if plan.ring > 16 {
        return local::run(protocol, plan, inputs, options);
    }
    let (devices, inputs) = (&[Cpu::default()], &local::given(inputs));
    let session = LocalSession { devices, plan, inputs, progress: &|_| {}, options };
    registry::dispatch_small(protocol, plan.ring, session)
        .ok_or_else(|| LocalError::Unknown(protocol.into(), plan.ring))?
}

/// [`registry::dispatch`] on any ring.
pub fn dispatch<D: Device, V: Visitor<D>>(name: &str, ring: u32, visitor: V) -> Option<V::Output> {
    match ring {
        8 | 16 => registry::dispatch_small(name, ring, visitor),
        _ => registry::dispatch(name, ring, visitor),
    }
}

/// Test data: a fixed generator, so that failures repeat. Never used for shares.
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform below `bound`; the bias of 2^-64·bound does not matter in tests.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }
}

/// 2^ring − 1.
pub fn mask(ring: u32) -> u64 {
    u64::MAX >> (64 - ring)
}

/// The ring element as a signed number.
pub fn signed(x: u64, ring: u32) -> i64 {
    ((x << (64 - ring)) as i64) >> (64 - ring)
}
