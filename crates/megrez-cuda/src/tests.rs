//! Every kernel equals the reference bit for bit, on the host by emulation and on a GPU where there is one.

use crate::Cuda;
use megrez_kernels::*;
use megrez_plan::{ConvGeometry, View};
use megrez_prg::{Key, RootKey, Stream};
use megrez_ring::{Prime, Shape, Word, bits};
use std::cell::Cell;

/// Lengths around words, vectors, warps, blocks and packing groups.
const LENGTHS: [usize; 10] = [0, 1, 7, 31, 64, 65, 200, 511, 513, 1300];

struct Pair {
    device: Cuda,
    /// A GPU does in a moment what takes the emulator minutes.
    thorough: bool,
    seed: Cell<u64>,
}

/// The devices of this machine; what is missing is said.
fn devices() -> Vec<Pair> {
    let mut found = vec![];
    match Cuda::emulated() {
        Ok(device) => found.push(Pair { device, thorough: false, seed: Cell::new(0) }),
        Err(why) => println!("skipped: no emulation of kernels on this machine: {why}"),
    }
    match Cuda::new(0) {
        Ok(device) => found.push(Pair { device, thorough: true, seed: Cell::new(0) }),
        Err(why) => println!("skipped: no kernels on a GPU: {why}"),
    }
    for pair in &found {
        println!("on {}", pair.device.describe());
    }
    found
}

impl Pair {
    fn stream(&self) -> Stream {
        self.seed.set(self.seed.get() + 1);
        RootKey::from_bytes([11; 32]).derive(&self.seed.get().to_le_bytes()).stream()
    }
    fn words<W: Word>(&self, n: usize) -> Vec<W> {
        self.stream().words(n).into_iter().map(W::from_u64).collect()
    }
    fn bits(&self, n: usize) -> Vec<u64> {
        let mut words = self.words(bits::words(n));
        bits::clear_tail(&mut words, n);
        words
    }
    fn below(&self, n: usize) -> usize {
        (self.words::<u64>(1)[0] % n as u64) as usize
    }
    fn up<T: Elem>(&self, data: &[T]) -> crate::Buf<T> {
        self.device.upload(data.to_vec()).unwrap()
    }
    fn same<T: Elem + PartialEq + std::fmt::Debug>(&self, what: &str, found: crate::Buf<T>, expected: &[T]) {
        let found = self.device.download(found).unwrap();
        assert_eq!(found.len(), expected.len(), "{what}: length");
        if let Some(i) = (0..found.len()).find(|&i| found[i] != expected[i]) {
            panic!("{what}: element {i} of {} is {:?}, not {:?}", found.len(), found[i], expected[i]);
        }
    }
}

fn host<T: Elem>(data: &[T]) -> <Reference as Device>::Buf<T> {
    Reference.upload(data.to_vec()).unwrap()
}

/// Runs one call on both devices: `$d` is the device, `up!` uploads.
macro_rules! compare {
    ($pair:expr, $what:expr, |$d:ident, $up:ident| $call:expr) => {{
        let found = {
            let $d = &$pair.device;
            #[allow(unused_macros)]
            macro_rules! $up {
                ($data:expr) => {
                    &$pair.up($data)
                };
            }
            $call.unwrap()
        };
        let expected = {
            let $d = &Reference;
            #[allow(unused_macros)]
            macro_rules! $up {
                ($data:expr) => {
                    &host($data)
                };
            }
            $call.unwrap()
        };
        $pair.same(&$what, found, &expected);
    }};
}

macro_rules! rings {
    ($check:ident) => {
        for pair in devices() {
            $check::<u8>(&pair);
            $check::<u16>(&pair);
            $check::<u32>(&pair);
            $check::<u64>(&pair);
        }
    };
}

