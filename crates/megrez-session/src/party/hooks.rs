//! What tests, checks and proofs attach to a party: outside them a party has none.

use crate::Phase;
use megrez_prg::Key;
use std::any::Any;
use std::sync::{Arc, Mutex};

/// A message as its sender sees it, for tests that examine what a protocol reveals.
pub struct Sent {
    /// The sender.
    pub from: usize,
    /// The receiver.
    pub to: usize,
    /// The phase.
    pub phase: Phase,
    /// Step and label.
    pub name: String,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// A collector of everything that is sent; see [`Party::tap`](super::Party::tap).
pub type Tap = Arc<Mutex<Vec<Sent>>>;

/// A stream's or a message's name: who shares it or sends it to whom, when, and in which step.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Name {
    /// The party that draws or sends, and the other one (itself for a private stream).
    pub parties: [usize; 2],
    /// The phase.
    pub phase: Phase,
    /// The run.
    pub run: u32,
    /// The step with its scopes.
    pub place: String,
    /// What the stream is for, or the message's label.
    pub label: String,
}

/// What machines that check protocols see of a party, and change: see
/// [`Party::probe`](super::Party::probe). Outside tests and checks there is none.
pub trait Probe: Send + Sync {
    /// A stream is about to be used; its key is replaced by what comes back.
    fn stream(&self, _name: &Name, key: Key) -> Key {
        key
    }
    /// A buffer of the device is about to be sent.
    fn sent(&self, _name: &Name, _buffer: &dyn Any) {}
    /// A message has come: the buffer of the device that stands for it, in place of its bytes.
    fn received(&self, _name: &Name) -> Option<Box<dyn Any>> {
        None
    }
}

/// What a message of a step ought to be, so that its sender can prove to the others that it was.
pub struct Statement<'a> {
    /// The message: its sender, who proves it, and its receiver; phase, run, step and label.
    pub message: Name,
    /// Bits of the ring in which it holds.
    pub modulus: u32,
    /// What it says, in buffers of the device as far as this party holds them.
    pub body: &'a dyn Any,
}

/// Proves and checks messages after they were sent: see
/// [`Party::transcribe`](super::Party::transcribe). Semi-honest sessions have none.
pub trait Transcript: Send + Sync {
    /// A message of a step; its sender, its receiver and the third party record it alike.
    fn record(&self, statement: Statement<'_>);
    /// Whether everything that was recorded is proven. The reason of a refusal names no term of a
    /// statement.
    fn verify(&self) -> Result<(), String>;
}
