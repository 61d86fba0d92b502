//! A device that computes with symbols: what every kernel makes of linear forms. What is not linear
//! in labels becomes a rest.

mod fused;

use super::deps::Deps;
use super::form::{Rows, Run, Symbols, Unit};
use super::world::World;
use megrez_kernels::{Device, DeviceError, Elem, Field, GateKind, Memory, Operand, Placement, Program};
use megrez_plan::{ConvGeometry, View};
use megrez_prg::Stream;
use megrez_ring::{Shape, Word, bits};
use megrez_session::Name;
use megrez_weights::Matrix;
use std::sync::{Arc, Mutex, PoisonError};

/// One party's device.
#[derive(Clone)]
pub struct Symbolic {
    pub(super) me: usize,
    pub(super) world: Arc<World>,
    /// What the next elements from the host are, where they are not public: an owner's message.
    expected: Arc<Mutex<Option<(Name, Rows)>>>,
    /// What was last given to the host.
    given: Arc<Mutex<Option<Arc<Rows>>>>,
}

type Result<T> = std::result::Result<T, DeviceError>;

/// Rearrangements in more pieces than this are not followed: their elements are rests.
const PIECES: usize = 1 << 12;

fn mask_of(bits: u32) -> u64 {
    u64::MAX >> (64 - bits)
}

fn unit_of(field: Field) -> Unit {
    field.prime().map_or(Unit::Low(field.bits()), Unit::Field)
}

fn made<T>(rows: Rows) -> Result<Symbols<T>> {
    Ok(Symbols::new(rows))
}

impl Symbolic {
    pub(super) fn new(me: usize, world: Arc<World>) -> Self {
        Symbolic { me, world, expected: Arc::default(), given: Arc::default() }
    }

    /// The next elements from the host, if there are so many, are these of an owner's message.
    pub(super) fn expect(&self, message: Option<(Name, Rows)>) {
        *self.expected.lock().unwrap_or_else(PoisonError::into_inner) = message;
    }

    /// What was last given to the host, once.
    pub(super) fn take_given(&self) -> Option<Arc<Rows>> {
        self.given.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// `n` elements that may be any function of the inputs.
    fn rest(&self, unit: Unit, inputs: &[&Rows], n: usize) -> Rows {
        Rows::new(unit, vec![Run { len: n, terms: vec![], deps: self.world.rest(inputs) }])
    }

    fn words<W: Word>(&self, x: &Symbols<W>, n: usize) -> Rows {
        x.rows.words(n).unwrap_or_else(|| self.rest(Unit::Word, &[&x.rows], n))
    }

    fn bits(&self, x: &Symbols<u64>, n: usize) -> Rows {
        x.rows.bits(n).unwrap_or_else(|| self.rest(Unit::Bit, &[&x.rows], n))
    }

    /// Elements by their positions in `x`, as runs.
    fn arranged(&self, x: &Rows, positions: impl Iterator<Item = Option<usize>>) -> Rows {
        let mut pieces: Vec<(Option<usize>, usize)> = vec![];
        let mut n = 0;
        for position in positions {
            n += 1;
            let full = pieces.len() > PIECES;
            match (pieces.last_mut(), position) {
                (Some((Some(start), len)), Some(at)) if *start + *len == at => *len += 1,
                (Some((None, len)), None) => *len += 1,
                _ if full => {}
                _ => pieces.push((position, 1)),
            }
        }
        match pieces.len() > PIECES {
            true => self.rest(x.unit, &[x], n),
            false => x.pieces(&pieces),
        }
    }
}

impl Memory for Symbolic {
    type Buf<T: Elem> = Symbols<T>;

    fn describe(&self) -> String {
        "symbols".into()
    }

    fn upload<T: Elem>(&self, data: Vec<T>) -> Result<Symbols<T>> {
        let expected = self.expected.lock().unwrap_or_else(PoisonError::into_inner).take();
        match expected.filter(|(_, rows)| rows.len() == data.len()) {
            Some((name, rows)) => {
                self.world.received_input(name, rows.clone());
                made(rows)
            }
            None => {
                // What the host makes of a value cannot be followed: nobody would know on what it
                // depends.
                let given = self.given.lock().unwrap_or_else(PoisonError::into_inner).take();
                if given
                    .is_some_and(|rows| rows.runs.iter().any(|r| !r.terms.is_empty() || !r.deps.is_empty()))
                {
                    self.world
                        .trouble(format!("a value of party {} goes to the host and comes back", self.me));
                }
                made(Rows::new(Unit::Raw, vec![Run::zero(data.len())]))
            }
        }
    }

