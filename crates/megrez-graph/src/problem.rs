//! What is wrong with a model: always with the node that it concerns and what to do about it.

use std::fmt;

/// What a problem is about, for programs that act on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cause {
    /// An operator, or a use of one, that megrez does not have.
    #[default]
    Unsupported,
    /// Data or values outside of what was declared, or a range that does not fit the ring.
    OutOfRange,
    /// Options, names or shapes that do not go with the model.
    Invalid,
    /// A file that is not what an exporter writes.
    Damaged,
}

/// One thing that stands in the way, at one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The node's name, or the input's or file's where no node is concerned.
    pub node: String,
    /// The node's operator; empty where no node is concerned.
    pub op: String,
    /// What is wrong.
    pub what: String,
    /// What to do; empty where `what` says it.
    pub remedy: String,
    /// What it is about.
    pub cause: Cause,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", self.node)?;
        if !self.op.is_empty() {
            write!(f, " ({})", self.op)?;
        }
        write!(f, ": {}", self.what)?;
        if !self.remedy.is_empty() {
            write!(f, "; {}", self.remedy)?;
        }
        Ok(())
    }
}

impl std::error::Error for Problem {}

/// Everything that stands in the way, one line each; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems(pub Vec<Problem>);

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.0.iter().map(Problem::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}

impl std::error::Error for Problems {}

impl From<Problem> for Problems {
    fn from(problem: Problem) -> Self {
        Problems(vec![problem])
    }
}

/// A problem whose node the caller knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What is wrong.
    pub what: String,
    /// What to do.
    pub remedy: String,
    /// What it is about.
    pub cause: Cause,
}

impl Refusal {
    /// A refusal of what megrez does not have, with its remedy, which may be empty.
    pub fn new(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Refusal { what: what.into(), remedy: remedy.into(), cause: Cause::default() }
    }

    /// The same, for another cause.
    #[must_use]
    pub fn because(self, cause: Cause) -> Self {
        Refusal { cause, ..self }
    }

    /// Names the node.
    pub fn at(self, node: &str, op: &str) -> Problem {
        let Refusal { what, remedy, cause } = self;
        Problem { node: node.into(), op: op.into(), what, remedy, cause }
    }
}

/// Refuses with `what` and `remedy`.
pub fn refuse<T>(what: impl Into<String>, remedy: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal::new(what, remedy))
}

/// As [`refuse`], because of numbers and not of what megrez lacks.
pub(crate) fn out_of_range<T>(what: impl Into<String>, remedy: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal::new(what, remedy).because(Cause::OutOfRange))
}
