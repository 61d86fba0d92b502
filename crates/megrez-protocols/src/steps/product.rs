//! Products of replicated values: x·y = Σ_i x_i·y_i + x_{i+1}·y_i + x_i·y_{i+1}, a summand of every
//! party, made fresh by a sharing of zero and shared. ABY3, §3.2; the same for matrices and
//! convolutions.
//!
//! Deviates from ABY3, where P_i sends its summand to P_{i−1}: P0 and P1 swap theirs, and P2 sends
//! P1 its own less z_0, a stream of P0 and P2. So P2 waits for nobody: what it deals for the next
//! step is on its way beside the product.
//!
//! phase     rounds  bits per element  from → to
//! online    1       3·ℓ               P0 ↔ P1, P2 → P1
//!
//! P0 sees a uniform element and P1 two; P2 sees nothing. Security: docs/security/replicated.md.

use crate::local;
use crate::rss::{Data, Replicated, Rss, Summand, draw};
use crate::sharing::Variant;
use crate::{Call, Cost, Made, OnlineStep, Operands, Unit, Unsupported};
use megrez_kernels::{Device, Tensor};
use megrez_plan::Op;
use megrez_ring::{Shape, Word};
use megrez_session::{Error, Party};

pub(crate) fn cost(ring: u32, n: usize) -> Cost {
    let element = Unit::Bits(ring);
    Cost::LOCAL.online_swap(1, 0, 1, n, element).online(1, 2, 1, n, element)
}

/// The party's additive share of the product, masked by a sharing of zero: safe to send once, by P0
/// to P1, P1 to P0 and P2 to P1. The streams are one of P0 and P2 and one of P1 and P2; what P0 and
/// P1 have in common hides nothing from either.
pub(crate) fn additive<W: Word, D: Device>(
    party: &mut Party<D>,
    product: &local::Product<'_>,
    x: &Rss<Tensor<W, D>>,
    y: &Rss<Tensor<W, D>>,
    output: &Shape,
) -> Result<D::Buf<W>, Error> {
    let (n, one, minus) = (output.elements(), W::ONE, W::ONE.neg());
    let masks = match party.me() {
        0 => vec![(minus, draw::<W, D>(party, 0, "zero", n)?)],
        1 => vec![(one, draw::<W, D>(party, 2, "zero", n)?)],
        _ => vec![(one, draw::<W, D>(party, 0, "zero", n)?), (minus, draw::<W, D>(party, 2, "zero", n)?)],
    };
    let masks: Vec<_> = masks.iter().map(|(sign, mask)| (*sign, mask)).collect();
    summand(party.device(), product, x, y, output, &masks)
}

/// The party's additive share of the product, plus `masks`; without any it is a function of what
/// the party holds, and not safe to send.
pub(crate) fn summand<W: Word, D: Device>(
    device: &D,
    product: &local::Product<'_>,
    x: &Rss<Tensor<W, D>>,
    y: &Rss<Tensor<W, D>>,
    output: &Shape,
    masks: &[(W, &D::Buf<W>)],
) -> Result<D::Buf<W>, Error> {
    let terms = match product {
        local::Product::Elements => {
            let (x, y) = ([&x.own.buf, &x.next.buf], [&y.own.buf, &y.next.buf]);
            let products = [(W::ONE, x[0], y[0]), (W::ONE, x[1], y[0]), (W::ONE, x[0], y[1])];
            return Ok(device.products(&products, masks)?);
        }
        _ => product.cross(device, (&x.own, &x.next), (&y.own, &y.next), W::ONE, output)?,
    };
    let terms: Vec<_> = terms.iter().map(|t| (W::ONE, &t.buf)).chain(masks.iter().copied()).collect();
    Ok(device.combine(&terms, W::ZERO, output.elements())?)
}

