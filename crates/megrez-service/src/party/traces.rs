//! Traces: when the phases and steps of each session began and ended at this party, as lines of
//! OpenTelemetry's JSON in a file, one `ExportTraceServiceRequest` each, which a Collector reads
//! (`otlpjsonfile`). The three parties of a session write one trace id, and need no message for it:
//! it follows from the session's name.
//!
//! There are names and times in it, and nothing else: no value, no share, no client. Names of steps
//! are the model owner's, and times tell how long a layer took, so the file is the operator's own.
//! A trace that cannot be written is left out, and no session waits for it or fails.

use super::asked::Asked;
use crate::log::{Event, Level, Log};
use crate::{Error, ErrorKind, Result};
use megrez_engine::PartyReport;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Most spans of one request; of the others it is said how many they were.
const MOST: usize = 2000;
/// Longest name of a span, in characters.
const LONGEST: usize = 120;
/// What OpenTelemetry calls the side that was asked, and one that goes on within it.
const SERVER: u32 = 2;
const INTERNAL: u32 = 1;
const ERROR: u32 = 2;

/// `[traces]` in `party.toml`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TraceConfig {
    /// The file.
    pub file: PathBuf,
    /// Its largest size in MiB, an earlier file beside it included, whose name ends with `.1`.
    /// Default: 64.
    #[serde(default = "sixty_four")]
    pub max_mib: u64,
}

fn sixty_four() -> u64 {
    64
}

/// The file that traces are written into.
pub(super) struct Traces {
    party: usize,
    path: PathBuf,
    /// A file of this size is put aside, in bytes.
    full: u64,
    file: Mutex<Option<File>>,
    /// The last trace could not be written, and the log says so.
    failing: AtomicBool,
}

/// What happened from when to when.
struct Span {
    name: String,
    /// The number of the span that it is a part of; of the first none.
    within: Option<usize>,
    from: Instant,
    to: Instant,
    attributes: Vec<Value>,
    failed: bool,
}

impl Traces {
    /// Opens the file, and makes it if there is none.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(super) fn open(party: usize, config: &TraceConfig) -> Result<Self> {
        if config.max_mib == 0 {
            return Err(Error::Refused("`max_mib` of [traces] is at least 1".into()));
        }
        let path = config.file.clone();
        let file = append(&path).map_err(|e| Error::file(&path, e))?;
        let full = config.max_mib.saturating_mul(1 << 20) / 2;
        Ok(Traces { party, path, full, file: Mutex::new(Some(file)), failing: AtomicBool::new(false) })
    }

    /// Writes down a request that has ended in a session, if there was one.
    pub(super) fn write(&self, asked: &Asked, failure: Option<ErrorKind>, log: &Log) {
        let Some(session) = asked.session() else { return };
        let line = self.line(&session, &spans(asked, failure));
        match self.append(&line) {
            Ok(()) => self.failing.store(false, Ordering::Relaxed),
            Err(e) if !self.failing.swap(true, Ordering::Relaxed) => {
                let message = format!("{}: traces cannot be written: {e}", self.path.display());
                log.write(Level::Warn, Event::new("traces-failed", message));
            }
            Err(_) => {}
        }
    }

    fn append(&self, line: &[u8]) -> io::Result<()> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let open = match file.take() {
            Some(open) => open,
            None => append(&self.path)?,
        };
        let before = open.metadata()?.len();
        let mut open = open;
        if before > 0 && before.saturating_add(line.len() as u64) > self.full {
            let mut aside = self.path.clone().into_os_string();
            aside.push(".1");
            std::fs::rename(&self.path, aside)?;
            open = append(&self.path)?;
        }
        let end = open.metadata()?.len();
        // Half a line would spoil the next one. After any failure the file is opened anew.
        open.write_all(line).inspect_err(|_| drop(open.set_len(end)))?;
        *file = Some(open);
        Ok(())
    }

    /// One `ExportTraceServiceRequest`, as OTLP writes it in JSON: identifiers in digits, times as
    /// text.
    fn line(&self, session: &[u8; 16], spans: &[Span]) -> Vec<u8> {
        let trace = megrez_engine::hash("megrez 2026 trace", session);
        let id = |number: usize| {
            let about =
                [&trace[..], &(self.party as u64).to_le_bytes(), &(number as u64).to_le_bytes()].concat();
            digits(&megrez_engine::hash("megrez 2026 span", &about)[..8])
        };
        let (now, clock) = (Instant::now(), SystemTime::now());
        let at = |time: Instant| {
            let time = clock.checked_sub(now.saturating_duration_since(time)).unwrap_or(UNIX_EPOCH);
            time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_nanos().to_string()
        };
        let span = |(number, span): (usize, &Span)| {
            let mut written = json!({
                "traceId": digits(&trace[..16]),
                "spanId": id(number),
                "name": span.name,
                "kind": if span.within.is_none() { SERVER } else { INTERNAL },
                "startTimeUnixNano": at(span.from),
                "endTimeUnixNano": at(span.to.max(span.from)),
                "attributes": span.attributes,
                "status": if span.failed { json!({ "code": ERROR }) } else { json!({}) },
            });
            if let Some(within) = span.within {
                written["parentSpanId"] = id(within).into();
            }
            written
        };
        let written: Vec<Value> = spans.iter().enumerate().map(span).collect();
        let release = env!("CARGO_PKG_VERSION");
        let resource = [
            text("service.name", "megrez-party"),
            text("service.version", release),
            text("service.instance.id", &self.party.to_string()),
        ];
        let request = json!({ "resourceSpans": [{
            "resource": { "attributes": resource },
            "scopeSpans": [{ "scope": { "name": "megrez", "version": release }, "spans": written }],
        }] });
        format!("{request}\n").into_bytes()
    }
}

