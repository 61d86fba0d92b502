//! Attention and RotaryEmbedding. A mask that is known becomes infinite weights, which the passes
//! make a masked softmax of; one that is secret is added.

use super::shapes::{coordinates, element, few};
use super::{Decompose, Parts};
use crate::graph::{Attributes, Id};
use crate::problem::{Refusal, refuse};
use crate::tensor::{Constant, Tensor};
use megrez_plan::View;
use megrez_ring::Shape;

pub(super) const TABLE: &[(&str, Decompose)] = &[("Attention", attention), ("RotaryEmbedding", rotary)];

/// A count in an attribute, if it is given.
fn count(p: &Parts, name: &str) -> Result<Option<usize>, Refusal> {
    match p.call().int(name, 0)? {
        0 => Ok(None),
        n => match usize::try_from(n) {
            Ok(n) => Ok(Some(n)),
            Err(_) => refuse(format!("`{name}` is negative"), ""),
        },
    }
}

/// [batch, steps, heads · size] as [batch, heads, steps, size]; what has four dimensions stays.
fn heads(p: &mut Parts, x: Id, count: Option<usize>) -> Result<Id, Refusal> {
    match (p.dims(x).as_slice(), count) {
        (&[_, _, _, _], _) => Ok(x),
        (&[batch, steps, hidden], Some(heads)) if hidden % heads == 0 => {
            let x = p.reshape(x, &[batch, steps, heads, hidden / heads])?;
            p.transpose(x, &[0, 2, 1, 3])
        }
        _ => refuse("takes [batch, heads, steps, size], or three dimensions and numbers of heads", ""),
    }
}

/// What a score for each query and key starts from: a known mask, and what is out of sight.
fn bias(
    p: &Parts,
    mask: Option<&Constant>,
    [queries, keys]: [usize; 2],
    past: usize,
) -> Result<Option<Tensor>, Refusal> {
    let call = p.call();
    let causal = call.int("is_causal", 0)? != 0;
    let [left, right] = [call.int("left_window_size", -1)?, call.int("right_window_size", -1)?];
    if mask.is_none() && !causal && left < 0 && right < 0 {
        return Ok(None);
    }
    let numbers = match mask {
        None => Tensor::filled([1, 1], 0.0),
        Some(Constant::Floats(t)) => (**t).clone(),
        Some(Constant::Public(p)) => p.tensor(),
        Some(Constant::Ints(t)) => {
            let seen = |&v: &i64| if v != 0 { 0.0 } else { f32::NEG_INFINITY };
            Tensor::new(t.shape.clone(), t.data.iter().map(seen).collect())
        }
    };
    let given = numbers.shape.dims().to_vec();
    let short = given.last().copied().filter(|&n| n > 1 && n < keys);
    let mut wide = given.clone();
    if let (Some(_), Some(last)) = (short, wide.last_mut()) {
        *last = keys;
    }
    let Ok(to) = Shape::new(wide).broadcast(&[queries, keys].into()) else {
        return refuse("the mask does not fit the queries and keys", "");
    };
    let (to, dims) = (few(to.dims())?, to.dims().to_vec());
    let view = View::broadcast(&numbers.shape, &to);
    let of = |i: usize| {
        let at = coordinates(&dims, i);
        let (q, k) = (at[dims.len() - 2] as i64 + past as i64, at[dims.len() - 1] as i64);
        let hidden = (causal && k > q) || (left >= 0 && q - k > left) || (right >= 0 && k - q > right);
        if hidden {
            return f32::NEG_INFINITY;
        }
        match (short, &view) {
            // Keys that the mask does not reach are out of sight.
            (Some(n), _) if k >= n as i64 => f32::NEG_INFINITY,
            (Some(_), _) => {
                let from = &at[dims.len() - given.len()..];
                let place: Vec<usize> = from.iter().zip(&given).map(|(i, n)| i % n).collect();
                numbers.data[element(&given, &place)]
            }
            (None, Some(view)) => {
                let strides = view.strides.iter().zip(&at).map(|(s, i)| s.unsigned_abs() * i);
                numbers.data[view.offset + strides.sum::<usize>()]
            }
            (None, None) => 0.0,
        }
    };
    Ok(Some(Tensor::new(to.clone(), (0..to.elements()).map(of).collect())))
}

