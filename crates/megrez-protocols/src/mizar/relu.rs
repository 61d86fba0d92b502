//! ReLU on MSS in six forms, with a truncation in the same step if the plan asks for it.
//!
//! Deviates from MIZAR's ReLU (sign bit, conversion, product): the dealer deals a random bit a per
//! element and the product r·a, so the comparison's answer is one bit, f = b ⊕ a, and selects a
//! value whose two halves the workers can form alone. With Δ the workers' flip, δ = 1 ⊕ Δ, ε = 1 −
//! 2δ:
//!   [σ]_j = (1−j)δ + ε[a]_j;  [rσ]_j = δ[r]_j + ε[ra]_j;  [xσ]_j = m[σ]_j − [rσ]_j;  [x ≥ 0] = σ ⊕ f,
//!   x·[x ≥ 0] = f·x + (1−2f)·xσ:  xσ for f = 0, x − xσ for f = 1.
//! Fused with a truncation by f bits, x is replaced by y of the truncation step: the dealer deals
//! the products of a with the mask's parts, [R·a] and [b·a], instead. If the cut drops no more than
//! the truncation (k ≤ f), negative values give exactly 0 and others are rounded without bias: what
//! the cut cannot see, the truncation drops.
//!
//! - *3R*: the selected half is opened, masked by a fresh r_z, after f is known.
//! - *2R*: both halves are opened beside the lists, masked by κ (for f = 1 an unfused x − xσ needs
//!   no opening: it is m − e with mask r − κ); f chooses. The dealer learns the output's mask with
//!   f: it is *deferred*.
//! - *2R-fresh*: the dealer sends what turns that mask into a fresh r_z along with f.
//! - *table*: no list. The dealer deals T[i] = msb(i − r') ⊕ a for the 2^(λ−1) smaller values i of
//!   m', in XOR shares; the workers look up their share of f = T[m'] (the other half of the table
//!   is its complement), and open f and the halves together; worker 0 tells the dealer f. Deferred.
//!   A table serves one m'.
//! - *key*: neither list nor flip. A dealt key ([`super::key`]) gives the workers shares of a bit U
//!   and its products in place of a; f = msb m', public to them, is U ⊕ [x ≥ 0]. Only the selected
//!   half is opened, masked by a fresh r_z. A key serves one m.
//! - *digit tables*: the same with shares of U from tables of digits ([`super::digit_tables`]), of
//!   which some bits are opened first.
//!
//! Offline, one round, bits per element; keys and tables of digits cost what
//! [`super::key`] and [`super::digit_tables`] say:
//!
//!   dealer → worker 0    list (or 2^(λ−1) for a table)
//!   dealer → worker 1    2ℓ, fused 3ℓ + 2f
//!
//! form       rounds  online bits (plain / fused)          from → to
//! 3R         3       list + 2 + 2ℓ                        workers → dealer, dealer → workers, worker ↔ worker
//! 2R         2       list + 2 + 2ℓ / list + 2 + 4ℓ         workers → dealer and worker ↔ worker, dealer → workers
//! 2R-fresh   2       list + 2 + 4ℓ / list + 2 + 6ℓ         as 2R
//! table      1       2 + 2ℓ + 1 / 2 + 4ℓ + 1               worker ↔ worker; then worker 0 → dealer, for which no worker waits
//! key        1       2ℓ                                    worker ↔ worker
//! digit      2, 3    what is opened of digits + 2ℓ         worker ↔ worker
//!   tables
//!
//! "list" as in the sign bit. Workers see f, uniform because a is, and openings under fresh masks;
//! 2R-fresh also r_z − κ_f, uniform because r_z is and no worker knows it. The dealer sees what it
//! sees in the sign bit. It knows a, so it must not learn T[m'] itself: the workers flip as with
//! lists (σ = a ⊕ δ, δ theirs), and tell it f = 1 ⊕ T[m'] ⊕ δ, uniform to it.
//!
//! Security: `docs/security/mizar.md`.

