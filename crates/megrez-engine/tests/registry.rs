//! What protocols say of themselves, against what their suites have formulas for.

use megrez_device::AnyDevice;
use megrez_engine::local::suite;
use megrez_plan::{Gives, Kind, List, Lookup, Op, SignBit, Value, Winner};
use megrez_protocols::registry::{PROTOCOLS, Security};
use megrez_protocols::{AnySuite, Call};
use megrez_session::Phase;

/// What a suite says of itself, by what it has formulas for.
fn capabilities(suite: &dyn AnySuite<AnyDevice>) -> (usize, [bool; 6], [bool; 2], usize, bool) {
    let value = |kind| Value { shape: [1].into(), kind };
    let (ring, sum, bit) =
        (value(Kind::Ring { frac: 0 }), value(Kind::Additive { frac: 0 }), value(Kind::Bit));
    let has =
        |op: Op, inputs: &[&Value], output: &Value| suite.cost(Call { op: &op, inputs, output }).is_ok();
    let sign = SignBit { list: List::Bits, cut: 0, bits: Some(8) };
    let maximum = has(Op::Maximum(sign), &[&ring; 2], &ring);
    let sums = has(Op::Additive(Box::new(Op::Mul)), &[&ring; 2], &sum);
    let reshares = has(Op::Reshare, &[&sum], &ring);
    let fine = value(Kind::Ring { frac: 1 });
    let selects = has(Op::Select { truncate: 1 }, &[&bit, &fine], &ring);
    let summed = Op::SelectSum { groups: vec![1] };
    assert_eq!(has(summed, &[&bit, &ring], &ring), selects, "whoever truncates adds up");
    let multiplied = Op::MulTruncated { bits: vec![1, 0] };
    let multiplies = has(multiplied, &[&fine, &ring], &ring);
    let matrix = Value { shape: [1; 4].into(), kind: Kind::Bit };
    let matrices = has(Op::BitMatMul, &[&matrix; 2], &matrix);
    assert_eq!(has(Op::LowBit, &[&ring], &bit), matrices, "they are of lowest bits");
    let polynomial = Op::BitPolynomials { sums: vec![vec![vec![0]]] };
    assert_eq!(has(polynomial, &[&bit], &bit), matrices, "and come with polynomials");
    let table = Lookup { cut: 0, low: 1, degree: 0, pieces: vec![0; 2], frac: 0, beyond: None };
    let looked_up = Op::Lookup(table);
    let offloaded = Op::Offloaded(Box::new(looked_up.clone()));
    let lookup = [looked_up, offloaded].map(|op| has(op, &[&ring], &ring));
    let two = Value { shape: [2].into(), kind: Kind::Ring { frac: 0 } };
    let winner = Op::Winner(Winner { cut: 0, bits: 2, gives: Gives::OneHot });
    let offloaded = Op::Offloaded(Box::new(winner.clone()));
    assert_eq!([winner, offloaded].map(|op| has(op, &[&two], &two)), lookup, "as tables are");
    let factors = (2..=4).rev().find(|&n| has(Op::And, &vec![&bit; n], &bit)).unwrap_or(0);
    let truncate = Op::Truncate { bits: 1 };
    let own: [(Op, &[&Value], &Value); 3] = [
        (Op::Mul, &[&ring; 2], &ring),
        (Op::NonNegative(SignBit::FULL), &[&ring], &bit),
        (truncate, &[&ring], &ring),
    ];
    let offline = own.iter().any(|(op, inputs, output)| {
        let cost = suite.cost(Call { op, inputs, output }).unwrap_or_default();
        cost.transfers.iter().any(|t| t.phase == Phase::Offline)
    });
    (suite.parties(), [maximum, sums, selects, multiplies, reshares, matrices], lookup, factors, offline)
}

#[test]
fn protocols_can_do_what_they_say() {
    for p in PROTOCOLS {
        assert_eq!(p.insecure, p.level == Security::None, "{}", p.name);
        for &ring in p.rings {
            let (parties, forms, lookup, factors, offline) =
                capabilities(&*suite(p.name, ring).expect("registered on this ring"));
            assert_eq!((parties, offline), (p.parties, p.offline), "{}", p.name);
            // The plaintext oracle has everything; what it is asked for is what its plans are
            // to look like.
            if !p.insecure {
                let sums = p.deferred_resharing || p.reshares;
                let said = [
                    p.native_maximum,
                    sums,
                    p.selects_truncated,
                    p.multiplies_truncated,
                    p.reshares,
                    p.multiplies_bits,
                ];
                assert_eq!(forms, said, "{}", p.name);
                assert_eq!(lookup, [p.lookup, p.offload], "{}", p.name);
            }
            assert_eq!((lookup[0], factors), (p.lookup, p.factors), "{}", p.name);
        }
    }
}
