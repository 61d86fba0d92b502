//! The folder where files of public weights lie.

use crate::bytes::Bytes;
use crate::digest::{Digest, Error, Result};
use crate::matrix::Matrix;
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::{env, process};

/// The extension of a file of public weights.
pub const EXTENSION: &str = "weights";

/// The folder of this user: `$MEGREZ_WEIGHTS`, or `weights` in `$MEGREZ_CACHE`,
/// `$XDG_CACHE_HOME/megrez` or `~/.cache/megrez`.
pub fn user_folder() -> Option<PathBuf> {
    let set = |name: &str| env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let cache = || {
        set("MEGREZ_CACHE")
            .or_else(|| set("XDG_CACHE_HOME").map(|d| d.join("megrez")))
            .or_else(|| set("HOME").map(|d| d.join(".cache/megrez")))
    };
    set("MEGREZ_WEIGHTS").or_else(|| cache().map(|d| d.join("weights")))
}

/// A folder of public weights, and those that have been read from it. Each file is hashed once,
/// when it is first asked for, and stays mapped: its pages are the operating system's, shared with
/// all who map it. Clones share what has been read.
///
/// Nobody but its owner may write in the folder: a file that is cut while it is mapped ends the
/// process.
#[derive(Clone, Debug)]
pub struct Folder {
    path: PathBuf,
    read: Arc<Mutex<HashMap<Digest, Arc<Matrix>>>>,
}

impl Folder {
    /// The folder at this path, which need not be there before something is put into it.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Folder { path: path.into(), read: Arc::default() }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file of a matrix.
    pub fn file(&self, digest: &Digest) -> PathBuf {
        self.path.join(format!("{digest}.{EXTENSION}"))
    }

    /// The matrix of this hash.
    ///
    /// # Errors
    /// If it is not there, or damaged.
    pub fn get(&self, digest: &Digest) -> Result<Arc<Matrix>> {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(matrix) = read.get(digest) {
            return Ok(matrix.clone());
        }
        let path = self.file(digest);
        let matrix = Arc::new(
            map(&path, digest).map_err(|e| Error::new(format!("public weights {}: {e}", path.display())))?,
        );
        read.insert(*digest, matrix.clone());
        Ok(matrix)
    }

    /// Writes a matrix that is not there yet, or damaged; gives the one in the folder, whose memory
    /// is the operating system's.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn put(&self, matrix: &Matrix) -> Result<Arc<Matrix>> {
        let (digest, path) = (matrix.digest(), self.file(&matrix.digest()));
        if let Ok(there) = self.get(&digest) {
            return Ok(there);
        }
        write(&path, matrix.file())
            .map_err(|e| Error::new(format!("public weights {}: {e}", path.display())))?;
        self.get(&digest)
    }
}

fn map(path: &Path, digest: &Digest) -> Result<Matrix> {
    let file = File::open(path).map_err(|e| match e.kind() {
        ErrorKind::NotFound => Error::new("no such file: copy it from whoever made the plan"),
        _ => Error::new(e.to_string()),
    })?;
    // SAFETY: nobody writes to a file of this folder once it has its name (files are written under
    // another name and renamed), and the folder's documentation forbids others to; its bytes are
    // read as bytes only.
    let map = unsafe { memmap2::Mmap::map(&file) }.map_err(|e| Error::new(e.to_string()))?;
    Matrix::of(Bytes::File(map), digest)
}

/// Writes a file that appears under its name when it is whole.
fn write(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    fs::create_dir_all(path.parent().unwrap_or(Path::new(".")))?;
    let thread = format!("{:?}", std::thread::current().id());
    let digits: String = thread.chars().filter(char::is_ascii_digit).collect();
    let partial = path.with_extension(format!("{}.{digits}.partial", process::id()));
    let fill = || {
        let mut file = File::create(&partial)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&partial, path)
    };
    fill().inspect_err(|_| drop(fs::remove_file(&partial)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::Width;

    fn made() -> Matrix {
        let mut column = |n: usize, out: &mut [f32]| {
            out.iter_mut().enumerate().for_each(|(k, w)| *w = (k * 3 + n) as f32 / 50.0 - 0.7);
        };
        Matrix::rounded(9, 35, Width::Sixteen, &mut column).unwrap()
    }

    #[test]
    fn what_is_put_comes_back_and_damage_does_not() {
        let path = env::temp_dir().join(format!("megrez-weights-{}", process::id()));
        let folder = Folder::at(&path);
        let matrix = made();
        let missing = folder.get(&matrix.digest()).unwrap_err().to_string();
        assert!(missing.contains("no such file") && missing.contains(&matrix.digest().to_string()));
        let back = folder.put(&matrix).unwrap();
        assert_eq!(folder.put(&matrix).unwrap().head, back.head);
        assert_eq!((&back.head, back.plane(1)), (&matrix.head, matrix.plane(1)));
        assert_eq!(fs::read_dir(&path).unwrap().count(), 1, "no partial file stays");
        let file = folder.file(&matrix.digest());
        let whole = fs::read(&file).unwrap();
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 1 << (at % 8);
            fs::write(&file, &damaged).unwrap();
            // Another folder: this one has read it.
            let refused = Folder::at(&path).get(&matrix.digest()).unwrap_err().to_string();
            assert!(refused.contains("damaged"), "{refused}");
        }
        assert_eq!(Folder::at(&path).put(&matrix).unwrap().head, matrix.head, "it is written again");
        for cut in [0, 1, 31, 32, whole.len() - 1] {
            fs::write(&file, &whole[..cut]).unwrap();
            assert!(Folder::at(&path).get(&matrix.digest()).is_err());
        }
        fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn bytes_with_a_right_hash_may_still_be_no_matrix() {
        let whole = made().file().to_vec();
        let number = |at: usize, value: u32| {
            let mut bytes = whole.clone();
            bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
            bytes
        };
        let wrong = [
            vec![],
            whole[..20].to_vec(),
            whole[..whole.len() - 1].to_vec(),
            [&whole[..], &[0]].concat(),
            number(0, 1),
            number(16, 0),
            number(16, u32::MAX),
            number(20, u32::MAX),
            number(20, 1 << 20),
            number(24, 12),
            number(28, 41),
        ];
        for bytes in wrong {
            let name = crate::file::digest(&bytes);
            assert!(Matrix::of(Bytes::Memory(bytes), &name).is_err());
        }
    }
}
