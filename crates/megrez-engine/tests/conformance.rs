//! The conformance suite: every protocol of the registry, every primitive, every ring. Values equal the plaintext oracle;
//! the meter equals the formulas exactly, message by message; every message is uniform whatever the secret.

use megrez_engine::local::{LocalOptions, LocalRun, run};
use megrez_engine::{PlanCost, faults};
use megrez_kernels::Cpu;
use megrez_plan::{ConvGeometry, List, Lookup, Op, Plan, Relu, ReluForm, SignBit, Value, ValueId, View};
use megrez_protocols::{Cost, Suite, Unit, registry};
use megrez_session::{Phase, Sent, Tap};
use std::collections::HashMap;

/// A primitive with the inputs it is tested on.
struct Case {
    name: String,
    plan: Plan,
    inputs: HashMap<String, Vec<u64>>,
    /// Truncations may be one higher in the last bit than the oracle, which rounds down.
    truncates: bool,
}

fn mask(ring: u32) -> u64 {
    u64::MAX >> (64 - ring)
}

/// Test data: a fixed generator, so that failures repeat. Never used for shares.
struct Data(u64);

impl Data {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Values in [−2^bits, 2^bits), edges first, then random; all of them if the ring is small.
    fn ring(&mut self, ring: u32, bits: u32, n: usize) -> Vec<u64> {
        let low = -(1i128 << bits);
        let edges = [0, 1, -1, 2, -2, low, low + 1, -low - 1, -low - 2, low / 2, -low / 2, -low / 2 - 1];
        (0..n)
            .map(|i| match edges.get(i) {
                _ if ring == 8 => (low + i as i128 % (2 << bits)) as u64 & mask(ring),
                Some(&e) => e as u64 & mask(ring),
                None => ((((self.next() as i64) >> (63 - bits)) as i128) as u64) & mask(ring),
            })
            .collect()
    }
}

/// Bits as inputs: a bit enters as the sign of a value.
fn bit_of(plan: &mut Plan, name: &str, x: ValueId) -> ValueId {
    plan.step(name, Op::NonNegative(SignBit::FULL), &[x]).unwrap()
}

fn relu(sign: SignBit, truncate: u32) -> Op {
    relu_as(ReluForm::ThreeRounds, sign, truncate)
}

fn relu_as(form: ReluForm, sign: SignBit, truncate: u32) -> Op {
    Op::Relu(Relu { sign, form, truncate })
}

/// Pieces of one function: 3 − 5·x + 7·x² of all words, 3 + y of all y = x / 2^cut, or 3.
fn pieces(ring: u32, cut: u32, degree: u32) -> Lookup {
    let low = ring - cut - if degree == 0 { 1 } else { 3 };
    let piece = |h: i64| {
        let start = (if h < 4 { h } else { h - 8 }) << low;
        match degree {
            0 => vec![3],
            1 => vec![start + 3, 1],
            _ => {
                let square = start.wrapping_mul(start).wrapping_mul(7);
                let first = square.wrapping_sub(start.wrapping_mul(5)).wrapping_add(3);
                vec![first, start.wrapping_mul(14).wrapping_sub(5), 7]
            }
        }
    };
    let pieces = (0..if degree == 0 { 2 } else { 8 }).flat_map(piece);
    let pieces = pieces.map(|c: i64| c << (64 - ring) >> (64 - ring)).collect();
    Lookup { cut, low, degree, pieces, frac: ring / 4 }
}

/// Digit widths that sum to λ − 1, threes first.
fn digits(lambda: u32) -> SignBit {
    let mut widths = vec![3; (lambda as usize - 1) / 3];
    match (lambda - 1) % 3 {
        0 => {}
        rest => widths.push(rest),
    }
    SignBit { list: List::Digits(widths), cut: 0, bits: None }
}

