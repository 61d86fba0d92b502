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
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::channel;
use std::time::Instant;

/// Protocols of three parties that protect against one of them.
const PROTOCOLS: [&str; 8] =
    ["mizar", "concurrent", "aby3", "falcon", "alkaid", "alkaid-masked", "meteor", "bicoptor"];

/// What is asked for.
struct Asked {
    /// Random plans for each protocol.
    plans: u64,
    /// One mutant in so many.
    one_in: usize,
    models: Vec<&'static str>,
    protocols: Vec<&'static str>,
}

/// What the symbolic masks of a protocol say.
#[derive(Default)]
struct Score {
    plans: usize,
    messages: usize,
    views: usize,
    lemmas: BTreeMap<&'static str, usize>,
    leaks: Vec<String>,
    /// About its networks, a line each.
    networks: Vec<String>,
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

    fn of(protocol: &str, asked: &Asked) -> Self {
        let mut score = Score::default();
        for case in cases::of(protocol) {
            match examine_runs(protocol, &case.plan, case.options()) {
                Ok(report) => score.add(case.name, report),
                Err(WalkError::Unsupported(_)) => {}
                Err(e) => score.leaks.push(format!("{}: {e}", case.name)),
            }
        }
        for &model in &asked.models {
            let began = Instant::now();
            let said = match zoo::plan(protocol, model).map(|plan| examine(protocol, &plan)) {
                Ok(Ok(report)) => {
                    let seconds = began.elapsed().as_secs_f64();
                    let line = format!("  {protocol} {model}: {} messages, {seconds:.1} s", report.messages);
                    score.add(model, report);
                    line
                }
                Ok(Err(WalkError::Unsupported(_))) | Err(_) => {
                    format!("  {protocol} {model}: not in this protocol")
                }
                Ok(Err(e)) => {
                    score.leaks.push(format!("{model}: {e}"));
                    continue;
                }
            };
            score.networks.push(said);
        }
        let (mut done, mut number) = (0, 0);
        while done < asked.plans && number < 4 * asked.plans {
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
        score
    }
}

/// What became of the mutants of a protocol.
#[derive(Default)]
struct Fates {
    /// All, killed, harmless, survived.
    counts: [usize; 4],
    reasons: BTreeMap<&'static str, usize>,
    survivors: Vec<String>,
}

impl Fates {
    fn of(protocol: &str, asked: &Asked) -> Self {
        let mut fates = Fates::default();
        for case in cases::of(protocol) {
            let Ok(mutations) = mutations(protocol, &case) else { continue };
            for mutation in mutations.iter().step_by(asked.one_in) {
                fates.counts[0] += 1;
                match fate(protocol, &case, mutation) {
                    Ok(Fate::Killed) => fates.counts[1] += 1,
                    Ok(Fate::Harmless(reason)) => {
                        fates.counts[2] += 1;
                        *fates.reasons.entry(reason).or_default() += 1;
                    }
                    Ok(Fate::Survived) => {
                        fates.counts[3] += 1;
                        fates.survivors.push(format!("{}: {mutation}", case.name));
                    }
                    Err(e) => fates.survivors.push(format!("{}: {mutation}: {e}", case.name)),
                }
            }
        }
        fates
    }
}

/// Works on all protocols, as many at a time as there are cores, and reads what comes of each, with
/// its seconds, in their order. The last, which take longest, are begun first.
fn for_each<T: Send>(
    protocols: &[&'static str],
    work: impl Fn(&str) -> T + Sync,
    mut read: impl FnMut(&str, T, f64),
) {
    let next = AtomicUsize::new(0);
    let (made, results) = channel();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for made in std::iter::repeat_n(made, cores) {
            scope.spawn(|| {
                let made = made;
                while let Some(protocol) = protocols.iter().rev().nth(next.fetch_add(1, Relaxed)) {
                    let start = Instant::now();
                    let result = work(protocol);
                    // Whoever reads has gone only if it has panicked.
                    let _ = made.send((*protocol, result, start.elapsed().as_secs_f64()));
                }
            });
        }
        let mut waiting = BTreeMap::new();
        for &protocol in protocols {
            while !waiting.contains_key(protocol) {
                let Ok((made, result, seconds)) = results.recv() else { return };
                waiting.insert(made, (result, seconds));
            }
            if let Some((result, seconds)) = waiting.remove(protocol) {
                read(protocol, result, seconds);
            }
        }
    });
}

