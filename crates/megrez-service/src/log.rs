//! What a party that runs as a service tells its operator: one line per event, as text or as JSON.
//!
//! An [`Event`] has no field for a value or a share, and the texts in it are those that clients and
//! other parties are told as well. Texts may hold what a client has sent, such as the name of a
//! protocol that there is not: control characters are escaped and long texts cut, so that nobody
//! writes lines of his own into the log.

use crate::ErrorKind;
use serde::{Deserialize, Serialize, Serializer};
use std::borrow::Cow;
use std::fmt::{self, Write as _};
use std::io::Write;
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use time::OffsetDateTime;

/// Longest text in an event, in characters.
const MAX_TEXT: usize = 2000;

/// How much an event matters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// This party is damaged, or has an error of its own.
    Error,
    /// Something that an operator may want to look at: a lost peer, a refused certificate.
    Warn,
    /// What clients ask for and how it ends.
    #[default]
    Info,
    /// Requests that change nothing as well.
    Debug,
}

impl Level {
    const ALL: [Level; 4] = [Level::Error, Level::Warn, Level::Info, Level::Debug];

    fn name(self) -> &'static str {
        match self {
            Level::Error => "error",
            Level::Warn => "warn",
            Level::Info => "info",
            Level::Debug => "debug",
        }
    }

    /// Of a request that came to nothing: what a caller got wrong is the caller's to mend.
    pub fn of(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::Invalid | ErrorKind::Unsupported | ErrorKind::OutOfRange => Level::Info,
            ErrorKind::NotPermitted | ErrorKind::TimedOut | ErrorKind::PeerLost | ErrorKind::Busy => {
                Level::Warn
            }
            ErrorKind::DamagedFile | ErrorKind::Internal => Level::Error,
        }
    }
}

impl FromStr for Level {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Level::ALL.into_iter().find(|level| level.name() == text);
        found.ok_or_else(|| format!("`{text}` is no level: error, warn, info or debug"))
    }
}

/// How a line looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// For programs: an object of schema `megrez.log/1`.
    Json,
}

impl FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "text" => Ok(Format::Text),
            "json" => Ok(Format::Json),
            _ => Err(format!("`{text}` is no format: text or json")),
        }
    }
}

/// `log` in `party.toml`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LogConfig {
    /// Events that matter less are left out. Default: `info`.
    pub level: Level,
    /// How lines look. Default: `text`.
    pub format: Format,
}

/// The name of a session, in hexadecimal digits where it is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionName(pub [u8; 16]);

impl fmt::Display for SessionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl Serialize for SessionName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Something that happened.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Event<'a> {
    /// What: `listening`, `swept`, `connection`, `connection-refused`, `connection-lost`,
    /// `accepted`, `answered`, `ended`, `refused` or `failed`.
    pub event: &'static str,
    /// Who asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<&'a str>,
    /// What for: `info`, `describe`, `run`, `upload` or `prepare`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<&'static str>,
    /// The session, by the name that all parties know.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionName>,
    /// The protocol, once it is known to be one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<&'static str>,
    /// What kind of failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<ErrorKind>,
    /// The step that failed, where it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<&'a str>,
    /// From the request to its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
    /// For people; of a failure, its reason.
    pub message: Cow<'a, str>,
}

impl<'a> Event<'a> {
    /// An event that is about no request.
    pub fn new(event: &'static str, message: impl Into<Cow<'a, str>>) -> Self {
        Event { event, message: message.into(), ..Event::default() }
    }
}

/// Where events go.
pub struct Log {
    party: usize,
    config: LogConfig,
    /// Whether requests are told of.
    requests: bool,
    out: Mutex<Box<dyn Write + Send>>,
}

#[derive(Serialize)]
struct Line<'a> {
    schema: &'static str,
    time: &'a str,
    level: Level,
    party: usize,
    #[serde(flatten)]
    event: Event<'a>,
}

impl Log {
    /// A party's log, to `out`.
    pub fn new(party: usize, config: LogConfig, out: impl Write + Send + 'static) -> Self {
        Log { party, config, requests: true, out: Mutex::new(Box::new(out)) }
    }

    /// A party's log, to standard error.
    pub fn stderr(party: usize, config: LogConfig) -> Self {
        Log::new(party, config, std::io::stderr())
    }

    /// The log of a party whose only client started it, to the same standard error: warnings, but
    /// not of requests, of which the client itself tells how they end.
    pub fn of_child(party: usize) -> Self {
        let config = LogConfig { level: Level::Warn, format: Format::Text };
        Log { requests: false, ..Log::stderr(party, config) }
    }

    /// Writes a line about an event, if its level is asked for. Nothing fails because of a log that
    /// cannot be written.
    pub fn write(&self, level: Level, event: Event<'_>) {
        if level > self.config.level || (event.request.is_some() && !self.requests) {
            return;
        }
        let event = Event {
            message: plain(&event.message),
            step: event.step.filter(|s| s.len() <= MAX_TEXT),
            ..event
        };
        let time = timestamp(SystemTime::now());
        let line = match self.config.format {
            Format::Text => text(&time, level, self.party, &event),
            Format::Json => {
                let line = Line { schema: "megrez.log/1", time: &time, level, party: self.party, event };
                serde_json::to_string(&line).expect("an event has plain fields")
            }
        };
        // One call for the whole line: lines of several threads are not mixed.
        let line = line + "\n";
        let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = out.write_all(line.as_bytes()).and_then(|()| out.flush());
    }
}

