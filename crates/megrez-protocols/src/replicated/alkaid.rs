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
//! The inputs come from a replicated x (u = x_0 + x_1 at P0, v = x_2 at P1 and P2), or they are two values in masked bits.
//!
//! phase     rounds          bits per value, width λ                 from → to
//! offline   1               2·(λ−1) (masked bits: 3·(λ−1))          P1 ↔ P2, who know a part of u's and v's masks each
//!           1               3 for every other pair                  P_i → P_{i−1}, each i
//!           1               3 for every product of three masks      P_i → P_{i−1}, each i
//! online    1               2·λ + λ (masked bits: 0)                P0 → P1, P2 and P1 → P0
//!           depth of tree   6 for an opened signal, 3 for a result  each to both others; P_i → P_{i−1}
//!
//! For the most significant bit of 64 that is 390 + 426 bits, masked. Everybody sees uniform bits.

use crate::replicated::planes::{Plane, Shared, Sheet, Signal, add_zero, masked, recv, reshare, send};
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
    /// A replicated value: u at P0, v at P1 and P2.
    Replicated,
    /// Two values in masked bits: nobody knows either.
    Bits,
}

/// The components of u's mask that are not zero, for a replicated value: those that P0, who knows u, holds.
const U_MASK: &[usize] = &[0, 1];
/// The same of v's mask, which P1 and P2 know. They know the product of both masks in parts.
const V_MASK: &[usize] = &[2];

/// What is multiplied and opened, in order: the same at all parties.
pub(crate) struct Schedule {
    /// Pairs of masks other than u's and v's of one position.
    pairs: Vec<(Signal, Signal)>,
    /// Products of the masks of a leaf's propagate signal, and of u and v at a position.
    deep: Vec<(usize, usize)>,
    /// For each level the signals that are opened, and those that are results.
    levels: Vec<(Vec<Signal>, Vec<Signal>)>,
}

impl Schedule {
    pub(crate) fn new(tree: &Tree) -> Self {
        let read = tree.read();
        let mut schedule = Schedule { pairs: vec![], deep: vec![], levels: vec![] };
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
                    if fourth.is_leaf() {
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
        self.levels.iter().flat_map(|(opened, _)| opened.iter().copied()).collect()
    }
}

/// How the wanted bits leave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Exit {
    /// Replicated: the last products are reshared.
    Replicated,
    /// The top bit alone, masked: it is opened under a mask that the caller knows before.
    Masked,
}

/// The cost of one sum, its inputs' sharing included.
pub(crate) fn cost(tree: &Tree, entry: Entry, exit: Exit, n: usize) -> Cost {
    let schedule = Schedule::new(tree);
    let width = tree.bits as u32 + 1;
    let planes = |k: usize| Unit::Bits(k as u32);
    let mut cost = Cost::LOCAL;
    let reshared = |cost: Cost, round, count: usize| match count {
        0 => cost,
        _ => {
            (0..3).fold(cost, |cost, i| cost.in_round(Phase::Offline, round, i, before(i), n, planes(count)))
        }
    };
    cost = reshared(cost, 1, schedule.pairs.len());
    cost = match entry {
        Entry::Replicated => cost.offline(1, 2, n, planes(tree.bits)).offline(2, 1, n, planes(tree.bits)),
        Entry::Bits => reshared(cost, 1, tree.bits),
    };
    cost = reshared(cost, 2, schedule.deep.len());
    cost = match entry {
        Entry::Replicated => cost
            .online(1, 0, 1, n, Unit::Bits(width))
            .online(1, 0, 2, n, Unit::Bits(width))
            .online(1, 1, 0, n, Unit::Bits(width)),
        Entry::Bits => cost,
    };
    for (round, (opened, results)) in (2..).zip(&schedule.levels) {
        for i in 0..3 {
            if !opened.is_empty() {
                cost = cost.online(round, i, before(i), n, planes(opened.len())).online(
                    round,
                    i,
                    after(i),
                    n,
                    planes(opened.len()),
                );
            }
            if !results.is_empty() && exit == Exit::Replicated {
                cost = cost.online(round, i, before(i), n, planes(results.len()));
            }
        }
    }
    match exit {
        Exit::Replicated => cost,
        // The carry into the top bit is the one result of the last level, if there are levels.
        Exit::Masked => opening(cost, 1 + schedule.levels.len().max(1) as u32, n),
    }
}

