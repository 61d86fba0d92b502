//! Bits, and what goes between bits and ring elements.

use super::{BICOPTOR, DEALT, Expected, Table, all, bit, name, range, some, words};
use megrez_plan::{List, Op, Plan, SignBit, ValueId, View};

impl Table {
    pub(super) fn bits(&mut self) {
        let of = |x: i64, ring: u32| (0..ring).map(move |k| x >> k & 1);
        for (ring, elements) in [(2, 1), (3, 1), (4, 1), (2, 2)] {
            let secrets = all(&range(ring), elements);
            let expect =
                move |s: &[i64]| words((0..ring).flat_map(|k| s.iter().map(move |x| x >> k & 1)).collect());
            let form = if elements == 1 { format!("{ring} bits") } else { "neighbours".into() };
            self.add("ToBits", form.clone(), ring, &[elements], secrets.clone(), expect, |p, v, _| {
                Ok(vec![p.step("op", Op::ToBits, v)?])
            });
            self.add(
                "FromBits",
                format!("of ToBits, {form}"),
                ring,
                &[elements],
                secrets,
                |s| words(s.to_vec()),
                |p, v, _| {
                    let b = p.step("bits", Op::ToBits, v)?;
                    Ok(vec![p.step("op", Op::FromBits, &[b])?])
                },
            );
        }
        for ring in [2, 3] {
            let secrets = some(all(&range(ring), 2), 32);
            self.add(
                "AddBits",
                format!("{ring} bits"),
                ring,
                &[1, 1],
                secrets,
                move |s| words(of(s[0] + s[1], ring).collect()),
                |p, v, _| {
                    let a = p.step("a", Op::ToBits, &v[..1])?;
                    let b = p.step("b", Op::ToBits, &v[1..])?;
                    Ok(vec![p.step("op", Op::AddBits, &[a, b])?])
                },
            );
        }
        let sign = |p: &mut Plan, name: &str, v: ValueId| p.step(name, Op::NonNegative(SignBit::FULL), &[v]);
        let two = || all(&range(2), 2);
        self.add(
            "Select",
            "after a comparison",
            2,
            &[1, 1],
            two(),
            |s| words(vec![if s[0] >= 0 { s[1] } else { 0 }]),
            move |p, v, _| {
                let b = sign(p, "bit", v[0])?;
                Ok(vec![p.step("op", Op::SELECT, &[b, v[1]])?])
            },
        );
        self.add(
            "Select",
            "of the compared value, and the bit again",
            2,
            &[1],
            all(&range(2), 1),
            |s| words(vec![s[0].max(0), bit(s[0] >= 0)]),
            move |p, v, _| {
                let b = sign(p, "bit", v[0])?;
                Ok(vec![p.step("op", Op::SELECT, &[b, v[0]])?, b])
            },
        );
        self.add(
            "Select",
            "neighbours",
            2,
            &[2, 2],
            some(all(&range(2), 4), 40),
            |s| words((0..2).map(|i| if s[i] >= 0 { s[2 + i] } else { 0 }).collect()),
            move |p, v, _| {
                let b = sign(p, "bit", v[0])?;
                Ok(vec![p.step("op", Op::SELECT, &[b, v[1]])?])
            },
        );
        // With a truncation of what it selects; of numbers that the comparison reads rightly.
        let cut = SignBit { cut: 1, bits: Some(2), list: List::Digits(vec![1]) };
        let compared = cut.clone();
        let pairs = [-4, -2, 0, 2].into_iter().flat_map(|b| (-4..4).map(move |x| vec![b, x])).collect();
        let case = self.add(
            "Select",
            "with a truncation",
            4,
            &[1, 1],
            pairs,
            |s| vec![if s[0] >= 0 { Expected::Rounded { x: s[1], bits: 1 } } else { Expected::Word(0) }],
            move |p, v, _| {
                let b = p.step("bit", Op::NonNegative(compared.clone()), &v[..1])?;
                Ok(vec![p.step("op", Op::Select { truncate: 1 }, &[b, v[1]])?])
            },
        );
        (case.frac, case.sign) = (1, cut);
        case.only = Some(&["mizar", "concurrent"]);
        for (what, groups) in [("all", vec![2]), ("each", vec![1, 1])] {
            let (sums, n) = (groups.clone(), groups.len());
            let case = self.add(
                "SelectSum",
                what,
                2,
                &[2, 2],
                some(all(&range(2), 4), 40),
                move |s| {
                    let chosen = |i: usize| if s[i] >= 0 { s[2 + i] } else { 0 };
                    words(if n == 1 {
                        vec![super::wrap(chosen(0) + chosen(1), 2)]
                    } else {
                        vec![chosen(0), chosen(1)]
                    })
                },
                move |p, v, _| {
                    let b = sign(p, "bit", v[0])?;
                    Ok(vec![p.step("op", Op::SelectSum { groups: sums.clone() }, &[b, v[1]])?])
                },
            );
            case.only = Some(&["mizar", "concurrent", "aegis"]);
        }
        self.matrices_of_bits();
        self.add(
            "BitToRing",
            "after a comparison",
            2,
            &[1],
            all(&range(2), 1),
            |s| words(vec![bit(s[0] >= 0)]),
            move |p, v, _| {
                let b = sign(p, "bit", v[0])?;
                Ok(vec![p.step("op", Op::BitToRing, &[b])?])
            },
        );
        self.add(
            "BitToRing",
            "neighbours",
            2,
            &[2],
            two(),
            |s| words(s.iter().map(|&x| bit(x >= 0)).collect()),
            move |p, v, _| {
                let b = sign(p, "bit", v[0])?;
                Ok(vec![p.step("op", Op::BitToRing, &[b])?])
            },
        );
        self.add(
            "Xor",
            "of two comparisons",
            2,
            &[1, 1],
            two(),
            |s| words(vec![bit((s[0] >= 0) != (s[1] >= 0))]),
            move |p, v, _| {
                let (a, b) = (sign(p, "a", v[0])?, sign(p, "b", v[1])?);
                Ok(vec![p.step("op", Op::Xor, &[a, b])?])
            },
        );
        self.add(
            "Not",
            "of a comparison",
            2,
            &[1],
            all(&range(2), 1),
            |s| words(vec![bit(s[0] < 0)]),
            move |p, v, _| {
                let b = sign(p, "bit", v[0])?;
                Ok(vec![p.step("op", Op::Not, &[b])?])
            },
        );
        for n in [2, 3, 4] {
            let secrets = some(all(&range(2), n), 32);
            self.add(
                "And",
                format!("{n} factors"),
                2,
                &[1; 4][..n],
                secrets,
                |s| words(vec![bit(s.iter().all(|&x| x >= 0))]),
                move |p, v, _| {
                    let names = ["a", "b", "c", "d"].iter().zip(v);
                    let bits = names.map(|(name, &v)| sign(p, name, v)).collect::<Result<Vec<_>, _>>()?;
                    Ok(vec![p.step("op", Op::And, &bits)?])
                },
            );
        }
        self.add(
            "And",
            "neighbours",
            2,
            &[2, 2],
            some(all(&range(2), 4), 32),
            |s| words((0..2).map(|i| bit(s[i] >= 0 && s[2 + i] >= 0)).collect()),
            move |p, v, _| {
                let (a, b) = (sign(p, "a", v[0])?, sign(p, "b", v[1])?);
                Ok(vec![p.step("op", Op::And, &[a, b])?])
            },
        );
        // Bicoptor compares three bits and more, on a ring that has two more.
        let narrow = |p: &mut Plan, name: &str, v: ValueId| {
            p.step(name, Op::NonNegative(SignBit { bits: Some(3), ..SignBit::FULL }), &[v])
        };
        let four = || all(&[-4, -1, 0, 3], 2);
        let case = self.add(
            "Select",
            "3 bits of 5",
            5,
            &[1, 1],
            four(),
            |s| words(vec![if s[0] >= 0 { s[1] } else { 0 }]),
            move |p, v, _| {
                let b = narrow(p, "bit", v[0])?;
                Ok(vec![p.step("op", Op::SELECT, &[b, v[1]])?])
            },
        );
        case.only = Some(BICOPTOR);
        for op in [Op::Xor, Op::And] {
            let both = op == Op::And;
            let expect = move |s: &[i64]| {
                let (a, b) = (s[0] >= 0, s[1] >= 0);
                words(vec![bit(if both { a && b } else { a != b })])
            };
            let case = self.add(name(&op), "3 bits of 5", 5, &[1, 1], four(), expect, move |p, v, _| {
                let (a, b) = (narrow(p, "a", v[0])?, narrow(p, "b", v[1])?);
                Ok(vec![p.step("op", op.clone(), &[a, b])?])
            });
            case.only = Some(BICOPTOR);
        }
        for op in [Op::Not, Op::BitToRing] {
            let not = op == Op::Not;
            let values = all(&[-4, -1, 0, 3], 1);
            let case = self.add(
                name(&op),
                "3 bits of 5",
                5,
                &[1],
                values,
                move |s| words(vec![bit((s[0] >= 0) != not)]),
                move |p, v, _| {
                    let b = narrow(p, "bit", v[0])?;
                    Ok(vec![p.step("op", op.clone(), &[b])?])
                },
            );
            case.only = Some(BICOPTOR);
        }
        // On bits of ToBits, which a product of bits masks alone.
        self.add(
            "And",
            "of a value's bits",
            2,
            &[1, 1],
            two(),
            |s| words((0..2).map(|k| (s[0] & s[1]) >> k & 1).collect()),
            |p, v, _| {
                let a = p.step("a", Op::ToBits, &v[..1])?;
                let b = p.step("b", Op::ToBits, &v[1..])?;
                Ok(vec![p.step("op", Op::And, &[a, b])?])
            },
        );
    }

