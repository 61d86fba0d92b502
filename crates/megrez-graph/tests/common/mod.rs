//! What the tests share: an interpreter of plans on exact integers, small graphs, a writer of ONNX
//! files.

use megrez_engine::float::in_the_clear;
use megrez_engine::local::{self, LocalOptions};
use megrez_graph::{Compiled, FloatCompiled, FloatOptions, Graph, Tensor, compile_floats};
use megrez_plan::{BitMatrices, ConvGeometry, Gives, Op, Plan, View};
use megrez_ring::{Shape, decode_words};
use std::collections::HashMap;

/// Words without a ring: whatever leaves the ring's range is seen.
pub type Words = Tensor<i128>;

fn encode(values: &[f32], frac: u32) -> Vec<i128> {
    values.iter().map(|&v| (f64::from(v) * 2f64.powi(frac as i32)).round() as i128).collect()
}

/// Every value of a run of the plan, truncations rounding down. Panics where a step's words leave
/// the ranges that the plan's ops demand.
pub fn interpret(compiled: &Compiled, inputs: &[Tensor]) -> Vec<Option<Words>> {
    let plan = &compiled.plan;
    plan.validate().expect("compiled plans are valid");
    let mut given: HashMap<&str, &[f32]> =
        compiled.model_inputs.iter().map(|i| (i.name.as_str(), &i.values[..])).collect();
    given.extend(compiled.data_inputs.iter().zip(inputs).map(|(i, t)| (i.name.as_str(), &t.data[..])));
    let mut values: Vec<Option<Words>> = vec![None; plan.values.len()];
    for input in &plan.inputs {
        let value = plan.value(input.value);
        let words = encode(given[input.name.as_str()], frac(plan, input.value.0));
        values[input.value.0 as usize] = Some(Words::new(value.shape.clone(), words));
    }
    for step in &plan.steps {
        let operands: Vec<&Words> =
            step.inputs.iter().map(|i| values[i.0 as usize].as_ref().unwrap()).collect();
        let mut output = apply(&step.op, &operands, plan.ring, &step.name, &plan.value(step.output).shape);
        if may_wrap(&step.name) {
            let unused = i128::BITS - plan.ring;
            output.data.iter_mut().for_each(|w| *w = *w << unused >> unused);
        } else {
            let inside = |w: &i128| w.abs() < 1 << (plan.ring - 1);
            assert!(output.data.iter().all(inside), "{} leaves the ring", step.name);
        }
        values[step.output.0 as usize] = Some(output);
    }
    values
}

/// Whether words of a step may leave the ring where they are not used: of a function by octaves,
/// stretches that are not chosen, and their differences, whose sum is exact modulo 2^ℓ.
fn may_wrap(name: &str) -> bool {
    let part = name.rsplit('/').next().unwrap_or_default();
    ["moved", "moved-back", "moves", "stacked", "table-argument", "table-words", "value", "step", "chosen"]
        .iter()
        .any(|&of| {
            part.strip_prefix(of).is_some_and(|rest| rest.chars().all(|c| c == '-' || c.is_ascii_digit()))
        })
}

pub fn frac(plan: &Plan, id: u32) -> u32 {
    plan.values[id as usize].kind.frac()
}

pub fn decode(words: &Words, frac: u32) -> Vec<f64> {
    words.data.iter().map(|&w| w as f64 / 2f64.powi(frac as i32)).collect()
}

