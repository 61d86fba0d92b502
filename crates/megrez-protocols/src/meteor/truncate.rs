//! Truncation on MRSS: exact up to the last bit, which is rounded without bias, in one round. Not
//! from the paper, whose truncation (§4.3.1, after ABY3) is wrong by 2^(ℓ−f) with probability
//! |x|/2^ℓ.
//!
//! P0 and P1 know M = m + ψ_1, and P2 knows r = −ψ_0 − ψ_2 with x = M − r: two parties and a
//! dealer. For −2^(ℓ−2) ≤ x < 2^(ℓ−2), M' = M + 2^(ℓ−2) and ν = 1 − msb(M'), as in `mizar`,
//!   y = (M' >> f) − 2^(ℓ−2−f) − R + 2^(ℓ−f)·ν·b,   R = r >> f,  b = msb(r)
//! is floor(x/2^f) or one more, the latter with probability frac(x/2^f).
//!
//! Offline P2 sends T = −R − ψ_y0 − ψ_y2 − 2^(ℓ−f)·(t_0 + t_1) to both, t_j ∈ Z_2^f a stream of P2
//! and P_j, and deals b in Z_2^f (b_0 by a stream). Online P0 and P1 swap q_j = ν·b_j + t_j mod 2^f
//! and have
//!   m_y = (M' >> f) − 2^(ℓ−2−f) + T − ψ_y1 + 2^(ℓ−f)·(q_0 + q_1).
//! P2 learns m_y as a sum: P1 sends q_1 − z, P0 everything else and z, which is a common stream of
//! theirs.
//!
//! phase     rounds  bits per element   from → to
//! offline   1       2·ℓ + f            P2 → P0, P2 → P1 (T), P2 → P1 (b_1)
//! online    1       2·f                P0 ↔ P1
//!                   ℓ + f              P0 → P2, P1 → P2
//!
//! P0 sees T, under ψ_y2, and q_1, under t_1; P1 sees T under ψ_y0, q_0 under t_0, and b_1; P2 sees
//! two summands of m_y, under ψ_y1 and z. Each of these masks is unknown to who sees it and used
//! for nothing else it sees, so all is uniform.
//!
//! Security: `docs/security/meteor.md`.

use super::sum;
use crate::mrss::{Data, MaskedReplicated, Masks};
use crate::rss::{self, Rss};
use crate::sharing::Variant;
use crate::{Call, Cost, Made, Operands, Step, Unit, Unsupported};
use megrez_kernels::{Device, Tensor};
use megrez_plan::Op;
use megrez_ring::{Shape, Word};
use megrez_session::{Error, Party};

/// At P0 and P1: T, b_j and t_j. Of the latter two only the low f bits count.
pub struct Dealt<W: Word, D: Device> {
    rest: Tensor<W, D>,
    sign: Tensor<W, D>,
    mask: Tensor<W, D>,
}
encode_struct!(Dealt[W, D] => rest, sign, mask);

/// What the step needs online; P2 needs nothing.
pub type Material<W, D> = Option<Dealt<W, D>>;

pub(super) fn cost(ring: u32, f: u32, n: usize) -> Cost {
    let (element, fraction) = (Unit::Bits(ring), Unit::Bits(f));
    Cost::LOCAL
        .offline(2, 0, n, element)
        .offline(2, 1, n, element)
        .offline(2, 1, n, fraction)
        .online_swap(1, 0, 1, n, fraction)
        .online(1, 0, 2, n, element)
        .online(1, 1, 2, n, fraction)
}

/// From the masks of the input and of the output.
pub(super) fn offline<W: Word, D: Device>(
    party: &mut Party<D>,
    f: u32,
    psi: &Rss<Tensor<W, D>>,
    output: &Rss<Tensor<W, D>>,
) -> Result<Material<W, D>, Error> {
    let shape = &output.own.shape;
    let n = shape.elements();
    let minus = W::ONE.neg();
    let tensor = |buf| Tensor::new(shape.clone(), buf);
    if party.me() == 2 {
        let streams = [party.stream(0, "t")?, party.stream(1, "t")?, party.stream(0, "b")?];
        let device = party.device();
        let r = device.combine(&[(minus, &psi.own.buf), (minus, &psi.next.buf)], W::ZERO, n)?;
        let high = device.shift_right(&r, f)?;
        let sign = device.bit_times::<W>(&device.msb(&r)?, None, n)?;
        let [t_0, t_1, b_0] = streams.map(|s| device.random::<W>(&s, n));
        let top = W::ONE.shl(W::BITS - f).neg();
        let terms =
            [(minus, &high), (minus, &output.own.buf), (minus, &output.next.buf), (top, &t_0?), (top, &t_1?)];
        let rest = device.combine(&terms, W::ZERO, n)?;
        let b_1 = device.pack_low(&device.combine(&[(W::ONE, &sign), (minus, &b_0?)], W::ZERO, n)?, f)?;
        party.send_ring::<W>(0, "T", rest.clone())?;
        party.send_ring::<W>(1, "T", rest)?;
        party.send_bits(1, "b", b_1, n * f as usize)?;
        return Ok(None);
    }
    let stream = party.stream(2, "t")?;
    let mask = party.device().random(&stream, n)?;
    let sign = match party.me() {
        0 => {
            let stream = party.stream(2, "b")?;
            party.device().random(&stream, n)?
        }
        _ => {
            let packed = party.recv_bits(2, "b", n * f as usize)?;
            party.device().unpack_low(&packed, f, n)?
        }
    };
    let rest = party.recv_ring::<W>(2, "T", n)?;
    Ok(Some(Dealt { rest: tensor(rest), sign: tensor(sign), mask: tensor(mask) }))
}

