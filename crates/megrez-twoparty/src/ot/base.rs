//! Random OTs from a group: the endemic OT of Masny and Rindal (CCS 2019) over Ristretto, many at a
//! time.
//!
//! The receiver with choice c draws a and a uniform point r_(1−c), and sends (r_0, r_1) with r_c =
//! a·G − H(r_(1−c)). The sender publishes s·G; the keys are those of s·(r_0 + H(r_1)) and s·(r_1 +
//! H(r_0)). The receiver knows a·(s·G), one of the two; the other would solve a Diffie–Hellman
//! problem at a point that the hash H chose. Both messages travel at once. r_0 and r_1 are uniform
//! whatever c is.
//!
//! receiver → sender 64 bytes per OT, sender → receiver 32 bytes in all; one round.

use curve25519_dalek::constants::RISTRETTO_BASEPOINT_TABLE as G;
use curve25519_dalek::ristretto::{CompressedRistretto, RistrettoPoint};
use curve25519_dalek::scalar::Scalar;
use megrez_prg::{Key, RandomError};
use zeroize::Zeroizing;

/// Bytes of a point.
const POINT: usize = 32;

/// Bytes of the receiver's message for `n` OTs.
pub const fn receiver_bytes(n: usize) -> usize {
    2 * POINT * n
}

/// Bytes of the sender's message.
pub const SENDER_BYTES: usize = POINT;

/// A peer's bytes are no group element.
#[derive(Debug, PartialEq, Eq)]
pub struct NotAPoint;

/// What a receiver keeps until the sender's point is there.
pub struct Receiver {
    secrets: Vec<Zeroizing<Scalar>>,
    choices: Vec<bool>,
    message: Vec<u8>,
}

/// What a sender keeps until the receiver's points are there.
pub struct Sender {
    secret: Zeroizing<Scalar>,
    message: [u8; POINT],
}

fn random<const N: usize>() -> Result<Zeroizing<[u8; N]>, RandomError> {
    let mut bytes = Zeroizing::new([0; N]);
    getrandom::fill(&mut bytes[..])?;
    Ok(bytes)
}

fn scalar() -> Result<Zeroizing<Scalar>, RandomError> {
    Ok(Zeroizing::new(Scalar::from_bytes_mod_order_wide(&*random::<64>()?)))
}

/// A point whose logarithm nobody knows, for OT `i` of a session.
fn to_group(session: &[u8; 32], i: usize, point: &[u8]) -> RistrettoPoint {
    let mut hasher = blake3::Hasher::new_derive_key("megrez 2026 base OT point");
    hasher.update(session).update(&(i as u64).to_le_bytes()).update(point);
    let mut wide = [0; 64];
    hasher.finalize_xof().fill(&mut wide);
    RistrettoPoint::from_uniform_bytes(&wide)
}

/// The key of message `which` of OT `i`, bound to everything that was said.
fn to_key(session: &[u8; 32], i: usize, which: usize, said: [&[u8]; 2], shared: &RistrettoPoint) -> Key {
    let mut hasher = blake3::Hasher::new_derive_key("megrez 2026 base OT key");
    hasher.update(session).update(&(i as u64).to_le_bytes()).update(&[which as u8]);
    hasher.update(said[0]).update(said[1]).update(shared.compress().as_bytes());
    Key::from_bytes(*hasher.finalize().as_bytes())
}

fn parse(bytes: &[u8]) -> Result<RistrettoPoint, NotAPoint> {
    CompressedRistretto::from_slice(bytes).ok().and_then(|p| p.decompress()).ok_or(NotAPoint)
}

impl Receiver {
    /// Prepares one OT per choice. `session` is what both sides call this run of the protocol.
    pub fn new(session: &[u8; 32], choices: Vec<bool>) -> Result<Self, RandomError> {
        let mut secrets = vec![];
        let mut message = Vec::with_capacity(receiver_bytes(choices.len()));
        for (i, &choice) in choices.iter().enumerate() {
            let a = scalar()?;
            let other = RistrettoPoint::from_uniform_bytes(&*random::<64>()?).compress();
            let mine = (&*a * G - to_group(session, i, other.as_bytes())).compress();
            let [mut first, mut second] = [mine.to_bytes(), other.to_bytes()];
            let swap = (choice as u8).wrapping_neg();
            for (a, b) in first.iter_mut().zip(&mut second) {
                let t = (*a ^ *b) & swap;
                *a ^= t;
                *b ^= t;
            }
            message.extend_from_slice(&first);
            message.extend_from_slice(&second);
            secrets.push(a);
        }
        Ok(Self { secrets, choices, message })
    }

    /// What to send: [`receiver_bytes`].
    pub fn message(&self) -> &[u8] {
        &self.message
    }

    /// The chosen keys.
    pub fn finish(self, session: &[u8; 32], sender: &[u8]) -> Result<Vec<Key>, NotAPoint> {
        let point = parse(sender)?;
        let one = |i: usize| {
            let said = [sender, &self.message[2 * POINT * i..][..2 * POINT]];
            to_key(session, i, usize::from(self.choices[i]), said, &(point * *self.secrets[i]))
        };
        Ok((0..self.choices.len()).map(one).collect())
    }
}

impl Sender {
    /// Draws a secret.
    pub fn new() -> Result<Self, RandomError> {
        let secret = scalar()?;
        let message = (&*secret * G).compress().to_bytes();
        Ok(Self { secret, message })
    }

    /// What to send: [`SENDER_BYTES`].
    pub fn message(&self) -> &[u8] {
        &self.message
    }

    /// Both keys of every OT.
    pub fn finish(self, session: &[u8; 32], receiver: &[u8]) -> Result<Vec<[Key; 2]>, NotAPoint> {
        let one = |(i, pair): (usize, &[u8])| {
            let (r0, r1) = pair.split_at(POINT);
            let said = [&self.message[..], pair];
            let key = |which, mine, other| -> Result<Key, NotAPoint> {
                let shared = (parse(mine)? + to_group(session, i, other)) * *self.secret;
                Ok(to_key(session, i, which, said, &shared))
            };
            Ok([key(0, r0, r1)?, key(1, r1, r0)?])
        };
        receiver.chunks_exact(2 * POINT).enumerate().map(one).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_receiver_gets_the_chosen_key_only() {
        let session = [5; 32];
        let choices: Vec<bool> = (0..20).map(|i| i % 3 == 0).collect();
        let receiver = Receiver::new(&session, choices.clone()).unwrap();
        let sender = Sender::new().unwrap();
        let (to_sender, to_receiver) = (receiver.message().to_vec(), sender.message().to_vec());
        assert_eq!((to_sender.len(), to_receiver.len()), (receiver_bytes(20), SENDER_BYTES));
        let both = sender.finish(&session, &to_sender).unwrap();
        let chosen = receiver.finish(&session, &to_receiver).unwrap();
        for ((pair, key), c) in both.iter().zip(&chosen).zip(choices) {
            assert_eq!(pair[usize::from(c)].expose(), key.expose());
            assert_ne!(pair[usize::from(!c)].expose(), key.expose());
        }
    }

    #[test]
    fn bytes_that_are_no_points_are_refused() {
        let session = [5; 32];
        let mut message = Receiver::new(&session, vec![true, false]).unwrap().message().to_vec();
        message[64..96].fill(0xff);
        assert_eq!(Sender::new().unwrap().finish(&session, &message).err(), Some(NotAPoint));
        let receiver = Receiver::new(&session, vec![true]).unwrap();
        assert_eq!(receiver.finish(&session, &[0xff; 32]).err(), Some(NotAPoint));
    }
}
