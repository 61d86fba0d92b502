//! Tapes in the clear.

use super::*;
use crate::any::in_the_clear;
use crate::format::Plain;

fn run(tape: &[(Name, Entry)], numbers: &[f32]) -> Machine {
    let mut shapes: HashMap<Name, Shape> = HashMap::new();
    for (name, entry) in tape {
        let shape = shape(entry, |x| shapes.get(&x).copied()).unwrap();
        shapes.insert(*name, shape);
    }
    let mut machine = Machine::default();
    let mut input = |name, lanes| {
        assert_eq!(lanes, numbers.len());
        let shifted: Vec<f32> = numbers.iter().map(|x| x + name as f32).collect();
        Plain::from_f32(&shifted).secret()
    };
    in_the_clear(|b| {
        machine.run(b, tape, &mut input)?;
        for (name, _) in tape {
            let lanes = machine.value(*name).lanes(b);
            assert_eq!(lanes, shapes[name].lanes, "value {name} is as long as was said");
        }
        Ok(())
    });
    machine
}

fn apply(op: &str, of: &[Name]) -> Entry {
    Entry::Apply { op: op.into(), of: of.to_vec() }
}

#[test]
fn entries_do_what_they_say() {
    let tape = [
        (0, Entry::Input { owner: 0, lanes: 4 }),
        (1, Entry::Input { owner: 1, lanes: 4 }),
        (2, Entry::Public([2.0, -1.0, 0.5, 8.0].map(f32::to_bits).to_vec())),
        (3, apply("mul", &[0, 2])),
        (4, apply("mul", &[1, 2])),
        (5, apply("lt", &[3, 4])),
        (6, apply("neg", &[4])),
        (7, Entry::Choose { bit: 5, yes: 3, no: 6 }),
        (8, Entry::Gather { of: 7, lanes: vec![3, 3, 0] }),
        (9, Entry::Concat(vec![7, 8, 7])),
        (10, Entry::Sum { of: 7, lanes: 2 }),
        (11, Entry::Not(5)),
        (12, apply("eq", &[7, 6])),
        (13, Entry::And(11, 12)),
        (14, apply("abs", &[6])),
        (15, Entry::Xor(5, 13)),
        (16, Entry::Known(vec![true, false])),
    ];
    let machine = run(&tape, &[1.0, 2.0, 3.0, 4.0]);
    let floats = |name| machine.bits(name).into_iter().map(f32::from_bits).collect::<Vec<_>>();
    assert_eq!(floats(3), [2.0, -2.0, 1.5, 32.0]);
    assert_eq!(floats(4), [4.0, -3.0, 2.0, 40.0]);
    assert_eq!(machine.bits(5), [1, 0, 1, 1]);
    assert_eq!(floats(7), [2.0, 3.0, 1.5, 32.0]);
    assert_eq!(floats(8), [32.0, 32.0, 2.0]);
    assert_eq!(floats(9), [2.0, 3.0, 1.5, 32.0, 32.0, 32.0, 2.0, 2.0, 3.0, 1.5, 32.0]);
    assert_eq!(floats(10), [3.5, 35.0]);
    assert_eq!(machine.bits(13), [0, 1, 0, 0]);
    assert_eq!(machine.bits(15), [1, 1, 1, 1]);
    assert_eq!(machine.bits(16), [1, 0]);
    assert_eq!(floats(14), [4.0, 3.0, 2.0, 40.0]);
}

#[test]
fn what_can_go_together_does() {
    let tape = [
        (0, Entry::Input { owner: 0, lanes: 1 }),
        (1, apply("exp", &[0])),
        (2, apply("mul", &[0, 0])),
        (3, apply("neg", &[2])),
        (4, apply("mul", &[3, 1])),
        (5, apply("mul", &[0, 0])),
    ];
    assert_eq!(levels_of(&tape).collect::<Vec<_>>(), [0, 1, 1, 1, 2, 1]);
}

