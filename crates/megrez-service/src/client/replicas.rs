//! Which replica of a cluster a client goes to: of two that it picks at random the one that has
//! less to do, and on to the others if that one cannot be reached. Picking the better of two keeps
//! the load even without asking all of them.

use super::Cluster;
use crate::{Error, ErrorKind, Result};
use megrez_net::Identity;
use std::time::Duration;

impl Cluster {
    /// Connects to one of several replicas, given by the addresses of their parties. Returns its
    /// number, too.
    ///
    /// # Errors
    /// If none can be reached.
    pub fn connect_any(
        replicas: &[Vec<String>],
        identity: &Identity,
        timeout: Duration,
    ) -> Result<(usize, Self)> {
        if let [only] = replicas {
            return Ok((0, Self::connect(only, identity, timeout)?));
        }
        let mut order = shuffled(replicas.len())?;
        // Without an answer a replica is the last to be tried.
        if let [first, second, ..] = order[..] {
            let load = |replica: usize| load(&replicas[replica], identity, timeout).unwrap_or(usize::MAX);
            let loads = [first, second].map(load);
            if loads[1] < loads[0] {
                order.swap(0, 1);
            }
            // The better one is out of reach as well: begin with those that nobody has asked.
            if loads[0].min(loads[1]) == usize::MAX {
                order.rotate_left(2);
            }
        }
        let mut failed = None;
        for replica in order {
            match Self::connect(&replicas[replica], identity, timeout) {
                Ok(cluster) => return Ok((replica, cluster)),
                Err(e) => failed = failed.or(Some((replica, e))),
            }
        }
        let (replica, e) =
            failed.ok_or_else(|| Error::Refused("a cluster has at least one replica".into()))?;
        let what = format!("none of {} replicas can be reached; replica {replica}: {e}", replicas.len());
        Err(Error::of(e.kind(), what))
    }
}

/// What party 0 of a replica has to do: sessions that run and requests that wait.
fn load(parties: &[String], identity: &Identity, timeout: Duration) -> Result<usize> {
    let first = parties.first().ok_or_else(|| Error::Refused("a replica has at least one party".into()))?;
    let info = Cluster::connect_one(0, first, identity, timeout)?.info()?.remove(0);
    // One that is about to end takes nothing more.
    if info.draining {
        Err(Error::of(ErrorKind::Busy, "it is draining"))
    } else {
        Ok(info.sessions + info.waiting)
    }
}

/// The numbers below `count` in an order that follows from nothing.
fn shuffled(count: usize) -> Result<Vec<usize>> {
    let mut order: Vec<usize> = (0..count).collect();
    for last in (1..count).rev() {
        let random = getrandom::u64().map_err(|e| Error::of(ErrorKind::Internal, e))?;
        order.swap(last, (random % (last as u64 + 1)) as usize);
    }
    Ok(order)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_order_comes_up() {
        let mut seen = std::collections::BTreeSet::new();
        // Each of six orders stays away 200 times with a chance of 1e-15.
        seen.extend((0..200).map(|_| shuffled(3).unwrap()));
        assert_eq!(seen.len(), 6);
        assert!(seen.iter().all(|order| order.iter().sum::<usize>() == 3));
    }
}
