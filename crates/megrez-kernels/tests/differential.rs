//! Every device equals the reference bit for bit: one suite, run for every device and every instruction set that this
//! machine has.

use megrez_kernels::*;
use megrez_plan::{ConvGeometry, View};
use megrez_prg::{Level, RootKey, Stream};
use megrez_ring::{Prime, Shape, Word, bits};

/// Lengths around words, vectors, packing groups and chunks.
const LENGTHS: &[usize] =
    if cfg!(miri) { &[0, 1, 65] } else { &[0, 1, 7, 63, 64, 65, 127, 200, 511, 513, 1025, 2083] };

/// A device beside the reference.
struct Pair<D: Device> {
    device: D,
    seed: std::cell::Cell<u64>,
}

impl<D: Device> Pair<D> {
    fn new(device: D) -> Self {
        Pair { device, seed: 0.into() }
    }

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

    fn up<T: Elem>(&self, data: &[T]) -> D::Buf<T> {
        self.device.upload(data.to_vec()).unwrap()
    }

    fn down<T: Elem>(&self, buf: D::Buf<T>) -> Vec<T> {
        self.device.download(buf).unwrap()
    }
}

fn host<T: Elem>(data: &[T]) -> <Reference as Device>::Buf<T> {
    Reference.upload(data.to_vec()).unwrap()
}

/// Compares two results without printing thousands of words.
fn same<T: PartialEq + std::fmt::Debug>(what: &str, found: Vec<T>, expected: &[T]) {
    assert_eq!(found.len(), expected.len(), "{what}: length");
    if let Some(i) = (0..found.len()).find(|&i| found[i] != expected[i]) {
        panic!("{what}: element {i} of {} is {:?}, not {:?}", found.len(), found[i], expected[i]);
    }
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
            $pair.down($call.unwrap())
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
        same(&$what, found, &expected);
    }};
}

fn elementwise<W: Word, D: Device>(pair: &Pair<D>) {
    LENGTHS.iter().for_each(|&n| elementwise_of::<W, D>(pair, n));
}

