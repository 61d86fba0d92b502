//! The handle of one party: its links and its OTs.

use crate::ot::silent::refill_bytes;
use crate::ot::{MAX_THREADS, Ots, Transfers};
use megrez_kernels::Device;
use megrez_net::Payload;
use megrez_session::{Error, Party};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// One of two parties, with OTs set up: what the blocks run on. Both parties call the same blocks
/// with the same widths and lanes in the same order; the first message that does not fit ends the
/// session.
pub struct Sirnn<D: Device> {
    party: Party<D>,
    pub(crate) ot: Ots,
    /// The other threads' handles; their parties are of the call that they last worked in.
    others: Vec<Self>,
}

/// What a thread did: the results of its parts, and for how long it worked.
type Worked<T> = (Result<Vec<T>, Error>, Duration);

impl<D: Device> Sirnn<D> {
    /// Joins a party with its OTs. One thread works.
    pub fn new(party: Party<D>, ot: Ots) -> Self {
        Self { party, ot, others: vec![] }
    }

    /// With `threads` threads for parts that do not depend on each other; the same number at both
    /// parties. Threads that were there before are let go, and the new ones begin where none has
    /// been.
    ///
    /// # Errors
    /// [`Error::Step`] once a session has had [`MAX_THREADS`], and for more than one thread with
    /// silent transfers.
    pub fn with_threads(mut self, threads: usize) -> Result<Self, Error> {
        self.others.clear();
        for _ in 1..threads {
            if self.ot.transfers == Transfers::Silent {
                return self
                    .party
                    .refuse("silent transfers have one stock: take one thread, or a group of bits");
            }
            let Some(ot) = self.ot.next_thread() else {
                let what =
                    format!("{threads} threads: a session has at most {MAX_THREADS} in all; begin a new one");
                return self.party.refuse(what);
            };
            self.others.push(Self::new(self.party.lane(), ot));
        }
        Ok(self)
    }

    /// The party.
    #[must_use]
    pub fn party(&self) -> &Party<D> {
        &self.party
    }

    /// The party, to enter a phase or to send.
    pub fn party_mut(&mut self) -> &mut Party<D> {
        &mut self.party
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
        let mut outer = self.party.lane();
        let result = outer.step(name, |party| {
            std::mem::swap(&mut self.party, party);
            let result = body(self);
            std::mem::swap(&mut self.party, party);
            result
        });
        self.party.join(&outer);
        self.party.has_waited(outer.waited());
        result
    }

    /// This party: 0 or 1.
    pub(crate) fn me(&self) -> usize {
        self.party.me()
    }

    /// How many threads work.
    pub(crate) fn thread_count(&self) -> usize {
        1 + self.others.len()
    }

    /// Runs `n` parts, part i in thread i modulo their number. Every thread has OTs, messages and
    /// clocks of its own, so that nothing depends on which is faster.
    pub(crate) fn in_threads<T: Send>(
        &mut self,
        n: usize,
        part: impl Fn(&mut Self, usize) -> Result<T, Error> + Sync,
    ) -> Result<Vec<T>, Error> {
        let threads = self.thread_count().min(n);
        if threads <= 1 {
            return (0..n).map(|i| part(self, i)).collect();
        }
        let work = |b: &mut Self, thread: usize| -> Worked<T> {
            let start = Instant::now();
            let results = (thread..n).step_by(threads).map(|i| part(b, i)).collect();
            (results, start.elapsed().saturating_sub(b.party.waited()))
        };
        // Nothing is left for parts of parts.
        let mut others = std::mem::take(&mut self.others);
        others.iter_mut().for_each(|b| b.party = self.party.lane());
        let lane = self.party.lane();
        let outer = std::mem::replace(&mut self.party, lane);
        let start = Instant::now();
        let waiting: Vec<_> = others[..threads - 1].iter_mut().map(|b| Mutex::new(Some(b))).collect();
        let take = |thread: usize| {
            let mut waiting = waiting[thread - 1].lock().unwrap_or_else(PoisonError::into_inner);
            work(waiting.take().expect("a thread works once"), thread)
        };
        let worked: Vec<Worked<T>> = std::thread::scope(|scope| {
            let take = &take;
            let spawn = |thread| {
                std::thread::Builder::new().spawn_scoped(scope, move || take(thread)).map_err(|_| thread)
            };
            let running: Vec<_> = (1..threads).map(spawn).collect();
            let mine = work(self, 0);
            let ended = running.into_iter().map(|thread| match thread {
                Ok(thread) => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
                // What no thread could be had for is done when those before it have ended.
                Err(thread) => take(thread),
            });
            std::iter::once(mine).chain(ended).collect()
        });
        // All together worked as long as the busiest.
        let busiest = worked.iter().map(|w| w.1).max().unwrap_or_default();
        let waited = start.elapsed().saturating_sub(busiest);
        let lane = std::mem::replace(&mut self.party, outer);
        others[..threads - 1].iter().map(|b| &b.party).chain([&lane]).for_each(|lane| self.party.join(lane));
        self.party.has_waited(waited);
        self.others = others;
        let results = worked.into_iter().map(|w| Ok(w.0?.into_iter()));
        let mut results: Vec<_> = results.collect::<Result<_, Error>>()?;
        Ok((0..n).map(|i| results[i % threads].next().expect("one for each part")).collect())
    }

    /// Fills up the stocks of OTs, if any are kept, so that this party can choose in `receive` OTs
    /// of one bit and offer in `send`: before the messages that they are for.
    pub(crate) fn reserve(&mut self, receive: usize, send: usize) -> Result<(), Error> {
        let randomness = |e: megrez_prg::RandomError| Error::Randomness(e.to_string());
        loop {
            let (mine, theirs) = (self.ot.receiver.lacking(receive), self.ot.sender.lacking(send));
            if mine.is_none() && theirs.is_none() {
                return Ok(());
            }
            let ask = mine.map(|refill| self.ot.receiver.ask(refill)).transpose().map_err(randomness)?;
            let expect = theirs.map_or(0, |refill| refill_bytes(refill)[0]);
            let asked = self.exchange(Payload::from_bytes(&ask.unwrap_or_default()), expect)?;
            let answer = theirs.map(|refill| self.ot.sender.answer(refill, asked.as_bytes()));
            let answer = answer.transpose().map_err(randomness)?.unwrap_or_default();
            let expect = mine.map_or(0, |refill| refill_bytes(refill)[1]);
            let answered = self.exchange(Payload::from_bytes(&answer), expect)?;
            if let Some(refill) = mine {
                self.ot.receiver.fill(refill, answered.as_bytes());
            }
        }
    }

    /// Sends `out` and receives `expect` bytes at the same time; an empty message is not sent.
    pub(crate) fn exchange(&mut self, out: Payload, expect: usize) -> Result<Payload, Error> {
        let peer = 1 - self.me();
        let label = self.ot.next_message().to_string();
        if !out.is_empty() {
            self.party.send(peer, &label, out)?;
        }
        if expect == 0 { Ok(Payload::zeroed(0)) } else { self.party.recv(peer, &label, expect) }
    }
}