fn cases(ring: u32, n: usize) -> Vec<Case> {
    let mut data = Data(u64::from(ring));
    let mut cases = Vec::new();
    let mut case = |name: &str,
                    truncates,
                    inputs: &[(&str, Vec<usize>, u32)],
                    build: &dyn Fn(&mut Plan, &[ValueId]) -> ValueId| {
        let mut plan = Plan::new(ring);
        let mut words = HashMap::new();
        let ids: Vec<ValueId> = inputs
            .iter()
            .map(|(name, shape, bits)| {
                let shape = megrez_ring::Shape::new(shape.clone());
                words.insert((*name).to_string(), data.ring(ring, *bits, shape.elements()));
                plan.input(name, "owner", shape, ring / 4)
            })
            .collect();
        let output = build(&mut plan, &ids);
        plan.output("z", "owner", output);
        plan.validate().unwrap();
        cases.push(Case { name: name.into(), plan, inputs: words, truncates });
    };
    let (full, quarter) = (ring - 1, ring - 2);
    let x = |bits| ("x", vec![n], bits);
    let y = |bits| ("y", vec![n], bits);
    let f = ring / 4;

    case("combine", false, &[x(full), y(full)], &|p, v| {
        p.step("op", Op::Combine { coefficients: vec![3, -2], constant: 5 }, v).unwrap()
    });
    case("mul", false, &[x(full), y(full)], &|p, v| p.step("op", Op::Mul, v).unwrap());
    for count in [3, 4] {
        let factors = ["x", "y", "z", "w"].map(|name| (name, vec![n], full));
        case(&format!("many/{count}"), false, &factors[..count], &|p, v| p.step("op", Op::Mul, v).unwrap());
    }
    case("many/square", false, &[x(full), y(full)], &|p, v| {
        let square = p.step("product", Op::Mul, &[v[0], v[1], v[0]]).unwrap();
        p.step("op", Op::Mul, &[square, v[0], square, v[1]]).unwrap()
    });
    case("mul-public", false, &[x(full)], &|p, v| {
        let words = (0..n as i64).map(|i| i % 7 - 3).collect();
        let c = p.step("c", Op::Constant { shape: [n].into(), frac: 2, words }, &[]).unwrap();
        p.step("op", Op::Mul, &[v[0], c]).unwrap()
    });
    case("mul-public/joined", false, &[x(full)], &|p, v| {
        let (a, b) = (n / 2, n - n / 2);
        let mut part = |name, n: usize, word| {
            p.step(name, Op::Constant { shape: [n].into(), frac: 2, words: vec![word; n] }, &[]).unwrap()
        };
        let parts = [part("first", a, 3), part("second", b, -2)];
        let c = p.step("joined", Op::Concat { axis: 0 }, &parts).unwrap();
        p.step("op", Op::Mul, &[v[0], c]).unwrap()
    });
    case("matmul", false, &[("x", vec![2, 5, 7], full), ("y", vec![2, 7, 3], full)], &|p, v| {
        p.step("op", Op::MatMul, v).unwrap()
    });
    let geometry = ConvGeometry { stride: [2, 1], pad: [1, 0, 2, 1], dilation: [1, 2], groups: 2 };
    case("conv", false, &[("x", vec![2, 4, 6, 7], full), ("w", vec![6, 2, 3, 2], full)], &|p, v| {
        p.step("op", Op::Conv(geometry), v).unwrap()
    });
    case("structure", false, &[("x", vec![4, 6], full), ("y", vec![4, 3], full)], &|p, v| {
        let view = View::transpose(&[4, 6].into(), &[1, 0]);
        let t = p.step("view", Op::View(view), &[v[0]]).unwrap();
        let padded = p.step("pad", Op::Pad { before: vec![1, 0], after: vec![0, 2] }, &[t]).unwrap();
        let rows = p.step("gather", Op::Gather { axis: 0, indices: vec![5, 0, 5, 2] }, &[padded]).unwrap();
        let joined = p.step("concat", Op::Concat { axis: 1 }, &[rows, v[1]]).unwrap();
        p.step("op", Op::Sum { axis: 0 }, &[joined]).unwrap()
    });
    case("truncate", true, &[x(quarter)], &|p, v| p.step("op", Op::Truncate { bits: f }, v).unwrap());
    for (kind, sign) in [("bits", SignBit::FULL), ("digits", digits(ring))] {
        case(&format!("non-negative/{kind}"), false, &[x(full)], &|p, v| {
            p.step("op", Op::NonNegative(sign.clone()), v).unwrap()
        });
        case(&format!("relu/{kind}"), false, &[x(full)], &|p, v| {
            p.step("op", relu(sign.clone(), 0), v).unwrap()
        });
        case(&format!("relu-truncate/{kind}"), true, &[x(quarter)], &|p, v| {
            p.step("op", relu(sign.clone(), f), v).unwrap()
        });
    }
    // One against many, edges among the thresholds; |x − t| stays in range.
    let (half, edge) = (1i64 << (ring - 3), 1i64 << (ring - 4));
    for (kind, sign) in [("bits", SignBit::FULL), ("digits", digits(ring))] {
        let thresholds = vec![0, 1, -1, edge, -half, half - 1, 0];
        case(&format!("compare-many/{kind}"), false, &[x(quarter)], &|p, v| {
            p.step("op", Op::CompareMany { sign: sign.clone(), thresholds: thresholds.clone() }, v).unwrap()
        });
    }
    case("compare-many/chain", false, &[x(quarter)], &|p, v| {
        let op = Op::CompareMany { sign: digits(ring), thresholds: vec![-edge, edge] };
        let bits = p.step("many", op, v).unwrap();
        let both = View::broadcast(&[n].into(), &[2, n].into()).unwrap();
        let both = p.step("both", Op::View(both), v).unwrap();
        p.step("op", Op::Select, &[bits, both]).unwrap()
    });
    case("compare-many/late", false, &[x(quarter)], &|p, v| {
        let z = p.step("relu", relu_as(ReluForm::TwoRounds, SignBit::FULL, 0), v).unwrap();
        p.step("op", Op::CompareMany { sign: digits(ring), thresholds: vec![1, edge] }, &[z]).unwrap()
    });
    // The largest of two, three and four values; a cut is exact on its multiples; one input's mask deferred, one value twice.
    let z = |bits| ("z", vec![n], bits);
    case("maximum/two", false, &[x(quarter), y(quarter)], &|p, v| {
        p.step("op", Op::Maximum(SignBit::FULL), v).unwrap()
    });
    for (kind, sign) in [("bits", SignBit::FULL), ("digits", digits(ring))] {
        case(&format!("maximum/three/{kind}"), false, &[x(quarter), y(quarter), z(quarter)], &|p, v| {
            p.step("op", Op::Maximum(sign.clone()), v).unwrap()
        });
    }
    case("maximum/cut", false, &[x(quarter - 4), y(quarter - 4), z(quarter - 4)], &|p, v| {
        let sign = SignBit { cut: 2, bits: None, list: List::Bits };
        let times_four = |p: &mut Plan, i: usize| {
            let op = Op::Combine { coefficients: vec![4], constant: 0 };
            p.step(&format!("times-four-{i}"), op, &v[i..=i]).unwrap()
        };
        let v = [0, 1, 2].map(|i| times_four(p, i));
        p.step("op", Op::Maximum(sign), &v).unwrap()
    });
    case("maximum/late", false, &[x(quarter), y(quarter)], &|p, v| {
        let deferred = p.step("relu", relu_as(ReluForm::TwoRounds, SignBit::FULL, 0), &v[..1]).unwrap();
        p.step("op", Op::Maximum(digits(ring)), &[v[1], deferred, v[0], v[1]]).unwrap()
    });
    // The same by steps that every protocol has, alone and as a part of a ReLU.
    let four = [x(quarter - 1), y(quarter - 1), z(quarter - 1), ("w", vec![n], quarter - 1)];
    for count in 2..=4 {
        case(&format!("spread/{count}"), false, &four[..count], &|p, v| {
            let z = p.step("op", Op::Maximum(SignBit::FULL), v).unwrap();
            p.output("w", "owner", z);
            megrez_passes::spread_maxima(p).unwrap();
            p.outputs.clear();
            z
        });
    }
    for truncate in [0, f] {
        case(&format!("spread/relu/{truncate}"), truncate > 0, &four, &|p, v| {
            let sign = SignBit { cut: 1, bits: Some(ring - 1), ..SignBit::FULL };
            let z = p.step("max", Op::Maximum(sign), v).unwrap();
            let z = p.step("op", relu(SignBit::FULL, truncate), &[z]).unwrap();
            megrez_passes::spread_maxima(p).unwrap();
            z
        });
    }
    // Steps of the other family on replicated values: alone, and behind and before steps of this one.
    for (name, form) in
        [("3r", ReluForm::ThreeRounds), ("2r", ReluForm::TwoRounds), ("2r-fresh", ReluForm::TwoRoundsFresh)]
    {
        for truncate in [0, f] {
            case(&format!("dealt/relu/{name}/{truncate}"), truncate > 0, &[x(quarter)], &|p, v| {
                let relu = relu_as(form, digits(ring), truncate);
                p.step("op", Op::Offloaded(Box::new(relu)), v).unwrap()
            });
        }
    }
    case("dealt/maximum", false, &[x(quarter), y(quarter), z(quarter)], &|p, v| {
        p.step("op", Op::Offloaded(Box::new(Op::Maximum(digits(ring)))), v).unwrap()
    });
    case("dealt/chain", false, &[x(quarter / 2), y(quarter / 2)], &|p, v| {
        let z = p.step("product", Op::Mul, v).unwrap();
        let relu = relu_as(ReluForm::ThreeRounds, digits(ring), 0);
        let z = p.step("relu", Op::Offloaded(Box::new(relu)), &[z]).unwrap();
        p.step("op", Op::Mul, &[z, z]).unwrap()
    });
    // The cut on few bits, fused with a truncation that drops at least as much: no error inside the range.
    let few = SignBit { cut: f, bits: Some(ring / 2), ..digits(ring / 2) };
    case("relu-truncate/cut", true, &[x(f + ring / 2 - 2)], &|p, v| {
        p.step("op", relu(few.clone(), f), v).unwrap()
    });
    // The early forms, and what follows them: a deferred mask goes through local steps and products to fresh masks.
    for (name, form) in
        [("2r", ReluForm::TwoRounds), ("2r-fresh", ReluForm::TwoRoundsFresh), ("table", ReluForm::Table)]
    {
        let narrow = SignBit { cut: ring - ring.min(8), bits: Some(ring.min(8)), list: List::Bits };
        let (plain, fused) = match form {
            // A table compares few bits: at its top the cut is exact only for multiples of 2^cut.
            ReluForm::Table if ring > 8 => (None, None),
            ReluForm::Table => (Some(narrow.clone()), Some(narrow)),
            _ => (Some(SignBit::FULL), Some(digits(ring))),
        };
        if let (Some(plain), Some(fused)) = (plain, fused) {
            case(&format!("relu/{name}"), false, &[x(full)], &|p, v| {
                p.step("op", relu_as(form, plain.clone(), 0), v).unwrap()
            });
            case(&format!("relu-truncate/{name}"), true, &[x(quarter)], &|p, v| {
                p.step("op", relu_as(form, fused.clone(), f), v).unwrap()
            });
            case(&format!("chain/{name}"), false, &[x(full), y(full)], &|p, v| {
                let z = p.step("relu", relu_as(form, plain.clone(), 0), &[v[0]]).unwrap();
                let z = p
                    .step("local", Op::Combine { coefficients: vec![1, 3], constant: 7 }, &[z, v[1]])
                    .unwrap();
                let z = p.step("product", Op::Mul, &[z, v[1]]).unwrap();
                p.step("again", relu_as(form, plain.clone(), 0), &[z]).unwrap()
            });
        }
    }
    // The cut by table, on a ring of any size, fused with a truncation that drops at least as much.
    let table = SignBit { cut: f, bits: Some(6), list: List::Bits };
    case("relu-truncate/table-cut", true, &[x(f + 4)], &|p, v| {
        p.step("op", relu_as(ReluForm::Table, table.clone(), f), v).unwrap()
    });
    case("select", false, &[x(full), y(full)], &|p, v| {
        let b = bit_of(p, "bit", v[0]);
        p.step("op", Op::Select, &[b, v[1]]).unwrap()
    });
    case("bit-to-ring", false, &[x(full)], &|p, v| {
        let b = bit_of(p, "bit", v[0]);
        p.step("op", Op::BitToRing, &[b]).unwrap()
    });
    case("logic", false, &[x(full), y(full)], &|p, v| {
        let (a, b) = (bit_of(p, "a", v[0]), bit_of(p, "b", v[1]));
        let a = p.step("view", Op::View(View::slice(&[n].into(), 0, n - 1, -1, n)), &[a]).unwrap();
        let and = p.step("and", Op::And, &[a, b]).unwrap();
        let not = p.step("not", Op::Not, &[and]).unwrap();
        p.step("op", Op::Xor, &[not, a]).unwrap()
    });
    for count in [3, 4] {
        case(&format!("and/{count}"), false, &[("x", vec![count, n], full)], &|p, v| {
            let all = bit_of(p, "bits", v[0]);
            let part = |i: usize| Op::View(View { offset: i * n, ..View::whole([n].into()) });
            let bits: Vec<_> =
                (0..count).map(|i| p.step(&format!("part{i}"), part(i), &[all]).unwrap()).collect();
            let turned = p.step("not", Op::Not, &bits[..1]).unwrap();
            p.step("op", Op::And, &[&[turned], &bits[1..]].concat()).unwrap()
        });
    }
    // Values by their bits.
    case("words/a2b", false, &[x(full)], &|p, v| p.step("op", Op::ToBits, v).unwrap());
    case("words/adder", false, &[x(full), y(full)], &|p, v| {
        let (a, b) = (p.step("a", Op::ToBits, &v[..1]).unwrap(), p.step("b", Op::ToBits, &v[1..]).unwrap());
        p.step("op", Op::AddBits, &[a, b]).unwrap()
    });
    for width in [2, 5] {
        case(&format!("words/adder/{width}"), false, &[x(full), y(full)], &|p, v| {
            let mut low = |name: &str, x: ValueId| {
                let bits = p.step(&format!("{name}/bits"), Op::ToBits, &[x]).unwrap();
                let view = View::slice(&[ring as usize, n].into(), 0, 0, 1, width);
                p.step(name, Op::View(view), &[bits]).unwrap()
            };
            let summands = [low("a", v[0]), low("b", v[1])];
            p.step("op", Op::AddBits, &summands).unwrap()
        });
    }
    case("words/b2a", false, &[x(full)], &|p, v| {
        let b = p.step("a2b", Op::ToBits, v).unwrap();
        let b = p.step("not", Op::Not, &[b]).unwrap();
        p.step("op", Op::FromBits, &[b]).unwrap()
    });
    // Products that are left as sums until they are truncated.
    let small = ring / 2 - 2;
    let pair = [("x", vec![n, 2], small), ("y", vec![2, 1], small), ("b", vec![n, 1], small)];
    for (name, end) in [("truncate", Op::Truncate { bits: f }), ("relu", relu(SignBit::FULL, f))] {
        case(&format!("sum/{name}"), true, &pair, &|p, v| {
            let product = p.step("product", Op::Additive(Box::new(Op::MatMul)), &v[..2]).unwrap();
            let bias = p.step("scale", Op::Rescale { frac: ring / 2 / 2 * 2 }, &[v[2]]).unwrap();
            let both = Op::Combine { coefficients: vec![1, -1], constant: 3 };
            let both = p.step("bias", both, &[product, bias]).unwrap();
            let view = View::slice(&[n, 1].into(), 0, n - 1, -1, n);
            let turned = p.step("view", Op::View(view), &[both]).unwrap();
            p.step("op", end.clone(), &[turned]).unwrap()
        });
    }
    // Tables whose pieces are one function, so that it makes no difference which of them is taken: alone, cut, dealt, and of
    // a value whose mask is late, twice.
    for (degree, cut, bits) in [(0, 0, full), (1, f.min(3), quarter), (2, 0, full)] {
        let lookup = Op::Lookup(pieces(ring, cut, degree));
        case(&format!("lookup/{degree}"), cut > 0, &[x(bits)], &|p, v| {
            p.step("op", lookup.clone(), v).unwrap()
        });
        case(&format!("dealt/lookup/{degree}"), cut > 0, &[x(bits)], &|p, v| {
            p.step("op", Op::Offloaded(Box::new(lookup.clone())), v).unwrap()
        });
    }
    case("lookup/late", false, &[x(full), y(full)], &|p, v| {
        let z = p.step("relu", relu_as(ReluForm::TwoRounds, SignBit::FULL, 0), &v[..1]).unwrap();
        let [z, w] = ["op", "again"].map(|name| p.step(name, Op::Lookup(pieces(ring, 0, 2)), &[z]).unwrap());
        let sum = Op::Combine { coefficients: vec![1, 2], constant: 0 };
        let sum = p.step("sum", sum, &[z, w]).unwrap();
        let y = p.step("scale", Op::Rescale { frac: 0 }, &v[1..]).unwrap();
        p.step("product", Op::Mul, &[sum, y]).unwrap()
    });
    // A look-up and its truncation are done when the comparison beside them is.
    case("lookup/beside", true, &[x(ring / 2)], &|p, v| {
        let z = p.step("table", Op::Lookup(pieces(ring, 0, 1)), v).unwrap();
        let z = p.step("double", Op::Combine { coefficients: vec![2], constant: 1 }, &[z]).unwrap();
        let z = p.step("truncate", Op::Truncate { bits: f }, &[z]).unwrap();
        let b = p.step("compare", Op::NonNegative(SignBit::FULL), v).unwrap();
        p.step("op", Op::Select, &[b, z]).unwrap()
    });
    // Few bits, for protocols that compare no more.
    let few = SignBit { bits: Some(6), ..SignBit::FULL };
    let few_bit =
        |p: &mut Plan, name: &str, x: ValueId| p.step(name, Op::NonNegative(few.clone()), &[x]).unwrap();
    case("non-negative/few", false, &[x(5)], &|p, v| few_bit(p, "op", v[0]));
    case("relu/few", false, &[x(5)], &|p, v| p.step("op", relu(few.clone(), 0), v).unwrap());
    case("relu-truncate/few", true, &[x(5)], &|p, v| p.step("op", relu(few.clone(), f), v).unwrap());
    case("chain/few", false, &[x(5), y(full)], &|p, v| {
        let z = p.step("relu", relu(few.clone(), 0), &[v[0]]).unwrap();
        let z = p.step("local", Op::Combine { coefficients: vec![1, 3], constant: 7 }, &[z, v[1]]).unwrap();
        p.step("op", Op::Mul, &[z, v[1]]).unwrap()
    });
    case("select/few", false, &[x(5), y(full)], &|p, v| {
        let b = few_bit(p, "bit", v[0]);
        p.step("op", Op::Select, &[b, v[1]]).unwrap()
    });
    case("logic/few", false, &[x(5), y(5)], &|p, v| {
        let (a, b) = (few_bit(p, "a", v[0]), few_bit(p, "b", v[1]));
        let a = p.step("view", Op::View(View::slice(&[n].into(), 0, n - 1, -1, n)), &[a]).unwrap();
        let and = p.step("and", Op::And, &[a, b]).unwrap();
        let not = p.step("not", Op::Not, &[and]).unwrap();
        let bit = p.step("xor", Op::Xor, &[not, a]).unwrap();
        p.step("op", Op::BitToRing, &[bit]).unwrap()
    });
    cases
}

