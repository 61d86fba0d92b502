//! METEOR: three equal parties on masked replicated sharing ([`crate::mrss`]). Semi-honest, one corruption.
//!
//! Source: METEOR (the paper), §4 and the appendices; deviations stand in each file. Linear operations are local, on m and on
//! both components of ψ. All masks are fresh or follow from masks known offline, so nothing is ever late.
//!
//! Security: `docs/security/meteor.md`.

mod adder;
mod bits;
mod compare;
mod gates;
mod many;
pub mod printed;
mod product;
mod relu;
mod select;
mod sign;
mod sum;
mod truncate;
mod words;

use crate::local::{self, Product};
use crate::mrss;
use crate::replicated::words::extent;
use crate::reveal;
use crate::rss::{self, Rss};
use crate::{Cost, Suite, Unsupported};
use compare::Comparison;
pub use compare::Comparisons;
use megrez_kernels::{Bits, Device, Tensor};
use megrez_net::Payload;
use megrez_plan::{Kind, Op, Value};
use megrez_prg::Key;
use megrez_ring::{Shape, Word, bits as packed};
use megrez_session::{Error, Party};
use relu::Operand;
use std::marker::PhantomData;
use words::Addition;

/// The suite on the ring of `W` and device `D`.
pub struct Meteor<W, D> {
    comparisons: Comparisons,
    of: PhantomData<fn() -> (W, D)>,
}

impl<W, D> Default for Meteor<W, D> {
    fn default() -> Self {
        Meteor::with_comparisons(Comparisons::Meteor)
    }
}

impl<W, D> Meteor<W, D> {
    /// The protocol with comparisons of this kind.
    pub fn with_comparisons(comparisons: Comparisons) -> Self {
        Meteor { comparisons, of: PhantomData }
    }
}

impl<W, D> Clone for Meteor<W, D> {
    fn clone(&self) -> Self {
        Meteor { ..*self }
    }
}

impl<W: Word, D: Device> Meteor<W, D> {
    /// The comparison of a step that has one.
    fn comparison(&self, op: &Op) -> Comparison {
        Comparison::of(self.comparisons, op, W::BITS).expect("one of the comparisons")
    }
}

/// What a party knows of a value before the inputs exist.
#[derive(Clone)]
pub enum Masks<W: Word, D: Device> {
    /// A public value: the words.
    Public(Tensor<W, D>),
    /// Two components of a ring value's mask.
    Ring(Rss<Tensor<W, D>>),
    /// Two components of a mask of bits.
    Bit(Rss<Bits<D>>),
    /// A sum has no mask: its shape.
    Sum(Shape),
}
store_enum!(Masks[W: Word, D: Device] on D => 0 = Public, 1 = Ring, 2 = Bit, 3 = Sum);

/// What a party learns of a value online: the masked value.
#[derive(Clone)]
pub enum Data<W: Word, D: Device> {
    /// A public value, which the masks hold.
    Public(()),
    /// m of a ring value.
    Ring(Tensor<W, D>),
    /// m of bits.
    Bit(Bits<D>),
    /// This party's summand of a sum.
    Sum(sum::Summand<W, D>),
}
store_enum!(Data[W: Word, D: Device] on D => 0 = Public, 1 = Ring, 2 = Bit, 3 = Sum);

/// The correlated randomness of one step.
pub enum Material<W: Word, D: Device> {
    /// A local step needs none.
    Local(()),
    /// Products of the masks, or the mask of a bit in the ring.
    Ring(Rss<Tensor<W, D>>),
    /// Products of masks of bits.
    Bit(Rss<Bits<D>>),
    /// See the truncation step; with the mask under which a sum is opened.
    Truncate((Option<Rss<Tensor<W, D>>>, truncate::Material<W, D>)),
    /// See the sign bit step.
    Sign(compare::Material<D>),
    /// See the selection step.
    Select(select::Material<W, D>),
    /// See the ReLU step.
    Relu(Box<relu::Material<W, D>>),
    /// See the product that is left as a sum.
    Sum(sum::Summand<W, D>),
}
store_enum!(Material[W: Word, D: Device] on D =>
    0 = Local, 1 = Ring, 2 = Bit, 3 = Truncate, 4 = Sign, 5 = Select, 6 = Relu, 7 = Sum);

impl<W: Word, D: Device> Masks<W, D> {
    fn ring(&self) -> &Rss<Tensor<W, D>> {
        match self {
            Masks::Ring(mask) => mask,
            _ => panic!("the plan's types say that this is a secret ring value"),
        }
    }
    fn bit(&self) -> &Rss<Bits<D>> {
        match self {
            Masks::Bit(mask) => mask,
            _ => panic!("the plan's types say that this is a secret bit"),
        }
    }
}

