//! Speeds of the kernels on one thread, one JSON object a line.

use megrez_kernels::*;
use megrez_plan::{Beyond, Lookup, View};
use megrez_prg::{FieldSampler, Key, Level, Stream};
use megrez_ring::{Prime, Word, bits};
use megrez_weights::{Matrix, Width};
use std::hint::black_box;
use std::time::Instant;

/// The best of many runs, in seconds: what the code takes when nobody else uses the core.
fn best(mut run: impl FnMut()) -> f64 {
    let (mut best, begin) = (f64::INFINITY, Instant::now());
    while best == f64::INFINITY || begin.elapsed().as_secs_f64() < 0.5 {
        let start = Instant::now();
        run();
        best = best.min(start.elapsed().as_secs_f64());
    }
    best
}

fn report(kernel: &str, shape: &str, value: f64, unit: &str) {
    println!(
        "{{\"kernel\": \"{kernel}\", \"shape\": \"{shape}\", \"value\": {value:.3}, \"unit\": \"{unit}\"}}"
    );
}

fn stream(seed: u8) -> Stream {
    Key::from_bytes([seed; 32]).stream()
}

fn words<W: Word>(device: &Cpu, seed: u8, n: usize) -> <Cpu as Memory>::Buf<W> {
    device.random(&stream(seed), n).expect("host memory")
}

fn gemm<W: Word>(device: &Cpu, [m, k, n]: [usize; 3]) {
    let (x, y) = (words::<W>(device, 1, m * k), words::<W>(device, 2, k * n));
    let seconds = best(|| drop(black_box(device.matmul(&x, &y, 1, [m, k, n]))));
    report(
        &format!("gemm u{}", W::BITS),
        &format!("{m}x{k}x{n}"),
        (m * k * n) as f64 / seconds / 1e9,
        "GMAC/s",
    );
}

/// Rows times a matrix of bytes.
fn public<W: Word>(device: &Cpu, [m, k, n]: [usize; 3], width: Width) {
    let x = words::<W>(device, 1, m * k);
    let mut column = |n: usize, out: &mut [i32]| {
        out.iter_mut().enumerate().for_each(|(k, q)| *q = ((k * 31 + n * 17) % 255) as i32 - 127);
    };
    let matrix = Matrix::of_integers([k, n], width, 20, vec![9; n], &mut column).expect("it fits");
    let seconds = best(|| drop(black_box(device.times_public(&x, &matrix))));
    let rate = (m * k * n) as f64 / seconds / 1e9;
    report(&format!("public {width:?} u{}", W::BITS), &format!("{m}x{k}x{n}"), rate, "GMAC/s");
}

fn conv<W: Word>(device: &Cpu, x: [usize; 4], w: [usize; 4]) {
    let geometry = megrez_plan::ConvGeometry { pad: [w[2] / 2; 4], ..Default::default() };
    let out = geometry.output([x[2], x[3]], [w[2], w[3]]).expect("it fits");
    let image = words::<W>(device, 1, x.iter().product());
    let kernel = words::<W>(device, 2, w.iter().product());
    let seconds = best(|| drop(black_box(device.conv(&image, &x.into(), &kernel, &w.into(), &geometry))));
    let products = x[0] * out[0] * out[1] * w.iter().product::<usize>();
    report(&format!("conv u{}", W::BITS), &format!("{x:?} {w:?}"), products as f64 / seconds / 1e9, "GMAC/s");
}

/// A list whose kernels are timed. Its algebra is the protocol's, and nobody asks for it here.
struct Timed(ListSpec);

impl ListAlgebra for Timed {
    fn field(&self) -> Field {
        Field::small(self.0.prime)
    }
    fn length(&self) -> usize {
        self.0.length()
    }
    fn entries(&self, _: &ListInput<'_>, _: &mut dyn FnMut(i64)) {
        unreachable!("the device has a kernel");
    }
    fn kernel(&self) -> Option<&ListSpec> {
        Some(&self.0)
    }
}

