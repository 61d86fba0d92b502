//! What a protocol offers to the engine.
//!
//! Security: `docs/security/composition.md`.

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

    /// The most bytes that the owner sends to any party for a value: more is refused before it is read.
    fn share_bytes(&self, value: &Value) -> usize {
        value.shape.elements() * size_of::<Self::Word>()
    }

    /// What the owner sent, checked for size, as this party's data.
    fn accept(
        &self,
        party: &Party<Self::Device>,
        value: &Value,
        payload: Payload,
    ) -> Result<Self::Data, Error>;

    /// Whether the output's masks are known only once the step has run. `inputs` are the types; `late_inputs` says that
    /// the masks of some input are.
    fn late(&self, op: &Op, inputs: &[&Value], late_inputs: bool) -> bool;

    /// The output's masks, before the inputs exist. Masks of inputs that are late are `None`; the result is `None` where
    /// [`Suite::late`] says so.
    fn masks(
        &self,
        party: &mut Party<Self::Device>,
        op: &Op,
        output: &Value,
        inputs: &[Option<&Self::Masks>],
    ) -> Result<Option<Self::Masks>, Error>;

    /// The offline step: the material, from the masks of the inputs; `masks` are the output's, if they are known. Where an input is late, the engine runs this step
    /// online, as soon as the masks are known; its messages then count as online.
    fn offline(
        &self,
        party: &mut Party<Self::Device>,
        op: &Op,
        output: &Value,
        inputs: &[&Self::Masks],
        masks: Option<&Self::Masks>,
    ) -> Result<Self::Material, Error>;

    /// The online step: the output's data, and its masks if they are known only now. `masks` are the output's otherwise.
    fn online(
        &self,
        party: &mut Party<Self::Device>,
        op: &Op,
        output: &Value,
        inputs: &[(&Self::Masks, &Self::Data)],
        masks: Option<&Self::Masks>,
        material: Self::Material,
    ) -> Result<(Self::Data, Option<Self::Masks>), Error>;

    /// This party's message to the recipient of a value. It runs in a step of its own, so that a suite whose shares are no function
    /// of the value and of what the recipient may hold can draw a mask for them.
    fn reveal(
        &self,
        party: &mut Party<Self::Device>,
        masks: &Self::Masks,
        data: &Self::Data,
    ) -> Result<Payload, Error>;

    /// The recipient's side: the value from the messages of all parties.
    fn reconstruct(&self, value: &Value, messages: &[Payload]) -> Result<Vec<Self::Word>, Error>;
}
