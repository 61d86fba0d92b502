//! The tables of formulas: MIZAR's table 1, METEOR's 1, ALKAID's I and SECFLOAT's I. The papers'
//! figures are their formulas, evaluated; ours are measured where a session can be.

use super::mizar::PACKED;
use super::table::{Column, Measured, Row, Setting, Table, op};
use crate::bench::BenchOptions;
use megrez::Result;
use megrez::choices::List;
use megrez::request::sign_bit;
use megrez_float::blocks::{Blocks, Extend, Factor, Lookup, Msb, Multiply, Select, Table as Rows, Truncate};
use megrez_twoparty::costing::{Costing, Lanes, Size};
use megrez_twoparty::dealt::costing::Costing as Dealt;
use serde_json::{Value as Json, json};
use std::convert::Infallible;

const NETS: &[(&str, &str)] = &[("none", "loopback")];

/// How many elements a row has at once.
const BATCH: usize = 1000;
const FRAC: u32 = 13;
/// The most bits that Bicoptor compares.
const MOST_BITS: u32 = 30;
/// k of the OT extension.
const GROUP: u32 = 4;
/// No figure.
const NO: f64 = f64::NAN;

/// Bits that all parties send for an element.
fn bits(m: &Measured, phase: &str) -> Option<f64> {
    Some(m.bytes(phase)? * 8.0 / BATCH as f64)
}

const OFFLINE: Column = Column { name: "offline bits", per_net: false, ours: |m| bits(m, "offline") };
const ONLINE: Column = Column { name: "online bits", per_net: false, ours: |m| bits(m, "online") };
const ROUNDS: Column = Column { name: "online rounds", per_net: false, ours: |m| m.rounds("online") };

/// MIZAR's table 1.
pub(super) const SIGN_BITS: Table = Table {
    name: "mizar-1",
    title: "MIZAR, Table 1: the sign bit, l = 64",
    counts: "Bits of all parties for one sign bit. The paper's figures are its formulas at l = 64, an element of the field having seven \
             bits, kappa = 128, for Bicoptor lx = 7. Here: bits of all parties, measured for 1000 at once.",
    nets: NETS,
    columns: &[OFFLINE, ROUNDS, ONLINE],
    rows: || {
        let on = |protocol, list, bits| {
            op("sign-bit", protocol, FRAC, move |o: &mut BenchOptions| {
                o.batch = BATCH;
                o.sign = sign_bit(o.ring, list, None, bits, 0).expect("bits of the ring");
            })
        };
        let of = |protocol, list| on(protocol, list, None);
        let row = |system, printed: [f64; 3]| Row::new("sign bit", system).paper(&printed);
        vec![
            row("ABY3", [NO, 8.0, 768.0]).bench(of("aby3", List::Bits)),
            row("FALCON", [27_306.0, 9.0, 2901.0]).note("FALCON's offline phase takes more than this"),
            row("CryptGPU", [NO, 8.0, 768.0]),
            row("P-FALCON", [8256.0, 7.0, 6144.0]).bench(of("falcon", List::Bits)).note(PACKED),
            row("Boyle et al.", [8448.0, 1.0, 128.0]),
            row("ASTRA", [40_960.0, 2.0, 8194.0]),
            row("Bicoptor", [NO, 2.0, 4686.0])
                .bench(on("bicoptor", List::Bits, Some(MOST_BITS)))
                .note("Bicoptor compares 30 bits here, which is as many as it can; the formula's l stays 64"),
            row("SecureNN", [NO, 9.0, 4800.0]),
            row("Aegis", [569.0, 2.0, 1920.0]).bench(of("aegis", List::Bits)),
            row("Concurrent", [569.0, 2.0, 1024.0]).bench(of("concurrent", List::Bits)),
            row("MIZAR", [569.0, 2.0, 1024.0]).bench(of("mizar", List::Bits)),
            Row::new("sign bit", "MIZAR, digits").bench(of("mizar", List::Digits)),
        ]
    },
};

