//! The symbolic checker: protocols that protect pass, one that leaks and weakened ones are caught.

use megrez_assurance::masks::{WalkError, examine, examine_plans, examine_runs};
use megrez_assurance::mutants::{Fate, Mutation, fate, mutations};
use megrez_assurance::{cases, plans, zoo};
use megrez_engine::Options;
use megrez_plan::{KEPT, Op, Plan, SignBit};
use std::collections::BTreeSet;

const PROTOCOLS: [&str; 8] =
    ["mizar", "concurrent", "aby3", "falcon", "alkaid", "alkaid-masked", "meteor", "bicoptor"];

fn passes(protocol: &str, name: &str, plan: &Plan, options: Options<'_>) -> bool {
    match examine_runs(protocol, plan, options) {
        Ok(report) => {
            let found: Vec<String> = report.unmasked.iter().take(4).map(ToString::to_string).collect();
            assert!(report.is_masked(), "{protocol}, {name}: {found:?} {:?}", report.trouble);
            assert!(report.messages > 0 && report.views > 3, "{protocol}, {name}: nothing was examined");
            true
        }
        Err(WalkError::Unsupported(_)) => false,
        Err(e) => panic!("{protocol}, {name}: {e}"),
    }
}

#[test]
fn every_step_in_every_form_is_masked() {
    for protocol in PROTOCOLS {
        let cases = cases::of(protocol);
        let passed = cases.iter().filter(|c| passes(protocol, c.name, &c.plan, c.options())).count();
        assert!(passed >= 6, "{protocol} runs {passed} of {} cases", cases.len());
    }
}

#[test]
fn random_plans_are_masked() {
    for protocol in PROTOCOLS {
        let run = |number: &u64| {
            let plan = plans::random(protocol, *number);
            passes(protocol, &format!("plan {number}"), &plan, Options::default())
        };
        let passed = (0..120).filter(run).take(30).count();
        assert!(passed >= 20, "{protocol} runs only {passed} random plans");
    }
}

/// A language model reads two tokens, and then one and one more: keys and values of attention, and
/// weights, are kept in shares from run to run, and later plans compute with them.
#[test]
fn tokens_in_a_row_are_masked() {
    for protocol in ["mizar", "aby3", "alkaid"] {
        let plans = zoo::text(protocol, "llama-tiny", &[2, 1, 1]).unwrap();
        assert!(
            plans[1..].iter().all(|plan| plan.inputs.iter().any(|input| input.name.starts_with("past.")))
        );
        let alone = examine(protocol, &plans[0]).unwrap();
        let report = examine_plans(protocol, &plans).unwrap();
        let found: Vec<String> = report.unmasked.iter().take(4).map(ToString::to_string).collect();
        assert!(report.is_masked(), "{protocol}: {found:?} {:?}", report.trouble);
        assert!(report.messages > 2 * alone.messages, "{protocol}: later tokens were not examined");
    }
}

/// A kept value that a later plan opens to somebody is seen as it is.
#[test]
fn a_later_plan_that_opens_what_is_kept_is_caught() {
    let mut first = Plan::new(64);
    let x = first.input("x", "alice", [5].into(), 16);
    first.output("past.x", KEPT, x);
    let mut second = Plan::new(64);
    let x = second.input("past.x", KEPT, [5].into(), 16);
    let y = second.input("y", "bob", [5].into(), 16);
    let z = second.step("product", Op::Mul, &[x, y]).unwrap();
    second.output("z", "carol", z);
    let plans = [first, second];
    for protocol in ["mizar", "aby3", "alkaid"] {
        assert!(examine_plans(protocol, &plans).unwrap().is_masked(), "{protocol}");
    }
    // The dealer of `aegis` sees two lists under one rotation, also of a value of an earlier plan.
    let mut second = Plan::new(64);
    let x = second.input("past.x", KEPT, [5].into(), 16);
    let bit = second.step("sign", Op::NonNegative(SignBit::FULL), &[x]).unwrap();
    second.output("bit", "carol", bit);
    let plans = [plans.into_iter().next().unwrap(), second];
    assert!(!examine_plans("aegis", &plans).unwrap().unmasked.is_empty());
}

