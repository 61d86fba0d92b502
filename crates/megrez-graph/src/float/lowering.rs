//! The floating-point plan under construction, as layers see it.

use crate::clients::ModelInput;
use crate::problem::{Refusal, refuse};
use crate::tensor::Tensor;
use megrez_plan::{FloatOp, FloatPlan, Function, Operation, ValueId, View};
use megrez_ring::Shape;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// What a layer computes on.
#[derive(Clone, Debug)]
pub enum FloatOperand {
    /// A secret value.
    Secret(ValueId),
    /// Weights, not yet in the plan.
    Constant(Arc<Tensor>),
}

impl FloatOperand {
    /// The weights, if it is some.
    pub fn constant(&self) -> Option<&Arc<Tensor>> {
        match self {
            FloatOperand::Constant(tensor) => Some(tensor),
            FloatOperand::Secret(_) => None,
        }
    }
}

/// The plan under construction, as layers see it. Each method emits one step under the name
/// `layer/…`.
pub struct FloatLowering {
    pub(super) plan: FloatPlan,
    model_owner: String,
    pub(super) model_inputs: Vec<ModelInput>,
    /// Weights that are in the plan already, by tensor.
    shared: HashMap<*const Tensor, ValueId>,
    /// The weights that `shared` points to: they stay, so that no other takes their place.
    held: Vec<Arc<Tensor>>,
    pub(super) names: HashSet<String>,
    /// For tokens, the rows of the table that they name: the last dimension of their value.
    pub(super) vocabularies: HashMap<ValueId, usize>,
    pub(super) layer: String,
}

impl FloatLowering {
    pub(super) fn new(plan: FloatPlan, model_owner: &str) -> Self {
        FloatLowering {
            plan,
            model_owner: model_owner.into(),
            model_inputs: vec![],
            shared: HashMap::new(),
            held: vec![],
            names: HashSet::new(),
            vocabularies: HashMap::new(),
            layer: String::new(),
        }
    }

    /// The value of an operand; weights become an input of the model's owner.
    pub fn value(&mut self, operand: &FloatOperand) -> ValueId {
        let tensor = match operand {
            FloatOperand::Secret(id) => return *id,
            FloatOperand::Constant(tensor) => tensor,
        };
        if let Some(&id) = self.shared.get(&Arc::as_ptr(tensor)) {
            return id;
        }
        let name = self.unique("weights");
        let id = self.plan.input(&name, &self.model_owner, tensor.shape.clone());
        let shape = tensor.shape.clone();
        self.model_inputs.push(ModelInput { name, shape, frac: 0, values: tensor.data.clone() });
        self.shared.insert(Arc::as_ptr(tensor), id);
        self.held.push(tensor.clone());
        id
    }

    /// The value of weights that the layer has changed in the clear.
    pub fn weights(&mut self, tensor: Tensor) -> ValueId {
        self.value(&FloatOperand::Constant(Arc::new(tensor)))
    }

    /// The dimensions of a value.
    pub fn shape(&self, x: ValueId) -> &Shape {
        self.plan.shape(x)
    }

    /// f(x).
    pub fn map(&mut self, name: &str, f: Function, x: ValueId) -> Result<ValueId, Refusal> {
        self.step(name, FloatOp::Map(f), &[x])
    }

    /// An operation on two values, both broadcast to `shape`.
    pub fn pair(
        &mut self,
        name: &str,
        f: Operation,
        x: ValueId,
        y: ValueId,
        shape: &Shape,
    ) -> Result<ValueId, Refusal> {
        let x = self.broadcast(&format!("{name}-left"), x, shape)?;
        let y = self.broadcast(&format!("{name}-right"), y, shape)?;
        self.step(name, FloatOp::Pair(f), &[x, y])
    }

    /// Of two values, by a third: `yes` where it is not zero, `no` where it is; all are broadcast
    /// to `shape`.
    pub fn choose(
        &mut self,
        name: &str,
        [condition, yes, no]: [ValueId; 3],
        shape: &Shape,
    ) -> Result<ValueId, Refusal> {
        let condition = self.broadcast(&format!("{name}-condition"), condition, shape)?;
        let yes = self.broadcast(&format!("{name}-yes"), yes, shape)?;
        let no = self.broadcast(&format!("{name}-no"), no, shape)?;
        self.step(name, FloatOp::Choose, &[condition, yes, no])
    }

    /// The operation on a value and one public number.
    pub fn with_number(
        &mut self,
        name: &str,
        f: Operation,
        x: ValueId,
        number: f32,
    ) -> Result<ValueId, Refusal> {
        let shape = self.shape(x).clone();
        let number = self.public(&format!("{name}-number"), &Tensor::filled([], number))?;
        self.pair(name, f, x, number, &shape)
    }

    /// Numbers of the architecture, which everybody may know.
    pub fn public(&mut self, name: &str, tensor: &Tensor) -> Result<ValueId, Refusal> {
        let bits = tensor.data.iter().map(|v| v.to_bits()).collect();
        self.step(name, FloatOp::Constant { shape: tensor.shape.clone(), bits }, &[])
    }

    /// [.., m, k] · [.., k, n].
    pub fn matmul(&mut self, name: &str, x: ValueId, y: ValueId) -> Result<ValueId, Refusal> {
        self.step(name, FloatOp::MatMul, &[x, y])
    }

