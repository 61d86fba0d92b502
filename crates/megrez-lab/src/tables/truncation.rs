//! Table 1 of probabilistic truncation: ReLU on few bits, ℓ = 64.

use super::table::{Column, Row, Table, op};
use crate::bench::BenchOptions;
use megrez::choices::List;
use megrez::request::sign_bit;

/// Magnitude bits that few-bit ReLU looks at, and the sign.
const FEW: u32 = 7 + 1;

/// Table 1.
pub(super) const RELU: Table = Table {
    name: "truncation-1",
    title: "Probabilistic truncation, Table 1: bits of a ReLU online",
    counts: "The paper's figures are its formulas at ℓ = 64 and, where few bits are compared, ℓx = 7; its own is 2·(ℓx + 1)² + 5ℓ. \
             Here: bits that all parties send online for one of 1000 ReLU. Comparing few bits is exact only where values are known to be \
             that short.",
    nets: &[("none", "loopback")],
    columns: &[
        Column { name: "bits", per_net: false, ours: |m| m.report()["bits_per_element"]["online"].as_f64() },
        Column { name: "rounds", per_net: false, ours: |m| m.rounds("online") },
    ],
    rows: || {
        let mut rows = vec![];
        for (system, whole, few, rounds) in [
            ("Falcon", 2179.0, 884.0, f64::NAN),
            ("Edabits", 11_136.0, 3444.0, f64::NAN),
            ("Orca", 17_280.0, 2374.0, 1.0),
            ("ABY2.0", 8512.0, 1415.0, 2.0),
            ("Bicoptor", 8768.0, 1728.0, 2.0),
        ] {
            rows.push(Row::new("all bits", system).paper(&[whole, rounds]));
            rows.push(Row::new("7 bits", system).paper(&[few, rounds]));
        }
        let on = |bits: Option<u32>| {
            move |o: &mut BenchOptions| {
                o.batch = 1000;
                o.sign = sign_bit(o.ring, List::Digits, None, bits, 0).expect("bits of the ring");
            }
        };
        let row = Row::new("7 bits", "improved Bicoptor").paper(&[704.0, 2.0]);
        rows.push(row.bench(op("relu", "bicoptor", 13, on(Some(FEW)))));
        rows.push(Row::new("7 bits", "MIZAR").bench(op("relu", "mizar", 13, on(Some(FEW)))));
        rows.push(Row::new("all bits", "MIZAR").bench(op("relu", "mizar", 13, on(None))));
        rows.sort_by_key(|row| row.label == "7 bits");
        rows
    },
};
