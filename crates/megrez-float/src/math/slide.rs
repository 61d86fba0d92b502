//! Fixed point from floating point: a mantissa moved to where its exponent says.
//!
//! A shift by up to 31 places is a product with 2^0 … 2^7 and then a choice among four shifts by
//! whole bytes. Which ones, a table of all exponents knows; SECFLOAT multiplies with a power of two
//! of the full width instead.

use crate::any::{AnyBlocks, Bit, Extend, Factor, Failure, Int, Lookup, Msb, Select, Truncate};
use crate::blocks::{Blocks, Table};
use crate::format::Format;
use crate::single::only;

/// Bytes that a mantissa can move by.
const BYTES: usize = 4;

/// What becomes of a number with a given exponent.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Move {
    /// Nothing of it is left.
    Gone,
    /// Shifted right, from 31 − n places for n in 0 … 31.
    Right(u32),
    /// Shifted left by n in 0 … 31 places.
    Left(u32),
}

/// A mantissa on its way.
pub(crate) struct Slid {
    /// Where it moves right, ⌊man·2^(n−31) · 2^(7−drop)⌋, for the `drop` asked for; otherwise zero.
    /// Its top bit is zero.
    pub right: Int,
    /// Where it moves left, man·2^n modulo the width asked for; otherwise zero.
    pub left: Option<Int>,
    /// The flag of its exponent.
    pub flag: Bit,
    /// Its other flag, if the table has one.
    pub second: Option<Bit>,
    /// What else the table has for its exponent.
    pub more: Vec<Int>,
}

/// The table of all exponents of single precision: how to move, and a flag.
pub(crate) fn moves(of: impl Fn(i64) -> (Move, bool)) -> Table {
    flagged(|e| {
        let (way, flag) = of(e);
        (way, [flag])
    })
}

/// As [`moves`], with one flag or two.
pub(crate) fn flagged<const N: usize>(of: impl Fn(i64) -> (Move, [bool; N])) -> Table {
    with_numbers([], |e| {
        let (way, flags) = of(e);
        (way, [], flags)
    })
}

/// As [`flagged`], with integers of these widths.
pub(crate) fn with_numbers<const M: usize, const N: usize>(
    widths: [u32; M],
    of: impl Fn(i64) -> (Move, [u64; M], [bool; N]),
) -> Table {
    let bias = Format::FLOAT32.max_exp();
    let ints: Vec<u32> = [9].into_iter().chain(widths).collect();
    Table::new(8, &ints, 2 * BYTES + N, |i| {
        let (way, numbers, flags) = of(i as i64 - bias);
        let (mut scale, mut sides) = (0, [0; 2 * BYTES]);
        let (side, n) = match way {
            Move::Gone => (0, None),
            Move::Right(n) => (0, Some(n)),
            Move::Left(n) => (BYTES, Some(n)),
        };
        if let Some(n) = n {
            scale = 1 << (n % 8);
            sides[side + n as usize / 8] = 1;
        }
        [scale].into_iter().chain(numbers).chain(sides).chain(flags.map(u64::from)).collect()
    })
}

/// Moves `man`, whose top bit is zero, by the exponents `exp` (modulo 2^8); left into `left` bits
/// if anything moves left.
pub(crate) fn slide(
    b: &mut AnyBlocks,
    exp: &Int,
    man: &Int,
    table: &Table,
    drop: u32,
    left: Option<u32>,
) -> Result<Slid, Failure> {
    let index = b.low(&b.offset(exp, Format::FLOAT32.max_exp() as u64), 8);
    let mut row = only(b.lookup(&[Lookup { index: &index, table }])?);
    let more = row.ints.split_off(1);
    let mut flags = row.bits.split_off(2 * BYTES).into_iter();
    let flag = flags.next().expect("the flag");
    let moved = b.width(man) + 8;
    let moved = b.product(Factor::small(man), Factor::small(&row.ints[0]), moved)?;

    // Right by whole bytes, all in the ring of the furthest left.
    let cuts: Vec<u32> = (0..BYTES as u32).map(|i| drop + 8 * i).filter(|&c| c > 0).collect();
    let tails = only(b.truncate(&[Truncate { x: &moved, cuts: &cuts }])?);
    let mut tails: Vec<_> = tails.iter().collect();
    if drop == 0 {
        tails.insert(0, &moved);
    }
    let width = b.width(tails[0]);
    let wider = tails[1..].iter().map(|&x| Extend { x, width, signed: false, msb: Msb::Zero });
    let extended = b.extend(&wider.collect::<Vec<_>>())?;
    let right: Vec<_> = extended.iter().rev().chain([tails[0]]).collect();
    let lefts: Vec<_> = match left {
        None => vec![],
        Some(w) => (0..BYTES as u32).map(|i| b.shift(&b.low(&moved, w - 8 * i), 8 * i)).collect(),
    };
    let jobs: Vec<_> = row
        .bits
        .iter()
        .zip(right.into_iter().chain(&lefts))
        .map(|(bit, x)| Select { bit, ints: vec![x], bits: vec![] })
        .collect();
    let chosen: Vec<_> = b.select(&jobs)?.into_iter().map(|row| only(row.ints)).collect();
    let sum = |b: &AnyBlocks, parts: &[Int]| parts[1..].iter().fold(parts[0].clone(), |s, x| b.add(&s, x));
    let right = sum(b, &chosen[..BYTES]);
    let left = left.map(|_| sum(b, &chosen[BYTES..]));
    Ok(Slid { right, left, flag, second: flags.next(), more })
}
