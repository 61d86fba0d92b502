//! `megrez bench table`: the tables of the papers, each figure beside the one measured here.
//!
//! A [`Table`] has columns, what to take from a report, and rows, what the paper prints and what to
//! run. Columns of times appear once per network. What a paper counts often differs from what it
//! says that it counts: `counts` and the notes of the rows tell, and the columns count the same
//! here.

mod alkaid;
mod formulas;
mod meteor;
mod mizar;
mod secfloat;
mod table;
mod training;
mod truncation;
mod variants;

pub use table::{Column, Measured, Row, Setting, Table};

use megrez::{DeviceChoice, Error, Result};
use megrez_net::NetProfile;
use serde_json::{Value as Json, json};

/// The tables.
pub const TABLES: &[&Table] = &[
    &formulas::SIGN_BITS,
    &mizar::REDUCTIONS,
    &mizar::PREFIX_SUMS,
    &mizar::SIGN_BITS,
    &mizar::FUNCTIONS,
    &mizar::NETWORKS,
    &training::PASS,
    &training::MEMORY,
    &training::FRAMEWORKS,
    &formulas::OPERATIONS,
    &meteor::OPERATORS,
    &meteor::MNIST,
    &meteor::CIFAR,
    &meteor::BATCHES,
    &formulas::CONJUNCTIONS,
    &alkaid::PROFILE,
    &alkaid::ADDER,
    &alkaid::PRIMITIVES,
    &alkaid::FUNCTIONS,
    &alkaid::NETWORKS,
    &formulas::BLOCKS,
    &secfloat::OPERATIONS,
    &secfloat::ROUNDS,
    &secfloat::RELEVANCE,
    &secfloat::INPUTS,
    &secfloat::GARBLED,
    &secfloat::PROXIMITY,
    &truncation::RELU,
    &truncation::ACCURACY,
    &truncation::NETWORKS,
];

/// What to run of a table.
pub struct Choice {
    /// Rows whose label or system contains this; large ones too.
    pub only: Option<String>,
    /// Networks instead of the paper's.
    pub nets: Vec<NetProfile>,
    /// Large rows too.
    pub large: bool,
    /// How many runs a row and network.
    pub repeat: u32,
    /// Whether parties are processes.
    pub processes: bool,
    /// Where parties compute: one device for all, or one for each.
    pub devices: Vec<DeviceChoice>,
    /// Seeds weights and data, never shares.
    pub seed: u64,
}

/// The table of this name.
pub fn table(name: &str) -> Option<&'static Table> {
    TABLES.iter().copied().find(|t| t.name == name)
}

/// Runs a table and gives it as `megrez.table/1`; `progress` hears of every row before it runs.
///
/// # Errors
/// If a network does not parse or a row fails, which says so.
pub fn run(table: &Table, choice: &Choice, progress: &dyn Fn(&str)) -> Result<Json> {
    let paper: Vec<NetProfile> = table.nets.iter().map(named).collect::<Result<_>>()?;
    let nets = if choice.nets.is_empty() { paper.clone() } else { choice.nets.clone() };
    let wanted = |row: &Row| match &choice.only {
        None => choice.large || !row.large,
        Some(text) => format!("{} {}", row.label, row.system).to_lowercase().contains(&text.to_lowercase()),
    };
    let (mut rows, mut left_out) = (vec![], vec![]);
    for row in (table.rows)() {
        if wanted(&row) {
            progress(&format!("{}, {}", row.label, row.system));
            rows.push(fill(table, &row, &paper, &nets, choice)?);
        } else if row.large && choice.only.is_none() {
            left_out.push(format!("{}, {}", row.label, row.system));
        }
    }
    Ok(json!({
        "schema": "megrez.table/1",
        "table": table.name,
        "title": table.title,
        "counts": table.counts,
        "parties": if choice.processes { "process" } else { "thread" },
        "devices": choice.devices,
        "repeat": choice.repeat,
        "networks": nets.iter().map(|n| json!({ "name": n.name, "rtt_ms": n.rtt_ms, "mbps": n.mbps })).collect::<Vec<_>>(),
        "rows": rows,
        "left_out": left_out,
    }))
}

fn named((name, profile): &(&str, &str)) -> Result<NetProfile> {
    let profile: NetProfile = profile.parse()?;
    Ok(NetProfile { name: (*name).into(), ..profile })
}

/// One row, measured.
fn fill(
    table: &Table,
    row: &Row,
    paper: &[NetProfile],
    nets: &[NetProfile],
    choice: &Choice,
) -> Result<Json> {
    let measure = |net: &NetProfile| -> Result<Option<Measured>> {
        let Some(bench) = &row.bench else { return Ok(None) };
        let setting = Setting {
            net: net.clone(),
            repeat: choice.repeat,
            processes: choice.processes,
            devices: choice.devices.clone(),
            seed: choice.seed,
        };
        let report = bench(&setting)
            .map_err(|e| Error::of(e.kind(), format!("{}, {}: {e}", row.label, row.system)))?;
        Ok(Some(Measured { report, layer: row.layer }))
    };
    let measured: Vec<Option<Measured>> = nets.iter().map(measure).collect::<Result<_>>()?;
    let mut figures = vec![];
    let mut at = 0;
    for column in table.columns {
        let ours = |net: usize| measured[net].as_ref().and_then(column.ours);
        let printed = |i: usize| row.paper.get(i).copied().flatten();
        if column.per_net {
            for (i, net) in nets.iter().enumerate() {
                let same = paper.iter().position(|p| (p.rtt_ms, p.mbps) == (net.rtt_ms, net.mbps));
                let printed = same.and_then(|same| printed(at + same));
                figures.push(
                    json!({ "column": column.name, "net": net.name, "paper": printed, "ours": ours(i) }),
                );
            }
            at += paper.len();
        } else {
            figures
                .push(json!({ "column": column.name, "net": null, "paper": printed(at), "ours": ours(0) }));
            at += 1;
        }
    }
    let verified = measured.iter().flatten().all(|m| m.report["verified"] == json!(true));
    Ok(json!({
        "row": row.label,
        "system": row.system,
        "note": row.note,
        "figures": figures,
        "verified": row.bench.is_some().then_some(verified),
    }))
}

