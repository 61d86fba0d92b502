//! Training jobs, as their clients and the owners of rows see them.

use super::{Cluster, unexpected};
use crate::approval::Approval;
use crate::protocols;
use crate::training::{Consent, Job, JobId, JobState, Opened, Stands, Work};
use crate::wire::{self, Reply, Request, Train};
use crate::{Error, ErrorKind, Result};
use megrez_net::{NetProfile, Payload};
use megrez_plan::Value;

/// Something that a job has opened to this client.
#[derive(Clone, Debug, PartialEq)]
pub struct Learnt {
    /// After which epoch, from 1.
    pub epoch: u32,
    /// The name of the state.
    pub state: String,
    /// Its type.
    pub value: Value,
    /// Ring elements.
    pub words: Vec<u64>,
}

/// How a job stands at all parties.
#[derive(Clone, Debug)]
pub struct Standing {
    /// At each party.
    pub parties: Vec<JobState>,
}

impl Standing {
    /// Epochs that all parties have sealed.
    pub fn epoch(&self) -> u32 {
        self.parties.iter().map(|state| state.epoch).min().unwrap_or(0)
    }

    /// Whether a party works on it.
    pub fn runs(&self) -> bool {
        self.parties.iter().any(|state| matches!(state.stands, Stands::Runs(_)))
    }

    /// Steps of the epoch that is under way: all of them where party 0 has ended it and another has
    /// not, so that this never goes back.
    pub fn step(&self) -> u32 {
        let step = |state: &JobState| match state.stands {
            Stands::Runs(_) if state.epoch > self.epoch() => state.steps,
            Stands::Runs(step) => step,
            _ => 0,
        };
        self.parties.first().map_or(0, step)
    }

    /// In a word.
    pub fn word(&self) -> &'static str {
        let any = |is: fn(&Stands) -> bool| self.parties.iter().any(|state| is(&state.stands));
        if self.runs() {
            "runs"
        } else if any(|stands| matches!(stands, Stands::Failed(_))) {
            "failed"
        } else if any(|stands| matches!(stands, Stands::Waits)) {
            "waits"
        } else {
            "done"
        }
    }

    /// Why it failed, if it did: of the parties' reasons the one that explains the others.
    pub fn failure(&self) -> Option<Error> {
        let failed = self.parties.iter().enumerate().filter_map(|(party, state)| match &state.stands {
            Stands::Failed(failure) => Some((party, failure)),
            _ => None,
        });
        let first = failed.reduce(|a, b| if b.1.kind.explains(a.1.kind) { b } else { a });
        first.map(|(party, failure)| Error::Party {
            party,
            kind: failure.kind,
            reason: failure.reason.clone(),
        })
    }
}

impl Cluster {
    /// Begins a job, or goes on with it after its last checkpoint. The parties then run it by
    /// themselves, over links of this profile.
    ///
    /// # Errors
    /// If a party refuses: [`ErrorKind::NotPermitted`] where somebody who has a say has not
    /// approved it.
    pub fn train(&mut self, job: &Job, net: &NetProfile) -> Result<()> {
        self.repeated(true, |cluster| {
            let session = wire::fresh_name()?;
            let within_s = cluster.patience.within_s();
            cluster.ask(&Request::Train(Train { session, job: job.clone(), net: net.into(), within_s }))?;
            cluster.each(|party, reply| match reply {
                Reply::Begun => Ok(()),
                other => Err(unexpected(party, &other)),
            })
        })?;
        // The parties are at work on the present connections.
        self.reconnect()
    }

    /// Says at every party that this client approves a job, or no longer.
    ///
    /// # Errors
    /// If the client has no say in what it names.
    pub fn consent(&mut self, consent: &Consent) -> Result<()> {
        let signature = Approval::Job(consent).sign(&self.identity)?;
        self.told_all(&Request::Consent { consent: consent.clone(), signature })
    }

    /// Stops a job at the border of a step; what its finished epochs left is there to go on with.
    ///
    /// # Errors
    /// If there is no such job that this client may stop.
    pub fn stop(&mut self, job: JobId) -> Result<()> {
        self.told_all(&Request::Stop { job })
    }

    pub(super) fn told_all(&mut self, request: &Request) -> Result<()> {
        self.attempt(|cluster| {
            cluster.ask(request)?;
            cluster.done()
        })
    }

    /// How jobs stand: all that concern this client, or one; `whole` with what they are.
    ///
    /// # Errors
    /// If the parties tell of different jobs under one name.
    pub fn jobs(&mut self, job: Option<JobId>, whole: bool) -> Result<Vec<Standing>> {
        let all = self.attempt(|cluster| {
            cluster.ask(&Request::Jobs { job, whole })?;
            cluster.each(|party, reply| match reply {
                Reply::Jobs(states) => Ok(states),
                other => Err(unexpected(party, &other)),
            })
        })?;
        let first = all.first().cloned().unwrap_or_default();
        // A job that has not begun everywhere is none yet.
        let standing = |state: JobState| {
            let of = |states: &Vec<JobState>| states.iter().find(|other| other.id == state.id).cloned();
            Some(Standing { parties: all.iter().map(of).collect::<Option<_>>()? })
        };
        let standings: Vec<Standing> = first.into_iter().filter_map(standing).collect();
        for Standing { parties } in &standings {
            if parties.iter().any(|state| state.hash != parties[0].hash) {
                let what = "the parties tell of different jobs under one name: do not use it";
                return Err(Error::of(ErrorKind::DamagedFile, what));
            }
        }
        Ok(standings)
    }

    /// What a job has opened to this client so far.
    ///
    /// # Errors
    /// If the shares do not fit the job.
    pub fn learnt(&self, job: &Job, standing: &Standing) -> Result<Vec<Learnt>> {
        let work = job.check()?;
        let mut learnt = vec![];
        let first = standing.parties.first().map_or(&[][..], |state| &state.opened);
        for opened in first {
            // Of an epoch that was done again some may have another share still.
            let same = |other: &&Opened| {
                (other.epoch, &other.state, other.tag) == (opened.epoch, &opened.state, opened.tag)
            };
            let share = |state: &JobState| state.opened.iter().find(same).map(|found| found.share.clone());
            let Some(shares) = standing.parties.iter().map(share).collect::<Option<Vec<_>>>() else {
                continue;
            };
            learnt.push(put_together(job, &work, opened, &shares)?);
        }
        Ok(learnt)
    }
}

fn put_together(job: &Job, work: &Work, opened: &Opened, shares: &[Vec<u8>]) -> Result<Learnt> {
    let value = work.state(&opened.state).cloned();
    let value = value.ok_or_else(|| Error::Refused(format!("the job has no state `{}`", opened.state)))?;
    let shares = shares.iter().map(|share| Payload::from_bytes(share)).collect::<Vec<_>>();
    let step = work.steps.first().ok_or_else(|| Error::Refused("the job has no step".into()))?;
    let suite = protocols::suite(&job.protocol, step.ring)?;
    if shares.len() != suite.parties() {
        return Err(Error::Refused("a share of each party is needed".into()));
    }
    let words = suite.reconstruct(&value, &shares)?;
    Ok(Learnt { epoch: opened.epoch, state: opened.state.clone(), value, words })
}