fn execute(protocol: &str, case: &Case, tap: Option<Tap>) -> LocalRun {
    run::<Cpu>(protocol, &case.plan, &case.inputs, &LocalOptions { tap, ..LocalOptions::default() })
        .unwrap_or_else(|e| panic!("{protocol} {}: {e}", case.name))
}

/// The formulas of a plan's steps under a protocol.
fn formulas(protocol: &str, plan: &Plan) -> Vec<(String, Cost)> {
    price(protocol, plan).steps.into_iter().map(|s| (s.name, s.cost)).collect()
}

fn price(protocol: &str, plan: &Plan) -> PlanCost {
    struct Price<'a>(&'a Plan);
    impl registry::Visitor<Cpu> for Price<'_> {
        type Output = PlanCost;
        fn visit<S: Suite<Device = Cpu>>(self, suite: S) -> Self::Output {
            megrez_engine::check(&suite, self.0).unwrap()
        }
    }
    registry::dispatch(protocol, plan.ring, Price(plan)).unwrap()
}

fn secure() -> impl Iterator<Item = &'static str> {
    registry::PROTOCOLS.iter().filter(|p| !p.insecure).map(|p| p.name)
}

/// Those on shares, secure or kept to compare with.
fn on_shares() -> impl Iterator<Item = &'static str> {
    registry::PROTOCOLS.iter().filter(|p| p.parties > 1).map(|p| p.name)
}

