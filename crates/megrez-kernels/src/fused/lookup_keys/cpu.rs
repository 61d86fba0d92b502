//! Keys of functions on the CPU: the seeds of many values beside each other, so that the processor
//! encrypts many blocks at a time.

use super::super::half_tree::{
    Permutations, Seeds, add_words, children, correct, count, halves, masked, pair, place, root, sigma, t_of,
    within, xor,
};
use super::super::lookup::split;
use super::{Blocks, CHOOSE, DealtLookup, LookupKey, LookupKeys, Tree, Turns, Words, beside, power};
use crate::cpu::element::and;
use crate::cpu::work::{Disjoint, at_every_level, parallel};
use crate::{Cpu, DeviceError};
use megrez_plan::Lookup;
use megrez_prg::{Level, Stream};
use megrez_ring::Word;
use std::ops::Range;
use std::sync::Arc;

/// Values whose keys are made together, and seeds that are expanded together: enough to keep the
/// unit that computes AES busy, and few enough for the nearest cache.
const DEALT: usize = 64;
const EXPANDED: usize = 1 << 9;
/// As often as that a thread goes on with its buffers.
const TASK: usize = 8;
/// The fewest values that go down to their blocks together.
const WALKING: usize = 64;

impl LookupKeys for Cpu {
    /// No branch and no index depends on a mask.
    fn deal_lookup<W: Word>(
        &self,
        f: &Lookup,
        permutations: &Self::Buf<u64>,
        masks: &Self::Buf<W>,
        roots: [&Stream; 2],
    ) -> Result<DealtLookup<W, Self>, DeviceError> {
        let (n, tree, width) = (masks.len(), Tree::of(f), f.coefficients());
        let pi = Permutations::new(permutations);
        let roots = roots.map(|stream| stream.words(2 * n));
        let mut dealt = Words::new(f, n);
        let (first, others) = (Disjoint::new(&mut dealt.first), Disjoint::new(&mut dealt.others));
        let values = Disjoint::new(&mut dealt.values);
        let threads = if n < 4 * DEALT { 1 } else { self.threads };
        parallel(threads, n.div_ceil(DEALT), |task| {
            let (start, end) = (task * DEALT, n.min((task + 1) * DEALT));
            let (count, masks) = (end - start, &masks[start..end]);
            let words = |k: usize| k * n + start..k * n + end;
            // Worker 0's seeds, then worker 1's.
            let mut seeds = Seeds::default();
            for (j, roots) in roots.iter().enumerate() {
                seeds.sigma.extend((start..end).map(|e| sigma(halves(root(j, roots, e)))));
            }
            for depth in 0..tree.depth() {
                let (room, at) = match depth {
                    0 => (&first, start),
                    _ => (&others, (depth - 1) * n + start),
                };
                // SAFETY: every task has values of its own.
                let corrections = unsafe { room.part(2 * at..2 * (at + count)) };
                seeds.permute(&pi, 0);
                correct(self.level, tree.bit(depth) as u32, masks, &mut seeds, corrections);
                let Some(digit) = tree.ends(depth) else { continue };
                for part in 0..tree.parts {
                    // SAFETY: every task has values of its own.
                    let out = unsafe { values.part(words(tree.word(width, digit, part))) };
                    paid(&pi, &mut seeds, part, out, |i| beside(masks[i])[part]);
                }
            }
            for k in 0..width {
                // SAFETY: every task has values of its own.
                let out = unsafe { values.part(words(k)) };
                paid(&pi, &mut seeds, k, out, |i| power(split(f, masks[i]).1.neg(), k));
            }
        });
        Ok(DealtLookup {
            first: Arc::new(dealt.first),
            others: Arc::new(dealt.others),
            values: Arc::new(dealt.values),
        })
    }