fn apply(op: &Op, inputs: &[&Words], ring: u32, name: &str, shape: &Shape) -> Words {
    let shape = shape.clone();
    let map =
        |f: &dyn Fn(i128) -> i128| Words::new(shape.clone(), inputs[0].data.iter().map(|&w| f(w)).collect());
    match op {
        Op::Constant { words, .. } => Words::new(shape, words.iter().map(|&w| w.into()).collect()),
        Op::Combine { coefficients, constant } => {
            let at = |i: usize| -> i128 {
                coefficients.iter().zip(inputs).map(|(&c, x)| i128::from(c) * x.data[i]).sum::<i128>()
                    + i128::from(*constant)
            };
            Words::new(shape.clone(), (0..shape.elements()).map(at).collect())
        }
        Op::View(view) => inputs[0].view(view),
        Op::Concat { axis } => {
            let outer: usize = shape.dims()[..*axis].iter().product();
            let mut data = vec![];
            for o in 0..outer {
                for x in inputs {
                    let chunk = x.data.len() / outer;
                    data.extend(&x.data[o * chunk..(o + 1) * chunk]);
                }
            }
            Words::new(shape, data)
        }
        Op::Pad { before, .. } => {
            let strides = shape.strides();
            let offset = before.iter().zip(&strides).map(|(b, s)| b * s).sum();
            let strides = strides.iter().map(|&s| s as isize).collect();
            let mut y = Words::filled(shape, 0);
            let inside = View { shape: inputs[0].shape.clone(), strides, offset };
            inside.indices().zip(&inputs[0].data).for_each(|(i, &w)| y.data[i] = w);
            y
        }
        Op::Sum { axis } => {
            let (stride, size) = (inputs[0].shape.strides()[*axis], inputs[0].shape.dims()[*axis]);
            let line = |i: usize| i / stride * stride * size + i % stride;
            let sum = |i: usize| (0..size).map(|k| inputs[0].data[line(i) + k * stride]).sum();
            Words::new(shape.clone(), (0..shape.elements()).map(sum).collect())
        }
        Op::Gather { axis, indices } => {
            let inner = inputs[0].shape.strides()[*axis];
            let slab = inner * inputs[0].shape.dims()[*axis];
            let slabs = inputs[0].data.chunks_exact(slab);
            let data =
                slabs.flat_map(|s| indices.iter().flat_map(move |i| s[i * inner..(i + 1) * inner].to_vec()));
            Words::new(shape, data.collect())
        }
        Op::Rescale { .. } => inputs[0].clone(),
        Op::Mul => {
            let pairs = inputs[0].data.iter().zip(&inputs[1].data);
            Words::new(shape, pairs.map(|(a, b)| a * b).collect())
        }
        Op::MatMul => matmul(inputs[0], inputs[1], shape),
        Op::Conv(geometry) => conv(inputs[0], inputs[1], geometry, shape),
        Op::Truncate { bits } => {
            assert!(inputs[0].data.iter().all(|w| w.abs() < 1 << (ring - 2)), "{name} truncates too much");
            map(&|w| w >> bits)
        }
        Op::Relu(relu) => {
            let spare = u32::from(relu.truncate > 0);
            let limit = (relu.sign.cut + relu.sign.width(ring) - 1).min(ring - 1 - spare);
            assert!(inputs[0].data.iter().all(|w| w.abs() < 1 << limit), "{name} compares too much");
            map(&|w| w.max(0) >> relu.truncate)
        }
        Op::CompareMany { sign, thresholds } => {
            let limit = (sign.cut + sign.width(ring) - 1).min(ring - 1);
            let bits = thresholds.iter().flat_map(|&t| {
                inputs[0].data.iter().map(move |w| {
                    let difference = w - i128::from(t);
                    assert!(difference.abs() < 1 << limit, "{name} compares too much");
                    // A cut reads small negative numbers as 0 with some probability: here always.
                    i128::from(difference > -(1 << sign.cut))
                })
            });
            Words::new(shape, bits.collect())
        }
        Op::NonNegative(sign) => {
            let limit = (sign.cut + sign.width(ring) - 1).min(ring - 1);
            assert!(inputs[0].data.iter().all(|w| w.abs() < 1 << limit), "{name} compares too much");
            map(&|w| i128::from(w >= 0))
        }
        Op::BitToRing => inputs[0].clone(),
        Op::Reshare => inputs[0].clone(),
        Op::LowBit => map(&|w| w & 1),
        Op::BitMatMul => {
            let sizes = BitMatrices::of(&inputs[0].shape, &inputs[1].shape).unwrap();
            let (lanes, columns, rows) = (sizes.lanes(), sizes.columns, sizes.rows);
            let bit = |at: usize| {
                let (l, j) = (at % lanes, at / lanes % columns);
                let (i, b) = (at / lanes / columns % rows, at / lanes / columns / rows);
                let places = (0..sizes.inner).map(|k| sizes.operands([b, i, j, l], k));
                places.fold(0, |sum, [x, y]| sum ^ (inputs[0].data[x] & inputs[1].data[y]))
            };
            Words::new(shape, (0..sizes.elements()).map(bit).collect())
        }
        Op::BitPolynomials { sums } => {
            let n = shape.elements() / sums.len();
            let of = |at: usize| {
                let bit = |&slice: &usize| inputs[0].data[slice * n + at % n];
                sums[at / n].iter().fold(0, |sum, term| sum ^ term.iter().map(bit).product::<i128>())
            };
            Words::new(shape.clone(), (0..shape.elements()).map(of).collect())
        }
        Op::Xor => {
            let pairs = inputs[0].data.iter().zip(&inputs[1].data);
            Words::new(shape, pairs.map(|(a, b)| a ^ b).collect())
        }
        Op::And => {
            let pairs = inputs[0].data.iter().zip(&inputs[1].data);
            Words::new(shape, pairs.map(|(a, b)| a & b).collect())
        }
        Op::Not => Words::new(shape, inputs[0].data.iter().map(|bit| 1 - bit).collect()),
        Op::Maximum(sign) => {
            let limit =
                (1 << (sign.cut + sign.width(ring) - 1)) - if sign.cut == 0 { 1 } else { 2 << sign.cut };
            let largest = |i: usize| {
                let values = || inputs.iter().map(|x| x.data[i]);
                let (low, high) = (values().min().unwrap(), values().max().unwrap());
                assert!(high - low <= limit, "{name} compares too much");
                high
            };
            Words::new(shape.clone(), (0..shape.elements()).map(largest).collect())
        }
        Op::Select { truncate } => {
            let pairs = inputs[0].data.iter().zip(&inputs[1].data);
            Words::new(shape, pairs.map(|(bit, w)| bit * (w >> truncate)).collect())
        }
        Op::MulTruncated { bits } => {
            let all = || inputs.iter().flat_map(|x| &x.data);
            assert!(all().all(|w| w.abs() < 1 << (ring - 2)), "{name} truncates too much");
            let factor = |i: usize| inputs[i].data.iter().map(move |w| w >> bits[i]);
            Words::new(shape, factor(0).zip(factor(bits.len() - 1)).map(|(a, b)| a * b).collect())
        }
        Op::SelectSum { groups } => {
            let inner = shape.elements() / groups.len();
            let chosen = |i: usize| inputs[0].data[i] * inputs[1].data[i];
            let mut first = 0;
            let sums = groups.iter().flat_map(|&n| {
                first += n;
                (0..inner).map(move |k| (first - n..first).map(|row| chosen(row * inner + k)).sum())
            });
            Words::new(shape.clone(), sums.collect())
        }
        // Carries of the masks as they come, now one way and now the other. What a table does not
        // hold is some value of it.
        Op::Lookup(lookup) => {
            let value = |(i, &w): (usize, &i128)| {
                let found = lookup.results(w as u64);
                i128::from((found[i * 7 % 11 % found.len()] as i64) << (64 - ring) >> (64 - ring))
            };
            Words::new(shape, inputs[0].data.iter().enumerate().map(value).collect())
        }
        // Of values whose cut ones are equal, with carries as they come, the first wins.
        Op::Winner(winner) => {
            let (k, x) = (inputs[0].shape.dims()[0], &inputs[0].data);
            let n = x.len() / k;
            let limit =
                (1 << (winner.cut + winner.bits - 1)) - if winner.cut == 0 { 1 } else { 2 << winner.cut };
            let best = |at: usize| {
                let (low, high) = (0..k)
                    .fold((x[at], x[at]), |(low, high), i| (low.min(x[i * n + at]), high.max(x[i * n + at])));
                assert!(high - low <= limit, "{name} compares too much");
                let cut = |i: usize| {
                    let w = x[i * n + at];
                    let carry =
                        winner.cut > 0 && w & ((1 << winner.cut) - 1) != 0 && (i + at).is_multiple_of(3);
                    (w >> winner.cut) + i128::from(carry)
                };
                (1..k).fold(0, |best, i| if cut(i) > cut(best) { i } else { best })
            };
            let winners: Vec<usize> = (0..n).map(best).collect();
            let of = |i: usize| match winner.gives {
                Gives::Value => x[winners[i] * n + i],
                Gives::OneHot => i128::from(winners[i % n] == i / n),
            };
            Words::new(shape.clone(), (0..shape.elements()).map(of).collect())
        }
        Op::Additive(step) => apply(step, inputs, ring, name, &shape),
        other => panic!("{name}: layers do not use {other:?}"),
    }
}

