//! Who one is: a name with what proves it, and what TLS is told to accept.

use std::path::Path;
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::CryptoProvider;
use rustls::server::NoServerSessionStorage;
use rustls::server::danger::ClientCertVerifier;
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, ServerConfig};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use zeroize::Zeroizing;

use crate::error::NetError;
use crate::files::{CRL, read, read_revoked};
use crate::names::{PeerName, certified_name};
use crate::signature::{self, Parts};
use crate::trust::{CertificateId, Roots, Trust, unusable};

/// A name with the certificate and key that prove it, and the authorities that this side trusts.
///
/// Cheap to clone. The key is held by the TLS library only and never printed.
#[derive(Clone)]
pub struct Identity {
    name: PeerName,
    pub(crate) client: Arc<ClientConfig>,
    pub(crate) server: Arc<ServerConfig>,
    trust: Arc<Trust>,
    key: Arc<CertifiedKey>,
}

impl Identity {
    /// From the contents of three PEM files: the authority's certificate, one's own certificate
    /// (chain), one's own private key.
    ///
    /// # Errors
    /// [`NetError::Config`] when something cannot be read, the certificate was not issued by the
    /// authority, the key does not belong to it, or it carries no name of a deployment.
    pub fn from_pem(ca: &str, certificate: &str, key: &str) -> Result<Self, NetError> {
        Self::of(Roots::of_everybody(ca), certificate, key, "", provider())
    }

    /// From `ca.pem`, `<name>.pem` and `<name>.key` in a folder, as
    /// [`certs::generate`](crate::certs::generate) writes them, and `crl.pem` if it is there. Where
    /// organisations have authorities of their own, `authorities.toml` is there in place of
    /// `ca.pem`: a line for each authority's file with the names for which it may vouch, such as
    /// `"hospital.pem" = ["party0", "alice", "ward-*"]`.
    ///
    /// # Errors
    /// [`NetError::Io`] when a file cannot be read, and as [`from_pem`](Self::from_pem).
    pub fn load(folder: &Path, name: &PeerName) -> Result<Self, NetError> {
        let stem = name.file_stem();
        let read = |end: &str| read(&folder.join(format!("{stem}.{end}"))).map(Zeroizing::new);
        let (certificate, key) = (read("pem")?, read("key")?);
        let identity =
            Self::of(Roots::load(folder)?, &certificate, &key, &read_revoked(folder)?, provider())?;
        if identity.name == *name {
            return Ok(identity);
        }
        Err(NetError::Config(format!(
            "{stem}.pem in {} belongs to {}, not to {name}; put the right files there",
            folder.display(),
            identity.name
        )))
    }

    /// One's certificate (chain) and key, beside those whom one trusts and what they have revoked;
    /// all but the first as PEM.
    ///
    /// # Errors
    /// As [`from_pem`](Self::from_pem).
    pub(crate) fn of(
        roots: Roots,
        certificate: &str,
        key: &str,
        revoked: &str,
        provider: CryptoProvider,
    ) -> Result<Self, NetError> {
        let bad = unusable;
        let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(certificate.as_bytes())
            .collect::<Result<_, _>>()
            .map_err(|error| bad("certificate", &error))?;
        let leaf = chain.first().ok_or_else(|| bad("certificate", &"there is none in the file"))?;
        let name = certified_name(leaf)?;
        let provider = Arc::new(provider);
        let trust = Arc::new(Trust::new(roots, revoked, &provider)?);
        trust
            .verify_client_cert(leaf, chain.get(1..).unwrap_or_default(), rustls_pki_types::UnixTime::now())
            .map_err(|error| match error {
                rustls::Error::InvalidCertificate(rustls::CertificateError::Revoked) => NetError::Config(format!(
                    "the certificate of {name} is revoked by {CRL}; make a new one with `megrez certs --renew`"
                )),
                error => bad("certificate", &error),
            })?;
        let key =
            PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(|error| bad("private key", &error))?;
        let signing = CertifiedKey::from_der(chain.clone(), key.clone_key(), &provider)
            .map_err(|error| bad("private key", &error))?;
        let versions = &[&rustls::version::TLS13];
        // Neither side keeps tickets: every connection proves both identities afresh.
        let mut server = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(versions)
            .map_err(|error| bad("TLS library", &error))?
            .with_client_cert_verifier(Arc::clone(&trust) as Arc<dyn ClientCertVerifier>)
            .with_single_cert(chain.clone(), key.clone_key())
            .map_err(|error| bad("private key", &error))?;
        server.send_tls13_tickets = 0;
        server.session_storage = Arc::new(NoServerSessionStorage {});
        let mut client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .map_err(|error| bad("TLS library", &error))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::clone(&trust) as Arc<dyn ServerCertVerifier>)
            .with_client_auth_cert(chain, key)
            .map_err(|error| bad("private key", &error))?;
        client.resumption = Resumption::disabled();
        Ok(Self { name, client: Arc::new(client), server: Arc::new(server), trust, key: Arc::new(signing) })
    }

    /// Signs a message for a purpose, as nobody without this key can.
    ///
    /// # Errors
    /// [`NetError::Config`] when the key is of a kind that cannot.
    pub fn sign(&self, purpose: &str, message: &[u8]) -> Result<Vec<u8>, NetError> {
        signature::sign(&self.key, purpose, message)
    }

    /// Who has [signed](Self::sign) a message for a purpose, by a certificate that this side trusts
    /// now: of one of its authorities, not expired, not revoked.
    ///
    /// # Errors
    /// [`NetError::Identity`] when it is nobody's signature of this message.
    pub fn signer(&self, purpose: &str, message: &[u8], signature: &[u8]) -> Result<PeerName, NetError> {
        let no = |what: &dyn std::fmt::Display| {
            NetError::Identity(format!(
                "a signature is not acceptable: {what}; sign again with a valid certificate"
            ))
        };
        let parts = Parts::read(signature).ok_or_else(|| no(&"it is damaged"))?;
        let (leaf, chain) = parts.chain.split_first().ok_or_else(|| no(&"it brings no certificate"))?;
        let name = certified_name(leaf)?;
        let now = rustls_pki_types::UnixTime::now();
        self.trust.verify_client_cert(leaf, chain, now).map_err(|error| no(&error))?;
        parts.signs(purpose, message, self.trust.algorithms()).map_err(|error| no(&error))?;
        Ok(name)
    }

    /// Whether an authority has revoked a certificate, as far as is known here.
    #[must_use]
    pub fn revokes(&self, certificate: &CertificateId) -> bool {
        self.trust.revokes(certificate)
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
