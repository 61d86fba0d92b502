//! Making the weights of products public: matrices that every party has in a file, in place of
//! weights that the parties hold shares of.
//!
//! What becomes public is what multiplies: the matrices of `Gemm` and `MatMul`, of 8 or 16 bits,
//! and tables of tokens, always of 16, since only the owner of the tokens looks at them. All other
//! weights (biases, factors of norms, kernels of convolutions, small matrices) are constants of the
//! plan, and public as well ([`CompileOptions::private_weights`](crate::CompileOptions)).

use crate::problem::Refusal;
use crate::tensor::{Constant, Tensor, hash_numbers};
use megrez_weights::{Folder, Matrix, Width};
use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// Matrices of fewer weights stay constants of the plan, with all of their bits.
pub(crate) const LEAST: usize = 1 << 12;

/// Rounds weights and puts them where parties find them. Weights that it has seen it does not round
/// again; clones share what has been seen.
#[derive(Clone)]
pub struct Publisher {
    pub(crate) width: Width,
    /// Where files go; without, matrices stay in this process's memory.
    folder: Option<Folder>,
    known: Arc<Mutex<HashMap<[u8; 32], Arc<Matrix>>>>,
}

/// Publishers that make the same of the same weights.
impl PartialEq for Publisher {
    fn eq(&self, other: &Self) -> bool {
        self.width == other.width
    }
}

impl fmt::Debug for Publisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Publisher({:?} bits)", self.width)
    }
}

impl Publisher {
    /// For weights of this width; parties in other processes find them in `folder`.
    pub fn new(width: Width, folder: Option<Folder>) -> Self {
        Publisher { width, folder, known: Arc::default() }
    }

    /// Bytes of a weight.
    pub(crate) fn bytes(&self) -> u64 {
        self.width.planes() as u64
    }

    /// Weights that are drawn for a product, or for a table of tokens: `None` where they are few.
    pub(crate) fn constant(&self, weights: &Tensor, table: bool) -> Result<Option<Constant>, Refusal> {
        let width = if table { Width::Sixteen } else { self.width };
        match weights.shape.dims() {
            &[rows, columns] if rows * columns >= LEAST => {
                let matrix = Matrix::rounded_from([rows, columns], false, width, &weights.data);
                Ok(Some(self.put(matrix.map_err(unfit)?)?.into()))
            }
            _ => Ok(None),
        }
    }

    /// The matrices of an index that was kept, all of them; `None` if one is not there, or damaged.
    pub(crate) fn found(&self, index: &str) -> Option<HashMap<String, Constant>> {
        let folder = self.folder.as_ref()?;
        let text = std::fs::read_to_string(self.index(folder, index)).ok()?;
        let matrix = |line: &str| {
            let (digest, name) = line.split_once(' ')?;
            Some((name.to_owned(), folder.get(&digest.parse().ok()?).ok()?.into()))
        };
        text.lines().map(matrix).collect()
    }

    /// Keeps which matrices a network has, should all that it drew be public.
    pub(crate) fn keep(&self, index: &str, drawn: &HashMap<String, Constant>) -> Result<(), Refusal> {
        let Some(folder) = &self.folder else { return Ok(()) };
        let mut lines = vec![];
        for (name, constant) in drawn {
            let Constant::Public(public) = constant else { return Ok(()) };
            lines.push(format!("{} {name}\n", public.matrix.digest()));
        }
        lines.sort();
        let path = self.index(folder, index);
        let refuse = |e: std::io::Error| Refusal::new(format!("{}: {e}", path.display()), "");
        std::fs::write(&path, lines.concat()).map_err(refuse)
    }

    fn index(&self, folder: &Folder, name: &str) -> PathBuf {
        folder.path().join(format!("{name}-{}.index", 8 * self.width.planes()))
    }

    /// Weights as they become public.
    pub(crate) fn matrix(
        &self,
        weights: &Tensor,
        transposed: bool,
        width: Width,
    ) -> Result<Constant, Refusal> {
        let name = hash(weights, transposed, width);
        let known = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(matrix) = known().get(&name) {
            return Ok(matrix.clone().into());
        }
        let &[a, b] = weights.shape.dims() else { unreachable!("a candidate is a matrix") };
        let sizes = if transposed { [b, a] } else { [a, b] };
        let matrix = Matrix::rounded_from(sizes, transposed, width, &weights.data).map_err(unfit)?;
        let matrix = self.put(matrix)?;
        known().insert(name, matrix.clone());
        Ok(matrix.into())
    }

    /// A matrix where parties find it.
    fn put(&self, matrix: Matrix) -> Result<Arc<Matrix>, Refusal> {
        match &self.folder {
            Some(folder) => {
                folder.put(&matrix).map_err(|e| Refusal::new(e.what, "name another folder: MEGREZ_WEIGHTS"))
            }
            None => Ok(Arc::new(matrix)),
        }
    }
}

fn unfit(e: megrez_weights::Error) -> Refusal {
    Refusal::new(e.what, "keep the weights private")
}

/// What determines a matrix.
fn hash(weights: &Tensor, transposed: bool, width: Width) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new_derive_key("megrez 2026 weights to publish");
    hasher.update(&[u8::from(transposed), width.planes() as u8]);
    for &dim in weights.shape.dims() {
        hasher.update(&(dim as u64).to_le_bytes());
    }
    hash_numbers(&mut hasher, &weights.data);
    *hasher.finalize().as_bytes()
}
