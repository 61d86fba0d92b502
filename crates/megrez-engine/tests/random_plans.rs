//! Random plans on shares equal `clear`, up to what truncations may add in the last bit. The
//! builder keeps for every value a bound on its size and a bound on that difference, and takes only
//! steps whose bounds fit the ring.

use crate::common::{Rng, mask, run_locally, signed};
use megrez_engine::local::LocalOptions;
use megrez_plan::{ConvGeometry, Kind, List, Op, Plan, Relu, ReluForm, SignBit, ValueId, View};
use megrez_ring::Shape;
use proptest::prelude::*;
use std::collections::HashMap;

/// A value with its bounds, as integers of the ring.
#[derive(Clone, Debug)]
struct Bounded {
    id: ValueId,
    shape: Vec<usize>,
    kind: Kind,
    /// |x| ≤ size under `clear`.
    size: u128,
    /// The value on shares differs from that by at most this.
    error: u128,
}

struct Builder {
    plan: Plan,
    values: Vec<Bounded>,
    /// Turns one number of the test case into choices.
    choices: Rng,
    /// Who runs the plan: some have steps that others lack.
    protocol: &'static str,
}

/// Input size: 2^INPUT, with FRAC fraction bits.
const INPUT: u32 = 9;
const FRAC: u32 = 6;
/// Protocols that have values by their bits.
const WORDS: [&str; 3] = ["meteor", "aby3", "alkaid"];

impl Builder {
    fn choose(&mut self, bound: usize) -> usize {
        self.choices.below(bound as u64) as usize
    }

    /// One of the values that fit, the younger the likelier.
    fn pick(&mut self, fits: impl Fn(&Bounded) -> bool) -> Option<Bounded> {
        let fitting: Vec<&Bounded> = self.values.iter().filter(|v| fits(v)).collect();
        let n = fitting.len();
        if n == 0 {
            return None;
        }
        let (a, b) = (self.choices.below(n as u64), self.choices.below(n as u64));
        Some(fitting[a.max(b) as usize].clone())
    }

    fn ring(&mut self) -> Option<Bounded> {
        self.pick(|v| matches!(v.kind, Kind::Ring { .. }))
    }

    fn push(&mut self, op: Op, inputs: &[&Bounded], size: u128, error: u128) -> Option<Bounded> {
        // Truncations and comparisons take |x| < 2^(ℓ−2).
        if size + error >= 1 << (self.plan.ring - 2) {
            return None;
        }
        let ids: Vec<ValueId> = inputs.iter().map(|v| v.id).collect();
        let name = format!("step-{}", self.plan.steps.len());
        let id = self.plan.step(&name, op, &ids).unwrap_or_else(|e| panic!("{e}"));
        let value = self.plan.value(id);
        let made = Bounded { id, shape: value.shape.dims().to_vec(), kind: value.kind, size, error };
        self.values.push(made.clone());
        Some(made)
    }

    fn constant(&mut self, shape: &[usize]) -> Bounded {
        let shape = Shape::new(shape.to_vec());
        let words: Vec<i64> = (0..shape.elements()).map(|_| self.choices.below(17) as i64 - 8).collect();
        let frac = self.choose(4) as u32;
        let op = Op::Constant { shape: shape.clone(), frac, words };
        let id = self.plan.step(&format!("step-{}", self.plan.steps.len()), op, &[]).unwrap();
        Bounded { id, shape: shape.dims().to_vec(), kind: Kind::Public { frac }, size: 8, error: 0 }
    }

    /// Bounds of a sum of `terms` products.
    fn product(&mut self, op: Op, x: &Bounded, y: &Bounded, terms: usize) -> Option<Bounded> {
        let terms = terms as u128;
        let size = x.size * y.size * terms;
        let error = (x.error * y.size + x.size * y.error + x.error * y.error) * terms;
        self.push(op, &[x, y], size, error)
    }

