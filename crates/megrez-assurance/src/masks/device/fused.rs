//! The fused steps on symbols: what each of them makes is a rest, but for the masks that it adds.

use super::super::deps::Deps;
use super::super::form::{Map, Rows, Run, Symbols, Term, Unit};
use super::{Result, Symbolic, made, mask_of, unit_of};
use megrez_kernels::{
    BitProducts, ComparisonKeys, DealtKeys, DealtLookup, FieldShare, KeyShare, KeySpec, ListAlgebra,
    ListStreams, LookupKey, LookupKeys, LookupTables, MaskedLists, OpenSelected, OpenTruncated, Selected,
    SignTables, SignedSums, Truncation,
};
use megrez_plan::{BitMatrices, Lookup};
use megrez_prg::Stream;
use megrez_ring::Word;

/// The draw that gives each element a label of its own, and nothing else.
fn own_labels(rows: &Rows) -> Option<u32> {
    match rows.runs.as_slice() {
        [Run { terms, deps, .. }] if deps.is_empty() => match terms.as_slice() {
            [Term { draw, map: Map::Each, start: 0, .. }] => Some(*draw),
            _ => None,
        },
        _ => None,
    }
}

impl Symbolic {
    /// The words of the keys of `n` values, message by message: all are labels of one key, if its
    /// roots are draws of their own.
    fn words_of_key<const K: usize>(
        &self,
        roots: [&Stream; 2],
        n: usize,
        lengths: [usize; K],
        deps: &Deps,
    ) -> [Rows; K] {
        let roots = roots.map(|root| self.world.random(self.me, root, Unit::Raw, 2 * n));
        let key = match [&roots[0], &roots[1]].map(own_labels) {
            [Some(a), Some(b)] if a != b => {
                Some(self.world.key([a, b], lengths.iter().sum::<usize>() as u64 * 64))
            }
            _ => None,
        };
        let mut start = 0;
        lengths.map(|len| {
            let terms = key.map(|draw| Term { draw, start, stride: 64, map: Map::Each, coeff: 1 });
            start += len as u64 * 64;
            Rows::new(Unit::Word, vec![Run { len, terms: terms.into_iter().collect(), deps: deps.clone() }])
        })
    }

    /// Worker `j`'s share of one masked list of n·length elements: the zero-share, and at worker 1
    /// what the sum of both shares is.
    fn list(
        &self,
        (unit, length): (Unit, usize),
        j: usize,
        inputs: &[&Rows],
        flips: &Rows,
        streams: &ListStreams<'_>,
        n: usize,
    ) -> Rows {
        let (world, entries) = (&self.world, n * length);
        let zero = world.random(self.me, streams.zero_share, unit, entries);
        let others = [(streams.multiplier, entries), (streams.rotation, n)]
            .map(|(stream, n)| world.random(self.me, stream, unit, n));
        let flips = flips.bits(n).unwrap_or_else(|| Rows::new(Unit::Bit, vec![Run::zero(n)]));
        // The lemma wants a label of its own for each multiplier, rotation and flip.
        let draws = [&others[0], &others[1], &flips].map(own_labels);
        let mut rows = self.rest(unit, inputs, entries);
        if j == 0 {
            return Rows::sum(unit, &[(1, &rows), (1, &zero)], entries, u64::MAX);
        }
        // The lemma wants them to be draws of their own, too.
        if let [Some(a), Some(b), Some(c)] = draws
            && a != b
            && b != c
            && a != c
        {
            let list = world.list(vec![a, b, c], entries as u64 * 64);
            rows.runs[0].terms = vec![Term { draw: list, start: 0, stride: 64, map: Map::Each, coeff: 1 }];
        }
        Rows::sum(unit, &[(1, &rows), (u64::MAX, &zero)], entries, u64::MAX)
    }
}

