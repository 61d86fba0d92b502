//! Several tokens at once: what a small model of the client's proposes, and the parties look over.
//!
//! The parties read the proposed tokens behind the others, in one run, and have the logits of what
//! follows each. A proposed token is right if no other has a larger logit (with noise, where tokens
//! are drawn; but for the last bits, so of two that are as likely as each other either will do).
//! That is one comparison of every logit with the proposed token's, and one of how many of them it
//! wins, all positions so far together, with how many there are: so the second says of each
//! position whether it and all before it are right. The row of logits that follows the last right
//! token is chosen by these bits.
//!
//! The client learns how many tokens are right, and of that row what it learns of a row without
//! drafts: nothing of the logits at other positions, neither of those that were right nor beyond.
//! The parties learn how many were right, by how many the next run goes on with.

use crate::sampling::{Choice, NOISE, Sampling};
use megrez_graph::{Attributes, Graph, Id, Output, Tensor};
use megrez_ring::Shape;
use megrez_service::{Error, ErrorKind, Result};

/// The input of the proposed tokens, a one at the place of each.
pub(crate) const DRAFT: &str = "megrez.draft";

/// The output that says how many are right.
const ACCEPTED: &str = "megrez.accepted";

/// The proposed tokens for [`DRAFT`].
pub(crate) fn ones(shape: &Shape, tokens: &[u32]) -> Result<Tensor> {
    let width = shape.dims().last().copied().unwrap_or(0);
    let mut ones = vec![0.0; shape.elements()];
    for (row, &token) in ones.chunks_exact_mut(width.max(1)).zip(tokens) {
        let one = row.get_mut(token as usize);
        *one.ok_or_else(|| {
            let what = format!("the draft proposes the token {token}, and the model knows {width}");
            Error::Refused(what)
        })? = 1.0;
    }
    Ok(Tensor::new(shape.clone(), ones))
}

/// How many are right, as it was revealed.
pub(crate) fn accepted(revealed: Option<Tensor>, proposed: usize) -> Result<usize> {
    let number = revealed.as_ref().and_then(|count| count.data.first()).copied().unwrap_or(f32::NAN);
    (0..=proposed).find(|&right| (number - right as f32).abs() < 0.01).ok_or_else(|| {
        Error::of(
            ErrorKind::OutOfRange,
            "the parties have found no number of right tokens, so values were beyond what the plan holds: use fewer fraction bits",
        )
    })
}

/// The graph that says how many of the last `proposed` tokens are right, and of the token after
/// those what `choice` asks for.
pub(crate) fn finish(
    mut graph: Graph,
    proposed: usize,
    choice: Choice,
    sampling: &Sampling,
) -> Result<Graph> {
    let none = Attributes::none;
    let Some(Output { name, id }) = graph.outputs.first().cloned() else { return Ok(graph) };
    let (n, width) = match *graph.shape(id).dims() {
        [1, n, width] if n > proposed => (n, width),
        _ => {
            return Err(Error::of(
                ErrorKind::Unsupported,
                "the model gives the logits of its last token only: drafts need those of every token",
            ));
        }
    };
    let rows = |graph: &mut Graph, name: &str, x: Id, from: usize, to: usize| -> Result<Id> {
        let ends = none().with("axes", [1]).with("starts", [from as i64]).with("ends", [to as i64]);
        Ok(graph.add(name, "Slice", &[x], ends)?)
    };
    let logits = rows(&mut graph, "last-logits", id, n - proposed - 1, n)?;
    let noisy = match sampling.draws() {
        true => {
            let noise = graph.input(NOISE, [1, proposed + 1, width])?;
            graph.add("noisy-logits", "Add", &[logits, noise], none())?
        }
        false => logits,
    };
    // A proposed token's logit against all, itself by one more.
    let draft = graph.input(DRAFT, [1, proposed, width])?;
    let read = rows(&mut graph, "proposed-logits", noisy, 0, proposed)?;
    let sums = |axis: i64| none().with("axes", [axis]).with("keepdims", 1);
    let own = graph.add("draft-parts", "Mul", &[draft, read], none())?;
    let own = graph.add("draft-logits", "ReduceSum", &[own], sums(2))?;
    let ahead = graph.add("ahead", "Sub", &[own, read], none())?;
    let ahead = graph.add("ahead-of-all", "Add", &[ahead, draft], none())?;
    let zero = graph.constant("zero", Tensor::filled([1], 0.0));
    let wins = graph.add("wins", "GreaterOrEqual", &[ahead, zero], none())?;
    let wins = graph.add("wins-numbers", "Cast", &[wins], none().with("to", 1))?;
    let wins = graph.add("count", "ReduceSum", &[wins], sums(2))?;
    // Of this position and all before it.
    let until = (0..proposed * proposed).map(|i| f32::from(i % proposed <= i / proposed)).collect();
    let until = graph.constant("until", Tensor::new([1, proposed, proposed], until));
    let wins = graph.add("count-so-far", "MatMul", &[until, wins], none())?;
    let all = (1..=proposed).map(|i| (i * width) as f32 - 0.5).collect();
    let all = graph.constant("all", Tensor::new([1, proposed, 1], all));
    let right = graph.add("right", "GreaterOrEqual", &[wins, all], none())?;
    let right = graph.add("right-numbers", "Cast", &[right], none().with("to", 1))?;
    let accepted = graph.add("accepted", "ReduceSum", &[right], sums(1))?;
    // The row after the last right one: the difference of 1, the bits, and 0.
    let one = graph.constant("one", Tensor::filled([1, 1, 1], 1.0));
    let nothing = graph.constant("nothing", Tensor::filled([1, 1, 1], 0.0));
    let along = || none().with("axis", 1);
    let before = graph.add("right-before", "Concat", &[one, right], along())?;
    let here = graph.add("right-here", "Concat", &[right, nothing], along())?;
    let place = graph.add("place", "Sub", &[before, here], none())?;
    let place = graph.add("place-row", "Transpose", &[place], none().with("perm", [0, 2, 1]))?;
    let of = if choice == Choice::Client { logits } else { noisy };
    let row = graph.add("chosen-logits", "MatMul", &[place, of], none())?;
    let row = match choice {
        Choice::Client => row,
        Choice::Parties => graph.add("next-token", "Hardmax", &[row], none().with("axis", -1))?,
    };
    graph.outputs[0] = Output { name, id: row };
    graph.output(ACCEPTED, accepted);
    Ok(graph)
}
