//! Correlated blocks for all leaves of a tree of which the receiver lacks one: single-point
//! transfers by a half tree. Guo, Yang, Wang, Zhang, Xie, Liu and Zhao, EUROCRYPT 2023, Fig. 3 and
//! 5, semi-honest.
//!
//! The sender's first two nodes are κ and κ ⊕ Δ; below a node x are H(x) and x ⊕ H(x), so that the
//! nodes of every level sum to Δ. For each level the receiver takes the sum of the nodes on the
//! side that its path does not take: the sender sends the sum on the left under a correlated block
//! of one transfer, and those on the right differ by Δ, as what both hold does. In the end the
//! receiver has all leaves but one, and of that one its sum with Δ.
//!
//! rounds  bits per tree of 2^h leaves
//! 1       h       receiver → sender: its choices, under the random ones of h transfers
//! 1       128·h   sender → receiver: sums under their blocks
//!
//! Security: `docs/security/secfloat.md`.

use super::Hash;

/// The tweak's bit that no transfer's has.
const TREE: u128 = 1 << 127;

/// The tweak of a node: its tree, its level and its place there.
fn tweak(tree: u64, level: u32, place: usize) -> u128 {
    TREE | u128::from(tree) << 32 | u128::from(level) << 16 | place as u128
}

/// The nodes below these, left and right beside each other, on level `level` of tree `tree`.
fn below(hash: &Hash, nodes: &[u128], tree: u64, level: u32) -> Vec<u128> {
    let mut left = nodes.to_vec();
    hash.apply(&mut left, |place| tweak(tree, level, place));
    nodes.iter().zip(left).flat_map(|(x, left)| [left, x ^ left]).collect()
}

/// The 2^h leaves under κ, and for each level the sum of its nodes on the left.
pub(super) fn grow(hash: &Hash, delta: u128, kappa: u128, tree: u64, h: u32) -> (Vec<u128>, Vec<u128>) {
    let mut nodes = vec![kappa, kappa ^ delta];
    let mut sums = vec![kappa];
    for level in 1..h {
        nodes = below(hash, &nodes, tree, level);
        sums.push(nodes.iter().step_by(2).fold(0, |sum, x| sum ^ x));
    }
    (nodes, sums)
}

/// All leaves but number `hole`, in whose place is its sum with Δ: from the sum of each level's
/// nodes on the side that the path to it does not take.
pub(super) fn regrow(hash: &Hash, hole: usize, sums: &[u128], tree: u64) -> Vec<u128> {
    let h = sums.len();
    let side = |level: usize| 1 - (hole >> (h - 1 - level) & 1);
    let mut nodes = vec![0; 2];
    nodes[side(0)] = sums[0];
    for level in 1..h {
        // What grows from the hole means nothing.
        let mut next = below(hash, &nodes, tree, level as u32);
        let above = hole >> (h - level);
        next[2 * above..][..2].fill(0);
        let known = next.iter().skip(side(level)).step_by(2).fold(0, |sum, x| sum ^ x);
        next[2 * above + side(level)] = sums[level] ^ known;
        nodes = next;
    }
    nodes[hole] = nodes.iter().enumerate().filter(|(i, _)| *i != hole).fold(0, |sum, (_, x)| sum ^ x);
    nodes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_leaves_but_one_come_back_and_that_one_with_delta() {
        let hash = Hash::new([3; 16]);
        let (delta, h) = (0x0123_4567_89ab_cdef_u128 << 64 | 77, 5);
        for tree in [0, 1 << 56] {
            let (leaves, left) = grow(&hash, delta, 0xfeed << 100 | 1, tree, h);
            assert_eq!(leaves.len(), 1 << h);
            assert_eq!(leaves.iter().fold(0, |sum, x| sum ^ x), delta);
            for hole in 0..1usize << h {
                let side = |level: u32| 1 - (hole >> (h - 1 - level) & 1);
                let sums: Vec<u128> =
                    (0..h).map(|l| left[l as usize] ^ if side(l) == 1 { delta } else { 0 }).collect();
                let got = regrow(&hash, hole, &sums, tree);
                for (i, (got, leaf)) in got.iter().zip(&leaves).enumerate() {
                    assert_eq!(got ^ leaf, if i == hole { delta } else { 0 }, "hole {hole}, leaf {i}");
                }
            }
        }
        // Another tree under the same secret has other leaves.
        assert_ne!(grow(&hash, delta, 1, 0, h).0[2..], grow(&hash, delta, 1, 1, h).0[2..]);
    }
}