impl<W: Word, D: Device> Data<W, D> {
    fn ring(&self) -> &Tensor<W, D> {
        match self {
            Data::Ring(m) => m,
            _ => panic!("the plan's types say that this is a secret ring value"),
        }
    }
    fn bit(&self) -> &Bits<D> {
        match self {
            Data::Bit(m) => m,
            _ => panic!("the plan's types say that this is a secret bit"),
        }
    }
}

/// The addition in a step whose result is these bits.
fn addition(op: &Op, bits: &Shape) -> Addition {
    let (width, _) = extent(bits);
    if *op == Op::ToBits { Addition::of_value(width as u32) } else { Addition::of_bits(width) }
}

impl<W: Word, D: Device> Suite for Meteor<W, D> {
    type Word = W;
    type Device = D;
    type Masks = Masks<W, D>;
    type Data = Data<W, D>;
    type Material = Material<W, D>;
    const PARTIES: usize = 3;

    fn cost(&self, op: &Op, inputs: &[&Value], output: &Value) -> Result<Cost, Unsupported> {
        let n = output.shape.elements();
        let bits_in = inputs.first().is_some_and(|v| v.kind == Kind::Bit);
        let public_in = inputs.iter().any(|v| matches!(v.kind, Kind::Public { .. }));
        let of_sum = inputs.first().is_some_and(|v| matches!(v.kind, Kind::Sum { .. }));
        Ok(match op {
            Op::Constant { .. } | Op::Not | Op::Xor | Op::View(_) => Cost::LOCAL,
            op if local::is_linear(op) && bits_in => {
                return Err(Unsupported("meteor rearranges bits by views only".into()));
            }
            op if local::is_linear(op) => Cost::LOCAL,
            Op::Mul if inputs.len() > 2 => many::cost(W::BITS, inputs.len(), n),
            Op::Mul | Op::MatMul | Op::Conv(_) if public_in => Cost::LOCAL,
            Op::Mul | Op::MatMul | Op::Conv(_) => product::cost(W::BITS, n),
            Op::Unshared(_) => sum::product_cost(W::BITS, n),
            Op::Truncate { bits } if of_sum => {
                sum::two_cost(W::BITS, n).then(truncate::cost(W::BITS, *bits, n))
            }
            Op::Truncate { bits } => truncate::cost(W::BITS, *bits, n),
            Op::NonNegative(_) | Op::CompareMany { .. } => {
                let of_x = inputs.first().map_or(n, |x| x.shape.elements());
                self.comparison(op).cost(of_x)
            }
            Op::Relu(relu) => relu::cost(relu, &self.comparison(op), W::BITS, n, of_sum),
            Op::Select => select::cost(W::BITS, n),
            Op::BitToRing => select::to_ring_cost(W::BITS, n),
            Op::ToBits | Op::AddBits => addition(op, &output.shape).cost(extent(&output.shape).1),
            Op::FromBits => words::to_ring_cost(W::BITS, n),
            Op::And => bits::cost(inputs.len(), n),
            Op::Maximum(_) => {
                let why = "meteor has no maximum of all pairs: use --pool tournament";
                return Err(Unsupported(why.into()));
            }
            other => return Err(Unsupported(format!("meteor has no {other:?}"))),
        })
    }

    fn input(&self, party: &mut Party<D>, value: &Value) -> Result<(Masks<W, D>, Vec<u8>), Error> {
        // The ticket is the key of the party's own component: with all three the owner computes ψ, and nothing else.
        let keys = mrss::keys(party, "input")?;
        let ticket = keys.own.expose().to_vec();
        let mask = keys.map(party.me(), |_, key| {
            let drawn = party.device().random::<W>(&key.stream(), value.shape.elements())?;
            Ok::<_, Error>(Tensor::new(value.shape.clone(), drawn))
        })?;
        Ok((Masks::Ring(mask), ticket))
    }

    fn share(&self, tickets: &[Vec<u8>], input: &[W]) -> Result<Vec<Payload>, Error> {
        let mut m = input.to_vec();
        for i in 0..3 {
            let key: [u8; 32] = tickets
                .get(i)
                .and_then(|t| t.as_slice().try_into().ok())
                .ok_or_else(|| Error::Refused(format!("party {i} sent a ticket that is no key")))?;
            let words = Key::from_bytes(key).stream().words((input.len() * W::BITS as usize).div_ceil(64));
            let component = bytemuck::cast_slice::<u64, W>(&words);
            m.iter_mut().zip(component).for_each(|(m, psi)| *m = m.sub(*psi));
        }
        let payload = Payload::from_pod(&m);
        Ok(vec![payload.clone(), payload.clone(), payload])
    }

