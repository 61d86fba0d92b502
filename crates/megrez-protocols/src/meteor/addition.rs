//! The sum of two values in bits on MRSS, of which both are masked, or one is a mask and the other
//! public: what [`super::words`] is made of, with its figures.

use super::adder;
use super::gates::{Factor, Products, Sum, opening};
use crate::Cost;
use crate::mrss::open_planes;
use crate::rss::{Rss, draw};
use crate::steps::tree::{Node, Span, Tree};
use crate::steps::words::{extent, planes};
use megrez_kernels::{Bits, Circuit, Device, Tensor, Wire};
use megrez_ring::{Shape, Word, bits};
use megrez_session::{Error, Party};
use std::sync::{Arc, OnceLock};

/// What is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Signal {
    /// The carry into a position.
    Carry(usize),
    /// Whether a span makes a carry by itself.
    Generate(Span),
    /// Whether it hands one on.
    Propagate(Span),
}

impl Signal {
    /// Whether `span` makes a carry: one that begins at 0 makes that into the position above.
    fn generate(span: Span) -> Self {
        if span.low == 0 { Signal::Carry(span.high + 1) } else { Signal::Generate(span) }
    }
}

/// What everybody knows: bits of m_x and m_y, and masked signals.
#[derive(Clone, Copy)]
enum Public {
    X(usize),
    Y(usize),
    Opened(Signal),
}

/// Where public bits come from.
type Lookup<'a> = &'a dyn Fn(&mut Circuit, Public) -> Wire;

/// A sum of two values in bits.
pub(super) struct Addition {
    width: usize,
    /// Whether both summands are masked; else x is a mask alone, and y is public.
    masked: bool,
    /// What is opened in every round, and from which parts it comes, if not from one position.
    rounds: Vec<Vec<(Signal, Vec<Span>)>>,
    products: OnceLock<Products>,
}

impl Addition {
    /// The bits of ring values: ψ + m.
    pub fn of_value(ring: u32) -> Arc<Self> {
        Addition::made(ring as usize, false)
    }

    /// x + y of `width` masked bits each.
    pub fn of_bits(width: usize) -> Arc<Self> {
        Addition::made(width, true)
    }

    /// Once a process, up to the width of the largest ring.
    fn made(width: usize, masked: bool) -> Arc<Self> {
        static MADE: [[OnceLock<Arc<Addition>>; 65]; 2] = [const { [const { OnceLock::new() }; 65] }; 2];
        let new = || Arc::new(Addition::new(width, masked));
        MADE[usize::from(masked)].get(width).map_or_else(new, |made| made.get_or_init(new).clone())
    }

    fn new(width: usize, masked: bool) -> Self {
        let tree = Tree::best(width - 1);
        let mut rounds = vec![vec![(Signal::Carry(0), vec![]), (Signal::Carry(1), vec![Span::leaf(0)])]];
        rounds.resize(tree.levels.len().max(1), vec![]);
        for (round, Node { span, parts }) in
            tree.levels.iter().enumerate().flat_map(|(i, level)| level.iter().map(move |node| (i, node)))
        {
            rounds[round].push((Signal::generate(*span), parts.clone()));
            if span.low > 0 {
                rounds[round].push((Signal::Propagate(*span), parts.clone()));
            }
        }
        Addition { width, masked, rounds, products: OnceLock::new() }
    }

    /// π of a position.
    fn pi(&self, position: usize) -> Factor {
        position
    }

    /// ψ_y of a position below the top, and ψ_x·ψ_y.
    fn pair(&self, position: usize) -> [Factor; 2] {
        [self.width + position, 2 * self.width + position]
    }

    /// The mask of a signal: those of the carries first.
    fn mask(&self, signal: Signal) -> Factor {
        let first = if self.masked { 3 * self.width - 1 } else { self.width };
        match signal {
            Signal::Carry(position) => first + position,
            signal => {
                let at = self.fresh().position(|s| s == signal).expect("a signal that is opened");
                first + self.width + at
            }
        }
    }

    /// The signals with masks of their own: all but carries.
    fn fresh(&self) -> impl Iterator<Item = Signal> {
        let signals = self.rounds.iter().flatten().map(|(signal, _)| *signal);
        signals.filter(|signal| !matches!(signal, Signal::Carry(_)))
    }

    fn factors(&self) -> usize {
        self.mask(Signal::Carry(self.width)) + self.fresh().count()
    }

    /// `sum` times g of a position.
    fn times_made(&self, circuit: &mut Circuit, sum: &Sum, position: usize, public: Lookup<'_>) -> Sum {
        let (x, y) = (public(circuit, Public::X(position)), public(circuit, Public::Y(position)));
        let made = sum.times_mask(self.pi(position)).times_public(circuit, y);
        if !self.masked {
            return made;
        }
        let (either, both) = (circuit.xor(x, y), circuit.and(x, y));
        let [psi_y, product] = self.pair(position);
        let terms = [
            sum.times_public(circuit, both),
            sum.times_mask(psi_y).times_public(circuit, either),
            sum.times_mask(product),
        ];
        terms.iter().fold(made, |made, term| made.plus(circuit, term))
    }

