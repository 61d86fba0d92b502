//! Sets of numbers that share what they agree in. What a rest depends on is nearly all that came
//! before it, so there are many large sets that differ in little: they are trees whose nodes are
//! never changed once two sets have them, and a union looks only into nodes that are not the same.
//! A tree is as high as its largest number asks for.
//! Parties come to equal sets by different ways, so nodes are compared by their hashes.

use megrez_prg::Key;
use std::cmp::Ordering;
use std::sync::{Arc, LazyLock};

/// Words of a leaf, and children of an inner node.
const WIDTH: usize = 32;
/// Numbers that a leaf holds, as a power of two.
const LEAF_BITS: u32 = 11;
/// Levels of inner nodes, at most: numbers reach to 2^31.
const LEVELS: u32 = 4;

type Link = Option<Tree>;

/// A node that is not empty, and its hash.
#[derive(Clone)]
struct Tree {
    hash: u128,
    node: Node,
}

#[derive(Clone)]
enum Node {
    Leaf(Arc<[u64; WIDTH]>),
    Inner(Arc<[Link; WIDTH]>),
}

/// Keys of the hash, new in every process.
static KEYS: LazyLock<[u64; 2 * WIDTH]> = LazyLock::new(|| {
    let mut keys = [0; 2 * WIDTH];
    Key::random().expect("the system gives random bytes").stream().fill(0, &mut keys);
    keys
});

/// Summand `at` of NH of UMAC (RFC 4418, 5.2.2 for words of 64 bits): with the sum of all as their
/// hash, two different nodes of one level have one hash with probability at most 2^-64.
fn summand(at: usize, [a, b]: [u64; 2]) -> u128 {
    let (a, b) = (a.wrapping_add(KEYS[2 * at]), b.wrapping_add(KEYS[2 * at + 1]));
    u128::from(a) * u128::from(b)
}

/// What a child adds to its node's hash.
fn of_child(at: usize, link: &Link) -> u128 {
    let hash = link.as_ref().map_or(0, |tree| tree.hash);
    summand(at, [hash as u64, (hash >> 64) as u64])
}

impl Tree {
    fn leaf(words: [u64; WIDTH]) -> Tree {
        let summands = words.chunks_exact(2).enumerate().map(|(at, pair)| summand(at, [pair[0], pair[1]]));
        Tree { hash: summands.fold(0, u128::wrapping_add), node: Node::Leaf(Arc::new(words)) }
    }

    fn inner(links: [Link; WIDTH]) -> Tree {
        let summands = links.iter().enumerate().map(|(at, link)| of_child(at, link));
        Tree { hash: summands.fold(0, u128::wrapping_add), node: Node::Inner(Arc::new(links)) }
    }
}

/// A set of what a rest depends on, by the numbers that the world gives.
#[derive(Clone, Default)]
pub(super) struct Deps {
    root: Link,
    /// Levels of inner nodes: as few as the largest number allows.
    levels: u32,
}

impl Deps {
    pub fn one(id: u32) -> Deps {
        Deps::of([id as usize])
    }

    pub fn of(ids: impl IntoIterator<Item = usize>) -> Deps {
        let mut deps = Deps::default();
        ids.into_iter().for_each(|id| deps.insert(id));
        deps
    }

    pub fn is_empty(&self) -> bool {
        self.root.is_none()
    }

    pub fn insert(&mut self, id: usize) {
        if !self.has(id) {
            let fits = |levels: &u32| id >> (LEAF_BITS + levels * WIDTH.ilog2()) == 0;
            let levels = (self.levels..LEVELS).find(fits).unwrap_or(LEVELS);
            *self = self.raised(levels);
            insert(&mut self.root, levels, id);
        }
    }

    /// The same set with so many levels, which are not fewer.
    fn raised(&self, levels: u32) -> Deps {
        let mut root = self.root.clone();
        for _ in self.levels..levels {
            root = root.map(|tree| {
                let mut links: [Link; WIDTH] = Default::default();
                links[0] = Some(tree);
                Tree::inner(links)
            });
        }
        Deps { root, levels }
    }

    /// Both with as many levels as the higher has.
    fn level<T>(&self, other: &Deps, of: impl FnOnce(&Deps, &Deps) -> T) -> T {
        match self.levels.cmp(&other.levels) {
            Ordering::Equal => of(self, other),
            Ordering::Less => of(&self.raised(other.levels), other),
            Ordering::Greater => of(self, &other.raised(self.levels)),
        }
    }

