//! The conformance suite: every protocol of the registry, every primitive, every ring. Values equal
//! the plaintext oracle; the meter equals the formulas exactly, message by message; every message
//! is uniform whatever the secret.

mod cases;

use crate::common::run_locally;
use cases::{Case, cases, mask};
use megrez_device::AnyDevice;
use megrez_engine::faults::Examine;
use megrez_engine::local::{LocalOptions, LocalRun, suite};
use megrez_engine::{PlanCost, check};
use megrez_plan::{Op, Plan, Value};
use megrez_protocols::{Cost, Unit, registry};
use megrez_session::{Phase, Sent, Tap};
use std::collections::HashMap;

fn execute(protocol: &str, case: &Case, tap: Option<Tap>) -> LocalRun {
    run_locally(protocol, &case.plan, &case.inputs, &LocalOptions { tap, ..LocalOptions::default() })
        .unwrap_or_else(|e| panic!("{protocol} {}: {e}", case.name))
}

/// The formulas of a plan's steps under a protocol.
fn formulas(protocol: &str, plan: &Plan) -> Vec<(String, Cost)> {
    costing(protocol, plan).steps.into_iter().map(|s| (s.name, s.cost)).collect()
}

fn costing(protocol: &str, plan: &Plan) -> PlanCost {
    check(&*suite(protocol, plan.ring).unwrap(), plan).unwrap()
}

/// On rings that are there for tests alone is everything.
fn on(ring: u32) -> impl Iterator<Item = &'static registry::Protocol> {
    registry::PROTOCOLS.iter().filter(move |p| ring < 32 || p.rings.contains(&ring))
}

fn secure(ring: u32) -> impl Iterator<Item = &'static str> {
    on(ring).filter(|p| !p.insecure).map(|p| p.name)
}

/// Those on shares, secure or kept to compare with.
fn on_shares(ring: u32) -> impl Iterator<Item = &'static str> {
    on(ring).filter(|p| p.parties > 1).map(|p| p.name)
}

/// Why a protocol cannot run a plan, by its own word.
fn lacks(protocol: &str, plan: &Plan) -> Option<String> {
    check(&*suite(protocol, plan.ring).unwrap(), plan).err().map(|e| e.to_string())
}

/// Protocols that are another one with other comparisons: `mizar` with another list, or `aby3` with
/// another comparison.
const OTHERS: [(&str, &str); 3] = [("concurrent", "mizar"), ("aegis", "mizar"), ("falcon", "aby3")];

fn compares(op: &Op) -> bool {
    match op {
        Op::Additive(op) | Op::Offloaded(op) => compares(op),
        Op::NonNegative(_) | Op::CompareMany { .. } | Op::Relu(_) | Op::Maximum(_) => true,
        _ => false,
    }
}

/// The protocol whose code a protocol runs a case with, if it is not its own.
fn other(protocol: &str, case: &Case) -> Option<&'static str> {
    let (_, other) = OTHERS.iter().find(|(name, _)| *name == protocol)?;
    (!case.plan.steps.iter().any(|s| compares(&s.op))).then_some(other)
}

/// Whether a protocol has code of its own for a case, and runs it; says so if it does not.
fn runs(protocol: &str, case: &Case) -> bool {
    if other(protocol, case).is_some() {
        return false;
    }
    let lacks = lacks(protocol, &case.plan);
    if let Some(why) = &lacks {
        eprintln!("{protocol} ring {} {}: skipped: {why}", case.plan.ring, case.name);
    }
    lacks.is_none()
}

