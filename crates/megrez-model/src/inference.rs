//! Running a model on as many inputs as there are, for the command, the library and Python alike:
//! the data is checked before any party hears of it, cut into batches where that changes nothing,
//! and the outputs are put together again, all of them, whole.

use crate::batches::{Batches, Described, Rows, in_range};
use crate::fixed::{FixedModel, decode_output};
use crate::float::FloatModel;
use crate::mode::{Distance, Mode};
use crate::model::Model;
use crate::report::Cost;
use megrez_engine::PartyReport;
use megrez_graph::lower::{DataInput, ModelInput};
use megrez_graph::{Named, Revealed, Tensor, plain};
use megrez_plan::Input;
use megrez_service::backend::Backend;
use megrez_service::client::RunOptions;
use megrez_service::protocols::find;
use megrez_service::wire::Ahead;
use megrez_service::{Error, ErrorKind, Result};
use megrez_session::Error as SessionError;
use serde_json::{Value as Json, json};
use std::cell::RefCell;

/// What came out, and what it cost.
#[derive(Clone, Debug)]
pub struct Inference {
    /// The outputs by name, in the model's order.
    pub outputs: Vec<(String, Tensor)>,
    /// What the numbers of each are called, in the same order.
    pub named: Vec<Named>,
    /// The protocol that ran.
    pub protocol: String,
    /// Whether the caller insisted on a protocol that does not protect.
    pub insecure: bool,
    /// What the ranges rest on: `proven`, `guarded`, `calibrated` or `assumed`; `None` for a stored
    /// model, whose ranges its owner knows.
    pub range: Option<&'static str>,
    /// Inputs per run.
    pub batch: usize,
    /// How many runs it took.
    pub runs: u32,
    /// The cost of one run.
    pub cost: Cost,
    /// How it ran.
    pub mode: Mode,
    /// How far each output is from the clear, where that was asked for: by [`Mode::Simulate`].
    pub distances: Vec<Distance>,
}

impl Inference {
    /// The report of `megrez infer --json`. `numbers` says what stands there for the elements of an
    /// output: them, or where they are.
    pub fn json(&self, numbers: &dyn Fn(&str, &Tensor) -> Json) -> Json {
        let named = |((name, output), named): (&(String, Tensor), &Named)| {
            let mut of =
                json!({ "name": name, "shape": output.shape.dims(), "output": numbers(name, output) });
            for (key, names) in [("classes", &named.classes), ("columns", &named.columns)] {
                if !names.is_empty() {
                    of[key] = json!(names);
                }
            }
            of
        };
        let outputs: Vec<Json> = self.outputs.iter().zip(&self.named).map(named).collect();
        json!({
            "schema": "megrez.infer/1",
            "shape": outputs.first().map(|first| &first["shape"]),
            "output": outputs.first().map(|first| &first["output"]),
            "outputs": outputs,
            "mode": self.mode,
            "protocol": self.protocol,
            "insecure": self.insecure,
            "range": self.range,
            "batch": self.batch,
            "runs": self.runs,
            "cost": self.cost,
            "distances": self.distances,
        })
    }

    /// The elements of an output: numbers, or the names that they stand for.
    pub fn elements(&self, i: usize) -> Vec<Json> {
        let element = |&v: &f32| self.named[i].class(v).map_or_else(|| json!(v), |name| json!(name));
        self.outputs[i].1.data.iter().map(element).collect()
    }

    /// The report as a table, with the cost of every layer.
    pub fn table(&self) -> String {
        self.summary() + "\n" + &self.cost.layer_table()
    }

    /// The report as a table.
    pub fn summary(&self) -> String {
        if self.mode == Mode::Clear {
            return "in the clear, in floating point: no party ran\n".into();
        }
        let simulated = match self.mode {
            Mode::Simulate => {
                "simulated in this process, where nothing is private; seconds are of this machine's work and the network's, one after the other\n"
            }
            _ => "",
        };
        let mut out = simulated.to_owned();
        for far in &self.distances {
            out += &format!(
                "`{}` is off the clear by {:.2e} at most, {:.2e} in the mean\n",
                far.name, far.largest, far.mean
            );
        }
        out += &format!(
            "cost of one run of {} under {} on {}\n",
            self.batch,
            self.protocol,
            self.cost.device.join(" | ")
        );
        if let Some(range) = self.range {
            out += &format!("ranges: {range}\n");
        }
        out + &self.cost.table()
    }
}

