//! Which rows of its inputs every number of a plan depends on. Data is cut into runs, and the last
//! run filled up, only where each row of every output comes from the same row of the inputs;
//! anything else would be another model's result.
//!
//! It follows from the plan alone, so whoever uses a stored model sees it too: one mark per
//! element, joined step by step. A step that is known less exactly marks more, never less.

use megrez_graph::{DataInput, Revealed};
use megrez_plan::{
    BitMatrices, FloatOp, FloatPlan, Gives, Input, KEPT, Op, Output, Plan, ValueId, View, Winner,
};
use megrez_ring::Shape;

/// Depends on no row.
const NONE: u32 = 0;
/// Depends on several rows; row i is i + 1.
const MANY: u32 = u32::MAX;

fn join(a: u32, b: u32) -> u32 {
    match (a, b) {
        (a, NONE) => a,
        (NONE, b) => b,
        (a, b) if a == b => a,
        _ => MANY,
    }
}

/// The marks of a value's elements.
#[derive(Clone, Debug, PartialEq)]
enum Marks {
    /// All are the same, as those of weights.
    Same(u32),
    /// One for each element.
    Each(Vec<u32>),
}

impl Marks {
    fn at(&self, element: usize) -> u32 {
        match self {
            Marks::Same(mark) => *mark,
            Marks::Each(marks) => marks[element],
        }
    }

    fn all(&self) -> u32 {
        match self {
            Marks::Same(mark) => *mark,
            Marks::Each(marks) => marks.iter().copied().fold(NONE, join),
        }
    }
}

