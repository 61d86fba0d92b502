//! Rate and delay of a link.

use std::str::FromStr;
use std::time::Duration;

use crate::error::NetError;

/// One direction of one link: how many bits a second fit in, and how long a bit travels.
///
/// Each direction of each link has the full rate to itself, and half of the round-trip time as its
/// delay.
///
/// Parses `loopback`, `lan`, `wan`, or a round-trip time and a rate: `20ms,500mbps`,
/// `1.5ms,10gbps`, `20,500` (milliseconds and Mbit/s when no unit is given).
///
/// ```
/// use megrez_net::NetProfile;
/// let wan: NetProfile = "wan".parse().unwrap();
/// assert_eq!((wan.rtt_ms, wan.mbps), (50.0, 160.0));
/// let own: NetProfile = "20ms,1gbps".parse().unwrap();
/// assert_eq!(own.transmit_ns(125), 1000);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct NetProfile {
    /// What to call it in reports.
    pub name: String,
    /// Round-trip time in milliseconds; a message is delayed by half of it.
    pub rtt_ms: f64,
    /// Rate of one direction in Mbit/s (10^6 bits a second); 0 or infinite means unlimited.
    pub mbps: f64,
}

/// Longest round-trip time that a profile may have, in milliseconds.
const MAX_RTT_MS: f64 = 60_000.0;

impl NetProfile {
    /// No shaping at all.
    #[must_use]
    pub fn loopback() -> Self {
        Self { name: "loopback".into(), rtt_ms: 0.0, mbps: 0.0 }
    }

    /// 1 Gbit/s, 2 ms round trip.
    #[must_use]
    pub fn lan() -> Self {
        Self { name: "lan".into(), rtt_ms: 2.0, mbps: 1000.0 }
    }

    /// 160 Mbit/s, 50 ms round trip.
    #[must_use]
    pub fn wan() -> Self {
        Self { name: "wan".into(), rtt_ms: 50.0, mbps: 160.0 }
    }

    /// A profile of one's own.
    ///
    /// # Errors
    /// [`NetError::Config`] when a number is negative, not a number, or the round trip is over a
    /// minute.
    pub fn new(name: &str, rtt_ms: f64, mbps: f64) -> Result<Self, NetError> {
        let profile = Self { name: name.into(), rtt_ms, mbps };
        profile.check()?;
        Ok(profile)
    }

    /// # Errors
    /// [`NetError::Config`] when a field is outside its range.
    pub fn check(&self) -> Result<(), NetError> {
        let rtt = (0.0..=MAX_RTT_MS).contains(&self.rtt_ms);
        // A rate under 1 bit/s would overflow the clock; nobody means it.
        let rate = self.mbps == 0.0 || self.mbps >= 1e-6;
        if rtt && rate {
            return Ok(());
        }
        Err(NetError::Config(format!(
            "network profile '{}' has a round trip of {} ms and a rate of {} Mbit/s; the round trip must be \
             0 to {MAX_RTT_MS} ms and the rate 0 (unlimited) or at least 0.000001",
            self.name, self.rtt_ms, self.mbps
        )))
    }

    /// Delay of one direction in nanoseconds.
    #[must_use]
    pub fn delay_ns(&self) -> u64 {
        (self.rtt_ms * 5e5).round() as u64
    }

    /// Time that `bytes` occupy the link, in nanoseconds, rounded up.
    #[must_use]
    pub fn transmit_ns(&self, bytes: u64) -> u64 {
        if self.mbps == 0.0 || self.mbps.is_infinite() {
            return 0;
        }
        let bits_per_second = ((self.mbps * 1e6).round() as u128).max(1);
        u64::try_from((u128::from(bytes) * 8_000_000_000).div_ceil(bits_per_second)).unwrap_or(u64::MAX)
    }

    /// Whether messages are neither delayed nor slowed down.
    #[must_use]
    pub fn is_unshaped(&self) -> bool {
        self.delay_ns() == 0 && self.transmit_ns(1 << 30) == 0
    }

