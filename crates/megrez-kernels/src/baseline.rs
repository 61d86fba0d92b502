//! The bit list's predecessors, which protocols keep to compare with: the two lists of Aegis (MIZAR, Fig. 3) and the
//! concurrent single list (MIZAR, Remark 1). They stand in for the list of [`ListSpec`] online; what the dealer deals is the
//! same. One thread of the host, whatever the device; not constant-time.

use crate::list::{Entries, ListSpec, ListStreams};
use megrez_plan::SignBit;
use megrez_prg::{FieldSampler, Stream};
use megrez_ring::{Prime, Word, bits};

/// Which list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Baseline {
    /// u_i = w_i·t_i + β_i and u'_i = w'_i·(w_i·t_i + 1); the wanted entry has u_i = 0 and u'_i ≠ 0. Both lists together tell
    /// the dealer how many β_i are 1: they leak.
    Aegis,
    /// v_i = w_i·(t_i·(1 − β_i) + β_i), which is 0 iff t_i = β_i = 0; no entry before w_i exceeds λ − 1.
    Concurrent,
}

impl Baseline {
    /// The bit list on the bits that `sign` compares, whichever list `sign` names, in the baseline's field.
    pub fn spec(self, sign: &SignBit, ring: u32) -> ListSpec {
        let width = sign.width(ring);
        let prime = match self {
            Baseline::Aegis => Prime::above(width),
            Baseline::Concurrent => Prime::above(width - 1),
        };
        ListSpec { cut: sign.cut, width, entries: Entries::Bits, prime }
    }

    /// Lists per value.
    pub fn lists(self) -> usize {
        match self {
            Baseline::Aegis => 2,
            Baseline::Concurrent => 1,
        }
    }
}

fn sample(stream: &Stream, bound: u64, offset: u8, n: usize) -> Vec<u8> {
    let mut out = vec![0; n];
    FieldSampler::new(bound).fill(stream, offset, &mut out);
    out
}

/// Worker `j`'s lists: for Aegis all lists u, then all lists u', each pair turned by one rotation. Multipliers and
/// zero-shares of list c are samples c·n·λ + e·λ + q.
pub(crate) fn lists<W: Word>(
    kind: Baseline,
    spec: &ListSpec,
    j: usize,
    masked: &[W],
    share: &[u8],
    flips: &[u64],
    streams: &ListStreams<'_>,
) -> Vec<Vec<u64>> {
    let (field, n, length) = (spec.prime, masked.len(), spec.length());
    let p = field.p() as u32;
    let one = u32::from(j == 0);
    let count = n * length;
    let multiplier = sample(streams.multiplier, field.p() - 1, 1, kind.lists() * count);
    let zero_share = sample(streams.zero_share, field.p(), 0, kind.lists() * count);
    let rotation = sample(streams.rotation, length as u64, 0, n);
    let mut lists = vec![vec![0u8; count]; kind.lists()];
    for e in 0..n {
        let m = (masked[e].to_u64() >> spec.cut) & (u64::MAX >> (64 - spec.width));
        let common = (m >> (spec.width - 1)) as u32 ^ bits::get(flips, e) as u32;
        // Σ_{k<i} s_k with s_i = [m_i ≠ ρ_i]; the last entry compares 0 with 1.
        let mut sum = 0;
        for i in 0..length {
            let last = i == length - 1;
            let bit = if last { 0 } else { (m >> (length - 2 - i)) as u32 & 1 };
            let rho = if last { one } else { u32::from(share[e * (length - 1) + i]) };
            let s = bit * one + (1 - bit) * rho + bit * (p - rho);
            let t = field.reduce(sum + 2 * p - s + one);
            sum = field.reduce(sum + s);
            let beta = common ^ bit;
            let place = e * length + (i + usize::from(rotation[e])) % length;
            let w = |list: usize| u32::from(multiplier[list * count + e * length + i]);
            let z = |list: usize| {
                let z = u32::from(zero_share[list * count + e * length + i]);
                if j == 0 { z } else { p - z }
            };
            match kind {
                Baseline::Aegis => {
                    let masked = field.reduce(w(0) * t);
                    lists[0][place] = field.reduce(masked + one * beta + z(0)) as u8;
                    lists[1][place] = field.reduce(w(1) * field.reduce(masked + one) + z(1)) as u8;
                }
                Baseline::Concurrent => {
                    let entry = (1 - beta) * t + beta * one;
                    lists[0][place] = field.reduce(w(0) * entry + z(0)) as u8;
                }
            }
        }
    }
    lists.into_iter().map(|list| field.pack(list.into_iter())).collect()
}

/// The dealer's answer: bit e is 1 if value e has no wanted entry. `lists` are worker 0's, then worker 1's.
pub(crate) fn scan(kind: Baseline, spec: &ListSpec, lists: [&[Vec<u64>]; 2], n: usize) -> Vec<u64> {
    let (field, length) = (spec.prime, spec.length());
    let sums: Vec<Vec<u32>> = (0..kind.lists())
        .map(|list| {
            let [a, b] = lists.map(|lists| field.unpack(&lists[list], n * length));
            a.iter().zip(&b).map(|(a, b)| field.reduce(u32::from(*a) + u32::from(*b))).collect()
        })
        .collect();
    bits::pack(n, |e| {
        let wanted = |at: usize| match kind {
            Baseline::Aegis => (sums[0][at] == 0) & (sums[1][at] != 0),
            Baseline::Concurrent => sums[0][at] == 0,
        };
        u64::from(!(e * length..(e + 1) * length).fold(false, |found, at| found | wanted(at)))
    })
}
