//! Programs that come as data: a tape of operations on vectors, as Python records it.
//!
//! Entries have numbers of the caller's and refer to earlier ones. A [`Machine`] runs tape after
//! tape and keeps the values, so that a program can go on after some of it was opened. Shapes are
//! the caller's business: broadcasting, transposing, slicing and matrix products are gathers.
//!
//! Entries that do not wait for each other and do the same go together, in one call of the
//! operation: rounds are per call.

use super::parts::part_size;
use super::sum;
use crate::blocks::Blocks;
use crate::clear::{Bits, Clear};
use crate::float::{Float, choose};
use crate::format::{Format, Plain};
use crate::ops::{self, Output};
use crate::single::Single;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};

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
    /// An operation of [`ops::OPS`] on numbers, lane by lane, but for those on integers; or `neg`,
    /// `abs`.
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
            Self::Not(of) | Self::Gather { of, .. } | Self::Sum { of, .. } => vec![*of],
        }
    }

    /// Entries of equal keys can go together; `None` for what is local or stands alone.
    #[must_use]
    pub fn key(&self) -> Option<&str> {
        match self {
            Self::Apply { op, .. } if !matches!(op.as_str(), "neg" | "abs") => Some(op),
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
                "neg" | "abs" => Some(1),
                "to-fixed" | "from-fixed" => None,
                _ => ops::operands(op),
            };
            if wanted != Some(of.len()) {
                return Err(format!("there is no operation `{op}` of {} operands", of.len()));
            }
            let lanes = of.iter().map(|&x| expect(false, x)).collect::<Result<Vec<_>, _>>()?;
            Shape { truth: matches!(op.as_str(), "lt" | "le" | "eq"), lanes: same(&lanes)? }
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
        Entry::Sum { of, lanes } => {
            let terms = expect(false, *of)?;
            if *lanes == 0 || terms == 0 || terms % lanes != 0 {
                return Err(format!("{terms} numbers are no blocks of {lanes}"));
            }
            Shape { truth: false, lanes: *lanes }
        }
    })
}

/// A vector on the machine.
pub enum Value<B: Blocks> {
    /// Numbers.
    Float(Float<B>),
    /// Truth values.
    Bit(B::Bit),
}

impl<B: Blocks> Value<B> {
    fn lanes(&self, b: &B) -> usize {
        match self {
            Self::Float(x) => x.lanes(b),
            Self::Bit(x) => b.bit_lanes(x),
        }
    }

    fn gather(&self, b: &B, lanes: &[usize]) -> Self {
        match self {
            Self::Float(x) => Self::Float(x.gather(b, lanes)),
            Self::Bit(x) => Self::Bit(b.gather_bits(x, lanes)),
        }
    }

    fn concat(b: &B, all: &[&Self]) -> Self {
        let floats: Vec<_> =
            all.iter().filter_map(|v| if let Self::Float(x) = v { Some(x) } else { None }).collect();
        let bits: Vec<_> =
            all.iter().filter_map(|v| if let Self::Bit(x) = v { Some(x) } else { None }).collect();
        if bits.is_empty() { Self::Float(Float::concat(b, &floats)) } else { Self::Bit(b.concat_bits(&bits)) }
    }

    fn float(&self) -> &Float<B> {
        let Self::Float(x) = self else { unreachable!("the shape of the entry was asked for") };
        x
    }

    fn bit(&self) -> &B::Bit {
        let Self::Bit(x) = self else { unreachable!("the shape of the entry was asked for") };
        x
    }
}

/// What has come out of tapes so far.
pub struct Machine<B: Blocks> {
    values: HashMap<Name, Value<B>>,
}

impl<B: Blocks> Default for Machine<B> {
    fn default() -> Self {
        Self { values: HashMap::new() }
    }
}

impl<B: Blocks> Machine<B> {
    /// A value.
    ///
    /// # Panics
    /// If there is no entry of that name.
    #[must_use]
    pub fn value(&self, name: Name) -> &Value<B> {
        &self.values[&name]
    }

