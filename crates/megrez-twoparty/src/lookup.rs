//! A public table at a secret index: one 1-of-2^m OT of whole rows (Dessouky et al., NDSS 2017).
//!
//! The sender holds v, the receiver u, the index is v + u mod 2^m: the sender offers its table
//! rotated by v, masked by one row r of its own, and the receiver takes row u. An index of more
//! than four bits is chosen in two parts of at most four; the key of row (i, j) is A_i ⊕ B_j hashed
//! once more (Naor and Pinkas), so that two known rows say nothing of a third. Row 0 is not sent:
//! the sender takes its pad for what it would send there. The first half of the lanes has party 0
//! as sender, the rest party 1.
//!
//! rounds  bits per lane
//! 1       Σ parts (128/k)(2 − 2^(1−b))      receiver → sender
//! 1       (2^m − 1)·Σ widths                sender → receiver
//!
//! A party's own share is an index into memory here, of the public table and of the received rows.
//! Who watches one party's memory learns its shares at most, as that party does.
//!
//! Security: `docs/security/secfloat.md`.

use crate::compare::lanes_from;
use crate::cost::Cost;
use crate::link::Sirnn;
use crate::ot::{Code, MAX_CHOICE, Transfers};
use crate::share::{Bits, Ints};
use crate::wire::{Reader, Writer};
use megrez_float::blocks::{Blocks, Lookup, Row, Table, mask};
use megrez_kernels::Device;
use megrez_net::Payload;
use megrez_ring::bits;
use megrez_session::Error;

/// Bits of the parts of an index, low one first.
fn parts(index: u32) -> Vec<u32> {
    assert!((1..=2 * MAX_CHOICE).contains(&index), "a table has 2 to 256 rows");
    if index <= MAX_CHOICE { vec![index] } else { vec![MAX_CHOICE, index - MAX_CHOICE] }
}

/// Widths of all columns; a bit is an integer of one bit.
fn widths(table: &Table) -> Vec<u32> {
    table.ints.iter().copied().chain(std::iter::repeat_n(1, table.bits)).collect()
}

/// For each column its pad's block and place in it; and how many blocks a row has.
fn pads(widths: &[u32]) -> (Vec<(usize, u32)>, usize) {
    let (mut block, mut at) = (0, 0);
    let place = |&width: &u32| {
        if at + width > 128 {
            (block, at) = (block + 1, 0);
        }
        at += width;
        (block, at - width)
    };
    let places = widths.iter().map(place).collect();
    (places, block + 1)
}

/// Marks the hashes that make keys of parts, apart from those that make pads: these are numbered
/// below it.
const KEY: u128 = 255;

/// Bits of a row.
fn row_bits(table: &Table) -> usize {
    widths(table).iter().map(|&w| w as usize).sum()
}

/// (Index bits, parts) of all parts of a width b in order: (job, shift).
fn of_width(indices: &[u32], b: u32) -> Vec<(usize, u32)> {
    let one = |(job, &index): (usize, &u32)| {
        parts(index)
            .into_iter()
            .enumerate()
            .filter(move |&(_, p)| p == b)
            .map(move |(i, _)| (job, i as u32 * MAX_CHOICE))
    };
    indices.iter().enumerate().flat_map(one).collect()
}

