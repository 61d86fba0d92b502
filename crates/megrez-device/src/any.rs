//! A device whose kind is chosen at run time. Protocols are compiled once, for this one; a call
//! costs one more branch.

use megrez_cuda::Cuda;
use megrez_kernels::{
    BitProducts, ComparisonKeys, Cpu, DealtKeys, DealtLookup, Device, DeviceError, Elem, FieldShare,
    KeyShare, KeySpec, ListAlgebra, ListStreams, LookupKey, LookupKeys, LookupTables, MaskedLists, Memory,
    OpenSelected, OpenTruncated, Placement, Program, Selected, SignTables, SignedSums, Truncation, Usage,
};
use megrez_plan::{BitMatrices, ConvGeometry, Lookup, View};
use megrez_prg::Stream;
use megrez_ring::{Shape, Word};
use megrez_weights::Matrix;

type Result<T> = std::result::Result<T, DeviceError>;

/// A device of one of the kinds that there are.
#[derive(Clone)]
pub enum AnyDevice {
    /// The processor.
    Cpu(Cpu),
    /// A GPU.
    Cuda(Cuda),
}

/// Elements on such a device.
#[derive(Clone)]
pub enum AnyBuf<T: Elem> {
    /// In the host's memory.
    Cpu(<Cpu as Memory>::Buf<T>),
    /// In a GPU's.
    Cuda(<Cuda as Memory>::Buf<T>),
}

impl Default for AnyDevice {
    fn default() -> Self {
        AnyDevice::Cpu(Cpu::default())
    }
}

/// One of the kinds: its buffers among those of all kinds.
trait Kind: Device {
    fn wrap<T: Elem>(buf: Self::Buf<T>) -> AnyBuf<T>;
    fn own<T: Elem>(buf: &AnyBuf<T>) -> Option<&Self::Buf<T>>;
    fn take<T: Elem>(buf: AnyBuf<T>) -> Option<Self::Buf<T>>;
}

macro_rules! kind {
    ($kind:ident) => {
        impl Kind for $kind {
            fn wrap<T: Elem>(buf: Self::Buf<T>) -> AnyBuf<T> {
                AnyBuf::$kind(buf)
            }
            fn own<T: Elem>(buf: &AnyBuf<T>) -> Option<&Self::Buf<T>> {
                if let AnyBuf::$kind(buf) = buf { Some(buf) } else { None }
            }
            fn take<T: Elem>(buf: AnyBuf<T>) -> Option<Self::Buf<T>> {
                if let AnyBuf::$kind(buf) = buf { Some(buf) } else { None }
            }
        }
    };
}
kind!(Cpu);
kind!(Cuda);

fn foreign<D: Device>(device: &D) -> DeviceError {
    DeviceError { device: device.describe(), what: "was given a buffer of another device".into() }
}

/// The device's own form of a buffer.
fn own<'a, D: Kind, T: Elem>(device: &D, buf: &'a AnyBuf<T>) -> Result<&'a D::Buf<T>> {
    D::own(buf).ok_or_else(|| foreign(device))
}

fn all<'a, D: Kind, T: Elem>(device: &D, bufs: &[&'a AnyBuf<T>]) -> Result<Vec<&'a D::Buf<T>>> {
    bufs.iter().map(|buf| own(device, buf)).collect()
}

fn terms<'a, D: Kind, W: Word>(device: &D, terms: &[(W, &'a AnyBuf<W>)]) -> Result<Vec<(W, &'a D::Buf<W>)>> {
    terms.iter().map(|(c, x)| Ok((*c, own(device, x)?))).collect()
}

fn share<'a, D: Kind>(device: &D, share: FieldShare<'a, AnyDevice>) -> Result<FieldShare<'a, D>> {
    Ok(match share {
        FieldShare::Packed(words) => FieldShare::Packed(own(device, words)?),
        FieldShare::Stream(stream) => FieldShare::Stream(stream),
    })
}

fn truncation<'a, D: Kind, W: Word>(
    device: &D,
    t: &Truncation<'a, W, AnyDevice>,
) -> Result<Truncation<'a, W, D>> {
    Ok(Truncation { bits: t.bits, high: own(device, t.high)?, top: own(device, t.top)? })
}

fn wrap<D: Kind, T: Elem>(_: &D, buf: D::Buf<T>) -> AnyBuf<T> {
    D::wrap(buf)
}

/// The same work on the device, whatever its kind.
macro_rules! on {
    ($device:expr, $d:ident => $work:expr) => {
        match $device {
            AnyDevice::Cpu($d) => $work,
            AnyDevice::Cuda($d) => $work,
        }
    };
}