/// Why a protocol cannot run a plan, by its own word.
fn lacks(protocol: &str, plan: &Plan) -> Option<String> {
    struct Check<'a>(&'a Plan);
    impl registry::Visitor<Cpu> for Check<'_> {
        type Output = Option<String>;
        fn visit<S: Suite<Device = Cpu>>(self, suite: S) -> Self::Output {
            megrez_engine::check(&suite, self.0).err().map(|e| e.to_string())
        }
    }
    registry::dispatch(protocol, plan.ring, Check(plan)).unwrap()
}

/// Whether a protocol runs a case; says so if it does not.
fn runs(protocol: &str, case: &Case) -> bool {
    let lacks = lacks(protocol, &case.plan);
    if let Some(why) = &lacks {
        eprintln!("{protocol} ring {} {}: skipped: {why}", case.plan.ring, case.name);
    }
    lacks.is_none()
}

#[test]
fn only_bicoptor_lacks_anything_and_says_what_to_do() {
    for ring in [8, 16, 32, 64] {
        for case in cases(ring, 9) {
            for protocol in on_shares() {
                let Some(why) = lacks(protocol, &case.plan) else { continue };
                // The maximum of all pairs is a step of the dealer's protocols; others compile pools to tournaments. Sums that
                // wait for their truncation, conjunctions of more than two bits, and values by their bits, are the replicated
                // protocols'; so are steps of the other family; products of more than two values are meteor's.
                assert!(
                    case.name.starts_with("maximum")
                        || case.name.starts_with("and/")
                        || case.name.starts_with("spread/")
                        || case.name.starts_with("sum/")
                        || case.name.starts_with("words/")
                        || case.name.starts_with("dealt/")
                        || case.name.starts_with("lookup/") && why.contains("--activations")
                        || case.name.starts_with("many/")
                            && why.contains("use meteor")
                            && protocol != "meteor"
                        || protocol == "bicoptor"
                            && ["choose --bits", "one threshold"].iter().any(|s| why.contains(s)),
                    "{protocol} {}: {why}",
                    case.name
                );
                assert!(!case.name.ends_with("few"), "{}", case.name);
            }
        }
        for few in cases(ring, 9).iter().filter(|c| c.name.ends_with("few") || c.name.starts_with("mul")) {
            assert!(on_shares().all(|protocol| runs(protocol, few)), "{}", few.name);
        }
    }
}

