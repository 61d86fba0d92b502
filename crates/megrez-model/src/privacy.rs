//! What the weights that a plan trains may tell of one row, read from the plan itself: whoever is
//! to approve a step needs no word of the client for it.
//!
//! A *release* is a sum over the rows of a batch with noise that is used nowhere else. A plan has a
//! [`Guarantee`] if everything that it gives but the losses depends on rows through releases alone,
//! and if the rows' summands, over all releases together, have a norm that the steps of the plan
//! bound for whatever words they are given. What does not look exactly like the steps of
//! `megrez_graph`'s private layers has no guarantee, whatever it may compute.
//!
//! Proof: `docs/security/privacy.md`, whose numbers stand beside the code here.

use crate::rows::Depends;
use megrez_graph::DataInput;
use megrez_plan::{Kind, Op, Plan, Relu, SignBit, Step, Value, ValueId, View};
use std::collections::{HashMap, HashSet};

/// What one row can do to what a plan releases, in the units of a sum of gradients.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Guarantee {
    /// The largest norm of what a row adds.
    pub clip: f64,
    /// The smallest standard deviation of the noise that each of two parties adds.
    pub deviation: f64,
}

impl Guarantee {
    /// ρ of zero-concentrated differential privacy, for each time that a row is in a batch: of data
    /// that differ in one row, another in its place. Infinite without noise.
    pub fn rho(&self) -> f64 {
        (2.0 * self.clip / self.deviation).powi(2) / 2.0
    }
}

/// Why there is none.
type No<T> = Result<T, String>;

fn no<T>(what: impl Into<String>) -> No<T> {
    Err(what.into())
}

/// The guarantee of a plan of one step, of which `data` are the rows and `losses` the names of
/// state that is not covered.
///
/// # Errors
/// In words, what keeps it from having one.
pub fn guarantee(plan: &Plan, data: &[DataInput], losses: &[&str]) -> Result<Guarantee, String> {
    let reader = Reader::new(plan, data)?;
    let rows: HashSet<ValueId> = reader.rows.keys().copied().collect();
    let uncovered = plan.inputs.iter().filter(|input| losses.contains(&input.name.as_str()));
    let mut touched: HashSet<ValueId> = rows.into_iter().chain(uncovered.map(|input| input.value)).collect();
    let mut releases = vec![];
    for step in &plan.steps {
        if !step.inputs.iter().any(|id| touched.contains(id)) {
            continue;
        }
        match reader.release(step, &touched) {
            Some(release) => releases.push(release),
            None => {
                touched.insert(step.output);
            }
        }
    }
    for output in &plan.outputs {
        if touched.contains(&output.value) && !losses.contains(&output.name.as_str()) {
            return no(format!("`{}` depends on rows, and there is no noise in it", output.name));
        }
    }
    // All rows' summands are scaled by one factor, from the norm of exactly these summands.
    let Some(first) = releases.first() else { return no("it releases nothing that depends on rows") };
    let mut summands = vec![];
    for release in &releases {
        let of = reader.summand(release.sum).map_err(|what| format!("step `{}`: {what}", release.name))?;
        summands.push(of);
    }
    let factor = summands[0].factor;
    if summands.iter().any(|summand| summand.factor != factor) {
        return no("rows are scaled by several factors");
    }
    let clip = reader.clip(factor, summands.iter().map(|summand| summand.pair).collect())?;
    let vectors = summands.iter().flat_map(|s| s.pair.0.into_iter().chain([s.pair.1, s.scaled]));
    reader.by_row(&vectors.collect::<Vec<_>>())?;
    let deviation = releases.iter().map(|release| release.deviation);
    Ok(Guarantee { clip, deviation: deviation.fold(first.deviation, f64::min) })
}

/// A sum, and the noise that is added to it.
struct Release<'a> {
    name: &'a str,
    sum: ValueId,
    deviation: f64,
}

/// The vectors whose product, or of which the one, a row adds to a sum.
type Pair = (Option<ValueId>, ValueId);

