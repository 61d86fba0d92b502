//! What clients may ask a party for: `policy.toml`.
//!
//! A certificate says who a client is; this says what for. Without a policy every client may ask
//! for everything that it could do to its own data, and for those models that their owners allow
//! it.

use super::stored::forbidden;
use crate::pattern::matches;
use crate::wire::{Request, Source};
use crate::{Error, Result};
use serde::Deserialize;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Largest policy file, in bytes.
const MAX_FILE: u64 = 1 << 20;
const DAY: Duration = Duration::from_secs(24 * 3600);

/// Something that a client may or may not ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Right {
    /// Run stored models, those that their owners allow it.
    RunModels,
    /// Run plans of its own, on its own data, and programs with others who bring theirs.
    RunPlans,
    /// Keep models in shares.
    Upload,
    /// Make correlated randomness ahead.
    Prepare,
    /// Begin training jobs, on rows that their owners allow it.
    Train,
}

/// What a client may do.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grant {
    /// Everything that it may ask for.
    pub rights: Vec<Right>,
    /// The stored models that it may run or store, by name; one `*` stands for any letters.
    /// Default: all.
    #[serde(default = "all")]
    pub models: Vec<String>,
    /// The protocols that it may use. Default: all.
    #[serde(default = "all")]
    pub protocols: Vec<String>,
    /// Most runs within 24 hours at this party, counted since it started. Default: no limit.
    #[serde(default)]
    pub runs_a_day: Option<u64>,
}

fn all() -> Vec<String> {
    vec!["*".into()]
}

/// `policy.toml`.
///
/// ```toml
/// [default]                  # clients without an entry; without this they may do nothing
/// rights = []
///
/// [client.hospital]
/// rights = ["run-models"]
/// models = ["triage-*"]
/// protocols = ["mizar"]
/// runs_a_day = 500
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    default: Option<Grant>,
    #[serde(default)]
    client: BTreeMap<String, Grant>,
}

/// The rights of all clients.
#[derive(Debug, Default)]
pub struct Rights {
    /// Without one, everybody may ask for everything.
    file: Option<File>,
    /// When the runs of the last day were asked for, and how many they were.
    runs: Mutex<HashMap<String, Vec<(Instant, u64)>>>,
}

impl Rights {
    /// Reads the file.
    ///
    /// # Errors
    /// What is wrong in it, and where.
    pub fn load(path: &Path) -> Result<Self> {
        let size = std::fs::metadata(path).map_err(|e| Error::file(path, e))?.len();
        if size > MAX_FILE {
            return Err(Error::file(path, "is too large for a policy"));
        }
        let text = std::fs::read_to_string(path).map_err(|e| Error::file(path, e))?;
        let file: File = toml::from_str(&text).map_err(|e| Error::file(path, e))?;
        let grants = file.client.iter().map(|(name, grant)| (format!("client.{name}"), grant));
        for (name, grant) in grants.chain(file.default.iter().map(|grant| ("default".into(), grant))) {
            let unknown = |p: &&String| *p != "*" && megrez_protocols::registry::find_any(p).is_none();
            if let Some(protocol) = grant.protocols.iter().find(unknown) {
                return Err(Error::file(path, format!("[{name}]: there is no protocol `{protocol}`")));
            }
            if let Some(pattern) = grant.models.iter().find(|p| p.matches('*').count() > 1) {
                return Err(Error::file(path, format!("[{name}]: `{pattern}` has more than one `*`")));
            }
        }
        Ok(Rights { file: Some(file), ..Rights::default() })
    }

    /// The same clients' runs count on under a new policy.
    pub fn replaces(self, old: &Rights) -> Self {
        let runs = std::mem::take(&mut *old.runs.lock().unwrap_or_else(PoisonError::into_inner));
        Rights { runs: Mutex::new(runs), ..self }
    }

