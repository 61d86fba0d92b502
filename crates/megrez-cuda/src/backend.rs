//! What runs kernels: a GPU through its driver, or in tests the host.

use crate::source::Unit;
use megrez_kernels::DeviceError;
use std::collections::BTreeMap;
use std::ffi::c_void;

pub(crate) type Result<T> = std::result::Result<T, DeviceError>;

/// How a kernel is started.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Launch {
    /// Blocks.
    pub grid: [usize; 3],
    /// Threads per block, a multiple of 32.
    pub threads: u32,
    /// Bytes of dynamic shared memory.
    pub shared: u32,
}

/// An argument of a kernel, passed by value.
pub(crate) trait Arg {
    /// Where its bytes are.
    fn at(&self) -> *mut c_void;
}

impl<T: bytemuck::Pod> Arg for T {
    fn at(&self) -> *mut c_void {
        std::ptr::from_ref(self).cast_mut().cast()
    }
}

/// What one kernel has cost.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct KernelTime {
    /// How often it ran.
    pub launches: u64,
    /// Seconds on the device.
    pub seconds: f64,
}

/// What a device has done since it was made.
#[derive(Clone, Debug, Default)]
pub struct Statistics {
    /// Per kernel.
    pub kernels: BTreeMap<&'static str, KernelTime>,
    /// Kernel files compiled, not found in the cache.
    pub compiled: u64,
    /// Bytes in use now.
    pub memory: usize,
    /// The most bytes in use at once.
    pub peak_memory: usize,
    /// Bytes copied to the device.
    pub uploaded: u64,
    /// Bytes copied from the device.
    pub downloaded: u64,
}

impl Statistics {
    /// Seconds that kernels have run.
    pub fn kernel_seconds(&self) -> f64 {
        self.kernels.values().map(|k| k.seconds).sum()
    }

    pub(crate) fn allocated(&mut self, bytes: usize) {
        self.memory += bytes;
        self.peak_memory = self.peak_memory.max(self.memory);
    }
}

/// Memory and kernels. Addresses are the device's; the caller keeps them valid.
pub(crate) trait Backend: Send + Sync {
    /// What runs, for reports.
    fn describe(&self) -> String;
    /// How many blocks run at once when each needs a processor for itself.
    fn processors(&self) -> usize;
    /// Bytes of shared memory that a block may have.
    fn shared_memory(&self) -> usize;
    /// Whether four warps multiply bytes together, as on sm_90a.
    fn groups(&self) -> bool;
    /// Memory with any content.
    fn allocate(&self, bytes: usize) -> Result<u64>;
    /// Memory of `padded` bytes that starts with these.
    fn upload(&self, data: &[u8], padded: usize) -> Result<u64>;
    /// Gives memory back once all work given so far is done.
    fn release(&self, at: u64, bytes: usize);
    /// Copies to the host.
    fn download(&self, at: u64, out: &mut [u8]) -> Result<()>;
    /// Writes zeros.
    fn clear(&self, at: u64, bytes: usize) -> Result<()>;
    /// Starts a kernel after all work given so far.
    fn launch(&self, unit: &Unit, kernel: &'static str, launch: Launch, args: &[&dyn Arg]) -> Result<()>;
    /// Waits for all work.
    fn synchronize(&self) -> Result<()>;
    /// Waits for all work and sums up.
    fn statistics(&self) -> Result<Statistics>;
}
