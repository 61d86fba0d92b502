//! What networks are made of beyond the layers: windows, normalisations, cells, attention,
//! quantised numbers.

use crate::common::nodes::{expect, ints, node, none, tensor};
use crate::common::{check_floats, noise};
use megrez_graph::{Attributes, Constant, Graph, Id, Tensor, plain};

#[test]
fn convolutions_of_other_dimensions_are_those_of_images() {
    // A kernel that adds neighbours, worked out by hand.
    let x = tensor(&[1, 1, 4], &[1.0, 2.0, 3.0, 4.0]);
    let w: Constant = tensor(&[1, 1, 2], &[1.0, 10.0]).into();
    let g = node("Conv", std::slice::from_ref(&x), std::slice::from_ref(&w), none().with("pads", [1, 0]), 1);
    expect(&g, std::slice::from_ref(&x), &[tensor(&[1, 1, 4], &[10.0, 21.0, 32.0, 43.0])], 1e-3);
    let g = node("ConvTranspose", std::slice::from_ref(&x), &[w], none().with("strides", [2]), 1);
    let y = tensor(&[1, 1, 8], &[1.0, 10.0, 2.0, 20.0, 3.0, 30.0, 4.0, 40.0]);
    expect(&g, std::slice::from_ref(&x), &[y], 1e-3);
    // One place of depth at a time is a convolution of images.
    let (x, w) = (noise([1, 2, 3, 4, 4], 1), noise([3, 2, 2, 3, 3], 2));
    let attributes = none().with("pads", [1, 1, 1, 0, 1, 1]).with("strides", [1, 2, 1]);
    let g = node("Conv", std::slice::from_ref(&x), &[w.clone().into()], attributes, 1);
    let mut want = 0.0;
    // Place [0, 1, 1, 1, 1] of the result: depths 0 and 1, rows 1 to 3, columns 0 to 2 of the data.
    for (c, d, i, j) in (0..36).map(|t| (t / 18, t / 9 % 2, t / 3 % 3, t % 3)) {
        want += x.data[((c * 3 + d) * 4 + i + 1) * 4 + j] * w.data[(((2 + c) * 2 + d) * 3 + i) * 3 + j];
    }
    let got = plain::run(&g, std::slice::from_ref(&x)).unwrap().remove(0);
    assert_eq!(got.shape.dims(), [1, 3, 3, 2, 4]);
    assert!((got.data[((3 + 1) * 2 + 1) * 4 + 1] - want).abs() < 1e-4);
    expect(&g, std::slice::from_ref(&x), &[got], 1e-3);
    let x = Tensor::new([1, 1, 2, 2, 2], (0..8).map(|v| v as f32).collect());
    let cube = || none().with("kernel_shape", [2, 2, 2]);
    for (op, y) in [("MaxPool", 7.0), ("AveragePool", 3.5), ("LpPool", 140f32.sqrt())] {
        let g = node(op, std::slice::from_ref(&x), &[], cube(), 1);
        expect(&g, std::slice::from_ref(&x), &[tensor(&[1, 1, 1, 1, 1], &[y])], 5e-3);
    }
}

