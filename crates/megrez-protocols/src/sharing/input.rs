//! What sharings have in common when an owner shares an input.

use megrez_kernels::{Device, Tensor};
use megrez_net::Payload;
use megrez_plan::Value;
use megrez_prg::Key;
use megrez_ring::{Word, from_wire, to_wire};
use megrez_session::{Error, Party};

/// The words that a key's stream begins with.
pub(super) fn drawn<W: Word>(key: &Key, n: usize) -> Vec<W> {
    let words = key.stream().words((n * W::STORED as usize).div_ceil(64));
    bytemuck::cast_slice::<u64, W>(&words)[..n].to_vec()
}

/// Words in a message of their own.
pub(super) fn payload<W: Word>(words: &[W]) -> Payload {
    Payload::from_bytes(&to_wire(words))
}

/// The key in party `party`'s input-mask key.
pub(super) fn key_of(mask_keys: &[Vec<u8>], party: usize) -> Result<Key, Error> {
    let key = mask_keys.get(party).and_then(|t| t.as_slice().try_into().ok());
    key.map(Key::from_bytes)
        .ok_or_else(|| Error::Refused(format!("party {party} sent an input-mask key that is none")))
}

/// Refuses an owner's message that has not the size `expected`.
pub(super) fn check_size<D: Device>(
    party: &Party<D>,
    value: &Value,
    payload: &Payload,
    expected: usize,
) -> Result<(), Error> {
    if payload.len() == expected {
        return Ok(());
    }
    Err(Error::Refused(format!(
        "an input of shape {} takes {expected} bytes at party {}, its owner sent {}",
        value.shape,
        party.me(),
        payload.len()
    )))
}

/// The words of an owner's message as a tensor.
pub(super) fn words<W: Word, D: Device>(
    party: &Party<D>,
    value: &Value,
    bytes: &[u8],
) -> Result<Tensor<W, D>, Error> {
    Ok(Tensor::new(value.shape.clone(), party.device().upload(from_wire(bytes))?))
}
