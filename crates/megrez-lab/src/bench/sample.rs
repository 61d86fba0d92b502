//! Models and data for benchmarks, the same for the same seed.

use megrez::Result;
use megrez_graph::onnx::{self, ImportOptions};
use megrez_graph::{DataInput, Graph, Tensor, models};
use megrez_ring::Shape;

/// Test data: uniform words whose products and comparisons stay in range.
pub(crate) fn test_words(seed: u64, run: u32, name: &str, n: usize, ring: u32, bits: u32) -> Vec<u64> {
    let mut state = seed ^ u64::from(run) << 32 ^ name.bytes().fold(0, |h, b| h * 131 + u64::from(b));
    (0..n)
        .map(|_| {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = state;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            (((z ^ (z >> 31)) as i64) >> (63 - bits)) as u64 & (u64::MAX >> (64 - ring))
        })
        .collect()
}

/// Test data for models: uniform in [0, 1].
pub fn test_image(seed: u64, run: u32, name: &str, shape: Shape) -> Tensor {
    let words = test_words(seed, run, name, shape.elements(), 64, 24);
    let unit = |w: &u64| (*w as i64).unsigned_abs() as f32 / (1u64 << 24) as f32;
    Tensor::new(shape, words.iter().map(unit).collect::<Vec<f32>>())
}

/// A model by the path of its ONNX file or by the name of a built-in network.
pub fn any_model(model: &str, batch: usize, seed: u64) -> Result<Graph> {
    let path = std::path::Path::new(model);
    if path.extension().is_some_and(|e| e == "onnx") {
        return Ok(onnx::read_file(path, &ImportOptions { batch, ..ImportOptions::default() })?);
    }
    Ok(models::build(model, batch, seed)?)
}

/// Random numbers in [0, 1], or random tokens.
pub(crate) fn test_data(seed: u64, run: u32, input: &DataInput) -> Tensor {
    let mut data = test_image(seed, run, &input.name, input.shape.clone());
    if let Some(rows) = input.tokens {
        data.data.iter_mut().for_each(|v| *v = (*v * rows as f32).floor().min(rows as f32 - 1.0));
    }
    data
}
