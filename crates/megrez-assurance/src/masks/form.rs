//! What a buffer is on symbols: runs of elements, each the same linear form in drawn labels, plus a
//! rest that is any function of the labels and secrets on which it is said to depend.
//!
//! An element of a run is `Σ coeff · label + rest`, over Z_2^ℓ, GF(2) or F_p as the buffer's unit
//! says. Labels are addressed by draw and bit: bits of a draw are one apart, words and field
//! elements 64.

use super::deps::Deps;
use megrez_ring::{Prime, bits};
use std::marker::PhantomData;
use std::sync::Arc;

/// What the elements of a buffer are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Unit {
    /// 64-bit words of a stream, before it is seen what they are taken for.
    Raw,
    /// Ring elements.
    Word,
    /// Packed bits.
    Bit,
    /// The low bits of ring elements, densely packed.
    Low(u32),
    /// Packed elements of F_p.
    Field(Prime),
}

/// Which label element `i` of a run takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Map {
    /// Label i.
    Each,
    /// Label ⌊i / g⌋: groups of g elements share one.
    Group(u32),
    /// One of the labels i·g … i·g + g − 1, at a place that depends on a value.
    Pick(u32),
    /// Some of the labels: no mask, but a use of them.
    Some,
}

/// A label in a form.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Term {
    pub draw: u32,
    /// Bit address of the first element's label.
    pub start: u64,
    /// Bits between the labels of neighbours.
    pub stride: u32,
    pub map: Map,
    pub coeff: u64,
}

impl Term {
    /// The same labels under the elements from `skip` on.
    fn from(&self, skip: usize) -> Term {
        let labels = match self.map {
            Map::Each => skip as u64,
            Map::Group(g) if skip.is_multiple_of(g as usize) => skip as u64 / u64::from(g),
            Map::Pick(g) => skip as u64 * u64::from(g),
            Map::Group(_) | Map::Some => return Term { map: Map::Some, ..self.clone() },
        };
        Term { start: self.start + labels * u64::from(self.stride), ..self.clone() }
    }

    /// Bit addresses of the labels of `len` elements: from, to.
    pub fn range(&self, len: usize) -> (u64, u64) {
        let labels = match self.map {
            Map::Each => len as u64,
            Map::Group(g) => (len as u64).div_ceil(u64::from(g)),
            Map::Pick(g) => len as u64 * u64::from(g),
            Map::Some => return (0, u64::MAX),
        };
        (self.start, self.start + labels * u64::from(self.stride))
    }

    fn same_label(&self, other: &Term) -> bool {
        (self.draw, self.start, self.stride, self.map) == (other.draw, other.start, other.stride, other.map)
    }
}

/// Elements of one form.
#[derive(Clone)]
pub(super) struct Run {
    pub len: usize,
    pub terms: Vec<Term>,
    pub deps: Deps,
}

impl Run {
    pub fn zero(len: usize) -> Run {
        Run { len, terms: vec![], deps: Deps::default() }
    }

    /// Whether another run is what comes next of the same labels.
    pub fn goes_on_in(&self, next: &Run) -> bool {
        self.terms.len() == next.terms.len()
            && self.terms.iter().zip(&next.terms).all(|(t, n)| t.map == Map::Each && t.from(self.len) == *n)
            && self.deps.same(&next.deps)
    }

    fn add(&mut self, coeff: u64, other: &Run, mask: u64) {
        for term in &other.terms {
            let coeff = coeff.wrapping_mul(term.coeff) & mask;
            match self.terms.iter_mut().find(|t| t.same_label(term)) {
                Some(mine) => mine.coeff = mine.coeff.wrapping_add(coeff) & mask,
                None => self.terms.push(Term { coeff, ..term.clone() }),
            }
        }
        self.terms.retain(|t| t.coeff != 0);
        self.deps = self.deps.union(&other.deps);
    }
}

/// A buffer without its element type.
#[derive(Clone)]
pub(super) struct Rows {
    pub unit: Unit,
    pub runs: Vec<Run>,
}

impl Rows {
    pub fn new(unit: Unit, runs: Vec<Run>) -> Rows {
        Rows { unit, runs }
    }

    pub fn len(&self) -> usize {
        self.runs.iter().map(|run| run.len).sum()
    }

    /// Words of the host that such a buffer of 64-bit words has, or elements of one of ring
    /// elements.
    pub fn host_len(&self) -> usize {
        let n = self.len();
        match self.unit {
            Unit::Raw | Unit::Word => n,
            Unit::Bit => bits::words(n),
            Unit::Low(width) => bits::words(n * width as usize),
            Unit::Field(prime) => prime.words(n),
        }
    }

