//! The built-in networks as plans.

use megrez_graph::models::Decoder;
use megrez_graph::{CompileOptions, HeldWeights, RangePolicy, compile, models};
use megrez_plan::{List, Plan, ReluForm, SignBit};
use megrez_protocols::registry;
use std::collections::BTreeMap;

/// Networks that take seconds.
pub const SMALL: [&str; 2] = ["lenet", "net-b"];
/// All of them.
pub const ALL: [&str; 16] = models::NAMES;

/// The plan of a network with random weights that belong to one client, for data of a second and a
/// result for a third.
///
/// # Errors
/// If the network does not compile for the protocol.
pub fn plan(protocol: &str, model: &str) -> Result<Plan, String> {
    let graph = models::build(model, 1, 1).map_err(|e| e.to_string())?;
    compile(&graph, &options(protocol)?).map(|compiled| compiled.plan).map_err(|e| e.to_string())
}

/// The plans of a text that a built-in language model reads in parts of these lengths: what its
/// attention has seen, and its weights, are kept from one to the next.
///
/// # Errors
/// If there is no such model, or it does not compile for the protocol.
pub fn text(protocol: &str, model: &str, lengths: &[usize]) -> Result<Vec<Plan>, String> {
    let decoder = Decoder::new(model, 1).map_err(|e| e.to_string())?;
    let (mut held, mut bounds) = (HeldWeights::default(), BTreeMap::new());
    let (mut plans, mut seen) = (vec![], 0);
    for &new in lengths {
        let graph = decoder.graph(seen, new).map_err(|e| e.to_string())?;
        let present = graph.outputs.iter().map(|output| &output.name);
        let kept = present
            .filter_map(|name| Some((name.clone(), format!("past.{}", name.strip_prefix("present.")?))))
            .collect();
        let options = CompileOptions { kept, input_ranges: bounds.clone(), ..options(protocol)? };
        let compiled = compile(&graph, &options).map_err(|e| e.to_string())?;
        bounds.extend(compiled.kept.iter().cloned());
        plans.push(held.plan(&compiled));
        seen += new;
    }
    Ok(plans)
}

/// How networks are compiled for a protocol here.
fn options(protocol: &str) -> Result<CompileOptions, String> {
    let registered = registry::find(protocol).ok_or("no such protocol")?;
    let mut options = CompileOptions {
        model_owner: "owner".into(),
        data_owner: "user".into(),
        recipient: "recipient".into(),
        policy: RangePolicy::Assume,
        defer_resharing: registered.deferred_resharing,
        relu: ReluForm::ThreeRounds,
        ..CompileOptions::default()
    };
    if protocol == "bicoptor" {
        let sign = SignBit { list: List::Bits, cut: 13, bits: Some(12) };
        options.comparison = megrez_graph::Comparison::Fixed(sign);
    }
    Ok(options)
}
