//! Addition of two values that are known to some parties, on masked replicated bits: ALKAID, Fig. 2-9 (AND2 to AND4, the adder
//! with nodes of up to four parts, XOR-then-resharing, AND-reuse), with the round of generate bits merged into the first level.
//!
//! A masked bit x = m ⊕ r has m known to all and r replicated. A node with parts 1 (most significant) to 4 makes
//!   G = g_1 ⊕ p_1·g_2 ⊕ (p_1·p_2)·(g_3 ⊕ p_3·g_4)   and   P = (p_1·p_2)·(p_3·p_4),
//! where a product of two masked bits is replicated without a message, m_x·m_y ⊕ m_x·r_y ⊕ m_y·r_x ⊕ r_x·r_y, once the parties hold
//! r_x·r_y; a product of two replicated bits gives additive shares; their sum is opened under a fresh mask, or reshared
//! where no other node reads it.
//!
//! Deviates from the figures: Fig. 5 prints m_u·r_u for m_u ⊕ r_u. One pair of masks serves ∇3 and ▼3 (Lemma 2 counts two). Generate bits
//! of leaves, u·v, are replicated products and never opened; where one is the lowest of four parts, p_3·u·v takes three
//! pairs and a product of three masks, made in a second offline round. An input's mask lies in those components
//! that who knows the input holds, so one or two messages share it instead of four. u's and v's masks being such, their
//! products are known to two parties in parts, who make them replicated by 2 bits instead of 3.
//!
//! The inputs come from a replicated x (u = x_1 at P0 and P1, v = x_2 + x_0 at P2), or they are two values in masked bits.
//!
//! phase     rounds          bits per value, width λ                 from → to
//! offline   1               2·(λ−1) (masked bits: 3·(λ−1))          P0 ↔ P1, who know a part of u's and v's masks each
//!           1               3 for every other pair                  P_i → P_{i−1}, each i
//!           1               3 for every product of three masks      P_i → P_{i−1}, each i
//! online    1               2·λ + λ (masked bits: 0)                P2 → P0, P1 and P0 → P2
//!           depth of tree   6 for an opened signal, 3 for a result  each to both others; P_i → P_{i−1}
//!
//! The top bit alone ([`top`]) has digits ([`super::digits`]) for leaves, whose signals P0 and P1 know in parts. They open these
//! to all under masks of their own, and nodes of four follow. The last carry, with the top bits in it, is opened as the masked result.
//!
//! phase     rounds          bits per value, d digits                from → to
//! offline   1               3 for every pair                        P_i → P_{i−1}, each i
//! online    1               4·(2·d − 1)                             P0 → P1, P2 and P1 → P0, P2
//!           ⌈log4 d⌉        6 for an opened signal or the result    each to both others
//!
//! For 64 bits that is 39 + 172 bits, and 233 for the digits. Everybody sees uniform bits: what P0 and P1 send holds
//! a component of the mask that the receiver lacks, and a stream of theirs hides the parts of the sum from P2, who knows the rest.

use crate::replicated::digits::Digits;
use crate::replicated::planes::{Lanes, Plane, Shared, Sheet, Signal, add_zero, masked, recv, reshare, send};
use crate::replicated::sum::{Known, output_planes};
use crate::replicated::tree::{Node, Span, Tree};
use crate::rss::{Rss, after, before, draw};
use crate::{Cost, Store, StoreError, Unit};
use megrez_kernels::{Bits, Circuit, Device, Wire};
use megrez_ring::{Shape, bits};
use megrez_session::{Error, Party, Phase};
use std::collections::HashSet;

/// Where the summands come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Entry {
    /// A replicated value: u at P0 and P1, v at P2.
    Replicated,
    /// Two values in masked bits: nobody knows either.
    Bits,
}

/// The components of u's mask that are not zero, for a replicated value: the one that P0 and P1, who know u, hold.
const U_MASK: &[usize] = &[1];
/// The same of v's mask, which P2 knows. P0 and P1 know the product of both masks in parts.
const V_MASK: &[usize] = &[2, 0];

/// What stands below the first level of a tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Leaves {
    /// Positions of u and v: products of theirs are replicated.
    Summands,
    /// Digits, whose signals are opened as those of nodes are.
    Digits,
}

/// What is multiplied and opened, in order: the same at all parties.
pub(crate) struct Schedule {
    /// Pairs of masks other than u's and v's of one position.
    pairs: Vec<(Signal, Signal)>,
    /// Products of the masks of a leaf's propagate signal, and of u and v at a position.
    deep: Vec<(usize, usize)>,
    /// Signals of digits, which are opened first.
    digits: Vec<Signal>,
    /// For each level the signals that are opened, and those that are results.
    levels: Vec<(Vec<Signal>, Vec<Signal>)>,
}

