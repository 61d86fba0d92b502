//! The extension over a session: blocks agree, messages are uniform, the meter is the formula,
//! hostile bytes are refused.

use super::*;
use crate::Sirnn;
use crate::testing::{chi_square_is_plausible, two_parties};
use megrez_kernels::Cpu;
use megrez_ring::bits;
use megrez_session::Phase;

/// Choices of b bits in planes.
fn planes(code: Code, choices: &[u64]) -> Vec<Vec<u64>> {
    (0..code.choice_bits()).map(|i| bits::pack(choices.len(), |j| choices[j] >> i)).collect()
}

/// OTs set up, with a stock for `n` of `b` choice bits from party 1 to party 0, if one is kept.
fn reserved(party: &mut Party<Cpu>, group: u32, b: usize, n: usize) -> Result<Ots, Error> {
    let ot = Ots::set_up(party, group)?;
    let (receive, send) = if party.me() == 0 { (b * n, 0) } else { (0, b * n) };
    let mut b = Sirnn::new(party.clone(), ot);
    b.reserve(receive, send)?;
    Ok(b.ot)
}

#[test]
fn the_receiver_holds_the_senders_block_for_its_choice() {
    for k in [0, 1, 2, 4, 8] {
        for b in 1..=MAX_CHOICE {
            let code = Code::new(b);
            let choose =
                move |n: usize| -> Vec<u64> { (0..n as u64).map(|j| (j * 7 + j / 5) % (1 << b)).collect() };
            // The second batch goes on where the first has ended; 9000 is more than a chunk.
            // Of silent ones the first batch takes several iterations.
            let sizes = match k {
                0 => [400_000, 77],
                4 => [9000, 77],
                _ => [700, 3],
            };
            let mut results = two_parties(move |party| {
                let mut ot = reserved(party, k, b as usize, sizes[0] + sizes[1])?;
                let mut out = vec![];
                for (i, n) in sizes.into_iter().enumerate() {
                    let label = format!("corrections {i}");
                    if party.me() == 0 {
                        let (message, t) = ot.receiver.extend(code, &planes(code, &choose(n)), n);
                        assert_eq!(message.len(), ot.transfers.correction_bytes(code, n));
                        party.send(1, &label, Payload::from_bytes(&message))?;
                        out.push((t, vec![]));
                    } else {
                        let message = party.recv(0, &label, ot.transfers.correction_bytes(code, n))?;
                        out.push((ot.sender.extend(code, n, message.as_bytes()), ot.sender.offsets(code)));
                    }
                }
                Ok(out)
            });
            let (sender, receiver) = (results.pop().unwrap().unwrap(), results.pop().unwrap().unwrap());
            let mut seen = std::collections::HashSet::new();
            for (i, n) in sizes.into_iter().enumerate() {
                let (q, offsets) = &sender[i];
                let distinct: std::collections::HashSet<_> = offsets.iter().collect();
                assert_eq!(distinct.len(), code.messages());
                for (j, c) in choose(n).into_iter().enumerate() {
                    assert_eq!(receiver[i].0[j], q[j] ^ offsets[c as usize], "k {k} b {b} transfer {j}");
                    assert!(seen.insert(q[j]), "a block came twice");
                }
            }
        }
    }
}

#[test]
fn random_choices_are_uniform_and_agree() {
    let n = 9001;
    for group in [0, 4] {
        let mut results = two_parties(move |party| {
            let mut ot = reserved(party, group, 1, n)?;
            let size = ot.transfers.random_bytes(n);
            if party.me() == 0 {
                let (message, choices, t) = ot.receiver.extend_random(n);
                assert_eq!(message.len(), size);
                party.send(1, "x", Payload::from_bytes(&message))?;
                Ok((choices, t))
            } else {
                let message = party.recv(0, "x", size)?;
                let blocks = ot.sender.extend_random(n, message.as_bytes());
                Ok((vec![], [blocks, ot.sender.offsets(Code::new(1))].concat()))
            }
        });
        let (sender, (choices, t)) = (results.pop().unwrap().unwrap().1, results.pop().unwrap().unwrap());
        for j in 0..n {
            let delta = if bits::get(&choices, j) == 1 { sender[n + 1] } else { 0 };
            assert_eq!(t[j], sender[j] ^ delta);
        }
        let ones = choices.iter().map(|w| w.count_ones()).sum::<u32>();
        assert!((f64::from(ones) - 4500.5).abs() < 5.0 * 47.5, "{ones} ones");
        assert_eq!(choices.len(), bits::words(n));
        assert_eq!(choices[choices.len() - 1] >> (n % 64), 0);
    }
}