struct Summand {
    pair: Pair,
    /// The second vector, scaled.
    scaled: ValueId,
    factor: ValueId,
}

struct Reader<'a> {
    plan: &'a Plan,
    data: &'a [DataInput],
    made: HashMap<ValueId, &'a Step>,
    /// How often each value is read.
    read: HashMap<ValueId, usize>,
    /// Inputs of rows.
    rows: HashMap<ValueId, &'a DataInput>,
    batch: usize,
}

impl<'a> Reader<'a> {
    fn new(plan: &'a Plan, data: &'a [DataInput]) -> No<Self> {
        if plan.ring != 64 {
            return no("its ring has not 64 bits");
        }
        let of = |name: &str| data.iter().find(|input| input.name == name);
        let rows: HashMap<ValueId, &DataInput> =
            plan.inputs.iter().filter_map(|input| Some((input.value, of(&input.name)?))).collect();
        let Some(&batch) = data.first().and_then(|input| input.shape.dims().first()) else {
            return no("it takes no rows");
        };
        if data.iter().any(|input| input.shape.dims().first() != Some(&batch)) {
            return no("its data has several numbers of rows");
        }
        let mut read: HashMap<ValueId, usize> = HashMap::new();
        let values = plan.steps.iter().flat_map(|step| &step.inputs);
        values.chain(plan.outputs.iter().map(|o| &o.value)).for_each(|&id| *read.entry(id).or_default() += 1);
        let made = plan.steps.iter().map(|step| (step.output, step)).collect();
        Ok(Reader { plan, data, made, read, rows, batch })
    }

