//! What a party looks after beside its sessions, for as long as it runs: material that nobody has
//! used expires, a certificate that ends soon is told of, and memory that a quiet party does not
//! need goes back to the system.

use std::time::{Duration, Instant};

/// How long a party is quiet before it gives memory back: whoever asks again soon needs it.
const QUIET: Duration = Duration::from_secs(5);
/// How often files are looked through.
const FILES: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);
/// Days before the end of a certificate from which on a party tells of it, once a day.
pub const RENEW_DAYS: i64 = 30;

/// When what was looked after last.
#[derive(Default)]
pub(super) struct Upkeep {
    /// Since when no session runs and nothing is asked.
    quiet: Option<Instant>,
    /// Memory was given back since something was asked last.
    given_back: bool,
    files: Option<Instant>,
    /// When it was told that this certificate ends, at that second since 1970.
    told: Option<(Instant, i64)>,
}

/// Whether something is due again that was done last at some time, or never.
fn due(last: Option<Instant>, every: Duration, now: Instant) -> bool {
    last.is_none_or(|last| now.saturating_duration_since(last) >= every)
}

impl Upkeep {
    /// Whether files are to be looked through.
    pub(super) fn looks_through(&mut self, now: Instant) -> bool {
        let due = due(self.files, FILES, now);
        if due {
            self.files = Some(now);
        }
        due
    }

    /// Whether memory is to be given back: once in every quiet time.
    pub(super) fn gives_back(&mut self, working: bool, now: Instant) -> bool {
        if working {
            (self.quiet, self.given_back) = (None, false);
            return false;
        }
        let since = *self.quiet.get_or_insert(now);
        let gives = !self.given_back && now.saturating_duration_since(since) >= QUIET;
        self.given_back |= gives;
        gives
    }

    /// Whether it is time to say that a certificate has so many days left.
    pub(super) fn tells(&mut self, expires: i64, days: i64, now: Instant) -> bool {
        let last = self.told.filter(|(_, of)| *of == expires).map(|(at, _)| at);
        let tells = days < RENEW_DAYS && due(last, DAY, now);
        if tells {
            self.told = Some((now, expires));
        }
        tells
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_goes_back_once_in_every_quiet_time() {
        let (mut upkeep, start) = (Upkeep::default(), Instant::now());
        let mut at = |seconds: u64, working| upkeep.gives_back(working, start + Duration::from_secs(seconds));
        assert!(!at(0, false) && !at(4, false) && at(5, false) && !at(6, false) && !at(60, false));
        assert!(!at(61, true) && !at(62, false) && !at(66, false) && at(67, false) && !at(68, false));
    }

    #[test]
    fn a_certificate_that_ends_is_told_of_every_day() {
        let (mut upkeep, start) = (Upkeep::default(), Instant::now());
        let mut at = |hours: u64, expires, days| {
            upkeep.tells(expires, days, start + Duration::from_secs(hours * 3600))
        };
        assert!(!at(0, 7, 30) && at(1, 7, 29) && !at(2, 7, 29) && !at(24, 7, 28) && at(25, 7, 28));
        assert!(at(26, 9, 3), "another one");
        assert!(!at(27, 9, 300) && at(50, 9, -1), "one that has ended as well");
    }
}
