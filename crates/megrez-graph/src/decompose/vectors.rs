//! Support vector machines (the domain `ai.onnx.ml`), as LIBSVM trains them: decisions, labels and
//! probabilities. Vectors and coefficients are secret weights of the model's owner.

use super::estimators::{Classes, both, classified, matrix, reals, row, rows, transformed};
use super::{Decompose, Parts};
use crate::graph::{Attributes, Id};
use crate::layers::POSITIVE;
use crate::problem::{Refusal, refuse};
use crate::tensor::Tensor;

pub(super) const TABLE: &[(&str, Decompose)] =
    &[("SVMClassifier", support_vector_classifier), ("SVMRegressor", support_vector_regressor)];

/// Σ coefficient·K(x, vector) + ρ.
fn support_vector_regressor(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    let known = [
        "coefficients",
        "kernel_params",
        "kernel_type",
        "n_supports",
        "one_class",
        "post_transform",
        "rho",
        "support_vectors",
    ];
    p.call().only(1, &known)?;
    if p.call().int("one_class", 0)? != 0 {
        return refuse("looks for outliers", "use a regressor or a classifier");
    }
    let kernel = kernel(p)?;
    let count = p.dims(kernel)[1];
    let (coefficients, targets) = matrix(p, "coefficients", count)?;
    let rho = reals(p, "rho")?;
    let rho = row(p, rho, targets)?;
    let y = p.node("Gemm", &[kernel, coefficients, rho], Attributes::none().with("transB", 1))?;
    Ok(vec![transformed(p, y)?])
}

/// For every pair of classes a decision between them; a class gets a vote for each that it wins.
/// The scores are the decisions, and of two classes the one decision with both signs.
fn support_vector_classifier(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    let known = [
        "classlabels_ints",
        "classlabels_strings",
        "coefficients",
        "kernel_params",
        "kernel_type",
        "post_transform",
        "prob_a",
        "prob_b",
        "rho",
        "support_vectors",
        "vectors_per_class",
    ];
    let remedy = "export decisions in place of probabilities: SVC(probability=False)";
    let fitted = ["prob_a", "prob_b"].map(|name| p.call().reals(name));
    let [slopes, offsets] = fitted.map(|list| list.map(Option::unwrap_or_default));
    let (slopes, offsets) = (slopes?, offsets?);
    p.call().only(1, &known)?;
    if p.call().string("post_transform", "NONE")? != "NONE" {
        return refuse("transforms its decisions", remedy);
    }
    let kernel = kernel(p)?;
    let (classes, count) = (Classes::of(p, "classlabels_ints")?, p.dims(kernel)[1]);
    let sizes = p.call().ints("vectors_per_class")?.unwrap_or_default();
    let sizes = sizes.iter().map(|&n| usize::try_from(n).ok()).collect::<Option<Vec<_>>>();
    let (coefficients, rho) = (reals(p, "coefficients")?, reals(p, "rho")?);
    let n = classes.0.len();
    let fits = |sizes: &Vec<usize>| {
        sizes.len() == n && sizes.iter().try_fold(0usize, |sum, &s| sum.checked_add(s)) == Some(count)
    };
    let Some(sizes) = sizes.filter(fits).filter(|_| n >= 2 && coefficients.len() == (n - 1) * count) else {
        return refuse("has support vectors that are not those of its classes", "export the model again");
    };
    let ends: Vec<usize> = (0..=n).map(|class| sizes[..class].iter().sum()).collect();
    let pairs: Vec<(usize, usize)> = (0..n).flat_map(|i| (i + 1..n).map(move |j| (i, j))).collect();
    let mut weights = vec![0.0; pairs.len() * count];
    for (row, &(i, j)) in weights.chunks_mut(count).zip(&pairs) {
        for (class, other) in [(i, j - 1), (j, i)] {
            let vectors = ends[class]..ends[class + 1];
            row[vectors.clone()].copy_from_slice(&coefficients[other * count..][vectors]);
        }
    }
    let weights = p.constant(Tensor::new([pairs.len(), count], weights));
    let rho = row(p, rho, pairs.len())?;
    let decisions = p.node("Gemm", &[kernel, weights, rho], Attributes::none().with("transB", 1))?;
    let mut probabilities = None;
    if !(slopes.is_empty() && offsets.is_empty()) {
        let first = won(p, decisions, slopes, offsets)?;
        probabilities = Some(match n {
            2 => {
                let second = p.affine(first, -1.0, 1.0)?;
                p.concat(&[first, second], 1)?
            }
            3 => coupled(p, first)?,
            _ => {
                return refuse(
                    format!("couples the probabilities of {n} classes, not of two or three"),
                    remedy,
                );
            }
        });
    }
    // The label follows from the decisions, whatever the probabilities are.
    if n == 2 {
        let scores = both(p, decisions)?;
        let label = p.of("Neg", &[scores])?;
        return Ok(vec![classified(p, &classes, label)?[0], probabilities.unwrap_or(scores)]);
    }
    let won = p.of(POSITIVE, &[decisions])?;
    // The first of a pair has what is won, the second what is not.
    let (mut votes, mut lost) = (vec![0.0; pairs.len() * n], vec![0.0; n]);
    for (k, &(i, j)) in pairs.iter().enumerate() {
        (votes[k * n + i], votes[k * n + j]) = (1.0, -1.0);
        lost[j] += 1.0;
    }
    let votes = p.constant(Tensor::new([pairs.len(), n], votes));
    let lost = row(p, lost, n)?;
    let votes = p.node("Gemm", &[won, votes, lost], Attributes::none())?;
    Ok(vec![classified(p, &classes, votes)?[0], probabilities.unwrap_or(decisions)])
}

