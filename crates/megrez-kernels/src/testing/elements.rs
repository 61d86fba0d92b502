//! Ring arithmetic, packed bits, planes and circuits.

use super::{Suite, host, same};
use crate::{Circuit, Device, Reference, Wire};
use megrez_ring::{Word, bits};

impl<D: Device> Suite<D> {
    /// Ring arithmetic, element by element.
    pub fn elements(&self) {
        rings!(self.every_length());
    }

    fn every_length<W: Word>(&self) {
        self.lengths().iter().for_each(|&n| self.elements_of::<W>(n));
    }

    /// Ring arithmetic on `n` elements.
    pub fn elements_of<W: Word>(&self, n: usize) {
        let ring = W::BITS;
        let x: Vec<Vec<W>> = (0..20).map(|_| self.words(n)).collect();
        let c: Vec<W> = self.words(20);
        // Devices take operands in groups of four, eight or as they come.
        for terms in [0, 1, 2, 3, 4, 5, 8, 9, 17] {
            compare!(self, format!("combine {ring} {n} {terms}"), |d, up| {
                let bufs: Vec<_> = x[..terms].iter().map(|x| up!(x).clone()).collect();
                let terms: Vec<_> = c.iter().copied().zip(&bufs).collect();
                d.combine(&terms, c[19], n)
            });
        }
        for (products, terms) in [(1, 0), (1, 1), (2, 1), (2, 3), (3, 0), (4, 8), (5, 9), (9, 17), (1, 10)] {
            compare!(self, format!("products {ring} {n} {products} {terms}"), |d, up| {
                let bufs: Vec<_> = x.iter().map(|x| up!(x).clone()).collect();
                let products: Vec<_> =
                    (0..products).map(|i| (c[i], &bufs[i], &bufs[(2 * i + 1) % 20])).collect();
                let terms: Vec<_> = (0..terms).map(|i| (c[19 - i], &bufs[19 - i])).collect();
                d.products(&products, &terms)
            });
        }
        for ones in [W::ONE, W::ONE.neg()] {
            compare!(self, format!("combine of ones {ring} {n}"), |d, up| d.combine(
                &[(W::ONE, up!(&x[0])), (ones, up!(&x[1]))],
                W::ZERO,
                n
            ));
            compare!(self, format!("products of ones {ring} {n}"), |d, up| d
                .products(&[(ones, up!(&x[0]), up!(&x[1]))], &[(W::ONE, up!(&x[2])), (ones, up!(&x[3]))]));
        }
        for k in [0, 1, ring / 2, ring - 1] {
            compare!(self, format!("shift {ring} {n} {k}"), |d, up| d.shift_right(up!(&x[0]), k));
        }
        let stream = self.stream();
        compare!(self, format!("random {ring} {n}"), |d, up| d.random::<W>(&stream, n));
        compare!(self, format!("msb {ring} {n}"), |d, up| d.msb(up!(&x[0])));
        let bit = self.bits(n);
        compare!(self, format!("bit_times {ring} {n}"), |d, up| d.bit_times(up!(&bit), Some(up!(&x[0])), n));
        compare!(self, format!("bit {ring} {n}"), |d, up| d.bit_times::<W>(up!(&bit), None, n));
        for width in (1..=ring).filter(|w| if cfg!(miri) { w % 21 == 11 } else { n < 100 || w % 7 == 1 }) {
            let packed = bits::pack_low(x[0].iter().map(|x| x.to_u64()), width);
            compare!(self, format!("pack_low {ring} {n} {width}"), |d, up| d.pack_low(up!(&x[0]), width));
            compare!(self, format!("unpack_low {ring} {n} {width}"), |d, up| d.unpack_low::<W>(
                up!(&packed),
                width,
                n
            ));
        }
    }

