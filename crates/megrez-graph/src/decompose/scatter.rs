//! What puts elements to public places: Scatter in all forms, MaxUnpool, Col2Im. A place that is
//! written several times is computed in as many rounds.

use super::parts::Place;
use super::shapes::{coordinates, element, few, index};
use super::{Decompose, Parts};
use crate::graph::Id;
use crate::layers::axis;
use crate::problem::{Refusal, refuse};

pub(super) const TABLE: &[(&str, Decompose)] = &[
    ("Col2Im", columns_to_image),
    ("MaxUnpool", max_unpool),
    ("Scatter", scatter_elements),
    ("ScatterElements", scatter_elements),
    ("ScatterND", scatter_nd),
];

/// The most rounds: how often one place may be written.
const MOST: usize = 64;

/// The data with updates: element `i` of the updates goes to place `to[i]` of the data.
fn scatter(p: &mut Parts, data: Id, updates: Id, to: &[usize]) -> Result<Vec<Id>, Refusal> {
    let dims = p.dims(data);
    let n = few(&dims)?.elements();
    let op = match p.call().string("reduction", "none")?.as_str() {
        "none" => None,
        "add" => Some("Add"),
        "mul" => Some("Mul"),
        "max" => Some("Max"),
        "min" => Some("Min"),
        other => return refuse(format!("the reduction `{other}` is not known"), ""),
    };
    let Some(op) = op else {
        let mut places: Vec<Place> = (0..n).map(|i| Some((0, i))).collect();
        to.iter().enumerate().for_each(|(i, &at)| places[at] = Some((1, i)));
        return Ok(vec![p.places(&[data, updates], &dims, &places)?]);
    };
    // Of each round the places, each once, and the updates that go there.
    let mut rounds: Vec<(Vec<Place>, Vec<Place>)> = vec![];
    let mut written = vec![0; n];
    for (i, &at) in to.iter().enumerate() {
        let round = written[at];
        written[at] += 1;
        if round >= MOST {
            return refuse(format!("writes a place more than {MOST} times"), "");
        }
        if rounds.len() == round {
            rounds.push((vec![], vec![]));
        }
        rounds[round].0.push(Some((0, at)));
        rounds[round].1.push(Some((0, i)));
    }
    let mut y = data;
    for (at, from) in rounds {
        let old = p.places(&[y], &[at.len()], &at)?;
        let new = p.places(&[updates], &[from.len()], &from)?;
        let new = p.of(op, &[old, new])?;
        let mut places: Vec<Place> = (0..n).map(|i| Some((0, i))).collect();
        for (k, place) in at.iter().flatten().enumerate() {
            places[place.1] = Some((1, k));
        }
        y = p.places(&[y, new], &dims, &places)?;
    }
    Ok(vec![y])
}

fn scatter_elements(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    p.call().only(3, &["axis", "reduction"])?;
    let (data, indices, updates) = (p.input(0)?, p.known_ints(1)?, p.input(2)?);
    let (dims, from) = (p.dims(data), p.dims(updates));
    let along = axis(p.call().int("axis", 0)?, dims.len())?;
    let fits = |d: usize| d == along || from[d] <= dims[d];
    if indices.shape.dims() != from || from.len() != dims.len() || !(0..dims.len()).all(fits) {
        return refuse("the indices do not fit the data", "");
    }
    let place = |(i, &at): (usize, &i64)| {
        let mut to = coordinates(&from, i);
        to[along] = index(at, dims[along])?;
        Ok(element(&dims, &to))
    };
    let to = indices.data.iter().enumerate().map(place).collect::<Result<Vec<usize>, Refusal>>()?;
    scatter(p, data, updates, &to)
}

fn scatter_nd(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    p.call().only(3, &["reduction"])?;
    let (data, indices, updates) = (p.input(0)?, p.known_ints(1)?, p.input(2)?);
    let dims = p.dims(data);
    let lists = indices.shape.dims().to_vec();
    let Some((&depth, outer)) = lists.split_last() else { return refuse("the indices are one number", "") };
    if depth > dims.len() || p.dims(updates) != [outer, &dims[depth.min(dims.len())..]].concat() {
        return refuse("the indices and the updates do not fit the data", "");
    }
    few(&p.dims(updates))?;
    let inner: usize = dims[depth..].iter().product();
    let mut to = vec![];
    for list in indices.data.chunks_exact(depth.max(1)) {
        let at = list.iter().zip(&dims).map(|(&i, &n)| index(i, n)).collect::<Result<Vec<_>, _>>()?;
        let start = element(&dims[..depth], &at) * inner;
        to.extend(start..start + inner);
    }
    scatter(p, data, updates, &to)
}