    pub fn has(&self, id: usize) -> bool {
        if id >> (LEAF_BITS + self.levels * WIDTH.ilog2()) != 0 {
            return false;
        }
        let (mut link, mut level) = (&self.root, self.levels);
        loop {
            match link.as_ref().map(|tree| &tree.node) {
                None => return false,
                Some(Node::Leaf(words)) => return words[word(id)] >> (id % 64) & 1 == 1,
                Some(Node::Inner(links)) => (link, level) = (&links[child(level, id)], level - 1),
            }
        }
    }

    pub fn meets(&self, other: &Deps) -> bool {
        self.level(other, |a, b| meets(&a.root, &b.root))
    }

    pub fn same(&self, other: &Deps) -> bool {
        self.hash() == other.hash()
    }

    pub fn union(&self, other: &Deps) -> Deps {
        self.level(other, |a, b| match united(&a.root, &b.root) {
            United::Same | United::Left => a.clone(),
            United::Right => b.clone(),
            United::New(tree) => Deps { root: Some(tree), levels: a.levels },
        })
    }

    /// The same for equal sets, and for others with the probability of two nodes.
    pub fn hash(&self) -> (u32, u128) {
        (self.levels, self.root.as_ref().map_or(0, |tree| tree.hash))
    }

    /// The numbers that another set has not.
    pub fn beyond(&self, other: &Deps) -> Vec<usize> {
        let mut found = vec![];
        self.level(other, |a, b| beyond(&a.root, &b.root, 0, &mut found));
        found
    }
}

fn word(id: usize) -> usize {
    id % (1 << LEAF_BITS) / 64
}

/// Which child of an inner node of a level holds a number.
fn child(level: u32, id: usize) -> usize {
    id >> (LEAF_BITS + (level - 1) * WIDTH.ilog2()) & (WIDTH - 1)
}

fn insert(link: &mut Link, level: u32, id: usize) {
    let empty = || match level {
        0 => Tree::leaf([0; WIDTH]),
        _ => Tree::inner(Default::default()),
    };
    let tree = link.get_or_insert_with(empty);
    match &mut tree.node {
        Node::Leaf(words) => {
            let words = Arc::make_mut(words);
            let pair = word(id) / 2;
            let of = |words: &[u64; WIDTH]| summand(pair, [words[2 * pair], words[2 * pair + 1]]);
            let before = of(words);
            words[word(id)] |= 1 << (id % 64);
            tree.hash = tree.hash.wrapping_sub(before).wrapping_add(of(words));
        }
        Node::Inner(links) => {
            let (links, at) = (Arc::make_mut(links), child(level, id));
            let before = of_child(at, &links[at]);
            insert(&mut links[at], level - 1, id);
            tree.hash = tree.hash.wrapping_sub(before).wrapping_add(of_child(at, &links[at]));
        }
    }
}

/// Equal nodes in both; else which of the two, if any, is not empty alone; else both.
enum Pair<'a> {
    Same,
    Left(&'a Node),
    Right,
    Leaves(&'a [u64; WIDTH], &'a [u64; WIDTH]),
    Inner(&'a [Link; WIDTH], &'a [Link; WIDTH]),
}

fn pair<'a>(a: &'a Link, b: &'a Link) -> Pair<'a> {
    match (a, b) {
        (None, None) => Pair::Same,
        (Some(a), None) => Pair::Left(&a.node),
        (None, Some(_)) => Pair::Right,
        (Some(a), Some(b)) if a.hash == b.hash => Pair::Same,
        (Some(a), Some(b)) => match (&a.node, &b.node) {
            (Node::Leaf(a), Node::Leaf(b)) => Pair::Leaves(a, b),
            (Node::Inner(a), Node::Inner(b)) => Pair::Inner(a, b),
            _ => unreachable!("all trees are of one height"),
        },
    }
}

fn meets(a: &Link, b: &Link) -> bool {
    match pair(a, b) {
        // No node is empty.
        Pair::Same => a.is_some(),
        Pair::Left(_) | Pair::Right => false,
        Pair::Leaves(a, b) => a.iter().zip(b).any(|(a, b)| a & b != 0),
        Pair::Inner(a, b) => a.iter().zip(b).any(|(a, b)| meets(a, b)),
    }
}

