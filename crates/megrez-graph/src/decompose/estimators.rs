//! Classical models, as exporters of scikit-learn write them (the domain `ai.onnx.ml`): linear
//! models, and what prepares numbers for them. Coefficients are weights of the model's owner,
//! secret like any other. Ensembles of trees are in [`super::trees`], support vector machines in
//! [`super::vectors`].

use super::{Decompose, Parts};
use crate::graph::{Attributes, Id};
use crate::layers::{NOT_NEGATIVE, POSITIVE};
use crate::problem::{Refusal, refuse};
use crate::tensor::{Constant, Tensor};

pub(super) const TABLE: &[(&str, Decompose)] = &[
    ("ArrayFeatureExtractor", extract),
    ("Binarizer", binarize),
    ("FeatureVectorizer", join),
    ("Imputer", impute),
    ("LabelEncoder", relabel),
    ("LinearClassifier", linear_classifier),
    ("LinearRegressor", linear_regressor),
    ("Normalizer", normalize),
    ("OneHotEncoder", one_hot),
    ("Scaler", scale),
    ("ZipMap", zip),
];

/// The rows [n, features] that a model computes on; a single row may come without its first
/// dimension.
pub(super) fn rows(p: &mut Parts) -> Result<(Id, [usize; 2]), Refusal> {
    let x = p.input(0)?;
    match p.dims(x)[..] {
        [n, features] => Ok((x, [n, features])),
        [features] => Ok((p.reshape(x, &[1, features])?, [1, features])),
        _ => refuse("its input is not a matrix of rows by features", "reshape it before"),
    }
}

/// A list of the node's attributes that must be there.
pub(super) fn reals(p: &Parts, name: &str) -> Result<Vec<f32>, Refusal> {
    match p.call().reals(name)? {
        Some(list) => Ok(list),
        None => refuse(format!("`{name}` is missing"), "export the model again"),
    }
}

/// A matrix of weights from an attribute.
pub(super) fn matrix(p: &mut Parts, name: &str, columns: usize) -> Result<(Id, usize), Refusal> {
    let data = reals(p, name)?;
    if data.is_empty() || data.len() % columns != 0 {
        let what = format!("`{name}` has {} numbers, which are no rows of {columns}", data.len());
        return refuse(what, "export the model again");
    }
    let count = data.len() / columns;
    Ok((p.constant(Tensor::new([count, columns], data)), count))
}

/// A row of weights that is added to every row of the data.
pub(super) fn row(p: &mut Parts, data: Vec<f32>, columns: usize) -> Result<Id, Refusal> {
    match data.len() {
        n if n == columns || n == 1 => Ok(p.constant(Tensor::new([1, n], data))),
        n => refuse(format!("has {n} numbers for {columns} columns"), "export the model again"),
    }
}

/// x·Wᵀ + b for rows x: one row of W and a number of b for each target.
fn linear(p: &mut Parts) -> Result<(Id, usize), Refusal> {
    let (x, [_, features]) = rows(p)?;
    let (weights, targets) = matrix(p, "coefficients", features)?;
    let mut inputs = vec![x, weights];
    if let Some(intercepts) = p.call().reals("intercepts")?.filter(|list| !list.is_empty()) {
        inputs.push(row(p, intercepts, targets)?);
    }
    Ok((p.node("Gemm", &inputs, Attributes::none().with("transB", 1))?, targets))
}

fn linear_regressor(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    p.call().only(1, &["coefficients", "intercepts", "post_transform", "targets"])?;
    let (y, _) = linear(p)?;
    Ok(vec![transformed(p, y)?])
}

fn linear_classifier(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    let known = [
        "classlabels_ints",
        "classlabels_strings",
        "coefficients",
        "intercepts",
        "multi_class",
        "post_transform",
    ];
    p.call().only(1, &known)?;
    let (scores, targets) = linear(p)?;
    let classes = Classes::of(p, "classlabels_ints")?;
    let scores = match (targets, classes.0.len()) {
        (a, b) if a == b => scores,
        (1, 2) if p.call().string("post_transform", "NONE")? == "LOGISTIC" => both(p, scores)?,
        (a, b) => {
            return refuse(format!("gives {a} scores for {b} classes"), "export the model again");
        }
    };
    classified(p, &classes, scores)
}

