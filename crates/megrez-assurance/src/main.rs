//! `make assurance`: what the machines say of all protocols, printed.
//!
//! `--plans N` random plans for each protocol, `--mutants all` or one in so many, `--zoo all`,
//! `none` or a name, `--views B` exact views in blocks of 2^B executions, `--protocol P` of one
//! protocol only. Without arguments, the part that runs with every change. Ends with 1 if anything
//! leaks or a mutant survives.

use megrez_assurance::masks::{Report, WalkError, examine, examine_runs};
use megrez_assurance::mutants::{Fate, fate, mutations};
use megrez_assurance::views::{self, Limits, Verdict};
use megrez_assurance::{cases, plans, zoo};
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Instant;

/// Protocols of three parties that protect against one of them.
const PROTOCOLS: [&str; 8] =
    ["mizar", "concurrent", "aby3", "falcon", "alkaid", "alkaid-masked", "meteor", "bicoptor"];

struct Score {
    plans: usize,
    messages: usize,
    views: usize,
    lemmas: BTreeMap<&'static str, usize>,
    leaks: Vec<String>,
}

impl Score {
    fn add(&mut self, name: &str, report: Report) {
        self.plans += 1;
        self.messages += report.messages;
        self.views += report.views;
        report.lemmas.into_iter().for_each(|(lemma, n)| *self.lemmas.entry(lemma).or_default() += n);
        let found = report.unmasked.iter().map(ToString::to_string).chain(report.trouble);
        self.leaks.extend(found.take(3).map(|what| format!("{name}: {what}")));
    }
}

