//! Addition of two values that are known to some parties, on Boolean replicated shares: ABY3, §5.3,
//! with the depth of a parallel-prefix tree of pairs. u is known to P0 and P1, v to P2.
//!
//! u = (0, u, 0) is a sharing as it is, and v = (v ⊕ a, 0, a) with a from the stream of P1 and P2,
//! so only P2 → P0 is sent. Then g = u·v, p = u ⊕ v, and every node of the tree makes g_1 ⊕ p_1·g_2
//! and p_1·p_2 of two spans, each product reshared.
//!
//! phase     rounds          bits per value for width λ    from → to
//! online    1               λ                             P2 → P0
//!           1               3·(λ−1)                       P_i → P_{i−1}, each i
//!           depth of tree   3 for each g, 3 for each p    P_i → P_{i−1}, each i
//!
//! The top bit alone ([`top`]) has digits ([`crate::steps::digits`]) for leaves, whose signals P0
//! and P1 know in parts: with components 0 and 2 drawn, they open component 1 to each other.
//!
//! phase     rounds          bits per value for d digits   from → to
//! online    1               2·(2·d − 1)                   P0 ↔ P1
//!           ⌈log2 d⌉        3 for each g, 3 for each p    P_i → P_{i−1}, each i
//!
//! For λ = 64 that is 140 bits and 233 for the digits, in 6 rounds, where the tree over positions
//! takes 607 in 8. Everybody sees uniform bits.

use crate::rss::{Rss, draw, reshare_cost};
use crate::steps::digits::{Digits, signals};
use crate::steps::planes::{
    Lanes, Plane, ReplicatedBit, Sheet, Signal, add_zero, masked, recv, reshare, send,
};
use crate::steps::sum::{Known, output_planes};
use crate::steps::tree::{Node, Span, Tree};
use crate::{Cost, Unit};
use megrez_kernels::{Circuit, Device, Wire};
use megrez_ring::bits;
use megrez_session::{Error, Party};

/// What a level computes: leaves' products first, then the nodes of the tree.
fn levels(tree: &Tree) -> Vec<Vec<Signal>> {
    let leaves = (0..tree.bits).map(|i| Signal::Generate(Span::leaf(i))).collect();
    std::iter::once(leaves).chain(nodes(tree)).collect()
}

/// What the levels of nodes compute.
fn nodes(tree: &Tree) -> Vec<Vec<Signal>> {
    let node_signals = |level: &Vec<Node>| {
        let both = |node: &Node| {
            let propagate = node.propagates().then_some(Signal::Propagate(node.span));
            [Some(Signal::Generate(node.span)), propagate].into_iter().flatten()
        };
        level.iter().flat_map(both).collect()
    };
    tree.levels.iter().map(node_signals).collect()
}

/// The cost of a sum of summands that are known to some parties.
pub(crate) fn cost(tree: &Tree, n: usize) -> Cost {
    let width = tree.bits as u32 + 1;
    Cost::LOCAL.online(1, 2, 0, n, Unit::Bits(width)).then(sum_cost(tree, n))
}

/// The cost of a sum of replicated bits.
pub(crate) fn sum_cost(tree: &Tree, n: usize) -> Cost {
    levels_cost(&levels(tree), n)
}

fn levels_cost(levels: &[Vec<Signal>], n: usize) -> Cost {
    let sent = levels.iter().filter(|level| !level.is_empty());
    (1..).zip(sent).fold(Cost::LOCAL, |cost, (round, level)| {
        reshare_cost(cost, round, n, Unit::Bits(level.len() as u32))
    })
}

/// `aby3`'s digits below the top bit of `width`.
pub(crate) fn digits(width: usize) -> Digits {
    // Two signals of a digit, and two of the node that joins it.
    Digits::new(width, 2, |count| 10.0 * count as f64)
}

/// The cost of [`top`] from the digits' signals on, of `n` values.
pub(crate) fn top_cost(digits: &Digits, n: usize) -> Cost {
    let two = Cost::LOCAL.online_swap(1, 0, 1, n, Unit::Bits(digits.signals() as u32));
    two.then(carry_cost(digits.count(), n))
}

/// The cost of [`carry`] for `n` values.
pub(crate) fn carry_cost(leaves: usize, n: usize) -> Cost {
    levels_cost(&nodes(&Tree::carry(leaves, 2)), n)
}

