//! The primitives.

use crate::{Lookup, PublicMatrix, View, Winner};
use megrez_ring::{Prime, Shape};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use std::cell::Cell;

/// A primitive operation. Everything up to `Gather` is local under every protocol of linear shares.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Op {
    /// A public tensor with `frac` fraction bits, already encoded.
    Constant {
        /// Its shape.
        shape: Shape,
        /// Fraction bits.
        frac: u32,
        /// Row-major signed words.
        words: Vec<i64>,
    },
    /// `Σ coefficients[i] · input[i] + constant`: all inputs ring values of one shape and scale.
    /// The constant is at the scale of the inputs.
    Combine {
        /// One small integer per input.
        coefficients: Vec<i64>,
        /// Added to every element.
        constant: i64,
    },
    /// One input, rearranged.
    View(View),
    /// Inputs joined along an axis.
    Concat {
        /// The axis.
        axis: usize,
    },
    /// Zeros around the input.
    Pad {
        /// Zeros before the first element of each dimension.
        before: Vec<usize>,
        /// Zeros after the last element of each dimension.
        after: Vec<usize>,
    },
    /// The sum along an axis, which stays with size 1.
    Sum {
        /// The axis.
        axis: usize,
    },
    /// Slices of the input along an axis by public index.
    Gather {
        /// The axis.
        axis: usize,
        /// Positions along it.
        indices: Vec<usize>,
    },
    /// The same words with another number of fraction bits: multiplies by a power of two without
    /// touching the shares.
    Rescale {
        /// The new number of fraction bits.
        frac: u32,
    },
    /// The product of 2 to [`MAX_FACTORS`] tensors of one shape, element by element. Scales add. Of
    /// two at least one is secret, of more all are.
    Mul,
    /// A batched matrix product [.., m, k] × [.., k, n]; equal batch dimensions. Scales add.
    MatMul,
    /// A convolution of NCHW with OIHW. Scales add.
    Conv(ConvGeometry),
    /// A product of two secrets, or a function by pieces, that is left as a sum of one summand per
    /// party ([`crate::Kind::Additive`]): linear maps go on with it, and the truncation or the
    /// [`Op::Reshare`] that follows shares it.
    Additive(#[serde(deserialize_with = "inner")] Box<Op>),
    /// x / 2^bits, to the nearest below or above, unbiased; the scale falls by `bits`. |x| <
    /// 2^(ℓ−2).
    Truncate {
        /// How many fraction bits to drop.
        bits: u32,
    },
    /// The secret bit [x ≥ 0]. |x| < 2^(ℓ−1).
    NonNegative(SignBit),
    /// The secret bits [x ≥ t] of one value against many public thresholds: bit i of the new first
    /// dimension compares with threshold i. |x − t| < 2^(ℓ−1) for every threshold.
    CompareMany {
        /// How each bit is computed.
        sign: SignBit,
        /// The thresholds, as words at the scale of x.
        thresholds: Vec<i64>,
    },
    /// max(x, 0), with `truncate` fraction bits dropped in the same step.
    Relu(Relu),
    /// The largest of 2 to [`MAX_OPERANDS`] values of one shape and scale, by comparing every pair
    /// of them at once.
    /// |x − y| < 2^(ℓ−1) for every pair. A cut is made in each value before they are subtracted: all comparisons then agree
    /// on one order, and the result is one of the values, at most 2^(cut+1) below the largest.
    Maximum(SignBit),
    /// A ReLU, a maximum, a table or a winner on shares of two workers and a dealer, in a plan of
    /// replicated values: these are such shares without a message, so a plan may mix both families
    /// step by step (`megrez_passes::offload_to_dealer`).
    Offloaded(#[serde(deserialize_with = "inner")] Box<Op>),
    /// The ℓ bits of a ring value, lowest first, along a new first dimension.
    ToBits,
    /// The ring value, without fraction bits, whose ℓ bits lie along the first dimension, lowest
    /// first.
    FromBits,
    /// x + y modulo 2^n of two values whose n ≥ 2 bits lie along the first dimension, lowest first.
    AddBits,
    /// bit · x for a secret bit and a secret ring value of one shape; x / 2^`truncate` in its
    /// place, as a truncation gives it, where that is not 0.
    Select {
        /// The fraction bits that are dropped, for |x| < 2^(ℓ−2).
        truncate: u32,
    },
    /// A secret bit as the ring value 0 or 1 (no fraction bits).
    BitToRing,
    /// a ⊕ b of secret bits.
    Xor,
    /// The conjunction of 2 to [`MAX_FACTORS`] secret bits.
    And,
    /// ¬a.
    Not,
    /// A function of one value by pieces, each a polynomial on one of 2^n segments. [`Lookup`] says
    /// where it holds.
    Lookup(Lookup),
    /// The largest of 2 to [`crate::MAX_CONTENDERS`] values along the first dimension, or its
    /// place, by dealt tables of all pairs and of the counts of wins. [`Winner`] says where it is
    /// right.
    Winner(Winner),
    /// The last dimension of one input times a matrix that every party has in a file. Local, scales
    /// add.
    TimesPublic(PublicMatrix),
    /// Noise that no party knows, with `frac` fraction bits: the sum of what two parties draw, each
    /// from the discrete Gaussian distribution, and each enough by itself. Modulo 2^ℓ.
    Noise {
        /// Its shape.
        shape: Shape,
        /// Fraction bits.
        frac: u32,
        /// The standard deviation of what each of the two draws, in words; 0 for none.
        deviation: u64,
    },
    /// Of each group of neighbours along the first dimension the sum of the values whose secret bit
    /// is a one: bit · x for bits and ring values of one shape, added up before they are shared
    /// again.
    SelectSum {
        /// How many neighbours each group has.
        groups: Vec<usize>,
    },
    /// The product of two secrets of one shape, element by element, or the square of one, where
    /// fraction bits are dropped before: (x / 2^a)·(y / 2^b), each as a truncation gives it, for
    /// |x|, |y| < 2^(ℓ−2) and a + b ≤ ℓ (2a ≤ ℓ for a square). The scales that are left add.
    MulTruncated {
        /// The fraction bits that each input loses; of two, one may lose none.
        bits: Vec<u32>,
    },
    /// A value that was left as a sum ([`Op::Additive`]), shared.
    Reshare,
    /// The lowest bit of the word: its remainder modulo 2. Local, since shares modulo 2^ℓ are
    /// shares modulo 2.
    LowBit,
    /// Products of matrices of secret bits, x [batch, m, k, lanes] · y [batch, k, n, lanes] over
    /// F_2: bit (b, i, j, l) is the exclusive or over k of x(b, i, k, l) ∧ y(b, k, j, l), opened
    /// once. One operand may have one lane, which then is every lane's.
    BitMatMul,
    /// Polynomials over F_2 of the slices of secret bits along the first dimension: slice i of the
    /// result is the exclusive or of the terms of `sums[i]`, each the conjunction of 1 to
    /// [`MAX_FACTORS`] slices, and is opened once.
    BitPolynomials {
        /// The numbers of each term's slices, rising; of each polynomial, its terms.
        sums: Vec<Vec<Vec<usize>>>,
    },
}

impl Op {
    /// Whether it is the same linear map on every component of a linear sharing, so that nothing is
    /// drawn or sent.
    pub fn is_linear(&self) -> bool {
        matches!(
            self,
            Op::Combine { .. }
                | Op::View(_)
                | Op::Concat { .. }
                | Op::Pad { .. }
                | Op::Sum { .. }
                | Op::Gather { .. }
                | Op::Rescale { .. }
                | Op::TimesPublic(_)
        )
    }
}

/// The largest standard deviation of [`Op::Noise`].
pub const MAX_DEVIATION: u64 = 1 << 54;

/// Reads the operation inside of another, which has none inside of itself: bytes from anywhere must
/// not decide how deep a reader calls itself.
fn inner<'de, D: Deserializer<'de>>(from: D) -> Result<Box<Op>, D::Error> {
    thread_local!(static INSIDE: Cell<bool> = const { Cell::new(false) });
    if INSIDE.replace(true) {
        return Err(D::Error::custom("an operation in an operation in an operation"));
    }
    let op = Op::deserialize(from);
    INSIDE.set(false);
    op.map(Box::new)
}

/// The most thresholds of one [`Op::CompareMany`].
pub const MAX_THRESHOLDS: usize = 64;

/// The most values of one [`Op::Maximum`]: pairs and what is dealt for them grow fast.
pub const MAX_OPERANDS: usize = 4;

/// The most terms of one polynomial of [`Op::BitPolynomials`].
pub const MAX_TERMS: usize = 64;

/// The most factors of one [`Op::Mul`] or [`Op::And`].
pub const MAX_FACTORS: usize = 4;

/// How a sign bit is computed. Protocols that have no such choice ignore the parts that they do not
/// know.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct SignBit {
    /// The list that the workers send to the dealer (dealer-based protocols).
    pub list: List,
    /// How many low bits of the value to ignore: k of the deterministic cut.
    pub cut: u32,
    /// How many bits to compare after the cut, sign included: λ; `None` compares all that remain.
    pub bits: Option<u32>,
}

