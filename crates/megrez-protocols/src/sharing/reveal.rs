//! Outputs leave under a fresh sharing of zero, drawn for this output alone: a recipient learns the
//! value, and its shares are uniform but for their sum, whoever the recipient is. Without it a
//! recipient who is also a party, or who receives several outputs, would see shares that follow
//! from what parties hold: masks, truncations' carries, what a helper dealt.
//!
//! It sends nothing; a step of the output phase draws one or two streams per element. Security:
//! docs/security/composition.md.

use crate::rss;
use megrez_kernels::Device;
use megrez_net::Payload;
use megrez_plan::{Kind, Value};
use megrez_ring::{Word, bits, from_wire};
use megrez_session::{Error, Party};

/// Worker `j`'s share of a ring value that the two workers hold.
pub(crate) fn of_two<W: Word, D: Device>(
    party: &mut Party<D>,
    j: usize,
    share: &D::Buf<W>,
    n: usize,
) -> Result<D::Buf<W>, Error> {
    let zero = party.stream(1 - j, "zero")?;
    let device = party.device();
    let zero = device.random::<W>(&zero, n)?;
    let sign = if j == 0 { W::ONE } else { W::ONE.neg() };
    Ok(device.combine(&[(W::ONE, share), (sign, &zero)], W::ZERO, n)?)
}

/// As [`of_two`] for `n` packed bits.
pub(crate) fn bits_of_two<D: Device>(
    party: &mut Party<D>,
    j: usize,
    share: &D::Buf<u64>,
    n: usize,
) -> Result<D::Buf<u64>, Error> {
    let zero = party.stream(1 - j, "zero")?;
    let zero = party.device().random_bits(&zero, n)?;
    Ok(party.device().xor(&[share, &zero], false, n)?)
}

/// This party's share of a ring value that all three hold summands of.
pub(crate) fn of_three<W: Word, D: Device>(
    party: &mut Party<D>,
    share: &D::Buf<W>,
    n: usize,
) -> Result<D::Buf<W>, Error> {
    let [plus, minus] = rss::zero::<W, D>(party, "zero", n)?;
    let terms = [(W::ONE, share), (W::ONE, &plus), (W::ONE.neg(), &minus)];
    Ok(party.device().combine(&terms, W::ZERO, n)?)
}

/// As [`of_three`] for `n` packed bits.
pub(crate) fn bits_of_three<D: Device>(
    party: &mut Party<D>,
    share: &D::Buf<u64>,
    n: usize,
) -> Result<D::Buf<u64>, Error> {
    let zeros = rss::zero::<u64, D>(party, "zero", bits::words(n))?;
    Ok(party.device().xor(&[share, &zeros[0], &zeros[1]], false, n)?)
}

/// The ring value of both workers' shares, or a public one from worker 0.
pub(super) fn sum_of_two<W: Word>(value: &Value, messages: &[Payload]) -> Result<Vec<W>, Error> {
    let n = value.shape.elements();
    let wrong = || Error::Refused("a party sent an output share of the wrong size".into());
    let share = |j: usize| -> Result<Vec<W>, Error> {
        let bytes = messages.get(j).map(Payload::as_bytes).filter(|bytes| bytes.len() == n * W::BYTES);
        bytes.map(from_wire).ok_or_else(wrong)
    };
    match value.kind {
        Kind::Public { .. } => share(0),
        _ => Ok(share(0)?.into_iter().zip(share(1)?).map(|(a, b)| a.add(b)).collect()),
    }
}
