//! The handwritten digits of the demos. The command carries them, so that demos run in any folder.

use clap::Args;
use megrez::{Error, ErrorKind, Result};
use megrez_graph::onnx::{self, ImportOptions};
use megrez_graph::{Graph, Tensor, npy};
use std::path::PathBuf;

/// A file of `examples/digits`.
macro_rules! carried {
    ($name:literal) => {
        include_bytes!(concat!("../../../examples/digits/", $name)).as_slice()
    };
}

#[derive(Args)]
pub(crate) struct Digits {
    /// A folder with lenet.onnx, test_images.npy and test_labels.npy [default: those that the
    /// command carries].
    #[arg(long)]
    folder: Option<PathBuf>,
}

impl Digits {
    /// The images, [n, 1, 28, 28] from 0 to 1, and their labels, [n]. Shapes of a folder's files
    /// are not checked.
    pub(crate) fn rows(&self) -> Result<(Tensor, Tensor)> {
        let read = |name: &str, carried: &[u8]| match &self.folder {
            Some(folder) => Ok(npy::load(&folder.join(name))?),
            None => npy::parse(carried).map_err(|what| Error::of(ErrorKind::Internal, what)),
        };
        Ok((
            read("test_images.npy", carried!("test_images.npy"))?,
            read("test_labels.npy", carried!("test_labels.npy"))?,
        ))
    }

    /// The trained LeNet for batches of this size.
    pub(crate) fn lenet(&self, batch: usize) -> Result<Graph> {
        let options = ImportOptions { batch, ..ImportOptions::default() };
        Ok(match &self.folder {
            Some(folder) => onnx::read_file(&folder.join("lenet.onnx"), &options)?,
            None => onnx::read(carried!("lenet.onnx"), &options)?,
        })
    }
}

/// Rows `from..to`.
pub(crate) fn rows(all: &Tensor, from: usize, to: usize) -> Tensor {
    let width = all.data.len() / all.shape.dims()[0];
    Tensor::new([&[to - from], &all.shape.dims()[1..]].concat(), all.data[from * width..to * width].to_vec())
}
