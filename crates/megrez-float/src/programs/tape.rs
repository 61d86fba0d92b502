//! Programs that come as data: a tape of operations on vectors, as Python records it.
//!
//! Entries have numbers of the caller's and refer to earlier ones. A [`Machine`] runs tape after
//! tape and keeps the values, so that a program can go on after some of it was opened. Shapes are
//! the caller's business: broadcasting, transposing, slicing and matrix products are gathers.
//!
//! Entries that do not wait for each other and do the same go together, in one call of the
//! operation: rounds are per call.

use super::parts::part_size;
use super::{fused_dots, fused_sum, sum};
use crate::any::{AnyBlocks, Bit, Failure, plain_bits};
use crate::blocks::Blocks;
use crate::float::{Float, choose};
use crate::format::{Format, Plain};
use crate::ops::{self, Output};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};

/// Operations that cost nothing, beside those of [`ops::OPS`]: −x, |x|, and the truth values of "x
/// is not a number" and "x is infinite".
pub const LOCAL: &[&str] = &["neg", "abs", "isnan", "isinf"];

/// The number of an entry.
pub type Name = u64;

/// One entry.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Entry {
    /// Numbers that somebody brings.
    Input {
        /// Who: a number of the caller's.
        owner: usize,
        /// How many.
        lanes: usize,
    },
    /// Numbers that everybody knows, as bits of single precision.
    Public(Vec<u32>),
    /// Truth values that everybody knows.
    Known(Vec<bool>),
    /// An operation of [`ops::OPS`] on numbers, lane by lane, but for those on integers; or one of
    /// [`LOCAL`].
    Apply {
        /// Its name.
        op: String,
        /// Its operands, as many as it has, of the same lanes.
        of: Vec<Name>,
    },
    /// a ∧ b of truth values.
    And(Name, Name),
    /// a ⊕ b of truth values.
    Xor(Name, Name),
    /// ¬a of truth values.
    Not(Name),
    /// `bit ? yes : no` of numbers.
    Choose {
        /// Truth values.
        bit: Name,
        /// Numbers for true.
        yes: Name,
        /// Numbers for false.
        no: Name,
    },
    /// The lanes of numbers or truth values at public places, which may repeat.
    Gather {
        /// Of what.
        of: Name,
        /// The places.
        lanes: Vec<u32>,
    },
    /// All lanes of several vectors, one after the other.
    Concat(Vec<Name>),
    /// The sums of blocks of `lanes` numbers, in the order of [`sum`].
    Sum {
        /// The blocks, one or more.
        of: Name,
        /// Lanes of a block.
        lanes: usize,
    },
    /// As [`Sum`](Entry::Sum), rounded once, by [`fused_sum`].
    FusedSum {
        /// The blocks, one or more.
        of: Name,
        /// Lanes of a block.
        lanes: usize,
    },
    /// The sums of blocks of `lanes` products, rounded once, by [`fused_dots`].
    Dot {
        /// The blocks of both factors, one or more, and as many of each.
        of: [Name; 2],
        /// Lanes of a block.
        lanes: usize,
    },
}

impl Entry {
    /// What it refers to.
    #[must_use]
    pub fn operands(&self) -> Vec<Name> {
        match self {
            Self::Input { .. } | Self::Public(_) | Self::Known(_) => vec![],
            Self::Apply { of, .. } | Self::Concat(of) => of.clone(),
            Self::And(a, b) | Self::Xor(a, b) => vec![*a, *b],
            Self::Choose { bit, yes, no } => vec![*bit, *yes, *no],
            Self::Not(of) | Self::Gather { of, .. } => vec![*of],
            Self::Sum { of, .. } | Self::FusedSum { of, .. } => vec![*of],
            Self::Dot { of, .. } => of.to_vec(),
        }
    }

    /// Entries of equal keys can go together; `None` for what is local or stands alone.
    #[must_use]
    pub fn key(&self) -> Option<&str> {
        match self {
            Self::Apply { op, of } if op == "mul" && of[0] == of[1] => Some("square"),
            Self::Apply { op, .. } if !LOCAL.contains(&op.as_str()) => Some(op),
            Self::And(..) => Some("and"),
            Self::Choose { .. } => Some("choose"),
            _ => None,
        }
    }
}

