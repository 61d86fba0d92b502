//! The loop: the weights are shared once and stay with the parties from step to step; batches are
//! inputs; what is revealed is the mean loss of an epoch, and the weights when they are asked for.

use crate::{Privacy, Rehearsal, State, Step, privacy};
use megrez_graph::lower::DataInput;
use megrez_graph::{Comparison, CompileOptions, Interval, ListStyle, PoolForm, RangePolicy, Tensor};
use megrez_model::fixed::FixedModel;
use megrez_model::privacy::guarantee;
use megrez_model::report::Cost;
use megrez_plan::{Fewest, Input, KEPT, Kind, Op, Plan, ValueId};
use megrez_ring::{decode_words, encode_words};
use megrez_service::client::{Outcome, RunOptions};
use megrez_service::{Backend, Error, ErrorKind, Result};

/// The step as a plan for `client`, who owns rows and labels. `options` say the protocol's part;
/// ranges and the widths of comparisons follow from the rehearsal, unless a comparison is given
/// that looks at chosen bits. With `keeps`, the state is what an earlier plan has kept; without, it
/// is `client`'s, and what the step makes of it is kept under other names.
///
/// # Errors
/// If a layer has no form on shares, or numbers do not fit the ring.
pub fn compile(
    step: &Step,
    client: &str,
    options: &CompileOptions,
    rehearsal: &Rehearsal,
    keeps: bool,
) -> Result<FixedModel> {
    let after = |name: &str| if keeps { name.to_owned() } else { format!("next.{name}") };
    let options = CompileOptions {
        kept: step.state.iter().map(|state| (state.name.clone(), after(&state.name))).collect(),
        ..of_step(step, options, rehearsal)
    };
    let model = FixedModel::new(&step.graph, client, &options)?;
    if let Some(privacy) = step.privacy.filter(|privacy| privacy.noise > 0.0) {
        holds(&model, privacy)?;
    }
    Ok(model)
}

/// The two plans of a step that learns from several shards: of one of them, and of the update that
/// follows from all. The gradients go from the one to the other with all their fraction bits.
///
/// # Errors
/// As [`compile`]; or if the step has no shards.
pub(crate) fn compile_shards(
    step: &Step,
    client: &str,
    options: &CompileOptions,
    rehearsal: &Rehearsal,
) -> Result<[FixedModel; 2]> {
    let parts = step.parts().map_err(megrez_graph::Problems::from)?;
    let [shard, update] = parts.ok_or_else(|| Error::of(ErrorKind::Internal, "the step has no shards"))?;
    let mut options = of_step(step, options, rehearsal);
    options.kept = step.state.iter().map(|state| (state.name.clone(), state.name.clone())).collect();
    let update_options = options.clone();
    for output in &shard.outputs {
        options.kept.insert(output.name.clone(), output.name.clone());
        options.unrounded.insert(output.name.clone());
    }
    let shard = FixedModel::new(&shard, client, &options)?;
    let (plan, mut options) = (&shard.compiled.plan, update_options);
    for (name, range) in &shard.compiled.kept {
        let output = plan.outputs.iter().find(|output| output.name == *name);
        let Some(Kind::Ring { frac }) = output.map(|output| plan.value(output.value).kind) else {
            return Err(Error::of(ErrorKind::Internal, format!("`{name}` is no number on the ring")));
        };
        for of in 0..step.shards {
            let read = format!("{of}/{name}");
            options.kept.insert(read.clone(), read.clone());
            options.kept_frac.insert(read.clone(), frac);
            options.input_ranges.insert(read, *range);
        }
    }
    let update = FixedModel::new(&update, client, &options)?;
    Ok([shard, update])
}

/// How a step is compiled, whatever it keeps.
fn of_step(step: &Step, options: &CompileOptions, rehearsal: &Rehearsal) -> CompileOptions {
    let mut input_ranges = options.input_ranges.clone();
    input_ranges.extend(state_ranges(step, rehearsal));
    input_ranges.entry(Step::LABELS.into()).or_insert(rehearsal.labels);
    CompileOptions {
        input_ranges,
        policy: RangePolicy::Calibrated,
        measured: Some(rehearsal.calibration.clone()),
        comparison: comparison(options, rehearsal),
        // The bits of a tournament are those that the backward pass takes.
        pool: PoolForm::Tournament,
        deep_frac: None,
        ..options.clone()
    }
}

/// How a graph is compiled that reads the state as training has left it, and learns nothing.
pub(crate) fn of_kept(
    step: &Step,
    state: &[State],
    (options, rehearsal): (&CompileOptions, &Rehearsal),
) -> CompileOptions {
    let mut input_ranges = options.input_ranges.clone();
    input_ranges.extend(state_ranges(step, rehearsal));
    input_ranges.remove(Step::LABELS);
    CompileOptions {
        kept: state.iter().map(|state| (state.name.clone(), state.name.clone())).collect(),
        input_ranges,
        policy: RangePolicy::Calibrated,
        measured: Some(rehearsal.calibration.clone()),
        comparison: comparison(options, rehearsal),
        deep_frac: None,
        ..options.clone()
    }
}