fn elementwise<W: Word>(pair: &Pair) {
    let ring = W::BITS;
    for n in LENGTHS {
        let x: Vec<Vec<W>> = (0..20).map(|_| pair.words(n)).collect();
        let c: Vec<W> = pair.words(20);
        for terms in [0, 1, 2, 5, 8, 9, 17] {
            compare!(pair, format!("combine {ring} {n} {terms}"), |d, up| {
                let bufs: Vec<_> = x[..terms].iter().map(|x| up!(x).clone()).collect();
                let terms: Vec<_> = c.iter().copied().zip(&bufs).collect();
                d.combine(&terms, c[19], n)
            });
        }
        for (products, terms) in [(1, 0), (2, 1), (3, 0), (4, 8), (5, 9), (9, 17), (1, 10)] {
            compare!(pair, format!("products {ring} {n} {products} {terms}"), |d, up| {
                let bufs: Vec<_> = x.iter().map(|x| up!(x).clone()).collect();
                let products: Vec<_> =
                    (0..products).map(|i| (c[i], &bufs[i], &bufs[(2 * i + 1) % 20])).collect();
                let terms: Vec<_> = (0..terms).map(|i| (c[19 - i], &bufs[19 - i])).collect();
                d.products(&products, &terms)
            });
        }
        for k in [0, 1, ring / 2, ring - 1] {
            compare!(pair, format!("shift {ring} {n} {k}"), |d, up| d.shift_right(up!(&x[0]), k));
        }
        let stream = pair.stream();
        compare!(pair, format!("random {ring} {n}"), |d, up| d.random::<W>(&stream, n));
        compare!(pair, format!("msb {ring} {n}"), |d, up| d.msb(up!(&x[0])));
        let bit = pair.bits(n);
        compare!(pair, format!("bit_times {ring} {n}"), |d, up| d.bit_times(up!(&bit), Some(up!(&x[0])), n));
        compare!(pair, format!("bit {ring} {n}"), |d, up| d.bit_times::<W>(up!(&bit), None, n));
        for width in (1..=ring).filter(|w| n < 100 || w % 7 == 1) {
            let packed = bits::pack_low(x[0].iter().map(|x| x.to_u64()), width);
            compare!(pair, format!("pack_low {ring} {n} {width}"), |d, up| d.pack_low(up!(&x[0]), width));
            compare!(pair, format!("unpack_low {ring} {n} {width}"), |d, up| d.unpack_low::<W>(
                up!(&packed),
                width,
                n
            ));
        }
    }
}

#[test]
fn elements() {
    rings!(elementwise);
}

fn opened<W: Word>(pair: &Pair) {
    for n in [0, 1, 15, 64, 65, 513] {
        let x: Vec<Vec<W>> = (0..8).map(|_| pair.words(n)).collect();
        let (choice, flip) = (pair.bits(n), pair.bits(n));
        for (j, f) in [0, 1].into_iter().flat_map(|j| [1, 3, W::BITS - 3].map(|f| (j, f))) {
            let what = format!("ring {} n {n} worker {j} f {f}", W::BITS);
            compare!(pair, format!("open_truncated {what}"), |d, up| {
                let t = Truncation { bits: f, high: up!(&x[0]), top: up!(&x[1]) };
                d.open_truncated(j, up!(&x[2]), &t, up!(&x[3]))
            });
            for (flipped, truncated) in [(false, false), (true, false), (false, true), (true, true)] {
                compare!(pair, format!("open_selected {what} {flipped} {truncated}"), |d, up| {
                    let flip = up!(&flip).clone();
                    let [masked, mask, bit, mask_bit, out, high, top, top_bit] =
                        std::array::from_fn(|i| up!(&x[i]).clone());
                    let t = Truncation { bits: f, high: &high, top: &top };
                    d.open_selected(
                        j,
                        &Selected {
                            masked: &masked,
                            mask: &mask,
                            choice: up!(&choice),
                            flip: flipped.then_some(&flip),
                            bit: &bit,
                            mask_bit: &mask_bit,
                            truncation: truncated.then_some((t, &top_bit)),
                            output_mask: &out,
                        },
                    )
                });
            }
        }
    }
}

#[test]
fn openings() {
    rings!(opened);
}

