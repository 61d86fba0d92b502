//! Bytes of a file.

use memmap2::Mmap;

/// The bytes of a file, in memory or mapped.
pub(crate) enum Bytes {
    Memory(Vec<u8>),
    File(Mmap),
}

impl Bytes {
    #[inline(always)]
    pub(crate) fn get(&self) -> &[u8] {
        match self {
            Bytes::Memory(bytes) => bytes,
            Bytes::File(map) => map,
        }
    }
}
