//! `bench [GPU [WHAT]]`: kernel times on GPU 0 (or the number given), one JSON line each: median
//! seconds on the device, the fewest bytes that must move, and the fraction of the measured copy
//! bandwidth that this makes. With `WHAT`, only of kernels whose line has it in its name.

use megrez_cuda::Cuda;
use megrez_kernels::{
    ComparisonKeys, Device, DeviceError, Entries, FieldShare, KeyShare, KeySpec, ListSpec, ListStreams,
    LookupKey, LookupKeys, LookupTables, MaskedLists, Memory, OpenSelected, OpenTruncated, PERMUTATION_WORDS,
    Selected, Truncation,
};
use megrez_plan::{ConvGeometry, Lookup, View};
use megrez_prg::{Key, Stream};
use megrez_protocols::mizar::SignList;
use megrez_ring::{Prime, Shape, Word};
use serde_json::json;

type Outcome<T> = Result<T, DeviceError>;

struct Bench {
    device: Cuda,
    /// Bytes read and written per second by a copy.
    copy: f64,
    /// What the names of kernels must contain.
    only: String,
}

fn stream(seed: u8) -> Stream {
    Key::from_bytes([seed; 32]).stream()
}

impl Bench {
    /// Median seconds that the kernels of `work` take.
    fn seconds<T>(&self, mut work: impl FnMut() -> Outcome<T>) -> Outcome<f64> {
        for _ in 0..3 {
            work()?;
        }
        let mut times = vec![];
        for _ in 0..15 {
            let before = self.device.statistics()?.kernel_seconds();
            work()?;
            times.push(self.device.statistics()?.kernel_seconds() - before);
        }
        times.sort_by(f64::total_cmp);
        Ok(times[times.len() / 2])
    }

    /// `bytes` is the least traffic; `unit` and `amount` say what was done.
    fn line<T>(
        &self,
        name: &str,
        bytes: usize,
        (unit, amount): (&str, f64),
        work: impl FnMut() -> Outcome<T>,
    ) -> Outcome<()> {
        if !name.contains(&self.only) {
            return Ok(());
        }
        let seconds = self.seconds(work)?;
        let rate = bytes as f64 / seconds;
        println!(
            "{}",
            json!({ "kernel": name, "ms": seconds * 1e3, "bytes": bytes, "GB/s": rate / 1e9,
                    "of copy": rate / self.copy, (unit): amount / seconds })
        );
        Ok(())
    }

    fn random<W: Word>(&self, seed: u8, n: usize) -> Outcome<<Cuda as Memory>::Buf<W>> {
        self.device.random(&stream(seed), n)
    }

    fn products<W: Word>(&self) -> Outcome<()> {
        let d = &self.device;
        for [m, k, n] in [[4096, 4096, 4096], [1024, 1024, 1024], [128, 4096, 4096], [1, 4096, 4096]] {
            let (x, y) = (self.random::<W>(1, m * k)?, self.random::<W>(2, k * n)?);
            let bytes = (m * k + k * n + m * n) * size_of::<W>();
            let macs = (m * k * n) as f64 / 1e12;
            let name = format!("gemm u{} {m}×{k}×{n}", W::BITS);
            self.line(&format!("{name}, weights kept"), bytes, ("Tmac/s", macs), || {
                d.matmul(&x, &y, 1, [m, k, n])
            })?;
            // A new buffer each time: its limbs are cut again.
            self.line(&format!("{name}, first use"), bytes, ("Tmac/s", macs), || {
                let y = d.combine(&[(W::ONE, &y)], W::ZERO, k * n)?;
                d.matmul(&x, &y, 1, [m, k, n])
            })?;
        }
        for (x, w, g) in [
            ([1, 64, 224, 224], [64, 64, 3, 3], ConvGeometry { pad: [1; 4], ..ConvGeometry::default() }),
            ([8, 256, 56, 56], [256, 256, 3, 3], ConvGeometry { pad: [1; 4], ..ConvGeometry::default() }),
            ([8, 512, 14, 14], [512, 512, 3, 3], ConvGeometry { pad: [1; 4], ..ConvGeometry::default() }),
            (
                [8, 3, 224, 224],
                [64, 3, 7, 7],
                ConvGeometry { pad: [3; 4], stride: [2; 2], ..ConvGeometry::default() },
            ),
            (
                [8, 96, 56, 56],
                [96, 1, 3, 3],
                ConvGeometry { pad: [1; 4], groups: 96, ..ConvGeometry::default() },
            ),
        ] {
            let (n_x, n_w) = (x.iter().product(), w.iter().product::<usize>());
            let [rows, columns] = g.output([x[2], x[3]], [w[2], w[3]]).expect("the kernel fits");
            let outputs = x[0] * w[0] * rows * columns;
            let (image, weights) = (self.random::<W>(3, n_x)?, self.random::<W>(4, n_w)?);
            let macs = (outputs * w[1] * w[2] * w[3]) as f64 / 1e12;
            let bytes = (n_x + n_w + outputs) * size_of::<W>();
            self.line(&format!("conv u{} {x:?} {w:?}", W::BITS), bytes, ("Tmac/s", macs), || {
                d.conv(&image, &x.into(), &weights, &w.into(), &g)
            })?;
        }
        Ok(())
    }

