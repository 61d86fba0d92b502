//! Functions by dealt tables or keys ([`Op::Lookup`]): one round, and one for the truncation of the
//! result.
//!
//! A table has 2^n segments of one width, each a polynomial of degree 1 to 3 through Chebyshev's
//! nodes. Carries of masks may put a value one segment further ([`Lookup`]), so each piece is
//! fitted to its segment *and the one before*. Of all shapes that keep the error below what is
//! wanted the one of which fewest bits are dealt is taken; where there are no more words than
//! segments, a table holds the values themselves. The value is moved to begin at 0, so that the
//! last segment is never its own, and its lowest bits may be left unread.
//!
//! An activation reads [`ARGUMENT`] fraction bits. Where x is proven to lie in so few segments as
//! [`worth`] says, and the plan may tell that range ([`Activations::Lookup`], or declared ranges),
//! a table is all. Where its range is wider, or ranges may be measured or assumed, the table holds
//! where the function bends; one comparison with both ends runs beside it, and one selection takes
//! the table's value, or a constant, or x: the bits choose among values, so what a table gives for
//! numbers that it does not hold is dropped. Three rounds under `mizar`.
//!
//! Or one key gives the function of all numbers, with what it is beside its bend ([`Beyond`]): one
//! round, and one for the truncation. It is dealt more bits, and a worker looks at twice as many
//! segments; [`Price`] says where the round is worth that.
//!
//! Errors: the fit's, [`TARGET`]; 2^−15 for what is left of the bend at an end; a unit of the
//! argument times the slope; one unit of the result. On the 64-bit ring with f = 16 they stay below
//! [`ERROR`] together.

use crate::lowering::{Lowering, Secret};
#[cfg(doc)]
use crate::options::Activations;
use crate::problem::{Refusal, refuse};
use crate::range::Range;
use megrez_plan::{Beyond, Lookup, MAX_DEGREE};

/// The most segments that are tried: more would be worth a round for single values only.
const MOST_SEGMENTS: usize = 1 << 13;

/// What the whole of an activation is held to on the 64-bit ring, 2^−12.
pub(super) const ERROR: f64 = 1.0 / 4096.0;

/// What pieces are held to, where the ring has the bits, 2^−13.
const TARGET: f64 = ERROR / 2.0;

/// Bits of the furthest end of a bend before the point.
const REACH_BITS: u32 = 4;

/// Fraction bits that a table of an activation reads of its argument.
const ARGUMENT: u32 = 15;

/// The most segments of a table, but where a round hangs on more.
pub(super) const MOST: usize = 1024;

/// The most segments of a table for which a comparison is spared, however many values there are, …
pub(super) const WIDEST: usize = 128;

/// … and the most of all values together for which it is: a worker looks at every segment of a
/// key, some nanoseconds each, and a comparison costs two rounds more.
const LOOKED_AT: usize = 1 << 20;

/// What a segment of a key takes a worker, with others that are looked up at the same time, in
/// nanoseconds.
const SEGMENT_NS: u64 = 10;

/// What the ways down a tree take a worker for each level above the segments, in nanoseconds:
/// alone, and where it is paid on its way (`kernels_bench` of `megrez-kernels`).
const LEVEL_NS: u64 = 10;
const PAID_LEVEL_NS: u64 = 50;

/// What a table and the truncation of its result take the parties however few the values are, in
/// nanoseconds, both phases together.
const TABLE_NS: u64 = 200_000;

/// What comparisons of one value with two numbers, and the selection after them, take a worker, in
/// nanoseconds, …
const COMPARED_NS: u64 = 200;

/// … and in bits for each bit that is compared, offline and online.
const COMPARED_BITS: [u32; 2] = [9, 13];

/// What one way to compute a function costs: its rounds and tables, and for each value a worker's
/// time, and bits of both phases.
#[derive(Clone, Copy, Default)]
pub(super) struct Price {
    pub rounds: u64,
    pub tables: u64,
    pub worker_ns: u64,
    pub offline_bits: usize,
    pub online_bits: usize,
}

impl Price {
    /// With another at the same time.
    pub(super) fn with(self, other: Price) -> Price {
        Price {
            rounds: self.rounds.max(other.rounds),
            tables: self.tables + other.tables,
            worker_ns: self.worker_ns + other.worker_ns,
            offline_bits: self.offline_bits + other.offline_bits,
            online_bits: self.online_bits + other.online_bits,
        }
    }

