//! Training as a service, at a party: jobs that run without their client, what owners have
//! approved, and how jobs stand.

mod entries;
mod files;
mod fits;
mod guard;
mod outbox;
mod rows;
mod run;
mod shards;

pub(super) use entries::Training;

use super::asked::{Asked, Wish, seconds};
use super::clients::{ClientChannel, alive, hold};
use super::host::{Host, ended};
use super::opened::StoredModel;
use super::service::Service;
use super::stored::{ModelHeader, forbidden};
use crate::approval::{Approval, Looks};
use crate::protocols;
use crate::training::{Consent, Job, JobId, JobState, Stands, Work};
use crate::wire::{self, Reply, Train};
use crate::{Error, ErrorKind, Result};
use entries::lock;
use files::{Folder, name};
use fits::{Kept, fits};
use megrez_engine::store::Id;
use megrez_protocols::registry::Numbers;
use run::{End, TrainJob};
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What a party needs for a job that it accepts.
struct Ready {
    work: Work,
    stored: Vec<StoredModel>,
    keep: Kept,
    /// Who has a say in what.
    owners: Vec<(String, String, Id)>,
}

/// A job that has begun here, as its operator is shown it.
pub(super) struct Known {
    /// In digits.
    pub(super) name: String,
    /// Who has asked for it.
    pub(super) client: String,
    pub(super) state: &'static str,
    pub(super) epoch: u32,
    pub(super) epochs: u32,
}

impl Service {
    /// Begins a job, or goes on with one. Its client hears when all parties have begun, and may go
    /// then.
    pub(super) fn train(
        &self,
        asked: &Asked,
        train: &Train,
        shared: &ClientChannel,
        permitted: Result<()>,
    ) -> Result<()> {
        let job = &train.job;
        if job.client != asked.client {
            return Err(forbidden(format!("the job is `{}`'s to begin", job.client)));
        }
        let protocol = self.host.protocol(&job.protocol, false)?;
        if protocol.numbers == Numbers::Float32 {
            let what = format!("`{}` trains nothing as a job", protocol.name);
            return Err(Error::of(ErrorKind::Unsupported, what));
        }
        let profile = &self.host.profile(&train.net)?;
        let begin = || {
            let ready = permitted.and_then(|()| self.accepted(train));
            let memory = |ready: &Ready| memory(&ready.work, job);
            let (session, alone, depend, present) = (train.session, true, false, &|| shared.present());
            let within = seconds(train.within_s);
            let wish =
                Wish { asked, session, profile, present, depend, within, alone, ready, memory: &memory };
            let (ready, place) = self.admitted(wish)?;
            let network = self.host.join(asked, session, profile)?;
            Ok::<_, Error>((ready, place, network))
        };
        let (Ready { work, stored, keep, owners }, _place, network) = alive(shared, begin)?;
        let entry = RefCell::new(None);
        let enter = |stored: &[StoredModel]| {
            let entered = self.training.enter(job)?;
            let running = Arc::clone(&entered.running);
            *entry.borrow_mut() = Some(entered);
            // What was taken back since has not stopped the job; what is taken back from now on
            // does.
            self.approved(job, &owners)?;
            let still = |found: &StoredModel| found.header.still_lets(&self.host.policy.models, asked.client);
            stored.iter().try_for_each(still)?;
            Ok(running)
        };
        let begun = || {
            // A client that has gone is not missed.
            let _ = wire::send(&mut hold(shared), &Reply::Begun);
        };
        let task = TrainJob {
            host: &self.host,
            network: network.clone(),
            train,
            work: &work,
            stored,
            keep,
            enter: &enter,
            begun: &begun,
        };
        let suite = protocols::suite(&job.protocol, work.ring())?;
        let result = ended(&network, task.run(&*suite));
        // An attempt that never had the job's place says nothing about the job: its client hears
        // why.
        let entry = entry.take();
        if let (Err(e), Some(entry)) = (&result, &entry) {
            self.training.failed(entry.id, e);
        }
        drop(entry);
        let end = result?;
        asked.event_of(match end {
            End::Done => "the job has come to its end",
            End::Stopped => "the job was stopped",
        });
        Ok(())
    }

    /// Writes down what an owner says of a job.
    pub(super) fn consent(
        &self,
        asked: &Asked,
        consent: &Consent,
        signature: &[u8],
        shared: &ClientChannel,
    ) -> Result<()> {
        let client = asked.client;
        Approval::Job(consent).is_signed_by(client, signature, &self.host.endpoint.identity())?;
        if consent.of.is_empty() {
            return Err(Error::Refused("an approval names the rows or weights that it is about".into()));
        }
        let data = &self.host.policy.data;
        if consent.withdrawn {
            asked.accept()?;
            let of = files::withdraw(data, client, &consent.job)?.unwrap_or_default();
            let running = lock(&self.training.running);
            let of_job = running.values().filter(|running| {
                running.job.hash() == consent.job && of.iter().any(|name| running.job.uses(name))
            });
            of_job.for_each(|running| running.stop.store(true, Ordering::Release));
            return wire::send(&mut hold(shared), &Reply::Done);
        }
        if consent.of.len() > files::MAX_OF {
            return Err(forbidden(format!(
                "an approval is about {} rows and weights at most",
                files::MAX_OF
            )));
        }
        let mut of = vec![];
        for named in &consent.of {
            let stored =
                StoredModel::open(&self.host.policy.models, named, client, self.host.endpoint.me(), true)?;
            if !stored.header.owners.iter().any(|owner| owner == client) {
                return Err(forbidden(format!("`{client}` has no say in `{named}`")));
            }
            of.push((named.clone(), stored.header.upload));
        }
        asked.accept()?;
        files::consent(data, client, consent, signature, of)?;
        wire::send(&mut hold(shared), &Reply::Done)
    }

