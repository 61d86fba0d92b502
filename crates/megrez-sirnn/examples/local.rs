//! Both parties of an operation in one process, over memory: `cargo run --release -p megrez-sirnn --example local -- OP LANES [k]`.
//! Prints seconds, bytes per lane in both directions, rounds, and how many results differ from the functionality in the clear.

use megrez_float::blocks::mask;
use megrez_float::{Clear, Float, Format, Plain};
use megrez_kernels::Cpu;
use megrez_net::{ClockKind, NetProfile, Network};
use megrez_prg::Key;
use megrez_session::{Party, Phase};
use megrez_sirnn::ops::{Output, run};
use megrez_sirnn::{Bits, Ints, Sirnn, ot::Transfers};
use std::time::{Duration, Instant};

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let (op, lanes) = (args[1].as_str(), args[2].parse::<usize>().expect("lanes"));
    let k = args.get(3).and_then(|k| k.parse().ok()).unwrap_or(4);
    let networks = Network::in_memory(2, &NetProfile::loopback(), ClockKind::Real, Duration::from_secs(600));
    let inputs = [inputs(1, lanes), inputs(2, lanes)];
    let inputs = &inputs;
    let results: Vec<(Vec<u64>, f64, u64, u32)> = std::thread::scope(|scope| {
        let one = move |network: Network| {
            let mut party = Party::start(network, Cpu::new(1)).expect("a session");
            let me = party.me();
            let ot = Transfers::set_up(&mut party, k).expect("transfers");
            let shares = [share(me, 3, &inputs[0]), share(me, 4, &inputs[1])];
            party.enter(Phase::Online, 0);
            let start = Instant::now();
            let mut b = Sirnn::new(party, ot);
            let out = run(op, &mut b, &shares[0], &shares[1]).expect("a session").expect("an operation");
            let seconds = start.elapsed().as_secs_f64();
            let party = b.party();
            let bytes = party.meter().total(Phase::Online, 2)[1 - me];
            let flat = match out {
                Output::Bit(bit) => bit.w,
                Output::Float(f) => {
                    let bits = [f.zero, f.inf, f.nan, f.sign].into_iter().flat_map(|b| b.w);
                    bits.chain(f.exp.v).chain(f.man.v).collect()
                }
            };
            (flat, seconds, bytes, party.rounds())
        };
        let handles: Vec<_> = networks.into_iter().map(|n| scope.spawn(move || one(n))).collect();
        handles.into_iter().map(|h| h.join().expect("a party")).collect()
    });
    let plain = [0, 1].map(|i| Float::public(&Clear, &inputs[i]));
    let want = match run(op, &mut Clear, &plain[0], &plain[1]) {
        Ok(Some(Output::Bit(bit))) => vec![(1, bit.0)],
        Ok(Some(Output::Float(f))) => {
            let (e, m) = (f.format.exp_width(), f.format.man_width());
            vec![(1, f.zero.0), (1, f.inf.0), (1, f.nan.0), (1, f.sign.0), (e, f.exp.v), (m, f.man.v)]
        }
        _ => vec![],
    };
    let mut at = 0;
    let mut wrong = 0;
    for (width, want) in want {
        for (i, want) in want.iter().enumerate() {
            let got = if width == 1 {
                let word = at + i / 64;
                (results[0].0[word] ^ results[1].0[word]) >> (i % 64) & 1
            } else {
                results[0].0[at + i].wrapping_add(results[1].0[at + i]) & mask(width)
            };
            wrong += usize::from(got != *want);
        }
        at += if width == 1 { lanes.div_ceil(64) } else { lanes };
    }
    let bytes: u64 = results.iter().map(|r| r.2).sum();
    println!(
        "{op} {lanes} k={k}: {:.3} s, {:.1} B/lane, {} rounds, {wrong} wrong",
        results[0].1.max(results[1].1),
        bytes as f64 / lanes as f64,
        results[0].3.max(results[1].3)
    );
}

/// Random encodings, special and close values among them.
fn inputs(seed: u8, lanes: usize) -> Plain {
    let words = Key::from_bytes([seed; 32]).stream().words(lanes);
    let near = Key::from_bytes([9; 32]).stream().words(lanes);
    let one = |i: usize| match i % 16 {
        0 => {
            words[i] & 0x8000_0000 | [0, 0x7f80_0000, 0x7fc0_0000, 0x3f80_0000][(words[i] >> 40) as usize % 4]
        }
        1..6 => words[i] & 0x807f_ffff | (110 + (words[i] >> 40) % 35) << 23,
        6..9 => (near[i] & 0x7fff_ffff) ^ words[i] & 0x8000_0003,
        _ => words[i] & mask(32),
    };
    Plain::from_bits(Format::FLOAT32, &(0..lanes).map(one).collect::<Vec<_>>())
}

/// This party's shares of numbers that the test knows.
fn share(me: usize, seed: u8, x: &Plain) -> Float<Sirnn<Cpu>> {
    let words = Key::from_bytes([seed; 32]).stream().words(6 * x.man.len());
    let lanes = x.man.len();
    let pick = |i: usize, part: usize, v: u64| {
        let r = words[part * lanes + i];
        if me == 0 { r } else { v.wrapping_sub(r) }
    };
    let bits = |part: usize, v: &[bool]| Bits::pack(lanes, |i| pick(i, part, u64::from(v[i])));
    let ints = |part: usize, width: u32, v: &[u64]| {
        Ints::new(width, (0..lanes).map(|i| pick(i, part, v[i])).collect())
    };
    Float {
        format: x.format,
        zero: bits(0, &x.zero),
        inf: bits(1, &x.inf),
        nan: bits(2, &x.nan),
        sign: bits(3, &x.sign),
        exp: ints(4, x.format.exp_width(), &x.exp),
        man: ints(5, x.format.man_width(), &x.man),
    }
}