    fn lists(&self, name: &str, spec: &ListSpec) -> Outcome<()> {
        let (d, n) = (&self.device, 1 << 20);
        let values = ("Gvalue/s", n as f64 / 1e9);
        let (masks, masked) = (self.random::<u64>(5, n)?, self.random::<u64>(6, n)?);
        let flips = d.random_bits(&stream(7), n)?;
        let keys: [Stream; 4] = std::array::from_fn(|i| stream(8 + i as u8));
        let streams = ListStreams { multiplier: &keys[0], zero_share: &keys[1], rotation: &keys[2] };
        let list = &SignList(spec.clone());
        let (dealt, _) = d.deal_list(list, &masks, &keys[3])?;
        let (share, wire) = (spec.prime.words(n * spec.dealt()) * 8, spec.prime.words(n * spec.length()) * 8);
        let what = |kernel: &str| format!("{kernel}, {name}, n = 2^20");
        self.line(&what("deal_list"), n * 8 + share + n / 8, values, || d.deal_list(list, &masks, &keys[3]))?;
        let mut lists = vec![];
        for j in [0, 1] {
            let made = || {
                let share = if j == 0 { FieldShare::Packed(&dealt) } else { FieldShare::Stream(&keys[3]) };
                d.masked_lists(list, j, &masked, Some(share), &flips, &streams)
            };
            let read = if j == 0 { share } else { 0 };
            self.line(
                &what(&format!("masked_list of worker {j}")),
                n * 8 + read + n / 8 + wire,
                values,
                made,
            )?;
            lists.push(made()?);
        }
        self.line(&what("scan_lists"), 2 * wire + n / 8, values, || {
            d.scan_lists(list, [&lists[0], &lists[1]], n)
        })
    }

