//! Public tensors: everybody holds the words, as what is known before the inputs exist.

use crate::{Call, Made, OnlineStep, Operands, Sharing, local};
use megrez_kernels::Tensor;
use megrez_plan::{Kind, Op, Value};
use megrez_ring::Shape;
use megrez_session::{Error, Party};

/// A sharing whose public values are masks.
pub trait Publics: Sharing {
    /// A public value.
    fn public(words: Tensor<Self::Word, Self::Device>) -> Self::Masks;
    /// The words of a public value.
    fn words(masks: &Self::Masks) -> Option<&Tensor<Self::Word, Self::Device>>;
    /// What there is to learn of it online.
    fn nothing() -> Self::Data;
}

/// The masks of a linear map where the result is public: the map of the inputs' words.
pub(crate) fn linear_of_publics<S: Publics>(
    party: &Party<S::Device>,
    op: &Op,
    output: &Value,
    inputs: &[Option<&S::Masks>],
) -> Result<Option<S::Masks>, Error> {
    if !matches!(output.kind, Kind::Public { .. }) {
        return Ok(None);
    }
    match inputs.iter().map(|m| m.and_then(S::words)).collect::<Option<Vec<_>>>() {
        Some(words) => Ok(Some(S::public(local::linear(party.device(), op, &words, output, true)?))),
        None => party.refuse("makes a public value of secret ones"),
    }
}

/// A public tensor.
pub struct Constant<'a> {
    shape: &'a Shape,
    words: &'a [i64],
}

impl<'a, S: Publics> OnlineStep<'a, S> for Constant<'a> {
    fn of(_: &S, call: Call<'a>) -> Option<Self> {
        let Op::Constant { words, .. } = call.op else { return None };
        Some(Constant { shape: call.shape(), words })
    }

    fn masks(
        &self,
        party: &mut Party<S::Device>,
        _: &Value,
        _: &[Option<&S::Masks>],
    ) -> Result<Option<S::Masks>, Error> {
        Ok(Some(S::public(local::constant(party.device(), self.shape, self.words)?)))
    }

    fn online(&self, _: &mut Party<S::Device>, _: Operands<'_, S>) -> Result<Made<S>, Error> {
        Ok((S::nothing(), None))
    }
}
