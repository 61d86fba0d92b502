//! Hidden trees for many rows: in every tree a bit goes down from the root, and on each level only
//! the test that is asked is made. Everybody sees what [`super::hidden`] shows, and how deep the
//! deepest tree is.
//!
//! A level has places for tests; which of them is asked is a secret bit for each place, row and
//! tree, of which one is set at most. A product of matrices of bits with the places' secrets gives
//! which feature is asked for and the bits of the threshold; another with the bits of all features
//! gives the bits of that feature; then two numbers of a few bits are compared. Next
//! are the ways that leave the places, twice as many. Near the roots each is a place of the next
//! level. Where fewer tests than that can be on the next level of any tree of so many leaves, a
//! secret matrix leads from the ways to its places, and leaves out those that end. At last a
//! product with all ways that end gives the bits of the number at the one where the row has come
//! out; it asks for nothing on the levels below, of no consequence.
//!
//! Words are opened nowhere between: all is bits, so that a test costs as many as it has.

use super::ensemble::{Ensemble, MAX_WEIGHTS, leaf_frac, room};
use super::forest::{Forest, Next};
use crate::lowering::{Lowering, Secret};
use crate::problem::Refusal;
use crate::range::Range;
use crate::tensor::Tensor;
use megrez_plan::View;

/// Bits that each test of a row sends one worker where all are compared at once
/// ([`super::hidden`]).
const COUNTED_BITS: usize = 248;
/// Rounds of that.
const COUNTED_ROUNDS: usize = 10;
/// Bits that take as long as the steps of a round do where no network is.
const STEPS: usize = 1 << 17;
/// Trees of all rows from which on there are two halves.
const HALVED_FROM: usize = 1 << 16;
/// What everybody sees.
struct Size {
    trees: usize,
    features: usize,
    rows: usize,
    targets: usize,
    /// The places of every level.
    levels: Vec<Level>,
    /// Bits of a feature.
    bits: usize,
    /// Bits of a leaf's number.
    number: usize,
}

/// A level of all trees.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Level {
    /// Places of a tree.
    places: usize,
    /// Whether each way from a place is one of the next level's; else a matrix leads there, or
    /// nothing does.
    open: bool,
}

impl Level {
    fn ways(self) -> usize {
        2 * self.places
    }

    /// Those of trees of up to so many leaves, and so deep.
    fn all(leaves: usize, depth: usize) -> Vec<Level> {
        // To have m tests on a level takes half as many on that above, and so on to the root.
        let takes = |m: usize, level: usize| {
            let near = (0..=level.min(63)).map(|up| m.div_ceil(1 << up)).sum::<usize>();
            near + level.saturating_sub(63)
        };
        let most = |level: usize| {
            let (mut fits, mut too_many) = (0, leaves);
            while too_many - fits > 1 {
                let m = fits.midpoint(too_many);
                if takes(m, level) < leaves { fits = m } else { too_many = m }
            }
            fits.max(1)
        };
        let (mut levels, mut places) = (vec![], 1);
        for level in 1..=depth {
            let next = most(level);
            let open = level < depth && next > places;
            levels.push(Level { places, open });
            places = if open { 2 * places } else { next };
        }
        levels
    }
}

impl Size {
    /// What is found out about a test: the features and the bits of a threshold.
    fn asked(&self) -> usize {
        self.features + self.bits
    }

    /// Levels with what leads from their ways to the next, if that is a matrix: its rows.
    fn led(&self) -> impl Iterator<Item = (Level, Option<usize>)> + '_ {
        let next = self.levels.iter().skip(1).map(|next| Some(next.places)).chain([None]);
        self.levels.iter().zip(next).map(|(level, next)| (*level, next.filter(|_| !level.open)))
    }

    /// The ways of a tree that may end.
    fn ends(&self) -> usize {
        self.levels.iter().filter(|level| !level.open).map(|level| level.ways()).sum()
    }

    /// Secret weights.
    fn weights(&self) -> Option<usize> {
        let of = |(level, next): (Level, Option<usize>)| {
            let along = level.ways().checked_mul(next.unwrap_or(0))?;
            level.places.checked_mul(self.asked())?.checked_add(along)
        };
        let levels = self.led().map(of).try_fold(0usize, |sum, n| sum.checked_add(n?))?;
        let numbers = self.ends().checked_mul(self.targets.checked_mul(self.number)?)?;
        levels.checked_add(numbers)?.checked_mul(self.trees)
    }

    /// Whether this sends less than comparing `tests` tests at once does, rounds counted.
    fn pays(&self, cx: &Lowering, tests: usize) -> bool {
        // What is asked, the feature's bits, and about as many for the comparison.
        let of = |(level, next): (Level, Option<usize>)| {
            self.asked() + 2 * self.bits + level.places + next.unwrap_or(0)
        };
        let bits = self.led().map(of).sum::<usize>() + self.targets * self.number;
        let rounds = self.levels.len() * 7 + 5;
        let saved = (tests * COUNTED_BITS).saturating_sub(bits);
        let saved = saved.saturating_mul(self.trees).saturating_mul(self.rows);
        // What a link carries while a message is on its way, and what the steps take.
        let sent = (u128::from(cx.delay_ns()) << 24) / u128::from(cx.mib_ns().max(1));
        let more = rounds.saturating_sub(COUNTED_ROUNDS);
        saved > more.saturating_mul(STEPS.saturating_add(usize::try_from(sent).unwrap_or(usize::MAX)))
    }
}

