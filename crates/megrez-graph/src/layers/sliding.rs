//! Convolutions in the clear, forward and backward. The channels of a place lie together, so that
//! one number of the input meets those of all filters at once; sums have double precision.

use super::call::Call;
use super::window::Axis;
use crate::problem::{Refusal, refuse};
use megrez_ring::Shape;
use megrez_ring::sums::add_doubles;

/// A convolution, as it is computed in the clear and as its gradients see it.
pub(super) struct Sliding {
    /// Images and channels of x, filters, groups.
    pub images: usize,
    pub channels: usize,
    pub filters: usize,
    pub groups: usize,
    /// Of rows and of columns.
    pub axes: [Axis; 2],
}

impl Sliding {
    /// That of a gradient, whose attributes name all of the windows, for x and y [images, channels,
    /// rows, columns].
    pub fn of(call: &Call, x: [usize; 4], y: [usize; 4]) -> Result<Self, Refusal> {
        let groups = usize::try_from(call.int("group", 1)?).unwrap_or(0);
        if groups == 0 || !x[1].is_multiple_of(groups) || !y[1].is_multiple_of(groups) || x[0] != y[0] {
            return refuse("the channels do not fit the groups", "");
        }
        let axes = Axis::given(call, [x[2], x[3]], [y[2], y[3]])?;
        Ok(Sliding { images: x[0], channels: x[1], filters: y[1], groups, axes })
    }

    /// How many channels a group has.
    pub fn per_group(&self) -> usize {
        self.channels / self.groups
    }

    pub fn image_shape(&self) -> Shape {
        [self.images, self.channels, self.axes[0].size(), self.axes[1].size()].into()
    }

    pub fn kernel_shape(&self) -> Shape {
        [self.filters, self.per_group(), self.axes[0].kernel, self.axes[1].kernel].into()
    }

    pub fn sides(&self, side: impl Fn(&Axis) -> usize) -> [usize; 2] {
        [side(&self.axes[0]), side(&self.axes[1])]
    }

    /// How many products there are, with those of padding.
    pub fn work(&self) -> u64 {
        let [rows, columns] = self.sides(|axis| axis.windows * axis.kernel);
        (self.images * self.filters * self.per_group()) as u64 * (rows * columns) as u64
    }

    /// How many filters a group has.
    fn each(&self) -> usize {
        self.filters / self.groups
    }

    fn taps(&self) -> usize {
        let [rows, columns] = self.sides(|axis| axis.kernel);
        rows * columns
    }

    fn places(&self) -> usize {
        let [rows, columns] = self.sides(Axis::size);
        rows * columns
    }

    fn windows(&self) -> usize {
        let [rows, columns] = self.sides(|axis| axis.windows);
        rows * columns
    }

    /// Calls `f` with every window, tap and the place that this tap has in the image.
    fn slide(&self, mut f: impl FnMut(usize, usize, usize)) {
        let [rows, columns] = &self.axes;
        for (r, q) in (0..rows.windows).flat_map(|r| (0..columns.windows).map(move |q| (r, q))) {
            for i in 0..rows.kernel {
                let Some(row) = rows.tap(r, i) else { continue };
                for j in 0..columns.kernel {
                    let Some(column) = columns.tap(q, j) else { continue };
                    f(r * columns.windows + q, i * columns.kernel + j, row * columns.size() + column);
                }
            }
        }
    }

    /// Σ w · x [images, filters, rows, columns], from `first` of each filter on.
    pub fn outputs(&self, x: &[f32], w: &[f32], first: impl Fn(usize) -> f64 + Sync) -> Vec<f32> {
        let (per_group, each, taps, places) = (self.per_group(), self.each(), self.taps(), self.places());
        // [groups, channels, taps, filters]: what one number of x is multiplied by lies together.
        let w: Vec<f64> = self.groups_last(w);
        let mut y = vec![0f32; self.images * self.filters * self.windows()];
        self.parallel(&mut y, self.filters * self.windows(), |image, y| {
            let x = last(&x[image * self.channels * places..][..self.channels * places], places);
            let mut sums: Vec<f64> =
                (0..self.windows()).flat_map(|_| (0..self.filters).map(&first)).collect();
            self.slide(|window, tap, place| {
                for (channel, &x) in x[place * self.channels..][..self.channels].iter().enumerate() {
                    let row = &w[(channel * taps + tap) * each..][..each];
                    add(&mut sums[window * self.filters + channel / per_group * each..][..each], x, row);
                }
            });
            scatter(&sums, self.filters, y);
        });
        y
    }

