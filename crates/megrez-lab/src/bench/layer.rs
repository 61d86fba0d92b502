//! The operations of `bench op` that are layers of a model, lowered as there and verified against
//! the function itself.

use super::options::{BenchOptions, Errors};
use super::sample::test_words;
use megrez::{Error, Result};
use megrez_graph::layers::spline_error;
use megrez_graph::{Attributes, Comparison, CompileOptions, Graph, Interval, Tensor, compile, plain};
use megrez_plan::{Kind, Op, Plan};
use megrez_ring::{Shape, decode_words};

/// An operation that is a layer.
pub(crate) struct LayerOp {
    /// Its name as an operation.
    pub name: &'static str,
    layer: &'static str,
    /// The declared range of its input, from which test data is drawn: the cost of a layer that
    /// looks for the octave of its input grows with it.
    range: Interval,
    /// Whether it works on the rows of a matrix, [m, k] of `--shape`, instead of on `batch`
    /// elements.
    rows: bool,
}

const fn each(name: &'static str, layer: &'static str, low: f64, high: f64) -> LayerOp {
    LayerOp { name, layer, range: Interval { low, high }, rows: false }
}

const fn rows(name: &'static str, layer: &'static str, low: f64, high: f64) -> LayerOp {
    LayerOp { rows: true, ..each(name, layer, low, high) }
}

/// Splines are tried on both sides of all their borders.
const LAYER_OPS: &[LayerOp] = &[
    each("sigmoid", "Sigmoid", -16.0, 16.0),
    each("tanh", "Tanh", -16.0, 16.0),
    each("gelu", "Gelu", -16.0, 16.0),
    each("silu", "Swish", -16.0, 16.0),
    each("exp", "Exp", -4.0, 4.0),
    each("log", "Log", 0.0625, 16.0),
    each("reciprocal", "Reciprocal", 0.0625, 16.0),
    each("rsqrt", "Pow", 0.0625, 16.0),
    rows("softmax", "Softmax", -16.0, 16.0),
    rows("layernorm", "LayerNormalization", -4.0, 4.0),
];

