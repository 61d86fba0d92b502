//! What is dealt of a half-tree ([`megrez_kernels`], `fused/half_tree.rs`): a worker's root is a
//! stream, the corrections are sent. The three public keys of the permutations are drawn by the
//! dealer for the step, after whom nobody can choose an input by them.
//!
//! Offline, one round, bits per element, with v words of values and a depth of n:
//!
//!   dealer → worker 0    128·(n−1) + v·ℓ, and 384 in all
//!   dealer → worker 1    128·n + v·ℓ, and 384 in all
//!
//! Security: `docs/security/keys.md`.

use crate::mss::{DEALER, Role};
use crate::{Cost, Unit};
use megrez_kernels::{Bits, Device, PERMUTATION_WORDS, Tensor};
use megrez_prg::{Key, Stream};
use megrez_ring::Word;
use megrez_session::{Error, Party};

/// What a worker has of the trees of some elements.
pub struct HalfTree<W: Word, D: Device> {
    /// Its roots.
    pub root: Key,
    /// The permutations' keys.
    pub permutations: Bits<D>,
    /// The first level's corrections: worker 1's.
    pub first: Option<Bits<D>>,
    /// Those of the other levels.
    pub others: Bits<D>,
    /// The words of the values.
    pub values: Tensor<W, D>,
}
encode_struct!(HalfTree[W, D] => root, permutations, first, others, values);

/// How large trees are.
#[derive(Clone, Copy)]
pub struct Size {
    /// Elements, a tree for each.
    pub trees: usize,
    /// Levels, at least one.
    pub depth: usize,
    /// Words of values for each tree.
    pub values: usize,
}

/// What the dealer sends: corrections of the first level and of the others, and values.
pub type Sent<W, D> = (
    <D as megrez_kernels::Memory>::Buf<u64>,
    <D as megrez_kernels::Memory>::Buf<u64>,
    <D as megrez_kernels::Memory>::Buf<W>,
);

impl Size {
    /// Words of the corrections below the first level.
    fn others(self) -> usize {
        2 * self.trees * (self.depth - 1)
    }

    /// Whether worker j's trees are of this size: material from a file may be another step's.
    pub fn holds<W: Word, D: Device>(self, j: usize, tree: &HalfTree<W, D>) -> bool {
        tree.first.as_ref().map(Bits::elements) == (j == 1).then_some(128 * self.trees)
            && tree.permutations.elements() == 64 * PERMUTATION_WORDS
            && tree.others.elements() == 64 * self.others()
            && tree.values.elements() == self.values * self.trees
    }

    /// What it costs.
    pub fn cost<W: Word>(self) -> Cost {
        let (seed, keys) = (Unit::Bits(128), Unit::Bits(64 * PERMUTATION_WORDS as u32));
        let first = Cost::LOCAL.offline(DEALER, 1, self.trees, seed);
        [0, 1].into_iter().fold(first, |cost, worker| {
            let cost = cost.offline(DEALER, worker, 1, keys);
            let cost = cost.offline(DEALER, worker, (self.depth - 1) * self.trees, seed);
            cost.offline(DEALER, worker, self.values * self.trees, Unit::Bits(W::BITS))
        })
    }

    /// Deals trees that the dealer makes of the permutations' keys and both workers' roots; a
    /// worker gets its own.
    pub fn deal<W: Word, D: Device>(
        self,
        party: &mut Party<D>,
        made: impl FnOnce(&D, &D::Buf<u64>, [&Stream; 2]) -> Result<Sent<W, D>, Error>,
    ) -> Result<Option<HalfTree<W, D>>, Error> {
        match Role::of(party) {
            Role::Dealer => {
                let permutations = party.stream(DEALER, "permutations")?.words(PERMUTATION_WORDS);
                let roots = [party.stream(0, "root")?, party.stream(1, "root")?];
                let permutations = party.device().upload(permutations)?;
                let (first, others, values) = made(party.device(), &permutations, [&roots[0], &roots[1]])?;
                party.send_words(1, "first-correction", first)?;
                for worker in [0, 1] {
                    party.send_words(worker, "permutations", permutations.clone())?;
                    if self.others() > 0 {
                        party.send_words(worker, "corrections", others.clone())?;
                    }
                    party.send_ring(worker, "values", values.clone())?;
                }
                Ok(None)
            }
            Role::Worker(j) => {
                let root = party.stream_key(DEALER, "root")?;
                let first = match j {
                    0 => None,
                    _ => Some(party.recv_words(DEALER, "first-correction", 2 * self.trees)?),
                };
                let permutations = party.recv_words(DEALER, "permutations", PERMUTATION_WORDS)?;
                let others = match self.others() {
                    0 => party.device().upload(vec![])?,
                    words => party.recv_words(DEALER, "corrections", words)?,
                };
                let values = self.values * self.trees;
                Ok(Some(HalfTree {
                    root,
                    permutations: Bits::new([64 * PERMUTATION_WORDS], permutations),
                    first: first.map(|first| Bits::new([128 * self.trees], first)),
                    others: Bits::new([64 * self.others()], others),
                    values: Tensor::new([values], party.recv_ring(DEALER, "values", values)?),
                }))
            }
        }
    }
}
