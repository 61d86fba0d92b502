//! Whether values keep to bounds, under every protocol that computes in fixed point: at the bounds
//! themselves, and for numbers that have left the ring and come back.

use crate::common::{Rng, mask, run_locally, signed};
use megrez_engine::local::LocalOptions;
use megrez_plan::{Kind, Plan, Value};
use megrez_protocols::registry::{Numbers, PROTOCOLS};
use std::collections::HashMap;

/// Whether the sums of squares are below 2^`below`, in words and modulo 2^ℓ.
fn keeps(ring: u32, values: &[(Vec<u64>, u32)]) -> bool {
    values.iter().all(|(words, below)| {
        let sum = words.iter().fold(0u64, |sum, &x| sum.wrapping_add(x.wrapping_mul(x)));
        (0..1i64 << below).contains(&signed(sum, ring))
    })
}

#[test]
fn one_bit_says_whether_all_sums_of_squares_are_below_their_bounds() {
    let (frac, of_first, of_second) = ([4, 7], 6, 3);
    for ring in [32, 40, 48, 64] {
        let mut rng = Rng(u64::from(ring));
        let mut wild = |n: usize| (0..n).map(|_| rng.next() & mask(ring)).collect::<Vec<u64>>();
        let minus = |x: u64| x.wrapping_neg() & mask(ring);
        let (small, none) = (vec![3, minus(5), 0, 1, 2], vec![0; 2]);
        // 2^(6+8) is 128², 2^(3+14) = 2·256².
        let mut cases = vec![
            (small.clone(), none.clone()),
            (vec![127, 15, 5, 2, 1], vec![minus(256), 255]),
            (vec![128, 0, 0, 0, 0], none.clone()),
            (vec![127, 15, 5, 2, 0], none.clone()),
            (small.clone(), vec![256, 256]),
            (small.clone(), vec![minus(1 << (ring / 2)), 0]),
            (vec![1 << (ring / 2 - 1), 1 << (ring / 2 - 1), 0, 0, 0], none),
        ];
        cases.extend((0..3).map(|_| (wild(5), wild(2))));
        cases.extend((0..3).map(|_| (small.clone(), wild(2))));
        let value = |n: usize, frac| Value { shape: [n].into(), kind: Kind::Ring { frac } };
        let (first, second) = (value(5, frac[0]), value(2, frac[1]));
        let bounded = [("first", &first, of_first), ("second", &second, of_second)];
        let mut plan = Plan::within_bounds(ring, &bounded, "owner").unwrap();
        plan.inputs.iter_mut().for_each(|input| input.owner = "owner".into());
        let words = [of_first + 2 * frac[0], of_second + 2 * frac[1]];
        let mut seen = [0; 2];
        for (a, b) in &cases {
            let kept = keeps(ring, &[(a.clone(), words[0]), (b.clone(), words[1])]);
            seen[usize::from(kept)] += 1;
            let inputs = HashMap::from([("first".to_owned(), a.clone()), ("second".to_owned(), b.clone())]);
            for protocol in PROTOCOLS.iter().filter(|p| p.numbers == Numbers::Fixed) {
                if !protocol.rings.contains(&ring) || protocol.name == "bicoptor" {
                    continue;
                }
                let run = run_locally(protocol.name, &plan, &inputs, &LocalOptions::default()).unwrap();
                assert_eq!(run.outputs[0][0], [u64::from(kept)], "{} on {ring}: {a:?}, {b:?}", protocol.name);
            }
        }
        assert!(seen[0] >= 4 && seen[1] >= 3, "{seen:?}");
    }
}
