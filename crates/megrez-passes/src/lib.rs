//! From plan to plan: what a protocol needs a plan to look like, and the cheapest of several plans
//! that compute the same.
//!
//! A pass knows the steps of a plan and no layer, no protocol and no share. Which protocol is given
//! which pass follows from what the registry says of it; what a plan costs, whoever asks says.

mod choose;
mod forms;
mod maxima;
mod offload;
mod openings;
mod products;
mod resharing;
mod slices;
mod trees;

pub use choose::{Estimate, choose};
pub use forms::{key_small_relus, relu_sizes};
pub use maxima::spread_maxima;
pub use offload::{offload_sizes, offload_tables, offload_to_dealer};
pub use openings::defer_openings;
pub use products::truncate_in_products;
pub use resharing::defer_resharing;
pub use slices::{SLICED_FROM, slice_rows};
pub use trees::select_by_trees;

use megrez_plan::{Plan, PlanError};
use std::collections::HashSet;

/// A name for a new step that no other has: layers may be called as they like.
fn fresh_name(names: &mut HashSet<String>, base: &str) -> String {
    let candidates = std::iter::once(base.to_string()).chain((2..).map(|i| format!("{base}-{i}")));
    let mut fresh = candidates.filter(|name| names.insert(name.clone()));
    fresh.next().expect("numbers do not end")
}

fn names(plan: &Plan) -> HashSet<String> {
    plan.steps.iter().map(|step| step.name.clone()).collect()
}

/// Makes a plan of shared primitives one for equal parties, who truncate and share again in one go
/// and have no maximum of their own: ReLUs and maxima of at most `offload` elements go to the
/// dealer (0: none do) and all tables and winners too, the other maxima are made of steps that the
/// parties have, and products wait for their truncation. The plan computes the same values.
///
/// # Errors
/// None for a plan that is valid.
pub fn legalise(plan: &mut Plan, offload: usize) -> Result<(), PlanError> {
    offload_to_dealer(plan, offload);
    offload_tables(plan);
    spread_maxima(plan)?;
    defer_resharing(plan)
}
