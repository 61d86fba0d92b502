//! Streams that a party shares with others, and messages between them: each has one address.

use super::{Party, Sent};
use crate::Error;
use megrez_kernels::{Device, Elem};
use megrez_net::{ClockKind, Payload, Stamp};
use megrez_prg::{Key, Stream};
use megrez_ring::{Word, bits, from_wire, to_wire};
use std::time::Instant;

impl<D: Device> Party<D> {
    /// A hash of where we are and of `label`: the name of a message or of a stream.
    pub(super) fn address(&self, label: &str) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new_derive_key("megrez 2026 address");
        hasher.update(&[self.phase as u8]);
        hasher.update(&self.run.to_le_bytes());
        for part in [&self.step, &self.scope, label] {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part.as_bytes());
        }
        *hasher.finalize().as_bytes()
    }

    fn tag(&self, label: &str) -> u64 {
        u64::from_le_bytes(self.address(label)[..8].try_into().expect("eight bytes"))
    }

    /// The stream for `purpose` in this step that this party and `peer` share, and nobody else.
    /// With `peer` = this party it is private. Each address is given out once.
    pub fn stream(&mut self, peer: usize, purpose: &str) -> Result<Stream, Error> {
        Ok(self.stream_key(peer, purpose)?.stream())
    }

    /// The key of [`Party::stream`], for a holder that needs it later or elsewhere.
    pub fn stream_key(&mut self, peer: usize, purpose: &str) -> Result<Key, Error> {
        let address = self.address(purpose);
        let mut used = self.used.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if !used.insert((peer, address)) {
            return Err(Error::StreamReused { step: self.place(), purpose: purpose.into() });
        }
        let key = self.keys[peer].derive(&address);
        Ok(match &self.probe {
            Some(probe) => probe.stream(&self.name([self.me(), peer], purpose), key),
            None => key,
        })
    }

    /// Sends bytes; `label` is unique in the step for this receiver.
    pub fn send(&mut self, to: usize, label: &str, payload: Payload) -> Result<(), Error> {
        self.meter.count(self.phase, &self.step, to, self.parties(), payload.len());
        if let Some(tap) = &self.tap {
            let name = format!("{}/{label}", self.place());
            let sent =
                Sent { from: self.me(), to, phase: self.phase, name, bytes: payload.as_bytes().to_vec() };
            tap.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push(sent);
        }
        let stamp = Stamp { round: self.stamp.round + 1, ..self.stamp };
        Ok(self.network.send_as(self.class, to, self.tag(label), stamp, payload)?)
    }

    /// Receives what `from` sends under this label in this step: exactly `bytes` bytes.
    pub fn recv(&mut self, from: usize, label: &str, bytes: usize) -> Result<Payload, Error> {
        let step = format!("{}/{label}", self.place());
        let start = Instant::now();
        if let Some((turns, _)) = &self.turn {
            turns.give();
        }
        let message = self.network.recv(from, self.tag(label), &step);
        if let Some((turns, lane)) = &self.turn {
            turns.take(*lane);
        }
        self.waited += start.elapsed();
        let message = message?;
        let got = message.payload.len();
        if got != bytes {
            return Err(Error::Size { step, from, got, expected: bytes });
        }
        self.stamp.round = self.stamp.round.max(message.stamp.round);
        if self.network.clock() == ClockKind::Virtual {
            self.stamp.time_ns = self.stamp.time_ns.max(message.stamp.time_ns);
        }
        Ok(message.payload)
    }

    fn show<T: Elem>(&self, to: usize, label: &str, buf: &D::Buf<T>) {
        if let Some(probe) = &self.probe {
            probe.sent(&self.name([self.me(), to], label), buf);
        }
    }

    /// What stands for a message that has come, if a probe says so.
    fn shown<T: Elem>(&self, from: usize, label: &str) -> Option<D::Buf<T>> {
        let shown = self.probe.as_ref()?.received(&self.name([from, self.me()], label))?;
        shown.downcast().ok().map(|buf| *buf)
    }

    /// Sends ring elements, ℓ bits each.
    pub fn send_ring<W: Word>(&mut self, to: usize, label: &str, buf: D::Buf<W>) -> Result<(), Error> {
        self.show(to, label, &buf);
        let words = self.device.download(buf)?;
        let payload = match W::BITS {
            u64::BITS => Payload::from_words(bytemuck::allocation::cast_vec(words)),
            _ => Payload::from_bytes(&to_wire(&words)),
        };
        self.send(to, label, payload)
    }

    /// Receives `n` ring elements.
    pub fn recv_ring<W: Word>(&mut self, from: usize, label: &str, n: usize) -> Result<D::Buf<W>, Error> {
        let payload = self.recv(from, label, n * W::BYTES)?;
        if let Some(buf) = self.shown(from, label) {
            return Ok(buf);
        }
        let words = match W::BITS {
            u64::BITS => bytemuck::allocation::cast_vec::<u64, W>(payload.into_words()),
            _ => from_wire(payload.as_bytes()),
        };
        Ok(self.device.upload(words)?)
    }

    /// Sends whole 64-bit words: packed field elements.
    pub fn send_words(&mut self, to: usize, label: &str, buf: D::Buf<u64>) -> Result<(), Error> {
        self.send_ring(to, label, buf)
    }

    /// Receives `n` whole 64-bit words.
    pub fn recv_words(&mut self, from: usize, label: &str, n: usize) -> Result<D::Buf<u64>, Error> {
        self.recv_ring(from, label, n)
    }

    /// Sends `n` packed bits in ⌈n/8⌉ bytes.
    pub fn send_bits(&mut self, to: usize, label: &str, buf: D::Buf<u64>, n: usize) -> Result<(), Error> {
        self.show(to, label, &buf);
        let words = self.device.download(buf)?;
        let payload = Payload::from_bytes(&bytemuck::cast_slice(&words)[..bits::bytes(n)]);
        self.send(to, label, payload)
    }

    /// Receives `n` packed bits; bits past the end are cleared, whatever the peer put there.
    pub fn recv_bits(&mut self, from: usize, label: &str, n: usize) -> Result<D::Buf<u64>, Error> {
        let payload = self.recv(from, label, bits::bytes(n))?;
        if let Some(buf) = self.shown(from, label) {
            return Ok(buf);
        }
        let mut words = payload.into_words();
        bits::clear_tail(&mut words, n);
        Ok(self.device.upload(words)?)
    }
}
