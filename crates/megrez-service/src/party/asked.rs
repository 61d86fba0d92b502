//! A request as the log and the audit log tell of it: who asked for what, and how it ended.

use crate::audit::{Audit, Entry, Subject};
use crate::log::{Event, Level, Log, SessionName};
use crate::protocols::is_float;
use crate::wire::{self, Ahead, Request, Source};
use crate::{Error, ErrorKind, Result};
use megrez_engine::PartyReport;
use megrez_net::NetProfile;
use megrez_protocols::registry;
use std::cell::{Cell, Ref, RefCell};
use std::time::{Duration, Instant};

/// A request that this party works on.
pub(super) struct Asked<'a> {
    /// Who asked.
    pub(super) client: &'a str,
    /// What for.
    pub(super) request: &'static str,
    session: Cell<Option<SessionName>>,
    protocol: Option<&'static str>,
    pub(super) since: Instant,
    /// Whether this party takes part in the session.
    accepted: Cell<Option<Instant>>,
    /// What this party has measured of its runs.
    measured: RefCell<Vec<PartyReport>>,
    subject: Subject,
    log: &'a Log,
    audit: Option<&'a Audit>,
}

/// What a request is about.
fn subject(request: &Request) -> Subject {
    let of = |protocol: &str, source: &Source| match source {
        Source::Plan(bytes) => {
            Subject { plans: vec![Subject::plan(bytes, is_float(protocol))], ..Subject::default() }
        }
        Source::Model { model, batch } => {
            Subject { model: Some(model.clone()), batch: Some(*batch), ..Subject::default() }
        }
    };
    match request {
        Request::Info { .. } => Subject::default(),
        Request::Describe { model, batch } => {
            Subject { model: Some(model.clone()), batch: Some(*batch), ..Subject::default() }
        }
        Request::Run(run) => Subject {
            runs: Some(run.runs),
            material: match &run.material {
                Ahead::Batch(batch) => Some(Subject::material(batch)),
                Ahead::Nothing | Ahead::Stock => None,
            },
            insecure: run.insecure,
            ..of(&run.protocol, &run.source)
        },
        Request::Upload(upload) => {
            let plan = |plan: &wire::ModelPlan| Subject::plan(&plan.plan, is_float(&upload.protocol));
            Subject {
                model: Some(upload.model.clone()),
                plans: upload.plans.iter().map(plan).collect(),
                allow: upload.allow.clone(),
                ..Subject::default()
            }
        }
        Request::Train(train) => Subject {
            model: train.job.keep.as_ref().map(|keep| keep.model.clone()),
            job: Some(Subject::job(&train.job.hash())),
            runs: Some(train.job.epochs()),
            allow: train.job.keep.as_ref().map_or(vec![], |keep| keep.allow.clone()),
            ..Subject::default()
        },
        Request::Consent { consent, .. } => {
            Subject { job: Some(Subject::job(&consent.job)), ..Subject::default() }
        }
        Request::Jobs { .. } => Subject::default(),
        Request::Stop { job } => Subject { job: Some(Subject::material(job)), ..Subject::default() },
        Request::Join(join) => Subject {
            name: (join.name.len() <= wire::MAX_RUN_NAME).then(|| join.name.clone()),
            clients: wire::program_clients(&join.program).unwrap_or_default(),
            plans: vec![Subject::program(&join.program)],
            runs: Some(1),
            ..Subject::default()
        },
        Request::Remove { model } => Subject { model: Some(model.clone()), ..Subject::default() },
        Request::Stored => Subject::default(),
        Request::Allow { usage, .. } => Subject {
            model: Some(usage.model.clone()),
            plans: usage.plans.clone(),
            allow: usage.allow.iter().map(|grant| grant.client.clone()).collect(),
            limits: usage.allow.iter().filter(|grant| grant.is_limited()).cloned().collect(),
            ..Subject::default()
        },
        Request::Assist(assist) => {
            Subject { plans: vec![Subject::plan(&assist.plan, false)], ..Subject::default() }
        }
        Request::Discard { material } => {
            Subject { material: Some(Subject::material(material)), ..Subject::default() }
        }
        Request::Prepare(prepare) => Subject {
            material: Some(Subject::material(&prepare.material)),
            ..of(&prepare.protocol, &prepare.source)
        },
    }
}

impl<'a> Asked<'a> {
    pub(super) fn new(client: &'a str, request: &Request, log: &'a Log, audit: Option<&'a Audit>) -> Self {
        let (name, session) = match request {
            Request::Info { .. } => ("info", None),
            Request::Describe { .. } => ("describe", None),
            Request::Run(run) => ("run", Some((run.session, &run.protocol))),
            Request::Upload(upload) => ("upload", Some((upload.session, &upload.protocol))),
            Request::Prepare(prepare) => ("prepare", Some((prepare.session, &prepare.protocol))),
            Request::Train(train) => ("train", Some((train.session, &train.job.protocol))),
            Request::Consent { consent, .. } if consent.withdrawn => ("withdraw", None),
            Request::Consent { .. } => ("approve", None),
            Request::Jobs { .. } => ("jobs", None),
            Request::Stop { .. } => ("stop", None),
            Request::Join(join) => ("join", Some((join.session, &join.protocol))),
            Request::Remove { .. } => ("remove", None),
            Request::Stored => ("stored", None),
            Request::Allow { .. } => ("allow", None),
            Request::Discard { .. } => ("discard", None),
            Request::Assist(assist) => ("assist", Some((assist.session, &assist.protocol))),
        };
        Asked {
            client,
            request: name,
            session: Cell::new(session.map(|(session, _)| SessionName(session))),
            protocol: session.and_then(|(_, protocol)| registry::find_any(protocol)).map(|p| p.name),
            since: Instant::now(),
            accepted: Cell::new(None),
            measured: RefCell::default(),
            subject: subject(request),
            log,
            audit,
        }
    }

