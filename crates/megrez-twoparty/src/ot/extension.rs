//! What an extension of oblivious transfer is: its two halves, whatever makes the blocks.

use super::code::Code;
use super::stock::Refill;
use megrez_prg::RandomError;

/// The receiving half of an extension. Blocks are never made twice: a value is neither cloned nor
/// rewound, and [`at`](Self::at) is called once for each place.
pub trait OtReceiver: Send {
    /// The same OTs from a place on that this value never comes to, in blocks of 512; `None` if
    /// there is but one place.
    fn at(&self, place: u64) -> Option<Box<dyn OtReceiver>>;
    /// What to send, and a block for each of `n` choices; plane i packs bit i of all choices.
    fn extend(&mut self, code: Code, choices: &[Vec<u64>], n: usize) -> (Vec<u8>, Vec<u128>);
    /// What to send, `n` random choices of one bit, packed, and a block for each.
    fn extend_random(&mut self, n: usize) -> (Vec<u8>, Vec<u64>, Vec<u128>);
    /// What has to be made before there are `needed` OTs of one choice bit, if OTs are kept in
    /// stock. The same at both parties.
    fn lacking(&self, _needed: usize) -> Option<Refill> {
        None
    }
    /// What to send for it.
    ///
    /// # Errors
    /// If there is no randomness.
    fn ask(&mut self, _refill: Refill) -> Result<Vec<u8>, RandomError> {
        unreachable!("nothing is kept in stock")
    }
    /// The stock, once the answer is there, which has exactly as many bytes as it must.
    fn fill(&mut self, _refill: Refill, _answer: &[u8]) {}
}

/// The sending half of an extension.
pub trait OtSender: Send {
    /// As the receiver's.
    fn at(&self, place: u64) -> Option<Box<dyn OtSender>>;
    /// Δ_x for every x.
    fn offsets(&self, code: Code) -> Vec<u128>;
    /// Blocks in order, some at a time, from the receiver's bytes, of which there are exactly as
    /// many as it must send: large batches need not lie in memory.
    fn stream(&mut self, code: Code, n: usize, corrections: &[u8], sink: &mut dyn FnMut(&[u128]));
    /// A block for each OT, as [`stream`](Self::stream) gives them.
    fn extend(&mut self, code: Code, n: usize, corrections: &[u8]) -> Vec<u128> {
        let mut blocks = Vec::with_capacity(n);
        self.stream(code, n, corrections, &mut |some| blocks.extend_from_slice(some));
        blocks
    }
    /// As the receiver's.
    fn extend_random(&mut self, n: usize, corrections: &[u8]) -> Vec<u128>;
    /// As the receiver's.
    fn lacking(&self, _needed: usize) -> Option<Refill> {
        None
    }
    /// What to answer when the receiver asks, with exactly as many bytes as it must.
    ///
    /// # Errors
    /// If there is no randomness.
    fn answer(&mut self, _refill: Refill, _asked: &[u8]) -> Result<Vec<u8>, RandomError> {
        unreachable!("nothing is kept in stock")
    }
}
