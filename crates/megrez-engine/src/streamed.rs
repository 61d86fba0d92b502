//! The offline phase of the next run, while this one goes on.
//!
//! Masks of the next run follow from streams and, where it reads what this run keeps, from masks
//! that this run's offline phase has drawn. So a second lane makes all of it, as it would have been
//! made later: the same streams and messages by the same names, earlier. It looks at no data and at
//! nothing that was opened.

use crate::inputs::Stored;
use crate::report::Measured;
use crate::steps::step_cost;
use crate::walk::{Prepared, offline};
use megrez_kernels::{Device, Usage};
use megrez_net::ClockKind;
use megrez_plan::{Input, KEPT, Output, Plan};
use megrez_protocols::{AnyMasks, AnySuite};
use megrez_session::{Error, Party, Phase};
use std::collections::HashMap;
use std::time::Instant;

/// The most bytes of material of a run that is made while another one goes on, sent by all parties
/// together: parties hold the material of one run more.
pub const AHEAD_BYTES: u64 = 1 << 30;

/// What the offline phase of a run has left, and what it took.
pub struct Made {
    pub(crate) prepared: Prepared,
    pub(crate) measured: Measured,
    /// What the device had done before it.
    pub(crate) before: Option<Usage>,
}

impl Made {
    /// Material that was stored: nothing of it is this run's cost.
    pub(crate) fn earlier<D: Device>(prepared: Prepared, party: &Party<D>) -> Result<Self, Error> {
        Ok(Made { prepared, measured: Measured::default(), before: party.device().usage()? })
    }

    /// The offline phase of run `run`; `given` are the masks of inputs that are there.
    ///
    /// # Errors
    /// If a party fails.
    pub fn now<D: Device>(
        suite: &dyn AnySuite<D>,
        plan: &Plan,
        party: &mut Party<D>,
        run: u32,
        given: &dyn Fn(&str) -> Option<AnyMasks>,
    ) -> Result<Self, Error> {
        let (mut measured, before) = (Measured::default(), party.device().usage()?);
        party.barrier(&format!("offline-{run}"))?;
        let start = Instant::now();
        let prepared = offline(suite, plan, party, run, given, &mut measured.steps)?;
        measured.close(Phase::Offline, start, party);
        Ok(Made { prepared, measured, before })
    }

    /// The masks of what the run will keep, by name; none of those that only the run itself draws.
    pub fn masks(&self, plan: &Plan) -> Vec<(String, AnyMasks)> {
        let kept = plan.outputs.iter().filter(|output| output.recipient == KEPT);
        let of = |output: &Output| {
            Some((output.name.clone(), self.prepared.masks[output.value.0 as usize].clone()?))
        };
        kept.filter_map(of).collect()
    }
}

/// Whether a run's material is worth making beside another run: there is some, not too much to hold
/// twice, and parties wait for their links meanwhile. All parties of a session say the same.
pub fn may_stream<D: Device>(suite: &dyn AnySuite<D>, party: &Party<D>, plan: &Plan) -> bool {
    // Lanes that reckon time on one link would have to take turns; and parties of one machine would
    // take processors from each other while none of them waits.
    let waits = party.network().clock() == ClockKind::Real && party.network().far();
    waits && (1..=AHEAD_BYTES).contains(&material_bytes(suite, plan))
}

/// A run whose offline phase goes on beside the run before it.
pub struct Next<'a> {
    plan: &'a Plan,
    run: u32,
    given: HashMap<String, AnyMasks>,
}

impl<'a> Next<'a> {
    /// Run `run` of `plan`, after a run of `before` whose offline phase has left `prepared`.
    /// `given` are masks of inputs that are no business of the run before, and `stored` those that
    /// were there before it. `None` where there is nothing to make, too much to hold twice, or a
    /// mask that is known only when the run before has ended; or where nobody waits for a network.
    pub(crate) fn after<D: Device>(
        suite: &dyn AnySuite<D>,
        party: &Party<D>,
        (plan, run): (&'a Plan, u32),
        (before, prepared): (&Plan, &Prepared),
        stored: &Stored,
        given: &dyn Fn(&Input) -> Option<AnyMasks>,
    ) -> Option<Self> {
        if !may_stream(suite, party, plan) {
            return None;
        }
        let mut masks = HashMap::new();
        for input in &plan.inputs {
            let kept = before.outputs.iter().find(|o| o.recipient == KEPT && o.name == input.name);
            let found = match (given(input), kept) {
                (Some(given), _) => given,
                (None, Some(output)) => prepared.masks[output.value.0 as usize].clone()?,
                (None, None) => match stored.get(&input.name) {
                    Some((masks, _)) => masks.clone(),
                    None => continue,
                },
            };
            masks.insert(input.name.clone(), found);
        }
        Some(Next { plan, run, given: masks })
    }
}

/// What parties send to each other in the offline phase of a plan.
fn material_bytes<D: Device>(suite: &dyn AnySuite<D>, plan: &Plan) -> u64 {
    let costs = plan.steps.iter().filter_map(|step| step_cost(suite, plan, step));
    costs.map(|cost| (cost.bits(Phase::Offline) / 8.0).ceil() as u64).sum()
}

/// Runs `work`, and the offline phase of the next run in a lane beside it.
pub(crate) fn beside<D: Device, R>(
    suite: &dyn AnySuite<D>,
    party: &mut Party<D>,
    next: Option<Next<'_>>,
    work: impl FnOnce(&mut Party<D>) -> Result<R, Error>,
) -> Result<(R, Option<Made>), Error> {
    let Some(Next { plan, run, given }) = next else { return Ok((work(party)?, None)) };
    let mut lane = party.behind();
    std::thread::scope(|scope| {
        let make = move || {
            let mut made = Made::now(suite, plan, &mut lane, run, &|name| given.get(name).cloned())?;
            made.measured.sent_apart(&lane);
            Ok::<_, Error>(made)
        };
        // Without a thread the next run makes its own.
        let making = std::thread::Builder::new().spawn_scoped(scope, make).ok();
        let done = work(party);
        let made = making.map(|lane| lane.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        Ok((done?, made.transpose()?))
    })
}
