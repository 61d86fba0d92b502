//! Floating point between two party processes: models of a client's own, stored ones, and what is
//! refused.

use crate::common::{MEGREZ, cli};
use megrez::Backend;
use megrez::DeviceChoice;
use megrez::RunOptions;
use megrez::check::Check;
use megrez::{Model, Recipe, StoredModel, Work, check, infer, upload};
use megrez_graph::{Attributes, Graph, Tensor, plain};
use std::path::Path;

/// A perceptron 3-4-2 with weights over twelve orders of magnitude.
fn graph(batch: usize) -> Graph {
    let mut graph = Graph::new("small");
    let mut at = graph.input("x", [batch, 3]).unwrap();
    for (name, outputs, inputs) in [("fc1", 4, 3), ("fc2", 2, 4)] {
        let spread = |i: usize| (i as f32 - 4.5) * 10f32.powi((i * 7 % 13) as i32 - 9);
        let weights = Tensor::new([outputs, inputs], (0..outputs * inputs).map(spread).collect());
        let weights = graph.constant(&format!("{name}.weight"), weights);
        let bias = graph.constant(&format!("{name}.bias"), Tensor::filled([outputs], 0.25));
        at = graph.add(name, "Gemm", &[at, weights, bias], Attributes::none().with("transB", 1)).unwrap();
        if name == "fc1" {
            at = graph.add("relu", "Relu", &[at], Attributes::none()).unwrap();
        }
    }
    graph.output("y", at);
    graph
}

fn data() -> Tensor {
    Tensor::new([3, 3], vec![1e6, -2.0, 3e-7, 0.0, 5.5, -1e3, 7e8, 0.1, 0.2])
}

fn options(protocol: &str) -> RunOptions {
    RunOptions::new(protocol)
}

fn near(got: &Tensor, want: &Tensor) {
    assert_eq!(got.shape, want.shape);
    let largest = want.data.iter().fold(0f32, |m, v| m.max(v.abs()));
    assert!(
        got.data.iter().zip(&want.data).all(|(g, w)| (g - w).abs() <= 1e-6 * largest),
        "{got:?} {want:?}"
    );
}

#[test]
fn two_processes_run_models_and_keep_them() {
    processes_run_models_and_keep_them("secfloat", "secfloat");
}

#[test]
fn three_processes_run_models_and_keep_them() {
    processes_run_models_and_keep_them("alkaid", "mizar-float");
}

/// A model in floating point that is asked for under one protocol and runs under another.
fn processes_run_models_and_keep_them(asked: &str, protocol: &str) {
    let mut backend = Backend::processes(Path::new(MEGREZ), asked, &[DeviceChoice::Cpu]).unwrap();
    let options = || options(asked);
    let truth = plain::run(&graph(3), &[data()]).unwrap().remove(0);

    // Three inputs in batches of two.
    let work = Recipe::Float(Work { group: 4, threads: 2 });
    let model = work.compile(&graph(2), backend.client()).unwrap();
    let result = infer(&mut backend, &model, &[data()], &options(), &|_| Ok(())).unwrap();
    near(&result.outputs[0].1, &truth);
    assert_eq!((result.runs, result.batch), (2, 2));
    assert_eq!(result.protocol, protocol, "reports say what ran");

    let three = work.compile(&graph(3), backend.client()).unwrap();
    let checked = check(&mut backend, &three, &[data()], &options()).unwrap();
    let Check::Float(layers) = &checked else { panic!("of another kind") };
    assert!(checked.is_right());
    assert_eq!(layers.len(), 3);
    assert!(layers.iter().all(|l| l.different == 0 && l.relative_error < 1e-6), "{layers:?}");

    let Backend::Processes(parties, cluster) = &mut backend else { unreachable!("started as processes") };
    upload(cluster, "small", asked, &[graph(1), graph(3)], &Recipe::Float(Work::default()), &[]).unwrap();
    let model = StoredModel::describe(cluster, "small", 3).unwrap();
    assert_eq!(model.protocol, protocol);
    let stored = model.infer(cluster, &[data()], &options(), &|_| Ok(())).unwrap();
    near(&stored.outputs[0].1, &truth);

    // Nobody learns what is not theirs, nothing is made ahead, and two parties are no three.
    let Model::Float(three) = three else { panic!("of another kind") };
    let mut plan = three.compiled.plan.clone();
    plan.outputs[0].recipient = "mallory".into();
    let source = megrez_service::wire::Source::Plan(plan.to_bytes());
    let nothing = |_: u32, _: &megrez_plan::Input| Ok(vec![]);
    let refused = cluster.run_floats(&plan, source, &RunOptions::new(protocol), &|_| true, &nothing, &|_| {});
    let refused = refused.map(|_| ()).unwrap_err().to_string();
    assert!(refused.contains("output `y` goes to `mallory`"), "{refused}");
    let mut cluster = parties.connect().unwrap();
    let source = megrez_service::wire::Source::Model { model: "small".into(), batch: 3 };
    let refused = cluster.prepare(protocol, source).unwrap_err().to_string();
    assert!(refused.contains("no offline phase"), "{refused}");
    if protocol != "secfloat" {
        return;
    }
    let mut cluster = parties.connect().unwrap();
    let refused = crate::common::run_small(&mut cluster, 10, 1, &|_| {}).map(|_| ()).unwrap_err().to_string();
    assert!(refused.contains("takes 3 parties, this cluster has 2"), "{refused}");
}

#[test]
fn numbers_and_protocols_that_do_not_go_together_are_refused_with_a_remedy() {
    let op = "bench op mul --batch 10 --parties thread";
    cli(&format!("{op} --numbers float32 --protocol meteor"), &[])
        .refused(&["meteor", "--protocol secfloat"]);
    cli(&format!("{op} --protocol secfloat --numbers fixed"), &[]).refused(&["leave out --numbers"]);
    cli(&format!("{op} --protocol secfloat --ring 32"), &[]).refused(&["leave out --ring"]);
    cli("bench model relevance --train", &[]).refused(&["--protocol secfloat"]);
    cli("example proximity --protocol meteor", &[]).refused(&["`meteor` does not compute", "mizar-float"]);
    cli("bench model lenet --train --protocol secfloat", &[]).refused(&["`conv1` is a Conv"]);
    let list = cli("--json protocols", &[]).json("megrez.protocols/1");
    let secfloat = list["protocols"].as_array().unwrap().iter().find(|p| p["protocol"]["name"] == "secfloat");
    let operations = secfloat.unwrap()["operations"].as_array().unwrap();
    assert!(
        operations
            .iter()
            .any(|o| o["op"] == "mul" && o["bits_per_element"]["online"].as_f64() > Some(1000.0))
    );
}
