//! The steps of masked lists for any algebra: in plain code on one thread of the host, whatever the
//! device. Rotations are memory indices, and whatever branches the algebra has are taken.

use super::field::sample;
use super::{FieldShare, ListAlgebra, ListInput, ListStreams};
use crate::{DeviceError, Memory};
use megrez_prg::Stream;
use megrez_ring::{Word, bits};

/// Shares of what was dealt, from a stream.
fn from_stream(list: &dyn ListAlgebra, stream: &Stream, n: usize) -> Vec<i64> {
    sample(stream, list.field().p(), n * list.dealt()).into_iter().map(i64::from).collect()
}

/// See [`super::MaskedLists::deal_list`].
///
/// # Errors
/// If the device fails.
pub fn deal_list<D: Memory, W: Word>(
    device: &D,
    list: &dyn ListAlgebra,
    masks: &D::Buf<W>,
    other: &Stream,
) -> Result<(D::Buf<u64>, D::Buf<u64>), DeviceError> {
    let masks = device.download(masks.clone())?;
    let (field, mut other) = (list.field(), from_stream(list, other, masks.len()).into_iter());
    let mut shares = vec![];
    let mut share = |secret: u64| {
        let other = other.next().expect("as many as dealt");
        shares.push(field.residue(secret as i64 - other));
    };
    let kept: Vec<u64> = masks.iter().map(|r| list.deal(r.to_u64(), &mut share)).collect();
    Ok((device.upload(field.pack(&shares))?, device.upload(bits::pack(masks.len(), |e| kept[e]))?))
}

/// See [`super::MaskedLists::masked_lists`].
///
/// # Errors
/// If the device fails.
pub fn masked_lists<D: Memory, W: Word>(
    device: &D,
    list: &dyn ListAlgebra,
    j: usize,
    values: &D::Buf<W>,
    share: Option<FieldShare<'_, D>>,
    flips: &D::Buf<u64>,
    streams: &ListStreams<'_>,
) -> Result<Vec<D::Buf<u64>>, DeviceError> {
    let (values, flips) = (device.download(values.clone())?, device.download(flips.clone())?);
    let (n, dealt, length, lists) = (values.len(), list.dealt(), list.length(), list.lists());
    let (field, p) = (list.field(), list.field().p());
    let share = match share {
        None => vec![],
        Some(FieldShare::Stream(stream)) => from_stream(list, stream, n),
        Some(FieldShare::Packed(words)) => {
            let words = device.download(words.clone())?;
            field.unpack(&words, n * dealt).into_iter().map(i64::from).collect()
        }
    };
    let multipliers = sample(streams.multiplier, p - 1, lists * n * length);
    let zero_shares = sample(streams.zero_share, p, lists * n * length);
    let rotations = sample(streams.rotation, length as u64, n);
    let mut out = vec![vec![0; n * length]; lists];
    let mut of_value = vec![0; lists * length];
    for e in 0..n {
        let sample_of = |c: usize, q: usize| (c * n + e) * length + q;
        for (c, of_list) in of_value.chunks_exact_mut(length).enumerate() {
            let samples = &multipliers[sample_of(c, 0)..];
            of_list.iter_mut().zip(samples).for_each(|(m, &sample)| *m = i64::from(sample) + 1);
        }
        let input = ListInput {
            j,
            value: values[e].to_u64(),
            flip: bits::get(&flips, e),
            dealt: &share[e * dealt..][..dealt],
            multipliers: &of_value,
        };
        let (mut c, mut q) = (0, 0);
        list.entries(&input, &mut |entry| {
            let zero_share = i64::from(zero_shares[sample_of(c, q)]);
            let place = q + rotations[e] as usize;
            let place = place - if place < length { 0 } else { length };
            let masked = if j == 0 { entry + zero_share } else { entry - zero_share };
            out[c][e * length + place] = field.residue(masked);
            c += 1;
            if c == lists {
                (c, q) = (0, q + 1);
            }
        });
    }
    out.iter().map(|entries| device.upload(field.pack(entries))).collect()
}

/// See [`super::MaskedLists::scan_lists`].
///
/// # Errors
/// If the device fails.
pub fn scan_lists<D: Memory>(
    device: &D,
    list: &dyn ListAlgebra,
    lists: [&[D::Buf<u64>]; 2],
    n: usize,
) -> Result<D::Buf<u64>, DeviceError> {
    let (field, length, count) = (list.field(), list.length(), list.lists());
    let mut sums = vec![0; count * n * length];
    for (c, (a, b)) in lists[0].iter().zip(lists[1]).enumerate() {
        let [a, b] = [a, b].map(|words| Ok(field.unpack(&device.download(words.clone())?, n * length)));
        for (i, (a, b)) in a?.into_iter().zip(b?).enumerate() {
            sums[i * count + c] = field.residue(i64::from(a) + i64::from(b));
        }
    }
    let mut answers = sums.chunks_exact(count * length).map(|value| {
        // No early exit: which place it is must not show in the time it takes.
        u64::from(!value.chunks_exact(count).fold(false, |found, place| found | list.is_wanted(place)))
    });
    device.upload(bits::pack(n, |_| answers.next().expect("one for each value")))
}