use super::digit_tables::{self, Tables};
use super::family::Mizar;
use super::halves::{DealtShares, Shares, chosen_mask, chosen_value};
use super::key;
use super::list::Lists;
use super::sign::{Dealt, List, answer_cost};
use super::truncate::DealtParts;
use crate::mss::{DEALER, Data, Masks, RingMask, Role, deal, deal_low, draw, open, open_all};
use crate::{Call, Cost, Made, Operands, Step, Unit, Unsupported};
use megrez_kernels::{Bits, Device, Memory, Tensor};
use megrez_plan::{Op, Relu as Spec, ReluForm};
use megrez_ring::{Shape, Word};
use megrez_session::{Error, Party};

/// What the comparison needs, what selects, and the masks of halves that are opened early.
pub struct Material<W: Word, D: Device> {
    comparison: Comparison<W, D>,
    /// Dealer: the bits a.
    bits: Option<Bits<D>>,
    worker: Option<DealtShares<W, D>>,
    /// κ of the half for f = 0 (2R, 2R-fresh, table).
    zero: Option<RingMask<W, D>>,
    /// κ of the half for f = 1, where that is opened too.
    one: Option<RingMask<W, D>>,
}
encode_struct!(Material[W, D] => comparison, bits, worker, zero, one);

/// How the sign is found.
enum Comparison<W: Word, D: Device> {
    /// By lists at the dealer.
    List(Dealt<D>),
    /// By this worker's shares of the tables; nothing at the dealer.
    Table(Option<Bits<D>>),
    /// By this worker's key; nothing at the dealer.
    Key(Option<key::Dealt<W, D>>),
    /// By this worker's tables of digits; nothing at the dealer.
    Digits(Option<digit_tables::Dealt<W, D>>),
}
encode_enum!(Comparison[W: Word, D: Device] on D => 0 = List, 1 = Table, 2 = Key, 3 = Digits);

/// λ up to which tables are dealt: 2^(λ−1) bits per element.
const WIDEST_TABLE: u32 = 12;

/// max(x, 0), perhaps truncated.
pub struct Relu<'a> {
    lists: Lists,
    relu: &'a Spec,
    shape: &'a Shape,
}

impl Relu<'_> {
    fn list(&self, ring: u32) -> List {
        List::new(self.lists, &self.relu.sign, ring, self.shape.elements())
    }

    fn tables<W: Word>(&self) -> Tables {
        Tables::of::<W>(self.relu, self.shape.elements())
    }

    /// Whether the output's mask is known only online.
    fn is_late(&self) -> bool {
        matches!(self.relu.form, ReluForm::TwoRounds | ReluForm::Table)
    }
}

