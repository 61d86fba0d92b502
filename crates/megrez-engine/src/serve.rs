//! One party's whole run of a plan: agreement, offline, inputs, online, outputs.

use crate::clients::Clients;
use crate::inputs::Arrivals;
use crate::report::{PartyReport, PhaseReport, peak_rss_mib};
use crate::walk::{Prepared, offline, online};
use megrez_kernels::{Device, Memory, Usage};
use megrez_net::Payload;
use megrez_plan::{KEPT, Plan};
use megrez_protocols::{Sharing, Suite};
use megrez_session::{Error, Party, Phase};
use std::collections::{BTreeMap, HashMap};
use std::time::Instant;

/// Inputs that this party already holds, by input name: an uploaded model's, and what earlier runs have kept.
pub type Stored<S> = HashMap<String, (<S as Sharing>::Masks, <S as Sharing>::Data)>;

/// How to run a plan.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How many times, one after the other; each run has fresh randomness.
    pub runs: u32,
}

impl Default for Options {
    fn default() -> Self {
        Options { runs: 1 }
    }
}

/// The parties make sure that they run the same thing: all must hold the same hash.
pub fn agree<D: Device>(party: &mut Party<D>, what: &str, hash: &[u8; 32]) -> Result<(), Error> {
    agree_or(party, what, hash, |low, high| {
        format!(
            "parties {low} and {high} were given different {what}s: use the same model file, options and version"
        )
    })
}

/// As [`agree`]; `otherwise` says what it means, and what to do, that these two parties differ.
pub fn agree_or<D: Device>(
    party: &mut Party<D>,
    what: &str,
    hash: &[u8; 32],
    otherwise: impl Fn(usize, usize) -> String,
) -> Result<(), Error> {
    party.step("agreement", |party| {
        for peer in party.peers() {
            party.send(peer, what, Payload::from_bytes(hash))?;
        }
        for peer in party.peers() {
            if party.recv(peer, what, 32)?.as_bytes() != hash {
                let me = party.me();
                return party.refuse(otherwise(me.min(peer), me.max(peer)));
            }
        }
        Ok(())
    })
}

/// A fresh name for `what` the parties make together: none of them chooses it, and all hold the same.
pub fn common_name<D: Device>(party: &mut Party<D>, what: &str) -> Result<[u8; 16], Error> {
    let mut parts = vec![[0; 32]; party.parties()];
    let me = party.me();
    getrandom::fill(&mut parts[me]).map_err(|e| Error::Randomness(e.to_string()))?;
    party.step("agreement", |party| {
        let label = format!("{what} part");
        for peer in party.peers() {
            party.send(peer, &label, Payload::from_bytes(&parts[me]))?;
        }
        for peer in party.peers() {
            parts[peer].copy_from_slice(party.recv(peer, &label, 32)?.as_bytes());
        }
        Ok(())
    })?;
    let hash = crate::hash("megrez 2026 common name", &parts.concat());
    agree(party, what, &hash)?;
    Ok(*hash.first_chunk().expect("32 bytes"))
}

/// Runs a plan at this party; one report per run. On an error the caller ends the session with it.
///
/// Outputs for [`KEPT`] are added to `stored`, where the next run finds them.
///
/// `prepared` is stored material for the first run; further runs make their own.
pub fn serve<S: Suite>(
    suite: &S,
    plan: &Plan,
    party: &mut Party<S::Device>,
    stored: &mut Stored<S>,
    mut prepared: Option<Prepared<S>>,
    clients: &mut dyn Clients,
    options: Options,
) -> Result<Vec<PartyReport>, Error> {
    agree(party, "plan", &plan.hash())?;
    (0..options.runs)
        .map(|run| {
            party.meter().reset();
            one_run(suite, plan, party, stored, prepared.take(), clients, run)
        })
        .collect()
}

fn one_run<S: Suite>(
    suite: &S,
    plan: &Plan,
    party: &mut Party<S::Device>,
    stored: &mut Stored<S>,
    prepared: Option<Prepared<S>>,
    clients: &mut dyn Clients,
    run: u32,
) -> Result<PartyReport, Error> {
    let mut phases = BTreeMap::new();
    let mut steps = Vec::new();
    let before = party.device().usage()?;
    let mut close = |phase: Phase, start: Instant, party: &Party<S::Device>| {
        let report = PhaseReport {
            seconds: start.elapsed().as_secs_f64(),
            busy_seconds: start.elapsed().saturating_sub(party.waited()).as_secs_f64(),
            rounds: party.rounds(),
            virtual_seconds: party.time_ns() as f64 * 1e-9,
        };
        phases.insert(phase, report);
    };

    let prepared = match prepared {
        Some(prepared) => prepared,
        None => {
            party.barrier(&format!("offline-{run}"))?;
            let start = Instant::now();
            let given = |name: &str| stored.get(name).map(|(masks, _)| masks.clone());
            let prepared = offline(suite, plan, party, run, &given, &mut steps)?;
            close(Phase::Offline, start, party);
            prepared
        }
    };

    let start = Instant::now();
    party.enter(Phase::Input, run);
    let fresh =
        || plan.inputs.iter().zip(prepared.tickets.iter()).filter(|(i, _)| !stored.contains_key(&i.name));
    for (input, ticket) in fresh() {
        clients.ticket(input, ticket.clone())?;
    }
    let (mut arrived, mut arrivals) = (HashMap::new(), Arrivals::default());
    for (input, _) in fresh() {
        arrived.insert(input.value, arrivals.receive(suite, plan, party, input, clients)?);
    }
    let inputs = plan
        .inputs
        .iter()
        .map(|input| match stored.get(&input.name) {
            Some((_, data)) => data.clone(),
            None => arrived.remove(&input.value).expect("every fresh input arrived"),
        })
        .collect();
    close(Phase::Input, start, party);

    arrivals.compare(party, &format!("online-{run}"))?;
    let start = Instant::now();
    let values = online(suite, plan, party, run, prepared, inputs, &mut steps)?;
    let verified = suite.verify(party)?;
    close(Phase::Online, start, party);

    let start = Instant::now();
    party.enter(Phase::Output, run);
    for output in &plan.outputs {
        let (masks, data) = values.get(output.value);
        if output.recipient == KEPT {
            stored.insert(output.name.clone(), (masks.clone(), data.clone()));
            continue;
        }
        let share = party
            .step(&format!("output/{}", output.name), |party| suite.reveal(party, masks, data, &verified))?;
        clients.output(output, share)?;
    }
    close(Phase::Output, start, party);

    let after = party.device().usage()?;
    let of_run = |(before, after): (Usage, Usage)| after.kernel_seconds - before.kernel_seconds;
    Ok(PartyReport {
        party: party.me(),
        device: party.device().describe(),
        phases,
        sent: party.meter().readings(),
        steps,
        wire_bytes: party.network().wire().iter().map(|w| w.sent.wire_bytes).collect(),
        peak_rss_mib: peak_rss_mib(),
        kernel_seconds: before.zip(after).map(of_run),
        peak_device_mib: after.map(|usage| usage.peak_memory as f64 / f64::from(1 << 20)),
    })
}