impl Schedule {
    fn new(tree: &Tree, leaves: Leaves) -> Self {
        let read = tree.read();
        // The signals of a lone digit are the result.
        let digits = match leaves {
            Leaves::Digits if tree.bits > 1 => digit_signals(tree.bits),
            _ => vec![],
        };
        let mut schedule = Schedule { pairs: vec![], deep: vec![], digits, levels: vec![] };
        let mut seen = HashSet::new();
        let mut pair = |pairs: &mut Vec<_>, a: Signal, b: Signal| {
            if seen.insert((a, b)) {
                pairs.push((a, b));
            }
        };
        for level in &tree.levels {
            let (mut opened, mut results) = (vec![], vec![]);
            for node in level {
                let p = |i: usize| Signal::Propagate(node.parts[i]);
                if node.parts.len() > 2 {
                    pair(&mut schedule.pairs, p(0), p(1));
                }
                if let [_, _, third, fourth] = node.parts.as_slice() {
                    if fourth.is_leaf() && leaves == Leaves::Summands {
                        assert!(third.is_leaf(), "a leaf lies below a leaf, as every tree here has it");
                        pair(&mut schedule.pairs, p(2), Signal::U(fourth.low));
                        pair(&mut schedule.pairs, p(2), Signal::V(fourth.low));
                        if !schedule.deep.contains(&(third.low, fourth.low)) {
                            schedule.deep.push((third.low, fourth.low));
                        }
                    } else {
                        pair(&mut schedule.pairs, p(2), Signal::Generate(*fourth));
                    }
                    if node.propagates() {
                        pair(&mut schedule.pairs, p(2), p(3));
                    }
                }
                let list = if read.contains(&node.span) { &mut opened } else { &mut results };
                list.push(Signal::Generate(node.span));
                if node.propagates() {
                    list.push(Signal::Propagate(node.span));
                }
            }
            schedule.levels.push((opened, results));
        }
        schedule
    }

    /// All opened signals, in order.
    fn opened(&self) -> Vec<Signal> {
        self.digits.iter().chain(self.levels.iter().flat_map(|(opened, _)| opened)).copied().collect()
    }
}

/// The signals of digits, in the order of [`Digits::signal_shares`]: as if each were a position of a tree.
pub(crate) fn digit_signals(digits: usize) -> Vec<Signal> {
    let of = |digit: usize| {
        let span = Span::leaf(digit);
        [Some(Signal::Generate(span)), (digit > 0).then_some(Signal::Propagate(span))].into_iter().flatten()
    };
    (0..digits).flat_map(of).collect()
}

/// The cost of one sum, its inputs' sharing included.
pub(crate) fn cost(tree: &Tree, entry: Entry, n: usize) -> Cost {
    let schedule = Schedule::new(tree, Leaves::Summands);
    let width = tree.bits as u32 + 1;
    let mut cost = remade(Cost::LOCAL, 1, schedule.pairs.len(), n);
    cost = match entry {
        Entry::Replicated => cost.offline(0, 1, n, planes(tree.bits)).offline(1, 0, n, planes(tree.bits)),
        Entry::Bits => remade(cost, 1, tree.bits, n),
    };
    cost = remade(cost, 2, schedule.deep.len(), n);
    cost = match entry {
        Entry::Replicated => cost
            .online(1, 2, 0, n, Unit::Bits(width))
            .online(1, 2, 1, n, Unit::Bits(width))
            .online(1, 0, 2, n, Unit::Bits(width)),
        Entry::Bits => cost,
    };
    for (round, (opened, results)) in (2..).zip(&schedule.levels) {
        cost = opening(cost, round, opened.len(), n);
        if !results.is_empty() {
            cost = (0..3).fold(cost, |cost, i| cost.online(round, i, before(i), n, planes(results.len())));
        }
    }
    cost
}

fn planes(count: usize) -> Unit {
    Unit::Bits(count as u32)
}

/// `count` products of masks are made replicated.
fn remade(cost: Cost, round: u32, count: usize, n: usize) -> Cost {
    match count {
        0 => cost,
        _ => {
            (0..3).fold(cost, |cost, i| cost.in_round(Phase::Offline, round, i, before(i), n, planes(count)))
        }
    }
}

/// Opens `count` bits of every value to all: 6 bits each.
fn opening(cost: Cost, round: u32, count: usize, n: usize) -> Cost {
    match count {
        0 => cost,
        _ => (0..3).fold(cost, |cost, i| {
            cost.online(round, i, before(i), n, planes(count)).online(round, i, after(i), n, planes(count))
        }),
    }
}

/// Masks and their products, from the offline phase.
pub struct Material<D: Device> {
    /// Components of u's mask; zero ones are absent.
    u: Rss<Option<Bits<D>>>,
    /// Components of v's mask.
    v: Rss<Option<Bits<D>>>,
    /// Masks of the signals that are opened.
    opened: Rss<Bits<D>>,
    /// Products of u's and v's masks, position by position.
    leaves: Rss<Bits<D>>,
    /// Products of other pairs.
    pairs: Rss<Bits<D>>,
    /// Products of three masks.
    deep: Rss<Bits<D>>,
}

