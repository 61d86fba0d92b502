//! Every block, of both suppliers, against the clear, exhaustively where that is short, with the
//! meter held to the costing.

use crate::costing::{Costing, Lanes, Size};
use crate::ot::Ots;
use crate::testing::two_parties;
use crate::{Bits, Ints, Sirnn};
use megrez_float::Clear;
use megrez_float::blocks::{
    Blocks, Extend, Factor, Lookup, Msb, Multiply, Select, Table, Tally, Truncate, mask,
};
use megrez_prg::Key;
use megrez_session::Phase;

/// Something that runs on any supplier of blocks.
pub(crate) trait Program: Sync {
    fn run<B: Blocks>(
        &self,
        b: &mut B,
        x: &[B::Int],
        c: &[B::Bit],
    ) -> Result<(Vec<B::Int>, Vec<B::Bit>), B::Error>;
}

/// Integers of a width as (value, party 0's share).
pub(crate) type Input = (u32, Vec<(u64, u64)>);

/// All values under all sharings.
fn everything(width: u32) -> Input {
    (width, (0..1 << (2 * width)).map(|i: u64| (i & mask(width), i >> width)).collect())
}

/// Pairs of all values under all sharings.
fn all_pairs(first: u32, second: u32) -> Vec<Input> {
    let (n, m) = (1u64 << (2 * first), 1u64 << (2 * second));
    let x = (0..n * m).map(|i| (i & mask(first), i >> first & mask(first)));
    let y = (0..n * m).map(|i| i / n).map(|i| (i & mask(second), i >> second));
    vec![(first, x.collect()), (second, y.collect())]
}

/// Random values and shares, ends and powers of two among them.
fn random(seed: u8, width: u32, lanes: usize) -> Input {
    let words = Key::from_bytes([seed; 32]).stream().words(2 * lanes);
    let value = |(i, w): (usize, &[u64])| {
        let v = match i % 8 {
            0 => 0,
            1 => u64::MAX,
            2 => 1 << (w[0] % u64::from(width)),
            3 => (1 << (w[0] % u64::from(width))) - 1,
            4 => w[0] >> (w[1] % 64),
            _ => w[0],
        };
        (v & mask(width), if i % 16 == 5 { 0 } else { w[1] & mask(width) })
    };
    (width, words.chunks(2).enumerate().map(value).collect())
}

/// Bits of all shares: one lane for each of four cases, as often as needed.
fn random_bits(seed: u8, lanes: usize) -> Input {
    let words = Key::from_bytes([seed; 32]).stream().words(lanes);
    (1, words.iter().map(|w| (w & 1, w >> 1 & 1)).collect())
}

/// Runs a program in the clear, on shares and for its costing, and compares all three.
fn check_with(k: u32, program: &impl Program, ints: &[Input], bits: &[Input]) {
    let clear: Vec<_> =
        ints.iter().map(|(w, v)| Clear.public(*w, &v.iter().map(|v| v.0).collect::<Vec<_>>())).collect();
    let clear_bits: Vec<_> = bits
        .iter()
        .map(|(_, v)| Clear.public_bits(&v.iter().map(|v| v.0 == 1).collect::<Vec<_>>()))
        .collect();
    let Ok((want, want_bits)) = program.run(&mut Clear, &clear, &clear_bits);

    let mut costing = Costing::new(k);
    let sizes: Vec<_> = ints.iter().map(|(width, v)| Size { width: *width, lanes: v.len() }).collect();
    let lanes: Vec<_> = bits.iter().map(|(_, v)| Lanes(v.len())).collect();
    let Ok((priced, priced_bits)) = program.run(&mut costing, &sizes, &lanes);

    let results = two_parties(|party| {
        let me = party.me();
        let ot = Ots::set_up(party, k)?;
        party.enter(Phase::Online, 0);
        let share = |(v, r): &(u64, u64)| if me == 0 { *r } else { v.wrapping_sub(*r) };
        let x: Vec<Ints> = ints.iter().map(|(w, v)| Ints::new(*w, v.iter().map(share).collect())).collect();
        let c: Vec<Bits> = bits.iter().map(|(_, v)| Bits::pack(v.len(), |i| share(&v[i]))).collect();
        let mut b = Sirnn::new(party.clone(), ot);
        let out = program.run(&mut b, &x, &c)?;
        Ok((out, b.party().meter().total(Phase::Online, 2)[1 - me], b.party().rounds()))
    });
    let [(a, sent_a, rounds_a), (b, sent_b, rounds_b)] =
        <[_; 2]>::try_from(results.into_iter().map(Result::unwrap).collect::<Vec<_>>()).ok().unwrap();

    assert_eq!((a.0.len(), a.1.len()), (want.len(), want_bits.len()));
    for (i, ((a, b), want)) in a.0.iter().zip(&b.0).zip(&want).enumerate() {
        assert_eq!((a.width, priced[i].width, priced[i].lanes), (want.width, want.width, want.v.len()));
        for (lane, (x, y)) in a.v.iter().zip(&b.v).enumerate() {
            let got = x.wrapping_add(*y) & mask(want.width);
            assert_eq!(got, want.v[lane], "result {i} lane {lane}: got {got:#x}, want {:#x}", want.v[lane]);
            assert_eq!((x | y) & !mask(want.width), 0);
        }
    }
    for (i, ((a, b), want)) in a.1.iter().zip(&b.1).zip(&want_bits).enumerate() {
        assert_eq!((a.n, priced_bits[i].0), (want.0.len(), want.0.len()));
        for lane in 0..a.n {
            assert_eq!(a.get(lane) ^ b.get(lane), want.0[lane], "bit {i} lane {lane}");
        }
    }
    assert_eq!([sent_a, sent_b], costing.cost.bytes, "the meter is the costing");
    let rounds = rounds_a.max(rounds_b);
    let many = ints.iter().chain(bits).all(|i| i.1.len() >= 128);
    assert!(
        rounds == costing.cost.rounds || (!many && rounds < costing.cost.rounds),
        "{rounds} rounds, costing {}",
        costing.cost.rounds
    );
}