    /// Functions of values of 64 bits: a ReLU's comparison with a truncation by keys, and pieces by
    /// tables and by keys.
    fn functions(&self) -> Outcome<()> {
        let (d, n) = (&self.device, 1 << 18);
        let values = ("Gvalue/s", n as f64 / 1e9);
        let x = (0..3).map(|i| self.random::<u64>(30 + i, n)).collect::<Outcome<Vec<_>>>()?;
        let permutations = self.random::<u64>(33, PERMUTATION_WORDS)?;
        let roots = [stream(34), stream(35)];
        let of = [&roots[0], &roots[1]];
        let spec = KeySpec { cut: 16, width: 16, truncate: 16 };
        let what = |kernel: &str| format!("{kernel} of 16 bits, n = 2^18");
        let dealt = d.deal_keys(spec, &permutations, &x[0], of)?;
        let size = 8 * (dealt.first.len() + dealt.others.len() + dealt.values.len() + dealt.tops.len());
        self.line(&what("deal_keys"), n * 8 + size, values, || d.deal_keys(spec, &permutations, &x[0], of))?;
        let first = Some(&dealt.first);
        let key = KeyShare {
            root: &roots[1],
            first,
            others: &dealt.others,
            values: &dealt.values,
            tops: &dealt.tops,
        };
        self.line(&what("evaluate_keys"), n * 32 + size, values, || {
            d.evaluate_keys(spec, &permutations, &x[1], &key)
        })?;
        for index in [6, 9] {
            let pieces = (0..2 << index).collect();
            let f = &Lookup { cut: 0, low: 12, degree: 1, pieces, frac: 16, beyond: None };
            let what = |kernel: &str| format!("{kernel} of {} segments, n = 2^18", 1 << index);
            if !f.is_keyed(64) {
                let size = n * f.pieces.len() * 8;
                self.line(&what("lookup_tables"), n * 8 + size, values, || d.lookup_tables(f, &x[0]))?;
                let tables = d.lookup_tables(f, &x[0])?;
                self.line(&what("open_looked_up"), n * 40, values, || {
                    d.open_looked_up(f, &x[1], &tables, &x[2])
                })?;
            }
            let dealt = d.deal_lookup(f, &permutations, &x[0], of)?;
            let size = 8 * (dealt.first.len() + dealt.others.len() + dealt.values.len());
            self.line(&what("deal_lookup"), n * 8 + size, values, || {
                d.deal_lookup(f, &permutations, &x[0], of)
            })?;
            let (others, values_of) = (&dealt.others, &dealt.values);
            let key = LookupKey {
                root: &roots[1],
                first: Some(&dealt.first),
                others,
                values: values_of,
                mask: &x[0],
            };
            self.line(&what("open_by_keys"), n * 24 + size, values, || {
                d.open_by_keys(f, &permutations, &x[1], &key, &x[2])
            })?;
        }
        Ok(())
    }

    fn elements<W: Word>(&self) -> Outcome<()> {
        let (d, n) = (&self.device, 1 << 26);
        let size = n * size_of::<W>();
        let x = (0..8).map(|i| self.random::<W>(i, n)).collect::<Outcome<Vec<_>>>()?;
        let (f, delta) = (d.random_bits(&stream(20), n)?, d.random_bits(&stream(21), n)?);
        let what = |kernel: &str| format!("{kernel} u{}, n = 2^26", W::BITS);
        let values = ("Gvalue/s", n as f64 / 1e9);
        self.line(&what("combine 2"), 3 * size, values, || {
            d.combine(&[(W::ONE, &x[0]), (W::ONE.neg(), &x[1])], W::ZERO, n)
        })?;
        self.line(&what("products 2 + 1"), 6 * size, values, || {
            d.products(&[(W::ONE, &x[0], &x[1]), (W::ONE, &x[2], &x[3])], &[(W::ONE, &x[4])])
        })?;
        let t = Truncation { bits: 16, high: &x[0], top: &x[1] };
        self.line(&what("open_truncated"), 5 * size, values, || d.open_truncated(1, &x[2], &t, &x[3]))?;
        self.line(&what("truncation_carry"), 4 * size, values, || d.truncation_carry(&x[2], &x[1], &x[3]))?;
        self.line(&what("close_truncated"), 4 * size, values, || {
            d.close_truncated(&x[2], 16, [&x[0], &x[1]])
        })?;
        for truncate in [false, true] {
            let s = Selected {
                masked: &x[0],
                mask: &x[1],
                choice: &f,
                flip: Some(&delta),
                bit: &x[2],
                mask_bit: &x[3],
                truncation: truncate.then_some((Truncation { bits: 16, high: &x[5], top: &x[6] }, &x[7])),
                output_mask: &x[4],
            };
            let (name, buffers) =
                if truncate { ("open_selected + truncation", 8) } else { ("open_selected", 6) };
            self.line(&what(name), buffers * size + n / 4, values, || d.open_selected(1, &s))?;
        }
        self.line(&what("msb"), size + n / 8, values, || d.msb(&x[0]))?;
        self.line(&what("pack_low 16"), size + 2 * n, values, || d.pack_low(&x[0], 16))?;
        let packed = d.pack_low(&x[0], 16)?;
        self.line(&what("unpack_low 16"), size + 2 * n, values, || d.unpack_low::<W>(&packed, 16, n))?;
        self.line(&what("bit_times"), 2 * size + n / 8, values, || d.bit_times(&f, Some(&x[0]), n))?;
        self.line(&what("sum of rows of 4096"), size, values, || d.sum(&x[0], [n / 4096, 4096, 1]))?;
        self.line(&what("sum of columns of 64"), size, values, || d.sum(&x[0], [64, 64, n / 4096]))?;
        let transpose = View::transpose(&Shape::from([8192, 8192]), &[1, 0]);
        self.line(&what("transpose"), 2 * size, values, || d.view(&x[0], &transpose))?;
        let channels = View::transpose(&Shape::from([64, 1024, 1024]), &[1, 0, 2]);
        self.line(&what("transpose of outer dimensions"), 2 * size, values, || d.view(&x[0], &channels))
    }
}

