//! Comparisons, ReLUs and maxima.

use super::{BICOPTOR, Expected, Table, all, bit, range, relu_of, words, wrap};
use megrez_plan::{Beyond, Gives, List, Lookup, Op, Plan, Relu, ReluForm, SignBit, ValueId, View, Winner};

impl Table {
    pub(super) fn comparisons(&mut self) {
        let sign = |s: &[i64]| words(s.iter().map(|&x| bit(x >= 0)).collect());
        let mut add = |form: &str, ring: u32, elements: usize, list: SignBit, secrets: Vec<Vec<i64>>| {
            let (cut, op) = (list.cut, Op::NonNegative(list.clone()));
            let expect = move |s: &[i64]| -> Vec<Expected> {
                let read = |&x: &i64| match x {
                    x if -(1 << cut) < x && x < 0 => Expected::OneOf { x, words: vec![0, 1] },
                    x => Expected::Word(bit(x >= 0)),
                };
                s.iter().map(read).collect()
            };
            let case = self.add("NonNegative", form, ring, &[elements], secrets, expect, move |p, v, _| {
                Ok(vec![p.step("op", op.clone(), v)?])
            });
            case.sign = list;
        };
        let digits = |widths: &[u32]| SignBit { list: List::Digits(widths.to_vec()), ..SignBit::FULL };
        add("2 bits", 2, 1, SignBit::FULL, all(&range(2), 1));
        add("3 bits", 3, 1, SignBit::FULL, all(&range(3), 1));
        add("4 bits", 4, 1, SignBit::FULL, all(&range(4), 1));
        add("digits 1, 1", 3, 1, digits(&[1, 1]), all(&range(3), 1));
        add("a digit of 2", 3, 1, digits(&[2]), all(&range(3), 1));
        add("digits 2, 1", 4, 1, digits(&[2, 1]), all(&range(4), 1));
        // x ≤ 2^(k+λ−1) − 2^k.
        add("cut by 1", 3, 1, SignBit { cut: 1, ..SignBit::FULL }, all(&[-4, -3, -2, -1, 0, 1, 2], 1));
        let cut = SignBit { cut: 1, bits: Some(2), list: List::Digits(vec![1]) };
        add("a digit, cut by 1, of 4 bits", 4, 1, cut, all(&[-4, -3, -2, -1, 0, 1, 2], 1));
        // One digit: nodes are for the symbolic checker, and for statistics at 8 bits.
        let tree = || SignBit { list: List::Tree, ..SignBit::FULL };
        add("3 bits by a tree", 3, 1, tree(), all(&range(3), 1));
        add("4 bits by a tree", 4, 1, tree(), all(&range(4), 1));
        let cut = SignBit { cut: 1, ..tree() };
        add("by a tree, cut by 1", 3, 1, cut, all(&[-4, -3, -2, -1, 0, 1, 2], 1));
        add("neighbours by a tree", 2, 2, tree(), all(&range(2), 2));
        add("neighbours", 2, 2, SignBit::FULL, all(&range(2), 2));
        add("neighbours by digits", 2, 2, digits(&[1]), all(&range(2), 2));
        self.add(
            "NonNegative",
            "of one value twice",
            2,
            &[1],
            all(&range(2), 1),
            move |s| sign(&[s[0], s[0]]),
            |p, v, _| {
                let op = || Op::NonNegative(SignBit::FULL);
                Ok(vec![p.step("op", op(), v)?, p.step("again", op(), v)?])
            },
        );
        for (ring, thresholds) in [(2, vec![0, 1]), (2, vec![-2, 0, 1]), (3, vec![-1, 2])] {
            let (t, u) = (thresholds.clone(), thresholds.clone());
            let expect = move |s: &[i64]| words(t.iter().map(|t| bit(wrap(s[0] - t, ring) >= 0)).collect());
            let form = format!("{ring} bits, {} thresholds", thresholds.len());
            self.add("CompareMany", form, ring, &[1], all(&range(ring), 1), expect, move |p, v, _| {
                let op = Op::CompareMany { sign: SignBit::FULL, thresholds: u.clone() };
                Ok(vec![p.step("op", op, v)?])
            });
        }
        let expect = |s: &[i64]| words([-1, 2].iter().map(|t| bit(wrap(s[0] - t, 3) >= 0)).collect());
        self.add("CompareMany", "a tree, 2 thresholds", 3, &[1], all(&range(3), 1), expect, |p, v, _| {
            let sign = SignBit { list: List::Tree, ..SignBit::FULL };
            Ok(vec![p.step("op", Op::CompareMany { sign, thresholds: vec![-1, 2] }, v)?])
        });
        let expect = |s: &[i64]| {
            words([0, 1].iter().flat_map(|t| s.iter().map(move |x| bit(wrap(x - t, 2) >= 0))).collect())
        };
        let sign_of = || SignBit { list: List::Digits(vec![1]), ..SignBit::FULL };
        self.add(
            "CompareMany",
            "neighbours, 2 thresholds",
            2,
            &[2],
            all(&range(2), 2),
            expect,
            move |p, v, _| {
                Ok(vec![p.step("op", Op::CompareMany { sign: sign_of(), thresholds: vec![0, 1] }, v)?])
            },
        );
        let expect = |s: &[i64]| words([-3, 1].iter().map(|t| bit(wrap(s[0] - t, 3) >= 0)).collect());
        self.add(
            "CompareMany",
            "a digit of 2, 2 thresholds",
            3,
            &[1],
            all(&range(3), 1),
            expect,
            |p, v, _| {
                let sign = SignBit { list: List::Digits(vec![2]), ..SignBit::FULL };
                Ok(vec![p.step("op", Op::CompareMany { sign, thresholds: vec![-3, 1] }, v)?])
            },
        );
        let narrow = || SignBit { bits: Some(3), ..SignBit::FULL };
        let case = self.add(
            "NonNegative",
            "3 bits of 5",
            5,
            &[1],
            all(&(-4..4).collect::<Vec<_>>(), 1),
            sign,
            move |p, v, _| Ok(vec![p.step("op", Op::NonNegative(narrow()), v)?]),
        );
        (case.only, case.sign) = (Some(BICOPTOR), narrow());
        let relu = |s: &[i64]| words(vec![s[0].max(0)]);
        let case = self.add(
            "Relu",
            "3 bits of 5",
            5,
            &[1],
            all(&(-4..4).collect::<Vec<_>>(), 1),
            relu,
            move |p, v, _| {
                let relu = Relu { sign: narrow(), form: ReluForm::ThreeRounds, truncate: 0 };
                Ok(vec![p.step("op", Op::Relu(relu), v)?])
            },
        );
        (case.only, case.sign) = (Some(BICOPTOR), narrow());
    }

