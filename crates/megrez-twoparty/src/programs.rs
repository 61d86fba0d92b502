//! What is written against the blocks, on shares: bit for bit what it is in the clear, at its
//! costing.

use crate::costing::Costing;
use crate::ops::{self, OPS, Opened};
use crate::ot::Ots;
use crate::testing::two_parties;
use crate::{Sirnn, Supplier};
use megrez_float::programs::tape::{Entry, Machine, Name, Value};
use megrez_float::{AnyBlocks, Blocks, Failure, Float, Format, Plain, in_the_clear, mul, on};
use megrez_session::Phase;

/// Lanes of the operands.
const LANES: usize = 256;

/// Both parties run something on x, party 0's, and y, party 1's, and open what comes out. Returns
/// it, with the bytes that each party sent and the rounds, both before opening.
fn on_shares(
    group: u32,
    threads: usize,
    x: &Plain,
    y: &Plain,
    body: impl Fn(&mut AnyBlocks, [Float; 2]) -> Result<ops::Output, Failure> + Sync,
) -> (Opened, [u64; 2], u32) {
    let results = two_parties(|party| {
        let me = party.me();
        let mut b = Sirnn::new(party.clone(), Ots::set_up(party, group)?).with_threads(threads)?;
        let x = Supplier::share(&mut b, 0, "x", Format::FLOAT32, LANES, (me == 0).then_some(x))?;
        let y = Supplier::share(&mut b, 1, "y", Format::FLOAT32, LANES, (me == 1).then_some(y))?;
        b.party_mut().enter(Phase::Online, 0);
        let out = Supplier::step(&mut b, "op", |b| body(b, [x, y]))?;
        let cost = (b.party().meter().total(Phase::Online, 2)[1 - me], b.party().rounds());
        Ok((Opened::of(&mut b, &out)?.expect("both compute"), cost))
    });
    let [(first, sent_0), (second, sent_1)] =
        <[_; 2]>::try_from(results.into_iter().map(Result::unwrap).collect::<Vec<_>>()).ok().unwrap();
    assert_eq!(first, second, "both parties open the same");
    (first, [sent_0.0, sent_1.0], sent_0.1.max(sent_1.1))
}

#[test]
fn operations() {
    let (x, y) = (ops::sample(0, LANES), ops::sample(1, LANES));
    let silent = OPS.iter().step_by(5).map(|op| (op, 0));
    for (op, group) in OPS.iter().map(|op| (op, 4)).chain(silent) {
        let mut costing = Costing::new(group);
        let sizes = [&x, &y].map(|numbers| Float::public(&costing, numbers).secret());
        let Ok(_) = on(&mut costing, |b| ops::run(op, b, &sizes[0], &sizes[1]));
        let (opened, bytes, rounds) =
            on_shares(group, 1, &x, &y, |b, [x, y]| Ok(ops::run(op, b, &x, &y)?.expect("an operation")));
        assert_eq!(opened.differences(&ops::in_the_clear(op, &x, &y).unwrap()), 0, "{op}");
        assert_eq!(bytes, costing.cost.bytes, "{op}, group {group}");
        assert!(rounds <= costing.cost.rounds, "{op}, group {group}");
    }
}

fn apply(op: &str, of: &[Name]) -> Entry {
    Entry::Apply { op: op.into(), of: of.to_vec() }
}

