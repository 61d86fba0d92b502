//! How many rounds and bytes networks take, by the formulas of the steps; and how near their
//! numbers are.

use crate::common::{decode, interpret, noise};
use megrez_engine::PlanCost;
use megrez_graph::{
    Activations, Attributes, Comparison, CompileOptions, Compiled, Graph, Interval, ListStyle, RangePolicy,
    Tensor, calibrate, compile, models,
};
use megrez_plan::{Fewest, ReluForm};
use megrez_protocols::registry;
use megrez_session::Phase;

/// As `megrez bench model` compiles them.
fn compiled(model: &str, protocol: &str, activations: Activations) -> Compiled {
    let graph = models::build(model, 1, 1).unwrap();
    let list = ListStyle::Digits(Fewest::Total);
    let options = CompileOptions {
        activations,
        policy: RangePolicy::Assume,
        comparison: Comparison::Fitted { list, bits: None, calibration: None },
        defer_resharing: registry::find(protocol).unwrap().deferred_resharing,
        multiplies_truncated: registry::find(protocol).unwrap().multiplies_truncated,
        ..CompileOptions::default()
    };
    compile(&graph, &options).unwrap_or_else(|p| panic!("{p}"))
}

fn cost(protocol: &str, compiled: &Compiled) -> PlanCost {
    let suite = megrez_engine::local::suite(protocol, compiled.plan.ring).unwrap();
    megrez_engine::check(&*suite, &compiled.plan).unwrap()
}

fn rounds(cost: &PlanCost) -> u32 {
    cost.rounds(Phase::Online)
}

/// The figures of a block in docs/activations.md.
#[test]
fn rounds_of_a_block_are_as_the_docs_say() {
    let figures = [
        (Activations::Minimax, [75, 114, 96]),
        (Activations::Fine, [76, 115, 97]),
        (Activations::Lookup, [35, 61, 47]),
        (Activations::Tables, [35, 61, 47]),
    ];
    for (activations, wanted) in figures {
        let found = ["mizar", "aby3", "alkaid"]
            .map(|protocol| rounds(&cost(protocol, &compiled("gpt2-block", protocol, activations))));
        assert_eq!(found, wanted, "{activations:?}");
    }
}

/// Where messages take as long as on a wan, as the docs say, too.
#[test]
fn a_block_takes_fewer_rounds_where_they_take_long() {
    let of = |protocol: &str| {
        let list = ListStyle::Digits(Fewest::Total);
        let options = CompileOptions {
            activations: Activations::Tables,
            policy: RangePolicy::Assume,
            comparison: Comparison::Fitted { list, bits: None, calibration: None },
            defer_resharing: registry::find(protocol).unwrap().deferred_resharing,
            relu: ReluForm::Key,
            delay_ns: 25_000_000,
            multiplies_truncated: registry::find(protocol).unwrap().multiplies_truncated,
            mib_ns: 52_428_800,
            ..CompileOptions::default()
        };
        compile(&models::build("gpt2-block", 1, 1).unwrap(), &options).unwrap_or_else(|p| panic!("{p}"))
    };
    let found = ["mizar", "aby3", "alkaid"].map(|protocol| rounds(&cost(protocol, &of(protocol))));
    assert_eq!(found, [25, 53, 43]);
}

/// The largest errors of a block's output there.
#[test]
fn a_block_is_as_near_as_the_docs_say() {
    let x = noise([8, 768], 7);
    for (activations, most) in
        [(Activations::Minimax, 1.5e-3), (Activations::Fine, 4e-4), (Activations::Tables, 4e-4)]
    {
        let compiled = compiled("gpt2-block", "mizar", activations);
        let values = interpret(&compiled, std::slice::from_ref(&x));
        let trace = megrez_graph::plain::trace(&compiled.graph, std::slice::from_ref(&x)).unwrap();
        let last = compiled.layers.last().unwrap();
        let got = decode(values[last.value.0 as usize].as_ref().unwrap(), last.frac);
        let want = trace.value(last.graph_value).unwrap();
        let off = got.iter().zip(&want.data).map(|(g, &w)| (g - f64::from(w)).abs()).fold(0.0, f64::max);
        assert!(off > 0.0 && off < most, "{activations:?}: {off:.1e}");
    }
}

