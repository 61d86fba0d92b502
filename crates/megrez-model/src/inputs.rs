//! Data, shapes and results as people give and take them: files by the names of a model's inputs
//! and outputs.

use megrez_graph::onnx::{self, Dim, FileInput, ImportOptions};
use megrez_graph::{DataInput, Graph, Revealed, Tensor, check_rows, npy};
use megrez_ring::Shape;
use megrez_service::{Error, Result};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The inputs or the outputs of a model, by name.
pub struct Names {
    /// `input` or `output`.
    what: &'static str,
    names: Vec<String>,
    /// As messages show them.
    shown: Vec<String>,
}

impl Names {
    /// A file's inputs.
    pub fn of_file(inputs: &[FileInput]) -> Self {
        let shown = inputs.iter().map(ToString::to_string).collect();
        Names { what: "input", names: inputs.iter().map(|i| i.name.clone()).collect(), shown }
    }

    /// A compiled or stored model's inputs.
    pub fn of_inputs(inputs: &[DataInput]) -> Self {
        let shown = inputs.iter().map(|i| format!("`{}` {:?}", i.name, i.shape.dims())).collect();
        Names { what: "input", names: inputs.iter().map(|i| i.name.clone()).collect(), shown }
    }

    /// A graph's inputs, by names and shapes.
    pub fn of_graph(inputs: &[(String, Shape)]) -> Self {
        let shown = inputs.iter().map(|(name, shape)| format!("`{name}` {:?}", shape.dims())).collect();
        Names { what: "input", names: inputs.iter().map(|(name, _)| name.clone()).collect(), shown }
    }

    /// A model's outputs.
    pub fn of_outputs(outputs: &[Revealed]) -> Self {
        let names: Vec<String> = outputs.iter().map(|o| o.name.clone()).collect();
        Names { what: "output", shown: names.iter().map(|name| format!("`{name}`")).collect(), names }
    }

    /// What texts of the form `NAME=VALUE` say of each; a bare value is that of the only one.
    /// `is_value` tells a bare value with an equals sign in it from one with a name that the model
    /// lacks.
    fn assign<'t>(
        &self,
        option: &str,
        texts: &'t [String],
        is_value: &dyn Fn(&str) -> bool,
    ) -> Result<Vec<Option<&'t str>>> {
        let wrong = |what: String| Error::Refused(format!("{option} {what}; the model has {}", self.list()));
        let mut found = vec![None; self.names.len()];
        for text in texts {
            let named = |name: &String| text.strip_prefix(name.as_str())?.strip_prefix('=');
            // Of names that begin alike the longest is meant.
            let named = (0..self.names.len())
                .filter_map(|i| named(&self.names[i]).map(|value| (i, value)))
                .max_by_key(|&(i, _)| self.names[i].len());
            let (i, value) = match (named, text.split_once('=')) {
                (Some(named), _) => named,
                (None, Some((name, _))) if !is_value(text) => {
                    return Err(wrong(format!("{text}: there is no {} `{name}`", self.what)));
                }
                (None, _) if self.names.len() == 1 => (0, text.as_str()),
                (None, _) => {
                    return Err(wrong(format!("{text}: say whose it is, {option} NAME={text}")));
                }
            };
            if found[i].replace(value).is_some() {
                return Err(wrong(format!("{text}: {} `{}` is given twice", self.what, self.names[i])));
            }
        }
        Ok(found)
    }

    fn list(&self) -> String {
        let count = self.shown.len();
        let plural = if count == 1 { "" } else { "s" };
        format!("{count} {}{plural}: {}", self.what, self.shown.join(", "))
    }

    /// The arrays in `.npy` files, one for each of a model's inputs, in their order.
    pub fn load(&self, option: &str, texts: &[String]) -> Result<Vec<Tensor>> {
        let files = self.assign(option, texts, &|text| Path::new(text).exists())?;
        let missing: Vec<&str> =
            files.iter().zip(&self.names).filter(|(f, _)| f.is_none()).map(|(_, n)| n.as_str()).collect();
        if !missing.is_empty() {
            return Err(Error::Refused(format!(
                "there is no data for `{}`: give it by {option} NAME=FILE.npy; the model has {}",
                missing.join("`, `"),
                self.list()
            )));
        }
        let load = |file: &str| {
            let data = npy::load(Path::new(file))?;
            match data.data.is_empty() {
                true => Err(Error::file(Path::new(file), "is empty: give at least one input")),
                false => Ok(data),
            }
        };
        files.into_iter().flatten().map(load).collect()
    }

    /// Where each output is to be written; `None` for those that are to be shown.
    pub fn files(&self, option: &str, texts: &[String]) -> Result<Vec<Option<PathBuf>>> {
        let looks_like_a_path = |text: &str| text.split_once('=').is_some_and(|(name, _)| name.contains('/'));
        let files = self.assign(option, texts, &looks_like_a_path)?;
        let mut seen = vec![];
        for file in files.iter().flatten() {
            if seen.contains(file) {
                return Err(Error::file(Path::new(file), format!("is given for two outputs by {option}")));
            }
            seen.push(*file);
            // Better now than after the run.
            let folder = Path::new(file).parent().filter(|folder| !folder.as_os_str().is_empty());
            if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
                return Err(Error::file(folder, format!("there is no such folder for {option} {file}")));
            }
        }
        Ok(files.into_iter().map(|file| file.map(PathBuf::from)).collect())
    }

    /// Whole shapes, where they are given.
    fn shapes(&self, option: &str, texts: &[String]) -> Result<Vec<Option<Vec<usize>>>> {
        let parse = |text: &str| {
            let dims = text.split(',').map(|d| d.trim().parse().ok().filter(|&d| d > 0));
            dims.collect::<Option<Vec<usize>>>().ok_or_else(|| {
                Error::Refused(format!("{option} {text}: a shape is a list of sizes such as 1,3,224,224"))
            })
        };
        let given = self.assign(option, texts, &|_| false)?;
        given.into_iter().map(|text| text.map(parse).transpose()).collect()
    }
}

