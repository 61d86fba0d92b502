//! A step of training as one graph.

use super::loss::{Loss, OfLoss};
use super::privacy::{Privacy, private};
use super::update::{Lasts, State};
use super::{Optimiser, gradients};
use crate::graph::{Attributes, Graph, Id, Node};
use crate::layers::{AFFINE, NOISY_SUM};
use crate::passes::{
    LAYER_NORM_SCALE, fuse_gelu, fuse_layer_norm, fuse_masks, fuse_swish, pool_before_activation,
    remove_dead, remove_identities, rewrite::Rewrite, split_layer_norm,
};
use crate::problem::{Cause, Problem, Problems, Refusal};
use crate::tensor::Tensor;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::num::NonZeroU32;

/// Which constants of a model are trained.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Trained {
    /// Weights and biases of Gemm, MatMul and Conv, scales and offsets of LayerNormalization, and
    /// what of more than one element is added to a value.
    #[default]
    All,
    /// Those whose names, or whose nodes' names, are these, or begin with one of these and a dot.
    Only(Vec<String>),
}

/// A step of training.
#[derive(Clone, Debug)]
pub struct Step {
    /// Takes the model's inputs, [`LABELS`](Self::LABELS) and the state; gives the new state and,
    /// unless it is added up, [`LOSS`](Self::LOSS).
    pub graph: Graph,
    /// What lasts from step to step, in the order of inputs.
    pub state: Vec<State>,
    /// Rows of a batch; with shards, of one of them.
    pub batch: usize,
    /// How many shards of so many rows a step learns from: 1 if its rows are one batch. The graph
    /// has one of them and takes the others for equal ([`parts`](Self::parts)).
    pub shards: u32,
    /// What it makes small.
    pub loss: Loss,
    /// What its weights may tell of a row; `None` if that is not bounded.
    pub privacy: Option<Privacy>,
}

impl Step {
    /// The name of the input of labels: one-hot rows, or targets.
    pub const LABELS: &'static str = "y";
    /// The name of the output that is the batch's mean loss.
    pub const LOSS: &'static str = "loss";
    /// The name of the state that is the sum of the losses of steps.
    pub const LOSS_SO_FAR: &'static str = "loss.so-far";

    /// The graph of a shard, and that of the update: the first gives, from rows and state, what the
    /// shards' gradients and losses are added up of ([`GATHERED`](Self::GATHERED) and the name of
    /// the state, or of the loss); the second reads it of each shard, after the shard's number and
    /// a slash, and gives the new state. `None` of a step whose rows are one batch.
    ///
    /// # Errors
    /// Never, of a step that was made here.
    pub fn parts(&self) -> Result<Option<[Graph; 2]>, Problem> {
        if self.shards <= 1 {
            return Ok(None);
        }
        let of_step = |name: &str| name == Self::LOSS || self.state.iter().any(|state| state.name == name);
        let gathers =
            |node: &&Node| node.op == AFFINE && node.name.strip_prefix(GATHERS).is_some_and(of_step);
        let mut shard = self.graph.clone();
        shard.outputs.clear();
        for node in self.graph.nodes.iter().filter(gathers) {
            shard.output(&gathered(&node.name), node.inputs[0].expect("of one value"));
        }
        let mut update = Graph::new(&self.graph.name);
        let mut places: HashMap<Id, Id> = HashMap::new();
        for node in self.graph.nodes.iter().filter(gathers) {
            let name = gathered(&node.name);
            let mut sum: Option<Id> = None;
            for of in 0..self.shards {
                let part = update.input(&format!("{of}/{name}"), self.graph.shape(node.output).clone())?;
                sum = Some(match sum {
                    Some(sum) => {
                        update.add(&format!("{}.{of}", node.name), "Add", &[sum, part], Attributes::none())?
                    }
                    None => part,
                });
            }
            places.insert(node.output, sum.expect("there are several"));
        }
        // Only what outputs need beyond the gathered is the update's.
        let mut needed: HashSet<Id> = self.graph.outputs.iter().map(|output| output.id).collect();
        for node in self.graph.nodes.iter().rev() {
            if needed.contains(&node.output) && !places.contains_key(&node.output) {
                needed.extend(node.inputs.iter().flatten());
            }
        }
        let read = |id: &&Id| needed.contains(id);
        for &id in self.graph.inputs.iter().filter(read) {
            places.insert(id, update.input(&self.graph.value(id).name, self.graph.shape(id).clone())?);
        }
        for node in self.graph.nodes.iter().filter(|node| needed.contains(&node.output)) {
            if places.contains_key(&node.output) {
                continue;
            }
            let mut inputs = vec![];
            for id in &node.inputs {
                let mut place = |id: &Id| match &self.graph.value(*id).constant {
                    Some(constant) => update.constant(&self.graph.value(*id).name, constant.clone()),
                    None => places[id],
                };
                inputs.push(id.as_ref().map(&mut place));
            }
            let place = update.add_node(&node.name, &node.op, &inputs, node.attributes.clone())?;
            places.insert(node.output, place);
        }
        for output in &self.graph.outputs {
            update.output(&output.name, places[&output.id]);
        }
        Ok(Some([without_unread(&remove_dead(&shard)?)?, update]))
    }