fn run(ordinal: usize, only: String) -> Outcome<()> {
    let device = Cuda::new(ordinal)?;
    println!("{}", json!({ "device": device.describe() }));
    let mut bench = Bench { device, copy: 1.0, only };
    let (d, n) = (&bench.device, 1usize << 27);
    let x = bench.random::<u64>(0, n)?;
    let seconds = bench.seconds(|| d.combine(&[(1, &x)], 0, n))?;
    bench.copy = (2 * n * 8) as f64 / seconds;
    println!("{}", json!({ "copy GB/s": bench.copy / 1e9 }));
    let d = &bench.device;
    bench.line("keystream", n * 8, ("TB/s", (n * 8) as f64 / 1e12), || bench.random::<u64>(0, n))?;
    drop(x);
    bench.products::<u64>()?;
    bench.products::<u32>()?;
    let bits = |width| ListSpec { cut: 0, width, entries: Entries::Bits, prime: Prime::above(width) };
    let digits = |cut, widths: &[u32]| ListSpec {
        cut,
        width: widths.iter().sum::<u32>() + 1,
        entries: Entries::Digits(widths.to_vec()),
        prime: Prime::above(widths.len() as u32),
    };
    bench.lists("64 bits", &bits(64))?;
    bench.lists("28 digits of 64 bits", &digits(0, &[&[3; 7][..], &[2; 21]].concat()))?;
    bench.lists("16 bits", &bits(16))?;
    bench.lists("6 digits of 16 bits", &digits(16, &[3, 3, 3, 2, 2, 2]))?;
    bench.lists("2 digits of 8 bits", &digits(16, &[4, 3]))?;
    bench.functions()?;
    bench.elements::<u64>()?;
    bench.elements::<u32>()?;
    let host = vec![1u64; 1 << 26];
    let start = std::time::Instant::now();
    let up = d.upload(host)?;
    d.synchronize()?;
    let middle = start.elapsed().as_secs_f64();
    let _ = d.download(up)?;
    let down = start.elapsed().as_secs_f64() - middle;
    let gigabytes = (8usize << 26) as f64 / 1e9;
    println!("{}", json!({ "upload GB/s": gigabytes / middle, "download GB/s": gigabytes / down }));
    let s = d.statistics()?;
    println!("{}", json!({ "peak MiB": s.peak_memory >> 20, "compiled": s.compiled }));
    Ok(())
}

fn main() -> std::process::ExitCode {
    let mut given = std::env::args().skip(1);
    let ordinal = given.next().and_then(|o| o.parse().ok()).unwrap_or(0);
    match run(ordinal, given.next().unwrap_or_default()) {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            std::process::ExitCode::FAILURE
        }
    }
}