#[test]
fn normalisations_are_as_defined() {
    let x = tensor(&[1, 2, 2, 2], &[1.0, 2.0, 3.0, 6.0, -1.0, 0.5, 0.0, 2.5]);
    let statistics = |part: &[f32]| {
        let mean = part.iter().sum::<f32>() / part.len() as f32;
        (mean, part.iter().map(|v| (v - mean).powi(2)).sum::<f32>() / part.len() as f32)
    };
    let normalised = |part: &[f32], epsilon: f32| {
        let (mean, variance) = statistics(part);
        part.iter().map(|v| (v - mean) / (variance + epsilon).sqrt()).collect::<Vec<f32>>()
    };
    let weights = || [tensor(&[2], &[2.0, -1.0]).into(), tensor(&[2], &[0.5, 0.0]).into()];
    let weigh = |y: Vec<f32>| {
        y.iter().enumerate().map(|(i, v)| if i < 4 { 2.0 * v + 0.5 } else { -v }).collect::<Vec<f32>>()
    };
    let halves: Vec<f32> = x.data.chunks(4).flat_map(|c| normalised(c, 1e-5)).collect();
    let x = std::slice::from_ref(&x);
    let g = node("InstanceNormalization", x, &weights(), none(), 1);
    expect(&g, x, &[tensor(&[1, 2, 2, 2], &weigh(halves))], 4e-3);
    let g = node("GroupNormalization", x, &weights(), none().with("num_groups", 1), 1);
    expect(&g, x, &[tensor(&[1, 2, 2, 2], &weigh(normalised(&x[0].data, 1e-5)))], 4e-3);
    let g = node("MeanVarianceNormalization", x, &[], none(), 1);
    let halves: Vec<f32> = x[0].data.chunks(4).flat_map(|c| normalised(c, 0.0)).collect();
    expect(&g, x, &[tensor(&[1, 2, 2, 2], &halves)], 4e-3);
    let rms: Vec<f32> = (x[0].data.chunks(2))
        .flat_map(|c| {
            c.iter().map(|v| v / ((c[0] * c[0] + c[1] * c[1]) / 2.0 + 1e-5).sqrt()).collect::<Vec<_>>()
        })
        .collect();
    let g = node("RMSNormalization", x, &[tensor(&[2], &[1.0, 1.0]).into()], none(), 1);
    expect(&g, x, &[tensor(&[1, 2, 2, 2], &rms)], 4e-3);
    let g = node("LpNormalization", x, &[], none().with("p", 1), 1);
    let lp: Vec<f32> = (x[0].data.chunks(2))
        .flat_map(|c| c.iter().map(|v| v / (c[0].abs() + c[1].abs())).collect::<Vec<_>>())
        .collect();
    expect(&g, x, &[tensor(&[1, 2, 2, 2], &lp)], 4e-3);
    // Zeros stay zeros, also where there are infinite numbers.
    for (p, want) in [(1, [3.0 / 7.0, -4.0 / 7.0, 0.0, 0.0]), (2, [0.6, -0.8, 0.0, 0.0])] {
        let rows = &[tensor(&[2, 2], &[3.0, -4.0, 0.0, 0.0])];
        let g = node("LpNormalization", rows, &[], none().with("p", p), 1);
        let got = &plain::run(&g, rows).unwrap()[0];
        assert!(got.data.iter().zip(want).all(|(g, w)| (g - w).abs() < 1e-6), "{p}: {:?}", got.data);
        check_floats(&g, rows);
    }
    let lrn: Vec<f32> = (0..8)
        .map(|i| {
            let sum: f32 =
                if i < 4 { x[0].data[i].powi(2) + x[0].data[i + 4].powi(2) } else { x[0].data[i].powi(2) };
            x[0].data[i] / (1.0 + 0.01 / 2.0 * sum).powf(0.75)
        })
        .collect();
    let g = node("LRN", x, &[], none().with("size", 2).with("alpha", 0.01), 1);
    expect(&g, x, &[tensor(&[1, 2, 2, 2], &lrn)], 4e-3);
    // The mean and the inverse deviation are outputs, too.
    let g = node("LayerNormalization", x, &[tensor(&[2], &[1.0, 1.0]).into()], none(), 3);
    let layer: Vec<f32> = x[0].data.chunks(2).flat_map(|c| normalised(c, 1e-5)).collect();
    let mean: Vec<f32> = x[0].data.chunks(2).map(|c| statistics(c).0).collect();
    let inverse: Vec<f32> = x[0].data.chunks(2).map(|c| 1.0 / (statistics(c).1 + 1e-5).sqrt()).collect();
    let want = [tensor(&[1, 2, 2, 2], &layer), tensor(&[1, 2, 2, 1], &mean), tensor(&[1, 2, 2, 1], &inverse)];
    expect(&g, x, &want, 4e-3);
}