impl<'a, W: Word, D: Device> Step<'a, Mizar<W, D>> for Relu<'a> {
    type Material = Material<W, D>;

    fn of(suite: &Mizar<W, D>, call: Call<'a>) -> Option<Self> {
        let Op::Relu(relu) = call.op else { return None };
        if call.of_sum() {
            return None;
        }
        Some(Relu { lists: suite.variant, relu, shape: call.shape() })
    }

    fn cost(&self) -> Result<Cost, Unsupported> {
        let (relu, n, word) = (self.relu, self.shape.elements(), Unit::Bits(W::BITS));
        let (width, table) = (relu.sign.width(W::BITS), relu.form == ReluForm::Table);
        if table && width > WIDEST_TABLE {
            return Err(Unsupported(format!(
                "a ReLU by table compares at most {WIDEST_TABLE} bits, not {width}: choose --bits or another form"
            )));
        }
        let halves = if relu.truncate == 0 { 1 } else { 2 };
        let mut cost = match relu.form {
            ReluForm::Table => Cost::LOCAL.offline(DEALER, 0, n << (width - 1), Unit::Bits(1)),
            ReluForm::Key => key::cost::<W>(key::spec::<W>(relu), n),
            ReluForm::DigitTables => self.tables::<W>().cost::<W>(),
            _ => self.list(W::BITS).cost(),
        };
        cost = cost.offline(DEALER, 1, n, word).offline(DEALER, 1, n, word);
        if relu.truncate > 0 {
            let low = Unit::Bits(relu.truncate);
            cost = cost.offline(DEALER, 1, n, word).offline(DEALER, 1, n, low).offline(DEALER, 1, n, low);
        }
        let opened = |cost: Cost| (0..halves).fold(cost, |cost: Cost, _| cost.online_swap(1, 0, 1, n, word));
        Ok(match relu.form {
            // The dealer hears f one message later; no worker waits for it.
            ReluForm::Table => {
                opened(cost.online_swap(1, 0, 1, n, Unit::Bits(1))).online(2, 0, DEALER, n, Unit::Bits(1))
            }
            ReluForm::Key => cost.online_swap(1, 0, 1, n, word),
            ReluForm::DigitTables => cost.online_swap(self.tables::<W>().rounds() + 1, 0, 1, n, word),
            ReluForm::ThreeRounds => answer_cost(cost, n).online_swap(3, 0, 1, n, word),
            ReluForm::TwoRounds => opened(answer_cost(cost, n)),
            ReluForm::TwoRoundsFresh => {
                opened(answer_cost(cost, n)).online(2, DEALER, 0, n, word).online(2, DEALER, 1, n, word)
            }
        })
    }

    fn deferred(&self, _: bool) -> bool {
        self.is_late()
    }

    fn reads_masks(&self) -> bool {
        // The dealer chooses between the input's mask and another.
        self.is_late() || self.relu.form == ReluForm::TwoRoundsFresh
    }

    fn offline(
        &self,
        party: &mut Party<D>,
        inputs: &[&Masks<W, D>],
        _: Option<&Masks<W, D>>,
    ) -> Result<Self::Material, Error> {
        let (relu, shape, mask) = (self.relu, self.shape, inputs[0].ring());
        let n = shape.elements();
        let bits = match (Role::of(party), relu.form) {
            (Role::Dealer, ReluForm::Key | ReluForm::DigitTables) => {
                let r = mask.total(party.device())?;
                let spec = key::spec::<W>(relu);
                Some(Bits::new(shape.clone(), key::top_bits(party.device(), spec, &r.buf)?))
            }
            (Role::Dealer, _) => {
                let stream = party.stream(DEALER, "bit")?;
                Some(Bits::new(shape.clone(), party.device().random_bits(&stream, n)?))
            }
            (Role::Worker(_), _) => None,
        };
        let comparison = match relu.form {
            ReluForm::Key => {
                let spec = key::spec::<W>(relu);
                Comparison::Key(key::deal(party, spec, n, |device| Ok(mask.total(device)?.buf))?)
            }
            ReluForm::DigitTables => {
                let top = bits.as_ref().map(|bits| &bits.buf);
                Comparison::Digits(self.tables::<W>().deal(party, mask, top)?)
            }
            ReluForm::Table => Comparison::Table(deal_table(party, relu, n, mask, bits.as_ref())?),
            _ => Comparison::List(self.list(W::BITS).deal(party, mask)?),
        };
        let a = || &bits.as_ref().expect("the dealer drew them").buf;
        let bit = deal(party, 1, "bit", n, |device| Ok(device.bit_times::<W>(a(), None, n)?))?;
        let f = relu.truncate;
        let mask_bit = deal(party, 1, "mask-bit", n, |device| {
            let high = device.shift_right(&mask.total(device)?.buf, f)?;
            Ok(device.bit_times(a(), Some(&high), n)?)
        })?;
        let truncation = if f == 0 {
            None
        } else {
            let parts = DealtParts::deal(party, 1, f, shape, mask)?;
            let top_bit = deal_low(party, 1, "top-bit", n, f, |device| {
                let top = device.shift_right(&mask.total(device)?.buf, W::BITS - 1)?;
                Ok(device.bit_times(a(), Some(&top), n)?)
            })?;
            parts.zip(top_bit)
        };
        let worker = bit.zip(mask_bit).map(|(bit, mask_bit)| DealtShares { bit, mask_bit, truncation });
        let mut half = |purpose: &str| {
            draw(party, purpose, |party, key| {
                Ok(Tensor::new(shape.clone(), party.device().random(&key.stream(), n)?))
            })
        };
        let early = !matches!(relu.form, ReluForm::ThreeRounds | ReluForm::Key | ReluForm::DigitTables);
        let zero = if early { Some(half("zero-half")?) } else { None };
        let one = if early && f > 0 { Some(half("one-half")?) } else { None };
        Ok(Material { comparison, bits, worker, zero, one })
    }

    fn online(
        &self,
        party: &mut Party<D>,
        operands: Operands<'_, Mizar<W, D>>,
        material: Self::Material,
    ) -> Result<Made<Mizar<W, D>>, Error> {
        let (input, masked) = (operands.inputs[0].0, operands.masked(0));
        let (m, deferred) = match self.relu.form {
            ReluForm::ThreeRounds => (self.three_rounds(party, operands, masked, material)?, None),
            ReluForm::TwoRounds | ReluForm::TwoRoundsFresh => {
                let output = operands.masks.map(Masks::ring);
                self.two_rounds(party, input.ring(), output, masked, material)?
            }
            ReluForm::Table => self.by_table(party, input.ring(), masked, material)?,
            ReluForm::Key | ReluForm::DigitTables => (self.by_products(party, operands, material)?, None),
        };
        Ok((Data::of_ring(self.shape, m), deferred.map(Masks::Ring)))
    }
}