#[test]
fn packed_bits() {
    for pair in devices() {
        for n in LENGTHS.into_iter().chain([512, 4096, 16384, 20000]) {
            let inputs: Vec<_> = (0..17).map(|_| pair.bits(n)).collect();
            let stream = pair.stream();
            compare!(pair, format!("random_bits {n}"), |d, up| d.random_bits(&stream, n));
            compare!(pair, format!("and {n}"), |d, up| d.and(up!(&inputs[0]), up!(&inputs[1])));
            for count in [0, 1, 2, 3, 8, 9, 17] {
                for negate in [false, true] {
                    compare!(pair, format!("xor {n} {count}"), |d, up| {
                        let bufs: Vec<_> = inputs[..count].iter().map(|x| up!(x).clone()).collect();
                        d.xor(&bufs.iter().collect::<Vec<_>>(), negate, n)
                    });
                }
            }
        }
    }
}

fn matrix<W: Word>(pair: &Pair) {
    let mut sizes = vec![
        [1, 1, 1],
        [1, 300, 70],
        [8, 700, 300],
        [9, 257, 17],
        [33, 100, 4],
        [65, 31, 63],
        [130, 70, 150],
        [5, 0, 5],
        [0, 5, 5],
        [5, 5, 0],
        // The tensor-core kernels from here: whole tiles, ragged tiles, few and many steps.
        [128, 128, 128],
        [64, 64, 64],
        [129, 65, 65],
        [16, 1100, 16],
        [100, 200, 130],
        [20, 33, 600],
    ];
    if pair.thorough {
        sizes.extend([[700, 70, 1030], [1024, 512, 640], [64, 40_000, 64], [2000, 33, 17], [1, 5000, 4099]]);
    }
    sizes.extend(
        (0..if pair.thorough { 60 } else { 15 }).map(|_| [70, 90, 60].map(|most| pair.below(most) + 1)),
    );
    for [m, k, n] in sizes {
        for batch in [1, 3] {
            let (x, y) = (pair.words::<W>(batch * m * k), pair.words::<W>(batch * k * n));
            compare!(pair, format!("matmul {} {batch} × {m}×{k}×{n}", W::BITS), |d, up| d.matmul(
                up!(&x),
                up!(&y),
                batch,
                [m, k, n]
            ));
        }
    }
    compare!(pair, "empty batch", |d, up| d.matmul::<W>(up!(&[]), up!(&[]), 0, [2, 2, 2]));
}

#[test]
fn matrices() {
    rings!(matrix);
}

/// The largest sums that limbs can make, of one sign, where the lowest diagonals must not wrap.
#[test]
fn long_sums_stay_exact() {
    for pair in devices() {
        let k = if pair.thorough { 100_000 } else { 33_000 };
        // Every limb of the first is −128, of the second 127.
        let (low, high) = ((u64::MAX / 255 * 128).wrapping_neg(), u64::MAX / 255 * 127);
        for (a, b) in [(low, low), (low, high)].into_iter().take(if pair.thorough { 2 } else { 1 }) {
            let (x, y) = (vec![a; 16 * k], vec![b; 16 * k]);
            compare!(pair, format!("sum of {k} × {a:x}·{b:x}"), |d, up| d.matmul(
                up!(&x),
                up!(&y),
                1,
                [16, k, 16]
            ));
        }
    }
}

#[test]
fn weights_are_cut_once() {
    for pair in devices() {
        let (x, y) = (pair.words::<u64>(128 * 64), pair.words::<u64>(64 * 128));
        let expected = Reference.matmul(&host(&x), &host(&y), 1, [128, 64, 128]).unwrap();
        let (left, weights) = (pair.up(&x), pair.up(&y));
        for _ in 0..5 {
            let found = pair.device.matmul(&left, &weights, 1, [128, 64, 128]).unwrap();
            pair.same("with kept limbs", found, &expected);
        }
        // The same words in another shape are other columns.
        let expected = Reference.matmul(&host(&x), &host(&y), 1, [64, 128, 64]).unwrap();
        for _ in 0..2 {
            let found = pair.device.matmul(&left, &weights, 1, [64, 128, 64]).unwrap();
            pair.same("in another shape", found, &expected);
        }
        let statistics = pair.device.statistics().unwrap();
        assert_eq!(statistics.kernels["limbs_of_columns"].launches, 4);
        drop((left, weights));
        assert_eq!(pair.device.statistics().unwrap().memory, 0, "everything is given back");
        assert!(statistics.peak_memory >= 2 * 128 * 64 * 8);
    }
}