    /// A second operand of this shape, secret or public.
    fn operand(&mut self, shape: &[usize]) -> Bounded {
        let shape = shape.to_vec();
        let secret = match self.choose(2) {
            0 => self.pick(|v| v.shape == shape && matches!(v.kind, Kind::Ring { .. })),
            _ => None,
        };
        secret.unwrap_or_else(|| self.constant(&shape))
    }

    fn sign(&mut self) -> SignBit {
        let bits = self.plan.ring - 1;
        let list = match self.choose(3) {
            0 => List::Bits,
            1 => List::Digits([vec![3; bits as usize / 3], vec![1; bits as usize % 3]].concat()),
            _ => List::Digits([vec![2; bits as usize / 2], vec![1; bits as usize % 2]].concat()),
        };
        SignBit { list, cut: 0, bits: None }
    }

    /// One step, or none if nothing fits.
    fn grow(&mut self) -> Option<Bounded> {
        let kind = self.choose(16);
        let x = self.ring()?;
        let n = x.shape.len();
        let Kind::Ring { frac } = x.kind else { unreachable!("a ring value was asked for") };
        let axis = self.choose(n);
        match kind {
            0 => {
                let y = self.pick(|v| v.shape == x.shape && v.kind == x.kind)?;
                let (a, b) = (self.choose(7) as i64 - 3, self.choose(7) as i64 - 3);
                let constant = self.choose(200) as i64 - 100;
                let op = Op::Combine { coefficients: vec![a, b], constant };
                let bound = |x, y| u128::from(a.unsigned_abs()) * x + u128::from(b.unsigned_abs()) * y;
                let size = bound(x.size, y.size) + u128::from(constant.unsigned_abs());
                self.push(op, &[&x, &y], size, bound(x.error, y.error))
            }
            1 => {
                let mut order: Vec<usize> = (0..n).collect();
                (1..n).for_each(|i| order.swap(i, self.choose(i + 1)));
                let view = View::transpose(&Shape::new(x.shape.clone()), &order);
                self.push(Op::View(view), &[&x], x.size, x.error)
            }
            2 => {
                let dim = x.shape[axis];
                let view = View::slice(&Shape::new(x.shape.clone()), axis, dim - 1, -1, dim);
                self.push(Op::View(view), &[&x], x.size, x.error)
            }
            3 => {
                let y = self.pick(|v| v.shape == x.shape && v.kind == x.kind)?;
                if x.shape.iter().product::<usize>() > 200 {
                    return None;
                }
                self.push(Op::Concat { axis }, &[&x, &y], x.size.max(y.size), x.error.max(y.error))
            }
            4 => {
                let mut pads = || (0..n).map(|_| self.choose(2)).collect::<Vec<_>>();
                let (before, after) = (pads(), pads());
                if x.shape.iter().product::<usize>() > 200 {
                    return None;
                }
                self.push(Op::Pad { before, after }, &[&x], x.size, x.error)
            }
            5 => {
                let terms = x.shape[axis] as u128;
                self.push(Op::Sum { axis }, &[&x], x.size * terms, x.error * terms)
            }
            6 => {
                let indices = (0..1 + self.choose(4)).map(|_| self.choose(x.shape[axis])).collect();
                self.push(Op::Gather { axis, indices }, &[&x], x.size, x.error)
            }
            7 => {
                let y = self.operand(&x.shape);
                let secret = |v: &Bounded| v.shape == x.shape && matches!(v.kind, Kind::Ring { .. });
                if self.protocol != "meteor" || !secret(&y) || self.choose(2) == 0 {
                    return self.product(Op::Mul, &x, &y, 1);
                }
                let mut factors = vec![x.clone(), y, self.pick(secret)?];
                factors.extend((self.choose(2) == 0).then(|| x.clone()));
                let product = |of: fn(&Bounded) -> u128| {
                    factors.iter().try_fold(1u128, |product, v| product.checked_mul(of(v)))
                };
                let (size, most) = (product(|v| v.size)?, product(|v| v.size + v.error)?);
                self.push(Op::Mul, &factors.iter().collect::<Vec<_>>(), size, most - size)
            }
            8 if n >= 2 => {
                let mut shape = x.shape.clone();
                let terms = shape[n - 1];
                shape[n - 2] = terms;
                shape[n - 1] = 1 + self.choose(3);
                let y = self.operand(&shape);
                self.product(Op::MatMul, &x, &y, terms)
            }
            9 if n == 4 => {
                let groups = if x.shape[1].is_multiple_of(2) { 1 + self.choose(2) } else { 1 };
                let kernel = [x.shape[2].min(1 + self.choose(3)), x.shape[3].min(1 + self.choose(2))];
                let w = [groups * (1 + self.choose(2)), x.shape[1] / groups, kernel[0], kernel[1]];
                let w = self.operand(&w);
                let geometry = ConvGeometry {
                    stride: [1 + self.choose(2), 1],
                    pad: [self.choose(2), 0, 0, self.choose(2)],
                    dilation: [1; 2],
                    groups,
                };
                self.product(Op::Conv(geometry), &x, &w, w.shape[1..].iter().product())
            }
            10 if frac > 0 => {
                let bits = 1 + self.choose(frac as usize) as u32;
                // floor(x/2^f) moves by at most ⌈error/2^f⌉, and the step adds 0 or 1.
                self.push(Op::Truncate { bits }, &[&x], (x.size >> bits) + 1, x.error.div_ceil(1 << bits) + 1)
            }
            11 => {
                let truncate = self.choose(frac as usize + 1) as u32;
                let op = Op::Relu(Relu { sign: self.sign(), form: ReluForm::ThreeRounds, truncate });
                match truncate {
                    0 => self.push(op, &[&x], x.size, x.error),
                    f => self.push(op, &[&x], (x.size >> f) + 1, x.error.div_ceil(1 << f) + 1),
                }
            }
            // Comparisons jump, so only of values that both protocols have exactly.
            12 => {
                let exact = self.pick(|v| matches!(v.kind, Kind::Ring { .. }) && v.error == 0)?;
                let sign = self.sign();
                let bit = self.push(Op::NonNegative(sign), &[&exact], 1, 0)?;
                match self.choose(2) {
                    0 => self.push(Op::BitToRing, &[&bit], 1, 0),
                    _ => Some(bit),
                }
            }
            13 => {
                let bit = self.pick(|v| v.kind == Kind::Bit)?;
                let y = self.pick(|v| v.shape == bit.shape && matches!(v.kind, Kind::Ring { .. }))?;
                self.push(Op::SELECT, &[&bit, &y], y.size, y.error)
            }
            14 => {
                let a = self.pick(|v| v.kind == Kind::Bit)?;
                let b = self.pick(|v| v.kind == Kind::Bit && v.shape == a.shape)?;
                let c = match self.choose(2) {
                    0 => self.push(Op::Xor, &[&a, &b], 1, 0)?,
                    _ => self.push(Op::And, &[&a, &b], 1, 0)?,
                };
                self.push(Op::Not, &[&c], 1, 0)
            }
            // Values by their bits, exact for the same reason.
            15 if WORDS.contains(&self.protocol) => {
                let exact = |v: &Bounded| matches!(v.kind, Kind::Ring { .. }) && v.error == 0;
                let x = self.pick(|v| exact(v) && v.shape.iter().product::<usize>() < 30)?;
                let y = self.pick(|v| exact(v) && v.shape == x.shape)?;
                let [a, b] = [self.push(Op::ToBits, &[&x], 1, 0)?, self.push(Op::ToBits, &[&y], 1, 0)?];
                let sum = self.push(Op::AddBits, &[&a, &b], 1, 0)?;
                self.push(Op::FromBits, &[&sum], x.size + y.size, 0)
            }
            _ => None,
        }
    }
}

