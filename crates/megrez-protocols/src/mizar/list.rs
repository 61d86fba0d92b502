//! The lists of MIZAR's sign bit: what the dealer deals and what the entries are (Fig. 4, and its
//! generalisation to digits).

use megrez_kernels::{Entries, Field, ListAlgebra, ListInput, ListSpec};
use megrez_plan::SignBit;

/// The list of the figure, and that of digits: what the dealer deals and what workers make of it.
/// Randomness, zero-shares and the rotation are those of all lists
/// ([`megrez_kernels::MaskedLists`]). Devices have kernels for these lists, which equal this
/// algebra bit for bit.
#[derive(Clone, Debug)]
pub struct SignList(pub ListSpec);

impl ListAlgebra for SignList {
    fn field(&self) -> Field {
        Field::small(self.0.prime)
    }
    fn length(&self) -> usize {
        self.0.length()
    }
    fn dealt(&self) -> usize {
        self.0.dealt()
    }

    /// Offline: the bits of ρ = (r − 1) mod 2^(λ−1), or of its digits the indicators [ρ_d = q] for
    /// all q but the largest, of the cut mask r. The dealer keeps s = msb(−r mod 2^λ).
    fn deal(&self, r: u64, secret: &mut dyn FnMut(u64)) -> u64 {
        let (r, top) = (r >> self.0.cut, self.0.width - 1);
        let rho = r.wrapping_sub(1) & !(u64::MAX << top);
        match &self.0.entries {
            Entries::Bits => (0..top).rev().for_each(|i| secret((rho >> i) & 1)),
            Entries::Digits(widths) => {
                for (rho_d, width) in digits(rho, widths) {
                    (0..(1 << width) - 1).for_each(|q| secret(u64::from(rho_d == q)));
                }
            }
        }
        (r.wrapping_neg() >> top) & 1
    }

    /// Online, step 1: [u_i]_j = w_i·([t_i]_j + [j=0]·β_i).
    fn entries(&self, worker: &ListInput<'_>, entry: &mut dyn FnMut(i64)) {
        let (first, w) = (i64::from(worker.j == 0), worker.multipliers);
        match &self.0.entries {
            Entries::Bits => {
                self.first_differences(worker, |i, t_i, beta_i| entry(w[i] * (t_i + first * beta_i)));
            }
            Entries::Digits(widths) => self.digit_entries(widths, worker, |d, u_d| entry(w[d] * u_d)),
        }
    }

    fn kernel(&self) -> Option<&ListSpec> {
        Some(&self.0)
    }
}

impl SignList {
    /// Worker j's [t_i]_j = Σ_(k<i) [s_k]_j − [s_i]_j + [j=0] with [s_i]_j = [j=0]·m_i + (1 −
    /// 2m_i)·[ρ_i]_j, a share of [m_i ≠ ρ_i]: t_i is 0 at the first difference only. And β_i =
    /// msb(m) ⊕ Δ ⊕ m_i, 0 where that difference decides for the sign that the dealer is to see.
    /// The last place compares 0 with 1, for m = ρ.
    pub(crate) fn first_differences(&self, worker: &ListInput<'_>, mut place: impl FnMut(usize, i64, i64)) {
        let (top, first) = (self.0.width - 1, i64::from(worker.j == 0));
        let m = |position: u32| ((worker.value >> (self.0.cut + position)) & 1) as i64;
        let wanted = m(top) ^ worker.flip as i64;
        let mut sum = 0;
        for i in 0..top as usize {
            let (m_i, rho_i) = (m(top - 1 - i as u32), worker.dealt[i]);
            let s_i = first * m_i + (1 - 2 * m_i) * rho_i;
            place(i, sum - s_i + first, wanted ^ m_i);
            sum += s_i;
        }
        place(top as usize, sum, wanted);
    }

    /// As the figure with digits for bits: worker j's share of u_d = Σ_(k<d) (1 − eq_k) + 1 − dir_d
    /// with eq_d = [m_d = ρ_d] and dir_d = [m_d > ρ_d] if msb(m) ⊕ Δ = 1, else [m_d < ρ_d], or [m_d
    /// ≤ ρ_d] in the last place. Both are sums of the dealt indicators [ρ_d = q].
    fn digit_entries(&self, widths: &[u32], worker: &ListInput<'_>, mut place: impl FnMut(usize, i64)) {
        let first = i64::from(worker.j == 0);
        let m = worker.value >> self.0.cut;
        let wanted = (m >> (self.0.width - 1)) & 1 ^ worker.flip;
        let (mut indicators, mut unequal) = (worker.dealt, 0);
        for (d, (m_d, width)) in digits(m, widths).enumerate() {
            let (of_digit, rest) = indicators.split_at((1 << width) - 1);
            indicators = rest;
            // The indicator of the largest digit is one minus the others.
            let all_others: i64 = of_digit.iter().sum();
            let equal = of_digit.get(m_d as usize).copied().unwrap_or(first - all_others);
            let greater: i64 = of_digit[..m_d as usize].iter().sum();
            let direction = match (wanted, d + 1 == widths.len()) {
                (1, _) => greater,
                (_, true) => first - greater,
                (_, false) => first - greater - equal,
            };
            place(d, unequal + first - direction);
            unequal += first - equal;
        }
    }
}

/// The digits of a number's low bits, the most significant first, with their widths.
fn digits(low: u64, widths: &[u32]) -> impl Iterator<Item = (u64, u32)> + '_ {
    let mut left: u32 = widths.iter().sum();
    widths.iter().map(move |&width| {
        left -= width;
        ((low >> left) & ((1 << width) - 1), width)
    })
}

/// Which lists are sent: the protocol's own, or those of a protocol that it is compared with.
#[derive(Clone, Copy, Debug)]
pub struct Lists(pub(crate) fn(&SignBit, u32) -> (SignList, Box<dyn ListAlgebra>));

/// One list: MIZAR, Fig. 4, or digits.
impl Default for Lists {
    fn default() -> Self {
        Lists(|sign, ring| {
            let list = SignList(ListSpec::new(sign, ring));
            (list.clone(), Box::new(list))
        })
    }
}
