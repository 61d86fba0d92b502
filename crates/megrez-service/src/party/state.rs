//! What a party says of itself: whether it is ready, what it has counted, who it is.

use super::host::{free_bytes, writable};
use super::jobs::material_folder;
use super::metrics::Now;
use super::service::Service;
use crate::wire::{self, Info};
use megrez_engine::{files, store};
use megrez_kernels::Memory as _;
use std::sync::atomic::Ordering;
use std::time::{SystemTime, UNIX_EPOCH};

impl Service {
    /// Whether this party can take requests, by what that takes: names, and what is wrong.
    pub fn checks(&self) -> Vec<(&'static str, Option<String>)> {
        let open = self.admission.is_open().err().map(|e| e.to_string());
        let data = writable(&self.host.policy.data).err().map(|e| e.to_string());
        self.writable.store(data.is_none(), Ordering::Relaxed);
        vec![("admits requests", open), ("data folder can be written", data)]
    }

    /// What this party counts, as OpenMetrics.
    pub fn metrics(&self) -> String {
        let material = files::of_extension(&material_folder(&self.host), store::EXTENSION);
        self.metrics.text(&Now {
            sessions: self.admission.sessions(),
            waiting: self.admission.waiting(),
            connections: self.connections.count(),
            ready: self.admission.is_open().is_ok() && self.writable.load(Ordering::Relaxed),
            material: material.map_or(0, |files| files.len()),
            approvals: self.approvals().len(),
            free: free_bytes(&self.host.policy.data),
        })
    }

    /// Who this is, and what it has to do.
    pub(super) fn info(&self) -> Info {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Info {
            version: wire::VERSION,
            release: env!("CARGO_PKG_VERSION").into(),
            party: self.host.endpoint.me(),
            device: self.host.device.describe(),
            clock_ms: now.as_millis() as u64,
            sessions: self.admission.sessions(),
            waiting: self.admission.waiting(),
            draining: self.draining.load(Ordering::Acquire),
            writable: writable(&self.host.policy.data).is_ok(),
            certificate_ends_s: self.metrics.expiry(),
        }
    }
}