fn matmul(x: &Words, y: &Words, shape: Shape) -> Words {
    let (a, b) = (x.shape.dims(), y.shape.dims());
    let (m, k, n) = (a[a.len() - 2], a[a.len() - 1], b[b.len() - 1]);
    let mut data = vec![];
    for (x, y) in x.data.chunks_exact(m * k).zip(y.data.chunks_exact(k * n)) {
        for i in 0..m {
            data.extend((0..n).map(|j| (0..k).map(|t| x[i * k + t] * y[t * n + j]).sum::<i128>()));
        }
    }
    Words::new(shape, data)
}

fn conv(x: &Words, w: &Words, g: &ConvGeometry, shape: Shape) -> Words {
    let &[n, out, rows, columns] = shape.dims() else { panic!() };
    let &[_, channels, height, width] = x.shape.dims() else { panic!() };
    let &[_, per_group, kh, kw] = w.shape.dims() else { panic!() };
    let mut data = vec![];
    for (b, o, r, q) in (0..n * out * rows * columns)
        .map(|i| (i / (out * rows * columns), i / (rows * columns) % out, i / columns % rows, i % columns))
    {
        let mut sum = 0;
        for (c, i, j) in (0..per_group * kh * kw).map(|t| (t / (kh * kw), t / kw % kh, t % kw)) {
            let row = (r * g.stride[0] + i * g.dilation[0]).wrapping_sub(g.pad[0]);
            let column = (q * g.stride[1] + j * g.dilation[1]).wrapping_sub(g.pad[1]);
            if row < height && column < width {
                let channel = o / (out / g.groups) * per_group + c;
                let weight = w.data[((o * per_group + c) * kh + i) * kw + j];
                sum += weight * x.data[((b * channels + channel) * height + row) * width + column];
            }
        }
        data.push(sum);
    }
    Words::new(shape, data)
}

