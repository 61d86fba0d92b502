//! What is looked at: every operation in every form, alone and in the company in which it may leak.

use megrez_plan::{ConvGeometry, List, Op, Plan, PlanError, Relu, ReluForm, SignBit, ValueId, View};

/// What an output may be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Expected {
    /// This word, or bit.
    Word(i64),
    /// `x` / 2^`bits`, rounded down or up.
    Rounded {
        /// The value that is rounded.
        x: i64,
        /// How many bits are dropped.
        bits: u32,
    },
    /// One of several, how often is a function of `x`.
    OneOf {
        /// The value.
        x: i64,
        /// What may come out.
        words: Vec<i64>,
    },
}

impl Expected {
    /// Whether an output may be this word.
    pub fn allows(&self, got: u8, ring: u32) -> bool {
        let is = |word: i64| (word as u64 & ((1 << ring) - 1)) as u8 == got;
        match self {
            Expected::Word(word) => is(*word),
            Expected::Rounded { x, bits } => {
                let floor = x >> bits;
                is(floor) || (x & ((1 << bits) - 1) != 0 && is(floor + 1))
            }
            Expected::OneOf { words, .. } => words.iter().any(|&word| is(word)),
        }
    }

    /// What a recipient learns.
    pub fn key(&self) -> [i64; 2] {
        match self {
            Expected::Word(word) => [0, *word],
            Expected::Rounded { x, .. } => [1, *x],
            Expected::OneOf { x, .. } => [2, *x],
        }
    }
}

/// What has a range of its own.
const BICOPTOR: &[&str] = &["bicoptor"];
/// Bicoptor masks the operands of a product, whose lanes do not lie as those of other draws do.
const BUT_BICOPTOR: &[&str] = &["mizar", "concurrent", "aegis", "aby3", "alkaid", "meteor", "alkaid-masked"];

type Build = dyn Fn(&mut Plan, &[ValueId], usize) -> Result<Vec<ValueId>, PlanError> + Send + Sync;
type Expect = dyn Fn(&[i64]) -> Vec<Expected> + Send + Sync;

/// One plan on tiny numbers.
pub struct Case {
    /// The operation that it is about.
    pub op: &'static str,
    /// Its form, and what stands around it.
    pub form: String,
    /// ℓ.
    pub ring: u32,
    /// Names and elements of the inputs.
    pub inputs: Vec<(String, usize)>,
    /// Fraction bits of the inputs.
    pub frac: u32,
    /// All secrets: the elements of all inputs, in order.
    pub secrets: Vec<Vec<i64>>,
    /// The outputs of a secret.
    pub expect: Box<Expect>,
    build: Box<Build>,
    only: Option<&'static [&'static str]>,
    sign: SignBit,
}

impl Case {
    /// The plan on so many lanes, for a protocol; `None` where the case is not for it.
    pub fn plan(&self, lanes: usize, protocol: &str) -> Option<Plan> {
        if !protocol.is_empty() && self.only.is_some_and(|only| !only.contains(&protocol)) {
            return None;
        }
        let mut plan = Plan::new(self.ring);
        let inputs: Vec<ValueId> = self
            .inputs
            .iter()
            .map(|(name, elements)| plan.input(name, "owner", [*elements, lanes].into(), self.frac))
            .collect();
        let outputs = (self.build)(&mut plan, &inputs, lanes)
            .unwrap_or_else(|e| panic!("the case {} {} is no plan: {e}", self.op, self.form));
        for (i, output) in outputs.into_iter().enumerate() {
            plan.output(&format!("z{i}"), "recipient", output);
        }
        Some(plan)
    }

    /// Bits of a dealt table that stand together.
    pub fn table(&self) -> usize {
        1 << (self.sign.width(self.ring) - 1)
    }
}

/// The name of an operation. A new one has no name until it stands here, and no coverage until it has a case.
pub fn name(op: &Op) -> &'static str {
    match op {
        Op::Constant { .. } => "Constant",
        Op::Combine { .. } => "Combine",
        Op::View(_) => "View",
        Op::Concat { .. } => "Concat",
        Op::Pad { .. } => "Pad",
        Op::Sum { .. } => "Sum",
        Op::Gather { .. } => "Gather",
        Op::Rescale { .. } => "Rescale",
        Op::Mul => "Mul",
        Op::MatMul => "MatMul",
        Op::Conv(_) => "Conv",
        Op::Additive(_) => "Additive",
        Op::Truncate { .. } => "Truncate",
        Op::NonNegative(_) => "NonNegative",
        Op::CompareMany { .. } => "CompareMany",
        Op::Relu(_) => "Relu",
        Op::Maximum(_) => "Maximum",
        Op::Offloaded(_) => "Offloaded",
        Op::ToBits => "ToBits",
        Op::FromBits => "FromBits",
        Op::AddBits => "AddBits",
        Op::Select => "Select",
        Op::BitToRing => "BitToRing",
        Op::Xor => "Xor",
        Op::And => "And",
        Op::Not => "Not",
    }
}

