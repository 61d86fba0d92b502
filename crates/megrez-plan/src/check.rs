//! The types of steps: what each primitive accepts and gives. The same rules build a plan and
//! validate one from a file.

use crate::error::{Mistake, PlanError, refuse};
use crate::{
    BitMatrices, Gives, Kind, List, MAX_DEVIATION, MAX_FACTORS, MAX_OPERANDS, MAX_TERMS, MAX_THRESHOLDS, Op,
    Plan, SignBit, Value,
};
use megrez_ring::Shape;
use std::collections::HashSet;

fn ring_input(v: &Value) -> Result<(&Shape, u32), Mistake> {
    match v.kind {
        Kind::Ring { frac } => Ok((&v.shape, frac)),
        _ => refuse("takes a secret ring value"),
    }
}

/// A ring value, or one that is left as a sum.
fn sum_input(v: &Value) -> Result<(&Shape, u32), Mistake> {
    match v.kind {
        Kind::Ring { frac } | Kind::Additive { frac } => Ok((&v.shape, frac)),
        _ => refuse("takes a secret ring value"),
    }
}

/// What x is, with so many fraction bits: a sum if it is one.
fn at_scale(x: &Value, frac: u32) -> Kind {
    match x.kind {
        Kind::Additive { .. } => Kind::Additive { frac },
        _ => Kind::Ring { frac },
    }
}

fn bit_input(v: &Value) -> Result<&Shape, Mistake> {
    match v.kind {
        Kind::Bit => Ok(&v.shape),
        _ => refuse("takes a secret bit"),
    }
}

fn arity<const N: usize>(inputs: &[&Value]) -> Result<[Value; N], Mistake> {
    match inputs.iter().map(|&v| v.clone()).collect::<Vec<_>>().try_into() {
        Ok(values) => Ok(values),
        Err(_) => refuse(format!("takes {N} inputs, has {}", inputs.len())),
    }
}

fn few_factors(inputs: &[&Value]) -> Result<(), Mistake> {
    match inputs.len() {
        2..=MAX_FACTORS => Ok(()),
        n => refuse(format!("takes 2 to {MAX_FACTORS} inputs, has {n}")),
    }
}

/// The kind of a product: secret if either operand is; scales add. A sum times what is public is a
/// sum.
fn product(a: Kind, b: Kind) -> Result<Kind, Mistake> {
    match (a, b) {
        (Kind::Additive { frac: x }, Kind::Public { frac: y })
        | (Kind::Public { frac: x }, Kind::Additive { frac: y }) => Ok(Kind::Additive { frac: x + y }),
        (Kind::Ring { frac: x }, Kind::Ring { frac: y })
        | (Kind::Ring { frac: x }, Kind::Public { frac: y })
        | (Kind::Public { frac: x }, Kind::Ring { frac: y }) => Ok(Kind::Ring { frac: x + y }),
        _ => refuse("multiplies ring values, at least one of them secret"),
    }
}

impl SignBit {
    fn check(&self, ring: u32) -> Result<(), Mistake> {
        let width = self.bits.unwrap_or(ring.saturating_sub(self.cut));
        // One after the other: numbers from elsewhere may be as large as they like.
        if self.cut >= ring || width < 2 || width > ring - self.cut {
            return refuse(format!("cannot compare {width} bits after cutting {} of {ring}", self.cut));
        }
        match &self.list {
            List::Bits | List::Tree => Ok(()),
            List::Digits(widths) if widths.iter().any(|&w| !(1..=8).contains(&w)) => {
                refuse("digit widths are 1 to 8 bits")
            }
            List::Digits(widths) if widths.iter().sum::<u32>() != width - 1 => {
                refuse(format!("digit widths {widths:?} do not sum to {} bits", width - 1))
            }
            List::Digits(_) => Ok(()),
        }
    }
}

impl Op {
    /// A selection without a truncation.
    pub const SELECT: Op = Op::Select { truncate: 0 };