/// Runs the plan and the graph and compares every layer. `tolerance` is absolute. Also checks the
/// proven ranges.
pub fn check(compiled: &Compiled, inputs: &[Tensor], tolerance: f64) {
    let values = interpret(compiled, inputs);
    let trace = megrez_graph::plain::trace(&compiled.graph, inputs).unwrap();
    assert_eq!(compiled.layers.len(), compiled.graph.nodes.len());
    for (layer, range) in compiled.layers.iter().zip(&compiled.ranges) {
        assert_eq!(layer.frac, frac(&compiled.plan, layer.value.0), "{}", layer.name);
        let got = values[layer.value.0 as usize].as_ref().unwrap();
        let want = trace.value(layer.graph_value).unwrap();
        assert_eq!(got.shape, want.shape, "{}", layer.name);
        for (i, (&g, &w)) in decode(got, layer.frac).iter().zip(&want.data).enumerate() {
            assert!((g - f64::from(w)).abs() <= tolerance, "{}[{i}]: {g} instead of {w}", layer.name);
            assert!(
                !range.proven || (range.output.low <= g && g <= range.output.high),
                "{} {range:?}",
                layer.name
            );
        }
    }
}

/// Compiles for floating point, runs in the clear and compares every layer with the plain one.
pub fn check_floats(graph: &Graph, inputs: &[Tensor]) {
    let compiled = compile_floats(graph, &FloatOptions::default()).unwrap_or_else(|e| panic!("{e}"));
    compiled.plan.validate().unwrap();
    let values = in_the_clear(&compiled.plan, &float_inputs(&compiled, inputs));
    let trace = megrez_graph::plain::trace(&compiled.graph, inputs).unwrap();
    for layer in &compiled.layers {
        let want = trace.value(layer.graph_value).unwrap();
        assert_eq!(*compiled.plan.shape(layer.value), want.shape, "{}", layer.name);
        let largest = want.data.iter().fold(1f32, |m, v| m.max(v.abs()));
        for (i, (g, w)) in values[layer.value.0 as usize].iter().zip(&want.data).enumerate() {
            assert!((g - w).abs() <= 2e-6 * largest, "{}[{i}]: {g} instead of {w}", layer.name);
        }
    }
}

