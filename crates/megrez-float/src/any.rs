//! Blocks of whichever supplier behind one type: programs are written against [`AnyBlocks`], and
//! are compiled once, however many suppliers there are.
//!
//! A supplier has types of its own for integers and bits, as [`Blocks`] says. In programs these are
//! handles, which the supplier that made them opens; a handle is one for all lanes of a vector.
//! What everybody knows is no handle ([`Mixed`]).

use crate::blocks::{self, Blocks};
use crate::clear::{Bits, Clear, Ints};
use bytemuck::TransparentWrapper;
use std::any;
use std::borrow::Cow;
use std::sync::{Arc, Mutex, PoisonError};

/// The blocks of some supplier, beside which what everybody knows is computed in the clear.
#[derive(TransparentWrapper)]
#[repr(transparent)]
pub struct AnyBlocks(pub(crate) Object);
/// Integers of one width, secret or known.
pub type Int = Mixed<Handle, Ints>;
/// Bits, secret or known.
pub type Bit = Mixed<Handle, Bits>;

/// A vector that is secret, or that everybody knows.
#[derive(Clone)]
pub enum Mixed<S, K> {
    /// A supplier has it.
    Secret(S),
    /// It is this.
    Known(K),
}

// Jobs of programs.

/// What is known of a top bit, in a program.
pub type Msb<'a> = blocks::Msb<'a, AnyBlocks>;
/// One side of a multiplication, in a program.
pub type Factor<'a> = blocks::Factor<'a, AnyBlocks>;
/// A product, in a program.
pub type Multiply<'a> = blocks::Multiply<'a, AnyBlocks>;
/// A selection, in a program.
pub type Select<'a> = blocks::Select<'a, AnyBlocks>;
/// A sum of bits times public numbers, in a program.
pub type Tally<'a> = blocks::Tally<'a, AnyBlocks>;
/// A widening, in a program.
pub type Extend<'a> = blocks::Extend<'a, AnyBlocks>;
/// Truncations of one integer, in a program.
pub type Truncate<'a> = blocks::Truncate<'a, AnyBlocks>;
/// A look-up, in a program.
pub type Lookup<'a> = blocks::Lookup<'a, AnyBlocks>;
/// A looked-up row, or what was selected, in a program.
pub type Row = blocks::Row<AnyBlocks>;

const ONE: &str = "a program has one supplier";

/// Why a program failed: an error of its supplier.
pub struct Failure(Box<dyn any::Any + Send>);

impl Failure {
    fn new<E: Send + 'static>(error: E) -> Self {
        Self(Box::new(error))
    }

    fn of<E: 'static>(self) -> E {
        *self.0.downcast().unwrap_or_else(|_| unreachable!("{ONE}"))
    }
}

/// Integers or bits as a supplier has them.
#[derive(Clone)]
pub struct Handle(Arc<dyn any::Any + Send + Sync>);

impl Handle {
    fn new<T: Send + Sync + 'static>(x: T) -> Self {
        Self(Arc::new(x))
    }

    fn of<T: 'static>(&self) -> &T {
        self.0.downcast_ref().expect(ONE)
    }
}

/// Runs a program on the blocks of a supplier.
///
/// # Errors
/// Those of the supplier.
pub fn on<B: Blocks + 'static, T>(
    b: &mut B,
    program: impl FnOnce(&mut AnyBlocks) -> Result<T, Failure>,
) -> Result<T, B::Error> {
    program(AnyBlocks::wrap_mut(b)).map_err(Failure::of)
}

impl AnyBlocks {
    /// Integers as the supplier holds public ones, which a program takes for secret: to see what
    /// secret ones cost.
    #[must_use]
    pub fn secret_ints(&self, width: u32, v: &[u64]) -> Int {
        Mixed::Secret(self.0.public(width, v))
    }
}

/// Runs a program in the clear. Numbers that are [`secret`](crate::Plain::secret) go through the
/// blocks of [`Clear`]; nothing is had from their being known.
pub fn in_the_clear<T>(program: impl FnOnce(&mut AnyBlocks) -> Result<T, Failure>) -> T {
    let Ok(result) = on(&mut Clear, program);
    result
}

/// A supplier's integers in a program.
pub fn secret_ints<B: Blocks>(x: B::Int) -> Int {
    Mixed::Secret(Handle::new(x))
}

