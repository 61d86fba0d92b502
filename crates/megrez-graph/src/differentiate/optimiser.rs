//! Learning rates and momentum, in numbers that a truncation takes for nothing.

use crate::layers::MOMENTUM_BITS;
use std::fmt;
use std::str::FromStr;

/// A learning rate c·2^−k with 1 ≤ c < 16 and 0 ≤ k ≤ 30: a factor for the words and a number of
/// fraction bits, both free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    factor: u32,
    bits: u32,
}

impl Rate {
    /// c·2^−k; `None` outside of what is allowed.
    pub fn new(factor: u32, bits: u32) -> Option<Self> {
        ((1..16).contains(&factor) && bits <= 30).then_some(Rate { factor, bits })
    }

    /// The number.
    pub fn value(self) -> f64 {
        f64::from(self.factor) * 2f64.powi(-(self.bits as i32))
    }

    /// Half of it; `None` below what is allowed.
    pub fn halved(self) -> Option<Self> {
        Rate::new(self.factor, self.bits + 1)
    }

    /// The product with another as c·2^−k, exact.
    pub(super) fn times(self, other: Rate) -> (i64, i64) {
        ((self.factor * other.factor).into(), (self.bits + other.bits).into())
    }

    /// 2^`bits` over a batch, as [`over`](Self::over).
    pub(super) fn scaled_share(bits: u32, batch: usize) -> (i64, i64) {
        let (factor, more) = Rate { factor: 1, bits: 0 }.over(batch);
        let more = more - i64::from(bits);
        (factor << (-more).max(0), more.max(0))
    }

    /// c and k.
    pub(super) fn parts(self) -> (i64, i64) {
        (self.factor.into(), self.bits.into())
    }

    /// This rate over a batch as c·2^−k: exact where the batch is a power of two, else with 8
    /// significant bits: 0.4 % of a rate is nothing, and every bit is one less for the gradient.
    pub(super) fn over(self, batch: usize) -> (i64, i64) {
        let (twos, odd) = (batch.trailing_zeros(), batch >> batch.trailing_zeros());
        if odd == 1 {
            return (self.factor.into(), (self.bits + twos).into());
        }
        let more = 8 + odd.ilog2() - self.factor.ilog2();
        let factor = (f64::from(self.factor) * 2f64.powi(more as i32) / odd as f64).round();
        (factor as i64, (self.bits + twos + more).into())
    }
}

/// `2^-4`, `3*2^-6`, or a number that is one of these.
impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("`{text}` is no rate c·2^-k with c from 1 to 15 and k from 0 to 30, such as 2^-4");
        let text_of = |power: &str| power.trim().strip_prefix("2^-").and_then(|k| k.parse::<u32>().ok());
        if let Some(bits) = text_of(text) {
            return Rate::new(1, bits).ok_or_else(wrong);
        }
        if let Some((factor, power)) = text.split_once('*') {
            let rate = factor.trim().parse().ok().zip(text_of(power)).and_then(|(c, k)| Rate::new(c, k));
            return rate.ok_or_else(wrong);
        }
        let number: f64 = text.trim().parse().map_err(|_| wrong())?;
        let exact = |k: &u32| (number * 2f64.powi(*k as i32)).fract() == 0.0;
        let bits = (0..=30).find(exact).ok_or_else(wrong)?;
        let factor = number * 2f64.powi(bits as i32);
        if (1.0..16.0).contains(&factor) { Rate::new(factor as u32, bits) } else { None }.ok_or_else(wrong)
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.factor {
            1 => write!(f, "2^-{}", self.bits),
            factor => write!(f, "{factor}*2^-{}", self.bits),
        }
    }
}

/// How weights follow their gradients: w' = w − v', v' = momentum·v + rate·(gradient/B + decay·w),
/// as `torch.optim.SGD` has it for a constant rate; when the rate changes, v stays as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Optimiser {
    /// The learning rate.
    pub rate: Rate,
    /// In units of 2^−8; 0 for plain SGD.
    pub momentum: u8,
    /// The weight decay: a step takes rate·decay of each weight away.
    pub decay: Option<Rate>,
    /// Steps are divided by the roots of what squares of gradients are on average: Adam and
    /// AMSGrad.
    pub squares: Option<Squares>,
}

