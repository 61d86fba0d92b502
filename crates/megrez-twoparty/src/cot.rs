//! Products of one party's bit with the other party's integers, by correlated OTs (CrypTFlow2 §2,
//! SIRNN §3): the core of selection, conversion of bits, and multiplication.
//!
//! For each lane the giver has words f_i and the chooser a bit c; they end with additive shares of
//! c·f_i mod 2^w_i. With the OT's pads m and m' the giver keeps −m and sends f + m − m', and the
//! chooser has m, or m' plus what was sent.
//!
//! rounds  bits per lane
//! 1       128/k     chooser → giver
//! 1       Σ w_i     giver → chooser
//!
//! Security: `docs/security/secfloat.md`.

use crate::cost::Cost;
use crate::link::Sirnn;
use crate::ot::{Code, Transfers};
use crate::wire::{Reader, Writer};
use megrez_float::blocks::mask;
use megrez_kernels::Device;
use megrez_net::Payload;
use megrez_ring::bits;
use megrez_session::Error;

/// One word of each lane.
pub(crate) struct Word<'a> {
    /// w: the product is shared modulo 2^w.
    pub width: u32,
    /// This party's f, one a lane; not looked at where it chooses only.
    pub give: &'a [u64],
    /// Number of the sum that the product goes to, and how far it is shifted there.
    pub into: usize,
    /// See `into`.
    pub shift: u32,
}

/// OTs of `lanes` lanes.
pub(crate) struct Cot<'a> {
    pub lanes: usize,
    /// Who gives; both, each with its own bits and words, if none.
    pub from: Option<usize>,
    /// This party's bits, packed; not looked at where it gives only.
    pub choice: &'a [u64],
    pub words: Vec<Word<'a>>,
}

/// Bits of pad in a block.
const PAD: u32 = 128;
/// Lanes that are hashed together.
const CHUNK: usize = 32;

impl Cot<'_> {
    fn gives(&self, party: usize) -> bool {
        self.from.is_none_or(|from| from == party)
    }

    fn bits(&self) -> usize {
        self.lanes * self.words.iter().map(|w| w.width as usize).sum::<usize>()
    }

    /// For each word its pad's block and place in it; and how many blocks there are.
    fn pads(&self) -> (Vec<(usize, u32)>, usize) {
        let (mut block, mut at) = (0, 0);
        let place = |word: &Word<'_>| {
            if at + word.width > PAD {
                (block, at) = (block + 1, 0);
            }
            at += word.width;
            (block, at - word.width)
        };
        let places = self.words.iter().map(place).collect();
        // A pad's number is one byte of its tweak.
        assert!(block < 256, "a lane has at most 256 pads");
        (places, block + 1)
    }
}

