//! What a party does for floating point: it runs a client's plan, or one of a stored model, and
//! keeps models in shares.

use super::clients::{ChannelClients, ClientChannel};
use super::host::{Host, hash, own};
use super::opened::StoredModel;
use super::stored::{ModelFile, ModelHeader};
use crate::protocols::MIZAR_FLOAT;
use crate::wire::{Ahead, Run, Source, Upload};
use crate::{Error, ErrorKind, Result};
use megrez_engine::float::{StoredFloats, dealt_bytes, serve_floats};
use megrez_engine::{Clients, Options, PartyReport, agree, common_name};
use megrez_kernels::Cpu;
use megrez_net::{Network, Payload};
use megrez_plan::{FloatOp, FloatPlan, FloatStep, Input, KEPT};
use megrez_ring::Shape;
use megrez_session::{Party, Phase};
use megrez_twoparty::client::share_bytes;
use megrez_twoparty::dealt::DEALER;
use megrez_twoparty::ot::silent;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

/// Runs a plan.
pub(super) fn run(
    host: &Host,
    client: &str,
    run: &Run,
    plan: &FloatPlan,
    stored: Option<&StoredModel>,
    channel: &ClientChannel,
    network: &Network,
) -> Result<Vec<PartyReport>> {
    let mut party = Party::start(network.clone(), Cpu::new(1))?;
    agree(&mut party, "request", &hash(run))?;
    host.count(client, run, stored.map(|stored| &stored.header))?;
    let mut clients = ChannelClients { channel, network: network.clone(), due: None };
    let weights = match stored {
        Some(stored) => {
            stored.agree(&mut party)?;
            load(stored, &run.protocol, plan, party.me())?
        }
        None => HashMap::new(),
    };
    let options = Options { runs: run.runs, lasting: &run.lasting, streamed: false };
    Ok(serve_floats(plan, party, &weights, &mut clients, options)?)
}

/// What a session of such a plan holds at most, in bytes: all values at once, each with what a step
/// of two parties needs for it, and the sums of blocks of the largest matrix product, twice while
/// they are joined.
pub(super) fn memory(plan: &FloatPlan) -> u64 {
    let elements = plan.values.iter().map(|shape| shape.elements() as u64);
    let blocks = |step: &FloatStep| match step.op {
        FloatOp::MatMul => {
            let terms = plan.shape(step.inputs[0]).dims().last().map_or(1, |k| k.div_ceil(16) as u64);
            terms.saturating_mul(plan.shape(step.output).elements() as u64)
        }
        _ => 0,
    };
    let blocks = plan.steps.iter().map(blocks).max().unwrap_or_default();
    elements.fold(blocks.saturating_mul(2), u64::saturating_add).saturating_mul(64)
}

/// As [`memory`], and what the dealer has sent ahead, which waits at worker 0 until it is used: all
/// that is dealt, or as much as this party's inbox takes from one peer; or a stock of silent
/// transfers.
pub(super) fn session_memory(protocol: &str, plan: &FloatPlan, inbox: u64) -> u64 {
    let ahead = match protocol {
        name if name == MIZAR_FLOAT.name => dealt_bytes(plan).min(inbox),
        _ if plan.group == 0 => silent::MEMORY,
        _ => 0,
    };
    memory(plan).saturating_add(ahead)
}

/// The plan of a request, and the stored model that it may use.
pub(super) fn plan_of(host: &Host, client: &str, run: &Run) -> Result<(FloatPlan, Option<Arc<StoredModel>>)> {
    if run.material != Ahead::Nothing {
        return Err(Error::Refused(
            "floating point has no offline phase whose material is kept: leave out the name of the material"
                .into(),
        ));
    }
    match &run.source {
        Source::Plan(bytes) => {
            let plan = affordable(host, bytes)?;
            own(&plan.inputs, &plan.outputs, client)?;
            Ok((plan, None))
        }
        Source::Model { model, batch } => {
            let stored = host.open(model, client)?;
            Ok((affordable(host, &stored.header.plan_for(*batch, client)?.plan)?, Some(stored)))
        }
    }
}

