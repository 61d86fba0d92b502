//! Options as people write them.

use megrez_graph::Interval;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// An interval as people write it: `2` is from −2 to 2, `0,1` from 0 to 1; in JSON `2` and
/// `[0, 1]`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "Written", into = "Written")]
pub struct Bounds(pub Interval);

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Written {
    Magnitude(f64),
    Ends([f64; 2]),
}

impl Default for Bounds {
    fn default() -> Self {
        Bounds(Interval::abs(1.0))
    }
}

impl From<Interval> for Bounds {
    fn from(interval: Interval) -> Self {
        Bounds(interval)
    }
}

impl From<Written> for Bounds {
    fn from(written: Written) -> Self {
        Bounds(match written {
            Written::Magnitude(bound) => Interval::abs(bound),
            Written::Ends([low, high]) => Interval { low, high },
        })
    }
}

impl From<Bounds> for Written {
    fn from(Bounds(Interval { low, high }): Bounds) -> Self {
        if low == -high && high >= 0.0 { Written::Magnitude(high) } else { Written::Ends([low, high]) }
    }
}

impl FromStr for Bounds {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let number = |text: &str| text.trim().parse::<f64>().ok();
        let written = match text.split_once(',') {
            Some((low, high)) => number(low).zip(number(high)).map(|(low, high)| Written::Ends([low, high])),
            None => number(text).map(Written::Magnitude),
        };
        written
            .map(Bounds::from)
            .ok_or_else(|| format!("`{text}` is no range: write B for −B to B, or LOW,HIGH"))
    }
}

impl fmt::Display for Bounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Written::from(*self) {
            Written::Magnitude(bound) => write!(f, "{bound}"),
            Written::Ends([low, high]) => write!(f, "{low},{high}"),
        }
    }
}

/// A network profile by its text.
pub(super) mod profile {
    use megrez_net::NetProfile;
    use serde::{Deserialize, Deserializer, Serializer, de::Error as _};

    pub fn serialize<S: Serializer>(net: &NetProfile, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&net.name)
    }

    pub fn deserialize<'d, D: Deserializer<'d>>(deserializer: D) -> Result<NetProfile, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

/// The same, where there may be none.
pub(super) mod profile_or_none {
    use super::profile;
    use megrez_net::NetProfile;
    use serde::{Deserialize, Deserializer, Serializer, de::Error as _};

    pub fn serialize<S: Serializer>(net: &Option<NetProfile>, serializer: S) -> Result<S::Ok, S::Error> {
        match net {
            Some(net) => profile::serialize(net, serializer),
            None => serializer.serialize_none(),
        }
    }

    pub fn deserialize<'d, D: Deserializer<'d>>(deserializer: D) -> Result<Option<NetProfile>, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?;
        text.map(|text| text.parse().map_err(D::Error::custom)).transpose()
    }
}