    /// Packed bits.
    pub fn packed_bits(&self) {
        for n in self.lengths().iter().copied().chain([128, 512, 640, 4096, 16384, 20000]) {
            let inputs: Vec<_> = (0..17).map(|_| self.bits(n)).collect();
            let stream = self.stream();
            compare!(self, format!("random_bits {n}"), |d, up| d.random_bits(&stream, n));
            compare!(self, format!("and {n}"), |d, up| d.and(up!(&inputs[0]), up!(&inputs[1])));
            for count in [0, 1, 2, 3, 8, 9, 17] {
                for negate in [false, true] {
                    compare!(self, format!("xor {n} {count}"), |d, up| {
                        let bufs: Vec<_> = inputs[..count].iter().map(|x| up!(x).clone()).collect();
                        d.xor(&bufs.iter().collect::<Vec<_>>(), negate, n)
                    });
                }
            }
        }
        for lengths in [&[][..], &[0], &[64, 128], &[1, 2, 3, 0, 58, 65, 1], &[63; 9], &[700, 1, 20_000]] {
            let parts: Vec<Vec<u64>> = lengths.iter().map(|&n| self.bits(n)).collect();
            compare!(self, format!("join_bits {lengths:?}"), |d, up| {
                let parts: Vec<_> = parts.iter().map(|part| up!(part).clone()).collect();
                d.join_bits(&parts.iter().zip(lengths.iter().copied()).collect::<Vec<_>>())
            });
        }
    }

    /// Bit planes.
    pub fn planes(&self) {
        rings!(self.planes_of());
    }

    fn planes_of<W: Word>(&self) {
        let ring = W::BITS;
        for n in self.lengths().iter().copied().chain((!cfg!(miri)).then_some(4097)) {
            let x = self.words::<W>(n);
            for (from, count) in [(0, ring), (0, 1), (ring - 1, 1), (2, ring / 2)] {
                let what = format!("{ring} {n} {from} {count}");
                compare!(self, format!("bit_planes {what}"), |d, up| d.bit_planes(up!(&x), from, count));
                let planes = self.words::<u64>(bits::words(n) * count as usize);
                compare!(self, format!("join_planes {what}"), |d, up| d.join_planes::<W>(up!(&planes), n));
                compare!(self, format!("pack_planes {what}"), |d, up| d.pack_planes(
                    up!(&planes),
                    count as usize,
                    n
                ));
                let packed = self.bits(count as usize * n);
                compare!(self, format!("unpack_planes {what}"), |d, up| d.unpack_planes(
                    up!(&packed),
                    count as usize,
                    n
                ));
            }
        }
    }

    /// Circuits of every gate, with registers reused and constants folded; the last one needs more
    /// registers than a block of 128 threads has.
    pub fn circuits(&self) {
        // A large one again after a smaller one: what a device has made room for stays.
        let cases = [(0, 3), (200, 10), (900, 300), (400, 100), (900, 300)];
        for (gates, kept) in if cfg!(miri) { &cases[1..2] } else { &cases[..] } {
            let mut circuit = Circuit::default();
            let mut wires: Vec<Wire> = (0..5).map(|plane| circuit.input(0, plane)).collect();
            wires.extend((0..3).map(|plane| circuit.input(1, plane)));
            for _ in 0..*gates {
                let (a, b) = (wires[self.below(wires.len())], wires[self.below(wires.len())]);
                let wire = match self.below(5) {
                    0 | 1 => circuit.and(a, b),
                    2 | 3 => circuit.xor(a, b),
                    _ => circuit.not(a),
                };
                wires.push(wire);
            }
            circuit.output(wires[wires.len() - kept..].to_vec());
            circuit.output(vec![wires[0], Circuit::ZERO, wires[7]]);
            circuit.output(vec![]);
            let program = circuit.compile();
            for &words in if cfg!(miri) { &[1, 70][..] } else { &[0, 1, 31, 64, 65, 200, 300, 1100] } {
                if words > 300 && !self.thorough {
                    continue;
                }
                let (a, b) = (self.words::<u64>(5 * words), self.words::<u64>(3 * words));
                for output in 0..3 {
                    compare!(self, format!("circuit of {gates} on {words} words, {output}"), |d, up| d
                        .run_circuit(&program, &[up!(&a), up!(&b)], words)
                        .map(|mut out| out.swap_remove(output)));
                }
            }
        }
    }
}
