//! `megrez check --masks`: whether every message of a model's plan is masked, by the symbolic
//! checker of `megrez-assurance`.

use crate::fixed::FixedModel;
use megrez_assurance::masks::{self, Report};
use megrez_plan::Plan;
use megrez_service::protocols::{find, is_float};
use megrez_service::{Error, ErrorKind, Result};
use serde_json::{Value, json};
use std::fmt::Write as _;

/// Examines the plan of a model under a protocol, as if three clients owned the weights, owned the
/// data and received the result: what one of them may see while it also is a party is examined too.
///
/// # Errors
/// If the protocol has other than three parties, or the plan cannot be walked.
pub fn examine(protocol: &str, model: &FixedModel) -> Result<Report> {
    covers(protocol)?;
    let plan = with_owners(model);
    masks::examine(protocol, &plan).map_err(|e| Error::of(ErrorKind::Internal, e))
}

/// Refuses a protocol that the checker does not cover.
///
/// # Errors
/// If it has other than three parties.
pub fn covers(protocol: &str) -> Result<()> {
    let known = find(protocol)?;
    if known.parties != 3 {
        let why = match is_float(known.name) {
            true => "its transfers are argued in docs/security/secfloat.md",
            false => "one party sees everything",
        };
        let what = format!(
            "masks are examined for protocols of three parties; `{protocol}` has {}: {why}",
            known.parties
        );
        return Err(Error::of(ErrorKind::Unsupported, what));
    }
    Ok(())
}

/// The plan with an owner of its own for the weights, for the data and for the result.
fn with_owners(model: &FixedModel) -> Plan {
    let mut plan = model.compiled.plan.clone();
    for input in &mut plan.inputs {
        let data = model.compiled.data_inputs.iter().any(|data| data.name == input.name);
        input.owner = if data { "owner of the data" } else { "owner of the model" }.into();
    }
    plan.outputs.iter_mut().for_each(|output| output.recipient = "recipient".into());
    plan
}

/// What is said of it, for people.
pub fn text(protocol: &str, report: &Report) -> String {
    let mut out = String::new();
    if report.is_masked() {
        let _ = writeln!(
            out,
            "every message of this plan is masked under {protocol}: {} messages, {} views of a party, a client, or both",
            report.messages, report.views
        );
    } else {
        let _ = writeln!(out, "NOT every message of this plan is masked under {protocol}:");
        report.unmasked.iter().take(20).for_each(|unmasked| {
            let _ = writeln!(out, "  {unmasked}");
        });
        report.trouble.iter().for_each(|what| {
            let _ = writeln!(out, "  {what}");
        });
        if report.unmasked.len() > 20 {
            let _ = writeln!(out, "  and {} more", report.unmasked.len() - 20);
        }
    }
    for (lemma, times) in &report.lemmas {
        let _ = writeln!(out, "assumed {times} times: lemma {lemma} (docs/assurance.md)");
    }
    out
}

/// The same for programs: `megrez.masks/1`.
pub fn json(protocol: &str, report: &Report) -> Value {
    let unmasked: Vec<String> = report.unmasked.iter().map(ToString::to_string).collect();
    json!({
        "schema": "megrez.masks/1", "protocol": protocol, "masked": report.is_masked(),
        "messages": report.messages, "views": report.views, "lemmas": report.lemmas,
        "unmasked": unmasked, "trouble": report.trouble,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use megrez_graph::{Attribute, Attributes, CompileOptions, Graph, TreeForm};
    use megrez_plan::Op;

    /// Two trees on rows: x0 ≤ 1.5 ? (x1 ≤ −2 ? 1 : 2) : 4, and x1 ≤ 0.5 ? 10 : 20.
    fn trees(rows: usize) -> Graph {
        let texts = |list: &[&str]| Attribute::Strings(list.iter().map(ToString::to_string).collect());
        let (test, leaf) = ("BRANCH_LEQ", "LEAF");
        let attributes = Attributes::none()
            .with("nodes_treeids", [0i64, 0, 0, 0, 0, 1, 1, 1])
            .with("nodes_nodeids", [0i64, 1, 2, 3, 4, 0, 1, 2])
            .with("nodes_featureids", [0i64, 1, 0, 0, 0, 1, 0, 0])
            .with("nodes_modes", texts(&[test, test, leaf, leaf, leaf, test, leaf, leaf]))
            .with("nodes_values", Attribute::Floats(vec![1.5, -2.0, 0.0, 0.0, 0.0, 0.5, 0.0, 0.0]))
            .with("nodes_truenodeids", [1i64, 2, 0, 0, 0, 1, 0, 0])
            .with("nodes_falsenodeids", [4i64, 3, 0, 0, 0, 2, 0, 0])
            .with("target_treeids", [0i64, 0, 0, 1, 1])
            .with("target_nodeids", [2i64, 3, 4, 1, 2])
            .with("target_ids", [0i64; 5])
            .with("target_weights", Attribute::Floats(vec![1.0, 2.0, 4.0, 10.0, 20.0]));
        let mut graph = Graph::new("trees");
        let x = graph.input("x", [rows, 2]).unwrap();
        let y = graph.add("trees", "TreeEnsembleRegressor", &[x], attributes).unwrap();
        graph.output("y", y);
        graph
    }

    /// Secret features, secret ways and products of bits.
    #[test]
    fn every_message_of_trees_is_masked() {
        let graph = trees(2);
        for protocol in ["mizar", "aby3", "alkaid", "alkaid-masked", "meteor"] {
            let defer_resharing = find(protocol).unwrap().deferred_resharing;
            for trees in [TreeForm::Hidden, TreeForm::Shape] {
                let options = CompileOptions { trees, defer_resharing, ..CompileOptions::default() };
                let model = FixedModel::new(&graph, "client", &options).unwrap();
                let report = examine(protocol, &model).unwrap();
                assert!(report.is_masked(), "{trees:?}: {}", text(protocol, &report));
            }
        }
    }

    /// Many rows, which matrices of bits guide: features by their bits, polynomials, counted bits.
    #[test]
    fn every_message_of_guided_trees_is_masked() {
        for protocol in ["mizar", "concurrent"] {
            let protocol = find(protocol).unwrap();
            let options = CompileOptions {
                multiplies_bits: protocol.multiplies_bits,
                defer_openings: protocol.reshares,
                ..CompileOptions::default()
            };
            let model = FixedModel::new(&trees(1500), "client", &options).unwrap();
            let plan = model.plan_for("client");
            let guided = plan.steps.iter().any(|step| matches!(step.op, Op::BitPolynomials { .. }));
            assert!(guided, "so many rows are guided");
            let report = examine(protocol.name, &model).unwrap();
            assert!(report.is_masked(), "{}", text(protocol.name, &report));
        }
    }
}
