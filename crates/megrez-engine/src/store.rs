//! Material that is made ahead and consumed once.
//!
//! A file holds one party's masks and material for one plan under one protocol. Opening it for use *claims* it: the file
//! is removed before its content is handed out, so a second use of the same randomness, which would reveal differences
//! of secrets, is refused. Whoever copies such a file breaks that rule; the threat model says so.

use crate::walk::Prepared;
use megrez_plan::Plan;
use megrez_protocols::{Store, StoreError, Suite};
use megrez_session::Error;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

const MAGIC: &[u8; 16] = b"megrez-material1";
/// Magic, batch, party, plan hash; the body follows, then a hash of everything before.
const HEADER: usize = 16 + 16 + 8 + 32;

/// The name of a batch of material: the same at all parties, chosen by whoever asks for it.
pub type BatchId = [u8; 16];

/// Where a party keeps the material of a batch.
pub fn path(folder: &Path, batch: &BatchId) -> PathBuf {
    let name: String = batch.iter().map(|b| format!("{b:02x}")).collect();
    folder.join(format!("{name}.material"))
}

fn refused(path: &Path, what: impl std::fmt::Display) -> Error {
    Error::Refused(format!("material {}: {what}", path.display()))
}

/// The bytes of a party's material.
pub fn encode<S: Suite>(
    device: &S::Device,
    plan: &Plan,
    party: usize,
    batch: &BatchId,
    prepared: &Prepared<S>,
) -> Result<Vec<u8>, StoreError> {
    let mut out = Vec::new();
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(batch);
    out.extend_from_slice(&(party as u64).to_le_bytes());
    out.extend_from_slice(&plan.hash());
    prepared.masks.iter().try_for_each(|m| m.write(device, &mut out))?;
    prepared.materials.iter().try_for_each(|m| m.write(device, &mut out))?;
    prepared.tickets.iter().try_for_each(|t| Store::<S::Device>::write(t, device, &mut out))?;
    let hash = blake3::hash(&out);
    out.extend_from_slice(hash.as_bytes());
    Ok(out)
}

/// Reads material back; `bytes` may be damaged or belong to something else.
pub fn decode<S: Suite>(
    device: &S::Device,
    plan: &Plan,
    party: usize,
    batch: &BatchId,
    bytes: &[u8],
) -> Result<Prepared<S>, String> {
    let (content, hash) = bytes.split_last_chunk::<32>().ok_or("the file is cut off")?;
    if blake3::hash(content) != *hash || content.len() < HEADER {
        return Err("the file is damaged".into());
    }
    let (header, mut body) = content.split_at(HEADER);
    if header[..16] != *MAGIC {
        return Err("this is no material of this version".into());
    }
    if header[16..32] != *batch || header[32..40] != (party as u64).to_le_bytes() {
        return Err("the file belongs to another batch or party".into());
    }
    if header[40..72] != plan.hash() {
        return Err(
            "it was made for another plan: make material for this model, batch size and options".into()
        );
    }
    let mut read = || -> Result<Prepared<S>, StoreError> {
        let body = &mut body;
        Ok(Prepared {
            masks: plan.values.iter().map(|_| Store::read(device, body)).collect::<Result<_, _>>()?,
            materials: plan.steps.iter().map(|_| Store::read(device, body)).collect::<Result<_, _>>()?,
            tickets: plan
                .inputs
                .iter()
                .map(|_| Store::<S::Device>::read(device, body))
                .collect::<Result<Vec<Vec<u8>>, _>>()?
                .into(),
        })
    };
    let prepared = read().map_err(|e| e.to_string())?;
    if body.is_empty() { Ok(prepared) } else { Err("the file is damaged".into()) }
}

/// Keeps material in `folder`, readable by its owner only.
pub fn keep<S: Suite>(
    folder: &Path,
    device: &S::Device,
    plan: &Plan,
    party: usize,
    batch: &BatchId,
    prepared: &Prepared<S>,
) -> Result<PathBuf, Error> {
    let path = path(folder, batch);
    let bytes = encode(device, plan, party, batch, prepared)?;
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let write = || -> std::io::Result<()> {
        fs::create_dir_all(folder)?;
        let mut file = options.open(&path)?;
        file.write_all(&bytes)?;
        file.sync_all()
    };
    write().map_err(|e| refused(&path, e))?;
    Ok(path)
}

/// Takes material out of `folder` for its one use.
pub fn claim<S: Suite>(
    folder: &Path,
    device: &S::Device,
    plan: &Plan,
    party: usize,
    batch: &BatchId,
) -> Result<Prepared<S>, Error> {
    let path = path(folder, batch);
    // The rename decides between two sessions that want the same file; from here on nobody else can open it.
    let claimed = path.with_extension("claimed");
    fs::rename(&path, &claimed).map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => {
            refused(&path, "it was never made, or is used up: material serves one run")
        }
        _ => refused(&path, e),
    })?;
    let bytes = fs::read(&claimed).map_err(|e| refused(&path, e));
    fs::remove_file(&claimed).map_err(|e| refused(&path, e))?;
    decode(device, plan, party, batch, &bytes?).map_err(|what| refused(&path, what))
}
