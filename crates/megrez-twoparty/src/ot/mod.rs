//! Oblivious transfer between two parties, in both directions, over a session's links.
//!
//! Two sides agree on blocks: the sender holds q_j for OT j, the receiver q_j ⊕ Δ_c for its choice
//! c of b bits, and the sender knows Δ_x for all x. [`struct@Hash`] turns them into pads.
//! [`OtSender`] and [`OtReceiver`] are the seam behind which the blocks are made: by
//! [`softspoken`], or by [`silent`], which sends a tenth and takes a stock. [`Ots`] is both, set up
//! once for a session.
//!
//! Security: `docs/security/secfloat.md`.

pub mod base;
pub mod code;
mod extension;
pub mod hash;
mod point;
pub mod silent;
pub mod softspoken;
pub mod stock;
mod transpose;
mod tree;

pub use code::{Code, MAX_CHOICE};
pub use extension::{OtReceiver, OtSender};
pub use hash::Hash;

use megrez_kernels::Device;
use megrez_net::Payload;
use megrez_prg::{Key, RootKey, Stream};
use megrez_session::{Error, Party};
use std::sync::Arc;

/// How the blocks are made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transfers {
    /// SoftSpoken with groups of k bits, 1, 2, 4 or 8: more is fewer bytes and more work.
    SoftSpoken {
        /// Bits of a group.
        k: u32,
    },
    /// From a stock that grows by learning parity with noise: the fewest bytes once there are many.
    Silent,
}

impl Transfers {
    /// Those of a plan's `group`: bits of a group, or 0 for silent ones.
    #[must_use]
    pub const fn of(group: u32) -> Self {
        if group == 0 { Self::Silent } else { Self::SoftSpoken { k: group } }
    }

    /// The extension's name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::SoftSpoken { .. } => "softspoken",
            Self::Silent => "silent",
        }
    }

    /// Bytes that `n` OTs with given choices take, receiver to sender.
    #[must_use]
    pub fn correction_bytes(self, code: Code, n: usize) -> usize {
        match self {
            Self::SoftSpoken { k } => softspoken::correction_bytes(k, code, n),
            Self::Silent => silent::correction_bytes(code, n),
        }
    }

    /// Bytes that `n` 1-of-2 OTs with random choices take, receiver to sender.
    #[must_use]
    pub fn random_bytes(self, n: usize) -> usize {
        match self {
            Self::SoftSpoken { k } => softspoken::random_bytes(k, n),
            Self::Silent => 0,
        }
    }
}

/// Both halves at one party, the hash, and a number for every OT that was ever made in each
/// direction.
pub struct Ots {
    /// This party chooses.
    pub receiver: Box<dyn OtReceiver>,
    /// This party has the messages.
    pub sender: Box<dyn OtSender>,
    /// The session's hash.
    pub hash: Hash,
    /// How the blocks are made.
    pub transfers: Transfers,
    received: u64,
    sent: u64,
    messages: u64,
    /// Threads that OTs were handed to; this one's own is 0.
    threads: u64,
}

/// The most threads of a session, over its whole life: each has 2^56 places of every stream for
/// itself.
pub const MAX_THREADS: usize = 1 << 8;

/// Rounds of [`Ots::set_up`].
pub const SETUP_ROUNDS: u32 = 2;

/// Bytes that each party sends in [`Ots::set_up`].
#[must_use]
pub const fn setup_bytes(group: u32) -> usize {
    let k = if group == 0 { silent::FIRST_GROUP } else { group };
    let base = softspoken::groups(k) * k as usize;
    base::receiver_bytes(base) + base::SENDER_BYTES + base * 64
}

