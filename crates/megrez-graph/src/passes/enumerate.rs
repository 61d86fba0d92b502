//! What is computed from a token alone, element by element, is one of as many numbers as there are
//! tokens: a table that the token names a row of. Exporters compute with tokens to hide padding, or
//! to take places from a table's end (x < 0 → x + n); after this pass, tokens name rows of tables
//! only.

use super::rewrite::Rewrite;
use crate::graph::{Attributes, Graph, Id};
use crate::layers::{
    AFFINE, CHOSEN, EQUAL, LESS, LESS_OR_EQUAL, NOT_NEGATIVE, NOT_ZERO, POSITIVE, TOWARDS_ZERO, ZERO,
};
use crate::problem::Problem;
use crate::tensor::Tensor;
use megrez_plan::View;
use std::collections::HashMap;

/// Operators that compute element by element.
const POINTWISE: &[&str] = &[
    "Abs",
    "Add",
    "Ceil",
    "Clip",
    "Div",
    "Floor",
    "Identity",
    "Max",
    "Min",
    "Mul",
    "Relu",
    "Round",
    "Sign",
    "Sub",
    AFFINE,
    CHOSEN,
    EQUAL,
    LESS,
    LESS_OR_EQUAL,
    NOT_NEGATIVE,
    NOT_ZERO,
    POSITIVE,
    TOWARDS_ZERO,
    ZERO,
];

/// What a value is computed from.
#[derive(Clone, Copy)]
struct Origin {
    /// The input of the graph.
    input: Id,
    /// Its elements, rearranged perhaps, in the value's order and shape.
    tokens: Id,
}

/// A graph, the values of it that are computed from one input element by element, and the nodes
/// that compute them.
struct Origins<'a> {
    graph: &'a Graph,
    of: HashMap<Id, Origin>,
    nodes: HashMap<Id, usize>,
}

impl<'a> Origins<'a> {
    fn of(graph: &'a Graph) -> Self {
        let mut of: HashMap<Id, Origin> =
            graph.inputs.iter().map(|&id| (id, Origin { input: id, tokens: id })).collect();
        let mut nodes = HashMap::new();
        for (n, node) in graph.nodes.iter().enumerate() {
            let from = |id: &Option<Id>| id.and_then(|id| of.get(&id)).copied();
            let first = node.inputs.iter().find_map(from);
            let Some(origin) = first else { continue };
            let single = |id: &Id| graph.value(*id).constant.is_some() && graph.shape(*id).elements() == 1;
            let same = |id: &Id| of.get(id).is_some_and(|other| other.tokens == origin.tokens);
            let known = |id: &Option<Id>| id.is_some_and(|id| same(&id) || single(&id));
            let whole = View::whole(graph.shape(node.output).clone());
            let tokens = match node.layer.view() {
                Some(view) if from(&node.inputs[0]).is_some() && *view == whole => origin.tokens,
                Some(_) if node.inputs[0] == Some(origin.tokens) => node.output,
                None if POINTWISE.contains(&&*node.op)
                    && node.inputs.iter().all(known)
                    && graph.shape(node.output) == graph.shape(origin.tokens) =>
                {
                    origin.tokens
                }
                _ => continue,
            };
            of.insert(node.output, Origin { tokens, ..origin });
            nodes.insert(node.output, n);
        }
        Origins { graph, of, nodes }
    }

    /// The value for each of the first `rows` tokens, if it can be computed.
    fn values(&self, id: Id, rows: usize, found: &mut HashMap<Id, Tensor>) -> Option<Tensor> {
        if let Some(values) = found.get(&id) {
            return Some(values.clone());
        }
        let values = if self.of.get(&id)?.tokens == id {
            Tensor::new([rows], (0..rows).map(|row| row as f32).collect())
        } else {
            let node = &self.graph.nodes[*self.nodes.get(&id)?];
            if node.layer.view().is_some() {
                return self.values(node.inputs[0]?, rows, found);
            }
            let mut alone = Graph::new("tokens");
            let mut inputs = vec![];
            for input in node.inputs.iter().copied() {
                let input = input?;
                let constant = match self.graph.value(input).constant.clone() {
                    Some(constant) => constant,
                    None => self.values(input, rows, found)?.into(),
                };
                inputs.push(Some(alone.constant("x", constant)));
            }
            let y = alone.add_layer(&node.name, &node.op, &inputs, node.attributes.clone()).ok()?;
            let values = alone.floats(y).filter(|y| y.data.len() == rows)?;
            Tensor::new([rows], values.data.clone())
        };
        found.insert(id, values.clone());
        Some(values)
    }

    /// How many tokens there can be if these values of theirs name rows of a table.
    fn admissible(&self, id: Id, table: usize) -> Option<usize> {
        let named = self.values(id, table.saturating_mul(2), &mut HashMap::new())?;
        let names = |v: &f32| v.fract() == 0.0 && row(*v, table).is_some();
        Some(named.data.iter().take_while(|v| names(v)).count()).filter(|&rows| rows > 0)
    }
}

/// The row of a table that a number names, from its end if it is negative.
fn row(named: f32, rows: usize) -> Option<usize> {
    let row = named as i64 + if named < 0.0 { rows as i64 } else { 0 };
    usize::try_from(row).ok().filter(|&row| row < rows)
}

