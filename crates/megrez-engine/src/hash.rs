//! What the parties compare.

/// A hash of bytes for one purpose, for what the parties compare.
pub fn hash(purpose: &str, bytes: &[u8]) -> [u8; 32] {
    blake3::derive_key(purpose, bytes)
}
