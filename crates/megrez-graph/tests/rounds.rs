//! How many rounds and bytes networks take, by the formulas of the steps; and how near their
//! numbers are.

use crate::common::{decode, interpret, noise};
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

fn cost(protocol: &str, compiled: &Compiled) -> PlanCost {
    struct Costs<'a>(&'a megrez_plan::Plan);
    impl registry::Visitor<Reference> for Costs<'_> {
        type Output = PlanCost;
        fn visit<S: Suite<Device = Reference>>(self, suite: S) -> Self::Output {
            megrez_engine::check(&suite, self.0).unwrap()
        }
    }
    registry::dispatch(protocol, compiled.plan.ring, Costs(&compiled.plan)).unwrap()
}

fn rounds(cost: &PlanCost) -> u32 {
    cost.rounds(Phase::Online)
}

/// The figures of a block in docs/activations.md.
#[test]
fn rounds_of_a_block_are_as_the_docs_say() {
    let figures = [
        (Activations::Minimax, [85, 114, 96]),
        (Activations::Fine, [86, 115, 97]),
        (Activations::Lookup, [37, 61, 47]),
        (Activations::Tables, [37, 61, 47]),
    ];
    for (activations, wanted) in figures {
        let found = ["mizar", "aby3", "alkaid"]
            .map(|protocol| rounds(&cost(protocol, &compiled("gpt2-block", protocol, activations))));
        assert_eq!(found, wanted, "{activations:?}");
    }
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