impl<D: Device> Store<D> for Material<D> {
    fn write(&self, device: &D, out: &mut Vec<u8>) -> Result<(), StoreError> {
        self.u.write(device, out)?;
        self.v.write(device, out)?;
        for part in [&self.opened, &self.leaves, &self.pairs, &self.deep] {
            part.write(device, out)?;
        }
        Ok(())
    }
    fn read(device: &D, input: &mut &[u8]) -> Result<Self, StoreError> {
        Ok(Material {
            u: Store::<D>::read(device, input)?,
            v: Store::<D>::read(device, input)?,
            opened: Store::<D>::read(device, input)?,
            leaves: Store::<D>::read(device, input)?,
            pairs: Store::<D>::read(device, input)?,
            deep: Store::<D>::read(device, input)?,
        })
    }
}

/// Planes as a tensor of bits, to be kept.
fn keep<D: Device>(planes: usize, words: usize, buffer: D::Buf<u64>) -> Bits<D> {
    Bits::new(Shape::from([planes * words * 64]), buffer)
}

/// The components of a mask that lies in `components`, drawn by their holders.
fn input_mask<D: Device>(
    party: &mut Party<D>,
    components: &[usize],
    label: &str,
    planes: usize,
    words: usize,
) -> Result<Rss<Option<Bits<D>>>, Error> {
    Rss::of(party.me(), |c| match components.contains(&c) {
        true => Ok(Some(keep(planes, words, draw(party, c, label, planes * words)?))),
        false => Ok(None),
    })
}

/// A mask that is there already.
fn given_mask<D: Device>(mask: &Rss<D::Buf<u64>>, planes: usize, words: usize) -> Rss<Option<Bits<D>>> {
    let kept = |buffer: &D::Buf<u64>| Some(keep(planes, words, buffer.clone()));
    Rss { own: kept(&mask.own), next: kept(&mask.next) }
}

/// The exclusive or of the components that are there.
fn total<D: Device>(
    party: &Party<D>,
    mask: &Rss<Option<Bits<D>>>,
    plain: &D::Buf<u64>,
    lanes: usize,
) -> Result<D::Buf<u64>, Error> {
    let parts: Vec<&D::Buf<u64>> =
        [&mask.own, &mask.next].into_iter().flatten().map(|b| &b.buf).chain([plain]).collect();
    Ok(party.device().xor(&parts, false, lanes)?)
}

/// A sheet with the input masks.
fn masks_sheet<D: Device>(
    me: usize,
    width: usize,
    u: &Rss<Option<Bits<D>>>,
    v: &Rss<Option<Bits<D>>>,
) -> Sheet<D> {
    let mut sheet = Sheet::new();
    for c in [me, after(me)] {
        if let Some(u) = u.component(me, c) {
            sheet.add(u.buf.clone(), (0..width).map(|i| Plane::Mask(Signal::U(i), c)));
        }
        if let Some(v) = v.component(me, c) {
            sheet.add(v.buf.clone(), (0..width).map(|i| Plane::Mask(Signal::V(i), c)));
        }
    }
    sheet
}

/// Both components of a signal's mask: leaves' propagate bits are sums of u's and v's, digits' have masks of their own.
fn mask<D: Device>(sheet: &Sheet<D>, circuit: &mut Circuit, me: usize, signal: Signal) -> Shared {
    Shared::of(me, |c| match signal {
        Signal::Propagate(span) if span.is_leaf() && !sheet.has(Plane::Mask(signal, c)) => {
            let u = sheet.wire(circuit, Plane::Mask(Signal::U(span.low), c));
            let v = sheet.wire(circuit, Plane::Mask(Signal::V(span.low), c));
            circuit.xor(u, v)
        }
        signal => sheet.wire(circuit, Plane::Mask(signal, c)),
    })
}