#[test]
fn values_equal_the_oracle() {
    for ring in [8, 16, 32, 64] {
        let n = if ring == 8 { 1 << 13 } else { 517 };
        for case in cases(ring, n) {
            let expected = execute("clear", &case, None).outputs.remove(0).remove(0);
            for protocol in on_shares().filter(|p| runs(p, &case)) {
                let got = execute(protocol, &case, None).outputs.remove(0).remove(0);
                assert_eq!(got.len(), expected.len());
                for (i, (&got, &expected)) in got.iter().zip(&expected).enumerate() {
                    let difference = got.wrapping_sub(expected) & mask(ring);
                    assert!(
                        difference <= u64::from(case.truncates),
                        "{protocol} ring {ring} {}: element {i} is {got:#x}, the oracle says {expected:#x}; inputs {:x?}",
                        case.name,
                        case.inputs.values().map(|v| v.get(i)).collect::<Vec<_>>()
                    );
                }
            }
        }
    }
}

#[test]
fn multiplication_is_exhaustive_at_eight_bits() {
    let mut plan = Plan::new(8);
    let x = plan.input("x", "owner", [1 << 16].into(), 2);
    let y = plan.input("y", "owner", [1 << 16].into(), 2);
    let z = plan.step("op", Op::Mul, &[x, y]).unwrap();
    plan.output("z", "owner", z);
    let inputs = HashMap::from([
        ("x".to_string(), (0..1 << 16).map(|i| i & 255).collect::<Vec<u64>>()),
        ("y".to_string(), (0..1 << 16).map(|i| i >> 8).collect()),
    ]);
    let case = Case { name: "mul".into(), plan, inputs, truncates: false };
    for protocol in secure() {
        let z = execute(protocol, &case, None).outputs.remove(0).remove(0);
        assert!((0..1u64 << 16).all(|i| z[i as usize] == ((i & 255) * (i >> 8)) & 255), "{protocol}");
    }
}

