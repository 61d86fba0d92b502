//! One party's whole run of a plan: agreement, offline, inputs, online, outputs.

use crate::clients::Clients;
use crate::inputs::{Arrivals, Stored};
use crate::report::PartyReport;
use crate::streamed::{Made, Next, beside};
use crate::walk::{Prepared, offline, online};
use megrez_kernels::Device;
use megrez_net::Payload;
use megrez_plan::{Input, KEPT, Op, Output, Plan};
use megrez_protocols::{AnyMasks, AnySuite, AnyValue};
use megrez_session::{Error, Party, Phase};
use std::collections::HashMap;
use std::time::Instant;

/// How to run a plan; all parties and their clients say the same.
#[derive(Clone, Copy, Debug)]
pub struct Options<'a> {
    /// How many times, one after the other; each run has fresh randomness.
    pub runs: u32,
    /// The names of the inputs that last: their owners share them in the first run, and the parties
    /// hold them until the last.
    pub lasting: &'a [String],
    /// Make the material of a run while the one before goes on, where the suite and the plan allow
    /// it: runs follow each other faster, and take the memory of one more. Each party may decide
    /// for itself.
    pub streamed: bool,
}

impl Default for Options<'_> {
    fn default() -> Self {
        Options { runs: 1, lasting: &[], streamed: false }
    }
}

impl Options<'_> {
    /// Whether the owner of an input shares it in run `run`.
    pub fn shares(&self, run: u32, input: &Input) -> bool {
        run == 0 || !self.lasting.contains(&input.name)
    }

    /// Whether a plan can run so: what a run keeps is what a later run of the same plan reads under
    /// its name, so nobody else gives an input of that name, and it is a value of the same kind.
    fn fit(&self, plan: &Plan) -> Result<(), String> {
        let another = |input: &&Input| {
            let same = |value| input.owner == KEPT && plan.value(input.value) == plan.value(value);
            plan.outputs.iter().any(|o| o.recipient == KEPT && o.name == input.name && !same(o.value))
        };
        match plan.inputs.iter().find(another) {
            Some(input) if self.runs > 1 => Err(format!(
                "several runs of a plan that keeps `{0}` and reads another `{0}`: run it once at a time, or rename one",
                input.name
            )),
            _ => Ok(()),
        }
    }

    /// Whether an input that arrives in run `run` is held for later ones.
    pub(crate) fn holds(&self, run: u32, input: &Input) -> bool {
        run == 0 && self.runs > 1 && self.lasting.contains(&input.name)
    }
}

