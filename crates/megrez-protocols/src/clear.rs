//! The plaintext suite: one party, no protection, every primitive stated on plain words. It is the
//! template for a new suite and the oracle that tests compare with. Truncation rounds down;
//! protocols may give one more in the last bit.
//!
//! A suite is a [`Sharing`] and a list of rows. Its steps are those of protocols, but that nothing
//! is masked or sent.

use crate::protocol::{self, Security};
use crate::{Call, Made, OnlineStep, Operands, Sharing, Unsupported, Verified, WordsHeld};
use crate::{local, sharing};
use megrez_kernels::{Bits as PackedBits, Device, Tensor};
use megrez_net::Payload;
use megrez_plan::{Gives, Op, Value};
use megrez_ring::{Shape, Word, bits, from_wire, to_wire};
use megrez_session::{Error, Party};
use std::marker::PhantomData;

/// What the registry says of it.
pub const PROTOCOL: protocol::Protocol =
    protocol::Protocol::suite("clear", Security::None, "none: the party sees everything", "plaintext oracle")
        .of_parties(1)
        .without_offline_phase()
        .with_native_maximum()
        .with_lookup()
        .with_factors(4);

/// The suite on the ring of `W` and device `D`.
pub struct Clear<W, D>(PhantomData<fn() -> (W, D)>);

impl<W, D> Default for Clear<W, D> {
    fn default() -> Self {
        Clear(PhantomData)
    }
}

impl<W, D> Clone for Clear<W, D> {
    fn clone(&self) -> Self {
        Clear(PhantomData)
    }
}

/// A value in the clear.
#[derive(Clone)]
pub enum Data<W: Word, D: Device> {
    /// Ring elements, secret or public by type.
    Ring(Tensor<W, D>),
    /// Bits.
    Bit(PackedBits<D>),
}
encode_enum!(Data[W: Word, D: Device] on D => 0 = Ring, 1 = Bit);

impl<W: Word, D: Device> Data<W, D> {
    fn ring(&self) -> &Tensor<W, D> {
        match self {
            Data::Ring(x) => x,
            Data::Bit(_) => panic!("the plan's types say that this is a ring value"),
        }
    }
    fn bit(&self) -> &PackedBits<D> {
        match self {
            Data::Bit(x) => x,
            Data::Ring(_) => panic!("the plan's types say that this is a bit"),
        }
    }
}

impl<W: Word, D: Device> Sharing for Clear<W, D> {
    type Word = W;
    type Device = D;
    type Masks = ();
    type Data = Data<W, D>;
    const PARTIES: usize = 1;

    fn words_held(_: usize) -> WordsHeld {
        WordsHeld { masks: 0, kept: 0, data: 1 }
    }

    fn input(&self, _: &mut Party<D>, _: &Value) -> Result<((), Vec<u8>), Error> {
        Ok(((), vec![]))
    }

    fn share(&self, _: &[Vec<u8>], input: &[W]) -> Result<Vec<Payload>, Error> {
        Ok(vec![Payload::from_bytes(&to_wire(input))])
    }

    fn fresh(_: &mut Party<D>, _: &Value) -> Result<(), Error> {
        Ok(())
    }

    fn accept(&self, party: &Party<D>, value: &Value, payload: Payload) -> Result<Data<W, D>, Error> {
        let expected = value.shape.elements() * W::BYTES;
        if payload.len() != expected {
            return Err(Error::Refused(format!(
                "an input of shape {} takes {expected} bytes, its owner sent {}",
                value.shape,
                payload.len()
            )));
        }
        let words = from_wire(payload.as_bytes());
        Ok(Data::Ring(Tensor::new(value.shape.clone(), party.device().upload(words)?)))
    }

    fn reveal(
        &self,
        party: &mut Party<D>,
        (): &(),
        data: &Data<W, D>,
        _: &Verified,
    ) -> Result<Payload, Error> {
        Ok(match data {
            Data::Ring(x) => Payload::from_bytes(&to_wire(&party.device().download(x.buf.clone())?)),
            Data::Bit(x) => {
                let words = party.device().download(x.buf.clone())?;
                let bits = |i| W::from_u64(bits::get(&words, i));
                Payload::from_bytes(&to_wire(&(0..x.elements()).map(bits).collect::<Vec<W>>()))
            }
        })
    }