    fn open_by_keys<W: Word>(
        &self,
        f: &Lookup,
        permutations: &Self::Buf<u64>,
        masked: &Self::Buf<W>,
        key: &LookupKey<'_, W, Self>,
        output_mask: &Self::Buf<W>,
    ) -> Result<Self::Buf<W>, DeviceError> {
        let (n, width, tree, turns) = (masked.len(), f.coefficients(), Tree::of(f), Turns::new(f));
        let roots = key.root.words(2 * n);
        let j = usize::from(key.first.is_some());
        let leaves = if tree.above > 0 { 2 << tree.below } else { 1 << tree.below };
        let (pi, level) = (Permutations::new(permutations), self.level);
        let worker = Worker { f, tree, turns, level, pi, roots: &roots, masked, key, j };
        let mut out = output_mask.to_vec();
        let room = Disjoint::new(&mut out);
        let together = (EXPANDED / leaves).max(1);
        let threads = if n * leaves < 1 << 12 { 1 } else { self.threads };
        let task = (together * TASK).max(WALKING);
        parallel(threads, n.div_ceil(task), |i| {
            let mut work = Work::default();
            let all = i * task..n.min((i + 1) * task);
            // SAFETY: every task has values of its own.
            let out = unsafe { room.part(all.clone()) };
            work.starts.clear();
            if worker.tree.above == 0 {
                work.starts.extend(all.clone().map(|e| worker.root(e)));
            } else {
                worker.walk(all.clone(), out, &mut work);
            }
            for start in all.clone().step_by(together) {
                let values = start..all.end.min(start + together);
                worker.expand(values.clone(), start - all.start, &mut work);
                let paid = work.paid.chunks_exact(width * leaves);
                for (e, paid) in values.zip(paid) {
                    let (high, low) = split(f, masked[e]);
                    let sum = weighted(level, paid, &worker.turns, high, low);
                    let out = &mut out[e - all.start];
                    *out = if j == 0 { out.add(sum) } else { out.sub(sum) };
                }
            }
        });
        Ok(Arc::new(out))
    }
}

/// Word k of what both workers' seeds on the path are paid: worker 0's seeds, then worker 1's.
fn paid<W: Word>(pi: &Permutations, seeds: &mut Seeds, k: usize, out: &mut [W], beta: impl Fn(usize) -> W) {
    let (block, word) = place::<W>(k);
    if word == 0 {
        seeds.permute(pi, 1 + block);
    }
    let count = out.len();
    for (i, out) in out.iter_mut().enumerate() {
        let [a, b]: [W; 2] = [i, count + i].map(|i| seeds.converted(k, i));
        let value = beta(i).sub(a).add(b);
        // −1 if t of worker 1's seed is set.
        let negative = W::from_u64(t_of(seeds.sigma[count + i]));
        *out = value.sub(and(value.add(value), negative));
    }
}

/// A worker with its keys.
struct Worker<'a, W: Word> {
    f: &'a Lookup,
    tree: Tree,
    turns: Turns<W>,
    level: Level,
    pi: Permutations,
    roots: &'a [u64],
    masked: &'a [W],
    key: &'a LookupKey<'a, W, Cpu>,
    j: usize,
}

/// Where keys are expanded.
#[derive(Default)]
struct Work<W> {
    /// Where each value's leaves are looked for: at its root, or at two blocks.
    starts: Vec<[u64; 2]>,
    /// Of each start all nodes of a level.
    seeds: Seeds,
    children: Vec<[u64; 2]>,
    corrections: Vec<[u64; 2]>,
    /// ±[β_k]_q, for each value k times q.
    paid: Vec<W>,
}

