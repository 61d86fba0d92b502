//! Everything that can end a session.

use megrez_kernels::DeviceError;
use megrez_net::NetError;

/// Why a step could not be done. Messages name the step and the party, never a secret.
#[derive(Debug, Clone, thiserror::Error, PartialEq)]
pub enum Error {
    /// The network, or the shared reason of a session that failed.
    #[error(transparent)]
    Net(#[from] NetError),
    /// The device.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A peer's message does not have the size that the step demands.
    #[error(
        "step `{step}`: party {from} sent {got} bytes where {expected} belong; the parties run different versions or \
         plans"
    )]
    Size {
        /// The step and label.
        step: String,
        /// Who sent it.
        from: usize,
        /// Bytes received.
        got: usize,
        /// Bytes expected.
        expected: usize,
    },
    /// A stream was asked for twice. Using it again would reuse randomness.
    #[error(
        "step `{step}` asks for its random stream `{purpose}` a second time: two steps have the same name"
    )]
    StreamReused {
        /// The step.
        step: String,
        /// The stream's purpose.
        purpose: String,
    },
    /// The operating system has no randomness.
    #[error("the operating system gives no randomness: {0}")]
    Randomness(String),
    /// A step cannot run here, or the parties disagree.
    #[error("step `{step}`: {what}")]
    Step {
        /// The step.
        step: String,
        /// What is wrong and what to do.
        what: String,
    },
    /// A failure of this party alone: a file could not be read or written, as its disk is full.
    #[error("{0}")]
    Storage(String),
    /// Something outside the plan: stored material, an input, a request.
    #[error("{0}")]
    Refused(String),
}
