//! Rearrangements, selections and sums along an axis.

use super::{Suite, host, same};
use crate::{Device, Placement, Reference};
use megrez_plan::View;
use megrez_ring::{Shape, Word};

impl<D: Device> Suite<D> {
    /// Views, places, slices and sums.
    pub fn structure(&self) {
        rings!(self.structure_of());
        // Elements of odd sizes go in pieces.
        let x: Vec<[u32; 3]> = (0..60).map(|i| [i, 2 * i, 3 * i]).collect();
        let view = View::transpose(&Shape::from([6, 10]), &[1, 0]);
        compare!(self, "view of triples", |d, up| d.view(up!(&x), &view));
        compare!(self, "gather of triples", |d, up| d.gather(up!(&x), [2, 10, 3], &[7, 0, 7]));
    }

    fn structure_of<T: Word>(&self) {
        let shape = Shape::from([3, 4, 5, 6]);
        let x = self.words::<T>(shape.elements());
        let mut views = vec![
            View::whole(shape.clone()),
            View::whole(Shape::new([])),
            View::transpose(&shape, &[3, 2, 1, 0]),
            View::transpose(&shape, &[0, 2, 1, 3]),
            View::transpose(&shape, &[1, 0, 3, 2]),
            View::slice(&shape, 3, 5, -2, 3),
            View::slice(&shape, 3, 1, 1, 4),
            View::slice(&shape, 3, 2, 1, 4),
            View::slice(&shape, 2, 1, 2, 2),
            View::slice(&shape, 0, 1, 1, 2),
            View::slice(&shape, 0, 1, 1, 0),
            View { shape: [7, 9].into(), strides: vec![0, 1], offset: 13 },
            View { shape: [5, 3].into(), strides: vec![0, 0], offset: 13 },
            View { shape: [2, 3, 4].into(), strides: vec![6, 24, 1], offset: 2 },
            View { shape: [4, 2, 2].into(), strides: vec![30, 3, 0], offset: 5 },
            View { shape: [2; 9].into(), strides: vec![64, 1, 32, 2, 16, 4, 0, 8, 1], offset: 2 },
        ];
        for _ in 0..if cfg!(miri) { 4 } else { 40 } {
            let rank = self.below(6);
            let dims: Vec<usize> = (0..rank).map(|_| self.below(5) + 1).collect();
            let strides: Vec<isize> = (0..rank).map(|_| self.below(11) as isize - 4).collect();
            let view = View { shape: dims.into(), strides, offset: self.below(300) };
            if view.fits(x.len()) {
                views.push(view);
            }
        }
        let bits = self.bits(shape.elements());
        for view in &views {
            compare!(self, format!("view {view:?}"), |d, up| d.view(up!(&x), view));
            compare!(self, format!("view_bits {view:?}"), |d, up| d.view_bits(up!(&bits), view));
        }
        if cfg!(miri) {
            return;
        }
        // Matrices that are turned, between other dimensions too, from the middle and backwards.
        let [flat, deep] = [Shape::from([40, 70]), Shape::from([2, 33, 3, 65])];
        let x = self.words::<T>(deep.elements());
        for view in [
            View::transpose(&flat, &[1, 0]),
            View::transpose(&deep, &[0, 3, 2, 1]),
            View::transpose(&deep, &[3, 2, 1, 0]),
            View::transpose(&deep, &[2, 3, 0, 1]),
            View { shape: [50, 40].into(), strides: vec![1, 60], offset: 7 },
            View { shape: [20, 30].into(), strides: vec![1, -40], offset: 1200 },
        ] {
            compare!(self, format!("view {view:?}"), |d, up| d.view(up!(&x), &view));
        }
        // Long runs at every alignment, for bits that move by whole words.
        let long = self.bits(5000);
        for offset in [0, 1, 63, 64, 100] {
            for (rows, columns, stride) in
                [(3, 1000, 1500), (7, 64, 65), (2, 130, 200), (40, 64, 64), (9, 1, 100)]
            {
                let view = View { shape: [rows, columns].into(), strides: vec![stride, 1], offset };
                compare!(self, format!("view_bits {view:?}"), |d, up| d.view_bits(up!(&long), &view));
            }
        }
        // Disjoint places: x split along an axis and put together with gaps.
        for axis in 0..4 {
            let mut dims = shape.dims().to_vec();
            dims[axis] += 5;
            let target = Shape::from(dims);
            let (a, b) = (View::slice(&target, axis, 1, 1, 2), View::slice(&target, axis, 3, 1, 2));
            let [x, y] = [&a, &b].map(|view| self.words::<T>(view.shape.elements()));
            compare!(self, format!("place {axis}"), |d, up| {
                let (x, y) = (up!(&x).clone(), up!(&y).clone());
                let parts = [
                    Placement { source: &x, target: a.clone() },
                    Placement { source: &y, target: b.clone() },
                ];
                d.place(&parts, target.elements())
            });
        }
        let reversed = View { shape: [4, 2].into(), strides: vec![-8, 3], offset: 30 };
        let y = self.words::<T>(8);
        compare!(self, "place with strides", |d, up| {
            let source = up!(&y).clone();
            d.place(&[Placement { source: &source, target: reversed.clone() }], 50)
        });
        for sizes in
            [[3, 4, 30], [12, 5, 6], [1, 360, 1], [5, 72, 1], [360, 1, 1], [1, 4, 90], [72, 5, 1], [2, 0, 3]]
        {
            let x = &x[..sizes.iter().product()];
            compare!(self, format!("sum {sizes:?}"), |d, up| d.sum(up!(x), sizes));
            let indices: Vec<usize> =
                if sizes[1] == 0 { vec![] } else { vec![0, sizes[1] - 1, 0, sizes[1] / 2] };
            for indices in [&indices[..], &[]] {
                compare!(self, format!("gather {sizes:?}"), |d, up| d.gather(up!(x), sizes, indices));
            }
        }
    }
}