    /// `sum` times "the span makes a carry".
    fn times_generate(&self, circuit: &mut Circuit, sum: &Sum, span: Span, public: Lookup<'_>) -> Sum {
        if span.is_leaf() {
            return self.times_made(circuit, sum, span.low, public);
        }
        let signal = Signal::generate(span);
        let m = public(circuit, Public::Opened(signal));
        sum.times(circuit, self.mask(signal), m)
    }

    /// `sum` times "the span hands a carry on".
    fn times_propagate(&self, circuit: &mut Circuit, sum: &Sum, span: Span, public: Lookup<'_>) -> Sum {
        if span.is_leaf() {
            let (x, y) = (public(circuit, Public::X(span.low)), public(circuit, Public::Y(span.low)));
            let m = circuit.xor(x, y);
            return sum.times(circuit, self.pi(span.low), m);
        }
        let signal = Signal::Propagate(span);
        let m = public(circuit, Public::Opened(signal));
        sum.times(circuit, self.mask(signal), m)
    }

    /// A signal from its parts, the most significant first.
    fn signal(&self, circuit: &mut Circuit, signal: Signal, parts: &[Span], public: Lookup<'_>) -> Sum {
        let (mut made, mut handed) = (Sum::default(), Sum::one());
        for (at, &part) in parts.iter().enumerate() {
            let own = self.times_generate(circuit, &handed, part, public);
            made = made.plus(circuit, &own);
            if at + 1 < parts.len() || matches!(signal, Signal::Propagate(_)) {
                handed = self.times_propagate(circuit, &handed, part, public);
            }
        }
        if matches!(signal, Signal::Propagate(_)) { handed } else { made }
    }

    /// The products ψ_x·ψ_y of the positions below the top, of factors x and then y.
    fn pairs(&self) -> Products {
        Products::new(2 * self.width, (0..self.width - 1).map(|i| vec![i, self.width + i]))
    }

    /// All products of masks.
    fn products(&self) -> &Products {
        self.products.get_or_init(|| {
            let sets = self.rounds.iter().flatten().flat_map(|(signal, parts)| {
                let sum = self.signal(&mut Circuit::default(), *signal, parts, &|_, _| Circuit::ZERO);
                sum.sets().collect::<Vec<_>>()
            });
            Products::new(self.factors(), sets)
        })
    }

    /// For `n` values.
    pub fn cost(&self, n: usize) -> Cost {
        let before = if self.masked { self.pairs().cost(n) } else { adder::cost(self.width as u32, n) };
        let offline = before.then(self.products().cost(n)).made_offline();
        self.rounds.iter().fold(offline, |cost, signals| cost.then(opening(signals.len(), n)))
    }

    /// The products of masks for ψ + m, with `output` the mask of the result.
    pub fn offline_of_value<W: Word, D: Device>(
        &self,
        party: &mut Party<D>,
        psi: &Rss<Tensor<W, D>>,
        output: &Rss<Bits<D>>,
    ) -> Result<Rss<Bits<D>>, Error> {
        let pi = party.scope("bits", |party| adder::bits(party, psi, W::BITS))?;
        self.offline(party, psi.own.elements(), (pi, vec![]), output)
    }

    /// The products of masks for x + y under the masks `x` and `y`.
    pub fn offline_of_bits<D: Device>(
        &self,
        party: &mut Party<D>,
        [x, y]: [&Rss<Bits<D>>; 2],
        output: &Rss<Bits<D>>,
    ) -> Result<Rss<Bits<D>>, Error> {
        let (me, width, n) = (party.me(), self.width, extent(&x.own.shape).1);
        let [x, y] = [x, y].map(|psi| psi.map(me, |_, psi| Ok::<_, Error>(planes(party, psi)?.0)));
        let (x, y) = (x?, y?);
        let lanes = width * bits::words(n) * 64;
        let pi = Rss::zip(me, &[&x, &y], |_, parts| party.device().xor(parts, false, lanes))?;
        let made = party.scope("positions", |party| {
            self.pairs().make(party, vec![(x, 0..width), (y.clone(), 0..width)], n)
        })?;
        self.offline(party, n, (pi, vec![(y, 0..width), (made, 2 * width..3 * width - 1)]), output)
    }

    /// From the planes of π and of what else positions take.
    fn offline<D: Device>(
        &self,
        party: &mut Party<D>,
        n: usize,
        (pi, more): (Rss<D::Buf<u64>>, Vec<(Rss<D::Buf<u64>>, std::ops::Range<usize>)>),
        output: &Rss<Bits<D>>,
    ) -> Result<Rss<Bits<D>>, Error> {
        let (me, width, words) = (party.me(), self.width, bits::words(n));
        let output = output.map(me, |_, psi| Ok::<_, Error>(planes(party, psi)?.0))?;
        let carries =
            Rss::zip(me, &[&output, &pi], |_, parts| party.device().xor(parts, false, width * words * 64))?;
        let own = self.fresh().count();
        let fresh = Rss::of(me, |c| draw::<u64, D>(party, c, "masks", own * words))?;
        let factors = [vec![(pi, 0..width)], more, vec![(carries, 0..width), (fresh, 0..own)]].concat();
        let products = self.products();
        let made = products.make(party, factors, n)?;
        let shape = Shape::from([products.planes() * words * 64]);
        made.map(me, |_, planes| Ok(Bits::new(shape.clone(), planes.clone())))
    }

