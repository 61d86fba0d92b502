//! What takes elements by public places: local rearrangements of one value or of several.

use super::parts::Place;
use super::{Decompose, Parts};
use crate::graph::{Attributes, Id};
use crate::layers::axis;
use crate::problem::{Refusal, refuse};
use crate::tensor::{Tensor, sane};
use megrez_ring::Shape;

pub(super) const TABLE: &[(&str, Decompose)] = &[
    ("CenterCropPad", center_crop_pad),
    ("Compress", compress),
    ("DepthToSpace", depth_to_space),
    ("Dropout", dropout),
    ("GatherElements", gather_elements),
    ("GatherND", gather_nd),
    ("OneHot", one_hot),
    ("Pad", pad),
    ("ReverseSequence", reverse_sequence),
    ("SpaceToDepth", space_to_depth),
    ("Split", split),
    ("Tile", tile),
    ("Trilu", trilu),
];

/// The most elements that are rearranged one by one.
const MOST: usize = 1 << 24;

/// An index counted from the end if negative.
pub(super) fn index(i: i64, size: usize) -> Result<usize, Refusal> {
    let place = if i < 0 { i.saturating_add(size as i64) } else { i };
    match usize::try_from(place) {
        Ok(place) if place < size => Ok(place),
        _ => refuse(format!("index {i} is outside of an axis of {size}"), ""),
    }
}

/// The coordinates of an element.
pub(super) fn coordinates(dims: &[usize], element: usize) -> Vec<usize> {
    let mut rest = element;
    let mut at = vec![0; dims.len()];
    for d in (0..dims.len()).rev() {
        at[d] = rest % dims[d];
        rest /= dims[d];
    }
    at
}

/// The number of the element at these coordinates.
pub(super) fn element(dims: &[usize], at: &[usize]) -> usize {
    dims.iter().zip(at).fold(0, |n, (d, i)| n * d + i)
}

/// The shape of a rearrangement element by element, if it has no more elements than a compiler
/// should list.
pub(super) fn few(shape: &[usize]) -> Result<Shape, Refusal> {
    match sane(Shape::new(shape)) {
        Ok(shape) if shape.elements() <= MOST => Ok(shape),
        _ => refuse(format!("rearranges {shape:?}, more than {MOST} elements"), "use a smaller batch"),
    }
}

/// A rearrangement of the node's first input: for each element of the result, where it comes from.
fn rearranged(
    p: &mut Parts,
    shape: &[usize],
    from: impl Fn(&[usize]) -> Result<Option<usize>, Refusal>,
) -> Result<Vec<Id>, Refusal> {
    let x = p.input(0)?;
    let to = few(shape)?;
    let places = (0..to.elements()).map(|i| Ok(from(&coordinates(shape, i))?.map(|at| (0, at))));
    let places = places.collect::<Result<Vec<Place>, Refusal>>()?;
    Ok(vec![p.places(&[x], shape, &places)?])
}

fn gather_elements(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    p.call().only(2, &["axis"])?;
    let x = p.input(0)?;
    if p.is_constant(x) && p.call().shape(0).is_err() {
        return p.itself();
    }
    let (dims, indices) = (p.dims(x), p.known_ints(1)?);
    let along = axis(p.call().int("axis", 0)?, dims.len())?;
    let to = indices.shape.dims().to_vec();
    if to.len() != dims.len() || (0..dims.len()).any(|d| d != along && to[d] > dims[d]) {
        return refuse("the indices have another shape than the data", "");
    }
    rearranged(p, &to, |at| {
        let mut from = at.to_vec();
        from[along] = index(indices.data[element(&to, at)], dims[along])?;
        Ok(Some(element(&dims, &from)))
    })
}

fn gather_nd(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    p.call().only(2, &["batch_dims"])?;
    let x = p.input(0)?;
    let (dims, indices) = (p.dims(x), p.known_ints(1)?);
    let batch = usize::try_from(p.call().int("batch_dims", 0)?).unwrap_or(usize::MAX);
    let lists = indices.shape.dims().to_vec();
    let Some((&depth, outer)) = lists.split_last() else { return refuse("the indices are one number", "") };
    if batch > outer.len() || batch + depth > dims.len() || dims[..batch] != outer[..batch] {
        return refuse("the indices do not fit the data", "");
    }
    let rest = &dims[batch + depth..];
    let shape = [outer, rest].concat();
    rearranged(p, &shape, |at| {
        let list = element(outer, &at[..outer.len()]) * depth;
        let mut from = at[..batch].to_vec();
        for d in 0..depth {
            from.push(index(indices.data[list + d], dims[batch + d])?);
        }
        from.extend(&at[outer.len()..]);
        Ok(Some(element(&dims, &from)))
    })
}

