//! ALKAID's tables III to VII: ℓ = 64, f = 18.

use super::table::{Column, Measured, Row, Table, model, op};

const COUNTS: &str = "The paper counts what a party sends and receives, its MB and KB are mostly 1024 (METEOR's rows are printed in KB of 1000 \
     bytes and stand here in KB of 1024); its preprocessing is recorded but not run, its correlated randomness is zero. Here: bytes sent \
     and received, the parties' mean, KB = 1024 bytes; the offline phase is run; totals are online and offline together.";

const NETS: &[(&str, &str)] = &[("lan", "2ms,1gbps"), ("wan", "50ms,160mbps")];

const FRAC: u32 = 18;

/// What a party sends and receives: each byte is sent once and received once.
fn traffic(m: &Measured, phase: &str) -> Option<f64> {
    Some(2.0 * m.sent(phase)?)
}

fn total_traffic(m: &Measured) -> Option<f64> {
    Some(traffic(m, "online")? + traffic(m, "offline")?)
}

fn total_seconds(m: &Measured) -> Option<f64> {
    Some(m.seconds("online")? + m.seconds("offline")?)
}

const SMALL: &[Column] = &[
    Column { name: "online KB", per_net: false, ours: |m| Some(traffic(m, "online")? / 1024.0) },
    Column { name: "total KB", per_net: false, ours: |m| Some(total_traffic(m)? / 1024.0) },
    Column { name: "rounds", per_net: false, ours: |m| m.rounds("online") },
    Column { name: "online ms", per_net: true, ours: |m| Some(1e3 * m.seconds("online")?) },
    Column { name: "total ms", per_net: true, ours: |m| Some(1e3 * total_seconds(m)?) },
];

const LARGE: &[Column] = &[
    Column { name: "online MB", per_net: false, ours: |m| Some(traffic(m, "online")? / 1048576.0) },
    Column { name: "total MB", per_net: false, ours: |m| Some(total_traffic(m)? / 1048576.0) },
    Column { name: "rounds", per_net: false, ours: |m| m.rounds("online") },
    Column { name: "online s", per_net: true, ours: |m| m.seconds("online") },
    Column { name: "total s", per_net: true, ours: total_seconds },
];

/// Table III.
pub(super) const PROFILE: Table = Table {
    name: "alkaid-3",
    title: "ALKAID, Table III: what of 1000 ReLU under ABY3 is the most significant bit",
    counts: "The paper profiles ABY3 to say where its own circuits help; its seconds are those of the WAN. Of Softmax it counts one \
             conversion and 16 comparisons. Here: bytes sent and received, the parties' mean, KB = 1024 bytes.",
    nets: NETS,
    columns: &[
        Column { name: "KB", per_net: false, ours: |m| Some(traffic(m, "online")? / 1024.0) },
        Column { name: "rounds", per_net: false, ours: |m| m.rounds("online") },
        Column { name: "s", per_net: true, ours: |m| m.seconds("online") },
    ],
    rows: || {
        let of = |label: &str, name, protocol, system, printed: &[f64]| {
            Row::new(label, system).paper(printed).bench(op(name, protocol, FRAC, |o| o.batch = 1000))
        };
        let (part, whole) = ("MSB-Ext", "ReLU");
        vec![
            of(part, "sign-bit", "aby3", "ABY3", &[70.300, 8.0, f64::NAN, 0.363]),
            of(whole, "relu", "aby3", "ABY3", &[101.563, 10.0, f64::NAN, 0.507]),
            of(part, "sign-bit", "alkaid", "ALKAID", &[]),
            of(whole, "relu", "alkaid", "ALKAID", &[]),
        ]
    },
};

/// Table IV.
pub(super) const ADDER: Table = Table {
    name: "alkaid-4",
    title: "ALKAID, Table IV: the parallel prefix adder of 64 bits",
    counts: COUNTS,
    nets: NETS,
    columns: SMALL,
    rows: adder,
};

/// Table V.
pub(super) const PRIMITIVES: Table = Table {
    name: "alkaid-5",
    title: "ALKAID, Table V: conversions and the most significant bit",
    counts: COUNTS,
    nets: NETS,
    columns: SMALL,
    rows: primitives,
};

/// Table VI.
pub(super) const FUNCTIONS: Table = Table {
    name: "alkaid-6",
    title: "ALKAID, Table VI: activation functions",
    counts: COUNTS,
    nets: NETS,
    columns: SMALL,
    rows: functions,
};

/// Table VII.
pub(super) const NETWORKS: Table = Table {
    name: "alkaid-7",
    title: "ALKAID, Table VII: networks, one image or eight tokens",
    counts: COUNTS,
    nets: NETS,
    columns: LARGE,
    rows: networks,
};

