//! Shares on their way from clients and to them. A client is no party: it makes both shares of its
//! numbers, and puts the shares of its results together.
//!
//! A share takes n·(4 + p + 2 + q + 1) bits: the flags, the exponent and the mantissa of each
//! number, 38 bits in single precision. Party 0's is uniform.
//!
//! Security: `docs/security/secfloat.md`.

use crate::link::Sirnn;
use crate::share::{Bits, Ints};
use crate::wire::{Reader, Writer};
use megrez_float::blocks::mask;
use megrez_float::{Float, Format, Plain};
use megrez_kernels::Device;
use megrez_net::Payload;
use megrez_prg::Key;
use megrez_session::Error;

/// zero, inf, nan, sign, from the lowest bit on.
const FLAGS: u32 = 4;

pub(crate) const FORMAT: Format = Format::FLOAT32;
const WIDTH: u32 = FLAGS + FORMAT.exp_width() + FORMAT.man_width();

/// Bytes of a share of `n` numbers.
#[must_use]
pub const fn share_bytes(n: usize) -> usize {
    (n * WIDTH as usize).div_ceil(8)
}

/// One number's share, or the number itself.
#[derive(Clone, Copy)]
pub(crate) struct Lane {
    pub flags: u64,
    pub exp: u64,
    pub man: u64,
}

impl Lane {
    fn unpack(word: u64) -> Self {
        let exp = word >> FLAGS & mask(FORMAT.exp_width());
        Self {
            flags: word & mask(FLAGS),
            exp,
            man: word >> (FLAGS + FORMAT.exp_width()) & mask(FORMAT.man_width()),
        }
    }

    pub fn pack(self) -> u64 {
        let exp = self.exp & mask(FORMAT.exp_width());
        self.flags | exp << FLAGS | (self.man & mask(FORMAT.man_width())) << (FLAGS + FORMAT.exp_width())
    }

    /// What is left of a number when the other share is taken away.
    fn without(self, other: Self) -> Self {
        Self {
            flags: self.flags ^ other.flags,
            exp: self.exp.wrapping_sub(other.exp),
            man: self.man.wrapping_sub(other.man),
        }
    }

    fn with(self, other: Self) -> Self {
        Self {
            flags: self.flags ^ other.flags,
            exp: self.exp.wrapping_add(other.exp),
            man: self.man.wrapping_add(other.man),
        }
    }
}

pub(crate) fn write(lanes: impl ExactSizeIterator<Item = u64>) -> Payload {
    let mut writer = Writer::with_capacity(lanes.len() * WIDTH as usize);
    lanes.for_each(|lane| writer.push(lane, WIDTH));
    writer.into_payload()
}

/// `n` lanes of a share; refuses one of another size.
pub(crate) fn read(share: &Payload, n: usize) -> Result<Vec<Lane>, Error> {
    if share.len() != share_bytes(n) {
        return Err(Error::Refused(format!(
            "a share of {n} numbers has {} bytes, not {}",
            share_bytes(n),
            share.len()
        )));
    }
    let mut reader = Reader::new(share.words());
    Ok((0..n).map(|_| Lane::unpack(reader.next(WIDTH))).collect())
}

/// The parties' shares of single-precision numbers; denormal ones become zeros. `key` is fresh.
#[must_use]
pub fn split(numbers: &[f32], key: &Key) -> [Payload; 2] {
    let plain = Plain::from_f32(numbers);
    let words = key.stream().words(numbers.len());
    let lane = |i: usize| {
        let flags = [plain.zero[i], plain.inf[i], plain.nan[i], plain.sign[i]];
        let flags = (0..).zip(flags).map(|(place, flag)| u64::from(flag) << place).sum();
        Lane { flags, exp: plain.exp[i], man: plain.man[i] }
    };
    let other = |(i, &word): (usize, &u64)| lane(i).without(Lane::unpack(word)).pack();
    [write(words.iter().copied()), write(words.iter().enumerate().map(other))]
}

/// The numbers of the parties' shares.
///
/// # Errors
/// If a share has not the size of `n` numbers.
pub fn join(shares: &[Payload; 2], n: usize) -> Result<Vec<f32>, Error> {
    let [first, second] = [read(&shares[0], n)?, read(&shares[1], n)?];
    let lanes: Vec<Lane> = first.iter().zip(&second).map(|(x, y)| Lane::unpack(x.with(*y).pack())).collect();
    let flag = |place: u32| lanes.iter().map(|l| l.flags >> place & 1 == 1).collect();
    let plain = Plain {
        format: FORMAT,
        zero: flag(0),
        inf: flag(1),
        nan: flag(2),
        sign: flag(3),
        exp: lanes.iter().map(|l| l.exp).collect(),
        man: lanes.iter().map(|l| l.man).collect(),
    };
    Ok(plain.to_f32())
}

impl<D: Device> Sirnn<D> {
    /// A client's share of `n` single-precision numbers.
    ///
    /// # Errors
    /// If it has another size.
    pub fn accept(share: &Payload, n: usize) -> Result<Float<Self>, Error> {
        let lanes = read(share, n)?;
        let flag = |place: u32| Bits::pack(n, |lane| lanes[lane].flags >> place);
        Ok(Float {
            format: FORMAT,
            zero: flag(0),
            inf: flag(1),
            nan: flag(2),
            sign: flag(3),
            exp: Ints::new(FORMAT.exp_width(), lanes.iter().map(|l| l.exp).collect()),
            man: Ints::new(FORMAT.man_width(), lanes.iter().map(|l| l.man).collect()),
        })
    }

    /// This party's share of numbers, for the client who may learn them.
    ///
    /// # Panics
    /// If they are not of single precision.
    #[must_use]
    pub fn reveal(x: &Float<Self>) -> Payload {
        assert_eq!(x.format, FORMAT);
        let flags = [&x.zero, &x.inf, &x.nan, &x.sign];
        let lane = |i: usize| {
            let flags = (0..).zip(flags).map(|(place, flag)| flag.get(i) << place).sum();
            Lane { flags, exp: x.exp.v[i], man: x.man.v[i] }.pack()
        };
        write((0..x.man.v.len()).map(lane))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_join_to_the_numbers() {
        let numbers = [1.5, -0.0, 0.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 1e-30, -3.25e30, 1e-44];
        let shares = split(&numbers, &Key::from_bytes([7; 32]));
        assert!(shares.iter().all(|s| s.len() == share_bytes(numbers.len())));
        let joined = join(&shares, numbers.len()).unwrap();
        let bits = |v: &[f32]| v.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&joined[..8]), bits(&[&numbers[..5], &[f32::NAN], &numbers[6..8]].concat()));
        assert_eq!(joined[8].to_bits(), 0, "denormal numbers are zeros");
        assert!(join(&shares, 8).is_err() && join(&shares, 10).is_err());
    }

    #[test]
    fn each_share_is_uniform() {
        let both: Vec<_> = [0.0, 1.0].map(|x| split(&vec![x; 40_000], &Key::random().unwrap())).into();
        for share in both.iter().flatten() {
            let lanes = read(share, 40_000).unwrap();
            for place in 0..WIDTH {
                let ones = lanes.iter().filter(|l| l.pack() >> place & 1 == 1).count();
                assert!(ones.abs_diff(20_000) < 600, "bit {place} is set {ones} times, six deviations off");
            }
        }
    }
}