/// A supplier's bits in a program.
pub fn secret_bits<B: Blocks>(x: B::Bit) -> Bit {
    Mixed::Secret(Handle::new(x))
}

/// A program's integers as its supplier has them, also if everybody knows them.
pub fn supplied_ints<'a, B: Blocks>(b: &B, x: &'a Int) -> Cow<'a, B::Int> {
    match x {
        Mixed::Secret(x) => Cow::Borrowed(x.of::<B::Int>()),
        Mixed::Known(x) => Cow::Owned(b.public(x.width, &x.v)),
    }
}

/// A program's bits as its supplier has them, also if everybody knows them.
pub fn supplied_bits<'a, B: Blocks>(b: &B, x: &'a Bit) -> Cow<'a, B::Bit> {
    match x {
        Mixed::Secret(x) => Cow::Borrowed(x.of::<B::Bit>()),
        Mixed::Known(x) => Cow::Owned(b.public_bits(&x.0.iter().map(|&v| v == 1).collect::<Vec<_>>())),
    }
}

/// Integers of a program that ran in the clear.
#[must_use]
pub fn plain_ints(x: &Int) -> Ints {
    supplied_ints(&Clear, x).into_owned()
}

/// Bits of a program that ran in the clear.
#[must_use]
pub fn plain_bits(x: &Bit) -> Bits {
    supplied_bits(&Clear, x).into_owned()
}

/// A supplier behind its handles.
pub type Object = dyn Erased;
type Results<T> = Result<Vec<T>, Failure>;

/// One of the [`parts`](Blocks::parts) of a program.
pub type Part<'a> = &'a (dyn Fn(&mut Object, usize) -> Result<(), Failure> + Sync);

/// Does something with every local function of [`Blocks`] but those of many vectors.
macro_rules! local {
    ($do:ident) => {
        $do! {
            lanes(x: int) -> count;
            bit_lanes(x: bit) -> count;
            width(x: int) -> width;
            public(w: width, v: numbers) -> int;
            public_bits(v: flags) -> bit;
            add(x: int, y: int) -> int;
            sub(x: int, y: int) -> int;
            scale(x: int, k: number) -> int;
            weigh(x: int, k: numbers) -> int;
            offset(x: int, k: number) -> int;
            shift(x: int, s: width) -> int;
            low(x: int, w: width) -> int;
            parity(x: int) -> bit;
            narrow(b: bit) -> int;
            xor(x: bit, y: bit) -> bit;
            not(x: bit) -> bit;
            gather(x: int, lanes: places) -> int;
            gather_bits(b: bit, lanes: places) -> bit;
        }
    };
}

