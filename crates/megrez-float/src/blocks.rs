//! The integer building blocks that floating point is written against: Table I of SECFLOAT, in
//! batches.
//!
//! An [`Int`](Blocks::Int) is a vector of secret integers, all of one public width w of 1 to 64
//! bits; on shares it is additive modulo 2^w. Whether it is unsigned or two's complement is for the
//! operation to say. A [`Bit`](Blocks::Bit) is a vector of secret bits; on shares it is additive
//! modulo 2. All vectors of a call have the same number of lanes unless a method says otherwise.
//! Widths and lanes are public, and a caller that mixes them up has a bug: implementations panic.
//!
//! Local operations cost nothing. Interactive ones take a slice of independent jobs and run them
//! all in the rounds of the most expensive one: callers collect whatever does not depend on each
//! other into one call. The functionality must not know who supplies the blocks: two parties with
//! oblivious transfer, a dealer, or [`Clear`](crate::Clear), which is the oracle of all of them.

/// What is known of an integer's most significant bit. With anything but [`Unknown`](Msb::Unknown)
/// the wrap of the shares is one AND away, and extension and multiplication need no comparison.
/// Zero and one are promises: on shares a broken one gives a wrong result, in the clear it panics.
pub enum Msb<'a, B: Blocks + ?Sized> {
    /// Nothing is known.
    Unknown,
    /// It is 0: the value is below 2^(w−1).
    Zero,
    /// It is 1: the value is at least 2^(w−1).
    One,
    /// It is this secret bit, for example the negated zero bit of a normalised mantissa.
    Shared(&'a B::Bit),
}

/// One side of a multiplication.
pub struct Factor<'a, B: Blocks + ?Sized> {
    /// The integer.
    pub x: &'a B::Int,
    /// Read as two's complement, otherwise as unsigned.
    pub signed: bool,
    /// What is known of its most significant bit.
    pub msb: Msb<'a, B>,
}

impl<'a, B: Blocks + ?Sized> Factor<'a, B> {
    /// An unsigned factor of which nothing is known.
    pub fn unsigned(x: &'a B::Int) -> Self {
        Self { x, signed: false, msb: Msb::Unknown }
    }

    /// An unsigned factor whose top bit is zero.
    pub fn small(x: &'a B::Int) -> Self {
        Self { x, signed: false, msb: Msb::Zero }
    }

    /// A two's complement factor of which nothing is known.
    pub fn signed(x: &'a B::Int) -> Self {
        Self { x, signed: true, msb: Msb::Unknown }
    }
}

/// A product x·y mod 2^width with width ≥ both operands' widths.
pub struct Multiply<'a, B: Blocks + ?Sized> {
    /// The first factor.
    pub x: Factor<'a, B>,
    /// The second factor.
    pub y: Factor<'a, B>,
    /// Bits of the result.
    pub width: u32,
}

/// A selection: everything in it is multiplied by one secret bit, for one OT each way.
pub struct Select<'a, B: Blocks + ?Sized> {
    /// The bit b.
    pub bit: &'a B::Bit,
    /// Integers x, of any widths; the result is b·x in the same widths.
    pub ints: Vec<&'a B::Int>,
    /// Bits c; the result is b ∧ c.
    pub bits: Vec<&'a B::Bit>,
}

/// A sum of secret bits times public numbers.
pub struct Tally<'a, B: Blocks + ?Sized> {
    /// The bits and their numbers.
    pub terms: Vec<(&'a B::Bit, u64)>,
    /// Bits of the result.
    pub width: u32,
}

/// Widening an integer of width w to `width` ≥ w bits without changing its value.
pub struct Extend<'a, B: Blocks + ?Sized> {
    /// The integer.
    pub x: &'a B::Int,
    /// Bits of the result.
    pub width: u32,
    /// Read as two's complement, otherwise as unsigned.
    pub signed: bool,
    /// What is known of its most significant bit.
    pub msb: Msb<'a, B>,
}

/// Truncations of one integer of width w at rising positions 0 < c_1 < … < c_k < w.
pub struct Truncate<'a, B: Blocks + ?Sized> {
    /// The integer.
    pub x: &'a B::Int,
    /// The positions.
    pub cuts: &'a [u32],
}

/// A public table of 2^w rows, at most 2^8; a row holds integers of public widths and then bits.
#[derive(Clone, Debug)]
pub struct Table {
    /// Bits of the index.
    pub index: u32,
    /// Widths of the integers in a row.
    pub ints: Vec<u32>,
    /// How many bits follow the integers in a row.
    pub bits: usize,
    /// Row after row: each integer, then each bit as 0 or 1.
    pub entries: Vec<u64>,
}

impl Table {
    /// The table whose row for index i is `row(i)`, integers reduced to their widths.
    #[must_use]
    pub fn new(index: u32, ints: &[u32], bits: usize, row: impl Fn(u64) -> Vec<u64>) -> Self {
        assert!(index <= 8, "a table has at most 256 rows");
        let widths: Vec<u32> = ints.iter().copied().chain(std::iter::repeat_n(1, bits)).collect();
        let mut entries = Vec::with_capacity(widths.len() << index);
        for i in 0..1 << index {
            let row = row(i);
            assert_eq!(row.len(), widths.len());
            entries.extend(row.iter().zip(&widths).map(|(v, &w)| v & mask(w)));
        }
        Self { index, ints: ints.to_vec(), bits, entries }
    }

