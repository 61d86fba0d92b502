//! METEOR's tables 3 to 6: ℓ = 64, f = 13, online; single inputs but in the last.

use super::table::{Column, Row, Table, layer, model, op};
use megrez::Result;
use megrez_graph::{Attributes, Graph, Tensor};

const COUNTS: &str = "The paper counts MB = 10^6 bytes that a party sends online, one byte for every element of F_67, where its formulas \
     have seven bits; its prototype has no offline phase and masks of zero, so its times hold no randomness. Here: bytes that a party \
     sends, the parties' mean; the offline phase is run and listed; elements are packed.";

const NETS: &[(&str, &str)] = &[("lan", "1ms,8gbps"), ("wan", "70ms,392mbps")];

const FRAC: u32 = 13;

const COLUMNS: &[Column] = &[
    Column { name: "online MB", per_net: false, ours: |m| Some(m.sent("online")? / 1e6) },
    Column { name: "offline MB", per_net: false, ours: |m| Some(m.sent("offline")? / 1e6) },
    Column { name: "rounds", per_net: false, ours: |m| m.rounds("online") },
    Column { name: "online s", per_net: true, ours: |m| m.seconds("online") },
    Column { name: "offline s", per_net: true, ours: |m| m.seconds("offline") },
];

/// Table 3.
pub(super) const OPERATORS: Table = Table {
    name: "meteor-3",
    title: "METEOR, Table 3: operators of neural networks",
    counts: COUNTS,
    nets: NETS,
    columns: COLUMNS,
    rows: operators,
};

/// Table 4.
pub(super) const MNIST: Table = Table {
    name: "meteor-4",
    title: "METEOR, Table 4: networks on one image of MNIST",
    counts: COUNTS,
    nets: NETS,
    columns: COLUMNS,
    rows: || {
        networks(&[
            ("net-a", [[0.700, 0.175, 5.223], [0.041, 0.035, 1.544], [0.027, 0.024, 1.056]]),
            ("net-b", [[1.352, 0.236, 6.734], [0.168, 0.031, 1.191], [0.111, 0.024, 0.836]]),
            ("net-c", [[2.954, 0.416, 9.666], [1.641, 0.128, 5.517], [1.066, 0.104, 3.049]]),
            ("lenet", [[6.314, 0.861, 14.892], [2.415, 0.160, 6.759], [1.568, 0.143, 3.176]]),
        ])
    },
};

/// Table 5.
pub(super) const CIFAR: Table = Table {
    name: "meteor-5",
    title: "METEOR, Table 5: networks on one image of CIFAR-10",
    counts: COUNTS,
    nets: NETS,
    columns: COLUMNS,
    rows: || {
        networks(&[
            ("alexnet-cifar", [[f64::NAN; 3], [4.075, 0.480, 13.522], [2.562, 0.429, 8.997]]),
            ("vgg16-cifar-max", [[f64::NAN; 3], [44.844, 3.428, 38.559], [29.424, 4.240, 27.174]]),
        ])
    },
};

/// Table 6.
pub(super) const BATCHES: Table = Table {
    name: "meteor-6",
    title: "METEOR, Table 6: networks on batches of 1 and of 128 images of CIFAR-10",
    counts: COUNTS,
    nets: NETS,
    columns: &[Column { name: "online s", per_net: true, ours: |m| m.seconds("online") }],
    rows: || {
        let mut rows = vec![];
        for (name, label, printed) in [
            ("alexnet-cifar", "AlexNet", [[0.429, 8.997], [18.649, 203.304]]),
            ("vgg16-cifar-max", "VGG16", [[4.240, 27.174], [282.682, 2404.509]]),
        ] {
            for (batch, printed) in [1, 128].into_iter().zip(printed) {
                let row = Row::new(format!("{label}, |B| = {batch}"), "METEOR").paper(&printed);
                let row = row.bench(model(name, "meteor", FRAC, batch));
                rows.push(if batch > 1 { row.large() } else { row });
            }
        }
        rows
    },
};

/// Bytes, LAN and WAN of a system as figures of all columns.
fn printed([bytes, lan, wan]: [f64; 3]) -> [f64; 7] {
    [bytes, f64::NAN, f64::NAN, lan, wan, f64::NAN, f64::NAN]
}

