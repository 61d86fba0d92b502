//! Which inputs of a graph are tokens.

use crate::graph::{Graph, Id};
use crate::problem::{Problem, Refusal};
use megrez_weights::Matrix;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// The inputs that are tokens, because a table is gathered by them, and the rows of that table.
pub fn vocabularies(graph: &Graph) -> Result<HashMap<Id, usize>, Problem> {
    let mut tokens: HashMap<Id, usize> = HashMap::new();
    for node in graph.nodes.iter().rev() {
        let rows = match (node.op.as_str(), node.inputs.get(1)) {
            ("Gather", Some(&Some(index))) if graph.value(index).constant.is_none() => {
                node.inputs[0].map(|table| (index, graph.shape(table).dims()[0]))
            }
            // What rearranges tokens gives tokens.
            _ if node.layer.view().is_some() => {
                let rows = tokens.get(&node.output).copied();
                rows.zip(node.inputs[0]).map(|(rows, input)| (input, rows))
            }
            _ => None,
        };
        let Some((id, rows)) = rows else { continue };
        if tokens.insert(id, rows).is_some_and(|other| other != rows) {
            let what = "the same tokens name rows of tables of different sizes";
            return Err(Refusal::new(what, "give each table its own input").at(&node.name, &node.op));
        }
    }
    for node in &graph.nodes {
        let reads = node.inputs.iter().flatten().any(|id| tokens.contains_key(id));
        let computes = node.op != "Gather" && !tokens.contains_key(&node.output);
        if reads && computes {
            let what = "computes with secret tokens";
            return Err(Refusal::new(what, "tokens can name rows of a table only").at(&node.name, &node.op));
        }
    }
    Ok(tokens.into_iter().filter(|(id, _)| graph.inputs.contains(id)).collect())
}

/// The public tables of inputs that are tokens of one table and of nothing else: their owner can
/// look the rows up.
pub fn tables(graph: &Graph) -> HashMap<Id, Arc<Matrix>> {
    let mut tables: HashMap<Id, Arc<Matrix>> = HashMap::new();
    let mut several = HashSet::new();
    // Which input tokens come from, through what only rearranges them.
    let mut from: HashMap<Id, Id> = graph.inputs.iter().map(|&id| (id, id)).collect();
    for node in &graph.nodes {
        let input = |i: usize| node.inputs.get(i).copied().flatten();
        if let ("Gather", Some(table), Some(index)) = (node.op.as_str(), input(0), input(1)) {
            let Some(&tokens) = from.get(&index) else { continue };
            match graph.public(table) {
                Some(public) if tables.get(&tokens).is_none_or(|other| *other == public.matrix) => {
                    tables.insert(tokens, public.matrix.clone());
                }
                _ => drop(several.insert(tokens)),
            }
        } else if let (Some(_), Some(&tokens)) = (node.layer.view(), input(0).and_then(|id| from.get(&id))) {
            from.insert(node.output, tokens);
        }
    }
    tables.retain(|tokens, _| !several.contains(tokens));
    tables
}
