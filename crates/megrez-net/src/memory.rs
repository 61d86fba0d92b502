//! All parties of a session inside one process, under virtual or real time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::error::{Abort, AbortKind, NetError};
use crate::failure::{Failure, lock};
use crate::inbox::{Inbox, Nothing, Refusal, Room};
use crate::payload::Payload;
use crate::profile::NetProfile;
use crate::shaper::{Shaper, VirtualLink};
use crate::transport::{
    Class, ClockKind, Counter, Message, Stamp, Traffic, Transport, WireCount, asked_twice,
};

const ROOM: Room = Room { soft: 1 << 30, hard: 8 << 30 };

/// What the parties share: one inbox for each direction of each link, and one failure, so that the
/// first reason is everybody's reason.
struct Hub {
    parties: usize,
    timeout: Duration,
    failure: Failure,
    far: bool,
    /// `links[from][to]`
    links: Vec<Vec<Link>>,
}

struct Link {
    inbox: Inbox,
    clock: Mutex<Clock>,
    count: Counter,
    closed: AtomicBool,
}

enum Clock {
    Virtual(VirtualLink),
    Real(Option<Shaper>),
}

/// One party's end.
pub(crate) struct Memory {
    me: usize,
    hub: Arc<Hub>,
}

impl Memory {
    /// The ends of all parties of a session, in order.
    pub fn session(parties: usize, profile: &NetProfile, clock: ClockKind, timeout: Duration) -> Vec<Memory> {
        let link = || Link {
            inbox: Inbox::new(ROOM),
            clock: Mutex::new(match clock {
                ClockKind::Virtual => Clock::Virtual(VirtualLink::new(profile)),
                ClockKind::Real => Clock::Real(Shaper::new(profile)),
            }),
            count: Counter::default(),
            closed: AtomicBool::new(false),
        };
        let links = (0..parties).map(|_| (0..parties).map(|_| link()).collect()).collect();
        // Nobody else's vote is expected: the first notice decides at once, for all.
        let failure = Failure::new(Vec::new(), Duration::ZERO);
        let hub = Arc::new(Hub { parties, timeout, failure, far: !profile.is_unshaped(), links });
        (0..parties).map(|me| Memory { me, hub: Arc::clone(&hub) }).collect()
    }

    fn aborted(&self) -> NetError {
        self.hub
            .failure
            .settle()
            .unwrap_or_else(|| NetError::Closed(format!("party {} has closed its handle", self.me)))
    }

    fn give_up(&self, kind: AbortKind, culprit: usize, reason: &str) -> NetError {
        self.abort(Abort::new(kind, Some(culprit), self.me, reason))
    }
}

impl Transport for Memory {
    fn send(&self, to: usize, tag: u64, stamp: Stamp, _: Class, payload: Payload) -> Result<(), NetError> {
        let Self { me, hub } = self;
        let link = &hub.links[*me][to];
        if link.closed.load(Ordering::Acquire) {
            return Err(NetError::Closed(format!(
                "party {me} has closed its handle and cannot send any more"
            )));
        }
        let bytes = payload.len() as u64;
        let seconds = hub.timeout.as_secs_f64();
        match link.inbox.admit(bytes, hub.timeout, || hub.failure.tripped()) {
            Ok(()) => {}
            Err(Refusal::Stopped) => return Err(self.aborted()),
            Err(Refusal::Timeout) => {
                let text = format!(
                    "party {me} could not send to party {to} for {seconds} s: nobody takes its messages"
                );
                return Err(self.give_up(AbortKind::Timeout, to, &text));
            }
            Err(Refusal::Full | Refusal::Duplicate) => {
                let text = format!("party {me} sent party {to} more than {} bytes ahead of need", ROOM.hard);
                return Err(self.give_up(AbortKind::Limit, *me, &text));
            }
        }
        let (time_ns, at) = match &mut *lock(&link.clock) {
            Clock::Virtual(link) => (link.schedule(stamp.time_ns, bytes), None),
            Clock::Real(None) => (stamp.time_ns, None),
            Clock::Real(Some(shaper)) => (stamp.time_ns, Some(shaper.schedule(Instant::now(), bytes))),
        };
        link.count.message(bytes);
        link.count.wire(bytes);
        let message = Message { stamp: Stamp { round: stamp.round, time_ns }, payload };
        link.inbox.push(tag, message, at).map_err(|_| {
            let text = format!("party {me} sent the message {tag:#018x} to party {to} twice");
            self.give_up(AbortKind::Garbage, *me, &text)
        })
    }

    fn recv(&self, from: usize, tag: u64, what: &str) -> Result<Message, NetError> {
        let Self { me, hub } = self;
        let inbox = &hub.links[from][*me].inbox;
        let over = || hub.failure.tripped() || hub.links[*me][from].closed.load(Ordering::Acquire);
        inbox.take(tag, what, hub.timeout, over).map_err(|nothing| match nothing {
            Nothing::Stopped => self.aborted(),
            Nothing::Timeout => {
                let seconds = hub.timeout.as_secs_f64();
                let text = format!("party {me} waited {seconds} s for '{what}' from party {from}");
                self.give_up(AbortKind::Timeout, from, &text)
            }
            Nothing::Ended => {
                let text = format!("party {from} finished while party {me} waited for '{what}' from it");
                self.give_up(AbortKind::Ended, from, &text)
            }
            Nothing::Twice => asked_twice(*me, from, what),
        })
    }

    fn far(&self) -> bool {
        self.hub.far
    }

    fn abort(&self, abort: Abort) -> NetError {
        self.hub.failure.notice(abort);
        for link in self.hub.links.iter().flatten() {
            link.inbox.wake();
        }
        self.aborted()
    }

    fn wire(&self) -> Vec<WireCount> {
        let read = |from: usize, to: usize| -> Traffic { self.hub.links[from][to].count.read() };
        (0..self.hub.parties)
            .filter(|peer| *peer != self.me)
            .map(|peer| WireCount { peer, sent: read(self.me, peer), received: read(peer, self.me) })
            .collect()
    }

    fn flush(&self) -> Result<(), NetError> {
        if self.hub.failure.tripped() { Err(self.aborted()) } else { Ok(()) }
    }

    fn leave(&self) {
        for link in &self.hub.links[self.me] {
            link.closed.store(true, Ordering::Release);
            link.inbox.end();
        }
        for links in &self.hub.links {
            links[self.me].inbox.wake();
        }
    }
}