fn image<W: Word>(pair: &Pair) {
    let check = |x: [usize; 4], w: [usize; 4], g: ConvGeometry| {
        if g.output([x[2], x[3]], [w[2], w[3]]).is_none() {
            return;
        }
        let image = pair.words::<W>(x.iter().product());
        let kernel = pair.words::<W>(w.iter().product());
        let what = format!("conv {} {x:?} {w:?} {g:?}", W::BITS);
        compare!(pair, what, |d, up| d.conv(up!(&image), &x.into(), up!(&kernel), &w.into(), &g));
    };
    let plain = ConvGeometry::default();
    let padded = ConvGeometry { pad: [1; 4], ..plain };
    check([1, 1, 28, 28], [6, 1, 5, 5], ConvGeometry { pad: [2; 4], ..plain });
    check([2, 12, 10, 10], [12, 1, 3, 3], ConvGeometry { groups: 12, ..padded });
    check([2, 4, 40, 11], [3, 4, 5, 2], ConvGeometry { dilation: [3, 2], pad: [4, 0, 1, 3], ..plain });
    check([0, 2, 5, 5], [3, 2, 3, 3], plain);
    check([1, 2, 3, 3], [2, 2, 3, 3], ConvGeometry { pad: [5, 0, 5, 9], stride: [3, 4], ..plain });
    // The tensor-core kernel from here.
    check([2, 64, 3, 3], [64, 64, 3, 3], padded);
    check([1, 40, 9, 9], [40, 40, 3, 3], padded);
    check([3, 8, 13, 11], [24, 8, 3, 3], ConvGeometry { stride: [2, 3], pad: [1, 0, 2, 1], ..plain });
    check([3, 16, 16, 16], [32, 16, 1, 1], plain);
    check([2, 12, 17, 15], [70, 6, 3, 2], ConvGeometry { groups: 2, dilation: [2, 3], ..padded });
    check([1, 66, 12, 12], [99, 22, 2, 3], ConvGeometry { groups: 3, stride: [1, 2], ..padded });
    for _ in 0..if pair.thorough { 100 } else { 15 } {
        let groups = pair.below(3) + 1;
        let [per_group, out] = [pair.below(20) + 1, groups * (pair.below(40) + 1)];
        let x = [pair.below(3) + 1, groups * per_group, pair.below(14) + 1, pair.below(14) + 1];
        let w = [out, per_group, pair.below(4) + 1, pair.below(4) + 1];
        let g = ConvGeometry {
            stride: [pair.below(3) + 1, pair.below(3) + 1],
            pad: std::array::from_fn(|_| pair.below(4)),
            dilation: [pair.below(2) + 1, pair.below(3) + 1],
            groups,
        };
        check(x, w, g);
    }
}

#[test]
fn images() {
    rings!(image);
}

