//! Addition of two values that are known to some parties, on Boolean replicated shares: ABY3, §5.3, with the depth of a
//! parallel-prefix tree of pairs. u is known to P0, v to P1 and P2.
//!
//! u = (a, u ⊕ a, 0) with a from the stream of P0 and P2, so only P0 → P1 is sent; v = (0, 0, v) is a sharing as it is. Then
//! g = u·v, p = u ⊕ v, and every node of the tree makes g_1 ⊕ p_1·g_2 and p_1·p_2 of two spans, each product reshared.
//!
//! phase     rounds          bits per value for width λ    from → to
//! online    1               λ                             P0 → P1
//!           1               3·(λ−1)                       P_i → P_{i−1}, each i
//!           depth of tree   3 for each g, 3 for each p    P_i → P_{i−1}, each i
//!
//! Everybody sees uniform bits.

use crate::replicated::planes::{Plane, Shared, Sheet, Signal, add_zero, masked, recv, reshare, send};
use crate::replicated::sum::{Known, Want, output_planes};
use crate::replicated::tree::{Span, Tree};
use crate::rss::{Rss, draw, reshare_cost};
use crate::{Cost, Unit};
use megrez_kernels::{Circuit, Device, Wire};
use megrez_ring::bits;
use megrez_session::{Error, Party};

/// What a level computes: leaves' products first, then the nodes of the tree.
fn levels(tree: &Tree) -> Vec<Vec<Signal>> {
    let leaves = (0..tree.bits).map(|i| Signal::Generate(Span::leaf(i))).collect();
    let node_signals = |level: &Vec<crate::replicated::tree::Node>| {
        let both = |node: &crate::replicated::tree::Node| {
            let propagate = node.propagates().then_some(Signal::Propagate(node.span));
            [Some(Signal::Generate(node.span)), propagate].into_iter().flatten()
        };
        level.iter().flat_map(both).collect()
    };
    std::iter::once(leaves).chain(tree.levels.iter().map(node_signals)).collect()
}

/// The cost of a sum of summands that are known to some parties.
pub(crate) fn cost(tree: &Tree, n: usize) -> Cost {
    let width = tree.bits as u32 + 1;
    Cost::LOCAL.online(1, 0, 1, n, Unit::Bits(width)).then(sum_cost(tree, n))
}

/// The cost of a sum of replicated bits.
pub(crate) fn sum_cost(tree: &Tree, n: usize) -> Cost {
    (1..)
        .zip(levels(tree))
        .filter(|(_, level)| !level.is_empty())
        .fold(Cost::LOCAL, |cost, (round, level)| {
            reshare_cost(cost, round, n, Unit::Bits(level.len() as u32))
        })
}

/// Both components of a signal: leaves' propagate bits are sums of u's and v's.
fn shared<D: Device>(sheet: &Sheet<D>, circuit: &mut Circuit, me: usize, signal: Signal) -> Shared {
    let mut of = |signal| Shared::of(me, |c| sheet.wire(circuit, Plane::Share(signal, c)));
    match signal {
        Signal::Propagate(span) if span.is_leaf() => {
            let (u, v) = (of(Signal::U(span.low)), of(Signal::V(span.low)));
            u.xor(circuit, v)
        }
        signal => of(signal),
    }
}

/// The additive share of a signal from those of lower levels.
fn additive<D: Device>(
    tree: &Tree,
    sheet: &Sheet<D>,
    circuit: &mut Circuit,
    me: usize,
    signal: Signal,
) -> Wire {
    let parts = |span: Span| {
        let node = tree.levels.iter().flatten().find(|node| node.span == span);
        node.expect("a signal of the tree").parts.clone()
    };
    match signal {
        Signal::Generate(span) if span.is_leaf() => {
            let u = shared(sheet, circuit, me, Signal::U(span.low));
            let v = shared(sheet, circuit, me, Signal::V(span.low));
            u.and(circuit, v)
        }
        Signal::Generate(span) => {
            let parts = parts(span);
            let [g1, p1, g2] =
                [Signal::Generate(parts[0]), Signal::Propagate(parts[0]), Signal::Generate(parts[1])]
                    .map(|s| shared(sheet, circuit, me, s));
            let product = p1.and(circuit, g2);
            circuit.xor(g1.own, product)
        }
        Signal::Propagate(span) => {
            let [p1, p2] = [0, 1].map(|i| shared(sheet, circuit, me, Signal::Propagate(parts(span)[i])));
            p1.and(circuit, p2)
        }
        Signal::U(_) | Signal::V(_) => unreachable!("inputs are shared, not computed"),
    }
}

