//! What a party does in the session of a request, under the protocol that the request names.

use super::clients::{ChannelClients, ClientChannel};
use super::host::{Host, hash};
use super::kept::{Kept, Origin};
use super::opened::StoredModel;
use super::stored::{ModelFile, ModelHeader};
use crate::log::Log;
use crate::protocols::Suite;
use crate::wire::{Ahead, Prepare, Run};
use crate::{Error, ErrorKind, Result};
use megrez_device::AnyDevice;
use megrez_engine::store::{self, BatchId, Binding};
use megrez_engine::{
    Arrivals, Clients as _, Options, PartyReport, Prepared, Stored, agree, agree_or, check, common_name,
    files, offline, serve_from,
};
use megrez_net::Network;
use megrez_plan::{Input, Plan};
use megrez_session::{Party, Phase};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where a party keeps material.
pub(super) fn material_folder(host: &Host) -> PathBuf {
    host.policy.data.join("material")
}

/// The shares of a stored model, once all parties know that they hold the same upload.
fn weights(
    suite: &Suite,
    stored: Option<&StoredModel>,
    protocol: &str,
    party: &mut Party<AnyDevice>,
) -> Result<Stored> {
    let Some(stored) = stored else { return Ok(HashMap::new()) };
    stored.agree(party)?;
    stored.load(suite, protocol, party)
}

pub(super) struct RunJob<'a> {
    pub host: &'a Host,
    pub client: &'a str,
    pub network: Network,
    pub plan: &'a Plan,
    pub run: &'a Run,
    pub stored: Option<Arc<StoredModel>>,
    pub channel: &'a ClientChannel,
    pub kept: &'a mut Kept,
    pub log: &'a Log,
}

impl RunJob<'_> {
    /// What material of these runs belongs to, at this party.
    pub(super) fn binding(&self, batch: BatchId, party: usize, stock: bool) -> Binding<'_> {
        let upload = self.stored.as_ref().map(|s| s.header.upload);
        let (protocol, client) = (&self.run.protocol, self.client);
        Binding { batch, party, stock, protocol, client, upload, plan: self.plan }
    }

    /// Claims material once all parties know that theirs is of one preparation.
    fn claim(&self, suite: &Suite, batch: BatchId, party: &mut Party<AnyDevice>) -> Result<Prepared> {
        let binding = self.binding(batch, party.me(), false);
        let folder = material_folder(self.host);
        let preparation = store::peek(&folder, &binding)?;
        let compared = megrez_engine::hash("megrez 2026 preparation", &preparation);
        agree_or(party, "preparation", &compared, |low, high| {
            format!(
                "the material of parties {low} and {high} is of different preparations: make material again"
            )
        })?;
        Ok(store::claim(&folder, suite, party.device(), &binding, &preparation)?)
    }

    /// Runs the plan as often as is asked.
    pub(super) fn run(self, suite: &Suite) -> Result<Vec<PartyReport>> {
        check(suite, self.plan).map_err(|e| Error::of(ErrorKind::Unsupported, e))?;
        let request = hash(self.run);
        let mut party = Party::start(self.network.clone(), self.host.device.clone())?;
        agree(&mut party, "request", &request)?;
        self.host.count(self.client, self.run, self.stored.as_ref().map(|stored| &stored.header))?;
        let mut stored = weights(suite, self.stored.as_deref(), &self.run.protocol, &mut party)?;
        let origin = Origin {
            protocol: self.run.protocol.clone(),
            ring: self.plan.ring,
            upload: self.stored.as_ref().map(|s| s.header.upload),
        };
        self.kept.load(suite, &origin, self.plan, &mut party, &mut stored)?;
        let mut named = match self.run.material {
            Ahead::Batch(batch) => Some(self.claim(suite, batch, &mut party)?),
            Ahead::Nothing | Ahead::Stock => None,
        };
        let mut more = self.run.material == Ahead::Stock;
        let mut ahead = |party: &mut Party<AnyDevice>| {
            let taken = if more { self.take(suite, party, self.log)? } else { named.take() };
            // What all parties do not have now they will not have for the next run.
            more &= taken.is_some();
            Ok(taken)
        };
        let mut clients = ChannelClients { channel: self.channel, network: self.network.clone(), due: None };
        // Parties take from their stock together, so none of them may have made its own meanwhile.
        let streamed = self.run.streamed && self.run.material == Ahead::Nothing;
        let options = Options { runs: self.run.runs, lasting: &self.run.lasting, streamed };
        let reports =
            serve_from(suite, self.plan, &mut party, &mut stored, &mut ahead, &mut clients, options)?;
        let most = self.host.settings.get().max_elements;
        self.kept.store(suite, &origin, self.plan, &party, &stored, request, most)?;
        Ok(reports)
    }
}

