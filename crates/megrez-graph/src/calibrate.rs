//! Calibration: how large the values of each comparison get on data, so that fewer bits can be
//! compared; and what each layer's numbers lie in, for models whose ranges cannot be proven
//! ([`crate::RangePolicy::Calibrated`]).
//!
//! A bound is the largest magnitude seen times a safety margin. Data beyond it makes comparisons
//! wrong, not merely imprecise: `megrez check` counts such elements.

pub use crate::calibration::Calibration;
use crate::graph::Graph;
use crate::layers::CURVE;
use crate::passes;
use crate::plain;
use crate::problem::Problems;
use crate::range::Interval;
use crate::tensor::Tensor;
use std::collections::{BTreeMap, BTreeSet};

/// The magnitude of what a layer compares: an activation its input, a pool the differences within
/// its windows, which the spread of its whole input bounds. `None` for layers that do not compare.
pub fn compared(op: &str, input: &Tensor) -> Option<f64> {
    let (low, high) = (input.data.iter()).fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), &v| {
        (low.min(f64::from(v)), high.max(f64::from(v)))
    });
    match op {
        _ if input.data.is_empty() => None,
        CURVE | "Relu" | "LeakyRelu" | "Sigmoid" | "Tanh" | "Erf" | "Gelu" | "Swish" => {
            Some(low.abs().max(high.abs()))
        }
        "MaxPool" => Some(high - low),
        // Clip compares x − min, and then max − min of what is left.
        "Clip" => None,
        _ => None,
    }
}

/// Measures a model on batches of data; every batch has a tensor for each of the model's inputs, of
/// its shape.
pub fn calibrate(
    graph: &Graph,
    batches: impl IntoIterator<Item = Vec<Tensor>>,
    margin: f64,
) -> Result<Calibration, Problems> {
    let (graph, _) = passes::for_fixed_point(graph)?;
    let mut calibration = Calibration {
        schema: Calibration::SCHEMA.into(),
        margin,
        inputs: 0,
        layers: BTreeMap::new(),
        ranges: BTreeMap::new(),
    };
    let mut infinite = BTreeSet::new();
    for batch in batches {
        let trace = plain::trace(&graph, &batch).map_err(|p| Problems(vec![p]))?;
        calibration.inputs += batch.first().and_then(|x| x.shape.dims().first().copied()).unwrap_or(1);
        for node in &graph.nodes {
            // Of a curve it is what comes after its parts.
            let compares = if node.op == CURVE { node.inputs.last() } else { node.inputs.first() };
            let input = compares.copied().flatten().and_then(|id| trace.value(id));
            if let Some(magnitude) = input.and_then(|input| compared(&node.op, input)) {
                let seen = calibration.layers.entry(node.name.clone()).or_insert(0.0);
                *seen = seen.max(magnitude);
            }
            let Some(output) = trace.value(node.output) else { continue };
            let (low, high) = ends(output);
            // What is infinite has no range: the layer must prove its own.
            if low.is_finite() && high.is_finite() {
                let seen = calibration.ranges.entry(node.name.clone()).or_insert(Interval { low, high });
                *seen = Interval { low: seen.low.min(low), high: seen.high.max(high) };
            } else {
                infinite.insert(node.name.clone());
            }
        }
    }
    calibration.ranges.retain(|layer, _| !infinite.contains(layer));
    Ok(calibration)
}

/// The least and the largest element.
fn ends(x: &Tensor) -> (f64, f64) {
    (x.data.iter()).fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), &v| match v.is_nan() {
        true => (f64::NEG_INFINITY, f64::INFINITY),
        false => (low.min(f64::from(v)), high.max(f64::from(v))),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models;
    use crate::options::{Comparison, ListStyle};
    use crate::{CompileOptions, compile};
    use megrez_plan::{Fewest, Op, SignBit};

    fn signs(comparison: Comparison) -> Vec<SignBit> {
        let graph = models::build("lenet", 1, 1).unwrap();
        let options =
            CompileOptions { comparison, policy: crate::RangePolicy::Assume, ..CompileOptions::default() };
        let steps = compile(&graph, &options).unwrap().plan.steps;
        steps.into_iter().filter_map(|s| if let Op::Relu(r) = s.op { Some(r.sign) } else { None }).collect()
    }

    #[test]
    fn measured_bounds_need_fewer_bits_than_proven_ones() {
        let graph = models::build("lenet", 1, 1).unwrap();
        let data = Tensor::new([1, 1, 28, 28], (0..784).map(|i| (i % 29) as f32 / 29.0).collect::<Vec<_>>());
        let calibration = calibrate(&graph, [vec![data]], 2.0).unwrap();
        assert_eq!(calibration.inputs, 1);
        assert!(calibration.layers.len() == 5, "{:?}", calibration.layers);
        let list = ListStyle::Digits(Fewest::Total);
        let proven = signs(Comparison::Fitted { list, bits: None, calibration: None });
        let fitted = signs(Comparison::Fitted { list, bits: None, calibration: Some(calibration.clone()) });
        let few = signs(Comparison::Fitted { list, bits: Some(8), calibration: Some(calibration) });
        for ((proven, fitted), few) in proven.iter().zip(&fitted).zip(&few) {
            assert!(fitted.bits <= proven.bits && proven.bits.unwrap() < 48, "{proven:?} {fitted:?}");
            assert_eq!((fitted.cut, few.bits), (16, Some(8)));
            assert_eq!(few.cut + 8, fitted.cut + fitted.bits.unwrap(), "the top bit stays");
        }
        assert!(fitted.iter().zip(&proven).any(|(fitted, proven)| fitted.bits < proven.bits));
    }
}
