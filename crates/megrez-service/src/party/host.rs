//! A party as its sessions see it: its endpoint, its device, and what it allows.

use super::asked::Asked;
use super::chosen::Chosen;
use super::models::Models;
use super::opened::StoredModel;
use super::recent::Recent;
use super::settings::{Current, Settings};
use super::stored::{ModelHeader, forbidden};
use super::traces::TraceConfig;
use super::uses::{Use, Uses};
use crate::approval::Guarantees;
use crate::protocols;
use crate::wire::{self, Run, Source};
use crate::{Error, ErrorKind, Result};
use megrez_device::AnyDevice;
use megrez_engine::AHEAD_BYTES;
use megrez_net::{Endpoint, Limits, NetProfile, Network, SessionId};
use megrez_plan::{Input, KEPT, Op, Output, Plan, Relu, ReluForm, SignBit, Step, Winner};
use megrez_protocols::registry::Protocol;
use megrez_session::Error as SessionError;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How long a session waits for the other parties. A client asks all of them at once, so they come
/// soon or never.
const GATHERING: Duration = Duration::from_secs(20);

/// The time-outs of a party that takes a peer for dead after `idle_timeout`.
pub fn limits(idle_timeout: Duration) -> Limits {
    Limits { idle_timeout, connect: GATHERING, ..Limits::default() }
}

/// What a party allows and where it keeps things.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Material, jobs and what else is this party's alone.
    pub data: PathBuf,
    /// Stored models and rows.
    pub models: Models,
    /// Public weights.
    pub weights: megrez_weights::Folder,
    /// Where other replicas of this party listen, who deal with shards of its jobs.
    pub replicas: Vec<String>,
    /// What is allowed, and how much at a time, to begin with.
    pub settings: Settings,
    /// Where requests are written down; `None` where the only client has started the party.
    pub audit: Option<PathBuf>,
    /// Where times of sessions are written down.
    pub traces: Option<TraceConfig>,
    /// What clients may ask for; `None` where all may ask for everything.
    pub rights: Option<PathBuf>,
    /// Reads what the plans of a job guarantee, for owners whose rules ask for it.
    pub guarantees: Guarantees,
}

/// A party without its clients.
pub(super) struct Host {
    pub(super) endpoint: Arc<Endpoint>,
    pub(super) policy: Policy,
    pub(super) settings: Current,
    pub(super) device: AnyDevice,
    /// Which material sessions are about to use.
    pub(super) chosen: Chosen,
    /// How often clients have used what is limited.
    pub(super) uses: Uses,
    /// Stored models that ran just now.
    pub(super) recent: Recent<StoredModel>,
}

impl Host {
    /// A stored model that a client may use, read and checked, now or in a session before.
    pub(super) fn open(&self, model: &str, client: &str) -> Result<Arc<StoredModel>> {
        let (models, me) = (&self.policy.models, self.endpoint.me());
        let path = models.path(model)?;
        let read = || StoredModel::read(models, model, me);
        StoredModel::permitted(self.recent.get(&path, StoredModel::bytes, read)?, model, client, false)
    }

    /// The plan of a request, and the stored model that it may use.
    pub(super) fn plan(&self, client: &str, source: &Source) -> Result<(Plan, Option<Arc<StoredModel>>)> {
        match source {
            Source::Plan(bytes) => {
                let plan = self.affordable(bytes)?;
                own(&plan.inputs, &plan.outputs, client)?;
                Ok((plan, None))
            }
            Source::Model { model, batch } => {
                let stored = self.open(model, client)?;
                let plan = self.affordable(&stored.header.plan_for(*batch, client)?.plan)?;
                Ok((plan, Some(stored)))
            }
        }
    }

    /// What this party may have to refuse `alone`, such as a damaged file, the others hear at once:
    /// it joins the session to end it. They would otherwise wait for it until they gave up. What
    /// follows from the request is refused everywhere.
    pub(super) fn told<T>(
        &self,
        session: [u8; 16],
        profile: &NetProfile,
        alone: bool,
        ready: Result<T>,
    ) -> Result<T> {
        let join = || self.endpoint.open_session(SessionId(session), profile);
        ready.map_err(|e| match alone.then(join) {
            Some(Ok(network)) => given_up(&network, &e),
            _ => e,
        })
    }

