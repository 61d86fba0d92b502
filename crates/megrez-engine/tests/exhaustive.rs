//! The masked steps of `mizar` over every value and every mask at ℓ = 8: the kernels called as the
//! steps call them, with masks that the test chooses, so that probabilities are exact counts.

use crate::common::{Rng, run_locally, signed, stats};
use megrez_engine::local::LocalOptions;
use megrez_kernels::{Cpu, Device, FieldShare, ListSpec, ListStreams, Reference, Selected, Truncation};
use megrez_plan::{List, Op, Plan, Relu, ReluForm, SignBit};
use megrez_prg::{Key, Stream};
use megrez_protocols::mizar::SignList;
use megrez_ring::Word;
use std::collections::HashMap;

fn stream(purpose: u8) -> Stream {
    Key::from_bytes([purpose; 32]).stream()
}

/// Every value with every mask: element x·256 + r.
fn all() -> (Vec<u8>, Vec<u8>) {
    (0..1u32 << 16).map(|i| ((i >> 8).wrapping_add(i) as u8, i as u8)).unzip()
}

/// The workers' bits Δ and the dealer's bit b = sgn(x) ⊕ Δ.
fn compare<D: Device, W: Word>(
    device: &D,
    spec: &SignList,
    m: &D::Buf<W>,
    r: &D::Buf<W>,
    n: usize,
) -> (D::Buf<u64>, D::Buf<u64>) {
    let other = stream(1);
    let (dealt, signs) = device.deal_list(spec, r, &other).unwrap();
    let flips = device.random_bits(&stream(2), n).unwrap();
    let common = [stream(3), stream(4), stream(5)];
    let streams = ListStreams { multiplier: &common[0], zero_share: &common[1], rotation: &common[2] };
    let shares = [FieldShare::Packed(&dealt), FieldShare::Stream(&other)];
    let mut lists = shares
        .into_iter()
        .enumerate()
        .map(|(j, share)| device.masked_lists(spec, j, m, Some(share), &flips, &streams).unwrap());
    let lists = [lists.next().unwrap(), lists.next().unwrap()];
    let none = device.scan_lists(spec, [&lists[0], &lists[1]], n).unwrap();
    (flips, device.xor(&[&signs, &none], false, n).unwrap())
}

/// sgn of the cut value, element by element.
fn signs<D: Device>(device: &D, spec: &SignList) -> Vec<u64> {
    let (m, r) = all();
    let n = m.len();
    let [m, r] = [m, r].map(|x| device.upload(x).unwrap());
    let (flips, b) = compare(device, spec, &m, &r, n);
    let sign = device.download(device.xor(&[&b, &flips], false, n).unwrap()).unwrap();
    (0..n).map(|i| megrez_ring::bits::get(&sign, i)).collect()
}

/// Every way to list λ − 1 bits that differs in kind: bits, one digit, single bits as digits,
/// mixed.
fn lists(bits: u32) -> Vec<List> {
    let mut mixed = vec![3; bits as usize / 3];
    mixed.extend((!bits.is_multiple_of(3)).then_some(bits % 3));
    let mut rising = vec![1];
    rising.extend((bits > 1).then_some(bits - 1));
    vec![
        List::Bits,
        List::Digits(vec![bits]),
        List::Digits(vec![1; bits as usize]),
        List::Digits(mixed),
        List::Digits(rising),
    ]
}

/// Where the sign of the cut value is promised: −2^(k+λ−1) ≤ x ≤ 2^(k+λ−1) − 2^k.
fn promised(x: i64, k: u32, lambda: u32) -> bool {
    let half = 1i64 << (k + lambda - 1);
    (-half..=half - (1 << k)).contains(&x)
}

#[test]
fn the_sign_and_its_cut_are_as_stated_for_every_value_and_mask() {
    for k in 0..7 {
        for lambda in 2..=8 - k {
            for list in lists(lambda - 1) {
                let spec = SignList(ListSpec::new(&SignBit { list, cut: k, bits: Some(lambda) }, 8));
                let got = signs(&Cpu::default(), &spec);
                assert_eq!(got, signs(&Reference, &spec), "{spec:?}: devices differ");
                for x in (-128i64..128).filter(|&x| promised(x, k, lambda)) {
                    let row = &got[(x as u8 as usize) << 8..][..256];
                    let negative: u64 = row.iter().sum();
                    // Between −2^k and 0 the cut reads ≥ 0 for 256·(1 − |x|/2^k) masks; elsewhere
                    // it never errs.
                    let expected = match x {
                        0.. => 0,
                        x if x <= -(1 << k) => 256,
                        x => (256 * x.unsigned_abs()) >> k,
                    };
                    assert_eq!(negative, expected, "{spec:?}: x = {x}");
                }
            }
        }
    }
}

