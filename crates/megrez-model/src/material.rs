//! The name of correlated randomness that parties have made ahead.

use megrez_service::Error;
use megrez_service::wire::Ahead;
use std::fmt;
use std::str::FromStr;

/// A batch of material: made once by all parties, used up by one run. Written as 32 hexadecimal
/// digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Material(pub(crate) [u8; 16]);

impl Material {
    /// What a run is asked for: to use this material, or none that is named.
    #[must_use]
    pub fn ahead(named: Option<Material>) -> Ahead {
        named.map_or(Ahead::Nothing, |material| Ahead::Batch(material.0))
    }
}

impl From<Material> for [u8; 16] {
    fn from(material: Material) -> Self {
        material.0
    }
}

impl fmt::Display for Material {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for Material {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let digits = |i: usize| text.get(2 * i..2 * i + 2).filter(|d| !d.starts_with('+'));
        let byte = |i: usize| digits(i).and_then(|d| u8::from_str_radix(d, 16).ok());
        let bytes: Option<Vec<u8>> = (0..16).map(byte).collect();
        let name = bytes.and_then(|bytes| bytes.try_into().ok()).filter(|_| text.len() == 32);
        name.map(Material)
            .ok_or_else(|| Error::Refused(format!("`{text}` is no name of material: 32 hexadecimal digits")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        let text = "000102030405060708090a0b0c0d0eff";
        let material: Material = text.parse().unwrap();
        assert_eq!((material.0[15], material.to_string()), (255, text.to_owned()));
        for wrong in [
            "",
            "0",
            "000102030405060708090a0b0c0d0e0g",
            "äöüäöüäöüäöüäöüä",
            "+0+1+2+3+4+5+6+7+8+9+a+b+c+d+e+f",
        ] {
            assert!(wrong.parse::<Material>().is_err(), "{wrong}");
        }
        assert!(format!("{text}00").parse::<Material>().is_err());
    }
}
