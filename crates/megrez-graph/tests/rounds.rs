//! How many rounds networks take, by the formulas of the steps.

use megrez_graph::{Activations, Comparison, CompileOptions, ListStyle, RangePolicy, compile, models};
use megrez_kernels::Reference;
use megrez_protocols::mizar::Mizar;
use megrez_session::Phase;

/// As `megrez bench model` counts them.
fn rounds(model: &str, activations: Activations) -> u32 {
    let graph = models::build(model, 1, 1).unwrap();
    let list = ListStyle::Digits(megrez_plan::Fewest::Total);
    let options = CompileOptions {
        activations,
        policy: RangePolicy::Assume,
        comparison: Comparison::Fitted { list, bits: None, calibration: None },
        ..CompileOptions::default()
    };
    let compiled = compile(&graph, &options).unwrap_or_else(|p| panic!("{p}"));
    let cost = megrez_engine::check(&Mizar::<u64, Reference>::default(), &compiled.plan).unwrap();
    let mut steps: Vec<_> = cost.steps.iter().filter(|s| s.cost.rounds(Phase::Online) > 0).collect();
    steps.sort_by_key(|s| (s.online_wave, s.online_lane));
    for s in steps {
        let rounds = s.cost.rounds(Phase::Online);
        println!("wave {:3} lane {:2} rounds {rounds} {}", s.online_wave, s.online_lane, s.name);
    }
    cost.critical_path(Phase::Online, 0.0, |_| 0.0).rounds
}

#[test]
fn tables_halve_the_rounds_of_a_block() {
    assert_eq!(rounds("gpt2-block", Activations::Minimax), 82);
    assert_eq!(rounds("gpt2-block", Activations::Lookup), 38);
}