/// The request, its wait for its turn, the phases of its runs, and in them the steps.
fn spans(asked: &Asked, failure: Option<ErrorKind>) -> Vec<Span> {
    let (from, to) = (asked.since, Instant::now());
    let mut attributes = vec![text("megrez.outcome", failure.map_or("done", ErrorKind::name))];
    attributes.extend(asked.protocol().map(|protocol| text("megrez.protocol", protocol)));
    let (name, failed) = (asked.request.to_owned(), failure.is_some());
    let mut all = vec![Span { name, within: None, from, to, attributes, failed }];
    // A request that was refused has waited as long as it took.
    let turn = asked.accepted_at().unwrap_or(to);
    all.push(Span {
        name: "wait".into(),
        within: Some(0),
        from,
        to: turn,
        attributes: vec![],
        failed: false,
    });
    let mut dropped = 0;
    for (run, report) in asked.measured().iter().enumerate() {
        dropped += of_run(&mut all, run, report);
    }
    if dropped > 0 {
        all[0]
            .attributes
            .push(json!({ "key": "megrez.dropped_spans", "value": { "intValue": dropped.to_string() } }));
    }
    all
}

/// Adds the phases of a run and their steps, and says how many had no place any more.
fn of_run(all: &mut Vec<Span>, run: usize, report: &PartyReport) -> usize {
    let mut dropped = 0;
    let mut add = |span: Span| {
        let fits = all.len() < MOST;
        if fits {
            all.push(span)
        } else {
            dropped += 1
        }
        fits.then(|| all.len() - 1)
    };
    let began = |end: Instant, seconds: f64| {
        Duration::try_from_secs_f64(seconds).ok().and_then(|time| end.checked_sub(time)).unwrap_or(end)
    };
    for (phase, times) in &report.phases {
        let Some(to) = times.ended else { continue };
        let number = json!({ "key": "megrez.run", "value": { "intValue": run.to_string() } });
        let rounds = json!({ "key": "megrez.rounds", "value": { "intValue": times.rounds.to_string() } });
        let (name, from) = (format!("{phase:?}").to_lowercase(), began(to, times.seconds));
        let attributes = vec![number, rounds];
        let within = add(Span { name, within: Some(0), from, to, attributes, failed: false });
        for step in report.steps.iter().filter(|step| step.phase == *phase) {
            let Some(to) = step.ended else { continue };
            let name = step.step.chars().take(LONGEST).collect();
            let from = began(to, step.seconds).max(from);
            add(Span { name, within, from, to, attributes: vec![], failed: false });
        }
    }
    dropped
}

fn text(key: &str, value: &str) -> Value {
    json!({ "key": key, "value": { "stringValue": value } })
}

