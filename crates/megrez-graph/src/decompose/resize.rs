//! Resize and Upsample: along each dimension a matrix of the weights with which places of the data
//! make a place of the result, by its modes as ONNX defines them. Where every row has a single 1,
//! the places are gathered and nothing is multiplied.

use super::shapes::few;
use super::{Decompose, Parts};
use crate::graph::Id;
use crate::layers::axis;
use crate::problem::{Refusal, refuse};
use crate::tensor::Tensor;

pub(super) const TABLE: &[(&str, Decompose)] = &[("Resize", resize), ("Upsample", upsample)];

/// The most weights along one dimension.
const MOST: usize = 1 << 22;

/// How the places of a result lie in the data.
struct Modes {
    mode: String,
    coordinates: String,
    nearest: String,
    cubic: f64,
    antialias: bool,
    exclude_outside: bool,
}

/// A dimension of the data and of the result.
struct Dimension {
    from: usize,
    to: usize,
    scale: f64,
    /// Of `tf_crop_and_resize`: what part of the data is taken.
    crop: [f64; 2],
}

impl Dimension {
    /// Where a place of the result lies in the data.
    fn origin(&self, x: usize, coordinates: &str) -> Result<f64, Refusal> {
        let (x, from, to) = (x as f64, self.from as f64, self.to as f64);
        Ok(match coordinates {
            "align_corners" if self.to == 1 => 0.0,
            "align_corners" => x * (from - 1.0) / (to - 1.0),
            "asymmetric" => x / self.scale,
            "half_pixel" => (x + 0.5) / self.scale - 0.5,
            "pytorch_half_pixel" if self.to == 1 => -0.5,
            "pytorch_half_pixel" => (x + 0.5) / self.scale - 0.5,
            "half_pixel_symmetric" => {
                let adjustment = to / (self.scale * from);
                from / 2.0 * (1.0 - adjustment) + (x + 0.5) / self.scale - 0.5
            }
            "tf_crop_and_resize" => {
                let [start, end] = self.crop;
                match self.to {
                    1 => 0.5 * (start + end) * (from - 1.0),
                    _ => start * (from - 1.0) + x * (end - start) * (from - 1.0) / (to - 1.0),
                }
            }
            other => return refuse(format!("the coordinates `{other}` are not known"), ""),
        })
    }

    /// Whether a place lies outside of the data, where the result is the extrapolation value.
    fn outside(&self, origin: f64, coordinates: &str) -> bool {
        coordinates == "tf_crop_and_resize" && !(0.0..=self.from as f64 - 1.0).contains(&origin)
    }
}

impl Modes {
    fn of(p: &Parts) -> Result<Self, Refusal> {
        let call = p.call();
        Ok(Modes {
            mode: call.string("mode", "nearest")?,
            coordinates: call.string("coordinate_transformation_mode", "half_pixel")?,
            nearest: call.string("nearest_mode", "round_prefer_floor")?,
            cubic: call.float("cubic_coeff_a", -0.75)?.into(),
            antialias: call.int("antialias", 0)? != 0,
            exclude_outside: call.int("exclude_outside", 0)? != 0,
        })
    }

