//! How to lower a graph: everything that a caller chooses.

use crate::calibration::Calibration;
use crate::publisher::Publisher;
use crate::range::{Interval, RangePolicy};
use megrez_plan::{Fewest, List, ReluForm, SignBit};
use std::collections::{BTreeMap, BTreeSet};

/// How to lower a graph.
#[derive(Clone, Debug, PartialEq)]
pub struct CompileOptions {
    /// ℓ: 32, 40, 48 or 64.
    pub ring: u32,
    /// f: the fraction bits of inputs, weights and truncated values. 1 ≤ f ≤ ℓ/2 − 2.
    pub frac: u32,
    /// The most fraction bits that a deep model gets in place of `frac`, as many as its ranges
    /// leave room for ([`crate::passes::precision`]). `None` gives every model `frac`.
    pub deep_frac: Option<u32>,
    /// The client who provides the weights.
    pub model_owner: String,
    /// The client who provides the inputs.
    pub data_owner: String,
    /// The client who learns the outputs.
    pub recipient: String,
    /// What every element of an input lies in.
    pub input_range: Interval,
    /// Other ranges for inputs by name.
    pub input_ranges: BTreeMap<String, Interval>,
    /// Ranges that take the place of what the weights prove, so that the plan tells nothing about
    /// secret weights.
    pub declared: Option<Declared>,
    /// Outputs by name that stay with the parties in shares, and the name that they are kept under;
    /// an input of that name is what an earlier run kept.
    pub kept: BTreeMap<String, String>,
    /// Outputs among those that are kept with all the fraction bits that they have.
    pub unrounded: BTreeSet<String>,
    /// How many fraction bits kept inputs have, where these are not f.
    pub kept_frac: BTreeMap<String, u32>,
    /// What to do where a range cannot be proven.
    pub policy: RangePolicy,
    /// What was measured on data, for [`RangePolicy::Calibrated`].
    pub measured: Option<Calibration>,
    /// Whether every range that rests on what was measured is held to it during the run, and the
    /// recipient told, in one bit, whether all were kept
    /// ([`After::InRange`](crate::lower::After::InRange)).
    pub guard: bool,
    /// How ReLUs compare.
    pub comparison: Comparison,
    /// The form of every ReLU.
    pub relu: ReluForm,
    /// How pools find the largest value of a window.
    pub pool: PoolForm,
    /// Whether products wait for their truncation before they are shared
    /// ([`megrez_passes::defer_resharing`]), and maxima of all pairs are made of other steps
    /// ([`megrez_passes::spread_maxima`]): for protocols of equal parties.
    pub defer_resharing: bool,
    /// Whether a selection takes the truncation of what it selects, or its sum, into its own step:
    /// for protocols of which the registry says so.
    pub selects_truncated: bool,
    /// Whether a product takes the truncations of its factors into its own step
    /// ([`megrez_passes::truncate_in_products`]): for protocols of which the registry says so.
    pub multiplies_truncated: bool,
    /// Whether there are products of matrices of bits: for protocols of which the registry says so.
    pub multiplies_bits: bool,
    /// What products and functions by pieces open waits until linear steps have made less of it
    /// ([`megrez_passes::defer_openings`]): for protocols of which the registry says so, and plans
    /// of which nothing between is looked at.
    pub defer_openings: bool,
    /// From how many elements on steps are cut along their first dimension
    /// ([`megrez_passes::slice_rows`]), if any are: for plans of which nothing between is looked
    /// at.
    pub sliced: Option<usize>,
    /// Whether the plan is for parties who are equal, on replicated shares: tables are dealt,
    /// maxima made of comparisons. Part of `defer_resharing`, and for runs in which every layer is
    /// opened.
    pub replicated: bool,
    /// The largest ReLUs and maxima, in elements, that are computed by two workers and a dealer
    /// ([`megrez_passes::offload_to_dealer`]): for plans of replicated values, that is, with
    /// `defer_resharing`.
    pub offload: usize,
    /// The largest ReLUs, in elements, that take keys whatever the form of the others is
    /// ([`megrez_passes::key_small_relus`]).
    pub keyed: usize,
    /// What stands for smooth activations.
    pub activations: Activations,
    /// How long a message is on its way between two parties, in nanoseconds: a table may take as
    /// long where that spares a round.
    pub delay_ns: u64,
    /// How long a MiB takes on a link beside that, in nanoseconds.
    pub mib_ns: u64,
    /// What everybody sees of ensembles of trees.
    pub trees: TreeForm,
    /// Whether the weights are secret. If not they stand in the plan, for every party to see.
    pub private_weights: bool,
    /// Who makes matrices public, where weights are not secret. Without one all weights stand in
    /// the plan itself.
    pub publisher: Option<Publisher>,
    /// Whether the owner of tokens looks up the rows of public tables that they name, and shares
    /// those. If not, tokens are shared, and the parties multiply.
    pub embed: bool,
}

