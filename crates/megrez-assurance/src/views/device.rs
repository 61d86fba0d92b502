//! A device whose randomness is enumerated. Arithmetic is the reference device's; what draws is stated here again, from the
//! description of the protocol, so that both statements check each other.

use super::draws::{Format, Values, World};
use megrez_kernels::{
    Baseline, Device, DeviceError, Elem, Entries, FieldShare, HostList, ListSpec, ListStreams, Placement,
    Reference, Selected, Truncation,
};
use megrez_plan::{ConvGeometry, View};
use megrez_prg::Stream;
use megrez_ring::{Shape, Word, bits};
use std::sync::Arc;

/// Party `me`'s device in one session.
#[derive(Clone)]
pub struct Enumerating {
    me: usize,
    world: Arc<World>,
}

type Buf<T> = Arc<Vec<T>>;
type Result<T> = std::result::Result<T, DeviceError>;

impl Enumerating {
    /// A device in this world.
    pub fn new(me: usize, world: Arc<World>) -> Self {
        Enumerating { me, world }
    }

    fn read(&self, stream: &Stream, domain: u64, elements: usize, per_value: usize) -> Result<Values> {
        match self.world.reader(self.me, stream.key_words()) {
            Some(name) => Ok(self.world.read(&name, domain, elements, per_value)),
            None => Err(DeviceError {
                device: self.describe(),
                what: "a stream comes from nowhere: every key goes through the session's probe".into(),
            }),
        }
    }

    fn packed(&self, words: Vec<u64>, format: Format) -> Result<Buf<u64>> {
        self.world.note(bytemuck::cast_slice(&words), format);
        Ok(Arc::new(words))
    }

    /// A worker's share of what was dealt: sample q of element e.
    fn share(
        &self,
        spec: &ListSpec,
        share: FieldShare<'_, Self>,
        n: usize,
    ) -> Result<Box<dyn Fn(usize, usize) -> i64>> {
        let dealt = spec.dealt();
        Ok(match share {
            FieldShare::Packed(words) => {
                let all = spec.prime.unpack(words, n * dealt);
                Box::new(move |e, q| i64::from(all[e * dealt + q]))
            }
            FieldShare::Stream(stream) => {
                let values = self.read(stream, spec.prime.p(), n, dealt)?;
                Box::new(move |e, q| i64::from(values.at(e, q)))
            }
        })
    }
}

/// Bit i of the λ − 1 low bits of a number, most significant first.
fn bit(x: u64, i: usize, count: usize) -> i64 {
    (x >> (count - 1 - i) & 1) as i64
}

/// Digits of the low bits of a number, most significant first.
fn digits(x: u64, widths: &[u32]) -> Vec<u64> {
    let mut left: u32 = widths.iter().sum();
    widths
        .iter()
        .map(|w| {
            left -= w;
            x >> left & ((1 << w) - 1)
        })
        .collect()
}

/// The cut value's λ bits.
fn cut(spec: &ListSpec, m: u64) -> u64 {
    m >> spec.cut & (u64::MAX >> (64 - spec.width))
}

/// t_i of worker j: Σ_{k<i} s_k − s_i + 1, where s_i is a share of [m_i ≠ ρ_i].
fn first_differences(spec: &ListSpec, j: usize, m: u64, share: &dyn Fn(usize) -> i64) -> Vec<i64> {
    let (length, first) = (spec.width as usize, i64::from(j == 0));
    let s = |i: usize| {
        let (m_i, rho_i) = if i == length - 1 { (0, first) } else { (bit(m, i, length - 1), share(i)) };
        first * m_i + (1 - 2 * m_i) * rho_i
    };
    (0..length).map(|i| (0..i).map(s).sum::<i64>() - s(i) + first).collect()
}

/// m_i of the padded list.
fn padded(spec: &ListSpec, m: u64, i: usize) -> i64 {
    let length = spec.width as usize;
    if i == length - 1 { 0 } else { bit(m, i, length - 1) }
}

