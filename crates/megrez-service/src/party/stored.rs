//! Stored models, and rows to train on, which are stored in the same way: their files, who may run
//! them, and what a run of one takes from and gives to whom.
//!
//! A file is a header, the party's shares, and a hash of everything before it, which is checked
//! before anything is used: damage never becomes a number. The header names the model, the party
//! and the *upload*, a random name that the parties make together; at the start of every run they
//! compare it, so that files of two uploads never meet. The hash finds damage, not malice: whoever
//! can write the folder can do what the party can.

use super::models::Models;
use crate::approval::{Grant, Rules, Usage, now_s};
use crate::audit::Subject;
use crate::log::date;
use crate::protocols::is_float;
use crate::wire::{ModelPlan, StoredItem, StoredKind, USER, Upload};
use crate::{Error, ErrorKind, Result};
use megrez_engine::files;
use megrez_engine::store::Id;
use megrez_kernels::Device;
use megrez_net::PeerName;
use megrez_plan::{FloatPlan, Input, KEPT, Kind, Output, Plan, Value, ValueId};
use megrez_ring::Shape;
use megrez_session::Party;
use serde::{Deserialize, Serialize};
use std::path::Path;

pub(super) const MAGIC: &[u8; 16] = b"megrez-model-006";
pub(super) const PURPOSE: &str = "megrez 2026 stored model";
/// How far an owner's clock may be ahead of a party's, in seconds.
const AHEAD: u64 = 300;

/// Most clients who may use a model.
const MAX_USERS: usize = 1024;

/// What this party or the owner of a model does not allow.
pub(super) fn forbidden(what: impl std::fmt::Display) -> Error {
    Error::of(ErrorKind::NotPermitted, what)
}

/// What a party knows of a stored model besides its shares.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct ModelHeader {
    /// Its name.
    pub(super) model: String,
    /// Whose shares these are.
    pub(super) party: usize,
    /// The upload: random, the same at all parties, another for every upload.
    pub(super) upload: Id,
    /// The client who uploaded it.
    pub(super) owner: String,
    /// The clients who may run it, or ask for training on it, and how far.
    pub(super) allow: Vec<Grant>,
    /// What jobs on these rows have to keep to.
    pub(super) rules: Option<Rules>,
    /// When its owner said so last, and the signature; an upload needs none, since all of it is its
    /// owner's.
    approved: Option<(u64, Vec<u8>)>,
    /// Those who have a say in every training that uses it: its owner, and the owners of the rows
    /// that it was trained on.
    pub(super) owners: Vec<String>,
    /// It is no model: nobody runs its plan.
    pub(super) rows: bool,
    /// What stands for the identifiers of its rows, in their order.
    pub(super) ids: Option<[u8; 32]>,
    /// The protocol in whose sharing it is kept.
    pub(super) protocol: String,
    /// The names of the weights, in the order of the body.
    pub(super) inputs: Vec<String>,
    /// The approved plans.
    plans: Vec<ModelPlan>,
}

impl ModelHeader {
    /// Checks an upload: the weights must be the same in every plan, and belong to the uploading
    /// client. The upload's name is not known yet.
    pub(super) fn new(client: &str, party: usize, upload: &Upload) -> Result<Self> {
        let refuse = |what: &str| Err(Error::Refused(format!("model `{}`: {what}", upload.model)));
        let (mut weights, mut public) = (None, true);
        for plan in known(&upload.model, &upload.protocol, &upload.plans, client, &upload.allow)? {
            let mine = plan.owned(client);
            public &= plan.public;
            match &weights {
                None => weights = Some(mine),
                Some(first) if *first != mine => return refuse("its plans differ in their weights"),
                Some(_) => {}
            }
        }
        match weights {
            None => refuse("an upload has at least one plan"),
            Some(w) if w.is_empty() && !public => refuse("it has no weights of yours, and no public ones"),
            Some(w) => Ok(ModelHeader {
                model: upload.model.clone(),
                party,
                upload: Id::default(),
                owner: client.into(),
                allow: upload.allow.iter().map(|client| Grant::unlimited(client)).collect(),
                rules: None,
                approved: None,
                owners: vec![client.into()],
                rows: upload.rows,
                ids: upload.ids,
                protocol: upload.protocol.clone(),
                inputs: w.into_iter().map(|(name, ..)| name).collect(),
                plans: upload.plans.clone(),
            }),
        }
    }

