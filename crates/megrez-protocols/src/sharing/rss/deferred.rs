//! Deferred resharing: a product of replicated values that waits for its truncation as a sum z =
//! z_0 + z_1 + z_2, with z_i a function of what P_i holds. Linear steps rearrange, add and scale
//! it; a truncation or a ReLU opens it, as often as there are such readers. Ours; the papers share
//! every product.
//!
//! A summand carries no mask, because a mask would have to survive what linear steps do to it: they
//! repeat elements, pad with zeros and multiply by even numbers, and several readers would open it
//! under one mask. So every *opening* draws masks of its own: with streams d_0 of P0 and P2 and d_2
//! of P1 and P2, P0 sends z_0 − d_0 and P1 sends z_1 − d_2. Both then know a, and P2 knows r, with
//! z = a − r:
//!   a = z_0 + z_1 − d_0 − d_2,  r = −z_2 − d_0 − d_2.
//!
//! phase     rounds  bits per element  from → to
//! online    1       2·ℓ               P0 ↔ P1
//!
//! P1 sees z_0 under d_0, P0 sees z_1 under d_2, P2 sees nothing. Security:
//! docs/security/replicated.md.

use super::{Rss, draw};
use crate::{Cost, Encode, EncodeError, Unit, local};
use megrez_kernels::{Device, Tensor};
use megrez_plan::{Op, Value};
use megrez_ring::Word;
use megrez_session::{Error, Party};

/// z_i at P_i. There is no way to send it but to open it.
#[derive(Clone)]
pub struct Summand<W: Word, D: Device>(Tensor<W, D>);

impl<W: Word, D: Device> Encode<D> for Summand<W, D> {
    fn write(&self, device: &D, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        self.0.write(device, out)
    }
    fn read(device: &D, input: &mut &[u8]) -> Result<Self, EncodeError> {
        Ok(Summand(Tensor::read(device, input)?))
    }
}

/// What [`Summand::open`] sends.
pub(crate) fn open_cost(ring: u32, n: usize) -> Cost {
    Cost::LOCAL.online_swap(1, 0, 1, n, Unit::Bits(ring))
}

impl<W: Word, D: Device> Summand<W, D> {
    /// This party's summand.
    pub(crate) fn new(z: Tensor<W, D>) -> Self {
        Summand(z)
    }

    /// A replicated value: every party's own component.
    pub(crate) fn of(x: &Rss<Tensor<W, D>>) -> Self {
        Summand(x.own.clone())
    }

    /// A linear step at party `me`.
    pub(crate) fn linear(
        device: &D,
        me: usize,
        op: &Op,
        operands: &[Self],
        output: &Value,
    ) -> Result<Self, Error> {
        let operands: Vec<_> = operands.iter().map(|z| &z.0).collect();
        Ok(Summand(local::linear(device, op, &operands, output, me == 0)?))
    }

    /// a at P0 and P1, r at P2, who sends nothing and waits for nobody. Once in a step: another
    /// opening is another scope.
    pub(crate) fn open(&self, party: &mut Party<D>) -> Result<D::Buf<W>, Error> {
        let (n, one, minus) = (self.0.elements(), W::ONE, W::ONE.neg());
        if party.me() == 2 {
            let [d_0, d_2] = [draw::<W, D>(party, 0, "open", n)?, draw::<W, D>(party, 2, "open", n)?];
            let terms = [(minus, &self.0.buf), (minus, &d_0), (minus, &d_2)];
            return Ok(party.device().combine(&terms, W::ZERO, n)?);
        }
        // P0 holds component 0 with P2, P1 component 2.
        let (peer, d) = (1 - party.me(), draw::<W, D>(party, 2 * party.me(), "open", n)?);
        let masked = party.device().combine(&[(one, &self.0.buf), (minus, &d)], W::ZERO, n)?;
        party.send_ring::<W>(peer, "share", masked.clone())?;
        let other = party.recv_ring::<W>(peer, "share", n)?;
        Ok(party.device().combine(&[(one, &masked), (one, &other)], W::ZERO, n)?)
    }
}
