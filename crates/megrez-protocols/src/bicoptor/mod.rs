//! Improved Bicoptor: additive shares between two workers, and a helper who learns masked lists. Semi-honest, one corruption.
//!
//! Source: Probabilistic truncation (the paper), Alg. 3-7; the deviations stand in each file. A value x is x_0 + x_1 in Z_2^ℓ,
//! worker j holding x_j and the helper nothing. Bits are shared as ring elements 0 and 1, as the paper's DReLU gives them:
//! a conversion costs nothing, a logical operation is a product. Linear operations are local; a public summand enters
//! worker 0's share. The sharing is of no use to a dealer, so values have no masks that are known before.
//!
//! Security: `docs/security/bicoptor.md`.

mod field;
mod product;
mod relu;
mod sign;
#[cfg(test)]
mod tests;

use crate::local::{self, Product};
use crate::mss::Role;
use crate::reveal;
use crate::{Cost, Suite, Unsupported};
use megrez_kernels::{Device, Tensor};
use megrez_net::Payload;
use megrez_plan::{Kind, Op, Value};
use megrez_prg::Key;
use megrez_ring::{Shape, Word};
use megrez_session::{Error, Party};
use std::marker::PhantomData;

/// The suite on the ring of `W` and device `D`.
pub struct Bicoptor<W, D>(PhantomData<fn() -> (W, D)>);

impl<W, D> Default for Bicoptor<W, D> {
    fn default() -> Self {
        Bicoptor(PhantomData)
    }
}

impl<W, D> Clone for Bicoptor<W, D> {
    fn clone(&self) -> Self {
        Bicoptor(PhantomData)
    }
}

/// What a party knows of a value before the inputs exist.
#[derive(Clone)]
pub enum Masks<W: Word, D: Device> {
    /// A public value: the words.
    Public(Tensor<W, D>),
    /// A secret value: its shape.
    Secret(Shape),
}
store_enum!(Masks[W: Word, D: Device] on D => 0 = Public, 1 = Secret);

/// The correlated randomness of one step.
pub enum Material<W: Word, D: Device> {
    /// None.
    Local(()),
    /// See the product step.
    Product(product::Material<W, D>),
    /// Of a truncation, alone or in a ReLU.
    Truncate(relu::Material<W, D>),
}
store_enum!(Material[W: Word, D: Device] on D => 0 = Local, 1 = Product, 2 = Truncate);

/// The product that a step multiplies its secret inputs by, if it does.
fn product_of(op: &Op) -> Option<Product<'_>> {
    match op {
        Op::Select | Op::And | Op::Xor => Some(Product::Elements),
        op => Product::of(op),
    }
}

impl<W: Word, D: Device> Suite for Bicoptor<W, D> {
    type Word = W;
    type Device = D;
    type Masks = Masks<W, D>;
    /// A worker's share; nothing at the helper and for public values.
    type Data = Option<Tensor<W, D>>;
    type Material = Material<W, D>;
    const PARTIES: usize = 3;

    fn cost(&self, op: &Op, inputs: &[&Value], output: &Value) -> Result<Cost, Unsupported> {
        let n = output.shape.elements();
        let or_refuse = |refusal: Option<String>, cost: &dyn Fn() -> Cost| match refusal {
            Some(why) => Err(Unsupported(why)),
            None => Ok(cost()),
        };
        match op {
            Op::Constant { .. } | Op::Not | Op::BitToRing => Ok(Cost::LOCAL),
            op if local::is_linear(op) => Ok(Cost::LOCAL),
            Op::Mul | Op::And if inputs.len() > 2 => Err(local::two_at_a_time("bicoptor")),
            op if product_of(op).is_some() => match inputs {
                [x, y] if ![x, y].iter().any(|v| matches!(v.kind, Kind::Public { .. })) => {
                    Ok(product::cost(W::BITS, [x.shape.elements(), y.shape.elements()], n))
                }
                _ => Ok(Cost::LOCAL),
            },
            Op::Truncate { bits } => Ok(relu::truncate_cost(W::BITS, *bits, n)),
            Op::NonNegative(sign) => or_refuse(sign::refuse(sign, W::BITS), &|| sign::cost(sign, W::BITS, n)),
            Op::Relu(relu) => or_refuse(relu::refuse(relu, W::BITS), &|| relu::cost(relu, W::BITS, n)),
            Op::CompareMany { .. } => {
                Err(Unsupported("bicoptor compares with one threshold at a time: subtract it first".into()))
            }
            Op::Maximum(_) => {
                Err(Unsupported("bicoptor has no maximum of all pairs: use --pool tournament".into()))
            }
            other => Err(Unsupported(format!("bicoptor has no {other:?}"))),
        }
    }