    /// Of a comparison with some numbers in so many bits, and the selection after it.
    pub(super) fn of_thresholds(count: usize, bits: u32) -> Price {
        let [offline, online] = COMPARED_BITS.map(|each| count * (each * bits) as usize / 2);
        Price {
            rounds: 2,
            tables: 0,
            worker_ns: count as u64 * COMPARED_NS / 2,
            offline_bits: offline,
            online_bits: online,
        }
    }

    /// Of all values of x together, in nanoseconds. Offline bits count a quarter: they may be there
    /// before the values are, unless they are dealt online.
    pub(super) fn of(&self, cx: &Lowering, x: &Secret) -> u64 {
        let elements = cx.shape(x).elements() as u64;
        let offline_bits = if cx.deals_online() { self.offline_bits } else { self.offline_bits / 4 };
        let bits = (offline_bits + self.online_bits) as u64;
        let link = (u128::from(cx.mib_ns()) * u128::from(bits * elements)) >> 23;
        self.rounds * cx.delay_ns() + self.tables * TABLE_NS + elements * self.worker_ns + link as u64
    }

    /// Of a key with what is beside its segments: the round of the look-up.
    fn of_key(f: &Lookup, ring: u32) -> Price {
        let above = f.depth() as u64 - u64::from(f.index_bits());
        let level = if f.beyond.is_some_and(|beyond| beyond.parts() > 0) { PAID_LEVEL_NS } else { LEVEL_NS };
        Price {
            rounds: 1,
            tables: 1,
            worker_ns: 2 * f.segments() as u64 * SEGMENT_NS + above * level,
            offline_bits: f.dealt_bits(ring),
            online_bits: 2 * ring as usize,
        }
    }

    /// Of a look-up of so many segments and no more.
    pub(super) fn of_segments(f: &Lookup, ring: u32) -> Price {
        Price {
            rounds: 1,
            tables: 1,
            worker_ns: f.segments() as u64 * SEGMENT_NS,
            offline_bits: Lookup { beyond: None, ..f.clone() }.dealt_bits(ring),
            online_bits: 2 * ring as usize,
        }
    }
}

/// The most segments of a table for this value for which a round is spared: what it takes a worker
/// is no longer than what a message takes.
pub(super) fn worth_a_round(cx: &Lowering, x: &Secret) -> usize {
    let elements = cx.shape(x).elements().max(1) as u64;
    (cx.delay_ns() / (SEGMENT_NS * elements)).min(MOST_SEGMENTS as u64) as usize
}

/// The most segments of a table for this value for which a comparison is spared.
pub(super) fn worth(cx: &Lowering, x: &Secret) -> usize {
    (LOOKED_AT / cx.shape(x).elements().max(1)).clamp(WIDEST, MOST)
}

/// What errors are relative to.
#[derive(Clone, Copy)]
pub(super) enum Relative {
    /// 1.
    No,
    /// The function's value.
    Value,
    /// The value of a function that this is a part of, times what the part is.
    Whole(fn(f64) -> f64, f64),
}

/// What is asked of a table.
#[derive(Clone, Copy)]
pub(super) struct Wanted {
    /// The largest error of its pieces.
    pub target: f64,
    /// Whether that is relative to a value, where this is not so small that a quarter of a unit of
    /// the result is more.
    pub relative: Relative,
    /// How many low bits of the argument it leaves unread.
    pub cut: u32,
    /// The most segments; `None` where the best that there is will do.
    pub most: Option<usize>,
    /// Fraction bits of the result.
    pub frac: u32,
    /// As many may be left in place of a truncation, …
    pub spare: u32,
    /// … by a table of no more segments than this.
    pub widest: usize,
    /// How many values are added up before they are truncated: the ring has room for their sum.
    pub summed: usize,
    /// Fraction bits before the truncation, where other tables must have as many; `None` for as
    /// many as there is room for.
    pub scale: Option<u32>,
}

/// A function that is as good as constant to the left of where it bends, and constant or x to the
/// right.
#[derive(Clone, Copy)]
pub(super) struct Smooth<'a> {
    /// The function.
    pub function: &'a dyn Fn(f64) -> f64,
    /// It bends within ±reach: beyond, less than 2^−15 is left.
    pub reach: f32,
    /// Whether it rises as x does to the right.
    pub rises: bool,
}

/// A function on an interval, as pieces.
struct Fit {
    lookup: Lookup,
    /// What the argument is multiplied by.
    times: u32,
    /// The largest distance from the function, coefficients as they are rounded; relative if wanted
    /// so.
    error: f64,
    /// The smallest and the largest value, with that distance.
    values: (f64, f64),
}

/// What an argument may be multiplied by before it is looked up: segments are as wide as a power
/// of two divided by it, so that they need not be half as wide where a little less will do.
const FACTORS: [u32; 4] = [1, 7, 3, 5];

