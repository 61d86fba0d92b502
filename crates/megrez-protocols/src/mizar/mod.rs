//! MIZAR: three parties, one of them a dealer, on masked sharing ([`crate::mss`]). Semi-honest, one corruption.
//!
//! Sources: MIZAR (the paper), §2.2 for products, Fig. 4 for the sign bit; deviations stand in each file. Linear
//! operations are local: workers apply them to m and to their share of r, the dealer to both shares of r.
//!
//! Security: `docs/security/mizar.md`.

mod bits;
mod many;
mod maximum;
mod product;
mod relu;
mod select;
mod sign;
pub(crate) mod truncate;

use crate::local;
use crate::mss::{BitMask, Mask, RingMask, Role, draw};
use crate::reveal;
use crate::store::take;
use crate::{Cost, Store, StoreError, Suite, Unsupported};
use megrez_kernels::{Baseline, Bits, Device, Tensor};
use megrez_net::Payload;
use megrez_plan::{Kind, Op, Value};
use megrez_prg::Key;
use megrez_ring::Word;
use megrez_session::{Error, Party};
use std::marker::PhantomData;

/// The suite on the ring of `W` and device `D`, with its own list or a baseline's.
pub struct Mizar<W, D> {
    lists: sign::Lists,
    of: PhantomData<fn() -> (W, D)>,
}

impl<W, D> Default for Mizar<W, D> {
    fn default() -> Self {
        Mizar { lists: None, of: PhantomData }
    }
}

impl<W, D> Mizar<W, D> {
    /// The suite with a baseline's list in place of its own: the protocols `aegis` and `concurrent`.
    pub fn with_lists(baseline: Baseline) -> Self {
        Mizar { lists: Some(baseline), of: PhantomData }
    }
}

impl<W, D> Clone for Mizar<W, D> {
    fn clone(&self) -> Self {
        Mizar { ..*self }
    }
}

/// What a party knows of a value before the inputs exist.
#[derive(Clone)]
pub enum Masks<W: Word, D: Device> {
    /// A public value: the words.
    Public(Tensor<W, D>),
    /// A secret ring value.
    Ring(RingMask<W, D>),
    /// A secret bit.
    Bit(BitMask<D>),
}
store_enum!(Masks[W: Word, D: Device] on D => 0 = Public, 1 = Ring, 2 = Bit);

/// What a party learns of a value online. The dealer learns nothing.
#[derive(Clone)]
pub enum Data<W: Word, D: Device> {
    /// The dealer's, or a public value, which the masks already hold.
    None,
    /// m of a ring value.
    Ring(Tensor<W, D>),
    /// m of a bit.
    Bit(Bits<D>),
}

impl<W: Word, D: Device> Store<D> for Data<W, D> {
    fn write(&self, device: &D, out: &mut Vec<u8>) -> Result<(), StoreError> {
        match self {
            Data::None => out.push(0),
            Data::Ring(m) => {
                out.push(1);
                m.write(device, out)?;
            }
            Data::Bit(m) => {
                out.push(2);
                m.write(device, out)?;
            }
        }
        Ok(())
    }
    fn read(device: &D, input: &mut &[u8]) -> Result<Self, StoreError> {
        Ok(match take(input, 1)?[0] {
            0 => Data::None,
            1 => Data::Ring(Store::<D>::read(device, input)?),
            2 => Data::Bit(Store::<D>::read(device, input)?),
            _ => return Err(StoreError::Damaged),
        })
    }
}

/// The correlated randomness of one step.
pub enum Material<W: Word, D: Device> {
    /// A local step needs none.
    Local(()),
    /// See the product step.
    Product(product::Material<W, D>),
    /// See the truncation step.
    Truncate(truncate::Material<W, D>),
    /// See the sign bit step.
    Sign(sign::Dealt<D>),
    /// See the ReLU step.
    Relu(Box<relu::Material<W, D>>),
    /// See the maximum step.
    Maximum(Box<maximum::Material<W, D>>),
    /// See the selection step.
    Select(select::Material<W, D>),
    /// See the steps on bits.
    Bits(bits::Material<D>),
    /// See the conversion step.
    BitToRing(bits::RingMaterial<W, D>),
}
store_enum!(Material[W: Word, D: Device] on D =>
    0 = Local, 1 = Product, 2 = Truncate, 3 = Sign, 4 = Relu, 5 = Select, 6 = Bits, 7 = BitToRing,
    8 = Maximum);