/// Figures of a system in the order of the columns: online and total bytes, no rounds, online
/// times, total times. A system without an offline phase has its online figures in total.
fn printed(online: [f64; 3], total: Option<[f64; 3]>) -> [f64; 7] {
    let total = total.unwrap_or(online);
    [online[0], total[0], f64::NAN, online[1], online[2], total[1], total[2]]
}

const STEP_ONLY: &str =
    "the step alone, without those that make its inputs; what it costs offline in time is not told apart";

fn adder() -> Vec<Row> {
    let mut rows = vec![];
    for (n, aby3, trifecta, online, total) in [
        (
            1,
            [0.203, 5.015, 352.078],
            [4.483, f64::NAN, 213.0],
            [0.141, 2.685, 201.828],
            [0.198, 3.341, 252.214],
        ),
        (
            1000,
            [203.125, 6.526, 375.137],
            [4378.472, f64::NAN, 339.561],
            [140.625, 10.469, 219.770],
            [197.265, 11.072, 271.105],
        ),
    ] {
        let label = format!("adder, |B| = {n}");
        let ours = |row: Row, protocol| {
            row.bench(op("adder", protocol, FRAC, move |o| o.batch = n)).layer("op").note(STEP_ONLY)
        };
        rows.push(ours(Row::new(&label, "ABY3").paper(&printed(aby3, None)), "aby3"));
        rows.push(Row::new(&label, "Trifecta").paper(&printed(trifecta, None)));
        rows.push(ours(Row::new(&label, "ALKAID").paper(&printed(online, Some(total))), "alkaid"));
        rows.push(ours(Row::new(&label, "METEOR"), "meteor"));
    }
    rows
}

/// What METEOR's rows print is in KB of 1000 bytes.
fn meteor(online: [f64; 3], total: [f64; 3]) -> [f64; 7] {
    let kb = |[bytes, lan, wan]: [f64; 3]| [bytes * 1000.0 / 1024.0, lan, wan];
    printed(kb(online), Some(kb(total)))
}

fn primitives() -> Vec<Row> {
    struct Paper {
        n: usize,
        a2b: [[f64; 3]; 3],
        b2a: [[f64; 3]; 3],
        msb: [[f64; 3]; 3],
        meteor: [[f64; 3]; 2],
    }
    let papers = [
        Paper {
            n: 1,
            a2b: [[0.219, 5.659, 402.737], [0.164, 4.846, 302.521], [0.221, 5.523, 352.907]],
            b2a: [[0.242, 6.479, 452.797], [0.133, 4.823, 307.327], [0.198, 5.574, 357.674]],
            msb: [[0.070, 5.841, 403.133], [0.066, 4.545, 301.979], [0.105, 5.192, 352.190]],
            meteor: [[0.178, 10.634, 310.495], [0.662, 17.267, 418.387]],
        },
        Paper {
            n: 1000,
            a2b: [[218.750, 7.198, 405.648], [164.063, 12.704, 322.159], [220.703, 16.197, 373.494]],
            b2a: [[242.188, 8.526, 455.614], [132.813, 12.508, 320.074], [197.266, 15.651, 378.805]],
            msb: [[70.313, 8.453, 407.687], [66.406, 6.961, 305.860], [97.656, 8.955, 356.715]],
            meteor: [[178.176, 11.980, 329.943], [662.395, 19.392, 455.147]],
        },
    ];
    let mut rows = vec![];
    for Paper { n, a2b, b2a, msb, meteor: printed_by_meteor } in papers {
        for (name, label, [aby3, online, total]) in
            [("a2b", "A2B", a2b), ("b2a", "B2A", b2a), ("sign-bit", "MSB-Ext", msb)]
        {
            let label = format!("{label}, |B| = {n}");
            let ours = |row: Row, protocol| {
                let row = row.bench(op(name, protocol, FRAC, move |o| o.batch = n));
                if name == "b2a" { row.layer("op").note(STEP_ONLY) } else { row }
            };
            rows.push(ours(Row::new(&label, "ABY3").paper(&printed(aby3, None)), "aby3"));
            let row = Row::new(&label, "METEOR");
            let [online_of_meteor, total_of_meteor] = printed_by_meteor;
            let row = match name {
                "sign-bit" => row.paper(&meteor(online_of_meteor, total_of_meteor)),
                _ => row,
            };
            rows.push(ours(row, "meteor"));
            rows.push(ours(Row::new(&label, "ALKAID").paper(&printed(online, Some(total))), "alkaid"));
        }
    }
    rows
}

