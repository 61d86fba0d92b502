//! What comes into the plan, and what stays in it: data, tokens, weights, kept values.

use super::operand::{Operand, Secret, Weight};
use super::plan::Lowering;
use crate::clients::{DataInput, ModelInput};
use crate::layer::Layer;
use crate::problem::{Refusal, out_of_range, refuse};
use crate::range::{Interval, Range};
use crate::scale::Scale;
use crate::tensor::Tensor;
use megrez_plan::{KEPT, Op, ValueId, View};
use megrez_ring::Shape;
use megrez_weights::Matrix;
use std::collections::HashMap;
use std::sync::Arc;

/// The fewest fraction bits that an operand of a coarser product keeps.
const FEWEST: u32 = 4;

/// A product's operand may carry this many fraction bits more than `frac` before it is truncated.
pub(crate) const SPARE_BITS: u32 = 8;

impl Lowering<'_> {
    /// Declares an input of the data owner.
    pub(crate) fn data_input(&mut self, name: &str, shape: &Shape) -> Result<(Secret, DataInput), Refusal> {
        let frac = *self.options.kept_frac.get(name).unwrap_or(&self.options.frac);
        let range = *self.options.input_ranges.get(name).unwrap_or(&self.options.input_range);
        if !self.names.insert(name.into()) {
            return refuse("two inputs have the same name", "rename one");
        }
        let word = |v: f64| (v * 2f64.powi(frac as i32)).round() as i128;
        let words = Range::uniform(word(range.low), word(range.high));
        if words.magnitude() >= 1 << (self.options.ring - 2) {
            return out_of_range(
                "the declared range of the input does not fit the ring",
                "scale the data down",
            );
        }
        let id = self.plan.input(name, &self.options.data_owner, shape.clone(), frac);
        self.data.insert(id);
        let input =
            DataInput { name: name.into(), shape: shape.clone(), frac, range, tokens: None, table: None };
        Ok((Secret { id, range: words }, input))
    }

    /// Declares an input that an earlier run has kept.
    pub(crate) fn kept_input(&mut self, name: &str, shape: &Shape) -> Result<Secret, Refusal> {
        let (secret, _) = self.data_input(name, shape)?;
        self.data.remove(&secret.id);
        let input = self.plan.inputs.iter_mut().find(|input| input.value == secret.id);
        input.expect("it was just declared").owner = KEPT.into();
        Ok(secret)
    }

    /// Keeps a value with f fraction bits, or with all that it has; its bounds.
    pub(crate) fn keep(&mut self, name: &str, x: &Secret) -> Result<Interval, Refusal> {
        let x = match self.options.unrounded.contains(name) {
            true => x.clone(),
            false => self.rounded("rounded", x, self.frac())?,
        };
        self.plan.output(name, KEPT, x.id);
        Ok(self.layer_range(&x).output)
    }

    /// Declares an input of tokens of the data owner: rows of a table with so many of them.
    pub(crate) fn token_input(
        &mut self,
        name: &str,
        shape: &Shape,
        rows: usize,
        table: Option<&Arc<Matrix>>,
    ) -> Result<(Secret, DataInput), Refusal> {
        if !self.names.insert(name.into()) {
            return refuse("two inputs have the same name", "rename one");
        }
        let range = Interval { low: 0.0, high: (rows - 1) as f64 };
        if let Some(table) = table {
            let frac = self.frac();
            let embedded: Shape = [shape.dims(), &[table.columns()]].concat().into();
            let embedded = embedded.checked().map_err(|e| Refusal::new(e.to_string(), ""))?;
            let id = self.plan.input(name, &self.options.data_owner, embedded, frac);
            self.embedded.insert(id, table.columns());
            self.vocabularies.insert(id, rows);
            let largest = i128::from(table.largest(frac));
            let (shape, table) = (shape.clone(), Some(table.clone()));
            let input = DataInput { name: name.into(), shape, frac, range, tokens: Some(rows), table };
            return Ok((Secret { id, range: Range::uniform(-largest, largest) }, input));
        }
        let many: Shape = [shape.dims(), &[rows]].concat().into();
        let many = many.checked().map_err(|e| Refusal::new(e.to_string(), ""))?;
        let id = self.plan.input(name, &self.options.data_owner, many, 0);
        self.vocabularies.insert(id, rows);
        let shape = shape.clone();
        let input = DataInput { name: name.into(), shape, frac: 0, range, tokens: Some(rows), table: None };
        Ok((Secret { id, range: Range::uniform(0, 1) }, input))
    }

    /// For tokens, the rows of the table that they name.
    pub fn vocabulary(&self, x: &Secret) -> Option<usize> {
        self.vocabularies.get(&x.id).copied()
    }

    /// Whether the owner of tokens shares rows of this table in their place.
    pub fn is_embedded(&self, x: &Secret) -> bool {
        self.embedded.contains_key(&x.id)
    }

    /// The rows that the owner of tokens has looked up: numbers from here on, and tokens no more.
    pub fn looked_up(&mut self, tokens: &Secret, shape: Shape) -> Result<Secret, Refusal> {
        self.emit("rows", Op::View(View::whole(shape)), &[tokens.id], tokens.range.clone())
    }

    /// A view of tokens as the graph sees them, without the dimension of their table's rows.
    pub fn rearrange_tokens(
        &mut self,
        name: &str,
        x: &Secret,
        view: &View,
        rows: usize,
    ) -> Result<Secret, Refusal> {
        let embedded = self.embedded.get(&x.id).copied();
        let y = self.view(name, x, view.of_rows(embedded.unwrap_or(rows)))?;
        self.vocabularies.insert(y.id, rows);
        embedded.map(|columns| self.embedded.insert(y.id, columns));
        Ok(y)
    }

    /// Weights with `frac` fraction bits: an input of the model owner, or a constant of the plan.
    pub fn weight(&mut self, role: &str, tensor: &Tensor, frac: u32) -> Result<Weight, Refusal> {
        if !self.options.private_weights {
            return self.constant(role, tensor, frac);
        }
        self.reads_weights = true;
        let words = self.words(&tensor.data, frac)?;
        let (name, shape) = (self.unique(role), tensor.shape.clone());
        let id = self.plan.input(&name, &self.options.model_owner, shape.clone(), frac);
        let values = tensor.data.clone();
        self.model_inputs.push(ModelInput { name, shape: shape.clone(), frac, values });
        Ok(Weight { id, shape, words })
    }

    /// Numbers that stand in the plan, with `frac` fraction bits.
    pub(super) fn constant(&mut self, role: &str, tensor: &Tensor, frac: u32) -> Result<Weight, Refusal> {
        let words = self.words(&tensor.data, frac)?;
        let (name, shape) = (self.unique(role), tensor.shape.clone());
        let id = self.step(&name, Op::Constant { shape: shape.clone(), frac, words: words.clone() }, &[])?;
        Ok(Weight { id, shape, words })
    }

    /// Whether weights are in the plan already because [`Lowering::lookup`] reads them.
    pub fn is_shared(&self, tensor: &Arc<Tensor>) -> bool {
        self.shared.contains_key(&(Arc::as_ptr(tensor), self.frac()))
    }

    /// Weights that come into the plan once, however many layers read them.
    pub(super) fn shared_weight(&mut self, role: &str, tensor: &Arc<Tensor>) -> Result<Weight, Refusal> {
        let key = (Arc::as_ptr(tensor), self.frac());
        if let Some(&id) = self.shared.get(&key) {
            self.reads_weights |= self.options.private_weights;
            let words = self.words(&tensor.data, self.frac())?;
            return Ok(Weight { id, shape: tensor.shape.clone(), words });
        }
        let weight = self.weight(role, tensor, self.frac())?;
        self.shared.insert(key, weight.id);
        Ok(weight)
    }

    /// A layer's operands: what it multiplies is truncated before, unless that can be spared.
    pub(crate) fn operands(
        &mut self,
        operands: Vec<Operand>,
        layer: &dyn Layer,
    ) -> Result<Vec<Operand>, Refusal> {
        let scale = layer.scale().with(self.options.activations);
        let waits = |operand: &Operand| operand.secret().is_ok_and(|x| self.waiting.contains(&x.id));
        let spares = self.spares || (self.goes_on && operands.iter().any(waits));
        if spares && layer.multilinear() && self.coarser == 0 {
            return self.spared(operands, layer);
        }
        let limit = self.frac() + SPARE_BITS;
        let settle = |operand| match operand {
            Operand::Secret(x) if scale == Scale::Product && self.frac_of(&x) > limit => {
                Ok(Operand::Secret(self.shorter(&x)?))
            }
            operand => Ok(operand),
        };
        let operands: Vec<Operand> = operands.into_iter().map(settle).collect::<Result<_, Refusal>>()?;
        if self.coarser == 0 { Ok(operands) } else { self.coarser(operands) }
    }

    /// Operands of a product with fewer fraction bits: as many fewer as the largest number has
    /// digits before the point, so that it keeps the plan's precision; and no fewer than
    /// [`FEWEST`], or than make the plan's in the product.
    fn coarser(&mut self, operands: Vec<Operand>) -> Result<Vec<Operand>, Refusal> {
        let several = operands.iter().filter(|o| matches!(o, Operand::Secret(_))).count() > 1;
        let most = if several { self.frac() / 2 } else { self.frac() };
        let bits = if several { self.coarser.div_ceil(2) } else { self.coarser }.min(most);
        // A square stays one.
        let mut done: HashMap<ValueId, Secret> = HashMap::new();
        let give_up = |operand| match operand {
            Operand::Secret(x) => {
                let y = match done.get(&x.id) {
                    Some(y) => y.clone(),
                    None => {
                        let (frac, magnitude) = (self.frac_of(&x), x.range.magnitude());
                        let digits = (i128::BITS - magnitude.leading_zeros()).saturating_sub(frac + 1);
                        let left = frac.saturating_sub(bits.min(digits)).max(FEWEST.min(frac));
                        self.rounded("coarser", &x, left)?
                    }
                };
                done.insert(x.id, y.clone());
                Ok(Operand::Secret(y))
            }
            operand => Ok(operand),
        };
        operands.into_iter().map(give_up).collect()
    }
}
