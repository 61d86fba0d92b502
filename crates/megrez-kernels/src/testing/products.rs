//! Products of matrices and images.

use super::{Suite, host, same};
use crate::{Device, Reference};
use megrez_plan::ConvGeometry;
use megrez_ring::Word;
use megrez_weights::{EXACT_ROWS, Matrix, Width};

impl<D: Device> Suite<D> {
    /// Products of matrices.
    pub fn matrices(&self) {
        rings!(self.matrices_of());
    }

    fn matrices_of<W: Word>(&self) {
        if cfg!(miri) {
            return [[1, 9, 40], [9, 5, 17], [12, 20, 2]]
                .into_iter()
                .for_each(|sizes| self.matrix::<W>(sizes));
        }
        let mut sizes = vec![
            [1, 1, 1],
            [1, 300, 70],
            [8, 700, 300],
            [9, 257, 17],
            [33, 100, 4],
            [65, 31, 63],
            [130, 70, 150],
            [5, 0, 5],
            [0, 5, 5],
            [5, 5, 0],
            // For tensor cores from here: whole tiles, ragged tiles, few and many steps.
            [128, 128, 128],
            [64, 64, 64],
            [129, 65, 65],
            [16, 1100, 16],
            [100, 200, 130],
            [20, 33, 600],
        ];
        if self.thorough {
            sizes.extend([
                [1, 513, 1],
                [1, 1000, 129],
                [2, 64, 33],
                [3, 7, 200],
                [8, 256, 16],
                [16, 513, 32],
            ]);
            sizes.extend([[40, 300, 2], [120, 400, 1], [300, 500, 3], [257, 600, 300]]);
        }
        sizes.extend((0..20).map(|_| [70, 90, 60].map(|most| self.below(most) + 1)));
        sizes.into_iter().for_each(|sizes| self.matrix::<W>(sizes));
        self.product::<W>(&[], &[], 0, [2, 2, 2]);
    }

    /// Products with public matrices of bytes.
    pub fn public_matrices(&self) {
        rings!(self.public_matrices_of());
    }

    fn public_matrices_of<W: Word>(&self) {
        let sizes: &[[usize; 3]] = match self.thorough {
            _ if cfg!(miri) => &[[1, 5, 33], [2, 4, 3]],
            false => &[[1, 1, 1], [1, 70, 40], [3, 64, 32], [2, 5, 100], [20, 9, 33]],
            true => &[
                [1, 1, 1],
                [1, 300, 70],
                [5, 64, 32],
                [2, 5, 300],
                [20, 259, 33],
                [130, 12, 65],
                // Worth several threads.
                [9, 1030, 1000],
                // The largest sums of products of bytes.
                [1, EXACT_ROWS, 3],
                [1, EXACT_ROWS + 9, 2],
            ],
        };
        for &[m, k, n] in sizes {
            for width in [Width::Eight, Width::Sixteen] {
                let largest = if width == Width::Eight { 127 } else { 32639 };
                let bound = 2 * largest as usize + 1;
                let drawn: Vec<u64> = self.words(k * n);
                let extreme = k >= EXACT_ROWS;
                let mut column = |j: usize, out: &mut [i32]| {
                    for (q, out) in out.iter_mut().enumerate() {
                        let any = (drawn[q * n + j] % bound as u64) as i32 - largest;
                        *out = if extreme { [largest, -largest, any][j] } else { any };
                    }
                };
                let scales = (0..n).map(|j| (j as i32 * 4093) % 16384 - 3).collect();
                let matrix = Matrix::of_integers([k, n], width, 0, scales, &mut column).unwrap();
                let x = if extreme { vec![W::ZERO.sub(W::ONE); m * k] } else { self.words::<W>(m * k) };
                let found = self.device.times_public(&self.up(&x), &matrix).unwrap();
                let expected = Reference.times_public(&host(&x), &matrix).unwrap();
                self.same(&format!("{m}×{k} by a public {k}×{n} of {width:?} bits"), found, &expected);
            }
        }
    }

    /// One product and a batch of them.
    pub fn matrix<W: Word>(&self, [m, k, n]: [usize; 3]) {
        for batch in [1, 3] {
            let (x, y) = (self.words::<W>(batch * m * k), self.words::<W>(batch * k * n));
            self.product(&x, &y, batch, [m, k, n]);
        }
    }