/// Both components of a signal: leaves' propagate bits are sums of u's and v's, digits' are there.
fn shared<D: Device>(sheet: &Sheet<D>, circuit: &mut Circuit, me: usize, signal: Signal) -> ReplicatedBit {
    let mut of = |signal| ReplicatedBit::of(me, |c| sheet.wire(circuit, Plane::Share(signal, c)));
    match signal {
        Signal::Propagate(span) if span.is_leaf() && !sheet.has(Plane::Share(signal, me)) => {
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

/// All planes of u + v as replicated bits, for summands that are known to some parties.
pub(crate) fn online<D: Device>(
    party: &mut Party<D>,
    tree: &Tree,
    n: usize,
    known: Known<D>,
) -> Result<Rss<D::Buf<u64>>, Error> {
    let (me, words, width) = (party.me(), bits::words(n), tree.bits + 1);
    let mut sheet = Sheet::new();
    let u = (0..width).map(|i| Plane::Share(Signal::U(i), 1));
    let v = |c: usize| (0..width).map(move |i| Plane::Share(Signal::V(i), c));
    match me {
        0 => {
            sheet.add(known.u.expect("P0 knows u"), u);
            sheet.add(recv(party, 2, "v", width, n)?, v(0));
        }
        1 => {
            sheet.add(known.u.expect("P1 knows u"), u);
            sheet.add(draw::<u64, D>(party, 2, "v", width * words)?, v(2));
        }
        _ => {
            let plain = known.v.expect("P2 knows v");
            let a = draw::<u64, D>(party, 2, "v", width * words)?;
            let share = party.device().xor(&[&plain, &a], false, width * words * 64)?;
            send(party, 0, "v", &share, width, n)?;
            sheet.add(a, v(2));
            sheet.add(share, v(0));
        }
    }
    sum(party, tree, n, sheet)
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
    sum(party, tree, n, sheet)
}

/// All planes from shares of u and v.
fn sum<D: Device>(
    party: &mut Party<D>,
    tree: &Tree,
    n: usize,
    mut sheet: Sheet<D>,
) -> Result<Rss<D::Buf<u64>>, Error> {
    let (me, words) = (party.me(), bits::words(n));
    climb(party, tree, &levels(tree), n.into(), &mut sheet)?;
    output_planes(party, tree, words, &sheet, |circuit, signal| shared(&sheet, circuit, me, signal))
}

/// Level by level, adds their signals to the sheet.
fn climb<D: Device>(
    party: &mut Party<D>,
    tree: &Tree,
    levels: &[Vec<Signal>],
    lanes: Lanes,
    sheet: &mut Sheet<D>,
) -> Result<(), Error> {
    let me = party.me();
    for (depth, level) in levels.iter().enumerate().filter(|(_, level)| !level.is_empty()) {
        let label = format!("level{depth}");
        add_zero(party, sheet, &label, level.len(), lanes)?;
        let mut circuit = Circuit::default();
        let shares = level.iter().enumerate().map(|(k, &signal)| {
            let share = additive(tree, sheet, &mut circuit, me, signal);
            masked(sheet, &mut circuit, k, share)
        });
        let shares = shares.collect();
        circuit.output(shares);
        let share = sheet.run(party.device(), &circuit, lanes.words())?.remove(0);
        let level_shares = reshare(party, &label, share, level.len(), lanes)?;
        sheet.add_rss(me, level_shares, |c| level.iter().map(|&s| Plane::Share(s, c)).collect());
    }
    Ok(())
}

/// The first round of [`top`]: P0 and P1 send their shares of the digits' signals, masked; every
/// party gives the components that it has by then. `share` is there at P0 and P1.
pub(crate) fn top_send<D: Device>(
    party: &mut Party<D>,
    digits: &Digits,
    lanes: Lanes,
    share: Option<D::Buf<u64>>,
) -> Result<Rss<D::Buf<u64>>, Error> {
    let (me, planes) = (party.me(), digits.signals());
    let Some(share) = share else { return Rss::of(me, |c| draw(party, c, "digits", planes * lanes.words())) };
    // P0 holds component 0 with P2, P1 component 2.
    let drawn = draw::<u64, D>(party, 2 * me, "digits", planes * lanes.words())?;
    let masked = party.device().xor(&[&share, &drawn], false, planes * lanes.words() * 64)?;
    send(party, 1 - me, "digits", &masked, planes, lanes)?;
    Ok(match me {
        0 => Rss { own: drawn, next: masked },
        _ => Rss { own: masked, next: drawn },
    })
}

/// The top bit of u + v, once the digits' signals are on their way.
pub(crate) fn top<D: Device>(
    party: &mut Party<D>,
    digits: &Digits,
    lanes: Lanes,
    mut sent: Rss<D::Buf<u64>>,
) -> Result<Rss<D::Buf<u64>>, Error> {
    let (me, planes) = (party.me(), digits.signals());
    if me != 2 {
        let other = recv(party, 1 - me, "digits", planes, lanes)?;
        let mine = if me == 0 { &mut sent.next } else { &mut sent.own };
        *mine = party.device().xor(&[&*mine, &other], false, planes * lanes.words() * 64)?;
    }
    carry(party, digits.count(), lanes, sent)
}

/// The carry out of so many leaves, from their signals in the order of [`signals`].
pub(crate) fn carry<D: Device>(
    party: &mut Party<D>,
    leaves: usize,
    lanes: Lanes,
    shares: Rss<D::Buf<u64>>,
) -> Result<Rss<D::Buf<u64>>, Error> {
    if leaves == 1 {
        return Ok(shares);
    }
    let (me, signals) = (party.me(), signals(leaves));
    let mut sheet = Sheet::new();
    sheet.add_rss(me, shares, |c| signals.iter().map(|&s| Plane::Share(s, c)).collect());
    let tree = Tree::carry(leaves, 2);
    climb(party, &tree, &nodes(&tree), lanes, &mut sheet)?;
    let mut circuit = Circuit::default();
    for c in [me, crate::rss::after(me)] {
        let carry = sheet.wire(&mut circuit, Plane::Share(Signal::Generate(tree.carries[0]), c));
        circuit.output(vec![carry]);
    }
    let mut outputs = sheet.run(party.device(), &circuit, lanes.words())?;
    let next = outputs.pop().expect("two outputs");
    Ok(Rss { own: outputs.pop().expect("two outputs"), next })
}

#[cfg(test)]
mod tests {
    use super::*;
    use megrez_session::Phase::Online;

    #[test]
    fn the_cost_of_the_top_bit_is_that_of_the_head() {
        let digits = digits(64);
        let cost = digits.cost(Online, 1).then(top_cost(&digits, 1));
        assert_eq!((cost.bits(Online), cost.rounds(Online)), (373.0, 6));
        let tree = cost_of_tree();
        assert_eq!((tree.bits(Online), tree.rounds(Online)), (607.0, 8));
    }

    fn cost_of_tree() -> Cost {
        cost(&Tree::carry(63, 2), 1)
    }
}
