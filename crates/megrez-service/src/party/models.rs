//! Where a party keeps models and rows: a folder of its own, or one that it shares with its
//! replicas, the parties of the same organisation in other triples.
//!
//! Storage that a party shares may be somebody else's, so files there can be sealed with a key that
//! only this organisation's parties have: AES-256-GCM with a random nonce for the header and
//! another for the shares, each bound to the file's name, and the shares to their header. Whoever
//! has the storage can remove files or put earlier ones of the same name back; a party whose file
//! is of another upload than the others' is noticed when a run begins.

use crate::{Error, ErrorKind, Result};
use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use megrez_engine::files;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind as Io, Read as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

const EXTENSION: &str = "model";
const SEALED: &[u8; 16] = b"megrez-sealed-01";
const TAG_LEN: usize = 16;
/// Longest header of a file: a request, and what is put to it.
const MAX_HEAD: usize = 1 << 30;
/// How long a party waits for its replicas, which hold the lock while they write one file.
const LOCKED: Duration = Duration::from_secs(30);

/// The folder of a party's models.
#[derive(Clone)]
pub struct Models {
    folder: PathBuf,
    key: Option<Arc<RandomizedNonceKey>>,
    /// Other processes change what is there, too.
    shared: bool,
    changes: Arc<Mutex<()>>,
}

impl std::fmt::Debug for Models {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let sealed = if self.key.is_some() { ", sealed" } else { "" };
        write!(f, "Models({}{sealed})", self.folder.display())
    }
}

/// Nobody else changes what is stored while this is held, so that nothing comes between looking at
/// a file and changing it.
pub(super) struct Alone<'a> {
    _here: MutexGuard<'a, ()>,
    /// Closing it gives the lock back.
    _everywhere: Option<File>,
}

impl Models {
    /// In a party's data folder, for this party alone.
    #[must_use]
    pub fn of(data: &Path) -> Self {
        Models { folder: data.join("models"), key: None, shared: false, changes: Arc::default() }
    }

    /// In a folder that this party shares with its replicas; sealed, if there is a file with a key:
    /// 64 hexadecimal digits.
    ///
    /// # Errors
    /// If the key cannot be read, is none, or is readable by others.
    pub fn shared(folder: &Path, key: Option<&Path>) -> Result<Self> {
        let key = key.map(read_key).transpose()?.map(Arc::new);
        Ok(Models { folder: folder.into(), key, shared: true, changes: Arc::default() })
    }

    /// The folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The file of a model; names are as plain as clients' names, so that they cannot leave the
    /// folder.
    pub(super) fn path(&self, model: &str) -> Result<PathBuf> {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_';
        if model.is_empty() || model.len() > 64 || !model.chars().all(plain) {
            return Err(Error::Refused(
                "a model's name has 1 to 64 lower-case letters, digits, hyphens and underscores".into(),
            ));
        }
        Ok(self.folder.join(format!("{model}.{EXTENSION}")))
    }

    /// All files of models, with the times when they were written.
    pub(super) fn list(&self) -> Result<Vec<(PathBuf, SystemTime)>> {
        files::of_extension(&self.folder, EXTENSION).map_err(|e| Error::storage(&self.folder, e))
    }