fn main() -> ExitCode {
    let argument = |name: &str| {
        let mut all = std::env::args().skip_while(|a| a != name);
        all.next().map(|_| all.next().unwrap_or_default())
    };
    let count = argument("--plans").and_then(|n| n.parse().ok()).unwrap_or(150u64);
    let one_in =
        argument("--mutants").map_or(12, |which| if which == "all" { 1 } else { which.parse().unwrap_or(1) });
    let models: Vec<&str> = match argument("--zoo").as_deref() {
        Some("all") => zoo::ALL.to_vec(),
        Some("none") => vec![],
        Some(name) => match zoo::ALL.into_iter().find(|model| *model == name) {
            Some(model) => vec![model],
            None => {
                eprintln!("there is no network `{name}`: {}", zoo::ALL.join(", "));
                return ExitCode::FAILURE;
            }
        },
        None => zoo::SMALL.to_vec(),
    };
    let only = argument("--protocol");
    let protocols = || PROTOCOLS.into_iter().filter(|p| only.as_deref().is_none_or(|only| only == *p));
    let mut failed = false;

    println!("symbolic masks: every message of every view of every plan");
    println!(
        "{:<14} {:>8} {:>10} {:>8} {:>9}  lemmas assumed",
        "protocol", "plans", "messages", "views", "seconds"
    );
    for protocol in protocols() {
        let start = Instant::now();
        let mut score = Score { plans: 0, messages: 0, views: 0, lemmas: BTreeMap::new(), leaks: vec![] };
        for case in cases::of(protocol) {
            match examine_runs(protocol, &case.plan, case.options(), None) {
                Ok(report) => score.add(case.name, report),
                Err(WalkError::Unsupported(_)) => {}
                Err(e) => score.leaks.push(format!("{}: {e}", case.name)),
            }
        }
        for &model in &models {
            let began = Instant::now();
            match zoo::plan(protocol, model).map(|plan| examine(protocol, &plan)) {
                Ok(Ok(report)) => {
                    println!(
                        "  {protocol} {model}: {} messages, {:.1} s",
                        report.messages,
                        began.elapsed().as_secs_f64()
                    );
                    score.add(model, report);
                }
                Ok(Err(WalkError::Unsupported(_))) | Err(_) => {
                    println!("  {protocol} {model}: not in this protocol")
                }
                Ok(Err(e)) => score.leaks.push(format!("{model}: {e}")),
            }
        }
        let (mut done, mut number) = (0, 0);
        while done < count && number < 4 * count {
            match examine(protocol, &plans::random(protocol, number)) {
                Ok(report) => {
                    score.add(&format!("random plan {number}"), report);
                    done += 1;
                }
                Err(WalkError::Unsupported(_)) => {}
                Err(e) => score.leaks.push(format!("random plan {number}: {e}")),
            }
            number += 1;
        }
        let lemmas: Vec<String> = score.lemmas.iter().map(|(lemma, n)| format!("{lemma} ({n})")).collect();
        println!(
            "{protocol:<14} {:>8} {:>10} {:>8} {:>9.1}  {}",
            score.plans,
            score.messages,
            score.views,
            start.elapsed().as_secs_f64(),
            lemmas.join(", ")
        );
        score.leaks.iter().take(8).for_each(|leak| println!("  LEAK {leak}"));
        failed |= !score.leaks.is_empty();
    }

    println!("\nmutants: randomness weakened in one place (one in {one_in} of all)");
    println!(
        "{:<14} {:>8} {:>8} {:>9} {:>9} {:>9}",
        "protocol", "mutants", "killed", "harmless", "survived", "seconds"
    );
    let mut totals = [0usize; 4];
    let mut reasons: BTreeMap<&'static str, usize> = BTreeMap::new();
    for protocol in protocols() {
        let start = Instant::now();
        let mut counts = [0usize; 4];
        let mut survivors = vec![];
        for case in cases::of(protocol) {
            let Ok(mutations) = mutations(protocol, &case) else { continue };
            for mutation in mutations.iter().enumerate().filter(|(i, _)| i % one_in == 0).map(|(_, m)| m) {
                counts[0] += 1;
                match fate(protocol, &case, mutation) {
                    Ok(Fate::Killed) => counts[1] += 1,
                    Ok(Fate::Harmless(reason)) => {
                        counts[2] += 1;
                        *reasons.entry(reason).or_default() += 1;
                    }
                    Ok(Fate::Survived) => {
                        counts[3] += 1;
                        survivors.push(format!("{}: {mutation}", case.name));
                    }
                    Err(e) => survivors.push(format!("{}: {mutation}: {e}", case.name)),
                }
            }
        }
        println!(
            "{protocol:<14} {:>8} {:>8} {:>9} {:>9} {:>9.1}",
            counts[0],
            counts[1],
            counts[2],
            counts[3],
            start.elapsed().as_secs_f64()
        );
        survivors.iter().for_each(|survivor| println!("  SURVIVED {survivor}"));
        failed |= !survivors.is_empty();
        totals.iter_mut().zip(counts).for_each(|(total, count)| *total += count);
    }
    let [all, killed, harmless, survived] = totals;
    println!("all            {all:>8} {killed:>8} {harmless:>9} {survived:>9}");
    reasons.iter().for_each(|(reason, n)| println!("  harmless ({n}): {reason}"));

    if let Some(block) = argument("--views").and_then(|block| block.parse::<u32>().ok()) {
        println!(
            "\nexact views: all that a party does not know enumerated, on rings of 2 to 5 bits, in blocks of 2^{block}"
        );
        let limits = Limits { block: 1 << block.min(24), ..Limits::default() };
        let rows = views::run(
            limits,
            |protocol, _| protocols().any(|p| p == protocol),
            |row| {
                if row.finding.verdict != Verdict::Same {
                    println!("  {row}");
                }
            },
        );
        let of = |is: fn(&Verdict) -> bool| rows.iter().filter(|row| is(&row.finding.verdict)).count();
        let broken = of(|v| matches!(v, Verdict::Leak(_) | Verdict::Wrong(_) | Verdict::Broken(_)));
        println!(
            "{} views: {} the same for all secrets, {broken} leak or are wrong, {} unclear, {} too large for the block",
            rows.len(),
            of(|v| *v == Verdict::Same),
            of(|v| matches!(v, Verdict::Unclear(_))),
            of(|v| matches!(v, Verdict::TooLarge(_))),
        );
        failed |= broken > 0;
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
