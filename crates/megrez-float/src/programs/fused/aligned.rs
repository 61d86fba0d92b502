//! Blocks of few terms: aligned to the largest exponent, which is found by comparisons.

use super::terms::{Flags, STEP, Terms, settled, special, total};
use crate::any::{AnyBlocks, Bit, Extend, Factor, Failure, Int, Lookup, Msb, Select};
use crate::blocks::{Blocks, Table};
use crate::float::Float;
use crate::format::Format;
use crate::single::only;

/// F: bits of the integers below the last one of the largest term.
const BELOW: u32 = 2 * STEP - 1;

/// The largest exponent of `n` blocks of `lanes` terms, and their flags together: by pairs, and by
/// fours once `fours_from` are left, which saves rounds.
fn largest(
    b: &mut AnyBlocks,
    terms: &Terms,
    mut n: usize,
    lanes: usize,
    fours_from: usize,
) -> Result<(Int, Flags), Failure> {
    let (mut exp, mut flags) = (terms.exp.clone(), terms.flags.each(Bit::clone));
    while n > 1 {
        let four = n <= fours_from && n.is_multiple_of(4);
        (exp, flags) =
            if four { fours(b, &exp, &flags, n, lanes)? } else { pairs(b, &exp, &flags, n, lanes)? };
        n = if four { n / 4 } else { n.div_ceil(2) };
    }
    Ok((exp, flags))
}

/// The flags of two together, whose ANDs are known.
fn joined(b: &AnyBlocks, x: &Flags, y: &Flags, both: &[Bit]) -> Flags {
    Flags {
        plus: b.union(&x.plus, &y.plus, &both[0]),
        minus: b.union(&x.minus, &y.minus, &both[1]),
        nan: b.union(&x.nan, &y.nan, &both[2]),
        nothing: both[3].clone(),
    }
}

/// Selections that are ANDs of the flags of two.
fn joins<'a>(x: &'a Flags, y: &'a Flags) -> [Select<'a>; 4] {
    [(&x.plus, &y.plus), (&x.minus, &y.minus), (&x.nan, &y.nan), (&x.nothing, &y.nothing)]
        .map(|(bit, other)| Select { bit, ints: vec![], bits: vec![other] })
}

/// ⌈n/2⌉ blocks in place of n.
fn pairs(
    b: &mut AnyBlocks,
    exp: &Int,
    flags: &Flags,
    n: usize,
    lanes: usize,
) -> Result<(Int, Flags), Failure> {
    let (half, pairs) = (n.div_ceil(2), n / 2);
    let at = |from: usize, to: usize| (from * lanes..to * lanes).collect::<Vec<_>>();
    let [first, second, waits] = [at(0, pairs), at(half, n), at(pairs, half)];
    let (x, y) = (b.gather(exp, &first), b.gather(exp, &second));
    let step = b.sub(&y, &x);
    let less = b.is_negative(&b.sub(&x, &y))?;
    let [f, g, rest] = [&first, &second, &waits].map(|lanes| flags.each(|bit| b.gather_bits(bit, lanes)));
    let mut jobs = vec![Select { bit: &less, ints: vec![&step], bits: vec![] }];
    jobs.extend(joins(&f, &g));
    let mut rows = b.select(&jobs)?.into_iter();
    let larger = b.add(&x, &only(rows.next().expect("a job gives a row").ints));
    let both: Vec<Bit> = rows.map(|row| only(row.bits)).collect();
    let made = joined(b, &f, &g, &both);
    let join = |x: &Bit, rest: &Bit| b.concat_bits(&[x, rest]);
    let flags = Flags {
        plus: join(&made.plus, &rest.plus),
        minus: join(&made.minus, &rest.minus),
        nan: join(&made.nan, &rest.nan),
        nothing: join(&made.nothing, &rest.nothing),
    };
    Ok((b.concat(&[&larger, &b.gather(exp, &waits)]), flags))
}