/// Opens one bit of every value to all: 6 bits.
fn opening(cost: Cost, round: u32, n: usize) -> Cost {
    (0..3).fold(cost, |cost, i| {
        cost.online(round, i, before(i), n, Unit::Bits(1)).online(round, i, after(i), n, Unit::Bits(1))
    })
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

/// Both components of a signal's mask: leaves' propagate bits are sums of u's and v's.
fn mask<D: Device>(sheet: &Sheet<D>, circuit: &mut Circuit, me: usize, signal: Signal) -> Shared {
    Shared::of(me, |c| match signal {
        Signal::Propagate(span) if span.is_leaf() => {
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
    let schedule = Schedule::new(tree);
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

/// Products of u's and v's masks for a replicated value: P1 and P2 know a summand each. They draw the components that they hold
/// with P0, and send each other what is left: component 2.
fn swap_leaves<D: Device>(
    party: &mut Party<D>,
    share: D::Buf<u64>,
    planes: usize,
    n: usize,
) -> Result<Rss<D::Buf<u64>>, Error> {
    let (me, words) = (party.me(), bits::words(n));
    if me == 0 {
        return Rss::of(me, |c| draw(party, c, "leaves", planes * words));
    }
    // P1 holds component 1 with P0, P2 component 0.
    let (private, peer) = (2 - me, 3 - me);
    let drawn = draw::<u64, D>(party, private, "leaves", planes * words)?;
    let mine = party.device().xor(&[&share, &drawn], false, planes * words * 64)?;
    send(party, peer, "leaves", &mine, planes, n)?;
    let other = recv(party, peer, "leaves", planes, n)?;
    let opened = party.device().xor(&[&mine, &other], false, planes * words * 64)?;
    Ok(match me {
        1 => Rss { own: drawn, next: opened },
        _ => Rss { own: opened, next: drawn },
    })
}

/// m of a signal: leaves' propagate bits are sums of u's and v's.
fn opened<D: Device>(sheet: &Sheet<D>, circuit: &mut Circuit, signal: Signal) -> Wire {
    match signal {
        Signal::Propagate(span) if span.is_leaf() => {
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
    /// A masked bit; a leaf's generate bit is a product.
    fn bit(&self, circuit: &mut Circuit, signal: Signal) -> Shared {
        if let Signal::Generate(span) = signal
            && span.is_leaf()
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
            let product = match parts[3].is_leaf() {
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
    let schedule = Schedule::new(tree);
    let mut sheet = enter(party, tree, &schedule, n, known, material)?;
    for depth in 0..tree.levels.len() {
        level(party, tree, &schedule, depth, n, &mut sheet, true)?;
    }
    let results: HashSet<Signal> =
        schedule.levels.iter().flat_map(|(_, results)| results.iter().copied()).collect();
    let local = Local { sheet: &sheet, me };
    output_planes(party, tree, words, &sheet, |circuit, signal| match results.contains(&signal) {
        true => Shared::of(me, |c| sheet.wire(circuit, Plane::Share(signal, c))),
        false => local.bit(circuit, signal),
    })
}

/// m of the top bit of u + v under the mask `r`: the carry into it is added to u's and v's top bits before they are opened.
pub(crate) fn top<D: Device>(
    party: &mut Party<D>,
    tree: &Tree,
    n: usize,
    known: Known<D>,
    material: Material<D>,
    r: &Rss<Bits<D>>,
) -> Result<D::Buf<u64>, Error> {
    let (me, words) = (party.me(), bits::words(n));
    let schedule = Schedule::new(tree);
    let mut sheet = enter(party, tree, &schedule, n, known, material)?;
    for depth in 0..tree.levels.len() {
        level(party, tree, &schedule, depth, n, &mut sheet, false)?;
    }
    add_zero(party, &mut sheet, "top", 1, n)?;
    let mut circuit = Circuit::default();
    let local = Local { sheet: &sheet, me };
    let carry = match tree.levels.last() {
        Some(level) => local.additive(&mut circuit, &level[0], Signal::Generate(level[0].span)),
        None => local.bit(&mut circuit, Signal::Generate(Span::leaf(0))).own,
    };
    let bit = local.bit(&mut circuit, Signal::Propagate(Span::leaf(tree.bits)));
    let sum = circuit.xor(carry, bit.own);
    let share = masked(&sheet, &mut circuit, 0, sum);
    circuit.output(vec![share]);
    let share = sheet.run(party.device(), &circuit, words)?.remove(0);
    let share = party.device().xor(&[&share, &r.own.buf], false, n)?;
    send_opening(party, "top", &share, 1, n)?;
    receive_opening(party, "top", &share, 1, n)
}

/// Sends additive shares of planes to both others.
fn send_opening<D: Device>(
    party: &mut Party<D>,
    label: &str,
    share: &D::Buf<u64>,
    planes: usize,
    n: usize,
) -> Result<(), Error> {
    [before(party.me()), after(party.me())]
        .into_iter()
        .try_for_each(|peer| send(party, peer, label, share, planes, n))
}

/// What the planes are, with the shares of both others.
fn receive_opening<D: Device>(
    party: &mut Party<D>,
    label: &str,
    share: &D::Buf<u64>,
    planes: usize,
    n: usize,
) -> Result<D::Buf<u64>, Error> {
    let [a, b] = [before(party.me()), after(party.me())].map(|peer| recv(party, peer, label, planes, n));
    Ok(party.device().xor(&[share, &a?, &b?], false, planes * bits::words(n) * 64)?)
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
        (0, Some(u), _) => {
            send(party, 1, "u", u, width, n)?;
            send(party, 2, "u", u, width, n)?;
        }
        (1, _, Some(v)) => send(party, 0, "v", v, width, n)?,
        _ => {}
    }
    let u = u.map_or_else(|| recv(party, 0, "u", width, n), Ok)?;
    let v = v.map_or_else(|| recv(party, 1, "v", width, n), Ok)?;
    Ok([u, v])
}

/// Computes a level: opens what other nodes read, and reshares the results if they are wanted.
fn level<D: Device>(
    party: &mut Party<D>,
    tree: &Tree,
    schedule: &Schedule,
    depth: usize,
    n: usize,
    sheet: &mut Sheet<D>,
    with_results: bool,
) -> Result<(), Error> {
    let (me, words) = (party.me(), bits::words(n));
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
    add_zero(party, sheet, &label, opened.len() + results.len(), n)?;
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
    let mut made = sheet.run(party.device(), &circuit, words)?;
    let (result, share) = (made.pop().expect("two outputs"), made.pop().expect("two outputs"));
    // Everything is sent before anybody waits.
    let open_label = format!("{label}/open");
    if !opened.is_empty() {
        send_opening(party, &open_label, &share, opened.len(), n)?;
    }
    if !results.is_empty() {
        send(party, before(me), &label, &result, results.len(), n)?;
    }
    if !opened.is_empty() {
        let m = receive_opening(party, &open_label, &share, opened.len(), n)?;
        sheet.add(m, opened.iter().map(|&s| Plane::Masked(s)));
    }
    if !results.is_empty() {
        let next = recv(party, after(me), &label, results.len(), n)?;
        sheet.add_rss(me, Rss { own: result, next }, |c| {
            results.iter().map(|&s| Plane::Share(s, c)).collect()
        });
    }
    Ok(())
}