fn check(program: &impl Program, ints: &[Input], bits: &[Input]) {
    check_with(4, program, ints, bits);
    check_with(0, program, ints, bits);
    crate::dealt::tests::check(program, ints, bits);
}

struct Compare;
impl Program for Compare {
    fn run<B: Blocks>(
        &self,
        b: &mut B,
        x: &[B::Int],
        _: &[B::Bit],
    ) -> Result<(Vec<B::Int>, Vec<B::Bit>), B::Error> {
        let x: Vec<&B::Int> = x.iter().collect();
        let mut bits = b.negative(&x)?;
        bits.extend(b.negative_zero(&x)?.into_iter().flat_map(|(n, z)| [n, z]));
        bits.extend(b.is_zero(&x)?);
        Ok((vec![], bits))
    }
}

#[test]
fn comparisons() {
    for width in 1..=6 {
        check(&Compare, &[everything(width)], &[]);
    }
    check(&Compare, &[random(1, 33, 3000), random(2, 64, 700), random(3, 8, 100), random(4, 17, 129)], &[]);
    for k in [1, 2, 8] {
        check_with(k, &Compare, &[random(1, 33, 500)], &[]);
    }
}

struct Cut(Vec<Vec<u32>>);
impl Program for Cut {
    fn run<B: Blocks>(
        &self,
        b: &mut B,
        x: &[B::Int],
        _: &[B::Bit],
    ) -> Result<(Vec<B::Int>, Vec<B::Bit>), B::Error> {
        let jobs: Vec<_> = x.iter().zip(&self.0).map(|(x, cuts)| Truncate { x, cuts }).collect();
        let mut out: Vec<B::Int> = b.truncate(&jobs)?.into_iter().flatten().collect();
        let one: Vec<(&B::Int, u32)> = x.iter().zip(&self.0).map(|(x, cuts)| (x, cuts[0])).collect();
        out.extend(b.sticky(&one)?);
        let two: Vec<(&B::Int, u32)> =
            one.iter().filter(|(x, s)| *s >= 2 && b.width(x) < 64).copied().collect();
        out.extend(b.round(&two)?);
        Ok((out, vec![]))
    }
}

#[test]
fn truncations() {
    for width in 2..=6 {
        for cut in 1..width {
            let all = (cut..width).collect();
            check(&Cut(vec![all]), &[everything(width)], &[]);
        }
    }
    let cuts = vec![vec![21, 24], vec![1, 2, 3, 8, 9, 40, 63], vec![13], vec![30]];
    check(
        &Cut(cuts),
        &[random(1, 48, 2000), random(2, 64, 999), random(3, 26, 300), random(4, 33, 131)],
        &[],
    );
}

