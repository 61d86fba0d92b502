//! Names of a deployment, and how certificates carry them.

use rustls_pki_types::{CertificateDer, ServerName};
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

use crate::error::NetError;
use crate::frame::MAX_PARTIES;

/// Longest client name in bytes.
const MAX_NAME: usize = 40;
/// What the names in certificates end with.
pub(crate) const SUFFIX: &str = ".megrez";
const CLIENT_SUFFIX: &str = ".client.megrez";

/// The name of somebody in a deployment: a party or a client.
///
/// Prints as `party0` or `client:alice`. A certificate carries it as a DNS name, `party0.megrez` or
/// `alice.client.megrez`, which nobody resolves.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PeerName {
    /// A computing party, from 0.
    Party(usize),
    /// Somebody who sends requests: lower-case letters, digits and inner hyphens, at most 40.
    Client(String),
}

impl PeerName {
    /// A party's name.
    ///
    /// # Errors
    /// [`NetError::Config`] when there can be no such party.
    pub fn party(index: usize) -> Result<Self, NetError> {
        if index < MAX_PARTIES {
            return Ok(Self::Party(index));
        }
        Err(NetError::Config(format!(
            "party {index} does not exist: parties are numbered 0 to {}",
            MAX_PARTIES - 1
        )))
    }

    /// A party's name in a deployment of so many.
    ///
    /// # Errors
    /// [`NetError::Config`] when there is no such party.
    pub fn party_of(index: usize, parties: usize) -> Result<Self, NetError> {
        if index < parties {
            return Self::party(index);
        }
        Err(NetError::Config(format!(
            "party {index} does not exist: parties are numbered 0 to {}",
            parties.saturating_sub(1)
        )))
    }

    /// A client's name.
    ///
    /// # Errors
    /// [`NetError::Config`] when the name has characters other than lower-case letters, digits and
    /// inner hyphens, more than 40 of them, or could be taken for a party or a file of the
    /// deployment.
    pub fn client(name: &str) -> Result<Self, NetError> {
        let plain = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
        let bytes = name.as_bytes();
        let ends = bytes.first().is_some_and(|c| plain(*c)) && bytes.last().is_some_and(|c| plain(*c));
        let reserved = ["ca", "crl"].contains(&name) || name.starts_with("party");
        if ends && bytes.len() <= MAX_NAME && bytes.iter().all(|c| plain(*c) || *c == b'-') && !reserved {
            return Ok(Self::Client(name.to_owned()));
        }
        Err(NetError::Config(format!(
            "'{}' cannot be a client's name; use at most {MAX_NAME} lower-case letters, digits and inner hyphens, \
             not 'ca', not 'crl' and not beginning with 'party'",
            crate::error::sanitise(name, 60)
        )))
    }

    /// The name that certificates carry.
    #[must_use]
    pub fn dns(&self) -> String {
        match self {
            Self::Party(index) => format!("party{index}{SUFFIX}"),
            Self::Client(name) => format!("{name}{CLIENT_SUFFIX}"),
        }
    }

    /// The stem of the deployment's files for this name: `party0`, `alice`.
    #[must_use]
    pub fn file_stem(&self) -> String {
        match self {
            Self::Party(index) => format!("party{index}"),
            Self::Client(name) => name.clone(),
        }
    }

    pub(crate) fn from_dns(dns: &str) -> Option<Self> {
        if let Some(name) = dns.strip_suffix(CLIENT_SUFFIX) {
            return Self::client(name).ok();
        }
        let index = dns.strip_suffix(SUFFIX)?.strip_prefix("party")?;
        (0..MAX_PARTIES).find(|i| i.to_string() == index).map(Self::Party)
    }
}

impl std::fmt::Display for PeerName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Party(index) => write!(f, "party{index}"),
            Self::Client(name) => write!(f, "client:{name}"),
        }
    }
}

impl std::str::FromStr for PeerName {
    type Err = NetError;

    /// Reads `party0` or `client:alice`.
    fn from_str(text: &str) -> Result<Self, NetError> {
        if let Some(name) = text.strip_prefix("client:") {
            return Self::client(name);
        }
        text.strip_prefix("party").and_then(|index| index.parse().ok()).map_or_else(
            || {
                let text = crate::error::sanitise(text, 60);
                Err(NetError::Config(format!("'{text}' is no name; write party0 or client:alice")))
            },
            Self::party,
        )
    }
}

pub(crate) fn server_name(name: &PeerName) -> Result<ServerName<'static>, NetError> {
    ServerName::try_from(name.dns()).map_err(|_| NetError::Config(format!("{name} makes no valid DNS name")))
}

/// The one name of a deployment that a certificate carries. Says nothing about whether to trust it.
pub(crate) fn certified_name(certificate: &CertificateDer<'_>) -> Result<PeerName, NetError> {
    let bad = |what: &str| NetError::Identity(format!("a certificate {what}; make one with `megrez certs`"));
    let (rest, parsed) = X509Certificate::from_der(certificate).map_err(|_| bad("that cannot be parsed"))?;
    if !rest.is_empty() {
        return Err(bad("with bytes after its end"));
    }
    let extension = parsed.subject_alternative_name().map_err(|_| bad("with malformed names"))?;
    let extension = extension.ok_or_else(|| bad("without names"))?;
    let ours = |general: &GeneralName<'_>| match general {
        GeneralName::DNSName(dns) if dns.to_ascii_lowercase().ends_with(SUFFIX) => Some((*dns).to_owned()),
        _ => None,
    };
    let names: Vec<String> = extension.value.general_names.iter().filter_map(ours).collect();
    match names.as_slice() {
        [dns] => PeerName::from_dns(dns).ok_or_else(|| bad("with a malformed megrez name")),
        [] => Err(bad("without a megrez name")),
        _ => Err(bad("with more than one megrez name")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_print_and_parse() {
        for text in ["party0", "party2", "client:alice", "client:a-1"] {
            let name: PeerName = text.parse().unwrap();
            assert_eq!(name.to_string(), text);
            assert_eq!(PeerName::from_dns(&name.dns()), Some(name));
        }
        let long = format!("client:{}", "a".repeat(41));
        for text in [
            "party64",
            "party",
            "alice",
            "client:",
            "client:ca",
            "client:party1",
            "client:A",
            "client:-a",
            &long,
        ] {
            assert!(text.parse::<PeerName>().is_err(), "{text}");
        }
        for dns in
            ["party01.megrez", "party+1.megrez", "party0.client.megrez", "x.megrez", "a.b.client.megrez"]
        {
            assert_eq!(PeerName::from_dns(dns), None, "{dns}");
        }
    }
}
