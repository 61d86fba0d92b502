//! The connections of clients: how many there are, which of them may go, and how much is being
//! received on all of them.

use super::settings::Current;
use crate::{Error, ErrorKind, Result};
use megrez_net::{CertificateId, HangUp};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Requests up to this size in bytes are received without asking.
const SMALL: u64 = 64 << 10;

pub(super) struct Connections {
    settings: Current,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    serial: u64,
    open: BTreeMap<u64, Open>,
    /// Bytes of large requests that are being received, by client.
    receiving: BTreeMap<String, u64>,
}

struct Open {
    client: String,
    /// Since when nothing is asked on it, in order.
    idle: Option<u64>,
    handle: HangUp,
    certificate: Option<CertificateId>,
}

/// A client's connection, until it is dropped.
pub(super) struct Connection<'a> {
    connections: &'a Connections,
    serial: u64,
}

/// Room for a large request, until it is dropped.
pub(super) struct Receiving<'a> {
    connections: &'a Connections,
    client: String,
    bytes: u64,
}

impl Connections {
    pub(super) fn new(settings: Current) -> Self {
        Connections { settings, state: Mutex::default() }
    }

    /// Takes in a connection. If its client has too many already, or there are too many in all, an
    /// idle one is closed: the client's own, or one of the client who has the most.
    ///
    /// # Errors
    /// [`ErrorKind::Busy`] if none is idle.
    pub(super) fn enter(
        &self,
        client: &str,
        handle: HangUp,
        certificate: Option<CertificateId>,
    ) -> Result<Connection<'_>> {
        let mut state = self.lock();
        let of = |state: &State, client: &str| state.open.values().filter(|o| o.client == client).count();
        let mine = of(&state, client);
        let busy = |what: String| Err(Error::of(ErrorKind::Busy, what));
        if mine >= self.settings.get().capacity.connections_per_client && !state.close_idle(client) {
            return busy(format!("`{client}` has {mine} connections open already: close some"));
        }
        if state.open.len() >= self.settings.get().capacity.max_connections {
            let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
            state.open.values().for_each(|o| *counts.entry(&o.client).or_default() += 1);
            let most = counts.into_iter().max_by_key(|(_, n)| *n).map(|(name, _)| name.to_owned());
            if !most.is_some_and(|most| state.close_idle(&most)) {
                return busy("as many clients are connected as may: try again later".into());
            }
        }
        state.serial += 1;
        let serial = state.serial;
        state.open.insert(serial, Open { client: client.into(), idle: Some(serial), handle, certificate });
        Ok(Connection { connections: self, serial })
    }

    /// Closes those of revoked certificates, whatever they do; says how many.
    pub(super) fn close_revoked(&self, revoked: impl Fn(&CertificateId) -> bool) -> usize {
        let state = self.lock();
        let theirs = state.open.values().filter(|o| o.certificate.as_ref().is_some_and(&revoked));
        theirs.map(|open| open.handle.hang_up()).count()
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.lock().open.len()
    }

    /// The clients, each with one connection.
    pub(super) fn by_client(&self) -> Vec<(String, usize)> {
        self.lock().open.values().map(|open| (open.client.clone(), 1)).collect()
    }

    /// How many there are on which something has been asked and not yet answered to the end.
    pub(super) fn busy(&self) -> usize {
        self.lock().open.values().filter(|o| o.idle.is_none()).count()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Closes the client's connection that has been idle for longest, if there is one.
    fn close_idle(&mut self, client: &str) -> bool {
        let idle = self.open.iter().filter(|(_, o)| o.client == client);
        let oldest = idle.filter_map(|(serial, o)| o.idle.map(|since| (since, *serial))).min();
        let Some(gone) = oldest.and_then(|(_, serial)| self.open.remove(&serial)) else { return false };
        gone.handle.hang_up();
        true
    }
}

