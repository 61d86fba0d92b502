//! The GPUs of this machine, or what is missing.

use crate::gpu::Gpu;
use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys::{self, CUdevice_attribute as Attribute};
use cudarc::nvrtc::sys as nvrtc_sys;

pub(crate) fn available() -> std::result::Result<Vec<Gpu>, String> {
    // SAFETY: the question only opens a library by name; opening NVIDIA's libraries has no other
    // effect.
    if !unsafe { sys::is_culib_present() } {
        return Err("no CUDA driver: libcuda is not installed on this machine".into());
    }
    // SAFETY: as above.
    if !unsafe { nvrtc_sys::is_culib_present() } {
        return Err("the CUDA driver is there but NVRTC is not: install libnvrtc 12 or 13 (part of the CUDA toolkit, or \
                    the package nvidia-cuda-nvrtc) and put it on the library path"
            .into());
    }
    let mut version = 0;
    // SAFETY: writes one integer; it needs no initialised driver.
    unsafe { sys::cuDriverGetVersion(&mut version) }
        .result()
        .map_err(|e| format!("the CUDA driver does not work: {}", plain(e)))?;
    if version < 12080 {
        return Err(format!(
            "the CUDA driver is for CUDA {}.{}: version 12.8 or newer is needed",
            version / 1000,
            version % 1000 / 10
        ));
    }
    result::init().map_err(|e| format!("the CUDA driver does not start: {}", plain(e)))?;
    let (mut major, mut minor) = (0, 0);
    // SAFETY: writes two integers.
    unsafe { nvrtc_sys::nvrtcVersion(&mut major, &mut minor) }
        .result()
        .map_err(|e| format!("NVRTC does not work: {e}"))?;
    let count = result::device::get_count().map_err(|e| format!("cannot count GPUs: {}", plain(e)))?;
    let gpu = |ordinal: i32| {
        let device = result::device::get(ordinal)?;
        // SAFETY: `device` comes from the driver.
        let (attribute, memory) = unsafe {
            (
                |a| result::device::get_attribute(device, a).map(|x| x as u32),
                result::device::total_mem(device)?,
            )
        };
        Ok(Gpu {
            ordinal: ordinal as usize,
            name: result::device::get_name(device)?,
            capability: (
                attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
                attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
            ),
            memory,
            driver: (version as u32 / 1000, version as u32 % 1000 / 10),
            nvrtc: (major as u32, minor as u32),
        })
    };
    (0..count).map(|o| gpu(o).map_err(|e: DriverError| format!("GPU {o}: {}", plain(e)))).collect()
}

pub(super) fn plain(error: DriverError) -> String {
    let text = error.error_string().ok().map(|s| s.to_string_lossy().into_owned());
    format!("{} ({:?})", text.unwrap_or_else(|| "unknown error".into()), error.0)
}
