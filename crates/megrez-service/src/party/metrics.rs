//! What a party counts, in the words of Prometheus. Counts and times only: no session, no value,
//! and no name of a client, since numbers that firms see of each other are a side channel.

use crate::ErrorKind;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// All that a party counts.
pub(super) struct Metrics {
    party: u32,
    registry: Registry,
    requests: Family<Request, Counter>,
    seconds: Family<Kind, Histogram>,
    sent: Family<Peer, Counter>,
    refused: Counter,
    now: [Gauge; 7],
    expiry: Gauge,
    since: Instant,
    /// What the families above know as well, which do not list what they have.
    of_kind: Mutex<BTreeMap<&'static str, OfKind>>,
}

/// What was counted, for people to read.
pub(super) struct Figures {
    /// Since when.
    pub(super) up: Duration,
    pub(super) requests: Vec<OfKind>,
    /// Bytes to each party that something was sent to.
    pub(super) sent: Vec<(u32, u64)>,
    pub(super) refused: u64,
    /// When the certificate in use expires, in seconds since 1970.
    pub(super) expires: Option<i64>,
}

/// Requests of one kind.
#[derive(Clone, Copy, Default)]
pub(super) struct OfKind {
    pub(super) kind: &'static str,
    pub(super) done: u64,
    pub(super) failed: u64,
    /// All together took so long.
    pub(super) seconds: f64,
}

/// What a party has at present.
pub(super) struct Now {
    pub(super) sessions: usize,
    pub(super) waiting: usize,
    pub(super) connections: usize,
    pub(super) ready: bool,
    /// Batches of material, of all clients.
    pub(super) material: usize,
    /// Approvals of jobs that have not begun.
    pub(super) approvals: usize,
    /// Bytes that the data folder has room for, where the system tells.
    pub(super) free: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Request {
    kind: &'static str,
    outcome: Outcome,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Kind {
    kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Peer {
    peer: u32,
}

/// `done`, or what kind of failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Outcome(Option<ErrorKind>);

impl EncodeLabelValue for Outcome {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> std::fmt::Result {
        encoder.write_str(self.0.map_or("done", ErrorKind::name))
    }
}

impl Metrics {
    /// Nothing has happened yet at this party.
    pub(super) fn new(party: usize) -> Self {
        let mut registry = Registry::with_prefix("megrez");
        let build =
            Info::new([("release", env!("CARGO_PKG_VERSION").to_owned()), ("party", party.to_string())]);
        registry.register("build", "The release of megrez, and which party this is", build);
        let requests = Family::default();
        registry.register(
            "requests",
            "Requests of clients, by what they asked for and how they ended",
            requests.clone(),
        );
        // From a millisecond to about two and a half hours.
        let seconds: Family<Kind, Histogram> =
            Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.001, 3.0, 15)));
        registry.register("request_seconds", "From a request to its end", seconds.clone());
        let sent = Family::default();
        registry.register(
            "peer_sent_bytes",
            "Bytes on the wire to another party, of runs that ended",
            sent.clone(),
        );
        let refused = Counter::default();
        registry.register("connections_refused", "Connections that were not let in", refused.clone());
        let now = [(); 7].map(|()| Gauge::default());
        let names = [
            ("sessions", "Sessions that run"),
            ("waiting", "Requests that wait for their turn"),
            ("connections", "Connections of clients"),
            ("ready", "Whether requests are admitted"),
            ("material_batches", "Batches of randomness made ahead that no run has used"),
            ("approvals_pending", "Approvals of training jobs that have not begun"),
            ("data_free_bytes", "Room on the disk of the data folder; 0 if that is not known"),
        ];
        for ((name, help), gauge) in names.into_iter().zip(&now) {
            registry.register(name, help, gauge.clone());
        }
        let expiry = Gauge::default();
        let help = "When this party's certificate expires, in seconds since 1970; 0 if that is not known";
        registry.register("certificate_expiry_timestamp_seconds", help, expiry.clone());
        let (since, of_kind) = (Instant::now(), Mutex::default());
        Metrics {
            party: party as u32,
            registry,
            requests,
            seconds,
            sent,
            refused,
            now,
            expiry,
            since,
            of_kind,
        }
    }

