//! What a party keeps for clients: told, let to others, removed by its owner, and expired.

use super::asked::Asked;
use super::clients::{ClientChannel, hold};
use super::jobs::material_folder;
use super::opened::StoredModel;
use super::service::Service;
use super::stock::stock_of;
use super::stored::{ModelHeader, forbidden};
use crate::approval::{Approval, Usage};
use crate::log::{Event, Level, Log};
use crate::wire::{self, Reply, StoredItem, StoredKind};
use crate::{Error, Result};
use megrez_engine::{files, store};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

impl Service {
    /// Tells a client what is kept here that it owns or may use.
    pub(super) fn holdings(&self, client: &str, shared: &ClientChannel) -> Result<()> {
        let (me, models) = (self.host.endpoint.me(), &self.host.policy.models);
        let mut items = vec![];
        for (path, written) in models.list()? {
            let item = |header: ModelHeader| header.item(client, size(&path), seconds(written));
            // What cannot be read, or is somebody else's, is nothing to this client.
            items.extend(ModelHeader::peek(models, &path, me).ok().flatten().and_then(item));
        }
        let material = material_folder(&self.host);
        let found = files::of_extension(&material, store::EXTENSION);
        for (path, written) in found.map_err(|e| Error::storage(&material, e))? {
            let Some((batch, made)) = store::belongs(&path, client) else { continue };
            items.push(StoredItem {
                kind: StoredKind::Material,
                name: batch.iter().map(|byte| format!("{byte:02x}")).collect(),
                owner: client.into(),
                allow: vec![],
                limits: vec![],
                rules: None,
                protocol: None,
                batches: vec![],
                bytes: size(&path),
                written_s: seconds(written),
                made,
            });
        }
        wire::send(&mut hold(shared), &Reply::Stored(items))
    }

    /// Tells of a stored model at a batch size, and what is made ahead for it.
    pub(super) fn describe(
        &self,
        client: &str,
        model: &str,
        batch: usize,
        shared: &ClientChannel,
    ) -> Result<()> {
        let stored = self.host.open(model, client)?;
        let protocol = stored.header.protocol.clone();
        let plan = stored.header.plan(batch)?.clone();
        let stock = stock_of(&self.host, client, &stored.header, batch)?;
        wire::send(&mut hold(shared), &Reply::Model { protocol, plan, stock })
    }

    /// Lets other clients than before use what a client has stored.
    pub(super) fn allow(
        &self,
        asked: &Asked,
        usage: &Usage,
        signature: &[u8],
        shared: &ClientChannel,
    ) -> Result<()> {
        let (client, models, model) = (asked.client, &self.host.policy.models, &usage.model);
        let path = models.path(model)?;
        let alone = models.alone()?;
        let stored = StoredModel::open(models, model, client, self.host.endpoint.me(), false)?;
        owned(&stored.header, client)?;
        Approval::Usage(usage).is_signed_by(client, signature, &self.host.endpoint.identity())?;
        let file = stored.for_usage(usage, signature)?;
        asked.accept()?;
        file.replace(models, &path)?;
        drop(alone);
        wire::send(&mut hold(shared), &Reply::Done)
    }

    /// Removes what a client has stored, whole or damaged, and says whether there was something.
    pub(super) fn remove(&self, asked: &Asked, model: &str, shared: &ClientChannel) -> Result<()> {
        let (client, models) = (asked.client, &self.host.policy.models);
        let path = models.path(model)?;
        let alone = models.alone()?;
        let header = ModelHeader::peek(models, &path, self.host.endpoint.me())?;
        // To a stranger it is not there.
        let header = header.filter(|header| header.item(client, 0, 0).is_some());
        header.as_ref().map_or(Ok(()), |header| owned(header, client))?;
        let removed = removed(asked, header.map(|_| path));
        if removed.as_ref().is_ok_and(|removed| *removed) {
            self.host.uses.forget(&self.host.policy.data, model)?;
        }
        drop(alone);
        wire::send(&mut hold(shared), &Reply::Removed(removed?))
    }

    /// Removes material of a client's, and says whether there was any.
    pub(super) fn discard(&self, asked: &Asked, batch: [u8; 16], shared: &ClientChannel) -> Result<()> {
        let path = store::path(&material_folder(&self.host), &batch);
        let alone = self.host.policy.models.alone()?;
        let held = store::belongs(&path, asked.client).is_some_and(|(found, _)| found == batch);
        let removed = removed(asked, held.then_some(path));
        drop(alone);
        wire::send(&mut hold(shared), &Reply::Removed(removed?))
    }

    /// Refuses a client whose models, rows and material take as much of this party's disk as one
    /// client may have.
    pub(super) fn room_on_disk(&self, client: &str) -> Result<()> {
        let (me, models) = (self.host.endpoint.me(), &self.host.policy.models);
        let material = material_folder(&self.host);
        let made = files::of_extension(&material, store::EXTENSION);
        let made = made.map_err(|e| Error::storage(&material, e))?.into_iter();
        // What cannot be read is nobody's.
        let owned = |path: &Path| {
            ModelHeader::peek(models, path, me).ok().flatten().is_some_and(|header| header.owner == client)
        };
        let own = models.list()?.into_iter().filter(|(path, _)| owned(path));
        let made = made.filter(|(path, _)| store::belongs(path, client).is_some());
        let taken: u64 = own.chain(made).map(|(path, _)| size(&path)).fold(0, u64::saturating_add);
        let most = self.host.settings.get().capacity.client_disk();
        if taken < most {
            return Ok(());
        }
        Err(forbidden(format!(
            "what `{client}` stores takes {} MiB at this party, which gives one client {}: remove models or material, or \
             raise client_disk_mib in party.toml",
            taken >> 20,
            most >> 20
        )))
    }

    /// Removes material that nobody has used for as long as this party keeps it. What cannot be
    /// removed is in nobody's way.
    pub(super) fn expire(&self, log: &Log) {
        let folder = material_folder(&self.host);
        match files::expire(&folder, store::EXTENSION, self.host.settings.get().capacity.material_life()) {
            Ok(expired) => expired.iter().for_each(|path| {
                let message = format!("removed material that nobody has used: {}", path.display());
                log.write(Level::Info, Event::new("expired", message));
            }),
            Err(e) => {
                let message = format!("{}: material cannot be looked through: {e}", folder.display());
                log.write(Level::Warn, Event::new("expired", message));
            }
        }
    }
}

/// Removes a file, if there is one, and says whether there was.
fn removed(asked: &Asked, path: Option<PathBuf>) -> Result<bool> {
    let Some(path) = path else { return Ok(false) };
    asked.accept()?;
    match files::remove(&path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(Error::storage(&path, e)),
        _ => Ok(true),
    }
}

fn owned(header: &ModelHeader, client: &str) -> Result<()> {
    if header.owner == client {
        return Ok(());
    }
    Err(forbidden(format!(
        "`{}` is `{}`'s, and not `{client}`'s to change or remove",
        header.name(),
        header.owner
    )))
}

fn size(path: &Path) -> u64 {
    path.metadata().map_or(0, |about| about.len())
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
