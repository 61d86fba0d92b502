//! Sign bits on MSS without a message of the dealer online: by the carries of digits, which a tree
//! of nodes joins. Of one value, or of one against many public thresholds. Ours; the digits are
//! those of [`crate::aby3`] and [`crate::alkaid`] ([`crate::steps::digits`]), whose v is the mask.
//!
//! [x ≥ t] is the top bit of u + v mod 2^λ with u = t − 1 − m, which the workers know, and v = r,
//! of each λ bits above the cut. Of every digit of at most four positions the workers get XOR
//! shares of its carry G and of P, whether it hands one on, from thresholds of v's digit that the
//! dealer has dealt. A node of up to four parts, the highest first, makes
//!
//!   G = G_1 ⊕ P_1·G_2 ⊕ P_1·P_2·G_3 ⊕ P_1·P_2·P_3·G_4,    P = P_1·P_2·P_3·P_4
//!
//! of what its parts have opened under masks that were drawn before: with products of these masks
//! dealt, that is linear in what a worker holds. G_1 is multiplied by nothing, so it stays shared,
//! and so do v's and u's top bits, which are added to the highest carry. The lowest part of all has
//! no P.
//!
//! phase     rounds                    bits per element of x (t thresholds)            from → to
//! offline   1                         1 + Σ (2^positions − 1) over digits             dealer → worker 0, 1
//!                                     t · products of masks                           dealer → worker 1
//! online    1 + ⌈log4 digits⌉         t·2·(Σ of what every level opens, + 1)          worker ↔ worker
//!
//! λ = 64: 233 + 96 offline and 68 online in 3 rounds; λ = 16: 53 + 15 and 14 in 2.
//!
//! The thresholds that worker 1 is sent make up for the products of one comparison, so that both
//! are sent as much.
//!
//! Worker sees: its shares of thresholds and of products, uniform, and the other worker's shares of
//! signals, each under a half of a mask that it does not know. Dealer sees nothing.
//!
//! Security: `docs/security/mizar.md`.

use super::family::Mizar;
use super::nodes::{ARITY, Dealt, DealtTree, Nodes, Tree};
use crate::mss::{Data, Masks, Role, open_bits};
use crate::steps::compare::Comparison;
use crate::steps::digits::Digits;
use crate::{Call, Cost, Made, Operands, Step, Unit, Unsupported};
use megrez_kernels::Device;
use megrez_plan::{List, Op};
use megrez_ring::{Shape, Word};
use megrez_session::{Error, Party};
use std::sync::OnceLock;

/// The digits of a comparison of `width` ≤ 64 bits, and what is above them: searched once a
/// process.
fn made(width: usize) -> &'static (Digits, Nodes) {
    static MADE: [OnceLock<(Digits, Nodes)>; 65] = [const { OnceLock::new() }; 65];
    MADE[width].get_or_init(|| {
        let above = |count: usize| {
            let nodes = Nodes::above(count);
            // And the result.
            (nodes.products() + 2 * (nodes.openings().sum::<usize>() + 1)) as f64
        };
        let digits = Digits::new(width, ARITY, above);
        let nodes = Nodes::above(digits.count());
        (digits.beside(nodes.products()), nodes)
    })
}

/// [x ≥ 0], or [x ≥ t] for every threshold.
pub struct SignTree<'a> {
    tree: Tree,
    shape: &'a Shape,
}

