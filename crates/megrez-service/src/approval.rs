//! What an owner approves, in signed words: who uses what it has stored, how often and until when
//! ([`Usage`]), under which [`Rules`] jobs may be proposed, and jobs themselves ([`Consent`]).
//!
//! Every party checks the owner's signature before it writes an approval down, keeps the signature
//! beside it, and enforces it by itself: that all parties say yes is what a session takes. Without
//! an approval nobody but the owner uses anything.

use crate::pattern::matches;
use crate::training::{Consent, Job, count};
use crate::{Error, ErrorKind, Result};
use megrez_net::{Identity, PeerName};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// What the signature of an approval is for.
const PURPOSE: &str = "megrez 2026 approval";

/// Largest file of rules, in bytes.
const MAX_FILE: u64 = 1 << 20;
/// Most names in one of the lists of [`Rules`].
const MAX_NAMES: usize = 256;

/// Somebody who may use what an owner has stored, and how far. What is not limited is not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// The client.
    pub client: String,
    /// When this was approved, by the owner's clock, in seconds since 1970. An approval that others
    /// are given later leaves it as it is, and what was counted since.
    pub since_s: u64,
    /// Most runs since then, counted by each party.
    pub runs: Option<u64>,
    /// Most rows of data in all of them: a run has as many as its batch, filled or not.
    pub rows: Option<u64>,
    /// Until when sessions may begin, by each party's clock: seconds since 1970.
    pub until_s: Option<u64>,
}

impl Grant {
    /// Without limits.
    pub fn unlimited(client: &str) -> Self {
        Grant { client: client.into(), ..Grant::default() }
    }

    /// Whether anything limits it.
    pub fn is_limited(&self) -> bool {
        self.runs.is_some() || self.rows.is_some() || self.until_s.is_some()
    }
}

/// An owner's word on who may use a stored model, or ask for training on stored rows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// The name of the model or of the rows.
    pub model: String,
    /// Which upload of that name.
    pub upload: [u8; 16],
    /// The hashes of the plans that may be run on it: they say what comes out, and for whom.
    pub plans: Vec<String>,
    /// Who may use it, and how far; nobody else but its owner may.
    pub allow: Vec<Grant>,
    /// What jobs on these rows have to keep to.
    pub rules: Option<Rules>,
    /// When this was said, by the owner's clock: seconds since 1970.
    pub given_s: u64,
}

/// Conditions of whoever owns rows. A machine checks them: a job that breaks one is refused before
/// its owner is asked, and refused by every party whoever has approved it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Rules {
    /// The protocols, by name; one `*` stands for any letters, here and below. Default: all.
    pub protocols: Vec<String>,
    /// Fewest rows of all sets together, of those learnt from and of those counted on. Default: 1.
    pub least_rows: u64,
    /// Fewest rows of a batch. Default: 1.
    pub least_batch: u64,
    /// Most epochs. Default: no limit.
    pub most_epochs: Option<u32>,
    /// Who may learn what is opened after every epoch, such as losses. Default: nobody.
    pub losses_to: Vec<String>,
    /// Who may learn what is opened at the end, such as weights. Default: nobody.
    pub weights_to: Vec<String>,
    /// Who may run a model that is kept. Default: nobody, so no model is kept.
    pub models_to: Vec<String>,
    /// The most that weights, and what a model of them answers, may tell of a row by the job's
    /// plans: ε. Default: no limit.
    pub most_epsilon: Option<f64>,
    /// The δ that goes with `most_epsilon`. Default: 10^−5.
    pub delta: f64,
}

/// What a job's plans guarantee of the weights that they train: differential privacy of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Guarantee {
    /// ε at the δ that was asked for, over all epochs.
    pub epsilon: f64,
    /// As long as no number of a row is larger than this.
    pub range: f64,
}

/// Reads the plans of a job: what they guarantee at a δ, or `None`. This crate can't; whoever
/// starts a party brings it.
pub type Guarantees = fn(&Job, f64) -> Option<Guarantee>;

/// What rules look at besides a job.
#[derive(Clone, Copy)]
pub struct Looks {
    /// The largest number of its rows, as their owners have declared.
    pub largest: f64,
    /// Reads its plans.
    pub guarantees: Guarantees,
}

