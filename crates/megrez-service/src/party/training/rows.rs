//! Stored rows in a job: all sets joined, cut into batches, in the order of an epoch.

use crate::party::opened::StoredModel;
use crate::protocols::Suite;
use crate::training::{RowSet, count};
use crate::{Error, ErrorKind, Result};
use megrez_device::AnyDevice;
use megrez_engine::{Stored, derive};
use megrez_plan::{KEPT, Kind, Op, Plan, PlanError, Value, ValueId};
use megrez_session::Party;
use std::collections::BTreeMap;

fn made(e: PlanError) -> Error {
    Error::of(ErrorKind::Internal, e)
}

/// A plan of kept inputs, to which local steps are added.
pub(super) struct Local(pub(super) Plan);

impl Local {
    pub(super) fn input(&mut self, name: &str, value: &Value) -> Result<ValueId> {
        match value.kind {
            Kind::Ring { frac } => Ok(self.0.input(name, KEPT, value.shape.clone(), frac)),
            _ => Err(Error::Refused(format!("`{name}` is no number on the ring"))),
        }
    }

    pub(super) fn step(&mut self, name: &str, op: Op, inputs: &[ValueId]) -> Result<ValueId> {
        self.0.step(name, op, inputs).map_err(made)
    }
}

/// The order of rows in an epoch: a permutation that follows from what the parties have drawn
/// together.
pub(super) fn order(seed: &[u8; 16], epoch: u32, rows: usize) -> Vec<usize> {
    let key = megrez_engine::hash("megrez 2026 order of rows", &[&seed[..], &epoch.to_le_bytes()].concat());
    let mut order: Vec<usize> = (0..rows).collect();
    let mut random = [0; 32];
    for i in (1..rows).rev() {
        // Four numbers in each hash.
        let place = (rows - 1 - i) % 4;
        if place == 0 {
            random = megrez_engine::hash("megrez 2026 order of rows", &[&key[..], &i.to_le_bytes()].concat());
        }
        let word =
            random[8 * place..][..8].iter().rev().fold(0u64, |word, &byte| word << 8 | u64::from(byte));
        order.swap(i, ((u128::from(word) * (i as u128 + 1)) >> 64) as usize);
    }
    order
}

/// Rows of several stored sets, joined.
pub(super) struct Joined<'a> {
    ring: u32,
    /// What is cut out of them for a batch.
    batch: &'a [(String, Value)],
    count: usize,
    rows: Stored,
}

impl<'a> Joined<'a> {
    /// Joins sets, the first of `stored`, for batches on a ring.
    pub(super) fn new(
        suite: &Suite,
        party: &mut Party<AnyDevice>,
        protocol: &str,
        (ring, batch): (u32, &'a [(String, Value)]),
        (sets, stored): (&[RowSet], &[StoredModel]),
        run: u32,
    ) -> Result<Self> {
        let mut plan = Local(Plan::new(ring));
        let (mut parts, mut places) = (Stored::new(), BTreeMap::<String, Vec<ValueId>>::new());
        for (i, (_, sets)) in blocks(sets.iter(), stored).enumerate() {
            let mut columns = BTreeMap::<String, Vec<ValueId>>::new();
            for (j, set) in sets.iter().enumerate() {
                let (_, values) = set.header.values()?;
                for (name, part) in set.load(suite, protocol, party)? {
                    if let Some((_, value)) = values.iter().find(|(n, _)| *n == name) {
                        let part_name = format!("{i}/{j}/{name}");
                        columns.entry(name).or_default().push(plan.input(&part_name, value)?);
                        parts.insert(part_name, part);
                    }
                }
            }
            for (name, all) in columns {
                let joined = match all[..] {
                    [one] => one,
                    _ => plan.step(&format!("columns/{i}/{name}"), Op::Concat { axis: 1 }, &all)?,
                };
                places.entry(name).or_default().push(joined);
            }
        }
        for (name, _) in batch {
            let all = places.remove(name).unwrap_or_default();
            let joined = match all[..] {
                [one] => one,
                _ => plan.step(&format!("join/{name}"), Op::Concat { axis: 0 }, &all)?,
            };
            plan.0.output(name, KEPT, joined);
        }
        let rows = derive(suite, &plan.0, party, &parts, run)?;
        Ok(Joined { ring, batch, count: count(sets), rows })
    }

    /// The rows of a batch.
    pub(super) fn cut(
        &self,
        suite: &Suite,
        party: &mut Party<AnyDevice>,
        indices: &[usize],
        run: u32,
    ) -> Result<Stored> {
        let mut plan = Local(Plan::new(self.ring));
        for (name, value) in self.batch {
            let shape = [&[self.count], &value.shape.dims()[1..]].concat().into();
            let all = plan.input(name, &Value { shape, kind: value.kind })?;
            let gather = Op::Gather { axis: 0, indices: indices.to_vec() };
            let batch = plan.step(&format!("batch/{name}"), gather, &[all])?;
            plan.0.output(name, KEPT, batch);
        }
        Ok(derive(suite, &plan.0, party, &self.rows, run)?)
    }
}

/// The stored sets of each of these entries of a job, of those that it names in its order.
pub(super) fn blocks<'a>(
    entries: impl Iterator<Item = &'a RowSet>,
    stored: &'a [StoredModel],
) -> impl Iterator<Item = (&'a RowSet, &'a [StoredModel])> {
    let mut left = stored;
    entries.map_while(move |set| {
        let (these, rest) = left.split_at_checked(1 + set.beside.len())?;
        left = rest;
        Some((set, these))
    })
}

