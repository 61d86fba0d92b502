//! The seam between protocols and hardware.

use crate::circuit::Program;
use crate::cpu::narrow::product_with;
use crate::fused::{
    BitProducts, ComparisonKeys, LookupKeys, LookupTables, MaskedLists, OpenSelected, OpenTruncated,
    SignTables, SignedSums,
};
use crate::memory::{DeviceError, Elem, Memory};
use megrez_plan::{ConvGeometry, View};
use megrez_prg::{Level, Stream, gaussian};
use megrez_ring::{Shape, Word, bits};
use megrez_weights::Matrix;

/// Where one input goes in a joined or padded tensor.
pub struct Placement<'a, T: Elem, D: Device> {
    /// The input.
    pub source: &'a D::Buf<T>,
    /// The position of each of its elements in the output.
    pub target: View,
}

/// Where local work on tensors runs. Kernels are pure: they allocate their output. Lengths must
/// agree as stated; they are checked by debug assertions since callers derive them from a validated
/// plan. What protocols fuse into one kernel are traits of their own, beside the step's plain
/// statement.
pub trait Device:
    Memory
    + MaskedLists
    + OpenTruncated
    + OpenSelected
    + SignTables
    + SignedSums
    + BitProducts
    + LookupTables
    + LookupKeys
    + ComparisonKeys
{
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
    /// `n` elements of the discrete Gaussian distribution of this standard deviation, which the
    /// stream decides. On the host unless a device knows better.
    fn noise<W: Word>(&self, stream: &Stream, deviation: u64, n: usize) -> Result<Self::Buf<W>, DeviceError> {
        let mut drawn = vec![0; n];
        gaussian::fill(stream, deviation, &mut drawn);
        self.upload(drawn.into_iter().map(W::from_i64).collect())
    }

    // ---- products of matrices and images ----

    /// `batch` products of m×k by k×n, `sizes` = [m, k, n].
    fn matmul<W: Word>(
        &self,
        x: &Self::Buf<W>,
        y: &Self::Buf<W>,
        batch: usize,
        sizes: [usize; 3],
    ) -> Result<Self::Buf<W>, DeviceError>;
    /// The rows of `x`, as long as the matrix has rows, times the matrix: on the host unless a
    /// device knows better.
    fn times_public<W: Word>(&self, x: &Self::Buf<W>, matrix: &Matrix) -> Result<Self::Buf<W>, DeviceError> {
        let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
        let x = self.download(x.clone())?;
        self.upload(product_with(Level::detect(), threads, &x, matrix))
    }
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
    /// Packed bits one after the other: every buffer with its number of bits. On the host unless a
    /// device knows better.
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
    /// Undoes [`Device::bit_planes`]: `n` elements whose bits from 0 on are the planes of `x`, the
    /// others zero.
    fn join_planes<W: Word>(&self, x: &Self::Buf<u64>, n: usize) -> Result<Self::Buf<W>, DeviceError> {
        let (x, words) = (self.download(x.clone())?, bits::words(n));
        let planes = x.len() / words.max(1);
        let element = |i| (0..planes).fold(0, |v, k| v | bits::get(&x[k * words..], i) << k);
        self.upload((0..n).map(|i| W::from_u64(element(i))).collect())
    }
    /// Planes of `n` values as dense bits, plane after plane: the form of the wire. Lanes past the
    /// end are dropped.
    fn pack_planes(
        &self,
        x: &Self::Buf<u64>,
        planes: usize,
        n: usize,
    ) -> Result<Self::Buf<u64>, DeviceError> {
        if n.is_multiple_of(64) {
            return Ok(x.clone());
        }
        self.upload(bits::dense(&self.download(x.clone())?, planes, n))
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
        self.upload(bits::spaced(&self.download(x.clone())?, 0, planes, n))
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
}
