//! The GPUs of this machine, in builds that can use them and in builds that cannot.

use crate::backend::Backend;
use crate::backend::Result;
#[cfg(not(feature = "driver"))]
use crate::gpu::Gpu;
use std::sync::Arc;

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
