//! The handle of one party: dealing, masks, and what the workers send each other.

use super::share::{Bits, Ints};
use crate::wire::{Reader, Writer};
use megrez_float::blocks::mask;
use megrez_kernels::Device;
use megrez_ring::bits;
use megrez_session::{Error, Party, Phase};
use std::time::Duration;

/// The party that deals; the others are the workers 0 and 1.
pub const DEALER: usize = 2;

/// One of two workers or their dealer: what the blocks run on. All three call the same blocks with
/// the same widths and lanes in the same order; the first message that does not fit ends the
/// session.
///
/// The dealer's messages are those of the offline phase: it sends them without waiting for anybody,
/// as far ahead as the links take them, and they wait at worker 0 until they are used.
pub struct Dealt<D: Device> {
    /// What the workers send each other.
    party: Party<D>,
    /// What the dealer sends, and the streams that it shares: the same party in its offline phase.
    offline: Party<D>,
    /// Number of the next message.
    next: u64,
    /// Of each message that this party sends or takes, its number and what it is made of.
    #[cfg(test)]
    pub(super) made_of: Vec<(u64, Vec<Size>)>,
}

/// A party's share of what was dealt; worker 0's at the dealer, who knows it.
pub(super) type Share = Vec<u64>;

/// What was opened, at this party: m, r and first, as in [`Ints`] and [`Bits`].
pub(super) struct Masked {
    pub m: Vec<u64>,
    pub r: Vec<u64>,
    pub first: Vec<u64>,
}

impl Masked {
    pub fn ints(self, width: u32) -> Ints {
        Ints { width, m: self.m, r: self.r, first: self.first }
    }

    pub fn bits(self, n: usize) -> Bits {
        Bits { n, m: self.m, r: self.r, first: self.first }
    }
}

/// How many lanes of how many bits each: what a message is made of.
#[derive(Clone, Copy)]
pub(super) enum Size {
    /// Integers of (width, lanes).
    Ints(u32, usize),
    /// Packed bits.
    Bits(usize),
    /// Rows of (width, lanes), each bit modulo 2.
    Rows(u32, usize),
}

impl Size {
    fn bits(self) -> usize {
        match self {
            Self::Ints(width, lanes) | Self::Rows(width, lanes) => width as usize * lanes,
            Self::Bits(n) => n,
        }
    }

    pub fn read(self, reader: &mut Reader<'_>) -> Vec<u64> {
        match self {
            Self::Ints(width, lanes) | Self::Rows(width, lanes) => {
                (0..lanes).map(|_| reader.next(width)).collect()
            }
            Self::Bits(n) => reader.take(n),
        }
    }

    fn write(self, writer: &mut Writer, v: &[u64]) {
        match self {
            Self::Ints(width, _) | Self::Rows(width, _) => v.iter().for_each(|&v| writer.push(v, width)),
            Self::Bits(n) => writer.append(v, n),
        }
    }

    /// x + y, lane by lane; bits modulo 2.
    fn sum(self, x: &[u64], y: &[u64]) -> Vec<u64> {
        let lanes = x.iter().zip(y);
        match self {
            Self::Ints(width, _) => lanes.map(|(x, y)| x.wrapping_add(*y) & mask(width)).collect(),
            Self::Bits(_) | Self::Rows(..) => lanes.map(|(x, y)| x ^ y).collect(),
        }
    }

    /// x − y, lane by lane; bits modulo 2.
    pub fn difference(self, x: &[u64], y: &[u64]) -> Vec<u64> {
        let lanes = x.iter().zip(y);
        match self {
            Self::Ints(width, _) => lanes.map(|(x, y)| x.wrapping_sub(*y) & mask(width)).collect(),
            Self::Bits(_) | Self::Rows(..) => lanes.map(|(x, y)| x ^ y).collect(),
        }
    }
}

fn all(sizes: &[Size]) -> usize {
    sizes.iter().map(|s| s.bits()).sum()
}

impl<D: Device> Dealt<D> {
    /// Joins a party of three: the workers 0 and 1, and the dealer.
    ///
    /// # Errors
    /// [`Error::Step`] if there are not three.
    pub fn new(party: Party<D>) -> Result<Self, Error> {
        if party.parties() != DEALER + 1 {
            return party.refuse("two workers and a dealer are three parties");
        }
        let mut new = Self {
            offline: party.lane(),
            party,
            next: 0,
            #[cfg(test)]
            made_of: vec![],
        };
        new.offline.enter(Phase::Offline, 0);
        Ok(new)
    }

    /// The party.
    #[must_use]
    pub fn party(&self) -> &Party<D> {
        &self.party
    }

    /// The party, to send or to wait for others.
    pub fn party_mut(&mut self) -> &mut Party<D> {
        &mut self.party
    }

