//! Linear steps and products.

use super::{BUT_BICOPTOR, DEALT, Table, all, images, matrices, range, some, words};
use megrez_plan::{Op, Plan, PublicMatrix, ValueId, View};
use megrez_weights::{Matrix, Width};
use std::sync::Arc;

impl Table {
    pub(super) fn linear(&mut self) {
        let two = || all(&range(2), 2);
        let combine = |c: [i64; 2], k| Op::Combine { coefficients: c.to_vec(), constant: k };
        self.add(
            "Combine",
            "3x − 2y + 1",
            2,
            &[1, 1],
            two(),
            |s| words(vec![3 * s[0] - 2 * s[1] + 1]),
            move |p, v, _| Ok(vec![p.step("op", combine([3, -2], 1), v)?]),
        );
        self.add(
            "View",
            "reversed",
            2,
            &[2],
            two(),
            |s| words(vec![s[1], s[0]]),
            |p, v, n| {
                let strides = vec![-(n as isize), 1];
                Ok(vec![p.step("op", Op::View(View { shape: [2, n].into(), strides, offset: n }), v)?])
            },
        );
        self.add(
            "Concat",
            "x, y",
            2,
            &[1, 1],
            two(),
            |s| words(s.to_vec()),
            |p, v, _| Ok(vec![p.step("op", Op::Concat { axis: 0 }, v)?]),
        );
        self.add(
            "Pad",
            "one before, one after",
            2,
            &[1],
            all(&range(2), 1),
            |s| words(vec![0, s[0], 0]),
            |p, v, _| Ok(vec![p.step("op", Op::Pad { before: vec![1, 0], after: vec![1, 0] }, v)?]),
        );
        self.add(
            "Sum",
            "of two",
            2,
            &[2],
            two(),
            |s| words(vec![s[0] + s[1]]),
            |p, v, _| Ok(vec![p.step("op", Op::Sum { axis: 0 }, v)?]),
        );
        self.add(
            "Gather",
            "one twice",
            2,
            &[2],
            two(),
            |s| words(vec![s[1], s[0], s[1]]),
            |p, v, _| Ok(vec![p.step("op", Op::Gather { axis: 0, indices: vec![1, 0, 1] }, v)?]),
        );
        self.add(
            "Rescale",
            "1 to 0",
            2,
            &[1],
            all(&range(2), 1),
            |s| words(s.to_vec()),
            |p, v, _| Ok(vec![p.step("op", Op::Rescale { frac: 0 }, v)?]),
        )
        .frac = 1;
        self.add(
            "TimesPublic",
            "one, and minus two",
            2,
            &[1],
            all(&range(2), 1),
            |s| words(vec![s[0], -2 * s[0]]),
            |p, v, n| {
                // Lanes stand along the last dimension, which a matrix of one row cannot mix.
                let lanes = p.step("lanes", Op::View(View::whole([n, 1].into())), v)?;
                let mut column = |n: usize, out: &mut [i32]| out.fill([1, -2][n]);
                let matrix = Matrix::of_integers([1, 2], Width::Eight, 0, vec![1; 2], &mut column);
                let matrix = matrix.expect("two numbers");
                let y = p.step("op", Op::TimesPublic(PublicMatrix::from(Arc::new(matrix))), &[lanes])?;
                Ok(vec![p.step("turned", Op::View(View::transpose(&[n, 2].into(), &[1, 0])), &[y])?])
            },
        );
        // Without a deviation: what is drawn is nobody's secret, and how it is shared is the same.
        self.add(
            "Noise",
            "plus x",
            3,
            &[1],
            all(&range(3), 1),
            |s| words(vec![s[0]]),
            |p, v, n| {
                let noise = p.step("op", Op::Noise { shape: [1, n].into(), frac: 0, deviation: 0 }, &[])?;
                Ok(vec![p.step(
                    "sum",
                    Op::Combine { coefficients: vec![1, 1], constant: 0 },
                    &[v[0], noise],
                )?])
            },
        );
        self.add(
            "Constant",
            "times x",
            3,
            &[1],
            all(&range(3), 1),
            |s| words(vec![3 * s[0]]),
            |p, v, n| {
                let constant = Op::Constant { shape: [1, n].into(), frac: 0, words: vec![3; n] };
                let c = p.step("constant", constant, &[])?;
                Ok(vec![p.step("op", Op::Mul, &[v[0], c])?])
            },
        );
    }

