//! Keys on the CPU: the seeds of many values beside each other, so that the processor encrypts many
//! blocks at a time. All nodes of a digit are made, whatever a worker's digit is: that costs less
//! than to guess where each walk ends.

use super::super::half_tree::{
    Permutations, Seeds, add_words, children, correct, count, halves, place, root, sigma, t_of,
};
use super::{ComparisonKeys, DealtKeys, KeyShare, KeySpec, Words};
use crate::cpu::work::{Disjoint, at_every_level, parallel};
use crate::{Cpu, DeviceError};
use megrez_plan::DIGIT;
use megrez_prg::Stream;
use megrez_ring::Word;
use std::sync::Arc;

/// Values of one task, and values worked on together.
const TASK: usize = 512;
const LANES: usize = 64;

/// Fewer values than this are one thread's work.
const WORTH_A_THREAD: usize = 1024;

impl Seeds {
    /// The roots of `n` values from `start` on, for each of these workers; `start` is a multiple of
    /// [`LANES`].
    fn begin(&mut self, roots: &[(usize, &Stream)], start: usize, n: usize) {
        let mut words = [0; 2 * LANES];
        self.sigma.clear();
        for &(j, stream) in roots {
            stream.fill(start as u64 / 4, &mut words[..2 * n]);
            self.sigma.extend((0..n).map(|e| sigma(halves(root(j, &words, e)))));
        }
    }
}

at_every_level! {
    /// Word p of a value correction, from the images of both workers' seeds.
    fn value<W: Word>(spec: KeySpec, p: usize, masks: &[W], seeds: &Seeds, out: &mut [W]) {
        let n = masks.len();
        for e in 0..n {
            let value = spec.payload(masks[e])[p].sub(seeds.converted(p, e)).add(seeds.converted(p, n + e));
            let negative = W::from_u64(t_of(seeds.sigma[n + e]) & 1);
            out[e] = W::ONE.sub(negative.add(negative)).mul(value);
        }
    }
}

impl Cpu {
    /// Runs `block(seeds, room for others, start, n)` for blocks of all values.
    fn blocks(&self, n: usize, block: impl Fn(&mut Seeds, &mut Vec<[u64; 2]>, usize, usize) + Sync) {
        let threads = if n < WORTH_A_THREAD { 1 } else { self.threads };
        parallel(threads, n.div_ceil(TASK), |task| {
            let (mut seeds, mut next) = (Seeds::default(), vec![]);
            for start in (task * TASK..n.min((task + 1) * TASK)).step_by(LANES) {
                block(&mut seeds, &mut next, start, LANES.min(n - start));
            }
        });
    }
}

impl ComparisonKeys for Cpu {
    /// No branch and no index depends on a mask.
    fn deal_keys<W: Word>(
        &self,
        spec: KeySpec,
        permutations: &Self::Buf<u64>,
        masks: &Self::Buf<W>,
        [root_0, root_1]: [&Stream; 2],
    ) -> Result<DealtKeys<W, Self>, DeviceError> {
        let (pi, n) = (Permutations::new(permutations), masks.len());
        let mut dealt = Words::<W>::new(spec, n);
        let [first, others] = [&mut dealt.first, &mut dealt.others].map(|words| Disjoint::new(words));
        let [values, tops] = [&mut dealt.values, &mut dealt.tops].map(|words| Disjoint::new(words));
        self.blocks(n, |seeds, _, start, len| {
            let masks = &masks[start..start + len];
            seeds.begin(&[(0, root_0), (1, root_1)], start, len);
            for d in 0..spec.digits() {
                for depth in spec.levels_of(d) {
                    let (room, at) = match depth {
                        0 => (&first, start),
                        _ => (&others, (depth - 1) * n + start),
                    };
                    // SAFETY: every block has values of its own, and so words of its own.
                    let out = unsafe { room.part(2 * at..2 * (at + len)) };
                    seeds.permute(&pi, 0);
                    let lowest = spec.cut as usize + spec.levels() - 1 - depth;
                    correct(self.level, lowest as u32, masks, seeds, out);
                }
                for p in 0..spec.parts() {
                    let (room, at) = match p {
                        2 => (&tops, d * n + start),
                        _ => (&values, (2 * d + p) * n + start),
                    };
                    // SAFETY: as above.
                    let out = unsafe { room.part(at..at + len) };
                    if place::<W>(p).1 == 0 {
                        seeds.permute(&pi, 1 + place::<W>(p).0);
                    }
                    value(self.level, spec, p, masks, seeds, out);
                }
            }
        });
        let Words { first, others, values, tops } = dealt;
        let [first, others] = [first, others].map(Arc::new);
        Ok(DealtKeys { first, others, values: Arc::new(values), tops: Arc::new(tops) })
    }