/// The time in UTC, as RFC 3339 has it, to the millisecond.
pub(crate) fn timestamp(now: SystemTime) -> String {
    let t = OffsetDateTime::from(now);
    let (year, month, day) = t.to_calendar_date();
    let (hour, minute, second, milli) = t.to_hms_milli();
    format!("{year:04}-{:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z", u8::from(month))
}

/// The latest second since 1970 whose year has four digits: others may say anything.
const LATEST: u64 = 253_402_300_799;

/// Seconds since 1970, which may come from anywhere, as RFC 3339 in UTC.
pub fn date(seconds: u64) -> String {
    timestamp(UNIX_EPOCH + Duration::from_secs(seconds.min(LATEST)))
}

/// A text without control characters, and not too long.
pub(crate) fn plain(text: &str) -> Cow<'static, str> {
    let mut out = String::new();
    for (i, c) in text.chars().enumerate() {
        if i == MAX_TEXT {
            out.push('…');
            break;
        }
        if c.is_control() { out.extend(c.escape_default()) } else { out.push(c) }
    }
    out.into()
}

fn text(time: &str, level: Level, party: usize, event: &Event<'_>) -> String {
    let mut line = format!("{time} {:5} party {party}: {}: {}", level.name(), event.event, event.message);
    let mut add = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            let _ = write!(line, " {name}={value}");
        }
    };
    add("client", event.client.map(|c| plain(c).into_owned()));
    add("request", event.request.map(str::to_owned));
    add("session", event.session.map(|s| s.to_string()));
    add("protocol", event.protocol.map(str::to_owned));
    add("kind", event.kind.map(|k| k.to_string()));
    add("step", event.step.map(|s| plain(s).into_owned()));
    add("seconds", event.seconds.map(|s| format!("{s:.3}")));
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::time::{Duration, UNIX_EPOCH};

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn written(config: LogConfig, level: Level, event: Event<'_>) -> String {
        let kept = Kept::default();
        Log::new(1, config, kept.clone()).write(level, event);
        let bytes = kept.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    const JSON: LogConfig = LogConfig { level: Level::Info, format: Format::Json };

    #[test]
    fn a_line_has_the_fields_of_its_event_and_no_others() {
        let event = Event {
            client: Some("alice"),
            request: Some("run"),
            session: Some(SessionName([0xab; 16])),
            protocol: Some("mizar"),
            kind: Some(ErrorKind::PeerLost),
            step: Some("0/conv"),
            seconds: Some(0.25),
            ..Event::new("failed", "party 2 left")
        };
        let line: serde_json::Value =
            serde_json::from_str(&written(JSON, Level::Warn, event.clone())).unwrap();
        let wanted = [("level", "warn"), ("client", "alice"), ("step", "0/conv"), ("kind", "peer-lost")];
        assert!(wanted.iter().all(|(name, value)| line[name] == *value), "{line}");
        assert_eq!(line["session"], "ab".repeat(16));
        assert_eq!((&line["party"], &line["seconds"]), (&1.into(), &0.25.into()));
        let few = written(JSON, Level::Info, Event::new("listening", "here"));
        let few: serde_json::Value = serde_json::from_str(&few).unwrap();
        let names: Vec<&str> = few.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(names, ["event", "level", "message", "party", "schema", "time"]);
        let text = written(LogConfig::default(), Level::Warn, event);
        assert!(text.contains(" warn  party 1: failed: party 2 left client=alice request=run "), "{text}");
        assert!(text.ends_with("step=0/conv seconds=0.250\n"), "{text}");
    }

    #[test]
    fn levels_below_the_one_asked_for_are_left_out() {
        assert_eq!(written(JSON, Level::Debug, Event::new("answered", "info")), "");
        let errors = LogConfig { level: "error".parse().unwrap(), format: "text".parse().unwrap() };
        assert_eq!(written(errors, Level::Warn, Event::new("swept", "x")), "");
        assert!("loud".parse::<Level>().unwrap_err().contains("warn, info"));
        assert!("xml".parse::<Format>().unwrap_err().contains("text or json"));
    }

    #[test]
    fn nobody_writes_lines_of_his_own() {
        let forged = format!("no `x\n2026-01-01 error\r\u{1b}[2J{}`", "y".repeat(5000));
        for format in [Format::Text, Format::Json] {
            let config = LogConfig { level: Level::Info, format };
            let line = written(config, Level::Info, Event::new("refused", forged.as_str()));
            assert_eq!(line.matches('\n').count(), 1, "{line}");
            assert!(line.ends_with('\n') && !line.trim_end().contains(char::is_control), "{line}");
            assert!(line.chars().count() < MAX_TEXT + 200);
        }
    }

    #[test]
    fn times_are_utc() {
        assert_eq!(timestamp(UNIX_EPOCH), "1970-01-01T00:00:00.000Z");
        let later = UNIX_EPOCH + Duration::from_millis(1_709_210_096_007);
        assert_eq!(timestamp(later), "2024-02-29T12:34:56.007Z");
    }
}
