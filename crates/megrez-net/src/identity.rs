//! Who is who: names, certificates and what TLS is told to accept.

use std::collections::HashSet;
use std::fs;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::CryptoProvider;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer, ServerName};
use x509_parser::prelude::{CertificateRevocationList, FromDer, GeneralName, X509Certificate};

use crate::error::NetError;
use crate::frame::MAX_PARTIES;

/// Largest PEM file that is read, in bytes.
const MAX_FILE: u64 = 1 << 20;
/// Longest client name in bytes.
const MAX_NAME: usize = 40;
/// The list of revoked certificates, beside `ca.pem`.
const CRL: &str = "crl.pem";
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

    fn from_dns(dns: &str) -> Option<Self> {
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

/// A name with the certificate and key that prove it, and the authority that all sides trust.
///
/// Cheap to clone. The key is held by the TLS library only and never printed.
#[derive(Clone)]
pub struct Identity {
    name: PeerName,
    pub(crate) client: Arc<ClientConfig>,
    pub(crate) server: Arc<ServerConfig>,
    revoked: Arc<HashSet<CertificateId>>,
}

/// Which certificate, of all that ever were: its issuer and its serial number.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CertificateId {
    pub(crate) issuer: Vec<u8>,
    pub(crate) serial: Vec<u8>,
}

impl CertificateId {
    pub(crate) fn of(certificate: &CertificateDer<'_>) -> Result<Self, NetError> {
        let (_, parsed) = X509Certificate::from_der(certificate)
            .map_err(|_| NetError::Identity("a certificate that cannot be parsed".into()))?;
        Ok(CertificateId { issuer: parsed.issuer().as_raw().to_vec(), serial: parsed.raw_serial().to_vec() })
    }
}

impl Identity {
    /// From the contents of three PEM files: the authority's certificate, one's own certificate
    /// (chain), one's own private key.
    ///
    /// # Errors
    /// [`NetError::Config`] when something cannot be read, the certificate was not issued by the
    /// authority, the key does not belong to it, or it carries no name of a deployment.
    pub fn from_pem(ca: &str, certificate: &str, key: &str) -> Result<Self, NetError> {
        Self::with_revoked(ca, certificate, key, "")
    }

    /// As [`from_pem`](Self::from_pem), with the lists of certificates that authorities have
    /// revoked.
    ///
    /// # Errors
    /// As [`from_pem`](Self::from_pem).
    pub fn with_revoked(ca: &str, certificate: &str, key: &str, revoked: &str) -> Result<Self, NetError> {
        Self::with_provider(ca, certificate, key, revoked, provider())
    }

    /// From `ca.pem`, `<name>.pem` and `<name>.key` in a folder, as
    /// [`certs::generate`](crate::certs::generate) writes them, and `crl.pem` if it is there.
    ///
    /// # Errors
    /// [`NetError::Io`] when a file cannot be read, and as [`from_pem`](Self::from_pem).
    pub fn load(folder: &Path, name: &PeerName) -> Result<Self, NetError> {
        let stem = name.file_stem();
        let read = |file: String| read(&folder.join(file)).map(zeroize::Zeroizing::new);
        let identity = Self::with_revoked(
            &read("ca.pem".into())?,
            &read(format!("{stem}.pem"))?,
            &read(format!("{stem}.key"))?,
            &read_revoked(folder)?,
        )?;
        if identity.name == *name {
            return Ok(identity);
        }
        Err(NetError::Config(format!(
            "{stem}.pem in {} belongs to {}, not to {name}; put the right files there",
            folder.display(),
            identity.name
        )))
    }

