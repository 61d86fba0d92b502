//! The page of operators, which is made of the table that models are read by.

use megrez_graph::layers::supported;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

fn page(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name)
}

/// What `docs/coverage.md` says of operators: the columns, and the cells of each.
fn tests() -> (String, BTreeMap<String, String>) {
    let text = std::fs::read_to_string(page("coverage.md")).unwrap();
    let rows = text.lines().skip_while(|line| !line.starts_with("| operator |"));
    let mut rows = rows.take_while(|line| line.starts_with('|'));
    let columns = rows.next().unwrap_or_default().to_owned();
    let row = |line: &str| {
        let (name, cells) = line.strip_prefix("| ")?.split_once(" | ")?;
        Some((name.to_owned(), cells.to_owned()))
    };
    (columns, rows.filter_map(row).collect())
}

fn expected() -> String {
    let (columns, tests) = tests();
    let cells = columns.matches('|').count() - 1;
    let mut out = format!(
        "# Operators\n\nWhat a model may have, of ONNX's operator sets 1 to 28 and of `ai.onnx.ml`. `megrez operators` prints \
         the same list.\nThe versions are those of the operator set that has changed an operator. Tests are ONNX's own of the \
         operator alone;\n[coverage.md](coverage.md) says how they run, and why some are refused. Errors are the largest of \
         these tests, absolute\nbelow 1 and else relative: of fixed point with 16 fraction bits on the 64-bit ring, and of \
         float32.\n\nThis page is made by `MEGREZ_WRITE=1 cargo test -p megrez-graph --test graph operators`; the same \
         test fails when it is\nstale.\n\n{columns}\n|{}\n",
        " --- |".repeat(cells)
    );
    for op in supported() {
        match tests.get(op) {
            Some(cells) => out += &format!("| {op} | {cells}\n"),
            None => out += &format!("| {op} |{}\n", " |".repeat(cells - 1)),
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
