//! The largest of several values by the counts of their wins: what
//! [`Op::Winner`](crate::Op::Winner) computes, and what is dealt for it.
//!
//! K values lie along the first dimension. Of each the `cut` lowest bits are ignored, y = ⌊x/2^cut⌋
//! or one more, and every two are compared: i beats j if y_i ≥ y_j, of equal ones the first. So all
//! answers are those of one order, and one value beats all K − 1 others: the winner, less than
//! 2^(cut+1) below the largest value. Right while |x_i − x_j| ≤ 2^(cut+λ−1) − 2^(cut+1), or
//! < 2^(λ−1) without a cut; beyond that pairs may beat each other in a circle, and where nobody
//! beats all others the first counts as the winner.

use crate::error::{Mistake, refuse};
use megrez_ring::Shape;
use serde::{Deserialize, Serialize};

/// The most values of one [`Op::Winner`](crate::Op::Winner).
pub const MAX_CONTENDERS: usize = 16;

/// The most bits that it compares: tables of pairs have 2^(λ−1) entries.
pub const MAX_WINNER_BITS: u32 = 11;

/// How the largest of several values is found, and what of it is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Winner {
    /// How many low bits of each value are ignored.
    pub cut: u32,
    /// How many bits of the difference of two cut values are compared, sign included: λ.
    pub bits: u32,
    /// What comes out.
    pub gives: Gives,
}

/// What an [`Op::Winner`](crate::Op::Winner) gives.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Gives {
    /// The winner's value: the shape is that of one contender.
    Value,
    /// 1 at the winner's place and 0 at all others, without fraction bits: the shape is that of the
    /// input.
    OneHot,
}

impl Winner {
    /// Entries of the table of a pair that are dealt: the other half are one minus these.
    pub fn entries(&self) -> usize {
        1 << (self.bits - 1)
    }

    /// Pairs of k values.
    pub fn pairs(k: usize) -> usize {
        k * k.saturating_sub(1) / 2
    }

    /// Bits of a count of wins of k values, c: 2^c is k or more.
    pub fn count_bits(k: usize) -> u32 {
        k.next_power_of_two().trailing_zeros()
    }

    /// Words that are dealt for the entries of a count: the indicator of the winner, and that times
    /// a mask where the value is wanted.
    pub fn words(&self) -> usize {
        match self.gives {
            Gives::Value => 2,
            Gives::OneHot => 1,
        }
    }

    /// Bits that are dealt for one of k values each, on a ring of ℓ = `ring` bits:
    /// k(k−1)/2·2^(λ−1)·c for the pairs, and (k−1)·2^c words or twice as many for the counts.
    pub fn dealt_bits(&self, ring: u32, k: usize) -> usize {
        let count = Self::count_bits(k);
        let pairs = Self::pairs(k) * self.entries() * count as usize;
        pairs + ((k - 1) << count) * self.words() * ring as usize
    }

    /// The shape of the result for values of this shape on a ring of `ring` bits.
    pub(crate) fn output(&self, ring: u32, shape: &Shape) -> Result<Shape, Mistake> {
        let Some((&k, rest)) = shape.dims().split_first() else {
            return refuse("takes values along a first dimension");
        };
        if !(2..=MAX_CONTENDERS).contains(&k) {
            return refuse(format!("takes 2 to {MAX_CONTENDERS} values, has {k}"));
        }
        // One after the other: numbers from elsewhere may be as large as they like.
        let few = (2..=MAX_WINNER_BITS).contains(&self.bits);
        if self.cut >= ring || !few || self.bits > ring - self.cut {
            return refuse(format!(
                "cannot compare {} bits after cutting {} of {ring}: 2 to {MAX_WINNER_BITS} are compared",
                self.bits, self.cut
            ));
        }
        // While tables are made, all of their entries are words.
        let words = (2 * self.entries() * Self::pairs(k)).max(((k - 1) << Self::count_bits(k)) * 2);
        let rest = Shape::from(rest.to_vec());
        if let Err(e) = Shape::from([words, rest.elements()]).checked() {
            return refuse(format!("what is dealt for it is too large: {e}"));
        }
        Ok(match self.gives {
            Gives::Value => rest,
            Gives::OneHot => shape.clone(),
        })
    }

    /// The winner of k words that differ by no more than they may, none of which is cut.
    pub fn exact(values: &[i64]) -> usize {
        (1..values.len()).fold(0, |best, i| if values[i] > values[best] { i } else { best })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Kind, Op, Plan, PlanError, Value};

    const FEW: Winner = Winner { cut: 3, bits: 5, gives: Gives::Value };

    fn step(winner: Winner, shape: &[usize]) -> Result<Value, PlanError> {
        let mut plan = Plan::new(64);
        let x = plan.input("x", "alice", shape.to_vec().into(), 16);
        let z = plan.step("z", Op::Winner(winner), &[x])?;
        plan.output("z", "alice", z);
        plan.validate()?;
        Ok(plan.value(z).clone())
    }

    #[test]
    fn what_comes_out_has_the_shape_of_one_value_or_of_all() {
        let value = step(FEW, &[5, 2, 3]).unwrap();
        assert_eq!(value, Value { shape: [2, 3].into(), kind: Kind::Ring { frac: 16 } });
        let one_hot = step(Winner { gives: Gives::OneHot, ..FEW }, &[5, 2, 3]).unwrap();
        assert_eq!(one_hot, Value { shape: [5, 2, 3].into(), kind: Kind::Ring { frac: 0 } });
    }

    #[test]
    fn damaged_winners_are_refused() {
        let refused = |winner, shape: &[usize], why: &str| {
            let e = step(winner, shape).unwrap_err().to_string();
            assert!(e.contains(why), "{e}");
        };
        refused(FEW, &[], "a first dimension");
        for k in [0, 1, 17, 1 << 20] {
            refused(FEW, &[k, 3], "takes 2 to 16 values");
        }
        for (cut, bits) in [(3, 0), (3, 1), (3, 12), (3, u32::MAX), (64, 5), (u32::MAX, 5), (60, 5)] {
            refused(Winner { cut, bits, ..FEW }, &[4, 3], "cannot compare");
        }
        refused(Winner { bits: 11, ..FEW }, &[16, 1 << 20], "too large");
        let mut plan = Plan::new(64);
        let x = plan.input("x", "alice", [4, 3].into(), 16);
        let bits = plan.step("bits", Op::ToBits, &[x]).unwrap();
        for inputs in [vec![], vec![x, x], vec![bits]] {
            assert!(plan.step("z", Op::Winner(FEW), &inputs).is_err());
        }
    }

    #[test]
    fn the_first_of_equal_values_wins() {
        assert_eq!([[3, 3, 1], [1, 3, 3], [-5, -7, -5]].map(|x| Winner::exact(&x)), [0, 1, 0]);
        assert_eq!([2, 3, 4, 5, 8, 9, 16].map(Winner::count_bits), [1, 2, 2, 3, 3, 4, 4]);
        assert_eq!(FEW.dealt_bits(64, 10), 45 * 16 * 4 + 9 * 16 * 2 * 64);
    }
}