pub(crate) fn online<W: Word, D: Device>(
    party: &mut Party<D>,
    product: &local::Product<'_>,
    x: &Rss<Tensor<W, D>>,
    y: &Rss<Tensor<W, D>>,
    output: &Shape,
) -> Result<Rss<Tensor<W, D>>, Error> {
    let share = additive(party, product, x, y, output)?;
    let (n, one) = (output.elements(), W::ONE);
    let tensor = |buf| Tensor::new(output.clone(), buf);
    match party.me() {
        2 => {
            let z_0 = draw::<W, D>(party, 0, "z", n)?;
            let z_2 = party.device().combine(&[(one, &share), (one.neg(), &z_0)], W::ZERO, n)?;
            party.send_ring::<W>(1, "share", z_2.clone())?;
            Ok(Rss { own: tensor(z_2), next: tensor(z_0) })
        }
        me => {
            party.send_ring::<W>(1 - me, "share", share.clone())?;
            let other = party.recv_ring::<W>(1 - me, "share", n)?;
            let z_1 = tensor(party.device().combine(&[(one, &share), (one, &other)], W::ZERO, n)?);
            Ok(match me {
                0 => Rss { own: tensor(draw(party, 0, "z", n)?), next: z_1 },
                _ => Rss { own: z_1, next: tensor(party.recv_ring::<W>(2, "share", n)?) },
            })
        }
    }
}

/// A product of two secrets.
pub struct Product<'a> {
    product: local::Product<'a>,
    shape: &'a Shape,
}

impl<'a, W: Word, D: Device, P: Variant> OnlineStep<'a, Replicated<W, D, P>> for Product<'a> {
    fn of(_: &Replicated<W, D, P>, call: Call<'a>) -> Option<Self> {
        Some(Product { product: local::Product::of_secrets(call)?, shape: call.shape() })
    }

    fn cost(&self) -> Result<Cost, Unsupported> {
        Ok(cost(W::BITS, self.shape.elements()))
    }

    fn online(
        &self,
        party: &mut Party<D>,
        operands: Operands<'_, Replicated<W, D, P>>,
    ) -> Result<Made<Replicated<W, D, P>>, Error> {
        let z = online(party, &self.product, operands.ring(0), operands.ring(1), self.shape)?;
        Ok((Data::Ring(z), None))
    }
}

/// A product that is left as a sum ([`crate::rss::Summand`]): no message.
pub struct Additive<'a> {
    product: local::Product<'a>,
    shape: &'a Shape,
}

impl<'a, W: Word, D: Device, P: Variant> OnlineStep<'a, Replicated<W, D, P>> for Additive<'a> {
    fn of(_: &Replicated<W, D, P>, call: Call<'a>) -> Option<Self> {
        let Op::Additive(product) = call.op else { return None };
        Some(Additive { product: local::Product::of(product)?, shape: call.shape() })
    }

    fn online(
        &self,
        party: &mut Party<D>,
        operands: Operands<'_, Replicated<W, D, P>>,
    ) -> Result<Made<Replicated<W, D, P>>, Error> {
        let (x, y) = (operands.ring(0), operands.ring(1));
        let z = summand(party.device(), &self.product, x, y, self.shape, &[])?;
        Ok((Data::Sum(Summand::new(Tensor::new(self.shape.clone(), z))), None))
    }
}

#[cfg(test)]
mod tests {
    use crate::aby3::Aby3;
    use crate::testing::World;
    use megrez_kernels::Reference;
    use megrez_plan::{Op, Plan};

    #[test]
    fn words_are_multiplied_modulo_the_ring() {
        let x: Vec<u64> = (0..256).collect();
        let y: Vec<u64> = (0..256).map(|i| i * 37 % 256).collect();
        let z = World::new(Aby3::<u8, Reference>::default()).step(Op::Mul, 0, &[&x, &y]);
        assert!(z.iter().zip(x.iter().zip(&y)).all(|(z, (x, y))| *z == x * y % 256));
    }

    #[test]
    fn a_product_that_is_left_as_a_sum_is_shared_by_its_truncation() {
        let mut plan = Plan::new(64);
        let [x, y] = ["x", "y"].map(|name| plan.input(name, "owner", [4].into(), 8));
        let product = plan.step("product", Op::Additive(Box::new(Op::Mul)), &[x, y]).unwrap();
        let z = plan.step("z", Op::Truncate { bits: 8 }, &[product]).unwrap();
        plan.output("z", "owner", z);
        let z = World::new(Aby3::<u64, Reference>::default())
            .run(&plan, &[&[256, 512, 1, 640], &[256, 3 * 256, 256, 128]])
            .remove(0);
        assert_eq!(z, [256, 6 * 256, 1, 320]);
    }
}