/// An ONNX file, and the inputs that it declares.
pub struct ModelFile {
    path: PathBuf,
    bytes: Vec<u8>,
    /// The inputs, in the file's order, less those that are constants.
    pub inputs: Vec<FileInput>,
    constants: BTreeMap<String, Tensor>,
}

impl ModelFile {
    /// Reads a file.
    pub fn open(path: &Path) -> Result<Self> {
        let bytes = onnx::bytes(path)?;
        let inputs = onnx::inputs(&bytes).map_err(|e| Error::file(path, e))?;
        Ok(ModelFile { path: path.into(), bytes, inputs, constants: BTreeMap::new() })
    }

    /// The model with constants for inputs: `given` are texts `NAME=16000`, `NAME=1,0,1` or
    /// `NAME=FILE.npy`.
    ///
    /// # Errors
    /// Names that no input has, and what is no number or array.
    pub fn with_constants(mut self, given: &[String]) -> Result<Self> {
        let texts = self.names().assign("--constant", given, &|_| false)?;
        let value = |(input, text): (&FileInput, Option<&str>)| {
            text.map(|text| Ok((input.name.clone(), constant(input, text)?))).transpose()
        };
        let found: Result<Vec<_>> = self.inputs.iter().zip(texts).map(value).collect();
        self.constants = found?.into_iter().flatten().collect();
        self.inputs.retain(|input| !self.constants.contains_key(&input.name));
        Ok(self)
    }

    /// The names of the inputs.
    pub fn names(&self) -> Names {
        Names::of_file(&self.inputs)
    }

    /// The model for data, or for any data of these shapes: `given` are texts `NAME=1,3,224,224`
    /// for what the file leaves open, and `batch` the first dimensions. What neither says is as in
    /// the data.
    pub fn graph(&self, data: Option<&[Tensor]>, given: &[String], batch: Option<usize>) -> Result<Graph> {
        if batch == Some(0) {
            return Err(Error::Refused("--batch is at least 1".into()));
        }
        let given = self.names().shapes("--shape", given)?;
        let mut shapes = BTreeMap::new();
        for (i, input) in self.inputs.iter().enumerate() {
            let data = data.map(|data| &data[i].shape);
            let like = data.map(|shape| like(input, shape.dims()));
            let Some(shape) = shape_of(input, given[i].as_deref(), like.as_deref(), batch)? else {
                continue;
            };
            if let Some(data) = data {
                check_rows(&shape.clone().into(), data).map_err(|r| r.at(&input.name, ""))?;
            }
            let open = input.dims.as_ref().is_none_or(|d| d.iter().any(|d| matches!(d, Dim::Open(_))));
            if open || given[i].is_some() {
                shapes.insert(input.name.clone(), shape);
            }
        }
        let folder = Some(onnx::folder(&self.path));
        let constants = self.constants.clone();
        let options = ImportOptions { batch: batch.unwrap_or(1), shapes, constants, folder };
        onnx::read(&self.bytes, &options).map_err(|e| Error::file(&self.path, e))
    }
}

