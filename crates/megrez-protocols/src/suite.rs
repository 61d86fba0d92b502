//! What a protocol offers to the engine, and what it is made of.
//!
//! A [`Sharing`] says who holds what of a value; a [`Suite`] is a sharing with the primitives that
//! it computes. A suite is a list of rows, one for each [`Step`], and nothing else: a step's own
//! file says which calls it answers, what it costs, what it prepares and what it sends.
//! `suite_of_steps!` makes from the rows what the engine calls.
//!
//! Security: `docs/security/composition.md`.

use crate::{Cost, Encode};
use megrez_kernels::Device;
use megrez_net::Payload;
use megrez_plan::{Kind, Op, Value};
use megrez_ring::{Shape, Word};
use megrez_session::{Error, Party};

/// A primitive that a suite does not have, with the reason and the remedy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unsupported(pub String);

/// A step of a plan as all parties see it: the operation, and the types of what goes in and what
/// comes out.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// What to do.
    pub op: &'a Op,
    /// The types of the inputs.
    pub inputs: &'a [&'a Value],
    /// The type of the result.
    pub output: &'a Value,
}

impl<'a> Call<'a> {
    /// The result's dimensions.
    pub fn shape(&self) -> &'a Shape {
        &self.output.shape
    }

    /// Whether some input is public.
    pub fn has_public(&self) -> bool {
        self.inputs.iter().any(|v| matches!(v.kind, Kind::Public { .. }))
    }

    /// Whether the first input is bits.
    pub fn of_bits(&self) -> bool {
        self.inputs.first().is_some_and(|v| v.kind == Kind::Bit)
    }

    /// Whether the first input is a sum whose resharing is deferred.
    pub fn of_sum(&self) -> bool {
        self.inputs.first().is_some_and(|v| matches!(v.kind, Kind::Additive { .. }))
    }

    /// The call whose result is shared, and whether it is to be left as a sum.
    pub fn unshared(self) -> (Call<'a>, bool) {
        match self.op {
            Op::Additive(op) => (Call { op, ..self }, true),
            _ => (self, false),
        }
    }

    /// Whether the result is a sum that is left as one.
    pub fn gives_sum(&self) -> bool {
        matches!(self.output.kind, Kind::Additive { .. })
    }

    /// Elements of the first input.
    pub fn of_elements(&self) -> usize {
        self.inputs.first().map_or(0, |v| v.shape.elements())
    }
}

/// Words that a party holds for an element of a secret value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WordsHeld {
    /// Of its masks, while material is made.
    pub masks: usize,
    /// Of these, once [`Sharing::spent`].
    pub kept: usize,
    /// Of its data.
    pub data: usize,
}