#[test]
fn products_of_many_are_exhaustive_in_two_factors_at_eight_bits() {
    // All pairs, with sixteen values of the third factor and a fourth one that depends on both.
    let n = 1u64 << 20;
    let word = |i: u64, t: usize| [i & 255, i >> 8 & 255, (i >> 16) * 17, (i ^ i >> 8) & 255][t];
    for count in [3, 4] {
        let mut plan = Plan::new(8);
        let names = &["x", "y", "z", "w"][..count];
        let factors: Vec<_> =
            names.iter().map(|name| plan.input(name, "owner", [n as usize].into(), 2)).collect();
        let z = plan.step("op", Op::Mul, &factors).unwrap();
        plan.output("z", "owner", z);
        let words = |t| (0..n).map(|i| word(i, t)).collect();
        let inputs = names.iter().enumerate().map(|(t, name)| ((*name).to_string(), words(t))).collect();
        let case = Case { name: "many".into(), plan, inputs, truncates: false };
        let z = execute("meteor", &case, None).outputs.remove(0).remove(0);
        let product = |i| (0..count).map(|t| word(i, t)).product::<u64>() & 255;
        assert!((0..n).all(|i| z[i as usize] == product(i)), "{count} factors");
    }
}

#[test]
fn the_meter_equals_the_formulas() {
    for ring in [8, 16, 32, 64] {
        // Sizes around the packing boundaries.
        for n in [1, 63, 130] {
            for case in cases(ring, n) {
                for protocol in on_shares().filter(|p| runs(p, &case)) {
                    let run = execute(protocol, &case, None);
                    let formulas = formulas(protocol, &case.plan);
                    let reports = &run.reports[0];
                    for (phase, from) in
                        [Phase::Offline, Phase::Online].into_iter().flat_map(|p| (0..3).map(move |f| (p, f)))
                    {
                        for (step, cost) in &formulas {
                            let measured =
                                reports[from].sent.iter().find(|r| r.phase == phase && r.step == *step);
                            for to in 0..3 {
                                assert_eq!(
                                    measured.map_or(0, |r| r.sent[to]),
                                    cost.bytes(phase, from, to),
                                    "{protocol} ring {ring} n {n} {}/{step}: {phase:?} bytes {from} → {to}",
                                    case.name
                                );
                            }
                        }
                    }
                    let rounds = |phase| reports.iter().map(|r| r.phases[&phase].rounds).max().unwrap();
                    for phase in [Phase::Offline, Phase::Online] {
                        let path = price(protocol, &case.plan).critical_path(phase, 0.0, |_| 0.0);
                        assert_eq!(rounds(phase), path.rounds, "{protocol} {}: {phase:?} rounds", case.name);
                    }
                }
            }
        }
    }
}