pub(super) struct PrepareJob<'a> {
    pub host: &'a Host,
    pub client: &'a str,
    pub network: Network,
    pub plan: &'a Plan,
    pub prepare: &'a Prepare,
    pub stored: Option<Arc<StoredModel>>,
}

impl PrepareJob<'_> {
    /// Makes material and keeps it.
    pub(super) fn run(self, suite: &Suite) -> Result<()> {
        check(suite, self.plan).map_err(|e| Error::of(ErrorKind::Unsupported, e))?;
        let mut party = Party::start(self.network, self.host.device.clone())?;
        agree(&mut party, "request", &hash(self.prepare))?;
        let preparation = common_name(&mut party, "preparation")?;
        let stored: Stored = weights(suite, self.stored.as_deref(), &self.prepare.protocol, &mut party)?;
        let given = |name: &str| stored.get(name).map(|(masks, _)| masks.clone());
        let prepared = offline(suite, self.plan, &mut party, 0, &given, &mut vec![])?;
        let binding = Binding {
            batch: self.prepare.material,
            party: party.me(),
            stock: self.prepare.stock,
            protocol: &self.prepare.protocol,
            client: self.client,
            upload: self.stored.as_ref().map(|s| s.header.upload),
            plan: self.plan,
        };
        let folder = material_folder(self.host);
        let path = store::keep(&folder, suite, party.device(), &binding, &preparation, &prepared)?;
        // All parties have kept theirs, or all hear that one could not: a part of nothing is
        // removed.
        let kept = party.barrier("material-kept");
        if kept.is_err() {
            let _ = files::remove(&path);
        }
        Ok(kept?)
    }
}

pub(super) struct UploadJob<'a> {
    pub host: &'a Host,
    pub network: Network,
    pub plan: &'a Plan,
    pub header: ModelHeader,
    pub path: &'a Path,
    pub request: [u8; 32],
    pub channel: &'a ClientChannel,
}

impl UploadJob<'_> {
    /// Takes shares in and keeps them.
    pub(super) fn run(self, suite: &Suite) -> Result<()> {
        let mut party = Party::start(self.network.clone(), self.host.device.clone())?;
        agree(&mut party, "request", &self.request)?;
        let header = self.header.of_upload(common_name(&mut party, "upload")?);
        party.enter(Phase::Input, 0);
        let mut clients = ChannelClients { channel: self.channel, network: self.network.clone(), due: None };
        let weights: Vec<&Input> =
            self.plan.inputs.iter().filter(|i| header.inputs.contains(&i.name)).collect();
        let mut masks = Vec::new();
        for input in &weights {
            let value = self.plan.value(input.value);
            let (mask, mask_key) =
                party.step(&format!("upload/{}", input.name), |p| suite.input(p, value))?;
            clients.mask_key(input, mask_key)?;
            masks.push(mask);
        }
        let mut file = ModelFile::new(&header)?;
        let mut arrivals = Arrivals::default();
        let refuse = |e: megrez_protocols::EncodeError| Error::of(ErrorKind::Internal, e);
        for (input, mask) in weights.iter().zip(masks) {
            let data = arrivals.receive(suite, self.plan, &party, input, &mut clients)?;
            suite.write_masks(party.device(), &mask, file.body()).map_err(refuse)?;
            suite.write_data(party.device(), &data, file.body()).map_err(refuse)?;
        }
        arrivals.compare(&mut party, "uploaded")?;
        file.keep(&self.host.policy.models, self.path, &mut party)
    }
}