    fn value(&self, id: ValueId) -> &'a Value {
        self.plan.value(id)
    }

    fn frac(&self, id: ValueId) -> u32 {
        match self.value(id).kind {
            Kind::Ring { frac } | Kind::Public { frac } | Kind::Additive { frac } => frac,
            Kind::Bit => 0,
        }
    }

    /// The operation that makes a value, and on what; what is inside of one that says only where,
    /// and what a sum is of that is shared.
    fn made(&self, id: ValueId) -> Option<(&'a Op, &'a [ValueId])> {
        let mut step = self.made.get(&id)?;
        while step.op == Op::Reshare {
            step = self.made.get(&step.inputs[0])?;
        }
        let op = match &step.op {
            Op::Additive(op) | Op::Offloaded(op) => op,
            op => op,
        };
        Some((op, &step.inputs))
    }

    /// x of `coefficient` · x + `constant`.
    fn affine(&self, id: ValueId, coefficient: i64) -> Option<(ValueId, i64)> {
        match self.made(id)? {
            (Op::Combine { coefficients, constant }, &[x]) if coefficients[..] == [coefficient] => {
                Some((x, *constant))
            }
            _ => None,
        }
    }

    /// A sum of two, one of which is noise that nothing else reads.
    fn release(&self, step: &'a Step, touched: &HashSet<ValueId>) -> Option<Release<'a>> {
        let (Op::Combine { coefficients, constant: 0 }, &[a, b]) = (&step.op, &step.inputs[..]) else {
            return None;
        };
        let of = |sum: ValueId, noise: ValueId| match self.made(noise)? {
            (&Op::Noise { deviation, frac, .. }, _) if deviation > 0 && self.read.get(&noise) == Some(&1) => {
                let deviation = deviation as f64 * 2f64.powi(-(frac as i32));
                touched.contains(&sum).then_some(Release { name: &step.name, sum, deviation })
            }
            _ => None,
        };
        if coefficients[..] != [1, 1] { None } else { of(a, b).or_else(|| of(b, a)) }
    }

    /// What rows add to a sum.
    fn summand(&self, mut sum: ValueId) -> No<Summand> {
        // The same elements under another shape.
        while let Some((Op::View(view), &[x])) = self.made(sum) {
            if !view.is_contiguous() || view.shape.elements() != self.value(x).shape.elements() {
                return no("its sum is rearranged");
            }
            sum = x;
        }
        match self.made(sum) {
            Some((Op::Sum { axis: 0 }, &[scaled])) => {
                let (factor, vector) = self.scaled(scaled)?;
                Ok(Summand { pair: (None, vector), scaled, factor })
            }
            Some((Op::MatMul, &[turned, right])) => {
                let Some((Op::View(view), &[left])) = self.made(turned) else {
                    return no("multiplies what is no vector of each row");
                };
                let shape = &self.value(left).shape;
                if shape.rank() != 2 || *view != View::transpose(shape, &[1, 0]) {
                    return no("multiplies what is no vector of each row");
                }
                let (held, scaled) = match (self.scaled(left), self.scaled(right)) {
                    (Err(_), Ok(found)) => (left, (found, right)),
                    (Ok(found), Err(_)) => (right, (found, left)),
                    _ => return no("not one of the two vectors of a row is scaled"),
                };
                let ((factor, vector), scaled) = scaled;
                Ok(Summand { pair: (Some(held), vector), scaled, factor })
            }
            _ => no("adds up what is no vector of each row"),
        }
    }

    /// The factor and the vector of a product with the first along all columns.
    fn scaled(&self, id: ValueId) -> No<(ValueId, ValueId)> {
        let Some((Op::Mul, &[factors, vector])) = self.made(id) else { return no("is not scaled") };
        let shape = &self.value(vector).shape;
        if shape.rank() != 2 || shape.dims()[0] != self.batch {
            return no("is no vector of each row");
        }
        let one = [self.batch, 1].into();
        if self.value(factors).shape == one && shape.dims()[1] == 1 {
            return Ok((factors, vector));
        }
        match self.made(factors) {
            Some((Op::View(view), &[factor]))
                if self.value(factor).shape == one && View::broadcast(&one, shape).as_ref() == Some(view) =>
            {
                Ok((factor, vector))
            }
            _ => no("is scaled by more than one factor a row"),
        }
    }

    /// What the words of a vector are held within: by two comparisons of all bits, or because it is
    /// data, by the word of its owner.
    fn bound(&self, id: ValueId) -> No<i128> {
        if let Some(bound) = self.held(id) {
            return Ok(bound.into());
        }
        let mut from = id;
        while let Some((Op::View(_), &[x])) = self.made(from) {
            from = x;
        }
        match self.rows.get(&from) {
            Some(input) if input.tokens.is_none() => {
                let most = input.range.low.abs().max(input.range.high.abs());
                Ok((most * 2f64.powi(self.frac(id) as i32)).ceil() as i128)
            }
            _ => no("a vector is neither data nor held within bounds"),
        }
    }

    /// bound − max(2·bound − max(x + bound, 0), 0).
    fn held(&self, id: ValueId) -> Option<i64> {
        let relu = |id: ValueId| match self.made(id)? {
            (Op::Relu(Relu { sign, truncate: 0, .. }), &[x]) if self.exact(sign, self.plan.ring) => Some(x),
            // By a tree of digits it is a comparison and a selection.
            (Op::Select { truncate: 0 }, &[bit, x]) => match self.made(bit)? {
                (Op::NonNegative(sign), &[y]) if x == y && self.exact(sign, self.plan.ring) => Some(x),
                _ => None,
            },
            _ => None,
        };
        let (y, bound) = self.affine(id, -1)?;
        let (y, twice) = self.affine(relu(y)?, -1)?;
        let (_, low) = self.affine(relu(y)?, 1)?;
        (bound > 0 && bound < 1 << 40 && twice == 2 * bound && low == bound).then_some(bound)
    }

    /// Whether a comparison is right for all numbers of `bits` bits with their sign.
    fn exact(&self, sign: &SignBit, bits: u32) -> bool {
        sign.cut == 0 && sign.width(self.plan.ring) >= bits
    }

    /// The largest norm of the summands of `pairs` together, each of which the factor's square has
    /// to have counted.
    fn clip(&self, factor: ValueId, mut pairs: Vec<Pair>) -> No<f64> {
        let steps = || -> Option<_> {
            let (Op::Rescale { frac }, &[whole]) = self.made(factor)? else { return None };
            let (Op::Combine { coefficients, constant }, bits) = self.made(whole)? else { return None };
            let mut all = None;
            for (k, &bit) in bits.iter().enumerate() {
                let (Op::View(view), &[numbers]) = self.made(bit)? else { return None };
                let of = View { offset: k * self.batch, ..View::whole([self.batch, 1].into()) };
                if *view != of || *all.get_or_insert(numbers) != numbers {
                    return None;
                }
            }
            let (Op::BitToRing, &[reached]) = self.made(all?)? else { return None };
            let (Op::CompareMany { sign, thresholds }, &[square]) = self.made(reached)? else { return None };
            (thresholds.len() == bits.len()).then_some((
                *frac,
                coefficients,
                *constant,
                sign,
                thresholds,
                square,
            ))
        };
        let Some((frac, drops, whole, sign, thresholds, square)) = steps() else {
            return no("the factor of rows is no step function of their norms");
        };
        let most = self.square(square, &mut pairs)?;
        if !pairs.is_empty() {
            return no("a row adds more than its norm counts");
        }
        let ascending = thresholds.windows(2).all(|pair| pair[0] < pair[1]);
        let last = thresholds.last().copied().unwrap_or(0);
        let bits = i128::BITS - most.max(last.into()).leading_zeros() + 1;
        if !ascending || thresholds.first().is_none_or(|&first| first < 1) || !self.exact(sign, bits) {
            return no("the comparisons of norms are not exact");
        }
        // Below each threshold, and from the last on.
        let mut largest = 0f64;
        let (mut now, mut end) = (i128::from(whole), thresholds.iter().map(|&t| i128::from(t) - 1));
        for drop in drops.iter().map(|&drop| Some(drop)).chain([None]) {
            let reach = match drop {
                Some(_) => end.next().unwrap_or(most).min(most),
                None => most,
            };
            if !(0..=1 << 40).contains(&now) {
                return no("the factor of rows is not between 0 and 1");
            }
            largest = largest.max(now as f64 * (reach as f64).sqrt());
            now += i128::from(drop.unwrap_or(0));
        }
        let unit = 2f64.powi(-(frac as i32)) * 2f64.powf(-0.5 * f64::from(self.frac(square)));
        // Roundings of floating point, upwards.
        Ok(largest * unit * (1.0 + 1e-9))
    }

    /// The largest that Σ ‖left‖²·‖right‖² of rows can be, in words; takes the pairs that it counts
    /// out of `pairs`.
    fn square(&self, id: ValueId, pairs: &mut Vec<Pair>) -> No<i128> {
        let Some((Op::Combine { coefficients, constant: 0 }, terms)) = self.made(id) else {
            return no("the square of a row's norm is no sum");
        };
        if coefficients.iter().any(|&c| c != 1) {
            return no("a square counts less than once");
        }
        let mut total = 0i128;
        for &term in terms {
            let (pair, most) = match self.made(term) {
                Some((Op::Mul, &[a, b])) => {
                    let ((a, most_a), (b, most_b)) = (self.norm(a)?, self.norm(b)?);
                    ((Some(a), b), most_a.saturating_mul(most_b))
                }
                Some((Op::Rescale { frac }, &[scaled])) => {
                    let Some((Op::Combine { coefficients, constant: 0 }, &[x])) = self.made(scaled) else {
                        return no("a norm is scaled otherwise than up");
                    };
                    let (vector, most) = self.norm(x)?;
                    let up = *frac - self.frac(x).min(*frac);
                    if up >= 62 || coefficients[..] != [1 << up] {
                        return no("a norm is scaled otherwise than up");
                    }
                    ((None, vector), most << up)
                }
                _ => {
                    let (vector, most) = self.norm(term)?;
                    ((None, vector), most)
                }
            };
            total = total.saturating_add(most);
            // Either may be the one that is scaled.
            let same = |other: &Pair| {
                *other == pair || (pair.0.is_some() && *other == (Some(pair.1), pair.0.unwrap_or(pair.1)))
            };
            if let Some(place) = pairs.iter().position(same) {
                pairs.swap_remove(place);
            }
        }
        if total >= 1 << 62 {
            return no("the square of a row's norm may outgrow the ring");
        }
        Ok(total)
    }

    /// The vector whose squared norm a value is at least, and the most that it can be, in words.
    fn norm(&self, id: ValueId) -> No<(ValueId, i128)> {
        // At least one word more than what a truncation gives, which is at most one too low.
        let Some((mut sum, more)) = self.affine(id, 1).filter(|(_, more)| (1..1 << 20).contains(more)) else {
            return no("a norm is not rounded up");
        };
        let mut dropped = 0;
        if let Some((Op::Truncate { bits }, &[x])) = self.made(sum) {
            (sum, dropped) = (x, *bits);
        }
        if let Some((Op::Sum { axis: 1 }, &[x])) = self.made(sum) {
            sum = x;
        } else if self.value(sum).shape.dims() != [self.batch, 1] {
            return no("a norm is not a sum over a row");
        }
        let vector = match self.made(sum) {
            Some((Op::Mul, &[a, b])) if a == b => a,
            _ => return no("a norm is no sum of squares"),
        };
        let &[batch, n] = self.value(vector).shape.dims() else { return no("a vector is no matrix of rows") };
        let bound = self.bound(vector)?;
        let most = bound.saturating_mul(bound).saturating_mul(n as i128);
        if batch != self.batch || most >= 1 << 62 {
            return no("a norm may outgrow the ring");
        }
        Ok((vector, (most >> dropped) + 1 + i128::from(more)))
    }

    /// Refuses vectors whose rows depend on other rows of the data.
    fn by_row(&self, vectors: &[ValueId]) -> No<()> {
        let depends = Depends::of(self.plan, self.data, vectors);
        match vectors.iter().zip(depends).all(|(&id, of)| of.by_row(&self.value(id).shape, self.batch)) {
            true => Ok(()),
            false => no("what a row adds depends on other rows"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use megrez_graph::differentiate::{Loss, Optimiser, Privacy, Step, Trained, differentiate_privately};
    use megrez_graph::{
        Attributes, CompileOptions, Compiled, Graph, Interval, RangePolicy, Tensor, calibrate, compile,
    };

    const CLIP: f32 = 0.75;
    const NOISE: f32 = 4.0;

    fn dense(mixed: bool) -> Graph {
        let mut g = Graph::new("dense");
        let weights = |n: usize, m: usize| Tensor::filled([n, m], 0.25);
        let x = g.input("x", [4, 6]).unwrap();
        let (w, b) = (g.constant("a.w", weights(6, 3)), g.constant("a.b", Tensor::filled([3], 0.0)));
        let mut y = g.add("a", "Gemm", &[x, w, b], Attributes::none()).unwrap();
        if mixed {
            let axes = Attributes::none().with("axes", [0]).with("keepdims", 1);
            let mean = g.add("mean", "ReduceMean", &[y], axes).unwrap();
            y = g.add("less", "Sub", &[y, mean], Attributes::none()).unwrap();
        }
        let y = g.add("relu", "Relu", &[y], Attributes::none()).unwrap();
        let (w, b) = (g.constant("b.w", weights(3, 2)), g.constant("b.b", Tensor::filled([2], 0.0)));
        let y = g.add("b", "Gemm", &[y, w, b], Attributes::none()).unwrap();
        g.output("logits", y);
        g
    }

    /// Convolutions of four images, one of them in groups and with steps, and a matrix of each.
    fn images(mixed: bool) -> Graph {
        let mut g = Graph::new("images");
        let weights = |shape: &[usize]| Tensor::filled(shape.to_vec(), 0.25);
        let x = g.input("x", [4, 2, 7, 6]).unwrap();
        let (w, b) = (g.constant("a.w", weights(&[4, 2, 3, 3])), g.constant("a.b", weights(&[4])));
        let padded = Attributes::none().with("pads", [1, 1, 1, 1]).with("strides", [2, 1]);
        let y = g.add("a", "Conv", &[x, w, b], padded).unwrap();
        let mut y = g.add("relu", "Relu", &[y], Attributes::none()).unwrap();
        if mixed {
            let axes = Attributes::none().with("axes", [0, 2, 3]).with("keepdims", 1);
            let mean = g.add("mean", "ReduceMean", &[y], axes).unwrap();
            y = g.add("less", "Sub", &[y, mean], Attributes::none()).unwrap();
        }
        let (w, b) = (g.constant("b.w", weights(&[4, 2, 2, 3])), g.constant("b.b", weights(&[4])));
        let groups = Attributes::none().with("group", 2).with("dilations", [2, 1]);
        let y = g.add("b", "Conv", &[y, w, b], groups).unwrap();
        let dims = Tensor::<i64>::new([3], vec![4, 4, 8]);
        let dims = g.constant("dims", dims);
        let y = g.add("matrix", "Reshape", &[y, dims], Attributes::none()).unwrap();
        let w = g.constant("c.w", weights(&[8, 3]));
        let y = g.add("c", "MatMul", &[y, w], Attributes::none()).unwrap();
        let axes = Attributes::none().with("axes", [1]).with("keepdims", 0);
        let y = g.add("means", "ReduceMean", &[y], axes).unwrap();
        g.output("logits", y);
        g
    }

    fn compiled(graph: &Graph, noise: f32) -> Compiled {
        compiled_for(graph, noise, false)
    }

    /// Of equal parties, or of two workers and a dealer, by trees and with openings that wait.
    fn compiled_for(graph: &Graph, noise: f32, dealt: bool) -> Compiled {
        let rate = Optimiser::with_momentum("2^-3".parse().unwrap(), 0.5).unwrap();
        let privacy = Privacy { clip: CLIP, noise };
        let step = differentiate_privately(graph, Loss::CrossEntropy, &Trained::All, rate, privacy);
        let step = step.unwrap().adding_up_losses().unwrap();
        let inputs = step.graph.inputs.iter().map(|&id| Tensor::filled(step.graph.shape(id).clone(), 0.3));
        let measured = calibrate::calibrate(&step.graph, [inputs.collect::<Vec<_>>()], 64.0).unwrap();
        let options = CompileOptions {
            kept: step.kept(),
            policy: RangePolicy::Calibrated,
            input_range: Interval::abs(1.0),
            measured: Some(measured),
            defer_resharing: !dealt,
            ..CompileOptions::default()
        };
        let options = match dealt {
            true => CompileOptions {
                comparison: options.comparison.by_trees(),
                selects_truncated: true,
                multiplies_truncated: true,
                defer_openings: true,
                ..options
            },
            false => options,
        };
        compile(&step.graph, &options).unwrap_or_else(|e| panic!("{e}"))
    }

    fn of(plan: &Plan, compiled: &Compiled) -> Result<Guarantee, String> {
        guarantee(plan, &compiled.data_inputs, &[Step::LOSS_SO_FAR])
    }

    #[test]
    fn a_private_step_has_the_guarantee_that_it_was_made_for() {
        let made = compiled(&dense(false), NOISE);
        let found = of(&made.plan, &made).unwrap();
        assert!(
            found.clip <= f64::from(CLIP) * (1.0 + 2e-9) && found.clip > 0.99 * f64::from(CLIP),
            "{found:?}"
        );
        let noise = f64::from(CLIP * NOISE);
        assert!(found.deviation >= noise && found.deviation < noise * (1.0 + 1e-6), "{found:?}");
        assert!((found.rho() / (2.0 / f64::from(NOISE * NOISE)) - 1.0).abs() < 0.02, "{found:?}");
        // The same for two workers and a dealer, whose gradients are added up before they are
        // shared.
        let dealt = compiled_for(&dense(false), NOISE, true);
        assert!(dealt.plan.steps.iter().any(|step| step.op == Op::Reshare));
        assert!(dealt.plan.steps.iter().any(|step| matches!(step.op, Op::Select { .. })));
        let same = of(&dealt.plan, &dealt).unwrap();
        assert_eq!((same.clip, same.deviation), (found.clip, found.deviation));
        // The loss is one of the outputs that depend on rows.
        let all = guarantee(&made.plan, &made.data_inputs, &[]).unwrap_err();
        assert!(all.contains("loss"), "{all}");
        // So are weights, without noise; and rows that meet before the loss have no bound alone.
        let silent = compiled(&dense(false), 0.0);
        assert!(of(&silent.plan, &silent).unwrap_err().contains("no noise"));
        let mixed = compiled(&dense(true), NOISE);
        assert!(of(&mixed.plan, &mixed).unwrap_err().contains("other rows"));
    }

    /// What is no product of two vectors for each row is made for each row: of convolutions, and of
    /// matrices that have several rows for each of the batch's.
    #[test]
    fn gradients_that_are_made_for_each_row_have_the_guarantee() {
        for dealt in [false, true] {
            let made = compiled_for(&images(false), NOISE, dealt);
            let found = of(&made.plan, &made).unwrap();
            let clip = f64::from(CLIP);
            assert!(found.clip <= clip * (1.0 + 2e-9) && found.clip > 0.99 * clip, "{found:?}");
            assert!(found.deviation >= f64::from(CLIP * NOISE), "{found:?}");
            let noises = made.plan.steps.iter().filter(|step| matches!(step.op, Op::Noise { .. }));
            assert_eq!(noises.count(), 5, "one for each weight");
        }
        let mixed = compiled(&images(true), NOISE);
        assert!(of(&mixed.plan, &mixed).unwrap_err().contains("other rows"));
        let silent = compiled(&images(false), 0.0);
        assert!(of(&silent.plan, &silent).unwrap_err().contains("no noise"));
    }

    /// Each change of one step that could let a row through is noticed: there is no guarantee any
    /// more, or it says less.
    #[test]
    fn changed_steps_have_no_guarantee_or_a_weaker_one() {
        changes_are_noticed(&dense(false));
        changes_are_noticed(&images(false));
    }

    fn changes_are_noticed(graph: &Graph) {
        let made = compiled(graph, NOISE);
        let honest = of(&made.plan, &made).unwrap();
        // What makes a gradient of each row may make anything of it.
        let in_private =
            |step: &megrez_plan::Step| step.name.starts_with("private.") && !step.name.contains(".each");
        let mut tried: HashMap<&str, usize> = HashMap::new();
        for (place, step) in made.plan.steps.iter().enumerate().filter(|(_, step)| in_private(step)) {
            let narrower = |sign: &SignBit| {
                let bits = sign.width(64) - 1;
                SignBit { list: megrez_plan::List::Bits, cut: 0, bits: Some(bits) }
            };
            let mut changed: Vec<(&str, Op)> = vec![];
            match &step.op {
                Op::Combine { coefficients, constant } => {
                    let mut other = coefficients.clone();
                    other[0] += 1;
                    changed.push(("coefficient", Op::Combine { coefficients: other, constant: *constant }));
                    let (coefficients, less) =
                        (coefficients.clone(), if *constant == 1 { 0 } else { constant + 1 });
                    changed.push(("constant", Op::Combine { coefficients, constant: less }));
                }
                Op::Relu(relu) => {
                    let sign = narrower(&relu.sign);
                    changed.push(("narrow relu", Op::Relu(Relu { sign, ..relu.clone() })));
                    let sign = SignBit { cut: 1, bits: Some(63), list: megrez_plan::List::Bits };
                    changed.push(("cut relu", Op::Relu(Relu { sign, ..relu.clone() })));
                }
                Op::CompareMany { sign, thresholds } => {
                    let more: Vec<i64> = thresholds.iter().map(|t| t * 2).collect();
                    changed.push(("thresholds", Op::CompareMany { sign: sign.clone(), thresholds: more }));
                    let mut first = thresholds.clone();
                    first[0] = first[1] - 1;
                    changed
                        .push(("one threshold", Op::CompareMany { sign: sign.clone(), thresholds: first }));
                    let sign = SignBit { list: megrez_plan::List::Bits, cut: 0, bits: Some(20) };
                    changed.push(("narrow", Op::CompareMany { sign, thresholds: thresholds.clone() }));
                }
                Op::Noise { shape, frac, deviation } => {
                    for (name, deviation) in [("less noise", deviation / 2), ("no noise", 0)] {
                        changed.push((name, Op::Noise { shape: shape.clone(), frac: *frac, deviation }));
                    }
                }
                _ => {}
            }
            for (name, op) in changed {
                let mut plan = made.plan.clone();
                plan.steps[place].op = op;
                *tried.entry(name).or_default() += 1;
                let weaker = match of(&plan, &made) {
                    Err(_) => true,
                    // Below the first threshold more is allowed than the first factor says.
                    Ok(found) => found.clip > honest.clip || found.deviation < honest.deviation,
                };
                let harmless = name == "constant" && step.name.ends_with("norm-at-most")
                    || name == "coefficient" && step.name.contains("/factor");
                assert!(weaker || harmless, "{}: {name} passes", step.name);
            }
            // Each operand in the place of each other of its type. What is held may be anything,
            // and so may be what is held in its place.
            let held = ["rounded", "above-low", "not-below-low", "below-high", "not-above-high", "bounded"];
            if held.iter().any(|name| step.name.starts_with(&format!("private.rows/{name}"))) {
                continue;
            }
            for (i, &id) in step.inputs.iter().enumerate() {
                // A view of the same shape is the same, and noise in place of a sum tells nothing,
                // nor what another sum is with noise.
                let noise = |other: ValueId| {
                    let made = made.plan.steps.iter().find(|s| s.output == other);
                    let tells_nothing = |s: &megrez_plan::Step| {
                        matches!(s.op, Op::Noise { .. }) || s.name.ends_with("/noisy")
                    };
                    i == 0 && made.is_some_and(tells_nothing)
                };
                // So are two views that are alike.
                let same = |other: ValueId| {
                    let view = |id: ValueId| {
                        made.plan.steps.iter().find(|s| s.output == id && matches!(s.op, Op::View(_)))
                    };
                    let alike = |s: &megrez_plan::Step, other: &megrez_plan::Step| {
                        (&s.op, &s.inputs) == (&other.op, &other.inputs)
                    };
                    view(id).is_some_and(|s| {
                        s.inputs[..] == [other] || view(other).is_some_and(|other| alike(s, other))
                    })
                };
                let alike = made.plan.steps[..place].iter().map(|s| s.output).filter(|&other| {
                    other != id
                        && !same(other)
                        && !noise(other)
                        && made.plan.value(other) == made.plan.value(id)
                });
                for other in alike.collect::<Vec<_>>() {
                    let mut plan = made.plan.clone();
                    plan.steps[place].inputs[i] = other;
                    *tried.entry("operand").or_default() += 1;
                    if let Ok(found) = of(&plan, &made) {
                        assert!(
                            found.clip > honest.clip || found.deviation < honest.deviation,
                            "{}: {}: {found:?}",
                            step.name,
                            made.plan.steps.iter().find(|s| s.output == other).map_or("", |s| &s.name)
                        );
                    }
                }
            }
        }
        assert!(tried.len() >= 9 && tried["operand"] > 20, "{tried:?}");
        // One noise for two weights; and a sum that is shown as it is.
        let noises: Vec<ValueId> =
            made.plan.steps.iter().filter(|s| matches!(s.op, Op::Noise { .. })).map(|s| s.output).collect();
        let mut plan = made.plan.clone();
        let of_other = made.plan.value(noises[0]).clone();
        let reader = plan.steps.iter_mut().find(|s| s.inputs.contains(&noises[1])).unwrap();
        assert_ne!(made.plan.value(noises[1]), &of_other, "weights have two shapes");
        let sum = reader.inputs[0];
        plan.output("sum", "client", sum);
        assert!(of(&plan, &made).unwrap_err().contains("`sum`"));
        let mut plan = made.plan.clone();
        plan.output("noise", "client", noises[0]);
        assert!(of(&plan, &made).is_err(), "noise that is shown hides nothing");
    }
}