    /// Tells a client how the jobs stand that concern it.
    pub(super) fn jobs(
        &self,
        client: &str,
        only: Option<JobId>,
        whole: bool,
        shared: &ClientChannel,
    ) -> Result<()> {
        let ids = match only {
            Some(id) => vec![id],
            None => Folder::all(&self.host.policy.data)?,
        };
        let mut states = vec![];
        for id in ids {
            let state = || self.concerns(client, id)?.map(|job| self.state(client, job, whole)).transpose();
            match state() {
                Ok(state) => states.extend(state),
                // One file that is damaged hides no other job; asked for by its name it tells why.
                Err(_) if only.is_none() => {}
                Err(e) => return Err(e),
            }
        }
        if let (Some(id), []) = (only, &states[..]) {
            return Err(absent(&id, client));
        }
        wire::send(&mut hold(shared), &Reply::Jobs(states))
    }

    /// The job, if it concerns the client.
    fn concerns(&self, client: &str, id: JobId) -> Result<Option<Job>> {
        let data = &self.host.policy.data;
        let job = Folder::new(data, id).job()?;
        let learns = |job: &Job| job.opened.iter().any(|opening| opening.recipient == client);
        let concerns =
            |job: &Job| job.client == client || learns(job) || files::has_consented(data, job, client);
        Ok(job.filter(concerns))
    }

    fn state(&self, client: &str, job: Job, whole: bool) -> Result<JobState> {
        let folder = Folder::new(&self.host.policy.data, job.id());
        let me = self.host.endpoint.me();
        let running = lock(&self.training.running).get(&job.id()).cloned();
        let failed = lock(&self.training.failed).get(&job.id()).cloned();
        let before = running
            .as_ref()
            .map(|running| (running.epoch.load(Ordering::Acquire), running.step.load(Ordering::Acquire)));
        // What a running job has sealed last may not be sealed everywhere yet; and it may go on
        // while we look.
        let look = || -> Result<_> {
            let epoch = match &running {
                Some(running) => running.epoch.load(Ordering::Acquire),
                None => folder.newest()?,
            };
            let mut checkpoint = folder.checkpoint(&job, me, epoch)?;
            checkpoint.opened.extend(folder.told(epoch)?);
            Ok((epoch, checkpoint))
        };
        let (epoch, checkpoint) = look().or_else(|_| look())?;
        let kept = || {
            job.keep
                .as_ref()
                .map_or(Ok(true), |keep| self.host.policy.models.path(&keep.model).map(|path| path.exists()))
        };
        let stands = match (running, failed) {
            // Of the epoch that is told, or of one that has just begun.
            (Some(_), _) => Stands::Runs(before.filter(|(of, _)| *of == epoch).map_or(0, |(_, step)| step)),
            (None, Some(failure)) => Stands::Failed(failure),
            (None, None) if epoch == job.epochs() && kept()? => Stands::Done,
            (None, None) => Stands::Waits,
        };
        let mine = |(recipient, opened): (String, _)| (recipient == client).then_some(opened);
        Ok(JobState {
            id: job.id(),
            hash: job.hash(),
            client: job.client.clone(),
            epochs: job.epochs(),
            epoch,
            steps: job.check().map_or(0, |work| work.steps(&job)),
            stands,
            opened: checkpoint.opened.into_iter().filter_map(mine).collect(),
            job: whole.then(|| Box::new(job)),
        })
    }

    /// The jobs that have begun here, at most so many, for the operator.
    pub(super) fn known_jobs(&self, most: usize) -> Vec<Known> {
        let data = &self.host.policy.data;
        let known = |id: JobId| {
            let folder = Folder::new(data, id);
            let job = folder.job().ok().flatten()?;
            let running = lock(&self.training.running).get(&id).cloned();
            let failed = lock(&self.training.failed).contains_key(&id);
            let epoch = match &running {
                Some(running) => running.epoch.load(Ordering::Acquire),
                None => folder.newest().ok()?,
            };
            let state = match running {
                Some(_) => "runs",
                None if epoch == job.epochs() => "done",
                None if failed => "failed",
                None => "waits to be resumed",
            };
            Some(Known {
                name: files::name(&id),
                client: job.client.clone(),
                state,
                epoch,
                epochs: job.epochs(),
            })
        };
        Folder::all(data).unwrap_or_default().into_iter().take(most).filter_map(known).collect()
    }