impl CompileOptions {
    /// Whether a table of an activation may begin and end where its range does.
    pub(crate) fn tells(&self) -> bool {
        let may = self.declared.is_some() || self.activations == Activations::Lookup;
        self.policy == RangePolicy::Prove && may
    }

    /// Whether comparisons, and so everybody, follow what was measured of each layer.
    pub(crate) fn tells_measured(&self) -> bool {
        let measured = matches!(self.comparison, Comparison::Fitted { calibration: Some(_), .. });
        measured && self.policy == RangePolicy::Calibrated
    }

    /// Whether no value leaves its range, proven or guarded, and a table may begin and end there.
    pub(crate) fn holds_ranges(&self) -> bool {
        self.tells() || (self.tells_measured() && self.guard)
    }

    /// Whether more than tables may follow from ranges: what the weights prove, too. With declared
    /// ranges a plan tells nothing about weights.
    pub(crate) fn shows_ranges(&self) -> bool {
        self.declared.is_none() && self.holds_ranges()
    }
}

/// Ranges of the layers that read secret weights. Everything behind such a layer is laid out for
/// the declared range: which form an exponential or a root takes, how many multiples it compares
/// with, how wide a fitted comparison is. Without a declaration all of this follows from the range
/// that the weights prove, so that whoever sees the plan learns something about them.
///
/// The weights must still prove that each declaration holds (or the policy assumes it).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Declared {
    /// What the output of every such layer lies in, where `layers` does not say.
    pub all: Option<Interval>,
    /// By the layer's name.
    pub layers: BTreeMap<String, Interval>,
}

/// How a pool finds the largest value of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolForm {
    /// By ReLUs, two values at a time: every protocol has it.
    Tournament,
    /// Up to four values at a time, by comparing all pairs at once: fewer rounds, and more bits
    /// offline.
    AllPairs,
}

/// What everybody sees of an ensemble of trees. Thresholds and the numbers of leaves are secret
/// weights in both forms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TreeForm {
    /// The number of trees, how many leaves the largest has, rounded up to a power of two, and, for
    /// many rows, how deep the deepest is.
    Hidden,
    /// The exact shape of every tree, and which feature each test looks at.
    Shape,
}

/// What stands for smooth activations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activations {
    /// Splines of four segments, fitted for the least error.
    Minimax,
    /// Splines of higher degree, a fifth to a sixtieth of the error for two rounds and some bits
    /// more; on the 64-bit ring. With more than 16 fraction bits, of a degree as high again: a
    /// hundredth of the error for two rounds more.
    Fine,
    /// Pieces in dealt tables: one round, an error of 2^−12 at most on the 64-bit ring, and some
    /// thousand bits a value offline. For protocols that look up ([`megrez_plan::Op::Lookup`]).
    /// Where a table of an activation begins and ends is told by the plan, and follows from proven
    /// ranges, and so from weights, to a factor of two.
    Lookup,
    /// The same tables, of activations the same whatever the weights are, with a comparison beside
    /// each: three rounds.
    Tables,
    /// Sigmoid and GELU as MIZAR's Appendix B prints them, the others as ever: to compare with.
    Mizar,
}

