//! Programs on floats that both suppliers run as the clear does, bit for bit, at their costings:
//! with operands that everybody knows.

use crate::costing::Costing;
use crate::dealt::{self, Dealt};
use crate::ops::{self, Opened, Output};
use crate::ot::Ots;
use crate::testing::parties;
use crate::{Sirnn, Supplier};
use megrez_float::programs::{fused_dots, fused_sum};
use megrez_float::{AnyBlocks, Blocks, Failure, Float, Format, Plain, in_the_clear, on};
use megrez_kernels::Cpu;
use megrez_session::{Error, Party, Phase};
use std::convert::Infallible;

/// Something to do on two numbers a lane: x is party 0's and y party 1's.
pub(crate) trait Case: Sync {
    fn run(&self, b: &mut AnyBlocks, x: &Float, y: &Float) -> Result<Output, Failure>;
}

/// Bytes that the parties sent to each other offline and online, and rounds online.
type Cost = ([Vec<u64>; 2], u32);

fn priced<B: Blocks<Error = Infallible> + 'static>(case: &impl Case, mut b: B, x: &Plain, y: &Plain) -> B {
    let [x, y] = [x, y].map(|numbers| Float::public(&b, numbers).secret());
    let Ok(_) = on(&mut b, |b| case.run(b, &x, &y));
    b
}

fn at_party<S: Supplier>(
    case: &impl Case,
    mut b: S,
    x: &Plain,
    y: &Plain,
) -> Result<(Option<Opened>, Cost), Error> {
    let (me, n) = (b.party().me(), x.man.len());
    b.enter(Phase::Input, 0);
    let x = b.share(0, "x", Format::FLOAT32, n, (me == 0).then_some(x))?;
    let y = b.share(1, "y", Format::FLOAT32, n, (me == 1).then_some(y))?;
    b.enter(Phase::Online, 0);
    let out = b.step("case", |b| case.run(b, &x, &y))?;
    let count = b.party().parties();
    let sent = [Phase::Offline, Phase::Online].map(|phase| b.party().meter().total(phase, count));
    let cost = (sent, b.party().rounds());
    Ok((Opened::of(&mut b, &out)?, cost))
}

/// Runs a case in the clear, by transfers and with a dealer, and on the costings of both.
pub(crate) fn conforms(name: &str, case: &impl Case, x: &Plain, y: &Plain) {
    let want = Opened::plain(&in_the_clear(|b| case.run(b, &x.secret(), &y.secret())));
    let two = |party: &mut Party<Cpu>| {
        party.enter(Phase::Setup, 1);
        let ots = Ots::set_up(party, 4)?;
        at_party(case, Sirnn::new(party.clone(), ots), x, y)
    };
    let three = |party: &mut Party<Cpu>| at_party(case, Dealt::new(party.clone())?, x, y);
    let transfers = priced(case, Costing::new(4), x, y).cost;
    let dealer = priced(case, dealt::costing::Costing::default(), x, y).cost;

    let opened = |results: Vec<Result<(Option<Opened>, Cost), Error>>| -> Vec<Cost> {
        let all: Vec<_> = results.into_iter().map(Result::unwrap).collect();
        for (opened, _) in &all[..2] {
            let opened = opened.as_ref().expect("both compute");
            assert_eq!(opened.differences(&want), 0, "{name}");
        }
        all.into_iter().map(|(_, cost)| cost).collect()
    };
    let costs = opened(parties(2, two));
    assert_eq!([costs[0].0[1][1], costs[1].0[1][0]], transfers.bytes, "{name}, by transfers");
    assert!(costs[0].1.max(costs[1].1) <= transfers.rounds, "{name}, by transfers");

    let costs = opened(parties(3, three));
    for me in 0..2 {
        let mut sent = vec![0; 3];
        sent[1 - me] = dealer.opened;
        assert_eq!(costs[me].0, [vec![0; 3], sent], "{name}, with a dealer");
    }
    assert_eq!(costs[2].0, [vec![dealer.dealt, 0, 0], vec![0; 3]], "{name}, with a dealer");
    assert!(costs[0].1.max(costs[1].1) <= dealer.rounds, "{name}, with a dealer");
}

/// x op c, or c op x, for numbers c that everybody knows.
struct Public<'a> {
    op: &'a str,
    number: &'a Plain,
    first: bool,
}

impl Case for Public<'_> {
    fn run(&self, b: &mut AnyBlocks, x: &Float, _: &Float) -> Result<Output, Failure> {
        let c = Float::public(b, self.number);
        let (x, y) = if self.first { (&c, x) } else { (x, &c) };
        Ok(ops::run(self.op, b, x, y)?.expect("an operation"))
    }
}

const LANES: usize = 128;

