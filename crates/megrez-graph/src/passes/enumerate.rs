//! What is computed from a token alone, element by element, is one of as many numbers as there are
//! tokens: a table that the token names a row of. Exporters compute with tokens to hide padding, or
//! to take places from a table's end (x < 0 → x + n); after this pass, tokens name rows of tables
//! only.

use super::rewrite::Rewrite;
use crate::graph::{Attributes, Graph, Id, Node};
use crate::layers::{
    AFFINE, CHOSEN, EQUAL, LESS, LESS_OR_EQUAL, NOT_NEGATIVE, NOT_ZERO, POSITIVE, TOWARDS_ZERO, ZERO,
};
use crate::problem::Problem;
use crate::tensor::Tensor;
use megrez_plan::View;
use std::collections::HashMap;
use std::sync::Arc;

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

/// The most numbers that are computed of all tokens of a graph: models come from untrusted files.
const BUDGET: usize = 1 << 25;

/// What a value is computed from.
#[derive(Clone, Copy)]
struct Origin {
    /// The input of the graph.
    input: Id,
    /// Its elements, rearranged perhaps, in the value's order and shape.
    tokens: Id,
}

/// A graph, and the values of it that are computed from one input element by element.
struct Origins<'a> {
    graph: &'a Graph,
    of: HashMap<Id, Origin>,
}

impl<'a> Origins<'a> {
    fn of(graph: &'a Graph) -> Self {
        let mut of: HashMap<Id, Origin> =
            graph.inputs.iter().map(|&id| (id, Origin { input: id, tokens: id })).collect();
        for node in &graph.nodes {
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
        }
        Origins { graph, of }
    }

    /// Of the first tokens of these inputs, as many as is said, what is computed from each: a
    /// number for each of every value that can be computed.
    fn values(&self, rows: &HashMap<Id, usize>) -> HashMap<Id, Arc<Tensor>> {
        let counted = |rows: usize| Tensor::new([rows], (0..rows).map(|row| row as f32).collect());
        let inputs = rows.iter().map(|(&input, &rows)| (input, Arc::new(counted(rows))));
        let mut found: HashMap<Id, Arc<Tensor>> = inputs.collect();
        for node in &self.graph.nodes {
            let Some(origin) = self.of.get(&node.output) else { continue };
            let Some(&rows) = rows.get(&origin.input) else { continue };
            let values = if origin.tokens == node.output {
                found.get(&origin.input).cloned()
            } else if node.layer.view().is_some() {
                node.inputs[0].and_then(|id| found.get(&id)).cloned()
            } else {
                self.computed(node, rows, &found).map(Arc::new)
            };
            found.extend(values.map(|values| (node.output, values)));
        }
        found
    }

    /// What a node computes of constants and of these values.
    fn computed(&self, node: &Node, rows: usize, found: &HashMap<Id, Arc<Tensor>>) -> Option<Tensor> {
        let mut alone = Graph::new("tokens");
        let mut inputs = vec![];
        for &input in &node.inputs {
            let constant = match self.graph.value(input?).constant.clone() {
                Some(constant) => constant,
                None => Tensor::clone(found.get(&input?)?).into(),
            };
            inputs.push(Some(alone.constant("x", constant)));
        }
        let y = alone.add_layer(&node.name, &node.op, &inputs, node.attributes.clone()).ok()?;
        let values = alone.floats(y).filter(|y| y.data.len() == rows)?;
        Some(Tensor::new([rows], values.data.clone()))
    }
}

/// The row of a table that a number names, from its end if it is negative.
fn row(named: f32, rows: usize) -> Option<usize> {
    let row = named as i64 + if named < 0.0 { rows as i64 } else { 0 };
    usize::try_from(row).ok().filter(|&row| row < rows)
}

/// The inputs that are tokens.
struct Tokens {
    /// How many tokens there are of each.
    rows: HashMap<Id, usize>,
    /// What is computed from each token, and perhaps from more.
    values: HashMap<Id, Arc<Tensor>>,
}

impl Tokens {
    /// Those that tables are gathered by; `None` if they are not to be counted, because too much
    /// would have to be computed, or because they name no rows.
    fn of(origins: &Origins, gathers: &[(Id, Id)]) -> Option<Self> {
        let table_rows = |table: Id| origins.graph.shape(table).dims().first().copied().unwrap_or(0);
        let mut rows: HashMap<Id, usize> = HashMap::new();
        for &(table, index) in gathers {
            // A table's rows can be named from its end, too.
            let most = rows.entry(origins.of.get(&index)?.input).or_insert(0);
            *most = table_rows(table).checked_mul(2)?.max(*most);
        }
        let of_tokens = origins.of.values().filter_map(|origin| rows.get(&origin.input));
        let work = of_tokens.fold(0usize, |work, &rows| work.saturating_add(rows));
        if work > BUDGET {
            return None;
        }
        let mut tokens = Tokens { values: origins.values(&rows), rows };
        for &(table, index) in gathers {
            let input = origins.of.get(&index)?.input;
            let names = |v: &f32| v.fract() == 0.0 && row(*v, table_rows(table)).is_some();
            let count = tokens.numbers(input, index)?.iter().take_while(|v| names(v)).count();
            tokens.rows.insert(input, count);
        }
        Some(tokens).filter(|tokens| tokens.rows.values().all(|&rows| rows > 0))
    }

