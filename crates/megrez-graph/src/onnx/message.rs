//! The messages of ONNX, as far as megrez reads them: fields that no operator here uses are skipped. Every list is
//! bounded.

use super::protobuf::{Field, Malformed, Reader};
use crate::graph::Attribute;
use crate::tensor::{Constant, MAX_ELEMENTS, Tensor, half};

const MAX_NODES: usize = 1 << 14;
const MAX_TENSORS: usize = 1 << 15;
const MAX_INPUTS: usize = 1 << 10;
const MAX_ATTRIBUTES: usize = 1 << 8;
const MAX_ATTRIBUTE_LIST: usize = 1 << 20;
const MAX_RANK: usize = 8;
const MAX_FUNCTIONS: usize = 1 << 10;
const MAX_NAME: usize = 1 << 12;

/// What a part of the file fails with: a short description, or nothing more than that the bytes are malformed.
pub type Decoded<T> = Result<T, String>;

impl From<Malformed> for String {
    fn from(_: Malformed) -> Self {
        "the file is damaged, or no ONNX model".into()
    }
}

fn push<T>(list: &mut Vec<T>, item: T, limit: usize, what: &str) -> Decoded<()> {
    if list.len() >= limit {
        return Err(format!("has more than {limit} {what}"));
    }
    list.push(item);
    Ok(())
}

fn name<'a>(field: Field<'a>) -> Decoded<&'a str> {
    let name = field.string()?;
    if name.len() > MAX_NAME { Err(format!("a name has more than {MAX_NAME} bytes")) } else { Ok(name) }
}

/// ModelProto.
#[derive(Default)]
pub struct Model<'a> {
    /// The version of the operators of the default domain.
    pub opset: Option<i64>,
    /// Whether the model has operators of classical models.
    pub classical: bool,
    /// GraphProto.
    pub graph: Option<Graph<'a>>,
    /// FunctionProto: operators that the model defines itself.
    pub functions: Vec<Function<'a>>,
}

/// FunctionProto.
#[derive(Clone, Default)]
pub struct Function<'a> {
    pub name: &'a str,
    pub domain: &'a str,
    pub inputs: Vec<&'a str>,
    pub outputs: Vec<&'a str>,
    pub nodes: Vec<Node<'a>>,
    /// Attributes with their defaults.
    pub defaults: Vec<(&'a str, RawAttribute<'a>)>,
}

/// GraphProto.
#[derive(Default)]
pub struct Graph<'a> {
    pub name: &'a str,
    pub nodes: Vec<Node<'a>>,
    pub tensors: Vec<NamedTensor<'a>>,
    pub inputs: Vec<ValueInfo<'a>>,
    pub outputs: Vec<ValueInfo<'a>>,
    pub has_sparse: bool,
}

/// NodeProto.
#[derive(Clone, Default)]
pub struct Node<'a> {
    pub name: &'a str,
    pub op: &'a str,
    pub domain: &'a str,
    pub inputs: Vec<&'a str>,
    pub outputs: Vec<&'a str>,
    /// Name and AttributeProto; decoded when the node is known to be supported.
    pub attributes: Vec<(&'a str, RawAttribute<'a>)>,
}

/// ValueInfoProto.
#[derive(Default)]
pub struct ValueInfo<'a> {
    pub name: &'a str,
    /// Number of the element type.
    pub element: i64,
    /// `None` for tensors of unknown rank.
    pub dims: Option<Vec<Dim<'a>>>,
}

/// A dimension.
#[derive(Clone, Copy, Default)]
pub struct Dim<'a> {
    /// Its size, if the file fixes it.
    pub size: Option<i64>,
    /// The name of an open one.
    pub name: &'a str,
}

/// TensorProto.
#[derive(Clone, Copy)]
pub struct NamedTensor<'a> {
    pub name: &'a str,
    bytes: &'a [u8],
}

/// Where the elements of a tensor stand in another file.
#[derive(Clone, Copy, Debug, Default)]
pub struct Place<'a> {
    /// The file, relative to the model's folder.
    pub location: &'a str,
    /// The first byte.
    pub offset: u64,
    /// How many bytes; all that the elements need, where the file does not say.
    pub length: Option<u64>,
}

