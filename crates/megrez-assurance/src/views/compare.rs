//! Whether the views of several secrets are the same multiset of rows.

use super::cosets::{Bases, Space};
use super::draws::Assignment;
use super::session::Element;
use std::collections::HashSet;

/// The rows of one lane on these columns, in an order of their own.
pub(super) fn rows_of(rows: &[Vec<Vec<u8>>], columns: &[usize], lane: usize) -> Vec<Vec<u8>> {
    let pick = |row: &Vec<Vec<u8>>| -> Vec<u8> { columns.iter().map(|&c| row[lane][c]).collect() };
    let mut added: Vec<Vec<u8>> = rows.iter().map(pick).filter(|row| row.iter().any(|&x| x != 0)).collect();
    added.sort_unstable();
    added.dedup();
    added
}

/// Whether the pads add the same group in every lane.
pub(super) fn one_group(moduli: &[u64], rows: &[Vec<Vec<u8>>], columns: &[usize], lanes: usize) -> bool {
    let space = Space::new(&pick_moduli(moduli, columns));
    let mut bases = Bases::default();
    let groups: HashSet<u64> =
        (0..lanes).map(|l| bases.of(&space, rows_of(rows, columns, l)).hash()).collect();
    groups.len() <= 1
}

/// Two secrets of one group whose views differ on these columns.
pub(super) fn compare(
    base: &[Element],
    moduli: &[u64],
    rows: &[Vec<Vec<u8>>],
    columns: &[usize],
    assignment: &Assignment,
    groups: &[Vec<usize>],
) -> Option<(usize, usize)> {
    let space = Space::new(&pick_moduli(moduli, columns));
    let mut bases = Bases::default();
    let hashes: Vec<u64> = (0..assignment.total)
        .map(|l| {
            let basis = bases.of(&space, rows_of(rows, columns, l));
            space.coset(&basis, &columns.iter().map(|&c| base[c].values[l]).collect::<Vec<_>>())
        })
        .collect();
    let per_block = assignment.unknowns * assignment.secrets;
    for block in hashes.chunks_exact(per_block) {
        for group in groups {
            let sorted = |secret: usize| {
                let mut part = block[secret * assignment.unknowns..][..assignment.unknowns].to_vec();
                part.sort_unstable();
                part
            };
            let first = sorted(group[0]);
            if let Some(&other) = group[1..].iter().find(|&&other| sorted(other) != first) {
                return Some((group[0], other));
            }
        }
    }
    None
}

pub(super) fn pick_moduli(moduli: &[u64], columns: &[usize]) -> Vec<u64> {
    columns.iter().map(|&c| moduli[c]).collect()
}
