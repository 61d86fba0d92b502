//! Sign bits of MRSS values, of one value or against many public thresholds. METEOR, §4.4: msb(x) =
//! msb(m) ⊕ msb(ψ) ⊕ c with c the carry of m and ψ without their top bits. The bits of ψ are shared
//! offline ([`super::adder`]); those of m are public.
//!
//! Deviates from Fig. 3, which finds c by a list of ℓ entries in F_q, one of which is zero if ψ is
//! below a public number; it multiplies them, and opens the product under a random factor and a
//! random flip. Beside its errors (b = L − 2m and q, see `tests/meteor.rs` in megrez-engine) that
//! product cannot be made as printed: the masks of the entries depend on m, so the products of
//! these masks are not there before the inputs are. Here the carry is a bit, found as an adder
//! finds it:
//!
//! - *Digits.* Of four positions, with ψ_i shared and m_i public, the signals "makes a carry" G and
//!   "hands one on" P are sums of products of the ψ_i with coefficients that all know. The products
//!   are made offline: 11 for a digit.
//! - *Nodes.* G_1 ⊕ P_1·G_2 ⊕ P_1·P_2·G_3 ⊕ P_1·P_2·P_3·G_4 and P_1·P_2·P_3·P_4, by N-MULT over F_2
//!   ([`super::gates`]), whose masks are fresh and whose products are therefore made offline
//!   indeed.
//!
//! The lowest digit, and the node that holds it, has no P. The last node's carry is opened as the
//! masked result. A comparison with t is one of m − t under the same ψ: the bits of ψ and the
//! digits' products serve all thresholds; every masked signal and every result has a mask of its
//! own per threshold.
//!
//! phase     rounds                   bits per element (t thresholds)
//! offline   adder's + 2              adder's, and 3 for every product of masks
//! online    1 + ⌈log4 digits⌉        t·3·(Σ(2·blocks − 1) over all levels of more than one block, + 1)
//!
//! | ℓ | 8 | 16 | 32 | 64 | 64, as printed |
//! | --- | --- | --- | --- | --- | --- |
//! | offline, bits / rounds | 107 / 8 | 307 / 10 | 710 / 11 | 1582 / 12 | not given |
//! | online, bits / rounds | 12 / 2 | 24 / 2 | 57 / 3 | 117 / 3 | 1813 / 6 |
//!
//! With a cut of k bits the values (m + 2^k − 1) >> k and bits of ψ from k on are added:
//! floor(x/2^k) rounded up, or one less. So x ≥ 0 and x ≤ −2^k are read rightly, and −2^k < x < 0
//! is read as ≥ 0 with probability 1 − |x|/2^k.
//!
//! Everybody sees uniform bits: components made fresh by sharings of zero, and bits under masks of
//! which one component is unknown to it.
//!
//! Security: `docs/security/meteor.md`.

use super::adder;
use super::compare;
use super::gates::{Factor, Products, Sum, opening};
use crate::mrss::{open_bits, open_planes};
use crate::rss::{Rss, draw};
use crate::{Cost, Encode, EncodeError};
use megrez_kernels::{Bits, Circuit, Device, Tensor, Wire};
use megrez_plan::{Op, SignBit};
use megrez_ring::{Shape, Word, bits};
use megrez_session::{Error, Party};

/// Positions of a digit, and parts of a node.
const ARITY: usize = 4;

/// The products of masks, as planes.
pub struct Material<D: Device> {
    planes: Rss<Tensor<u64, D>>,
}

impl<D: Device> Encode<D> for Material<D> {
    fn write(&self, device: &D, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        self.planes.write(device, out)
    }
    fn read(device: &D, input: &mut &[u8]) -> Result<Self, EncodeError> {
        Ok(Material { planes: Rss::read(device, input)? })
    }
}

/// A comparison: which bits, and what becomes of them level by level.
pub struct Comparison {
    cut: u32,
    /// Bits below the sign.
    low: usize,
    thresholds: Vec<i64>,
    /// Digits, then nodes of each level, to the one that is the result.
    levels: Vec<usize>,
}

/// What everybody knows of a value: a bit of m, or a masked signal of the level before.
#[derive(Clone, Copy)]
enum Public {
    Bit(usize),
    Signal(usize),
}

impl Comparison {
    /// With 0, or with the thresholds.
    fn new(sign: &SignBit, ring: u32, thresholds: &[i64]) -> Self {
        let low = sign.width(ring) as usize - 1;
        let mut levels = vec![low.div_ceil(ARITY)];
        while let Some(blocks) = levels.last().copied().filter(|&blocks| blocks > 1) {
            levels.push(blocks.div_ceil(ARITY));
        }
        Comparison { cut: sign.cut, low, thresholds: thresholds.to_vec(), levels }
    }

