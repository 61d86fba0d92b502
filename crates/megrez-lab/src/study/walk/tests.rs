use super::*;
use megrez::choices::List as Lists;
use megrez::fixed::decode_output;
use megrez::request::fitted;
use megrez::train::{Learning, Loss, Optimiser, State, Step as TrainStep, Trained, compile, rehearse};
use megrez::{Backend, RunOptions};
use megrez_graph::{
    Attributes, Comparison, CompileOptions, Graph, Interval, PoolForm, RangePolicy, models, plain,
};
use megrez_plan::ReluForm;
use megrez_ring::encode_words;
use std::collections::HashMap;
use std::num::NonZeroU32;

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

/// The words of all values of a plan's run under a protocol; bits are words 0 and 1.
fn all_values(protocol: &str, model: &FixedModel, words: &Words<'_>) -> Vec<Vec<u64>> {
    let mut plan = model.compiled.plan.clone();
    let client = megrez_service::embedded::CLIENT;
    plan.inputs.iter_mut().for_each(|input| input.owner = client.into());
    plan.outputs.clear();
    let shared = |value: &megrez_plan::Value| !matches!(value.kind, Kind::Public { .. });
    let ids = (0..plan.values.len() as u32).map(ValueId).filter(|id| shared(plan.value(*id)));
    let ids: Vec<ValueId> = ids.collect();
    ids.iter().for_each(|id| plan.output(&id.0.to_string(), client, *id));
    let options = RunOptions { insecure: true, ..RunOptions::new(protocol) };
    let outcome = Backend::threads().run(&plan, &options, &|_, input| Ok(words(input)?), &|_| {}).unwrap();
    let mut all = vec![vec![]; plan.values.len()];
    ids.into_iter().zip(&outcome.outputs[0]).for_each(|(id, words)| all[id.0 as usize].clone_from(words));
    all
}

/// What was known of truncations and comparisons when a run's values were compared with the clear.
#[derive(Debug, Default)]
struct Seen {
    steps: usize,
    rounded: usize,
    rounded_up: usize,
    compared: usize,
    near_zero: usize,
}

/// Makes sure that every step of a run gave what it gives in the clear on the very words that it
/// read; a truncation that, or one more, and a comparison that ignores bits anything for numbers
/// that they make up.
fn compare(model: &FixedModel, all: &[Vec<u64>], seen: &mut Seen) {
    let plan = &model.compiled.plan;
    let mut walk = Walk::<u64>::new(model, &Rules { truncation: Form::Floor, cut: false }).unwrap();
    walk.party.enter(Phase::Online, 0);
    let words = |id: ValueId| &all[id.0 as usize];
    let held = |walk: &Walk<'_, u64>, id: ValueId| {
        let value = plan.value(id);
        let data = match value.kind {
            Kind::Bit => {
                let packed = bits::pack(value.shape.elements(), |at| words(id)[at]);
                Data::Bit(Bits::new(value.shape.clone(), walk.party.device().upload(packed).unwrap()))
            }
            _ => walk.upload(value.shape.clone(), words(id).clone()).unwrap(),
        };
        Held { data, lead: 0, given: false }
    };
    let mut public: Vec<Option<Held<u64>>> = vec![None; plan.values.len()];
    for step in &plan.steps {
        seen.steps += 1;
        let output = words(step.output);
        match &step.op {
            Op::Truncate { bits } => {
                for (x, y) in words(step.inputs[0]).iter().zip(output) {
                    let up = y.wrapping_sub((x.cast_signed() >> bits).cast_unsigned());
                    let whole = x.trailing_zeros() >= *bits;
                    assert!(up <= u64::from(!whole), "{}: {x} became {y}", step.name);
                    seen.rounded_up += up as usize;
                    seen.rounded += usize::from(!whole);
                }
            }
            Op::Relu(relu) => {
                for (x, y) in words(step.inputs[0]).iter().zip(output) {
                    let (x, near) = (x.cast_signed(), x.cast_signed().unsigned_abs() >> relu.sign.cut == 0);
                    let up = y.wrapping_sub((x >> relu.truncate).cast_unsigned());
                    let most = u64::from(relu.truncate > 0);
                    let right = if x >= 0 { up <= most } else { *y == 0 };
                    assert!(right || near && (up <= most || *y == 0), "{}: {x} became {y}", step.name);
                }
                seen.compared += output.len();
            }
            Op::NonNegative(sign) => {
                for (x, bit) in words(step.inputs[0]).iter().zip(output) {
                    let near = x.cast_signed().unsigned_abs() >> sign.cut == 0;
                    assert!(near || (*bit == 1) == (x.cast_signed() >= 0), "{}: {x} is {bit}", step.name);
                    seen.near_zero += usize::from(near);
                }
                seen.compared += output.len();
            }
            op => {
                let input = |id: &ValueId| public[id.0 as usize].clone().unwrap_or_else(|| held(&walk, *id));
                let inputs: Vec<Held<u64>> = step.inputs.iter().map(input).collect();
                let data = walk.local(step, op, &inputs).unwrap();
                if matches!(plan.value(step.output).kind, Kind::Public { .. }) {
                    public[step.output.0 as usize] = Some(Held { data, lead: 0, given: false });
                    continue;
                }
                let found = match &data {
                    Data::Ring(_) => walk.words(&data).unwrap(),
                    Data::Bit(x) => {
                        let packed = walk.party.device().download(x.buf.clone()).unwrap();
                        (0..x.elements()).map(|at| bits::get(&packed, at)).collect()
                    }
                };
                assert!(found == *output, "{} is not what the clear gives", step.name);
            }
        }
    }
}

