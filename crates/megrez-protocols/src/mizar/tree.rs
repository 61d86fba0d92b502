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
use crate::mss::{DEALER, Data, Masks, RingMask, Role, open_bits};
use crate::steps::compare::Comparison;
use crate::steps::digits::Digits;
use crate::steps::planes::{Lanes, recv, send};
use crate::steps::polynomial::{Factor, Set, Sum};
use crate::{Call, Cost, Encode, EncodeError, Made, Operands, Step, Unit, Unsupported};
use megrez_kernels::{Bits, Circuit, Device, Wire};
use megrez_plan::{List, Op};
use megrez_ring::{Shape, Word, bits};
use megrez_session::{Error, Party, Phase};
use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::sync::OnceLock;

/// The most parts of a node.
const ARITY: usize = 4;

/// What a worker was dealt, and its halves of the signals' masks, as planes.
pub struct Dealt<D: Device> {
    /// Shares of the thresholds of v's digits.
    thresholds: Bits<D>,
    /// r_j of every signal that is opened.
    masks: Bits<D>,
    /// Shares of the products of masks.
    products: Bits<D>,
}

impl<D: Device> Encode<D> for Dealt<D> {
    fn write(&self, device: &D, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        [&self.thresholds, &self.masks, &self.products]
            .into_iter()
            .try_for_each(|planes| planes.write(device, out))
    }
    fn read(device: &D, input: &mut &[u8]) -> Result<Self, EncodeError> {
        let mut planes = || Bits::read(device, input);
        Ok(Dealt { thresholds: planes()?, masks: planes()?, products: planes()? })
    }
}

/// A signal that is opened: of which level, and which of that level's signals.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Opened {
    level: usize,
    part: usize,
    /// P, or else G.
    handed_on: bool,
}

/// Which signals there are, and which of them are opened.
struct Plan {
    /// Parts of each level, the digits first; the last has one.
    levels: Vec<usize>,
    /// Of each level but the last, the parts of its nodes.
    nodes: Vec<Vec<Range<usize>>>,
    /// What is opened, level by level: the factors of products.
    opened: Vec<Opened>,
    /// The products of masks, rising.
    products: Vec<Set>,
}

impl Plan {
    /// Of a comparison with so many digits.
    fn new(digits: usize) -> Self {
        let (mut levels, mut nodes) = (vec![digits], vec![]);
        while let Some(&parts) = levels.last().filter(|&&parts| parts > 1) {
            // As even as can be, so that no node has one part.
            let count = parts.div_ceil(ARITY);
            let start = |node: usize| node * parts / count;
            nodes.push((0..count).map(|node| start(node)..start(node + 1)).collect::<Vec<_>>());
            levels.push(count);
        }
        let mut plan = Plan { levels, nodes, opened: vec![], products: vec![] };
        for (level, nodes) in plan.nodes.iter().enumerate() {
            for part in 0..plan.levels[level] {
                let highest = nodes.iter().any(|node| node.end == part + 1);
                let of = |handed_on| Opened { level, part, handed_on };
                plan.opened.extend((!highest).then(|| of(false)));
                plan.opened.extend((part > 0).then(|| of(true)));
            }
        }
        let products: BTreeSet<Set> = (0..plan.nodes.len())
            .flat_map(|level| plan.sums(&mut Circuit::default(), level, &|_, _| Circuit::ZERO))
            .flat_map(|sum| sum.sets().filter(|set| set.len() > 1).collect::<Vec<_>>())
            .collect();
        plan.products = products.into_iter().collect();
        plan
    }

    /// The factors that a level opens.
    fn factors(&self, level: usize) -> Range<Factor> {
        let count = |before: usize| self.opened.iter().filter(|signal| signal.level < before).count();
        count(level)..count(level + 1)
    }

    /// What the nodes above a level make of what it opens, the lowest node first: G less the
    /// highest part's, and P of each but the lowest; `masked` gives m of a factor.
    fn sums(
        &self,
        circuit: &mut Circuit,
        level: usize,
        masked: &dyn Fn(&mut Circuit, Factor) -> Wire,
    ) -> Vec<Sum> {
        let number: HashMap<Opened, Factor> =
            self.opened.iter().enumerate().map(|(f, &signal)| (signal, f)).collect();
        let mut sums = vec![];
        for node in &self.nodes[level] {
            let (mut generate, mut propagate) = (Sum::default(), Sum::one());
            for part in node.clone().rev() {
                let times = |circuit: &mut Circuit, handed_on| {
                    let factor = number[&Opened { level, part, handed_on }];
                    let m = masked(circuit, factor);
                    propagate.times(circuit, factor, m)
                };
                if part + 1 < node.end {
                    let made = times(circuit, false);
                    generate = generate.plus(circuit, &made);
                }
                if part > 0 {
                    propagate = times(circuit, true);
                }
            }
            sums.push(generate);
            if node.start > 0 {
                sums.push(propagate);
            }
        }
        sums
    }

    /// Products of masks that a worker gets shares of.
    fn products(&self) -> usize {
        self.products.len()
    }

