//! Rewriting the graph before it is lowered. Each pass takes a graph and gives one that computes
//! the same.

mod batch_norm;
mod curve;
mod enumerate;
mod floats;
mod gelu;
mod layer_norm;
mod mask;
pub(crate) mod pattern;
pub mod precision;
mod publish;
mod reveal;
pub(crate) mod rewrite;
mod rotation;
mod swish;
mod switch;
mod tidy;
pub mod truncation;

pub use batch_norm::fold_batch_norm;
pub use curve::whole_curves;
pub use enumerate::enumerate_tokens;
pub use floats::for_floats;
pub use gelu::fuse_gelu;
pub(crate) use layer_norm::LAYER_NORM_SCALE;
pub use layer_norm::{fuse_layer_norm, split_layer_norm};
pub use mask::fuse_masks;
pub use reveal::leave_to_recipient;
pub use swish::fuse_swish;
pub use switch::pool_before_activation;
pub use tidy::{remove_dead, remove_identities};

use crate::after::After;
use crate::graph::Graph;
use crate::problem::Problems;

/// The passes of fixed point: all of [`optimise`], then rotations by public positions.
pub fn for_fixed_point(graph: &Graph) -> Result<(Graph, Vec<Vec<After>>), Problems> {
    let (graph, after) = optimise(graph)?;
    Ok((rotation::fuse_rotation(&graph)?, after))
}

/// All passes in order. What is left to the recipient is listed for each output.
pub fn optimise(graph: &Graph) -> Result<(Graph, Vec<Vec<After>>), Problems> {
    let graph = remove_identities(graph)?;
    let (graph, after) = leave_to_recipient(&graph)?;
    let graph = fuse_layer_norm(&fuse_gelu(&fuse_masks(&graph)?)?)?;
    let graph = remove_dead(&graph)?;
    let graph = fold_batch_norm(&graph)?;
    let graph = fuse_swish(&graph)?;
    let graph = pool_before_activation(&graph)?;
    Ok((graph, after))
}
