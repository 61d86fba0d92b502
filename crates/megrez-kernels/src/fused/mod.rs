//! Fused steps: what a protocol does with a tensor between two messages, in one kernel. Each has
//! its file, with one trait whose default states the step in plain code and runs that on the host,
//! and the CPU's fast form beside it. So a new step is one file before any device is fast at it,
//! and `Device` has the trait among its supertraits.

mod bit_product;
mod comparison_key;
mod half_tree;
mod list;
mod lookup;
mod lookup_keys;
mod select;
mod sign_table;
mod signed_sum;
mod truncate;

pub use bit_product::BitProducts;
pub use comparison_key::{ComparisonKeys, DealtKeys, KeyShare, KeySpec};
pub use half_tree::PERMUTATION_WORDS;
pub use list::{
    Entries, Field, FieldShare, ListAlgebra, ListInput, ListSpec, ListStreams, MaskedLists, on_host,
};
pub use lookup::LookupTables;
pub use lookup_keys::{DealtLookup, LookupKey, LookupKeys};
pub use select::{OpenSelected, Selected};
pub use sign_table::SignTables;
pub use signed_sum::SignedSums;
pub use truncate::{OpenTruncated, Truncation};
