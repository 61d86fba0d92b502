//! How many fraction bits a model needs.
//!
//! Every product rounds its weights and its result. What that is off by passes through all later
//! layers, which add their own, and normalisations by small deviations enlarge it: with 16 fraction
//! bits, 50 layers lead to errors of 0.01 and more. More bits cost nothing but room on the ring, so
//! a deep model gets as many as its ranges allow, in steps of two.
//!
//! Which models are deep is decided by the graph alone. How many of the steps hold follows from the
//! ranges, and stands in the plan: one of few numbers for the whole model.

use crate::graph::Graph;
use crate::options::CompileOptions;
use crate::scale::Scale;

/// More products than this one after the other make a model deep.
pub const DEEP: usize = 32;

/// The most products that follow one another.
pub fn depth(graph: &Graph) -> usize {
    let mut depths = vec![0usize; graph.values.len()];
    for node in &graph.nodes {
        let before = node.inputs.iter().flatten().map(|id| depths[id.0]).max().unwrap_or(0);
        let multiplies =
            matches!(node.layer.scale(), Scale::Product | Scale::ShrinksThenProduct | Scale::Function);
        depths[node.output.0] = before + usize::from(multiplies);
    }
    depths.into_iter().max().unwrap_or(0)
}

/// The fraction bits to try, the most first, `frac` last.
pub fn fractions(graph: &Graph, options: &CompileOptions) -> Vec<u32> {
    // What is kept for another plan has the fraction bits of that one; and with declared ranges a
    // plan tells nothing about weights, not even whether their bounds leave room.
    let free = options.kept.is_empty() && options.declared.is_none();
    let most = options.deep_frac.filter(|_| free && depth(graph) > DEEP);
    let more = most.into_iter().flat_map(|most| (options.frac + 1..=most).rev().step_by(2));
    more.chain([options.frac]).collect()
}
