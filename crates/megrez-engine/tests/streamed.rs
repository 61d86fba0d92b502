//! Material of the next run, made while this one goes on: the same numbers, bytes and streams, only
//! earlier.

use crate::common::session::{Ends, Port, each, session_in};
use megrez_device::AnyDevice;
use megrez_engine::client::{PartyPort, collect, provide};
use megrez_engine::{Options, PartyReport, Stored, Turn, run_again, serve};
use megrez_net::{ClockKind, NetProfile};
use megrez_plan::{Input, KEPT, Op, Plan, SignBit};
use megrez_protocols::{AnyMasks, AnySuite};
use megrez_protocols::{aby3::Aby3, alkaid::Alkaid, meteor::Meteor, mizar::Mizar};
use megrez_session::{Error, Party, Phase, Reading};
use std::time::Duration;

const RUNS: u32 = 4;
const PATIENCE: Duration = Duration::from_secs(60);

/// w becomes x where w·x - 7 is not negative, else 0, plus w; w·x is revealed.
fn step(of: &str) -> Plan {
    let mut plan = Plan::new(32);
    let x = plan.input("x", "owner", [5].into(), 0);
    let w = plan.input("w", of, [5].into(), 0);
    let product = plan.step("product", Op::Mul, &[w, x]).unwrap();
    let less = Op::Combine { coefficients: vec![1], constant: -7 };
    let less = plan.step("less", less, &[product]).unwrap();
    let bit = plan.step("sign", Op::NonNegative(SignBit::FULL), &[less]).unwrap();
    let kept = plan.step("select", Op::SELECT, &[bit, x]).unwrap();
    let sum = Op::Combine { coefficients: vec![1, 1], constant: 0 };
    let sum = plan.step("sum", sum, &[kept, w]).unwrap();
    plan.output("y", "owner", product);
    if of == KEPT {
        plan.output("w", KEPT, sum);
    }
    plan
}

/// How w comes to the parties.
fn start() -> Plan {
    let mut plan = Plan::new(32);
    let w = plan.input("first", "owner", [5].into(), 0);
    plan.output("w", KEPT, w);
    plan
}

fn words(run: u32, input: &Input) -> Vec<u32> {
    match input.name.as_str() {
        "x" => (0..5).map(|i| (i + 3 * run).wrapping_sub(4)).collect(),
        _ => (0..5).map(|i: u32| i.wrapping_sub(1)).collect(),
    }
}

/// What the runs reveal, with weights that last or are learnt.
fn expected(learns: bool) -> Vec<Vec<u32>> {
    let input =
        |name: &str| Input { name: name.into(), owner: String::new(), value: megrez_plan::ValueId(0) };
    let mut w = words(0, &input("w"));
    let one = |run: u32| {
        let x = words(run, &input("x"));
        let product: Vec<u32> = w.iter().zip(&x).map(|(w, x)| w.wrapping_mul(*x)).collect();
        for (i, p) in product.iter().enumerate().filter(|_| learns) {
            let goes = p.wrapping_sub(7) as i32 >= 0;
            w[i] = w[i].wrapping_add(if goes { x[i] } else { 0 });
        }
        product
    };
    (0..RUNS).map(one).collect()
}

fn wide(words: Vec<u32>) -> Vec<u64> {
    words.into_iter().map(u64::from).collect()
}

/// Runs of one plan whose weights last, or runs of a plan that keeps what it makes of them, one
/// [`Turn`] after the other as jobs do: what is revealed, and the reports of all parties.
fn outcome(
    suite: &dyn AnySuite<AnyDevice>,
    [learns, streamed, deals]: [bool; 3],
) -> (Vec<Vec<u32>>, [Vec<PartyReport>; 3]) {
    let (first, lasting) = (start(), ["w".to_owned()]);
    let plan = step(if learns { KEPT } else { "owner" });
    let options = Options { runs: RUNS, lasting: &lasting, streamed };
    let part = |party: &mut Party<AnyDevice>, ends: &mut Ends| {
        let mut stored = Stored::new();
        if !learns {
            return serve(suite, &plan, party, &mut stored, None, ends, options);
        }
        serve(suite, &first, party, &mut stored, None, ends, Options::default())?;
        let (mut made, mut reports) = (None, vec![]);
        let none = |_: &Input| None;
        for run in 1..=RUNS {
            let next = (streamed && run < RUNS).then_some((
                &plan,
                run + 1,
                &none as &dyn Fn(&Input) -> Option<AnyMasks>,
            ));
            let (report, next) =
                run_again(suite, Turn { plan: &plan, run, made }, party, &mut stored, ends, next)?;
            reports.push(report);
            assert_eq!(next.is_some(), deals && streamed && run < RUNS, "run {run}");
            made = next;
        }
        Ok::<_, Error>(reports)
    };
    let (reports, revealed) =
        session_in((&NetProfile::lan(), ClockKind::Real), PATIENCE, each(part), |ports: &mut [Port; 3]| {
            let mut refs: Vec<&mut dyn PartyPort> =
                ports.iter_mut().map(|p| p as &mut dyn PartyPort).collect();
            if learns {
                provide(suite, &first, &|_| true, &|input| Ok(wide(words(0, input))), &mut refs).unwrap();
            }
            let one = |run: u32| {
                let shares = |input: &Input| match learns {
                    true => input.owner != KEPT,
                    false => options.shares(run, input),
                };
                provide(suite, &plan, &shares, &|input| Ok(wide(words(run, input))), &mut refs).unwrap();
                let product = collect(suite, &plan, "owner", &mut refs).unwrap().remove(0);
                product.into_iter().map(|word| word as u32).collect()
            };
            (0..RUNS).map(one).collect()
        });
    (revealed, reports.map(Result::unwrap))
}

fn holds(name: &str, suite: &dyn AnySuite<AnyDevice>, deals: bool) {
    for learns in [false, true] {
        let (revealed, then) = outcome(suite, [learns, false, deals]);
        assert_eq!(revealed, expected(learns), "{}: one after the other", name);
        let (revealed, now) = outcome(suite, [learns, true, deals]);
        assert_eq!(revealed, expected(learns), "{}: streamed", name);
        for (then, now) in then.iter().zip(&now) {
            for (run, (then, now)) in then.iter().zip(now).enumerate() {
                // Of barriers before phases nothing but their number is counted.
                let of = |r: &PartyReport| -> Vec<Reading> {
                    r.sent.iter().filter(|r| r.phase != Phase::Setup).cloned().collect()
                };
                assert_eq!(of(then), of(now), "{}, run {run}", name);
                let rounds =
                    |r: &PartyReport| r.phases.iter().map(|(p, r)| (*p, r.rounds)).collect::<Vec<_>>();
                assert_eq!(rounds(then), rounds(now));
            }
        }
    }
}

#[test]
fn runs_are_the_same_whenever_their_material_is_made() {
    holds("mizar", &Mizar::<u32, AnyDevice>::default(), true);
    holds("alkaid", &Alkaid::<u32, AnyDevice>::default(), true);
    holds("meteor", &Meteor::<u32, AnyDevice>::default(), true);
    // Nothing is sent before the data is there.
    holds("aby3", &Aby3::<u32, AnyDevice>::default(), false);
}
