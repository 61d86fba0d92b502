//! Files that are there whole or not at all, also after a loss of power.
//!
//! What a party keeps ends with a hash of it ([`seal`]). A file is written under a temporary name,
//! synced, renamed, and its folder synced. What a crash leaves behind has a name of its own kind,
//! and [`sweep`] removes it when a party starts.

use crate::hash;
use std::fs::{self, File, OpenOptions};
use std::io::{Error, ErrorKind, Result, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// The extension of a file that is being written.
const TEMPORARY: &str = "new";
/// The extension of a file that is used up, as long as it is being read.
const CLAIMED: &str = "claimed";

/// Puts a hash behind bytes that are kept for a purpose.
pub fn seal(purpose: &str, bytes: &mut Vec<u8>) {
    let sum = hash(purpose, bytes);
    bytes.extend_from_slice(&sum);
}

/// What was [`seal`]ed for this purpose; `None` if one bit of it is another now. The hash finds
/// damage, not malice: whoever can write where a party keeps its shares can do what the party can.
pub fn unseal<'a>(purpose: &str, bytes: &'a [u8]) -> Option<&'a [u8]> {
    let (content, sum) = bytes.split_last_chunk::<32>()?;
    (hash(purpose, content) == *sum).then_some(content)
}

fn parent(path: &Path) -> &Path {
    path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Makes sure that what was renamed or removed in a folder stays so.
fn sync(folder: &Path) -> Result<()> {
    File::open(folder)?.sync_all()
}

/// Writes a new file, readable by its owner only; refuses to replace one.
pub fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    put(path, bytes, false)
}

/// Writes another content into a file that is there: after a crash it is the one or the other.
pub fn replace(path: &Path, bytes: &[u8]) -> Result<()> {
    put(path, bytes, true)
}

fn put(path: &Path, bytes: &[u8], over: bool) -> Result<()> {
    let folder = parent(path);
    let missing: Vec<&Path> = folder.ancestors().take_while(|p| !p.exists()).collect();
    fs::create_dir_all(folder)?;
    // Whether a new folder outlasts a loss of power matters less than whether we may read the one
    // that it is in.
    missing.into_iter().for_each(|new| drop(sync(parent(new))));
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(TEMPORARY);
    let temporary = PathBuf::from(name);
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    // Whoever makes the temporary file is the only one who may make the other.
    let mut file = options.open(&temporary)?;
    let mut fill = || {
        match (path.exists(), over) {
            (true, false) => return Err(Error::new(ErrorKind::AlreadyExists, "there is one already")),
            (false, true) => return Err(Error::new(ErrorKind::NotFound, "it is gone")),
            _ => {}
        }
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    };
    fill().inspect_err(|_| drop(fs::remove_file(&temporary)))?;
    // What may not last is not there.
    sync(folder).inspect_err(|_| {
        if !over {
            drop(fs::remove_file(path))
        }
    })
}

/// Removes a file for good.
pub fn remove(path: &Path) -> Result<()> {
    fs::remove_file(path)?;
    sync(parent(path))
}

/// Takes a file's content and removes it for good: of several that try, one gets it. A crash in
/// between loses it.
pub fn take(path: &Path) -> Result<Vec<u8>> {
    let claimed = path.with_extension(CLAIMED);
    // The rename decides; from here on nobody else can open it.
    fs::rename(path, &claimed)?;
    let bytes = fs::read(&claimed);
    remove(&claimed)?;
    bytes
}

/// Removes what a crash has left in a folder: files that were being written or used up. Returns
/// their names.
pub fn sweep(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(folder) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(vec![]),
        entries => entries?,
    };
    let mut swept = vec![];
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|e| e == TEMPORARY || e == CLAIMED) {
            fs::remove_file(&path)?;
            swept.push(path);
        }
    }
    if !swept.is_empty() {
        sync(folder)?;
    }
    Ok(swept)
}

/// Removes the files of an extension that were written longer than `age` ago. Returns their names.
pub fn expire(folder: &Path, extension: &str, age: Duration) -> Result<Vec<PathBuf>> {
    let mut expired = vec![];
    for (path, written) in of_extension(folder, extension)? {
        // One that is used in this moment is gone, and one from the future is young.
        if written.elapsed().is_ok_and(|elapsed| elapsed > age) && remove(&path).is_ok() {
            expired.push(path);
        }
    }
    Ok(expired)
}

/// The files of an extension in a folder, if there is one, with the times when they were written.
pub fn of_extension(folder: &Path, extension: &str) -> Result<Vec<(PathBuf, SystemTime)>> {
    let entries = match fs::read_dir(folder) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(vec![]),
        entries => entries?,
    };
    let mut files = vec![];
    for entry in entries {
        let entry = entry?;
        let path = entry.path();
        if path.extension().is_some_and(|e| e == extension)
            && let Ok(written) = entry.metadata().and_then(|about| about.modified())
        {
            files.push((path, written));
        }
    }
    Ok(files)
}