impl SignBit {
    /// All ℓ bits, with the paper's bit list.
    pub const FULL: SignBit = SignBit { list: List::Bits, cut: 0, bits: None };

    /// λ on a ring of ℓ = `ring` bits.
    pub fn width(&self, ring: u32) -> u32 {
        self.bits.unwrap_or(ring - self.cut)
    }

    /// How many field elements may be dealt for one comparison on a ring of ℓ = `ring` bits, where
    /// a list is.
    pub fn dealt(&self, ring: u32) -> usize {
        match &self.list {
            List::Bits => self.width(ring) as usize - 1,
            List::Digits(widths) => widths.iter().map(|w| (1 << w) - 1).sum(),
            // Bits, in fact, and no more than six for one that is compared.
            List::Tree => self.width(ring) as usize,
        }
    }
}

/// The list of a dealer-based sign bit.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum List {
    /// One entry per bit (MIZAR, Fig. 4).
    Bits,
    /// One entry per digit, widths from the most significant; they sum to λ − 1.
    Digits(Vec<u32>),
    /// No list: carries of digits, joined by a tree. The dealer takes no part online, and a round
    /// more is taken from 18 bits on, but fewer bits in all. Of signs and of many thresholds; what
    /// else compares takes the digits of fewest bits.
    Tree,
}