fn digits(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Opens a file to write at its end; a new one is readable by its owner only.
fn append(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.append(true).create(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Place(PathBuf);

    impl Place {
        fn new(test: &str) -> Self {
            let folder = std::env::temp_dir().join(format!("megrez-traces-{test}-{}", std::process::id()));
            std::fs::create_dir_all(&folder).unwrap();
            Place(folder)
        }

        fn traces(&self, party: usize, max_mib: u64) -> Traces {
            Traces::open(party, &TraceConfig { file: self.0.join("traces.jsonl"), max_mib }).unwrap()
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn span(name: &str, within: Option<usize>, from: Instant, ms: u64) -> Span {
        let to = from + Duration::from_millis(ms);
        Span {
            name: name.into(),
            within,
            from,
            to,
            attributes: vec![text("k", "v")],
            failed: within.is_none(),
        }
    }

    #[test]
    fn a_line_is_what_otlp_writes_in_json() {
        let place = Place::new("line");
        // What a line is written about has ended.
        let from = Instant::now() - Duration::from_secs(1);
        let hostile = "step \"<\u{0}\u{202e}";
        let line =
            place.traces(1, 1).line(&[7; 16], &[span("run", None, from, 5), span(hostile, Some(0), from, 2)]);
        assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
        let read: Value = serde_json::from_slice(&line).unwrap();
        let resource = &read["resourceSpans"][0];
        assert_eq!(resource["resource"]["attributes"][0], text("service.name", "megrez-party"));
        assert_eq!(resource["scopeSpans"][0]["scope"]["name"], "megrez");
        let spans = resource["scopeSpans"][0]["spans"].as_array().unwrap();
        let hex = |value: &Value, len: usize| {
            let digits = value.as_str().unwrap();
            assert!(
                digits.len() == len
                    && digits.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
            );
            digits.to_owned()
        };
        let nanos = |value: &Value| value.as_str().unwrap().parse::<u128>().unwrap();
        assert_eq!(hex(&spans[0]["traceId"], 32), hex(&spans[1]["traceId"], 32));
        assert_ne!(hex(&spans[0]["spanId"], 16), hex(&spans[1]["spanId"], 16));
        assert_eq!(spans[1]["parentSpanId"], spans[0]["spanId"]);
        assert!(spans[0].get("parentSpanId").is_none());
        assert_eq!((&spans[0]["kind"], &spans[1]["kind"]), (&json!(2), &json!(1)));
        assert_eq!((&spans[0]["status"], &spans[1]["status"]), (&json!({ "code": 2 }), &json!({})));
        assert_eq!((&spans[1]["name"], &spans[1]["attributes"][0]), (&json!(hostile), &text("k", "v")));
        let took = nanos(&spans[0]["endTimeUnixNano"]) - nanos(&spans[0]["startTimeUnixNano"]);
        assert_eq!(took, 5_000_000);
        // Of this year and not of 1970.
        assert!(nanos(&spans[0]["startTimeUnixNano"]) > 1_700_000_000_000_000_000);
        // The session's name cannot be read off, parties share the trace and no span.
        assert!(!String::from_utf8_lossy(&line).contains(&digits(&[7; 16])));
        let other: Value =
            serde_json::from_slice(&place.traces(2, 1).line(&[7; 16], &[span("run", None, from, 5)]))
                .unwrap();
        let other = &other["resourceSpans"][0]["scopeSpans"][0]["spans"][0];
        assert_eq!(other["traceId"], spans[0]["traceId"]);
        assert_ne!(other["spanId"], spans[0]["spanId"]);
    }

    #[test]
    fn the_file_stays_small_and_whole() {
        let place = Place::new("rotation");
        let traces = place.traces(0, 1);
        let line = [&[b'x'; 9999][..], b"\n"].concat();
        for _ in 0..200 {
            traces.append(&line).unwrap();
        }
        let size = |name: &str| std::fs::metadata(place.0.join(name)).unwrap().len();
        let (now, before) = (size("traces.jsonl"), size("traces.jsonl.1"));
        assert!(now + before <= 1 << 20 && before > 400_000, "{now} {before}");
        assert_eq!((now % 10_000, before % 10_000), (0, 0));
        // Whoever removes the folder hears nothing, and later there is a file again.
        drop(traces);
        let traces = place.traces(0, 1);
        *traces.file.lock().unwrap() = None;
        std::fs::remove_dir_all(&place.0).unwrap();
        assert!(traces.append(&line).is_err());
        std::fs::create_dir_all(&place.0).unwrap();
        traces.append(&line).unwrap();
        assert_eq!(size("traces.jsonl"), 10_000);
    }
}