    /// What the names of gathered values begin with.
    pub const GATHERED: &'static str = "g.";

    /// What is kept under which name, for [`CompileOptions::kept`](crate::CompileOptions::kept).
    pub fn kept(&self) -> BTreeMap<String, String> {
        self.state.iter().map(|state| (state.name.clone(), state.name.clone())).collect()
    }

    /// The same step without noise: what it computes does not depend on chance.
    ///
    /// # Errors
    /// Never, of a step that was made here.
    pub fn without_noise(&self) -> Result<Self, Problem> {
        let mut rewrite = Rewrite::new(&self.graph)?;
        for node in &self.graph.nodes {
            if node.op != NOISY_SUM {
                rewrite.copy(node)?;
                continue;
            }
            let inputs: Vec<_> = node.inputs.iter().map(|id| id.map(|id| rewrite.place(id))).collect();
            let silent = rewrite.add(node, &inputs, node.attributes.clone().with("noise", 0.0f32))?;
            rewrite.put(node.output, silent);
        }
        Ok(Step { graph: rewrite.finish(), privacy: None, ..self.clone() })
    }

    /// The same step with the losses of steps added up in the state: then nothing is revealed by a
    /// step.
    ///
    /// # Errors
    /// If the step does not reveal its loss.
    pub fn adding_up_losses(mut self) -> Result<Self, Problem> {
        let place = self.graph.outputs.iter().position(|output| output.name == Self::LOSS);
        let place = place.ok_or_else(|| Refusal::new("reveals no loss", "").at(Self::LOSS, ""))?;
        let loss = self.graph.outputs.remove(place).id;
        let so_far = self.graph.input(Self::LOSS_SO_FAR, self.graph.shape(loss).clone())?;
        let sum = self.graph.add("losses", "Add", &[so_far, loss], Attributes::none())?;
        self.graph.output(Self::LOSS_SO_FAR, sum);
        let start = Tensor::filled(self.graph.shape(loss).clone(), 0.0);
        self.state.push(State { name: Self::LOSS_SO_FAR.into(), start });
        Ok(self)
    }
}

/// The step that trains a model: from a batch, labels and weights to new weights and the batch's
/// mean loss. The gradient of the loss is never divided by the batch: the optimiser's truncation
/// does that.
///
/// A Softmax at the model's end belongs to the cross-entropy and is left out. Batch normalisation
/// is frozen.
///
/// # Errors
/// Every layer behind trained weights that has no backward; a model whose output is not one matrix;
/// names of which nothing is trained.
pub fn differentiate(
    model: &Graph,
    loss: Loss,
    trained: &Trained,
    optimiser: Optimiser,
) -> Result<Step, Problems> {
    make(model, loss, trained, optimiser, Rows::Shards(1))
}

/// As [`differentiate`], of a step that learns from several shards of rows, each as large as the
/// model's batch: the gradients of all are added up before the weights move.
///
/// # Errors
/// As [`differentiate`].
pub fn differentiate_in_shards(
    model: &Graph,
    loss: Loss,
    trained: &Trained,
    optimiser: Optimiser,
    shards: NonZeroU32,
) -> Result<Step, Problems> {
    make(model, loss, trained, optimiser, Rows::Shards(shards.get()))
}

/// As [`differentiate`], with a bound on what the weights tell of a row. The loss is not bounded.
///
/// # Errors
/// As [`differentiate`]; and every trained weight whose gradient is no sum of what is made for each
/// row, as that of a weight that several layers share.
pub fn differentiate_privately(
    model: &Graph,
    loss: Loss,
    trained: &Trained,
    optimiser: Optimiser,
    privacy: Privacy,
) -> Result<Step, Problems> {
    make(model, loss, trained, optimiser, Rows::Bounded(privacy))
}

