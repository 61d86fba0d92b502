//! The largest of k ≤ 4 values on MSS, by comparing all pairs at once: three rounds, whatever k is.
//! MIZAR's pools (§5) are tournaments of ReLUs instead: ⌈log₂ k⌉ times two or three rounds.
//!
//! *The order.* For p < q, b_pq = [y_p ≥ y_q] with y_i = (m_i >> cut) − (r_i >> cut): each value is
//! cut by itself, and only then are two subtracted. So all comparisons are of one vector of
//! integers, and their answers agree on one order, equal values in the order of their numbers:
//! exactly one value beats all others. Were differences cut instead, as in a ReLU, each would have
//! a borrow of its own, three close values could beat each other in a circle, nobody would have
//! won, and the result would be x_0, however small that is. y_i is floor(x_i / 2^cut) or one more,
//! so that the winner is less than 2^(cut+1) below the largest; without a cut it is the largest.
//! Right while |x_i − x_j| ≤ 2^(cut+λ−1) − 2^(cut+1), or < 2^(λ−1) without a cut.
//!
//! *The selection.* For each pair the dealer picks a random bit a_pq and answers the list with
//! f_pq = b̄_pq ⊕ a_pq, where b̄_pq = sgn(y_p − y_q) ⊕ Δ_pq. The workers have u_pq = ¬(f_pq ⊕
//! Δ_pq), and b_pq = a_pq ⊕ u_pq. Value i wins iff the k − 1 bits a of its pairs are one certain
//! row: ¬u_iq for q > i, u_pi for p < i. Offline the dealer deals, for i ≥ 1 and every row v but
//! the last, [e_iv] with e_iv = [i's bits are v], and [e_iv·(r_i − r_0)]; the last is one minus the
//! others. Then
//!   x_0 + Σ_i e_iv·(x_i − x_0),  v the row that the workers read,
//! is linear in what they hold, and is opened under a fresh r_z.
//!
//! phase     rounds  bits per element of the output            from → to
//! offline   1       pairs·dealt·log p                         dealer → worker 0
//!                   2(k−1)(2^(k−1) − 1)·ℓ                     dealer → worker 1
//! online    3       pairs·(2·length·log p + 2) + 2ℓ            workers → dealer, dealer → workers, worker ↔ worker
//!
//! with pairs = k(k−1)/2, and dealt, length and log p those of the sign bit. Opening every
//! e_iv·(x_i − x_0) beside the lists would save the third round for 2((k−1)(2^(k−1) − 1) − 1)·ℓ
//! more bits online, 2560 for k = 4 at ℓ = 64, and a deferred mask: more time than the round takes,
//! even on a wide-area link, as soon as a pool has a few thousand outputs.
//!
//! Workers see f_pq, uniform and independent because the a_pq are, uniform shares, and an opening
//! under a fresh mask. The dealer sees one list per pair, each as in one comparison, independent
//! because their Δ, w, z and rotations are.
//!
//! Security: `docs/security/mizar.md`.

use super::family::Mizar;
use super::list::Lists;
use super::sign::{self, Dealt, List};
use crate::mss::{DEALER, Data, DealtShare, Masks, RingMask, Role, deal, open};
use crate::{Call, Cost, Made, Operands, Step, Unit, Unsupported};
use megrez_kernels::{Bits, Device, DeviceError, Placement, Tensor};
use megrez_plan::{Op, SignBit, View};
use megrez_ring::{Shape, Word};
use megrez_session::{Error, Party};

/// What the comparisons need, and what selects.
pub struct Material<W: Word, D: Device> {
    list: Dealt<D>,
    /// Dealer: the bits a, pair by pair.
    bits: Option<Bits<D>>,
    /// Worker: [e_iv] and [e_iv·(r_i − r_0)], row by row for each value but the first.
    worker: Option<(DealtShare<W, D>, DealtShare<W, D>)>,
}
encode_struct!(Material[W, D] => list, bits, worker);

