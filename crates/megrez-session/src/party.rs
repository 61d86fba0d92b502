//! The handle that a protocol step is given.

use crate::{Error, Meter, Phase};
use megrez_kernels::{Device, Elem};
use megrez_net::{ClockKind, Network, Payload, Stamp};
use megrez_prg::{Key, RootKey, Stream};
use megrez_ring::{Word, bits};
use std::any::Any;
use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A message as its sender sees it, for tests that examine what a protocol reveals.
pub struct Sent {
    /// The sender.
    pub from: usize,
    /// The receiver.
    pub to: usize,
    /// The phase.
    pub phase: Phase,
    /// Step and label.
    pub name: String,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// A collector of everything that is sent; see [`Party::tap`].
pub type Tap = Arc<Mutex<Vec<Sent>>>;

/// A stream's or a message's name: who shares it or sends it to whom, when, and in which step.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Name {
    /// The party that draws or sends, and the other one (itself for a private stream).
    pub parties: [usize; 2],
    /// The phase.
    pub phase: Phase,
    /// The run.
    pub run: u32,
    /// The step with its scopes.
    pub place: String,
    /// What the stream is for, or the message's label.
    pub label: String,
}

/// What machines that check protocols see of a party, and change: see [`Party::probe`]. Outside
/// tests and checks there is none.
pub trait Probe: Send + Sync {
    /// A stream is about to be used; its key is replaced by what comes back.
    fn stream(&self, _name: &Name, key: Key) -> Key {
        key
    }
    /// A buffer of the device is about to be sent.
    fn sent(&self, _name: &Name, _buffer: &dyn Any) {}
    /// A message has come: the buffer of the device that stands for it, in place of its bytes.
    fn received(&self, _name: &Name) -> Option<Box<dyn Any>> {
        None
    }
}

/// What a message of a step ought to be, so that its sender can prove to the others that it was.
pub struct Statement<'a> {
    /// The message: its sender, who proves it, and its receiver; phase, run, step and label.
    pub message: Name,
    /// Bits of the ring in which it holds.
    pub modulus: u32,
    /// What it says, in buffers of the device as far as this party holds them.
    pub body: &'a dyn Any,
}

/// Proves and checks messages after they were sent: see [`Party::transcribe`]. Semi-honest sessions
/// have none.
pub trait Transcript: Send + Sync {
    /// A message of a step; its sender, its receiver and the third party record it alike.
    fn record(&self, statement: Statement<'_>);
    /// Whether everything that was recorded is proven. The reason of a refusal names no term of a
    /// statement.
    fn verify(&self) -> Result<(), String>;
}

/// One party in one session. Clones are lanes: they share links, streams' ledger, device and meter,
/// and have a step and a clock of their own.
#[derive(Clone)]
pub struct Party<D: Device> {
    device: D,
    network: Network,
    keys: Arc<Vec<RootKey>>,
    used: Arc<Mutex<HashSet<(usize, [u8; 32])>>>,
    meter: Arc<Meter>,
    tap: Option<Tap>,
    probe: Option<Arc<dyn Probe>>,
    transcript: Option<Arc<dyn Transcript>>,
    phase: Phase,
    run: u32,
    step: String,
    scope: String,
    stamp: Stamp,
    waited: Duration,
}

impl<D: Device> Party<D> {
    /// Joins a session: agrees on a fresh key with every other party. Both sides of a pair give 32
    /// random bytes, so neither alone decides the key; the link keeps it from everybody else.
    pub fn start(network: Network, device: D) -> Result<Self, Error> {
        let (me, parties) = (network.me(), network.parties());
        let randomness = |e: megrez_prg::RandomError| Error::Randomness(e.to_string());
        let mut party = Party {
            device,
            network,
            keys: Arc::new(vec![]),
            used: Arc::default(),
            meter: Arc::default(),
            tap: None,
            probe: None,
            transcript: None,
            phase: Phase::Setup,
            run: 0,
            step: "session".into(),
            scope: String::new(),
            stamp: Stamp::default(),
            waited: Duration::ZERO,
        };
        let mine: Vec<RootKey> =
            (0..parties).map(|_| RootKey::random()).collect::<Result<_, _>>().map_err(randomness)?;
        for peer in party.peers() {
            party.send(peer, "key", Payload::from_bytes(mine[peer].expose()))?;
        }
        let mut keys = mine.clone();
        for peer in party.peers() {
            let theirs = party.recv(peer, "key", 32)?;
            let (low, high) = if me < peer {
                (mine[peer].expose().as_slice(), theirs.as_bytes())
            } else {
                (theirs.as_bytes(), mine[peer].expose().as_slice())
            };
            keys[peer] = RootKey::agree("megrez 2026 pair key", low, high);
        }
        party.keys = Arc::new(keys);
        Ok(party)
    }

