//! Runs models on data and says how far the results are from the expected ones: what
//! `benches/coverage/onnx_nodes.py` counts.
//!
//! After the protocol may stand a network, `mizar@lan`: then parties wait for it, and standard
//! error says what the run cost; and after the network a form of trees, `mizar@lan@shape`. Every
//! argument after the protocol is a folder with `model.onnx`, `input_0.npy`, … in the order of the
//! model's inputs, and `output_0.npy`, …. An input that is a constant is `constant_3.npy`, by its
//! place among all inputs, and does not count among the others. For each of them a line says what
//! happened, in three columns: the folder, `passed`, `unsupported`, `wrong` or `crash`, and why; of
//! what passed, whether its ranges were proven, calibrated (on `sample0_0.npy`, …, `sample1_0.npy`,
//! … if there are any, else on the inputs) or assumed.

use megrez_engine::PartyReport;
use megrez_engine::local::{LocalOptions, run};
use megrez_graph::calibrate::calibrate;
use megrez_graph::onnx::{ImportOptions, bytes, inputs, read_file};
use megrez_graph::passes::precision::{DEEP, depth};
use megrez_graph::plain::trace;
use megrez_graph::{
    Activations, Comparison, CompileOptions, Compiled, Interval, LayerRange, RangePolicy, Tensor, TreeForm,
    compile, npy,
};
use megrez_net::ClockKind;
use megrez_plan::{Fewest, List, SignBit};
use megrez_protocols::registry;
use megrez_ring::{Word, encode};
use std::collections::{BTreeMap, HashMap};
use std::fs::read_dir;
use std::panic::catch_unwind;
use std::path::Path;

/// An error of at most this, and of this times the expected number, is one of the fixed point: 16
/// fraction bits, and splines that are off by at most 0.0015.
const TOLERANCE: f64 = 1.0 / 256.0;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let protocol = arguments.next().expect("give a protocol, then folders");
    std::panic::set_hook(Box::new(|_| {}));
    for folder in arguments {
        let outcome = catch_unwind(|| case(&protocol, Path::new(&folder))).unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().cloned();
            ("crash", text.or(panic.downcast_ref::<&str>().map(ToString::to_string)).unwrap_or_default())
        });
        println!("{folder}\t{}\t{}", outcome.0, outcome.1.replace(['\n', '\t'], " | "));
    }
}

/// The arrays of a folder whose files begin with `what`.
fn arrays(folder: &Path, what: &str) -> Result<Vec<Tensor>, String> {
    let count = read_dir(folder).map_err(|e| e.to_string())?.flatten();
    let count = count.filter(|file| file.file_name().to_string_lossy().starts_with(what)).count();
    (0..count)
        .map(|i| npy::load(&folder.join(format!("{what}_{i}.npy"))).map_err(|e| e.to_string()))
        .collect()
}

/// What happened to a case, and why.
fn case(protocol: &str, folder: &Path) -> (&'static str, String) {
    let expected = match arrays(folder, "output") {
        Ok(expected) => expected,
        Err(why) => return ("unsupported", why),
    };
    match results(protocol, folder) {
        Err(why) => ("unsupported", why),
        Ok((got, basis)) => match got
            .iter()
            .zip(&expected)
            .enumerate()
            .find_map(|(i, (got, want))| difference(got, want).map(|what| format!("output {i} {what}")))
        {
            Some(what) => ("wrong", what),
            None if got.len() != expected.len() => ("wrong", "has another number of outputs".into()),
            None => ("passed", basis.into()),
        },
    }
}