impl MaskedLists for Symbolic {
    fn deal_list<W: Word>(
        &self,
        list: &dyn ListAlgebra,
        masks: &Symbols<W>,
        other: &Stream,
    ) -> Result<(Symbols<u64>, Symbols<u64>)> {
        let n = masks.rows.len();
        let (unit, dealt) = (unit_of(list.field()), n * list.dealt());
        let rest = self.rest(unit, &[&masks.rows], dealt);
        let other = self.world.random(self.me, other, unit, dealt);
        let share = Rows::sum(unit, &[(1, &rest), (u64::MAX, &other)], dealt, u64::MAX);
        Ok((made(share)?, made(self.rest(Unit::Bit, &[&masks.rows], n))?))
    }

    fn masked_lists<W: Word>(
        &self,
        list: &dyn ListAlgebra,
        j: usize,
        values: &Symbols<W>,
        share: Option<FieldShare<'_, Self>>,
        flips: &Symbols<u64>,
        streams: &ListStreams<'_>,
    ) -> Result<Vec<Symbols<u64>>> {
        let n = values.rows.len();
        let (unit, entries, count) = (unit_of(list.field()), n * list.length(), list.lists());
        let share = share.map(|share| match share {
            FieldShare::Packed(words) => (*words.rows).clone(),
            FieldShare::Stream(stream) => self.world.random(self.me, stream, unit, n * list.dealt()),
        });
        let mut inputs = vec![&*values.rows];
        inputs.extend(&share);
        if count == 1 {
            return Ok(vec![made(self.list((unit, list.length()), j, &inputs, &flips.rows, streams, n))?]);
        }
        // Several lists under one rotation: there is no lemma for them, and all are rests under the
        // zero-shares.
        inputs.push(&flips.rows);
        let zero = self.world.random(self.me, streams.zero_share, unit, count * entries);
        let rest = self.rest(unit, &inputs, entries);
        let sign = if j == 0 { 1 } else { u64::MAX };
        let list = |c: usize| {
            let zero = Rows::new(unit, zero.cut(c * entries, entries));
            made(Rows::sum(unit, &[(1, &rest), (sign, &zero)], entries, u64::MAX))
        };
        (0..count).map(list).collect()
    }

    fn scan_lists(&self, _: &dyn ListAlgebra, lists: [&[Symbols<u64>]; 2], n: usize) -> Result<Symbols<u64>> {
        let lists: Vec<&Rows> = lists.into_iter().flatten().map(|list| &*list.rows).collect();
        made(self.rest(Unit::Bit, &lists, n))
    }
}

impl OpenTruncated for Symbolic {
    fn open_truncated<W: Word>(
        &self,
        _: usize,
        masked: &Symbols<W>,
        truncation: &Truncation<'_, W, Self>,
        output_mask: &Symbols<W>,
    ) -> Result<Symbols<W>> {
        let n = masked.rows.len();
        let rest = self.rest(Unit::Word, &[&masked.rows, &truncation.top.rows], n);
        let (high, mask) = (self.words(truncation.high, n), self.words(output_mask, n));
        let terms = [(1, &rest), (u64::MAX, &high), (1, &mask)];
        made(Rows::sum(Unit::Word, &terms, n, mask_of(W::BITS)))
    }

    fn truncation_carry<W: Word>(
        &self,
        masked: &Symbols<W>,
        top: &Symbols<W>,
        mask: &Symbols<W>,
    ) -> Result<Symbols<W>> {
        let n = masked.rows.len();
        let (rest, mask) = (self.rest(Unit::Word, &[&masked.rows, &top.rows], n), self.words(mask, n));
        made(Rows::sum(Unit::Word, &[(1, &rest), (1, &mask)], n, mask_of(W::BITS)))
    }

    fn close_truncated<W: Word>(
        &self,
        masked: &Symbols<W>,
        _: u32,
        carries: [&Symbols<W>; 2],
    ) -> Result<Symbols<W>> {
        let [a, b] = carries;
        made(self.rest(Unit::Word, &[&masked.rows, &a.rows, &b.rows], masked.rows.len()))
    }
}