/// Draws masks and makes their products. For summands in masked bits, `given` are the planes of their masks.
pub(crate) fn offline<D: Device>(
    party: &mut Party<D>,
    tree: &Tree,
    n: usize,
    given: Option<[Rss<D::Buf<u64>>; 2]>,
) -> Result<Material<D>, Error> {
    let (me, words, width) = (party.me(), bits::words(n), tree.bits + 1);
    let schedule = Schedule::new(tree, Leaves::Summands);
    let (u_mask, v_mask) = match &given {
        Some([u, v]) => (given_mask(u, width, words), given_mask(v, width, words)),
        None => {
            (input_mask(party, U_MASK, "u", width, words)?, input_mask(party, V_MASK, "v", width, words)?)
        }
    };
    let opened = schedule.opened();
    let opened_masks = Rss::of(me, |c| draw::<u64, D>(party, c, "opened", opened.len() * words))?;
    let mut sheet = masks_sheet(me, width, &u_mask, &v_mask);
    sheet.add_rss(me, opened_masks.clone(), |c| opened.iter().map(|&s| Plane::Mask(s, c)).collect());
    add_zero(party, &mut sheet, "pairs", schedule.pairs.len(), n)?;
    let mut circuit = Circuit::default();
    let leaves = (0..tree.bits).map(|i| {
        let [u, v] = [Signal::U(i), Signal::V(i)].map(|s| mask(&sheet, &mut circuit, me, s));
        u.and(&mut circuit, v)
    });
    let leaves = leaves.collect();
    circuit.output(leaves);
    let pairs = schedule.pairs.iter().enumerate().map(|(k, &(a, b))| {
        let [a, b] = [a, b].map(|s| mask(&sheet, &mut circuit, me, s));
        let product = a.and(&mut circuit, b);
        masked(&sheet, &mut circuit, k, product)
    });
    let pairs = pairs.collect();
    circuit.output(pairs);
    let mut products = sheet.run(party.device(), &circuit, words)?;
    let pairs = products.pop().expect("two outputs");
    let leaves = products.pop().expect("two outputs");
    // Both are sent before anybody waits.
    let count = schedule.pairs.len();
    if count > 0 {
        send(party, before(me), "pairs", &pairs, count, n)?;
    }
    let leaves = match given {
        None => swap_leaves(party, leaves, tree.bits, n)?,
        Some(_) => {
            let [plus, minus] = crate::rss::zero::<u64, D>(party, "leaves", tree.bits * words)?;
            let share = party.device().xor(&[&leaves, &plus, &minus], false, tree.bits * words * 64)?;
            reshare(party, "leaves", share, tree.bits, n)?
        }
    };
    let next = if count > 0 { recv(party, after(me), "pairs", count, n)? } else { pairs.clone() };
    let pairs = Rss { own: pairs, next };

    sheet.add_rss(me, leaves.clone(), |c| leaf_names(tree, c));
    add_zero(party, &mut sheet, "deep", schedule.deep.len(), n)?;
    let mut circuit = Circuit::default();
    let deep = schedule.deep.iter().enumerate().map(|(k, &(p, at))| {
        let p = mask(&sheet, &mut circuit, me, Signal::Propagate(Span::leaf(p)));
        let uv = Shared::of(me, |c| sheet.wire(&mut circuit, Plane::Pair(Signal::U(at), Signal::V(at), c)));
        let product = p.and(&mut circuit, uv);
        masked(&sheet, &mut circuit, k, product)
    });
    let deep = deep.collect();
    circuit.output(deep);
    let deep = sheet.run(party.device(), &circuit, words)?.remove(0);
    let deep = match schedule.deep.len() {
        0 => Rss { own: deep.clone(), next: deep },
        count => reshare(party, "deep", deep, count, n)?,
    };
    let kept = |planes: Rss<D::Buf<u64>>, count| Rss {
        own: keep(count, words, planes.own),
        next: keep(count, words, planes.next),
    };
    Ok(Material {
        u: u_mask,
        v: v_mask,
        opened: kept(opened_masks, opened.len()),
        leaves: kept(leaves, tree.bits),
        pairs: kept(pairs, schedule.pairs.len()),
        deep: kept(deep, schedule.deep.len()),
    })
}

/// The names of a component of the products of u's and v's masks.
fn leaf_names(tree: &Tree, c: usize) -> Vec<Plane> {
    (0..tree.bits).map(|i| Plane::Pair(Signal::U(i), Signal::V(i), c)).collect()
}

/// Products of u's and v's masks for a replicated value: P0 and P1 know a summand each. They draw the components that they hold
/// with P2, and send each other what is left: component 1.
fn swap_leaves<D: Device>(
    party: &mut Party<D>,
    share: D::Buf<u64>,
    planes: usize,
    n: usize,
) -> Result<Rss<D::Buf<u64>>, Error> {
    let (me, words) = (party.me(), bits::words(n));
    if me == 2 {
        return Rss::of(me, |c| draw(party, c, "leaves", planes * words));
    }
    // P0 holds component 0 with P2, P1 component 2.
    let (private, peer) = (2 * me, 1 - me);
    let drawn = draw::<u64, D>(party, private, "leaves", planes * words)?;
    let mine = party.device().xor(&[&share, &drawn], false, planes * words * 64)?;
    send(party, peer, "leaves", &mine, planes, n)?;
    let other = recv(party, peer, "leaves", planes, n)?;
    let opened = party.device().xor(&[&mine, &other], false, planes * words * 64)?;
    Ok(match me {
        0 => Rss { own: drawn, next: opened },
        _ => Rss { own: opened, next: drawn },
    })
}

/// m of a signal: leaves' propagate bits are sums of u's and v's, digits' are opened.
fn opened<D: Device>(sheet: &Sheet<D>, circuit: &mut Circuit, signal: Signal) -> Wire {
    match signal {
        Signal::Propagate(span) if span.is_leaf() && !sheet.has(Plane::Masked(signal)) => {
            let u = sheet.wire(circuit, Plane::Masked(Signal::U(span.low)));
            let v = sheet.wire(circuit, Plane::Masked(Signal::V(span.low)));
            circuit.xor(u, v)
        }
        signal => sheet.wire(circuit, Plane::Masked(signal)),
    }
}

/// The products of a plan's masked bits as replicated ones; no messages.
struct Local<'a, D: Device> {
    sheet: &'a Sheet<D>,
    me: usize,
}

