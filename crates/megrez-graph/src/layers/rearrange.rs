//! What only rearranges its input: Identity, Dropout, Cast, Constant, Flatten, Reshape, Transpose,
//! Squeeze, Unsqueeze, Slice. Each is one [`View`], which is local.

use super::call::{Call, axis};
use super::known;
use crate::float::lowering::{FloatLowering, FloatOperand};
use crate::gradients::{Gradients, list};
use crate::graph::{Attribute, Attributes, Id};
use crate::layer::Layer;
use crate::lowering::{Lowering, Operand, Secret};
use crate::problem::{Refusal, refuse};
use crate::tensor::{Constant, Tensor};
use megrez_plan::{ValueId, View};
use megrez_ring::Shape;
use std::sync::Arc;

struct Rearrange {
    view: View,
}

pub(super) fn layer(view: View) -> Result<Arc<dyn Layer>, Refusal> {
    Ok(Arc::new(Rearrange { view }))
}

/// The same elements under another shape.
fn renamed(from: &Shape, dims: Vec<usize>) -> Result<Arc<dyn Layer>, Refusal> {
    match Shape::new(dims).checked() {
        Ok(to) if to.elements() == from.elements() => layer(View::whole(to)),
        Ok(to) | Err(megrez_ring::ShapeError::TooLarge(to)) => {
            refuse(format!("{from} and {to:?} differ in their number of elements"), "")
        }
        Err(e) => refuse(e.to_string(), ""),
    }
}

pub(super) fn identity(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    call.only(1, &[])?;
    layer(View::whole(call.any_shape(0)?.clone()))
}

pub(super) fn dropout(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    call.only(3, &["ratio", "seed", "is_test"])?;
    if call.int("is_test", 1)? != 1 {
        return refuse(
            "is in training mode: it drops numbers at random",
            "call `model.eval()` before you export the model",
        );
    }
    layer(View::whole(call.shape(0)?.clone()))
}

pub(super) fn cast(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    call.only(1, &["to", "saturate"])?;
    let to = call.int("to", 0)?;
    if let Some(constant) = &call.graph.value(call.id(0)?).constant {
        return known::cast(constant, to);
    }
    // 1 float, 11 double; 6 int32, 7 int64: tokens are integers already.
    if ![1, 11, 6, 7].contains(&to) {
        return refuse(
            format!("casts to the ONNX data type {to}"),
            "keep values in float32 and shapes in int64",
        );
    }
    layer(View::whole(call.any_shape(0)?.clone()))
}

/// A tensor in an attribute. Importers turn it into a constant; it is a layer for graphs built by
/// hand.
pub(super) fn constant(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    call.only(0, &["value"])?;
    match call.attributes.0.get("value") {
        Some(Attribute::Tensor(Constant::Floats(t))) => Ok(Arc::new(Fixed(t.clone()))),
        _ => refuse("has no `value` of float32", "use Graph::constant"),
    }
}

struct Fixed(Arc<Tensor>);

impl Layer for Fixed {
    fn shape(&self) -> &Shape {
        &self.0.shape
    }

    fn plain(&self, _inputs: &[&Tensor]) -> Tensor {
        (*self.0).clone()
    }

    fn lower(&self, _cx: &mut Lowering, _inputs: &[Operand]) -> Result<Secret, Refusal> {
        refuse("is a constant that no pass folded", "use Graph::constant")
    }
}

pub(super) fn flatten(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    call.only(1, &["axis"])?;
    let shape = call.shape(0)?;
    let rank = shape.rank() as i64;
    let at = match call.int("axis", 1)? {
        at if at == rank => shape.rank(),
        at => axis(at, shape.rank())?,
    };
    let (outer, inner) = shape.dims().split_at(at);
    renamed(shape, vec![outer.iter().product(), inner.iter().product()])
}

pub(super) fn reshape(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    call.only(2, &["allowzero", "shape"])?;
    let from = call.any_shape(0)?;
    let Some(to) = call.integers(1, "shape")? else { return refuse("the new shape is missing", "") };
    let keep_zero = call.int("allowzero", 0)? == 0;
    let mut dims = vec![];
    for (d, &n) in to.iter().enumerate() {
        dims.push(match n {
            0 if keep_zero => match from.dims().get(d) {
                Some(&n) => n,
                None => return refuse(format!("dimension {d} of {to:?} copies what {from} lacks"), ""),
            },
            -1 => usize::MAX,
            _ => usize::try_from(n).map_err(|_| Refusal::new(format!("{to:?} is not a shape"), ""))?,
        });
    }
    let free: Vec<usize> = (0..dims.len()).filter(|&d| to[d] == -1).collect();
    if let [d] = free[..] {
        let known = (0..dims.len()).filter(|&i| i != d).try_fold(1usize, |n, i| n.checked_mul(dims[i]));
        match known {
            Some(n) if n > 0 && from.elements() % n == 0 => dims[d] = from.elements() / n,
            _ => {
                return refuse(
                    format!("cannot reshape {from} to {to:?}"),
                    "export with the batch size you compile for",
                );
            }
        }
    } else if free.len() > 1 {
        return refuse(format!("{to:?} leaves more than one dimension open"), "");
    }
    renamed(from, dims)
}

