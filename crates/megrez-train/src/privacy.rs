//! How much noise a budget asks for, and what is left of it: differential privacy of trained
//! weights, for data that differ in one row, another in its place.
//!
//! A row is in one batch of each epoch, and which one its values do not decide. So an epoch is one
//! Gaussian mechanism for it, of sensitivity 2·clip (one row's gradient goes, another's comes) and
//! of the deviation that one of two parties adds: with z = deviation / clip, ρ = (2/z)²/2 of
//! zero-concentrated differential privacy, and ρ adds up over epochs (Bun, Steinke 2016; for the
//! discrete distribution Canonne, Kamath, Steinke 2020, Theorem 14). Nothing is gained from rows
//! being sampled: the parties know who shares a batch with whom.

use megrez_graph::Interval;
use megrez_graph::differentiate::{Privacy, Step};
use megrez_graph::lower::DataInput;
use megrez_model::privacy::guarantee;
use megrez_plan::Plan;
use megrez_ring::Shape;
use megrez_service::approval::Guarantee;
use megrez_service::training::Job;
use megrez_service::{Error, ErrorKind, Result};

/// What trained weights may tell of a row: (ε, δ).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Budget {
    /// By at most a factor e^ε more likely is anything that is seen with one row than with another
    /// in its place, …
    pub epsilon: f64,
    /// … but with this probability.
    pub delta: f64,
}

impl Budget {
    /// The least noise with which so many epochs keep to the budget.
    ///
    /// # Errors
    /// If the budget is none, or the clip not within its bounds.
    pub fn privacy(&self, clip: f32, epochs: u32) -> Result<Privacy> {
        let invalid = |what: &str| Err(Error::of(ErrorKind::Invalid, what));
        if !(self.epsilon > 0.0 && self.epsilon <= 1e3) {
            return invalid("epsilon is above 0, and at most 1000");
        }
        if !(self.delta > 0.0 && self.delta < 1.0) {
            return invalid("delta is between 0 and 1");
        }
        if !(2f32.powi(-6)..=64.0).contains(&clip) {
            return invalid("the clip is from 1/64 to 64");
        }
        // A whole number of units, so that no rounding makes it smaller.
        let clip = (clip * 65536.0).floor() / 65536.0;
        let keeps = |noise: f64| log_delta(f64::from(epochs) * rho(noise), self.epsilon) <= self.delta.ln();
        let (mut low, mut high) = (1e-3f64, 1e6f64);
        for _ in 0..100 {
            let middle = (low * high).sqrt();
            *(if keeps(middle) { &mut high } else { &mut low }) = middle;
        }
        let noise = (high as f32).next_up();
        match keeps(f64::from(noise)) && noise < 1e5 {
            true => Ok(Privacy { clip, noise }),
            false => invalid("there is no noise large enough for this budget"),
        }
    }
}

/// ρ of an epoch at a deviation of `noise` clips.
pub fn rho(noise: f64) -> f64 {
    2.0 / (noise * noise)
}

/// The logarithm of the least δ that goes with ε for a mechanism of ρ: over all α > 1, of
/// e^((α−1)(αρ−ε))/(α−1)·(1−1/α)^α (Canonne, Kamath, Steinke 2020, Corollary 13).
fn log_delta(rho: f64, epsilon: f64) -> f64 {
    let of = |log: f64| {
        let alpha = 1.0 + log.exp();
        (alpha - 1.0) * (alpha * rho - epsilon) - log + alpha * (-1.0 / alpha).ln_1p()
    };
    // The exponent is convex in α. Any α gives a bound that holds.
    let (mut low, mut high) = (1e-9f64.ln(), 1e9f64.ln());
    for _ in 0..100 {
        let (a, b) = (low + (high - low) / 3.0, high - (high - low) / 3.0);
        match of(a) < of(b) {
            true => high = b,
            false => low = a,
        }
    }
    of(low)
}

/// The smallest ε that goes with δ for a mechanism of ρ.
pub fn epsilon(rho: f64, delta: f64) -> f64 {
    if rho == 0.0 {
        return 0.0;
    }
    if !rho.is_finite() {
        return f64::INFINITY;
    }
    // ρ + 2√(ρ·ln(1/δ)) always does.
    let (mut low, mut high) = (0.0, rho + 2.0 * (rho * (1.0 / delta).ln()).sqrt());
    for _ in 0..100 {
        let middle = (low + high) / 2.0;
        *(if log_delta(rho, middle) > delta.ln() { &mut low } else { &mut high }) = middle;
    }
    high
}

/// What the weights that a job trains may tell of a row, read from the plans of its steps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OfJob {
    /// Over all epochs.
    pub rho: f64,
    /// As long as no number of a row is larger than this.
    pub range: f64,
}