/// All names, in the order of [`name`].
pub const NAMES: [&str; 26] = [
    "Constant",
    "Combine",
    "View",
    "Concat",
    "Pad",
    "Sum",
    "Gather",
    "Rescale",
    "Mul",
    "MatMul",
    "Conv",
    "Additive",
    "Truncate",
    "NonNegative",
    "CompareMany",
    "Relu",
    "Maximum",
    "Offloaded",
    "ToBits",
    "FromBits",
    "AddBits",
    "Select",
    "BitToRing",
    "Xor",
    "And",
    "Not",
];

/// x as an element of the ring, signed.
fn wrap(x: i64, ring: u32) -> i64 {
    x << (64 - ring) >> (64 - ring)
}

fn range(ring: u32) -> Vec<i64> {
    (-(1 << (ring - 1))..1 << (ring - 1)).collect()
}

/// All combinations of `n` values.
fn all(values: &[i64], n: usize) -> Vec<Vec<i64>> {
    (0..n).fold(vec![vec![]], |rows, _| {
        rows.iter().flat_map(|row| values.iter().map(|&v| [row.as_slice(), &[v]].concat())).collect()
    })
}

/// At most `most` of them, spread evenly.
pub(super) fn some<T: Clone>(rows: Vec<T>, most: usize) -> Vec<T> {
    let n = rows.len();
    if n <= most {
        return rows;
    }
    (0..most).map(|i| rows[i * (n - 1) / (most - 1)].clone()).collect()
}

fn words(x: Vec<i64>) -> Vec<Expected> {
    x.into_iter().map(Expected::Word).collect()
}

fn bit(x: bool) -> i64 {
    x.into()
}

struct Table(Vec<Case>);

impl Table {
    /// Adds a case whose inputs x, y, … have so many elements each.
    fn add(
        &mut self,
        op: &'static str,
        form: impl Into<String>,
        ring: u32,
        elements: &[usize],
        secrets: Vec<Vec<i64>>,
        expect: impl Fn(&[i64]) -> Vec<Expected> + Send + Sync + 'static,
        build: impl Fn(&mut Plan, &[ValueId], usize) -> Result<Vec<ValueId>, PlanError> + Send + Sync + 'static,
    ) -> &mut Case {
        let inputs = ["x", "y", "u", "v"].iter().zip(elements).map(|(n, &e)| (n.to_string(), e)).collect();
        self.0.push(Case {
            op,
            form: form.into(),
            ring,
            inputs,
            frac: 0,
            secrets,
            expect: Box::new(expect),
            build: Box::new(build),
            only: None,
            sign: SignBit::FULL,
        });
        self.0.last_mut().expect("just pushed")
    }

    fn linear(&mut self) {
        let two = || all(&range(2), 2);
        let combine = |c: [i64; 2], k| Op::Combine { coefficients: c.to_vec(), constant: k };
        self.add(
            "Combine",
            "3x − 2y + 1",
            2,
            &[1, 1],
            two(),
            |s| words(vec![3 * s[0] - 2 * s[1] + 1]),
            move |p, v, _| Ok(vec![p.step("op", combine([3, -2], 1), v)?]),
        );
        self.add(
            "View",
            "reversed",
            2,
            &[2],
            two(),
            |s| words(vec![s[1], s[0]]),
            |p, v, n| {
                let strides = vec![-(n as isize), 1];
                Ok(vec![p.step("op", Op::View(View { shape: [2, n].into(), strides, offset: n }), v)?])
            },
        );
        self.add(
            "Concat",
            "x, y",
            2,
            &[1, 1],
            two(),
            |s| words(s.to_vec()),
            |p, v, _| Ok(vec![p.step("op", Op::Concat { axis: 0 }, v)?]),
        );
        self.add(
            "Pad",
            "one before, one after",
            2,
            &[1],
            all(&range(2), 1),
            |s| words(vec![0, s[0], 0]),
            |p, v, _| Ok(vec![p.step("op", Op::Pad { before: vec![1, 0], after: vec![1, 0] }, v)?]),
        );
        self.add(
            "Sum",
            "of two",
            2,
            &[2],
            two(),
            |s| words(vec![s[0] + s[1]]),
            |p, v, _| Ok(vec![p.step("op", Op::Sum { axis: 0 }, v)?]),
        );
        self.add(
            "Gather",
            "one twice",
            2,
            &[2],
            two(),
            |s| words(vec![s[1], s[0], s[1]]),
            |p, v, _| Ok(vec![p.step("op", Op::Gather { axis: 0, indices: vec![1, 0, 1] }, v)?]),
        );
        self.add(
            "Rescale",
            "1 to 0",
            2,
            &[1],
            all(&range(2), 1),
            |s| words(s.to_vec()),
            |p, v, _| Ok(vec![p.step("op", Op::Rescale { frac: 0 }, v)?]),
        )
        .frac = 1;
        self.add(
            "Constant",
            "times x",
            3,
            &[1],
            all(&range(3), 1),
            |s| words(vec![3 * s[0]]),
            |p, v, n| {
                let constant = Op::Constant { shape: [1, n].into(), frac: 0, words: vec![3; n] };
                let c = p.step("constant", constant, &[])?;
                Ok(vec![p.step("op", Op::Mul, &[v[0], c])?])
            },
        );
    }