/// A worker's shares of what selects, to be used.
fn worker_shares<W: Word, D: Device>(
    party: &Party<D>,
    dealt: Option<DealtShares<W, D>>,
    f: u32,
    n: usize,
) -> Result<Shares<W, D>, Error> {
    dealt.expect("workers hold shares").shares(party.device(), f, n)
}

/// XOR shares of the tables: worker 1's from its stream with the dealer, worker 0's sent.
fn deal_table<W: Word, D: Device>(
    party: &mut Party<D>,
    relu: &Spec,
    n: usize,
    mask: &RingMask<W, D>,
    bits: Option<&Bits<D>>,
) -> Result<Option<Bits<D>>, Error> {
    let width = relu.sign.width(W::BITS);
    let entries = n << (width - 1);
    Ok(match Role::of(party) {
        Role::Dealer => {
            let r = mask.total(party.device())?;
            let a = &bits.expect("the dealer drew them").buf;
            let table = party.device().sign_table(relu.sign.cut, width, &r.buf, a)?;
            let stream = party.stream(1, "table")?;
            let other = party.device().random_bits(&stream, entries)?;
            let share = party.device().xor(&[&table, &other], false, entries)?;
            party.send_bits(0, "table", share, entries)?;
            None
        }
        Role::Worker(0) => Some(Bits::new([entries], party.recv_bits(DEALER, "table", entries)?)),
        Role::Worker(_) => {
            let stream = party.stream(DEALER, "table")?;
            Some(Bits::new([entries], party.device().random_bits(&stream, entries)?))
        }
    })
}

/// The output's data, and its masks if they are deferred.
type Opened<W, D> = (Option<<D as Memory>::Buf<W>>, Option<RingMask<W, D>>);

