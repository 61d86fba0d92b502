//! What a calibration has measured, as its file says it.

use crate::range::Interval;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What the fixed point may be off by where numbers are next to nothing.
const SLACK: f64 = 1.0 / 256.0;

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
    /// Per layer: the least and the largest number of its output.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub ranges: BTreeMap<String, Interval>,
}

impl Calibration {
    /// The name of the file format.
    pub const SCHEMA: &'static str = "megrez.calibration/1";

    /// What a layer's comparisons must hold; `None` for a layer that was not seen.
    pub fn bound(&self, layer: &str) -> Option<f64> {
        self.layers.get(layer).map(|magnitude| magnitude * self.margin)
    }

    /// What a layer's output is taken to lie in: what was seen, each end moved away from it by the
    /// margin; `None` for a layer that was not seen.
    pub fn interval(&self, layer: &str) -> Option<Interval> {
        let Interval { low, high } = *self.ranges.get(layer)?;
        // An end on the other side of zero stays there: what was never negative is not taken to be.
        // It comes nearer to zero by as much as the numbers spread: of those between 0.05 and 1.5
        // one of 0.02 is no surprise.
        let (near, far) = (low.abs().min(high.abs()), low.abs().max(high.abs()));
        let spread = if near > 0.0 { (far / near).powf((self.margin - 1.0) / 2.0) } else { 1.0 };
        let away = |end: f64, outwards: bool| {
            if outwards { end * self.margin } else { end / (self.margin * spread) }
        };
        Some(Interval { low: away(low, low < 0.0) - SLACK, high: away(high, high > 0.0) + SLACK })
    }

    /// Checks a calibration that came from a file.
    pub fn check(&self) -> Result<(), String> {
        if self.schema != Self::SCHEMA {
            return Err(format!("is no calibration of this version: its schema is `{}`", self.schema));
        }
        if !(self.margin.is_finite() && self.margin >= 1.0) {
            return Err("has a margin below 1".into());
        }
        let sane = |r: &Interval| r.low.is_finite() && r.high.is_finite() && r.low <= r.high;
        if let Some((layer, _)) = self.ranges.iter().find(|(_, r)| !sane(r)) {
            return Err(format!("has no range for layer `{layer}`"));
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
            ranges: BTreeMap::new(),
        };
        assert_eq!(good.check(), Ok(()));
        assert!(Calibration { margin: 0.5, ..good.clone() }.check().is_err());
        assert!(Calibration { schema: "x".into(), ..good.clone() }.check().is_err());
        let layers = BTreeMap::from([("a".to_string(), f64::NAN)]);
        assert!(Calibration { layers, ..good.clone() }.check().is_err());
        let ranges = BTreeMap::from([("a".to_string(), Interval { low: 1.0, high: 0.0 })]);
        assert!(Calibration { ranges, ..good }.check().is_err());
    }

    #[test]
    fn margins_move_both_ends_outwards() {
        let of = |low, high| {
            let ranges = BTreeMap::from([("a".to_string(), Interval { low, high })]);
            let schema = Calibration::SCHEMA.into();
            let measured = Calibration { schema, margin: 2.0, inputs: 1, layers: BTreeMap::new(), ranges };
            let Interval { low, high } = measured.interval("a").unwrap();
            (low + SLACK, high - SLACK)
        };
        assert_eq!(of(-1.0, 3.0), (-2.0, 6.0));
        assert_eq!(of(0.5, 0.5), (0.25, 1.0));
        assert_eq!(of(0.5, 8.0), (0.0625, 16.0));
        assert_eq!(of(-8.0, -0.5), (-16.0, -0.0625));
        assert_eq!(of(0.0, 1.0), (0.0, 2.0));
        assert_eq!(of(0.0, 0.0), (0.0, 0.0));
    }
}
