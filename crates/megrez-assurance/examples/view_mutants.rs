//! Takes protections away from tiny plans, one by one, and prints what nobody notices:
//! `cargo run --release -p megrez-assurance --example view_mutants PROTOCOL [OPERATION [FORM]]`.

use megrez_assurance::views::{Limits, Verdict, all_cases, mutations, survives};
use std::io::Write;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let Some(protocol) = args.first() else { panic!("name a protocol") };
    let limits = Limits { block: 1 << 14, lanes: 1 << 10, probe: 256 };
    let (mut all, mut noticed) = (0, 0);
    for case in all_cases() {
        let wanted = args.get(1).is_none_or(|op| op == case.op)
            && args.get(2).is_none_or(|form| case.form.contains(form.as_str()));
        if !wanted {
            continue;
        }
        for mutation in mutations(&case, protocol) {
            let Some(verdict) = survives(&case, protocol, &mutation, limits) else { break };
            all += 1;
            match verdict {
                Verdict::Same | Verdict::TooLarge(_) | Verdict::Unclear(_) => {
                    println!("{protocol} {} {}: {mutation:?}: {verdict:?}", case.op, case.form);
                }
                _ => noticed += 1,
            }
            let _ = std::io::stdout().flush();
        }
    }
    println!("{noticed} of {all} mutations are noticed");
}