/// What a step does to marks.
enum Effect<'a> {
    /// Element by element.
    Element,
    /// Rearranges its first input.
    View(&'a View),
    /// Joins along an axis.
    Concat(usize),
    /// Puts nothing before and after each dimension.
    Pad(&'a [usize]),
    /// Positions along an axis.
    Pick(usize, &'a [usize]),
    /// Elements of all inputs by their places, counted through.
    Places(&'a [u32]),
    /// All along an axis become one; what follows the step's own shape says whether the axis stays.
    Reduce(usize),
    /// Becomes several along a new first dimension.
    Spread,
    /// Every element along the first dimension may depend on all along it.
    Mix,
    /// All along the last dimension become all along the result's.
    Rows,
    /// [.., m, k] · [.., k, n].
    Product,
    /// [batch, m, k, lanes] · [batch, k, n, lanes].
    Lanes,
    /// NCHW by OIHW.
    Images,
    /// Of nothing: known to all, or noise.
    Known,
}

fn effect(op: &Op) -> Effect<'_> {
    match op {
        Op::Constant { .. } | Op::Noise { .. } => Effect::Known,
        Op::View(view) => Effect::View(view),
        Op::Concat { axis } => Effect::Concat(*axis),
        Op::Pad { before, .. } => Effect::Pad(before),
        Op::Sum { axis } => Effect::Reduce(*axis),
        Op::Gather { axis, indices } => Effect::Pick(*axis, indices),
        Op::MatMul => Effect::Product,
        Op::BitMatMul => Effect::Lanes,
        Op::TimesPublic(_) => Effect::Rows,
        Op::Conv(_) => Effect::Images,
        Op::Additive(op) | Op::Offloaded(op) => effect(op),
        Op::CompareMany { .. } | Op::ToBits => Effect::Spread,
        Op::AddBits
        | Op::SelectSum { .. }
        | Op::BitPolynomials { .. }
        | Op::Winner(Winner { gives: Gives::OneHot, .. }) => Effect::Mix,
        Op::FromBits | Op::Winner(_) => Effect::Reduce(0),
        Op::Combine { .. }
        | Op::Rescale { .. }
        | Op::Mul
        | Op::MulTruncated { .. }
        | Op::Truncate { .. }
        | Op::NonNegative(_)
        | Op::Relu(_)
        | Op::Maximum(_)
        | Op::Lookup(_)
        | Op::Reshare
        | Op::Select { .. }
        | Op::BitToRing
        | Op::LowBit
        | Op::Xor
        | Op::And
        | Op::Not => Effect::Element,
    }
}

fn float_effect(op: &FloatOp) -> Effect<'_> {
    match op {
        FloatOp::Map(_) | FloatOp::Pair(_) | FloatOp::Choose => Effect::Element,
        FloatOp::MatMul | FloatOp::Lookup => Effect::Product,
        FloatOp::Sum | FloatOp::Largest => Effect::Reduce(0),
        FloatOp::View(view) => Effect::View(view),
        FloatOp::Gather { places, .. } => Effect::Places(places),
        FloatOp::Constant { .. } => Effect::Known,
    }
}

impl Effect<'_> {
    fn apply(&self, inputs: &[(&Marks, &Shape)], shape: &Shape) -> Marks {
        let every = || inputs.iter().map(|(marks, _)| marks.all()).fold(NONE, join);
        if matches!(self, Effect::Known) {
            return Marks::Same(NONE);
        }
        if inputs.iter().all(|(marks, _)| matches!(marks, Marks::Same(_))) {
            return Marks::Same(every());
        }
        let (x, from) = inputs[0];
        let count = shape.elements();
        let marks: Vec<u32> = match self {
            Effect::Element => {
                (0..count).map(|i| inputs.iter().map(|(m, _)| m.at(i)).fold(NONE, join)).collect()
            }
            Effect::View(view) => view.indices().map(|i| x.at(i)).collect(),
            Effect::Concat(axis) => {
                let (mut out, mut start) = (vec![NONE; count], 0);
                for (marks, from) in inputs {
                    put(&mut out, shape, marks, from, start * shape.strides()[*axis]);
                    start += from.dims()[*axis];
                }
                out
            }
            Effect::Pad(before) => {
                let mut out = vec![NONE; count];
                let offset = before.iter().zip(shape.strides()).map(|(b, s)| b * s).sum();
                put(&mut out, shape, x, from, offset);
                out
            }
            Effect::Pick(axis, indices) => {
                let inner = from.strides()[*axis];
                let size = from.dims()[*axis];
                let place = |i: usize| {
                    let (outer, at, rest) =
                        (i / (inner * indices.len()), i / inner % indices.len(), i % inner);
                    x.at((outer * size + indices[at]) * inner + rest)
                };
                (0..count).map(place).collect()
            }
            Effect::Places(places) => {
                let all: Vec<u32> =
                    inputs.iter().flat_map(|(m, s)| (0..s.elements()).map(|i| m.at(i))).collect();
                places.iter().map(|&p| all.get(p as usize).copied().unwrap_or(NONE)).collect()
            }
            Effect::Reduce(axis) => {
                let (inner, size) = (from.strides()[*axis], from.dims()[*axis]);
                let line = |i: usize| {
                    let start = i / inner * inner * size + i % inner;
                    (0..size).map(|k| x.at(start + k * inner)).fold(NONE, join)
                };
                (0..count).map(line).collect()
            }
            Effect::Spread => (0..count).map(|i| x.at(i % from.elements())).collect(),
            Effect::Mix => {
                let inner = from.strides()[0];
                let line = |i: usize| {
                    let places = (0..from.dims()[0]).map(|k| k * inner + i);
                    places.flat_map(|p| inputs.iter().map(move |(m, _)| m.at(p))).fold(NONE, join)
                };
                let once: Vec<u32> = (0..inner).map(line).collect();
                (0..count).map(|i| once[i % inner]).collect()
            }
            Effect::Rows => {
                let (Some(&k), Some(&n)) = (from.dims().last(), shape.dims().last()) else {
                    return Marks::Same(every());
                };
                let row = |r: usize| (0..k).map(|i| x.at(r * k + i)).fold(NONE, join);
                let rows: Vec<u32> = (0..from.elements() / k).map(row).collect();
                (0..count).map(|i| rows[i / n]).collect()
            }
            Effect::Product => {
                let (y, other) = inputs[1];
                let (&[.., m, k], &[.., n]) = (from.dims(), other.dims()) else {
                    return Marks::Same(every());
                };
                let row = |r: usize| (0..k).map(|i| x.at(r * k + i)).fold(NONE, join);
                let rows: Vec<u32> = (0..from.elements() / k).map(row).collect();
                let column = |c: usize| {
                    let start = c / n * n * k + c % n;
                    (0..k).map(|i| y.at(start + i * n)).fold(NONE, join)
                };
                let columns: Vec<u32> = match y {
                    Marks::Same(mark) => vec![*mark; other.elements() / k],
                    Marks::Each(_) => (0..other.elements() / k).map(column).collect(),
                };
                (0..count).map(|i| join(rows[i / n], columns[i / (m * n) * n + i % n])).collect()
            }
            Effect::Lanes => {
                let (y, other) = inputs[1];
                let Some(sizes) = BitMatrices::of(from, other) else { return Marks::Same(every()) };
                let (lanes, columns, rows) = (sizes.lanes(), sizes.columns, sizes.rows);
                let [of_x, of_y] = sizes.lanes;
                // All of each row of x, lane by lane, and of each column of y.
                let all = |marks: &Marks, n: usize, first: &dyn Fn(usize) -> usize, apart: usize| match marks
                {
                    Marks::Same(mark) => vec![*mark; n],
                    Marks::Each(marks) => (0..n)
                        .map(|at| (0..sizes.inner).map(|k| marks[first(at) + k * apart]).fold(NONE, join))
                        .collect(),
                };
                let row = |at: usize| at / of_x * sizes.inner * of_x + at % of_x;
                let x = all(x, sizes.batch * rows * of_x, &row, of_x);
                let width = columns * of_y;
                let column = |at: usize| at / width * sizes.inner * width + at % width;
                let y = all(y, sizes.batch * width, &column, width);
                let lane = |of: usize, l: usize| if of == 1 { 0 } else { l };
                let mark = |at: usize| {
                    let (l, j) = (at % lanes, at / lanes % columns);
                    let (row, batch) = (at / lanes / columns, at / lanes / columns / rows);
                    join(x[row * of_x + lane(of_x, l)], y[(batch * columns + j) * of_y + lane(of_y, l)])
                };
                (0..count).map(mark).collect()
            }
            Effect::Images => {
                let weights = inputs[1].0.all();
                let (images, image) = (from.dims()[0], from.elements() / from.dims()[0]);
                let mark = |n: usize| (0..image).map(|i| x.at(n * image + i)).fold(weights, join);
                let marks: Vec<u32> = (0..images).map(mark).collect();
                (0..count).map(|i| marks[i / (count / images)]).collect()
            }
            Effect::Known => unreachable!("returned above"),
        };
        Marks::Each(marks)
    }
}

