//! A device without data: it hands out addresses, counts bytes and launches, and runs nothing. What
//! is copied from it is zero. A plan that is walked on it takes the memory that it will take on a
//! GPU, so the peak is known before a run.

use crate::backend::Result;
use crate::backend::{Arg, Backend, Launch, Statistics};
use crate::source::Unit;
use std::sync::{Mutex, MutexGuard};

/// Addresses are never used; only the registers of circuits must differ from them.
const ADDRESS: u64 = 1 << 32;

/// An H100 as far as sizes depend on the device.
#[derive(Default)]
pub(crate) struct DryRun {
    statistics: Mutex<Statistics>,
}

impl DryRun {
    fn statistics(&self) -> MutexGuard<'_, Statistics> {
        self.statistics.lock().unwrap_or_else(|e| e.into_inner())
    }
}

impl Backend for DryRun {
    fn describe(&self) -> String {
        "dry run (no data)".into()
    }

    fn processors(&self) -> usize {
        132
    }

    fn shared_memory(&self) -> usize {
        227 << 10
    }

    fn groups(&self) -> bool {
        true
    }

    fn allocate(&self, bytes: usize) -> Result<u64> {
        self.statistics().allocated(bytes);
        Ok(ADDRESS)
    }

    fn upload(&self, data: &[u8], padded: usize) -> Result<u64> {
        let mut statistics = self.statistics();
        statistics.allocated(padded);
        statistics.uploaded += data.len() as u64;
        Ok(ADDRESS)
    }

    fn release(&self, _: u64, bytes: usize) {
        self.statistics().memory -= bytes;
    }

    fn download(&self, _: u64, out: &mut [u8]) -> Result<()> {
        self.statistics().downloaded += out.len() as u64;
        out.fill(0);
        Ok(())
    }

    fn clear(&self, _: u64, _: usize) -> Result<()> {
        Ok(())
    }

    fn launch(&self, _: &Unit, kernel: &'static str, _: Launch, _: &[&dyn Arg]) -> Result<()> {
        self.statistics().kernels.entry(kernel).or_default().launches += 1;
        Ok(())
    }

    fn synchronize(&self) -> Result<()> {
        Ok(())
    }

    fn statistics(&self) -> Result<Statistics> {
        Ok(DryRun::statistics(self).clone())
    }
}