    /// The header once the parties have named the upload.
    pub(super) fn of_upload(self, upload: Id) -> Self {
        ModelHeader { upload, ..self }
    }

    /// The header of a model that was trained on what others own as well.
    pub(super) fn of_owners(self, owners: Vec<String>) -> Self {
        ModelHeader { owners, ..self }
    }

    /// The header once its owner lets others use the model than before, by a word that is signed.
    pub(super) fn of_usage(self, usage: &Usage, signature: &[u8]) -> Result<Self> {
        let plans = self.plans.iter().map(|plan| Subject::plan(&plan.plan, is_float(&self.protocol)));
        if usage.upload != self.upload || !plans.eq(usage.plans.iter().cloned()) {
            let what =
                format!("what was approved is another upload of `{}`, or other plans of it", self.model);
            return Err(Error::of(ErrorKind::NotPermitted, what));
        }
        if let Some((given_s, _)) = self.approved.as_ref().filter(|(given_s, _)| *given_s > usage.given_s) {
            let what = format!("`{}` has said something else since, at {}", self.owner, date(*given_s));
            return Err(Error::of(ErrorKind::NotPermitted, what));
        }
        // It would keep its owner from saying anything else until then.
        if usage.given_s > now_s().saturating_add(AHEAD) {
            let what = format!(
                "this was said at {} by your clock, and it is {} here: set the clock that is wrong",
                date(usage.given_s),
                date(now_s())
            );
            return Err(Error::of(ErrorKind::NotPermitted, what));
        }
        usage.rules.as_ref().map_or(Ok(()), Rules::check)?;
        let counts = usage.allow.iter().any(|grant| grant.runs.is_some() || grant.rows.is_some());
        if self.rows && counts {
            let what = "rows are not run: limit jobs on them by rules, and by when they may begin";
            return Err(Error::Refused(what.into()));
        }
        if !self.rows && usage.rules.is_some() {
            return Err(Error::Refused("rules are for rows, which jobs are proposed on".into()));
        }
        let allow: Vec<String> = usage.allow.iter().map(|grant| grant.client.clone()).collect();
        // Who may run a model was a part of what the owners of those rows have approved.
        if self.owners.iter().any(|other| *other != self.owner) {
            let what = format!("`{}` was trained on others' rows, who approved who may run it", self.model);
            return Err(forbidden(what));
        }
        known(&self.model, &self.protocol, &self.plans, &self.owner, &allow)?;
        let mut names = allow.clone();
        names.sort_unstable();
        names.dedup();
        if names.len() < allow.len() {
            return Err(Error::Refused("a client is named twice".into()));
        }
        let (allow, rules) = (usage.allow.clone(), usage.rules.clone());
        Ok(ModelHeader { allow, rules, approved: Some((usage.given_s, signature.to_vec())), ..self })
    }

    /// What a file says of itself, if there is one: its hash nobody has checked, which is enough to
    /// list it or to remove it.
    ///
    /// # Errors
    /// If it cannot be read, or is not this party's of this name.
    pub(super) fn peek(models: &Models, path: &Path, me: usize) -> Result<Option<Self>> {
        let unread =
            || Error::damaged(path, "does not say whose it is: this party's operator has to remove it");
        let header = models.head(path, |bytes| {
            // A file may end within it; what is read next says so.
            let packed = bytes.strip_prefix(MAGIC).ok_or_else(unread)?;
            match postcard::take_from_bytes::<ModelHeader>(packed) {
                Ok((header, _)) => Ok(Some(header)),
                Err(postcard::Error::DeserializeUnexpectedEnd) => Ok(None),
                Err(_) => Err(unread()),
            }
        })?;
        let named = path.file_stem().and_then(|name| name.to_str());
        let fits = |header: &ModelHeader| named == Some(&header.model) && header.party == me;
        if header.as_ref().is_none_or(fits) { Ok(header) } else { Err(unread()) }
    }

