//! What the blocks and the floating-point operations cost, without running them:
//! `cargo run -p megrez-twoparty --example costs -- [k]`, and with `dealer` in place of k with a
//! dealer.

use megrez_float::blocks::{Blocks, Extend, Factor, Lookup, Msb, Multiply, Select, Table, Truncate};
use megrez_float::programs::{fused_dots, fused_sum, sum};
use megrez_float::{AnyBlocks, Failure, Float, Plain, mul, on};
use megrez_twoparty::costing::{Costing, Lanes, Size};
use megrez_twoparty::dealt::costing as dealt;
use megrez_twoparty::ops::{OPS, run};
use std::convert::Infallible;

const LANES: usize = 1 << 14;

/// What it costs: bytes of all parties, online bytes of both, rounds.
trait Cost: Blocks<Int = Size, Bit = Lanes, Error = Infallible> + 'static {
    fn cost(&self) -> [u64; 3];
}

impl Cost for Costing {
    fn cost(&self) -> [u64; 3] {
        let bytes = self.cost.bytes.iter().sum();
        [bytes, bytes, self.cost.rounds.into()]
    }
}

impl Cost for dealt::Costing {
    fn cost(&self) -> [u64; 3] {
        [self.cost.bytes(), 2 * self.cost.opened, self.cost.rounds.into()]
    }
}

fn print(name: &str, costing: &impl Cost) {
    let [all, online, rounds] = costing.cost();
    let lane = |bytes: u64| bytes as f64 * 8.0 / LANES as f64;
    println!("{name:34} {:>10.1} {:>10.1} {:>10.1} {rounds:>7}", lane(all), lane(online), lane(all) / 8.0);
}

fn main() {
    let k = std::env::args().nth(1);
    println!(
        "{:34} {:>10} {:>10} {:>10} {:>7}",
        "per lane, all parties", "bits", "online", "bytes", "rounds"
    );
    match k.as_deref() {
        Some("dealer") => all(dealt::Costing::default),
        k => {
            let k = k.and_then(|k| k.parse().ok()).unwrap_or(4);
            all(|| Costing::new(k));
        }
    }
}

fn all<P: Cost>(new: impl Fn() -> P) {
    blocks(&new);
    for op in OPS {
        let mut costing = new();
        let [x, y] = [(); 2].map(|()| Float::public(&costing, &Plain::from_f32(&[1.0; LANES])).secret());
        let Ok(_) = on(&mut costing, |b| run(op, b, &x, &y));
        print(op, &costing);
    }
    // With an operand that everybody knows.
    for (op, number) in [
        ("mul", 2.0),
        ("mul", 3.0),
        ("mul", 0.1),
        ("div", 8.0),
        ("div", 3.0),
        ("add", 1.5),
        ("lt", 0.0),
        ("le", 0.0),
        ("eq", 0.0),
        ("lt", 1.5),
    ] {
        let mut costing = new();
        let x = Float::public(&costing, &Plain::from_f32(&[1.0; LANES])).secret();
        let Ok(_) = on(&mut costing, |b| {
            let y = Float::public(b, &Plain::from_f32(&[number; LANES]));
            run(op, b, &x, &y)
        });
        print(&format!("{op}, {number} known"), &costing);
    }
    sums(&new);
}