/// What sets that are joined column by column hold of one kind of row.
pub(super) fn beside(parts: Vec<Value>) -> Option<Value> {
    let columns = |parts: &[Value]| -> Option<usize> {
        let width = |part: &Value| match *part.shape.dims() {
            [rows, width] if rows == parts[0].shape.dims()[0] && part.kind == parts[0].kind => Some(width),
            _ => None,
        };
        parts.iter().map(width).sum()
    };
    match &parts[..] {
        [] => None,
        [one] => Some(one.clone()),
        [first, ..] => {
            let width = columns(&parts)?;
            Some(Value { shape: [first.shape.dims()[0], width].into(), kind: first.kind })
        }
    }
}

/// Rows of several sets are joined only if their owners have said that they are the same.
pub(super) fn same_rows(named: &RowSet, sets: &[StoredModel]) -> Result<()> {
    let ids = |set: &StoredModel| set.header.ids;
    let Some(first) = sets.first().filter(|_| sets.len() > 1) else { return Ok(()) };
    let refuse = |what: String| Err(Error::Refused(format!("the job {what}")));
    for (name, set) in named.names().zip(sets) {
        if ids(set).is_none() {
            return refuse(format!(
                "joins columns of `{name}`, of which nobody has said whose rows they are: upload them with --ids"
            ));
        }
        if ids(set) != ids(first) {
            return refuse(format!(
                "joins columns of `{}` and `{name}`, whose rows are others, or in another order, by their --ids",
                named.name
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_joined_of_matrices_of_as_many_rows_and_one_kind() {
        let kind = Kind::Ring { frac: 16 };
        let of = |dims: &[usize], kind| Value { shape: dims.to_vec().into(), kind };
        let joined = |parts: &[Value]| beside(parts.to_vec());
        let matrix = of(&[5, 3], kind);
        assert_eq!(joined(&[matrix.clone(), of(&[5, 4], kind)]), Some(of(&[5, 7], kind)));
        let cube = of(&[5, 1, 3], kind);
        assert_eq!((joined(&[]), joined(std::slice::from_ref(&cube))), (None, Some(cube.clone())));
        // What others have stored may be of any shape.
        let others =
            [of(&[], kind), of(&[5], kind), cube, of(&[4, 3], kind), of(&[5, 3], Kind::Ring { frac: 8 })];
        for other in others {
            assert_eq!(joined(&[matrix.clone(), other.clone()]), None, "{other:?}");
            assert_eq!(joined(&[other, matrix.clone()]), None);
        }
    }

    #[test]
    fn an_order_has_every_row_once_and_nobody_sees_the_next_one() {
        let orders = [order(&[1; 16], 1, 50), order(&[1; 16], 2, 50), order(&[2; 16], 1, 50)];
        assert!(orders[0] != orders[1] && orders[0] != orders[2]);
        assert_eq!(orders[0], order(&[1; 16], 1, 50));
        for mut order in orders {
            order.sort_unstable();
            assert!(order.into_iter().eq(0..50));
        }
        // Every row comes first in about as many epochs.
        let mut first = [0; 5];
        (0..5000).for_each(|epoch| first[order(&[3; 16], epoch, 5)[0]] += 1);
        assert!(first.iter().all(|n| (850..1150).contains(n)), "{first:?}");
    }
}
