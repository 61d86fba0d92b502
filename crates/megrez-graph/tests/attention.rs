//! A block of a transformer is trained: attention of two heads, GELU, normalisations, residual
//! sums.

use crate::common::noise;
use crate::shares::{clear, inputs, largest_difference, lay_out, on_shares, one_hot, start};
use megrez_graph::differentiate::{BACKWARD, Loss, Optimiser, Trained, differentiate};
use megrez_graph::{Attributes, Constant, Graph, Id, Tensor, plain};

const TOKENS: usize = 3;
const WIDTH: usize = 4;

fn number(values: &[i64]) -> Constant {
    Tensor::<i64>::new([values.len()], values.to_vec()).into()
}

struct Build(Graph, u64);

impl Build {
    fn weights(&mut self, name: &str, shape: &[usize]) -> Id {
        self.1 += 1;
        let mut tensor = noise(shape.to_vec(), self.1);
        tensor.data.iter_mut().for_each(|v| *v *= 0.7);
        self.0.constant(name, tensor)
    }

    fn add(&mut self, name: &str, op: &str, inputs: &[Id], attributes: Attributes) -> Id {
        self.0.add(name, op, inputs, attributes).unwrap_or_else(|p| panic!("{p}"))
    }

    fn dense(&mut self, name: &str, x: Id, outputs: usize) -> Id {
        let width = self.0.shape(x).dims()[1];
        let w = self.weights(&format!("{name}.weight"), &[width, outputs]);
        let b = self.weights(&format!("{name}.bias"), &[outputs]);
        self.add(name, "Gemm", &[x, w, b], Attributes::none())
    }

    fn norm(&mut self, name: &str, x: Id) -> Id {
        let scale = self.0.constant(&format!("{name}.scale"), Tensor::filled([WIDTH], 1.0));
        let offset = self.weights(&format!("{name}.offset"), &[WIDTH]);
        // A deviation far from 0, as trained models have it.
        let epsilon = Attributes::none().with("epsilon", 0.0625);
        self.add(name, "LayerNormalization", &[x, scale, offset], epsilon)
    }

    fn reshape(&mut self, name: &str, x: Id, to: &[i64]) -> Id {
        let to = self.0.constant(&format!("{name}.to"), number(to));
        self.add(name, "Reshape", &[x, to], Attributes::none())
    }
}

/// Embedded tokens in, three logits of the first token out.
fn block(batch: usize) -> Graph {
    let mut b = Build(Graph::new("block"), 20);
    let (n, t, w) = (batch as i64, TOKENS as i64, WIDTH as i64);
    let x = b.0.input("x", [batch, TOKENS, WIDTH]).unwrap();
    let x = b.reshape("rows", x, &[n * t, w]);
    let all = b.dense("qkv", x, 3 * WIDTH);
    let mut heads = vec![];
    for (i, order) in [[0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]].into_iter().enumerate() {
        let own = Attributes::none()
            .with("axes", [1])
            .with("starts", [i as i64 * w])
            .with("ends", [(i as i64 + 1) * w]);
        let own = b.add(&format!("own{i}"), "Slice", &[all], own);
        let own = b.reshape(&format!("split{i}"), own, &[n, t, 2, w / 2]);
        heads.push(b.add(&format!("head{i}"), "Transpose", &[own], Attributes::none().with("perm", order)));
    }
    let scores = b.add("scores", "MatMul", &[heads[0], heads[1]], Attributes::none());
    let root = b.0.constant("root", Tensor::filled([1], 2f32.sqrt()));
    let scores = b.add("scaled", "Div", &[scores, root], Attributes::none());
    let scores = b.add("softmax", "Softmax", &[scores], Attributes::none());
    let y = b.add("values", "MatMul", &[scores, heads[2]], Attributes::none());
    let y = b.add("joined", "Transpose", &[y], Attributes::none().with("perm", [0, 2, 1, 3]));
    let y = b.reshape("joined-rows", y, &[n * t, w]);
    let y = b.dense("out", y, WIDTH);
    let x = b.add("residual1", "Add", &[x, y], Attributes::none());
    let x = b.norm("ln1", x);
    let y = b.dense("fc1", x, 2 * WIDTH);
    let y = b.add("gelu", "Gelu", &[y], Attributes::none());
    let y = b.dense("fc2", y, WIDTH);
    let x = b.add("residual2", "Add", &[x, y], Attributes::none());
    let x = b.norm("ln2", x);
    let x = b.reshape("by-token", x, &[n, t, w]);
    let first = b.0.constant("first.index", number(&[0]));
    let x = b.add("first", "Gather", &[x, first], Attributes::none().with("axis", 1));
    let x = b.reshape("first-rows", x, &[n, w]);
    let x = b.dense("pooler", x, WIDTH);
    let x = b.add("tanh", "Tanh", &[x], Attributes::none());
    let x = b.dense("classifier", x, 3);
    b.0.output("logits", x);
    b.0
}