/// The sums of all trees [targets, rows], from the features [features, rows]; `None` where the
/// protocol has no matrices of bits, ranges are no public numbers, or comparing all tests at once
/// is cheaper.
pub(super) fn sums(cx: &mut Lowering, ensemble: &Ensemble, x: &Secret) -> Result<Option<Secret>, Refusal> {
    if !cx.multiplies_bits() || !cx.is_public(x) {
        return Ok(None);
    }
    let columns = x.clone().within(x.range.merged());
    let trees = ensemble.forest.trees();
    let words = ensemble.words(cx)?;
    let most = words.iter().map(|word| word.unsigned_abs()).max().unwrap_or(0);
    let leaves = trees.iter().map(|tree| tree.leaves.len()).max().unwrap_or(2).next_power_of_two();
    let depth = trees.iter().flat_map(|t| t.leaves.iter().map(|(_, way)| way.len())).max().unwrap_or(1);
    let size = Size {
        trees: trees.len(),
        features: cx.shape(x).dims()[0],
        rows: ensemble.rows,
        targets: ensemble.targets(),
        levels: Level::all(leaves, depth),
        bits: (i128::BITS - (room(&columns.range) + 1).leading_zeros()) as usize,
        // To four bits: how large a number is says little of it.
        number: (u64::BITS - most.leading_zeros() + 1).next_multiple_of(4) as usize,
    };
    let fits = size.weights().is_some_and(|n| n <= MAX_WEIGHTS);
    let widest = size.number.max(size.bits) + 2;
    if !fits || widest >= cx.ring() as usize || !size.pays(cx, leaves - 1) {
        return Ok(None);
    }
    let asking = Asking::of(cx, &columns, &size)?;
    // One half computes while the other's messages are under way; lanes in whole words, if they
    // can.
    let half = match trees.len() * ensemble.rows >= HALVED_FROM {
        true => (trees.len() / 2).next_multiple_of(8).min(trees.len()),
        false => trees.len(),
    };
    let counts = trees.chunks(half).map(|trees| {
        let size = Size { trees: trees.len(), levels: size.levels.clone(), ..size };
        let mut places = Places::new(&size);
        for (t, tree) in trees.iter().enumerate() {
            places.tree(ensemble.forest, t, tree.first);
        }
        descend(cx, ensemble, &Asking { size: &size, ..asking.clone() }, &places, &words)
    });
    let counts = counts.collect::<Result<Vec<_>, Refusal>>()?;
    // Bits of whole numbers from 0 on, of which half of their range is taken for every tree. What
    // they add up to is known whatever that does to the ring.
    let mut terms = vec![];
    for counts in &counts {
        for bit in 0..size.number {
            terms.push((1i64 << bit, cx.pick("bit", counts, 1, &[bit])?));
        }
    }
    let terms: Vec<_> = terms.iter().map(|(unit, plane)| (*unit, plane)).collect();
    let taken = half_of(size.number).wrapping_mul(trees.len() as i64).wrapping_neg();
    let frac = leaf_frac(cx);
    let sums = cx.combine_within("sums", &terms, taken, ensemble.bounds(frac).merged())?;
    let sums = cx.reshape("sums", &sums, [size.targets, size.rows].into())?;
    cx.rescale("scaled", &sums, frac).map(Some)
}

/// What is added to numbers of so many bits with their sign so that none is below 0.
fn half_of(number: usize) -> i64 {
    1 << (number - 1)
}

/// Where the tests and leaves of every tree are, level by level.
struct Places {
    levels: Vec<Level>,
    /// The tests [trees, places].
    tests: Vec<Vec<Option<usize>>>,
    /// The next level's place that a way leads to [trees, ways], where a matrix does.
    led: Vec<Vec<Option<usize>>>,
    /// The leaf at the end of a way [trees, ways].
    ends: Vec<Vec<Option<usize>>>,
}

