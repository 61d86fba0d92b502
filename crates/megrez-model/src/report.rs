//! Reports for people and programs: costs per phase, link and layer, with medians over runs.

use megrez_engine::{PartyReport, PlanCost};
use megrez_net::NetProfile;
use megrez_session::Phase;
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};

/// Seconds over several runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Seconds {
    /// The middle one.
    pub median: f64,
    /// The fastest.
    pub min: f64,
    /// The slowest.
    pub max: f64,
}

impl Seconds {
    /// From one number per run.
    pub fn of(mut runs: Vec<f64>) -> Self {
        runs.sort_by(f64::total_cmp);
        match runs.as_slice() {
            [] => Seconds::default(),
            all => Seconds { median: all[all.len() / 2], min: all[0], max: all[all.len() - 1] },
        }
    }
}

/// One phase over all parties.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PhaseCost {
    /// The slowest party's wall-clock seconds, over the runs.
    pub seconds: Seconds,
    /// Each party's seconds of local work, median over the runs.
    pub busy_seconds: Vec<f64>,
    /// Messages on the critical path.
    pub rounds: u32,
    /// Payload bytes of protocol messages per link, `from>to`.
    pub sent_bytes: BTreeMap<String, u64>,
}

impl PhaseCost {
    /// Payload bytes that a party sent and received.
    pub fn of_party(&self, party: usize) -> (u64, u64) {
        let p = party.to_string();
        let side = |end: usize| -> u64 {
            self.sent_bytes
                .iter()
                .filter(|(link, _)| link.split('>').nth(end) == Some(&p))
                .map(|(_, b)| b)
                .sum()
        };
        (side(0), side(1))
    }
}

/// The cost of a plan, measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Cost {
    /// By phase.
    pub phases: BTreeMap<Phase, PhaseCost>,
    /// Bytes on the wire per link in the whole session, framing and TLS included.
    pub wire_bytes: BTreeMap<String, u64>,
    /// Per layer, in the plan's order.
    pub layers: Vec<LayerCost>,
    /// The device of each party.
    pub device: Vec<String>,
    /// Peak resident memory of each party in MiB.
    pub peak_rss_mib: Vec<Option<f64>>,
    /// Seconds that each party's kernels took on its device in a run, median over the runs; `None`
    /// on the host.
    pub kernel_seconds: Vec<Option<f64>>,
    /// Peak memory of each party on its device in MiB; `None` on the host.
    pub peak_device_mib: Vec<Option<f64>>,
}

/// The online and offline cost of one layer.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LayerCost {
    /// The layer's name.
    pub layer: String,
    /// Payload bytes over all links.
    pub offline_bytes: u64,
    /// Payload bytes over all links.
    pub online_bytes: u64,
    /// Messages that it adds to the critical path.
    pub online_rounds: u32,
    /// The slowest party's seconds, waiting included, median over runs.
    pub online_seconds: f64,
}

impl Cost {
    /// Seconds of the online phase, median over runs; 0 if there was none.
    pub fn online_seconds(&self) -> f64 {
        self.phases.get(&Phase::Online).map_or(0.0, |online| online.seconds.median)
    }

