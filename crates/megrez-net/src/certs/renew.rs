//! What happens to certificates after they were made: renewed, revoked, and an authority that
//! follows another.

use super::{Leaf, authority, failed, issuer, leaf, write_file};
use crate::error::NetError;
use crate::files::{CRL, read, read_revoked};
use crate::names::{PeerName, SUFFIX};
use crate::trust::CertificateId;
use rcgen::{CertificateRevocationListParams, KeyIdMethod, RevokedCertParams, SerialNumber};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer};
use std::path::{Path, PathBuf};
use time::{Duration, OffsetDateTime};
use x509_parser::prelude::{CertificateRevocationList, FromDer, GeneralName, X509Certificate};
use zeroize::Zeroizing;

const END: &str = "-----END CERTIFICATE-----";
const END_OF_LIST: &str = "-----END X509 CRL-----";

/// Issues a new certificate with a new key for `name`, for as many `days`, by the authority in
/// `folder`, in place of the one there, whose host names it keeps. The old one stays valid until it
/// expires or is [revoked](revoke).
///
/// # Errors
/// [`NetError::Io`] when a file cannot be read or written, [`NetError::Config`] when the
/// authority's files are no good.
pub fn renew(folder: &Path, name: &PeerName, days: u32) -> Result<Vec<PathBuf>, NetError> {
    let stem = name.file_stem();
    let hosts = hosts(&read(&folder.join(format!("{stem}.pem")))?);
    let Leaf { certificate, key, .. } = leaf(&issuer(folder)?, name.clone(), &hosts, days)?;
    replace(folder, &[(format!("{stem}.key"), key), (format!("{stem}.pem"), Zeroizing::new(certificate))])
}

/// Makes a new authority, which issues from now on, and trusts the one before it as well until it
/// is [retired](retire_authority): everybody gets the new `ca.pem`, then new certificates, and
/// nobody is ever cut off.
///
/// # Errors
/// As [`renew`].
pub fn renew_authority(folder: &Path, days: u32) -> Result<Vec<PathBuf>, NetError> {
    let old = read(&folder.join("ca.pem"))?;
    let (ca, key, _) = authority(days)?;
    replace(folder, &[("ca.pem".into(), Zeroizing::new(ca + &old)), ("ca.key".into(), key)])
}

/// Trusts the newest authority alone.
///
/// # Errors
/// As [`renew`], and [`NetError::Config`] when there is no other.
pub fn retire_authority(folder: &Path) -> Result<Vec<PathBuf>, NetError> {
    let all = read(&folder.join("ca.pem"))?;
    let (first, rest) = all.split_once(END).unwrap_or((&all, ""));
    if !rest.contains(END) {
        return Err(NetError::Config("ca.pem has one authority only; none is retired".into()));
    }
    replace(folder, &[("ca.pem".into(), Zeroizing::new(format!("{first}{END}\n")))])
}