impl<'a> Place<'a> {
    /// Reads a StringStringEntryProto of `external_data`.
    fn entry(&mut self, bytes: &'a [u8]) -> Decoded<()> {
        let (mut key, mut value) = ("", "");
        let mut reader = Reader::new(bytes);
        while let Some((number, field)) = reader.next()? {
            match number {
                1 => key = name(field)?,
                2 => value = name(field)?,
                _ => {}
            }
        }
        let number = || value.parse().map_err(|_| format!("has the {key} `{value}` in another file"));
        match key {
            "location" => self.location = value,
            "offset" => self.offset = number()?,
            "length" => self.length = Some(number()?),
            // A checksum, which nobody writes.
            _ => {}
        }
        Ok(())
    }
}

/// AttributeProto.
#[derive(Clone, Copy, Debug)]
pub struct RawAttribute<'a>(&'a [u8]);

/// Reads a model.
pub fn model(bytes: &[u8]) -> Decoded<Model<'_>> {
    let mut model = Model::default();
    let mut reader = Reader::new(bytes);
    while let Some((number, field)) = reader.next()? {
        match number {
            7 => model.graph = Some(graph(field.bytes()?)?),
            25 => push(&mut model.functions, function(field.bytes()?)?, MAX_FUNCTIONS, "functions")?,
            8 => {
                let (mut domain, mut version) = ("", 0);
                let mut reader = Reader::new(field.bytes()?);
                while let Some((number, field)) = reader.next()? {
                    match number {
                        1 => domain = name(field)?,
                        2 => version = field.int()?,
                        _ => {}
                    }
                }
                if domain.is_empty() || domain == "ai.onnx" {
                    model.opset = Some(version);
                }
                model.classical |= domain == "ai.onnx.ml";
            }
            _ => {}
        }
    }
    Ok(model)
}

fn graph(bytes: &[u8]) -> Decoded<Graph<'_>> {
    let mut graph = Graph::default();
    let mut reader = Reader::new(bytes);
    while let Some((number, field)) = reader.next()? {
        match number {
            1 => push(&mut graph.nodes, node(field.bytes()?)?, MAX_NODES, "nodes")?,
            2 => graph.name = name(field)?,
            5 => push(&mut graph.tensors, NamedTensor::read(field.bytes()?)?, MAX_TENSORS, "initializers")?,
            11 => push(&mut graph.inputs, value_info(field.bytes()?)?, MAX_TENSORS, "inputs")?,
            12 => push(&mut graph.outputs, value_info(field.bytes()?)?, MAX_INPUTS, "outputs")?,
            15 => graph.has_sparse = true,
            _ => {}
        }
    }
    Ok(graph)
}

fn function(bytes: &[u8]) -> Decoded<Function<'_>> {
    let mut function = Function::default();
    let mut reader = Reader::new(bytes);
    while let Some((number, field)) = reader.next()? {
        match number {
            1 => function.name = name(field)?,
            4 => push(&mut function.inputs, name(field)?, MAX_INPUTS, "inputs of a function")?,
            5 => push(&mut function.outputs, name(field)?, MAX_INPUTS, "outputs of a function")?,
            7 => push(&mut function.nodes, node(field.bytes()?)?, MAX_NODES, "nodes")?,
            10 => function.domain = name(field)?,
            11 => {
                let default = attribute(field.bytes()?)?;
                push(&mut function.defaults, default, MAX_ATTRIBUTES, "attributes of a function")?;
            }
            _ => {}
        }
    }
    Ok(function)
}

/// An attribute and its name.
fn attribute(bytes: &[u8]) -> Decoded<(&str, RawAttribute<'_>)> {
    let mut found = "";
    let mut reader = Reader::new(bytes);
    while let Some((number, field)) = reader.next()? {
        if number == 1 {
            found = name(field)?;
        }
    }
    Ok((found, RawAttribute(bytes)))
}

fn node(bytes: &[u8]) -> Decoded<Node<'_>> {
    let mut node = Node::default();
    let mut reader = Reader::new(bytes);
    while let Some((number, field)) = reader.next()? {
        match number {
            1 => push(&mut node.inputs, name(field)?, MAX_INPUTS, "inputs at one node")?,
            2 => push(&mut node.outputs, name(field)?, MAX_INPUTS, "outputs at one node")?,
            3 => node.name = name(field)?,
            4 => node.op = name(field)?,
            5 => {
                let attribute = attribute(field.bytes()?)?;
                push(&mut node.attributes, attribute, MAX_ATTRIBUTES, "attributes at one node")?;
            }
            7 => node.domain = name(field)?,
            _ => {}
        }
    }
    Ok(node)
}

