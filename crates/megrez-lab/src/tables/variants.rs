//! What MIZAR's tables 3 and 4 compare: reductions by integer division, Barrett and Mersenne, and
//! prefix sums naive and by a scan. Protocols use none of the slow ones.

use super::table::Setting;
use megrez::report::Seconds;
use megrez::{Error, Result};
use megrez_cuda::Reduction;
use megrez_device::{AnyBuf, AnyDevice, DeviceChoice};
use megrez_kernels::{Device, DeviceError, Memory};
use megrez_prg::{RootKey, Stream};
use megrez_ring::Word;
use serde_json::{Value as Json, json};
use std::hint::black_box;
use std::time::Instant;

/// Elements of a batch.
const BATCH: usize = 1 << 20;
/// Elements of a list, as of a 64-bit comparison.
const LENGTH: usize = 64;
/// The field of the lists, a Mersenne prime.
const P: u32 = 127;

/// How prefix sums are made.
#[derive(Clone, Copy)]
pub(super) struct Prefix {
    /// By a scan, or every sum anew.
    pub scan: bool,
    /// The reduction after every addition: 0 integer division, 1 Barrett, 2 Mersenne.
    pub reduction: usize,
}

impl Prefix {
    fn reduction(self) -> Reduction {
        [Reduction::Divide, Reduction::Barrett, Reduction::Mersenne][self.reduction]
    }
}

fn stream(setting: &Setting) -> Stream {
    RootKey::from_bytes([9; 32]).derive(&setting.seed.to_le_bytes()).stream()
}

fn device(setting: &Setting) -> Result<AnyDevice> {
    Ok(setting.devices.first().copied().unwrap_or(DeviceChoice::Auto).open()?)
}

/// Runs `work` on the device and reports; `right` judges what it made.
fn report<T: megrez_kernels::Elem>(
    device: &AnyDevice,
    setting: &Setting,
    work: impl Fn() -> std::result::Result<AnyBuf<T>, DeviceError>,
    right: impl Fn(&[T]) -> bool,
) -> Result<Json> {
    let kernels = || device.usage().map(|usage| usage.map(|u| u.kernel_seconds));
    let run = || -> std::result::Result<Json, DeviceError> {
        let made = device.download(work()?)?;
        let mut seconds = vec![];
        for _ in 0..setting.repeat.max(3) {
            let (before, start) = (kernels()?, Instant::now());
            black_box(work()?);
            let after = kernels()?;
            let wall = start.elapsed().as_secs_f64();
            seconds.push(before.zip(after).map_or(wall, |(before, after)| after - before));
        }
        let seconds = Seconds::of(seconds);
        Ok(json!({ "device": device.describe(), "seconds": seconds,
            "operations_per_second": (seconds.median > 0.0).then(|| 1.0 / seconds.median), "verified": right(&made) }))
    };
    run().map_err(|e| Error::Refused(e.to_string()))
}

/// x mod 2^ℓ, or modulo the largest prime below 2^ℓ by division.
pub(super) fn reductions(setting: &Setting, ring: u32, prime: bool) -> Result<Json> {
    fn of<W: Word>(setting: &Setting, p: Option<u64>) -> Result<Json> {
        let device = device(setting)?;
        let refuse = |e: DeviceError| Error::Refused(e.to_string());
        let x: AnyBuf<W> = device.random(&stream(setting), BATCH).map_err(refuse)?;
        let host = device.download(x.clone()).map_err(refuse)?;
        let right = |made: &[W]| {
            let expected = |x: &W| p.map_or(x.to_u64(), |p| x.to_u64() % p);
            host.iter().zip(made).all(|(x, made)| made.to_u64() == expected(x))
        };
        let work = || match (&device, &x) {
            (AnyDevice::Cuda(cuda), AnyBuf::Cuda(x)) => Ok(AnyBuf::Cuda(cuda.reduced(x, p)?)),
            (_, AnyBuf::Cpu(x)) => {
                let p = black_box(p);
                let out: Vec<W> = match p {
                    Some(p) => x.iter().map(|x| W::from_u64(x.to_u64() % p)).collect(),
                    None => x.iter().map(|x| W::from_u64(x.to_u64() & black_box(u64::MAX))).collect(),
                };
                device.upload(out)
            }
            _ => unreachable!("the buffer is the device's own"),
        };
        report(&device, setting, work, right)
    }
    match ring {
        32 => of::<u32>(setting, prime.then_some((1 << 32) - 5)),
        _ => of::<u64>(setting, prime.then_some(u64::MAX - 58)),
    }
}

/// Sums of x_0, …, x_i modulo p for every i of every list.
pub(super) fn prefix_sums(setting: &Setting, how: Prefix) -> Result<Json> {
    let device = device(setting)?;
    let elements: Vec<u32> =
        stream(setting).words(BATCH).into_iter().map(|w| (w % u64::from(P)) as u32).collect();
    let x = device.upload(elements.clone()).map_err(|e| Error::Refused(e.to_string()))?;
    let right = |made: &[u32]| {
        let right_list = |(x, made): (&[u32], &[u32])| {
            let mut sum = 0;
            x.iter().zip(made).all(|(x, made)| {
                sum += u64::from(*x);
                u64::from(*made) == sum % u64::from(P)
            })
        };
        elements.chunks(LENGTH).zip(made.chunks(LENGTH)).all(right_list)
    };
    let work = || match (&device, &x) {
        (AnyDevice::Cuda(cuda), AnyBuf::Cuda(x)) => {
            Ok(AnyBuf::Cuda(cuda.prefix_sums(x, P, how.reduction(), how.scan)?))
        }
        (_, AnyBuf::Cpu(x)) => device.upload(on_host(x, how)),
        _ => unreachable!("the buffer is the device's own"),
    };
    report(&device, setting, work, right)
}

fn on_host(x: &[u32], how: Prefix) -> Vec<u32> {
    let p = black_box(P);
    let factor = (1u64 << 32) / u64::from(p);
    match how.reduction() {
        Reduction::Divide => lists(x, how.scan, |x| x % p),
        Reduction::Barrett => lists(x, how.scan, |x| {
            let rest = x - ((u64::from(x) * factor) >> 32) as u32 * p;
            rest - if rest >= p { p } else { 0 }
        }),
        Reduction::Mersenne => lists(x, how.scan, |x| {
            let folded = (x & P) + (x >> P.count_ones());
            folded - if folded >= P { P } else { 0 }
        }),
    }
}

fn lists(x: &[u32], scan: bool, reduce: impl Fn(u32) -> u32) -> Vec<u32> {
    let mut out = Vec::with_capacity(x.len());
    for list in x.chunks(LENGTH) {
        let mut sum = 0;
        for i in 0..list.len() {
            sum = match scan {
                true => reduce(sum + list[i]),
                false => list[..=i].iter().fold(0, |sum, x| reduce(sum + x)),
            };
            out.push(sum);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_variant_is_right() {
        let setting = Setting {
            net: megrez_net::NetProfile::loopback(),
            repeat: 1,
            processes: false,
            devices: vec![DeviceChoice::Cpu],
            seed: 1,
        };
        for (ring, prime) in [(32, false), (32, true), (64, false), (64, true)] {
            assert_eq!(reductions(&setting, ring, prime).unwrap()["verified"], true, "{ring} {prime}");
        }
        for (scan, reduction) in [false, true].into_iter().flat_map(|scan| [0, 1, 2].map(|r| (scan, r))) {
            let made = prefix_sums(&setting, Prefix { scan, reduction }).unwrap();
            assert_eq!(made["verified"], true, "{scan} {reduction}");
        }
    }
}