fn attention(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    p.call().only(
        6,
        &[
            "is_causal",
            "kv_num_heads",
            "left_window_size",
            "q_num_heads",
            "qk_matmul_output_mode",
            "right_window_size",
            "scale",
            "softcap",
            "softmax_precision",
        ],
    )?;
    let [q, k, v] = [p.input(0)?, p.input(1)?, p.input(2)?];
    let flat = p.dims(q).len() == 3;
    let (of_queries, of_keys) = (count(p, "q_num_heads")?, count(p, "kv_num_heads")?);
    let q = heads(p, q, of_queries)?;
    let [mut k, mut v] = [heads(p, k, of_keys)?, heads(p, v, of_keys)?];
    let mut past = 0;
    if p.has(4) && p.has(5) {
        let [past_k, past_v] = [p.input(4)?, p.input(5)?];
        past = p.dims(past_k).get(2).copied().unwrap_or(0);
        k = p.concat(&[past_k, k], 2)?;
        v = p.concat(&[past_v, v], 2)?;
    }
    let present = [k, v];
    let (q_dims, k_dims, v_dims) = (p.dims(q), p.dims(k), p.dims(v));
    let groups = q_dims[1] / k_dims[1].max(1);
    if k_dims[1] == 0 || q_dims[1] % k_dims[1] != 0 || v_dims[1] != k_dims[1] || v_dims[2] != k_dims[2] {
        return refuse("keys and values do not fit the queries", "");
    }
    if groups > 1 {
        let shared: Vec<usize> = (0..q_dims[1]).map(|head| head / groups).collect();
        k = p.gather(k, 1, &shared)?;
        v = p.gather(v, 1, &shared)?;
    }
    let scale = match p.call().float("scale", 0.0)? {
        0.0 => 1.0 / (q_dims[3] as f32).sqrt(),
        scale => scale,
    };
    let turned = p.transpose(k, &[0, 1, 3, 2])?;
    let scores = p.of("MatMul", &[q, turned])?;
    let mut scores = p.affine(scores, scale, 0.0)?;
    let softcap = p.call().float("softcap", 0.0)?;
    let plain = softcap == 0.0 && p.call().int("qk_matmul_output_mode", 0)? == 0;
    let shown = scores;
    if softcap != 0.0 {
        let small = p.affine(scores, 1.0 / softcap, 0.0)?;
        let small = p.of("Tanh", &[small])?;
        scores = p.affine(small, softcap, 0.0)?;
    }
    let mask = if p.has(3) { Some(p.input(3)?) } else { None };
    let known = mask.and_then(|mask| p.graph.value(mask).constant.clone());
    if let Some(mask) = mask.filter(|_| known.is_none()) {
        scores = p.plus(scores, mask)?;
    }
    if let Some(bias) = bias(p, known.as_ref(), [q_dims[2], k_dims[2]], past)? {
        let bias = p.constant(bias);
        scores = p.plus(scores, bias)?;
    }
    let weights = p.node("Softmax", &[scores], Attributes::none().with("axis", -1))?;
    let mut y = p.of("MatMul", &[weights, v])?;
    if flat {
        y = p.transpose(y, &[0, 2, 1, 3])?;
        y = p.reshape(y, &[q_dims[0], q_dims[2], q_dims[1] * v_dims[3]])?;
    }
    let mut outputs = vec![y, present[0], present[1]];
    // Other modes than the first have changed their meaning between operator sets.
    outputs.extend(plain.then_some(shown));
    Ok(outputs)
}

/// Pairs of numbers turned by the angle of their place.
fn rotary(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    p.call().only(4, &["interleaved", "num_heads", "rotary_embedding_dim"])?;
    let x = p.input(0)?;
    let original = p.dims(x);
    let number = count(p, "num_heads")?;
    // [batch, steps, heads, size].
    let x = match (original.as_slice(), number) {
        (&[_, _, _, _], _) => p.transpose(x, &[0, 2, 1, 3])?,
        (&[batch, steps, hidden], Some(heads)) if hidden % heads == 0 => {
            p.reshape(x, &[batch, steps, heads, hidden / heads])?
        }
        _ => {
            return refuse(
                "takes [batch, heads, steps, size], or three dimensions and a number of heads",
                "",
            );
        }
    };
    let dims = p.dims(x);
    let (steps, size) = (dims[1], dims[3]);
    let turned = count(p, "rotary_embedding_dim")?.unwrap_or(size);
    if turned > size || turned % 2 != 0 {
        return refuse(format!("turns {turned} of {size} numbers"), "");
    }
    let half = turned / 2;
    let mut caches = vec![];
    for i in [1, 2] {
        let mut cache = p.input(i)?;
        if p.has(3) {
            let ids = p.input(3)?;
            cache = p.of("Gather", &[cache, ids])?;
        }
        let of = p.dims(cache);
        if of.len() != 3 || of[1] != steps || of[2] != half {
            return refuse("the cosines or sines do not fit the data", "");
        }
        caches.push(p.reshape(cache, &[of[0], of[1], 1, of[2]])?);
    }
    let interleaved = p.call().int("interleaved", 0)? != 0;
    let (first, second): (Vec<usize>, Vec<usize>) = match interleaved {
        true => ((0..half).map(|i| 2 * i).collect(), (0..half).map(|i| 2 * i + 1).collect()),
        false => ((0..half).collect(), (half..turned).collect()),
    };
    let [a, b] = [p.gather(x, 3, &first)?, p.gather(x, 3, &second)?];
    let product = |p: &mut Parts, x: Id, i: usize| p.times(x, caches[i]);
    let [ac, bs] = [product(p, a, 0)?, product(p, b, 1)?];
    let [as_, bc] = [product(p, a, 1)?, product(p, b, 0)?];
    let (real, imaginary) = (p.minus(ac, bs)?, p.plus(as_, bc)?);
    let mut parts = vec![p.concat(&[real, imaginary], 3)?];
    if interleaved {
        let order: Vec<usize> = (0..half).flat_map(|i| [i, half + i]).collect();
        parts[0] = p.gather(parts[0], 3, &order)?;
    }
    if turned < size {
        parts.push(p.slice(x, 3, turned..size)?);
    }
    let y = p.concat(&parts, 3)?;
    Ok(vec![if original.len() == 4 { p.transpose(y, &[0, 2, 1, 3])? } else { p.reshape(y, &original)? }])
}
