//! Comparisons: how many bits each needs, and within which range it is right.

use super::operand::{Above, Secret};
use super::plan::Lowering;
use crate::options::{Comparison, ListStyle};
use crate::problem::{Refusal, out_of_range, refuse};
use crate::range::{Interval, Range, RangePolicy};
use megrez_plan::{
    Fewest, Gives, Lookup, MAX_CONTENDERS, MAX_WINNER_BITS, Op, Relu, ReluForm, SignBit, ValueId, View,
    Winner,
};
use std::collections::HashSet;

impl Lowering<'_> {
    /// The largest of a few values of one shape and scale, element by element, by comparing all
    /// pairs.
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

    /// max(x, 0), whatever the options cut elsewhere.
    pub(crate) fn relu_exactly(&mut self, name: &str, x: &Secret) -> Result<Secret, Refusal> {
        self.not_by_weights()?;
        let range = self.admit(&format!("{}/{name}", self.layer), x.range.clone(), self.options.ring - 1)?;
        let relu = Relu { sign: self.exact_sign(range.magnitude()), form: self.options.relu, truncate: 0 };
        self.emit(name, Op::Relu(relu), &[x.id], range.map(|b| b.max(0)))
    }

    /// The bit [x ≥ 0] as a ReLU of x has it.
    pub fn non_negative(&mut self, name: &str, x: &Secret) -> Result<Secret, Refusal> {
        let (sign, _) = self.comparison(name, x, 0, 1)?;
        self.emit(name, Op::NonNegative(sign), &[x.id], Range::uniform(0, 1))
    }

    /// A function of x by a dealt table, whose values lie in `range`.
    pub(crate) fn look_up(
        &mut self,
        name: &str,
        x: &Secret,
        table: Lookup,
        range: Range,
    ) -> Result<Secret, Refusal> {
        self.emit(name, Op::Lookup(table), &[x.id], range)
    }

    /// max(x − border, 0) for public borders, words at the scale of x: one comparison with them
    /// all, one selection.
    pub fn above(&mut self, name: &str, x: &Secret, borders: &[i64]) -> Result<Above, Refusal> {
        let (bits, wrong) = self.at_least(name, x, borders)?;
        let differences = borders
            .iter()
            .map(|&border| self.combine("difference", &[(1, x)], -border))
            .collect::<Result<Vec<_>, _>>()?;
        let stacked = self.stack("differences", &differences.iter().collect::<Vec<_>>())?;
        let range = stacked.range.map(|b| b.max(-wrong));
        let selected = self.emit("select", Op::SELECT, &[bits.id, stacked.id], range)?;
        let shape = self.shape(x).clone();
        let mut parts = self.unstack("part", &selected, &shape)?;
        for (part, difference) in parts.iter_mut().zip(&differences) {
            *part = part.clone().within(difference.range.map(|b| b.max(-wrong)));
        }
        Ok(Above { parts, bits, wrong })
    }

    /// How many low bits of a value a look-up looks at that takes the place of a comparison: those
    /// which that is right for. And whether they hold all of its range, or what data has shown of
    /// it.
    pub(crate) fn bits_looked_at(&self, x: &Secret, moved: i128) -> (u32, bool) {
        let (sign, measured) = self.sign_for(x, moved, 1);
        let bits = sign.cut + sign.width(self.options.ring);
        (bits, measured || x.range.magnitude() < 1 << (bits - 1))
    }

    /// The bits [x ≥ border] of public borders, words at the scale of x, along a new first
    /// dimension; and by how many words x may be below a border that it counts as having reached.
    pub(crate) fn at_least(
        &mut self,
        name: &str,
        x: &Secret,
        borders: &[i64],
    ) -> Result<(Secret, i128), Refusal> {
        let ranges: Vec<Range> = borders.iter().map(|&b| Range::combine(&[(1, &x.range)], -b)).collect();
        let range = Range::hull_of(&ranges.iter().collect::<Vec<_>>());
        let moved = borders.iter().map(|b| i128::from(b.abs())).max().unwrap_or(0);
        let (sign, _) = self.comparison(name, &Secret { id: x.id, range }, moved, 1)?;
        let wrong = (1 << sign.cut) - 1;
        let op = Op::CompareMany { sign, thresholds: borders.to_vec() };
        Ok((self.emit(name, op, &[x.id], Range::uniform(0, 1))?, wrong))
    }

    /// The bits [x ≥ t] of ascending public thresholds, words at the scale of x, along a new first
    /// dimension. The comparison is exact, whatever the options cut elsewhere: a wrong bit would be
    /// off by a whole interval.
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

    /// The bits [x ≥ 0], exactly, of |x| ≤ `most`. If that bound is `public`, no more bits are
    /// compared than it needs.
    pub(crate) fn reached(
        &mut self,
        name: &str,
        x: &Secret,
        most: i128,
        public: bool,
    ) -> Result<Secret, Refusal> {
        let range = Range::uniform(-most, most);
        self.admit(&format!("{}/{name}", self.layer), range, self.options.ring - 1)?;
        let sign = if public { self.known_sign(most) } else { self.exact_sign(most) };
        let op = Op::CompareMany { sign, thresholds: vec![0] };
        let bits = self.emit(name, op, &[x.id], Range::uniform(0, 1))?;
        let shape = self.shape(x).clone();
        self.view("bits", &bits, View::whole(shape))
    }

    /// The exclusive or over the middle dimension, a power of two, of bits that lie as `shape`
    /// says. Local.
    pub(crate) fn parity(&mut self, name: &str, bits: &Secret, shape: [usize; 3]) -> Result<Secret, Refusal> {
        let [outer, mut left, inner] = shape;
        let mut x = self.view(name, bits, View::whole(shape.into()))?;
        while left > 1 {
            let (from, half) = ([outer, left, inner].into(), left / 2);
            let a = self.view(name, &x, View::slice(&from, 1, 0, 1, half))?;
            let b = self.view(name, &x, View::slice(&from, 1, half, 1, half))?;
            x = self.emit(name, Op::Xor, &[a.id, b.id], Range::uniform(0, 1))?;
            left = half;
        }
        Ok(x)
    }

    /// The comparison of values whose magnitude everybody knows: of no more bits than that has.
    fn known_sign(&self, magnitude: i128) -> SignBit {
        let width = (i128::BITS - magnitude.leading_zeros() + 1).clamp(2, self.options.ring);
        let style = match &self.options.comparison {
            Comparison::Fixed(sign) => ListStyle::from(&sign.list),
            Comparison::Fitted { list: ListStyle::Digits(_), .. } => ListStyle::Digits(Fewest::Total),
            Comparison::Fitted { list, .. } => *list,
        };
        let list = style.of(width);
        SignBit { list, cut: 0, bits: Some(width) }
    }

    /// Whether the range of a value follows from no weights: it is data as its owner gives it, or
    /// elements of it, or all ranges are declared.
    pub(crate) fn is_public(&self, x: &Secret) -> bool {
        if self.options.declared.is_some() {
            return true;
        }
        let (mut open, mut seen) = (vec![x.id], HashSet::new());
        while let Some(id) = open.pop() {
            if self.data.contains(&id) || !seen.insert(id) {
                continue;
            }
            match self.plan.steps.iter().rev().find(|step| step.output == id) {
                Some(step) if matches!(step.op, Op::View(_) | Op::Gather { .. } | Op::Concat { .. }) => {
                    open.extend(&step.inputs);
                }
                _ => return false,
            }
        }
        true
    }

    /// The comparison of values of this magnitude that cuts no bits.
    pub(super) fn exact_sign(&self, magnitude: i128) -> SignBit {
        let ring = self.options.ring;
        let (width, list) = match &self.options.comparison {
            Comparison::Fixed(sign) => (ring, ListStyle::from(&sign.list).of(ring)),
            Comparison::Fitted { list, .. } => {
                let width = (i128::BITS - magnitude.leading_zeros() + 1).clamp(2, ring);
                (width, list.of(width))
            }
        };
        SignBit { list, cut: 0, bits: Some(width) }
    }

    /// bit · x; `bits` came from a comparison and has the shape of x.
    pub fn select(&mut self, name: &str, bits: &Secret, x: &Secret) -> Result<Secret, Refusal> {
        self.emit(name, Op::SELECT, &[bits.id, x.id], x.range.merged().with_zero())
    }

    /// Whether values that bits choose are added up before they are shared again.
    pub(crate) fn adds_what_it_selects(&self) -> bool {
        self.options.selects_truncated
    }

    /// Of each group of neighbours along the first dimension the sum of the values that their bits
    /// choose, which is known to lie in `range`; of a protocol that
    /// [adds what it selects](Self::adds_what_it_selects).
    pub(crate) fn select_sum(
        &mut self,
        name: &str,
        bits: &Secret,
        x: &Secret,
        groups: &[usize],
        range: Range,
    ) -> Result<Secret, Refusal> {
        self.emit(name, Op::SelectSum { groups: groups.to_vec() }, &[bits.id, x.id], range)
    }

    /// Which bits of a are ones that b chooses, and which ones that it does not: [a ∧ ¬b, a ∧ b].
    /// Without a, all are.
    pub(crate) fn split(
        &mut self,
        [without, with]: [&str; 2],
        a: Option<&Secret>,
        b: &Secret,
    ) -> Result<[Secret; 2], Refusal> {
        let bit = Range::uniform(0, 1);
        let Some(a) = a else { return Ok([self.emit(without, Op::Not, &[b.id], bit)?, b.clone()]) };
        let both = self.emit(with, Op::And, &[a.id, b.id], bit.clone())?;
        Ok([self.emit(without, Op::Xor, &[a.id, both.id], bit)?, both])
    }

    /// Bits as the numbers 0 and 1, without fraction bits.
    pub fn bit_to_ring(&mut self, name: &str, bits: &Secret) -> Result<Secret, Refusal> {
        self.emit(name, Op::BitToRing, &[bits.id], Range::uniform(0, 1))
    }

    /// By how many words the results of the ReLU, comparison or maximum that was emitted last may
    /// be wrong.
    pub fn last_cut(&self) -> i128 {
        match self.plan.steps.last().map(|s| &s.op) {
            Some(Op::Relu(Relu { sign, .. }) | Op::NonNegative(sign)) => (1 << sign.cut) - 1,
            // Each of its values is cut by itself.
            Some(Op::Maximum(sign)) => (2 << sign.cut) - 2,
            _ => 0,
        }
    }

    /// Whether a ReLU takes one round.
    pub(crate) fn relu_takes_a_round(&self) -> bool {
        self.options.relu == ReluForm::Key
    }

    /// Whether all ranges are proven, or the plan is refused.
    pub(crate) fn proves(&self) -> bool {
        self.options.policy == RangePolicy::Prove
    }

    /// Whether a table of an activation may begin and end where its range does.
    pub(crate) fn tells(&self) -> bool {
        self.options.tells()
    }

    /// Whether comparisons, and so everybody, follow what was measured of each layer.
    pub(crate) fn tells_measured(&self) -> bool {
        self.options.tells_measured()
    }

    /// Of every row of x [rows, n] a number that is no larger than its largest and no more than
    /// `most` words smaller, as [rows, 1], by counting who wins against all others: two rounds.
    /// `None` where rows are too long for that, their numbers too far apart, or the plan may not
    /// tell how far.
    pub(crate) fn near_largest(
        &mut self,
        name: &str,
        x: &Secret,
        most: i128,
    ) -> Result<Option<Secret>, Refusal> {
        let &[rows, n] = self.shape(x).dims() else { return Ok(None) };
        let range = x.range.merged();
        let (low, high) = range.hull();
        let cut = most.max(4).ilog2() - 1;
        let right = |bits: &u32| (1i128 << (cut + bits - 1)) - (2i128 << cut);
        let bits = (3..=MAX_WINNER_BITS).find(|bits| right(bits) >= high.saturating_sub(low));
        let Some(bits) = bits.filter(|bits| cut + bits <= self.options.ring) else { return Ok(None) };
        if !(2..=MAX_CONTENDERS).contains(&n) || !(self.tells() || self.tells_measured()) {
            return Ok(None);
        }
        self.not_by_weights()?;
        let columns =
            self.view(&format!("{name}-columns"), x, View::transpose(&[rows, n].into(), &[1, 0]))?;
        let winner = Winner { cut, bits, gives: Gives::Value };
        let y = self.emit(name, Op::Winner(winner), &[columns.id], range)?;
        let half = right(&bits) as f64 / 2.0 * 2f64.powi(-(self.frac_of(x) as i32));
        self.compared = Some(self.compared.map_or(half, |other| other.min(half)));
        self.view(&format!("{name}-column"), &y, View::whole([rows, 1].into())).map(Some)
    }

    /// Refuses to choose a comparison by a range that secret weights of the same layer have made.
    pub(crate) fn not_by_weights(&self) -> Result<(), Refusal> {
        if self.reads_weights && self.options.declared.is_some() {
            return refuse(
                "compares what its own weights have made, so that the comparison would follow from them",
                "split it into a layer that computes with the weights and one that compares, or declare no ranges",
            );
        }
        Ok(())
    }

    /// The current layer is right only where x lies in `domain`. Proves it, or refuses, or assumes
    /// it; where x is an operand of the layer, `megrez check` then counts what lies outside.
    pub fn holds_within(&mut self, x: &Secret, domain: Interval, why: &str) -> Result<(), Refusal> {
        let unit = 2f64.powi(-(self.frac_of(x) as i32));
        let (low, high) = x.range.hull();
        if low as f64 * unit >= domain.low && high as f64 * unit <= domain.high {
            return Ok(());
        }
        if self.options.policy != RangePolicy::Assume {
            let (low, high) = (low as f64 * unit, high as f64 * unit);
            return out_of_range(
                format!("{why}: its numbers may lie between {low:.3e} and {high:.3e}"),
                "declare a smaller input range, or assume the ranges and let `megrez check` look at your data",
            );
        }
        (self.proven, self.assumed) = (false, true);
        let operand = self.operands.iter().position(|&id| id == Some(x.id));
        self.domain = operand.map(|operand| (operand, domain));
        Ok(())
    }

    /// How to compare a value that is an activation's input moved by up to `moved` words, and whose
    /// low bits are cut `cuts` times before it is compared: the comparison, and the range in which
    /// it is right.
    pub(crate) fn comparison(
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
            (self.proven, self.calibrated) = (false, true);
            self.admit(&step, x.range.clone(), ring - 1)?.clamped(1 << limit)
        } else {
            self.admit(&step, x.range.clone(), limit)?
        };
        Ok((sign, range))
    }

    /// Whether values of so many fraction bits can be compared as was asked for.
    pub(crate) fn compares(&self, frac: u32) -> bool {
        match &self.options.comparison {
            Comparison::Fixed(sign) => {
                let beyond = frac.saturating_sub(self.frac());
                sign.bits.is_none_or(|bits| sign.cut + beyond + bits <= self.options.ring)
            }
            Comparison::Fitted { .. } => true,
        }
    }

    /// The comparison for a value, and whether it relies on measured magnitudes.
    pub(super) fn sign_for(&self, x: &Secret, moved: i128, cuts: i128) -> (SignBit, bool) {
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
            // A guarded plan relies on no magnitude that it does not look at.
            .filter(|_| !self.options.guard)
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
        let list = list.of(width);
        (SignBit { list, cut, bits: Some(width) }, magnitude < proven)
    }

    /// An operand of the current layer, and what it must lie in although that is not proven.
    pub(crate) fn domain(&self) -> Option<(usize, Interval)> {
        self.domain
    }

    /// Below which magnitude the current layer's comparisons are right.
    pub(crate) fn compared(&self) -> Option<f64> {
        self.compared
    }
}