impl Memory for AnyDevice {
    type Buf<T: Elem> = AnyBuf<T>;

    fn describe(&self) -> String {
        on!(self, d => d.describe())
    }

    fn has_ring(&self, ring: u32) -> bool {
        on!(self, d => d.has_ring(ring))
    }

    fn usage(&self) -> Result<Option<Usage>> {
        on!(self, d => d.usage())
    }

    fn upload<T: Elem>(&self, data: Vec<T>) -> Result<AnyBuf<T>> {
        on!(self, d => Ok(wrap(d, d.upload(data)?)))
    }

    fn download<T: Elem>(&self, buf: AnyBuf<T>) -> Result<Vec<T>> {
        fn taken<D: Kind, T: Elem>(d: &D, buf: AnyBuf<T>) -> Result<Vec<T>> {
            d.download(D::take(buf).ok_or_else(|| foreign(d))?)
        }
        on!(self, d => taken(d, buf))
    }
}

impl Device for AnyDevice {
    fn combine<W: Word>(&self, x: &[(W, &AnyBuf<W>)], constant: W, n: usize) -> Result<AnyBuf<W>> {
        on!(self, d => Ok(wrap(d, d.combine(&terms(d, x)?, constant, n)?)))
    }

    fn products<W: Word>(
        &self,
        products: &[(W, &AnyBuf<W>, &AnyBuf<W>)],
        x: &[(W, &AnyBuf<W>)],
    ) -> Result<AnyBuf<W>> {
        fn owned<D: Kind, W: Word>(
            d: &D,
            products: &[(W, &AnyBuf<W>, &AnyBuf<W>)],
            x: &[(W, &AnyBuf<W>)],
        ) -> Result<AnyBuf<W>> {
            let products = products.iter().map(|(c, x, y)| Ok((*c, own(d, x)?, own(d, y)?)));
            Ok(D::wrap(d.products(&products.collect::<Result<Vec<_>>>()?, &terms(d, x)?)?))
        }
        on!(self, d => owned(d, products, x))
    }

    fn shift_right<W: Word>(&self, x: &AnyBuf<W>, k: u32) -> Result<AnyBuf<W>> {
        on!(self, d => Ok(wrap(d, d.shift_right(own(d, x)?, k)?)))
    }

    fn random<W: Word>(&self, stream: &Stream, n: usize) -> Result<AnyBuf<W>> {
        on!(self, d => Ok(wrap(d, d.random::<W>(stream, n)?)))
    }

    fn matmul<W: Word>(
        &self,
        x: &AnyBuf<W>,
        y: &AnyBuf<W>,
        batch: usize,
        sizes: [usize; 3],
    ) -> Result<AnyBuf<W>> {
        on!(self, d => Ok(wrap(d, d.matmul(own(d, x)?, own(d, y)?, batch, sizes)?)))
    }

    fn times_public<W: Word>(&self, x: &AnyBuf<W>, matrix: &Matrix) -> Result<AnyBuf<W>> {
        on!(self, d => Ok(wrap(d, d.times_public(own(d, x)?, matrix)?)))
    }

    fn conv<W: Word>(
        &self,
        x: &AnyBuf<W>,
        x_shape: &Shape,
        w: &AnyBuf<W>,
        w_shape: &Shape,
        geometry: &ConvGeometry,
    ) -> Result<AnyBuf<W>> {
        on!(self, d => Ok(wrap(d, d.conv(own(d, x)?, x_shape, own(d, w)?, w_shape, geometry)?)))
    }

    fn view<T: Elem>(&self, x: &AnyBuf<T>, view: &View) -> Result<AnyBuf<T>> {
        on!(self, d => Ok(wrap(d, d.view(own(d, x)?, view)?)))
    }

    fn view_bits(&self, x: &AnyBuf<u64>, view: &View) -> Result<AnyBuf<u64>> {
        on!(self, d => Ok(wrap(d, d.view_bits(own(d, x)?, view)?)))
    }

