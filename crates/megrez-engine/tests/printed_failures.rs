//! The protocols as their papers print them, in plain code, and what goes wrong. Each test also
//! shows that the corrected form, by the same code, does not.

use crate::common::list::{Protocol, entry};
use crate::common::{Rng, mask, run_locally, signed};
use megrez_engine::local::LocalOptions;
use megrez_plan::{Op, Plan, SignBit};
use std::collections::HashMap;

/// A pair of list entries up to a common factor: what multiplying both by the same w leaves
/// unchanged.
fn ratio(p: u64, a: u64, b: u64) -> (u64, u64) {
    let inverse = |x: u64| (1..p).find(|i| i * x % p == 1).expect("p is prime");
    match (a, b) {
        (_, 1..) => (a * inverse(b) % p, 1),
        (1.., 0) => (1, 0),
        (0, 0) => (0, 0),
    }
}

/// The dealer's attack on lists without zero-shares: it made the shares of ρ, so it knows every
/// entry up to the bits of m̂ and the common bit sgn(m) ⊕ Δ. Bit by bit it keeps the guesses whose
/// ratios stand in the list.
struct Attack {
    protocol: Protocol,
    rho: [Vec<u64>; 2],
    left: HashMap<(u64, u64), usize>,
    found: Vec<u64>,
    budget: usize,
}

impl Attack {
    fn candidates(protocol: Protocol, run: &crate::common::list::Run) -> Vec<u64> {
        let mut left = HashMap::new();
        for (&a, &b) in run.lists[0].iter().zip(&run.lists[1]) {
            *left.entry(ratio(protocol.p, a, b)).or_default() += 1;
        }
        let mut attack = Attack { protocol, rho: run.rho.clone(), left, found: vec![], budget: 1 << 20 };
        (0..2).for_each(|common| attack.extend(common, 0, 0, [0, 0]));
        attack.found.sort_unstable();
        attack.found.dedup();
        attack.found
    }

    fn extend(&mut self, common: u64, i: u32, prefix: u64, sums: [u64; 2]) {
        let Protocol { ring, p, .. } = self.protocol;
        if i == ring {
            self.found.push(prefix);
            return;
        }
        let pad = u64::from(self.protocol.printed_rho);
        let guesses = if i == ring - 1 { pad..pad + 1 } else { 0..2 };
        for bit in guesses {
            if self.budget == 0 {
                return;
            }
            self.budget -= 1;
            let share = |j: usize| entry(p, j as u64, sums[j], bit, self.rho[j][i as usize], common ^ bit);
            let [(a, s0), (b, s1)] = [share(0), share(1)];
            let point = ratio(p, a, b);
            if self.left.get(&point).is_some_and(|&n| n > 0) {
                *self.left.get_mut(&point).unwrap() -= 1;
                let prefix = if i == ring - 1 { prefix } else { prefix << 1 | bit };
                self.extend(common, i + 1, prefix, [(sums[0] + s0) % p, (sums[1] + s1) % p]);
                *self.left.get_mut(&point).unwrap() += 1;
            }
        }
    }
}

#[test]
fn without_zero_shares_the_dealer_recovers_the_masked_value() {
    let mut rng = Rng(1);
    for p in [67, 127] {
        let printed = Protocol::printed(64, p);
        let with_zero_shares = Protocol { zero_shares: true, ..printed };
        let (mut alone, mut at_all) = (0, 0);
        for _ in 0..20 {
            let (x, r) = (rng.next(), rng.next());
            let truth = x.wrapping_add(r) & mask(63);
            let found = Attack::candidates(printed, &printed.run(x, r, &mut rng));
            assert!(found.contains(&truth), "p = {p}: the attack misses the truth");
            alone += u32::from(found == [truth]);
            let run = with_zero_shares.run(x, r, &mut rng);
            at_all += u32::from(Attack::candidates(with_zero_shares, &run).contains(&truth));
        }
        // All 63 bits of m̂, hence of x: the dealer knows r.
        assert!(alone >= 17, "p = {p}: all bits in {alone} of 20 runs");
        assert_eq!(at_all, 0, "p = {p}: zero-shares stop the attack");
    }
}

#[test]
fn a_zero_mask_gives_the_wrong_sign() {
    let mut rng = Rng(2);
    let errors = |protocol: Protocol, rng: &mut Rng| -> Vec<(u64, u64)> {
        let pairs = (0..256).flat_map(|x| (0..256).map(move |r| (x, r)));
        pairs.filter(|&(x, r)| protocol.run(x, r, rng).sign != x >> 7).collect()
    };
    let wrong = errors(Protocol::printed(8, 13), &mut rng);
    // Every x, whenever r̂ = 0: two masks of 256, a rate of 2^-(ℓ−1).
    assert_eq!(wrong.len(), 2 * 256);
    assert!(wrong.iter().all(|(_, r)| r & 127 == 0));
    assert!(errors(Protocol::corrected(8, 11), &mut rng).is_empty());
}

