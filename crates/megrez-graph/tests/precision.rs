//! How many fraction bits a model gets.

use crate::common::{check, noise};
use megrez_graph::{
    Attributes, CompileOptions, Compiled, Declared, Graph, Interval, RangePolicy, Tensor, compile,
};

const WIDTH: usize = 4;

/// So many matrices one after the other, each of which turns a vector and makes it a little
/// shorter.
fn chain(length: usize) -> Graph {
    let mut graph = Graph::new("chain");
    let mut at = graph.input("x", [1, WIDTH]).unwrap();
    for i in 0..length {
        let mut weights = vec![0f32; WIDTH * WIDTH];
        for row in 0..WIDTH {
            weights[row * WIDTH + (row + i + 1) % WIDTH] = if row % 2 == 0 { 0.977_123 } else { -0.977_123 };
        }
        let weights = graph.constant(&format!("w{i}"), Tensor::new([WIDTH, WIDTH], weights));
        at = graph.add(&format!("fc{i}"), "MatMul", &[at, weights], Attributes::none()).unwrap();
    }
    graph.output("y", at);
    graph
}

fn compiled(length: usize, change: impl FnOnce(&mut CompileOptions)) -> Compiled {
    let mut options = CompileOptions { deep_frac: Some(20), ..CompileOptions::default() };
    change(&mut options);
    compile(&chain(length), &options).unwrap_or_else(|p| panic!("{p}"))
}

#[test]
fn deep_models_get_more_fraction_bits_and_are_right_by_them() {
    let deep = compiled(40, |_| {});
    assert_eq!(deep.frac, 20);
    assert!(deep.data_inputs.iter().map(|x| x.frac).eq([20]));
    assert!(deep.ranges.iter().all(|range| range.proven));
    let x = noise([1, WIDTH], 1);
    check(&deep, std::slice::from_ref(&x), 8e-5);
    let usual = compiled(40, |o| o.deep_frac = None);
    assert_eq!(usual.frac, 16);
    let coarse = || check(&usual, std::slice::from_ref(&x), 8e-5);
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(coarse)).is_err());
}

#[test]
fn shallow_models_keep_theirs_and_so_does_what_is_kept_for_another_plan() {
    assert_eq!(compiled(32, |_| {}).frac, 16);
    assert_eq!(compiled(33, |_| {}).frac, 20);
    assert_eq!(compiled(40, |o| drop(o.kept.insert("y".into(), "state".into()))).frac, 16);
    // Under declared ranges nothing in a plan follows from the weights.
    let declared = Declared { all: Some(Interval::abs(8.0)), ..Declared::default() };
    assert_eq!(compiled(40, |o| o.declared = Some(declared)).frac, 16);
}

#[test]
fn ranges_decide_how_many_there_are() {
    let of = |bits: i32, policy| {
        let model = compiled(40, |o| {
            (o.input_range, o.policy) = (Interval::abs(2f64.powi(bits)), policy);
        });
        (model.frac, model.ranges.iter().all(|range| range.proven))
    };
    assert_eq!(of(20, RangePolicy::Prove), (20, true));
    assert_eq!(of(24, RangePolicy::Prove), (18, true));
    assert_eq!(of(28, RangePolicy::Prove), (16, true));
    // What is assumed has all the room that there is.
    assert_eq!(of(24, RangePolicy::Assume), (18, true));
    assert_eq!(of(32, RangePolicy::Assume), (16, false));
}

#[test]
fn more_bits_than_the_ring_has_are_refused() {
    let options = CompileOptions { deep_frac: Some(31), ..CompileOptions::default() };
    let error = compile(&chain(1), &options).unwrap_err().to_string();
    assert!(error.contains("at most 30"), "{error}");
}

/// Sums of thousands that meet thousands: 2^16 words more than the ring has room for at 16 fraction
/// bits, and none at fewer.
#[test]
fn products_of_large_numbers_take_fewer_fraction_bits() {
    let mut g = Graph::new("large");
    let x = g.input("x", [2, 4]).unwrap();
    let weights = g.constant("w", Tensor::new([4, 3], (0..12).map(|i| 900.0 - 150.0 * i as f32).collect()));
    let none = Attributes::none;
    let y = g.add("first", "MatMul", &[x, weights], none()).unwrap();
    let y = g.add("relu", "Relu", &[y], none()).unwrap();
    let y = g.add("square", "Mul", &[y, y], none()).unwrap();
    g.output("y", y);
    let data = Tensor::new([2, 4], vec![900.0, -31.25, 7.5, 0.125, -1000.0, 3.0, 1000.0, -0.5]);
    let options = CompileOptions { input_range: Interval::abs(1000.0), ..CompileOptions::default() };
    let compiled = compile(&g, &options).unwrap_or_else(|e| panic!("{e}"));
    assert!(compiled.ranges.iter().all(|r| r.proven));
    let coarser = compiled.plan.steps.iter().filter(|step| step.name.contains("coarser")).count();
    assert!(coarser > 0, "a step gives up fraction bits");
    // Relative to what the numbers are.
    let output = compiled.plan.outputs[0].value.0;
    let values = crate::common::interpret(&compiled, std::slice::from_ref(&data));
    let got = crate::common::decode(values[output as usize].as_ref().unwrap(), compiled.outputs[0].frac);
    let want = megrez_graph::plain::run(&compiled.graph, &[data]).unwrap();
    for (got, want) in got.iter().zip(&want[0].data) {
        let want = f64::from(*want);
        assert!((got - want).abs() <= 1e-6 * want.abs() + 100.0, "{got} for {want}");
    }
    // Whose plan tells nothing of its weights keeps its scale.
    let declared = Declared { all: Some(Interval::abs(4e6)), ..Default::default() };
    let declared = CompileOptions { declared: Some(declared), ..options };
    assert!(compile(&g, &declared).is_err());
}
