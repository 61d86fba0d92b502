//! The plan under construction: its steps, each of which is bounded as it is emitted, and the layer
//! that emits them.

use super::affine::Affine;
use super::operand::Secret;
use crate::clients::{LayerRange, ModelInput};
use crate::options::{Activations, CompileOptions, PoolForm, TreeForm};
use crate::problem::{Cause, Refusal, out_of_range, refuse};
use crate::range::{Interval, Range, RangePolicy};
use crate::tensor::Tensor;
use megrez_plan::{Op, Plan, ValueId};
use megrez_ring::fixed::integers;
use megrez_ring::{FixedError, Shape};
use std::collections::{HashMap, HashSet};

/// The plan under construction, as layers see it. Each method emits the step that it is named
/// after, under the name `layer/…`, and bounds the result.
pub struct Lowering<'a> {
    pub(crate) plan: Plan,
    pub(super) options: &'a CompileOptions,
    pub(crate) model_inputs: Vec<ModelInput>,
    pub(super) names: HashSet<String>,
    /// Values that have been truncated, and into what.
    pub(super) settled: HashMap<ValueId, Secret>,
    /// Values that are truncated only where a product that reads them has no room for their
    /// fraction bits.
    pub(super) waiting: HashSet<ValueId>,
    /// Those of them that have been truncated to what any operand may have, and into what.
    pub(super) shortened: HashMap<ValueId, Secret>,
    /// Weights that several layers read, by tensor and fraction bits.
    pub(super) shared: HashMap<(*const Tensor, u32), ValueId>,
    /// Tokens: values with one more dimension in the plan than in the graph, and its size.
    pub(super) vocabularies: HashMap<ValueId, usize>,
    /// Of tokens in whose place rows of a table are shared, the table's columns.
    pub(super) embedded: HashMap<ValueId, usize>,
    /// The operands of the current layer.
    pub(crate) operands: Vec<Option<ValueId>>,
    /// The inputs' bounds of values that ReLUs made.
    pub(super) relu_inputs: HashMap<ValueId, Range>,
    /// Values that are sums of others.
    pub(super) sums: HashMap<ValueId, Affine>,
    /// The inputs of the data owner.
    pub(super) data: HashSet<ValueId>,
    /// Of values whose elements are not negative, what each row of the last dimension adds up to at
    /// most.
    pub(super) row_sums: HashMap<ValueId, i128>,
    /// Below which magnitude, as a real number, the current layer's comparisons are right.
    pub(super) compared: Option<f64>,
    /// An operand of the current layer, and what it must lie in although that is not proven.
    pub(super) domain: Option<(usize, Interval)>,
    /// The current layer.
    pub(super) layer: String,
    /// Of the current layer's steps, the bits and the limit of the one with the least room.
    pub(super) tightest: (u32, u32),
    pub(super) proven: bool,
    /// Whether the current layer's range is what data has shown, …
    pub(super) calibrated: bool,
    /// … and whether some range of it was assumed without any.
    pub(super) assumed: bool,
    /// How many times wider than what data has shown a proven range may be before it is given up;
    /// `None` if it never is.
    pub(crate) slack: Option<i128>,
    /// Values that are held to measured bounds, with the ranges that were proven of them.
    pub(super) guards: Vec<(Secret, (i128, i128))>,
    /// Whether the current layer has read secret weights.
    pub(super) reads_weights: bool,
    /// The layers whose ranges were declared.
    pub(super) declared: HashSet<String>,
    /// Whether a step of the current layer had no room, …
    pub(crate) out_of_range: bool,
    /// … and by how many bits.
    pub(crate) shortage: u32,
    /// Fraction bits that the current layer's operands give up, so that its result has room.
    pub(crate) coarser: u32,
    /// After how many rounds of two workers and a dealer values are there.
    pub(super) rounds: HashMap<ValueId, u32>,
    /// Whether the current layer's result may have any number of fraction bits, and truncations
    /// before it are spared.
    pub(crate) spares: bool,
    /// Whether a product reads what follows from the current layer before the weights move.
    pub(crate) goes_on: bool,
    /// What the current layer leaves beside its result, if a later one needs it.
    pub(crate) leaving: Option<Vec<Secret>>,
    /// What an earlier layer has left for the current one.
    pub(crate) given: Vec<Secret>,
}

