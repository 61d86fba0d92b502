//! Public tensors: everybody holds the words, as what is known before the inputs exist.

use crate::{Call, Made, OnlineStep, Operands, Sharing, local};
use megrez_kernels::Tensor;
use megrez_plan::Op;
use megrez_ring::Shape;
use megrez_session::{Error, Party};

/// A sharing whose public values are masks.
pub trait Publics: Sharing {
    /// A public value.
    fn public(words: Tensor<Self::Word, Self::Device>) -> Self::Masks;
    /// What there is to learn of it online.
    fn nothing() -> Self::Data;
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
        _: &[Option<&S::Masks>],
    ) -> Result<Option<S::Masks>, Error> {
        Ok(Some(S::public(local::constant(party.device(), self.shape, self.words)?)))
    }

    fn online(&self, _: &mut Party<S::Device>, _: Operands<'_, S>) -> Result<Made<S>, Error> {
        Ok((S::nothing(), None))
    }
}