impl Places {
    fn new(size: &Size) -> Self {
        let of = |n: fn(Level) -> usize| size.levels.iter().map(|l| vec![None; size.trees * n(*l)]).collect();
        Places {
            levels: size.levels.clone(),
            tests: of(|level| level.places),
            led: of(Level::ways),
            ends: of(Level::ways),
        }
    }

    /// Puts a tree in its places. The way of side s from place i is way s·places + i.
    fn tree(&mut self, forest: &Forest, tree: usize, root: usize) {
        let mut free = vec![0; self.levels.len() + 1];
        let mut here = vec![(Next::Test(root), 0, 0)];
        while let Some((what, at, place)) = here.pop() {
            let level = self.levels[at];
            let next = match what {
                // All ways from here on end at this leaf.
                Next::Leaf(_) => [what; 2],
                Next::Test(test) => {
                    self.tests[at][tree * level.places + place] = Some(test);
                    forest.tests[test].next
                }
            };
            for (side, next) in next.into_iter().enumerate() {
                let way = side * level.places + place;
                match next {
                    next if level.open => here.push((next, at + 1, way)),
                    Next::Leaf(leaf) => self.ends[at][tree * level.ways() + way] = Some(leaf),
                    next => {
                        let place = free[at + 1];
                        free[at + 1] += 1;
                        self.led[at][tree * level.ways() + way] = Some(place);
                        here.push((next, at + 1, place));
                    }
                }
            }
        }
    }
}

/// Secret bits [trees, rows, ways, 1], of which `set` says which are ones.
fn matrix(
    cx: &mut Lowering,
    x: &Secret,
    role: &str,
    [trees, rows, ways]: [usize; 3],
    set: impl Fn(usize, usize, usize) -> bool,
) -> Result<Secret, Refusal> {
    let element = |at: usize| f32::from(u8::from(set(at / ways / rows, at / ways % rows, at % ways)));
    let bits = Tensor::new([trees, rows, ways, 1], (0..trees * rows * ways).map(element).collect());
    cx.hidden_bits(x, (role, &bits))
}

/// How often each bit of the numbers [targets, bits, rows] is set at the leaves that rows reach.
fn descend(
    cx: &mut Lowering,
    ensemble: &Ensemble,
    asking: &Asking,
    places: &Places,
    words: &[i64],
) -> Result<Secret, Refusal> {
    let (x, size) = (asking.x, asking.size);
    let &Size { trees, rows, targets, number, .. } = size;
    // Where rows are [places, trees, rows]; at the roots, all of them.
    let mut here: Option<Secret> = None;
    let mut ended = vec![];
    for (at, (level, next)) in size.led().enumerate() {
        let tests = asking.tests(cx, ensemble, &places.tests[at])?;
        let ways = asking.ways(cx, &tests, here.as_ref())?;
        if level.open {
            here = Some(ways);
            continue;
        }
        if let Some(next) = next {
            let led = &places.led[at];
            let along = matrix(cx, x, "along", [trees, next, level.ways()], |tree, place, way| {
                led[tree * level.ways() + way] == Some(place)
            })?;
            let by_tree = cx.by_tree(&ways, trees, rows)?;
            let led = cx.bit_product("along", &along, &by_tree)?;
            here = Some(cx.by_place(&led, trees, rows)?);
        }
        ended.push((at, ways));
    }
    // The bits of the numbers at the ends.
    let half = half_of(number);
    let ends: Vec<(usize, usize)> =
        ended.iter().flat_map(|&(at, _)| (0..size.levels[at].ways()).map(move |way| (at, way))).collect();
    let set = |tree: usize, bit: usize, end: usize| {
        let (at, way) = ends[end];
        let leaf = places.ends[at][tree * size.levels[at].ways() + way];
        leaf.is_some_and(|leaf| (words[leaf * targets + bit / number] + half) >> (bit % number) & 1 == 1)
    };
    let numbers = matrix(cx, x, "numbers", [trees, targets * number, ends.len()], set)?;
    let ended = cx.concat("ends", &ended.iter().map(|(_, ways)| ways).collect::<Vec<_>>(), 0)?;
    let ended = cx.by_tree(&ended, trees, rows)?;
    let found = cx.bit_product("number", &numbers, &ended)?;
    let ones = cx.bit_to_ring("ones", &found)?;
    let ones = cx.reshape("by-tree", &ones, [trees, targets * number * rows].into())?;
    let counts = cx.sum("counts", &ones, 0)?;
    cx.reshape("by-target", &counts, [targets, number, rows].into())
}

/// How far the numbers before a border ([`room`]) may lie below the range.
fn room_below(x: &Range) -> i128 {
    2 + (x.magnitude() >> 22)
}

