//! Noise on MRSS ([`crate::sharing`]'s `Noise`): P0 sends n_0 − ψ_0 to P1 and P1 sends n_1 − ψ_2 to
//! P0; both know ψ_1, and so m = n_0 + n_1 − ψ with a fresh mask ψ; P0 tells P2. It depends on no
//! input, so all of it is done offline.
//!
//! phase     rounds  bits per element   from → to
//! offline   2       3ℓ                 P0 ↔ P1, P0 → P2
//! online    -       -
//!
//! P1 sees n_0 under ψ_0, P0 sees n_1 under ψ_2, P2 sees m, which ψ_1 hides from it.
//!
//! Security: `docs/security/privacy.md`.

use super::{Data, MaskedReplicated, Masks};
use crate::sharing::{Noise, Variant};
use crate::{Call, Cost, Made, Operands, Step, Unit, Unsupported};
use megrez_kernels::{Device, Tensor};
use megrez_ring::Word;
use megrez_session::{Error, Party};

impl<'a, W: Word, D: Device, P: Variant> Step<'a, MaskedReplicated<W, D, P>> for Noise<'a> {
    /// m.
    type Material = Tensor<W, D>;

    fn of(_: &MaskedReplicated<W, D, P>, call: Call<'a>) -> Option<Self> {
        Noise::of_call(call)
    }

    fn cost(&self) -> Result<Cost, Unsupported> {
        let word = Unit::Bits(W::BITS);
        Ok(Cost::LOCAL.online_swap(1, 0, 1, self.n(), word).online(2, 0, 2, self.n(), word).made_offline())
    }

    fn offline(
        &self,
        party: &mut Party<D>,
        _: &[&Masks<W, D>],
        masks: Option<&Masks<W, D>>,
    ) -> Result<Self::Material, Error> {
        let (me, n, one, minus) = (party.me(), self.n(), W::ONE, W::ONE.neg());
        let tensor = |m| Ok(Tensor::new(self.shape.clone(), m));
        if me == 2 {
            return tensor(party.recv_ring::<W>(0, "masked", n)?);
        }
        let Some(mask) = masks else { return party.refuse("makes noise whose mask is late") };
        let own = self.own(party, "noise")?;
        let psi = mask.ring();
        let share =
            party.device().combine(&[(one, &own), (minus, &psi.component(me, 2 * me).buf)], W::ZERO, n)?;
        party.send_ring::<W>(1 - me, "noise", share.clone())?;
        let other = party.recv_ring::<W>(1 - me, "noise", n)?;
        let terms = [(one, &share), (one, &other), (minus, &psi.component(me, 1).buf)];
        let m = party.device().combine(&terms, W::ZERO, n)?;
        if me == 0 {
            party.send_ring::<W>(2, "masked", m.clone())?;
        }
        tensor(m)
    }

    fn online(
        &self,
        _: &mut Party<D>,
        _: Operands<'_, MaskedReplicated<W, D, P>>,
        m: Self::Material,
    ) -> Result<Made<MaskedReplicated<W, D, P>>, Error> {
        Ok((Data::Ring(m), None))
    }
}