/// Training on shares, word by word: given the carries of truncations and of cut comparisons, every
/// value of every step is that of the plaintext suite.
#[test]
fn every_word_of_training_is_the_clear_ones() {
    for (network, batch, steps) in [("net-a", 4, 20), ("lenet", 4, 3)] {
        let graph = models::build(network, batch, 1).unwrap();
        let learning = Learning {
            loss: Loss::CrossEntropy,
            trained: Trained::All,
            optimiser: Optimiser::with_momentum("2^-4".parse().unwrap(), 0.5).unwrap(),
            halve_every: None,
            privacy: None,
            shards: NonZeroU32::MIN,
        };
        let step = learning.step(&graph).unwrap();
        let shape = graph.shape(graph.inputs[0]).clone();
        let number = |run: usize, i: usize| ((i * 37 + run * 11) % 101) as f32 / 101.0;
        let of = |run: usize| {
            let x = (0..shape.elements()).map(|i| number(run, i)).collect();
            let label = |row: usize| (0..10).map(move |k| f32::from(u8::from(k == (row * 3 + run) % 10)));
            let y = (0..batch).flat_map(label).collect();
            [Floats::new(shape.clone(), x), Floats::new([batch, 10], y)]
        };
        let rehearsal = rehearse(&step, (0..steps).map(of)).unwrap();
        let model = compile(&step, "study", &CompileOptions::default(), &rehearsal, true).unwrap();
        let (plan, frac) = (&model.compiled.plan, model.compiled.frac);
        for protocol in ["mizar", "aby3", "alkaid"] {
            let start = |part: &State| encode_words(64, &part.start.data, frac).unwrap();
            let mut state: HashMap<String, Vec<u64>> =
                step.state.iter().map(|part| (part.name.clone(), start(part))).collect();
            let mut seen = Seen::default();
            for run in 0..steps {
                let [x, y] = of(run);
                let rows = |_: u32, input: &DataInput| {
                    Ok(if input.name == TrainStep::LABELS { y.clone() } else { x.clone() })
                };
                let words = |input: &Input| match state.get(&input.name) {
                    Some(words) => Ok(words.clone()),
                    None => model.words(0, input, &rows),
                };
                let all = all_values(protocol, &model, &words);
                compare(&model, &all, &mut seen);
                let after = plan.outputs.iter();
                state =
                    after.map(|output| (output.name.clone(), all[output.value.0 as usize].clone())).collect();
            }
            // Half of what is truncated is rounded up, or so: the roundings are no floors.
            let up = seen.rounded_up as f64 / seen.rounded as f64;
            assert!((0.4..0.6).contains(&up) && seen.near_zero < seen.compared, "{protocol}: {seen:?}");
            assert!(seen.steps > 50 * steps && seen.compared > 0, "{protocol}: {seen:?}");
        }
    }
}
