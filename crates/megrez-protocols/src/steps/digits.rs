//! The first step of a comparison: the carry signals of digits of u + v mod 2^λ, u known to P0 and
//! P1, v to P2. Ours; it takes the leaves' place below the trees of [`crate::aby3`] and
//! [`crate::alkaid`].
//!
//! P2 shares the bits T_t = [v_d ≥ t] of every digit v_d between P0 and P1: 2^k − 1 for k
//! positions; T_0 = 1 and T_(2^k) = 0. These two choose from their shares T_(2^k − u_d), the
//! digit's carry G, and T_(2^k−1−u_d) ⊕ T_(2^k − u_d) = [u_d + v_d = 2^k − 1], its P. So G and P
//! are sums of a bit of P0 and one of P1, without a product. The top bit of u + v is u's ⊕ v's ⊕
//! the carry below: u's and v's are added to the G of the highest digit, which no tree multiplies
//! by anything.
//!
//! v may be known before u is: a mask's part offline, a product's summand a round earlier. One v
//! serves all thresholds that a value is compared with, since these go into u.
//!
//! Of one half of what is shared P1's share is a stream and P0 is sent its own, of the other half
//! it is the other way round, so that no link carries it all.
//!
//! phase     rounds  bits per value                       from → to
//! online    1       1 + Σ (2^positions − 1) over digits  P2 → P0 and P2 → P1, half each
//!
//! P0 and P1 see uniform bits; P2 sees nothing.

use super::planes::{Lanes, Signal, recv, send};
use super::tree::Span;
use crate::rss::draw;
use crate::{Cost, Unit};
use megrez_kernels::{Circuit, Device, Placement, Wire};
use megrez_plan::View;
use megrez_ring::bits;
use megrez_session::{Error, Party, Phase};
use std::ops::Range;

/// The most positions of a digit.
const WIDEST: usize = 4;

/// The digits below the top bit, the lowest first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Digits {
    ranges: Vec<Range<usize>>,
    /// Whether the top bits of both summands are added to the highest carry.
    top: bool,
    /// Bits that P1 is sent beside.
    beside: usize,
}

impl Digits {
    /// The digits of a sum of `width` ≥ 2 bits: as few levels of nodes of `arity` parts above them
    /// as can be, and of all such the cheapest; `above` are the bits that so many digits cost from
    /// there on.
    pub(crate) fn new(width: usize, arity: usize, above: impl Fn(usize) -> f64) -> Self {
        let positions = width - 1;
        let fewest = positions.div_ceil(WIDEST);
        let mut most = 1;
        while most < fewest {
            most *= arity;
        }
        let cost = |digits: &Digits| digits.entries() as f64 + above(digits.count());
        let candidates = (fewest..=most.min(positions)).map(|count| Digits::split(width, count));
        candidates.min_by(|a, b| cost(a).total_cmp(&cost(b))).expect("at least one digit")
    }

    /// So many digits of a sum of `width` bits, as even as can be.
    pub(crate) fn split(width: usize, count: usize) -> Self {
        let positions = width - 1;
        let (low, wider) = (positions / count, positions % count);
        let mut at = 0;
        let digit = |i| {
            let start = at;
            at += low + usize::from(i < wider);
            start..at
        };
        Digits { ranges: (0..count).map(digit).collect(), top: true, beside: 0 }
    }

    /// The same, of which the highest carry is wanted as it is.
    pub(crate) fn without_top(self) -> Self {
        Digits { top: false, ..self }
    }

    /// The same, where P1 is sent so many bits of something else at the same time.
    pub(crate) fn beside(self, bits: usize) -> Self {
        Digits { beside: bits, ..self }
    }

    /// How many digits there are.
    pub(crate) fn count(&self) -> usize {
        self.ranges.len()
    }

    /// How many signals they have: G of each, and P of each but the lowest.
    pub(crate) fn signals(&self) -> usize {
        2 * self.count() - 1
    }

    /// What P2 shares of v: its top bit, where that is added, and the thresholds of every digit.
    pub(crate) fn entries(&self) -> usize {
        usize::from(self.top) + self.ranges.iter().map(|digit| (1 << digit.len()) - 1).sum::<usize>()
    }

    /// Bits of u and of v.
    pub(crate) fn width(&self) -> u32 {
        self.ranges.last().map_or(1, |digit| digit.end as u32 + 1)
    }

    /// Of the [`entries`](Self::entries), those that P0 is sent, which come first, and those that
    /// P1 is.
    fn sent(&self) -> [usize; 2] {
        let entries = self.entries();
        let first = (entries + self.beside).div_ceil(2).min(entries);
        [first, entries - first]
    }

