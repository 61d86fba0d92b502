//! Einsum, the Fourier transforms and determinants: products of matrices and sums of products.

use super::shapes::{coordinates, element, few};
use super::{Decompose, Parts};
use crate::graph::{Attributes, Id};
use crate::layers::axis;
use crate::problem::{Refusal, refuse};
use crate::tensor::Tensor;
use std::collections::BTreeMap;
use std::f64::consts::PI;

pub(super) const TABLE: &[(&str, Decompose)] =
    &[("DFT", fourier), ("Det", determinant), ("Einsum", einsum), ("STFT", short_fourier)];

/// A value and the letter of each of its dimensions.
struct Term {
    value: Id,
    letters: Vec<char>,
}

/// The letters of a term; those of an ellipsis are digits, counted from the last dimension.
fn letters(text: &str, rank: usize) -> Result<Vec<char>, Refusal> {
    let named = text.chars().filter(|c| *c != '.').count();
    let Some(more) = rank.checked_sub(named).filter(|&more| more <= 8) else {
        return refuse(format!("`{text}` does not fit {rank} dimensions"), "");
    };
    let digits = (0..more).rev().map(|i| char::from(b'0' + i as u8));
    let out: Vec<char> = match text.split_once("...") {
        Some((before, after)) => before.chars().chain(digits).chain(after.chars()).collect(),
        None => text.chars().collect(),
    };
    match out.len() == rank && out.iter().all(char::is_ascii_alphanumeric) {
        true => Ok(out),
        false => refuse(format!("`{text}` does not fit {rank} dimensions"), ""),
    }
}

/// A term without the letters that nothing else has, each letter once.
fn simplified(p: &mut Parts, term: Term, keep: &dyn Fn(char) -> bool) -> Result<Term, Refusal> {
    let Term { mut value, letters } = term;
    let mut once = letters.clone();
    once.sort_unstable();
    once.dedup();
    let dims = p.dims(value);
    if once.len() < letters.len() {
        // The diagonal of dimensions with one letter.
        let size = |c: char| letters.iter().position(|l| *l == c).map_or(1, |d| dims[d]);
        if letters.iter().zip(&dims).any(|(&c, &d)| size(c) != d) {
            return refuse("a letter stands for two sizes", "");
        }
        let shape: Vec<usize> = once.iter().map(|&c| size(c)).collect();
        let count = few(&shape)?.elements();
        let place = |i: usize| {
            let at = coordinates(&shape, i);
            let of = |c: char| once.iter().position(|l| *l == c).map_or(0, |d| at[d]);
            Some((0, element(&dims, &letters.iter().map(|&c| of(c)).collect::<Vec<_>>())))
        };
        value = p.places(&[value], &shape, &(0..count).map(place).collect::<Vec<_>>())?;
    } else {
        once = letters;
    }
    let gone: Vec<usize> = (0..once.len()).filter(|&d| !keep(once[d])).collect();
    if !gone.is_empty() {
        value = p.sum(value, &gone, false)?;
        once.retain(|&c| keep(c));
    }
    Ok(Term { value, letters: once })
}

/// The product of two terms, summed over the letters that neither the rest nor the result has.
fn joined(p: &mut Parts, a: Term, b: Term, keep: &dyn Fn(char) -> bool) -> Result<Term, Refusal> {
    let both = |c: &char| a.letters.contains(c) && b.letters.contains(c);
    let mut sizes: BTreeMap<char, usize> = BTreeMap::new();
    for term in [&a, &b] {
        for (&c, n) in term.letters.iter().zip(p.dims(term.value)) {
            if *sizes.entry(c).or_insert(n) != n {
                return refuse(format!("the letter `{c}` stands for two sizes"), "");
            }
        }
    }
    let batch: Vec<char> = a.letters.iter().copied().filter(|c| both(c) && keep(*c)).collect();
    let inner: Vec<char> = a.letters.iter().copied().filter(|c| both(c) && !keep(*c)).collect();
    let left: Vec<char> = a.letters.iter().copied().filter(|c| !both(c)).collect();
    let right: Vec<char> = b.letters.iter().copied().filter(|c| !both(c)).collect();
    let size = |list: &[char]| list.iter().map(|c| sizes[c]).product::<usize>();
    let matrix = |p: &mut Parts, term: &Term, groups: [&[char]; 3]| {
        let order: Vec<usize> =
            groups.concat().iter().filter_map(|c| term.letters.iter().position(|l| l == c)).collect();
        let x = p.transpose(term.value, &order)?;
        p.reshape(x, &groups.map(size))
    };
    let x = matrix(p, &a, [&batch, &left, &inner])?;
    let y = matrix(p, &b, [&batch, &inner, &right])?;
    let product = p.of("MatMul", &[x, y])?;
    let letters = [batch, left, right].concat();
    let dims: Vec<usize> = letters.iter().map(|c| sizes[c]).collect();
    Ok(Term { value: p.reshape(product, &dims)?, letters })
}

