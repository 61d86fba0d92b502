//! Local kernels on one device, without parties: products of matrices, random streams and a
//! worker's masked lists, verified and timed.

use super::memory::mib;
use megrez::report::Seconds;
use megrez::{Error, ErrorKind, Result};
use megrez_cuda::Cuda;
use megrez_device::{AnyBuf, AnyDevice, DeviceChoice};
use megrez_kernels::{Device, DeviceError, Entries, FieldShare, ListSpec, ListStreams, Memory, Reference};
use megrez_prg::{RootKey, Stream};
use megrez_protocols::mizar::SignList;
use megrez_ring::{Prime, Word};
use serde_json::{Value as Json, json};
use std::time::Instant;

/// The operations that need no party.
pub const OPS: &[&str] = &["gemm", "stream", "masked-list"];

/// Columns of the random combinations that verify a product.
const CHECKED: usize = 16;

/// What to measure.
#[derive(Clone, Debug)]
pub struct KernelBench {
    /// One of [`OPS`].
    pub op: String,
    /// ℓ: 32 or 64.
    pub ring: u32,
    /// m, k, n of the product.
    pub shape: [usize; 3],
    /// Elements of the stream, or values compared.
    pub batch: usize,
    /// How many measured runs; one more goes before.
    pub repeat: u32,
    /// Seeds the data.
    pub seed: u64,
    /// Where.
    pub device: DeviceChoice,
}

/// Wall-clock seconds of every run, the device's work waited for, and the kernels' seconds where
/// the device counts them.
struct Times {
    first: f64,
    wall: Seconds,
    kernels: Option<Seconds>,
}

fn refused(e: DeviceError) -> Error {
    Error::of(ErrorKind::Internal, e)
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
    let (first, _, made) = one()?;
    let mut last = Some(made);
    let (mut wall, mut on_device) = (vec![], vec![]);
    for _ in 0..repeat {
        // Peaks must not hold two results.
        drop(last.take());
        let (seconds, kernels, made) = one()?;
        wall.push(seconds);
        on_device.extend(kernels);
        last = Some(made);
    }
    let kernels = (!on_device.is_empty()).then(|| Seconds::of(on_device));
    Ok((Times { first, wall: Seconds::of(wall), kernels }, last.expect("every run makes something")))
}

fn stream(seed: u64, purpose: u8) -> Stream {
    RootKey::from_bytes([purpose; 32]).derive(&seed.to_le_bytes()).stream()
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
        32 if o.op == "masked-list" => lists::<u32>(&device, o).map_err(refused),
        64 if o.op == "masked-list" => lists::<u64>(&device, o).map_err(refused),
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
    let peak = peak_mib(device).map_err(refused)?;
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
        "peak_device_mib": peak,
        "verified": verified,
    }))
}

fn peak_mib<D: Device>(device: &D) -> std::result::Result<Option<f64>, DeviceError> {
    Ok(device.usage()?.map(|usage| mib(usage.peak_memory)))
}