fn value_info(bytes: &[u8]) -> Decoded<ValueInfo<'_>> {
    let mut info = ValueInfo::default();
    let mut reader = Reader::new(bytes);
    while let Some((number, field)) = reader.next()? {
        match number {
            1 => info.name = name(field)?,
            2 => {
                let mut reader = Reader::new(field.bytes()?);
                while let Some((number, field)) = reader.next()? {
                    if number == 1 {
                        tensor_type(field.bytes()?, &mut info)?;
                    }
                }
            }
            _ => {}
        }
    }
    Ok(info)
}

fn tensor_type<'a>(bytes: &'a [u8], info: &mut ValueInfo<'a>) -> Decoded<()> {
    let mut reader = Reader::new(bytes);
    while let Some((number, field)) = reader.next()? {
        match number {
            1 => info.element = field.int()?,
            2 => {
                let mut dims = vec![];
                let mut reader = Reader::new(field.bytes()?);
                while let Some((number, field)) = reader.next()? {
                    if number == 1 {
                        let mut dim = Dim::default();
                        let mut reader = Reader::new(field.bytes()?);
                        while let Some((number, field)) = reader.next()? {
                            match number {
                                1 => dim.size = Some(field.int()?),
                                2 => dim.name = name(field)?,
                                _ => {}
                            }
                        }
                        push(&mut dims, dim, MAX_RANK, "dimensions")?;
                    }
                }
                info.dims = Some(dims);
            }
            _ => {}
        }
    }
    Ok(())
}

impl<'a> RawAttribute<'a> {
    /// Its bytes in the file.
    pub fn size(&self) -> usize {
        self.0.len()
    }

    /// The graph of an attribute that is one.
    pub fn graph(&self) -> Decoded<Option<Graph<'a>>> {
        let mut reader = Reader::new(self.0);
        let mut found = None;
        while let Some((number, field)) = reader.next()? {
            if number == 6 {
                found = Some(graph(field.bytes()?)?);
            }
        }
        Ok(found)
    }

    /// The name of the function's attribute that it stands for.
    pub fn reference(&self) -> Decoded<Option<&'a str>> {
        let mut reader = Reader::new(self.0);
        let mut found = None;
        while let Some((number, field)) = reader.next()? {
            if number == 21 {
                found = Some(name(field)?).filter(|name| !name.is_empty());
            }
        }
        Ok(found)
    }

    /// The attribute's value; `Err` names what is not supported about it.
    pub fn decode(&self) -> Decoded<Attribute> {
        let (mut float, mut int, mut string, mut tensor) = (None, None, None, None);
        let (mut floats, mut ints, mut strings) = (vec![], vec![], vec![]);
        let mut kind = 0;
        let mut reader = Reader::new(self.0);
        while let Some((number, field)) = reader.next()? {
            match number {
                2 => float = Some(field.float()?),
                3 => int = Some(field.int()?),
                4 => string = Some(name(field)?.to_string()),
                5 => tensor = Some(NamedTensor::read(field.bytes()?)?.decode(inside)?),
                7 => each_float(field, |v| {
                    push(&mut floats, v, MAX_ATTRIBUTE_LIST, "numbers in an attribute")
                })?,
                8 => each_int(field, |v| push(&mut ints, v, MAX_ATTRIBUTE_LIST, "numbers in an attribute"))?,
                9 => {
                    push(&mut strings, name(field)?.to_string(), MAX_ATTRIBUTE_LIST, "texts in an attribute")?
                }
                20 => kind = field.int()?,
                _ => {}
            }
        }
        // The default of a scalar may be left out on the wire; lists may be empty.
        match (kind, float, int, string, tensor) {
            (1, v, ..) => Ok(Attribute::Float(v.unwrap_or(0.0))),
            (2, _, v, ..) => Ok(Attribute::Int(v.unwrap_or(0))),
            (3, _, _, v, _) => Ok(Attribute::String(v.unwrap_or_default())),
            (4, _, _, _, Some(t)) => Ok(Attribute::Tensor(t)),
            (6, ..) => Ok(Attribute::Floats(floats)),
            (7, ..) => Ok(Attribute::Ints(ints)),
            (8, ..) => Ok(Attribute::Strings(strings)),
            _ => Err("has a type that is not supported".into()),
        }
    }
}

