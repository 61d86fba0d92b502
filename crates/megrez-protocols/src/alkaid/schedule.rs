//! What the nodes of a tree multiply and open ([`super::adder`]), in an order that is the same at
//! all parties, and what that costs.

use crate::rss::{after, before};
use crate::steps::digits::signals;
use crate::steps::planes::Signal;
use crate::steps::tree::Tree;
use crate::{Cost, Unit};
use megrez_session::Phase;
use std::collections::HashSet;

/// What stands below the first level of a tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Leaves {
    /// Positions of u and v: products of theirs are replicated.
    Summands,
    /// Digits, whose signals are opened as those of nodes are.
    Digits,
}

/// What is multiplied and opened, in order: the same at all parties.
pub(super) struct Schedule {
    /// Pairs of masks other than u's and v's of one position.
    pub pairs: Vec<(Signal, Signal)>,
    /// Products of the masks of a leaf's propagate signal, and of u and v at a position.
    pub deep: Vec<(usize, usize)>,
    /// Signals of digits, which are opened first.
    pub digits: Vec<Signal>,
    /// For each level the signals that are opened, and those that are results.
    pub levels: Vec<(Vec<Signal>, Vec<Signal>)>,
}

impl Schedule {
    pub fn new(tree: &Tree, leaves: Leaves) -> Self {
        let read = tree.read();
        // The signals of a lone digit are the result.
        let digits = match leaves {
            Leaves::Digits if tree.bits > 1 => signals(tree.bits),
            _ => vec![],
        };
        let mut schedule = Schedule { pairs: vec![], deep: vec![], digits, levels: vec![] };
        let mut seen = HashSet::new();
        let mut pair = |pairs: &mut Vec<_>, a: Signal, b: Signal| {
            if seen.insert((a, b)) {
                pairs.push((a, b));
            }
        };
        for level in &tree.levels {
            let (mut opened, mut results) = (vec![], vec![]);
            for node in level {
                let p = |i: usize| Signal::Propagate(node.parts[i]);
                if node.parts.len() > 2 {
                    pair(&mut schedule.pairs, p(0), p(1));
                }
                if let [_, _, third, fourth] = node.parts.as_slice() {
                    if fourth.is_leaf() && leaves == Leaves::Summands {
                        assert!(third.is_leaf(), "a leaf lies below a leaf, as every tree here has it");
                        pair(&mut schedule.pairs, p(2), Signal::U(fourth.low));
                        pair(&mut schedule.pairs, p(2), Signal::V(fourth.low));
                        if !schedule.deep.contains(&(third.low, fourth.low)) {
                            schedule.deep.push((third.low, fourth.low));
                        }
                    } else {
                        pair(&mut schedule.pairs, p(2), Signal::Generate(*fourth));
                    }
                    if node.propagates() {
                        pair(&mut schedule.pairs, p(2), p(3));
                    }
                }
                let list = if read.contains(&node.span) { &mut opened } else { &mut results };
                list.push(Signal::Generate(node.span));
                if node.propagates() {
                    list.push(Signal::Propagate(node.span));
                }
            }
            schedule.levels.push((opened, results));
        }
        schedule
    }

    /// All opened signals, in order.
    pub fn opened(&self) -> Vec<Signal> {
        self.digits.iter().chain(self.levels.iter().flat_map(|(opened, _)| opened)).copied().collect()
    }
}

/// `count` bits of every value.
pub(super) fn planes(count: usize) -> Unit {
    Unit::Bits(count as u32)
}

/// `count` products of masks are made replicated.
pub(super) fn remade(cost: Cost, round: u32, count: usize, n: usize) -> Cost {
    match count {
        0 => cost,
        _ => {
            (0..3).fold(cost, |cost, i| cost.in_round(Phase::Offline, round, i, before(i), n, planes(count)))
        }
    }
}

/// Opens `count` bits of every value to all: 6 bits each.
pub(super) fn opening(cost: Cost, round: u32, count: usize, n: usize) -> Cost {
    match count {
        0 => cost,
        _ => (0..3).fold(cost, |cost, i| {
            cost.online(round, i, before(i), n, planes(count)).online(round, i, after(i), n, planes(count))
        }),
    }
}