/// [−s, s]: the scores of two classes, of which the model has just one.
pub(super) fn both(p: &mut Parts, score: Id) -> Result<Id, Refusal> {
    let other = p.of("Neg", &[score])?;
    p.concat(&[other, score], 1)
}

/// What a model does with its scores.
pub(super) fn transformed(p: &mut Parts, scores: Id) -> Result<Id, Refusal> {
    match p.call().string("post_transform", "NONE")?.as_str() {
        "NONE" => Ok(scores),
        "LOGISTIC" => p.of("Sigmoid", &[scores]),
        "SOFTMAX" => p.node("Softmax", &[scores], Attributes::none().with("axis", 1)),
        other => refuse(format!("`post_transform` {other} is not supported"), "export it with raw scores"),
    }
}

/// The labels of a classifier's classes. Shares hold numbers: where labels are strings, the label
/// is the number of the class, in their order, for which its recipient gets the string
/// (`onnx/labels.rs`).
pub(super) struct Classes(pub Vec<i64>);

impl Classes {
    pub fn of(p: &Parts, integers: &str) -> Result<Self, Refusal> {
        if let Some(labels) = p.call().ints(integers)?.filter(|labels| !labels.is_empty()) {
            return Ok(Classes(labels));
        }
        match p.call().strings("classlabels_strings")? {
            Some(labels) if !labels.is_empty() => Ok(Classes((0..labels.len() as i64).collect())),
            _ => refuse("has no labels of classes", "export the model again"),
        }
    }

    /// Whether the labels are the numbers of the classes.
    fn count_up(&self) -> bool {
        self.0.iter().enumerate().all(|(i, &label)| label == i as i64)
    }
}

/// Label and scores of a classifier. The largest score decides, before anything that keeps the
/// order.
pub(super) fn classified(p: &mut Parts, classes: &Classes, scores: Id) -> Result<Vec<Id>, Refusal> {
    let label = if !p.reads(0) {
        scores
    } else if classes.count_up() {
        p.node("ArgMax", &[scores], Attributes::none().with("axis", 1).with("keepdims", 0))?
    } else {
        let largest = p.node("Hardmax", &[scores], Attributes::none().with("axis", 1))?;
        let labels = classes.0.iter().map(|&label| label as f32).collect::<Vec<_>>();
        let labels = p.constant(Tensor::new([labels.len(), 1], labels));
        let label = p.of("MatMul", &[largest, labels])?;
        let n = p.dims(label)[0];
        p.reshape(label, &[n])?
    };
    let scores = if p.reads(1) { transformed(p, scores)? } else { scores };
    Ok(vec![label, scores])
}

fn scale(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    p.call().only(1, &["offset", "scale"])?;
    let (mut x, [_, features]) = rows(p)?;
    if let Some(offset) = p.call().reals("offset")? {
        let offset = row(p, offset, features)?;
        x = p.minus(x, offset)?;
    }
    if let Some(factor) = p.call().reals("scale")? {
        let factor = row(p, factor, features)?;
        x = p.times(x, factor)?;
    }
    Ok(vec![x])
}

/// For each number and each category 1 where it is that category: a number is cut off to a whole
/// one first, as the original does. What is none of the categories becomes zeros.
fn one_hot(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    p.call().only(1, &["cats_int64s", "cats_strings", "zeros"])?;
    let Some(categories) = p.call().ints("cats_int64s")?.filter(|list| !list.is_empty()) else {
        return refuse(
            "its categories are strings, which no share can hold",
            "encode them as numbers before",
        );
    };
    if categories.iter().any(|c| c.unsigned_abs() > 1 << 24) {
        return refuse("has categories that float32 does not hold", "number them from 0 on");
    }
    let x = p.input(0)?;
    let mut dims = p.dims(x);
    dims.push(1);
    let x = p.reshape(x, &dims)?;
    let n = categories.len();
    let (mut from, mut strictly, mut until, mut above) = (vec![], vec![], vec![], vec![]);
    for &c in &categories {
        // From c to below c + 1, for c above 0; about 0, from above −1 to below 1; and so on
        // downwards.
        from.push(if c > 0 { c } else { c - 1 } as f32);
        strictly.push(f32::from(c <= 0));
        until.push(if c >= 0 { c + 1 } else { c } as f32);
        above.push(f32::from(c < 0));
    }
    let reached = |p: &mut Parts, borders: Vec<f32>, strict: Vec<f32>| {
        let borders = p.constant(Tensor::new([n], borders));
        let room = p.minus(x, borders)?;
        match (strict.contains(&1.0), strict.contains(&0.0)) {
            (true, false) => p.of(POSITIVE, &[room]),
            (false, _) => p.of(NOT_NEGATIVE, &[room]),
            (true, true) => {
                let places = |p: &mut Parts, op, keep: f32| {
                    let list: Vec<usize> = (0..n).filter(|&i| strict[i] == keep).collect();
                    let part = p.gather(room, dims.len() - 1, &list)?;
                    Ok::<_, Refusal>((p.of(op, &[part])?, list))
                };
                let ((first, a), (second, b)) = (places(p, POSITIVE, 1.0)?, places(p, NOT_NEGATIVE, 0.0)?);
                let both = p.concat(&[first, second], dims.len() - 1)?;
                let order: Vec<usize> = [a, b].concat();
                let back: Vec<usize> = (0..n).filter_map(|i| order.iter().position(|&o| o == i)).collect();
                p.gather(both, dims.len() - 1, &back)
            }
        }
    };
    let (low, high) = (reached(p, from, strictly)?, reached(p, until, above)?);
    Ok(vec![p.minus(low, high)?])
}

