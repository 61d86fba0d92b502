//! Compiled kernels on disk, under `$MEGREZ_CACHE`, `$XDG_CACHE_HOME/megrez` or `~/.cache/megrez`.
//! A file holds the hash of what follows, so that half-written or damaged files are never loaded;
//! it appears under its name when it is whole. Without a place to write, kernels are compiled again
//! in every process.

use std::path::{Path, PathBuf};
use std::{env, fs, process};

const HASH: usize = blake3::OUT_LEN;

pub(crate) struct Cache {
    folder: Option<PathBuf>,
}

impl Cache {
    pub(crate) fn of_user() -> Self {
        let set = |name: &str| env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        let root = set("MEGREZ_CACHE")
            .or_else(|| set("XDG_CACHE_HOME").map(|d| d.join("megrez")))
            .or_else(|| set("HOME").map(|d| d.join(".cache/megrez")));
        Cache { folder: root.map(|d| d.join("cuda")) }
    }

    #[cfg(test)]
    pub(crate) fn at(folder: PathBuf) -> Self {
        Cache { folder: Some(folder) }
    }

    /// The name of what `parts` determine.
    pub(crate) fn name(parts: &[&str]) -> String {
        let mut hasher = blake3::Hasher::new();
        for part in parts {
            hasher.update(&(part.len() as u64).to_le_bytes()).update(part.as_bytes());
        }
        hasher.finalize().to_hex()[..40].to_string()
    }

    pub(crate) fn get(&self, name: &str) -> Option<Vec<u8>> {
        let mut file = fs::read(self.folder.as_ref()?.join(name)).ok()?;
        let hash: [u8; HASH] = file.get(..HASH)?.try_into().ok()?;
        let image = file.split_off(HASH);
        (blake3::hash(&image) == hash).then_some(image)
    }

    /// Keeps an image if that is possible; a full or read-only disk costs time, not the run.
    pub(crate) fn put(&self, name: &str, image: &[u8]) {
        if let Some(folder) = &self.folder {
            let _ = write(folder, name, image);
        }
    }
}

fn write(folder: &Path, name: &str, image: &[u8]) -> std::io::Result<()> {
    fs::create_dir_all(folder)?;
    let thread = format!("{:?}", std::thread::current().id());
    let digits: String = thread.chars().filter(char::is_ascii_digit).collect();
    let partial = folder.join(format!("{name}.{}.{digits}.partial", process::id()));
    let written = fs::write(&partial, [blake3::hash(image).as_bytes(), image].concat())
        .and_then(|()| fs::rename(&partial, folder.join(name)));
    if written.is_err() {
        let _ = fs::remove_file(&partial);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damaged_files_are_not_loaded() {
        let folder = env::temp_dir().join(format!("megrez-cuda-cache-{}", process::id()));
        let cache = Cache::at(folder.clone());
        let name = Cache::name(&["sm_90", "source"]);
        assert_ne!(name, Cache::name(&["sm_9", "0source"]));
        assert_eq!(cache.get(&name), None);
        cache.put(&name, b"kernels");
        assert_eq!(cache.get(&name).as_deref(), Some(&b"kernels"[..]));
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "no partial file stays");
        let whole = fs::read(folder.join(&name)).unwrap();
        for damaged in [&whole[..0], &whole[..20], &whole[..whole.len() - 1]] {
            fs::write(folder.join(&name), damaged).unwrap();
            assert_eq!(cache.get(&name), None);
        }
        fs::remove_dir_all(folder).unwrap();
    }
}
