//! The comparison of a ReLU by tables of digits ([`super::relu`], form *digit tables*): nothing
//! from or to the dealer online, the bits of its last node, and then the result. Ours; the digits
//! and the nodes are those of [`super::tree`].
//!
//! With m' and r' the λ compared bits of m and r, ρ = msb r', μ = msb m' and m̂, r̂ the bits below:
//!
//!   [x ≥ 0] = μ ⊕ U,   U = ρ + (1 − 2ρ)·(1 − C),   C = [r̂ > m̂].
//!
//! C is the highest carry of ¬m + r. Of the d ≤ 3 digits of r̂, up to 9 bits each, the dealer
//! shares all thresholds, so that the workers have shares of every digit's G and P. These they open
//! under masks ρ_s, the highest digit's G as well, as ŝ = s ⊕ ρ_s, and then
//!
//!   C = G_1 + P_1·G_2 + P_1·P_2·G_3,    s = ŝ + (1 − 2ŝ)·ρ_s,
//!
//! of which one summand at most is 1, is a polynomial in the ρ_s whose coefficients, sums of 0, 1
//! and −1, they know. The dealer deals ρ·(1, R, b) beside (R, b), as for a key, and (1 − 2ρ)·(1, R,
//! b) times every product of the ρ_s. So all are shares of U, U·R, U·b, and the half that μ chooses
//! is formed and opened as there: x·(μ ⊕ U).
//!
//! From 29 bits on three tables would be too long: there nodes of short digits are below, as in the
//! tree, and take a round. The digits are those of fewest bits; where ℓ = 64 one up to 9 bits, two
//! up to 19.
//!
//! Bits per element, with S products of masks (1, 4 and 10 for one, two and three parts), e
//! thresholds and s signals, in so many rounds:
//!
//!   offline   1       e/2 to both, or less to whom more is sent of
//!                     S·ℓ                               dealer → worker 0
//!                     S·ℓ, fused S·(ℓ + f)              dealer → worker 1
//!                     what relu says                    dealer → worker 1
//!   online    1       2·s                               worker ↔ worker
//!             1       2·ℓ                               worker ↔ worker
//!
//! λ = f = 16, ℓ = 64: 1182 bits offline and 134 online, in two rounds.
//!
//! Security: `docs/security/mizar.md`.

use super::halves::Shares;
use super::nodes::{self, DealtTree, Nodes, Tree};
use crate::mss::{DEALER, DealtShare, RingMask, deal, deal_low};
use crate::steps::compare::Comparison;
use crate::steps::digits::Digits;
use crate::steps::polynomial::Set;
use crate::{Cost, Unit};
use megrez_kernels::{Circuit, Device, Wire};
use megrez_plan::{List, Op, Relu as Spec, SignBit};
use megrez_ring::Word;
use megrez_session::{Error, Party};
use std::sync::OnceLock;

/// What a worker was dealt.
pub struct Dealt<W: Word, D: Device> {
    tree: nodes::Dealt<D>,
    /// Its shares of (1 − 2ρ) times every product of masks, product by product.
    bit: DealtShare<W, D>,
    /// The same times r, or R when fused.
    mask_bit: DealtShare<W, D>,
    /// The same times b when fused.
    top_bit: Option<DealtShare<W, D>>,
}
encode_struct!(Dealt[W, D] => tree, bit, mask_bit, top_bit);

/// A summand of C: a product of masks times signals that were opened.
struct Summand {
    /// Which of the products that are dealt; the empty one is not.
    product: Option<usize>,
    /// The masks: each counts by 1 − 2ŝ.
    masks: Set,
    /// ŝ of the others.
    opened: Set,
}

/// How so many bits are compared.
struct Made {
    digits: Digits,
    nodes: Nodes,
    /// The products of masks of the last node that are dealt.
    products: Vec<Set>,
    summands: Vec<Summand>,
}

/// The most positions of a digit.
const WIDEST: usize = 9;
/// The most parts of the last node.
const PARTS: usize = 3;

