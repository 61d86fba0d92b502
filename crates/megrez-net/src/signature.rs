//! What somebody has signed with the key of its certificate: shown to others, and kept, where a
//! connection proves something only while it stands.
//!
//! A signature brings its certificates with it, so whoever trusts their authority can check it.

use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::sign::CertifiedKey;
use rustls::{Error as TlsError, SignatureScheme};
use rustls_pki_types::CertificateDer;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::error::NetError;

/// Longest signature that is read, in bytes, certificates included.
const MAX: usize = 64 << 10;

/// What is signed. TLS 1.3 signs what begins with blanks, so neither is taken for the other.
fn text(purpose: &str, message: &[u8]) -> Vec<u8> {
    let length = (purpose.len() as u64).to_le_bytes();
    [b"megrez signature of ", &length[..], purpose.as_bytes(), message].concat()
}

/// A signature taken apart.
pub(crate) struct Parts<'a> {
    scheme: SignatureScheme,
    /// The signer's first.
    pub(crate) chain: Vec<CertificateDer<'a>>,
    bytes: &'a [u8],
}

/// Signs a message for a purpose.
pub(crate) fn sign(key: &CertifiedKey, purpose: &str, message: &[u8]) -> Result<Vec<u8>, NetError> {
    let cannot = |error: &dyn std::fmt::Display| NetError::Config(format!("this key cannot sign: {error}"));
    let schemes = [
        SignatureScheme::ECDSA_NISTP256_SHA256,
        SignatureScheme::ECDSA_NISTP384_SHA384,
        SignatureScheme::ED25519,
        SignatureScheme::RSA_PSS_SHA256,
    ];
    let signer = key.key.choose_scheme(&schemes).ok_or_else(|| cannot(&"it is of no kind that is known"))?;
    let signed = signer.sign(&text(purpose, message)).map_err(|error| cannot(&error))?;
    let mut bytes = u16::from(signer.scheme()).to_le_bytes().to_vec();
    let count = u8::try_from(key.cert.len()).map_err(|_| cannot(&"its chain of certificates is too long"))?;
    bytes.push(count);
    for certificate in &key.cert {
        let length = u32::try_from(certificate.len()).map_err(|_| cannot(&"a certificate is too long"))?;
        bytes.extend_from_slice(&length.to_le_bytes());
        bytes.extend_from_slice(certificate);
    }
    bytes.extend_from_slice(&signed);
    Ok(bytes)
}

impl<'a> Parts<'a> {
    /// Reads a signature, which may come from anybody; nothing of it is believed yet.
    pub(crate) fn read(bytes: &'a [u8]) -> Option<Self> {
        let bytes = Some(bytes).filter(|bytes| bytes.len() <= MAX)?;
        let (scheme, rest) = bytes.split_first_chunk::<2>()?;
        let (&count, mut rest) = rest.split_first()?;
        let mut chain = vec![];
        for _ in 0..count {
            let (length, after) = rest.split_first_chunk::<4>()?;
            let (certificate, after) = after.split_at_checked(u32::from_le_bytes(*length) as usize)?;
            chain.push(CertificateDer::from_slice(certificate));
            rest = after;
        }
        Some(Parts { scheme: u16::from_le_bytes(*scheme).into(), chain, bytes: rest })
    }

    /// Whether it is a signature of this message for this purpose by the first certificate's key.
    pub(crate) fn signs(
        &self,
        purpose: &str,
        message: &[u8],
        algorithms: &WebPkiSupportedAlgorithms,
    ) -> Result<(), TlsError> {
        let bad = || TlsError::InvalidCertificate(rustls::CertificateError::BadSignature);
        let leaf = self.chain.first().ok_or_else(bad)?;
        let (_, parsed) = X509Certificate::from_der(leaf).map_err(|_| bad())?;
        let key = &parsed.public_key().subject_public_key.data;
        let known = algorithms.mapping.iter().find(|(scheme, _)| *scheme == self.scheme);
        let (_, known) = known.ok_or_else(bad)?;
        let text = text(purpose, message);
        // Those of one scheme differ in the kind of key that they take.
        let signs = known.iter().any(|algorithm| algorithm.verify_signature(key, &text, self.bytes).is_ok());
        if signs { Ok(()) } else { Err(bad()) }
    }
}