/// How words stand for numbers: those of the argument and of the result.
#[derive(Clone, Copy)]
struct Words {
    /// The number that the word 0 stands for.
    start: f64,
    /// What words are multiplied by, …
    times: u32,
    /// Fraction bits of the argument, all and those that are cut.
    frac: u32,
    cut: u32,
    /// ℓ.
    ring: u32,
    /// Fraction bits of the result; as many as small values need, so perhaps more than the ring
    /// has.
    scale: u32,
    /// Whether values lie to the left of the segments and to the right of them, too.
    open: [bool; 2],
    /// The least degree of pieces: 1 where a line is beside them.
    least: u32,
}

/// Where a function bends, words of its argument, and what it is beside that.
pub(super) struct Bend {
    pub from: i128,
    pub to: i128,
    /// To the left, where values lie there.
    pub left: Option<f64>,
    /// To the right, where values lie there.
    pub right: Option<Right>,
}

/// What a function is to the right of its bend.
#[derive(Clone, Copy)]
pub(super) enum Right {
    /// A number.
    Constant(f64),
    /// x.
    Argument,
}

/// The polynomial through `function` at Chebyshev's nodes of [from, to], c_0 first.
fn interpolated(function: impl Fn(f64) -> f64, [from, to]: [f64; 2], degree: usize) -> Vec<f64> {
    let count = degree as f64 + 1.0;
    let node = |k: usize| {
        let angle = std::f64::consts::PI * (k as f64 + 0.5) / count;
        f64::midpoint(from, to) + (to - from) / 2.0 * angle.cos()
    };
    let nodes: Vec<f64> = (0..=degree).map(node).collect();
    // Newton's divided differences, then powers.
    let mut differences: Vec<f64> = nodes.iter().map(|&t| function(t)).collect();
    for k in 1..=degree {
        for i in (k..=degree).rev() {
            differences[i] = (differences[i] - differences[i - 1]) / (nodes[i] - nodes[i - k]);
        }
    }
    let mut powers = vec![0.0; degree + 1];
    for i in (0..=degree).rev() {
        // powers = powers·(t − node) + difference.
        for p in (1..=degree).rev() {
            powers[p] = powers[p - 1] - nodes[i] * powers[p];
        }
        powers[0] = differences[i] - nodes[i] * powers[0];
    }
    powers
}

/// Coefficients in words, of a polynomial in t = l / 2^low. What the rounding of a power takes off
/// goes to the powers below that are most like it.
fn rounded(mut powers: Vec<f64>, low: u32, scale: u32) -> Vec<i64> {
    let mut words = vec![0; powers.len()];
    for i in (0..powers.len()).rev() {
        let unit = 2f64.powi((low * i as u32) as i32 - scale as i32);
        let word = (powers[i] / unit).round();
        let rest = powers[i] - word * unit;
        words[i] = word as i64;
        // t² is about ½, t³ about ¾·t on [−1, 1].
        match i {
            2 => powers[0] += rest / 2.0,
            3 => powers[1] += rest * 0.75,
            _ => {}
        }
    }
    words
}

impl Fit {
    /// Pieces of `function` for `units` units from `words.start` on, on segments of 2^low of them.
    /// Errors count relative to the `size` of the function's value at x; `None` as soon as one is
    /// beyond `most`.
    fn new(
        function: &dyn Fn(f64) -> f64,
        words: Words,
        size: &dyn Fn(f64, f64) -> f64,
        units: i128,
        low: u32,
        (degree, segments): (u32, usize),
        most: f64,
    ) -> Option<Fit> {
        let Words { start, frac, cut, scale, times, open, .. } = words;
        let width = 2f64.powi((low + cut) as i32 - frac as i32) / f64::from(times);
        let mut pieces = vec![];
        let (mut error, mut off) = (0f64, 0f64);
        let mut values = (f64::INFINITY, f64::NEG_INFINITY);
        for h in 0..segments {
            // No value comes so far, not even with a carry: what would be fitted there may be of
            // any size.
            if !open[1] && h > 0 && (h as i128 - 1) << low > units {
                pieces.extend_from_within(pieces.len() - 1 - degree as usize..);
                continue;
            }
            let place = |t: f64| start + (h as f64 + t) * width;
            let at = |t: f64| function(place(t));
            // There is nothing before the first segment, and no carry where nothing is below a
            // segment's number.
            let from = if h == 0 && !open[0] || low == 0 { 0.0 } else { -1.0 };
            let powers = match degree {
                0 => vec![at(0.0)],
                _ => interpolated(at, [from, 1.0], degree as usize),
            };
            let piece = rounded(powers, low, scale);
            let value = |t: f64| {
                let l = t * 2f64.powi(low as i32);
                piece.iter().rev().fold(0.0, |sum, &c| sum * l + c as f64) * 2f64.powi(-(scale as i32))
            };
            // Beyond the end nothing is looked up; at it, a steep piece is judged too.
            let end = if open[1] { 1.0 } else { units as f64 * 2f64.powi(-(low as i32)) - h as f64 };
            let samples = if low == 0 { 0 } else { 24 };
            for i in (0..=samples).filter(|_| end >= from) {
                let t = (from + (1.0 - from) * f64::from(i) / 24.0).min(end);
                let (y, exact) = (value(t), at(t));
                off = off.max((y - exact).abs());
                error = error.max((y - exact).abs() / size(place(t), exact));
                values = (values.0.min(y), values.1.max(y));
            }
            if error > most {
                return None;
            }
            pieces.extend(piece);
        }
        // Between the samples.
        let slack = off + TARGET * values.0.abs().max(values.1.abs());
        let values = (values.0 - slack, values.1 + slack);
        let lookup = Lookup { cut, low, degree, pieces, frac: scale, beyond: None };
        Some(Fit { lookup, times, error, values })
    }