#[test]
fn the_flip_in_both_shares_is_wrong() {
    // The arithmetic output: [γ]_j = Δ + (1 − 2Δ)[r']_j + [r_y]_j, m' = b − r', m_y = (1 − 2Δ)m' +
    // γ, y = m_y − r_y.
    let mut rng = Rng(3);
    let output = |flip: i64, sign: i64, in_both: bool, rng: &mut Rng| {
        let mut draw = || [rng.below(256) as i64, rng.below(256) as i64];
        let (r, ry) = (draw(), draw());
        let epsilon = 1 - 2 * flip;
        let gamma: i64 =
            (0..2).map(|j| if j == 0 || in_both { flip } else { 0 } + epsilon * r[j] + ry[j]).sum();
        let from_dealer = (sign ^ flip) - (r[0] + r[1]);
        (epsilon * from_dealer + gamma - (ry[0] + ry[1])).rem_euclid(256)
    };
    for sign in 0..2 {
        for _ in 0..100 {
            assert_eq!(output(0, sign, true, &mut rng), sign);
            assert_eq!(output(1, sign, true, &mut rng), sign + 1, "printed: wrong whenever the workers flip");
            assert_eq!(output(0, sign, false, &mut rng), sign);
            assert_eq!(output(1, sign, false, &mut rng), sign);
        }
    }
}

#[test]
fn the_printed_maximum_is_the_minimum() {
    let pairs = || (-64..64).flat_map(|x: i64| (-64..64).map(move |y: i64| (x, y)));
    let sign = |x: i64| i64::from(x < 0);
    assert!(pairs().all(|(x, y)| sign(y - x) * (y - x) + x == x.min(y)));

    // max(x, y) = y + [x ≥ y]·(x − y), on shares.
    let mut plan = Plan::new(8);
    let n = 128 * 128;
    let [x, y] = ["x", "y"].map(|name| plan.input(name, "owner", [n].into(), 0));
    let combine = |a, b| Op::Combine { coefficients: vec![a, b], constant: 0 };
    let difference = plan.step("difference", combine(1, -1), &[x, y]).unwrap();
    let bit = plan.step("compare", Op::NonNegative(SignBit::FULL), &[difference]).unwrap();
    let part = plan.step("select", Op::SELECT, &[bit, difference]).unwrap();
    let max = plan.step("max", combine(1, 1), &[y, part]).unwrap();
    plan.output("max", "owner", max);
    let words = |f: fn((i64, i64)) -> i64| pairs().map(|pair| f(pair) as u64 & 255).collect::<Vec<u64>>();
    let inputs = HashMap::from([("x".to_string(), words(|p| p.0)), ("y".to_string(), words(|p| p.1))]);
    let got = run_locally("mizar", &plan, &inputs, &LocalOptions::default()).unwrap().outputs.remove(0);
    assert_eq!(got[0], words(|(x, y)| x.max(y)));
}

/// MIZAR, Fig. 10: m and r are shifted separately.
fn printed_truncation(m: u64, r: u64, f: u32, ring: u32) -> u64 {
    (m >> f).wrapping_sub(r >> f) & mask(ring)
}

#[test]
fn the_printed_truncation_is_wrong_by_a_lot_as_often_as_the_value_is_large() {
    // Exhaustively at ℓ = 8: the error is 2^(ℓ−f) up to sign for exactly |x| of the 256 masks.
    for f in 1..6 {
        for x in -128i64..128 {
            let mut large = 0;
            for r in 0..256u64 {
                let m = (x as u64).wrapping_add(r) & 255;
                let error = (printed_truncation(m, r, f, 8) as i64 - (x >> f)).rem_euclid(256);
                let size = 256 >> f;
                assert!(
                    [0, 1, size, size + 1, 256 - size, 257 - size].contains(&error),
                    "{x} {r} {f}: {error}"
                );
                large += u64::from(error > 1);
            }
            assert_eq!(large, x.unsigned_abs(), "f = {f}, x = {x}");
        }
    }
    // The product of 1.0 by 1.0 with 13 fraction bits on 32, or 26 on 64: one in 64.
    let mut rng = Rng(4);
    for (ring, f) in [(32, 13), (64, 26)] {
        let (x, trials) = (1u64 << (2 * f), 1 << 20);
        let large = (0..trials)
            .filter(|_| {
                let r = rng.next() & mask(ring);
                let y = printed_truncation(x.wrapping_add(r) & mask(ring), r, f, ring);
                signed(y, ring) - (1 << f) > 1 || signed(y, ring) < 1 << f
            })
            .count() as u64;
        let p = (x as f64) / 2f64.powi(ring as i32);
        assert!(crate::common::stats::binomial(large, trials, p) < 6.5, "{large} of {trials}, expected {p}");
    }
}