impl Activations {
    /// Whether functions come from tables.
    pub(crate) fn looks_up(self) -> bool {
        matches!(self, Activations::Lookup | Activations::Tables)
    }
}

/// How the comparisons of a plan are chosen.
#[derive(Clone, Debug, PartialEq)]
pub enum Comparison {
    /// The same everywhere, for values of `frac` fraction bits: where a value carries more, and
    /// `bits` is given, as many more low bits are cut.
    Fixed(SignBit),
    /// As many bits as the values of each comparison need: fraction bits beyond `frac` are cut,
    /// because the truncation that follows drops them, and high bits that the range of the values
    /// leaves empty. No such comparison errs by more than the truncation does. The widths follow
    /// from the weights (or from [`CompileOptions::declared`]) or from the calibration data, and
    /// stand in the plan: whoever sees it learns each layer's magnitude to a factor of two.
    Fitted {
        /// The list.
        list: ListStyle,
        /// Compare at most so many bits: where more are needed, more low bits are cut, and negative
        /// values smaller than 2^cut may count as positive.
        bits: Option<u32>,
        /// Measured magnitudes; without them, the proven ranges decide.
        calibration: Option<Calibration>,
    },
}

impl Comparison {
    /// The same comparisons, by trees of digits.
    pub fn by_trees(&self) -> Comparison {
        match self.clone() {
            Comparison::Fixed(sign) => Comparison::Fixed(SignBit { list: List::Tree, ..sign }),
            Comparison::Fitted { bits, calibration, .. } => {
                Comparison::Fitted { list: ListStyle::Tree, bits, calibration }
            }
        }
    }
}

/// The list of fitted comparisons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListStyle {
    /// One entry per bit.
    Bits,
    /// One entry per digit.
    Digits(Fewest),
    /// A tree of digits.
    Tree,
}

impl ListStyle {
    /// The list of a comparison of so many bits.
    pub(crate) fn of(self, width: u32) -> List {
        match self {
            ListStyle::Bits => List::Bits,
            ListStyle::Digits(fewest) => List::digits(width, fewest),
            ListStyle::Tree => List::Tree,
        }
    }
}

impl From<&List> for ListStyle {
    fn from(list: &List) -> Self {
        match list {
            List::Bits => ListStyle::Bits,
            List::Digits(_) => ListStyle::Digits(Fewest::Total),
            List::Tree => ListStyle::Tree,
        }
    }
}

impl Default for CompileOptions {
    fn default() -> Self {
        CompileOptions {
            ring: 64,
            frac: 16,
            deep_frac: None,
            model_owner: "model-owner".into(),
            data_owner: "data-owner".into(),
            recipient: "data-owner".into(),
            input_range: Interval::abs(1.0),
            input_ranges: BTreeMap::new(),
            declared: None,
            kept: BTreeMap::new(),
            unrounded: BTreeSet::new(),
            kept_frac: BTreeMap::new(),
            policy: RangePolicy::Prove,
            measured: None,
            guard: false,
            delay_ns: 0,
            mib_ns: 0,
            comparison: Comparison::Fixed(SignBit::FULL),
            relu: ReluForm::ThreeRounds,
            pool: PoolForm::Tournament,
            defer_resharing: false,
            selects_truncated: false,
            multiplies_truncated: false,
            multiplies_bits: false,
            defer_openings: false,
            sliced: None,
            replicated: false,
            offload: 0,
            keyed: 0,
            activations: Activations::Minimax,
            trees: TreeForm::Hidden,
            private_weights: true,
            publisher: None,
            embed: true,
        }
    }
}
