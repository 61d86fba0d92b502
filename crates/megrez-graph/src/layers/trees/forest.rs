//! What an ensemble of trees looks like, without thresholds and the numbers of leaves.

use crate::problem::{Refusal, refuse};
use crate::tensor::Tensor;

/// Where a test leads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Next {
    /// To another test.
    Test(usize),
    /// To a leaf.
    Leaf(usize),
}

/// A node that compares a feature with its threshold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Test {
    pub feature: usize,
    /// Whether it is passed above the threshold only, not on it.
    pub strict: bool,
    /// Where it leads who fails, and who passes.
    pub next: [Next; 2],
}

/// All trees of a model: every tree has a test at least. A tree's tests follow one another, the
/// root first, and so do its leaves.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Forest {
    pub tests: Vec<Test>,
    pub leaves: usize,
}

/// A tree's way to a leaf: tests, and whether each is passed.
pub(crate) type Way = Vec<(usize, bool)>;

/// One tree of a forest.
pub(crate) struct Tree {
    /// Its first test, and how many it has.
    pub first: usize,
    pub tests: usize,
    /// Its leaves, each with the way to it.
    pub leaves: Vec<(usize, Way)>,
}

impl Forest {
    /// As integers [tests, 4]: feature, strict, where it leads who fails and who passes; leaf i
    /// is −1 − i.
    pub(crate) fn encoded(&self) -> Tensor<i64> {
        let next = |next: Next| match next {
            Next::Test(test) => test as i64,
            Next::Leaf(leaf) => -1 - leaf as i64,
        };
        let row = |t: &Test| [t.feature as i64, i64::from(t.strict), next(t.next[0]), next(t.next[1])];
        Tensor::new([self.tests.len(), 4], self.tests.iter().flat_map(row).collect())
    }

    /// What [`Forest::encoded`] has written, on so many features and with so many leaves.
    ///
    /// Errors: a test that leads backwards, a place that two tests lead to, a leaf without a way.
    pub(crate) fn decoded(from: &Tensor<i64>, features: usize, leaves: usize) -> Result<Self, Refusal> {
        let count = from.data.len() / 4;
        let mut reached = vec![false; count + leaves];
        let mut tests = vec![];
        for (i, row) in from.data.chunks_exact(4).enumerate() {
            let next = |to: i64| match usize::try_from(to) {
                Ok(test) => Some(Next::Test(test)).filter(|_| test > i && test < count),
                Err(_) => usize::try_from(-1 - to).ok().filter(|&leaf| leaf < leaves).map(Next::Leaf),
            };
            let feature = usize::try_from(row[0]).ok().filter(|&f| f < features);
            let (Some(feature), Some(failed), Some(passed)) = (feature, next(row[2]), next(row[3])) else {
                return refuse("has a test without its feature or its branches", "");
            };
            for to in [failed, passed] {
                let place = match to {
                    Next::Test(test) => test,
                    Next::Leaf(leaf) => count + leaf,
                };
                if std::mem::replace(&mut reached[place], true) {
                    return refuse("has two ways to one place", "");
                }
            }
            tests.push(Test { feature, strict: row[1] != 0, next: [failed, passed] });
        }
        if tests.is_empty() || reached[count..].contains(&false) {
            return refuse("has a leaf without a way to it", "");
        }
        Ok(Forest { tests, leaves })
    }

    /// The trees one by one. Cost: a place for each step of each way.
    pub(crate) fn trees(&self) -> Vec<Tree> {
        let mut inner = vec![false; self.tests.len()];
        for next in self.tests.iter().flat_map(|test| test.next) {
            if let Next::Test(test) = next {
                inner[test] = true;
            }
        }
        let roots: Vec<usize> = (0..self.tests.len()).filter(|&test| !inner[test]).collect();
        roots.into_iter().map(|root| self.tree(root)).collect()
    }

    fn tree(&self, root: usize) -> Tree {
        let mut tree = Tree { first: root, tests: 0, leaves: vec![] };
        let mut open: Vec<(Next, Way)> = vec![(Next::Test(root), vec![])];
        while let Some((next, way)) = open.pop() {
            match next {
                Next::Leaf(leaf) => tree.leaves.push((leaf, way)),
                Next::Test(test) => {
                    tree.tests += 1;
                    for passes in [true, false] {
                        let step = way.iter().copied().chain([(test, passes)]).collect();
                        open.push((self.tests[test].next[usize::from(passes)], step));
                    }
                }
            }
        }
        tree
    }

    /// The leaf of every tree that a row leads to.
    pub(crate) fn reached(&self, roots: &[usize], passes: impl Fn(&Test, usize) -> bool) -> Vec<usize> {
        let leaf = |&root: &usize| {
            let mut at = Next::Test(root);
            loop {
                match at {
                    Next::Leaf(leaf) => return leaf,
                    Next::Test(i) => at = self.tests[i].next[usize::from(passes(&self.tests[i], i))],
                }
            }
        };
        roots.iter().map(leaf).collect()
    }
}
