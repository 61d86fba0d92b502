//! What a session on floats asks of whoever supplies its blocks, whether by transfers or with a
//! dealer.

use crate::Sirnn;
use crate::dealt::Dealt;
use megrez_float::{
    AnyBlocks, Bit, Failure, Float, Format, Int, Plain, on, secret_ints, supplied_bits, supplied_ints,
};
use megrez_kernels::Device;
use megrez_net::Payload;
use megrez_session::{Error, Party, Phase};
use std::time::Duration;

/// Blocks between parties, with what enters and what leaves. Parties 0 and 1 compute; any other
/// holds no value, gives `None` where they give shares and gets `None` where they learn something.
pub trait Supplier {
    /// Where the party works.
    type Device: Device;

    /// The party.
    fn party(&self) -> &Party<Self::Device>;
    /// The party, to wait for others.
    fn party_mut(&mut self) -> &mut Party<Self::Device>;
    /// Starts a phase of run `run`.
    fn enter(&mut self, phase: Phase, run: u32);
    /// How long this party has waited for messages in the phase that runs.
    fn waited(&self) -> Duration;
    /// Runs a program as the plan's step `name`.
    ///
    /// # Errors
    /// If the session breaks.
    fn step<R>(
        &mut self,
        name: &str,
        program: impl FnOnce(&mut AnyBlocks) -> Result<R, Failure>,
    ) -> Result<R, Error>;
    /// Shares `lanes` numbers of party `owner`, who gives them; the others give `None`. `name` is
    /// unique in the step.
    ///
    /// # Errors
    /// If the owner gives other numbers than announced, or another party gives some.
    fn share(
        &mut self,
        owner: usize,
        name: &str,
        format: Format,
        lanes: usize,
        numbers: Option<&Plain>,
    ) -> Result<Float, Error>;
    /// As [`share`](Supplier::share), of integers.
    ///
    /// # Errors
    /// Those of [`share`](Supplier::share).
    fn share_ints(
        &mut self,
        owner: usize,
        name: &str,
        width: u32,
        lanes: usize,
        values: Option<&[u64]>,
    ) -> Result<Int, Error>;
    /// Takes a client's shares of `n` single-precision numbers.
    ///
    /// # Errors
    /// If a share has another size, or the session breaks.
    fn accept(&mut self, share: Option<&Payload>, n: usize) -> Result<Float, Error>;
    /// This party's share of single-precision numbers, for the client who may learn them.
    fn reveal(&self, x: &Float) -> Option<Payload>;
    /// Opens numbers to parties 0 and 1.
    ///
    /// # Errors
    /// If the session breaks.
    fn open(&mut self, x: &Float) -> Result<Option<Plain>, Error>;
    /// Opens bits to parties 0 and 1.
    ///
    /// # Errors
    /// If the session breaks.
    fn open_bits(&mut self, x: &Bit) -> Result<Option<Vec<bool>>, Error>;
    /// Opens integers to parties 0 and 1, modulo 2^width.
    ///
    /// # Errors
    /// If the session breaks.
    fn open_ints(&mut self, x: &Int) -> Result<Option<Vec<u64>>, Error>;
}

impl<D: Device> Supplier for Sirnn<D> {
    type Device = D;

    fn party(&self) -> &Party<D> {
        self.party()
    }
    fn party_mut(&mut self) -> &mut Party<D> {
        self.party_mut()
    }
    fn enter(&mut self, phase: Phase, run: u32) {
        self.party_mut().enter(phase, run);
    }
    fn waited(&self) -> Duration {
        self.party().waited()
    }
    fn step<R>(
        &mut self,
        name: &str,
        program: impl FnOnce(&mut AnyBlocks) -> Result<R, Failure>,
    ) -> Result<R, Error> {
        self.step(name, |b| on(b, program))
    }
    fn share(
        &mut self,
        owner: usize,
        name: &str,
        format: Format,
        lanes: usize,
        numbers: Option<&Plain>,
    ) -> Result<Float, Error> {
        self.share(owner, name, format, lanes, numbers).map(Float::secret)
    }
    fn share_ints(
        &mut self,
        owner: usize,
        name: &str,
        width: u32,
        lanes: usize,
        values: Option<&[u64]>,
    ) -> Result<Int, Error> {
        self.share_ints(owner, name, width, lanes, values).map(secret_ints::<Self>)
    }
    fn accept(&mut self, share: Option<&Payload>, n: usize) -> Result<Float, Error> {
        match share {
            Some(share) => Self::accept(share, n).map(Float::secret),
            None => self.party().refuse("a party has a share of every input"),
        }
    }
    fn reveal(&self, x: &Float) -> Option<Payload> {
        Some(Self::reveal(&x.supplied(self)))
    }
    fn open(&mut self, x: &Float) -> Result<Option<Plain>, Error> {
        self.open(&x.supplied(self)).map(Some)
    }
    fn open_bits(&mut self, x: &Bit) -> Result<Option<Vec<bool>>, Error> {
        self.open_bits(&supplied_bits(self, x)).map(Some)
    }
    fn open_ints(&mut self, x: &Int) -> Result<Option<Vec<u64>>, Error> {
        self.open_ints(&supplied_ints(self, x)).map(Some)
    }
}

impl<D: Device> Supplier for Dealt<D> {
    type Device = D;

    fn party(&self) -> &Party<D> {
        self.party()
    }
    fn party_mut(&mut self) -> &mut Party<D> {
        self.party_mut()
    }
    fn enter(&mut self, phase: Phase, run: u32) {
        self.enter(phase, run);
    }
    fn waited(&self) -> Duration {
        self.waited()
    }
    fn step<R>(
        &mut self,
        name: &str,
        program: impl FnOnce(&mut AnyBlocks) -> Result<R, Failure>,
    ) -> Result<R, Error> {
        self.step(name, |b| on(b, program))
    }
    fn share(
        &mut self,
        owner: usize,
        _: &str,
        format: Format,
        lanes: usize,
        numbers: Option<&Plain>,
    ) -> Result<Float, Error> {
        self.share(owner, format, lanes, numbers).map(Float::secret)
    }
    fn share_ints(
        &mut self,
        owner: usize,
        _: &str,
        width: u32,
        lanes: usize,
        values: Option<&[u64]>,
    ) -> Result<Int, Error> {
        self.share_ints(owner, width, lanes, values).map(secret_ints::<Self>)
    }
    fn accept(&mut self, share: Option<&Payload>, n: usize) -> Result<Float, Error> {
        self.accept(share, n).map(Float::secret)
    }
    fn reveal(&self, x: &Float) -> Option<Payload> {
        self.reveal(&x.supplied(self))
    }
    fn open(&mut self, x: &Float) -> Result<Option<Plain>, Error> {
        self.open_numbers(&x.supplied(self))
    }
    fn open_bits(&mut self, x: &Bit) -> Result<Option<Vec<bool>>, Error> {
        self.open_bits(&supplied_bits(self, x))
    }
    fn open_ints(&mut self, x: &Int) -> Result<Option<Vec<u64>>, Error> {
        self.open_ints(&supplied_ints(self, x))
    }
}
