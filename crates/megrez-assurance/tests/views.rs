//! Exact views, as far as a minute goes: `make assurance` enumerates all of them.

use megrez_assurance::views::{
    self, Case, Kind, Limits, Mutation, Role, Row, Verdict, all_cases, cases, judge,
};
use megrez_plan::{Gives, Op, Winner};
use std::collections::{BTreeMap, BTreeSet};

/// Small enough for a test: what takes more is looked at by `make assurance`.
const QUICK: Limits = Limits { block: 1 << 12, lanes: 1 << 10, probe: 256 };

fn case<'a>(cases: &'a [Case], op: &str, form: &str) -> &'a Case {
    let found = cases.iter().find(|case| case.op == op && case.form == form);
    found.unwrap_or_else(|| panic!("no case {op}, {form}"))
}

/// The verdict about one party in one role.
fn verdict(case: &Case, protocol: &str, party: usize, role: Role, limits: Limits) -> Verdict {
    let found = judge::examine(case, protocol, &[party], &[role], None, limits);
    found.expect("the protocol has the operation").remove(0).1.verdict
}

/// Runs a part of the table and holds every row to its verdict.
fn all_the_same(protocol: &str) {
    the_same(protocol, |_| true);
}

/// … of the cases that are meant.
fn the_same(protocol: &str, meant: impl Fn(&Case) -> bool) {
    // Plans of many small messages take longer.
    let heavy = !["mizar", "concurrent", "bicoptor"].contains(&protocol);
    let part = |case: &Case| match heavy {
        false => case.ring != 4,
        true => case.ring == 2 || case.form == "ThreeRounds, a digit of 2",
    };
    let wanted = |name: &str, case: &Case| name == protocol && part(case) && meant(case);
    let rows = views::run(QUICK, wanted, |_| {});
    let bad: Vec<String> = rows
        .iter()
        .filter(|row| {
            !matches!(row.finding.verdict, Verdict::Same | Verdict::TooLarge(_) | Verdict::Unclear(_))
        })
        .map(Row::to_string)
        .collect();
    assert!(bad.is_empty(), "{}", bad.join("\n"));
    let same = rows.iter().filter(|row| row.finding.verdict == Verdict::Same).count();
    assert!(3 * same > 2 * rows.len(), "{same} of {} views are small enough", rows.len());
}

#[test]
fn mizar_shows_nothing() {
    all_the_same("mizar");
}

/// Its list; all else is `mizar`'s.
#[test]
fn concurrent_shows_nothing() {
    the_same("concurrent", |case| ["NonNegative", "CompareMany", "Relu", "Maximum"].contains(&case.op));
}

#[test]
fn aby3_shows_nothing() {
    all_the_same("aby3");
}

/// Its comparisons; all else is `aby3`'s.
#[test]
fn falcon_shows_nothing() {
    the_same("falcon", |case| ["NonNegative", "CompareMany", "Relu"].contains(&case.op));
}

#[test]
fn alkaid_shows_nothing() {
    all_the_same("alkaid");
}

#[test]
fn alkaid_masked_shows_nothing() {
    all_the_same("alkaid-masked");
}

#[test]
fn meteor_shows_nothing() {
    all_the_same("meteor");
}

#[test]
fn bicoptor_shows_nothing() {
    all_the_same("bicoptor");
}

/// Aegis leaks, and says so: a machine that does not see it sees nothing.
#[test]
fn the_two_lists_of_aegis_tell_the_dealer_about_the_value() {
    let cases = all_cases();
    let limits = Limits { block: 1 << 17, ..QUICK };
    let compare = case(&cases, "NonNegative", "3 bits");
    for (party, leaks) in [(0, false), (1, false), (2, true)] {
        let found = verdict(compare, "aegis", party, Role::Party, limits);
        assert_eq!(matches!(found, Verdict::Leak(_)), leaks, "party {party}: {found:?}");
    }
}

