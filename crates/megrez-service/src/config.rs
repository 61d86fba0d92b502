//! The two configuration files: `cluster.toml`, the same for everybody, and each party's own
//! `party.toml`.

use crate::log::LogConfig;
use crate::party::{Capacity, Models, Settings, TraceConfig};
use crate::{Error, Result};
use megrez_device::DeviceChoice;
use megrez_weights::Folder;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Largest configuration file, in bytes.
const MAX_FILE: u64 = 1 << 20;
/// Longest idle timeout, in seconds: clocks can't be set to any time.
const MAX_SILENCE: u64 = 24 * 3600;

/// `cluster.toml`: where the parties are. Clients and parties read the same file.
///
/// ```toml
/// parties = ["party0.example.org:7700", "party1.example.org:7700", "party2.example.org:7700"]
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterConfig {
    /// `host:port` of every party, in order: of replica 0, or of all of them, with `{replica}` in
    /// place of the number.
    pub parties: Vec<String>,
    /// How often every party is there. Default: once.
    #[serde(default, skip_serializing_if = "Replicas::is_none")]
    pub replicas: Replicas,
}

/// Further parties that do the same as the first ones. Replica k of each makes a triple, or a pair,
/// which runs sessions by itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Replicas {
    /// So many in all, whose addresses differ in their number.
    Count(usize),
    /// The addresses of the second and all further ones.
    Further(Vec<Vec<String>>),
}

impl Default for Replicas {
    fn default() -> Self {
        Replicas::Further(vec![])
    }
}

impl Replicas {
    fn is_none(&self) -> bool {
        *self == Replicas::default()
    }
}

/// Most replicas of a party.
const MAX_REPLICAS: usize = 1024;
/// What stands for a replica's number.
const NUMBER: &str = "{replica}";

/// `party.toml`: one party's own settings. Paths are relative to the file.
///
/// ```toml
/// party = 0
/// listen = "0.0.0.0:7700"
/// cluster = "cluster.toml"
/// certs = "certs"
/// data = "data"
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartyConfig {
    /// Which party this is, from 0.
    pub party: usize,
    /// The address to listen on.
    pub listen: String,
    /// The cluster file.
    pub cluster: PathBuf,
    /// The folder with `ca.pem`, `party<i>.pem` and `party<i>.key`.
    pub certs: PathBuf,
    /// Which replica of the party this is, from 0. Default: 0.
    #[serde(default)]
    pub replica: usize,
    /// The folder for stored models and material.
    pub data: PathBuf,
    /// The folder for stored models where this party has replicas, which share it. Default:
    /// `models` in the data folder.
    #[serde(default)]
    pub models: Option<PathBuf>,
    /// A file with a key, 64 hexadecimal digits, with which files in `models` are sealed. Default:
    /// they are not.
    #[serde(default)]
    pub models_key: Option<PathBuf>,
    /// The folder of public weights, files that plans name by their hash. Nobody but this party may
    /// write there. Default: `$MEGREZ_WEIGHTS`, or `weights` in the user's cache folder, or in the
    /// data folder.
    #[serde(default)]
    pub weights: Option<PathBuf>,
    /// Where this party computes: `auto`, `cpu` or `cuda:N`. Default: `auto`, the first GPU if it
    /// can be used.
    #[serde(default)]
    pub device: DeviceChoice,
    /// Whether clients may ask for artificial delays and rates, for measurements. Default: no.
    #[serde(default)]
    pub allow_shaping: bool,
    /// Whether clients may ask for protocols that do not protect. Default: no.
    #[serde(default)]
    pub allow_insecure: bool,
    /// Seconds without a sign of life after which a peer is taken for dead. Default: 30.
    #[serde(default = "default_silence")]
    pub silence_seconds: u64,
    /// Most sessions at a time; further requests wait. What party 0 says counts. Default: 16.
    #[serde(default = "crate::party::capacity::sixteen")]
    pub max_sessions: usize,
    /// Most elements that the values of one plan may have together; larger plans are refused.
    /// Default: 2^28, which is 2 GiB on the 64-bit ring before masks and material.
    #[serde(default = "default_elements")]
    pub max_elements: usize,
    /// How much this party does at a time, altogether and for one client.
    #[serde(default)]
    pub capacity: Capacity,
    /// Where an operator's tools ask over HTTP for `/livez`, `/readyz` and `/metrics`: an address
    /// that others should not reach, such as `127.0.0.1:7701`. Default: nowhere.
    #[serde(default)]
    pub admin: Option<String>,
    /// Where this party writes down who asked for what. Default: `audit.jsonl` in the data folder.
    #[serde(default)]
    pub audit: Option<PathBuf>,
    /// Where this party writes down when phases and steps of sessions began and ended. Default:
    /// nowhere.
    #[serde(default)]
    pub traces: Option<TraceConfig>,
    /// What clients may ask for, a `policy.toml`. Default: everything that a certificate allows.
    #[serde(default)]
    pub policy: Option<PathBuf>,
    /// What is logged, and how. Default: text, from level `info`.
    #[serde(default)]
    pub log: LogConfig,
}

