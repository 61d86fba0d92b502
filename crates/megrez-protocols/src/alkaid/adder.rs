//! Addition of two values that are known to some parties, on masked replicated bits: ALKAID, Fig.
//! 2-9 (AND2 to AND4, the adder with nodes of up to four parts, XOR-then-resharing, AND-reuse),
//! with the round of generate bits merged into the first level.
//!
//! A masked bit x = m ⊕ r has m known to all and r replicated. A node with parts 1 (most
//! significant) to 4 makes
//!   G = g_1 ⊕ p_1·g_2 ⊕ (p_1·p_2)·(g_3 ⊕ p_3·g_4)   and   P = (p_1·p_2)·(p_3·p_4),
//! where a product of two masked bits is replicated without a message, m_x·m_y ⊕ m_x·r_y ⊕
//! m_y·r_x ⊕ r_x·r_y, once the parties hold r_x·r_y; a product of two replicated bits gives
//! additive shares; their sum is opened under a fresh mask, or reshared where no other node reads
//! it.
//!
//! Deviates from the figures: Fig. 5 prints m_u·r_u for m_u ⊕ r_u. One pair of masks serves ∇3 and
//! ▼3 (Lemma 2 counts two). Generate bits of leaves, u·v, are replicated products and never opened;
//! where one is the lowest of four parts, p_3·u·v takes three pairs and a product of three masks,
//! made in a second offline round. An input's mask lies in those components that who knows the
//! input holds, so one or two messages share it instead of four. u's and v's masks being such,
//! their products are known to two parties in parts, who make them replicated by 2 bits instead of
//! 3.
//!
//! The inputs come from a replicated x (u = x_1 at P0 and P1, v = x_2 + x_0 at P2), or they are two
//! values in masked bits.
//!
//! phase     rounds          bits per value, width λ                 from → to
//! offline   1               2·(λ−1) (masked bits: 3·(λ−1))          P0 ↔ P1, who know a part of u's and v's masks each
//!           1               3 for every other pair                  P_i → P_{i−1}, each i
//!           1               3 for every product of three masks      P_i → P_{i−1}, each i
//! online    1               2·λ + λ (masked bits: 0)                P2 → P0, P1 and P0 → P2
//!           depth of tree   6 for an opened signal, 3 for a result  each to both others; P_i → P_{i−1}
//!
//! Everybody sees uniform bits: what a party sends holds a component of a mask that the receiver
//! lacks. The top bit alone is found by [`super::top`].

use super::nodes::{Local, level, mask};
use super::schedule::{Leaves, Schedule, opening, planes, remade};
use crate::rss::{Rss, after, before, draw};
use crate::steps::planes::{Plane, ReplicatedBit, Sheet, Signal, add_zero, masked, recv, reshare, send};
use crate::steps::sum::{Known, output_planes};
use crate::steps::tree::{Span, Tree};
use crate::{Cost, Encode, EncodeError, Unit};
use megrez_kernels::{Bits, Circuit, Device};
use megrez_ring::{Shape, bits};
use megrez_session::{Error, Party};
use std::collections::HashSet;

/// Where the summands come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Entry {
    /// A replicated value: u at P0 and P1, v at P2.
    Replicated,
    /// Two values in masked bits: nobody knows either.
    Bits,
}

/// The components of u's mask that are not zero, for a replicated value: the one that P0 and P1,
/// who know u, hold.
const U_MASK: &[usize] = &[1];
/// The same of v's mask, which P2 knows. P0 and P1 know the product of both masks in parts.
const V_MASK: &[usize] = &[2, 0];

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

impl<D: Device> Encode<D> for Material<D> {
    fn write(&self, device: &D, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        self.u.write(device, out)?;
        self.v.write(device, out)?;
        for part in [&self.opened, &self.leaves, &self.pairs, &self.deep] {
            part.write(device, out)?;
        }
        Ok(())
    }
    fn read(device: &D, input: &mut &[u8]) -> Result<Self, EncodeError> {
        Ok(Material {
            u: Encode::<D>::read(device, input)?,
            v: Encode::<D>::read(device, input)?,
            opened: Encode::<D>::read(device, input)?,
            leaves: Encode::<D>::read(device, input)?,
            pairs: Encode::<D>::read(device, input)?,
            deep: Encode::<D>::read(device, input)?,
        })
    }
}

/// Planes as a tensor of bits, to be kept.
pub(super) fn keep<D: Device>(planes: usize, words: usize, buffer: D::Buf<u64>) -> Bits<D> {
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

/// Draws masks and makes their products. For summands in masked bits, `given` are the planes of
/// their masks.
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
        let uv =
            ReplicatedBit::of(me, |c| sheet.wire(&mut circuit, Plane::Pair(Signal::U(at), Signal::V(at), c)));
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

/// Products of u's and v's masks for a replicated value: P0 and P1 know a summand each. They draw
/// the components that they hold with P2, and send each other what is left: component 1.
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

/// m of both summands of a replicated value, from those who know them to the others; all is sent
/// before anybody waits.
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
        true => ReplicatedBit::of(me, |c| sheet.wire(circuit, Plane::Share(signal, c))),
        false => local.bit(circuit, signal),
    })
}