    fn download<T: Elem>(&self, buf: Symbols<T>) -> Result<Vec<T>> {
        let n = buf.rows.host_len();
        // A message reaches its receiver as symbols.
        if !self.world.is_sent(self.me, &buf.rows) {
            *self.given.lock().unwrap_or_else(PoisonError::into_inner) = Some(buf.rows);
        }
        Ok(vec![T::default(); n])
    }
}

impl Device for Symbolic {
    fn combine<W: Word>(&self, terms: &[(W, &Symbols<W>)], _: W, n: usize) -> Result<Symbols<W>> {
        let inputs: Vec<(u64, Rows)> = terms.iter().map(|(c, x)| (c.to_u64(), self.words(x, n))).collect();
        let inputs: Vec<(u64, &Rows)> = inputs.iter().map(|(c, x)| (*c, x)).collect();
        made(Rows::sum(Unit::Word, &inputs, n, mask_of(W::BITS)))
    }

    fn products<W: Word>(
        &self,
        products: &[(W, &Symbols<W>, &Symbols<W>)],
        terms: &[(W, &Symbols<W>)],
    ) -> Result<Symbols<W>> {
        let n = products[0].1.rows.len();
        let factors: Vec<&Rows> = products.iter().flat_map(|(_, x, y)| [&*x.rows, &*y.rows]).collect();
        let rest = self.rest(Unit::Word, &factors, n);
        let terms: Vec<(u64, Rows)> = terms.iter().map(|(c, x)| (c.to_u64(), self.words(x, n))).collect();
        let mut inputs: Vec<(u64, &Rows)> = terms.iter().map(|(c, x)| (*c, x)).collect();
        inputs.push((1, &rest));
        made(Rows::sum(Unit::Word, &inputs, n, mask_of(W::BITS)))
    }

    fn shift_right<W: Word>(&self, x: &Symbols<W>, _: u32) -> Result<Symbols<W>> {
        made(self.rest(Unit::Word, &[&x.rows], x.rows.len()))
    }

    fn random<W: Word>(&self, stream: &Stream, n: usize) -> Result<Symbols<W>> {
        let unit = if W::BITS == 64 { Unit::Raw } else { Unit::Word };
        made(self.world.random(self.me, stream, unit, n))
    }

    /// A secret of this party, and no mask: it is not uniform.
    fn noise<W: Word>(&self, _: &Stream, _: u64, n: usize) -> Result<Symbols<W>> {
        let deps = self.world.input("noise", &format!("P{}'s own", self.me));
        made(Rows::new(Unit::Word, vec![Run { len: n, terms: vec![], deps }]))
    }

    fn matmul<W: Word>(
        &self,
        x: &Symbols<W>,
        y: &Symbols<W>,
        batch: usize,
        [m, _, n]: [usize; 3],
    ) -> Result<Symbols<W>> {
        made(self.rest(Unit::Word, &[&x.rows, &y.rows], batch * m * n))
    }

    fn times_public<W: Word>(&self, x: &Symbols<W>, matrix: &Matrix) -> Result<Symbols<W>> {
        made(self.rest(Unit::Word, &[&x.rows], x.rows.len() / matrix.rows() * matrix.columns()))
    }

    fn conv<W: Word>(
        &self,
        x: &Symbols<W>,
        x_shape: &Shape,
        w: &Symbols<W>,
        w_shape: &Shape,
        geometry: &ConvGeometry,
    ) -> Result<Symbols<W>> {
        let (x_dims, w_dims) = (x_shape.dims(), w_shape.dims());
        let [rows, columns] = geometry
            .output([x_dims[2], x_dims[3]], [w_dims[2], w_dims[3]])
            .expect("the plan's rules have checked it");
        made(self.rest(Unit::Word, &[&x.rows, &w.rows], x_dims[0] * w_dims[0] * rows * columns))
    }

    fn view<T: Elem>(&self, x: &Symbols<T>, view: &View) -> Result<Symbols<T>> {
        // Contiguous views make no call; what others repeat or reorder masks nothing by itself.
        let unit = if x.rows.unit == Unit::Raw { Unit::Word } else { x.rows.unit };
        made(self.rest(unit, &[&x.rows], view.shape.elements()))
    }

    fn view_bits(&self, x: &Symbols<u64>, view: &View) -> Result<Symbols<u64>> {
        let n = x.rows.len() * if x.rows.unit == Unit::Raw { 64 } else { 1 };
        let bits = self.bits(x, n);
        made(self.arranged(&bits, view.indices().map(Some)))
    }

