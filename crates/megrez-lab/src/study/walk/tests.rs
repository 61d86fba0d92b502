use super::*;
use megrez::choices::List as Lists;
use megrez::fixed::decode_output;
use megrez::request::fitted;
use megrez::{Backend, RunOptions};
use megrez_graph::{
    Attributes, Comparison, CompileOptions, Graph, Interval, PoolForm, RangePolicy, models, plain,
};
use megrez_plan::ReluForm;

fn model(network: &str, size: usize, options: CompileOptions) -> FixedModel {
    of_graph(&models::build(network, size, 1).unwrap(), options)
}

fn of_graph(graph: &Graph, options: CompileOptions) -> FixedModel {
    let options = CompileOptions { policy: RangePolicy::Assume, input_range: Interval::abs(1.0), ..options };
    FixedModel::new(graph, megrez_service::embedded::CLIENT, &options).unwrap()
}

/// A pool and every spline, on values of both signs.
fn smooth() -> Graph {
    let mut graph = Graph::new("smooth");
    let mut y = graph.input("x", [1, 2, 8, 8]).unwrap();
    let weights =
        Floats::new([2, 2, 3, 3], (0..36).map(|i| (i * 7 % 11) as f32 / 5.0 - 1.0).collect::<Vec<_>>());
    let w = graph.constant("w", weights);
    y = graph.add("conv", "Conv", &[y, w], Attributes::none()).unwrap();
    y = graph.add("pool", "MaxPool", &[y], Attributes::none().with("kernel_shape", [2, 2])).unwrap();
    for op in ["Gelu", "Tanh", "Swish", "Sigmoid"] {
        y = graph.add(op, op, &[y], Attributes::none()).unwrap();
    }
    graph.output("y", y);
    graph
}

fn rows(input: &DataInput, seed: usize) -> Floats {
    let values = (0..input.shape.elements()).map(|i| ((i * 37 + seed * 11) % 101) as f32 / 101.0);
    Floats::new(input.shape.clone(), values.collect::<Vec<f32>>())
}

/// The outputs of a run under a protocol of the registry.
fn under(protocol: &str, model: &FixedModel, seed: usize) -> Floats {
    let options = RunOptions { insecure: true, ..RunOptions::new(protocol) };
    let words = |run: u32, input: &megrez_plan::Input| {
        Ok(model.words(run, input, &|_, input| Ok(rows(input, seed)))?)
    };
    let plan = &model.compiled.plan;
    let outcome = Backend::threads().run(plan, &options, &words, &|_| {}).unwrap();
    decode_output(plan.ring, &model.compiled.outputs[0], &outcome.outputs[0][0])
}

fn walked(model: &FixedModel, rules: &Rules, seed: usize) -> (Floats, Counts) {
    let mut walker = Walker::new(model, rules).unwrap();
    let output = walker.run(&|_, input| Ok(rows(input, seed))).unwrap().remove(0);
    (output, walker.counts())
}

fn mean_error(a: &Floats, b: &Floats) -> f64 {
    let sum: f64 = a.data.iter().zip(&b.data).map(|(a, b)| f64::from((a - b).abs())).sum();
    sum / a.data.len() as f64
}

#[test]
fn with_floors_the_walk_is_the_plaintext_suite() {
    for (network, ring, frac) in [("lenet", 64, 16), ("lenet", 32, 9), ("net-c", 64, 20), ("net-a", 64, 13)] {
        let model = model(network, 2, CompileOptions { ring, frac, ..CompileOptions::default() });
        let rules = Rules { truncation: Form::Floor, cut: false };
        let (output, counts) = walked(&model, &rules, 3);
        assert_eq!(output, under("clear", &model, 3), "{network} on {ring} bits");
        assert!(counts.truncations > 0.0 && counts.comparisons > 0.0, "{counts:?}");
        assert_eq!((counts.big_errors, counts.sign_errors), (0.0, 0.0));
    }
}