fn default_silence() -> u64 {
    30
}

fn default_elements() -> usize {
    1 << 28
}

/// The folder of public weights that was chosen, or that of the user, or one in the data folder.
pub(crate) fn public_weights(chosen: Option<PathBuf>, data: &Path) -> Folder {
    Folder::at(chosen.or_else(megrez_weights::user_folder).unwrap_or_else(|| data.join("weights")))
}

fn read<T: for<'a> Deserialize<'a>>(path: &Path) -> Result<T> {
    let size = std::fs::metadata(path).map_err(|e| Error::file(path, e))?.len();
    if size > MAX_FILE {
        return Err(Error::file(path, "is too large for a configuration file"));
    }
    let text = std::fs::read_to_string(path).map_err(|e| Error::file(path, e))?;
    toml::from_str(&text).map_err(|e| Error::file(path, e))
}

impl ClusterConfig {
    /// Reads and checks the file.
    pub fn load(path: &Path) -> Result<Self> {
        let config: ClusterConfig = read(path)?;
        let wrong = |what: String| Err(Error::file(path, what));
        if !(1..=3).contains(&config.parties.len()) {
            return wrong("`parties` names 2 or 3 addresses".into());
        }
        let numbered = config.parties.iter().filter(|p| p.contains(NUMBER)).count();
        match &config.replicas {
            Replicas::Count(count) if !(1..=MAX_REPLICAS).contains(count) => {
                return wrong(format!("`replicas` is 1 to {MAX_REPLICAS}"));
            }
            Replicas::Count(_) if numbered < config.parties.len() => {
                return wrong(format!(
                    "`replicas` is a number, so every address in `parties` has `{NUMBER}` in place of it; or list the \
                     addresses: replicas = [[\"host:port\", …]]"
                ));
            }
            Replicas::Further(_) if numbered > 0 => {
                return wrong(format!(
                    "`{NUMBER}` stands in `parties`, and `replicas` does not say how many"
                ));
            }
            Replicas::Further(more) if more.len() >= MAX_REPLICAS => {
                return wrong(format!("there are at most {MAX_REPLICAS} replicas"));
            }
            Replicas::Further(more) if more.iter().any(|parties| parties.len() != config.parties.len()) => {
                return wrong(format!(
                    "each of `replicas` names {} addresses, as `parties` does",
                    config.parties.len()
                ));
            }
            Replicas::Count(_) | Replicas::Further(_) => {}
        }
        let all: Vec<String> = config.triples().concat();
        if let Some(bad) = all.iter().find(|p| !p.contains(':')) {
            return wrong(format!("`{bad}` has no port: write host:port"));
        }
        if let Some(twice) = all.iter().enumerate().find(|(i, p)| !p.ends_with(":0") && all[..*i].contains(p))
        {
            return wrong(format!("`{}` is named twice", twice.1));
        }
        Ok(config)
    }

    /// The addresses of all parties, by replica.
    #[must_use]
    pub fn triples(&self) -> Vec<Vec<String>> {
        match &self.replicas {
            Replicas::Count(count) => {
                let of = |replica: usize| {
                    self.parties.iter().map(|p| p.replace(NUMBER, &replica.to_string())).collect()
                };
                (0..*count).map(of).collect()
            }
            Replicas::Further(more) => std::iter::once(&self.parties).chain(more).cloned().collect(),
        }
    }