fn elementwise_of<W: Word, D: Device>(pair: &Pair<D>, n: usize) {
    let ring = W::BITS;
    let x: Vec<Vec<W>> = (0..6).map(|_| pair.words(n)).collect();
    let c: Vec<W> = pair.words(6);
    for terms in 0..=5 {
        compare!(pair, format!("combine {ring} {n} {terms}"), |d, up| {
            let bufs: Vec<_> = x[..terms].iter().map(|x| up!(x).clone()).collect();
            let terms: Vec<_> = c.iter().copied().zip(&bufs).collect();
            d.combine(&terms, c[5], n)
        });
    }
    for (products, terms) in [(1, 0), (1, 1), (2, 1), (2, 3), (3, 0)] {
        compare!(pair, format!("products {ring} {n}"), |d, up| {
            let bufs: Vec<_> = x.iter().map(|x| up!(x).clone()).collect();
            let products: Vec<_> = (0..products).map(|i| (c[i], &bufs[i], &bufs[(2 * i + 1) % 6])).collect();
            let terms: Vec<_> = (0..terms).map(|i| (c[5 - i], &bufs[5 - i])).collect();
            d.products(&products, &terms)
        });
    }
    for ones in [W::ONE, W::ONE.neg()] {
        compare!(pair, format!("combine of ones {ring} {n}"), |d, up| d.combine(
            &[(W::ONE, up!(&x[0])), (ones, up!(&x[1]))],
            W::ZERO,
            n
        ));
        compare!(pair, format!("products of ones {ring} {n}"), |d, up| d
            .products(&[(ones, up!(&x[0]), up!(&x[1]))], &[(W::ONE, up!(&x[2])), (ones, up!(&x[3]))]));
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
    for width in (1..=ring).filter(|w| if cfg!(miri) { w % 21 == 11 } else { n < 300 || w % 7 == 1 }) {
        let packed = bits::pack_low(x[0].iter().map(|x| x.to_u64()), width);
        compare!(pair, format!("pack_low {ring} {n} {width}"), |d, up| d.pack_low(up!(&x[0]), width));
        compare!(pair, format!("unpack_low {ring} {n} {width}"), |d, up| d.unpack_low::<W>(
            up!(&packed),
            width,
            n
        ));
    }
}

fn packed_bits<D: Device>(pair: &Pair<D>) {
    for n in LENGTHS.iter().copied().chain([128, 640, 4096]) {
        let inputs: Vec<_> = (0..3).map(|_| pair.bits(n)).collect();
        let stream = pair.stream();
        compare!(pair, format!("random_bits {n}"), |d, up| d.random_bits(&stream, n));
        compare!(pair, format!("and {n}"), |d, up| d.and(up!(&inputs[0]), up!(&inputs[1])));
        for count in 0..=3 {
            for negate in [false, true] {
                compare!(pair, format!("xor {n} {count}"), |d, up| {
                    let bufs: Vec<_> = inputs[..count].iter().map(|x| up!(x).clone()).collect();
                    d.xor(&bufs.iter().collect::<Vec<_>>(), negate, n)
                });
            }
        }
    }
}

fn planes<W: Word, D: Device>(pair: &Pair<D>) {
    let ring = W::BITS;
    for &n in LENGTHS {
        let x = pair.words::<W>(n);
        for (from, count) in [(0, ring), (0, 1), (ring - 1, 1), (2, ring / 2)] {
            let what = format!("{ring} {n} {from} {count}");
            compare!(pair, format!("bit_planes {what}"), |d, up| d.bit_planes(up!(&x), from, count));
            let planes = pair.words::<u64>(bits::words(n) * count as usize);
            compare!(pair, format!("join_planes {what}"), |d, up| d.join_planes::<W>(up!(&planes), n));
            compare!(pair, format!("pack_planes {what}"), |d, up| d.pack_planes(
                up!(&planes),
                count as usize,
                n
            ));
            let packed = pair.bits(count as usize * n);
            compare!(pair, format!("unpack_planes {what}"), |d, up| d.unpack_planes(
                up!(&packed),
                count as usize,
                n
            ));
        }
    }
}

/// A circuit of every gate, with registers reused and constants folded, on planes of many lengths.
fn circuits<D: Device>(pair: &Pair<D>) {
    let mut circuit = Circuit::default();
    let mut wires: Vec<Wire> = (0..5).map(|plane| circuit.input(0, plane)).collect();
    wires.extend((0..3).map(|plane| circuit.input(1, plane)));
    for _ in 0..200 {
        let (a, b) = (wires[pair.below(wires.len())], wires[pair.below(wires.len())]);
        let wire = match pair.below(5) {
            0 | 1 => circuit.and(a, b),
            2 | 3 => circuit.xor(a, b),
            _ => circuit.not(a),
        };
        wires.push(wire);
    }
    circuit.output(wires[150..160].to_vec());
    circuit.output(vec![wires[0], Circuit::ZERO, wires[207]]);
    let program = circuit.compile();
    let lengths = if cfg!(miri) { &[1, 70][..] } else { &[0, 1, 63, 64, 65, 200, 1100] };
    for &words in lengths {
        let (a, b) = (pair.words::<u64>(5 * words), pair.words::<u64>(3 * words));
        for output in 0..2 {
            compare!(pair, format!("circuit {words} {output}"), |d, up| d
                .run_circuit(&program, &[up!(&a), up!(&b)], words)
                .map(|mut out| out.swap_remove(output)));
        }
    }
}

fn matrices<W: Word, D: Device>(pair: &Pair<D>) {
    let mut sizes = vec![
        [1, 1, 1],
        [1, 300, 70],
        [1, 513, 1],
        [1, 1000, 129],
        [2, 64, 33],
        [3, 7, 200],
        [8, 256, 16],
        [9, 257, 17],
        [16, 513, 32],
        [33, 100, 4],
        [40, 300, 2],
        [65, 31, 63],
        [130, 70, 150],
        [5, 0, 5],
        [0, 5, 5],
        [5, 5, 0],
        [120, 400, 1],
        [300, 500, 3],
        [257, 600, 300],
    ];
    if cfg!(miri) {
        sizes = vec![[1, 9, 40], [9, 5, 17], [12, 20, 2]];
    }
    sizes.extend(
        (0..if cfg!(miri) { 0 } else { 20 })
            .map(|_| [pair.below(40) + 1, pair.below(80) + 1, pair.below(60) + 1]),
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

fn image<W: Word, D: Device>(pair: &Pair<D>, x: [usize; 4], w: [usize; 4], g: ConvGeometry) {
    if g.output([x[2], x[3]], [w[2], w[3]]).is_none() {
        return;
    }
    let image = pair.words::<W>(x.iter().product());
    let kernel = pair.words::<W>(w.iter().product());
    let what = format!("conv {} {x:?} {w:?} {g:?}", W::BITS);
    compare!(pair, what, |d, up| d.conv(up!(&image), &x.into(), up!(&kernel), &w.into(), &g));
}

fn images<W: Word, D: Device>(pair: &Pair<D>) {
    let check = |x, w, g| image::<W, D>(pair, x, w, g);
    let plain = ConvGeometry::default();
    if cfg!(miri) {
        check([2, 3, 5, 5], [4, 3, 3, 3], ConvGeometry { pad: [1; 4], ..plain });
        check([1, 2, 2, 3], [3, 2, 2, 2], ConvGeometry { pad: [0, 1, 0, 0], ..plain });
        return check([1, 4, 5, 4], [4, 1, 2, 2], ConvGeometry { groups: 4, stride: [1, 2], ..plain });
    }
    let padded = ConvGeometry { pad: [1; 4], ..plain };
    check([1, 1, 28, 28], [6, 1, 5, 5], ConvGeometry { pad: [2; 4], ..plain });
    check([1, 3, 32, 32], [16, 3, 3, 3], padded);
    check([2, 64, 2, 2], [64, 64, 3, 3], padded);
    check([1, 96, 4, 4], [40, 96, 3, 3], padded);
    check([5, 8, 9, 7], [24, 8, 3, 3], ConvGeometry { stride: [2, 2], ..padded });
    check([3, 16, 12, 12], [32, 16, 1, 1], plain);
    check([3, 16, 12, 12], [32, 16, 1, 1], ConvGeometry { stride: [2, 2], ..plain });
    check([2, 12, 10, 10], [12, 1, 3, 3], ConvGeometry { groups: 12, ..padded });
    check([2, 4, 40, 11], [3, 4, 5, 2], ConvGeometry { dilation: [3, 2], pad: [4, 0, 1, 3], ..plain });
    check([1, 2, 224, 60], [9, 2, 7, 7], ConvGeometry { stride: [2, 2], pad: [3; 4], ..plain });
    check([0, 2, 5, 5], [3, 2, 3, 3], plain);
    check([1, 2, 3, 3], [2, 2, 3, 3], ConvGeometry { pad: [5, 0, 5, 9], stride: [3, 4], ..plain });
    for _ in 0..30 {
        let groups = pair.below(3) + 1;
        let [per_group, out] = [pair.below(4) + 1, groups * (pair.below(6) + 1)];
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

fn structure<T: Word, D: Device>(pair: &Pair<D>) {
    let shape = Shape::from([3, 4, 5, 6]);
    let x = pair.words::<T>(shape.elements());
    let mut views = vec![
        View::whole(shape.clone()),
        View::whole(Shape::new([])),
        View::transpose(&shape, &[3, 2, 1, 0]),
        View::transpose(&shape, &[0, 2, 1, 3]),
        View::transpose(&shape, &[1, 0, 3, 2]),
        View::slice(&shape, 3, 5, -2, 3),
        View::slice(&shape, 3, 1, 1, 4),
        View::slice(&shape, 2, 1, 2, 2),
        View::slice(&shape, 0, 1, 1, 2),
        View::slice(&shape, 0, 1, 1, 0),
        View { shape: [7, 9].into(), strides: vec![0, 1], offset: 13 },
        View { shape: [5, 3].into(), strides: vec![0, 0], offset: 13 },
        View { shape: [2, 3, 4].into(), strides: vec![6, 24, 1], offset: 2 },
        View { shape: [4, 2, 2].into(), strides: vec![30, 3, 0], offset: 5 },
    ];
    for _ in 0..if cfg!(miri) { 4 } else { 40 } {
        let rank = pair.below(5);
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
    if cfg!(miri) {
        return;
    }
    // Long runs at every alignment, for bits that move by whole words.
    let long = pair.bits(5000);
    for offset in [0, 1, 63, 64, 100] {
        for (rows, columns, stride) in
            [(3, 1000, 1500), (7, 64, 65), (2, 130, 200), (40, 64, 64), (9, 1, 100)]
        {
            let view = View { shape: [rows, columns].into(), strides: vec![stride, 1], offset };
            compare!(pair, format!("view_bits {view:?}"), |d, up| d.view_bits(up!(&long), &view));
        }
    }
    // Disjoint places: x split along an axis and put together with gaps.
    for axis in 0..4 {
        let mut dims = shape.dims().to_vec();
        dims[axis] += 5;
        let target = Shape::from(dims);
        let (a, b) = (View::slice(&target, axis, 1, 1, 2), View::slice(&target, axis, 3, 1, 2));
        let b = View { offset: b.offset, ..b };
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
    for sizes in [[3, 4, 30], [12, 5, 6], [1, 360, 1], [360, 1, 1], [1, 4, 90], [72, 5, 1], [2, 0, 3]] {
        let x = &x[..sizes.iter().product()];
        compare!(pair, format!("sum {sizes:?}"), |d, up| d.sum(up!(x), sizes));
        let indices: Vec<usize> = if sizes[1] == 0 { vec![] } else { vec![0, sizes[1] - 1, 0, sizes[1] / 2] };
        for indices in [&indices[..], &[]] {
            compare!(pair, format!("gather {sizes:?}"), |d, up| d.gather(up!(x), sizes, indices));
        }
    }
}

/// Every kind of list that a plan can ask for, by width, with cuts where the ring leaves room.
fn specs(ring: u32) -> Vec<ListSpec> {
    let mut specs = vec![];
    let mut add = |cut: u32, width: u32, entries: Entries| {
        if cut + width <= ring {
            let length = match &entries {
                Entries::Bits => width,
                Entries::Digits(widths) => widths.len() as u32,
            };
            specs.push(ListSpec { cut, width, entries, prime: Prime::above(length) });
        }
    };
    for width in 2..=ring {
        add(0, width, Entries::Bits);
        add(3, width, Entries::Bits);
        add(ring - width, width, Entries::Bits);
        for w in [1, 2, 3, 4, 5, 7, 8] {
            let low = width - 1;
            let mut widths = vec![w; (low / w) as usize];
            widths.extend(Some(low % w).filter(|&r| r > 0));
            add(ring - width, width, Entries::Digits(widths.clone()));
            widths.reverse();
            add(0, width, Entries::Digits(widths));
        }
    }
    for widths in [
        &[4u32, 3][..],
        &[3, 3, 3, 2],
        &[3, 3, 3, 2, 2, 2],
        &[[2u32; 11].as_slice(), &[1]].concat(),
        &[[3u32; 7].as_slice(), &[2; 5]].concat(),
        &[[3u32; 7].as_slice(), &[2; 21]].concat(),
        &[1, 8, 2, 7, 1],
    ] {
        let width = widths.iter().sum::<u32>() + 1;
        for cut in [0, 5, 16] {
            add(cut, width, Entries::Digits(widths.to_vec()));
        }
    }
    specs
}

fn lists<W: Word, D: Device>(pair: &Pair<D>) {
    for (which, spec) in specs(W::BITS).iter().enumerate() {
        // Every list at a few lengths; all lengths for some.
        if cfg!(miri) && which % 60 != 7 {
            continue;
        }
        let lengths = if cfg!(miri) {
            &[3]
        } else if which % 37 == 0 {
            LENGTHS
        } else {
            &[1, 65, 200][which % 2..]
        };
        for &n in lengths {
            list::<W, D>(pair, spec, n);
        }
    }
}

fn list<W: Word, D: Device>(pair: &Pair<D>, spec: &ListSpec, n: usize) {
    let what = format!("ring {} n {n} {spec:?}", W::BITS);
    let mut masks = pair.words::<W>(n);
    // The edges of the comparison: masks and values around zero.
    for (i, edge) in [W::ZERO, W::ONE, W::ONE.neg(), W::ONE.shl(W::BITS - 1)].into_iter().enumerate() {
        if i + 1 < n {
            masks[i + 1] = edge;
        }
    }
    let values = pair.words::<W>(n);
    let masked: Vec<W> = values.iter().zip(&masks).map(|(x, r)| x.add(*r)).collect();
    let flips = pair.bits(n);
    let [other, multiplier, zero_share, rotation] = std::array::from_fn(|_| pair.stream());
    let streams = ListStreams { multiplier: &multiplier, zero_share: &zero_share, rotation: &rotation };

    let (dealt, sign) = pair.device.deal_list(spec, &pair.up(&masks), &other).unwrap();
    let (expected_dealt, expected_sign) = Reference.deal_list(spec, &host(&masks), &other).unwrap();
    same(&format!("deal_list {what}"), pair.down(dealt), &expected_dealt);
    same(&format!("deal_list sign {what}"), pair.down(sign), &expected_sign);

    let mut sent = vec![];
    for j in [0, 1] {
        let share = if j == 0 { FieldShare::Packed(&expected_dealt) } else { FieldShare::Stream(&other) };
        let expected =
            Reference.masked_list(spec, j, &host(&masked), share, &host(&flips), &streams).unwrap();
        let dealt = pair.up(&expected_dealt);
        let share = if j == 0 { FieldShare::Packed(&dealt) } else { FieldShare::Stream(&other) };
        let found =
            pair.device.masked_list(spec, j, &pair.up(&masked), share, &pair.up(&flips), &streams).unwrap();
        same(&format!("masked_list {j} {what}"), pair.down(found), &expected);
        sent.push(expected.to_vec());
    }
    // What the dealer receives may be anything of the right length.
    let hostile: Vec<u64> = pair.words(sent[0].len());
    let top = vec![u64::MAX; sent[0].len()];
    for [a, b] in [[&sent[0], &sent[1]], [&hostile, &sent[1]], [&hostile, &hostile], [&top, &top]] {
        let expected = Reference.scan_lists(spec, [&host(a), &host(b)], n).unwrap();
        let found = pair.device.scan_lists(spec, [&pair.up(a), &pair.up(b)], n).unwrap();
        same(&format!("scan_lists {what}"), pair.down(found), &expected);
    }
    // A worker's dealt words come from the dealer: they may be anything, too.
    let hostile: Vec<u64> = pair.words(expected_dealt.len());
    let expected = Reference
        .masked_list(spec, 1, &host(&masked), FieldShare::Packed(&host(&hostile)), &host(&flips), &streams)
        .unwrap();
    let found = pair
        .device
        .masked_list(
            spec,
            1,
            &pair.up(&masked),
            FieldShare::Packed(&pair.up(&hostile)),
            &pair.up(&flips),
            &streams,
        )
        .unwrap();
    same(&format!("masked_list of hostile words {what}"), pair.down(found), &expected);
}

fn openings<W: Word, D: Device>(pair: &Pair<D>) {
    LENGTHS.iter().for_each(|&n| openings_of::<W, D>(pair, n));
}

fn openings_of<W: Word, D: Device>(pair: &Pair<D>, n: usize) {
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

/// Sizes at which a device divides work.
fn large<D: Device>(device: D) {
    let pair = &Pair::new(device);
    elementwise_of::<u64, D>(pair, 300_001);
    openings_of::<u32, D>(pair, 300_001);
    let padded = ConvGeometry { pad: [1; 4], ..Default::default() };
    image::<u64, D>(pair, [2, 32, 30, 31], [40, 32, 3, 3], padded);
    image::<u32, D>(pair, [70, 32, 5, 6], [40, 32, 3, 3], padded);
    image::<u64, D>(pair, [1, 32, 60, 60], [40, 16, 3, 3], ConvGeometry { groups: 2, ..padded });
    image::<u64, D>(pair, [2, 32, 200, 201], [32, 1, 3, 3], ConvGeometry { groups: 32, ..padded });
    image::<u64, D>(pair, [1, 640, 2, 3], [640, 640, 3, 3], padded);
    for (width, entries) in [
        (64, Entries::Bits),
        (64, Entries::Digits(vec![3; 21])),
        (16, Entries::Digits(vec![3, 3, 3, 2, 2, 2])),
    ] {
        let length = if entries == Entries::Bits {
            64
        } else if width == 64 {
            21
        } else {
            6
        };
        let spec = ListSpec { cut: 0, width, entries, prime: Prime::above(length) };
        list::<u64, D>(pair, &spec, (1 << 19) / length as usize + 1003);
    }
}

fn suite<D: Device>(device: D) {
    let pair = Pair::new(device);
    macro_rules! rings {
        ($($check:ident)*) => {$(
            $check::<u8, D>(&pair);
            $check::<u16, D>(&pair);
            $check::<u32, D>(&pair);
            $check::<u64, D>(&pair);
        )*};
    }
    rings!(elementwise planes matrices images structure lists openings);
    packed_bits(&pair);
    circuits(&pair);
}

/// Miri sees no vectors, but every unsafe block that threads and uninitialised memory need.
#[test]
#[cfg(miri)]
fn the_portable_code_is_sound() {
    let pair = Pair::new(Cpu::new(2));
    elementwise::<u64, _>(&pair);
    planes::<u16, _>(&pair);
    circuits(&pair);
    matrices::<u32, _>(&pair);
    images::<u64, _>(&pair);
    structure::<u16, _>(&pair);
    lists::<u8, _>(&pair);
    openings::<u32, _>(&pair);
    packed_bits(&pair);
}

#[test]
#[cfg_attr(miri, ignore = "takes hours")]
fn the_cpu_equals_the_reference() {
    suite(Cpu::new(1));
}

#[test]
#[cfg_attr(miri, ignore = "takes hours")]
fn threads_do_not_change_results() {
    suite(Cpu::new(3));
    large(Cpu::new(3));
}

#[test]
#[cfg_attr(miri, ignore = "takes hours")]
fn every_level_equals_the_reference() {
    // The last level is the one that `new` chooses.
    let levels = Level::all();
    levels[..levels.len() - 1].iter().for_each(|&level| suite(Cpu::at_level(level, 1)));
}
