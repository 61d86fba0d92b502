//! The seam between protocols and hardware.

use crate::baseline::{self, Baseline};
use crate::circuit::Program;
use crate::list::{ListSpec, ListStreams};
use megrez_plan::{ConvGeometry, View};
use megrez_prg::{FieldSampler, Stream};
use megrez_ring::{Shape, Word, bits};

/// What a device can hold.
pub trait Elem: bytemuck::Pod + Default + Send + Sync + 'static {}
impl<T: bytemuck::Pod + Default + Send + Sync + 'static> Elem for T {}

/// A device that cannot do its work: out of memory, lost, or not there.
#[derive(Debug, Clone, thiserror::Error, PartialEq, Eq)]
#[error("device {device}: {what}")]
pub struct DeviceError {
    /// Which device.
    pub device: String,
    /// What happened and what to do.
    pub what: String,
}

/// What a device with a clock and memory of its own has done since it was made.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Usage {
    /// Seconds that kernels ran.
    pub kernel_seconds: f64,
    /// Bytes in use now.
    pub memory: usize,
    /// The most bytes in use at once.
    pub peak_memory: usize,
}

/// A worker's share of elements of F_p that the dealer dealt.
pub enum FieldShare<'a, D: Device> {
    /// Received, in the dense form of the wire.
    Packed(&'a D::Buf<u64>),
    /// From the stream shared with the dealer: element i is value i of [`megrez_prg::FieldSampler`] with bound p.
    Stream(&'a Stream),
}

/// What a list that a protocol makes on the host is made of, beside the values: see [`Device::host_list`].
pub struct HostList<'a, D: Device> {
    /// The worker.
    pub worker: usize,
    /// Entries per value.
    pub length: usize,
    /// Bits of an entry, densely packed.
    pub width: u32,
    /// The workers' common bits, one per value.
    pub flips: &'a D::Buf<u64>,
    /// Their common streams.
    pub streams: ListStreams<'a>,
}

/// A share of the truncation's mask, for a fused or a plain truncation.
pub struct Truncation<'a, W: Word, D: Device> {
    /// Fraction bits dropped, f.
    pub bits: u32,
    /// [R]: a share of r >> f.
    pub high: &'a D::Buf<W>,
    /// [b]: a share of msb(r); only its low f bits matter.
    pub top: &'a D::Buf<W>,
}

/// The operands of a selected opening (see [`Device::open_selected`]).
pub struct Selected<'a, W: Word, D: Device> {
    /// Masked value, m.
    pub masked: &'a D::Buf<W>,
    /// [r]: the worker's share of its mask; unused with `truncation`.
    pub mask: &'a D::Buf<W>,
    /// The public bit f.
    pub choice: &'a D::Buf<u64>,
    /// The workers' bit δ, if there is one.
    pub flip: Option<&'a D::Buf<u64>>,
    /// [a]: a share of the dealer's bit.
    pub bit: &'a D::Buf<W>,
    /// [r·a], or [R·a] with `truncation`.
    pub mask_bit: &'a D::Buf<W>,
    /// With a truncation: its masks and [b·a].
    pub truncation: Option<(Truncation<'a, W, D>, &'a D::Buf<W>)>,
    /// [r_z]: a share of the output's mask.
    pub output_mask: &'a D::Buf<W>,
}

/// Where one input goes in a joined or padded tensor.
pub struct Placement<'a, T: Elem, D: Device> {
    /// The input.
    pub source: &'a D::Buf<T>,
    /// The position of each of its elements in the output.
    pub target: View,
}

