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
    let columns: Vec<Column> = a.iter().zip(b).map(|(a, b)| Column::of([&a.1, &b.1])).collect();
    let mut worst = (0.0, String::new());
    let mut table = |what: &str, of: &[usize], counts: [Vec<u64>; 2]| {
        let surprise = same(&counts[0], &counts[1]);
        if surprise > worst.0 {
            let names: Vec<&str> = of.iter().map(|&c| a[c].0).collect();
            worst = (surprise, format!("{what} of {}", names.join(", ")));
        }
    };
    for (i, x) in columns.iter().enumerate() {
        for (j, y) in columns[..i].iter().enumerate() {
            for (x, y) in x.halves.iter().flat_map(|x| y.halves.iter().map(move |y| (x, y))) {
                table("pair", &[i, j], [0, 1].map(|view| cells::<256>(&x[view], &y[view], 4)));
            }
            let both: [Vec<u8>; 2] = [0, 1].map(|view| {
                let (x, y) = (&x.ends[view], &y.ends[view]);
                x.iter().zip(y).map(|(x, y)| x << 2 | y).collect()
            });
            for (k, z) in columns[..j].iter().enumerate() {
                table("triple", &[i, j, k], [0, 1].map(|view| cells::<64>(&both[view], &z.ends[view], 2)));
            }
        }
    }
    worst
}

/// A column of two views, reduced once.
struct Column {
    /// The low four bits and, where there are more, the high four.
    halves: Vec<[Vec<u8>; 2]>,
    /// The highest bit and the lowest.
    ends: [Vec<u8>; 2],
}

impl Column {
    fn of(views: [&[u8]; 2]) -> Self {
        let seen = |see: &dyn Fn(u8) -> u8| views.map(|view| view.iter().map(|&v| see(v)).collect());
        let width = (8 - views.concat().into_iter().fold(0, |all, v| all | v).leading_zeros()).max(1);
        let mut halves = vec![seen(&|v| v & 15)];
        if width > 4 {
            halves.push(seen(&|v| v >> (width - 4)));
        }
        Column { halves, ends: seen(&|v| (v >> (width - 1) & 1) << 1 | v & 1) }
    }
}

/// How often each pair of values comes, of which the second has so many bits.
fn cells<const CELLS: usize>(a: &[u8], b: &[u8], bits: u32) -> Vec<u64> {
    // Rows take turns at two tables: an addition need not wait for the last.
    let mut counts = [[0; CELLS]; 2];
    for (row, (&a, &b)) in a.iter().zip(b).enumerate() {
        counts[row & 1][usize::from(a << bits | b)] += 1;
    }
    counts[0].iter().zip(counts[1]).map(|(x, y)| x + y).collect()
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