    /// The type of the result on inputs of these types, on a ring of `ring` bits.
    pub(crate) fn output(&self, inputs: &[&Value], ring: u32) -> Result<Value, Mistake> {
        let value = match self {
            Op::Constant { shape, frac, words } => {
                arity::<0>(inputs)?;
                if shape.clone().checked().is_err() || words.len() != shape.elements() {
                    return refuse("the constant's words do not fill its shape");
                }
                Value { shape: shape.clone(), kind: Kind::Public { frac: *frac } }
            }
            Op::Noise { shape, frac, deviation } => {
                arity::<0>(inputs)?;
                if shape.clone().checked().is_err() || *deviation > MAX_DEVIATION {
                    return refuse(format!("draws noise of a deviation up to {MAX_DEVIATION}"));
                }
                Value { shape: shape.clone(), kind: Kind::Ring { frac: *frac } }
            }
            Op::Combine { coefficients, .. } => {
                let Some(first) = inputs.first() else { return refuse("takes at least one input") };
                let (shape, frac) = sum_input(first)?;
                for v in inputs {
                    if sum_input(v)? != (shape, frac) || coefficients.len() != inputs.len() {
                        return refuse("takes one coefficient per input, all inputs of one shape and scale");
                    }
                }
                let sum = inputs.iter().find(|v| matches!(v.kind, Kind::Additive { .. }));
                (*sum.unwrap_or(first)).clone()
            }
            Op::View(view) => {
                let [x] = arity(inputs)?;
                if view.shape.clone().checked().is_err() || !view.fits(x.shape.elements()) {
                    return refuse("the view reaches outside its input");
                }
                Value { shape: view.shape.clone(), kind: x.kind }
            }
            Op::Concat { axis } => {
                let Some(first) = inputs.first() else { return refuse("takes at least one input") };
                let mut dims = first.shape.dims().to_vec();
                if *axis >= dims.len() {
                    return refuse("the axis is outside the shape");
                }
                dims[*axis] = 0;
                for v in inputs {
                    let fits = v.kind == first.kind
                        && v.shape.rank() == dims.len()
                        && (0..dims.len()).all(|d| d == *axis || v.shape.dims()[d] == dims[d]);
                    if !fits {
                        return refuse("inputs differ in scale or off the axis");
                    }
                    dims[*axis] += v.shape.dims()[*axis];
                }
                Value { shape: dims.into(), kind: first.kind }
            }
            Op::Pad { before, after } => {
                let [x] = arity(inputs)?;
                if before.len() != x.shape.rank() || after.len() != x.shape.rank() {
                    return refuse("takes two pads per dimension");
                }
                let dims: Option<Vec<usize>> = (x.shape.dims().iter().zip(before).zip(after))
                    .map(|((d, b), a)| d.checked_add(*b)?.checked_add(*a))
                    .collect();
                let Some(dims) = dims else { return refuse("the pads are absurd") };
                Value { shape: dims.into(), kind: x.kind }
            }
            Op::Sum { axis } => {
                let [x] = arity(inputs)?;
                sum_input(&x)?;
                let mut dims = x.shape.dims().to_vec();
                match dims.get_mut(*axis) {
                    Some(dim) => *dim = 1,
                    None => return refuse("the axis is outside the shape"),
                }
                Value { shape: dims.into(), kind: x.kind }
            }
            Op::Gather { axis, indices } => {
                let [x] = arity(inputs)?;
                let mut dims = x.shape.dims().to_vec();
                match dims.get_mut(*axis) {
                    Some(dim) if indices.iter().all(|i| i < dim) => *dim = indices.len(),
                    _ => return refuse("an index is outside the axis"),
                }
                Value { shape: dims.into(), kind: x.kind }
            }
            Op::TimesPublic(matrix) => {
                let [x] = arity(inputs)?;
                matrix.check()?;
                let (shape, frac) = sum_input(&x)?;
                let mut dims = shape.dims().to_vec();
                match dims.last_mut() {
                    Some(last) if *last == matrix.rows() => *last = matrix.columns(),
                    _ => return refuse(format!("multiplies {shape} by a matrix of {} rows", matrix.rows())),
                }
                Value { shape: dims.into(), kind: at_scale(&x, frac + matrix.frac()) }
            }
            Op::Rescale { frac } => {
                let [x] = arity(inputs)?;
                Value { shape: sum_input(&x)?.0.clone(), kind: at_scale(&x, *frac) }
            }
            Op::Additive(step) => {
                let products = matches!(**step, Op::Mul | Op::MatMul | Op::Conv(_)) && inputs.len() == 2;
                if !products && !matches!(**step, Op::Lookup(_) | Op::BitToRing) {
                    return refuse(
                        "leaves only products of two values, functions by pieces and bits as numbers unshared",
                    );
                }
                if **step != Op::BitToRing {
                    inputs.iter().try_for_each(|x| ring_input(x).map(drop))?;
                }
                let shared = step.output(inputs, ring)?;
                Value { kind: Kind::Additive { frac: ring_input(&shared)?.1 }, shape: shared.shape }
            }
            Op::Reshare => match arity(inputs)? {
                [Value { shape, kind: Kind::Additive { frac } }] => {
                    Value { shape, kind: Kind::Ring { frac } }
                }
                _ => return refuse("shares what was left as a sum"),
            },
            Op::Mul => {
                few_factors(inputs)?;
                let shape = &inputs[0].shape;
                if let Some(other) = inputs.iter().find(|v| v.shape != *shape) {
                    return refuse(format!("multiplies {shape} by {}", other.shape));
                }
                if inputs.len() > 2 && !inputs.iter().all(|v| matches!(v.kind, Kind::Ring { .. })) {
                    return refuse("multiplies more than two values only if all are secret ring values");
                }
                let kind = inputs[1..].iter().try_fold(inputs[0].kind, |kind, v| product(kind, v.kind))?;
                Value { kind, shape: shape.clone() }
            }
            Op::MatMul => {
                let [x, y] = arity(inputs)?;
                let (a, b) = (x.shape.dims(), y.shape.dims());
                let rank = a.len();
                if rank < 2 || b.len() != rank || a[..rank - 2] != b[..rank - 2] || a[rank - 1] != b[rank - 2]
                {
                    return refuse(format!("cannot multiply matrices {} by {}", x.shape, y.shape));
                }
                let mut dims = a.to_vec();
                dims[rank - 1] = b[rank - 1];
                Value { shape: dims.into(), kind: product(x.kind, y.kind)? }
            }
            Op::Conv(geometry) => {
                let [x, w] = arity(inputs)?;
                let (&[n, c, h, width], &[out, per_group, kh, kw]) = (x.shape.dims(), w.shape.dims()) else {
                    return refuse("convolves NCHW with OIHW");
                };
                let groups = geometry.groups;
                if groups == 0 || c % groups != 0 || out % groups != 0 || c / groups != per_group {
                    return refuse(format!(
                        "{c} channels, {groups} groups and a kernel {} do not fit",
                        w.shape
                    ));
                }
                let Some([rows, columns]) = geometry.output([h, width], [kh, kw]) else {
                    return refuse(format!("the kernel {kh}×{kw} does not fit the image {h}×{width}"));
                };
                Value { shape: [n, out, rows, columns].into(), kind: product(x.kind, w.kind)? }
            }
            Op::Truncate { bits } => {
                let [x] = arity(inputs)?;
                let (shape, frac) = sum_input(&x)?;
                if *bits == 0 || *bits > frac || *bits + 2 >= ring {
                    return refuse(format!("cannot drop {bits} of {frac} fraction bits"));
                }
                Value { shape: shape.clone(), kind: Kind::Ring { frac: frac - bits } }
            }
            Op::NonNegative(sign) => {
                let [x] = arity(inputs)?;
                sign.check(ring)?;
                Value { shape: ring_input(&x)?.0.clone(), kind: Kind::Bit }
            }
            Op::CompareMany { sign, thresholds } => {
                let [x] = arity(inputs)?;
                sign.check(ring)?;
                if !(1..=MAX_THRESHOLDS).contains(&thresholds.len()) {
                    return refuse(format!("compares with 1 to {MAX_THRESHOLDS} thresholds"));
                }
                let half = 1i128 << (ring - 1);
                if let Some(t) = thresholds.iter().find(|&&t| !(-half..half).contains(&i128::from(t))) {
                    return refuse(format!("the threshold {t} does not fit {ring} bits"));
                }
                let dims = [&[thresholds.len()], ring_input(&x)?.0.dims()].concat();
                Value { shape: dims.into(), kind: Kind::Bit }
            }
            Op::Relu(relu) => {
                let [x] = arity(inputs)?;
                relu.sign.check(ring)?;
                let (shape, frac) = if relu.truncate > 0 { sum_input(&x)? } else { ring_input(&x)? };
                if relu.truncate > frac || relu.truncate + 2 >= ring {
                    return refuse(format!("cannot drop {} of {frac} fraction bits", relu.truncate));
                }
                Value { shape: shape.clone(), kind: Kind::Ring { frac: frac - relu.truncate } }
            }
            Op::Maximum(sign) => {
                if !(2..=MAX_OPERANDS).contains(&inputs.len()) {
                    return refuse(format!("takes 2 to {MAX_OPERANDS} inputs, has {}", inputs.len()));
                }
                sign.check(ring)?;
                ring_input(inputs[0])?;
                if inputs.iter().any(|v| *v != inputs[0]) {
                    return refuse("takes inputs of one shape and scale");
                }
                inputs[0].clone()
            }
            Op::Offloaded(step) => {
                if !matches!(**step, Op::Relu(_) | Op::Maximum(_) | Op::Lookup(_) | Op::Winner(_)) {
                    return refuse("deals only ReLUs, maxima, tables and winners");
                }
                inputs.iter().try_for_each(|x| ring_input(x).map(drop))?;
                step.output(inputs, ring)?
            }
            Op::ToBits => {
                let [x] = arity(inputs)?;
                let dims = [&[ring as usize], ring_input(&x)?.0.dims()].concat();
                Value { shape: dims.into(), kind: Kind::Bit }
            }
            Op::FromBits => {
                let [b] = arity(inputs)?;
                match bit_input(&b)?.dims() {
                    [bits, dims @ ..] if *bits == ring as usize => {
                        Value { shape: dims.to_vec().into(), kind: Kind::Ring { frac: 0 } }
                    }
                    _ => return refuse(format!("takes {ring} bits along the first dimension")),
                }
            }
            Op::AddBits => {
                let [a, b] = arity(inputs)?;
                if bit_input(&a)? != bit_input(&b)? || a.shape.dims().first().is_none_or(|&n| n < 2) {
                    return refuse("adds values of one shape, of at least two bits");
                }
                a
            }
            Op::LowBit => {
                let [x] = arity(inputs)?;
                Value { shape: ring_input(&x)?.0.clone(), kind: Kind::Bit }
            }
            Op::BitMatMul => {
                let [x, y] = arity(inputs)?;
                let sizes = BitMatrices::of(bit_input(&x)?, bit_input(&y)?);
                let Some(sizes) = sizes else {
                    return refuse(format!("cannot multiply matrices of bits {} by {}", x.shape, y.shape));
                };
                Value { shape: sizes.output(), kind: Kind::Bit }
            }
            Op::BitPolynomials { sums } => {
                let [x] = arity(inputs)?;
                let Some((slices, rest)) = bit_input(&x)?.dims().split_first() else {
                    return refuse("takes slices along a first dimension, and there is none");
                };
                let term = |term: &Vec<usize>| {
                    (1..=MAX_FACTORS).contains(&term.len())
                        && term.windows(2).all(|pair| pair[0] < pair[1])
                        && term.iter().all(|slice| slice < slices)
                };
                let sum =
                    |sum: &Vec<Vec<usize>>| (1..=MAX_TERMS).contains(&sum.len()) && sum.iter().all(term);
                if sums.is_empty() || !sums.iter().all(sum) {
                    return refuse(format!(
                        "its polynomials are not of 1 to {MAX_TERMS} terms of 1 to {MAX_FACTORS} of {slices} slices"
                    ));
                }
                Value { shape: [&[sums.len()], rest].concat().into(), kind: Kind::Bit }
            }
            Op::Select { truncate } => {
                let [b, x] = arity(inputs)?;
                let (shape, frac) = ring_input(&x)?;
                if bit_input(&b)? != shape {
                    return refuse("the bit and the value differ in shape");
                }
                if *truncate > 0 && (*truncate > frac || truncate.saturating_add(2) >= ring) {
                    return refuse(format!("cannot drop {truncate} of {frac} fraction bits"));
                }
                Value { shape: shape.clone(), kind: Kind::Ring { frac: frac - truncate } }
            }
            Op::SelectSum { groups } => {
                let [b, x] = arity(inputs)?;
                let (shape, frac) = ring_input(&x)?;
                if bit_input(&b)? != shape {
                    return refuse("the bits and the values differ in shape");
                }
                let Some((rows, rest)) = shape.dims().split_first() else {
                    return refuse("adds up along a first dimension, and there is none");
                };
                let sum = groups.iter().try_fold(0usize, |sum, &n| sum.checked_add(n).filter(|_| n > 0));
                if groups.is_empty() || sum != Some(*rows) {
                    return refuse(format!("its groups are not those of {rows} values"));
                }
                let dims = [&[groups.len()], rest].concat();
                Value { shape: dims.into(), kind: Kind::Ring { frac } }
            }
            Op::MulTruncated { bits } => {
                if !(1..=2).contains(&inputs.len()) || bits.len() != inputs.len() {
                    return refuse("multiplies two values, or one by itself, and has bits to drop of each");
                }
                let (shape, mut left) = (ring_input(inputs[0])?.0.clone(), 0);
                for (&dropped, x) in bits.iter().zip(inputs) {
                    let (other, frac) = ring_input(x)?;
                    if *other != shape {
                        return refuse(format!("multiplies {shape} by {other}"));
                    }
                    if dropped > frac || dropped.saturating_add(2) >= ring {
                        return refuse(format!("cannot drop {dropped} of {frac} fraction bits"));
                    }
                    left += frac - dropped;
                }
                let twice = if bits.len() == 1 { 2 } else { 1 };
                let all = twice * bits.iter().sum::<u32>();
                if all == 0 || all > ring {
                    return refuse(format!("drops {all} bits of both factors, of 1 to {ring}"));
                }
                Value { shape, kind: Kind::Ring { frac: twice * left } }
            }
            Op::BitToRing => {
                let [b] = arity(inputs)?;
                Value { shape: bit_input(&b)?.clone(), kind: Kind::Ring { frac: 0 } }
            }
            Op::And => {
                few_factors(inputs)?;
                let first = bit_input(inputs[0])?;
                for other in &inputs[1..] {
                    if bit_input(other)? != first {
                        return refuse("the bits differ in shape");
                    }
                }
                inputs[0].clone()
            }
            Op::Xor => {
                let [a, b] = arity(inputs)?;
                if bit_input(&a)? != bit_input(&b)? {
                    return refuse("the bits differ in shape");
                }
                a
            }
            Op::Not => {
                let [a] = arity(inputs)?;
                bit_input(&a)?;
                a
            }
            Op::Lookup(lookup) => {
                let [x] = arity(inputs)?;
                let (shape, frac) = ring_input(&x)?;
                lookup.check(ring, frac, shape.elements())?;
                Value { shape: shape.clone(), kind: Kind::Ring { frac: lookup.frac } }
            }
            Op::Winner(winner) => {
                let [x] = arity(inputs)?;
                let (shape, frac) = ring_input(&x)?;
                let frac = if winner.gives == Gives::Value { frac } else { 0 };
                Value { shape: winner.output(ring, shape)?, kind: Kind::Ring { frac } }
            }
        };
        sane(&value)?;
        Ok(value)
    }
}

