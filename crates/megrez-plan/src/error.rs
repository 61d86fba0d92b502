//! Why something is no plan.

/// A plan that cannot run. Every message names the step.
#[derive(Debug, thiserror::Error, PartialEq)]
pub enum PlanError {
    /// The bytes are no plan of this version.
    #[error("not a plan of this version of megrez: compile the model again")]
    Malformed,
    /// A step does not fit its inputs.
    #[error("step `{step}`: {what}")]
    Step {
        /// The step's name.
        step: String,
        /// What is wrong.
        what: String,
    },
    /// A party does not have the public weights that a plan names.
    #[error("{wrong}")]
    Weights {
        /// What is wrong with which, and what to do.
        wrong: String,
    },
}

/// What is wrong with a step whose name the caller knows.
pub struct Mistake(String);

impl Mistake {
    pub(crate) fn at(self, step: &str) -> PlanError {
        PlanError::Step { step: step.into(), what: self.0 }
    }
}

pub(crate) fn refuse<T>(what: impl Into<String>) -> Result<T, Mistake> {
    Err(Mistake(what.into()))
}