impl<D: Device> Sirnn<D> {
    /// The row at each index.
    pub(crate) fn rows<B>(&mut self, jobs: &[Lookup<'_, B>]) -> Result<Vec<Row<B>>, Error>
    where
        B: Blocks<Int = Ints, Bit = Bits>,
    {
        let (me, peer) = (self.me(), 1 - self.me());
        let indices: Vec<u32> = jobs.iter().map(|j| j.table.index).collect();
        for job in jobs {
            assert_eq!(job.index.width, job.table.index, "the index is not as wide as the table says");
            // A pad's number is one byte of its tweak, and one number marks keys.
            let pads = pads(&widths(job.table)).1;
            if pads as u128 > KEY {
                return self.party().refuse(format!(
                    "a row of {} columns takes {pads} pads, and {KEY} have numbers: look it up in two tables",
                    job.table.columns()
                ));
            }
        }
        let lanes = |job: usize, sender: usize| lanes_from(sender, jobs[job].index.v.len());
        let count = |b: u32, sender: usize| -> usize {
            of_width(&indices, b).iter().map(|&(job, _)| lanes(job, sender).len()).sum()
        };

        let taken = |sender| (1..=MAX_CHOICE).map(|b| b as usize * count(b, sender)).sum();
        self.reserve(taken(peer), taken(me))?;
        let mut out = vec![];
        // Keys by job and part: where this party receives one for each lane, where it sends 2^b.
        let mut chosen: Vec<Vec<Vec<u128>>> = indices.iter().map(|&i| vec![vec![]; parts(i).len()]).collect();
        let mut offered = chosen.clone();
        for b in 1..=MAX_CHOICE {
            let mut planes: Vec<Writer> = (0..b).map(|_| Writer::default()).collect();
            for (job, shift) in of_width(&indices, b) {
                for &u in &jobs[job].index.v[lanes(job, peer)] {
                    planes.iter_mut().enumerate().for_each(|(i, p)| p.push(u >> (shift as usize + i), 1));
                }
            }
            let planes: Vec<Vec<u64>> = planes.into_iter().map(Writer::into_words).collect();
            let n = count(b, peer);
            let (corrections, mut blocks) = self.ot.receiver.extend(Code::new(b), &planes, n);
            let number = self.ot.next_received(n);
            out.extend_from_slice(&corrections);
            self.ot.hash.apply(&mut blocks, |i| u128::from(number + i as u64) << 8 | KEY);
            let mut blocks = blocks.into_iter();
            for (job, shift) in of_width(&indices, b) {
                chosen[job][(shift / MAX_CHOICE) as usize] =
                    blocks.by_ref().take(lanes(job, peer).len()).collect();
            }
        }
        let sizes: Vec<usize> = (1..=MAX_CHOICE)
            .map(|b| self.ot.transfers.correction_bytes(Code::new(b), count(b, me)))
            .collect();
        let corrections = self.exchange(Payload::from_bytes(&out), sizes.iter().sum())?;
        let mut rest = corrections.as_bytes();
        for b in 1..=MAX_CHOICE {
            let (these, others) = rest.split_at(sizes[b as usize - 1]);
            rest = others;
            let n = count(b, me);
            let q = self.ot.sender.extend(Code::new(b), n, these);
            let number = self.ot.next_sent(n);
            let offsets = self.ot.sender.offsets(Code::new(b));
            let mut blocks: Vec<u128> = q.iter().flat_map(|q| offsets.iter().map(move |o| q ^ o)).collect();
            self.ot.hash.apply(&mut blocks, |i| u128::from(number + (i >> b) as u64) << 8 | KEY);
            let mut blocks = blocks.into_iter();
            for (job, shift) in of_width(&indices, b) {
                let these = blocks.by_ref().take(lanes(job, me).len() << b).collect();
                offered[job][(shift / MAX_CHOICE) as usize] = these;
            }
        }

        let payload = |sender: usize| -> usize {
            let one = |j: usize| lanes(j, sender).len() * ((1 << indices[j]) - 1) * row_bits(jobs[j].table);
            (0..jobs.len()).map(one).sum()
        };
        let mut writer = Writer::with_capacity(payload(me));
        let given: Vec<Vec<Vec<u64>>> = jobs
            .iter()
            .zip(&offered)
            .map(|(job, keys)| {
                let v = &job.index.v[lanes_from(me, job.index.v.len())];
                let first = self.ot.next_sent(v.len());
                self.offer_rows(job.table, v, keys, first, &mut writer)
            })
            .collect();
        let received = self.exchange(writer.into_payload(), bits::bytes(payload(peer)))?;
        let mut at = 0;
        let mut results = vec![];
        for ((job, keys), given) in jobs.iter().zip(&chosen).zip(given) {
            let u = &job.index.v[lanes_from(peer, job.index.v.len())];
            let first = self.ot.next_received(u.len());
            let taken = self.take_rows(job.table, u, keys, first, received.words(), at);
            at += u.len() * ((1 << job.table.index) - 1) * row_bits(job.table);
            let both = |(mine, theirs): (Vec<u64>, Vec<u64>)| {
                if me == 0 { [mine, theirs].concat() } else { [theirs, mine].concat() }
            };
            let mut columns = given.into_iter().zip(taken).map(both);
            let ints =
                job.table.ints.iter().map(|&w| Ints::new(w, columns.next().expect("a column"))).collect();
            results.push(Row { ints, bits: columns.map(|v| Ints::new(1, v).bit(0)).collect() });
        }
        Ok(results)
    }

    /// Writes the rows for every lane; returns this party's shares, column by column.
    fn offer_rows(
        &self,
        table: &Table,
        v: &[u64],
        keys: &[Vec<u128>],
        number: u64,
        writer: &mut Writer,
    ) -> Vec<Vec<u64>> {
        let widths = widths(table);
        let (places, blocks) = pads(&widths);
        let (entries, columns) = (1usize << table.index, widths.len());
        let low = entries.min(1 << MAX_CHOICE);
        let mut shares = vec![Vec::with_capacity(v.len()); columns];
        let mut row_pads = vec![];
        let mut own = vec![0; columns];
        for (lane, &v) in v.iter().enumerate() {
            row_pads.clear();
            for row in 0..entries {
                let high = keys.get(1).map_or(0, |k| k[lane * (entries / low) + row / low]);
                let key = keys[0][lane * low + row % low] ^ high;
                row_pads.extend(std::iter::repeat_n(key, blocks));
            }
            let tweak = |i: usize| u128::from(number + lane as u64) << 8 | (i % blocks) as u128;
            self.ot.hash.apply(&mut row_pads, tweak);
            for row in 0..entries {
                let at = (v as usize + row) % entries * columns;
                for (c, (&width, &(block, place))) in widths.iter().zip(&places).enumerate() {
                    let pad = (row_pads[row * blocks + block] >> place) as u64;
                    let entry = table.entries[at + c];
                    if row == 0 {
                        own[c] = pad.wrapping_sub(entry);
                        shares[c].push(entry.wrapping_sub(pad) & mask(width));
                    } else {
                        writer.push(entry.wrapping_add(own[c]).wrapping_sub(pad), width);
                    }
                }
            }
        }
        shares
    }

    /// This party's shares of the rows that it chose, column by column; its rows begin at bit `at`
    /// of what was received.
    fn take_rows(
        &self,
        table: &Table,
        u: &[u64],
        keys: &[Vec<u128>],
        number: u64,
        received: &[u64],
        at: usize,
    ) -> Vec<Vec<u64>> {
        let widths = widths(table);
        let (places, blocks) = pads(&widths);
        let rows = (1usize << table.index) - 1;
        let size = row_bits(table);
        let key = |lane: usize| keys.iter().fold(0, |k, part| k ^ part[lane]);
        let mut row_pads: Vec<u128> =
            (0..u.len()).flat_map(|lane| std::iter::repeat_n(key(lane), blocks)).collect();
        self.ot
            .hash
            .apply(&mut row_pads, |i| u128::from(number + (i / blocks) as u64) << 8 | (i % blocks) as u128);
        let mut shares = vec![Vec::with_capacity(u.len()); widths.len()];
        for (lane, &u) in u.iter().enumerate() {
            // Row 0 was not sent: some other is read and dropped.
            let mut reader = Reader::new(received);
            reader.skip(at + (lane * rows + (u.max(1) - 1) as usize) * size);
            let keep = u64::from(u != 0).wrapping_neg();
            for ((&width, &(block, place)), share) in widths.iter().zip(&places).zip(&mut shares) {
                let pad = (row_pads[lane * blocks + block] >> place) as u64;
                share.push((reader.next(width) & keep).wrapping_add(pad) & mask(width));
            }
        }
        shares
    }
}

/// What [`Sirnn::rows`] costs for (table, lanes).
pub(crate) fn cost(transfers: Transfers, jobs: &[(&Table, usize)]) -> Cost {
    let indices: Vec<u32> = jobs.iter().map(|j| j.0.index).collect();
    let count = |b: u32, sender: usize| -> usize {
        of_width(&indices, b).iter().map(|&(j, _)| lanes_from(sender, jobs[j].1).len()).sum()
    };
    let taken = |sender| (1..=MAX_CHOICE).map(|b| b as usize * count(b, sender)).sum();
    let bytes = |party: usize| {
        let corrections = |b: u32| transfers.correction_bytes(Code::new(b), count(b, 1 - party));
        let rows = |(table, n): &(&Table, usize)| {
            lanes_from(party, *n).len() * ((1 << table.index) - 1) * row_bits(table)
        };
        (1..=MAX_CHOICE).map(corrections).sum::<usize>() + bits::bytes(jobs.iter().map(rows).sum())
    };
    Cost::new([bytes(0), bytes(1)], if jobs.iter().all(|j| j.1 == 0) { 0 } else { 2 })
        .choosing([taken(1), taken(0)])
}
