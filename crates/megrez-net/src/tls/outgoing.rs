//! What goes to the socket next.

use rustls::Error as TlsError;

/// Encrypted bytes: `bytes[..end]`. The rest is space that was cleared once, not for each record.
#[derive(Default)]
pub(super) struct Outgoing {
    pub(super) bytes: Vec<u8>,
    pub(super) end: usize,
}

impl Outgoing {
    pub(super) fn reserve(&mut self, more: usize) {
        if self.bytes.len() < self.end + more {
            self.bytes.resize(self.end + more, 0);
        }
    }

    /// Lets `fill` write behind the end, with more space when it says how much it needs.
    pub(super) fn append(
        &mut self,
        mut fill: impl FnMut(&mut [u8]) -> Result<usize, Option<usize>>,
    ) -> Result<(), TlsError> {
        loop {
            match fill(&mut self.bytes[self.end..]) {
                Ok(written) => {
                    self.end += written;
                    return Ok(());
                }
                Err(Some(required)) if required > self.bytes.len() - self.end => self.reserve(required),
                Err(_) => return Err(TlsError::EncryptError),
            }
        }
    }
}