    pub(super) fn products(&mut self) {
        let product = |s: &[i64]| words(vec![s.iter().product()]);
        for (ring, most) in [(2, 16), (3, 64)] {
            self.add("Mul", "x·y", ring, &[1, 1], some(all(&range(ring), 2), most), product, |p, v, _| {
                Ok(vec![p.step("op", Op::Mul, v)?])
            });
        }
        let pairs = some(all(&range(2), 4), 40);
        self.add(
            "Mul",
            "neighbours",
            2,
            &[2, 2],
            pairs.clone(),
            |s| words(vec![s[0] * s[2], s[1] * s[3]]),
            |p, v, _| Ok(vec![p.step("op", Op::Mul, v)?]),
        );
        self.add(
            "Mul",
            "x·x and x·y",
            2,
            &[1, 1],
            all(&range(2), 2),
            |s| words(vec![s[0] * s[0], s[0] * s[1]]),
            |p, v, _| Ok(vec![p.step("square", Op::Mul, &[v[0], v[0]])?, p.step("op", Op::Mul, v)?]),
        );
        for n in [3, 4] {
            let secrets = some(all(&range(2), n), 64);
            self.add("Mul", format!("{n} factors"), 2, &[1; 4][..n], secrets, product, |p, v, _| {
                Ok(vec![p.step("op", Op::Mul, v)?])
            });
        }
        let inner = |s: &[i64]| words(vec![s[0] * s[2] + s[1] * s[3]]);
        for conv in [false, true] {
            let (op, form) = if conv { ("Conv", "one tap") } else { ("MatMul", "one by one") };
            self.add(op, form, 2, &[1, 1], all(&range(2), 2), product, move |p, v, n| {
                Ok(vec![if conv {
                    let (x, y, geometry) = images(p, v, n, 1)?;
                    p.step("op", Op::Conv(geometry), &[x, y])?
                } else {
                    let (x, y) = matrices(p, v, n, 1)?;
                    p.step("op", Op::MatMul, &[x, y])?
                }])
            });
        }
        let case = self.add("MatMul", "a row by a column", 2, &[2, 2], pairs.clone(), inner, |p, v, n| {
            let (x, y) = matrices(p, v, n, 2)?;
            Ok(vec![p.step("op", Op::MatMul, &[x, y])?])
        });
        case.only = Some(BUT_BICOPTOR);
        let case = self.add("Conv", "two taps", 2, &[2, 2], pairs, inner, |p, v, n| {
            let (x, y, geometry) = images(p, v, n, 2)?;
            Ok(vec![p.step("op", Op::Conv(geometry), &[x, y])?])
        });
        case.only = Some(BUT_BICOPTOR);
    }

    /// What is left as a sum and shared.
    pub(super) fn sums(&mut self) {
        let left = |p: &mut Plan, v: &[ValueId]| p.step("product", Op::Additive(Box::new(Op::Mul)), &v[..2]);
        let both = |c: [i64; 2]| Op::Combine { coefficients: c.to_vec(), constant: 1 };
        let pairs = || all(&range(2), 2);
        let four = || some(all(&range(2), 4), 40);
        let added = |s: &[i64]| s[0] * s[2] + s[1] * s[3];
        self.add(
            "Reshare",
            "products, added up",
            2,
            &[2, 2],
            four(),
            move |s| words(vec![added(s)]),
            move |p, v, _| {
                let z = left(p, v)?;
                let z = p.step("sum", Op::Sum { axis: 0 }, &[z])?;
                Ok(vec![p.step("op", Op::Reshare, &[z])?])
            },
        );
        self.add(
            "Additive",
            "a product, shared twice",
            2,
            &[1, 1],
            pairs(),
            |s| words(vec![s[0] * s[1]; 2]),
            move |p, v, _| {
                let z = left(p, v)?;
                Ok(vec![p.step("op", Op::Reshare, &[z])?, p.step("again", Op::Reshare, &[z])?])
            },
        )
        .only = Some(DEALT);
        self.add(
            "Reshare",
            "a product, doubled and with its factor",
            3,
            &[1, 1],
            some(all(&range(3), 2), 40),
            |s| words(vec![2 * s[0] * s[1] + s[0] + 1, s[0] * s[1] - s[1] + 1]),
            move |p, v, _| {
                let z = left(p, v)?;
                let one = p.step("one", both([2, 1]), &[z, v[0]])?;
                let two = p.step("two", both([-1, 1]), &[v[1], z])?;
                Ok(vec![p.step("op", Op::Reshare, &[one])?, p.step("again", Op::Reshare, &[two])?])
            },
        );
        self.add(
            "Reshare",
            "padded and repeated",
            2,
            &[1, 1],
            pairs(),
            |s| words(vec![0, s[0] * s[1], s[0] * s[1]]),
            move |p, v, _| {
                let z = left(p, v)?;
                let z = p.step("pad", Op::Pad { before: vec![1, 0], after: vec![0, 0] }, &[z])?;
                let z = p.step("gather", Op::Gather { axis: 0, indices: vec![0, 1, 1] }, &[z])?;
                Ok(vec![p.step("op", Op::Reshare, &[z])?])
            },
        );
        self.add(
            "Reshare",
            "times what is public, read by a product",
            2,
            &[1, 1],
            pairs(),
            |s| words(vec![3 * s[0] * s[1], 9 * s[0] * s[1] * s[0] * s[1]]),
            move |p, v, n| {
                let c =
                    p.step("three", Op::Constant { shape: [1, n].into(), frac: 0, words: vec![3; n] }, &[])?;
                let z = left(p, v)?;
                let z = p.step("times", Op::Mul, &[c, z])?;
                let z = p.step("op", Op::Reshare, &[z])?;
                Ok(vec![z, p.step("next", Op::Mul, &[z, z])?])
            },
        );
    }

    /// Secrets x, y with |x·y| < 4.
    pub(super) fn factors() -> Vec<Vec<i64>> {
        let rows = all(&range(3), 2).into_iter().filter(|s| (-4..4).contains(&(s[0] * s[1])));
        some(rows.collect(), 24)
    }
}
