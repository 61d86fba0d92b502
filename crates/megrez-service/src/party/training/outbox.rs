//! The clients of a job's runs: none is asked for anything, and what is opened waits with the party
//! for whom it is meant.

use megrez_engine::Clients;
use megrez_net::Payload;
use megrez_plan::{Input, Output};
use megrez_session::Error as SessionError;

/// What is opened, for whom, and this party's share of it.
#[derive(Default)]
pub(super) struct Outbox(pub(super) Vec<(String, String, Vec<u8>)>);

impl Clients for Outbox {
    fn mask_key(&mut self, input: &Input, _: Vec<u8>) -> std::result::Result<(), SessionError> {
        Err(SessionError::Refused(format!("a job asks nobody for `{}`", input.name)))
    }
    fn data(&mut self, input: &Input, _: usize) -> std::result::Result<Payload, SessionError> {
        Err(SessionError::Refused(format!("a job asks nobody for `{}`", input.name)))
    }
    fn output(&mut self, output: &Output, share: Payload) -> std::result::Result<(), SessionError> {
        self.0.push((output.name.clone(), output.recipient.clone(), share.as_bytes().to_vec()));
        Ok(())
    }
}
