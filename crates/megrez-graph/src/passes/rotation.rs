//! x·cos + (−x₂, x₁)·sin with constant tables, as exporters write rotary positions, becomes one
//! rotation if the tables are those of positions that follow each other: it is then known by two
//! numbers of the architecture, the first position and the base, and costs no products with
//! weights. Tables of other frequencies stay weights.
//!
//! The steps then compute with cosines of their own. A table counts as one of positions only where
//! every number is as near to them as angles computed in float32 are.

use super::pattern::Pattern;
use super::rewrite::Rewrite;
use super::tidy::remove_dead;
use crate::graph::{Graph, Id, Node};
use crate::layers::{Positions, ROTATION};
use crate::problem::Problem;
use crate::tensor::Tensor;
use megrez_plan::View;
use std::collections::HashMap;

/// Positions up to this are looked for.
const MOST: usize = 1 << 17;

/// Fuses every rotation by known positions.
pub fn fuse_rotation(graph: &Graph) -> Result<Graph, Problem> {
    let pattern = Pattern::new(graph);
    let found: HashMap<Id, (Id, Positions)> =
        graph.nodes.iter().filter_map(|node| Some((node.output, rotation(&pattern, graph, node)?))).collect();
    if found.is_empty() {
        return Ok(graph.clone());
    }
    let mut rewrite = Rewrite::new(graph)?;
    for node in &graph.nodes {
        let Some(&(x, positions)) = found.get(&node.output) else {
            rewrite.copy(node)?;
            continue;
        };
        let x = Some(rewrite.place(x));
        let fused = Node { op: ROTATION.into(), ..node.clone() };
        let y = rewrite.add(&fused, &[x], positions.attributes())?;
        rewrite.put(node.output, y);
    }
    remove_dead(&rewrite.finish())
}

/// What is turned, and by what, in the rotation whose sum a node is.
fn rotation(p: &Pattern, graph: &Graph, node: &Node) -> Option<(Id, Positions)> {
    if node.op != "Add" {
        return None;
    }
    let weighed = |id: Id| {
        let product = p.made_by(id, "Mul")?;
        let (x, table) = p.pairs(product).into_iter().find(|&(_, c)| p.floats(c).is_some())?;
        Some((x, p.floats(table)?))
    };
    p.pairs(node).into_iter().find_map(|(a, b)| {
        let ((x, cos), (exchanged, sin)) = (weighed(a)?, weighed(b)?);
        let size = *graph.shape(x).dims().last()?;
        (size % 2 == 0 && halves_of(p, graph, exchanged)? == x).then_some(())?;
        let positions = positions(rows(cos, graph, x)?, rows(sin, graph, x)?, size)?;
        Some((x, positions))
    })
}

/// What (−x₂, x₁) is made of.
fn halves_of(p: &Pattern, graph: &Graph, id: Id) -> Option<Id> {
    let joined = p.made_by(id, "Concat")?;
    let &[Some(second), Some(first)] = &joined.inputs[..] else { return None };
    let second = p.input(p.made_by(second, "Neg")?, 0)?;
    let part = |id: Id| {
        let slice = p.made_by(id, "Slice")?;
        Some((p.input(slice, 0)?, slice.layer.view()?))
    };
    let ((x, upper), (same, lower)) = (part(second)?, part(first)?);
    let shape = graph.shape(x);
    let (last, half) = (shape.rank() - 1, shape.dims().last()? / 2);
    let along = p.int(joined, "axis", 0)?;
    let halves = *upper == View::slice(shape, last, half, 1, half)
        && *lower == View::slice(shape, last, 0, 1, half)
        && (along == -1 || along == last as i64)
        && graph.shape(id) == shape;
    (x == same && halves).then_some(x)
}

