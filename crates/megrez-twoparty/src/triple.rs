//! ANDs under a common factor: x∧y_1, …, x∧y_c for shared bits, from one random OT in each
//! direction.
//!
//! Beaver's triple, made by OT: party p chooses a_p at random, and the peer's two pads differ by
//! what becomes its share b_(1−p) of c random bits. Each side's pad is its share of a_p ∧ b_(1−p),
//! so the parties hold a, b and a∧b without another message. Online they open x ⊕ a and y_i ⊕ b_i,
//! which are uniform.
//!
//! rounds  bits per bundle, each direction
//! 1       127/128 · 128/k   corrections of the OT; sent with whatever else is sent then (none, if
//!                           transfers are silent)
//! 1       1 + c             openings
//!
//! Security: `docs/security/secfloat.md`.

use crate::cost::Cost;
use crate::link::Sirnn;
use crate::ot::{Code, Transfers};
use crate::share::Bits;
use crate::wire::{Reader, Writer};
use megrez_kernels::Device;
use megrez_net::Payload;
use megrez_ring::bits;
use megrez_session::Error;

/// Companions of a bundle: `lanes` bundles with `width` companions each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct AndShape {
    pub lanes: usize,
    pub width: usize,
}

/// Random bits a, b_1 … b_c and a∧b_1 … a∧b_c, shared.
pub(crate) struct Triple {
    a: Bits,
    b: Vec<Bits>,
    ab: Vec<Bits>,
}

/// What a party keeps of triples whose corrections are on the way.
pub(crate) struct Sown {
    choices: Vec<u64>,
    blocks: Vec<u128>,
}

/// x and its companions.
pub(crate) struct Bundle<'a> {
    pub x: &'a Bits,
    pub y: Vec<&'a Bits>,
}

/// The most companions of a bundle: each takes one bit of an OT's pad.
const MOST: usize = 128;

fn total(shapes: &[AndShape]) -> usize {
    shapes.iter().map(|s| s.lanes).sum()
}

/// Bytes of the corrections, each direction.
pub(crate) fn triple_bytes(transfers: Transfers, shapes: &[AndShape]) -> usize {
    transfers.random_bytes(total(shapes))
}

/// What ANDs of these shapes cost.
pub(crate) fn cost(transfers: Transfers, shapes: &[AndShape]) -> Cost {
    let bytes = triple_bytes(transfers, shapes) + opening_bytes(shapes);
    let rounds = u32::from(total(shapes) > 0);
    let corrections = if transfers == Transfers::Silent { 0 } else { rounds };
    Cost::new([bytes; 2], rounds + corrections).choosing([total(shapes); 2])
}

/// What ANDs of these shapes cost whose triples are there.
pub(crate) fn opening_cost(shapes: &[AndShape]) -> Cost {
    Cost::new([opening_bytes(shapes); 2], u32::from(total(shapes) > 0))
}

/// Bytes of the openings, each direction.
pub(crate) fn opening_bytes(shapes: &[AndShape]) -> usize {
    bits::bytes(shapes.iter().map(|s| s.lanes * (1 + s.width)).sum())
}

impl<D: Device> Sirnn<D> {
    /// Bytes of the corrections, each direction.
    pub(crate) fn triple_bytes(&self, shapes: &[AndShape]) -> usize {
        if total(shapes) == 0 { 0 } else { self.ot.transfers.random_bytes(total(shapes)) }
    }

    /// The corrections for triples of these shapes, appended to `out`.
    pub(crate) fn sow(&mut self, shapes: &[AndShape], out: &mut Vec<u8>) -> Result<Sown, Error> {
        if let Some(shape) = shapes.iter().find(|shape| shape.width > MOST) {
            // Their pads would be the first ones again.
            return self.party().refuse(format!(
                "a bit is multiplied by {} others at once, and a transfer has pads for {MOST}: take it in parts",
                shape.width
            ));
        }
        if total(shapes) == 0 {
            return Ok(Sown { choices: vec![], blocks: vec![] });
        }
        let (corrections, choices, blocks) = self.ot.receiver.extend_random(total(shapes));
        out.extend_from_slice(&corrections);
        Ok(Sown { choices, blocks })
    }