    /// A request has ended.
    pub(super) fn request(&self, kind: &'static str, failure: Option<ErrorKind>, time: Duration) {
        self.requests.get_or_create(&Request { kind, outcome: Outcome(failure) }).inc();
        self.seconds.get_or_create(&Kind { kind }).observe(time.as_secs_f64());
        let mut all = self.of_kind.lock().unwrap_or_else(PoisonError::into_inner);
        let of_kind = all.entry(kind).or_insert(OfKind { kind, ..OfKind::default() });
        if failure.is_none() {
            of_kind.done += 1
        } else {
            of_kind.failed += 1
        }
        of_kind.seconds += time.as_secs_f64();
    }

    /// What was counted so far.
    pub(super) fn figures(&self) -> Figures {
        let of_kind = self.of_kind.lock().unwrap_or_else(PoisonError::into_inner);
        let sent = |peer| (peer, self.sent.get_or_create(&Peer { peer }).get());
        Figures {
            up: self.since.elapsed(),
            requests: of_kind.values().copied().collect(),
            sent: (0..3).map(sent).filter(|(_, bytes)| *bytes > 0).collect(),
            refused: self.refused.get(),
            expires: self.expiry(),
        }
    }

    /// A session has sent so many bytes to each of the other parties.
    pub(super) fn sent(&self, bytes: &[u64]) {
        let peers = (0..).filter(|peer| *peer != self.party);
        for (peer, &bytes) in peers.zip(bytes).filter(|(_, bytes)| **bytes > 0) {
            self.sent.get_or_create(&Peer { peer }).inc_by(bytes);
        }
    }

    /// Connections were not let in.
    pub(super) fn refused(&self, count: usize) {
        self.refused.inc_by(count as u64);
    }

    /// When the certificate that is in use expires.
    pub(super) fn expires(&self, seconds_since_1970: i64) {
        self.expiry.set(seconds_since_1970);
    }

    /// When the certificate that is in use expires, in seconds since 1970, if that is known.
    pub(super) fn expiry(&self) -> Option<i64> {
        Some(self.expiry.get()).filter(|at| *at > 0)
    }

    /// All of it as text, in the format OpenMetrics.
    pub(super) fn text(&self, now: &Now) -> String {
        let counts = [now.sessions, now.waiting, now.connections, usize::from(now.ready)];
        let kept = [now.material, now.approvals].map(|count| count as u64);
        let values = counts.map(|count| count as u64).into_iter().chain(kept).chain([now.free.unwrap_or(0)]);
        for (gauge, value) in self.now.iter().zip(values) {
            gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
        }
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happened_is_in_the_text() {
        let metrics = Metrics::new(1);
        metrics.request("run", None, Duration::from_millis(20));
        metrics.request("run", None, Duration::from_millis(30));
        metrics.request("run", Some(ErrorKind::PeerLost), Duration::from_secs(9));
        metrics.sent(&[0, 12]);
        metrics.refused(3);
        metrics.expires(1_900_000_000);
        let text = metrics.text(&Now {
            sessions: 2,
            waiting: 5,
            connections: 7,
            ready: true,
            material: 11,
            approvals: 1,
            free: Some(5 << 30),
        });
        for line in [
            "megrez_requests_total{kind=\"run\",outcome=\"done\"} 2",
            "megrez_requests_total{kind=\"run\",outcome=\"peer-lost\"} 1",
            "megrez_request_seconds_count{kind=\"run\"} 3",
            "megrez_peer_sent_bytes_total{peer=\"2\"} 12",
            "megrez_connections_refused_total 3",
            "megrez_sessions 2",
            "megrez_waiting 5",
            "megrez_connections 7",
            "megrez_ready 1",
            "megrez_material_batches 11",
            "megrez_approvals_pending 1",
            "megrez_data_free_bytes 5368709120",
            "megrez_certificate_expiry_timestamp_seconds 1900000000",
            "party=\"1\"",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
        assert!(text.ends_with("# EOF\n"));
        // Whoever copies the alerts and the dashboard asks for nothing that there is not.
        let deployed = [
            include_str!("../../../../deploy/observability/alerts.yaml"),
            include_str!("../../../../deploy/observability/dashboard.json"),
            include_str!("../../../../docs/user-guide.md"),
            include_str!("../../../../docs/operating.md"),
        ];
        let letters = |c: char| !(c.is_ascii_lowercase() || c == '_');
        for word in deployed.iter().flat_map(|file| file.split(letters)) {
            if word.starts_with("megrez_") {
                assert!(text.contains(word), "there is no metric {word}");
            }
        }
        // Every alert has its line in the runbook.
        for alert in deployed[0].lines().filter_map(|line| line.trim().strip_prefix("- alert: ")) {
            assert!(deployed[3].contains(&format!("| `{alert}` |")), "{alert} is not in docs/operating.md");
        }
    }
}