    /// The addresses of one replica's parties.
    ///
    /// # Errors
    /// If there is no such replica.
    pub fn triple(&self, replica: usize) -> Result<Vec<String>> {
        let mut all = self.triples();
        if replica < all.len() {
            return Ok(all.swap_remove(replica));
        }
        let what =
            format!("there is no replica {replica}: the cluster's file has {}, counted from 0", all.len());
        Err(Error::Refused(what))
    }
}

impl PartyConfig {
    /// Reads and checks the file; paths become relative to its folder.
    pub fn load(path: &Path) -> Result<Self> {
        let mut config: PartyConfig = read(path)?;
        let folder = path.parent().unwrap_or(Path::new("."));
        for p in [&mut config.cluster, &mut config.certs, &mut config.data] {
            *p = folder.join(&*p);
        }
        config.audit = Some(config.audit.map_or_else(|| config.data.join("audit.jsonl"), |p| folder.join(p)));
        config.policy = config.policy.map(|p| folder.join(p));
        if let Some(traces) = &mut config.traces {
            traces.file = folder.join(&traces.file);
        }
        config.models = config.models.map(|p| folder.join(p));
        config.weights = config.weights.map(|p| folder.join(p));
        config.models_key = config.models_key.map(|p| folder.join(p));
        if config.models_key.is_some() && config.models.is_none() {
            return Err(Error::file(path, "`models_key` is the key of the folder `models`: name that, too"));
        }
        if config.silence_seconds == 0 || config.max_sessions == 0 {
            return Err(Error::file(path, "`silence_seconds` and `max_sessions` are at least 1"));
        }
        config.capacity.max_sessions = config.max_sessions;
        config.capacity.check().map_err(|what| Error::file(path, format!("[capacity]: {what}")))?;
        if config.silence_seconds > MAX_SILENCE {
            return Err(Error::file(path, format!("`silence_seconds` is at most {MAX_SILENCE}, a day")));
        }
        Ok(config)
    }

    /// The folder of public weights.
    pub fn weights(&self) -> Folder {
        public_weights(self.weights.clone(), &self.data)
    }

    /// What is allowed, and how much at a time.
    #[must_use]
    pub fn settings(&self) -> Settings {
        Settings {
            capacity: self.capacity.clone(),
            max_elements: self.max_elements,
            allow_shaping: self.allow_shaping,
            allow_insecure: self.allow_insecure,
        }
    }

    /// Where this party listens to others, and where it keeps models.
    ///
    /// # Errors
    /// If the cluster has no such replica, its replicas share no models, or the key is of no use.
    pub fn place(&self, cluster: &ClusterConfig) -> Result<(Vec<String>, Models)> {
        let peers = cluster.triple(self.replica)?;
        let models = match &self.models {
            Some(folder) => Models::shared(folder, self.models_key.as_deref())?,
            None if cluster.triples().len() > 1 => {
                return Err(Error::Refused(
                    "the cluster has replicas, and those of a party share its models: name the folder as `models` in \
                     party.toml"
                        .into(),
                ));
            }
            None => Models::of(&self.data),
        };
        Ok((peers, models))
    }
}

