//! What an extension of oblivious transfer is: its two halves, whatever makes the blocks.

use super::code::Code;

/// The receiving half of an extension. Blocks are never made twice: a value is neither cloned nor
/// rewound, and [`at`](Self::at) is called once for each place.
pub trait OtReceiver: Send {
    /// The same OTs from a place on that this value never comes to, in blocks of 512.
    fn at(&self, place: u64) -> Box<dyn OtReceiver>;
    /// Bytes that `n` OTs with given choices take, receiver to sender.
    fn correction_bytes(&self, code: Code, n: usize) -> usize;
    /// Bytes that `n` 1-of-2 OTs with random choices take, receiver to sender.
    fn random_bytes(&self, n: usize) -> usize;
    /// What to send, and a block for each of `n` choices; plane i packs bit i of all choices.
    fn extend(&mut self, code: Code, choices: &[Vec<u64>], n: usize) -> (Vec<u8>, Vec<u128>);
    /// What to send, `n` random choices of one bit, packed, and a block for each.
    fn extend_random(&mut self, n: usize) -> (Vec<u8>, Vec<u64>, Vec<u128>);
}

/// The sending half of an extension.
pub trait OtSender: Send {
    /// As the receiver's.
    fn at(&self, place: u64) -> Box<dyn OtSender>;
    /// As the receiver's.
    fn correction_bytes(&self, code: Code, n: usize) -> usize;
    /// As the receiver's.
    fn random_bytes(&self, n: usize) -> usize;
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
}
