//! MIZAR's tables 3 to 7.

use super::table::{Column, Measured, Row, Table, model, op};
use super::variants::{Prefix, prefix_sums, reductions};
use crate::bench::BenchOptions;
use megrez::choices::List;
use megrez::request::sign_bit;
use megrez_graph::Activations;

pub(super) const NETS: &[(&str, &str)] = &[("lan", "1ms,1gbps"), ("wan", "50ms,160mbps")];

const INFLATED: &str = "The paper counts what party 0 sends and receives, in MiB; its code counts 15 runs and divides by 10, so true figures \
     are two thirds of the printed ones (sign bit, l = 64: 72 online and 80 offline, not 108 and 120). It puts an element of the field into a whole byte; \
     all its masks are zero and the lists are not permuted, so its times have no pseudo-randomness in them. Here: offline all that is dealt, which goes to two workers and in the paper to party 0; online MiB at party 0 as counted on \
     the links, elements packed densely, all randomness made.";

const NOT_INFLATED: &str = "MiB sent and received at party 0, offline all that is dealt, which goes to two workers and in the paper to party 0; this table is not inflated. All masks of the paper's code are zero. Its training is \
     `mizar-7-training`. The paper moves ReLU behind the pool in LeNet, as is done here.";

/// Of every row of P-FALCON's.
pub(super) const PACKED: &str =
    "P-FALCON's bits take a byte each in the paper and a bit here, where its masks are random";

const LOCAL: &str = "One device, no party; an operation is one pass over a batch of 2^20 elements. The paper's is an A100-PCIE-40GB. \
     Verified against arithmetic in 128 bits.";

fn mib(bytes: f64) -> f64 {
    bytes / 1048576.0
}

pub(super) const COLUMNS: &[Column] = &[
    Column { name: "offline MiB", per_net: false, ours: |m| m.dealt().map(mib) },
    Column { name: "offline s", per_net: true, ours: |m| m.seconds("offline") },
    Column { name: "online MiB", per_net: false, ours: |m| m.at_party_0("online").map(mib) },
    Column { name: "online s", per_net: true, ours: |m| m.seconds("online") },
];

const RATE: &[Column] = &[Column { name: "ops/s", per_net: false, ours: rate }];

fn rate(m: &Measured) -> Option<f64> {
    m.report()["operations_per_second"].as_f64()
}

/// Table 3.
pub(super) const REDUCTIONS: Table = Table {
    name: "mizar-3",
    title: "MIZAR, Table 3: x mod 2^l and x mod p, by integer division, of 2^20 elements",
    counts: LOCAL,
    nets: &[("none", "loopback")],
    columns: RATE,
    rows: || {
        let row = |label: &str, printed, ring, prime| {
            Row::new(label, "plain").paper(&[printed]).bench(move |setting| reductions(setting, ring, prime))
        };
        vec![
            row("x mod 2^64", 43478.0, 64, false),
            row("x mod p, p near 2^64", 18182.0, 64, true),
            row("x mod 2^32", 55556.0, 32, false),
            row("x mod p, p near 2^32", 27027.0, 32, true),
        ]
    },
};

/// Table 4.
pub(super) const PREFIX_SUMS: Table = Table {
    name: "mizar-4",
    title: "MIZAR, Table 4: prefix sums modulo p of 2^20 elements, in lists of 64 with p = 127",
    counts: LOCAL,
    nets: &[("none", "loopback")],
    columns: RATE,
    rows: || {
        let row = |how: Prefix, label: &str, system, printed| {
            Row::new(label, system).paper(&[printed]).bench(move |setting| prefix_sums(setting, how))
        };
        vec![
            row(Prefix { scan: false, reduction: 0 }, "naive", "idiv", 8333.0),
            row(Prefix { scan: false, reduction: 1 }, "naive", "Barrett", 10417.0),
            row(Prefix { scan: false, reduction: 2 }, "naive", "Mersenne", 10417.0),
            row(Prefix { scan: true, reduction: 0 }, "scan", "idiv", 16667.0),
            row(Prefix { scan: true, reduction: 1 }, "scan", "Barrett", 20000.0),
            row(Prefix { scan: true, reduction: 2 }, "scan", "Mersenne", 21277.0),
        ]
    },
};