#[test]
fn only_bicoptor_lacks_anything_and_says_what_to_do() {
    for ring in [8, 32, 40, 48, 64] {
        for case in cases(ring, 9) {
            for protocol in on_shares(ring) {
                let Some(why) = lacks(protocol, &case.plan) else { continue };
                // The maximum of all pairs is a step of the dealer's protocols; others compile
                // pools to tournaments. Sums that wait for their truncation, conjunctions of more
                // than two bits, and values by their bits, are the replicated protocols'; so are
                // steps of the other family; products of more than two values are meteor's.
                // Selections that truncate or add up are the dealer's, too, as are products that
                // truncate, sums that are shared by a step of its own, and matrices of bits.
                assert!(
                    case.name.starts_with("maximum")
                        || case.name.starts_with("and/")
                        || case.name.starts_with("spread/")
                        || case.name.starts_with("sum/")
                        || case.name.starts_with("reshared/")
                        || case.name.starts_with("words/")
                        || case.name.starts_with("dealt/")
                        || [
                            "select-truncated",
                            "select-sum",
                            "product-truncated",
                            "low-bit",
                            "bit-matrices",
                            "bit-polynomials",
                            "bit-to-ring/counted",
                        ]
                        .iter()
                        .any(|s| case.name.starts_with(s))
                            && why.contains("compile it for this protocol")
                        || ["lookup/", "winner/"].iter().any(|s| case.name.starts_with(s))
                            && why.contains("--activations")
                        || case.name.starts_with("many/")
                            && why.contains("use meteor")
                            && protocol != "meteor"
                        || protocol == "bicoptor"
                            && ["choose --bits", "one threshold", "makes no noise"]
                                .iter()
                                .any(|s| why.contains(s)),
                    "{protocol} {}: {why}",
                    case.name
                );
                assert!(!case.name.ends_with("few"), "{}", case.name);
            }
        }
        for few in cases(ring, 9).iter().filter(|c| c.name.ends_with("few") || c.name.starts_with("mul")) {
            assert!(on_shares(ring).all(|protocol| lacks(protocol, &few.plan).is_none()), "{}", few.name);
        }
    }
}

/// What is passed over here because it is another protocol's: a step of its own would cost
/// something else.
#[test]
fn what_is_another_protocols_costs_what_it_costs_there() {
    for ring in [8, 64] {
        let mut same = 0;
        for case in cases(ring, 9) {
            for (protocol, _) in OTHERS {
                let Some(other) = other(protocol, &case) else { continue };
                let [lacking, lacks] = [protocol, other].map(|name| lacks(name, &case.plan).is_some());
                assert_eq!(lacking, lacks, "{protocol} {}", case.name);
                if !lacks {
                    let [costs, there] = [protocol, other].map(|name| formulas(name, &case.plan));
                    assert_eq!(costs, there, "{protocol} {}", case.name);
                    same += 1;
                }
            }
        }
        assert!(same > 60, "{same} cases");
    }
}

/// Runs a check for each of these, side by side.
fn each<T: Copy + Send>(all: impl IntoIterator<Item = T>, check: impl Fn(T) + Sync) {
    std::thread::scope(|scope| {
        for one in all {
            let check = &check;
            scope.spawn(move || check(one));
        }
    });
}

#[test]
fn values_equal_the_oracle() {
    each([8, 32, 40, 48, 64], |ring| {
        let n = if ring == 8 { 1 << 13 } else { 517 };
        for case in cases(ring, n) {
            let expected = execute("clear", &case, None).outputs.remove(0).remove(0);
            for protocol in on_shares(ring).filter(|p| runs(p, &case)) {
                let got = execute(protocol, &case, None).outputs.remove(0).remove(0);
                assert_eq!(got.len(), expected.len());
                for (i, (&got, &expected)) in got.iter().zip(&expected).enumerate() {
                    let difference = got.wrapping_sub(expected) & mask(ring);
                    assert!(
                        difference <= u64::from(case.truncates),
                        "{protocol} ring {ring} {}: element {i} is {got:#x}, the oracle says {expected:#x}; inputs {:x?}",
                        case.name,
                        case.inputs.values().map(|v| v.get(i)).collect::<Vec<_>>()
                    );
                }
            }
        }
    });
}

#[test]
fn multiplication_is_exhaustive_at_eight_bits() {
    let mut plan = Plan::new(8);
    let x = plan.input("x", "owner", [1 << 16].into(), 2);
    let y = plan.input("y", "owner", [1 << 16].into(), 2);
    let z = plan.step("op", Op::Mul, &[x, y]).unwrap();
    plan.output("z", "owner", z);
    let inputs = HashMap::from([
        ("x".to_string(), (0..1 << 16).map(|i| i & 255).collect::<Vec<u64>>()),
        ("y".to_string(), (0..1 << 16).map(|i| i >> 8).collect()),
    ]);
    let case = Case { name: "mul".into(), plan, inputs, truncates: false };
    for protocol in secure(8) {
        let z = execute(protocol, &case, None).outputs.remove(0).remove(0);
        assert!((0..1u64 << 16).all(|i| z[i as usize] == ((i & 255) * (i >> 8)) & 255), "{protocol}");
    }
}

