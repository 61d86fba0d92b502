//! Numbers in and out.
//!
//! share:   the owner, a worker, sends m = x + r, r a stream of it and the dealer; the other worker's share of r is 0. 38 bits a number.
//! accept:  a client's additive shares are opened to the workers under fresh masks. 38 bits each way.
//! reveal:  no message: m − r_0 and −r_1 are additive shares, for a client.
//! open:    the workers send each other their shares of r. 38 bits each way.
//!
//! Security: `docs/security/float-dealer.md`.

use super::link::{DEALER, Dealt, Masked, Size};
use super::share::{Bits, Ints};
use crate::client::{FORMAT, Lane, read, write};
use megrez_float::blocks::mask;
use megrez_float::{Float, Format, Plain};
use megrez_kernels::Device;
use megrez_net::Payload;
use megrez_ring::bits;
use megrez_session::Error;

/// Flags of a float, and its integers, in the order in which they travel.
fn sizes(format: Format, lanes: usize) -> [Size; 6] {
    let ints = [Size::Ints(format.exp_width(), lanes), Size::Ints(format.man_width(), lanes)];
    [Size::Bits(lanes), Size::Bits(lanes), Size::Bits(lanes), Size::Bits(lanes), ints[0], ints[1]]
}

/// The fields of numbers in that order, flags packed.
fn fields(x: &Plain) -> Vec<Vec<u64>> {
    let flags = [&x.zero, &x.inf, &x.nan, &x.sign];
    let flags = flags.map(|f| bits::pack(f.len(), |i| u64::from(f[i])));
    flags.into_iter().chain([x.exp.clone(), x.man.clone()]).collect()
}

/// Numbers of fields in that order.
fn float<D: Device>(format: Format, n: usize, fields: Vec<Masked>) -> Float<Dealt<D>> {
    let mut fields = fields.into_iter();
    let mut next = || fields.next().expect("six fields");
    let [zero, inf, nan, sign] = [(); 4].map(|()| next().bits(n));
    let (exp, man) = (next().ints(format.exp_width()), next().ints(format.man_width()));
    Float { format, zero, inf, nan, sign, exp, man }
}

impl<D: Device> Dealt<D> {
    /// Shares `lanes` numbers of worker `owner`, who gives them; the others give `None`.
    ///
    /// # Errors
    /// [`Error::Step`] if the owner is no worker, or gives no numbers or others than announced, or
    /// another party gives some.
    pub fn share(
        &mut self,
        owner: usize,
        format: Format,
        lanes: usize,
        numbers: Option<&Plain>,
    ) -> Result<Float<Self>, Error> {
        let mine = self.me() == owner;
        let fits = numbers.map_or(!mine, |x| mine && x.format == format && x.man.len() == lanes);
        if !fits || owner >= DEALER {
            return self.party().refuse(format!("worker {owner} alone gives {lanes} numbers"));
        }
        let sizes = sizes(format, lanes);
        let given = numbers.map(fields);
        Ok(float(format, lanes, self.enter_words(owner, &sizes, given)?))
    }

    /// As [`share`](Self::share), of integers.
    ///
    /// # Errors
    /// Those of [`share`](Self::share).
    pub fn share_ints(
        &mut self,
        owner: usize,
        width: u32,
        lanes: usize,
        values: Option<&[u64]>,
    ) -> Result<Ints, Error> {
        let mine = self.me() == owner;
        if !values.map_or(!mine, |v| mine && v.len() == lanes) || owner >= DEALER {
            return self.party().refuse(format!("worker {owner} alone gives {lanes} integers"));
        }
        let given = values.map(|v| vec![v.to_vec()]);
        Ok(self.enter_words(owner, &[Size::Ints(width, lanes)], given)?.remove(0).ints(width))
    }

    /// Takes a client's additive shares of `n` single-precision numbers; the dealer gets none and
    /// gives `None`.
    ///
    /// # Errors
    /// If a worker's share has another size, or the session breaks.
    pub fn accept(&mut self, share: Option<&Payload>, n: usize) -> Result<Float<Self>, Error> {
        let shares = match share {
            None => vec![],
            Some(share) => {
                let lanes = read(share, n)?;
                let flag = |place: u32| bits::pack(n, |i| lanes[i].flags >> place);
                let exp = lanes.iter().map(|l| l.exp).collect();
                vec![flag(0), flag(1), flag(2), flag(3), exp, lanes.iter().map(|l| l.man).collect()]
            }
        };
        if share.is_some() == self.deals() {
            return self.party().refuse("workers have shares of inputs, and the dealer has none");
        }
        Ok(float(FORMAT, n, self.open_shares(&sizes(FORMAT, n), shares)?))
    }

    /// A worker's additive share of numbers, for the client who may learn them; `None` at the
    /// dealer.
    ///
    /// # Panics
    /// If they are not of single precision.
    #[must_use]
    pub fn reveal(&self, x: &Float<Self>) -> Option<Payload> {
        assert_eq!(x.format, FORMAT);
        if self.deals() {
            return None;
        }
        let keep = if self.me() == 0 { u64::MAX } else { 0 };
        let flag = |b: &Bits, i: usize| bits::get(&b.m, i) & keep ^ bits::get(&b.r, i);
        let int = |x: &Ints, i: usize| (x.m[i] & keep).wrapping_sub(x.r[i]) & mask(x.width);
        let lane = |i: usize| {
            let flags = (0..).zip([&x.zero, &x.inf, &x.nan, &x.sign]);
            let flags = flags.map(|(place, b)| flag(b, i) << place).sum();
            Lane { flags, exp: int(&x.exp, i), man: int(&x.man, i) }.pack()
        };
        Some(write((0..x.man.lanes()).map(lane)))
    }