    /// The gradient of x [images, channels, height, width], from that of the outputs.
    pub fn of_image(&self, delta: &[f32], w: &[f32]) -> Vec<f32> {
        let (per_group, each, taps, windows) = (self.per_group(), self.each(), self.taps(), self.windows());
        // [filters, taps, channels of the group].
        let w: Vec<f64> =
            w.chunks_exact((per_group * taps).max(1)).flat_map(|filter| last(filter, taps)).collect();
        let mut dx = vec![0f32; self.images * self.channels * self.places()];
        self.parallel(&mut dx, self.channels * self.places(), |image, dx| {
            let delta = last(&delta[image * self.filters * windows..][..self.filters * windows], windows);
            let mut sums = vec![0f64; self.places() * self.channels];
            self.slide(|window, tap, place| {
                for (filter, &d) in delta[window * self.filters..][..self.filters].iter().enumerate() {
                    let row = &w[(filter * taps + tap) * per_group..][..per_group];
                    add(&mut sums[place * self.channels + filter / each * per_group..][..per_group], d, row);
                }
            });
            scatter(&sums, self.channels, dx);
        });
        dx
    }

    /// The gradient of w [filters, channels of a group, rows, columns], from that of the outputs.
    pub fn of_kernel(&self, x: &[f32], delta: &[f32]) -> Vec<f32> {
        let (per_group, each, taps) = (self.per_group(), self.each(), self.taps());
        let by_image = |data: &[f32], channels: usize, inner: usize| -> Vec<f64> {
            data.chunks_exact((channels * inner).max(1)).flat_map(|image| last(image, inner)).collect()
        };
        let (places, windows) = (self.places(), self.windows());
        let (x, delta) = (by_image(x, self.channels, places), by_image(delta, self.filters, windows));
        // [channels, taps, filters of the group].
        let mut sums = vec![0f64; self.channels * taps * each];
        self.parallel(&mut sums, taps * each, |channel, sums| {
            let first = channel / per_group * each;
            for image in 0..self.images {
                self.slide(|window, tap, place| {
                    let x = x[(image * places + place) * self.channels + channel];
                    let delta = &delta[(image * windows + window) * self.filters + first..][..each];
                    add(&mut sums[tap * each..][..each], x, delta);
                });
            }
        });
        let at = |filter: usize, c: usize, tap: usize| {
            let channel = filter / each * per_group + c;
            sums[(channel * taps + tap) * each + filter % each] as f32
        };
        let places = (0..self.filters).flat_map(|o| (0..per_group).map(move |c| (o, c)));
        places.flat_map(|(o, c)| (0..taps).map(move |tap| (o, c, tap))).map(|(o, c, t)| at(o, c, t)).collect()
    }

    /// Weights [filters, channels of a group, taps] as [groups, channels, taps, filters].
    fn groups_last(&self, w: &[f32]) -> Vec<f64> {
        let (of_filter, each) = (self.per_group() * self.taps(), self.each());
        let group = |w: &[f32]| -> Vec<f64> {
            (0..of_filter).flat_map(|i| (0..each).map(move |o| f64::from(w[o * of_filter + i]))).collect()
        };
        w.chunks_exact((each * of_filter).max(1)).flat_map(group).collect()
    }

    /// Calls `f` with the number and the elements of each part of `out`, on all processors where
    /// that is worth it.
    fn parallel<T: Send>(&self, out: &mut [T], part: usize, f: impl Fn(usize, &mut [T]) + Sync) {
        /// Products that take longer than a thread takes to start.
        const WORTH_THREADS: u64 = 1 << 22;
        if out.is_empty() {
            return;
        }
        let parts = out.len() / part;
        let threads = match self.work() {
            WORTH_THREADS.. => std::thread::available_parallelism().map_or(1, usize::from).min(parts),
            _ => 1,
        };
        let each = parts.div_ceil(threads);
        std::thread::scope(|scope| {
            for (i, several) in out.chunks_mut(each * part).enumerate() {
                let f = &f;
                let mut work =
                    move || several.chunks_mut(part).enumerate().for_each(|(j, out)| f(i * each + j, out));
                if threads == 1 { work() } else { drop(scope.spawn(work)) }
            }
        });
    }
}

/// sums + a · row. Rectifiers leave many zeros.
#[inline]
fn add(sums: &mut [f64], a: f64, row: &[f64]) {
    if a != 0.0 {
        add_doubles(sums, a, row);
    }
}

/// [channels, inner] as [inner, channels].
fn last(data: &[f32], inner: usize) -> Vec<f64> {
    let channels = data.len() / inner.max(1);
    (0..inner).flat_map(|i| (0..channels).map(move |c| f64::from(data[c * inner + i]))).collect()
}

/// [inner, channels] as [channels, inner].
fn scatter(sums: &[f64], channels: usize, out: &mut [f32]) {
    let inner = sums.len() / channels.max(1);
    for (c, out) in out.chunks_exact_mut(inner.max(1)).enumerate() {
        out.iter_mut().enumerate().for_each(|(i, out)| *out = sums[i * channels + c] as f32);
    }
}
