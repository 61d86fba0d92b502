//! Programs against the same single-precision operations on this processor, and against double
//! precision.

use megrez_float::accuracy::{Function, error, run};
use megrez_float::programs::{
    FIXED, Layer, Matrix, Mlp, chord, fused_dots, fused_sum, half_vector, haversine, nearer, softmax,
    threshold,
};
use megrez_float::{Blocks, Clear, Float, Int, Plain, add, in_the_clear, plain_bits, secret_ints};
use rand::{Rng, SeedableRng, rngs::StdRng};

fn float(values: &[f32]) -> Float {
    Plain::from_f32(values).secret()
}

fn values(x: &Float) -> Vec<f32> {
    x.plain().to_f32()
}

/// A function of ours on one number: that it is within one unit is shown elsewhere.
fn ours(name: &str, x: f32) -> f32 {
    f32::from_bits(run(Function::named(name).expect("a known function"), &[x.to_bits()])[0])
}

/// The stated order of sums.
fn sum(mut terms: Vec<f32>) -> f32 {
    while terms.len() > 1 {
        let (n, half) = (terms.len(), terms.len().div_ceil(2));
        terms = (0..half).map(|i| if i + half < n { terms[i] + terms[i + half] } else { terms[i] }).collect();
    }
    terms[0]
}

#[derive(Clone)]
struct Plainly {
    rows: usize,
    cols: usize,
    v: Vec<f32>,
}

impl Plainly {
    fn product(&self, other: &Self) -> Self {
        let at = |r: usize, c: usize| {
            sum((0..self.cols).map(|k| self.v[r * self.cols + k] * other.v[k * other.cols + c]).collect())
        };
        let v = (0..self.rows * other.cols).map(|i| at(i / other.cols, i % other.cols)).collect();
        Self { rows: self.rows, cols: other.cols, v }
    }

    fn transpose(&self) -> Self {
        let v = (0..self.v.len()).map(|i| self.v[i % self.rows * self.cols + i / self.rows]).collect();
        Self { rows: self.cols, cols: self.rows, v }
    }

    fn map(&self, f: impl Fn(usize, f32) -> f32) -> Self {
        Self { v: self.v.iter().enumerate().map(|(i, &x)| f(i, x)).collect(), ..*self }
    }

    fn secret(&self) -> Matrix {
        in_the_clear(|b| Ok(Matrix::new(b, self.rows, self.cols, float(&self.v))))
    }
}

/// Weights over ten orders of magnitude, as in the relevance model.
fn weights(rng: &mut StdRng, rows: usize, cols: usize) -> Plainly {
    let one = |rng: &mut StdRng| {
        let magnitude = 10f32.powf(rng.random_range(-7.0..0.0));
        if rng.random() { magnitude } else { -magnitude }
    };
    Plainly { rows, cols, v: (0..rows * cols).map(|_| one(rng)).collect() }
}