fn rearranged<T: Word>(pair: &Pair) {
    let shape = Shape::from([3, 4, 5, 6]);
    let x = pair.words::<T>(shape.elements());
    let mut views = vec![
        View::whole(shape.clone()),
        View::whole(Shape::new([])),
        View::transpose(&shape, &[3, 2, 1, 0]),
        View::transpose(&shape, &[0, 2, 1, 3]),
        View::slice(&shape, 3, 5, -2, 3),
        View::slice(&shape, 3, 2, 1, 4),
        View::slice(&shape, 0, 1, 1, 2),
        View::slice(&shape, 0, 1, 1, 0),
        View { shape: [7, 9].into(), strides: vec![0, 1], offset: 13 },
        View { shape: [5, 3].into(), strides: vec![0, 0], offset: 13 },
        View { shape: [2; 9].into(), strides: vec![64, 1, 32, 2, 16, 4, 0, 8, 1], offset: 2 },
    ];
    for _ in 0..40 {
        let rank = pair.below(6);
        let dims: Vec<usize> = (0..rank).map(|_| pair.below(5) + 1).collect();
        let strides: Vec<isize> = (0..rank).map(|_| pair.below(11) as isize - 4).collect();
        let view = View { shape: dims.into(), strides, offset: pair.below(300) };
        if view.fits(x.len()) {
            views.push(view);
        }
    }
    let bits = pair.bits(shape.elements());
    for view in &views {
        compare!(pair, format!("view {view:?}"), |d, up| d.view(up!(&x), view));
        compare!(pair, format!("view_bits {view:?}"), |d, up| d.view_bits(up!(&bits), view));
    }
    for axis in 0..4 {
        let mut dims = shape.dims().to_vec();
        dims[axis] += 5;
        let target = Shape::from(dims);
        let (a, b) = (View::slice(&target, axis, 1, 1, 2), View::slice(&target, axis, 3, 1, 2));
        let [x, y] = [&a, &b].map(|view| pair.words::<T>(view.shape.elements()));
        compare!(pair, format!("place {axis}"), |d, up| {
            let (x, y) = (up!(&x).clone(), up!(&y).clone());
            let parts =
                [Placement { source: &x, target: a.clone() }, Placement { source: &y, target: b.clone() }];
            d.place(&parts, target.elements())
        });
    }
    let reversed = View { shape: [4, 2].into(), strides: vec![-8, 3], offset: 30 };
    let y = pair.words::<T>(8);
    compare!(pair, "place with strides", |d, up| {
        let source = up!(&y).clone();
        d.place(&[Placement { source: &source, target: reversed.clone() }], 50)
    });
    for sizes in [[3, 4, 30], [12, 5, 6], [1, 360, 1], [5, 72, 1], [360, 1, 1], [1, 4, 90], [2, 0, 3]] {
        let x = &x[..sizes.iter().product()];
        compare!(pair, format!("sum {sizes:?}"), |d, up| d.sum(up!(x), sizes));
        let indices: Vec<usize> = if sizes[1] == 0 { vec![] } else { vec![0, sizes[1] - 1, 0, sizes[1] / 2] };
        for indices in [&indices[..], &[]] {
            compare!(pair, format!("gather {sizes:?}"), |d, up| d.gather(up!(x), sizes, indices));
        }
    }
}

#[test]
fn structure() {
    rings!(rearranged);
    // Elements of odd sizes go in pieces.
    for pair in devices() {
        let x: Vec<[u32; 3]> = (0..60).map(|i| [i, 2 * i, 3 * i]).collect();
        let view = View::transpose(&Shape::from([6, 10]), &[1, 0]);
        compare!(pair, "view of triples", |d, up| d.view(up!(&x), &view));
        compare!(pair, "gather of triples", |d, up| d.gather(up!(&x), [2, 10, 3], &[7, 0, 7]));
    }
}

fn bit_list(cut: u32, width: u32) -> ListSpec {
    ListSpec { cut, width, entries: Entries::Bits, prime: Prime::above(width) }
}

fn planes<W: Word>(pair: &Pair) {
    let ring = W::BITS;
    for n in LENGTHS.into_iter().chain([4097]) {
        let x = pair.words::<W>(n);
        for (from, count) in [(0, ring), (0, 1), (ring - 1, 1), (2, ring / 2)] {
            let what = format!("{ring} {n} {from} {count}");
            compare!(pair, format!("bit_planes {what}"), |d, up| d.bit_planes(up!(&x), from, count));
            let planes = pair.words::<u64>(bits::words(n) * count as usize);
            compare!(pair, format!("join_planes {what}"), |d, up| d.join_planes::<W>(up!(&planes), n));
            let (planes, count) = (&planes, count as usize);
            compare!(pair, format!("pack_planes {what}"), |d, up| d.pack_planes(up!(planes), count, n));
            let packed = pair.bits(count * n);
            compare!(pair, format!("unpack_planes {what}"), |d, up| d.unpack_planes(up!(&packed), count, n));
        }
        for (cut, width) in [(0, 1), (0, 2), (1, 6), (0, 7), (0, 8), (ring - 8, 8)] {
            let (what, bit) = (format!("{ring} {n} {cut} {width}"), pair.bits(n));
            compare!(pair, format!("sign_table {what}"), |d, up| d.sign_table(
                cut,
                width,
                up!(&x),
                up!(&bit)
            ));
            let table = pair.bits(n << (width - 1));
            for j in [0, 1] {
                compare!(pair, format!("look_up_sign {what} {j}"), |d, up| d.look_up_sign(
                    cut,
                    width,
                    j,
                    up!(&x),
                    up!(&table)
                ));
            }
        }
    }
}