/// Makes sure that a plan bounds what its weights tell of a row as it is said to: from the plan.
fn holds(model: &FixedModel, privacy: Privacy) -> Result<()> {
    let (compiled, losses) = (&model.compiled, [Step::LOSS, Step::LOSS_SO_FAR]);
    let unsupported = |what: String| {
        let what = format!("what the weights would tell of a row has no bound: {what}");
        Error::of(ErrorKind::Unsupported, what)
    };
    let found = guarantee(&compiled.plan, &compiled.data_inputs, &losses).map_err(unsupported)?;
    match found.rho() <= privacy::rho(privacy.noise.into()) * (1.0 + 1e-6) {
        true => Ok(()),
        false => Err(Error::of(ErrorKind::Internal, "the plan has less noise than it was made for")),
    }
}

/// What the rehearsal says of the state.
fn state_ranges<'a>(
    step: &'a Step,
    rehearsal: &'a Rehearsal,
) -> impl Iterator<Item = (String, Interval)> + 'a {
    step.state.iter().zip(&rehearsal.state).map(|(state, range)| (state.name.clone(), *range))
}

/// Comparisons as wide as the rehearsal says, unless chosen bits are looked at.
fn comparison(options: &CompileOptions, rehearsal: &Rehearsal) -> Comparison {
    let calibration = Some(rehearsal.calibration.clone());
    match &options.comparison {
        Comparison::Fixed(sign) if sign.bits.is_some() || sign.cut > 0 => options.comparison.clone(),
        Comparison::Fixed(sign) => {
            let list = match ListStyle::from(&sign.list) {
                ListStyle::Tree => ListStyle::Tree,
                _ => ListStyle::Digits(Fewest::Total),
            };
            Comparison::Fitted { list, bits: None, calibration }
        }
        Comparison::Fitted { list, bits, .. } => Comparison::Fitted { list: *list, bits: *bits, calibration },
    }
}

/// What an epoch gave.
#[derive(Clone, Debug)]
pub struct Epoch {
    /// The mean loss of its rows, each at the weights of its step.
    pub loss: f32,
    /// How many steps it had.
    pub steps: u32,
    /// What they cost: of one step, with medians over all.
    pub cost: Cost,
}

/// Training on the parties of a backend.
pub struct Training<'a> {
    backend: &'a mut Backend,
    model: FixedModel,
    state: Vec<(String, Tensor)>,
    options: RunOptions,
    /// How steps are compiled.
    made: (CompileOptions, Rehearsal),
}

impl<'a> Training<'a> {
    /// Shares the weights with the parties, who keep them. `step` adds its losses up
    /// ([`Step::adding_up_losses`]).
    ///
    /// # Errors
    /// If the parties are threads, which keep nothing; if the step reveals the loss of every batch;
    /// or if a party fails.
    pub fn begin(
        backend: &'a mut Backend,
        step: &Step,
        compile_options: &CompileOptions,
        rehearsal: &Rehearsal,
        options: RunOptions,
    ) -> Result<Self> {
        if matches!(backend, Backend::Threads(_) | Backend::Simulated) {
            return Err(Error::of(
                ErrorKind::Unsupported,
                "training keeps weights with the parties between steps, which threads do not: use --parties process",
            ));
        }
        if !step.state.iter().any(|state| state.name == Step::LOSS_SO_FAR) {
            return Err(Error::of(ErrorKind::Invalid, "the step reveals the loss of every batch"));
        }
        let model = compile(step, backend.client(), compile_options, rehearsal, true)?;
        let state = step.state.iter().map(|state| (state.name.clone(), state.start.clone())).collect();
        let made = (compile_options.clone(), rehearsal.clone());
        let mut training = Training { backend, model, state, options, made };
        training.share()?;
        Ok(training)
    }

    /// Goes on with another step of the same state: another rate.
    ///
    /// # Errors
    /// If the step does not compile, or its state is another.
    pub fn go_on(&mut self, step: &Step) -> Result<()> {
        let same = |(state, (name, start)): (&State, &(String, Tensor))| {
            state.name == *name && state.start.shape == start.shape
        };
        if step.state.len() != self.state.len() || !step.state.iter().zip(&self.state).all(same) {
            return Err(Error::of(ErrorKind::Invalid, "a step of other weights"));
        }
        self.model = compile(step, self.backend.client(), &self.made.0, &self.made.1, true)?;
        Ok(())
    }

    fn frac(&self) -> u32 {
        self.model.compiled.frac
    }

    fn run_once(&mut self, plan: &Plan, words: &dyn Fn(u32, &Input) -> Result<Vec<u64>>) -> Result<Outcome> {
        let options = RunOptions { runs: 1, lasting: vec![], ..self.options.clone() };
        self.backend.run(plan, &options, &|run, input| Ok(words(run, input)?), &|_| {})
    }