impl Made {
    /// Of digits under so many nodes at every level.
    fn of(width: usize, levels: Vec<usize>) -> Self {
        let (digits, parts) = (Digits::split(width, levels[0]).without_top(), levels[levels.len() - 2]);
        let nodes = Nodes::of(levels, true);
        let root = nodes.levels() - 1;
        // P of the parts above, and G of one, from the highest on.
        let terms = (0..parts).rev().map(|part| {
            let above = (part + 1..parts).map(|part| nodes.factor(root, part, true));
            above.chain([nodes.factor(root, part, false)]).collect::<Set>()
        });
        let (mut products, mut summands): (Vec<Set>, _) = (vec![], vec![]);
        for term in terms {
            for chosen in 0..1usize << term.len() {
                let (masks, opened): (Vec<_>, Vec<_>) =
                    term.iter().enumerate().partition(|(i, _)| chosen >> i & 1 == 1);
                let [mut masks, opened] =
                    [masks, opened].map(|part| part.into_iter().map(|(_, &f)| f).collect::<Set>());
                masks.sort_unstable();
                let product = (!masks.is_empty()).then(|| {
                    products.iter().position(|set| *set == masks).unwrap_or_else(|| {
                        products.push(masks.clone());
                        products.len() - 1
                    })
                });
                summands.push(Summand { product, masks, opened });
            }
        }
        Made { digits, nodes, products, summands }
    }

    /// Bits of both phases but the result's, with f = ℓ/4.
    fn bits(&self, ring: usize) -> usize {
        let opened: usize = self.nodes.openings().sum();
        let dealt = self.digits.entries() + self.nodes.products();
        dealt + 2 * opened + (2 * ring + ring / 4) * self.products.len()
    }

    /// One node above at most three digits where these are short enough, or else two levels.
    fn fewest(width: usize, ring: usize) -> Self {
        let positions = width - 1;
        let flat = (positions.div_ceil(WIDEST)..=PARTS.min(positions)).map(|digits| vec![digits, 1]);
        let deep = |parts: usize| {
            let digits = (2 * parts).max(positions.div_ceil(WIDEST))..=nodes::ARITY * parts;
            digits.map(move |digits| vec![digits, parts, 1])
        };
        let mut levels: Vec<Vec<usize>> = flat.collect();
        if levels.is_empty() {
            levels = (2..=PARTS).flat_map(deep).collect();
        }
        let made = levels.into_iter().map(|levels| Made::of(width, levels));
        made.min_by_key(|made| made.bits(ring)).expect("digits of at most nine bits for every width")
    }
}

/// How `width` bits are compared, with ℓ in whole bytes: searched once a process.
fn chosen(width: usize, ring: u32) -> &'static Made {
    static MADE: [[OnceLock<Made>; 65]; 8] = [const { [const { OnceLock::new() }; 65] }; 8];
    let bytes = ring.div_ceil(8) as usize;
    MADE[bytes - 1][width].get_or_init(|| Made::fewest(width, 8 * bytes))
}

/// The comparison of `n` values.
pub struct Tables {
    made: &'static Made,
    tree: Tree,
    truncate: u32,
}

impl Tables {
    pub fn of<W: Word>(relu: &Spec, n: usize) -> Self {
        let width = relu.sign.width(W::BITS);
        let made = chosen(width as usize, W::BITS);
        let sign = SignBit { list: List::Tree, bits: Some(width), ..relu.sign.clone() };
        // What worker 1 is sent more of everything else.
        let (f, ring, products) = (relu.truncate, W::BITS as usize, made.products.len());
        let of_relu = if f == 0 { 2 * ring } else { 3 * ring + 2 * f as usize };
        let beside = of_relu + products * f as usize + made.nodes.products();
        let mut comparison =
            Comparison::of(&Op::NonNegative(sign), W::BITS, |width| chosen(width, W::BITS).digits.clone())
                .expect("a sign is compared");
        comparison.digits = comparison.digits.beside(beside);
        Tables { made, tree: Tree { comparison, nodes: &made.nodes, n }, truncate: f }
    }

    /// Rounds before the result is opened.
    pub fn rounds(&self) -> u32 {
        self.made.nodes.levels() as u32
    }

    /// Words of what is dealt for each word of the payload.
    fn dealt(&self) -> usize {
        self.made.products.len() * self.tree.n
    }

    /// What is dealt, and opened before the result.
    pub fn cost<W: Word>(&self) -> Cost {
        let (word, dealt) = (Unit::Bits(W::BITS), self.dealt());
        let mut cost = self.tree.cost().offline(DEALER, 0, dealt, word).offline(DEALER, 1, dealt, word);
        if self.truncate > 0 {
            cost = cost.offline(DEALER, 1, dealt, Unit::Bits(self.truncate));
        }
        (1..).zip(self.made.nodes.openings()).fold(cost, |cost, (round, planes)| {
            cost.online_swap(round, 0, 1, planes * self.tree.n, Unit::Bits(1))
        })
    }