    fn input(&self, _: &mut Party<D>, value: &Value) -> Result<(Masks<W, D>, Vec<u8>), Error> {
        Ok((Masks::Secret(value.shape.clone()), vec![]))
    }

    fn share(&self, _: &[Vec<u8>], input: &[W]) -> Result<Vec<Payload>, Error> {
        let key = Key::random().map_err(|e| Error::Randomness(e.to_string()))?;
        let words = key.stream().words((input.len() * W::BITS as usize).div_ceil(64));
        let zero = &bytemuck::cast_slice::<u64, W>(&words)[..input.len()];
        let one: Vec<W> = input.iter().zip(zero).map(|(x, share)| x.sub(*share)).collect();
        Ok(vec![Payload::from_pod(zero), Payload::from_pod(&one), Payload::zeroed(0)])
    }

    fn accept(&self, party: &Party<D>, value: &Value, payload: Payload) -> Result<Self::Data, Error> {
        let worker = matches!(Role::of(party), Role::Worker(_));
        let expected = if worker { value.shape.elements() * size_of::<W>() } else { 0 };
        if payload.len() != expected {
            return Err(Error::Refused(format!(
                "an input of shape {} takes {expected} bytes at party {}, its owner sent {}",
                value.shape,
                party.me(),
                payload.len()
            )));
        }
        if !worker {
            return Ok(None);
        }
        let words = bytemuck::pod_collect_to_vec(payload.as_bytes());
        Ok(Some(Tensor::new(value.shape.clone(), party.device().upload(words)?)))
    }

    fn late(&self, _: &Op, _: &[&Value], _: bool) -> bool {
        false
    }

    fn masks(
        &self,
        party: &mut Party<D>,
        op: &Op,
        output: &Value,
        inputs: &[Option<&Masks<W, D>>],
    ) -> Result<Option<Masks<W, D>>, Error> {
        Ok(Some(match (op, inputs) {
            (Op::Constant { words, .. }, _) => {
                let words = words.iter().map(|&w| W::from_i64(w)).collect();
                Masks::Public(Tensor::new(output.shape.clone(), party.device().upload(words)?))
            }
            (op, [Some(Masks::Public(_)), ..]) if local::is_linear(op) => {
                let public = |m: &Option<&Masks<W, D>>| match m {
                    Some(Masks::Public(x)) => Ok(x.clone()),
                    _ => party.refuse("joins public and secret values"),
                };
                let inputs = inputs.iter().map(public).collect::<Result<Vec<_>, _>>()?;
                let inputs: Vec<_> = inputs.iter().collect();
                Masks::Public(local::linear(party.device(), op, &inputs, output, true)?)
            }
            _ => Masks::Secret(output.shape.clone()),
        }))
    }

    fn offline(
        &self,
        party: &mut Party<D>,
        op: &Op,
        output: &Value,
        inputs: &[&Masks<W, D>],
        _: Option<&Masks<W, D>>,
    ) -> Result<Material<W, D>, Error> {
        let shape = &output.shape;
        Ok(match (op, inputs) {
            (op, [Masks::Secret(x), Masks::Secret(y)]) if product_of(op).is_some() => {
                let product = product_of(op).expect("just seen");
                Material::Product(product::offline(party, &product, [x, y], shape)?)
            }
            (Op::Truncate { bits }, _) => Material::Truncate(relu::truncate_offline(party, *bits, shape)?),
            (Op::Relu(relu), _) if relu.truncate > 0 => {
                Material::Truncate(relu::truncate_offline(party, relu.truncate, shape)?)
            }
            _ => Material::Local(()),
        })
    }

