//! The protocols kept to compare with: what their papers print and what goes wrong, and what the
//! insecure one leaks.

use crate::common::session::{Transcript, transcript_under, unpack_field};
use crate::common::stats::{self, SIGMAS};
use megrez_device::AnyDevice;
use megrez_plan::{Op, Plan, SignBit};
use megrez_protocols::aegis;
use megrez_ring::Prime;
use megrez_session::Phase::Online;
use std::collections::{BTreeMap, HashMap};

// ---- improved Bicoptor as printed ----

/// Alg. 6 up to step 4 on shares modulo 2^ring: both shares of every v_i in Z_2^λ, after the coin.
fn printed_entries(x: i64, zero: u64, coin: u64, lambda: u32, ring: u32) -> Vec<[u64; 2]> {
    let (whole, low) = ((1u64 << ring) - 1, (1u64 << lambda) - 1);
    let shares = [zero, (x as u64).wrapping_sub(zero)];
    let shares = shares.map(|s| if coin == 1 { s.wrapping_neg() } else { s } & whole);
    let u = |i: u32| {
        let negated = (shares[1].wrapping_neg() & whole) >> i;
        [(shares[0] >> i) & low, negated.wrapping_neg() & low]
    };
    let mut entries: Vec<[u64; 2]> = (0..lambda)
        .map(|i| {
            let (a, b) = (u(i), u(i + 1));
            [(a[0] + b[0]).wrapping_sub(1) & low, (a[1] + b[1]) & low]
        })
        .collect();
    let last = u(lambda);
    entries.push([last[0].wrapping_sub(1) & low, last[1]]);
    entries
}

fn printed_zeros(x: i64, zero: u64, coin: u64, lambda: u32, ring: u32) -> usize {
    let low = (1u64 << lambda) - 1;
    printed_entries(x, zero, coin, lambda, ring).iter().filter(|v| (v[0] + v[1]) & low == 0).count()
}

#[test]
fn bicoptor_as_printed_never_shows_a_zero_for_zero() {
    // The helper sees a zero in half of all lists of any other value: a list without one speaks for
    // x = 0.
    for zero in 0..1 << 14 {
        for coin in 0..2 {
            assert_eq!(printed_zeros(0, zero, coin, 7, 14), 0);
            assert_eq!(printed_zeros(1, zero, coin, 7, 14), usize::from(coin == 0));
        }
    }
}

#[test]
fn bicoptor_as_printed_is_wrong_near_two_thirds_of_its_range() {
    let (mut wrong, mut two) = (vec![], vec![]);
    for x in (-127i64..128).filter(|&x| x != 0) {
        let found: Vec<(usize, bool)> = (0..1 << 14)
            .flat_map(|zero| {
                (0..2).map(move |coin| (printed_zeros(x, zero, coin, 7, 14), (x > 0) ^ (coin == 1)))
            })
            .collect();
        if found.iter().any(|&(zeros, shown)| (zeros > 0) != shown) {
            wrong.push(x);
        }
        if found.iter().any(|&(zeros, _)| zeros > 1) {
            two.push(x);
        }
    }
    assert_eq!((wrong, two), (vec![-85, 85], vec![-86, 86]));
}

#[test]
fn odd_values_are_right_if_worker_0_holds_the_odd_share() {
    // What 2x + 1 gains: it is never 0, and with the 1 added at worker 0 the first truncation is
    // exact.
    for x in (-127i64..128).step_by(2) {
        for zero in (1..1 << 14).step_by(2) {
            for coin in 0..2 {
                assert_eq!(printed_zeros(x, zero, coin, 7, 14), usize::from((x > 0) ^ (coin == 1)), "{x}");
            }
        }
    }
    // An odd value in other shares is as wrong as any: −85 above.
    assert!((0..1 << 14).step_by(2).any(|zero| printed_zeros(-85, zero, 0, 7, 14) > 0));
}

#[test]
fn bicoptor_as_printed_shows_the_helper_more_than_sums() {
    // One multiplier on both shares of an entry leaves their ratio. Exactly, over all sharings of a
    // value at λ = 3.
    let (lambda, ring, p) = (3, 6, 11);
    let inverse = |x: u64| (1..p).find(|i| i * x % p == 1).unwrap();
    let ratios = |x: i64| {
        let mut seen: BTreeMap<(u64, bool), f64> = BTreeMap::new();
        for zero in 0..1 << ring {
            for coin in 0..2 {
                // Alg. 5: a share 0 becomes 2^λ at worker 0; worker 1 subtracts 2^λ.
                let [a, b] = printed_entries(x, zero, coin, lambda, ring)[0];
                let (a, b) = (if a == 0 { 1 << lambda } else { a } % p, (p + b - (1 << lambda) % p) % p);
                let seen = seen.entry(if b == 0 { (0, true) } else { (a * inverse(b) % p, false) });
                *seen.or_default() += 1.0 / f64::from(2 << ring);
            }
        }
        seen
    };
    let distance = variation(&ratios(1), &ratios(5));
    assert!(distance > 0.15, "the ratios of shares tell 1 from 5 by {distance}");
}