impl Relu<'_> {
    /// *3R*.
    fn three_rounds<W: Word, D: Device>(
        &self,
        party: &mut Party<D>,
        operands: Operands<'_, Mizar<W, D>>,
        masked: Option<&Tensor<W, D>>,
        material: Material<W, D>,
    ) -> Result<Option<D::Buf<W>>, Error> {
        let (relu, n) = (self.relu, self.shape.elements());
        let bit = self.list(W::BITS).compare(party, masked, material.comparison.list())?;
        match Role::of(party) {
            Role::Dealer => {
                choose_and_tell(party, n, &bit, material.bits)?;
                Ok(None)
            }
            Role::Worker(j) => {
                let choice = party.recv_bits(DEALER, "choice", n)?;
                let flip = party.device().xor(&[&bit], true, n)?;
                let shares = worker_shares(party, material.worker, relu.truncate, n)?;
                let ((m, r), fresh) = (operands.ring(0), operands.fresh().share());
                let share = shares.half(party, relu.truncate, j, (&m.buf, r), &choice, &flip, fresh)?;
                Ok(Some(open(party, j, "selected", n, share)?))
            }
        }
    }

    /// *2R* and *2R-fresh*; `output` is the output's mask where it is known.
    fn two_rounds<W: Word, D: Device>(
        &self,
        party: &mut Party<D>,
        input: &RingMask<W, D>,
        output: Option<&RingMask<W, D>>,
        masked: Option<&Tensor<W, D>>,
        material: Material<W, D>,
    ) -> Result<Opened<W, D>, Error> {
        let (relu, n) = (self.relu, self.shape.elements());
        let bit = self.list(W::BITS).compare(party, masked, material.comparison.list())?;
        let zero = material.zero.expect("drawn for this form");
        match Role::of(party) {
            Role::Dealer => {
                let choice = choose_and_tell(party, n, &bit, material.bits)?;
                let mask = chosen_mask(party.device(), &choice, input, &zero, material.one.as_ref())?;
                let Some(output) = output else { return Ok((None, Some(mask))) };
                // What turns the chosen mask into the fresh one: uniform to either worker, who
                // knows half of r_z.
                let (fresh, chosen) = (output.total(party.device())?, mask.total(party.device())?);
                let correction = party.device().combine(
                    &[(W::ONE, &fresh.buf), (W::ONE.neg(), &chosen.buf)],
                    W::ZERO,
                    n,
                )?;
                party.send_ring(0, "correction", correction.clone())?;
                party.send_ring(1, "correction", correction)?;
                Ok((None, None))
            }
            Role::Worker(j) => {
                let flip = party.device().xor(&[&bit], true, n)?;
                let shares = worker_shares(party, material.worker, relu.truncate, n)?;
                let m = masked.expect("workers hold masked values online");
                let halves = shares.halves(
                    party,
                    relu.truncate,
                    j,
                    (&m.buf, input.share()),
                    &flip,
                    &zero,
                    material.one.as_ref(),
                )?;
                let halves = open_all(party, j, "half", n, halves)?;
                let choice = party.recv_bits(DEALER, "choice", n)?;
                let opened = chosen_value(party.device(), &choice, &m.buf, &halves, n)?;
                match output {
                    None => {
                        let mask = chosen_mask(party.device(), &choice, input, &zero, material.one.as_ref())?;
                        Ok((Some(opened), Some(mask)))
                    }
                    Some(_) => {
                        let correction = party.recv_ring::<W>(DEALER, "correction", n)?;
                        let terms = [(W::ONE, &opened), (W::ONE, &correction)];
                        Ok((Some(party.device().combine(&terms, W::ZERO, n)?), None))
                    }
                }
            }
        }
    }

    /// *table*.
    fn by_table<W: Word, D: Device>(
        &self,
        party: &mut Party<D>,
        input: &RingMask<W, D>,
        masked: Option<&Tensor<W, D>>,
        material: Material<W, D>,
    ) -> Result<Opened<W, D>, Error> {
        let (relu, n) = (self.relu, self.shape.elements());
        let zero = material.zero.expect("drawn for this form");
        match Role::of(party) {
            Role::Dealer => {
                let choice = party.recv_bits(0, "choice", n)?;
                Ok((None, Some(chosen_mask(party.device(), &choice, input, &zero, material.one.as_ref())?)))
            }
            Role::Worker(j) => {
                let Comparison::Table(Some(table)) = &material.comparison else {
                    return party.refuse("a worker was given no tables");
                };
                let m = masked.expect("workers hold masked values online");
                let stream = party.stream(1 - j, "flip")?;
                let flip = party.device().random_bits(&stream, n)?;
                let width = relu.sign.width(W::BITS);
                let share = party.device().look_up_sign(relu.sign.cut, width, j, &m.buf, &table.buf)?;
                let shares = worker_shares(party, material.worker, relu.truncate, n)?;
                let halves = shares.halves(
                    party,
                    relu.truncate,
                    j,
                    (&m.buf, input.share()),
                    &flip,
                    &zero,
                    material.one.as_ref(),
                )?;
                party.send_bits(1 - j, "table-share", share.clone(), n)?;
                let halves = open_all(party, j, "half", n, halves)?;
                let other = party.recv_bits(1 - j, "table-share", n)?;
                // f = 1 ⊕ T[m'] ⊕ δ.
                let choice = party.device().xor(&[&share, &other, &flip], true, n)?;
                if j == 0 {
                    party.send_bits(DEALER, "choice", choice.clone(), n)?;
                }
                let opened = chosen_value(party.device(), &choice, &m.buf, &halves, n)?;
                let mask = chosen_mask(party.device(), &choice, input, &zero, material.one.as_ref())?;
                Ok((Some(opened), Some(mask)))
            }
        }
    }
}