/// Elements back to where a pool took them from, zeros elsewhere.
fn max_unpool(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    p.call().only(3, &["kernel_shape", "pads", "strides"])?;
    let (x, indices) = (p.input(0)?, p.known_ints(1)?);
    let dims = p.dims(x);
    let n = dims.len().saturating_sub(2);
    let list = |name: &str, count: usize, default: i64| -> Result<Vec<i64>, Refusal> {
        let list = p.call().ints(name)?.unwrap_or_else(|| vec![default; count]);
        match list.len() == count && list.iter().all(|v| (0..1 << 20).contains(v)) {
            true => Ok(list),
            false => refuse(format!("`{name}` = {list:?} is not {count} sizes"), ""),
        }
    };
    let (kernel, strides, pads) =
        (list("kernel_shape", n, 1)?, list("strides", n, 1)?, list("pads", 2 * n, 0)?);
    let unpooled = |d: usize| (dims[2 + d] as i64 - 1) * strides[d] + kernel[d] - pads[d] - pads[n + d];
    let natural = (0..n).map(unpooled);
    // Places are counted in the data that was pooled; what is asked for may be larger.
    let natural: Vec<usize> =
        dims[..2].iter().copied().chain(natural.map(|v| usize::try_from(v).unwrap_or(0))).collect();
    let shape = match p.has(2) {
        true => p.known_ints(2)?.data.iter().map(|&v| usize::try_from(v).unwrap_or(0)).collect(),
        false => natural.clone(),
    };
    let (from, to) = (few(&natural)?.elements(), few(&shape)?.elements());
    if indices.data.len() != p.graph.shape(x).elements() || shape.len() != dims.len() {
        return refuse("has another number of places than of elements", "");
    }
    let mut places = vec![None; to];
    for (i, &at) in indices.data.iter().enumerate() {
        let at = coordinates(&natural, index(at, from)?);
        if at.iter().zip(&shape).any(|(i, n)| i >= n) {
            return refuse("a place lies outside of the result", "");
        }
        places[element(&shape, &at)] = Some((0, i));
    }
    Ok(vec![p.places(&[x], &shape, &places)?])
}

/// The sum of blocks at their places in an image: one addition per element of a block.
fn columns_to_image(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    p.call().only(3, &["dilations", "pads", "strides"])?;
    let x = p.input(0)?;
    let size = |i: usize| -> Result<Vec<usize>, Refusal> {
        let sizes = p.known_ints(i)?;
        let sizes: Vec<usize> = sizes
            .data
            .iter()
            .map(|&v| usize::try_from(v).unwrap_or(0))
            .filter(|v| (1..1 << 20).contains(v))
            .collect();
        if sizes.is_empty() { refuse(format!("input {i} holds no sizes"), "") } else { Ok(sizes) }
    };
    let (image, block) = (size(1)?, size(2)?);
    let n = image.len();
    let list = |name: &str, count: usize, default: i64| -> Result<Vec<usize>, Refusal> {
        let list = p.call().ints(name)?.unwrap_or_else(|| vec![default; count]);
        let sizes: Vec<usize> =
            list.iter().filter_map(|&v| usize::try_from(v).ok()).filter(|v| *v < 1 << 20).collect();
        if sizes.len() != count { refuse(format!("`{name}` is not {count} sizes"), "") } else { Ok(sizes) }
    };
    let (dilations, pads, strides) =
        (list("dilations", n, 1)?, list("pads", 2 * n, 0)?, list("strides", n, 1)?);
    let steps: Option<Vec<usize>> = (0..n)
        .map(|d| {
            let space =
                (image[d] + pads[d] + pads[n + d]).checked_sub(dilations[d] * (block.get(d)? - 1) + 1)?;
            space.checked_div(strides[d]).map(|steps| steps + 1)
        })
        .collect();
    let dims = p.dims(x);
    let taps: usize = few(&block)?.elements();
    let (Some(steps), &[batch, rows, columns]) = (steps, dims.as_slice()) else {
        return refuse("the blocks do not fit the image", "");
    };
    if block.len() != n || rows % taps != 0 || steps.iter().product::<usize>() != columns || taps > 4096 {
        return refuse("the blocks do not fit the image", "");
    }
    let channels = rows / taps;
    let shape = [&[batch, channels], image.as_slice()].concat();
    let area: usize = image.iter().product();
    few(&shape)?;
    let mut sum: Option<Id> = None;
    for tap in 0..taps {
        let tap_at = coordinates(&block, tap);
        let mut places: Vec<Place> = vec![None; batch * channels * area];
        for column in 0..columns {
            let step = coordinates(&steps, column);
            let at = (0..n).map(|d| {
                let place = step[d] * strides[d] + tap_at[d] * dilations[d];
                place.checked_sub(pads[d]).filter(|&i| i < image[d])
            });
            let Some(at) = at.collect::<Option<Vec<usize>>>() else { continue };
            for plane in 0..batch * channels {
                let row = plane / channels * rows + plane % channels * taps + tap;
                places[plane * area + element(&image, &at)] = Some((0, row * columns + column));
            }
        }
        let part = p.places(&[x], &shape, &places)?;
        sum = Some(match sum {
            None => part,
            Some(sum) => p.plus(sum, part)?,
        });
    }
    match sum {
        Some(sum) => Ok(vec![sum]),
        None => refuse("has an empty block", ""),
    }
}
