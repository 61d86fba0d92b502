//! One-hot digits, and what is asked of low bits: whether they borrow, whether they are zero.
//!
//! Of n bits d of a mask the dealer deals e_q = [d = q], q = 1 … 2^n − 1, modulo 2; e_0 = 1 ⊕ ⊕_q
//! e_q. Workers have shares of every function of (m_d, d) from these without a message. Digits are
//! opened as (less, equal), then joined ([`Joins`]).
//!
//! phase     rounds        bits per lane                       from → to
//! offline   1             Σ_d (2^{n_d} − 1) + joins           dealer → worker 0
//! online    1 + levels    2 for each bit that is wanted       worker ↔ worker
//!
//! Security: `docs/security/float-dealer.md`.

use super::form::{BitForms, Polynomials};
use super::joins::{Cut, Joins};
use super::link::{Dealt, Share, Size};
use super::share::{Bits, Ints};
use megrez_float::blocks::mask;
use megrez_kernels::Device;
use megrez_ring::bits;
use megrez_session::Error;

/// Worker's shares of one-hot vectors, word by word: bit q of the words of a lane is its share of
/// [d = q]. Empty at the dealer.
pub(super) struct OneHots {
    pub words: Vec<Share>,
}

/// Bits of each word of a one-hot of 2^n bits as dealt: bit 0 is not.
pub(super) fn one_hot_words(n: u32) -> impl Iterator<Item = u32> {
    let all = (1u32 << n) - 1;
    (0..(1u32 << n).div_ceil(64)).map(move |w| if w == 0 { all.min(63) } else { 64 })
}

/// What of cuts is known.
#[derive(Default)]
pub(super) struct Answer {
    pub borrow: Option<Bits>,
    pub zero: Option<Bits>,
}

impl<D: Device> Dealt<D> {
    /// Shares of the one-hot vectors of digits of `n` bits in so many lanes; the dealer knows the
    /// digits.
    pub(super) fn one_hots(
        &mut self,
        jobs: &[(u32, usize)],
        digits: impl FnOnce() -> Vec<Vec<u64>>,
    ) -> Result<Vec<OneHots>, Error> {
        let sizes: Vec<Size> = jobs
            .iter()
            .flat_map(|&(n, lanes)| one_hot_words(n).map(move |width| Size::Rows(width, lanes)))
            .collect();
        let secrets = || {
            let digits = digits();
            let of = |(&(n, _), digits): (&(u32, usize), &Vec<u64>)| -> Vec<Vec<u64>> {
                let word = |w: u64| {
                    let hot = |&d: &u64| u64::from(d / 64 == w) << (d % 64) >> u32::from(w == 0);
                    digits.iter().map(hot).collect()
                };
                (0..one_hot_words(n).count() as u64).map(word).collect()
            };
            jobs.iter().zip(&digits).flat_map(of).collect()
        };
        let (deals, first) = (self.deals(), u64::from(self.me() == 0));
        let mut shares = self.deal(&sizes, secrets)?.into_iter();
        let one = |&(n, lanes): &(u32, usize)| {
            let mut words: Vec<Share> = shares.by_ref().take(one_hot_words(n).count()).collect();
            if deals {
                return OneHots { words: vec![] };
            }
            for lane in 0..lanes {
                let rest = words.iter().fold(0, |sum, w| sum ^ w[lane]);
                words[0][lane] = words[0][lane] << 1 | (u64::from(rest.count_ones()) & 1 ^ first);
            }
            OneHots { words }
        };
        Ok(jobs.iter().map(one).collect())
    }