impl PartyConfig {
    /// Where the other replicas of this party listen.
    #[must_use]
    pub fn other_replicas(&self, cluster: &ClusterConfig) -> Vec<String> {
        let triples = cluster.triples().into_iter().enumerate();
        let others = triples.filter(|(replica, _)| *replica != self.replica);
        others
            .filter_map(|(_, mut parties)| {
                (self.party < parties.len()).then(|| parties.swap_remove(self.party))
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, text: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("megrez-config-{}-{name}", std::process::id()));
        std::fs::write(&path, text).unwrap();
        path
    }

    #[test]
    fn mistakes_name_the_file_and_the_line() {
        let path = file(
            "a.toml",
            "party = 0\nlisten = \"x:1\"\ncluster = \"c\"\ncerts = \"c\"\ndata = \"d\"\ntypo = 1\n",
        );
        let error = PartyConfig::load(&path).unwrap_err().to_string();
        assert!(error.contains("a.toml") && error.contains("typo"), "{error}");
        let path = file(
            "e.toml",
            "party = 0\nlisten = \"x:1\"\ncluster = \"c\"\ncerts = \"c\"\ndata = \"d\"\ndevice = \"gpu\"\n",
        );
        assert!(PartyConfig::load(&path).unwrap_err().to_string().contains("cuda:N"));
        let path = file(
            "f.toml",
            "party = 0\nlisten = \"x:1\"\ncluster = \"c\"\ncerts = \"c\"\ndata = \"d\"\nlog = { level = \"loud\" }\n",
        );
        assert!(PartyConfig::load(&path).unwrap_err().to_string().contains("warn"));
        let path = file("b.toml", "parties = [\"here\"]");
        assert!(ClusterConfig::load(&path).unwrap_err().to_string().contains("host:port"));
        let path = file("c.toml", "parties = [");
        assert!(ClusterConfig::load(&path).is_err());
        let parties = "parties = [\"a:1\", \"b:1\"]\n";
        for (text, what) in [
            (format!("{parties}replicas = 2"), "{replica}"),
            (format!("{parties}replicas = [[\"c:1\"]]"), "2 addresses"),
            (format!("{parties}replicas = [[\"c:1\", \"b:1\"]]"), "named twice"),
            (format!("{parties}replicas = [[\"c:1\", \"d\"]]"), "host:port"),
            ("parties = [\"a{replica}:1\", \"b{replica}:1\"]".to_owned(), "how many"),
            ("parties = [\"a{replica}:1\", \"b{replica}:1\"]\nreplicas = 0".to_owned(), "1 to 1024"),
        ] {
            let error = ClusterConfig::load(&file("g.toml", &text)).unwrap_err().to_string();
            assert!(error.contains(what), "{text}: {error}");
        }
    }

    #[test]
    fn replicas_are_numbered_or_listed() {
        let text = "parties = [\"a{replica}:1\", \"b-{replica}.org:2\"]\nreplicas = 3";
        let config = ClusterConfig::load(&file("h.toml", text)).unwrap();
        assert_eq!(config.triples()[2], ["a2:1", "b-2.org:2"]);
        let text = "parties = [\"a:1\", \"b:1\"]\nreplicas = [[\"c:1\", \"d:1\"]]";
        let config = ClusterConfig::load(&file("i.toml", text)).unwrap();
        assert_eq!(config.triples(), [["a:1", "b:1"], ["c:1", "d:1"]]);
        assert!(config.triple(2).unwrap_err().to_string().contains("has 2"));
        // Replicas keep their models together.
        let text = "party = 1\nlisten = \"x:1\"\ncluster = \"c\"\ncerts = \"c\"\ndata = \"d\"\nreplica = 1\n";
        let party = PartyConfig::load(&file("j.toml", text)).unwrap();
        assert!(party.place(&config).unwrap_err().to_string().contains("`models`"));
        let party = PartyConfig::load(&file("k.toml", &format!("{text}models = \"/shared\"\n"))).unwrap();
        let (peers, models) = party.place(&config).unwrap();
        assert_eq!(
            (peers, models.folder()),
            (vec!["c:1".to_owned(), "d:1".to_owned()], Path::new("/shared"))
        );
        let error = PartyConfig::load(&file("l.toml", &format!("{text}models_key = \"k\"\n"))).unwrap_err();
        assert!(error.to_string().contains("name that, too"));
    }

    #[test]
    fn paths_are_relative_to_the_file() {
        let path = file(
            "d.toml",
            "party = 2\nlisten = \"x:1\"\ncluster = \"c.toml\"\ncerts = \"c\"\ndata = \"/d\"\n",
        );
        let config = PartyConfig::load(&path).unwrap();
        assert_eq!(config.device, DeviceChoice::Auto);
        assert_eq!(config.cluster, path.parent().unwrap().join("c.toml"));
        assert_eq!(config.data, Path::new("/d"));
        assert!(!config.allow_insecure && !config.allow_shaping);
        assert_eq!(config.log, LogConfig::default());
    }
}