    /// Which party this is.
    pub fn me(&self) -> usize {
        self.network.me()
    }
    /// How many parties there are.
    pub fn parties(&self) -> usize {
        self.network.parties()
    }
    /// The other parties.
    pub fn peers(&self) -> Vec<usize> {
        (0..self.parties()).filter(|&p| p != self.me()).collect()
    }
    /// Where local work runs.
    pub fn device(&self) -> &D {
        &self.device
    }
    /// What was sent so far.
    pub fn meter(&self) -> &Meter {
        &self.meter
    }
    /// The links.
    pub fn network(&self) -> &Network {
        &self.network
    }
    /// The phase that runs.
    pub fn phase(&self) -> Phase {
        self.phase
    }
    /// The step that runs, with its scope: what errors name.
    pub fn place(&self) -> String {
        format!("{}{}", self.step, self.scope)
    }
    /// Messages on the critical path to this point, counted in the phase that runs.
    pub fn rounds(&self) -> u32 {
        self.stamp.round
    }
    /// Virtual time at this point, in the phase that runs (0 on a real clock).
    pub fn time_ns(&self) -> u64 {
        self.stamp.time_ns
    }

    /// A lane beside others: it begins where this one stands and shares everything with it but the
    /// clocks.
    pub fn lane(&self) -> Self {
        Party { waited: Duration::ZERO, ..self.clone() }
    }

    /// Goes on after a lane has ended: not before it.
    pub fn join(&mut self, lane: &Self) {
        self.stamp.round = self.stamp.round.max(lane.stamp.round);
        self.stamp.time_ns = self.stamp.time_ns.max(lane.stamp.time_ns);
    }

    /// Counts time in which every lane waited.
    pub fn has_waited(&mut self, time: Duration) {
        self.waited += time;
    }

    /// How long this lane has waited for messages in the phase that runs; the rest of the time it
    /// worked.
    pub fn waited(&self) -> Duration {
        self.waited
    }

    /// Copies every message that this party sends from now on into `tap`. For tests of what
    /// messages reveal.
    pub fn tap(&mut self, tap: Tap) {
        self.tap = Some(tap);
    }

    /// Has a checking machine look on from now on. For tests and checks of protocols: a probe may
    /// weaken every stream.
    pub fn probe(&mut self, probe: Arc<dyn Probe>) {
        self.probe = Some(probe);
    }

    /// Has the messages of steps proven from now on.
    pub fn transcribe(&mut self, transcript: Arc<dyn Transcript>) {
        self.transcript = Some(transcript);
    }

    /// Records what the message `label` from one party to another ought to be, in a ring of
    /// `modulus` bits. Without a transcript `body` is not made.
    pub fn record<T: Any>(&self, message: [usize; 2], label: &str, modulus: u32, body: impl FnOnce() -> T) {
        if let Some(transcript) = &self.transcript {
            transcript.record(Statement { message: self.name(message, label), modulus, body: &body() });
        }
    }

    /// Refuses to go on if a recorded message is not proven.
    pub fn verify(&self) -> Result<(), Error> {
        let Some(transcript) = &self.transcript else { return Ok(()) };
        transcript.verify().map_err(|why| Error::Refused(format!("verification failed: {why}")))
    }

    fn name(&self, parties: [usize; 2], label: &str) -> Name {
        Name { parties, phase: self.phase, run: self.run, place: self.place(), label: label.into() }
    }

    /// Starts a phase of run `run` (0 for the first execution of a plan in this session): the
    /// clocks begin at zero. Phase, run and step together name messages and streams.
    pub fn enter(&mut self, phase: Phase, run: u32) {
        self.phase = phase;
        self.run = run;
        self.stamp = Stamp::default();
        self.waited = Duration::ZERO;
    }

    /// Waits until every party has come to this point; counted as set-up.
    pub fn barrier(&mut self, name: &str) -> Result<(), Error> {
        self.barrier_with(name, &BTreeMap::new()).map(drop)
    }