impl<D: Device> Local<'_, D> {
    /// Whether the generate bit of a span is a product of u's bit and v's: that of a leaf which is no digit.
    fn is_product(&self, span: Span) -> bool {
        span.is_leaf() && !self.sheet.has(Plane::Masked(Signal::Generate(span)))
    }

    /// A masked bit; a leaf's generate bit is a product.
    fn bit(&self, circuit: &mut Circuit, signal: Signal) -> Shared {
        if let Signal::Generate(span) = signal
            && self.is_product(span)
        {
            return self.pair(circuit, Signal::U(span.low), Signal::V(span.low));
        }
        let m = opened(self.sheet, circuit, signal);
        let r = mask(self.sheet, circuit, self.me, signal);
        self.with_public(circuit, r, m)
    }

    /// Adds a public bit: it enters component 0.
    fn with_public(&self, circuit: &mut Circuit, r: Shared, m: Wire) -> Shared {
        match self.me {
            0 => Shared { own: circuit.xor(r.own, m), ..r },
            2 => Shared { next: circuit.xor(r.next, m), ..r },
            _ => r,
        }
    }

    /// a·b = m_a·m_b ⊕ m_a·r_b ⊕ m_b·r_a ⊕ r_a·r_b.
    fn pair(&self, circuit: &mut Circuit, a: Signal, b: Signal) -> Shared {
        let (m_a, m_b) = (opened(self.sheet, circuit, a), opened(self.sheet, circuit, b));
        let (r_a, r_b) = (mask(self.sheet, circuit, self.me, a), mask(self.sheet, circuit, self.me, b));
        let both = Shared::of(self.me, |c| self.sheet.wire(circuit, Plane::Pair(a, b, c)));
        let component = |circuit: &mut Circuit, r_a, r_b, both| {
            let products = [circuit.and(m_a, r_b), circuit.and(m_b, r_a)];
            circuit.sum(&[products[0], products[1], both])
        };
        let r = Shared {
            own: component(circuit, r_a.own, r_b.own, both.own),
            next: component(circuit, r_a.next, r_b.next, both.next),
        };
        let m = circuit.and(m_a, m_b);
        self.with_public(circuit, r, m)
    }

    /// p·u·v for the propagate bit of one leaf and the inputs of another.
    fn deep(&self, circuit: &mut Circuit, p_at: usize, at: usize) -> Shared {
        let (p, u, v) = (Signal::Propagate(Span::leaf(p_at)), Signal::U(at), Signal::V(at));
        let [m_p, m_u, m_v] = [p, u, v].map(|s| opened(self.sheet, circuit, s));
        let [m_pu, m_pv, m_uv] = [circuit.and(m_p, m_u), circuit.and(m_p, m_v), circuit.and(m_u, m_v)];
        let r = Shared::of(self.me, |c| {
            let r_p = {
                let u = self.sheet.wire(circuit, Plane::Mask(Signal::U(p_at), c));
                let v = self.sheet.wire(circuit, Plane::Mask(Signal::V(p_at), c));
                circuit.xor(u, v)
            };
            let names = [
                (m_pu, Plane::Mask(v, c)),
                (m_pv, Plane::Mask(u, c)),
                (m_p, Plane::Pair(u, v, c)),
                (m_u, Plane::Pair(p, v, c)),
                (m_v, Plane::Pair(p, u, c)),
            ];
            let mut sum = circuit.and(m_uv, r_p);
            for (m, name) in names {
                let wire = self.sheet.wire(circuit, name);
                let product = circuit.and(m, wire);
                sum = circuit.xor(sum, product);
            }
            let all = self.sheet.wire(circuit, Plane::Deep(p_at, at, c));
            circuit.xor(sum, all)
        });
        let m = circuit.and(m_pu, m_v);
        self.with_public(circuit, r, m)
    }

    /// This party's additive share of a node's signal.
    fn additive(&self, circuit: &mut Circuit, node: &Node, signal: Signal) -> Wire {
        let parts = &node.parts;
        let p = |i: usize| Signal::Propagate(parts[i]);
        let g = |i: usize| Signal::Generate(parts[i]);
        let upper = match parts.len() {
            2 => self.bit(circuit, p(0)),
            _ => self.pair(circuit, p(0), p(1)),
        };
        if signal == Signal::Propagate(node.span) {
            let lower = match parts.len() {
                4 => self.pair(circuit, p(2), p(3)),
                k => self.bit(circuit, p(k - 1)),
            };
            return upper.and(circuit, lower);
        }
        let g1 = self.bit(circuit, g(0));
        let g2 = self.bit(circuit, g(1));
        if parts.len() == 2 {
            let product = upper.and(circuit, g2);
            return circuit.xor(g1.own, product);
        }
        let p1 = self.bit(circuit, p(0));
        let mut lower = self.bit(circuit, g(2));
        if parts.len() == 4 {
            let product = match self.is_product(parts[3]) {
                true => self.deep(circuit, parts[2].low, parts[3].low),
                false => self.pair(circuit, p(2), g(3)),
            };
            lower = lower.xor(circuit, product);
        }
        let products = [p1.and(circuit, g2), upper.and(circuit, lower)];
        circuit.sum(&[g1.own, products[0], products[1]])
    }
}

