//! What a party does for floating point: it runs a client's plan, or one of a stored model, and keeps models in shares.

use super::{ChannelClients, ModelHeader, Service, Shared, StoredModel, ended, hash, own, write_model};
use crate::wire::{Run, Source, Upload};
use crate::{Error, Result};
use megrez_engine::float::{StoredFloats, serve_floats};
use megrez_engine::{Clients, PartyReport};
use megrez_float::Float;
use megrez_kernels::Cpu;
use megrez_net::{Payload, SessionId};
use megrez_plan::{FloatPlan, Input, KEPT};
use megrez_ring::Shape;
use megrez_session::{Party, Phase};
use megrez_sirnn::Sirnn;
use megrez_sirnn::client::share_bytes;
use std::collections::HashMap;
use std::path::Path;

impl Service {
    pub(super) fn run_floats(&self, client: &str, run: &Run, channel: &Shared) -> Result<Vec<PartyReport>> {
        let profile = self.profile(&run.net)?;
        if run.material.is_some() {
            return Err(Error::Refused(
                "floating point has no offline phase: leave out the name of the material".into(),
            ));
        }
        let (plan, stored) = match &run.source {
            Source::Plan(bytes) => {
                let plan = self.affordable_floats(bytes)?;
                own(&plan.inputs, &plan.outputs, client)?;
                (plan, None)
            }
            Source::Model { model, batch } => {
                let stored = StoredModel::open(&self.policy.data, model, client)?;
                (self.affordable_floats(&stored.header.plan(*batch)?.plan)?, Some(stored))
            }
        };
        let network = self.endpoint.open_session(SessionId(run.session), &profile)?;
        let serve = || {
            let mut party = Party::start(network.clone(), Cpu::new(1))?;
            megrez_engine::agree(&mut party, "request", &hash(run))?;
            let mut clients = ChannelClients { channel, network: network.clone() };
            let stored =
                stored.as_ref().map_or_else(|| Ok(HashMap::new()), |s| load(s, &run.protocol, &plan))?;
            Ok(serve_floats(&plan, party, &stored, &mut clients, run.runs)?)
        };
        ended(&network, serve())
    }

    pub(super) fn upload_floats(
        &self,
        upload: &Upload,
        header: &ModelHeader,
        path: &Path,
        channel: &Shared,
    ) -> Result<()> {
        let network =
            self.endpoint.open_session(SessionId(upload.session), &megrez_net::NetProfile::loopback())?;
        let plan = self.affordable_floats(&upload.plans[0].plan)?;
        let keep = || {
            let mut party = Party::start(network.clone(), Cpu::new(1))?;
            megrez_engine::agree(&mut party, "request", &hash(upload))?;
            party.enter(Phase::Input, 0);
            let mut clients = ChannelClients { channel, network: network.clone() };
            let mut body = vec![];
            for name in &header.inputs {
                let input = named(&plan, name)?;
                let size = share_bytes(plan.shape(input.value).elements());
                let share = clients.data(input, size)?;
                if share.len() != size {
                    let got = share.len();
                    return Err(Error::Refused(format!("the share of `{name}` has {got} bytes, not {size}")));
                }
                body.extend_from_slice(share.as_bytes());
            }
            write_model(path, header, &body)?;
            let kept = party.barrier("model-kept");
            if kept.is_err() {
                // The other party could not: half a model is of no use.
                let _ = std::fs::remove_file(path);
            }
            Ok(kept?)
        };
        ended(&network, keep())
    }

    /// A valid plan whose values this party has room for.
    fn affordable_floats(&self, bytes: &[u8]) -> Result<FloatPlan> {
        let plan = FloatPlan::from_bytes(bytes).map_err(|e| Error::Refused(e.to_string()))?;
        if plan.inputs.iter().any(|i| i.owner == KEPT) || plan.outputs.iter().any(|o| o.recipient == KEPT) {
            return Err(Error::Refused("values of floating point are not kept between runs yet".into()));
        }
        self.room_for(plan.values.iter().map(Shape::elements))?;
        Ok(plan)
    }
}

fn named<'a>(plan: &'a FloatPlan, name: &str) -> Result<&'a Input> {
    let input = plan.inputs.iter().find(|i| i.name == name);
    input.ok_or_else(|| Error::Refused(format!("the plan has no input `{name}`")))
}

/// The shares of a stored model as inputs of a plan.
fn load(stored: &StoredModel, protocol: &str, plan: &FloatPlan) -> Result<StoredFloats<Cpu>> {
    stored.header.is_of(protocol)?;
    let mut rest = stored.body.as_slice();
    let mut weights = HashMap::new();
    for name in &stored.header.inputs {
        let n = plan.shape(named(plan, name)?.value).elements();
        let damaged = || Error::Refused("the stored model is damaged: upload it again".into());
        let (share, after) = rest.split_at_checked(share_bytes(n)).ok_or_else(damaged)?;
        let share: Float<Sirnn<Cpu>> = Sirnn::accept(&Payload::from_bytes(share), n)?;
        weights.insert(name.clone(), share);
        rest = after;
    }
    Ok(weights)
}