#[test]
fn products_of_many_are_exhaustive_in_two_factors_at_eight_bits() {
    // All pairs, with sixteen values of the third factor and a fourth one that depends on both.
    let n = 1u64 << 20;
    let word = |i: u64, t: usize| [i & 255, i >> 8 & 255, (i >> 16) * 17, (i ^ i >> 8) & 255][t];
    for count in [3, 4] {
        let mut plan = Plan::new(8);
        let names = &["x", "y", "z", "w"][..count];
        let factors: Vec<_> =
            names.iter().map(|name| plan.input(name, "owner", [n as usize].into(), 2)).collect();
        let z = plan.step("op", Op::Mul, &factors).unwrap();
        plan.output("z", "owner", z);
        let words = |t| (0..n).map(|i| word(i, t)).collect();
        let inputs = names.iter().enumerate().map(|(t, name)| ((*name).to_string(), words(t))).collect();
        let case = Case { name: "many".into(), plan, inputs, truncates: false };
        let z = execute("meteor", &case, None).outputs.remove(0).remove(0);
        let product = |i| (0..count).map(|t| word(i, t)).product::<u64>() & 255;
        assert!((0..n).all(|i| z[i as usize] == product(i)), "{count} factors");
    }
}

#[test]
fn the_meter_equals_the_formulas() {
    each([8, 32, 40, 48, 64], |ring| {
        // Sizes around the packing boundaries.
        for n in [1, 63, 130] {
            for case in cases(ring, n) {
                for protocol in on_shares(ring).filter(|p| runs(p, &case)) {
                    let run = execute(protocol, &case, None);
                    let costing = costing(protocol, &case.plan);
                    let reports = &run.reports[0];
                    for (phase, from) in
                        [Phase::Offline, Phase::Online].into_iter().flat_map(|p| (0..3).map(move |f| (p, f)))
                    {
                        for step in &costing.steps {
                            let (step, cost) = (&step.name, &step.cost);
                            let measured =
                                reports[from].sent.iter().find(|r| r.phase == phase && r.step == *step);
                            for to in 0..3 {
                                assert_eq!(
                                    measured.map_or(0, |r| r.sent[to]),
                                    cost.bytes(phase, from, to),
                                    "{protocol} ring {ring} n {n} {}/{step}: {phase:?} bytes {from} → {to}",
                                    case.name
                                );
                            }
                        }
                    }
                    let rounds = |phase| reports.iter().map(|r| r.phases[&phase].rounds).max().unwrap();
                    for phase in [Phase::Offline, Phase::Online] {
                        let path = costing.critical_path(phase, &megrez_net::NetProfile::loopback());
                        assert_eq!(rounds(phase), path.rounds, "{protocol} {}: {phase:?} rounds", case.name);
                    }
                }
            }
        }
    });
}

#[test]
fn what_waits_for_one_step_runs_beside_a_longer_one() {
    let cases = cases(64, 3);
    let case = cases.iter().find(|case| case.name == "lookup/beside").unwrap();
    // Two rounds of the comparison, one of the selection.
    assert_eq!(costing("mizar", &case.plan).rounds(Phase::Online), 3);
}

/// The symbols of a message and how many different ones there are.
fn symbols(message: &Sent, n: usize, unit: Unit) -> (Vec<u64>, usize) {
    let mut bytes = message.bytes.clone();
    bytes.resize(bytes.len().div_ceil(8) * 8, 0);
    let words: Vec<u64> = bytes.chunks_exact(8).map(|c| u64::from_le_bytes(c.try_into().unwrap())).collect();
    match unit {
        // Seeds and other wide elements, byte by byte.
        Unit::Bits(width) if width > 32 => (message.bytes.iter().map(|&b| b.into()).collect(), 256),
        Unit::Bits(width) => {
            let symbols = (0..n).map(|i| megrez_ring::bits::get_low(&words, i, width)).collect();
            (symbols, 1 << width)
        }
        Unit::Residue(p) => {
            let width = (p - 1).ilog2() + 1;
            ((0..n).map(|i| megrez_ring::bits::get_low(&words, i, width)).collect(), p as usize)
        }
        Unit::Field(prime) => {
            (prime.unpack(&words, n).into_iter().map(u64::from).collect(), prime.p() as usize)
        }
    }
}

