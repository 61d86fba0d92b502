//! Views in the form that kernels take: few dimensions, and elements as large as the strides allow.

use bytemuck::{Pod, Zeroable};
use megrez_plan::View;

/// As many dimensions as the kernels' `View` has.
const RANK: usize = 12;

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
pub(crate) struct KernelView {
    offset: u64,
    dims: [u64; RANK],
    strides: [i64; RANK],
    rank: u32,
    unused: u32,
}

/// Both sides of a matrix that is worth to be turned in squares of 32×32.
const TURNED: u64 = 16;

impl KernelView {
    /// The dimension along which neighbours of the input lie, if that is not the last one, and how
    /// many squares of 32×32 it and the last make.
    pub(crate) fn turned(&self) -> Option<(usize, usize)> {
        let last = (self.rank as usize).checked_sub(1)?;
        let turned = (0..last).find(|&d| self.strides[d] == 1 && self.dims[d] >= TURNED)?;
        let worth = self.dims[last] >= TURNED && self.strides[last].unsigned_abs() > 1;
        let others: u64 = (0..last).filter(|&d| d != turned).map(|d| self.dims[d]).product();
        let blocks = others * self.dims[turned].div_ceil(32) * self.dims[last].div_ceil(32);
        worth.then_some((turned, blocks as usize))
    }
}

/// A view of elements of `unit` bytes, and how many of them the result has.
#[derive(Debug, PartialEq)]
pub(crate) struct Units {
    pub view: KernelView,
    pub unit: usize,
    pub count: usize,
}

/// The view in the largest units of a power of two up to 16 bytes; `None` if it needs too many
/// dimensions. Bits (`size` 0) stay bits.
pub(crate) fn units(view: &View, size: usize) -> Option<Units> {
    let mut dims: Vec<(u64, i64)> = Vec::new();
    let mut unit = if size == 0 { 1 } else { 1 << size.trailing_zeros().min(4) };
    let factor = size.max(1) / unit;
    let outer =
        view.shape.dims().iter().zip(&view.strides).map(|(&d, &s)| (d as u64, (s * factor as isize) as i64));
    for (dim, stride) in outer.chain([(factor as u64, 1)]) {
        match dims.last_mut() {
            _ if dim == 1 => {}
            Some((last, last_stride)) if *last_stride == stride * dim as i64 => {
                (*last, *last_stride) = (*last * dim, stride)
            }
            _ => dims.push((dim, stride)),
        }
    }
    let mut offset = (view.offset * factor) as u64;
    while size > 0 && unit < 16 && offset.is_multiple_of(2) {
        let Some(((last, 1), outer)) = dims.split_last() else { break };
        if last % 2 != 0 || outer.iter().any(|(_, stride)| stride % 2 != 0) {
            break;
        }
        let rank = dims.len();
        for (d, (dim, stride)) in dims.iter_mut().enumerate() {
            if d + 1 == rank { *dim /= 2 } else { *stride /= 2 }
        }
        (unit, offset) = (unit * 2, offset / 2);
    }
    if dims.len() > RANK {
        return None;
    }
    let mut out =
        KernelView { offset, dims: [1; RANK], strides: [0; RANK], rank: dims.len() as u32, unused: 0 };
    for (d, (dim, stride)) in dims.iter().enumerate() {
        (out.dims[d], out.strides[d]) = (*dim, *stride);
    }
    let count = dims.iter().map(|(dim, _)| *dim as usize).product();
    Some(Units { view: out, unit, count })
}

#[cfg(test)]
mod tests {
    use super::*;
    use megrez_ring::Shape;

    fn of(view: &View, size: usize) -> (usize, usize, Vec<(u64, i64)>) {
        let u = units(view, size).unwrap();
        let rank = u.view.rank as usize;
        (u.unit, u.count, u.view.dims[..rank].iter().copied().zip(u.view.strides).collect())
    }

    #[test]
    fn units_are_as_large_as_strides_allow() {
        let s = Shape::from([4, 6, 8]);
        assert_eq!(of(&View::whole(s.clone()), 8), (16, 96, vec![(96, 1)]));
        assert_eq!(of(&View::slice(&s, 1, 2, 1, 3), 4), (16, 24, vec![(4, 12), (6, 1)]));
        assert_eq!(of(&View::slice(&s, 2, 1, 1, 4), 4), (4, 96, vec![(24, 8), (4, 1)]));
        assert_eq!(of(&View::transpose(&s, &[2, 0, 1]), 1), (1, 192, vec![(8, 1), (24, 8)]));
        assert_eq!(of(&View::transpose(&s, &[1, 0, 2]), 12), (16, 144, vec![(6, 6), (4, 36), (6, 1)]));
        assert_eq!(of(&View::whole(s), 0), (1, 192, vec![(192, 1)]));
        assert_eq!(of(&View::whole(Shape::new([])), 8), (8, 1, vec![]));
    }
}
