//! A model in single precision: every layer on shares, against the same single-precision operations
//! in the clear, which it must equal bit for bit, and against sums in double precision, from which
//! both differ by rounding.

use crate::float::FloatModel;
use megrez_engine::float::in_the_clear;
use megrez_graph::{DataInput, Tensor, plain};
use megrez_plan::Input;
use megrez_service::client::RunOptions;
use megrez_service::{Backend, Error, Result};
use serde::Serialize;

/// One layer's numbers.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FloatLayerCheck {
    /// The layer's name.
    pub layer: String,
    /// Its operator.
    pub op: String,
    /// Numbers that differ from single precision in the clear in any bit.
    pub different: usize,
    /// Largest absolute difference from the layer computed with sums in double precision.
    pub max_error: f64,
    /// The same over the layer's largest magnitude.
    pub relative_error: f64,
    /// Largest magnitude.
    pub max_value: f64,
    /// Smallest magnitude but zero.
    pub min_value: f64,
}

/// Runs `model` on one batch, a tensor per input of the model, with every layer's output opened to
/// the caller, and compares.
///
/// Opening inner layers reveals them to the caller: the caller must own model and data.
///
/// # Errors
/// If the data does not fit, or a party fails.
pub fn check(
    backend: &mut Backend,
    model: &FloatModel,
    data: &[Tensor],
    options: &RunOptions,
) -> Result<Vec<FloatLayerCheck>> {
    let client = backend.client().to_owned();
    let compiled = &model.compiled;
    let mut plan = model.plan_for(&client);
    plan.outputs.clear();
    compiled.layers.iter().for_each(|layer| plan.output(&layer.name, &client, layer.value));
    let rows = |_: u32, input: &DataInput| {
        let given = compiled.data_inputs.iter().position(|i| i.name == input.name).and_then(|i| data.get(i));
        given.cloned().ok_or_else(|| Error::Refused(format!("there is no data for input `{}`", input.name)))
    };
    let numbers = |run: u32, input: &Input| Ok(model.numbers(run, input, &rows)?);
    let run = backend.run_floats(&plan, &RunOptions { runs: 1, ..options.clone() }, &numbers, &|_| {})?;

    let inputs = plan
        .inputs
        .iter()
        .map(|i| numbers(0, i))
        .collect::<std::result::Result<Vec<_>, megrez_session::Error>>()?;
    let clear = in_the_clear(&plan, &inputs);
    let trace = plain::trace(&compiled.graph, data)?;
    let mut checks = vec![];
    for (layer, got) in compiled.layers.iter().zip(&run.outputs[0]) {
        let Some(expected) = trace.value(layer.graph_value) else { continue };
        let single = &clear[layer.value.0 as usize];
        let different = got.iter().zip(single).filter(|(g, s)| g.to_bits() != s.to_bits()).count();
        let error = |(g, e): (&f32, &f32)| (f64::from(*g) - f64::from(*e)).abs();
        let max_error = got.iter().zip(&expected.data).map(error).fold(0.0, f64::max);
        let sizes = || expected.data.iter().map(|v| f64::from(v.abs())).filter(|v| *v > 0.0);
        let max_value = sizes().fold(0.0, f64::max);
        checks.push(FloatLayerCheck {
            layer: layer.name.clone(),
            op: layer.op.clone(),
            different,
            max_error,
            relative_error: if max_value > 0.0 { max_error / max_value } else { 0.0 },
            max_value,
            min_value: sizes().fold(max_value, f64::min),
        });
    }
    Ok(checks)
}

/// A table for people.
pub fn table(layers: &[FloatLayerCheck]) -> String {
    let mut out = format!(
        "{:<16} {:<18} {:>10} {:>11} {:>11} {:>11} {:>11}\n",
        "layer", "operator", "float32", "max error", "relative", "smallest", "largest"
    );
    for l in layers {
        let same = if l.different == 0 { "same bits".into() } else { format!("{} DIFFER", l.different) };
        out += &format!(
            "{:<16} {:<18} {same:>10} {:>11.3e} {:>11.3e} {:>11.3e} {:>11.3e}\n",
            l.layer, l.op, l.max_error, l.relative_error, l.min_value, l.max_value
        );
    }
    out + "errors are those of single precision: against the same layers with sums in double precision\n"
}
