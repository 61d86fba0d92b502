//! Boolean circuits on bit planes: plane i holds bit i of many values, 64 values to a word, and a
//! gate works on whole planes.
//!
//! Protocols write a circuit once per shape of step, with [`Circuit`] as the builder: wires come
//! from planes of the inputs, gates from wires, and the outputs are lists of wires, one list per
//! output buffer. Gates on constants fold away, so a protocol may leave shares that are zero by
//! construction in its formulas. [`Circuit::compile`] gives every gate a register of a small file,
//! so that a block of lanes stays in the nearest cache from the first gate to the last.

/// A plane that a circuit reads or makes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Wire(u32);

#[derive(Clone, Copy)]
enum Gate {
    /// All zeros.
    Zero,
    /// A plane of an input buffer.
    Input {
        buffer: u32,
        plane: u32,
    },
    And(Wire, Wire),
    Xor(Wire, Wire),
    Not(Wire),
}

/// A circuit that is being written.
pub struct Circuit {
    gates: Vec<Gate>,
    outputs: Vec<Vec<Wire>>,
}

impl Default for Circuit {
    fn default() -> Self {
        Circuit { gates: vec![Gate::Zero], outputs: vec![] }
    }
}

impl Circuit {
    /// The plane of zeros.
    pub const ZERO: Wire = Wire(0);

    /// Plane `plane` of input buffer `buffer`.
    pub fn input(&mut self, buffer: usize, plane: usize) -> Wire {
        self.gate(Gate::Input { buffer: buffer as u32, plane: plane as u32 })
    }

    /// a ∧ b.
    pub fn and(&mut self, a: Wire, b: Wire) -> Wire {
        match (a, b) {
            (Self::ZERO, _) | (_, Self::ZERO) => Self::ZERO,
            (a, b) if a == b => a,
            _ => self.gate(Gate::And(a, b)),
        }
    }

    /// a ⊕ b.
    pub fn xor(&mut self, a: Wire, b: Wire) -> Wire {
        match (a, b) {
            (Self::ZERO, x) | (x, Self::ZERO) => x,
            (a, b) if a == b => Self::ZERO,
            _ => self.gate(Gate::Xor(a, b)),
        }
    }

    /// The exclusive or of several wires.
    pub fn sum(&mut self, wires: &[Wire]) -> Wire {
        wires.iter().fold(Self::ZERO, |sum, &wire| self.xor(sum, wire))
    }

    /// ¬a. Lanes past the end become ones: whoever packs or stores the plane clears them.
    pub fn not(&mut self, a: Wire) -> Wire {
        self.gate(Gate::Not(a))
    }

    /// Adds an output buffer of these planes and returns its number.
    pub fn output(&mut self, planes: Vec<Wire>) -> usize {
        self.outputs.push(planes);
        self.outputs.len() - 1
    }

    fn gate(&mut self, gate: Gate) -> Wire {
        self.gates.push(gate);
        Wire((self.gates.len() - 1) as u32)
    }

    /// The program of the circuit: unused gates are dropped, the others keep their order and share
    /// registers.
    pub fn compile(&self) -> Program {
        let mut last_use = vec![0usize; self.gates.len()];
        for (at, gate) in self.gates.iter().enumerate() {
            match *gate {
                Gate::And(a, b) | Gate::Xor(a, b) => {
                    last_use[a.0 as usize] = at;
                    last_use[b.0 as usize] = at;
                }
                Gate::Not(a) => last_use[a.0 as usize] = at,
                Gate::Zero | Gate::Input { .. } => {}
            }
        }
        self.outputs.iter().flatten().for_each(|w| last_use[w.0 as usize] = usize::MAX);

        let mut program = Program { steps: vec![], outputs: vec![], registers: 1 };
        // Register 0 holds zeros.
        let mut places = vec![Operand::Register(0); self.gates.len()];
        let mut free: Vec<u32> = vec![];
        for (at, gate) in self.gates.iter().enumerate() {
            let (what, a, b) = match *gate {
                Gate::Zero => continue,
                Gate::Input { buffer, plane } => {
                    places[at] = Operand::Input { buffer, plane };
                    continue;
                }
                _ if last_use[at] == 0 => continue,
                Gate::And(a, b) => (GateKind::And, a, b),
                Gate::Xor(a, b) => (GateKind::Xor, a, b),
                Gate::Not(a) => (GateKind::Not, a, a),
            };
            let operands = [places[a.0 as usize], places[b.0 as usize]];
            // The result's register is taken before the operands' are freed: a step never reads
            // what it writes.
            let register = free.pop().unwrap_or_else(|| {
                program.registers += 1;
                program.registers - 1
            });
            for (i, wire) in [a, b].into_iter().enumerate() {
                match operands[i] {
                    Operand::Register(r)
                        if r != 0 && last_use[wire.0 as usize] == at && (i == 0 || a != b) =>
                    {
                        free.push(r);
                    }
                    _ => {}
                }
            }
            places[at] = Operand::Register(register);
            program.steps.push(Step { what, register, operands });
        }
        program.outputs =
            self.outputs.iter().map(|o| o.iter().map(|w| places[w.0 as usize]).collect()).collect();
        program
    }
}

