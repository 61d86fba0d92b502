//! The hash that turns correlated blocks into pads: H(x, t) = π(π(x) ⊕ t) ⊕ π(x), with π = AES-128
//! under a public key that the session draws.
//!
//! In the ideal-permutation model this is tweakable and correlation robust, also for inputs that
//! differ by known linear functions of one secret (Guo, Katz, Wang and Yu, S&P 2020, call it TMMO);
//! plain π(x) ⊕ x would not survive tweaks. The key is public, so its schedule is computed once,
//! and AES instructions work on many blocks at a time.

use aes::cipher::{BlockCipherEncrypt, KeyInit};
use aes::{Aes128Enc, Block};

/// Blocks that are encrypted together.
const BATCH: usize = 64;

/// H. See the [module](self).
#[derive(Clone)]
pub struct Hash(Aes128Enc);

impl Hash {
    /// H under a public key.
    #[must_use]
    pub fn new(key: [u8; 16]) -> Self {
        Self(Aes128Enc::new(&key.into()))
    }

    /// Replaces block i by its hash under `tweak(i)`.
    #[inline]
    pub fn apply(&self, blocks: &mut [u128], tweak: impl Fn(usize) -> u128) {
        let mut buffer = [Block::default(); BATCH];
        for (chunk, blocks) in blocks.chunks_mut(BATCH).enumerate() {
            let buffer = &mut buffer[..blocks.len()];
            for (b, x) in buffer.iter_mut().zip(blocks.iter()) {
                *b = x.to_le_bytes().into();
            }
            self.0.encrypt_blocks(buffer);
            for (i, (b, x)) in buffer.iter_mut().zip(blocks.iter_mut()).enumerate() {
                *x = u128::from_le_bytes((*b).into());
                *b = (*x ^ tweak(chunk * BATCH + i)).to_le_bytes().into();
            }
            self.0.encrypt_blocks(buffer);
            for (b, x) in buffer.iter().zip(blocks.iter_mut()) {
                *x ^= u128::from_le_bytes((*b).into());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_formula() {
        let hash = Hash::new([7; 16]);
        let aes = Aes128Enc::new(&[7; 16].into());
        let pi = |x: u128| {
            let mut block: Block = x.to_le_bytes().into();
            aes.encrypt_block(&mut block);
            u128::from_le_bytes(block.into())
        };
        let inputs: Vec<u128> = (0..150).map(|i| i * 0x0123_4567_89ab_cdef_0011).collect();
        let mut out = inputs.clone();
        hash.apply(&mut out, |i| i as u128 * 3 + 1);
        for (i, (&x, &h)) in inputs.iter().zip(&out).enumerate() {
            assert_eq!(h, pi(pi(x) ^ (i as u128 * 3 + 1)) ^ pi(x));
        }
    }
}
