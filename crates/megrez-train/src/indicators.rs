//! Indicators of rows: whether a feature exceeds a threshold. Owners of rows make them, and the
//! parties get the answers alone.

use megrez_graph::Tensor;
use megrez_service::{Error, ErrorKind, Result};

/// Most thresholds of a feature.
pub const MAX_BINS: usize = 256;

/// Thresholds of features, in the order of features and, of one feature, rising.
#[derive(Clone, Debug, PartialEq)]
pub struct Thresholds(Vec<(usize, f32)>);

fn invalid<T>(what: String) -> Result<T> {
    Err(Error::of(ErrorKind::Invalid, what))
}

/// How many rows and features there are.
fn sizes(rows: &Tensor) -> Result<[usize; 2]> {
    let &[count, features] = rows.shape.dims() else {
        return invalid(format!("the rows are {}, and not [rows, features]", rows.shape));
    };
    match rows.data.iter().position(|v| v.is_nan()) {
        Some(at) => invalid(format!(
            "feature {} of row {} is missing: NaN",
            at % features.max(1),
            at / features.max(1)
        )),
        None => Ok([count, features]),
    }
}

impl Thresholds {
    /// Between the values of a feature, or where it has more than `bins`, at quantiles that part
    /// the rows evenly; none of a feature that is the same in all rows. They say something about
    /// the rows.
    ///
    /// # Errors
    /// If the rows are no matrix, a number is missing, or `bins` is not from 2 to 256.
    pub fn of_rows(rows: &Tensor, bins: usize) -> Result<Self> {
        let [count, features] = sizes(rows)?;
        check(bins)?;
        let mut thresholds = vec![];
        for feature in 0..features {
            let mut column: Vec<f32> = rows.data.iter().skip(feature).step_by(features).copied().collect();
            column.sort_by(f32::total_cmp);
            let mut values = column.clone();
            values.dedup();
            let mut places: Vec<f32> = if values.len() <= bins {
                let middle = |pair: &[f32]| ((f64::from(pair[0]) + f64::from(pair[1])) / 2.0) as f32;
                values.windows(2).map(middle).collect()
            } else {
                let quantile = |part: usize| {
                    let place = (count - 1) as f64 * part as f64 / bins as f64;
                    let (low, high) = (column[place as usize], column[(place as usize + 1).min(count - 1)]);
                    (f64::from(low) + place.fract() * (f64::from(high) - f64::from(low))) as f32
                };
                (1..bins).map(quantile).collect()
            };
            places.dedup();
            // Not at the largest: no row would be beyond.
            let largest = values.last().copied().unwrap_or(f32::INFINITY);
            thresholds.extend(places.into_iter().filter(|&t| t < largest).map(|t| (feature, t)));
        }
        Ok(Thresholds(thresholds))
    }

    /// `bins` − 1 of each of `features`, which part public bounds evenly.
    ///
    /// # Errors
    /// If the bounds are none, or `bins` is not from 2 to 256.
    pub fn within([low, high]: [f32; 2], features: usize, bins: usize) -> Result<Self> {
        check(bins)?;
        if !(low < high && low.is_finite() && high.is_finite()) {
            return invalid(format!("bounds are a smaller and a larger number, not {low} and {high}"));
        }
        let (low, width) = (f64::from(low), f64::from(high) - f64::from(low));
        let place = |bin: usize| (low + width * bin as f64 / bins as f64) as f32;
        let all = (0..features).flat_map(|feature| (1..bins).map(move |bin| (feature, place(bin))));
        Ok(Thresholds(all.collect()))
    }

    /// From a matrix of a row for each: the number of the feature, from 0, and the threshold.
    ///
    /// # Errors
    /// If it is not such a matrix.
    pub fn from_tensor(tensor: &Tensor) -> Result<Self> {
        let [_, 2] = tensor.shape.dims() else {
            return invalid(format!("thresholds are [thresholds, 2], not {}", tensor.shape));
        };
        let one = |pair: &[f32]| match *pair {
            [feature, at]
                if feature.fract() == 0.0 && (0.0..16_777_216.0).contains(&feature) && !at.is_nan() =>
            {
                Ok((feature as usize, at))
            }
            _ => invalid(format!("{pair:?} is no feature with a threshold")),
        };
        tensor.data.chunks_exact(2).map(one).collect::<Result<_>>().map(Thresholds)
    }