/// What one or more runs of a plan gave: per run the outputs, and per run and party what was
/// measured.
pub(crate) struct Ran {
    pub outputs: Vec<Vec<Tensor>>,
    pub reports: Vec<Vec<PartyReport>>,
}

/// Runs one kind of model somewhere, as often as the options say, on these rows.
pub(crate) type Run<'a> = dyn FnMut(&RunOptions, &Rows<'_>) -> Result<Ran> + 'a;

/// Why the caller, or its data, ended the runs: what follows from that at the parties is no news to
/// the caller.
#[derive(Default)]
pub(crate) struct End(RefCell<Option<Error>>);

impl End {
    /// Keeps an error, and gives it to the session in words.
    pub fn keep<T>(&self, result: Result<T>) -> std::result::Result<T, SessionError> {
        result.map_err(|e| {
            let told = SessionError::Refused(e.to_string());
            self.0.borrow_mut().get_or_insert(e);
            told
        })
    }

    /// The kept error rather than its consequences.
    pub fn of<T>(&self, result: Result<T>) -> Result<T> {
        result.map_err(|e| self.0.take().unwrap_or(e))
    }
}

/// Cuts the data, runs, and joins the outputs. `before` hears of every run before it begins, and
/// ends all by an error.
pub(crate) fn in_batches(
    model: &dyn Described,
    data: &[Tensor],
    options: &RunOptions,
    before: &dyn Fn(u32) -> Result<()>,
    run: &mut Run<'_>,
) -> Result<Inference> {
    let batches = Batches::new(model, data)?;
    let rows = |run: u32, input: &DataInput| {
        if batches.inputs[0].name == input.name {
            before(run)?;
        }
        let rows = batches.rows(run, &input.name).map(|(_, rows)| rows);
        rows.ok_or_else(|| Error::Refused(format!("the plan has an unknown input `{}`", input.name)))
    };
    // One batch's material is made while another one runs.
    let streamed = batches.runs > 1 && options.material == Ahead::Nothing;
    let options = RunOptions { runs: batches.runs, streamed, ..options.clone() };
    let ran = run(&options, &rows)?;
    Ok(Inference {
        outputs: batches.outputs(model.outputs(), &|run, i| ran.outputs[run][i].clone()),
        named: model.outputs().iter().map(Revealed::named).collect(),
        protocol: options.protocol,
        insecure: options.insecure,
        range: None,
        batch: batches.size,
        runs: batches.runs,
        cost: Cost::of(&ran.reports),
        mode: Mode::Execute,
        distances: vec![],
    })
}

/// The outputs of all runs as tensors; `finish` makes one of its description and what was revealed.
pub(crate) fn finished<T>(
    outputs: Vec<Vec<T>>,
    revealed: &[Revealed],
    finish: impl Fn(&Revealed, T) -> Tensor,
) -> Vec<Vec<Tensor>> {
    let of_run = |run: Vec<T>| revealed.iter().zip(run).map(|(r, output)| finish(r, output)).collect();
    outputs.into_iter().map(of_run).collect()
}

/// The options, and that weights last: they are the same in all runs.
fn lasting(options: &RunOptions, weights: &[ModelInput]) -> RunOptions {
    RunOptions { lasting: weights.iter().map(|w| w.name.clone()).collect(), ..options.clone() }
}

impl FixedModel {
    fn run(&self, backend: &mut Backend, options: &RunOptions, rows: &Rows<'_>) -> Result<Ran> {
        let (plan, end) = (self.plan_for(backend.client()), End::default());
        let options = &lasting(options, &self.compiled.model_inputs);
        let words = |run: u32, input: &Input| end.keep(self.words(run, input, rows));
        let outcome = end.of(backend.run(&plan, options, &words, &|_| {}))?;
        in_range(self.guard(), &outcome.outputs)?;
        let finish = |revealed: &Revealed, words: Vec<u64>| decode_output(plan.ring, revealed, &words);
        Ok(Ran { outputs: finished(outcome.outputs, self.outputs(), finish), reports: outcome.reports })
    }
}

impl FloatModel {
    fn run(&self, backend: &mut Backend, options: &RunOptions, rows: &Rows<'_>) -> Result<Ran> {
        let (plan, end) = (self.plan_for(backend.client()), End::default());
        let options = &lasting(options, &self.compiled.model_inputs);
        let numbers = |run: u32, input: &Input| end.keep(self.numbers(run, input, rows));
        let outcome = end.of(backend.run_floats(&plan, options, &numbers, &|_| {}))?;
        Ok(Ran {
            outputs: finished(outcome.outputs, self.outputs(), Revealed::finish),
            reports: outcome.reports,
        })
    }
}

