//! What a calibration has measured, as its file says it.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Measured magnitudes by layer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// `megrez.calibration/1`.
    pub schema: String,
    /// Bounds are the magnitudes times this.
    pub margin: f64,
    /// How many inputs were seen.
    pub inputs: usize,
    /// Per layer that compares: the largest magnitude of what it compares.
    pub layers: BTreeMap<String, f64>,
}

impl Calibration {
    /// The name of the file format.
    pub const SCHEMA: &'static str = "megrez.calibration/1";

    /// What a layer's comparisons must hold; `None` for a layer that was not seen.
    pub fn bound(&self, layer: &str) -> Option<f64> {
        self.layers.get(layer).map(|magnitude| magnitude * self.margin)
    }

    /// Checks a calibration that came from a file.
    pub fn check(&self) -> Result<(), String> {
        if self.schema != Self::SCHEMA {
            return Err(format!("is no calibration of this version: its schema is `{}`", self.schema));
        }
        if !(self.margin.is_finite() && self.margin >= 1.0) {
            return Err("has a margin below 1".into());
        }
        match self.layers.iter().find(|(_, m)| !m.is_finite() || **m < 0.0) {
            Some((layer, _)) => Err(format!("has no magnitude for layer `{layer}`")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damaged_calibrations_are_refused() {
        let good = Calibration {
            schema: Calibration::SCHEMA.into(),
            margin: 2.0,
            inputs: 1,
            layers: BTreeMap::new(),
        };
        assert_eq!(good.check(), Ok(()));
        assert!(Calibration { margin: 0.5, ..good.clone() }.check().is_err());
        assert!(Calibration { schema: "x".into(), ..good.clone() }.check().is_err());
        let layers = BTreeMap::from([("a".to_string(), f64::NAN)]);
        assert!(Calibration { layers, ..good }.check().is_err());
    }
}
