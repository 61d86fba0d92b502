//! Small records of a party: one value to a file, behind a hash that is checked before it is used.

use crate::{Error, ErrorKind, Result};
use megrez_engine::files;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io;
use std::path::Path;

/// What a file holds, if there is one.
///
/// # Errors
/// If it cannot be read, or is not what was written for this purpose.
pub(super) fn read<T: DeserializeOwned>(purpose: &str, path: &Path) -> Result<Option<T>> {
    let bytes = match std::fs::read(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        read => read.map_err(|e| Error::storage(path, e))?,
    };
    let content = files::unseal(purpose, &bytes).and_then(|content| postcard::from_bytes(content).ok());
    content.map(Some).ok_or_else(|| Error::damaged(path, "is damaged, or of another version"))
}

fn sealed<T: Serialize>(purpose: &str, content: &T) -> Result<Vec<u8>> {
    let mut bytes = postcard::to_allocvec(content).map_err(|e| Error::of(ErrorKind::Internal, e))?;
    files::seal(purpose, &mut bytes);
    Ok(bytes)
}

/// Writes a new file, as a whole or not at all.
///
/// # Errors
/// If it cannot be written, or there is one.
pub(super) fn write<T: Serialize>(purpose: &str, path: &Path, content: &T) -> Result<()> {
    files::write(path, &sealed(purpose, content)?).map_err(|e| Error::storage(path, e))
}

/// Writes a file in the place of the one that is there, if one is: after a crash it is the one or
/// the other.
///
/// # Errors
/// If it cannot be written.
pub(super) fn put<T: Serialize>(purpose: &str, path: &Path, content: &T) -> Result<()> {
    let bytes = sealed(purpose, content)?;
    let written = if path.exists() { files::replace(path, &bytes) } else { files::write(path, &bytes) };
    written.map_err(|e| Error::storage(path, e))
}

/// Removes a file, if there is one.
///
/// # Errors
/// If it cannot be removed.
pub(super) fn remove(path: &Path) -> Result<()> {
    match files::remove(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(Error::storage(path, e)),
        _ => Ok(()),
    }
}
