//! Material that is made ahead and consumed once.
//!
//! A file holds one party's masks and material for one plan under one protocol. Its header says
//! what it belongs to, and all of it is under a hash. Opening it for use *claims* it: the file is
//! removed, and its folder synced, before its content is handed out, so a second use of the same
//! randomness, which would reveal differences of secrets, is refused. Whoever copies such a file
//! breaks that rule; the threat model says so.

use crate::files;
use crate::walk::Prepared;
use megrez_kernels::Device;
use megrez_plan::Plan;
use megrez_protocols::{AnySuite, AnyValue, Encode, EncodeError};
use megrez_session::Error;
use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};

const MAGIC: &[u8; 16] = b"megrez-material8";
/// For what material is sealed ([`files::seal`]).
pub const MATERIAL: &str = "megrez 2026 material";
const VALUE: &str = "megrez 2026 kept value";

/// The name of a batch of material: the same at all parties, chosen by whoever asks for it.
pub type BatchId = [u8; 16];
/// The name of one preparation or one upload, made by all parties together.
pub type Id = [u8; 16];

/// What material belongs to; it serves nothing and nobody else.
#[derive(Clone, Copy, Debug)]
pub struct Binding<'a> {
    /// The name under which it was asked for.
    pub batch: BatchId,
    /// Whose part it is.
    pub party: usize,
    /// Whether runs take it by themselves; if not, only the one that names it.
    pub stock: bool,
    /// The protocol.
    pub protocol: &'a str,
    /// The client for whom it was made.
    pub client: &'a str,
    /// The upload whose stored weights' masks are in it, if the plan is a stored model's.
    pub upload: Option<Id>,
    /// The plan.
    pub plan: &'a Plan,
}

impl Binding<'_> {
    /// The fields of a header with what it means that one is another. The preparation comes last;
    /// of the names there are hashes, so that all headers have one size.
    fn fields(&self, preparation: &Id) -> [(Vec<u8>, &'static str); 9] {
        let name = |name: &str| blake3::hash(name.as_bytes()).as_bytes().to_vec();
        let batch = "the file belongs to another batch or party";
        [
            (MAGIC.to_vec(), "the file is damaged, or of another version"),
            (self.batch.to_vec(), batch),
            ((self.party as u64).to_le_bytes().to_vec(), batch),
            (
                vec![u8::from(self.stock)],
                "it is in stock, from which runs take by themselves, or is named and not in stock",
            ),
            (name(self.protocol), "it was made for another protocol"),
            (name(self.client), "it was made for another client"),
            // No upload has this name.
            (
                self.upload.unwrap_or_default().to_vec(),
                "it was made for another upload of the model: make material again",
            ),
            (
                self.plan.hash().to_vec(),
                "it was made for another plan: make material for this model, batch size and options",
            ),
            (preparation.to_vec(), "it is of another preparation: make material again"),
        ]
    }

    /// The header of material that belongs here.
    pub fn header(&self, preparation: &Id) -> Vec<u8> {
        self.fields(preparation).into_iter().flat_map(|(field, _)| field).collect()
    }

    /// The preparation that a header names, if it belongs here.
    fn check(&self, header: &[u8]) -> Result<Id, &'static str> {
        let (mut rest, mut found) = (header, Id::default());
        for (field, otherwise) in self.fields(&found) {
            let (is, after) = rest.split_at_checked(field.len()).ok_or("the file is cut off")?;
            if after.is_empty() {
                // The last one: whatever it is.
                found.copy_from_slice(is);
            } else if is != field {
                return Err(otherwise);
            }
            rest = after;
        }
        Ok(found)
    }
}

/// The extension of files of material.
pub const EXTENSION: &str = "material";

/// Where a party keeps the material of a batch.
pub fn path(folder: &Path, batch: &BatchId) -> PathBuf {
    let name: String = batch.iter().map(|b| format!("{b:02x}")).collect();
    folder.join(format!("{name}.{EXTENSION}"))
}