fn variation<K: Ord + Clone>(a: &BTreeMap<K, f64>, b: &BTreeMap<K, f64>) -> f64 {
    let keys: std::collections::BTreeSet<K> = a.keys().chain(b.keys()).cloned().collect();
    keys.iter().map(|k| (a.get(k).unwrap_or(&0.0) - b.get(k).unwrap_or(&0.0)).abs()).sum::<f64>() / 2.0
}

// ---- Aegis ----

/// Whose lists.
#[derive(Clone, Copy)]
enum Lists {
    Aegis,
    Concurrent,
}

/// What the dealer sees of a value of three bits, for its mask r: the sums of the entries, in no
/// order, with probabilities.
fn three_bit_view(lists: Lists, x: u64, r: u64) -> BTreeMap<Vec<(u64, u64)>, f64> {
    let p = 5;
    let m = (x + r) & 7;
    let rho = r.wrapping_sub(1) & 3;
    let mut view = BTreeMap::new();
    for flip in 0..2 {
        let common = (m >> 2) ^ flip;
        let mut sum = 0;
        let mut partial: BTreeMap<Vec<(u64, u64)>, f64> = BTreeMap::from([(vec![], 0.5)]);
        for i in 0..3 {
            let (bit, other) = if i == 2 { (0, 1) } else { ((m >> (1 - i)) & 1, (rho >> (1 - i)) & 1) };
            let s = bit ^ other;
            let t = sum + 1 - s;
            sum += s;
            let beta = common ^ bit;
            let mut next = BTreeMap::new();
            for (entries, probability) in partial {
                for (w, second) in (1..p).flat_map(|w| (1..p).map(move |second| (w, second))) {
                    let entry = match lists {
                        Lists::Aegis => ((w * t + beta) % p, second * (w * t + 1) % p),
                        Lists::Concurrent => (w * (t * (1 - beta) + beta) % p, 0),
                    };
                    let mut entries: Vec<_> = entries.clone();
                    entries.push(entry);
                    entries.sort_unstable();
                    *next.entry(entries).or_insert(0.0) += probability / 16.0;
                }
            }
            partial = next;
        }
        for (entries, probability) in partial {
            *view.entry(entries).or_insert(0.0) += probability;
        }
    }
    view
}

#[test]
fn aegis_tells_the_dealer_about_the_value_and_the_concurrent_list_does_not() {
    // On average over the dealer's mask, for the two values that are told apart best.
    let worst = |lists| {
        let pairs = (0..8).flat_map(|x| (0..x).map(move |y| (x, y)));
        let distance = |(x, y)| {
            let views = |r| variation(&three_bit_view(lists, x, r), &three_bit_view(lists, y, r));
            (0..8).map(views).sum::<f64>() / 8.0
        };
        pairs.map(distance).fold(0.0, f64::max)
    };
    let (aegis, concurrent) = (worst(Lists::Aegis), worst(Lists::Concurrent));
    assert!((aegis - 0.5).abs() < 1e-9, "total variation {aegis}");
    assert!(concurrent < 1e-9, "total variation {concurrent}");
}

/// Lists per statistic.
const N: usize = 1 << 17;

fn aegis(secret: u8) -> Transcript {
    let mut plan = Plan::new(8);
    let x = plan.input("x", "owner", [N].into(), 0);
    let z = plan.step("op", Op::NonNegative(SignBit::FULL), &[x]).unwrap();
    plan.output("z", "owner", z);
    let inputs = HashMap::from([("x".to_string(), vec![secret; N])]);
    transcript_under(&aegis::suite::<u8, AnyDevice>(), &plan, &inputs)
}

/// How far more entries have β of one kind than of the other: as the dealer expects it for a guess
/// of x, and as the places show it where u' is 0 (there u is 0 iff β is 1). A table of counts.
fn imbalances(run: &Transcript, guess: u8) -> Vec<u64> {
    let p = Prime::above(8);
    let sums = |name: &str| -> Vec<u64> {
        let [a, b] = [0, 1].map(|j| unpack_field(run.message(Online, j, 2, name), p, N * 8));
        a.iter().zip(&b).map(|(a, b)| u64::from(a + b) % p.p()).collect()
    };
    let (first, second) = (sums("op/list"), sums("op/second-list"));
    let masks = [0, 1].map(|j| run.input_mask(j, 0, N));
    let cells = (0..N).map(|e| {
        let m = guess.wrapping_add(masks[0][e]).wrapping_add(masks[1][e]);
        let expected = (2 * i32::from((m & 127).count_ones() as u8) - 8).unsigned_abs() as usize;
        let shown: i32 = (e * 8..e * 8 + 8)
            .filter(|&at| second[at] == 0)
            .map(|at| if first[at] == 0 { 1 } else { -1 })
            .sum();
        expected * 9 + shown.unsigned_abs() as usize
    });
    stats::count(9 * 9, cells)
}

#[test]
fn the_dealer_of_aegis_tells_a_right_guess_from_a_wrong_one() {
    let (one, other) = (0x00, 0x55);
    let right = [aegis(one), aegis(one)].map(|run| imbalances(&run, one));
    let wrong = imbalances(&aegis(other), one);
    let (same, different) = (stats::same(&right[0], &right[1]), stats::same(&right[0], &wrong));
    assert!(same < SIGMAS, "two runs on one value differ by {same:.1} σ");
    assert!(different > 2.0 * SIGMAS, "the lists hide the value: {different:.1} σ");
}
