//! Random plans for the symbolic checker: steps composed in ways that models hardly ever do, since
//! what broke once was composition. Values are read twice, padded, repeated, scaled by even
//! numbers, kept, left as sums and opened by several readers, and received by whoever owns an
//! input. Numbers may overflow: symbols have no range.

use megrez_plan::{
    Beyond, ConvGeometry, Gives, KEPT, Kind, List, Lookup, Op, Plan, Relu, ReluForm, SignBit, ValueId, View,
    Winner,
};
use megrez_protocols::registry;
use megrez_ring::Shape;
use megrez_weights::{Matrix, Width};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A fixed generator (SplitMix64), so that a plan is named by its number. Never used for shares.
struct Choices(u64);

impl Choices {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn coin(&mut self) -> bool {
        self.below(2) == 0
    }
}

struct Builder {
    plan: Plan,
    values: Vec<ValueId>,
    choices: Choices,
    protocol: &'static registry::Protocol,
}

const FRAC: u32 = 8;
const MOST_ELEMENTS: usize = 130;

impl Builder {
    fn shape(&self, id: ValueId) -> Vec<usize> {
        self.plan.value(id).shape.dims().to_vec()
    }

    /// One of the values that fit, the younger the likelier.
    fn pick(&mut self, fits: impl Fn(&Plan, ValueId) -> bool) -> Option<ValueId> {
        let fitting: Vec<ValueId> = self.values.iter().copied().filter(|&v| fits(&self.plan, v)).collect();
        let n = fitting.len();
        (n > 0).then(|| {
            let (a, b) = (self.choices.below(n), self.choices.below(n));
            fitting[a.max(b)]
        })
    }

    fn kind(&mut self, wanted: fn(Kind) -> bool) -> Option<ValueId> {
        self.pick(|plan, v| wanted(plan.value(v).kind))
    }

    fn alike(&mut self, like: ValueId) -> Option<ValueId> {
        self.pick(|plan, v| plan.value(v) == plan.value(like))
    }

    fn push(&mut self, op: Op, inputs: &[ValueId]) -> Option<ValueId> {
        let name = format!("step{}", self.plan.steps.len());
        let id = self.plan.step(&name, op, inputs).ok()?;
        if self.plan.value(id).shape.elements() > MOST_ELEMENTS {
            self.plan.steps.pop();
            self.plan.values.pop();
            return None;
        }
        self.values.push(id);
        Some(id)
    }

    fn sign(&mut self) -> SignBit {
        let ring = self.plan.ring;
        let cut = self.choices.below(3) as u32;
        let bits = match (self.protocol.name, self.choices.below(3)) {
            ("bicoptor", _) => Some(3 + self.choices.below(8) as u32),
            (_, 0) => None,
            _ => Some(2 + self.choices.below(14) as u32),
        };
        let low = bits.unwrap_or(ring - cut) - 1;
        let list = match self.choices.below(4) {
            0 => List::Bits,
            3 => List::Tree,
            1 => List::Digits([vec![3; low as usize / 3], vec![1; low as usize % 3]].concat()),
            _ => List::Digits([vec![2; low as usize / 2], vec![1; low as usize % 2]].concat()),
        };
        SignBit { list, cut, bits }
    }

    fn relu(&mut self, truncate: u32) -> Op {
        use ReluForm::{DigitTables, Key, Table, ThreeRounds, TwoRounds, TwoRoundsFresh};
        let forms = [ThreeRounds, TwoRounds, TwoRoundsFresh, Table, Key, DigitTables];
        let form = match self.protocol.name {
            "bicoptor" => ThreeRounds,
            _ => forms[self.choices.below(forms.len())],
        };
        let sign = match form {
            ReluForm::Table => {
                SignBit { list: List::Bits, cut: 0, bits: Some(2 + self.choices.below(5) as u32) }
            }
            _ => self.sign(),
        };
        Op::Relu(Relu { sign, form, truncate })
    }

