//! Sign bit on MSS by a masked list. MIZAR, Fig. 4, and its generalisation to digits (DIG); the cut of protocols on few
//! bits (compare λ bits above the k lowest) is part of the list's specification.
//!
//! Deviates from the figure: zero-shares z on both lists (the dealer made the shares of ρ, so without them the ratio of
//! the lists cancels w and gives the dealer m); ρ = (r−1) mod 2^(λ−1) is the complement of r's low bits (r̂ = 0 then fits);
//! Δ enters worker 0's share only; a uniform rotation instead of a permutation (a list has at most one zero and its other
//! entries are uniform, so only the zero's place needs hiding).
//!
//! phase     rounds  bits per element            from → to
//! offline   1       dealt·log p                 dealer → worker 0
//! online    2       2·length·log p + 2          workers → dealer, dealer → workers
//!
//! with dealt = λ−1 and length = λ for the bit list, Σ(2^w − 1) and the number of digits for digits; log p as packed on
//! the wire, 64 / ⌊64 / log2 p⌋.
//!
//! The baselines (aegis, concurrent) differ in the lists online: theirs are stated in [`Baseline`], ignore digits, and cost
//! 4·λ·log p (aegis) and 2·λ·log p online. The dealer's view of the concurrent list is that of the bit list; aegis leaks.
//!
//! Worker sees: its share of ρ, one uniform bit (b ⊕ r_y). Dealer sees: `length` elements whose sums are uniform non-zero,
//! one of them replaced by zero at a uniform place with probability ½, independent of x because Δ is uniform.
//!
//! Security: `docs/security/mizar.md`.

use crate::mss::{BitMask, DEALER, RingMask, Role};
use crate::{Cost, Unit};
use megrez_kernels::{Baseline, Bits, Device, FieldShare, ListSpec, ListStreams, Tensor};
use megrez_plan::SignBit;
use megrez_prg::Key;
use megrez_ring::Word;
use megrez_session::{Error, Party};

/// What a party keeps of the dealt digits or bits of ρ.
pub enum Dealt<D: Device> {
    /// Worker 0: its shares, as received.
    Shares(Bits<D>),
    /// Worker 1: the key of its shares.
    Stream(Key),
    /// Dealer: s = msb(−(r>>k) mod 2^λ).
    Signs(Bits<D>),
}

impl<D: Device> crate::Store<D> for Dealt<D> {
    fn write(&self, device: &D, out: &mut Vec<u8>) -> Result<(), crate::StoreError> {
        match self {
            Dealt::Shares(words) => {
                out.push(0);
                words.write(device, out)
            }
            Dealt::Stream(key) => {
                out.push(1);
                crate::Store::<D>::write(key, device, out)
            }
            Dealt::Signs(signs) => {
                out.push(2);
                signs.write(device, out)
            }
        }
    }
    fn read(device: &D, input: &mut &[u8]) -> Result<Self, crate::StoreError> {
        Ok(match crate::store::take(input, 1)?[0] {
            0 => Dealt::Shares(crate::Store::<D>::read(device, input)?),
            1 => Dealt::Stream(crate::Store::<D>::read(device, input)?),
            2 => Dealt::Signs(crate::Store::<D>::read(device, input)?),
            _ => return Err(crate::StoreError::Damaged),
        })
    }
}

/// Which list: the suite's own, or a baseline.
pub(super) type Lists = Option<Baseline>;

/// The names of a baseline's messages.
const BASELINE_LISTS: [&str; 2] = ["list", "second-list"];

fn spec_of(lists: Lists, sign: &SignBit, ring: u32) -> ListSpec {
    lists.map_or_else(|| ListSpec::new(sign, ring), |baseline| baseline.spec(sign, ring))
}

/// The list's own messages, without the dealer's answer.
pub(super) fn list_cost(lists: Lists, sign: &SignBit, ring: u32, n: usize) -> Cost {
    let spec = spec_of(lists, sign, ring);
    let unit = Unit::Field(spec.prime);
    (0..lists.map_or(1, Baseline::lists)).fold(
        Cost::LOCAL.offline(DEALER, 0, n * spec.dealt(), unit),
        |cost, _| {
            cost.online(1, 0, DEALER, n * spec.length(), unit).online(1, 1, DEALER, n * spec.length(), unit)
        },
    )
}

pub(super) fn cost(lists: Lists, sign: &SignBit, ring: u32, n: usize) -> Cost {
    list_cost(lists, sign, ring, n).online(2, DEALER, 0, n, Unit::Bits(1)).online(
        2,
        DEALER,
        1,
        n,
        Unit::Bits(1),
    )
}

/// Offline part of the list: the dealer deals ρ.
pub(super) fn deal_list<W: Word, D: Device>(
    party: &mut Party<D>,
    lists: Lists,
    sign: &SignBit,
    n: usize,
    mask: &RingMask<W, D>,
) -> Result<Dealt<D>, Error> {
    deal_list_of(party, lists, sign, n, |device| Ok(mask.total(device)?.buf))
}

