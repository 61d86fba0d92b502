//! What a party keeps of jobs: the job, what its owners said, and a checkpoint after each epoch.
//!
//! Each file ends with a hash, which is checked before anything is used. A checkpoint holds one
//! party's shares of what lasts from step to step, and of what was opened after earlier epochs.
//! What is opened after its own is opened from it, once all parties have it: whatever fails then,
//! the same is opened again. The parties make a name for each opening together; shares of two never
//! meet.

use super::super::sealed::{put, read, remove, write};
use super::super::stored::forbidden;
use crate::approval::now_s;
use crate::log::date;
use crate::protocols::Suite;
use crate::training::{Consent, Job, JobId, Opened};
use crate::{Error, ErrorKind, Result};
use megrez_device::AnyDevice;
use megrez_engine::store::{self, Id};
use megrez_engine::{Stored, files};
use megrez_plan::Value;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};

const JOB: &str = "megrez 2026 job record";
const PART: &str = "megrez 2026 job checkpoint";
const CONSENT: &str = "megrez 2026 job consent";
const TOLD: &str = "megrez 2026 job opening";
/// Most uploads that one owner's approval of a job is about.
pub(super) const MAX_OF: usize = 64;
/// Checkpoints of so many epochs are kept: the last may be one that not all parties have.
const KEEP: u32 = 2;

pub(super) fn digits(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A job's name in words.
pub(super) fn name(id: &JobId) -> String {
    digits(id)
}

/// What an owner has said of a job.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Given {
    job: [u8; 32],
    owner: String,
    /// The uploads that it is about, each with when the approval ends.
    of: Vec<(String, Id, Option<u64>)>,
    /// What was signed, with the signature: for whoever asks later.
    signed: Vec<(Consent, Vec<u8>)>,
}

fn consent_path(data: &Path, job: &[u8; 32], owner: &str) -> PathBuf {
    data.join("consents").join(format!("{}-{owner}.consent", digits(job)))
}

/// Writes down what an owner says of a job, besides what it has said of other uploads in it; `of`
/// are the owner's.
pub(super) fn consent(
    data: &Path,
    owner: &str,
    consent: &Consent,
    signature: &[u8],
    of: Vec<(String, Id)>,
) -> Result<()> {
    let path = consent_path(data, &consent.job, owner);
    let before = read::<Given>(CONSENT, &path)?;
    let (of_before, mut signed) = before.map_or((vec![], vec![]), |given| (given.of, given.signed));
    let others = of_before.into_iter().filter(|(name, ..)| of.iter().all(|(n, _)| n != name));
    let new = of.iter().map(|(name, upload)| (name.clone(), *upload, consent.until_s));
    let of: Vec<_> = others.chain(new).collect();
    // What says nothing of these any more is not kept.
    signed.retain(|(earlier, _)| {
        of.iter().any(|(name, ..)| earlier.of.contains(name) && !consent.of.contains(name))
    });
    signed.push((consent.clone(), signature.to_vec()));
    if of.len() > MAX_OF {
        return Err(forbidden(format!("an approval is about {MAX_OF} rows and weights at most")));
    }
    put(CONSENT, &path, &Given { job: consent.job, owner: owner.into(), of, signed })
}

/// Forgets what an owner has said of a job: the names that it was about, if it has said anything.
pub(super) fn withdraw(data: &Path, owner: &str, job: &[u8; 32]) -> Result<Option<Vec<String>>> {
    let path = consent_path(data, job, owner);
    // What cannot be read is taken back all the same.
    let given = read::<Given>(CONSENT, &path);
    remove(&path)?;
    Ok(given?.map(|given| given.of.into_iter().map(|(name, ..)| name).collect()))
}

/// What owners have said of jobs, at most so many: the job's hash in digits, who, and about what.
pub(super) fn consents(data: &Path, most: usize) -> Vec<(String, String, String)> {
    let found = files::of_extension(&data.join("consents"), "consent").unwrap_or_default();
    let read = |(path, _): &(PathBuf, _)| {
        let given = read::<Given>(CONSENT, path).ok()??;
        let of: Vec<&str> = given.of.iter().map(|(name, ..)| name.as_str()).collect();
        Some((digits(&given.job), given.owner, of.join(", ")))
    };
    found.iter().filter_map(read).take(most).collect()
}