/// The kind of a step, or `None` if every protocol computes it without a message. A new operation
/// does not compile until it says.
fn kind(op: &Op) -> Option<&'static str> {
    Some(match op {
        Op::Constant { .. } | Op::Combine { .. } | Op::View(_) | Op::Concat { .. } | Op::Pad { .. } => {
            return None;
        }
        Op::Sum { .. } | Op::Gather { .. } | Op::Rescale { .. } | Op::Xor | Op::Not => return None,
        Op::TimesPublic(_) | Op::LowBit => return None,
        // The same step as an element-wise product, for another bilinear map.
        Op::Mul | Op::MatMul | Op::Conv(_) => "product",
        Op::MulTruncated { .. } => "product that is truncated before",
        Op::Additive(_) => "deferred product",
        Op::Reshare => "sum that is shared",
        Op::Truncate { .. } => "truncation",
        Op::NonNegative(_) => "comparison",
        Op::CompareMany { .. } => "many comparisons",
        Op::Relu(_) => "relu",
        Op::Maximum(_) => "maximum",
        Op::Offloaded(_) => "offloaded step",
        Op::ToBits => "to bits",
        Op::FromBits => "from bits",
        Op::AddBits => "addition of bits",
        Op::Select { .. } => "selection",
        Op::SelectSum { .. } => "selection that is added up",
        Op::BitToRing => "bit to ring",
        Op::BitMatMul => "product of matrices of bits",
        Op::BitPolynomials { .. } => "polynomials of bits",
        Op::And => "conjunction",
        Op::Lookup(_) => "lookup",
        Op::Winner(_) => "winner",
        Op::Noise { .. } => "noise",
    })
}

const KINDS: usize = 22;

#[test]
fn every_kind_of_step_has_a_case() {
    let cases: Vec<_> = PROTOCOLS.iter().flat_map(|protocol| cases::of(protocol)).collect();
    let steps = cases.iter().flat_map(|case| &case.plan.steps);
    let kinds: BTreeSet<&str> = steps.filter_map(|step| kind(&step.op)).collect();
    assert_eq!(kinds.len(), KINDS, "{kinds:?}");
}

#[test]
fn a_protocol_that_leaks_is_caught() {
    let mut plan = Plan::new(64);
    let x = plan.input("x", "alice", [5].into(), 16);
    let bit = plan.step("sign", Op::NonNegative(SignBit::FULL), &[x]).unwrap();
    plan.output("bit", "alice", bit);
    let report = examine("aegis", &plan).unwrap();
    let lists: Vec<_> = report.unmasked.iter().filter(|u| u.message.contains("list")).collect();
    assert!(!lists.is_empty(), "two lists under one rotation pass");
    assert!(lists.iter().all(|u| u.observer.starts_with("P2")), "the dealer alone sees lists");
}

/// The mutants of a protocol that fit, in all its cases.
fn of(protocol: &str, fits: impl Fn(&str, &Mutation) -> bool) -> Vec<(String, Fate)> {
    let mut fates = vec![];
    for case in cases::of(protocol) {
        let Ok(mutations) = mutations(protocol, &case) else { continue };
        for mutation in mutations.iter().filter(|m| fits(case.name, m)) {
            let name = format!("{protocol}, {}: {mutation}", case.name);
            fates.push((name, fate(protocol, &case, mutation).unwrap()));
        }
    }
    fates
}

fn all_killed(protocol: &str, what: &str, fits: impl Fn(&str, &Mutation) -> bool) {
    let fates = of(protocol, fits);
    assert!(!fates.is_empty(), "{protocol}: there is no mutant with {what}");
    for (name, fate) in fates {
        assert_eq!(fate, Fate::Killed, "{name}");
    }
}

fn purposes(mutation: &Mutation) -> [&str; 2] {
    match mutation {
        Mutation::Same(a, b) => [&a.purpose, &b.purpose],
        Mutation::Zeros(a) | Mutation::One(a) | Mutation::Fold(a, _) | Mutation::Again(a) => {
            [&a.purpose, &a.purpose]
        }
    }
}