struct Chosen;
impl Program for Chosen {
    fn run<B: Blocks>(
        &self,
        b: &mut B,
        x: &[B::Int],
        c: &[B::Bit],
    ) -> Result<(Vec<B::Int>, Vec<B::Bit>), B::Error> {
        let mut bits = b.and(&[(&c[0], &c[1]), (&c[1], &c[2])])?;
        let mut ints = b.widen(&[(&c[0], 1), (&c[1], 2), (&c[2], 30), (&c[0], 64)])?;
        let sum = |terms: &[(usize, u64)], width| Tally {
            terms: terms.iter().map(|&(i, k)| (&c[i], k)).collect(),
            width,
        };
        ints.extend(b.tally(&[
            sum(&[(0, 1), (1, u64::MAX - 126), (2, 128)], 10),
            sum(&[(1, 5), (1, 3 << 40), (0, 1 << 63)], 64),
            sum(&[(2, 7)], 1),
            sum(&[(0, 0), (1, 32)], 5),
        ])?);
        let jobs = [
            Select { bit: &c[0], ints: x.iter().collect(), bits: vec![&c[1], &c[2]] },
            Select { bit: &c[2], ints: vec![&x[0]], bits: vec![] },
            Select { bit: &c[1], ints: vec![], bits: vec![&c[2]] },
        ];
        for row in b.select(&jobs)? {
            ints.extend(row.ints);
            bits.extend(row.bits);
        }
        Ok((ints, bits))
    }
}

#[test]
fn selections_and_conversions() {
    let bits: Vec<Input> = (0..3).map(|i| random_bits(10 + i, 1000)).collect();
    let ints = [random(1, 24, 1000), random(2, 64, 1000), random(3, 1, 1000), random(4, 60, 1000)];
    check(&Chosen, &ints, &bits);
    check_with(8, &Chosen, &ints, &bits);
    // One bit, all shares of it, with all shares of three bits.
    let (x, c) = (all_pairs(3, 1), all_pairs(3, 1));
    check(&Chosen, &x[..1], &[c[1].clone(), c[1].clone(), c[1].clone()]);
}

struct Table8(Vec<Table>);
impl Program for Table8 {
    fn run<B: Blocks>(
        &self,
        b: &mut B,
        x: &[B::Int],
        _: &[B::Bit],
    ) -> Result<(Vec<B::Int>, Vec<B::Bit>), B::Error> {
        let jobs: Vec<_> = x.iter().zip(&self.0).map(|(index, table)| Lookup { index, table }).collect();
        let rows = b.lookup(&jobs)?;
        let mut out = (vec![], vec![]);
        for row in rows {
            out.0.extend(row.ints);
            out.1.extend(row.bits);
        }
        Ok(out)
    }
}

#[test]
fn tables() {
    let table = |w: u32| {
        Table::new(w, &[28, 64, 10, 50], 3, move |i| {
            let x = (i + 3 * u64::from(w)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            vec![x, x.rotate_left(20), x >> 7, x >> 9, x & 1, x >> 1 & 1, x >> 2 & 1]
        })
    };
    let tables: Vec<Table> = (1..=8).map(table).collect();
    for w in 1..=5 {
        check(&Table8(vec![tables[w as usize - 1].clone()]), &[everything(w)], &[]);
    }
    let inputs: Vec<Input> = (1..=8).map(|w| random(w as u8, w, 300)).collect();
    check(&Table8(tables), &inputs, &[]);
}

/// What a promise says of the top bit of integer i; bit i is that top bit.
fn hint<'a, B: Blocks>(hint: &str, bit: &'a B::Bit) -> Msb<'a, B> {
    match hint {
        "zero" => Msb::Zero,
        "one" => Msb::One,
        "shared" => Msb::Shared(bit),
        _ => Msb::Unknown,
    }
}

const HINTS: [&str; 4] = ["unknown", "zero", "one", "shared"];

/// The integers with their top bits as each of [`HINTS`] promises, and those bits, shared by masks
/// of their own.
fn promised((width, v): &Input) -> (Vec<Input>, Vec<Input>) {
    let top = 1u64 << (width - 1);
    let keep = |hint: &str| {
        let promise = |&(x, r): &(u64, u64)| match hint {
            "zero" => (x & !top, r),
            "one" => (x | top, r),
            _ => (x, r),
        };
        v.iter().map(promise).collect::<Vec<_>>()
    };
    let mask_of = |i: usize| (i as u64 * 7 + i as u64 / 3) & 1;
    let tops =
        |v: &[(u64, u64)]| v.iter().enumerate().map(|(i, x)| (x.0 >> (width - 1), mask_of(i))).collect();
    let kept: Vec<Vec<(u64, u64)>> = HINTS.iter().map(|h| keep(h)).collect();
    let tops = kept.iter().map(|v| (1, tops(v))).collect();
    (kept.into_iter().map(|v| (*width, v)).collect(), tops)
}