/// Lanes and words' bits of all OTs in which `party` gives.
fn totals(jobs: &[Cot<'_>], party: usize) -> (usize, usize) {
    jobs.iter().filter(|j| j.gives(party)).fold((0, 0), |t, j| (t.0 + j.lanes, t.1 + j.bits()))
}

impl<D: Device> Sirnn<D> {
    /// Adds this party's shares of all products to `sums`; the caller reduces them.
    pub(crate) fn cots(&mut self, jobs: &[Cot<'_>], sums: &mut [Vec<u64>]) -> Result<(), Error> {
        let (me, peer) = (self.me(), 1 - self.me());
        let code = Code::new(1);
        let ((given, given_bits), (chosen, chosen_bits)) = (totals(jobs, me), totals(jobs, peer));
        self.reserve(chosen, given)?;

        let mut choices = Writer::with_capacity(chosen);
        jobs.iter().filter(|j| j.gives(peer)).for_each(|j| choices.append(j.choice, j.lanes));
        let choices = [choices.into_words()];
        let (corrections, blocks) = self.ot.receiver.extend(code, &choices, chosen);
        let received = self.ot.next_received(chosen);
        let theirs = self
            .exchange(Payload::from_bytes(&corrections), self.ot.transfers.correction_bytes(code, given))?;

        let mut writer = Writer::with_capacity(given_bits);
        self.give(jobs, given, theirs.as_bytes(), &mut writer, sums);
        let payload = self.exchange(writer.into_payload(), bits::bytes(chosen_bits))?;
        self.choose(jobs, &blocks, received, &choices[0], payload.words(), sums);
        Ok(())
    }

    fn give(
        &mut self,
        jobs: &[Cot<'_>],
        given: usize,
        corrections: &[u8],
        writer: &mut Writer,
        sums: &mut [Vec<u64>],
    ) {
        let code = Code::new(1);
        let me = self.me();
        let mut number = self.ot.next_sent(given);
        let delta = self.ot.sender.offsets(code)[1];
        let hash = &self.ot.hash;
        let mut jobs = jobs.iter().filter(|j| j.gives(me)).map(|j| (j, j.pads()));
        let mut current = jobs.next();
        let (mut first, mut low, mut high) = (0, vec![], vec![]);
        // Blocks come as they are made; each piece is what is left of a job, at most a chunk.
        self.ot.sender.stream(code, given, corrections, &mut |mut q| {
            while let Some((job, (places, blocks))) = current.as_ref().filter(|_| !q.is_empty()) {
                let (these, rest) = q.split_at((job.lanes - first).min(CHUNK).min(q.len()));
                q = rest;
                let blocks = *blocks;
                let tweak = |i: usize| u128::from(number + (i / blocks) as u64) << 8 | (i % blocks) as u128;
                spread(&mut low, these, blocks, 0);
                spread(&mut high, these, blocks, delta);
                hash.apply(&mut low, tweak);
                hash.apply(&mut high, tweak);
                for lane in 0..these.len() {
                    for (word, &(block, at)) in job.words.iter().zip(places) {
                        let at_lane = lane * blocks + block;
                        let (m0, m1) = ((low[at_lane] >> at) as u64, (high[at_lane] >> at) as u64);
                        writer.push(word.give[first + lane].wrapping_add(m0).wrapping_sub(m1), word.width);
                        let sum = &mut sums[word.into][first + lane];
                        *sum = sum.wrapping_sub((m0 & mask(word.width)) << word.shift);
                    }
                }
                number += these.len() as u64;
                first += these.len();
                if first == job.lanes {
                    (current, first) = (jobs.next(), 0);
                }
            }
        });
    }

    fn choose(
        &self,
        jobs: &[Cot<'_>],
        t: &[u128],
        number: u64,
        choices: &[u64],
        payload: &[u64],
        sums: &mut [Vec<u64>],
    ) {
        let mut reader = Reader::new(payload);
        let mut done = 0;
        let mut pads = vec![];
        for job in jobs.iter().filter(|j| j.gives(1 - self.me())) {
            let (places, blocks) = job.pads();
            for (chunk, these) in t[done..][..job.lanes].chunks(CHUNK).enumerate() {
                let first = chunk * CHUNK;
                let tweak = |i: usize| {
                    u128::from(number + (done + first + i / blocks) as u64) << 8 | (i % blocks) as u128
                };
                spread(&mut pads, these, blocks, 0);
                self.ot.hash.apply(&mut pads, tweak);
                for lane in 0..these.len() {
                    let keep = bits::get(choices, done + first + lane).wrapping_neg();
                    for (word, &(block, at)) in job.words.iter().zip(&places) {
                        let pad = (pads[lane * blocks + block] >> at) as u64;
                        let share = pad.wrapping_add(reader.next(word.width) & keep) & mask(word.width);
                        let sum = &mut sums[word.into][first + lane];
                        *sum = sum.wrapping_add(share << word.shift);
                    }
                }
            }
            done += job.lanes;
        }
    }
}

/// What [`Sirnn::cots`] costs for (lanes, giver, bits of all words of a lane).
pub(crate) fn cost(transfers: Transfers, jobs: &[(usize, Option<usize>, u32)]) -> Cost {
    let totals = |giver: usize| {
        let given = jobs.iter().filter(move |j| j.1.is_none_or(|from| from == giver));
        given.fold((0, 0), |t, j| (t.0 + j.0, t.1 + j.0 * j.2 as usize))
    };
    let bytes = |party: usize| {
        transfers.correction_bytes(Code::new(1), totals(1 - party).0) + bits::bytes(totals(party).1)
    };
    Cost::new([bytes(0), bytes(1)], if jobs.iter().all(|j| j.0 == 0) { 0 } else { 2 })
        .choosing([totals(1).0, totals(0).0])
}

/// Every block, plus `offset`, as often as it has pads.
fn spread(out: &mut Vec<u128>, blocks: &[u128], pads: usize, offset: u128) {
    out.clear();
    if pads == 1 {
        out.extend(blocks.iter().map(|b| b ^ offset));
    } else {
        out.extend(blocks.iter().flat_map(|b| std::iter::repeat_n(b ^ offset, pads)));
    }
}