/// The rows of a table, one for each position, if it has no other dimensions.
fn rows<'a>(table: &'a Tensor, graph: &Graph, x: Id) -> Option<&'a [f32]> {
    let (dims, of) = (table.shape.dims(), graph.shape(x).dims());
    let (&steps, &size) = (of.get(of.len().checked_sub(2)?)?, of.last()?);
    let tail = dims.len() >= 2 && dims[dims.len() - 2..] == [steps, size];
    (tail && table.data.len() == steps * size).then_some(&table.data[..])
}

/// The positions whose cosines and sines these are, rows of `size` numbers.
fn positions(cos: &[f32], sin: &[f32], size: usize) -> Option<Positions> {
    let half = size / 2;
    let steps = cos.len() / size;
    let near = |start: usize, base: f32| {
        let [c, s] = Positions { start, base }.tables(steps, half);
        let at = |i: usize| (i / size) * half + i % size % half;
        // What an angle is off by in float32, and its cosine.
        let slack = (start + steps) as f32 * 2f32.powi(-23) + 2f32.powi(-20);
        let same = |table: &[f32], own: &Tensor| {
            table.iter().enumerate().all(|(i, v)| (v - own.data[at(i)]).abs() <= slack)
        };
        same(cos, &c) && same(sin, &s)
    };
    let first = |start: usize| {
        let (s, c) = (start as f64).sin_cos();
        let slack = (start + 1) as f64 * 2f64.powi(-23) + 2f64.powi(-20);
        (c - f64::from(cos[0])).abs() <= slack && (s - f64::from(sin[0])).abs() <= slack
    };
    (0..MOST).filter(|&start| first(start)).find_map(|start| {
        // The slowest pair of the last position tells the base.
        let place = (steps - 1) * size + half - 1;
        let angle = f64::from(sin[place]).atan2(f64::from(cos[place]));
        let exponent = half as f64 / (half as f64 - 1.0);
        let base = (((start + steps - 1) as f64 / angle).powf(exponent)) as f32;
        // Bases are whole numbers.
        [base.round(), base, 10000.0]
            .into_iter()
            .filter(|base| base.is_finite() && *base >= 1.0)
            .map(|base| Positions { start, base })
            .find(|positions| near(positions.start, positions.base))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table as float32 computes it, both halves alike.
    fn table(start: usize, steps: usize, half: usize, base: f32) -> [Vec<f32>; 2] {
        let frequency = |i: usize| 1.0 / base.powf((2 * i) as f32 / (2 * half) as f32);
        let angle = |i: usize| (start + i / (2 * half)) as f32 * frequency(i % (2 * half) % half);
        [f32::cos, f32::sin].map(|f| (0..2 * half * steps).map(|i| f(angle(i))).collect())
    }

    #[test]
    fn tables_of_positions_are_known_by_two_numbers() {
        for (start, steps, half, base) in [
            (0, 5, 2, 10000.0),
            (0, 1, 32, 10000.0),
            (1, 1, 32, 10000.0),
            (0, 512, 32, 10000.0),
            (710, 3, 16, 500000.0),
            (2047, 1, 64, 10000.0),
            (3, 4, 1, 10000.0),
        ] {
            let [cos, sin] = table(start, steps, half, base);
            let found = positions(&cos, &sin, 2 * half).unwrap_or_else(|| panic!("{start} {half}"));
            assert_eq!(found.start, start);
            let turns = half > 1 && start + steps > 1;
            assert!(!turns || (found.base / base - 1.0).abs() < 1e-3, "{found:?}");
        }
    }

    #[test]
    fn other_tables_stay_weights() {
        let [mut cos, sin] = table(0, 5, 4, 10000.0);
        cos[13] += 1e-4;
        assert_eq!(positions(&cos, &sin, 8), None);
        let [cos, sin] = table(0, 5, 4, 10000.0);
        let scaled: Vec<f32> = cos.iter().map(|v| 1.5 * v).collect();
        assert_eq!(positions(&scaled, &sin, 8), None);
        assert_eq!(positions(&sin, &cos, 8), None);
        assert_eq!(positions(&[f32::NAN; 16], &[f32::NAN; 16], 8), None);
    }
}