    /// Bits of ψ that are shared.
    fn width(&self) -> u32 {
        self.cut + self.low as u32 + 1
    }

    /// Masked signals of a level.
    fn signals_of(&self, level: usize) -> usize {
        if self.levels[level] > 1 { 2 * self.levels[level] - 1 } else { 0 }
    }

    /// Masked signals of a threshold.
    fn masks(&self) -> usize {
        (0..self.levels.len()).map(|level| self.signals_of(level)).sum()
    }

    /// Bit `position` of ψ above the cut.
    fn bit(&self, position: usize) -> Factor {
        position
    }

    /// The mask of a signal.
    fn mask(&self, threshold: usize, level: usize, signal: usize) -> Factor {
        let before: usize = (0..level).map(|l| self.signals_of(l)).sum();
        self.low + 1 + threshold * self.masks() + before + signal
    }

    /// The signals of a level: G and P of every block, the most significant first.
    fn signals(
        &self,
        circuit: &mut Circuit,
        (threshold, level): (usize, usize),
        public: &dyn Fn(&mut Circuit, Public) -> Wire,
    ) -> Vec<Sum> {
        let mut signals = vec![];
        for block in 0..self.levels[level] {
            // From the most significant part: G is that of the part, or that of a lower one handed
            // on by all above.
            let (mut generate, mut propagate) = (Sum::default(), Sum::one());
            let first = block * ARITY;
            match level.checked_sub(1) {
                None => {
                    for position in (0..self.low).rev().skip(first).take(ARITY) {
                        let (psi, m) = (self.bit(position), public(circuit, Public::Bit(position)));
                        let made = propagate.times_mask(psi).times_public(circuit, m);
                        generate = generate.plus(circuit, &made);
                        propagate = propagate.times(circuit, psi, m);
                    }
                }
                Some(before) => {
                    for part in (0..self.levels[before]).skip(first).take(ARITY) {
                        let masked = |circuit: &mut Circuit, signal| {
                            (self.mask(threshold, before, signal), public(circuit, Public::Signal(signal)))
                        };
                        let (mask, m) = masked(circuit, 2 * part);
                        let made = propagate.times(circuit, mask, m);
                        generate = generate.plus(circuit, &made);
                        if part + 1 < self.levels[before] {
                            let (mask, m) = masked(circuit, 2 * part + 1);
                            propagate = propagate.times(circuit, mask, m);
                        }
                    }
                }
            }
            signals.push(generate);
            if block + 1 < self.levels[level] {
                signals.push(propagate);
            }
        }
        signals
    }

    /// All products of masks.
    fn products(&self) -> Products {
        let steps =
            (0..self.thresholds.len()).flat_map(|t| (0..self.levels.len()).map(move |level| (t, level)));
        let sets = steps.flat_map(|step| {
            let signals = self.signals(&mut Circuit::default(), step, &|_, _| Circuit::ZERO);
            signals.iter().flat_map(Sum::sets).collect::<Vec<_>>()
        });
        Products::new(self.low + 1 + self.thresholds.len() * self.masks(), sets)
    }
}

impl compare::Comparison for Comparison {
    type Material<D: Device> = Material<D>;
    type Sent<D: Device> = ();
    const TAKES_M: bool = true;

    fn of(op: &Op, ring: u32) -> Option<Self> {
        let (sign, thresholds) = compare::compared(op, ring)?;
        Some(Comparison::new(&sign, ring, thresholds))
    }

    fn cost(&self, n: usize) -> Cost {
        let offline = adder::cost(self.width(), n).then(self.products().cost(n));
        let levels = (0..self.levels.len()).map(|level| self.signals_of(level).max(1));
        levels.fold(offline.made_offline(), |cost, signals| {
            cost.then(opening(signals * self.thresholds.len(), n))
        })
    }

    fn offline<W: Word, D: Device>(
        &self,
        party: &mut Party<D>,
        psi: &Rss<Tensor<W, D>>,
    ) -> Result<Material<D>, Error> {
        let (me, n) = (party.me(), psi.own.elements());
        let words = bits::words(n);
        let masks = self.thresholds.len() * self.masks();
        let width = self.width() as usize;
        let psi_bits = party.scope("bits", |party| adder::bits(party, psi, self.width()))?;
        let fresh = Rss::of(me, |c| draw::<u64, D>(party, c, "masks", masks * words))?;
        let products = self.products();
        let factors = vec![(psi_bits, self.cut as usize..width), (fresh, 0..masks)];
        let planes = products.make(party, factors, n)?;
        let shape = Shape::from([products.planes(), words]);
        Ok(Material {
            planes: planes.map(me, |_, buf| Ok::<_, Error>(Tensor::new(shape.clone(), buf.clone())))?,
        })
    }

