//! The small text files of a deployment.

use std::fs;
use std::io::Read as _;
use std::path::Path;

use crate::error::NetError;

/// Largest PEM file that is read, in bytes.
const MAX_FILE: u64 = 1 << 20;
/// The list of revoked certificates, beside those of the authorities.
pub(crate) const CRL: &str = "crl.pem";

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
