//! Secret floating-point numbers, and what is free on them.

use crate::any::{
    AnyBlocks, Bit, Failure, Mixed, Select, secret_bits, secret_ints, supplied_bits, supplied_ints,
};
use crate::blocks::Blocks;
use crate::clear::Clear;
use crate::format::{Format, Plain};

/// Secret numbers of one format, lane by lane, in the canonical form of [`Plain`].
///
/// SECFLOAT's tuple (z, s, e, m) with two more bits: the paper leaves out NaN and takes an infinity
/// for 2^128. The three flags exclude each other, so that all their unions below are local.
pub struct Float<B: Blocks + ?Sized = AnyBlocks> {
    /// The format.
    pub format: Format,
    /// Is a zero.
    pub zero: B::Bit,
    /// Is an infinity.
    pub inf: B::Bit,
    /// Is not a number.
    pub nan: B::Bit,
    /// Is negative.
    pub sign: B::Bit,
    /// The exponent, two's complement of p + 2 bits.
    pub exp: B::Int,
    /// The mantissa of q + 1 bits.
    pub man: B::Int,
}

impl<B: Blocks + ?Sized> Clone for Float<B> {
    fn clone(&self) -> Self {
        Self {
            format: self.format,
            zero: self.zero.clone(),
            inf: self.inf.clone(),
            nan: self.nan.clone(),
            sign: self.sign.clone(),
            exp: self.exp.clone(),
            man: self.man.clone(),
        }
    }
}

impl<B: Blocks + ?Sized> Float<B> {
    /// Numbers that everybody knows.
    pub fn public(b: &B, plain: &Plain) -> Self {
        Self {
            format: plain.format,
            zero: b.public_bits(&plain.zero),
            inf: b.public_bits(&plain.inf),
            nan: b.public_bits(&plain.nan),
            sign: b.public_bits(&plain.sign),
            exp: b.public(plain.format.exp_width(), &plain.exp),
            man: b.public(plain.format.man_width(), &plain.man),
        }
    }

    /// One number that everybody knows, in `lanes` lanes, given by its interchange encoding.
    pub fn constant(b: &B, format: Format, bits: u64, lanes: usize) -> Self {
        Self::public(b, &Plain::from_bits(format, &vec![bits; lanes]))
    }

    /// How many numbers there are.
    pub fn lanes(&self, b: &B) -> usize {
        b.lanes(&self.man)
    }

    /// −x: the sign changes, of zeros too, but not of NaN, which has none.
    #[must_use]
    pub fn neg(&self, b: &B) -> Self {
        Self { sign: b.not(&b.xor(&self.sign, &self.nan)), ..self.clone() }
    }

    /// |x|.
    #[must_use]
    pub fn abs(&self, b: &B) -> Self {
        Self { sign: b.public_bits(&vec![false; self.lanes(b)]), ..self.clone() }
    }

    /// The same single-precision numbers with four more mantissa bits.
    pub(crate) fn widened(&self, b: &B) -> Self {
        assert_eq!(self.format, Format::FLOAT32, "single precision is what widens");
        let man = b.shift(&self.man, Format::WIDE.q - self.format.q);
        Self { format: Format::WIDE, man, ..self.clone() }
    }

    /// Zero or NaN: whatever a product or a quotient inherits as "perhaps zero".
    pub(crate) fn vanishing(&self, b: &B) -> B::Bit {
        b.xor(&self.zero, &self.nan)
    }

    /// Infinite or NaN.
    pub(crate) fn unbounded(&self, b: &B) -> B::Bit {
        b.xor(&self.inf, &self.nan)
    }

    /// Zero, infinite or NaN.
    pub(crate) fn special(&self, b: &B) -> B::Bit {
        b.xor(&self.zero, &self.unbounded(b))
    }

    /// The lanes at public places, which may repeat.
    #[must_use]
    pub fn gather(&self, b: &B, lanes: &[usize]) -> Self {
        Self {
            format: self.format,
            zero: b.gather_bits(&self.zero, lanes),
            inf: b.gather_bits(&self.inf, lanes),
            nan: b.gather_bits(&self.nan, lanes),
            sign: b.gather_bits(&self.sign, lanes),
            exp: b.gather(&self.exp, lanes),
            man: b.gather(&self.man, lanes),
        }
    }

    /// The lanes of a range.
    #[must_use]
    pub fn slice(&self, b: &B, lanes: std::ops::Range<usize>) -> Self {
        if lanes == (0..self.lanes(b)) {
            return self.clone();
        }
        self.gather(b, &lanes.collect::<Vec<_>>())
    }