    /// Merges the reports of all runs (outer) and parties (inner).
    pub fn of(reports: &[Vec<PartyReport>]) -> Self {
        let mut cost = Cost::default();
        let Some(last) = reports.last() else { return cost };
        let phases: Vec<Phase> = last[0].phases.keys().copied().collect();
        for phase in phases {
            let of = |party: &PartyReport| party.phases.get(&phase).cloned().unwrap_or_default();
            // Under a virtual clock nobody has waited for the network: its seconds come on top.
            let took = |party: &PartyReport| of(party).seconds + of(party).virtual_seconds;
            let slowest = |run: &Vec<PartyReport>| run.iter().map(took).fold(0.0, f64::max);
            let busy =
                |i: usize| Seconds::of(reports.iter().map(|run| of(&run[i]).busy_seconds).collect()).median;
            // Every link is listed, silent ones too.
            let mut sent_bytes: BTreeMap<String, u64> = (0..last.len())
                .flat_map(|from| {
                    (0..last.len()).filter(move |to| *to != from).map(move |to| (format!("{from}>{to}"), 0))
                })
                .collect();
            for party in last {
                for reading in party.sent.iter().filter(|r| r.phase == phase) {
                    for (to, bytes) in reading.sent.iter().enumerate().filter(|(to, _)| *to != party.party) {
                        *sent_bytes.entry(format!("{}>{to}", party.party)).or_default() += bytes;
                    }
                }
            }
            let entry = PhaseCost {
                seconds: Seconds::of(reports.iter().map(slowest).collect()),
                busy_seconds: (0..last.len()).map(busy).collect(),
                rounds: last.iter().map(|p| of(p).rounds).max().unwrap_or(0),
                sent_bytes,
            };
            cost.phases.insert(phase, entry);
        }
        for party in last {
            for (to, bytes) in (0..last.len()).filter(|to| *to != party.party).zip(&party.wire_bytes) {
                cost.wire_bytes.insert(format!("{}>{to}", party.party), *bytes);
            }
        }
        cost.layers = layers(reports);
        cost.device = last.iter().map(|p| p.device.clone()).collect();
        cost.peak_rss_mib = last.iter().map(|p| p.peak_rss_mib).collect();
        let kernels = |party: usize| {
            let runs: Option<Vec<f64>> = reports.iter().map(|run| run[party].kernel_seconds).collect();
            runs.map(|runs| Seconds::of(runs).median)
        };
        cost.kernel_seconds = (0..last.len()).map(kernels).collect();
        cost.peak_device_mib = last.iter().map(|p| p.peak_device_mib).collect();
        cost
    }

    /// A table for people: per phase and party.
    pub fn table(&self) -> String {
        let mut out = format!(
            "{:<9} {:>6} {:>10}  {:>12} {:>12}  {}\n",
            "phase", "rounds", "seconds", "sent", "received", "party"
        );
        for (phase, cost) in self.phases.iter().filter(|(p, _)| **p != Phase::Setup) {
            for party in 0..self.device.len() {
                let (sent, received) = cost.of_party(party);
                let (name, rounds, seconds) = match party {
                    0 => (phase_name(*phase), cost.rounds.to_string(), format!("{:.4}", cost.seconds.median)),
                    _ => ("", String::new(), String::new()),
                };
                out += &format!(
                    "{name:<9} {rounds:>6} {seconds:>10}  {:>12} {:>12}  {party}\n",
                    bytes(sent),
                    bytes(received)
                );
            }
        }
        for party in 0..self.device.len() {
            let measured = self.kernel_seconds[party].zip(self.peak_device_mib[party]);
            if let Some((seconds, mib)) = measured {
                let device = &self.device[party];
                out += &format!("party {party} on {device}: kernels {seconds:.4} s, at most {mib:.1} MiB\n");
            }
        }
        out + "bytes are payload of protocol messages, per party; seconds are those of the slowest party\n"
    }

    /// A table for people: per layer, all parties together.
    pub fn layer_table(&self) -> String {
        let mut out =
            format!("{:<20} {:>7} {:>12} {:>12} {:>10}\n", "layer", "rounds", "offline", "online", "seconds");
        for l in &self.layers {
            out += &format!(
                "{:<20} {:>7} {:>12} {:>12} {:>10.4}\n",
                l.layer,
                l.online_rounds,
                bytes(l.offline_bytes),
                bytes(l.online_bytes),
                l.online_seconds
            );
        }
        out + "bytes are payload over all links together\n"
    }
}

/// Rounds and seconds of every online step at a party.
fn online(report: &PartyReport) -> HashMap<&str, (u32, f64)> {
    let mut steps: HashMap<&str, (u32, f64)> = HashMap::new();
    for step in report.steps.iter().filter(|s| s.phase == Phase::Online) {
        let (rounds, seconds) = steps.entry(&step.step).or_default();
        // What a party reports may be anything.
        *rounds = rounds.saturating_add(step.rounds);
        *seconds += step.seconds;
    }
    steps
}