fn tile(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    p.call().only(2, &[])?;
    let x = p.input(0)?;
    let (dims, repeats) = (p.dims(x), p.known_ints(1)?);
    let repeats = repeats.data.iter().map(|&r| usize::try_from(r)).collect::<Result<Vec<_>, _>>();
    let Some(repeats) = repeats.ok().filter(|r| r.len() == dims.len()) else {
        return refuse("`repeats` is not one number of copies per dimension", "");
    };
    // Copies beside elements as dimensions of their own, without steps: one view.
    let shape: Option<Vec<usize>> = dims.iter().zip(&repeats).map(|(d, r)| d.checked_mul(*r)).collect();
    let Some(shape) = shape else { return refuse("makes too many copies", "") };
    sane(Shape::new(shape.clone()))?;
    if 2 * dims.len() <= 8 {
        let spread: Vec<usize> = dims.iter().flat_map(|&d| [1, d]).collect();
        let copies: Vec<usize> = dims.iter().zip(&repeats).flat_map(|(&d, &r)| [r, d]).collect();
        let x = p.reshape(x, &spread)?;
        let copies = p.ints(&copies);
        let x = p.of("Expand", &[x, copies])?;
        return Ok(vec![p.reshape(x, &shape)?]);
    }
    rearranged(p, &shape, |at| {
        let from: Vec<usize> = at.iter().zip(&dims).map(|(i, d)| i % d).collect();
        Ok(Some(element(&dims, &from)))
    })
}

fn block(p: &Parts) -> Result<([usize; 4], usize), Refusal> {
    let dims = crate::layers::image(p.call().shape(0)?)?;
    match usize::try_from(p.call().int("blocksize", 0)?) {
        Ok(block) if (1..1 << 16).contains(&block) => Ok((dims, block)),
        _ => refuse("`blocksize` is not a size", ""),
    }
}

fn depth_to_space(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    p.call().only(1, &["blocksize", "mode"])?;
    let ([n, c, h, w], b) = block(p)?;
    if c % (b * b) != 0 {
        return refuse("the channels are no multiple of the block", "");
    }
    let (x, depth) = (p.input(0)?, c / (b * b));
    let y = match p.call().string("mode", "DCR")?.as_str() {
        "DCR" => {
            let x = p.reshape(x, &[n, b, b, depth, h, w])?;
            p.transpose(x, &[0, 3, 4, 1, 5, 2])?
        }
        "CRD" => {
            let x = p.reshape(x, &[n, depth, b, b, h, w])?;
            p.transpose(x, &[0, 1, 4, 2, 5, 3])?
        }
        other => return refuse(format!("the mode `{other}` is not known"), ""),
    };
    Ok(vec![p.reshape(y, &[n, depth, h * b, w * b])?])
}

fn space_to_depth(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    p.call().only(1, &["blocksize"])?;
    let ([n, c, h, w], b) = block(p)?;
    if h % b != 0 || w % b != 0 {
        return refuse("the image is no multiple of the block", "");
    }
    let x = p.input(0)?;
    let x = p.reshape(x, &[n, c, h / b, b, w / b, b])?;
    let x = p.transpose(x, &[0, 3, 5, 1, 2, 4])?;
    Ok(vec![p.reshape(x, &[n, c * b * b, h / b, w / b])?])
}

/// Rows of zeros with a one, for indices that are known.
fn one_hot(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    p.call().only(3, &["axis"])?;
    let x = p.input(0)?;
    let [depth] = p.known_floats(1)?.data[..] else { return refuse("its depth is not one number", "") };
    let [off, on] = p.known_floats(2)?.data[..] else { return refuse("its values are not two numbers", "") };
    if !(1.0..=4096.0).contains(&depth) || depth.fract() != 0.0 {
        return refuse(format!("its depth is {depth}"), "use a whole number from 1 to 4096");
    }
    let mut dims = p.dims(x);
    let at = axis(p.call().int("axis", -1)?, dims.len() + 1)?;
    dims.insert(at, 1);
    let x = p.reshape(x, &dims)?;
    // [x = i], and an index below 0 counts from the end.
    let mut along = vec![1; dims.len()];
    along[at] = depth as usize;
    let numbers =
        |from: f32| Tensor::new(along.clone(), (0..depth as usize).map(|i| i as f32 + from).collect());
    let [low, high] = [-depth, 0.0].map(numbers);
    let [low, high] = [p.constant(low), p.constant(high)];
    let [low, high] = [p.of("Equal", &[x, low])?, p.of("Equal", &[x, high])?];
    let hit = p.of("Or", &[low, high])?;
    Ok(vec![p.affine(hit, on - off, off)?])
}