/// A training step is, bit for bit, the same operations in single precision.
#[test]
fn a_training_step_is_single_precision_arithmetic() {
    let mut rng = StdRng::seed_from_u64(5);
    let sizes = [13, 9, 6, 4];
    let batch = 3;
    let layers: Vec<(Plainly, Vec<f32>)> =
        sizes.windows(2).map(|w| (weights(&mut rng, w[0], w[1]), weights(&mut rng, 1, w[1]).v)).collect();
    let x = weights(&mut rng, batch, 13).map(|_, v| v * 100.0);
    let labels =
        Plainly { rows: batch, cols: 4, v: vec![0.0; 12] }.map(|i, _| f32::from(u8::from(i % 5 == 1)));
    let rate = 0.01;

    let secret = layers.iter().map(|(w, bias)| Layer { weights: w.secret(), bias: float(bias) }).collect();
    let mlp = Mlp { layers: secret };
    let step = in_the_clear(|b| mlp.step(b, &x.secret(), &labels.secret(), rate));

    let relu = |z: &Plainly| z.map(|_, v| if v > 0.0 { v } else { 0.0 });
    let mut zs: Vec<Plainly> = Vec::new();
    let mut inputs = Vec::new();
    for (w, bias) in &layers {
        let input = zs.last().map_or_else(|| x.clone(), &relu);
        zs.push(input.product(w).map(|i, v| v + bias[i % w.cols]));
        inputs.push(input);
    }
    let logits = zs.last().expect("layers");
    let secret_logits = in_the_clear(|b| mlp.forward(b, &x.secret()));
    assert_eq!(values(&secret_logits.data), logits.v);

    let row = |i: usize| &logits.v[i / 4 * 4..][..4];
    let shifted = logits.map(|i, v| v - row(i).iter().fold(f32::MIN, |a, &b| a.max(b)));
    let powers = shifted.map(|_, v| ours("exp", v));
    let totals: Vec<f32> = powers.v.chunks(4).map(|r| sum(r.to_vec())).collect();
    let probabilities = powers.map(|i, v| v / totals[i / 4]);
    let losses = (0..batch).map(|r| {
        ours("ln", totals[r]) - sum((0..4).map(|c| shifted.v[r * 4 + c] * labels.v[r * 4 + c]).collect())
    });
    let scale = 1.0 / batch as f32;
    assert_eq!(values(&step.loss), [sum(losses.collect()) * scale]);

    let mut gradient = probabilities.map(|i, p| (p - labels.v[i]) * scale);
    for i in (0..layers.len()).rev() {
        let (w, bias) = &layers[i];
        let dw = inputs[i].transpose().product(&gradient);
        let columns = gradient.transpose();
        let db: Vec<f32> = columns.v.chunks(batch).map(|c| sum(c.to_vec())).collect();
        let new = &step.mlp.layers[i];
        assert_eq!(values(&new.weights.data), w.map(|j, v| v - dw.v[j] * rate).v, "weights {i}");
        let want: Vec<f32> = bias.iter().zip(&db).map(|(v, d)| v - d * rate).collect();
        assert_eq!(values(&new.bias), want, "bias {i}");
        if i > 0 {
            let back = gradient.product(&w.transpose());
            gradient = back.map(|j, v| if zs[i - 1].v[j] > 0.0 { v } else { 0.0 });
        }
    }
}

#[test]
fn softmax_is_accurate() {
    let mut rng = StdRng::seed_from_u64(6);
    let logits = Plainly { rows: 50, cols: 10, v: (0..500).map(|_| rng.random_range(-20.0..20.0)).collect() };
    let soft = in_the_clear(|b| softmax(b, &logits.secret()));
    for (row, got) in logits.v.chunks(10).zip(values(&soft.data).chunks(10)) {
        let most = row.iter().fold(f32::MIN, |a, &b| a.max(b));
        let powers: Vec<f64> = row.iter().map(|&x| f64::from(x - most).exp()).collect();
        let total: f64 = powers.iter().sum();
        for (&got, power) in got.iter().zip(&powers) {
            assert!(error(got, power / total) < 5.0, "{got} is not {}", power / total);
        }
    }
}

/// Points of a city and far away: [latitude, longitude] in half-turns.
fn points(rng: &mut StdRng, n: usize) -> [Vec<f32>; 2] {
    let degrees = |middle: f64, rng: &mut StdRng| ((middle + rng.random_range(-30.0..30.0)) / 180.0) as f32;
    [40.0, -100.0].map(|middle| (0..n).map(|_| degrees(middle, rng)).collect())
}

fn exact(a: [f32; 2], b: [f32; 2]) -> f64 {
    let pi = std::f64::consts::PI;
    let [psi, phi, theta, lambda] = [a[0], a[1], b[0], b[1]].map(|x| f64::from(x) * pi);
    let square = |x: f64| (x / 2.0).sin().powi(2);
    square(psi - theta) + psi.cos() * theta.cos() * square(phi - lambda)
}