    /// The triples, once the peer's corrections are there.
    pub(crate) fn reap(&mut self, shapes: &[AndShape], sown: Sown, corrections: &[u8]) -> Vec<Triple> {
        let n = total(shapes);
        if n == 0 {
            return shapes.iter().map(|s| Triple::empty(s.width)).collect();
        }
        let mut chosen = sown.blocks;
        let (received, sent) = (self.ot.next_received(n), self.ot.next_sent(n));
        let mut low = self.ot.sender.extend_random(n, corrections);
        let delta = self.ot.sender.offsets(Code::new(1))[1];
        let mut high: Vec<u128> = low.iter().map(|q| q ^ delta).collect();
        self.ot.hash.apply(&mut chosen, |i| u128::from(received + i as u64) << 8);
        self.ot.hash.apply(&mut low, |i| u128::from(sent + i as u64) << 8);
        self.ot.hash.apply(&mut high, |i| u128::from(sent + i as u64) << 8);
        let mut choices = Reader::new(&sown.choices);
        let mut first = 0;
        let mut triples = Vec::with_capacity(shapes.len());
        for &AndShape { lanes, width } in shapes {
            let a = Bits { n: lanes, w: choices.take(lanes) };
            let (low, high, chosen) = (&low[first..], &high[first..], &chosen[first..]);
            let plane = |i: usize, f: &dyn Fn(usize) -> u128| Bits::pack(lanes, |j| (f(j) >> i) as u64);
            let b: Vec<Bits> = (0..width).map(|i| plane(i, &|j| low[j] ^ high[j])).collect();
            let ab = (0..width).map(|i| and(&a, &b[i]).xor(&plane(i, &|j| low[j] ^ chosen[j]))).collect();
            first += lanes;
            triples.push(Triple { a, b, ab });
        }
        triples
    }

    /// x∧y_i for every bundle: one round.
    pub(crate) fn and_with(
        &mut self,
        bundles: &[Bundle<'_>],
        triples: Vec<Triple>,
    ) -> Result<Vec<Vec<Bits>>, Error> {
        let size: usize = bundles.iter().map(|b| b.x.n * (1 + b.y.len())).sum();
        let mut mine = Writer::with_capacity(size);
        for (bundle, triple) in bundles.iter().zip(&triples) {
            mine.append(&bundle.x.xor(&triple.a).w, bundle.x.n);
            for (y, b) in bundle.y.iter().zip(&triple.b) {
                mine.append(&y.xor(b).w, y.n);
            }
        }
        let mine = mine.into_words();
        let theirs = self.exchange(
            Payload::from_bytes(&bytemuck::cast_slice(&mine)[..bits::bytes(size)]),
            bits::bytes(size),
        )?;
        let opened: Vec<u64> = mine.iter().zip(theirs.words()).map(|(m, t)| m ^ t).collect();
        let mut opened = Reader::new(&opened);
        let first = self.me() == 0;
        let mut results = Vec::with_capacity(bundles.len());
        for (bundle, triple) in bundles.iter().zip(triples) {
            let n = bundle.x.n;
            let d = Bits { n, w: opened.take(n) };
            let one = |(b, ab): (&Bits, Bits)| {
                let e = Bits { n, w: opened.take(n) };
                // xy = ab ⊕ d·b ⊕ e·a ⊕ d·e, the last at party 0.
                let z = ab.xor(&and(&d, b)).xor(&and(&e, &triple.a));
                if first { z.xor(&and(&d, &e)) } else { z }
            };
            results.push(triple.b.iter().zip(triple.ab).map(one).collect());
        }
        Ok(results)
    }

    /// x∧y_i for every bundle, from nothing: two rounds.
    pub(crate) fn and_bundles(&mut self, bundles: &[Bundle<'_>]) -> Result<Vec<Vec<Bits>>, Error> {
        let shapes: Vec<AndShape> = bundles.iter().map(Bundle::shape).collect();
        if total(&shapes) == 0 {
            return Ok(bundles.iter().map(|b| b.y.iter().map(|y| (*y).clone()).collect()).collect());
        }
        self.reserve(total(&shapes), total(&shapes))?;
        let mut out = vec![];
        let sown = self.sow(&shapes, &mut out)?;
        let corrections = self.exchange(Payload::from_bytes(&out), self.triple_bytes(&shapes))?;
        let triples = self.reap(&shapes, sown, corrections.as_bytes());
        self.and_with(bundles, triples)
    }
}

impl Bundle<'_> {
    pub(crate) fn shape(&self) -> AndShape {
        AndShape { lanes: self.x.n, width: self.y.len() }
    }
}

impl Triple {
    fn empty(width: usize) -> Self {
        let none = || Bits { n: 0, w: vec![] };
        Self { a: none(), b: (0..width).map(|_| none()).collect(), ab: (0..width).map(|_| none()).collect() }
    }
}

/// a ∧ b of two plain vectors.
fn and(a: &Bits, b: &Bits) -> Bits {
    Bits { n: a.n, w: a.w.iter().zip(&b.w).map(|(a, b)| a & b).collect() }
}