    /// Opens numbers to both workers; `None` at the dealer.
    ///
    /// # Errors
    /// If the session breaks.
    pub fn open_numbers(&mut self, x: &Float<Self>) -> Result<Option<Plain>, Error> {
        let format = x.format;
        let flags = [&x.zero, &x.inf, &x.nan, &x.sign].map(|b| (&b.m, &b.r));
        let all: Vec<_> = flags.into_iter().chain([(&x.exp.m, &x.exp.r), (&x.man.m, &x.man.r)]).collect();
        let n = x.man.lanes();
        let opened = self.unmask(&sizes(format, n), &all)?;
        Ok(opened.map(|fields| {
            let flag = |i: usize| (0..n).map(|lane| bits::get(&fields[i], lane) == 1).collect();
            Plain {
                format,
                zero: flag(0),
                inf: flag(1),
                nan: flag(2),
                sign: flag(3),
                exp: fields[4].clone(),
                man: fields[5].clone(),
            }
        }))
    }

    /// Opens bits to both workers; `None` at the dealer.
    ///
    /// # Errors
    /// If the session breaks.
    pub fn open_bits(&mut self, x: &Bits) -> Result<Option<Vec<bool>>, Error> {
        let opened = self.unmask(&[Size::Bits(x.n)], &[(&x.m, &x.r)])?;
        Ok(opened.map(|v| (0..x.n).map(|i| bits::get(&v[0], i) == 1).collect()))
    }

    /// Opens integers to both workers, modulo 2^width; `None` at the dealer.
    ///
    /// # Errors
    /// If the session breaks.
    pub fn open_ints(&mut self, x: &Ints) -> Result<Option<Vec<u64>>, Error> {
        let opened = self.unmask(&[Size::Ints(x.width, x.lanes())], &[(&x.m, &x.r)])?;
        Ok(opened.map(|mut v| v.remove(0)))
    }

    /// m − r of (m, r).
    fn unmask(
        &mut self,
        sizes: &[Size],
        values: &[(&Vec<u64>, &Vec<u64>)],
    ) -> Result<Option<Vec<Vec<u64>>>, Error> {
        let shares: Vec<&Vec<u64>> = values.iter().map(|v| v.1).collect();
        let Some(theirs) = self.swap(sizes, &shares)? else { return Ok(None) };
        let all = sizes.iter().zip(values).zip(theirs);
        Ok(Some(all.map(|((s, (m, r)), other)| s.difference(&s.difference(m, r), &other)).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::{join, share_bytes, split};
    use crate::testing::parties;
    use megrez_prg::Key;

    #[test]
    fn numbers_come_and_go() {
        let numbers = [1.5, -0.0, 0.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 1e-30, -3.25e30];
        let n = numbers.len();
        let own = Plain::from_f32(&numbers);
        let shares = split(&numbers, &Key::from_bytes([7; 32]));
        let results = parties(3, |party| {
            let me = party.me();
            let mut b = Dealt::new(party.clone())?;
            let from_worker = b.share(1, Format::FLOAT32, n, (me == 1).then_some(&own))?;
            assert!(b.share(DEALER, Format::FLOAT32, n, (me == DEALER).then_some(&own)).is_err());
            assert!(b.share(DEALER + 1, Format::FLOAT32, n, None).is_err());
            let ints = b.share_ints(0, 24, n, (me == 0).then_some(&own.man[..]))?;
            assert_eq!(b.open_ints(&ints)?, (me != DEALER).then(|| own.man.clone()));
            assert!(b.share_ints(DEALER, 24, n, (me == DEALER).then_some(&own.man[..])).is_err());
            let from_client = b.accept(shares.get(me), n)?;
            assert_eq!(b.open_numbers(&from_client)?, (me != DEALER).then(|| own.clone()));
            assert_eq!(b.open_ints(&from_client.man)?, (me != DEALER).then(|| own.man.clone()));
            assert_eq!(b.open_bits(&from_client.sign)?, (me != DEALER).then(|| own.sign.clone()));
            Ok((b.reveal(&from_worker), b.accept(None, n).is_err()))
        });
        let mut results: Vec<_> = results.into_iter().map(Result::unwrap).collect();
        let (last, _) = results.pop().unwrap();
        assert!(last.is_none() && results.iter().all(|r| r.1));
        let revealed: Vec<Payload> = results.into_iter().map(|r| r.0.unwrap()).collect();
        assert!(revealed.iter().all(|s| s.len() == share_bytes(n)));
        let joined = join(&revealed.try_into().ok().unwrap(), n).unwrap();
        let bits = |v: &[f32]| v.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&joined), bits(&numbers));
    }

    #[test]
    fn two_parties_are_refused() {
        let results = parties(2, |party| Ok(Dealt::new(party.clone()).is_err()));
        assert!(results.into_iter().all(Result::unwrap));
    }
}