/// Puts a value's marks into a larger one's, from an offset.
fn put(out: &mut [u32], shape: &Shape, marks: &Marks, from: &Shape, offset: usize) {
    let strides = shape.strides().iter().map(|&s| s as isize).collect();
    let places = View { shape: from.clone(), strides, offset };
    places.indices().enumerate().for_each(|(i, place)| out[place] = marks.at(i));
}

/// Walks a plan: the marks of its outputs.
fn walk<'a>(
    shapes: &[&Shape],
    inputs: &[Input],
    data: &[DataInput],
    steps: impl Iterator<Item = (Effect<'a>, &'a [ValueId], ValueId)>,
    outputs: &[Output],
) -> Vec<Marks> {
    let mut marks: Vec<Option<Marks>> = vec![None; shapes.len()];
    for input in inputs {
        let place = input.value.0 as usize;
        let rows = data.iter().find(|d| d.name == input.name).and_then(|d| d.shape.dims().first().copied());
        let of_data = data.iter().any(|d| d.name == input.name);
        let elements = shapes[place].elements();
        marks[place] = Some(match rows.filter(|rows| elements > 0 && elements.is_multiple_of(*rows)) {
            Some(rows) => Marks::Each((0..elements).map(|i| (i / (elements / rows)) as u32 + 1).collect()),
            None => Marks::Same(if of_data { MANY } else { NONE }),
        });
    }
    let steps: Vec<_> = steps.collect();
    let mut left = vec![0usize; shapes.len()];
    steps.iter().flat_map(|(_, from, _)| from.iter()).for_each(|id| left[id.0 as usize] += 1);
    outputs.iter().for_each(|o| left[o.value.0 as usize] += 1);
    for (effect, from, to) in steps {
        let operands: Vec<(&Marks, &Shape)> = from
            .iter()
            .map(|id| {
                (marks[id.0 as usize].as_ref().expect("defined before it is used"), shapes[id.0 as usize])
            })
            .collect();
        marks[to.0 as usize] = Some(effect.apply(&operands, shapes[to.0 as usize]));
        for id in from {
            left[id.0 as usize] -= 1;
            if left[id.0 as usize] == 0 {
                marks[id.0 as usize] = None;
            }
        }
    }
    outputs.iter().map(|o| marks[o.value.0 as usize].clone().expect("an output of the plan")).collect()
}

/// Whether each row of an output comes from the same row of the inputs, of which a run takes
/// `rows`.
fn by_row(marks: &Marks, output: &Revealed, rows: usize) -> bool {
    // What the recipient does along the first dimension mixes rows.
    let within = output.after.iter().all(|after| after.axis() != Some(0));
    within && apart(marks, &output.shape, rows)
}

