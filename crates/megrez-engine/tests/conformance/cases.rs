//! Every primitive, with the inputs it is tested on.

use megrez_plan::{
    Beyond, ConvGeometry, Gives, List, Lookup, Op, Plan, Relu, ReluForm, SignBit, ValueId, View, Winner,
};
use std::collections::HashMap;

/// A primitive with the inputs it is tested on.
pub struct Case {
    pub name: String,
    pub plan: Plan,
    pub inputs: HashMap<String, Vec<u64>>,
    /// Truncations may be one higher in the last bit than the oracle, which rounds down.
    pub truncates: bool,
}

pub fn mask(ring: u32) -> u64 {
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

/// Two or eight pieces of one function, of [`pieces_of`].
fn pieces(ring: u32, cut: u32, degree: u32) -> Lookup {
    pieces_of(ring, cut, degree, if degree == 0 { 1 } else { 3 })
}

/// 2^n pieces of one function: 3 − 5·x + 7·x² of all words, 3 + y of all y = x / 2^cut, or 3.
fn pieces_of(ring: u32, cut: u32, degree: u32, index: u32) -> Lookup {
    let (low, segments) = (ring - cut - index, 1i64 << index);
    let piece = |h: i64| {
        let start = (if h < segments / 2 { h } else { h - segments }) << low;
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
    let pieces = (0..segments).flat_map(piece);
    let pieces = pieces.map(|c: i64| c << (64 - ring) >> (64 - ring)).collect();
    Lookup { cut, low, degree, pieces, frac: ring / 4, beyond: None }
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

pub fn cases(ring: u32, n: usize) -> Vec<Case> {
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
    let tree = SignBit { list: List::Tree, ..SignBit::FULL };
    for (kind, sign) in [("bits", SignBit::FULL), ("digits", digits(ring)), ("tree", tree.clone())] {
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
    for (kind, sign) in [("bits", SignBit::FULL), ("digits", digits(ring)), ("tree", tree.clone())] {
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
        p.step("op", Op::SELECT, &[bits, both]).unwrap()
    });
    case("compare-many/late", false, &[x(quarter)], &|p, v| {
        let z = p.step("relu", relu_as(ReluForm::TwoRounds, SignBit::FULL, 0), v).unwrap();
        p.step("op", Op::CompareMany { sign: digits(ring), thresholds: vec![1, edge] }, &[z]).unwrap()
    });
    case("compare-many/late-tree", false, &[x(quarter)], &|p, v| {
        let z = p.step("relu", relu_as(ReluForm::TwoRounds, SignBit::FULL, 0), v).unwrap();
        p.step("op", Op::CompareMany { sign: tree.clone(), thresholds: vec![1, edge] }, &[z]).unwrap()
    });
    // The largest of two, three and four values; a cut is exact on its multiples; one input's mask
    // deferred, one value twice.
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
    // Steps of the other family on replicated values: alone, and behind and before steps of this
    // one.
    for (name, form) in [
        ("3r", ReluForm::ThreeRounds),
        ("2r", ReluForm::TwoRounds),
        ("2r-fresh", ReluForm::TwoRoundsFresh),
        ("key", ReluForm::Key),
        ("digit-tables", ReluForm::DigitTables),
    ] {
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
    // The cut on few bits, fused with a truncation that drops at least as much: no error inside the
    // range.
    let few = SignBit { cut: f, bits: Some(ring / 2), ..digits(ring / 2) };
    case("relu-truncate/cut", true, &[x(f + ring / 2 - 2)], &|p, v| {
        p.step("op", relu(few.clone(), f), v).unwrap()
    });
    // The early forms, and what follows them: a deferred mask goes through local steps and products
    // to fresh masks.
    for (name, form) in [
        ("2r", ReluForm::TwoRounds),
        ("2r-fresh", ReluForm::TwoRoundsFresh),
        ("table", ReluForm::Table),
        ("key", ReluForm::Key),
        ("digit-tables", ReluForm::DigitTables),
    ] {
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
    // The same by key, and by tables of digits.
    for (name, form) in [("key", ReluForm::Key), ("digit-tables", ReluForm::DigitTables)] {
        case(&format!("relu-truncate/{name}-cut"), true, &[x(f + 4)], &|p, v| {
            p.step("op", relu_as(form, table.clone(), f), v).unwrap()
        });
    }
    case("select", false, &[x(full), y(full)], &|p, v| {
        let b = bit_of(p, "bit", v[0]);
        p.step("op", Op::SELECT, &[b, v[1]]).unwrap()
    });
    case("select-truncated", true, &[x(full), y(quarter)], &|p, v| {
        let b = bit_of(p, "bit", v[0]);
        p.step("op", Op::Select { truncate: f }, &[b, v[1]]).unwrap()
    });
    // Factors that lose bits, one or both: zeros, so that there is one result. Others, by all
    // masks, are beside the step.
    for (kind, bits) in [("both", vec![f, 1]), ("one", vec![0, f]), ("square", vec![f])] {
        let factors = [x(quarter - f), y(quarter - f)];
        case(&format!("product-truncated/{kind}"), false, &factors[..bits.len()], &|p, v| {
            let scaled = bits.iter().zip(v).enumerate().map(|(i, (&bits, &x))| {
                let op = Op::Combine { coefficients: vec![1 << bits], constant: 0 };
                p.step(&format!("scaled{i}"), op, &[x]).unwrap()
            });
            let scaled: Vec<ValueId> = scaled.collect();
            p.step("op", Op::MulTruncated { bits: bits.clone() }, &scaled).unwrap()
        });
    }
    // The parts of two values together, in groups of several sizes and of one size; bits along the
    // first dimension picked and joined.
    let several = if n > 4 { vec![1, n - 4, 3] } else { vec![1; n] };
    for (kind, groups) in [("groups", several), ("even", vec![n / 3; 3]), ("one", vec![n])] {
        if groups.iter().sum::<usize>() != n {
            continue;
        }
        case(&format!("select-sum/{kind}"), false, &[x(full), y(full)], &|p, v| {
            let b = bit_of(p, "bit", v[0]);
            p.step("op", Op::SelectSum { groups: groups.clone() }, &[b, v[1]]).unwrap()
        });
    }
    // Lowest bits, as matrices of a lane and of several; and counted.
    case("low-bit", false, &[x(full)], &|p, v| {
        let b = p.step("low", Op::LowBit, v).unwrap();
        p.step("op", Op::BitToRing, &[b]).unwrap()
    });
    // What each bit of one side meets is as much as the other side has.
    let few = n.min(8);
    for (kind, left, right) in [
        ("outer", [1, n, 1, 1], [1, 1, few, 1]),
        ("inner", [1, 1, n, 1], [1, n, 1, 1]),
        ("lanes", [n, 1, 1, 1], [n, 1, 1, 1]),
        ("one-for-lanes", [1, few, 1, 1], [1, 1, 1, n]),
        ("lanes-by-one", [1, 1, 1, n], [1, 1, few, 1]),
    ] {
        let [of_x, of_y] = [left, right].map(|side| vec![side.iter().product()]);
        case(&format!("bit-matrices/{kind}"), false, &[("x", of_x, full), ("y", of_y, full)], &|p, v| {
            let mut shaped = |name: &str, x: ValueId, to: [usize; 4]| {
                let b = p.step(&format!("{name}/low"), Op::LowBit, &[x]).unwrap();
                p.step(name, Op::View(View::whole(to.into())), &[b]).unwrap()
            };
            let factors = [shaped("a", v[0], left), shaped("b", v[1], right)];
            let z = p.step("op", Op::BitMatMul, &factors).unwrap();
            p.step("number", Op::BitToRing, &[z]).unwrap()
        });
    }
    for (kind, slices) in [("few", 4), ("all", n)] {
        if slices < 4 || !n.is_multiple_of(slices) {
            continue;
        }
        case(&format!("bit-polynomials/{kind}"), false, &[x(full)], &|p, v| {
            let b = p.step("low", Op::LowBit, v).unwrap();
            let b = p.step("slices", Op::View(View::whole([slices, n / slices].into())), &[b]).unwrap();
            let sums = vec![
                vec![vec![0, 1, 2, 3], vec![1, 2], vec![3]],
                vec![vec![0]],
                vec![vec![0, 2], vec![0, 2, 3]],
            ];
            let z = p.step("op", Op::BitPolynomials { sums }, &[b]).unwrap();
            p.step("number", Op::BitToRing, &[z]).unwrap()
        });
    }
    case("bit-to-ring/counted", false, &[x(full)], &|p, v| {
        let b = bit_of(p, "bit", v[0]);
        let numbers = p.step("op", Op::Additive(Box::new(Op::BitToRing)), &[b]).unwrap();
        let sum = p.step("sum", Op::Sum { axis: 0 }, &[numbers]).unwrap();
        p.step("shared", Op::Reshare, &[sum]).unwrap()
    });
    case("bits/picked-and-joined", false, &[x(full)], &|p, v| {
        let b = bit_of(p, "bit", v[0]);
        let indices: Vec<usize> = (0..n).map(|i| (i * 7 + 3) % n).collect();
        let picked = p.step("picked", Op::Gather { axis: 0, indices }, &[b]).unwrap();
        let joined = p.step("joined", Op::Concat { axis: 0 }, &[picked, b, picked]).unwrap();
        p.step("op", Op::BitToRing, &[joined]).unwrap()
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
    // Noise without a deviation is 0 however it is shared.
    case("noise", false, &[x(full)], &|p, v| {
        let noise = Op::Noise { shape: [n].into(), frac: f, deviation: 0 };
        let noise = p.step("noise", noise, &[]).unwrap();
        p.step("op", Op::Combine { coefficients: vec![1, 1], constant: 0 }, &[v[0], noise]).unwrap()
    });
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
    // Sums that are shared: products and functions, alone and with values beside them; of masks
    // that are late.
    let left = |op: Op| Op::Additive(Box::new(op));
    let both = |c: [i64; 2]| Op::Combine { coefficients: c.to_vec(), constant: 5 };
    case("reshared/products", false, &[x(full), y(full)], &|p, v| {
        let z = p.step("product", left(Op::Mul), v).unwrap();
        let fine = p.step("fine", Op::Rescale { frac: p.value(z).kind.frac() }, &v[..1]).unwrap();
        let z = p.step("both", both([2, -1]), &[z, fine]).unwrap();
        let z = p.step("rows", Op::View(View::whole([n, 1].into())), &[z]).unwrap();
        let twice = p.step("twice", Op::Gather { axis: 1, indices: vec![0; 2] }, &[z]).unwrap();
        let c = Op::Constant { shape: [n, 2].into(), frac: 0, words: (0..2 * n as i64).collect() };
        let c = p.step("public", c, &[]).unwrap();
        let z = p.step("times", Op::Mul, &[twice, c]).unwrap();
        let z = p.step("sum", Op::Sum { axis: 1 }, &[z]).unwrap();
        let z = p.step("op", Op::Reshare, &[z]).unwrap();
        p.step("square", Op::Mul, &[z, z]).unwrap()
    });
    case("reshared/functions", false, &[x(full)], &|p, v| {
        let f = Lookup { frac: 0, ..pieces(ring, 0, 2) };
        let table = p.step("table", left(Op::Lookup(f)), v).unwrap();
        let key = Lookup { frac: 0, ..pieces_of(ring, 0, 1, 8) };
        let key = p.step("key", left(Op::Lookup(key)), v).unwrap();
        let z = p.step("both", both([1, -3]), &[table, key]).unwrap();
        p.step("op", Op::Reshare, &[z]).unwrap()
    });
    case("reshared/late", false, &[x(full), y(full)], &|p, v| {
        let late = p.step("relu", relu_as(ReluForm::TwoRounds, SignBit::FULL, 0), &v[..1]).unwrap();
        let z = p.step("product", left(Op::Mul), &[late, v[1]]).unwrap();
        let fine = p.step("fine", Op::Rescale { frac: p.value(z).kind.frac() }, &[late]).unwrap();
        let z = p.step("both", both([1, 1]), &[z, fine]).unwrap();
        p.step("op", Op::Reshare, &[z]).unwrap()
    });
    // Tables whose pieces are one function, so that it makes no difference which of them is taken:
    // alone, cut, dealt, and of a value whose mask is late, twice.
    // So many pieces are dealt as keys on every ring.
    let by_key = pieces_of(ring, 0, 1, 8);
    assert!(by_key.is_keyed(ring));
    case("lookup/key", false, &[x(full)], &|p, v| p.step("op", Op::Lookup(by_key.clone()), v).unwrap());
    case("dealt/lookup/key", false, &[x(full)], &|p, v| {
        p.step("op", Op::Offloaded(Box::new(Op::Lookup(by_key.clone()))), v).unwrap()
    });
    // Beside their segments, at words that no carry moves: nothing, a number, a line.
    let half = ("x", vec![n], ring - 3);
    for (name, constant, slope) in [("nothing", 0, 0), ("number", -5, 0), ("line", 3, 7)] {
        let beyond = Some(Beyond { bits: ring, constant, slope });
        let of = Lookup { low: 1, degree: 1, pieces: vec![9, 1, -4, 3, 11, 2, 6, -1], ..pieces(ring, 0, 1) };
        let op = Op::Lookup(Lookup { beyond, ..of });
        for dealt in [false, true] {
            let op = if dealt { Op::Offloaded(Box::new(op.clone())) } else { op.clone() };
            let label = if dealt { "dealt/lookup/beside" } else { "lookup/beside" };
            case(&format!("{label}/{name}"), false, std::slice::from_ref(&half), &|p, v| {
                let twice = Op::Combine { coefficients: vec![2], constant: 0 };
                let x = p.step("twice", twice, v).unwrap();
                p.step("op", op.clone(), &[x]).unwrap()
            });
        }
    }
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
    // Winners among small numbers, as values and as places; a cut is exact on its multiples; one
    // value twice, with a mask that is deferred.
    let small = |k: usize| ("x", vec![k, n], 4);
    for (gives, name) in [(Gives::Value, "value"), (Gives::OneHot, "place")] {
        let winner = |cut, bits| Op::Winner(Winner { cut, bits, gives });
        for k in [2, 3, 7, 10, 16] {
            case(&format!("winner/{name}/{k}"), false, &[small(k)], &|p, v| {
                p.step("op", winner(0, 6), v).unwrap()
            });
        }
        case(&format!("winner/{name}/cut"), false, &[small(5)], &|p, v| {
            let times_four = Op::Combine { coefficients: vec![4], constant: 0 };
            let x = p.step("times-four", times_four, v).unwrap();
            p.step("op", winner(2, 6), &[x]).unwrap()
        });
        case(&format!("dealt/winner/{name}"), false, &[small(4)], &|p, v| {
            let z = p.step("op", Op::Offloaded(Box::new(winner(0, 6))), v).unwrap();
            p.step("product", Op::Mul, &[z, z]).unwrap()
        });
        case(&format!("winner/{name}/late"), false, &[small(3)], &|p, v| {
            let late = p.step("relu", relu_as(ReluForm::TwoRounds, SignBit::FULL, 0), v).unwrap();
            let all = p.step("all", Op::Concat { axis: 0 }, &[v[0], late, late]).unwrap();
            p.step("op", winner(0, 6), &[all]).unwrap()
        });
    }
    // A look-up and its truncation are done when the comparison beside them is.
    case("lookup/beside", true, &[x(ring / 2)], &|p, v| {
        let z = p.step("table", Op::Lookup(pieces(ring, 0, 1)), v).unwrap();
        let z = p.step("double", Op::Combine { coefficients: vec![2], constant: 1 }, &[z]).unwrap();
        let z = p.step("truncate", Op::Truncate { bits: f }, &[z]).unwrap();
        let b = p.step("compare", Op::NonNegative(SignBit::FULL), v).unwrap();
        p.step("op", Op::SELECT, &[b, z]).unwrap()
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
        p.step("op", Op::SELECT, &[b, v[1]]).unwrap()
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
