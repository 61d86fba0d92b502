//! Prints the table of exact views:
//! `cargo run --release -p megrez-assurance --example views [PROTOCOL [OPERATION [FORM]]]`.

use megrez_assurance::views::{Limits, Verdict, run};
use std::io::Write;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let fits =
        |at: usize, name: &str| args.get(at).is_none_or(|arg| arg == "-" || name.contains(arg.as_str()));
    let wanted = |protocol: &str, case: &megrez_assurance::views::Case| {
        args.first().is_none_or(|arg| arg == "-" || protocol == arg)
            && args.get(1).is_none_or(|arg| arg == "-" || case.op == arg)
            && fits(2, &case.form)
    };
    let block = std::env::var("BLOCK").ok().and_then(|n| n.parse().ok()).unwrap_or(20);
    let rows = run(Limits { block: 1 << block, ..Limits::default() }, wanted, |row| {
        println!("{row}");
        let _ = std::io::stdout().flush();
    });
    let same = rows.iter().filter(|row| row.finding.verdict == Verdict::Same).count();
    let lanes: usize = rows.iter().map(|row| row.finding.lanes).sum();
    println!("{same} of {} views are the same for all secrets; {lanes} executions", rows.len());
}
