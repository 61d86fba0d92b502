//! Products, with the bounds that the very weights give.

use super::operand::{Secret, Weight};
use super::plan::Lowering;
use crate::problem::{Refusal, refuse};
use crate::range::{Accumulator, Range};
use crate::tensor::Tensor;
use megrez_plan::{ConvGeometry, Op, View};
use megrez_weights::Matrix;
use std::sync::Arc;

impl Lowering<'_> {
    /// x · y of secret values of one shape.
    pub fn mul(&mut self, name: &str, x: &Secret, y: &Secret) -> Result<Secret, Refusal> {
        // A square is not negative, whatever the signs of its factors may be.
        let range = if x.id == y.id { x.range.square() } else { x.range.product(&y.range) };
        self.emit(name, Op::Mul, &[x.id, y.id], range)
    }

    /// As [`Lowering::mul`], for a product that is known to lie in `range`, tighter than what
    /// follows from the factors.
    pub fn mul_within(
        &mut self,
        name: &str,
        x: &Secret,
        y: &Secret,
        range: Range,
    ) -> Result<Secret, Refusal> {
        let product = x.range.merged().product(&y.range.merged());
        self.emit(name, Op::Mul, &[x.id, y.id], product.tighten(&range))
    }

    /// x · weights, which are broadcast to the shape of x.
    pub fn mul_weight(&mut self, name: &str, x: &Secret, tensor: &Tensor) -> Result<Secret, Refusal> {
        let weight = self.weight("weight", tensor, self.frac())?;
        self.mul_broadcast(name, x, weight)
    }

    /// x · numbers of the architecture with `frac` fraction bits, which are broadcast to the shape
    /// of x.
    pub fn mul_public(
        &mut self,
        name: &str,
        x: &Secret,
        tensor: &Tensor,
        frac: u32,
    ) -> Result<Secret, Refusal> {
        let constant = self.constant("constant", tensor, frac)?;
        self.mul_broadcast(name, x, constant)
    }

    pub(super) fn mul_broadcast(
        &mut self,
        name: &str,
        x: &Secret,
        weight: Weight,
    ) -> Result<Secret, Refusal> {
        let to = self.shape(x).clone();
        let range = x.range.product(&Range::of_words(&weight.words, &weight.shape, &to));
        let Some(view) = View::broadcast(&weight.shape, &to) else {
            return refuse(format!("cannot broadcast {} to {to}", weight.shape), "");
        };
        let mut id = weight.id;
        if !view.is_contiguous() || weight.shape != to {
            let name = self.unique("weight-broadcast");
            id = self.step(&name, Op::View(view), &[id])?;
        }
        self.emit(name, Op::Mul, &[x.id, id], range)
    }

    /// A batched matrix product of secret values.
    pub fn matmul(&mut self, name: &str, x: &Secret, y: &Secret) -> Result<Secret, Refusal> {
        let terms = self.shape(x).dims().last().copied().unwrap_or(1);
        let range = match self.row_sums.get(&x.id) {
            // Weights that are not negative: a row of them makes no more than so many times the
            // numbers.
            Some(&total) => y.range.merged().with_zero().product(&Range::uniform(0, total)),
            None => x.range.merged().product(&y.range.merged()).sum(terms),
        };
        self.emit(name, Op::MatMul, &[x.id, y.id], range)
    }

    /// x [m, k] · weights [k, n].
    pub fn matmul_weight(&mut self, name: &str, x: &Secret, tensor: &Tensor) -> Result<Secret, Refusal> {
        let weight = self.weight("weight", tensor, self.frac())?;
        let columns = tensor.shape.dims()[1];
        let mut sums = vec![Accumulator::default(); columns];
        for (k, row) in weight.words.chunks_exact(columns).enumerate() {
            let bound = x.range.channel(k);
            row.iter().zip(&mut sums).for_each(|(&w, sum)| sum.add(w, bound));
        }
        let range = Range::per_channel(sums.into_iter().map(Accumulator::bounds).collect());
        self.emit(name, Op::MatMul, &[x.id, weight.id], range)
    }

    /// x [.., m, k] · a public matrix [k, n]: no weight stands in the plan, whose size would be
    /// theirs. The bounds are those of x together, not of each of its channels.
    pub fn times_public(&mut self, name: &str, x: &Secret, matrix: &Arc<Matrix>) -> Result<Secret, Refusal> {
        if self.ring() < 40 {
            return refuse(
                "multiplies by a public matrix, whose words do not fit this ring",
                "use a ring of 40 bits or more",
            );
        }
        let (low, high) = x.range.hull();
        let bounds = matrix.sums().map(|[negative, positive]| {
            // Where x is as low as it can be against positive weights, and as high against
            // negative.
            let least = positive.saturating_mul(low).saturating_add(negative.saturating_mul(high));
            let most = positive.saturating_mul(high).saturating_add(negative.saturating_mul(low));
            (least, most)
        });
        let range = Range::per_channel(bounds.collect());
        self.emit(name, Op::TimesPublic(matrix.clone().into()), &[x.id], range)
    }

    /// Rows of zeros with a one [m, k] · weights [k, …]: the rows of the weights that the ones
    /// name.
    pub fn lookup(
        &mut self,
        name: &str,
        x: &Secret,
        tensor: &Arc<Tensor>,
        rows: usize,
    ) -> Result<Secret, Refusal> {
        let weight = self.shared_weight("weight", tensor)?;
        let columns = tensor.data.len() / rows;
        let range = Range::of_words(&weight.words, &weight.shape, &weight.shape).with_zero();
        let mut id = weight.id;
        if weight.shape.rank() != 2 {
            let name = self.unique("table");
            id = self.step(&name, Op::View(View::whole([rows, columns].into())), &[id])?;
        }
        self.emit(name, Op::MatMul, &[x.id, id], range)
    }

    /// x [m, k] · transposed weights [n, k], computed as the transpose of weights · x transposed:
    /// the weights stay as they are, so that another layer can share them.
    pub fn matmul_transposed(
        &mut self,
        name: &str,
        x: &Secret,
        tensor: &Arc<Tensor>,
    ) -> Result<Secret, Refusal> {
        let weight = self.shared_weight("weight", tensor)?;
        let mut sums = vec![];
        for row in weight.words.chunks_exact(tensor.shape.dims()[1]) {
            let mut sum = Accumulator::default();
            row.iter().enumerate().for_each(|(k, &w)| sum.add(w, x.range.channel(k)));
            sums.push(sum.bounds());
        }
        let range = Range::per_channel(sums);
        let turned = View::transpose(self.shape(x), &[1, 0]);
        let columns = self.view("columns", x, turned)?;
        let product = self.emit(name, Op::MatMul, &[weight.id, columns.id], range.merged())?;
        let back = View::transpose(self.shape(&product), &[1, 0]);
        Ok(self.view("rows", &product, back)?.within(range))
    }

    /// weights [m, k] · x [k, n].
    pub fn weight_matmul(&mut self, name: &str, tensor: &Tensor, x: &Secret) -> Result<Secret, Refusal> {
        let weight = self.weight("weight", tensor, self.frac())?;
        let bound = x.range.hull();
        let mut sums = vec![];
        for row in weight.words.chunks_exact(tensor.shape.dims()[1]) {
            let mut sum = Accumulator::default();
            row.iter().for_each(|&w| sum.add(w, bound));
            sums.push(sum.bounds());
        }
        let range = Range::per_channel(sums).merged();
        self.emit(name, Op::MatMul, &[weight.id, x.id], range)
    }

    /// weights [.., m, k] · x [.., k, n], for weights with `frac` fraction bits, named after their
    /// role, whose products with x are known to lie in `range`.
    pub(crate) fn product_within(
        &mut self,
        [name, role]: [&str; 2],
        (weights, frac): (&Tensor, u32),
        x: &Secret,
        range: Range,
    ) -> Result<Secret, Refusal> {
        let weight = self.weight(role, weights, frac)?;
        self.emit(name, Op::MatMul, &[weight.id, x.id], range)
    }

    /// As [`Lowering::matmul`], for products that are known to lie in `range`.
    pub(crate) fn matmul_within(
        &mut self,
        name: &str,
        x: &Secret,
        y: &Secret,
        range: Range,
    ) -> Result<Secret, Refusal> {
        self.emit(name, Op::MatMul, &[x.id, y.id], range)
    }

    /// x [N, C, H, W] convolved with weights [O, C/groups, kh, kw].
    pub fn conv(&mut self, x: &Secret, tensor: &Tensor, geometry: ConvGeometry) -> Result<Secret, Refusal> {
        let weight = self.weight("weight", tensor, self.frac())?;
        let inputs = if geometry.pad == [0; 4] { x.range.clone() } else { x.range.with_zero() };
        let &[out, per_group, kh, kw] = tensor.shape.dims() else {
            return refuse("the kernel is not 4-D", "");
        };
        let mut bounds = vec![];
        for (o, kernel) in weight.words.chunks_exact(per_group * kh * kw).enumerate() {
            let first = o / (out / geometry.groups) * per_group;
            let mut sum = Accumulator::default();
            for (c, taps) in kernel.chunks_exact(kh * kw).enumerate() {
                let bound = inputs.channel(first + c);
                taps.iter().for_each(|&w| sum.add(w, bound));
            }
            bounds.push(sum.bounds());
        }
        self.emit("product", Op::Conv(geometry), &[x.id, weight.id], Range::per_channel(bounds))
    }

    /// x [N, C, H, W] convolved with a secret kernel [O, C/groups, kh, kw].
    pub fn conv_secret(
        &mut self,
        name: &str,
        x: &Secret,
        kernel: &Secret,
        geometry: ConvGeometry,
    ) -> Result<Secret, Refusal> {
        let inputs = if geometry.pad == [0; 4] { x.range.merged() } else { x.range.merged().with_zero() };
        let terms: usize = self.shape(kernel).dims()[1..].iter().product();
        let range = inputs.product(&kernel.range.merged()).sum(terms);
        self.emit(name, Op::Conv(geometry), &[x.id, kernel.id], range)
    }
}