    /// The best pieces for a result of few fraction bits, so that it need not be truncated, or else
    /// for one of so many; and the fraction bits that are wanted of it.
    fn short_or_long(
        function: &dyn Fn(f64) -> f64,
        words: &dyn Fn(u32) -> Words,
        (scale, factors): (u32, &[u32]),
        span: i128,
        wanted: Wanted,
    ) -> Option<(Fit, u32)> {
        // Without a truncation if that is as good.
        let short = Some(wanted.spare.min(scale)).filter(|&short| short > wanted.frac).and_then(|short| {
            let wanted = Wanted { most: Some(wanted.widest), ..wanted };
            Fit::best(function, words(short), span, wanted, factors).map(|fit| (fit, short))
        });
        match short {
            Some(short) => Some(short),
            None => Some((Fit::best(function, words(scale), span, wanted, &[1])?, wanted.frac)),
        }
    }

    /// The pieces of which fewest bits are dealt that are as good as wanted for words from 0 to
    /// `span`, multiplied by one of these factors.
    fn best(
        function: &dyn Fn(f64) -> f64,
        words: Words,
        span: i128,
        wanted: Wanted,
        factors: &[u32],
    ) -> Option<Fit> {
        let most = wanted.most.unwrap_or(usize::MAX);
        let least = 2f64.powi(-(wanted.frac as i32) - 2) / wanted.target;
        let size = |x: f64, value: f64| match wanted.relative {
            Relative::No => 1.0,
            Relative::Value => value.abs().max(least),
            // Several parts make the whole.
            Relative::Whole(whole, times) => (times * whole(x)).abs().max(least / 16.0),
        };
        let mut shapes: Vec<(usize, usize, u32)> = vec![];
        for degree in words.least..=MAX_DEGREE {
            let sizes =
                (2..).map(|n| 1usize << n).take_while(|&segments| segments <= MOST_SEGMENTS.min(most));
            shapes.extend(sizes.map(|segments| {
                let pieces = vec![0; segments * (degree as usize + 1)];
                let f = Lookup { cut: 0, low: 0, degree, pieces, frac: 0, beyond: None };
                (f.dealt_bits(words.ring), segments, degree)
            }));
        }
        shapes.sort_unstable();
        let mut best: Option<Fit> = None;
        for (_, segments, degree) in shapes {
            for &times in factors {
                // The argument is read as finely as without a factor.
                let words = Words { times, cut: words.cut + times.ilog2(), ..words };
                let span = span * i128::from(times);
                if times > 1 && (degree == 0 || span >> (words.ring - 2) > 0) {
                    continue;
                }
                // With the carry of the cut, and the last segment free.
                let units = (span >> words.cut) + 1;
                let mut widths = if degree == 0 { 0..1 } else { 1..40 };
                let Some(low) = widths.find(|low| (segments as i128 - 1) << low > units) else { continue };
                // Only where the best that there is will do are those of use that are not good
                // enough.
                let most = if wanted.most.is_some() { wanted.target } else { f64::INFINITY };
                let shape = (degree, segments);
                let Some(fit) = Fit::new(function, words, &size, units, low, shape, most) else { continue };
                if fit.error <= wanted.target {
                    return Some(fit);
                }
                if best.as_ref().is_none_or(|best| fit.error < best.error) {
                    best = Some(fit);
                }
            }
        }
        best.filter(|_| wanted.most.is_none())
    }
}

