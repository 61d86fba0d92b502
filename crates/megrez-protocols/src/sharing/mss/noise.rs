//! Noise on MSS ([`crate::sharing`]'s `Noise`): worker j draws n_j, and the workers open n_j +
//! [r]_j, so m = n_0 + n_1 + r with a fresh mask r. It depends on no input, so all of it is done
//! offline.
//!
//! phase     rounds  bits per element   from → to
//! offline   1       2ℓ                 worker ↔ worker
//! online    -       -
//!
//! A worker sees the other's noise under the other's share of the mask, of which it knows nothing.
//! The dealer, who knows the mask, sees nothing.
//!
//! Security: `docs/security/privacy.md`.

use super::{Data, Masked, Masks, Role, open};
use crate::sharing::{Noise, Variant};
use crate::{Call, Cost, Made, Operands, Step, Unit, Unsupported};
use megrez_kernels::{Device, Tensor};
use megrez_ring::Word;
use megrez_session::{Error, Party};

impl<'a, W: Word, D: Device, P: Variant> Step<'a, Masked<W, D, P>> for Noise<'a> {
    /// m, at a worker.
    type Material = Option<Tensor<W, D>>;

    fn of(_: &Masked<W, D, P>, call: Call<'a>) -> Option<Self> {
        Noise::of_call(call)
    }

    fn cost(&self) -> Result<Cost, Unsupported> {
        Ok(Cost::LOCAL.online_swap(1, 0, 1, self.n(), Unit::Bits(W::BITS)).made_offline())
    }

    fn offline(
        &self,
        party: &mut Party<D>,
        _: &[&Masks<W, D>],
        masks: Option<&Masks<W, D>>,
    ) -> Result<Self::Material, Error> {
        let (Role::Worker(j), Some(mask)) = (Role::of(party), masks) else { return Ok(None) };
        let (one, n) = (W::ONE, self.n());
        let own = self.own(party, "noise")?;
        let share = party.device().combine(&[(one, &own), (one, &mask.ring().share().buf)], W::ZERO, n)?;
        let m = open(party, j, "noise", n, share)?;
        Ok(Some(Tensor::new(self.shape.clone(), m)))
    }

    fn online(
        &self,
        _: &mut Party<D>,
        _: Operands<'_, Masked<W, D, P>>,
        m: Self::Material,
    ) -> Result<Made<Masked<W, D, P>>, Error> {
        Ok((m.map_or(Data::None, Data::Ring), None))
    }
}
