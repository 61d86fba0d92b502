//! The carry of u + v from those of digits, for workers who have shares of the digits' signals
//! ([`crate::steps::digits`]): a tree of nodes, each a public polynomial of what its parts have
//! opened under masks. [`super::tree`] has the steps.

use crate::mss::{DEALER, Mask, RingMask, Role};
use crate::steps::compare::Comparison;
use crate::steps::planes::{Lanes, recv, send};
use crate::steps::polynomial::{Factor, Set, Sum};
use crate::{Cost, Encode, EncodeError, Unit};
use megrez_kernels::{Bits, Circuit, Device, Wire};
use megrez_ring::{Word, bits};
use megrez_session::{Error, Party, Phase};
use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

/// The most parts of a node.
pub(super) const ARITY: usize = 4;

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
pub(super) struct Nodes {
    /// Parts of each level, the digits first; the last has one.
    levels: Vec<usize>,
    /// Of each level but the last, the parts of its nodes.
    nodes: Vec<Vec<Range<usize>>>,
    /// What is opened, level by level: the factors of products.
    opened: Vec<Opened>,
    /// The products of masks that are dealt, rising.
    products: Vec<Set>,
}

impl Nodes {
    /// Above so many digits, as few levels as can be.
    pub fn above(digits: usize) -> Self {
        let mut levels = vec![digits];
        while let Some(&parts) = levels.last().filter(|&&parts| parts > 1) {
            levels.push(parts.div_ceil(ARITY));
        }
        Self::of(levels, false)
    }

    /// Levels of so many parts, the last of one. Where the last node's parts are opened `whole`,
    /// their products are none of the tree's.
    pub fn of(levels: Vec<usize>, whole: bool) -> Self {
        let nodes: Vec<Vec<Range<usize>>> =
            levels.windows(2).map(|level| split(level[0], level[1])).collect();
        let mut plan = Nodes { levels, nodes, opened: vec![], products: vec![] };
        for (level, nodes) in plan.nodes.iter().enumerate() {
            let all = whole && level + 1 == plan.nodes.len();
            for part in 0..plan.levels[level] {
                let highest = !all && nodes.iter().any(|node| node.end == part + 1);
                let of = |handed_on| Opened { level, part, handed_on };
                plan.opened.extend((!highest).then(|| of(false)));
                plan.opened.extend((part > 0).then(|| of(true)));
            }
        }
        let dealt = plan.nodes.len() - usize::from(whole);
        let products: BTreeSet<Set> = (0..dealt)
            .flat_map(|level| plan.sums(&mut Circuit::default(), level, &|_, _| Circuit::ZERO))
            .flat_map(|sum| sum.sets().filter(|set| set.len() > 1).collect::<Vec<_>>())
            .collect();
        plan.products = products.into_iter().collect();
        plan
    }

    /// Levels of nodes.
    pub fn levels(&self) -> usize {
        self.nodes.len()
    }

    /// The factors that a level opens.
    pub fn factors(&self, level: usize) -> Range<Factor> {
        let count = |before: usize| self.opened.iter().filter(|signal| signal.level < before).count();
        count(level)..count(level + 1)
    }

    /// The factor that is the mask of a signal of a level, which is opened.
    pub fn factor(&self, level: usize, part: usize, handed_on: bool) -> Factor {
        let signal = Opened { level, part, handed_on };
        self.opened.iter().position(|&opened| opened == signal).expect("a signal that is opened")
    }

