//! Chi-square statistics as standard deviations of a normal variable, by Wilson and Hilferty's cube root. The plain
//! (X − df)/√(2·df) would call a perfectly good bit (df = 1) suspicious once in a thousand tests.

/// The bound on single tests: a false alarm once in 10^10.
pub const SIGMAS: f64 = 6.5;
/// The bound where thousands of tables are tested: once in 10^15 each.
pub const MANY: f64 = 8.0;

/// How surprising a chi-square value is, in standard deviations.
pub fn sigmas(chi_square: f64, freedom: f64) -> f64 {
    let spread = 2.0 / (9.0 * freedom);
    ((chi_square / freedom).cbrt() - (1.0 - spread)) / spread.sqrt()
}

/// Counts against probabilities. Cells of probability zero must be empty.
pub fn fit(counts: &[u64], probabilities: &[f64]) -> f64 {
    assert_eq!(counts.len(), probabilities.len());
    let total = counts.iter().sum::<u64>() as f64;
    let (mut statistic, mut cells) = (0.0, 0.0);
    for (&count, &p) in counts.iter().zip(probabilities) {
        if p == 0.0 {
            assert_eq!(count, 0, "a cell of probability zero is not empty");
            continue;
        }
        let expected = total * p;
        assert!(expected >= 10.0, "{expected} expected is too few for the statistic");
        statistic += (count as f64 - expected).powi(2) / expected;
        cells += 1.0;
    }
    sigmas(statistic, cells - 1.0)
}

/// Counts against the uniform distribution.
pub fn uniform(counts: &[u64]) -> f64 {
    fit(counts, &vec![1.0 / counts.len() as f64; counts.len()])
}

/// Two samples: whether they may come from one distribution, whatever it is.
pub fn same(a: &[u64], b: &[u64]) -> f64 {
    let (total_a, total_b) = (a.iter().sum::<u64>() as f64, b.iter().sum::<u64>() as f64);
    let (ka, kb) = ((total_b / total_a).sqrt(), (total_a / total_b).sqrt());
    let (mut statistic, mut cells) = (0.0, 0.0);
    for (&a, &b) in a.iter().zip(b) {
        if a + b > 0 {
            statistic += (a as f64 * ka - b as f64 * kb).powi(2) / (a + b) as f64;
            cells += 1.0;
        }
    }
    if cells < 2.0 { 0.0 } else { sigmas(statistic, cells - 1.0) }
}

/// How many standard deviations a count of successes is off.
pub fn binomial(successes: u64, trials: u64, p: f64) -> f64 {
    let (successes, trials) = (successes as f64, trials as f64);
    if p <= 0.0 || p >= 1.0 {
        return if successes == trials * p { 0.0 } else { f64::INFINITY };
    }
    (successes - trials * p).abs() / (trials * p * (1.0 - p)).sqrt()
}

/// How often each index comes.
pub fn count(cells: usize, indices: impl Iterator<Item = usize>) -> Vec<u64> {
    let mut counts = vec![0; cells];
    indices.for_each(|i| counts[i] += 1);
    counts
}

/// A party's view of many independent executions: columns of bytes, one row per execution.
pub type View = Vec<(&'static str, Vec<u8>)>;

/// Compares two views on all pairs and triples of columns, each column seen through some of its bits: the most
/// surprising table, in standard deviations, and its columns.
pub fn compare_views(a: &View, b: &View) -> (f64, String) {
    let mut worst = (0.0, String::new());
    let mut see = |columns: &[(usize, u32, u32)]| {
        let cell = |view: &View, row: usize| {
            columns.iter().fold(0, |cell, &(c, shift, bits)| {
                cell << bits | (usize::from(view[c].1[row]) >> shift) & ((1 << bits) - 1)
            })
        };
        let cells = 1 << columns.iter().map(|c| c.2).sum::<u32>();
        let table = |view: &View| count(cells, (0..view[0].1.len()).map(|row| cell(view, row)));
        let surprise = same(&table(a), &table(b));
        if surprise > worst.0 {
            worst = (surprise, columns.iter().map(|&(c, s, w)| format!("{}[{s}+{w}] ", a[c].0)).collect());
        }
    };
    // A bit has one reduction; a byte is seen by its low and its high end.
    let ends = |column: usize, bits: u32| -> Vec<(usize, u32, u32)> {
        let max = a[column].1.iter().chain(&b[column].1).copied().max().unwrap_or(0);
        let width = (8 - max.leading_zeros()).max(1);
        match width <= bits {
            true => vec![(column, 0, width)],
            false => vec![(column, 0, bits), (column, width - bits, bits)],
        }
    };
    assert!(a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.0 == b.0 && a.1.len() == a.1.len()));
    for i in 0..a.len() {
        for j in 0..i {
            for x in ends(i, 4) {
                ends(j, 4).into_iter().for_each(|y| see(&[x, y]));
            }
            for k in 0..j {
                for x in ends(i, 2) {
                    for y in ends(j, 2) {
                        ends(k, 2).into_iter().for_each(|z| see(&[x, y, z]));
                    }
                }
            }
        }
    }
    worst
}

#[test]
fn surprise_is_measured_in_standard_deviations() {
    // Tails of 10^-3 and 10^-9 at one and at a hundred degrees of freedom.
    for (statistic, freedom, expected) in
        [(10.83, 1.0, 3.09), (37.3, 1.0, 6.0), (149.4, 100.0, 3.09), (209.5, 100.0, 6.0)]
    {
        assert!((sigmas(statistic, freedom) - expected).abs() < 0.7, "{statistic} {freedom}");
    }
    assert!(uniform(&[1000, 1000]) < 1.0 && uniform(&[1200, 800]) > SIGMAS);
    assert!(same(&[500, 500], &[1000, 1000]) < 1.0 && same(&[500, 500], &[1000, 500]) > 4.0);
    assert!(binomial(5000, 10000, 0.5) < 0.1 && binomial(5400, 10000, 0.5) > SIGMAS);
}
