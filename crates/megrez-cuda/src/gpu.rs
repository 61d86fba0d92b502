//! The GPUs of this machine, in builds that can use them and in builds that cannot.

use crate::Result;
use crate::backend::Backend;
use std::sync::Arc;

/// A GPU of this machine.
#[derive(Clone, Debug)]
pub struct Gpu {
    /// Its number.
    pub ordinal: usize,
    /// Its name.
    pub name: String,
    /// Its compute capability, such as (9, 0).
    pub capability: (u32, u32),
    /// Its memory in bytes.
    pub memory: usize,
    /// The CUDA version of the driver, such as (13, 0).
    pub driver: (u32, u32),
    /// The version of NVRTC.
    pub nvrtc: (u32, u32),
}

#[cfg(feature = "driver")]
pub(crate) use crate::driver::available;

#[cfg(feature = "driver")]
pub(crate) fn open(ordinal: usize) -> Result<Arc<dyn Backend>> {
    Ok(Arc::new(crate::driver::Driver::new(ordinal)?))
}

#[cfg(not(feature = "driver"))]
pub(crate) fn available() -> std::result::Result<Vec<Gpu>, String> {
    Err("this build of megrez cannot use GPUs: build it with the feature `cuda`".into())
}

#[cfg(not(feature = "driver"))]
pub(crate) fn open(ordinal: usize) -> Result<Arc<dyn Backend>> {
    let why = |what| megrez_kernels::DeviceError { device: format!("cuda:{ordinal}"), what };
    Err(why(available().err().unwrap_or_default()))
}
