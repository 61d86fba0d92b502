//! How often clients have used what owners have let them use up to a limit.
//!
//! Counts are on the disk before anything is done in a session, and count on after a restart. Each
//! replica of a party counts by itself.

use super::models::Models;
use super::sealed;
use super::stored::{ModelHeader, forbidden};
use crate::approval::Grant;
use crate::wire::{Run, Source};
use crate::{Error, Result};
use megrez_engine::files;
use megrez_engine::store::Id;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

const PURPOSE: &str = "megrez 2026 uses";
/// What they are in, below a party's data.
const FOLDER: &str = "uses";
const EXTENSION: &str = "uses";

/// What a client has used of one approval.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Used {
    upload: Id,
    grant: Grant,
    runs: u64,
    rows: u64,
}

/// The counts of a party.
#[derive(Default)]
pub(super) struct Uses {
    /// Counts are read and written by one at a time.
    alone: Mutex<()>,
}

/// A use that is about to begin.
pub(super) struct Use<'a> {
    pub(super) model: &'a ModelHeader,
    pub(super) runs: u64,
    pub(super) rows: u64,
}

impl<'a> Use<'a> {
    /// What a run of a stored model uses of it.
    pub(super) fn of(run: &Run, model: Option<&'a ModelHeader>) -> Option<Self> {
        let batch = match &run.source {
            Source::Model { batch, .. } => *batch as u64,
            Source::Plan(_) => 0,
        };
        let runs = u64::from(run.runs);
        model.map(|model| Use { model, runs, rows: runs.saturating_mul(batch) })
    }
}

fn path(data: &Path, model: &str, client: &str) -> PathBuf {
    data.join(FOLDER).join(model).join(format!("{client}.{EXTENSION}"))
}

impl Uses {
    /// What a client has used once this is counted, and where that stands; `None` if its owner sets
    /// no limit.
    ///
    /// # Errors
    /// If it would be more than its owner lets it, or the count cannot be read.
    pub(super) fn left(&self, data: &Path, client: &str, of: &Use<'_>) -> Result<Option<(PathBuf, Used)>> {
        let Use { model, runs, rows } = of;
        let Some(grant) = model.grant(client) else { return Ok(None) };
        if grant.runs.is_none() && grant.rows.is_none() {
            return Ok(None);
        }
        let path = path(data, model.name(), client);
        let before: Used = sealed::read(PURPOSE, &path)?.unwrap_or_default();
        // What was used of an earlier approval is not of this one.
        let same = (before.upload, &before.grant) == (model.upload, grant);
        let (runs_before, rows_before) = if same { (before.runs, before.rows) } else { (0, 0) };
        let used = Used {
            upload: model.upload,
            grant: grant.clone(),
            runs: runs_before.saturating_add(*runs),
            rows: rows_before.saturating_add(*rows),
        };
        let Grant { runs: most_runs, rows: most_rows, .. } = grant;
        let counts =
            [("runs", most_runs, used.runs, runs_before), ("rows", most_rows, used.rows, rows_before)];
        for (what, most, all, before) in counts {
            if let Some(most) = most.filter(|most| all > *most) {
                return Err(forbidden(format!(
                    "`{}` lets `{client}` have {most} {what} of the model `{}`: {before} are used, {} more were asked \
                     for",
                    model.owner,
                    model.name(),
                    all - before
                )));
            }
        }
        Ok(Some((path, used)))
    }

    /// Counts a use of a client's, if its owner limits how many there may be, and lets it be still.
    ///
    /// # Errors
    /// If it would be more than that, or cannot be counted.
    pub(super) fn count(&self, data: &Path, models: &Models, client: &str, of: &Use<'_>) -> Result<()> {
        let _alone = self.alone.lock().unwrap_or_else(PoisonError::into_inner);
        of.model.still_lets(models, client)?;
        match self.left(data, client, of)? {
            Some((path, used)) => sealed::put(PURPOSE, &path, &used),
            None => Ok(()),
        }
    }

    /// Removes what a crash has left of counts that were being written; says what.
    ///
    /// # Errors
    /// If it cannot be removed.
    pub(super) fn sweep(data: &Path) -> Result<Vec<PathBuf>> {
        let folder = data.join(FOLDER);
        let models = match std::fs::read_dir(&folder) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(vec![]),
            models => models.map_err(|e| Error::storage(&folder, e))?,
        };
        let mut swept = vec![];
        for model in models {
            let model = model.map_err(|e| Error::storage(&folder, e))?.path();
            if model.is_dir() {
                swept.extend(files::sweep(&model).map_err(|e| Error::file(&model, e))?);
            }
        }
        Ok(swept)
    }

    /// Forgets all uses of a model that is removed.
    ///
    /// # Errors
    /// If the counts cannot be removed.
    pub(super) fn forget(&self, data: &Path, model: &str) -> Result<()> {
        let folder = data.join(FOLDER).join(model);
        let _alone = self.alone.lock().unwrap_or_else(PoisonError::into_inner);
        match std::fs::remove_dir_all(&folder) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(Error::storage(&folder, e)),
            _ => Ok(()),
        }
    }
}
