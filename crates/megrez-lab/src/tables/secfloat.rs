//! SECFLOAT's tables II to VII: floating point between two parties, everything online; and beside
//! it what the same programs take with a dealer, whose bytes are counted too.

use super::table::{Column, Measured, Row, Setting, Table, backend, options};
use crate::bench::{FloatBench, ModelBench, TrainBench, bench_float_model, bench_training, float};
use crate::proximity::{self, Proximity};
use megrez::Result;
use megrez::protocols::{Protocol, SECFLOAT, find};
use megrez::{FloatModel, Work};
use megrez_float::accuracy::{Function, error, run};
use megrez_graph::models;
use serde_json::{Value as Json, json};

/// The paper's network, its machines have 4 cores at 3.7 GHz.
const NETS: &[(&str, &str)] = &[("lan", "0.8ms,3gbps")];

/// k of the OT extension.
const GROUP: u32 = 4;

/// Not printed.
const NO: f64 = f64::NAN;

/// The system of a row that the papers do not have.
const DEALER: &str = "with a dealer";

/// Bytes of all parties, the dealer's among them.
fn bytes(m: &Measured) -> Option<f64> {
    Some(m.bytes("online")? + m.bytes("offline").unwrap_or(0.0))
}

/// Of an operation, all directions together.
const KIB: Column =
    Column { name: "KiB", per_net: false, ours: |m| Some(bytes(m)? / 1024.0 / number(m.report(), "batch")?) };

const SECONDS: Column = Column { name: "seconds", per_net: true, ours: |m| m.seconds("online") };

/// Table II.
pub(super) const OPERATIONS: Table = Table {
    name: "secfloat-2",
    title: "SECFLOAT, Table II: single operations in batches",
    counts: "KiB per operation, all directions together. ULP: the paper's bound, 10^6 and 10^7 being exceeded; here the largest error \
             of the numbers that were computed, against double precision (docs/accuracy.md has all 2^32). Every result is compared \
             with the functionality in the clear.",
    nets: NETS,
    columns: &[KIB, Column { name: "ULP", per_net: false, ours: |m| number(m.report(), "max_ulp") }, SECONDS],
    rows: operations,
};

/// Table III.
pub(super) const ROUNDS: Table = Table {
    name: "secfloat-3",
    title: "SECFLOAT, Table III: rounds",
    counts: "The paper's rounds are analytical, and its code has up to four times as many; here: messages on the longest chain, \
             measured, for 1000 operations at once. A round of the paper may be a message and its answer.",
    nets: NETS,
    columns: &[Column { name: "rounds", per_net: false, ours: |m| m.rounds("online") }],
    rows: rounds,
};

/// Table IV.
pub(super) const RELEVANCE: Table = Table {
    name: "secfloat-4",
    title: "SECFLOAT, Table IV: the relevance network, 874-300-200-100-4",
    counts: "GB = 10^9 bytes, all directions together. Backpropagation: forward, cross-entropy, backward and update. Our weights and \
             features are made up, between 10^-7 and 10 in magnitude as the paper's. Results are held to single precision in the \
             clear, bit for bit.",
    nets: NETS,
    columns: &[Column { name: "GB", per_net: false, ours: |m| Some(bytes(m)? / 1e9) }, SECONDS],
    rows: networks,
};

/// Table V.
pub(super) const INPUTS: Table = Table {
    name: "secfloat-5",
    title: "SECFLOAT, Table V: inputs whose results ABY-F gets wrong",
    counts: "ABY-F's results and errors as printed. Ours are computed in the clear, by the functionality whose bits shares have (tests \
             compare them), and their errors against double precision.",
    nets: &[("none", "loopback")],
    columns: &[
        Column { name: "result", per_net: false, ours: |m| number(m.report(), "result") },
        Column { name: "ULP", per_net: false, ours: |m| number(m.report(), "ulp") },
    ],
    rows: inputs,
};

/// Table VI.
pub(super) const GARBLED: Table = Table {
    name: "secfloat-6",
    title: "SECFLOAT, Table VI: single operations under ABY's garbled circuits and GMW",
    counts: "KiB per operation, both directions together. The baselines are ABY's, as printed: only ours is measured.",
    nets: NETS,
    columns: &[KIB, SECONDS],
    rows: garbled,
};