/// Whether row i along the first dimension depends on no other row of the `rows`.
fn apart(marks: &Marks, shape: &Shape, rows: usize) -> bool {
    let row = shape.elements() / rows.max(1);
    shape.dims().first() == Some(&rows)
        && (0..shape.elements()).all(|i| [NONE, (i / row) as u32 + 1].contains(&marks.at(i)))
}

/// Which rows the elements of a value depend on.
pub(crate) struct Depends(Marks);

impl Depends {
    /// Of some values of a plan.
    pub(crate) fn of(plan: &Plan, data: &[DataInput], values: &[ValueId]) -> Vec<Depends> {
        let shapes: Vec<&Shape> = plan.values.iter().map(|v| &v.shape).collect();
        let steps = plan.steps.iter().map(|s| (effect(&s.op), &s.inputs[..], s.output));
        let output = |&value: &ValueId| Output { name: String::new(), recipient: String::new(), value };
        let outputs: Vec<Output> = values.iter().map(output).collect();
        walk(&shapes, &plan.inputs, data, steps, &outputs).into_iter().map(Depends).collect()
    }

    /// Whether row i along the first dimension depends on no other row of the `rows`.
    pub(crate) fn by_row(&self, shape: &Shape, rows: usize) -> bool {
        apart(&self.0, shape, rows)
    }
}

/// The first output of a plan that is not made row by row, of the `rows` of a run.
pub(crate) fn mixed<'o>(
    plan: &Plan,
    data: &[DataInput],
    outputs: &'o [Revealed],
    rows: usize,
) -> Option<&'o Revealed> {
    let shapes: Vec<&Shape> = plan.values.iter().map(|v| &v.shape).collect();
    let steps = plan.steps.iter().map(|s| (effect(&s.op), &s.inputs[..], s.output));
    let revealed: Vec<Output> = plan.outputs.iter().filter(|o| o.recipient != KEPT).cloned().collect();
    let marks = walk(&shapes, &plan.inputs, data, steps, &revealed);
    outputs.iter().zip(&marks).find(|(output, marks)| !by_row(marks, output, rows)).map(|(output, _)| output)
}

/// As [`mixed`], of a plan of floating point.
pub(crate) fn mixed_floats<'o>(
    plan: &FloatPlan,
    data: &[DataInput],
    outputs: &'o [Revealed],
    rows: usize,
) -> Option<&'o Revealed> {
    let shapes: Vec<&Shape> = plan.values.iter().collect();
    let steps = plan.steps.iter().map(|s| (float_effect(&s.op), &s.inputs[..], s.output));
    let revealed: Vec<Output> = plan.outputs.iter().filter(|o| o.recipient != KEPT).cloned().collect();
    let marks = walk(&shapes, &plan.inputs, data, steps, &revealed);
    outputs.iter().zip(&marks).find(|(output, marks)| !by_row(marks, output, rows)).map(|(output, _)| output)
}

#[cfg(test)]
mod tests {
    use super::*;
    use megrez_graph::{
        Attributes, CompileOptions, FloatOptions, Graph, RangePolicy, Tensor, compile, compile_floats,
        models, plain,
    };

    fn none() -> Attributes {
        Attributes::none()
    }

    /// Whether all outputs are made row by row, by both kinds of plans, where there is one of that
    /// kind.
    fn rows(graph: &Graph, size: usize) -> bool {
        let options = CompileOptions { policy: RangePolicy::Assume, ..CompileOptions::default() };
        let fixed =
            compile(graph, &options).ok().map(|c| mixed(&c.plan, &c.data_inputs, &c.outputs, size).is_none());
        let sums = CompileOptions { defer_resharing: true, ..options };
        let sums =
            compile(graph, &sums).ok().map(|c| mixed(&c.plan, &c.data_inputs, &c.outputs, size).is_none());
        let float = compile_floats(graph, &FloatOptions::default()).ok();
        let float = float.map(|c| mixed_floats(&c.plan, &c.data_inputs, &c.outputs, size).is_none());
        let all: Vec<bool> = [fixed, sums, float].into_iter().flatten().collect();
        assert!(!all.is_empty() && all.iter().all(|&a| a == all[0]), "{all:?}");
        all[0]
    }

