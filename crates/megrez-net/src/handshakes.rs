//! Connections that have not proved yet who they are: how many there are, and which of them makes
//! room for the next.

use std::collections::BTreeMap;
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};

/// The handshakes that are under way.
///
/// Anybody can open connections and say nothing. When there is no more room, the address with the
/// most handshakes loses its oldest: a flood from one address pushes out its own connections, and
/// an honest handshake, which takes milliseconds, is done long before it is the oldest.
#[derive(Default)]
pub(crate) struct Handshakes {
    serial: u64,
    /// By age.
    open: BTreeMap<u64, Handshake>,
    /// Evicted ones whose thread has not ended yet, and their number.
    leaving: usize,
}

struct Handshake {
    from: IpAddr,
    /// A second handle on the connection, to end it from outside.
    socket: TcpStream,
}

impl Handshakes {
    /// Takes in a connection from `address`, of which `socket` is a second handle, when at most
    /// `most` may be under way. Returns its number, and whose connection had to go.
    ///
    /// None if threads of earlier ones do not end fast enough.
    pub(crate) fn begin(
        &mut self,
        address: SocketAddr,
        socket: TcpStream,
        most: usize,
    ) -> Option<(u64, Option<IpAddr>)> {
        if self.leaving >= most {
            return None;
        }
        let evicted = (self.open.len() >= most).then(|| self.evict()).flatten();
        self.serial += 1;
        self.open.insert(self.serial, Handshake { from: network_of(address.ip()), socket });
        Some((self.serial, evicted))
    }

    /// Whether nobody has cut it off to make room.
    pub(crate) fn has(&self, serial: u64) -> bool {
        self.open.contains_key(&serial)
    }

    /// The handshake with this number has ended, one way or the other.
    pub(crate) fn end(&mut self, serial: u64) {
        if self.open.remove(&serial).is_none() {
            self.leaving -= 1;
        }
    }

    fn evict(&mut self) -> Option<IpAddr> {
        let mut counts: BTreeMap<IpAddr, usize> = BTreeMap::new();
        self.open.values().for_each(|h| *counts.entry(h.from).or_default() += 1);
        let (busiest, _) = counts.into_iter().max_by_key(|(_, count)| *count)?;
        let (&oldest, _) = self.open.iter().find(|(_, h)| h.from == busiest)?;
        let gone = self.open.remove(&oldest)?;
        // Its thread reads the end of the connection. It may have ended already.
        let _ = gone.socket.shutdown(Shutdown::Both);
        self.leaving += 1;
        Some(busiest)
    }
}

/// Whoever has an IPv6 address has 2^64 of them: the network counts.
fn network_of(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(v6) => match v6.to_ipv4_mapped() {
            Some(v4) => v4.into(),
            None => IpAddr::from((u128::from(v6) >> 64 << 64).to_be_bytes()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;
    use std::net::TcpListener;

    /// A connection that seems to come from `address`: its two ends.
    fn connection() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (near, listener.accept().unwrap().0)
    }

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn the_busiest_address_loses_its_oldest() {
        let mut handshakes = Handshakes::default();
        let mut begin = |from: &str| {
            let (near, far) = connection();
            let (serial, evicted) = handshakes.begin(address(from), far, 3).unwrap();
            (serial, evicted, near)
        };
        let (_, none, _honest) = begin("10.0.0.1:1");
        assert_eq!(none, None);
        let (_, _, mut first) = begin("10.0.0.2:1");
        let (_, _, second) = begin("10.0.0.2:2");
        let (_, evicted, _third) = begin("10.0.0.3:1");
        assert_eq!(evicted, Some("10.0.0.2".parse().unwrap()));
        assert_eq!(first.read(&mut [0]).unwrap(), 0, "the oldest of the busiest is closed");
        second.set_nonblocking(true).unwrap();
        assert!(second.peek(&mut [0]).is_err(), "the others are not");
        assert!(handshakes.has(1) && !handshakes.has(2), "and it is known which was");
    }

    #[test]
    fn threads_that_do_not_end_are_bounded() {
        let mut handshakes = Handshakes::default();
        let mut kept = vec![];
        for i in 0..4 {
            let (near, far) = connection();
            kept.push(near);
            assert_eq!(handshakes.begin(address("10.0.0.1:1"), far, 2).is_some(), i < 4);
        }
        let (_near, far) = connection();
        assert!(handshakes.begin(address("10.0.0.1:1"), far.try_clone().unwrap(), 2).is_none());
        handshakes.end(1);
        assert!(handshakes.begin(address("10.0.0.1:1"), far, 2).is_some());
    }

    #[test]
    fn a_network_counts_as_one() {
        let of = |text: &str| network_of(text.parse().unwrap());
        assert_eq!(of("2001:db8:0:1::1"), of("2001:db8:0:1:ffff::9"));
        assert_ne!(of("2001:db8:0:1::1"), of("2001:db8:0:2::1"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
    }
}