/// The pairs of `k` values in order.
fn pairs(k: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..k).flat_map(move |p| (p + 1..k).map(move |q| (p, q)))
}

/// How many rows of bits a value's pairs have, without the last.
fn rows(k: usize) -> usize {
    (1 << (k - 1)) - 1
}

/// The comparison of values that have been cut.
fn after_cut(sign: &SignBit, ring: u32) -> SignBit {
    SignBit { cut: 0, bits: Some(sign.width(ring)), ..sign.clone() }
}

/// The largest of `k` values.
pub struct Maximum<'a> {
    lists: Lists,
    sign: &'a SignBit,
    k: usize,
    shape: &'a Shape,
}

impl Maximum<'_> {
    /// Pairs of all elements.
    fn compared(&self) -> usize {
        self.shape.elements() * pairs(self.k).count()
    }

    /// Elements of [e_iv].
    fn dealt(&self) -> usize {
        self.shape.elements() * (self.k - 1) * rows(self.k)
    }

    fn list(&self, ring: u32) -> List {
        List::new(self.lists, &after_cut(self.sign, ring), ring, self.compared())
    }
}

impl<'a, W: Word, D: Device> Step<'a, Mizar<W, D>> for Maximum<'a> {
    type Material = Material<W, D>;

    fn of(suite: &Mizar<W, D>, call: Call<'a>) -> Option<Self> {
        let Op::Maximum(sign) = call.op else { return None };
        Some(Maximum { lists: suite.variant, sign, k: call.inputs.len(), shape: call.shape() })
    }

    fn cost(&self) -> Result<Cost, Unsupported> {
        let (dealt, word) = (self.dealt(), Unit::Bits(W::BITS));
        let cost = self.list(W::BITS).cost().offline(DEALER, 1, dealt, word).offline(DEALER, 1, dealt, word);
        Ok(sign::answer_cost(cost, self.compared()).online_swap(3, 0, 1, self.shape.elements(), word))
    }

    fn offline(
        &self,
        party: &mut Party<D>,
        inputs: &[&Masks<W, D>],
        _: Option<&Masks<W, D>>,
    ) -> Result<Self::Material, Error> {
        let masks: Vec<&RingMask<W, D>> = inputs.iter().map(|m| m.ring()).collect();
        let (k, n, compared, dealt) = (self.k, self.shape.elements(), self.compared(), self.dealt());
        let totals = |device: &D| masks.iter().map(|mask| mask.total(device)).collect::<Result<Vec<_>, _>>();
        let list = self.list(W::BITS).deal_of(party, |device| {
            let totals = totals(device)?;
            Ok(differences(device, self.sign.cut, &totals.iter().collect::<Vec<_>>(), n)?)
        })?;
        let bits = match Role::of(party) {
            Role::Dealer => {
                let stream = party.stream(DEALER, "bits")?;
                Some(Bits::new([compared], party.device().random_bits(&stream, compared)?))
            }
            Role::Worker(_) => None,
        };
        let rows_of = |device: &D| {
            let bits = &bits.as_ref().expect("the dealer drew them").buf;
            Ok::<_, Error>(Rows::of(device, k, n, |i, j| of_pair(device, bits, k, (i, j), n))?)
        };
        let winner = deal(party, 1, "winner", dealt, |device| {
            Ok(device.bit_times::<W>(&rows_of(device)?.others, None, dealt)?)
        })?;
        let masked_winner = deal(party, 1, "mask-winner", dealt, |device| {
            let totals = totals(device)?;
            let steps = totals[1..].iter().map(|r| difference(device, r, &totals[0], n));
            let steps = steps.collect::<Result<Vec<_>, _>>()?;
            let repeated: Vec<&D::Buf<W>> = steps.iter().flat_map(|r| vec![r; rows(k)]).collect();
            Ok(device.bit_times(&rows_of(device)?.others, Some(&joined(device, &repeated, n)?), dealt)?)
        })?;
        Ok(Material { list, bits, worker: winner.zip(masked_winner) })
    }

    fn online(
        &self,
        party: &mut Party<D>,
        operands: Operands<'_, Mizar<W, D>>,
        material: Self::Material,
    ) -> Result<Made<Mizar<W, D>>, Error> {
        let (n, compared) = (self.shape.elements(), self.compared());
        let m: Option<Vec<&Tensor<W, D>>> = (0..self.k).map(|i| operands.masked(i)).collect();
        let values = match &m {
            Some(m) => Some(Tensor::new([compared], differences(party.device(), self.sign.cut, m, n)?)),
            None => None,
        };
        let bit = self.list(W::BITS).compare(party, values.as_ref(), &material.list)?;
        match Role::of(party) {
            Role::Dealer => {
                let a = material.bits.expect("the dealer drew them");
                let choice = party.device().xor(&[&bit, &a.buf], false, compared)?;
                party.send_bits(0, "choice", choice.clone(), compared)?;
                party.send_bits(1, "choice", choice, compared)?;
                Ok((Data::None, None))
            }
            Role::Worker(j) => {
                let choice = party.recv_bits(DEALER, "choice", compared)?;
                let m = m.expect("workers hold masked values online");
                let r: Vec<&Tensor<W, D>> = (0..self.k).map(|i| operands.ring(i).1).collect();
                let (rows, masked_rows) = material.worker.expect("workers hold shares");
                let device = party.device();
                let dealt = (rows.words(device, self.dealt())?, masked_rows.words(device, self.dealt())?);
                let beats = party.device().xor(&[&choice, &bit], true, compared)?;
                let won = winner(party.device(), j, &beats, &m, &r, &dealt, n)?;
                let terms = [(W::ONE, &won), (W::ONE, &operands.fresh().share().buf)];
                let share = party.device().combine(&terms, W::ZERO, n)?;
                Ok((Data::of_ring(self.shape, Some(open(party, j, "maximum", n, share)?)), None))
            }
        }
    }
}