    fn send<W: Word, D: Device>(
        &self,
        _: &mut Party<D>,
        _: Option<&D::Buf<W>>,
        _: &Rss<Bits<D>>,
        _: &Material<D>,
    ) -> Result<(), Error> {
        Ok(())
    }

    fn receive<W: Word, D: Device>(
        &self,
        party: &mut Party<D>,
        m: Option<&Tensor<W, D>>,
        mask: &Rss<Bits<D>>,
        (): (),
        material: Material<D>,
    ) -> Result<D::Buf<u64>, Error> {
        let m = m.expect("all parties take part with m");
        let (me, n, count) = (party.me(), m.elements(), self.thresholds.len());
        let (device, words) = (party.device().clone(), bits::words(n));
        let products = self.products();
        // The planes that are there: m of every threshold, both components of the products, of the
        // output's mask, then what is opened.
        let up = W::ONE.shl(self.cut).sub(W::ONE);
        let mut buffers: Vec<D::Buf<u64>> = vec![];
        for &t in &self.thresholds {
            let shifted = device.combine(&[(W::ONE, &m.buf)], up.sub(W::from_i64(t)), n)?;
            buffers.push(device.bit_planes(&shifted, self.cut, self.low as u32 + 1)?);
        }
        buffers.extend([material.planes.own.buf, material.planes.next.buf]);
        for component in [&mask.own, &mask.next] {
            buffers.push(device.unpack_planes(&component.buf, count, n)?);
        }
        for level in 0..self.levels.len() {
            let mut circuit = Circuit::default();
            let result = level + 1 == self.levels.len();
            let mut outputs = [vec![], vec![]];
            for threshold in 0..count {
                let public = |circuit: &mut Circuit, what| match what {
                    Public::Bit(position) => circuit.input(threshold, position),
                    Public::Signal(signal) => {
                        circuit.input(count + 3 + level, threshold * self.signals_of(level - 1) + signal)
                    }
                };
                let mut signals = self.signals(&mut circuit, (threshold, level), &public);
                if result {
                    // [x ≥ t] = ¬(m_top ⊕ ψ_top ⊕ c).
                    let carry = signals.pop().unwrap_or_default();
                    let top = public(&mut circuit, Public::Bit(self.low));
                    let top = Sum::one().times(&mut circuit, self.bit(self.low), top);
                    signals = vec![carry.plus(&mut circuit, &top).plus(&mut circuit, &Sum::one())];
                }
                for (signal, sum) in signals.iter().enumerate() {
                    for (side, outputs) in outputs.iter_mut().enumerate() {
                        let c = (me + side) % 3;
                        let product = |circuit: &mut Circuit, set: &[Factor]| {
                            circuit.input(count + side, products.place(set))
                        };
                        let share = sum.component(&mut circuit, c, product);
                        let mask = match result {
                            true => circuit.input(count + 2 + side, threshold),
                            false => product(&mut circuit, &[self.mask(threshold, level, signal)]),
                        };
                        outputs.push(circuit.xor(share, mask));
                    }
                }
            }
            outputs.into_iter().for_each(|planes| {
                circuit.output(planes);
            });
            let inputs: Vec<_> = buffers.iter().collect();
            let mut made = device.run_circuit(&circuit.compile(), &inputs, words)?;
            let next = made.pop().expect("two outputs");
            let share = Rss { own: made.pop().expect("two outputs"), next };
            let label = format!("level{level}");
            if result {
                let packed = share.map(me, |_, planes| device.pack_planes(planes, count, n))?;
                return open_bits(party, &label, count * n, packed);
            }
            buffers.push(open_planes(party, &label, (count * self.signals_of(level), n), share)?);
        }
        unreachable!("the last level is the result")
    }
}

#[cfg(test)]
mod tests {
    use super::compare::Comparison as _;
    use super::*;
    use megrez_kernels::Memory;
    use megrez_kernels::Reference;
    use megrez_session::Phase::{Offline, Online};