/// A truncation whose messages are on their way: what this party adds to those that it receives.
/// Nothing at P2.
pub(super) struct Sent<W: Word, D: Device>(Option<D::Buf<W>>);

/// M of a masked value, at P0 and P1.
pub(super) fn known<W: Word, D: Device>(
    party: &Party<D>,
    m: &Tensor<W, D>,
    psi: &Rss<Tensor<W, D>>,
) -> Result<Option<D::Buf<W>>, Error> {
    if party.me() == 2 {
        return Ok(None);
    }
    let terms = [(W::ONE, &m.buf), (W::ONE, &psi.component(party.me(), 1).buf)];
    Ok(Some(party.device().combine(&terms, W::ZERO, m.elements())?))
}

/// Sends this party's messages; `known` is M and `output` is ψ_y.
pub(super) fn send<W: Word, D: Device>(
    party: &mut Party<D>,
    f: u32,
    known: Option<D::Buf<W>>,
    output: &Rss<Tensor<W, D>>,
    material: &Material<W, D>,
) -> Result<Sent<W, D>, Error> {
    let (Some(dealt), Some(known)) = (material, known) else { return Ok(Sent(None)) };
    let (me, n, one) = (party.me(), output.own.elements(), W::ONE);
    // 2^(ℓ−f), by which an f-bit number becomes the top of an element.
    let top = one.shl(W::BITS - f);
    let common = party.stream(1 - me, "z")?;
    let device = party.device();
    let shifted = device.combine(&[(one, &known)], one.shl(W::BITS - 2), n)?;
    let nu = device.xor(&[&device.msb(&shifted)?], true, n)?;
    let product = device.bit_times(&nu, Some(&dealt.sign.buf), n)?;
    let q = device.combine(&[(one, &product), (one, &dealt.mask.buf)], W::ZERO, n)?;
    let z = device.random::<W>(&common, n)?;
    let terms = [
        (one, &device.shift_right(&shifted, f)?),
        (one, &dealt.rest.buf),
        (one.neg(), &output.component(me, 1).buf),
        (top, &q),
    ];
    let known = device.combine(&terms, one.shl(W::BITS - 2 - f).neg(), n)?;
    let bits = n * f as usize;
    let swapped = device.pack_low(&q, f)?;
    match me {
        0 => {
            let summand = device.combine(&[(one, &known), (top, &z)], W::ZERO, n)?;
            party.send_bits(1, "q", swapped, bits)?;
            party.send_ring::<W>(2, "y", summand)?;
        }
        _ => {
            let summand = device.combine(&[(one, &q), (one.neg(), &z)], W::ZERO, n)?;
            let summand = device.pack_low(&summand, f)?;
            party.send_bits(0, "q", swapped, bits)?;
            party.send_bits(2, "q", summand, bits)?;
        }
    }
    Ok(Sent(Some(known)))
}

/// m_y, once the others' messages are there.
pub(super) fn receive<W: Word, D: Device>(
    party: &mut Party<D>,
    f: u32,
    n: usize,
    sent: Sent<W, D>,
) -> Result<D::Buf<W>, Error> {
    let (known, other) = match sent.0 {
        Some(known) => (known, 1 - party.me()),
        None => (party.recv_ring::<W>(0, "y", n)?, 1),
    };
    let packed = party.recv_bits(other, "q", n * f as usize)?;
    let device = party.device();
    let q = device.unpack_low::<W>(&packed, f, n)?;
    Ok(device.combine(&[(W::ONE, &known), (W::ONE.shl(W::BITS - f), &q)], W::ZERO, n)?)
}

/// x / 2^f, of a value or of a sum.
pub struct Truncate<'a> {
    f: u32,
    of_sum: bool,
    shape: &'a Shape,
}

impl<'a, W: Word, D: Device, P: Variant> Step<'a, MaskedReplicated<W, D, P>> for Truncate<'a> {
    /// The mask under which a sum is opened, and the truncation's.
    type Material = (Option<Rss<Tensor<W, D>>>, Material<W, D>);

    fn of(_: &MaskedReplicated<W, D, P>, call: Call<'a>) -> Option<Self> {
        let Op::Truncate { bits } = *call.op else { return None };
        Some(Truncate { f: bits, of_sum: call.of_sum(), shape: call.shape() })
    }

    fn cost(&self) -> Result<Cost, Unsupported> {
        let n = self.shape.elements();
        let opened = if self.of_sum { sum::two_cost(W::BITS, n) } else { Cost::LOCAL };
        Ok(opened.then(cost(W::BITS, self.f, n)))
    }

    fn offline(
        &self,
        party: &mut Party<D>,
        inputs: &[&Masks<W, D>],
        masks: Option<&Masks<W, D>>,
    ) -> Result<Self::Material, Error> {
        let mask = masks.expect("fresh and drawn before").ring();
        let opened = match self.of_sum {
            true => Some(party.scope("open", |party| rss::random(party, "mask", self.shape))?),
            false => None,
        };
        let psi = opened.as_ref().unwrap_or_else(|| inputs[0].ring());
        let material = offline(party, self.f, psi, mask)?;
        Ok((opened, material))
    }

    fn online(
        &self,
        party: &mut Party<D>,
        operands: Operands<'_, MaskedReplicated<W, D, P>>,
        (opened, material): Self::Material,
    ) -> Result<Made<MaskedReplicated<W, D, P>>, Error> {
        let known = match (operands.inputs[0].1, opened) {
            (Data::Sum(z), Some(psi)) => sum::open_to_two(party, z, &psi)?,
            _ => known(party, operands.ring(0).0, operands.ring(0).1)?,
        };
        let sent = send(party, self.f, known, operands.fresh(), &material)?;
        let m = receive(party, self.f, self.shape.elements(), sent)?;
        Ok((Data::of_ring(self.shape, m), None))
    }
}