#[test]
fn proximity() {
    let n = 20_000;
    let mut rng = StdRng::seed_from_u64(7);
    let (a, b) = (points(&mut rng, n), points(&mut rng, n));
    let truth: Vec<f64> = (0..n).map(|i| exact([a[0][i], a[1][i]], [b[0][i], b[1][i]])).collect();
    let average = |delta: &[f32]| {
        delta.iter().zip(&truth).map(|(&got, &want)| error(got, want)).sum::<f64>() / n as f64
    };

    let shared = |p: &[Vec<f32>; 2]| [float(&p[0]), float(&p[1])];
    let delta = in_the_clear(|blocks| haversine(blocks, &shared(&a), &shared(&b)));
    let two = average(&values(&delta));
    assert!(two < 1.05, "{two} ULP on average");
    let limit = threshold(100_000.0);
    let near = plain_bits(&in_the_clear(|b| nearer(b, &delta, limit))).0;
    let wanted: Vec<u64> = values(&delta).iter().map(|&d| u64::from(d < limit)).collect();
    assert_eq!(near, wanted);
    assert!(near.iter().sum::<u64>() > 10);

    let vectors = |p: &[Vec<f32>; 2]| -> Int {
        let each: Vec<_> = (0..n).map(|i| half_vector(f64::from(p[0][i]), f64::from(p[1][i]))).collect();
        let coordinates: Vec<u64> = (0..3).flat_map(|c| each.iter().map(move |v| v[c])).collect();
        secret_ints::<Clear>(Clear.public(FIXED.0, &coordinates))
    };
    let delta = in_the_clear(|blocks| chord(blocks, &vectors(&a), &vectors(&b)));
    let one = average(&values(&delta));
    assert!(one < 1.05, "{one} ULP on average");
    println!("average errors: {one:.2} ULP in scenario I, {two:.2} ULP in scenario II");
}

/// ±man·2^exp of a finite number.
fn exact_parts(x: f32) -> (i128, i32) {
    let (bits, exp) = (x.to_bits(), (x.to_bits() >> 23 & 0xff) as i32);
    let man = if exp == 0 { 0 } else { i128::from(bits & 0x007f_ffff | 1 << 23) };
    (if x.is_sign_negative() { -man } else { man }, exp - 150)
}

/// Units of 2^−110 in exact sums; terms are multiples of it.
const UNIT: i32 = -110;

/// Sixteenths of a unit in the last place, in units, of a magnitude in units.
fn sixteenth_ulp(magnitude: i128) -> i128 {
    let top = 127 - magnitude.unsigned_abs().max(1).leading_zeros() as i32;
    1i128 << (top - 27).max(0)
}

/// Holds sums to exact ones: half a unit in the last place of the result, and so many sixteenths of
/// one of the sum of the terms' magnitudes.
fn check_fused(name: &str, terms: &[Vec<i128>], got: &[f32], sixteenths: i128) -> f64 {
    let mut worst = 0f64;
    for (terms, &got) in terms.iter().zip(got) {
        let (sum, all) = (terms.iter().sum::<i128>(), terms.iter().map(|t| t.abs()).sum::<i128>());
        let (man, exp) = exact_parts(got);
        let got = if man == 0 { 0 } else { man << (exp - UNIT) };
        let bound = 8 * sixteenth_ulp(got) + sixteenths * sixteenth_ulp(all);
        assert!((got - sum).abs() <= bound, "{name} of {}: {got} is not {sum}, {bound}", terms.len());
        worst = worst.max((got - sum).abs() as f64 / (16 * sixteenth_ulp(all)) as f64);
    }
    worst
}

/// Terms of all kinds: alike, far apart, one that is much larger, and ones that cancel.
fn terms_of_a_sum(rng: &mut StdRng, kind: usize, n: usize, binades: i32) -> Vec<f32> {
    let one = |rng: &mut StdRng, exp: i32| {
        let man = rng.random_range(1.0f32..2.0) * 2f32.powi(exp);
        if rng.random() { -man } else { man }
    };
    match kind {
        0 => (0..n).map(|_| one(rng, 0)).collect(),
        1 => (0..n)
            .map(|_| {
                let e = rng.random_range(-binades..0);
                one(rng, e)
            })
            .collect(),
        // Whatever is dropped counts.
        2 => (0..n).map(|i| if i == 0 { 1.0 } else { one(rng, -binades.min(31)).abs() }).collect(),
        3 => (0..n).map(|i| if i == 0 { 1.0 } else { -one(rng, -25).abs() }).collect(),
        // The largest is at the bottom of its window, and each other one just fails to be seen.
        4 => (0..n).map(|i| if i == 0 { 2.0 } else { 2f32.powi(-34).next_down() }).collect(),
        _ => {
            let half: Vec<f32> = (0..n / 2).map(|_| one(rng, 0)).collect();
            let tiny = (0..n % 2).map(|_| one(rng, -20)).collect::<Vec<_>>();
            half.iter().copied().chain(half.iter().map(|x| -x)).chain(tiny).collect()
        }
    }
}

