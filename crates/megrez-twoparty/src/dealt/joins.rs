//! How prefixes of digits are compared: which digits there are, and which are joined when. Public,
//! and the same for the blocks and for their costing.

use super::form::products_of_masks;

/// Parts of a join, at most.
const JOINED: usize = 4;
/// Bits of a digit, at most, where there are several; and of a digit that is alone.
const DIGIT: u32 = 4;
const ALONE: u32 = 5;

/// What is asked about the low `at` bits of an integer x = m − r.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Cut {
    pub at: u32,
    /// m < r: x borrows from above.
    pub borrow: bool,
    /// m = r: x is zero there.
    pub zero: bool,
}

/// A part, which is a digit or several: what is wanted of it.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct Wanted {
    pub less: bool,
    pub equal: bool,
}

/// Parts, from the lowest, that become one.
#[derive(Debug)]
pub(super) struct Join {
    pub parts: Vec<usize>,
    pub made: usize,
}

/// The digits of an integer, and the joins, level by level. Parts are numbered: the digits first,
/// then what is made.
#[derive(Debug)]
pub(super) struct Joins {
    /// (lowest bit, width) of each digit, from the lowest.
    pub digits: Vec<(u32, u32)>,
    pub levels: Vec<Vec<Join>>,
    /// By part.
    pub wanted: Vec<Wanted>,
    /// The part that answers each cut.
    pub answers: Vec<usize>,
}

/// Digits that end where each of the rising cuts does, about equally wide.
fn digits(cuts: &[Cut]) -> (Vec<(u32, u32)>, Vec<usize>) {
    let (mut digits, mut ends, mut from) = (vec![], vec![], 0);
    for cut in cuts {
        let width = cut.at - from;
        let alone = cut.at <= ALONE && cuts.iter().all(|c| c.at == cut.at);
        let count = if alone { 1 } else { width.div_ceil(DIGIT) };
        for i in 0..count {
            let (low, high) = (width * i / count, width * (i + 1) / count);
            digits.push((from + low, high - low));
        }
        from = cut.at;
        ends.push(digits.len());
    }
    (digits, ends)
}

impl Joins {
    /// For cuts that rise, each above zero.
    pub fn new(cuts: &[Cut]) -> Self {
        let (digits, ends) = digits(cuts);
        let mut made = digits.len();
        let mut levels = vec![];
        // A cut is so many full parts, and one above them.
        let mut parts: Vec<usize> = (0..digits.len()).collect();
        let mut left: Vec<(usize, Option<usize>)> = ends.into_iter().map(|k| (k, None)).collect();
        loop {
            let longest = left.iter().map(|(k, own)| k + usize::from(own.is_some())).max().unwrap_or(1);
            if longest <= 1 {
                break;
            }
            let full = left.iter().map(|l| l.0).max().unwrap_or(0);
            let size = if longest <= JOINED { JOINED + 1 } else { full.div_ceil(full.div_ceil(JOINED)) };
            let mut level: Vec<Join> = vec![];
            let mut join = |of: Vec<usize>| match (&of[..], level.iter().find(|j| j.parts == of)) {
                ([one], _) => *one,
                (_, Some(same)) => same.made,
                _ => {
                    level.push(Join { parts: of, made });
                    made += 1;
                    made - 1
                }
            };
            for (k, own) in &mut left {
                let groups = *k / size;
                let of: Vec<usize> = parts[groups * size..*k].iter().copied().chain(*own).collect();
                *own = (!of.is_empty()).then(|| join(of));
                *k = groups;
            }
            let groups = left.iter().map(|l| l.0).max().unwrap_or(0);
            parts = (0..groups).map(|g| join(parts[g * size..(g + 1) * size].to_vec())).collect();
            levels.push(level);
        }
        let answers: Vec<usize> =
            left.into_iter().map(|(k, own)| own.unwrap_or_else(|| parts[k - 1])).collect();

        let mut wanted = vec![Wanted::default(); made];
        for (cut, &answer) in cuts.iter().zip(&answers) {
            wanted[answer].less |= cut.borrow;
            wanted[answer].equal |= cut.zero;
        }
        for join in levels.iter().rev().flatten() {
            let all = wanted[join.made];
            for (i, &part) in join.parts.iter().enumerate() {
                wanted[part].less |= all.less;
                wanted[part].equal |= all.equal || (all.less && i > 0);
            }
        }
        Self { digits, levels, wanted, answers }
    }