    /// The buffer as `n` ring elements; `None` if it is something else.
    pub fn words(&self, n: usize) -> Option<Rows> {
        match self.unit {
            Unit::Word | Unit::Raw => Some(Rows::new(Unit::Word, self.cut(0, n))),
            _ => None,
        }
    }

    /// The buffer as `n` bits; `None` if it is something else.
    pub fn bits(&self, n: usize) -> Option<Rows> {
        let runs = match self.unit {
            Unit::Bit | Unit::Low(1) => self.cut(0, n),
            Unit::Raw => {
                let spread = |run: &Run| Run {
                    len: run.len * 64,
                    terms: run.terms.iter().map(|t| Term { stride: 1, ..t.clone() }).collect(),
                    deps: run.deps.clone(),
                };
                Rows::new(Unit::Bit, self.runs.iter().map(spread).collect()).cut(0, n)
            }
            _ => return None,
        };
        Some(Rows::new(Unit::Bit, runs))
    }

    /// Elements from `start` on, `len` of them; zeros past the end.
    pub fn cut(&self, start: usize, len: usize) -> Vec<Run> {
        let (mut runs, mut at, mut filled) = (vec![], 0, 0);
        for run in &self.runs {
            let (from, to) = (start.max(at), (start + len).min(at + run.len));
            if from < to {
                let terms = run.terms.iter().map(|t| t.from(from - at)).collect();
                runs.push(Run { len: to - from, terms, deps: run.deps.clone() });
                filled += to - from;
            }
            at += run.len;
        }
        if filled < len {
            runs.push(Run::zero(len - filled));
        }
        runs
    }

    /// The buffer in parts of `len` elements, one pass over all; the last is filled with zeros.
    pub fn parts(&self, len: usize) -> Vec<Vec<Run>> {
        let mut parts = vec![];
        let (mut part, mut room) = (vec![], len);
        for run in &self.runs {
            let mut skip = 0;
            while skip < run.len {
                let take = room.min(run.len - skip);
                let terms = run.terms.iter().map(|t| t.from(skip)).collect();
                part.push(Run { len: take, terms, deps: run.deps.clone() });
                (skip, room) = (skip + take, room - take);
                if room == 0 {
                    parts.push(std::mem::take(&mut part));
                    room = len;
                }
            }
        }
        if room < len {
            part.push(Run::zero(room));
            parts.push(part);
        }
        parts
    }

    /// Σ coeff · x of buffers of `n` elements; `mask` is 2^ℓ − 1.
    pub fn sum(unit: Unit, inputs: &[(u64, &Rows)], n: usize, mask: u64) -> Rows {
        let mut edges: Vec<usize> = vec![0, n];
        for (_, rows) in inputs {
            let mut at = 0;
            for run in &rows.runs {
                at += run.len;
                edges.push(at.min(n));
            }
        }
        edges.sort_unstable();
        edges.dedup();
        let mut runs: Vec<Run> = edges.windows(2).map(|edge| Run::zero(edge[1] - edge[0])).collect();
        for &(coeff, rows) in inputs {
            let (mut piece, mut at) = (0, 0);
            for run in &rows.runs {
                let end = (at + run.len).min(n);
                while piece < runs.len() && edges[piece] < end {
                    let part = Rows::new(unit, vec![run.clone()]).cut(edges[piece] - at, runs[piece].len);
                    runs[piece].add(coeff, &part[0], mask);
                    piece += 1;
                }
                at = end;
            }
        }
        Rows::new(unit, runs)
    }

    /// Elements by runs of positions of this buffer, `None` for zeros.
    pub fn pieces(&self, pieces: &[(Option<usize>, usize)]) -> Rows {
        let runs = pieces.iter().flat_map(|&(start, len)| match start {
            Some(start) => self.cut(start, len),
            None => vec![Run::zero(len)],
        });
        Rows::new(self.unit, runs.collect())
    }
}

/// A buffer on symbols.
pub struct Symbols<T> {
    pub(super) rows: Arc<Rows>,
    of: PhantomData<fn() -> T>,
}

impl<T> Symbols<T> {
    pub(super) fn new(rows: Rows) -> Self {
        Symbols { rows: Arc::new(rows), of: PhantomData }
    }
}

impl<T> Clone for Symbols<T> {
    fn clone(&self) -> Self {
        Symbols { rows: self.rows.clone(), of: PhantomData }
    }
}
