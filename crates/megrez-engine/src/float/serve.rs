//! One party's whole run of a floating-point plan with its clients: set-up, inputs, online,
//! outputs. How many parties there are says who supplies the blocks: two make oblivious transfers
//! as they need them, three have a dealer, who deals as fast as it can what the workers use online.
//! The dealer holds no inputs and no outputs.

use super::Walk;
use crate::clients::Clients;
use crate::report::{Measured, PartyReport, PhaseReport, StepReport};
use crate::serve::{Options, agree};
use megrez_float::Float;
use megrez_kernels::{Device, Memory};
use megrez_net::Payload;
use megrez_plan::FloatPlan;
use megrez_session::{Error, Party, Phase, Reading};
use megrez_twoparty::client::share_bytes;
use megrez_twoparty::dealt::{DEALER, Dealt};
use megrez_twoparty::ot::Ots;
use megrez_twoparty::{Sirnn, Supplier};
use std::collections::HashMap;
use std::time::Instant;

/// Shares of inputs that this party already holds, by input name: an uploaded model's. A dealer
/// holds none.
pub type StoredFloats = HashMap<String, Payload>;

/// Runs a plan at this party; one report per run. On an error the caller ends the session with it.
///
/// # Errors
/// If the parties disagree, a client is lost, or the session breaks.
pub fn serve_floats<D: Device>(
    plan: &FloatPlan,
    mut party: Party<D>,
    stored: &StoredFloats,
    clients: &mut dyn Clients,
    options: Options<'_>,
) -> Result<Vec<PartyReport>, Error> {
    agree(&mut party, "plan", &plan.hash())?;
    party.enter(Phase::Setup, 1);
    let start = Instant::now();
    if party.parties() > 2 {
        let set_up = SetUp::new(start, &party);
        return all_runs(plan, Dealt::new(party)?, &set_up, stored, clients, options);
    }
    let ots = Ots::set_up(&mut party, plan.group)?;
    let set_up = SetUp::new(start, &party);
    let b = Sirnn::new(party, ots).with_threads(plan.threads as usize)?;
    all_runs(plan, b, &set_up, stored, clients, options)
}

/// What the set-up took, and what was sent in it.
pub(super) struct SetUp {
    phase: PhaseReport,
    sent: Vec<Reading>,
}

impl SetUp {
    /// It began at `start` and has ended.
    pub(super) fn new<D: Device>(start: Instant, party: &Party<D>) -> Self {
        let seconds = start.elapsed().as_secs_f64();
        let phase = PhaseReport { seconds, rounds: party.rounds(), ..PhaseReport::default() };
        SetUp { phase, sent: party.meter().readings() }
    }

    /// The report of the first run, with the set-up.
    pub(super) fn added_to(&self, mut report: PartyReport) -> PartyReport {
        report.phases.insert(Phase::Setup, self.phase.clone());
        report.sent.extend(self.sent.iter().cloned());
        report
    }
}

fn all_runs(
    plan: &FloatPlan,
    mut b: impl Supplier,
    set_up: &SetUp,
    stored: &StoredFloats,
    clients: &mut dyn Clients,
    options: Options<'_>,
) -> Result<Vec<PartyReport>, Error> {
    let mut held = HashMap::new();
    let one = |run: u32| {
        b.party().meter().reset();
        let report = one_run(plan, &mut b, stored, &mut held, clients, options, run)?;
        Ok(if run == 0 { set_up.added_to(report) } else { report })
    };
    (0..options.runs).map(one).collect()
}

/// One run; `held` are the inputs that last, from the first run on.
fn one_run<S: Supplier>(
    plan: &FloatPlan,
    b: &mut S,
    stored: &StoredFloats,
    held: &mut HashMap<String, Float>,
    clients: &mut dyn Clients,
    options: Options<'_>,
    run: u32,
) -> Result<PartyReport, Error> {
    let mut measured = Measured::default();
    let before = b.party().device().usage()?;

    let start = Instant::now();
    b.enter(Phase::Input, run);
    let mut inputs = vec![];
    for input in &plan.inputs {
        let n = plan.shape(input.value).elements();
        let numbers = match (held.get(&input.name), stored.get(&input.name)) {
            (Some(numbers), _) => numbers.clone(),
            (_, Some(share)) => b.accept(Some(share), n)?,
            _ if b.party().me() == DEALER => b.accept(None, n)?,
            _ => b.accept(Some(&clients.data(input, share_bytes(n))?), n)?,
        };
        if options.holds(run, input) {
            held.insert(input.name.clone(), numbers.clone());
        }
        inputs.push(numbers);
    }
    measured.close(Phase::Input, start, b.party());

    b.party_mut().barrier(&format!("online-{run}"))?;
    let start = Instant::now();
    b.enter(Phase::Online, run);
    let mut walk = Walk::new(plan, inputs);
    for (i, step) in plan.steps.iter().enumerate() {
        let start = Instant::now();
        b.step(&step.name, |b| walk.step(b, i))?;
        measured.steps.push(StepReport::new(Phase::Online, &step.name, (start, start.elapsed()), b.party()));
    }
    measured.close(Phase::Online, start, b.party());
    if b.party().parties() > 2 {
        // The dealer sends ahead of the workers, who use what has come.
        measured.beside(Phase::Offline, 1);
    }

    let start = Instant::now();
    b.enter(Phase::Output, run);
    for output in &plan.outputs {
        if let Some(share) = b.reveal(walk.value(output.value)) {
            clients.output(output, share)?;
        }
    }
    measured.close(Phase::Output, start, b.party());

    measured.report(b.party(), before)
}
