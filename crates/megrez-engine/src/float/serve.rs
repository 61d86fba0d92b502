//! One party's whole run of a floating-point plan with its clients: set-up of OTs, inputs, online, outputs. There is no
//! offline phase: OTs are made as they are needed.

use super::Walk;
use crate::clients::Clients;
use crate::report::{Measured, PartyReport, PhaseReport, StepReport};
use crate::serve::{Options, agree};
use megrez_float::Float;
use megrez_kernels::Device;
use megrez_plan::FloatPlan;
use megrez_session::{Error, Party, Phase};
use megrez_twoparty::Sirnn;
use megrez_twoparty::client::share_bytes;
use megrez_twoparty::ot::Ots;
use std::collections::HashMap;
use std::time::Instant;

/// Inputs that this party already holds, by input name: an uploaded model's.
pub type StoredFloats<D> = HashMap<String, Float<Sirnn<D>>>;

/// Runs a plan at this party; one report per run. On an error the caller ends the session with it.
///
/// # Errors
/// If the parties disagree, a client is lost, or the session breaks.
pub fn serve_floats<D: Device>(
    plan: &FloatPlan,
    mut party: Party<D>,
    stored: &StoredFloats<D>,
    clients: &mut dyn Clients,
    options: Options<'_>,
) -> Result<Vec<PartyReport>, Error> {
    agree(&mut party, "plan", &plan.hash())?;
    party.enter(Phase::Setup, 1);
    let start = Instant::now();
    let ots = Ots::set_up(&mut party, plan.group)?;
    let set_up = PhaseReport {
        seconds: start.elapsed().as_secs_f64(),
        rounds: party.rounds(),
        ..PhaseReport::default()
    };
    let sent = party.meter().readings();
    let mut b = Sirnn::new(party, ots).with_threads(plan.threads as usize)?;
    let mut held = HashMap::new();
    let one = |run: u32| {
        b.party().meter().reset();
        let mut report = one_run(plan, &mut b, stored, &mut held, clients, options, run)?;
        if run == 0 {
            report.phases.insert(Phase::Setup, set_up.clone());
            report.sent.extend(sent.iter().cloned());
        }
        Ok(report)
    };
    (0..options.runs).map(one).collect()
}

/// One run; `held` are the inputs that last, from the first run on.
fn one_run<D: Device>(
    plan: &FloatPlan,
    b: &mut Sirnn<D>,
    stored: &StoredFloats<D>,
    held: &mut StoredFloats<D>,
    clients: &mut dyn Clients,
    options: Options<'_>,
    run: u32,
) -> Result<PartyReport, Error> {
    let mut measured = Measured::default();
    let before = b.party().device().usage()?;

    let start = Instant::now();
    b.party_mut().enter(Phase::Input, run);
    let mut inputs = vec![];
    for input in &plan.inputs {
        let n = plan.shape(input.value).elements();
        let numbers = match held.get(&input.name).or_else(|| stored.get(&input.name)) {
            Some(numbers) => numbers.clone(),
            None => Sirnn::accept(&clients.data(input, share_bytes(n))?, n)?,
        };
        if options.holds(run, input) {
            held.insert(input.name.clone(), numbers.clone());
        }
        inputs.push(numbers);
    }
    measured.close(Phase::Input, start, b.party());

    b.party_mut().barrier(&format!("online-{run}"))?;
    let start = Instant::now();
    b.party_mut().enter(Phase::Online, run);
    let mut walk = Walk::new(plan, inputs);
    for (i, step) in plan.steps.iter().enumerate() {
        let start = Instant::now();
        b.step(&step.name, |b| walk.step(b, i))?;
        measured.steps.push(StepReport::new(Phase::Online, &step.name, start.elapsed(), b.party()));
    }
    measured.close(Phase::Online, start, b.party());

    let start = Instant::now();
    b.party_mut().enter(Phase::Output, run);
    for output in &plan.outputs {
        clients.output(output, Sirnn::reveal(walk.value(output.value)))?;
    }
    measured.close(Phase::Output, start, b.party());

    measured.report(b.party(), before)
}
