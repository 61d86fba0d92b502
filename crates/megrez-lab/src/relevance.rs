//! `megrez example relevance`: one model in fixed point and in floating point, side by side. Its
//! weights and activations spread over so many orders of magnitude that no number of fraction bits
//! fits them all.

use megrez::protocols::{SECFLOAT, find};
use megrez::report::{bytes, phase_name};
use megrez::{Backend, DeviceChoice, Error, Program, Recipe, Result, RunOptions, Work, infer};
use megrez_graph::models::{build, relevance_features};
use megrez_graph::{CompileOptions, Graph, Interval, RangePolicy, Tensor, plain};
use megrez_session::Phase;
use serde_json::{Value as Json, json};
use std::fmt::Write as _;

/// Fraction bits to try on the 64-bit ring: below, nothing is left of small weights; above, large
/// activations wrap.
const SCALES: [u32; 7] = [4, 8, 12, 16, 20, 24, 28];
/// What fixed point runs on shares with.
const FRAC: u32 = 16;
const FIXED: &str = "mizar";
/// Features are below this.
const LARGEST: f64 = 1e9;

/// Some users' logits, and how far they are from the truth.
fn logits(got: &Tensor, truth: &Tensor) -> Json {
    let largest = truth.data.iter().fold(0f32, |m, v| m.max(v.abs()));
    let error = got.data.iter().zip(&truth.data).map(|(g, t)| (g - t).abs()).fold(0f32, f32::max);
    let class = |row: &[f32]| (0..row.len()).fold(0, |best, i| if row[i] > row[best] { i } else { best });
    let rows = got.data.chunks(4).zip(truth.data.chunks(4));
    let same = rows.filter(|(g, t)| class(g) == class(t)).count();
    let rows: Vec<&[f32]> = got.data.chunks(4).collect();
    json!({ "logits": rows, "relative_error": error / largest, "same_class": same })
}

fn processes(protocol: &str) -> Result<Backend> {
    Backend::processes(Program::current()?, protocol, &[DeviceChoice::default()])
}

/// The network in fixed point under a protocol, its ranges assumed.
fn fixed(graph: &Graph, data: &Tensor, frac: u32, protocol: &str) -> Result<Tensor> {
    let insecure = find(protocol)?.insecure;
    let mut backend = if insecure { Backend::threads() } else { processes(protocol)? };
    let model = recipe(frac, RangePolicy::Assume).compile(graph, backend.client())?;
    let run = RunOptions { insecure, ..RunOptions::new(protocol) };
    let inference = infer(&mut backend, &model, std::slice::from_ref(data), &run, &|_| Ok(()))?;
    let first = inference.outputs.into_iter().next();
    first.map(|(_, output)| output).ok_or_else(|| Error::Refused("the network has one output".into()))
}

fn recipe(frac: u32, policy: RangePolicy) -> Recipe {
    let input_range = Interval::abs(LARGEST);
    Recipe::Fixed(Box::new(CompileOptions { frac, policy, input_range, ..CompileOptions::default() }))
}

/// Runs both on the features of `users` users and reports.
///
/// # Errors
/// If a party fails.
pub fn relevance(users: usize, seed: u64, work: Work) -> Result<Json> {
    if users == 0 {
        return Err(Error::Refused("--users is at least 1".into()));
    }
    let graph = build("relevance", users, seed)?;
    let data = relevance_features(users, seed);
    let truth = plain::run(&graph, std::slice::from_ref(&data))?.remove(0);

    let refused = recipe(FRAC, RangePolicy::Prove).compile(&graph, "owner").err().map(|e| e.to_string());
    let mut scales = vec![];
    for frac in SCALES {
        // The same arithmetic on words that one process sees: what shares would add up to.
        let mut row = match fixed(&graph, &data, frac, "clear") {
            Ok(got) => logits(&got, &truth),
            Err(e) => json!({ "refused": e.to_string() }),
        };
        row["frac"] = json!(frac);
        scales.push(row);
    }
    let mut on_shares = logits(&fixed(&graph, &data, FRAC, FIXED)?, &truth);
    on_shares["frac"] = json!(FRAC);

    let mut backend = processes(SECFLOAT.name)?;
    let model = Recipe::Float(work).compile(&graph, backend.client())?;
    let run = RunOptions::new(SECFLOAT.name);
    let inference = infer(&mut backend, &model, std::slice::from_ref(&data), &run, &|_| Ok(()))?;
    let mut float = logits(&inference.outputs[0].1, &truth);
    let online = inference.cost.phases.get(&Phase::Online);
    float["seconds"] = json!(online.map(|p| p.seconds.median));
    float["bytes"] = json!(online.map(|p| p.sent_bytes.values().sum::<u64>()));
    Ok(json!({
        "schema": "megrez.example/1",
        "example": "relevance",
        "users": users,
        "seed": seed,
        "truth": truth.data.chunks(4).collect::<Vec<_>>(),
        "fixed": { "protocol": FIXED, "ring": 64, "refused": refused, "scales": scales, "on_shares": on_shares },
        "float": { "protocol": SECFLOAT.name, "numbers": "float32", "on_shares": float },
    }))
}

/// The report for people.
#[must_use]
pub fn relevance_text(report: &Json) -> String {
    let mut out = String::from(
        "The relevance network 874-300-200-100-4: weights between 1e-7 and 10, features up to 1e9.\n\n",
    );
    let (fixed, float) = (&report["fixed"], &report["float"]);
    let _ = writeln!(
        out,
        "fixed point, with proven ranges: refused\n  {}\n",
        fixed["refused"].as_str().unwrap_or("no")
    );
    let _ = writeln!(
        out,
        "fixed point on the 64-bit ring, with ranges assumed (relative error of the logits, classes right)"
    );
    let line = |name: String, row: &Json| {
        if !row["refused"].is_null() {
            return format!("  {name:<34}    refused: a weight does not fit\n");
        }
        let error = row["relative_error"].as_f64().unwrap_or(f64::NAN);
        format!("  {name:<34} {error:>10.2e}   {} of {}\n", row["same_class"], report["users"])
    };
    for row in fixed["scales"].as_array().into_iter().flatten() {
        out += &line(format!("{} fraction bits, in the clear", row["frac"]), row);
    }
    out += &line(format!("{} fraction bits, {}", fixed["on_shares"]["frac"], FIXED), &fixed["on_shares"]);
    out += "\nfloating point\n";
    out += &line(format!("float32, {}", SECFLOAT.name), &float["on_shares"]);
    let seconds = float["on_shares"]["seconds"].as_f64().unwrap_or_default();
    let sent = bytes(float["on_shares"]["bytes"].as_u64().unwrap_or_default());
    let _ = writeln!(out, "  {sent} in both directions, {seconds:.1} s {}\n", phase_name(Phase::Online));
    let row = |v: &Json| {
        let numbers =
            v.as_array().into_iter().flatten().map(|x| format!("{:>14.6e}", x.as_f64().unwrap_or(f64::NAN)));
        numbers.collect::<Vec<_>>().join(" ")
    };
    let _ = writeln!(out, "logits of the first user\n  truth    {}", row(&report["truth"][0]));
    let _ = writeln!(out, "  fixed    {}", row(&fixed["on_shares"]["logits"][0]));
    let _ = writeln!(out, "  float32  {}", row(&float["on_shares"]["logits"][0]));
    out
}
