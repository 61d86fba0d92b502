//! Programs against the same single-precision operations on this processor, and against double
//! precision.

use megrez_float::accuracy::{Function, error, run};
use megrez_float::programs::{
    FIXED, Layer, Matrix, Mlp, chord, half_vector, haversine, nearer, softmax, threshold,
};
use megrez_float::{Bits, Blocks, Clear, Float, Plain};
use rand::{Rng, SeedableRng, rngs::StdRng};

fn float(values: &[f32]) -> Float<Clear> {
    Float::public(&Clear, &Plain::from_f32(values))
}

fn values(x: &Float<Clear>) -> Vec<f32> {
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

    fn secret(&self) -> Matrix<Clear> {
        Matrix::new(&Clear, self.rows, self.cols, float(&self.v))
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
    let Ok(step) = mlp.step(&mut Clear, &x.secret(), &labels.secret(), rate);

    let relu = |z: &Plainly| z.map(|_, v| if v > 0.0 { v } else { 0.0 });
    let mut zs: Vec<Plainly> = Vec::new();
    let mut inputs = Vec::new();
    for (w, bias) in &layers {
        let input = zs.last().map_or_else(|| x.clone(), &relu);
        zs.push(input.product(w).map(|i, v| v + bias[i % w.cols]));
        inputs.push(input);
    }
    let logits = zs.last().expect("layers");
    let Ok(secret_logits) = mlp.forward(&mut Clear, &x.secret());
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
    let Ok(soft) = softmax(&mut Clear, &logits.secret());
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
    let Ok(delta) = haversine(&mut Clear, &shared(&a), &shared(&b));
    let two = average(&values(&delta));
    assert!(two < 1.05, "{two} ULP on average");
    let limit = threshold(100_000.0);
    let Ok(Bits(near)) = nearer(&mut Clear, &delta, limit);
    let wanted: Vec<u64> = values(&delta).iter().map(|&d| u64::from(d < limit)).collect();
    assert_eq!(near, wanted);
    assert!(near.iter().sum::<u64>() > 10);

    let vectors = |p: &[Vec<f32>; 2]| {
        let each: Vec<_> = (0..n).map(|i| half_vector(f64::from(p[0][i]), f64::from(p[1][i]))).collect();
        let coordinates: Vec<u64> = (0..3).flat_map(|c| each.iter().map(move |v| v[c])).collect();
        Clear.public(FIXED.0, &coordinates)
    };
    let Ok(delta) = chord(&mut Clear, &vectors(&a), &vectors(&b));
    let one = average(&values(&delta));
    assert!(one < 1.05, "{one} ULP on average");
    println!("average errors: {one:.2} ULP in scenario I, {two:.2} ULP in scenario II");
}