impl<W: Word> Worker<'_, W> {
    fn root(&self, e: usize) -> [u64; 2] {
        sigma(halves(root(self.j, self.roots, e)))
    }

    /// σ of a value's correction at a level.
    fn correction(&self, level: usize, e: usize) -> [u64; 2] {
        let correction = match level {
            // Worker 0 has t = 0 at its root.
            0 => self.key.first.map_or(0, |first| pair(first, e)),
            _ => pair(self.key.others, (level - 1) * self.masked.len() + e),
        };
        sigma(halves(correction))
    }

    /// Goes down to both blocks of these values, which become starts, and adds the line to the
    /// right of them.
    fn walk(&self, values: Range<usize>, out: &mut [W], work: &mut Work<W>) {
        let blocks: Vec<Blocks> = self.masked[values.clone()]
            .iter()
            .map(|&m| self.tree.blocks(split(self.f, m).0).expect("more than one block"))
            .collect();
        let to = |block: fn(&Blocks) -> usize| blocks.iter().map(block).collect::<Vec<usize>>();
        let at = self.go_down(&values, &to(|b| b.at), work);
        let before = match self.tree.parts {
            0 => self.go_down(&values, &to(|b| b.before), work),
            parts => {
                let both = [to(|b| b.before), to(|b| b.far)].concat();
                let mut sums = vec![vec![W::ZERO; both.len()]; parts];
                let mut seeds = self.go_down_paid(&values, &both, &mut sums, work);
                let count = values.len();
                for (i, (e, blocks)) in values.clone().zip(&blocks).enumerate() {
                    let right = [0, 1]
                        .map(|part| sums.get(part).map_or(W::ZERO, |sums| sums[i].sub(sums[count + i])));
                    let mask = (self.j, self.key.mask[e]);
                    let (sum, known) = self.turns.beside(self.masked[e], right, blocks.wraps, mask);
                    out[i] = if self.j == 0 { out[i].add(sum) } else { out[i].sub(sum) }.add(known);
                }
                seeds.truncate(count);
                seeds
            }
        };
        work.starts.extend(before.into_iter().zip(at).flat_map(|(before, at)| [before, at]));
    }

    /// The seeds at a block for each of these values.
    fn go_down(&self, values: &Range<usize>, blocks: &[usize], work: &mut Work<W>) -> Vec<[u64; 2]> {
        let (seeds, above) = (&mut work.seeds, self.tree.above);
        seeds.sigma.clear();
        seeds.sigma.extend(values.clone().map(|e| self.root(e)));
        for depth in 0..above {
            seeds.permute(&self.pi, 0);
            let pairs = seeds.sigma.iter_mut().zip(&seeds.images);
            for ((s, image), (e, block)) in pairs.zip(values.clone().zip(blocks)) {
                let left = xor(sigma(xor(*image, *s)), masked(self.correction(depth, e), t_of(*s)));
                let right = 0u64.wrapping_sub((block >> (above - 1 - depth)) as u64 & 1);
                *s = xor(left, masked(*s, right));
            }
        }
        seeds.sigma.clone()
    }

    /// The seeds at two blocks for each of these values, and all that is paid to the left of the
    /// ways there.
    fn go_down_paid(
        &self,
        values: &Range<usize>,
        blocks: &[usize],
        sums: &mut [Vec<W>],
        work: &mut Work<W>,
    ) -> Vec<[u64; 2]> {
        let (n, width, lanes) = (self.masked.len(), self.f.coefficients(), blocks.len());
        let Work { seeds, children: next, corrections, .. } = work;
        seeds.sigma.clear();
        let each = || values.clone().chain(values.clone());
        seeds.sigma.extend(each().map(|e| self.root(e)));
        for digit in 0..self.tree.digits() {
            for depth in self.tree.levels_of(digit) {
                corrections.clear();
                corrections.extend(each().map(|e| self.correction(depth, e)));
                seeds.permute(&self.pi, 0);
                next.resize(2 * seeds.sigma.len(), [0; 2]);
                children(self.level, seeds, corrections, next);
                std::mem::swap(&mut seeds.sigma, next);
            }
            let own: Vec<usize> = blocks.iter().map(|&block| self.tree.digit(block, digit)).collect();
            let limits: Vec<u64> = own.iter().map(|&own| own as u64).collect();
            let mut counts = vec![0; lanes];
            count(self.level, &seeds.sigma, &limits, &mut counts);
            for (part, sums) in sums.iter_mut().enumerate() {
                if place::<W>(part).1 == 0 {
                    seeds.permute(&self.pi, 1 + place::<W>(part).0);
                }
                add_words(self.level, part, seeds, &limits, sums);
                let word = self.tree.word(width, digit, part) * n;
                for ((sum, &count), e) in sums.iter_mut().zip(&counts).zip(each()) {
                    *sum = sum.add(W::from_u64(count).mul(self.key.values[word + e]));
                }
            }
            for (lane, own) in own.into_iter().enumerate() {
                seeds.sigma[lane] = seeds.sigma[own * lanes + lane];
            }
            seeds.sigma.truncate(lanes);
        }
        seeds.sigma.clone()
    }

    /// Pays for all leaves of some values, the first of which is the `first`th with a start.
    fn expand(&self, values: Range<usize>, first: usize, work: &mut Work<W>) {
        let (f, n, tree) = (self.f, self.masked.len(), &self.tree);
        let (width, segments, each) = (f.coefficients(), 1 << tree.below, 1 + usize::from(tree.above > 0));
        let Work { starts, seeds, children, paid, .. } = work;
        let (roots, leaves) = (each * values.len(), each * segments);
        seeds.sigma.clear();
        seeds.sigma.extend_from_slice(&starts[each * first..][..roots]);
        for depth in 0..tree.below {
            seeds.permute(&self.pi, 0);
            children.resize(roots << (depth + 1), [0; 2]);
            for i in 0..roots {
                let correction = self.correction(tree.above + depth, values.start + i / each);
                let nodes = i << depth..(i + 1) << depth;
                let below = &mut children[2 * nodes.start..2 * nodes.end];
                let (lefts, rights) = below.split_at_mut(nodes.len());
                let (seeds, images) = (&seeds.sigma[nodes.clone()], &seeds.images[nodes]);
                grow(self.level, correction, seeds, images, lefts, rights);
            }
            std::mem::swap(&mut seeds.sigma, children);
        }
        paid.resize(values.len() * width * leaves, W::ZERO);
        for k in 0..width {
            let (block, word) = place::<W>(k);
            if word == 0 {
                seeds.permute(&self.pi, 1 + block);
            }
            for (i, e) in values.clone().enumerate() {
                let (value, own) = (self.key.values[k * n + e], i * leaves..(i + 1) * leaves);
                let paid = &mut paid[(i * width + k) * leaves..][..leaves];
                pay(self.level, value, k, &seeds.sigma[own.clone()], &seeds.images[own], paid);
            }
        }
    }
}

