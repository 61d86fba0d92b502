//! Products of values that are truncated before: (x / 2^a)·(y / 2^b), or a square, in one round and
//! with one opening, where truncations and a product take two rounds and three openings. Element by
//! element only: what is dealt is a function of both masks, and the product of two matrices has too
//! many pairs of them.
//!
//! A truncated value ([`super::truncate`], and its range) is public but for R = r>>a and t =
//! msb(r): X = P − R + c·t, with P = (m'>>a) − 2^(ℓ−2−a) and c = (1−μ)·2^(ℓ−a) known to both
//! workers. So
//!
//!   X·Y = P_x·Y + X·P_y − P_x·P_y + R_x·R_y − c_x·t_x·R_y − c_y·t_y·R_x + c_x·c_y·t_x·t_y,
//!
//! and the last summand is 0 modulo 2^ℓ, since a + b ≤ ℓ. R_x·R_y is dealt, and of each factor that
//! is truncated R, t, and −t times the other's R, of which the low bits count. A factor that is not
//! truncated has P = m, R = r and no t. A square deals R, t, R² and −2·t·R.
//!
//! phase     rounds  bits per element              from → to
//! offline   1       ℓ for each truncated factor   dealer → worker 0
//! offline   1       ℓ; 2a and 2b                  dealer → worker 1
//! online    1       2ℓ                            worker ↔ worker
//!
//! Workers see the uniform m_z = z + r_z, r_z fresh, and uniform shares. The dealer sees nothing.
//!
//! Security: `docs/security/mizar.md`.

use super::family::Mizar;
use super::truncate::{DealtParts, deal_cost};
use crate::mss::{DEALER, Data, DealtShare, Masks, RingMask, Role, another, deal, deal_low, open};
use crate::{Call, Cost, Made, Operands, Step, Unit, Unsupported};
use megrez_kernels::{Device, Tensor, Truncation};
use megrez_plan::Op;
use megrez_ring::{Shape, Word};
use megrez_session::{Error, Party};

/// (x / 2^a)·(y / 2^b), or (x / 2^a)².
pub struct TruncatedProduct<'a> {
    /// What each factor loses; one of a square.
    bits: &'a [u32],
    shape: &'a Shape,
}

/// What a worker is dealt of a factor that is truncated: R and t, and −t times the other's R.
type DealtFactor<W, D> = Option<(DealtParts<W, D>, DealtShare<W, D>)>;

/// A worker's shares, as they wait.
pub struct DealtProduct<W: Word, D: Device> {
    first: DealtFactor<W, D>,
    second: DealtFactor<W, D>,
    gamma: DealtShare<W, D>,
}
encode_struct!(DealtProduct[W, D] => first, second, gamma);

/// R of a factor: r, or what a truncation leaves of it.
fn high<W: Word, D: Device>(device: &D, mask: &RingMask<W, D>, bits: u32) -> Result<D::Buf<W>, Error> {
    let total = mask.total(device)?.buf;
    Ok(if bits == 0 { total } else { device.shift_right(&total, bits)? })
}

/// A worker's part of one factor.
struct Factor<W: Word, D: Device> {
    /// P.
    public: D::Buf<W>,
    /// [X], with P in worker 0's share.
    share: D::Buf<W>,
    /// c times what is dealt of −t times the other's R.
    carries: Option<D::Buf<W>>,
}

