//! Masked replicated sharing, MRSS: x = m + ψ in Z_2^ℓ, or m ⊕ ψ for bits. All three parties know
//! m; nobody knows the mask ψ, of which P_i holds the components ψ_i and ψ_{i+1} ([`crate::rss`]).
//! METEOR, definition 1.
//!
//! ψ is drawn before the inputs exist and m is learnt online, so what depends on masks alone is
//! made offline. A public constant is added to m. As a replicated value x has the components (m +
//! ψ_0, ψ_1, ψ_2), so replicated steps take it as it is.
//!
//! Security: `docs/security/meteor.md`.

mod linear;
mod noise;
pub(crate) mod sum;
mod values;

pub use linear::{BitLinear, Linear, PublicProduct};
pub use values::{Data, MaskedReplicated, Masks};

use crate::rss::{Rss, after, before, holders};
use crate::steps::planes;
use crate::{Cost, Unit};
use megrez_kernels::Device;
use megrez_prg::Key;
use megrez_ring::{Word, bits};
use megrez_session::{Error, Party};

/// The keys of both components of a mask at this party, and with them all that it knows of the
/// mask.
pub(crate) fn keys<D: Device>(party: &mut Party<D>, label: &str) -> Result<Rss<Key>, Error> {
    let me = party.me();
    Rss::of(me, |c| {
        let [a, b] = holders(c);
        party.stream_key(a + b - me, label)
    })
}

/// What [`open`], [`open_bits`] and [`open_planes`] send in an online round: `n` elements from P_i
/// to P_{i+1}, for every i.
pub(crate) fn open_cost(cost: Cost, round: u32, n: usize, unit: Unit) -> Cost {
    (0..3).fold(cost, |cost, i| cost.online(round, i, after(i), n, unit))
}

/// A replicated ring value becomes known to all: every party sends the component that its neighbour
/// lacks. 3·ℓ bits, one round.
pub(crate) fn open<W: Word, D: Device>(
    party: &mut Party<D>,
    label: &str,
    n: usize,
    value: Rss<D::Buf<W>>,
) -> Result<D::Buf<W>, Error> {
    let me = party.me();
    party.send_ring::<W>(after(me), label, value.own.clone())?;
    let third = party.recv_ring::<W>(before(me), label, n)?;
    let terms = [(W::ONE, &value.own), (W::ONE, &value.next), (W::ONE, &third)];
    Ok(party.device().combine(&terms, W::ZERO, n)?)
}

/// As [`open`] for packed bits: 3 bits each.
pub(crate) fn open_bits<D: Device>(
    party: &mut Party<D>,
    label: &str,
    n: usize,
    value: Rss<D::Buf<u64>>,
) -> Result<D::Buf<u64>, Error> {
    let me = party.me();
    party.send_bits(after(me), label, value.own.clone(), n)?;
    let third = party.recv_bits(before(me), label, n)?;
    Ok(party.device().xor(&[&value.own, &value.next, &third], false, n)?)
}

/// As [`open`] for `count` planes of `n` bits.
pub(crate) fn open_planes<D: Device>(
    party: &mut Party<D>,
    label: &str,
    (count, n): (usize, usize),
    value: Rss<D::Buf<u64>>,
) -> Result<D::Buf<u64>, Error> {
    let me = party.me();
    planes::send(party, after(me), label, &value.own, count, n)?;
    let third = planes::recv(party, before(me), label, count, n)?;
    let lanes = count * bits::words(n) * 64;
    Ok(party.device().xor(&[&value.own, &value.next, &third], false, lanes)?)
}