    /// All lanes of all numbers, one after the other.
    ///
    /// # Panics
    /// If there are none, or the formats differ.
    pub fn concat(b: &B, all: &[&Self]) -> Self {
        assert!(all.iter().all(|x| x.format == all[0].format), "formats differ");
        let bits = |f: fn(&Self) -> &B::Bit| b.concat_bits(&all.iter().map(|x| f(x)).collect::<Vec<_>>());
        let ints = |f: fn(&Self) -> &B::Int| b.concat(&all.iter().map(|x| f(x)).collect::<Vec<_>>());
        Self {
            format: all[0].format,
            zero: bits(|x| &x.zero),
            inf: bits(|x| &x.inf),
            nan: bits(|x| &x.nan),
            sign: bits(|x| &x.sign),
            exp: ints(|x| &x.exp),
            man: ints(|x| &x.man),
        }
    }
}

impl<B: Blocks> Float<B> {
    /// A supplier's numbers in a program: nobody knows them.
    pub fn secret(self) -> Float {
        let Self { format, zero, inf, nan, sign, exp, man } = self;
        let [zero, inf, nan, sign] = [zero, inf, nan, sign].map(secret_bits::<B>);
        let [exp, man] = [exp, man].map(secret_ints::<B>);
        Float { format, zero, inf, nan, sign, exp, man }
    }
}

impl Float {
    /// A program's numbers as its supplier has them, also if everybody knows them.
    pub fn supplied<B: Blocks>(&self, b: &B) -> Float<B> {
        let bits = |x| supplied_bits(b, x).into_owned();
        let [zero, inf, nan, sign] = [&self.zero, &self.inf, &self.nan, &self.sign].map(bits);
        let [exp, man] = [&self.exp, &self.man].map(|x| supplied_ints(b, x).into_owned());
        Float { format: self.format, zero, inf, nan, sign, exp, man }
    }

    /// Numbers of a program that ran [in the clear](crate::in_the_clear).
    #[must_use]
    pub fn plain(&self) -> Plain {
        self.supplied(&Clear).plain()
    }
}

impl Plain {
    /// These numbers for a program in the clear, as if nobody knew them.
    #[must_use]
    pub fn secret(&self) -> Float {
        Float::public(&Clear, self).secret()
    }
}

impl AnyBlocks {
    /// Numbers as the supplier holds public ones, which a program takes for secret.
    #[must_use]
    pub fn secret(&self, plain: &Plain) -> Float {
        let Float { format, zero, inf, nan, sign, exp, man } = Float::public(&self.0, plain);
        let [zero, inf, nan, sign] = [zero, inf, nan, sign].map(Mixed::Secret);
        Float { format, zero, inf, nan, sign, exp: Mixed::Secret(exp), man: Mixed::Secret(man) }
    }
}

/// `bit ? yes : no`, the whole float under one selection.
///
/// # Errors
/// If the blocks fail.
pub fn choose(b: &mut AnyBlocks, bit: &Bit, yes: &Float, no: &Float) -> Result<Float, Failure> {
    let bits = |x: &Float| [x.zero.clone(), x.inf.clone(), x.nan.clone(), x.sign.clone()];
    let (from, to) = (bits(no), bits(yes));
    let flips: Vec<_> = from.iter().zip(&to).map(|(n, y)| b.xor(n, y)).collect();
    let (exp, man) = (b.sub(&yes.exp, &no.exp), b.sub(&yes.man, &no.man));
    let job = Select { bit, ints: vec![&exp, &man], bits: flips.iter().collect() };
    let row = b.select(&[job])?.remove(0);
    let flipped: Vec<_> = from.iter().zip(&row.bits).map(|(n, f)| b.xor(n, f)).collect();
    let [zero, inf, nan, sign] = flipped.try_into().map_err(|_| ()).expect("four bits went in");
    let exp = b.add(&no.exp, &row.ints[0]);
    let man = b.add(&no.man, &row.ints[1]);
    Ok(Float { format: yes.format, zero, inf, nan, sign, exp, man })
}

impl Float<Clear> {
    /// The numbers.
    #[must_use]
    pub fn plain(&self) -> Plain {
        let bits = |b: &crate::clear::Bits| b.0.iter().map(|&v| v == 1).collect();
        Plain {
            format: self.format,
            zero: bits(&self.zero),
            inf: bits(&self.inf),
            nan: bits(&self.nan),
            sign: bits(&self.sign),
            exp: self.exp.v.clone(),
            man: self.man.v.clone(),
        }
    }
}
