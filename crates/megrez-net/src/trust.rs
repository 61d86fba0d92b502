//! Whom to believe: authorities, for whom each of them may vouch, and what they have revoked.
//!
//! A deployment of one authority has its certificate in `ca.pem`, and it vouches for everybody.
//! Organisations that keep authorities of their own list them in `authorities.toml` beside it, each
//! with the names for which it may vouch. An authority that could vouch for everybody could pose as
//! any other organisation; here its certificates for others' names are worth nothing.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, verify_tls13_signature};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error as TlsError, PeerIncompatible,
    RootCertStore, SignatureScheme,
};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer, ServerName, UnixTime};
use x509_parser::prelude::{CertificateRevocationList, FromDer, X509Certificate};

use crate::error::{NetError, sanitise};
use crate::files::{CRL, read};
use crate::names::{PeerName, certified_name};

/// The authorities of a deployment with more than one, beside their certificates.
pub(crate) const AUTHORITIES: &str = "authorities.toml";

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

/// The authorities' certificates as PEM, each with those for whom it may vouch.
pub(crate) struct Roots(Vec<(Scope, String)>);

/// For whom an authority may vouch.
#[derive(Debug)]
enum Scope {
    Everybody,
    These(Vec<Names>),
}

/// Somebody, or all clients whose names begin and end like this.
#[derive(Clone, Debug, PartialEq)]
enum Names {
    One(PeerName),
    Clients(String, String),
}

impl Names {
    /// Reads `party0`, `alice`, or `bank-*`, which stands for clients alone.
    fn read(text: &str) -> Result<Self, NetError> {
        let Some((start, end)) = text.split_once('*') else {
            return text.parse().or_else(|_| PeerName::client(text)).map(Names::One);
        };
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if !start.chars().chain(end.chars()).all(plain) {
            let text = sanitise(text, 60);
            return Err(NetError::Config(format!(
                "'{text}' stands for no clients; write one `*` between lower-case letters, digits and hyphens"
            )));
        }
        Ok(Names::Clients(start.into(), end.into()))
    }

    /// Whether somebody could be both.
    fn overlaps(&self, other: &Names) -> bool {
        match (self, other) {
            (names, Names::One(one)) | (Names::One(one), names) => names.has(one),
            (Names::Clients(a, b), Names::Clients(c, d)) => {
                (a.starts_with(c) || c.starts_with(a)) && (b.ends_with(d) || d.ends_with(b))
            }
        }
    }

    fn has(&self, name: &PeerName) -> bool {
        match (self, name) {
            (Names::One(one), name) => one == name,
            (Names::Clients(start, end), PeerName::Client(name)) => {
                name.len() >= start.len() + end.len() && name.starts_with(start) && name.ends_with(end)
            }
            (Names::Clients(..), PeerName::Party(_)) => false,
        }
    }
}

impl Roots {
    /// Authorities that vouch for everybody.
    pub(crate) fn of_everybody(pem: &str) -> Self {
        Roots(vec![(Scope::Everybody, pem.into())])
    }

    /// Those that `authorities.toml` of a folder lists, or else those of `ca.pem`.
    ///
    /// # Errors
    /// [`NetError::Io`] when a file cannot be read, [`NetError::Config`] when the list makes no
    /// sense.
    pub(crate) fn load(folder: &Path) -> Result<Self, NetError> {
        let list = folder.join(AUTHORITIES);
        // A link that leads nowhere is a mistake, and no reason to believe others.
        if list.symlink_metadata().is_err_and(|e| e.kind() == std::io::ErrorKind::NotFound) {
            return Ok(Self::of_everybody(&read(&folder.join("ca.pem"))?));
        }
        let wrong = |what: String| NetError::Config(format!("{}: {what}", list.display()));
        let listed: BTreeMap<String, Vec<String>> =
            toml::from_str(&read(&list)?).map_err(|error| wrong(error.to_string()))?;
        let mut roots = vec![];
        let mut seen: Vec<Names> = vec![];
        for (file, texts) in &listed {
            let names = texts.iter().map(|name| Names::read(name)).collect::<Result<Vec<_>, _>>();
            let names = names.map_err(|error| wrong(format!("\"{}\": {error}", sanitise(file, 60))))?;
            let taken = |names: &Names| seen.iter().any(|other| other.overlaps(names));
            if let Some(twice) = names.iter().position(taken) {
                return Err(wrong(format!(
                    "more than one authority would vouch for '{}'",
                    sanitise(&texts[twice], 60)
                )));
            }
            roots.push((Scope::These(names.clone()), read(&folder.join(file))?));
            seen.extend(names);
        }
        if roots.is_empty() {
            let example = "\"hospital.pem\" = [\"party0\", \"alice\"]";
            return Err(wrong(format!("names no authority; write lines such as {example}")));
        }
        Ok(Roots(roots))
    }
}

/// What TLS asks before it believes a certificate.
pub(crate) struct Trust {
    authorities: Vec<Authority>,
    algorithms: WebPkiSupportedAlgorithms,
    revoked: HashSet<CertificateId>,
}

struct Authority {
    scope: Scope,
    clients: Arc<dyn ClientCertVerifier>,
    servers: Arc<WebPkiServerVerifier>,
}

