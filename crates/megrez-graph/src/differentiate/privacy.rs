//! A step whose weights tell little of any one row: the gradient of each row is scaled down to a
//! norm, and noise is added to the sum of a batch ([`crate::layers`]' `RowScale` and `NoisySum`).

use crate::graph::{Attribute, Attributes, Graph, Id};
use crate::layers::{CONV_GRAD_ROWS, CONV_GRAD_WEIGHT, NOISY_SUM, ROW_SCALE};
use crate::passes::pattern::Pattern;
use crate::problem::{Cause, Problem, Problems, Refusal};
use std::collections::HashSet;

/// How much a row may move the weights, and what hides it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Privacy {
    /// The largest norm of a row's gradient, over all trained weights: longer ones are scaled down.
    /// A multiple of 2^−16 from 2^−6 to 64.
    pub clip: f32,
    /// The standard deviation of the noise that each of two parties adds to the sum of a batch's
    /// gradients, over `clip`.
    pub noise: f32,
}

/// What activations and gradients are held within before norms are taken of them.
const BOUND: i64 = 16;

/// How the gradient of a weight is made of the rows of a batch: a product of two matrices with a
/// row for each of the batch's, or the sum of the rows of one.
struct OfRows {
    left: Option<Id>,
    right: Id,
    turned: bool,
}

/// What a gradient is, before it is written as one of rows.
enum Gradient {
    /// As it stands.
    Rows(OfRows),
    /// The sum of what has a first dimension of the batch's rows, over that and the axes `others`.
    Sum { of: Id, others: Vec<i64> },
    /// leftᵀ · right where each of the batch's rows has several rows of both.
    Product { left: Id, right: Id },
    /// That of a convolution's weights.
    Kernel { x: Id, delta: Id, attributes: Attributes },
}

impl Gradient {
    fn of(graph: &Graph, mut gradient: Id, batch: usize) -> Option<Self> {
        let p = Pattern::new(graph);
        while let Some(reshaped) = p.made_by(gradient, "Reshape") {
            gradient = p.input(reshaped, 0)?;
        }
        let product = |left: Id, right: Id| {
            // The later one is the gradient: it is scaled, the other may be data as it is.
            let turned = left.0 > right.0;
            let (&[rows, _], &[others, _]) = (graph.shape(left).dims(), graph.shape(right).dims()) else {
                return None;
            };
            let (x, delta) = if turned { (right, left) } else { (left, right) };
            match rows == others && rows.is_multiple_of(batch) {
                true if rows == batch => Some(Gradient::Rows(OfRows { left: Some(x), right: delta, turned })),
                true => Some(Gradient::Product { left, right }),
                false => None,
            }
        };
        if let Some(gemm) = p.made_by(gradient, "Gemm") {
            let columns = [p.int(gemm, "transA", 0), p.int(gemm, "transB", 0)] == [Some(1), Some(0)];
            let once = gemm.attributes.0.get("alpha").is_none_or(|alpha| *alpha == Attribute::Float(1.0));
            let alone = columns && once && p.input(gemm, 2).is_none();
            return if alone { product(p.input(gemm, 0)?, p.input(gemm, 1)?) } else { None };
        }
        if let Some(product_of) = p.made_by(gradient, "MatMul") {
            let turned = p.made_by(p.input(product_of, 0)?, "Transpose")?;
            return product(p.input(turned, 0)?, p.input(product_of, 1)?);
        }
        if let Some(kernel) = p.made_by(gradient, CONV_GRAD_WEIGHT) {
            let (x, delta) = (p.input(kernel, 0)?, p.input(kernel, 1)?);
            let of_rows = graph.shape(x).dims().first() == Some(&batch);
            return of_rows.then(|| Gradient::Kernel { x, delta, attributes: kernel.attributes.clone() });
        }
        let sum = p.made_by(gradient, "ReduceSum")?;
        let (of, axes) = (p.input(sum, 0)?, p.integers(sum, 1, "axes")?);
        let others: Vec<i64> = axes.iter().copied().filter(|&axis| axis != 0).collect();
        let of_rows = graph.shape(of).dims().first() == Some(&batch) && others.len() < axes.len();
        (of_rows && others.iter().all(|&axis| axis > 0)).then_some(Gradient::Sum { of, others })
    }

