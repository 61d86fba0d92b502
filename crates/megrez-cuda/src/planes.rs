//! Bit planes, dense bits, sign tables and circuits: which kernel, and a circuit in the form that
//! the kernel reads.

use crate::backend::Launch;
use crate::backend::Result;
use crate::memory::Buf;
use crate::source::Unit;
use crate::{Cuda, args};
use bytemuck::{Pod, Zeroable};
use megrez_kernels::{GateKind, Operand, Program, SignTables};
use megrez_ring::{Word, bits};

/// Values per thread of the kernels between elements and planes.
const PER_THREAD: usize = 8;
/// As many registers as the kernel can name.
const MOST_REGISTERS: usize = 4096;

/// The kernel's `Step`.
#[repr(C)]
#[derive(Clone, Copy, Default, Pod, Zeroable)]
struct Step {
    a: u64,
    b: u64,
    to: u64,
    what: u32,
    unused: u32,
}

const STORE: u32 = 3;

fn number(gate: GateKind) -> u32 {
    match gate {
        GateKind::And => 0,
        GateKind::Xor => 1,
        GateKind::Not => 2,
    }
}

impl Cuda {
    pub(crate) fn split_planes<W: Word>(&self, x: &Buf<W>, from: u32, count: u32) -> Result<Buf<u64>> {
        let words = bits::words(x.len());
        self.made(words * count as usize, |out| {
            let args = args![x.at(), from, count, out, x.len() as u64, words as u64];
            self.run(&Unit::planes(W::BITS), "bit_planes", words * 64 / PER_THREAD, args)
        })
    }

    pub(crate) fn joined_planes<W: Word>(&self, x: &Buf<u64>, n: usize) -> Result<Buf<W>> {
        let words = bits::words(n);
        let planes = (x.len() / words.max(1)) as u32;
        self.made(n, |out| {
            let args = args![x.at(), planes, out, n as u64, words as u64];
            self.run(&Unit::planes(W::BITS), "join_planes", words * 64 / PER_THREAD, args)
        })
    }

    pub(crate) fn dense_planes(&self, x: &Buf<u64>, planes: usize, n: usize) -> Result<Buf<u64>> {
        let packed = bits::words(planes * n);
        self.made(packed, |out| {
            let sizes = [planes, n, bits::words(n), packed].map(|s| s as u64);
            let args = args![x.at(), out, sizes[0], sizes[1], sizes[2], sizes[3]];
            self.run(&Unit::circuit(), "pack_planes", packed, args)
        })
    }

    pub(crate) fn sparse_planes(&self, x: &Buf<u64>, planes: usize, n: usize) -> Result<Buf<u64>> {
        let words = bits::words(n);
        let total = planes * words;
        self.made(total, |out| {
            let args = args![x.at(), out, n as u64, words as u64, total as u64];
            self.run(&Unit::circuit(), "unpack_planes", total, args)
        })
    }

    pub(crate) fn joined_bits(&self, parts: &[(&Buf<u64>, usize)]) -> Result<Buf<u64>> {
        let words = bits::words(parts.iter().map(|(_, n)| n).sum());
        let memory = self.zeroed(words * 8)?;
        let mut filled = 0;
        for (part, n) in parts {
            // Parts that share a word are added one after the other.
            let touched = (filled + n).div_ceil(64) - filled / 64;
            let args = args![part.at(), filled as u64, memory.at(), *n as u64];
            self.run(&Unit::circuit(), "append_bits", touched, args)?;
            filled += n;
        }
        Ok(Buf::new(memory, words))
    }

    /// One buffer for every output of the circuit.
    pub(crate) fn gates(
        &self,
        program: &Program,
        inputs: &[&Buf<u64>],
        words: usize,
    ) -> Result<Vec<Buf<u64>>> {
        let outputs = program
            .outputs()
            .iter()
            .map(|planes| Ok(Buf::new(self.allocate(planes.len() * words * 8)?, planes.len() * words)));
        let outputs = outputs.collect::<Result<Vec<Buf<u64>>>>()?;
        let place = |operand: Operand| match operand {
            Operand::Register(register) => u64::from(register),
            Operand::Input { buffer, plane } => {
                inputs[buffer as usize].at() + plane as u64 * words as u64 * 8
            }
        };
        let mut steps: Vec<Step> = program
            .steps()
            .map(|(gate, register, [a, b])| Step {
                a: place(a),
                b: place(b),
                to: u64::from(register),
                what: number(gate),
                unused: 0,
            })
            .collect();
        for (output, planes) in outputs.iter().zip(program.outputs()) {
            steps.extend(planes.iter().enumerate().map(|(plane, &operand)| Step {
                a: place(operand),
                b: 0,
                to: output.at() + (plane * words * 8) as u64,
                what: STORE,
                unused: 0,
            }));
        }
        if words == 0 || steps.is_empty() {
            return Ok(outputs);
        }
        let registers = program.registers();
        let fits = |threads: usize| registers * threads * 8 <= self.backend.shared_memory();
        let threads = [128, 64, 32].into_iter().find(|&t| fits(t)).filter(|_| registers <= MOST_REGISTERS);
        let Some(threads) = threads else {
            return Err(
                self.failed(format!("a circuit of {registers} registers does not fit the shared memory"))
            );
        };
        let count = steps.len() as u32;
        let steps = megrez_kernels::Memory::upload(self, steps)?;
        let launch = Launch {
            grid: [words.div_ceil(threads), 1, 1],
            threads: threads as u32,
            shared: (registers * threads * 8) as u32,
        };
        self.launch(&Unit::circuit(), "run_circuit", launch, args![steps.at(), count, words as u64])?;
        Ok(outputs)
    }
}

impl SignTables for Cuda {
    fn sign_table<W: Word>(&self, cut: u32, width: u32, masks: &Buf<W>, bit: &Buf<u64>) -> Result<Buf<u64>> {
        let words = bits::words(masks.len() << (width - 1));
        self.made(words, |out| {
            let args = args![masks.at(), bit.at(), cut, width, out, masks.len() as u64];
            self.run(&Unit::planes(W::BITS), "sign_table", words * 64, args)
        })
    }

    fn look_up_sign<W: Word>(
        &self,
        cut: u32,
        width: u32,
        j: usize,
        masked: &Buf<W>,
        table: &Buf<u64>,
    ) -> Result<Buf<u64>> {
        let words = bits::words(masked.len());
        self.made(words, |out| {
            let args = args![masked.at(), table.at(), cut, width, j as u32, out, masked.len() as u64];
            self.run(&Unit::planes(W::BITS), "look_up_sign", words * 64, args)
        })
    }
}