#[test]
fn images_are_resized_by_their_modes() {
    let x = tensor(&[1, 1, 1, 4], &[1.0, 2.0, 3.0, 4.0]);
    let x = std::slice::from_ref(&x);
    let resize = |attributes: Attributes, scale: f32| {
        let mut g = Graph::new("test");
        let input = g.input("x0", [1, 1, 1, 4]).unwrap();
        let scales = g.constant("scales", tensor(&[4], &[1.0, 1.0, 1.0, scale]));
        let y = g.add_node("resize", "Resize", &[Some(input), None, Some(scales)], attributes).unwrap();
        g.output("y", y);
        g
    };
    let wide = |data: &[f32]| [tensor(&[1, 1, 1, data.len()], data)];
    let y = wide(&[1.0, 1.0, 2.0, 2.0, 3.0, 3.0, 4.0, 4.0]);
    expect(&resize(none(), 2.0), x, &y, 1e-9);
    let linear = none().with("mode", "linear");
    let y = wide(&[1.0, 1.25, 1.75, 2.25, 2.75, 3.25, 3.75, 4.0]);
    expect(&resize(linear.clone(), 2.0), x, &y, 1e-3);
    expect(&resize(linear.clone(), 0.5), x, &wide(&[1.5, 3.5]), 1e-3);
    let corners = linear.with("coordinate_transformation_mode", "align_corners");
    let y: Vec<f32> = (0..8).map(|i| 1.0 + i as f32 * 3.0 / 7.0).collect();
    expect(&resize(corners, 2.0), x, &wide(&y), 1e-3);
    // Cubic weights half way are −3/32 and 19/32.
    let cubic = none().with("mode", "cubic").with("exclude_outside", 0);
    expect(
        &resize(cubic, 0.5),
        x,
        &wide(&[(-3.0 + 19.0 * 3.0 - 9.0) / 32.0, (-6.0 + 19.0 * 7.0 - 12.0) / 32.0]),
        1e-3,
    );
}

#[test]
fn einsum_is_a_sum_of_products() {
    let (a, b) = (noise([2, 3, 4], 1), noise([2, 4, 5], 2));
    let equation = |text: &str| none().with("equation", text);
    let g = node("Einsum", &[a.clone(), b.clone()], &[], equation("bij, bjk -> bki"), 1);
    let got = plain::run(&g, &[a.clone(), b.clone()]).unwrap().remove(0);
    assert_eq!(got.shape.dims(), [2, 5, 3]);
    let want: f32 = (0..4).map(|j| a.data[(3 + 2) * 4 + j] * b.data[(4 + j) * 5 + 3]).sum();
    assert!((got.data[(5 + 3) * 3 + 2] - want).abs() < 1e-5);
    expect(&g, &[a, b], &[got], 1e-3);
    let x = Tensor::new([2, 3, 3], (0..18).map(|v| v as f32).collect());
    let x = std::slice::from_ref(&x);
    let y = tensor(&[2, 3], &[0.0, 4.0, 8.0, 9.0, 13.0, 17.0]);
    expect(&node("Einsum", x, &[], equation("...ii->...i"), 1), x, &[y], 1e-9);
    expect(&node("Einsum", x, &[], equation("aij->"), 1), x, &[tensor(&[], &[153.0])], 1e-9);
}