/// Operations that go together cost rounds once.
#[test]
fn tapes() {
    let lanes = (0..LANES as u32).rev().collect();
    let tape = [
        (0, Entry::Input { owner: 0, lanes: LANES }),
        (1, Entry::Input { owner: 1, lanes: LANES }),
        (2, apply("mul", &[0, 1])),
        (3, Entry::Gather { of: 1, lanes }),
        (4, apply("mul", &[3, 1])),
        (5, apply("lt", &[2, 4])),
        (6, apply("le", &[0, 1])),
        (7, Entry::Not(6)),
        (8, Entry::And(5, 7)),
        (9, Entry::Choose { bit: 8, yes: 2, no: 0 }),
        (10, Entry::Concat(vec![9, 4])),
        (11, Entry::Sum { of: 10, lanes: 64 }),
    ];
    let (x, y) = (ops::sample(0, LANES), ops::sample(1, LANES));
    let mut clear = Machine::default();
    let mut number = |name, _| [&x, &y][name as usize].secret();
    in_the_clear(|b| clear.run(b, &tape, &mut number));
    let want: Vec<u64> = clear.bits(11).into_iter().map(u64::from).collect();

    let mut costing = Costing::new(4);
    let sizes = || Float::public(&Costing::new(4), &x).secret();
    let priced = |costing: &mut Costing, tape: &[(Name, Entry)]| {
        let Ok(()) = on(costing, |b| Machine::default().run(b, tape, &mut |_, _| sizes()));
    };
    priced(&mut costing, &tape);
    let mut apart = Costing::new(4);
    let Ok(_) = on(&mut apart, |b| ops::run("mul", b, &sizes(), &sizes()));
    let mut twice = Costing::new(4);
    priced(&mut twice, &tape[..5]);
    assert_eq!(twice.cost.rounds, apart.cost.rounds);

    let (opened, bytes, rounds) = on_shares(4, 1, &x, &y, |b, inputs| {
        let mut machine = Machine::default();
        machine.run(b, &tape, &mut |name, _| inputs[name as usize].clone())?;
        let Value::Float(sum) = machine.value(11) else { panic!("numbers") };
        Ok(ops::Output::Float(sum.clone()))
    });
    assert_eq!(opened.differences(&Opened::Float(Plain::from_bits(Format::FLOAT32, &want))), 0);
    assert_eq!(bytes, costing.cost.bytes);
    assert!(rounds <= costing.cost.rounds);
}

/// Products of five parts of x and y; parts have no further threads.
fn products(b: &mut AnyBlocks, x: &Float, y: &Float) -> Result<Float, Failure> {
    let threads = b.threads();
    let parts = b.parts(5, |b, i| {
        assert!(b.threads() == 1);
        let range = i * LANES / 5..(i + 1) * LANES / 5;
        mul(b, &x.slice(b, range.clone()), &y.slice(b, range))
    })?;
    assert_eq!(b.threads(), threads);
    let parts: Vec<_> = parts.iter().collect();
    Ok(Float::concat(b, &parts))
}

#[test]
fn threads_change_rounds_alone() {
    let (x, y) = (ops::sample(0, LANES), ops::sample(1, LANES));
    let want = in_the_clear(|b| products(b, &x.secret(), &y.secret()));
    let want = Opened::Float(want.plain());
    let mut sums = vec![];
    for threads in [1, 2, 3, 8] {
        let mut costing = Costing::new(4).with_threads(threads);
        let sizes = [&x, &y].map(|numbers| Float::public(&costing, numbers).secret());
        let Ok(_) = on(&mut costing, |b| products(b, &sizes[0], &sizes[1]));
        // Twice, so that threads go on where they were.
        let twice = |b: &mut AnyBlocks, [x, y]: [Float; 2]| {
            let first = products(b, &x, &y)?;
            Ok(ops::Output::Float(products(b, &first, &first).and_then(|_| products(b, &x, &y))?))
        };
        let (opened, bytes, rounds) = on_shares(4, threads, &x, &y, twice);
        assert_eq!(opened.differences(&want), 0);
        assert_eq!(bytes, costing.cost.bytes.map(|b| 3 * b), "{threads} threads");
        assert!(rounds <= 3 * costing.cost.rounds && rounds > 2 * costing.cost.rounds);
        sums.push((costing.cost.bytes, costing.cost.rounds));
    }
    let one = sums[0].1 / 5;
    assert_eq!(sums.iter().map(|s| s.1).collect::<Vec<_>>(), [5 * one, 3 * one, 2 * one, one]);
    assert!(sums.iter().all(|s| s.0 == sums[0].0), "bytes are those of the parts");
}