/// A range as a table may show it. The table's beginning and size become part of the plan, and
/// weights may have made the range: its ends go outward to the next of 2^k·(1 ± 1/16), so that they
/// are told to a factor of two. The sixteenth keeps what a rounding has moved beyond a power of two
/// from costing an octave.
pub(super) fn coarse(range: &Range) -> Range {
    let (low, high) = range.hull();
    let away = |v: i128| {
        let power = |k: u32| (1i128 << k) + (1i128 << k) / 16;
        let k = v.max(1).ilog2();
        if v == 0 { 0 } else { power(k + u32::from(power(k) < v)) }
    };
    let near = |v: i128| {
        let power = |k: u32| (1i128 << k) - (1i128 << k) / 16;
        let k = v.max(1).ilog2() + 1;
        if v == 0 { 0 } else { power(k - u32::from(power(k) > v)) }
    };
    let low = if low < 0 { -away(-low) } else { near(low) };
    let high = if high < 0 { -near(-high) } else { away(high) };
    Range::uniform(low, high)
}

/// A number as a word with so many fraction bits.
fn word(v: f64, scale: u32, up: bool) -> i128 {
    let v = v * 2f64.powi(scale as i32);
    (if up { v.ceil() } else { v.floor() }) as i128
}

/// How many fraction bits a result has whose largest value is this, and how many of these more than
/// the plan can say: as many as there is room for, and where small values need them more than there
/// are bits. These are counted from another place until the truncation.
fn room(ring: u32, largest: f64, wanted: Wanted) -> Option<(u32, u32)> {
    let f = wanted.frac;
    let whole = largest.log2().ceil().clamp(-64.0, 128.0) as i32;
    let room = ring as i32 - 4 - wanted.summed.next_power_of_two().ilog2() as i32;
    let scale = room - whole.max(if matches!(wanted.relative, Relative::No) { 0 } else { -(f as i32) });
    (scale >= f as i32).then_some((scale as u32, (scale - room).max(0) as u32))
}

/// A table that is made for a value.
pub(super) struct Table {
    lookup: Lookup,
    /// What is added to the value, so that it begins at 0, …
    moved: i64,
    /// … and what it is multiplied by then.
    times: u32,
    /// What the results lie in.
    range: Range,
    /// Fraction bits of the result once it is truncated, …
    frac: u32,
    /// … and how many fraction bits more the table has than the plan can say.
    over: u32,
    /// Where it looks beside its segments: the range that it must be right for, and how far values
    /// were moved for that.
    compared: Option<(Range, i128)>,
}

impl Table {
    /// Of `function`, for all of the range of a value; `None` if there is no such table as is
    /// wanted.
    pub(super) fn new(
        cx: &Lowering,
        x: &Secret,
        function: &dyn Fn(f64) -> f64,
        wanted: Wanted,
    ) -> Option<Table> {
        let cut = wanted.cut;
        let (frac, ring) = (cx.frac_of(x), cx.ring());
        let (low, high) = x.range.hull();
        // Nothing that a table could hold.
        if high.saturating_sub(low) >> cut >= 1 << 30 {
            return None;
        }
        let unit = 2f64.powi(-(frac as i32));
        let start = low >> cut << cut;
        let span = high - start;
        let moved = i64::try_from(-start).ok()?;
        // How large values are, by the function at some points; a bit more is left.
        let samples =
            (0..=256).map(|i| function((start as f64 + span as f64 * f64::from(i) / 256.0) * unit).abs());
        let (scale, over) = room(ring, samples.fold(0.0, f64::max), wanted)?;
        let start = start as f64 * unit;
        let words =
            |scale: u32| Words { start, times: 1, frac, cut, ring, scale, open: [false; 2], least: 0 };
        let (fit, to) = Fit::short_or_long(function, &words, (scale, &FACTORS), span, wanted)?;
        let mut lookup = fit.lookup;
        let range =
            Range::uniform(word(fit.values.0, lookup.frac, false), word(fit.values.1, lookup.frac, true));
        let over = if lookup.frac == to { 0 } else { over };
        lookup.frac -= over;
        Some(Table { lookup, times: fit.times, moved, range, frac: to, over, compared: None })
    }

