//! Lowering: the plan under construction, as layers see it. Every step's range is checked as it is emitted.

use crate::compile::{Activations, Comparison, CompileOptions, ListStyle, PoolForm};
use crate::graph::Tensor;
use crate::layers::Scale;
use crate::problem::{Cause, Refusal, out_of_range, refuse};
use crate::range::{Accumulator, Interval, Range, RangePolicy};
use megrez_plan::{ConvGeometry, Fewest, KEPT, List, Op, Plan, Relu, SignBit, ValueId, View};
use megrez_ring::{FixedError, Shape, Word};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

pub use crate::compile::{Compiled, DataInput, LayerInfo, LayerRange, ModelInput, Revealed, vocabularies};

/// A product's operand may carry this many fraction bits more than `frac` before it is truncated.
const SPARE_BITS: u32 = 8;

/// A secret value of the plan and the bounds of its words.
#[derive(Clone, Debug)]
pub struct Secret {
    /// The plan's value.
    pub id: ValueId,
    /// The bounds of its words.
    pub range: Range,
}

impl Secret {
    /// With bounds that the layer knows to hold as well.
    pub fn within(self, range: Range) -> Self {
        Secret { range: self.range.tighten(&range), ..self }
    }
}

/// Weights once they are in the plan.
#[derive(Clone, Debug)]
pub struct Weight {
    /// The plan's value: secret or public.
    pub id: ValueId,
    /// Its dimensions.
    pub shape: Shape,
    /// The encoded weights.
    pub words: Vec<i64>,
}

/// What a layer computes on.
#[derive(Clone, Debug)]
pub enum Operand {
    /// A secret value.
    Secret(Secret),
    /// Weights, not yet in the plan.
    Constant(Arc<Tensor>),
}

impl Operand {
    /// The secret value; refuses weights.
    pub fn secret(&self) -> Result<&Secret, Refusal> {
        match self {
            Operand::Secret(secret) => Ok(secret),
            Operand::Constant(_) => {
                refuse("computes on constants only", "compute them before you export the model")
            }
        }
    }

    /// The weights; refuses secret values.
    pub fn constant(&self) -> Result<&Arc<Tensor>, Refusal> {
        match self {
            Operand::Constant(tensor) => Ok(tensor),
            Operand::Secret(_) => refuse("needs constant weights", "make them constants of the model"),
        }
    }
}

/// How far a value is above some borders; see [`Lowering::above`].
pub struct Above {
    /// max(x − border, 0) for each border. Where the comparison cuts bits, they may be negative instead of 0.
    pub parts: Vec<Secret>,
    /// The bits [x ≥ border] along a new first dimension.
    pub bits: Secret,
    /// By how many words a part may be negative.
    pub wrong: i128,
}

/// The plan under construction, as layers see it. Each method emits the step that it is named after, under the name
/// `layer/…`, and bounds the result.
pub struct Lowering<'a> {
    pub(crate) plan: Plan,
    options: &'a CompileOptions,
    pub(crate) model_inputs: Vec<ModelInput>,
    names: HashSet<String>,
    /// Values that have been truncated, and into what.
    settled: HashMap<ValueId, Secret>,
    /// Weights that several layers read, by tensor and fraction bits.
    shared: HashMap<(*const Tensor, u32), ValueId>,
    /// Tokens: values with one more dimension in the plan than in the graph, and its size.
    vocabularies: HashMap<ValueId, usize>,
    /// The operands of the current layer.
    pub(crate) operands: Vec<Option<ValueId>>,
    /// The inputs' bounds of values that ReLUs made.
    relu_inputs: HashMap<ValueId, Range>,
    /// Below which magnitude, as a real number, the current layer's comparisons are right.
    compared: Option<f64>,
    /// An operand of the current layer, and what it must lie in although that is not proven.
    domain: Option<(usize, Interval)>,
    /// The current layer.
    layer: String,
    /// Of the current layer's steps, the bits and the limit of the one with the least room.
    tightest: (u32, u32),
    proven: bool,
    /// Whether the current layer has read secret weights.
    reads_weights: bool,
    /// The layers whose ranges were declared.
    declared: HashSet<String>,
    /// Whether a step of the current layer had no room.
    pub(crate) out_of_range: bool,
}

impl<'a> Lowering<'a> {
    pub(crate) fn new(options: &'a CompileOptions) -> Self {
        Lowering {
            plan: Plan::new(options.ring),
            options,
            model_inputs: vec![],
            names: HashSet::new(),
            settled: HashMap::new(),
            shared: HashMap::new(),
            vocabularies: HashMap::new(),
            operands: vec![],
            relu_inputs: HashMap::new(),
            compared: None,
            domain: None,
            layer: String::new(),
            tightest: (0, options.ring - 1),
            proven: true,
            reads_weights: false,
            declared: HashSet::new(),
            out_of_range: false,
        }
    }

    /// Begins a layer: the first part of its steps' names.
    pub(crate) fn enter(&mut self, layer: &str) {
        self.layer = layer.into();
        self.tightest = (0, self.options.ring - 1);
        self.proven = true;
        self.reads_weights = false;
        self.out_of_range = false;
        self.compared = None;
        self.domain = None;
    }

    /// What is known about the current layer's numbers.
    pub(crate) fn layer_range(&self, output: &Secret) -> LayerRange {
        let unit = 2f64.powi(-(self.frac_of(output) as i32));
        let (low, high) = output.range.hull();
        LayerRange {
            layer: self.layer.clone(),
            output: Interval { low: low as f64 * unit, high: high as f64 * unit },
            bits: self.tightest.0,
            limit: self.tightest.1,
            proven: self.proven,
        }
    }

