//! What parties keep for a client: asked for, let to others, and removed.

use super::Cluster;
use super::lines::unexpected;
use crate::log::timestamp;
use crate::wire::{Reply, Request, StoredItem, StoredKind};
use crate::{Error, ErrorKind, Result};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::{Duration, UNIX_EPOCH};

/// A model, rows or material, as all parties tell of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Holding {
    /// What it is.
    pub kind: StoredKind,
    /// Its name; of material the name of the batch.
    pub name: String,
    /// Whose it is.
    pub owner: String,
    /// Who else may use it, which only its owner is told.
    pub allow: Vec<String>,
    /// The protocol in whose sharing it is; none of material.
    pub protocol: Option<String>,
    /// The batch sizes that its owner approved.
    pub batches: Vec<usize>,
    /// Its size at the party that has most of it, in bytes.
    pub bytes: u64,
    /// When the last party wrote it, by that party's clock: RFC 3339, in UTC.
    pub written: String,
    /// The parties that have it.
    pub parties: Vec<usize>,
    /// All parties have it, of one upload or preparation, for the same clients. Anything else is of
    /// no use: say again who may use it, or remove it and upload it again.
    pub whole: bool,
}

/// Parties may say anything: no later than the last second that has four digits for its year.
const LATEST: u64 = 253_402_300_799;

impl Holding {
    fn new(items: &[(usize, StoredItem)], of: usize) -> Self {
        let (_, first) = &items[0];
        let alike = |item: &StoredItem| {
            let of = |item: &StoredItem| (item.made, item.owner.clone(), item.allow.clone());
            of(item) == of(first)
        };
        let written = items.iter().map(|(_, item)| item.written_s).max().unwrap_or_default();
        Holding {
            kind: first.kind,
            name: first.name.clone(),
            owner: first.owner.clone(),
            allow: first.allow.clone(),
            protocol: first.protocol.clone(),
            batches: first.batches.clone(),
            bytes: items.iter().map(|(_, item)| item.bytes).max().unwrap_or_default(),
            written: timestamp(UNIX_EPOCH + Duration::from_secs(written.min(LATEST))),
            parties: items.iter().map(|(party, _)| *party).collect(),
            whole: items.len() == of && items.iter().all(|(_, item)| alike(item)),
        }
    }
}

impl Cluster {
    /// What the parties keep that this client owns or may use: models, rows, and material of its
    /// own, each sorted by name.
    ///
    /// # Errors
    /// If a party cannot say.
    pub fn holdings(&mut self) -> Result<Vec<Holding>> {
        let told = self.attempt(|cluster| {
            cluster.ask(&Request::Stored)?;
            cluster.each(|party, reply| match reply {
                Reply::Stored(items) => Ok((party, items)),
                other => Err(unexpected(party, &other)),
            })
        })?;
        let all = told.len();
        let mut items = BTreeMap::<_, Vec<_>>::new();
        for (party, item) in
            told.into_iter().flat_map(|(party, told)| told.into_iter().map(move |i| (party, i)))
        {
            items.entry((item.kind, item.name.clone())).or_default().push((party, item));
        }
        // A party has a thing once, whatever it says.
        items.values_mut().for_each(|items| items.dedup_by_key(|(party, _)| *party));
        Ok(items.values().map(|items| Holding::new(items, all)).collect())
    }

    /// Lets these clients, and no others but this one, use a model or rows that it has stored.
    ///
    /// # Errors
    /// If there are none of this name, or they are somebody else's.
    pub fn allow(&mut self, model: &str, allow: &[String]) -> Result<()> {
        self.told_all(&Request::Allow { model: model.into(), allow: allow.to_vec() })
    }

    /// Removes a model or rows that this client has stored, from every party that has them.
    ///
    /// # Errors
    /// If no party has any of this name, or they are somebody else's.
    pub fn remove(&mut self, model: &str) -> Result<()> {
        let what = format!("there is no model `{model}` that `{}` may remove", self.name());
        self.removed(&Request::Remove { model: model.into() }, what)
    }

    /// Removes material that was made for this client and is not used up.
    ///
    /// # Errors
    /// If no party has it.
    pub fn discard(&mut self, material: [u8; 16]) -> Result<()> {
        let what = "there is no such material: it was never made for this client, or is used up".into();
        self.removed(&Request::Discard { material }, what)
    }

    fn removed(&mut self, request: &Request, absent: String) -> Result<()> {
        let held = self.attempt(|cluster| {
            cluster.ask(request)?;
            cluster.each(|party, reply| match reply {
                Reply::Removed(held) => Ok(held),
                other => Err(unexpected(party, &other)),
            })
        })?;
        if held.contains(&true) { Ok(()) } else { Err(Error::of(ErrorKind::NotPermitted, absent)) }
    }
}
