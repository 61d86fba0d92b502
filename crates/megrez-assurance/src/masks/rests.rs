//! What the rests of the rows that are left depend on.

use super::deps::Deps;
use std::collections::HashMap;

/// The rests of rows that are left. Many rows have one rest.
#[derive(Default)]
pub(super) struct Rests {
    /// How many rows have each, by numbers that grow.
    rows: Vec<usize>,
    by_hash: HashMap<(u32, u128), usize>,
    pub(super) of_row: HashMap<usize, usize>,
    /// The rests by their numbers, empty where no row is left; then, level by level, what two
    /// neighbours below are together.
    levels: Vec<Vec<Deps>>,
}

impl Rests {
    pub(super) fn add(&mut self, row: usize, rest: &Deps) {
        let next = self.rows.len();
        let number = *self.by_hash.entry(rest.hash()).or_insert(next);
        self.of_row.insert(row, number);
        if number == next {
            self.rows.push(0);
            self.set(number, rest.clone());
        }
        self.rows[number] += 1;
    }

    /// A row goes: its rest, if no other row has it.
    pub(super) fn remove(&mut self, row: usize) -> Option<usize> {
        let number = self.of_row.remove(&row)?;
        self.rows[number] -= 1;
        if self.rows[number] > 0 {
            return None;
        }
        self.by_hash.remove(&self.levels[0][number].hash());
        self.set(number, Deps::default());
        Some(number)
    }

    /// Puts a rest in its place, and what it is together with others in theirs.
    fn set(&mut self, mut at: usize, mut rest: Deps) {
        for level in 0.. {
            if level == self.levels.len() {
                self.levels.push(vec![]);
            }
            let here = &mut self.levels[level];
            match here.get_mut(at) {
                Some(place) => *place = rest,
                None => here.push(rest),
            }
            if here.len() == 1 {
                return;
            }
            at /= 2;
            rest = here[2 * at..].iter().take(2).fold(Deps::default(), |both, one| both.union(one));
        }
    }

    /// A rest that depends on a part.
    pub(super) fn holder(&self, part: usize) -> Option<usize> {
        let (top, below) = self.levels.split_last()?;
        let left_or_right = |at: usize, level: &Vec<Deps>| 2 * at + usize::from(!level[2 * at].has(part));
        top[0].has(part).then(|| below.iter().rev().fold(0, left_or_right))
    }
}