    /// The same as rows: what is no product of two vectors for each row is made for each row, and
    /// added up then.
    fn by_rows(self, graph: &mut Graph, name: &str, batch: usize) -> Result<OfRows, Problem> {
        let add = |graph: &mut Graph, part: &str, op: &str, inputs: &[Id], attributes: Attributes| {
            graph.add(&format!("private.{name}.{part}"), op, inputs, attributes)
        };
        let list = |name: &str, values: &[usize]| {
            Attributes::none().with(name, values.iter().map(|&n| n as i64).collect::<Vec<_>>())
        };
        let right = match self {
            Gradient::Rows(of) => return Ok(of),
            Gradient::Sum { of, others } if others.is_empty() => of,
            Gradient::Sum { of, others } => {
                let others = Attributes::none().with("axes", others).with("keepdims", 0);
                add(graph, "each", "ReduceSum", &[of], others)?
            }
            Gradient::Kernel { x, delta, attributes } => {
                add(graph, "each", CONV_GRAD_ROWS, &[x, delta], attributes)?
            }
            Gradient::Product { left, right } => {
                let several = |graph: &mut Graph, part: &str, x: Id| {
                    let &[rows, n] = graph.shape(x).dims() else { unreachable!("found to be a matrix") };
                    add(graph, part, "Reshape", &[x], list("shape", &[batch, rows / batch, n]))
                };
                let left = several(graph, "each.left", left)?;
                let right = several(graph, "each.right", right)?;
                let left = add(graph, "each.turned", "Transpose", &[left], list("perm", &[0, 2, 1]))?;
                add(graph, "each", "MatMul", &[left, right], Attributes::none())?
            }
        };
        let dims = [batch, graph.shape(right).elements() / batch];
        let right = match graph.shape(right).dims() == dims {
            true => right,
            false => add(graph, "each.rows", "Reshape", &[right], list("shape", &dims))?,
        };
        Ok(OfRows { left: None, right, turned: false })
    }
}

/// In place of gradients their private forms.
///
/// # Errors
/// Every weight whose gradient is no sum of what is made for each row.
pub(super) fn private(
    graph: &mut Graph,
    privacy: Privacy,
    batch: usize,
    data: &[Id],
    gradients: &[(String, Id)],
) -> Result<Vec<Id>, Problems> {
    let mut problems: Vec<Problem> = vec![];
    let mut made = vec![];
    for (name, gradient) in gradients {
        match Gradient::of(graph, *gradient, batch) {
            Some(of) => made.push(of.by_rows(graph, name, batch)?),
            None => {
                let refusal = Refusal::new(
                    "what one row adds to its gradient has no bound here",
                    "train other layers alone with privacy: `--only`, or without",
                );
                problems.push(refusal.because(Cause::Unsupported).at(name, ""));
            }
        }
    }
    if !problems.is_empty() {
        return Err(Problems(problems));
    }
    let data = views_of(graph, data);
    let mut inputs: Vec<Id> = vec![];
    let mut place = |id: Id| match inputs.iter().position(|&other| other == id) {
        Some(place) => place as i64,
        None => {
            inputs.push(id);
            inputs.len() as i64 - 1
        }
    };
    let left: Vec<i64> = made.iter().map(|of| of.left.map_or(-1, &mut place)).collect();
    let right: Vec<i64> = made.iter().map(|of| place(of.right)).collect();
    let bound = |id: &Id| if data.contains(id) { 0 } else { BOUND };
    let attributes = Attributes::none()
        .with("bounds", inputs.iter().map(bound).collect::<Vec<_>>())
        .with("clip", privacy.clip)
        .with("left", left)
        .with("right", right);
    let factors = graph.add("private.rows", ROW_SCALE, &inputs, attributes)?;
    let (mut noisy, mut first) = (vec![], 0);
    for (of, (name, gradient)) in made.iter().zip(gradients) {
        let vectors: Vec<Id> = of.left.into_iter().chain([of.right]).collect();
        let bounds = [of.left.as_ref().map_or(0, bound), bound(&of.right)];
        let shape: Vec<i64> = graph.shape(*gradient).dims().iter().map(|&n| n as i64).collect();
        let attributes = Attributes::none()
            .with("bounds", bounds)
            .with("clip", privacy.clip)
            .with("first", first)
            .with("noise", privacy.noise)
            .with("shape", shape)
            .with("turned", i64::from(of.turned));
        first += vectors.len() as i64;
        let operands: Vec<Id> = [factors].into_iter().chain(vectors).collect();
        noisy.push(graph.add(&format!("private.{name}"), NOISY_SUM, &operands, attributes)?);
    }
    Ok(noisy)
}

/// Data, and what rearranges it.
fn views_of(graph: &Graph, data: &[Id]) -> HashSet<Id> {
    let mut found: HashSet<Id> = data.iter().copied().collect();
    for node in &graph.nodes {
        if node.layer.view().is_some()
            && node.inputs.iter().flatten().next().is_some_and(|x| found.contains(x))
        {
            found.insert(node.output);
        }
    }
    found
}
