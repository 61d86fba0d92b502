//! Blocks of many terms: sorted by their exponents, without comparisons.

use super::terms::{BETWEEN, Flags, STEP, Terms, settled, special, total};
use crate::any::{AnyBlocks, Bit, Extend, Factor, Failure, Int, Lookup, Msb, Select, Tally, Truncate};
use crate::blocks::{Blocks, Table};
use crate::finish::two;
use crate::float::Float;
use crate::format::Format;
use crate::single::{gates, only};

/// Most terms of a block whose terms are sorted by their exponents.
pub const SORTED: usize = 4096;
/// Bits of a sum.
const SUM: u32 = 64;

/// The highest window of `n` blocks of `lanes` terms that has a term, in `width` bits, and the
/// flags of all terms together, with whether there are infinities of both signs: in each window,
/// and with each flag, terms are counted.
fn highest(
    b: &mut AnyBlocks,
    windows: &[Bit],
    flags: &Flags,
    (n, lanes): (usize, usize),
    width: u32,
) -> Result<(Int, Flags, Bit), Failure> {
    let something = b.not(&flags.nothing);
    let counted = windows.iter().chain([&flags.plus, &flags.minus, &flags.nan, &something]);
    let bits = usize::BITS - n.leading_zeros();
    let at: Vec<Vec<usize>> = (0..n).map(|term| (term * lanes..(term + 1) * lanes).collect()).collect();
    let counted: Vec<Vec<Bit>> =
        counted.map(|bit| at.iter().map(|at| b.gather_bits(bit, at)).collect()).collect();
    let jobs: Vec<Tally<'_>> = counted
        .iter()
        .map(|bit| Tally { terms: bit.iter().map(|bit| (bit, 1)).collect(), width: bits })
        .collect();
    let counts = b.tally(&jobs)?;
    let none = b.is_zero(&counts.iter().collect::<Vec<_>>())?;
    let found: Vec<Bit> = none.iter().map(|none| b.not(none)).collect();
    let (windows, found) = found.split_at(windows.len());
    let flags = Flags {
        plus: found[0].clone(),
        minus: found[1].clone(),
        nan: found[2].clone(),
        nothing: b.not(&found[3]),
    };
    // Windows 1 to 7, and from 8 on: the highest of each, and which half has it.
    let (low, high) = windows.split_at(7);
    let jobs = [low, high].map(|bits| Tally {
        terms: bits.iter().enumerate().map(|(i, bit)| (bit, 1 << i)).collect(),
        width: bits.len() as u32,
    });
    let numbers = b.tally(&jobs)?;
    let top = |x: u64| u64::from(u64::BITS - x.leading_zeros());
    let tables = [
        Table::new(7, &[width], 0, |x| vec![top(x)]),
        Table::new(8, &[width], 1, |x| vec![7 + top(x), u64::from(x > 0)]),
    ];
    let jobs = [0, 1].map(|i| Lookup { index: &numbers[i], table: &tables[i] });
    let [low, high] = two(b.lookup(&jobs)?);
    let more = b.sub(&high.ints[0], &low.ints[0]);
    let rows = b.select(&[
        Select { bit: &high.bits[0], ints: vec![&more], bits: vec![] },
        Select { bit: &flags.plus, ints: vec![], bits: vec![&flags.minus] },
    ])?;
    Ok((b.add(&low.ints[0], &rows[0].ints[0]), flags, rows[1].bits[0].clone()))
}