/// What an entry makes, without the values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    /// Truth values, otherwise numbers.
    pub truth: bool,
    /// How many.
    pub lanes: usize,
}

/// The shape of an entry, if what it refers to has the shapes that `of` says.
///
/// # Errors
/// What is wrong with the entry. A tape whose entries have shapes, and whose numbers differ, runs.
pub fn shape(entry: &Entry, of: impl Fn(Name) -> Option<Shape>) -> Result<Shape, String> {
    let known = |name: Name| of(name).ok_or_else(|| format!("there is no value {name}"));
    let expect = |truth: bool, name: Name| {
        let shape = known(name)?;
        let what = if truth { "truth values" } else { "numbers" };
        if shape.truth == truth { Ok(shape.lanes) } else { Err(format!("value {name} should be {what}")) }
    };
    let same = |lanes: &[usize]| {
        let first = lanes.first().copied().filter(|first| lanes.iter().all(|n| n == first));
        first.ok_or_else(|| format!("operands of different lengths: {lanes:?}"))
    };
    Ok(match entry {
        Entry::Input { lanes, .. } => Shape { truth: false, lanes: *lanes },
        Entry::Public(bits) => Shape { truth: false, lanes: bits.len() },
        Entry::Known(bits) => Shape { truth: true, lanes: bits.len() },
        Entry::Apply { op, of } => {
            let wanted = match op.as_str() {
                op if LOCAL.contains(&op) => Some(1),
                "to-fixed" | "from-fixed" => None,
                _ => ops::operands(op),
            };
            if wanted != Some(of.len()) {
                return Err(format!("there is no operation `{op}` of {} operands", of.len()));
            }
            let lanes = of.iter().map(|&x| expect(false, x)).collect::<Result<Vec<_>, _>>()?;
            Shape {
                truth: matches!(op.as_str(), "lt" | "le" | "eq" | "isnan" | "isinf"),
                lanes: same(&lanes)?,
            }
        }
        Entry::And(a, b) | Entry::Xor(a, b) => {
            Shape { truth: true, lanes: same(&[expect(true, *a)?, expect(true, *b)?])? }
        }
        Entry::Not(of) => Shape { truth: true, lanes: expect(true, *of)? },
        Entry::Choose { bit, yes, no } => {
            let lanes = [expect(true, *bit)?, expect(false, *yes)?, expect(false, *no)?];
            Shape { truth: false, lanes: same(&lanes)? }
        }
        Entry::Gather { of, lanes } => {
            let from = known(*of)?;
            if let Some(lane) = lanes.iter().find(|&&lane| lane as usize >= from.lanes) {
                return Err(format!("lane {lane} of {}", from.lanes));
            }
            Shape { lanes: lanes.len(), ..from }
        }
        Entry::Concat(of) => {
            let shapes = of.iter().map(|&x| known(x)).collect::<Result<Vec<_>, _>>()?;
            let Some(&Shape { truth, .. }) =
                shapes.first().filter(|s| shapes.iter().all(|t| t.truth == s.truth))
            else {
                return Err("a concatenation of nothing, or of numbers and truth values".into());
            };
            Shape { truth, lanes: shapes.iter().fold(0, |all, s| all.saturating_add(s.lanes)) }
        }
        Entry::Sum { lanes, .. } | Entry::FusedSum { lanes, .. } | Entry::Dot { lanes, .. } => {
            let terms = entry.operands().iter().map(|&x| expect(false, x)).collect::<Result<Vec<_>, _>>()?;
            let terms = same(&terms)?;
            if *lanes == 0 || terms == 0 || terms % lanes != 0 {
                return Err(format!("{terms} numbers are no blocks of {lanes}"));
            }
            Shape { truth: false, lanes: *lanes }
        }
    })
}

/// A vector on the machine.
pub enum Value {
    /// Numbers.
    Float(Float),
    /// Truth values.
    Bit(Bit),
}

impl Value {
    fn lanes(&self, b: &AnyBlocks) -> usize {
        match self {
            Self::Float(x) => x.lanes(b),
            Self::Bit(x) => b.bit_lanes(x),
        }
    }