#[test]
fn outside_its_range_the_cut_errs() {
    // So that the range above is not stricter than need be, and a missing range check would be
    // seen.
    let (k, lambda) = (2, 4);
    let spec = SignList(ListSpec::new(&SignBit { list: List::Bits, cut: k, bits: Some(lambda) }, 8));
    let got = signs(&Reference, &spec);
    for x in [29i64, 32, 40, -33, -40] {
        assert!(!promised(x, k, lambda));
        let row = &got[(x as u8 as usize) << 8..][..256];
        assert!(row.iter().any(|&negative| (negative == 1) != (x < 0)), "{x}");
    }
}

/// Additive shares of `secret`.
fn share<D: Device>(device: &D, purpose: u8, secret: Vec<u8>) -> [D::Buf<u8>; 2] {
    let n = secret.len();
    let (secret, other) = (device.upload(secret).unwrap(), device.random::<u8>(&stream(purpose), n).unwrap());
    [device.combine(&[(1, &secret), (255, &other)], 0, n).unwrap(), other]
}

fn sum<D: Device>(device: &D, parts: [D::Buf<u8>; 2], minus: [D::Buf<u8>; 2], n: usize) -> Vec<u8> {
    let terms = [(1, &parts[0]), (1, &parts[1]), (255, &minus[0]), (255, &minus[1])];
    device.download(device.combine(&terms, 0, n).unwrap()).unwrap()
}

/// y − floor(x/2^f) for every value and mask.
fn truncated<D: Device>(device: &D, f: u32) -> Vec<i64> {
    let (m, r) = all();
    let n = m.len();
    let high = share(device, 6, r.iter().map(|r| r >> f).collect());
    let top = share(device, 7, r.iter().map(|r| r >> 7).collect());
    let output: [_; 2] = [8, 9].map(|purpose| device.random::<u8>(&stream(purpose), n).unwrap());
    let m = device.upload(m).unwrap();
    let opened = [0, 1].map(|j| {
        let parts = Truncation { bits: f, high: &high[j], top: &top[j] };
        device.open_truncated(j, &m, &parts, &output[j]).unwrap()
    });
    let y = sum(device, opened, output, n);
    (0..n).map(|i| signed(u64::from(y[i]), 8) - (i64::from((i >> 8) as u8 as i8) >> f)).collect()
}

#[test]
fn truncation_is_exact_and_unbiased_for_every_value_and_mask() {
    for f in 1..=5 {
        let got = truncated(&Cpu::default(), f);
        assert_eq!(got, truncated(&Reference, f));
        for x in -64i64..64 {
            let row = &got[(x as u8 as usize) << 8..][..256];
            assert!(row.iter().all(|e| [0, 1].contains(e)), "f = {f}, x = {x}");
            // One more for exactly the masks that the fraction says, and it is the carry of the low
            // bits.
            let fraction = x.rem_euclid(1 << f);
            assert_eq!(row.iter().sum::<i64>(), (256 * fraction) >> f, "f = {f}, x = {x}");
            for (r, &e) in row.iter().enumerate() {
                let low = (1 << f) - 1;
                let carry = (x as usize).wrapping_add(r) & low < r & low;
                assert_eq!(e == 1, carry, "f = {f}, x = {x}, r = {r}");
            }
        }
    }
}

/// ReLU with `f` bits dropped, for every value and mask.
fn relus<D: Device>(device: &D, spec: &SignList, f: u32) -> Vec<u8> {
    let (m, r) = all();
    let n = m.len();
    let device_bits = |x: &D::Buf<u64>| device.bit_times::<u8>(x, None, n).unwrap();
    let a = device.random_bits(&stream(10), n).unwrap();
    let a_words = device.download(device_bits(&a)).unwrap();
    let times_a = |x: Vec<u8>| -> Vec<u8> { x.iter().zip(&a_words).map(|(x, a)| x * a).collect() };
    let (high, top): (Vec<u8>, Vec<u8>) = r.iter().map(|r| (r >> f, r >> 7)).unzip();
    let bit = share(device, 11, a_words.clone());
    let mask_bit = share(device, 12, times_a(high.clone()));
    let top_bit = share(device, 13, times_a(top.clone()));
    let (high, top) = (share(device, 14, high), share(device, 15, top));
    let mask = share(device, 16, r.clone());
    let output: [_; 2] = [17, 18].map(|purpose| device.random::<u8>(&stream(purpose), n).unwrap());
    let [m, r] = [m, r].map(|x| device.upload(x).unwrap());
    let (flips, b) = compare(device, spec, &m, &r, n);
    let choice = device.xor(&[&b, &a], false, n).unwrap();
    let flip = device.xor(&[&flips], true, n).unwrap();
    let opened = [0, 1].map(|j| {
        let selected = Selected {
            masked: &m,
            mask: &mask[j],
            choice: &choice,
            flip: Some(&flip),
            bit: &bit[j],
            mask_bit: &mask_bit[j],
            truncation: (f > 0).then(|| (Truncation { bits: f, high: &high[j], top: &top[j] }, &top_bit[j])),
            output_mask: &output[j],
        };
        device.open_selected(j, &selected).unwrap()
    });
    sum(device, opened, output, n)
}