    fn products(&mut self) {
        let product = |s: &[i64]| words(vec![s.iter().product()]);
        for (ring, most) in [(2, 16), (3, 64)] {
            self.add("Mul", "x·y", ring, &[1, 1], some(all(&range(ring), 2), most), product, |p, v, _| {
                Ok(vec![p.step("op", Op::Mul, v)?])
            });
        }
        let pairs = some(all(&range(2), 4), 40);
        self.add(
            "Mul",
            "neighbours",
            2,
            &[2, 2],
            pairs.clone(),
            |s| words(vec![s[0] * s[2], s[1] * s[3]]),
            |p, v, _| Ok(vec![p.step("op", Op::Mul, v)?]),
        );
        self.add(
            "Mul",
            "x·x and x·y",
            2,
            &[1, 1],
            all(&range(2), 2),
            |s| words(vec![s[0] * s[0], s[0] * s[1]]),
            |p, v, _| Ok(vec![p.step("square", Op::Mul, &[v[0], v[0]])?, p.step("op", Op::Mul, v)?]),
        );
        for n in [3, 4] {
            let secrets = some(all(&range(2), n), 64);
            self.add("Mul", format!("{n} factors"), 2, &[1; 4][..n], secrets, product, |p, v, _| {
                Ok(vec![p.step("op", Op::Mul, v)?])
            });
        }
        let inner = |s: &[i64]| words(vec![s[0] * s[2] + s[1] * s[3]]);
        for conv in [false, true] {
            let (op, form) = if conv { ("Conv", "one tap") } else { ("MatMul", "one by one") };
            self.add(op, form, 2, &[1, 1], all(&range(2), 2), product, move |p, v, n| {
                Ok(vec![if conv {
                    let (x, y, geometry) = images(p, v, n, 1)?;
                    p.step("op", Op::Conv(geometry), &[x, y])?
                } else {
                    let (x, y) = matrices(p, v, n, 1)?;
                    p.step("op", Op::MatMul, &[x, y])?
                }])
            });
        }
        let case = self.add("MatMul", "a row by a column", 2, &[2, 2], pairs.clone(), inner, |p, v, n| {
            let (x, y) = matrices(p, v, n, 2)?;
            Ok(vec![p.step("op", Op::MatMul, &[x, y])?])
        });
        case.only = Some(BUT_BICOPTOR);
        let case = self.add("Conv", "two taps", 2, &[2, 2], pairs, inner, |p, v, n| {
            let (x, y, geometry) = images(p, v, n, 2)?;
            Ok(vec![p.step("op", Op::Conv(geometry), &[x, y])?])
        });
        case.only = Some(BUT_BICOPTOR);
    }

    /// Secrets x, y with |x·y| < 4.
    fn factors() -> Vec<Vec<i64>> {
        let rows = all(&range(3), 2).into_iter().filter(|s| (-4..4).contains(&(s[0] * s[1])));
        some(rows.collect(), 24)
    }