#[test]
fn corrections_are_uniform_whatever_the_choices_are() {
    for (constant, group) in [(0u64, 4), (15, 4), (0, 0), (15, 0)] {
        let bytes = two_parties(move |party| {
            let ot = Ots::set_up(party, group)?;
            let mut b = Sirnn::new(party.clone(), ot);
            b.reserve(4 * 4096, 4 * 4096)?;
            let code = Code::new(4);
            Ok(b.ot.receiver.extend(code, &planes(code, &[constant; 4096]), 4096).0)
        });
        for bytes in bytes {
            chi_square_is_plausible(&bytes.unwrap());
        }
    }
}

#[test]
fn setting_up_costs_what_it_says() {
    for k in [0, 1, 4, 8] {
        let costs = two_parties(move |party| {
            party.enter(Phase::Offline, 0);
            Ots::set_up(party, k)?;
            Ok((party.meter().total(Phase::Offline, 2)[1 - party.me()], party.rounds()))
        });
        for cost in costs {
            assert_eq!(cost.unwrap(), (setup_bytes(k) as u64, SETUP_ROUNDS));
        }
    }
}

#[test]
fn bytes_that_are_no_points_end_the_set_up() {
    let mut results = two_parties(|party| {
        if party.me() == 0 {
            let n = softspoken::groups(4) * 4;
            party.send(
                1,
                "base",
                Payload::from_bytes(&vec![0xff; base::receiver_bytes(n) + base::SENDER_BYTES]),
            )?;
            party.recv(1, "base", base::receiver_bytes(n) + base::SENDER_BYTES).map(|_| ())
        } else {
            Ots::set_up(party, 4).map(|_| ())
        }
    });
    let error = results.pop().unwrap().unwrap_err();
    assert!(error.to_string().contains("party 0 sent bytes that are no group elements"), "{error}");
}

#[test]
fn messages_of_another_size_end_the_set_up() {
    let mut results = two_parties(|party| {
        if party.me() == 0 {
            party.send(1, "base", Payload::from_bytes(&[1; 100]))
        } else {
            Ots::set_up(party, 4).map(|_| ())
        }
    });
    assert!(matches!(results.pop().unwrap(), Err(Error::Size { from: 0, got: 100, .. })));
}

#[test]
fn unfit_parameters_are_refused() {
    for result in two_parties(|party| Ots::set_up(party, 3).map(|_| ())) {
        assert!(result.unwrap_err().to_string().contains("k is 1, 2, 4 or 8"));
    }
    for result in two_parties(|party| {
        let ot = Ots::set_up(party, 0)?;
        Sirnn::new(party.clone(), ot).with_threads(2).map(|_| ())
    }) {
        assert!(result.unwrap_err().to_string().contains("take one thread"));
    }
}

/// What is said to be there is there, and never the base of the next iteration.
#[test]
fn a_stock_is_filled_up_in_few_steps() {
    use stock::{BASE, N, Stock};
    for needed in [1, N - BASE, N - BASE + 1, 20 * N, 1000 * N] {
        let mut stock = Stock::default();
        assert_eq!(stock.lacking(0), None);
        let (mut steps, mut iterations) = (0, 0);
        while let Some(refill) = stock.lacking(needed) {
            assert_eq!(refill.first, steps == 0);
            assert!(refill.iterations > 0);
            stock.fill(refill);
            (steps, iterations) = (steps + 1, iterations + refill.iterations);
        }
        assert_eq!(iterations, needed.div_ceil(N - BASE));
        assert!(steps <= 1 + (iterations as f64).log(13.0).ceil() as usize, "{steps} steps for {iterations}");
        stock.take(needed);
        // The next iteration has its base.
        let next = stock.lacking(N).expect("not that many are left");
        assert!(!next.first);
    }
}

/// A peer can send what it likes: blocks are wrong then, and nothing else happens.
#[test]
fn messages_of_another_size_end_a_refill() {
    let mut results = two_parties(|party| {
        let ot = Ots::set_up(party, 0)?;
        if party.me() == 0 {
            return party.send(1, "0", Payload::from_bytes(&[1; 100]));
        }
        Sirnn::new(party.clone(), ot).reserve(0, 10)
    });
    assert!(matches!(results.pop().unwrap(), Err(Error::Size { from: 0, got: 100, .. })));
}