    /// Takes part in the session of a request that this party accepts; a party that cannot write
    /// that down ends it.
    pub(super) fn join(&self, asked: &Asked, session: [u8; 16], profile: &NetProfile) -> Result<Network> {
        let network = self.endpoint.open_session(SessionId(session), profile)?;
        asked.accept().map_err(|e| given_up(&network, &e))?;
        Ok(network)
    }

    /// Counts what a request uses of a stored model, once all parties are there for the same
    /// request: what one of them has refused is not used. Nothing has been done yet.
    ///
    /// # Errors
    /// If its client may not use it so, or no longer.
    pub(super) fn count(&self, client: &str, run: &Run, model: Option<&ModelHeader>) -> Result<()> {
        let Some(of) = Use::of(run, model) else { return Ok(()) };
        self.uses.count(&self.policy.data, &self.policy.models, client, &of)
    }

    /// Whether a request would be [counted](Self::count), before anybody waits for its turn.
    ///
    /// # Errors
    /// If its client has used up what the owner has let it.
    pub(super) fn countable(&self, client: &str, run: &Run, model: Option<&ModelHeader>) -> Result<()> {
        let Some(of) = Use::of(run, model) else { return Ok(()) };
        self.uses.left(&self.policy.data, client, &of).map(drop)
    }

    /// A valid plan whose values this party has room for, and whose public weights it has.
    pub(super) fn affordable(&self, bytes: &[u8]) -> Result<Plan> {
        let plan = Plan::from_bytes(bytes).map_err(|e| Error::of(ErrorKind::Unsupported, e))?;
        self.room_for(sizes(&plan))?;
        plan.bind(&self.policy.weights).map_err(|e| Error::of(ErrorKind::DamagedFile, e))?;
        Ok(plan)
    }

    /// What a session of such a plan holds at most at any party, in bytes; nothing if the protocol
    /// does not have the plan's steps, for then it ends at once.
    pub(super) fn memory(protocol: &str, plan: &Plan) -> u64 {
        protocols::cost(protocol, plan).map_or(0, |cost| cost.memory.into_iter().max().unwrap_or(0))
    }

    /// The same where the material of a run is made beside the run before.
    pub(super) fn memory_streamed(protocol: &str, plan: &Plan) -> u64 {
        let one = Self::memory(protocol, plan);
        one.saturating_add(one.min(AHEAD_BYTES))
    }

    /// What storing inputs of a plan holds, in bytes: what arrives, shares and masks of it, and the
    /// file.
    pub(super) fn memory_to_store(plan: &Plan, names: &[String]) -> u64 {
        let stored = plan.inputs.iter().filter(|input| names.contains(&input.name));
        let elements = stored.map(|input| plan.value(input.value).shape.elements() as u64);
        elements.fold(0, u64::saturating_add).saturating_mul(8 * u64::from(plan.ring / 8))
    }

    /// Refuses a plan whose values have too many elements together.
    pub(super) fn room_for(&self, mut values: impl Iterator<Item = usize>) -> Result<()> {
        let elements = values.try_fold(0usize, usize::checked_add).unwrap_or(usize::MAX);
        let most = self.settings.get().max_elements;
        if elements > most {
            return Err(forbidden(format!(
                "the plan's values and tables have {elements} elements together, this party takes at most {most}: use a \
                 smaller batch, or raise max_elements in party.toml"
            )));
        }
        Ok(())
    }

    pub(super) fn profile(&self, net: &wire::Net) -> Result<NetProfile> {
        let profile = net.profile()?;
        if !profile.is_unshaped() && !self.settings.get().allow_shaping {
            return Err(forbidden(
                "this party does not shape its links; set allow_shaping in party.toml for measurements",
            ));
        }
        Ok(profile)
    }

