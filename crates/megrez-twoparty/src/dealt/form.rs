//! What blocks open: forms in secrets of the dealer, and polynomials of masked bits.
//!
//! Form:        P + Σ_k c_k·2^{s_k}·D_k mod 2^w; P and c_k public to the workers, D_k known to the dealer.
//! Polynomial:  ⊕_M ∏_{i∈M} (m_i ⊕ r_i) = ⊕_S (⊕_{M⊇S} ∏_{i∈M∖S} m_i)·∏_{i∈S} r_i; products of two masks and more are dealt.
//!
//! phase     rounds  bits per lane                  from → to
//! offline   1       Σ_k (w − s_k); 1 for each S    dealer → worker 0
//! online    1       2w; 2 for each polynomial      worker ↔ worker
//!
//! Workers see their shares of D_k, which are uniform, and the result under its fresh mask. The
//! dealer sees nothing.
//!
//! Security: `docs/security/float-dealer.md`.

use super::link::{Dealt, Share, Size};
use super::share::{Bits, Ints};
use megrez_float::blocks::mask;
use megrez_kernels::Device;
use megrez_ring::bits;
use megrez_session::Error;
use std::collections::BTreeSet;

/// A form of `lanes` lanes, of which this party has its side: coefficients at a worker, secrets at
/// the dealer.
pub(super) struct Form {
    pub width: u32,
    pub lanes: usize,
    party: usize,
    /// The worker's share of what is known of the form without dealing.
    share: Vec<u64>,
    terms: Vec<Term>,
}

struct Term {
    shift: u32,
    coefficient: Vec<u64>,
    secret: Vec<u64>,
}

impl Form {
    fn at_workers(&self, f: impl Fn(usize) -> u64) -> Vec<u64> {
        if self.party < 2 { (0..self.lanes).map(f).collect() } else { vec![] }
    }

    /// Adds something public; workers are asked for it.
    pub fn public(mut self, p: impl Fn(usize) -> u64) -> Self {
        if self.party == 0 {
            (0..self.lanes).for_each(|i| self.share[i] = self.share[i].wrapping_add(p(i)));
        }
        self
    }

    /// Adds what every worker has a share of.
    pub fn held(mut self, share: impl Fn(usize) -> u64) -> Self {
        if self.party < 2 {
            (0..self.lanes).for_each(|i| self.share[i] = self.share[i].wrapping_add(share(i)));
        }
        self
    }

    /// Adds coefficient·2^shift·secret: workers are asked for the one, the dealer for the other.
    /// Nothing is dealt of what is shifted out.
    pub fn term(
        mut self,
        shift: u32,
        coefficient: impl Fn(usize) -> u64,
        secret: impl Fn(usize) -> u64,
    ) -> Self {
        if shift < self.width {
            let secret = if self.party < 2 { vec![] } else { (0..self.lanes).map(secret).collect() };
            self.terms.push(Term { shift, coefficient: self.at_workers(coefficient), secret });
        }
        self
    }

    fn sizes(&self) -> impl Iterator<Item = Size> + '_ {
        self.terms.iter().map(|t| Size::Ints(self.width - t.shift, self.lanes))
    }

    /// The worker's share of the form.
    fn evaluate(self, dealt: &mut impl Iterator<Item = Share>) -> Share {
        let mut share = self.share;
        for term in self.terms {
            let secret = dealt.next().expect("one for each term");
            for ((sum, c), d) in share.iter_mut().zip(&term.coefficient).zip(secret) {
                *sum = sum.wrapping_add(c.wrapping_mul(d) << term.shift);
            }
        }
        let keep = mask(self.width);
        share.iter_mut().for_each(|v| *v &= keep);
        share
    }
}

/// Bits to open together, and the secrets that they have in common.
pub(super) struct BitForms {
    pub n: usize,
    /// Packed secrets; none at workers, `count` of them at the dealer.
    secrets: Vec<Vec<u64>>,
    count: usize,
    outputs: Vec<BitForm>,
}

/// Worker's share ⊕ ⊕_k coefficient_k·secret_k.
struct BitForm {
    share: Vec<u64>,
    terms: Vec<(usize, Vec<u64>)>,
}

impl BitForms {
    /// Bits of which the workers have shares modulo 2 already; `shares` is asked for at workers.
    pub fn held(n: usize, outputs: usize, mut shares: impl FnMut(usize) -> Vec<u64>) -> Self {
        let outputs = (0..outputs).map(|i| BitForm { share: shares(i), terms: vec![] }).collect();
        Self { n, secrets: vec![], count: 0, outputs }
    }

    fn evaluate(self, dealt: &mut impl Iterator<Item = Share>) -> Vec<Share> {
        let secrets: Vec<Share> = dealt.by_ref().take(self.count).collect();
        let one = |output: BitForm| {
            let mut share = output.share;
            for (k, coefficient) in output.terms {
                for ((sum, c), d) in share.iter_mut().zip(coefficient).zip(&secrets[k]) {
                    *sum ^= c & d;
                }
            }
            share
        };
        self.outputs.into_iter().map(one).collect()
    }
}

/// Polynomials of the same masked bits: each a list of products, each product a set of inputs, bit
/// i for input i.
pub(super) struct Polynomials {
    pub inputs: Vec<Bits>,
    pub outputs: Vec<Vec<u32>>,
}

/// Sets of two inputs and more whose masks' products are dealt: those inside some product of some
/// polynomial.
pub(super) fn products_of_masks(outputs: &[Vec<u32>]) -> Vec<u32> {
    let subsets = |m: u32| std::iter::successors(Some(m), move |&s| (s > 0).then(|| (s - 1) & m));
    let all: BTreeSet<u32> = outputs.iter().flatten().flat_map(|&m| subsets(m)).collect();
    all.into_iter().filter(|s| s.count_ones() > 1).collect()
}