    /// Of a function wherever the value lies, less what it is to the left of its bend; `None` if
    /// there is no such table as is wanted.
    pub(super) fn beside(
        cx: &Lowering,
        x: &Secret,
        function: &dyn Fn(f64) -> f64,
        bend: &Bend,
        wanted: Wanted,
    ) -> Option<Table> {
        let (cut, frac, ring) = (wanted.cut, cx.frac_of(x), cx.ring());
        let unit = 2f64.powi(-(frac as i32));
        let start = bend.from >> cut << cut;
        let (span, moved) = (bend.to - start, i64::try_from(-start).ok()?);
        let (low, high) = Range::combine(&[(1, &x.range)], moved).hull();
        // Right with as much to spare at both ends as all segments are wide.
        let looked_at = |times: u32, spare: i128| {
            let reach = |v: i128, more: i128| v.saturating_mul(times.into()).saturating_add(more);
            Range::uniform(reach(low, -spare), reach(high, spare))
        };
        let bits = |times: u32, spare: i128| {
            let words = Secret { id: x.id, range: looked_at(times, spare) };
            cx.bits_looked_at(&words, i128::from(times) * i128::from(moved))
        };
        // What they are less than, whatever pieces it will be.
        let widest = 4 * (span + (2 << cut));
        let left = bend.left.unwrap_or(0.0);
        let function = |x: f64| function(x) - left;
        let start = start as f64 * unit;
        let samples = (0..=256).map(|i| function(start + span as f64 * unit * f64::from(i) / 256.0).abs());
        // By what everybody sees: the number of bits that are looked at.
        let (largest, factors, least): (f64, &[u32], u32) = match bend.right {
            None => (0.0, &FACTORS, 0),
            Some(Right::Constant(right)) => (right - left, &FACTORS, 0),
            // A line in x has whole words for slopes, of x as it is.
            Some(Right::Argument) => (2f64.powi(bits(1, widest).0 as i32 - 1) * unit, &[1], frac),
        };
        let (scale, over) = match wanted.scale {
            Some(scale) => (scale, 0),
            None => room(ring, samples.fold(largest.abs(), f64::max), wanted)?,
        };
        let open = [bend.left.is_some(), bend.right.is_some()];
        let words =
            |scale: u32| Words { start, times: 1, frac, cut, ring, scale, open, least: u32::from(least > 0) };
        let wanted = Wanted { spare: if wanted.spare < least { 0 } else { wanted.spare }, ..wanted };
        let (fit, to) = Fit::short_or_long(&function, &words, (scale, factors), span, wanted)?;
        let (mut lookup, times) = (fit.lookup, fit.times);
        let scale = lookup.frac;
        let (constant, slope, right) = match bend.right {
            None => (0, 0, 0.0),
            Some(Right::Constant(right)) => (word(right - left, scale, false), 0, right - left),
            Some(Right::Argument) if scale < least => return None,
            Some(Right::Argument) => {
                // What is beyond the bits that are looked at is wrong, as a comparison of them is.
                let high = high.min(1 << (bits(1, widest).0 - 1));
                let right = high as f64 * unit + start - left;
                (word(start - left, scale, false), 1i128 << (scale - frac), right)
            }
        };
        let own = lookup.bits();
        let spare = if slope == 0 { 1 << own } else { widest };
        // Of the value itself.
        let compared = Some((looked_at(1, spare), moved.into()));
        let (looked_at, (bits, held)) = (looked_at(times, spare), bits(times, spare));
        let half = 1i128 << (ring - 1);
        let fits = [constant, slope].iter().all(|word| (-half..half).contains(word));
        if !fits || !held || looked_at.magnitude() > half || bits < own + 2 {
            return None;
        }
        lookup.beyond = Some(Beyond { bits, constant: constant as i64, slope: slope as i64 });
        let (least, most) = (fit.values.0.min(0.0).min(right), fit.values.1.max(0.0).max(right));
        let range = Range::uniform(word(least, scale, false), word(most, scale, true));
        let over = if scale == to { 0 } else { over };
        lookup.frac -= over;
        Some(Table { lookup, times, moved, range, frac: to, over, compared })
    }

    /// Whether it is dearer than a comparison with the ends of its bend and a selection.
    pub(super) fn is_worth_a_comparison(&self, cx: &Lowering, x: &Secret) -> bool {
        let (f, ring) = (&self.lookup, cx.ring());
        let compared = Price::of_segments(f, ring).with(Price::of_thresholds(2, f.bits()));
        self.price(ring).of(cx, x) < compared.of(cx, x)
    }

    /// The fraction bits of what it says.
    pub(super) fn scale(&self) -> u32 {
        self.lookup.frac + self.over
    }

    /// Of its key.
    pub(super) fn price(&self, ring: u32) -> Price {
        Price::of_key(&self.lookup, ring)
    }