    /// What the nodes above a level make of what it opens, the lowest node first: G less the
    /// highest part's, and P of each but the lowest; `masked` gives m of a factor.
    fn sums(
        &self,
        circuit: &mut Circuit,
        level: usize,
        masked: &dyn Fn(&mut Circuit, Factor) -> Wire,
    ) -> Vec<Sum> {
        let mut sums = vec![];
        for node in &self.nodes[level] {
            let (mut generate, mut propagate) = (Sum::default(), Sum::one());
            for part in node.clone().rev() {
                let times = |circuit: &mut Circuit, handed_on| {
                    let factor = self.factor(level, part, handed_on);
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
    pub fn products(&self) -> usize {
        self.products.len()
    }

    /// What is sent of each value, level by level.
    pub fn openings(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.nodes.len()).map(|level| self.factors(level).len())
    }
}

/// So many parts in groups as even as can be.
fn split(parts: usize, groups: usize) -> Vec<Range<usize>> {
    let start = |group: usize| group * parts / groups;
    (0..groups).map(|group| start(group)..start(group + 1)).collect()
}

/// Where the signals of a level stand among its planes: G of every part, and P of each but the
/// lowest.
fn place(part: usize, handed_on: bool) -> usize {
    (2 * part).saturating_sub(1) + usize::from(handed_on && part > 0)
}

/// A comparison of `n` values, and the tree above its digits.
pub(super) struct Tree {
    pub comparison: Comparison,
    pub nodes: &'static Nodes,
    pub n: usize,
}

/// What the parties have once a tree is dealt: a worker its part, the dealer both halves of masks.
pub(super) enum DealtTree<D: Device> {
    Worker(Dealt<D>),
    Dealer([D::Buf<u64>; 2]),
}

impl Tree {
    pub fn lanes(&self) -> Lanes {
        self.comparison.lanes(self.n)
    }

    /// Planes as they are kept.
    fn kept<D: Device>(&self, planes: usize, buf: D::Buf<u64>) -> Bits<D> {
        Bits::new([planes * self.lanes().words() * 64], buf)
    }

    /// Deals thresholds of the digits of a mask, halves of the signals' masks and products of
    /// these.
    pub fn deal<W: Word, D: Device>(
        &self,
        party: &mut Party<D>,
        mask: &RingMask<W, D>,
    ) -> Result<DealtTree<D>, Error> {
        let r = match Role::of(party) {
            Role::Dealer => Some(mask.total(party.device())?.buf),
            Role::Worker(_) => None,
        };
        let thresholds = self.comparison.deal(party, self.n, r.as_ref())?;
        let halves = self.draw_masks(party)?;
        let products = self.deal_products(party, &halves)?;
        let thresholds = self.comparison.take(party, self.n, thresholds)?;
        Ok(match halves {
            Mask::Dealer(both) => DealtTree::Dealer(both),
            Mask::Worker(own) => DealtTree::Worker(Dealt {
                thresholds: thresholds.expect("a worker has its part"),
                masks: self.kept(self.nodes.opened.len(), own),
                products: self.kept(self.nodes.products(), products.expect("a worker has its part")),
            }),
        })
    }

    /// `planes` planes of the stream with another.
    fn drawn<D: Device>(
        &self,
        party: &mut Party<D>,
        peer: usize,
        label: &str,
        planes: usize,
    ) -> Result<D::Buf<u64>, Error> {
        if planes == 0 {
            return Ok(party.device().upload(vec![])?);
        }
        let stream = party.stream(peer, label)?;
        Ok(party.device().random::<u64>(&stream, planes * self.lanes().words())?)
    }

    /// The halves of the signals' masks.
    fn draw_masks<D: Device>(&self, party: &mut Party<D>) -> Result<Mask<D::Buf<u64>>, Error> {
        let masks = self.nodes.opened.len();
        Ok(match Role::of(party) {
            Role::Dealer => {
                Mask::Dealer([self.drawn(party, 0, "masks", masks)?, self.drawn(party, 1, "masks", masks)?])
            }
            Role::Worker(_) => Mask::Worker(self.drawn(party, DEALER, "masks", masks)?),
        })
    }

    /// Worker 0 draws its shares of the products of masks, worker 1 is sent them.
    fn deal_products<D: Device>(
        &self,
        party: &mut Party<D>,
        halves: &Mask<D::Buf<u64>>,
    ) -> Result<Option<D::Buf<u64>>, Error> {
        let (products, lanes) = (self.nodes.products(), self.lanes());
        let other = match (Role::of(party), products) {
            (Role::Dealer, 0) => return Ok(None),
            (Role::Worker(1), 1..) => return recv(party, DEALER, "products", products, lanes).map(Some),
            (Role::Dealer, _) => self.drawn(party, 0, "products", products)?,
            _ => self.drawn(party, DEALER, "products", products)?,
        };
        let Mask::Dealer([first, second]) = halves else { return Ok(Some(other)) };
        let mut circuit = Circuit::default();
        let share = |(k, set): (usize, &Set)| {
            let product = product_of_masks(&mut circuit, set);
            let other = circuit.input(2, k);
            circuit.xor(product, other)
        };
        let shares = self.nodes.products.iter().enumerate().map(share).collect();
        circuit.output(shares);
        let inputs = [first, second, &other];
        let share = party.device().run_circuit(&circuit.compile(), &inputs, lanes.words())?.remove(0);
        send(party, 1, "products", &share, products, lanes)?;
        Ok(None)
    }

    /// What is dealt.
    pub fn cost(&self) -> Cost {
        let thresholds = self.comparison.digits.cost(Phase::Offline, self.n);
        match self.nodes.products() {
            0 => thresholds,
            products => thresholds.offline(DEALER, 1, products * self.lanes().values(), Unit::Bits(1)),
        }
    }

    /// Whether this was dealt for such a tree.
    pub fn fits<D: Device>(&self, dealt: &Dealt<D>) -> bool {
        let planes = |bits: &Bits<D>, planes: usize| bits.elements() == planes * self.lanes().words() * 64;
        dealt.thresholds.elements() == self.comparison.digits.entries() * bits::words(self.n) * 64
            && planes(&dealt.masks, self.nodes.opened.len())
            && planes(&dealt.products, self.nodes.products())
    }

    /// Worker j's shares of the digits' signals, where it has the masked values.
    pub fn signals<W: Word, D: Device>(
        &self,
        party: &Party<D>,
        masked: &D::Buf<W>,
        dealt: &Dealt<D>,
    ) -> Result<D::Buf<u64>, Error> {
        let signals = self.comparison.signals(party, self.n, Some(masked), Some(&dealt.thresholds))?;
        Ok(signals.expect("a worker has its part"))
    }

    /// The signals of a level that are opened, from worker j's shares of all: the exclusive or of
    /// each with its mask.
    pub fn open<D: Device>(
        &self,
        party: &mut Party<D>,
        j: usize,
        level: usize,
        dealt: &Dealt<D>,
        signals: &D::Buf<u64>,
    ) -> Result<D::Buf<u64>, Error> {
        let (factors, lanes, words) = (self.nodes.factors(level), self.lanes(), self.lanes().words());
        let mut circuit = Circuit::default();
        let masked = self.nodes.opened[factors.clone()].iter().zip(factors.clone()).map(|(signal, f)| {
            let (share, mask) = (circuit.input(0, place(signal.part, signal.handed_on)), circuit.input(1, f));
            circuit.xor(share, mask)
        });
        let masked = masked.collect();
        circuit.output(masked);
        let inputs = [signals, &dealt.masks.buf];
        let share = party.device().run_circuit(&circuit.compile(), &inputs, words)?.remove(0);
        let (label, planes) = (format!("level{level}"), factors.len());
        send(party, 1 - j, &label, &share, planes, lanes)?;
        let other = recv(party, 1 - j, &label, planes, lanes)?;
        Ok(party.device().xor(&[&share, &other], false, planes * words * 64)?)
    }

    /// Worker j's shares of the signals that the nodes above `levels` levels make, from those of
    /// the digits.
    pub fn climb<D: Device>(
        &self,
        party: &mut Party<D>,
        j: usize,
        levels: usize,
        dealt: &Dealt<D>,
        mut signals: D::Buf<u64>,
    ) -> Result<D::Buf<u64>, Error> {
        let (plan, words) = (self.nodes, self.lanes().words());
        let product: HashMap<&Set, usize> = plan.products.iter().zip(0..).collect();
        // Buffers: masks, products, the signals of the level below, and what is opened of it.
        for level in 0..levels {
            let opened = self.open(party, j, level, dealt, &signals)?;
            let first = plan.factors(level).start;
            let mut circuit = Circuit::default();
            let m = |circuit: &mut Circuit, f: Factor| circuit.input(3, f - first);
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

/// The product of masks whose halves are the planes of buffers 0 and 1.
pub(super) fn product_of_masks(circuit: &mut Circuit, set: &Set) -> Wire {
    let mask = |circuit: &mut Circuit, f: Factor| {
        let halves = [0, 1].map(|j| circuit.input(j, f));
        circuit.xor(halves[0], halves[1])
    };
    let first = mask(circuit, set[0]);
    set[1..].iter().fold(first, |product, &f| {
        let next = mask(circuit, f);
        circuit.and(product, next)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_node_has_one_part_and_every_product_at_most_four_factors() {
        for digits in 1..=63 {
            let plan = Nodes::above(digits);
            assert!(plan.nodes.iter().flatten().all(|node| (2..=ARITY).contains(&node.len())), "{digits}");
            assert!(plan.products.iter().all(|set| (2..=ARITY).contains(&set.len())), "{digits}");
            assert_eq!(plan.levels.last(), Some(&1));
        }
    }
}
