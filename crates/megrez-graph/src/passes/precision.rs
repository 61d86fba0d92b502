//! How many fraction bits a model needs.
//!
//! Every product rounds its weights and its result. What that is off by passes through all later
//! layers, which add their own, and normalisations by small deviations enlarge it: with 16 fraction
//! bits, 50 layers lead to errors of 0.01 and more. More bits cost nothing but room on the ring, so
//! a deep model gets as many as its ranges allow, in steps of two.
//!
//! The other way round, a product whose factors may be too large for the ring takes them with fewer
//! fraction bits, in steps of four: large numbers have digits enough before the point. That is done
//! layer by layer where a proof would fail, so the plan shows of these layers how large their
//! operands may be, to a factor of 16.
//!
//! Which models are deep is decided by the graph alone. How many of the steps hold follows from the
//! ranges, and stands in the plan: one of few numbers for the whole model.

use crate::graph::Graph;
use crate::layers::INVERSE_DEVIATION;
use crate::options::CompileOptions;
use crate::range::RangePolicy;
use crate::scale::Scale;
use std::collections::HashMap;

/// More products than this one after the other make a model deep.
pub const DEEP: usize = 32;

/// The products that a normalisation counts for: it enlarges what its operand is off by.
const NORMALISATION: usize = 6;

/// The most products that follow one another.
pub fn depth(graph: &Graph) -> usize {
    let mut depths = vec![0usize; graph.values.len()];
    for node in &graph.nodes {
        let before = node.inputs.iter().flatten().map(|id| depths[id.0]).max().unwrap_or(0);
        let normalises = ["LayerNormalization", "RMSNormalization", INVERSE_DEVIATION].contains(&&*node.op);
        let multiplies =
            matches!(node.layer.scale(), Scale::Product | Scale::ShrinksThenProduct | Scale::Function);
        let counts = if normalises { NORMALISATION } else { usize::from(multiplies) };
        depths[node.output.0] = before + counts;
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

/// Has those layers that are short of so many bits give up as many fraction bits of all their
/// operands together; whether that is any more than before.
pub fn coarsen(
    coarser: &mut HashMap<usize, u32>,
    short: &HashMap<usize, u32>,
    options: &CompileOptions,
) -> bool {
    // As for more bits: these plans tell nothing of weights, or share values with another plan.
    // Measured ranges keep more precision than a coarser proof.
    if !options.kept.is_empty() || options.declared.is_some() || options.policy != RangePolicy::Prove {
        return false;
    }
    let mut any = false;
    for (&node, &bits) in short {
        let has = coarser.entry(node).or_insert(0);
        let more = (*has + bits.next_multiple_of(4)).min(options.frac);
        any |= more > *has;
        *has = more;
    }
    any
}