/// What every level asks of.
#[derive(Clone)]
struct Asking<'a> {
    /// The features.
    x: &'a Secret,
    /// Their bits [1, features, bits, rows].
    columns: Secret,
    size: &'a Size,
    /// The number that stands at 0.
    first: i64,
}

impl<'a> Asking<'a> {
    fn of(cx: &mut Lowering, x: &'a Secret, size: &'a Size) -> Result<Self, Refusal> {
        let &Size { features, rows, bits, .. } = size;
        let first = i64::try_from(x.range.hull().0 - room_below(&x.range)).unwrap_or(i64::MIN);
        let moved = cx.combine("from-zero", &[(1, x)], -first)?;
        let columns = cx.bits_of(&moved, bits as u32)?;
        let columns = cx.view("by-feature", &columns, View::transpose(cx.shape(&columns), &[1, 0, 2]))?;
        let columns = cx.reshape("columns", &columns, [1, features, bits, rows].into())?;
        Ok(Asking { x, columns, size, first })
    }

    /// What the places of tests [trees, places] ask for: which feature [trees, features, places,
    /// 1], and which number it is to exceed, the complement of its bits [trees, bits, places, 1].
    fn tests(
        &self,
        cx: &mut Lowering,
        ensemble: &Ensemble,
        tests: &[Option<usize>],
    ) -> Result<[Secret; 2], Refusal> {
        let &Size { trees, features, bits, .. } = self.size;
        let places = tests.len() / trees;
        let borders = ensemble.borders(cx, self.x, tests);
        let frac = cx.frac_of(self.x);
        let words = borders.data.iter().map(|&border| Ok(-cx.encode(border, frac)? - self.first - 1));
        let words: Vec<i64> = words.collect::<Result<_, Refusal>>()?;
        let feature = matrix(cx, self.x, "features", [trees, features, places], |tree, feature, place| {
            tests[tree * places + place].is_some_and(|test| ensemble.forest.tests[test].feature == feature)
        })?;
        let number = matrix(cx, self.x, "thresholds", [trees, bits, places], |tree, bit, place| {
            let at = tree * places + place;
            tests[at].is_some() && words[at] >> bit & 1 == 0
        })?;
        Ok([feature, number])
    }

    /// The ways [2 · places, trees, rows] that rows take from places, of which `here` [places,
    /// trees, rows] says where they are; nothing at the roots.
    fn ways(&self, cx: &mut Lowering, tests: &[Secret; 2], here: Option<&Secret>) -> Result<Secret, Refusal> {
        let &Size { trees, features, rows, bits, .. } = self.size;
        let [feature, number] = tests;
        let [feature, number] = match here {
            Some(here) => {
                let here = cx.by_tree(here, trees, rows)?;
                [cx.bit_product("feature", feature, &here)?, cx.bit_product("threshold", number, &here)?]
            }
            None => [
                cx.broadcast("feature", feature, &[trees, features, 1, rows].into())?,
                cx.broadcast("threshold", number, &[trees, bits, 1, rows].into())?,
            ],
        };
        let feature = cx.reshape("asked", &feature, [1, trees, features, rows].into())?;
        let value = cx.bit_product("value", &feature, &self.columns)?;
        let first = |cx: &mut Lowering, x: &Secret| {
            let x = cx.reshape("bits", x, [trees, bits, rows].into())?;
            cx.view("by-bit", &x, View::transpose(cx.shape(&x), &[1, 0, 2]))
        };
        let (value, number) = (first(cx, &value)?, first(cx, &number)?);
        let passed = cx.exceeds("passed", &value, &number)?;
        let places = here.map_or(1, |here| cx.shape(here).dims()[0]);
        let passed = cx.broadcast("outcomes", &passed, &[places, trees, rows].into())?;
        let [failed, passed] = cx.split(["without", "with"], here, &passed)?;
        cx.concat("ways", &[&failed, &passed], 0)
    }
}

impl Lowering<'_> {
    /// Bits [places, trees, rows] as [trees, places, 1, rows].
    fn by_tree(&mut self, x: &Secret, trees: usize, rows: usize) -> Result<Secret, Refusal> {
        let places = self.shape(x).dims()[0];
        let y = self.view("by-tree", x, View::transpose(&[places, trees, rows].into(), &[1, 0, 2]))?;
        self.reshape("by-tree", &y, [trees, places, 1, rows].into())
    }

    /// Undoes [`Self::by_tree`].
    fn by_place(&mut self, x: &Secret, trees: usize, rows: usize) -> Result<Secret, Refusal> {
        let places = self.shape(x).dims()[1];
        self.view("by-place", x, View::transpose(&[trees, places, rows].into(), &[1, 0, 2]))
    }
}
