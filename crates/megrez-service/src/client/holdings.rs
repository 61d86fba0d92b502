//! What parties keep for a client: asked for, let to others, and removed.

use super::lines::unexpected;
use super::{Cluster, Description};
use crate::approval::{Approval, Grant, Guarantees, Looks, Rules, Usage, now_s};
use crate::audit::Subject;
use crate::log::date;
use crate::protocols::is_float;
use crate::training::Job;
use crate::wire::{Reply, Request, StoredItem, StoredKind};
use crate::{Error, ErrorKind, Result};
use serde::Serialize;
use std::collections::BTreeMap;

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
    /// The limits of those who may use it up to one; others than its owner are told their own.
    pub limits: Vec<Grant>,
    /// What jobs on these rows have to keep to.
    pub rules: Option<Rules>,
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
    /// Which upload or preparation it is of, at the first party that has it.
    #[serde(skip)]
    pub made: [u8; 16],
    /// All parties have it, of one upload or preparation and of one owner. If not, remove it and
    /// upload it again.
    #[serde(skip)]
    pub complete: bool,
    /// It is complete, and all parties have heard the same of who may use it. If not, say it again.
    pub whole: bool,
}

impl Holding {
    fn new(items: &[(usize, StoredItem)], of: usize) -> Self {
        let (_, first) = &items[0];
        let one = |item: &StoredItem| (item.made, &item.owner) == (first.made, &first.owner);
        let complete = items.len() == of && items.iter().all(|(_, item)| one(item));
        let alike = |item: &StoredItem| {
            (&item.allow, &item.limits, &item.rules) == (&first.allow, &first.limits, &first.rules)
        };
        let written = items.iter().map(|(_, item)| item.written_s).max().unwrap_or_default();
        Holding {
            kind: first.kind,
            name: first.name.clone(),
            owner: first.owner.clone(),
            allow: first.allow.clone(),
            limits: first.limits.clone(),
            rules: first.rules.clone(),
            protocol: first.protocol.clone(),
            batches: first.batches.clone(),
            bytes: items.iter().map(|(_, item)| item.bytes).max().unwrap_or_default(),
            written: date(written),
            parties: items.iter().map(|(party, _)| *party).collect(),
            made: first.made,
            complete,
            whole: complete && items.iter().all(|(_, item)| alike(item)),
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

    /// Approves at every party that these clients, and no others but this one, use a model or rows
    /// that it has stored, as far as it says; of rows also which `rules` jobs have to keep to. What
    /// is signed names the upload and the hashes of its plans.
    ///
    /// # Errors
    /// If there are none of this name, they are somebody else's, or not whole.
    pub fn allow(&mut self, model: &str, allow: &[Grant], rules: Option<&Rules>) -> Result<()> {
        let found = self.holdings()?.into_iter().find(|found| {
            found.kind != StoredKind::Material && found.name == model && found.owner == self.name
        });
        // The parties know better what to say of what is not this client's.
        let (upload, batches) = match found {
            Some(Holding { complete: false, .. }) => {
                return Err(Error::of(
                    ErrorKind::DamagedFile,
                    format!("not all parties have the same of `{model}`: remove it, and upload it again"),
                ));
            }
            Some(found) if found.kind == StoredKind::Rows => (found.made, vec![0]),
            Some(found) => (found.made, found.batches),
            None => ([0; 16], vec![]),
        };
        let mut plans = vec![];
        for batch in batches {
            let Description { protocol, plan, .. } = self.describe(model, batch)?;
            plans.push(Subject::plan(&plan.plan, is_float(&protocol)));
        }
        let (model, allow, rules) = (model.into(), allow.to_vec(), rules.cloned());
        let usage = Usage { model, upload, plans, allow, rules, given_s: now_s() };
        let signature = Approval::Usage(&usage).sign(&self.identity)?;
        self.told_all(&Request::Allow { usage, signature })
    }

    /// The rules that a job breaks, of those for rows that this client may ask for training on,
    /// each with the name of the rows and their owner. The job's own client's rules bind others.
    ///
    /// # Errors
    /// If a party cannot say.
    pub fn broken_rules(&mut self, job: &Job, guarantees: Guarantees) -> Result<Vec<String>> {
        let held = self.holdings()?.into_iter();
        let held: Vec<_> = held
            .filter(|held| job.uses(&held.name) && held.owner != job.client && held.rules.is_some())
            .collect();
        let mut largest = 0f64;
        if held.iter().filter_map(|held| held.rules.as_ref()).any(|rules| rules.most_epsilon.is_some()) {
            for set in job.sets() {
                largest = largest.max(self.describe(set, 0)?.plan.largest());
            }
        }
        let looks = Looks { largest, guarantees };
        let broken = |held: Holding| {
            let Holding { name, owner, rules, .. } = held;
            rules.and_then(|rules| rules.permit(&name, &owner, job, looks).err()).map(|e| e.to_string())
        };
        Ok(held.into_iter().filter_map(broken).collect())
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