    /// The dealer deals for masks of which it has the top compared bits; a worker gets its part.
    pub fn deal<W: Word, D: Device>(
        &self,
        party: &mut Party<D>,
        mask: &RingMask<W, D>,
        top: Option<&D::Buf<u64>>,
    ) -> Result<Option<Dealt<W, D>>, Error> {
        let (f, n, all) = (self.truncate, self.tree.n, self.dealt());
        let tree = self.tree.deal(party, mask)?;
        let products = match &tree {
            DealtTree::Dealer(halves) => Some(self.products(party.device(), halves)?),
            DealtTree::Worker(_) => None,
        };
        // (1 − 2ρ)·x times every product.
        let of = |device: &D, x: Option<D::Buf<W>>| -> Result<D::Buf<W>, Error> {
            let [top, products] = [top, products.as_ref()].map(|bits| bits.expect("the dealer has both"));
            let negative = device.bit_times(top, x.as_ref(), n)?;
            let minus = (W::from_i64(-2), &negative);
            let signed = match &x {
                None => device.combine(&[minus], W::ONE, n)?,
                Some(x) => device.combine(&[(W::ONE, x), minus], W::ZERO, n)?,
            };
            let again = device.gather(&signed, [1, 1, n], &vec![0; self.made.products.len()])?;
            Ok(device.bit_times(products, Some(&again), all)?)
        };
        let shifted = |device: &D, bits: u32| -> Result<D::Buf<W>, Error> {
            Ok(device.shift_right(&mask.total(device)?.buf, bits)?)
        };
        let bit = deal(party, 0, "digits-bit", all, |device| of(device, None))?;
        let mask_bit =
            deal(party, 1, "digits-mask-bit", all, |device| of(device, Some(shifted(device, f)?)))?;
        let top_bit = match f {
            0 => None,
            f => deal_low(party, 1, "digits-top-bit", all, f, |device| {
                of(device, Some(shifted(device, W::BITS - 1)?))
            })?,
        };
        let DealtTree::Worker(tree) = tree else { return Ok(None) };
        Ok(bit.zip(mask_bit).map(|(bit, mask_bit)| Dealt { tree, bit, mask_bit, top_bit }))
    }

    /// The products of the last node's masks, as packed bits, from both halves of all masks.
    fn products<D: Device>(
        &self,
        device: &D,
        [first, second]: &[D::Buf<u64>; 2],
    ) -> Result<D::Buf<u64>, Error> {
        let mut circuit = Circuit::default();
        let products = self.made.products.iter().map(|set| nodes::product_of_masks(&mut circuit, set));
        let products = products.collect();
        circuit.output(products);
        let words = self.tree.lanes().words();
        let planes = device.run_circuit(&circuit.compile(), &[first, second], words)?.remove(0);
        Ok(device.pack_planes(&planes, self.made.products.len(), self.tree.n)?)
    }

    /// Worker j's shares of U and its products, from those of ρ and what was dealt, at its masked
    /// values, whose masks it has shares of. What was dealt is used up.
    pub fn evaluate<W: Word, D: Device>(
        &self,
        party: &mut Party<D>,
        j: usize,
        (masked, mask): (&D::Buf<W>, &D::Buf<W>),
        dealt: Dealt<W, D>,
        shares: Shares<W, D>,
    ) -> Result<Shares<W, D>, Error> {
        if !self.tree.fits(&dealt.tree) || dealt.top_bit.is_some() != (self.truncate > 0) {
            return party.refuse("a worker was given another comparison's material");
        }
        let root = self.made.nodes.levels() - 1;
        let signals = self.tree.signals(party, masked, &dealt.tree)?;
        let signals = self.tree.climb(party, j, root, &dealt.tree, signals)?;
        let opened = self.tree.open(party, j, root, &dealt.tree, &signals)?;
        let (device, n, all) = (party.device(), self.tree.n, self.dealt());
        let signs = self.signs(device, &opened)?;
        let empty = vec![0; self.made.summands.iter().filter(|s| s.product.is_none()).count()];
        let rows: Vec<usize> = self.made.summands.iter().filter_map(|summand| summand.product).collect();
        // [U·x] from [x], [ρ·x] and what was dealt for x: (1 − ρ)·x − C·(1 − 2ρ)·x.
        let times = |x: Option<&D::Buf<W>>, top: &D::Buf<W>, dealt: &D::Buf<W>| -> Result<D::Buf<W>, Error> {
            let plus = |by: i64, tops: i64| {
                let tops = (W::from_i64(tops), top);
                match x {
                    None => device.combine(&[tops], if j == 0 { W::from_i64(by) } else { W::ZERO }, n),
                    Some(x) => device.combine(&[(W::from_i64(by), x), tops], W::ZERO, n),
                }
            };
            let sum = device.signed_sum(&plus(1, -1)?, &plus(-1, 2)?, &empty, &signs[0])?;
            Ok(device.signed_sum(&sum, dealt, &rows, &signs[1])?)
        };
        let (bit, mask_bit) = (dealt.bit.words(device, all)?, dealt.mask_bit.words(device, all)?);
        let truncation = match (shares.truncation, dealt.top_bit) {
            (Some((parts, top_bit)), Some(dealt)) => {
                let top_bit = times(Some(&parts.top), &top_bit, &dealt.low(device, self.truncate, all)?)?;
                Some((parts, top_bit))
            }
            _ => None,
        };
        let value = truncation.as_ref().map_or(mask, |(parts, _)| &parts.high);
        Ok(Shares {
            bit: times(None, &shares.bit, &bit)?,
            mask_bit: times(Some(value), &shares.mask_bit, &mask_bit)?,
            truncation,
        })
    }

