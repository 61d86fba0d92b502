//! The programs of `crate::tests` with a dealer: against the clear, with the meter held to the
//! costing at each party in each direction and phase; and the operations of floating point.

use super::costing::{Costing, Lanes, Size};
use super::{Bits, DEALER, Dealt, Ints};
use crate::Supplier;
use crate::ops::{self, OPS, Opened};
use crate::testing::parties;
use crate::tests::{Input, Program};
use megrez_float::blocks::{Blocks, mask};
use megrez_float::{Clear, Float, Format, on};
use megrez_kernels::Cpu;
use megrez_ring::bits;
use megrez_session::{Party, Phase};

/// What party `me` holds of (x, r): m and its share of r, or r. Worker 0's share is `first`, or
/// another in each lane.
fn held(me: usize, width: u32, v: &[(u64, u64)], first: Option<u64>) -> [Vec<u64>; 3] {
    let shares = |party: usize| -> Vec<u64> {
        let share = |(i, (_, r)): (usize, &(u64, u64))| {
            let first = first.unwrap_or((i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 7);
            [first, r.wrapping_sub(first), *r][party] & mask(width)
        };
        v.iter().enumerate().map(share).collect()
    };
    let m = |&(x, r): &(u64, u64)| x.wrapping_add(r) & mask(width);
    let m = if me == DEALER { vec![] } else { v.iter().map(m).collect() };
    [m, shares(me), if me == DEALER { shares(0) } else { vec![] }]
}

pub(crate) fn ints(me: usize, x: &Input) -> Ints {
    ints_with(me, x, None)
}

fn ints_with(me: usize, (width, v): &Input, first: Option<u64>) -> Ints {
    let [m, r, first] = held(me, *width, v, first);
    Ints { width: *width, m, r, first }
}

/// What to take for worker 0's shares of each integer's mask: where widths are 3 and below all that
/// there are, of two integers in all pairs, of more of them the same for all; else once a mixture.
fn firsts(x: &[Input]) -> Vec<Vec<Option<u64>>> {
    if x.is_empty() || x.iter().any(|v| v.0 > 3) {
        return vec![vec![None; x.len()]];
    }
    let of =
        |k: u64| (0..x.len()).map(|i| Some(if x.len() == 2 { k >> (3 * i) & 7 } else { k & 7 })).collect();
    (0..if x.len() == 2 { 64 } else { 8 }).map(of).collect()
}

pub(crate) fn bits(me: usize, (_, v): &Input) -> Bits {
    let pack = |v: &Vec<u64>| bits::pack(v.len(), |i| v[i]);
    let [m, r, first] = held(me, 1, v, None);
    Bits { n: v.len(), m: pack(&m), r: pack(&r), first: pack(&first) }
}

/// What each party sent to each other online and offline, and rounds online.
type Measured = ([Vec<u64>; 2], u32);

fn cost(party: &Party<Cpu>) -> Measured {
    let sent = [Phase::Offline, Phase::Online].map(|phase| party.meter().total(phase, 3));
    (sent, party.rounds())
}

/// Runs a program in the clear, on shares and for its costing, and compares all three.
pub(crate) fn check(program: &impl Program, x: &[Input], c: &[Input]) {
    let values = |v: &Input| v.1.iter().map(|v| v.0).collect::<Vec<_>>();
    let clear: Vec<_> = x.iter().map(|v| Clear.public(v.0, &values(v))).collect();
    let clear_bits: Vec<_> =
        c.iter().map(|v| Clear.public_bits(&values(v).iter().map(|v| *v == 1).collect::<Vec<_>>())).collect();
    let Ok((want, want_bits)) = program.run(&mut Clear, &clear, &clear_bits);

    let mut costing = Costing::default();
    let sizes: Vec<_> = x.iter().map(|(width, v)| Size { width: *width, lanes: v.len() }).collect();
    let lanes: Vec<_> = c.iter().map(|(_, v)| Lanes(v.len())).collect();
    let Ok((priced, priced_bits)) = program.run(&mut costing, &sizes, &lanes);

    for firsts in firsts(x) {
        let results = parties(3, |party| {
            let me = party.me();
            let mut b = Dealt::new(party.clone())?;
            b.enter(Phase::Online, 0);
            let x: Vec<Ints> = x.iter().zip(&firsts).map(|(v, first)| ints_with(me, v, *first)).collect();
            let c: Vec<Bits> = c.iter().map(|v| bits(me, v)).collect();
            let out = program.run(&mut b, &x, &c)?;
            Ok((out, cost(b.party())))
        });
        let [(a, cost_a), (b, cost_b), (d, cost_d)] =
            <[_; 3]>::try_from(results.into_iter().map(Result::unwrap).collect::<Vec<_>>()).ok().unwrap();

        assert_eq!((a.0.len(), a.1.len()), (want.len(), want_bits.len()));
        for (i, want) in want.iter().enumerate() {
            let (a, b, d) = (&a.0[i], &b.0[i], &d.0[i]);
            let n = want.v.len();
            assert_eq!((a.width, priced[i].width, priced[i].lanes), (want.width, want.width, n));
            assert!(d.first == a.r, "result {i}: the dealer knows another share of worker 0");
            assert!(a.m == b.m && d.m.is_empty() && [a.m.len(), a.r.len(), b.r.len(), d.r.len()] == [n; 4]);
            for lane in 0..n {
                let r = a.r[lane].wrapping_add(b.r[lane]) & mask(want.width);
                assert_eq!(r, d.r[lane], "result {i} lane {lane}: the dealer knows another mask");
                let got = a.m[lane].wrapping_sub(r) & mask(want.width);
                assert_eq!(
                    got, want.v[lane],
                    "result {i} lane {lane}: got {got:#x}, want {:#x}",
                    want.v[lane]
                );
                assert_eq!((a.m[lane] | a.r[lane] | b.r[lane]) & !mask(want.width), 0);
            }
        }
        for (i, want) in want_bits.iter().enumerate() {
            let (a, b, d) = (&a.1[i], &b.1[i], &d.1[i]);
            let n = want.0.len();
            assert_eq!((a.n, b.n, d.n, priced_bits[i].0), (n, n, n, n));
            assert!(a.m == b.m && d.m.is_empty() && d.first == a.r);
            assert!(
                a.r.iter().zip(&b.r).map(|(a, b)| a ^ b).eq(d.r.iter().copied()),
                "another mask of bit {i}"
            );
            for lane in 0..n {
                assert_eq!(
                    bits::get(&a.m, lane) ^ bits::get(&d.r, lane),
                    want.0[lane],
                    "bit {i} lane {lane}"
                );
            }
            let past = |v: &[u64]| !n.is_multiple_of(64) && v[n / 64] >> (n % 64) != 0;
            assert!(![&a.m, &a.r, &b.r, &d.r].iter().any(|v| past(v)), "bits past the end of bit {i}");
        }
        let cost = costing.cost;
        assert_eq!(cost_a.0, [vec![0; 3], vec![0, cost.opened, 0]], "what worker 0 sends");
        assert_eq!(cost_b.0, [vec![0; 3], vec![cost.opened, 0, 0]], "what worker 1 sends");
        assert_eq!(cost_d.0, [vec![cost.dealt, 0, 0], vec![0; 3]], "what the dealer sends");
        assert_eq!((cost_a.1.max(cost_b.1), cost_d.1), (cost.rounds, 0), "rounds");
    }
}

/// Lanes of the operations' operands.
const LANES: usize = 256;

/// Every operation of floating point: bit for bit what it is in the clear, at its costing.
#[test]
fn operations() {
    let (x, y) = (ops::sample(0, LANES), ops::sample(1, LANES));
    for op in OPS {
        let mut costing = Costing::default();
        let sizes = [&x, &y].map(|numbers| Float::public(&costing, numbers).secret());
        let Ok(_) = on(&mut costing, |b| ops::run(op, b, &sizes[0], &sizes[1]));
        let results = parties(3, |party| {
            let me = party.me();
            let mut b = Dealt::new(party.clone())?;
            b.enter(Phase::Input, 0);
            let x = Supplier::share(&mut b, 0, "x", Format::FLOAT32, LANES, (me == 0).then_some(&x))?;
            let y = Supplier::share(&mut b, 1, "y", Format::FLOAT32, LANES, (me == 1).then_some(&y))?;
            b.enter(Phase::Online, 0);
            let out = Supplier::step(&mut b, "op", |b| ops::run(op, b, &x, &y))?.expect("an operation");
            let cost = cost(b.party());
            Ok((Opened::of(&mut b, &out)?, cost))
        });
        let results: Vec<_> = results.into_iter().map(Result::unwrap).collect();
        let want = ops::in_the_clear(op, &x, &y).unwrap();
        assert!(results[2].0.is_none(), "{op}: the dealer opens nothing");
        for (me, (opened, cost)) in results[..2].iter().enumerate() {
            assert_eq!(opened.as_ref().unwrap().differences(&want), 0, "{op}");
            let mut sent = vec![0; 3];
            sent[1 - me] = costing.cost.opened;
            assert_eq!(cost.0, [vec![0; 3], sent], "{op}");
            assert!(cost.1 <= costing.cost.rounds, "{op}");
        }
        assert_eq!(results[2].1, ([vec![costing.cost.dealt, 0, 0], vec![0; 3]], 0), "{op}");
    }
}