    /// Everybody knows it.
    fn is_known(&self, b: &AnyBlocks) -> bool {
        match self {
            Self::Float(x) => b.known(&x.man).is_some(),
            Self::Bit(x) => b.known_bits(x).is_some(),
        }
    }

    fn gather(&self, b: &AnyBlocks, lanes: &[usize]) -> Self {
        match self {
            Self::Float(x) => Self::Float(x.gather(b, lanes)),
            Self::Bit(x) => Self::Bit(b.gather_bits(x, lanes)),
        }
    }

    fn concat(b: &AnyBlocks, all: &[&Self]) -> Self {
        let floats: Vec<_> =
            all.iter().filter_map(|v| if let Self::Float(x) = v { Some(x) } else { None }).collect();
        let bits: Vec<_> =
            all.iter().filter_map(|v| if let Self::Bit(x) = v { Some(x) } else { None }).collect();
        if bits.is_empty() { Self::Float(Float::concat(b, &floats)) } else { Self::Bit(b.concat_bits(&bits)) }
    }

    fn float(&self) -> &Float {
        let Self::Float(x) = self else { unreachable!("the shape of the entry was asked for") };
        x
    }

    fn bit(&self) -> &Bit {
        let Self::Bit(x) = self else { unreachable!("the shape of the entry was asked for") };
        x
    }
}

/// What has come out of tapes so far.
#[derive(Default)]
pub struct Machine {
    values: HashMap<Name, Value>,
}

impl Machine {
    /// A value.
    ///
    /// # Panics
    /// If there is no entry of that name.
    #[must_use]
    pub fn value(&self, name: Name) -> &Value {
        &self.values[&name]
    }

    /// Drops a value that no tape refers to any more.
    pub fn forget(&mut self, name: Name) {
        self.values.remove(&name);
    }

    /// Runs a tape whose entries have [`shape`]s. `input` gives the numbers of an input by name
    /// and lanes.
    ///
    /// # Errors
    /// If the blocks fail.
    ///
    /// # Panics
    /// If an entry has no shape.
    pub fn run(
        &mut self,
        b: &mut AnyBlocks,
        tape: &[(Name, Entry)],
        input: &mut dyn FnMut(Name, usize) -> Float,
    ) -> Result<(), Failure> {
        let mut levels: BTreeMap<usize, Vec<&(Name, Entry)>> = BTreeMap::new();
        levels_of(tape).zip(tape).for_each(|(level, entry)| levels.entry(level).or_default().push(entry));
        for here in levels.values() {
            // What everybody knows stays apart from what is secret, for it costs less.
            let mut together: BTreeMap<(&str, Vec<bool>), Vec<&(Name, Entry)>> = BTreeMap::new();
            for entry in here {
                let Some(key) = entry.1.key() else { continue };
                let known = entry.1.operands().iter().map(|x| self.value(*x).is_known(b)).collect();
                together.entry((key, known)).or_default().push(entry);
            }
            for ((key, _), entries) in together {
                self.batch(b, key, &entries)?;
            }
            for (name, entry) in here.iter().filter(|e| e.1.key().is_none()) {
                let value = self.alone(b, *name, entry, input)?;
                self.values.insert(*name, value);
            }
        }
        Ok(())
    }

    /// Entries of one key, in one call.
    fn batch(&mut self, b: &mut AnyBlocks, key: &str, entries: &[&(Name, Entry)]) -> Result<(), Failure> {
        let of: Vec<Vec<Name>> = entries.iter().map(|(_, entry)| entry.operands()).collect();
        let operands: Vec<Value> = (0..of[0].len())
            .map(|i| Value::concat(b, &of.iter().map(|of| self.value(of[i])).collect::<Vec<_>>()))
            .collect();
        let sizes: Vec<usize> = of.iter().map(|of| self.value(of[0]).lanes(b)).collect();
        let total: usize = sizes.iter().sum();
        let size = part_size(total, 1, b.threads());
        let parts = b.parts(total.div_ceil(size).max(1), |b, i| {
            let lanes: Vec<usize> = (i * size..total.min((i + 1) * size)).collect();
            let operands: Vec<_> = operands.iter().map(|x| x.gather(b, &lanes)).collect();
            call(b, key, &operands)
        })?;
        let result = Value::concat(b, &parts.iter().collect::<Vec<_>>());
        let mut from = 0;
        for ((name, _), size) in entries.iter().zip(sizes) {
            let lanes: Vec<usize> = (from..from + size).collect();
            self.values.insert(*name, result.gather(b, &lanes));
            from += size;
        }
        Ok(())
    }