/// Seconds, whether the result is right, and what a run does, in units per run.
type Outcome = std::result::Result<(Times, bool, Vec<(&'static str, f64)>), DeviceError>;

/// x·y for uniform matrices. Right if (x·y)·v = x·(y·v) for random v: a wrong product passes with
/// probability 2^−16.
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

/// What worker 0 has before it makes the masked list of every value.
struct Lists<W: Word, D: Device> {
    list: SignList,
    masked: D::Buf<W>,
    dealt: D::Buf<u64>,
    flips: D::Buf<u64>,
    streams: [Stream; 3],
}

impl<W: Word, D: Device> Lists<W, D> {
    fn new(device: &D, o: &KernelBench) -> std::result::Result<Self, DeviceError> {
        let spec = ListSpec { cut: 0, width: W::BITS, entries: Entries::Bits, prime: Prime::above(W::BITS) };
        let masks: D::Buf<W> = device.random(&stream(o.seed, 5), o.batch)?;
        let list = SignList(spec);
        let (dealt, _) = device.deal_list(&list, &masks, &stream(o.seed, 6))?;
        let masked = device.random(&stream(o.seed, 7), o.batch)?;
        let flips = device.random_bits(&stream(o.seed, 8), o.batch)?;
        Ok(Lists { list, masked, dealt, flips, streams: [9, 10, 11].map(|purpose| stream(o.seed, purpose)) })
    }

    fn streams(&self) -> ListStreams<'_> {
        let [multiplier, zero_share, rotation] = &self.streams;
        ListStreams { multiplier, zero_share, rotation }
    }

    fn fused(&self, device: &D) -> std::result::Result<D::Buf<u64>, DeviceError> {
        let share = FieldShare::Packed(&self.dealt);
        let lists =
            device.masked_lists(&self.list, 0, &self.masked, Some(share), &self.flips, &self.streams())?;
        Ok(lists.into_iter().next().expect("one list"))
    }
}

impl<W: Word> Lists<W, Cuda> {
    fn unfused(&self, device: &Cuda) -> std::result::Result<<Cuda as Memory>::Buf<u64>, DeviceError> {
        let share = FieldShare::Packed(&self.dealt);
        device.unfused_list(&self.list.0, 0, &self.masked, share, &self.flips, &self.streams())
    }
}

/// A worker's local step of a comparison of all bits: in one kernel, and on a GPU also with a
/// kernel for every step. Peaks have the operands in them; the planned ones are a GPU's, known
/// without one.
fn lists<W: Word>(device: &AnyDevice, o: &KernelBench) -> std::result::Result<Json, DeviceError> {
    let planned = |fused: bool| -> std::result::Result<Option<f64>, DeviceError> {
        let dry_run = Cuda::dry_run();
        let lists = Lists::<W, Cuda>::new(&dry_run, o)?;
        if fused {
            lists.fused(&dry_run)?
        } else {
            lists.unfused(&dry_run)?
        };
        peak_mib(&dry_run)
    };
    let expected = Lists::<W, Reference>::new(&Reference, o)?.fused(&Reference)?;
    let right = |words: Vec<u64>| words[..] == expected[..];
    let part = |times: Times, peak: Option<f64>| json!({ "first_seconds": times.first, "seconds": times.wall, "kernel_seconds": times.kernels, "peak_device_mib": peak });
    let lists = Lists::<W, AnyDevice>::new(device, o)?;
    let (times, made) = timed(device, o.repeat, || lists.fused(device))?;
    let mut verified = right(device.download(made)?);
    let fused = part(times, peak_mib(device)?);
    drop(lists);
    let mut unfused = Json::Null;
    if let AnyDevice::Cuda(cuda) = device {
        let lists = Lists::<W, Cuda>::new(cuda, o)?;
        let (times, made) = timed(device, o.repeat, || lists.unfused(cuda))?;
        verified &= right(cuda.download(made)?);
        unfused = part(times, peak_mib(cuda)?);
    }
    Ok(json!({
        "schema": "megrez.bench-kernel/1",
        "op": o.op,
        "ring": o.ring,
        "batch": o.batch,
        "device": device.describe(),
        "repeat": o.repeat,
        "fused": fused,
        "unfused": unfused,
        "planned_fused_mib": planned(true)?,
        "planned_unfused_mib": planned(false)?,
        "verified": verified,
    }))
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
    fn lists_in_one_kernel_take_half_the_memory() {
        let o = KernelBench {
            op: "masked-list".into(),
            ring: 64,
            shape: [1; 3],
            batch: 1 << 12,
            repeat: 1,
            seed: 1,
            device: DeviceChoice::Cpu,
        };
        let report = bench(&o).unwrap();
        assert_eq!(report["verified"], true, "{report}");
        let planned = |name: &str| report[name].as_f64().unwrap();
        assert!(2.0 * planned("planned_fused_mib") <= planned("planned_unfused_mib"), "{report}");
    }

    #[test]
    fn a_wrong_product_is_found() {
        // A device without data gives zeros, which are not the product.
        let device = AnyDevice::Cuda(megrez_cuda::Cuda::dry_run());
        let (x, y) = (vec![1u64; 6], vec![2u64; 6]);
        let z = device.matmul(&device.upload(x).unwrap(), &device.upload(y).unwrap(), 1, [2, 3, 2]).unwrap();
        assert_ne!(device.download(z).unwrap(), [6; 4]);
    }
}