impl<'a> Connection<'a> {
    /// Room for a request of so many bytes.
    ///
    /// # Errors
    /// [`ErrorKind::Busy`] if others are receiving too much.
    pub(super) fn receive(&self, bytes: u64) -> Result<Option<Receiving<'a>>> {
        if bytes <= SMALL {
            return Ok(None);
        }
        let connections = self.connections;
        let mut state = connections.lock();
        let Some(client) = state.open.get(&self.serial).map(|open| open.client.clone()) else {
            return Err(Error::of(ErrorKind::Busy, "the connection was closed for another"));
        };
        let all: u64 = state.receiving.values().sum();
        let mine = state.receiving.get(&client).copied().unwrap_or_default();
        let most = connections.settings.get().capacity.request();
        if all + bytes > 2 * most || mine + bytes > most {
            return Err(Error::of(
                ErrorKind::Busy,
                "this party is receiving as many large requests as it can: try again later",
            ));
        }
        state.receiving.insert(client.clone(), mine + bytes);
        Ok(Some(Receiving { connections, client, bytes }))
    }

    /// Something has been asked on it, or no longer is.
    pub(super) fn idle(&self, idle: bool) {
        let mut state = self.connections.lock();
        state.serial += 1;
        let now = state.serial;
        if let Some(open) = state.open.get_mut(&self.serial) {
            open.idle = idle.then_some(now);
        }
    }
}

impl Drop for Connection<'_> {
    fn drop(&mut self) {
        self.connections.lock().open.remove(&self.serial);
    }
}

impl Drop for Receiving<'_> {
    fn drop(&mut self) {
        let mut state = self.connections.lock();
        let Some(mine) = state.receiving.get_mut(&self.client) else { return };
        *mine -= self.bytes;
        if *mine == 0 {
            state.receiving.remove(&self.client);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::capacity::Capacity;
    use super::*;

    fn connections(max: usize, of_one: usize) -> Connections {
        let capacity = Capacity {
            max_connections: max,
            connections_per_client: of_one,
            max_request_mib: 1,
            ..Capacity::default()
        };
        Connections::new(Current::of(capacity))
    }

    #[test]
    fn the_oldest_idle_connection_of_the_busiest_goes() {
        let all = connections(4, 3);
        let enter = |client: &str| all.enter(client, HangUp::none(), None);
        let modest = enter("modest").unwrap();
        let greedy: Vec<_> = (0..3).map(|_| enter("greedy").unwrap()).collect();
        greedy[0].idle(false);
        let fourth = enter("greedy").unwrap();
        let open = |c: &Connection| all.lock().open.contains_key(&c.serial);
        assert!(open(&modest) && open(&greedy[0]) && !open(&greedy[1]) && open(&greedy[2]));
        // The house is full: somebody else takes a place of who has the most.
        let other = enter("other").unwrap();
        assert!(open(&modest) && open(&other) && !open(&greedy[2]) && open(&fourth));
        fourth.idle(false);
        drop(other);
        let _fifth = enter("greedy").unwrap();
        assert_eq!(all.count(), 4);
    }

    #[test]
    fn whoever_works_is_not_closed() {
        let all = connections(9, 1);
        let only = all.enter("a", HangUp::none(), None).unwrap();
        only.idle(false);
        let error = all.enter("a", HangUp::none(), None).map(|_| ()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Busy);
        drop(only);
        assert!(all.enter("a", HangUp::none(), None).is_ok());
    }

    #[test]
    fn large_requests_share_their_room() {
        let all = connections(9, 9);
        let [a, b, c] = ["a", "b", "c"].map(|client| all.enter(client, HangUp::none(), None).unwrap());
        let busy = |of: &Connection| of.receive(1 << 20).map(|_| ()).unwrap_err().kind() == ErrorKind::Busy;
        assert!(a.receive(1000).unwrap().is_none());
        let mine = a.receive(1 << 20).unwrap();
        assert!(busy(&a), "one client leaves half of it to others");
        let yours = b.receive(1 << 20).unwrap();
        assert!(busy(&c), "there is no more");
        drop((mine, yours));
        assert!(a.receive(1 << 20).is_ok() && all.lock().receiving.is_empty());
    }

    #[test]
    fn whoever_waits_for_an_answer_is_busy() {
        let all = connections(9, 9);
        let connection = all.enter("a", HangUp::none(), None).unwrap();
        assert_eq!(all.busy(), 0);
        connection.idle(false);
        assert_eq!(all.busy(), 1);
        drop(connection);
        assert_eq!(all.busy(), 0);
    }
}
