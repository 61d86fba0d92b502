//! Where products are truncated.
//!
//! A product carries 2f fraction bits and must be back at f before the next product. Comparisons,
//! sums and rearrangements do not care. The first ReLU on the way takes the truncation into its own
//! step, at no online cost. Without one it goes where the fewest elements are: behind a pool; among
//! places with equally many the last that computes is taken, so that branches that meet share one
//! truncation. A product that reaches an output is not truncated at all: its recipient decodes 2f
//! bits. Nor is one that its readers truncate themselves, once they have made it smaller or centred
//! it.
//!
//! Waiting asks nothing more of the range: |x| < 2^(ℓ−2), which the truncation needs anyway, bounds
//! differences of two such values by 2^(ℓ−1). Only averages need room for their sums, and wait
//! behind them only where there is plenty. So the placement depends on shapes alone and tells
//! nothing about the weights.

use crate::graph::Graph;
use crate::layers::UPDATE;
use crate::options::CompileOptions;
use crate::scale::Scale;

/// Bits before the binary point that must remain for a truncation to wait until after an average.
const INTEGER_BITS: u32 = 14;

/// For each node, whether its output is truncated.
pub fn place(graph: &Graph, options: &CompileOptions) -> Vec<bool> {
    let mut readers = graph.readers();
    // What only the plain reference reads is not there for the steps.
    for (id, of_value) in readers.iter_mut().enumerate() {
        let reads = |n: &usize| {
            let node = &graph.nodes[*n];
            let mut inputs = node.inputs.iter().flatten().enumerate();
            inputs.any(|(i, input)| input.0 == id && !node.layer.unread(i))
        };
        of_value.retain(reads);
    }
    let mut truncate = vec![false; graph.nodes.len()];
    for (n, node) in graph.nodes.iter().enumerate() {
        let scale = node.layer.scale().with(options.activations);
        let multiplies = matches!(scale, Scale::Product | Scale::ShrinksThenProduct);
        if let Some(best) = best_place(graph, &readers, n, options).filter(|_| multiplies) {
            truncate[best] = true;
        }
    }
    truncate
}

/// For each node, whether its result may have more fraction bits than the plan's, and truncations
/// before it are spared: all that reads it multiplies it and adds it up, or looks it up in a table,
/// perhaps behind a sum or a rearrangement. So no range asks for more room than the ring has but
/// those of these layers.
pub fn spared(graph: &Graph, options: &CompileOptions) -> Vec<bool> {
    let readers = graph.readers();
    let mut spared = vec![false; graph.nodes.len()];
    for (n, node) in graph.nodes.iter().enumerate().rev() {
        let value = node.output;
        let takes = |&reader: &usize| {
            let layer = &graph.nodes[reader].layer;
            let hands_on = ["Add", "Sub", "Neg", "Concat"].contains(&&*graph.nodes[reader].op);
            let looks_up = layer.scale() == Scale::Function;
            let product = layer.multilinear();
            product
                || (looks_up && layer.scale().with(options.activations) == Scale::ShrinksThenProduct)
                || ((hands_on || layer.view().is_some()) && spared[reader])
        };
        let all = &readers[value.0];
        spared[n] = !all.is_empty() && !graph.is_output(value) && all.iter().all(takes);
    }
    spared
}

/// For each node, whether a product reads what follows from it before the weights move: there a
/// round more would be one on the longest way.
pub fn goes_on(graph: &Graph) -> Vec<bool> {
    let readers = graph.readers();
    let mut goes_on = vec![false; graph.nodes.len()];
    for (n, node) in graph.nodes.iter().enumerate().rev() {
        goes_on[n] = readers[node.output.0].iter().any(|&reader| {
            let read_by = &graph.nodes[reader];
            let multiplies = matches!(read_by.layer.scale(), Scale::Product | Scale::ShrinksThenProduct);
            read_by.op != UPDATE && (multiplies || goes_on[reader])
        });
    }
    goes_on
}

/// The node after which the product of node `start` is truncated; `None` if it never is, or by its
/// reader.
fn best_place(
    graph: &Graph,
    readers: &[Vec<usize>],
    start: usize,
    options: &CompileOptions,
) -> Option<usize> {
    let elements = |n: usize| graph.nodes[n].layer.shape().elements();
    let scale = |n: usize| graph.nodes[n].layer.scale().with(options.activations);
    let handed_on = |readers: &[usize]| {
        readers.iter().any(|&n| scale(n) == Scale::ShrinksThenProduct)
            && readers.iter().all(|&n| matches!(scale(n), Scale::Passes | Scale::ShrinksThenProduct))
    };
    let room = options.ring - 2 - 2 * options.frac;
    let (mut best, mut at, mut spent) = (start, start, 0);
    loop {
        let value = graph.nodes[at].output;
        let next = match readers[value.0][..] {
            [] if graph.is_output(value) => return None,
            [next] if !graph.is_output(value) => next,
            // Some truncate what they make of it, the others hand it on: so a sum that only
            // normalisations multiply is never truncated itself.
            ref several
                if !graph.is_output(value) && elements(at) <= elements(best) && handed_on(several) =>
            {
                return None;
            }
            _ => return Some(best),
        };
        match scale(next) {
            Scale::Passes => {}
            Scale::Divides { bits } if spent + bits + INTEGER_BITS <= room => spent += bits,
            // The sum is truncated in there, as far as it needs to be.
            Scale::ShrinksThenProduct | Scale::Settles if elements(next) <= elements(best) => return None,
            _ => return Some(best),
        }
        if graph.nodes[next].op == "Relu" {
            return Some(next);
        }
        let moves_only = graph.nodes[next].layer.view().is_some();
        if elements(next) < elements(best) || (elements(next) == elements(best) && !moves_only) {
            best = next;
        }
        at = next;
    }
}
