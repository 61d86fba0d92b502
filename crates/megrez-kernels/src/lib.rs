//! Local work on tensors. A [`Device`] says where tensors live and runs every kernel that protocols need; it never
//! talks to the network. [`Reference`] states each kernel in the plainest code; [`Cpu`] is fast and must equal it bit
//! for bit, which one differential suite checks.

#![allow(
    rustdoc::broken_intra_doc_links,
    reason = "[x] is a share of x, as the field writes it; the compiler takes it for a link"
)]
#![allow(
    clippy::type_complexity,
    reason = "lists of operands are tuples of coefficients and buffers, and mean that"
)]

mod baseline;
mod circuit;
mod cpu;
mod device;
mod list;
mod reference;
mod tensor;

pub use baseline::Baseline;
pub use circuit::{Circuit, GateKind, Operand, Program, Wire};
pub use cpu::Cpu;
pub use device::{Device, DeviceError, Elem, FieldShare, HostList, Placement, Selected, Truncation, Usage};
pub use list::{Entries, ListSpec, ListStreams};
pub use reference::Reference;
pub use tensor::{Bits, Tensor};