/// Numbers to have on either side: the same in every lane, and one of each kind in turn.
fn numbers() -> Vec<(String, Plain)> {
    let (inf, nan) = (f32::INFINITY, f32::NAN);
    let all = [2.0, -0.25, 3.0, 0.1, 0.0, -0.0, inf, nan, 1.0, f32::MAX, f32::MIN_POSITIVE];
    let mixed: Vec<f32> = (0..LANES).map(|i| all[i % all.len()]).collect();
    let same = |&c: &f32| (c.to_string(), Plain::from_f32(&[c; LANES]));
    [2.0, 3.0, 0.0, inf].iter().map(same).chain([("mixed".into(), Plain::from_f32(&mixed))]).collect()
}

#[test]
fn operands_that_everybody_knows() {
    let x = ops::sample(0, LANES);
    for op in ["lt", "le", "eq", "max", "add", "mul", "div"] {
        for (name, number) in &numbers() {
            for first in [false, true] {
                let name = format!("{op} {name} {first}");
                conforms(&name, &Public { op, number, first }, &x, &x);
            }
        }
    }
}

/// They cost less than secret ones.
#[test]
fn known_operands_are_cheaper() {
    let x = ops::sample(0, 1 << 12);
    let cost = |op: &str, number: Option<f32>| {
        let number = number.map(|c| Plain::from_f32(&[c; 1 << 12]));
        struct Secret<'a>(&'a str);
        impl Case for Secret<'_> {
            fn run(&self, b: &mut AnyBlocks, x: &Float, y: &Float) -> Result<Output, Failure> {
                Ok(ops::run(self.0, b, x, y)?.expect("an operation"))
            }
        }
        let [transfers, dealer] = match &number {
            None => [
                priced(&Secret(op), Costing::new(4), &x, &x).cost.bytes.iter().sum(),
                priced(&Secret(op), dealt::costing::Costing::default(), &x, &x).cost.bytes(),
            ],
            Some(number) => {
                let case = Public { op, number, first: false };
                [
                    priced(&case, Costing::new(4), &x, &x).cost.bytes.iter().sum::<u64>(),
                    priced(&case, dealt::costing::Costing::default(), &x, &x).cost.bytes(),
                ]
            }
        };
        [transfers as f64, dealer as f64]
    };
    let mut wrong = vec![];
    for (op, number, part) in [
        ("lt", 0.0, 0.05),
        ("le", 0.0, 0.05),
        ("eq", 0.0, 0.0),
        ("lt", 1.5, 0.99),
        ("mul", -1.0, 0.0),
        ("mul", 2.0, 0.35),
        ("mul", 0.1, 0.9),
        ("div", 8.0, 0.2),
        ("div", 3.0, 0.75),
        ("add", 1.5, 0.99),
    ] {
        let (known, secret) = (cost(op, Some(number)), cost(op, None));
        for (known, secret) in known.iter().zip(secret) {
            println!("{op} {number}: {:.3} of the bytes", known / secret);
            if *known > part * secret {
                wrong.push((op, number, known / secret));
            }
        }
    }
    assert!(wrong.is_empty(), "dearer than they should be: {wrong:?}");
}

/// The sum of x in blocks of so many lanes.
struct FusedSum(usize);
impl Case for FusedSum {
    fn run(&self, b: &mut AnyBlocks, x: &Float, _: &Float) -> Result<Output, Failure> {
        fused_sum(b, x, self.0).map(Output::Float)
    }
}

/// As many dot products of blocks of x and y.
struct FusedDots(usize);
impl Case for FusedDots {
    fn run(&self, b: &mut AnyBlocks, x: &Float, y: &Float) -> Result<Output, Failure> {
        let place = |term: usize, lane: usize| term * self.0 + lane;
        let n = x.lanes(b) / self.0;
        fused_dots(b, (x, &place), (y, &place), n, self.0).map(Output::Float)
    }
}

#[test]
fn fused_sums_and_dot_products() {
    // Test data of all kinds, and numbers alone.
    let alike = |seed: u64| {
        let x = ops::sample(seed, 16 * LANES);
        let bits: Vec<u64> = x.to_bits().into_iter().map(|b| b & 0x83ff_ffff | 0x3c00_0000).collect();
        Plain::from_bits(Format::FLOAT32, &bits)
    };
    for (x, y) in [(ops::sample(0, LANES), ops::sample(1, LANES)), (alike(2), alike(3))] {
        let n = x.man.len();
        for lanes in [1, 2, n / 17, n / 2, n] {
            let [x, y] =
                [&x, &y].map(|v| Plain::from_bits(Format::FLOAT32, &v.to_bits()[..n / lanes * lanes]));
            conforms(&format!("sum {lanes}"), &FusedSum(lanes), &x, &y);
            conforms(&format!("dot {lanes}"), &FusedDots(lanes), &x, &y);
        }
    }
}

/// However many terms there are: what docs/float.md says of long sums.
#[test]
fn rounds_of_long_sums() {
    for n in [65, 1000, 4096] {
        let x = ops::sample(0, n);
        let transfers = priced(&FusedSum(1), Costing::new(4), &x, &x).cost.rounds;
        let dealer = priced(&FusedSum(1), dealt::costing::Costing::default(), &x, &x).cost.rounds;
        assert!(transfers <= 97 && dealer <= 48, "{n} terms: {transfers} and {dealer} rounds");
    }
}