/// Worker `j`'s share of x_0 + Σ e_iv·(x_i − x_0); `u` are the bits u, pair by pair.
fn winner<W: Word, D: Device>(
    device: &D,
    j: usize,
    u: &D::Buf<u64>,
    m: &[&Tensor<W, D>],
    r: &[&Tensor<W, D>],
    (winner, masked_winner): &(D::Buf<W>, D::Buf<W>),
    n: usize,
) -> Result<D::Buf<W>, DeviceError> {
    let (k, one) = (m.len(), if j == 0 { W::ONE } else { W::ZERO });
    // The row with which i wins: a = ¬u where it comes first in the pair, a = u elsewhere.
    let won = Rows::of(device, k, n, |i, other| {
        device.xor(&[&of_pair(device, u, k, (i, other), n)?], i < other, n)
    })?;
    let steps = |x: &[&Tensor<W, D>]| -> Result<D::Buf<W>, DeviceError> {
        let steps =
            x[1..].iter().map(|x_i| difference(device, x_i, x[0], n)).collect::<Result<Vec<_>, _>>()?;
        joined(device, &steps.iter().collect::<Vec<_>>(), n)
    };
    let all = n * (k - 1);
    // What was dealt for the row; for the last one the whole minus what was dealt for all others.
    let pick = |dealt: &D::Buf<W>, whole: &[(W, &D::Buf<W>)], constant: W| {
        let sizes = [k - 1, rows(k), n];
        let direct = device.sum(&device.bit_times(&won.others, Some(dealt), all * rows(k))?, sizes)?;
        let others = device.sum(dealt, sizes)?;
        let rest = [whole, &[(W::ONE.neg(), &others)]].concat();
        let last = device.bit_times(&won.last, Some(&device.combine(&rest, constant, all)?), all)?;
        device.combine(&[(W::ONE, &direct), (W::ONE, &last)], W::ZERO, all)
    };
    let is_winner = pick(winner, &[], one)?;
    let masks = pick(masked_winner, &[(W::ONE, &steps(r)?)], W::ZERO)?;
    let gains = device.products(&[(W::ONE, &steps(m)?, &is_winner)], &[(W::ONE.neg(), &masks)])?;
    let gain = device.sum(&gains, [1, k - 1, n])?;
    device.combine(&[(W::ONE, &gain), (one, &m[0].buf), (W::ONE.neg(), &r[0].buf)], W::ZERO, n)
}

