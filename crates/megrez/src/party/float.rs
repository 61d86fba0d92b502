//! What a party does for floating point: it runs a client's plan, or one of a stored model, and keeps models in shares.

use super::clients::{ChannelClients, Shared};
use super::stored::{ModelFile, ModelHeader, StoredModel};
use super::{Service, ended, hash, own};
use crate::wire::{Run, Source, Upload};
use crate::{Error, Result};
use megrez_engine::float::{StoredFloats, serve_floats};
use megrez_engine::{Clients, PartyReport, agree, common_name};
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
        let ready = self.float_plan(client, &run.source);
        let (plan, stored) = self.told(run.session, &profile, run.source.is_stored(), ready)?;
        let network = self.endpoint.open_session(SessionId(run.session), &profile)?;
        let serve = || {
            let mut party = Party::start(network.clone(), Cpu::new(1))?;
            agree(&mut party, "request", &hash(run))?;
            let mut clients = ChannelClients { channel, network: network.clone() };
            let weights = match &stored {
                Some(stored) => {
                    stored.agree(&mut party)?;
                    load(stored, &run.protocol, &plan)?
                }
                None => HashMap::new(),
            };
            Ok(serve_floats(&plan, party, &weights, &mut clients, run.runs)?)
        };
        ended(&network, serve())
    }

    /// The plan of a request, and the stored model that it may use.
    fn float_plan(&self, client: &str, source: &Source) -> Result<(FloatPlan, Option<StoredModel>)> {
        match source {
            Source::Plan(bytes) => {
                let plan = self.affordable_floats(bytes)?;
                own(&plan.inputs, &plan.outputs, client)?;
                Ok((plan, None))
            }
            Source::Model { model, batch } => {
                let stored = self.open(model, client)?;
                Ok((self.affordable_floats(&stored.header.plan_for(*batch, client)?.plan)?, Some(stored)))
            }
        }
    }

    pub(super) fn upload_floats(
        &self,
        upload: &Upload,
        header: ModelHeader,
        path: &Path,
        channel: &Shared,
    ) -> Result<()> {
        let profile = megrez_net::NetProfile::loopback();
        let plan =
            self.told(upload.session, &profile, true, self.affordable_floats(&upload.plans[0].plan))?;
        let network = self.endpoint.open_session(SessionId(upload.session), &profile)?;
        let keep = || {
            let mut party = Party::start(network.clone(), Cpu::new(1))?;
            agree(&mut party, "request", &hash(upload))?;
            let header = header.of_upload(common_name(&mut party, "upload")?);
            party.enter(Phase::Input, 0);
            let mut clients = ChannelClients { channel, network: network.clone() };
            let mut file = ModelFile::new(&header)?;
            for name in &header.inputs {
                let input = named(&plan, name)?;
                let size = share_bytes(plan.shape(input.value).elements());
                let share = clients.data(input, size)?;
                if share.len() != size {
                    let got = share.len();
                    return Err(Error::Refused(format!("the share of `{name}` has {got} bytes, not {size}")));
                }
                file.body().extend_from_slice(share.as_bytes());
            }
            file.keep(path, &mut party)
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
    let mut rest = stored.body();
    let mut weights = HashMap::new();
    for name in &stored.header.inputs {
        let n = plan.shape(named(plan, name)?.value).elements();
        let (share, after) = rest.split_at_checked(share_bytes(n)).ok_or_else(|| stored.unreadable())?;
        let share: Float<Sirnn<Cpu>> = Sirnn::accept(&Payload::from_bytes(share), n)?;
        weights.insert(name.clone(), share);
        rest = after;
    }
    if rest.is_empty() { Ok(weights) } else { Err(stored.unreadable()) }
}