/// The gradient of cross-entropy, of logits that were measured: its rounds, and how near it is to
/// the clear, with logits close to each other and far apart.
#[test]
fn the_gradient_of_cross_entropy_takes_few_rounds() {
    // Far apart, powers are compared with the end of their table, unless a round is dear: then a
    // key gives them wherever they lie. More than 16 meet in a tournament.
    for (classes, largest, delay_ns, wanted) in [
        (2, 3.0f32, 0, 5..=5),
        (3, 4.0, 0, 5..=5),
        (10, 4.0, 0, 6..=6),
        (10, 6.0, 0, 8..=8),
        (16, 6.0, 0, 9..=10),
        (17, 6.0, 0, 11..=20),
        (10, 4.0, 20_000_000, 5..=5),
        (10, 6.0, 20_000_000, 5..=5),
        (16, 6.0, 20_000_000, 5..=5),
        (10, 16.0, 20_000_000, 5..=5),
    ] {
        let rows = 12;
        let mut graph = Graph::new("gradient");
        let shape = [rows, classes];
        let (z, y) = (graph.input("z", shape).unwrap(), graph.input("y", shape).unwrap());
        let p = graph.add("p", "SoftmaxCrossEntropy", &[z, y], Attributes::none()).unwrap();
        graph.output("gradient", p);
        let spread = |i: usize| ((i * 7919 % 1009) as f32 / 504.5 - 1.0) * largest;
        let mut logits: Vec<f32> = (0..rows * classes).map(spread).collect();
        // All equal, nearly equal, and one far above the others.
        logits[..classes].fill(1.25);
        logits[classes..2 * classes].iter_mut().enumerate().for_each(|(i, z)| *z = i as f32 / 4096.0);
        logits[2 * classes..3 * classes].fill(-largest);
        logits[3 * classes - 1] = largest;
        let one_hot = |i: usize| f32::from(u8::from(i % classes == i / classes % classes));
        let data = [
            Tensor::new(shape, logits),
            Tensor::new(shape, (0..rows * classes).map(one_hot).collect::<Vec<_>>()),
        ];
        let measured = calibrate::calibrate(&graph, [data.to_vec()], 4.0).unwrap();
        let options = CompileOptions {
            activations: Activations::Tables,
            policy: RangePolicy::Calibrated,
            comparison: Comparison::Fitted {
                list: ListStyle::Digits(Fewest::Total),
                bits: None,
                calibration: Some(measured.clone()),
            },
            measured: Some(measured),
            input_range: Interval::abs(f64::from(4.0 * largest)),
            delay_ns,
            ..CompileOptions::default()
        };
        let compiled = compile(&graph, &options).unwrap();
        let found = rounds(&cost("mizar", &compiled));
        assert!(wanted.contains(&found), "{classes} classes within {largest}: {found} rounds");
        let values = interpret(&compiled, &data);
        let last = compiled.layers.last().unwrap();
        let got = decode(values[last.value.0 as usize].as_ref().unwrap(), last.frac);
        let want = megrez_graph::plain::run(&graph, &data).unwrap().remove(0);
        let off = got.iter().zip(&want.data).map(|(g, &w)| (g - f64::from(w)).abs()).fold(0.0, f64::max);
        assert!(off < 2e-4, "{classes} classes: {off:.1e}");
    }
}

