//! Replicated sharing among three equal parties ([`crate::rss`]): the protocols `aby3` and `alkaid`. Semi-honest, one corruption.
//!
//! Linear operations are local; products, truncation and selection are common to both protocols. They differ in how
//! the bits of a value are found: `aby3` adds on Boolean replicated shares with a tree of pairs, above digits of four positions where
//! only the top bit is wanted, and its bits are replicated;
//! `alkaid` adds on masked bits with nodes of four, in half the rounds, and its bits stay masked, so that what they
//! multiply takes one round. It makes correlated randomness before the inputs exist; `aby3` has no offline phase.
//! Ring values have no masks, so nothing is ever late.

pub(crate) mod aby3;
mod alkaid;
mod bits;
pub(crate) mod compare;
mod dealt;
mod deferred;
mod digits;
pub(crate) mod planes;
pub(crate) mod product;
mod relu;
pub(crate) mod select;
pub(crate) mod sum;
pub mod tree;
pub(crate) mod truncate;
pub(crate) mod words;

use crate::local::{self, Product};
use crate::reveal;
use crate::rss::{self, Rss};
use crate::{Cost, Suite, Unsupported};
use compare::Comparison;
use megrez_kernels::{Bits, Device, Tensor};
use megrez_net::Payload;
use megrez_plan::{Kind, Op, Value};
use megrez_prg::Key;
use megrez_ring::{Shape, Word};
use megrez_session::{Error, Party, Phase};
use std::marker::PhantomData;

/// Bytes of a key that a component of an input is drawn from.
const KEY_BYTES: usize = 32;

/// How the bits of a value are found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Adder {
    /// ABY3: Boolean replicated shares.
    Aby3,
    /// ALKAID: masked bits.
    Alkaid,
}

/// The suite on the ring of `W` and device `D`.
pub struct Replicated<W, D> {
    adder: Adder,
    of: PhantomData<fn() -> (W, D)>,
}

impl<W, D> Replicated<W, D> {
    /// The protocol with this adder.
    pub fn with_adder(adder: Adder) -> Self {
        Replicated { adder, of: PhantomData }
    }
}

impl<W, D> Clone for Replicated<W, D> {
    fn clone(&self) -> Self {
        Replicated { ..*self }
    }
}

/// What a party knows of a value before the inputs exist.
#[derive(Clone)]
pub enum Masks<W: Word, D: Device> {
    /// A public value: the words.
    Public(Tensor<W, D>),
    /// A secret value without a mask: its shape.
    Secret(Shape),
    /// A masked bit.
    Bit(Rss<Bits<D>>),
}
store_enum!(Masks[W: Word, D: Device] on D => 0 = Public, 1 = Secret, 2 = Bit);

impl<W: Word, D: Device> Masks<W, D> {
    fn bit(&self) -> &Rss<Bits<D>> {
        match self {
            Masks::Bit(r) => r,
            _ => panic!("the plan's types say that this is a masked bit"),
        }
    }
}

/// A party's share of a value.
#[derive(Clone)]
pub enum Data<W: Word, D: Device> {
    /// A public value, which the masks hold.
    Public(()),
    /// A ring value.
    Ring(Rss<Tensor<W, D>>),
    /// This party's summand of a ring value whose resharing is deferred.
    Sum(deferred::Summand<W, D>),
    /// Replicated bits.
    Bit(Rss<Bits<D>>),
    /// m of masked bits.
    Masked(Bits<D>),
}
store_enum!(Data[W: Word, D: Device] on D => 0 = Public, 1 = Ring, 2 = Sum, 3 = Bit, 4 = Masked);

impl<W: Word, D: Device> Data<W, D> {
    fn ring(&self) -> &Rss<Tensor<W, D>> {
        match self {
            Data::Ring(x) => x,
            _ => panic!("the plan's types say that this is a secret ring value"),
        }
    }
    fn bit(&self) -> &Rss<Bits<D>> {
        match self {
            Data::Bit(x) => x,
            _ => panic!("the plan's types say that this is a replicated bit"),
        }
    }
    fn summand(&self) -> deferred::Summand<W, D> {
        match self {
            Data::Sum(z) => z.clone(),
            x => deferred::Summand::of(x.ring()),
        }
    }
    fn masked(&self) -> &Bits<D> {
        match self {
            Data::Masked(m) => m,
            _ => panic!("the plan's types say that this is a masked bit"),
        }
    }
}