/// Whether an owner has approved a job with something in it that the job uses.
pub(super) fn has_consented(data: &Path, job: &Job, owner: &str) -> bool {
    let given = read::<Given>(CONSENT, &consent_path(data, &job.hash(), owner));
    matches!(given, Ok(Some(given)) if given.of.iter().any(|(name, ..)| job.uses(name)))
}

/// Makes sure that an owner has approved the job, with this upload in it.
///
/// # Errors
/// [`ErrorKind::NotPermitted`], in words that name the hash.
pub(super) fn approved(data: &Path, job: &[u8; 32], owner: &str, upload: (&str, Id)) -> Result<()> {
    let given: Option<Given> = read(CONSENT, &consent_path(data, job, owner))?;
    let given = given.filter(|given| given.job == *job && given.owner == owner);
    let found = given.and_then(|given| given.of.into_iter().find(|(n, id, _)| (n.as_str(), *id) == upload));
    match found {
        Some((_, _, Some(until))) if until <= now_s() => {
            let what = format!("`{owner}` has approved the job {} until {}", digits(job), date(until));
            return Err(forbidden(format!("{what}, and that is over")));
        }
        Some(_) => return Ok(()),
        None => {}
    }
    let hash = digits(job);
    Err(forbidden(format!("`{owner}`, who has a say in `{}`, has not approved the job {hash}", upload.0)))
}

/// Where a party keeps a job's files.
pub(super) struct Folder<'a> {
    data: &'a Path,
    id: JobId,
}

/// A checkpoint without its values.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Checkpoint {
    pub(super) job: [u8; 32],
    pub(super) party: usize,
    /// Epochs that are done.
    pub(super) epoch: u32,
    /// A name that the parties have made together.
    pub(super) tag: Id,
    /// What was opened after earlier epochs, by recipient.
    pub(super) opened: Vec<(String, Opened)>,
    /// Sealed values by name.
    values: Vec<(String, Vec<u8>)>,
}

impl Checkpoint {
    /// Puts the state into it.
    pub(super) fn fill(&mut self, suite: &Suite, device: &AnyDevice, state: &Stored) -> Result<()> {
        let encode = |(name, value): (&String, _)| {
            let bytes = store::encode_value(suite, device, value);
            Ok((name.clone(), bytes.map_err(|e| Error::of(ErrorKind::Internal, e))?))
        };
        self.values = state.iter().map(encode).collect::<Result<_>>()?;
        Ok(())
    }

    /// The state that is in it, of these types.
    pub(super) fn state(
        &self,
        suite: &Suite,
        device: &AnyDevice,
        types: &[(String, Value)],
    ) -> Result<Stored> {
        let damaged = |name: &str| {
            Error::of(
                ErrorKind::DamagedFile,
                format!("the checkpoint does not hold `{name}` as the job has it"),
            )
        };
        let of = |(name, _): &(String, Value)| {
            let bytes = self.values.iter().find(|(n, _)| n == name).map(|(_, bytes)| bytes);
            let value = bytes.and_then(|bytes| store::decode_value(suite, device, bytes));
            Ok((name.clone(), value.ok_or_else(|| damaged(name))?))
        };
        types.iter().map(of).collect()
    }
}

impl<'a> Folder<'a> {
    pub(super) fn new(data: &'a Path, id: JobId) -> Self {
        Folder { data, id }
    }

    fn job_path(&self) -> PathBuf {
        self.data.join("jobs").join(format!("{}.job", name(&self.id)))
    }

    fn part_path(&self, epoch: u32) -> PathBuf {
        self.data.join("jobs").join(format!("{}.{epoch}.part", name(&self.id)))
    }

