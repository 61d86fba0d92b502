//! The page of operators, which is made of the table that models are read by.

use megrez_graph::layers::supported;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

fn page(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name)
}

/// How many of ONNX's tests an operator passes and does not, as `docs/coverage.md` has it.
fn tests() -> BTreeMap<String, (u32, u32)> {
    let text = std::fs::read_to_string(page("coverage.md")).unwrap();
    let rows = text.split("| operator | passed | refused |").nth(1).unwrap_or_default();
    let row = |line: &str| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [_, name, passed, refused, _] = cells[..] else { return None };
        Some((name.to_owned(), (passed.parse().ok()?, refused.parse().ok()?)))
    };
    rows.lines().filter_map(row).collect()
}

fn expected() -> String {
    let mut out = String::from(
        "# Operators\n\nWhat a model may have, of ONNX's operator sets 1 to 28 and of `ai.onnx.ml`. `megrez operators` prints \
         the same list.\nTests are ONNX's own of the operator alone; [coverage.md](coverage.md) says how they run, and why \
         some are refused.\n\nThis page is made by `MEGREZ_WRITE=1 cargo test -p megrez-graph --test graph operators`; the same \
         test fails when it is\nstale.\n\n| operator | tests passed | refused |\n| --- | --- | --- |\n",
    );
    let tests = tests();
    for op in supported() {
        match tests.get(op) {
            Some((passed, refused)) => out += &format!("| {op} | {passed} | {refused} |\n"),
            None => out += &format!("| {op} | | |\n"),
        }
    }
    out
}

#[test]
fn the_page_of_operators_is_up_to_date() {
    let page = page("operators.md");
    if std::env::var_os("MEGREZ_WRITE").is_some() {
        std::fs::write(&page, expected()).unwrap();
    }
    let found = std::fs::read_to_string(&page).unwrap_or_default();
    assert!(found == expected(), "docs/operators.md is stale: run this test with MEGREZ_WRITE=1");
}
