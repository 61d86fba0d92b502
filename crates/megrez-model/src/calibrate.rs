//! How large a model's values get on data, for comparisons of fewer bits.

use crate::batches::Batches;
use crate::fixed::FixedModel;
use megrez_graph::lower::{DataInput, vocabularies};
use megrez_graph::{Calibration, Graph, Id, Interval, Tensor, passes};
use megrez_service::{Error, Result};

/// Measures how large a model's values get on data, one tensor per input, for fitted comparisons;
/// bounds are `margin` times that.
pub fn measure(model: &FixedModel, data: &[Tensor], margin: f64) -> Result<Calibration> {
    measure_graph(&model.compiled.graph, &model.compiled.data_inputs, data, margin)
}

/// As [`measure`], for a graph that nobody has compiled: numbers of any size.
pub fn measure_any(graph: &Graph, data: &[Tensor], margin: f64) -> Result<Calibration> {
    let (graph, _) = passes::for_fixed_point(graph)?;
    let tokens = vocabularies(&graph)?;
    let input = |id: &Id| {
        let (name, shape) = (graph.value(*id).name.clone(), graph.shape(*id).clone());
        let tokens = tokens.get(id).copied();
        let range = match tokens {
            Some(rows) => Interval { low: 0.0, high: (rows - 1) as f64 },
            None => Interval { low: f64::from(f32::MIN), high: f64::from(f32::MAX) },
        };
        DataInput { name, shape, frac: 0, range, tokens, table: None }
    };
    let inputs: Vec<DataInput> = graph.inputs.iter().map(input).collect();
    measure_graph(&graph, &inputs, data, margin)
}

fn measure_graph(graph: &Graph, inputs: &[DataInput], data: &[Tensor], margin: f64) -> Result<Calibration> {
    let batches = Batches::cut(inputs, data)?;
    let of_run = |run| inputs.iter().filter_map(|i| Some(batches.rows(run, &i.name)?.1)).collect();
    let runs: Vec<Vec<Tensor>> = (0..batches.runs).map(of_run).collect();
    let calibration = megrez_graph::calibrate::calibrate(graph, runs, margin)?;
    let calibration = Calibration { inputs: batches.count, ..calibration };
    calibration.check().map_err(|what| Error::Refused(format!("the calibration {what}")))?;
    Ok(calibration)
}

#[cfg(test)]
mod tests {
    use super::*;
    use megrez_graph::{CompileOptions, models};

    #[test]
    fn all_inputs_count_and_margins_leave_room() {
        let graph = models::build("net-b", 2, 1).unwrap();
        let model = FixedModel::new(&graph, "client", &CompileOptions::default()).unwrap();
        let data = [Tensor::filled([5, 1, 28, 28], 0.25)];
        assert_eq!(measure(&model, &data, 2.0).unwrap().inputs, 5);
        assert!(measure(&model, &data, 0.5).is_err());
    }
}