    /// Lowest bits, and what is made of them.
    fn matrices_of_bits(&mut self) {
        let low = |p: &mut Plan, name: &str, x: ValueId| p.step(name, Op::LowBit, &[x]);
        let shaped = |p: &mut Plan, name: &str, x: ValueId, to: [usize; 4]| {
            p.step(name, Op::View(View::whole(to.into())), &[x])
        };
        let one = |x: i64| bit(x & 1 == 1);
        self.add(
            "LowBit",
            "and the word again",
            3,
            &[1],
            all(&range(3), 1),
            move |s| words(vec![one(s[0]), s[0]]),
            move |p, v, _| Ok(vec![low(p, "op", v[0])?, v[0]]),
        )
        .only = Some(DEALT);
        self.add(
            "LowBit",
            "neighbours",
            2,
            &[2],
            all(&range(2), 2),
            move |s| words(s.iter().map(|&x| one(x)).collect()),
            move |p, v, _| Ok(vec![low(p, "op", v[0])?]),
        )
        .only = Some(DEALT);
        self.add(
            "BitMatMul",
            "a row and a column",
            2,
            &[2, 2],
            some(all(&range(2), 4), 40),
            move |s| words(vec![one(s[0] & s[2] ^ s[1] & s[3])]),
            move |p, v, lanes| {
                let (x, y) = (low(p, "x-bits", v[0])?, low(p, "y-bits", v[1])?);
                let x = shaped(p, "row", x, [1, 1, 2, lanes])?;
                let y = shaped(p, "column", y, [1, 2, 1, lanes])?;
                Ok(vec![p.step("op", Op::BitMatMul, &[x, y])?])
            },
        )
        .only = Some(DEALT);
        self.add(
            "BitMatMul",
            "a row by itself",
            2,
            &[2],
            all(&range(2), 2),
            move |s| words(vec![one(s[0] ^ s[1])]),
            move |p, v, lanes| {
                let x = low(p, "bits", v[0])?;
                let row = shaped(p, "row", x, [1, 1, 2, lanes])?;
                let column = shaped(p, "column", x, [1, 2, 1, lanes])?;
                Ok(vec![p.step("op", Op::BitMatMul, &[row, column])?])
            },
        )
        .only = Some(DEALT);
        for (form, sums) in [
            ("of two bits", vec![vec![vec![0, 1]], vec![vec![0], vec![0, 1]]]),
            ("linear", vec![vec![vec![0], vec![1]]]),
        ] {
            let terms = sums.clone();
            self.add(
                "BitPolynomials",
                form,
                2,
                &[2],
                all(&range(2), 2),
                move |s| {
                    let term = |term: &Vec<usize>| term.iter().all(|&f| s[f] & 1 == 1);
                    let of = |sum: &Vec<Vec<usize>>| sum.iter().filter(|&t| term(t)).count() as i64;
                    words(terms.iter().map(|sum| one(of(sum))).collect())
                },
                move |p, v, _| {
                    let x = low(p, "bits", v[0])?;
                    Ok(vec![p.step("op", Op::BitPolynomials { sums: sums.clone() }, &[x])?])
                },
            )
            .only = Some(DEALT);
        }
        self.add(
            "BitPolynomials",
            "of three bits",
            2,
            &[3],
            some(all(&range(2), 3), 40),
            move |s| words(vec![one(s[0] & s[1] & s[2] ^ s[1] & s[2] ^ s[0])]),
            move |p, v, _| {
                let (x, sums) = (low(p, "bits", v[0])?, vec![vec![vec![0, 1, 2], vec![1, 2], vec![0]]]);
                Ok(vec![p.step("op", Op::BitPolynomials { sums }, &[x])?])
            },
        )
        .only = Some(DEALT);
        self.add(
            "Additive",
            "bits as numbers, added up and shared twice",
            2,
            &[2],
            all(&range(2), 2),
            move |s| words(vec![one(s[0]) + one(s[1]); 2]),
            move |p, v, _| {
                let bits = low(p, "bits", v[0])?;
                let numbers = p.step("numbers", Op::Additive(Box::new(Op::BitToRing)), &[bits])?;
                let z = p.step("sum", Op::Sum { axis: 0 }, &[numbers])?;
                Ok(vec![p.step("shared", Op::Reshare, &[z])?, p.step("again", Op::Reshare, &[z])?])
            },
        )
        .only = Some(DEALT);
    }
}
