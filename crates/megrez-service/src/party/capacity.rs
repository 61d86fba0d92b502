//! How much a party does at a time, altogether and for one client.

use megrez_net::Patience;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// How much longer than the idle timeout a client may take to make room for what it is sent: it may
/// be hearing another party.
const TIMES_TO_WRITE: u32 = 5;
/// Bytes a second at which a client speaks at least: a line of 1 Mbit/s.
const SLOWEST: u64 = 128 << 10;

/// `[capacity]` in `party.toml`. What is beyond it waits or is sent away; nothing of one client
/// keeps the others out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Capacity {
    /// Most sessions at a time. What party 0 says counts for all parties. Default: 16. Stands in
    /// `party.toml` by itself.
    #[serde(skip, default = "sixteen")]
    pub max_sessions: usize,
    /// Most sessions of one client at a time. Default: 8.
    pub sessions_per_client: usize,
    /// Most requests that wait for their turn; one client has at most half of them. Default: 256.
    pub max_waiting: usize,
    /// Seconds that a request waits for its turn at most. Default: 600.
    pub turn_seconds: u64,
    /// Most connections of clients. Default: 512.
    pub max_connections: usize,
    /// Most connections of one client; one more closes the client's oldest idle one. Default: 128.
    pub connections_per_client: usize,
    /// Largest request in MiB. All that are being received have twice that together, those of one
    /// client half of it. Default: 64.
    pub max_request_mib: u64,
    /// Memory in MiB that the plans of running sessions may have together; what does not fit waits,
    /// and what never fits runs alone. Default: half of what this machine has.
    pub memory_mib: u64,
    /// Seconds without a sign of life after which a client is given up that a session waits for.
    /// Default: 60.
    pub client_seconds: u64,
    /// Seconds after which a connection without requests is closed. Default: 3600.
    pub idle_seconds: u64,
    /// Seconds that running sessions have to finish when the party is asked to end. Default: 120.
    pub drain_seconds: u64,
    /// Days after which material that nobody has used is removed. Default: 30.
    pub material_days: u64,
    /// Disk in MiB that what one client stores may take: models, rows and material. Who has as much
    /// stores no more. Default: 65536, which is 64 GiB.
    pub client_disk_mib: u64,
}

impl Default for Capacity {
    fn default() -> Self {
        Capacity {
            max_sessions: sixteen(),
            sessions_per_client: 8,
            max_waiting: 256,
            turn_seconds: 600,
            max_connections: 512,
            connections_per_client: 128,
            max_request_mib: 64,
            memory_mib: machine_mib().map_or(u64::MAX >> 20, |mib| mib / 2),
            client_seconds: 60,
            idle_seconds: 3600,
            drain_seconds: 120,
            material_days: 30,
            client_disk_mib: 64 << 10,
        }
    }
}

impl Capacity {
    /// Of a party with one client, who may have all of it.
    #[must_use]
    pub fn of_one_client() -> Self {
        let all = Capacity::default();
        Capacity {
            sessions_per_client: all.max_sessions,
            connections_per_client: all.max_connections,
            max_request_mib: 1024,
            client_disk_mib: u64::MAX,
            ..all
        }
    }

    /// What is wrong with it, if anything is.
    ///
    /// # Errors
    /// A limit that nothing passes, or a time that clocks cannot be set to.
    pub fn check(&self) -> Result<(), String> {
        let counts = [
            ("max_sessions", self.max_sessions as u64),
            ("sessions_per_client", self.sessions_per_client as u64),
            ("max_connections", self.max_connections as u64),
            ("connections_per_client", self.connections_per_client as u64),
            ("max_request_mib", self.max_request_mib),
            ("memory_mib", self.memory_mib),
            ("turn_seconds", self.turn_seconds),
            ("client_seconds", self.client_seconds),
            ("idle_seconds", self.idle_seconds),
            ("material_days", self.material_days),
            ("client_disk_mib", self.client_disk_mib),
        ];
        if let Some((name, _)) = counts.iter().find(|(_, count)| *count == 0) {
            return Err(format!("`{name}` is at least 1"));
        }
        const WEEK: u64 = 7 * 24 * 3600;
        let times = [
            ("turn_seconds", self.turn_seconds),
            ("client_seconds", self.client_seconds),
            ("idle_seconds", self.idle_seconds),
            ("drain_seconds", self.drain_seconds),
        ];
        if let Some((name, _)) = times.iter().find(|(_, seconds)| *seconds > WEEK) {
            return Err(format!("`{name}` is at most {WEEK}, a week"));
        }
        const CENTURY: u64 = 36_500;
        if self.material_days > CENTURY {
            return Err(format!("`material_days` is at most {CENTURY}"));
        }
        if self.max_request_mib > 4096 {
            return Err("`max_request_mib` is at most 4096".into());
        }
        Ok(())
    }

    /// Bytes that running plans may have together.
    pub(super) fn memory(&self) -> u64 {
        self.memory_mib.saturating_mul(1 << 20)
    }

    /// Bytes of the largest request.
    pub(super) fn request(&self) -> u64 {
        self.max_request_mib << 20
    }

    pub(super) fn turn(&self) -> Duration {
        Duration::from_secs(self.turn_seconds)
    }

    pub(super) fn client_idle_timeout(&self) -> Duration {
        Duration::from_secs(self.client_seconds)
    }

    /// What a client's connection is borne with while it speaks or listens.
    pub(super) fn patience(&self) -> Patience {
        let idle_timeout = self.client_idle_timeout();
        Patience { idle_timeout, writing: idle_timeout * TIMES_TO_WRITE, slowest: Some(SLOWEST) }
    }

    /// How long a client may take to give, or to take, so many bytes, however it keeps itself alive
    /// meanwhile.
    pub(super) fn time_for(&self, bytes: u64) -> Duration {
        self.client_idle_timeout().saturating_add(Duration::from_secs(bytes / SLOWEST))
    }

    pub(super) fn idle(&self) -> Duration {
        Duration::from_secs(self.idle_seconds)
    }

    pub(super) fn material_life(&self) -> Duration {
        Duration::from_secs(self.material_days * 24 * 3600)
    }

    /// Bytes of what one client stores.
    pub(super) fn client_disk(&self) -> u64 {
        self.client_disk_mib.saturating_mul(1 << 20)
    }

    pub(super) fn drain(&self) -> Duration {
        Duration::from_secs(self.drain_seconds)
    }
}

pub(crate) fn sixteen() -> usize {
    16
}

/// The memory of this machine in MiB, where the operating system tells.
pub(crate) fn machine_mib() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib >> 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_that_nothing_passes_are_refused() {
        assert_eq!(Capacity::default().check(), Ok(()));
        assert_eq!(Capacity::of_one_client().check(), Ok(()));
        let none = Capacity { sessions_per_client: 0, ..Capacity::default() };
        assert!(none.check().unwrap_err().contains("sessions_per_client"));
        let long = Capacity { idle_seconds: u64::MAX, ..Capacity::default() };
        assert!(long.check().unwrap_err().contains("a week"));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn linux_tells_its_memory() {
        assert!(machine_mib().unwrap() > 100);
    }
}