/// What has been made of tokens.
struct Made {
    /// The numbers computed from each token.
    found: HashMap<Id, Tensor>,
    /// Values of the new graph that are these numbers, looked up.
    numbers: HashMap<Id, Id>,
}

impl Made {
    /// The value of the new graph that is what is computed from tokens, as a number.
    fn number(
        &mut self,
        origins: &Origins,
        rewrite: &mut Rewrite,
        id: Id,
        rows: usize,
    ) -> Result<Option<Id>, Problem> {
        if let Some(&place) = self.numbers.get(&id) {
            return Ok(Some(place));
        }
        let (Some(origin), Some(values)) = (origins.of.get(&id), origins.values(id, rows, &mut self.found))
        else {
            return Ok(None);
        };
        let name = &origins.graph.value(id).name;
        let table = rewrite.new.constant(&format!("{name}.of_tokens"), values.reshape([rows, 1]));
        let tokens = rewrite.place(origin.tokens);
        let column = rewrite.new.add(name, "Gather", &[table, tokens], Attributes::none())?;
        let dims = origins.graph.shape(id).dims();
        let dims: Vec<i64> = dims.iter().map(|&size| size as i64).collect();
        let shape = rewrite.new.constant("shape", Tensor::new([dims.len()], dims));
        let place = rewrite.new.add(name, "Reshape", &[column, shape], Attributes::none())?;
        self.numbers.insert(id, place);
        Ok(Some(place))
    }
}

/// The graph with tables in place of what is computed from tokens. Cost: the rows of the tables
/// times the nodes that compute with tokens.
pub fn enumerate_tokens(graph: &Graph) -> Result<Graph, Problem> {
    let origins = Origins::of(graph);
    // The node's table and index, if it names rows by a token or what is computed from one.
    let gathers = |n: usize| match (&*graph.nodes[n].op, &graph.nodes[n].inputs[..]) {
        ("Gather", &[Some(table), Some(index)]) if graph.value(index).constant.is_none() => {
            Some((table, index, *origins.of.get(&index)?))
        }
        _ => None,
    };
    let mut rows: HashMap<Id, usize> = HashMap::new();
    for (table, index, origin) in (0..graph.nodes.len()).filter_map(gathers) {
        let Some(count) = graph.shape(table).dims().first().and_then(|&n| origins.admissible(index, n))
        else {
            return Ok(graph.clone());
        };
        rows.entry(origin.input).and_modify(|least| *least = count.min(*least)).or_insert(count);
    }
    let computed = |id: &Id| {
        origins.of.get(id).filter(|origin| rows.contains_key(&origin.input) && origin.tokens != *id)
    };
    // The tokens that what is computed from tokens is computed for.
    let count = |id: &Id| origins.of.get(id).and_then(|origin| rows.get(&origin.input)).copied();
    let mut made = Made { found: HashMap::new(), numbers: HashMap::new() };
    let mut rewrite = Rewrite::new(graph)?;
    for (n, node) in graph.nodes.iter().enumerate() {
        // What is computed from tokens alone is gone, unless something reads it as a number.
        if computed(&node.output).is_some() {
            continue;
        }
        if let Some((table, index, origin)) = gathers(n)
            && let (Some(&count), Some(constant)) = (rows.get(&origin.input), graph.floats(table))
        {
            let dims = constant.shape.dims();
            let Some(named) = origins.values(index, count, &mut made.found) else { return Ok(graph.clone()) };
            let picked: Vec<usize> = named.data.iter().filter_map(|&v| row(v, dims[0])).collect();
            let table = if picked.iter().copied().eq(0..dims[0]) {
                rewrite.place(table)
            } else {
                let width = constant.data.len() / dims[0];
                let rows = picked.iter().flat_map(|row| &constant.data[row * width..][..width]);
                let rows = Tensor::new([&[count], &dims[1..]].concat(), rows.copied().collect());
                rewrite.new.constant(&format!("{}.of_tokens", graph.value(table).name), rows)
            };
            let tokens = rewrite.place(origin.tokens);
            let y = rewrite.add(node, &[Some(table), Some(tokens)], node.attributes.clone())?;
            rewrite.put(node.output, y);
            continue;
        }
        // What rearranges tokens stays.
        if origins.of.contains_key(&node.output) {
            rewrite.copy(node)?;
            continue;
        }
        let mut inputs = vec![];
        for &id in &node.inputs {
            inputs.push(match id {
                Some(id) => match count(&id) {
                    Some(rows) => match made.number(&origins, &mut rewrite, id, rows)? {
                        Some(place) => Some(place),
                        None => return Ok(graph.clone()),
                    },
                    None => Some(rewrite.place(id)),
                },
                None => None,
            });
        }
        let y = rewrite.add(node, &inputs, node.attributes.clone())?;
        rewrite.put(node.output, y);
    }
    for output in &graph.outputs {
        if let Some(rows) = count(&output.id) {
            match made.number(&origins, &mut rewrite, output.id, rows)? {
                Some(place) => rewrite.put(output.id, place),
                None => return Ok(graph.clone()),
            }
        }
    }
    Ok(rewrite.finish())
}