    /// One step, or none if nothing fits.
    fn grow(&mut self) -> Option<ValueId> {
        let x =
            self.pick(|plan, v| matches!(plan.value(v).kind, Kind::Ring { .. } | Kind::Additive { .. }))?;
        let (dims, kind) = (self.shape(x), self.plan.value(x).kind);
        let (shape, rank) = (Shape::new(dims.clone()), dims.len());
        let (Kind::Ring { frac } | Kind::Additive { frac }) = kind else { return None };
        // A sum over its only dimension leaves a number, which no step takes.
        if rank == 0 {
            return None;
        }
        let axis = self.choices.below(rank);
        let choice = self.choices.below(24);
        // Where sums are shared by a step of its own, nothing else opens them.
        let waits = self.protocol.reshares && matches!(kind, Kind::Additive { .. });
        if waits && ((12..=15).contains(&choice) || self.choices.below(4) == 0) {
            return self.push(Op::Reshare, &[x]);
        }
        match choice {
            0 => {
                let y = self.pick(|plan, v| {
                    let v = plan.value(v);
                    v.shape == shape
                        && matches!(v.kind, Kind::Ring { frac: f } | Kind::Additive { frac: f } if f == frac)
                })?;
                let coefficients =
                    vec![[1, 2, -1, 4][self.choices.below(4)], [1, -2, 3][self.choices.below(3)]];
                self.push(Op::Combine { coefficients, constant: 5 }, &[x, y])
            }
            1 => {
                let mut order: Vec<usize> = (0..rank).collect();
                (1..rank).for_each(|i| order.swap(i, self.choices.below(i + 1)));
                self.push(Op::View(View::transpose(&shape, &order)), &[x])
            }
            2 => {
                let to: Vec<usize> = [vec![1 + self.choices.below(3)], dims.clone()].concat();
                let view = View::broadcast(&shape, &to.into())?;
                self.push(Op::View(view), &[x])
            }
            3 => {
                let y = self.alike(x)?;
                self.push(Op::Concat { axis }, &[x, y])
            }
            4 => {
                let mut pads = || (0..rank).map(|_| self.choices.below(2)).collect::<Vec<_>>();
                let (before, after) = (pads(), pads());
                self.push(Op::Pad { before, after }, &[x])
            }
            5 => self.push(Op::Sum { axis }, &[x]),
            6 => {
                let indices =
                    (0..1 + self.choices.below(4)).map(|_| self.choices.below(dims[axis])).collect();
                self.push(Op::Gather { axis, indices }, &[x])
            }
            7 => {
                let frac = 4 + self.choices.below(12) as u32;
                self.push(Op::Rescale { frac }, &[x])
            }
            8 | 9 => {
                let y = self.pick(|plan, v| {
                    let v = plan.value(v);
                    v.shape == shape && matches!(v.kind, Kind::Ring { .. })
                })?;
                self.product(Op::Mul, x, y)
            }
            10 if rank >= 2 => {
                let mut right = dims.clone();
                right[rank - 2] = dims[rank - 1];
                right[rank - 1] = dims[rank - 2];
                let order: Vec<usize> = (0..rank - 2).chain([rank - 1, rank - 2]).collect();
                let y = self.push(Op::View(View::transpose(&shape, &order)), &[x])?;
                self.product(Op::MatMul, x, y)
            }
            11 if rank == 4 => {
                let w = self.pick(|plan, v| {
                    let d = plan.value(v).shape.dims();
                    matches!(plan.value(v).kind, Kind::Ring { .. }) && d.len() == 4 && d[1] == dims[1]
                })?;
                let geometry = ConvGeometry { pad: [self.choices.below(2); 4], ..ConvGeometry::default() };
                self.product(Op::Conv(geometry), x, w)
            }
            12 | 13 if frac > 0 => {
                let bits = 1 + self.choices.below(frac.min(12) as usize) as u32;
                self.push(Op::Truncate { bits }, &[x])
            }
            14 | 15 => {
                // A sum is opened by a truncation.
                let least = usize::from(matches!(kind, Kind::Additive { .. }));
                if frac == 0 && least > 0 {
                    return None;
                }
                let truncate = (least + self.choices.below(frac.min(8) as usize + 1 - least)) as u32;
                let relu = self.relu(truncate);
                self.push(relu, &[x])
            }
            16 if self.protocol.multiplies_truncated && self.choices.coin() => {
                let x = self.kind(|kind| matches!(kind, Kind::Ring { .. }))?;
                let mut bits = vec![1 + self.choices.below(2) as u32];
                let mut factors = vec![x];
                if self.choices.below(3) > 0 {
                    factors.push(self.alike(x)?);
                    bits.push(self.choices.below(2) as u32);
                }
                self.push(Op::MulTruncated { bits }, &factors)
            }
            16 => {
                let sign = self.sign();
                match (self.protocol.name, self.choices.coin()) {
                    ("bicoptor", _) | (_, true) => self.push(Op::NonNegative(sign), &[x]),
                    _ => {
                        let thresholds = (0..1 + self.choices.below(4)).map(|t| t as i64 * 3 - 5).collect();
                        self.push(Op::CompareMany { sign, thresholds }, &[x])
                    }
                }
            }
            23 if self.protocol.name != "bicoptor" => {
                let deviation = 1 << self.choices.below(12);
                self.push(Op::Noise { shape, frac, deviation }, &[])
            }
            22 => {
                let (rows, columns) = (dims[rank - 1], 1 + self.choices.below(4));
                let width = if self.choices.coin() { Width::Eight } else { Width::Sixteen };
                let scales = (0..columns).map(|_| [1, 2, 3][self.choices.below(3)]).collect();
                let mut column = |n: usize, out: &mut [i32]| {
                    out.iter_mut().enumerate().for_each(|(k, q)| *q = (k as i32 * 5 + n as i32 * 3) % 7 - 2);
                };
                let matrix = Matrix::of_integers([rows, columns], width, 2, scales, &mut column).ok()?;
                self.push(Op::TimesPublic(Arc::new(matrix).into()), &[x])
            }
            20 if (self.protocol.lookup || self.protocol.offload) && matches!(kind, Kind::Ring { .. }) => {
                let (cut, degree) =
                    (self.choices.below(1 + frac.min(3) as usize) as u32, self.choices.below(4) as u32);
                // Few segments are dealt as tables, more of them as keys.
                let count = (i64::from(degree) + 1) << (1 + self.choices.below(5));
                let pieces = (0..count).map(|i| i * 7 - 20).collect();
                let mut lookup = Lookup { cut, low: 6, degree, pieces, frac, beyond: None };
                if self.choices.coin() {
                    let slope = if degree > 0 { self.choices.below(3) as i64 } else { 0 };
                    let bits = lookup.bits() + 2 + self.choices.below(9) as u32;
                    lookup.beyond = Some(Beyond { bits, constant: self.choices.below(3) as i64, slope });
                }
                let lookup = Op::Lookup(lookup);
                match self.protocol.lookup {
                    true if self.protocol.reshares && self.choices.coin() => {
                        self.push(Op::Additive(Box::new(lookup)), &[x])
                    }
                    true => self.push(lookup, &[x]),
                    false => self.push(Op::Offloaded(Box::new(lookup)), &[x]),
                }
            }
            21 if (self.protocol.lookup || self.protocol.offload) && matches!(kind, Kind::Ring { .. }) => {
                let gives = if self.choices.coin() { Gives::Value } else { Gives::OneHot };
                let (cut, bits) = (self.choices.below(3) as u32, 2 + self.choices.below(4) as u32);
                // Along the first dimension, where that has two elements or more; of the last two
                // otherwise, which are often equal.
                let x = match dims[0] {
                    1 => {
                        let y = self.alike(x)?;
                        self.push(Op::Concat { axis: 0 }, &[x, y])?
                    }
                    _ => x,
                };
                let winner = Op::Winner(Winner { cut, bits, gives });
                match self.protocol.lookup {
                    true => self.push(winner, &[x]),
                    false => self.push(Op::Offloaded(Box::new(winner)), &[x]),
                }
            }
            17 => {
                let bit = self.kind(|kind| kind == Kind::Bit)?;
                let shape = self.plan.value(bit).shape.clone();
                let ring = self.pick(|plan, v| {
                    plan.value(v).shape == shape && matches!(plan.value(v).kind, Kind::Ring { .. })
                });
                match ring {
                    Some(ring) if self.protocol.selects_truncated && self.choices.below(4) == 0 => {
                        // Two groups, or one where there are no two rows.
                        let rows = shape.dims().first().copied().unwrap_or(0);
                        let first = 1 + self.choices.below(rows.max(1));
                        let groups = [first, rows.saturating_sub(first)].into_iter().filter(|&n| n > 0);
                        self.push(Op::SelectSum { groups: groups.collect() }, &[bit, ring])
                    }
                    Some(ring) if self.choices.coin() => {
                        let truncate = u32::from(self.protocol.selects_truncated && self.choices.coin());
                        self.push(Op::Select { truncate }, &[bit, ring])
                    }
                    _ => self.push(Op::BitToRing, &[bit]),
                }
            }
            18 => {
                let a = self.kind(|kind| kind == Kind::Bit)?;
                let count = 2 + self.choices.below(self.protocol.factors - 1);
                let others: Option<Vec<ValueId>> = (1..count).map(|_| self.alike(a)).collect();
                let bits = [vec![a], others?].concat();
                match self.choices.below(if self.protocol.multiplies_bits { 8 } else { 5 }) {
                    5 => {
                        let word = self.kind(|kind| matches!(kind, Kind::Ring { .. }))?;
                        self.push(Op::LowBit, &[word])
                    }
                    6 => {
                        // A row by a column, or a column by a row of lanes.
                        let n = self.plan.value(a).shape.elements();
                        let [x, y] = match self.choices.coin() {
                            true => [[1, 1, n, 1], [1, n, 1, 1]],
                            false => [[1, n, 1, 1], [1, 1, 1, n]],
                        };
                        let mut shaped = |to: [usize; 4], i: usize| {
                            self.push(Op::View(View::whole(to.into())), &bits[i..=i])
                        };
                        let factors = [shaped(x, 0)?, shaped(y, 1)?];
                        self.push(Op::BitMatMul, &factors)
                    }
                    7 => {
                        let slices = self.shape(a).first().copied().filter(|&slices| slices > 0)?;
                        let mut term = || {
                            let factors = (0..1 + self.choices.below(4)).map(|_| self.choices.below(slices));
                            factors.collect::<BTreeSet<usize>>().into_iter().collect::<Vec<_>>()
                        };
                        let sums = (0..3).map(|i| (0..=i).map(|_| term()).collect()).collect();
                        self.push(Op::BitPolynomials { sums }, &bits[..1])
                    }
                    0 => self.push(Op::Xor, &bits[..2]),
                    1 => self.push(Op::Not, &bits[..1]),
                    2 => self.push(Op::Concat { axis: 0 }, &bits[..2]),
                    3 => {
                        let rows = self.shape(a).first().copied().filter(|&rows| rows > 0)?;
                        let indices = (0..1 + self.choices.below(4)).map(|_| self.choices.below(rows));
                        let indices = indices.collect();
                        self.push(Op::Gather { axis: 0, indices }, &bits[..1])
                    }
                    _ => self.push(Op::And, &bits),
                }
            }
            _ => match (self.protocol.deferred_resharing, self.choices.coin()) {
                (true, true) => {
                    let small = |plan: &Plan, v: ValueId| plan.value(v).shape.elements() < 8;
                    let x = self
                        .pick(|plan, v| small(plan, v) && matches!(plan.value(v).kind, Kind::Ring { .. }))?;
                    let bits = self.push(Op::ToBits, &[x])?;
                    let sum = self.push(Op::AddBits, &[bits, bits])?;
                    self.push(Op::FromBits, &[sum])
                }
                _ => {
                    let operands: Option<Vec<ValueId>> =
                        (0..1 + self.choices.below(3)).map(|_| self.alike(x)).collect();
                    let sign = self.sign();
                    self.push(Op::Maximum(sign), &[vec![x], operands?].concat())
                }
            },
        }
    }