    /// The borrows and zeros at cuts of integers; cuts rise.
    pub(super) fn cuts(&mut self, jobs: &[(&Ints, Vec<Cut>)]) -> Result<Vec<Vec<Answer>>, Error> {
        let joins: Vec<Joins> = jobs.iter().map(|(_, cuts)| Joins::new(cuts)).collect();
        let mut parts = self.digits(jobs, &joins)?;
        for level in 0..joins.iter().map(|j| j.levels.len()).max().unwrap_or(0) {
            let mut made = vec![];
            let mut work = vec![];
            for (job, joins) in joins.iter().enumerate() {
                for join in joins.levels.get(level).into_iter().flatten() {
                    let (inputs, outputs) = joins.polynomials(join);
                    let input = |&(part, equal): &(usize, bool)| -> Bits {
                        let part: &Answer = &parts[job][part];
                        let bit = if equal { &part.zero } else { &part.borrow };
                        bit.clone().expect("wanted")
                    };
                    work.push(Polynomials { inputs: inputs.iter().map(input).collect(), outputs });
                    made.push((job, joins.wanted[join.made]));
                }
            }
            for ((job, wanted), bits) in made.into_iter().zip(self.polynomials(&work)?) {
                let mut bits = bits.into_iter();
                let borrow = if wanted.less { bits.next() } else { None };
                let zero = if wanted.equal { bits.next() } else { None };
                parts[job].push(Answer { borrow, zero });
            }
        }
        let answer = |(joins, parts): (&Joins, &Vec<Answer>)| {
            let of = |&answer: &usize| Answer {
                borrow: parts[answer].borrow.clone(),
                zero: parts[answer].zero.clone(),
            };
            joins.answers.iter().map(of).collect()
        };
        Ok(joins.iter().zip(&parts).map(answer).collect())
    }

    /// The digits of each integer as masked bits, as far as they are wanted.
    fn digits(&mut self, jobs: &[(&Ints, Vec<Cut>)], joins: &[Joins]) -> Result<Vec<Vec<Answer>>, Error> {
        let all: Vec<(&Ints, &Joins, usize)> = jobs
            .iter()
            .zip(joins)
            .flat_map(|((x, _), joins)| (0..joins.digits.len()).map(move |d| (*x, joins, d)))
            .collect();
        let sizes: Vec<(u32, usize)> = all.iter().map(|(x, j, d)| (j.digits[*d].1, x.lanes())).collect();
        let of = |(x, joins, d): &(&Ints, &Joins, usize)| -> Vec<u64> {
            let (at, width) = joins.digits[*d];
            x.r.iter().map(|r| r >> at & mask(width)).collect()
        };
        let hot = self.one_hots(&sizes, || all.iter().map(of).collect())?;
        let deals = self.deals();
        let form = |((x, joins, d), hot): (&(&Ints, &Joins, usize), &OneHots)| {
            let ((at, width), wanted) = (joins.digits[*d], joins.wanted[*d]);
            let asked: Vec<bool> = [(wanted.less, true), (wanted.equal, false)]
                .into_iter()
                .filter_map(|(wanted, less)| wanted.then_some(less))
                .collect();
            BitForms::held(x.lanes(), asked.len(), |i| {
                if deals {
                    return vec![];
                }
                let digit = |lane: usize| x.m[lane] >> at & mask(width);
                match asked[i] {
                    // Shares of [d = q] for all q above m's digit; then for m's digit.
                    true => bits::pack(x.lanes(), |lane| {
                        u64::from((hot.words[0][lane] >> digit(lane) >> 1).count_ones())
                    }),
                    false => bits::pack(x.lanes(), |lane| hot.words[0][lane] >> digit(lane)),
                }
            })
        };
        let forms = all.iter().zip(&hot).map(form).collect();
        let mut opened = self.open(vec![], forms)?.1.into_iter();
        let one = |joins: &Joins| {
            let answer = |d: usize| {
                let mut bits = opened.next().expect("one for each digit").into_iter();
                let borrow = if joins.wanted[d].less { bits.next() } else { None };
                Answer { borrow, zero: if joins.wanted[d].equal { bits.next() } else { None } }
            };
            (0..joins.digits.len()).map(answer).collect()
        };
        Ok(joins.iter().map(one).collect())
    }
}
