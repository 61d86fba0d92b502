//! How many rounds and bytes networks take, by the formulas of the steps; and how near their numbers are.

mod common;

use common::{decode, interpret, noise};
use megrez_engine::PlanCost;
use megrez_graph::{
    Activations, Comparison, CompileOptions, Compiled, ListStyle, RangePolicy, compile, models,
};
use megrez_kernels::Reference;
use megrez_protocols::{Suite, registry};
use megrez_session::Phase;

/// As `megrez bench model` compiles them.
fn compiled(model: &str, protocol: &str, activations: Activations) -> Compiled {
    let graph = models::build(model, 1, 1).unwrap();
    let list = ListStyle::Digits(megrez_plan::Fewest::Total);
    let options = CompileOptions {
        activations,
        policy: RangePolicy::Assume,
        comparison: Comparison::Fitted { list, bits: None, calibration: None },
        defer_resharing: registry::find(protocol).unwrap().deferred_resharing,
        ..CompileOptions::default()
    };
    compile(&graph, &options).unwrap_or_else(|p| panic!("{p}"))
}

fn price(protocol: &str, compiled: &Compiled) -> PlanCost {
    struct Price<'a>(&'a megrez_plan::Plan);
    impl registry::Visitor<Reference> for Price<'_> {
        type Output = PlanCost;
        fn visit<S: Suite<Device = Reference>>(self, suite: S) -> Self::Output {
            megrez_engine::check(&suite, self.0).unwrap()
        }
    }
    registry::dispatch(protocol, compiled.plan.ring, Price(&compiled.plan)).unwrap()
}

fn rounds(cost: &PlanCost) -> u32 {
    cost.critical_path(Phase::Online, 0.0, |_| 0.0).rounds
}

#[test]
fn tables_halve_the_rounds_of_a_block() {
    let found = [Activations::Minimax, Activations::Lookup].map(|activations| {
        let cost = price("mizar", &compiled("gpt2-block", "mizar", activations));
        let mut steps: Vec<_> = cost.steps.iter().filter(|s| s.cost.rounds(Phase::Online) > 0).collect();
        steps.sort_by_key(|s| (s.online_wave, s.online_lane));
        for s in steps {
            let rounds = s.cost.rounds(Phase::Online);
            println!("wave {:3} lane {:2} rounds {rounds} {}", s.online_wave, s.online_lane, s.name);
        }
        rounds(&cost)
    });
    assert_eq!(found, [85, 37]);
}

/// The figures of docs/activations.md: `cargo test -p megrez-graph --test rounds -- --ignored --nocapture`.
#[test]
#[ignore = "takes a minute and prints"]
fn figures_of_transformers() {
    for model in ["gpt2-block", "bert-tiny"] {
        for activations in [Activations::Minimax, Activations::Fine, Activations::Lookup] {
            let mib = |bits: f64| bits / 8.0 / 1024.0 / 1024.0;
            for protocol in ["mizar", "aby3", "alkaid"] {
                let cost = price(protocol, &compiled(model, protocol, activations));
                let [online, offline] = [Phase::Online, Phase::Offline].map(|phase| mib(cost.bits(phase)));
                let rounds = rounds(&cost);
                println!(
                    "{model} {activations:?} {protocol}: {rounds} rounds, {online:.1} + {offline:.1} MiB"
                );
            }
            if model == "gpt2-block" {
                let compiled = compiled(model, "mizar", activations);
                let x = noise([8, 768], 7);
                let values = interpret(&compiled, std::slice::from_ref(&x));
                let trace = megrez_graph::plain::trace(&compiled.graph, std::slice::from_ref(&x)).unwrap();
                for layer in &compiled.layers {
                    let got = decode(values[layer.value.0 as usize].as_ref().unwrap(), layer.frac);
                    let want = trace.value(layer.graph_value).unwrap();
                    let off = got.iter().zip(&want.data).map(|(g, &w)| (g - f64::from(w)).abs());
                    println!("  {} off by {:.1e}", layer.name, off.fold(0.0, f64::max));
                }
            }
        }
    }
}
