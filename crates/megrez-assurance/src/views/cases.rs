//! What is looked at: every operation in every form, alone and in the company in which it may leak.

mod bits;
mod comparisons;
mod linear;
mod truncations;

use megrez_plan::{ConvGeometry, Op, Plan, PlanError, SignBit, ValueId, View};

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
const BUT_BICOPTOR: &[&str] =
    &["mizar", "concurrent", "aegis", "aby3", "falcon", "alkaid", "meteor", "alkaid-masked"];

/// Two workers and a dealer.
const DEALT: &[&str] = &["mizar", "concurrent", "aegis"];

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

/// The name of an operation. A new one has no name until it stands here, and no coverage until it
/// has a case.
pub fn name(op: &Op) -> &'static str {
    match op {
        Op::Constant { .. } => "Constant",
        Op::Noise { .. } => "Noise",
        Op::Combine { .. } => "Combine",
        Op::View(_) => "View",
        Op::Concat { .. } => "Concat",
        Op::Pad { .. } => "Pad",
        Op::Sum { .. } => "Sum",
        Op::Gather { .. } => "Gather",
        Op::Rescale { .. } => "Rescale",
        Op::TimesPublic(_) => "TimesPublic",
        Op::Mul => "Mul",
        Op::MulTruncated { .. } => "MulTruncated",
        Op::MatMul => "MatMul",
        Op::Conv(_) => "Conv",
        Op::Additive(_) => "Additive",
        Op::Reshare => "Reshare",
        Op::Truncate { .. } => "Truncate",
        Op::NonNegative(_) => "NonNegative",
        Op::CompareMany { .. } => "CompareMany",
        Op::Relu(_) => "Relu",
        Op::Maximum(_) => "Maximum",
        Op::Offloaded(_) => "Offloaded",
        Op::ToBits => "ToBits",
        Op::FromBits => "FromBits",
        Op::AddBits => "AddBits",
        Op::Select { .. } => "Select",
        Op::SelectSum { .. } => "SelectSum",
        Op::BitToRing => "BitToRing",
        Op::LowBit => "LowBit",
        Op::BitMatMul => "BitMatMul",
        Op::BitPolynomials { .. } => "BitPolynomials",
        Op::Xor => "Xor",
        Op::And => "And",
        Op::Not => "Not",
        Op::Lookup(_) => "Lookup",
        Op::Winner(_) => "Winner",
    }
}

/// All names, in the order of [`name`].
pub const NAMES: [&str; 35] = [
    "Constant",
    "Noise",
    "Combine",
    "View",
    "Concat",
    "Pad",
    "Sum",
    "Gather",
    "Rescale",
    "Mul",
    "MulTruncated",
    "MatMul",
    "Conv",
    "Additive",
    "Reshare",
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
    "SelectSum",
    "BitToRing",
    "LowBit",
    "BitMatMul",
    "BitPolynomials",
    "Xor",
    "And",
    "Not",
    "Lookup",
    "Winner",
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
    table.sums();
    table.truncations();
    table.comparisons();
    table.relus();
    table.maxima();
    table.lookups();
    table.winners();
    table.bits();
    table.0
}