/// What the paper prints of SecureNN, FALCON and METEOR, then what is measured under four
/// protocols. FALCON's comparison is here as Piranha has it, with real randomness.
fn systems(label: &str, paper: [[f64; 3]; 3], measured: impl Fn(&'static str, Row) -> Row) -> Vec<Row> {
    let [securenn, falcon, meteor] = paper;
    let mut rows = vec![];
    for (system, figures) in [("SecureNN", securenn), ("FALCON", falcon)] {
        if figures[0].is_finite() {
            rows.push(Row::new(label, system).paper(&printed(figures)));
        }
    }
    rows.push(measured("meteor", Row::new(label, "METEOR").paper(&printed(meteor))));
    for (system, protocol) in [("P-FALCON", "falcon"), ("ABY3", "aby3"), ("ALKAID", "alkaid")] {
        rows.push(measured(protocol, Row::new(label, system)));
    }
    rows
}

fn networks(networks: &[(&'static str, [[f64; 3]; 3])]) -> Vec<Row> {
    let rows = networks.iter().map(|&(name, paper)| {
        systems(name, paper, |protocol, row| row.bench(model(name, protocol, FRAC, 1)))
    });
    rows.flatten().collect()
}

fn operators() -> Vec<Row> {
    let matmul = [
        ([784, 128, 10], [[0.563, 0.065, 0.146], [0.084, 0.003, 0.103], [0.063, 0.003, 0.073]]),
        ([128, 500, 100], [[0.642, 0.258, 0.346], [0.137, 0.007, 0.118], [0.102, 0.012, 0.076]]),
    ];
    let conv = [
        ([28, 1, 20, 5], [[0.110, 0.019, 0.122], [0.123, 0.005, 0.103], [0.092, 0.004, 0.099]]),
        ([8, 16, 50, 5], [[0.143, 0.019, 0.091], [0.008, 0.002, 0.102], [0.006, 0.002, 0.066]]),
    ];
    let relu = [
        ("128x128", 128 * 128, [[3.845, 0.205, 1.076], [2.376, 0.035, 0.623], [1.556, 0.040, 0.433]]),
        ("576x20", 576 * 20, [[2.703, 0.148, 0.815], [1.670, 0.025, 0.566], [1.094, 0.030, 0.457]]),
    ];
    let pool = [
        ([24, 20, 2], [[2.143, 0.123, 1.412], [1.287, 0.038, 1.355], [0.821, 0.031, 0.929]]),
        ([8, 50, 4], [[0.744, 0.139, 5.523], [0.483, 0.118, 6.409], [0.285, 0.079, 4.323]]),
    ];
    let mut rows = vec![];
    for (shape, paper) in matmul {
        rows.extend(systems(&format!("MatMul {shape:?}"), paper, |protocol, row| {
            row.bench(op("fixed-matmul", protocol, FRAC, move |o| o.shape = shape))
        }));
    }
    for (sizes, paper) in conv {
        rows.extend(systems(&format!("Conv {sizes:?}"), paper, |protocol, row| {
            row.bench(layer(move || conv_layer(sizes), protocol, FRAC))
        }));
    }
    for (label, n, paper) in relu {
        rows.extend(systems(&format!("ReLU {label}"), paper, |protocol, row| {
            row.bench(op("relu", protocol, FRAC, move |o| o.batch = n))
        }));
    }
    for (sizes, paper) in pool {
        rows.extend(systems(&format!("MaxPool {sizes:?}"), paper, |protocol, row| {
            row.bench(layer(move || pool_layer(sizes), protocol, FRAC))
        }));
    }
    rows
}

/// A convolution of an m×m image of c channels with o filters of f×f.
fn conv_layer([m, c, o, f]: [usize; 4]) -> Result<Graph> {
    let mut graph = Graph::new("conv");
    let x = graph.input("x", [1, c, m, m])?;
    let n = o * c * f * f;
    // What the weights are does not matter: small ones of both signs.
    let weights: Vec<f32> = (0..n).map(|i| ((i * 7919 % 101) as f32 - 50.0) / 256.0).collect();
    let w = graph.constant("w", Tensor::new([o, c, f, f], weights));
    let y = graph.add("op", "Conv", &[x, w], Attributes::none())?;
    graph.output("z", y);
    Ok(graph)
}

/// The maxima of f×f windows of an m×m image of c channels.
fn pool_layer([m, c, f]: [usize; 3]) -> Result<Graph> {
    let mut graph = Graph::new("pool");
    let x = graph.input("x", [1, c, m, m])?;
    let window = Attributes::none().with("kernel_shape", [f as i64; 2]).with("strides", [f as i64; 2]);
    let y = graph.add("op", "MaxPool", &[x], window)?;
    graph.output("z", y);
    Ok(graph)
}