/// Table 5.
pub(super) const SIGN_BITS: Table = Table {
    name: "mizar-5",
    title: "MIZAR, Table 5: the sign bit of 2^20 elements",
    counts: INFLATED,
    nets: NETS,
    columns: COLUMNS,
    rows: || {
        let mut rows = vec![];
        for (ring, falcon, aegis, concurrent, mizar) in [
            (
                32,
                [198.0, 1.690, 10.683],
                [60.0, 0.639, 4.410, 102.0, 1.192, 7.737],
                [60.0, 0.640, 4.410, 54.0, 0.630, 4.251],
                [60.0, 0.638, 4.409, 54.0, 0.618, 4.269],
            ),
            (
                64,
                [402.0, 3.471, 24.802],
                [120.0, 1.170, 8.110, 204.0, 2.364, 15.904],
                [120.0, 1.180, 8.011, 108.0, 1.244, 8.545],
                [120.0, 1.171, 8.011, 108.0, 1.238, 8.466],
            ),
        ] {
            rows.extend(systems("sign bit", "sign-bit", ring, 1 << 20, falcon, [aegis, concurrent, mizar]));
        }
        rows
    },
};

/// Table 6.
pub(super) const FUNCTIONS: Table = Table {
    name: "mizar-6",
    title: "MIZAR, Table 6: functions of 2^20 elements; the largest of 2×2 of 2^20",
    counts: INFLATED,
    nets: NETS,
    columns: COLUMNS,
    rows: functions,
};

/// Table 7.
pub(super) const NETWORKS: Table = Table {
    name: "mizar-7",
    title: "MIZAR, Table 7: inference on one image, l = 64, f = 26",
    counts: NOT_INFLATED,
    nets: NETS,
    columns: COLUMNS,
    rows: || {
        let mut rows = vec![];
        let none = f64::NAN;
        for (label, name, falcon, aegis, concurrent, mizar) in [
            (
                "LeNet",
                "lenet",
                [4.672, 0.492, 6.304],
                [2.545, 0.132, 0.544, 4.488, 0.465, 1.919],
                [2.545, 0.132, 0.535, 2.886, 0.244, 1.985],
                [1.618, 0.105, 0.430, 1.959, 0.192, 1.818],
            ),
            (
                "VGG-16",
                "vgg16-cifar",
                [58.924, 2.100, 16.716],
                [25.360, 0.451, 2.213, 44.379, 1.031, 7.449],
                [25.360, 0.443, 2.213, 27.472, 0.728, 6.149],
                [25.360, 0.421, 2.213, 27.472, 0.681, 5.906],
            ),
        ] {
            let [on, lan, wan] = falcon;
            let row = Row::new(label, "P-FALCON").paper(&[none, none, none, on, lan, wan]);
            rows.push(row.bench(model(name, "falcon", 26, 1)).note(PACKED));
            rows.push(Row::new(label, "Aegis").paper(&aegis));
            rows.push(Row::new(label, "Concurrent").paper(&concurrent));
            let row = Row::new(label, "MIZAR").paper(&mizar).note("here with lists of digits");
            rows.push(row.bench(model(name, "mizar", 26, 1)));
        }
        rows
    },
};

/// The systems of a row of tables 5 and 6: printed figures of all, and what is measured here for
/// those that exist here. Our digit list stands below.
fn systems(
    label: &str,
    name: &'static str,
    ring: u32,
    batch: usize,
    falcon: [f64; 3],
    others: [[f64; 6]; 3],
) -> Vec<Row> {
    let label = format!("{label}, l = {ring}");
    let none = f64::NAN;
    let change = move |o: &mut BenchOptions| {
        (o.ring, o.batch, o.activations) = (ring, batch, Activations::Mizar);
        o.frac = if ring == 32 { 10 } else { 16 };
    };
    let [aegis, concurrent, mizar] = others;
    let [on, lan, wan] = falcon;
    let run = |protocol| op(name, protocol, 16, change);
    let with_digits = move |o: &mut BenchOptions| {
        change(o);
        if let Ok(sign) = sign_bit(ring, List::Digits, None, None, 0) {
            o.sign = sign;
        }
    };
    vec![
        Row::new(&label, "P-FALCON")
            .paper(&[none, none, none, on, lan, wan])
            .bench(run("falcon"))
            .note(PACKED)
            .large(),
        Row::new(&label, "Aegis").paper(&aegis).bench(run("aegis")).large(),
        Row::new(&label, "Concurrent").paper(&concurrent).bench(run("concurrent")).large(),
        Row::new(&label, "MIZAR").paper(&mizar).bench(run("mizar")),
        Row::new(&label, "MIZAR with digits").bench(op(name, "mizar", 16, with_digits)),
    ]
}

