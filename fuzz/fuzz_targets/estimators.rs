//! Classical models with attributes that the bytes have changed: refused, or plans that hold in
//! both forms of trees.
#![no_main]

use libfuzzer_sys::fuzz_target;
use megrez_graph::{CompileOptions, RangePolicy, TreeForm, compile, faults};

fuzz_target!(|bytes: &[u8]| {
    if let Some(graph) = faults::estimator(bytes) {
        for trees in [TreeForm::Hidden, TreeForm::Shape] {
            let options = CompileOptions { trees, policy: RangePolicy::Assume, ..CompileOptions::default() };
            if let Ok(compiled) = compile(&graph, &options) {
                compiled.plan.validate().unwrap();
            }
        }
    }
});
