//! The CPU device.

pub use crate::reference::Reference as Cpu;