pub(super) fn transpose(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    call.only(1, &["perm"])?;
    let shape = call.any_shape(0)?;
    let rank = shape.rank();
    let order = match call.ints("perm")? {
        Some(order) => order.iter().map(|&d| axis(d, rank)).collect::<Result<Vec<_>, _>>()?,
        None => (0..rank).rev().collect(),
    };
    if order.len() != rank || (0..rank).any(|d| !order.contains(&d)) {
        return refuse(format!("`perm` = {order:?} is no order of {rank} dimensions"), "");
    }
    layer(View::transpose(shape, &order))
}

pub(super) fn expand(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    call.only(2, &[])?;
    let from = call.any_shape(0)?;
    let dims = call.integers(1, "shape")?.unwrap_or_default();
    let dims = dims.iter().map(|&d| usize::try_from(d)).collect::<Result<Vec<usize>, _>>();
    let to = dims.ok().map(Shape::new).and_then(|to| from.broadcast(&to).ok());
    match to.and_then(|to| View::broadcast(from, &crate::tensor::sane(to).ok()?)) {
        Some(view) => layer(view),
        None => refuse(format!("{from} does not broadcast to the shape that is asked for"), ""),
    }
}

pub(super) fn squeeze(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    call.only(2, &["axes"])?;
    let shape = call.any_shape(0)?;
    let axes = match call.integers(1, "axes")? {
        Some(axes) => axes.iter().map(|&a| axis(a, shape.rank())).collect::<Result<Vec<_>, _>>()?,
        None => (0..shape.rank()).filter(|&d| shape.dims()[d] == 1).collect(),
    };
    let kept = (0..shape.rank()).filter(|d| !axes.contains(d));
    renamed(shape, kept.map(|d| shape.dims()[d]).collect())
}

pub(super) fn unsqueeze(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    call.only(2, &["axes"])?;
    let shape = call.any_shape(0)?;
    let axes = call.integers(1, "axes")?.unwrap_or_default();
    let rank = shape.rank() + axes.len();
    if rank > 8 {
        return refuse("has more than 8 dimensions", "");
    }
    let mut axes = axes.iter().map(|&a| axis(a, rank)).collect::<Result<Vec<_>, _>>()?;
    axes.sort_unstable();
    if axes.windows(2).any(|w| w[0] == w[1]) {
        return refuse("an axis occurs twice", "");
    }
    let mut dims = shape.dims().to_vec();
    axes.iter().for_each(|&a| dims.insert(a, 1));
    renamed(shape, dims)
}

pub(super) fn slice(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    call.only(5, &["starts", "ends", "axes"])?;
    let shape = call.any_shape(0)?;
    let (Some(starts), Some(ends)) = (call.integers(1, "starts")?, call.integers(2, "ends")?) else {
        return refuse("starts or ends are missing", "");
    };
    let axes = call.integers(3, "axes")?.unwrap_or_else(|| (0..starts.len() as i64).collect());
    let steps = match call.has(4) {
        true => call.integers(4, "")?.unwrap_or_default(),
        false => vec![1; starts.len()],
    };
    if [ends.len(), axes.len(), steps.len()] != [starts.len(); 3] || starts.len() > shape.rank() {
        return refuse("starts, ends, axes and steps differ in length", "");
    }
    let mut view = View::whole(shape.clone());
    let mut seen = vec![];
    for i in 0..starts.len() {
        let (axis, step) = (axis(axes[i], shape.rank())?, steps[i]);
        if seen.contains(&axis) || step == 0 || step.unsigned_abs() > 1 << 32 {
            return refuse("an axis occurs twice, or a step is 0 or absurd", "");
        }
        seen.push(axis);
        let size = shape.dims()[axis] as i64;
        let place = |v: i64| if v < 0 { v.saturating_add(size) } else { v };
        let (start, count) = if step > 0 {
            let (start, end) = (place(starts[i]).clamp(0, size), place(ends[i]).clamp(0, size));
            (start, (end - start).max(0).unsigned_abs().div_ceil(step.unsigned_abs()))
        } else {
            let (start, end) = (place(starts[i]).clamp(-1, size - 1), place(ends[i]).clamp(-1, size - 1));
            (start, (start - end).max(0).unsigned_abs().div_ceil(step.unsigned_abs()))
        };
        let ints = matches!(call.graph.value(call.id(0)?).constant, Some(Constant::Ints(_)));
        if count == 0 && ints && shape.rank() == 1 {
            return known::known(Tensor::<i64>::new([0], vec![]));
        }
        if count == 0 {
            return refuse(format!("takes nothing from axis {axis}"), "");
        }
        let stride = shape.strides()[axis];
        view.offset += start as usize * stride;
        view.strides[axis] = step as isize * stride as isize;
        let mut dims = view.shape.dims().to_vec();
        dims[axis] = count as usize;
        view.shape = dims.into();
    }
    layer(view)
}

