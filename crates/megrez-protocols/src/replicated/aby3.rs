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
//! The top bit alone takes fewer rounds and bits (ours): below it, digits of four positions take the leaves' place. P0, who knows u,
//! shares the bits T_t = [u_d ≥ t] of every digit u_d instead of its bits, 15 for 4; T_0 = 1 and T_16 = 0. Those who know v_d
//! choose from their shares T_(16−v_d), the digit's carry G, and T_(15−v_d) ⊕ T_(16−v_d) = [u_d + v_d = 15], its P.
//!
//! phase     rounds          bits per value for width λ, d digits   from → to
//! online    1               1 + Σ (2^positions − 1) over digits    P0 → P1
//!           1               3·(2·d − 1)                            P_i → P_{i−1}, each i
//!           ⌈log2 d⌉        3 for each g, 3 for each p             P_i → P_{i−1}, each i
//!
//! For λ = 64 that is 404 bits in 6 rounds, where the tree over positions takes 607 in 8. Everybody sees uniform bits.

use crate::replicated::planes::{Plane, Shared, Sheet, Signal, add_zero, masked, recv, reshare, send};
use crate::replicated::sum::{Known, output_planes};
use crate::replicated::tree::{Span, Tree};
use crate::rss::{self, Rss, draw, reshare_cost};
use crate::{Cost, Unit};
use megrez_kernels::{Circuit, Device, Wire};
use megrez_ring::bits;
use megrez_session::{Error, Party};
use std::ops::Range;

/// Positions of a digit.
const DIGIT: usize = 4;

/// What a level computes: leaves' products first, then the nodes of the tree.
fn levels(tree: &Tree) -> Vec<Vec<Signal>> {
    let leaves = (0..tree.bits).map(|i| Signal::Generate(Span::leaf(i))).collect();
    std::iter::once(leaves).chain(nodes(tree)).collect()
}

