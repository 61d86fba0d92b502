//! Whether a job goes with what this party has stored.

use super::files::Folder;
use super::rows::{beside, blocks, same_rows};
use crate::party::host::Host;
use crate::party::opened::StoredModel;
use crate::party::stored::{ModelHeader, forbidden};
use crate::training::{RowSet, WEIGHTS, Work};
use crate::wire::Train;
use crate::{Error, Result};
use megrez_plan::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// What the last weights become: the header without the name of an upload, and where the file is.
pub(super) type Kept = Option<(ModelHeader, PathBuf)>;

/// What this party checks of a job and the stored values that it names, besides the consents.
pub(super) fn fits(host: &Host, train: &Train, work: &Work, stored: &[StoredModel]) -> Result<Kept> {
    let job = &train.job;
    let refuse = |what: String| Err(Error::Refused(format!("the job {what}")));
    let (start, sets) = stored.split_last().ok_or_else(|| Error::Refused("the job has no weights".into()))?;
    let ring = work.ring();
    let kinds = |place: usize| match &work.validated {
        Some(validated) if place >= job.data.len() => &validated.rows,
        _ => &work.rows,
    };
    for (place, (named, parts)) in blocks(job.entries(), sets).enumerate() {
        same_rows(named, parts)?;
        let mut found: BTreeMap<String, Vec<Value>> = BTreeMap::new();
        for set in parts {
            set.header.is_of(&job.protocol)?;
            let (of, values) = set.header.values()?;
            let of_ring = values.into_iter().filter(|_| of == ring);
            of_ring.for_each(|(name, value)| found.entry(name).or_default().push(value));
        }
        for (name, value) in kinds(place) {
            let shape = [&[named.rows], &value.shape.dims()[1..]].concat().into();
            if found.remove(name).and_then(beside) != Some(Value { shape, kind: value.kind }) {
                let names: Vec<&str> = named.names().map(String::as_str).collect();
                return refuse(format!(
                    "takes {} rows `{name}` of {:?} numbers from `{}`, which are stored there with another count, shape, scale or ring",
                    named.rows,
                    &value.shape.dims()[1..],
                    names.join("+")
                ));
            }
        }
    }
    start.header.is_of(&job.protocol)?;
    let (of, values) = start.header.values()?;
    for (name, value) in &values {
        let same = work.state(name).is_none_or(|state| state == value);
        if of != ring || !same || job.rows.contains(name) {
            return refuse(format!(
                "begins with weights `{name}` that are stored with another shape, scale or ring"
            ));
        }
    }
    let added_up = |name: &str| !name.starts_with(WEIGHTS) && work.writes(name);
    let missing = |(name, _): &&(String, Value)| !added_up(name) && !values.iter().any(|(n, _)| n == name);
    if let Some((name, _)) = work.state.iter().find(missing) {
        return refuse(format!("begins with `{}`, where there are no weights `{name}`", job.start));
    }
    let size = |v: &Value| v.shape.elements();
    let more: Vec<usize> = work.stored_rows(job).chain(values.iter().map(|(_, v)| size(v))).collect();
    for step in work.plans() {
        host.room_for(step.values.iter().map(size).chain(more.iter().copied()))?;
    }
    let Some(keep) = &job.keep else { return Ok(None) };
    let upload = crate::wire::Upload {
        session: train.session,
        protocol: job.protocol.clone(),
        model: keep.model.clone(),
        plans: keep.plans.clone(),
        allow: keep.allow.clone(),
        rows: false,
        ids: None,
        within_s: None,
    };
    // Nothing of the rows that are only counted on is in the model.
    let learnt = job.data.iter().flat_map(RowSet::names).count();
    let into = sets.iter().take(learnt).chain([start]);
    let mut owners: Vec<String> = into.flat_map(|stored| stored.header.owners.clone()).collect();
    owners.push(job.client.clone());
    owners.sort_unstable();
    owners.dedup();
    let header = ModelHeader::new(&job.client, host.endpoint.me(), &upload)?.of_owners(owners);
    for plan in &keep.plans {
        host.affordable(&plan.plan)?;
    }
    let (of, weights) = header.values()?;
    for (name, value) in &weights {
        let state = work.state(name).or_else(|| values.iter().find(|(n, _)| n == name).map(|(_, v)| v));
        if of != ring || state != Some(value) {
            return refuse(format!("keeps a model with weights `{name}` that training does not leave"));
        }
    }
    let path = host.policy.models.path(&keep.model)?;
    let newest = Folder::new(&host.policy.data, job.id()).newest()?;
    if path.exists() && newest < job.epochs() {
        return Err(forbidden(format!("a model `{}` is stored already; choose another name", keep.model)));
    }
    Ok(Some((header, path)))
}
