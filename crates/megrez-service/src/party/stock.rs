//! A client's stock: batches of material that were made ahead for one plan and for no run by name,
//! of which runs take one each by themselves.
//!
//! Party 0 chooses, since it alone knows which batches its other sessions are about to claim. All
//! parties claim theirs of the batch that it names, and use it if all of them have it, of one
//! preparation. Otherwise what was claimed is dropped, since material serves once, and the run
//! makes its own.

use super::host::Host;
use super::jobs::{RunJob, material_folder};
use super::stored::ModelHeader;
use crate::log::{Event, Level, Log};
use crate::protocols::{self, Suite};
use crate::{Error, ErrorKind, Result};
use megrez_device::AnyDevice;
use megrez_engine::store::{self, BatchId, Binding};
use megrez_engine::{Prepared, all_say, told_by_first};
use megrez_plan::Plan;
use megrez_session::{Error as SessionError, Party};

/// How many batches of material this party keeps for a client's runs of a stored model.
pub(super) fn stock_of(host: &Host, client: &str, header: &ModelHeader, batch: usize) -> Result<usize> {
    let folder = material_folder(host);
    if header.rows || !protocols::find(&header.protocol)?.offline || !folder.exists() {
        return Ok(0);
    }
    let plan = &header.plan_for(batch, client)?.plan;
    let plan = Plan::from_bytes(plan).map_err(|e| Error::of(ErrorKind::Unsupported, e))?;
    let party = host.endpoint.me();
    let (protocol, upload) = (&header.protocol, Some(header.upload));
    let batch = BatchId::default();
    let binding = Binding { batch, party, stock: true, protocol, client, upload, plan: &plan };
    let found = store::stock(&folder, &binding).map_err(|e| Error::storage(&folder, e))?;
    Ok(found.len())
}

/// What party 0 says when there is nothing in stock.
const NONE: [u8; 32] = [0; 32];

impl RunJob<'_> {
    /// Takes a batch of the client's stock for the next run, if all parties have one.
    pub(super) fn take(
        &self,
        suite: &Suite,
        party: &mut Party<AnyDevice>,
        log: &Log,
    ) -> std::result::Result<Option<Prepared>, SessionError> {
        let folder = material_folder(self.host);
        let me = party.me();
        let binding = |batch| self.binding(batch, me, true);
        // A party that cannot look through its folder has nothing in stock.
        let find = || store::stock(&folder, &binding(BatchId::default())).unwrap_or_default();
        let choice = if me == 0 { self.host.chosen.first(find) } else { None };
        let preparation = |batch| store::peek(&folder, &binding(batch)).ok();
        let named = choice.as_ref().and_then(|choice| {
            let parts = [choice.batch, preparation(choice.batch)?];
            Some(parts.concat().try_into().expect("two names of 16 bytes"))
        });
        let named = told_by_first(party, "stock", named.unwrap_or(NONE))?;
        if named == NONE {
            return Ok(None);
        }
        let (batch, made) = named.split_at(16);
        let batch: BatchId = batch.try_into().expect("16 bytes");
        let claimed = match preparation(batch) {
            Some(own) if own == *made => store::claim(&folder, suite, party.device(), &binding(batch), &own),
            _ => Err(SessionError::Refused("it is not there, or of another preparation".into())),
        };
        // From here on it is not there to be chosen.
        drop(choice);
        if let Err(e) = &claimed {
            let message =
                format!("the run makes its own material, since a batch in stock cannot be used: {e}");
            log.write(Level::Warn, Event { client: Some(self.client), ..Event::new("stock", message) });
        }
        let all = all_say(party, "claimed", claimed.is_ok())?;
        Ok(claimed.ok().filter(|_| all))
    }
}
