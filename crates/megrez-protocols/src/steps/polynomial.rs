//! Public functions of masked bits, as polynomials in the masks: what is linear in products of
//! masks that were made before, with coefficients that all who evaluate it know.

use megrez_kernels::{Circuit, Wire};
use std::collections::BTreeMap;

/// A shared bit that products are made of, by number.
pub(crate) type Factor = usize;
/// Factors of a product, rising.
pub(crate) type Set = Vec<Factor>;

/// A sum of products of masks with public coefficients: what a public function of masked bits is.
/// No coefficient is 1, and the empty product is the public summand.
#[derive(Clone, Default)]
pub(crate) struct Sum(BTreeMap<Set, Option<Wire>>);

impl Sum {
    /// 1.
    pub fn one() -> Self {
        Sum(BTreeMap::from([(vec![], None)]))
    }

    /// The products that occur.
    pub fn sets(&self) -> impl Iterator<Item = Set> {
        self.0.keys().cloned()
    }

    /// Times the bit `factor` ⊕ `public`.
    pub fn times(&self, circuit: &mut Circuit, factor: Factor, public: Wire) -> Sum {
        let mut product = self.times_mask(factor);
        for (set, &coefficient) in &self.0 {
            let coefficient = coefficient.map_or(public, |c| circuit.and(c, public));
            product.add(circuit, set.clone(), Some(coefficient));
        }
        product
    }

    /// Times the shared bit `factor`.
    pub fn times_mask(&self, factor: Factor) -> Sum {
        let with = |set: &Set| {
            let mut set = set.clone();
            set.push(factor);
            set.sort_unstable();
            set
        };
        Sum(self.0.iter().map(|(set, &coefficient)| (with(set), coefficient)).collect())
    }

    /// Times a public bit.
    pub fn times_public(&self, circuit: &mut Circuit, public: Wire) -> Sum {
        let times = |circuit: &mut Circuit, c: Option<Wire>| c.map_or(public, |c| circuit.and(c, public));
        Sum(self.0.iter().map(|(set, &c)| (set.clone(), Some(times(circuit, c)))).collect())
    }

    fn add(&mut self, circuit: &mut Circuit, set: Set, coefficient: Option<Wire>) {
        let sum = match (self.0.get(&set).copied(), coefficient) {
            (None, c) => c,
            (Some(Some(a)), Some(b)) => Some(circuit.xor(a, b)),
            (Some(None), Some(a)) | (Some(Some(a)), None) => Some(circuit.not(a)),
            (Some(None), None) => Some(Circuit::ZERO),
        };
        self.0.insert(set, sum);
    }

    /// Plus another.
    pub fn plus(mut self, circuit: &mut Circuit, other: &Sum) -> Sum {
        other.0.iter().for_each(|(set, &coefficient)| self.add(circuit, set.clone(), coefficient));
        self
    }

    /// Component `c`, the planes of products coming from `plane`.
    pub fn component(
        &self,
        circuit: &mut Circuit,
        c: usize,
        plane: impl Fn(&mut Circuit, &[Factor]) -> Wire,
    ) -> Wire {
        let mut sum = Circuit::ZERO;
        for (set, &coefficient) in &self.0 {
            let term = match (set.is_empty(), coefficient) {
                (true, _) if c != 0 => continue,
                (true, None) => circuit.not(Circuit::ZERO),
                (true, Some(public)) => public,
                (false, None) => plane(circuit, set),
                (false, Some(public)) => {
                    let product = plane(circuit, set);
                    circuit.and(public, product)
                }
            };
            sum = circuit.xor(sum, term);
        }
        sum
    }
}