#[test]
fn what_waits_for_one_step_runs_beside_a_longer_one() {
    let cases = cases(64, 3);
    let case = cases.iter().find(|case| case.name == "lookup/beside").unwrap();
    // Two rounds of the comparison, one of the selection.
    assert_eq!(price("mizar", &case.plan).critical_path(Phase::Online, 0.0, |_| 0.0).rounds, 3);
}

/// The symbols of a message and how many different ones there are.
fn symbols(message: &Sent, n: usize, unit: Unit) -> (Vec<u64>, usize) {
    let mut bytes = message.bytes.clone();
    bytes.resize(bytes.len().div_ceil(8) * 8, 0);
    let words: Vec<u64> = bytes.chunks_exact(8).map(|c| u64::from_le_bytes(c.try_into().unwrap())).collect();
    match unit {
        Unit::Bits(width) => {
            let symbols = (0..n).map(|i| megrez_ring::bits::get_low(&words, i, width)).collect();
            (symbols, 1 << width)
        }
        Unit::Residue(p) => {
            let width = (p - 1).ilog2() + 1;
            ((0..n).map(|i| megrez_ring::bits::get_low(&words, i, width)).collect(), p as usize)
        }
        Unit::Field(prime) => {
            (prime.unpack(&words, n).into_iter().map(u64::from).collect(), prime.p() as usize)
        }
    }
}