    fn accept(&self, party: &Party<D>, value: &Value, payload: Payload) -> Result<Data<W, D>, Error> {
        let expected = value.shape.elements() * size_of::<W>();
        if payload.len() != expected {
            return Err(Error::Refused(format!(
                "an input of shape {} takes {expected} bytes, its owner sent {}",
                value.shape,
                payload.len()
            )));
        }
        let words = bytemuck::pod_collect_to_vec(payload.as_bytes());
        Ok(Data::Ring(Tensor::new(value.shape.clone(), party.device().upload(words)?)))
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
        let shape = &output.shape;
        let inputs: Vec<&Masks<W, D>> = inputs.iter().flatten().copied().collect();
        let public = inputs.iter().any(|m| matches!(m, Masks::Public(_)));
        if matches!(output.kind, Kind::Sum { .. }) {
            return Ok(Some(Masks::Sum(shape.clone())));
        }
        Ok(Some(match op {
            Op::Constant { words, .. } => {
                let words = words.iter().map(|&w| W::from_i64(w)).collect();
                Masks::Public(Tensor::new(shape.clone(), party.device().upload(words)?))
            }
            Op::Mul | Op::MatMul | Op::Conv(_) if !public => Masks::Ring(rss::random(party, "mask", shape)?),
            Op::Truncate { .. } | Op::Relu(_) | Op::Select | Op::BitToRing | Op::FromBits => {
                Masks::Ring(rss::random(party, "mask", shape)?)
            }
            Op::NonNegative(_) | Op::CompareMany { .. } | Op::And | Op::ToBits | Op::AddBits => {
                Masks::Bit(rss::random_bits(party, "mask", shape)?)
            }
            // What is local, on the masks as on the data.
            _ => local_masks(party, op, output, &inputs)?,
        }))
    }

    fn offline(
        &self,
        party: &mut Party<D>,
        op: &Op,
        output: &Value,
        inputs: &[&Masks<W, D>],
        masks: Option<&Masks<W, D>>,
    ) -> Result<Material<W, D>, Error> {
        let shape = &output.shape;
        if let (Some(product), [Masks::Ring(x), Masks::Ring(y)]) = (Product::of(op), inputs) {
            return Ok(Material::Ring(product::offline(party, &product, shape, x, y)?));
        }
        Ok(match op {
            Op::Mul if inputs.len() > 2 => {
                let masks: Vec<_> = inputs.iter().map(|masks| masks.ring()).collect();
                Material::Ring(many::offline(party, &masks)?)
            }
            Op::Unshared(product) => {
                let product = Product::of(product).expect("one of the products");
                Material::Sum(sum::offline(party, &product, shape, inputs[0].ring(), inputs[1].ring())?)
            }
            Op::Truncate { bits } => {
                let mask = masks.expect("fresh and drawn before").ring();
                let opened = match inputs[0] {
                    Masks::Sum(_) => Some(party.scope("open", |party| rss::random(party, "mask", shape))?),
                    _ => None,
                };
                let psi = opened.as_ref().unwrap_or_else(|| inputs[0].ring());
                let material = truncate::offline(party, *bits, psi, mask)?;
                Material::Truncate((opened, material))
            }
            Op::NonNegative(_) | Op::CompareMany { .. } => {
                Material::Sign(self.comparison(op).offline(party, inputs[0].ring())?)
            }
            Op::Relu(relu) => {
                let psi = match inputs[0] {
                    Masks::Sum(_) => None,
                    masks => Some(masks.ring()),
                };
                Material::Relu(Box::new(relu::offline(party, relu, &self.comparison(op), shape, psi)?))
            }
            Op::Select => Material::Select(select::offline(party, inputs[0].bit(), inputs[1].ring())?),
            Op::BitToRing | Op::FromBits => Material::Ring(select::to_ring_offline(party, inputs[0].bit())?),
            Op::ToBits => {
                let mask = masks.expect("fresh and drawn before").bit();
                Material::Bit(addition(op, shape).offline_of_value(party, inputs[0].ring(), mask)?)
            }
            Op::AddBits => {
                let mask = masks.expect("fresh and drawn before").bit();
                let summands = [inputs[0].bit(), inputs[1].bit()];
                Material::Bit(addition(op, shape).offline_of_bits(party, summands, mask)?)
            }
            Op::And => {
                let masks: Vec<_> = inputs.iter().map(|masks| masks.bit()).collect();
                Material::Bit(bits::offline(party, &masks)?)
            }
            _ => Material::Local(()),
        })
    }