    /// The names of all jobs of a party.
    pub(super) fn all(data: &Path) -> Result<Vec<JobId>> {
        let folder = data.join("jobs");
        let entries = match std::fs::read_dir(&folder) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(vec![]),
            entries => entries.map_err(|e| Error::storage(&folder, e))?,
        };
        let id = |entry: io::Result<std::fs::DirEntry>| {
            let name = entry.ok()?.file_name().into_string().ok()?;
            let digits = name.strip_suffix(".job")?;
            let bytes =
                (0..digits.len() / 2).map(|i| u8::from_str_radix(digits.get(2 * i..2 * i + 2)?, 16).ok());
            JobId::try_from(bytes.collect::<Option<Vec<u8>>>()?).ok()
        };
        let mut all: Vec<JobId> = entries.filter_map(id).collect();
        all.sort_unstable();
        Ok(all)
    }

    fn told_path(&self, epoch: u32) -> PathBuf {
        self.data.join("jobs").join(format!("{}.{epoch}.told", name(&self.id)))
    }

    fn record(&self) -> Result<Option<(Job, Vec<Id>)>> {
        let record: Option<(Job, Vec<Id>)> = read(JOB, &self.job_path())?;
        match record {
            Some((job, _)) if job.id() != self.id => {
                Err(Error::damaged(&self.job_path(), "is of another job"))
            }
            record => Ok(record),
        }
    }

    /// The job, if this party has begun it.
    pub(super) fn job(&self) -> Result<Option<Job>> {
        Ok(self.record()?.map(|(job, _)| job))
    }

    /// Writes the job down, and of which uploads its rows and weights are: it goes on with these
    /// and with no others.
    pub(super) fn begin(&self, job: &Job, uploads: &[Id]) -> Result<()> {
        match self.record()? {
            None => write(JOB, &self.job_path(), &(job, uploads)),
            Some((old, _)) if old != *job => {
                Err(Error::Refused("another job of this name has begun: make it anew".into()))
            }
            Some((_, old)) if old != uploads => {
                let what = "rows or weights of the job were stored anew since it has begun: make another job";
                Err(Error::Refused(what.into()))
            }
            Some(_) => Ok(()),
        }
    }

    /// What was opened after an epoch, as far as this party knows.
    pub(super) fn told(&self, epoch: u32) -> Result<Vec<(String, Opened)>> {
        Ok(read(TOLD, &self.told_path(epoch))?.unwrap_or_default())
    }

    /// Writes down what was opened after an epoch.
    pub(super) fn tell(&self, epoch: u32, opened: &[(String, Opened)]) -> Result<()> {
        put(TOLD, &self.told_path(epoch), &opened)
    }

    /// The last epoch whose checkpoint this party has; 0 for none.
    pub(super) fn newest(&self) -> Result<u32> {
        let folder = self.data.join("jobs");
        let entries = match std::fs::read_dir(&folder) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(0),
            entries => entries.map_err(|e| Error::storage(&folder, e))?,
        };
        let prefix = format!("{}.", name(&self.id));
        let epoch = |entry: io::Result<std::fs::DirEntry>| {
            let name = entry.ok()?.file_name().into_string().ok()?;
            name.strip_prefix(&prefix)?.strip_suffix(".part")?.parse::<u32>().ok()
        };
        Ok(entries.filter_map(epoch).max().unwrap_or(0))
    }

    /// The checkpoint after an epoch; an empty one before the first.
    pub(super) fn checkpoint(&self, job: &Job, party: usize, epoch: u32) -> Result<Checkpoint> {
        let hash = job.hash();
        if epoch == 0 {
            return Ok(Checkpoint { job: hash, party, ..Checkpoint::default() });
        }
        let path = self.part_path(epoch);
        let found: Option<Checkpoint> = read(PART, &path)?;
        match found {
            None => {
                let what =
                    format!("this party has no checkpoint of epoch {epoch} of the job {}", name(&self.id));
                Err(Error::of(ErrorKind::DamagedFile, what))
            }
            Some(found) if (found.job, found.party, found.epoch) != (hash, party, epoch) => {
                Err(Error::damaged(&path, "is of another job, party or epoch: put this party's own back"))
            }
            Some(found) => Ok(found),
        }
    }

    /// What comes after an epoch is forgotten: not all parties have it.
    pub(super) fn forget_after(&self, epoch: u32) -> Result<()> {
        (epoch + 1..=self.newest()?).try_for_each(|later| {
            remove(&self.told_path(later))?;
            remove(&self.part_path(later))
        })
    }

    /// Writes a checkpoint, and removes those that nobody needs any more.
    pub(super) fn keep(&self, checkpoint: &Checkpoint) -> Result<()> {
        let epoch = checkpoint.epoch;
        write(PART, &self.part_path(epoch), checkpoint)?;
        if epoch > KEEP {
            remove(&self.part_path(epoch - KEEP))?;
            remove(&self.told_path(epoch - KEEP))?;
        }
        Ok(())
    }
}