/// Mutants made by hand that the statistical tests of views let live.
#[test]
fn mutants_that_once_survived_are_killed() {
    all_killed("mizar", "one κ for both halves of a ReLU", |_, m| {
        matches!(m, Mutation::Same(..)) && purposes(m).iter().all(|p| p.ends_with("-half"))
    });
    all_killed("mizar", "one dealer bit for all pairs of a maximum", |case, m| {
        case == "maximum" && matches!(m, Mutation::Fold(..)) && purposes(m)[0] == "bits"
    });
    all_killed("mizar", "one zero-share stream for all thresholds", |case, m| {
        case == "many thresholds" && matches!(m, Mutation::Same(..)) && purposes(m) == ["zero-share"; 2]
    });
    all_killed("mizar", "one flip for neighbouring elements", |_, m| {
        matches!(m, Mutation::One(_)) && purposes(m)[0] == "flip"
    });
    all_killed("mizar", "one a for neighbouring elements", |case, m| {
        case.starts_with("relu") && matches!(m, Mutation::One(_)) && purposes(m)[0] == "bit"
    });
    all_killed("alkaid", "digit signals without the stream of P0 and P1", |_, m| {
        matches!(m, Mutation::Zeros(_)) && purposes(m)[0] == "digits"
    });
    all_killed("aby3", "one digit mask for all thresholds", |case, m| {
        case == "many thresholds" && matches!(m, Mutation::Fold(_, 3)) && purposes(m)[0] == "digits"
    });
    all_killed("falcon", "a value opened without a part of its mask", |case, m| {
        case.starts_with("sign") && matches!(m, Mutation::Zeros(_)) && purposes(m)[0] == "r"
    });
    all_killed("falcon", "one mask for all thresholds", |case, m| {
        case == "many thresholds" && matches!(m, Mutation::Fold(_, 3)) && purposes(m)[0] == "r"
    });
    all_killed("alkaid", "a result without its sharing of zero", |case, m| {
        case.starts_with("sign") && matches!(m, Mutation::Zeros(_)) && purposes(m)[0] == "top"
    });
    all_killed("meteor", "signal masks shared by thresholds", |case, m| {
        case == "many thresholds" && matches!(m, Mutation::Fold(_, 3)) && purposes(m)[0] == "masks"
    });
}

/// Without a root of its own that the receiver does not know, a key is no mask.
#[test]
fn weak_roots_of_keys_are_killed() {
    for protocol in ["mizar", "aby3"] {
        all_killed(protocol, "a weak root", |_, m| purposes(m).contains(&"root"));
    }
    all_killed("mizar", "the root of another run", |_, m| {
        matches!(m, Mutation::Again(_)) && purposes(m)[0] == "root"
    });
}

/// Weights that are held from run to run stay under the masks of the first; what reads them draws
/// anew in each run.
#[test]
fn what_reads_lasting_weights_draws_anew_in_every_run() {
    for protocol in PROTOCOLS {
        let cases = cases::of(protocol);
        let case = cases.iter().find(|case| case.name == "weights that last").expect(protocol);
        let once = examine(protocol, &case.plan).unwrap().messages;
        let report = examine_runs(protocol, &case.plan, case.options()).unwrap();
        assert!(report.is_masked() && report.messages > 2 * once, "{protocol}: {report:?}");
        let mutations = mutations(protocol, case).unwrap();
        let again: Vec<_> = mutations.iter().filter(|m| matches!(m, Mutation::Again(_))).collect();
        let fates: Vec<_> = again.iter().map(|m| (m, fate(protocol, case, m).unwrap())).collect();
        assert!(fates.iter().all(|(_, fate)| *fate != Fate::Survived), "{protocol}: {fates:?}");
        let killed = fates.iter().filter(|(_, fate)| *fate == Fate::Killed).count();
        assert!(killed >= 3, "{protocol}: {fates:?}");
    }
}

/// What leaked once: openings of a deferred sum without masks of their own.
#[test]
fn openings_that_share_a_mask_are_caught() {
    for protocol in ["aby3", "alkaid"] {
        all_killed(protocol, "openings without masks", |case, m| {
            case == "deferred sum"
                && matches!(m, Mutation::Zeros(_) | Mutation::One(_))
                && purposes(m)[0] == "open"
        });
        all_killed(protocol, "one mask for two openings", |case, m| {
            case == "deferred sum" && matches!(m, Mutation::Same(..)) && purposes(m) == ["open"; 2]
        });
    }
}

#[test]
fn every_mutant_of_a_winner_is_killed() {
    for protocol in ["mizar", "aby3"] {
        all_killed(protocol, "winners", |name, mutation| {
            // Outputs' sharings of zero are a second lock.
            name.contains("winner") && !mutation.to_string().contains("Output")
        });
    }
}