    /// Delay of one direction.
    pub(crate) fn delay(&self) -> Duration {
        Duration::from_nanos(self.delay_ns())
    }
}

impl std::fmt::Display for NetProfile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.is_unshaped() {
            return write!(f, "{} (unshaped)", self.name);
        }
        write!(f, "{} ({} ms round trip, ", self.name, self.rtt_ms)?;
        if self.transmit_ns(1 << 30) == 0 {
            f.write_str("no rate limit)")
        } else {
            write!(f, "{} Mbit/s)", self.mbps)
        }
    }
}

impl FromStr for NetProfile {
    type Err = NetError;

    fn from_str(text: &str) -> Result<Self, NetError> {
        let trimmed = text.trim().to_ascii_lowercase();
        match trimmed.as_str() {
            "loopback" => return Ok(Self::loopback()),
            "lan" => return Ok(Self::lan()),
            "wan" => return Ok(Self::wan()),
            _ => {}
        }
        let bad = || {
            NetError::Config(format!(
                "'{}' is no network profile; write loopback, lan, wan, or a round-trip time and a rate such as \
                 20ms,500mbps",
                crate::error::sanitise(text, 80)
            ))
        };
        let (rtt, rate) = trimmed.split_once(',').ok_or_else(bad)?;
        let rtt_ms = number(rtt, &[("ms", 1.0), ("us", 1e-3), ("s", 1e3), ("", 1.0)]).ok_or_else(bad)?;
        let mbps =
            number(rate, &[("gbps", 1e3), ("mbps", 1.0), ("kbps", 1e-3), ("", 1.0)]).ok_or_else(bad)?;
        Self::new(&trimmed, rtt_ms, mbps)
    }
}

/// A number with one of the units, the first that fits (the empty unit last).
fn number(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let text = text.trim();
    let (digits, factor) =
        units.iter().find_map(|(unit, factor)| text.strip_suffix(unit).map(|rest| (rest, factor)))?;
    digits.trim().parse::<f64>().ok().map(|value| value * factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_names_and_numbers() {
        assert_eq!("LAN".parse::<NetProfile>().unwrap(), NetProfile::lan());
        assert_eq!("loopback".parse::<NetProfile>().unwrap(), NetProfile::loopback());
        for text in ["20ms,500mbps", "20,500", " 20 ms , 0.5 gbps", "0.02s,500000kbps", "20000us,500"] {
            let profile: NetProfile = text.parse().unwrap();
            assert!((profile.rtt_ms - 20.0).abs() < 1e-9 && (profile.mbps - 500.0).abs() < 1e-9, "{text}");
        }
        assert!("5ms,0".parse::<NetProfile>().unwrap().transmit_ns(1 << 40) == 0);
        assert!("5ms,inf".parse::<NetProfile>().unwrap().transmit_ns(1 << 40) == 0);
    }

    #[test]
    fn refuses_nonsense() {
        for text in
            ["", "fast", "20ms", "20,", ",5", "-1,5", "1,-5", "nan,5", "5,nan", "1e9,5", "1,2,3", "20kg,5"]
        {
            assert!(matches!(text.parse::<NetProfile>(), Err(NetError::Config(_))), "{text}");
        }
    }

    #[test]
    fn times_are_exact() {
        assert_eq!(NetProfile::lan().transmit_ns(1), 8);
        assert_eq!(NetProfile::wan().transmit_ns(1000), 50_000);
        assert_eq!(NetProfile::new("odd", 0.0, 3.0).unwrap().transmit_ns(1), 2667, "rounded up");
        assert_eq!((NetProfile::lan().delay_ns(), NetProfile::wan().delay_ns()), (1_000_000, 25_000_000));
        assert!(NetProfile::loopback().is_unshaped() && !NetProfile::lan().is_unshaped());
    }
}