fn chi_square(symbols: &[u64], kinds: usize) -> f64 {
    let mut counts = vec![0f64; kinds];
    symbols.iter().for_each(|&s| counts[s as usize] += 1.0);
    let expected = symbols.len() as f64 / kinds as f64;
    counts.iter().map(|c| (c - expected).powi(2) / expected).sum()
}

/// The messages of a run with the formula of each, in the order of sending; fails if they do not pair up.
fn transcript(protocol: &str, case: &Case) -> Vec<(Sent, usize, Unit)> {
    let tap = Tap::default();
    execute(protocol, case, Some(tap.clone()));
    let mut sent: Vec<Sent> = std::mem::take(&mut *tap.lock().unwrap());
    let mut paired = Vec::new();
    for (step, cost) in formulas(protocol, &case.plan) {
        for transfer in cost.transfers {
            let at = sent.iter().position(|m| {
                m.phase == transfer.phase
                    && (m.from, m.to) == (transfer.from, transfer.to)
                    && m.name.starts_with(&format!("{step}/"))
            });
            let message = sent.remove(at.unwrap_or_else(|| panic!("{step}: no message for {transfer:?}")));
            assert_eq!(
                message.bytes.len() as u64,
                transfer.unit.bytes(transfer.n),
                "{}: {transfer:?}",
                message.name
            );
            paired.push((message, transfer.n, transfer.unit));
        }
    }
    let extra: Vec<_> =
        sent.iter().filter(|m| matches!(m.phase, Phase::Offline | Phase::Online)).map(|m| &m.name).collect();
    assert!(extra.is_empty(), "messages without a formula: {extra:?}");
    paired
}

#[test]
fn every_message_is_uniform_whatever_the_secret() {
    let n = 1 << 14;
    for secret in [0u64, 1, 0x15, 0x7f, 0x80, 0xff] {
        for mut case in cases(8, n) {
            // Secrets outside a primitive's range are not promised anything.
            if case.truncates && secret.wrapping_add(16) & 0xff >= 32 {
                continue;
            }
            case.inputs.values_mut().for_each(|words| words.fill(secret));
            for protocol in secure().filter(|p| runs(p, &case)) {
                for (message, n, unit) in transcript(protocol, &case) {
                    let (symbols, kinds) = symbols(&message, n, unit);
                    if symbols.len() < 20 * kinds {
                        continue; // too few for the test: the matrix shapes
                    }
                    let freedom = kinds as f64 - 1.0;
                    let statistic = crate::common::stats::sigmas(chi_square(&symbols, kinds), freedom);
                    assert!(
                        statistic < 6.5,
                        "{protocol} {} secret {secret:#x}: {} ({} → {}) is not uniform: {statistic:.1} σ",
                        case.name,
                        message.name,
                        message.from,
                        message.to
                    );
                }
            }
        }
    }
}

#[test]
fn types_are_as_the_plan_says() {
    for case in cases(16, 9) {
        let run = execute("clear", &case, None);
        let output: &Value = case.plan.value(case.plan.outputs[0].value);
        assert_eq!(run.outputs[0][0].len(), output.shape.elements(), "{}", case.name);
    }
}

#[test]
fn no_flipped_bit_of_what_parties_keep_becomes_a_number() {
    for ring in [32, 64] {
        for case in cases(ring, 9) {
            for protocol in on_shares().filter(|p| runs(p, &case)) {
                let faults = faults::examine::<Cpu>(protocol, &case.plan, 64)
                    .unwrap_or_else(|e| panic!("{protocol} {}: {e}", case.name));
                for (what, tried) in
                    [("material", faults.material), ("inputs", faults.inputs), ("outputs", faults.outputs)]
                {
                    assert!(tried.flips >= 3 * 64, "{protocol} {}: {what}: {tried:?}", case.name);
                    assert_eq!(tried.missed, 0, "{protocol} {}: {what}", case.name);
                }
            }
        }
    }
}