/// Sums and dot products, each addition rounded or once: bytes a term.
fn sums<P: Cost>(new: &impl Fn() -> P) {
    const RESULTS: usize = 4;
    println!("{:34} {:>10} {:>10} {:>10} {:>7}", "per term", "bits", "online", "bytes", "rounds");
    let row = |name: &str, n: usize, f: &dyn Fn(&mut AnyBlocks, &Float, &Float) -> Result<(), Failure>| {
        let mut costing = new();
        let ones = Plain::from_f32(&vec![1.0; n * RESULTS]);
        let [x, y] = [(); 2].map(|()| Float::public(&costing, &ones).secret());
        let Ok(()) = on(&mut costing, |b| f(b, &x, &y));
        let [all, online, rounds] = costing.cost();
        let term = |bytes: u64| bytes as f64 * 8.0 / (n * RESULTS) as f64;
        println!(
            "{name:34} {:>10.1} {:>10.1} {:>10.1} {rounds:>7}",
            term(all),
            term(online),
            term(all) / 8.0
        );
    };
    for n in [64, 874, 4096] {
        row(&format!("sum of {n}, rounded each time"), n, &|b, x, _| sum(b, x, RESULTS).map(drop));
        row(&format!("sum of {n}, rounded once"), n, &|b, x, _| fused_sum(b, x, RESULTS).map(drop));
    }
    for n in [16, 100, 200, 300, 874] {
        row(&format!("dot product of {n}, each time"), n, &|b, x, y| {
            let products = mul(b, x, y)?;
            sum(b, &products, RESULTS).map(drop)
        });
        row(&format!("dot product of {n}, once"), n, &|b, x, y| {
            let place = |term: usize, result: usize| term * RESULTS + result;
            fused_dots(b, (x, &place), (y, &place), n, RESULTS).map(drop)
        });
    }
}

type Done = Result<(), Infallible>;

fn blocks<P: Cost>(new: impl Fn() -> P) {
    let int = |width: u32| Size { width, lanes: LANES };
    let bit = Lanes(LANES);
    let row = |name: &str, f: &dyn Fn(&mut P) -> Done| {
        let mut costing = new();
        let Ok(()) = f(&mut costing);
        print(name, &costing);
    };
    row("and", &|b| b.and(&[(&bit, &bit)]).map(drop));
    row("widen to 32 bits", &|b| b.widen(&[(&bit, 32)]).map(drop));
    row("select 32 bits", &|b| {
        b.select(&[Select { bit: &bit, ints: vec![&int(32)], bits: vec![] }]).map(drop)
    });
    row("negative, 33 bits", &|b| b.negative(&[&int(33)]).map(drop));
    row("negative and zero, 33 bits", &|b| b.negative_zero(&[&int(33)]).map(drop));
    row("zero, 32 bits", &|b| b.is_zero(&[&int(32)]).map(drop));
    for index in [4, 6, 8] {
        let table = Table::new(index, &[32], 0, |i| vec![i]);
        row(&format!("table of {} rows of 32 bits", 1 << index), &|b| {
            b.lookup(&[Lookup { index: &int(index), table: &table }]).map(drop)
        });
    }
    let extend = |msb: fn(&Lanes) -> Msb<'_, P>| {
        move |b: &mut P| -> Done {
            b.extend(&[Extend { x: &int(24), width: 48, signed: false, msb: msb(&bit) }]).map(drop)
        }
    };
    row("extend 24 to 48 bits", &extend(|_| Msb::Unknown));
    row("extend 24 to 48 bits, top known", &extend(|_| Msb::One));
    row("extend 24 to 48 bits, top shared", &extend(|bit| Msb::Shared(bit)));
    row("truncate 48 by 24 bits", &|b| b.truncate(&[Truncate { x: &int(48), cuts: &[24] }]).map(drop));
    row("sticky 48 by 21 bits", &|b| b.sticky(&[(&int(48), 21)]).map(drop));
    row("round 27 by 3 bits", &|b| b.round(&[(&int(27), 3)]).map(drop));
    let multiply = |msb: fn() -> Msb<'static, P>| {
        move |b: &mut P| -> Done {
            let (x, y) = (int(24), int(24));
            let factor = |x| Factor { x, signed: false, msb: msb() };
            b.multiply(&[Multiply { x: factor(&x), y: factor(&y), width: 48 }]).map(drop)
        }
    };
    row("multiply 24 by 24 to 48 bits", &multiply(|| Msb::Unknown));
    row("multiply, tops known", &multiply(|| Msb::One));
    row("square 24 to 48 bits", &|b| {
        let x = int(24);
        b.multiply(&[Multiply { x: Factor::unsigned(&x), y: Factor::unsigned(&x), width: 48 }]).map(drop)
    });
    row("leading bit of 28", &|b| b.leading(&[(&int(28), 10)]).map(drop));
}