    /// What its owner, or `client` who may use it, is told of it.
    pub(super) fn item(&self, client: &str, bytes: u64, written_s: u64) -> Option<StoredItem> {
        let own = self.owner == client;
        let may = own || self.grant(client).is_some() || self.owners.iter().any(|owner| owner == client);
        let told = |grant: &&Grant| grant.is_limited() && (own || grant.client == client);
        may.then(|| StoredItem {
            kind: if self.rows { StoredKind::Rows } else { StoredKind::Model },
            name: self.model.clone(),
            owner: self.owner.clone(),
            allow: if own { self.allow.iter().map(|grant| grant.client.clone()).collect() } else { vec![] },
            limits: self.allow.iter().filter(told).cloned().collect(),
            rules: self.rules.clone(),
            protocol: Some(self.protocol.clone()),
            batches: self.plans.iter().map(|plan| plan.batch).filter(|_| !self.rows).collect(),
            bytes,
            written_s,
            made: self.upload,
        })
    }

    /// The largest number of rows, as their owner has declared.
    pub(super) fn largest(&self) -> f64 {
        self.plans.iter().map(ModelPlan::largest).fold(0.0, f64::max)
    }

    /// What its owner has let a client do.
    pub(super) fn grant(&self, client: &str) -> Option<&Grant> {
        self.allow.iter().find(|grant| grant.client == client)
    }

    /// Makes sure that what its owner has approved for this client has not ended.
    pub(super) fn in_time(&self, client: &str) -> Result<()> {
        let ended = self.grant(client).and_then(|grant| grant.until_s).filter(|until| *until <= now_s());
        let Some(until) = ended.filter(|_| self.owner != client) else { return Ok(()) };
        let what = format!("`{}` lets `{client}` use `{}` until {}", self.owner, self.model, date(until));
        Err(forbidden(format!("{what}, and that is over")))
    }

    /// Makes sure that a client may still use it as when this was read: a request may have waited
    /// for its turn, and its owner said something else meanwhile.
    ///
    /// # Errors
    /// If it may not, or may in another way now.
    pub(super) fn still_lets(&self, models: &Models, client: &str) -> Result<()> {
        let now = Self::peek(models, &models.path(&self.model)?, self.party)?;
        let says = |header: &Self| (header.upload, header.grant(client).cloned(), header.rules.clone());
        if now.map(|now| says(&now)) != Some(says(self)) {
            let what =
                format!("who may use `{}` has changed since this was asked for: ask again", self.model);
            return Err(forbidden(what));
        }
        self.in_time(client)
    }

    /// Its name.
    pub(super) fn name(&self) -> &str {
        &self.model
    }

    /// Its ring, and its values in the order of the body, by name.
    pub(super) fn values(&self) -> Result<(u32, Vec<(String, Value)>)> {
        let unread = |e: &dyn std::fmt::Display| Error::of(ErrorKind::Unsupported, e);
        let first = self.plans.first().ok_or_else(|| unread(&"it has no plan"))?;
        let plan = Plan::from_bytes(&first.plan).map_err(|e| unread(&e))?;
        let of = |name: &String| {
            let input = plan.inputs.iter().find(|input| input.name == *name);
            let input = input.ok_or_else(|| unread(&format!("its plan does not read `{name}`")))?;
            Ok((name.clone(), plan.value(input.value).clone()))
        };
        Ok((plan.ring, self.inputs.iter().map(of).collect::<Result<_>>()?))
    }