/// Products that are left as sums, with shared values beside them: what once told P1 the values.
#[test]
fn sums_that_wait_are_masked_for_every_opening() {
    let cases = all_cases();
    for protocol in ["aby3", "alkaid"] {
        for form in [
            "padded, plus shared values",
            "broadcast, plus shared values",
            "plus one and plus another shared value",
            "twice, plus a shared value",
        ] {
            let limits = Limits { block: 1 << 17, ..QUICK };
            let found = verdict(case(&cases, "Additive", form), protocol, 1, Role::Party, limits);
            assert_eq!(found, Verdict::Same, "{protocol}, {form}");
        }
    }
}

/// What no protocol has but those on MIZAR's sharing.
const DEALT: [&str; 9] = [
    "Reshare",
    "Maximum",
    "Lookup",
    "Winner",
    "SelectSum",
    "MulTruncated",
    "LowBit",
    "BitMatMul",
    "BitPolynomials",
];

/// Every operation has a case under every protocol that has it, and every party plays every role.
#[test]
fn no_operation_is_without_a_case() {
    // What a protocol does not have. Whoever adds an operation to a protocol takes it from here and
    // adds a case.
    let lacks = |protocol: &str| -> BTreeSet<&str> {
        let names: &[&str] = match protocol {
            "mizar" | "concurrent" | "aegis" => &["Offloaded", "ToBits", "FromBits", "AddBits"],
            "bicoptor" => &["Noise", "Additive", "Offloaded", "ToBits", "FromBits", "AddBits", "CompareMany"],
            "aby3" | "falcon" | "alkaid" => &[],
            "meteor" | "alkaid-masked" => &["Offloaded"],
            other => panic!("the protocol {other} is new: say what it lacks, and give what it has to cases"),
        };
        // What MIZAR's sharing alone has.
        let dealt = match protocol {
            "mizar" | "concurrent" | "aegis" => &[][..],
            _ => &DEALT,
        };
        names.iter().chain(dealt).copied().collect()
    };
    let cases = all_cases();
    for protocol in views::protocols() {
        let mut covered: BTreeMap<&str, usize> = BTreeMap::new();
        for case in &cases {
            if judge::draws(case, protocol).is_some() {
                let plan = case.plan(64, protocol).expect("there are draws");
                let about = plan.steps.iter().map(|step| cases::name(&step.op)).collect::<BTreeSet<_>>();
                assert!(about.contains(case.op), "{} {} is not about {}", case.op, case.form, case.op);
                *covered.entry(case.op).or_default() += 1;
            }
        }
        let missing: BTreeSet<&str> =
            cases::NAMES.iter().copied().filter(|name| !covered.contains_key(name)).collect();
        assert_eq!(missing, lacks(protocol), "{protocol}");
    }
    let last = Op::Winner(Winner { cut: 0, bits: 2, gives: Gives::Value });
    assert_eq!(cases::name(&last), *cases::NAMES.last().expect("names"));
}

/// Small enough to be decided, every one of them, around keys that are dealt ideally.
#[test]
fn what_stands_around_a_key_shows_nothing() {
    let cases = all_cases();
    let by_key = cases.iter().filter(|case| case.op == "Relu" && case.form.starts_with("Key"));
    let by_key: Vec<&Case> = by_key.collect();
    assert_eq!(by_key.len(), 4);
    for case in by_key {
        for party in 0..3 {
            let verdict = verdict(case, "mizar", party, Role::Party, Limits { block: 1 << 14, ..QUICK });
            assert_eq!(verdict, Verdict::Same, "{} at party {party}", case.form);
        }
    }
}