impl Default for Rules {
    fn default() -> Self {
        Rules {
            protocols: vec!["*".into()],
            least_rows: 1,
            least_batch: 1,
            most_epochs: None,
            losses_to: vec![],
            weights_to: vec![],
            models_to: vec![],
            most_epsilon: None,
            delta: 1e-5,
        }
    }
}

impl Rules {
    /// Reads a file of TOML.
    ///
    /// # Errors
    /// What is wrong in it, and where.
    pub fn load(path: &Path) -> Result<Self> {
        let size = std::fs::metadata(path).map_err(|e| Error::file(path, e))?.len();
        if size > MAX_FILE {
            return Err(Error::file(path, "is too large for rules"));
        }
        let text = std::fs::read_to_string(path).map_err(|e| Error::file(path, e))?;
        let rules: Rules = toml::from_str(&text).map_err(|e| Error::file(path, e))?;
        rules.check().map_err(|e| Error::file(path, e))?;
        Ok(rules)
    }

    /// Whether they make sense.
    ///
    /// # Errors
    /// What does not.
    pub fn check(&self) -> Result<()> {
        let lists = [&self.protocols, &self.losses_to, &self.weights_to, &self.models_to];
        if lists.iter().any(|list| list.len() > MAX_NAMES) {
            return Err(Error::Refused(format!("a rule has {MAX_NAMES} names at most")));
        }
        let plain = |name: &&String| {
            name.len() <= 64 && name.chars().all(|c| matches!(c, 'a'..='z' | '0'..='9' | '-' | '*'))
        };
        if self.most_epsilon.is_some_and(|most| !(most > 0.0 && most.is_finite())) {
            return Err(Error::Refused("most_epsilon is a number above 0".into()));
        }
        if !(self.delta > 0.0 && self.delta < 1.0) {
            return Err(Error::Refused("delta is between 0 and 1".into()));
        }
        match lists.into_iter().flatten().find(|name| !plain(name) || name.matches('*').count() > 1) {
            Some(name) => {
                let name = name.escape_debug();
                Err(Error::Refused(format!(
                    "a rule names `{name}`: lower-case letters, digits, hyphens, and one `*` at most"
                )))
            }
            None => Ok(()),
        }
    }

    /// What in a job breaks them; nothing if it keeps to all.
    pub fn broken_by(&self, job: &Job, Looks { largest, guarantees }: Looks) -> Vec<String> {
        let has = |list: &[String], name: &str| list.iter().any(|pattern| matches(pattern, name));
        let mut broken = vec![];
        if !has(&self.protocols, &job.protocol) {
            broken.push(format!("it runs under `{}`", job.protocol));
        }
        let counted = job.validation.iter().map(|validation| (count(&validation.data), " to count on"));
        for (rows, what) in std::iter::once((job.all_rows(), "")).chain(counted) {
            if (rows as u64) < self.least_rows {
                let least = self.least_rows;
                broken.push(format!("it has {rows} rows{what}, and at least {least} are asked for"));
            }
        }
        // A job that makes no sense is refused for that.
        let batch = job.check().map_or(0, |work| work.all_batch()) as u64;
        if batch < self.least_batch {
            broken.push(format!(
                "its batches have {batch} rows, and at least {} are asked for",
                self.least_batch
            ));
        }
        if let Some(most) = self.most_epochs.filter(|most| job.epochs() > *most) {
            broken.push(format!("it has {} epochs, and at most {most} are allowed", job.epochs()));
        }
        for opening in &job.opened {
            let (list, when) = match opening.every_epoch {
                true => (&self.losses_to, "after every epoch"),
                false => (&self.weights_to, "at the end"),
            };
            if !has(list, &opening.recipient) {
                let what = format!("`{}` is opened to `{}` {when}", opening.state, opening.recipient);
                broken.push(what);
            }
        }
        if let Some(keep) = &job.keep {
            let users = std::iter::once(&job.client).chain(&keep.allow);
            let others: Vec<&str> =
                users.filter(|user| !has(&self.models_to, user)).map(String::as_str).collect();
            if !others.is_empty() {
                let others = others.join("`, `");
                broken.push(format!("`{others}` may run the model `{}` that it keeps", keep.model));
            }
        }
        if let Some(most) = self.most_epsilon {
            let asked = format!("ε of at most {most} at δ = {:e} is asked for", self.delta);
            match guarantees(job, self.delta) {
                None => broken.push(format!("its plans guarantee no privacy of rows, and {asked}")),
                Some(found) if found.epsilon > most => {
                    broken.push(format!("its plans guarantee ε = {:.2}, and {asked}", found.epsilon));
                }
                Some(found) if found.range < largest => broken.push(format!(
                    "its plans guarantee privacy of numbers up to {}, and the rows have some of up to {largest}",
                    found.range
                )),
                Some(_) => {}
            }
        }
        broken
    }