    /// The protocol, if this party and this caller allow it.
    pub(super) fn protocol(&self, name: &str, insecure: bool) -> Result<&'static Protocol> {
        let protocol = protocols::find(name)?;
        if protocol.insecure && !(insecure && self.settings.get().allow_insecure) {
            return Err(forbidden(format!(
                "`{name}` does not protect the data ({}); it runs only when the caller says `--insecure` and the \
                 party allows it",
                protocol.security
            )));
        }
        if protocol.parties != self.endpoint.parties() {
            return Err(Error::Refused(format!(
                "`{name}` takes {} parties, this cluster has {}",
                protocol.parties,
                self.endpoint.parties()
            )));
        }
        Ok(protocol)
    }
}

/// What a plan makes a party hold, in elements: its values, and what is dealt for each of its
/// look-ups and comparisons.
fn sizes(plan: &Plan) -> impl Iterator<Item = usize> {
    // Field elements are packed in fewer bits than 16.
    let words = |bits: usize| bits.div_ceil(plan.ring as usize);
    let packed = move |sign: &SignBit| words(16 * sign.dealt(plan.ring));
    let dealt = move |step: &Step| {
        let op = match &step.op {
            Op::Offloaded(op) | Op::Additive(op) => op,
            op => op,
        };
        let each = match op {
            Op::Lookup(f) => words(f.dealt_bits(plan.ring)),
            Op::Relu(Relu { sign, form: ReluForm::Key, truncate }) => {
                // Corrections of levels and of digits, for both workers.
                let levels = sign.width(plan.ring) as usize - 1;
                words(256 * levels + 2 * levels.div_ceil(4) * (2 * plan.ring + truncate) as usize)
            }
            Op::Relu(Relu { form: ReluForm::DigitTables, truncate, .. }) => {
                // At most: three digits of nine bits, and ten products of masks.
                words(3 * 511 + 10 * (2 * plan.ring + truncate) as usize)
            }
            Op::NonNegative(sign) | Op::CompareMany { sign, .. } | Op::Relu(Relu { sign, .. }) => {
                packed(sign)
            }
            Op::Winner(winner) => {
                let dims = plan.value(step.inputs[0]).shape.dims();
                let (k, rest) = (dims[0], dims[1..].iter().product::<usize>());
                // While they are made, tables are whole, and each entry is a word.
                let pairs = 2 * winner.entries() * Winner::pairs(k);
                let counts = ((k - 1) << Winner::count_bits(k)) * winner.words();
                return Some(rest.saturating_mul(pairs + counts));
            }
            Op::Maximum(sign) => packed(sign) * (step.inputs.len() * (step.inputs.len() - 1) / 2),
            _ => return None,
        };
        Some(plan.value(step.output).shape.elements().saturating_mul(each))
    };
    plan.values.iter().map(|v| v.shape.elements()).chain(plan.steps.iter().filter_map(dealt))
}

/// The parties compare this: they must have been asked for the same thing.
pub(super) fn hash<T: Serialize>(request: &T) -> [u8; 32] {
    let bytes = postcard::to_allocvec(request).expect("requests have plain fields");
    megrez_engine::hash("megrez 2026 request", &bytes)
}

/// Makes sure that the folder is there and files can be written in it.
///
/// # Errors
/// Which folder it is, and why not.
pub fn writable(folder: &Path) -> Result<()> {
    static PROBES: AtomicU64 = AtomicU64::new(0);
    let number = PROBES.fetch_add(1, Ordering::Relaxed);
    let probe = folder.join(format!(".writable-{}-{number}", std::process::id()));
    let written = std::fs::create_dir_all(folder).and_then(|()| {
        let written = std::fs::write(&probe, b"megrez");
        // A full disk takes the name of a file, and not what is in it.
        let removed = std::fs::remove_file(&probe);
        written.and(removed)
    });
    written.map_err(|e| Error::file(folder, format!("nothing can be kept there: {e}")))
}

/// Bytes that a folder's disk has room for, where the system tells.
pub(super) fn free_bytes(folder: &Path) -> Option<u64> {
    #[cfg(unix)]
    {
        let disk = rustix::fs::statvfs(folder).ok()?;
        Some(disk.f_bavail.saturating_mul(disk.f_frsize))
    }
    #[cfg(not(unix))]
    {
        let _ = folder;
        None
    }
}

