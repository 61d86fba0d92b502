//! `megrez study training`: what truncation, fraction bits and rings make of training, beside
//! floating point with the same rows in the same order.
//!
//! A step's plan is walked on plain words, again and again: as parties compute it, each truncation
//! under its form and, with the exact one, each comparison under the mask of its value. Labels,
//! schedule and what stands for functions are those of `megrez train`.

use super::forms::Form;
use super::rules::{Counts, Rules};
use super::walk::Walker;
use crate::bench::any_model;
use megrez::train::{
    Clear, Learning, Rehearsal, Rows, Step, accuracy, compile, rehearse, validation_batch, with_weights,
};
use megrez::{Error, ErrorKind, FixedModel, Result};
use megrez_graph::lower::DataInput;
use megrez_graph::{CompileOptions, Tensor};
use megrez_plan::Input;
use megrez_ring::{decode_words, encode_words};
use serde::Serialize;
use std::collections::BTreeMap;

/// What to study.
#[derive(Clone, Debug)]
pub struct Options {
    /// An ONNX file, whose weights every training begins with, or a built-in network, whose weights
    /// follow from the seed.
    pub model: String,
    /// How it learns. Its rate is halved after some epochs, if that is said.
    pub learning: Learning,
    /// Rows of a step.
    pub batch: usize,
    /// How often every row is learnt from.
    pub epochs: u32,
    /// Orders of rows and random weights: a training for each.
    pub seeds: Vec<u64>,
    /// The forms of truncation, on each ring with each number of fraction bits; those that a ring
    /// has no room for are left out there.
    pub forms: Vec<Form>,
    /// The rings.
    pub rings: Vec<u32>,
    /// The fraction bits.
    pub fracs: Vec<u32>,
    /// Steps that are rehearsed in the clear: what plans are laid out by.
    pub rehearsed: usize,
    /// How everything else is compiled.
    pub options: CompileOptions,
}

/// One training in fixed point.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// ℓ.
    pub ring: u32,
    /// f.
    pub frac: u32,
    /// How it truncates.
    pub rounding: Form,
    /// Of the order of rows and of random weights.
    pub seed: u64,
    /// The part of the held-out rows that are right, after each epoch.
    pub accuracy: Vec<f64>,
    /// The mean loss of each epoch.
    pub loss: Vec<f64>,
    /// What its steps did.
    pub counts: Counts,
    /// Bits of the largest word that was truncated, without its sign.
    pub largest_bits: u32,
}

/// One training in float32.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plain {
    /// Of the order of rows and of random weights.
    pub seed: u64,
    /// The part of the held-out rows that are right, after each epoch.
    pub accuracy: Vec<f64>,
}

/// The whole study.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Study {
    /// `megrez.study.training/1`.
    pub schema: String,
    /// The model.
    pub model: String,
    /// Rows that are learnt from, and rows that are held out.
    pub rows: [usize; 2],
    /// Rows of a step.
    pub batch: usize,
    /// The rate, at first.
    pub rate: String,
    /// Floating point.
    pub plain: Vec<Plain>,
    /// Fixed point.
    pub trainings: Vec<Row>,
    /// Rings and fraction bits that the step does not fit, and why.
    pub refused: Vec<(u32, u32, String)>,
}

impl Study {
    /// The name of the report's format.
    pub const SCHEMA: &'static str = "megrez.study.training/1";
}

