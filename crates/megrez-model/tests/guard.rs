//! Ranges that were measured on data, and looked at in every run: a number is right, or there is an
//! error.

use megrez_graph::{Attributes, CompileOptions, Graph, Interval, RangePolicy, Tensor, calibrate};
use megrez_model::batches::Described;
use megrez_model::disclosure::{Disclosure, Roles};
use megrez_model::inference::{infer, infer_plain};
use megrez_model::model::{Model, Recipe};
use megrez_service::ErrorKind;
use megrez_service::backend::Backend;
use megrez_service::client::RunOptions;

/// x^16 of three numbers a row, that may reach 8, so that no ring has room; then half of it.
fn power(rows: usize) -> Graph {
    let mut g = Graph::new("power");
    let mut x = g.input("x", [rows, 3]).unwrap();
    for i in 0..4 {
        x = g.add(&format!("square{i}"), "Mul", &[x, x], Attributes::none()).unwrap();
    }
    g.output("y", x);
    g
}

/// Compiled for numbers up to 1.25, with a margin of 2, under a protocol.
fn guarded(rows: usize, protocol: &str) -> Model {
    let seen = Tensor::new([1, 3], vec![1.25, -1.25, 0.0]);
    let measured = calibrate::calibrate(&power(1), [vec![seen]], 2.0).unwrap();
    let deferred = megrez_service::protocols::find(protocol).unwrap().deferred_resharing;
    let options = CompileOptions {
        input_range: Interval::abs(8.0),
        policy: RangePolicy::Calibrated,
        measured: Some(measured),
        guard: true,
        defer_resharing: deferred,
        ..CompileOptions::default()
    };
    Recipe::Fixed(Box::new(options)).compile(&power(rows), "client").unwrap_or_else(|e| panic!("{e}"))
}

fn run(model: &Model, protocol: &str, data: Tensor) -> megrez_service::Result<Tensor> {
    let options = RunOptions { insecure: protocol == "clear", ..RunOptions::new(protocol) };
    let mut ran = infer(&mut Backend::threads(), model, &[data], &options, &|_| Ok(()))?;
    assert_eq!(ran.outputs.len(), 1, "the guard is no output of the model's");
    assert_eq!(ran.range, Some("guarded"));
    Ok(ran.outputs.remove(0).1)
}

#[test]
fn a_number_is_right_or_there_is_an_error() {
    for protocol in ["clear", "mizar", "aby3", "alkaid", "alkaid-masked", "meteor"] {
        let model = guarded(2, protocol);
        // Three rows: the last run is filled up.
        let right = Tensor::new([3, 3], vec![1.25, -1.0, 0.5, 0.0, 1.1, -1.25, 1.2, -0.1, 0.9]);
        let y = run(&model, protocol, right.clone()).unwrap_or_else(|e| panic!("{protocol}: {e}"));
        let clear = infer_plain(&model, std::slice::from_ref(&right)).unwrap().remove(0).1;
        let far = y.data.iter().zip(&clear.data).map(|(a, b)| (a - b).abs()).fold(0f32, f32::max);
        assert!(far < 0.05, "{protocol}: {far}");
        // One number of any row, slightly or far beyond, as far as words wrap.
        for (place, number) in [(0, 1.4), (4, -2.0), (8, 8.0), (7, -7.9), (2, 3.0)] {
            let mut wrong = right.clone();
            wrong.data[place] = number;
            let error = run(&model, protocol, wrong).expect_err(&format!("{protocol}: {number} at {place}"));
            assert_eq!(error.kind(), ErrorKind::OutOfRange, "{error}");
            assert!(error.to_string().contains("calibrate on data like this"), "{error}");
        }
    }
}

/// Whatever the data, near the bounds above all.
#[test]
fn no_number_that_is_given_is_wrong() {
    let model = guarded(1, "clear");
    let mut given = 0;
    for i in 0..400 {
        let x = [1.2 + i as f32 * 5e-4, -(i as f32) * 0.02, 1.3 + i as f32 * 2e-5];
        let data = Tensor::new([1, 3], x.to_vec());
        let clear = infer_plain(&model, std::slice::from_ref(&data)).unwrap().remove(0).1;
        if let Ok(y) = run(&model, "clear", data) {
            given += 1;
            for (y, clear) in y.data.iter().zip(&clear.data) {
                assert!((y - clear).abs() < 0.02 + clear / 100.0, "{x:?}: {y} for {clear}");
            }
        }
    }
    assert!((20..380).contains(&given), "{given} of 400");
}

/// The comparisons and the count are steps like all others.
#[test]
fn every_message_of_a_guarded_plan_is_masked() {
    for protocol in ["mizar", "aby3", "alkaid", "alkaid-masked", "meteor"] {
        let Model::Fixed(model) = guarded(2, protocol) else { unreachable!("it is in fixed point") };
        let report = megrez_model::masks::examine(protocol, &model).unwrap();
        assert!(report.is_masked(), "{}", megrez_model::masks::text(protocol, &report));
    }
}

#[test]
fn what_is_opened_is_said() {
    let model = guarded(1, "mizar");
    assert_eq!(model.outputs().len(), 1);
    let found = Disclosure::of(&model, "mizar", &Roles::default()).unwrap();
    assert_eq!((found.opened.len(), found.ranges), (1, Some("guarded")), "{:?}", found.opened);
    assert!(found.text().contains("one bit of every run"), "{}", found.text());
    assert!(!found.text().contains("nobody notices"), "{}", found.text());
}