/// Worker j's entries before multiplier, sharing of zero and rotation.
fn entries(spec: &ListSpec, j: usize, m: u64, flip: u64, share: &dyn Fn(usize) -> i64) -> Vec<i64> {
    let first = i64::from(j == 0);
    let sign = (m >> (spec.width - 1)) as i64;
    let direction = sign ^ flip as i64;
    match &spec.entries {
        Entries::Bits => {
            let t = first_differences(spec, j, m, share);
            t.iter().enumerate().map(|(i, t)| t + first * (direction ^ padded(spec, m, i))).collect()
        }
        Entries::Digits(widths) => {
            let mut out = vec![];
            let (mut from, mut unequal) = (0, 0);
            for (d, (mu, w)) in digits(m, widths).into_iter().zip(widths).enumerate() {
                let count = (1usize << w) - 1;
                let dealt: Vec<i64> = (from..from + count).map(share).collect();
                from += count;
                let mu = mu as usize;
                let equal = dealt.get(mu).copied().unwrap_or(first - dealt.iter().sum::<i64>());
                let greater: i64 = dealt[..mu].iter().sum();
                let at_most = first - greater;
                let wanted = match (direction, d + 1 == widths.len()) {
                    (1, _) => greater,
                    (_, true) => at_most,
                    (_, false) => at_most - equal,
                };
                out.push(unequal + first - wanted);
                unequal += first - equal;
            }
            out
        }
    }
}

/// The smallest prime above n.
fn above(n: u64) -> u64 {
    (n + 1..).find(|p| (2..*p).all(|d| !p.is_multiple_of(d))).expect("there is always one")
}

fn inverse(x: u64, p: u64) -> u64 {
    (1..p).find(|y| x * y % p == 1).expect("p is prime and x no multiple of it")
}

/// What protocols sample on the host: draws of 128 bits are read as fractions, and multiplied by the bound again and again.
fn on_host(stream: &Stream, bound: u64, n: usize) -> Vec<u64> {
    let per_draw = (56.0 / (bound.max(2) as f64).log2()) as usize;
    let words = stream.words(2 * n.div_ceil(per_draw));
    let samples = words.chunks_exact(2).flat_map(|draw| {
        let mut fraction = u128::from(draw[1]) << 64 | u128::from(draw[0]);
        (0..per_draw).map(move |_| {
            let low = (fraction & u128::from(u64::MAX)) * u128::from(bound);
            let high = (fraction >> 64) * u128::from(bound) + (low >> 64);
            fraction = high << 64 | low & u128::from(u64::MAX);
            (high >> 64) as u64
        })
    });
    samples.take(n).collect()
}

fn modulo(x: i64, p: u64) -> u8 {
    x.rem_euclid(p as i64) as u8
}

impl Device for Enumerating {
    type Buf<T: Elem> = Buf<T>;

    fn describe(&self) -> String {
        "enumeration".into()
    }
    fn upload<T: Elem>(&self, data: Vec<T>) -> Result<Buf<T>> {
        Ok(Arc::new(data))
    }
    fn download<T: Elem>(&self, buf: Buf<T>) -> Result<Vec<T>> {
        let format = if size_of::<T>() == 1 { Format::Ring } else { Format::Bits { run: 1 } };
        self.world.note(bytemuck::cast_slice(&buf), format);
        Reference.download(buf)
    }
    fn combine<W: Word>(&self, terms: &[(W, &Buf<W>)], constant: W, n: usize) -> Result<Buf<W>> {
        Reference.combine(terms, constant, n)
    }
    fn products<W: Word>(
        &self,
        products: &[(W, &Buf<W>, &Buf<W>)],
        terms: &[(W, &Buf<W>)],
    ) -> Result<Buf<W>> {
        Reference.products(products, terms)
    }
    fn shift_right<W: Word>(&self, x: &Buf<W>, k: u32) -> Result<Buf<W>> {
        Reference.shift_right(x, k)
    }