impl OpenSelected for Symbolic {
    fn open_selected<W: Word>(&self, _: usize, args: &Selected<'_, W, Self>) -> Result<Symbols<W>> {
        let n = args.masked.rows.len();
        let mut inputs: Vec<&Rows> =
            vec![&args.masked.rows, &args.mask.rows, &args.choice.rows, &args.bit.rows, &args.mask_bit.rows];
        inputs.extend(args.flip.map(|flip| &*flip.rows));
        if let Some((truncation, top_bit)) = &args.truncation {
            inputs.extend([&*truncation.high.rows, &*truncation.top.rows, &*top_bit.rows]);
        }
        let (rest, mask) = (self.rest(Unit::Word, &inputs, n), self.words(args.output_mask, n));
        made(Rows::sum(Unit::Word, &[(1, &rest), (1, &mask)], n, mask_of(W::BITS)))
    }
}

impl SignTables for Symbolic {
    fn sign_table<W: Word>(
        &self,
        _: u32,
        width: u32,
        masks: &Symbols<W>,
        bits: &Symbols<u64>,
    ) -> Result<Symbols<u64>> {
        let (n, entries) = (masks.rows.len(), 1usize << (width - 1));
        let mut rows = self.rest(Unit::Bit, &[&masks.rows], n * entries);
        // Every entry of a table takes the dealer's one bit.
        let bits = self.bits(bits, n);
        match bits.runs.as_slice() {
            [run] if run.terms.iter().all(|t| t.map == Map::Each) => {
                let group = |t: &Term| Term { map: Map::Group(entries as u32), ..t.clone() };
                rows.runs[0].terms = run.terms.iter().map(group).collect();
                rows.runs[0].deps = rows.runs[0].deps.union(&run.deps);
            }
            _ => rows.runs[0].deps = rows.runs[0].deps.union(&self.world.rest(&[&bits])),
        }
        made(rows)
    }

    fn look_up_sign<W: Word>(
        &self,
        _: u32,
        width: u32,
        _: usize,
        masked: &Symbols<W>,
        table: &Symbols<u64>,
    ) -> Result<Symbols<u64>> {
        let (n, entries) = (masked.rows.len(), 1u32 << (width - 1));
        let mut deps = self.world.rest(&[&masked.rows]);
        let table = self.bits(table, n * entries as usize);
        let mut terms = vec![];
        match table.runs.as_slice() {
            [run] => {
                deps = deps.union(&run.deps);
                terms.extend(run.terms.iter().map(|t| match t.map {
                    Map::Each => Term { map: Map::Pick(entries), ..t.clone() },
                    Map::Group(g) if g == entries => Term { map: Map::Each, ..t.clone() },
                    _ => Term { map: Map::Some, ..t.clone() },
                }));
            }
            _ => deps = deps.union(&self.world.rest(&[&table])),
        }
        made(Rows::new(Unit::Bit, vec![Run { len: n, terms, deps }]))
    }
}

impl SignedSums for Symbolic {
    fn signed_sum<W: Word>(
        &self,
        base: &Symbols<W>,
        rows: &Symbols<W>,
        _: &[usize],
        signs: &Symbols<u64>,
    ) -> Result<Symbols<W>> {
        let n = base.rows.len();
        let (base, rest) = (self.words(base, n), self.rest(Unit::Word, &[&rows.rows, &signs.rows], n));
        made(Rows::sum(Unit::Word, &[(1, &base), (1, &rest)], n, mask_of(W::BITS)))
    }
}

impl BitProducts for Symbolic {
    fn bit_product(&self, x: &Symbols<u64>, y: &Symbols<u64>, sizes: BitMatrices) -> Result<Symbols<u64>> {
        made(self.rest(Unit::Bit, &[&x.rows, &y.rows], sizes.elements()))
    }
}