    /// The output of the current layer with the range that is declared for it, if it has read secret weights: what the weights
    /// prove is held against the declaration, and then forgotten.
    pub(crate) fn declared(&mut self, y: Secret) -> Result<Secret, Refusal> {
        let Some(declared) = self.options.declared.as_ref().filter(|_| self.reads_weights) else {
            return Ok(y);
        };
        let Some(&to) = declared.layers.get(&self.layer).or(declared.all.as_ref()) else {
            return refuse(
                "reads secret weights, and no range is declared for it",
                "declare what its output lies in, or one range for all layers",
            );
        };
        let unit = 2f64.powi(self.frac_of(&y) as i32);
        let range = Range::uniform((to.low * unit).floor() as i128, (to.high * unit).ceil() as i128);
        let ((low, high), (least, most)) = (y.range.hull(), range.hull());
        if low < least || high > most {
            if self.options.policy == RangePolicy::Prove {
                return out_of_range(
                    format!(
                        "its numbers may lie between {:.3e} and {:.3e}, which the declared range from {} to {} does not hold",
                        low as f64 / unit,
                        high as f64 / unit,
                        to.low,
                        to.high
                    ),
                    "declare a wider range, or assume the ranges and let `megrez check` look at your data",
                );
            }
            self.proven = false;
        }
        let range = self.admit(&format!("{}/declared", self.layer), range, self.options.ring - 2)?;
        self.declared.insert(self.layer.clone());
        Ok(Secret { range, ..y })
    }