fn chi_square(symbols: &[u64], kinds: usize) -> f64 {
    let mut counts = vec![0f64; kinds];
    symbols.iter().for_each(|&s| counts[s as usize] += 1.0);
    let expected = symbols.len() as f64 / kinds as f64;
    counts.iter().map(|c| (c - expected).powi(2) / expected).sum()
}

/// The messages of a run with the formula of each, in the order of sending; fails if they do not
/// pair up.
fn transcript(protocol: &str, case: &Case) -> Vec<(Sent, usize, Unit)> {
    let tap = Tap::default();
    execute(protocol, case, Some(tap.clone()));
    let mut sent: Vec<Sent> = std::mem::take(&mut *tap.lock().unwrap());
    let mut paired = Vec::new();
    for (step, cost) in formulas(protocol, &case.plan) {
        for transfer in cost.transfers {
            let fits = |m: &Sent| {
                m.phase == transfer.phase
                    && (m.from, m.to) == (transfer.from, transfer.to)
                    && m.name.starts_with(&format!("{step}/"))
            };
            // What is sent beside each other has no order.
            let whole = |m: &Sent| m.bytes.len() as u64 == transfer.unit.bytes(transfer.n);
            let at = sent.iter().position(|m| fits(m) && whole(m)).or_else(|| sent.iter().position(fits));
            let message = sent.remove(at.unwrap_or_else(|| panic!("{step}: no message for {transfer:?}")));
            assert_eq!(
                message.bytes.len() as u64,
                transfer.unit.bytes(transfer.n),
                "{}: {transfer:?}",
                message.name
            );
            paired.push((message, transfer.n, transfer.unit));
        }
    }
    let extra: Vec<_> =
        sent.iter().filter(|m| matches!(m.phase, Phase::Offline | Phase::Online)).map(|m| &m.name).collect();
    assert!(extra.is_empty(), "messages without a formula: {extra:?}");
    paired
}

#[test]
fn every_message_is_uniform_whatever_the_secret() {
    let n = 1 << 13;
    each([0u64, 1, 0x15, 0x7f, 0x80, 0xff], |secret| {
        for mut case in cases(8, n) {
            // Secrets outside a primitive's range are not promised anything.
            if case.truncates && secret.wrapping_add(16) & 0xff >= 32 {
                continue;
            }
            case.inputs.values_mut().for_each(|words| words.fill(secret));
            for protocol in secure(case.plan.ring).filter(|p| runs(p, &case)) {
                for (message, n, unit) in transcript(protocol, &case) {
                    let (symbols, kinds) = symbols(&message, n, unit);
                    if symbols.len() < 20 * kinds {
                        continue; // too few for the test: the matrix shapes
                    }
                    let freedom = kinds as f64 - 1.0;
                    let statistic = crate::common::stats::sigmas(chi_square(&symbols, kinds), freedom);
                    assert!(
                        statistic < 6.5,
                        "{protocol} {} secret {secret:#x}: {} ({} → {}) is not uniform: {statistic:.1} σ",
                        case.name,
                        message.name,
                        message.from,
                        message.to
                    );
                }
            }
        }
    });
}

#[test]
fn types_are_as_the_plan_says() {
    for case in cases(8, 9) {
        let run = execute("clear", &case, None);
        let output: &Value = case.plan.value(case.plan.outputs[0].value);
        assert_eq!(run.outputs[0][0].len(), output.shape.elements(), "{}", case.name);
    }
}

#[test]
fn no_flipped_bit_of_what_parties_keep_becomes_a_number() {
    for ring in [32, 48, 64] {
        for case in cases(ring, 9) {
            for protocol in on_shares(ring).filter(|p| runs(p, &case)) {
                let examine = Examine { protocol, plan: &case.plan, most: 64, device: AnyDevice::default() };
                let faults = examine
                    .run(&*suite(protocol, ring).expect("registered"))
                    .unwrap_or_else(|e| panic!("{protocol} {}: {e}", case.name));
                for (what, tried) in
                    [("material", faults.material), ("inputs", faults.inputs), ("outputs", faults.outputs)]
                {
                    assert!(tried.flips >= 3 * 64, "{protocol} {}: {what}: {tried:?}", case.name);
                    assert_eq!(tried.missed, 0, "{protocol} {}: {what}", case.name);
                }
            }
        }
    }
}