    /// Starts a phase of run `run`; what is dealt in it is of the offline phase of the same run.
    pub fn enter(&mut self, phase: Phase, run: u32) {
        self.party.enter(phase, run);
        self.offline.enter(Phase::Offline, run);
    }

    /// How long this party has waited for messages since [`enter`](Self::enter).
    #[must_use]
    pub fn waited(&self) -> Duration {
        self.party.waited() + self.offline.waited()
    }

    /// Runs `body` as the plan's step `name`.
    ///
    /// # Errors
    /// Those of `body`.
    pub fn step<R>(
        &mut self,
        name: &str,
        body: impl FnOnce(&mut Self) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let (mut online, mut offline) = (self.party.lane(), self.offline.lane());
        let result = online.step(name, |online| {
            offline.step(name, |offline| {
                std::mem::swap(&mut self.party, online);
                std::mem::swap(&mut self.offline, offline);
                let result = body(self);
                std::mem::swap(&mut self.party, online);
                std::mem::swap(&mut self.offline, offline);
                result
            })
        });
        for (outer, lane) in [(&mut self.party, &online), (&mut self.offline, &offline)] {
            outer.join(lane);
            outer.has_waited(lane.waited());
        }
        result
    }

    /// Whether this party deals.
    pub(super) fn deals(&self) -> bool {
        self.party.me() == DEALER
    }

    /// The worker's number as a word: 0 or 1.
    pub(super) fn me(&self) -> usize {
        self.party.me()
    }

    /// The label of the next message, which is of such sizes.
    #[cfg_attr(not(test), allow(unused_variables))]
    fn label(&mut self, sizes: &[Size]) -> String {
        #[cfg(test)]
        self.made_of.push((self.next, sizes.to_vec()));
        self.next += 1;
        (self.next - 1).to_string()
    }

    /// Deals secrets: the sum of the workers' shares is the secret. `secrets` are the dealer's; the
    /// workers say the same sizes.
    ///
    /// One message of all bits, dealer → worker 0; worker 1's shares are a stream.
    pub(super) fn deal(
        &mut self,
        sizes: &[Size],
        secrets: impl FnOnce() -> Vec<Vec<u64>>,
    ) -> Result<Vec<Share>, Error> {
        let (label, bits) = (self.label(sizes), all(sizes));
        if bits == 0 {
            return Ok(sizes.iter().map(|_| vec![]).collect());
        }
        let me = self.me();
        let words = match me {
            0 => self.offline.recv(DEALER, &label, bits::bytes(bits))?.into_words(),
            _ => {
                let peer = if me == DEALER { 1 } else { DEALER };
                self.offline.stream(peer, &format!("deal {label}"))?.words(bits::words(bits))
            }
        };
        let mut reader = Reader::new(&words);
        if me != DEALER {
            return Ok(sizes.iter().map(|size| size.read(&mut reader)).collect());
        }
        let mut writer = Writer::with_capacity(bits);
        let of = |(size, secret): (&Size, Vec<u64>)| {
            let first = size.difference(&secret, &size.read(&mut reader));
            size.write(&mut writer, &first);
            first
        };
        let first = sizes.iter().zip(secrets()).map(of).collect();
        self.offline.send(0, &label, writer.into_payload())?;
        Ok(first)
    }

    /// Fresh masks, one a lane: a worker's shares, which are streams, and the dealer's sums of
    /// both. No message. Returns r and first.
    #[allow(clippy::type_complexity)]
    fn masks(&mut self, label: &str, sizes: &[Size]) -> Result<Vec<(Vec<u64>, Vec<u64>)>, Error> {
        let purpose = format!("mask {label}");
        let n = bits::words(all(sizes));
        let mut from = |peer: usize| -> Result<Vec<Vec<u64>>, Error> {
            let words = self.offline.stream(peer, &purpose)?.words(n);
            let mut reader = Reader::new(&words);
            Ok(sizes.iter().map(|size| size.read(&mut reader)).collect())
        };
        if self.party.me() != DEALER {
            return Ok(from(DEALER)?.into_iter().map(|r| (r, vec![])).collect());
        }
        let (first, second) = (from(0)?, from(1)?);
        let all = sizes.iter().zip(first.into_iter().zip(&second));
        Ok(all.map(|(size, (x, y))| (size.sum(&x, y), x)).collect())
    }