/// How squares of gradients are averaged: u' = β·u + (1 − β)·g², and w' = w − rate·(m'/√(h + ε) +
/// decay·w), with m' = momentum·m + (1 − momentum)·g. These are AdamW and AMSGrad without their
/// corrections of the first steps, which are larger for that: by up to (1 − momentum)/√(1 − β).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Squares {
    /// β in units of 2^−10.
    pub beta: u16,
    /// h is the largest u so far (AMSGrad), and not the last (Adam).
    pub largest: bool,
}

impl Squares {
    /// Gradients are taken 2^6 times as large, so that their squares have 12 more bits. √ε is 2^−12
    /// of a gradient.
    pub(super) const BITS: u32 = 6;

    /// β = 1023/1024.
    pub fn new(largest: bool) -> Self {
        Squares { beta: 1023, largest }
    }
}

impl Optimiser {
    /// Plain stochastic gradient descent.
    pub fn sgd(rate: Rate) -> Self {
        Optimiser { rate, momentum: 0, decay: None, squares: None }
    }

    /// With momentum, which is rounded to a multiple of 2^−8.
    ///
    /// # Errors
    /// If it is not from 0 to 1, without 1.
    pub fn with_momentum(rate: Rate, momentum: f64) -> Result<Self, String> {
        let units = (momentum * f64::from(1u32 << MOMENTUM_BITS)).round();
        match (0.0..256.0).contains(&units) {
            true => Ok(Optimiser { momentum: units as u8, ..Optimiser::sgd(rate) }),
            false => Err(format!("momentum is from 0 to 255/256, not {momentum}")),
        }
    }

    /// By its name: `sgd`, `adam` or `amsgrad`; without a momentum, none or 230/256.
    ///
    /// # Errors
    /// If there is none of this name, or the momentum is not from 0 to 1, without 1.
    pub fn named(name: &str, rate: Rate, momentum: Option<f64>, decay: Option<Rate>) -> Result<Self, String> {
        let squares = match name {
            "sgd" => None,
            "adam" => Some(Squares::new(false)),
            "amsgrad" => Some(Squares::new(true)),
            _ => return Err(format!("there is no optimiser `{name}`: sgd, adam or amsgrad")),
        };
        let default = if squares.is_some() { 0.9 } else { 0.0 };
        let optimiser = Optimiser::with_momentum(rate, momentum.unwrap_or(default))?;
        Ok(Optimiser { decay, squares, ..optimiser })
    }

    /// The same at another rate.
    #[must_use]
    pub fn at(self, rate: Rate) -> Self {
        Optimiser { rate, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read_and_divided_by_the_batch() {
        let of = |text: &str| text.parse::<Rate>();
        assert_eq!(of("2^-4"), Ok(Rate { factor: 1, bits: 4 }));
        assert_eq!(of("0.375"), Ok(Rate { factor: 3, bits: 3 }));
        assert_eq!(of("3*2^-6").unwrap().to_string(), "3*2^-6");
        for wrong in ["0.1", "0", "-1", "2^-31", "16", "nan", "x", "16*2^-3", "inf"] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
        assert_eq!(of("3*2^-6").unwrap().over(32), (3, 11));
        for batch in [1, 3, 20, 100, 1000, 1437] {
            for rate in ["2^-4", "15*2^-9"] {
                let (factor, bits) = of(rate).unwrap().over(batch);
                let exact = of(rate).unwrap().value() / batch as f64;
                let got = factor as f64 * 2f64.powi(-(bits as i32));
                assert!((got / exact - 1.0).abs() < 4e-3 && factor < 1 << 10, "{got} {exact}");
            }
        }
    }

    #[test]
    fn momentum_is_a_multiple_of_a_small_unit() {
        let rate = Rate::new(1, 4).unwrap();
        assert_eq!(Optimiser::with_momentum(rate, 0.9).unwrap().momentum, 230);
        assert!(
            Optimiser::with_momentum(rate, 1.0).is_err() && Optimiser::with_momentum(rate, -0.1).is_err()
        );
        assert!(Optimiser::with_momentum(rate, f64::NAN).is_err());
    }
}
