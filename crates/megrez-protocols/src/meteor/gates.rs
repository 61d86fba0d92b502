//! Products of many replicated bits at once, and of masked ones: METEOR's N-MULT (Fig. 5) over F_2,
//! on bit planes.
//!
//! The product of masked bits x_t = m_t ⊕ ψ_t is Σ_S Π_{t∉S} m_t · Π_{t∈S} ψ_t over all sets S of
//! factors. The products of masks are made offline, those of two first, those of three and four
//! from them in a second round: (2^N − 1 − N)·3 bits for N factors. With them the product is
//! replicated without a message, and opening it takes 3 bits in one round, whatever N is.
//!
//! Security: `docs/security/meteor.md`.

use crate::mrss::open_cost;
use crate::rss::{self, Rss, reshare_cost};
use crate::steps::planes::{ReplicatedBit, reshare};
pub(super) use crate::steps::polynomial::{Factor, Set, Sum};
use crate::{Cost, Unit};
use megrez_kernels::{Circuit, Device};
use megrez_ring::bits;
use megrez_session::{Error, Party};
use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

/// The products that a step needs, and where each stands among the planes that it keeps: the
/// factors themselves first, then products of two, then the others.
pub(super) struct Products {
    factors: usize,
    pairs: Vec<Set>,
    larger: Vec<Set>,
    place: HashMap<Set, usize>,
}

impl Products {
    /// The products of the sets, which have at most four factors, and all that they are made from.
    pub fn new(factors: usize, sets: impl Iterator<Item = Set>) -> Self {
        let (mut pairs, mut larger) = (BTreeSet::new(), BTreeSet::new());
        for set in sets {
            match set.len() {
                0 | 1 => {}
                2 => {
                    pairs.insert(set);
                }
                _ => {
                    assert!(set.len() <= 4, "two rounds make products of four");
                    pairs.insert(set[..2].to_vec());
                    if set.len() == 4 {
                        pairs.insert(set[2..].to_vec());
                    }
                    larger.insert(set);
                }
            }
        }
        let (pairs, larger): (Vec<_>, Vec<_>) = (pairs.into_iter().collect(), larger.into_iter().collect());
        let all = (0..factors).map(|f| vec![f]).chain(pairs.iter().cloned()).chain(larger.iter().cloned());
        let place = all.enumerate().map(|(at, set)| (set, at)).collect();
        Products { factors, pairs, larger, place }
    }

    /// How many planes there are.
    pub fn planes(&self) -> usize {
        self.place.len()
    }

    /// The plane of a product.
    pub fn place(&self, set: &[Factor]) -> usize {
        self.place[set]
    }

    /// All of them.
    #[cfg(test)]
    pub fn all(&self) -> impl Iterator<Item = Set> {
        self.place.keys().cloned()
    }

    /// The products of both rounds for `n` lanes.
    pub fn cost(&self, n: usize) -> Cost {
        [&self.pairs, &self.larger]
            .into_iter()
            .filter(|products| !products.is_empty())
            .fold(Cost::LOCAL, |cost, products| {
                cost.then(reshare_cost(Cost::LOCAL, 1, n * products.len(), Unit::Bits(1)))
            })
    }

    /// All planes, of `n` lanes, from those of the factors, which are some planes of buffers, one
    /// after the other.
    pub fn make<D: Device>(
        &self,
        party: &mut Party<D>,
        factors: Vec<(Rss<D::Buf<u64>>, Range<usize>)>,
        n: usize,
    ) -> Result<Rss<D::Buf<u64>>, Error> {
        let (me, words) = (party.me(), bits::words(n));
        let mut places: Vec<(usize, usize)> = vec![];
        let mut buffers: Vec<Rss<D::Buf<u64>>> = vec![];
        for (buffer, planes) in factors {
            places.extend(planes.map(|plane| (buffers.len(), plane)));
            buffers.push(buffer);
        }
        assert_eq!(places.len(), self.factors, "as many planes as factors");
        for (label, products) in [("pairs", &self.pairs), ("larger", &self.larger)] {
            if products.is_empty() {
                continue;
            }
            let zeros = rss::zero::<u64, D>(party, label, products.len() * words)?;
            let mut circuit = Circuit::default();
            let shared = |circuit: &mut Circuit, set: &[Factor]| {
                let (buffer, plane) = places[self.place(set)];
                ReplicatedBit {
                    own: circuit.input(2 * buffer, plane),
                    next: circuit.input(2 * buffer + 1, plane),
                }
            };
            let shares = products.iter().enumerate().map(|(k, set)| {
                // Of two, of two and one, or of two and two.
                let middle = set.len().div_ceil(2);
                let (x, y) = (shared(&mut circuit, &set[..middle]), shared(&mut circuit, &set[middle..]));
                let share = x.and(&mut circuit, y);
                let zeros = [0, 1].map(|z| circuit.input(2 * buffers.len() + z, k));
                circuit.sum(&[share, zeros[0], zeros[1]])
            });
            let shares = shares.collect();
            circuit.output(shares);
            let inputs = buffers.iter().flat_map(|b| [&b.own, &b.next]).chain(&zeros).collect::<Vec<_>>();
            let share = party.device().run_circuit(&circuit.compile(), &inputs, words)?.remove(0);
            let made = reshare(party, label, share, products.len(), n)?;
            places.extend((0..products.len()).map(|plane| (buffers.len(), plane)));
            buffers.push(made);
        }
        // One buffer for all.
        let mut circuit = Circuit::default();
        let outputs = places.iter().map(|&(buffer, plane)| circuit.input(buffer, plane)).collect();
        circuit.output(outputs);
        let program = circuit.compile();
        let all: Vec<_> = buffers.iter().collect();
        Rss::zip(me, &all, |_, inputs| Ok(party.device().run_circuit(&program, inputs, words)?.remove(0)))
    }
}

/// Opening `planes` planes of `n` bits.
pub(super) fn opening(planes: usize, n: usize) -> Cost {
    open_cost(Cost::LOCAL, 1, planes * n, Unit::Bits(1))
}
