//! Trees of a parallel-prefix adder: which carries are computed from which, level by level. A plan
//! names the tree, so every party walks the same one.

use std::collections::HashSet;

/// Positions `low` to `high` of a sum, both included.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Span {
    /// The lowest position.
    pub low: usize,
    /// The highest.
    pub high: usize,
}

impl Span {
    /// One position.
    pub fn leaf(at: usize) -> Self {
        Span { low: at, high: at }
    }
    /// Whether it is one position.
    pub fn is_leaf(&self) -> bool {
        self.low == self.high
    }
}

/// The carry signals of a span from those of its parts, the most significant first: 2 to 4 of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    /// The span.
    pub span: Span,
    /// Its parts.
    pub parts: Vec<Span>,
}

impl Node {
    fn new(parts: Vec<Span>) -> Self {
        let span = Span { low: parts[parts.len() - 1].low, high: parts[0].high };
        Node { span, parts }
    }
    /// Whether the propagate signal of the span is of use: the lowest span has nothing below it.
    pub fn propagates(&self) -> bool {
        self.span.low > 0
    }
}

/// The nodes of every level; nodes of a level depend on lower levels and on leaves only.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tree {
    /// How many positions have a carry.
    pub bits: usize,
    /// The levels.
    pub levels: Vec<Vec<Node>>,
    /// The carries that are asked for.
    pub carries: Vec<Span>,
}

impl Tree {
    /// The carry out of `bits` positions, by nodes of up to `arity` parts: as few nodes a level as
    /// there can be. Where a node has fewer parts, it is one that does not hold position 0, which
    /// is dearer.
    pub fn carry(bits: usize, arity: usize) -> Tree {
        let mut spans: Vec<Span> = (0..bits).map(Span::leaf).collect();
        let mut levels = vec![];
        while spans.len() > 1 {
            let nodes = spans.len().div_ceil(arity);
            let mut sizes = vec![arity; nodes];
            // From the top: the node of position 0 is the last to lose a part.
            (0..nodes * arity - spans.len()).for_each(|i| sizes[nodes - 1 - i % nodes] -= 1);
            let mut level = vec![];
            let mut next = vec![];
            let mut at = 0;
            for size in sizes {
                let parts: Vec<Span> = spans[at..at + size].iter().rev().copied().collect();
                at += size;
                match parts.as_slice() {
                    [only] => next.push(*only),
                    _ => {
                        let node = Node::new(parts);
                        next.push(node.span);
                        level.push(node);
                    }
                }
            }
            levels.push(level);
            spans = next;
        }
        Tree { bits, levels, carries: spans }
    }

    /// All carries, by Sklansky's scheme: after level i every position knows its block of arity^i.
    pub fn sklansky(bits: usize, arity: usize) -> Tree {
        let mut levels = vec![];
        let mut block = 1;
        while block < bits {
            let wide = block * arity;
            let node = |high: usize| {
                let low = high / wide * wide;
                if high / block * block == low {
                    return None;
                }
                let own = Span { low: high / block * block, high };
                let below = (low..own.low).step_by(block).map(|low| Span { low, high: low + block - 1 });
                let mut parts: Vec<Span> = below.collect();
                parts.push(own);
                parts.reverse();
                Some(Node::new(parts))
            };
            levels.push((0..bits).filter_map(node).collect());
            block = wide;
        }
        Tree { bits, levels, carries: (0..bits).map(|high| Span { low: 0, high }).collect() }
    }

    /// All carries by the cheapest tree that is known: for 63 positions the one found by search,
    /// else Sklansky's with four parts a node.
    pub fn best(bits: usize) -> Tree {
        if bits != 63 {
            return Tree::sklansky(bits, 4);
        }
        let levels: Vec<Vec<Node>> = BEST_63
            .iter()
            .map(|level| {
                let node = |cuts: &&[usize]| {
                    let spans = cuts.windows(2).map(|w| Span { low: w[0], high: w[1] - 1 });
                    Node::new(spans.rev().collect())
                };
                level.iter().map(node).collect()
            })
            .collect();
        Tree { bits, levels, carries: (0..bits).map(|high| Span { low: 0, high }).collect() }
    }

    /// The spans that some node reads: their signals are opened; the others are results only.
    pub fn read(&self) -> HashSet<Span> {
        self.levels.iter().flatten().flat_map(|node| node.parts.iter().copied()).collect()
    }
}

include!("best_63.rs");

#[cfg(test)]
mod tests {
    use super::*;

    /// Every node's parts are there before it, adjoin, and fill its span; every carry is made.
    fn check(tree: &Tree) {
        let mut there: HashSet<Span> = (0..tree.bits).map(Span::leaf).collect();
        for level in &tree.levels {
            for node in level {
                assert!((2..=4).contains(&node.parts.len()));
                assert!(node.parts.iter().all(|part| there.contains(part)), "{node:?}");
                assert!(node.parts.windows(2).all(|w| w[0].low == w[1].high + 1), "{node:?}");
                assert_eq!(
                    (node.parts[0].high, node.parts[node.parts.len() - 1].low),
                    (node.span.high, node.span.low)
                );
            }
            there.extend(level.iter().map(|node| node.span));
        }
        assert!(tree.carries.iter().all(|c| c.low == 0 && there.contains(c)));
    }

    #[test]
    fn trees_make_their_carries() {
        for bits in 1..=64 {
            for arity in [2, 4] {
                let carry = Tree::carry(bits, arity);
                check(&carry);
                assert_eq!(carry.carries, [Span { low: 0, high: bits - 1 }]);
                assert_eq!(
                    carry.levels.len(),
                    bits.next_power_of_two().ilog(arity) as usize
                        + usize::from(arity == 4 && bits.next_power_of_two().ilog2() % 2 == 1)
                );
                check(&Tree::sklansky(bits, arity));
            }
            check(&Tree::best(bits));
        }
    }

    #[test]
    fn the_carry_of_63_positions_takes_21_nodes() {
        let sizes: Vec<usize> = Tree::carry(63, 4).levels.iter().map(Vec::len).collect();
        assert_eq!(sizes, [16, 4, 1]);
    }
}
