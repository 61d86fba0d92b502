//! What is known of a GPU.

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
