//! A model's plan on plain words. What every protocol does locally on shares, products included, is
//! the plaintext suite's work; truncations and comparisons follow the rules of a study, with fresh
//! masks for every element.

use super::forms::{Form, cut_sign, exact, is_big_error};
use super::rules::{Counts, Rules};
use megrez::{Error, ErrorKind, FixedModel, Result};
use megrez_graph::Tensor as Floats;
use megrez_graph::lower::DataInput;
use megrez_kernels::{Bits, Cpu, Memory, Tensor};
use megrez_net::{ClockKind, NetProfile, Network, Payload};
use megrez_plan::{Input, Kind, Op, SignBit, Step, ValueId};
use megrez_protocols::clear::{Clear, Data};
use megrez_protocols::{Call, Operands, Sharing, Suite};
use megrez_ring::{U40, U48, Word, bits, decode_words, to_wire};
use megrez_session::{Party, Phase};
use std::time::Duration;

/// Data inputs as real numbers.
pub type Rows<'a> = dyn Fn(u32, &DataInput) -> Result<Floats> + 'a;

/// What an input of a plan is, as ring elements.
pub type Words<'a> = dyn Fn(&Input) -> Result<Vec<u64>> + 'a;

/// A walk over the plan of one model on the ring that the model was compiled for.
pub enum Walker<'a> {
    /// Z_2^32.
    Of32(Walk<'a, u32>),
    /// Z_2^40.
    Of40(Walk<'a, U40>),
    /// Z_2^48.
    Of48(Walk<'a, U48>),
    /// Z_2^64.
    Of64(Walk<'a, u64>),
}

/// The same of a walk on any ring.
macro_rules! of_any {
    ($walker:expr, $walk:ident => $what:expr) => {
        match $walker {
            Walker::Of32($walk) => $what,
            Walker::Of40($walk) => $what,
            Walker::Of48($walk) => $what,
            Walker::Of64($walk) => $what,
        }
    };
}

impl<'a> Walker<'a> {
    /// For a compiled model.
    pub fn new(model: &'a FixedModel, rules: &Rules) -> Result<Self> {
        Ok(match model.compiled.plan.ring {
            32 => Walker::Of32(Walk::new(model, rules)?),
            40 => Walker::Of40(Walk::new(model, rules)?),
            48 => Walker::Of48(Walk::new(model, rules)?),
            64 => Walker::Of64(Walk::new(model, rules)?),
            other => return Err(Error::Refused(format!("no study runs on a ring of {other} bits"))),
        })
    }

    /// The next batch: the model's outputs as real numbers.
    pub fn run(&mut self, rows: &Rows<'_>) -> Result<Vec<Floats>> {
        of_any!(self, walk => walk.run(rows))
    }

    /// A plan whose outputs are inputs of its next run: the ring elements of all outputs, at the
    /// scales that the plan says.
    pub fn step(&mut self, words: &Words<'_>) -> Result<Vec<Vec<u64>>> {
        let found = of_any!(self, walk => walk.walked(words))?;
        match found.iter().all(|(_, lead)| *lead == 0) {
            true => Ok(found.into_iter().map(|(words, _)| words).collect()),
            false => {
                Err(Error::Refused("what is truncated before it is multiplied has no such scale".into()))
            }
        }
    }

    /// What happened in all batches so far.
    pub fn counts(&self) -> Counts {
        of_any!(self, walk => walk.counts)
    }

    /// How many bits the largest word has that was truncated so far, the sign not counted.
    pub fn largest_bits(&self) -> u32 {
        of_any!(self, walk => u64::BITS - walk.largest.leading_zeros())
    }
}

/// The one party of a study: a source of fresh streams from the operating system's randomness, on
/// the CPU.
pub fn lone_party() -> Result<Party<Cpu>> {
    let networks = Network::in_memory(1, &NetProfile::loopback(), ClockKind::Virtual, Duration::from_secs(1));
    let network = networks.into_iter().next().ok_or_else(|| Error::Refused("no network in memory".into()))?;
    Ok(Party::start(network, Cpu::default())?)
}

/// A value on the way.
#[derive(Clone)]
struct Held<W: Word> {
    data: Data<W, Cpu>,
    /// How many fraction bits fewer it has than the plan thinks, because its product's operands
    /// were truncated before.
    lead: u32,
    /// Whether it is an input, at most rearranged: its owner can encode it with as few fraction
    /// bits as are asked for.
    given: bool,
}

/// See [`Walker`].
pub struct Walk<'a, W: Word> {
    model: &'a FixedModel,
    rules: Rules,
    suite: Clear<W, Cpu>,
    party: Party<Cpu>,
    runs: u32,
    counts: Counts,
    /// The largest magnitude that was truncated.
    largest: u64,
    values: Vec<Option<Held<W>>>,
}

impl<'a, W: Word> Walk<'a, W> {
    fn new(model: &'a FixedModel, rules: &Rules) -> Result<Self> {
        if rules.cut && rules.truncation != Form::Exact {
            return Err(Error::Refused("cut comparisons share the mask of the exact truncation".into()));
        }
        Ok(Walk {
            model,
            rules: rules.clone(),
            suite: Clear::default(),
            party: lone_party()?,
            runs: 0,
            counts: Counts::default(),
            largest: 0,
            values: vec![],
        })
    }

    fn run(&mut self, rows: &Rows<'_>) -> Result<Vec<Floats>> {
        let (model, run) = (self.model, self.runs);
        let found = self.walked(&|input| model.words(run, input, rows))?;
        let revealed = found.into_iter().zip(&model.compiled.outputs);
        let decoded = revealed.map(|((words, lead), revealed)| {
            revealed.finish(decode_words(model.compiled.plan.ring, &words, revealed.frac - lead))
        });
        Ok(decoded.collect())
    }

    /// The words of all outputs, each with how many fraction bits fewer it has than the plan
    /// thinks.
    fn walked(&mut self, words: &Words<'_>) -> Result<Vec<(Vec<u64>, u32)>> {
        let model = self.model;
        let plan = &model.compiled.plan;
        let run = self.runs;
        self.runs += 1;
        self.party.enter(Phase::Online, run);
        self.values = vec![None; plan.values.len()];
        for input in &plan.inputs {
            let words = words(input)?.into_iter().map(W::from_u64).collect::<Vec<W>>();
            let value = plan.value(input.value);
            let data = self.suite.accept(&self.party, value, Payload::from_bytes(&to_wire(&words)))?;
            self.values[input.value.0 as usize] = Some(Held { data, lead: 0, given: true });
        }
        let mut last = vec![0; plan.values.len()];
        for (at, step) in plan.steps.iter().enumerate() {
            step.inputs.iter().for_each(|i| last[i.0 as usize] = at);
        }
        plan.outputs.iter().for_each(|o| last[o.value.0 as usize] = usize::MAX);
        for (at, step) in plan.steps.iter().enumerate() {
            let held = self.step(step)?;
            self.values[step.output.0 as usize] = Some(held);
            for i in step.inputs.iter().filter(|i| last[i.0 as usize] == at) {
                self.values[i.0 as usize] = None;
            }
        }
        let mut outputs = vec![];
        for output in &plan.outputs {
            let held = self.held(output.value).clone();
            let words: Vec<u64> = self.words(&held.data)?.into_iter().map(Word::to_u64).collect();
            outputs.push((words, held.lead));
        }
        Ok(outputs)
    }

    fn held(&self, id: ValueId) -> &Held<W> {
        self.values[id.0 as usize].as_ref().expect("a plan defines values before their use")
    }

    fn words(&self, data: &Data<W, Cpu>) -> Result<Vec<W>> {
        match data {
            Data::Ring(x) => Ok(self.party.device().download(x.buf.clone()).map_err(device)?),
            Data::Bit(_) => Err(Error::Refused("studies open ring values only".into())),
        }
    }

    fn frac(&self, id: ValueId) -> u32 {
        self.model.compiled.plan.value(id).kind.frac()
    }

    fn step(&mut self, step: &Step) -> Result<Held<W>> {
        let mut inputs: Vec<Held<W>> = step.inputs.iter().map(|&i| self.held(i).clone()).collect();
        let most = inputs.iter().map(|i| i.lead).max().unwrap_or(0);
        match &step.op {
            Op::Truncate { bits } => {
                let [x] = only(inputs);
                let drop = bits.saturating_sub(x.lead);
                let data = self.truncated(&step.name, x.data, drop)?;
                return Ok(Held { data, lead: x.lead.saturating_sub(*bits), given: false });
            }
            Op::Relu(relu) => {
                let [x] = only(inputs);
                let drop = relu.truncate.saturating_sub(x.lead);
                let small = self.beyond(step.inputs[0]).saturating_sub(relu.truncate);
                let data = self.relu(&step.name, &x.data, &relu.sign, drop, small)?;
                return Ok(Held { data, lead: x.lead.saturating_sub(relu.truncate), given: false });
            }
            Op::NonNegative(sign) if self.rules.cut => {
                let [x] = only(inputs);
                let small = self.beyond(step.inputs[0]);
                let data = self.at_least(step, &x.data, sign, &[0], small)?;
                return Ok(Held { data, lead: 0, given: false });
            }
            Op::CompareMany { sign, thresholds } => {
                let [x] = only(inputs);
                // Thresholds are words at the scale that the plan gives x.
                let thresholds: Vec<i64> = thresholds.iter().map(|t| t >> x.lead).collect();
                let data = if self.rules.cut {
                    let small = self.beyond(step.inputs[0]);
                    self.at_least(step, &x.data, sign, &thresholds, small)?
                } else {
                    let n = self.ring(&x.data)?.elements() * thresholds.len();
                    self.counts.comparisons += n as f64;
                    let op = Op::CompareMany { sign: sign.clone(), thresholds };
                    self.local(step, &op, &[x])?
                };
                return Ok(Held { data, lead: 0, given: false });
            }
            Op::Maximum(sign) if self.rules.cut => {
                let small = self.beyond(step.inputs[0]);
                let data = self.maximum(step, &inputs, sign, small)?;
                return Ok(Held { data, lead: 0, given: false });
            }
            Op::Mul | Op::MatMul | Op::Conv(_) if self.rules.truncation == Form::TruncateFirst => {
                // The product carries f fraction bits: half of them from each operand. What is
                // public loses nothing.
                let f = self.model_frac();
                let mut carried = 0;
                for (i, keep) in [f / 2, f - f / 2].into_iter().enumerate() {
                    let (x, id) = (&mut inputs[i], step.inputs[i]);
                    let frac = self.frac(id) - x.lead;
                    let public = matches!(self.model.compiled.plan.value(id).kind, Kind::Public { .. });
                    let drop = if public { 0 } else { frac.saturating_sub(keep) };
                    let name = format!("{}/operand-{i}", step.name);
                    x.data = self.truncated(&name, x.data.clone(), drop)?;
                    carried += frac - drop;
                }
                let lead = self.frac(step.output) - carried;
                return Ok(Held { data: self.local(step, &step.op, &inputs)?, lead, given: false });
            }
            Op::Combine { .. } | Op::Concat { .. } | Op::Maximum(_) if most > 0 => {
                for (i, x) in inputs.iter_mut().enumerate() {
                    let drop = most - x.lead;
                    x.data = if x.given {
                        self.encoded_with_fewer(&x.data, drop)?
                    } else {
                        self.truncated(&format!("{}/addend-{i}", step.name), x.data.clone(), drop)?
                    };
                }
                let op = match step.op.clone() {
                    Op::Combine { coefficients, constant } => {
                        Op::Combine { coefficients, constant: constant >> most }
                    }
                    other => other,
                };
                return Ok(Held { data: self.local(step, &op, &inputs)?, lead: most, given: false });
            }
            _ => {}
        }
        let given = matches!(step.op, Op::View(_)) && inputs.iter().all(|i| i.given);
        let keeps_scale = !matches!(step.op, Op::NonNegative(_) | Op::BitToRing | Op::CompareMany { .. });
        let lead = if keeps_scale { most } else { 0 };
        Ok(Held { data: self.local(step, &step.op, &inputs)?, lead, given })
    }

    /// How many fraction bits more than f the plan gives a value.
    fn beyond(&self, id: ValueId) -> u32 {
        self.frac(id).saturating_sub(self.model_frac())
    }

    /// f, as the model was compiled: that of its inputs.
    fn model_frac(&self) -> u32 {
        self.model.compiled.data_inputs.first().map_or(0, |i| i.frac)
    }

    /// A step in which protocols do the same on every share, or whose protocol is exact.
    fn local(&mut self, step: &Step, op: &Op, inputs: &[Held<W>]) -> Result<Data<W, Cpu>> {
        if !is_known(op) {
            let what = format!("step `{}`: studies do not know how protocols approximate it", step.name);
            return Err(Error::Refused(what));
        }
        let plan = &self.model.compiled.plan;
        let types: Vec<_> = step.inputs.iter().map(|&i| plan.value(i)).collect();
        let call = Call { op, inputs: &types, output: plan.value(step.output) };
        let inputs: Vec<(&(), &Data<W, Cpu>)> = inputs.iter().map(|i| (&(), &i.data)).collect();
        let masks: Vec<&()> = inputs.iter().map(|(masks, _)| *masks).collect();
        let operands = Operands { inputs: &inputs, masks: Some(&()) };
        let suite = self.suite.clone();
        let (data, _) = self.party.step(&step.name, |p| {
            let material = suite.offline(p, call, &masks, Some(&()))?;
            suite.online(p, call, operands, material)
        })?;
        Ok(data)
    }

    /// Two fresh words for each of `n` elements.
    fn masks(&mut self, name: &str, n: usize) -> Result<Vec<u64>> {
        Ok(self.party.step(name, |p| Ok(p.stream(p.me(), "masks")?.words(2 * n)))?)
    }

    fn truncated(&mut self, name: &str, x: Data<W, Cpu>, drop: u32) -> Result<Data<W, Cpu>> {
        if drop == 0 {
            return Ok(x);
        }
        let shape = self.ring(&x)?.shape.clone();
        let y = self.truncated_words(name, self.words(&x)?, drop)?;
        self.upload(shape, y)
    }

    /// As its owner would have encoded it with `drop` fraction bits fewer: to the nearest.
    fn encoded_with_fewer(&self, x: &Data<W, Cpu>, drop: u32) -> Result<Data<W, Cpu>> {
        let half = (1i64 << drop) >> 1;
        let round = |x: W| W::from_i64(x.to_i64().saturating_add(half) >> drop);
        let shape = self.ring(x)?.shape.clone();
        self.upload(shape, self.words(x)?.into_iter().map(round).collect())
    }

    fn truncated_words(&mut self, name: &str, x: Vec<W>, drop: u32) -> Result<Vec<W>> {
        if drop == 0 {
            return Ok(x);
        }
        let masks = self.masks(name, x.len())?;
        let form = self.rules.truncation;
        let largest = x.iter().map(|x| x.to_i64().unsigned_abs()).max().unwrap_or(0);
        self.largest = self.largest.max(largest);
        let mut big = 0u64;
        let y = (x.into_iter().zip(masks.chunks_exact(2)))
            .map(|(x, r)| {
                let y = form.truncate(x, drop, [W::from_u64(r[0]), W::from_u64(r[1])]);
                big += u64::from(is_big_error(x, drop, y));
                y
            })
            .collect::<Vec<W>>();
        self.counts.truncations += y.len() as f64;
        self.counts.big_errors += big as f64;
        Ok(y)
    }

    /// `small`: that the sign of ±2^small and below does not matter.
    fn relu(
        &mut self,
        name: &str,
        x: &Data<W, Cpu>,
        sign: &SignBit,
        drop: u32,
        small: u32,
    ) -> Result<Data<W, Cpu>> {
        let shape = self.ring(x)?.shape.clone();
        let x = self.words(x)?;
        self.counts.comparisons += x.len() as f64;
        let y = if self.rules.cut {
            let masks = self.masks(name, x.len())?;
            let (mut wrong, mut big) = (0u64, 0u64);
            let y = (x.into_iter().zip(masks.chunks_exact(2)))
                .map(|(x, r)| {
                    let r = W::from_u64(r[0]).add(W::from_u64(r[1]));
                    let m = x.add(r);
                    let y = if drop == 0 { x } else { exact(m, r, drop) };
                    let positive = cut_sign(m, r, sign.cut, sign.width(W::BITS));
                    wrong += u64::from(positive == (x.msb() == 1) && matters(y, small));
                    big += u64::from(is_big_error(x, drop, y));
                    if positive { y } else { W::ZERO }
                })
                .collect();
            self.counts.sign_errors += wrong as f64;
            self.counts.big_errors += big as f64;
            self.counts.truncations += if drop > 0 { shape.elements() as f64 } else { 0.0 };
            y
        } else {
            let y = self.truncated_words(name, x, drop)?;
            y.into_iter().map(|y| if y.msb() == 1 { W::ZERO } else { y }).collect()
        };
        self.upload(shape, y)
    }

    /// The bits [x ≥ t] under one mask of x, threshold by threshold.
    fn at_least(
        &mut self,
        step: &Step,
        x: &Data<W, Cpu>,
        sign: &SignBit,
        thresholds: &[i64],
        small: u32,
    ) -> Result<Data<W, Cpu>> {
        let x = self.words(x)?;
        let masks = self.masks(&step.name, x.len())?;
        let (n, mut wrong) = (x.len(), 0u64);
        let packed = bits::pack(n * thresholds.len(), |at| {
            let (i, t) = (at % n, W::from_i64(thresholds[at / n]));
            let r = W::from_u64(masks[2 * i]).add(W::from_u64(masks[2 * i + 1]));
            let difference = x[i].sub(t);
            let positive = cut_sign(difference.add(r), r, sign.cut, sign.width(W::BITS));
            wrong += u64::from(positive == (difference.msb() == 1) && matters(difference, small));
            u64::from(positive)
        });
        self.counts.comparisons += (n * thresholds.len()) as f64;
        self.counts.sign_errors += wrong as f64;
        let shape = self.model.compiled.plan.value(step.output).shape.clone();
        Ok(Data::Bit(Bits::new(shape, self.party.device().upload(packed).map_err(device)?)))
    }

    /// The value that beats all others when all are cut; the first where the comparison is too
    /// narrow for there to be one.
    fn maximum(
        &mut self,
        step: &Step,
        inputs: &[Held<W>],
        sign: &SignBit,
        small: u32,
    ) -> Result<Data<W, Cpu>> {
        let (cut, width) = (sign.cut, sign.width(W::BITS));
        let x = inputs.iter().map(|x| self.words(&x.data)).collect::<Result<Vec<_>>>()?;
        let (k, n) = (x.len(), x[0].len());
        let masks = self.masks(&step.name, k * n)?;
        // Every value as the comparisons see it.
        let seen = |i: usize, e: usize| {
            let at = 2 * (i * n + e);
            let r = W::from_u64(masks[at]).add(W::from_u64(masks[at + 1]));
            (x[i][e].add(r).to_u64() >> cut).wrapping_sub(r.to_u64() >> cut)
        };
        let mut wrong = 0u64;
        let largest = (0..n).map(|e| {
            let y: Vec<u64> = (0..k).map(|i| seen(i, e)).collect();
            let first = |p: usize, q: usize| y[p].wrapping_sub(y[q]) >> (width - 1) & 1 == 0;
            let beats = |i: usize, j: usize| if i < j { first(i, j) } else { !first(j, i) };
            let winner = (0..k).find(|&i| (0..k).all(|j| i == j || beats(i, j))).unwrap_or(0);
            let lost = (0..k).map(|i| x[i][e].to_i64()).max().unwrap_or(0) - x[winner][e].to_i64();
            wrong += u64::from(matters(W::from_i64(lost), small));
            x[winner][e]
        });
        let largest: Vec<W> = largest.collect();
        self.counts.comparisons += (n * k * (k - 1) / 2) as f64;
        self.counts.sign_errors += wrong as f64;
        self.upload(self.model.compiled.plan.value(step.output).shape.clone(), largest)
    }

    fn ring<'d>(&self, data: &'d Data<W, Cpu>) -> Result<&'d Tensor<W, Cpu>> {
        match data {
            Data::Ring(x) => Ok(x),
            Data::Bit(_) => Err(Error::Refused("the plan truncates or compares a bit".into())),
        }
    }

    fn upload(&self, shape: megrez_ring::Shape, words: Vec<W>) -> Result<Data<W, Cpu>> {
        Ok(Data::Ring(Tensor::new(shape, self.party.device().upload(words).map_err(device)?)))
    }
}

/// Steps that no form of truncation and no cut changes: a new primitive is looked at before it is
/// put here.
fn is_known(op: &Op) -> bool {
    op.is_linear()
        || matches!(
            op,
            Op::Constant { .. }
                | Op::Noise { .. }
                | Op::Mul
                | Op::MatMul
                | Op::Conv(_)
                | Op::NonNegative(_)
                | Op::CompareMany { .. }
                | Op::Maximum(_)
                | Op::Select { truncate: 0 }
                | Op::BitToRing
                | Op::Xor
                | Op::And
                | Op::Not
        )
}

/// Whether the sign of y makes a difference that f fraction bits can show.
fn matters<W: Word>(y: W, small: u32) -> bool {
    y.to_i64().unsigned_abs() >> small > 0
}

fn device(e: megrez_kernels::DeviceError) -> Error {
    Error::of(ErrorKind::Internal, e)
}

/// The one input of a step that has one.
fn only<T>(inputs: Vec<T>) -> [T; 1] {
    match inputs.try_into() {
        Ok(one) => one,
        Err(_) => unreachable!("a plan's types are checked"),
    }
}

#[cfg(test)]
mod tests;