    /// As a matrix of a row for each: the number of the feature, and the threshold.
    pub fn to_tensor(&self) -> Tensor {
        let data = self.0.iter().flat_map(|&(feature, at)| [feature as f32, at]).collect();
        Tensor::new([self.0.len(), 2], data)
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// A 1 for each row and each threshold that its feature exceeds, and a 0 for the others.
    ///
    /// # Errors
    /// If the rows are no matrix, lack a feature, or a number is missing; or if there are no
    /// thresholds.
    pub fn indicators(&self, rows: &Tensor) -> Result<Tensor> {
        let [count, features] = sizes(rows)?;
        if self.0.is_empty() {
            return invalid("there are no thresholds: every feature is the same in all rows".into());
        }
        if let Some((feature, _)) = self.0.iter().find(|(feature, _)| *feature >= features) {
            return invalid(format!("rows of {features} features have no feature {feature}"));
        }
        let row = |row: usize| {
            let numbers = &rows.data[row * features..][..features];
            self.0.iter().map(|&(feature, at)| f32::from(u8::from(numbers[feature] > at)))
        };
        Ok(Tensor::new([count, self.0.len()], (0..count).flat_map(row).collect()))
    }
}

fn check(bins: usize) -> Result<()> {
    match (2..=MAX_BINS).contains(&bins) {
        true => Ok(()),
        false => invalid(format!("there are from 2 to {MAX_BINS} bins, not {bins}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_part_rows_evenly_and_indicators_say_which_are_beyond() {
        // 100 values, three, and one.
        let row = |i: usize| [i as f32, [0.0, 1.0, 5.0][i % 3], 7.0];
        let rows = Tensor::new([100, 3], (0..100).flat_map(row).collect());
        let thresholds = Thresholds::of_rows(&rows, 4).unwrap();
        // Quantiles as numpy has them.
        assert_eq!(thresholds.0, [(0, 24.75), (0, 49.5), (0, 74.25), (1, 0.5), (1, 3.0)]);
        let indicators = thresholds.indicators(&rows).unwrap();
        assert_eq!(indicators.shape.dims(), [100, 5]);
        assert_eq!(indicators.data[50 * 5..][..5], [1.0, 1.0, 0.0, 1.0, 1.0]);
        let beyond = |c: usize| indicators.data.iter().skip(c).step_by(5).sum::<f32>();
        assert_eq!([0, 1, 2].map(beyond), [75.0, 50.0, 25.0]);
        assert_eq!(Thresholds::from_tensor(&thresholds.to_tensor()).unwrap(), thresholds);
        // At a threshold is not beyond; and one is never at the largest value.
        let edges = Thresholds(vec![(0, 1.0)]);
        let row = Tensor::new([3, 1], vec![0.5, 1.0, 1.5]);
        assert_eq!(edges.indicators(&row).unwrap().data, [0.0, 0.0, 1.0]);
        let mostly = Tensor::new([100, 1], (0..100).map(|i| (i as f32 - 60.0).min(0.0)).collect());
        assert!(Thresholds::of_rows(&mostly, 8).unwrap().0.iter().all(|&(_, t)| t < 0.0));
        let even = Thresholds::within([-1.0, 1.0], 2, 4).unwrap();
        assert_eq!(even.0, [(0, -0.5), (0, 0.0), (0, 0.5), (1, -0.5), (1, 0.0), (1, 0.5)]);
    }

    #[test]
    fn what_is_no_row_and_no_threshold_is_refused() {
        let rows = Tensor::new([2, 2], vec![1.0, 2.0, 3.0, f32::NAN]);
        let refused = Thresholds::of_rows(&rows, 4).unwrap_err().to_string();
        assert!(refused.contains("feature 1 of row 1"), "{refused}");
        let rows = Tensor::new([2, 2], vec![1.0, 2.0, 3.0, 4.0]);
        assert!(Thresholds::of_rows(&rows, 1).is_err() && Thresholds::of_rows(&rows, 257).is_err());
        assert!(Thresholds::of_rows(&Tensor::new([4], vec![0.0; 4]), 4).is_err());
        assert!(Thresholds::within([1.0, 1.0], 1, 4).is_err());
        assert!(Thresholds::within([0.0, f32::NAN], 1, 4).is_err());
        let of = |pairs: Vec<f32>| Thresholds::from_tensor(&Tensor::new([pairs.len() / 2, 2], pairs));
        for wrong in [[-1.0, 0.0], [0.5, 0.0], [f32::NAN, 0.0], [0.0, f32::NAN], [1e9, 0.0]] {
            assert!(of(wrong.to_vec()).is_err(), "{wrong:?}");
        }
        assert!(of(vec![2.0, 0.0]).unwrap().indicators(&rows).unwrap_err().to_string().contains("feature 2"));
        assert!(of(vec![]).unwrap().indicators(&rows).is_err());
        assert!(Thresholds::from_tensor(&rows.reshape([4])).is_err());
    }
}