/// Platt's probability that the first class of each pair wins: 1/(1 + e^(a·d + b)) of a decision d.
fn won(p: &mut Parts, decisions: Id, slopes: Vec<f32>, offsets: Vec<f32>) -> Result<Id, Refusal> {
    let pairs = p.dims(decisions)[1];
    let negated = |list: Vec<f32>| list.into_iter().map(|v| -v).collect::<Vec<f32>>();
    if slopes.len() != pairs || offsets.len() != pairs {
        return refuse(
            format!("has {} and {} numbers for {pairs} pairs of classes", slopes.len(), offsets.len()),
            "export the model again",
        );
    }
    let slopes = row(p, negated(slopes), pairs)?;
    let offsets = row(p, negated(offsets), pairs)?;
    let inner = p.times(decisions, slopes)?;
    let inner = p.plus(inner, offsets)?;
    p.of("Sigmoid", &[inner])
}

/// The probabilities of three classes from those that the first one wins of the pairs (0, 1),
/// (0, 2), (1, 2), as LIBSVM couples them (T.-F. Wu, C.-J. Lin, R. C. Weng: Probability estimates
/// for multi-class classification by pairwise coupling, JMLR 5, 2004, second approach): p with
/// Σ p = 1 that minimises pᵀQp, where Q_ii = Σ_j r_ji² and Q_ij = −r_ij·r_ji.
///
/// So p is the sums of the rows of Q's adjugate, divided by what they add up to. Q has no positive
/// element off its diagonal, and what all sums add up to lies between 3/2 and 3: nothing small is
/// divided by. LIBSVM gets there by iterations, which divide by Q_ii, 10⁻¹⁴ and less.
fn coupled(p: &mut Parts, first: Id) -> Result<Id, Refusal> {
    let second = p.affine(first, -1.0, 1.0)?;
    // r_01, r_02, r_12, r_10, r_20, r_21.
    let r = p.concat(&[first, second], 1)?;
    let product = |p: &mut Parts, x: Id, pairs: &[(usize, usize)]| {
        let [left, right] = [0, 1].map(|side| {
            pairs.iter().map(|pair| if side == 0 { pair.0 } else { pair.1 }).collect::<Vec<usize>>()
        });
        let (left, right) = (p.gather(x, 1, &left)?, p.gather(x, 1, &right)?);
        p.times(left, right)
    };
    // r_10², r_01², r_02²; r_20², r_21², r_12²; r_01·r_10, r_02·r_20, r_12·r_21.
    let squares = product(p, r, &[(3, 3), (0, 0), (1, 1), (4, 4), (5, 5), (2, 2), (0, 3), (1, 4), (2, 5)])?;
    let (one, other) = (p.slice(squares, 1, 0..3)?, p.slice(squares, 1, 3..6)?);
    let diagonal = p.plus(one, other)?;
    let mixed = p.slice(squares, 1, 6..9)?;
    // A, B, C on the diagonal; x = −Q_01, y = −Q_02, z = −Q_12.
    let q = p.concat(&[diagonal, mixed], 1)?;
    let [a, b, c, x, y, z] = [0, 1, 2, 3, 4, 5];
    // The adjugate: BC − z², AC − y², AB − x² on its diagonal; xC + yz, xz + yB, Az + xy off it.
    let minors = product(
        p,
        q,
        &[(b, c), (a, c), (a, b), (z, z), (y, y), (x, x), (x, c), (x, z), (a, z), (y, z), (y, b), (x, y)],
    )?;
    let part = |p: &mut Parts, at: usize| p.slice(minors, 1, at..at + 3);
    let (whole, less, one, other) = (part(p, 0)?, part(p, 3)?, part(p, 6)?, part(p, 9)?);
    let own = p.minus(whole, less)?;
    let off = p.plus(one, other)?;
    // Rows 0, 1, 2 have the elements 01 and 02, 01 and 12, 02 and 12.
    let (first, second) = (p.gather(off, 1, &[0, 0, 1])?, p.gather(off, 1, &[1, 2, 2])?);
    let rest = p.plus(first, second)?;
    let sums = p.plus(own, rest)?;
    let total = p.sum(sums, &[1], true)?;
    let total = p.node("Clip", &[total], Attributes::none().with("min", 1.0).with("max", 4.0))?;
    p.of("Div", &[sums, total])
}