/// More fraction bits than this no plan has: sums of them stay far below what a number holds.
const MAX_FRAC: u32 = 1 << 12;

/// Bounds what a value says of itself, before anything is computed with it.
fn sane(value: &Value) -> Result<(), Mistake> {
    if let Kind::Ring { frac } | Kind::Public { frac } | Kind::Additive { frac } = value.kind
        && frac > MAX_FRAC
    {
        return refuse(format!("{frac} fraction bits are more than {MAX_FRAC}"));
    }
    value.shape.clone().checked().map(drop).or_else(|e| refuse(e.to_string()))
}

impl Plan {
    /// Checks a plan that came from elsewhere: every value defined once and before use, every type
    /// as the rules give it, names unique, owners and recipients named.
    pub fn validate(&self) -> Result<(), PlanError> {
        let fail = |step: &str, what: &str| Err(PlanError::Step { step: step.into(), what: what.into() });
        if ![8, 16, 32, 40, 48, 64].contains(&self.ring) {
            return fail("(plan)", "the ring is not one of 8, 16, 32, 40, 48, 64 bits");
        }
        self.values.iter().try_for_each(sane).map_err(|e| e.at("(plan)"))?;
        let mut defined = HashSet::new();
        let mut names = HashSet::new();
        for input in &self.inputs {
            let known = self.values.get(input.value.0 as usize);
            let Some(Value { kind: Kind::Ring { .. }, .. }) = known else {
                return fail(&input.name, "an input is a secret ring value");
            };
            if input.owner.is_empty() {
                return fail(&input.name, "an input has an owner");
            }
            if !defined.insert(input.value) || !names.insert(format!("input/{}", input.name)) {
                return fail(&input.name, "an input is defined twice");
            }
        }
        for step in &self.steps {
            if step.name.is_empty() || !names.insert(step.name.clone()) {
                return fail(&step.name, "the name is empty or not unique");
            }
            if !step.inputs.iter().all(|i| defined.contains(i)) {
                return fail(&step.name, "uses a value before it is defined");
            }
            let types: Vec<&Value> = step.inputs.iter().map(|&i| self.value(i)).collect();
            let expected = step.op.output(&types, self.ring).map_err(|e| e.at(&step.name))?;
            if self.values.get(step.output.0 as usize) != Some(&expected) || !defined.insert(step.output) {
                return fail(&step.name, "its output is declared wrongly or twice");
            }
        }
        for output in &self.outputs {
            let shared = defined.contains(&output.value)
                && !matches!(self.value(output.value).kind, Kind::Additive { .. });
            if !shared || output.recipient.is_empty() {
                return fail(&output.name, "an output is a defined and shared value and has a recipient");
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