/// The outputs of a run under the protocol, and what its ranges rest on.
fn results(protocol: &str, folder: &Path) -> Result<(Vec<Tensor>, &'static str), String> {
    let data = arrays(folder, "input")?;
    let path = folder.join("model.onnx");
    let model = bytes(&path).map_err(|e| e.to_string())?;
    let mut names: Vec<String> =
        inputs(&model).map_err(|e| e.to_string())?.into_iter().map(|input| input.name).collect();
    let mut constants = BTreeMap::new();
    for (i, name) in names.iter().enumerate() {
        if let Ok(value) = npy::load(&folder.join(format!("constant_{i}.npy"))) {
            constants.insert(name.clone(), value);
        }
    }
    names.retain(|name| !constants.contains_key(name));
    let shapes = names.iter().cloned().zip(data.iter().map(|x| x.shape.dims().to_vec())).collect();
    let options = ImportOptions { shapes, constants, ..ImportOptions::default() };
    let graph = read_file(&path, &options).map_err(|e| e.to_string())?;
    // What a user measures on her data and declares.
    let range = |x: &Tensor| {
        let f = |f: fn(f64, f64) -> f64, from| x.data.iter().fold(from, |m, &v| f(m, v.into()));
        Interval { low: f(f64::min, f64::INFINITY), high: f(f64::max, f64::NEG_INFINITY) }
    };
    let can = registry::find(protocol.split('@').next().unwrap_or(""));
    let proven = CompileOptions {
        input_ranges: names.iter().cloned().zip(data.iter().map(range)).collect::<BTreeMap<_, _>>(),
        activations: Activations::Fine,
        deep_frac: Some(20),
        policy: RangePolicy::Prove,
        // As the command compares, if nothing else is said.
        comparison: Comparison::Fixed(SignBit { list: List::digits(64, Fewest::Total), ..SignBit::FULL }),
        selects_truncated: can.is_some_and(|protocol| protocol.selects_truncated),
        multiplies_bits: can.is_some_and(|protocol| protocol.multiplies_bits),
        defer_openings: can.is_some_and(|protocol| protocol.reshares),
        trees: if protocol.ends_with("@shape") { TreeForm::Shape } else { TreeForm::Hidden },
        ..CompileOptions::default()
    };
    let assumed = |frac| {
        let options = CompileOptions { policy: RangePolicy::Assume, frac, ..proven.clone() };
        let compiled = compile(&graph, &options).map_err(|e| e.to_string())?;
        holds(&compiled, &data).map(|()| compiled)
    };
    let calibrated = || {
        let samples: Vec<Vec<Tensor>> = (0..)
            .map_while(|i| arrays(folder, &format!("sample{i}")).ok().filter(|sample| !sample.is_empty()))
            .collect();
        let samples = if samples.is_empty() { vec![data.clone()] } else { samples };
        let measured = calibrate(&graph, samples, 2.0).ok();
        let policy = RangePolicy::Calibrated;
        let options = CompileOptions { policy, measured, ..proven.clone() };
        let compiled = compile(&graph, &options).map_err(|e| e.to_string());
        // Standard error is for who looks why data does not vouch for a model.
        let held = compiled.and_then(|compiled| holds(&compiled, &data).map(|()| compiled));
        held.map_err(|why| eprintln!("not calibrated: {why}")).ok()
    };
    // Numbers that outgrow the ring need fewer fraction bits, as the refusal says.
    let compiled = match compile(&graph, &proven) {
        Ok(compiled) => compiled,
        Err(_) => match calibrated() {
            Some(compiled) => compiled,
            None => {
                // More for a deep model, as its user would say; fewer where numbers are large.
                let more = [20].into_iter().filter(|_| depth(&graph) > DEEP);
                let mut found = Err(String::new());
                for frac in more.chain([16, 12, 8]) {
                    found = match (found, assumed(frac)) {
                        (_, Ok(compiled)) => Ok(compiled),
                        (Err(why), Err(first)) => Err(if frac == 16 { first } else { why }),
                        (found, _) => found,
                    };
                    if found.is_ok() {
                        break;
                    }
                }
                found?
            }
        },
    };
    let by_name: HashMap<&String, &Tensor> = names.iter().zip(&data).collect();
    let words = |values: &[f32], frac: u32| -> Result<Vec<u64>, String> {
        let words = encode::<u64>(values, frac).map_err(|e| e.to_string())?;
        Ok(words.into_iter().map(Word::to_u64).collect())
    };
    let mut given = HashMap::new();
    for input in &compiled.data_inputs {
        let x = by_name.get(&input.name).ok_or("an input has another name than in the file")?;
        input.check(x).map_err(|e| e.to_string())?;
        let values = match input.tokens {
            Some(rows) => {
                x.data.iter().flat_map(|&v| (0..rows).map(move |r| f32::from(r == v as usize))).collect()
            }
            None => x.data.clone(),
        };
        given.insert(input.name.clone(), words(&values, input.frac)?);
    }
    for input in &compiled.model_inputs {
        given.insert(input.name.clone(), words(&input.values, input.frac)?);
    }
    let (protocol, net) = protocol.split_once('@').unwrap_or((protocol, ""));
    let net = net.split('@').next().unwrap_or_default();
    let options = match net.parse() {
        Ok(net) => LocalOptions { net, clock: ClockKind::Real, ..LocalOptions::default() },
        Err(_) => LocalOptions::default(),
    };
    let mut ran = run(protocol, &compiled.plan, &given, &options).map_err(|e| e.to_string())?;
    if !net.is_empty() {
        ran.reports.remove(0).iter().for_each(tell);
    }
    let outputs = ran.outputs.remove(0);
    let decode = |words: &[u64], frac: u32| {
        words.iter().map(|&w| (w as i64 as f64 * 2f64.powi(-(frac as i32))) as f32).collect()
    };
    let outputs = compiled.outputs.iter().zip(outputs).map(|(o, w)| o.finish(decode(&w, o.frac))).collect();
    Ok((outputs, LayerRange::basis(&compiled.ranges)))
}