    /// A join as polynomials: the inputs as (part, whether it is `equal`), and of less and equal,
    /// as far as they are wanted, the products.
    pub fn polynomials(&self, join: &Join) -> (Vec<(usize, bool)>, Vec<Vec<u32>>) {
        let wanted = self.wanted[join.made];
        let mut inputs = vec![];
        let mut place = |part: usize, equal: bool| {
            inputs.push((part, equal));
            1u32 << (inputs.len() - 1)
        };
        // From the top: everything above is equal.
        let (mut above, mut less) = (0, vec![]);
        for (i, &part) in join.parts.iter().enumerate().rev() {
            if wanted.less {
                less.push(place(part, false) | above);
            }
            if wanted.equal || i > 0 {
                above |= place(part, true);
            }
        }
        let outputs = [(wanted.less, less), (wanted.equal, vec![above])];
        (inputs, outputs.into_iter().filter(|o| o.0).map(|o| o.1).collect())
    }

    /// Bits a lane: dealt with the digits and opened of them in each direction, and then so of each
    /// level.
    pub fn bits(&self) -> Vec<(usize, usize)> {
        let count = |part: usize| usize::from(self.wanted[part].less) + usize::from(self.wanted[part].equal);
        let one_hot = self.digits.iter().map(|d| (1 << d.1) - 1).sum();
        let first = (one_hot, (0..self.digits.len()).map(count).sum());
        let level = |joins: &Vec<Join>| {
            let dealt = |j: &Join| products_of_masks(&self.polynomials(j).1).len();
            (joins.iter().map(dealt).sum(), joins.iter().map(|j| count(j.made)).sum())
        };
        std::iter::once(first).chain(self.levels.iter().map(level)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the joins say of digits in the clear is what the prefixes are.
    #[test]
    fn prefixes_are_compared() {
        let cut = |at, borrow, zero| Cut { at, borrow, zero };
        let every: Vec<Cut> = (1..=63).map(|at| cut(at, true, at % 3 == 0)).collect();
        let fours: Vec<Cut> = (1..16).map(|i| cut(4 * i, true, false)).collect();
        let few = [cut(3, true, true), cut(21, false, true), cut(64, true, true)];
        let one = [cut(5, true, true)];
        for cuts in [&every[..], &fours, &few, &one, &[cut(64, true, true)], &[cut(27, true, false)]] {
            let joins = Joins::new(cuts);
            assert!(joins.levels.len() <= 3);
            for (m, r) in [(0u64, 0u64), (5, 5), (5, 6), (1 << 40, 1 << 41), (u64::MAX, 1), (77, 77 << 8)] {
                let mut parts: Vec<[bool; 2]> = joins
                    .digits
                    .iter()
                    .map(|&(at, width)| {
                        let digit = |v: u64| v >> at & ((1 << width) - 1);
                        [digit(m) < digit(r), digit(m) == digit(r)]
                    })
                    .collect();
                for join in joins.levels.iter().flatten() {
                    let (inputs, outputs) = joins.polynomials(join);
                    assert!(join.parts.len() <= JOINED);
                    let value = |sets: &Vec<u32>| {
                        let term = |s: &u32| {
                            (0..inputs.len()).filter(|i| s >> i & 1 == 1).all(|i| {
                                let (part, equal) = inputs[i];
                                let wanted = joins.wanted[part];
                                assert!(if equal { wanted.equal } else { wanted.less });
                                parts[part][usize::from(equal)]
                            })
                        };
                        sets.iter().filter(|s| term(s)).count() % 2 == 1
                    };
                    let mut outputs = outputs.iter().map(value);
                    let wanted = joins.wanted[join.made];
                    let mut next = |wanted: bool| wanted && outputs.next().unwrap();
                    parts.push([next(wanted.less), next(wanted.equal)]);
                }
                for (cut, &answer) in cuts.iter().zip(&joins.answers) {
                    let low = |v: u64| v & u64::MAX >> (64 - cut.at);
                    assert!(!cut.borrow || parts[answer][0] == (low(m) < low(r)), "{cut:?} {m} {r}");
                    assert!(!cut.zero || parts[answer][1] == (low(m) == low(r)), "{cut:?} {m} {r}");
                }
            }
        }
    }
}
