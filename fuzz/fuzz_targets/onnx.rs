//! ONNX models: refused with reasons, or a graph that compiles to a valid plan or is refused with
//! reasons.
#![no_main]

use libfuzzer_sys::fuzz_target;
use megrez_graph::onnx::{self, ImportOptions};
use megrez_graph::{CompileOptions, compile};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(graph) = onnx::read(bytes, &ImportOptions::default()) {
        // A small file may ask for large values; those are for another day than this one's memory.
        let elements: usize = graph.values.iter().map(|v| v.shape.elements()).sum();
        if elements < 1 << 18
            && let Ok(compiled) = compile(&graph, &CompileOptions::default())
        {
            compiled.plan.validate().unwrap();
        }
    }
});
