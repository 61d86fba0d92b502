//! Public matrices that are too large to stand in a plan: the plan names their files.

use crate::error::{Mistake, refuse};
use megrez_weights::{Digest, Folder, MAX_COLUMNS, MAX_FRAC, MAX_ROWS, Matrix};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::{Arc, OnceLock};

/// A public matrix by the hash of its file ([`megrez_weights`]). The matrix itself is no part of
/// the plan: whoever compiled it has it, a party takes it from its own folder
/// ([`Plan::bind`](crate::Plan::bind)).
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct PublicMatrix {
    digest: [u8; 32],
    rows: u32,
    pub(crate) columns: u32,
    pub(crate) frac: u32,
    #[serde(skip)]
    content: Content,
}

/// What a plan is bound to, which is no part of what it says.
#[derive(Clone, Default)]
struct Content(OnceLock<Arc<Matrix>>);

impl PartialEq for Content {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl fmt::Debug for PublicMatrix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "PublicMatrix({}×{}, {} fraction bits, {})",
            self.rows,
            self.columns,
            self.frac,
            self.digest()
        )
    }
}

impl From<Arc<Matrix>> for PublicMatrix {
    fn from(matrix: Arc<Matrix>) -> Self {
        PublicMatrix {
            digest: matrix.digest().0,
            rows: matrix.rows() as u32,
            columns: matrix.columns() as u32,
            frac: matrix.frac(),
            content: Content(OnceLock::from(matrix)),
        }
    }
}

impl PublicMatrix {
    /// The hash of its file.
    pub fn digest(&self) -> Digest {
        Digest(self.digest)
    }

    /// Rows: the last dimension of what it multiplies.
    pub fn rows(&self) -> usize {
        self.rows as usize
    }

    /// Columns: the last dimension of the product.
    pub fn columns(&self) -> usize {
        self.columns as usize
    }

    /// The fraction bits of its words.
    pub fn frac(&self) -> u32 {
        self.frac
    }

    /// The matrix, once the plan is bound.
    pub fn matrix(&self) -> Option<&Arc<Matrix>> {
        self.content.0.get()
    }

    pub(crate) fn check(&self) -> Result<(), Mistake> {
        let sizes = (1..=MAX_ROWS).contains(&self.rows()) && (1..=MAX_COLUMNS).contains(&self.columns());
        match sizes && self.frac <= MAX_FRAC {
            true => Ok(()),
            false => refuse(format!("there is no public matrix of {}×{}", self.rows, self.columns)),
        }
    }

    /// Takes the matrix from a folder, unless it is there.
    pub(crate) fn bind(&self, folder: &Folder) -> Result<(), String> {
        if self.content.0.get().is_some() {
            return Ok(());
        }
        let matrix = folder.get(&self.digest()).map_err(|e| e.to_string())?;
        if PublicMatrix::from(matrix.clone()) != *self {
            return Err(format!(
                "public weights {}: the plan says {}×{} with {} fraction bits, the file another",
                self.digest(),
                self.rows,
                self.columns,
                self.frac
            ));
        }
        // Another thread may have been first, with the same.
        let _ = self.content.0.set(matrix);
        Ok(())
    }
}