    pub(crate) fn with_provider(
        ca: &str,
        certificate: &str,
        key: &str,
        revoked: &str,
        provider: CryptoProvider,
    ) -> Result<Self, NetError> {
        let bad = |what: &str, error: &dyn std::fmt::Display| {
            NetError::Config(format!(
                "the {what} cannot be used: {error}; check the PEM files of the deployment"
            ))
        };
        let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(certificate.as_bytes())
            .collect::<Result<_, _>>()
            .map_err(|error| bad("certificate", &error))?;
        let leaf = chain.first().ok_or_else(|| bad("certificate", &"there is none in the file"))?;
        let name = certified_name(leaf)?;
        let mut roots = RootCertStore::empty();
        for root in CertificateDer::pem_slice_iter(ca.as_bytes()) {
            let root = root.map_err(|error| bad("authority's certificate", &error))?;
            roots.add(root).map_err(|error| bad("authority's certificate", &error))?;
        }
        let roots = Arc::new(roots);
        let provider = Arc::new(provider);
        let lists: Vec<CertificateRevocationListDer<'static>> =
            CertificateRevocationListDer::pem_slice_iter(revoked.as_bytes())
                .collect::<Result<_, _>>()
                .map_err(|error| bad("list of revoked certificates", &error))?;
        if lists.is_empty() && !revoked.trim().is_empty() {
            return Err(bad("list of revoked certificates", &"there is none in the file"));
        }
        let revoked = Arc::new(revoked_by(&lists)?);
        // An authority without a list has revoked nothing.
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider))
            .with_crls(lists.clone())
            .only_check_end_entity_revocation()
            .allow_unknown_revocation_status()
            .build()
            .map_err(|error| bad("authority's certificate", &error))?;
        let server_verifier =
            WebPkiServerVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider))
                .with_crls(lists.clone())
                .only_check_end_entity_revocation()
                .allow_unknown_revocation_status()
                .build()
                .map_err(|error| bad("authority's certificate", &error))?;
        verifier
            .verify_client_cert(leaf, chain.get(1..).unwrap_or_default(), rustls_pki_types::UnixTime::now())
            .map_err(|error| match error {
                rustls::Error::InvalidCertificate(rustls::CertificateError::Revoked) => NetError::Config(format!(
                    "the certificate of {name} is revoked by {CRL}; make a new one with `megrez certs --renew`"
                )),
                error => bad("certificate", &error),
            })?;
        let key =
            PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(|error| bad("private key", &error))?;
        let versions = &[&rustls::version::TLS13];
        // Neither side keeps tickets: every connection proves both identities afresh.
        let mut server = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(versions)
            .map_err(|error| bad("TLS library", &error))?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain.clone(), key.clone_key())
            .map_err(|error| bad("private key", &error))?;
        server.send_tls13_tickets = 0;
        server.session_storage = Arc::new(NoServerSessionStorage {});
        let mut client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .map_err(|error| bad("TLS library", &error))?
            .with_webpki_verifier(server_verifier)
            .with_client_auth_cert(chain, key)
            .map_err(|error| bad("private key", &error))?;
        client.resumption = Resumption::disabled();
        Ok(Self { name, client: Arc::new(client), server: Arc::new(server), revoked })
    }

    /// Whether an authority has revoked a certificate, as far as is known here.
    #[must_use]
    pub fn revokes(&self, certificate: &CertificateId) -> bool {
        self.revoked.contains(certificate)
    }

    /// Whose identity this is.
    #[must_use]
    pub fn name(&self) -> &PeerName {
        &self.name
    }
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Identity({})", self.name)
    }
}

/// AES-128-GCM before all else: it is the fastest by far where megrez runs.
pub(crate) fn provider() -> CryptoProvider {
    use rustls::crypto::aws_lc_rs::{cipher_suite, default_provider};
    CryptoProvider {
        cipher_suites: vec![
            cipher_suite::TLS13_AES_128_GCM_SHA256,
            cipher_suite::TLS13_AES_256_GCM_SHA384,
            cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
        ],
        ..default_provider()
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

fn revoked_by(lists: &[CertificateRevocationListDer<'_>]) -> Result<HashSet<CertificateId>, NetError> {
    let mut revoked = HashSet::new();
    for list in lists {
        let (_, list) = CertificateRevocationList::from_der(list)
            .map_err(|_| NetError::Config(format!("a list in {CRL} cannot be parsed")))?;
        let issuer = list.issuer().as_raw();
        revoked.extend(list.iter_revoked_certificates().map(|certificate| CertificateId {
            issuer: issuer.to_vec(),
            serial: certificate.raw_serial().to_vec(),
        }));
    }
    Ok(revoked)
}

pub(crate) fn crl_file() -> String {
    CRL.into()
}

/// The lists of revoked certificates in a folder; nothing if there are none.
pub(crate) fn read_revoked(folder: &Path) -> Result<String, NetError> {
    let path = folder.join(CRL);
    if path.exists() { read(&path) } else { Ok(String::new()) }
}

/// Reads a small text file.
pub(crate) fn read(path: &Path) -> Result<String, NetError> {
    let shown = path.display();
    let mut text = String::new();
    fs::File::open(path).and_then(|file| file.take(MAX_FILE).read_to_string(&mut text)).map_err(|error| {
        NetError::Io(format!("cannot read {shown}: {error}; `megrez certs` makes these files"))
    })?;
    Ok(text)
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