/// As [`deal_list`], for masks that the dealer computes.
pub(super) fn deal_list_of<W: Word, D: Device>(
    party: &mut Party<D>,
    lists: Lists,
    sign: &SignBit,
    n: usize,
    masks: impl FnOnce(&D) -> Result<D::Buf<W>, Error>,
) -> Result<Dealt<D>, Error> {
    let spec = spec_of(lists, sign, W::BITS);
    let words = spec.prime.words(n * spec.dealt());
    Ok(match Role::of(party) {
        Role::Dealer => {
            let r = masks(party.device())?;
            let other = party.stream(1, "rho")?;
            let (shares, signs) = party.device().deal_list(&spec, &r, &other)?;
            party.send_words(0, "rho", shares)?;
            Dealt::Signs(Bits::new([n], signs))
        }
        Role::Worker(0) => Dealt::Shares(Bits::new([words * 64], party.recv_words(DEALER, "rho", words)?)),
        Role::Worker(_) => Dealt::Stream(party.stream_key(DEALER, "rho")?),
    })
}

/// Online part of the list. Workers send their lists and learn Δ; the dealer learns b = sgn(x) ⊕ Δ.
pub(super) fn compare<W: Word, D: Device>(
    party: &mut Party<D>,
    lists: Lists,
    sign: &SignBit,
    masked: Option<&Tensor<W, D>>,
    n: usize,
    dealt: &Dealt<D>,
) -> Result<D::Buf<u64>, Error> {
    let spec = spec_of(lists, sign, W::BITS);
    match Role::of(party) {
        Role::Worker(j) => {
            let masked = masked.expect("workers hold masked values online");
            let flip = party.stream(1 - j, "flip")?;
            let flips = party.device().random_bits(&flip, n)?;
            let streams = [
                party.stream(1 - j, "multiplier")?,
                party.stream(1 - j, "zero-share")?,
                party.stream(1 - j, "rotation")?,
            ];
            let streams =
                ListStreams { multiplier: &streams[0], zero_share: &streams[1], rotation: &streams[2] };
            let stream;
            let share = match dealt {
                Dealt::Shares(words) => FieldShare::Packed(&words.buf),
                Dealt::Stream(key) => {
                    stream = key.stream();
                    FieldShare::Stream(&stream)
                }
                Dealt::Signs(_) => return party.refuse("a worker was given the dealer's material"),
            };
            let device = party.device();
            if let Some(baseline) = lists {
                let made =
                    device.baseline_lists((baseline, &spec), j, &masked.buf, share, &flips, &streams)?;
                for (list, name) in made.into_iter().zip(BASELINE_LISTS) {
                    party.send_words(DEALER, name, list)?;
                }
            } else {
                let list = device.masked_list(&spec, j, &masked.buf, share, &flips, &streams)?;
                party.send_words(DEALER, "list", list)?;
            }
            Ok(flips)
        }
        Role::Dealer => {
            let Dealt::Signs(signs) = dealt else {
                return party.refuse("the dealer was given a worker's material");
            };
            let words = spec.prime.words(n * spec.length());
            let none = if let Some(baseline) = lists {
                let mut of = |j: usize| {
                    let names = BASELINE_LISTS[..baseline.lists()].iter();
                    names.map(|name| party.recv_words(j, name, words)).collect::<Result<Vec<_>, _>>()
                };
                let lists = [of(0)?, of(1)?];
                party.device().scan_baseline((baseline, &spec), [&lists[0], &lists[1]], n)?
            } else {
                let lists = [party.recv_words(0, "list", words)?, party.recv_words(1, "list", words)?];
                party.device().scan_lists(&spec, [&lists[0], &lists[1]], n)?
            };
            Ok(party.device().xor(&[&signs.buf, &none], false, n)?)
        }
    }
}

/// m of the bit [x ≥ 0], at the workers. `mask` is the output's.
pub(super) fn online<W: Word, D: Device>(
    party: &mut Party<D>,
    lists: Lists,
    sign: &SignBit,
    masked: Option<&Tensor<W, D>>,
    n: usize,
    mask: &BitMask<D>,
    material: &Dealt<D>,
) -> Result<Option<D::Buf<u64>>, Error> {
    let bit = compare(party, lists, sign, masked, n, material)?;
    answer(party, &bit, n, mask)
}

/// The last round: the dealer, who has `n` bits b, answers with b ⊕ r_y, and the workers, who have Δ, learn m of [x ≥ 0].
pub(super) fn answer<D: Device>(
    party: &mut Party<D>,
    bit: &D::Buf<u64>,
    n: usize,
    mask: &BitMask<D>,
) -> Result<Option<D::Buf<u64>>, Error> {
    match Role::of(party) {
        Role::Dealer => {
            let mask = mask.total_bits(party.device())?;
            let answer = party.device().xor(&[bit, &mask.buf], false, n)?;
            party.send_bits(0, "answer", answer.clone(), n)?;
            party.send_bits(1, "answer", answer, n)?;
            Ok(None)
        }
        Role::Worker(_) => {
            // sgn(x) = b ⊕ Δ, and [x ≥ 0] is its complement.
            let answer = party.recv_bits(DEALER, "answer", n)?;
            Ok(Some(party.device().xor(&[&answer, bit], true, n)?))
        }
    }
}