fn functions() -> Vec<Row> {
    let mut rows = vec![];
    let many = 1 << 20;
    for (label, name, ring, batch, falcon, others) in [
        (
            "ReLU",
            "relu",
            32,
            many,
            [213.0, 1.821, 11.705],
            [
                [66.0, 0.554, 4.091, 114.0, 1.276, 9.190],
                [66.0, 0.554, 4.092, 66.0, 0.711, 5.987],
                [66.0, 0.554, 4.092, 66.0, 0.695, 5.588],
            ],
        ),
        (
            "ReLU",
            "relu",
            64,
            many,
            [429.0, 3.711, 29.399],
            [
                [132.0, 1.102, 8.140, 228.0, 2.543, 17.995],
                [132.0, 1.098, 8.112, 132.0, 1.440, 10.988],
                [132.0, 1.097, 8.110, 132.0, 1.436, 10.608],
            ],
        ),
        (
            "Sigmoid",
            "sigmoid",
            32,
            many,
            [477.0, 4.186, 25.841],
            [
                [138.0, 1.092, 8.327, 240.0, 2.645, 18.530],
                [138.0, 1.092, 8.327, 144.0, 1.534, 11.191],
                [54.324, 0.676, 5.155, 144.0, 1.503, 10.964],
            ],
        ),
        (
            "Sigmoid",
            "sigmoid",
            64,
            many,
            [957.0, 8.427, 51.634],
            [
                [276.0, 2.162, 16.490, 480.0, 5.273, 37.519],
                [276.0, 2.162, 16.490, 288.0, 3.046, 19.683],
                [90.563, 1.546, 11.790, 288.0, 3.016, 19.001],
            ],
        ),
        (
            "GeLU",
            "gelu",
            32,
            many,
            [822.0, 7.262, 45.671],
            [
                [234.0, 1.478, 12.387, 414.0, 4.320, 31.612],
                [234.0, 1.478, 12.387, 270.0, 2.635, 17.144],
                [67.832, 1.083, 9.069, 270.0, 2.611, 16.988],
            ],
        ),
        (
            "GeLU",
            "gelu",
            64,
            many,
            [1650.0, 14.624, 89.586],
            [
                [468.0, 2.861, 23.972, 828.0, 8.551, 64.325],
                [468.0, 2.860, 23.982, 540.0, 5.213, 33.566],
                [130.478, 2.032, 17.023, 540.0, 5.184, 33.379],
            ],
        ),
        (
            "MaxPool",
            "maxpool",
            32,
            many / 4,
            [165.75, 1.403, 9.217],
            [
                [61.5, 0.589, 4.135, 109.5, 1.130, 8.162],
                [61.5, 0.601, 4.221, 73.5, 0.720, 4.878],
                [61.5, 0.589, 4.139, 73.5, 0.699, 4.736],
            ],
        ),
        (
            "MaxPool",
            "maxpool",
            64,
            many / 4,
            [327.75, 2.788, 17.869],
            [
                [123.0, 1.152, 8.086, 219.0, 2.193, 15.285],
                [123.0, 1.138, 7.992, 147.0, 1.407, 9.536],
                [123.0, 1.127, 7.911, 147.0, 1.383, 9.371],
            ],
        ),
    ] {
        rows.extend(systems(label, name, ring, batch, falcon, others));
    }
    rows
}