/// What this party holds of an input: since the first run, or since before it.
fn find<'a>(held: &'a Stored, stored: &'a Stored, name: &str) -> Option<&'a AnyValue> {
    held.get(name).or_else(|| stored.get(name))
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

/// What party 0 tells the others about `what`; what the others pass counts for nothing.
pub fn told_by_first<D: Device>(party: &mut Party<D>, what: &str, told: [u8; 32]) -> Result<[u8; 32], Error> {
    party.step("agreement", |party| {
        if party.me() == 0 {
            for peer in party.peers() {
                party.send(peer, what, Payload::from_bytes(&told))?;
            }
            return Ok(told);
        }
        let heard = party.recv(0, what, 32)?;
        Ok(*heard.as_bytes().first_chunk().expect("32 bytes"))
    })
}

/// Whether all parties say yes to `what`.
pub fn all_say<D: Device>(party: &mut Party<D>, what: &str, yes: bool) -> Result<bool, Error> {
    party.step("agreement", |party| {
        for peer in party.peers() {
            party.send(peer, what, Payload::from_bytes(&[u8::from(yes)]))?;
        }
        let mut all = yes;
        for peer in party.peers() {
            match party.recv(peer, what, 1)?.as_bytes() {
                [1] => {}
                [0] => all = false,
                _ => return party.refuse(format!("party {peer} says neither yes nor no to `{what}`")),
            }
        }
        Ok(all)
    })
}

/// A fresh name for `what` the parties make together: none of them chooses it, and all hold the
/// same.
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
pub fn serve<D: Device>(
    suite: &dyn AnySuite<D>,
    plan: &Plan,
    party: &mut Party<D>,
    stored: &mut Stored,
    mut prepared: Option<Prepared>,
    clients: &mut dyn Clients,
    options: Options<'_>,
) -> Result<Vec<PartyReport>, Error> {
    serve_from(suite, plan, party, stored, &mut |_| Ok(prepared.take()), clients, options)
}

/// As [`serve`]; `ahead` gives before each run the material that was made for it, at all parties
/// of the same preparation, or says at all of them that there is none.
pub fn serve_from<D: Device>(
    suite: &dyn AnySuite<D>,
    plan: &Plan,
    party: &mut Party<D>,
    stored: &mut Stored,
    ahead: &mut dyn FnMut(&mut Party<D>) -> Result<Option<Prepared>, Error>,
    clients: &mut dyn Clients,
    options: Options<'_>,
) -> Result<Vec<PartyReport>, Error> {
    agree(party, "plan", &plan.hash())?;
    if let Err(what) = options.fit(plan) {
        return party.refuse(what);
    }
    let mut held: Stored = HashMap::new();
    let mut ready: Option<Made> = None;
    (0..options.runs)
        .map(|run| {
            let stock = if ready.is_none() { ahead(party)? } else { None };
            party.meter().reset();
            let stock = stock.map(|prepared| Made::earlier(prepared, party)).transpose()?;
            let made = match ready.take().or(stock) {
                Some(made) => made,
                None => {
                    let masks = |name: &str| find(&held, stored, name).map(|(masks, _)| masks.clone());
                    Made::now(suite, plan, party, run, &masks)?
                }
            };
            let last = |input: &Input| match held.get(&input.name) {
                Some((masks, _)) => Some(masks.clone()),
                None if options.holds(run, input) => made.prepared.masks[input.value.0 as usize].clone(),
                None => None,
            };
            let next = (options.streamed && run + 1 < options.runs)
                .then(|| Next::after(suite, party, (plan, run + 1), (plan, &made.prepared), stored, &last));
            let (report, next) = beside(suite, party, next.flatten(), |party| {
                one_run(suite, plan, party, stored, &mut held, made, clients, options, run)
            })?;
            ready = next;
            Ok(report)
        })
        .collect()
}

/// A run of a plan among runs of several plans.
pub struct Turn<'a> {
    /// What runs.
    pub plan: &'a Plan,
    /// Its number. No two runs of a session have one.
    pub run: u32,
    /// What has been made of it.
    pub made: Option<Made>,
}

impl<'a> Turn<'a> {
    /// Of which nothing has been made.
    pub fn new(plan: &'a Plan, run: u32) -> Self {
        Turn { plan, run, made: None }
    }
}

/// A run of a plan on which the parties have agreed, as [`serve`] does each of its runs; and what
/// has been made meanwhile of the one that comes next, if it is said which: a plan, its number, and
/// the masks of those of its inputs that neither this run keeps nor were stored before.
///
/// # Errors
/// Those of [`serve`].
pub fn run_again<D: Device>(
    suite: &dyn AnySuite<D>,
    turn: Turn<'_>,
    party: &mut Party<D>,
    stored: &mut Stored,
    clients: &mut dyn Clients,
    next: Option<(&Plan, u32, &dyn Fn(&Input) -> Option<AnyMasks>)>,
) -> Result<(PartyReport, Option<Made>), Error> {
    party.meter().reset();
    let Turn { plan, run, made } = turn;
    let made = match made {
        Some(made) => made,
        None => {
            let masks = |name: &str| stored.get(name).map(|(masks, _)| masks.clone());
            Made::now(suite, plan, party, run, &masks)?
        }
    };
    let next = next.and_then(|(next, number, given)| {
        Next::after(suite, party, (next, number), (plan, &made.prepared), stored, given)
    });
    beside(suite, party, next, |party| {
        one_run(suite, plan, party, stored, &mut HashMap::new(), made, clients, Options::default(), run)
    })
}