/// n/4 blocks in place of n: every two of four are compared at once.
fn fours(
    b: &mut AnyBlocks,
    exp: &Int,
    flags: &Flags,
    n: usize,
    lanes: usize,
) -> Result<(Int, Flags), Failure> {
    const PAIRS: [(usize, usize); 6] = [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)];
    let quarter = n / 4 * lanes;
    let at = [0, 1, 2, 3].map(|i| (i * quarter..(i + 1) * quarter).collect::<Vec<_>>());
    let exps = [0, 1, 2, 3].map(|i| b.gather(exp, &at[i]));
    let part = [0, 1, 2, 3].map(|i| flags.each(|bit| b.gather_bits(bit, &at[i])));
    let apart = PAIRS.map(|(i, j)| b.sub(&exps[i], &exps[j]));
    let less = b.negative(&apart.iter().collect::<Vec<_>>())?;
    // Whether i is less than j; of equal ones the first is the larger one.
    let is_less = |b: &AnyBlocks, i: usize, j: usize| match PAIRS.iter().position(|&p| p == (i, j)) {
        Some(pair) => less[pair].clone(),
        None => b.not(&less[PAIRS.iter().position(|&p| p == (j, i)).expect("a pair of four")]),
    };
    let not_less = |b: &AnyBlocks, i: usize, j: usize| b.not(&is_less(b, i, j));
    // The first, second or third is not less than the other three: two gates each. The flags of
    // first and second, and of third and fourth, join in.
    let halves = [0, 1, 2].map(|i| {
        let others = [0, 1, 2, 3].into_iter().filter(|&j| j != i).map(|j| not_less(b, i, j));
        others.collect::<Vec<_>>()
    });
    let mut jobs: Vec<Select<'_>> =
        halves.iter().map(|h| Select { bit: &h[0], ints: vec![], bits: vec![&h[1]] }).collect();
    jobs.extend(joins(&part[0], &part[1]));
    jobs.extend(joins(&part[2], &part[3]));
    let found: Vec<Bit> = b.select(&jobs)?.into_iter().map(|row| only(row.bits)).collect();
    let f = joined(b, &part[0], &part[1], &found[3..7]);
    let g = joined(b, &part[2], &part[3], &found[7..]);
    let mut jobs: Vec<Select<'_>> = halves
        .iter()
        .zip(&found)
        .map(|(h, two)| Select { bit: &h[2], ints: vec![], bits: vec![two] })
        .collect();
    jobs.extend(joins(&f, &g));
    let found: Vec<Bit> = b.select(&jobs)?.into_iter().map(|row| only(row.bits)).collect();
    let flags = joined(b, &f, &g, &found[3..]);
    let steps = [0, 1, 2].map(|i| b.sub(&exps[i], &exps[3]));
    let jobs: Vec<Select<'_>> =
        (0..3).map(|i| Select { bit: &found[i], ints: vec![&steps[i]], bits: vec![] }).collect();
    let rows = b.select(&jobs)?;
    let largest = rows.iter().fold(exps[3].clone(), |sum, row| b.add(&sum, &row.ints[0]));
    Ok((largest, flags))
}

/// The sums of `n` blocks of `lanes` terms, each rounded once.
pub(super) fn block(
    b: &mut AnyBlocks,
    terms: &Terms,
    n: usize,
    lanes: usize,
    format: Format,
    products: bool,
) -> Result<Float, Failure> {
    // Fours take more comparisons, of which products would have many.
    let (largest, flags) = largest(b, terms, n, lanes, if products { n / 4 } else { n })?;
    let width = b.width(&terms.man) + BELOW + (usize::BITS - (n - 1).leading_zeros());
    assert!(width <= 64, "a block of {n} terms of {} bits", b.width(&terms.man));

    // man·2^(BELOW − distance): first by up to STEP − 1 places, then by none or by STEP.
    let spread: Vec<usize> = (0..n * lanes).map(|i| i % lanes).collect();
    let distance = b.sub(&b.gather(&largest, &spread), &terms.exp);
    let near = b.is_negative(&b.offset(&distance, u64::from(BELOW + 1).wrapping_neg()))?;
    let table = Table::new(5, &[STEP + 1], 1, |d| {
        vec![1 << (u64::from(STEP) - 1 - d % u64::from(STEP)), u64::from(d < STEP.into())]
    });
    let row = only(b.lookup(&[Lookup { index: &b.low(&distance, 5), table: &table }])?);
    let moved = b.width(&terms.man) + STEP - 1;
    let moved = b.product(Factor::small(&terms.man), Factor::small(&row.ints[0]), moved)?;
    // No zero is negative, so that the sign is the top bit.
    let sign = b.xor(&terms.sign, &terms.flags.nothing);
    // ∞ − ∞ is NaN: gates of the flags join in.
    let rows = b.select(&[
        Select { bit: &sign, ints: vec![&moved], bits: vec![] },
        Select { bit: &near, ints: vec![], bits: vec![&row.bits[0]] },
        Select { bit: &flags.plus, ints: vec![], bits: vec![&flags.minus] },
    ])?;
    let (moved, high) = (b.sub(&moved, &b.scale(&rows[0].ints[0], 2)), rows[1].bits[0].clone());
    let clash = rows[2].bits[0].clone();
    let inf = b.union(&flags.plus, &flags.minus, &clash);
    let moved = only(b.extend(&[Extend { x: &moved, width, signed: true, msb: Msb::Shared(&sign) }])?);
    let rows = b.select(&[
        Select { bit: &high, ints: vec![&b.low(&moved, width - STEP)], bits: vec![] },
        Select { bit: &b.xor(&near, &high), ints: vec![&moved], bits: vec![] },
        Select { bit: &clash, ints: vec![], bits: vec![&flags.nan] },
        Select { bit: &inf, ints: vec![], bits: vec![&flags.nan] },
    ])?;
    let aligned = b.add(&b.shift(&rows[0].ints[0], STEP), &rows[1].ints[0]);
    let special = special(b, &flags, inf, clash, (&rows[2].bits[0], &rows[3].bits[0]));
    let sum = total(b, &aligned, n, lanes);
    let exp = b.offset(&largest, u64::from(BELOW + terms.frac).wrapping_neg());
    settled(b, format, (&sum, &exp), special)
}
