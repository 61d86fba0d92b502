//! Truncations that are spared: a product takes operands with the fraction bits that they have.
//!
//! Nothing but the ring limits how many fraction bits a product's operands have: the next step that
//! reads it, a table or a truncation, drops them all at once. So an operand waits for a truncation
//! only where the result would not fit, and where it does, the operand that has been there longest
//! is truncated first: while others are computed, that takes no round. Which of them are truncated
//! follows from ranges and from weights, and stands in the plan: this is for plans that may show it
//! ([`crate::CompileOptions::shows_ranges`]).
//!
//! [`crate::passes::truncation`] says where results may have such bits.

use super::inputs::SPARE_BITS;
use super::operand::{Operand, Secret};
use super::plan::Lowering;
use crate::layer::Layer;
use crate::problem::Refusal;
use megrez_plan::{Kind, List, Op, Plan, ReluForm, ValueId};
use std::collections::HashMap;

/// Bits of the ring that the result of such a product leaves: what reads it moves it.
const FREE: u32 = 4;

/// Rounds of a step of two workers and a dealer, where nothing about its operands is public.
fn rounds(op: &Op) -> u32 {
    match op {
        Op::Relu(relu) if relu.form == ReluForm::Key => 1,
        Op::Relu(relu)
            if relu.form == ReluForm::DigitTables && relu.sign.bits.is_some_and(|bits| bits <= 28) =>
        {
            2
        }
        Op::Mul
        | Op::MulTruncated { .. }
        | Op::MatMul
        | Op::Conv(_)
        | Op::Truncate { .. }
        | Op::Lookup(_)
        | Op::Select { .. }
        | Op::Reshare
        | Op::And
        | Op::BitMatMul
        | Op::BitPolynomials { .. }
        | Op::BitToRing => 1,
        Op::NonNegative(sign) | Op::CompareMany { sign, .. }
            if sign.list == List::Tree && sign.bits.is_none_or(|bits| bits > 17) =>
        {
            3
        }
        Op::NonNegative(_) | Op::CompareMany { .. } | Op::Winner(_) => 2,
        Op::Relu(_) | Op::Maximum(_) => 3,
        _ => 0,
    }
}

/// After how many rounds the result of a step is there, when its inputs are.
fn rounds_with(plan: &Plan, of: &HashMap<ValueId, u32>, op: &Op, inputs: &[ValueId]) -> u32 {
    let public = |&id: &ValueId| matches!(plan.value(id).kind, Kind::Public { .. });
    let own = if inputs.iter().any(public) { 0 } else { rounds(op) };
    own + inputs.iter().filter_map(|id| of.get(id).copied()).max().unwrap_or(0)
}

/// After how many rounds of two workers and a dealer the last output of a plan is there.
pub(crate) fn rounds_of(plan: &Plan) -> u32 {
    let mut of = HashMap::new();
    for step in &plan.steps {
        of.insert(step.output, rounds_with(plan, &of, &step.op, &step.inputs));
    }
    plan.outputs.iter().filter_map(|output| of.get(&output.value).copied()).max().unwrap_or(0)
}

impl Lowering<'_> {
    /// Whether no value leaves its range, and a table may begin and end there.
    pub(crate) fn holds_ranges(&self) -> bool {
        self.options.holds_ranges()
    }

    /// How long a message is on its way, in nanoseconds.
    pub(crate) fn delay_ns(&self) -> u64 {
        self.options.delay_ns
    }

    /// How long a MiB takes on a link, in nanoseconds.
    pub(crate) fn mib_ns(&self) -> u64 {
        self.options.mib_ns
    }

    /// Whether what is dealt comes online: parties are equal, and have no time before.
    pub(crate) fn deals_online(&self) -> bool {
        self.options.replicated || self.options.defer_resharing
    }

    /// How many fraction bits more a table of the current layer may leave in its result, which need
    /// not be truncated then.
    pub(crate) fn spare_of_tables(&self) -> u32 {
        if self.spares { SPARE_BITS } else { 0 }
    }

    /// From now on a value is truncated only where a product that reads it has no room for its
    /// fraction bits, so that it takes no round before those that do.
    pub(crate) fn waits(&mut self, x: &Secret) {
        self.waiting.insert(x.id);
    }

    /// After how many rounds the result of a step is there.
    pub(super) fn rounds_with(&self, op: &Op, inputs: &[ValueId]) -> u32 {
        rounds_with(&self.plan, &self.rounds, op, inputs)
    }

    /// After how many rounds a value is there.
    pub(crate) fn rounds_of(&self, id: ValueId) -> u32 {
        self.rounds.get(&id).copied().unwrap_or(0)
    }

    /// A value that is truncated before a product: one that waits keeps what any operand may have.
    pub(super) fn shorter(&mut self, x: &Secret) -> Result<Secret, Refusal> {
        if !self.waiting.contains(&x.id) || self.frac_of(x) <= self.frac() + SPARE_BITS {
            return self.settle(x);
        }
        if let Some(done) = self.shortened.get(&x.id) {
            return Ok(done.clone());
        }
        let y = self.rounded("short", x, self.frac() + SPARE_BITS)?;
        self.shortened.insert(x.id, y.clone());
        Ok(y)
    }

    /// The operands of a layer that multiplies and adds, of which those are truncated that have to
    /// be.
    pub(super) fn spared(
        &mut self,
        mut operands: Vec<Operand>,
        layer: &dyn Layer,
    ) -> Result<Vec<Operand>, Refusal> {
        loop {
            let secrets: Vec<(usize, Secret)> = operands
                .iter()
                .enumerate()
                .filter_map(|(i, operand)| Some((i, operand.secret().ok()?.clone())))
                .collect();
            let constant = operands.iter().enumerate().take(2);
            let constant = constant.filter_map(|(i, operand)| Some((i, &**operand.constant().ok()?))).next();
            let gain = layer.gain(constant).unwrap_or(f64::INFINITY);
            let scale = if constant.is_some() { 2f64.powi(self.frac() as i32) } else { 1.0 };
            // Rows that add up to no more than this make no more of a column than so many times its
            // largest number.
            let total = secrets.iter().find(|(i, _)| *i == 0).and_then(|(_, x)| self.row_sums.get(&x.id));
            let (gain, of_rows) = match total {
                Some(&total) if layer.sums_rows() && secrets.len() == 2 => (1.0, Some(total as f64)),
                _ => (gain, None),
            };
            let size = |(i, x): &(usize, Secret)| match of_rows {
                Some(total) if *i == 0 => total,
                _ => x.range.magnitude() as f64,
            };
            let size = secrets.iter().map(size).product::<f64>();
            let fits = gain * scale * size < 2f64.powi((self.ring() - FREE) as i32);
            // A sum that is added to the product is no factor of it.
            let only_factors = secrets.len() + usize::from(constant.is_some()) == 2;
            let longest = secrets
                .into_iter()
                .filter(|(_, x)| self.frac_of(x) > self.frac())
                .min_by_key(|(_, x)| self.rounds_of(x.id));
            let Some((i, x)) = longest else { return Ok(operands) };
            let others = operands.iter().enumerate().filter(|&(other, _)| other != i);
            let others = others.filter_map(|(_, operand)| Some(self.rounds_of(operand.secret().ok()?.id)));
            let waits = others.max().is_some_and(|others| others > self.rounds_of(x.id));
            if fits && only_factors && !waits {
                return Ok(operands);
            }
            operands[i] = Operand::Secret(self.shorter(&x)?);
        }
    }
}