    /// Shares the state, which the parties keep.
    fn share(&mut self) -> Result<()> {
        let (ring, frac, client) =
            (self.model.compiled.plan.ring, self.frac(), self.backend.client().to_owned());
        let mut plan = Plan::new(ring);
        for (name, start) in &self.state {
            let value = plan.input(name, &client, start.shape.clone(), frac);
            plan.output(name, KEPT, value);
        }
        let state = self.state.clone();
        let words = |_: u32, input: &Input| -> Result<Vec<u64>> {
            let start = state.iter().find(|(name, _)| *name == input.name);
            let (_, start) = start.ok_or_else(|| Error::of(ErrorKind::Internal, "no such state"))?;
            Ok(encode_words(ring, &start.data, frac)?)
        };
        self.run_once(&plan, &words).map(drop)
    }

    /// An input of kept state.
    fn kept(&self, plan: &mut Plan, name: &str) -> ValueId {
        let shape = self.state.iter().find(|(n, _)| n == name).map(|(_, start)| start.shape.clone());
        plan.input(name, KEPT, shape.unwrap_or_else(|| [1].into()), self.frac())
    }

    /// Runs `steps` steps, step t on what `batch` gives for it: inputs and labels. Then reveals
    /// their mean loss to this client, and nothing else.
    ///
    /// # Errors
    /// If a batch does not fit, or a party fails: what was kept is then not to be trained on.
    pub fn epoch(
        &mut self,
        steps: u32,
        batch: &dyn Fn(u32) -> [Tensor; 2],
        progress: &dyn Fn(u32),
    ) -> Result<Epoch> {
        if steps == 0 {
            return Err(Error::of(ErrorKind::Invalid, "an epoch has at least one step"));
        }
        let data = |run: u32, input: &DataInput| {
            let [x, y] = batch(run);
            Ok(if input.name == Step::LABELS { y } else { x })
        };
        let lasting = self.model.compiled.model_inputs.iter().map(|weights| weights.name.clone()).collect();
        let options = RunOptions { runs: steps, lasting, streamed: true, ..self.options.clone() };
        let words = |run: u32, input: &Input| Ok(self.model.words(run, input, &data)?);
        let outcome = self.backend.run(&self.model.compiled.plan, &options, &words, progress)?;
        let cost = Cost::of(&outcome.reports);
        Ok(Epoch { loss: self.losses()? / steps as f32, steps, cost })
    }

    /// Reveals the sum of the losses since the last time, and begins it anew.
    fn losses(&mut self) -> Result<f32> {
        let mut plan = Plan::new(self.model.compiled.plan.ring);
        let sum = self.kept(&mut plan, Step::LOSS_SO_FAR);
        let zero = Op::Combine { coefficients: vec![0], constant: 0 };
        let zero = plan.step("losses/zero", zero, &[sum]).map_err(|e| Error::of(ErrorKind::Internal, e))?;
        plan.output(Step::LOSS, self.backend.client(), sum);
        plan.output(Step::LOSS_SO_FAR, KEPT, zero);
        let revealed = self.reveal(&plan)?;
        Ok(revealed.first().and_then(|sum| sum.first().copied()).unwrap_or(f32::NAN))
    }

    /// Runs a plan of kept inputs; what this client learns.
    fn reveal(&mut self, plan: &Plan) -> Result<Vec<Vec<f32>>> {
        let nothing = |_: u32, _: &Input| -> Result<Vec<u64>> {
            Err(Error::of(ErrorKind::Internal, "the parties have all of it"))
        };
        let outcome = self.run_once(plan, &nothing)?;
        let opened = plan.outputs.iter().filter(|output| output.recipient != KEPT);
        let words = outcome.outputs.into_iter().next().unwrap_or_default();
        let decoded = opened.zip(words).map(|(output, words)| match plan.value(output.value).kind {
            Kind::Ring { frac } => decode_words(plan.ring, &words, frac),
            _ => vec![],
        });
        Ok(decoded.collect())
    }

    /// Reveals the weights to this client: `w.` and the name of the constant, and its numbers.
    ///
    /// # Errors
    /// If a party fails.
    pub fn weights(&mut self) -> Result<Vec<(String, Tensor)>> {
        let mut plan = Plan::new(self.model.compiled.plan.ring);
        let client = self.backend.client().to_owned();
        let weights: Vec<(String, Tensor)> =
            self.state.iter().filter(|(name, _)| name.starts_with("w.")).cloned().collect();
        for (name, _) in &weights {
            let value = self.kept(&mut plan, name);
            plan.output(name, &client, value);
        }
        let revealed = self.reveal(&plan)?;
        let of = |((name, start), data): ((String, Tensor), Vec<f32>)| (name, Tensor::new(start.shape, data));
        Ok(weights.into_iter().zip(revealed).map(of).collect())
    }

    /// The plan of a step, and what it opens.
    pub fn model(&self) -> &FixedModel {
        &self.model
    }
}