/// METEOR's table 1.
pub(super) const OPERATIONS: Table = Table {
    name: "meteor-1",
    title: "METEOR, Table 1: operations, l = 64",
    counts: "Bits of a party for one operation online. The paper's figures are its formulas at l = 64, q = 67. Here: bits of the \
             parties' mean, measured for 1000 at once; a product of two fixed-point numbers with its truncation. ABY3 and ALKAID \
             multiply two numbers at a time.",
    nets: NETS,
    columns: &[
        Column { name: "online bits", per_net: false, ours: |m| Some(bits(m, "online")? / 3.0) },
        ROUNDS,
        Column { name: "offline bits", per_net: false, ours: |m| Some(bits(m, "offline")? / 3.0) },
    ],
    rows: operations,
};

fn operations() -> Vec<Row> {
    type Printed = [f64; 2];
    let table: [(&str, &'static str, bool, [Printed; 3]); 6] = [
        ("product of integers", "mul", true, [[85.3, 1.0], [64.0, 1.0], [64.0, 1.0]]),
        ("product of fixed-point numbers", "fixed-mul", true, [[85.3, 1.0], [85.3, 1.0], [64.0, 1.0]]),
        ("product of three", "mul3", false, [[170.7, 3.0], [128.0, 2.0], [64.0, 1.0]]),
        ("product of four", "mul4", false, [[256.0, 3.0], [192.0, 2.0], [64.0, 1.0]]),
        ("sign bit", "sign-bit", true, [[1493.3, 7.0], [967.0, 10.0], [604.3, 6.0]]),
        ("selection", "select", true, [[85.3, 1.0], [65.0, 2.0], [64.0, 1.0]]),
    ];
    let mut rows = vec![];
    for (label, name, by_two, [securenn, falcon, meteor]) in table {
        let measured = |protocol, row: Row| {
            let row = row.bench(op(name, protocol, FRAC, |o| o.batch = BATCH));
            if name == "select" { row.layer("op").note(STEP_ONLY) } else { row }
        };
        let printed = |[bits, rounds]: Printed| [bits, rounds, NO];
        rows.push(Row::new(label, "SecureNN").paper(&printed(securenn)));
        rows.push(Row::new(label, "FALCON").paper(&printed(falcon)));
        rows.push(measured("meteor", Row::new(label, "METEOR").paper(&printed(meteor))));
        if by_two {
            rows.push(measured("aby3", Row::new(label, "ABY3")));
            rows.push(measured("alkaid", Row::new(label, "ALKAID")));
        }
    }
    rows
}

const STEP_ONLY: &str = "The step alone: what makes its bits is not counted";

/// ALKAID's table I.
pub(super) const CONJUNCTIONS: Table = Table {
    name: "alkaid-1",
    title: "ALKAID, Table I: the conjunction of 16 bits",
    counts: "Bits of all parties. The paper's figures are its formulas for ANDing l bits, at l = 16, logarithms rounded up. Here: \
             measured for 1000 conjunctions at once, by trees of the gates that a protocol has.",
    nets: NETS,
    columns: &[OFFLINE, ONLINE, ROUNDS],
    rows: || {
        let row = |system, printed: [f64; 3]| Row::new("16 bits", system).paper(&printed);
        let of = |protocol| op("andn", protocol, FRAC, |o| o.batch = BATCH);
        let measured = |row: Row, protocol| row.bench(of(protocol)).layer("op").note(STEP_ONLY);
        vec![
            row("[23]", [2000.0, 4.0, 2.0])
                .note("[23] and Trifecta have a dealer who knows the correlations"),
            row("Trifecta", [0.0, 1136.0, 2.0]),
            measured(row("ABY3", [0.0, 48.0, 4.0]), "aby3"),
            measured(row("METEOR", [176.0, 16.0, 2.0]), "meteor"),
            measured(row("ALKAID", [32.0, 32.0, 2.0]), "alkaid"),
        ]
    },
};

/// SECFLOAT's table I.
pub(super) const BLOCKS: Table = Table {
    name: "secfloat-1",
    title: "SECFLOAT, Table I: building blocks",
    counts: "Bits of both parties for one block. The paper's figures are its formulas for lambda = 128 at the widths named, some of \
             them bounds. Here: the formulas of the blocks, to which tests hold the meter byte for byte: groups of 4 bits between two \
             parties; with a dealer, what all parties send.",
    nets: NETS,
    columns: &[
        Column { name: "bits", per_net: false, ours: |m| m.report()["bits"].as_f64() },
        Column { name: "rounds", per_net: false, ours: |m| m.report()["rounds"].as_f64() },
        Column { name: "bits with a dealer", per_net: false, ours: |m| m.report()["dealt_bits"].as_f64() },
    ],
    rows: || {
        let row = |label: &str, printed, block| {
            Row::new(label, "SECFLOAT").paper(&[printed, NO, NO]).bench(move |_: &Setting| priced(block))
        };
        vec![
            row("multiplexer of 32 bits", 320.0, Block::Multiplexer),
            row("OR", 148.0, Block::Or),
            row("equality of 32 bits", 3360.0, Block::Equality),
            row("comparison of 32 bits", 4544.0, Block::Comparison),
            row("table of 256 rows of 32 bits", 8448.0, Block::Lookup),
            row("zero-extension of 24 to 48 bits", 3560.0, Block::Extension),
            row("truncation of 48 by 24 bits", 3560.0, Block::Truncation),
            row("product of 24 by 24 to 48 bits", 14_784.0, Block::Product { signed: false }),
            row("signed product of 24 by 24 to 48 bits", 14_784.0, Block::Product { signed: true }),
            row("leading bit of 32", 20_992.0, Block::Leading),
        ]
    },
};

/// A block of table I.
#[derive(Clone, Copy)]
enum Block {
    Multiplexer,
    Or,
    Equality,
    Comparison,
    Lookup,
    Extension,
    Truncation,
    Product { signed: bool },
    Leading,
}

/// Runs a block on a batch, whoever supplies it.
fn run<B: Blocks<Int = Size, Bit = Lanes, Error = Infallible>>(b: &mut B, block: Block) {
    let int = |width| Size { width, lanes: BATCH };
    let (word, mantissa, bit) = (int(32), int(24), Lanes(BATCH));
    let Ok(()) = match block {
        Block::Multiplexer => b.select(&[Select { bit: &bit, ints: vec![&word], bits: vec![] }]).map(drop),
        Block::Or => b.and(&[(&bit, &bit)]).map(drop),
        Block::Equality => b.is_zero(&[&word]).map(drop),
        // The difference has a bit more.
        Block::Comparison => b.negative(&[&int(33)]).map(drop),
        Block::Lookup => {
            let table = Rows::new(8, &[32], 0, |i| vec![i]);
            b.lookup(&[Lookup { index: &int(8), table: &table }]).map(drop)
        }
        Block::Extension => {
            b.extend(&[Extend { x: &mantissa, width: 48, signed: false, msb: Msb::Unknown }]).map(drop)
        }
        Block::Truncation => b.truncate(&[Truncate { x: &int(48), cuts: &[24] }]).map(drop),
        Block::Product { signed } => {
            let factor = || Factor { x: &mantissa, signed, msb: Msb::Unknown };
            // Two numbers: one by itself would be a square.
            let other = int(24);
            let y = Factor { x: &other, signed, msb: Msb::Unknown };
            b.multiply(&[Multiply { x: factor(), y, width: 48 }]).map(drop)
        }
        Block::Leading => b.leading(&[(&word, 10)]).map(drop),
    };
}

/// What a block costs.
fn priced(block: Block) -> Result<Json> {
    let (mut transfers, mut dealt) = (Costing::new(GROUP), Dealt::default());
    run(&mut transfers, block);
    run(&mut dealt, block);
    let bits = |bytes: u64| bytes as f64 * 8.0 / BATCH as f64;
    Ok(json!({
        "bits": bits(transfers.cost.bytes.iter().sum()),
        "rounds": transfers.cost.rounds,
        "dealt_bits": bits(dealt.cost.bytes()),
        "verified": true,
    }))
}