/// A bit times what is left of a value after `f` bits, for every value and mask; and the bits.
fn selections<D: Device>(device: &D, f: u32, seed: u8) -> (Vec<u8>, Vec<u8>) {
    let (m, r) = all();
    let n = m.len();
    let [a, choice] = [seed, seed + 1].map(|purpose| device.random_bits(&stream(purpose), n).unwrap());
    let words = |x: &D::Buf<u64>| device.download(device.bit_times::<u8>(x, None, n).unwrap()).unwrap();
    let a_words = words(&a);
    let times_a = |x: &[u8]| -> Vec<u8> { x.iter().zip(&a_words).map(|(x, a)| x * a).collect() };
    let (high, top): (Vec<u8>, Vec<u8>) = r.iter().map(|r| (r >> f, r >> 7)).unzip();
    let (mask_bit, top_bit) = (share(device, 21, times_a(&high)), share(device, 22, times_a(&top)));
    let bit = share(device, 20, a_words.clone());
    let (high, top) = (share(device, 23, high), share(device, 24, top));
    let mask = share(device, 25, r);
    let output: [_; 2] = [26, 27].map(|purpose| device.random::<u8>(&stream(purpose), n).unwrap());
    let m = device.upload(m).unwrap();
    let opened = [0, 1].map(|j| {
        let selected = Selected {
            masked: &m,
            mask: &mask[j],
            choice: &choice,
            flip: None,
            bit: &bit[j],
            mask_bit: &mask_bit[j],
            truncation: Some((Truncation { bits: f, high: &high[j], top: &top[j] }, &top_bit[j])),
            output_mask: &output[j],
        };
        device.open_selected(j, &selected).unwrap()
    });
    let bits = words(&device.xor(&[&choice, &a], false, n).unwrap());
    (sum(device, opened, output, n), bits)
}

/// As a truncation gives it, whatever the bit's parts are: with the carry of the low bits.
#[test]
fn a_selection_with_a_truncation_is_right_for_every_value_and_mask() {
    let mut seen = [0; 2];
    for f in 1..=5 {
        for seed in [40, 50, 60, 70] {
            let (got, bits) = selections(&Cpu::default(), f, seed);
            for x in -64i64..64 {
                let row = (x as u8 as usize) << 8;
                for (r, (&y, &bit)) in got[row..].iter().zip(&bits[row..]).take(256).enumerate() {
                    let low = (1 << f) - 1;
                    let carry = i64::from((x as usize).wrapping_add(r) & low < r & low);
                    let want = if bit == 1 { (x >> f) + carry } else { 0 };
                    assert_eq!(y, want as u8, "f = {f}, x = {x}, r = {r}, bit {bit}");
                    seen[usize::from(bit)] += 1;
                }
            }
        }
    }
    assert!(seen.iter().all(|&count| count > 200_000), "{seen:?}");
}

#[test]
fn relu_is_exact_for_every_value_and_mask() {
    let spec = SignList(ListSpec::new(&SignBit { list: List::Digits(vec![4, 3]), cut: 0, bits: None }, 8));
    let got = relus(&Cpu::default(), &spec, 0);
    for x in -128i64..128 {
        let row = &got[(x as u8 as usize) << 8..][..256];
        assert!(row.iter().all(|&y| i64::from(y) == x.max(0)), "{x}");
    }
}