impl Relu<'_> {
    /// *key* and *digit tables*.
    fn by_products<W: Word, D: Device>(
        &self,
        party: &mut Party<D>,
        operands: Operands<'_, Mizar<W, D>>,
        material: Material<W, D>,
    ) -> Result<Option<D::Buf<W>>, Error> {
        let (relu, n, spec) = (self.relu, self.shape.elements(), key::spec::<W>(self.relu));
        let Role::Worker(j) = Role::of(party) else { return Ok(None) };
        let (m, r) = operands.ring(0);
        let (m, value) = (&m.buf, (&m.buf, r));
        let shares = worker_shares(party, material.worker, relu.truncate, n)?;
        let shares = match material.comparison {
            Comparison::Key(Some(key)) if key::holds(spec, n, j, &key) => {
                key::evaluate(party.device(), spec, (m, n), key, shares)?
            }
            Comparison::Digits(Some(dealt)) => {
                self.tables::<W>().evaluate(party, j, (m, &value.1.buf), dealt, shares)?
            }
            _ => return party.refuse("a worker was given no keys or tables, or another step's"),
        };
        let choice = key::top_bits(party.device(), spec, m)?;
        let none = party.device().xor(&[], false, n)?;
        let share = shares.half(party, relu.truncate, j, value, &choice, &none, operands.fresh().share())?;
        Ok(Some(open(party, j, "selected", n, share)?))
    }
}

impl<W: Word, D: Device> Comparison<W, D> {
    fn list(&self) -> &Dealt<D> {
        match self {
            Comparison::List(dealt) => dealt,
            _ => panic!("material of another form in a ReLU by lists"),
        }
    }
}

/// The dealer's f = b ⊕ a, told to both workers.
fn choose_and_tell<D: Device>(
    party: &mut Party<D>,
    n: usize,
    bit: &D::Buf<u64>,
    a: Option<Bits<D>>,
) -> Result<D::Buf<u64>, Error> {
    let choice = party.device().xor(&[bit, &a.expect("the dealer drew them").buf], false, n)?;
    party.send_bits(0, "choice", choice.clone(), n)?;
    party.send_bits(1, "choice", choice.clone(), n)?;
    Ok(choice)
}

#[cfg(test)]
pub(super) mod tests {
    use crate::mizar::Mizar;
    use crate::testing::World;
    use megrez_kernels::Reference;
    use megrez_plan::Op;

    /// For ReLUs of a cut, a width and bits that are dropped: results are rounded down or up, and
    /// negative values give 0.
    pub fn a_truncation_in_the_same_step(relu: impl Fn(u32, u32, u32) -> Op) {
        let x: Vec<u64> = (-64i64..64).cycle().take(1024).map(|x| x as u8 as u64).collect();
        for f in [1, 3, 5] {
            let world = World::new(Mizar::<u8, Reference>::default());
            let y = world.step(relu(f.min(2), 8 - f.min(2), f), f, &[&x]);
            for (x, y) in x.iter().map(|&x| x as u8 as i8 as i64).zip(y) {
                let (floor, exact) = (x.max(0) >> f, x < 0 || x & ((1 << f) - 1) == 0);
                let y = y as i64;
                assert!(y == floor || y == floor + 1 && !exact, "{x} / 2^{f} is not {y}");
            }
        }
    }
}
