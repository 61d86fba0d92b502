//! Truncation of a replicated value: exact up to the last bit, which is rounded without bias. Not
//! from the papers: the masked truncation of `mizar`, with component 1 as the masked value m and
//! r = −x_0 − x_2, which P2 knows.
//!
//! For −2^(ℓ−2) ≤ x < 2^(ℓ−2), m' = m + 2^(ℓ−2) and μ = msb(m'):
//!   y = (m' >> f) − 2^(ℓ−2−f) − R + (1−μ)·b·2^(ℓ−f),  R = r >> f,  b = msb(r)
//! is floor(x/2^f) or one more, the latter with probability frac(x/2^f). The rounding bit is the
//! carry of the masks' low bits. P2 deals R to P0 and P1 in Z_2^ℓ and b in Z_2^f. These two
//! multiply b by their common bit 1−μ, mask their f-bit shares by t_0 (of P0 and P2) and t_2 (of P1
//! and P2) and open the sum q to each other. So
//!   y_0 = 2^(ℓ−f)·t_0 − R_0,  y_1 = (m' >> f) − 2^(ℓ−2−f) + 2^(ℓ−f)·q,  y_2 = 2^(ℓ−f)·t_2 − R_1.
//!
//! phase     rounds  bits per element  from → to
//! online    2       ℓ + f             P2 → P1 (R_1 and b_1; P0's come from a stream)
//!                   2·f               P0 ↔ P1
//!
//! A deferred sum is truncated before it is shared ([`crate::rss::Summand`]): P0 and P1 open m to
//! each other in the first round; 3·ℓ + 3·f bits and 2 rounds for both.
//!
//! P0 and P1 see uniform elements beside what they hold; P2 sees nothing. Security:
//! docs/security/replicated.md.

use crate::rss::{Data, Replicated, Rss, deferred};
use crate::sharing::Variant;
use crate::{Call, Cost, Made, OnlineStep, Operands, Unit, Unsupported};
use megrez_kernels::{Device, Tensor};
use megrez_plan::Op;
use megrez_ring::{Shape, Word};
use megrez_session::{Error, Party};

/// Of a replicated value, or of a deferred sum.
pub(crate) fn cost(ring: u32, f: u32, n: usize, of_sum: bool) -> Cost {
    let opened = if of_sum { deferred::open_cost(ring, n) } else { Cost::LOCAL };
    let dealt = opened.online(1, 2, 1, n, Unit::Bits(ring)).online(1, 2, 1, n, Unit::Bits(f));
    dealt.online_swap(2, 0, 1, n, Unit::Bits(f))
}

/// The parts of x = a − r: a at P0 and P1, r at P2.
pub(crate) fn parts<W: Word, D: Device>(party: &Party<D>, x: &Rss<Tensor<W, D>>) -> Result<D::Buf<W>, Error> {
    // x_1 is held by P0 and P1, x_0 and x_2 by P2.
    Ok(match party.me() {
        2 => {
            let terms = [(W::ONE.neg(), &x.own.buf), (W::ONE.neg(), &x.next.buf)];
            party.device().combine(&terms, W::ZERO, x.own.elements())?
        }
        me => x.component(me, 1).buf.clone(),
    })
}

/// A truncation whose messages are on their way: the result, at P0 and P1 but for what the other
/// sends.
pub(crate) struct Sent<W: Word, D: Device>(Rss<Tensor<W, D>>);