    /// One party that holds everything: [x ≥ 0] for every lane, the masks of signals from a fixed
    /// generator.
    fn non_negative(comparison: &Comparison, m: &[u8], psi: &[u8]) -> Vec<u64> {
        let (n, words) = (m.len(), bits::words(m.len()));
        let up = (1u8 << comparison.cut).wrapping_sub(1);
        let plane = |values: &[u8], up: u8, i: usize| {
            bits::pack(n, |e| u64::from(values[e].wrapping_add(up)) >> (comparison.cut as usize + i))
        };
        let width = comparison.low + 1;
        let mut factors: Vec<Vec<u64>> = (0..width).map(|i| plane(psi, 0, i)).collect();
        factors.extend((0..comparison.masks() as u64).map(|i| {
            bits::pack(n, |e| (e as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15 ^ (i << 40)) >> 61)
        }));
        let products = comparison.products();
        let mut planes = vec![vec![]; products.planes()];
        for set in products.all() {
            let product = |w: usize| set.iter().fold(u64::MAX, |p, &f| p & factors[f][w]);
            planes[products.place(&set)] = (0..words).map(product).collect();
        }
        let masks: Vec<u64> = (0..width).flat_map(|i| plane(m, up, i)).collect();
        let mut buffers = vec![masks, planes.concat()];
        for level in 0..comparison.levels.len() {
            let mut circuit = Circuit::default();
            let public = |circuit: &mut Circuit, what| match what {
                Public::Bit(position) => circuit.input(0, position),
                Public::Signal(signal) => circuit.input(1 + level, signal),
            };
            let signals = comparison.signals(&mut circuit, (0, level), &public);
            let product = |circuit: &mut Circuit, set: &[Factor]| circuit.input(1, products.place(set));
            let result = level + 1 == comparison.levels.len();
            let outputs = signals.iter().enumerate().map(|(i, sum)| {
                let value = sum.component(&mut circuit, 0, product);
                let mask = match result {
                    true => Circuit::ZERO,
                    false => product(&mut circuit, &[comparison.mask(0, level, i)]),
                };
                circuit.xor(value, mask)
            });
            let outputs = outputs.collect();
            circuit.output(outputs);
            let inputs: Vec<_> = buffers.iter().map(|b| Reference.upload(b.clone()).unwrap()).collect();
            let inputs: Vec<_> = inputs.iter().collect();
            let made = Reference.run_circuit(&circuit.compile(), &inputs, words).unwrap().remove(0);
            buffers.push(Reference.download(made).unwrap());
        }
        let carry = buffers.pop().unwrap();
        let top = |values: &[u8], up: u8, e: usize| {
            u64::from(values[e].wrapping_add(up)) >> (comparison.cut as usize + comparison.low)
        };
        (0..n).map(|e| 1 ^ (top(m, up, e) ^ top(psi, 0, e) ^ bits::get(&carry, e)) & 1).collect()
    }

    #[test]
    fn the_sign_and_its_cut_are_as_stated_for_every_value_and_mask() {
        let (x, psi): (Vec<u8>, Vec<u8>) = (0..1u32 << 16).map(|i| ((i >> 8) as u8, i as u8)).unzip();
        let m: Vec<u8> = x.iter().zip(&psi).map(|(x, psi)| x.wrapping_sub(*psi)).collect();
        for cut in 0..7 {
            for lambda in 2..=8 - cut {
                let sign = SignBit { cut, bits: Some(lambda), ..SignBit::FULL };
                let got = non_negative(&Comparison::new(&sign, 8, &[0]), &m, &psi);
                let half = 1i64 << (cut + lambda - 1);
                for x in -half..=half - (1 << cut) {
                    let positive: u64 = got[(x as u8 as usize) << 8..][..256].iter().sum();
                    let expected = match x {
                        0.. => 256,
                        x if x <= -(1 << cut) => 0,
                        x => 256 - ((256 * x.unsigned_abs()) >> cut),
                    };
                    assert_eq!(positive, expected, "cut {cut}, {lambda} bits, x = {x}");
                }
            }
        }
    }

    #[test]
    fn the_costs_are_those_of_the_head() {
        for (ring, offline, online) in [
            (8, (107.0, 8), (12.0, 2)),
            (16, (307.0, 10), (24.0, 2)),
            (32, (710.0, 11), (57.0, 3)),
            (64, (1582.0, 12), (117.0, 3)),
        ] {
            let cost = Comparison::new(&SignBit::FULL, ring, &[0]).cost(1);
            let of = |phase| (cost.bits(phase), cost.rounds(phase));
            assert_eq!((of(Offline), of(Online)), (offline, online), "{ring}");
        }
        // Thresholds share the bits of ψ and the digits' products: 288 of 1582 bits are a
        // threshold's own.
        let cost = Comparison::new(&SignBit::FULL, 64, &[0; 3]).cost(1);
        assert_eq!((cost.bits(Offline), cost.bits(Online)), (1582.0 + 2.0 * 288.0, 3.0 * 117.0));
    }
}