    /// The function of the value that it is made for. Where that is outside of its range after all,
    /// the result is some number.
    pub(super) fn look_up(self, cx: &mut Lowering, name: &str, x: &Secret) -> Result<Secret, Refusal> {
        let found = self.found(cx, name, x)?;
        self.truncated(cx, name, &found)
    }

    /// Whether its result has the fraction bits that are wanted of it, and is not truncated.
    pub(super) fn is_short(&self) -> bool {
        self.lookup.frac + self.over <= self.frac
    }

    /// As [`look_up`](Self::look_up), and the value before it is truncated, with the fraction bits
    /// that it has there.
    pub(super) fn look_up_twice(
        self,
        cx: &mut Lowering,
        name: &str,
        x: &Secret,
    ) -> Result<(Secret, Secret), Refusal> {
        let found = self.found(cx, name, x)?;
        let y = self.truncated(cx, name, &found)?;
        let scale = cx.frac_of(&found) + self.over;
        Ok((y, cx.rescale(&format!("{name}-untruncated"), &found, scale)?))
    }

    /// What the table says.
    pub(super) fn found(&self, cx: &mut Lowering, name: &str, x: &Secret) -> Result<Secret, Refusal> {
        cx.not_by_weights()?;
        if let Some((range, moved)) = self.compared.clone() {
            cx.comparison(name, &Secret { id: x.id, range }, moved, 1)?;
        }
        let times = i64::from(self.times);
        let x = cx.combine(&format!("{name}-argument"), &[(times, x)], times * self.moved)?;
        // A table reads words, whatever they stand for.
        let frac = cx.frac_of(&x).max(self.lookup.cut);
        let x = cx.rescale(&format!("{name}-words"), &x, frac)?;
        cx.look_up(name, &x, self.lookup.clone(), self.range.clone())
    }

    fn truncated(&self, cx: &mut Lowering, name: &str, found: &Secret) -> Result<Secret, Refusal> {
        let y = cx.rounded(&format!("{name}-rounded"), found, self.frac - self.over)?;
        cx.rescale(&format!("{name}-scale"), &y, self.frac)
    }
}

/// A value as it is compared and looked up: not truncated before, unless it leaves fewer than
/// `spare` bits of the ring free, or there is no room for its fraction bits in a comparison of as
/// many bits as were asked for, or in the ends of a table.
pub(super) fn readable(cx: &mut Lowering, x: &Secret, spare: u32) -> Result<Secret, Refusal> {
    let (ring, frac) = (cx.ring(), cx.frac_of(x));
    let compared = cx.compares(frac);
    match x.range.magnitude() < 1 << (ring - spare) && compared && frac + REACH_BITS < ring - 1 {
        true => Ok(x.clone()),
        false => cx.settle(x),
    }
}

/// `function` of a value by one table that holds all of its range; `None` if there is no such table
/// as is wanted. Where the value is elsewhere after all, the result is some number.
pub(super) fn look_up(
    cx: &mut Lowering,
    name: &str,
    x: &Secret,
    function: &dyn Fn(f64) -> f64,
    wanted: Wanted,
) -> Result<Option<Secret>, Refusal> {
    Table::new(cx, x, function, wanted).map(|table| table.look_up(cx, name, x)).transpose()
}

/// As [`look_up`], and the value before it is truncated: what is made of both does not wait for
/// the truncation.
pub(super) fn look_up_twice(
    cx: &mut Lowering,
    name: &str,
    x: &Secret,
    function: &dyn Fn(f64) -> f64,
    wanted: Wanted,
) -> Result<Option<(Secret, Secret)>, Refusal> {
    Table::new(cx, x, function, wanted).map(|table| table.look_up_twice(cx, name, x)).transpose()
}

