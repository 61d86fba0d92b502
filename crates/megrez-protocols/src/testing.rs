//! What this crate's tests share.

use megrez_kernels::Reference;
use megrez_net::{ClockKind, NetProfile, Network};
use megrez_session::{Party, Phase};
use std::time::Duration;

/// Runs three parties, each in a thread, and returns what they return.
pub(crate) fn session<T: Send>(party: impl Fn(&mut Party<Reference>) -> T + Sync) -> Vec<T> {
    let profile = NetProfile::loopback();
    let networks = Network::in_memory(3, &profile, ClockKind::Virtual, Duration::from_secs(20));
    let run = |network| {
        let mut started = Party::start(network, Reference).unwrap();
        started.enter(Phase::Online, 0);
        party(&mut started)
    };
    std::thread::scope(|scope| {
        let run = &run;
        let running: Vec<_> = networks.into_iter().map(|n| scope.spawn(move || run(n))).collect();
        running.into_iter().map(|r| r.join().unwrap()).collect()
    })
}