    /// Waits until nobody else changes what is stored.
    ///
    /// # Errors
    /// If the folder cannot be locked, or a replica does not give the lock back.
    pub(super) fn alone(&self) -> Result<Alone<'_>> {
        let here = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        let everywhere = if self.shared { Some(self.lock()?) } else { None };
        Ok(Alone { _here: here, _everywhere: everywhere })
    }

    fn lock(&self) -> Result<File> {
        let cannot = |e: io::Error| Error::storage(&self.folder, e);
        std::fs::create_dir_all(&self.folder).map_err(cannot)?;
        let path = self.folder.join(".lock");
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(path).map_err(cannot)?;
        let until = Instant::now() + LOCKED;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::WouldBlock) if Instant::now() < until => {
                    std::thread::sleep(Duration::from_millis(10));
                }
                Err(TryLockError::WouldBlock) => {
                    let what = format!("has been locked by another party process for {} s", LOCKED.as_secs());
                    return Err(cannot(io::Error::new(Io::TimedOut, what)));
                }
                Err(TryLockError::Error(e)) => return Err(cannot(e)),
            }
        }
    }

    /// Removes what a crash has left; says what.
    pub(super) fn sweep(&self) -> Result<Vec<PathBuf>> {
        if !self.folder.exists() {
            return Ok(vec![]);
        }
        // While this is held no replica writes.
        let _alone = self.alone()?;
        files::sweep(&self.folder).map_err(|e| Error::file(&self.folder, e))
    }

    /// Puts `bytes`, which begin with a header of `head` bytes, into a new file.
    pub(super) fn write(&self, path: &Path, head: usize, bytes: Vec<u8>) -> Result<()> {
        files::write(path, &self.sealed(path, head, bytes)?).map_err(|e| Error::storage(path, e))
    }

    /// Puts them into the place of a file that is there.
    pub(super) fn replace(&self, path: &Path, head: usize, bytes: Vec<u8>) -> Result<()> {
        files::replace(path, &self.sealed(path, head, bytes)?).map_err(|e| Error::storage(path, e))
    }

    /// What was written into a file, if there is one.
    pub(super) fn read(&self, path: &Path) -> Result<Option<Vec<u8>>> {
        let bytes = match std::fs::read(path) {
            Err(e) if e.kind() == Io::NotFound => return Ok(None),
            read => read.map_err(|e| Error::storage(path, e))?,
        };
        let Some(key) = self.key_for(path, &bytes)? else { return Ok(Some(bytes)) };
        let mut rest = &bytes[SEALED.len()..];
        let parts = || {
            let size = u32::from_le_bytes(*rest.split_off(..4)?.first_chunk()?) as usize;
            let head = rest.split_off(..NONCE_LEN + size.checked_add(TAG_LEN)?)?;
            let mut content = open(key, &about(path, &[]), head)?;
            content.append(&mut open(key, &about(path, &head[head.len() - TAG_LEN..]), rest)?);
            Some(content)
        };
        let mut parts = parts;
        parts().map(Some).ok_or_else(|| unsealed(path))
    }

    /// The beginning of what was written into a file, if there is one: its header, and maybe more.
    /// `whole` says whether the header is in what has been read.
    pub(super) fn head<T>(
        &self,
        path: &Path,
        whole: impl Fn(&[u8]) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let mut file = match File::open(path) {
            Err(e) if e.kind() == Io::NotFound => return Ok(None),
            file => file.map_err(|e| Error::storage(path, e))?,
        };
        let mut bytes = vec![];
        let mut read = |bytes: &mut Vec<u8>, more: u64| {
            file.by_ref().take(more).read_to_end(bytes).map_err(|e| Error::storage(path, e))
        };
        read(&mut bytes, 1 << 16)?;
        if let Some(key) = self.key_for(path, &bytes)? {
            let size = bytes[SEALED.len()..].first_chunk().map(|size| u32::from_le_bytes(*size) as usize);
            let size = size.filter(|size| *size <= MAX_HEAD).ok_or_else(|| unsealed(path))?;
            let end = SEALED.len() + 4 + NONCE_LEN + size + TAG_LEN;
            let missing = end.saturating_sub(bytes.len()) as u64;
            read(&mut bytes, missing)?;
            let head = bytes.get(SEALED.len() + 4..end);
            let head =
                head.and_then(|head| open(key, &about(path, &[]), head)).ok_or_else(|| unsealed(path))?;
            return whole(&head)?.map(Some).ok_or_else(|| unsealed(path));
        }
        loop {
            if let Some(found) = whole(&bytes)? {
                return Ok(Some(found));
            }
            let more = bytes.len() as u64;
            if read(&mut bytes, more)? == 0 {
                return Err(Error::damaged(path, "ends within its header"));
            }
        }
    }

    /// The key, if there is one: then the file must be sealed, and not otherwise.
    fn key_for(&self, path: &Path, bytes: &[u8]) -> Result<Option<&RandomizedNonceKey>> {
        let sealed = bytes.starts_with(SEALED);
        match &self.key {
            None if sealed => {
                Err(Error::damaged(path, "is sealed: name its key as `models_key` in party.toml"))
            }
            Some(_) if !sealed => Err(Error::damaged(
                path,
                "is not sealed, and `models_key` in party.toml says that all are: upload the model again under another name",
            )),
            key => Ok(key.as_deref()),
        }
    }

    fn sealed(&self, path: &Path, head: usize, mut bytes: Vec<u8>) -> Result<Vec<u8>> {
        let Some(key) = &self.key else { return Ok(bytes) };
        let cannot = |_| Error::of(ErrorKind::Internal, "a file could not be sealed");
        let mut body = bytes.split_off(head);
        let mut head = bytes;
        let size = u32::try_from(head.len()).ok().filter(|size| *size as usize <= MAX_HEAD);
        let size = size.ok_or_else(|| {
            Error::of(ErrorKind::NotPermitted, "the model's plans are too large to be kept")
        })?;
        let first = key.seal_in_place_append_tag(Aad::from(about(path, &[])), &mut head).map_err(cannot)?;
        let bound = about(path, &head[head.len() - TAG_LEN..]);
        let second = key.seal_in_place_append_tag(Aad::from(bound), &mut body).map_err(cannot)?;
        let parts: [&[u8]; 6] = [SEALED, &size.to_le_bytes(), first.as_ref(), &head, second.as_ref(), &body];
        Ok(parts.concat())
    }
}

