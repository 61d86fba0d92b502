//! A client's connections: a line to each party, of which each is read while another is waited
//! for, so that the first failure is heard, whoever says it.

use crate::wire::{self, Failure, Reply};
use crate::{Error, ErrorKind, Result};
use megrez_engine::client::PartyPort;
use megrez_net::{Channel, Identity, NetError, Payload, PeerName, dial};
use megrez_session::Error as SessionError;
use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

/// How long a client that waits for one party waits before it looks what the others have to say.
const LOOK: Duration = Duration::from_millis(100);
/// After a failure, how long a client listens for what else the parties have to say about it.
pub(super) const LAST_WORDS: Duration = Duration::from_millis(500);

/// The channel to a party.
pub(super) struct Line {
    pub(super) party: usize,
    pub(super) channel: Channel,
    /// What the party has said before it was asked.
    ahead: Option<Reply>,
}

/// How long a client waits, and for what.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// For a connection.
    pub(super) connect: Duration,
    /// For a sign of life.
    pub(super) idle_timeout: Duration,
    /// While the parties are busy.
    pub(super) busy: Duration,
    /// For the end of a request.
    pub(super) request: Option<Duration>,
    /// When the request that is under way must have ended.
    pub(super) until: Option<Instant>,
}

impl Patience {
    /// How many seconds are left for the request that is under way.
    pub(super) fn within_s(&self) -> Option<u32> {
        let left = |until: Instant| until.saturating_duration_since(Instant::now()).as_secs_f64().ceil();
        self.until.map(|until| (left(until) as u32).max(1))
    }
}

impl Line {
    /// What the party says; that it fails is an error.
    fn answer(&self, payload: &Payload) -> Result<Reply> {
        match wire::parse(&self.channel, payload)? {
            Reply::Failed(Failure { kind, reason }) => Err(Error::Party { party: self.party, kind, reason }),
            reply => Ok(reply),
        }
    }
}

pub(super) fn line(party: usize, address: &str, identity: &Identity, timeout: Duration) -> Result<Line> {
    let channel = dial(address, identity, &PeerName::party(party)?, timeout).map_err(|e| {
        let reason = format!("cannot reach {address}: {e}");
        Error::Party { party, kind: Error::from(e).kind(), reason }
    })?;
    Ok(Line { party, channel, ahead: None })
}

/// The next answer of the party at `index`. Meanwhile the others may fail, and whoever they wait
/// for may wait for them: their failures count at once.
pub(super) fn next(lines: &RefCell<Vec<Line>>, index: usize, patience: &Patience) -> Result<(usize, Reply)> {
    let lines = &mut *lines.borrow_mut();
    let party = lines[index].party;
    let mut last = Instant::now();
    loop {
        // Others may wait for what this client cannot send before it has heard this party.
        if last.elapsed() > wire::HEARTBEAT {
            let others = lines.iter_mut().filter(|line| line.party != party);
            others.for_each(|line| drop(line.channel.keep_alive()));
            last = Instant::now();
        }
        let line = &mut lines[index];
        if let Some(reply) = line.ahead.take() {
            return Ok((party, reply));
        }
        if let Some(payload) = line.channel.recv_within(wire::MAX_REPLY, LOOK)? {
            return Ok((party, line.answer(&payload)?));
        }
        if line.channel.silent() > patience.idle_timeout {
            let what = format!("receiving from party{party} made no progress; is it overloaded?");
            return Err(NetError::Timeout(what).into());
        }
        if patience.until.is_some_and(|until| Instant::now() > until) {
            let what = "the request took longer than its time-out allows";
            return Err(Error::of(ErrorKind::TimedOut, what));
        }
        for line in lines.iter_mut().filter(|line| line.ahead.is_none()) {
            if let Some(payload) = line.channel.recv_within(wire::MAX_REPLY, Duration::ZERO)? {
                line.ahead = Some(line.answer(&payload)?);
            }
        }
    }
}

/// The reason that a party gives for a failure, if it gives one soon: the last thing that it says
/// before it hangs up. What comes before may be anything that was under way, shares included.
pub(super) fn last_words(channel: &mut Channel, until: Instant) -> Option<Failure> {
    let mut last = None;
    for _ in 0..64 {
        let left = until.saturating_duration_since(Instant::now());
        channel.set_timeout(left.max(Duration::from_millis(50))).ok()?;
        match channel.recv(wire::MAX_REPLY) {
            Ok(payload) => last = Some(payload),
            Err(NetError::Closed(_)) => break,
            Err(_) => return None,
        }
    }
    match postcard::from_bytes(last?.as_bytes()) {
        Ok(Reply::Failed(failure)) => Some(failure),
        _ => None,
    }
}

pub(super) fn unexpected(party: usize, _: &Reply) -> Error {
    let reason = "answered out of turn: use one release of megrez everywhere".into();
    Error::Party { party, kind: ErrorKind::Unsupported, reason }
}

/// One party during a run.
pub(super) struct Port<'a> {
    pub(super) index: usize,
    pub(super) lines: &'a RefCell<Vec<Line>>,
    pub(super) told: &'a Cell<Option<ErrorKind>>,
    pub(super) patience: &'a Patience,
}

impl Port<'_> {
    /// The party's answer; a failure is an error of the session, and its kind is kept beside it.
    fn reply(&mut self) -> std::result::Result<(usize, Reply), SessionError> {
        next(self.lines, self.index, self.patience).map_err(|e| self.refused(&e))
    }

    fn refused(&self, e: &Error) -> SessionError {
        self.told.set(Some(e.kind()));
        SessionError::Refused(e.to_string())
    }
}

impl PartyPort for Port<'_> {
    fn mask_key(&mut self) -> std::result::Result<Vec<u8>, SessionError> {
        match self.reply()? {
            (_, Reply::MaskKey(mask_key)) => Ok(mask_key),
            (party, other) => Err(self.refused(&unexpected(party, &other))),
        }
    }
    fn send(&mut self, share: Payload) -> std::result::Result<(), SessionError> {
        let mut lines = self.lines.borrow_mut();
        let (before, rest) = lines.split_at_mut(self.index);
        let (line, after) = rest.split_first_mut().expect("a line for every port");
        // The others wait for their shares, and take a silent client for lost.
        let mut last = Instant::now();
        let mut meanwhile = || {
            if last.elapsed() > wire::HEARTBEAT {
                let others = before.iter_mut().chain(after.iter_mut());
                others.for_each(|line| drop(line.channel.keep_alive()));
                last = Instant::now();
            }
        };
        let Err(broken) = line.channel.send_and(share.as_bytes(), &mut meanwhile) else { return Ok(()) };
        // A party that failed has said why: that is worth more than the broken pipe.
        let party = line.party;
        match last_words(&mut line.channel, Instant::now() + LAST_WORDS) {
            Some(Failure { kind, reason }) => Err(self.refused(&Error::Party { party, kind, reason })),
            None => Err(SessionError::Net(broken)),
        }
    }
    fn output(&mut self, limit: usize) -> std::result::Result<Payload, SessionError> {
        match self.reply()? {
            (_, Reply::Share) => Ok(self.lines.borrow_mut()[self.index].channel.recv(limit as u64)?),
            (party, other) => Err(self.refused(&unexpected(party, &other))),
        }
    }
}