/// The planes of u + v that are wanted, as replicated bits, for summands that are known to some parties.
pub(crate) fn online<D: Device>(
    party: &mut Party<D>,
    tree: &Tree,
    want: Want,
    n: usize,
    known: Known<D>,
) -> Result<Rss<D::Buf<u64>>, Error> {
    let (me, words, width) = (party.me(), bits::words(n), tree.bits + 1);
    let mut sheet = Sheet::new();
    let u = |c: usize| (0..width).map(move |i| Plane::Share(Signal::U(i), c));
    let v = (0..width).map(|i| Plane::Share(Signal::V(i), 2));
    match me {
        0 => {
            let plain = known.u.expect("P0 knows u");
            let a = draw::<u64, D>(party, 0, "u", width * words)?;
            let share = party.device().xor(&[&plain, &a], false, width * words * 64)?;
            send(party, 1, "u", &share, width, n)?;
            sheet.add(a, u(0));
            sheet.add(share, u(1));
        }
        1 => {
            let share = recv(party, 0, "u", width, n)?;
            sheet.add(share, u(1));
            sheet.add(known.v.expect("P1 knows v"), v);
        }
        _ => {
            let a = draw::<u64, D>(party, 0, "u", width * words)?;
            sheet.add(a, u(0));
            sheet.add(known.v.expect("P2 knows v"), v);
        }
    }
    sum(party, tree, want, n, sheet)
}

/// As [`online`] for summands in replicated bits.
pub(crate) fn sum_of_bits<D: Device>(
    party: &mut Party<D>,
    tree: &Tree,
    n: usize,
    [u, v]: [Rss<D::Buf<u64>>; 2],
) -> Result<Rss<D::Buf<u64>>, Error> {
    let (me, width) = (party.me(), tree.bits + 1);
    let mut sheet = Sheet::new();
    sheet.add_rss(me, u, |c| (0..width).map(|i| Plane::Share(Signal::U(i), c)).collect());
    sheet.add_rss(me, v, |c| (0..width).map(|i| Plane::Share(Signal::V(i), c)).collect());
    sum(party, tree, Want::All, n, sheet)
}

/// The wanted planes from shares of u and v.
fn sum<D: Device>(
    party: &mut Party<D>,
    tree: &Tree,
    want: Want,
    n: usize,
    mut sheet: Sheet<D>,
) -> Result<Rss<D::Buf<u64>>, Error> {
    let (me, words) = (party.me(), bits::words(n));
    for (depth, level) in levels(tree).into_iter().enumerate().filter(|(_, level)| !level.is_empty()) {
        let label = format!("level{depth}");
        add_zero(party, &mut sheet, &label, level.len(), n)?;
        let mut circuit = Circuit::default();
        let shares = level.iter().enumerate().map(|(k, &signal)| {
            let share = additive(tree, &sheet, &mut circuit, me, signal);
            masked(&sheet, &mut circuit, k, share)
        });
        let shares = shares.collect();
        circuit.output(shares);
        let share = sheet.run(party.device(), &circuit, words)?.remove(0);
        let level_shares = reshare(party, &label, share, level.len(), n)?;
        sheet.add_rss(me, level_shares, |c| level.iter().map(|&s| Plane::Share(s, c)).collect());
    }
    output_planes(party, tree, want, words, &sheet, |circuit, signal| shared(&sheet, circuit, me, signal))
}
