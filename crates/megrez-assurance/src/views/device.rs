//! A device whose randomness is enumerated. Arithmetic is the reference device's; what draws is
//! stated here again, so that both statements check each other; a list's algebra is the protocol's.

use super::draws::{Format, Values, World};
use megrez_kernels::{
    BitProducts, ComparisonKeys, DealtKeys, Device, DeviceError, Elem, Field, FieldShare, KeyShare, KeySpec,
    ListAlgebra, ListInput, ListStreams, LookupKeys, LookupTables, MaskedLists, Memory, OpenSelected,
    OpenTruncated, Placement, Reference, Selected, SignTables, SignedSums, Truncation,
};
use megrez_plan::{ConvGeometry, View};
use megrez_prg::Stream;
use megrez_ring::{Shape, Word, bits};
use megrez_weights::Matrix;
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

    /// Elements of a field in the form of the wire, `run` for each value.
    fn packed_field(&self, field: Field, elements: &[u32], run: usize) -> Result<Buf<u64>> {
        let p = field.p() as u8;
        let format = match field.prime() {
            Some(_) => Format::Field { p, run },
            None => Format::Residue { p, run },
        };
        self.packed(field.pack(elements), format)
    }
}

impl Memory for Enumerating {
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
}

impl Device for Enumerating {
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
    fn times_public<W: Word>(&self, x: &Buf<W>, matrix: &Matrix) -> Result<Buf<W>> {
        Reference.times_public(x, matrix)
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
}

impl MaskedLists for Enumerating {
    fn deal_list<W: Word>(
        &self,
        list: &dyn ListAlgebra,
        masks: &Buf<W>,
        other: &Stream,
    ) -> Result<(Buf<u64>, Buf<u64>)> {
        let (field, n, dealt) = (list.field(), masks.len(), list.dealt());
        let other = self.read(other, field.p(), n, dealt)?;
        let (mut shares, mut kept) = (vec![], vec![]);
        for (e, r) in masks.iter().enumerate() {
            kept.push(list.deal(r.to_u64(), &mut |secret| {
                let other = other.at(e, shares.len() % dealt);
                shares.push(field.residue(secret as i64 - i64::from(other)));
            }));
        }
        Ok((self.packed_field(field, &shares, dealt)?, Arc::new(bits::pack(n, |e| kept[e]))))
    }

    /// As every device, with what is enumerated for the streams' samples.
    fn masked_lists<W: Word>(
        &self,
        list: &dyn ListAlgebra,
        j: usize,
        values: &Buf<W>,
        share: Option<FieldShare<'_, Self>>,
        flips: &Buf<u64>,
        streams: &ListStreams<'_>,
    ) -> Result<Vec<Buf<u64>>> {
        let (field, n, length, count) = (list.field(), values.len(), list.length(), list.lists());
        let dealt: Vec<i64> = match share {
            None => vec![],
            Some(FieldShare::Packed(words)) => {
                field.unpack(words, n * list.dealt()).into_iter().map(i64::from).collect()
            }
            Some(FieldShare::Stream(stream)) => {
                let values = self.read(stream, field.p(), n, list.dealt())?;
                (0..n * list.dealt()).map(|i| values.at(i / list.dealt(), i % list.dealt()).into()).collect()
            }
        };
        // Samples of list c lie behind those of all elements of the lists before.
        let w = self.read(streams.multiplier, field.p() - 1, count * n, length)?;
        let z = self.read(streams.zero_share, field.p(), count * n, length)?;
        let rotation = self.read(streams.rotation, length as u64, n, 1)?;
        let mut lists = vec![vec![0; n * length]; count];
        for e in 0..n {
            let w = |i: usize| i64::from(w.at(i / length * n + e, i % length)) + 1;
            let multipliers: Vec<i64> = (0..count * length).map(w).collect();
            let dealt = &dealt[e * list.dealt()..][..list.dealt()];
            let (value, flip) = (values[e].to_u64(), bits::get(flips, e));
            let mut i = 0;
            list.entries(&ListInput { j, value, flip, dealt, multipliers: &multipliers }, &mut |entry| {
                let (c, q) = (i % count, i / count);
                let z = if j == 0 { 1 } else { -1 } * i64::from(z.at(c * n + e, q));
                let place = (q + usize::from(rotation.at(e, 0))) % length;
                lists[c][e * length + place] = field.residue(entry + z);
                i += 1;
            });
        }
        lists.iter().map(|list| self.packed_field(field, list, length)).collect()
    }