/// All planes of u + v as replicated bits.
pub(crate) fn online<D: Device>(
    party: &mut Party<D>,
    tree: &Tree,
    n: usize,
    known: Known<D>,
    material: Material<D>,
) -> Result<Rss<D::Buf<u64>>, Error> {
    let (me, words) = (party.me(), bits::words(n));
    let schedule = Schedule::new(tree, Leaves::Summands);
    let mut sheet = enter(party, tree, &schedule, n, known, material)?;
    for depth in 0..tree.levels.len() {
        level(party, tree, &schedule, depth, n.into(), &mut sheet, true)?;
    }
    let results: HashSet<Signal> =
        schedule.levels.iter().flat_map(|(_, results)| results.iter().copied()).collect();
    let local = Local { sheet: &sheet, me };
    output_planes(party, tree, words, &sheet, |circuit, signal| match results.contains(&signal) {
        true => Shared::of(me, |c| sheet.wire(circuit, Plane::Share(signal, c))),
        false => local.bit(circuit, signal),
    })
}

/// Sends additive shares of planes to both others.
fn send_opening<D: Device>(
    party: &mut Party<D>,
    label: &str,
    share: &D::Buf<u64>,
    planes: usize,
    lanes: Lanes,
) -> Result<(), Error> {
    [before(party.me()), after(party.me())]
        .into_iter()
        .try_for_each(|peer| send(party, peer, label, share, planes, lanes))
}

/// What the planes are, with the shares of both others.
fn receive_opening<D: Device>(
    party: &mut Party<D>,
    label: &str,
    share: &D::Buf<u64>,
    planes: usize,
    lanes: Lanes,
) -> Result<D::Buf<u64>, Error> {
    let [a, b] = [before(party.me()), after(party.me())].map(|peer| recv(party, peer, label, planes, lanes));
    Ok(party.device().xor(&[share, &a?, &b?], false, planes * lanes.words() * 64)?)
}

/// Shares the inputs: a sheet with m of u and v and with everything from the offline phase.
fn enter<D: Device>(
    party: &mut Party<D>,
    tree: &Tree,
    schedule: &Schedule,
    n: usize,
    known: Known<D>,
    material: Material<D>,
) -> Result<Sheet<D>, Error> {
    let (me, width) = (party.me(), tree.bits + 1);
    let [masked_u, masked_v] = match known {
        // Masked bits: m is known to all.
        Known { u: Some(u), v: Some(v) } => [u, v],
        known => share_summands(party, (width, n), known, &material)?,
    };

    let mut sheet = masks_sheet(me, width, &material.u, &material.v);
    sheet.add(masked_u, (0..width).map(|i| Plane::Masked(Signal::U(i))));
    sheet.add(masked_v, (0..width).map(|i| Plane::Masked(Signal::V(i))));
    let planes = |kept: Rss<Bits<D>>| Rss { own: kept.own.buf, next: kept.next.buf };
    let opened = schedule.opened();
    sheet.add_rss(me, planes(material.opened), |c| opened.iter().map(|&s| Plane::Mask(s, c)).collect());
    sheet.add_rss(me, planes(material.leaves), |c| leaf_names(tree, c));
    sheet.add_rss(me, planes(material.pairs), |c| {
        schedule.pairs.iter().map(|&(a, b)| Plane::Pair(a, b, c)).collect()
    });
    sheet.add_rss(me, planes(material.deep), |c| {
        schedule.deep.iter().map(|&(p, at)| Plane::Deep(p, at, c)).collect()
    });
    Ok(sheet)
}

/// m of both summands of a replicated value, from those who know them to the others; all is sent before anybody waits.
fn share_summands<D: Device>(
    party: &mut Party<D>,
    (width, n): (usize, usize),
    known: Known<D>,
    material: &Material<D>,
) -> Result<[D::Buf<u64>; 2], Error> {
    let lanes = width * bits::words(n) * 64;
    let masked = |party: &Party<D>, plain: Option<D::Buf<u64>>, mask| -> Result<_, Error> {
        plain.map(|plain| total(party, mask, &plain, lanes)).transpose()
    };
    let (u, v) = (masked(party, known.u, &material.u)?, masked(party, known.v, &material.v)?);
    match (party.me(), &u, &v) {
        (2, _, Some(v)) => {
            send(party, 0, "v", v, width, n)?;
            send(party, 1, "v", v, width, n)?;
        }
        (0, Some(u), _) => send(party, 2, "u", u, width, n)?,
        _ => {}
    }
    let u = u.map_or_else(|| recv(party, 0, "u", width, n), Ok)?;
    let v = v.map_or_else(|| recv(party, 2, "v", width, n), Ok)?;
    Ok([u, v])
}

