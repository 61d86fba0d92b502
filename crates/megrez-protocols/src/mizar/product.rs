//! Products on MSS: element by element, of matrices, convolutions. MIZAR, §2.2.2, for any bilinear
//! map B.
//!
//! x = m_x − r_x and y = m_y − r_y give B(x, y) = B(m_x, m_y) − B(m_x, r_y) − B(r_x, m_y) + Γ with
//! Γ = B(r_x, r_y). The scale of the result is the sum of the scales; truncation is a step of its
//! own.
//!
//! phase     rounds  bits per output element   from → to
//! offline   1       ℓ                         dealer → worker 1
//! online    1       2ℓ                        worker ↔ worker
//!
//! Workers see the uniform m_z = z + r_z, r_z fresh; worker 1 also a uniform share of Γ. The dealer
//! sees nothing.
//!
//! Left as a sum ([`Op::Additive`]) nothing is opened: the workers keep their summands of z.
//!
//! Security: `docs/security/mizar.md`.

use super::family::Mizar;
use crate::mss::{DEALER, Data, DealtShare, Masks, Role, deal, open};
use crate::{Call, Cost, Made, Operands, Step, Unit, Unsupported, local};
use megrez_kernels::Device;
use megrez_ring::{Shape, Word};
use megrez_session::{Error, Party};

/// A product of two secrets.
pub struct Product<'a> {
    product: local::Product<'a>,
    shape: &'a Shape,
    /// Whether it is left as a sum.
    left: bool,
}

impl<'a, W: Word, D: Device> Step<'a, Mizar<W, D>> for Product<'a> {
    /// A worker's [Γ]; nothing at the dealer.
    type Material = Option<DealtShare<W, D>>;

    fn of(_: &Mizar<W, D>, call: Call<'a>) -> Option<Self> {
        let (call, left) = call.unshared();
        Some(Product { product: local::Product::of_secrets(call)?, shape: call.shape(), left })
    }

    fn cost(&self) -> Result<Cost, Unsupported> {
        let (n, word) = (self.shape.elements(), Unit::Bits(W::BITS));
        let dealt = Cost::LOCAL.offline(DEALER, 1, n, word);
        Ok(if self.left { dealt } else { dealt.online_swap(1, 0, 1, n, word) })
    }

    fn offline(
        &self,
        party: &mut Party<D>,
        inputs: &[&Masks<W, D>],
        _: Option<&Masks<W, D>>,
    ) -> Result<Self::Material, Error> {
        let (rx, ry) = (inputs[0].ring(), inputs[1].ring());
        deal(party, 1, "gamma", self.shape.elements(), |device| {
            Ok(self.product.of_sums(device, rx.both(), ry.both(), self.shape)?.buf)
        })
    }

    fn online(
        &self,
        party: &mut Party<D>,
        operands: Operands<'_, Mizar<W, D>>,
        gamma: Self::Material,
    ) -> Result<Made<Mizar<W, D>>, Error> {
        let (Role::Worker(j), Some(gamma)) = (Role::of(party), gamma) else { return Ok((Data::None, None)) };
        let ((mx, rx), (my, ry)) = (operands.ring(0), operands.ring(1));
        let (device, n) = (party.device(), self.shape.elements());
        let rz = (!self.left).then(|| operands.fresh().share());
        let (minus, gamma) = (W::ONE.neg(), gamma.words(device, n)?);
        let public = if j == 0 { W::ONE } else { W::ZERO };
        let share = if let local::Product::Elements = self.product {
            let products = [(public, &mx.buf, &my.buf), (minus, &mx.buf, &ry.buf), (minus, &rx.buf, &my.buf)];
            let products = if j == 0 { &products[..] } else { &products[1..] };
            let terms: Vec<_> =
                std::iter::once(&gamma).chain(rz.map(|rz| &rz.buf)).map(|x| (W::ONE, x)).collect();
            device.products(products, &terms)?
        } else {
            let [left, right] = self.product.cross(device, (mx, rx), (my, ry), public.neg(), self.shape)?;
            let own = [(minus, &left.buf), (minus, &right.buf), (W::ONE, &gamma)];
            let terms: Vec<_> = own.into_iter().chain(rz.map(|rz| (W::ONE, &rz.buf))).collect();
            device.combine(&terms, W::ZERO, n)?
        };
        if self.left {
            return Ok((Data::of_sum(self.shape, share), None));
        }
        let mz = open(party, j, "product", n, share)?;
        Ok((Data::of_ring(self.shape, Some(mz)), None))
    }
}

#[cfg(test)]
mod tests {
    use crate::mizar::Mizar;
    use crate::testing::World;
    use megrez_kernels::Reference;
    use megrez_plan::{Op, Plan, View};

    #[test]
    fn words_are_multiplied_modulo_the_ring() {
        let x: Vec<u64> = (0..256).collect();
        let y: Vec<u64> = (0..256).map(|i| i * 37 % 256).collect();
        let z = World::new(Mizar::<u8, Reference>::default()).step(Op::Mul, 0, &[&x, &y]);
        assert!(z.iter().zip(x.iter().zip(&y)).all(|(z, (x, y))| *z == x * y % 256));
    }

    #[test]
    fn matrices_are_multiplied_with_two_products_for_three() {
        let mut plan = Plan::new(64);
        let x = plan.input("x", "owner", [6].into(), 0);
        let y = plan.input("y", "owner", [3].into(), 0);
        let reshaped = |shape: [usize; 2]| Op::View(View::whole(shape.into()));
        let a = plan.step("a", reshaped([2, 3]), &[x]).unwrap();
        let b = plan.step("b", reshaped([3, 1]), &[y]).unwrap();
        let z = plan.step("z", Op::MatMul, &[a, b]).unwrap();
        plan.output("z", "owner", z);
        let world = World::new(Mizar::<u64, Reference>::default());
        assert_eq!(world.run(&plan, &[&[1, 2, 3, 4, 5, 6], &[10, 100, 1000]]), [[3210, 6540]]);
    }
}
