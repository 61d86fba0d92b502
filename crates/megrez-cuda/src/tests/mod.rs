//! Every kernel equals the reference bit for bit, on the host by emulation and on a GPU where there
//! is one; and what this device alone has.

mod lists;

use crate::Cuda;
use megrez_kernels::testing::{Suite, host};
use megrez_kernels::{Device, Memory, Reference};
use megrez_prg::Key;

fn emulated() -> Vec<Suite<Cuda>> {
    match Cuda::emulated() {
        Ok(device) => return vec![Suite::new(device, false)],
        Err(why) => println!("skipped: no emulation of kernels on this machine: {why}"),
    }
    vec![]
}

/// A GPU does in a moment what takes the emulator minutes.
fn gpu() -> Vec<Suite<Cuda>> {
    match Cuda::new(0) {
        Ok(device) => return vec![Suite::new(device, true)],
        Err(why) => println!("skipped: no kernels on a GPU: {why}"),
    }
    vec![]
}

/// The devices of this machine; what is missing is said.
fn devices() -> impl Iterator<Item = Suite<Cuda>> {
    emulated().into_iter().chain(gpu())
}

mod on_the_host {
    megrez_kernels::differential_tests!(super::emulated());
}

mod on_a_gpu {
    megrez_kernels::differential_tests!(super::gpu());
}

/// Products as an H100 makes them, where the host stands in for one.
#[test]
fn products_in_groups() {
    match Cuda::emulated_groups().map(|device| Suite::new(device, false)) {
        Ok(suite) => {
            suite.matrices();
            suite.images();
        }
        Err(why) => println!("skipped: no emulation of kernels on this machine: {why}"),
    }
}

/// Sizes that only a GPU does in reasonable time.
#[test]
fn large_products() {
    for suite in gpu() {
        for sizes in [[700, 70, 1030], [1024, 512, 640], [64, 40_000, 64], [2000, 33, 17], [1, 5000, 4099]] {
            suite.matrix::<u32>(sizes);
            suite.matrix::<u64>(sizes);
        }
        (0..100).for_each(|_| suite.any_image::<u64>(20, 40));
    }
}

/// The largest sums that limbs can make, of one sign, where the lowest diagonals must not wrap.
#[test]
fn long_sums_stay_exact() {
    for suite in devices() {
        let k = if suite.thorough { 100_000 } else { 33_000 };
        // Every limb of the first is −128, of the second 127.
        let (low, high) = ((u64::MAX / 255 * 128).wrapping_neg(), u64::MAX / 255 * 127);
        for (a, b) in [(low, low), (low, high)].into_iter().take(if suite.thorough { 2 } else { 1 }) {
            let (x, y) = (vec![a; 16 * k], vec![b; 16 * k]);
            suite.product(&x, &y, 1, [16, k, 16]);
        }
    }
}

#[test]
fn weights_are_cut_once() {
    for suite in devices() {
        let (x, y) = (suite.words::<u64>(128 * 64), suite.words::<u64>(64 * 128));
        let expected = Reference.matmul(&host(&x), &host(&y), 1, [128, 64, 128]).unwrap();
        let (left, weights) = (suite.up(&x), suite.up(&y));
        for _ in 0..5 {
            let found = suite.device.matmul(&left, &weights, 1, [128, 64, 128]).unwrap();
            suite.same("with kept limbs", found, &expected);
        }
        // The same words in another shape are other columns.
        let expected = Reference.matmul(&host(&x), &host(&y), 1, [64, 128, 64]).unwrap();
        for _ in 0..2 {
            let found = suite.device.matmul(&left, &weights, 1, [64, 128, 64]).unwrap();
            suite.same("in another shape", found, &expected);
        }
        let statistics = suite.device.statistics().unwrap();
        assert_eq!(statistics.kernels["limbs_of_columns"].launches, 4);
        drop((left, weights));
        assert_eq!(suite.device.statistics().unwrap().memory, 0, "everything is given back");
        assert!(statistics.peak_memory >= 2 * 128 * 64 * 8);
    }
}

/// What a dry run counts is what the kernels take.
#[test]
fn dry_runs_count_the_same_memory() {
    fn work(device: &Cuda) -> (usize, u64) {
        let stream = Key::from_bytes([5; 32]).stream();
        let x = device.random::<u64>(&stream, 100 * 64).unwrap();
        let y = device.random::<u64>(&stream, 64 * 100).unwrap();
        let z = device.matmul(&x, &y, 1, [100, 64, 100]).unwrap();
        let planes = device.bit_planes(&z, 0, 64).unwrap();
        drop((x, y, z));
        device.download(planes).unwrap();
        let s = device.statistics().unwrap();
        assert_eq!(s.memory, 0);
        (s.peak_memory, s.kernels.values().map(|k| k.launches).sum())
    }
    for suite in emulated() {
        assert_eq!(work(&suite.device), work(&Cuda::dry_run()));
    }
}

#[test]
fn variants() {
    for suite in devices() {
        for n in [0, 1, 64, 6400] {
            let x: Vec<u64> = suite.words(n);
            let p = u64::MAX - 58;
            let expected: Vec<u64> = x.iter().map(|x| x % p).collect();
            suite.same("divided", suite.device.reduced(&suite.up(&x), Some(p)).unwrap(), &expected);
            suite.same("masked", suite.device.reduced(&suite.up(&x), None).unwrap(), &x);
            let x: Vec<u32> = x.iter().map(|x| (x % 127) as u32).collect();
            let sums = |list: &[u32]| -> Vec<u32> {
                (0..list.len()).map(|i| list[..=i].iter().sum::<u32>() % 127).collect()
            };
            let expected: Vec<u32> = x.chunks(64).flat_map(sums).collect();
            for how in [crate::Reduction::Divide, crate::Reduction::Barrett, crate::Reduction::Mersenne] {
                for scan in [false, true] {
                    let made = suite.device.prefix_sums(&suite.up(&x), 127, how, scan).unwrap();
                    suite.same(&format!("prefix sums {how:?} {scan} {n}"), made, &expected);
                }
            }
        }
    }
}

#[test]
fn copies_of_any_size() {
    for suite in devices() {
        for n in [0, 1, 1000, 3_000_001] {
            let x = suite.words::<u64>(n);
            suite.same("there and back", suite.up(&x), &x);
        }
    }
}

/// Parties' lanes share a device.
#[test]
fn threads_share_a_device() {
    for suite in devices() {
        let device = &suite.device;
        std::thread::scope(|scope| {
            for seed in 0..4u8 {
                scope.spawn(move || {
                    let stream = Key::from_bytes([seed; 32]).stream();
                    for n in [10, 1000, 5000] {
                        let x = device.random::<u64>(&stream, n).unwrap();
                        let y = device.combine(&[(3, &x), (5, &x)], 7, n).unwrap();
                        let expected: Vec<u64> =
                            stream.words(n).into_iter().map(|x| x.wrapping_mul(8).wrapping_add(7)).collect();
                        assert_eq!(device.download(y).unwrap(), expected);
                    }
                });
            }
        });
    }
}

#[test]
fn too_little_memory_is_a_clear_error() {
    match Cuda::new(0) {
        Ok(device) => {
            let error = device.random_bits(&Key::from_bytes([0; 32]).stream(), 1 << 43).err().unwrap();
            assert!(error.what.contains("not enough memory"), "{error}");
            let small = device.upload(vec![1u64, 2]).unwrap();
            assert_eq!(device.download(small).unwrap(), [1, 2], "the device still works");
        }
        Err(why) => println!("skipped: no GPU: {why}"),
    }
}
