//! The relevance network of SECFLOAT's Section IX.B, 874-300-200-100-4 with ReLU: is an
//! advertisement of interest to a user? The paper's weights are not public; they are said to lie
//! between 10^-7 and 10 in magnitude, and activations to spread more.
//!
//! Ours do as well. Features and hidden units are measured in units that differ by factors up to
//! 10^4 within each layer: the network is one with weights drawn as usual, written in those units,
//! which ReLU allows, and weights moved to the range's ends where they left it. The small weights
//! matter as much as the large ones, since they belong to large numbers.

use super::builder::{Builder, Weights};
use crate::graph::Attributes;
use crate::problem::Problem;
use crate::tensor::Tensor;

/// Features, units of the hidden layers, and logits.
const SIZES: [usize; 5] = [874, 300, 200, 100, 4];
/// The smallest of the five units of each layer; the others are 10, 100, 1000 and 10000 times that.
/// Logits have one.
const UNITS: [f64; 4] = [1e5, 1e3, 1e1, 1e-1];
const LOGITS: f64 = 5.0;
/// Bounds of weights' magnitudes.
const RANGE: [f32; 2] = [1e-7, 10.0];

/// In which units value `i` of a layer is measured.
fn unit(layer: usize, i: usize) -> f64 {
    UNITS.get(layer).map_or(LOGITS, |least| least * [1.0, 1e1, 1e2, 1e3, 1e4][i % 5])
}

pub(super) fn relevance(net: &mut Builder) -> Result<(), Problem> {
    for (layer, pair) in SIZES.windows(2).enumerate() {
        let (inputs, outputs) = (pair[0], pair[1]);
        let name = net.name(3);
        let mut weight = net.weights.he([outputs, inputs].into(), inputs);
        for (place, w) in weight.data.iter_mut().enumerate() {
            let scaled = f64::from(*w) * unit(layer + 1, place / inputs) / unit(layer, place % inputs);
            *w = (scaled.abs() as f32).clamp(RANGE[0], RANGE[1]).copysign(*w);
        }
        let mut bias = net.weights.he([outputs].into(), 200);
        bias.data.iter_mut().enumerate().for_each(|(i, b)| *b = (f64::from(*b) * unit(layer + 1, i)) as f32);
        let weight = net.graph.constant(&format!("{name}.weight"), weight);
        let bias = net.graph.constant(&format!("{name}.bias"), bias);
        let attributes = Attributes::none().with("transB", 1);
        net.at = net.graph.add(&name, "Gemm", &[net.at, weight, bias], attributes)?;
        if layer + 2 < SIZES.len() {
            net.relu()?;
        }
    }
    Ok(())
}

/// Features for the network `relevance`: uniform between 0 and the unit of each, at most 10^9.
pub fn relevance_features(batch: usize, seed: u64) -> Tensor {
    let mut draw = Weights::new(seed ^ 0x7265_6c65_7661_6e63);
    // A standard normal number below 5 in magnitude, folded to [0, 1).
    let data = (0..batch * SIZES[0]).map(|i| ((draw.normal().abs() / 5.0) * unit(0, i % SIZES[0])) as f32);
    Tensor::new([batch, SIZES[0]], data.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::build;
    use crate::plain;

    #[test]
    fn weights_spread_over_eight_orders_of_magnitude_and_logits_do_not() {
        let graph = build("relevance", 8, 1).unwrap();
        let weights =
            graph.values.iter().filter(|v| v.name.ends_with("weight")).filter_map(|v| match &v.constant {
                Some(crate::Constant::Floats(t)) => Some(t.data.iter().map(|w| w.abs())),
                _ => None,
            });
        let all: Vec<f32> = weights.flatten().collect();
        assert_eq!(all.len(), 874 * 300 + 300 * 200 + 200 * 100 + 100 * 4);
        let (least, most) = all.iter().fold((f32::MAX, 0f32), |(l, m), &w| (l.min(w), m.max(w)));
        assert_eq!([least, most], RANGE);
        assert!(all.iter().filter(|&&w| RANGE.contains(&w)).count() < all.len() / 10);
        let logits = plain::run(&graph, &[relevance_features(8, 1)]).unwrap().remove(0);
        let largest = logits.data.iter().fold(0f32, |m, v| m.max(v.abs()));
        assert!((0.5..500.0).contains(&largest), "{largest}");
    }
}