/// Every input and output must belong to `client`.
pub(super) fn own(inputs: &[Input], outputs: &[Output], client: &str) -> Result<()> {
    let foreign = inputs
        .iter()
        .filter(|i| i.owner != client && i.owner != KEPT)
        .map(|i| format!("input `{}` belongs to `{}`", i.name, i.owner));
    let leaked = outputs
        .iter()
        .filter(|o| o.recipient != client && o.recipient != KEPT)
        .map(|o| format!("output `{}` goes to `{}`", o.name, o.recipient));
    let problems: Vec<String> = foreign.chain(leaked).collect();
    if problems.is_empty() {
        return Ok(());
    }
    Err(forbidden(format!("`{client}` may not run this plan: {}", problems.join("; "))))
}

/// Ends a session: a failure that is this party's own is told to the others, and all report the
/// same reason.
pub(super) fn ended<T>(network: &Network, result: Result<T>) -> Result<T> {
    result.map_err(|e| match &e {
        Error::Session(SessionError::Net(inner)) | Error::Net(inner) if inner.abort().is_some() => e,
        own => given_up(network, own),
    })
}

/// Tells the others of a failure. All report the same words; of what kind it is only the party
/// knows whose failure it is.
fn given_up(network: &Network, e: &Error) -> Error {
    let told = network.fail(&e.to_string());
    match told.abort() {
        Some(abort) if abort.origin == network.me() => Error::of(e.kind(), told),
        _ => Error::Net(told),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use megrez_plan::{Gives, List, Lookup};

    #[test]
    fn what_is_dealt_counts_as_what_a_plan_holds() {
        // 256 segments as a key: 15 corrections of 128 bits, and two words for each worker.
        let f = Lookup { cut: 0, low: 4, degree: 1, pieces: vec![0; 512], frac: 0, beyond: None };
        let plan = |op| {
            let mut plan = Plan::new(64);
            let x = plan.input("x", "alice", [100].into(), 0);
            let y = plan.step("y", op, &[x]).unwrap();
            plan.output("y", "alice", y);
            plan
        };
        for op in [Op::Lookup(f.clone()), Op::Offloaded(Box::new(Op::Lookup(f)))] {
            let plan = plan(op);
            assert_eq!(sizes(&plan).sum::<usize>(), 100 + 100 + 100 * (2 * 15 + 4));
        }
        let mut winners = Plan::new(64);
        let x = winners.input("x", "alice", [10, 100].into(), 0);
        let op = Op::Winner(Winner { cut: 0, bits: 8, gives: Gives::Value });
        let y = winners.step("y", Op::Offloaded(Box::new(op)), &[x]).unwrap();
        winners.output("y", "alice", y);
        assert_eq!(sizes(&winners).sum::<usize>(), 1000 + 100 + 100 * (45 * 256 + 9 * 16 * 2));
        // Wide digits take long lists.
        let sign = |widths: &[u32]| {
            let bits = Some(widths.iter().sum::<u32>() + 1);
            plan(Op::NonNegative(SignBit { list: List::Digits(widths.to_vec()), cut: 0, bits }))
        };
        assert_eq!(sizes(&sign(&[8; 7])).sum::<usize>(), 200 + 100 * (16 * 7 * 255usize).div_ceil(64));
        assert_eq!(sizes(&sign(&[4, 3])).sum::<usize>(), 200 + 100 * 6);
        let sign = SignBit { list: List::Bits, cut: 16, bits: Some(16) };
        let relu =
            |form| sizes(&plan(Op::Relu(Relu { sign: sign.clone(), form, truncate: 0 }))).sum::<usize>();
        assert_eq!(relu(ReluForm::ThreeRounds), 200 + 100 * 4);
        assert_eq!(relu(ReluForm::Key), 200 + 100 * (4 * 15 + 4 * 4));
        assert_eq!(relu(ReluForm::DigitTables), 200 + 100 * (3 * 511 + 10 * 128usize).div_ceil(64));
    }
}