    fn scan_lists(&self, list: &dyn ListAlgebra, lists: [&[Buf<u64>]; 2], n: usize) -> Result<Buf<u64>> {
        Reference.scan_lists(list, lists, n)
    }
}

impl OpenTruncated for Enumerating {
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

    fn truncation_carry<W: Word>(&self, masked: &Buf<W>, top: &Buf<W>, mask: &Buf<W>) -> Result<Buf<W>> {
        Reference.truncation_carry(masked, top, mask)
    }

    fn close_truncated<W: Word>(&self, masked: &Buf<W>, f: u32, carries: [&Buf<W>; 2]) -> Result<Buf<W>> {
        Reference.close_truncated(masked, f, carries)
    }
}

impl OpenSelected for Enumerating {
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

impl SignTables for Enumerating {}

impl SignedSums for Enumerating {}

impl BitProducts for Enumerating {}

impl LookupTables for Enumerating {}

/// Never on rings as small as these: tables are of fewer bits.
impl LookupKeys for Enumerating {}

/// Keys as an ideal dealer would deal them: the tree cannot be enumerated, so worker 0's sum at
/// every walk is uniform, from its roots, and worker 1 is sent what is left of the function's
/// table, in place of the first correction. The others are zeros. What is enumerated is the step
/// around a key, not the key.
impl ComparisonKeys for Enumerating {
    fn deal_keys<W: Word>(
        &self,
        spec: KeySpec,
        _: &Buf<u64>,
        masks: &Buf<W>,
        [root, other]: [&Stream; 2],
    ) -> Result<DealtKeys<W, Self>> {
        let (n, parts, entries) = (masks.len(), spec.parts(), 1usize << spec.levels());
        let own = self.read(root, 1 << W::BITS, n, entries * parts)?;
        self.read(other, 1 << W::BITS, n, 1)?;
        let word = |i: usize| {
            let (q, e) = (i / n / parts, i % n);
            let (p, low) = (i / n % parts, (masks[e].to_u64() >> spec.cut) as usize % entries);
            let value = if q >= low { spec.payload(masks[e])[p] } else { W::ZERO };
            value.sub(W::from_u64(own.at(e, q * parts + p).into())).to_u64()
        };
        let mut first = bits::pack_low((0..entries * parts * n).map(word), W::BITS);
        assert!(first.len() <= 2 * n, "a table of {entries} entries is longer than a correction");
        first.resize(2 * n, 0);
        Ok(DealtKeys {
            first: self.packed(first, Format::Low { width: W::BITS })?,
            others: Arc::new(vec![0; 2 * (spec.levels() - 1) * n]),
            values: Arc::new(vec![W::ZERO; 2 * spec.digits() * n]),
            tops: Arc::new(vec![W::ZERO; (parts - 2) * spec.digits() * n]),
        })
    }

    fn evaluate_keys<W: Word>(
        &self,
        spec: KeySpec,
        _: &Buf<u64>,
        masked: &Buf<W>,
        key: &KeyShare<'_, W, Self>,
    ) -> Result<Vec<Buf<W>>> {
        let (n, parts, entries) = (masked.len(), spec.parts(), 1usize << spec.levels());
        let draws = if key.first.is_some() { 1 } else { entries * parts };
        let own = self.read(key.root, 1 << W::BITS, n, draws)?;
        let at = |p: usize, e: usize| {
            let q = (masked[e].to_u64() >> spec.cut) as usize % entries;
            W::from_u64(match key.first {
                Some(first) => bits::get_low(first, (q * parts + p) * n + e, W::BITS),
                None => own.at(e, q * parts + p).into(),
            })
        };
        Ok((0..parts).map(|p| Arc::new((0..n).map(|e| at(p, e)).collect())).collect())
    }
}
