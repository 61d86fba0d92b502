//! The audit log: who asked a party for what, when, and how it ended. Never a value.
//!
//! A file to which lines are appended, one JSON object of schema `megrez.audit/1` each. Every line
//! says the hash of the line before it, so a line that is changed, removed or put in later breaks
//! the chain there ([`verify`]). Who can write the file can also make a whole new chain, or cut off
//! its end: whoever wants to notice that keeps the hash of the last line elsewhere from time to
//! time.
//!
//! A request that begins a session is written down, and on the disk, before the session begins. A
//! party that cannot write refuses.

use crate::approval::Grant;
use crate::log::{SessionName, plain, timestamp};
use crate::{Error, ErrorKind, Result};
use megrez_engine::hash;
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

const SCHEMA: &str = "megrez.audit/1";
const PURPOSE: &str = "megrez 2026 audit line";
/// Longest line, in bytes: what a party writes is shorter.
const MAX_LINE: u64 = 64 << 10;

/// A hash in hexadecimal digits.
fn digits(hash: &[u8]) -> String {
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The name of a line: what the next line says of it.
fn name(line: &[u8]) -> String {
    digits(&hash(PURPOSE, line))
}

/// What stands before the first line.
fn beginning() -> String {
    name(b"")
}

/// What a request is about.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Subject {
    /// The stored model that is used or made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Inputs per run, of a stored model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch: Option<usize>,
    /// The hash of a plan that the client brings, on which the parties agree; of an upload's, those
    /// of its plans.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub plans: Vec<String>,
    /// What its clients call the run of a program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// All clients of a program.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub clients: Vec<String>,
    /// How often a plan is run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runs: Option<u32>,
    /// The material that is made or used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub material: Option<String>,
    /// Who may run an uploaded model besides its owner.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allow: Vec<String>,
    /// The limits of those of them who have any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<Grant>,
    /// The hash of a training job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// Of what is too much for a line, in place of all of it: the hash of its JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hash: Option<String>,
    /// The caller insists on a protocol that does not protect.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub insecure: bool,
}

impl Subject {
    /// Names a plan by the hash on which the parties agree.
    pub fn plan(bytes: &[u8], float: bool) -> String {
        let purpose = if float { "megrez 2026 float plan hash" } else { "megrez 2026 plan hash" };
        digits(&hash(purpose, bytes))
    }

    /// Names a program by the hash on which its clients and the parties agree.
    pub fn program(bytes: &[u8]) -> String {
        digits(&crate::wire::program_hash(bytes))
    }

    /// Names a training job.
    pub fn job(hash: &[u8; 32]) -> String {
        digits(hash)
    }

    /// Names material.
    pub fn material(name: &[u8; 16]) -> String {
        digits(name)
    }
}

/// Something to write down.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Entry<'a> {
    /// `started`, `began`, `ended`, `failed`, `refused`, `drained`, `recovered`.
    pub event: &'static str,
    /// Who asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<&'a str>,
    /// What for: `run`, `upload`, `prepare`, `describe`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<&'static str>,
    /// The session, by the name that all parties know.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionName>,
    /// The protocol.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<&'static str>,
    /// What the request is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<&'a Subject>,
    /// What kind of failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<ErrorKind>,
    /// Why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<&'a str>,
    /// From the request to its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
}

#[derive(Serialize)]
struct Line<'a> {
    schema: &'static str,
    number: u64,
    time: &'a str,
    party: usize,
    #[serde(flatten)]
    entry: Entry<'a>,
    before: &'a str,
}

/// What a line says of its place.
#[derive(Deserialize)]
struct Chained {
    schema: String,
    number: u64,
    before: String,
    event: String,
}

/// The audit log of a party, open for more.
pub struct Audit {
    party: usize,
    path: PathBuf,
    end: Mutex<End>,
}

struct End {
    file: File,
    /// The number of the next line.
    next: u64,
    /// The name of the last line.
    last: String,
    /// Where that line ends, in bytes.
    length: u64,
    /// A line could not be written, and what there is of it could not be taken back.
    broken: bool,
}