    fn place<T: Elem>(&self, parts: &[Placement<'_, T, Self>], n: usize) -> Result<Symbols<T>> {
        let sources: Vec<&Rows> = parts.iter().map(|part| &*part.source.rows).collect();
        let planes = sources.iter().all(|rows| rows.unit == Unit::Bit && rows.len().is_multiple_of(64));
        if !planes {
            return made(self.rest(Unit::Word, &sources, n));
        }
        // Words of planes.
        let words: Vec<Vec<Vec<Run>>> = sources.iter().map(|rows| rows.parts(64)).collect();
        let mut places: Vec<(usize, usize, usize)> = vec![];
        for (number, part) in parts.iter().enumerate() {
            for (word, target) in part.target.indices().enumerate() {
                places.push((target, number, word));
            }
        }
        places.sort_unstable();
        let mut runs: Vec<Run> = vec![];
        let (mut at, mut filled) = (0, 0);
        while at < places.len() {
            let (target, number, word) = places[at];
            let mut len = 1;
            while places.get(at + len) == Some(&(target + len, number, word + len)) {
                len += 1;
            }
            if filled < target {
                runs.push(Run::zero((target - filled) * 64));
            }
            runs.extend(joined(&words[number][word..word + len]));
            (at, filled) = (at + len, target + len);
        }
        if filled < n {
            runs.push(Run::zero((n - filled) * 64));
        }
        made(Rows::new(Unit::Bit, runs))
    }

    fn gather<T: Elem>(
        &self,
        x: &Symbols<T>,
        [outer, _, inner]: [usize; 3],
        indices: &[usize],
    ) -> Result<Symbols<T>> {
        made(self.rest(Unit::Word, &[&x.rows], outer * indices.len() * inner))
    }

    fn sum<W: Word>(&self, x: &Symbols<W>, [outer, _, inner]: [usize; 3]) -> Result<Symbols<W>> {
        made(self.rest(Unit::Word, &[&x.rows], outer * inner))
    }

    fn random_bits(&self, stream: &Stream, n: usize) -> Result<Symbols<u64>> {
        made(self.world.random(self.me, stream, Unit::Bit, n))
    }

    fn xor(&self, inputs: &[&Symbols<u64>], _: bool, n: usize) -> Result<Symbols<u64>> {
        let inputs: Vec<Rows> = inputs.iter().map(|x| self.bits(x, n)).collect();
        let inputs: Vec<(u64, &Rows)> = inputs.iter().map(|x| (1, x)).collect();
        made(Rows::sum(Unit::Bit, &inputs, n, 1))
    }

    fn join_bits(&self, parts: &[(&Symbols<u64>, usize)]) -> Result<Symbols<u64>> {
        let runs = parts.iter().flat_map(|(x, n)| self.bits(x, *n).runs);
        made(Rows::new(Unit::Bit, runs.collect()))
    }

    fn and(&self, a: &Symbols<u64>, b: &Symbols<u64>) -> Result<Symbols<u64>> {
        let n = [a, b].map(|x| x.rows.len() * if x.rows.unit == Unit::Raw { 64 } else { 1 });
        made(self.rest(Unit::Bit, &[&a.rows, &b.rows], n[0].min(n[1])))
    }

    fn msb<W: Word>(&self, x: &Symbols<W>) -> Result<Symbols<u64>> {
        made(self.rest(Unit::Bit, &[&x.rows], x.rows.len()))
    }

    fn bit_times<W: Word>(
        &self,
        bits: &Symbols<u64>,
        x: Option<&Symbols<W>>,
        n: usize,
    ) -> Result<Symbols<W>> {
        let inputs: Vec<&Rows> = [Some(&*bits.rows), x.map(|x| &*x.rows)].into_iter().flatten().collect();
        made(self.rest(Unit::Word, &inputs, n))
    }

    fn pack_low<W: Word>(&self, x: &Symbols<W>, width: u32) -> Result<Symbols<u64>> {
        let rows = self.words(x, x.rows.len());
        let one = Rows::sum(Unit::Low(width), &[(1, &rows)], rows.len(), mask_of(width));
        made(one)
    }

    fn unpack_low<W: Word>(&self, x: &Symbols<u64>, _: u32, n: usize) -> Result<Symbols<W>> {
        made(self.rest(Unit::Word, &[&x.rows], n))
    }

    fn bit_planes<W: Word>(&self, x: &Symbols<W>, _: u32, count: u32) -> Result<Symbols<u64>> {
        let lanes = bits::words(x.rows.len()) * 64;
        let deps = self.world.rest(&[&x.rows]);
        let run = Run { len: lanes * count as usize, terms: vec![], deps };
        made(Rows::new(Unit::Bit, vec![run]))
    }

    fn join_planes<W: Word>(&self, x: &Symbols<u64>, n: usize) -> Result<Symbols<W>> {
        made(self.rest(Unit::Word, &[&x.rows], n))
    }

    fn pack_planes(&self, x: &Symbols<u64>, planes: usize, n: usize) -> Result<Symbols<u64>> {
        let lanes = bits::words(n) * 64;
        let x = self.bits(x, planes * lanes);
        let parts = x.parts(lanes).into_iter().take(planes);
        let runs = parts.flat_map(|plane| Rows::new(Unit::Bit, plane).cut(0, n));
        made(Rows::new(Unit::Bit, runs.collect()))
    }

    fn unpack_planes(&self, x: &Symbols<u64>, planes: usize, n: usize) -> Result<Symbols<u64>> {
        let lanes = bits::words(n) * 64;
        let x = self.bits(x, planes * n);
        let filled = |mut plane: Vec<Run>| {
            if lanes > n {
                plane.push(Run::zero(lanes - n));
            }
            plane
        };
        made(Rows::new(Unit::Bit, x.parts(n).into_iter().take(planes).flat_map(filled).collect()))
    }

    fn run_circuit(
        &self,
        program: &Program,
        inputs: &[&Symbols<u64>],
        words: usize,
    ) -> Result<Vec<Symbols<u64>>> {
        let lanes = words * 64;
        let planes = |x: &&Symbols<u64>| -> Vec<Rows> {
            let bits = self.bits(x, x.rows.len() * if x.rows.unit == Unit::Raw { 64 } else { 1 });
            bits.parts(lanes).into_iter().map(|plane| Rows::new(Unit::Bit, plane)).collect()
        };
        let inputs: Vec<Vec<Rows>> = inputs.iter().map(planes).collect();
        let zeros = Rows::new(Unit::Bit, vec![Run::zero(lanes)]);
        let mut registers = vec![Rows::new(Unit::Bit, vec![Run::zero(lanes)]); program.registers()];
        let place = |registers: &[Rows], operand: Operand| match operand {
            Operand::Register(r) => registers[r as usize].clone(),
            Operand::Input { buffer, plane } => {
                inputs[buffer as usize].get(plane as usize).unwrap_or(&zeros).clone()
            }
        };
        for (what, register, operands) in program.steps() {
            let [a, b] = operands.map(|operand| place(&registers, operand));
            registers[register as usize] = match what {
                GateKind::Not => a,
                GateKind::Xor => Rows::sum(Unit::Bit, &[(1, &a), (1, &b)], lanes, 1),
                GateKind::And => self.rest(Unit::Bit, &[&a, &b], lanes),
            };
        }
        let output = |planes: &Vec<Operand>| {
            let runs = planes.iter().flat_map(|&operand| place(&registers, operand).runs);
            made(Rows::new(Unit::Bit, runs.collect()))
        };
        program.outputs().iter().map(output).collect()
    }
}

/// Parts that follow each other as few runs.
fn joined(parts: &[Vec<Run>]) -> Vec<Run> {
    let mut runs: Vec<Run> = vec![];
    for run in parts.iter().flatten() {
        match runs.last_mut() {
            Some(last) if last.goes_on_in(run) => last.len += run.len,
            _ => runs.push(run.clone()),
        }
    }
    runs
}

/// Elements that an owner shares: any value, under all labels that its keys draw.
pub(super) fn shared_input(value: Deps, masks: &[Rows], n: usize) -> Rows {
    let value = Rows::new(Unit::Word, vec![Run { len: n, terms: vec![], deps: value }]);
    let terms: Vec<(u64, &Rows)> = masks.iter().chain([&value]).map(|rows| (1, rows)).collect();
    Rows::sum(Unit::Word, &terms, n, u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use megrez_plan::Plan;
    use megrez_prg::Key;

    /// Otherwise a step could open a secret as what the checker takes for a public number.
    #[test]
    fn a_value_that_goes_through_the_host_is_noticed() {
        let world = Arc::new(World::new(&[&Plan::new(64)], None));
        let device = Symbolic::new(0, world.clone());
        let secret = || device.random::<u64>(&Key::from_bytes([1; 32]).stream(), 3).unwrap();
        // Public words, and the share of an output that its recipient has got.
        let public = device.upload(vec![1u64; 3]).unwrap();
        device.upload(device.download(public).unwrap()).unwrap();
        device.download(secret()).unwrap();
        assert!(device.take_given().is_some());
        device.upload(vec![0u64; 3]).unwrap();
        assert_eq!(world.state().trouble, [""; 0]);
        device.upload(device.download(secret()).unwrap()).unwrap();
        assert_eq!(world.state().trouble.len(), 1);
        // What depends on a secret as well.
        let rest = device.shift_right(&secret(), 1).unwrap();
        device.upload(device.download(rest).unwrap()).unwrap();
        assert_eq!(world.state().trouble.len(), 2);
    }
}