fn einsum(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    p.call().only(16, &["equation"])?;
    let equation: String = p.call().string("equation", "")?.chars().filter(|c| *c != ' ').collect();
    let (inputs, output) = match equation.split_once("->") {
        Some((inputs, output)) => (inputs.to_owned(), Some(output.to_owned())),
        None => (equation, None),
    };
    let values = p.given();
    let texts: Vec<&str> = inputs.split(',').collect();
    if texts.len() != values.len() {
        return refuse("has another number of terms than of inputs", "");
    }
    let mut terms = vec![];
    for (text, &value) in texts.iter().zip(&values) {
        terms.push(Term { value, letters: letters(text, p.dims(value).len())? });
    }
    let all: Vec<char> = terms.iter().flat_map(|t| t.letters.clone()).collect();
    let mut ellipsis: Vec<char> = all.iter().copied().filter(char::is_ascii_digit).collect();
    ellipsis.sort_unstable_by(|a, b| b.cmp(a));
    ellipsis.dedup();
    let result: Vec<char> = match output {
        Some(text) => {
            let more = if text.contains("...") { ellipsis.len() } else { 0 };
            letters(&text, text.chars().filter(|c| *c != '.').count() + more)?
        }
        // Letters that occur once, in their order.
        None => {
            let mut once: Vec<char> = all.iter().copied().filter(char::is_ascii_alphabetic).collect();
            once.retain(|c| all.iter().filter(|l| *l == c).count() == 1);
            once.sort_unstable();
            ellipsis.into_iter().chain(once).collect()
        }
    };
    if result.iter().any(|c| !all.contains(c) || result.iter().filter(|l| *l == c).count() > 1) {
        return refuse("its result has a letter twice, or one that no term has", "");
    }
    let mut rest = terms.into_iter();
    let Some(first) = rest.next() else { return refuse("has no terms", "") };
    let rest: Vec<Term> = rest.collect();
    let needed = |after: usize, c: char| {
        result.contains(&c) || rest[after..].iter().any(|term| term.letters.contains(&c))
    };
    let mut product = simplified(p, first, &|c| needed(0, c))?;
    for (i, term) in rest.iter().enumerate() {
        let term = Term { value: term.value, letters: term.letters.clone() };
        let before = product.letters.clone();
        let term = simplified(p, term, &|c| needed(i + 1, c) || before.contains(&c))?;
        product = joined(p, product, term, &|c| needed(i + 1, c))?;
    }
    let order: Vec<usize> =
        result.iter().filter_map(|c| product.letters.iter().position(|l| l == c)).collect();
    Ok(vec![p.transpose(product.value, &order)?])
}

/// The matrix [size·parts, bins·2] that takes rows of real or complex numbers to their transform of
/// `length` numbers.
fn fourier_matrix(
    size: usize,
    parts: usize,
    length: usize,
    bins: usize,
    inverse: bool,
) -> Result<Tensor, Refusal> {
    let to = few(&[size * parts, bins * 2])?;
    let (turn, scale) = if inverse { (2.0 * PI, 1.0 / length as f64) } else { (-2.0 * PI, 1.0) };
    let mut matrix = Vec::with_capacity(to.elements());
    for row in 0..size * parts {
        let (n, imaginary) = (row / parts, row % parts == 1);
        for k in 0..bins {
            // Beyond the length numbers are left out.
            let angle = turn * ((n * k) % length) as f64 / length as f64;
            let (c, s) = if n < length { (angle.cos() * scale, angle.sin() * scale) } else { (0.0, 0.0) };
            let pair = if imaginary { [-s, c] } else { [c, s] };
            matrix.extend(pair.map(|v| v as f32));
        }
    }
    Ok(Tensor::new(to, matrix))
}

/// The transform of [.., size, parts] along the last but one dimension.
fn transformed(p: &mut Parts, x: Id, length: usize, bins: usize, inverse: bool) -> Result<Id, Refusal> {
    let mut dims = p.dims(x);
    let [.., size, parts] = dims[..] else { return refuse("takes [.., n, 1 or 2]", "") };
    if !(1..=2).contains(&parts) || length == 0 || length > 1 << 16 {
        return refuse("takes real numbers [.., 1] or complex ones [.., 2]", "");
    }
    let matrix = fourier_matrix(size, parts, length, bins, inverse)?;
    let matrix = p.constant(matrix);
    dims.truncate(dims.len() - 2);
    let x = p.reshape(x, &[&dims[..], &[size * parts]].concat())?;
    let y = p.of("MatMul", &[x, matrix])?;
    p.reshape(y, &[&dims[..], &[bins, 2]].concat())
}

fn bins(length: usize, onesided: bool) -> usize {
    if onesided { length / 2 + 1 } else { length }
}