/// Runs the study on rows, each with its label, and on others that are held out.
///
/// # Errors
/// If the rows do not go with the model, or it cannot be trained.
pub fn study(
    o: &Options,
    learnt: [Tensor; 2],
    held_out: [Tensor; 2],
    progress: &dyn Fn(&str),
) -> Result<Study> {
    if o.forms.contains(&Form::TruncateFirst) {
        return Err(Error::Refused(
            "truncate-first leaves weights at no one scale: it is not trained".into(),
        ));
    }
    let loss = o.learning.loss;
    let rows_of = |batch: usize, [x, y]: [Tensor; 2]| -> Result<Rows> {
        let model = any_model(&o.model, batch, 1)?;
        let input = model.inputs.first().map_or(&[][..], |&id| &model.shape(id).dims()[1..]);
        // Images are rows of as many numbers for a model that takes such.
        let rows = x.shape.dims().first().copied().unwrap_or(0);
        let fits = rows * input.iter().product::<usize>() == x.data.len();
        let x = if fits { x.reshape([&[rows], input].concat()) } else { x };
        Rows::new(&model, loss, x, y)
    };
    let (learnt, held_out) = (rows_of(o.batch, learnt)?, rows_of(o.batch, held_out)?);
    held_out.have_classes(loss)?;
    if learnt.count() < o.batch {
        return Err(Error::of(ErrorKind::Invalid, "there are fewer rows than one batch has"));
    }
    let (mut plain, mut trainings, mut refused) = (vec![], vec![], vec![]);
    for &seed in &o.seeds {
        let training = Trains::new(o, &learnt, &held_out, seed)?;
        progress(&format!("float32, seed {seed}"));
        plain.push(training.plain()?);
        for (&ring, &frac) in o.rings.iter().flat_map(|ring| o.fracs.iter().map(move |frac| (ring, frac))) {
            if frac > ring / 2 - 2 {
                continue;
            }
            let models = match training.compiled(ring, frac) {
                Ok(models) => models,
                Err(e) => {
                    if seed == o.seeds[0] {
                        refused.push((ring, frac, e.to_string()));
                    }
                    continue;
                }
            };
            for &form in &o.forms {
                let say = |epoch: u32| {
                    progress(&format!(
                        "{} on {ring} bits, f = {frac}, seed {seed}, epoch {epoch}",
                        form.name()
                    ));
                };
                trainings.push(training.fixed(&models, form, &say)?);
            }
        }
    }
    Ok(Study {
        schema: Study::SCHEMA.into(),
        model: o.model.clone(),
        rows: [learnt.count(), held_out.count()],
        batch: o.batch,
        rate: o.learning.optimiser.rate.to_string(),
        plain,
        trainings,
        refused,
    })
}

/// Trainings of one seed.
struct Trains<'a> {
    o: &'a Options,
    learnt: &'a Rows,
    held_out: &'a Rows,
    seed: u64,
    /// The step of each rate, and for how many epochs.
    stages: Vec<(Step, u32)>,
    /// What plans are laid out by.
    rehearsal: Rehearsal,
}

impl<'a> Trains<'a> {
    fn new(o: &'a Options, learnt: &'a Rows, held_out: &'a Rows, seed: u64) -> Result<Self> {
        let graph = any_model(&o.model, o.batch, seed)?;
        let step = |(optimiser, epochs)| Ok((o.learning.step_of(&graph, optimiser)?, epochs));
        let stages = o.learning.stages(o.epochs)?.into_iter().map(step).collect::<Result<Vec<_>>>()?;
        let batches = learnt.batches(o.batch, o.epochs, seed).take(o.rehearsed.max(1));
        let (first, _) = stages.first().ok_or_else(|| Error::of(ErrorKind::Invalid, "there is no epoch"))?;
        let rehearsal = rehearse(first, batches)?.with_labels_of(learnt);
        Ok(Trains { o, learnt, held_out, seed, stages, rehearsal })
    }

    /// The part of the held-out rows that a model of these weights is right about.
    fn right(&self, weights: &[(String, Tensor)]) -> Result<f64> {
        let model = any_model(&self.o.model, validation_batch(self.held_out.count()), self.seed)?;
        accuracy(&with_weights(&model, weights), self.o.learning.loss, self.held_out)
    }

    fn steps(&self) -> u32 {
        (self.learnt.count() / self.o.batch) as u32
    }

    fn plain(&self) -> Result<Plain> {
        let mut clear = Clear::new(&self.stages[0].0);
        let (mut accuracy, mut epoch) = (vec![], 0);
        for (step, epochs) in &self.stages {
            clear.go_on(step);
            for _ in 0..*epochs {
                let order = self.learnt.order(self.seed, epoch);
                for run in 0..self.steps() {
                    clear.step(self.learnt.batch(&order, run, self.o.batch))?;
                }
                accuracy.push(self.right(&clear.state())?);
                epoch += 1;
            }
        }
        Ok(Plain { seed: self.seed, accuracy })
    }

    /// The step of each rate on a ring.
    fn compiled(&self, ring: u32, frac: u32) -> Result<Vec<FixedModel>> {
        let options = CompileOptions { ring, frac, ..self.o.options.clone() };
        self.stages.iter().map(|(step, _)| compile(step, "study", &options, &self.rehearsal, true)).collect()
    }