impl<'a, W: Word, D: Device> Step<'a, Mizar<W, D>> for SignTree<'a> {
    /// Nothing at the dealer.
    type Material = Option<Dealt<D>>;

    fn of(_: &Mizar<W, D>, call: Call<'a>) -> Option<Self> {
        let (Op::NonNegative(sign) | Op::CompareMany { sign, .. }) = call.op else { return None };
        if sign.list != List::Tree {
            return None;
        }
        let comparison = Comparison::of(call.op, W::BITS, |width| made(width).0.clone())?;
        let nodes = &made(sign.width(W::BITS) as usize).1;
        Some(SignTree { tree: Tree { comparison, nodes, n: call.of_elements() }, shape: call.shape() })
    }

    fn cost(&self) -> Result<Cost, Unsupported> {
        let (tree, values, bit) = (&self.tree, self.tree.lanes().values(), Unit::Bits(1));
        let opened = tree.nodes.openings().chain([1]);
        Ok((1..)
            .zip(opened)
            .fold(tree.cost(), |cost, (round, planes)| cost.online_swap(round, 0, 1, planes * values, bit)))
    }

    fn offline(
        &self,
        party: &mut Party<D>,
        inputs: &[&Masks<W, D>],
        _: Option<&Masks<W, D>>,
    ) -> Result<Self::Material, Error> {
        Ok(match self.tree.deal(party, inputs[0].ring())? {
            DealtTree::Worker(dealt) => Some(dealt),
            DealtTree::Dealer(_) => None,
        })
    }

    fn online(
        &self,
        party: &mut Party<D>,
        operands: Operands<'_, Mizar<W, D>>,
        dealt: Self::Material,
    ) -> Result<Made<Mizar<W, D>>, Error> {
        let (Role::Worker(j), Some(dealt)) = (Role::of(party), dealt) else { return Ok((Data::None, None)) };
        let (tree, n) = (&self.tree, self.shape.elements());
        if !tree.fits(&dealt) {
            return party.refuse("a worker was given another comparison's material");
        }
        let signals = tree.signals(party, &operands.ring(0).0.buf, &dealt)?;
        let share = tree.climb(party, j, tree.nodes.levels(), &dealt, signals)?;
        let share = tree.comparison.joined(party.device(), &share, self.shape)?;
        let share = party.device().xor(&[&share.buf, &operands.fresh_bits().share().buf], false, n)?;
        let m = open_bits(party, j, "sign", n, share)?;
        Ok((Data::of_bits(self.shape, Some(m)), None))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::World;
    use megrez_kernels::Reference;
    use megrez_plan::SignBit;

    fn tree(cut: u32, bits: u32) -> SignBit {
        SignBit { list: List::Tree, cut, bits: Some(bits) }
    }

    /// Bits that are dealt and opened for one comparison of so many bits, and rounds online.
    fn costs(width: u32) -> [f64; 3] {
        let (digits, nodes) = made(width as usize);
        let opened = nodes.openings().sum::<usize>() + 1;
        let dealt = digits.entries() + nodes.products();
        [dealt as f64, 2.0 * opened as f64, (nodes.levels() + 1) as f64]
    }

    #[test]
    fn the_costs_are_those_of_the_head() {
        assert_eq!(costs(64), [329.0, 68.0, 3.0]);
        assert_eq!(costs(16), [68.0, 14.0, 2.0]);
        // Never more than lists of digits take in all, nor more rounds than one more.
        for width in 2..=64 {
            let [dealt, opened, rounds] = costs(width);
            let spec = megrez_kernels::ListSpec::new(&tree(0, width), 64);
            let element = spec.prime.wire_bits();
            let list = element * (spec.dealt() + 2 * spec.length()) as f64 + 2.0;
            assert!(dealt + opened <= list && rounds <= 3.0, "{width}: {dealt} + {opened} against {list}");
        }
    }

    #[test]
    fn every_value_is_compared_at_every_width_and_cut() {
        // All values, several times: masks decide which carries there are.
        let x: Vec<u64> = (0..256).cycle().take(8 * 256).collect();
        for (cut, bits) in [(0, 8), (0, 5), (2, 6), (3, 2), (1, 4), (0, 2)] {
            let world = World::new(Mizar::<u8, Reference>::default());
            let found = world.step(Op::NonNegative(tree(cut, bits)), 0, &[&x]);
            for (x, bit) in x.iter().zip(found) {
                let x = i64::from(*x as u8 as i8);
                // Within what so many bits hold; what is cut may count as positive.
                let range = 1i64 << (cut + bits - 1);
                if (-range..range - (1 << cut)).contains(&x) && !(-(1 << cut) < x && x < 0) {
                    assert_eq!(bit, u64::from(x >= 0), "x = {x}, {bits} bits above {cut}");
                }
            }
        }
    }

    #[test]
    fn one_value_is_compared_with_many_thresholds_and_a_late_mask() {
        use megrez_plan::{Relu, ReluForm};
        let x: Vec<u64> = (0..128).map(|i| (i * 2 + 192) % 256).collect();
        let thresholds = vec![-60, -3, 0, 1, 17, 63];
        for late in [false, true] {
            let mut plan = megrez_plan::Plan::new(8);
            let mut y = plan.input("x", "owner", [x.len()].into(), 0);
            if late {
                let relu = Relu { sign: SignBit::FULL, form: ReluForm::TwoRounds, truncate: 0 };
                y = plan.step("relu", Op::Relu(relu), &[y]).unwrap();
            }
            let many = Op::CompareMany { sign: tree(0, 8), thresholds: thresholds.clone() };
            let bits = plan.step("many", many, &[y]).unwrap();
            plan.output("z", "owner", bits);
            let found = World::new(Mizar::<u8, Reference>::default()).run(&plan, &[&x]).remove(0);
            for (k, t) in thresholds.iter().enumerate() {
                for (i, x) in x.iter().enumerate() {
                    let x = i64::from(*x as u8 as i8);
                    let x = if late { x.max(0) } else { x };
                    if (-64..64).contains(&x) {
                        assert_eq!(found[k * 128 + i], u64::from(x >= *t), "{x} ≥ {t}");
                    }
                }
            }
        }
    }

    #[test]
    fn words_of_64_bits_at_their_edges() {
        let edges = [0, 1, u64::MAX, 1 << 63, (1 << 63) - 1, 1 << 62, 1 << 32, u64::from(u32::MAX)];
        let x: Vec<u64> =
            edges.iter().flat_map(|e| (0..9).map(move |d| e.wrapping_add(d).wrapping_sub(4))).collect();
        let bits =
            World::new(Mizar::<u64, Reference>::default()).step(Op::NonNegative(tree(0, 64)), 0, &[&x]);
        for (x, bit) in x.iter().zip(bits) {
            assert_eq!(bit, u64::from(*x as i64 >= 0), "{x:#x}");
        }
    }
}
