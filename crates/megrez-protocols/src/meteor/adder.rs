//! The bits of a mask, offline: ψ = u + v with u = ψ_1, which P0 and P1 know, and v = ψ_2 + ψ_0,
//! which P2 knows, added on Boolean replicated shares by [`crate::aby3`]. METEOR, §C, takes ABY3's
//! bit decomposition as it is; the tree here is ours.
//!
//! Nobody waits for the offline phase, so the tree has few gates rather than few levels: carries of
//! blocks of four positions by Sklansky's scheme, the carries inside from those. 787 bits in 10
//! rounds for ℓ = 64, where Sklansky's tree takes 1183 in 8.
//!
//! Security: `docs/security/meteor.md`.

use crate::Cost;
use crate::aby3::adder;
use crate::rss::Rss;
use crate::steps::sum::split;
use crate::steps::tree::{Node, Span, Tree};
use megrez_kernels::{Device, Tensor};
use megrez_ring::Word;
use megrez_session::{Error, Party};

/// Positions of a block.
const BLOCK: usize = 4;

/// A node of two spans that adjoin.
fn join(high: Span, low: Span) -> Node {
    Node { span: Span { low: low.low, high: high.high }, parts: vec![high, low] }
}

/// All carries of `bits` positions.
fn tree(bits: usize) -> Tree {
    let span = |low, high| Span { low, high };
    let mut levels: Vec<Vec<Node>> = vec![];
    // Every block from its pairs; a last one that is not full has carries of its own only.
    let pairs = (0..bits / 2).map(|i| join(Span::leaf(2 * i + 1), Span::leaf(2 * i)));
    levels.push(pairs.collect());
    let blocks = bits / BLOCK;
    let block = |i: usize| span(BLOCK * i, BLOCK * i + BLOCK - 1);
    levels.push(
        (0..blocks)
            .map(|i| join(span(block(i).low + 2, block(i).high), span(block(i).low, block(i).low + 1)))
            .collect(),
    );
    // Carries at the ends of blocks.
    let mut known = 1;
    while known < blocks {
        let wide = 2 * known;
        let node = |i: usize| {
            let middle = i / known * known;
            (!middle.is_multiple_of(wide)).then(|| {
                let (low, middle) = (block(i / wide * wide).low, block(middle).low);
                join(span(middle, block(i).high), span(low, middle - 1))
            })
        };
        levels.push((0..blocks).filter_map(node).collect());
        known = wide;
    }
    // And inside: after one and after two positions, then after three.
    let below = |i: usize| span(0, BLOCK * i - 1);
    let inside = (1..=blocks).flat_map(|i| {
        let low = BLOCK * i;
        [(low, low), (low, low + 1)].map(|(low, high)| join(span(low, high), below(i)))
    });
    levels.push(inside.filter(|node| node.span.high < bits).collect());
    let third = (0..=blocks).map(|i| join(Span::leaf(BLOCK * i + 2), span(0, BLOCK * i + 1)));
    levels.push(third.filter(|node| node.span.high < bits).collect());
    Tree { bits, levels, carries: (0..bits).map(|high| span(0, high)).collect() }
}

/// Of `width` bits of `n` masks.
pub(super) fn cost(width: u32, n: usize) -> Cost {
    adder::cost(&tree(width as usize - 1), n)
}

/// Planes 0, …, width − 1 of ψ.
pub(super) fn bits<W: Word, D: Device>(
    party: &mut Party<D>,
    psi: &Rss<Tensor<W, D>>,
    width: u32,
) -> Result<Rss<D::Buf<u64>>, Error> {
    let known = split(party, psi, width)?;
    adder::online(party, &tree(width as usize - 1), psi.own.elements(), known)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_carry_is_made_from_what_is_there() {
        for bits in 1..=63 {
            let tree = tree(bits);
            let mut there: HashSet<Span> = (0..bits).map(Span::leaf).collect();
            for node in tree.levels.iter().flat_map(|level| {
                let before = there.clone();
                there.extend(level.iter().map(|node| node.span));
                level.iter().map(move |node| (before.clone(), node)).collect::<Vec<_>>()
            }) {
                let (before, Node { span, parts }) = node;
                assert!(parts.iter().all(|p| before.contains(p)), "{bits}: {span:?} of {parts:?}");
                assert!(
                    parts[0].low == parts[1].high + 1
                        && (parts[0].high, parts[1].low) == (span.high, span.low)
                );
            }
            assert!(tree.carries.iter().all(|c| there.contains(c)), "{bits}");
        }
    }

    #[test]
    fn the_costs_are_those_of_the_head() {
        let of = |cost: Cost| {
            (
                cost.transfers.iter().map(|t| t.unit.bits()).sum::<f64>(),
                cost.rounds(megrez_session::Phase::Online),
            )
        };
        assert_eq!(of(cost(64, 1)), (787.0, 10));
        assert_eq!(of(adder::cost(&Tree::sklansky(63, 2), 1)), (1183.0, 8));
    }
}
