//! Bit planes: transposition between values and planes, and circuits on planes. See the methods of
//! [`crate::Device`].

use super::work::{Disjoint, at_every_level, parallel};
use crate::circuit::{GateKind, Program};
use megrez_prg::Level;
use megrez_ring::{Word, bits};

/// Words of each plane that are in work at a time.
const BLOCK: usize = 64;
/// Fewer lanes than this are one thread's work.
const WORTH_A_THREAD: usize = 1 << 15;

at_every_level! {
    /// Transposes 64 rows of 64 bits, lowest bit first, by swapping ever smaller off-diagonal
    /// squares.
    fn transpose<>(rows: &mut [u64; 64]) {
        let mut half = 32;
        let mut mask = u64::MAX >> 32;
        while half > 0 {
            for pair in rows.chunks_exact_mut(2 * half) {
                let (low, high) = pair.split_at_mut(half);
                for (low, high) in low.iter_mut().zip(high) {
                    let swap = (*low >> half ^ *high) & mask;
                    *low ^= swap << half;
                    *high ^= swap;
                }
            }
            half /= 2;
            mask ^= mask << half;
        }
    }
}

/// See [`crate::Device::bit_planes`].
pub fn bit_planes<W: Word>((level, threads): (Level, usize), x: &[W], from: u32, count: u32) -> Vec<u64> {
    let words = bits::words(x.len());
    let mut planes = vec![0; words * count as usize];
    let out = Disjoint::new(&mut planes);
    over_blocks(threads, words, |first, last| {
        for word in first..last {
            let mut rows = [0u64; 64];
            for (row, v) in rows.iter_mut().zip(&x[word * 64..]) {
                *row = v.to_u64();
            }
            transpose(level, &mut rows);
            for k in 0..count as usize {
                // SAFETY: every word index belongs to one block, so to one thread.
                let place = unsafe { out.part(k * words + word..k * words + word + 1) };
                place[0] = rows[from as usize + k];
            }
        }
    });
    planes
}

/// See [`crate::Device::join_planes`].
pub fn join_planes<W: Word>((level, threads): (Level, usize), planes: &[u64], n: usize) -> Vec<W> {
    let words = bits::words(n);
    let count = planes.len() / words.max(1);
    let mut joined = vec![W::ZERO; n];
    let out = Disjoint::new(&mut joined);
    over_blocks(threads, words, |first, last| {
        for word in first..last {
            let mut rows = [0u64; 64];
            for (k, row) in rows[..count].iter_mut().enumerate() {
                *row = planes[k * words + word];
            }
            transpose(level, &mut rows);
            // SAFETY: every word index belongs to one block, and the elements of different words
            // are apart.
            let out = unsafe { out.part(word * 64..n.min(word * 64 + 64)) };
            out.iter_mut().zip(&rows).for_each(|(o, &row)| *o = W::from_u64(row));
        }
    });
    joined
}

at_every_level! {
    fn combine<>(what: GateKind, out: &mut [u64], a: &[u64], b: &[u64]) {
        match what {
            GateKind::And => out.iter_mut().zip(a.iter().zip(b)).for_each(|(o, (a, b))| *o = a & b),
            GateKind::Xor => out.iter_mut().zip(a.iter().zip(b)).for_each(|(o, (a, b))| *o = a ^ b),
            GateKind::Not => out.iter_mut().zip(a).for_each(|(o, a)| *o = !a),
        }
    }
}

/// See [`crate::Device::run_circuit`].
pub fn run_circuit(
    (level, threads): (Level, usize),
    program: &Program,
    inputs: &[&[u64]],
    words: usize,
) -> Vec<Vec<u64>> {
    let mut outputs: Vec<Vec<u64>> = program.outputs.iter().map(|o| vec![0; o.len() * words]).collect();
    let shared: Vec<Disjoint<'_, u64>> = outputs.iter_mut().map(|o| Disjoint::new(o)).collect();
    over_blocks(threads, words, |first, last| {
        let mut registers = vec![0; program.registers as usize * BLOCK];
        for from in (first..last).step_by(BLOCK) {
            let count = BLOCK.min(last - from);
            // Register 0 holds zeros; a shorter last block lays the others anew.
            registers[..count].fill(0);
            program.run_block(
                inputs,
                (words, from, count),
                &mut registers[..program.registers as usize * count],
                |what, out, a, b| combine(level, what, out, a, b),
                |buffer, plane, found| {
                    let at = plane * words + from;
                    // SAFETY: planes are apart, and every block of words belongs to one thread.
                    unsafe { shared[buffer].part(at..at + count) }.copy_from_slice(found);
                },
            );
        }
    });
    outputs
}

/// Splits the words of planes among threads: `task(first, last)`.
fn over_blocks(threads: usize, words: usize, task: impl Fn(usize, usize) + Sync) {
    let threads = if words * 64 < WORTH_A_THREAD { 1 } else { threads };
    let size =
        if threads == 1 { words.max(1) } else { (words.div_ceil(threads * 4)).next_multiple_of(BLOCK) };
    parallel(threads, words.div_ceil(size), |i| task(i * size, words.min((i + 1) * size)));
}