impl Smooth<'_> {
    /// On a value with f fraction bits; the result has f.
    pub(super) fn lower(self, cx: &mut Lowering, x: &Secret) -> Result<Secret, Refusal> {
        let (f, frac) = (cx.frac(), cx.frac_of(x));
        let wanted = Wanted {
            // Half a unit of the result, where that is more.
            target: TARGET.max(2f64.powi(-(f as i32) - 1)),
            relative: Relative::No,
            cut: frac.saturating_sub(ARGUMENT),
            most: Some(worth(cx, x)),
            frac: f,
            spare: f + cx.spare_of_tables(),
            widest: worth_a_round(cx, x).min(worth(cx, x)),
            summed: 1,
            scale: None,
        };
        let told = |x: &Secret| Secret { id: x.id, range: coarse(&x.range) };
        // What leaves a table's segments comes out as another value of the function, and not as one
        // nearby: without a proof, or a guard, it is compared.
        if cx.holds_ranges()
            && let Some(y) = look_up(cx, "table", &told(x), self.function, wanted)?
        {
            return Ok(y);
        }
        let end = cx.encode(self.reach, frac)?;
        let far = |x: f64| ((self.function)(x) * 2f64.powi(f as i32)).round() as i64;
        let (left, right) = (far(-1e6), far(1e6));
        let number = |word: i64| word as f64 * 2f64.powi(-(f as i32));
        let bend = Bend {
            from: -i128::from(end),
            to: end.into(),
            left: Some(number(left)),
            right: Some(if self.rises { Right::Argument } else { Right::Constant(number(right)) }),
        };
        let of_key = Wanted { most: Some(MOST), ..wanted };
        if let Some(table) = Table::beside(cx, x, self.function, &bend, of_key)
            && table.is_worth_a_comparison(cx, x)
        {
            let y = table.look_up(cx, "table", x)?;
            let left = i128::from(left) << (cx.frac_of(&y) - f);
            return cx.combine("chosen", &[(1, &y)], left as i64);
        }
        let (bits, wrong) = cx.at_least("compare", x, &[-end, end])?;
        // A wrong comparison moves an end by `wrong` words.
        let bound = i128::from(end) + 4 * wrong;
        let inside = Secret { id: x.id, range: Range::uniform(-bound, bound) };
        let Some(y) = look_up(cx, "table", &inside, self.function, Wanted { most: None, ..wanted })? else {
            return refuse(
                "has no room for a table on this ring",
                "choose other activations or fewer fraction bits",
            );
        };
        // left + [x ≥ −end]·(table − left) + [x ≥ end]·(right − table), and right is x where the
        // function rises as x does.
        let from_left = cx.combine("from-left", &[(1, &y)], -left)?;
        let (to_right, highest) = match self.rises {
            true => {
                let x = cx.settle(x)?;
                let high = x.range.hull().1;
                (cx.combine("to-right", &[(1, &x), (-1, &y)], 0)?, high)
            }
            false => (cx.combine("to-right", &[(-1, &y)], right)?, right.into()),
        };
        let shape = cx.shape(x).clone();
        let parts = cx.stack("parts", &[&from_left, &to_right])?;
        let parts = cx.select("select", &bits, &parts)?;
        let parts = cx.unstack("part", &parts, &shape)?;
        let (low, high) = y.range.hull();
        let range = Range::uniform(low.min(left.into()), high.max(highest));
        cx.combine_within("chosen", &[(1, &parts[0]), (1, &parts[1])], left, range)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polynomials_are_their_own_interpolation() {
        let p = |t: f64| 0.5 - 2.0 * t + 3.0 * t * t - 0.25 * t * t * t;
        for (found, expected) in interpolated(p, [-1.0, 1.0], 3).iter().zip([0.5, -2.0, 3.0, -0.25]) {
            assert!((found - expected).abs() < 1e-12);
        }
        assert_eq!(rounded(vec![0.5, -2.0, 3.0, -0.25], 4, 20), [1 << 19, -(1 << 17), 3 << 12, -(1 << 6)]);
    }

    /// Every word of the argument, every carry: exact arithmetic, as in the step.
    #[test]
    fn pieces_are_good_with_every_carry() {
        let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
        for (frac, cut, span) in [(16, 2, 6i128 << 16), (10, 0, 8 << 10), (20, 6, 3 << 20)] {
            let (ring, scale) = if frac == 10 { (32, 27) } else { (64, 58) };
            let words = Words { start: -3.0, times: 1, frac, cut, ring, scale, open: [false; 2], least: 0 };
            let wanted = Wanted {
                target: TARGET,
                relative: Relative::No,
                cut,
                most: Some(WIDEST),
                frac: 0,
                spare: 0,
                widest: 0,
                summed: 1,
                scale: None,
            };
            for times in FACTORS {
                let fit = Fit::best(&sigmoid, words, span, wanted, &[times]).expect("a table");
                assert!(fit.error <= TARGET && fit.times == times);
                for x in (0..span as u64).step_by(7) {
                    let real = words.start + x as f64 * 2f64.powi(-(frac as i32));
                    // A unit of what is read, times the largest slope.
                    let off = TARGET + 0.25 * 2f64.powi(cut as i32 - frac as i32) + 1e-9;
                    for y in fit.lookup.results(x * u64::from(times)) {
                        let y = y as i64 as f64 * 2f64.powi(-(scale as i32));
                        assert!((y - sigmoid(real)).abs() <= off, "{times} times {real}: {y}");
                        assert!(y >= fit.values.0 && y <= fit.values.1);
                    }
                }
            }
        }
    }
}
