//! The conjunction of MRSS bits: METEOR's 2-MULT (Fig. 2) over F_2.
//!
//! phase     rounds  bits per element   from → to
//! offline   1       3                  P_i → P_{i−1}, each i
//! online    1       3                  P_i → P_{i+1}, each i
//!
//! Everybody sees uniform bits.

use crate::mrss::{open_bits, open_cost};
use crate::rss::{self, Rss, reshare_cost};
use crate::{Cost, Unit};
use megrez_kernels::{Bits, Device};
use megrez_ring::bits;
use megrez_session::{Error, Party};

pub(super) fn cost(n: usize) -> Cost {
    open_cost(reshare_cost(Cost::LOCAL, 1, n, Unit::Bits(1)).made_offline(), 1, n, Unit::Bits(1))
}

/// ψ_a ∧ ψ_b.
pub(super) fn offline<D: Device>(
    party: &mut Party<D>,
    a: &Rss<Bits<D>>,
    b: &Rss<Bits<D>>,
) -> Result<Rss<Bits<D>>, Error> {
    let shape = &a.own.shape;
    let n = shape.elements();
    let [plus, minus] = rss::zero::<u64, D>(party, "zero", bits::words(n))?;
    let device = party.device();
    let both = device.xor(&[&a.own.buf, &a.next.buf], false, n)?;
    let products = [device.and(&both, &b.own.buf)?, device.and(&a.own.buf, &b.next.buf)?];
    let share = device.xor(&[&products[0], &products[1], &plus, &minus], false, n)?;
    let product = rss::reshare_bits(party, "share", n, share)?;
    product.map(party.me(), |_, buf| Ok(Bits::new(shape.clone(), buf.clone())))
}

/// m of a ∧ b under `mask`; operands are (m, ψ).
pub(super) fn online<D: Device>(
    party: &mut Party<D>,
    (m_a, psi_a): (&Bits<D>, &Rss<Bits<D>>),
    (m_b, psi_b): (&Bits<D>, &Rss<Bits<D>>),
    mask: &Rss<Bits<D>>,
    gamma: &Rss<Bits<D>>,
) -> Result<D::Buf<u64>, Error> {
    let (device, n) = (party.device(), m_a.elements());
    let z = Rss::zip(party.me(), &[psi_a, psi_b, gamma, mask], |c, parts| {
        // (m_a·m_b + m_a·ψ_b) + ψ_a·m_b + Γ + ψ_z.
        let second = match c {
            0 => device.xor(&[&m_b.buf, &parts[1].buf], false, n)?,
            _ => parts[1].buf.clone(),
        };
        let terms = [device.and(&m_a.buf, &second)?, device.and(&parts[0].buf, &m_b.buf)?];
        device.xor(&[&terms[0], &terms[1], &parts[2].buf, &parts[3].buf], false, n)
    })?;
    open_bits(party, "and", n, z)
}