/// The product over the set of inputs of `f` of each, packed; all ones for no input.
fn product<'a>(inputs: &'a [Bits], set: u32, words: usize, f: impl Fn(&'a Bits) -> &'a [u64]) -> Vec<u64> {
    let mut all = vec![u64::MAX; words];
    for (_, x) in inputs.iter().enumerate().filter(|(i, _)| set >> i & 1 == 1) {
        all.iter_mut().zip(f(x)).for_each(|(a, b)| *a &= b);
    }
    all
}

impl Polynomials {
    /// The forms at this party.
    fn forms(&self, party: usize) -> BitForms {
        let n = self.inputs[0].n;
        let words = bits::words(n);
        let sets = products_of_masks(&self.outputs);
        let count = sets.len();
        if party == super::DEALER {
            let secrets = sets.iter().map(|&s| product(&self.inputs, s, words, |x| &x.r)).collect();
            let outputs = self.outputs.iter().map(|_| BitForm { share: vec![], terms: vec![] }).collect();
            return BitForms { n, secrets, count, outputs };
        }
        // ⊕ over the products with S of the public factors that are left.
        let coefficient = |monomials: &[u32], s: u32| {
            let mut sum: Option<Vec<u64>> = None;
            for m in monomials.iter().filter(|&&m| m & s == s) {
                let rest = product(&self.inputs, m & !s, words, |x| &x.m);
                match &mut sum {
                    None => sum = Some(rest),
                    Some(sum) => sum.iter_mut().zip(rest).for_each(|(a, b)| *a ^= b),
                }
            }
            sum
        };
        let one = |monomials: &Vec<u32>| {
            let mut share = vec![0; words];
            let mut add = |v: &[u64], by: &[u64]| {
                share.iter_mut().zip(v.iter().zip(by)).for_each(|(s, (v, by))| *s ^= v & by);
            };
            if let Some(public) = coefficient(monomials, 0).filter(|_| party == 0) {
                add(&public, &vec![u64::MAX; words]);
            }
            for (i, x) in self.inputs.iter().enumerate() {
                if let Some(c) = coefficient(monomials, 1 << i) {
                    add(&c, &x.r);
                }
            }
            let terms = sets.iter().enumerate();
            let terms = terms.filter_map(|(k, &s)| Some((k, coefficient(monomials, s)?))).collect();
            if !n.is_multiple_of(64) {
                bits::clear_tail(&mut share, n);
            }
            BitForm { share, terms }
        };
        BitForms { n, secrets: vec![], count, outputs: self.outputs.iter().map(one).collect() }
    }
}

impl<D: Device> Dealt<D> {
    /// A form of so many bits that is zero yet.
    pub(super) fn form(&self, width: u32, lanes: usize) -> Form {
        let share = if self.deals() { vec![] } else { vec![0; lanes] };
        Form { width, lanes, party: self.me(), share, terms: vec![] }
    }

    /// Deals and opens, all together: one message of the dealer, one each way between the workers.
    pub(super) fn open(
        &mut self,
        forms: Vec<Form>,
        bits: Vec<BitForms>,
    ) -> Result<(Vec<Ints>, Vec<Vec<Bits>>), Error> {
        let mut dealt: Vec<Size> = forms.iter().flat_map(Form::sizes).collect();
        bits.iter().for_each(|b| dealt.extend((0..b.count).map(|_| Size::Bits(b.n))));
        let secrets = || {
            let ints = forms.iter().flat_map(|f| &f.terms).map(|t| t.secret.clone());
            ints.chain(bits.iter().flat_map(|b| b.secrets.clone())).collect()
        };
        let shares = self.deal(&dealt, secrets)?;
        let mut opened: Vec<Size> = forms.iter().map(|f| Size::Ints(f.width, f.lanes)).collect();
        bits.iter().for_each(|b| opened.extend(b.outputs.iter().map(|_| Size::Bits(b.n))));
        let widths: Vec<u32> = forms.iter().map(|f| f.width).collect();
        let counts: Vec<(usize, usize)> = bits.iter().map(|b| (b.n, b.outputs.len())).collect();
        let values = if self.deals() {
            vec![]
        } else {
            let mut shares = shares.into_iter();
            let mut values: Vec<Share> = forms.into_iter().map(|f| f.evaluate(&mut shares)).collect();
            bits.into_iter().for_each(|b| values.extend(b.evaluate(&mut shares)));
            values
        };
        let mut results = self.open_shares(&opened, values)?.into_iter();
        let mut next = || results.next().expect("as many as were opened");
        let ints = widths.into_iter().map(|width| next().ints(width)).collect();
        let row = |(n, outputs): (usize, usize)| (0..outputs).map(|_| next().bits(n)).collect();
        let bits = counts.into_iter().map(row).collect();
        Ok((ints, bits))
    }

    /// Opens forms.
    pub(super) fn open_forms(&mut self, forms: Vec<Form>) -> Result<Vec<Ints>, Error> {
        Ok(self.open(forms, vec![])?.0)
    }

    /// Forms of polynomials at this party.
    pub(super) fn of_polynomials(&self, jobs: &[Polynomials]) -> Vec<BitForms> {
        jobs.iter().map(|job| job.forms(self.me())).collect()
    }

    /// Opens polynomials of masked bits.
    pub(super) fn polynomials(&mut self, jobs: &[Polynomials]) -> Result<Vec<Vec<Bits>>, Error> {
        let forms = self.of_polynomials(jobs);
        Ok(self.open(vec![], forms)?.1)
    }
}