impl<W: Word, D: Device> Masks<W, D> {
    fn ring(&self) -> &RingMask<W, D> {
        match self {
            Masks::Ring(mask) => mask,
            _ => panic!("the plan's types say that this is a secret ring value"),
        }
    }
    fn bit(&self) -> &BitMask<D> {
        match self {
            Masks::Bit(mask) => mask,
            _ => panic!("the plan's types say that this is a secret bit"),
        }
    }
}

impl<W: Word, D: Device> Data<W, D> {
    fn ring(&self) -> Option<&Tensor<W, D>> {
        match self {
            Data::Ring(m) => Some(m),
            _ => None,
        }
    }
    fn bit(&self) -> Option<&Bits<D>> {
        match self {
            Data::Bit(m) => Some(m),
            _ => None,
        }
    }
}

impl<W: Word, D: Device> Suite for Mizar<W, D> {
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
        Ok(match op {
            Op::Constant { .. } | Op::Not | Op::Xor => Cost::LOCAL,
            Op::View(_) => Cost::LOCAL,
            op if local::is_linear(op) && bits_in => {
                return Err(Unsupported("mizar rearranges bits by views only".into()));
            }
            op if local::is_linear(op) => Cost::LOCAL,
            Op::Mul | Op::And if inputs.len() > 2 => return Err(local::two_at_a_time("mizar")),
            Op::Mul | Op::MatMul | Op::Conv(_) if public_in => Cost::LOCAL,
            Op::Mul | Op::MatMul | Op::Conv(_) => product::cost(W::BITS, n),
            Op::Truncate { bits } => truncate::cost(W::BITS, *bits, n),
            Op::NonNegative(sign) => sign::cost(self.lists, sign, W::BITS, n),
            Op::CompareMany { sign, thresholds } => {
                many::cost(self.lists, sign, W::BITS, n / thresholds.len(), thresholds.len())
            }
            Op::Relu(relu) => match relu::refuse(relu, W::BITS) {
                Some(why) => return Err(Unsupported(why)),
                None => relu::cost(self.lists, relu, W::BITS, n),
            },
            Op::Maximum(sign) => maximum::cost(self.lists, sign, W::BITS, inputs.len(), n),
            Op::Select => select::cost(W::BITS, n),
            Op::BitToRing => bits::to_ring_cost(W::BITS, n),
            Op::And => bits::and_cost(n),
            other => return Err(Unsupported(format!("mizar has no {other:?}"))),
        })
    }

    fn input(&self, party: &mut Party<D>, value: &Value) -> Result<(Masks<W, D>, Vec<u8>), Error> {
        // A worker's ticket is the key of its share of the mask: the owner computes r, and nothing else.
        let mut ticket = Vec::new();
        let mask = draw(party, "input", |party, key: Key| {
            if Role::of(party) != Role::Dealer {
                ticket = key.expose().to_vec();
            }
            let n = value.shape.elements();
            Ok(Tensor::new(value.shape.clone(), party.device().random::<W>(&key.stream(), n)?))
        })?;
        Ok((Masks::Ring(mask), ticket))
    }

    fn share(&self, tickets: &[Vec<u8>], input: &[W]) -> Result<Vec<Payload>, Error> {
        let mut masked = input.to_vec();
        for j in 0..2 {
            let key: [u8; 32] = tickets
                .get(j)
                .and_then(|t| t.as_slice().try_into().ok())
                .ok_or_else(|| Error::Refused(format!("party {j} sent a ticket that is no key")))?;
            let words = Key::from_bytes(key).stream().words((input.len() * W::BITS as usize).div_ceil(64));
            let mask = bytemuck::cast_slice::<u64, W>(&words);
            masked.iter_mut().zip(mask).for_each(|(m, r)| *m = m.add(*r));
        }
        let payload = Payload::from_pod(&masked);
        Ok(vec![payload.clone(), payload, Payload::zeroed(0)])
    }

    fn accept(&self, party: &Party<D>, value: &Value, payload: Payload) -> Result<Data<W, D>, Error> {
        let n = if Role::of(party) == Role::Dealer { 0 } else { value.shape.elements() };
        let expected = n * size_of::<W>();
        if payload.len() != expected {
            return Err(Error::Refused(format!(
                "an input of shape {} takes {expected} bytes at party {}, its owner sent {}",
                value.shape,
                party.me(),
                payload.len()
            )));
        }
        if Role::of(party) == Role::Dealer {
            return Ok(Data::None);
        }
        let words = bytemuck::pod_collect_to_vec(payload.as_bytes());
        Ok(Data::Ring(Tensor::new(value.shape.clone(), party.device().upload(words)?)))
    }

    fn late(&self, op: &Op, inputs: &[&Value], late_inputs: bool) -> bool {
        match op {
            Op::Relu(relu) => relu::late(relu),
            Op::Truncate { .. } | Op::Maximum(_) | Op::Select | Op::BitToRing | Op::And => false,
            Op::NonNegative(_) | Op::CompareMany { .. } => false,
            // A product of secrets is opened under a fresh mask; one with a public operand is local.
            Op::Mul | Op::MatMul | Op::Conv(_) => {
                late_inputs && inputs.iter().any(|v| matches!(v.kind, Kind::Public { .. }))
            }
            _ => late_inputs,
        }
    }

    fn masks(
        &self,
        party: &mut Party<D>,
        op: &Op,
        output: &Value,
        inputs: &[Option<&Masks<W, D>>],
    ) -> Result<Option<Masks<W, D>>, Error> {
        let shape = &output.shape;
        // Public values are never late, so one that is there shows.
        let public = inputs.iter().flatten().any(|m| matches!(m, Masks::Public(_)));
        Ok(Some(match op {
            // What is opened under a fresh mask, whatever the inputs' masks are.
            Op::Relu(relu) if relu::late(relu) => return Ok(None),
            Op::Mul | Op::MatMul | Op::Conv(_) if !public => Masks::Ring(RingMask::fresh(party, shape)?),
            Op::Truncate { .. } | Op::Relu(_) | Op::Maximum(_) | Op::Select | Op::BitToRing => {
                Masks::Ring(RingMask::fresh(party, shape)?)
            }
            Op::NonNegative(_) | Op::CompareMany { .. } | Op::And => {
                Masks::Bit(BitMask::fresh_bits(party, shape)?)
            }
            Op::Constant { words, .. } => {
                let words = words.iter().map(|&w| W::from_i64(w)).collect();
                Masks::Public(Tensor::new(shape.clone(), party.device().upload(words)?))
            }
            // What is local, on the masks as on the data.
            _ => match inputs.iter().copied().collect::<Option<Vec<_>>>() {
                Some(inputs) => local_masks(party.device(), op, output, &inputs)?,
                None => return Ok(None),
            },
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
        if let (Some(product), [Masks::Ring(x), Masks::Ring(y)]) = (local::Product::of(op), inputs) {
            return Ok(Material::Product(product::offline(party, &product, shape, x, y)?));
        }
        Ok(match op {
            Op::Truncate { bits } => {
                Material::Truncate(truncate::offline(party, *bits, shape, inputs[0].ring())?)
            }
            Op::NonNegative(sign) => {
                Material::Sign(sign::deal_list(party, self.lists, sign, shape.elements(), inputs[0].ring())?)
            }
            // One deal for all thresholds.
            Op::CompareMany { sign, thresholds } => {
                let n = shape.elements() / thresholds.len();
                Material::Sign(sign::deal_list(party, self.lists, sign, n, inputs[0].ring())?)
            }
            Op::Relu(relu) => {
                Material::Relu(Box::new(relu::offline(party, self.lists, relu, shape, inputs[0].ring())?))
            }
            Op::Maximum(sign) => {
                let masks: Vec<&RingMask<W, D>> = inputs.iter().map(|m| m.ring()).collect();
                Material::Maximum(Box::new(maximum::offline(party, self.lists, sign, shape, &masks)?))
            }
            Op::Select => Material::Select(select::offline(party, shape, inputs[0].bit(), inputs[1].ring())?),
            Op::BitToRing => Material::BitToRing(bits::to_ring_offline(party, shape, inputs[0].bit())?),
            Op::And => Material::Bits(bits::and_offline(party, shape, inputs[0].bit(), inputs[1].bit())?),
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
        let ring = |m: Option<D::Buf<W>>| m.map_or(Data::None, |m| Data::Ring(Tensor::new(shape.clone(), m)));
        let bit = |m: Option<D::Buf<u64>>| m.map_or(Data::None, |m| Data::Bit(Bits::new(shape.clone(), m)));
        // Steps in which the dealer takes part.
        match (op, &material) {
            (Op::NonNegative(sign), Material::Sign(dealt)) => {
                let mask = masks.expect("fresh and drawn offline").bit();
                let m = sign::online::<W, D>(party, self.lists, sign, inputs[0].1.ring(), n, mask, dealt)?;
                return Ok((bit(m), None));
            }
            (Op::CompareMany { sign, thresholds }, Material::Sign(dealt)) => {
                let mask = masks.expect("fresh and drawn offline").bit();
                let n = n / thresholds.len();
                let m = many::online::<W, D>(
                    party,
                    (self.lists, sign),
                    thresholds,
                    inputs[0].1.ring(),
                    n,
                    mask,
                    dealt,
                )?;
                return Ok((bit(m), None));
            }
            (Op::Relu(relu), Material::Relu(_)) => {
                let Material::Relu(material) = material else { unreachable!("matched above") };
                let (mask, m) = (inputs[0].0.ring(), inputs[0].1.ring());
                let (m, late) =
                    relu::online(party, self.lists, relu, mask, masks.map(Masks::ring), m, n, *material)?;
                return Ok((ring(m), late.map(Masks::Ring)));
            }
            (Op::Maximum(sign), Material::Maximum(_)) => {
                let Material::Maximum(material) = material else { unreachable!("matched above") };
                let of_inputs: Vec<&RingMask<W, D>> = inputs.iter().map(|(masks, _)| masks.ring()).collect();
                let values: Option<Vec<&Tensor<W, D>>> = inputs.iter().map(|(_, data)| data.ring()).collect();
                let output = masks.expect("fresh and drawn offline").ring();
                let choices = (self.lists, sign);
                let m = maximum::online(party, choices, &of_inputs, output, values.as_deref(), n, *material)?;
                return Ok((ring(m), None));
            }
            _ => {}
        }
        // In the others it has done its part offline.
        let Role::Worker(j) = Role::of(party) else { return Ok((Data::None, None)) };
        let masked = |i: usize| inputs[i].1.ring().expect("workers hold masked values online");
        let masked_bit = |i: usize| inputs[i].1.bit().expect("workers hold masked values online");
        let share = |i: usize| inputs[i].0.ring().share();
        let fresh = || masks.expect("fresh and drawn offline").ring().share();
        let data = match (op, material) {
            (_, Material::Product(material)) => {
                let product = local::Product::of(op).expect("material of a product");
                let (x, y) = ((masked(0), share(0)), (masked(1), share(1)));
                ring(Some(product::online(party, j, &product, fresh(), x, y, material)?))
            }
            (Op::Truncate { bits }, Material::Truncate(material)) => {
                ring(Some(truncate::online(party, j, *bits, masked(0), fresh(), material)?))
            }
            (Op::Select, Material::Select(material)) => {
                let m = select::online(party, j, masked_bit(0), masked(1), share(1), fresh(), material)?;
                ring(Some(m))
            }
            (Op::BitToRing, Material::BitToRing(material)) => {
                ring(Some(bits::to_ring_online(party, j, masked_bit(0), fresh(), material)?))
            }
            (Op::And, Material::Bits(material)) => {
                let shares = (inputs[0].0.bit().share(), inputs[1].0.bit().share());
                let mask = masks.expect("fresh and drawn offline").bit().share();
                let (x, y) = ((masked_bit(0), shares.0), (masked_bit(1), shares.1));
                bit(Some(bits::and_online(party, j, x, y, mask, material)?))
            }
            // What remains is local: on m as on the masks, with public summands.
            _ if matches!(output.kind, Kind::Public { .. }) => Data::None,
            (Op::Xor | Op::Not, _) => {
                let words: Vec<_> = (0..inputs.len()).map(|i| &masked_bit(i).buf).collect();
                bit(Some(party.device().xor(&words, matches!(op, Op::Not), n)?))
            }
            (Op::View(view), _) if output.kind == Kind::Bit => {
                bit(Some(party.device().view_bits(&masked_bit(0).buf, view)?))
            }
            (Op::Mul | Op::MatMul | Op::Conv(_), _) => {
                let product = local::Product::of(op).expect("one of the products");
                let operand = |i: usize| match inputs[i].0 {
                    Masks::Public(x) => x.clone(),
                    _ => masked(i).clone(),
                };
                Data::Ring(product.apply(party.device(), &operand(0), &operand(1), shape)?)
            }
            _ => {
                let m: Vec<_> = (0..inputs.len()).map(masked).collect();
                Data::Ring(local::linear(party.device(), op, &m, output, true)?)
            }
        };
        Ok((data, None))
    }

    fn reveal(&self, party: &mut Party<D>, masks: &Masks<W, D>, data: &Data<W, D>) -> Result<Payload, Error> {
        // Worker 0's share is m − r_0, worker 1's −r_1.
        let device = party.device().clone();
        match (Role::of(party), masks, data) {
            (Role::Worker(j), Masks::Ring(Mask::Worker(r)), Data::Ring(m)) => {
                let public = if j == 0 { W::ONE } else { W::ZERO };
                let share =
                    device.combine(&[(public, &m.buf), (W::ONE.neg(), &r.buf)], W::ZERO, m.elements())?;
                let share = reveal::of_two(party, j, &share, m.elements())?;
                Ok(Payload::from_pod(&device.download(share)?))
            }
            (Role::Worker(j), Masks::Bit(Mask::Worker(r)), Data::Bit(m)) => {
                let terms: &[_] = if j == 0 { &[&m.buf, &r.buf] } else { &[&r.buf] };
                let share = device.xor(terms, false, m.elements())?;
                let share = reveal::bits_of_two(party, j, &share, m.elements())?;
                Ok(Payload::from_words(device.download(share)?))
            }
            (Role::Worker(0), Masks::Public(x), _) => Ok(Payload::from_pod(&device.download(x.buf.clone())?)),
            _ => Ok(Payload::zeroed(0)),
        }
    }

    fn reconstruct(&self, value: &Value, messages: &[Payload]) -> Result<Vec<W>, Error> {
        let n = value.shape.elements();
        let wrong = || Error::Refused("a party sent an output share of the wrong size".into());
        match value.kind {
            Kind::Ring { .. } | Kind::Sum { .. } => {
                let share = |j: usize| -> Result<&[W], Error> {
                    let share: &[W] = messages.get(j).and_then(|m| m.as_pod().ok()).ok_or_else(wrong)?;
                    if share.len() == n { Ok(share) } else { Err(wrong()) }
                };
                Ok(share(0)?.iter().zip(share(1)?).map(|(a, b)| a.add(*b)).collect())
            }
            Kind::Bit => {
                let words = |j: usize| messages.get(j).map(|m| m.words()).ok_or_else(wrong);
                let (a, b) = (words(0)?, words(1)?);
                if a.len() != megrez_ring::bits::words(n) || b.len() != a.len() {
                    return Err(wrong());
                }
                let bit = |i| megrez_ring::bits::get(a, i) ^ megrez_ring::bits::get(b, i);
                Ok((0..n).map(|i| W::from_u64(bit(i))).collect())
            }
            Kind::Public { .. } => {
                let words: &[W] = messages.first().and_then(|m| m.as_pod().ok()).ok_or_else(wrong)?;
                if words.len() == n { Ok(words.to_vec()) } else { Err(wrong()) }
            }
        }
    }
}

/// A local primitive on masks: a linear map of every component, without public summands.
fn local_masks<W: Word, D: Device>(
    device: &D,
    op: &Op,
    output: &Value,
    inputs: &[&Masks<W, D>],
) -> Result<Masks<W, D>, Error> {
    let shape = &output.shape;
    let n = shape.elements();
    if let Some(product) = local::Product::of(op) {
        return Ok(Masks::Ring(match inputs {
            [Masks::Ring(x), Masks::Public(y)] => x.map(|x| product.apply(device, x, y, shape))?,
            [Masks::Public(x), Masks::Ring(y)] => y.map(|y| product.apply(device, x, y, shape))?,
            _ => unreachable!("the plan's types say that one operand is secret and one public"),
        }));
    }
    Ok(match (op, inputs) {
        (Op::View(view), [Masks::Bit(mask)]) => Masks::Bit(
            mask.map(|bits| device.view_bits(&bits.buf, view).map(|buf| Bits::new(shape.clone(), buf)))?,
        ),
        (Op::Xor, [Masks::Bit(a), Masks::Bit(b)]) => Masks::Bit(Mask::zip(&[a, b], |r| {
            device.xor(&[&r[0].buf, &r[1].buf], false, n).map(|buf| Bits::new(shape.clone(), buf))
        })?),
        (Op::Not, [mask]) => (*mask).clone(),
        (_, [Masks::Public(x)]) => Masks::Public(local::linear(device, op, &[x], output, true)?),
        _ => {
            let masks: Vec<&RingMask<W, D>> = inputs.iter().map(|m| m.ring()).collect();
            Masks::Ring(Mask::zip(&masks, |r| local::linear(device, op, r, output, false))?)
        }
    })
}