impl Audit {
    /// Opens a log, or begins one. A last line that a crash has cut off is closed, and the next one
    /// says so.
    ///
    /// # Errors
    /// If the file cannot be read and written, or its last line is none of an audit log.
    pub fn open(party: usize, path: &Path) -> Result<Self> {
        let fail = |e: std::io::Error| Error::file(path, format!("the audit log: {e}"));
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(fail)?;
        }
        let mut options = OpenOptions::new();
        options.create(true).read(true).append(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(path).map_err(fail)?;
        let tail = tail(&mut file).map_err(fail)?;
        let place =
            |line: &[u8]| serde_json::from_slice::<Chained>(line).ok().map(|c| (c.number + 1, name(line)));
        let (whole, torn) = match tail.iter().rposition(|&b| b == b'\n') {
            Some(end) => (Some(&tail[..end]), &tail[end + 1..]),
            None => (None, &tail[..]),
        };
        // The last line with an end; before the first there is none.
        let last = whole.map(|whole| whole.rsplit(|&b| b == b'\n').next().unwrap_or_default());
        let last = match last {
            None if tail.len() as u64 > MAX_LINE => None,
            None => Some((0, beginning())),
            Some(line) => place(line),
        };
        let Some((mut next, mut last)) = last else {
            let what = "its last line is none of an audit log: `megrez audit verify` says more";
            return Err(Error::damaged(path, what));
        };
        // A crash may also have cut off nothing but the end of the line.
        let complete = place(torn);
        let cut = !torn.is_empty() && complete.is_none();
        if complete.is_some() {
            file.write_all(b"\n").map_err(fail)?;
        }
        if !torn.is_empty() {
            (next, last) = complete.unwrap_or((next, name(torn)));
        }
        let length = file.metadata().map_err(fail)?.len();
        let end = Mutex::new(End { file, next, last, length, broken: false });
        let audit = Audit { party, path: path.into(), end };
        if cut {
            // With the end of the line that it tells of, or not at all: nothing else can follow
            // that.
            audit.append(b"\n", Entry { event: "recovered", ..Entry::default() }, true)?;
        }
        Ok(audit)
    }

    /// Appends a line, and waits until it is on the disk if it must not be lost.
    ///
    /// # Errors
    /// If it cannot. The log is then as it was, and takes the next line if there is room again.
    pub fn write(&self, entry: Entry<'_>, keep: bool) -> Result<()> {
        self.append(b"", entry, keep)
    }

    fn append(&self, first: &[u8], entry: Entry<'_>, keep: bool) -> Result<()> {
        let fail = |what: &dyn std::fmt::Display| {
            let what = format!("the audit log {} cannot be written: {what}", self.path.display());
            Error::of(ErrorKind::Internal, what)
        };
        let reason = entry.reason.map(plain);
        let entry = Entry { reason: reason.as_deref(), ..entry };
        let mut end = self.end.lock().unwrap_or_else(PoisonError::into_inner);
        if end.broken {
            return Err(fail(&"an earlier line could not be"));
        }
        let time = timestamp(SystemTime::now());
        let line = |entry: Entry<'_>| {
            let (number, party) = (end.next, self.party);
            let line = Line { schema: SCHEMA, number, time: &time, party, entry, before: &end.last };
            serde_json::to_vec(&line).map_err(|e| fail(&e))
        };
        let mut whole = line(entry.clone())?;
        // With its end, and perhaps that of the line before.
        if whole.len() as u64 + 2 > MAX_LINE {
            let subject = serde_json::to_vec(&entry.subject).map_err(|e| fail(&e))?;
            let subject = Subject { hash: Some(name(&subject)), ..Subject::default() };
            whole = line(Entry { subject: Some(&subject), ..entry })?;
        }
        let line = whole;
        let bytes = [first, &line, b"\n"].concat();
        let written =
            end.file.write_all(&bytes).and_then(|()| if keep { end.file.sync_data() } else { Ok(()) });
        // Half a line would be taken for one that a crash has cut off, and none follows it.
        end.broken = written.is_err() && end.file.set_len(end.length).is_err();
        written.map_err(|e| fail(&e))?;
        (end.next, end.last) = (end.next + 1, name(&line));
        end.length += bytes.len() as u64;
        Ok(())
    }
}

