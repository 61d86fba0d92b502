//! The messages of ONNX, as far as megrez reads them: fields that no operator here uses are
//! skipped. Every list is bounded.

use super::elements::{MAX_RANK, NamedTensor, Place};
use super::fields::{Decoded, each_float, each_int, name, push};
use super::protobuf::Reader;
use crate::graph::Attribute;

const MAX_NODES: usize = 1 << 14;
const MAX_TENSORS: usize = 1 << 15;
const MAX_INPUTS: usize = 1 << 10;
const MAX_ATTRIBUTES: usize = 1 << 8;
const MAX_ATTRIBUTE_LIST: usize = 1 << 20;
const MAX_FUNCTIONS: usize = 1 << 10;

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

/// Tensors of attributes are in the model's own file.
fn inside(_: &Place, _: u64) -> Decoded<Vec<u8>> {
    Err("is in another file, which only weights of the graph can be".into())
}