/// What digit widths are chosen for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Fewest {
    /// Bits over both phases: for links where material is made when it is used.
    Total,
    /// Online bits, offline ones counted a quarter: for slow links with time before the inputs
    /// come.
    Online,
}

impl List {
    /// The digits for a comparison of `lambda` ≥ 2 bits that cost least: of all lists of n digits
    /// of at most 4 bits, as even as they can be (2^w is convex, so even widths deal the fewest
    /// elements).
    pub fn digits(lambda: u32, fewest: Fewest) -> List {
        let bits = lambda.max(2) - 1;
        let candidates = (bits.div_ceil(4)..=bits).map(|n| {
            let (low, wider) = (bits / n, bits % n);
            (0..n).map(|i| low + u32::from(i < wider)).collect::<Vec<u32>>()
        });
        let cost = |widths: &Vec<u32>| {
            let per_element = Prime::above(widths.len() as u32).wire_bits();
            let dealt: u32 = widths.iter().map(|w| (1 << w) - 1).sum();
            let offline = match fewest {
                Fewest::Total => 1.0,
                Fewest::Online => 0.25,
            };
            per_element * (2.0 * widths.len() as f64 + offline * f64::from(dealt))
        };
        List::Digits(candidates.min_by(|a, b| cost(a).total_cmp(&cost(b))).unwrap_or_default())
    }
}

/// A ReLU, possibly with a truncation in the same step.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Relu {
    /// The comparison in it.
    pub sign: SignBit,
    /// How the product with the bit is opened.
    pub form: ReluForm,
    /// Fraction bits dropped; 0 for a plain ReLU.
    pub truncate: u32,
}

/// The forms of ReLU on masked shares.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum ReluForm {
    /// Three rounds; the output mask is fresh and known offline.
    ThreeRounds,
    /// Two rounds; the dealer learns the output mask only online.
    TwoRounds,
    /// Two rounds and 2ℓ more bits; the output mask is fresh.
    TwoRoundsFresh,
    /// One round by a dealt truth table; small λ only.
    Table,
    /// One round and 2ℓ bits by a dealt key of a distributed comparison function; the output mask
    /// is fresh. λ·160 bits or so for each worker offline.
    Key,
    /// Two rounds (three from 29 bits on) and little more than 2ℓ bits by dealt tables of digits:
    /// nothing from or to the dealer online; the output mask is fresh. 1200 bits or so offline
    /// where few are compared.
    DigitTables,
}

/// The geometry of a two-dimensional convolution.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct ConvGeometry {
    /// Steps of the window, rows and columns.
    pub stride: [usize; 2],
    /// Zeros around the image: top, left, bottom, right.
    pub pad: [usize; 4],
    /// Distance between taps, rows and columns.
    pub dilation: [usize; 2],
    /// Channels are split into this many independent convolutions.
    pub groups: usize,
}

impl Default for ConvGeometry {
    fn default() -> Self {
        ConvGeometry { stride: [1; 2], pad: [0; 4], dilation: [1; 2], groups: 1 }
    }
}

impl ConvGeometry {
    /// The output's rows and columns for an input and a kernel of these sizes; `None` where the
    /// kernel does not fit or a number is absurd.
    pub fn output(&self, image: [usize; 2], kernel: [usize; 2]) -> Option<[usize; 2]> {
        let side = |d: usize| {
            let padded = image[d].checked_add(self.pad[d])?.checked_add(self.pad[d + 2])?;
            let reach = kernel[d].checked_sub(1)?.checked_mul(self.dilation[d])?.checked_add(1)?;
            Some(padded.checked_sub(reach)? / Some(self.stride[d]).filter(|&s| s > 0)? + 1)
        };
        Some([side(0)?, side(1)?])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_widths_of_the_cost_table_are_found() {
        let table: [(u32, &[u32]); 6] = [
            (8, &[4, 3]),
            (12, &[3, 3, 3, 2]),
            (16, &[3, 3, 3, 2, 2, 2]),
            (24, &[2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1]),
            (32, &[3, 3, 3, 3, 3, 3, 3, 2, 2, 2, 2, 2]),
            (64, &[&[3; 7][..], &[2; 21][..]].concat()),
        ];
        for (lambda, widths) in table {
            assert_eq!(List::digits(lambda, Fewest::Total), List::Digits(widths.to_vec()), "λ = {lambda}");
        }
        for lambda in 2..=64 {
            let List::Digits(widths) = List::digits(lambda, Fewest::Online) else { panic!("digits") };
            assert_eq!(widths.iter().sum::<u32>(), lambda - 1);
        }
    }
}
