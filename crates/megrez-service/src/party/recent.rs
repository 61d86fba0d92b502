//! What was read and checked just now, for as long as its file stays as it was: sessions of a
//! stored model that follow each other read its file once.

use crate::Result;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

/// How much is held altogether, in bytes.
const MOST: usize = 256 << 20;

/// What another content of a file changes.
#[derive(Clone, PartialEq, Eq)]
struct Stamp {
    modified: Option<SystemTime>,
    size: u64,
    /// A file that replaces another is another one.
    file: u64,
}

impl Stamp {
    fn of(path: &Path) -> Option<Self> {
        // Opened: a shared folder then asks its server, and answers from no cache of its own.
        let about = fs::File::open(path).ok()?.metadata().ok()?;
        #[cfg(unix)]
        let file = std::os::unix::fs::MetadataExt::ino(&about);
        #[cfg(not(unix))]
        let file = 0;
        Some(Stamp { modified: about.modified().ok(), size: about.len(), file })
    }
}

struct Held<T> {
    path: PathBuf,
    stamp: Stamp,
    bytes: usize,
    content: Arc<T>,
}

/// Contents of files, those that were wanted last, up to [`MOST`] bytes.
pub(super) struct Recent<T>(Mutex<Vec<Held<T>>>);

impl<T> Default for Recent<T> {
    fn default() -> Self {
        Recent(Mutex::default())
    }
}

impl<T> Recent<T> {
    fn held(&self) -> MutexGuard<'_, Vec<Held<T>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What `read` makes of a file, or has made of it before; it holds so many `bytes`.
    ///
    /// # Errors
    /// Those of `read`.
    pub(super) fn get(
        &self,
        path: &Path,
        bytes: impl Fn(&T) -> usize,
        read: impl FnOnce() -> Result<Option<T>>,
    ) -> Result<Option<Arc<T>>> {
        let stamp = Stamp::of(path);
        let mut held = self.held();
        if let Some(place) = held.iter().position(|held| held.path == path) {
            // The one that was wanted last comes last.
            let found = held.remove(place);
            if Some(&found.stamp) == stamp.as_ref() {
                let content = Arc::clone(&found.content);
                held.push(found);
                return Ok(Some(content));
            }
        }
        // Others do not wait for a disk.
        drop(held);
        let Some(content) = read()?.map(Arc::new) else { return Ok(None) };
        let bytes = bytes(&content);
        // Nobody has changed it meanwhile.
        if let Some(stamp) = stamp.filter(|before| bytes <= MOST && Stamp::of(path).as_ref() == Some(before))
        {
            let mut held = self.held();
            held.retain(|held| held.path != path);
            held.push(Held { path: path.into(), stamp, bytes, content: Arc::clone(&content) });
            let mut all: usize = held.iter().map(|held| held.bytes).sum();
            while all > MOST {
                all -= held.remove(0).bytes;
            }
        }
        Ok(Some(content))
    }

    /// Gives everything up; whoever uses it keeps it until then.
    pub(super) fn forget(&self) {
        self.held().clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn a_file_is_read_once_until_it_changes() {
        let name = format!("megrez-recent-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).unwrap();
        let (path, reads, recent) = (folder.join("a"), Cell::new(0), Recent::default());
        let get = |path: &Path, size: usize| {
            let read = || {
                reads.set(reads.get() + 1);
                Ok(fs::read(path).ok())
            };
            recent.get(path, |_| size, read).unwrap().map(|content| content.to_vec())
        };
        assert_eq!((get(&path, 1), reads.get()), (None, 1));
        fs::write(&path, b"one").unwrap();
        assert_eq!(
            (get(&path, 1), get(&path, 1), reads.get()),
            (Some(b"one".into()), Some(b"one".into()), 2)
        );
        // Of the same size, under the same name.
        fs::write(folder.join("new"), b"two").unwrap();
        fs::rename(folder.join("new"), &path).unwrap();
        assert_eq!(
            (get(&path, 1), get(&path, 1), reads.get()),
            (Some(b"two".into()), Some(b"two".into()), 3)
        );
        // A bit within the file.
        std::thread::sleep(std::time::Duration::from_millis(20));
        fs::write(&path, b"twp").unwrap();
        assert_eq!((get(&path, 1), reads.get()), (Some(b"twp".into()), 4));
        recent.forget();
        assert_eq!((get(&path, 1), reads.get()), (Some(b"twp".into()), 5));
        // What is large pushes out what was wanted before, and what is too large is not held.
        let (large, huge) = (folder.join("large"), folder.join("huge"));
        fs::write(&large, b"large").unwrap();
        fs::write(&huge, b"huge").unwrap();
        get(&large, MOST);
        get(&path, 1);
        assert_eq!(reads.get(), 7);
        get(&large, MOST);
        get(&large, MOST);
        assert_eq!(reads.get(), 8);
        get(&huge, MOST + 1);
        get(&huge, MOST + 1);
        assert_eq!((recent.held().len(), reads.get()), (1, 10));
        fs::remove_file(&large).unwrap();
        assert_eq!(get(&large, MOST), None);
        fs::remove_dir_all(&folder).unwrap();
    }
}
