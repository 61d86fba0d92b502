//! The differential suite: every device equals [`Reference`] bit for bit. A device instantiates it
//! in its own tests.

// Cases in the order of [`Device`] and of the fused steps.
macro_rules! compare {
    ($suite:expr, $what:expr, |$d:ident, $up:ident| $call:expr) => {{
        let found = {
            let $d = &$suite.device;
            #[allow(unused_macros, reason = "not every call has operands")]
            macro_rules! $up {
                ($data:expr) => {
                    &$suite.up($data)
                };
            }
            $suite.down($call.unwrap())
        };
        let expected = {
            let $d = &Reference;
            #[allow(unused_macros, reason = "not every call has operands")]
            macro_rules! $up {
                ($data:expr) => {
                    &host($data)
                };
            }
            $call.unwrap()
        };
        same(&$what, found, &expected);
    }};
}

/// One call for each ring.
macro_rules! rings {
    ($suite:ident.$check:ident()) => {
        $suite.$check::<u8>();
        $suite.$check::<u16>();
        $suite.$check::<u32>();
        if $suite.device.has_ring(40) {
            $suite.$check::<megrez_ring::U40>();
            $suite.$check::<megrez_ring::U48>();
        }
        $suite.$check::<u64>();
    };
}
mod elements;
mod fused;
mod products;
mod structure;

use crate::{Device, Elem, Memory, Reference};
use megrez_prg::{RootKey, Stream};
use megrez_ring::{U40, U48, Word, bits};
use std::any::TypeId;
use std::cell::Cell;

/// A device beside the reference.
pub struct Suite<D: Device> {
    /// The device.
    pub device: D,
    /// Whether the device is fast enough for all sizes.
    pub thorough: bool,
    seed: Cell<u64>,
}

/// The elements on the host that the reference works on. It sees nothing that stands above a narrow
/// ring, where the device does: so no result depends on that, whatever it is made of.
pub fn host<T: Elem>(data: &[T]) -> <Reference as Memory>::Buf<T> {
    let mut data = data.to_vec();
    for (word, bits) in [(TypeId::of::<U40>(), U40::BITS), (TypeId::of::<U48>(), U48::BITS)] {
        if TypeId::of::<T>() == word {
            bytemuck::cast_slice_mut::<T, u64>(&mut data)
                .iter_mut()
                .for_each(|x| *x &= u64::MAX >> (64 - bits));
        }
    }
    data.into()
}

/// Compares two results without printing thousands of words.
fn same<T: PartialEq + std::fmt::Debug>(what: &str, found: Vec<T>, expected: &[T]) {
    assert_eq!(found.len(), expected.len(), "{what}: length");
    if let Some(i) = (0..found.len()).find(|&i| found[i] != expected[i]) {
        panic!("{what}: element {i} of {} is {:?}, not {:?}", found.len(), found[i], expected[i]);
    }
}

impl<D: Device> Suite<D> {
    /// A suite for a device that is as fast as this machine, or one that is much slower.
    pub fn new(device: D, thorough: bool) -> Self {
        Suite { device, thorough: thorough && !cfg!(miri), seed: Cell::new(0) }
    }

    /// Everything but lists, whose algebra is a protocol's.
    pub fn run(&self) {
        self.elements();
        self.packed_bits();
        self.planes();
        self.circuits();
        self.matrices();
        self.public_matrices();
        self.images();
        self.structure();
        self.openings();
        self.signed_sums();
        self.bit_products();
        self.sign_tables();
        self.lookup_tables();
        self.lookup_keys();
        self.comparison_keys();
    }

    /// Lengths around words, vectors, packing groups, blocks and chunks.
    fn lengths(&self) -> &'static [usize] {
        match self.thorough {
            _ if cfg!(miri) => &[0, 1, 65],
            false => &[0, 1, 7, 31, 64, 65, 200, 511, 513, 1300],
            true => &[0, 1, 7, 31, 63, 64, 65, 127, 200, 511, 513, 1025, 1300, 2083],
        }
    }

    /// A new stream.
    pub fn stream(&self) -> Stream {
        self.seed.set(self.seed.get() + 1);
        RootKey::from_bytes([11; 32]).derive(&self.seed.get().to_le_bytes()).stream()
    }

    /// Uniform elements.
    pub fn words<W: Word>(&self, n: usize) -> Vec<W> {
        self.stream().words(n).into_iter().map(W::from_u64).collect()
    }

    /// Uniform bits.
    pub fn bits(&self, n: usize) -> Vec<u64> {
        let mut words = self.words(bits::words(n));
        bits::clear_tail(&mut words, n);
        words
    }

    /// A number below `n`.
    pub fn below(&self, n: usize) -> usize {
        (self.words::<u64>(1)[0] % n as u64) as usize
    }

    /// Elements on the device.
    pub fn up<T: Elem>(&self, data: &[T]) -> D::Buf<T> {
        self.device.upload(data.to_vec()).unwrap()
    }

    /// Compares what the device made.
    pub fn same<T: Elem + PartialEq + std::fmt::Debug>(&self, what: &str, found: D::Buf<T>, expected: &[T]) {
        same(what, self.down(found), expected);
    }

    /// Elements from the device.
    pub fn down<T: Elem>(&self, buf: D::Buf<T>) -> Vec<T> {
        self.device.download(buf).unwrap()
    }
}

/// The suite as tests, one for each of its parts; `$suites` makes the suites of the devices that
/// this machine has.
#[macro_export]
macro_rules! differential_tests {
    ($suites:expr) => {
        $crate::differential_tests! { $suites =>
            elements packed_bits planes circuits matrices public_matrices images structure openings signed_sums bit_products sign_tables lookup_tables
            lookup_keys
            comparison_keys
        }
    };
    ($suites:expr => $($part:ident)*) => {$(
        #[test]
        fn $part() {
            for suite in $suites {
                suite.$part();
            }
        }
    )*};
}