impl LookupTables for Symbolic {
    fn lookup_tables<W: Word>(&self, f: &Lookup, masks: &Symbols<W>) -> Result<Symbols<W>> {
        made(self.rest(Unit::Word, &[&masks.rows], masks.rows.len() * f.pieces.len()))
    }

    /// What is read of a table may be any of its entries: a use of its labels, and no mask.
    fn open_looked_up<W: Word>(
        &self,
        _: &Lookup,
        masked: &Symbols<W>,
        tables: &Symbols<W>,
        output_mask: &Symbols<W>,
    ) -> Result<Symbols<W>> {
        let n = masked.rows.len();
        let rest = self.rest(Unit::Word, &[&masked.rows, &tables.rows], n);
        let mask = self.words(output_mask, n);
        made(Rows::sum(Unit::Word, &[(1, &rest), (1, &mask)], n, mask_of(W::BITS)))
    }
}

impl ComparisonKeys for Symbolic {
    fn deal_keys<W: Word>(
        &self,
        spec: KeySpec,
        permutations: &Symbols<u64>,
        masks: &Symbols<W>,
        roots: [&Stream; 2],
    ) -> Result<DealtKeys<W, Self>> {
        let n = masks.rows.len();
        let lengths = [
            2 * n,
            2 * (spec.levels() - 1) * n,
            2 * spec.digits() * n,
            (spec.parts() - 2) * spec.digits() * n,
        ];
        let deps = self.world.rest(&[&masks.rows, &permutations.rows]);
        let [first, others, values, tops] = self.words_of_key(roots, n, lengths, &deps);
        Ok(DealtKeys { first: made(first)?, others: made(others)?, values: made(values)?, tops: made(tops)? })
    }

    fn evaluate_keys<W: Word>(
        &self,
        spec: KeySpec,
        permutations: &Symbols<u64>,
        masked: &Symbols<W>,
        key: &KeyShare<'_, W, Self>,
    ) -> Result<Vec<Symbols<W>>> {
        let n = masked.rows.len();
        let root = self.world.random(self.me, key.root, Unit::Raw, 2 * n);
        let mut inputs = vec![&*permutations.rows, &*masked.rows, &root, &*key.others.rows];
        inputs.extend([&*key.values.rows, &*key.tops.rows]);
        inputs.extend(key.first.map(|first| &*first.rows));
        (0..spec.parts()).map(|_| made(self.rest(Unit::Word, &inputs, n))).collect()
    }
}

impl LookupKeys for Symbolic {
    fn deal_lookup<W: Word>(
        &self,
        f: &Lookup,
        permutations: &Symbols<u64>,
        masks: &Symbols<W>,
        roots: [&Stream; 2],
    ) -> Result<DealtLookup<W, Self>> {
        let n = masks.rows.len();
        let lengths = [2 * n, 2 * (f.depth() - 1) * n, f.corrected() * n];
        let deps = self.world.rest(&[&masks.rows, &permutations.rows]);
        let [first, others, values] = self.words_of_key(roots, n, lengths, &deps);
        Ok(DealtLookup { first: made(first)?, others: made(others)?, values: made(values)? })
    }

    fn open_by_keys<W: Word>(
        &self,
        _: &Lookup,
        permutations: &Symbols<u64>,
        masked: &Symbols<W>,
        key: &LookupKey<'_, W, Self>,
        output_mask: &Symbols<W>,
    ) -> Result<Symbols<W>> {
        let n = masked.rows.len();
        let root = self.world.random(self.me, key.root, Unit::Raw, 2 * n);
        let mut inputs =
            vec![&*permutations.rows, &*masked.rows, &root, &*key.others.rows, &*key.values.rows];
        inputs.extend(key.first.map(|first| &*first.rows));
        inputs.push(&*key.mask.rows);
        let rest = self.rest(Unit::Word, &inputs, n);
        let mask = self.words(output_mask, n);
        made(Rows::sum(Unit::Word, &[(1, &rest), (1, &mask)], n, mask_of(W::BITS)))
    }
}