/// What is known of the rows of a step.
#[derive(Clone, Copy)]
enum Rows {
    /// They come in so many shards.
    Shards(u32),
    /// What the weights may tell of each is bounded.
    Bounded(Privacy),
}

/// What the names of nodes that gather shards begin with.
const GATHERS: &str = "shards.";

/// What such a node gathers, by its name.
fn gathered(node: &str) -> String {
    format!("{}{}", Step::GATHERED, &node[GATHERS.len()..])
}

/// The same graph without inputs that nothing reads.
fn without_unread(graph: &Graph) -> Result<Graph, Problem> {
    let mut graph = graph.clone();
    let read: HashSet<Id> =
        graph.nodes.iter().flat_map(|node| node.inputs.iter().flatten().copied()).collect();
    let outputs: HashSet<Id> = graph.outputs.iter().map(|output| output.id).collect();
    graph.inputs.retain(|id| read.contains(id) || outputs.contains(id));
    Ok(graph)
}

fn make(
    model: &Graph,
    loss: Loss,
    trained: &Trained,
    optimiser: Optimiser,
    rows: Rows,
) -> Result<Step, Problems> {
    let (shards, privacy) = match rows {
        Rows::Shards(shards) => (shards, None),
        Rows::Bounded(privacy) => (1, Some(privacy)),
    };
    let Untied { mut graph, output: logits, labels, inputs, mut state } = untie(model, loss, trained, true)?;
    let (batch, labels) = (graph.shape(logits).dims()[0], labels.expect("they were asked for"));
    graph.outputs.clear();
    let lasts = Lasts::new(&mut graph, optimiser, &mut state)?;
    let all = batch * shards as usize;
    // As many times one shard's as there are shards: as if all were equal.
    let gather = |graph: &mut Graph, name: &str, part: Id| match shards {
        1 => Ok(part),
        _ => {
            let all = Attributes::none().with("factor", shards as f32);
            graph.add(&format!("{GATHERS}{name}"), AFFINE, &[part], all)
        }
    };
    let OfLoss { delta, sum, share } = loss.gradient(&mut graph, logits, labels)?;
    let sum = gather(&mut graph, Step::LOSS, sum)?;
    let share = Attributes::none().with("factor", share / all as f32);
    let mean = graph.add("loss.mean", AFFINE, &[sum], share)?;
    let found = gradients(&mut graph, logits, delta, &inputs)?;
    let mut of_weights = vec![];
    for (state, gradient) in state.iter().zip(found) {
        let Some(gradient) = gradient else {
            let refusal = Refusal::new("does not reach the loss", "train only what does");
            return Err(refusal.because(Cause::Invalid).at(&state.name, "").into());
        };
        of_weights.push((state.name.clone(), gather(&mut graph, &state.name, gradient)?));
    }
    if let Some(privacy) = privacy {
        let data: Vec<Id> = graph.inputs.iter().copied().filter(|id| is_data(&graph, *id, &state)).collect();
        let noisy = private(&mut graph, privacy, batch, &data, &of_weights)?;
        of_weights.iter_mut().zip(noisy).for_each(|((_, gradient), noisy)| *gradient = noisy);
    }
    for (i, (&weight, (name, gradient))) in inputs.iter().zip(&of_weights).enumerate() {
        let step = lasts.step(&mut graph, optimiser, all, (name, i), [weight, *gradient])?;
        let moved = graph.add(&format!("moved.{name}"), "Sub", &[weight, step], Attributes::none())?;
        graph.output(name, moved);
    }
    graph.output(Step::LOSS, mean);
    Ok(Step { graph, state, batch, shards, loss, privacy })
}

/// Whether an input is a row's data: no label, and nothing that lasts.
fn is_data(graph: &Graph, id: Id, state: &[State]) -> bool {
    let name = &graph.value(id).name;
    name != Step::LABELS && state.iter().all(|state| state.name != *name)
}

/// A model whose trained weights are inputs, `w.` and their names: what a step of training begins
/// with, and what a model that was trained on shares is run as. A Softmax at its end is left out
/// where it belongs to the loss.
///
/// # Errors
/// As [`differentiate`].
pub fn forward(model: &Graph, loss: Loss, trained: &Trained) -> Result<(Graph, Vec<State>), Problems> {
    untie(model, loss, trained, false).map(|untied| (untied.graph, untied.state))
}