impl<W: Word, D: Device> Factor<W, D> {
    /// Of m and the worker's share of r, and what was dealt.
    fn of(
        device: &D,
        j: usize,
        bits: u32,
        (m, r): (&Tensor<W, D>, &Tensor<W, D>),
        dealt: DealtFactor<W, D>,
    ) -> Result<Self, Error> {
        let n = m.elements();
        if dealt.is_some() != (bits > 0) {
            return Err(another());
        }
        let Some((parts, carries)) = dealt else {
            let minus = W::ONE.neg();
            let first = if j == 0 { W::ONE } else { W::ZERO };
            let share = device.combine(&[(first, &m.buf), (minus, &r.buf)], W::ZERO, n)?;
            return Ok(Factor { public: m.buf.clone(), share, carries: None });
        };
        let (parts, carries) = (parts.parts(device, bits, n)?, carries.low(device, bits, n)?);
        let none = device.upload(vec![W::ZERO; n])?;
        let opened = |j: usize, high: &D::Buf<W>, top: &D::Buf<W>| {
            device.open_truncated(j, &m.buf, &Truncation { bits, high, top }, &none)
        };
        Ok(Factor {
            public: opened(0, &none, &none)?,
            share: opened(j, &parts.high, &parts.top)?,
            carries: Some(opened(1, &none, &carries)?),
        })
    }
}

impl TruncatedProduct<'_> {
    /// Deals what belongs to factor `i` of these masks, one of a square, which is both.
    fn deal_factor<W: Word, D: Device>(
        &self,
        party: &mut Party<D>,
        masks: &[&RingMask<W, D>],
        i: usize,
    ) -> Result<DealtFactor<W, D>, Error> {
        let Some(&bits) = self.bits.get(i).filter(|&&bits| bits > 0) else { return Ok(None) };
        let last = masks.len() - 1;
        let (mask, other, of_other) = (masks[i], masks[last - i], self.bits[last - i]);
        // −t·R of the other factor; −2·t·R of a square.
        let times = if last == 0 { W::ONE.add(W::ONE).neg() } else { W::ONE.neg() };
        party.scope(&format!("factor{i}"), |party| {
            let parts = DealtParts::deal(party, 0, bits, self.shape, mask)?;
            let carries = deal_low(party, 1, "carries", self.shape.elements(), bits, |device| {
                let top = device.shift_right(&mask.total(device)?.buf, W::BITS - 1)?;
                Ok(device.products(&[(times, &top, &high(device, other, of_other)?)], &[])?)
            })?;
            Ok(parts.zip(carries))
        })
    }
}

impl<'a, W: Word, D: Device> Step<'a, Mizar<W, D>> for TruncatedProduct<'a> {
    /// A worker's shares; nothing at the dealer.
    type Material = Option<DealtProduct<W, D>>;

    fn of(_: &Mizar<W, D>, call: Call<'a>) -> Option<Self> {
        let Op::MulTruncated { bits } = call.op else { return None };
        Some(TruncatedProduct { bits, shape: call.shape() })
    }

    fn cost(&self) -> Result<Cost, Unsupported> {
        let (n, word) = (self.shape.elements(), Unit::Bits(W::BITS));
        let mut cost = Cost::LOCAL.offline(DEALER, 1, n, word);
        for &bits in self.bits.iter().filter(|&&bits| bits > 0) {
            cost = cost.beside(deal_cost(W::BITS, bits, n)).offline(DEALER, 1, n, Unit::Bits(bits));
        }
        Ok(cost.online_swap(1, 0, 1, n, word))
    }

    fn offline(
        &self,
        party: &mut Party<D>,
        inputs: &[&Masks<W, D>],
        _: Option<&Masks<W, D>>,
    ) -> Result<Self::Material, Error> {
        let n = self.shape.elements();
        let masks: Vec<_> = inputs.iter().map(|x| x.ring()).collect();
        let last = masks.len() - 1;
        let gamma = deal(party, 1, "gamma", n, |device| {
            let [x, y] = [0, last].map(|i| high(device, masks[i], self.bits[i]));
            Ok(device.products(&[(W::ONE, &x?, &y?)], &[])?)
        })?;
        let first = self.deal_factor(party, &masks, 0)?;
        let second = self.deal_factor(party, &masks, 1)?;
        Ok(gamma.map(|gamma| DealtProduct { first, second, gamma }))
    }

    fn online(
        &self,
        party: &mut Party<D>,
        operands: Operands<'_, Mizar<W, D>>,
        dealt: Self::Material,
    ) -> Result<Made<Mizar<W, D>>, Error> {
        let (Role::Worker(j), Some(dealt)) = (Role::of(party), dealt) else { return Ok((Data::None, None)) };
        let (device, n, rz) = (party.device(), self.shape.elements(), operands.fresh().share());
        let gamma = dealt.gamma.words(device, n)?;
        let x = Factor::of(device, j, self.bits[0], operands.ring(0), dealt.first)?;
        let y = match self.bits {
            [_, bits] => Some(Factor::of(device, j, *bits, operands.ring(1), dealt.second)?),
            _ => None,
        };
        let minus = W::ONE.neg();
        let other = y.as_ref().unwrap_or(&x);
        let mut products = vec![(W::ONE, &x.public, &other.share), (W::ONE, &x.share, &other.public)];
        if j == 0 {
            products.push((minus, &x.public, &other.public));
        }
        let mut terms = vec![(W::ONE, &gamma), (W::ONE, &rz.buf)];
        let carries = [Some(&x), y.as_ref()].into_iter().flatten().filter_map(|f| f.carries.as_ref());
        terms.extend(carries.map(|carries| (W::ONE, carries)));
        let share = device.products(&products, &terms)?;
        let mz = open(party, j, "product", n, share)?;
        Ok((Data::of_ring(self.shape, Some(mz)), None))
    }
}