#[test]
fn fused_sums_are_within_their_bounds() {
    let mut rng = StdRng::seed_from_u64(31);
    for (n, lanes, sixteenths) in [
        (2, 500, 1),
        (3, 500, 1),
        (17, 100, 2),
        (64, 60, 4),
        (65, 60, 1),
        (900, 20, 1),
        (4096, 5, 1),
        (4097, 5, 10),
    ] {
        let mut worst = 0f64;
        for kind in 0..6 {
            let rows: Vec<Vec<f32>> = (0..lanes).map(|_| terms_of_a_sum(&mut rng, kind, n, 60)).collect();
            let blocks: Vec<f32> = (0..n).flat_map(|t| rows.iter().map(move |row| row[t])).collect();
            let sums = in_the_clear(|b| fused_sum(b, &float(&blocks), lanes));
            let exact = |x: &f32| {
                let (man, exp) = exact_parts(*x);
                if man == 0 { 0 } else { man << (exp - UNIT) }
            };
            let terms: Vec<Vec<i128>> = rows.iter().map(|row| row.iter().map(exact).collect()).collect();
            worst = worst.max(check_fused("sum", &terms, &values(&sums), sixteenths));
        }
        println!("sums of {n}: {worst:.3} ULP of the sum of magnitudes");
    }
}

#[test]
fn fused_dot_products_are_within_their_bounds() {
    let mut rng = StdRng::seed_from_u64(37);
    for (n, lanes, sixteenths) in [(2, 500, 6), (16, 200, 6), (17, 100, 16), (874, 20, 16), (4096, 5, 14)] {
        let mut worst = 0f64;
        for kind in 0..6 {
            let rows: Vec<Vec<f32>> = (0..lanes).map(|_| terms_of_a_sum(&mut rng, kind, n, 30)).collect();
            let factors: Vec<Vec<f32>> =
                (0..lanes).map(|_| (0..n).map(|_| rng.random_range(1.0f32..4.0)).collect()).collect();
            let blocks =
                |of: &[Vec<f32>]| (0..n).flat_map(|t| of.iter().map(move |row| row[t])).collect::<Vec<_>>();
            let (x, y) = (float(&blocks(&rows)), float(&blocks(&factors)));
            let place = |term: usize, lane: usize| term * lanes + lane;
            let dots = in_the_clear(|b| fused_dots(b, (&x, &place), (&y, &place), n, lanes));
            let exact = |(x, y): (&f32, &f32)| {
                let ((a, e), (c, f)) = (exact_parts(*x), exact_parts(*y));
                (a * c) << (e + f - UNIT)
            };
            let terms: Vec<Vec<i128>> =
                rows.iter().zip(&factors).map(|(x, y)| x.iter().zip(y).map(exact).collect()).collect();
            worst = worst.max(check_fused("dot", &terms, &values(&dots), sixteenths));
        }
        println!("dot products of {n}: {worst:.3} ULP of the sum of magnitudes");
    }
}

/// Of two terms a fused sum is their sum, correctly rounded, whatever they are; and so is the dot
/// product with ones.
#[test]
fn fused_sums_of_two_are_additions() {
    let mut rng = StdRng::seed_from_u64(41);
    let n = 100_000;
    let special = [0.0, -0.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, f32::MAX, f32::MIN_POSITIVE, 1.0];
    let number = |rng: &mut StdRng| match rng.random_range(0..8) {
        0 => special[rng.random_range(0..8)],
        1..5 => f32::from_bits(rng.random::<u32>() & 0x807f_ffff | rng.random_range(110..140u32) << 23),
        _ => f32::from_bits(rng.random()),
    };
    let x: Vec<f32> = (0..n).map(|_| number(&mut rng)).collect();
    let y: Vec<f32> =
        x.iter().map(|&x| if rng.random_range(0..8) == 0 { -x } else { number(&mut rng) }).collect();
    let (x, y) = (float(&x), float(&y));
    let want = in_the_clear(|b| add(b, &x, &y));
    let both = in_the_clear(|b| Ok(Float::concat(b, &[&x, &y])));
    let sums = in_the_clear(|b| fused_sum(b, &both, n));
    let place = |term: usize, lane: usize| term * n + lane;
    let ones = float(&vec![1.0; 2 * n]);
    let dots = in_the_clear(|b| fused_dots(b, (&both, &place), (&ones, &place), 2, n));
    let all = [&x, &y, &want, &sums, &dots].map(|v| v.plain().to_bits());
    let rows = (0..n).map(|i| all.each_ref().map(|v| v[i]));
    for [x, y, want, sum, dot] in rows {
        assert!(sum == want && dot == want, "{x:x} + {y:x}: {sum:x} and {dot:x}, not {want:x}");
    }
}

