//! Weights in files beside the model. The model names the file, so it could name any: only files
//! that lie in the model's own folder are opened, whatever links and `..` say, and only as many
//! bytes are read as the weights have and the files hold.

use super::elements::Place;
use super::fields::Decoded;
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Component, Path, PathBuf};

/// All weights together may be read so many times: some models use a matrix twice, and a small file
/// could name one large file thousands of times.
const TIMES: u64 = 2;

/// The folder of a model, and what was read from it.
#[derive(Default)]
pub(super) struct Beside {
    folder: Option<PathBuf>,
    /// The files that were opened, and their sizes.
    sizes: HashMap<PathBuf, u64>,
    read: u64,
}

impl Beside {
    /// Weights may lie in this folder; nowhere, if there is none.
    pub(super) fn new(folder: Option<&Path>) -> Self {
        Beside { folder: folder.map(Path::to_path_buf), ..Beside::default() }
    }

    /// The bytes of weights that have `expected` of them.
    ///
    /// # Errors
    /// A file outside of the folder, none at all, or one that is too small.
    pub(super) fn bytes(&mut self, place: &Place, expected: u64) -> Decoded<Vec<u8>> {
        let Some(folder) = &self.folder else {
            return Err(format!(
                "is in another file, `{}`: give the path of the model, with that file beside it, or save \
                 it with its weights inside (onnx.save(…, save_as_external_data=False))",
                place.location
            ));
        };
        let path = Path::new(place.location);
        let inside = |c: Component| matches!(c, Component::Normal(_) | Component::CurDir);
        let outside = || format!("is in the file `{}`, which is not in the model's folder", place.location);
        if place.location.is_empty() || place.location.contains('\\') || !path.components().all(inside) {
            return Err(outside());
        }
        let failed = |e: std::io::Error| format!("is in the file `{}`: {e}", place.location);
        let folder = fs::canonicalize(folder).map_err(failed)?;
        // Links may lead elsewhere: what counts is where the file lies in the end.
        let path = fs::canonicalize(folder.join(path)).map_err(failed)?;
        if !path.starts_with(&folder) {
            return Err(outside());
        }
        // Opening a pipe would wait for somebody who writes.
        if !fs::metadata(&path).map_err(failed)?.is_file() {
            return Err(format!("is in `{}`, which is no file", place.location));
        }
        let mut file = File::open(&path).map_err(failed)?;
        let size = file.metadata().map_err(failed)?.len();
        let length = place.length.unwrap_or(expected);
        if length != expected || place.offset.checked_add(length).is_none_or(|end| end > size) {
            return Err(format!(
                "takes {length} bytes from place {} of the file `{}`; it needs {expected}, and the file has {size}",
                place.offset, place.location
            ));
        }
        self.sizes.insert(path, size);
        self.read = self.read.saturating_add(length);
        if self.read > TIMES * self.sizes.values().sum::<u64>() {
            return Err("reads the same file too often: save the model again".into());
        }
        file.seek(SeekFrom::Start(place.offset)).map_err(failed)?;
        let mut bytes = vec![];
        file.take(length).read_to_end(&mut bytes).map_err(failed)?;
        if bytes.len() as u64 != length {
            return Err(format!("is in the file `{}`, which changes", place.location));
        }
        Ok(bytes)
    }
}