/// Extensions by so many bits, under every promise, of both kinds.
struct Wider(Vec<u32>);
impl Program for Wider {
    fn run<B: Blocks>(
        &self,
        b: &mut B,
        x: &[B::Int],
        c: &[B::Bit],
    ) -> Result<(Vec<B::Int>, Vec<B::Bit>), B::Error> {
        let mut jobs = vec![];
        for (x, (bit, name)) in x.iter().zip(c.iter().zip(HINTS)) {
            for by in &self.0 {
                for signed in [false, true] {
                    jobs.push(Extend { x, width: b.width(x) + by, signed, msb: hint(name, bit) });
                }
            }
        }
        Ok((b.extend(&jobs)?, vec![]))
    }
}

#[test]
fn extensions() {
    for (input, by) in [
        (everything(1), vec![0, 1, 2, 63]),
        (everything(4), vec![0, 1, 2, 5]),
        (everything(5), vec![3, 59]),
        (random(1, 24, 2001), vec![24, 1, 2, 40]),
    ] {
        let (x, c) = promised(&input);
        check(&Wider(by), &x, &c);
    }
}

/// Products of such widths under such promises, both ways round, of all signs; and squares.
struct Product {
    hints: Vec<[usize; 2]>,
    widths: Vec<u32>,
}
impl Program for Product {
    fn run<B: Blocks>(
        &self,
        b: &mut B,
        x: &[B::Int],
        c: &[B::Bit],
    ) -> Result<(Vec<B::Int>, Vec<B::Bit>), B::Error> {
        let mut jobs = vec![];
        for &[i, j] in &self.hints {
            for signs in 0..4 {
                let x_factor = || Factor { x: &x[i], signed: signs & 1 == 1, msb: hint(HINTS[i], &c[i]) };
                let y_factor =
                    || Factor { x: &x[4 + j], signed: signs & 2 == 2, msb: hint(HINTS[j], &c[4 + j]) };
                for &width in &self.widths {
                    jobs.push(Multiply { x: x_factor(), y: y_factor(), width });
                    jobs.push(Multiply { x: y_factor(), y: x_factor(), width });
                    jobs.push(Multiply { x: x_factor(), y: x_factor(), width: width.max(b.width(&x[i])) });
                }
            }
        }
        Ok((b.multiply(&jobs)?, vec![]))
    }
}

fn check_products(inputs: &[Input], hints: Vec<[usize; 2]>, widths: Vec<u32>) {
    let ((mut x, mut c), (y, d)) = (promised(&inputs[0]), promised(&inputs[1]));
    x.extend(y);
    c.extend(d);
    check(&Product { hints, widths }, &x, &c);
}

#[test]
fn products() {
    for (m, n) in [(2, 2), (1, 3)] {
        // The whole product, one bit less, the wider factor's width, and more than both.
        let hints = (0..16).map(|i| [i / 4, i % 4]).collect();
        check_products(&all_pairs(m, n), hints, vec![m + n, m + n - 1, m.max(n), m + n + 2]);
    }
    for (m, n, width) in [(24, 24, 48), (27, 10, 37), (28, 35, 63), (33, 20, 33), (30, 20, 64)] {
        check_products(&[random(1, m, 200), random(2, n, 200)], vec![[0, 3], [1, 2], [3, 1]], vec![width]);
    }
}

struct Lead;
impl Program for Lead {
    fn run<B: Blocks>(
        &self,
        b: &mut B,
        x: &[B::Int],
        _: &[B::Bit],
    ) -> Result<(Vec<B::Int>, Vec<B::Bit>), B::Error> {
        let jobs: Vec<_> = x.iter().map(|x| (x, 7)).collect();
        let mut out = (vec![], vec![]);
        for leading in b.leading(&jobs)? {
            out.0.extend([leading.scale, leading.position]);
            out.1.push(leading.zero);
        }
        Ok(out)
    }
}

