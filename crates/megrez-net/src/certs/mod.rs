//! Certificates of a deployment: one authority, and one certificate and key for each party and
//! client.

mod renew;

pub use renew::{renew, renew_authority, retire_authority, revoke};

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose,
};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use time::{Duration, OffsetDateTime};
use x509_parser::prelude::{FromDer, X509Certificate};
use zeroize::Zeroizing;

use crate::error::NetError;
use crate::files::{read, read_revoked};
use crate::frame::MAX_PARTIES;
use crate::identity::{Identity, provider};
use crate::names::{PeerName, SUFFIX, certified_name};
use crate::trust::Roots;

/// What to make certificates for.
#[derive(Clone, Debug)]
pub struct Request {
    /// Number of parties, 1 to 64.
    pub parties: usize,
    /// Names of clients, without the `client:`.
    pub clients: Vec<String>,
    /// For each party, further host names or addresses to put into its certificate. Megrez itself
    /// checks the party's name only; this is for other tools. May be shorter than the list of
    /// parties.
    pub hosts: Vec<Vec<String>>,
    /// Days until these certificates expire; 1 to 3650.
    pub days: u32,
    /// Days until the authority's certificate expires, and with it all that it has issued; 1
    /// to 3650.
    pub authority_days: u32,
    /// In place of all parties and clients, whom to make certificates for, if there are any: an
    /// organisation with an authority of its own names its own.
    pub only: Vec<PeerName>,
}

/// A certificate and its private key, both as PEM.
pub struct Leaf {
    /// Whose it is.
    pub name: PeerName,
    /// The certificate; public.
    pub certificate: String,
    /// The private key; wiped from memory on drop.
    pub key: Zeroizing<String>,
}

/// All certificates of a deployment, in memory.
pub struct Deployment {
    /// The authority's certificate; public, the same everywhere.
    pub ca: String,
    /// The authority's key: needed to issue more certificates, by nobody else.
    pub ca_key: Zeroizing<String>,
    /// One for each party, then one for each client.
    pub pairs: Vec<Leaf>,
}

impl Deployment {
    /// The identity of `name`.
    ///
    /// # Errors
    /// [`NetError::Config`] when the deployment has no such name.
    pub fn identity(&self, name: &PeerName) -> Result<Identity, NetError> {
        let pair = self
            .pairs
            .iter()
            .find(|pair| pair.name == *name)
            .ok_or_else(|| NetError::Config(format!("the deployment has no certificate for {name}")))?;
        Identity::from_pem(&self.ca, &pair.certificate, &pair.key)
    }
}

/// Makes an authority and all certificates of a deployment in memory.
///
/// # Errors
/// [`NetError::Config`] when a name, a host or the number of days is not usable.
pub fn issue(request: &Request) -> Result<Deployment, NetError> {
    let names = names(request)?;
    let (ca, ca_key, issuer) = authority(request.authority_days)?;
    let no_hosts = Vec::new();
    let pairs = names
        .into_iter()
        .map(|name| {
            let hosts = match name {
                PeerName::Party(index) => request.hosts.get(index).unwrap_or(&no_hosts),
                PeerName::Client(_) => &no_hosts,
            };
            leaf(&issuer, name, hosts, request.days)
        })
        .collect::<Result<_, _>>()?;
    Ok(Deployment { ca, ca_key, pairs })
}

/// A new authority: its certificate, its key, and what issues with them.
fn authority(days: u32) -> Result<(String, Zeroizing<String>, Issuer<'static, KeyPair>), NetError> {
    let key = KeyPair::generate().map_err(|error| failed(&error))?;
    // Authorities that follow each other have names of their own, or one's list of revoked
    // certificates would be taken for the other's.
    let serial: String =
        key.public_key_raw().iter().rev().take(4).map(|byte| format!("{byte:02x}")).collect();
    let mut params = params(&format!("megrez deployment authority {serial}"), days)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages =
        vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
    let ca = params.self_signed(&key).map_err(|error| failed(&error))?.pem();
    let ca_key = Zeroizing::new(key.serialize_pem());
    Ok((ca, ca_key, Issuer::new(params, key)))
}

/// The authority whose certificate comes first in `ca.pem` of a folder, with its key.
fn issuer(folder: &Path) -> Result<Issuer<'static, KeyPair>, NetError> {
    let key =
        KeyPair::from_pem(&Zeroizing::new(read(&folder.join("ca.key"))?)).map_err(|error| failed(&error))?;
    Issuer::from_ca_cert_pem(&read(&folder.join("ca.pem"))?, key).map_err(|error| failed(&error))
}

