//! Rows of a secret table at secret places.

use super::matrix::Matrix;
use super::parts::part_size;
use crate::any::{AnyBlocks, Bit, Failure, Int, Select};
use crate::blocks::Blocks;
use crate::float::Float;

/// Columns under one bit of a selection, at most.
const COLUMNS: usize = 128;

/// Selected numbers that take as much memory as a lane of an addition.
const LIGHT: usize = 16;

/// For each column the integers and the flags of its numbers.
type Columns = (Vec<Int>, Vec<Bit>);

/// The rows of `table` that the rows of `ones` name, each of which has zeros and a single 1: [t,
/// n]·[n, w] is [t, w], exactly. A 1 is what is no zero, and one selection takes a whole row of the
/// table: all but one of the results have nothing but zeros in their integers and flags, so that
/// their sum is local.
///
/// rounds  bits for each row and place, both directions
/// 2       2·(⌈w/128⌉·128/k + 38·w)      k: k of the OT extension; rounds are those of a part
///
/// # Errors
/// If the blocks fail.
///
/// # Panics
/// If the inner dimensions differ, or there is nothing in the table.
pub fn lookup(b: &mut AnyBlocks, ones: &Matrix, table: &Matrix) -> Result<Matrix, Failure> {
    assert_eq!(ones.cols, table.rows, "a table of another size");
    let (rows, n, width) = (ones.rows, table.rows, table.cols);
    let size = part_size(n, (rows * width).div_ceil(LIGHT), b.threads());
    let parts = b.parts(n.div_ceil(size), |b, i| -> Result<Columns, Failure> {
        let places = i * size..n.min((i + 1) * size);
        let at = |f: &dyn Fn(usize, usize) -> usize| -> Vec<usize> {
            places.clone().flat_map(|place| (0..rows).map(move |row| f(row, place))).collect()
        };
        let bit = b.not(&b.gather_bits(&ones.data.zero, &at(&|row, place| row * n + place)));
        let column = |c: usize| table.data.gather(b, &at(&|_, place| place * width + c));
        let columns: Vec<Float> = (0..width).map(column).collect();
        let jobs: Vec<Select<'_>> = columns
            .chunks(COLUMNS)
            .map(|some| Select {
                bit: &bit,
                ints: some.iter().flat_map(|x| [&x.exp, &x.man]).collect(),
                bits: some.iter().flat_map(|x| [&x.zero, &x.inf, &x.nan, &x.sign]).collect(),
            })
            .collect();
        let mut sums: Columns = (vec![], vec![]);
        for kept in b.select(&jobs)? {
            let b = &*b;
            let int = |x: Int| {
                total(x, places.len(), rows, |x, l| b.gather(x, l), |x, y| b.add(x, y), |x| b.concat(x))
            };
            let flag = |x: Bit| {
                total(
                    x,
                    places.len(),
                    rows,
                    |x, l| b.gather_bits(x, l),
                    |x, y| b.xor(x, y),
                    |x| b.concat_bits(x),
                )
            };
            sums.0.extend(kept.ints.into_iter().map(int));
            sums.1.extend(kept.bits.into_iter().map(flag));
        }
        Ok(sums)
    })?;
    let add = |x: Columns, y: Columns| -> Columns {
        let ints = x.0.iter().zip(&y.0).map(|(x, y)| b.add(x, y)).collect();
        (ints, x.1.iter().zip(&y.1).map(|(x, y)| b.xor(x, y)).collect())
    };
    let (ints, flags) = parts.into_iter().reduce(add).expect("a table has rows");
    let column = |(ints, flags): (&[Int], &[Bit])| {
        let [exp, man] = [0, 1].map(|i| ints[i].clone());
        let [zero, inf, nan, sign] = [0, 1, 2, 3].map(|i| flags[i].clone());
        Float { format: table.data.format, zero, inf, nan, sign, exp, man }
    };
    let columns: Vec<Float> = ints.chunks(2).zip(flags.chunks(4)).map(column).collect();
    let turned = Float::concat(b, &columns.iter().collect::<Vec<_>>());
    let lanes: Vec<usize> = (0..rows).flat_map(|row| (0..width).map(move |c| c * rows + row)).collect();
    Ok(Matrix::new(b, rows, width, turned.gather(b, &lanes)))
}

/// The sum of `n` blocks of `lanes` lanes.
fn total<T>(
    x: T,
    mut n: usize,
    lanes: usize,
    gather: impl Fn(&T, &[usize]) -> T,
    add: impl Fn(&T, &T) -> T,
    concat: impl Fn(&[&T]) -> T,
) -> T {
    let mut x = x;
    while n > 1 {
        let (half, pairs) = (n.div_ceil(2), n / 2);
        let blocks = |from: usize, to: usize| gather(&x, &(from * lanes..to * lanes).collect::<Vec<_>>());
        let sum = add(&blocks(0, pairs), &blocks(half, n));
        x = concat(&[&sum, &blocks(pairs, half)]);
        n = half;
    }
    x
}