/// Sends this party's messages; `known` is a at P0 and P1 and r at P2 ([`parts`]).
pub(crate) fn send<W: Word, D: Device>(
    party: &mut Party<D>,
    f: u32,
    shape: &Shape,
    known: &D::Buf<W>,
) -> Result<Sent<W, D>, Error> {
    let n = shape.elements();
    let (one, minus) = (W::ONE, W::ONE.neg());
    // 2^(ℓ−f), by which an f-bit number becomes the top of an element.
    let top = W::ONE.shl(W::BITS - f);
    let tensor = |buf| Tensor::new(shape.clone(), buf);
    match party.me() {
        2 => {
            let streams =
                [party.stream(0, "R")?, party.stream(0, "b")?, party.stream(0, "t")?, party.stream(1, "t")?];
            let device = party.device();
            let high = device.shift_right(known, f)?;
            let sign = device.bit_times::<W>(&device.msb(known)?, None, n)?;
            let [high_0, sign_0, t_0, t_2] = streams.map(|s| device.random::<W>(&s, n));
            let (high_0, t_0, t_2) = (high_0?, t_0?, t_2?);
            let high_1 = device.combine(&[(one, &high), (minus, &high_0)], W::ZERO, n)?;
            let sign_1 =
                device.pack_low(&device.combine(&[(one, &sign), (minus, &sign_0?)], W::ZERO, n)?, f)?;
            let y_0 = device.combine(&[(top, &t_0), (minus, &high_0)], W::ZERO, n)?;
            let y_2 = device.combine(&[(top, &t_2), (minus, &high_1)], W::ZERO, n)?;
            party.send_ring::<W>(1, "R", high_1)?;
            party.send_bits(1, "b", sign_1, n * f as usize)?;
            Ok(Sent(Rss { own: tensor(y_2), next: tensor(y_0) }))
        }
        j => {
            let t_stream = party.stream(2, "t")?;
            let (high, sign) = match j {
                0 => {
                    let streams = [party.stream(2, "R")?, party.stream(2, "b")?];
                    let [high, sign] = streams.map(|s| party.device().random::<W>(&s, n));
                    (high?, sign?)
                }
                _ => {
                    let high = party.recv_ring::<W>(2, "R", n)?;
                    let sign = party.recv_bits(2, "b", n * f as usize)?;
                    (high, party.device().unpack_low(&sign, f, n)?)
                }
            };
            let device = party.device();
            let t = device.random::<W>(&t_stream, n)?;
            let shifted = device.combine(&[(one, known)], one.shl(W::BITS - 2), n)?;
            let not_mu = device.xor(&[&device.msb(&shifted)?], true, n)?;
            let product = device.bit_times(&not_mu, Some(&sign), n)?;
            let share = device.pack_low(&device.combine(&[(one, &product), (minus, &t)], W::ZERO, n)?, f)?;
            let mine = device.unpack_low::<W>(&share, f, n)?;
            let terms = [(one, &device.shift_right(&shifted, f)?), (top, &mine)];
            let y_1 = device.combine(&terms, one.shl(W::BITS - 2 - f).neg(), n)?;
            let rest = device.combine(&[(top, &t), (minus, &high)], W::ZERO, n)?;
            party.send_bits(1 - j, "q", share, n * f as usize)?;
            Ok(Sent(match j {
                0 => Rss { own: tensor(rest), next: tensor(y_1) },
                _ => Rss { own: tensor(y_1), next: tensor(rest) },
            }))
        }
    }
}

/// The result, once the other's message is there.
pub(crate) fn receive<W: Word, D: Device>(
    party: &mut Party<D>,
    f: u32,
    Sent(mut y): Sent<W, D>,
) -> Result<Rss<Tensor<W, D>>, Error> {
    let me = party.me();
    if me != 2 {
        let y_1 = if me == 0 { &mut y.next } else { &mut y.own };
        let n = y_1.elements();
        let other = party.recv_bits(1 - me, "q", n * f as usize)?;
        let device = party.device();
        let other = device.unpack_low::<W>(&other, f, n)?;
        let terms = [(W::ONE, &y_1.buf), (W::ONE.shl(W::BITS - f), &other)];
        y_1.buf = device.combine(&terms, W::ZERO, n)?;
    }
    Ok(y)
}

/// The truncation of a replicated value, or of a deferred sum.
pub(crate) fn online<W: Word, D: Device>(
    party: &mut Party<D>,
    f: u32,
    x: &Data<W, D>,
    shape: &Shape,
) -> Result<Rss<Tensor<W, D>>, Error> {
    let known = match x {
        Data::Sum(z) => z.open(party)?,
        x => parts(party, x.ring())?,
    };
    let sent = send(party, f, shape, &known)?;
    receive(party, f, sent)
}

/// x / 2^f.
pub struct Truncate<'a> {
    f: u32,
    of_sum: bool,
    shape: &'a Shape,
}

impl<'a, W: Word, D: Device, P: Variant> OnlineStep<'a, Replicated<W, D, P>> for Truncate<'a> {
    fn of(_: &Replicated<W, D, P>, call: Call<'a>) -> Option<Self> {
        let Op::Truncate { bits } = *call.op else { return None };
        Some(Truncate { f: bits, of_sum: call.of_sum(), shape: call.shape() })
    }

    fn cost(&self) -> Result<Cost, Unsupported> {
        Ok(cost(W::BITS, self.f, self.shape.elements(), self.of_sum))
    }

    fn online(
        &self,
        party: &mut Party<D>,
        operands: Operands<'_, Replicated<W, D, P>>,
    ) -> Result<Made<Replicated<W, D, P>>, Error> {
        Ok((Data::Ring(online(party, self.f, operands.inputs[0].1, self.shape)?), None))
    }
}