    fn truncations(&mut self) {
        let rounded = |x: i64| Expected::Rounded { x, bits: 1 };
        let small: Vec<i64> = (-4..4).collect();
        let truncate = || Op::Truncate { bits: 1 };
        let case = self.add(
            "Truncate",
            "one bit",
            4,
            &[1],
            all(&small, 1),
            move |s| vec![rounded(s[0])],
            move |p, v, _| Ok(vec![p.step("op", truncate(), v)?]),
        );
        case.frac = 1;
        let case = self.add(
            "Truncate",
            "neighbours",
            4,
            &[2],
            all(&small, 2),
            move |s| s.iter().map(|&x| rounded(x)).collect(),
            move |p, v, _| Ok(vec![p.step("op", truncate(), v)?]),
        );
        case.frac = 1;
        let twice = self.add(
            "Truncate",
            "of one value twice",
            4,
            &[1],
            all(&small, 1),
            move |s| vec![rounded(s[0]); 2],
            move |p, v, _| Ok(vec![p.step("op", truncate(), v)?, p.step("again", truncate(), v)?]),
        );
        twice.frac = 1;
        // Products that are left as sums.
        let sum = |op: Op| Op::Additive(Box::new(op));
        let one = |s: &[i64]| s[0] * s[1];
        let left = move |p: &mut Plan, v: &[ValueId]| {
            let y = p.step("y", Op::Rescale { frac: 0 }, &[v[1]])?;
            p.step("product", sum(Op::Mul), &[v[0], y])
        };
        let mut add = |form: &str, expect: Box<Expect>, build: Box<Build>| {
            let fits = |e: &Expected| !matches!(e, Expected::Rounded { x, .. } if !(-4..4).contains(x));
            let secrets = all(&range(3), 2).into_iter().filter(|s| expect(s).iter().all(fits));
            let most = if form.starts_with("ReLU") { 6 } else { 16 };
            self.add("Additive", form, 4, &[1, 1], some(secrets.collect(), most), expect, build).frac = 1;
        };
        add(
            "truncated",
            Box::new(move |s| vec![rounded(one(s))]),
            Box::new(move |p, v, _| {
                let z = left(p, v)?;
                Ok(vec![p.step("op", truncate(), &[z])?])
            }),
        );
        add(
            "truncated twice",
            Box::new(move |s| vec![rounded(one(s)); 2]),
            Box::new(move |p, v, _| {
                let z = left(p, v)?;
                Ok(vec![p.step("op", truncate(), &[z])?, p.step("again", truncate(), &[z])?])
            }),
        );
        add(
            "padded",
            Box::new(move |s| vec![rounded(0), rounded(one(s))]),
            Box::new(move |p, v, _| {
                let z = left(p, v)?;
                let z = p.step("pad", Op::Pad { before: vec![1, 0], after: vec![0, 0] }, &[z])?;
                Ok(vec![p.step("op", truncate(), &[z])?])
            }),
        );
        add(
            "gathered twice",
            Box::new(move |s| vec![rounded(one(s)); 2]),
            Box::new(move |p, v, _| {
                let z = left(p, v)?;
                let z = p.step("gather", Op::Gather { axis: 0, indices: vec![0, 0] }, &[z])?;
                Ok(vec![p.step("op", truncate(), &[z])?])
            }),
        );
        add(
            "broadcast",
            Box::new(move |s| vec![rounded(one(s)); 2]),
            Box::new(move |p, v, n| {
                let z = left(p, v)?;
                let view = View { shape: [2, n].into(), strides: vec![0, 1], offset: 0 };
                let z = p.step("broadcast", Op::View(view), &[z])?;
                Ok(vec![p.step("op", truncate(), &[z])?])
            }),
        );
        // With shared values beside them: what a summand's mask hides, and hides again.
        let add_to = |p: &mut Plan, name: &str, c: i64, z: ValueId, x: ValueId| {
            p.step(name, Op::Combine { coefficients: vec![c, 1], constant: 0 }, &[z, x])
        };
        add(
            "plus a shared value",
            Box::new(move |s| vec![rounded(one(s) + s[0])]),
            Box::new(move |p, v, _| {
                let z = left(p, v)?;
                let z = add_to(p, "sum", 1, z, v[0])?;
                Ok(vec![p.step("op", truncate(), &[z])?])
            }),
        );
        add(
            "plus one and plus another shared value",
            Box::new(move |s| s.iter().map(|x| rounded(one(s) + x)).collect()),
            Box::new(move |p, v, _| {
                let z = left(p, v)?;
                let (a, b) = (add_to(p, "a", 1, z, v[0])?, add_to(p, "b", 1, z, v[1])?);
                Ok(vec![p.step("op", truncate(), &[a])?, p.step("again", truncate(), &[b])?])
            }),
        );
        add(
            "padded, plus shared values",
            Box::new(move |s| vec![rounded(s[0]), rounded(one(s) + s[1])]),
            Box::new(move |p, v, _| {
                let z = left(p, v)?;
                let z = p.step("pad", Op::Pad { before: vec![1, 0], after: vec![0, 0] }, &[z])?;
                let both = p.step("both", Op::Concat { axis: 0 }, v)?;
                let z = add_to(p, "sum", 1, z, both)?;
                Ok(vec![p.step("op", truncate(), &[z])?])
            }),
        );
        add(
            "broadcast, plus shared values",
            Box::new(move |s| s.iter().map(|x| rounded(one(s) + x)).collect()),
            Box::new(move |p, v, n| {
                let z = left(p, v)?;
                let view = View { shape: [2, n].into(), strides: vec![0, 1], offset: 0 };
                let z = p.step("broadcast", Op::View(view), &[z])?;
                let both = p.step("both", Op::Concat { axis: 0 }, v)?;
                let z = add_to(p, "sum", 1, z, both)?;
                Ok(vec![p.step("op", truncate(), &[z])?])
            }),
        );
        add(
            "twice, plus a shared value",
            Box::new(move |s| vec![rounded(2 * one(s) + s[0])]),
            Box::new(move |p, v, _| {
                let z = left(p, v)?;
                let z = add_to(p, "sum", 2, z, v[0])?;
                Ok(vec![p.step("op", truncate(), &[z])?])
            }),
        );
        let relu = || Op::Relu(Relu { sign: SignBit::FULL, form: ReluForm::ThreeRounds, truncate: 1 });
        add(
            "ReLU with truncation",
            Box::new(move |s| vec![relu_of(one(s), 1)]),
            Box::new(move |p, v, _| {
                let z = left(p, v)?;
                Ok(vec![p.step("op", relu(), &[z])?])
            }),
        );
        for conv in [false, true] {
            let build = move |p: &mut Plan, v: &[ValueId], n: usize| {
                let y = p.step("y", Op::Rescale { frac: 0 }, &[v[1]])?;
                let z = if conv {
                    let (x, y, geometry) = images(p, &[v[0], y], n, 1)?;
                    p.step("product", Op::Additive(Box::new(Op::Conv(geometry))), &[x, y])?
                } else {
                    let (x, y) = matrices(p, &[v[0], y], n, 1)?;
                    p.step("product", Op::Additive(Box::new(Op::MatMul)), &[x, y])?
                };
                Ok(vec![p.step("op", Op::Truncate { bits: 1 }, &[z])?])
            };
            let form = if conv { "of a convolution" } else { "of matrices" };
            self.add("Additive", form, 4, &[1, 1], Self::factors(), move |s| vec![rounded(one(s))], build)
                .frac = 1;
        }
        // A shared product, truncated.
        self.add(
            "Truncate",
            "of a product",
            4,
            &[1, 1],
            Self::factors(),
            move |s| vec![rounded(one(s))],
            move |p, v, _| {
                let y = p.step("y", Op::Rescale { frac: 0 }, &[v[1]])?;
                let z = p.step("product", Op::Mul, &[v[0], y])?;
                Ok(vec![p.step("op", truncate(), &[z])?])
            },
        )
        .frac = 1;
    }

