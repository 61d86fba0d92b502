//! Noise on RSS ([`crate::sharing`]'s `Noise`): with x_0 from the stream of P0 and P2 and x_2 from
//! that of P1 and P2, P0 sends n_0 − x_0 and P1 sends n_1 − x_2; their sum is x_1.
//!
//! phase     rounds  bits per element   from → to
//! online    1       2ℓ                 P0 ↔ P1
//!
//! P1 sees n_0 under x_0, P0 sees n_1 under x_2, P2 sees nothing.
//!
//! Security: `docs/security/privacy.md`.

use super::{Data, Replicated, Rss, draw};
use crate::sharing::{Noise, Variant};
use crate::{Call, Cost, Made, OnlineStep, Operands, Unit, Unsupported};
use megrez_kernels::{Device, Tensor};
use megrez_ring::Word;
use megrez_session::{Error, Party};

impl<'a, W: Word, D: Device, P: Variant> OnlineStep<'a, Replicated<W, D, P>> for Noise<'a> {
    fn of(_: &Replicated<W, D, P>, call: Call<'a>) -> Option<Self> {
        Noise::of_call(call)
    }

    fn cost(&self) -> Result<Cost, Unsupported> {
        Ok(Cost::LOCAL.online_swap(1, 0, 1, self.n(), Unit::Bits(W::BITS)))
    }

    fn online(
        &self,
        party: &mut Party<D>,
        _: Operands<'_, Replicated<W, D, P>>,
    ) -> Result<Made<Replicated<W, D, P>>, Error> {
        let (me, n, one) = (party.me(), self.n(), W::ONE);
        let tensor = |buf| Tensor::new(self.shape.clone(), buf);
        if me == 2 {
            let [own, next] = [draw(party, 2, "component", n)?, draw(party, 0, "component", n)?];
            return Ok((Data::Ring(Rss { own: tensor(own), next: tensor(next) }), None));
        }
        let drawn = self.own(party, "noise")?;
        // P0 holds component 0 with P2, P1 component 2.
        let component: D::Buf<W> = draw(party, 2 * me, "component", n)?;
        let masked = party.device().combine(&[(one, &drawn), (one.neg(), &component)], W::ZERO, n)?;
        party.send_ring::<W>(1 - me, "noise", masked.clone())?;
        let other = party.recv_ring::<W>(1 - me, "noise", n)?;
        let sum = tensor(party.device().combine(&[(one, &masked), (one, &other)], W::ZERO, n)?);
        let component = tensor(component);
        let value = match me {
            0 => Rss { own: component, next: sum },
            _ => Rss { own: sum, next: component },
        };
        Ok((Data::Ring(value), None))
    }
}
