//! Truncations: of shared values, of products in additive sharing, and beside other steps.

use super::{Build, DEALT, Expect, Expected, Table, all, images, matrices, range, relu_of, some};
use megrez_plan::{Op, Plan, Relu, ReluForm, SignBit, ValueId, View};

impl Table {
    pub(super) fn truncations(&mut self) {
        let rounded = |x: i64| Expected::Rounded { x, bits: 1 };
        let small: Vec<i64> = (-4..4).collect();
        let truncate = || Op::Truncate { bits: 1 };
        let case = self.add(
            "Truncate",
            "one bit",
            4,
            &[1],
            all(&small, 1),
            move |s| vec![rounded(s[0])],
            move |p, v, _| Ok(vec![p.step("op", truncate(), v)?]),
        );
        case.frac = 1;
        let case = self.add(
            "Truncate",
            "neighbours",
            4,
            &[2],
            all(&small, 2),
            move |s| s.iter().map(|&x| rounded(x)).collect(),
            move |p, v, _| Ok(vec![p.step("op", truncate(), v)?]),
        );
        case.frac = 1;
        let twice = self.add(
            "Truncate",
            "of one value twice",
            4,
            &[1],
            all(&small, 1),
            move |s| vec![rounded(s[0]); 2],
            move |p, v, _| Ok(vec![p.step("op", truncate(), v)?, p.step("again", truncate(), v)?]),
        );
        twice.frac = 1;
        // Under `mizar` the result's mask is made of the value's, so both are read by one product.
        let beside = self.add(
            "Truncate",
            "beside what it is of",
            4,
            &[1],
            all(&small, 1),
            move |s| vec![rounded(s[0]), Expected::OneOf { x: s[0], words: vec![s[0] & 1] }],
            move |p, v, _| {
                let y = p.step("op", truncate(), v)?;
                let x = p.step("x", Op::Rescale { frac: 0 }, v)?;
                let rest = Op::Combine { coefficients: vec![1, -2], constant: 0 };
                let rest = p.step("rest", rest, &[x, y])?;
                Ok(vec![y, p.step("square", Op::Mul, &[rest, rest])?])
            },
        );
        beside.frac = 1;
        let given = self.add(
            "Truncate",
            "given out with what it is of",
            4,
            &[1],
            all(&small, 1),
            move |s| vec![Expected::Word(s[0]), rounded(s[0])],
            move |p, v, _| Ok(vec![v[0], p.step("op", truncate(), v)?]),
        );
        given.frac = 1;
        // Doubled, padded and copied: what reads it opens y twice, and zeros under masks that are
        // made of one another.
        let copied = self.add(
            "Truncate",
            "doubled, padded and copied",
            4,
            &[1],
            all(&small, 1),
            move |s| {
                let near = [s[0] >> 1, (s[0] + 1) >> 1];
                let words = near.into_iter().map(|y| 2 * y * y).collect();
                vec![Expected::Word(0), Expected::OneOf { x: s[0], words }]
            },
            move |p, v, n| {
                let y = p.step("op", truncate(), v)?;
                let doubled = Op::Combine { coefficients: vec![1, 1], constant: 0 };
                let z = p.step("doubled", doubled, &[y, y])?;
                let z = p.step("pad", Op::Pad { before: vec![1, 0], after: vec![0, 0] }, &[z])?;
                let copies = View { shape: [2, n].into(), strides: vec![0, 1], offset: 0 };
                let copies = p.step("copies", Op::View(copies), &[y])?;
                Ok(vec![p.step("product", Op::Mul, &[z, copies])?])
            },
        );
        copied.frac = 1;
        // Products of what is truncated: of both neighbours each, a square of one.
        let near =
            |x: i64, bits: u32| if bits == 0 { vec![x] } else { vec![x >> 1, (x >> 1) + x % 2 * x % 2] };
        for (form, bits) in [("one", vec![1, 0]), ("both", vec![1, 1]), ("a square", vec![1])] {
            let (factors, dropped) = (bits.len(), bits.clone());
            let case = self.add(
                "MulTruncated",
                form,
                4,
                &[1; 2][..factors],
                some(all(&small, factors), 24),
                move |s| {
                    let x = near(s[0], dropped[0]);
                    let words = match dropped.get(1) {
                        Some(&b) => {
                            x.iter().flat_map(|x| near(s[1], b).into_iter().map(move |y| x * y)).collect()
                        }
                        None => x.iter().map(|x| x * x).collect(),
                    };
                    vec![Expected::OneOf { x: s[0] * 16 + s[factors - 1], words }]
                },
                move |p, v, _| Ok(vec![p.step("op", Op::MulTruncated { bits: bits.clone() }, v)?]),
            );
            case.frac = 1;
            case.only = Some(DEALT);
        }
        // Products that are left as sums.
        let sum = |op: Op| Op::Additive(Box::new(op));
        let one = |s: &[i64]| s[0] * s[1];
        let left = move |p: &mut Plan, v: &[ValueId]| {
            let y = p.step("y", Op::Rescale { frac: 0 }, &[v[1]])?;
            p.step("product", sum(Op::Mul), &[v[0], y])
        };
        let mut add = |form: &str, expect: Box<Expect>, build: Box<Build>| {
            let fits = |e: &Expected| !matches!(e, Expected::Rounded { x, .. } if !(-4..4).contains(x));
            let secrets = all(&range(3), 2).into_iter().filter(|s| expect(s).iter().all(fits));
            let most = if form.starts_with("ReLU") { 6 } else { 16 };
            self.add("Additive", form, 4, &[1, 1], some(secrets.collect(), most), expect, build).frac = 1;
        };
        add(
            "truncated",
            Box::new(move |s| vec![rounded(one(s))]),
            Box::new(move |p, v, _| {
                let z = left(p, v)?;
                Ok(vec![p.step("op", truncate(), &[z])?])
            }),
        );
        add(
            "truncated twice",
            Box::new(move |s| vec![rounded(one(s)); 2]),
            Box::new(move |p, v, _| {
                let z = left(p, v)?;
                Ok(vec![p.step("op", truncate(), &[z])?, p.step("again", truncate(), &[z])?])
            }),
        );
        add(
            "padded",
            Box::new(move |s| vec![rounded(0), rounded(one(s))]),
            Box::new(move |p, v, _| {
                let z = left(p, v)?;
                let z = p.step("pad", Op::Pad { before: vec![1, 0], after: vec![0, 0] }, &[z])?;
                Ok(vec![p.step("op", truncate(), &[z])?])
            }),
        );
        add(
            "gathered twice",
            Box::new(move |s| vec![rounded(one(s)); 2]),
            Box::new(move |p, v, _| {
                let z = left(p, v)?;
                let z = p.step("gather", Op::Gather { axis: 0, indices: vec![0, 0] }, &[z])?;
                Ok(vec![p.step("op", truncate(), &[z])?])
            }),
        );
        add(
            "broadcast",
            Box::new(move |s| vec![rounded(one(s)); 2]),
            Box::new(move |p, v, n| {
                let z = left(p, v)?;
                let view = View { shape: [2, n].into(), strides: vec![0, 1], offset: 0 };
                let z = p.step("broadcast", Op::View(view), &[z])?;
                Ok(vec![p.step("op", truncate(), &[z])?])
            }),
        );
        // With shared values beside them: what a summand's mask hides, and hides again.
        let add_to = |p: &mut Plan, name: &str, c: i64, z: ValueId, x: ValueId| {
            p.step(name, Op::Combine { coefficients: vec![c, 1], constant: 0 }, &[z, x])
        };
        add(
            "plus a shared value",
            Box::new(move |s| vec![rounded(one(s) + s[0])]),
            Box::new(move |p, v, _| {
                let z = left(p, v)?;
                let z = add_to(p, "sum", 1, z, v[0])?;
                Ok(vec![p.step("op", truncate(), &[z])?])
            }),
        );
        add(
            "plus one and plus another shared value",
            Box::new(move |s| s.iter().map(|x| rounded(one(s) + x)).collect()),
            Box::new(move |p, v, _| {
                let z = left(p, v)?;
                let (a, b) = (add_to(p, "a", 1, z, v[0])?, add_to(p, "b", 1, z, v[1])?);
                Ok(vec![p.step("op", truncate(), &[a])?, p.step("again", truncate(), &[b])?])
            }),
        );
        add(
            "padded, plus shared values",
            Box::new(move |s| vec![rounded(s[0]), rounded(one(s) + s[1])]),
            Box::new(move |p, v, _| {
                let z = left(p, v)?;
                let z = p.step("pad", Op::Pad { before: vec![1, 0], after: vec![0, 0] }, &[z])?;
                let both = p.step("both", Op::Concat { axis: 0 }, v)?;
                let z = add_to(p, "sum", 1, z, both)?;
                Ok(vec![p.step("op", truncate(), &[z])?])
            }),
        );
        add(
            "broadcast, plus shared values",
            Box::new(move |s| s.iter().map(|x| rounded(one(s) + x)).collect()),
            Box::new(move |p, v, n| {
                let z = left(p, v)?;
                let view = View { shape: [2, n].into(), strides: vec![0, 1], offset: 0 };
                let z = p.step("broadcast", Op::View(view), &[z])?;
                let both = p.step("both", Op::Concat { axis: 0 }, v)?;
                let z = add_to(p, "sum", 1, z, both)?;
                Ok(vec![p.step("op", truncate(), &[z])?])
            }),
        );
        add(
            "twice, plus a shared value",
            Box::new(move |s| vec![rounded(2 * one(s) + s[0])]),
            Box::new(move |p, v, _| {
                let z = left(p, v)?;
                let z = add_to(p, "sum", 2, z, v[0])?;
                Ok(vec![p.step("op", truncate(), &[z])?])
            }),
        );
        let relu = || Op::Relu(Relu { sign: SignBit::FULL, form: ReluForm::ThreeRounds, truncate: 1 });
        add(
            "ReLU with truncation",
            Box::new(move |s| vec![relu_of(one(s), 1)]),
            Box::new(move |p, v, _| {
                let z = left(p, v)?;
                Ok(vec![p.step("op", relu(), &[z])?])
            }),
        );
        for conv in [false, true] {
            let build = move |p: &mut Plan, v: &[ValueId], n: usize| {
                let y = p.step("y", Op::Rescale { frac: 0 }, &[v[1]])?;
                let z = if conv {
                    let (x, y, geometry) = images(p, &[v[0], y], n, 1)?;
                    p.step("product", Op::Additive(Box::new(Op::Conv(geometry))), &[x, y])?
                } else {
                    let (x, y) = matrices(p, &[v[0], y], n, 1)?;
                    p.step("product", Op::Additive(Box::new(Op::MatMul)), &[x, y])?
                };
                Ok(vec![p.step("op", Op::Truncate { bits: 1 }, &[z])?])
            };
            let form = if conv { "of a convolution" } else { "of matrices" };
            self.add("Additive", form, 4, &[1, 1], Self::factors(), move |s| vec![rounded(one(s))], build)
                .frac = 1;
        }
        // A shared product, truncated.
        self.add(
            "Truncate",
            "of a product",
            4,
            &[1, 1],
            Self::factors(),
            move |s| vec![rounded(one(s))],
            move |p, v, _| {
                let y = p.step("y", Op::Rescale { frac: 0 }, &[v[1]])?;
                let z = p.step("product", Op::Mul, &[v[0], y])?;
                Ok(vec![p.step("op", truncate(), &[z])?])
            },
        )
        .frac = 1;
    }
}