    /// Opens what the workers have additive shares of, under fresh masks; the dealer gives none.
    /// One message of all bits each way.
    pub(super) fn open_shares(&mut self, sizes: &[Size], shares: Vec<Share>) -> Result<Vec<Masked>, Error> {
        let (label, bits) = (self.next.to_string(), all(sizes));
        let masks = if bits == 0 {
            sizes.iter().map(|_| (vec![], vec![])).collect()
        } else {
            self.masks(&label, sizes)?
        };
        if self.deals() || bits == 0 {
            self.next += 1;
            return Ok(masks.into_iter().map(|(r, first)| Masked { m: vec![], r, first }).collect());
        }
        let all = sizes.iter().zip(shares.iter().zip(&masks));
        let mine: Vec<Vec<u64>> = all.map(|(size, (share, mask))| size.sum(share, &mask.0)).collect();
        let theirs = self.swap(sizes, &mine.iter().collect::<Vec<_>>())?.expect("at workers");
        let opened = sizes.iter().zip(mine.iter().zip(&theirs)).map(|(size, (x, y))| size.sum(x, y));
        Ok(opened.zip(masks).map(|(m, (r, first))| Masked { m, r, first }).collect())
    }

    /// Bits `at` of integers as masked bits: m's bit, and r's, which is dealt. No round, one bit a
    /// lane dealt.
    pub(super) fn bits_of(&mut self, jobs: &[(&Ints, u32)]) -> Result<Vec<Bits>, Error> {
        let sizes: Vec<Size> = jobs.iter().map(|(x, _)| Size::Bits(x.lanes())).collect();
        let pack = |v: &[u64], at: u32| bits::pack(v.len(), |i| v[i] >> at);
        let deals = self.deals();
        let shares = self.deal(&sizes, || jobs.iter().map(|&(x, at)| pack(&x.r, at)).collect())?;
        let one = |(&(x, at), share): (&(&Ints, u32), Share)| {
            let (r, first) = if deals { (pack(&x.r, at), share) } else { (share, vec![]) };
            Bits { n: x.lanes(), m: pack(&x.m, at), r, first }
        };
        Ok(jobs.iter().zip(shares).map(one).collect())
    }

    /// Words of worker `owner` under masks that it shares with the dealer; it sends them to the
    /// other worker, whose share of the masks is zero.
    pub(super) fn enter_words(
        &mut self,
        owner: usize,
        sizes: &[Size],
        words: Option<Vec<Vec<u64>>>,
    ) -> Result<Vec<Masked>, Error> {
        let (label, n) = (self.label(sizes), all(sizes));
        if n == 0 {
            return Ok(sizes.iter().map(|_| Masked { m: vec![], r: vec![], first: vec![] }).collect());
        }
        if self.me() == 1 - owner.min(1) {
            let sent = self.party.recv(owner, &label, bits::bytes(n))?;
            let mut reader = Reader::new(sent.words());
            let of = |size: &Size| {
                let m = size.read(&mut reader);
                let r = vec![0; m.len()];
                Masked { m, r, first: vec![] }
            };
            return Ok(sizes.iter().map(of).collect());
        }
        let peer = if self.deals() { owner } else { DEALER };
        let masks = self.offline.stream(peer, &format!("enter {label}"))?.words(bits::words(n));
        let mut reader = Reader::new(&masks);
        let masks: Vec<Vec<u64>> = sizes.iter().map(|size| size.read(&mut reader)).collect();
        let Some(words) = words else {
            let first = |r: &Vec<u64>| if owner == 0 { r.clone() } else { vec![0; r.len()] };
            return Ok(masks.into_iter().map(|r| Masked { m: vec![], first: first(&r), r }).collect());
        };
        let mut writer = Writer::with_capacity(n);
        let of = |((size, x), r): ((&Size, Vec<u64>), Vec<u64>)| {
            let m = size.sum(&x, &r);
            size.write(&mut writer, &m);
            Masked { m, r, first: vec![] }
        };
        let entered = sizes.iter().zip(words).zip(masks).map(of).collect();
        self.party.send(1 - owner, &label, writer.into_payload())?;
        Ok(entered)
    }

    /// Worker's shares to the other worker, and its; `None` at the dealer.
    pub(super) fn swap(
        &mut self,
        sizes: &[Size],
        shares: &[&Vec<u64>],
    ) -> Result<Option<Vec<Vec<u64>>>, Error> {
        let (label, n) = (self.label(sizes), all(sizes));
        if self.deals() {
            return Ok(None);
        }
        if n == 0 {
            return Ok(Some(sizes.iter().map(|_| vec![]).collect()));
        }
        let mut writer = Writer::with_capacity(n);
        sizes.iter().zip(shares).for_each(|(size, share)| size.write(&mut writer, share));
        let peer = 1 - self.me();
        self.party.send(peer, &label, writer.into_payload())?;
        let theirs = self.party.recv(peer, &label, bits::bytes(n))?;
        let mut reader = Reader::new(theirs.words());
        Ok(Some(sizes.iter().map(|size| size.read(&mut reader)).collect()))
    }
}