#[test]
fn leading_bits() {
    for width in 1..=6 {
        check(&Lead, &[everything(width)], &[]);
    }
    check(&Lead, &[random(1, 48, 2000), random(2, 64, 300), random(3, 49, 300), random(4, 24, 200)], &[]);
}

#[test]
fn few_and_no_lanes() {
    for lanes in [0, 1, 2, 65] {
        check(&Compare, &[random(1, 33, lanes)], &[]);
        check(&Lead, &[random(1, 33, lanes)], &[]);
        check(&Cut(vec![vec![5, 6]]), &[random(1, 33, lanes)], &[]);
        check_products(&[random(1, 9, lanes), random(2, 11, lanes)], vec![[0, 3]], vec![20]);
    }
}

#[test]
fn threads_never_begin_where_others_were() {
    let results = two_parties(|party| {
        party.enter(Phase::Setup, 1);
        let ots = Ots::set_up(party, 4)?;
        let mut b = Sirnn::new(party.clone(), ots).with_threads(3)?;
        // What every thread's first OTs are made of: none is ever made again.
        let first = |b: &mut Sirnn<_>| {
            b.in_threads(3, |b, _| {
                Ok((b.ot.receiver.extend_random(128).2, b.ot.next_sent(1), b.ot.next_message()))
            })
        };
        let before = first(&mut b)?;
        let mut b = b.with_threads(3)?;
        let after = first(&mut b)?;
        for (i, (blocks, sent, message)) in after.iter().enumerate() {
            for (j, (others, other_sent, other_message)) in before.iter().chain(&after[..i]).enumerate() {
                assert!(blocks != others && sent != other_sent && message != other_message, "{i}, {j}");
            }
        }
        // Three and two more have theirs; 256 threads would be 260 in all.
        b = b.with_threads(252)?;
        Ok(b.with_threads(2).err().map(|e| e.to_string()))
    });
    for refused in results {
        let why = refused.unwrap().expect("there is no room for one more");
        assert!(why.contains("at most 256"), "{why}");
    }
}

#[test]
fn a_bundle_has_as_many_companions_as_pads() {
    let results = two_parties(|party| {
        party.enter(Phase::Setup, 1);
        let ots = Ots::set_up(party, 4)?;
        let mut b = Sirnn::new(party.clone(), ots);
        let me = u64::from(b.me() == 0);
        let (lanes, x) = (100, Bits::pack(100, |i| ((i as u64 + 1) / 3) & me));
        let y: Vec<Bits> = (0..129).map(|k| Bits::pack(lanes, |i| ((i * k) as u64 / 5) & me)).collect();
        let mut products = |most: usize| {
            let bundle = crate::triple::Bundle { x: &x, y: y[..most].iter().collect() };
            b.and_bundles(&[bundle]).map(|mut all| all.remove(0))
        };
        let all: Vec<Vec<u64>> = products(128)?.into_iter().map(|z| z.w).collect();
        Ok((all, products(129).err().map(|e| e.to_string())))
    });
    let [(mine, why), (theirs, _)] = &results.into_iter().map(Result::unwrap).collect::<Vec<_>>()[..] else {
        unreachable!("two parties")
    };
    for (k, (mine, theirs)) in mine.iter().zip(theirs).enumerate() {
        for i in 0..100usize {
            let want = ((i as u64 + 1) / 3) & ((i * k) as u64 / 5) & 1;
            assert_eq!((mine[i / 64] ^ theirs[i / 64]) >> (i % 64) & 1, want, "companion {k}, lane {i}");
        }
    }
    assert!(why.as_ref().is_some_and(|why| why.contains("129 others") && why.contains("128")), "{why:?}");
}

#[test]
fn a_row_has_as_many_pads_as_numbers() {
    let refused = two_parties(|party| {
        party.enter(Phase::Setup, 1);
        let ots = Ots::set_up(party, 4)?;
        let mut b = Sirnn::new(party.clone(), ots);
        let index = b.public(1, &[0, 1]);
        let mut look = |columns: usize| {
            let table = Table::new(1, &vec![64; columns], 0, |i| vec![i; columns]);
            b.lookup(&[Lookup { index: &index, table: &table }]).map(|_| ())
        };
        look(510)?;
        Ok(look(511).unwrap_err().to_string())
    });
    for why in refused {
        let why = why.unwrap();
        assert!(why.contains("256 pads") && why.contains("255"), "{why}");
    }
}
