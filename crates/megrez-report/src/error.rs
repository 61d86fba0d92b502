//! Why a report could not be made.

/// Why there is no page.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum PageError {
    /// Not a report that a page can be made of.
    #[error("this is a report of kind `{0}`: a page is made of `megrez.infer/1` or `megrez.demo/1`")]
    Kind(String),
    /// A field is missing, or is something else than it should be.
    #[error("the report has no `{0}`, or one of another kind")]
    Field(String),
}
