//! Chi-square statistics as standard deviations of a normal variable, by Wilson and Hilferty's cube
//! root. The plain (X − df)/√(2·df) would call a perfectly good bit (df = 1) suspicious once in a
//! thousand tests.

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

/// Compares two views on all pairs and triples of columns: the most surprising table, in standard
/// deviations, and its columns. Pairs are seen by their low and their high four bits, triples by
/// the lowest and the highest bit of each.
pub fn compare_views(a: &View, b: &View) -> (f64, String) {
    assert!(a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.0 == b.0 && a.1.len() == b.1.len()));
    let widths: Vec<u32> = (0..a.len())
        .map(|c| (8 - a[c].1.iter().chain(&b[c].1).fold(0, |all, v| all | v).leading_zeros()).max(1))
        .collect();
    let seen = |view: &View, c: usize, see: &dyn Fn(u8) -> u8| -> Vec<u8> {
        view[c].1.iter().map(|&v| see(v)).collect()
    };
    let mut worst = (0.0, String::new());
    let mut table = |names: &[usize], what: &str, columns: [&[&Vec<u8>]; 2], bits: u32| {
        let counts = columns.map(|columns| {
            let cell =
                |row: usize| columns.iter().fold(0, |cell, column| cell << bits | usize::from(column[row]));
            count(1 << (bits * columns.len() as u32), (0..columns[0].len()).map(cell))
        });
        let surprise = same(&counts[0], &counts[1]);
        if surprise > worst.0 {
            let names: Vec<&str> = names.iter().map(|&c| a[c].0).collect();
            worst = (surprise, format!("{what} of {}", names.join(", ")));
        }
    };
    // Each column reduced once: four low bits, four high bits, and the two ends.
    let reduced: Vec<[[Vec<u8>; 3]; 2]> = (0..a.len())
        .map(|c| {
            let high = widths[c].saturating_sub(4);
            let top = widths[c] - 1;
            [a, b].map(|view| {
                [
                    seen(view, c, &|v| v & 15),
                    seen(view, c, &|v| v >> high),
                    seen(view, c, &|v| (v >> top & 1) << 1 | v & 1),
                ]
            })
        })
        .collect();
    let ends = |c: usize| if widths[c] > 4 { 0..2 } else { 0..1 };
    for i in 0..a.len() {
        for j in 0..i {
            for (x, y) in ends(i).flat_map(|x| ends(j).map(move |y| (x, y))) {
                let columns = |view: usize| [&reduced[i][view][x], &reduced[j][view][y]];
                table(&[i, j], "pair", [&columns(0), &columns(1)], 4);
            }
            for k in 0..j {
                let columns = |view: usize| [i, j, k].map(|c| &reduced[c][view][2]);
                table(&[i, j, k], "triple", [&columns(0), &columns(1)], 2);
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