#[test]
fn relu_with_truncation_has_no_sign_error_where_the_cut_sees_no_less_than_is_kept() {
    for f in 1..=5 {
        for k in 0..=f {
            for lambda in 2..=8 - k {
                for list in [List::Bits, lists(lambda - 1).remove(3)] {
                    let spec = SignList(ListSpec::new(&SignBit { list, cut: k, bits: Some(lambda) }, 8));
                    let got = relus(&Cpu::default(), &spec, f);
                    for x in (-64i64..64).filter(|&x| promised(x, k, lambda)) {
                        let row = &got[(x as u8 as usize) << 8..][..256];
                        if x < 0 {
                            assert!(row.iter().all(|&y| y == 0), "{spec:?} f = {f}: x = {x}");
                            continue;
                        }
                        let floor = (x >> f) as u8;
                        assert!(row.iter().all(|y| (floor..=floor + 1).contains(y)), "{spec:?} f = {f}: {x}");
                        let up: u64 = row.iter().map(|y| u64::from(y - floor)).sum();
                        assert_eq!(up, (256 * (x as u64 % (1 << f))) >> f, "{spec:?} f = {f}: x = {x}");
                    }
                }
            }
        }
    }
}

/// Runs one step on ring elements of 32 bits.
fn on_32_bits(op: Op, x: Vec<u64>) -> Vec<u64> {
    let mut plan = Plan::new(32);
    let input = plan.input("x", "owner", [x.len()].into(), 6);
    let output = plan.step("op", op, &[input]).unwrap();
    plan.output("y", "owner", output);
    let inputs = HashMap::from([("x".to_string(), x)]);
    run_locally("mizar", &plan, &inputs, &LocalOptions::default()).unwrap().outputs.remove(0).remove(0)
}

#[test]
fn the_cut_is_as_stated_at_32_bits() {
    let mut rng = Rng(16);
    let n = 1 << 14;
    for (k, lambda, widths) in [
        (0, 32, [vec![3; 10], vec![1]].concat()),
        (4, 9, vec![3, 3, 2]),
        (6, 6, vec![3, 2]),
        (3, 13, vec![1; 12]),
    ] {
        let sign = SignBit { list: List::Digits(widths), cut: k, bits: Some(lambda) };
        // Random values and the ends of the range: never wrong but just below zero.
        let half = 1i64 << (k + lambda - 1);
        let ends = [-half, -half + 1, -(1 << k), 0, 1, half - (1 << k)];
        let values: Vec<i64> = (0..n)
            .map(|i| match ends.get(i) {
                Some(&x) => x,
                None => rng.below((2 * half - (1 << k) + 1) as u64) as i64 - half,
            })
            .filter(|x| *x >= 0 || *x <= -(1 << k))
            .collect();
        assert!(values.iter().all(|&x| promised(x, k, lambda)));
        let words = values.iter().map(|&x| x as u64 & 0xffff_ffff).collect();
        let got = on_32_bits(Op::NonNegative(sign.clone()), words);
        for (&x, got) in values.iter().zip(got) {
            assert_eq!(got == 1, x >= 0, "k = {k}, λ = {lambda}: {x}");
        }
        // Just below zero: as often as stated.
        for x in (1..1i64 << k).step_by(1 << k.saturating_sub(3)) {
            let got = on_32_bits(Op::NonNegative(sign.clone()), vec![(-x) as u64 & 0xffff_ffff; n]);
            let off = stats::binomial(got.iter().sum(), n as u64, 1.0 - x as f64 / 2f64.powi(k as i32));
            assert!(off < stats::SIGMAS, "k = {k}, λ = {lambda}: −{x} is off by {off:.1} σ");
        }
    }
}

#[test]
fn relu_with_truncation_at_32_bits() {
    let (f, lambda) = (6, 8);
    let sign = SignBit { list: List::Digits(vec![3, 2, 2]), cut: f, bits: Some(lambda) };
    for form in [ReluForm::ThreeRounds, ReluForm::Key] {
        let op = || Op::Relu(Relu { sign: sign.clone(), form, truncate: f });
        let n = 1 << 14;
        for x in [-(1i64 << 13), -100, -64, -63, -33, -1, 0, 64, 128] {
            let got = on_32_bits(op(), vec![x as u64 & 0xffff_ffff; n]);
            assert!(got.iter().all(|&y| y == x.max(0) as u64 >> f), "{x}");
        }
        for x in [1i64, 31, 63, 65, 1000, 8127] {
            let (floor, fraction) = ((x >> f) as u64, x % (1 << f));
            let up = on_32_bits(op(), vec![x as u64; n])
                .into_iter()
                .map(|y| y - floor)
                .inspect(|e| assert!(*e <= 1))
                .sum();
            let off = stats::binomial(up, n as u64, fraction as f64 / 64.0);
            assert!(off < stats::SIGMAS, "{x} is off by {off:.1} σ");
        }
    }
}
