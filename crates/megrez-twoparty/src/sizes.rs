//! Integers and bits that nobody has: widths and lanes, on which cost models run programs. What is
//! local costs nothing under any of them.

/// Integers that nobody has: a width and lanes.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Bits of each.
    pub width: u32,
    /// How many.
    pub lanes: usize,
}

/// Bits that nobody has.
#[derive(Clone, Copy, Debug)]
pub struct Lanes(pub usize);

/// The part of [`Blocks`](megrez_float::blocks::Blocks) that is local, on [`Size`] and [`Lanes`].
macro_rules! local_blocks {
    () => {
        type Int = Size;
        type Bit = Lanes;
        type Error = Infallible;

        fn lanes(&self, x: &Size) -> usize {
            x.lanes
        }
        fn bit_lanes(&self, x: &Lanes) -> usize {
            x.0
        }
        fn width(&self, x: &Size) -> u32 {
            x.width
        }
        fn public(&self, width: u32, v: &[u64]) -> Size {
            Size { width, lanes: v.len() }
        }
        fn public_bits(&self, v: &[bool]) -> Lanes {
            Lanes(v.len())
        }
        fn add(&self, x: &Size, _: &Size) -> Size {
            *x
        }
        fn sub(&self, x: &Size, _: &Size) -> Size {
            *x
        }
        fn scale(&self, x: &Size, _: u64) -> Size {
            *x
        }
        fn weigh(&self, x: &Size, _: &[u64]) -> Size {
            *x
        }
        fn offset(&self, x: &Size, _: u64) -> Size {
            *x
        }
        fn shift(&self, x: &Size, s: u32) -> Size {
            Size { width: x.width + s, lanes: x.lanes }
        }
        fn low(&self, x: &Size, width: u32) -> Size {
            Size { width, lanes: x.lanes }
        }
        fn parity(&self, x: &Size) -> Lanes {
            Lanes(x.lanes)
        }
        fn narrow(&self, b: &Lanes) -> Size {
            Size { width: 1, lanes: b.0 }
        }
        fn xor(&self, a: &Lanes, _: &Lanes) -> Lanes {
            *a
        }
        fn not(&self, a: &Lanes) -> Lanes {
            *a
        }
        fn gather(&self, x: &Size, lanes: &[usize]) -> Size {
            Size { width: x.width, lanes: lanes.len() }
        }
        fn gather_bits(&self, _: &Lanes, lanes: &[usize]) -> Lanes {
            Lanes(lanes.len())
        }
        fn concat(&self, x: &[&Size]) -> Size {
            Size { width: x[0].width, lanes: x.iter().map(|x| x.lanes).sum() }
        }
        fn concat_bits(&self, b: &[&Lanes]) -> Lanes {
            Lanes(b.iter().map(|b| b.0).sum())
        }
    };
}

pub(crate) use local_blocks;