/// Who holds what of a value, on one ring and one device: how an owner shares an input, and how a
/// result leaves.
///
/// A secret value is, at each party, its `Masks` (known before the inputs exist) and its `Data`
/// (known online). Sharings without masks have empty ones.
pub trait Sharing: Clone + Send + Sync + 'static {
    /// The ring.
    type Word: Word;
    /// Where local work runs.
    type Device: Device;
    /// What one party knows of a value before the inputs exist.
    type Masks: Clone + Send + Sync + Encode<Self::Device> + 'static;
    /// What one party learns of a value online.
    type Data: Clone + Send + Sync + Encode<Self::Device> + 'static;

    /// How many parties take part.
    const PARTIES: usize;

    /// Words that party `me` holds for an element of a secret value.
    fn words_held(me: usize) -> WordsHeld;

    /// The masks of a fresh secret input, and this party's input-mask key for its owner. The
    /// input-mask keys of all parties together let the owner share the input, and tell nothing
    /// about anything else.
    fn input(&self, party: &mut Party<Self::Device>, value: &Value) -> Result<(Self::Masks, Vec<u8>), Error>;

    /// The owner's side: from the input-mask keys of all parties, what to send to each of them.
    fn share(&self, mask_keys: &[Vec<u8>], input: &[Self::Word]) -> Result<Vec<Payload>, Error>;

    /// The most bytes that the owner sends to any party for a value: more is refused before it is
    /// read.
    fn share_bytes(&self, value: &Value) -> usize {
        value.shape.elements() * Self::Word::BYTES
    }

    /// The parts of an owner's message to party `me` that it must have sent to another party as
    /// well, with that party: an owner that sends one thing to one and another to the other is
    /// found out by their comparing it. None where no two parties hold the same. The message may
    /// have any size.
    fn common<'a>(&self, me: usize, message: &'a [u8]) -> Vec<(usize, &'a [u8])> {
        let _ = (me, message);
        vec![]
    }

    /// The masks of a result that depend on nothing but its type: fresh where the sharing has
    /// masks.
    fn fresh(party: &mut Party<Self::Device>, value: &Value) -> Result<Self::Masks, Error>;

    /// What is left of masks when every step that reads or makes their value has its material, and
    /// none is of those that [`Suite::reads_masks`] names; `None` where the online phase needs
    /// them. What a run keeps or opens needs them too, and is not asked about.
    fn spent(masks: &Self::Masks) -> Option<Self::Masks> {
        let _ = masks;
        None
    }

    /// What the owner sent, checked for size, as this party's data.
    fn accept(
        &self,
        party: &Party<Self::Device>,
        value: &Value,
        payload: Payload,
    ) -> Result<Self::Data, Error>;

    /// This party's message to the recipient of a value. It runs in a step of its own, so that a
    /// suite whose shares are no function of the value and of what the recipient may hold can draw
    /// a mask for them.
    fn reveal(
        &self,
        party: &mut Party<Self::Device>,
        masks: &Self::Masks,
        data: &Self::Data,
        verified: &Verified,
    ) -> Result<Payload, Error>;

    /// The recipient's side: the value from the messages of all parties.
    fn reconstruct(&self, value: &Value, messages: &[Payload]) -> Result<Vec<Self::Word>, Error>;
}

/// What a step computes on at one party: masks and data of its inputs, and the masks of its result
/// if they are known before.
pub struct Operands<'a, S: Sharing> {
    /// Masks and data of every input.
    pub inputs: &'a [(&'a S::Masks, &'a S::Data)],
    /// The result's masks.
    pub masks: Option<&'a S::Masks>,
}

impl<S: Sharing> Clone for Operands<'_, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S: Sharing> Copy for Operands<'_, S> {}

/// A step's data, and its masks if they are known only now.
pub type Made<S> = (<S as Sharing>::Data, Option<<S as Sharing>::Masks>);

/// That everything sent so far is what the protocol says, as far as its level of security asks for
/// that. Only [`Suite::verify`] makes one, and nothing is revealed without.
pub struct Verified(());

/// A protocol: a sharing, and the primitives on it.
pub trait Suite: Sharing {
    /// The correlated randomness of one step at one party; used once.
    type Material: Send + Encode<Self::Device> + 'static;