#[test]
fn what_makes_no_sense_is_refused() {
    let of = |name: Name| match name {
        0 => Some(Shape { truth: false, lanes: 6 }),
        1 => Some(Shape { truth: true, lanes: 6 }),
        2 => Some(Shape { truth: false, lanes: 0 }),
        3 => Some(Shape { truth: false, lanes: 1 }),
        _ => None,
    };
    for entry in [
        apply("mul", &[0]),
        apply("mul", &[0, 1]),
        apply("mul", &[0, 3]),
        apply("mul", &[0, 9]),
        apply("to-fixed", &[0]),
        apply("no", &[0]),
        Entry::And(0, 1),
        Entry::Xor(1, 0),
        Entry::Not(0),
        Entry::Choose { bit: 0, yes: 0, no: 0 },
        Entry::Choose { bit: 1, yes: 0, no: 3 },
        Entry::Gather { of: 0, lanes: vec![6] },
        Entry::Concat(vec![]),
        Entry::Concat(vec![0, 1]),
        Entry::Sum { of: 0, lanes: 4 },
        Entry::Sum { of: 0, lanes: 0 },
        Entry::Sum { of: 2, lanes: 1 },
    ] {
        assert!(shape(&entry, of).is_err(), "{entry:?}");
    }
}

#[test]
fn sums_that_are_rounded_once() {
    let tape = [
        (0, Entry::Input { owner: 0, lanes: 4 }),
        (1, Entry::Public([1.0, 2.0, f32::NAN, f32::INFINITY].map(f32::to_bits).to_vec())),
        (2, Entry::FusedSum { of: 0, lanes: 1 }),
        (3, Entry::FusedSum { of: 0, lanes: 2 }),
        (4, Entry::Dot { of: [0, 0], lanes: 1 }),
        (5, Entry::Dot { of: [0, 1], lanes: 4 }),
        (6, apply("isnan", &[5])),
        (7, apply("isinf", &[5])),
        (8, apply("mul", &[0, 0])),
    ];
    let machine = run(&tape, &[1.0, 2.0, 3.0, -4.0]);
    let floats = |name| machine.bits(name).into_iter().map(f32::from_bits).collect::<Vec<_>>();
    assert_eq!(floats(2), [2.0]);
    assert_eq!(floats(3), [4.0, -2.0]);
    assert_eq!(floats(4), [30.0]);
    assert_eq!((machine.bits(6), machine.bits(7)), (vec![0, 0, 1, 0], vec![0, 0, 0, 1]));
    assert_eq!(floats(8), [1.0, 4.0, 9.0, 16.0]);
    assert_eq!((tape[8].1.key(), apply("mul", &[0, 1]).key()), (Some("square"), Some("mul")));
}

/// What everybody knows stays known on a tape, beside entries of the same kind that are secret.
#[test]
fn known_numbers_stay_known() {
    let tape = [
        (0, Entry::Input { owner: 0, lanes: 2 }),
        (1, Entry::Public([0.5, 3.0].map(f32::to_bits).to_vec())),
        (2, apply("mul", &[0, 1])),
        (3, apply("mul", &[1, 1])),
        (4, apply("add", &[1, 3])),
        (5, apply("mul", &[0, 2])),
    ];
    let mut machine = Machine::default();
    let mut input = |_, _| Plain::from_f32(&[4.0, -8.0]).secret();
    let known = in_the_clear(|b| {
        machine.run(b, &tape, &mut input)?;
        Ok([0, 1, 2, 3, 4, 5].map(|name| machine.value(name).is_known(b)))
    });
    assert_eq!(known, [false, true, false, true, true, false]);
    let floats = |name| machine.value(name).float().plain().to_f32();
    assert_eq!((floats(2), floats(4), floats(5)), (vec![2.0, -24.0], vec![0.75, 12.0], vec![8.0, 192.0]));
}