#[test]
fn bit_planes() {
    rings!(planes);
}

#[test]
fn joined_bits() {
    for pair in devices() {
        for lengths in [&[][..], &[0], &[64, 128], &[1, 2, 3, 0, 58, 65, 1], &[63; 9], &[700, 1, 20_000]] {
            let parts: Vec<Vec<u64>> = lengths.iter().map(|&n| pair.bits(n)).collect();
            compare!(pair, format!("join_bits {lengths:?}"), |d, up| {
                let parts: Vec<_> = parts.iter().map(|part| up!(part).clone()).collect();
                d.join_bits(&parts.iter().zip(lengths.iter().copied()).collect::<Vec<_>>())
            });
        }
    }
}

/// A circuit of every gate; the last one needs more registers than a block of 128 threads has.
#[test]
fn circuits() {
    for pair in devices() {
        for (gates, kept) in [(0, 3), (200, 10), (900, 300)] {
            let mut circuit = Circuit::default();
            let mut wires: Vec<Wire> = (0..5).map(|plane| circuit.input(0, plane)).collect();
            wires.extend((0..3).map(|plane| circuit.input(1, plane)));
            for _ in 0..gates {
                let (a, b) = (wires[pair.below(wires.len())], wires[pair.below(wires.len())]);
                let wire = match pair.below(5) {
                    0 | 1 => circuit.and(a, b),
                    2 | 3 => circuit.xor(a, b),
                    _ => circuit.not(a),
                };
                wires.push(wire);
            }
            circuit.output(wires[wires.len() - kept..].to_vec());
            circuit.output(vec![wires[0], Circuit::ZERO, wires[7]]);
            circuit.output(vec![]);
            let program = circuit.compile();
            for words in [0, 1, 31, 65, 300] {
                let (a, b) = (pair.words::<u64>(5 * words), pair.words::<u64>(3 * words));
                for output in 0..3 {
                    compare!(pair, format!("circuit of {gates} on {words} words, {output}"), |d, up| d
                        .run_circuit(&program, &[up!(&a), up!(&b)], words)
                        .map(|mut out| out.swap_remove(output)));
                }
            }
        }
    }
}

/// What a rehearsal counts is what the kernels take.
#[test]
fn rehearsals_count_the_same_memory() {
    fn work(device: &Cuda) -> (usize, u64) {
        let stream = Key::from_bytes([5; 32]).stream();
        let x = device.random::<u64>(&stream, 100 * 64).unwrap();
        let y = device.random::<u64>(&stream, 64 * 100).unwrap();
        let z = device.matmul(&x, &y, 1, [100, 64, 100]).unwrap();
        let planes = device.bit_planes(&z, 0, 64).unwrap();
        drop((x, y, z));
        device.download(planes).unwrap();
        let s = device.statistics().unwrap();
        assert_eq!(s.memory, 0);
        (s.peak_memory, s.kernels.values().map(|k| k.launches).sum())
    }
    for pair in devices().into_iter().filter(|pair| !pair.thorough) {
        assert_eq!(work(&pair.device), work(&Cuda::rehearsal()));
    }
}

#[test]
fn variants() {
    for pair in devices() {
        for n in [0, 1, 64, 6400] {
            let x: Vec<u64> = pair.words(n);
            let p = u64::MAX - 58;
            let expected: Vec<u64> = x.iter().map(|x| x % p).collect();
            pair.same("divided", pair.device.reduced(&pair.up(&x), Some(p)).unwrap(), &expected);
            pair.same("masked", pair.device.reduced(&pair.up(&x), None).unwrap(), &x);
            let x: Vec<u32> = x.iter().map(|x| (x % 127) as u32).collect();
            let sums = |list: &[u32]| -> Vec<u32> {
                (0..list.len()).map(|i| list[..=i].iter().sum::<u32>() % 127).collect()
            };
            let expected: Vec<u32> = x.chunks(64).flat_map(sums).collect();
            for how in [crate::Reduction::Divide, crate::Reduction::Barrett, crate::Reduction::Mersenne] {
                for scan in [false, true] {
                    let made = pair.device.prefix_sums(&pair.up(&x), 127, how, scan).unwrap();
                    pair.same(&format!("prefix sums {how:?} {scan} {n}"), made, &expected);
                }
            }
        }
    }
}