    /// What is computed from each token of an input.
    fn numbers(&self, input: Id, id: Id) -> Option<&[f32]> {
        self.values.get(&id)?.data.get(..*self.rows.get(&input)?)
    }
}

/// The graph with tables in place of what is computed from tokens. Where tokens do more than a
/// table can say it stays as it is. Cost: the rows of the tables times the nodes that compute with
/// tokens, up to 2^25.
pub fn enumerate_tokens(graph: &Graph) -> Result<Graph, Problem> {
    let origins = Origins::of(graph);
    let named = |node: &Node| match (&*node.op, &node.inputs[..]) {
        ("Gather", &[Some(table), Some(index)]) if graph.value(index).constant.is_none() => {
            graph.floats(table)?;
            origins.of.contains_key(&index).then_some((table, index))
        }
        _ => None,
    };
    let gathers: Vec<(Id, Id)> = graph.nodes.iter().filter_map(named).collect();
    match Tokens::of(&origins, &gathers).filter(|_| !gathers.is_empty()) {
        Some(tokens) => Ok(rewritten(&origins, &tokens)?.unwrap_or_else(|| graph.clone())),
        None => Ok(graph.clone()),
    }
}

/// … unless something cannot be computed of each token.
fn rewritten(origins: &Origins, tokens: &Tokens) -> Result<Option<Graph>, Problem> {
    let graph = origins.graph;
    let of = |id: &Id| origins.of.get(id).filter(|origin| tokens.rows.contains_key(&origin.input));
    let mut rewrite = Rewrite::new(graph)?;
    // Values of the new graph that are numbers of tokens, looked up.
    let mut numbers: HashMap<Id, Id> = HashMap::new();
    let mut number = |rewrite: &mut Rewrite, id: Id, origin: &Origin| {
        if let Some(&place) = numbers.get(&id) {
            return Ok(Some(place));
        }
        let Some(values) = tokens.numbers(origin.input, id) else { return Ok(None) };
        let name = &graph.value(id).name;
        let table = Tensor::new([values.len(), 1], values.to_vec());
        let table = rewrite.new.constant(&format!("{name}.of_tokens"), table);
        let index = rewrite.place(origin.tokens);
        let column = rewrite.new.add(name, "Gather", &[table, index], Attributes::none())?;
        let dims: Vec<i64> = graph.shape(id).dims().iter().map(|&size| size as i64).collect();
        let shape = rewrite.new.constant("shape", Tensor::new([dims.len()], dims));
        let place = rewrite.new.add(name, "Reshape", &[column, shape], Attributes::none())?;
        numbers.insert(id, place);
        Ok::<_, Problem>(Some(place))
    };
    for node in &graph.nodes {
        if let Some(origin) = of(&node.output) {
            // What rearranges tokens stays; what is computed from them is gone, unless something
            // reads it as a number.
            if origin.tokens == node.output {
                rewrite.copy(node)?;
            }
            continue;
        }
        let index = node.inputs.get(1).copied().flatten().filter(|_| node.op == "Gather");
        let table = node.inputs.first().copied().flatten();
        if let (Some(table), Some((index, origin))) = (table, index.and_then(|id| Some((id, of(&id)?))))
            && let Some(constant) = graph.floats(table)
        {
            let dims = constant.shape.dims();
            let Some(named) = tokens.numbers(origin.input, index) else { return Ok(None) };
            let picked: Vec<usize> = named.iter().filter_map(|&v| row(v, dims[0])).collect();
            let table = if picked.iter().copied().eq(0..dims[0]) {
                rewrite.place(table)
            } else {
                let width = constant.data.len() / dims[0];
                let places = picked.len().saturating_mul(width);
                rewrite.new.afford(places).map_err(|r| r.at(&node.name, &node.op))?;
                let rows = picked.iter().flat_map(|row| &constant.data[row * width..][..width]);
                let rows = Tensor::new([&[picked.len()], &dims[1..]].concat(), rows.copied().collect());
                rewrite.new.constant(&format!("{}.of_tokens", graph.value(table).name), rows)
            };
            let index = rewrite.place(origin.tokens);
            let y = rewrite.add(node, &[Some(table), Some(index)], node.attributes.clone())?;
            rewrite.put(node.output, y);
            continue;
        }
        let mut inputs = vec![];
        for id in node.inputs.iter().copied() {
            inputs.push(match id.and_then(|id| Some((id, of(&id)?))) {
                Some((id, origin)) => match number(&mut rewrite, id, origin)? {
                    None => return Ok(None),
                    place => place,
                },
                None => id.map(|id| rewrite.place(id)),
            });
        }
        let y = rewrite.add(node, &inputs, node.attributes.clone())?;
        rewrite.put(node.output, y);
    }
    for output in &graph.outputs {
        if let Some(origin) = of(&output.id) {
            match number(&mut rewrite, output.id, origin)? {
                Some(place) => rewrite.put(output.id, place),
                None => return Ok(None),
            }
        }
    }
    Ok(Some(rewrite.finish()))
}