    fn comparisons(&mut self) {
        let sign = |s: &[i64]| words(s.iter().map(|&x| bit(x >= 0)).collect());
        let mut add = |form: &str, ring: u32, elements: usize, list: SignBit, secrets: Vec<Vec<i64>>| {
            let (cut, op) = (list.cut, Op::NonNegative(list.clone()));
            let expect = move |s: &[i64]| -> Vec<Expected> {
                let read = |&x: &i64| match x {
                    x if -(1 << cut) < x && x < 0 => Expected::OneOf { x, words: vec![0, 1] },
                    x => Expected::Word(bit(x >= 0)),
                };
                s.iter().map(read).collect()
            };
            let case = self.add("NonNegative", form, ring, &[elements], secrets, expect, move |p, v, _| {
                Ok(vec![p.step("op", op.clone(), v)?])
            });
            case.sign = list;
        };
        let digits = |widths: &[u32]| SignBit { list: List::Digits(widths.to_vec()), ..SignBit::FULL };
        add("2 bits", 2, 1, SignBit::FULL, all(&range(2), 1));
        add("3 bits", 3, 1, SignBit::FULL, all(&range(3), 1));
        add("4 bits", 4, 1, SignBit::FULL, all(&range(4), 1));
        add("digits 1, 1", 3, 1, digits(&[1, 1]), all(&range(3), 1));
        add("a digit of 2", 3, 1, digits(&[2]), all(&range(3), 1));
        add("digits 2, 1", 4, 1, digits(&[2, 1]), all(&range(4), 1));
        // x ≤ 2^(k+λ−1) − 2^k.
        add("cut by 1", 3, 1, SignBit { cut: 1, ..SignBit::FULL }, all(&[-4, -3, -2, -1, 0, 1, 2], 1));
        let cut = SignBit { cut: 1, bits: Some(2), list: List::Digits(vec![1]) };
        add("a digit, cut by 1, of 4 bits", 4, 1, cut, all(&[-4, -3, -2, -1, 0, 1, 2], 1));
        add("neighbours", 2, 2, SignBit::FULL, all(&range(2), 2));
        add("neighbours by digits", 2, 2, digits(&[1]), all(&range(2), 2));
        self.add(
            "NonNegative",
            "of one value twice",
            2,
            &[1],
            all(&range(2), 1),
            move |s| sign(&[s[0], s[0]]),
            |p, v, _| {
                let op = || Op::NonNegative(SignBit::FULL);
                Ok(vec![p.step("op", op(), v)?, p.step("again", op(), v)?])
            },
        );
        for (ring, thresholds) in [(2, vec![0, 1]), (2, vec![-2, 0, 1]), (3, vec![-1, 2])] {
            let (t, u) = (thresholds.clone(), thresholds.clone());
            let expect = move |s: &[i64]| words(t.iter().map(|t| bit(wrap(s[0] - t, ring) >= 0)).collect());
            let form = format!("{ring} bits, {} thresholds", thresholds.len());
            self.add("CompareMany", form, ring, &[1], all(&range(ring), 1), expect, move |p, v, _| {
                let op = Op::CompareMany { sign: SignBit::FULL, thresholds: u.clone() };
                Ok(vec![p.step("op", op, v)?])
            });
        }
        let expect = |s: &[i64]| {
            words([0, 1].iter().flat_map(|t| s.iter().map(move |x| bit(wrap(x - t, 2) >= 0))).collect())
        };
        let sign_of = || SignBit { list: List::Digits(vec![1]), ..SignBit::FULL };
        self.add(
            "CompareMany",
            "neighbours, 2 thresholds",
            2,
            &[2],
            all(&range(2), 2),
            expect,
            move |p, v, _| {
                Ok(vec![p.step("op", Op::CompareMany { sign: sign_of(), thresholds: vec![0, 1] }, v)?])
            },
        );
        let expect = |s: &[i64]| words([-3, 1].iter().map(|t| bit(wrap(s[0] - t, 3) >= 0)).collect());
        self.add(
            "CompareMany",
            "a digit of 2, 2 thresholds",
            3,
            &[1],
            all(&range(3), 1),
            expect,
            |p, v, _| {
                let sign = SignBit { list: List::Digits(vec![2]), ..SignBit::FULL };
                Ok(vec![p.step("op", Op::CompareMany { sign, thresholds: vec![-3, 1] }, v)?])
            },
        );
        let narrow = || SignBit { bits: Some(3), ..SignBit::FULL };
        let case = self.add(
            "NonNegative",
            "3 bits of 5",
            5,
            &[1],
            all(&(-4..4).collect::<Vec<_>>(), 1),
            sign,
            move |p, v, _| Ok(vec![p.step("op", Op::NonNegative(narrow()), v)?]),
        );
        (case.only, case.sign) = (Some(BICOPTOR), narrow());
        let relu = |s: &[i64]| words(vec![s[0].max(0)]);
        let case = self.add(
            "Relu",
            "3 bits of 5",
            5,
            &[1],
            all(&(-4..4).collect::<Vec<_>>(), 1),
            relu,
            move |p, v, _| {
                let relu = Relu { sign: narrow(), form: ReluForm::ThreeRounds, truncate: 0 };
                Ok(vec![p.step("op", Op::Relu(relu), v)?])
            },
        );
        (case.only, case.sign) = (Some(BICOPTOR), narrow());
    }

