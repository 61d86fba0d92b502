//! Data cut into batches where that changes nothing: checked before any party hears of it, filled
//! up, and put together again.

use crate::rows;
use megrez_graph::lower::DataInput;
use megrez_graph::{
    CompileOptions, FloatOptions, Graph, Id, Interval, RangePolicy, Revealed, Tensor, compile, compile_floats,
};
use megrez_plan::Input;
use megrez_service::{Error, ErrorKind, Result};

/// What a run takes of an input, by run and input.
pub type Rows<'a> = dyn Fn(u32, &DataInput) -> Result<Tensor> + 'a;

/// A model as whoever runs it knows it.
pub trait Described {
    /// What it takes.
    fn inputs(&self) -> &[DataInput];
    /// What it gives.
    fn outputs(&self) -> &[Revealed];
    /// What says that all values were in range, where ranges are guarded: after the outputs.
    fn guard(&self) -> Option<&Revealed>;
    /// The first output that is not made row by row, when a run takes `rows`.
    fn mixed(&self, rows: usize) -> Option<&Revealed>;
}

/// The outputs of a model, and the guard, of all that is revealed.
pub(crate) fn apart(revealed: &[Revealed]) -> (&[Revealed], Option<&Revealed>) {
    match revealed.split_last() {
        Some((guard, outputs)) if guard.guards() => (outputs, Some(guard)),
        _ => (revealed, None),
    }
}

/// Refuses the outputs of runs in which some value was out of range.
pub(crate) fn in_range<W: Default + PartialEq>(guard: Option<&Revealed>, runs: &[Vec<Vec<W>>]) -> Result<()> {
    let outside =
        |run: &Vec<Vec<W>>| run.last().is_none_or(|bits| bits.iter().any(|bit| *bit != W::default()));
    match (guard, runs.iter().position(outside)) {
        (Some(_), Some(run)) => Err(Error::of(
            ErrorKind::OutOfRange,
            format!(
                "in run {run} a value was beyond what the calibration had measured, so the outputs would be wrong and are not \
                 given: calibrate on data like this, or with a larger margin"
            ),
        )),
        _ => Ok(()),
    }
}

/// Data for a model, checked and ready to be cut into batches.
pub(crate) struct Batches<'a> {
    pub inputs: &'a [DataInput],
    data: &'a [Tensor],
    /// Inputs in all.
    pub count: usize,
    /// Inputs per run.
    pub size: usize,
    pub runs: u32,
}

impl<'a> Batches<'a> {
    /// `data` has one tensor for each of the model's inputs. Data of just the model's shapes is one
    /// run. Any other is cut, and the last run filled up, if the first dimensions count the same
    /// rows and every row of the outputs comes from one of them.
    pub fn new(model: &'a dyn Described, data: &'a [Tensor]) -> Result<Self> {
        let batches = Self::cut(model.inputs(), data)?;
        if batches.count != batches.size
            && let Some(output) = model.mixed(batches.size)
        {
            return Err(mixing(output, batches.size, Some(batches.count)));
        }
        Ok(batches)
    }

    /// As [`new`](Self::new), for those who look at runs and not at outputs.
    pub fn cut(inputs: &'a [DataInput], data: &'a [Tensor]) -> Result<Self> {
        let listed = || inputs.iter().map(shown).collect::<Vec<_>>().join(", ");
        if inputs.len() != data.len() || inputs.is_empty() {
            return Err(Error::Refused(format!(
                "the model takes {} ({}), got {}",
                counted(inputs.len(), "input"),
                listed(),
                counted(data.len(), "array")
            )));
        }
        let sizes = || inputs.iter().map(|i| i.shape.dims().first().copied());
        let size = sizes().next().flatten().unwrap_or(1);
        if inputs.iter().zip(data).all(|(input, tensor)| input.shape == tensor.shape) {
            inputs.iter().zip(data).try_for_each(|(input, tensor)| input.check(tensor))?;
            return Ok(Batches { inputs, data, count: size, size, runs: 1 });
        }
        let rows = inputs.iter().zip(data).map(|(input, tensor)| input.check_rows(tensor));
        let counts = rows.collect::<std::result::Result<Vec<usize>, _>>()?;
        if counts.iter().any(|&count| count != counts[0]) || sizes().any(|s| s != Some(size)) {
            return Err(Error::Refused(format!(
                "the inputs differ in their first dimension, so it does not count rows to cut: give data of just the shapes that \
                 the model was compiled for, {}",
                listed()
            )));
        }
        let count = counts[0];
        let runs = u32::try_from(count.div_ceil(size))
            .map_err(|_| Error::Refused("this is more data than megrez counts".into()))?;
        Ok(Batches { inputs, data, count, size, runs })
    }

    /// What the plan's input of this name takes in a run.
    pub fn rows(&self, run: u32, name: &str) -> Option<(&DataInput, Tensor)> {
        let i = self.inputs.iter().position(|input| input.name == name)?;
        let (input, data) = (&self.inputs[i], &self.data[i]);
        let rows =
            if self.count == self.size { data.clone() } else { batch(data, run, self.size, input.range) };
        Some((input, rows))
    }