fn layers(reports: &[Vec<PartyReport>]) -> Vec<LayerCost> {
    let layer_of = |step: &str| -> String { step.split('/').next().unwrap_or(step).to_owned() };
    let last = &reports[reports.len() - 1];
    let mut layers: Vec<LayerCost> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    // Offline steps are reported in the plan's order, which is how people read a model; online ones
    // as they ran.
    for phase in [Phase::Offline, Phase::Online] {
        for step in last[0].steps.iter().filter(|s| s.phase == phase) {
            let layer = layer_of(&step.step);
            places.entry(layer.clone()).or_insert_with(|| {
                layers.push(LayerCost { layer, ..LayerCost::default() });
                layers.len() - 1
            });
        }
    }
    let runs: Vec<Vec<_>> = reports.iter().map(|run| run.iter().map(online).collect()).collect();
    let mut reached = 0;
    for name in last[0].steps.iter().filter(|s| s.phase == Phase::Online).map(|s| s.step.as_str()) {
        let of = |party: &HashMap<&str, (u32, f64)>| party.get(name).copied().unwrap_or_default();
        let layer = &mut layers[places[&layer_of(name)]];
        let rounds = runs[runs.len() - 1].iter().map(|party| of(party).0).max().unwrap_or(0);
        layer.online_rounds += rounds.saturating_sub(reached);
        reached = reached.max(rounds);
        let slowest = |run: &Vec<_>| run.iter().map(|party| of(party).1).fold(0.0, f64::max);
        layer.online_seconds += Seconds::of(runs.iter().map(slowest).collect()).median;
    }
    for reading in last.iter().flat_map(|p| &p.sent) {
        let Some(&place) = places.get(&layer_of(&reading.step)) else { continue };
        let sum: u64 = reading.sent.iter().sum();
        match reading.phase {
            Phase::Offline => layers[place].offline_bytes += sum,
            Phase::Online => layers[place].online_bytes += sum,
            _ => {}
        }
    }
    layers
}

/// The least time that a phase could take, and what it consists of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Floor {
    /// The sum of the parts.
    pub seconds: f64,
    /// Measured seconds over this.
    pub ratio: f64,
    /// Delay and transmission of the messages on the critical path.
    pub network_seconds: f64,
    /// Measured local work on the critical path: the busier worker's and the dealer's, which wait
    /// for each other.
    pub local_seconds: f64,
}

impl Floor {
    /// The floor of a phase: formulas for the network, measurement for local work.
    pub fn of(plan: &PlanCost, measured: &PhaseCost, phase: Phase, net: &NetProfile) -> Self {
        let network_seconds = plan.critical_path(phase, net).seconds;
        let busy = |i: usize| measured.busy_seconds.get(i).copied().unwrap_or(0.0);
        let local_seconds = busy(0).max(busy(1)) + busy(2);
        let seconds = network_seconds + local_seconds;
        let ratio = if seconds > 0.0 { measured.seconds.median / seconds } else { 0.0 };
        Floor { seconds, ratio, network_seconds, local_seconds }
    }
}

/// A phase's name as users know it.
pub fn phase_name(phase: Phase) -> &'static str {
    match phase {
        Phase::Setup => "setup",
        Phase::Offline => "offline",
        Phase::Input => "input",
        Phase::Online => "online",
        Phase::Output => "output",
    }
}

/// Bytes in binary units.
pub fn bytes(n: u64) -> String {
    match n {
        0..1024 => format!("{n} B"),
        1024..1_048_576 => format!("{:.1} KiB", n as f64 / 1024.0),
        1_048_576..1_073_741_824 => format!("{:.3} MiB", n as f64 / 1_048_576.0),
        _ => format!("{:.3} GiB", n as f64 / 1_073_741_824.0),
    }
}