/// Puts the certificate of `name` in `folder` on the list of revoked ones, `crl.pem`, which every
/// party and client then needs.
///
/// # Errors
/// As [`renew`], and [`NetError::Config`] when another authority than that in `folder` has issued
/// it.
pub fn revoke(folder: &Path, name: &PeerName) -> Result<Vec<PathBuf>, NetError> {
    let stem = name.file_stem();
    let unreadable = |_| NetError::Config(format!("{stem}.pem in {} is no certificate", folder.display()));
    let pem = read(&folder.join(format!("{stem}.pem")))?;
    let revoked = CertificateId::of(&CertificateDer::from_pem_slice(pem.as_bytes()).map_err(unreadable)?)?;
    let ca = read(&folder.join("ca.pem"))?;
    let ca = CertificateDer::from_pem_slice(ca.as_bytes()).map_err(unreadable)?;
    let (_, ca) =
        X509Certificate::from_der(&ca).map_err(|_| NetError::Config("ca.pem cannot be parsed".into()))?;
    if revoked.issuer != ca.subject().as_raw() {
        let what = format!(
            "{stem}.pem was issued by another authority than the first of ca.pem, which cannot revoke it"
        );
        return Err(NetError::Config(what));
    }
    // The lists of other authorities stay as they are; this one's is made anew with all that it
    // has.
    let mut others = String::new();
    let mut serials = vec![revoked.serial];
    for pem in read_revoked(folder)?.split_inclusive(END_OF_LIST).filter(|pem| pem.contains(END_OF_LIST)) {
        let bad = || NetError::Config("crl.pem cannot be parsed".into());
        let list = CertificateRevocationListDer::from_pem_slice(pem.as_bytes()).map_err(|_| bad())?;
        let (_, list) = CertificateRevocationList::from_der(&list).map_err(|_| bad())?;
        match list.issuer().as_raw() == ca.subject().as_raw() {
            true => serials.extend(list.iter_revoked_certificates().map(|c| c.raw_serial().to_vec())),
            false => others += &format!("{}\n", pem.trim_start()),
        }
    }
    serials.sort();
    serials.dedup();
    let now = OffsetDateTime::now_utc();
    let entry = |serial: &Vec<u8>| RevokedCertParams {
        serial_number: SerialNumber::from_slice(serial),
        revocation_time: now,
        reason_code: None,
        invalidity_date: None,
    };
    let list = CertificateRevocationListParams {
        this_update: now - Duration::days(1),
        // It holds until there is another.
        next_update: now + Duration::days(3650),
        crl_number: SerialNumber::from(now.unix_timestamp().unsigned_abs()),
        issuing_distribution_point: None,
        revoked_certs: serials.iter().map(entry).collect(),
        key_identifier_method: KeyIdMethod::Sha256,
    };
    let list = list.signed_by(&issuer(folder)?).map_err(|error| match error {
        rcgen::Error::IssuerNotCrlSigner => NetError::Config(
            "this authority is of an earlier release and cannot revoke; make another with --renew-authority"
                .into(),
        ),
        error => failed(&error),
    })?;
    replace(folder, &[(CRL.into(), Zeroizing::new(list.pem().map_err(|error| failed(&error))? + &others))])
}

/// The names and addresses of a certificate other than the deployment's.
fn hosts(pem: &str) -> Vec<String> {
    let Ok(der) = CertificateDer::from_pem_slice(pem.as_bytes()) else { return vec![] };
    let Ok((_, parsed)) = X509Certificate::from_der(&der) else { return vec![] };
    let Ok(Some(names)) = parsed.subject_alternative_name() else { return vec![] };
    let host = |name: &GeneralName<'_>| match name {
        GeneralName::DNSName(dns) if !dns.to_ascii_lowercase().ends_with(SUFFIX) => Some((*dns).to_owned()),
        GeneralName::IPAddress(bytes) => match **bytes {
            [a, b, c, d] => Some(std::net::Ipv4Addr::new(a, b, c, d).to_string()),
            _ => <[u8; 16]>::try_from(*bytes).ok().map(|b| std::net::Ipv6Addr::from(b).to_string()),
        },
        _ => None,
    };
    names.value.general_names.iter().filter_map(host).collect()
}

/// Writes files over those that are there: each as a whole or not at all.
fn replace(folder: &Path, files: &[(String, Zeroizing<String>)]) -> Result<Vec<PathBuf>, NetError> {
    let io = |path: &Path, error: std::io::Error| {
        NetError::Io(format!("cannot write {}: {error}", path.display()))
    };
    let mut paths = vec![];
    for (name, text) in files {
        let path = folder.join(name);
        let fresh = folder.join(format!(".new-{}-{name}", std::process::id()));
        let written = write_file(&fresh, text).and_then(|()| std::fs::rename(&fresh, &path));
        if let Err(error) = written {
            let _ = std::fs::remove_file(&fresh);
            return Err(io(&path, error));
        }
        paths.push(path);
    }
    Ok(paths)
}