    /// What is sent of each value, level by level and then as the result.
    fn openings(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.nodes.len()).map(|level| self.factors(level).len()).chain([1])
    }
}

/// Where the signals of a level stand among its planes: G of every part, and P of each but the
/// lowest.
fn place(part: usize, handed_on: bool) -> usize {
    (2 * part).saturating_sub(1) + usize::from(handed_on && part > 0)
}

/// The digits of a comparison of `width` ≤ 64 bits, and what is above them: searched once a
/// process.
fn made(width: usize) -> &'static (Digits, Plan) {
    static MADE: [OnceLock<(Digits, Plan)>; 65] = [const { OnceLock::new() }; 65];
    MADE[width].get_or_init(|| {
        let above = |count: usize| {
            let plan = Plan::new(count);
            (plan.products() + 2 * plan.openings().sum::<usize>()) as f64
        };
        let digits = Digits::new(width, ARITY, above);
        let plan = Plan::new(digits.count());
        (digits.beside(plan.products()), plan)
    })
}

/// [x ≥ 0], or [x ≥ t] for every threshold.
pub struct SignTree<'a> {
    comparison: Comparison,
    plan: &'static Plan,
    /// Elements of x.
    n: usize,
    shape: &'a Shape,
}

impl SignTree<'_> {
    fn lanes(&self) -> Lanes {
        self.comparison.lanes(self.n)
    }

    /// Planes as they are kept.
    fn kept<D: Device>(&self, planes: usize, buf: D::Buf<u64>) -> Bits<D> {
        Bits::new([planes * self.lanes().words() * 64], buf)
    }

    /// The dealer's and the workers' halves of the masks, and products of the masks that they are
    /// halves of.
    fn deal_masks<D: Device>(&self, party: &mut Party<D>) -> Result<Option<[Bits<D>; 2]>, Error> {
        let (plan, lanes) = (self.plan, self.lanes());
        let (masks, products) = (plan.opened.len(), plan.products());
        if masks == 0 {
            // One digit is the result.
            let nothing = || Ok::<_, Error>(self.kept(0, party.device().upload(vec![])?));
            return Ok(if Role::of(party) == Role::Dealer { None } else { Some([nothing()?, nothing()?]) });
        }
        let drawn = |party: &mut Party<D>, peer: usize, label: &str, planes: usize| {
            let stream = party.stream(peer, label)?;
            Ok::<_, Error>(party.device().random::<u64>(&stream, planes * lanes.words())?)
        };
        Ok(match Role::of(party) {
            Role::Dealer => {
                let halves = [drawn(party, 0, "masks", masks)?, drawn(party, 1, "masks", masks)?];
                let other = drawn(party, 0, "products", products)?;
                let mut circuit = Circuit::default();
                let shares = plan.products.iter().enumerate().map(|(k, set)| {
                    let factor = |circuit: &mut Circuit, f: Factor| {
                        let halves = [0, 1].map(|j| circuit.input(j, f));
                        circuit.xor(halves[0], halves[1])
                    };
                    let first = factor(&mut circuit, set[0]);
                    let product = set[1..].iter().fold(first, |product, &f| {
                        let next = factor(&mut circuit, f);
                        circuit.and(product, next)
                    });
                    let other = circuit.input(2, k);
                    circuit.xor(product, other)
                });
                let shares = shares.collect();
                circuit.output(shares);
                let inputs = [&halves[0], &halves[1], &other];
                let share = party.device().run_circuit(&circuit.compile(), &inputs, lanes.words())?.remove(0);
                send(party, 1, "products", &share, products, lanes)?;
                None
            }
            Role::Worker(j) => {
                let own = drawn(party, DEALER, "masks", masks)?;
                let products_share = match j {
                    0 => drawn(party, DEALER, "products", products)?,
                    _ => recv(party, DEALER, "products", products, lanes)?,
                };
                Some([self.kept(masks, own), self.kept(products, products_share)])
            }
        })
    }

    /// Opens planes of shares that are masked already.
    fn open<D: Device>(
        &self,
        party: &mut Party<D>,
        j: usize,
        level: usize,
        share: &D::Buf<u64>,
    ) -> Result<D::Buf<u64>, Error> {
        let (label, planes, lanes) = (format!("level{level}"), self.plan.factors(level).len(), self.lanes());
        send(party, 1 - j, &label, share, planes, lanes)?;
        let other = recv(party, 1 - j, &label, planes, lanes)?;
        Ok(party.device().xor(&[share, &other], false, planes * lanes.words() * 64)?)
    }

    /// Worker j's share of the highest carry, with the top bits: from its shares of the digits'
    /// signals.
    fn carry<D: Device>(
        &self,
        party: &mut Party<D>,
        j: usize,
        dealt: &Dealt<D>,
        mut signals: D::Buf<u64>,
    ) -> Result<D::Buf<u64>, Error> {
        let (plan, words) = (self.plan, self.lanes().words());
        let product: HashMap<&Set, usize> = plan.products.iter().zip(0..).collect();
        // Buffers: masks, products, the signals of the level below, and what is opened of it.
        for level in 0..plan.nodes.len() {
            let factors = plan.factors(level);
            let mut circuit = Circuit::default();
            let masked = plan.opened[factors.clone()].iter().zip(factors.clone()).map(|(signal, f)| {
                let (share, mask) =
                    (circuit.input(0, place(signal.part, signal.handed_on)), circuit.input(1, f));
                circuit.xor(share, mask)
            });
            let masked = masked.collect();
            circuit.output(masked);
            let inputs = [&signals, &dealt.masks.buf];
            let share = party.device().run_circuit(&circuit.compile(), &inputs, words)?.remove(0);
            let opened = self.open(party, j, level, &share)?;
            let mut circuit = Circuit::default();
            let m = |circuit: &mut Circuit, f: Factor| circuit.input(3, f - factors.start);
            let sums = plan.sums(&mut circuit, level, &m);
            let mut sums = sums.iter();
            let mut shares = vec![];
            for node in &plan.nodes[level] {
                for handed_on in [false, true].into_iter().take(if node.start > 0 { 2 } else { 1 }) {
                    let sum = sums.next().expect("as many sums as signals");
                    let share = sum.component(&mut circuit, j, |circuit, set| match set {
                        &[factor] => circuit.input(0, factor),
                        set => circuit.input(1, product[&set.to_vec()]),
                    });
                    shares.push(match handed_on {
                        true => share,
                        false => {
                            let highest = circuit.input(2, place(node.end - 1, false));
                            circuit.xor(share, highest)
                        }
                    });
                }
            }
            circuit.output(shares);
            let inputs = [&dealt.masks.buf, &dealt.products.buf, &signals, &opened];
            signals = party.device().run_circuit(&circuit.compile(), &inputs, words)?.remove(0);
        }
        Ok(signals)
    }
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
        let plan = &made(sign.width(W::BITS) as usize).1;
        Some(SignTree { comparison, plan, n: call.of_elements(), shape: call.shape() })
    }

    fn cost(&self) -> Result<Cost, Unsupported> {
        let (plan, values, bit) = (self.plan, self.lanes().values(), Unit::Bits(1));
        let thresholds = self.comparison.digits.cost(Phase::Offline, self.n);
        let dealt = match plan.products() {
            0 => thresholds,
            products => thresholds.offline(DEALER, 1, products * values, bit),
        };
        Ok((1..)
            .zip(plan.openings())
            .fold(dealt, |cost, (round, planes)| cost.online_swap(round, 0, 1, planes * values, bit)))
    }

    fn offline(
        &self,
        party: &mut Party<D>,
        inputs: &[&Masks<W, D>],
        _: Option<&Masks<W, D>>,
    ) -> Result<Self::Material, Error> {
        let mask: &RingMask<W, D> = inputs[0].ring();
        let r = match Role::of(party) {
            Role::Dealer => Some(mask.total(party.device())?.buf),
            Role::Worker(_) => None,
        };
        let thresholds = self.comparison.deal(party, self.n, r.as_ref())?;
        let dealt = self.deal_masks(party)?;
        let thresholds = self.comparison.take(party, self.n, thresholds)?;
        Ok(thresholds.zip(dealt).map(|(thresholds, [masks, products])| Dealt { thresholds, masks, products }))
    }

    fn online(
        &self,
        party: &mut Party<D>,
        operands: Operands<'_, Mizar<W, D>>,
        dealt: Self::Material,
    ) -> Result<Made<Mizar<W, D>>, Error> {
        let (Role::Worker(j), Some(dealt)) = (Role::of(party), dealt) else { return Ok((Data::None, None)) };
        let (plan, words, n) = (self.plan, self.lanes().words(), self.shape.elements());
        let planes = |bits: &Bits<D>, planes: usize| bits.elements() == planes * words * 64;
        let whole =
            dealt.thresholds.elements() == self.comparison.digits.entries() * bits::words(self.n) * 64;
        if !whole || !planes(&dealt.masks, plan.opened.len()) || !planes(&dealt.products, plan.products()) {
            return party.refuse("a worker was given another comparison's material");
        }
        let m = &operands.ring(0).0.buf;
        let signals = self.comparison.signals(party, self.n, Some(m), Some(&dealt.thresholds))?;
        let share = self.carry(party, j, &dealt, signals.expect("a worker has its part"))?;
        let share = self.comparison.joined(party.device(), &share, self.shape)?;
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
        let (digits, plan) = made(width as usize);
        let opened: usize = plan.openings().sum();
        let dealt = digits.entries() + plan.products();
        [dealt as f64, 2.0 * opened as f64, plan.levels.len() as f64]
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
    fn no_node_has_one_part_and_every_product_at_most_four_factors() {
        for digits in 1..=63 {
            let plan = Plan::new(digits);
            assert!(plan.nodes.iter().flatten().all(|node| (2..=ARITY).contains(&node.len())), "{digits}");
            assert!(plan.products.iter().all(|set| (2..=ARITY).contains(&set.len())), "{digits}");
            assert_eq!(plan.levels.last(), Some(&1));
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