/// Makes the certificates of a deployment and writes them into `folder`, which is created when
/// missing: `ca.pem` (public), `ca.key` (keep it off the parties' machines), and `<name>.pem` and
/// `<name>.key` for each party and client. Key files can be read by their owner only. Returns the
/// files.
///
/// # Errors
/// As [`issue`]; [`NetError::Config`] when one of the files is there already, in which case nothing
/// is written; [`NetError::Io`] when the folder cannot be written to.
pub fn generate(folder: &Path, request: &Request) -> Result<Vec<PathBuf>, NetError> {
    let deployment = issue(request)?;
    let mut files =
        vec![("ca.pem".to_owned(), Zeroizing::new(deployment.ca)), ("ca.key".to_owned(), deployment.ca_key)];
    for Leaf { name, certificate, key } in deployment.pairs {
        files.push((format!("{}.pem", name.file_stem()), Zeroizing::new(certificate)));
        files.push((format!("{}.key", name.file_stem()), key));
    }
    write_new(folder, &files)
}

/// Issues one more client certificate with the `ca.pem` and `ca.key` in `folder`, and writes it
/// there.
///
/// # Errors
/// As [`generate`].
pub fn add_client(folder: &Path, client: &str, days: u32) -> Result<Vec<PathBuf>, NetError> {
    let name = PeerName::client(client)?;
    let Leaf { name, certificate, key } = leaf(&issuer(folder)?, name, &[], days)?;
    let stem = name.file_stem();
    write_new(folder, &[(format!("{stem}.pem"), Zeroizing::new(certificate)), (format!("{stem}.key"), key)])
}

/// What [`inspect`] found out about one certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Whose certificate it is.
    pub name: PeerName,
    /// Its subject, for display.
    pub subject: String,
    /// Start of validity, in seconds since 1970.
    pub not_before: i64,
    /// End of validity, in seconds since 1970.
    pub not_after: i64,
    /// Whole days left; negative when expired.
    pub days_left: i64,
    /// Everything that is wrong, each with a remedy; empty when all is well. Includes a certificate
    /// of none of the authorities, a key that does not match, a key that others can read, and
    /// validity.
    pub problems: Vec<String>,
}

/// Checks the certificate and key of `name` in `folder` against the authorities there.
///
/// # Errors
/// [`NetError::Io`] when a file cannot be read, [`NetError::Config`] when the certificate cannot be
/// parsed at all.
pub fn inspect(folder: &Path, name: &PeerName) -> Result<Report, NetError> {
    let stem = name.file_stem();
    let roots = Roots::load(folder)?;
    let certificate = read(&folder.join(format!("{stem}.pem")))?;
    let key_path = folder.join(format!("{stem}.key"));
    let key = Zeroizing::new(read(&key_path)?);
    let unreadable = |_| NetError::Config(format!("{stem}.pem in {} is no certificate", folder.display()));
    let der = CertificateDer::from_pem_slice(certificate.as_bytes()).map_err(unreadable)?;
    let (_, parsed) = X509Certificate::from_der(&der)
        .map_err(|_| NetError::Config(format!("{stem}.pem in {} cannot be parsed", folder.display())))?;
    let (not_before, not_after) =
        (parsed.validity().not_before.timestamp(), parsed.validity().not_after.timestamp());
    let left = not_after - OffsetDateTime::now_utc().unix_timestamp();
    let mut problems = Vec::new();
    // Chain, validity and key in one go, with exactly the checks that connections make.
    if let Err(error) = Identity::of(roots, &certificate, &key, &read_revoked(folder)?, provider()) {
        problems.push(error.to_string());
    }
    match certified_name(&der) {
        Ok(found) if found != *name => problems.push(format!("{stem}.pem belongs to {found}, not to {name}")),
        _ => {}
    }
    if readable_by_others(&key_path)? {
        problems.push(format!("{stem}.key can be read by other users; run chmod 600 on it"));
    }
    Ok(Report {
        name: name.clone(),
        subject: crate::error::sanitise(&parsed.subject().to_string(), 200),
        not_before,
        not_after,
        days_left: left.div_euclid(86_400),
        problems,
    })
}

