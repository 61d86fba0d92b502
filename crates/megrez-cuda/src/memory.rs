//! Memory on the device.

use crate::backend::Backend;
use crate::backend::Result;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex};

/// Kernels may write up to the next multiple of 64 bytes, so that they can move whole vectors and
/// stream blocks.
pub(crate) fn padded(bytes: usize) -> usize {
    bytes.max(1).next_multiple_of(64)
}

/// A piece of device memory, given back when dropped.
pub(crate) struct Memory {
    backend: Arc<dyn Backend>,
    at: u64,
    bytes: usize,
}

impl Memory {
    pub(crate) fn new(backend: Arc<dyn Backend>, at: u64, bytes: usize) -> Self {
        Memory { backend, at, bytes }
    }

    pub(crate) fn at(&self) -> u64 {
        self.at
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.backend.release(self.at, self.bytes);
    }
}

/// In which order a buffer was cut into limbs; its sizes decide the layout.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum LimbOrder {
    /// Columns of matrices: batch, k, n.
    Columns([usize; 3]),
    /// Convolution weights: groups, output channels, channels, taps.
    Weights([usize; 4]),
}

/// The limbs of a right operand. They are kept from the second use on: what is used twice is a
/// weight.
#[derive(Default)]
struct Limbs {
    last: Option<LimbOrder>,
    kept: Option<(LimbOrder, Arc<Memory>)>,
}

struct Held {
    memory: Memory,
    limbs: Mutex<Limbs>,
}

/// Elements on the device. Clones share memory.
pub struct Buf<T> {
    shared: Arc<Held>,
    len: usize,
    of: PhantomData<fn() -> T>,
}

impl<T> Clone for Buf<T> {
    fn clone(&self) -> Self {
        Buf { shared: self.shared.clone(), len: self.len, of: PhantomData }
    }
}

impl<T> Buf<T> {
    pub(crate) fn new(memory: Memory, len: usize) -> Self {
        Buf { shared: Arc::new(Held { memory, limbs: Mutex::default() }), len, of: PhantomData }
    }

    pub(crate) fn at(&self) -> u64 {
        self.shared.memory.at()
    }

    /// How many elements it holds.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The limbs of this buffer, made by `make` unless they are kept.
    pub(crate) fn limbs(
        &self,
        order: LimbOrder,
        make: impl FnOnce() -> Result<Memory>,
    ) -> Result<Arc<Memory>> {
        let mut limbs = self.shared.limbs.lock().unwrap_or_else(|e| e.into_inner());
        if let Some((kept, memory)) = &limbs.kept
            && *kept == order
        {
            return Ok(memory.clone());
        }
        let memory = Arc::new(make()?);
        if limbs.last == Some(order) {
            limbs.kept = Some((order, memory.clone()));
        }
        limbs.last = Some(order);
        Ok(memory)
    }
}