    /// A batch of products.
    pub fn product<W: Word>(&self, x: &[W], y: &[W], batch: usize, sizes: [usize; 3]) {
        let what = format!("matmul {} {batch} × {sizes:?}", W::BITS);
        compare!(self, what, |d, up| d.matmul(up!(x), up!(y), batch, sizes));
    }

    /// Convolutions.
    pub fn images(&self) {
        rings!(self.images_of());
    }

    fn images_of<W: Word>(&self) {
        let check = |x, w, g| self.image::<W>(x, w, g);
        let plain = ConvGeometry::default();
        let padded = ConvGeometry { pad: [1; 4], ..plain };
        if cfg!(miri) {
            check([2, 3, 5, 5], [4, 3, 3, 3], padded);
            check([1, 2, 2, 3], [3, 2, 2, 2], ConvGeometry { pad: [0, 1, 0, 0], ..plain });
            return check([1, 4, 5, 4], [4, 1, 2, 2], ConvGeometry { groups: 4, stride: [1, 2], ..plain });
        }
        check([1, 1, 28, 28], [6, 1, 5, 5], ConvGeometry { pad: [2; 4], ..plain });
        check([2, 12, 10, 10], [12, 1, 3, 3], ConvGeometry { groups: 12, ..padded });
        check([2, 4, 40, 11], [3, 4, 5, 2], ConvGeometry { dilation: [3, 2], pad: [4, 0, 1, 3], ..plain });
        check([0, 2, 5, 5], [3, 2, 3, 3], plain);
        check([1, 2, 3, 3], [2, 2, 3, 3], ConvGeometry { pad: [5, 0, 5, 9], stride: [3, 4], ..plain });
        // For tensor cores from here.
        check([2, 64, 3, 3], [64, 64, 3, 3], padded);
        check([1, 40, 9, 9], [40, 40, 3, 3], padded);
        check([3, 8, 13, 11], [24, 8, 3, 3], ConvGeometry { stride: [2, 3], pad: [1, 0, 2, 1], ..plain });
        check([3, 16, 16, 16], [32, 16, 1, 1], plain);
        check([2, 12, 17, 15], [70, 6, 3, 2], ConvGeometry { groups: 2, dilation: [2, 3], ..padded });
        check([1, 66, 12, 12], [99, 22, 2, 3], ConvGeometry { groups: 3, stride: [1, 2], ..padded });
        if self.thorough {
            check([1, 3, 32, 32], [16, 3, 3, 3], padded);
            check([1, 96, 4, 4], [40, 96, 3, 3], padded);
            check([5, 8, 9, 7], [24, 8, 3, 3], ConvGeometry { stride: [2, 2], ..padded });
            check([3, 16, 12, 12], [32, 16, 1, 1], ConvGeometry { stride: [2, 2], ..plain });
            check([1, 2, 224, 60], [9, 2, 7, 7], ConvGeometry { stride: [2, 2], pad: [3; 4], ..plain });
            (0..30).for_each(|_| self.any_image::<W>(4, 6));
        }
        (0..15).for_each(|_| self.any_image::<W>(20, 40));
    }

    /// A convolution of any shape, of up to so many input and output channels a group.
    pub fn any_image<W: Word>(&self, inputs: usize, outputs: usize) {
        let groups = self.below(3) + 1;
        let [per_group, out] = [self.below(inputs) + 1, groups * (self.below(outputs) + 1)];
        let x = [self.below(3) + 1, groups * per_group, self.below(14) + 1, self.below(14) + 1];
        let w = [out, per_group, self.below(4) + 1, self.below(4) + 1];
        let g = ConvGeometry {
            stride: [self.below(3) + 1, self.below(3) + 1],
            pad: std::array::from_fn(|_| self.below(4)),
            dilation: [self.below(2) + 1, self.below(3) + 1],
            groups,
        };
        self.image::<W>(x, w, g);
    }

    /// One convolution.
    pub fn image<W: Word>(&self, x: [usize; 4], w: [usize; 4], g: ConvGeometry) {
        if g.output([x[2], x[3]], [w[2], w[3]]).is_none() {
            return;
        }
        let image = self.words::<W>(x.iter().product());
        let kernel = self.words::<W>(w.iter().product());
        let what = format!("conv {} {x:?} {w:?} {g:?}", W::BITS);
        compare!(self, what, |d, up| d.conv(up!(&image), &x.into(), up!(&kernel), &w.into(), &g));
    }
}