    /// A layer for which a range is declared that was not looked at.
    pub(crate) fn declared_in_vain(&self) -> Option<&'a str> {
        let names = self.options.declared.iter().flat_map(|declared| declared.layers.keys());
        names.map(String::as_str).find(|&name| !self.declared.contains(name))
    }

    /// Refuses to choose a comparison by a range that secret weights of the same layer have made.
    fn not_by_weights(&self) -> Result<(), Refusal> {
        if self.reads_weights && self.options.declared.is_some() {
            return refuse(
                "compares what its own weights have made, so that the comparison would follow from them",
                "split it into a layer that computes with the weights and one that compares, or declare no ranges",
            );
        }
        Ok(())
    }

    /// f, the fraction bits of weights and of truncated values.
    pub fn frac(&self) -> u32 {
        self.options.frac
    }

    /// The fraction bits of a value.
    pub fn frac_of(&self, x: &Secret) -> u32 {
        match self.plan.value(x.id).kind {
            megrez_plan::Kind::Ring { frac }
            | megrez_plan::Kind::Sum { frac }
            | megrez_plan::Kind::Public { frac } => frac,
            megrez_plan::Kind::Bit => 0,
        }
    }

    /// The dimensions of a value.
    pub fn shape(&self, x: &Secret) -> &Shape {
        &self.plan.value(x.id).shape
    }

    /// A number of the architecture as a word with `frac` fraction bits.
    pub fn encode(&self, value: f32, frac: u32) -> Result<i64, Refusal> {
        Ok(self.words(&[value], frac)?[0])
    }

    fn words(&self, values: &[f32], frac: u32) -> Result<Vec<i64>, Refusal> {
        fn encode<W: Word>(values: &[f32], frac: u32) -> Result<Vec<i64>, FixedError> {
            Ok(megrez_ring::encode::<W>(values, frac)?.into_iter().map(W::to_i64).collect())
        }
        let words =
            if self.options.ring == 32 { encode::<u32>(values, frac) } else { encode::<u64>(values, frac) };
        words.map_err(|e| Refusal::new(format!("a weight does not fit: {e}"), "").because(Cause::OutOfRange))
    }

    /// Declares an input of the data owner.
    pub(crate) fn data_input(&mut self, name: &str, shape: &Shape) -> Result<(Secret, DataInput), Refusal> {
        let frac = self.options.frac;
        let range = *self.options.input_ranges.get(name).unwrap_or(&self.options.input_range);
        if !self.names.insert(name.into()) {
            return refuse("two inputs have the same name", "rename one");
        }
        let word = |v: f64| (v * 2f64.powi(frac as i32)).round() as i128;
        let words = Range::uniform(word(range.low), word(range.high));
        if words.magnitude() >= 1 << (self.options.ring - 2) {
            return out_of_range(
                "the declared range of the input does not fit the ring",
                "scale the data down",
            );
        }
        let id = self.plan.input(name, &self.options.data_owner, shape.clone(), frac);
        let input = DataInput { name: name.into(), shape: shape.clone(), frac, range, tokens: None };
        Ok((Secret { id, range: words }, input))
    }

    /// Declares an input that an earlier run has kept.
    pub(crate) fn kept_input(&mut self, name: &str, shape: &Shape) -> Result<Secret, Refusal> {
        let (secret, _) = self.data_input(name, shape)?;
        let input = self.plan.inputs.iter_mut().find(|input| input.value == secret.id);
        input.expect("it was just declared").owner = KEPT.into();
        Ok(secret)
    }

    /// Keeps a value with f fraction bits; its bounds.
    pub(crate) fn keep(&mut self, name: &str, x: &Secret) -> Result<Interval, Refusal> {
        let x = self.rounded("rounded", x, self.frac())?;
        self.plan.output(name, KEPT, x.id);
        Ok(self.layer_range(&x).output)
    }

    /// Declares an input of tokens of the data owner: rows of a table with so many of them.
    pub(crate) fn token_input(
        &mut self,
        name: &str,
        shape: &Shape,
        rows: usize,
    ) -> Result<(Secret, DataInput), Refusal> {
        if !self.names.insert(name.into()) {
            return refuse("two inputs have the same name", "rename one");
        }
        let many: Shape = [shape.dims(), &[rows]].concat().into();
        let many = many.checked().map_err(|e| Refusal::new(e.to_string(), ""))?;
        let id = self.plan.input(name, &self.options.data_owner, many, 0);
        self.vocabularies.insert(id, rows);
        let range = Interval { low: 0.0, high: (rows - 1) as f64 };
        let input = DataInput { name: name.into(), shape: shape.clone(), frac: 0, range, tokens: Some(rows) };
        Ok((Secret { id, range: Range::uniform(0, 1) }, input))
    }

    /// For tokens, the rows of the table that they name.
    pub fn vocabulary(&self, x: &Secret) -> Option<usize> {
        self.vocabularies.get(&x.id).copied()
    }

    /// A view of tokens as the graph sees them, without the dimension of their table's rows.
    pub fn rearrange_tokens(
        &mut self,
        name: &str,
        x: &Secret,
        view: &View,
        rows: usize,
    ) -> Result<Secret, Refusal> {
        let y = self.view(name, x, view.of_rows(rows))?;
        self.vocabularies.insert(y.id, rows);
        Ok(y)
    }

    /// A layer's operands: what it multiplies is truncated before.
    pub(crate) fn operands(&mut self, operands: Vec<Operand>, scale: Scale) -> Result<Vec<Operand>, Refusal> {
        let limit = self.frac() + SPARE_BITS;
        let settle = |operand| match operand {
            Operand::Secret(x) if scale == Scale::Product && self.frac_of(&x) > limit => {
                Ok(Operand::Secret(self.settle(&x)?))
            }
            operand => Ok(operand),
        };
        operands.into_iter().map(settle).collect()
    }

    /// Weights with `frac` fraction bits: an input of the model owner, or a constant of the plan.
    pub fn weight(&mut self, role: &str, tensor: &Tensor, frac: u32) -> Result<Weight, Refusal> {
        if !self.options.private_weights {
            return self.constant(role, tensor, frac);
        }
        self.reads_weights = true;
        let words = self.words(&tensor.data, frac)?;
        let (name, shape) = (self.unique(role), tensor.shape.clone());
        let id = self.plan.input(&name, &self.options.model_owner, shape.clone(), frac);
        let values = tensor.data.clone();
        self.model_inputs.push(ModelInput { name, shape: shape.clone(), frac, values });
        Ok(Weight { id, shape, words })
    }

    /// Numbers that stand in the plan, with `frac` fraction bits.
    fn constant(&mut self, role: &str, tensor: &Tensor, frac: u32) -> Result<Weight, Refusal> {
        let words = self.words(&tensor.data, frac)?;
        let (name, shape) = (self.unique(role), tensor.shape.clone());
        let id = self.step(&name, Op::Constant { shape: shape.clone(), frac, words: words.clone() }, &[])?;
        Ok(Weight { id, shape, words })
    }

    /// Any view; the bounds of the channels merge. The methods below keep them where they can.
    pub fn view(&mut self, name: &str, x: &Secret, view: View) -> Result<Secret, Refusal> {
        if view == View::whole(self.shape(x).clone()) {
            return Ok(x.clone());
        }
        self.emit(name, Op::View(view), &[x.id], x.range.merged())
    }

    /// The same elements under another shape.
    pub fn reshape(&mut self, name: &str, x: &Secret, to: Shape) -> Result<Secret, Refusal> {
        let from = self.shape(x).clone();
        let y = self.view(name, x, View::whole(to.clone()))?;
        let (a, b) = (from.dims(), to.dims());
        if a.len() < 2 || b.len() < 2 || a[0] != b[0] {
            return Ok(y);
        }
        let per_channel: usize = a[2..].iter().product();
        Ok(match b[1] {
            channels if channels == a[1] => y.within(x.range.clone()),
            features if features == a[1] * per_channel => y.within(x.range.repeat_each(per_channel)),
            _ => y,
        })
    }

    /// Repeats elements up to a larger shape, as NumPy does.
    pub fn broadcast(&mut self, name: &str, x: &Secret, to: &Shape) -> Result<Secret, Refusal> {
        match View::broadcast(self.shape(x), to) {
            Some(view) => self.view(name, x, view),
            None => refuse(format!("cannot broadcast {} to {to}", self.shape(x)), ""),
        }
    }

    /// Slices along an axis by index; an index may occur more than once.
    pub fn pick(
        &mut self,
        name: &str,
        x: &Secret,
        axis: usize,
        indices: &[usize],
    ) -> Result<Secret, Refusal> {
        let shape = self.shape(x).clone();
        if indices.iter().copied().eq(0..shape.dims()[axis]) {
            return Ok(x.clone());
        }
        let range = if axis == 1 { x.range.pick(indices) } else { x.range.clone() };
        let step = match indices {
            [a, b, ..] => *b as isize - *a as isize,
            _ => 1,
        };
        let op = if indices.windows(2).all(|w| w[1] as isize - w[0] as isize == step) {
            Op::View(View::slice(&shape, axis, indices[0], step, indices.len()))
        } else {
            Op::Gather { axis, indices: indices.to_vec() }
        };
        self.emit(name, op, &[x.id], range)
    }

    /// The first and the second half along an axis of even size.
    pub fn halves(
        &mut self,
        first: &str,
        second: &str,
        x: &Secret,
        axis: usize,
    ) -> Result<[Secret; 2], Refusal> {
        let half = self.shape(x).dims()[axis] / 2;
        let a = self.pick(first, x, axis, &(0..half).collect::<Vec<_>>())?;
        Ok([a, self.pick(second, x, axis, &(half..2 * half).collect::<Vec<_>>())?])
    }

    /// Values of one scale joined along an axis.
    pub fn concat(&mut self, name: &str, parts: &[&Secret], axis: usize) -> Result<Secret, Refusal> {
        let range = if axis == 1 {
            let sized: Vec<(&Range, usize)> =
                parts.iter().map(|p| (&p.range, self.shape(p).dims().get(1).copied().unwrap_or(1))).collect();
            Range::join(&sized)
        } else {
            Range::hull_of(&parts.iter().map(|p| &p.range).collect::<Vec<_>>())
        };
        let ids: Vec<ValueId> = parts.iter().map(|p| p.id).collect();
        self.emit(name, Op::Concat { axis }, &ids, range)
    }

    /// Zeros around a value.
    pub fn pad(
        &mut self,
        name: &str,
        x: &Secret,
        before: &[usize],
        after: &[usize],
    ) -> Result<Secret, Refusal> {
        if before.iter().chain(after).all(|&p| p == 0) {
            return Ok(x.clone());
        }
        let keeps_channels = before.get(1).is_none_or(|&p| p == 0) && after.get(1).is_none_or(|&p| p == 0);
        let range = if keeps_channels { x.range.with_zero() } else { x.range.merged().with_zero() };
        self.emit(name, Op::Pad { before: before.to_vec(), after: after.to_vec() }, &[x.id], range)
    }

    /// Σ coefficient · value + constant, all of one shape and scale.
    pub fn combine(
        &mut self,
        name: &str,
        terms: &[(i64, &Secret)],
        constant: i64,
    ) -> Result<Secret, Refusal> {
        let ranges: Vec<(i64, &Range)> = terms.iter().map(|(c, x)| (*c, &x.range)).collect();
        let range = Range::combine(&ranges, constant);
        let ids: Vec<ValueId> = terms.iter().map(|(_, x)| x.id).collect();
        let coefficients = terms.iter().map(|(c, _)| *c).collect();
        self.emit(name, Op::Combine { coefficients, constant }, &ids, range)
    }

    /// As [`Lowering::combine`], for a sum that is known to lie in `range` whatever its terms do: they may wrap.
    pub fn combine_within(
        &mut self,
        name: &str,
        terms: &[(i64, &Secret)],
        constant: i64,
        range: Range,
    ) -> Result<Secret, Refusal> {
        let ids: Vec<ValueId> = terms.iter().map(|(_, x)| x.id).collect();
        let coefficients = terms.iter().map(|(c, _)| *c).collect();
        self.emit(name, Op::Combine { coefficients, constant }, &ids, range)
    }

    /// The sum along an axis, which stays with size 1.
    pub fn sum(&mut self, name: &str, x: &Secret, axis: usize) -> Result<Secret, Refusal> {
        let count = self.shape(x).dims()[axis];
        if count == 1 {
            return Ok(x.clone());
        }
        let range = if axis == 1 { x.range.merged() } else { x.range.clone() };
        self.emit(name, Op::Sum { axis }, &[x.id], range.sum(count))
    }

    /// The same words, read with another number of fraction bits.
    pub fn rescale(&mut self, name: &str, x: &Secret, frac: u32) -> Result<Secret, Refusal> {
        if frac == self.frac_of(x) {
            return Ok(x.clone());
        }
        self.emit(name, Op::Rescale { frac }, &[x.id], x.range.clone())
    }

    /// The same number with `frac` fraction bits, at least as many as it has.
    pub fn scaled_up(&mut self, x: &Secret, frac: u32) -> Result<Secret, Refusal> {
        let more = frac - self.frac_of(x);
        if more == 0 {
            return Ok(x.clone());
        }
        if more >= self.options.ring - 2 {
            return self.no_room(&format!("{}/scaled", self.layer), i128::MAX, self.options.ring - 1);
        }
        let scaled = self.combine("scaled", &[(1 << more, x)], 0)?;
        self.rescale("scaled-to", &scaled, frac)
    }

    /// All values with as many fraction bits as the one with most.
    pub fn aligned(&mut self, values: &[&Secret]) -> Result<Vec<Secret>, Refusal> {
        let frac = values.iter().map(|x| self.frac_of(x)).max().unwrap_or(0);
        values.iter().map(|x| self.scaled_up(x, frac)).collect()
    }

    /// x + weights, which are broadcast to the shape of x and encoded at its scale: no truncation is needed.
    pub fn bias(&mut self, x: &Secret, tensor: &Tensor) -> Result<Secret, Refusal> {
        let to = self.shape(x).clone();
        let weight = self.weight("bias", tensor, self.frac_of(x))?;
        let range = Range::of_words(&weight.words, &weight.shape, &to);
        let mut addend = Secret { id: weight.id, range: range.merged() };
        if !self.options.private_weights {
            addend = self.public_as_ring(x, &weight)?;
        }
        let addend = self.broadcast("bias-broadcast", &addend, &to)?.within(range);
        self.combine("biased", &[(1, x), (1, &addend)], 0)
    }

    /// Public words as a ring value: the public words times a ring value 1, which is 0 · x + 1. Local.
    fn public_as_ring(&mut self, x: &Secret, weight: &Weight) -> Result<Secret, Refusal> {
        let one = View { shape: Shape::from([1]), strides: vec![0], offset: 0 };
        let one = self.view("one-element", x, one)?;
        let one = self.combine("one", &[(0, &one)], 1)?;
        let one = self.rescale("one-integer", &one, 0)?;
        let ones = View { shape: weight.shape.clone(), strides: vec![0; weight.shape.rank()], offset: 0 };
        let ones = self.view("ones", &one, ones)?;
        let range = Range::of_words(&weight.words, &weight.shape, &weight.shape).merged();
        self.emit("bias-shared", Op::Mul, &[ones.id, weight.id], range)
    }

    /// x · y of secret values of one shape.
    pub fn mul(&mut self, name: &str, x: &Secret, y: &Secret) -> Result<Secret, Refusal> {
        self.emit(name, Op::Mul, &[x.id, y.id], x.range.product(&y.range))
    }

    /// As [`Lowering::mul`], for a product that is known to lie in `range`, tighter than what follows from the factors.
    pub fn mul_within(
        &mut self,
        name: &str,
        x: &Secret,
        y: &Secret,
        range: Range,
    ) -> Result<Secret, Refusal> {
        let product = x.range.merged().product(&y.range.merged());
        self.emit(name, Op::Mul, &[x.id, y.id], product.tighten(&range))
    }

    /// x · weights, which are broadcast to the shape of x.
    pub fn mul_weight(&mut self, name: &str, x: &Secret, tensor: &Tensor) -> Result<Secret, Refusal> {
        let weight = self.weight("weight", tensor, self.frac())?;
        self.mul_broadcast(name, x, weight)
    }

    /// x · numbers of the architecture with `frac` fraction bits, which are broadcast to the shape of x.
    pub fn mul_public(
        &mut self,
        name: &str,
        x: &Secret,
        tensor: &Tensor,
        frac: u32,
    ) -> Result<Secret, Refusal> {
        let constant = self.constant("constant", tensor, frac)?;
        self.mul_broadcast(name, x, constant)
    }

    fn mul_broadcast(&mut self, name: &str, x: &Secret, weight: Weight) -> Result<Secret, Refusal> {
        let to = self.shape(x).clone();
        let range = x.range.product(&Range::of_words(&weight.words, &weight.shape, &to));
        let Some(view) = View::broadcast(&weight.shape, &to) else {
            return refuse(format!("cannot broadcast {} to {to}", weight.shape), "");
        };
        let mut id = weight.id;
        if !view.is_contiguous() || weight.shape != to {
            let name = self.unique("weight-broadcast");
            id = self.step(&name, Op::View(view), &[id])?;
        }
        self.emit(name, Op::Mul, &[x.id, id], range)
    }

    /// A batched matrix product of secret values.
    pub fn matmul(&mut self, name: &str, x: &Secret, y: &Secret) -> Result<Secret, Refusal> {
        let terms = self.shape(x).dims().last().copied().unwrap_or(1);
        let range = x.range.merged().product(&y.range.merged()).sum(terms);
        self.emit(name, Op::MatMul, &[x.id, y.id], range)
    }

    /// x [m, k] · weights [k, n].
    pub fn matmul_weight(&mut self, name: &str, x: &Secret, tensor: &Tensor) -> Result<Secret, Refusal> {
        let weight = self.weight("weight", tensor, self.frac())?;
        let columns = tensor.shape.dims()[1];
        let mut sums = vec![Accumulator::default(); columns];
        for (k, row) in weight.words.chunks_exact(columns).enumerate() {
            let bound = x.range.channel(k);
            row.iter().zip(&mut sums).for_each(|(&w, sum)| sum.add(w, bound));
        }
        let range = Range::per_channel(sums.into_iter().map(Accumulator::bounds).collect());
        self.emit(name, Op::MatMul, &[x.id, weight.id], range)
    }

    /// Rows of zeros with a one [m, k] · weights [k, …]: the rows of the weights that the ones name.
    pub fn lookup(
        &mut self,
        name: &str,
        x: &Secret,
        tensor: &Arc<Tensor>,
        rows: usize,
    ) -> Result<Secret, Refusal> {
        let weight = self.shared_weight("weight", tensor)?;
        let columns = tensor.data.len() / rows;
        let range = Range::of_words(&weight.words, &weight.shape, &weight.shape).with_zero();
        let mut id = weight.id;
        if weight.shape.rank() != 2 {
            let name = self.unique("table");
            id = self.step(&name, Op::View(View::whole([rows, columns].into())), &[id])?;
        }
        self.emit(name, Op::MatMul, &[x.id, id], range)
    }

    /// Whether weights are in the plan already because [`Lowering::lookup`] reads them.
    pub fn is_shared(&self, tensor: &Arc<Tensor>) -> bool {
        self.shared.contains_key(&(Arc::as_ptr(tensor), self.frac()))
    }

    /// Weights that come into the plan once, however many layers read them.
    fn shared_weight(&mut self, role: &str, tensor: &Arc<Tensor>) -> Result<Weight, Refusal> {
        let key = (Arc::as_ptr(tensor), self.frac());
        if let Some(&id) = self.shared.get(&key) {
            self.reads_weights |= self.options.private_weights;
            let words = self.words(&tensor.data, self.frac())?;
            return Ok(Weight { id, shape: tensor.shape.clone(), words });
        }
        let weight = self.weight(role, tensor, self.frac())?;
        self.shared.insert(key, weight.id);
        Ok(weight)
    }

    /// x [m, k] · transposed weights [n, k], computed as the transpose of weights · x transposed: the weights stay as they
    /// are, so that another layer can share them.
    pub fn matmul_transposed(
        &mut self,
        name: &str,
        x: &Secret,
        tensor: &Arc<Tensor>,
    ) -> Result<Secret, Refusal> {
        let weight = self.shared_weight("weight", tensor)?;
        let mut sums = vec![];
        for row in weight.words.chunks_exact(tensor.shape.dims()[1]) {
            let mut sum = Accumulator::default();
            row.iter().enumerate().for_each(|(k, &w)| sum.add(w, x.range.channel(k)));
            sums.push(sum.bounds());
        }
        let range = Range::per_channel(sums);
        let turned = View::transpose(self.shape(x), &[1, 0]);
        let columns = self.view("columns", x, turned)?;
        let product = self.emit(name, Op::MatMul, &[weight.id, columns.id], range.merged())?;
        let back = View::transpose(self.shape(&product), &[1, 0]);
        Ok(self.view("rows", &product, back)?.within(range))
    }

    /// weights [m, k] · x [k, n].
    pub fn weight_matmul(&mut self, name: &str, tensor: &Tensor, x: &Secret) -> Result<Secret, Refusal> {
        let weight = self.weight("weight", tensor, self.frac())?;
        let bound = x.range.hull();
        let mut sums = vec![];
        for row in weight.words.chunks_exact(tensor.shape.dims()[1]) {
            let mut sum = Accumulator::default();
            row.iter().for_each(|&w| sum.add(w, bound));
            sums.push(sum.bounds());
        }
        let range = Range::per_channel(sums).merged();
        self.emit(name, Op::MatMul, &[weight.id, x.id], range)
    }

    /// x [N, C, H, W] convolved with weights [O, C/groups, kh, kw].
    pub fn conv(&mut self, x: &Secret, tensor: &Tensor, geometry: ConvGeometry) -> Result<Secret, Refusal> {
        let weight = self.weight("weight", tensor, self.frac())?;
        let inputs = if geometry.pad == [0; 4] { x.range.clone() } else { x.range.with_zero() };
        let &[out, per_group, kh, kw] = tensor.shape.dims() else {
            return refuse("the kernel is not 4-D", "");
        };
        let mut bounds = vec![];
        for (o, kernel) in weight.words.chunks_exact(per_group * kh * kw).enumerate() {
            let first = o / (out / geometry.groups) * per_group;
            let mut sum = Accumulator::default();
            for (c, taps) in kernel.chunks_exact(kh * kw).enumerate() {
                let bound = inputs.channel(first + c);
                taps.iter().for_each(|&w| sum.add(w, bound));
            }
            bounds.push(sum.bounds());
        }
        self.emit("product", Op::Conv(geometry), &[x.id, weight.id], Range::per_channel(bounds))
    }

    /// With `frac` fraction bits again, if there are more. A value is truncated once, however often it is asked for.
    pub fn settle(&mut self, x: &Secret) -> Result<Secret, Refusal> {
        let bits = self.frac_of(x).saturating_sub(self.frac());
        if bits == 0 {
            return Ok(x.clone());
        }
        if let Some(done) = self.settled.get(&x.id) {
            return Ok(done.clone());
        }
        let range =
            self.admit(&format!("{}/truncate", self.layer), x.range.clone(), self.options.ring - 2)?;
        let y = self.emit("truncate", Op::Truncate { bits }, &[x.id], range.truncated(bits))?;
        self.settled.insert(x.id, y.clone());
        Ok(y)
    }

    /// As [`Lowering::settle`] for the output of the layer that was just lowered: where that ends in a ReLU, the truncation
    /// becomes a part of it, which costs no round and no opening of its own.
    pub(crate) fn settle_last(&mut self, x: &Secret) -> Result<Secret, Refusal> {
        let bits = self.frac_of(x).saturating_sub(self.frac());
        let is_relu = self.plan.steps.last().is_some_and(|s| s.output == x.id && matches!(s.op, Op::Relu(_)));
        if bits == 0 || !is_relu || self.settled.contains_key(&x.id) {
            return self.settle(x);
        }
        let step = self.plan.steps.pop().expect("there is a last step");
        let Op::Relu(relu) = step.op else { unreachable!("checked above") };
        // The truncation inside needs |x| < 2^(ℓ−2) of the ReLU's input, negative values too.
        let input = self.relu_inputs.get(&x.id).cloned().unwrap_or_else(|| x.range.clone());
        self.admit(&step.name, input, self.options.ring - 2)?;
        let fused = Op::Relu(Relu { truncate: bits, ..relu });
        self.plan.values.pop();
        let id = self.step(&step.name, fused, &step.inputs)?;
        Ok(Secret { id, range: x.range.truncated(bits) })
    }

    /// With `frac` fraction bits: truncated, or scaled up.
    pub fn rounded(&mut self, name: &str, x: &Secret, frac: u32) -> Result<Secret, Refusal> {
        let has = self.frac_of(x);
        if has <= frac {
            return self.scaled_up(x, frac);
        }
        let bits = has - frac;
        let range = self.admit(&format!("{}/{name}", self.layer), x.range.clone(), self.options.ring - 2)?;
        self.emit(name, Op::Truncate { bits }, &[x.id], range.truncated(bits))
    }

    /// What stands for smooth activations.
    pub fn activations(&self) -> Activations {
        self.options.activations
    }

    /// How pools find the largest value of a window.
    pub fn pool(&self) -> PoolForm {
        self.options.pool
    }

    /// The largest of a few values of one shape and scale, element by element, by comparing all pairs.
    pub fn maximum(&mut self, name: &str, values: &[&Secret]) -> Result<Secret, Refusal> {
        let all = Range::hull_of(&values.iter().map(|x| &x.range).collect::<Vec<_>>());
        let difference = Range::combine(&[(1, &all), (-1, &all)], 0);
        // Each value is cut by itself, so a difference has lost two cuts.
        let (sign, _) = self.comparison(name, &Secret { id: values[0].id, range: difference }, 0, 2)?;
        let ids: Vec<ValueId> = values.iter().map(|x| x.id).collect();
        self.emit(name, Op::Maximum(sign), &ids, all)
    }

    /// max(x, 0).
    pub fn relu(&mut self, name: &str, x: &Secret) -> Result<Secret, Refusal> {
        let (sign, range) = self.comparison(name, x, 0, 1)?;
        let relu = Relu { sign, form: self.options.relu, truncate: 0 };
        let y = self.emit(name, Op::Relu(relu), &[x.id], range.map(|b| b.max(0)))?;
        self.relu_inputs.insert(y.id, range);
        Ok(y)
    }

    /// max(x − border, 0) for public borders, words at the scale of x: one comparison with them all, one selection.
    pub fn above(&mut self, name: &str, x: &Secret, borders: &[i64]) -> Result<Above, Refusal> {
        let differences = borders
            .iter()
            .map(|&border| self.combine("difference", &[(1, x)], -border))
            .collect::<Result<Vec<_>, _>>()?;
        let all: Vec<&Secret> = differences.iter().collect();
        let range = Range::hull_of(&all.iter().map(|d| &d.range).collect::<Vec<_>>());
        let moved = borders.iter().map(|b| i128::from(b.abs())).max().unwrap_or(0);
        let (sign, _) = self.comparison(name, &Secret { id: x.id, range }, moved, 1)?;
        let wrong = (1 << sign.cut) - 1;
        let op = Op::CompareMany { sign, thresholds: borders.to_vec() };
        let bits = self.emit(name, op, &[x.id], Range::uniform(0, 1))?;
        let stacked = self.stack("differences", &all)?;
        let range = stacked.range.map(|b| b.max(-wrong));
        let selected = self.emit("select", Op::Select, &[bits.id, stacked.id], range)?;
        let shape = self.shape(x).clone();
        let mut parts = self.unstack("part", &selected, &shape)?;
        for (part, difference) in parts.iter_mut().zip(&differences) {
            *part = part.clone().within(difference.range.map(|b| b.max(-wrong)));
        }
        Ok(Above { parts, bits, wrong })
    }

    /// The bits [x ≥ t] of ascending public thresholds, words at the scale of x, along a new first dimension. The
    /// comparison is exact, whatever the options cut elsewhere: a wrong bit would be off by a whole interval.
    pub fn thermometer(&mut self, name: &str, x: &Secret, thresholds: &[i64]) -> Result<Secret, Refusal> {
        let (low, high) = x.range.hull();
        self.not_by_weights()?;
        let (first, last) = (thresholds[0], thresholds[thresholds.len() - 1]);
        let range = Range::uniform(low.saturating_sub(last.into()), high.saturating_sub(first.into()));
        self.admit(&format!("{}/{name}", self.layer), range.clone(), self.options.ring - 1)?;
        let sign = self.exact_sign(range.magnitude());
        let op = Op::CompareMany { sign, thresholds: thresholds.to_vec() };
        self.emit(name, op, &[x.id], Range::uniform(0, 1))
    }

    /// The comparison of values of this magnitude that cuts no bits.
    fn exact_sign(&self, magnitude: i128) -> SignBit {
        let ring = self.options.ring;
        let (width, list) = match &self.options.comparison {
            Comparison::Fixed(sign) => match sign.list {
                List::Bits => (ring, List::Bits),
                List::Digits(_) => (ring, List::digits(ring, Fewest::Total)),
            },
            Comparison::Fitted { list, .. } => {
                let width = (i128::BITS - magnitude.leading_zeros() + 1).clamp(2, ring);
                match list {
                    ListStyle::Bits => (width, List::Bits),
                    ListStyle::Digits(fewest) => (width, List::digits(width, *fewest)),
                }
            }
        };
        SignBit { list, cut: 0, bits: Some(width) }
    }

    /// bit · x; `bits` came from [`Lowering::thermometer`] and has the shape of x.
    pub fn select(&mut self, name: &str, bits: &Secret, x: &Secret) -> Result<Secret, Refusal> {
        self.emit(name, Op::Select, &[bits.id, x.id], x.range.merged().with_zero())
    }

    /// Bits as the numbers 0 and 1, without fraction bits.
    pub fn bit_to_ring(&mut self, name: &str, bits: &Secret) -> Result<Secret, Refusal> {
        self.emit(name, Op::BitToRing, &[bits.id], Range::uniform(0, 1))
    }

    /// By how many words the results of the ReLU that was emitted last may be wrong.
    pub fn last_cut(&self) -> i128 {
        match self.plan.steps.last().map(|s| &s.op) {
            Some(Op::Relu(relu)) => (1 << relu.sign.cut) - 1,
            _ => 0,
        }
    }

    /// The current layer is right only where x lies in `domain`. Proves it, or refuses, or assumes it; where x is an
    /// operand of the layer, `megrez check` then counts what lies outside.
    pub fn holds_within(&mut self, x: &Secret, domain: Interval, why: &str) -> Result<(), Refusal> {
        let unit = 2f64.powi(-(self.frac_of(x) as i32));
        let (low, high) = x.range.hull();
        if low as f64 * unit >= domain.low && high as f64 * unit <= domain.high {
            return Ok(());
        }
        if self.options.policy == RangePolicy::Prove {
            let (low, high) = (low as f64 * unit, high as f64 * unit);
            return out_of_range(
                format!("{why}: its numbers may lie between {low:.3e} and {high:.3e}"),
                "declare a smaller input range, or assume the ranges and let `megrez check` look at your data",
            );
        }
        self.proven = false;
        let operand = self.operands.iter().position(|&id| id == Some(x.id));
        self.domain = operand.map(|operand| (operand, domain));
        Ok(())
    }

    /// Values of one shape and scale along a new first dimension.
    pub fn stack(&mut self, name: &str, parts: &[&Secret]) -> Result<Secret, Refusal> {
        let shape = self.shape(parts[0]).clone();
        let mut rows: Vec<Secret> = parts.iter().map(|&p| p.clone()).collect();
        if shape.rank() == 0 {
            rows = rows
                .iter()
                .map(|r| self.view("row", r, View::whole([1].into())))
                .collect::<Result<_, _>>()?;
        }
        let joined = self.concat(name, &rows.iter().collect::<Vec<_>>(), 0)?;
        let to: Shape = [&[parts.len()], shape.dims()].concat().into();
        self.view("stacked", &joined, View::whole(to))
    }

    /// The slices of the first dimension, each of shape `shape`.
    pub fn unstack(&mut self, name: &str, x: &Secret, shape: &Shape) -> Result<Vec<Secret>, Refusal> {
        let rows = self.shape(x).dims()[0];
        let view = View::whole(shape.clone());
        (0..rows).map(|i| self.view(name, x, View { offset: i * shape.elements(), ..view.clone() })).collect()
    }

    /// How to compare a value that is an activation's input moved by up to `moved` words, and whose low bits are cut `cuts`
    /// times before it is compared: the comparison, and the range in which it is right.
    fn comparison(
        &mut self,
        name: &str,
        x: &Secret,
        moved: i128,
        cuts: i128,
    ) -> Result<(SignBit, Range), Refusal> {
        self.not_by_weights()?;
        let (sign, measured) = self.sign_for(x, moved, cuts);
        let ring = self.options.ring;
        let limit = (sign.cut + sign.width(ring)).saturating_sub(1).min(ring - 1);
        // Right for −2^limit ≤ x ≤ 2^limit − 2^cut; cut twice, also 2^cut more than −2^limit.
        let lost = if sign.cut == 0 { 1 } else { cuts << sign.cut };
        let right = (2f64.powi(limit as i32) - lost as f64 - moved as f64).max(0.0);
        let right = right * 2f64.powi(-(self.frac_of(x) as i32));
        self.compared = Some(self.compared.map_or(right, |other| other.min(right)));
        let step = format!("{}/{name}", self.layer);
        let range = if measured {
            // The data says that it fits; the ring must hold it all the same.
            self.proven = false;
            self.admit(&step, x.range.clone(), ring - 1)?.clamped(1 << limit)
        } else {
            self.admit(&step, x.range.clone(), limit)?
        };
        Ok((sign, range))
    }

    /// The comparison for a value, and whether it relies on measured magnitudes.
    fn sign_for(&self, x: &Secret, moved: i128, cuts: i128) -> (SignBit, bool) {
        let ring = self.options.ring;
        let beyond = self.frac_of(x).saturating_sub(self.frac());
        let (list, bits, calibration) = match &self.options.comparison {
            Comparison::Fixed(sign) => {
                let cut = if sign.bits.is_some() { sign.cut + beyond } else { sign.cut };
                return (SignBit { cut, ..sign.clone() }, false);
            }
            Comparison::Fitted { list, bits, calibration } => (list, bits, calibration),
        };
        let proven = x.range.magnitude();
        let measured = calibration
            .as_ref()
            .and_then(|c| c.bound(&self.layer))
            .map(|bound| ((bound * 2f64.powi(self.frac_of(x) as i32)).ceil() as i128).saturating_add(moved));
        let magnitude = measured.map_or(proven, |m| m.min(proven));
        // |x| ≤ 2^(k+λ−1) − cuts·2^k.
        let width_after = |cut: u32| {
            let top = i128::BITS - magnitude.saturating_add((cuts << cut) - 1).leading_zeros();
            (top + 1).saturating_sub(cut).clamp(2, ring - cut)
        };
        let most = bits.unwrap_or(ring);
        let last = ring - 2;
        let cut = (beyond..last).find(|&cut| width_after(cut) <= most).unwrap_or(last);
        let width = width_after(cut);
        let list = match list {
            ListStyle::Bits => List::Bits,
            ListStyle::Digits(fewest) => List::digits(width, *fewest),
        };
        (SignBit { list, cut, bits: Some(width) }, magnitude < proven)
    }

    /// An operand of the current layer, and what it must lie in although that is not proven.
    pub(crate) fn domain(&self) -> Option<(usize, Interval)> {
        self.domain
    }

    /// ℓ.
    pub fn ring(&self) -> u32 {
        self.options.ring
    }

    /// Below which magnitude the current layer's comparisons are right.
    pub(crate) fn compared(&self) -> Option<f64> {
        self.compared
    }

    /// Appends a step and bounds its result.
    fn emit(&mut self, name: &str, op: Op, inputs: &[ValueId], range: Range) -> Result<Secret, Refusal> {
        let name = self.unique(name);
        let id = self.step(&name, op, inputs)?;
        let range = self.admit(&name, range, self.options.ring - 1)?;
        Ok(Secret { id, range })
    }

    fn step(&mut self, name: &str, op: Op, inputs: &[ValueId]) -> Result<ValueId, Refusal> {
        self.plan.step(name, op, inputs).map_err(|e| Refusal::new(e.to_string(), ""))
    }

    /// Holds a step to |x| < 2^limit: proves it, refuses, or assumes it.
    fn admit(&mut self, step: &str, range: Range, limit: u32) -> Result<Range, Refusal> {
        let magnitude = range.magnitude();
        if magnitude >= 1 << limit {
            if self.options.policy == RangePolicy::Prove {
                return self.no_room(step, magnitude, limit);
            }
            self.proven = false;
            self.tightest = (limit, limit);
            return Ok(range.clamped((1 << limit) - 1));
        }
        let bits = i128::BITS - magnitude.leading_zeros();
        let (tightest, its_limit) = self.tightest;
        if i64::from(limit) - i64::from(bits) < i64::from(its_limit) - i64::from(tightest) {
            self.tightest = (bits, limit);
        }
        Ok(range)
    }

    fn no_room<T>(&mut self, step: &str, magnitude: i128, limit: u32) -> Result<T, Refusal> {
        self.out_of_range = true;
        let (ring, frac) = (self.options.ring, self.frac());
        let log2 = (magnitude as f64).log2();
        out_of_range(
            format!(
                "its numbers may outgrow the {ring}-bit ring at {frac} fraction bits: words of step `{step}` may \
                 reach ±2^{log2:.1} and must stay below 2^{limit}"
            ),
            "",
        )
    }

    fn unique(&mut self, name: &str) -> String {
        let base = format!("{}/{name}", self.layer);
        let candidates = std::iter::once(base.clone()).chain((2..).map(|i| format!("{base}-{i}")));
        candidates.into_iter().find(|n| self.names.insert(n.clone())).expect("numbers do not end")
    }
}
