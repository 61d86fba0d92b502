//! `megrez bench train`: a step of training in fixed point, measured, and its loss beside that of
//! the same step in the clear. Every run begins with the same weights; what it makes of them stays
//! with the parties.

use super::measure::report;
use super::options::{BenchOptions, Errors};
use super::sample::test_image;
use megrez::protocols;
use megrez::report::{Cost, LayerCost};
use megrez::train::{BACKWARD, Clear, Rehearsal, Step, compile, rehearse};
use megrez::{Backend, Error, ErrorKind, Result, RunOptions};
use megrez_graph::{CompileOptions, DataInput, Tensor};
use megrez_plan::Input;
use megrez_ring::{decode_words, encode_words};
use serde_json::{Value as Json, json};
use std::cell::RefCell;
use std::time::Instant;

/// Random rows in [0, 1], and one-hot labels.
fn batch(step: &Step, seed: u64, run: u32) -> [Tensor; 2] {
    let shape = |i: usize| step.graph.shape(step.graph.inputs[i]).clone();
    let mut labels = Tensor::filled(shape(1), 0.0);
    let classes = labels.shape.dims()[1];
    let places = test_image(seed, run, Step::LABELS, [step.batch].into());
    for (row, place) in places.data.iter().enumerate() {
        labels.data[row * classes + ((place * classes as f32) as usize).min(classes - 1)] = 1.0;
    }
    [test_image(seed, run, "input", shape(0)), labels]
}

/// Measures the step under `options`, `o.run.runs` times. With `o.run.streamed` the weights stay
/// with the parties, and the report has the seconds from one step's end to the next's.
///
/// # Errors
/// If it does not compile, or a party fails.
pub fn bench_step(
    backend: &mut Backend,
    name: &str,
    step: &Step,
    options: &CompileOptions,
    o: &BenchOptions,
) -> Result<Json> {
    let rehearsal: Rehearsal = rehearse(step, (0..4).map(|run| batch(step, o.seed, run)))?;
    let client = backend.client().to_owned();
    let model = compile(step, &client, options, &rehearsal, false)?;
    let plan = &model.compiled.plan;
    let planned = protocols::cost(&o.run.protocol, plan)?;
    let data = |run: u32, input: &DataInput| {
        let [x, y] = batch(step, o.seed, run);
        let state = step.state.iter().find(|state| state.name == input.name);
        Ok(match state {
            Some(state) => state.start.clone(),
            None if input.name == Step::LABELS => y,
            None => x,
        })
    };
    let words = |run: u32, input: &Input| match step.state.iter().find(|s| s.name == input.name) {
        Some(state) => Ok(encode_words(plan.ring, &state.start.data, model.compiled.frac)
            .map_err(|e| Error::of(ErrorKind::OutOfRange, e))?),
        None => Ok(model.words(run, input, &data)?),
    };
    let ends = RefCell::new(vec![]);
    // The parties make material of a step beside another only of weights that they hold.
    let lasting = step.state.iter().filter(|_| o.run.streamed).map(|state| state.name.clone()).collect();
    let run = RunOptions { lasting, ..o.run.clone() };
    let outcome = backend.run(plan, &run, &words, &|_| ends.borrow_mut().push(Instant::now()))?;
    let revealed = model.compiled.outputs.first();
    let revealed = revealed.ok_or_else(|| Error::of(ErrorKind::Internal, "a step reveals its loss"))?;
    let (mut errors, mut losses) = (Errors::default(), vec![]);
    for (run, outputs) in outcome.outputs.iter().enumerate() {
        let got = decode_words(plan.ring, &outputs[0], revealed.frac)[0];
        let expected = Clear::new(step).step(batch(step, o.seed, run as u32))?.unwrap_or(f32::NAN);
        errors.add((f64::from(got) - f64::from(expected)).abs());
        losses.push(got);
    }
    let cost = Cost::of(&outcome.reports);
    // A wrong layer is off by the size of the loss; rounding is far below.
    let verified = errors.max <= 0.02;
    let mut report = report(None, Some(name), o, plan, &cost, &planned, 1, errors, verified);
    let part = |of: &dyn Fn(&str) -> bool| {
        let layers: Vec<&LayerCost> = cost.layers.iter().filter(|layer| of(&layer.layer)).collect();
        json!({
            "offline_bytes": layers.iter().map(|layer| layer.offline_bytes).sum::<u64>(),
            "online_bytes": layers.iter().map(|layer| layer.online_bytes).sum::<u64>(),
            "online_rounds": layers.iter().map(|layer| layer.online_rounds).sum::<u32>(),
        })
    };
    let update =
        |name: &str| name.starts_with("update.") || name.starts_with("moved.") || name.starts_with("keep.");
    let loss = |name: &str| name.starts_with("loss");
    let backward = |name: &str| name.starts_with(BACKWARD);
    let fields = json!({
        "training": true,
        "steps": o.run.runs,
        "loss": losses,
        "parts": {
            "forward": part(&|name| !update(name) && !loss(name) && !backward(name)),
            "loss": part(&loss),
            "backward": part(&backward),
            "update": part(&update),
        },
        "formula_bytes": {
            "offline": planned.bits(megrez_session::Phase::Offline) / 8.0,
            "online": planned.bits(megrez_session::Phase::Online) / 8.0,
        },
    });
    if let (Some(report), Json::Object(fields)) = (report.as_object_mut(), fields) {
        report.extend(fields);
        if let (true, [first, .., last]) = (o.run.streamed, &ends.borrow()[..]) {
            let steps = o.run.runs - 1;
            let seconds = (*last - *first).as_secs_f64() / f64::from(steps);
            report.insert("streamed".into(), json!({ "seconds": seconds, "steps": steps }));
        }
    }
    Ok(report)
}