/// Does something with every interactive one.
macro_rules! interactive {
    ($do:ident) => {
        $do! {
            and((&Handle, &Handle)) -> Handle, pair, Handle::new;
            select(blocks::Select<'_, Object>) -> blocks::Row<Object>, selection, row;
            widen((&Handle, u32)) -> Handle, bit_and_width, Handle::new;
            tally(blocks::Tally<'_, Object>) -> Handle, sum, Handle::new;
            negative(&Handle) -> Handle, int, Handle::new;
            negative_zero(&Handle) -> (Handle, Handle), int, two;
            is_zero(&Handle) -> Handle, int, Handle::new;
            lookup(blocks::Lookup<'_, Object>) -> blocks::Row<Object>, index, row;
            extend(blocks::Extend<'_, Object>) -> Handle, extension, Handle::new;
            truncate(blocks::Truncate<'_, Object>) -> Vec<Handle>, truncation, handles;
            sticky((&Handle, u32)) -> Handle, int_and_width, Handle::new;
            multiply(blocks::Multiply<'_, Object>) -> Handle, product, Handle::new;
            leading((&Handle, u32)) -> blocks::Leading<Object>, int_and_width, top;
            round((&Handle, u32)) -> Handle, int_and_width, Handle::new;
        }
    };
}

/// The type of an argument or result, an argument as the supplier has it, and a result of it.
#[rustfmt::skip]
macro_rules! kind {
    (of int) => { Handle };
    (of bit) => { Handle };
    (of width) => { u32 };
    (of count) => { usize };
    (int) => { &Handle };
    (bit) => { &Handle };
    (number) => { u64 };
    (width) => { u32 };
    (numbers) => { &[u64] };
    (flags) => { &[bool] };
    (places) => { &[usize] };
    (int $x:ident) => { $x.of::<B::Int>() };
    (bit $x:ident) => { $x.of::<B::Bit>() };
    ($other:ident $x:ident) => { $x };
    (int, $result:expr) => { Handle::new($result) };
    (bit, $result:expr) => { Handle::new($result) };
    ($other:ident, $result:expr) => { $result };
}

macro_rules! declare {
    ($($name:ident($($x:ident: $kind:ident),*) -> $out:ident;)*) => {
        $(#[doc(hidden)] fn $name(&self, $($x: kind!($kind)),*) -> kind!(of $out);)*
    };
    ($($name:ident($job:ty) -> $result:ty, $of:expr, $out:expr;)*) => {
        $(#[doc(hidden)] fn $name(&mut self, jobs: &[$job]) -> Results<$result>;)*
    };
}

/// [`Blocks`] whose types are handles. Every supplier's blocks are that; nobody writes one by hand.
pub trait Erased {
    #[doc(hidden)]
    fn threads(&self) -> usize;
    #[doc(hidden)]
    fn parts(&mut self, n: usize, part: Part<'_>) -> Result<(), Failure>;
    #[doc(hidden)]
    fn concat(&self, x: &[&Handle]) -> Handle;
    #[doc(hidden)]
    fn concat_bits(&self, b: &[&Handle]) -> Handle;
    local!(declare);
    interactive!(declare);
}

macro_rules! of_any {
    ($($name:ident($($x:ident: $kind:ident),*) -> $out:ident;)*) => {
        $(fn $name(&self, $($x: kind!($kind)),*) -> kind!(of $out) {
            Erased::$name(self, $($x),*)
        })*
    };
    ($($name:ident($job:ty) -> $result:ty, $of:ident, $out:expr;)*) => {
        $(fn $name(&mut self, jobs: &[$job]) -> Results<$result> {
            Erased::$name(self, jobs)
        })*
    };
}

impl Blocks for Object {
    type Int = Handle;
    type Bit = Handle;
    type Error = Failure;

    fn threads(&self) -> usize {
        Erased::threads(self)
    }
    fn parts<T: Send>(
        &mut self,
        n: usize,
        part: impl Fn(&mut Self, usize) -> Result<T, Failure> + Sync,
    ) -> Results<T> {
        let results: Vec<Mutex<Option<T>>> = (0..n).map(|_| Mutex::new(None)).collect();
        Erased::parts(self, n, &|b, i| {
            let result = part(b, i)?;
            *results[i].lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
            Ok(())
        })?;
        let result = |cell: Mutex<Option<T>>| cell.into_inner().unwrap_or_else(PoisonError::into_inner);
        Ok(results.into_iter().map(|cell| result(cell).expect("every part ran")).collect())
    }
    fn concat(&self, x: &[&Handle]) -> Handle {
        Erased::concat(self, x)
    }
    fn concat_bits(&self, b: &[&Handle]) -> Handle {
        Erased::concat_bits(self, b)
    }
    local!(of_any);
    interactive!(of_any);
}

macro_rules! of_supplier {
    ($($name:ident($($x:ident: $kind:ident),*) -> $out:ident;)*) => {
        $(fn $name(&self, $($x: kind!($kind)),*) -> kind!(of $out) {
            kind!($out, Blocks::$name(self, $(kind!($kind $x)),*))
        })*
    };
    ($($name:ident($job:ty) -> $result:ty, $of:ident, $out:expr;)*) => {
        $(fn $name(&mut self, jobs: &[$job]) -> Results<$result> {
            let jobs: Vec<_> = jobs.iter().map($of::<B>).collect();
            let results = Blocks::$name(self, &jobs).map_err(Failure::new)?;
            Ok(results.into_iter().map($out).collect())
        })*
    };
}

impl<B: Blocks + 'static> Erased for B {
    fn threads(&self) -> usize {
        Blocks::threads(self)
    }
    fn parts(&mut self, n: usize, part: Part<'_>) -> Result<(), Failure> {
        let parts = Blocks::parts(self, n, |b, i| part(b, i).map_err(Failure::of::<B::Error>));
        parts.map(drop).map_err(Failure::new)
    }
    fn concat(&self, x: &[&Handle]) -> Handle {
        Handle::new(Blocks::concat(self, &x.iter().map(int::<B>).collect::<Vec<_>>()))
    }
    fn concat_bits(&self, b: &[&Handle]) -> Handle {
        Handle::new(Blocks::concat_bits(self, &b.iter().map(bit::<B>).collect::<Vec<_>>()))
    }
    local!(of_supplier);
    interactive!(of_supplier);
}

// Jobs as the supplier has them.

fn int<'a, B: Blocks>(x: &&'a Handle) -> &'a B::Int {
    x.of()
}

fn bit<'a, B: Blocks>(x: &&'a Handle) -> &'a B::Bit {
    x.of()
}

fn pair<'a, B: Blocks>(&(x, y): &(&'a Handle, &'a Handle)) -> (&'a B::Bit, &'a B::Bit) {
    (x.of(), y.of())
}

fn int_and_width<'a, B: Blocks>(&(x, width): &(&'a Handle, u32)) -> (&'a B::Int, u32) {
    (x.of(), width)
}

fn bit_and_width<'a, B: Blocks>(&(b, width): &(&'a Handle, u32)) -> (&'a B::Bit, u32) {
    (b.of(), width)
}

