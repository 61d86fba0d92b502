//! What a protocol offers to the engine.

use crate::{Cost, Store};
use megrez_kernels::Device;
use megrez_net::Payload;
use megrez_plan::{Op, Value};
use megrez_ring::Word;
use megrez_session::{Error, Party};

/// A primitive that a suite does not have, with the reason and the remedy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unsupported(pub String);

/// A protocol on one ring and one device.
///
/// A secret value is, at each party, its `Masks` (known before the inputs exist) and its `Data` (known online). Suites
/// without an offline phase have empty masks.
pub trait Suite: Clone + Send + Sync + 'static {
    /// The ring.
    type Word: Word;
    /// Where local work runs.
    type Device: Device;
    /// What one party knows of a value before the inputs exist.
    type Masks: Clone + Send + Sync + Store<Self::Device>;
    /// What one party learns of a value online.
    type Data: Clone + Send + Sync + Store<Self::Device>;
    /// The correlated randomness of one step at one party; used once.
    type Material: Send + Store<Self::Device>;

    /// How many parties take part.
    const PARTIES: usize;

    /// The exact cost of a primitive, or why the suite does not have it. `inputs` and `output` are the types.
    fn cost(&self, op: &Op, inputs: &[&Value], output: &Value) -> Result<Cost, Unsupported>;

    /// The masks of a fresh secret input, and this party's ticket for its owner. The tickets of all parties together let
    /// the owner share the input, and tell nothing about anything else.
    fn input(&self, party: &mut Party<Self::Device>, value: &Value) -> Result<(Self::Masks, Vec<u8>), Error>;

    /// The owner's side: from the tickets of all parties, what to send to each of them.
    fn share(&self, tickets: &[Vec<u8>], input: &[Self::Word]) -> Result<Vec<Payload>, Error>;

    /// What the owner sent, checked for size, as this party's data.
    fn accept(
        &self,
        party: &Party<Self::Device>,
        value: &Value,
        payload: Payload,
    ) -> Result<Self::Data, Error>;

    /// The offline step: from the inputs' masks, the step's material and the output's masks.
    fn offline(
        &self,
        party: &mut Party<Self::Device>,
        op: &Op,
        output: &Value,
        inputs: &[&Self::Masks],
    ) -> Result<(Self::Material, Self::Masks), Error>;

    /// The online step.
    fn online(
        &self,
        party: &mut Party<Self::Device>,
        op: &Op,
        output: &Value,
        inputs: &[(&Self::Masks, &Self::Data)],
        material: Self::Material,
    ) -> Result<Self::Data, Error>;

    /// This party's message to the recipient of a value.
    fn reveal(
        &self,
        party: &Party<Self::Device>,
        masks: &Self::Masks,
        data: &Self::Data,
    ) -> Result<Payload, Error>;

    /// The recipient's side: the value from the messages of all parties.
    fn reconstruct(&self, value: &Value, messages: &[Payload]) -> Result<Vec<Self::Word>, Error>;
}