    /// A product, left as a sum now and then where the protocol has such.
    fn product(&mut self, op: Op, x: ValueId, y: ValueId) -> Option<ValueId> {
        let ring = [x, y].iter().all(|&v| matches!(self.plan.value(v).kind, Kind::Ring { .. }));
        let leaves = self.protocol.deferred_resharing || self.protocol.reshares;
        match leaves && ring && self.choices.coin() {
            true => self.push(Op::Additive(Box::new(op)), &[x, y]),
            false => self.push(op, &[x, y]),
        }
    }
}

/// Plan `number` for a protocol: it can run on 32 or 64 bits, but its numbers mean nothing.
///
/// # Panics
/// If there is no such protocol.
pub fn random(protocol: &str, number: u64) -> Plan {
    let protocol = registry::find(protocol).expect("a protocol of the registry");
    let mut choices = Choices(number ^ 0x6d65_6772_657a);
    let ring = if choices.below(4) == 0 { 64 } else { 32 };
    let mut builder = Builder { plan: Plan::new(ring), values: vec![], choices, protocol };
    let kept = builder.choices.below(3) == 0;
    let inputs = [
        ("a", "alice", vec![1, 2, 4, 3]),
        ("b", if kept { KEPT } else { "bob" }, vec![1, 2, 4, 3]),
        ("c", "bob", vec![2, 2, 1, 1]),
        ("d", "alice", vec![3, 5]),
    ];
    for (name, owner, dims) in inputs {
        let id = builder.plan.input(name, owner, dims.into(), FRAC);
        builder.values.push(id);
    }
    let steps = 3 + builder.choices.below(14);
    for _ in 0..steps {
        // A choice that does not fit leads to another one.
        (0..8).find(|_| builder.grow().is_some());
    }
    let Builder { mut plan, values, mut choices, .. } = builder;
    let recipients = ["alice", "carol", KEPT];
    let open = |plan: &Plan, id: ValueId| !matches!(plan.value(id).kind, Kind::Additive { .. });
    for (i, &value) in values.iter().rev().filter(|&&v| open(&plan, v)).collect::<Vec<_>>().iter().enumerate()
    {
        if i == 0 || choices.below(4) == 0 {
            plan.output(&format!("z{i}"), recipients[choices.below(3)], *value);
        }
    }
    if protocol.deferred_resharing {
        // Steps are dealt before products are left as sums.
        let left = plan.steps.iter().any(|step| matches!(step.op, Op::Additive(_)));
        if !left && choices.coin() {
            megrez_passes::offload_to_dealer(&mut plan, choices.below(60));
        }
        megrez_passes::spread_maxima(&mut plan).expect("a plan that was built by the rules keeps to them");
        if choices.coin() {
            megrez_passes::defer_resharing(&mut plan)
                .expect("a plan that was built by the rules keeps to them");
        }
    }
    if protocol.reshares && choices.coin() {
        megrez_passes::defer_openings(&mut plan).expect("a plan that was built by the rules keeps to them");
    }
    plan.validate().expect("the builder keeps to the rules");
    plan
}
