//! Local kernels on one device, without parties: products of matrices and random streams, verified and timed.

use crate::device::{AnyBuf, AnyDevice, DeviceChoice};
use crate::report::Seconds;
use crate::{Error, Result};
use megrez_kernels::{Device, DeviceError, Reference};
use megrez_prg::{Key, Stream};
use megrez_ring::Word;
use serde_json::{Value as Json, json};
use std::time::Instant;

/// The operations that need no party.
pub const OPS: &[&str] = &["gemm", "stream"];

/// Columns of the random combinations that verify a product.
const CHECKED: usize = 16;

/// What to measure.
#[derive(Clone, Debug)]
pub struct KernelBench {
    /// `gemm` or `stream`.
    pub op: String,
    /// ℓ: 32 or 64.
    pub ring: u32,
    /// m, k, n of the product.
    pub shape: [usize; 3],
    /// Elements of the stream.
    pub batch: usize,
    /// How many measured runs; one more goes before.
    pub repeat: u32,
    /// Seeds the data.
    pub seed: u64,
    /// Where.
    pub device: DeviceChoice,
}

/// Wall-clock seconds of every run, the device's work waited for, and the kernels' seconds where the device counts them.
struct Times {
    first: f64,
    wall: Seconds,
    kernels: Option<Seconds>,
}

fn refused(e: DeviceError) -> Error {
    Error::Refused(e.to_string())
}

/// Runs `work` once and `repeat` times more. What it gives goes to nobody but the last caller.
fn timed<T>(
    device: &AnyDevice,
    repeat: u32,
    work: impl Fn() -> std::result::Result<T, DeviceError>,
) -> std::result::Result<(Times, T), DeviceError> {
    let kernels = || device.usage().map(|usage| usage.map(|u| u.kernel_seconds));
    let one = || {
        let (before, start) = (kernels()?, Instant::now());
        let made = work()?;
        // Reading the kernels' clock waits for them.
        let after = kernels()?;
        Ok((start.elapsed().as_secs_f64(), before.zip(after).map(|(b, a)| a - b), made))
    };
    let (first, _, mut last) = one()?;
    let (mut wall, mut on_device) = (vec![], vec![]);
    for _ in 0..repeat {
        let (seconds, kernels, made) = one()?;
        wall.push(seconds);
        on_device.extend(kernels);
        last = made;
    }
    let kernels = (!on_device.is_empty()).then(|| Seconds::of(on_device));
    Ok((Times { first, wall: Seconds::of(wall), kernels }, last))
}

fn stream(seed: u64, purpose: u8) -> Stream {
    Key::from_bytes([purpose; 32]).derive(&seed.to_le_bytes()).stream()
}

/// Measures.
///
/// # Errors
/// If the device cannot be had, or has too little memory.
pub fn bench(o: &KernelBench) -> Result<Json> {
    if o.repeat == 0 || o.batch == 0 || o.shape.contains(&0) {
        return Err(Error::Refused("--repeat, --batch and all of --shape are at least 1".into()));
    }
    let device = o.device.open()?;
    match o.ring {
        32 => measured::<u32>(&device, o),
        64 => measured::<u64>(&device, o),
        ring => Err(Error::Refused(format!("kernels are measured on rings of 32 and 64 bits, not {ring}"))),
    }
}

fn measured<W: Word>(device: &AnyDevice, o: &KernelBench) -> Result<Json> {
    let (times, verified, work) = match o.op.as_str() {
        "gemm" => product::<W>(device, o).map_err(refused)?,
        "stream" => random::<W>(device, o).map_err(refused)?,
        other => {
            let what = format!("there is no kernel `{other}`; there are: {}", OPS.join(", "));
            return Err(Error::Refused(what));
        }
    };
    let usage = device.usage().map_err(refused)?;
    let seconds = times.kernels.unwrap_or(times.wall).median;
    let rates: serde_json::Map<String, Json> =
        work.into_iter().map(|(unit, amount)| (unit.into(), json!(amount / seconds / 1e9))).collect();
    Ok(json!({
        "schema": "megrez.bench-kernel/1",
        "op": o.op,
        "ring": o.ring,
        "shape": (o.op == "gemm").then_some(o.shape),
        "batch": (o.op == "stream").then_some(o.batch),
        "device": device.describe(),
        "repeat": o.repeat,
        "first_seconds": times.first,
        "seconds": times.wall,
        "kernel_seconds": times.kernels,
        "rates": rates,
        "peak_device_mib": usage.map(|usage| crate::memory::mib(usage.peak_memory)),
        "verified": verified,
    }))
}

/// Seconds, whether the result is right, and what a run does, in units per run.
type Outcome = std::result::Result<(Times, bool, Vec<(&'static str, f64)>), DeviceError>;

/// x·y for uniform matrices. Right if (x·y)·v = x·(y·v) for random v: a wrong product passes with probability 2^−16.
fn product<W: Word>(device: &AnyDevice, o: &KernelBench) -> Outcome {
    let [m, k, n] = o.shape;
    let x: AnyBuf<W> = device.random(&stream(o.seed, 1), m * k)?;
    let y: AnyBuf<W> = device.random(&stream(o.seed, 2), k * n)?;
    let (times, z) = timed(device, o.repeat, || device.matmul(&x, &y, 1, o.shape))?;
    let host = |buf: AnyBuf<W>| Reference.upload(device.download(buf)?);
    let (x, y, z) = (host(x)?, host(y)?, host(z)?);
    let v = Reference.random::<W>(&stream(o.seed, 3), n * CHECKED)?;
    let yv = Reference.matmul(&y, &v, 1, [k, n, CHECKED])?;
    let expected = Reference.matmul(&x, &yv, 1, [m, k, CHECKED])?;
    let verified = Reference.matmul(&z, &v, 1, [m, n, CHECKED])? == expected;
    let bytes = (m * k + k * n + m * n) * size_of::<W>();
    Ok((times, verified, vec![("Gmac/s", (m * k * n) as f64), ("GB/s", bytes as f64)]))
}

/// `batch` uniform elements of a ChaCha12 stream, all of them compared with the reference.
fn random<W: Word>(device: &AnyDevice, o: &KernelBench) -> Outcome {
    let stream = stream(o.seed, 4);
    let (times, made) = timed(device, o.repeat, || device.random::<W>(&stream, o.batch))?;
    let expected = Reference.random::<W>(&stream, o.batch)?;
    let verified = device.download(made)?[..] == expected[..];
    Ok((times, verified, vec![("GB/s", (o.batch * size_of::<W>()) as f64)]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_verified_and_timed() {
        for (op, ring, unit) in [("gemm", 32, "Gmac/s"), ("gemm", 64, "GB/s"), ("stream", 64, "GB/s")] {
            let o = KernelBench {
                op: op.into(),
                ring,
                shape: [33, 40, 17],
                batch: 1000,
                repeat: 2,
                seed: 1,
                device: DeviceChoice::Cpu,
            };
            let report = bench(&o).unwrap();
            assert_eq!(report["verified"], true, "{report}");
            assert!(report["rates"][unit].as_f64().unwrap() > 0.0, "{report}");
        }
    }

    #[test]
    fn a_wrong_product_is_found() {
        // A device without data gives zeros, which are not the product.
        let device = AnyDevice::Cuda(megrez_cuda::Cuda::rehearsal());
        let (x, y) = (vec![1u64; 6], vec![2u64; 6]);
        let z = device.matmul(&device.upload(x).unwrap(), &device.upload(y).unwrap(), 1, [2, 3, 2]).unwrap();
        assert_ne!(device.download(z).unwrap(), [6; 4]);
    }
}
