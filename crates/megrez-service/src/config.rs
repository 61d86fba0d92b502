//! The two configuration files: `cluster.toml`, the same for everybody, and each party's own
//! `party.toml`.

use crate::log::LogConfig;
use crate::party::Capacity;
use crate::{Error, Result};
use megrez_device::DeviceChoice;
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
    /// `host:port` of every party, in order.
    pub parties: Vec<String>,
}

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
    /// The folder for stored models and material.
    pub data: PathBuf,
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
        if !(1..=3).contains(&config.parties.len()) {
            return Err(Error::file(path, "`parties` names 2 or 3 addresses"));
        }
        if let Some(bad) = config.parties.iter().find(|p| !p.contains(':')) {
            return Err(Error::file(path, format!("`{bad}` has no port: write host:port")));
        }
        Ok(config)
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