    fn reconstruct(&self, value: &Value, messages: &[Payload]) -> Result<Vec<W>, Error> {
        let bytes = messages.first().map_or(&[][..], Payload::as_bytes);
        if bytes.len() != value.shape.elements() * W::BYTES {
            return Err(Error::Refused("the party sent an output of the wrong size".into()));
        }
        Ok(from_wire(bytes))
    }
}

suite_of_steps! { Clear, refuse =>
    0 = Constant,
    1 = Linear,
    2 = Bits,
    3 = Product,
    4 = Truncate,
    5 = Compare,
    6 = Relu,
    7 = Maximum,
    8 = Select,
    9 = ToBits,
    10 = FromBits,
    11 = AddBits,
    12 = Lookup,
    13 = Winner,
    14 = Noise,
}

fn refuse(call: Call<'_>) -> Unsupported {
    local::refuse("clear", call)
}

/// A primitive on plain words. Where and how its result is shared is nothing to it:
/// [`Op::Additive`] and [`Op::Offloaded`] are what they hold.
trait Plain<'a, W: Word, D: Device>: Sized {
    /// The call, if it is one of this primitive.
    fn of(call: Call<'a>) -> Option<Self>;
    /// What it draws before it computes, and then computes on as well.
    fn drawn(&self, _: &mut Party<D>) -> Result<Option<Data<W, D>>, Error> {
        Ok(None)
    }
    /// The result.
    fn compute(&self, device: &D, x: &[&Data<W, D>]) -> Result<Data<W, D>, Error>;
}

impl<'a, W: Word, D: Device, T: Plain<'a, W, D>> OnlineStep<'a, Clear<W, D>> for T {
    fn of(_: &Clear<W, D>, call: Call<'a>) -> Option<Self> {
        let op = match call.op {
            Op::Additive(step) | Op::Offloaded(step) => step,
            op => op,
        };
        <T as Plain<'a, W, D>>::of(Call { op, ..call })
    }

    fn online(
        &self,
        party: &mut Party<D>,
        operands: Operands<'_, Clear<W, D>>,
    ) -> Result<Made<Clear<W, D>>, Error> {
        let drawn = self.drawn(party)?;
        let x: Vec<&Data<W, D>> = operands.inputs.iter().map(|(_, x)| *x).chain(&drawn).collect();
        Ok((self.compute(party.device(), &x)?, None))
    }
}

/// floor(x / 2^f) for a signed x.
fn floor_shift<W: Word>(x: W, f: u32) -> W {
    W::from_i64(x.to_i64() >> f)
}

/// f of every element, on the host.
fn each<W: Word, D: Device>(
    device: &D,
    shape: &Shape,
    x: &Data<W, D>,
    f: impl Fn(W) -> W,
) -> Result<Data<W, D>, Error> {
    let words = device.download(x.ring().buf.clone())?.into_iter().map(f).collect();
    Ok(Data::Ring(Tensor::new(shape.clone(), device.upload(words)?)))
}

/// A public tensor.
pub struct Constant<'a>(Call<'a>);

impl<'a, W: Word, D: Device> Plain<'a, W, D> for Constant<'a> {
    fn of(call: Call<'a>) -> Option<Self> {
        matches!(call.op, Op::Constant { .. }).then_some(Constant(call))
    }

    fn compute(&self, device: &D, _: &[&Data<W, D>]) -> Result<Data<W, D>, Error> {
        let Op::Constant { words, .. } = self.0.op else { unreachable!("seen before") };
        Ok(Data::Ring(local::constant(device, self.0.shape(), words)?))
    }
}

/// Noise: one party draws what two do elsewhere.
pub struct Noise<'a>(sharing::Noise<'a>);

impl<'a, W: Word, D: Device> Plain<'a, W, D> for Noise<'a> {
    fn of(call: Call<'a>) -> Option<Self> {
        sharing::Noise::of_call(call).map(Noise)
    }

    fn drawn(&self, party: &mut Party<D>) -> Result<Option<Data<W, D>>, Error> {
        let both: [D::Buf<W>; 2] = [self.0.own(party, "noise")?, self.0.own(party, "other-noise")?];
        let n = self.0.shape().elements();
        let sum = party.device().combine(&[(W::ONE, &both[0]), (W::ONE, &both[1])], W::ZERO, n)?;
        Ok(Some(Data::Ring(Tensor::new(self.0.shape().clone(), sum))))
    }

    fn compute(&self, _: &D, x: &[&Data<W, D>]) -> Result<Data<W, D>, Error> {
        Ok(x[0].clone())
    }
}