#[test]
fn cells_are_as_defined() {
    // One number in, one hidden, two steps: worked out step by step.
    let x = tensor(&[2, 1, 1], &[0.5, -1.0]);
    let x = std::slice::from_ref(&x);
    let c = |shape: &[usize], data: &[f32]| Constant::from(tensor(shape, data));
    let s = |v: f64| 1.0 / (1.0 + (-v).exp());
    let hidden = || none().with("hidden_size", 1);
    let sequence =
        |h: [f64; 2]| [tensor(&[2, 1, 1, 1], &h.map(|v| v as f32)), tensor(&[1, 1, 1], &[h[1] as f32])];
    let (w, r) = (0.8, -0.6);
    let first = (w * 0.5f64).tanh();
    let want = sequence([first, (-w + r * first).tanh()]);
    let g = node("RNN", x, &[c(&[1, 1, 1], &[0.8]), c(&[1, 1, 1], &[-0.6])], hidden(), 2);
    expect(&g, x, &want, 4e-3);
    let (w, r) = ([0.5f64, -0.25, 1.0, 0.75], [0.25f64, 0.5, -0.5, 1.0]);
    let mut state = (0.0, 0.0);
    let mut shown = [0.0; 2];
    for (t, x) in [0.5, -1.0].into_iter().enumerate() {
        let gate = |i: usize| w[i] * x + r[i] * state.0;
        let cell = s(gate(2)) * state.1 + s(gate(0)) * gate(3).tanh();
        state = (s(gate(1)) * cell.tanh(), cell);
        shown[t] = state.0;
    }
    let [y, h] = sequence(shown);
    let g = node(
        "LSTM",
        x,
        &[c(&[1, 4, 1], &w.map(|v| v as f32)), c(&[1, 4, 1], &r.map(|v| v as f32))],
        hidden(),
        3,
    );
    expect(&g, x, &[y, h, tensor(&[1, 1, 1], &[state.1 as f32])], 4e-3);
    for linear in [0, 1] {
        let mut h = 0.0;
        let mut shown = [0.0; 2];
        for (t, x) in [0.5, -1.0].into_iter().enumerate() {
            let (z, reset) = (s(w[0] * x + r[0] * h), s(w[1] * x + r[1] * h));
            let new = (w[2] * x + r[2] * reset * h).tanh();
            h = (1.0 - z) * new + z * h;
            shown[t] = h;
        }
        let constants = [c(&[1, 3, 1], &[0.5, -0.25, 1.0]), c(&[1, 3, 1], &[0.25, 0.5, -0.5])];
        let g = node("GRU", x, &constants, hidden().with("linear_before_reset", linear), 2);
        expect(&g, x, &sequence(shown), 4e-3);
    }
}

#[test]
fn losses_take_the_numbers_of_the_labels() {
    let x = tensor(&[2, 3], &[-0.5, -1.0, -2.0, -3.0, -0.25, -1.5]);
    let x = std::slice::from_ref(&x);
    let labels = || ints(&[2], &[2, 1]);
    let with = |constants: &[Constant], reduction: &str| {
        node("NegativeLogLikelihoodLoss", x, constants, none().with("reduction", reduction), 1)
    };
    expect(&with(&[labels()], "none"), x, &[tensor(&[2], &[2.0, 0.25])], 1e-9);
    expect(&with(&[labels()], "mean"), x, &[tensor(&[], &[1.125])], 1e-3);
    let weights = || tensor(&[3], &[1.0, 4.0, 2.0]).into();
    expect(&with(&[labels(), weights()], "mean"), x, &[tensor(&[], &[5.0 / 6.0])], 1e-3);
    let sum = (0..3).map(|i| f64::from(x[0].data[i]).exp()).sum::<f64>().ln();
    let g = node("SoftmaxCrossEntropyLoss", x, &[labels()], none().with("reduction", "none"), 2);
    let got = plain::run(&g, x).unwrap();
    assert!((f64::from(got[0].data[0]) - (sum + 2.0)).abs() < 1e-5 && got[1].shape.dims() == [2, 3]);
}