/// What a gate computes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GateKind {
    /// a ∧ b.
    And,
    /// a ⊕ b.
    Xor,
    /// ¬a; the second operand is the first again.
    Not,
}

/// Where a plane is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operand {
    /// A plane of an input.
    Input {
        /// The input.
        buffer: u32,
        /// The plane in it.
        plane: u32,
    },
    /// A plane that a gate has made; register 0 holds zeros.
    Register(u32),
}

pub(crate) struct Step {
    pub what: GateKind,
    pub register: u32,
    pub operands: [Operand; 2],
}

/// A compiled circuit: see [`crate::Device::run_circuit`].
pub struct Program {
    pub(crate) steps: Vec<Step>,
    pub(crate) outputs: Vec<Vec<Operand>>,
    pub(crate) registers: u32,
}

impl Program {
    /// How many gates run per lane.
    pub fn gates(&self) -> usize {
        self.steps.len()
    }

    /// The gates in the order in which they run: kind, register of the result, operands.
    pub fn steps(&self) -> impl Iterator<Item = (GateKind, u32, [Operand; 2])> {
        self.steps.iter().map(|s| (s.what, s.register, s.operands))
    }

    /// The planes of each output.
    pub fn outputs(&self) -> &[Vec<Operand>] {
        &self.outputs
    }

    /// How many registers the gates name, register 0 among them.
    pub fn registers(&self) -> usize {
        self.registers as usize
    }

    /// Runs every gate on words [from, from + count) of planes of `words` words; `registers` holds
    /// `self.registers · count` words, the first `count` of them zero. `emit` gets (output buffer,
    /// plane, the words).
    pub(crate) fn run_block(
        &self,
        inputs: &[&[u64]],
        (words, from, count): (usize, usize, usize),
        registers: &mut [u64],
        combine: impl Fn(GateKind, &mut [u64], &[u64], &[u64]),
        mut emit: impl FnMut(usize, usize, &[u64]),
    ) {
        for step in &self.steps {
            let target = step.register as usize * count;
            let (below, rest) = registers.split_at_mut(target);
            let (out, above) = rest.split_at_mut(count);
            let place = |operand: Operand| match operand {
                Operand::Input { buffer, plane } => {
                    &inputs[buffer as usize][plane as usize * words + from..][..count]
                }
                Operand::Register(r) if (r as usize) < step.register as usize => {
                    &below[r as usize * count..][..count]
                }
                Operand::Register(r) => &above[(r as usize - step.register as usize - 1) * count..][..count],
            };
            combine(step.what, out, place(step.operands[0]), place(step.operands[1]));
        }
        for (buffer, planes) in self.outputs.iter().enumerate() {
            for (plane, &operand) in planes.iter().enumerate() {
                let found = match operand {
                    Operand::Input { buffer, plane } => {
                        &inputs[buffer as usize][plane as usize * words + from..][..count]
                    }
                    Operand::Register(r) => &registers[r as usize * count..][..count],
                };
                emit(buffer, plane, found);
            }
        }
    }

    /// Runs the program in the plainest way.
    pub(crate) fn run(&self, inputs: &[&[u64]], words: usize) -> Vec<Vec<u64>> {
        let mut outputs: Vec<Vec<u64>> = self.outputs.iter().map(|o| vec![0; o.len() * words]).collect();
        let mut registers = vec![0; self.registers as usize];
        for at in 0..words {
            let combine = |what, out: &mut [u64], a: &[u64], b: &[u64]| {
                out[0] = match what {
                    GateKind::And => a[0] & b[0],
                    GateKind::Xor => a[0] ^ b[0],
                    GateKind::Not => !a[0],
                };
            };
            self.run_block(inputs, (words, at, 1), &mut registers, combine, |buffer, plane, found| {
                outputs[buffer][plane * words + at] = found[0];
            });
        }
        outputs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gates_fold_share_registers_and_compute() {
        let mut c = Circuit::default();
        let [a, b, d] = [c.input(0, 0), c.input(0, 1), c.input(1, 0)];
        let ab = c.and(a, b);
        let sum = c.sum(&[ab, d, Circuit::ZERO]);
        let zero = c.xor(sum, sum);
        let unused = c.and(sum, a);
        let _ = c.not(unused);
        let not = c.not(sum);
        let chain = (0..20).fold(sum, |x, _| c.xor(x, a));
        c.output(vec![sum, zero, a]);
        c.output(vec![not, chain]);
        let program = c.compile();
        assert!(program.registers < 8, "{}", program.registers);
        let (x, y) = ([0b1100, 7, 0b1010, 7], [0b0110, 7]);
        let out = program.run(&[&x, &y], 2);
        let sum = (0b1100 & 0b1010) ^ 0b0110;
        assert_eq!(out[0], [sum, 0, 0, 0, 0b1100, 7]);
        assert_eq!(out[1], [!sum, !0, sum, 0]);
    }
}