/// Refuses material under a protocol that has none.
pub(crate) fn without_material(protocol: &str, options: &RunOptions) -> Result<()> {
    if options.material != Ahead::Nothing && !find(protocol)?.offline {
        let what = format!("`{protocol}` has no offline phase: leave out --material");
        return Err(Error::of(ErrorKind::Unsupported, what));
    }
    Ok(())
}

/// Runs a model on data, one tensor per input of the model, in as many batches as it takes.
///
/// `before` hears of every run before it begins, and ends all by an error.
///
/// # Errors
/// If the data does not fit, or a party fails.
pub fn infer(
    backend: &mut Backend,
    model: &Model,
    data: &[Tensor],
    options: &RunOptions,
    before: &dyn Fn(u32) -> Result<()>,
) -> Result<Inference> {
    let options = &model.options(options)?;
    without_material(&options.protocol, options)?;
    let inference = in_batches(model, data, options, before, &mut |options, rows| match model {
        Model::Fixed(model) => model.run(backend, options, rows),
        Model::Float(model) => model.run(backend, options, rows),
    })?;
    Ok(Inference { range: model.basis(), ..inference })
}

/// Runs a model on data as [`infer`] does, in a mode, on what [`Mode::backend`] gave.
///
/// # Errors
/// Those of [`infer`].
pub fn infer_as(
    mode: Mode,
    backend: &mut Backend,
    model: &Model,
    data: &[Tensor],
    options: &RunOptions,
    before: &dyn Fn(u32) -> Result<()>,
) -> Result<Inference> {
    if mode == Mode::Clear {
        let batches = Batches::new(model, data)?;
        return Ok(Inference {
            mode,
            outputs: infer_plain(model, data)?,
            named: model.outputs().iter().map(Revealed::named).collect(),
            protocol: model.goes_with(&options.protocol)?.into(),
            insecure: options.insecure,
            range: model.basis(),
            batch: batches.size,
            runs: batches.runs,
            cost: Cost::default(),
            distances: vec![],
        });
    }
    let ran = infer(backend, model, data, options, before)?;
    let distances = match mode {
        Mode::Simulate => Distance::of(&ran.outputs, &infer_plain(model, data)?),
        _ => vec![],
    };
    Ok(Inference { mode, distances, ..ran })
}

/// A compiled model on data in the clear, in floating point: the outputs by name.
///
/// # Errors
/// If the data does not fit.
pub fn infer_plain(model: &Model, data: &[Tensor]) -> Result<Vec<(String, Tensor)>> {
    let batches = Batches::new(model, data)?;
    let mut values = vec![];
    for run in 0..batches.runs {
        let rows: Vec<Tensor> =
            batches.inputs.iter().filter_map(|i| Some(batches.rows(run, &i.name)?.1)).collect();
        let outputs = plain::run(model.graph(), &rows)?.into_iter().zip(model.outputs());
        values.push(outputs.map(|(value, revealed)| revealed.finish(value.data)).collect::<Vec<_>>());
    }
    Ok(batches.outputs(model.outputs(), &|run, i| values[run][i].clone()))
}

