//! The names of public weights, and what may be wrong with them.

use std::fmt;
use std::str::FromStr;

/// The hash of a matrix's file, which is its name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(pub [u8; 32]);

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Digest {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = || Error::new(format!("`{text}` is no hash of 64 hexadecimal digits"));
        let digits: Option<Vec<u8>> = text.chars().map(|c| c.to_digit(16).map(|d| d as u8)).collect();
        let digits = digits.filter(|digits| digits.len() == 64).ok_or_else(wrong)?;
        Ok(Digest(std::array::from_fn(|i| digits[2 * i] << 4 | digits[2 * i + 1])))
    }
}

/// Why a matrix cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct Error {
    /// What is wrong, and what to do.
    pub what: String,
}

impl Error {
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Error { what: what.into() }
    }
}

/// What functions of this crate return.
pub type Result<T> = std::result::Result<T, Error>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_read_as_they_are_written() {
        let digest = Digest(std::array::from_fn(|i| 7 * i as u8));
        assert_eq!(digest.to_string().parse(), Ok(digest));
        for wrong in ["", "0", &"g".repeat(64), &"0".repeat(65)] {
            assert!(wrong.parse::<Digest>().unwrap_err().to_string().contains("64 hexadecimal"));
        }
    }
}
