//! All but one of 2^k seeds, from k OTs of one of two: a tree of keys (Goldreich, Goldwasser and
//! Micali) whose sums by side are sent level by level.

use megrez_prg::{Key, RootKey};

/// The seeds, and for each level the sum of all left and of all right nodes.
pub struct Tree {
    /// 2^k seeds.
    pub leaves: Vec<Key>,
    /// \[left, right\] for each level, the root's children first.
    pub sums: Vec<[[u8; 32]; 2]>,
}

/// The two nodes below a node.
fn children(node: &RootKey) -> [RootKey; 2] {
    [node.root(b"left"), node.root(b"right")]
}

/// The seed of a node of the last level.
fn seed(node: &RootKey) -> Key {
    node.derive(b"seed")
}

/// a ⊕ b.
pub fn xor(a: &[u8; 32], b: &[u8; 32]) -> [u8; 32] {
    std::array::from_fn(|i| a[i] ^ b[i])
}

/// Grows the tree of 2^k seeds from its root.
pub fn grow(root: RootKey, k: u32) -> Tree {
    let mut nodes = vec![root];
    let mut sums = vec![];
    for _ in 0..k {
        let below: Vec<[RootKey; 2]> = nodes.iter().map(children).collect();
        let side = |s: usize| below.iter().fold([0; 32], |sum, pair| xor(&sum, pair[s].expose()));
        sums.push([side(0), side(1)]);
        nodes = below.into_iter().flatten().collect();
    }
    Tree { leaves: nodes.iter().map(seed).collect(), sums }
}

/// The seeds without number `missing`, whose bits, highest first, say which side's sum is *not*
/// given on each level. Entry x is seed x; in place of the missing one stands a key that everybody
/// knows.
pub fn regrow(missing: usize, sums: &[[u8; 32]]) -> Vec<Key> {
    let k = sums.len();
    let zero = || RootKey::from_bytes([0; 32]);
    let mut nodes = vec![zero()];
    for (level, sum) in sums.iter().enumerate() {
        let hole = missing >> (k - level);
        let path = missing >> (k - 1 - level) & 1;
        let mut below = Vec::with_capacity(2 * nodes.len());
        for (i, node) in nodes.iter().enumerate() {
            below.extend(if i == hole { [zero(), zero()] } else { children(node) });
        }
        // The hole's other child is what its side's sum lacks.
        let side = 1 - path;
        let known = below.iter().skip(side).step_by(2).fold([0; 32], |s, key| xor(&s, key.expose()));
        below[2 * hole + side] = RootKey::from_bytes(xor(sum, &known));
        nodes = below;
    }
    nodes.iter().map(seed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_seeds_but_one_come_back() {
        for k in [1, 2, 4, 8] {
            let tree = grow(RootKey::from_bytes([k as u8; 32]), k);
            assert_eq!(tree.leaves.len(), 1 << k);
            for missing in 0..1usize << k {
                let given: Vec<[u8; 32]> = (0..k as usize)
                    .map(|level| tree.sums[level][1 - (missing >> (k as usize - 1 - level) & 1)])
                    .collect();
                let seeds = regrow(missing, &given);
                for (x, (a, b)) in seeds.iter().zip(&tree.leaves).enumerate() {
                    assert_eq!(a.expose() == b.expose(), x != missing);
                }
                assert_eq!(seeds[missing].expose(), seed(&RootKey::from_bytes([0; 32])).expose());
            }
        }
    }
}