fn digit_list(cut: u32, widths: &[u32]) -> ListSpec {
    ListSpec {
        cut,
        width: widths.iter().sum::<u32>() + 1,
        entries: Entries::Digits(widths.to_vec()),
        prime: Prime::above(widths.len() as u32),
    }
}

/// Lists with packings, paddings and tiles of every kind. A GPU takes more of them; each has to be compiled.
fn specs(ring: u32, thorough: bool) -> Vec<ListSpec> {
    let mut specs = vec![];
    let widths: Vec<u32> = if thorough { (2..=ring).collect() } else { vec![2, 3, 8, 12, 17, 31, 32, 64] };
    for width in widths {
        specs.push(bit_list(ring.saturating_sub(width) / 2, width));
    }
    for widths in [
        &[1u32][..],
        &[3],
        &[4, 3],
        &[1, 8, 2, 7, 1],
        &[3, 3, 3, 2, 2, 2],
        &[[2u32; 11].as_slice(), &[1]].concat(),
        &[[3u32; 7].as_slice(), &[2; 5]].concat(),
        &[[3u32; 7].as_slice(), &[2; 21]].concat(),
        &[1; 63],
        &[8, 8, 8, 8, 8, 8, 8, 7],
    ] {
        specs.push(digit_list(0, widths));
        if thorough {
            specs.push(digit_list(5, widths));
        }
    }
    // One entry leaves nothing to rotate, and the reference samples rotations of two places or more.
    specs.retain(|spec| spec.cut + spec.width <= ring && spec.length() > 1);
    specs
}

fn list<W: Word>(pair: &Pair, spec: &ListSpec, n: usize) {
    let what = format!("ring {} n {n} {spec:?}", W::BITS);
    let mut masks = pair.words::<W>(n);
    let edges = [W::ZERO, W::ONE, W::ONE.neg(), W::ONE.shl(W::BITS - 1)];
    for (mask, edge) in masks.iter_mut().skip(1).zip(edges) {
        *mask = edge;
    }
    let values = pair.words::<W>(n);
    let masked: Vec<W> = values.iter().zip(&masks).map(|(x, r)| x.add(*r)).collect();
    let flips = pair.bits(n);
    let [other, multiplier, zero_share, rotation] = std::array::from_fn(|_| pair.stream());
    let streams = ListStreams { multiplier: &multiplier, zero_share: &zero_share, rotation: &rotation };

    let (dealt, sign) = pair.device.deal_list(spec, &pair.up(&masks), &other).unwrap();
    let (expected_dealt, expected_sign) = Reference.deal_list(spec, &host(&masks), &other).unwrap();
    pair.same(&format!("deal_list {what}"), dealt, &expected_dealt);
    pair.same(&format!("deal_list sign {what}"), sign, &expected_sign);

    let hostile: Vec<u64> = pair.words(expected_dealt.len());
    let mut sent = vec![];
    for (j, packed) in [(0, Some(&expected_dealt[..])), (1, None), (1, Some(&hostile))] {
        let expected = {
            let words = packed.map(host);
            let share = words.as_ref().map_or(FieldShare::Stream(&other), FieldShare::Packed);
            Reference.masked_list(spec, j, &host(&masked), share, &host(&flips), &streams).unwrap()
        };
        let words = packed.map(|p| pair.up(p));
        let share = words.as_ref().map_or(FieldShare::Stream(&other), FieldShare::Packed);
        let found = pair.device.masked_list(spec, j, &pair.up(&masked), share, &pair.up(&flips), &streams);
        pair.same(&format!("masked_list {j} {} {what}", packed.is_some()), found.unwrap(), &expected);
        sent.push(expected.to_vec());
    }
    let hostile: Vec<u64> = pair.words(sent[0].len());
    let top = vec![u64::MAX; hostile.len()];
    for [a, b] in [[&sent[0], &sent[1]], [&hostile, &sent[1]], [&hostile, &hostile], [&top, &top]] {
        compare!(pair, format!("scan_lists {what}"), |d, up| d.scan_lists(spec, [up!(a), up!(b)], n));
    }
}