    fn place<T: Elem>(&self, parts: &[Placement<'_, T, Self>], n: usize) -> Result<AnyBuf<T>> {
        fn owned<D: Kind, T: Elem>(
            d: &D,
            parts: &[Placement<'_, T, AnyDevice>],
            n: usize,
        ) -> Result<AnyBuf<T>> {
            let parts = parts
                .iter()
                .map(|p| Ok(Placement { source: own(d, p.source)?, target: p.target.clone() }))
                .collect::<Result<Vec<_>>>()?;
            Ok(D::wrap(d.place(&parts, n)?))
        }
        on!(self, d => owned(d, parts, n))
    }

    fn gather<T: Elem>(&self, x: &AnyBuf<T>, sizes: [usize; 3], indices: &[usize]) -> Result<AnyBuf<T>> {
        on!(self, d => Ok(wrap(d, d.gather(own(d, x)?, sizes, indices)?)))
    }

    fn sum<W: Word>(&self, x: &AnyBuf<W>, sizes: [usize; 3]) -> Result<AnyBuf<W>> {
        on!(self, d => Ok(wrap(d, d.sum(own(d, x)?, sizes)?)))
    }

    fn random_bits(&self, stream: &Stream, n: usize) -> Result<AnyBuf<u64>> {
        on!(self, d => Ok(wrap(d, d.random_bits(stream, n)?)))
    }

    fn xor(&self, inputs: &[&AnyBuf<u64>], negate: bool, n: usize) -> Result<AnyBuf<u64>> {
        on!(self, d => Ok(wrap(d, d.xor(&all(d, inputs)?, negate, n)?)))
    }

    fn join_bits(&self, parts: &[(&AnyBuf<u64>, usize)]) -> Result<AnyBuf<u64>> {
        fn owned<D: Kind>(d: &D, parts: &[(&AnyBuf<u64>, usize)]) -> Result<AnyBuf<u64>> {
            let parts = parts.iter().map(|(x, n)| Ok((own(d, x)?, *n))).collect::<Result<Vec<_>>>()?;
            Ok(D::wrap(d.join_bits(&parts)?))
        }
        on!(self, d => owned(d, parts))
    }

    fn and(&self, a: &AnyBuf<u64>, b: &AnyBuf<u64>) -> Result<AnyBuf<u64>> {
        on!(self, d => Ok(wrap(d, d.and(own(d, a)?, own(d, b)?)?)))
    }

    fn msb<W: Word>(&self, x: &AnyBuf<W>) -> Result<AnyBuf<u64>> {
        on!(self, d => Ok(wrap(d, d.msb(own(d, x)?)?)))
    }

    fn bit_times<W: Word>(&self, bits: &AnyBuf<u64>, x: Option<&AnyBuf<W>>, n: usize) -> Result<AnyBuf<W>> {
        on!(self, d => {
            let x = x.map(|x| own(d, x)).transpose()?;
            Ok(wrap(d, d.bit_times(own(d, bits)?, x, n)?))
        })
    }

    fn pack_low<W: Word>(&self, x: &AnyBuf<W>, width: u32) -> Result<AnyBuf<u64>> {
        on!(self, d => Ok(wrap(d, d.pack_low(own(d, x)?, width)?)))
    }

    fn unpack_low<W: Word>(&self, x: &AnyBuf<u64>, width: u32, n: usize) -> Result<AnyBuf<W>> {
        on!(self, d => Ok(wrap(d, d.unpack_low::<W>(own(d, x)?, width, n)?)))
    }

    fn bit_planes<W: Word>(&self, x: &AnyBuf<W>, from: u32, count: u32) -> Result<AnyBuf<u64>> {
        on!(self, d => Ok(wrap(d, d.bit_planes(own(d, x)?, from, count)?)))
    }

    fn join_planes<W: Word>(&self, x: &AnyBuf<u64>, n: usize) -> Result<AnyBuf<W>> {
        on!(self, d => Ok(wrap(d, d.join_planes::<W>(own(d, x)?, n)?)))
    }

    fn pack_planes(&self, x: &AnyBuf<u64>, planes: usize, n: usize) -> Result<AnyBuf<u64>> {
        on!(self, d => Ok(wrap(d, d.pack_planes(own(d, x)?, planes, n)?)))
    }

    fn unpack_planes(&self, x: &AnyBuf<u64>, planes: usize, n: usize) -> Result<AnyBuf<u64>> {
        on!(self, d => Ok(wrap(d, d.unpack_planes(own(d, x)?, planes, n)?)))
    }

    fn run_circuit(
        &self,
        program: &Program,
        inputs: &[&AnyBuf<u64>],
        words: usize,
    ) -> Result<Vec<AnyBuf<u64>>> {
        on!(self, d => {
            let outputs = d.run_circuit(program, &all(d, inputs)?, words)?;
            Ok(outputs.into_iter().map(|out| wrap(d, out)).collect())
        })
    }
}

impl MaskedLists for AnyDevice {
    fn deal_list<W: Word>(
        &self,
        list: &dyn ListAlgebra,
        masks: &AnyBuf<W>,
        other: &Stream,
    ) -> Result<(AnyBuf<u64>, AnyBuf<u64>)> {
        on!(self, d => {
            let (dealt, kept) = d.deal_list(list, own(d, masks)?, other)?;
            Ok((wrap(d, dealt), wrap(d, kept)))
        })
    }

    fn masked_lists<W: Word>(
        &self,
        list: &dyn ListAlgebra,
        j: usize,
        values: &AnyBuf<W>,
        dealt: Option<FieldShare<'_, Self>>,
        flips: &AnyBuf<u64>,
        streams: &ListStreams<'_>,
    ) -> Result<Vec<AnyBuf<u64>>> {
        on!(self, d => {
            let (values, flips) = (own(d, values)?, own(d, flips)?);
            let dealt = dealt.map(|dealt| share(d, dealt)).transpose()?;
            let lists = d.masked_lists(list, j, values, dealt, flips, streams)?;
            Ok(lists.into_iter().map(|list| wrap(d, list)).collect())
        })
    }

    fn scan_lists(
        &self,
        list: &dyn ListAlgebra,
        lists: [&[AnyBuf<u64>]; 2],
        n: usize,
    ) -> Result<AnyBuf<u64>> {
        fn owned<D: Kind>(
            d: &D,
            list: &dyn ListAlgebra,
            [a, b]: [&[AnyBuf<u64>]; 2],
            n: usize,
        ) -> Result<AnyBuf<u64>> {
            let own = |lists: &[AnyBuf<u64>]| lists.iter().map(|l| own(d, l).cloned()).collect();
            let (a, b): (Result<Vec<_>>, Result<Vec<_>>) = (own(a), own(b));
            Ok(D::wrap(d.scan_lists(list, [&a?, &b?], n)?))
        }
        on!(self, d => owned(d, list, lists, n))
    }
}

impl OpenTruncated for AnyDevice {
    fn open_truncated<W: Word>(
        &self,
        j: usize,
        masked: &AnyBuf<W>,
        t: &Truncation<'_, W, Self>,
        output_mask: &AnyBuf<W>,
    ) -> Result<AnyBuf<W>> {
        on!(self, d => {
            let t = truncation(d, t)?;
            Ok(wrap(d, d.open_truncated(j, own(d, masked)?, &t, own(d, output_mask)?)?))
        })
    }

    fn truncation_carry<W: Word>(
        &self,
        masked: &AnyBuf<W>,
        top: &AnyBuf<W>,
        mask: &AnyBuf<W>,
    ) -> Result<AnyBuf<W>> {
        on!(self, d => {
            Ok(wrap(d, d.truncation_carry(own(d, masked)?, own(d, top)?, own(d, mask)?)?))
        })
    }

    fn close_truncated<W: Word>(
        &self,
        masked: &AnyBuf<W>,
        f: u32,
        [a, b]: [&AnyBuf<W>; 2],
    ) -> Result<AnyBuf<W>> {
        on!(self, d => Ok(wrap(d, d.close_truncated(own(d, masked)?, f, [own(d, a)?, own(d, b)?])?)))
    }
}

impl OpenSelected for AnyDevice {
    fn open_selected<W: Word>(&self, j: usize, args: &Selected<'_, W, Self>) -> Result<AnyBuf<W>> {
        fn owned<D: Kind, W: Word>(d: &D, j: usize, args: &Selected<'_, W, AnyDevice>) -> Result<AnyBuf<W>> {
            let truncation = match &args.truncation {
                Some((t, top_bit)) => Some((truncation(d, t)?, own(d, top_bit)?)),
                None => None,
            };
            let args = Selected {
                masked: own(d, args.masked)?,
                mask: own(d, args.mask)?,
                choice: own(d, args.choice)?,
                flip: args.flip.map(|flip| own(d, flip)).transpose()?,
                bit: own(d, args.bit)?,
                mask_bit: own(d, args.mask_bit)?,
                truncation,
                output_mask: own(d, args.output_mask)?,
            };
            Ok(D::wrap(d.open_selected(j, &args)?))
        }
        on!(self, d => owned(d, j, args))
    }
}

impl LookupTables for AnyDevice {
    fn lookup_tables<W: Word>(&self, f: &Lookup, masks: &AnyBuf<W>) -> Result<AnyBuf<W>> {
        on!(self, d => Ok(wrap(d, d.lookup_tables(f, own(d, masks)?)?)))
    }

    fn open_looked_up<W: Word>(
        &self,
        f: &Lookup,
        masked: &AnyBuf<W>,
        tables: &AnyBuf<W>,
        output_mask: &AnyBuf<W>,
    ) -> Result<AnyBuf<W>> {
        on!(self, d => {
            let [masked, tables, mask] = [own(d, masked)?, own(d, tables)?, own(d, output_mask)?];
            Ok(wrap(d, d.open_looked_up(f, masked, tables, mask)?))
        })
    }
}

impl LookupKeys for AnyDevice {
    fn deal_lookup<W: Word>(
        &self,
        f: &Lookup,
        permutations: &AnyBuf<u64>,
        masks: &AnyBuf<W>,
        roots: [&Stream; 2],
    ) -> Result<DealtLookup<W, Self>> {
        on!(self, d => {
            let dealt = d.deal_lookup(f, own(d, permutations)?, own(d, masks)?, roots)?;
            Ok(DealtLookup {
                first: wrap(d, dealt.first),
                others: wrap(d, dealt.others),
                values: wrap(d, dealt.values),
            })
        })
    }

    fn open_by_keys<W: Word>(
        &self,
        f: &Lookup,
        permutations: &AnyBuf<u64>,
        masked: &AnyBuf<W>,
        key: &LookupKey<'_, W, Self>,
        output_mask: &AnyBuf<W>,
    ) -> Result<AnyBuf<W>> {
        on!(self, d => {
            let key = LookupKey {
                root: key.root,
                first: key.first.map(|first| own(d, first)).transpose()?,
                others: own(d, key.others)?,
                values: own(d, key.values)?,
                mask: own(d, key.mask)?,
            };
            let (permutations, masked) = (own(d, permutations)?, own(d, masked)?);
            Ok(wrap(d, d.open_by_keys(f, permutations, masked, &key, own(d, output_mask)?)?))
        })
    }
}

impl SignTables for AnyDevice {
    fn sign_table<W: Word>(
        &self,
        cut: u32,
        width: u32,
        masks: &AnyBuf<W>,
        bits: &AnyBuf<u64>,
    ) -> Result<AnyBuf<u64>> {
        on!(self, d => Ok(wrap(d, d.sign_table(cut, width, own(d, masks)?, own(d, bits)?)?)))
    }

    fn look_up_sign<W: Word>(
        &self,
        cut: u32,
        width: u32,
        j: usize,
        masked: &AnyBuf<W>,
        table: &AnyBuf<u64>,
    ) -> Result<AnyBuf<u64>> {
        on!(self, d => Ok(wrap(d, d.look_up_sign(cut, width, j, own(d, masked)?, own(d, table)?)?)))
    }
}

impl SignedSums for AnyDevice {
    fn signed_sum<W: Word>(
        &self,
        base: &AnyBuf<W>,
        rows: &AnyBuf<W>,
        terms: &[usize],
        signs: &AnyBuf<u64>,
    ) -> Result<AnyBuf<W>> {
        on!(self, d => Ok(wrap(d, d.signed_sum(own(d, base)?, own(d, rows)?, terms, own(d, signs)?)?)))
    }
}

impl BitProducts for AnyDevice {
    fn bit_product(&self, x: &AnyBuf<u64>, y: &AnyBuf<u64>, sizes: BitMatrices) -> Result<AnyBuf<u64>> {
        on!(self, d => Ok(wrap(d, d.bit_product(own(d, x)?, own(d, y)?, sizes)?)))
    }
}

impl ComparisonKeys for AnyDevice {
    fn deal_keys<W: Word>(
        &self,
        spec: KeySpec,
        permutations: &AnyBuf<u64>,
        masks: &AnyBuf<W>,
        roots: [&Stream; 2],
    ) -> Result<DealtKeys<W, Self>> {
        on!(self, d => {
            let dealt = d.deal_keys(spec, own(d, permutations)?, own(d, masks)?, roots)?;
            Ok(DealtKeys {
                first: wrap(d, dealt.first),
                others: wrap(d, dealt.others),
                values: wrap(d, dealt.values),
                tops: wrap(d, dealt.tops),
            })
        })
    }

    fn evaluate_keys<W: Word>(
        &self,
        spec: KeySpec,
        permutations: &AnyBuf<u64>,
        masked: &AnyBuf<W>,
        key: &KeyShare<'_, W, Self>,
    ) -> Result<Vec<AnyBuf<W>>> {
        on!(self, d => {
            let share = KeyShare {
                root: key.root,
                first: key.first.map(|first| own(d, first)).transpose()?,
                others: own(d, key.others)?,
                values: own(d, key.values)?,
                tops: own(d, key.tops)?,
            };
            let sums = d.evaluate_keys(spec, own(d, permutations)?, own(d, masked)?, &share)?;
            Ok(sums.into_iter().map(|sum| wrap(d, sum)).collect())
        })
    }
}
