//! Carries: whether the low c bits of the two shares of an integer overflow, and whether those bits
//! of the integer are all zero. Everything that compares, cuts or widens is made of this. SIRNN's
//! millionaires' protocol (CrypTFlow2, Alg. 1) and SECFLOAT's Wrap&All0s (App. G2).
//!
//! For each lane one party, the sender, holds v, the other u. u + v ≥ 2^c exactly if u > ¬v on c
//! bits. Digit by digit (up to four bits) the sender offers, for each value that u's digit may
//! have, whether it is greater than and whether it is equal to its own, under a 1-of-2^b OT; then
//! digits are joined in pairs, higher above lower: gt = gt_hi ⊕ eq_hi∧gt_lo, eq = eq_hi∧eq_lo, two
//! ANDs under a common factor ([`triple`](crate::triple)). Several cuts of one integer share digits
//! and joins.
//!
//! Deviates from SECFLOAT: zero and wrap come from one comparison with −v, without its two further
//! ANDs or its further bit: u = −v says zero; gt ⊕ eq says u ≥ −v, which is the wrap unless v = 0,
//! where it is 1 and the sender, who knows v, flips its share. The first entry of an OT's table is
//! not sent: the sender takes its pad for its mask. The first half of the lanes has party 0 as
//! sender, the rest party 1, so that both work alike.
//!
//! rounds      bits per lane, both directions together
//! 1           Σ digits (128/k)(2 − 2^(1−b)) + Σ joins 2·(127/128)·128/k
//! 1           Σ digits (2^b − 1)·(gt + eq)      a digit's gt, eq count if wanted
//! ⌈log2 digits⌉  Σ joins 2·(1 + gt + eq)
//!
//! Security: `docs/security/secfloat.md`.

use crate::cost::Cost;
use crate::link::Sirnn;
use crate::ot::{Code, MAX_CHOICE, Transfers};
use crate::share::Bits;
use crate::triple::{AndShape, Bundle, Triple, opening_bytes, triple_bytes};
use crate::wire::{Reader, Writer};
use megrez_float::blocks::mask;
use megrez_kernels::Device;
use megrez_net::Payload;
use megrez_ring::bits;
use megrez_session::Error;
use std::collections::BTreeMap;

/// What is asked at each cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ask {
    Wrap,
    Zero,
    Both,
}

/// One integer: its shares, and what is asked at which cuts (positions above 0, rising).
pub(crate) struct Carry<'a> {
    pub v: &'a [u64],
    pub cuts: Vec<(u32, Ask)>,
}

/// Whether the sender compares with −v, so that equality says zero, and not with ¬v.
fn is_exact(cuts: &[(u32, Ask)]) -> bool {
    cuts.iter().any(|c| c.1 != Ask::Wrap)
}

/// The answer at one cut.
#[derive(Clone)]
pub(crate) struct Answer {
    pub wrap: Option<Bits>,
    pub zero: Option<Bits>,
}

/// A digit, or two neighbouring ranges of digits joined.
#[derive(Clone, Copy, Debug)]
enum Node {
    Digit { at: u32, bits: u32 },
    Join { high: usize, low: usize, level: usize },
}

/// The digits and joins of one integer: public.
pub(crate) struct Layout {
    nodes: Vec<Node>,
    /// (gt, eq): what is wanted of each node.
    wanted: Vec<(bool, bool)>,
    roots: Vec<usize>,
    /// Levels of joins.
    pub levels: usize,
}

impl Layout {
    pub fn new(cuts: &[(u32, Ask)]) -> Self {
        let mut nodes = vec![];
        let mut ends = vec![];
        let mut at = 0;
        for &(cut, _) in cuts {
            while at < cut {
                let bits = MAX_CHOICE.min(cut - at);
                nodes.push(Node::Digit { at, bits });
                at += bits;
            }
            ends.push(nodes.len());
        }
        let mut made = BTreeMap::new();
        let roots: Vec<usize> = ends.iter().map(|&end| join(&mut nodes, &mut made, 0, end)).collect();
        let mut wanted = vec![(false, false); nodes.len()];
        for (&root, &(_, ask)) in roots.iter().zip(cuts) {
            wanted[root].0 |= ask != Ask::Zero;
            wanted[root].1 |= is_exact(cuts);
        }
        for i in (0..nodes.len()).rev() {
            if let Node::Join { high, low, .. } = nodes[i] {
                let (gt, eq) = wanted[i];
                wanted[high] = (wanted[high].0 | gt, true);
                wanted[low] = (wanted[low].0 | gt, wanted[low].1 | eq);
            }
        }
        let levels = nodes.iter().map(|n| if let Node::Join { level, .. } = n { *level } else { 0 }).max();
        Self { nodes, wanted, roots, levels: levels.unwrap_or(0) }
    }

