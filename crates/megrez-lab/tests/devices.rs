//! Parties of one session may compute on different devices. A machine without a GPU runs the CUDA
//! kernels on the host: slowly, but the same source, started by the same calls.

use megrez::RunOptions;
use megrez::{Backend, FixedModel};
use megrez_cuda::Cuda;
use megrez_device::AnyDevice;
use megrez_graph::{Comparison, CompileOptions, RangePolicy, models};
use megrez_lab::bench::memory::planned_peaks;
use megrez_lab::bench::{BenchOptions, bench_model, bench_op};
use megrez_plan::List;

/// A GPU, or else its kernels on the host; nothing without a C++ compiler.
fn cuda() -> Option<AnyDevice> {
    match Cuda::new(0).or_else(|_| Cuda::emulated()) {
        Ok(device) => Some(AnyDevice::Cuda(device)),
        Err(why) => {
            println!("skipped: no CUDA kernels on this machine: {why}");
            None
        }
    }
}

/// The processor for all parties but those named.
fn some_on_cuda(parties: &[usize]) -> Option<Backend> {
    let device = |party| if parties.contains(&party) { cuda() } else { Some(AnyDevice::default()) };
    Some(Backend::Threads((0..3).map(device).collect::<Option<_>>()?))
}

fn options(protocol: &str, ring: u32, batch: usize) -> BenchOptions {
    let run = RunOptions::new(protocol);
    BenchOptions { ring, frac: 13, batch, shape: [20, 40, 30], ..BenchOptions::new(run) }
}

/// Every operation's result is compared with the clear one, exactly but for a unit in the last
/// place of a truncation.
#[test]
fn every_party_may_have_another_device() {
    for (protocol, on_cuda) in [
        ("mizar", &[0][..]),
        ("mizar", &[1]),
        ("mizar", &[2]),
        ("mizar", &[0, 1, 2]),
        ("aby3", &[1]),
        ("meteor", &[0]),
        ("alkaid", &[2]),
    ] {
        let Some(mut backend) = some_on_cuda(on_cuda) else { return };
        for op in ["relu", "fixed-matmul", "maxpool", "truncate", "select"] {
            let report = bench_op(&mut backend, op, &options(protocol, 64, 130)).unwrap();
            assert_eq!(report["verified"], true, "{op} under {protocol}, {on_cuda:?} on cuda: {report}");
            for party in 0..3 {
                let counted = report["kernel_seconds"][party].is_number();
                assert_eq!(counted, on_cuda.contains(&party), "the report tells who computed where");
            }
        }
    }
}

#[test]
fn lenet_with_a_party_on_cuda() {
    let Some(mut backend) = some_on_cuda(&[0]) else { return };
    let mut options = options("mizar", 64, 1);
    options.sign.list = List::Digits(vec![3; 21]);
    let compile = CompileOptions {
        ring: 64,
        frac: options.frac,
        policy: RangePolicy::Assume,
        comparison: Comparison::Fixed(options.sign.clone()),
        ..CompileOptions::default()
    };
    let graph = models::build("lenet", 1, 1).unwrap();
    let model = FixedModel::new(&graph, backend.client(), &compile).unwrap();
    let report = bench_model(&mut backend, "lenet", &model, &options).unwrap();
    assert_eq!(report["verified"], true, "{report}");

    // What was planned is what it took: the emulated device is smaller than the planned one, so
    // tiles may differ.
    let planned = planned_peaks("mizar", &model.compiled.plan).unwrap();
    let measured = report["peak_device_mib"][0].as_f64().unwrap() * f64::from(1 << 20);
    let ratio = measured / planned[0] as f64;
    assert!((0.9..1.1).contains(&ratio), "planned {}, took {measured}", planned[0]);
}
