//! Data for a model's inputs: checked before it is shared, because nobody but its owner can look.
//! What does not fit is refused with what to do about it; nothing is cut, filled up or
//! reinterpreted here.

use crate::clients::DataInput;
use crate::problem::{Cause, Problem, Refusal, out_of_range};
use crate::tensor::Tensor;
use megrez_ring::Shape;

impl DataInput {
    /// Refuses data of any other shape, and numbers that were not declared: the ranges in the plan
    /// hold for declared data only.
    pub fn check(&self, data: &Tensor) -> Result<(), Problem> {
        check_shape(&self.shape, &data.shape)
            .and_then(|()| self.numbers(data))
            .map_err(|r| r.at(&self.name, ""))
    }

    /// As [`check`](Self::check), for data of any number of rows: how many there are.
    pub fn check_rows(&self, data: &Tensor) -> Result<usize, Problem> {
        check_rows(&self.shape, &data.shape)
            .and_then(|rows| self.numbers(data).map(|()| rows))
            .map_err(|r| r.at(&self.name, ""))
    }

    fn numbers(&self, data: &Tensor) -> Result<(), Refusal> {
        let inside = |v: &f32| (self.range.low..=self.range.high).contains(&f64::from(*v));
        if let Some(i) = data.data.iter().position(|v| !inside(v)) {
            let (low, high) = (self.range.low, self.range.high);
            let what = format!("element {} is {}", place(&data.shape, i), data.data[i]);
            return match self.tokens {
                Some(rows) => out_of_range(format!("{what}, and tokens are whole numbers below {rows}"), ""),
                None if data.data[i].is_nan() => {
                    out_of_range(format!("{what}, which is no number"), "look where the data comes from")
                }
                None => out_of_range(
                    format!("{what}, outside the declared range {low} … {high}"),
                    "scale the data, or declare a larger input range: --input-range, in Python input_range=",
                ),
            };
        }
        let Some(rows) = self.tokens else { return Ok(()) };
        match data.data.iter().position(|v| v.fract() != 0.0) {
            Some(i) => out_of_range(
                format!(
                    "element {} is {}, and tokens are whole numbers below {rows}",
                    place(&data.shape, i),
                    data.data[i]
                ),
                "",
            ),
            None => Ok(()),
        }
    }
}

/// Where an element stands, by its number.
fn place(shape: &Shape, element: usize) -> String {
    let (mut place, mut rest) = (vec![], element);
    for &dim in shape.dims().iter().rev() {
        place.insert(0, (rest % dim).to_string());
        rest /= dim;
    }
    format!("[{}]", place.join(", "))
}

/// Refuses data of another shape than an input's.
///
/// # Errors
/// With what to do about it.
pub fn check_shape(input: &Shape, data: &Shape) -> Result<(), Refusal> {
    match input == data {
        true => Ok(()),
        false => Err(misshapen(input.dims(), data.dims(), &format!("{:?}", input.dims()), false)),
    }
}

/// Refuses data whose rows have another shape than an input's, or that has none; the first
/// dimensions count rows and may differ. Gives their number.
///
/// # Errors
/// With what to do about it.
pub fn check_rows(input: &Shape, data: &Shape) -> Result<usize, Refusal> {
    let (expected, given) = (input.dims(), data.dims());
    let Some(row) = expected.get(1..) else { return check_shape(input, data).map(|()| 1) };
    if expected.len() != given.len() || row != &given[1..] {
        let rest: String = row.iter().map(|d| format!(", {d}")).collect();
        return Err(misshapen(expected, given, &format!("[N{rest}]"), true));
    }
    match given[0] {
        0 => Err(Refusal::new("the data is empty", "give at least one input").because(Cause::Invalid)),
        rows => Ok(rows),
    }
}

/// Says what data of a wrong shape needs, where that can be guessed. `free`: the first dimension
/// may be any.
fn misshapen(expected: &[usize], given: &[usize], takes: &str, free: bool) -> Refusal {
    let what = format!("takes the shape {takes}, the data has {given:?}");
    Refusal::new(what, remedy(expected, given, free)).because(Cause::Invalid)
}

fn remedy(expected: &[usize], given: &[usize], free: bool) -> String {
    let rank = expected.len();
    let fits = |d: usize, size: usize| expected[d] == size || (free && d == 0 && size > 0);
    if given.len() == rank {
        let reorders = |order: &[usize]| (0..rank).all(|d| fits(d, given[order[d]]));
        if let Some(order) = orders(rank).into_iter().find(|order| reorders(order)) {
            let order: Vec<String> = order.iter().map(usize::to_string).collect();
            return format!("transpose it: np.transpose(x, ({}))", order.join(", "));
        }
    }
    // As many elements in another order are other data: only what is the same but for its
    // dimensions' names can be reshaped.
    let row = if free { expected.get(1..).unwrap_or_default() } else { expected };
    if given.iter().all(|&d| d > 0) && renames(row, given, free) {
        let first = free.then(|| "-1".to_owned());
        let dims: Vec<String> = first.into_iter().chain(row.iter().map(usize::to_string)).collect();
        return format!("reshape it: x.reshape({})", dims.join(", "));
    }
    let channels = rank == 4 && given.len() == 4 && given[2..] == expected[2..] && given[1] != expected[1];
    if channels && fits(0, given[0]) {
        let (has, takes) = (given[1], expected[1]);
        return match (has, takes) {
            (1, _) => format!(
                "the images have 1 channel of {takes}: repeat it, np.repeat(x, {takes}, axis=1), if the model was trained so"
            ),
            _ => format!(
                "the images have {has} channels, the model was trained with {takes}: prepare them as for its training"
            ),
        };
    }
    "prepare it as the data that the model was trained with".into()
}