/// Protections taken away one by one: each is noticed.
#[test]
fn missing_protections_are_noticed() {
    let cases = all_cases();
    let limits = Limits { block: 1 << 16, ..QUICK };
    let same = |draw: &str| Kind::SameAs(draw.into());
    let table: [(&str, &str, &str, &str, Kind); 25] = [
        ("mizar", "NonNegative", "3 bits", "op: zero-share of P0 and P1", Kind::Zero),
        ("mizar", "NonNegative", "3 bits", "op: multiplier of P0 and P1", Kind::Zero),
        ("mizar", "NonNegative", "3 bits", "op: flip of P0 and P1", Kind::Zero),
        ("mizar", "NonNegative", "3 bits", "op: rotation of P0 and P1", Kind::Zero),
        ("mizar", "NonNegative", "neighbours by digits", "op: flip of P0 and P1", Kind::Stretch { run: 2 }),
        (
            "mizar",
            "Truncate",
            "one bit",
            "op: carry of P1 and P2",
            same("Offline input/x: input of P1 and P2"),
        ),
        ("mizar", "Truncate", "one bit", "op: carry of P0 and P2", Kind::Zero),
        ("mizar", "Truncate", "one bit", "op: mask of P1 and P2", Kind::Zero),
        ("mizar", "Mul", "x·y", "op: mask of P0 and P2", Kind::Zero),
        ("mizar", "Lookup", "2 segments of degree 1", "op: mask of P0 and P2", Kind::Zero),
        ("mizar", "Lookup", "2 segments of degree 1", "op: table of P0 and P2", Kind::Zero),
        ("mizar", "Lookup", "2 segments of degree 1", "op: table of P0 and P2", Kind::Repeat { period: 2 }),
        ("mizar", "Winner", "Value, 2 of 3 bits", "op: mask of P1 and P2", Kind::Zero),
        ("mizar", "Winner", "Value, 2 of 3 bits", "op: count of P0 and P2", Kind::Zero),
        ("mizar", "Winner", "Value, 2 of 3 bits", "op: pairs of P1 and P2", Kind::Zero),
        ("mizar", "Winner", "Value, 2 of 2 bits", "op: winner of P0 and P2", Kind::Zero),
        ("mizar", "Winner", "Value, 2 of 3 bits", "op: mask-winner of P0 and P2", Kind::Zero),
        ("mizar", "Winner", "OneHot, 3 of 2 bits", "op: count of P0 and P2", Kind::Repeat { period: 1 }),
        ("mizar", "Relu", "Key, 3 bits", "op: mask of P1 and P2", Kind::Zero),
        ("mizar", "Relu", "Key, 3 bits", "op: root of P0 and P2", Kind::Zero),
        ("mizar", "Relu", "Key, 3 bits", "op: mask-bit of P0 and P2", Kind::Zero),
        ("aby3", "Mul", "x·y", "Online op: zero of P0 and P2", Kind::Zero),
        ("falcon", "NonNegative", "2 bits", "op: r of P0 and P1", Kind::Zero),
        ("falcon", "NonNegative", "2 bits", "op/bits: v of P1 and P2", Kind::Zero),
        ("meteor", "NonNegative", "2 bits", "op: mask of P0 and P1", Kind::Zero),
    ];
    let mut missed = vec![];
    for (protocol, op, form, draw, kind) in table {
        let case = case(&cases, op, form);
        let draws = judge::draws(case, protocol).expect("the protocol has it").expect("it runs");
        let found: Vec<&String> = draws.keys().filter(|name| name.ends_with(draw)).collect();
        let [name] = found[..] else { panic!("{draw} is {found:?} of {:?}", draws.keys()) };
        let mutation = Mutation { draw: name.clone(), kind };
        let verdict = views::survives(case, protocol, &mutation, limits).expect("the protocol has it");
        if !matches!(verdict, Verdict::Leak(_)) {
            missed.push(format!("{protocol} {op} {form}, {mutation:?}: {verdict:?}"));
        }
    }
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

/// And one is not, for a reason: an output's shares follow from its value and the recipient's own
/// share, so the sharing of zero under which it leaves is a second lock.
#[test]
fn a_mask_that_hides_nothing_is_not_missed() {
    let cases = all_cases();
    let mutation = Mutation { draw: "Output output/z0: zero of P0 and P1".into(), kind: Kind::Zero };
    let case = case(&cases, "Mul", "x·y");
    let draws = judge::draws(case, "aby3").expect("aby3 has it").expect("it runs");
    assert!(draws.contains_key(&mutation.draw), "{:?}", draws.keys());
    let verdict = views::survives(case, "aby3", &mutation, Limits { block: 1 << 15, ..QUICK });
    assert_eq!(verdict, Some(Verdict::Same));
}