/// What a job guarantees by its plans alone, whatever its client says of them; `None` if nothing.
/// Not covered is what is added up and opened after every epoch; the kept model must not read it.
pub fn of_job(job: &Job) -> Option<OfJob> {
    let each = job.opened.iter().filter(|opening| opening.every_epoch).map(|opening| opening.state.as_str());
    let losses: Vec<&str> = each.chain([Step::LOSS_SO_FAR]).collect();
    if job.opened.iter().any(|opening| !opening.every_epoch && losses.contains(&opening.state.as_str())) {
        return None;
    }
    for model in job.keep.iter().flat_map(|keep| &keep.plans) {
        let plan = Plan::from_bytes(&model.plan).ok()?;
        if plan.inputs.iter().any(|input| losses.contains(&input.name.as_str())) {
            return None;
        }
    }
    // What is opened beside would tell of losses of which nothing is said.
    let bounded = job.bounds.iter().map(|bound| &bound.state);
    let validation = job.validation.iter().map(|validation| Plan::from_bytes(&validation.plan).ok());
    let plans = validation.collect::<Option<Vec<_>>>()?;
    let own = |plan: &Plan, name: &String| plan.outputs.iter().any(|output| output.name == *name);
    let read = plans.iter().flat_map(|plan| plan.inputs.iter().map(move |input| (plan, &input.name)));
    let read = read.filter(|(plan, name)| !own(plan, name)).map(|(_, name)| name);
    if read.chain(bounded).any(|name| losses.contains(&name.as_str())) {
        return None;
    }
    let mut all = OfJob { rho: 0.0, range: f64::INFINITY };
    // What the rows of shards leave in weights is not read: nothing is said of it.
    if job.shards.is_some() {
        return None;
    }
    for stage in &job.stages {
        let plan = Plan::from_bytes(&stage.step).ok()?;
        let rows = |range: f64| -> Vec<DataInput> {
            let inputs = plan.inputs.iter().filter(|input| job.rows.contains(&input.name));
            let data = |name: &String, shape: &Shape| {
                let (name, shape, range) = (name.clone(), shape.clone(), Interval::abs(range));
                DataInput { name, shape, frac: 0, range, tokens: None, table: None }
            };
            inputs.map(|input| data(&input.name, &plan.value(input.value).shape)).collect()
        };
        // The largest power of two that leaves room for all norms.
        let of = |bits: u32| guarantee(&plan, &rows(f64::from(1 << bits)), &losses).ok();
        let (range, found) = (0..20).rev().find_map(|bits| Some((f64::from(1 << bits), of(bits)?)))?;
        all.rho += f64::from(stage.epochs) * found.rho();
        all.range = all.range.min(range);
    }
    Some(all).filter(|all| all.rho > 0.0)
}

/// As [`of_job`], for rules of owners: ε at this δ.
#[must_use]
pub fn guaranteed(job: &Job, delta: f64) -> Option<Guarantee> {
    let OfJob { rho, range } = of_job(job)?;
    Some(Guarantee { epsilon: epsilon(rho, delta), range })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// ε lies between that of the continuous Gaussian mechanism, which no bound of ρ alone reaches,
    /// and the simple bound ρ + 2√(ρ·ln(1/δ)).
    #[test]
    fn epsilon_lies_between_the_exact_gaussian_and_the_simple_bound() {
        // (ρ, δ, ε of a Gaussian mechanism with μ = √(2ρ), from its exact formula).
        for (rho, delta, exact) in [(0.5, 1e-5, 4.3771), (0.005, 1e-5, 0.3406), (2.0, 1e-6, 10.997)] {
            let found = epsilon(rho, delta);
            let simple = rho + 2.0 * (rho * (1.0f64 / delta).ln()).sqrt();
            assert!(found > exact && found < simple && found < 1.12 * exact, "{rho}: {found}");
        }
        assert_eq!(epsilon(0.0, 1e-5), 0.0);
        assert!(epsilon(f64::INFINITY, 1e-5).is_infinite());
    }

    #[test]
    fn a_budget_is_kept_and_hardly_more_noise_is_made_than_it_asks_for() {
        for (wanted, epochs) in [(0.1, 1), (1.0, 20), (8.0, 200)] {
            let budget = Budget { epsilon: wanted, delta: 1e-5 };
            let privacy = budget.privacy(1.0, epochs).unwrap();
            let spent = |noise: f32| epsilon(f64::from(epochs) * rho(noise.into()), budget.delta);
            assert!(spent(privacy.noise) <= wanted && spent(privacy.noise * 0.999) > wanted);
        }
        let refused = |epsilon, delta, clip| Budget { epsilon, delta }.privacy(clip, 1).is_err();
        assert!(refused(0.0, 1e-5, 1.0) && refused(1.0, 0.0, 1.0) && refused(1.0, 1e-5, 0.0));
        assert!(refused(f64::NAN, 1e-5, 1.0) && refused(1.0, f64::NAN, 1.0) && refused(1.0, 0.5, f32::NAN));
    }
}