    fn small(build: impl Fn(&mut Graph, megrez_graph::Id) -> megrez_graph::Id) -> Graph {
        let mut g = Graph::new("small");
        let x = g.input("x", [3, 4]).unwrap();
        let y = build(&mut g, x);
        g.output("y", y);
        g
    }

    #[test]
    fn lanes_of_matrices_of_bits_stay_apart() {
        let apply = |x: Marks, from: [usize; 4], y: Marks, other: [usize; 4]| {
            let shape = BitMatrices::of(&from.into(), &other.into()).unwrap().output();
            Effect::Lanes.apply(&[(&x, &from.into()), (&y, &other.into())], &shape)
        };
        // Weights by rows in lanes.
        let rows = Marks::Each(vec![1, 2, 3, 1, NONE, 3]);
        let found = apply(Marks::Same(NONE), [1, 2, 2, 1], rows.clone(), [1, 2, 1, 3]);
        assert_eq!(found, Marks::Each(vec![1, 2, 3, 1, 2, 3]));
        let found = apply(rows, [1, 1, 2, 3], Marks::Each(vec![NONE, NONE, NONE, 2]), [1, 2, 2, 1]);
        assert_eq!(found, Marks::Each(vec![1, 2, 3, MANY, 2, MANY]));
        // Pairs of matrices, the second of two rows.
        let x = Marks::Each(vec![1, 1, 2, 4]);
        assert_eq!(
            apply(x, [2, 1, 2, 1], Marks::Each(vec![1, 1, 2, 2]), [2, 2, 1, 1]),
            Marks::Each(vec![1, MANY])
        );
    }

    #[test]
    fn rows_that_are_mixed_are_found() {
        let w = || Tensor::new([4, 3], (0..12).map(|i| i as f32 / 12.0).collect());
        let along = |axis: i64| none().with("axes", [axis]).with("keepdims", 1);
        type Build = Box<dyn Fn(&mut Graph, megrez_graph::Id) -> megrez_graph::Id>;
        let cases: Vec<(&str, bool, Build)> = vec![
            ("relu", true, Box::new(|g, x| g.add("y", "Relu", &[x], none()).unwrap())),
            (
                "product",
                true,
                Box::new(move |g, x| {
                    let w = g.constant("w", w());
                    g.add("y", "MatMul", &[x, w], none()).unwrap()
                }),
            ),
            ("transposed", false, Box::new(|g, x| g.add("y", "Transpose", &[x], none()).unwrap())),
            (
                "gram",
                false,
                Box::new(|g, x| {
                    let t = g.add("t", "Transpose", &[x], none()).unwrap();
                    g.add("y", "MatMul", &[x, t], none()).unwrap()
                }),
            ),
            (
                "twice",
                true,
                Box::new(|g, x| {
                    let t = g.add("t", "Transpose", &[x], none()).unwrap();
                    g.add("y", "Transpose", &[t], none()).unwrap()
                }),
            ),
            (
                "mean of a row",
                true,
                Box::new(move |g, x| {
                    let m = g.add("m", "ReduceMean", &[x], along(1)).unwrap();
                    g.add("y", "Sub", &[x, m], none()).unwrap()
                }),
            ),
            (
                "mean of the batch",
                false,
                Box::new(move |g, x| {
                    let m = g.add("m", "ReduceMean", &[x], along(0)).unwrap();
                    g.add("y", "Sub", &[x, m], none()).unwrap()
                }),
            ),
            (
                "reversed",
                false,
                Box::new(|g, x| {
                    let at = g.constant("at", Tensor::new([3], vec![2i64, 1, 0]));
                    g.add("y", "Gather", &[x, at], none().with("axis", 0)).unwrap()
                }),
            ),
            (
                "softmax of a row",
                true,
                Box::new(|g, x| g.add("y", "Softmax", &[x], none().with("axis", 1)).unwrap()),
            ),
            (
                "softmax of the batch",
                false,
                Box::new(|g, x| g.add("y", "Softmax", &[x], none().with("axis", 0)).unwrap()),
            ),
            (
                "class",
                true,
                Box::new(|g, x| {
                    g.add("y", "ArgMax", &[x], none().with("axis", 1).with("keepdims", 0)).unwrap()
                }),
            ),
            (
                "of the batch",
                false,
                Box::new(|g, x| {
                    g.add("y", "ArgMax", &[x], none().with("axis", 0).with("keepdims", 0)).unwrap()
                }),
            ),
            ("joined", true, Box::new(|g, x| g.add("y", "Concat", &[x, x], none().with("axis", 1)).unwrap())),
            (
                "stacked",
                false,
                Box::new(|g, x| g.add("y", "Concat", &[x, x], none().with("axis", 0)).unwrap()),
            ),
        ];
        for (name, expected, build) in cases {
            assert_eq!(rows(&small(build), 3), expected, "{name}");
        }
    }