/// The batch and the preparation of a file of material that is this client's, by what its header
/// says, whose hash nobody checks here: enough to list the file or to remove it.
pub fn belongs(path: &Path, client: &str) -> Option<(BatchId, Id)> {
    // As `Binding::fields` puts them.
    const SIZES: [usize; 9] = [16, 16, 8, 1, 32, 32, 16, 32, 16];
    let mut header = vec![0; SIZES.iter().sum()];
    File::open(path).ok()?.read_exact(&mut header).ok()?;
    let mut rest = &header[..];
    let [magic, batch, _, _, _, owner, _, _, preparation] = SIZES.map(|size| {
        let (field, after) = rest.split_at(size);
        rest = after;
        field
    });
    let own = magic == MAGIC && owner == blake3::hash(client.as_bytes()).as_bytes();
    own.then(|| (batch.try_into().expect("16 bytes"), preparation.try_into().expect("16 bytes")))
}

/// The batches of material in `folder` that belong to `binding` but for its batch, by what their
/// headers say; the oldest first.
///
/// # Errors
/// If the folder cannot be looked through.
pub fn stock(folder: &Path, binding: &Binding<'_>) -> std::io::Result<Vec<BatchId>> {
    let mut found = files::of_extension(folder, EXTENSION)?;
    found.sort_by_key(|(path, written)| (*written, path.clone()));
    let wanted = binding.header(&Id::default());
    // All but the batch, which follows the magic, and the preparation, which comes last.
    let (batch, rest) = (MAGIC.len()..MAGIC.len() + 16, MAGIC.len() + 16..wanted.len() - 16);
    let mut header = vec![0; wanted.len()];
    let mut serves = |path: &Path| {
        // One that is used up in this moment is gone.
        File::open(path).ok()?.read_exact(&mut header).ok()?;
        let same =
            header[..batch.start] == wanted[..batch.start] && header[rest.clone()] == wanted[rest.clone()];
        let name: BatchId = header[batch.clone()].try_into().expect("16 bytes");
        // A file of another name would not be found again.
        (same && self::path(folder, &name) == path).then_some(name)
    };
    Ok(found.iter().filter_map(|(path, _)| serves(path)).collect())
}

fn refused(path: &Path, what: impl std::fmt::Display) -> Error {
    Error::Refused(format!("material {}: {what}", path.display()))
}

fn lost(path: &Path, e: &std::io::Error) -> Error {
    match e.kind() {
        ErrorKind::NotFound => refused(path, "it was never made, or is used up: material serves one run"),
        _ => storage(path, e),
    }
}

fn storage(path: &Path, e: &std::io::Error) -> Error {
    Error::Storage(format!("material {}: {e}", path.display()))
}

/// The bytes of a party's material.
pub fn encode<D: Device>(
    suite: &dyn AnySuite<D>,
    device: &D,
    binding: &Binding<'_>,
    preparation: &Id,
    prepared: &Prepared,
) -> Result<Vec<u8>, EncodeError> {
    let mut out = binding.header(preparation);
    for masks in &prepared.masks {
        out.push(u8::from(masks.is_some()));
        masks.iter().try_for_each(|masks| suite.write_masks(device, masks, &mut out))?;
    }
    for material in &prepared.materials {
        out.push(u8::from(material.is_some()));
        material.iter().try_for_each(|material| suite.write_material(device, material, &mut out))?;
    }
    prepared.mask_keys.iter().try_for_each(|key| key.write(device, &mut out))?;
    files::seal(MATERIAL, &mut out);
    Ok(out)
}