/// Numbers for numbers: the value of the key that a number is, or a default. Values that are
/// strings are their places in the list, and the default the place after it.
fn relabel(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    let strings = "strings have no shares: use numbers on both sides, and keep the names beside the model";
    let known = ["default_float", "default_int64", "default_string", "default_tensor"];
    let lists = ["keys_floats", "keys_int64s", "values_floats", "values_int64s", "values_strings"];
    for name in p.attributes.0.keys().filter(|name| name.contains("strings") || name.contains("tensor")) {
        if !["default_tensor", "values_strings"].contains(&name.as_str()) {
            return refuse(format!("`{name}` maps what are not numbers"), strings);
        }
    }
    p.call().only(1, &[&known[..], &lists].concat())?;
    let list = |ints: &str, floats: &str| -> Result<Vec<f32>, Refusal> {
        Ok(match p.call().ints(ints)? {
            Some(list) => list.into_iter().map(|v| v as f32).collect(),
            None => p.call().reals(floats)?.unwrap_or_default(),
        })
    };
    let keys = list("keys_int64s", "keys_floats")?;
    let names = p.call().strings("values_strings")?.map(|names| names.len());
    let values = match names {
        Some(names) => (0..names).map(|place| place as f32).collect(),
        None => list("values_int64s", "values_floats")?,
    };
    if keys.is_empty() || keys.len() != values.len() || keys.iter().any(|key| !key.is_finite()) {
        return refuse("has no value for each key, or keys that are no numbers", strings);
    }
    if (1..keys.len()).any(|i| keys[..i].contains(&keys[i])) {
        return refuse("has a key twice", "export the model again");
    }
    let default = match (names, p.call().ints("values_int64s")?.is_some()) {
        (Some(names), _) => names as f32,
        (None, true) => p.call().int("default_int64", -1)? as f32,
        (None, false) => p.call().number(usize::MAX, "default_float")?.unwrap_or(0.0),
    };
    let x = p.input(0)?;
    let in_order = keys.iter().zip(&values).enumerate().all(|(i, (k, v))| [*k, *v] == [i as f32; 2]);
    if in_order && places(p, x).is_some_and(|places| places <= keys.len()) {
        return Ok(vec![p.of("Identity", &[x])?]);
    }
    let (dims, n) = (p.dims(x), keys.len());
    let count = p.graph.shape(x).elements();
    let x = p.reshape(x, &[count, 1])?;
    let keys = p.constant(Tensor::new([n], keys));
    let hits = p.of("Equal", &[x, keys])?;
    let values = p.constant(Tensor::new([n, 1], values.iter().map(|v| v - default).collect()));
    let y = p.of("MatMul", &[hits, values])?;
    let y = p.affine(y, 1.0, default)?;
    Ok(vec![p.reshape(y, &dims)?])
}

/// How many places a value may be that is the place of the largest number of several.
fn places(p: &Parts, x: Id) -> Option<usize> {
    let node = p.graph.nodes.iter().rev().find(|node| node.output == x).filter(|node| node.op == "ArgMax")?;
    let from = p.graph.shape(*node.inputs.first()?.as_ref()?);
    from.dims().get(node.layer.after()?.axis()?).copied()
}