    fn fixed(&self, models: &[FixedModel], form: Form, say: &dyn Fn(u32)) -> Result<Row> {
        let rules = Rules { truncation: form, cut: form == Form::Exact };
        let plan = &models[0].compiled.plan;
        let (ring, frac) = (plan.ring, models[0].compiled.frac);
        let mut state: BTreeMap<String, Vec<u64>> = BTreeMap::new();
        for part in &self.stages[0].0.state {
            state.insert(part.name.clone(), encode_words(ring, &part.start.data, frac)?);
        }
        let (mut accuracy, mut loss, mut epoch) = (vec![], vec![], 0);
        let (mut counts, mut largest_bits) = (Counts::default(), 0);
        for (model, (step, epochs)) in models.iter().zip(&self.stages) {
            let mut walker = Walker::new(model, &rules)?;
            for _ in 0..*epochs {
                say(epoch + 1);
                let order = self.learnt.order(self.seed, epoch);
                for run in 0..self.steps() {
                    let [x, y] = self.learnt.batch(&order, run, self.o.batch);
                    let rows = |_: u32, input: &DataInput| {
                        Ok(if input.name == Step::LABELS { y.clone() } else { x.clone() })
                    };
                    let words = |input: &Input| match state.get(&input.name) {
                        Some(words) => Ok(words.clone()),
                        None => model.words(run, input, &rows),
                    };
                    let found = walker.step(&words)?;
                    for (output, words) in model.compiled.plan.outputs.iter().zip(found) {
                        state.insert(output.name.clone(), words);
                    }
                }
                let numbers = |name: &str| state.get(name).map(|words| decode_words(ring, words, frac));
                let weights: Vec<(String, Tensor)> = step
                    .state
                    .iter()
                    .filter_map(|part| {
                        Some((part.name.clone(), part.start.shape.clone(), numbers(&part.name)?))
                    })
                    .map(|(name, shape, data)| (name, Tensor::new(shape, data)))
                    .collect();
                accuracy.push(self.right(&weights)?);
                let sum = numbers(Step::LOSS_SO_FAR).and_then(|sum| sum.first().copied()).unwrap_or(f32::NAN);
                loss.push(f64::from(sum) / f64::from(self.steps()));
                state.insert(Step::LOSS_SO_FAR.into(), vec![0]);
                epoch += 1;
            }
            counts.add(walker.counts());
            largest_bits = largest_bits.max(walker.largest_bits());
        }
        Ok(Row { ring, frac, rounding: form, seed: self.seed, accuracy, loss, counts, largest_bits })
    }
}

/// The tables for people.
pub fn table(study: &Study) -> String {
    let percent = |v: f64| format!("{:.1}", 100.0 * v);
    let last = |accuracy: &[f64]| accuracy.last().copied().unwrap_or(0.0);
    let spread = |all: &[f64]| {
        let mean = all.iter().sum::<f64>() / all.len().max(1) as f64;
        let (least, most) = all.iter().fold((f64::MAX, f64::MIN), |(a, b), &v| (a.min(v), b.max(v)));
        format!("{:>6} ({} to {})", percent(mean), percent(least), percent(most))
    };
    let [learnt, held_out] = study.rows;
    let plain: Vec<f64> = study.plain.iter().map(|plain| last(&plain.accuracy)).collect();
    let mut out = format!(
        "{}, {learnt} rows in batches of {}, rate {}; percent of {held_out} held-out rows, mean (least to most) of {} seeds\n\
         float32                           {}\n",
        study.model,
        study.batch,
        study.rate,
        plain.len(),
        spread(&plain)
    );
    let mut kinds: Vec<(u32, u32, Form)> = vec![];
    for row in &study.trainings {
        let kind = (row.ring, row.frac, row.rounding);
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    for (ring, frac, form) in kinds {
        let rows: Vec<&Row> = study
            .trainings
            .iter()
            .filter(|row| (row.ring, row.frac, row.rounding) == (ring, frac, form))
            .collect();
        let right: Vec<f64> = rows.iter().map(|row| last(&row.accuracy)).collect();
        let wrong = rows.iter().map(|row| row.counts.big_errors).sum::<f64>();
        let bits = rows.iter().map(|row| row.largest_bits).max().unwrap_or(0);
        let kind = format!("{} on {ring} bits, f = {frac}", form.name());
        out += &format!("{kind:<33} {}, words up to 2^{bits}, {wrong:.0} large errors\n", spread(&right));
    }
    for (ring, frac, why) in &study.refused {
        out += &format!("{ring} bits, f = {frac}: {why}\n");
    }
    out
}

#[cfg(test)]
mod tests;