/// With ranges that the plan may show, a step of an LSTM takes a round for each of its functions
/// and products, and no truncation waits: the product with the state, its gates, the new cell, the
/// tangent of that, the new state.
#[test]
fn a_step_of_an_lstm_takes_five_rounds() {
    let (hidden, inputs) = (16, 8);
    let compiled = |steps: usize, activations: Activations, guard: bool| {
        let mut graph = Graph::new("lstm");
        let x = graph.input("x", [steps, 1, inputs]).unwrap();
        let small = |shape: [usize; 3], seed: u64| {
            let t = noise(shape, seed);
            Tensor { data: t.data.iter().map(|v| v / 4.0).collect(), ..t }
        };
        let w = graph.constant("w", small([1, 4 * hidden, inputs], 1));
        let r = graph.constant("r", small([1, 4 * hidden, hidden], 2));
        let attributes = Attributes::none().with("hidden_size", hidden as i64);
        let given = [Some(x), Some(w), Some(r)];
        let states = graph.add_nodes("lstm", "LSTM", &given, attributes, &[false, true]).unwrap();
        let d = graph.constant("d", Tensor { shape: [hidden, 3].into(), ..small([1, hidden, 3], 3) });
        let y = graph.add("out", "MatMul", &[states[1], d], Attributes::none()).unwrap();
        graph.output("y", y);
        let data = vec![noise([steps, 1, inputs], 4)];
        let measured = calibrate::calibrate(&graph, [data.clone()], 2.0).unwrap();
        let options = CompileOptions {
            activations,
            policy: if guard { RangePolicy::Calibrated } else { RangePolicy::Prove },
            comparison: Comparison::Fitted {
                list: ListStyle::Digits(Fewest::Total),
                bits: None,
                calibration: guard.then(|| measured.clone()),
            },
            measured: guard.then_some(measured),
            guard,
            // As on a wan.
            delay_ns: 20_000_000,
            ..CompileOptions::default()
        };
        (compile(&graph, &options).unwrap_or_else(|p| panic!("{p}")), graph, data)
    };
    // The guard's comparisons come after the last step. What is proven of a cell grows with the
    // steps, and the tables of its tangent with that, until lines on their segments are too coarse.
    for (activations, guard, steps, most) in [
        (Activations::Tables, true, 24, 5 * 24 + 10),
        (Activations::Lookup, false, 8, 5 * 8 + 2),
        (Activations::Lookup, false, 24, 6 * 24 + 2),
    ] {
        let found = rounds(&cost("mizar", &compiled(steps, activations, guard).0));
        assert!(
            found >= 5 * steps as u32 && found <= most,
            "{activations:?}: {found} rounds of {steps} steps"
        );
    }
    for (activations, guard) in [(Activations::Tables, true), (Activations::Lookup, false)] {
        let (compiled, graph, data) = compiled(14, activations, guard);
        let values = interpret(&compiled, &data);
        let last = compiled.layers.last().unwrap();
        let got = decode(values[last.value.0 as usize].as_ref().unwrap(), last.frac);
        let want = megrez_graph::plain::run(&graph, &data).unwrap().remove(0);
        let off = got.iter().zip(&want.data).map(|(g, &w)| (g - f64::from(w)).abs()).fold(0.0, f64::max);
        assert!(off > 0.0 && off < 1e-3, "{off:.1e}");
        let outside = compiled.plan.outputs.iter().find(|output| output.name == "out of range");
        let outside = outside.map(|output| decode(values[output.value.0 as usize].as_ref().unwrap(), 0));
        assert_eq!(outside, guard.then(|| vec![0.0]), "all values were in range");
    }
    // Where the plan may not show ranges, nothing depends on them.
    let (plain, _, _) = compiled(4, Activations::Tables, false);
    assert_eq!(rounds(&cost("mizar", &plain)), 40);
}

/// Where ranges may show, what a softmax gives is multiplied before it is truncated: a round less,
/// and as near.
#[test]
fn a_softmax_is_multiplied_before_it_is_truncated() {
    let mut graph = Graph::new("attention");
    let (z, v) = (graph.input("z", [8, 8]).unwrap(), graph.input("v", [8, 16]).unwrap());
    let p = graph.add("p", "Softmax", &[z], Attributes::none()).unwrap();
    let y = graph.add("y", "MatMul", &[p, v], Attributes::none()).unwrap();
    graph.output("y", y);
    let of = |activations| {
        let list = ListStyle::Digits(Fewest::Total);
        let options = CompileOptions {
            activations,
            input_range: Interval { low: -4.0, high: 4.0 },
            comparison: Comparison::Fitted { list, bits: None, calibration: None },
            multiplies_truncated: true,
            relu: ReluForm::Key,
            delay_ns: 25_000_000,
            mib_ns: 52_428_800,
            ..CompileOptions::default()
        };
        compile(&graph, &options).unwrap_or_else(|p| panic!("{p}"))
    };
    let inputs = [noise([8, 8], 3), noise([8, 16], 4)]
        .map(|x| Tensor::new(x.shape.clone(), x.data.iter().map(|v| v.clamp(-1.0, 1.0) * 4.0).collect()));
    let trace = megrez_graph::plain::trace(&graph, &inputs).unwrap();
    for (activations, wanted) in [(Activations::Tables, 8), (Activations::Lookup, 7)] {
        let compiled = of(activations);
        assert_eq!(rounds(&cost("mizar", &compiled)), wanted, "{activations:?}");
        let values = interpret(&compiled, &inputs);
        let last = compiled.layers.last().unwrap();
        let got = decode(values[last.value.0 as usize].as_ref().unwrap(), last.frac);
        let want = &trace.value(last.graph_value).unwrap().data;
        let off = got.iter().zip(want).map(|(g, &w)| (g - f64::from(w)).abs()).fold(0.0, f64::max);
        assert!(off > 0.0 && off < 1e-3, "{activations:?}: {off:.1e}");
    }
}