    fn event<'e>(&'e self, event: &'static str, message: &'e str) -> Event<'e> {
        Event {
            client: Some(self.client),
            request: Some(self.request),
            session: self.session.get(),
            protocol: self.protocol,
            ..Event::new(event, message)
        }
    }

    /// The session in which it is done, where that is another than the client has named.
    pub(super) fn is_done_in(&self, session: [u8; 16]) {
        self.session.set(Some(SessionName(session)));
    }

    fn seconds(&self) -> Option<f64> {
        Some(self.since.elapsed().as_secs_f64())
    }

    /// Nothing speaks against the request: its session begins, once the audit log says so.
    pub(super) fn accept(&self) -> Result<()> {
        if let Some(audit) = self.audit {
            audit.write(self.entry("began"), true)?;
        }
        self.accepted.set(Some(Instant::now()));
        self.log.write(Level::Info, self.event("accepted", "the session begins"));
        Ok(())
    }

    /// Where it is written down what becomes of it.
    pub(super) fn log(&self) -> &Log {
        self.log
    }

    /// Whether its session has begun here.
    pub(super) fn has_begun(&self) -> bool {
        self.accepted.get().is_some()
    }

    /// Since when.
    pub(super) fn accepted_at(&self) -> Option<Instant> {
        self.accepted.get()
    }

    /// The session's name, if the request has one.
    pub(super) fn session(&self) -> Option<[u8; 16]> {
        self.session.get().map(|SessionName(name)| name)
    }

    /// The protocol's name, if the request names one that there is.
    pub(super) fn protocol(&self) -> Option<&'static str> {
        self.protocol
    }

    /// What this party measures of its runs.
    pub(super) fn measure(&self, reports: &[PartyReport]) {
        self.measured.borrow_mut().extend_from_slice(reports);
    }

    /// What this party has measured of its runs.
    pub(super) fn measured(&self) -> Ref<'_, Vec<PartyReport>> {
        self.measured.borrow()
    }

    fn entry<'e>(&'e self, event: &'static str) -> Entry<'e> {
        Entry {
            event,
            client: Some(self.client),
            request: Some(self.request),
            session: self.session.get(),
            protocol: self.protocol,
            subject: Some(&self.subject),
            ..Entry::default()
        }
    }

    /// How it ended, for the audit log: a session has begun already, whatever happens here.
    fn audited(&self, entry: Entry<'_>) {
        let Some(Err(e)) = self.audit.map(|audit| audit.write(entry, false)) else { return };
        self.log
            .write(Level::Error, Event { kind: Some(e.kind()), ..Event::new("audit-failed", e.to_string()) });
    }

    /// Says something about the request in the log.
    pub(super) fn event_of(&self, message: &str) {
        self.log.write(Level::Info, self.event("job", message));
    }

    /// The request is done. One without a session changes nothing, and matters less.
    pub(super) fn done(&self) {
        let (level, event) = match self.has_begun() {
            true => (Level::Info, "ended"),
            false => (Level::Debug, "answered"),
        };
        if self.has_begun() {
            self.audited(Entry { seconds: self.seconds(), ..self.entry("ended") });
        }
        self.log.write(level, Event { seconds: self.seconds(), ..self.event(event, "done") });
    }

    /// The request came to nothing: it was refused, or its session failed.
    pub(super) fn failed(&self, e: &Error) {
        let event = if self.has_begun() { "failed" } else { "refused" };
        let (kind, reason) = (e.kind(), e.to_string());
        // What changes nothing is no matter of the audit but where it was not permitted.
        if self.session.get().is_some() || self.has_begun() || kind == ErrorKind::NotPermitted {
            let entry = Entry {
                kind: Some(kind),
                reason: Some(&reason),
                seconds: self.seconds(),
                ..self.entry(event)
            };
            self.audited(entry);
        }
        let event = Event {
            kind: Some(kind),
            step: step(&reason),
            seconds: self.seconds(),
            ..self.event(event, &reason)
        };
        self.log.write(Level::of(kind), event);
    }
}

/// A session that a client asks for, as this party sees it before it runs.
pub(super) struct Wish<'a, T> {
    pub(super) asked: &'a Asked<'a>,
    pub(super) session: [u8; 16],
    pub(super) profile: &'a NetProfile,
    /// Fails once there is nobody to do it for.
    pub(super) present: &'a dyn Fn() -> Result<()>,
    /// It reads what earlier requests of its connection have left.
    pub(super) depend: bool,
    /// How long its client still waits for it.
    pub(super) within: Option<Duration>,
    /// A refusal may be this party's alone.
    pub(super) alone: bool,
    pub(super) ready: Result<T>,
    /// What the session will hold, in bytes.
    pub(super) memory: &'a dyn Fn(&T) -> u64,
}

/// How long the client of a request still waits for it.
pub(super) fn seconds(within: Option<u32>) -> Option<Duration> {
    within.map(|seconds| Duration::from_secs(seconds.into()))
}

/// The step that a reason names. All parties of a session report one reason, in words; only where
/// it comes from is the step more than words.
fn step(reason: &str) -> Option<&str> {
    let (_, rest) = reason.split_once("step `")?;
    rest.split_once('`').map(|(step, _)| step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_step_of_a_reason() {
        let e = megrez_session::Error::Step { step: "0/relu".into(), what: "wrong".into() };
        assert_eq!(step(&e.to_string()), Some("0/relu"));
        assert_eq!(step(&format!("session ended: {e} (noticed by party 1)")), Some("0/relu"));
        assert_eq!(step("party 2 left the session"), None);
    }
}