/// For each value but the first: which of the rows its bits are, one bit for each row.
struct Rows<D: Device> {
    /// Value by value, row by row, without the last rows.
    others: D::Buf<u64>,
    /// The last row of each value.
    last: D::Buf<u64>,
}

impl<D: Device> Rows<D> {
    /// `bit(i, j)`: the bits that value i has in its pair with j.
    fn of(
        device: &D,
        k: usize,
        n: usize,
        bit: impl Fn(usize, usize) -> Result<D::Buf<u64>, DeviceError>,
    ) -> Result<Self, DeviceError> {
        let (mut others, mut last) = (vec![], vec![]);
        for i in 1..k {
            let bits = (0..k).filter(|&j| j != i).map(|j| bit(i, j)).collect::<Result<Vec<_>, _>>()?;
            for row in 0..=rows(k) {
                let mut is_row = device.xor(&[], true, n)?;
                for (place, bit) in bits.iter().enumerate() {
                    is_row = device.and(&is_row, &device.xor(&[bit], row >> place & 1 == 0, n)?)?;
                }
                if row < rows(k) { others.push(is_row) } else { last.push(is_row) }
            }
        }
        let join =
            |parts: &[D::Buf<u64>]| device.join_bits(&parts.iter().map(|part| (part, n)).collect::<Vec<_>>());
        Ok(Rows { others: join(&others)?, last: join(&last)? })
    }
}

/// The bits of the pair of i and j among those of all pairs of `k` values.
fn of_pair<D: Device>(
    device: &D,
    bits: &D::Buf<u64>,
    k: usize,
    (i, j): (usize, usize),
    n: usize,
) -> Result<D::Buf<u64>, DeviceError> {
    let pair = pairs(k).position(|pair| pair == (i.min(j), i.max(j))).expect("two of k values");
    device.view_bits(bits, &part(pair, n))
}

/// Part `at` of parts of `n` elements.
fn part(at: usize, n: usize) -> View {
    View { offset: at * n, ..View::whole([n].into()) }
}

fn difference<W: Word, D: Device>(
    device: &D,
    a: &Tensor<W, D>,
    b: &Tensor<W, D>,
    n: usize,
) -> Result<D::Buf<W>, DeviceError> {
    device.combine(&[(W::ONE, &a.buf), (W::ONE.neg(), &b.buf)], W::ZERO, n)
}

/// (a >> cut) − (b >> cut) for all pairs.
fn differences<W: Word, D: Device>(
    device: &D,
    cut: u32,
    values: &[&Tensor<W, D>],
    n: usize,
) -> Result<D::Buf<W>, DeviceError> {
    let cut_one = |x: &&Tensor<W, D>| Ok(Tensor::new([n], device.shift_right(&x.buf, cut)?));
    let cut = values.iter().map(cut_one).collect::<Result<Vec<_>, DeviceError>>()?;
    let parts = pairs(values.len()).map(|(p, q)| difference(device, &cut[p], &cut[q], n));
    joined(device, &parts.collect::<Result<Vec<_>, _>>()?.iter().collect::<Vec<_>>(), n)
}

/// Parts of `n` elements one after the other.
fn joined<W: Word, D: Device>(device: &D, parts: &[&D::Buf<W>], n: usize) -> Result<D::Buf<W>, DeviceError> {
    let placed: Vec<_> =
        parts.iter().enumerate().map(|(at, &source)| Placement { source, target: part(at, n) }).collect();
    device.place(&placed, parts.len() * n)
}