#[test]
fn unfused_lists() {
    for pair in devices() {
        for (width, n) in [(8, 0), (8, 200), (64, 1), (64, 65), (64, 700)] {
            let (spec, masked, flips) = (bit_list(0, width), pair.words::<u64>(n), pair.bits(n));
            let [other, multiplier, zero_share, rotation] = std::array::from_fn(|_| pair.stream());
            let streams =
                ListStreams { multiplier: &multiplier, zero_share: &zero_share, rotation: &rotation };
            let packed: Vec<u64> = pair.words(spec.prime.words(n * spec.dealt()));
            for (j, packed) in [(0, Some(&packed[..])), (1, None)] {
                let words = packed.map(host);
                let share = words.as_ref().map_or(FieldShare::Stream(&other), FieldShare::Packed);
                let expected =
                    Reference.masked_list(&spec, j, &host(&masked), share, &host(&flips), &streams).unwrap();
                let words = packed.map(|p| pair.up(p));
                let share = words.as_ref().map_or(FieldShare::Stream(&other), FieldShare::Packed);
                let (masked, flips) = (pair.up(&masked), pair.up(&flips));
                let found = pair.device.unfused_list(&spec, j, &masked, share, &flips, &streams).unwrap();
                pair.same(&format!("unfused list {width} {n} {j}"), found, &expected);
            }
        }
    }
}

fn listed<W: Word>(pair: &Pair) {
    for (which, spec) in specs(W::BITS, pair.thorough).iter().enumerate() {
        let tile = crate::lists::Shape::of(spec).list_tile;
        let lengths = [0, 1, 65, tile - 1, tile, tile + 1, 2 * tile + 7];
        for (l, &n) in lengths.iter().enumerate() {
            if pair.thorough || l % 2 == which % 2 {
                list::<W>(pair, spec, n);
            }
        }
    }
}

#[test]
fn lists_of_bytes() {
    for pair in devices() {
        listed::<u8>(&pair);
        if pair.thorough {
            listed::<u16>(&pair);
            listed::<u32>(&pair);
        }
    }
}

#[test]
fn lists_of_words() {
    for pair in devices() {
        listed::<u64>(&pair);
        list::<u32>(&pair, &bit_list(0, 32), 300);
        list::<u16>(&pair, &digit_list(4, &[3, 3, 3, 2]), 300);
        if pair.thorough {
            for spec in [
                bit_list(0, 64),
                digit_list(0, &[[3u32; 7].as_slice(), &[2; 21]].concat()),
                digit_list(16, &[4, 3]),
            ] {
                list::<u64>(&pair, &spec, 70_001);
            }
        }
    }
}

#[test]
fn copies_of_any_size() {
    for pair in devices() {
        for n in [0, 1, 1000, 3_000_001] {
            let x = pair.words::<u64>(n);
            pair.same("there and back", pair.up(&x), &x);
        }
    }
}

/// Parties' lanes share a device.
#[test]
fn threads_share_a_device() {
    for pair in devices() {
        let device = &pair.device;
        std::thread::scope(|scope| {
            for seed in 0..4u8 {
                scope.spawn(move || {
                    let stream = Key::from_bytes([seed; 32]).stream();
                    for n in [10, 1000, 5000] {
                        let x = device.random::<u64>(&stream, n).unwrap();
                        let y = device.combine(&[(3, &x), (5, &x)], 7, n).unwrap();
                        let expected: Vec<u64> =
                            stream.words(n).into_iter().map(|x| x.wrapping_mul(8).wrapping_add(7)).collect();
                        assert_eq!(device.download(y).unwrap(), expected);
                    }
                });
            }
        });
    }
}

#[test]
fn too_little_memory_is_a_clear_error() {
    match Cuda::new(0) {
        Ok(device) => {
            let error = device.random_bits(&Key::from_bytes([0; 32]).stream(), 1 << 43).err().unwrap();
            assert!(error.what.contains("not enough memory"), "{error}");
            let small = device.upload(vec![1u64, 2]).unwrap();
            assert_eq!(device.download(small).unwrap(), [1, 2], "the device still works");
        }
        Err(why) => println!("skipped: no GPU: {why}"),
    }
}
