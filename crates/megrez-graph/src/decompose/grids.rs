//! AffineGrid, and GridSample for a grid that is known: each place of the result is a sum of a few
//! elements of the data with known weights.

use super::shapes::{coordinates, element, few};
use super::{Decompose, Parts};
use crate::graph::Id;
use crate::problem::{Refusal, refuse};
use crate::tensor::Tensor;

pub(super) const TABLE: &[(&str, Decompose)] = &[("AffineGrid", affine_grid), ("GridSample", grid_sample)];

/// The affine images of the places of a regular grid.
fn affine_grid(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    p.call().only(2, &["align_corners"])?;
    let (theta, size) = (p.input(0)?, p.known_ints(1)?);
    let aligned = p.call().int("align_corners", 0)? != 0;
    let size: Vec<usize> = size.data.iter().map(|&v| usize::try_from(v).unwrap_or(0)).collect();
    let n = size.len().saturating_sub(2);
    if !(2..=3).contains(&n) || p.dims(theta) != [size[0], n, n + 1] {
        return refuse("takes matrices [N, 2, 3] or [N, 3, 4] and the size of images", "");
    }
    let image = &size[2..];
    let count = few(image)?.elements();
    let place = |i: usize, of: usize| match (aligned, of) {
        (true, 1) => 0.0,
        (true, _) => 2.0 * i as f32 / (of - 1) as f32 - 1.0,
        (false, _) => (2 * i + 1) as f32 / of as f32 - 1.0,
    };
    // [n + 1, count]: x, y, … of each place, and 1.
    let mut grid = vec![];
    for d in (0..n).rev() {
        grid.extend((0..count).map(|i| place(coordinates(image, i)[d], image[d])));
    }
    grid.extend(vec![1.0; count]);
    let grid = p.constant(Tensor::new([n + 1, count], grid));
    let y = p.of("MatMul", &[theta, grid])?;
    let y = p.transpose(y, &[0, 2, 1])?;
    Ok(vec![p.reshape(y, &[&[size[0]], image, &[n]].concat())?])
}

/// How a grid's numbers mean places of an image.
struct Sampling {
    mode: String,
    padding: String,
    aligned: bool,
}

impl Sampling {
    /// The place between −1 and 1 as one between 0 and `size` − 1, brought back where the padding
    /// says so.
    fn place(&self, v: f64, size: usize) -> f64 {
        let n = size as f64;
        let x = if self.aligned { (v + 1.0) / 2.0 * (n - 1.0) } else { ((v + 1.0) * n - 1.0) / 2.0 };
        let [low, high] = self.borders(n);
        match self.padding.as_str() {
            _ if (low..=high).contains(&x) => x,
            "border" => x.clamp(0.0, n - 1.0),
            "reflection" => reflected(x, low, high),
            _ => x,
        }
    }

    fn borders(&self, n: f64) -> [f64; 2] {
        if self.aligned { [0.0, n - 1.0] } else { [-0.5, n - 0.5] }
    }

    /// The element at a whole place, if there is one.
    fn at(&self, i: i64, size: usize) -> Option<usize> {
        let inside = |i: i64| usize::try_from(i).ok().filter(|&i| i < size);
        let [low, high] = self.borders(size as f64);
        match self.padding.as_str() {
            "border" => inside(i.clamp(0, size as i64 - 1)),
            "reflection" => inside((reflected(i as f64, low, high) as i64).clamp(0, size as i64 - 1)),
            _ => inside(i),
        }
    }

    /// The places along one dimension that a place is made of, and their weights.
    fn taps(&self, x: f64) -> Vec<(i64, f64)> {
        let floor = x.floor();
        let t = x - floor;
        let cubic = |x: f64| {
            let (a, x) = (-0.75, x.abs());
            match x {
                _ if x <= 1.0 => ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0,
                _ => ((a * x - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a,
            }
        };
        match self.mode.as_str() {
            "nearest" => vec![(x.round_ties_even() as i64, 1.0)],
            "linear" | "bilinear" => vec![(floor as i64, 1.0 - t), (floor as i64 + 1, t)],
            _ => (-1..=2).map(|i| (floor as i64 + i, cubic(t - i as f64))).collect(),
        }
    }
}

/// A place mirrored at two borders until it lies between them.
fn reflected(x: f64, low: f64, high: f64) -> f64 {
    let range = high - low;
    if range <= 0.0 {
        return low;
    }
    let beyond = (x - low).rem_euclid(2.0 * range);
    low + beyond.min(2.0 * range - beyond)
}

fn grid_sample(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    p.call().only(2, &["align_corners", "mode", "padding_mode"])?;
    let (x, grid) = (p.input(0)?, p.known_floats(1)?);
    let (dims, to) = (p.dims(x), grid.shape.dims().to_vec());
    let n = dims.len().saturating_sub(2);
    let fits = (1..=3).contains(&n) && to.len() == n + 2 && to[0] == dims[0] && to[n + 1] == n;
    if !fits || grid.data.iter().any(|v| v.abs() > 1e6) {
        return refuse("the grid does not fit the data", "");
    }
    let sampling = Sampling {
        mode: p.call().string("mode", "linear")?,
        padding: p.call().string("padding_mode", "zeros")?,
        aligned: p.call().int("align_corners", 0)? != 0,
    };
    if !matches!(sampling.mode.as_str(), "nearest" | "linear" | "bilinear" | "cubic" | "bicubic")
        || !matches!(sampling.padding.as_str(), "zeros" | "border" | "reflection")
    {
        return refuse("its mode is not known", "");
    }
    let image = &dims[2..];
    let (batch, channels, area) = (dims[0], dims[1], image.iter().product::<usize>());
    let each: usize = to[1..=n].iter().product();
    let shape = [&dims[..2], &to[1..=n]].concat();
    few(&shape)?;
    // The combinations of one tap per dimension: for each, a place and a weight for each place of
    // the result.
    let per_axis = sampling.taps(0.0).len();
    let count = per_axis.pow(n as u32);
    let mut sum: Option<Id> = None;
    for combination in 0..count {
        let which = coordinates(&vec![per_axis; n], combination);
        let mut places = vec![None; batch * channels * each];
        let mut weights = vec![0.0; batch * each];
        for (i, at) in grid.data.chunks_exact(n).enumerate() {
            let (mut from, mut weight) = (vec![], 1.0);
            for d in 0..n {
                // The grid names x before y.
                let place = sampling.place(at[n - 1 - d].into(), image[d]);
                let (tap, w) = sampling.taps(place)[which[d]];
                weight *= w;
                from.extend(sampling.at(tap, image[d]));
            }
            if from.len() < n {
                continue;
            }
            weights[i] = weight as f32;
            let (b, o) = (i / each, i % each);
            for c in 0..channels {
                let plane = b * channels + c;
                places[plane * each + o] = Some((0, plane * area + element(image, &from)));
            }
        }
        if weights.iter().all(|&w| w == 0.0) {
            continue;
        }
        let mut part = p.places(&[x], &shape, &places)?;
        // The nearest element counts as it is, and padding is zero already.
        if per_axis > 1 {
            let weights = p.constant(Tensor::new([&[batch, 1], &to[1..=n]].concat(), weights));
            part = p.times(part, weights)?;
        }
        sum = Some(match sum {
            None => part,
            Some(sum) => p.plus(sum, part)?,
        });
    }
    match sum {
        Some(sum) => Ok(vec![sum]),
        None => refuse("samples nothing of the data", "look at the grid"),
    }
}
