use super::*;
use megrez::train::{Loss, Optimiser, Trained};
use megrez_graph::npy;
use std::num::NonZeroU32;
use std::path::Path;

/// The digits of the example, the first held out.
fn digits(held_out: usize) -> [[Tensor; 2]; 2] {
    let read = |name: &str| {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/digits");
        npy::load(&folder.join(name)).unwrap()
    };
    let [x, y] = [read("test_images.npy"), read("test_labels.npy")];
    let cut = |all: &Tensor, from: usize, to: usize| {
        let width = all.data.len() / all.shape.dims()[0];
        let dims = [&[to - from], &all.shape.dims()[1..]].concat();
        Tensor::new(dims, all.data[from * width..to * width].to_vec())
    };
    let count = y.data.len();
    [[cut(&x, held_out, count), cut(&y, held_out, count)], [cut(&x, 0, held_out), cut(&y, 0, held_out)]]
}

fn options(model: &str, epochs: u32, rate: &str) -> Options {
    let learning = Learning {
        loss: Loss::CrossEntropy,
        trained: Trained::All,
        optimiser: Optimiser::sgd(rate.parse().unwrap()),
        halve_every: None,
        privacy: None,
        shards: NonZeroU32::MIN,
    };
    Options {
        model: model.into(),
        learning,
        batch: 30,
        epochs,
        seeds: vec![1],
        forms: vec![Form::Exact],
        rings: vec![64],
        fracs: vec![16],
        rehearsed: 40,
        options: CompileOptions::default(),
    }
}

/// Rounding down at few fraction bits trains to nothing, and so does MIZAR's Fig. 10, whose errors
/// are large; the exact truncation, unbiased, is as floating point.
#[test]
fn what_floors_and_large_errors_do_to_training() {
    let [learnt, held_out] = digits(60);
    let o = Options {
        forms: vec![Form::Exact, Form::Floor, Form::MizarFig10],
        fracs: vec![10, 16, 40],
        ..options("net-a", 12, "2^-3")
    };
    let found = study(&o, learnt, held_out, &|_| {}).unwrap();
    assert_eq!((found.schema.as_str(), found.rows), (Study::SCHEMA, [300, 60]));
    let plain = *found.plain[0].accuracy.last().unwrap();
    let of = |frac: u32, form: Form| {
        let row = found.trainings.iter().find(|row| (row.frac, row.rounding) == (frac, form)).unwrap();
        (*row.accuracy.last().unwrap(), row.counts.big_errors)
    };
    assert!(plain > 0.8, "{plain}");
    for frac in [10, 16] {
        let (right, wrong) = of(frac, Form::Exact);
        assert!((right - plain).abs() < 0.12 && wrong == 0.0, "f = {frac}: {right} beside {plain}");
    }
    let (floor, fig10) = (of(10, Form::Floor).0, of(16, Form::MizarFig10));
    assert!(floor < plain - 0.2, "{floor} beside {plain}");
    assert!(fig10.0 < plain - 0.4 && fig10.1 > 1000.0, "{fig10:?} beside {plain}");
    assert_eq!(found.trainings.len(), 6, "40 fraction bits do not fit, and are left out");
    let told = table(&found);
    assert!(told.contains("mizar-fig10 on 64 bits, f = 16") && told.contains("float32"), "{told}");
}

/// Whatever the masks are, weights after some steps are those of floating point within roundings.
#[test]
fn short_rings_and_schedules_are_studied_too() {
    let [learnt, held_out] = digits(60);
    let mut o = Options { rings: vec![40, 48], fracs: vec![10], ..options("net-b", 4, "2^-4") };
    o.learning.halve_every = NonZeroU32::new(2);
    o.seeds = vec![1, 2];
    let found = study(&o, learnt, held_out, &|_| {}).unwrap();
    let made = (found.trainings.len(), found.plain.len(), found.refused.len());
    assert_eq!(made, (4, 2, 0), "{:?}", found.refused);
    for row in &found.trainings {
        let plain = found.plain.iter().find(|plain| plain.seed == row.seed).unwrap();
        assert_eq!((row.accuracy.len(), row.loss.len(), plain.accuracy.len()), (4, 4, 4));
        assert!((row.accuracy[3] - plain.accuracy[3]).abs() < 0.1, "{row:?} beside {plain:?}");
        assert!(row.loss[3] < row.loss[0] && row.counts.big_errors == 0.0 && row.largest_bits < row.ring - 2);
    }
    assert_ne!(found.plain[0].accuracy, found.plain[1].accuracy);
}

#[test]
fn what_cannot_be_studied_is_said() {
    let [learnt, held_out] = digits(60);
    let refused = |o: &Options| study(o, learnt.clone(), held_out.clone(), &|_| {}).unwrap_err().to_string();
    let first = Options { forms: vec![Form::TruncateFirst], ..options("net-a", 1, "2^-3") };
    assert!(refused(&first).contains("truncate-first"));
    let many = Options { batch: 301, ..options("net-a", 1, "2^-3") };
    assert!(refused(&many).contains("fewer rows"));
}