    /// (node, at, gt, eq) of the digits of `width` bits.
    fn digits(&self, width: u32) -> impl Iterator<Item = (usize, u32, bool, bool)> {
        self.nodes.iter().zip(&self.wanted).enumerate().filter_map(
            move |(i, (node, &(gt, eq)))| match *node {
                Node::Digit { at, bits } if bits == width => Some((i, at, gt, eq)),
                _ => None,
            },
        )
    }

    /// (node, high, low) of the joins of a level, from 1 on.
    fn joins(&self, of: usize) -> impl Iterator<Item = (usize, usize, usize)> {
        self.nodes.iter().enumerate().filter_map(move |(i, node)| match *node {
            Node::Join { high, low, level } if level == of => Some((i, high, low)),
            _ => None,
        })
    }

    /// Shapes of the joins of a level.
    fn shapes(&self, level: usize, lanes: usize) -> impl Iterator<Item = AndShape> {
        self.joins(level).map(move |(i, ..)| AndShape {
            lanes,
            width: usize::from(self.wanted[i].0) + usize::from(self.wanted[i].1),
        })
    }
}

/// The node of digits `from` … `to` − 1. The higher part begins at a power of two of digits, so
/// that ranges recur.
fn join(nodes: &mut Vec<Node>, made: &mut BTreeMap<(usize, usize), usize>, from: usize, to: usize) -> usize {
    if to - from == 1 {
        return from;
    }
    if let Some(&node) = made.get(&(from, to)) {
        return node;
    }
    let middle = from + (1 << (to - from - 1).ilog2());
    let (low, high) = (join(nodes, made, from, middle), join(nodes, made, middle, to));
    let level = |i: usize| if let Node::Join { level, .. } = nodes[i] { level } else { 0 };
    let level = 1 + level(low).max(level(high));
    nodes.push(Node::Join { high, low, level });
    made.insert((from, to), nodes.len() - 1);
    nodes.len() - 1
}

/// How many of `lanes` have party 0 as sender: whole words, so that parts can be put together.
pub(crate) const fn first_half(lanes: usize) -> usize {
    lanes / 128 * 64
}

/// The lanes in which party `sender` sends.
pub(crate) fn lanes_from(sender: usize, lanes: usize) -> std::ops::Range<usize> {
    if sender == 0 { 0..first_half(lanes) } else { first_half(lanes)..lanes }
}

/// The triples' shapes, level by level; single ANDs are on the first level.
fn all_shapes(layouts: &[(Layout, usize)], ands: &[usize]) -> Vec<Vec<AndShape>> {
    let levels = layouts.iter().map(|(l, _)| l.levels).max().unwrap_or(0).max(usize::from(!ands.is_empty()));
    (1..=levels)
        .map(|level| {
            let joins = layouts.iter().flat_map(|(layout, lanes)| layout.shapes(level, *lanes));
            let ands = ands.iter().filter(|_| level == 1).map(|&lanes| AndShape { lanes, width: 1 });
            joins.chain(ands).collect()
        })
        .collect()
}

/// OTs of b bits that party `sender` sends, and the bits of their tables.
fn tables(layouts: &[(Layout, usize)], b: u32, sender: usize) -> (usize, usize) {
    let mut totals = (0, 0);
    for (layout, lanes) in layouts {
        let n = lanes_from(sender, *lanes).len();
        for (_, _, gt, eq) in layout.digits(b) {
            totals.0 += n;
            totals.1 += n * ((1 << b) - 1) * (usize::from(gt) + usize::from(eq));
        }
    }
    totals
}

/// OTs of one choice bit that digits and triples take in which party `sender` sends.
fn taken(layouts: &[(Layout, usize)], triples: &[AndShape], sender: usize) -> usize {
    let digits: usize = (1..=MAX_CHOICE).map(|b| b as usize * tables(layouts, b, sender).0).sum();
    digits + triples.iter().map(|shape| shape.lanes).sum::<usize>()
}