/// Computes a level: opens what other nodes read, and reshares the results if they are wanted.
fn level<D: Device>(
    party: &mut Party<D>,
    tree: &Tree,
    schedule: &Schedule,
    depth: usize,
    lanes: Lanes,
    sheet: &mut Sheet<D>,
    with_results: bool,
) -> Result<(), Error> {
    let me = party.me();
    let nodes = &tree.levels[depth];
    let (opened, results) = &schedule.levels[depth];
    let results = if with_results { results.as_slice() } else { &[] };
    if opened.is_empty() && results.is_empty() {
        return Ok(());
    }
    let label = format!("level{depth}");
    let node = |signal: Signal| {
        let (Signal::Generate(span) | Signal::Propagate(span)) = signal else {
            unreachable!("a level makes no inputs")
        };
        nodes.iter().find(|node| node.span == span).expect("a node of the level")
    };
    add_zero(party, sheet, &label, opened.len() + results.len(), lanes)?;
    let mut circuit = Circuit::default();
    let local = Local { sheet, me };
    let mut share = |k: usize, signal: Signal| {
        let share = local.additive(&mut circuit, node(signal), signal);
        let share = masked(sheet, &mut circuit, k, share);
        match k < opened.len() {
            true => {
                let r = mask(sheet, &mut circuit, me, signal);
                circuit.xor(share, r.own)
            }
            false => share,
        }
    };
    let shares: Vec<Wire> =
        opened.iter().chain(results).enumerate().map(|(k, &signal)| share(k, signal)).collect();
    let results_shares = shares[opened.len()..].to_vec();
    circuit.output(shares[..opened.len()].to_vec());
    circuit.output(results_shares);
    let mut made = sheet.run(party.device(), &circuit, lanes.words())?;
    let (result, share) = (made.pop().expect("two outputs"), made.pop().expect("two outputs"));
    // Everything is sent before anybody waits.
    let open_label = format!("{label}/open");
    if !opened.is_empty() {
        send_opening(party, &open_label, &share, opened.len(), lanes)?;
    }
    if !results.is_empty() {
        send(party, before(me), &label, &result, results.len(), lanes)?;
    }
    if !opened.is_empty() {
        let m = receive_opening(party, &open_label, &share, opened.len(), lanes)?;
        sheet.add(m, opened.iter().map(|&s| Plane::Masked(s)));
    }
    if !results.is_empty() {
        let next = recv(party, after(me), &label, results.len(), lanes)?;
        sheet.add_rss(me, Rss { own: result, next }, |c| {
            results.iter().map(|&s| Plane::Share(s, c)).collect()
        });
    }
    Ok(())
}

/// `alkaid`'s digits below the top bit of `width`.
pub(crate) fn digits(width: usize) -> Digits {
    // Two signals of a digit; three digits more are a node more, with two signals and three pairs.
    Digits::new(width, 4, |count| 8.0 * count as f64 + 21.0 * count as f64 / 3.0)
}

/// The tree over digits, and what is multiplied and opened.
fn over(digits: &Digits) -> (Tree, Schedule) {
    let tree = Tree::carry(digits.count(), 4);
    let schedule = Schedule::new(&tree, Leaves::Digits);
    (tree, schedule)
}

/// The cost of [`top`] from the digits' signals on, of `n` values.
pub(crate) fn top_cost(digits: &Digits, n: usize) -> Cost {
    let (_, schedule) = over(digits);
    let cost = remade(Cost::LOCAL, 1, schedule.pairs.len(), n);
    let two = |cost: Cost, count| {
        [(0, 1), (0, 2), (1, 0), (1, 2)]
            .into_iter()
            .fold(cost, |cost: Cost, (from, to)| cost.online(1, from, to, n, planes(count)))
    };
    if digits.count() == 1 {
        return two(cost, 1);
    }
    let cost = two(cost, digits.signals());
    (2..)
        .zip(&schedule.levels)
        .fold(cost, |cost, (round, (opened, results))| opening(cost, round, opened.len() + results.len(), n))
}

/// What [`top`] takes from the offline phase: the masks of what is opened, and products of masks.
pub struct TopMaterial<D: Device> {
    opened: Rss<Bits<D>>,
    pairs: Rss<Bits<D>>,
}

impl<D: Device> Store<D> for TopMaterial<D> {
    fn write(&self, device: &D, out: &mut Vec<u8>) -> Result<(), StoreError> {
        self.opened.write(device, out)?;
        self.pairs.write(device, out)
    }
    fn read(device: &D, input: &mut &[u8]) -> Result<Self, StoreError> {
        Ok(TopMaterial { opened: Store::<D>::read(device, input)?, pairs: Store::<D>::read(device, input)? })
    }
}