    /// The only index that depends on m is the one of the worker's own node.
    fn evaluate_keys<W: Word>(
        &self,
        spec: KeySpec,
        permutations: &Self::Buf<u64>,
        masked: &Self::Buf<W>,
        key: &KeyShare<'_, W, Self>,
    ) -> Result<Vec<Self::Buf<W>>, DeviceError> {
        let (pi, n) = (Permutations::new(permutations), masked.len());
        let j = usize::from(key.first.is_some());
        let mut sums = vec![vec![W::ZERO; n]; spec.parts()];
        let rooms: Vec<_> = sums.iter_mut().map(|sums| Disjoint::new(sums)).collect();
        self.blocks(n, |seeds, next, start, len| {
            let masked = &masked[start..start + len];
            let mut corrections = [[0; 2]; LANES];
            let corrections = &mut corrections[..len];
            seeds.begin(&[(j, key.root)], start, len);
            for d in 0..spec.digits() {
                for depth in spec.levels_of(d) {
                    let words = match depth {
                        0 => key.first.map(|first| &first[2 * start..]),
                        _ => Some(&key.others[2 * ((depth - 1) * n + start)..]),
                    };
                    // Worker 0 has t = 0 at its roots.
                    if let Some((words, _)) = words.map(<[u64]>::as_chunks) {
                        corrections.iter_mut().zip(words).for_each(|(c, &word)| *c = sigma(word));
                    }
                    seeds.permute(&pi, 0);
                    next.resize(2 * seeds.sigma.len(), [0; 2]);
                    children(self.level, seeds, corrections, next);
                    std::mem::swap(&mut seeds.sigma, next);
                }
                let (mut own, mut limits, mut counts) = ([0; LANES], [0; LANES], [0; LANES]);
                let last = u64::from(d + 1 == spec.digits());
                for e in 0..len {
                    own[e] = spec.digit(masked[e], d);
                    limits[e] = own[e] as u64 + last;
                }
                let limits = &limits[..len];
                count(self.level, &seeds.sigma, limits, &mut counts[..len]);
                for (p, room) in rooms.iter().enumerate() {
                    if place::<W>(p).1 == 0 {
                        seeds.permute(&pi, 1 + place::<W>(p).0);
                    }
                    let mut sum = [W::ZERO; LANES];
                    add_words(self.level, p, seeds, limits, &mut sum[..len]);
                    let values = match p {
                        2 => &key.tops[d * n + start..],
                        _ => &key.values[(2 * d + p) * n + start..],
                    };
                    // SAFETY: every block has values of its own.
                    let out = unsafe { room.part(start..start + len) };
                    for e in 0..len {
                        let sum = sum[e].add(W::from_u64(counts[e]).mul(values[e]));
                        out[e] = if j == 0 { out[e].add(sum) } else { out[e].sub(sum) };
                    }
                }
                for (e, own) in own[..len].iter().enumerate() {
                    seeds.sigma[e] = seeds.sigma[own * len + e];
                }
                seeds.sigma.truncate(len);
            }
        });
        Ok(sums.into_iter().map(Arc::new).collect())
    }
}

const _: () = assert!(DIGIT <= 8, "a digit's nodes are made all at once");