/// Reads material back; `bytes` may be damaged or belong to something else.
pub fn decode<D: Device>(
    suite: &dyn AnySuite<D>,
    device: &D,
    binding: &Binding<'_>,
    preparation: &Id,
    bytes: &[u8],
) -> Result<Prepared, String> {
    let content = files::unseal(MATERIAL, bytes).ok_or("the file is damaged or cut off")?;
    let size = binding.header(preparation).len();
    let (header, mut body) = content.split_at_checked(size).ok_or("the file is cut off")?;
    if binding.check(header)? != *preparation {
        return Err("it is of another preparation: make material again".into());
    }
    let plan = binding.plan;
    let body = &mut body;
    let mut read = || -> Result<Prepared, EncodeError> {
        let (mut masks, mut materials, mut mask_keys) = (vec![], vec![], vec![]);
        for _ in &plan.values {
            masks.push(is_there(body)?.then(|| suite.read_masks(device, body)).transpose()?);
        }
        for _ in &plan.steps {
            materials.push(is_there(body)?.then(|| suite.read_material(device, body)).transpose()?);
        }
        for _ in &plan.inputs {
            mask_keys.push(Encode::read(device, body)?);
        }
        Ok(Prepared { masks, materials, mask_keys: mask_keys.into() })
    };
    let prepared = read().map_err(|e| e.to_string())?;
    if body.is_empty() { Ok(prepared) } else { Err("the file is damaged".into()) }
}

/// Whether something follows that may be left out.
fn is_there(body: &mut &[u8]) -> Result<bool, EncodeError> {
    let (&tag, rest) = body.split_first().ok_or(EncodeError::Damaged)?;
    *body = rest;
    if tag > 1 { Err(EncodeError::Damaged) } else { Ok(tag == 1) }
}

/// The bytes of a party's share of a value, sealed.
pub fn encode_value<D: Device>(
    suite: &dyn AnySuite<D>,
    device: &D,
    (masks, data): &AnyValue,
) -> Result<Vec<u8>, EncodeError> {
    let mut out = vec![];
    suite.write_masks(device, masks, &mut out)?;
    suite.write_data(device, data, &mut out)?;
    files::seal(VALUE, &mut out);
    Ok(out)
}

/// Reads a share of a value back; `None` if it is damaged, or of another suite.
pub fn decode_value<D: Device>(suite: &dyn AnySuite<D>, device: &D, bytes: &[u8]) -> Option<AnyValue> {
    let mut body = files::unseal(VALUE, bytes)?;
    let value = (suite.read_masks(device, &mut body).ok()?, suite.read_data(device, &mut body).ok()?);
    body.is_empty().then_some(value)
}

/// Keeps material in `folder`, readable by its owner only.
pub fn keep<D: Device>(
    folder: &Path,
    suite: &dyn AnySuite<D>,
    device: &D,
    binding: &Binding<'_>,
    preparation: &Id,
    prepared: &Prepared,
) -> Result<PathBuf, Error> {
    let path = path(folder, &binding.batch);
    files::write(&path, &encode(suite, device, binding, preparation, prepared)?).map_err(|e| {
        match e.kind() {
            ErrorKind::AlreadyExists => refused(&path, e),
            _ => storage(&path, &e),
        }
    })?;
    Ok(path)
}

/// The preparation that made the material of a batch, read from a header whose hash nobody has
/// checked yet: parties agree on it before any of them claims its part.
pub fn peek(folder: &Path, binding: &Binding<'_>) -> Result<Id, Error> {
    let path = path(folder, &binding.batch);
    let mut header = vec![0; binding.header(&Id::default()).len()];
    let mut read = || File::open(&path)?.read_exact(&mut header);
    read().map_err(|e| match e.kind() {
        ErrorKind::UnexpectedEof => refused(&path, "the file is cut off"),
        _ => lost(&path, &e),
    })?;
    binding.check(&header).map_err(|what| refused(&path, what))
}

/// Takes material out of `folder` for its one use.
pub fn claim<D: Device>(
    folder: &Path,
    suite: &dyn AnySuite<D>,
    device: &D,
    binding: &Binding<'_>,
    preparation: &Id,
) -> Result<Prepared, Error> {
    let path = path(folder, &binding.batch);
    let bytes = files::take(&path).map_err(|e| lost(&path, &e))?;
    decode(suite, device, binding, preparation, &bytes).map_err(|what| refused(&path, what))
}