    /// Refuses a job that breaks them.
    ///
    /// # Errors
    /// [`ErrorKind::NotPermitted`], with everything in it that does.
    pub fn permit(&self, rows: &str, owner: &str, job: &Job, looks: Looks) -> Result<()> {
        let broken = self.broken_by(job, looks);
        if broken.is_empty() {
            return Ok(());
        }
        let what =
            format!("the job breaks the rules of `{owner}` for the rows `{rows}`: {}", broken.join("; "));
        Err(Error::of(ErrorKind::NotPermitted, what))
    }
}

/// Something that an owner signs. One type for all of it: no signature of one thing is taken for
/// that of another.
#[derive(Serialize)]
pub enum Approval<'a> {
    /// Who may use what.
    Usage(&'a Usage),
    /// A job.
    Job(&'a Consent),
}

impl Approval<'_> {
    fn bytes(&self) -> Vec<u8> {
        postcard::to_allocvec(self).expect("approvals have plain fields")
    }

    /// Signs it.
    ///
    /// # Errors
    /// If this identity's key cannot sign.
    pub fn sign(&self, identity: &Identity) -> Result<Vec<u8>> {
        Ok(identity.sign(PURPOSE, &self.bytes())?)
    }

    /// Makes sure that it is signed by this client, as `identity` sees it now.
    ///
    /// # Errors
    /// [`ErrorKind::NotPermitted`] if it is not.
    pub fn is_signed_by(&self, client: &str, signature: &[u8], identity: &Identity) -> Result<()> {
        match identity.signer(PURPOSE, &self.bytes(), signature)? {
            PeerName::Client(name) if name == client => Ok(()),
            other => {
                let what = format!("an approval of `{client}` is signed by {other}");
                Err(Error::of(ErrorKind::NotPermitted, what))
            }
        }
    }
}

