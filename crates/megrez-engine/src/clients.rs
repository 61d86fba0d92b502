//! The clients of a run, as a party sees them.

use megrez_net::Payload;
use megrez_plan::{Input, Output};
use megrez_session::Error;

/// How a party reaches the owners of inputs and the recipients of outputs.
pub trait Clients {
    /// Gives an input's owner this party's input-mask key.
    fn mask_key(&mut self, input: &Input, mask_key: Vec<u8>) -> Result<(), Error>;
    /// Receives an input's share from its owner; at most `limit` bytes.
    fn data(&mut self, input: &Input, limit: usize) -> Result<Payload, Error>;
    /// Gives an output's share to its recipient.
    fn output(&mut self, output: &Output, share: Payload) -> Result<(), Error>;
}