/// A plan and the bounds of its outputs: one step, where something fits, per number.
fn build(protocol: &'static str, ring: u32, numbers: &[u64]) -> (Plan, Vec<Bounded>) {
    let mut builder = Builder { plan: Plan::new(ring), values: vec![], choices: Rng(0), protocol };
    for (name, shape) in [("a", vec![1, 2, 4, 3]), ("b", vec![1, 2, 4, 3]), ("c", vec![3, 5])] {
        let id = builder.plan.input(name, "owner", Shape::new(shape.clone()), FRAC);
        let (kind, size) = (Kind::Ring { frac: FRAC }, 1 << INPUT);
        builder.values.push(Bounded { id, shape, kind, size, error: 0 });
    }
    for &number in numbers {
        builder.choices = Rng(number);
        // A choice that does not fit leads to another one.
        (0..8).find(|_| builder.grow().is_some());
    }
    for value in &builder.values {
        builder.plan.output(&format!("value-{}", value.id.0), "owner", value.id);
    }
    builder.plan.validate().unwrap();
    (builder.plan, builder.values)
}

fn compare(ring: u32, numbers: &[u64], seed: u64) -> Result<(), TestCaseError> {
    let protocol = ["mizar", "meteor", "aby3", "alkaid"][seed as usize % 4];
    let (plan, bounds) = build(protocol, ring, numbers);
    let mut rng = Rng(seed);
    let mut words = |n: usize| -> Vec<u64> {
        let one = |rng: &mut Rng| match rng.below(8) {
            0 => 0,
            1 => (1 << INPUT) - 1,
            2 => -(1 << INPUT),
            _ => rng.below(2 << INPUT) as i64 - (1 << INPUT),
        };
        (0..n).map(|_| one(&mut rng) as u64 & mask(ring)).collect()
    };
    let inputs: HashMap<String, Vec<u64>> =
        plan.inputs.iter().map(|i| (i.name.clone(), words(plan.value(i.value).shape.elements()))).collect();
    let [clear, shared] = ["clear", protocol].map(|protocol| {
        run_locally(protocol, &plan, &inputs, &LocalOptions::default()).unwrap().outputs.remove(0)
    });
    for ((bound, clear), shared) in bounds.iter().zip(clear).zip(shared) {
        prop_assert_eq!(clear.len(), shared.len());
        for (&clear, &shared) in clear.iter().zip(&shared) {
            let (clear, shared) = (signed(clear, ring), signed(shared, ring));
            prop_assert!(u128::from(clear.unsigned_abs()) <= bound.size, "{bound:?}: {clear}");
            let difference = u128::from(clear.abs_diff(shared));
            prop_assert!(difference <= bound.error, "{protocol}, {bound:?}: {clear} and {shared}");
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn random_plans_equal_the_oracle_on_32_bits(
        numbers in prop::collection::vec(any::<u64>(), 1..20),
        seed in any::<u64>(),
    ) {
        compare(32, &numbers, seed)?;
    }

    #[test]
    fn random_plans_equal_the_oracle_on_64_bits(
        numbers in prop::collection::vec(any::<u64>(), 1..20),
        seed in any::<u64>(),
    ) {
        compare(64, &numbers, seed)?;
    }
}

#[test]
fn the_builder_makes_every_primitive() {
    let mut rng = Rng(9);
    let mut made = std::collections::BTreeMap::<String, usize>::new();
    for _ in 0..300 {
        let numbers: Vec<u64> = (0..14).map(|_| rng.next()).collect();
        for step in build("meteor", 64, &numbers).0.steps {
            *made.entry(format!("{} inputs", step.inputs.len())).or_default() += 1;
            let name = format!("{:?}", step.op);
            let name: String = name.chars().take_while(|c| c.is_alphanumeric()).collect();
            *made.entry(name).or_default() += 1;
        }
    }
    for op in [
        "Combine",
        "View",
        "Concat",
        "Pad",
        "Sum",
        "Gather",
        "Mul",
        "MatMul",
        "Conv",
        "Truncate",
        "Relu",
        "NonNegative",
        "Select",
        "BitToRing",
        "Xor",
        "And",
        "Not",
        "Constant",
        "ToBits",
        "AddBits",
        "FromBits",
        "3 inputs",
        "4 inputs",
    ] {
        assert!(made.get(op).is_some_and(|&n| n >= 20), "{op}: {made:?}");
    }
}