/// Pads of every mode; the layer has zeros around a value.
fn pad(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    p.call().only(4, &["mode", "pads", "value"])?;
    let x = p.input(0)?;
    let dims = p.dims(x);
    let mode = p.call().string("mode", "constant")?;
    let pads = p.call().integers(1, "pads")?.unwrap_or_default();
    let axes = match p.has(3) {
        true => p.known_ints(3)?.data.iter().map(|&a| axis(a, dims.len())).collect::<Result<Vec<_>, _>>()?,
        false => (0..dims.len()).collect(),
    };
    if pads.len() != 2 * axes.len() || pads.iter().any(|p| p.unsigned_abs() > 1 << 24) {
        return refuse(
            format!("`pads` = {pads:?} are not two sizes for each of {} dimensions", axes.len()),
            "",
        );
    }
    let mut around = vec![[0i64; 2]; dims.len()];
    for (i, &axis) in axes.iter().enumerate() {
        around[axis] = [pads[i], pads[axes.len() + i]];
    }
    let value =
        if p.has(2) { p.known_floats(2)?.data.first().copied() } else { p.call().number(9, "value")? };
    let value = value.unwrap_or(0.0);
    let constant = mode == "constant";
    if constant && value == 0.0 && around.iter().flatten().all(|&p| p >= 0) {
        let pads: Vec<i64> = [0, 1].iter().flat_map(|&side| around.iter().map(move |a| a[side])).collect();
        return Ok(vec![p.layer("Pad", &[Some(x)], Attributes::none().with("pads", pads))?]);
    }
    let size = |(d, [before, after]): (&usize, &[i64; 2])| usize::try_from(*d as i64 + before + after).ok();
    let Some(shape) = dims.iter().zip(&around).map(size).collect::<Option<Vec<usize>>>() else {
        return refuse("takes away more than there is", "");
    };
    let from = |at: &[usize]| -> Result<Option<usize>, Refusal> {
        let mut place = vec![];
        for ((&i, &n), [before, _]) in at.iter().zip(&dims).zip(&around) {
            let (i, n) = (i as i64 - before, n as i64);
            let inside = match mode.as_str() {
                _ if (0..n).contains(&i) => i,
                "constant" => return Ok(None),
                "edge" => i.clamp(0, n - 1),
                "wrap" => i.rem_euclid(n),
                "reflect" => {
                    let turn = (2 * (n - 1)).max(1);
                    let i = i.rem_euclid(turn);
                    i.min(turn - i).min(n - 1)
                }
                other => return refuse(format!("the mode `{other}` is not known"), ""),
            };
            place.push(inside as usize);
        }
        Ok(Some(element(&dims, &place)))
    };
    let padded = rearranged(p, &shape, from)?[0];
    if !constant || value == 0.0 {
        return Ok(vec![padded]);
    }
    let to = few(&shape)?;
    let fill =
        (0..to.elements()).map(|i| Ok(if from(&coordinates(&shape, i))?.is_none() { value } else { 0.0 }));
    let fill = Tensor::new(to.clone(), fill.collect::<Result<Vec<f32>, Refusal>>()?);
    let fill = p.constant(fill);
    Ok(vec![p.plus(padded, fill)?])
}

fn reverse_sequence(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    p.call().only(2, &["batch_axis", "time_axis"])?;
    let x = p.input(0)?;
    let (dims, lengths) = (p.dims(x), p.known_ints(1)?);
    let time = axis(p.call().int("time_axis", 0)?, dims.len())?;
    let batch = axis(p.call().int("batch_axis", 1)?, dims.len())?;
    if lengths.data.len() != dims[batch] {
        return refuse("has another number of lengths than of sequences", "");
    }
    rearranged(p, &dims, |at| {
        let length = lengths.data[at[batch]];
        let mut from = at.to_vec();
        if (at[time] as i64) < length {
            from[time] = index(length - 1 - at[time] as i64, dims[time])?;
        }
        Ok(Some(element(&dims, &from)))
    })
}