    /// One output of all runs, without the rows that filled up the last batch.
    fn join(&self, mut parts: Vec<Tensor>) -> Tensor {
        if self.count == self.size {
            return parts.remove(0);
        }
        let mut dims = parts[0].shape.dims().to_vec();
        let row: usize = dims[1..].iter().product();
        let mut data: Vec<f32> = parts.into_iter().flat_map(|p| p.data).collect();
        data.truncate(row * self.count);
        dims[0] = self.count;
        Tensor::new(dims, data)
    }

    /// The outputs of all runs by name; `part` is one of one run.
    pub fn outputs(
        &self,
        outputs: &[Revealed],
        part: &dyn Fn(usize, usize) -> Tensor,
    ) -> Vec<(String, Tensor)> {
        let whole = |(i, output): (usize, &Revealed)| {
            let parts = (0..self.runs as usize).map(|run| part(run, i)).collect();
            (output.name.clone(), self.join(parts))
        };
        outputs.iter().enumerate().map(whole).collect()
    }
}

fn mixing(output: &Revealed, size: usize, count: Option<usize>) -> Error {
    let whole = count.map_or("as many as there are".into(), |count| count.to_string());
    let option = count.map_or("N".into(), |count| count.to_string());
    Error::Refused(format!(
        "output `{}` is not made input by input, so its numbers would depend on how the data is cut: the model runs on {size} at a \
         time; give exactly {size}, or compile for {whole}: --batch {option}, in Python batch={option}",
        output.name
    ))
}

/// Refuses to run a model on one input at a time if that gives other numbers than on several: in a
/// run of one there is nothing that could be mixed, so this looks at the same model for two,
/// `graph`. A model that is made for one, whatever the batch, is fine.
pub fn check_apart(graph: &Graph) -> Result<()> {
    let first = |&id: &Id| graph.shape(id).dims().first().copied();
    if graph.inputs.iter().any(|id| first(id) != Some(2)) {
        return Ok(());
    }
    let options = CompileOptions { policy: RangePolicy::Assume, ..CompileOptions::default() };
    let mixed = match compile(graph, &options) {
        Ok(c) => rows::mixed(&c.plan, &c.data_inputs, &c.outputs, 2).cloned(),
        Err(problems) => match compile_floats(graph, &FloatOptions::default()) {
            Ok(c) => rows::mixed_floats(&c.plan, &c.data_inputs, &c.outputs, 2).cloned(),
            Err(_) => return Err(problems.into()),
        },
    };
    mixed.map_or(Ok(()), |output| Err(mixing(&output, 1, None)))
}

/// An input's name and shape, for messages.
fn shown(input: &DataInput) -> String {
    format!("`{}` {:?}", input.name, input.shape.dims())
}

fn counted(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

/// The data input of this name.
pub(crate) fn named<'a>(inputs: &'a [DataInput], input: &Input) -> Result<&'a DataInput> {
    let wanted = inputs.iter().find(|i| i.name == input.name);
    wanted.ok_or_else(|| Error::Refused(format!("the plan has an unknown input `{}`", input.name)))
}

/// For each token as many numbers as its table has `rows`: `one` at its place, zeros elsewhere.
pub(crate) fn one_hot<T: Copy + Default>(
    input: &DataInput,
    rows: usize,
    tokens: &Tensor,
    one: T,
) -> Result<Vec<T>> {
    let place = |(i, &v): (usize, &f32)| match v {
        _ if v.fract() == 0.0 && (0.0..rows as f32).contains(&v) => Ok(i * rows + v as usize),
        _ => Err(Error::Refused(format!(
            "input `{}` takes tokens: element {i} is {v}, no whole number below {rows}",
            input.name
        ))),
    };
    let places = tokens.data.iter().enumerate().map(place).collect::<Result<Vec<_>>>()?;
    let mut numbers = vec![T::default(); tokens.data.len() * rows];
    places.into_iter().for_each(|place| numbers[place] = one);
    Ok(numbers)
}

/// Rows of a data set in batches: batch `run` of `size` rows, the last one filled up with zeros.
pub fn batch(data: &Tensor, run: u32, size: usize, range: Interval) -> Tensor {
    let dims = data.shape.dims();
    let row: usize = dims[1..].iter().product();
    let filler = 0f64.clamp(range.low, range.high) as f32;
    let start = (run as usize * size * row).min(data.data.len());
    let end = (start + size * row).min(data.data.len());
    let mut rows = data.data[start..end].to_vec();
    // What fills up must lie where real data lies, or it would set off a guard.
    while row > 0 && (row..size * row).contains(&rows.len()) {
        rows.extend_from_within(rows.len() - row..);
    }
    rows.resize(size * row, filler);
    let mut shape = dims.to_vec();
    shape[0] = size;
    Tensor::new(shape, rows)
}