/// A model whose trained weights are inputs.
pub(super) struct Untied {
    pub(super) graph: Graph,
    pub(super) output: Id,
    /// An input of the output's shape, if there are to be labels.
    pub(super) labels: Option<Id>,
    /// The weights, and with what they begin.
    pub(super) inputs: Vec<Id>,
    pub(super) state: Vec<State>,
}

pub(super) fn untie(model: &Graph, loss: Loss, trained: &Trained, labels: bool) -> Result<Untied, Problems> {
    let model = remove_identities(model)?;
    let model = loss.without_its_function(model)?;
    let model = fuse_layer_norm(&fuse_gelu(&fuse_masks(&model)?)?)?;
    let model = split_layer_norm(&fuse_swish(&remove_dead(&model)?)?)?;
    let model = pool_before_activation(&model)?;
    let about_model = |what: &str, remedy: &str| {
        Problems(vec![Refusal::new(what, remedy).because(Cause::Invalid).at(&model.name, "")])
    };
    let [output] = &model.outputs[..] else {
        return Err(about_model("training takes a model of one output", "export it with its logits only"));
    };
    if model.shape(output.id).rank() != 2 {
        return Err(about_model("its output is no matrix of a row for each input", "flatten it"));
    }
    let weights = choose(&model, trained)?;
    let mut rewrite = Rewrite::new(&model)?;
    let labels = match labels {
        true => Some(rewrite.new.input(Step::LABELS, model.shape(output.id).clone())?),
        false => None,
    };
    let (mut inputs, mut state) = (vec![], vec![]);
    for &id in &weights {
        let (name, start) = (format!("w.{}", model.value(id).name), model.floats(id));
        let start = start.expect("only real numbers are chosen");
        let input = rewrite.new.input(&name, start.shape.clone())?;
        rewrite.put(id, input);
        inputs.push(input);
        state.push(State { name, start: (**start).clone() });
    }
    // What depends on a node that takes its weights as constants only is not reported: it would say
    // nothing new.
    let (mut refused, mut missing) = (vec![], BTreeSet::new());
    for node in &model.nodes {
        if node.inputs.iter().flatten().any(|id| missing.contains(id)) {
            missing.insert(node.output);
        } else if let Err(problem) = rewrite.copy(node) {
            refused.push(problem);
            missing.insert(node.output);
        }
    }
    if !refused.is_empty() {
        return Err(Problems(refused));
    }
    let output = rewrite.place(output.id);
    Ok(Untied { graph: rewrite.finish(), output, labels, inputs, state })
}

/// The constants that are trained, in the order in which nodes read them.
fn choose(model: &Graph, trained: &Trained) -> Result<Vec<Id>, Problems> {
    let mut chosen: Vec<Id> = vec![];
    let mut used = BTreeSet::new();
    for node in &model.nodes {
        for (i, &id) in node.inputs.iter().enumerate().filter_map(|(i, id)| Some((i, id.as_ref()?))) {
            let Some(tensor) = model.floats(id) else { continue };
            let wanted = match trained {
                Trained::All => is_weight(node, i) && (node.op != "Add" || tensor.data.len() > 1),
                Trained::Only(names) => {
                    let named = |own: &str, name: &str| {
                        own.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
                    };
                    let by = |n: &&String| named(&model.value(id).name, n) || named(&node.name, n);
                    let by: Vec<&String> = names.iter().filter(by).collect();
                    let any = !by.is_empty();
                    used.extend(by);
                    any
                }
            };
            if wanted && !chosen.contains(&id) {
                chosen.push(id);
            }
        }
    }
    if let Trained::Only(names) = trained
        && let Some(unused) = names.iter().find(|name| !used.contains(name))
    {
        let what = "no weights and no layer with weights have this name";
        return Err(Refusal::new(what, "").because(Cause::Invalid).at(unused, "").into());
    }
    if chosen.is_empty() {
        let what = "has no weights to train";
        return Err(Refusal::new(what, "").because(Cause::Invalid).at(&model.name, "").into());
    }
    Ok(chosen)
}

/// Whether an input of a node holds weights, where it is a constant.
fn is_weight(node: &Node, input: usize) -> bool {
    match node.op.as_str() {
        "Gemm" | "MatMul" | "Add" => true,
        "Conv" => input > 0,
        "Mul" => node.name.ends_with(LAYER_NORM_SCALE),
        _ => false,
    }
}