/// The correlated randomness of one step.
pub enum Material<W: Word, D: Device> {
    /// None.
    Local(()),
    /// Of an addition on masked bits.
    Sum(Box<alkaid::Material<D>>),
    /// A bit's mask as a ring value.
    Ring(Rss<Tensor<W, D>>),
    /// Products of two bits' masks.
    Pairs(bits::Pairs<D>),
    /// Of a ReLU.
    Relu(Box<relu::Material<W, D>>),
    /// Of a conversion from bits.
    FromBits(Box<words::B2aMaterial<W, D>>),
    /// Of a comparison.
    Compare(Box<alkaid::TopMaterial<D>>),
}
store_enum!(Material[W: Word, D: Device] on D => 0 = Local, 1 = Sum, 2 = Ring, 3 = Pairs, 4 = Relu, 5 = FromBits,
    6 = Compare);

/// Truncates a replicated value, or a sum.
fn truncated<W: Word, D: Device>(
    party: &mut Party<D>,
    f: u32,
    x: &Data<W, D>,
) -> Result<Rss<Tensor<W, D>>, Error> {
    match x {
        Data::Sum(summand) => truncate::sum(party, f, summand),
        x => truncate::online(party, f, x.ring()),
    }
}

impl<W: Word, D: Device> Suite for Replicated<W, D> {
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
        let compared = || {
            let comparison = Comparison::of(self.adder, op, W::BITS).expect("one of the comparisons");
            comparison.cost(Phase::Online, inputs[0].shape.elements())
        };
        let alkaid = self.adder == Adder::Alkaid;
        let truncate = |f| match inputs[0].kind {
            Kind::Sum { .. } => truncate::sum_cost(W::BITS, f, n),
            _ => truncate::cost(W::BITS, f, n),
        };
        let select = |with_value| match (alkaid, with_value) {
            (false, _) => select::cost(W::BITS, n, with_value),
            (true, false) => select::cost(W::BITS, n, false).made_offline(),
            (true, true) => select::cost(W::BITS, n, false).made_offline().then(product::cost(W::BITS, n)),
        };
        Ok(match op {
            Op::Constant { .. } | Op::Not | Op::Xor | Op::View(_) => Cost::LOCAL,
            op if local::is_linear(op) && bits_in => {
                return Err(Unsupported("bits are rearranged by views only".into()));
            }
            op if local::is_linear(op) => Cost::LOCAL,
            Op::Unshared(_) => Cost::LOCAL,
            Op::Mul if inputs.len() > 2 => {
                return Err(local::two_at_a_time("a protocol on replicated shares"));
            }
            Op::Mul | Op::MatMul | Op::Conv(_) if public_in => Cost::LOCAL,
            Op::Mul | Op::MatMul | Op::Conv(_) => product::cost(W::BITS, n),
            Op::Truncate { bits } => truncate(*bits),
            Op::NonNegative(_) | Op::CompareMany { .. } => compared(),
            Op::Relu(relu) => {
                let truncated = match relu.truncate {
                    0 => Cost::LOCAL,
                    f => truncate(f),
                };
                truncated.beside(compared()).then(select(true))
            }
            Op::Select => select(true),
            Op::BitToRing => select(false),
            Op::ToBits => words::a2b_cost(self.adder, W::BITS, words::extent(&output.shape).1),
            Op::AddBits => {
                let (width, n) = words::extent(&output.shape);
                words::add_cost(self.adder, width, n)
            }
            Op::FromBits => words::b2a_cost(self.adder, W::BITS, n),
            Op::And if alkaid => bits::and_cost(inputs.len(), n),
            Op::And => bits::replicated_and_cost(inputs.len(), n),
            Op::Dealt(step) => dealt::cost::<W, D>(step, inputs, output)?,
            Op::Maximum(_) => {
                let why = "replicated shares have no maximum of all pairs: use --pool tournament";
                return Err(Unsupported(why.into()));
            }
            other => return Err(Unsupported(format!("replicated shares have no {other:?}"))),
        })
    }

    fn input(&self, _: &mut Party<D>, value: &Value) -> Result<(Masks<W, D>, Vec<u8>), Error> {
        Ok((Masks::Secret(value.shape.clone()), vec![]))
    }

    fn share(&self, _: &[Vec<u8>], input: &[W]) -> Result<Vec<Payload>, Error> {
        // Components 0 and 2 come from keys that the owner draws, so only component 1 is sent in words.
        let key = || Key::random().map_err(|e| Error::Randomness(e.to_string()));
        let keys = [key()?, key()?];
        let mut rest = input.to_vec();
        for key in &keys {
            let words = key.stream().words((input.len() * W::BITS as usize).div_ceil(64));
            let drawn = bytemuck::cast_slice::<u64, W>(&words);
            rest.iter_mut().zip(drawn).for_each(|(x, share)| *x = x.sub(*share));
        }
        let with_words = |key: &Key| {
            let mut bytes = key.expose().to_vec();
            bytes.extend_from_slice(bytemuck::cast_slice(&rest));
            Payload::from_bytes(&bytes)
        };
        let both = [keys[1].expose().as_slice(), keys[0].expose().as_slice()].concat();
        Ok(vec![with_words(&keys[0]), with_words(&keys[1]), Payload::from_bytes(&both)])
    }

    fn share_bytes(&self, value: &Value) -> usize {
        (KEY_BYTES + value.shape.elements() * size_of::<W>()).max(2 * KEY_BYTES)
    }

    fn accept(&self, party: &Party<D>, value: &Value, payload: Payload) -> Result<Data<W, D>, Error> {
        let n = value.shape.elements();
        let words = KEY_BYTES + n * size_of::<W>();
        let expected = if party.me() == 2 { 2 * KEY_BYTES } else { words };
        if payload.len() != expected {
            return Err(Error::Refused(format!(
                "an input of shape {} takes {expected} bytes at party {}, its owner sent {}",
                value.shape,
                party.me(),
                payload.len()
            )));
        }
        let (first, rest) = payload.as_bytes().split_at(KEY_BYTES);
        let tensor = |buf| Tensor::new(value.shape.clone(), buf);
        let drawn = |key: &[u8]| -> Result<Tensor<W, D>, Error> {
            let key = Key::from_bytes(key.try_into().expect("32 bytes"));
            Ok(tensor(party.device().random(&key.stream(), n)?))
        };
        Ok(Data::Ring(match party.me() {
            2 => Rss { own: drawn(first)?, next: drawn(rest)? },
            me => {
                let words = tensor(party.device().upload(bytemuck::pod_collect_to_vec(rest))?);
                match me {
                    0 => Rss { own: drawn(first)?, next: words },
                    _ => Rss { own: words, next: drawn(first)? },
                }
            }
        }))
    }

    fn late(&self, op: &Op, inputs: &[&Value], late_inputs: bool) -> bool {
        match op {
            // Replicated bits, as masked ones: they are their own mask.
            Op::ToBits | Op::AddBits => self.adder == Adder::Alkaid,
            Op::Xor | Op::Not | Op::View(_) => late_inputs && inputs[0].kind == Kind::Bit,
            _ => false,
        }
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
            (Op::NonNegative(_) | Op::CompareMany { .. } | Op::And, _) if self.adder == Adder::Alkaid => {
                Masks::Bit(rss::random_bits(party, "mask", &output.shape)?)
            }
            (Op::ToBits | Op::AddBits, _) if self.adder == Adder::Alkaid => return Ok(None),
            (_, inputs) if inputs.iter().any(Option::is_none) && self.late(op, &[output], true) => {
                return Ok(None);
            }
            (Op::Xor | Op::Not | Op::View(_), [Some(Masks::Bit(_)), ..]) => {
                let masks: Vec<_> = inputs.iter().flatten().map(|m| m.bit()).collect();
                // The negation is m's.
                let op = if *op == Op::Not { &Op::Xor } else { op };
                Masks::Bit(local_bits(party, op, output, &masks)?)
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
        if self.adder == Adder::Aby3 {
            return Ok(Material::Local(()));
        }
        if let Some(comparison) = Comparison::of(self.adder, op, W::BITS) {
            let Masks::Secret(x) = inputs[0] else { return party.refuse("compares secret ring values") };
            let top = comparison.offline(party, x.elements())?;
            return Ok(match op {
                Op::Relu(_) => Material::Relu(Box::new(relu::offline(party, &output.shape, top)?)),
                _ => Material::Compare(Box::new(top)),
            });
        }
        Ok(match op {
            Op::ToBits => {
                let n = words::extent(&output.shape).1;
                Material::Sum(Box::new(words::a2b_offline(party, W::BITS, n)?))
            }
            Op::AddBits => {
                Material::Sum(Box::new(words::add_offline(party, inputs[0].bit(), inputs[1].bit())?))
            }
            Op::FromBits => Material::FromBits(Box::new(words::b2a_offline(party, inputs[0].bit())?)),
            Op::Select | Op::BitToRing => Material::Ring(select::online(party, inputs[0].bit(), None)?),
            Op::And => {
                let masks: Vec<_> = inputs.iter().map(|masks| masks.bit()).collect();
                Material::Pairs(bits::and_offline(party, &masks, &output.shape)?)
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
        let (shape, me) = (&output.shape, party.me());
        let arg = |i: usize| inputs[i].1;
        if matches!(output.kind, Kind::Public { .. }) {
            return Ok((Data::Public(()), None));
        }
        let fresh = || masks.expect("bits have masks, drawn offline").bit();
        let elements = Product::Elements;
        // Bits that are their own mask: m = 0.
        let self_masked = |party: &Party<D>, bits: Rss<Bits<D>>| -> Result<_, Error> {
            let zeros = party.device().xor(&[], false, shape.elements())?;
            Ok((Data::Masked(Bits::new(shape.clone(), zeros)), Some(Masks::Bit(bits))))
        };
        let data = match (op, material) {
            (Op::ToBits, Material::Sum(material)) => {
                let sum = words::a2b(party, arg(0).ring(), shape, Some(*material))?;
                return self_masked(party, sum);
            }
            (Op::ToBits, _) => Data::Bit(words::a2b(party, arg(0).ring(), shape, None)?),
            (Op::AddBits, Material::Sum(material)) => {
                let sum = words::masked_add(party, arg(0).masked(), arg(1).masked(), *material)?;
                return self_masked(party, sum);
            }
            (Op::AddBits, _) => Data::Bit(words::add(party, arg(0).bit(), arg(1).bit())?),
            (Op::FromBits, Material::FromBits(material)) => {
                Data::Ring(words::masked_b2a(party, arg(0).masked(), shape, *material)?)
            }
            (Op::FromBits, _) => Data::Ring(words::b2a(party, arg(0).bit(), shape)?),
            (Op::Mul | Op::MatMul | Op::Conv(_), _) => {
                let product = Product::of(op).expect("one of the products");
                Data::Ring(match (inputs[0], inputs[1]) {
                    ((Masks::Public(x), _), (_, y)) => {
                        y.ring().map(me, |_, y| product.apply(party.device(), x, y, shape))?
                    }
                    ((_, x), (Masks::Public(y), _)) => {
                        x.ring().map(me, |_, x| product.apply(party.device(), x, y, shape))?
                    }
                    ((_, x), (_, y)) => product::online(party, &product, x.ring(), y.ring(), shape)?,
                })
            }
            (Op::Unshared(product), _) => {
                let product = Product::of(product).expect("one of the products");
                let (x, y) = (arg(0).ring(), arg(1).ring());
                Data::Sum(deferred::Summand::product(party.device(), &product, x, y, shape)?)
            }
            (Op::Truncate { bits }, _) => Data::Ring(truncated(party, *bits, arg(0))?),
            (Op::NonNegative(_) | Op::CompareMany { .. }, material) => {
                let comparison = Comparison::of(self.adder, op, W::BITS).expect("one of the comparisons");
                let x = arg(0).ring();
                let part = truncate::parts(party, x)?;
                let (dealer, worker) = match me {
                    2 => (Some(&part), None),
                    _ => (None, Some(&part)),
                };
                let n = x.own.elements();
                let dealt = comparison.deal(party, n, dealer)?;
                match material {
                    Material::Compare(top) => {
                        let dealt = comparison.take(party, n, dealt)?;
                        let given = (&*top, fresh());
                        let sent = comparison.masked_send(party, n, worker, dealt.as_ref(), given)?;
                        Data::Masked(comparison.masked(party, shape, sent, *top)?)
                    }
                    _ => {
                        let sent = comparison.send(party, n, worker, dealt)?;
                        Data::Bit(comparison.replicated(party, shape, sent)?)
                    }
                }
            }
            (Op::Relu(relu), material) => {
                let comparison = Comparison::of(self.adder, op, W::BITS).expect("one of the comparisons");
                let material = match material {
                    Material::Relu(material) => Some(*material),
                    _ => None,
                };
                Data::Ring(relu::online(party, &comparison, relu.truncate, arg(0), material)?)
            }
            (Op::Dealt(step), _) => {
                let x: Vec<_> = inputs.iter().map(|(_, x)| x.ring()).collect();
                Data::Ring(dealt::online(party, step, output, &x)?)
            }
            (Op::Select, Material::Ring(r)) => {
                let bit = bits::to_ring(party, arg(0).masked(), &r)?;
                Data::Ring(product::online(party, &elements, &bit, arg(1).ring(), shape)?)
            }
            (Op::Select, _) => Data::Ring(select::online(party, arg(0).bit(), Some(arg(1).ring()))?),
            (Op::BitToRing, Material::Ring(r)) => Data::Ring(bits::to_ring(party, arg(0).masked(), &r)?),
            (Op::BitToRing, _) => Data::Ring(select::online(party, arg(0).bit(), None)?),
            (Op::And, Material::Pairs(products)) => {
                let factors: Vec<_> = inputs.iter().map(|(r, m)| (m.masked(), r.bit())).collect();
                let m = bits::masked_and(party, &factors, &products, fresh())?;
                Data::Masked(Bits::new(shape.clone(), m))
            }
            (Op::And, _) => {
                let factors: Vec<_> = inputs.iter().map(|(_, x)| x.bit()).collect();
                Data::Bit(bits::and(party, &factors, shape)?)
            }
            (Op::Xor | Op::Not | Op::View(_), _) if output.kind == Kind::Bit => match self.adder {
                Adder::Aby3 => {
                    let operands: Vec<_> = (0..inputs.len()).map(|i| arg(i).bit()).collect();
                    Data::Bit(local_bits(party, op, output, &operands)?)
                }
                Adder::Alkaid => {
                    let operands: Vec<_> = (0..inputs.len()).map(|i| arg(i).masked()).collect();
                    Data::Masked(local_bit(party.device(), op, output, &operands, true)?)
                }
            },
            (op, _) if local::is_linear(op) && matches!(output.kind, Kind::Sum { .. }) => {
                let operands: Vec<_> = (0..inputs.len()).map(|i| arg(i).summand()).collect();
                Data::Sum(deferred::Summand::linear(party.device(), me, op, &operands, output)?)
            }
            (op, _) if local::is_linear(op) => {
                let operands: Vec<_> = (0..inputs.len()).map(|i| arg(i).ring()).collect();
                Data::Ring(Rss::zip(me, &operands, |c, x| {
                    local::linear(party.device(), op, x, output, c == 0)
                })?)
            }
            (other, _) => return party.refuse(format!("replicated shares have no {other:?}")),
        };
        Ok((data, None))
    }

    fn reveal(&self, party: &mut Party<D>, masks: &Masks<W, D>, data: &Data<W, D>) -> Result<Payload, Error> {
        let device = party.device().clone();
        let packed = |party: &mut Party<D>, x: &Rss<Bits<D>>| -> Result<Payload, Error> {
            let n = x.own.elements();
            let words = device.download(reveal::bits_of_three(party, &x.own.buf, n)?)?;
            Ok(Payload::from_bytes(&bytemuck::cast_slice(&words)[..megrez_ring::bits::bytes(n)]))
        };
        Ok(match (masks, data) {
            (Masks::Public(x), _) if party.me() == 0 => Payload::from_pod(&device.download(x.buf.clone())?),
            (_, Data::Ring(x)) => {
                let share = reveal::of_three::<W, D>(party, &x.own.buf, x.own.elements())?;
                Payload::from_pod(&device.download(share)?)
            }
            (_, Data::Bit(x)) => packed(party, x)?,
            (Masks::Bit(r), Data::Masked(m)) => {
                let bit = bits::to_replicated(party, m, r)?;
                packed(party, &bit)?
            }
            _ => Payload::zeroed(0),
        })
    }

    fn reconstruct(&self, value: &Value, messages: &[Payload]) -> Result<Vec<W>, Error> {
        rss::reconstruct(value, messages)
    }
}

/// A local step on one component of bits, or on m; `public` says that it takes the negation.
fn local_bit<D: Device>(
    device: &D,
    op: &Op,
    output: &Value,
    operands: &[&Bits<D>],
    public: bool,
) -> Result<Bits<D>, Error> {
    let buf = match op {
        Op::View(view) => device.view_bits(&operands[0].buf, view)?,
        op => {
            let parts: Vec<_> = operands.iter().map(|x| &x.buf).collect();
            device.xor(&parts, *op == Op::Not && public, output.shape.elements())?
        }
    };
    Ok(Bits::new(output.shape.clone(), buf))
}

/// A local step on replicated bits.
fn local_bits<D: Device>(
    party: &Party<D>,
    op: &Op,
    output: &Value,
    operands: &[&Rss<Bits<D>>],
) -> Result<Rss<Bits<D>>, Error> {
    Rss::zip(party.me(), operands, |c, x| local_bit(party.device(), op, output, x, c == 0))
}