impl Trust {
    /// Of these authorities, with the lists of what they have revoked, as PEM.
    ///
    /// # Errors
    /// [`NetError::Config`] when something cannot be read.
    pub(crate) fn new(roots: Roots, revoked: &str, provider: &Arc<CryptoProvider>) -> Result<Self, NetError> {
        let lists: Vec<CertificateRevocationListDer<'static>> =
            CertificateRevocationListDer::pem_slice_iter(revoked.as_bytes())
                .collect::<Result<_, _>>()
                .map_err(|error| unusable("list of revoked certificates", &error))?;
        if lists.is_empty() && !revoked.trim().is_empty() {
            return Err(unusable("list of revoked certificates", &"there is none in the file"));
        }
        let revoked = revoked_by(&lists)?;
        let authority = |(scope, pem): (Scope, String)| {
            let bad = |error: &dyn std::fmt::Display| unusable("authority's certificate", error);
            let mut store = RootCertStore::empty();
            for root in CertificateDer::pem_slice_iter(pem.as_bytes()) {
                store.add(root.map_err(|error| bad(&error))?).map_err(|error| bad(&error))?;
            }
            let store = Arc::new(store);
            // An authority without a list has revoked nothing.
            let clients =
                WebPkiClientVerifier::builder_with_provider(Arc::clone(&store), Arc::clone(provider))
                    .with_crls(lists.clone())
                    .only_check_end_entity_revocation()
                    .allow_unknown_revocation_status()
                    .build()
                    .map_err(|error| bad(&error))?;
            let servers = WebPkiServerVerifier::builder_with_provider(store, Arc::clone(provider))
                .with_crls(lists.clone())
                .only_check_end_entity_revocation()
                .allow_unknown_revocation_status()
                .build()
                .map_err(|error| bad(&error))?;
            Ok(Authority { scope, clients, servers })
        };
        Ok(Trust {
            authorities: roots.0.into_iter().map(authority).collect::<Result<_, NetError>>()?,
            algorithms: provider.signature_verification_algorithms,
            revoked,
        })
    }

    /// Whether an authority has revoked a certificate, as far as is known here.
    pub(crate) fn revokes(&self, certificate: &CertificateId) -> bool {
        self.revoked.contains(certificate)
    }

    /// How what is signed is checked.
    pub(crate) fn algorithms(&self) -> &WebPkiSupportedAlgorithms {
        &self.algorithms
    }

    /// What the authorities that may vouch for `name` say; a certificate without a name is for
    /// those to judge who may vouch for everybody.
    fn ask<T>(
        &self,
        name: Option<&PeerName>,
        ask: impl Fn(&Authority) -> Result<T, TlsError>,
    ) -> Result<T, TlsError> {
        let may = |authority: &&Authority| match (&authority.scope, name) {
            (Scope::Everybody, _) => true,
            (Scope::These(names), Some(name)) => names.iter().any(|names| names.has(name)),
            (Scope::These(_), None) => false,
        };
        let stranger = TlsError::InvalidCertificate(CertificateError::UnknownIssuer);
        let mut refused = stranger.clone();
        for authority in self.authorities.iter().filter(may) {
            match ask(authority) {
                // That it is another authority's says less than that it has expired.
                Err(error) if error == stranger => {}
                Err(error) => refused = error,
                done => return done,
            }
        }
        Err(refused)
    }
}

impl std::fmt::Debug for Trust {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.authorities.iter().map(|authority| &authority.scope)).finish()
    }
}

impl ClientCertVerifier for Trust {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        // Nobody has more than one certificate to choose from, and strangers need not learn whom
        // this side trusts.
        &[]
    }

    fn verify_client_cert(
        &self,
        leaf: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, TlsError> {
        self.ask(certified_name(leaf).ok().as_ref(), |authority| {
            authority.clients.verify_client_cert(leaf, chain, now)
        })
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        Err(PeerIncompatible::Tls12NotOffered.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

impl ServerCertVerifier for Trust {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        server: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, TlsError> {
        let name = match server {
            ServerName::DnsName(dns) => PeerName::from_dns(dns.as_ref()),
            _ => None,
        };
        self.ask(name.as_ref(), |authority| {
            authority.servers.verify_server_cert(leaf, chain, server, ocsp, now)
        })
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        Err(PeerIncompatible::Tls12NotOffered.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// A part of a deployment's files that is of no use.
pub(crate) fn unusable(what: &str, error: &dyn std::fmt::Display) -> NetError {
    NetError::Config(format!("the {what} cannot be used: {error}; check the PEM files of the deployment"))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_stand_for_clients_alone() {
        let client = |name: &str| PeerName::client(name).unwrap();
        for (pattern, name, has) in [
            ("party1", PeerName::Party(1), true),
            ("party1", PeerName::Party(0), false),
            ("*", PeerName::Party(1), false),
            ("p*", PeerName::Party(1), false),
            ("*", client("alice"), true),
            ("bank-*", client("bank-1"), true),
            ("bank-*", client("tank-1"), false),
            ("a*a", client("a"), false),
            ("alice", client("alice"), true),
        ] {
            assert_eq!(Names::read(pattern).unwrap().has(&name), has, "{pattern} {name}");
        }
        for bad in ["party64", "", "a*b*", "*.evil", "Alice", "client:"] {
            assert!(Names::read(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn names_that_somebody_could_share_are_noticed() {
        for (one, other, overlap) in [
            ("alice", "client:alice", true),
            ("party1", "party1", true),
            ("party1", "party0", false),
            ("alice", "*", true),
            ("party1", "*", false),
            ("ward-*", "ward-1", true),
            ("ward-*", "w*", true),
            ("ward-*", "*-night", true),
            ("ward-*", "bank-*", false),
            ("*-day", "*-night", false),
            ("ward-*", "alice", false),
        ] {
            let [a, b] = [one, other].map(|text| Names::read(text).unwrap());
            assert_eq!((a.overlaps(&b), b.overlaps(&a)), (overlap, overlap), "{one} {other}");
        }
    }
}