/// The end of a file, with a whole line in it if it has one that is not too long.
fn tail(file: &mut File) -> std::io::Result<Vec<u8>> {
    let size = file.metadata()?.len();
    file.seek(SeekFrom::Start(size.saturating_sub(2 * MAX_LINE)))?;
    let mut bytes = vec![];
    file.take(2 * MAX_LINE).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// What a log was found to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Verified {
    /// How many lines it has.
    pub lines: u64,
    /// How many lines were cut off by a crash, and said to be.
    pub cut: u64,
    /// The name of its last line. Kept elsewhere, it shows later whether the log still goes on from
    /// here.
    pub head: String,
    /// The line with the name that was asked for, from 1; `None` if none has it.
    pub found: Option<u64>,
}

/// Goes through a log from its first line to its last, and looks for the line of this name.
///
/// # Errors
/// The first line that does not follow from the one before it, and why.
pub fn verify(path: &Path, head: Option<&str>) -> Result<Verified> {
    let file = File::open(path).map_err(|e| Error::file(path, e))?;
    let mut reader = BufReader::new(file);
    let mut verified = Verified { lines: 0, cut: 0, head: beginning(), found: None };
    let mut number = 0;
    let mut cut: Option<u64> = None;
    loop {
        let mut line = vec![];
        (&mut reader).take(MAX_LINE + 1).read_until(b'\n', &mut line).map_err(|e| Error::file(path, e))?;
        let at = verified.lines + 1;
        let wrong = |what: &str| Err(Error::damaged(path, format!("line {at} {what}")));
        match line.pop() {
            None => break,
            Some(b'\n') => {}
            Some(_) if line.len() as u64 >= MAX_LINE => return wrong("is longer than a party writes"),
            Some(_) => return wrong("has no end: a party that starts again says that it was cut off"),
        }
        match serde_json::from_slice::<Chained>(&line) {
            Err(_) if cut.is_none() => cut = Some(at),
            Err(_) => return wrong("is no line of an audit log"),
            Ok(chained) => {
                if chained.schema != SCHEMA {
                    return wrong("is of another schema");
                }
                if chained.before != verified.head {
                    return wrong(
                        "does not follow from the one before it: lines were changed, removed or put in",
                    );
                }
                if chained.number != number {
                    return wrong("has not the number that comes next");
                }
                match (cut.take(), chained.event == "recovered") {
                    (Some(_), true) => verified.cut += 1,
                    (None, false) => {}
                    (Some(line), false) => {
                        return Err(Error::damaged(path, format!("line {line} is no line of an audit log")));
                    }
                    (None, true) => {
                        return wrong("speaks of a line before it that was cut off, and none was");
                    }
                }
                number += 1;
            }
        }
        (verified.lines, verified.head) = (at, name(&line));
        if head == Some(verified.head.as_str()) {
            verified.found = Some(at);
        }
    }
    match cut {
        Some(line) => Err(Error::damaged(path, format!("line {line} is no line of an audit log"))),
        None => Ok(verified),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("megrez-audit-{}-{name}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        path
    }

    fn entry(client: &str) -> Entry<'_> {
        Entry { event: "began", client: Some(client), request: Some("run"), ..Entry::default() }
    }

    fn lines(path: &Path) -> Vec<String> {
        std::fs::read_to_string(path).unwrap().lines().map(str::to_owned).collect()
    }

    fn put(path: &Path, lines: &[String]) {
        std::fs::write(path, lines.iter().map(|line| format!("{line}\n")).collect::<String>()).unwrap();
    }

    #[test]
    fn a_log_goes_on_where_it_ended() {
        let path = file("goes-on");
        Audit::open(1, &path).unwrap().write(entry("alice"), true).unwrap();
        let head = verify(&path, None).unwrap().head;
        let audit = Audit::open(1, &path).unwrap();
        audit.write(entry("bob\n{\"forged\":1}"), false).unwrap();
        audit.write(Entry { reason: Some("no\nsuch"), ..entry("carol") }, false).unwrap();
        let found = verify(&path, Some(&head)).unwrap();
        assert_eq!((found.lines, found.cut, found.found), (3, 0, Some(1)));
        assert_eq!(verify(&path, Some("ab")).unwrap().found, None);
        assert_ne!(found.head, head);
    }

    #[test]
    fn every_change_of_a_line_is_found() {
        let path = file("changes");
        let audit = Audit::open(0, &path).unwrap();
        ["alice", "bob", "carol", "dave"]
            .iter()
            .for_each(|client| audit.write(entry(client), false).unwrap());
        let whole = lines(&path);
        let broken = |lines: &[String]| {
            put(&path, lines);
            verify(&path, None).unwrap_err().to_string()
        };
        for at in 0..3 {
            let mut changed = whole.clone();
            changed[at] = changed[at].replace("began", "ended");
            assert!(broken(&changed).contains(&format!("line {} ", at + 2)), "{}", broken(&changed));
            let mut removed = whole.clone();
            removed.remove(at);
            assert!(broken(&removed).contains(&format!("line {} ", at + 1)));
            let mut doubled = whole.clone();
            doubled.insert(at, whole[at].clone());
            assert!(broken(&doubled).contains(&format!("line {} ", at + 2)));
            let mut swapped = whole.clone();
            swapped.swap(at, at + 1);
            broken(&swapped);
            let mut torn = whole.clone();
            torn[at].truncate(20);
            broken(&torn);
        }
        put(&path, &whole);
        assert_eq!(verify(&path, None).unwrap().lines, 4);
        let bytes = std::fs::read(&path).unwrap();
        std::fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
        assert!(verify(&path, None).unwrap_err().to_string().contains("has no end"));
    }

    #[test]
    fn a_line_that_a_crash_cut_off_is_told_of() {
        let path = file("crash");
        let audit = Audit::open(0, &path).unwrap();
        audit.write(entry("alice"), false).unwrap();
        audit.write(entry("bob"), false).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        for length in [bytes.len() - 1, bytes.len() - 30, bytes.len() / 2 + 40, 5] {
            std::fs::write(&path, &bytes[..length]).unwrap();
            Audit::open(0, &path).unwrap().write(entry("carol"), false).unwrap();
            let found = verify(&path, None).unwrap_or_else(|e| panic!("{length}: {e}"));
            // Without its end alone a line is whole.
            assert_eq!(found.cut, u64::from(length < bytes.len() - 1), "{length}");
        }
    }

    #[test]
    fn what_is_no_log_is_refused() {
        let path = file("other");
        std::fs::write(&path, "party = 0\n").unwrap();
        assert!(Audit::open(0, &path).is_err());
        assert!(verify(&path, None).is_err());
        std::fs::write(&path, vec![b'x'; 300_000]).unwrap();
        assert!(Audit::open(0, &path).is_err());
        assert!(verify(&path, None).unwrap_err().to_string().contains("longer"));
        std::fs::write(&path, "\n\n").unwrap();
        assert!(Audit::open(0, &path).is_err());
        assert!(verify(&path, None).is_err());
        assert!(verify(Path::new("/nonexistent/audit"), None).is_err());
    }

    /// A log of which nobody knows how it ends takes no more lines.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_disk_that_is_full_refuses() {
        let audit = Audit {
            party: 0,
            path: "/dev/full".into(),
            end: Mutex::new(End {
                file: OpenOptions::new().append(true).open("/dev/full").unwrap(),
                next: 0,
                last: beginning(),
                length: 0,
                broken: false,
            }),
        };
        for _ in 0..2 {
            assert!(audit.write(entry("alice"), true).unwrap_err().to_string().contains("audit log"));
        }
    }
}