/// Whether a message of any view of any plan is not masked.
fn symbolic_masks(asked: &Asked) -> bool {
    println!("symbolic masks: every message of every view of every plan");
    println!(
        "{:<14} {:>8} {:>10} {:>8} {:>9}  lemmas assumed",
        "protocol", "plans", "messages", "views", "seconds"
    );
    let mut failed = false;
    let score = |protocol: &str| Score::of(protocol, asked);
    for_each(&asked.protocols, score, |protocol, score, seconds| {
        score.networks.iter().for_each(|line| println!("{line}"));
        let lemmas: Vec<String> = score.lemmas.iter().map(|(lemma, n)| format!("{lemma} ({n})")).collect();
        println!(
            "{protocol:<14} {:>8} {:>10} {:>8} {seconds:>9.1}  {}",
            score.plans,
            score.messages,
            score.views,
            lemmas.join(", ")
        );
        score.leaks.iter().take(8).for_each(|leak| println!("  LEAK {leak}"));
        failed |= !score.leaks.is_empty();
    });
    failed
}

/// Whether a mutant survives.
fn mutants(asked: &Asked) -> bool {
    println!("\nmutants: randomness weakened in one place (one in {} of all)", asked.one_in);
    println!(
        "{:<14} {:>8} {:>8} {:>9} {:>9} {:>9}",
        "protocol", "mutants", "killed", "harmless", "survived", "seconds"
    );
    let (mut all, mut failed) = (Fates::default(), false);
    let fates = |protocol: &str| Fates::of(protocol, asked);
    for_each(&asked.protocols, fates, |protocol, fates, seconds| {
        let [count, killed, harmless, survived] = fates.counts;
        println!("{protocol:<14} {count:>8} {killed:>8} {harmless:>9} {survived:>9} {seconds:>9.1}");
        fates.survivors.iter().for_each(|survivor| println!("  SURVIVED {survivor}"));
        failed |= !fates.survivors.is_empty();
        all.counts.iter_mut().zip(fates.counts).for_each(|(total, count)| *total += count);
        for (reason, n) in fates.reasons {
            *all.reasons.entry(reason).or_default() += n;
        }
    });
    let [count, killed, harmless, survived] = all.counts;
    println!("all            {count:>8} {killed:>8} {harmless:>9} {survived:>9}");
    all.reasons.iter().for_each(|(reason, n)| println!("  harmless ({n}): {reason}"));
    failed
}

/// Whether an exact view in blocks of 2^`block` tells secrets apart, or a result is wrong.
fn exact_views(asked: &Asked, block: u32) -> bool {
    println!(
        "\nexact views: all that a party does not know enumerated, on rings of 2 to 5 bits, in blocks of 2^{block}"
    );
    let limits = Limits { block: 1 << block.min(24), ..Limits::default() };
    let rows = views::run(
        limits,
        |protocol, _| asked.protocols.contains(&protocol),
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
    broken > 0
}

fn main() -> ExitCode {
    let argument = |name: &str| {
        let mut all = std::env::args().skip_while(|a| a != name);
        all.next().map(|_| all.next().unwrap_or_default())
    };
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
    let asked = Asked {
        plans: argument("--plans").and_then(|n| n.parse().ok()).unwrap_or(150),
        one_in: argument("--mutants").map_or(12, |which| which.parse().unwrap_or(1)).max(1),
        models,
        protocols: PROTOCOLS.into_iter().filter(|p| only.as_deref().is_none_or(|only| only == *p)).collect(),
    };
    let mut failed = symbolic_masks(&asked);
    failed |= mutants(&asked);
    if let Some(block) = argument("--views").and_then(|block| block.parse().ok()) {
        failed |= exact_views(&asked, block);
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
