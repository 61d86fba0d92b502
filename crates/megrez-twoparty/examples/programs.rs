//! The relevance network between two parties: what it costs and, with `run`, whether it gives bit
//! for bit what it gives in the clear:
//! `cargo run --release -p megrez-twoparty --example programs -- NAME [LANES] [run]`, where NAME is
//! `forward` or `step`.

use megrez_float::programs::{Layer, Matrix, Mlp};
use megrez_float::{Blocks, Clear, Float, Format, Plain};
use megrez_kernels::Cpu;
use megrez_net::{ClockKind, NetProfile, Network};
use megrez_prg::Key;
use megrez_session::{Party, Phase};
use megrez_twoparty::costing::Costing;
use megrez_twoparty::{Sirnn, ot::Ots};
use std::time::{Duration, Instant};

/// Sizes of the relevance network.
const SIZES: [usize; 5] = [874, 300, 200, 100, 4];

/// Runs a program on inputs that `number` supplies by name, number of lanes and largest magnitude
/// as a power of two.
fn program<B: Blocks>(
    name: &str,
    lanes: usize,
    b: &mut B,
    number: &mut dyn FnMut(&mut B, usize, i32) -> Float<B>,
) -> Result<Vec<Float<B>>, B::Error> {
    let matrix =
        |b: &mut B, number: &mut dyn FnMut(&mut B, usize, i32) -> Float<B>, r: usize, c: usize, e| {
            let data = number(b, r * c, e);
            Matrix::new(b, r, c, data)
        };
    let mut layers = vec![];
    for pair in SIZES.windows(2) {
        let weights = matrix(b, number, pair[0], pair[1], -3);
        layers.push(Layer { weights, bias: number(b, pair[1], -3) });
    }
    let mlp = Mlp { layers };
    let x = matrix(b, number, lanes, SIZES[0], 0);
    if name == "forward" {
        return Ok(vec![mlp.forward(b, &x)?.data]);
    }
    let one = Plain::from_f32(&(0..lanes * 4).map(|i| f32::from(i % 4 == 1)).collect::<Vec<_>>());
    let data = Float::public(b, &one);
    let labels = Matrix::new(b, lanes, 4, data);
    let step = mlp.step(b, &x, &labels, 0.125)?;
    let mut results = vec![step.loss];
    results.extend(step.mlp.layers.into_iter().flat_map(|l| [l.weights.data, l.bias]));
    Ok(results)
}

/// Test data: uniform signs and mantissas, exponents a little below `exponent`.
fn sample(seed: u64, lanes: usize, exponent: i32) -> Plain {
    let words = Key::agree("test data", &seed.to_le_bytes(), &[]).stream().words(lanes);
    let one = |w: &u64| w & 0x807f_ffff | ((126 + exponent) as u64 - (w >> 40) % 4) << 23;
    Plain::from_bits(Format::FLOAT32, &words.iter().map(one).collect::<Vec<_>>())
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let (name, lanes) = (args[1].as_str(), args.get(2).and_then(|n| n.parse().ok()).unwrap_or(1));
    let mut costing = Costing::new(4);
    let Ok(_) = program(name, lanes, &mut costing, &mut |b, n, e| Float::public(b, &sample(0, n, e)));
    let bytes: u64 = costing.cost.bytes.iter().sum();
    let (each, rounds) = (bytes as f64 / lanes as f64 / 1024.0, costing.cost.rounds);
    println!(
        "{name}, {lanes} at once: {each:.2} KiB each, {:.3} GB in all, {rounds} rounds",
        bytes as f64 / 1e9
    );
    if args.last().is_some_and(|a| a == "run") {
        run(name, lanes);
    }
}

fn run(name: &str, lanes: usize) {
    let networks = Network::in_memory(2, &NetProfile::loopback(), ClockKind::Real, Duration::from_secs(3600));
    let one = move |network: Network| {
        let mut party = Party::start(network, Cpu::new(1)).expect("a session");
        let ot = Ots::set_up(&mut party, 4).expect("transfers");
        let me = party.me();
        let mut b = Sirnn::new(party, ot);
        b.party_mut().enter(Phase::Online, 0);
        let start = Instant::now();
        let mut seed = 0;
        let mut number = |b: &mut Sirnn<Cpu>, n: usize, e: i32| {
            seed += 1;
            let owner = seed as usize % 2;
            let mine = (owner == me).then(|| sample(seed, n, e));
            b.share(owner, &seed.to_string(), Format::FLOAT32, n, mine.as_ref()).expect("shares")
        };
        let results = program(name, lanes, &mut b, &mut number).expect("a result");
        let seconds = start.elapsed().as_secs_f64();
        (results.iter().map(|r| b.open(r).expect("opened")).collect::<Vec<_>>(), seconds)
    };
    let results: Vec<_> = std::thread::scope(|scope| {
        let running: Vec<_> = networks.into_iter().map(|n| scope.spawn(move || one(n))).collect();
        running.into_iter().map(|h| h.join().expect("a party")).collect()
    });
    let mut seed = 0;
    let Ok(want) = program(name, lanes, &mut Clear, &mut |b, n, e| {
        seed += 1;
        Float::public(b, &sample(seed, n, e))
    });
    let same = results[0].0.iter().zip(&want).all(|(got, want)| *got == want.plain());
    println!("{:.2} s; equal to the clear: {same}", results[0].1);
}
