//! Holds bytes back so that a fast link behaves like a slow one.

use std::time::{Duration, Instant};

use crate::profile::NetProfile;

/// The last stretch of a wait is spun, because a sleep ends late by about this much, and by more
/// when the processor has slept for longer.
fn slack(wait: Duration) -> Duration {
    (Duration::from_micros(80) + wait / 128).min(Duration::from_micros(300))
}

/// Waits until `at`, to some ten microseconds: sleeps, then yields for the last stretch.
pub(crate) fn wait_until(at: Instant) {
    let left = at.saturating_duration_since(Instant::now());
    std::thread::sleep(left.saturating_sub(slack(left)));
    while Instant::now() < at {
        std::thread::yield_now();
    }
}

/// One direction of a link in real time: a bit leaves when all earlier ones have left, and arrives
/// half a round trip later. The schedule counts from when bytes were handed over, so that late
/// wake-ups never add up.
#[derive(Debug)]
pub(crate) struct Shaper {
    profile: NetProfile,
    busy_until: Option<Instant>,
}

impl Shaper {
    pub fn new(profile: &NetProfile) -> Option<Self> {
        (!profile.is_unshaped()).then(|| Self { profile: profile.clone(), busy_until: None })
    }

    /// When the first bit of what was handed over at `now` leaves.
    pub fn leaves(&self, now: Instant) -> Instant {
        self.busy_until.map_or(now, |busy| busy.max(now))
    }

    /// When `bytes` that were handed over at `now` have arrived.
    pub fn schedule(&mut self, now: Instant, bytes: u64) -> Instant {
        let done = self.leaves(now) + Duration::from_nanos(self.profile.transmit_ns(bytes));
        self.busy_until = Some(done);
        done + self.profile.delay()
    }
}

/// One direction of a link in virtual time, in nanoseconds since the session began.
#[derive(Debug)]
pub(crate) struct VirtualLink {
    profile: NetProfile,
    busy_until: u64,
}

impl VirtualLink {
    pub fn new(profile: &NetProfile) -> Self {
        Self { profile: profile.clone(), busy_until: 0 }
    }

    /// When `bytes` that were handed over at `now` have arrived.
    pub fn schedule(&mut self, now: u64, bytes: u64) -> u64 {
        self.busy_until = now.max(self.busy_until).saturating_add(self.profile.transmit_ns(bytes));
        self.busy_until.saturating_add(self.profile.delay_ns())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_queue_behind_each_other_and_delays_overlap() {
        let mut shaper = Shaper::new(&NetProfile::lan()).unwrap();
        let now = Instant::now();
        assert_eq!(shaper.schedule(now, 1_000_000), now + Duration::from_millis(9));
        assert_eq!(shaper.schedule(now, 1_000_000), now + Duration::from_millis(17));
        let later = now + Duration::from_secs(1);
        assert_eq!(shaper.schedule(later, 125), later + Duration::from_micros(1001), "an idle link is free");
        assert!(Shaper::new(&NetProfile::loopback()).is_none());
    }

    #[test]
    fn waiting_is_never_short() {
        for micros in [0, 50, 500, 3000] {
            let at = Instant::now() + Duration::from_micros(micros);
            wait_until(at);
            assert!(Instant::now() >= at);
        }
    }
}