    /// m of ψ + m, bit by bit.
    pub fn online_of_value<W: Word, D: Device>(
        &self,
        party: &mut Party<D>,
        m: &Tensor<W, D>,
        made: &Rss<Bits<D>>,
    ) -> Result<D::Buf<u64>, Error> {
        let y = party.device().bit_planes(&m.buf, 0, W::BITS)?;
        self.online(party, m.elements(), vec![y], made)
    }

    /// m of x + y from those of x and y.
    pub fn online_of_bits<D: Device>(
        &self,
        party: &mut Party<D>,
        [x, y]: [&Bits<D>; 2],
        made: &Rss<Bits<D>>,
    ) -> Result<D::Buf<u64>, Error> {
        let both = vec![planes(party, y)?.0, planes(party, x)?.0];
        self.online(party, extent(&x.shape).1, both, made)
    }

    /// From the planes of m_y, and of m_x where x has one.
    fn online<D: Device>(
        &self,
        party: &mut Party<D>,
        n: usize,
        mut buffers: Vec<D::Buf<u64>>,
        made: &Rss<Bits<D>>,
    ) -> Result<D::Buf<u64>, Error> {
        let (me, device, words) = (party.me(), party.device().clone(), bits::words(n));
        let products = self.products();
        let first = buffers.len();
        buffers.extend([made.own.buf.clone(), made.next.buf.clone()]);
        let public = |circuit: &mut Circuit, what| match what {
            Public::X(_) if !self.masked => Circuit::ZERO,
            Public::X(position) => circuit.input(1, position),
            Public::Y(position) => circuit.input(0, position),
            Public::Opened(signal) => {
                let place = |(round, opened): (usize, &Vec<(Signal, Vec<Span>)>)| {
                    opened.iter().position(|(s, _)| *s == signal).map(|at| (round, at))
                };
                let (round, at) =
                    self.rounds.iter().enumerate().find_map(place).expect("a signal that is opened");
                circuit.input(first + 2 + round, at)
            }
        };
        for (round, signals) in self.rounds.iter().enumerate() {
            let mut circuit = Circuit::default();
            let mut outputs = [vec![], vec![]];
            for (signal, parts) in signals {
                let sum = self.signal(&mut circuit, *signal, parts, &public);
                for (side, outputs) in outputs.iter_mut().enumerate() {
                    let product = |circuit: &mut Circuit, set: &[Factor]| {
                        circuit.input(first + side, products.place(set))
                    };
                    let share = sum.component(&mut circuit, (me + side) % 3, product);
                    let mask = product(&mut circuit, &[self.mask(*signal)]);
                    outputs.push(circuit.xor(share, mask));
                }
            }
            let mut run = run(&device, circuit, outputs, &buffers, words)?;
            let share = Rss { next: run.pop().expect("two outputs"), own: run.pop().expect("two outputs") };
            buffers.push(open_planes(party, &format!("level{round}"), (signals.len(), n), share)?);
        }
        let mut circuit = Circuit::default();
        let result = |position| {
            let bits = [Public::X(position), Public::Y(position), Public::Opened(Signal::Carry(position))];
            let bits = bits.map(|bit| public(&mut circuit, bit));
            circuit.sum(&bits)
        };
        let outputs = (0..self.width).map(result).collect();
        let m = run(&device, circuit, [outputs], &buffers, words)?.remove(0);
        Ok(device.pack_planes(&m, self.width, n)?)
    }
}

/// Runs a circuit with these outputs.
fn run<D: Device, const N: usize>(
    device: &D,
    mut circuit: Circuit,
    outputs: [Vec<Wire>; N],
    buffers: &[D::Buf<u64>],
    words: usize,
) -> Result<Vec<D::Buf<u64>>, Error> {
    outputs.into_iter().for_each(|planes| {
        circuit.output(planes);
    });
    Ok(device.run_circuit(&circuit.compile(), &buffers.iter().collect::<Vec<_>>(), words)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_opened_that_nobody_reads() {
        for width in 2..=64 {
            let addition = Addition::of_bits(width);
            let read: Vec<Span> =
                addition.rounds.iter().flatten().flat_map(|(_, parts)| parts.iter().copied()).collect();
            let is_read = |signal| match signal {
                Signal::Generate(span) | Signal::Propagate(span) => read.contains(&span),
                Signal::Carry(_) => true,
            };
            assert!(addition.fresh().all(is_read), "{width}");
        }
    }
}