    fn relus(&mut self) {
        use ReluForm::*;
        let digit = |widths: &[u32]| SignBit { list: List::Digits(widths.to_vec()), ..SignBit::FULL };
        for form in [ThreeRounds, TwoRounds, TwoRoundsFresh, Table] {
            let cut = SignBit { cut: 1, bits: Some(2), list: List::Digits(vec![1]) };
            let forms = [
                ("3 bits", 3, 1, 0, SignBit::FULL),
                ("digits 1, 1", 3, 1, 0, digit(&[1, 1])),
                ("a digit of 2", 3, 1, 0, digit(&[2])),
                ("neighbours", 3, 2, 0, digit(&[2])),
                ("truncated by 1", 4, 1, 1, digit(&[2, 1])),
                ("truncated by 1, cut by 1", 4, 1, 1, cut),
            ];
            for (name, ring, elements, truncate, sign) in forms {
                let values = if truncate > 0 { (-4..4).collect() } else { range(ring) };
                // After a cut, comparisons are of few bits.
                let values: Vec<i64> =
                    values.into_iter().filter(|x| sign.cut == 0 || (-4..=2).contains(x)).collect();
                for dealt in [false, true] {
                    let relu = Op::Relu(Relu { sign: sign.clone(), form, truncate });
                    let op = if dealt { Op::Offloaded(Box::new(relu)) } else { relu };
                    let expect = move |s: &[i64]| s.iter().map(|&x| relu_of(x, truncate)).collect();
                    let label = if dealt { "Offloaded" } else { "Relu" };
                    let case = self.add(
                        label,
                        format!("{form:?}, {name}"),
                        ring,
                        &[elements],
                        all(&values, elements),
                        expect,
                        move |p, v, _| Ok(vec![p.step("op", op.clone(), v)?]),
                    );
                    case.frac = truncate;
                    case.sign = sign.clone();
                    // Forms are of lists of the dealer's.
                    let dealers: &[&str] = &["mizar", "concurrent", "aegis"];
                    if !dealt && form != ThreeRounds {
                        case.only = Some(dealers);
                    }
                }
            }
        }
    }

    fn maxima(&mut self) {
        let largest = |s: &[i64]| words(vec![*s.iter().max().expect("some")]);
        for (ring, values, n) in [(2, vec![-1, 0], 2), (3, vec![-2, -1, 0, 1], 2), (2, vec![-1, 0], 3)] {
            for dealt in [false, true] {
                let maximum = Op::Maximum(SignBit::FULL);
                let op = if dealt { Op::Offloaded(Box::new(maximum)) } else { maximum };
                let label = if dealt { "Offloaded" } else { "Maximum" };
                let form = format!("the largest of {n} of {ring} bits");
                self.add(label, form, ring, &[1; 4][..n], all(&values, n), largest, move |p, v, _| {
                    Ok(vec![p.step("op", op.clone(), v)?])
                });
            }
        }
    }