fn selection<'a, B: Blocks>(job: &blocks::Select<'a, Object>) -> blocks::Select<'a, B> {
    blocks::Select {
        bit: job.bit.of(),
        ints: job.ints.iter().map(int::<B>).collect(),
        bits: job.bits.iter().map(bit::<B>).collect(),
    }
}

fn sum<'a, B: Blocks>(job: &blocks::Tally<'a, Object>) -> blocks::Tally<'a, B> {
    blocks::Tally { terms: job.terms.iter().map(|&(bit, k)| (bit.of(), k)).collect(), width: job.width }
}

fn index<'a, B: Blocks>(job: &blocks::Lookup<'a, Object>) -> blocks::Lookup<'a, B> {
    blocks::Lookup { index: job.index.of(), table: job.table }
}

fn truncation<'a, B: Blocks>(job: &blocks::Truncate<'a, Object>) -> blocks::Truncate<'a, B> {
    blocks::Truncate { x: job.x.of(), cuts: job.cuts }
}

fn top_bit<'a, B: Blocks>(msb: &blocks::Msb<'a, Object>) -> blocks::Msb<'a, B> {
    match *msb {
        blocks::Msb::Unknown => blocks::Msb::Unknown,
        blocks::Msb::Zero => blocks::Msb::Zero,
        blocks::Msb::One => blocks::Msb::One,
        blocks::Msb::Shared(bit) => blocks::Msb::Shared(bit.of()),
    }
}

fn extension<'a, B: Blocks>(job: &blocks::Extend<'a, Object>) -> blocks::Extend<'a, B> {
    blocks::Extend { x: job.x.of(), width: job.width, signed: job.signed, msb: top_bit(&job.msb) }
}

fn factor<'a, B: Blocks>(x: &blocks::Factor<'a, Object>) -> blocks::Factor<'a, B> {
    blocks::Factor { x: x.x.of(), signed: x.signed, msb: top_bit(&x.msb) }
}

fn product<'a, B: Blocks>(job: &blocks::Multiply<'a, Object>) -> blocks::Multiply<'a, B> {
    blocks::Multiply { x: factor(&job.x), y: factor(&job.y), width: job.width }
}

// Results as handles.

fn handles<T: Send + Sync + 'static>(all: Vec<T>) -> Vec<Handle> {
    all.into_iter().map(Handle::new).collect()
}

fn two<T: Send + Sync + 'static>((x, y): (T, T)) -> (Handle, Handle) {
    (Handle::new(x), Handle::new(y))
}

fn row<B: Blocks>(row: blocks::Row<B>) -> blocks::Row<Object> {
    blocks::Row { ints: handles(row.ints), bits: handles(row.bits) }
}

fn top<B: Blocks>(blocks::Leading { scale, position, zero }: blocks::Leading<B>) -> blocks::Leading<Object> {
    blocks::Leading { scale: Handle::new(scale), position: Handle::new(position), zero: Handle::new(zero) }
}