/// A linear map; a sum is what it is a sum of.
pub struct Linear<'a>(Call<'a>);

impl<'a, W: Word, D: Device> Plain<'a, W, D> for Linear<'a> {
    fn of(call: Call<'a>) -> Option<Self> {
        let answers = (call.op.is_linear() && !call.of_bits()) || *call.op == Op::Reshare;
        answers.then_some(Linear(call))
    }

    fn compute(&self, device: &D, x: &[&Data<W, D>]) -> Result<Data<W, D>, Error> {
        let x: Vec<_> = x.iter().map(|x| x.ring()).collect();
        if *self.0.op == Op::Reshare {
            return Ok(Data::Ring(x[0].clone()));
        }
        Ok(Data::Ring(local::linear(device, self.0.op, &x, self.0.output, true)?))
    }
}

/// Rearrangements, negations, exclusive ors and products of bits, and lowest bits of words.
pub struct Bits<'a>(Call<'a>);

impl<'a, W: Word, D: Device> Plain<'a, W, D> for Bits<'a> {
    fn of(call: Call<'a>) -> Option<Self> {
        let answers = matches!(call.op, Op::And | Op::LowBit | Op::BitMatMul | Op::BitPolynomials { .. });
        (answers || local::BitLinear::of(call).is_some()).then_some(Bits(call))
    }

    fn compute(&self, device: &D, x: &[&Data<W, D>]) -> Result<Data<W, D>, Error> {
        if *self.0.op == Op::LowBit {
            return Ok(Data::Bit(local::low_bits(device, x[0].ring())?));
        }
        let x: Vec<_> = x.iter().map(|x| x.bit()).collect();
        if let Some(product @ local::BitProduct::Matrices(_)) = local::BitProduct::of_two(self.0) {
            let z = product.apply(device, &x[0].buf, &x[1].buf)?;
            return Ok(Data::Bit(PackedBits::new(self.0.shape().clone(), z)));
        }
        if let Op::BitPolynomials { sums } = self.0.op {
            let (x, n) = (device.download(x[0].buf.clone())?, self.0.shape().elements() / sums.len());
            let value = |at: usize| {
                let bit = |&slice: &usize| bits::get(&x, slice * n + at % n);
                let terms =
                    sums[at / n].iter().map(|term| term.iter().map(bit).fold(1, |all, bit| all & bit));
                terms.fold(0, |sum, term| sum ^ term)
            };
            let packed = bits::pack(sums.len() * n, value);
            return Ok(Data::Bit(PackedBits::new(self.0.shape().clone(), device.upload(packed)?)));
        }
        let Some(map) = local::BitLinear::of(self.0) else {
            let all = x[1..].iter().try_fold(x[0].buf.clone(), |all, x| device.and(&all, &x.buf))?;
            return Ok(Data::Bit(PackedBits::new(self.0.shape().clone(), all)));
        };
        Ok(Data::Bit(map.apply(device, &x, true)?))
    }
}

/// A product of two values and more, truncated before or not.
pub struct Product<'a>(local::Product<'a>, Call<'a>);

impl<'a, W: Word, D: Device> Plain<'a, W, D> for Product<'a> {
    fn of(call: Call<'a>) -> Option<Self> {
        let product = match call.op {
            Op::MulTruncated { .. } => local::Product::Elements,
            op => local::Product::of(op)?,
        };
        Some(Product(product, call))
    }

    fn compute(&self, device: &D, x: &[&Data<W, D>]) -> Result<Data<W, D>, Error> {
        let shape = self.1.shape();
        let times = |z: Tensor<W, D>, x: &&Data<W, D>| self.0.apply(device, &z, x.ring(), shape);
        if let Op::MulTruncated { bits } = self.1.op {
            let factor = |i: usize| each(device, shape, x[i], |x| floor_shift(x, bits[i]));
            let (first, last) = (factor(0)?, factor(bits.len() - 1)?);
            return Ok(Data::Ring(times(first.ring().clone(), &&last)?));
        }
        Ok(Data::Ring(x[1..].iter().try_fold(x[0].ring().clone(), times)?))
    }
}

/// x / 2^f, rounded down.
pub struct Truncate<'a>(u32, &'a Shape);

impl<'a, W: Word, D: Device> Plain<'a, W, D> for Truncate<'a> {
    fn of(call: Call<'a>) -> Option<Self> {
        let Op::Truncate { bits } = *call.op else { return None };
        Some(Truncate(bits, call.shape()))
    }

    fn compute(&self, device: &D, x: &[&Data<W, D>]) -> Result<Data<W, D>, Error> {
        each(device, self.1, x[0], |x| floor_shift(x, self.0))
    }
}

