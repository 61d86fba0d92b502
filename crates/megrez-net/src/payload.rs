//! Bytes of one message, aligned so that ring words can be viewed in place.

use bytemuck::Pod;

use crate::error::NetError;
use zeroize::Zeroize;

/// The first words of a payload, which are wiped when it is dropped: whole keys and tickets, and
/// the keys at the head of inputs. What follows in larger ones are shares in bulk. Wiping these too
/// would write every byte that is sent or received once more, and win nothing, since the same words
/// lie in the step's buffers on the device.
const WIPED: usize = 512;

/// The bytes of one message in a buffer whose start is aligned to 8 bytes, so that a receiver can
/// view them as `&[u64]`, `&[u32]` and so on without a copy.
///
/// The words are little endian on the wire. Bytes between [`len`](Self::len) and the next multiple
/// of eight are always zero. `Debug` prints the length only: a payload is usually a share of
/// somebody's secret.
#[derive(Clone, Default)]
pub struct Payload {
    words: Vec<u64>,
    len: usize,
}

impl Payload {
    /// A payload of `8 * words.len()` bytes; takes the vector without a copy.
    #[must_use]
    pub fn from_words(words: Vec<u64>) -> Self {
        let len = words.len() * 8;
        Self { words, len }
    }

    /// The first `len` bytes of `words`; takes the vector without a copy.
    ///
    /// # Panics
    /// If there are fewer bytes.
    #[must_use]
    pub fn from_prefix(mut words: Vec<u64>, len: usize) -> Self {
        assert!(len <= words.len() * 8, "a prefix longer than the words");
        words.truncate(len.div_ceil(8));
        if !len.is_multiple_of(8) {
            words[len / 8] &= (1 << (len % 8 * 8)) - 1;
        }
        Self { words, len }
    }

    /// A copy of `bytes`.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let mut payload = Self::zeroed(bytes.len());
        payload.as_mut_bytes().copy_from_slice(bytes);
        payload
    }

    /// `len` zero bytes.
    #[must_use]
    pub fn zeroed(len: usize) -> Self {
        Self { words: vec![0; len.div_ceil(8)], len }
    }

    /// A copy of `values`, in the machine's (little endian) representation.
    #[must_use]
    pub fn from_pod<T: Pod>(values: &[T]) -> Self {
        Self::from_bytes(bytemuck::cast_slice(values))
    }

    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.words)[..self.len]
    }

    /// The bytes, to fill in.
    pub fn as_mut_bytes(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.words)[..self.len]
    }

    /// The payload as 64-bit words; the last word is padded with zero bytes.
    #[must_use]
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// The payload as 64-bit words without a copy; the last word is padded with zero bytes.
    #[must_use]
    pub fn into_words(mut self) -> Vec<u64> {
        std::mem::take(&mut self.words)
    }

    /// The payload as values of type `T`, without a copy.
    ///
    /// # Errors
    /// [`NetError::Config`] when the length is no multiple of the size of `T`, or `T` needs more
    /// than 8-byte alignment.
    pub fn as_pod<T: Pod>(&self) -> Result<&[T], NetError> {
        bytemuck::try_cast_slice(self.as_bytes()).map_err(|_| {
            NetError::Config(format!(
                "a message of {} bytes cannot be read as values of {} bytes each; check that both sides agree on \
                 the shape and the type",
                self.len,
                size_of::<T>()
            ))
        })
    }

    /// Room for `len` bytes reserved, nothing in it yet; filled by [`grow`](Self::grow).
    pub(crate) fn with_capacity(len: usize) -> Self {
        Self { words: Vec::with_capacity(len.div_ceil(8)), len: 0 }
    }

    /// Appends `more` zero bytes and returns them. Reserves geometrically, at most up to `total`
    /// bytes.
    pub(crate) fn grow(&mut self, more: usize, total: usize) -> &mut [u8] {
        let start = self.len;
        let words = (start + more).div_ceil(8);
        if words > self.words.capacity() {
            let wanted = (self.words.capacity() * 2).clamp(words, total.div_ceil(8).max(words));
            self.words.reserve_exact(wanted - self.words.len());
        }
        self.words.resize(words, 0);
        self.len = start + more;
        &mut self.as_mut_bytes()[start..]
    }
}

impl Payload {
    fn wipe(&mut self) {
        let words = self.words.len().min(WIPED);
        self.words[..words].zeroize();
    }
}

impl Drop for Payload {
    fn drop(&mut self) {
        self.wipe();
    }
}

impl PartialEq for Payload {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for Payload {}

impl std::fmt::Debug for Payload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Payload({} bytes)", self.len)
    }
}

impl From<Vec<u64>> for Payload {
    fn from(words: Vec<u64>) -> Self {
        Self::from_words(words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_words_agree() {
        let payload = Payload::from_bytes(&[1, 2, 3, 4, 5, 6, 7, 8, 9]);
        assert_eq!(payload.len(), 9);
        assert_eq!(payload.words(), [0x0807_0605_0403_0201, 9]);
        assert_eq!(payload.as_bytes(), [1, 2, 3, 4, 5, 6, 7, 8, 9]);
        assert_eq!(Payload::from_words(vec![7, 8]).len(), 16);
        assert!(Payload::from_bytes(&[]).is_empty());
    }

    #[test]
    fn pod_views_check_the_length() {
        let payload = Payload::from_pod(&[1u32, 2, 3]);
        assert_eq!(payload.as_pod::<u32>().unwrap(), [1, 2, 3]);
        assert_eq!(payload.as_pod::<u16>().unwrap(), [1, 0, 2, 0, 3, 0]);
        assert!(matches!(payload.as_pod::<u64>(), Err(NetError::Config(_))));
    }

    #[test]
    fn growing_keeps_bytes_and_padding() {
        let mut payload = Payload::with_capacity(4);
        for i in 0..100u8 {
            payload.grow(3, 300).fill(i + 1);
        }
        assert_eq!(payload.len(), 300);
        let expected: Vec<u8> = (0..100u8).flat_map(|i| [i + 1; 3]).collect();
        assert_eq!(payload.as_bytes(), expected);
        assert_eq!(payload.words().len(), 38);
        assert_eq!(payload.words()[37] >> 32, 0, "padding stays zero");
    }

    #[test]
    fn a_prefix_ends_in_zeros() {
        let payload = Payload::from_prefix(vec![u64::MAX; 3], 11);
        assert_eq!(payload.as_bytes(), [0xff; 11]);
        assert_eq!(payload.words(), [u64::MAX, 0xff_ffff]);
        assert_eq!(Payload::from_prefix(vec![1, 2], 16).words(), [1, 2]);
        assert!(Payload::from_prefix(vec![7], 0).words().is_empty());
    }

    #[test]
    fn keys_and_the_heads_of_inputs_are_wiped() {
        let mut key = Payload::from_bytes(&[7; 32]);
        key.wipe();
        assert_eq!(key.as_bytes(), [0; 32]);
        let mut large = Payload::from_words(vec![7; WIPED + 1]);
        large.wipe();
        assert!(large.words()[..WIPED].iter().all(|w| *w == 0));
        assert_eq!(Payload::from_words(vec![7; 2]).into_words(), [7; 2], "what is taken out is kept");
    }

    #[test]
    fn debug_prints_no_contents() {
        assert_eq!(format!("{:?}", Payload::from_bytes(&[0xAB; 5])), "Payload(5 bytes)");
    }
}