impl Ots {
    /// Sets up SoftSpoken with groups of `group` bits in both directions between party 0 and party
    /// 1; with 0, silent transfers on it. Larger groups mean fewer bytes and more work: with k bits
    /// a 1-of-2 OT takes 128/k bits and 2^k·128/k bits of expansion.
    ///
    /// Each party sends [`setup_bytes`] in [`SETUP_ROUNDS`] rounds, under the phase and step that
    /// run.
    ///
    /// # Errors
    /// [`Error::Step`] unless there are two parties and the group is 0, 1, 2, 4 or 8, and when the
    /// peer's bytes are no group elements.
    pub fn set_up<D: Device>(party: &mut Party<D>, group: u32) -> Result<Self, Error> {
        if party.parties() != 2 {
            return party.refuse("oblivious transfer runs between exactly two parties");
        }
        if ![0, 1, 2, 4, 8].contains(&group) {
            return party.refuse(format!("groups of k = {group} bits; k is 1, 2, 4 or 8, or 0 for silent"));
        }
        let transfers = Transfers::of(group);
        let k = if let Transfers::SoftSpoken { k } = transfers { k } else { silent::FIRST_GROUP };
        let peer = 1 - party.me();
        // Names that both sides have for this run: not secret, and new.
        let mut name = |purpose| -> Result<Vec<u8>, Error> {
            Ok(bytemuck::pod_collect_to_vec(&party.stream(peer, purpose)?.words(4)))
        };
        let (session, hash) = (name("base OT session")?, name("hash")?);
        let hash: [u8; 16] = hash[..16].try_into().expect("of 32 bytes");
        let randomness = |e: megrez_prg::RandomError| Error::Randomness(e.to_string());
        let (groups, levels) = (softspoken::groups(k), k as usize);
        let n = groups * levels;

        // The extension's receiver is the sender of the base OTs, and the other way round.
        let choices: Vec<bool> = {
            let words = Key::random().map_err(randomness)?.stream().words(n.div_ceil(64));
            (0..n).map(|i| megrez_ring::bits::get(&words, i) == 1).collect()
        };
        let of = |direction: usize| {
            blake3::derive_key("megrez 2026 direction", &[&session[..], &[direction as u8]].concat())
        };
        let (mine, theirs) = (of(party.me()), of(peer));
        let base_receiver = base::Receiver::new(&mine, choices.clone()).map_err(randomness)?;
        let base_sender = base::Sender::new().map_err(randomness)?;
        party.send(
            peer,
            "base",
            Payload::from_bytes(&[base_receiver.message(), base_sender.message()].concat()),
        )?;
        let points = party.recv(peer, "base", base::receiver_bytes(n) + base::SENDER_BYTES)?;
        let (to_sender, to_receiver) = points.as_bytes().split_at(base::receiver_bytes(n));
        let finished = base_sender
            .finish(&theirs, to_sender)
            .and_then(|s| Ok((s, base_receiver.finish(&mine, to_receiver)?)));
        let Ok((pairs, chosen)) = finished else {
            return party.refuse(format!("party {peer} sent bytes that are no group elements"));
        };

        let mut sums = Vec::with_capacity(64 * n);
        let mut all = Vec::with_capacity(groups);
        for pairs in pairs.chunks(levels) {
            let grown = tree::grow(RootKey::random().map_err(randomness)?, k);
            for (sum, pair) in grown.sums.iter().zip(pairs) {
                (0..2).for_each(|side| sums.extend_from_slice(&tree::xor(&sum[side], pair[side].expose())));
            }
            all.push(grown.leaves.iter().map(Key::stream).collect::<Vec<Stream>>());
        }
        party.send(peer, "trees", Payload::from_bytes(&sums))?;
        let sums = party.recv(peer, "trees", 64 * n)?;

        let mut delta = Vec::with_capacity(groups);
        let mut but_one = Vec::with_capacity(groups);
        for g in 0..groups {
            let mut missing = 0;
            let given: Vec<[u8; 32]> = (g * levels..(g + 1) * levels)
                .map(|i| {
                    missing = missing << 1 | usize::from(!choices[i]);
                    let side = &sums.as_bytes()[64 * i + 32 * usize::from(choices[i])..][..32];
                    tree::xor(side.try_into().expect("32 bytes"), chosen[i].expose())
                })
                .collect();
            delta.push(missing as u8);
            but_one.push(tree::regrow(missing, &given).iter().map(Key::stream).collect());
        }
        let hash = Hash::new(hash);
        let mut receiver: Box<dyn OtReceiver> = Box::new(softspoken::Receiver::new(k, all));
        let mut sender: Box<dyn OtSender> = Box::new(softspoken::Sender::new(k, delta, but_one));
        if transfers == Transfers::Silent {
            let matrix = Arc::new(silent::Matrix(party.stream(peer, "matrix")?));
            receiver = Box::new(silent::Receiver::new(receiver, Arc::clone(&matrix), hash.clone()));
            sender = Box::new(silent::Sender::new(sender, matrix, hash.clone()));
        }
        Ok(Self { receiver, sender, hash, transfers, received: 0, sent: 0, messages: 0, threads: 1 })
    }

    /// What the next thread of both parties goes on with: places, numbers and messages from a
    /// multiple of 2^56 on, which no other thread comes to. None are given out twice; once
    /// [`MAX_THREADS`] have some, to a thread of a thread, and of silent transfers, there are none.
    pub(crate) fn next_thread(&mut self) -> Option<Self> {
        if self.threads >= MAX_THREADS as u64 {
            return None;
        }
        let first = self.threads << 56;
        let (receiver, sender) = (self.receiver.at(first)?, self.sender.at(first)?);
        self.threads += 1;
        Some(Self {
            receiver,
            sender,
            hash: self.hash.clone(),
            transfers: self.transfers,
            received: first,
            sent: first,
            messages: first,
            threads: MAX_THREADS as u64,
        })
    }

    /// The number of the first of `n` OTs in which this party chooses; each number is given out
    /// once.
    pub fn next_received(&mut self, n: usize) -> u64 {
        self.received += n as u64;
        self.received - n as u64
    }

    /// The number of the next message that both parties send each other; each is given out once.
    pub fn next_message(&mut self) -> u64 {
        self.messages += 1;
        self.messages - 1
    }

    /// The number of the first of `n` OTs in which this party has the messages.
    pub fn next_sent(&mut self, n: usize) -> u64 {
        self.sent += n as u64;
        self.sent - n as u64
    }
}

#[cfg(test)]
mod tests;