    fn online(
        &self,
        party: &mut Party<D>,
        op: &Op,
        output: &Value,
        inputs: &[(&Masks<W, D>, &Self::Data)],
        _: Option<&Masks<W, D>>,
        material: Material<W, D>,
    ) -> Result<(Self::Data, Option<Masks<W, D>>), Error> {
        let (shape, n) = (&output.shape, output.shape.elements());
        let tensor = |buf| Tensor::new(shape.clone(), buf);
        let share = |i: usize| inputs[i].1.as_ref();
        // Steps in which the helper takes part.
        match (op, &material) {
            (Op::NonNegative(sign), _) => {
                return Ok((sign::online(party, sign, share(0), n)?.map(tensor), None));
            }
            (Op::Relu(relu), material) => {
                let material = match material {
                    Material::Truncate(material) => Some(material),
                    _ => None,
                };
                return Ok((relu::online(party, relu, share(0), shape, material)?.map(tensor), None));
            }
            _ => {}
        }
        // In the others it has done its part offline.
        let Role::Worker(j) = Role::of(party) else { return Ok((None, None)) };
        if matches!(output.kind, Kind::Public { .. }) {
            return Ok((None, None));
        }
        let worker = |i: usize| share(i).expect("workers hold shares of secrets");
        let public = if j == 0 { W::ONE } else { W::ZERO };
        let data = match (op, &material) {
            (Op::Truncate { bits }, Material::Truncate(material)) => {
                return Ok((relu::truncate(party, *bits, share(0), material)?, None));
            }
            (op, Material::Product(material)) => {
                let product = product_of(op).expect("material of a product");
                let operands = [worker(0), worker(1)];
                let z = product::online(party, j, &product, operands, material)?;
                if *op == Op::Xor {
                    // a + b − 2ab.
                    let terms =
                        [(W::ONE, &operands[0].buf), (W::ONE, &operands[1].buf), (W::from_i64(-2), &z)];
                    tensor(party.device().combine(&terms, W::ZERO, n)?)
                } else {
                    tensor(z)
                }
            }
            (Op::Not, _) => tensor(party.device().combine(&[(W::ONE.neg(), &worker(0).buf)], public, n)?),
            (Op::BitToRing, _) => worker(0).clone(),
            (op, _) => match Product::of(op) {
                Some(product) => {
                    let operand = |i: usize| match inputs[i].0 {
                        Masks::Public(x) => x.clone(),
                        Masks::Secret(_) => worker(i).clone(),
                    };
                    product.apply(party.device(), &operand(0), &operand(1), shape)?
                }
                None => {
                    let shares: Vec<_> = (0..inputs.len()).map(worker).collect();
                    local::linear(party.device(), op, &shares, output, j == 0)?
                }
            },
        };
        Ok((Some(data), None))
    }

    fn reveal(&self, party: &mut Party<D>, masks: &Masks<W, D>, data: &Self::Data) -> Result<Payload, Error> {
        let words = match (masks, data, Role::of(party)) {
            (Masks::Public(x), _, Role::Worker(0)) => x.buf.clone(),
            (Masks::Secret(_), Some(share), Role::Worker(j)) => {
                reveal::of_two(party, j, &share.buf, share.elements())?
            }
            _ => return Ok(Payload::zeroed(0)),
        };
        Ok(Payload::from_pod(&party.device().download(words)?))
    }

    fn reconstruct(&self, value: &Value, messages: &[Payload]) -> Result<Vec<W>, Error> {
        let n = value.shape.elements();
        let wrong = || Error::Refused("a party sent an output share of the wrong size".into());
        let share = |j: usize| -> Result<&[W], Error> {
            let share: &[W] = messages.get(j).and_then(|m| m.as_pod().ok()).ok_or_else(wrong)?;
            if share.len() == n { Ok(share) } else { Err(wrong()) }
        };
        match value.kind {
            Kind::Public { .. } => Ok(share(0)?.to_vec()),
            _ => Ok(share(0)?.iter().zip(share(1)?).map(|(a, b)| a.add(*b)).collect()),
        }
    }
}