    /// As [`barrier`](Self::barrier), and compares on the way: `common` are hashes of what this
    /// party and a peer must both hold, by peer; that peer gives one for this party. They travel
    /// under the pair's key, so that they tell nothing to anybody who does not hold the same.
    /// Returns the peers whose hash differs.
    pub fn barrier_with(
        &mut self,
        name: &str,
        common: &BTreeMap<usize, [u8; 32]>,
    ) -> Result<Vec<usize>, Error> {
        let (phase, stamp) = (self.phase, self.stamp);
        self.phase = Phase::Setup;
        let label = format!("barrier/{phase:?}/{name}");
        let address = self.address(&label);
        let sealed: BTreeMap<usize, [u8; 32]> = common
            .iter()
            .map(|(&peer, hash)| (peer, *self.keys[peer].root(&[address, *hash].concat()).expose()))
            .collect();
        let said = |peer: usize| sealed.get(&peer).map_or(&[][..], |hash| hash);
        let mut wait = || {
            for peer in self.peers() {
                self.send(peer, &label, Payload::from_bytes(said(peer)))?;
            }
            let mut differ = vec![];
            for peer in self.peers() {
                if self.recv(peer, &label, said(peer).len())?.as_bytes() != said(peer) {
                    differ.push(peer);
                }
            }
            Ok(differ)
        };
        let result = wait();
        (self.phase, self.stamp) = (phase, stamp);
        result
    }

    /// Runs `body` as the plan's step `name`.
    pub fn step<R>(
        &mut self,
        name: &str,
        body: impl FnOnce(&mut Self) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let outer = std::mem::replace(&mut self.step, name.to_owned());
        let scope = std::mem::take(&mut self.scope);
        let result = body(self);
        self.step = outer;
        self.scope = scope;
        result
    }

    /// Runs `body` as a part of the current step; parts nest.
    pub fn scope<R>(
        &mut self,
        name: &str,
        body: impl FnOnce(&mut Self) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let length = self.scope.len();
        self.scope.push('/');
        self.scope.push_str(name);
        let result = body(self);
        self.scope.truncate(length);
        result
    }

    /// An error about the current step.
    pub fn refuse<R>(&self, what: impl Into<String>) -> Result<R, Error> {
        Err(Error::Step { step: self.place(), what: what.into() })
    }

    /// A hash of where we are and of `label`: the name of a message or of a stream.
    fn address(&self, label: &str) -> [u8; 32] {
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

    // ---- randomness ----

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

    // ---- messages ----

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
        Ok(self.network.send(to, self.tag(label), stamp, payload)?)
    }

    /// Receives what `from` sends under this label in this step: exactly `bytes` bytes.
    pub fn recv(&mut self, from: usize, label: &str, bytes: usize) -> Result<Payload, Error> {
        let step = format!("{}/{label}", self.place());
        let start = Instant::now();
        let message = self.network.recv(from, self.tag(label), &step)?;
        self.waited += start.elapsed();
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
        let payload = match bytemuck::allocation::try_cast_vec::<W, u64>(words) {
            Ok(words) => Payload::from_words(words),
            Err((_, words)) => Payload::from_pod(&words),
        };
        self.send(to, label, payload)
    }