#[test]
fn splines_and_pools_by_all_pairs_are_walked_as_well() {
    let graph = smooth();
    let fitted = fitted(Lists::Digits, None, None, false).unwrap();
    for (pool, comparison) in [
        (PoolForm::Tournament, Comparison::Fixed(SignBit::FULL)),
        (PoolForm::AllPairs, Comparison::Fixed(SignBit::FULL)),
        (PoolForm::AllPairs, fitted),
    ] {
        let options = CompileOptions { pool, comparison, ..CompileOptions::default() };
        let cut = options.comparison != Comparison::Fixed(SignBit::FULL);
        let model = of_graph(&graph, options);
        let clear = under("clear", &model, 3);
        let floors = walked(&model, &Rules { truncation: Form::Floor, cut: false }, 3);
        assert_eq!(floors.0, clear, "{pool:?}");
        // 50 elements with four splines of three borders each, and the pools.
        let (exact, counts) = walked(&model, &Rules { truncation: Form::Exact, cut }, 3);
        assert!(mean_error(&exact, &clear) < 1e-3 && counts.comparisons >= 600.0, "{counts:?}");
        assert_eq!((counts.big_errors, counts.sign_errors), (0.0, 0.0));
        assert!(mean_error(&exact, &under("mizar", &model, 3)) < 1e-3);
    }
    // Half of 26 fraction bits in every factor; and real masks, under which deep models fall.
    let deep = of_graph(&graph, CompileOptions { frac: 26, ..CompileOptions::default() });
    let clear = under("clear", &deep, 3);
    // One walk in about sixty has a large error, as real masks have it: none in three is as good as
    // impossible.
    let mut walks = (0..3).map(|_| walked(&deep, &Rules { truncation: Form::TruncateFirst, cut: false }, 3));
    let (first, counts) = walks.find(|(_, counts)| counts.big_errors == 0.0).expect("large errors are rare");
    assert!(mean_error(&first, &clear) < 0.02, "{counts:?}");
    let ring = CompileOptions { ring: 32, frac: 13, ..CompileOptions::default() };
    let narrow = of_graph(&graph, ring);
    let (_, counts) = walked(&narrow, &Rules { truncation: Form::Aby3Printed, cut: false }, 3);
    assert!(counts.big_errors > 0.0, "{counts:?}");
}

#[test]
fn exact_and_fitted_is_close_to_the_plaintext_suite() {
    let comparison = fitted(Lists::Digits, None, None, false).unwrap();
    let model = model("net-c", 2, CompileOptions { comparison, ..CompileOptions::default() });
    let (output, counts) = walked(&model, &Rules { truncation: Form::Exact, cut: true }, 5);
    let clear = under("clear", &model, 5);
    assert!(mean_error(&output, &clear) < 1e-3 && output != clear, "rounded at random");
    assert_eq!((counts.big_errors, counts.sign_errors), (0.0, 0.0));
}

#[test]
fn a_harsh_cut_hurts_as_much_as_under_the_protocol() {
    let comparison = fitted(Lists::Digits, Some(4), None, false).unwrap();
    let relu = ReluForm::ThreeRounds;
    let model = model("net-b", 20, CompileOptions { comparison, relu, ..CompileOptions::default() });
    let graph = &model.compiled.graph;
    let plain = plain::run(graph, &[rows(&model.compiled.data_inputs[0], 7)]).unwrap().remove(0);
    let (output, counts) = walked(&model, &Rules { truncation: Form::Exact, cut: true }, 7);
    let [simulated, real] = [output, under("mizar", &model, 7)].map(|o| mean_error(&o, &plain));
    assert!(counts.sign_errors > 100.0, "{counts:?}");
    assert!((0.6..1.6).contains(&(simulated / real)), "simulated {simulated}, real {real}");
}

#[test]
fn truncating_first_needs_no_truncation_after() {
    let options = CompileOptions { frac: 26, ..CompileOptions::default() };
    let model = model("net-c", 1, options);
    let (clear, _) = walked(&model, &Rules { truncation: Form::Floor, cut: false }, 1);
    let (first, counts) = walked(&model, &Rules { truncation: Form::TruncateFirst, cut: false }, 1);
    assert!(mean_error(&first, &clear) < 0.05, "13 fraction bits in each operand");
    assert_eq!(counts.big_errors, 0.0, "{counts:?}");
}

#[test]
fn rules_that_make_no_sense_are_refused() {
    let model = model("net-a", 1, CompileOptions::default());
    assert!(Walker::new(&model, &Rules { truncation: Form::Aby3Printed, cut: true }).is_err());
}
