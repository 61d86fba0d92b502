//! `megrez train`: a model is trained on shares, here or on a cluster, or in the clear.

use crate::progress;
use crate::train_job;
use crate::train_options::{Train, load, rehearsal, rows, write_weights};
use megrez::train::{Clear, Epoch, Learning as How, Rows, Step, Training, accuracy, with_weights};
use megrez::{Backend, Error, ErrorKind, Result};
use megrez_graph::{Graph, Tensor};
use megrez_lab::bench::any_model;
use megrez_session::Phase;
use serde_json::json;
use std::process::ExitCode;
use std::time::Instant;

/// What training gave.
struct Trail {
    epochs: Vec<(f32, f64)>,
    weights: Option<Vec<(String, Tensor)>>,
    last: Option<Epoch>,
}

pub(crate) fn run(args: &Train, json: bool) -> Result<ExitCode> {
    let invalid = |what: &str| Error::of(ErrorKind::Invalid, what);
    let batch = args.learning.batch;
    if batch == 0 || args.epochs == 0 {
        return Err(invalid("--batch and --epochs are at least 1"));
    }
    args.common.request.only_fixed()?;
    args.common.request.only_private()?;
    if args.job.wanted() {
        return train_job::run(args, json);
    }
    if args.test_inputs.is_some() && args.weights_to.is_none() {
        return Err(invalid(
            "weights that stay secret are right on --test-inputs as a job: --keep; or --weights-to",
        ));
    }
    let model = any_model(args.model()?, batch, args.seed)?;
    let rows = rows(args, &model)?;
    let steps = (rows.count() / batch) as u32;
    if steps == 0 {
        return Err(invalid("there are fewer rows than one batch has: choose a smaller --batch"));
    }
    let test = match (&args.test_inputs, &args.test_labels) {
        (Some(inputs), Some(labels)) => Some(load(&model, args.learning.loss, inputs, labels)?),
        _ => None,
    };
    // Before it has trained for hours.
    test.iter().try_for_each(|test| test.have_classes(args.learning.loss))?;
    let trail =
        if args.plain { clear(args, &model, &rows, steps)? } else { private(args, &model, &rows, steps)? };
    if let (Some(folder), Some(weights)) = (&args.weights_to, &trail.weights) {
        write_weights(folder, weights)?;
    }
    let right = match (&test, &trail.weights) {
        (Some(test), Some(weights)) => {
            let model = any_model(args.model()?, batch.min(test.count().max(1)), args.seed)?;
            Some(accuracy(&with_weights(&model, weights), args.learning.loss, test)?)
        }
        _ => None,
    };
    let dropped = rows.count() - steps as usize * batch;
    if json {
        let epochs: Vec<_> = trail
            .epochs
            .iter()
            .map(|(loss, s)| json!({ "loss": loss, "seconds": s, "steps": steps }))
            .collect();
        println!(
            "{}",
            json!({ "schema": "megrez.train/1", "model": args.model, "plain": args.plain,
            "protocol": if args.plain { None } else { Some(args.common.protocol()) },
            "insecure": args.common.insecure && !args.plain, "batch": batch, "rows": rows.count(),
            "dropped": dropped, "epochs": epochs, "privacy": args.privacy(), "accuracy": right,
            "cost": trail.last.map(|epoch| epoch.cost), "weights": args.weights_to })
        );
    } else {
        if dropped > 0 {
            println!("{dropped} rows fill no batch and are left out of each epoch");
        }
        args.guarantee().into_iter().for_each(|line| println!("{line}"));
        right.inspect(|right| println!("accuracy {:.2} %", right * 100.0));
        if let Some(epoch) = &trail.last {
            println!("a step of {batch} rows cost");
            print!("{}", epoch.cost.table());
        }
        args.weights_to.iter().for_each(|folder| println!("weights written to {}", folder.display()));
    }
    Ok(ExitCode::SUCCESS)
}

/// The step at each rate of the schedule.
fn stages(args: &Train, step: impl Fn(&How) -> Result<Step>) -> Result<Vec<Step>> {
    let how = args.how()?;
    let stages = how.stages(args.epochs)?.into_iter();
    stages.map(|(optimiser, _)| step(&How { optimiser, ..how.clone() })).collect()
}

/// Which of them an epoch takes, from 0.
fn stage(args: &Train, epoch: u32) -> usize {
    args.halve_every.map_or(0, |every| (epoch / every) as usize)
}

/// In the clear.
fn clear(args: &Train, model: &Graph, rows: &Rows, steps: u32) -> Result<Trail> {
    let learning = &args.learning;
    let steps_of = stages(args, |how| how.telling_losses(model, how.optimiser))?;
    let mut clear = Clear::new(&steps_of[0]);
    let mut epochs = vec![];
    for epoch in 0..args.epochs {
        clear.go_on(&steps_of[stage(args, epoch)]);
        let (start, order) = (Instant::now(), rows.order(args.seed, epoch));
        let mut sum = 0f64;
        for run in 0..steps {
            sum += f64::from(clear.step(rows.batch(&order, run, learning.batch))?.unwrap_or(f32::NAN));
        }
        let loss = (sum / f64::from(steps)) as f32;
        eprintln!("epoch {} of {}: loss {loss:.4}", epoch + 1, args.epochs);
        epochs.push((loss, start.elapsed().as_secs_f64()));
    }
    let weights = clear.state().into_iter().filter(|(name, _)| name.starts_with("w.")).collect();
    Ok(Trail { epochs, weights: args.weights_to.is_some().then_some(weights), last: None })
}

/// On shares.
fn private(args: &Train, model: &Graph, rows: &Rows, steps: u32) -> Result<Trail> {
    let (learning, request) = (&args.learning, &args.common.request);
    let steps_of = stages(args, |how| how.step(model))?;
    let step = &steps_of[0];
    let options = request.options()?;
    let rehearsal = rehearsal(args, step, Some(rows), &options)?;
    let mut backend = match args.place.connect(crate::cluster::Needs::Any)? {
        Some(cluster) => Backend::Remote(cluster),
        None => args.common.backend()?,
    };
    let mut training = Training::begin(&mut backend, step, &options, &rehearsal, args.common.run(1))?;
    let (mut epochs, mut last) = (vec![], None);
    for epoch in 0..args.epochs {
        if epoch > 0 && stage(args, epoch) > stage(args, epoch - 1) {
            training.go_on(&steps_of[stage(args, epoch)])?;
        }
        let (start, order) = (Instant::now(), rows.order(args.seed, epoch));
        let bar = progress::bar(steps, "private training");
        let batch = |run: u32| rows.batch(&order, run, learning.batch);
        let done = training.epoch(steps, &batch, &|run| {
            let _ = progress::tick(&bar, run);
        })?;
        drop(bar);
        eprintln!("epoch {} of {}: loss {:.4}", epoch + 1, args.epochs, done.loss);
        epochs.push((done.loss, start.elapsed().as_secs_f64()));
        last = Some(done);
    }
    let seconds = last.as_ref().and_then(|epoch| epoch.cost.phases.get(&Phase::Online));
    seconds.inspect(|online| eprintln!("{:.3} s online a step", online.seconds.median));
    let weights = args.weights_to.is_some().then(|| training.weights()).transpose()?;
    Ok(Trail { epochs, weights, last })
}