/// A function by pieces, without carries.
pub struct Lookup<'a>(&'a megrez_plan::Lookup, &'a Shape);

impl<'a, W: Word, D: Device> Plain<'a, W, D> for Lookup<'a> {
    fn of(call: Call<'a>) -> Option<Self> {
        let Op::Lookup(lookup) = call.op else { return None };
        Some(Lookup(lookup, call.shape()))
    }

    fn compute(&self, device: &D, x: &[&Data<W, D>]) -> Result<Data<W, D>, Error> {
        each(device, self.1, x[0], |x| W::from_u64(self.0.at(x.to_u64(), [false; 2])))
    }
}

/// [x ≥ 0], or [x ≥ t] for every threshold.
pub struct Compare<'a>(&'a [i64], &'a Shape);

impl<'a, W: Word, D: Device> Plain<'a, W, D> for Compare<'a> {
    fn of(call: Call<'a>) -> Option<Self> {
        match call.op {
            Op::NonNegative(_) => Some(Compare(&[0], call.shape())),
            Op::CompareMany { thresholds, .. } => Some(Compare(thresholds, call.shape())),
            _ => None,
        }
    }

    fn compute(&self, device: &D, x: &[&Data<W, D>]) -> Result<Data<W, D>, Error> {
        let (x, n) = (&x[0].ring().buf, x[0].ring().elements());
        let each = |&t: &i64| {
            let difference = device.combine(&[(W::ONE, x)], W::from_i64(t).neg(), n)?;
            device.xor(&[&device.msb(&difference)?], true, n)
        };
        let bits = self.0.iter().map(each).collect::<Result<Vec<_>, _>>()?;
        let all = device.join_bits(&bits.iter().map(|b| (b, n)).collect::<Vec<_>>())?;
        Ok(Data::Bit(PackedBits::new(self.1.clone(), all)))
    }
}

/// max(x, 0), perhaps truncated.
pub struct Relu<'a>(u32, &'a Shape);

impl<'a, W: Word, D: Device> Plain<'a, W, D> for Relu<'a> {
    fn of(call: Call<'a>) -> Option<Self> {
        let Op::Relu(relu) = call.op else { return None };
        Some(Relu(relu.truncate, call.shape()))
    }

    fn compute(&self, device: &D, x: &[&Data<W, D>]) -> Result<Data<W, D>, Error> {
        each(device, self.1, x[0], |x| if x.msb() == 1 { W::ZERO } else { floor_shift(x, self.0) })
    }
}

/// The largest of several values.
pub struct Maximum<'a>(&'a Shape);

impl<'a, W: Word, D: Device> Plain<'a, W, D> for Maximum<'a> {
    fn of(call: Call<'a>) -> Option<Self> {
        matches!(call.op, Op::Maximum(_)).then_some(Maximum(call.shape()))
    }

    fn compute(&self, device: &D, x: &[&Data<W, D>]) -> Result<Data<W, D>, Error> {
        let host = |x: &Data<W, D>| device.download(x.ring().buf.clone());
        let mut largest = host(x[0])?;
        for x in &x[1..] {
            let pairs = largest.iter_mut().zip(host(x)?);
            pairs.for_each(|(z, x)| *z = W::from_i64(z.to_i64().max(x.to_i64())));
        }
        Ok(Data::Ring(Tensor::new(self.0.clone(), device.upload(largest)?)))
    }
}

/// The largest of several values along the first dimension, or a 1 at its place; nothing is cut.
pub struct Winner<'a>(Gives, &'a Shape);

impl<'a, W: Word, D: Device> Plain<'a, W, D> for Winner<'a> {
    fn of(call: Call<'a>) -> Option<Self> {
        let Op::Winner(winner) = call.op else { return None };
        Some(Winner(winner.gives, call.shape()))
    }

    fn compute(&self, device: &D, x: &[&Data<W, D>]) -> Result<Data<W, D>, Error> {
        let k = x[0].ring().shape.dims()[0];
        let x = device.download(x[0].ring().buf.clone())?;
        let n = x.len() / k;
        let value = |i: usize, e: usize| x[i * n + e].to_i64();
        let place = |e: usize| megrez_plan::Winner::exact(&(0..k).map(|i| value(i, e)).collect::<Vec<_>>());
        let places: Vec<usize> = (0..n).map(place).collect();
        let words = match self.0 {
            Gives::Value => (0..n).map(|e| x[places[e] * n + e]).collect(),
            Gives::OneHot => (0..k * n).map(|i| W::from_u64((places[i % n] == i / n).into())).collect(),
        };
        Ok(Data::Ring(Tensor::new(self.1.clone(), device.upload(words)?)))
    }
}

