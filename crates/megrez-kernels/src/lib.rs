//! Local work on tensors. A [`Device`] says where tensors live and runs every kernel that protocols
//! need; it never talks to the network. [`Reference`] states each kernel in the plainest code;
//! [`Cpu`] is fast and must equal it bit for bit, which one differential suite checks (`testing`).
//! What protocols fuse into one kernel are traits of their own.

#![allow(
    rustdoc::broken_intra_doc_links,
    reason = "[x] is a share of x, as the field writes it; the compiler takes it for a link"
)]
#![allow(
    clippy::type_complexity,
    reason = "lists of operands are tuples of coefficients and buffers, and mean that"
)]

mod circuit;
mod cpu;
mod device;
mod fused;
mod host;
mod memory;
mod reference;
mod tensor;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use circuit::{Circuit, GateKind, Operand, Program, Wire};
pub use device::{Device, Placement};
pub use fused::*;
pub use host::{Cpu, Reference};
pub use memory::{DeviceError, Elem, Memory, Usage};

pub use tensor::{Bits, Tensor};