/// The value of an input that is a constant. Numbers have the input's shape where the file fixes
/// it; else they stand in its last dimension, and it has one of every other.
fn constant(input: &FileInput, text: &str) -> Result<Tensor> {
    if text.ends_with(".npy") {
        return Ok(npy::load(Path::new(text))?);
    }
    let numbers: Option<Vec<f32>> =
        text.split(',').map(|v| v.trim().parse().ok().filter(|v: &f32| v.is_finite())).collect();
    let numbers = numbers.ok_or_else(|| {
        Error::Refused(format!(
            "--constant {}={text}: a constant is a number, some with commas between them, or FILE.npy",
            input.name
        ))
    })?;
    let size = |dim: &Dim| if let Dim::Fixed(size) = dim { Some(*size) } else { None };
    let fixed = input.dims.as_ref().and_then(|dims| dims.iter().map(size).collect::<Option<Vec<_>>>());
    let count = numbers.len();
    let shape = match (fixed, &input.dims) {
        (Some(dims), _) if dims.iter().try_fold(1usize, |n, &d| n.checked_mul(d)) == Some(count) => dims,
        (_, Some(dims)) if !dims.is_empty() => [vec![1; dims.len() - 1], vec![count]].concat(),
        _ if count == 1 => vec![],
        _ => vec![count],
    };
    Ok(Tensor::new(shape, numbers))
}

/// The dimensions that open ones are taken from: the data's, in the order that goes with those that
/// the file fixes. Images whose channels stand last are refused then with what to do, and not for
/// their height.
fn like(input: &FileInput, data: &[usize]) -> Vec<usize> {
    let Some(dims) = input.dims.as_ref().filter(|dims| dims.len() == 4 && data.len() == 4) else {
        return data.to_vec();
    };
    let goes = |order: [usize; 4]| {
        (1..4).all(|d| dims[d] == Dim::Fixed(data[order[d]]) || matches!(dims[d], Dim::Open(_)))
    };
    let order = [[0, 1, 2, 3], [0, 3, 1, 2], [0, 2, 3, 1]].into_iter().find(|&order| goes(order));
    order.unwrap_or([0, 1, 2, 3]).map(|d| data[d]).to_vec()
}

