//! The sum of two values, each known to some parties, as replicated bits: the heart of comparisons
//! and conversions. The two ways to compute it stand in [`crate::aby3`] and [`crate::alkaid`].
//!
//! A replicated x is u + v with u = x_1, which P0 and P1 know, and v = x_2 + x_0, which P2 knows.

use crate::rss::Rss;
use crate::steps::planes::{ReplicatedBit, Sheet, Signal};
use crate::steps::tree::{Span, Tree};
use megrez_kernels::{Circuit, Device, Tensor};
use megrez_ring::Word;
use megrez_session::{Error, Party};

/// The summands as planes, where they are known: of a replicated value, u at P0 and P1 and v at P2.
/// Of values in masked bits, m of both, at all.
pub(crate) struct Known<D: Device> {
    /// The planes of u.
    pub u: Option<D::Buf<u64>>,
    /// The planes of v.
    pub v: Option<D::Buf<u64>>,
}

/// The low `width` planes of the summands of x.
pub(crate) fn split<W: Word, D: Device>(
    party: &Party<D>,
    x: &Rss<Tensor<W, D>>,
    width: u32,
) -> Result<Known<D>, Error> {
    let (device, me) = (party.device(), party.me());
    let planes = |x: &D::Buf<W>| device.bit_planes(x, 0, width);
    Ok(match me {
        2 => {
            let terms = [(W::ONE, &x.own.buf), (W::ONE, &x.next.buf)];
            let v = planes(&device.combine(&terms, W::ZERO, x.own.elements())?)?;
            Known { u: None, v: Some(v) }
        }
        me => Known { u: Some(planes(&x.component(me, 1).buf)?), v: None },
    })
}

/// All bits from leaves and carries: s_0 = p_0, s_j = p_j ⊕ c_{j−1}.
pub(crate) fn output_planes<D: Device>(
    party: &Party<D>,
    tree: &Tree,
    words: usize,
    sheet: &Sheet<D>,
    shared: impl Fn(&mut Circuit, Signal) -> ReplicatedBit,
) -> Result<Rss<D::Buf<u64>>, Error> {
    let mut circuit = Circuit::default();
    let outputs: Vec<ReplicatedBit> = (0..=tree.bits)
        .map(|position| {
            let bit = shared(&mut circuit, Signal::Propagate(Span::leaf(position)));
            match position.checked_sub(1) {
                None => bit,
                Some(high) => {
                    let carry = shared(&mut circuit, Signal::Generate(Span { low: 0, high }));
                    bit.xor(&mut circuit, carry)
                }
            }
        })
        .collect();
    circuit.output(outputs.iter().map(|s| s.own).collect());
    circuit.output(outputs.iter().map(|s| s.next).collect());
    let mut outputs = sheet.run(party.device(), &circuit, words)?;
    let next = outputs.pop().expect("two outputs");
    Ok(Rss { own: outputs.pop().expect("two outputs"), next })
}