    /// The signs of the summands of C without a mask, and of the others of −C.
    fn signs<D: Device>(&self, device: &D, opened: &D::Buf<u64>) -> Result<[D::Buf<u64>; 2], Error> {
        let first = self.made.nodes.factors(self.made.nodes.levels() - 1).start;
        let mut circuit = Circuit::default();
        let one = circuit.not(Circuit::ZERO);
        let mut planes: [Vec<Wire>; 2] = [vec![], vec![]];
        for summand in &self.made.summands {
            let mut of = |f: &usize| circuit.input(0, f - first);
            let [opened, masks] =
                [&summand.opened, &summand.masks].map(|set| set.iter().map(&mut of).collect::<Vec<_>>());
            let counts = opened.into_iter().fold(one, |all, m| circuit.and(all, m));
            let minus = circuit.sum(&masks);
            match summand.product {
                None => planes[0].extend([counts, Circuit::ZERO]),
                Some(_) => {
                    let plus = circuit.not(minus);
                    planes[1].extend([counts, plus]);
                }
            }
        }
        planes.into_iter().for_each(|planes| {
            circuit.output(planes);
        });
        let made = device.run_circuit(&circuit.compile(), &[opened], self.tree.lanes().words())?;
        Ok(made.try_into().unwrap_or_else(|_| unreachable!("two outputs")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mizar::Mizar;
    use crate::testing::World;
    use megrez_kernels::Reference;
    use megrez_plan::{Plan, ReluForm};
    use megrez_prg::Key;
    use megrez_session::Phase;

    fn relu(cut: u32, bits: u32, truncate: u32) -> Op {
        Op::Relu(spec(cut, bits, truncate))
    }

    fn spec(cut: u32, bits: u32, truncate: u32) -> Spec {
        let sign = SignBit { list: List::Digits(vec![1; bits as usize - 1]), cut, bits: Some(bits) };
        Spec { sign, form: ReluForm::DigitTables, truncate }
    }

    /// Offline and online bits of one value, and rounds.
    fn costs(bits: u32, truncate: u32) -> [f64; 3] {
        let tables = Tables::of::<u64>(&spec(truncate, bits, truncate), 1);
        let cost = tables.cost::<u64>();
        let of_relu = if truncate == 0 { 128 } else { 192 + 2 * truncate };
        let [offline, online] = [Phase::Offline, Phase::Online].map(|phase| cost.bits(phase));
        [offline + f64::from(of_relu), online + 128.0, f64::from(tables.rounds() + 1)]
    }

    #[test]
    fn the_costs_are_those_of_the_head() {
        // And of the protocol's page: one digit, two, three.
        for (bits, offline, online) in
            [(9, 623, 130), (12, 894, 134), (16, 1182, 134), (19, 1822, 134), (24, 2301, 138)]
        {
            assert_eq!(costs(bits, 16), [f64::from(offline), f64::from(online), 2.0], "{bits} bits");
        }
        for (bits, products, rounds) in
            [(9, 1, 2.0), (10, 4, 2.0), (19, 4, 2.0), (20, 10, 2.0), (28, 10, 2.0)]
        {
            let found = (chosen(bits, 64).products.len(), costs(bits as u32, 16)[2]);
            assert_eq!(found, (products, rounds), "{bits} bits");
        }
        for bits in 29..=64 {
            let [offline, online, rounds] = costs(bits, 0);
            assert!(offline < 1950.0 && online < 180.0 && rounds == 3.0, "{bits}: {offline} + {online}");
        }
    }

    #[test]
    fn both_workers_are_sent_as_much_where_there_is_enough_to_share_out() {
        // What the ReLU has dealt besides is all sent to worker 1.
        let of_relu = [0, 640 / 8 * (3 * 64 + 2 * 16)];
        let cost = Tables::of::<u64>(&spec(16, 16, 16), 640).cost::<u64>();
        let [first, second] = [0, 1].map(|to| cost.bytes(Phase::Offline, 2, to) + of_relu[to]);
        assert!(first.abs_diff(second) <= 640 / 8, "{first} and {second}");
    }

    #[test]
    fn every_value_at_every_width_and_cut() {
        // All values, several times: masks decide which digits are equal.
        let x: Vec<u64> = (0..256).cycle().take(8 * 256).collect();
        for (cut, bits) in [(0, 8), (0, 5), (2, 6), (3, 2), (1, 4), (0, 2)] {
            let world = World::new(Mizar::<u8, Reference>::default());
            let found = world.step(relu(cut, bits, 0), 0, &[&x]);
            for (x, y) in x.iter().zip(found) {
                let x = i64::from(*x as u8 as i8);
                let range = 1i64 << (cut + bits - 1);
                if (-range..range - (1 << cut)).contains(&x) && !(-(1 << cut) < x && x < 0) {
                    assert_eq!(y as u8 as i8 as i64, x.max(0), "x = {x}, {bits} bits above {cut}");
                }
            }
        }
    }

    #[test]
    fn a_truncation_in_the_same_step_rounds_up_or_down_and_negatives_give_0() {
        crate::mizar::relu::tests::a_truncation_in_the_same_step(relu);
    }

    /// Digits of all numbers, levels of both kinds, values close to 0 and to the ends.
    #[test]
    fn random_and_extreme_words_on_wide_rings() {
        fn of<W: Word>(forms: &[(u32, u32, u32)]) {
            for &(cut, bits, f) in forms {
                let top = (cut + bits - 1).min(if f == 0 { 63 } else { W::BITS - 2 });
                let drawn = Key::from_bytes([bits as u8; 32]).stream().words(400);
                let (end, step) = (1i64.wrapping_shl(top), 1i64 << cut);
                let close = [0, 1, -1, end.wrapping_sub(step), end.wrapping_neg(), step, -step];
                let values = drawn.iter().map(|&x| (x as i64) >> (63 - top)).chain(close);
                let promised = |&x: &i64| i128::from(x) <= (1i128 << top) - (1i128 << cut);
                let x: Vec<i64> = values.filter(promised).map(|x| W::from_i64(x).to_i64()).collect();
                let words: Vec<u64> = x.iter().map(|&x| W::from_i64(x).to_u64()).collect();
                let world = World::new(Mizar::<W, Reference>::default());
                for (&x, y) in x.iter().zip(world.step(relu(cut, bits, f), f, &[&words])) {
                    let (y, floor) = (W::from_u64(y).to_i64(), x.max(0) >> f);
                    let unseen = (-step..0).contains(&x) && f == 0;
                    let rounded = x > 0 && y == floor.wrapping_add(1) && x & ((1i64 << f) - 1) != 0;
                    assert!(y == floor || rounded || unseen, "{x} / 2^{f} by {bits} bits above {cut}: {y}");
                }
            }
        }
        of::<u32>(&[(0, 32, 0), (0, 24, 0), (8, 16, 8), (13, 16, 13), (5, 3, 9)]);
        of::<u64>(&[
            (0, 64, 0),
            (0, 29, 0),
            (16, 16, 16),
            (16, 20, 16),
            (16, 28, 16),
            (0, 47, 7),
            (16, 9, 16),
        ]);
    }

    #[test]
    fn a_late_mask_is_read_as_another() {
        let x: Vec<u64> = (0..128).map(|i| (i * 2 + 192) % 256).collect();
        let mut plan = Plan::new(8);
        let y = plan.input("x", "owner", [x.len()].into(), 0);
        let late = Spec { sign: SignBit::FULL, form: ReluForm::TwoRounds, truncate: 0 };
        let y = plan.step("late", Op::Relu(late), &[y]).unwrap();
        let moved = plan.step("moved", Op::Combine { coefficients: vec![1], constant: -9 }, &[y]).unwrap();
        let z = plan.step("relu", relu(0, 8, 0), &[moved]).unwrap();
        plan.output("z", "owner", z);
        let found = World::new(Mizar::<u8, Reference>::default()).run(&plan, &[&x]).remove(0);
        for (x, z) in x.iter().zip(found) {
            let x = i64::from(*x as u8 as i8);
            if (-64..64).contains(&x) {
                assert_eq!(z as i64, (x.max(0) - 9).max(0), "{x}");
            }
        }
    }
}