    /// Drops a value that no tape refers to any more.
    pub fn forget(&mut self, name: Name) {
        self.values.remove(&name);
    }

    /// Runs a tape whose entries have [`shape`]s. `input` gives the numbers of an input by name,
    /// owner and lanes.
    ///
    /// # Errors
    /// If the blocks fail.
    ///
    /// # Panics
    /// If an entry has no shape.
    pub fn run(
        &mut self,
        b: &mut B,
        tape: &[(Name, Entry)],
        input: &mut dyn FnMut(&mut B, Name, usize, usize) -> Result<Float<B>, B::Error>,
    ) -> Result<(), B::Error> {
        let mut levels: BTreeMap<usize, Vec<&(Name, Entry)>> = BTreeMap::new();
        levels_of(tape).zip(tape).for_each(|(level, entry)| levels.entry(level).or_default().push(entry));
        for here in levels.values() {
            let mut together: BTreeMap<&str, Vec<&(Name, Entry)>> = BTreeMap::new();
            here.iter()
                .filter_map(|e| Some((e.1.key()?, *e)))
                .for_each(|(key, e)| together.entry(key).or_default().push(e));
            for (key, entries) in together {
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
    fn batch(&mut self, b: &mut B, key: &str, entries: &[&(Name, Entry)]) -> Result<(), B::Error> {
        let of: Vec<Vec<Name>> = entries.iter().map(|(_, entry)| entry.operands()).collect();
        let operands: Vec<Value<B>> = (0..of[0].len())
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
        b: &mut B,
        name: Name,
        entry: &Entry,
        input: &mut dyn FnMut(&mut B, Name, usize, usize) -> Result<Float<B>, B::Error>,
    ) -> Result<Value<B>, B::Error> {
        Ok(match entry {
            Entry::Input { owner, lanes } => Value::Float(input(b, name, *owner, *lanes)?),
            Entry::Public(bits) => {
                let bits: Vec<u64> = bits.iter().map(|&v| v.into()).collect();
                Value::Float(Float::public(b, &Plain::from_bits(Format::FLOAT32, &bits)))
            }
            Entry::Known(bits) => Value::Bit(b.public_bits(bits)),
            Entry::Apply { op, of } if op == "neg" => Value::Float(self.value(of[0]).float().neg(b)),
            Entry::Apply { of, .. } => Value::Float(self.value(of[0]).float().abs(b)),
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
            Entry::Sum { of, lanes } => Value::Float(sum(b, self.value(*of).float(), *lanes)?),
            Entry::And(..) | Entry::Choose { .. } => unreachable!("goes together with others"),
        })
    }
}

/// One call of an operation.
fn call<B: Blocks>(b: &mut B, key: &str, operands: &[Value<B>]) -> Result<Value<B>, B::Error> {
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

impl Machine<Clear> {
    /// A value as bits of single precision; truth values as 0 and 1.
    #[must_use]
    pub fn bits(&self, name: Name) -> Vec<u32> {
        match self.value(name) {
            Value::Float(x) => x.plain().to_bits().into_iter().map(|v| v as u32).collect(),
            Value::Bit(Bits(bits)) => bits.iter().map(|&v| v as u32).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(tape: &[(Name, Entry)], numbers: &[f32]) -> Machine<Clear> {
        let mut shapes: HashMap<Name, Shape> = HashMap::new();
        for (name, entry) in tape {
            let shape = shape(entry, |x| shapes.get(&x).copied()).unwrap();
            shapes.insert(*name, shape);
        }
        let mut machine = Machine::default();
        let Ok(()) = machine.run(&mut Clear, tape, &mut |b, name, _, lanes| {
            assert_eq!(lanes, numbers.len());
            let shifted: Vec<f32> = numbers.iter().map(|x| x + name as f32).collect();
            Ok(Float::public(b, &Plain::from_f32(&shifted)))
        });
        for (name, _) in tape {
            let lanes = machine.value(*name).lanes(&Clear);
            assert_eq!(lanes, shapes[name].lanes, "value {name} is as long as was said");
        }
        machine
    }

    fn apply(op: &str, of: &[Name]) -> Entry {
        Entry::Apply { op: op.into(), of: of.to_vec() }
    }

    #[test]
    fn entries_do_what_they_say() {
        let tape = [
            (0, Entry::Input { owner: 0, lanes: 4 }),
            (1, Entry::Input { owner: 1, lanes: 4 }),
            (2, Entry::Public([2.0, -1.0, 0.5, 8.0].map(f32::to_bits).to_vec())),
            (3, apply("mul", &[0, 2])),
            (4, apply("mul", &[1, 2])),
            (5, apply("lt", &[3, 4])),
            (6, apply("neg", &[4])),
            (7, Entry::Choose { bit: 5, yes: 3, no: 6 }),
            (8, Entry::Gather { of: 7, lanes: vec![3, 3, 0] }),
            (9, Entry::Concat(vec![7, 8, 7])),
            (10, Entry::Sum { of: 7, lanes: 2 }),
            (11, Entry::Not(5)),
            (12, apply("eq", &[7, 6])),
            (13, Entry::And(11, 12)),
            (14, apply("abs", &[6])),
            (15, Entry::Xor(5, 13)),
            (16, Entry::Known(vec![true, false])),
        ];
        let machine = run(&tape, &[1.0, 2.0, 3.0, 4.0]);
        let floats = |name| machine.bits(name).into_iter().map(f32::from_bits).collect::<Vec<_>>();
        assert_eq!(floats(3), [2.0, -2.0, 1.5, 32.0]);
        assert_eq!(floats(4), [4.0, -3.0, 2.0, 40.0]);
        assert_eq!(machine.bits(5), [1, 0, 1, 1]);
        assert_eq!(floats(7), [2.0, 3.0, 1.5, 32.0]);
        assert_eq!(floats(8), [32.0, 32.0, 2.0]);
        assert_eq!(floats(9), [2.0, 3.0, 1.5, 32.0, 32.0, 32.0, 2.0, 2.0, 3.0, 1.5, 32.0]);
        assert_eq!(floats(10), [3.5, 35.0]);
        assert_eq!(machine.bits(13), [0, 1, 0, 0]);
        assert_eq!(machine.bits(15), [1, 1, 1, 1]);
        assert_eq!(machine.bits(16), [1, 0]);
        assert_eq!(floats(14), [4.0, 3.0, 2.0, 40.0]);
    }

    #[test]
    fn what_can_go_together_does() {
        let tape = [
            (0, Entry::Input { owner: 0, lanes: 1 }),
            (1, apply("exp", &[0])),
            (2, apply("mul", &[0, 0])),
            (3, apply("neg", &[2])),
            (4, apply("mul", &[3, 1])),
            (5, apply("mul", &[0, 0])),
        ];
        assert_eq!(levels_of(&tape).collect::<Vec<_>>(), [0, 1, 1, 1, 2, 1]);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let of = |name: Name| match name {
            0 => Some(Shape { truth: false, lanes: 6 }),
            1 => Some(Shape { truth: true, lanes: 6 }),
            2 => Some(Shape { truth: false, lanes: 0 }),
            3 => Some(Shape { truth: false, lanes: 1 }),
            _ => None,
        };
        for entry in [
            apply("mul", &[0]),
            apply("mul", &[0, 1]),
            apply("mul", &[0, 3]),
            apply("mul", &[0, 9]),
            apply("to-fixed", &[0]),
            apply("no", &[0]),
            Entry::And(0, 1),
            Entry::Xor(1, 0),
            Entry::Not(0),
            Entry::Choose { bit: 0, yes: 0, no: 0 },
            Entry::Choose { bit: 1, yes: 0, no: 3 },
            Entry::Gather { of: 0, lanes: vec![6] },
            Entry::Concat(vec![]),
            Entry::Concat(vec![0, 1]),
            Entry::Sum { of: 0, lanes: 4 },
            Entry::Sum { of: 0, lanes: 0 },
            Entry::Sum { of: 2, lanes: 1 },
        ] {
            assert!(shape(&entry, of).is_err(), "{entry:?}");
        }
    }
}