/// Where tensors live and where local work runs. Kernels are pure: they allocate their output. Lengths must agree as
/// stated; they are checked by debug assertions since callers derive them from a validated plan.
pub trait Device: Clone + Send + Sync + 'static {
    /// Memory for elements of type `T`. Clones share memory.
    type Buf<T: Elem>: Clone + Send + Sync + 'static;

    /// What runs, for reports: `cpu (avx512, 2 threads)`.
    fn describe(&self) -> String;

    /// Kernel time and memory; `None` where they are the host's own. May wait for work under way.
    fn usage(&self) -> Result<Option<Usage>, DeviceError> {
        Ok(None)
    }

    /// Takes elements from the host.
    fn upload<T: Elem>(&self, data: Vec<T>) -> Result<Self::Buf<T>, DeviceError>;
    /// Gives elements to the host; free of copies where the device is the host and the buffer has no other user.
    fn download<T: Elem>(&self, buf: Self::Buf<T>) -> Result<Vec<T>, DeviceError>;

    // ---- ring arithmetic, element by element ----

    /// Σ c_i · x_i + constant over buffers of `n` elements (`terms` may be empty).
    fn combine<W: Word>(
        &self,
        terms: &[(W, &Self::Buf<W>)],
        constant: W,
        n: usize,
    ) -> Result<Self::Buf<W>, DeviceError>;
    /// Σ c_i · x_i · y_i + Σ d_k · t_k; at least one product.
    fn products<W: Word>(
        &self,
        products: &[(W, &Self::Buf<W>, &Self::Buf<W>)],
        terms: &[(W, &Self::Buf<W>)],
    ) -> Result<Self::Buf<W>, DeviceError>;
    /// x >> k, logical.
    fn shift_right<W: Word>(&self, x: &Self::Buf<W>, k: u32) -> Result<Self::Buf<W>, DeviceError>;
    /// `n` uniform elements: the stream's words in memory order, cut to the width of `W`.
    fn random<W: Word>(&self, stream: &Stream, n: usize) -> Result<Self::Buf<W>, DeviceError>;

    // ---- products of matrices and images ----

    /// `batch` products of m×k by k×n, `sizes` = [m, k, n].
    fn matmul<W: Word>(
        &self,
        x: &Self::Buf<W>,
        y: &Self::Buf<W>,
        batch: usize,
        sizes: [usize; 3],
    ) -> Result<Self::Buf<W>, DeviceError>;
    /// NCHW by OIHW.
    fn conv<W: Word>(
        &self,
        x: &Self::Buf<W>,
        x_shape: &Shape,
        w: &Self::Buf<W>,
        w_shape: &Shape,
        geometry: &ConvGeometry,
    ) -> Result<Self::Buf<W>, DeviceError>;

    // ---- structure ----

    /// Rearranges elements.
    fn view<T: Elem>(&self, x: &Self::Buf<T>, view: &View) -> Result<Self::Buf<T>, DeviceError>;
    /// Rearranges packed bits.
    fn view_bits(&self, x: &Self::Buf<u64>, view: &View) -> Result<Self::Buf<u64>, DeviceError>;
    /// A zero output of `n` elements with every input put in its place; places do not overlap.
    fn place<T: Elem>(&self, parts: &[Placement<'_, T, Self>], n: usize)
    -> Result<Self::Buf<T>, DeviceError>;
    /// Slices `indices` of the middle dimension of `sizes` = [outer, axis, inner].
    fn gather<T: Elem>(
        &self,
        x: &Self::Buf<T>,
        sizes: [usize; 3],
        indices: &[usize],
    ) -> Result<Self::Buf<T>, DeviceError>;
    /// The sum over the middle dimension of `sizes` = [outer, axis, inner].
    fn sum<W: Word>(&self, x: &Self::Buf<W>, sizes: [usize; 3]) -> Result<Self::Buf<W>, DeviceError>;

    // ---- packed bits ----

    /// `n` uniform bits.
    fn random_bits(&self, stream: &Stream, n: usize) -> Result<Self::Buf<u64>, DeviceError>;
    /// The exclusive or of all inputs, negated if `negate`; `n` bits.
    fn xor(&self, inputs: &[&Self::Buf<u64>], negate: bool, n: usize) -> Result<Self::Buf<u64>, DeviceError>;
    /// Packed bits one after the other: every buffer with its number of bits. On the host unless a device knows better.
    fn join_bits(&self, parts: &[(&Self::Buf<u64>, usize)]) -> Result<Self::Buf<u64>, DeviceError> {
        let (mut joined, mut filled) = (vec![], 0);
        for (part, n) in parts {
            let words = self.download(<Self::Buf<u64> as Clone>::clone(part))?;
            bits::append(&mut joined, filled, &words, *n);
            filled += n;
        }
        self.upload(joined)
    }
    /// a ∧ b.
    fn and(&self, a: &Self::Buf<u64>, b: &Self::Buf<u64>) -> Result<Self::Buf<u64>, DeviceError>;
    /// The most significant bit of each of `n` elements.
    fn msb<W: Word>(&self, x: &Self::Buf<W>) -> Result<Self::Buf<u64>, DeviceError>;
    /// bit · x, or the bit itself as 0 or 1 without `x`; `n` elements.
    fn bit_times<W: Word>(
        &self,
        bits: &Self::Buf<u64>,
        x: Option<&Self::Buf<W>>,
        n: usize,
    ) -> Result<Self::Buf<W>, DeviceError>;
    /// The low `width` bits of each element, densely packed.
    fn pack_low<W: Word>(&self, x: &Self::Buf<W>, width: u32) -> Result<Self::Buf<u64>, DeviceError>;
    /// Undoes [`Device::pack_low`] for `n` elements.
    fn unpack_low<W: Word>(
        &self,
        x: &Self::Buf<u64>,
        width: u32,
        n: usize,
    ) -> Result<Self::Buf<W>, DeviceError>;

    // ---- bit planes: plane i holds bit i of n values in ceil(n/64) words ----

    /// Planes `from`, …, `from + count − 1` of each element.
    fn bit_planes<W: Word>(
        &self,
        x: &Self::Buf<W>,
        from: u32,
        count: u32,
    ) -> Result<Self::Buf<u64>, DeviceError> {
        let x = self.download(x.clone())?;
        let plane = |k| bits::pack(x.len(), |i| x[i].to_u64() >> (from + k));
        self.upload((0..count).flat_map(plane).collect())
    }
    /// Undoes [`Device::bit_planes`]: `n` elements whose bits from 0 on are the planes of `x`, the others zero.
    fn join_planes<W: Word>(&self, x: &Self::Buf<u64>, n: usize) -> Result<Self::Buf<W>, DeviceError> {
        let (x, words) = (self.download(x.clone())?, bits::words(n));
        let planes = x.len() / words.max(1);
        let element = |i| (0..planes).fold(0, |v, k| v | bits::get(&x[k * words..], i) << k);
        self.upload((0..n).map(|i| W::from_u64(element(i))).collect())
    }
    /// Planes of `n` values as dense bits, plane after plane: the form of the wire. Lanes past the end are dropped.
    fn pack_planes(
        &self,
        x: &Self::Buf<u64>,
        planes: usize,
        n: usize,
    ) -> Result<Self::Buf<u64>, DeviceError> {
        if n.is_multiple_of(64) {
            return Ok(x.clone());
        }
        let (x, words) = (self.download(x.clone())?, bits::words(n));
        let mut packed = Vec::with_capacity(bits::words(planes * n));
        for (k, plane) in x.chunks_exact(words).take(planes).enumerate() {
            let mut plane = plane.to_vec();
            bits::clear_tail(&mut plane, n);
            bits::append(&mut packed, k * n, &plane, n);
        }
        self.upload(packed)
    }
    /// Undoes [`Device::pack_planes`].
    fn unpack_planes(
        &self,
        x: &Self::Buf<u64>,
        planes: usize,
        n: usize,
    ) -> Result<Self::Buf<u64>, DeviceError> {
        if n.is_multiple_of(64) {
            return Ok(x.clone());
        }
        let x = self.download(x.clone())?;
        self.upload((0..planes).flat_map(|k| bits::pack(n, |i| bits::get(&x, k * n + i))).collect())
    }
    /// Runs a circuit on planes of `words` words: one buffer for every output of the circuit.
    fn run_circuit(
        &self,
        program: &Program,
        inputs: &[&Self::Buf<u64>],
        words: usize,
    ) -> Result<Vec<Self::Buf<u64>>, DeviceError> {
        let host = |x: &&Self::Buf<u64>| self.download(<Self::Buf<u64> as Clone>::clone(x));
        let inputs = inputs.iter().map(host).collect::<Result<Vec<_>, _>>()?;
        let inputs: Vec<&[u64]> = inputs.iter().map(Vec::as_slice).collect();
        program.run(&inputs, words).into_iter().map(|out| self.upload(out)).collect()
    }

    // ---- masked shares with a dealer (fused steps of mizar) ----

    /// The dealer's side of a masked list: from the full masks r, worker 0's packed shares of the dealt elements (worker
    /// 1's come from `other`), and the bits s = msb(−(r >> k) mod 2^λ).
    fn deal_list<W: Word>(
        &self,
        spec: &ListSpec,
        masks: &Self::Buf<W>,
        other: &Stream,
    ) -> Result<(Self::Buf<u64>, Self::Buf<u64>), DeviceError>;
    /// Worker `j`'s masked list for the masked values m and the workers' bits Δ, packed for the wire.
    fn masked_list<W: Word>(
        &self,
        spec: &ListSpec,
        j: usize,
        masked: &Self::Buf<W>,
        share: FieldShare<'_, Self>,
        flips: &Self::Buf<u64>,
        streams: &ListStreams<'_>,
    ) -> Result<Self::Buf<u64>, DeviceError>;
    /// The dealer's answer for `n` values: bit e is 1 if the sum of the two lists of value e holds no zero.
    fn scan_lists(
        &self,
        spec: &ListSpec,
        lists: [&Self::Buf<u64>; 2],
        n: usize,
    ) -> Result<Self::Buf<u64>, DeviceError>;
    /// Worker `j`'s lists of a baseline, in place of [`Device::masked_list`]; on the host.
    fn baseline_lists<W: Word>(
        &self,
        (kind, spec): (Baseline, &ListSpec),
        j: usize,
        masked: &Self::Buf<W>,
        share: FieldShare<'_, Self>,
        flips: &Self::Buf<u64>,
        streams: &ListStreams<'_>,
    ) -> Result<Vec<Self::Buf<u64>>, DeviceError> {
        let (masked, flips) = (self.download(masked.clone())?, self.download(flips.clone())?);
        let dealt = masked.len() * spec.dealt();
        let share = match share {
            FieldShare::Packed(words) => spec.prime.unpack(&self.download(words.clone())?, dealt),
            FieldShare::Stream(stream) => {
                let mut share = vec![0; dealt];
                FieldSampler::new(spec.prime.p()).fill(stream, 0, &mut share);
                share
            }
        };
        let lists = baseline::lists(kind, spec, j, &masked, &share, &flips, streams);
        lists.into_iter().map(|list| self.upload(list)).collect()
    }
    /// The dealer's answer to both workers' lists of a baseline, in place of [`Device::scan_lists`]; on the host.
    fn scan_baseline(
        &self,
        (kind, spec): (Baseline, &ListSpec),
        lists: [&[Self::Buf<u64>]; 2],
        n: usize,
    ) -> Result<Self::Buf<u64>, DeviceError> {
        let host = |lists: &[Self::Buf<u64>]| {
            lists.iter().map(|list| self.download(list.clone())).collect::<Result<Vec<_>, _>>()
        };
        let (a, b) = (host(lists[0])?, host(lists[1])?);
        self.upload(baseline::scan(kind, spec, [&a, &b], n))
    }
    /// A masked list that a protocol makes itself, on the host, from a worker's shares and the common bits: as [`Device::masked_list`],
    /// entries are multiplied, turned and hidden by a zero-share, which worker 1 subtracts.
    fn host_list<W: Word>(
        &self,
        list: &HostList<'_, Self>,
        shares: &Self::Buf<W>,
        make: impl FnOnce(&[W], &[u64], &ListStreams<'_>) -> Vec<u64>,
    ) -> Result<Self::Buf<u64>, DeviceError> {
        let flips = self.download(<Self::Buf<u64> as Clone>::clone(list.flips))?;
        self.upload(make(&self.download(shares.clone())?, &flips, &list.streams))
    }
    /// What the helper makes of both workers' lists, on the host: `n` bits.
    fn host_scan(
        &self,
        lists: [&Self::Buf<u64>; 2],
        _n: usize,
        scan: impl FnOnce([&[u64]; 2]) -> Vec<u64>,
    ) -> Result<Self::Buf<u64>, DeviceError> {
        let [a, b] = lists.map(|list| self.download(<Self::Buf<u64> as Clone>::clone(list)));
        self.upload(scan([&a?, &b?]))
    }
    /// Worker `j`'s share of the masked truncated value:
    /// [j=0]·((m'>>f) − 2^(ℓ−2−f)) − [R] + (1−msb m')·2^(ℓ−f)·[b] + [r_y] with m' = m + 2^(ℓ−2).
    fn open_truncated<W: Word>(
        &self,
        j: usize,
        masked: &Self::Buf<W>,
        truncation: &Truncation<'_, W, Self>,
        output_mask: &Self::Buf<W>,
    ) -> Result<Self::Buf<W>, DeviceError>;
    /// Worker `j`'s share of the masked product of a value x and the bit f ⊕ σ, σ = a ⊕ δ:
    /// f·[x] + (1−2f)·[xσ] + [r_z]. With a truncation, x is replaced by the truncated value.
    fn open_selected<W: Word>(
        &self,
        j: usize,
        args: &Selected<'_, W, Self>,
    ) -> Result<Self::Buf<W>, DeviceError>;

    // ---- sign tables: small, and dealt offline; on the host unless a device knows better ----

    /// The dealer's tables for comparisons of `width` bits above the `cut` lowest: entry i < 2^(width−1) of value e is
    /// msb((i − r') mod 2^width) ⊕ a with r' = (r >> cut) mod 2^width, at bit e·2^(width−1) + i.
    fn sign_table<W: Word>(
        &self,
        cut: u32,
        width: u32,
        masks: &Self::Buf<W>,
        bits: &Self::Buf<u64>,
    ) -> Result<Self::Buf<u64>, DeviceError> {
        let (masks, a) = (self.download(masks.clone())?, self.download(bits.clone())?);
        let entries = 1usize << (width - 1);
        let low = u64::MAX >> (64 - width);
        let table = bits::pack(masks.len() * entries, |at| {
            let (e, i) = (at / entries, (at % entries) as u64);
            let difference = i.wrapping_sub(masks[e].to_u64() >> cut) & low;
            (difference >> (width - 1)) ^ bits::get(&a, e)
        });
        self.upload(table)
    }

    /// Worker `j`'s share of msb(m' − r') ⊕ a from its share of the tables, m' = (m >> cut) mod 2^width. The upper half of
    /// a table is the complement of the lower; worker 0 adds it. Every entry is read, whatever m' is.
    fn look_up_sign<W: Word>(
        &self,
        cut: u32,
        width: u32,
        j: usize,
        masked: &Self::Buf<W>,
        table: &Self::Buf<u64>,
    ) -> Result<Self::Buf<u64>, DeviceError> {
        let (masked, table) = (self.download(masked.clone())?, self.download(table.clone())?);
        let entries = 1usize << (width - 1);
        let share = bits::pack(masked.len(), |e| {
            let m = masked[e].to_u64() >> cut;
            let wanted = m & (entries as u64 - 1);
            let upper = (m >> (width - 1)) & u64::from(j == 0);
            (0..entries as u64).fold(upper, |found, i| {
                let difference = i ^ wanted;
                // 1 if i is the wanted entry, without a branch.
                let here = (difference | difference.wrapping_neg()) >> 63 ^ 1;
                found ^ (here & bits::get(&table, e * entries + i as usize))
            })
        });
        self.upload(share)
    }
}