/// Rows divided by their largest number, the sum of their sizes, or their length.
fn normalize(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    p.call().only(1, &["norm"])?;
    let (x, _) = rows(p)?;
    let op = match p.call().string("norm", "MAX")?.as_str() {
        "MAX" => "ReduceMax",
        "L1" => "ReduceL1",
        "L2" => "ReduceL2",
        other => return refuse(format!("`norm` {other} is not known"), "export the model again"),
    };
    let axes = p.ints(&[1]);
    let norm = p.node(op, &[x, axes], Attributes::none().with("keepdims", 1))?;
    // A maximum may be 0 among negative numbers, which no number makes of norm 1.
    let norm = if op == "ReduceMax" { norm } else { super::norms::nonzero(p, norm)? };
    Ok(vec![p.of("Div", &[x, norm])?])
}

/// Replaces a number that stands for a missing one. NaN, which no share can hold, is refused where
/// data is encoded; without it there is nothing to replace.
fn impute(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    let known =
        ["imputed_value_floats", "imputed_value_int64s", "replaced_value_float", "replaced_value_int64"];
    p.call().only(1, &known)?;
    let (x, [_, features]) = rows(p)?;
    let (values, missing) = match p.call().ints("imputed_value_int64s")?.filter(|v| !v.is_empty()) {
        Some(values) => {
            let missing = p.call().int("replaced_value_int64", 0)? as f32;
            (values.into_iter().map(|v| v as f32).collect(), missing)
        }
        None => {
            let missing = p.call().number(usize::MAX, "replaced_value_float")?.unwrap_or(0.0);
            (reals(p, "imputed_value_floats")?, missing)
        }
    };
    if missing.is_nan() {
        return Ok(vec![x]);
    }
    let missing = p.number(missing);
    let replaced = p.of("Equal", &[x, missing])?;
    let values = row(p, values, features)?;
    let change = p.minus(values, x)?;
    let change = p.times(replaced, change)?;
    Ok(vec![p.plus(x, change)?])
}

fn binarize(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    p.call().only(1, &["threshold"])?;
    let (x, threshold) = (p.input(0)?, p.call().float("threshold", 0.0)?);
    let above = p.affine(x, 1.0, -threshold)?;
    Ok(vec![p.of(POSITIVE, &[above])?])
}

fn join(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    p.call().only(usize::MAX, &["inputdimensions"])?;
    let inputs = p.given();
    Ok(vec![p.concat(&inputs, 1)?])
}

/// Columns by public index; or the labels of classes by a secret one.
fn extract(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    p.call().only(2, &[])?;
    let (x, at) = (p.input(0)?, p.input(1)?);
    if p.is_constant(at) {
        let indices = p.known_ints(1)?;
        let last = p.dims(x).len().saturating_sub(1);
        let size = p.dims(x).get(last).copied().unwrap_or(0);
        let indices = indices.data.iter().map(|&i| usize::try_from(i).ok().filter(|&i| i < size));
        return match indices.collect::<Option<Vec<_>>>() {
            Some(indices) => Ok(vec![p.gather(x, last, &indices)?]),
            None => refuse("extracts a column that there is not", "export the model again"),
        };
    }
    let labels = p.known_floats(0)?;
    let (count, n) = (labels.data.len(), p.graph.shape(at).elements());
    if labels.data.iter().enumerate().all(|(i, &label)| label == i as f32) {
        return Ok(vec![p.reshape(at, &[1, n])?]);
    }
    let wanted = p.reshape(at, &[n, 1])?;
    let numbers = p.constant(Tensor::new([count], (0..count).map(|i| i as f32).collect()));
    let chosen = p.of("Equal", &[wanted, numbers])?;
    let labels = p.constant(Constant::from(Tensor::new([count, 1], labels.data.clone())));
    let label = p.of("MatMul", &[chosen, labels])?;
    Ok(vec![p.reshape(label, &[1, n])?])
}

/// The columns of the table that a map has one entry for: the recipient, who gets the labels, makes
/// it (`onnx/labels.rs`).
fn zip(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    p.call().only(1, &["classlabels_int64s", "classlabels_strings"])?;
    let x = p.input(0)?;
    Ok(vec![p.of("Identity", &[x])?])
}
