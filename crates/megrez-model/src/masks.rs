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
