//! The CUDA [`Device`](megrez_kernels::Device): every kernel of the seam, bit for bit as the
//! reference states it.
//!
//! Nothing here needs CUDA to build: the driver and NVRTC are loaded at run time. Kernels are the
//! CUDA C++ files under `kernels/`; a file is compiled at first use for the device at hand and for
//! the word, list or element size that it is needed for, and kept on disk. The same files compile
//! as host C++, where the tests run them against the reference.

#![cfg_attr(
    not(feature = "driver"),
    allow(dead_code, reason = "what the driver needs stays, for one source of kernels")
)]

mod backend;
#[cfg(any(feature = "driver", feature = "emulator", test))]
mod cache;
mod device;
#[cfg(feature = "driver")]
mod driver;
mod dry_run;
#[cfg(any(test, feature = "emulator"))]
mod emulator;
mod gemm;
mod gpu;
mod keys;
mod list_shape;
mod lists;
mod memory;
mod openings;
mod planes;
mod present;
mod source;
mod structure;
mod tables;
#[cfg(test)]
mod tests;
mod unfused;
mod variants;

pub use backend::{KernelTime, Statistics};
pub use gpu::Gpu;
pub use memory::Buf;
pub use source::every_unit;
pub use variants::Reduction;

use backend::{Arg, Backend, Launch, Result};
use megrez_kernels::DeviceError;
use memory::Memory;
use source::Unit;
use std::sync::Arc;

/// One GPU. Clones share its queue, memory pool and statistics; work of several threads runs in the
/// order of the calls.
#[derive(Clone)]
pub struct Cuda {
    backend: Arc<dyn Backend>,
}

impl Cuda {
    /// The GPU with this number, as [`Cuda::available`] counts.
    ///
    /// # Errors
    /// If the driver or NVRTC is missing, or the GPU is missing, too old, or taken.
    pub fn new(ordinal: usize) -> std::result::Result<Cuda, DeviceError> {
        Ok(Cuda { backend: present::open(ordinal)? })
    }

    /// A device that holds no data and runs no kernel: it counts memory and launches, as on an
    /// H100. Whatever comes from it is zero.
    pub fn dry_run() -> Cuda {
        Cuda { backend: Arc::new(dry_run::DryRun::default()) }
    }

    /// The kernels on the host, slow and careful, for tests without a GPU.
    ///
    /// # Errors
    /// A sentence that says why not, if the machine has no C++ compiler.
    #[cfg(any(test, feature = "emulator"))]
    pub fn emulated() -> std::result::Result<Cuda, String> {
        Ok(Cuda { backend: Arc::new(emulator::Emulator::new(false)?) })
    }

    /// As [`emulated`](Self::emulated), with the products of an H100, whose warps multiply in
    /// groups.
    #[cfg(test)]
    pub(crate) fn emulated_groups() -> std::result::Result<Cuda, String> {
        Ok(Cuda { backend: Arc::new(emulator::Emulator::new(true)?) })
    }

    /// The GPUs of this machine.
    ///
    /// # Errors
    /// A sentence that says why there are none to use.
    pub fn available() -> std::result::Result<Vec<Gpu>, String> {
        present::available()
    }

    /// Kernel times and memory since the device was made. Waits for the device.
    ///
    /// # Errors
    /// If the device is lost.
    pub fn statistics(&self) -> std::result::Result<Statistics, DeviceError> {
        self.backend.statistics()
    }

    /// Waits until all work given so far is done.
    ///
    /// # Errors
    /// If the device is lost.
    pub fn synchronize(&self) -> std::result::Result<(), DeviceError> {
        self.backend.synchronize()
    }

    /// Memory of `bytes` bytes and padding that kernels may write.
    pub(crate) fn allocate(&self, bytes: usize) -> Result<Memory> {
        let padded = memory::padded(bytes);
        Ok(Memory::new(self.backend.clone(), self.backend.allocate(padded)?, padded))
    }

    /// Memory of zeros.
    pub(crate) fn zeroed(&self, bytes: usize) -> Result<Memory> {
        let memory = self.allocate(bytes)?;
        self.backend.clear(memory.at(), memory::padded(bytes))?;
        Ok(memory)
    }

    /// One thread per item.
    pub(crate) fn run(
        &self,
        unit: &Unit,
        kernel: &'static str,
        items: usize,
        args: &[&dyn Arg],
    ) -> Result<()> {
        self.launch(unit, kernel, Launch { grid: [items.div_ceil(256), 1, 1], threads: 256, shared: 0 }, args)
    }

    pub(crate) fn launch(
        &self,
        unit: &Unit,
        kernel: &'static str,
        launch: Launch,
        args: &[&dyn Arg],
    ) -> Result<()> {
        if launch.grid.contains(&0) {
            return Ok(());
        }
        if launch.grid[0] > i32::MAX as usize || launch.grid[1..].iter().any(|&d| d > u16::MAX.into()) {
            return Err(
                self.failed(format!("{kernel}: {:?} blocks are too many for one launch", launch.grid))
            );
        }
        self.backend.launch(unit, kernel, launch, args)
    }

    pub(crate) fn failed(&self, what: impl Into<String>) -> DeviceError {
        DeviceError { device: self.backend.describe(), what: what.into() }
    }
}

/// A kernel's arguments; their types must be those of the kernel's parameters.
macro_rules! args {
    ($($arg:expr),* $(,)?) => { &[$(&$arg as &dyn crate::backend::Arg),*] };
}
pub(crate) use args;