/// What a union is: a set that is at hand, if one is.
enum United {
    /// Both.
    Same,
    Left,
    Right,
    New(Tree),
}

fn united(a: &Link, b: &Link) -> United {
    match pair(a, b) {
        Pair::Same => United::Same,
        Pair::Left(_) => United::Left,
        Pair::Right => United::Right,
        Pair::Leaves(x, y) => {
            let both: [u64; WIDTH] = std::array::from_fn(|i| x[i] | y[i]);
            match both {
                all if all == *x => United::Left,
                all if all == *y => United::Right,
                all => United::New(Tree::leaf(all)),
            }
        }
        Pair::Inner(x, y) => {
            let mut hash = a.as_ref().map_or(0, |tree| tree.hash);
            // Those of the left, once one of them is not.
            let mut links: Option<[Link; WIDTH]> = None;
            let mut right = true;
            for (i, (left, other)) in x.iter().zip(y).enumerate() {
                let link = match united(left, other) {
                    United::Same => continue,
                    United::Left => {
                        right = false;
                        continue;
                    }
                    United::Right => other.clone(),
                    United::New(tree) => {
                        right = false;
                        Some(tree)
                    }
                };
                hash = hash.wrapping_sub(of_child(i, left)).wrapping_add(of_child(i, &link));
                links.get_or_insert_with(|| x.clone())[i] = link;
            }
            match links {
                None => United::Left,
                Some(_) if right => United::Right,
                Some(links) => United::New(Tree { hash, node: Node::Inner(Arc::new(links)) }),
            }
        }
    }
}

/// `start`: the number of leaves before these.
fn beyond(a: &Link, b: &Link, start: usize, found: &mut Vec<usize>) {
    let none = None;
    let inner = |a: &[Link; WIDTH], b: Option<&[Link; WIDTH]>, found: &mut Vec<usize>| {
        for (i, link) in a.iter().enumerate() {
            beyond(link, b.map_or(&none, |b| &b[i]), start * WIDTH + i, found);
        }
    };
    let leaf = |a: &[u64; WIDTH], b: &[u64; WIDTH], found: &mut Vec<usize>| {
        for (i, (a, b)) in a.iter().zip(b).enumerate() {
            let mut more = a & !b;
            while more != 0 {
                found.push((start << LEAF_BITS) + i * 64 + more.trailing_zeros() as usize);
                more &= more - 1;
            }
        }
    };
    match pair(a, b) {
        Pair::Same | Pair::Right => {}
        Pair::Left(a) => match a {
            Node::Leaf(a) => leaf(a, &[0; WIDTH], found),
            Node::Inner(a) => inner(a, None, found),
        },
        Pair::Leaves(a, b) => leaf(a, b, found),
        Pair::Inner(a, b) => inner(a, Some(b), found),
    }
}

#[cfg(test)]
mod tests {
    use super::Deps;
    use std::collections::BTreeSet;

    /// Against sets of numbers, in all leaves and levels.
    #[test]
    fn are_sets() {
        let mut seed = 1u64;
        let mut next = |below: u64| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) % below
        };
        for reach in [40, 2_000, 70_000, 3_000_000, 1 << 31] {
            let sets: Vec<BTreeSet<usize>> =
                (0..6).map(|number| (0..number * 40).map(|_| next(reach) as usize).collect()).collect();
            for a in &sets {
                for b in &sets {
                    let (x, y) = (Deps::of(a.iter().copied()), Deps::of(b.iter().copied()));
                    let both = x.union(&y);
                    assert_eq!(both.beyond(&Deps::default()), a.union(b).copied().collect::<Vec<_>>());
                    assert_eq!(x.beyond(&y), a.difference(b).copied().collect::<Vec<_>>());
                    assert_eq!(x.meets(&y), a.intersection(b).next().is_some());
                    assert_eq!(x.same(&y), a == b);
                    assert!(both.same(&y.union(&x)) && both.union(&x).same(&both));
                    assert_eq!(x.is_empty(), a.is_empty());
                    for id in a.iter().copied().chain([1 << 20 | 3]) {
                        assert_eq!(
                            [both.has(id), y.has(id)],
                            [a.contains(&id) || b.contains(&id), b.contains(&id)]
                        );
                    }
                }
            }
        }
    }
}