/// b·x, truncated or not or added up, or the bit as 0 or 1.
pub struct Select<'a>(Call<'a>);

impl<'a, W: Word, D: Device> Plain<'a, W, D> for Select<'a> {
    fn of(call: Call<'a>) -> Option<Self> {
        matches!(call.op, Op::Select { .. } | Op::SelectSum { .. } | Op::BitToRing).then_some(Select(call))
    }

    fn compute(&self, device: &D, x: &[&Data<W, D>]) -> Result<Data<W, D>, Error> {
        let (bits, output) = (x[0].bit(), self.0.shape());
        let (dropped, groups) = match self.0.op {
            Op::Select { truncate } => (*truncate, None),
            Op::SelectSum { groups } => (0, Some(groups)),
            _ => (0, None),
        };
        let value =
            x.get(1).map(|x| each(device, &bits.shape, x, |x| floor_shift(x, dropped))).transpose()?;
        let value = value.as_ref().map(|value| &value.ring().buf);
        let n = bits.shape.elements();
        let selected = device.bit_times(&bits.buf, value, n)?;
        let z = match groups {
            Some(groups) => local::group_sums(device, &selected, groups, n / bits.shape.dims()[0].max(1))?,
            None => selected,
        };
        Ok(Data::Ring(Tensor::new(output.clone(), z)))
    }
}

/// The bits of a ring value.
pub struct ToBits<'a>(&'a Shape);

impl<'a, W: Word, D: Device> Plain<'a, W, D> for ToBits<'a> {
    fn of(call: Call<'a>) -> Option<Self> {
        (*call.op == Op::ToBits).then_some(ToBits(call.shape()))
    }

    fn compute(&self, device: &D, x: &[&Data<W, D>]) -> Result<Data<W, D>, Error> {
        let x = device.download(x[0].ring().buf.clone())?;
        let packed = bits::pack(self.0.elements(), |i| x[i % x.len()].to_u64() >> (i / x.len()));
        Ok(Data::Bit(PackedBits::new(self.0.clone(), device.upload(packed)?)))
    }
}

/// The ring value of bits.
pub struct FromBits<'a>(&'a Shape);

impl<'a, W: Word, D: Device> Plain<'a, W, D> for FromBits<'a> {
    fn of(call: Call<'a>) -> Option<Self> {
        (*call.op == Op::FromBits).then_some(FromBits(call.shape()))
    }

    fn compute(&self, device: &D, x: &[&Data<W, D>]) -> Result<Data<W, D>, Error> {
        let (x, n) = (device.download(x[0].bit().buf.clone())?, self.0.elements());
        let word = |i| (0..W::BITS as usize).fold(0, |v, k| v | bits::get(&x, k * n + i) << k);
        let words = device.upload((0..n).map(|i| W::from_u64(word(i))).collect())?;
        Ok(Data::Ring(Tensor::new(self.0.clone(), words)))
    }
}

/// x + y of values in bits.
pub struct AddBits<'a>(&'a Shape);

impl<'a, W: Word, D: Device> Plain<'a, W, D> for AddBits<'a> {
    fn of(call: Call<'a>) -> Option<Self> {
        (*call.op == Op::AddBits).then_some(AddBits(call.shape()))
    }

    fn compute(&self, device: &D, x: &[&Data<W, D>]) -> Result<Data<W, D>, Error> {
        let [a, b] = [0, 1].map(|i| device.download(x[i].bit().buf.clone()));
        let (a, b, n) = (a?, b?, self.0.elements());
        let each = n / self.0.dims()[0];
        let mut carries = vec![0; each];
        let packed = bits::pack(n, |i| {
            let (a, b, carry) = (bits::get(&a, i), bits::get(&b, i), &mut carries[i % each]);
            let sum = a ^ b ^ *carry;
            *carry = (a & b) | (*carry & (a ^ b));
            sum
        });
        Ok(Data::Bit(PackedBits::new(self.0.clone(), device.upload(packed)?)))
    }
}