/// The first batch of the data, for [`check`](crate::check::check()).
///
/// # Errors
/// If the data does not fit.
pub fn first_batch(model: &dyn Described, data: &[Tensor]) -> Result<Vec<Tensor>> {
    let batches = Batches::cut(model.inputs(), data)?;
    Ok(batches.inputs.iter().filter_map(|i| Some(batches.rows(0, &i.name)?.1)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Recipe;
    use megrez_graph::{Graph, models};
    use megrez_service::embedded::CLIENT;

    fn compiled(graph: &Graph) -> Model {
        Recipe::Fixed(Box::default()).compile(graph, CLIENT).unwrap()
    }

    fn model(size: usize) -> Model {
        compiled(&models::build("net-b", size, 1).unwrap())
    }

    fn clear(model: &Model, data: &[Tensor]) -> Result<Vec<(String, Tensor)>> {
        infer_plain(model, data)
    }

    fn data(count: usize) -> Tensor {
        let values = (0..count * 784).map(|i| ((i * 37 % 101) as f32 - 50.0) / 50.0).collect();
        Tensor::new([count, 1, 28, 28], values)
    }

    #[test]
    fn batches_make_no_difference() {
        let (model, data) = (model(2), [data(5)]);
        let options = RunOptions { insecure: true, ..RunOptions::new("clear") };
        let result = infer(&mut Backend::threads(), &model, &data, &options, &|_| Ok(())).unwrap();
        assert_eq!((result.batch, result.runs), (2, 3));
        let plain = clear(&model, &data).unwrap();
        let whole = clear(&self::model(5), &data).unwrap();
        let (name, output) = &result.outputs[0];
        assert_eq!((name, &output.shape), (&plain[0].0, &plain[0].1.shape));
        assert_eq!(plain[0].1.data, whole[0].1.data);
        let far = output.data.iter().zip(&plain[0].1.data).map(|(a, b)| (a - b).abs()).fold(0f32, f32::max);
        assert!(far < 1e-2, "{far}");
        let report = result.json(&|_, output| json!(output.data.len()));
        assert_eq!((&report["shape"], &report["output"]), (&json!([5, 10]), &json!(50)));
        assert_eq!(report["outputs"], json!([{ "name": name, "shape": [5, 10], "output": 50 }]));

        let stop = |run| if run == 1 { Err(Error::Refused("enough".into())) } else { Ok(()) };
        let stopped = infer(&mut Backend::threads(), &model, &data, &options, &stop).unwrap_err();
        assert!(stopped.to_string().contains("enough"), "{stopped}");
    }

    #[test]
    fn data_that_does_not_fit_is_refused_by_name() {
        let model = model(2);
        let error = |data: &[Tensor]| clear(&model, data).unwrap_err().to_string();
        assert!(error(&[]).contains("1 input"), "{}", error(&[]));
        assert!(error(&[Tensor::filled([2, 784], 0.0)]).contains("[N, 1, 28, 28]"));
        assert!(error(&[Tensor::filled([0, 1, 28, 28], 0.0)]).contains("empty"));
        for (bad, word) in [(f32::NAN, "NaN"), (1.5, "1.5"), (f32::NEG_INFINITY, "-inf")] {
            let mut data = data(3);
            data.data[784 + 28 + 2] = bad;
            let error = error(&[data]);
            assert!(error.contains("[1, 0, 1, 2]") && error.contains(word), "{error}");
        }
    }

    /// y = xᵀ, z = x + x, m = the mean of the batch: on x of this many rows.
    fn mixing(size: usize) -> Model {
        let mut g = Graph::new("mixing");
        let x = g.input("x", [size, 3]).unwrap();
        let none = megrez_graph::Attributes::none;
        let y = g.add("y", "Transpose", &[x], none()).unwrap();
        let z = g.add("z", "Add", &[x, x], none()).unwrap();
        let m = g.add("m", "ReduceSum", &[x], none().with("axes", [0]).with("keepdims", 0)).unwrap();
        [("y", y), ("z", z), ("m", m)].into_iter().for_each(|(name, id)| g.output(name, id));
        compiled(&g)
    }

    #[test]
    fn outputs_are_whole_or_refused() {
        let data =
            |count: usize| [Tensor::new([count, 3], (0..3 * count).map(|i| i as f32 / 16.0).collect())];
        let options = RunOptions { insecure: true, ..RunOptions::new("clear") };
        let run = |model: &Model, data: &[Tensor]| {
            let got = infer(&mut Backend::threads(), model, data, &options, &|_| Ok(()))?;
            let clear = clear(model, data)?;
            assert_eq!(
                got.outputs.iter().map(|o| &o.1.shape).collect::<Vec<_>>(),
                clear.iter().map(|o| &o.1.shape).collect::<Vec<_>>()
            );
            Ok::<_, Error>(got.outputs)
        };
        let outputs = run(&mixing(4), &data(4)).unwrap();
        let shapes: Vec<(&str, &[usize])> =
            outputs.iter().map(|(name, o)| (&name[..], o.shape.dims())).collect();
        assert_eq!(shapes, [("y", &[3, 4][..]), ("z", &[4, 3]), ("m", &[3])]);
        assert!((outputs[0].1.data[11] - 11.0 / 16.0).abs() < 1e-3, "the last element is there");
        // With three rows the transposed output has as many as the input: it is not they.
        for size in [1, 2, 3] {
            let error = run(&mixing(size), &data(5)).unwrap_err().to_string();
            assert!(error.contains("`y`") && error.contains("--batch 5"), "{error}");
        }
        let error = run(&mixing(3), &data(2)).unwrap_err().to_string();
        assert!(error.contains("give exactly 3"), "{error}");
    }
}
