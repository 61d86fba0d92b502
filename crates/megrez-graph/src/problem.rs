//! What is wrong with a model: always with the node that it concerns and what to do about it.

use std::fmt;

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
}

impl Refusal {
    /// A refusal with its remedy, which may be empty.
    pub fn new(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Refusal { what: what.into(), remedy: remedy.into() }
    }

    /// Names the node.
    pub fn at(self, node: &str, op: &str) -> Problem {
        Problem { node: node.into(), op: op.into(), what: self.what, remedy: self.remedy }
    }
}

/// Refuses with `what` and `remedy`.
pub fn refuse<T>(what: impl Into<String>, remedy: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal::new(what, remedy))
}