#[test]
fn attention_is_a_softmax_of_what_is_in_sight() {
    // Two heads of queries share one of keys; a key of the past comes first.
    let [q, k, v] = [noise([1, 2, 3, 4], 1), noise([1, 1, 3, 4], 2), noise([1, 1, 3, 2], 3)];
    let [past_k, past_v] = [noise([1, 1, 1, 4], 4), noise([1, 1, 1, 2], 5)];
    let mut g = Graph::new("test");
    let inputs = [&q, &k, &v, &past_k, &past_v];
    let ids: Vec<Option<Id>> = inputs
        .iter()
        .enumerate()
        .map(|(i, x)| Some(g.input(&format!("x{i}"), x.shape.clone()).unwrap()))
        .collect();
    let given = [ids[0], ids[1], ids[2], None, ids[3], ids[4]];
    let y = g.add_nodes("attention", "Attention", &given, none().with("is_causal", 1), &[true]).unwrap();
    g.output("y", y[0]);
    let key = |j: usize, d: usize| if j == 0 { past_k.data[d] } else { k.data[(j - 1) * 4 + d] };
    let value = |j: usize, d: usize| if j == 0 { past_v.data[d] } else { v.data[(j - 1) * 2 + d] };
    let mut want = vec![];
    for (h, i) in (0..6).map(|n| (n / 3, n % 3)) {
        let score = |j: usize| (0..4).map(|d| q.data[(h * 3 + i) * 4 + d] * key(j, d)).sum::<f32>() / 2.0;
        let weights: Vec<f32> = (0..4).map(|j| if j <= i + 1 { score(j).exp() } else { 0.0 }).collect();
        let sum: f32 = weights.iter().sum();
        want.extend((0..2).map(|d| (0..4).map(|j| weights[j] / sum * value(j, d)).sum::<f32>()));
    }
    let inputs = inputs.map(Clone::clone);
    expect(&g, &inputs, &[tensor(&[1, 2, 3, 2], &want)], 4e-3);
}

#[test]
fn places_are_turned_by_their_angles() {
    let x = tensor(&[1, 1, 2, 4], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
    let x = std::slice::from_ref(&x);
    // The first place stays, the second is turned by a right angle.
    let caches = || {
        [tensor(&[1, 2, 2], &[1.0, 1.0, 0.0, 0.0]).into(), tensor(&[1, 2, 2], &[0.0, 0.0, 1.0, 1.0]).into()]
    };
    for (interleaved, row) in [(0, [-7.0, -8.0, 5.0, 6.0]), (1, [-6.0, 5.0, -8.0, 7.0])] {
        let g = node("RotaryEmbedding", x, &caches(), none().with("interleaved", interleaved), 1);
        let y = [vec![1.0, 2.0, 3.0, 4.0], row.to_vec()].concat();
        expect(&g, x, &[tensor(&[1, 1, 2, 4], &y)], 1e-3);
    }
}

#[test]
fn quantised_numbers_are_rounded_and_held_in_their_type() {
    let x = tensor(&[6], &[-300.0, -1.3, 0.0, 0.7, 2.6, 300.0]);
    let scale = || Constant::from(tensor(&[], &[0.5]));
    for (to, zero, want) in
        [(2, 3, [0.0, 0.0, 3.0, 4.0, 8.0, 255.0]), (3, -2, [-128.0, -5.0, -2.0, -1.0, 3.0, 127.0])]
    {
        let constants = [scale(), ints(&[], &[zero])];
        let g = node("QuantizeLinear", std::slice::from_ref(&x), &constants, none().with("to_type", to), 1);
        expect(&g, std::slice::from_ref(&x), &[tensor(&[6], &want)], 1e-3);
    }
    let x = tensor(&[2, 2], &[10.0, 20.0, 128.0, 255.0]);
    let constants = [tensor(&[2], &[0.1, 2.0]).into(), ints(&[2], &[128, 0])];
    let g = node("DequantizeLinear", std::slice::from_ref(&x), &constants, none(), 1);
    expect(&g, std::slice::from_ref(&x), &[tensor(&[2, 2], &[-11.8, 40.0, 0.0, 510.0])], 1e-3);
}

#[test]
fn a_batch_of_weight_matrices_is_multiplied() {
    let (x, w) = (noise([2, 3, 4], 1), noise([2, 4, 2], 2));
    let g = node("MatMul", std::slice::from_ref(&x), &[w.clone().into()], none(), 1);
    let got = plain::run(&g, std::slice::from_ref(&x)).unwrap();
    let want: f32 = (0..4).map(|k| x.data[(3 + 2) * 4 + k] * w.data[(4 + k) * 2 + 1]).sum();
    assert!((got[0].data[(3 + 2) * 2 + 1] - want).abs() < 1e-6);
    expect(&g, std::slice::from_ref(&x), &got, 1e-3);
}
