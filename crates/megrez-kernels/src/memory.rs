//! Where tensors live.

/// What a device can hold.
pub trait Elem: bytemuck::Pod + Default + Send + Sync + 'static {}

impl<T: bytemuck::Pod + Default + Send + Sync + 'static> Elem for T {}

/// A device that cannot do its work: out of memory, lost, or not there.
#[derive(Debug, Clone, thiserror::Error, PartialEq, Eq)]
#[error("device {device}: {what}")]
pub struct DeviceError {
    /// Which device.
    pub device: String,
    /// What happened and what to do.
    pub what: String,
}

/// What a device with a clock and memory of its own has done since it was made.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Usage {
    /// Seconds that kernels ran.
    pub kernel_seconds: f64,
    /// Bytes in use now.
    pub memory: usize,
    /// The most bytes in use at once.
    pub peak_memory: usize,
}

/// Where tensors live.
pub trait Memory: Clone + Send + Sync + 'static {
    /// Memory for elements of type `T`. Clones share memory.
    type Buf<T: Elem>: Clone + Send + Sync + 'static;

    /// What runs, for reports: `cpu (avx512, 2 threads)`.
    fn describe(&self) -> String;

    /// Whether it has kernels for words of a ring of so many bits.
    fn has_ring(&self, ring: u32) -> bool {
        let _ = ring;
        true
    }

    /// Kernel time and memory; `None` where they are the host's own. May wait for work under way.
    fn usage(&self) -> Result<Option<Usage>, DeviceError> {
        Ok(None)
    }

    /// Takes elements from the host.
    fn upload<T: Elem>(&self, data: Vec<T>) -> Result<Self::Buf<T>, DeviceError>;
    /// Gives elements to the host; free of copies where the device is the host and the buffer has
    /// no other user.
    fn download<T: Elem>(&self, buf: Self::Buf<T>) -> Result<Vec<T>, DeviceError>;
}