    /// Entries of a row.
    #[must_use]
    pub fn columns(&self) -> usize {
        self.ints.len() + self.bits
    }
}

/// A look-up in a public table at a secret index.
pub struct Lookup<'a, B: Blocks + ?Sized> {
    /// The index, as wide as the table says.
    pub index: &'a B::Int,
    /// The table.
    pub table: &'a Table,
}

/// The columns of a looked-up row, or the products of a [`Select`].
pub struct Row<B: Blocks + ?Sized> {
    /// The integers.
    pub ints: Vec<B::Int>,
    /// The bits.
    pub bits: Vec<B::Bit>,
}

/// The most significant non-zero bit of an integer x of width w, at position k.
pub struct Leading<B: Blocks + ?Sized> {
    /// 2^(w−1−k), of width w; 0 if x is 0. x times it has its leading bit on top.
    pub scale: B::Int,
    /// k, of width `position_width`; 0 if x is 0.
    pub position: B::Int,
    /// x = 0.
    pub zero: B::Bit,
}

/// All ones in the low `width` bits.
#[must_use]
pub const fn mask(width: u32) -> u64 {
    u64::MAX >> (64 - width)
}

/// An integer of `width` bits, two's complement, as 64 bits.
#[must_use]
pub const fn two_complement(x: u64, width: u32) -> u64 {
    ((x << (64 - width)) as i64 >> (64 - width)) as u64
}

/// A supplier of integer arithmetic on secrets. See the [module](self) for what the types hold.
pub trait Blocks {
    /// Secret integers of one width.
    type Int: Clone + Send + Sync + 'static;
    /// Secret bits.
    type Bit: Clone + Send + Sync + 'static;
    /// Why an interactive operation failed; nothing secret is in it.
    type Error: Send + 'static;

    /// How many [`parts`](Blocks::parts) may run beside each other. Public, and the same at every
    /// party.
    fn threads(&self) -> usize {
        1
    }

    /// Runs `n` parts that do not depend on each other, part i by `part(b, i)`; their results in
    /// order. Part i runs after part i − [`threads`](Blocks::threads) and beside those between
    /// them, so rounds are those of the longest of these chains. A part has one thread.
    fn parts<T: Send>(
        &mut self,
        n: usize,
        part: impl Fn(&mut Self, usize) -> Result<T, Self::Error> + Sync,
    ) -> Result<Vec<T>, Self::Error> {
        (0..n).map(|i| part(self, i)).collect()
    }

    // Local: no message.

    /// How many integers there are.
    fn lanes(&self, x: &Self::Int) -> usize;
    /// How many bits there are.
    fn bit_lanes(&self, x: &Self::Bit) -> usize;
    /// Their width.
    fn width(&self, x: &Self::Int) -> u32;
    /// The public integers v mod 2^width, one a lane.
    fn public(&self, width: u32, v: &[u64]) -> Self::Int;
    /// The public bits v.
    fn public_bits(&self, v: &[bool]) -> Self::Bit;
    /// x + y mod 2^w, both of width w.
    fn add(&self, x: &Self::Int, y: &Self::Int) -> Self::Int;
    /// x − y mod 2^w, both of width w.
    fn sub(&self, x: &Self::Int, y: &Self::Int) -> Self::Int;
    /// k·x mod 2^w for a public k; −x for k = `u64::MAX`.
    fn scale(&self, x: &Self::Int, k: u64) -> Self::Int;
    /// k_i·x_i mod 2^w for public k_i, one a lane.
    fn weigh(&self, x: &Self::Int, k: &[u64]) -> Self::Int;
    /// x + k mod 2^w for a public k.
    fn offset(&self, x: &Self::Int, k: u64) -> Self::Int;
    /// x·2^s, of width w + s: no bit is lost.
    fn shift(&self, x: &Self::Int, s: u32) -> Self::Int;
    /// x mod 2^width, width ≤ w.
    fn low(&self, x: &Self::Int, width: u32) -> Self::Int;
    /// x mod 2.
    fn parity(&self, x: &Self::Int) -> Self::Bit;
    /// The bit as an integer of width 1.
    fn narrow(&self, b: &Self::Bit) -> Self::Int;
    /// a ⊕ b.
    fn xor(&self, a: &Self::Bit, b: &Self::Bit) -> Self::Bit;
    /// ¬a.
    fn not(&self, a: &Self::Bit) -> Self::Bit;
    /// The lanes of x at public places, which may repeat.
    fn gather(&self, x: &Self::Int, lanes: &[usize]) -> Self::Int;
    /// The lanes of b at public places, which may repeat.
    fn gather_bits(&self, b: &Self::Bit, lanes: &[usize]) -> Self::Bit;
    /// All lanes of all x, one after the other; same widths.
    fn concat(&self, x: &[&Self::Int]) -> Self::Int;
    /// All lanes of all b, one after the other.
    fn concat_bits(&self, b: &[&Self::Bit]) -> Self::Bit;