/// What cannot be seen in the sum of mantissas, at every place among many terms.
#[test]
fn fused_sums_of_special_terms() {
    let (inf, nan) = (f32::INFINITY, f32::NAN);
    let n = 70;
    let with = |filler: f32, of: &[(usize, f32)]| -> f32 {
        let mut terms = vec![filler; n];
        of.iter().for_each(|&(at, v)| terms[at] = v);
        let sum = in_the_clear(|b| fused_sum(b, &float(&terms), 1));
        let place = |term: usize, _: usize| term;
        let ones = float(&vec![1.0; n]);
        let dot = in_the_clear(|b| fused_dots(b, (&float(&terms), &place), (&ones, &place), n, 1));
        let (sum, dot) = (values(&sum)[0], values(&dot)[0]);
        assert!(sum.to_bits() == dot.to_bits(), "{sum} {dot}");
        sum
    };
    assert_eq!(with(-0.0, &[]).to_bits(), (-0f32).to_bits());
    for at in [0, 1, 33, 63, 64, 69] {
        assert_eq!(with(-0.0, &[(at, 0.0)]).to_bits(), 0);
        assert_eq!(with(-0.0, &[(at, -3.0)]), -3.0);
        assert_eq!(with(1.0, &[(at, inf)]), inf);
        assert_eq!(with(1.0, &[(at, -inf)]), -inf);
        assert!(with(1.0, &[(at, nan)]).is_nan());
        let other = (at + 29) % n;
        assert!(with(1.0, &[(at, inf), (other, -inf)]).is_nan());
        assert_eq!(with(0.0, &[(at, -inf), (other, -inf)]), -inf);
        assert_eq!(with(0.0, &[(at, 1e38), (other, -1e38)]).to_bits(), 0);
        assert_eq!(with(0.0, &[(at, f32::MAX), (other, f32::MAX)]), inf);
        assert_eq!(with(0.0, &[(at, 1.5e-38), (other, -1.2e-38)]).to_bits(), 0, "flushed");
    }
    let place = |term: usize, _: usize| term;
    let dot = |x: &[f32], y: &[f32]| {
        let z = in_the_clear(|b| fused_dots(b, (&float(x), &place), (&float(y), &place), x.len(), 1));
        values(&z)[0]
    };
    assert!(dot(&[0.0, 1.0], &[inf, 1.0]).is_nan());
    // A zero has no exponent, however large the other factor is.
    assert_eq!(dot(&[0.0, 1e-30], &[1e38, 1.5]), 1.5e-30);
    assert_eq!(dot(&[-0.0, 0.0], &[1.0, -2.0]).to_bits(), (-0f32).to_bits());
    assert_eq!(dot(&[1e-30, 1e-30], &[1e-30, 1.0]), 1e-30);
    assert_eq!(dot(&[1e30, 1.0], &[-1e30, 1.0]), -inf);
}

/// A product of matrices has the dot products of rows and columns.
#[test]
fn fused_products_of_matrices() {
    let mut rng = StdRng::seed_from_u64(43);
    let (m, k, n) = (3, 20, 5);
    let [x, y] = [(m, k), (k, n)].map(|(rows, cols)| Plainly {
        rows,
        cols,
        v: (0..rows * cols).map(|_| rng.random_range(-1.0..1.0)).collect(),
    });
    let z = in_the_clear(|b| x.secret().fused_product(b, &y.secret()));
    let want = (0..m * n)
        .map(|i| (0..k).map(|t| f64::from(x.v[i / n * k + t]) * f64::from(y.v[t * n + i % n])).sum::<f64>());
    for (got, want) in values(&z.data).into_iter().zip(want) {
        assert!((f64::from(got) - want).abs() < 1e-6, "{got} {want}");
    }
}