    /// The sums over the first dimension.
    pub fn sum(&mut self, name: &str, x: ValueId) -> Result<ValueId, Refusal> {
        self.step(name, FloatOp::Sum, &[x])
    }

    /// The largest over the first dimension.
    pub fn largest(&mut self, name: &str, x: ValueId) -> Result<ValueId, Refusal> {
        self.step(name, FloatOp::Largest, &[x])
    }

    /// The sums over the last dimension.
    pub fn sum_rows(&mut self, name: &str, x: ValueId) -> Result<ValueId, Refusal> {
        let x = self.last_first(name, x)?;
        self.step(name, FloatOp::Sum, &[x])
    }

    /// The largest over the last dimension.
    pub fn largest_of_rows(&mut self, name: &str, x: ValueId) -> Result<ValueId, Refusal> {
        let x = self.last_first(name, x)?;
        self.step(name, FloatOp::Largest, &[x])
    }

    /// The means over the last dimension: a sum, then a division by a public number.
    pub fn mean_of_rows(&mut self, name: &str, x: ValueId) -> Result<ValueId, Refusal> {
        let n = self.shape(x).dims()[self.shape(x).rank() - 1];
        let sum = self.sum_rows(&format!("{name}-sum"), x)?;
        self.divided(name, sum, n)
    }

    /// x / n, by a product where that is exact.
    pub fn divided(&mut self, name: &str, x: ValueId, n: usize) -> Result<ValueId, Refusal> {
        match n {
            1 => Ok(x),
            n if n.is_power_of_two() => self.with_number(name, Operation::Mul, x, 1.0 / n as f32),
            n => self.with_number(name, Operation::Div, x, n as f32),
        }
    }

    /// The last dimension first.
    fn last_first(&mut self, name: &str, x: ValueId) -> Result<ValueId, Refusal> {
        let shape = self.shape(x).clone();
        let rank = shape.rank();
        let order: Vec<usize> = std::iter::once(rank - 1).chain(0..rank - 1).collect();
        self.view(&format!("{name}-terms"), x, View::transpose(&shape, &order))
    }

    /// A rearrangement; none where nothing moves.
    pub fn view(&mut self, name: &str, x: ValueId, view: View) -> Result<ValueId, Refusal> {
        if *self.shape(x) == view.shape && view.is_contiguous() {
            return Ok(x);
        }
        self.step(name, FloatOp::View(view), &[x])
    }

    /// The same elements under another shape.
    pub fn reshape(&mut self, name: &str, x: ValueId, shape: Shape) -> Result<ValueId, Refusal> {
        self.view(name, x, View::whole(shape))
    }

    /// A value repeated to a shape.
    pub fn broadcast(&mut self, name: &str, x: ValueId, to: &Shape) -> Result<ValueId, Refusal> {
        match View::broadcast(self.shape(x), to) {
            Some(view) => self.view(name, x, view),
            None => refuse(format!("{} does not broadcast to {to}", self.shape(x)), ""),
        }
    }

    /// The elements of some values at places counted through one after the other; `None` is +0.
    pub fn gather(
        &mut self,
        name: &str,
        from: &[ValueId],
        shape: Shape,
        places: impl Iterator<Item = Option<usize>>,
    ) -> Result<ValueId, Refusal> {
        let elements: usize = from.iter().map(|&x| self.shape(x).elements()).sum();
        let place = |p: Option<usize>| u32::try_from(p.unwrap_or(elements));
        let Ok(places) = places.map(place).collect::<Result<Vec<u32>, _>>() else {
            return refuse("has too many elements", "use a smaller batch");
        };
        self.step(name, FloatOp::Gather { shape, places }, from)
    }

    /// The rows of a table that rows of zeros and a single 1 name: [t, n] · [n, w].
    pub fn lookup(&mut self, name: &str, ones: ValueId, table: ValueId) -> Result<ValueId, Refusal> {
        self.step(name, FloatOp::Lookup, &[ones, table])
    }

    /// For tokens, the rows of the table that they name.
    pub fn vocabulary(&self, x: ValueId) -> Option<usize> {
        self.vocabularies.get(&x).copied()
    }

    /// A view of tokens as the graph sees them, without the dimension of their table's rows.
    pub fn rearrange_tokens(
        &mut self,
        name: &str,
        x: ValueId,
        view: &View,
        rows: usize,
    ) -> Result<ValueId, Refusal> {
        let y = self.view(name, x, view.of_rows(rows))?;
        self.vocabularies.insert(y, rows);
        Ok(y)
    }

    fn step(&mut self, name: &str, op: FloatOp, inputs: &[ValueId]) -> Result<ValueId, Refusal> {
        let name = self.unique(name);
        self.plan.step(&name, op, inputs).map_err(|e| Refusal::new(e.to_string(), ""))
    }

    fn unique(&mut self, name: &str) -> String {
        let base = format!("{}/{name}", self.layer);
        let candidates = std::iter::once(base.clone()).chain((2..).map(|i| format!("{base}-{i}")));
        candidates.into_iter().find(|n| self.names.insert(n.clone())).expect("numbers do not end")
    }
}
