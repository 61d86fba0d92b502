//! The memory that a plan takes on GPUs, known before it runs: all parties walk it in this process,
//! on devices that count what a GPU would hold and compute nothing. Shares reveal nothing, so zeros
//! take the same way through a protocol as data.

use megrez::protocols::find;
use megrez::{Backend, Error, ErrorKind, Result, RunOptions};
use megrez_cuda::Cuda;
use megrez_device::AnyDevice;
use megrez_kernels::Memory;
use megrez_plan::{Input, Plan};

/// Each party's peak memory on its device in bytes, for one run with its offline phase. The
/// driver's own memory and the kernels' code come on top.
///
/// # Errors
/// If the protocol lacks steps of the plan.
pub fn planned_peaks(protocol: &str, plan: &Plan) -> Result<Vec<usize>> {
    let parties = find(protocol)?.parties;
    let devices: Vec<AnyDevice> = (0..parties).map(|_| AnyDevice::Cuda(Cuda::dry_run())).collect();
    let zeros = |_: u32, input: &Input| Ok(vec![0; plan.value(input.value).shape.elements()]);
    let options = RunOptions { insecure: true, ..RunOptions::new(protocol) };
    Backend::Threads(devices.clone()).run(plan, &options, &zeros, &|_| {})?;
    let peak = |device: &AnyDevice| {
        let usage = device.usage().map_err(|e| Error::of(ErrorKind::Internal, e))?;
        Ok(usage.unwrap_or_default().peak_memory)
    };
    devices.iter().map(peak).collect()
}

/// Bytes in MiB.
pub fn mib(bytes: usize) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
