//! A model with labelled inputs, and what is left of its accuracy.

use super::rules::{Counts, Rules};
use super::walk::Walker;
use megrez::{Error, FixedModel, Result, batch};
use megrez_graph::onnx::{self, ImportOptions};
use megrez_graph::{Graph, Tensor, npy, plain};
use std::path::{Path, PathBuf};

/// Inputs per walk over a plan: enough to keep the kernels busy, few enough to keep all values in
/// memory.
const BATCH: usize = 20;

/// A model with labelled inputs that it was not trained on.
pub struct Subject {
    /// The file's name without folder and ending.
    pub name: String,
    path: PathBuf,
    pub(super) images: Tensor,
    pub(super) labels: Vec<usize>,
}

impl Subject {
    /// Reads a model and its data; both arrays count the inputs in their first dimension.
    pub fn load(model: &Path, images: &Path, labels: &Path) -> Result<Self> {
        let read = |path: &Path| -> Result<Tensor> { Ok(npy::load(path)?) };
        let (data, classes) = (read(images)?, read(labels)?);
        if data.shape.dims().first() != Some(&classes.data.len()) {
            return Err(Error::file(labels, "has not one label for each input"));
        }
        let name = model.file_stem().map_or_else(String::new, |s| s.to_string_lossy().into_owned());
        let labels = classes.data.iter().map(|&l| l as usize).collect();
        Ok(Subject { name, path: model.into(), images: data, labels })
    }

    /// How many inputs there are.
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Whether there is no input.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// The model's graph for batches of `size`.
    pub fn graph(&self, size: usize) -> Result<Graph> {
        Ok(onnx::read_file(&self.path, &ImportOptions { batch: size, ..ImportOptions::default() })?)
    }

    /// Inputs `first`, …, `first + count − 1`.
    pub fn slice(&self, first: usize, count: usize) -> Result<Subject> {
        if count == 0 || first + count > self.len() {
            return Err(Error::Refused(format!(
                "`{}` has {} labelled inputs; inputs {first} to {} were asked for",
                self.name,
                self.len(),
                (first + count).saturating_sub(1)
            )));
        }
        let mut dims = self.images.shape.dims().to_vec();
        let row = dims[1..].iter().product::<usize>();
        dims[0] = count;
        Ok(Subject {
            name: self.name.clone(),
            path: self.path.clone(),
            images: Tensor::new(dims, self.images.data[first * row..(first + count) * row].to_vec()),
            labels: self.labels[first..first + count].to_vec(),
        })
    }

    /// How many inputs one walk takes.
    pub(super) fn batch(&self) -> usize {
        BATCH.min(self.len())
    }

    /// Batch `run` of the inputs, the last one filled up.
    pub(super) fn rows(&self, run: u32, model: &FixedModel) -> Tensor {
        batch(&self.images, run, self.batch(), model.compiled.data_inputs[0].range)
    }

    pub(super) fn runs(&self) -> u32 {
        self.len().div_ceil(self.batch()) as u32
    }

    /// What floating point says of every input.
    pub(super) fn plain_classes(&self, model: &FixedModel) -> Result<Vec<usize>> {
        let mut classes = vec![];
        for run in 0..self.runs() {
            let output = plain::run(&model.compiled.graph, &[self.rows(run, model)])?.remove(0);
            classes.extend(argmaxes(&output));
        }
        classes.truncate(self.len());
        Ok(classes)
    }
}

/// The largest entry of each row.
fn argmaxes(output: &Tensor) -> Vec<usize> {
    let width = output.shape.dims().last().copied().unwrap_or(1).max(1);
    let best = |row: &[f32]| (0..row.len()).fold(0, |best, i| if row[i] > row[best] { i } else { best });
    output.data.chunks(width).map(best).collect()
}

/// What came of a model on labelled inputs.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Score {
    /// The part of the inputs that got their label.
    pub accuracy: f64,
    /// The part of the inputs that got the class that floating point gives.
    pub agreement: f64,
    /// Per input: what truncations and comparisons did.
    pub per_image: Counts,
}

/// Walks a model over all inputs of a subject.
pub(super) fn score(subject: &Subject, model: &FixedModel, rules: &Rules, plain: &[usize]) -> Result<Score> {
    let mut walker = Walker::new(model, rules)?;
    let mut classes = vec![];
    for run in 0..subject.runs() {
        let rows = subject.rows(run, model);
        let output = walker.run(&|_, _| Ok(rows.clone()))?.remove(0);
        classes.extend(argmaxes(&output));
    }
    classes.truncate(subject.len());
    let part = |truth: &[usize]| {
        classes.iter().zip(truth).filter(|(a, b)| a == b).count() as f64 / subject.len() as f64
    };
    Ok(Score {
        accuracy: part(&subject.labels),
        agreement: part(plain),
        // Filled-up rows of the last batch count as inputs here: they are computed like any other.
        per_image: walker.counts().per(f64::from(subject.runs()) * subject.batch() as f64),
    })
}
