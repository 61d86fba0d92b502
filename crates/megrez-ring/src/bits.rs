//! Packed bits: element i of a Boolean tensor is bit i mod 64 of word i / 64. Bits past the end are
//! zero.

/// How many 64-bit words hold `n` bits.
pub const fn words(n: usize) -> usize {
    n.div_ceil(64)
}

/// How many bytes `n` packed bits take on the wire.
pub const fn bytes(n: usize) -> usize {
    n.div_ceil(8)
}

/// Bit `i` of a packed tensor, 0 or 1.
#[inline(always)]
pub fn get(packed: &[u64], i: usize) -> u64 {
    (packed[i / 64] >> (i % 64)) & 1
}

/// Clears the bits past the `n`-th, as every producer of packed bits must.
pub fn clear_tail(packed: &mut [u64], n: usize) {
    if !n.is_multiple_of(64) {
        packed[n / 64] &= (1 << (n % 64)) - 1;
    }
}

/// Packs `n` bits given by a function of the index.
pub fn pack(n: usize, mut bit: impl FnMut(usize) -> u64) -> Vec<u64> {
    (0..words(n))
        .map(|w| (w * 64..n.min(w * 64 + 64)).fold(0, |word, i| word | (bit(i) & 1) << (i % 64)))
        .collect()
}

/// Appends `n` packed bits to `packed`, which holds `filled`.
pub fn append(packed: &mut Vec<u64>, filled: usize, more: &[u64], n: usize) {
    append_run(packed, filled, more, 0, n);
}

/// Appends the `n` bits of `from` that begin at bit `start` to `packed`, which holds `filled`.
pub fn append_run(packed: &mut Vec<u64>, filled: usize, from: &[u64], start: usize, n: usize) {
    packed.resize(words(filled), 0);
    packed.reserve(words(filled + n) - packed.len());
    let head = ((64 - filled % 64) % 64).min(n);
    if head > 0 {
        packed[filled / 64] |= run(from, start, head) << (filled % 64);
    }
    let (start, whole, rest) = (start + head, (n - head) / 64, (n - head) % 64);
    let (first, shift) = (start / 64, start % 64);
    if shift == 0 {
        packed.extend_from_slice(&from[first..first + whole]);
    } else if whole > 0 {
        let pairs = from[first..=first + whole].windows(2);
        packed.extend(pairs.map(|pair| pair[0] >> shift | pair[1] << (64 - shift)));
    }
    if rest > 0 {
        packed.push(run(from, start + whole * 64, rest));
    }
}

/// `count` runs of `n` bits, one after the other from bit `start` on, each on words of its own.
pub fn spaced(from: &[u64], start: usize, count: usize, n: usize) -> Vec<u64> {
    let mut out = Vec::with_capacity(count * words(n));
    (0..count).for_each(|k| append_run(&mut out, k * words(n) * 64, from, start + k * n, n));
    out
}

/// Undoes [`spaced`]: the first `count` runs; what is behind them on their words is left out.
pub fn dense(spaced: &[u64], count: usize, n: usize) -> Vec<u64> {
    let mut out = Vec::with_capacity(words(count * n));
    (0..count).for_each(|k| append_run(&mut out, k * n, spaced, k * words(n) * 64, n));
    out
}

/// `count` from 1 to 64 bits from bit `at` on.
#[inline(always)]
pub fn run(packed: &[u64], at: usize, count: usize) -> u64 {
    let (word, shift) = (at / 64, at % 64);
    let low = packed[word] >> shift;
    let value = if shift + count > 64 { low | packed[word + 1] << (64 - shift) } else { low };
    value & (u64::MAX >> (64 - count))
}

/// Packs the low `width` bits of each value densely, first value lowest; `width` in 1..=64.
pub fn pack_low(values: impl ExactSizeIterator<Item = u64>, width: u32) -> Vec<u64> {
    let mut out = Vec::with_capacity(words(values.len() * width as usize));
    let (mut acc, mut filled) = (0u128, 0u32);
    let mask = u64::MAX >> (64 - width);
    for v in values {
        acc |= u128::from(v & mask) << filled;
        filled += width;
        if filled >= 64 {
            out.push(acc as u64);
            acc >>= 64;
            filled -= 64;
        }
    }
    if filled > 0 {
        out.push(acc as u64);
    }
    out
}

/// The `i`-th value of `width` bits packed by [`pack_low`].
#[inline(always)]
pub fn get_low(packed: &[u64], i: usize, width: u32) -> u64 {
    let at = i * width as usize;
    let (word, shift) = (at / 64, (at % 64) as u32);
    let mut v = packed[word] >> shift;
    if shift + width > 64 {
        v |= packed[word + 1] << (64 - shift);
    }
    v & (u64::MAX >> (64 - width))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn low_packing_is_undone(values in prop::collection::vec(any::<u64>(), 0..200), width in 1u32..=64) {
            let packed = pack_low(values.iter().copied(), width);
            prop_assert_eq!(packed.len(), words(values.len() * width as usize));
            for (i, v) in values.iter().enumerate() {
                prop_assert_eq!(get_low(&packed, i, width), v & (u64::MAX >> (64 - width)));
            }
        }

        #[test]
        fn appended_bits_follow(parts in prop::collection::vec(prop::collection::vec(0u64..2, 0..150), 0..5)) {
            let mut packed = vec![];
            let mut all: Vec<u64> = vec![];
            for part in &parts {
                append(&mut packed, all.len(), &pack(part.len(), |i| part[i]), part.len());
                all.extend(part);
            }
            prop_assert_eq!(packed, pack(all.len(), |i| all[i]));
        }

        #[test]
        fn runs_are_cut_out(bits in prop::collection::vec(0u64..2, 1..400), start in 0usize..200, filled in 0usize..130) {
            let start = start.min(bits.len() - 1);
            let packed = pack(bits.len(), |i| bits[i]);
            for n in 0..bits.len() - start {
                let mut into = pack(filled, |i| i as u64 % 2);
                append_run(&mut into, filled, &packed, start, n);
                let expected = |i: usize| if i < filled { i as u64 % 2 } else { bits[start + i - filled] };
                prop_assert_eq!(&into, &pack(filled + n, expected));
            }
        }

        #[test]
        fn runs_on_words_of_their_own_are_undone(bits in prop::collection::vec(0u64..2, 0..400), n in 1usize..140, start in 0usize..70) {
            let packed = pack(bits.len(), |i| bits[i]);
            let count = bits.len().saturating_sub(start) / n;
            let apart = spaced(&packed, start, count, n);
            prop_assert_eq!(apart.len(), count * words(n));
            for k in 0..count {
                prop_assert_eq!(&apart[k * words(n)..][..words(n)], pack(n, |i| bits[start + k * n + i]));
            }
            prop_assert_eq!(dense(&apart, count, n), pack(count * n, |i| bits[start + i]));
        }

        #[test]
        fn bits_are_undone(bits in prop::collection::vec(0u64..2, 0..300)) {
            let packed = pack(bits.len(), |i| bits[i]);
            for (i, b) in bits.iter().enumerate() {
                prop_assert_eq!(get(&packed, i), *b);
            }
        }
    }

    #[test]
    fn tails_are_cleared() {
        let mut w = vec![u64::MAX, u64::MAX];
        clear_tail(&mut w, 70);
        assert_eq!(w, [u64::MAX, 0x3f]);
    }
}