impl<'a> NamedTensor<'a> {
    /// Its bytes in the file.
    pub fn size(&self) -> usize {
        self.bytes.len()
    }

    /// Number of the element type.
    pub fn element(&self) -> Decoded<i64> {
        let mut element = 0;
        let mut reader = Reader::new(self.bytes);
        while let Some((number, field)) = reader.next()? {
            if number == 2 {
                element = field.int()?;
            }
        }
        Ok(element)
    }

    fn read(bytes: &'a [u8]) -> Decoded<Self> {
        let mut tensor = NamedTensor { name: "", bytes };
        let mut reader = Reader::new(bytes);
        while let Some((number, field)) = reader.next()? {
            if number == 8 {
                tensor.name = name(field)?;
            }
        }
        Ok(tensor)
    }

    /// The elements; as many as the dimensions say. `beside` gives the bytes of what is in another file,
    /// by their place and number.
    pub fn decode(&self, beside: impl FnOnce(&Place<'a>, u64) -> Decoded<Vec<u8>>) -> Decoded<Constant> {
        let (mut dims, mut kind, mut raw, mut external) = (vec![], 0, None, false);
        let mut place = Place::default();
        let mut reader = Reader::new(self.bytes);
        while let Some((number, field)) = reader.next()? {
            match number {
                1 => each_int(field, |v| push(&mut dims, v, MAX_RANK, "dimensions"))?,
                2 => kind = field.int()?,
                9 => raw = Some(field.bytes()?),
                13 => {
                    external = true;
                    place.entry(field.bytes()?)?;
                }
                14 => external |= field.int()? != 0,
                _ => {}
            }
        }
        let dims = dims.iter().map(|&d| usize::try_from(d).ok()).collect::<Option<Vec<usize>>>();
        let count = dims.as_ref().and_then(|d| d.iter().try_fold(1usize, |n, &d| n.checked_mul(d)));
        let (Some(dims), Some(count)) = (dims, count.filter(|&n| n <= MAX_ELEMENTS)) else {
            return Err("has absurd dimensions".into());
        };
        let file;
        if external {
            file = beside(&place, count as u64 * bytes_of(kind)?)?;
            raw = Some(&file);
        }
        // Numbers stand in raw bytes or in a list whose field depends on the type.
        let floats = |field: u32| -> Decoded<Vec<f32>> {
            let mut list = vec![];
            let mut reader = Reader::new(self.bytes);
            while let Some((number, value)) = reader.next()? {
                match (number == field, field) {
                    (true, 4) => each_float(value, |v| push(&mut list, v, count, "elements"))?,
                    (true, _) => each_double(value, |v| push(&mut list, v, count, "elements"))?,
                    _ => {}
                }
            }
            Ok(list)
        };
        let ints = |field: u32| -> Decoded<Vec<i64>> {
            let mut list = vec![];
            let mut reader = Reader::new(self.bytes);
            while let Some((number, value)) = reader.next()? {
                if number == field {
                    each_int(value, |v| push(&mut list, v, count, "elements"))?;
                }
            }
            Ok(list)
        };
        let constant: Constant = match (kind, raw) {
            (1, None) => Constant::from(filled(dims, floats(4)?)?),
            (1, Some(raw)) => filled(dims, words(raw, f32::from_le_bytes)?)?.into(),
            (11, None) => filled(dims, floats(10)?)?.into(),
            (11, Some(raw)) => filled(dims, words(raw, |b| f64::from_le_bytes(b) as f32)?)?.into(),
            // Numbers of 16 bits stand in the list of integers.
            (10, None) => filled(dims, ints(5)?.iter().map(|&v| half(v as u16)).collect())?.into(),
            (10, Some(raw)) => filled(dims, words(raw, |b| half(u16::from_le_bytes(b)))?)?.into(),
            (16, None) => filled(dims, ints(5)?.iter().map(|&v| bfloat(v as u16)).collect())?.into(),
            (16, Some(raw)) => filled(dims, words(raw, |b| bfloat(u16::from_le_bytes(b)))?)?.into(),
            (2..=6 | 9, None) => filled(dims, ints(5)?)?.into(),
            (12 | 13, None) => filled(dims, small(ints(11)?)?)?.into(),
            (2, Some(raw)) => filled(dims, words(raw, |[b]: [u8; 1]| i64::from(b))?)?.into(),
            (3, Some(raw)) => filled(dims, words(raw, |b| i64::from(i8::from_le_bytes(b)))?)?.into(),
            (4, Some(raw)) => filled(dims, words(raw, |b| i64::from(u16::from_le_bytes(b)))?)?.into(),
            (5, Some(raw)) => filled(dims, words(raw, |b| i64::from(i16::from_le_bytes(b)))?)?.into(),
            (12, Some(raw)) => filled(dims, words(raw, |b| i64::from(u32::from_le_bytes(b)))?)?.into(),
            (13, Some(raw)) => filled(dims, small(words(raw, i64::from_le_bytes)?)?)?.into(),
            (7, None) => filled(dims, ints(7)?)?.into(),
            (7, Some(raw)) => filled(dims, words(raw, i64::from_le_bytes)?)?.into(),
            (6, Some(raw)) => filled(dims, words(raw, |b| i64::from(i32::from_le_bytes(b)))?)?.into(),
            (9, Some(raw)) => filled(dims, words(raw, |[b]: [u8; 1]| i64::from(b))?)?.into(),
            _ => return Err(format!("has the ONNX data type {kind}: export the model in float32")),
        };
        match &constant {
            // Infinite values may be masks; sharing them is refused.
            Constant::Floats(t) if t.data.iter().any(|v| v.is_nan()) => {
                Err("holds values that are not numbers: check the training".into())
            }
            _ => Ok(constant),
        }
    }
}

/// Tensors of attributes are in the model's own file.
fn inside(_: &Place, _: u64) -> Decoded<Vec<u8>> {
    Err("is in another file, which only weights of the graph can be".into())
}

/// The bytes of one element.
fn bytes_of(kind: i64) -> Decoded<u64> {
    match kind {
        2 | 3 | 9 => Ok(1),
        4 | 5 | 10 | 16 => Ok(2),
        1 | 6 | 12 => Ok(4),
        7 | 11 | 13 => Ok(8),
        _ => Err(format!("has the ONNX data type {kind}: export the model in float32")),
    }
}

/// The upper half of a float32.
fn bfloat(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// Unsigned numbers of 64 bits that fit signed ones.
fn small(list: Vec<i64>) -> Decoded<Vec<i64>> {
    if list.iter().any(|&v| v < 0) { Err("holds integers above 2^63".into()) } else { Ok(list) }
}

fn filled<T: Copy>(dims: Vec<usize>, data: Vec<T>) -> Decoded<Tensor<T>> {
    let count: usize = dims.iter().product();
    if data.len() == count {
        Ok(Tensor::new(dims, data))
    } else {
        Err(format!("has {} elements, its dimensions say {count}", data.len()))
    }
}

fn words<const N: usize, T>(raw: &[u8], read: impl Fn([u8; N]) -> T) -> Decoded<Vec<T>> {
    let words = raw.chunks_exact(N);
    if !words.remainder().is_empty() {
        return Err(Malformed.into());
    }
    Ok(words.map(|w| read(w.try_into().expect("chunks of N"))).collect())
}

fn each_int(field: Field, mut f: impl FnMut(i64) -> Decoded<()>) -> Decoded<()> {
    let Field::Bytes(packed) = field else { return f(field.int()?) };
    let mut reader = Reader::new(packed);
    while let Some(v) = reader.next_packed()? {
        f(v as i64)?;
    }
    Ok(())
}

fn each_float(field: Field, mut f: impl FnMut(f32) -> Decoded<()>) -> Decoded<()> {
    let Field::Bytes(packed) = field else { return f(field.float()?) };
    words(packed, f32::from_le_bytes)?.into_iter().try_for_each(f)
}

fn each_double(field: Field, mut f: impl FnMut(f32) -> Decoded<()>) -> Decoded<()> {
    match field {
        Field::Fixed64(bytes) => f(f64::from_le_bytes(bytes) as f32),
        Field::Bytes(packed) => words(packed, |b| f64::from_le_bytes(b) as f32)?.into_iter().try_for_each(f),
        _ => Err(Malformed.into()),
    }
}