fn names(request: &Request) -> Result<Vec<PeerName>, NetError> {
    if !(1..=MAX_PARTIES).contains(&request.parties) {
        let text = format!("a deployment has 1 to {MAX_PARTIES} parties, not {}", request.parties);
        return Err(NetError::Config(text));
    }
    let all = || (0..request.parties).map(PeerName::Party).collect();
    let parties = if request.only.is_empty() { all() } else { vec![] };
    let clients =
        request.clients.iter().filter(|_| request.only.is_empty()).map(|name| PeerName::client(name));
    let mut names: Vec<PeerName> = parties;
    for name in clients.chain(request.only.iter().cloned().map(Ok)) {
        let name = name?;
        if matches!(name, PeerName::Party(index) if index >= request.parties) {
            let text = format!("{name} does not exist: the deployment has {} parties", request.parties);
            return Err(NetError::Config(text));
        }
        if names.contains(&name) {
            return Err(NetError::Config(format!(
                "{name} is listed twice; everybody needs a name of one's own"
            )));
        }
        names.push(name);
    }
    Ok(names)
}

fn params(common_name: &str, days: u32) -> Result<CertificateParams, NetError> {
    if !(1..=3650).contains(&days) {
        return Err(NetError::Config(format!("certificates can be valid for 1 to 3650 days, not {days}")));
    }
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    let now = OffsetDateTime::now_utc();
    // Clocks of the parties may differ a little.
    params.not_before = now - Duration::days(1);
    params.not_after = now + Duration::days(i64::from(days));
    Ok(params)
}

fn leaf(issuer: &Issuer<'_, KeyPair>, name: PeerName, hosts: &[String], days: u32) -> Result<Leaf, NetError> {
    if let Some(host) = hosts.iter().find(|host| host.to_ascii_lowercase().ends_with(SUFFIX)) {
        let host = crate::error::sanitise(host, 80);
        return Err(NetError::Config(format!(
            "'{host}' cannot be a host: names ending in {SUFFIX} say who is who in certificates"
        )));
    }
    let key = KeyPair::generate().map_err(|error| failed(&error))?;
    let base = params(&name.to_string(), days)?;
    let sans: Vec<String> = std::iter::once(name.dns()).chain(hosts.iter().cloned()).collect();
    let mut params = CertificateParams::new(sans).map_err(|error| {
        NetError::Config(format!("a host name of {name} cannot go into a certificate: {error}"))
    })?;
    params.distinguished_name = base.distinguished_name;
    params.not_before = base.not_before;
    params.not_after = base.not_after;
    params.is_ca = IsCa::ExplicitNoCa;
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    if matches!(name, PeerName::Party(_)) {
        // Only parties accept connections.
        params.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
    }
    let certificate = params.signed_by(&key, issuer).map_err(|error| failed(&error))?.pem();
    Ok(Leaf { name, certificate, key: Zeroizing::new(key.serialize_pem()) })
}

/// Writes the files, or none when one of them is there.
fn write_new(folder: &Path, files: &[(String, Zeroizing<String>)]) -> Result<Vec<PathBuf>, NetError> {
    let io = |path: &Path, error: std::io::Error| {
        NetError::Io(format!("cannot write {}: {error}", path.display()))
    };
    fs::create_dir_all(folder).map_err(|error| io(folder, error))?;
    let paths: Vec<PathBuf> = files.iter().map(|(name, _)| folder.join(name)).collect();
    if let Some(path) = paths.iter().find(|path| path.symlink_metadata().is_ok()) {
        return Err(NetError::Config(format!(
            "{} exists and is not overwritten; choose an empty folder, or remove the old files first",
            path.display()
        )));
    }
    for (path, (_, text)) in paths.iter().zip(files) {
        write_file(path, text).map_err(|error| io(path, error))?;
    }
    Ok(paths)
}

/// Writes a file that is not there; keys can be read by their owner only.
fn write_file(path: &Path, text: &str) -> std::io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.mode(if path.extension().is_some_and(|end| end == "key") { 0o600 } else { 0o644 });
    }
    let mut file = options.open(path)?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all())
}

#[cfg(unix)]
fn readable_by_others(path: &Path) -> Result<bool, NetError> {
    use std::os::unix::fs::PermissionsExt;
    let metadata = fs::metadata(path)
        .map_err(|error| NetError::Io(format!("cannot read {}: {error}", path.display())))?;
    Ok(metadata.permissions().mode() & 0o077 != 0)
}

#[cfg(not(unix))]
fn readable_by_others(_path: &Path) -> Result<bool, NetError> {
    Ok(false)
}

fn failed(error: &rcgen::Error) -> NetError {
    NetError::Config(format!("making a certificate failed: {error}"))
}
