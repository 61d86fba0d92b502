//! Pseudo-random streams, addressed by name.
//!
//! Two parties that share a [`RootKey`] derive from it one [`Key`], and so one [`Stream`],
//! per *address* (session, phase, step, purpose); both see the same words at the same index. A
//! stream is never "the next bytes": any part of it can be computed anywhere, by a CPU or in a
//! GPU's registers.
//!
//! The types keep two primitives apart: a root key is a key of BLAKE3 and derives other keys, a
//! [`Key`] is a key of ChaCha12 and makes its one stream. No 32 bytes serve both.

mod chacha;
pub mod digits;
pub mod gaussian;
mod level;
mod sample;

pub use getrandom::Error as RandomError;
pub use level::Level;
pub use sample::FieldSampler;

use zeroize::{Zeroize, ZeroizeOnDrop};

/// A 256-bit secret from which keys are derived, by keyed BLAKE3. It does not print and is wiped
/// when dropped.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct RootKey([u8; 32]);

impl RootKey {
    /// A fresh one from the operating system.
    ///
    /// # Errors
    /// If the operating system has no randomness to give.
    pub fn random() -> Result<RootKey, getrandom::Error> {
        random().map(RootKey)
    }

    /// One from its bytes.
    pub fn from_bytes(bytes: [u8; 32]) -> RootKey {
        RootKey(bytes)
    }

    /// What two contributions make together, for one purpose.
    pub fn agree(context: &str, first: &[u8], second: &[u8]) -> RootKey {
        RootKey(agree(context, first, second))
    }

    /// The bytes, for a message to a party that is to hold the same.
    pub fn expose(&self) -> &[u8; 32] {
        &self.0
    }

    /// The key that belongs to `address`. Addresses are unambiguous byte strings: callers
    /// length-prefix what they join.
    pub fn derive(&self, address: &[u8]) -> Key {
        Key(self.below(b'k', address))
    }

    /// The root that belongs to `address`, from which others are derived in turn. No key and no
    /// other root has its bytes.
    pub fn root(&self, address: &[u8]) -> RootKey {
        RootKey(self.below(b'r', address))
    }

    fn below(&self, kind: u8, address: &[u8]) -> [u8; 32] {
        *blake3::Hasher::new_keyed(&self.0).update(&[kind]).update(address).finalize().as_bytes()
    }
}

fn random() -> Result<[u8; 32], getrandom::Error> {
    let mut key = [0; 32];
    getrandom::fill(&mut key)?;
    Ok(key)
}

fn agree(context: &str, first: &[u8], second: &[u8]) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new_derive_key(context);
    for part in [first, second] {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    *hasher.finalize().as_bytes()
}

/// The 256-bit secret key of one stream. It does not print and is wiped when dropped.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct Key([u8; 32]);

impl Key {
    /// A fresh key from the operating system.
    ///
    /// # Errors
    /// If the operating system has no randomness to give.
    pub fn random() -> Result<Key, getrandom::Error> {
        random().map(Key)
    }

    /// A key from its bytes: what a party was given, or a test's constant.
    pub fn from_bytes(bytes: [u8; 32]) -> Key {
        Key(bytes)
    }

    /// The key that two contributions make together, for one purpose.
    pub fn agree(context: &str, first: &[u8], second: &[u8]) -> Key {
        Key(agree(context, first, second))
    }

    /// The bytes, for a message to somebody who is to hold the same key.
    pub fn expose(&self) -> &[u8; 32] {
        &self.0
    }

    /// The stream under this key.
    pub fn stream(&self) -> Stream {
        let mut words = [0u32; 8];
        for (word, bytes) in words.iter_mut().zip(self.0.chunks_exact(4)) {
            *word = u32::from_le_bytes(bytes.try_into().expect("chunks of four"));
        }
        Stream { key: words }
    }
}

/// A stream of uniform 64-bit words, ChaCha12 under a key of its own with a zero nonce and a 64-bit
/// counter: word i is bytes 8i … 8i + 7 of the keystream, little-endian. Cheap to clone and to
/// index anywhere.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct Stream {
    key: [u32; 8],
}

/// 64-bit words per ChaCha block.
pub const BLOCK_WORDS: usize = 8;

impl Stream {
    /// Writes words `8·block`, `8·block + 1`, … .
    pub fn fill(&self, block: u64, out: &mut [u64]) {
        self.fill_at_level(Level::detect(), block, out);
    }

    /// [`Stream::fill`] by the instructions of one level.
    pub fn fill_at_level(&self, level: Level, block: u64, out: &mut [u64]) {
        chacha::fill(level, &self.key, block, out);
    }

    /// The first `n` words.
    pub fn words(&self, n: usize) -> Vec<u64> {
        let mut out = vec![0; n];
        self.fill(0, &mut out);
        out
    }

    /// The ChaCha key words, for a device that generates the stream itself.
    pub fn key_words(&self) -> &[u32; 8] {
        &self.key
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_derived_differs_by_kind_and_address() {
        let root = RootKey::from_bytes([1; 32]);
        let mut all = vec![*root.expose()];
        for address in [&b""[..], b"a", b"k", b"ka", &[0; 32], &[0; 200]] {
            all.extend([*root.derive(address).expose(), *root.root(address).expose()]);
        }
        for (i, a) in all.iter().enumerate() {
            assert!(all[..i].iter().all(|b| a != b), "{i}");
        }
        assert_eq!(root.derive(b"a").expose(), RootKey::from_bytes([1; 32]).derive(b"a").expose());
        assert_ne!(root.derive(b"a").expose(), RootKey::from_bytes([2; 32]).derive(b"a").expose());
    }
}