    fn random<W: Word>(&self, stream: &Stream, n: usize) -> Result<Buf<W>> {
        // Words of 64 bits are bits of 64 lanes.
        if W::BITS == 64 {
            let bits = self.random_bits(stream, 64 * n)?;
            return Ok(Arc::new(bits.iter().map(|&word| W::from_u64(word)).collect()));
        }
        let values = self.read(stream, 1 << W::BITS, n, 1)?;
        Ok(Arc::new((0..n).map(|e| W::from_u64(values.at(e, 0).into())).collect()))
    }

    fn matmul<W: Word>(&self, x: &Buf<W>, y: &Buf<W>, batch: usize, sizes: [usize; 3]) -> Result<Buf<W>> {
        Reference.matmul(x, y, batch, sizes)
    }
    fn conv<W: Word>(
        &self,
        x: &Buf<W>,
        x_shape: &Shape,
        w: &Buf<W>,
        w_shape: &Shape,
        geometry: &ConvGeometry,
    ) -> Result<Buf<W>> {
        Reference.conv(x, x_shape, w, w_shape, geometry)
    }
    fn view<T: Elem>(&self, x: &Buf<T>, view: &View) -> Result<Buf<T>> {
        Reference.view(x, view)
    }
    fn view_bits(&self, x: &Buf<u64>, view: &View) -> Result<Buf<u64>> {
        Reference.view_bits(x, view)
    }
    fn place<T: Elem>(&self, parts: &[Placement<'_, T, Self>], n: usize) -> Result<Buf<T>> {
        let parts: Vec<_> =
            parts.iter().map(|part| Placement { source: part.source, target: part.target.clone() }).collect();
        Reference.place(&parts, n)
    }
    fn gather<T: Elem>(&self, x: &Buf<T>, sizes: [usize; 3], indices: &[usize]) -> Result<Buf<T>> {
        Reference.gather(x, sizes, indices)
    }
    fn sum<W: Word>(&self, x: &Buf<W>, sizes: [usize; 3]) -> Result<Buf<W>> {
        Reference.sum(x, sizes)
    }

    fn random_bits(&self, stream: &Stream, n: usize) -> Result<Buf<u64>> {
        let table =
            self.world.reader(self.me, stream.key_words()).is_some_and(|name| name.contains(": table of"));
        let run = if table { self.world.table } else { 1 };
        let values = self.read(stream, 2, n / run, run)?;
        let packed = bits::pack(n, |i| values.at(i / run, i % run).into());
        match table {
            true => self.packed(packed, Format::Bits { run }),
            false => Ok(Arc::new(packed)),
        }
    }
    fn xor(&self, inputs: &[&Buf<u64>], negate: bool, n: usize) -> Result<Buf<u64>> {
        Reference.xor(inputs, negate, n)
    }
    fn and(&self, a: &Buf<u64>, b: &Buf<u64>) -> Result<Buf<u64>> {
        Reference.and(a, b)
    }
    fn msb<W: Word>(&self, x: &Buf<W>) -> Result<Buf<u64>> {
        Reference.msb(x)
    }
    fn bit_times<W: Word>(&self, bit: &Buf<u64>, x: Option<&Buf<W>>, n: usize) -> Result<Buf<W>> {
        Reference.bit_times(bit, x, n)
    }
    fn pack_low<W: Word>(&self, x: &Buf<W>, width: u32) -> Result<Buf<u64>> {
        let packed = bits::pack_low(x.iter().map(|x| x.to_u64()), width);
        self.packed(packed, Format::Low { width })
    }
    fn unpack_low<W: Word>(&self, x: &Buf<u64>, width: u32, n: usize) -> Result<Buf<W>> {
        Reference.unpack_low(x, width, n)
    }

    fn deal_list<W: Word>(
        &self,
        spec: &ListSpec,
        masks: &Buf<W>,
        other: &Stream,
    ) -> Result<(Buf<u64>, Buf<u64>)> {
        let (p, n, dealt) = (spec.prime.p(), masks.len(), spec.dealt());
        let other = self.read(other, p, n, dealt)?;
        let mut shares = Vec::with_capacity(n * dealt);
        for (e, r) in masks.iter().enumerate() {
            // ρ is the complement of the low bits of the cut mask, less one.
            let low = (1u64 << (spec.width - 1)) - 1;
            let rho = cut(spec, r.to_u64()).wrapping_sub(1) & low;
            let secret: Vec<u64> = match &spec.entries {
                Entries::Bits => (0..dealt).map(|i| bit(rho, i, dealt) as u64).collect(),
                Entries::Digits(widths) => {
                    let of =
                        |(digit, w): (u64, &u32)| (0..(1u64 << w) - 1).map(move |q| u64::from(digit == q));
                    digits(rho, widths).into_iter().zip(widths).flat_map(of).collect()
                }
            };
            shares.extend(
                secret.iter().enumerate().map(|(q, &s)| modulo(s as i64 - i64::from(other.at(e, q)), p)),
            );
        }
        let negative =
            |e: usize| cut(spec, cut(spec, masks[e].to_u64()).wrapping_neg() << spec.cut) >> (spec.width - 1);
        let packed =
            self.packed(spec.prime.pack(shares.into_iter()), Format::Field { p: p as u8, run: dealt })?;
        Ok((packed, Arc::new(bits::pack(n, negative))))
    }

    fn masked_list<W: Word>(
        &self,
        spec: &ListSpec,
        j: usize,
        masked: &Buf<W>,
        share: FieldShare<'_, Self>,
        flips: &Buf<u64>,
        streams: &ListStreams<'_>,
    ) -> Result<Buf<u64>> {
        let (p, n, length) = (spec.prime.p(), masked.len(), spec.length());
        let share = self.share(spec, share, n)?;
        let w = self.read(streams.multiplier, p - 1, n, length)?;
        let z = self.read(streams.zero_share, p, n, length)?;
        let rotation = self.read(streams.rotation, length as u64, n, 1)?;
        let sign = if j == 0 { 1 } else { -1 };
        let mut list = vec![0; n * length];
        for e in 0..n {
            let m = cut(spec, masked[e].to_u64());
            let entries = entries(spec, j, m, bits::get(flips, e), &|q| share(e, q));
            for (q, entry) in entries.into_iter().enumerate() {
                let value = (i64::from(w.at(e, q)) + 1) * entry + sign * i64::from(z.at(e, q));
                list[e * length + (q + usize::from(rotation.at(e, 0))) % length] = modulo(value, p);
            }
        }
        self.packed(spec.prime.pack(list.into_iter()), Format::Field { p: p as u8, run: length })
    }

    fn scan_lists(&self, spec: &ListSpec, lists: [&Buf<u64>; 2], n: usize) -> Result<Buf<u64>> {
        Reference.scan_lists(spec, lists, n)
    }

    fn baseline_lists<W: Word>(
        &self,
        (kind, spec): (Baseline, &ListSpec),
        j: usize,
        masked: &Buf<W>,
        share: FieldShare<'_, Self>,
        flips: &Buf<u64>,
        streams: &ListStreams<'_>,
    ) -> Result<Vec<Buf<u64>>> {
        let (p, n, length, count) = (spec.prime.p(), masked.len(), spec.length(), kind.lists());
        let share = self.share(spec, share, n)?;
        // Samples of list c lie behind those of all elements of the lists before.
        let w = self.read(streams.multiplier, p - 1, count * n, length)?;
        let z = self.read(streams.zero_share, p, count * n, length)?;
        let rotation = self.read(streams.rotation, length as u64, n, 1)?;
        let first = i64::from(j == 0);
        let mut lists = vec![vec![0; n * length]; count];
        for e in 0..n {
            let m = cut(spec, masked[e].to_u64());
            let t = first_differences(spec, j, m, &|q| share(e, q));
            let direction = (m >> (spec.width - 1)) as i64 ^ bits::get(flips, e) as i64;
            for (i, t) in t.into_iter().enumerate() {
                let beta = direction ^ padded(spec, m, i);
                let place = e * length + (i + usize::from(rotation.at(e, 0))) % length;
                let w = |c: usize| i64::from(w.at(c * n + e, i)) + 1;
                let z = |c: usize| (2 * first - 1) * i64::from(z.at(c * n + e, i));
                match kind {
                    Baseline::Concurrent => {
                        lists[0][place] = modulo(w(0) * (t * (1 - beta) + first * beta) + z(0), p);
                    }
                    Baseline::Aegis => {
                        lists[0][place] = modulo(w(0) * t + first * beta + z(0), p);
                        lists[1][place] = modulo(w(1) * (w(0) * t + first) + z(1), p);
                    }
                }
            }
        }
        let format = Format::Field { p: p as u8, run: length };
        lists.into_iter().map(|list| self.packed(spec.prime.pack(list.into_iter()), format)).collect()
    }

    /// The protocol makes the list under its streams; the entries are found again, and masked by what is enumerated.
    fn host_list<W: Word>(
        &self,
        list: &HostList<'_, Self>,
        shares: &Buf<W>,
        make: impl FnOnce(&[W], &[u64], &ListStreams<'_>) -> Vec<u64>,
    ) -> Result<Buf<u64>> {
        let (n, length, streams) = (shares.len(), list.length, &list.streams);
        let p = above(1 << (list.width - 1));
        let made = make(shares, list.flips, streams);
        let w_made = on_host(streams.multiplier, p - 1, n * length);
        let z_made = on_host(streams.zero_share, p, n * length);
        let rotation_made = on_host(streams.rotation, length as u64, n);
        let w = self.read(streams.multiplier, p - 1, n, length)?;
        let z = self.read(streams.zero_share, p, n, length)?;
        let rotation = self.read(streams.rotation, length as u64, n, 1)?;
        let sign = if list.worker == 0 { 1 } else { -1 };
        let mut out = vec![0; n * length];
        for e in 0..n {
            for q in 0..length {
                let from = (q + rotation_made[e] as usize) % length;
                let value = sign * bits::get_low(&made, e * length + from, list.width) as i64;
                let (w_q, z_q) = (w_made[e * length + q] + 1, z_made[e * length + q]);
                let entry = (value - z_q as i64).rem_euclid(p as i64) * inverse(w_q, p) as i64 % p as i64;
                let value = sign * ((i64::from(w.at(e, q)) + 1) * entry + i64::from(z.at(e, q)));
                out[e * length + (q + usize::from(rotation.at(e, 0))) % length] = u64::from(modulo(value, p));
            }
        }
        self.packed(bits::pack_low(out.into_iter(), list.width), Format::Residue { p: p as u8, run: length })
    }

    fn open_truncated<W: Word>(
        &self,
        j: usize,
        masked: &Buf<W>,
        t: &Truncation<'_, W, Self>,
        output_mask: &Buf<W>,
    ) -> Result<Buf<W>> {
        let t = Truncation { bits: t.bits, high: t.high, top: t.top };
        Reference.open_truncated(j, masked, &t, output_mask)
    }

    fn open_selected<W: Word>(&self, j: usize, s: &Selected<'_, W, Self>) -> Result<Buf<W>> {
        let truncation = s
            .truncation
            .as_ref()
            .map(|(t, top_bit)| (Truncation { bits: t.bits, high: t.high, top: t.top }, *top_bit));
        let selected = Selected {
            masked: s.masked,
            mask: s.mask,
            choice: s.choice,
            flip: s.flip,
            bit: s.bit,
            mask_bit: s.mask_bit,
            truncation,
            output_mask: s.output_mask,
        };
        Reference.open_selected(j, &selected)
    }
}