    #[test]
    fn networks_are_made_row_by_row() {
        for name in ["lenet", "net-a", "net-c"] {
            assert!(rows(&models::build(name, 2, 1).unwrap(), 2), "{name}");
        }
    }

    #[test]
    fn trees_are_walked_row_by_row() {
        let texts =
            |list: &[&str]| megrez_graph::Attribute::Strings(list.iter().map(ToString::to_string).collect());
        let floats = |list: &[f32]| megrez_graph::Attribute::Floats(list.to_vec());
        let attributes = none()
            .with("nodes_treeids", [0i64; 5])
            .with("nodes_nodeids", [0i64, 1, 2, 3, 4])
            .with("nodes_featureids", [1i64, 0, 0, 0, 0])
            .with("nodes_modes", texts(&["BRANCH_LEQ", "BRANCH_GT", "LEAF", "LEAF", "LEAF"]))
            .with("nodes_values", floats(&[0.5, 0.25, 0.0, 0.0, 0.0]))
            .with("nodes_truenodeids", [1i64, 3, 0, 0, 0])
            .with("nodes_falsenodeids", [2i64, 4, 0, 0, 0])
            .with("target_treeids", [0i64; 3])
            .with("target_nodeids", [2i64, 3, 4])
            .with("target_ids", [0i64, 1, 0])
            .with("target_weights", floats(&[1.0, 2.0, 3.0]))
            .with("n_targets", 2);
        let graph = small(|g, x| g.add("y", "TreeEnsembleRegressor", &[x], attributes.clone()).unwrap());
        for trees in [megrez_graph::TreeForm::Hidden, megrez_graph::TreeForm::Shape] {
            let compiled = compile(&graph, &CompileOptions { trees, ..CompileOptions::default() }).unwrap();
            assert!(mixed(&compiled.plan, &compiled.data_inputs, &compiled.outputs, 3).is_none());
        }
    }

    /// What a row of the outputs is marked with is all that it changes with.
    #[test]
    fn marks_leave_nothing_out() {
        let graph = small(|g, x| {
            let w = g.constant("w", Tensor::new([4, 4], (0..16).map(|i| (i as f32).sin()).collect()));
            let h = g.add("h", "MatMul", &[x, w], none()).unwrap();
            let at = g.constant("at", Tensor::new([2], vec![0i64, 2]));
            let p = g.add("p", "Gather", &[h, at], none().with("axis", 0)).unwrap();
            let s = g.add("s", "ReduceSum", &[p], none().with("keepdims", 1).with("axes", [0])).unwrap();
            let c = g.add("c", "Concat", &[h, s], none().with("axis", 0)).unwrap();
            g.add("y", "Tanh", &[c], none()).unwrap()
        });
        let options = CompileOptions { policy: RangePolicy::Assume, ..CompileOptions::default() };
        let compiled = compile(&graph, &options).unwrap();
        let shapes: Vec<&Shape> = compiled.plan.values.iter().map(|v| &v.shape).collect();
        let steps = compiled.plan.steps.iter().map(|s| (effect(&s.op), &s.inputs[..], s.output));
        let marks =
            walk(&shapes, &compiled.plan.inputs, &compiled.data_inputs, steps, &compiled.plan.outputs);
        let data = |changed: Option<usize>| {
            let values = (0..12).map(|i| if Some(i / 4) == changed { 0.9 } else { i as f32 / 12.0 });
            plain::run(&compiled.graph, &[Tensor::new([3, 4], values.collect())]).unwrap().remove(0).data
        };
        let before = data(None);
        for row in 0..3 {
            for (i, (a, b)) in before.iter().zip(data(Some(row))).enumerate() {
                let marked = [row as u32 + 1, MANY].contains(&marks[0].at(i));
                assert_eq!(
                    *a != b,
                    marked && (i < 12 || row != 1),
                    "element {i}, row {row}: {:?}",
                    marks[0].at(i)
                );
            }
        }
        assert_eq!([marks[0].at(0), marks[0].at(4), marks[0].at(12)], [1, 2, MANY]);
    }
}
