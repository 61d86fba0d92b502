//! The sum of two values, each known to some parties, as replicated bits: the heart of comparisons and conversions. The two ways
//! to compute it stand in [`super::aby3`] and [`super::alkaid`].
//!
//! A replicated x is u + v with u = x_0 + x_1, which P0 knows, and v = x_2, which P1 and P2 know.

use crate::replicated::planes::{Shared, Sheet, Signal};
use crate::replicated::tree::{Span, Tree};
use crate::rss::Rss;
use megrez_kernels::{Circuit, Device, Tensor};
use megrez_ring::Word;
use megrez_session::{Error, Party};

/// The summands as planes, where they are known: of a replicated value, u at P0 and v at P1 and P2. Of values in masked bits, m of
/// both, at all.
pub(crate) struct Known<D: Device> {
    /// The planes of u.
    pub u: Option<D::Buf<u64>>,
    /// The planes of v.
    pub v: Option<D::Buf<u64>>,
}

/// Planes `cut`, …, `cut + width − 1` of two values whose sum is x, or −x − 1 with `complement`.
pub(crate) fn split<W: Word, D: Device>(
    party: &Party<D>,
    x: &Rss<Tensor<W, D>>,
    complement: bool,
    cut: u32,
    width: u32,
) -> Result<Known<D>, Error> {
    let (device, n) = (party.device(), x.own.elements());
    let (sign, one) = if complement { (W::ONE.neg(), W::ONE) } else { (W::ONE, W::ZERO) };
    let planes = |terms: &[(W, &D::Buf<W>)], constant| -> Result<_, Error> {
        Ok(device.bit_planes(&device.combine(terms, constant, n)?, cut, width)?)
    };
    Ok(match party.me() {
        0 => {
            let u = planes(&[(sign, &x.own.buf), (sign, &x.next.buf)], one.neg())?;
            Known { u: Some(u), v: None }
        }
        me => Known { u: None, v: Some(planes(&[(sign, &x.component(me, 2).buf)], W::ZERO)?) },
    })
}

/// All bits from leaves and carries: s_0 = p_0, s_j = p_j ⊕ c_{j−1}.
pub(crate) fn output_planes<D: Device>(
    party: &Party<D>,
    tree: &Tree,
    words: usize,
    sheet: &Sheet<D>,
    shared: impl Fn(&mut Circuit, Signal) -> Shared,
) -> Result<Rss<D::Buf<u64>>, Error> {
    let mut circuit = Circuit::default();
    let outputs: Vec<Shared> = (0..=tree.bits)
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