fn list(device: &Cpu, name: &str, cut: u32, width: u32, entries: Entries) {
    let length = match &entries {
        Entries::Bits => width,
        Entries::Digits(widths) => widths.len() as u32,
    };
    let spec = Timed(ListSpec { cut, width, entries, prime: Prime::above(length) });
    let n = 1 << 13;
    let values = words::<u64>(device, 3, n);
    let flips = device.random_bits(&stream(4), n).expect("host memory");
    let streams = ListStreams { multiplier: &stream(5), zero_share: &stream(6), rotation: &stream(7) };
    let per_value = |kernel: &str, seconds: f64| report(kernel, name, seconds / n as f64 * 1e9, "ns/value");
    let other = stream(8);
    per_value("deal_list", best(|| drop(black_box(device.deal_list(&spec, &values, &other)))));
    let (dealt, _) = device.deal_list(&spec, &values, &other).expect("host memory");
    let masked = |j, packed| {
        let share = if packed { FieldShare::Packed(&dealt) } else { FieldShare::Stream(&other) };
        device.masked_lists(&spec, j, &values, Some(share), &flips, &streams).expect("host memory")
    };
    per_value("masked_list, packed share", best(|| drop(black_box(masked(0, true)))));
    per_value("masked_list, share from a stream", best(|| drop(black_box(masked(1, false)))));
    let lists = [masked(0, true), masked(1, false)];
    per_value("scan_lists", best(|| drop(black_box(device.scan_lists(&spec, [&lists[0], &lists[1]], n)))));
}

/// Look-ups of cubic pieces by keys: of 2^index segments, and with so many bits above them, which
/// say what is beside: nothing, or a line.
fn lookup_keys(device: &Cpu, index: u32, above: u32, slope: i64) {
    let n = 4096;
    let pieces = (0..4i64 << index).map(|i| i * 7919 % 1009).collect();
    let beyond = (above > 0).then_some(Beyond { bits: 12 + index + above, constant: 0, slope });
    let f = Lookup { cut: 1, low: 11, degree: 3, pieces, frac: 40, beyond };
    let permutations = device.upload(stream(1).words(PERMUTATION_WORDS)).expect("host memory");
    let (masks, masked) = (words::<u64>(device, 2, n), words::<u64>(device, 3, n));
    let roots = [stream(4), stream(5)];
    let deal = || device.deal_lookup(&f, &permutations, &masks, [&roots[0], &roots[1]]).expect("host memory");
    let what = format!("2^{index} segments, {above} bits above, slope {slope}");
    let each = |kernel: &str, seconds: f64| report(kernel, &what, seconds / n as f64 * 1e9, "ns/value");
    each("deal_lookup", best(|| drop(black_box(deal()))));
    let dealt = deal();
    let key = LookupKey {
        root: &roots[1],
        first: Some(&dealt.first),
        others: &dealt.others,
        values: &dealt.values,
        mask: &masks,
    };
    let open = || device.open_by_keys(&f, &permutations, &masked, &key, &masks).expect("host memory");
    each("open_by_keys", best(|| drop(black_box(open()))));
}

fn opening(device: &Cpu) {
    let n = 1 << 20;
    let x: [_; 8] = std::array::from_fn(|i| words::<u64>(device, 10 + i as u8, n));
    let choice = device.random_bits(&stream(30), n).expect("host memory");
    let flip = device.random_bits(&stream(31), n).expect("host memory");
    for truncated in [false, true] {
        let seconds = best(|| {
            let t = Truncation { bits: 16, high: &x[5], top: &x[6] };
            let selected = Selected {
                masked: &x[0],
                mask: &x[1],
                choice: &choice,
                flip: Some(&flip),
                bit: &x[2],
                mask_bit: &x[3],
                truncation: truncated.then_some((t, &x[7])),
                output_mask: &x[4],
            };
            drop(black_box(device.open_selected(0, &selected)));
        });
        // Masked, mask, bit, mask_bit, output mask and the output; with a truncation high, top,
        // top_bit instead of mask.
        let bytes = if truncated { 8.0 } else { 6.0 } * 8.0 * n as f64 + 2.0 * bits::bytes(n) as f64;
        let name = if truncated { "with truncation" } else { "plain" };
        report("open_selected", name, bytes / seconds / 1e9, "GB/s");
    }
}