/// What a plan of local steps, whose inputs are all `stored`, keeps: rows cut out of a data set,
/// zeros of some shape. No message is sent. The steps' names are those of no other plan that has
/// this run's number.
///
/// # Errors
/// If an input is not stored, or a step is not local.
pub fn derive<D: Device>(
    suite: &dyn AnySuite<D>,
    plan: &Plan,
    party: &mut Party<D>,
    stored: &Stored,
    run: u32,
) -> Result<Stored, Error> {
    let local = |op: &Op| {
        matches!(
            op,
            Op::Combine { .. } | Op::View(_) | Op::Concat { .. } | Op::Gather { .. } | Op::Rescale { .. }
        )
    };
    if let Some(step) = plan.steps.iter().find(|step| !local(&step.op)) {
        return party.refuse(format!("step `{}` is none of those that are local everywhere", step.name));
    }
    let inputs = plan.inputs.iter().map(|input| match stored.get(&input.name) {
        Some((_, data)) => Ok(data.clone()),
        None => party.refuse(format!("input `{}` is not stored", input.name)),
    });
    let inputs = inputs.collect::<Result<Vec<_>, _>>()?;
    let given = |name: &str| stored.get(name).map(|(masks, _)| masks.clone());
    let prepared = offline(suite, plan, party, run, &given, &mut vec![])?;
    let values = online(suite, plan, party, run, prepared, inputs, &mut vec![])?;
    let of = |output: &Output| {
        let (masks, data) = values.get(output.value);
        (output.name.clone(), (masks.clone(), data.clone()))
    };
    Ok(plan.outputs.iter().filter(|output| output.recipient == KEPT).map(of).collect())
}

/// One run after its offline phase; `held` are the inputs that last, from the first run on.
#[expect(clippy::too_many_arguments, reason = "what a run needs, each once")]
fn one_run<D: Device>(
    suite: &dyn AnySuite<D>,
    plan: &Plan,
    party: &mut Party<D>,
    stored: &mut Stored,
    held: &mut Stored,
    made: Made,
    clients: &mut dyn Clients,
    options: Options<'_>,
    run: u32,
) -> Result<PartyReport, Error> {
    let Made { prepared, mut measured, before } = made;

    let start = Instant::now();
    party.enter(Phase::Input, run);
    let fresh: Vec<(&Input, &Vec<u8>)> = plan
        .inputs
        .iter()
        .zip(prepared.mask_keys.iter())
        .filter(|(input, _)| find(held, stored, &input.name).is_none())
        .collect();
    for (input, mask_key) in &fresh {
        clients.mask_key(input, mask_key.to_vec())?;
    }
    let (mut arrived, mut arrivals) = (HashMap::new(), Arrivals::default());
    for (input, _) in fresh {
        let data = arrivals.receive(suite, plan, party, input, clients)?;
        if options.holds(run, input) {
            let masks = prepared.masks[input.value.0 as usize].clone().expect("an input has masks");
            held.insert(input.name.clone(), (masks, data));
        } else {
            arrived.insert(input.value, data);
        }
    }
    let inputs = plan
        .inputs
        .iter()
        .map(|input| match find(held, stored, &input.name) {
            Some((_, data)) => data.clone(),
            None => arrived.remove(&input.value).expect("every fresh input arrived"),
        })
        .collect();
    measured.close(Phase::Input, start, party);

    arrivals.compare(party, &format!("online-{run}"))?;
    let start = Instant::now();
    let values = online(suite, plan, party, run, prepared, inputs, &mut measured.steps)?;
    let verified = suite.verify(party)?;
    measured.close(Phase::Online, start, party);

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
    measured.close(Phase::Output, start, party);

    measured.report(party, before)
}