at_every_level! {
    /// The children of one level. Correction and seeds are σ of what they are.
    fn grow<>(correction: [u64; 2], seeds: &[[u64; 2]], images: &[[u64; 2]], lefts: &mut [[u64; 2]], rights: &mut [[u64; 2]]) {
        let n = seeds.len();
        let (images, lefts, rights) = (&images[..n], &mut lefts[..n], &mut rights[..n]);
        for i in 0..n {
            lefts[i] = xor(sigma(xor(images[i], seeds[i])), masked(correction, t_of(seeds[i])));
            rights[i] = xor(lefts[i], seeds[i]);
        }
    }
}

at_every_level! {
    /// Word k of Conv(s) + t·V of leaves.
    fn pay<W: Word>(value: W, k: usize, seeds: &[[u64; 2]], images: &[[u64; 2]], paid: &mut [W]) {
        let n = paid.len();
        let (seeds, images, (half, shift)) = (&seeds[..n], &images[..n], within::<W>(k));
        for i in 0..n {
            let word = W::from_u64((seeds[i][half] ^ images[i][half]) >> shift);
            paid[i] = word.add(and(value, W::from_u64(t_of(seeds[i]))));
        }
    }
}

at_every_level! {
    /// Σ_i Σ_{k ≤ i} (i over k)·m_l^{i−k} Σ_q c_i(m_h − q)·β_k(q).
    fn weighted<W: Word>(paid: &[W], turns: &Turns<W>, high: usize, low: W) -> W {
        let width = turns.pieces.len() / turns.places;
        let leaves = paid.len() / width;
        let mut sum = W::ZERO;
        for (i, choose) in CHOOSE.iter().enumerate().take(width) {
            let c = turns.of(i, high);
            for (k, &choose) in choose[..=i].iter().enumerate() {
                let products = c.iter().zip(&paid[k * leaves..][..leaves]);
                let product = products.fold(W::ZERO, |sum, (c, paid)| sum.add(c.mul(*paid)));
                sum = sum.add(product.mul(W::from_u64(choose)).mul(power(low, i - k)));
            }
        }
        sum
    }
}