    /// An entry that is local, or a sum.
    fn alone(
        &self,
        b: &mut AnyBlocks,
        name: Name,
        entry: &Entry,
        input: &mut dyn FnMut(Name, usize) -> Float,
    ) -> Result<Value, Failure> {
        Ok(match entry {
            Entry::Input { lanes, .. } => Value::Float(input(name, *lanes)),
            Entry::Public(bits) => {
                let bits: Vec<u64> = bits.iter().map(|&v| v.into()).collect();
                Value::Float(Float::public(b, &Plain::from_bits(Format::FLOAT32, &bits)))
            }
            Entry::Known(bits) => Value::Bit(b.public_bits(bits)),
            Entry::Apply { op, of } => {
                let x = self.value(of[0]).float();
                match op.as_str() {
                    "neg" => Value::Float(x.neg(b)),
                    "abs" => Value::Float(x.abs(b)),
                    "isnan" => Value::Bit(x.nan.clone()),
                    _ => Value::Bit(x.inf.clone()),
                }
            }
            Entry::Xor(x, y) => Value::Bit(b.xor(self.value(*x).bit(), self.value(*y).bit())),
            Entry::Not(of) => Value::Bit(b.not(self.value(*of).bit())),
            Entry::Gather { of, lanes } => {
                let lanes: Vec<usize> = lanes.iter().map(|&lane| lane as usize).collect();
                self.value(*of).gather(b, &lanes)
            }
            Entry::Concat(of) => {
                let parts: Vec<_> = of.iter().map(|&x| self.value(x)).collect();
                Value::concat(b, &parts)
            }
            Entry::FusedSum { of, lanes } => Value::Float(fused_sum(b, self.value(*of).float(), *lanes)?),
            Entry::Dot { of: [x, y], lanes } => {
                let (x, y) = (self.value(*x).float(), self.value(*y).float());
                let place = |term: usize, lane: usize| term * lanes + lane;
                Value::Float(fused_dots(b, (x, &place), (y, &place), x.lanes(b) / lanes, *lanes)?)
            }
            Entry::Sum { of, lanes } => Value::Float(sum(b, self.value(*of).float(), *lanes)?),
            Entry::And(..) | Entry::Choose { .. } => unreachable!("goes together with others"),
        })
    }
}

/// One call of an operation.
fn call(b: &mut AnyBlocks, key: &str, operands: &[Value]) -> Result<Value, Failure> {
    Ok(match key {
        "and" => Value::Bit(b.both(operands[0].bit(), operands[1].bit())?),
        "choose" => Value::Float(choose(b, operands[0].bit(), operands[1].float(), operands[2].float())?),
        op => {
            let x = operands[0].float();
            let y = operands.get(1).map_or(x, Value::float);
            match ops::run(op, b, x, y)? {
                Some(Output::Float(z)) => Value::Float(z),
                Some(Output::Bit(z)) => Value::Bit(z),
                _ => unreachable!("the shape of the entry was asked for"),
            }
        }
    })
}

/// How many entries that cost rounds each entry waits for, itself included; within a level, local
/// entries come last.
fn levels_of(tape: &[(Name, Entry)]) -> impl Iterator<Item = usize> {
    let mut known: HashMap<Name, usize> = HashMap::new();
    tape.iter().map(move |(name, entry)| {
        let before = entry.operands().iter().filter_map(|x| known.get(x)).copied().max().unwrap_or(0);
        let level = before + usize::from(entry.key().is_some());
        known.insert(*name, level);
        level
    })
}

impl Machine {
    /// A value of tapes that ran in the clear as bits of single precision; truth values as 0 and 1.
    #[must_use]
    pub fn bits(&self, name: Name) -> Vec<u32> {
        match self.value(name) {
            Value::Float(x) => x.plain().to_bits().into_iter().map(|v| v as u32).collect(),
            Value::Bit(bits) => plain_bits(bits).0.iter().map(|&v| v as u32).collect(),
        }
    }
}

#[cfg(test)]
mod tests;
