//! Numbers in and out.
//!
//! share: no message. The other party's share is a stream that both hold, the owner's what is left.
//! open:  one round, every bit of every share in both directions: n·(4 + p + 2 + q + 1) bits each.
//!
//! Security: `docs/security/secfloat.md`.

use crate::link::Sirnn;
use crate::share::{Bits, Ints};
use crate::wire::{Reader, Writer};
use megrez_float::{Float, Format, Plain};
use megrez_kernels::Device;
use megrez_ring::bits;
use megrez_session::Error;

/// Flags of a float.
const FLAGS: usize = 4;

impl<D: Device> Sirnn<D> {
    /// Shares `lanes` numbers of party `owner`, who gives them; the other party gives `None`.
    /// `name` is unique in the step.
    ///
    /// # Errors
    /// [`Error::Step`] if the owner gives no numbers or others than announced, or the other party
    /// gives some; [`Error::StreamReused`] if the step has shared under this name before.
    pub fn share(
        &mut self,
        owner: usize,
        name: &str,
        format: Format,
        lanes: usize,
        numbers: Option<&Plain>,
    ) -> Result<Float<Self>, Error> {
        let mine = self.me() == owner;
        let fits = numbers.map_or(!mine, |x| mine && x.format == format && x.man.len() == lanes);
        if !fits {
            return self.party().refuse(format!("party {owner} alone gives the {lanes} numbers of `{name}`"));
        }
        let peer = 1 - self.me();
        let words = self.party_mut().stream(peer, &format!("share {name}"))?.words(lanes * (FLAGS + 2));
        let part = |i: usize, v: &dyn Fn(usize) -> u64| -> Vec<u64> {
            let masks = &words[i * lanes..][..lanes];
            masks
                .iter()
                .enumerate()
                .map(|(lane, m)| if mine { v(lane).wrapping_sub(*m) } else { *m })
                .collect()
        };
        let flag = |i: usize, f: fn(&Plain) -> &[bool]| {
            let v = part(i, &|lane| numbers.map_or(0, |x| u64::from(f(x)[lane])));
            Bits::pack(lanes, |lane| v[lane])
        };
        let int = |i: usize, width: u32, f: fn(&Plain) -> &[u64]| {
            Ints::new(width, part(i, &|lane| numbers.map_or(0, |x| f(x)[lane])))
        };
        Ok(Float {
            format,
            zero: flag(0, |x| &x.zero),
            inf: flag(1, |x| &x.inf),
            nan: flag(2, |x| &x.nan),
            sign: flag(3, |x| &x.sign),
            exp: int(4, format.exp_width(), |x| &x.exp),
            man: int(5, format.man_width(), |x| &x.man),
        })
    }

    /// Shares `lanes` integers of party `owner`, modulo 2^width, as [`share`](Self::share) shares
    /// numbers.
    ///
    /// # Errors
    /// Those of [`share`](Self::share).
    pub fn share_ints(
        &mut self,
        owner: usize,
        name: &str,
        width: u32,
        lanes: usize,
        values: Option<&[u64]>,
    ) -> Result<Ints, Error> {
        let mine = self.me() == owner;
        if !values.map_or(!mine, |v| mine && v.len() == lanes) {
            return self
                .party()
                .refuse(format!("party {owner} alone gives the {lanes} integers of `{name}`"));
        }
        let peer = 1 - self.me();
        let mut words = self.party_mut().stream(peer, &format!("share {name}"))?.words(lanes);
        if let Some(values) = values {
            words.iter_mut().zip(values).for_each(|(mask, v)| *mask = v.wrapping_sub(*mask));
        }
        Ok(Ints::new(width, words))
    }

    /// Opens numbers to both parties.
    ///
    /// # Errors
    /// If the session breaks.
    pub fn open(&mut self, x: &Float<Self>) -> Result<Plain, Error> {
        let mut opened = self.open_all(&[&x.zero, &x.inf, &x.nan, &x.sign], &[&x.exp, &x.man])?.into_iter();
        let mut next = || opened.next().expect("as many as were given");
        let [zero, inf, nan, sign, exp, man] = std::array::from_fn(|_| next());
        let flag = |v: Vec<u64>| v.into_iter().map(|b| b == 1).collect();
        Ok(Plain {
            format: x.format,
            zero: flag(zero),
            inf: flag(inf),
            nan: flag(nan),
            sign: flag(sign),
            exp,
            man,
        })
    }

    /// Opens bits to both parties.
    ///
    /// # Errors
    /// If the session breaks.
    pub fn open_bits(&mut self, x: &Bits) -> Result<Vec<bool>, Error> {
        let opened = self.open_all(&[x], &[])?.pop().expect("one was given");
        Ok(opened.into_iter().map(|b| b == 1).collect())
    }

    /// Opens integers to both parties, modulo 2^width.
    ///
    /// # Errors
    /// If the session breaks.
    pub fn open_ints(&mut self, x: &Ints) -> Result<Vec<u64>, Error> {
        Ok(self.open_all(&[], &[x])?.pop().expect("one was given"))
    }

    fn open_all(&mut self, flags: &[&Bits], ints: &[&Ints]) -> Result<Vec<Vec<u64>>, Error> {
        let size = flags.iter().map(|b| b.n).sum::<usize>()
            + ints.iter().map(|x| x.v.len() * x.width as usize).sum::<usize>();
        let mut writer = Writer::with_capacity(size);
        flags.iter().for_each(|b| writer.append(&b.w, b.n));
        ints.iter().for_each(|x| x.v.iter().for_each(|&v| writer.push(v, x.width)));
        let theirs = self.exchange(writer.into_payload(), bits::bytes(size))?;
        let mut reader = Reader::new(theirs.words());
        let mut opened = vec![];
        for b in flags {
            opened.push((0..b.n).map(|i| b.get(i) ^ reader.next(1)).collect());
        }
        for x in ints {
            let other = Ints { width: x.width, v: x.v.iter().map(|_| reader.next(x.width)).collect() };
            opened.push(x.zip(&other, u64::wrapping_add).v);
        }
        Ok(opened)
    }
}