fn fourier(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    p.call().only(3, &["axis", "inverse", "onesided"])?;
    let x = p.input(0)?;
    let rank = p.dims(x).len();
    // The axis was an attribute up to operator set 19, and 1 where it was left out.
    let at = match p.has(2) {
        true => p.known_ints(2)?.data.first().copied().unwrap_or(-2),
        false => p.call().int("axis", if p.inputs.len() <= 2 && rank == 3 { 1 } else { -2 })?,
    };
    let along = axis(at, rank)?;
    let (inverse, onesided) = (p.call().int("inverse", 0)? != 0, p.call().int("onesided", 0)? != 0);
    if along + 1 == rank || (inverse && onesided) {
        return refuse("transforms along the parts of numbers, or back from half of a transform", "");
    }
    let length = match p.has(1) {
        true => p.known_ints(1)?.data.first().and_then(|&l| usize::try_from(l).ok()).unwrap_or(0),
        false => p.dims(x)[along],
    };
    let mut order: Vec<usize> = (0..rank).collect();
    order.swap(along, rank - 2);
    let x = p.transpose(x, &order)?;
    let y = transformed(p, x, length, bins(length, onesided), inverse)?;
    Ok(vec![p.transpose(y, &order)?])
}

/// The transforms of overlapping frames of a signal.
fn short_fourier(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    p.call().only(4, &["onesided"])?;
    let x = p.input(0)?;
    let number = |i: usize| -> Result<usize, Refusal> {
        match p.known_ints(i)?.data.first().map(|&v| usize::try_from(v)) {
            Some(Ok(v)) if v > 0 => Ok(v),
            _ => refuse(format!("input {i} is not a size"), ""),
        }
    };
    let step = number(1)?;
    let window = if p.has(2) { Some(p.known_floats(2)?) } else { None };
    let length = match (p.has(3), &window) {
        (true, _) => number(3)?,
        (false, Some(window)) => window.data.len(),
        (false, None) => return refuse("has neither a window nor a length", ""),
    };
    let mut dims = p.dims(x);
    if dims.len() == 2 {
        dims.push(1);
    }
    let &[batch, size, parts] = dims.as_slice() else { return refuse("takes signals [N, n, 1 or 2]", "") };
    let Some(frames) = size.checked_sub(length).map(|space| space / step + 1) else {
        return refuse("a frame is longer than the signal", "");
    };
    few(&[batch, frames, length, parts])?;
    let places: Vec<usize> = (0..frames).flat_map(|f| f * step..f * step + length).collect();
    let x = p.reshape(x, &dims)?;
    let x = p.gather(x, 1, &places)?;
    let mut x = p.reshape(x, &[batch, frames, length, parts])?;
    if let Some(window) = window {
        if window.data.len() != length {
            return refuse("the window has another length than a frame", "");
        }
        let window = p.constant(window.reshape([length, 1]));
        x = p.times(x, window)?;
    }
    let onesided = p.call().int("onesided", 1)? != 0 && parts == 1;
    Ok(vec![transformed(p, x, length, bins(length, onesided), false)?])
}

/// Determinants of small matrices, developed along the first row.
fn determinant(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    p.call().only(1, &[])?;
    let x = p.input(0)?;
    let dims = p.dims(x);
    let &[ref batch @ .., n, m] = dims.as_slice() else { return refuse("takes matrices", "") };
    if n != m || n > 4 {
        return refuse(format!("takes square matrices of up to 4 rows, got {n}×{m}"), "");
    }
    let (count, batch) = (batch.iter().product::<usize>(), batch.to_vec());
    let x = p.reshape(x, &[count, n * n])?;
    let y = minor(p, x, n, &(0..n).collect::<Vec<_>>())?;
    Ok(vec![p.node(
        "Reshape",
        &[y],
        Attributes::none().with("shape", batch.iter().map(|&d| d as i64).collect::<Vec<_>>()),
    )?])
}

/// The determinant of these columns and as many of the last rows of matrices of n rows, as [count,
/// 1].
fn minor(p: &mut Parts, x: Id, n: usize, columns: &[usize]) -> Result<Id, Refusal> {
    let row = n - columns.len();
    let mut sum: Option<Id> = None;
    for (i, &column) in columns.iter().enumerate() {
        let at = row * n + column;
        let mut term = p.slice(x, 1, at..at + 1)?;
        if columns.len() > 1 {
            let rest: Vec<usize> = columns.iter().copied().filter(|c| *c != column).collect();
            let minor = minor(p, x, n, &rest)?;
            term = p.times(term, minor)?;
        }
        sum = Some(match sum {
            None => term,
            Some(sum) if i % 2 == 1 => p.minus(sum, term)?,
            Some(sum) => p.plus(sum, term)?,
        });
    }
    sum.map_or_else(|| refuse("takes matrices of at least one row", ""), Ok)
}
