//! Devices whose memory is the host's: where their tensors live. What they compute stands in `cpu`,
//! `reference` and `fused`.

use crate::cpu::element::build;
use crate::memory::{DeviceError, Elem, Memory};
use megrez_prg::Level;
use std::sync::Arc;

type Result<T> = std::result::Result<T, DeviceError>;

/// Host memory and the machine's vector units.
#[derive(Clone)]
pub struct Cpu {
    pub(crate) threads: usize,
    pub(crate) level: Level,
}

impl Default for Cpu {
    fn default() -> Self {
        Cpu::new(std::thread::available_parallelism().map_or(1, |n| n.get()))
    }
}

impl Cpu {
    /// A device that uses up to `threads` threads where a kernel is worth it.
    pub fn new(threads: usize) -> Self {
        Cpu::at_level(Level::detect(), threads)
    }

    /// A device that uses the instructions of one level only: for tests, which compare all levels
    /// of a machine.
    pub fn at_level(level: Level, threads: usize) -> Self {
        Cpu { threads: threads.max(1), level }
    }

    pub(crate) fn build_vec<T: bytemuck::Pod + Send>(
        &self,
        n: usize,
        block: impl Fn(usize, &mut [T]) + Sync,
    ) -> Vec<T> {
        build(self.threads, n, block)
    }

    pub(crate) fn build<T: bytemuck::Pod + Send>(
        &self,
        n: usize,
        block: impl Fn(usize, &mut [T]) + Sync,
    ) -> Arc<Vec<T>> {
        Arc::new(self.build_vec(n, block))
    }
}

impl Memory for Cpu {
    type Buf<T: Elem> = Arc<Vec<T>>;

    fn describe(&self) -> String {
        let plural = if self.threads == 1 { "" } else { "s" };
        format!("cpu ({}, {} thread{plural})", self.level.name(), self.threads)
    }

    fn upload<T: Elem>(&self, data: Vec<T>) -> Result<Arc<Vec<T>>> {
        Ok(Arc::new(data))
    }

    fn download<T: Elem>(&self, buf: Arc<Vec<T>>) -> Result<Vec<T>> {
        Ok(Arc::try_unwrap(buf).unwrap_or_else(|shared| shared.to_vec()))
    }
}

/// The reference device: host memory, one thread, for tests.
#[derive(Clone, Default)]
pub struct Reference;

impl Memory for Reference {
    type Buf<T: Elem> = Arc<Vec<T>>;

    fn describe(&self) -> String {
        "cpu (reference)".into()
    }

    fn upload<T: Elem>(&self, data: Vec<T>) -> Result<Arc<Vec<T>>> {
        Ok(Arc::new(data))
    }

    fn download<T: Elem>(&self, buf: Arc<Vec<T>>) -> Result<Vec<T>> {
        Ok(Arc::try_unwrap(buf).unwrap_or_else(|shared| shared.to_vec()))
    }
}