    /// Refuses another protocol than the one in whose shares the model is.
    pub(super) fn is_of(&self, protocol: &str) -> Result<()> {
        if self.protocol == protocol {
            return Ok(());
        }
        let own = &self.protocol;
        Err(Error::Refused(format!("the model is kept in shares of `{own}`; run it under that protocol")))
    }

    /// The plan that the owner approved for a batch size.
    pub(super) fn plan(&self, batch: usize) -> Result<&ModelPlan> {
        let rows = self.plans.first().filter(|_| self.rows);
        self.plans.iter().find(|p| p.batch == batch).or(rows).ok_or_else(|| {
            let batches: Vec<String> = self.plans.iter().map(|p| p.batch.to_string()).collect();
            Error::Refused(format!("the model's owner approved batches of {}", batches.join(", ")))
        })
    }

    /// That approved plan for `client`, who takes the place of [`USER`]: nothing of somebody else
    /// is asked of this client or given to it.
    pub(super) fn plan_for(&self, batch: usize, client: &str) -> Result<&ModelPlan> {
        if self.rows {
            return Err(forbidden(format!("`{}` is no model: it is trained on, and not run", self.model)));
        }
        let approved = self.plan(batch)?;
        let ends = Ends::of(&self.protocol, &approved.plan)?;
        let stored = |i: &Input| i.owner == self.owner && self.inputs.contains(&i.name);
        ends.only(|name| name == USER || name == KEPT || name == client, stored).map_err(|what| {
            let model = &self.model;
            forbidden(format!("`{client}` may not run this plan of the model `{model}`: {what}"))
        })?;
        Ok(approved)
    }
}

/// A name that is not free.
pub(super) fn taken(model: &str) -> Error {
    Error::Refused(format!("a model `{model}` is stored already; choose another name, or remove it first"))
}

/// The ends of a model's plans, once all clients that they name are its owner or may use it.
fn known(
    model: &str,
    protocol: &str,
    plans: &[ModelPlan],
    owner: &str,
    allow: &[String],
) -> Result<Vec<Ends>> {
    if owner == USER || allow.iter().any(|c| c == USER) {
        return Err(Error::Refused(format!(
            "model `{model}`: `{USER}` stands for whoever runs a model: a client of that name can neither own nor run \
             one"
        )));
    }
    if allow.len() > MAX_USERS {
        let what =
            format!("model `{model}`: {} clients may use it, and {MAX_USERS} are the most", allow.len());
        return Err(Error::Refused(what));
    }
    allow.iter().try_for_each(|name| PeerName::client(name).map(drop))?;
    let ends = |approved: &ModelPlan| {
        let ends = Ends::of(protocol, &approved.plan)?;
        let known = |name: &str| name == owner || allow.iter().any(|c| c == name);
        ends.only(|name| name == USER || name == KEPT || known(name), |_| false)
            .map_err(|what| forbidden(format!("model `{model}`: {what}, who may not run it")))?;
        Ok(ends)
    };
    plans.iter().map(ends).collect()
}

/// The inputs and outputs of a plan, on a ring or of floating point, with the shapes and kinds of
/// the inputs.
struct Ends {
    inputs: Vec<(Input, Shape, Option<Kind>)>,
    outputs: Vec<Output>,
    /// Whether it reads public weights.
    public: bool,
}

