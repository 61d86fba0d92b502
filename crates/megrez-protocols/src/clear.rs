//! The plaintext suite: one party, no protection, every primitive stated on plain words. It is the template for a new
//! suite and the oracle that tests compare with. Truncation rounds down; protocols may give one more in the last bit.

use crate::local;
use crate::{Cost, Suite, Unsupported};
use megrez_kernels::{Bits, Device, Tensor};
use megrez_net::Payload;
use megrez_plan::{Kind, Op, Value};
use megrez_ring::{Word, bits};
use megrez_session::{Error, Party};
use std::marker::PhantomData;

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
    Bit(Bits<D>),
}
store_enum!(Data[W: Word, D: Device] on D => 0 = Ring, 1 = Bit);

impl<W: Word, D: Device> Data<W, D> {
    fn ring(&self) -> &Tensor<W, D> {
        match self {
            Data::Ring(x) => x,
            Data::Bit(_) => panic!("the plan's types say that this is a ring value"),
        }
    }
    fn bit(&self) -> &Bits<D> {
        match self {
            Data::Bit(x) => x,
            Data::Ring(_) => panic!("the plan's types say that this is a bit"),
        }
    }
}

/// floor(x / 2^f) for a signed x.
fn floor_shift<W: Word>(x: W, f: u32) -> W {
    W::from_i64(x.to_i64() >> f)
}

impl<W: Word, D: Device> Suite for Clear<W, D> {
    type Word = W;
    type Device = D;
    type Masks = ();
    type Data = Data<W, D>;
    type Material = ();
    const PARTIES: usize = 1;

    fn cost(&self, _: &Op, _: &[&Value], _: &Value) -> Result<Cost, Unsupported> {
        Ok(Cost::LOCAL)
    }

    fn input(&self, _: &mut Party<D>, _: &Value) -> Result<((), Vec<u8>), Error> {
        Ok(((), vec![]))
    }

    fn share(&self, _: &[Vec<u8>], input: &[W]) -> Result<Vec<Payload>, Error> {
        Ok(vec![Payload::from_pod(input)])
    }

    fn accept(&self, party: &Party<D>, value: &Value, payload: Payload) -> Result<Data<W, D>, Error> {
        let words: Vec<W> = payload.as_pod::<W>()?.to_vec();
        if words.len() != value.shape.elements() {
            return Err(Error::Refused(format!(
                "an input of shape {} has {} words",
                value.shape,
                words.len()
            )));
        }
        Ok(Data::Ring(Tensor::new(value.shape.clone(), party.device().upload(words)?)))
    }

    fn late(&self, _: &Op, _: &[&Value], _: bool) -> bool {
        false
    }

    fn masks(&self, _: &mut Party<D>, _: &Op, _: &Value, _: &[Option<&()>]) -> Result<Option<()>, Error> {
        Ok(Some(()))
    }

    fn offline(&self, _: &mut Party<D>, _: &Op, _: &Value, _: &[&()], _: Option<&()>) -> Result<(), Error> {
        Ok(())
    }

