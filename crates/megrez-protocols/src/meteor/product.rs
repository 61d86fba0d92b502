//! Products on MRSS: element by element, of matrices, convolutions. METEOR, Fig. 2 (2-MULT) and
//! Fig. 8, for any bilinear map B.
//!
//! B(x, y) = B(m_x, m_y) + B(m_x, ψ_y) + B(ψ_x, m_y) + Γ with Γ = B(ψ_x, ψ_y): given Γ, the product
//! is replicated without a message, and is opened under a fresh mask ψ_z. The scale of the result
//! is the sum of the scales.
//!
//! Deviates from the figures: B(m_x, m_y) enters component 0 only (printed: every share), and Fig.
//! 8's second term is B(m_x, ψ_y), its third B(ψ_x, m_y).
//!
//! phase     rounds  bits per output element   from → to
//! offline   1       3·ℓ                       P_i → P_{i−1}, each i
//! online    1       3·ℓ                       P_i → P_{i+1}, each i
//!
//! Everybody sees uniform elements: a component of Γ made fresh by a sharing of zero, and m_z.
//!
//! Security: `docs/security/meteor.md`.

use crate::local;
use crate::mrss::{Data, MaskedReplicated, Masks, open, open_cost};
use crate::rss::Rss;
use crate::sharing::Variant;
use crate::steps::product;
use crate::{Call, Cost, Made, Operands, Step, Unit, Unsupported};
use megrez_kernels::{Device, Tensor};
use megrez_ring::{Shape, Word};
use megrez_session::{Error, Party};

/// A product of two secrets.
pub struct Product<'a> {
    product: local::Product<'a>,
    shape: &'a Shape,
}

impl<'a, W: Word, D: Device, P: Variant> Step<'a, MaskedReplicated<W, D, P>> for Product<'a> {
    /// Γ.
    type Material = Rss<Tensor<W, D>>;

    fn of(_: &MaskedReplicated<W, D, P>, call: Call<'a>) -> Option<Self> {
        Some(Product { product: local::Product::of_secrets(call)?, shape: call.shape() })
    }

    fn cost(&self) -> Result<Cost, Unsupported> {
        let n = self.shape.elements();
        Ok(open_cost(product::cost(W::BITS, n).made_offline(), 1, n, Unit::Bits(W::BITS)))
    }

    fn offline(
        &self,
        party: &mut Party<D>,
        inputs: &[&Masks<W, D>],
        _: Option<&Masks<W, D>>,
    ) -> Result<Self::Material, Error> {
        product::online(party, &self.product, inputs[0].ring(), inputs[1].ring(), self.shape)
    }

    fn online(
        &self,
        party: &mut Party<D>,
        operands: Operands<'_, MaskedReplicated<W, D, P>>,
        gamma: Self::Material,
    ) -> Result<Made<MaskedReplicated<W, D, P>>, Error> {
        let ((m_x, psi_x), (m_y, psi_y)) = (operands.ring(0), operands.ring(1));
        let (device, shape) = (party.device(), self.shape);
        let (one, minus) = (W::ONE, W::ONE.neg());
        let parts = [psi_x, psi_y, &gamma, operands.fresh()];
        let z = Rss::zip(party.me(), &parts, |c, parts| {
            let [x, y, gamma, mask] = [parts[0], parts[1], parts[2], parts[3]];
            let public = if c == 0 { one } else { W::ZERO };
            if let local::Product::Elements = self.product {
                let products =
                    [(one, &m_x.buf, &y.buf), (one, &x.buf, &m_y.buf), (public, &m_x.buf, &m_y.buf)];
                let products = if c == 0 { &products[..] } else { &products[..2] };
                return device.products(products, &[(one, &gamma.buf), (minus, &mask.buf)]);
            }
            let [left, right] = self.product.cross(device, (m_x, x), (m_y, y), public, shape)?;
            let terms = [(one, &left.buf), (one, &right.buf), (one, &gamma.buf), (minus, &mask.buf)];
            device.combine(&terms, W::ZERO, shape.elements())
        })?;
        let m_z = open(party, "product", shape.elements(), z)?;
        Ok((Data::of_ring(shape, m_z), None))
    }
}
