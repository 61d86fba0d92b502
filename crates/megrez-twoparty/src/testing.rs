//! What this crate's tests share.

use megrez_kernels::Cpu;
use megrez_net::{ClockKind, NetProfile, Network};
use megrez_session::{Error, Party};
use std::time::Duration;

/// Runs both parties of a session in memory, under virtual time, and returns what party 0 and party
/// 1 returned.
pub fn two_parties<R: Send>(
    body: impl Fn(&mut Party<Cpu>) -> Result<R, Error> + Sync,
) -> Vec<Result<R, Error>> {
    parties(2, body)
}

/// As [`two_parties`], with so many.
pub fn parties<R: Send>(
    count: usize,
    body: impl Fn(&mut Party<Cpu>) -> Result<R, Error> + Sync,
) -> Vec<Result<R, Error>> {
    let networks = Network::in_memory(count, &NetProfile::lan(), ClockKind::Virtual, Duration::from_secs(60));
    std::thread::scope(|scope| {
        let running: Vec<_> = networks
            .into_iter()
            .map(|network| {
                let body = &body;
                scope.spawn(move || body(&mut Party::start(network, Cpu::new(1))?))
            })
            .collect();
        running.into_iter().map(|r| r.join().unwrap()).collect()
    })
}

/// Holds bytes to a chi-square test against uniform ones, six deviations wide.
pub fn chi_square_is_plausible(bytes: &[u8]) {
    let mut counts = [0f64; 256];
    bytes.iter().for_each(|&b| counts[usize::from(b)] += 1.0);
    let expected = bytes.len() as f64 / 256.0;
    let chi2: f64 = counts.iter().map(|c| (c - expected).powi(2) / expected).sum();
    assert!((chi2 - 255.0).abs() < 6.0 * (2.0 * 255f64).sqrt(), "chi2 {chi2} for 255 degrees of freedom");
}
