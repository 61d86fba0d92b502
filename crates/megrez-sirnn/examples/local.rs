//! Both parties of an operation in one process, over memory: `cargo run --release -p megrez-sirnn --example local -- OP LANES [k]`.
//! Prints seconds, bytes per lane in both directions, rounds, and how many results differ from the functionality in the clear.

use megrez_float::Format;
use megrez_kernels::Cpu;
use megrez_net::{ClockKind, NetProfile, Network};
use megrez_session::{Error, Party, Phase};
use megrez_sirnn::ops::{Opened, Output, in_the_clear, run, sample};
use megrez_sirnn::{Sirnn, ot::Transfers};
use std::time::{Duration, Instant};

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let (op, lanes) = (args[1].as_str(), args[2].parse::<usize>().expect("lanes"));
    let k = args.get(3).and_then(|k| k.parse().ok()).unwrap_or(4);
    let networks = Network::in_memory(2, &NetProfile::loopback(), ClockKind::Real, Duration::from_secs(600));
    let inputs = [sample(1, lanes), sample(2, lanes)];
    let inputs = &inputs;
    let one = move |network: Network| -> Result<_, Error> {
        let mut party = Party::start(network, Cpu::new(1))?;
        let me = party.me();
        let ot = Transfers::set_up(&mut party, k)?;
        let mut b = Sirnn::new(party, ot);
        b.party_mut().enter(Phase::Input, 0);
        let mut share = |owner: usize| {
            b.share(
                owner,
                &owner.to_string(),
                Format::FLOAT32,
                lanes,
                (me == owner).then_some(&inputs[owner]),
            )
        };
        let (x, y) = (share(0)?, share(1)?);
        b.party_mut().enter(Phase::Online, 0);
        let start = Instant::now();
        let out = run(op, &mut b, &x, &y)?.expect("an operation");
        let seconds = start.elapsed().as_secs_f64();
        let (bytes, rounds) = (b.party().meter().total(Phase::Online, 2)[1 - me], b.party().rounds());
        b.party_mut().enter(Phase::Output, 0);
        let opened = match out {
            Output::Float(z) => Opened::Float(b.open(&z)?),
            Output::Bit(z) => Opened::Bit(b.open_bits(&z)?),
        };
        Ok((opened, seconds, bytes, rounds))
    };
    let results: Vec<_> = std::thread::scope(|scope| {
        let running: Vec<_> = networks.into_iter().map(|n| scope.spawn(move || one(n))).collect();
        running.into_iter().map(|h| h.join().expect("a party").expect("a session")).collect()
    });
    let want = in_the_clear(op, &inputs[0], &inputs[1]).expect("an operation");
    println!(
        "{op} {lanes} k={k}: {:.3} s, {:.1} B/lane, {} rounds, {} wrong",
        results[0].1.max(results[1].1),
        (results[0].2 + results[1].2) as f64 / lanes as f64,
        results[0].3.max(results[1].3),
        results[0].0.differences(&want)
    );
}
