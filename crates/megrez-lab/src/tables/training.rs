//! MIZAR's tables of training: 7, 8 and 9.

use super::mizar::{COLUMNS, NETS, PACKED};
use super::table::{Column, Measured, Row, Table, model, step};

const COUNTS: &str = "MiB sent and received at party 0, offline all that is dealt, which goes to two workers and in the paper to party 0; seconds of one forward and backward pass of 32 images with its update. The paper opens \
     every logit of every image to compute the gradient of softmax, which is not counted here either way: nothing is opened here. It has 26 fraction bits, \
     with which its truncation does not train; here there are 16. It does not move ReLU behind the pool in training, as is done here.";

/// What the paper prints of a pass: offline and online MiB, and seconds on both networks.
const PASSES: [(&str, &str, [[f64; 6]; 4]); 2] = [
    (
        "LeNet",
        "lenet",
        [
            [NONE, NONE, NONE, 280.711, 4.420, 25.536],
            [93.234, 1.765, 9.257, 167.245, 3.011, 17.879],
            [93.234, 1.894, 9.241, 115.956, 1.988, 12.343],
            [93.234, 1.894, 9.208, 115.956, 1.988, 11.926],
        ],
    ),
    (
        "VGG-16",
        "vgg16-cifar",
        [
            [NONE, NONE, NONE, 2908.521, 38.911, 312.313],
            [1038.378, 16.326, 115.986, 1873.893, 27.693, 177.579],
            [1038.378, 16.948, 115.257, 1332.893, 19.360, 117.753],
            [1038.378, 16.216, 115.252, 1332.893, 18.355, 116.844],
        ],
    ),
];

const NONE: f64 = f64::NAN;
const SYSTEMS: [&str; 4] = ["P-FALCON", "Aegis", "Concurrent", "MIZAR"];
const BATCH: usize = 32;
const FRAC: u32 = 16;

/// VGG-16 takes minutes and gigabytes.
fn sized(row: Row, name: &str) -> Row {
    if name == "lenet" { row } else { row.large() }
}

/// Table 7.
pub(super) const PASS: Table = Table {
    name: "mizar-7-training",
    title: "MIZAR, Table 7: training on a batch of 32 images, l = 64",
    counts: COUNTS,
    nets: NETS,
    columns: COLUMNS,
    rows: || {
        let mut rows = vec![];
        for (label, name, figures) in PASSES {
            for (system, printed) in SYSTEMS.into_iter().zip(figures) {
                let row = Row::new(label, system).paper(&printed);
                rows.push(match system {
                    "P-FALCON" => sized(row.bench(step(name, "falcon", FRAC, BATCH)), name).note(PACKED),
                    "MIZAR" => sized(row.bench(step(name, "mizar", FRAC, BATCH)), name)
                        .note("here with lists of digits, and no logit opened"),
                    _ => row,
                });
            }
        }
        rows
    },
};

/// Table 8.
pub(super) const MEMORY: Table = Table {
    name: "mizar-8",
    title: "MIZAR, Table 8: memory of a pass of training, a batch of 32 images",
    counts: "The paper: peak memory of a GPU in MB. Here: the largest resident memory of a party's process in MiB, with what it needs for more than this \
             pass; only where parties are processes.",
    nets: &[("lan", "1ms,1gbps")],
    columns: &[
        Column { name: "P0", per_net: false, ours: |m| resident(m, 0) },
        Column { name: "P2", per_net: false, ours: |m| resident(m, 2) },
    ],
    rows: || {
        let mut rows = vec![];
        for (label, name, figures) in [
            (
                "LeNet",
                "lenet",
                [[232.339, 232.339], [291.537, 187.826], [269.388, 187.826], [199.076, 120.326]],
            ),
            (
                "VGG-16",
                "vgg16-cifar",
                [[1801.703, 1801.703], [2281.266, 1691.266], [2018.016, 1554.016], [1755.266, 1307.266]],
            ),
        ] {
            for (system, printed) in SYSTEMS.into_iter().zip(figures) {
                let row = Row::new(label, system).paper(&printed);
                rows.push(match system {
                    "P-FALCON" => sized(row.bench(step(name, "falcon", FRAC, BATCH)), name),
                    "MIZAR" => sized(row.bench(step(name, "mizar", FRAC, BATCH)), name),
                    _ => row,
                });
            }
        }
        rows
    },
};

fn resident(m: &Measured, party: usize) -> Option<f64> {
    let report = m.report();
    if report["parties"] != "process" {
        return None;
    }
    report["peak_rss_mib"][party].as_f64()
}

/// Table 9.
pub(super) const FRAMEWORKS: Table = Table {
    name: "mizar-9",
    title: "MIZAR, Table 9: inference on one image and training on 32, beside ABY3 and SecureNN in SPU on 64 threads",
    counts: COUNTS,
    nets: NETS,
    columns: COLUMNS,
    rows: || {
        let mut rows = vec![];
        for (label, name, inference, training) in [
            (
                "LeNet",
                "lenet",
                [
                    [0.0, 0.0, 0.0, 1.943, 0.515, 4.120],
                    [0.0, 0.0, 0.0, 73.246, 4.608, 41.473],
                    [1.618, 0.105, 0.430, 1.959, 0.192, 1.818],
                ],
                [
                    [0.0, 0.0, 0.0, 101.879, 3.787, 22.727],
                    [0.0, 0.0, 0.0, 2592.314, 51.953, 311.718],
                    [93.234, 1.894, 9.208, 115.956, 1.988, 11.926],
                ],
            ),
            (
                "VGG-16",
                "vgg16-cifar",
                [
                    [0.0, 0.0, 0.0, 32.312, 2.573, 20.562],
                    [0.0, 0.0, 0.0, 1319.025, 22.250, 200.247],
                    [25.360, 0.421, 2.123, 27.472, 0.681, 5.906],
                ],
                [
                    [0.0, 0.0, 0.0, 2137.417, 34.003, 259.421],
                    [0.0, 0.0, 0.0, 55222.779, 640.345, 5373.704],
                    [1038.378, 16.216, 115.252, 1332.893, 18.355, 116.844],
                ],
            ),
        ] {
            for (what, figures, trains) in [("inference", inference, false), ("training", training, true)] {
                let systems = [("ABY3", Some("aby3")), ("SecureNN", None), ("MIZAR", Some("mizar"))];
                for ((system, protocol), printed) in systems.into_iter().zip(figures) {
                    let row = Row::new(format!("{label}, {what}"), system).paper(&printed);
                    rows.push(match (protocol, trains) {
                        (Some(protocol), true) => sized(row.bench(step(name, protocol, FRAC, BATCH)), name),
                        (Some(protocol), false) => row.bench(model(name, protocol, FRAC, 1)),
                        (None, _) => row.note("there is no SecureNN here"),
                    });
                }
            }
        }
        rows
    },
};
