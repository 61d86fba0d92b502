//! Sliding windows over images: what Conv and the pools have in common.

use super::call::Call;
use crate::problem::{Refusal, refuse};
use std::ops::Range;

/// Windows along one axis.
#[derive(Clone, Debug)]
pub(super) struct Axis {
    size: usize,
    pub(super) kernel: usize,
    pub(super) stride: usize,
    pub(super) dilation: usize,
    pub(super) pad: [usize; 2],
    /// How many windows there are.
    pub(super) windows: usize,
}

impl Axis {
    /// One window that is the whole image.
    pub(super) fn whole(size: usize) -> Self {
        Axis { size, kernel: size, stride: 1, dilation: 1, pad: [0; 2], windows: 1 }
    }

    /// The axes that a layer's own windows were, from attributes that name all of it: for
    /// gradients, which know the size of the image and how many windows there are.
    pub(super) fn given(call: &Call, image: [usize; 2], windows: [usize; 2]) -> Result<[Self; 2], Refusal> {
        let kernel = call.sizes("kernel_shape", [0; 2])?;
        let stride = call.sizes("strides", [1; 2])?;
        let dilation = call.sizes("dilations", [1; 2])?;
        let pads = call.sizes("pads", [0; 4])?;
        let axis = |d: usize| {
            let (size, kernel, stride, dilation) = (image[d], kernel[d], stride[d], dilation[d]);
            let pad = [pads[d], pads[d + 2]];
            let numbers = [size, kernel, stride, dilation, windows[d]];
            match numbers.iter().all(|&n| n > 0) {
                true => Ok(Axis { size, kernel, stride, dilation, pad, windows: windows[d] }),
                false => refuse("the windows are not given in full", ""),
            }
        };
        Ok([axis(0)?, axis(1)?])
    }

    /// The image's size.
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// How far windows reach over the image, before its start and beyond its end.
    pub(super) fn reach(&self) -> [usize; 2] {
        let end = (self.windows - 1) * self.stride + (self.kernel - 1) * self.dilation + 1;
        [self.pad[0], end.saturating_sub(self.size + self.pad[0])]
    }

    /// The taps of window `o` that lie inside the image.
    fn inside(&self, o: usize) -> Range<usize> {
        let start = o * self.stride;
        let first = self.pad[0].saturating_sub(start).div_ceil(self.dilation);
        let end = (self.size + self.pad[0]).saturating_sub(start).div_ceil(self.dilation);
        first..end.min(self.kernel)
    }

    /// The positions in the image of the taps of window `o`.
    pub(super) fn taps(&self, o: usize) -> impl Iterator<Item = usize> + Clone + '_ {
        self.inside(o).map(move |k| o * self.stride + k * self.dilation - self.pad[0])
    }

    /// The places that some window sees: of the others a maximum knows nothing.
    pub(super) fn seen(&self) -> Vec<usize> {
        let mut seen = vec![false; self.size];
        (0..self.windows).for_each(|o| self.taps(o).for_each(|i| seen[i] = true));
        (0..self.size).filter(|&i| seen[i]).collect()
    }

    /// The position of tap `k` of window `o`; of the nearest tap of the same window if that one is
    /// padding. A maximum does not mind a tap that occurs twice.
    pub(super) fn nearest_tap(&self, o: usize, k: usize) -> usize {
        let inside = self.inside(o);
        let k = k.clamp(inside.start, inside.end - 1);
        o * self.stride + k * self.dilation - self.pad[0]
    }

    /// The position in the image of tap `k` of window `o`, unless it is padding.
    pub(super) fn tap(&self, o: usize, k: usize) -> Option<usize> {
        self.inside(o).contains(&k).then(|| o * self.stride + k * self.dilation - self.pad[0])
    }

    /// How many taps of window `o` lie inside the image, or, if padding counts, inside the padded
    /// image.
    pub(super) fn count(&self, o: usize, padding_counts: bool) -> usize {
        if !padding_counts {
            return self.inside(o).len();
        }
        let padded = self.size + self.pad[0] + self.pad[1];
        (padded - o * self.stride).div_ceil(self.dilation).min(self.kernel)
    }
}

/// Reads `kernel_shape` (or takes `kernel`), `strides`, `dilations`, `pads`, `auto_pad` and
/// `ceil_mode`: windows along rows and along columns. Every window holds at least one element of
/// the image, unless `may_miss`.
pub(super) fn windows(
    call: &Call,
    image: [usize; 2],
    kernel: Option<[usize; 2]>,
    may_miss: bool,
) -> Result<[Axis; 2], Refusal> {
    let given = call.sizes("kernel_shape", kernel.unwrap_or([0; 2]))?;
    if kernel.is_some_and(|k| k != given) {
        return refuse(format!("`kernel_shape` = {given:?} disagrees with the weights"), "");
    }
    let stride = call.sizes("strides", [1; 2])?;
    let dilation = call.sizes("dilations", [1; 2])?;
    let pads = call.sizes("pads", [0; 4])?;
    let auto_pad = call.string("auto_pad", "NOTSET")?;
    let ceil = call.int("ceil_mode", 0)? != 0;
    if given.contains(&0) || stride.contains(&0) || dilation.contains(&0) {
        return refuse("kernel, strides and dilations are at least 1", "");
    }
    let axis = |d: usize| {
        let (size, kernel, stride, dilation) = (image[d], given[d], stride[d], dilation[d]);
        let reach = (kernel - 1).checked_mul(dilation).and_then(|r| r.checked_add(1)).unwrap_or(usize::MAX);
        let pad = match auto_pad.as_str() {
            "NOTSET" => [pads[d], pads[d + 2]],
            "VALID" => [0; 2],
            "SAME_UPPER" | "SAME_LOWER" => {
                let total = ((size.div_ceil(stride) - 1) * stride).saturating_add(reach).saturating_sub(size);
                let (small, large) = (total / 2, total - total / 2);
                if auto_pad == "SAME_UPPER" { [small, large] } else { [large, small] }
            }
            other => return refuse(format!("`auto_pad` = `{other}` is not supported"), "give `pads`"),
        };
        let Some(space) = size.checked_add(pad[0] + pad[1]).and_then(|s| s.checked_sub(reach)) else {
            return refuse(
                format!("a kernel of {reach} does not fit an image of {size} with pads {pad:?}"),
                "",
            );
        };
        let mut windows = if ceil { space.div_ceil(stride) + 1 } else { space / stride + 1 };
        // A window that starts in the padding after the image is dropped, as ONNX and PyTorch do.
        if ceil && (windows - 1) * stride >= size + pad[0] {
            windows -= 1;
        }
        let axis = Axis { size, kernel, stride, dilation, pad, windows };
        let misses = |o: usize| axis.inside(o).is_empty();
        if !may_miss && (windows > 1 << 16 || kernel > 1 << 12 || (0..windows).any(misses)) {
            return refuse(
                "a window lies in padding alone, or there are too many",
                "pad less than the kernel",
            );
        }
        Ok(axis)
    };
    Ok([axis(0)?, axis(1)?])
}