/// Keeps a model in shares.
pub(super) fn upload(
    host: &Host,
    upload: &Upload,
    header: ModelHeader,
    plan: &FloatPlan,
    path: &Path,
    channel: &ClientChannel,
    network: &Network,
) -> Result<()> {
    let mut party = Party::start(network.clone(), Cpu::new(1))?;
    agree(&mut party, "request", &hash(upload))?;
    let header = header.of_upload(common_name(&mut party, "upload")?);
    party.enter(Phase::Input, 0);
    let mut clients = ChannelClients { channel, network: network.clone(), due: None };
    let mut file = ModelFile::new(&header)?;
    // A dealer keeps nothing of a model.
    for name in header.inputs.iter().filter(|_| party.me() != DEALER) {
        let input = named(plan, name)?;
        let size = share_bytes(plan.shape(input.value).elements());
        let share = clients.data(input, size)?;
        if share.len() != size {
            let got = share.len();
            return Err(Error::Refused(format!("the share of `{name}` has {got} bytes, not {size}")));
        }
        file.body().extend_from_slice(share.as_bytes());
    }
    file.keep(&host.policy.models, path, &mut party)
}

/// A valid plan whose values this party has room for.
pub(super) fn affordable(host: &Host, bytes: &[u8]) -> Result<FloatPlan> {
    let plan = FloatPlan::from_bytes(bytes).map_err(|e| Error::of(ErrorKind::Unsupported, e))?;
    if plan.inputs.iter().any(|i| i.owner == KEPT) || plan.outputs.iter().any(|o| o.recipient == KEPT) {
        return Err(Error::Refused("values of floating point are not kept between runs yet".into()));
    }
    host.room_for(plan.values.iter().map(Shape::elements))?;
    Ok(plan)
}

fn named<'a>(plan: &'a FloatPlan, name: &str) -> Result<&'a Input> {
    let input = plan.inputs.iter().find(|i| i.name == name);
    input.ok_or_else(|| Error::Refused(format!("the plan has no input `{name}`")))
}

/// The shares of a stored model as inputs of a plan.
fn load(stored: &StoredModel, protocol: &str, plan: &FloatPlan, me: usize) -> Result<StoredFloats> {
    stored.header.is_of(protocol)?;
    let mut rest = stored.body();
    let mut weights = HashMap::new();
    for name in stored.header.inputs.iter().filter(|_| me != DEALER) {
        let n = plan.shape(named(plan, name)?.value).elements();
        let (share, after) = rest.split_at_checked(share_bytes(n)).ok_or_else(|| stored.unreadable())?;
        weights.insert(name.clone(), Payload::from_bytes(share));
        rest = after;
    }
    if rest.is_empty() { Ok(weights) } else { Err(stored.unreadable()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use megrez_engine::float::dealt_cost;

    /// A product of n × n matrices.
    fn plan(n: usize) -> FloatPlan {
        let mut plan = FloatPlan::new(4);
        let [x, y] = ["x", "y"].map(|name| plan.input(name, "alice", [n, n].into()));
        let product = plan.step("product", FloatOp::MatMul, &[x, y]).unwrap();
        plan.output("z", "alice", product);
        plan
    }

    #[test]
    fn what_a_dealer_sends_ahead_counts() {
        let memory_of = |name: &str, n: usize, inbox: u64| session_memory(name, &plan(n), inbox);
        // Three matrices, and the sums of blocks of 16 products.
        let values = |n: usize| 64 * (3 + 2 * n.div_ceil(16)) as u64 * (n * n) as u64;
        assert_eq!(memory_of("secfloat", 3, 1 << 30), values(3));
        let dealt: u64 = dealt_cost(&plan(3)).iter().map(|cost| cost.dealt).sum();
        assert!(dealt > 27 * 100);
        let counted = memory_of("mizar-float", 3, 1 << 30) - values(3);
        assert!((dealt..2 * dealt).contains(&counted), "{dealt} {counted}");
        assert_eq!(memory_of("mizar-float", 3, 1000), values(3) + 1000, "what does not fit is not sent");
        // 2^42 products: nobody waits until these are counted, nor takes memory for it.
        assert_eq!(memory_of("mizar-float", 1 << 14, 1 << 30), values(1 << 14) + (1 << 30));
    }
}