#[cfg(test)]
mod tests {
    use crate::mizar::Mizar;
    use crate::testing::World;
    use megrez_kernels::Reference;
    use megrez_plan::{Op, Plan};

    fn near(x: i64, f: u32) -> Vec<i64> {
        let exact = x & ((1 << f) - 1) == 0;
        if exact { vec![x >> f] } else { vec![x >> f, (x >> f) + 1] }
    }

    /// All pairs of values that truncations take, with many masks: a product of neighbours.
    #[test]
    fn neighbours_are_multiplied() {
        let pairs: Vec<(i64, i64)> = (-64..64).flat_map(|x| (-64..64).map(move |y| (x, y))).collect();
        let words = |of: fn(&(i64, i64)) -> i64| -> Vec<u64> {
            pairs.iter().map(|pair| of(pair) as u8 as u64).collect()
        };
        let (x, y) = (words(|p| p.0), words(|p| p.1));
        for [a, b] in [[1, 0], [0, 3], [3, 5], [4, 4], [5, 1]] {
            let mut plan = Plan::new(8);
            let [u, v] = ["x", "y"].map(|name| plan.input(name, "owner", [pairs.len()].into(), 5));
            let z = plan.step("z", Op::MulTruncated { bits: vec![a, b] }, &[u, v]).unwrap();
            plan.output("z", "owner", z);
            let z = World::new(Mizar::<u8, Reference>::default()).run(&plan, &[&x, &y]).remove(0);
            for (&(x, y), z) in pairs.iter().zip(z) {
                let all = near(x, a).into_iter().flat_map(|x| near(y, b).into_iter().map(move |y| x * y));
                assert!(
                    all.into_iter().any(|all| all as u8 == z as u8),
                    "{x} / 2^{a} times {y} / 2^{b}: {z}"
                );
            }
        }
    }

    /// A square is of one neighbour: no product of both.
    #[test]
    fn a_neighbour_is_squared() {
        let x: Vec<i64> = (-64..64).cycle().take(16 * 128).collect();
        let words: Vec<u64> = x.iter().map(|x| *x as u8 as u64).collect();
        for f in [1, 3, 4] {
            let mut plan = Plan::new(8);
            let u = plan.input("x", "owner", [x.len()].into(), 4);
            let z = plan.step("z", Op::MulTruncated { bits: vec![f] }, &[u]).unwrap();
            plan.output("z", "owner", z);
            let z = World::new(Mizar::<u8, Reference>::default()).run(&plan, &[&words]).remove(0);
            for (&x, z) in x.iter().zip(z) {
                assert!(near(x, f).iter().any(|x| (x * x) as u8 == z as u8), "({x} / 2^{f})² is not {z}");
            }
        }
    }
}