/// What a sealed part belongs to: a file by its name, and what comes before it.
fn about(path: &Path, before: &[u8]) -> Vec<u8> {
    let name = path.file_name().unwrap_or_default().as_encoded_bytes();
    [SEALED.as_slice(), &(name.len() as u64).to_le_bytes(), name, before].concat()
}

/// A nonce, what is sealed, and a tag.
fn open(key: &RandomizedNonceKey, about: &[u8], part: &[u8]) -> Option<Vec<u8>> {
    let (nonce, content) = part.split_at_checked(NONCE_LEN)?;
    let mut content = content.to_vec();
    let size = key
        .open_in_place(Nonce::try_assume_unique_for_key(nonce).ok()?, Aad::from(about), &mut content)
        .ok()?
        .len();
    content.truncate(size);
    Some(content)
}

fn unsealed(path: &Path) -> Error {
    Error::damaged(
        path,
        "is damaged, or sealed with another key, or another file of this store: see `models_key`",
    )
}

fn read_key(path: &Path) -> Result<RandomizedNonceKey> {
    let wrong = |what: &str| Error::file(path, what);
    #[cfg(unix)]
    {
        let about = std::fs::metadata(path).map_err(|e| Error::file(path, e))?;
        if std::os::unix::fs::PermissionsExt::mode(&about.permissions()) & 0o077 != 0 {
            return Err(wrong("is readable by others: chmod 600 it"));
        }
    }
    let mut text = String::new();
    let file = File::open(path).map_err(|e| Error::file(path, e))?;
    file.take(1 << 10).read_to_string(&mut text).map_err(|e| Error::file(path, e))?;
    let digits = text.trim().as_bytes();
    let value = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let key: Option<Vec<u8>> = digits.chunks(2).map(value).collect();
    let key = key.filter(|key| key.len() == 32 && digits.iter().all(u8::is_ascii_hexdigit));
    let key =
        key.ok_or_else(|| wrong("is no key: 64 hexadecimal digits, as `openssl rand -hex 32` makes them"))?;
    RandomizedNonceKey::new(&AES_256_GCM, &key).map_err(|_| wrong("is no key"))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new(test: &str) -> Self {
            let folder = std::env::temp_dir().join(format!("megrez-models-{test}-{}", std::process::id()));
            std::fs::create_dir_all(&folder).unwrap();
            Folder(folder)
        }

        fn key(&self, name: &str, text: &str) -> PathBuf {
            let path = self.0.join(name);
            std::fs::write(&path, text).unwrap();
            #[cfg(unix)]
            std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
            path
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    const CONTENT: &[u8] = b"a header and then some shares, which nobody else should see";
    const HEAD: usize = 8;

    fn whole(bytes: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(bytes.get(..HEAD).map(<[u8]>::to_vec))
    }

    #[test]
    fn sealed_files_are_read_by_who_has_the_key_and_as_they_were_written() {
        let folder = Folder::new("sealed");
        let key = folder.key("key", &format!("{}\n", "5a".repeat(32)));
        let models = Models::shared(&folder.0.join("m"), Some(&key)).unwrap();
        let path = models.path("lenet").unwrap();
        assert!(models.read(&path).unwrap().is_none());
        models.write(&path, HEAD, CONTENT.to_vec()).unwrap();
        assert_eq!(models.read(&path).unwrap().unwrap(), CONTENT);
        assert_eq!(models.head(&path, whole).unwrap().unwrap(), &CONTENT[..HEAD]);
        let bytes = std::fs::read(&path).unwrap();
        assert!(!bytes.windows(6).any(|part| part == b"header" || part == b"shares"));
        // The same content is sealed otherwise each time.
        let other = models.path("other").unwrap();
        models.write(&other, HEAD, CONTENT.to_vec()).unwrap();
        assert_ne!(std::fs::read(&other).unwrap()[20..], bytes[20..]);
        // Any bit that is another, any end that is missing, another name or another key.
        for bit in 0..8 * bytes.len() {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            std::fs::write(&path, flipped).unwrap();
            assert!(models.read(&path).is_err(), "bit {bit}");
        }
        for end in 0..bytes.len() {
            std::fs::write(&path, &bytes[..end]).unwrap();
            assert!(models.read(&path).is_err(), "cut at {end}");
        }
        std::fs::copy(&other, &path).unwrap();
        assert!(models.read(&path).unwrap_err().to_string().contains("lenet.model"));
        assert!(models.head(&path, whole).is_err());
        // The header of one file and the shares of another.
        let another = std::fs::read(&other).unwrap();
        let head = SEALED.len() + 4 + NONCE_LEN + HEAD + TAG_LEN;
        models.replace(&other, HEAD, CONTENT.to_vec()).unwrap();
        let mixed = [&std::fs::read(&other).unwrap()[..head], &another[head..]].concat();
        std::fs::write(&other, mixed).unwrap();
        assert!(models.read(&other).is_err());
        assert!(models.head(&other, whole).is_ok());
        std::fs::write(&path, &bytes).unwrap();
        let wrong = folder.key("wrong", &"5b".repeat(32));
        assert!(Models::shared(models.folder(), Some(&wrong)).unwrap().read(&path).is_err());
        let plain = Models::shared(models.folder(), None).unwrap();
        assert!(plain.read(&path).unwrap_err().to_string().contains("models_key"));
        std::fs::remove_file(&path).unwrap();
        plain.write(&path, HEAD, CONTENT.to_vec()).unwrap();
        assert_eq!(plain.head(&path, whole).unwrap().unwrap(), &CONTENT[..HEAD]);
        assert!(models.read(&path).unwrap_err().to_string().contains("not sealed"));
    }

    #[test]
    fn keys_are_64_digits_that_others_cannot_read() {
        let folder = Folder::new("keys");
        for text in ["", "5a", &"5a".repeat(31), &"5a".repeat(33), &"5g".repeat(32), &"+5".repeat(32)] {
            let error = Models::shared(&folder.0, Some(&folder.key("key", text))).unwrap_err();
            assert!(error.to_string().contains("64 hexadecimal digits"), "{text}: {error}");
        }
        let key = folder.key("key", &"5a".repeat(32));
        assert!(!format!("{:?}", Models::shared(&folder.0, Some(&key)).unwrap()).contains("5a"));
        #[cfg(unix)]
        {
            std::fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o640)).unwrap();
            let error = Models::shared(&folder.0, Some(&key)).unwrap_err().to_string();
            assert!(error.contains("chmod 600"), "{error}");
        }
    }

    #[test]
    fn replicas_change_files_one_at_a_time() {
        let folder = Folder::new("lock");
        let replicas = [0, 1].map(|_| Models::shared(&folder.0, None).unwrap());
        let alone = replicas[0].alone().unwrap();
        std::thread::scope(|scope| {
            let other = scope.spawn(|| drop(replicas[1].alone().unwrap()));
            std::thread::sleep(Duration::from_millis(200));
            assert!(!other.is_finished(), "both hold it");
            drop(alone);
            other.join().unwrap();
        });
    }
}