    fn online(
        &self,
        party: &mut Party<D>,
        op: &Op,
        output: &Value,
        inputs: &[(&(), &Data<W, D>)],
        _: Option<&()>,
        (): (),
    ) -> Result<(Data<W, D>, Option<()>), Error> {
        let device = party.device();
        let shape = &output.shape;
        let n = shape.elements();
        let ring = |buf| Data::Ring(Tensor::new(shape.clone(), buf));
        let bit = |buf| Data::Bit(Bits::new(shape.clone(), buf));
        let host = |x: &Tensor<W, D>| device.download(x.buf.clone());
        let arg = |i: usize| inputs[i].1;
        let op = match op {
            Op::Unshared(step) | Op::Dealt(step) => step,
            op => op,
        };
        let data = match op {
            Op::Constant { words, .. } => {
                ring(device.upload(words.iter().map(|&w| W::from_i64(w)).collect())?)
            }
            Op::View(view) if output.kind == Kind::Bit => bit(device.view_bits(&arg(0).bit().buf, view)?),
            op if local::is_linear(op) => {
                let x: Vec<_> = inputs.iter().map(|(_, x)| x.ring()).collect();
                Data::Ring(local::linear(device, op, &x, output, true)?)
            }
            Op::Mul if inputs.len() > 2 => {
                let times =
                    |z: D::Buf<W>, i: usize| device.products(&[(W::ONE, &z, &arg(i).ring().buf)], &[]);
                ring((1..inputs.len()).try_fold(arg(0).ring().buf.clone(), times)?)
            }
            Op::Mul | Op::MatMul | Op::Conv(_) => {
                let product = local::Product::of(op).expect("one of the products");
                Data::Ring(product.apply(device, arg(0).ring(), arg(1).ring(), shape)?)
            }
            Op::Truncate { bits } => ring(
                device.upload(host(arg(0).ring())?.into_iter().map(|x| floor_shift(x, *bits)).collect())?,
            ),
            Op::NonNegative(_) => {
                let negative = device.msb(&arg(0).ring().buf)?;
                bit(device.xor(&[&negative], true, n)?)
            }
            Op::CompareMany { thresholds, .. } => {
                let x = arg(0).ring();
                let each = |&t: &i64| {
                    let difference =
                        device.combine(&[(W::ONE, &x.buf)], W::from_i64(t).neg(), x.elements())?;
                    device.xor(&[&device.msb(&difference)?], true, x.elements())
                };
                let bits = thresholds.iter().map(each).collect::<Result<Vec<_>, _>>()?;
                bit(device.join_bits(&bits.iter().map(|b| (b, x.elements())).collect::<Vec<_>>())?)
            }
            Op::Relu(relu) => {
                let positive = |x: W| if x.msb() == 1 { W::ZERO } else { floor_shift(x, relu.truncate) };
                ring(device.upload(host(arg(0).ring())?.into_iter().map(positive).collect())?)
            }
            Op::Maximum(_) => {
                let mut largest = host(arg(0).ring())?;
                for i in 1..inputs.len() {
                    let others = host(arg(i).ring())?;
                    let pairs = largest.iter_mut().zip(others);
                    pairs.for_each(|(z, x)| *z = W::from_i64(z.to_i64().max(x.to_i64())));
                }
                ring(device.upload(largest)?)
            }
            Op::Select => ring(device.bit_times(&arg(0).bit().buf, Some(&arg(1).ring().buf), n)?),
            Op::BitToRing => ring(device.bit_times(&arg(0).bit().buf, None, n)?),
            Op::ToBits => {
                let x = host(arg(0).ring())?;
                bit(device.upload(bits::pack(n, |i| x[i % x.len()].to_u64() >> (i / x.len())))?)
            }
            Op::FromBits => {
                let x = device.download(arg(0).bit().buf.clone())?;
                let word = |i| (0..W::BITS as usize).fold(0, |v, k| v | bits::get(&x, k * n + i) << k);
                ring(device.upload((0..n).map(|i| W::from_u64(word(i))).collect())?)
            }
            Op::AddBits => {
                let [x, y] = [0, 1].map(|i| device.download(arg(i).bit().buf.clone()));
                let (x, y, width) = (x?, y?, shape.dims()[0]);
                let each = n / width;
                let mut carries = vec![0; each];
                bit(device.upload(bits::pack(n, |i| {
                    let (a, b, carry) = (bits::get(&x, i), bits::get(&y, i), &mut carries[i % each]);
                    let sum = a ^ b ^ *carry;
                    *carry = (a & b) | (*carry & (a ^ b));
                    sum
                }))?)
            }
            Op::Xor => bit(device.xor(&[&arg(0).bit().buf, &arg(1).bit().buf], false, n)?),
            Op::And => {
                let mut all = arg(0).bit().buf.clone();
                for i in 1..inputs.len() {
                    all = device.and(&all, &arg(i).bit().buf)?;
                }
                bit(all)
            }
            Op::Not => bit(device.xor(&[&arg(0).bit().buf], true, n)?),
            other => return party.refuse(format!("clear has no {other:?}")),
        };
        Ok((data, None))
    }

    fn reveal(&self, party: &mut Party<D>, (): &(), data: &Data<W, D>) -> Result<Payload, Error> {
        Ok(match data {
            Data::Ring(x) => Payload::from_pod(&party.device().download(x.buf.clone())?),
            Data::Bit(x) => {
                let words = party.device().download(x.buf.clone())?;
                let bits = |i| W::from_u64(bits::get(&words, i));
                Payload::from_pod(&(0..x.elements()).map(bits).collect::<Vec<W>>())
            }
        })
    }

    fn reconstruct(&self, value: &Value, messages: &[Payload]) -> Result<Vec<W>, Error> {
        let words = messages.first().map(|m| m.as_pod::<W>()).transpose()?.unwrap_or_default();
        if words.len() != value.shape.elements() {
            return Err(Error::Refused("the party sent an output of the wrong size".into()));
        }
        Ok(words.to_vec())
    }
}