/// A node's gt and eq.
type Value = (Option<Bits>, Option<Bits>);

impl<D: Device> Sirnn<D> {
    /// The carries of every job, and besides them x∧y for every pair, and triples of the shapes
    /// that are wanted `later`.
    pub(crate) fn carries(
        &mut self,
        jobs: &[Carry<'_>],
        ands: &[(&Bits, &Bits)],
        later: &[AndShape],
    ) -> Result<(Vec<Vec<Answer>>, Vec<Bits>, Vec<Triple>), Error> {
        let layouts: Vec<(Layout, usize)> = jobs.iter().map(|j| (Layout::new(&j.cuts), j.v.len())).collect();
        let and_lanes: Vec<usize> = ands.iter().map(|(x, _)| x.n).collect();
        let shapes = all_shapes(&layouts, &and_lanes);
        let flat = [shapes.concat(), later.to_vec()].concat();
        let (me, peer) = (self.me(), 1 - self.me());
        self.reserve(taken(&layouts, &flat, peer), taken(&layouts, &flat, me))?;

        // Corrections: what the digits of this party's shares choose where it receives, and the
        // triples'.
        let mut out = vec![];
        let mut chosen = vec![];
        for b in 1..=MAX_CHOICE {
            let (n, _) = tables(&layouts, b, peer);
            let planes = self.planes(jobs, &layouts, b);
            let (corrections, blocks) = self.ot.receiver.extend(Code::new(b), &planes, n);
            let number = self.ot.next_received(n);
            out.extend_from_slice(&corrections);
            chosen.push((planes, blocks, number));
        }
        let sown = self.sow(&flat, &mut out)?;
        let sizes: Vec<usize> = (1..=MAX_CHOICE)
            .map(|b| self.ot.transfers.correction_bytes(Code::new(b), tables(&layouts, b, me).0))
            .collect();
        let digits: usize = sizes.iter().sum();
        let corrections = self.exchange(Payload::from_bytes(&out), digits + self.triple_bytes(&flat))?;
        let (mut rest, for_triples) = corrections.as_bytes().split_at(digits);

        // Tables, where this party sends.
        let table_bits = |sender| (1..=MAX_CHOICE).map(|b| tables(&layouts, b, sender).1).sum::<usize>();
        let mut writer = Writer::with_capacity(table_bits(me));
        let mut sent = vec![];
        for b in 1..=MAX_CHOICE {
            let n = tables(&layouts, b, me).0;
            let (these, others) = rest.split_at(sizes[b as usize - 1]);
            rest = others;
            let blocks = self.ot.sender.extend(Code::new(b), n, these);
            sent.push(self.offer(jobs, &layouts, b, &blocks, &mut writer));
        }
        let triples = self.reap(&flat, sown, for_triples);
        let received = self.exchange(writer.into_payload(), bits::bytes(table_bits(peer)))?;
        let mut reader = Reader::new(received.words());

        // The digits' values: both parts of the lanes together.
        let mut values: Vec<Vec<Value>> =
            layouts.iter().map(|(layout, _)| vec![(None, None); layout.nodes.len()]).collect();
        for (b, ((planes, blocks, number), sent)) in (1..=MAX_CHOICE).zip(chosen.into_iter().zip(sent)) {
            let mut mine = blocks;
            self.ot.hash.apply(&mut mine, |i| u128::from(number + i as u64) << 8);
            let mut first = 0;
            let mut sent = sent.into_iter();
            for ((layout, lanes), values) in layouts.iter().zip(&mut values) {
                let n = lanes_from(peer, *lanes).len();
                for (node, _, gt, eq) in layout.digits(b) {
                    let theirs = sent.next().expect("as many as digits");
                    let choose =
                        |j: usize| planes.iter().rev().fold(0, |c, p| c << 1 | bits::get(p, first + j));
                    let mine = take(&mut reader, &mine[first..][..n], choose, b, [gt, eq]);
                    first += n;
                    let [gt, eq] = std::array::from_fn(|i| {
                        let parts = if me == 0 { [&theirs[i], &mine[i]] } else { [&mine[i], &theirs[i]] };
                        [gt, eq][i].then(|| Bits { n: *lanes, w: parts.map(|p| p.as_slice()).concat() })
                    });
                    values[node] = (gt, eq);
                }
            }
        }

        // Joins, level by level.
        let mut triples = triples.into_iter();
        let mut products = vec![];
        for (level, shapes) in (1..).zip(&shapes) {
            let mut bundles = vec![];
            for ((layout, _), values) in layouts.iter().zip(&values) {
                for (i, high, low) in layout.joins(level) {
                    let (gt, eq) = layout.wanted[i];
                    let y = [values[low].0.as_ref().filter(|_| gt), values[low].1.as_ref().filter(|_| eq)];
                    let x = values[high].1.as_ref().expect("wanted of what is above");
                    bundles.push(Bundle { x, y: y.into_iter().flatten().collect() });
                }
            }
            if level == 1 {
                bundles.extend(ands.iter().map(|&(x, y)| Bundle { x, y: vec![y] }));
            }
            let these = triples.by_ref().take(shapes.len()).collect();
            let mut joined = self.and_with(&bundles, these)?.into_iter();
            for ((layout, _), values) in layouts.iter().zip(&mut values) {
                for (i, high, _) in layout.joins(level) {
                    let (gt, eq) = layout.wanted[i];
                    let mut products = joined.next().expect("one for each join").into_iter();
                    let gt = gt
                        .then(|| values[high].0.as_ref().expect("wanted").xor(&products.next().expect("gt")));
                    values[i] = (gt, eq.then(|| products.next().expect("eq")));
                }
            }
            products.extend(joined.map(|mut product| product.pop().expect("one companion")));
        }

        let answers = jobs.iter().zip(&layouts).zip(values).map(|((job, (layout, _)), values)| {
            let answer = |(&root, &cut): (&usize, &(u32, Ask))| self.answer(job, cut, values[root].clone());
            layout.roots.iter().zip(&job.cuts).map(answer).collect()
        });
        Ok((answers.collect(), products, triples.collect()))
    }

    /// Bit planes of the digits of b bits of this party's shares, in the lanes in which it
    /// receives.
    fn planes(&self, jobs: &[Carry<'_>], layouts: &[(Layout, usize)], b: u32) -> Vec<Vec<u64>> {
        let peer = 1 - self.me();
        let mut planes: Vec<Writer> = (0..b).map(|_| Writer::default()).collect();
        for (job, (layout, lanes)) in jobs.iter().zip(layouts) {
            let v = &job.v[lanes_from(peer, *lanes)];
            for (_, at, ..) in layout.digits(b) {
                for chunk in v.chunks(64) {
                    for (i, plane) in planes.iter_mut().enumerate() {
                        let word = chunk.iter().rev().fold(0, |w, x| w << 1 | x >> (at as usize + i) & 1);
                        plane.push(word, chunk.len() as u32);
                    }
                }
            }
        }
        planes.into_iter().map(Writer::into_words).collect()
    }

    /// Writes the tables of all digits of b bits; returns this party's shares of \[gt, eq\] of each
    /// digit.
    fn offer(
        &mut self,
        jobs: &[Carry<'_>],
        layouts: &[(Layout, usize)],
        b: u32,
        blocks: &[u128],
        writer: &mut Writer,
    ) -> Vec<[Vec<u64>; 2]> {
        let me = self.me();
        let offsets = self.ot.sender.offsets(Code::new(b));
        let number = self.ot.next_sent(blocks.len());
        let entries = 1usize << b;
        let all = mask(entries as u32);
        let mut pads = vec![];
        let mut first = 0;
        let mut shares = vec![];
        for (job, (layout, lanes)) in jobs.iter().zip(layouts) {
            let v = &job.v[lanes_from(me, *lanes)];
            let exact = is_exact(&job.cuts);
            for (_, at, gt, eq) in layout.digits(b) {
                let mut share = [Writer::with_capacity(v.len()), Writer::with_capacity(v.len())];
                for chunk in v.chunks(64) {
                    pads.clear();
                    pads.extend(
                        blocks[first..][..chunk.len()]
                            .iter()
                            .flat_map(|q| offsets.iter().map(move |o| q ^ o)),
                    );
                    self.ot.hash.apply(&mut pads, |i| u128::from(number + (first + i / entries) as u64) << 8);
                    first += chunk.len();
                    let mut own = [0u64; 2];
                    for (lane, (pads, v)) in pads.chunks(entries).zip(chunk).enumerate() {
                        let below = if exact { v.wrapping_neg() } else { !v };
                        let digit = below >> at & mask(b);
                        let pad = |i: u32| pads.iter().rev().fold(0, |p, h| p << 1 | (h >> i) as u64 & 1);
                        // Entry x is bit x. The first one becomes zero: its pad is the mask of all.
                        let mut put = |i: usize, table: u64| {
                            let masked = pad(i as u32) ^ table;
                            let r = masked & 1;
                            own[i] |= r << lane;
                            writer.push((masked ^ r.wrapping_neg() & all) >> 1, entries as u32 - 1);
                        };
                        if gt {
                            put(0, all << digit << 1 & all);
                        }
                        if eq {
                            put(1, 1 << digit);
                        }
                    }
                    share.iter_mut().zip(own).for_each(|(s, own)| s.push(own, chunk.len() as u32));
                }
                shares.push(share.map(Writer::into_words));
            }
        }
        shares
    }

    /// Turns gt and eq at a root into the answer.
    fn answer(&self, job: &Carry<'_>, (cut, ask): (u32, Ask), (gt, eq): Value) -> Answer {
        let wrap = gt.filter(|_| ask != Ask::Zero).map(|gt| {
            let Some(eq) = eq.as_ref().filter(|_| is_exact(&job.cuts)) else { return gt };
            let mine = lanes_from(self.me(), job.v.len());
            let zero = |lane: usize| u64::from(mine.contains(&lane) && job.v[lane] & mask(cut) == 0);
            gt.xor(eq).xor(&Bits::pack(job.v.len(), zero))
        });
        Answer { wrap, zero: eq.filter(|_| ask != Ask::Wrap) }
    }
}

/// What [`Sirnn::carries`] costs for integers of (cuts, lanes), ANDs of so many lanes, and triples
/// for later.
pub(crate) fn cost(
    transfers: Transfers,
    jobs: &[(Vec<(u32, Ask)>, usize)],
    ands: &[usize],
    later: &[AndShape],
) -> Cost {
    let layouts: Vec<(Layout, usize)> = jobs.iter().map(|(c, n)| (Layout::new(c), *n)).collect();
    let shapes = all_shapes(&layouts, ands);
    let flat = [shapes.concat(), later.to_vec()].concat();
    let bytes = |party: usize| {
        let corrections = |b| transfers.correction_bytes(Code::new(b), tables(&layouts, b, 1 - party).0);
        let digits: usize = (1..=MAX_CHOICE).map(corrections).sum();
        let tables = bits::bytes((1..=MAX_CHOICE).map(|b| tables(&layouts, b, party).1).sum());
        let openings: usize = shapes.iter().map(|level| opening_bytes(level)).sum();
        digits + tables + triple_bytes(transfers, &flat) + openings
    };
    let digits = jobs.iter().any(|j| j.1 > 0 && !j.0.is_empty());
    let sown = digits
        || transfers != Transfers::Silent
            && (ands.iter().any(|&lanes| lanes > 0) || later.iter().any(|s| s.lanes > 0));
    let joins = if digits || !ands.is_empty() { shapes.len() as u32 } else { 0 };
    Cost::new([bytes(0), bytes(1)], u32::from(sown) + u32::from(digits) + joins)
        .choosing([1, 0].map(|sender| taken(&layouts, &flat, sender)))
}

/// This party's shares of \[gt, eq\] of a digit in the lanes in which it receives.
fn take(
    reader: &mut Reader<'_>,
    pads: &[u128],
    choice: impl Fn(usize) -> u64,
    b: u32,
    wanted: [bool; 2],
) -> [Vec<u64>; 2] {
    let width = (1u32 << b) - 1;
    let mut shares = [Writer::default(), Writer::default()];
    for (chunk, pads) in pads.chunks(64).enumerate() {
        let mut own = [0u64; 2];
        for (lane, pad) in pads.iter().enumerate() {
            let c = choice(chunk * 64 + lane);
            for i in (0..2).filter(|&i| wanted[i]) {
                let entry = reader.next(width) << 1 >> c & 1;
                own[i] |= (entry ^ (pad >> i) as u64 & 1) << lane;
            }
        }
        shares.iter_mut().zip(own).for_each(|(s, own)| s.push(own, pads.len() as u32));
    }
    shares.map(Writer::into_words)
}