    /// Whether a client may ask for this. Runs are counted.
    ///
    /// # Errors
    /// Which right is missing, in words that do not say what others may.
    pub fn permit(&self, client: &str, request: &Request) -> Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        let (right, protocol, model, runs) = match request {
            Request::Info { .. } => return Ok(()),
            Request::Describe { model, .. } => (Right::RunModels, None, Some(model), 0),
            Request::Run(run) => match &run.source {
                Source::Plan(_) => (Right::RunPlans, Some(&run.protocol), None, run.runs),
                Source::Model { model, .. } => (Right::RunModels, Some(&run.protocol), Some(model), run.runs),
            },
            Request::Join(join) => (Right::RunPlans, Some(&join.protocol), None, 1),
            Request::Upload(upload) => (Right::Upload, Some(&upload.protocol), Some(&upload.model), 0),
            Request::Allow { usage, .. } => (Right::Upload, None, Some(&usage.model), 0),
            // What concerns a client's own word, jobs and files is no more than it has been given.
            Request::Consent { .. }
            | Request::Jobs { .. }
            | Request::Stop { .. }
            | Request::Remove { .. }
            | Request::Discard { .. }
            | Request::Stored => return Ok(()),
            // No client asks for it; the party that does is looked at where it is done.
            Request::Assist(_) => return Ok(()),
            Request::Train(train) => {
                let keep = train.job.keep.as_ref().map(|keep| &keep.model);
                (Right::Train, Some(&train.job.protocol), keep, train.job.epochs())
            }
            Request::Prepare(prepare) => match &prepare.source {
                Source::Plan(_) => (Right::Prepare, Some(&prepare.protocol), None, 0),
                Source::Model { model, .. } => (Right::Prepare, Some(&prepare.protocol), Some(model), 0),
            },
        };
        let refuse =
            |what: String| Err(forbidden(format!("the policy of this party does not let `{client}` {what}")));
        let Some(grant) = file.client.get(client).or(file.default.as_ref()) else {
            return refuse("ask for anything".into());
        };
        // Owners name the plans of what they approve, and look at them for that.
        let owns = matches!(request, Request::Describe { .. }) && grant.rights.contains(&Right::Upload);
        if !grant.rights.contains(&right) && !owns {
            return refuse(
                match right {
                    Right::RunModels => "run stored models",
                    Right::RunPlans => "run plans of its own",
                    Right::Upload => "store models",
                    Right::Train => "train",
                    Right::Prepare => "make correlated randomness ahead",
                }
                .into(),
            );
        }
        if let Some(model) = model.filter(|model| !grant.models.iter().any(|p| matches(p, model))) {
            return refuse(format!("use a model of the name `{model}`"));
        }
        if let Some(protocol) = protocol.filter(|name| !grant.protocols.iter().any(|p| matches(p, name))) {
            return refuse(format!("use the protocol `{protocol}`"));
        }
        match grant.runs_a_day {
            Some(most) if runs > 0 => self.count(client, u64::from(runs), most, Instant::now()),
            _ => Ok(()),
        }
    }

    /// Gives back the runs of a request that [`permit`](Self::permit) has counted and that led to
    /// no session, such as one that has to wait its turn elsewhere and comes again.
    pub fn forget(&self, client: &str, runs: u32) {
        let mut all = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((_, n)) = all.get_mut(client).and_then(|mine| mine.last_mut()) else { return };
        *n = n.saturating_sub(u64::from(runs));
    }

    fn count(&self, client: &str, runs: u64, most: u64, now: Instant) -> Result<()> {
        let mut all = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        let mine = all.entry(client.to_owned()).or_default();
        mine.retain(|(at, _)| now.duration_since(*at) < DAY);
        let sum: u64 = mine.iter().map(|(_, n)| n).sum();
        if sum + runs > most {
            return Err(forbidden(format!(
                "the policy of this party gives `{client}` {most} runs within 24 hours: {sum} are used, {runs} more were asked for"
            )));
        }
        // Runs of one minute are one entry, so a day has few.
        match mine.last_mut() {
            Some((at, n)) if now.duration_since(*at) < Duration::from_secs(60) => *n += runs,
            _ => mine.push((now, runs)),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::training::{Job, Keep, Stage};
    use crate::wire::{Ahead, Net, Prepare, Run, Train, Upload};
    use megrez_net::NetProfile;

    fn rights(name: &str, text: &str) -> Result<Rights> {
        let path = std::env::temp_dir().join(format!("megrez-policy-{}-{name}", std::process::id()));
        std::fs::write(&path, text).unwrap();
        Rights::load(&path)
    }

    fn run(protocol: &str, source: Source, runs: u32) -> Request {
        let net = Net::from(&NetProfile::loopback());
        let protocol = protocol.into();
        Request::Run(Run {
            session: [0; 16],
            protocol,
            source,
            runs,
            lasting: vec![],
            streamed: false,
            net,
            material: Ahead::Nothing,
            insecure: false,
            within_s: None,
        })
    }

    fn model(name: &str) -> Source {
        Source::Model { model: name.into(), batch: 1 }
    }

    fn upload(model: &str) -> Request {
        Request::Upload(Upload {
            session: [0; 16],
            protocol: "mizar".into(),
            model: model.into(),
            plans: vec![],
            allow: vec![],
            rows: false,
            ids: None,
            within_s: None,
        })
    }

    fn train(keep: Option<&str>) -> Request {
        let keep = keep.map(|model| Keep { model: model.into(), allow: vec![], plans: vec![] });
        let job = Job {
            nonce: [0; 16],
            client: "bob".into(),
            protocol: "mizar".into(),
            data: vec![],
            start: String::new(),
            stages: vec![Stage { step: vec![], epochs: 1 }],
            shards: None,
            validation: None,
            bounds: vec![],
            rows: vec![],
            opened: vec![],
            keep,
            about: String::new(),
        };
        Request::Train(Train {
            session: [0; 16],
            job,
            net: Net::from(&NetProfile::loopback()),
            within_s: None,
        })
    }

    const POLICY: &str = "[default]\nrights = [\"run-models\"]\nmodels = [\"open\"]\n\
        [client.alice]\nrights = [\"run-models\", \"upload\", \"prepare\"]\nmodels = [\"triage-*\"]\nprotocols = [\"mizar\"]\nruns_a_day = 5\n\
        [client.bob]\nrights = [\"run-plans\", \"train\"]\nmodels = [\"triage-*\"]\n";

    #[test]
    fn each_right_is_asked_for() {
        let rights = rights("each", POLICY).unwrap();
        let may = |client: &str, request: &Request| rights.permit(client, request).is_ok();
        let describe = |name: &str| Request::Describe { model: name.into(), batch: 1 };
        assert!(may("alice", &run("mizar", model("triage-2"), 1)));
        assert!(!may("alice", &run("aby3", model("triage-2"), 1)), "another protocol");
        assert!(!may("alice", &run("mizar", model("credit"), 1)), "another model");
        assert!(!may("alice", &run("mizar", Source::Plan(vec![]), 1)), "a plan of her own");
        assert!(may("alice", &upload("triage-3")) && !may("alice", &upload("credit")));
        assert!(may("alice", &describe("triage-1")) && !may("alice", &describe("credit")));
        let prepare = |source| {
            Request::Prepare(Prepare {
                session: [0; 16],
                protocol: "mizar".into(),
                source,
                material: [0; 16],
                stock: false,
                within_s: None,
            })
        };
        assert!(may("alice", &prepare(model("triage-1"))) && !may("bob", &prepare(Source::Plan(vec![]))));
        assert!(
            may("bob", &run("aby3", Source::Plan(vec![]), 1)) && !may("bob", &run("aby3", model("open"), 1))
        );
        assert!(
            may("carol", &run("aby3", model("open"), 1)) && !may("carol", &run("aby3", model("triage-1"), 1))
        );
        assert!(may("carol", &Request::Info { version: 0 }));
        assert!(may("bob", &train(None)) && !may("alice", &train(None)));
        assert!(
            may("bob", &train(Some("triage-9"))) && !may("bob", &train(Some("credit"))),
            "another model is kept"
        );
        // Whoever has no entry, and finds no default, may nothing; without a policy all may all.
        let strict = super::Rights { file: Some(File::default()), ..Rights::default() };
        assert!(strict.permit("alice", &upload("m")).is_err());
        assert!(Rights::default().permit("alice", &upload("m")).is_ok());
    }

    #[test]
    fn runs_are_counted_for_a_day() {
        let rights = rights("count", POLICY).unwrap();
        let ask = |runs| rights.permit("alice", &run("mizar", model("triage-1"), runs));
        assert!(ask(4).is_ok());
        let refused = ask(2).unwrap_err().to_string();
        assert!(refused.contains("4 are used"), "{refused}");
        assert!(ask(1).is_ok() && ask(1).is_err());
        // One that led to no session does not count.
        rights.forget("alice", 1);
        rights.forget("bob", 1);
        assert!(ask(1).is_ok() && ask(1).is_err());
        // A new policy does not forget them, the next day does.
        let rights = super::Rights { file: rights.file.clone(), ..Rights::default() }.replaces(&rights);
        let now = Instant::now();
        assert!(rights.count("alice", 1, 5, now).is_err());
        assert!(rights.count("alice", 5, 5, now + DAY).is_ok());
        assert!(rights.count("alice", u64::from(u32::MAX), 5, now + DAY).is_err());
    }

    #[test]
    fn mistakes_are_named() {
        let wrong = |name: &str, text: &str| rights(name, text).unwrap_err().to_string();
        assert!(wrong("a", "[client.alice]\nrights = [\"fly\"]").contains("run-models"));
        assert!(wrong("b", "[client.alice]\nrights = []\nprotocols = [\"rot13\"]").contains("rot13"));
        assert!(wrong("c", "[client.alice]\nrights = []\nmodels = [\"a*b*\"]").contains("a*b*"));
        assert!(wrong("d", "[clients]\n").contains("clients"));
        assert!(Rights::load(Path::new("/nonexistent/policy.toml")).is_err());
    }
}