/// The shape of an input: as given, as the file fixes it, as the data has it; `None` if nobody
/// says.
fn shape_of(
    input: &FileInput,
    given: Option<&[usize]>,
    data: Option<&[usize]>,
    batch: Option<usize>,
) -> Result<Option<Vec<usize>>> {
    let Some(dims) = &input.dims else {
        let mut shape = given.or(data).map(<[usize]>::to_vec);
        if let (Some([first, ..]), Some(batch), None) = (shape.as_deref_mut(), batch, given) {
            *first = batch;
        }
        return Ok(shape);
    };
    let fits = |shape: &&[usize]| shape.len() == dims.len();
    if let Some(given) = given.filter(|shape| !fits(shape)) {
        return Err(Error::Refused(format!(
            "--shape gives {given:?} for {input}, which has {} dimensions",
            dims.len()
        )));
    }
    let data = data.filter(fits);
    let size = |(d, dim): (usize, &Dim)| match (dim, given, data) {
        (Dim::Open(_), _, _) if d == 0 && batch.is_some() => Ok(batch.unwrap_or(1)),
        (_, Some(given), _) => Ok(given[d]),
        (Dim::Fixed(size), ..) => Ok(*size),
        (Dim::Open(_), _, Some(data)) => Ok(data[d]),
        (Dim::Open(_), ..) if d == 0 => Ok(1),
        (Dim::Open(_), ..) => Err(Error::Refused(format!(
            "dimension {d} of input {input} is open, and no data says it: give the shape, --shape {}=1,3,224,224",
            input.name
        ))),
    };
    dims.iter().enumerate().map(size).collect::<Result<_>>().map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn declared(name: &str, dims: &[usize]) -> FileInput {
        let dim = |&d: &usize| if d == 0 { Dim::Open("n".into()) } else { Dim::Fixed(d) };
        FileInput { name: name.into(), dims: Some(dims.iter().map(dim).collect()) }
    }

    fn texts(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|&t| t.into()).collect()
    }

    #[test]
    fn what_is_given_goes_to_the_input_that_is_named() {
        let names = Names::of_file(&[declared("a", &[0, 3]), declared("a=b", &[2])]);
        let assign = |t: &[&str]| {
            let t = texts(t);
            let found = names.assign("--input", &t, &|_| false).map_err(|e| e.to_string())?;
            Ok::<_, String>(found.into_iter().map(|f| f.map(str::to_owned)).collect::<Vec<_>>())
        };
        assert_eq!(assign(&["a=b=x", "a=y"]), Ok(vec![Some("y".into()), Some("x".into())]));
        assert_eq!(assign(&["a=y"]), Ok(vec![Some("y".into()), None]));
        for (given, word) in [
            (&["y"][..], "say whose it is, --input NAME=y"),
            (&["c=y"], "there is no input `c`"),
            (&["a=y", "a=z"], "`a` is given twice"),
        ] {
            let error = assign(given).unwrap_err();
            assert!(error.contains(word) && error.contains("2 inputs: `a` [n, 3], `a=b` [2]"), "{error}");
        }
        let one = Names::of_file(&[declared("a", &[0])]);
        assert_eq!(one.assign("--input", &texts(&["y"]), &|_| false).unwrap(), [Some("y")]);
        assert_eq!(one.assign("--input", &texts(&["c=y"]), &|_| true).unwrap(), [Some("c=y")]);
        assert!(one.assign("--input", &texts(&["y", "z"]), &|_| false).is_err());
        assert!(one.load("--input", &[]).unwrap_err().to_string().contains("no data for `a`"));
    }

    #[test]
    fn constants_are_numbers_of_the_inputs_shape() {
        let of = |dims: &[usize], text: &str| {
            constant(&declared("x", dims), text).map(|t| (t.shape.dims().to_vec(), t.data)).ok()
        };
        assert_eq!(of(&[], "16000"), Some((vec![], vec![16000.0])));
        assert_eq!(of(&[2, 2], "1,-2, 3,4.5"), Some((vec![2, 2], vec![1.0, -2.0, 3.0, 4.5])));
        assert_eq!(of(&[0, 0], "1,0,1"), Some((vec![1, 3], vec![1.0, 0.0, 1.0])));
        assert_eq!(of(&[0], "7"), Some((vec![1], vec![7.0])));
        let unknown = FileInput { name: "x".into(), dims: None };
        assert_eq!(constant(&unknown, "7").unwrap().shape.dims(), &[0usize; 0]);
        assert_eq!(constant(&unknown, "7,8").unwrap().shape.dims(), [2]);
        for text in ["", "a", "1,,2", "inf", "NaN", "1e99", "missing.npy"] {
            assert!(of(&[0], text).is_none(), "{text}");
        }
    }

    #[test]
    fn open_dimensions_are_as_given_or_as_the_data_has_them() {
        let open = declared("x", &[0, 3, 0, 0]);
        let of = |given: Option<&[usize]>, data: Option<&[usize]>, batch| {
            shape_of(&open, given, data, batch).map_err(|e| e.to_string())
        };
        assert_eq!(of(None, Some(&[5, 3, 8, 9]), None), Ok(Some(vec![5, 3, 8, 9])));
        assert_eq!(of(None, Some(&[5, 3, 8, 9]), Some(2)), Ok(Some(vec![2, 3, 8, 9])));
        assert_eq!(of(Some(&[1, 3, 7, 7]), Some(&[5, 3, 8, 9]), None), Ok(Some(vec![1, 3, 7, 7])));
        assert_eq!(of(Some(&[1, 3, 7, 7]), None, Some(4)), Ok(Some(vec![4, 3, 7, 7])));
        assert!(of(None, Some(&[5, 3]), None).unwrap_err().contains("--shape x=1,3,224,224"));
        assert!(
            of(None, None, Some(2)).unwrap_err().contains("dimension 2 of input `x` [n, 3, n, n] is open")
        );
        assert!(of(Some(&[3, 3]), None, None).unwrap_err().contains("4 dimensions"));
        let unknown = FileInput { name: "x".into(), dims: None };
        assert_eq!(shape_of(&unknown, None, Some(&[5, 2]), Some(3)).unwrap(), Some(vec![3, 2]));
        assert_eq!(shape_of(&unknown, None, None, None).unwrap(), None);
        let parse = |text: &str| Names::of_file(&[declared("x", &[0])]).shapes("--shape", &texts(&[text]));
        assert_eq!(parse("x=1,2").unwrap(), [Some(vec![1, 2])]);
        assert_eq!(parse("4").unwrap(), [Some(vec![4])]);
        for bad in ["x=", "x=1,0", "x=1,-2", "x=1x2", "y=1"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