    fn bits(&mut self) {
        let of = |x: i64, ring: u32| (0..ring).map(move |k| x >> k & 1);
        for (ring, elements) in [(2, 1), (3, 1), (4, 1), (2, 2)] {
            let secrets = all(&range(ring), elements);
            let expect =
                move |s: &[i64]| words((0..ring).flat_map(|k| s.iter().map(move |x| x >> k & 1)).collect());
            let form = if elements == 1 { format!("{ring} bits") } else { "neighbours".into() };
            self.add("ToBits", form.clone(), ring, &[elements], secrets.clone(), expect, |p, v, _| {
                Ok(vec![p.step("op", Op::ToBits, v)?])
            });
            self.add(
                "FromBits",
                format!("of ToBits, {form}"),
                ring,
                &[elements],
                secrets,
                |s| words(s.to_vec()),
                |p, v, _| {
                    let b = p.step("bits", Op::ToBits, v)?;
                    Ok(vec![p.step("op", Op::FromBits, &[b])?])
                },
            );
        }
        for ring in [2, 3] {
            let secrets = some(all(&range(ring), 2), 32);
            self.add(
                "AddBits",
                format!("{ring} bits"),
                ring,
                &[1, 1],
                secrets,
                move |s| words(of(s[0] + s[1], ring).collect()),
                |p, v, _| {
                    let a = p.step("a", Op::ToBits, &v[..1])?;
                    let b = p.step("b", Op::ToBits, &v[1..])?;
                    Ok(vec![p.step("op", Op::AddBits, &[a, b])?])
                },
            );
        }
        let sign = |p: &mut Plan, name: &str, v: ValueId| p.step(name, Op::NonNegative(SignBit::FULL), &[v]);
        let two = || all(&range(2), 2);
        self.add(
            "Select",
            "after a comparison",
            2,
            &[1, 1],
            two(),
            |s| words(vec![if s[0] >= 0 { s[1] } else { 0 }]),
            move |p, v, _| {
                let b = sign(p, "bit", v[0])?;
                Ok(vec![p.step("op", Op::Select, &[b, v[1]])?])
            },
        );
        self.add(
            "Select",
            "of the compared value, and the bit again",
            2,
            &[1],
            all(&range(2), 1),
            |s| words(vec![s[0].max(0), bit(s[0] >= 0)]),
            move |p, v, _| {
                let b = sign(p, "bit", v[0])?;
                Ok(vec![p.step("op", Op::Select, &[b, v[0]])?, b])
            },
        );
        self.add(
            "Select",
            "neighbours",
            2,
            &[2, 2],
            some(all(&range(2), 4), 40),
            |s| words((0..2).map(|i| if s[i] >= 0 { s[2 + i] } else { 0 }).collect()),
            move |p, v, _| {
                let b = sign(p, "bit", v[0])?;
                Ok(vec![p.step("op", Op::Select, &[b, v[1]])?])
            },
        );
        self.add(
            "BitToRing",
            "after a comparison",
            2,
            &[1],
            all(&range(2), 1),
            |s| words(vec![bit(s[0] >= 0)]),
            move |p, v, _| {
                let b = sign(p, "bit", v[0])?;
                Ok(vec![p.step("op", Op::BitToRing, &[b])?])
            },
        );
        self.add(
            "BitToRing",
            "neighbours",
            2,
            &[2],
            two(),
            |s| words(s.iter().map(|&x| bit(x >= 0)).collect()),
            move |p, v, _| {
                let b = sign(p, "bit", v[0])?;
                Ok(vec![p.step("op", Op::BitToRing, &[b])?])
            },
        );
        self.add(
            "Xor",
            "of two comparisons",
            2,
            &[1, 1],
            two(),
            |s| words(vec![bit((s[0] >= 0) != (s[1] >= 0))]),
            move |p, v, _| {
                let (a, b) = (sign(p, "a", v[0])?, sign(p, "b", v[1])?);
                Ok(vec![p.step("op", Op::Xor, &[a, b])?])
            },
        );
        self.add(
            "Not",
            "of a comparison",
            2,
            &[1],
            all(&range(2), 1),
            |s| words(vec![bit(s[0] < 0)]),
            move |p, v, _| {
                let b = sign(p, "bit", v[0])?;
                Ok(vec![p.step("op", Op::Not, &[b])?])
            },
        );
        for n in [2, 3, 4] {
            let secrets = some(all(&range(2), n), 32);
            self.add(
                "And",
                format!("{n} factors"),
                2,
                &[1; 4][..n],
                secrets,
                |s| words(vec![bit(s.iter().all(|&x| x >= 0))]),
                move |p, v, _| {
                    let names = ["a", "b", "c", "d"].iter().zip(v);
                    let bits = names.map(|(name, &v)| sign(p, name, v)).collect::<Result<Vec<_>, _>>()?;
                    Ok(vec![p.step("op", Op::And, &bits)?])
                },
            );
        }
        self.add(
            "And",
            "neighbours",
            2,
            &[2, 2],
            some(all(&range(2), 4), 32),
            |s| words((0..2).map(|i| bit(s[i] >= 0 && s[2 + i] >= 0)).collect()),
            move |p, v, _| {
                let (a, b) = (sign(p, "a", v[0])?, sign(p, "b", v[1])?);
                Ok(vec![p.step("op", Op::And, &[a, b])?])
            },
        );
        // Bicoptor compares three bits and more, on a ring that has two more.
        let narrow = |p: &mut Plan, name: &str, v: ValueId| {
            p.step(name, Op::NonNegative(SignBit { bits: Some(3), ..SignBit::FULL }), &[v])
        };
        let four = || all(&[-4, -1, 0, 3], 2);
        let case = self.add(
            "Select",
            "3 bits of 5",
            5,
            &[1, 1],
            four(),
            |s| words(vec![if s[0] >= 0 { s[1] } else { 0 }]),
            move |p, v, _| {
                let b = narrow(p, "bit", v[0])?;
                Ok(vec![p.step("op", Op::Select, &[b, v[1]])?])
            },
        );
        case.only = Some(BICOPTOR);
        for op in [Op::Xor, Op::And] {
            let both = op == Op::And;
            let expect = move |s: &[i64]| {
                let (a, b) = (s[0] >= 0, s[1] >= 0);
                words(vec![bit(if both { a && b } else { a != b })])
            };
            let case = self.add(name(&op), "3 bits of 5", 5, &[1, 1], four(), expect, move |p, v, _| {
                let (a, b) = (narrow(p, "a", v[0])?, narrow(p, "b", v[1])?);
                Ok(vec![p.step("op", op.clone(), &[a, b])?])
            });
            case.only = Some(BICOPTOR);
        }
        for op in [Op::Not, Op::BitToRing] {
            let not = op == Op::Not;
            let values = all(&[-4, -1, 0, 3], 1);
            let case = self.add(
                name(&op),
                "3 bits of 5",
                5,
                &[1],
                values,
                move |s| words(vec![bit((s[0] >= 0) != not)]),
                move |p, v, _| {
                    let b = narrow(p, "bit", v[0])?;
                    Ok(vec![p.step("op", op.clone(), &[b])?])
                },
            );
            case.only = Some(BICOPTOR);
        }
        // On bits of ToBits, which a product of bits masks alone.
        self.add(
            "And",
            "of a value's bits",
            2,
            &[1, 1],
            two(),
            |s| words((0..2).map(|k| (s[0] & s[1]) >> k & 1).collect()),
            |p, v, _| {
                let a = p.step("a", Op::ToBits, &v[..1])?;
                let b = p.step("b", Op::ToBits, &v[1..])?;
                Ok(vec![p.step("op", Op::And, &[a, b])?])
            },
        );
    }
}