impl LayerOp {
    /// The operation of this name if it is a layer.
    pub fn find(name: &str) -> Option<&'static LayerOp> {
        LAYER_OPS.iter().find(|op| op.name == name)
    }

    fn shape(&self, o: &BenchOptions) -> Shape {
        if self.rows { [o.shape[0], o.shape[1]].into() } else { [o.batch].into() }
    }

    /// A model of this layer alone.
    fn graph(&self, o: &BenchOptions) -> Result<Graph> {
        let mut graph = Graph::new(self.name);
        let mut inputs = vec![graph.input("x", self.shape(o))?];
        if self.layer == "Pow" {
            inputs.push(graph.constant("exponent", Tensor::new([], vec![-0.5f32])));
        }
        let mut y = graph.add("op", self.layer, &inputs, Attributes::none())?;
        if self.layer == "Softmax" {
            // A last softmax would be left to the recipient. A change of sign is free.
            y = graph.add("negative", "Neg", &[y], Attributes::none())?;
        }
        graph.output("z", y);
        Ok(graph)
    }

    /// The plan of the layer within a model: its result has f fraction bits.
    pub fn plan(&self, client: &str, o: &BenchOptions) -> Result<Plan> {
        let options = CompileOptions {
            ring: o.ring,
            frac: o.frac,
            model_owner: client.into(),
            data_owner: client.into(),
            recipient: client.into(),
            input_range: self.range,
            comparison: Comparison::Fixed(o.sign.clone()),
            relu: o.form,
            activations: o.activations,
            delay_ns: o.run.net.delay_ns(),
            mib_ns: o.run.net.transmit_ns(1 << 20),
            ..CompileOptions::default()
        };
        let mut plan = compile(&self.graph(o)?, &options)?.plan;
        let output = plan.outputs[0].value;
        let Kind::Ring { frac } = plan.value(output).kind else {
            unreachable!("a layer's result is a number")
        };
        if frac > o.frac {
            // An output would be opened with all of them; within a model the truncation belongs to
            // the layer.
            let z = plan.step("truncate", Op::Truncate { bits: frac - o.frac }, &[output]);
            plan.outputs[0].value = z.map_err(|e| Error::Refused(e.to_string()))?;
        }
        Ok(plan)
    }

    /// Test data: uniform words of the declared range.
    pub fn words(&self, o: &BenchOptions, run: u32) -> Vec<u64> {
        let word = |v: f64| (v * 2f64.powi(o.frac as i32)).round() as i64;
        let (low, high) = (word(self.range.low), word(self.range.high));
        let span = (high - low) as u64 + 1;
        let mask = u64::MAX >> (64 - o.ring);
        let random = test_words(o.seed, run, "x", self.shape(o).elements(), 64, 63);
        random.into_iter().map(|w| low.wrapping_add((w % span) as i64) as u64 & mask).collect()
    }

    /// The errors against the function itself, and whether they are within what the layer promises
    /// and rounding adds.
    pub fn errors(&self, o: &BenchOptions, outputs: &[Vec<Vec<u64>>]) -> Result<(Errors, bool)> {
        let graph = self.graph(o)?;
        // A few units from truncations; a cut comparison adds the cut, as much for each border.
        let rounding = (32.0 + 4.0 * 2f64.powi(o.sign.cut as i32)) * 2f64.powi(-(o.frac as i32));
        let error = spline_error(self.layer, o.activations, o.frac);
        let bound = error.unwrap_or(0.0) + rounding;
        // What the octaves' polynomials and their roundings promise, doubled.
        let relative = if o.ring == 64 { 2f64.powi(-15) } else { 2f64.powi(-5) };
        let (mut errors, mut verified) = (Errors::default(), true);
        for (run, got) in outputs.iter().enumerate() {
            let x = Tensor::new(self.shape(o), decode_words(o.ring, &self.words(o, run as u32), o.frac));
            let expected = plain::run(&graph, &[x])?.remove(0);
            for (g, e) in decode_words(o.ring, &got[0], o.frac).iter().zip(&expected.data) {
                let error = (f64::from(*g) - f64::from(*e)).abs();
                errors.add(error);
                verified &= error <= bound + relative * f64::from(e.abs());
            }
        }
        Ok((errors, verified))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use megrez::RunOptions;
    use megrez_graph::Activations;
    use megrez_ring::encode_words;

    fn options(ring: u32, frac: u32) -> BenchOptions {
        let run = RunOptions::new("mizar");
        BenchOptions { ring, frac, batch: 40, shape: [4, 5, 1], ..BenchOptions::new(run) }
    }

    #[test]
    fn layers_are_verified_against_the_function_and_not_against_themselves() {
        let o = options(64, 16);
        for op in LAYER_OPS {
            let words = op.words(&o, 0);
            let x: Vec<f32> = decode_words(64, &words, 16);
            assert!(x.iter().all(|&v| f64::from(v) >= op.range.low && f64::from(v) <= op.range.high));
            let graph = op.graph(&o).unwrap();
            let exact = plain::run(&graph, &[Tensor::new(op.shape(&o), x)]).unwrap().remove(0);
            let mut outputs = vec![vec![encode_words(64, &exact.data, 16).unwrap()]];
            let (errors, verified) = op.errors(&o, &outputs).unwrap();
            assert!(verified && errors.max < 1e-4, "{}", op.name);
            let off =
                (spline_error(op.layer, Activations::Minimax, 16).unwrap_or(0.0) * 65536.0) as u64 + 300;
            outputs[0][0][3] = outputs[0][0][3].wrapping_add(off);
            assert!(!op.errors(&o, &outputs).unwrap().1, "{}", op.name);
        }
    }
}