/// What a run cost a party.
fn tell(report: &PartyReport) {
    for (phase, cost) in &report.phases {
        eprintln!("party {} {phase:?}: {:.3} s, {} rounds", report.party, cost.seconds, cost.rounds);
    }
    let mut steps: Vec<_> = report.steps.iter().map(|s| (s.seconds, format!("{s:?}"))).collect();
    steps.sort_by(|a, b| b.0.total_cmp(&a.0));
    steps.iter().take(4).for_each(|(_, step)| eprintln!("    {step}"));
    eprintln!("    {} bytes sent", report.sent.iter().flat_map(|r| &r.sent).sum::<u64>());
}

/// What `megrez check` says of ranges that are assumed: refuses data that leaves one.
fn holds(compiled: &Compiled, data: &[Tensor]) -> Result<(), String> {
    let run = trace(&compiled.graph, data).map_err(|e| e.to_string())?;
    for ((layer, range), node) in compiled.layers.iter().zip(&compiled.ranges).zip(&compiled.graph.nodes) {
        let outside = |x: Option<&Tensor>, low: f64, high: f64| {
            x.is_some_and(|x| x.data.iter().any(|&v| !(low..=high).contains(&f64::from(v))))
        };
        let limit = 2f64.powi(range.limit as i32 - layer.frac as i32);
        let input = |i: usize| node.inputs.get(i).copied().flatten().and_then(|id| run.value(id));
        let domain = layer.domain.is_some_and(|(i, domain)| outside(input(i), domain.low, domain.high));
        let measured = range.calibrated.then_some(range.output);
        if measured.is_some_and(|r| outside(run.value(layer.graph_value), r.low, r.high)) {
            return Err(format!("({}): the data leaves what was measured", layer.op));
        }
        if !range.proven && (domain || outside(run.value(layer.graph_value), -limit, limit)) {
            return Err(format!("({}): its range is assumed, and the data leaves it", layer.op));
        }
    }
    Ok(())
}

/// How a result differs from what it should be.
fn difference(got: &Tensor, want: &Tensor) -> Option<String> {
    if got.shape != want.shape {
        return Some(format!("has the shape {}, not {}", got.shape, want.shape));
    }
    let far = |(got, want): (&f32, &f32)| {
        let (got, want) = (f64::from(*got), f64::from(*want));
        let near = (got - want).abs() <= TOLERANCE + TOLERANCE * want.abs();
        // A difference that is no number is not near.
        !near
    };
    let i = got.data.iter().zip(&want.data).position(far)?;
    Some(format!("is {} at {i}, not {}", got.data[i], want.data[i]))
}