fn center_crop_pad(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    p.call().only(2, &["axes"])?;
    let x = p.input(0)?;
    let (dims, sizes) = (p.dims(x), p.known_ints(1)?);
    let axes = p.call().ints("axes")?.unwrap_or_else(|| (0..dims.len() as i64).collect());
    let axes = axes.iter().map(|&a| axis(a, dims.len())).collect::<Result<Vec<_>, _>>()?;
    let mut shape = dims.clone();
    for (&axis, &size) in axes.iter().zip(&sizes.data) {
        shape[axis] = usize::try_from(size).ok().filter(|&s| s > 0).unwrap_or(usize::MAX);
    }
    let to = shape.clone();
    rearranged(p, &shape, |at| {
        let mut from = vec![];
        for d in 0..dims.len() {
            let i = if to[d] <= dims[d] {
                Some(at[d] + (dims[d] - to[d]) / 2)
            } else {
                at[d].checked_sub((to[d] - dims[d]) / 2).filter(|&i| i < dims[d])
            };
            let Some(i) = i else { return Ok(None) };
            from.push(i);
        }
        Ok(Some(element(&dims, &from)))
    })
}

fn compress(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    p.call().only(2, &["axis"])?;
    let (x, condition) = (p.input(0)?, p.known_ints(1)?);
    let n = p.graph.shape(x).elements();
    let (x, at) = match p.attributes.0.get("axis") {
        Some(_) => (x, axis(p.call().int("axis", 0)?, p.dims(x).len())?),
        None => (p.reshape(x, &[n])?, 0),
    };
    let size = p.dims(x)[at];
    let kept: Vec<usize> = (0..size.min(condition.data.len())).filter(|&i| condition.data[i] != 0).collect();
    Ok(vec![p.gather(x, at, &kept)?])
}

/// The triangle of a secret, by zeros and ones that everybody may know.
fn trilu(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    p.call().only(2, &["upper"])?;
    let x = p.input(0)?;
    if p.is_constant(x) {
        return p.itself();
    }
    let upper = p.call().int("upper", 1)? != 0;
    let k = if p.has(1) { p.known_ints(1)?.data.first().copied().unwrap_or(0) } else { 0 };
    let dims = p.dims(x);
    let &[.., _, _] = dims.as_slice() else { return refuse("takes matrices", "") };
    rearranged(p, &dims, |at| {
        let [.., r, c] = at else { unreachable!("matrices have two dimensions") };
        let above = *c as i64 - *r as i64;
        let keeps = if upper { above >= k } else { above <= k };
        Ok(keeps.then(|| element(&dims, at)))
    })
}

/// The data as it is, and where they were kept: everywhere, because nothing trains here.
fn dropout(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    let mut outputs = p.itself()?;
    if p.reads(1) {
        let shape = few(&p.dims(outputs[0]))?;
        outputs.push(p.constant(Tensor::filled(shape, 1i64)));
    }
    Ok(outputs)
}

/// One slice per output.
fn split(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    p.call().only(2, &["axis", "split", "num_outputs"])?;
    let x = p.input(0)?;
    let dims = p.dims(x);
    let at = axis(p.call().int("axis", 0)?, dims.len())?;
    let (total, parts) = (dims[at], p.read.len());
    if p.call().int("num_outputs", parts as i64)? != parts as i64 {
        return refuse("has another number of outputs than it says", "export the model again");
    }
    let sizes = match p.call().integers(1, "split")? {
        Some(sizes) => {
            sizes.iter().map(|&s| usize::try_from(s).unwrap_or(usize::MAX)).collect::<Vec<usize>>()
        }
        // Equal parts, the last one smaller.
        None => {
            let part = total.div_ceil(parts.max(1));
            (0..parts).map(|i| part.min(total.saturating_sub(i * part))).collect()
        }
    };
    let sum = sizes.iter().try_fold(0usize, |sum, &s| sum.checked_add(s));
    if sizes.len() != parts || sizes.contains(&0) || sum != Some(total) {
        return refuse("has sizes that do not make up the dimension", "export the model again");
    }
    let mut start = 0;
    let mut slices = vec![];
    for size in sizes {
        slices.push(p.slice(x, at, start..start + size)?);
        start += size;
    }
    Ok(slices)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coordinates_and_elements_are_inverse() {
        let dims = [2, 3, 4];
        assert!((0..24).all(|i| element(&dims, &coordinates(&dims, i)) == i));
        assert_eq!(index(-1, 3), Ok(2));
        assert!(index(3, 3).is_err() && index(i64::MIN, 3).is_err());
    }
}
