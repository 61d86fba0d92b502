//! Parts that several protocols share: addition by trees ([`tree`], [`digits`], [`planes`]), and
//! the steps on replicated values that `aby3` and `alkaid` have in common and `meteor` takes for
//! its masks.

pub(crate) mod compare;
pub(crate) mod digits;
pub(crate) mod offloaded;
pub(crate) mod planes;
pub(crate) mod polynomial;
pub(crate) mod product;
pub(crate) mod relu;
pub(crate) mod select;
pub(crate) mod sum;
pub(crate) mod tree;
pub(crate) mod truncate;
pub(crate) mod words;