/// Draws the masks of what [`top`] opens and makes their products.
pub(crate) fn top_offline<D: Device>(
    party: &mut Party<D>,
    digits: &Digits,
    lanes: Lanes,
) -> Result<TopMaterial<D>, Error> {
    let (me, words) = (party.me(), lanes.words());
    let schedule = over(digits).1;
    let (opened, count) = (schedule.opened(), schedule.pairs.len());
    let masks = Rss::of(me, |c| draw::<u64, D>(party, c, "opened", opened.len() * words))?;
    let mut sheet = Sheet::new();
    sheet.add_rss(me, masks.clone(), |c| opened.iter().map(|&s| Plane::Mask(s, c)).collect());
    let mut pairs = Rss::of(me, |_| party.device().upload(vec![]))?;
    if count > 0 {
        add_zero(party, &mut sheet, "pairs", count, lanes)?;
        let mut circuit = Circuit::default();
        let products = schedule.pairs.iter().enumerate().map(|(k, &(a, b))| {
            let [a, b] = [a, b].map(|s| mask(&sheet, &mut circuit, me, s));
            let product = a.and(&mut circuit, b);
            masked(&sheet, &mut circuit, k, product)
        });
        let products = products.collect();
        circuit.output(products);
        let share = sheet.run(party.device(), &circuit, words)?.remove(0);
        pairs = reshare(party, "pairs", share, count, lanes)?;
    }
    let kept = |planes: Rss<D::Buf<u64>>, count| Rss {
        own: keep(count, words, planes.own),
        next: keep(count, words, planes.next),
    };
    Ok(TopMaterial { opened: kept(masks, opened.len()), pairs: kept(pairs, count) })
}

/// The first round of [`top`]: P0 and P1 send their shares of the digits' signals, masked; every party gives what it adds to those that
/// it receives. `share` is there at P0 and P1, and `r` is the mask of the result.
pub(crate) fn top_send<D: Device>(
    party: &mut Party<D>,
    digits: &Digits,
    lanes: Lanes,
    share: Option<D::Buf<u64>>,
    material: &TopMaterial<D>,
    r: &Rss<D::Buf<u64>>,
) -> Result<Option<D::Buf<u64>>, Error> {
    let Some(share) = share else { return Ok(None) };
    let (me, planes) = (party.me(), digits.signals());
    // Of the masks of all that is opened, those of the digits come first; a lone digit's signal is the result.
    let masks = match digits.count() {
        1 => r.clone(),
        _ => Rss { own: material.opened.own.buf.clone(), next: material.opened.next.buf.clone() },
    };
    let hidden = draw::<u64, D>(party, 1, "digits", planes * lanes.words())?;
    let count = planes * lanes.words() * 64;
    // P0 adds components 0 and 1, P1 component 2.
    let masked = match me {
        0 => party.device().xor(&[&share, &hidden, &masks.own, &masks.next], false, count)?,
        _ => party.device().xor(&[&share, &hidden, &masks.next], false, count)?,
    };
    send_opening(party, "digits", &masked, planes, lanes)?;
    Ok(Some(masked))
}

/// m of the top bit of u + v under the mask `r`, once the digits' signals are on their way.
pub(crate) fn top<D: Device>(
    party: &mut Party<D>,
    digits: &Digits,
    lanes: Lanes,
    sent: Option<D::Buf<u64>>,
    material: TopMaterial<D>,
    r: &Rss<D::Buf<u64>>,
) -> Result<D::Buf<u64>, Error> {
    let (me, planes) = (party.me(), digits.signals());
    let mut receive = |from: usize| recv(party, from, "digits", planes, lanes);
    let shares = match sent {
        Some(mine) => [mine, receive(1 - me)?],
        None => [receive(0)?, receive(1)?],
    };
    let m = party.device().xor(&[&shares[0], &shares[1]], false, planes * lanes.words() * 64)?;
    if digits.count() == 1 {
        return Ok(m);
    }
    let (tree, schedule) = over(digits);
    let opened = schedule.opened();
    let mut sheet = Sheet::new();
    sheet.add(m, schedule.digits.iter().map(|&s| Plane::Masked(s)));
    let planes = |kept: Rss<Bits<D>>| Rss { own: kept.own.buf, next: kept.next.buf };
    sheet.add_rss(me, planes(material.opened), |c| opened.iter().map(|&s| Plane::Mask(s, c)).collect());
    sheet.add_rss(me, planes(material.pairs), |c| {
        schedule.pairs.iter().map(|&(a, b)| Plane::Pair(a, b, c)).collect()
    });
    for depth in 0..tree.levels.len() {
        level(party, &tree, &schedule, depth, lanes, &mut sheet, false)?;
    }
    add_zero(party, &mut sheet, "top", 1, lanes)?;
    let mut circuit = Circuit::default();
    let root = &tree.levels.last().expect("nodes above more than one digit")[0];
    let carry = Local { sheet: &sheet, me }.additive(&mut circuit, root, Signal::Generate(root.span));
    let share = masked(&sheet, &mut circuit, 0, carry);
    circuit.output(vec![share]);
    let share = sheet.run(party.device(), &circuit, lanes.words())?.remove(0);
    let share = party.device().xor(&[&share, &r.own], false, lanes.words() * 64)?;
    send_opening(party, "top", &share, 1, lanes)?;
    receive_opening(party, "top", &share, 1, lanes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use megrez_session::Phase::{Offline, Online};

    #[test]
    fn the_cost_of_the_top_bit_is_that_of_the_head() {
        let cost = top_cost(&digits(64), 1);
        assert_eq!((cost.bits(Offline), cost.bits(Online), cost.rounds(Online)), (39.0, 172.0, 3));
        assert_eq!(digits(64).cost(Online, 1).bits(Online), 233.0);
    }
}
