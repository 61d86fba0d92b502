//! How many rounds networks take, by the formulas of the steps.

use megrez_graph::{Activations, Comparison, CompileOptions, Interval, ListStyle, compile, models};
use megrez_kernels::Reference;
use megrez_protocols::mizar::Mizar;

#[test]
fn print_rounds() {
    for (model, input) in [("gpt2-block", 1.0), ("bert-tiny", 1.0)] {
        let graph = models::build(model, 1, 1).unwrap();
        let options = CompileOptions {
            activations: Activations::Lookup,
            input_range: Interval::abs(input),
            policy: megrez_graph::RangePolicy::Assume,
            comparison: Comparison::Fitted {
                list: ListStyle::Digits(megrez_plan::Fewest::Total),
                bits: None,
                calibration: None,
            },
            ..CompileOptions::default()
        };
        let compiled = compile(&graph, &options).unwrap_or_else(|p| panic!("{p}"));
        let cost = megrez_engine::check(&Mizar::<u64, Reference>::default(), &compiled.plan).unwrap();
        let mut path: Vec<_> = cost.steps.iter().filter(|s| !s.cost.transfers.is_empty()).collect();
        path.sort_by_key(|s| (s.online_wave, s.online_lane));
        for s in path {
            let rounds = s.cost.rounds(megrez_session::Phase::Online);
            if rounds > 0 {
                println!("{:4} {:3} {} {}", s.online_wave, s.online_lane, rounds, s.name);
            }
        }
        for r in &compiled.ranges {
            println!("{} {:?} {} {}", r.layer, r.output, r.bits, r.proven);
        }
        println!(
            "{model} frac {:?} {:?}",
            compiled.plan.values[0].kind,
            cost.critical_path(megrez_session::Phase::Online, 0.0, |_| 0.0)
        );
    }
}