/// K(x, v) of every row with every support vector, with the kernels of LIBSVM.
fn kernel(p: &mut Parts) -> Result<Id, Refusal> {
    let (x, [_, features]) = rows(p)?;
    if p.call().reals("support_vectors")?.is_none_or(|list| list.is_empty()) {
        // A linear model that LIBLINEAR made: its coefficients are those of the features.
        return Ok(x);
    }
    let (vectors, count) = matrix(p, "support_vectors", features)?;
    let kind = p.call().string("kernel_type", "LINEAR")?;
    let parameters = p.call().reals("kernel_params")?.unwrap_or_default();
    let (gamma, offset, degree) = match parameters[..] {
        [gamma, offset, degree] => (gamma, offset, degree),
        [] => (1.0, 0.0, 3.0),
        _ => return refuse("`kernel_params` are not three", "export the model again"),
    };
    let products = p.node("Gemm", &[x, vectors], Attributes::none().with("transB", 1))?;
    match kind.as_str() {
        "LINEAR" => Ok(products),
        "POLY" => {
            let inner = p.affine(products, gamma, offset)?;
            p.power(inner, degree)
        }
        "SIGMOID" => {
            let inner = p.affine(products, gamma, offset)?;
            p.of("Tanh", &[inner])
        }
        "RBF" => {
            // −γ·|x − v|² = 2γ·x·v − γ·|x|² − γ·|v|², which is not above 0.
            let axes = p.ints(&[1]);
            let length = p.node("ReduceSumSquare", &[x, axes], Attributes::none().with("keepdims", 1))?;
            let vectors = reals(p, "support_vectors")?;
            let lengths = vectors.chunks(features).map(|v| v.iter().map(|a| a * a).sum()).collect();
            let lengths = row(p, lengths, count)?;
            let doubled = p.affine(products, 2.0, 0.0)?;
            let distance = p.minus(doubled, length)?;
            let distance = p.minus(distance, lengths)?;
            let inner = p.affine(distance, gamma, 0.0)?;
            let inner = p.node("Clip", &[inner], Attributes::none().with("max", 0.0))?;
            p.of("Exp", &[inner])
        }
        other => refuse(format!("`kernel_type` {other} is not known"), "export the model again"),
    }
}
