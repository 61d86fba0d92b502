//! What a session on floats asks of whoever supplies its blocks, whether by transfers or with a
//! dealer.

use crate::Sirnn;
use crate::dealt::Dealt;
use bytemuck::TransparentWrapper;
use megrez_float::{Blocks, Float, Folding, Format, Mixed, Plain};
use megrez_kernels::Device;
use megrez_net::Payload;
use megrez_session::{Error, Party, Phase};
use std::time::Duration;

/// [`Blocks`] between parties, with what enters and what leaves. Parties 0 and 1 compute; any other
/// holds no value, gives `None` where they give shares and gets `None` where they learn something.
pub trait Supplier: Blocks<Error = Error> + Sized {
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
    /// Runs `body` as the plan's step `name`.
    ///
    /// # Errors
    /// Those of `body`.
    fn step<R>(&mut self, name: &str, body: impl FnOnce(&mut Self) -> Result<R, Error>) -> Result<R, Error>;
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
    ) -> Result<Float<Self>, Error>;
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
    ) -> Result<Self::Int, Error>;
    /// Takes a client's shares of `n` single-precision numbers.
    ///
    /// # Errors
    /// If a share has another size, or the session breaks.
    fn accept(&mut self, share: Option<&Payload>, n: usize) -> Result<Float<Self>, Error>;
    /// This party's share of single-precision numbers, for the client who may learn them.
    fn reveal(&self, x: &Float<Self>) -> Option<Payload>;
    /// Opens numbers to parties 0 and 1.
    ///
    /// # Errors
    /// If the session breaks.
    fn open(&mut self, x: &Float<Self>) -> Result<Option<Plain>, Error>;
    /// Opens bits to parties 0 and 1.
    ///
    /// # Errors
    /// If the session breaks.
    fn open_bits(&mut self, x: &Self::Bit) -> Result<Option<Vec<bool>>, Error>;
    /// Opens integers to parties 0 and 1, modulo 2^width.
    ///
    /// # Errors
    /// If the session breaks.
    fn open_ints(&mut self, x: &Self::Int) -> Result<Option<Vec<u64>>, Error>;
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
    fn step<R>(&mut self, name: &str, body: impl FnOnce(&mut Self) -> Result<R, Error>) -> Result<R, Error> {
        self.step(name, body)
    }
    fn share(
        &mut self,
        owner: usize,
        name: &str,
        format: Format,
        lanes: usize,
        numbers: Option<&Plain>,
    ) -> Result<Float<Self>, Error> {
        self.share(owner, name, format, lanes, numbers)
    }
    fn share_ints(
        &mut self,
        owner: usize,
        name: &str,
        width: u32,
        lanes: usize,
        values: Option<&[u64]>,
    ) -> Result<Self::Int, Error> {
        self.share_ints(owner, name, width, lanes, values)
    }
    fn accept(&mut self, share: Option<&Payload>, n: usize) -> Result<Float<Self>, Error> {
        match share {
            Some(share) => Self::accept(share, n),
            None => self.party().refuse("a party has a share of every input"),
        }
    }
    fn reveal(&self, x: &Float<Self>) -> Option<Payload> {
        Some(Self::reveal(x))
    }
    fn open(&mut self, x: &Float<Self>) -> Result<Option<Plain>, Error> {
        self.open(x).map(Some)
    }
    fn open_bits(&mut self, x: &Self::Bit) -> Result<Option<Vec<bool>>, Error> {
        self.open_bits(x).map(Some)
    }
    fn open_ints(&mut self, x: &Self::Int) -> Result<Option<Vec<u64>>, Error> {
        self.open_ints(x).map(Some)
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
    fn step<R>(&mut self, name: &str, body: impl FnOnce(&mut Self) -> Result<R, Error>) -> Result<R, Error> {
        self.step(name, body)
    }
    fn share(
        &mut self,
        owner: usize,
        _: &str,
        format: Format,
        lanes: usize,
        numbers: Option<&Plain>,
    ) -> Result<Float<Self>, Error> {
        self.share(owner, format, lanes, numbers)
    }
    fn share_ints(
        &mut self,
        owner: usize,
        _: &str,
        width: u32,
        lanes: usize,
        values: Option<&[u64]>,
    ) -> Result<Self::Int, Error> {
        self.share_ints(owner, width, lanes, values)
    }
    fn accept(&mut self, share: Option<&Payload>, n: usize) -> Result<Float<Self>, Error> {
        self.accept(share, n)
    }
    fn reveal(&self, x: &Float<Self>) -> Option<Payload> {
        self.reveal(x)
    }
    fn open(&mut self, x: &Float<Self>) -> Result<Option<Plain>, Error> {
        self.open_numbers(x)
    }
    fn open_bits(&mut self, x: &Self::Bit) -> Result<Option<Vec<bool>>, Error> {
        self.open_bits(x)
    }
    fn open_ints(&mut self, x: &Self::Int) -> Result<Option<Vec<u64>>, Error> {
        self.open_ints(x)
    }
}

/// What everybody knows is computed without messages; inputs are secret.
impl<S: Supplier> Supplier for Folding<S> {
    type Device = S::Device;

    fn party(&self) -> &Party<S::Device> {
        self.inner().party()
    }
    fn party_mut(&mut self) -> &mut Party<S::Device> {
        self.inner_mut().party_mut()
    }
    fn enter(&mut self, phase: Phase, run: u32) {
        self.inner_mut().enter(phase, run);
    }
    fn waited(&self) -> Duration {
        self.inner().waited()
    }
    fn step<R>(&mut self, name: &str, body: impl FnOnce(&mut Self) -> Result<R, Error>) -> Result<R, Error> {
        self.inner_mut().step(name, |b| body(Self::wrap_mut(b)))
    }
    fn share(
        &mut self,
        owner: usize,
        name: &str,
        format: Format,
        lanes: usize,
        numbers: Option<&Plain>,
    ) -> Result<Float<Self>, Error> {
        self.inner_mut().share(owner, name, format, lanes, numbers).map(Self::secret)
    }
    fn share_ints(
        &mut self,
        owner: usize,
        name: &str,
        width: u32,
        lanes: usize,
        values: Option<&[u64]>,
    ) -> Result<Self::Int, Error> {
        self.inner_mut().share_ints(owner, name, width, lanes, values).map(Mixed::Secret)
    }
    fn accept(&mut self, share: Option<&Payload>, n: usize) -> Result<Float<Self>, Error> {
        self.inner_mut().accept(share, n).map(Self::secret)
    }
    fn reveal(&self, x: &Float<Self>) -> Option<Payload> {
        self.inner().reveal(&self.lower(x))
    }
    fn open(&mut self, x: &Float<Self>) -> Result<Option<Plain>, Error> {
        let x = self.lower(x);
        self.inner_mut().open(&x)
    }
    fn open_bits(&mut self, x: &Self::Bit) -> Result<Option<Vec<bool>>, Error> {
        let x = self.lower_bits(x);
        self.inner_mut().open_bits(&x)
    }
    fn open_ints(&mut self, x: &Self::Int) -> Result<Option<Vec<u64>>, Error> {
        let x = self.lower_ints(x);
        self.inner_mut().open_ints(&x)
    }
}