fn batch() -> [Tensor; 2] {
    [noise([4, TOKENS, WIDTH], 3), one_hot(&[0, 2, 1, 2], 3)]
}

#[test]
fn the_gradient_of_a_block_of_a_transformer_is_that_of_its_loss() {
    // At this rate w − w' is the gradient of the mean loss.
    let optimiser = Optimiser::sgd("1".parse().unwrap());
    let step = differentiate(&block(4), Loss::CrossEntropy, &Trained::All, optimiser).unwrap();
    let names: Vec<&str> = step.state.iter().map(|s| s.name.as_str()).collect();
    assert_eq!(names.len(), 16, "{names:?}");
    assert!(names.contains(&"w.ln1.scale") && names.contains(&"w.ln2.offset"));
    let (before, batch) = (start(&step), batch());
    let (after, _) = clear(&step, &batch, &before);
    for (i, state) in step.state.iter().enumerate() {
        for seed in [50, 90] {
            let direction = noise(state.start.shape.clone(), seed + i as u64);
            let along = |j: usize| f64::from(direction.data[j]);
            let slope: f64 = (0..direction.data.len())
                .map(|j| along(j) * f64::from(before[i].data[j] - after[i].data[j]))
                .sum();
            let moved = |h: f32| {
                let mut state = before.clone();
                state[i].data.iter_mut().zip(&direction.data).for_each(|(v, d)| *v += h * d);
                f64::from(clear(&step, &batch, &state).1)
            };
            let wide = |h: f32| (moved(h) - moved(-h)) / f64::from(2.0 * h);
            // The loss is held in f32, so no narrower ones are better.
            let want = (4.0 * wide(0.03) - wide(0.06)) / 3.0;
            assert!((slope - want).abs() < 4e-4 * (1.0 + want.abs()), "{}: {slope} {want}", state.name);
        }
    }
}

#[test]
fn a_block_of_a_transformer_is_trained_on_shares_as_in_the_clear() {
    let optimiser = Optimiser::with_momentum("2^-2".parse().unwrap(), 0.5).unwrap();
    let step = differentiate(&block(4), Loss::CrossEntropy, &Trained::All, optimiser).unwrap();
    let batch = batch();
    let (mut state, mut losses) = (start(&step), vec![]);
    for _ in 0..12 {
        let loss;
        (state, loss) = clear(&step, &batch, &state);
        losses.push(loss);
    }
    assert!(losses[11] < 0.5 * losses[0], "{losses:?}");
    let mut state = start(&step);
    (state, _) = clear(&step, &batch, &state);
    let (want, want_loss) = clear(&step, &batch, &state);
    let moved = largest_difference(&state, &want);
    assert!(moved > 0.05, "the step moves the weights by {moved} only");
    for protocol in ["clear", "mizar", "aby3", "alkaid"] {
        let plan = lay_out(&step, protocol, &[inputs(&batch, &state)]);
        assert!(plan.plan.steps.iter().any(|s| s.name.starts_with(BACKWARD) && s.name.contains("softmax")));
        let (after, loss, [_, (bytes, rounds)]) = on_shares(protocol, &step, &plan, &batch, &state);
        let error = largest_difference(&after, &want);
        println!("{protocol}: off by {error:.1e} of {moved:.2}, {rounds} rounds, {bytes} bytes online");
        // Splines of GELU, Tanh and e^x in both passes.
        assert!(error < 0.01, "{protocol}: weights are off by {error}");
        assert!((loss - want_loss).abs() < 0.01, "{protocol}: {loss} instead of {want_loss}");
    }
}

#[test]
fn a_model_that_was_trained_runs_as_it_was() {
    let trained = Trained::All;
    let (graph, state) =
        megrez_graph::differentiate::forward(&block(2), Loss::CrossEntropy, &trained).unwrap();
    let x = noise([2, TOKENS, WIDTH], 3);
    let given: Vec<Tensor> = std::iter::once(x.clone()).chain(state.into_iter().map(|s| s.start)).collect();
    let found = plain::run(&graph, &given).unwrap().remove(0);
    let want = plain::run(&block(2), &[x]).unwrap().remove(0);
    assert!(largest_difference(&[found], &[want]) < 1e-5);
}