/// What the levels of nodes compute.
fn nodes(tree: &Tree) -> Vec<Vec<Signal>> {
    let node_signals = |level: &Vec<crate::replicated::tree::Node>| {
        let both = |node: &crate::replicated::tree::Node| {
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
    Cost::LOCAL.online(1, 0, 1, n, Unit::Bits(width)).then(sum_cost(tree, n))
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

/// The positions of each digit below the top bit of `width`, the lowest first.
fn digits(width: usize) -> Vec<Range<usize>> {
    (0..width - 1).step_by(DIGIT).map(|low| low..(low + DIGIT).min(width - 1)).collect()
}

/// What P0 shares of u: its top bit, and the thresholds of every digit.
fn entries(width: usize) -> usize {
    1 + digits(width).iter().map(|digit| (1 << digit.len()) - 1).sum::<usize>()
}

/// The signals of digits: as if each were a position of a tree.
fn digit_signals(digits: usize) -> Vec<Signal> {
    let of = |digit: usize| {
        let span = Span::leaf(digit);
        [Some(Signal::Generate(span)), (digit > 0).then_some(Signal::Propagate(span))].into_iter().flatten()
    };
    (0..digits).flat_map(of).collect()
}

/// The cost of [`top`] of sums of `width` bits.
pub(crate) fn top_cost(width: usize, n: usize) -> Cost {
    let digits = digits(width).len();
    let levels = [vec![digit_signals(digits)], nodes(&Tree::carry(digits, 2))].concat();
    Cost::LOCAL.online(1, 0, 1, n, Unit::Bits(entries(width) as u32)).then(levels_cost(&levels, n))
}

/// Both components of a signal: leaves' propagate bits are sums of u's and v's, digits' are there.
fn shared<D: Device>(sheet: &Sheet<D>, circuit: &mut Circuit, me: usize, signal: Signal) -> Shared {
    let mut of = |signal| Shared::of(me, |c| sheet.wire(circuit, Plane::Share(signal, c)));
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
    climb(party, tree, &levels(tree), n, &mut sheet)?;
    output_planes(party, tree, words, &sheet, |circuit, signal| shared(&sheet, circuit, me, signal))
}

/// Level by level, adds their signals to the sheet.
fn climb<D: Device>(
    party: &mut Party<D>,
    tree: &Tree,
    levels: &[Vec<Signal>],
    n: usize,
    sheet: &mut Sheet<D>,
) -> Result<(), Error> {
    let (me, words) = (party.me(), bits::words(n));
    for (depth, level) in levels.iter().enumerate().filter(|(_, level)| !level.is_empty()) {
        let label = format!("level{depth}");
        add_zero(party, sheet, &label, level.len(), n)?;
        let mut circuit = Circuit::default();
        let shares = level.iter().enumerate().map(|(k, &signal)| {
            let share = additive(tree, sheet, &mut circuit, me, signal);
            masked(sheet, &mut circuit, k, share)
        });
        let shares = shares.collect();
        circuit.output(shares);
        let share = sheet.run(party.device(), &circuit, words)?.remove(0);
        let level_shares = reshare(party, &label, share, level.len(), n)?;
        sheet.add_rss(me, level_shares, |c| level.iter().map(|&s| Plane::Share(s, c)).collect());
    }
    Ok(())
}

/// The bits [u ≥ t] for t = 1, …, 2^k − 1, from the k bits of u, the lowest first.
fn thresholds(circuit: &mut Circuit, u: &[Wire]) -> Vec<Wire> {
    let Some((&top, rest)) = u.split_last() else { return vec![] };
    let below = thresholds(circuit, rest);
    let either = |circuit: &mut Circuit, t: &Wire| {
        let (sum, both) = (circuit.xor(top, *t), circuit.and(top, *t));
        circuit.xor(sum, both)
    };
    let mut all: Vec<Wire> = below.iter().map(|t| either(circuit, t)).collect();
    all.push(top);
    all.extend(below.iter().map(|&t| circuit.and(top, t)));
    all
}

/// choices[v] for the bits of v, the lowest first.
fn choose(circuit: &mut Circuit, choices: Vec<Wire>, v: &[Wire]) -> Wire {
    let halve = |choices: Vec<Wire>, &bit: &Wire| {
        let pair = |pair: &[Wire]| {
            let both = circuit.xor(pair[0], pair[1]);
            let other = circuit.and(bit, both);
            circuit.xor(pair[0], other)
        };
        choices.chunks_exact(2).map(pair).collect()
    };
    v.iter().fold(choices, halve)[0]
}

/// The top bit of u + v, for summands of `width` bits that are known to some parties.
pub(crate) fn top<D: Device>(
    party: &mut Party<D>,
    width: usize,
    n: usize,
    known: Known<D>,
) -> Result<Rss<D::Buf<u64>>, Error> {
    let (me, words, digits, entries) = (party.me(), bits::words(n), digits(width), entries(width));
    let mut sheet = Sheet::new();
    // The top bits are leaves above the digits, of which there are fewer than positions.
    let (u, v) = (Signal::U(width - 1), Signal::V(width - 1));
    let shared_u = match me {
        0 => {
            let plain = known.u.expect("P0 knows u");
            let mut circuit = Circuit::default();
            let position = |circuit: &mut Circuit, i: usize| circuit.input(0, i);
            let mut planes = vec![position(&mut circuit, width - 1)];
            for digit in &digits {
                let bits: Vec<Wire> = digit.clone().map(|i| position(&mut circuit, i)).collect();
                planes.extend(thresholds(&mut circuit, &bits));
            }
            circuit.output(planes);
            let plain = party.device().run_circuit(&circuit.compile(), &[&plain], words)?.remove(0);
            let a = draw::<u64, D>(party, 0, "u", entries * words)?;
            let share = party.device().xor(&[&plain, &a], false, entries * words * 64)?;
            send(party, 1, "u", &share, entries, n)?;
            sheet.add(a, [Plane::Share(u, 0)]);
            sheet.add(share, [Plane::Share(u, 1)]);
            None
        }
        1 => Some(recv(party, 0, "u", entries, n)?),
        _ => Some(draw::<u64, D>(party, 0, "u", entries * words)?),
    };
    let signals = digit_signals(digits.len());
    let zeros = rss::zero::<u64, D>(party, "digits", signals.len() * words)?;
    let mut inputs = zeros.to_vec();
    let mut circuit = Circuit::default();
    let mut shares = vec![];
    if let Some(shared_u) = &shared_u {
        let known_v = known.v.as_ref().expect("P1 and P2 know v");
        inputs.extend([shared_u.clone(), known_v.clone()]);
        let one = if me == 1 { circuit.not(Circuit::ZERO) } else { Circuit::ZERO };
        let mut at = 1;
        for (d, digit) in digits.iter().enumerate() {
            let count = (1 << digit.len()) - 1;
            // T_0, …, T_(2^k), turned round: entry v is T_(2^k − v).
            let mut carries = vec![one];
            carries.extend((at..at + count).map(|plane| circuit.input(2, plane)));
            carries.push(Circuit::ZERO);
            carries.reverse();
            at += count;
            let bits: Vec<Wire> = digit.clone().map(|i| circuit.input(3, i)).collect();
            shares.push(choose(&mut circuit, carries[..=count].to_vec(), &bits));
            if d > 0 {
                let equal = carries.windows(2).map(|t| circuit.xor(t[0], t[1])).collect();
                shares.push(choose(&mut circuit, equal, &bits));
            }
        }
        sheet.add(shared_u.clone(), [Plane::Share(u, if me == 1 { 1 } else { 0 })]);
        // Only the last plane is of use; the others get names that nobody asks for.
        sheet.add(known_v.clone(), (0..width).map(|i| Plane::Share(Signal::V(i), 2)));
    } else {
        shares.resize(signals.len(), Circuit::ZERO);
    }
    let fresh = shares.into_iter().enumerate().map(|(k, share)| {
        let zeros = [circuit.input(0, k), circuit.input(1, k)];
        circuit.sum(&[share, zeros[0], zeros[1]])
    });
    let fresh = fresh.collect();
    circuit.output(fresh);
    let inputs: Vec<_> = inputs.iter().collect();
    let share = party.device().run_circuit(&circuit.compile(), &inputs, words)?.remove(0);
    let leaves = reshare(party, "digits", share, signals.len(), n)?;
    sheet.add_rss(me, leaves, |c| signals.iter().map(|&s| Plane::Share(s, c)).collect());

    let tree = Tree::carry(digits.len(), 2);
    climb(party, &tree, &nodes(&tree), n, &mut sheet)?;
    let mut circuit = Circuit::default();
    let sum = [Signal::Generate(tree.carries[0]), u, v]
        .map(|signal| Shared::of(me, |c| sheet.wire(&mut circuit, Plane::Share(signal, c))))
        .into_iter()
        .reduce(|a, b| a.xor(&mut circuit, b))
        .expect("three summands");
    circuit.output(vec![sum.own]);
    circuit.output(vec![sum.next]);
    let mut outputs = sheet.run(party.device(), &circuit, words)?;
    let next = outputs.pop().expect("two outputs");
    Ok(Rss { own: outputs.pop().expect("two outputs"), next })
}

#[cfg(test)]
mod tests {
    use super::*;
    use megrez_session::Phase::Online;

    #[test]
    fn the_cost_of_the_top_bit_is_that_of_the_head() {
        let cost = top_cost(64, 1);
        assert_eq!((cost.bits(Online), cost.rounds(Online)), (404.0, 6));
        let tree = cost_of_tree();
        assert_eq!((tree.bits(Online), tree.rounds(Online)), (607.0, 8));
    }

    fn cost_of_tree() -> Cost {
        cost(&Tree::carry(63, 2), 1)
    }

    #[test]
    fn a_digit_is_chosen_from_its_thresholds_for_every_pair_of_digits() {
        for k in 1..=DIGIT {
            // Lane 2^k·u + v, one word for 64 lanes.
            let words = bits::words(1 << (2 * k));
            let lanes = |shift: usize| -> Vec<u64> {
                (0..k).flat_map(|i| bits::pack(1 << (2 * k), |lane| lane as u64 >> (shift + i))).collect()
            };
            let device = megrez_kernels::Reference;
            let [u, v] = [lanes(k), lanes(0)].map(|planes| device.upload(planes).unwrap());
            let mut circuit = Circuit::default();
            let u_bits: Vec<Wire> = (0..k).map(|i| circuit.input(0, i)).collect();
            let v_bits: Vec<Wire> = (0..k).map(|i| circuit.input(1, i)).collect();
            let mut carries = vec![circuit.not(Circuit::ZERO)];
            carries.extend(thresholds(&mut circuit, &u_bits));
            carries.push(Circuit::ZERO);
            carries.reverse();
            let generate = choose(&mut circuit, carries[..1 << k].to_vec(), &v_bits);
            let equal = carries.windows(2).map(|t| circuit.xor(t[0], t[1])).collect();
            let propagate = choose(&mut circuit, equal, &v_bits);
            circuit.output(vec![generate, propagate]);
            let made = device.run_circuit(&circuit.compile(), &[&u, &v], words).unwrap().remove(0);
            let made = device.download(made).unwrap();
            for lane in 0..1usize << (2 * k) {
                let sum = (lane >> k) + (lane & ((1 << k) - 1));
                let bit = |plane: usize| bits::get(&made[plane * words..], lane);
                assert_eq!(bit(0), u64::from(sum >= 1 << k), "{k} bits, lane {lane:#x}");
                assert_eq!(bit(1), u64::from(sum == (1 << k) - 1), "{k} bits, lane {lane:#x}");
            }
        }
    }
}