/// The sums of `n` blocks of `lanes` terms, up to [`SORTED`], each rounded once.
///
/// Exponents are cut in windows of 16. A mantissa moves up within its window, which waits for no
/// other term, and is added to the sum of that window: of the highest one that has a term, or of
/// one of the three below, in others it vanishes. So nothing is compared with anything: the terms
/// of each window are counted. Only the four sums are cut, to units of 2^−(35 − q) of the last bit
/// of a mantissa at the bottom of the highest window, and added.
pub(super) fn block(
    b: &mut AnyBlocks,
    terms: &Terms,
    n: usize,
    lanes: usize,
    format: Format,
) -> Result<Float, Failure> {
    let (man, exp_width) = (b.width(&terms.man), b.width(&terms.exp));
    assert!(n <= SORTED && exp_width == BETWEEN.exp_width(), "terms of formats with p = 8, not too many");
    // A window's sum is below 2^size: a mantissa's bits, of which the top one is zero, up to 15
    // places, and those of all terms.
    let size = (man - 1) + (STEP - 1) + SORTED.ilog2();
    let below = SUM - 1 - size;
    let least = BETWEEN.min_exp() - 1;
    let index = b.low(&b.offset(&terms.exp, least.wrapping_neg() as u64), BETWEEN.p);
    let window = b.cut(&index, 4)?;
    let windows = Table::new(4, &[], 15, |h| (1..16).map(|window| u64::from(h == window)).collect());
    let powers = Table::new(4, &[STEP + 1], 0, |place| vec![1 << place]);
    let rows = b.lookup(&[
        Lookup { index: &window, table: &windows },
        Lookup { index: &b.low(&index, 4), table: &powers },
    ])?;
    let moved = b.product(Factor::small(&terms.man), Factor::small(&rows[1].ints[0]), man + STEP - 1)?;
    // Two bits more than a sum has: a sign, and one that stays zero when sums are made positive.
    let moved = only(b.extend(&[Extend { x: &moved, width: size + 2, signed: false, msb: Msb::Zero }])?);
    let moved = b.negate_if(&terms.sign, &moved)?;
    let (highest, flags, clash) = highest(b, &rows[0].bits, &terms.flags, (n, lanes), exp_width)?;

    let spread: Vec<usize> = (0..n * lanes).map(|i| i % lanes).collect();
    let distance = b.sub(&b.gather(&b.low(&highest, 4), &spread), &window);
    let places =
        Table::new(4, &[], 4, |distance| (0..4).map(|window| u64::from(distance == window)).collect());
    let place = b.row(&distance, &places)?;
    let inf = b.union(&flags.plus, &flags.minus, &clash);
    let mut jobs: Vec<Select<'_>> =
        place.bits.iter().map(|bit| Select { bit, ints: vec![&moved], bits: vec![] }).collect();
    jobs.extend(gates(&[(&clash, &flags.nan), (&inf, &flags.nan)]));
    let mut rows = b.select(&jobs)?;
    let nans: Vec<Bit> = rows.split_off(4).into_iter().map(|row| only(row.bits)).collect();
    let special = special(b, &flags, inf, clash, (&nans[0], &nans[1]));

    let sums: Vec<Int> = rows.iter().map(|row| total(b, &row.ints[0], n, lanes)).collect();
    let cuts = [1, 2, 3].map(|window| window * STEP - below);
    let positive: Vec<Int> = sums[1..].iter().map(|sum| b.offset(sum, 1 << size)).collect();
    let jobs: Vec<Truncate<'_>> =
        positive.iter().zip(&cuts).map(|(x, cut)| Truncate { x, cuts: std::slice::from_ref(cut) }).collect();
    let cut: Vec<Int> = b.truncate(&jobs)?.into_iter().map(only).collect();
    let jobs: Vec<Extend<'_>> =
        cut.iter().map(|x| Extend { x, width: SUM, signed: false, msb: Msb::Zero }).collect();
    let lower = b.extend(&jobs)?;
    let top = b.shift(&b.low(&sums[0], SUM - below), below);
    let sum = lower
        .iter()
        .zip(cuts)
        .fold(top, |sum, (lower, cut)| b.add(&sum, &b.offset(lower, (1u64 << (size - cut)).wrapping_neg())));
    let unit = least - i64::from(terms.frac + below);
    let exp = b.offset(&b.scale(&highest, STEP.into()), unit as u64);
    settled(b, format, (&sum, &exp), special)
}