    fn online(
        &self,
        party: &mut Party<D>,
        op: &Op,
        output: &Value,
        inputs: &[(&Masks<W, D>, &Data<W, D>)],
        masks: Option<&Masks<W, D>>,
        material: Material<W, D>,
    ) -> Result<(Data<W, D>, Option<Masks<W, D>>), Error> {
        let shape = &output.shape;
        let n = shape.elements();
        if matches!(output.kind, Kind::Public { .. }) {
            return Ok((Data::Public(()), None));
        }
        let ring = |m| Data::Ring(Tensor::new(shape.clone(), m));
        let bit = |m| Data::Bit(Bits::new(shape.clone(), m));
        let value = |i: usize| (inputs[i].1.ring(), inputs[i].0.ring());
        let mask = || masks.expect("fresh and drawn offline");
        let data = match (op, material) {
            (Op::Mul, Material::Ring(products)) if inputs.len() > 2 => {
                let factors: Vec<_> = (0..inputs.len()).map(value).collect();
                ring(many::online(party, &factors, mask().ring(), &products)?)
            }
            (Op::Mul | Op::MatMul | Op::Conv(_), Material::Ring(gamma)) => {
                let product = Product::of(op).expect("one of the products");
                ring(product::online(party, &product, value(0), value(1), mask().ring(), &gamma)?)
            }
            (Op::Mul | Op::MatMul | Op::Conv(_), _) => {
                let product = Product::of(op).expect("one of the products");
                let operand = |i: usize| match inputs[i].0 {
                    Masks::Public(x) => x,
                    _ => inputs[i].1.ring(),
                };
                Data::Ring(product.apply(party.device(), operand(0), operand(1), shape)?)
            }
            (Op::Unshared(product), Material::Sum(gamma)) => {
                let product = Product::of(product).expect("one of the products");
                Data::Sum(sum::product(party, &product, value(0), value(1), &gamma)?)
            }
            (Op::Truncate { bits }, Material::Truncate((opened, material))) => {
                let known = match (inputs[0].1, opened) {
                    (Data::Sum(z), Some(psi)) => sum::open_to_two(party, z, &psi)?,
                    _ => truncate::known(party, value(0).0, value(0).1)?,
                };
                let sent = truncate::send(party, *bits, known, mask().ring(), &material)?;
                ring(truncate::receive(party, *bits, n, sent)?)
            }
            (Op::NonNegative(_) | Op::CompareMany { .. }, Material::Sign(material)) => {
                let (comparison, mask, (m, psi)) = (self.comparison(op), mask().bit(), value(0));
                let a = truncate::known(party, m, psi)?;
                let sent = comparison.send(party, a.as_ref(), mask, &material)?;
                bit(comparison.receive(party, Some(m), mask, sent, material)?)
            }
            (Op::Relu(relu), Material::Relu(material)) => {
                let x = match inputs[0].1 {
                    Data::Sum(z) => Operand::Sum(z),
                    m => Operand::Masked(m.ring(), inputs[0].0.ring()),
                };
                ring(relu::online(party, relu, &self.comparison(op), x, mask().ring(), *material)?)
            }
            (Op::Select, Material::Select(material)) => {
                ring(select::online(party, inputs[0].1.bit(), value(1), mask().ring(), &material)?)
            }
            (Op::BitToRing, Material::Ring(in_ring)) => {
                ring(select::to_ring_online(party, inputs[0].1.bit(), &in_ring, mask().ring())?)
            }
            (Op::FromBits, Material::Ring(in_ring)) => {
                ring(words::to_ring_online(party, inputs[0].1.bit(), &in_ring, mask().ring())?)
            }
            (Op::ToBits, Material::Bit(products)) => {
                bit(addition(op, shape).online_of_value(party, value(0).0, &products)?)
            }
            (Op::AddBits, Material::Bit(products)) => {
                let summands = [inputs[0].1.bit(), inputs[1].1.bit()];
                bit(addition(op, shape).online_of_bits(party, summands, &products)?)
            }
            (Op::And, Material::Bit(products)) => {
                let factors: Vec<_> = inputs.iter().map(|(_, m)| m.bit()).collect();
                bit(bits::online(party, &factors, mask().bit(), &products)?)
            }
            // What remains is local: on m as on the masks, with public summands.
            (Op::Xor | Op::Not, _) => {
                let words: Vec<_> = inputs.iter().map(|(_, m)| &m.bit().buf).collect();
                bit(party.device().xor(&words, *op == Op::Not, n)?)
            }
            (Op::View(view), _) if output.kind == Kind::Bit => {
                bit(party.device().view_bits(&inputs[0].1.bit().buf, view)?)
            }
            (op, _) if local::is_linear(op) && matches!(output.kind, Kind::Sum { .. }) => {
                let summand = |(psi, m): &(&Masks<W, D>, &Data<W, D>)| match m {
                    Data::Sum(z) => Ok(z.clone()),
                    m => sum::of(party, m.ring(), psi.ring()),
                };
                let z = inputs.iter().map(summand).collect::<Result<Option<Vec<_>>, Error>>()?;
                let first = party.me() == 0;
                let linear = |z: Vec<Tensor<W, D>>| {
                    local::linear(party.device(), op, &z.iter().collect::<Vec<_>>(), output, first)
                };
                Data::Sum(z.map(linear).transpose()?)
            }
            (op, _) if local::is_linear(op) => {
                let m: Vec<_> = inputs.iter().map(|(_, m)| m.ring()).collect();
                Data::Ring(local::linear(party.device(), op, &m, output, true)?)
            }
            (other, _) => return party.refuse(format!("meteor has no material for {other:?}")),
        };
        Ok((data, None))
    }

