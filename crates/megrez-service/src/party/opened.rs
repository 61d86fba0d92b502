//! Stored models as sessions read them: whole, of this party, and permitted to whoever asks.

use super::models::Models;
use super::stored::{MAGIC, ModelFile, ModelHeader, PURPOSE, forbidden};
use crate::approval::Usage;
use crate::protocols::Suite;
use crate::{Error, ErrorKind, Result};
use megrez_device::AnyDevice;
use megrez_engine::{Stored, agree_or, files, hash};
use megrez_kernels::Device;
use megrez_session::{Error as SessionError, Party};
use std::borrow::Borrow;
use std::collections::HashMap;
use std::path::Path;

/// A stored model whose file is whole and whose use is permitted.
pub(super) struct StoredModel {
    pub(super) header: ModelHeader,
    bytes: Vec<u8>,
    /// Where the shares begin.
    body: usize,
}

impl StoredModel {
    /// Reads and checks the model's file at party `me`, for a client who may use it or, with `say`,
    /// has a say in its use.
    pub(super) fn open(models: &Models, model: &str, client: &str, me: usize, say: bool) -> Result<Self> {
        let stored = Self::read(models, model, me)?;
        Self::permitted(stored, model, client, say)
    }

    /// What was read, if a client may use it or, with `say`, has a say in its use.
    pub(super) fn permitted<T: Borrow<Self>>(
        stored: Option<T>,
        model: &str,
        client: &str,
        say: bool,
    ) -> Result<T> {
        // The same words whether it is missing or not permitted: a stranger does not learn which
        // models there are.
        let absent = || forbidden(format!("there is no model `{model}` that `{client}` may use"));
        let stored = stored.ok_or_else(absent)?;
        let header = &stored.borrow().header;
        let grant = header.grant(client).filter(|_| !say);
        let has_say = say && header.owners.iter().any(|owner| owner == client);
        if header.owner != client && !has_say && grant.is_none() {
            return Err(absent());
        }
        if !say {
            header.in_time(client)?;
        }
        Ok(stored)
    }

    /// Reads and checks a model's file at party `me`, if there is one.
    pub(super) fn read(models: &Models, model: &str, me: usize) -> Result<Option<Self>> {
        let path = &models.path(model)?;
        let Some(mut bytes) = models.read(path)? else { return Ok(None) };
        let again = "upload the model again under another name";
        let damaged = || Error::damaged(path, format!("is damaged, or of another version: {again}"));
        let content = files::unseal(PURPOSE, &bytes).ok_or_else(damaged)?;
        let rest = content.strip_prefix(MAGIC).ok_or_else(damaged)?;
        let (header, body) = postcard::take_from_bytes::<ModelHeader>(rest).map_err(|_| damaged())?;
        let (end, body) = (content.len(), content.len() - body.len());
        let wrong =
            |what: String| Error::damaged(path, format!("{what}: put this party's own back, or {again}"));
        if header.model != model {
            return Err(wrong(format!("is a file of the model `{}`", header.model)));
        }
        if header.party != me {
            return Err(wrong(format!("is a file of party {}", header.party)));
        }
        bytes.truncate(end);
        Ok(Some(StoredModel { header, bytes, body }))
    }

    /// The same shares for other users.
    pub(super) fn for_usage(self, usage: &Usage, signature: &[u8]) -> Result<ModelFile> {
        let header = self.header.clone().of_usage(usage, signature)?;
        let mut file = ModelFile::new(&header)?;
        file.body().extend_from_slice(self.body());
        Ok(file)
    }

    /// How much of memory it takes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The shares.
    pub(super) fn body(&self) -> &[u8] {
        &self.bytes[self.body..]
    }

    /// The parties make sure that they hold the same upload.
    pub(super) fn agree<D: Device>(&self, party: &mut Party<D>) -> std::result::Result<(), SessionError> {
        let ModelHeader { model, upload, .. } = &self.header;
        agree_or(party, "upload", &hash("megrez 2026 upload", upload), |low, high| {
            format!(
                "parties {low} and {high} hold different uploads of the model `{model}`, each in its file \
                 `{model}.model`: upload it again under another name"
            )
        })
    }

    /// The shares as inputs of a plan under `protocol`.
    pub(super) fn load(&self, suite: &Suite, protocol: &str, party: &Party<AnyDevice>) -> Result<Stored> {
        self.header.is_of(protocol)?;
        let mut body = self.body();
        let mut weights = HashMap::new();
        for name in &self.header.inputs {
            let masks = suite.read_masks(party.device(), &mut body).map_err(|_| self.unreadable())?;
            let data = suite.read_data(party.device(), &mut body).map_err(|_| self.unreadable())?;
            weights.insert(name.clone(), (masks, data));
        }
        if body.is_empty() { Ok(weights) } else { Err(self.unreadable()) }
    }

    /// Shares of another size than the header says, under a hash that is right: no accident.
    pub(super) fn unreadable(&self) -> Error {
        let model = &self.header.model;
        let what = format!("the file `{model}.model` does not hold what its header says: upload it again");
        Error::of(ErrorKind::DamagedFile, what)
    }
}

/// Reads every file of models and rows at party `me`, and checks it: how many there are, and what
/// is wrong with those that would be refused when somebody runs them.
///
/// # Errors
/// If the folder cannot be read.
pub fn check_models(models: &Models, me: usize) -> Result<(usize, Vec<Error>)> {
    let files = models.list()?;
    let check = |path: &Path| {
        let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default();
        StoredModel::read(models, name, me)
    };
    let wrong = files.iter().filter_map(|(path, _)| check(path).err()).collect();
    Ok((files.len(), wrong))
}