    pub(super) fn relus(&mut self) {
        use ReluForm::*;
        let digit = |widths: &[u32]| SignBit { list: List::Digits(widths.to_vec()), ..SignBit::FULL };
        for form in [ThreeRounds, TwoRounds, TwoRoundsFresh, Table, Key, DigitTables] {
            let cut = SignBit { cut: 1, bits: Some(2), list: List::Digits(vec![1]) };
            let few = SignBit { bits: Some(3), ..SignBit::FULL };
            let by_lists = [
                ("3 bits", 3, 1, 0, SignBit::FULL),
                ("digits 1, 1", 3, 1, 0, digit(&[1, 1])),
                ("a digit of 2", 3, 1, 0, digit(&[2])),
                ("neighbours", 3, 2, 0, digit(&[2])),
                ("truncated by 1", 4, 1, 1, digit(&[2, 1])),
                ("truncated by 1, cut by 1", 4, 1, 1, cut.clone()),
            ];
            // Keys and tables of digits compare the same whatever the list; the table that stands
            // for a key here has room for few words.
            let by_keys = [
                ("3 bits", 3, 1, 0, SignBit::FULL),
                ("neighbours", 3, 2, 0, SignBit::FULL),
                ("truncated by 1", 4, 1, 1, few),
                ("truncated by 1, cut by 1", 4, 1, 1, cut),
            ];
            let forms: &[_] = if matches!(form, Key | DigitTables) { &by_keys } else { &by_lists };
            for (name, ring, elements, truncate, sign) in forms.iter().cloned() {
                let values = if truncate > 0 { (-4..4).collect() } else { range(ring) };
                // After a cut, comparisons are of few bits.
                let values: Vec<i64> =
                    values.into_iter().filter(|x| sign.cut == 0 || (-4..=2).contains(x)).collect();
                for dealt in [false, true] {
                    let relu = Op::Relu(Relu { sign: sign.clone(), form, truncate });
                    let op = if dealt { Op::Offloaded(Box::new(relu)) } else { relu };
                    let expect = move |s: &[i64]| s.iter().map(|&x| relu_of(x, truncate)).collect();
                    let label = if dealt { "Offloaded" } else { "Relu" };
                    let case = self.add(
                        label,
                        format!("{form:?}, {name}"),
                        ring,
                        &[elements],
                        all(&values, elements),
                        expect,
                        move |p, v, _| Ok(vec![p.step("op", op.clone(), v)?]),
                    );
                    case.frac = truncate;
                    case.sign = sign.clone();
                    // Forms are of lists of the dealer's.
                    let dealers: &[&str] = &["mizar", "concurrent", "aegis"];
                    if !dealt && form != ThreeRounds {
                        case.only = Some(dealers);
                    }
                }
            }
        }
        // Each reader is dealt thresholds and masks of its own.
        let relu = Op::Relu(Relu { sign: SignBit::FULL, form: DigitTables, truncate: 0 });
        let expect = |s: &[i64]| vec![relu_of(s[0], 0), relu_of(s[0], 0)];
        let form = "DigitTables, one value read twice";
        let case = self.add("Relu", form, 3, &[1], all(&range(3), 1), expect, move |p, v, _| {
            Ok(vec![p.step("op", relu.clone(), v)?, p.step("again", relu.clone(), v)?])
        });
        case.only = Some(&["mizar", "concurrent", "aegis"]);
    }