/// Table VII.
pub(super) const PROXIMITY: Table = Table {
    name: "secfloat-7",
    title: "SECFLOAT, Table VII: proximity tests",
    counts: "KiB per test, all directions together; the error is that of the haversine, on pairs of points in and around cities, a \
             quarter of them close to the threshold (the paper: random pairs). In scenario I each party knows a point and brings it \
             in fixed point, so that near points lose nothing.",
    nets: NETS,
    columns: &[
        Column {
            name: "KiB",
            per_net: false,
            ours: |m| Some(number(m.report(), "bytes_per_test")? / 1024.0),
        },
        Column { name: "average ULP", per_net: false, ours: |m| number(m.report(), "average_ulp") },
        Column { name: "seconds", per_net: true, ours: |m| number(m.report(), "seconds") },
    ],
    rows: tests,
};

/// How the parties work.
fn work() -> Work {
    Work { group: GROUP, ..Work::default() }
}

fn number(report: &Json, key: &str) -> Option<f64> {
    report[key].as_f64()
}

/// What a system of these tables is here.
fn protocol(system: &str) -> &'static Protocol {
    let dealt = || find("mizar-float").expect("it is registered");
    if system == DEALER { dealt() } else { &SECFLOAT }
}

/// Measures an operation.
fn op(system: &str, op: &'static str, batch: usize) -> impl Fn(&Setting) -> Result<Json> + 'static {
    let protocol = protocol(system);
    move |setting| {
        let o = FloatBench {
            protocol: protocol.name.into(),
            parties: protocol.parties,
            op: op.into(),
            batch,
            lanes: 1 << 17,
            repeat: setting.repeat,
            seed: setting.seed,
            work: work(),
            net: setting.net.clone(),
        };
        float::bench(&o, setting.processes)
    }
}

/// A system's seconds for 10^3, 10^4 and 10^5, its KiB and its error.
type Printed = ([f64; 3], f64, f64);

fn operations() -> Vec<Row> {
    let primitives: [(&str, &'static str, [Printed; 3]); 4] = [
        (
            "CMP",
            "lt",
            [
                ([0.02, 0.07, 0.30], 1.11, NO),
                ([0.05, 0.25, 2.08], 6.93, NO),
                ([0.22, 1.24, 12.85], 89.64, NO),
            ],
        ),
        (
            "MULT",
            "mul",
            [
                ([0.05, 0.14, 0.69], 3.13, 0.5),
                ([0.34, 3.22, 32.20], 95.74, 0.5),
                ([0.38, 1.36, 10.28], 72.72, 1e6),
            ],
        ),
        (
            "ADD",
            "add",
            [
                ([0.15, 0.56, 3.91], 11.10, 0.5),
                ([0.12, 1.00, 9.35], 31.33, 0.5),
                ([3.63, 36.05, NO], 2561.22, 1e6),
            ],
        ),
        (
            "DIV",
            "div",
            [
                ([0.14, 0.35, 2.43], 10.27, 0.5),
                ([0.46, 3.90, 38.36], 119.55, 0.5),
                ([11.33, 113.25, NO], 2462.68, 1e6),
            ],
        ),
    ];
    let functions: [(&str, &'static str, [Printed; 2]); 5] = [
        ("SIN", "sinpi", [([0.46, 1.59, 11.27], 42.36, 1.0), ([0.48, 4.49, 44.77], 163.49, 1e7)]),
        ("COS", "cospi", [([0.50, 1.60, 11.29], 42.41, 1.0), ([0.46, 4.51, 45.21], 163.86, 1e7)]),
        ("TAN", "tanpi", [([0.66, 2.21, 14.91], 60.38, 1.0), ([1.32, 12.39, 122.37], 445.86, 1e7)]),
        ("EXP2", "exp2", [([0.41, 1.51, 11.28], 37.23, 1.0), ([0.85, 8.38, 83.61], 304.89, 1.0)]),
        ("LOG2", "log2", [([0.53, 1.97, 14.94], 51.48, 1.0), ([0.92, 9.04, 90.53], 330.77, 1e6)]),
    ];
    let mut rows = vec![];
    let primitives = primitives.iter().map(|(label, name, systems)| (label, name, &systems[..]));
    let functions = functions.iter().map(|(label, name, systems)| (label, name, &systems[..]));
    for (label, name, systems) in primitives.chain(functions) {
        for (i, batch) in [1000, 10_000, 100_000].into_iter().enumerate() {
            for (system, (seconds, kib, ulp)) in ["SECFLOAT", "ABY-F", "MP-SPDZ"].iter().zip(systems) {
                let row = Row::new(format!("{label} {batch}"), system).paper(&[*kib, *ulp, seconds[i]]);
                let row = if *system == "SECFLOAT" { row.bench(op(system, name, batch)) } else { row };
                rows.push(if batch == 100_000 { row.large() } else { row });
            }
        }
        rows.push(Row::new(format!("{label} 10000"), DEALER).bench(op(DEALER, name, 10_000)));
    }
    rows
}

fn inputs() -> Vec<Row> {
    let mut rows = vec![];
    for (label, name, input, result, ulp) in [
        ("SIN", "sinpi", 0x33a2_f983_u32, 0.0, 16.7e6),
        ("COS", "cospi", 0x3eff_ffff, 3.5e-7, 37.1e6),
        ("TAN", "tanpi", 0x32a2_f983, 0.0, 16.7e6),
        ("LOG2", "log2", 0x3f7f_ffff, -1.1e-7, 4.6e6),
    ] {
        let label = format!("{label} 0x{input:08x}");
        rows.push(Row::new(&label, "ABY-F").paper(&[result, ulp]));
        rows.push(Row::new(&label, "SECFLOAT").bench(move |_| {
            let function = Function::named(name).expect("a function of the accuracy tests");
            let result = f32::from_bits(run(function, &[input])[0]);
            let ulp = error(result, (function.reference)(f64::from(f32::from_bits(input))));
            Ok(json!({ "result": result, "ulp": ulp, "verified": ulp < 1.0 }))
        }));
    }
    rows
}

/// Seconds for 10^3, 10^4 and 10^5 and KiB, under garbled circuits and under GMW.
type Aby = [([f64; 3], f64); 2];

fn garbled() -> Vec<Row> {
    let functions: [(&str, &'static str, Aby); 8] = [
        ("CMP", "lt", [([0.11, 0.71, 6.94], 8.82), ([0.07, 0.31, 2.81], 6.93)]),
        ("MULT", "mul", [([0.79, 8.45, 83.74], 96.26), ([0.41, 3.89, 36.34], 95.74)]),
        ("ADD", "add", [([0.52, 5.13, 52.17], 60.04), ([0.29, 2.34, 25.12], 58.96)]),
        ("DIV", "div", [([1.44, 15.15, NO], 170.61), ([0.80, 6.74, 63.33], 171.25)]),
        ("SIN", "sinpi", [([1.37, 14.36, NO], 164.98), ([0.72, 7.13, 62.29], 165.54)]),
        ("COS", "cospi", [([1.36, 14.17, NO], 165.36), ([0.75, 6.41, 62.73], 165.92)]),
        ("EXP2", "exp2", [([2.63, 24.97, NO], 306.39), ([1.26, 13.32, 112.83], 309.15)]),
        ("LOG2", "log2", [([2.89, 27.84, NO], 332.26), ([1.38, 12.63, 123.44], 335.44)]),
    ];
    let mut rows = vec![];
    for (label, name, systems) in functions {
        for (i, batch) in [1000, 10_000, 100_000].into_iter().enumerate() {
            let label = format!("{label} {batch}");
            let mut made = vec![Row::new(&label, "SECFLOAT").bench(op("SECFLOAT", name, batch))];
            for (system, (seconds, kib)) in ["ABY-GC", "ABY-GMW"].into_iter().zip(systems) {
                made.push(Row::new(&label, system).paper(&[kib, seconds[i]]));
            }
            rows.extend(made.into_iter().map(|row| if batch == 100_000 { row.large() } else { row }));
        }
    }
    rows
}

fn rounds() -> Vec<Row> {
    [
        ("CMP", "lt", 12.0, 11.0),
        ("MULT", "mul", 47.0, 27.0),
        ("ADD", "add", 59.0, 69.0),
        ("DIV", "div", 296.0, 84.0),
        ("SIN", "sinpi", 95.0, 196.0),
        ("COS", "cospi", 98.0, 196.0),
        ("TAN", "tanpi", 394.0, 268.0),
        ("EXP2", "exp2", 100.0, 187.0),
        ("LOG2", "log2", 157.0, 256.0),
    ]
    .into_iter()
    .flat_map(|(label, name, aby, secfloat)| {
        [
            Row::new(label, "SECFLOAT").paper(&[secfloat]).bench(op("SECFLOAT", name, 1000)),
            Row::new(label, "ABY-F").paper(&[aby]),
            Row::new(label, DEALER).bench(op(DEALER, name, 1000)),
        ]
    })
    .collect()
}

fn networks() -> Vec<Row> {
    let system = "SECFLOAT";
    vec![
        Row::new("inference 1", system).paper(&[4.7, 18.3]).bench(inference(system, 1)),
        Row::new("inference 1", DEALER).bench(inference(DEALER, 1)),
        Row::new("inference 32", system).paper(&[151.58, 1036.0]).bench(inference(system, 32)).large(),
        Row::new("backpropagation 1", system).paper(&[10.9, 40.3]).bench(training(system, 1)),
        Row::new("backpropagation 1", DEALER).bench(training(DEALER, 1)),
        Row::new("backpropagation 32", system).paper(&[329.6, 1020.5]).bench(training(system, 32)).large(),
    ]
}

/// Measures the relevance network on so many inputs.
fn inference(system: &str, batch: usize) -> impl Fn(&Setting) -> Result<Json> + 'static {
    let protocol = protocol(system).name;
    move |setting| {
        let mut backend = backend(protocol, setting)?;
        let graph = models::build("relevance", batch, setting.seed)?;
        let model = FloatModel::new(&graph, backend.client(), work())?;
        let o = options(protocol, 0, setting);
        let o = ModelBench {
            name: "relevance".into(),
            batch,
            seed: setting.seed,
            run: o.run,
            parties: o.parties,
        };
        bench_float_model(&mut backend, &model, &o)
    }
}

/// Measures a step of training it.
fn training(system: &str, batch: usize) -> impl Fn(&Setting) -> Result<Json> + 'static {
    let protocol = protocol(system);
    move |setting| {
        let o = TrainBench {
            protocol: protocol.name.into(),
            parties: protocol.parties,
            model: "relevance".into(),
            batch,
            repeat: setting.repeat,
            seed: setting.seed,
            work: work(),
            rate: 0.125,
        };
        bench_training(&o, &setting.net, setting.processes)
    }
}

fn tests() -> Vec<Row> {
    let scenarios: [(u8, [Printed; 2]); 2] = [
        (1, [([0.96, 2.86, 21.42], 75.27, 33.86), ([2.29, 24.33, 250.68], 833.98, 33.86)]),
        (2, [([2.41, 7.59, 55.55], 211.26, 1.05), ([4.21, 40.27, 415.61], 1437.73, 19612.95)]),
    ];
    let mut rows = vec![];
    for (scenario, systems) in scenarios {
        for (i, tests) in [1000, 10_000, 100_000].into_iter().enumerate() {
            for (system, (seconds, kib, ulp)) in ["SECFLOAT", "ABY-F"].into_iter().zip(&systems) {
                let label = format!("scenario {} {tests}", ["I", "II"][usize::from(scenario) - 1]);
                let row = Row::new(label, system).paper(&[*kib, *ulp, seconds[i]]);
                let row = if system == "SECFLOAT" { row.bench(near(system, scenario, tests)) } else { row };
                rows.push(if tests == 100_000 { row.large() } else { row });
            }
        }
        let label = format!("scenario {} 10000", ["I", "II"][usize::from(scenario) - 1]);
        rows.push(Row::new(label, DEALER).bench(near(DEALER, scenario, 10_000)));
    }
    rows
}

/// Measures proximity tests.
fn near(system: &str, scenario: u8, tests: usize) -> impl Fn(&Setting) -> Result<Json> + 'static {
    let protocol = protocol(system).name;
    move |setting| {
        let o = Proximity {
            protocol: protocol.into(),
            scenario,
            tests,
            metres: 500.0,
            group: GROUP,
            net: setting.net.clone(),
            seed: setting.seed,
        };
        proximity::run(&o, setting.processes)
    }
}
