//! What a party holds of secret integers and bits: a mask, or its share of it, and at a worker the
//! masked value. None prints.

use megrez_float::blocks::mask;
use megrez_ring::bits;

/// Integers x = m − r modulo 2^width, one a lane; the bits above are zero.
#[derive(Clone)]
pub struct Ints {
    /// Bits of each.
    pub width: u32,
    /// m at a worker; the dealer has none, and this is empty.
    pub m: Vec<u64>,
    /// Worker j's r_j; at the dealer r, their sum.
    pub r: Vec<u64>,
    /// Worker 0's r_0 at the dealer, who so knows where r_0 + r_1 wraps; empty at workers.
    pub first: Vec<u64>,
}

/// Bits x = m ⊕ r, packed; bits past the end are zero.
#[derive(Clone)]
pub struct Bits {
    /// How many.
    pub n: usize,
    /// m at a worker; the dealer has none, and this is empty.
    pub m: Vec<u64>,
    /// Worker j's r_j; at the dealer r, their sum.
    pub r: Vec<u64>,
    /// Worker 0's r_0 at the dealer; empty at workers.
    pub first: Vec<u64>,
}

fn each(v: &[u64], f: impl Fn(u64) -> u64) -> Vec<u64> {
    v.iter().map(|&x| f(x)).collect()
}

fn both(v: &[u64], w: &[u64], f: impl Fn(u64, u64) -> u64) -> Vec<u64> {
    assert_eq!(v.len(), w.len(), "lanes differ");
    v.iter().zip(w).map(|(&x, &y)| f(x, y)).collect()
}

impl Ints {
    /// Of a mask's shares, where their sum as integers is 2^width or more. The dealer knows.
    #[must_use]
    pub fn carry(&self, lane: usize) -> u64 {
        // r = r_0 + r_1 − 2^width exactly if r is below r_0.
        u64::from(self.r[lane] < self.first[lane])
    }

    /// How many there are.
    #[must_use]
    pub fn lanes(&self) -> usize {
        self.r.len()
    }

    /// A linear f of every lane, modulo 2^width.
    #[must_use]
    pub fn map(&self, width: u32, f: impl Fn(u64) -> u64) -> Self {
        let keep = mask(width);
        let of = |v: &[u64]| each(v, |x| f(x) & keep);
        Self { width, m: of(&self.m), r: of(&self.r), first: of(&self.first) }
    }

    /// A linear f of two lanes, modulo 2^w.
    #[must_use]
    pub fn zip(&self, other: &Self, f: impl Fn(u64, u64) -> u64) -> Self {
        assert_eq!(self.width, other.width, "widths differ");
        let keep = mask(self.width);
        let f = |x, y| f(x, y) & keep;
        let of = |v: &[u64], w: &[u64]| both(v, w, f);
        Self {
            width: self.width,
            m: of(&self.m, &other.m),
            r: of(&self.r, &other.r),
            first: of(&self.first, &other.first),
        }
    }

    /// k_i·x_i modulo 2^w for public k_i.
    #[must_use]
    pub fn weigh(&self, k: &[u64]) -> Self {
        let keep = mask(self.width);
        // The dealer has no m, a worker no `first`.
        let of = |v: &[u64]| if v.is_empty() { vec![] } else { both(v, k, |x, k| x.wrapping_mul(k) & keep) };
        Self { width: self.width, m: of(&self.m), r: of(&self.r), first: of(&self.first) }
    }

    /// x + k modulo 2^w for a public k.
    #[must_use]
    pub fn offset(&self, k: u64) -> Self {
        let keep = mask(self.width);
        Self { m: each(&self.m, |x| x.wrapping_add(k) & keep), ..self.clone() }
    }
}

impl Bits {
    /// a ⊕ b.
    #[must_use]
    pub fn xor(&self, other: &Self) -> Self {
        assert_eq!(self.n, other.n, "lanes differ");
        let of = |v: &[u64], w: &[u64]| both(v, w, |x, y| x ^ y);
        Self {
            n: self.n,
            m: of(&self.m, &other.m),
            r: of(&self.r, &other.r),
            first: of(&self.first, &other.first),
        }
    }

    /// a ⊕ 1.
    #[must_use]
    pub fn not(&self) -> Self {
        let mut m = each(&self.m, |x| !x);
        if !m.is_empty() {
            bits::clear_tail(&mut m, self.n);
        }
        Self { m, ..self.clone() }
    }
}