/// Kernels that are bound by memory, in elements a second.
fn elements(device: &Cpu) {
    let n = 1 << 20;
    let x: [_; 4] = std::array::from_fn(|i| words::<u64>(device, 10 + i as u8, n));
    let bit = device.random_bits(&stream(30), n).expect("host memory");
    let rate = |kernel: &str, run: &dyn Fn()| report(kernel, "2^20 u64", n as f64 / best(run) / 1e9, "G/s");
    rate("random", &|| drop(black_box(device.random::<u64>(&stream(1), n))));
    rate("combine, 2 terms", &|| drop(black_box(device.combine(&[(1, &x[0]), (u64::MAX, &x[1])], 7, n))));
    let terms = [(1, &x[2]), (u64::MAX, &x[3])];
    rate("products, 1 and 2 terms", &|| drop(black_box(device.products(&[(1, &x[0], &x[1])], &terms))));
    rate("msb", &|| drop(black_box(device.msb(&x[0]))));
    rate("bit_times", &|| drop(black_box(device.bit_times(&bit, Some(&x[0]), n))));
    rate("pack_low 16", &|| drop(black_box(device.pack_low(&x[0], 16))));
    let packed = device.pack_low(&x[0], 16).expect("host memory");
    rate("unpack_low 16", &|| drop(black_box(device.unpack_low::<u64>(&packed, 16, n))));
    rate("sum of columns", &|| drop(black_box(device.sum(&x[0], [1, 1024, 1024]))));
    rate("sum of rows", &|| drop(black_box(device.sum(&x[0], [1024, 1024, 1]))));
    let square = megrez_ring::Shape::from([1024, 1024]);
    let images = megrez_ring::Shape::from([4, 64, 64, 64]);
    for (name, view) in [
        ("transposition", View::transpose(&square, &[1, 0])),
        ("channels last", View::transpose(&images, &[0, 2, 3, 1])),
        ("channels first", View::transpose(&images, &[0, 3, 1, 2])),
        ("slice of rows", View::slice(&square, 1, 1, 1, 1000)),
        ("every second", View::slice(&square, 1, 0, 2, 512)),
    ] {
        rate(&format!("view, {name}"), &|| drop(black_box(device.view(&x[0], &view))));
        rate(&format!("view_bits, {name}"), &|| drop(black_box(device.view_bits(&bit, &view))));
    }
}

fn main() {
    let device = Cpu::new(1);
    println!("{{\"device\": \"{}\"}}", device.describe());
    let mut buffer = vec![0u64; 1 << 14];
    for level in Level::all() {
        let seconds =
            best(|| (0..64).for_each(|i| stream(1).fill_at_level(level, i << 11, black_box(&mut buffer))));
        report("chacha12", level.name(), 64.0 * 8.0 * buffer.len() as f64 / seconds / 1e9, "GB/s");
        let mut samples = vec![];
        let sampler = FieldSampler::new(67);
        let seconds = best(|| {
            (0..64).for_each(|i| {
                black_box(sampler.window(level, &stream(1), i * 36864, 36864, 0, &mut samples));
            })
        });
        report("samples below 67", level.name(), seconds / 64.0 / 36864.0 * 1e9, "ns/sample");
    }
    for sizes in [
        [1024; 3],
        [256, 1024, 1024],
        [1, 4096, 4096],
        [32, 1152, 64],
        [4, 4096, 4096],
        [8, 4096, 4096],
        [16, 4096, 4096],
        [32, 4096, 4096],
        [64, 4096, 4096],
        [32, 1024, 1024],
        [12, 1024, 1024],
    ] {
        gemm::<u64>(&device, sizes);
        gemm::<u32>(&device, sizes);
    }
    for sizes in [[1, 256, 1024], [1, 2048, 5632], [1, 4096, 11008], [8, 2048, 5632], [128, 2048, 5632]] {
        public::<u64>(&device, sizes, Width::Eight);
        public::<u64>(&device, sizes, Width::Sixteen);
        public::<u32>(&device, sizes, Width::Eight);
        gemm::<u64>(&device, sizes);
    }
    for (x, w) in [
        ([1, 3, 224, 224], [64, 3, 3, 3]),
        ([1, 64, 56, 56], [64, 64, 3, 3]),
        ([1, 512, 14, 14], [512, 512, 3, 3]),
        ([1, 512, 2, 2], [512, 512, 3, 3]),
        ([32, 16, 28, 28], [32, 16, 5, 5]),
    ] {
        conv::<u64>(&device, x, w);
    }
    for (name, cut, width) in [("bits 32", 16, 32), ("bits 64", 0, 64)] {
        list(&device, name, cut, width, Entries::Bits);
    }
    let digits = |parts: &[(u32, usize)]| {
        Entries::Digits(parts.iter().flat_map(|&(w, count)| std::iter::repeat_n(w, count)).collect())
    };
    list(&device, "digits 8", 16, 8, digits(&[(4, 1), (3, 1)]));
    list(&device, "digits 16", 16, 16, digits(&[(3, 3), (2, 3)]));
    list(&device, "digits 32", 16, 32, digits(&[(3, 7), (2, 5)]));
    list(&device, "digits 64", 0, 64, digits(&[(3, 7), (2, 21)]));
    list(&device, "wide digits 64", 0, 64, digits(&[(3, 21)]));
    for (index, above, slope) in
        [(6, 0, 0), (6, 4, 0), (6, 4, 1), (6, 44, 0), (6, 44, 1), (8, 0, 0), (8, 16, 0), (8, 44, 0)]
    {
        lookup_keys(&device, index, above, slope);
    }
    opening(&device);
    elements(&device);
}
