//! What one party measured.

use megrez_kernels::{Device, Usage};
use megrez_session::{Error, Party, Phase, Reading};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// One phase at one party.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PhaseReport {
    /// Wall-clock seconds.
    pub seconds: f64,
    /// Of these, seconds of local work: not waiting for messages.
    pub busy_seconds: f64,
    /// Messages on the longest chain that ends here.
    pub rounds: u32,
    /// Virtual seconds, under a virtual clock.
    pub virtual_seconds: f64,
    /// When it ended, known at the party alone.
    #[serde(skip)]
    pub ended: Option<Instant>,
}

/// One step at one party in one phase.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepReport {
    /// The phase.
    pub phase: Phase,
    /// The plan's step.
    pub step: String,
    /// Wall-clock seconds, waiting included.
    pub seconds: f64,
    /// Messages on the critical path since the phase began, at the step's end.
    pub rounds: u32,
    /// When it ended, known at the party alone.
    #[serde(skip)]
    pub ended: Option<Instant>,
}

impl StepReport {
    /// A step that began at `start` and took this long.
    pub(crate) fn new<D: Device>(
        phase: Phase,
        step: &str,
        (start, wall): (Instant, Duration),
        party: &Party<D>,
    ) -> Self {
        let (seconds, ended) = (wall.as_secs_f64(), start.checked_add(wall));
        StepReport { phase, step: step.to_owned(), seconds, rounds: party.rounds(), ended }
    }
}

/// One run of a plan at one party. It holds counts and times, no values.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PartyReport {
    /// Which party.
    pub party: usize,
    /// The device that ran.
    pub device: String,
    /// Time and rounds per phase.
    pub phases: BTreeMap<Phase, PhaseReport>,
    /// Payload bytes that this party sent, per phase and step.
    pub sent: Vec<Reading>,
    /// Time and rounds per step.
    pub steps: Vec<StepReport>,
    /// Bytes on the wire to each of the other parties so far in the session, framing and TLS
    /// included; 0 where there is no wire.
    pub wire_bytes: Vec<u64>,
    /// Peak resident memory of this party's process in MiB so far; `None` where the system does not
    /// say.
    pub peak_rss_mib: Option<f64>,
    /// Seconds that kernels of this run took on the device; `None` where the device is the host.
    /// Sessions that run at the same time on one device are counted together.
    pub kernel_seconds: Option<f64>,
    /// Peak memory in MiB on the device so far; `None` where the device is the host.
    pub peak_device_mib: Option<f64>,
}

/// What a party measures of a run as it goes on.
#[derive(Default)]
pub(crate) struct Measured {
    phases: BTreeMap<Phase, PhaseReport>,
    /// The steps so far.
    pub steps: Vec<StepReport>,
    /// What a lane with a meter of its own has sent.
    apart: Vec<Reading>,
}

impl Measured {
    /// A phase that began at `start` has ended.
    pub(crate) fn close<D: Device>(&mut self, phase: Phase, start: Instant, party: &Party<D>) {
        let report = PhaseReport {
            seconds: start.elapsed().as_secs_f64(),
            busy_seconds: start.elapsed().saturating_sub(party.waited()).as_secs_f64(),
            rounds: party.rounds(),
            virtual_seconds: party.time_ns() as f64 * 1e-9,
            ended: Some(Instant::now()),
        };
        self.phases.insert(phase, report);
    }

    /// A lane with a meter of its own has ended.
    pub(crate) fn sent_apart<D: Device>(&mut self, lane: &Party<D>) {
        self.apart = lane.meter().readings();
    }

    /// A phase of so many rounds that goes on beside another one, in whose seconds it is.
    pub(crate) fn beside(&mut self, phase: Phase, rounds: u32) {
        self.phases.insert(phase, PhaseReport { rounds, ..PhaseReport::default() });
    }

    /// The report of the whole run; `before` is what the device had done before it.
    ///
    /// # Errors
    /// If the device cannot say what it has done.
    pub(crate) fn report<D: Device>(
        self,
        party: &Party<D>,
        before: Option<Usage>,
    ) -> Result<PartyReport, Error> {
        let after = party.device().usage()?;
        let of_run = |(before, after): (Usage, Usage)| after.kernel_seconds - before.kernel_seconds;
        Ok(PartyReport {
            party: party.me(),
            device: party.device().describe(),
            phases: self.phases,
            sent: joined(self.apart, party.meter().readings()),
            steps: self.steps,
            wire_bytes: party.network().wire().iter().map(|w| w.sent.wire_bytes).collect(),
            peak_rss_mib: peak_rss_mib(),
            kernel_seconds: before.zip(after).map(of_run),
            peak_device_mib: after.map(|usage| usage.peak_memory as f64 / f64::from(1 << 20)),
        })
    }
}

/// Readings of two meters as of one.
fn joined(mut all: Vec<Reading>, more: Vec<Reading>) -> Vec<Reading> {
    let add = |sums: &mut [u64], of: &[u64]| sums.iter_mut().zip(of).for_each(|(sum, of)| *sum += of);
    for reading in more {
        match all.iter_mut().find(|one| one.phase == reading.phase && one.step == reading.step) {
            Some(one) => {
                add(&mut one.sent, &reading.sent);
                add(&mut one.messages, &reading.messages);
            }
            None => all.push(reading),
        }
    }
    all.sort_by(|a, b| (a.phase, &a.step).cmp(&(b.phase, &b.step)));
    all
}

/// Peak resident memory of this process in MiB, from the Linux process table.
pub fn peak_rss_mib() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|l| l.starts_with("VmHWM:"))?;
    Some(line.split_whitespace().nth(1)?.parse::<f64>().ok()? / 1024.0)
}