    /// The cost of [`Digits::deal`].
    pub(crate) fn cost(&self, phase: Phase, n: usize) -> Cost {
        let to = |cost: Cost, (to, planes): (usize, usize)| match planes {
            0 => cost,
            planes => cost.in_round(phase, 1, 2, to, n, Unit::Bits(planes as u32)),
        };
        self.sent().into_iter().enumerate().fold(Cost::LOCAL, to)
    }

    /// P2 shares `v`, given as planes. What P0 and P1 draw of it; they take what they are sent with
    /// [`Digits::take`], once they have nothing left to send.
    pub(crate) fn deal<D: Device>(
        &self,
        party: &mut Party<D>,
        n: usize,
        v: Option<&D::Buf<u64>>,
    ) -> Result<Option<D::Buf<u64>>, Error> {
        let (me, words, [first, second]) = (party.me(), bits::words(n), self.sent());
        // P1's share of the first, P0's of the others.
        let drawn = |party: &mut Party<D>, of: usize| match of {
            0 => draw::<u64, D>(party, 2, "v", first * words),
            _ => draw::<u64, D>(party, 0, "v", second * words),
        };
        let Some(v) = v.filter(|_| me == 2) else {
            return if me == 2 { Ok(None) } else { drawn(party, 1 - me).map(Some) };
        };
        let shares = [drawn(party, 0)?, drawn(party, 1)?];
        let mut circuit = Circuit::default();
        let position = |circuit: &mut Circuit, i: usize| circuit.input(0, i);
        let top = self.top.then(|| position(&mut circuit, self.width() as usize - 1));
        let mut planes: Vec<Wire> = top.into_iter().collect();
        for digit in &self.ranges {
            let bits: Vec<Wire> = digit.clone().map(|i| position(&mut circuit, i)).collect();
            planes.extend(thresholds(&mut circuit, &bits));
        }
        let masked = planes.iter().enumerate().map(|(k, &plane)| {
            let mask = if k < first { circuit.input(1, k) } else { circuit.input(2, k - first) };
            circuit.xor(plane, mask)
        });
        let mut masked: Vec<Wire> = masked.collect();
        let others = masked.split_off(first);
        circuit.output(masked);
        circuit.output(others);
        let inputs = [v, &shares[0], &shares[1]];
        let made = party.device().run_circuit(&circuit.compile(), &inputs, words)?;
        for ((to, planes), share) in self.sent().into_iter().enumerate().zip(&made) {
            if planes > 0 {
                send(party, to, "v", share, planes, n)?;
            }
        }
        Ok(None)
    }

    /// The shares of v's digits at P0 and P1.
    pub(crate) fn take<D: Device>(
        &self,
        party: &mut Party<D>,
        n: usize,
        drawn: Option<D::Buf<u64>>,
    ) -> Result<Option<D::Buf<u64>>, Error> {
        let (me, words, [first, second]) = (party.me(), bits::words(n), self.sent());
        let Some(drawn) = drawn else { return Ok(None) };
        if second == 0 && me == 1 {
            return Ok(Some(drawn));
        }
        let received = recv(party, 2, "v", [first, second][me], n)?;
        let (low, high) = if me == 0 { (received, drawn) } else { (drawn, received) };
        let part = |source, planes: usize, before: usize| {
            let target = View { offset: before * words, ..View::whole([planes * words].into()) };
            Placement { source, target }
        };
        let parts = [part(&low, first, 0), part(&high, second, first)];
        Ok(Some(party.device().place(&parts, (first + second) * words)?))
    }

