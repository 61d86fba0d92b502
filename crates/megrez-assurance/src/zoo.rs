//! The built-in networks as plans.

use megrez_graph::{CompileOptions, RangePolicy, compile, models};
use megrez_plan::{List, Plan, ReluForm, SignBit};
use megrez_protocols::registry;

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
    let registered = registry::find(protocol).ok_or("no such protocol")?;
    let graph = models::build(model, 1, 1).map_err(|e| e.to_string())?;
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
    compile(&graph, &options).map(|compiled| compiled.plan).map_err(|e| e.to_string())
}