impl Ends {
    fn of(protocol: &str, bytes: &[u8]) -> Result<Self> {
        let refuse = |e: megrez_plan::PlanError| Error::of(ErrorKind::Unsupported, e);
        let with = |inputs: Vec<Input>, value: &dyn Fn(ValueId) -> (Shape, Option<Kind>)| {
            let with = |input: Input| {
                let (shape, kind) = value(input.value);
                (input, shape, kind)
            };
            inputs.into_iter().map(with).collect()
        };
        if is_float(protocol) {
            let plan = FloatPlan::from_bytes(bytes).map_err(refuse)?;
            let inputs = with(plan.inputs.clone(), &|id| (plan.shape(id).clone(), None));
            return Ok(Ends { inputs, outputs: plan.outputs, public: false });
        }
        let plan = Plan::from_bytes(bytes).map_err(refuse)?;
        let inputs = with(plan.inputs.clone(), &|id| {
            let value = plan.value(id);
            (value.shape.clone(), Some(value.kind))
        });
        let public = plan.public_matrices().next().is_some();
        Ok(Ends { inputs, outputs: plan.outputs, public })
    }

    /// The inputs that are a client's own: their names, shapes and kinds.
    fn owned(&self, client: &str) -> Vec<(String, Shape, Option<Kind>)> {
        let mine = self.inputs.iter().filter(|(i, ..)| i.owner == client);
        mine.map(|(i, shape, kind)| (i.name.clone(), shape.clone(), *kind)).collect()
    }

    /// Says what belongs to clients that are not `allowed`; `stored` inputs are asked of nobody.
    fn only(
        &self,
        allowed: impl Fn(&str) -> bool,
        stored: impl Fn(&Input) -> bool,
    ) -> std::result::Result<(), String> {
        let inputs = self.inputs.iter().map(|(i, ..)| i).filter(|i| !allowed(&i.owner) && !stored(i));
        let inputs = inputs.map(|i| format!("input `{}` belongs to `{}`", i.name, i.owner));
        let outputs = self.outputs.iter().filter(|o| !allowed(&o.recipient));
        let outputs = outputs.map(|o| format!("output `{}` goes to `{}`", o.name, o.recipient));
        let problems: Vec<String> = inputs.chain(outputs).collect();
        if problems.is_empty() { Ok(()) } else { Err(problems.join("; ")) }
    }
}

/// The file of a model that is being stored: shares are appended, then it is written.
pub(super) struct ModelFile {
    bytes: Vec<u8>,
    /// Where the shares begin.
    head: usize,
    party: usize,
    upload: Id,
}

impl ModelFile {
    pub(super) fn new(header: &ModelHeader) -> Result<Self> {
        let packed = postcard::to_allocvec(header).map_err(|e| Error::of(ErrorKind::Internal, e))?;
        let bytes = [MAGIC.as_slice(), &packed].concat();
        Ok(ModelFile { head: bytes.len(), bytes, party: header.party, upload: header.upload })
    }

    /// Where the next share is written.
    pub(super) fn body(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Writes the file.
    pub(super) fn write(mut self, models: &Models, path: &Path) -> Result<()> {
        files::seal(PURPOSE, &mut self.bytes);
        let _alone = models.alone()?;
        if path.exists() {
            return Err(taken(&path.file_stem().unwrap_or_default().to_string_lossy()));
        }
        models.write(path, self.head, self.bytes)
    }

    /// Writes the file in the place of the one that is there, while nobody else changes it.
    pub(super) fn replace(mut self, models: &Models, path: &Path) -> Result<()> {
        files::seal(PURPOSE, &mut self.bytes);
        models.replace(path, self.head, self.bytes)
    }

    /// Writes the file, waits until all parties have written theirs, and removes it if one could
    /// not: half a model is of no use.
    pub(super) fn keep<D: Device>(self, models: &Models, path: &Path, party: &mut Party<D>) -> Result<()> {
        let (me, upload) = (self.party, self.upload);
        self.write(models, path)?;
        let kept = party.barrier("model-kept");
        if kept.is_err() {
            let _alone = models.alone();
            // Whoever has removed it meanwhile may have stored another one.
            if ModelHeader::peek(models, path, me)
                .is_ok_and(|found| found.is_some_and(|h| h.upload == upload))
            {
                let _ = files::remove(path);
            }
        }
        Ok(kept?)
    }
}