    /// This party's summands of the signals at P0 and P1: G and P of every digit, the lowest first,
    /// whose P is left out. `u` has the planes of u for each group of lanes.
    pub(crate) fn signal_shares<D: Device>(
        &self,
        party: &Party<D>,
        lanes: Lanes,
        u: impl Fn(usize) -> Result<D::Buf<u64>, Error>,
        dealt: &D::Buf<u64>,
    ) -> Result<D::Buf<u64>, Error> {
        let (mut circuit, first) = (Circuit::default(), party.me() == 0);
        let one = if first { circuit.not(Circuit::ZERO) } else { Circuit::ZERO };
        let mut shares = vec![];
        let mut at = usize::from(self.top);
        for (d, digit) in self.ranges.iter().enumerate() {
            let count = (1 << digit.len()) - 1;
            // T_0, …, T_(2^k), turned round: entry u is T_(2^k − u).
            let mut carries = vec![one];
            carries.extend((at..at + count).map(|plane| circuit.input(0, plane)));
            carries.push(Circuit::ZERO);
            carries.reverse();
            at += count;
            let bits: Vec<Wire> = digit.clone().map(|i| circuit.input(1, i)).collect();
            shares.push(choose(&mut circuit, carries[..=count].to_vec(), &bits));
            if d > 0 {
                let equal = carries.windows(2).map(|t| circuit.xor(t[0], t[1])).collect();
                shares.push(choose(&mut circuit, equal, &bits));
            }
        }
        if self.top {
            let top_of_v = circuit.input(0, 0);
            let top = match first {
                true => {
                    let top_of_u = circuit.input(1, self.width() as usize - 1);
                    circuit.xor(top_of_u, top_of_v)
                }
                false => top_of_v,
            };
            let highest = if self.count() > 1 { shares.len() - 2 } else { 0 };
            shares[highest] = circuit.xor(shares[highest], top);
        }
        circuit.output(shares);
        let program = circuit.compile();
        let words = bits::words(lanes.n);
        let group = |i| -> Result<_, Error> {
            Ok(party.device().run_circuit(&program, &[dealt, &u(i)?], words)?.remove(0))
        };
        if lanes.groups == 1 {
            return group(0);
        }
        let groups = (0..lanes.groups).map(group).collect::<Result<Vec<_>, _>>()?;
        Ok(lanes.join(party.device(), &groups, self.signals())?)
    }
}

/// The signals of digits, in the order of [`Digits::signal_shares`]: as if each were a position of
/// a tree.
pub(crate) fn signals(digits: usize) -> Vec<Signal> {
    let of = |digit: usize| {
        let span = Span::leaf(digit);
        [Some(Signal::Generate(span)), (digit > 0).then_some(Signal::Propagate(span))].into_iter().flatten()
    };
    (0..digits).flat_map(of).collect()
}

/// The bits [x ≥ t] for t = 1, …, 2^k − 1, from the k bits of x, the lowest first.
fn thresholds(circuit: &mut Circuit, x: &[Wire]) -> Vec<Wire> {
    let Some((&top, rest)) = x.split_last() else { return vec![] };
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

/// choices[x] for the bits of x, the lowest first.
fn choose(circuit: &mut Circuit, choices: Vec<Wire>, x: &[Wire]) -> Wire {
    let halve = |choices: Vec<Wire>, &bit: &Wire| {
        let pair = |pair: &[Wire]| {
            let both = circuit.xor(pair[0], pair[1]);
            let other = circuit.and(bit, both);
            circuit.xor(pair[0], other)
        };
        choices.chunks_exact(2).map(pair).collect()
    };
    x.iter().fold(choices, halve)[0]
}

#[cfg(test)]
mod tests {
    use super::*;
    use megrez_kernels::Memory;

    #[test]
    fn digits_fill_the_positions_below_the_top() {
        for arity in [2, 4] {
            for width in 2..=64 {
                let digits = Digits::new(width, arity, |count| 15.0 * count as f64);
                assert_eq!(digits.width() as usize, width);
                assert_eq!(digits.ranges[0].start, 0);
                assert!(digits.ranges.windows(2).all(|d| d[0].end == d[1].start));
                assert!(digits.ranges.iter().all(|d| (1..=WIDEST).contains(&d.len())));
            }
        }
    }

    #[test]
    fn a_digit_is_chosen_from_its_thresholds_for_every_pair_of_digits() {
        for k in 1..=WIDEST {
            // Lane 2^k·v + u, one word for 64 lanes.
            let words = bits::words(1 << (2 * k));
            let lanes = |shift: usize| -> Vec<u64> {
                (0..k).flat_map(|i| bits::pack(1 << (2 * k), |lane| lane as u64 >> (shift + i))).collect()
            };
            let device = megrez_kernels::Reference;
            let [v, u] = [lanes(k), lanes(0)].map(|planes| device.upload(planes).unwrap());
            let mut circuit = Circuit::default();
            let v_bits: Vec<Wire> = (0..k).map(|i| circuit.input(0, i)).collect();
            let u_bits: Vec<Wire> = (0..k).map(|i| circuit.input(1, i)).collect();
            let mut carries = vec![circuit.not(Circuit::ZERO)];
            carries.extend(thresholds(&mut circuit, &v_bits));
            carries.push(Circuit::ZERO);
            carries.reverse();
            let generate = choose(&mut circuit, carries[..1 << k].to_vec(), &u_bits);
            let equal = carries.windows(2).map(|t| circuit.xor(t[0], t[1])).collect();
            let propagate = choose(&mut circuit, equal, &u_bits);
            circuit.output(vec![generate, propagate]);
            let made = device.run_circuit(&circuit.compile(), &[&v, &u], words).unwrap().remove(0);
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