    /// Receives `n` ring elements.
    pub fn recv_ring<W: Word>(&mut self, from: usize, label: &str, n: usize) -> Result<D::Buf<W>, Error> {
        let payload = self.recv(from, label, n * size_of::<W>())?;
        if let Some(buf) = self.shown(from, label) {
            return Ok(buf);
        }
        let words = match bytemuck::allocation::try_cast_vec::<u64, W>(payload.into_words()) {
            Ok(words) => words,
            Err((_, words)) => bytemuck::cast_slice::<u64, W>(&words)[..n].to_vec(),
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

#[cfg(test)]
mod tests {
    use super::*;
    use megrez_kernels::Reference;
    use megrez_net::NetProfile;

    fn parties() -> Vec<Party<Reference>> {
        let profile = NetProfile::wan();
        let networks = Network::in_memory(3, &profile, ClockKind::Virtual, Duration::from_secs(5));
        std::thread::scope(|scope| {
            let running: Vec<_> =
                networks.into_iter().map(|n| scope.spawn(|| Party::start(n, Reference).unwrap())).collect();
            running.into_iter().map(|r| r.join().unwrap()).collect()
        })
    }

    #[test]
    fn pairs_share_streams_that_nobody_else_has() {
        let mut p = parties();
        let words = |p: &mut Party<Reference>, peer, purpose: &str| p.stream(peer, purpose).unwrap().words(4);
        let (a, b) = (words(&mut p[0], 1, "w"), words(&mut p[1], 0, "w"));
        assert_eq!(a, b);
        let others = [
            words(&mut p[0], 2, "w"),
            words(&mut p[1], 2, "w"),
            words(&mut p[0], 1, "z"),
            words(&mut p[0], 0, "w"),
        ];
        assert!(others.iter().all(|o| *o != a));
        p[0].enter(Phase::Online, 0);
        assert_ne!(words(&mut p[0], 1, "w"), a, "another phase");
        p[0].enter(Phase::Online, 1);
        assert_ne!(words(&mut p[0], 1, "w"), a, "another run");
    }

    #[test]
    fn a_stream_is_given_out_once() {
        let mut p = parties();
        assert!(p[0].stream(1, "w").is_ok());
        assert!(p[0].stream(2, "w").is_ok(), "another pair is another stream");
        assert!(matches!(p[0].stream(1, "w"), Err(Error::StreamReused { .. })));
        let mut lane = p[0].clone();
        assert!(matches!(lane.stream(1, "w"), Err(Error::StreamReused { .. })), "lanes share the ledger");
        assert!(p[0].scope("part", |p| p.stream(1, "w")).is_ok());
    }

    /// Counts statements, and refuses those about words.
    #[derive(Default)]
    struct Refusing(Mutex<Vec<String>>);

    impl Transcript for Refusing {
        fn record(&self, statement: Statement<'_>) {
            let Name { parties: [from, to], place, label, .. } = statement.message;
            let words = statement.body.is::<u64>();
            self.0.lock().unwrap().push(format!("{place}/{label} {from}→{to}, {words}"));
        }
        fn verify(&self) -> Result<(), String> {
            match self.0.lock().unwrap().iter().all(|s| s.ends_with("false")) {
                true => Ok(()),
                false => Err("a message is not proven".into()),
            }
        }
    }

    #[test]
    fn statements_are_made_for_a_transcript_only_and_verified_by_it() {
        let mut p = parties();
        p[0].record([0, 1], "x", 64, || panic!("nobody listens"));
        assert!(p[0].verify().is_ok());
        let transcript = Arc::new(Refusing::default());
        p[0].transcribe(transcript.clone());
        let say = |p: &mut Party<Reference>| {
            p.step("relu", |p| {
                p.record([2, 1], "R", 64, || false);
                p.verify()?;
                p.scope("truncate", |p| {
                    p.record([0, 1], "q", 16, || 7u64);
                    p.verify()
                })
            })
        };
        assert!(say(&mut p[0]).unwrap_err().to_string().contains("verification failed"));
        assert_eq!(*transcript.0.lock().unwrap(), ["relu/R 2→1, false", "relu/truncate/q 0→1, true"]);
    }

    #[test]
    fn clocks_follow_the_longest_chain() {
        let mut p = parties();
        p.iter_mut().for_each(|p| p.enter(Phase::Online, 0));
        let [a, b, c] = p.as_mut_slice() else { unreachable!() };
        a.send(1, "x", Payload::zeroed(8)).unwrap();
        a.send(2, "y", Payload::zeroed(8)).unwrap();
        b.recv(0, "x", 8).unwrap();
        b.send(2, "x", Payload::zeroed(8)).unwrap();
        c.recv(1, "x", 8).unwrap();
        c.recv(0, "y", 8).unwrap();
        assert_eq!([a.rounds(), b.rounds(), c.rounds()], [0, 1, 2]);
        assert!(c.time_ns() >= 50_000_000, "two one-way delays of 25 ms");
        assert_eq!(a.meter().total(Phase::Online, 3), [0, 8, 8]);
    }

    #[test]
    fn a_barrier_tells_who_holds_something_else_and_tells_nobody_what() {
        let mut p = parties();
        let tap = Tap::default();
        let hashes =
            [[(1, [7; 32]), (2, [8; 32])], [(0, [7; 32]), (2, [9; 32])], [(0, [8; 32]), (1, [1; 32])]];
        let differ: Vec<Vec<usize>> = std::thread::scope(|scope| {
            let running: Vec<_> = p
                .iter_mut()
                .zip(hashes)
                .map(|(p, hashes)| {
                    p.tap(tap.clone());
                    scope.spawn(move || p.barrier_with("here", &BTreeMap::from(hashes)).unwrap())
                })
                .collect();
            running.into_iter().map(|r| r.join().unwrap()).collect()
        });
        assert_eq!(differ, [vec![], vec![2], vec![1]]);
        let sent = tap.lock().unwrap();
        assert!(sent.iter().all(|s| s.bytes.len() == 32 && s.phase == Phase::Setup));
        assert!(
            sent.iter().all(|s| !hashes.iter().flatten().any(|(_, hash)| s.bytes == hash)),
            "sent as it is"
        );
    }

    #[test]
    fn messages_of_another_size_are_refused() {
        let mut p = parties();
        p[0].send(1, "x", Payload::zeroed(9)).unwrap();
        let error = p[1].recv(0, "x", 8).err().unwrap();
        assert!(matches!(error, Error::Size { from: 0, got: 9, expected: 8, .. }));
    }
}