    fn cubic(&self, x: f64) -> f64 {
        let (a, x) = (self.cubic, x.abs());
        match x {
            _ if x <= 1.0 => ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0,
            _ if x < 2.0 => ((a * x - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a,
            _ => 0.0,
        }
    }

    /// The weights of the places around one that lies `ratio` behind the place before it, in their
    /// order.
    fn weights(&self, ratio: f64, scale: f64) -> Result<Vec<f64>, Refusal> {
        let narrow = if self.antialias { scale.min(1.0) } else { 1.0 };
        let spread = |half: f64, f: &dyn Fn(f64) -> f64| {
            let first = (-half / narrow).floor() + 1.0;
            let count = 2 * (1 - first as i64).unsigned_abs() as usize;
            let at = (0..count).map(|i| f((first + i as f64 - ratio) * narrow));
            let weights: Vec<f64> = at.collect();
            let sum: f64 = weights.iter().sum();
            weights.iter().map(|w| w / sum).collect::<Vec<f64>>()
        };
        Ok(match self.mode.as_str() {
            "nearest" => {
                let second = match self.nearest.as_str() {
                    _ if ratio == 1.0 => true,
                    "round_prefer_floor" => ratio > 0.5,
                    "round_prefer_ceil" => ratio >= 0.5,
                    "floor" => false,
                    "ceil" => true,
                    other => return refuse(format!("the nearest mode `{other}` is not known"), ""),
                };
                if second { vec![0.0, 1.0] } else { vec![1.0, 0.0] }
            }
            "linear" | "bilinear" => spread(1.0, &|x| (1.0 - x.abs()).clamp(0.0, 1.0)),
            "cubic" => spread(2.0, &|x| self.cubic(x)),
            other => return refuse(format!("the mode `{other}` is not known"), ""),
        })
    }

    /// The weights of all places of a dimension for one place of the result.
    fn row(&self, dimension: &Dimension, x: usize) -> Result<Vec<f64>, Refusal> {
        let mut row = vec![0.0; dimension.from];
        let origin = dimension.origin(x, &self.coordinates)?;
        if dimension.outside(origin, &self.coordinates) {
            return Ok(row);
        }
        // A place that meets one of the data counts as the end of the step before it.
        let ratio = if origin.fract() == 0.0 { 1.0 } else { origin - origin.floor() };
        let mut weights = self.weights(ratio, dimension.scale)?;
        // The nearest places, the lower one of two that are equally near.
        let base = origin.ceil() as i64 - 1;
        let first = base - (weights.len() as i64 / 2 - 1);
        let at = |i: usize| first + i as i64;
        if self.exclude_outside {
            let inside = |i: usize| (0..dimension.from as i64).contains(&at(i));
            (0..weights.len()).filter(|&i| !inside(i)).for_each(|i| weights[i] = 0.0);
            let sum: f64 = weights.iter().sum();
            weights.iter_mut().for_each(|w| *w /= sum);
        }
        for (i, weight) in weights.iter().enumerate() {
            row[at(i).clamp(0, dimension.from as i64 - 1) as usize] += weight;
        }
        Ok(row)
    }
}

/// One dimension of x resized.
fn along(p: &mut Parts, x: Id, d: usize, modes: &Modes, dimension: &Dimension) -> Result<Id, Refusal> {
    if dimension.from.saturating_mul(dimension.to) > MOST {
        return refuse(format!("resizes {} to {}, which is too much", dimension.from, dimension.to), "");
    }
    let rows = (0..dimension.to).map(|i| modes.row(dimension, i)).collect::<Result<Vec<_>, _>>()?;
    let single = |row: &Vec<f64>| {
        let place = row.iter().position(|&w| w == 1.0)?;
        (row.iter().filter(|w| **w != 0.0).count() == 1).then_some(place)
    };
    if let Some(places) = rows.iter().map(single).collect::<Option<Vec<usize>>>() {
        let same = places.iter().copied().eq(0..dimension.from);
        return if same { Ok(x) } else { p.gather(x, d, &places) };
    }
    // x with the dimension last, times the matrix turned around.
    let rank = p.dims(x).len();
    let mut order: Vec<usize> = (0..rank).collect();
    order.swap(d, rank - 1);
    let matrix: Vec<f32> =
        (0..dimension.from).flat_map(|i| rows.iter().map(move |row| row[i] as f32)).collect();
    let matrix = p.constant(Tensor::new([dimension.from, dimension.to], matrix));
    let x = p.transpose(x, &order)?;
    let y = p.of("MatMul", &[x, matrix])?;
    p.transpose(y, &order)
}

/// The scale of each dimension and the size of the result, where they are given.
fn scaled(
    p: &Parts,
    x: Id,
    axes: &[usize],
    scales: usize,
    sizes: usize,
) -> Result<Vec<(f64, usize)>, Refusal> {
    let dims = p.dims(x);
    let mut out: Vec<(f64, usize)> = dims.iter().map(|&d| (1.0, d)).collect();
    let list = |count: usize| match count == axes.len() {
        true => Ok(()),
        false => refuse(format!("has {count} sizes for {} dimensions", axes.len()), ""),
    };
    if p.has(scales) && !p.known_floats(scales)?.data.is_empty() {
        let scales = p.known_floats(scales)?;
        list(scales.data.len())?;
        for (&axis, &scale) in axes.iter().zip(&scales.data) {
            if !(scale > 0.0 && scale < 65536.0) {
                return refuse(format!("the scale {scale} is not positive"), "");
            }
            let scale = f64::from(scale);
            out[axis] = (scale, (dims[axis] as f64 * scale).floor() as usize);
        }
    } else if p.has(sizes) {
        let sizes = p.known_ints(sizes)?;
        list(sizes.data.len())?;
        let given = |i: usize| usize::try_from(sizes.data[i]).unwrap_or(0).min(MOST);
        let ratios = || axes.iter().enumerate().map(|(i, &axis)| given(i) as f64 / dims[axis] as f64);
        let policy = p.call().string("keep_aspect_ratio_policy", "stretch")?;
        let common = match policy.as_str() {
            "stretch" => None,
            "not_larger" => Some(ratios().fold(f64::INFINITY, f64::min)),
            "not_smaller" => Some(ratios().fold(0.0, f64::max)),
            other => return refuse(format!("the policy `{other}` is not known"), ""),
        };
        for (i, &axis) in axes.iter().enumerate() {
            out[axis] = match common {
                None => (given(i) as f64 / dims[axis] as f64, given(i)),
                Some(scale) => (scale, (scale * dims[axis] as f64 + 0.5).floor() as usize),
            };
        }
    } else {
        return refuse("has neither scales nor sizes", "");
    }
    if out.iter().any(|(_, size)| *size == 0) {
        return refuse("makes a dimension of size 0", "");
    }
    few(&out.iter().map(|(_, size)| *size).collect::<Vec<_>>())?;
    Ok(out)
}

fn resize(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    p.call().only(
        4,
        &[
            "antialias",
            "axes",
            "coordinate_transformation_mode",
            "cubic_coeff_a",
            "exclude_outside",
            "extrapolation_value",
            "keep_aspect_ratio_policy",
            "mode",
            "nearest_mode",
        ],
    )?;
    let x = p.input(0)?;
    let rank = p.dims(x).len();
    let mut modes = Modes::of(p)?;
    // Operator set 10 had no region, and one meaning of coordinates.
    if p.inputs.len() == 2 {
        (modes.coordinates, modes.nearest) = ("asymmetric".into(), "floor".into());
        let sizes = scaled(p, x, &(0..rank).collect::<Vec<_>>(), 1, 9)?;
        return finish(p, x, &modes, &sizes, &vec![[0.0, 1.0]; rank]);
    }
    let axes = match p.call().ints("axes")? {
        Some(axes) => axes.iter().map(|&a| axis(a, rank)).collect::<Result<Vec<_>, _>>()?,
        None => (0..rank).collect(),
    };
    let sizes = scaled(p, x, &axes, 2, 3)?;
    let mut crop = vec![[0.0, 1.0]; rank];
    if modes.coordinates == "tf_crop_and_resize" {
        let region = p.known_floats(1)?;
        if region.data.len() != 2 * axes.len() {
            return refuse("its region is not two numbers per dimension", "");
        }
        for (i, &axis) in axes.iter().enumerate() {
            crop[axis] = [region.data[i].into(), region.data[axes.len() + i].into()];
        }
    }
    finish(p, x, &modes, &sizes, &crop)
}

fn finish(
    p: &mut Parts,
    x: Id,
    modes: &Modes,
    sizes: &[(f64, usize)],
    crop: &[[f64; 2]],
) -> Result<Vec<Id>, Refusal> {
    let dims = p.dims(x);
    let mut y = x;
    let mut outside: Vec<Vec<bool>> = vec![];
    for (d, &(scale, to)) in sizes.iter().enumerate() {
        let dimension = Dimension { from: dims[d], to, scale, crop: crop[d] };
        // A dimension that stays as it is, unless a part of it is taken.
        if modes.coordinates == "align_corners" && (scale * dims[d] as f64 - to as f64).abs() > 1e-3 {
            return refuse(
                format!("aligns the corners of {} and {} places, where implementations differ", dims[d], to),
                "give the sizes instead of the scales",
            );
        }
        let whole = to == dims[d] && scale == 1.0 && crop[d] == [0.0, 1.0];
        y = if whole { y } else { along(p, y, d, modes, &dimension)? };
        let far =
            |i| Ok(!whole && dimension.outside(dimension.origin(i, &modes.coordinates)?, &modes.coordinates));
        outside.push((0..to).map(far).collect::<Result<_, Refusal>>()?);
    }
    let value = p.call().float("extrapolation_value", 0.0)?;
    if value == 0.0 || !outside.iter().flatten().any(|&far| far) {
        return Ok(vec![y]);
    }
    let to: Vec<usize> = sizes.iter().map(|(_, size)| *size).collect();
    let count: usize = to.iter().product();
    let fill = |i: usize| {
        let at = super::shapes::coordinates(&to, i);
        if at.iter().zip(&outside).any(|(&i, far)| far[i]) { value } else { 0.0 }
    };
    let fill = p.constant(Tensor::new(to.clone(), (0..count).map(fill).collect()));
    Ok(vec![p.plus(y, fill)?])
}

/// Resize as up to operator set 9.
fn upsample(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    p.call().only(2, &["mode", "scales"])?;
    let x = p.input(0)?;
    let rank = p.dims(x).len();
    let scales = match p.call().reals("scales")? {
        Some(scales) => p.constant(Tensor::new([scales.len()], scales)),
        None => p.input(1)?,
    };
    let inputs = [Some(x), Some(scales)];
    let mut modes = Modes::of(p)?;
    (modes.coordinates, modes.nearest) = ("asymmetric".into(), "floor".into());
    let axes: Vec<usize> = (0..rank).collect();
    let given = Parts {
        graph: p.graph,
        name: p.name,
        op: p.op,
        attributes: p.attributes,
        inputs: &inputs,
        read: p.read,
        named: p.named,
    };
    let sizes = scaled(&given, x, &axes, 1, 9)?;
    finish(p, x, &modes, &sizes, &vec![[0.0, 1.0]; rank])
}
