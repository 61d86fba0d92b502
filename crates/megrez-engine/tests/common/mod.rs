//! What the proof tests share: a fixed generator for test data, statistics with known false-alarm
//! rates, sessions with hand-made parties and clients, and the sign-bit list in plain code, as
//! printed and as corrected.

pub mod list;
pub mod session;
pub mod stats;

pub use megrez_engine::local::run as run_locally;

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