    fn reveal(&self, party: &mut Party<D>, masks: &Masks<W, D>, data: &Data<W, D>) -> Result<Payload, Error> {
        // Everybody's own component; P0's with m.
        let (device, first) = (party.device().clone(), party.me() == 0);
        Ok(match (masks, data) {
            (Masks::Ring(psi), Data::Ring(m)) => {
                let public = if first { W::ONE } else { W::ZERO };
                let terms = [(public, &m.buf), (W::ONE, &psi.own.buf)];
                let share = device.combine(&terms, W::ZERO, m.elements())?;
                let share = reveal::of_three::<W, D>(party, &share, m.elements())?;
                Payload::from_pod(&device.download(share)?)
            }
            (Masks::Bit(psi), Data::Bit(m)) => {
                let terms: &[_] = if first { &[&m.buf, &psi.own.buf] } else { &[&psi.own.buf] };
                let share = device.xor(terms, false, m.elements())?;
                let words = device.download(reveal::bits_of_three(party, &share, m.elements())?)?;
                Payload::from_bytes(&bytemuck::cast_slice(&words)[..packed::bytes(m.elements())])
            }
            (Masks::Public(x), _) if first => Payload::from_pod(&device.download(x.buf.clone())?),
            _ => Payload::zeroed(0),
        })
    }

    fn reconstruct(&self, value: &Value, messages: &[Payload]) -> Result<Vec<W>, Error> {
        rss::reconstruct(value, messages)
    }
}

/// A local primitive on masks: a linear map of both components, without public summands.
fn local_masks<W: Word, D: Device>(
    party: &Party<D>,
    op: &Op,
    output: &Value,
    inputs: &[&Masks<W, D>],
) -> Result<Masks<W, D>, Error> {
    let (device, me, shape) = (party.device(), party.me(), &output.shape);
    let n = shape.elements();
    if let Some(product) = Product::of(op) {
        return Ok(Masks::Ring(match inputs {
            [Masks::Ring(x), Masks::Public(y)] => x.map(me, |_, x| product.apply(device, x, y, shape))?,
            [Masks::Public(x), Masks::Ring(y)] => y.map(me, |_, y| product.apply(device, x, y, shape))?,
            _ => unreachable!("the plan's types say that one operand is secret and one public"),
        }));
    }
    Ok(match (op, inputs) {
        (Op::View(view), [Masks::Bit(mask)]) => {
            Masks::Bit(mask.map(me, |_, bits| {
                device.view_bits(&bits.buf, view).map(|buf| Bits::new(shape.clone(), buf))
            })?)
        }
        (Op::Xor, [Masks::Bit(a), Masks::Bit(b)]) => Masks::Bit(Rss::zip(me, &[a, b], |_, psi| {
            device.xor(&[&psi[0].buf, &psi[1].buf], false, n).map(|buf| Bits::new(shape.clone(), buf))
        })?),
        (Op::Not, [mask]) => (*mask).clone(),
        (_, [Masks::Public(x)]) => Masks::Public(local::linear(device, op, &[x], output, true)?),
        _ => {
            let masks: Vec<_> = inputs.iter().map(|m| m.ring()).collect();
            Masks::Ring(Rss::zip(me, &masks, |_, psi| local::linear(device, op, psi, output, false))?)
        }
    })
}