/// Seconds since 1970, by this machine's clock.
pub fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::training::{Keep, Opening, RowSet, Stage, Validation};

    fn job() -> Job {
        Job {
            nonce: [0; 16],
            client: "alice".into(),
            protocol: "mizar".into(),
            data: vec![RowSet { name: "clinic-b".into(), rows: 100, beside: vec![] }],
            start: "start".into(),
            stages: vec![Stage { step: vec![], epochs: 3 }],
            shards: None,
            validation: None,
            bounds: vec![],
            rows: vec!["x".into()],
            opened: vec![
                Opening { state: "loss".into(), recipient: "alice".into(), every_epoch: true },
                Opening { state: "w.1".into(), recipient: "bob".into(), every_epoch: false },
            ],
            keep: Some(Keep { model: "kept".into(), allow: vec!["ward-1".into()], plans: vec![] }),
            about: String::new(),
        }
    }

    #[test]
    fn each_rule_is_looked_at() {
        let names = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        let rules = Rules {
            least_batch: 0,
            losses_to: names(&["alice"]),
            weights_to: names(&["b*"]),
            models_to: names(&["alice", "ward-*"]),
            ..Rules::default()
        };
        // Numbers up to 8, of ε = 2 at δ = 10^−5 and a little more at less.
        let guarantee = |_: &Job, delta: f64| {
            Some(Guarantee { epsilon: if delta < 1e-5 { 2.5 } else { 2.0 }, range: 8.0 })
        };
        let looks = Looks { largest: 8.0, guarantees: guarantee };
        assert_eq!(rules.broken_by(&job(), looks), Vec::<String>::new());
        rules.permit("clinic-b", "bob", &job(), looks).unwrap();
        let private = Rules { most_epsilon: Some(2.0), ..rules.clone() };
        assert_eq!(private.broken_by(&job(), looks), Vec::<String>::new());
        for (looks, what) in [
            (Looks { largest: 9.0, ..looks }, "numbers up to 8, and the rows have some of up to 9"),
            (Looks { guarantees: |_, _| None, ..looks }, "guarantee no privacy of rows"),
        ] {
            let broken = private.broken_by(&job(), looks);
            assert!(broken.len() == 1 && broken[0].contains(what), "{broken:?}");
            assert!(rules.broken_by(&job(), looks).is_empty(), "without the rule nothing is asked for");
        }
        let broken = |rules: Rules| {
            let broken = rules.broken_by(&job(), looks);
            assert_eq!(broken.len(), 1, "{broken:?}");
            broken[0].clone()
        };
        for (rules, what) in [
            (Rules { protocols: names(&["aby3"]), ..rules.clone() }, "under `mizar`"),
            (Rules { least_rows: 101, ..rules.clone() }, "has 100 rows"),
            (Rules { least_batch: 5, ..rules.clone() }, "batches have 0 rows"),
            (Rules { most_epochs: Some(2), ..rules.clone() }, "3 epochs"),
            (Rules { losses_to: vec![], ..rules.clone() }, "`loss` is opened to `alice` after every epoch"),
            (Rules { weights_to: names(&["alice"]), ..rules.clone() }, "`w.1` is opened to `bob` at the end"),
            (Rules { models_to: names(&["alice"]), ..rules.clone() }, "`ward-1` may run"),
            (Rules { models_to: vec![], ..rules.clone() }, "`alice`, `ward-1` may run"),
            (Rules { most_epsilon: Some(1.0), ..rules.clone() }, "ε = 2.00, and ε of at most 1 at δ = 1e-5"),
            (Rules { delta: 1e-6, ..private.clone() }, "ε = 2.50"),
        ] {
            let told = broken(rules);
            assert!(told.contains(what), "{told}");
        }
        // Rows that are only counted on are few by themselves.
        let few = vec![RowSet { name: "held-out".into(), rows: 40, beside: vec![] }];
        let validation = Some(Validation { data: few, plan: vec![] });
        let counts = Job { validation, ..job() };
        let told = Rules { least_rows: 41, ..rules.clone() }.broken_by(&counts, looks);
        assert!(told.len() == 1 && told[0].contains("40 rows to count on"), "{told:?}");
        assert!(Rules { least_rows: 40, ..rules }.broken_by(&counts, looks).is_empty());
        let refused = Rules::default().permit("clinic-b", "bob", &job(), looks).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::NotPermitted);
        // By default nothing leaves: all of it is named at once.
        assert_eq!(refused.to_string().matches(';').count(), 3, "{refused}");
    }

    #[test]
    fn mistakes_in_rules_are_named() {
        let path = std::env::temp_dir().join(format!("megrez-rules-{}.toml", std::process::id()));
        let load = |text: &str| {
            std::fs::write(&path, text).unwrap();
            Rules::load(&path)
        };
        let rules = load("least_rows = 500\nlosses_to = [\"alice\"]").unwrap();
        assert_eq!((rules.least_rows, rules.most_epochs), (500, None));
        for (text, what) in [
            ("least = 1", "least"),
            ("losses_to = [\"a*b*\"]", "a*b*"),
            ("losses_to = [\"Alice\"]", "Alice"),
            ("most_epochs = -1", "most_epochs"),
            ("most_epsilon = 0.0", "most_epsilon"),
            ("most_epsilon = nan", "most_epsilon"),
            ("most_epsilon = inf", "most_epsilon"),
            ("delta = 1.0", "delta"),
        ] {
            let error = load(text).unwrap_err().to_string();
            assert!(error.contains(what) && error.contains("megrez-rules"), "{error}");
        }
        let many = Rules { losses_to: vec!["a".into(); MAX_NAMES + 1], ..Rules::default() };
        assert!(many.check().is_err());
        let _ = std::fs::remove_file(path);
    }
}
