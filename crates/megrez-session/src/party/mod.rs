//! The handle that a protocol step is given.

mod hooks;
mod messages;

use crate::{Error, Meter, Phase, Turns};
pub use hooks::{Name, Probe, Sent, Statement, Tap, Transcript};
use megrez_kernels::Device;
use megrez_net::{Class, Network, Payload, Stamp};
use megrez_prg::RootKey;
use std::any::Any;
use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

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
    class: Class,
    /// Among lanes that take turns: which one this is.
    turn: Option<(Arc<Turns>, usize)>,
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
            class: Class::Now,
            turn: None,
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
        Party { waited: Duration::ZERO, turn: None, ..self.clone() }
    }

    /// Runs `work` as lane number `lane` of those that take these turns: it begins when its turn
    /// comes, and gives it to another one whenever it waits for a message.
    pub fn in_turn<R>(&mut self, turns: &Arc<Turns>, lane: usize, work: impl FnOnce(&mut Self) -> R) -> R {
        struct Ends<'a>(&'a Turns);
        impl Drop for Ends<'_> {
            fn drop(&mut self) {
                self.0.give();
            }
        }
        let start = Instant::now();
        turns.take(lane);
        // Also where the work panics: others wait for their turn.
        let _ends = Ends(turns);
        self.waited += start.elapsed();
        self.turn = Some((Arc::clone(turns), lane));
        let result = work(self);
        self.turn = None;
        result
    }

    /// A lane for the offline phase of a later run: what it sends gives way to everything else, and
    /// is counted by a meter of its own.
    pub fn behind(&self) -> Self {
        Party { meter: Arc::default(), class: Class::Behind, ..self.lane() }
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use megrez_kernels::Reference;
    use megrez_net::{ClockKind, NetProfile};

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