    pub(super) fn maxima(&mut self) {
        let largest = |s: &[i64]| words(vec![*s.iter().max().expect("some")]);
        for (ring, values, n) in [(2, vec![-1, 0], 2), (3, vec![-2, -1, 0, 1], 2), (2, vec![-1, 0], 3)] {
            for dealt in [false, true] {
                let maximum = Op::Maximum(SignBit::FULL);
                let op = if dealt { Op::Offloaded(Box::new(maximum)) } else { maximum };
                let label = if dealt { "Offloaded" } else { "Maximum" };
                let form = format!("the largest of {n} of {ring} bits");
                self.add(label, form, ring, &[1; 4][..n], all(&values, n), largest, move |p, v, _| {
                    Ok(vec![p.step("op", op.clone(), v)?])
                });
            }
        }
    }

    pub(super) fn winners(&mut self) {
        // Ring, cut, λ, values, how many of them.
        let forms: [(&str, u32, [u32; 2], Vec<i64>, usize); 4] = [
            ("2 of 2 bits", 2, [0, 2], vec![-1, 0], 2),
            ("2 of 3 bits", 3, [0, 3], vec![-2, -1, 0, 1], 2),
            ("3 of 2 bits", 2, [0, 2], vec![-1, 0], 3),
            ("2 of 4 bits, cut by 1", 4, [1, 3], vec![-2, -1, 0, 1, 2], 2),
        ];
        for (form, ring, [cut, bits], values, k) in forms {
            for (gives, dealt) in
                [Gives::Value, Gives::OneHot].into_iter().flat_map(|g| [(g, false), (g, true)])
            {
                let winner = Op::Winner(Winner { cut, bits, gives });
                let op = if dealt { Op::Offloaded(Box::new(winner)) } else { winner };
                let label = if dealt { "Offloaded" } else { "Winner" };
                let expect = move |s: &[i64]| -> Vec<Expected> {
                    let largest = *s.iter().max().expect("some");
                    let all = s.iter().fold(0, |all, x| all * 16 + x + 8);
                    let may: Vec<usize> = match cut {
                        0 => vec![Winner::exact(s)],
                        _ => (0..k).filter(|&i| largest - s[i] < 2 << cut).collect(),
                    };
                    let of = |words: Vec<i64>| match words[..] {
                        [word] => Expected::Word(word),
                        _ => Expected::OneOf { x: all, words },
                    };
                    let bit_of = |i: usize| match (may.contains(&i), may.len()) {
                        (false, _) => Expected::Word(0),
                        (true, 1) => Expected::Word(1),
                        (true, _) => Expected::OneOf { x: all, words: vec![0, 1] },
                    };
                    match gives {
                        Gives::Value => vec![of(may.iter().map(|&i| s[i]).collect())],
                        Gives::OneHot => (0..k).map(bit_of).collect(),
                    }
                };
                let form = format!("{gives:?}, {form}");
                self.add(label, form, ring, &[k], all(&values, k), expect, move |p, v, lanes| {
                    let z = p.step("op", op.clone(), v)?;
                    match gives {
                        Gives::Value => {
                            Ok(vec![p.step("row", Op::View(View::whole([1, lanes].into())), &[z])?])
                        }
                        Gives::OneHot => Ok(vec![z]),
                    }
                });
            }
        }
        let first = |s: &[i64]| words(vec![1, 0, s[0]]);
        self.add(
            "Winner",
            "of one value with itself, twice",
            2,
            &[1],
            all(&range(2), 1),
            first,
            |p, v, lanes| {
                let both = p.step("both", Op::Gather { axis: 0, indices: vec![0, 0] }, v)?;
                let winner = |gives| Op::Winner(Winner { cut: 0, bits: 2, gives });
                let place = p.step("op", winner(Gives::OneHot), &[both])?;
                let value = p.step("again", winner(Gives::Value), &[both])?;
                Ok(vec![place, p.step("row", Op::View(View::whole([1, lanes].into())), &[value])?])
            },
        );
    }