/// What a ReLU with a truncation gives.
fn relu_of(x: i64, bits: u32) -> Expected {
    match (x < 0, bits) {
        (true, _) => Expected::Word(0),
        (false, 0) => Expected::Word(x),
        (false, bits) => Expected::Rounded { x, bits },
    }
}

/// A row of `k` by a column in every lane.
fn matrices(p: &mut Plan, v: &[ValueId], n: usize, k: usize) -> Result<(ValueId, ValueId), PlanError> {
    let lane = n as isize;
    let row = View { shape: [n, 1, k].into(), strides: vec![1, 0, lane], offset: 0 };
    let column = View { shape: [n, k, 1].into(), strides: vec![1, lane, 0], offset: 0 };
    Ok((p.step("row", Op::View(row), &[v[0]])?, p.step("column", Op::View(column), &[v[1]])?))
}

/// An image of `k` places and a kernel of `k` taps in every lane: lanes are groups.
fn images(
    p: &mut Plan,
    v: &[ValueId],
    n: usize,
    k: usize,
) -> Result<(ValueId, ValueId, ConvGeometry), PlanError> {
    let lane = n as isize;
    let image = View { shape: [1, n, 1, k].into(), strides: vec![0, 1, 0, lane], offset: 0 };
    let kernel = View { shape: [n, 1, 1, k].into(), strides: vec![1, 0, 0, lane], offset: 0 };
    let geometry = ConvGeometry { groups: n, ..ConvGeometry::default() };
    Ok((p.step("image", Op::View(image), &[v[0]])?, p.step("kernel", Op::View(kernel), &[v[1]])?, geometry))
}

/// All cases.
pub fn all_cases() -> Vec<Case> {
    let mut table = Table(vec![]);
    table.linear();
    table.products();
    table.truncations();
    table.comparisons();
    table.relus();
    table.maxima();
    table.bits();
    table.0
}
