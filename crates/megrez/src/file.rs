//! A setting that stands in a file of its own, or where it is used.

use megrez_service::{Error, Result};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::convert::Infallible;
use std::path::PathBuf;
use std::str::FromStr;

/// A file, JSON or TOML by its ending, or what would stand in one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum FileOr {
    /// The path of a file.
    File(PathBuf),
    /// What it says.
    Value(Value),
}

impl FromStr for FileOr {
    type Err = Infallible;

    fn from_str(path: &str) -> std::result::Result<Self, Infallible> {
        Ok(FileOr::File(path.into()))
    }
}

impl FileOr {
    /// What is said; `what` names it.
    ///
    /// # Errors
    /// If there is no such file, or it says something else.
    pub(crate) fn load<T: DeserializeOwned>(&self, what: &str) -> Result<T> {
        let path = match self {
            FileOr::File(path) => path,
            FileOr::Value(value) => {
                return T::deserialize(value)
                    .map_err(|e| self.wrong(what, format!("is not understood: {e}")));
            }
        };
        let text = std::fs::read_to_string(path).map_err(|e| Error::file(path, e))?;
        match path.extension().is_some_and(|ending| ending == "toml") {
            true => toml::from_str(&text).map_err(|e| Error::file(path, e)),
            false => serde_json::from_str(&text).map_err(|e| Error::file(path, e)),
        }
    }

    /// What is wrong with it: of the file, or of `what`.
    pub(crate) fn wrong(&self, what: &str, problem: String) -> Error {
        match self {
            FileOr::File(path) => Error::file(path, problem),
            FileOr::Value(_) => Error::Refused(format!("{what} {problem}")),
        }
    }
}