    pub(super) fn lookups(&mut self) {
        // Ring, cut, low, degree, coefficients, elements.
        let forms: [(&str, u32, [u32; 3], &[i64], usize); 6] = [
            ("2 segments of degree 1", 3, [0, 2, 1], &[1, 2, -3, 3], 1),
            ("4 segments of degree 0", 3, [0, 1, 0], &[3, -1, 2, -4], 1),
            ("2 segments of degree 2", 3, [0, 1, 2], &[1, 2, 3, -2, 1, -3], 1),
            ("2 segments, cut by 1", 3, [1, 1, 1], &[1, 2, -3, 3], 1),
            ("2 segments of 4 bits", 4, [1, 2, 1], &[5, -3, -7, 2], 1),
            ("neighbours", 2, [0, 1, 0], &[1, -2], 2),
        ];
        for (form, ring, [cut, low, degree], pieces, elements) in forms {
            let f = Lookup { cut, low, degree, pieces: pieces.to_vec(), frac: 0, beyond: None };
            for dealt in [false, true] {
                let (lookup, of) = (Op::Lookup(f.clone()), f.clone());
                let op = if dealt { Op::Offloaded(Box::new(lookup)) } else { lookup };
                let label = if dealt { "Offloaded" } else { "Lookup" };
                let expect = move |s: &[i64]| -> Vec<Expected> {
                    let may = |&x: &i64| of.results(x as u64).into_iter().map(|z| z as i64).collect();
                    s.iter().map(|x| Expected::OneOf { x: *x, words: may(x) }).collect()
                };
                let form = if dealt { format!("a table, {form}") } else { form.into() };
                let secrets = all(&range(ring), elements);
                let case = self.add(label, form, ring, &[elements], secrets, expect, move |p, v, _| {
                    Ok(vec![p.step("op", op.clone(), v)?])
                });
                case.frac = cut;
            }
        }
        // Left as sums: added up, and with what it is of beside.
        let f = Lookup { cut: 0, low: 1, degree: 1, pieces: vec![1, -2, -1, 1], frac: 0, beyond: None };
        let left = |p: &mut Plan, f: &Lookup, v: &[ValueId]| {
            p.step("function", Op::Additive(Box::new(Op::Lookup(f.clone()))), v)
        };
        let of = f.clone();
        let may = move |x: i64| of.results(x as u64).into_iter().map(|z| z as i64).collect::<Vec<_>>();
        let (one, two, g) = (may.clone(), may, f.clone());
        let expect = move |s: &[i64]| {
            let sums = one(s[0]).into_iter().flat_map(|a| one(s[1]).into_iter().map(move |b| a + b));
            vec![Expected::OneOf { x: s[0] * 4 + s[1], words: sums.collect() }]
        };
        self.add("Reshare", "functions, added up", 2, &[2], all(&range(2), 2), expect, move |p, v, _| {
            let z = left(p, &f, v)?;
            let z = p.step("sum", Op::Sum { axis: 0 }, &[z])?;
            Ok(vec![p.step("op", Op::Reshare, &[z])?])
        });
        let expect = move |s: &[i64]| {
            let words: Vec<i64> = two(s[0]);
            let with = words.iter().map(|z| 2 * z + s[0]).collect();
            vec![Expected::OneOf { x: s[0], words }, Expected::OneOf { x: s[0], words: with }]
        };
        self.add(
            "Reshare",
            "a function, and with its number",
            2,
            &[1],
            all(&range(2), 1),
            expect,
            move |p, v, _| {
                let z = left(p, &g, v)?;
                let with =
                    p.step("with", Op::Combine { coefficients: vec![2, 1], constant: 0 }, &[z, v[0]])?;
                Ok(vec![p.step("op", Op::Reshare, &[z])?, p.step("again", Op::Reshare, &[with])?])
            },
        );
        // With a line beside two segments, written out: what a key does there is the kernel's.
        let beyond = Some(Beyond { bits: 4, constant: -3, slope: 2 });
        let f = Lookup { cut: 0, low: 1, degree: 1, pieces: vec![3, -1, 5, 2], frac: 0, beyond };
        let of = f.whole();
        let expect = move |s: &[i64]| -> Vec<Expected> {
            let words = of.results(s[0] as u64).into_iter().map(|z| z as i64).collect();
            vec![Expected::OneOf { x: s[0], words }]
        };
        self.add("Lookup", "beside a line", 4, &[1], all(&range(4), 1), expect, move |p, v, _| {
            Ok(vec![p.step("op", Op::Lookup(f.clone()), v)?])
        });
        let f = Lookup { cut: 0, low: 1, degree: 1, pieces: vec![1, -2, -1, 1], frac: 0, beyond: None };
        let of = f.clone();
        let expect = move |s: &[i64]| {
            let may = of.results(s[0] as u64).into_iter().map(|z| z as i64).collect();
            vec![Expected::OneOf { x: s[0], words: may }; 2]
        };
        self.add("Lookup", "of one value twice", 2, &[1], all(&range(2), 1), expect, move |p, v, _| {
            let op = || Op::Lookup(f.clone());
            Ok(vec![p.step("op", op(), v)?, p.step("again", op(), v)?])
        });
    }
}