fn functions() -> Vec<Row> {
    // Function, its operation here, |B|, and ABY3, ALKAID online, ALKAID in total.
    let functions: [(&str, &'static str, usize, [[f64; 3]; 3]); 8] = [
        ("ReLU", "relu", 1, [[0.102, 10.003, 503.214], [0.096, 9.078, 403.341], [0.127, 9.865, 453.668]]),
        (
            "Sigmoid",
            "sigmoid",
            1,
            [[0.552, 22.478, 1508.344], [0.348, 19.398, 1064.298], [0.418, 20.397, 1115.638]],
        ),
        (
            "GeLU",
            "gelu",
            1,
            [[0.806, 39.098, 2826.476], [0.803, 40.098, 2518.875], [0.897, 40.846, 2569.745]],
        ),
        (
            "Softmax",
            "softmax",
            10,
            [[7.016, 101.349, 6272.879], [6.701, 87.078, 5550.320], [7.342, 87.857, 5601.810]],
        ),
        (
            "ReLU",
            "relu",
            1000,
            [[101.562, 14.087, 507.467], [93.994, 14.398, 409.341], [125.244, 16.386, 461.362]],
        ),
        (
            "Sigmoid",
            "sigmoid",
            1000,
            [[465.250, 35.431, 1520.087], [344.238, 32.879, 1077.687], [414.551, 38.897, 1133.763]],
        ),
        (
            "GeLU",
            "gelu",
            1000,
            [[834.375, 62.031, 2836.887], [797.607, 52.349, 2542.891], [894.357, 56.350, 2599.922]],
        ),
        (
            "Softmax",
            "softmax",
            1000,
            [[610.297, 192.319, 11387.271], [563.923, 160.081, 9606.879], [626.438, 162.862, 9657.776]],
        ),
    ];
    let mut rows = vec![];
    for (name, operation, n, [aby3, online, total]) in functions {
        let label = format!("{name}, |B| = {n}");
        let ours = |row: Row, protocol| {
            row.bench(op(operation, protocol, FRAC, move |o| {
                o.batch = n;
                o.shape = [1, n, 1];
            }))
        };
        let with_meteor = match (name, n) {
            ("ReLU", 1) => Some(([0.195, 9.472, 352.034], [0.678, 17.381, 486.033])),
            ("ReLU", _) => Some(([195.560, 11.437, 424.098], [678.776, 20.073, 554.283])),
            _ => None,
        };
        let row = Row::new(&label, "METEOR");
        let row = match with_meteor {
            Some((online, total)) => row.paper(&meteor(online, total)),
            None => row,
        };
        rows.push(ours(Row::new(&label, "ABY3").paper(&printed(aby3, None)), "aby3"));
        rows.push(ours(row, "meteor"));
        rows.push(ours(Row::new(&label, "ALKAID").paper(&printed(online, Some(total))), "alkaid"));
    }
    rows
}

fn networks() -> Vec<Row> {
    let mut rows = vec![];
    type Figures = Option<([f64; 3], Option<[f64; 3]>)>;
    let mut network =
        |label: &str, name: &'static str, systems: [(&'static str, &'static str, Figures); 3], large| {
            for (system, protocol, paper) in systems {
                let row = Row::new(label, system).bench(model(name, protocol, FRAC, 1));
                let row = match paper {
                    Some((online, total)) => row.paper(&printed(online, total)),
                    None => row,
                };
                rows.push(if large { row.large() } else { row });
            }
        };
    network(
        "LeNet-5",
        "lenet",
        [
            ("ABY3", "aby3", Some(([2.439, 0.264, 4.833], None))),
            ("METEOR", "meteor", Some(([3.137, 0.230, 4.445], Some([7.312, 0.312, 5.573])))),
            ("ALKAID", "alkaid", Some(([2.327, 0.224, 3.982], Some([2.791, 0.237, 4.079])))),
        ],
        false,
    );
    network(
        "ResNet-50",
        "resnet50",
        [
            ("ABY3", "aby3", Some(([2347.265, 50.207, 377.384], None))),
            ("METEOR", "meteor", None),
            ("ALKAID", "alkaid", Some(([2306.462, 49.671, 348.023], Some([2649.305, 55.314, 374.812])))),
        ],
        true,
    );
    network(
        "GPT-2",
        "gpt2",
        [
            ("PUMA (ABY3)", "aby3", Some(([459.157, 21.065, 428.663], None))),
            ("METEOR", "meteor", None),
            ("ALKAID", "alkaid", Some(([422.192, 19.784, 395.057], Some([459.926, 20.772, 398.120])))),
        ],
        true,
    );
    rows
}