    // What everybody knows.

    /// The values of integers that everybody knows, if these blocks keep apart what is known:
    /// [`AnyBlocks`](crate::AnyBlocks) do.
    fn known<'a>(&self, _: &'a Self::Int) -> Option<&'a [u64]> {
        None
    }
    /// As [`known`](Blocks::known), of bits: 0 or 1 each.
    fn known_bits<'a>(&self, _: &'a Self::Bit) -> Option<&'a [u64]> {
        None
    }

    // Interactive.

    /// a ∧ b for each pair.
    fn and(&mut self, jobs: &[(&Self::Bit, &Self::Bit)]) -> Result<Vec<Self::Bit>, Self::Error>;
    /// b·x for everything under each bit.
    fn select(&mut self, jobs: &[Select<'_, Self>]) -> Result<Vec<Row<Self>>, Self::Error>;
    /// The bit as an integer 0 or 1 of each width.
    fn widen(&mut self, jobs: &[(&Self::Bit, u32)]) -> Result<Vec<Self::Int>, Self::Error>;
    /// Σ k·b mod 2^width. Every bit is [widened](Blocks::widen), unless the blocks have something
    /// cheaper.
    fn tally(&mut self, jobs: &[Tally<'_, Self>]) -> Result<Vec<Self::Int>, Self::Error> {
        let all = |job: &Tally<'_, Self>| {
            self.concat_bits(&job.terms.iter().map(|term| term.0).collect::<Vec<_>>())
        };
        let bits: Vec<Self::Bit> = jobs.iter().map(all).collect();
        let wide =
            self.widen(&bits.iter().zip(jobs).map(|(bit, job)| (bit, job.width)).collect::<Vec<_>>())?;
        let one = |job: &Tally<'_, Self>, wide: &Self::Int| {
            let mut end = 0;
            let terms = job.terms.iter().map(|&(bit, k)| {
                let lanes = end..end + self.bit_lanes(bit);
                end = lanes.end;
                self.scale(&self.gather(wide, &lanes.collect::<Vec<_>>()), k)
            });
            terms.reduce(|x, y| self.add(&x, &y)).expect("a sum has a term")
        };
        Ok(jobs.iter().zip(&wide).map(|(job, wide)| one(job, wide)).collect())
    }
    /// The most significant bit: x < 0 in two's complement. With x = a − b that did not overflow it
    /// is a < b.
    fn negative(&mut self, jobs: &[&Self::Int]) -> Result<Vec<Self::Bit>, Self::Error>;
    /// x < 0 in two's complement, and x = 0 (LT&EQ of a − b).
    #[allow(clippy::type_complexity)]
    fn negative_zero(&mut self, jobs: &[&Self::Int]) -> Result<Vec<(Self::Bit, Self::Bit)>, Self::Error>;
    /// x = 0.
    fn is_zero(&mut self, jobs: &[&Self::Int]) -> Result<Vec<Self::Bit>, Self::Error>;
    /// The row at each index.
    fn lookup(&mut self, jobs: &[Lookup<'_, Self>]) -> Result<Vec<Row<Self>>, Self::Error>;
    /// Zero- or sign-extension.
    fn extend(&mut self, jobs: &[Extend<'_, Self>]) -> Result<Vec<Self::Int>, Self::Error>;
    /// Truncate-and-reduce: ⌊x / 2^c⌋ of width w − c for each cut c of each integer. A cut needs
    /// the carry of the bits below it, which is a comparison; all cuts of an integer share its
    /// digits. The field between two cuts is local from there, also in a wider ring:
    /// [`Blocks::low`] of one truncation, or its difference from the next one shifted back.
    fn truncate(&mut self, jobs: &[Truncate<'_, Self>]) -> Result<Vec<Vec<Self::Int>>, Self::Error>;
    /// TRS: ⌊x / 2^s⌋ of width w − s, its lowest bit set if any of the s bits below was. 0 < s < w.
    fn sticky(&mut self, jobs: &[(&Self::Int, u32)]) -> Result<Vec<Self::Int>, Self::Error>;
    /// Products.
    fn multiply(&mut self, jobs: &[Multiply<'_, Self>]) -> Result<Vec<Self::Int>, Self::Error>;
    /// MSNZB of each x; `position_width` bits must hold w − 1.
    fn leading(&mut self, jobs: &[(&Self::Int, u32)]) -> Result<Vec<Leading<Self>>, Self::Error>;
    /// ⌊x / 2^r⌉ of width w − r, unsigned, ties to even, modulo 2^(w − r): 2 ≤ r < w ≤ 63. A value
    /// that rounds up to 2^(w − r) becomes 0.
    fn round(&mut self, jobs: &[(&Self::Int, u32)]) -> Result<Vec<Self::Int>, Self::Error>;
}