/// Whether everything that ran gave the right result.
pub fn verified(report: &Json) -> bool {
    report["rows"].as_array().into_iter().flatten().all(|r| r["verified"] != json!(false))
}

/// A report for people: the paper's figure and ours in every cell.
pub fn text(report: &Json) -> String {
    let string = |v: &Json| v.as_str().unwrap_or_default().to_owned();
    let none = vec![];
    let rows = report["rows"].as_array().unwrap_or(&none);
    let mut lines: Vec<Vec<String>> = vec![];
    for row in rows {
        let figures = row["figures"].as_array().unwrap_or(&none);
        if lines.is_empty() {
            let head = figures.iter().map(|f| match f["net"].as_str() {
                Some(net) => format!("{} {net}", string(&f["column"])),
                None => string(&f["column"]),
            });
            lines.push(["".into(), "".into()].into_iter().chain(head).collect());
        }
        let cells = figures.iter().map(|f| format!("{} | {}", figure(&f["paper"]), figure(&f["ours"])));
        lines.push([string(&row["row"]), string(&row["system"])].into_iter().chain(cells).collect());
    }
    let mut out = format!("{}: {}\npaper | ours\n", string(&report["table"]), string(&report["title"]));
    let width = |i: usize| lines.iter().map(|l| l[i].chars().count()).max().unwrap_or(0);
    for line in &lines {
        let pad = |(i, cell): (usize, &String)| format!("{cell:<0$}", width(i));
        let cells: Vec<String> = line.iter().enumerate().map(pad).collect();
        out += cells.join("  ").trim_end();
        out.push('\n');
    }
    for row in rows {
        if row["verified"] == json!(false) {
            out += &format!("WRONG RESULT: {}, {}\n", string(&row["row"]), string(&row["system"]));
        }
        if row["note"] != "" {
            out +=
                &format!("{}, {}: {}\n", string(&row["row"]), string(&row["system"]), string(&row["note"]));
        }
    }
    for row in report["left_out"].as_array().into_iter().flatten() {
        out += &format!("left out, --large or --only runs it: {}\n", string(row));
    }
    out + &format!("{}\n", string(&report["counts"]))
}

/// Four significant digits.
fn figure(value: &Json) -> String {
    let Some(v) = value.as_f64() else { return "-".into() };
    let magnitude = if v == 0.0 { 0 } else { v.abs().log10().floor() as i32 };
    let decimals = (3 - magnitude).clamp(0, 6) as usize;
    let text = format!("{v:.decimals$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').into(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::table::op;
    use super::*;

    #[test]
    fn every_row_has_the_figures_of_its_columns() {
        for table in TABLES {
            let per_net = table.columns.iter().filter(|c| c.per_net).count();
            let figures = table.columns.len() + per_net * (table.nets.len() - 1);
            table.nets.iter().for_each(|net| assert!(named(net).is_ok(), "{}", table.name));
            for row in (table.rows)() {
                assert!(
                    row.paper.is_empty() || row.paper.len() == figures,
                    "{}: {}, {}",
                    table.name,
                    row.label,
                    row.system
                );
                assert!(row.bench.is_some() || !row.paper.is_empty(), "{}: {}", table.name, row.label);
            }
        }
    }

    #[test]
    fn a_row_stands_beside_the_paper_on_the_papers_network_only() {
        let table = Table {
            name: "test",
            title: "a product",
            counts: "",
            nets: &[("near", "loopback"), ("far", "1ms,1gbps")],
            columns: &[
                Column { name: "bytes", per_net: false, ours: |m| m.sent("online") },
                Column { name: "s", per_net: true, ours: |m| m.seconds("online") },
            ],
            rows: || {
                vec![
                    Row::new("mul", "ABY3")
                        .paper(&[7.0, 1.0, f64::NAN])
                        .bench(op("mul", "aby3", 16, |o| o.batch = 10)),
                ]
            },
        };
        let choice = |nets| Choice {
            only: None,
            nets,
            large: false,
            repeat: 1,
            processes: false,
            devices: vec![DeviceChoice::Cpu],
            seed: 1,
        };
        let report = run(&table, &choice(vec![]), &|_| {}).unwrap();
        assert!(verified(&report));
        let figures = report["rows"][0]["figures"].as_array().unwrap();
        // A product of replicated values is ℓ bits a party.
        assert_eq!((&figures[0]["paper"], &figures[0]["ours"]), (&json!(7.0), &json!(80.0)));
        assert_eq!((&figures[1]["net"], &figures[1]["paper"]), (&json!("near"), &json!(1.0)));
        assert_eq!((&figures[2]["net"], &figures[2]["paper"]), (&json!("far"), &Json::Null));
        assert!(figures[2]["ours"].as_f64().unwrap() >= 0.0005, "half a round trip");
        assert!(text(&report).contains("7 | 80"), "{}", text(&report));

        let report = run(&table, &choice(vec![NetProfile::lan()]), &|_| {}).unwrap();
        assert_eq!(report["rows"][0]["figures"][1]["paper"], Json::Null, "the paper has no such network");
    }
}