impl<'a> Lowering<'a> {
    pub(crate) fn new(options: &'a CompileOptions) -> Self {
        Lowering {
            plan: Plan::new(options.ring),
            options,
            model_inputs: vec![],
            names: HashSet::new(),
            settled: HashMap::new(),
            waiting: HashSet::new(),
            shortened: HashMap::new(),
            shared: HashMap::new(),
            vocabularies: HashMap::new(),
            embedded: HashMap::new(),
            operands: vec![],
            relu_inputs: HashMap::new(),
            sums: HashMap::new(),
            data: HashSet::new(),
            row_sums: HashMap::new(),
            compared: None,
            domain: None,
            layer: String::new(),
            tightest: (0, options.ring - 1),
            proven: true,
            calibrated: false,
            assumed: false,
            slack: None,
            guards: vec![],
            reads_weights: false,
            declared: HashSet::new(),
            out_of_range: false,
            shortage: 0,
            coarser: 0,
            rounds: HashMap::new(),
            spares: false,
            goes_on: false,
            leaving: None,
            given: vec![],
        }
    }

    /// Begins a layer: the first part of its steps' names.
    pub(crate) fn enter(&mut self, layer: &str) {
        self.layer = layer.into();
        self.tightest = (0, self.options.ring - 1);
        self.proven = true;
        self.calibrated = false;
        self.assumed = false;
        self.reads_weights = false;
        self.out_of_range = false;
        self.shortage = 0;
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
            calibrated: self.calibrated && !self.proven && !self.assumed,
        }
    }

    /// The output of the current layer with the range that is declared for it, if it has read
    /// secret weights: what the weights prove is held against the declaration, and then forgotten.
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
            if self.options.policy != RangePolicy::Assume {
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
            (self.proven, self.assumed) = (false, true);
        }
        let range = self.admit(&format!("{}/declared", self.layer), range, self.options.ring - 2)?;
        self.declared.insert(self.layer.clone());
        Ok(Secret { range, ..y })
    }

    /// The output of the current layer with the range that data has shown, where what is proven is
    /// wider by more than is worth keeping a proof for.
    pub(crate) fn measured(&mut self, y: Secret) -> Result<Secret, Refusal> {
        let seen = self.options.measured.as_ref().and_then(|measured| measured.interval(&self.layer));
        let (Some(slack), Some(seen)) = (self.slack, seen) else { return Ok(y) };
        let unit = 2f64.powi(self.frac_of(&y) as i32);
        let seen = Range::uniform((seen.low * unit).floor() as i128, (seen.high * unit).ceil() as i128);
        if y.range.magnitude() <= seen.magnitude().saturating_mul(slack) {
            return Ok(y);
        }
        let range = y.range.tighten(&seen);
        if !range.holds_any() {
            return out_of_range(
                "its numbers cannot lie where they were measured",
                "measure this model: `megrez calibrate`",
            );
        }
        (self.proven, self.calibrated) = (false, true);
        if self.options.guard {
            self.guards.push((y.clone(), seen.hull()));
        }
        Ok(Secret { range, ..y })
    }

    /// A layer for which a range is declared that was not looked at.
    pub(crate) fn declared_in_vain(&self) -> Option<&'a str> {
        let names = self.options.declared.iter().flat_map(|declared| declared.layers.keys());
        names.map(String::as_str).find(|&name| !self.declared.contains(name))
    }

    /// The elements of x are not negative, and each row of its last dimension adds up to `total`
    /// words at most.
    pub(crate) fn rows_add_up_to(&mut self, x: &Secret, total: i128) {
        self.row_sums.insert(x.id, total);
    }

    /// Whether a later layer needs what the current one can leave beside its result.
    pub fn leaves(&self) -> bool {
        self.leaving.is_some()
    }

    /// Leaves a value for the later layer whose [`Layer::beside`](crate::layers::Layer::beside)
    /// asks for it.
    pub fn leave(&mut self, x: Secret) {
        self.leaving.iter_mut().for_each(|all| all.push(x.clone()));
    }

    /// What an earlier layer has left for the current one, in its order.
    pub fn given(&self) -> &[Secret] {
        &self.given
    }

    /// f, the fraction bits of weights and of truncated values.
    pub fn frac(&self) -> u32 {
        self.options.frac
    }

    /// The fraction bits of a value.
    pub fn frac_of(&self, x: &Secret) -> u32 {
        self.plan.value(x.id).kind.frac()
    }

    /// ℓ.
    pub fn ring(&self) -> u32 {
        self.options.ring
    }

    /// The dimensions of a value.
    pub fn shape(&self, x: &Secret) -> &Shape {
        &self.plan.value(x.id).shape
    }

    /// What stands for smooth activations.
    pub fn activations(&self) -> Activations {
        self.options.activations
    }

    /// What everybody sees of ensembles of trees.
    pub fn tree_form(&self) -> TreeForm {
        self.options.trees
    }

    /// How pools find the largest value of a window.
    pub fn pool(&self) -> PoolForm {
        self.options.pool
    }

    /// A number of the architecture as a word with `frac` fraction bits.
    pub fn encode(&self, value: f32, frac: u32) -> Result<i64, Refusal> {
        Ok(self.words(&[value], frac)?[0])
    }

    pub(super) fn words(&self, values: &[f32], frac: u32) -> Result<Vec<i64>, Refusal> {
        let words: Result<_, FixedError> = integers(self.options.ring, values, frac).collect();
        words.map_err(|e| Refusal::new(format!("a weight does not fit: {e}"), "").because(Cause::OutOfRange))
    }

    /// The bounds of weights, as words.
    pub(crate) fn bounds(&self, weights: &[f32], frac: u32) -> Result<Range, Refusal> {
        let words = self.words(weights, frac)?;
        Ok(Range::of_words(&words, &[words.len()].into(), &[words.len()].into()))
    }

    /// Appends a step and bounds its result.
    pub(super) fn emit(
        &mut self,
        name: &str,
        op: Op,
        inputs: &[ValueId],
        range: Range,
    ) -> Result<Secret, Refusal> {
        let name = self.unique(name);
        let id = self.step(&name, op, inputs)?;
        let range = self.admit(&name, range, self.options.ring - 1)?;
        Ok(Secret { id, range })
    }

    pub(super) fn step(&mut self, name: &str, op: Op, inputs: &[ValueId]) -> Result<ValueId, Refusal> {
        let rounds = self.rounds_with(&op, inputs);
        let id = self.plan.step(name, op, inputs).map_err(|e| Refusal::new(e.to_string(), ""))?;
        self.rounds.insert(id, rounds);
        Ok(id)
    }

    /// Holds a step to |x| < 2^limit: proves it, refuses, or assumes it.
    pub(super) fn admit(&mut self, step: &str, range: Range, limit: u32) -> Result<Range, Refusal> {
        let magnitude = range.magnitude();
        if magnitude >= 1 << limit {
            if self.options.policy != RangePolicy::Assume {
                return self.no_room(step, magnitude, limit);
            }
            (self.proven, self.assumed) = (false, true);
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

    pub(super) fn no_room<T>(&mut self, step: &str, magnitude: i128, limit: u32) -> Result<T, Refusal> {
        self.out_of_range = true;
        let (ring, frac) = (self.options.ring, self.frac());
        let log2 = (magnitude as f64).log2();
        self.shortage = (i128::BITS - magnitude.leading_zeros()).saturating_sub(limit);
        out_of_range(
            format!(
                "its numbers may outgrow the {ring}-bit ring at {frac} fraction bits: words of step `{step}` may \
                 reach ±2^{log2:.1} and must stay below 2^{limit}"
            ),
            "",
        )
    }

    pub(super) fn unique(&mut self, name: &str) -> String {
        let base = format!("{}/{name}", self.layer);
        let candidates = std::iter::once(base.clone()).chain((2..).map(|i| format!("{base}-{i}")));
        candidates.into_iter().find(|n| self.names.insert(n.clone())).expect("numbers do not end")
    }
}
