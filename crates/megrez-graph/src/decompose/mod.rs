//! Operators that are made of others: what a node becomes before a layer sees it. One mechanism for
//! many operators: a decomposition has no lowering, no range rule and no floating-point form of its
//! own, because its parts have them. What costs less as a step of its own is a layer
//! ([`crate::layers`]).

mod activations;
mod attention;
mod comparisons;
mod estimators;
mod grids;
mod linear;
mod losses;
mod norms;
mod order;
mod parts;
mod powers;
mod quantized;
mod recurrent;
mod reductions;
mod resize;
mod scatter;
mod shapes;
mod trees;
mod vectors;
mod windows;

pub(crate) use comparisons::NOT_ZERO;
pub(crate) use parts::{Decompose, Parts};
pub(crate) use quantized::{SCALED_BACK, TO_TYPE};
pub(crate) use reductions::FLATTENED;

/// Every operator that is made of others, or may be. Where a layer has the operator as it is used,
/// the decomposition leaves it ([`Parts::itself`]).
const TABLE: &[&[(&str, Decompose)]] = &[
    activations::TABLE,
    attention::TABLE,
    comparisons::TABLE,
    estimators::TABLE,
    grids::TABLE,
    linear::TABLE,
    losses::TABLE,
    norms::TABLE,
    order::TABLE,
    powers::TABLE,
    quantized::TABLE,
    recurrent::TABLE,
    reductions::TABLE,
    resize::TABLE,
    scatter::TABLE,
    shapes::TABLE,
    trees::TABLE,
    vectors::TABLE,
    windows::TABLE,
];

/// The decomposition of an operator.
pub(crate) fn decomposition(op: &str) -> Option<Decompose> {
    let all = TABLE.iter().flat_map(|family| family.iter());
    all.clone().find(|(known, _)| *known == op).map(|(_, decompose)| *decompose)
}

/// Every operator that is made of others.
pub(crate) fn decomposed() -> impl Iterator<Item = &'static str> {
    TABLE.iter().flat_map(|family| family.iter().map(|(op, _)| *op))
}