/// The numbers of a plan's inputs, in its order: weights, and data in the graph's order.
pub fn float_inputs(compiled: &FloatCompiled, data: &[Tensor]) -> Vec<Vec<f32>> {
    let numbers = |name: &str| {
        let weights = compiled.model_inputs.iter().find(|w| w.name == name).map(|w| w.values.clone());
        let given = || {
            let place = compiled.data_inputs.iter().position(|d| d.name == name).unwrap();
            let numbers = &data[place].data;
            let Some(rows) = compiled.data_inputs[place].tokens else { return numbers.clone() };
            numbers.iter().flat_map(|&v| (0..rows).map(move |row| f32::from(row == v as usize))).collect()
        };
        weights.unwrap_or_else(given)
    };
    compiled.plan.inputs.iter().map(|i| numbers(&i.name)).collect()
}

/// Numbers in [-1, 1] that look random and are the same in every run.
pub fn noise(shape: impl Into<Shape>, seed: u64) -> Tensor {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x1234_5678;
    let shape = shape.into();
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    let data = (0..shape.elements()).map(|_| next()).collect();
    Tensor { shape, data }
}

/// The names of the plan's steps.
pub fn steps(plan: &Plan) -> Vec<&str> {
    plan.steps.iter().map(|s| s.name.as_str()).collect()
}

/// How many elements a kind of step works on.
pub fn elements(plan: &Plan, is: fn(&Op) -> bool) -> usize {
    plan.steps.iter().filter(|s| is(&s.op)).map(|s| plan.value(s.output).shape.elements()).sum()
}

/// Output of a graph with one input and one output.
pub fn run(graph: &Graph, x: &Tensor) -> Tensor {
    megrez_graph::plain::run(graph, std::slice::from_ref(x)).unwrap().remove(0)
}

/// One node as a graph.
pub mod nodes;
/// Writes ONNX files field by field.
pub mod onnx;
pub mod small;

/// The first output of a run by a protocol, on the words of the plan's inputs.
pub fn first_output(protocol: &str, compiled: &Compiled, words: &HashMap<String, Vec<u64>>) -> Vec<f32> {
    let done = local::run(protocol, &compiled.plan, words, &LocalOptions::default());
    let done = done.unwrap_or_else(|e| panic!("{protocol}: {e}"));
    decode_words(compiled.plan.ring, &done.outputs[0][0], compiled.outputs[0].frac)
}

/// The largest distance of two lists of numbers.
pub fn farthest(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}