    /// Approvals of jobs that have not begun: the job's hash, who, and of what; at most a few
    /// hundred.
    pub(super) fn approvals(&self) -> Vec<(String, String, String)> {
        const MOST: usize = 400;
        let data = &self.host.policy.data;
        let begun = |id| Folder::new(data, id).job().ok().flatten().map(|job| job.hash());
        let begun: Vec<[u8; 32]> =
            Folder::all(data).unwrap_or_default().into_iter().take(MOST).filter_map(begun).collect();
        let waits =
            |(job, ..): &(String, String, String)| !begun.iter().any(|hash| files::digits(hash) == *job);
        files::consents(data, MOST).into_iter().filter(waits).collect()
    }

    /// Stops a job, which its client and all who have a say in it may do.
    pub(super) fn stop(&self, client: &str, id: JobId, shared: &ClientChannel) -> Result<()> {
        let job = self.concerns(client, id)?.ok_or_else(|| absent(&id, client))?;
        if job.client != client && !files::has_consented(&self.host.policy.data, &job, client) {
            return Err(forbidden(format!("the job is not `{client}`'s to stop")));
        }
        if let Some(running) = lock(&self.training.running).get(&id) {
            running.stop.store(true, Ordering::Release);
        }
        wire::send(&mut hold(shared), &Reply::Done)
    }
}

fn absent(id: &JobId, client: &str) -> Error {
    forbidden(format!("there is no job {} that concerns `{client}`", name(id)))
}

/// What a session of the job holds at most, in bytes.
fn memory(work: &Work, job: &Job) -> u64 {
    let rows = work.stored_rows(job).fold(0u64, |all, elements| all.saturating_add(elements as u64));
    let step = work.plans().map(|plan| Host::memory_streamed(&job.protocol, plan)).max().unwrap_or(0);
    step.saturating_add(rows.saturating_mul(4 * u64::from(work.ring().next_power_of_two() / 8)))
}

impl Service {
    /// What this party makes of a job: everything that it names is there and fits, and all who have
    /// a say in it have approved this very job.
    fn accepted(&self, train: &Train) -> Result<Ready> {
        let (host, job) = (&self.host, &train.job);
        let plans = job.stages.iter().map(|stage| &stage.step);
        let plans = plans.chain(job.shards.iter().map(|shards| &shards.plan));
        let plans = plans.chain(job.validation.iter().map(|validation| &validation.plan));
        plans.into_iter().try_for_each(|plan| host.affordable(plan).map(drop))?;
        let work = job.check()?;
        let (needs, has) = (memory(&work, job), host.settings.get().capacity.memory());
        if needs > has {
            let what = format!("the job needs up to {needs} bytes, this party's sessions have {has}");
            return Err(Error::of(ErrorKind::Unsupported, what));
        }
        let me = host.endpoint.me();
        let mut stored = vec![];
        for named in job.sets().chain([&job.start]) {
            let found = StoredModel::open(&host.policy.models, named, &job.client, me, false)?;
            // A model may be run by those whom its owner allows; only its owner trains it further.
            if !found.header.rows && found.header.owner != job.client {
                return Err(forbidden(format!("`{}` may not train the model `{named}` further", job.client)));
            }
            stored.push(found);
        }
        let guarantees = host.policy.guarantees;
        let sets = stored.iter().filter(|found| found.header.rows);
        let largest = sets.map(|found| found.header.largest()).fold(0.0, f64::max);
        for found in &stored {
            let ModelHeader { rules, owner, .. } = &found.header;
            if let Some(rules) = rules.as_ref().filter(|_| *owner != job.client) {
                rules.permit(found.header.name(), owner, job, Looks { largest, guarantees })?;
            }
        }
        let owners = |found: &StoredModel| {
            let (name, upload) = (found.header.name().to_owned(), found.header.upload);
            let others = found.header.owners.iter().filter(|owner| **owner != job.client);
            others.map(|owner| (owner.clone(), name.clone(), upload)).collect::<Vec<_>>()
        };
        let owners: Vec<_> = stored.iter().flat_map(owners).collect();
        self.approved(job, &owners)?;
        let keep = fits(host, train, &work, &stored)?;
        Ok(Ready { work, stored, keep, owners })
    }

    /// Makes sure that all who have a say in a job have approved it.
    fn approved(&self, job: &Job, owners: &[(String, String, Id)]) -> Result<()> {
        let (data, hash) = (&self.host.policy.data, job.hash());
        owners
            .iter()
            .try_for_each(|(owner, name, upload)| files::approved(data, &hash, owner, (name, *upload)))
    }

    /// Stops all jobs at the borders of their steps.
    pub(super) fn stop_jobs(&self) {
        lock(&self.training.running).values().for_each(|running| running.stop.store(true, Ordering::Release));
    }
}