/// The order of dimensions that undoes a view, if that only exchanges dimensions.
fn order(from: &Shape, view: &View) -> Option<Vec<i64>> {
    let strides = from.strides();
    let mut order = vec![];
    for (&dim, &stride) in view.shape.dims().iter().zip(&view.strides) {
        let same = |d: &usize| from.dims()[*d] == dim && (dim == 1 || strides[*d] as isize == stride);
        order.push((0..from.rank()).filter(|d| !order.contains(d)).find(same)?);
    }
    (order.len() == from.rank() && View::transpose(from, &order).indices().eq(view.indices()))
        .then_some(())?;
    let mut back = vec![0; order.len()];
    order.iter().enumerate().for_each(|(to, &from)| back[from] = to as i64);
    Some(back)
}

/// What surrounds a block that a view takes out of a value, as the sizes of a Pad; `None` if it
/// takes something else.
fn around(from: &Shape, view: &View) -> Option<Vec<i64>> {
    let (strides, mut left) = (from.strides(), view.offset);
    if view.strides.len() != strides.len()
        || view.strides.iter().zip(&strides).any(|(a, &b)| *a != b as isize)
    {
        return None;
    }
    let (mut before, mut after) = (vec![], vec![]);
    for ((&stride, &all), &taken) in strides.iter().zip(from.dims()).zip(view.shape.dims()) {
        let start = left / stride;
        left %= stride;
        before.push(start as i64);
        after.push(all.checked_sub(start + taken)? as i64);
    }
    Some([before, after].concat())
}

impl Layer for Rearrange {
    fn shape(&self) -> &Shape {
        &self.view.shape
    }

    fn plain(&self, inputs: &[&Tensor]) -> Tensor {
        inputs[0].view(&self.view)
    }

    fn fold_ints(&self, inputs: &[&Tensor<i64>]) -> Option<Tensor<i64>> {
        Some(inputs.first()?.view(&self.view))
    }

    fn view(&self) -> Option<&View> {
        Some(&self.view)
    }

    fn backward(
        &self,
        g: &mut Gradients,
        inputs: &[Id],
        _output: Id,
        of_output: Id,
        wanted: &[bool],
    ) -> Result<Vec<Option<Id>>, Refusal> {
        // Further inputs are integers that steer it.
        let mut of_inputs = vec![None; wanted.len()];
        let from = g.shape(inputs[0]).clone();
        if self.view.is_contiguous() && self.view.shape.elements() == from.elements() {
            of_inputs[0] = Some(g.reshaped("input", of_output, &from)?);
            return Ok(of_inputs);
        }
        if View::broadcast(&from, &self.view.shape).as_ref() == Some(&self.view) {
            of_inputs[0] = Some(g.summed("input", of_output, &from)?);
            return Ok(of_inputs);
        }
        let of_input = if let Some(back) = order(&from, &self.view) {
            g.add("input", "Transpose", &[of_output], Attributes::none().with("perm", back))?
        } else if let Some(pads) = around(&from, &self.view) {
            g.add("input", "Pad", &[of_output], list("pads", pads))?
        } else {
            let flat = g.reshaped("flat", of_output, &[self.view.shape.elements()].into())?;
            let indices: Vec<usize> = self.view.indices().collect();
            let all = g.unread("input", flat, 0, &indices, from.elements())?;
            g.reshaped("input", all, &from)?
        };
        of_inputs[0] = Some(of_input);
        Ok(of_inputs)
    }

    fn lower(&self, cx: &mut Lowering, inputs: &[Operand]) -> Result<Secret, Refusal> {
        let x = inputs[0].secret()?;
        if let Some(rows) = cx.vocabulary(x) {
            return cx.rearrange_tokens("view", x, &self.view, rows);
        }
        if self.view.is_contiguous() && self.view.shape.elements() == cx.shape(x).elements() {
            return cx.reshape("view", x, self.view.shape.clone());
        }
        cx.view("view", x, self.view.clone())
    }

    fn float(&self, cx: &mut FloatLowering, inputs: &[FloatOperand]) -> Result<ValueId, Refusal> {
        let x = cx.value(&inputs[0]);
        match cx.vocabulary(x) {
            Some(rows) => cx.rearrange_tokens("view", x, &self.view, rows),
            None => cx.view("view", x, self.view.clone()),
        }
    }
}