    /// The exact cost of a primitive, or why the suite does not have it.
    fn cost(&self, call: Call<'_>) -> Result<Cost, Unsupported>;

    /// Whether the output's masks are known only once the step has run. `deferred_inputs` says that
    /// the masks of some input are.
    fn deferred(&self, call: Call<'_>, deferred_inputs: bool) -> bool;

    /// Whether the online step reads masks that [`Sharing::spent`] would have left out, of its
    /// inputs or of its result.
    fn reads_masks(&self, call: Call<'_>) -> bool {
        self.deferred(call, false)
    }

    /// The output's masks, before the inputs exist. Masks of inputs that are deferred are `None`;
    /// the result is `None` where [`Suite::deferred`] says so, and asked for again once they are
    /// known. A step may send here: it counts as offline, or as online where it is asked then.
    fn masks(
        &self,
        party: &mut Party<Self::Device>,
        call: Call<'_>,
        inputs: &[Option<&Self::Masks>],
    ) -> Result<Option<Self::Masks>, Error>;

    /// The offline step: the material, from the masks of the inputs; `masks` are the output's, if
    /// they are known. Where an input is deferred, the engine runs this step online, as soon as the
    /// masks are known; its messages then count as online.
    fn offline(
        &self,
        party: &mut Party<Self::Device>,
        call: Call<'_>,
        inputs: &[&Self::Masks],
        masks: Option<&Self::Masks>,
    ) -> Result<Self::Material, Error>;

    /// The online step.
    fn online(
        &self,
        party: &mut Party<Self::Device>,
        call: Call<'_>,
        operands: Operands<'_, Self>,
        material: Self::Material,
    ) -> Result<Made<Self>, Error>;

    /// Runs after the online phase, before anything is revealed or kept. Semi-honest parties trust
    /// each other's messages; in a session with a transcript every recorded message has to be
    /// proven.
    fn verify(&self, party: &mut Party<Self::Device>) -> Result<Verified, Error> {
        party.verify()?;
        Ok(Verified(()))
    }
}

/// One way to compute a primitive on a sharing: what a paper has a figure for. The value of the
/// type is a call that has been understood; its methods are as those of [`Suite`].
pub trait Step<'a, S: Sharing>: Sized {
    /// The correlated randomness of the step at one party.
    type Material: Send + Encode<S::Device>;

    /// The call, if this step answers it. Operation and types alone decide, so that all parties
    /// agree.
    fn of(suite: &S, call: Call<'a>) -> Option<Self>;

    /// The exact cost, or why this call cannot be computed.
    fn cost(&self) -> Result<Cost, Unsupported>;

    /// Whether the result's masks are deferred.
    fn deferred(&self, deferred_inputs: bool) -> bool {
        let _ = deferred_inputs;
        false
    }

    /// See [`Suite::reads_masks`].
    fn reads_masks(&self) -> bool {
        self.deferred(false)
    }

    /// The result's masks: those of [`Sharing::fresh`], unless they follow from the inputs'. Before
    /// [`Step::offline`], in the same phase; what is sent here is a part of what that costs.
    fn masks(
        &self,
        party: &mut Party<S::Device>,
        output: &Value,
        inputs: &[Option<&S::Masks>],
    ) -> Result<Option<S::Masks>, Error> {
        let deferred = self.deferred(inputs.iter().any(Option::is_none));
        if deferred { Ok(None) } else { S::fresh(party, output).map(Some) }
    }

    /// The offline phase.
    fn offline(
        &self,
        party: &mut Party<S::Device>,
        inputs: &[&S::Masks],
        masks: Option<&S::Masks>,
    ) -> Result<Self::Material, Error>;

    /// The online phase.
    fn online(
        &self,
        party: &mut Party<S::Device>,
        operands: Operands<'_, S>,
        material: Self::Material,
    ) -> Result<Made<S>, Error>;
}

/// A [`Step`] without an offline phase.
pub trait OnlineStep<'a, S: Sharing>: Sized {
    /// See [`Step::of`].
    fn of(suite: &S, call: Call<'a>) -> Option<Self>;

    /// See [`Step::cost`]; a step that sends nothing.
    fn cost(&self) -> Result<Cost, Unsupported> {
        Ok(Cost::LOCAL)
    }

    /// See [`Step::deferred`].
    fn deferred(&self, deferred_inputs: bool) -> bool {
        let _ = deferred_inputs;
        false
    }

    /// See [`Step::masks`].
    fn masks(
        &self,
        party: &mut Party<S::Device>,
        output: &Value,
        inputs: &[Option<&S::Masks>],
    ) -> Result<Option<S::Masks>, Error> {
        let deferred = self.deferred(inputs.iter().any(Option::is_none));
        if deferred { Ok(None) } else { S::fresh(party, output).map(Some) }
    }

    /// See [`Step::online`].
    fn online(&self, party: &mut Party<S::Device>, operands: Operands<'_, S>) -> Result<Made<S>, Error>;
}

impl<'a, S: Sharing, T: OnlineStep<'a, S>> Step<'a, S> for T {
    type Material = ();

    fn of(suite: &S, call: Call<'a>) -> Option<Self> {
        <T as OnlineStep<'a, S>>::of(suite, call)
    }

    fn cost(&self) -> Result<Cost, Unsupported> {
        <T as OnlineStep<'a, S>>::cost(self)
    }

    fn deferred(&self, deferred_inputs: bool) -> bool {
        <T as OnlineStep<'a, S>>::deferred(self, deferred_inputs)
    }

    fn masks(
        &self,
        party: &mut Party<S::Device>,
        output: &Value,
        inputs: &[Option<&S::Masks>],
    ) -> Result<Option<S::Masks>, Error> {
        <T as OnlineStep<'a, S>>::masks(self, party, output, inputs)
    }

    fn offline(
        &self,
        _: &mut Party<S::Device>,
        _: &[&S::Masks],
        _: Option<&S::Masks>,
    ) -> Result<Self::Material, Error> {
        Ok(())
    }

    fn online(
        &self,
        party: &mut Party<S::Device>,
        operands: Operands<'_, S>,
        (): Self::Material,
    ) -> Result<Made<S>, Error> {
        <T as OnlineStep<'a, S>>::online(self, party, operands)
    }
}

/// Makes a suite from its rows: `tag = Step`. The first step that answers a call computes it;
/// `refuse` says why none does. A tag stands for the step's material in stored bytes, so it keeps
/// its meaning for ever.
macro_rules! suite_of_steps {
    ($suite:ident, $refuse:path => $($tag:literal = $step:ident),+ $(,)?) => {
        /// The correlated randomness of one step.
        pub enum Material<W: megrez_ring::Word, D: megrez_kernels::Device> {
            $(
                #[doc = concat!("See the step `", stringify!($step), "`.")]
                $step(Box<<$step<'static> as $crate::Step<'static, $suite<W, D>>>::Material>),
            )+
        }
        encode_enum!(Material[W: megrez_ring::Word, D: megrez_kernels::Device] on D => $($tag = $step),+);

        impl<W: megrez_ring::Word, D: megrez_kernels::Device> $crate::Suite for $suite<W, D> {
            type Material = Material<W, D>;

            fn cost(&self, call: $crate::Call<'_>) -> Result<$crate::Cost, $crate::Unsupported> {
                $(if let Some(step) = <$step<'_> as $crate::Step<'_, Self>>::of(self, call) {
                    return <$step<'_> as $crate::Step<'_, Self>>::cost(&step);
                })+
                Err($refuse(call))
            }

            fn deferred(&self, call: $crate::Call<'_>, deferred_inputs: bool) -> bool {
                $(if let Some(step) = <$step<'_> as $crate::Step<'_, Self>>::of(self, call) {
                    return <$step<'_> as $crate::Step<'_, Self>>::deferred(&step, deferred_inputs);
                })+
                deferred_inputs
            }

            fn reads_masks(&self, call: $crate::Call<'_>) -> bool {
                $(if let Some(step) = <$step<'_> as $crate::Step<'_, Self>>::of(self, call) {
                    return <$step<'_> as $crate::Step<'_, Self>>::reads_masks(&step);
                })+
                true
            }

            fn masks(
                &self,
                party: &mut megrez_session::Party<D>,
                call: $crate::Call<'_>,
                inputs: &[Option<&Self::Masks>],
            ) -> Result<Option<Self::Masks>, megrez_session::Error> {
                $(if let Some(step) = <$step<'_> as $crate::Step<'_, Self>>::of(self, call) {
                    return <$step<'_> as $crate::Step<'_, Self>>::masks(&step, party, call.output, inputs);
                })+
                party.refuse($refuse(call).0)
            }

            fn offline(
                &self,
                party: &mut megrez_session::Party<D>,
                call: $crate::Call<'_>,
                inputs: &[&Self::Masks],
                masks: Option<&Self::Masks>,
            ) -> Result<Self::Material, megrez_session::Error> {
                $(if let Some(step) = <$step<'_> as $crate::Step<'_, Self>>::of(self, call) {
                    let material = <$step<'_> as $crate::Step<'_, Self>>::offline(&step, party, inputs, masks)?;
                    return Ok(Material::$step(Box::new(material)));
                })+
                party.refuse($refuse(call).0)
            }

            fn online(
                &self,
                party: &mut megrez_session::Party<D>,
                call: $crate::Call<'_>,
                operands: $crate::Operands<'_, Self>,
                material: Self::Material,
            ) -> Result<$crate::Made<Self>, megrez_session::Error> {
                match material {
                    $(Material::$step(material) => {
                        match <$step<'_> as $crate::Step<'_, Self>>::of(self, call) {
                            Some(step) => {
                                <$step<'_> as $crate::Step<'_, Self>>::online(&step, party, operands, *material)
                            }
                            None => party.refuse(concat!("was given material of another step, ", stringify!($step))),
                        }
                    })+
                }
            }
        }
    };
}