/// The orders of dimensions to try: channels that stand last first, because that is the usual
/// mistake.
fn orders(rank: usize) -> Vec<Vec<usize>> {
    match rank {
        2 => vec![vec![1, 0]],
        3 => vec![vec![0, 2, 1]],
        4 => vec![vec![0, 3, 1, 2], vec![0, 2, 3, 1], vec![0, 1, 3, 2]],
        5 => vec![vec![0, 4, 1, 2, 3]],
        _ => vec![],
    }
}

/// Whether data has the dimensions of a row, but for some of 1, or runs them together in one, or
/// they run its together; before them may stand one dimension that counts.
fn renames(row: &[usize], given: &[usize], counted: bool) -> bool {
    let big = |dims: &[usize]| dims.iter().copied().filter(|&d| d != 1).collect::<Vec<_>>();
    let (row, given) = (big(row), big(given));
    (0..=given.len().min(usize::from(counted))).any(|k| {
        let rest = &given[k..];
        let same = rest.iter().product::<usize>() == row.iter().product::<usize>();
        same && (rest == row || rest.len() <= 1 || row.len() <= 1)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::range::Interval;

    fn input(shape: &[usize]) -> DataInput {
        let range = Interval::abs(1.0);
        DataInput {
            name: "x".into(),
            shape: shape.to_vec().into(),
            frac: 16,
            range,
            tokens: None,
            table: None,
        }
    }

    fn refused(expected: &[usize], given: &[usize]) -> String {
        input(expected).check_rows(&Tensor::filled(given.to_vec(), 0.0)).unwrap_err().to_string()
    }

    #[test]
    fn data_of_another_shape_is_refused_with_what_to_do() {
        for (expected, given, remedy) in [
            (&[1, 3, 224, 224][..], &[5, 224, 224, 3][..], "np.transpose(x, (0, 3, 1, 2))"),
            (&[1, 224, 224, 3], &[5, 3, 224, 224], "np.transpose(x, (0, 2, 3, 1))"),
            (&[1, 1, 28, 28], &[1, 784], "x.reshape(-1, 1, 28, 28)"),
            (&[1, 1, 28, 28], &[784], "x.reshape(-1, 1, 28, 28)"),
            (&[1, 1, 28, 28], &[7, 28, 28], "x.reshape(-1, 1, 28, 28)"),
            (&[1, 784], &[7, 1, 28, 28], "x.reshape(-1, 784)"),
            (&[1, 3, 32, 32], &[3, 32, 32], "x.reshape(-1, 3, 32, 32)"),
            (&[4, 3], &[3], "x.reshape(-1, 3)"),
            (&[1, 3, 32, 32], &[2, 1, 32, 32], "np.repeat(x, 3, axis=1)"),
            (&[1, 3, 32, 32], &[2, 4, 32, 32], "4 channels"),
            (&[1, 3, 32, 32], &[2, 3, 31, 32], "trained"),
            (&[2, 3, 4], &[2, 4, 3], "np.transpose(x, (0, 2, 1))"),
            (&[2, 3], &[], "trained"),
            (&[2, 3], &[0, 3], "empty"),
        ] {
            let text = refused(expected, given);
            assert!(text.contains(remedy), "{given:?} for {expected:?}: {text}");
        }
        // As many elements, in another order: this would run, and mean nothing.
        assert!(refused(&[1, 6, 4], &[1, 8, 3]).contains("takes the shape [N, 6, 4]"));
        assert!(
            input(&[2, 3]).check(&Tensor::filled([3, 2], 0.0)).unwrap_err().to_string().contains("transpose")
        );
        assert!(input(&[2, 3]).check(&Tensor::filled([6], 0.0)).unwrap_err().to_string().contains("[2, 3]"));
        assert_eq!(input(&[2, 3]).check_rows(&Tensor::filled([5, 3], 0.0)), Ok(5));
        assert_eq!(input(&[]).check_rows(&Tensor::filled([], 0.0)), Ok(1));
    }

    #[test]
    fn numbers_that_were_not_declared_are_refused_by_their_place() {
        for (bad, word) in [(f32::NAN, "NaN"), (1.5, "1.5"), (f32::NEG_INFINITY, "-inf")] {
            let mut data = Tensor::filled([2, 3], 0.5);
            data.data[4] = bad;
            let text = input(&[2, 3]).check(&data).unwrap_err().to_string();
            assert!(text.contains("[1, 1]") && text.contains(word), "{text}");
            assert!(bad.is_nan() || text.contains("--input-range"), "{text}");
        }
        let tokens = DataInput { range: Interval { low: 0.0, high: 6.0 }, tokens: Some(7), ..input(&[1, 2]) };
        assert_eq!(tokens.check(&Tensor::new([1, 2], vec![6.0, 0.0])), Ok(()));
        for bad in [7.0, -1.0, 0.5, f32::NAN] {
            let text = tokens.check(&Tensor::new([1, 2], vec![0.0, bad])).unwrap_err().to_string();
            assert!(text.contains("[0, 1]") && text.contains("below 7"), "{text}");
        }
    }
}
