//! Lists: the kernels against the algebra of the protocol.

use super::devices;
use crate::Cuda;
use megrez_kernels::testing::{Suite, host};
use megrez_kernels::{Entries, FieldShare, ListSpec, ListStreams, MaskedLists, Reference};
use megrez_protocols::mizar::SignList;
use megrez_ring::{Prime, Word};

fn bit_list(cut: u32, width: u32) -> SignList {
    SignList(ListSpec { cut, width, entries: Entries::Bits, prime: Prime::above(width) })
}

fn digit_list(cut: u32, widths: &[u32]) -> SignList {
    let width = widths.iter().sum::<u32>() + 1;
    let prime = Prime::above(widths.len() as u32);
    SignList(ListSpec { cut, width, entries: Entries::Digits(widths.to_vec()), prime })
}

/// Lists with packings, paddings and tiles of every kind. A GPU takes more of them; each has to be
/// compiled.
fn lists(ring: u32, thorough: bool) -> Vec<SignList> {
    let mut lists = vec![];
    let widths: Vec<u32> = if thorough { (2..=ring).collect() } else { vec![2, 3, 8, 12, 17, 31, 32, 64] };
    for width in widths {
        lists.push(bit_list(ring.saturating_sub(width) / 2, width));
    }
    for widths in [
        &[1u32][..],
        &[3],
        &[4, 3],
        &[1, 8, 2, 7, 1],
        &[3, 3, 3, 2, 2, 2],
        &[[2u32; 11].as_slice(), &[1]].concat(),
        &[[3u32; 7].as_slice(), &[2; 5]].concat(),
        &[[3u32; 7].as_slice(), &[2; 21]].concat(),
        &[1; 63],
        &[8, 8, 8, 8, 8, 8, 8, 7],
    ] {
        lists.push(digit_list(0, widths));
        if thorough {
            lists.push(digit_list(5, widths));
        }
    }
    // One entry leaves nothing to rotate.
    lists.retain(|SignList(spec)| spec.cut + spec.width <= ring && spec.length() > 1);
    lists
}

#[test]
fn unfused_lists() {
    for suite in devices() {
        for (width, n) in [(8, 0), (8, 200), (64, 1), (64, 65), (64, 700)] {
            let (list, masked, flips) = (&bit_list(0, width), suite.words::<u64>(n), suite.bits(n));
            let spec = &list.0;
            let [other, multiplier, zero_share, rotation] = std::array::from_fn(|_| suite.stream());
            let streams =
                ListStreams { multiplier: &multiplier, zero_share: &zero_share, rotation: &rotation };
            let packed: Vec<u64> = suite.words(spec.prime.words(n * spec.dealt()));
            for (j, packed) in [(0, Some(&packed[..])), (1, None)] {
                let words = packed.map(host);
                let share = words.as_ref().map_or(FieldShare::Stream(&other), FieldShare::Packed);
                let expected =
                    Reference.masked_lists(list, j, &host(&masked), Some(share), &host(&flips), &streams);
                let words = packed.map(|p| suite.up(p));
                let share = words.as_ref().map_or(FieldShare::Stream(&other), FieldShare::Packed);
                let (masked, flips) = (suite.up(&masked), suite.up(&flips));
                let found = suite.device.unfused_list(spec, j, &masked, share, &flips, &streams).unwrap();
                suite.same(&format!("unfused list {width} {n} {j}"), found, &expected.unwrap()[0]);
            }
        }
    }
}

/// Lengths around the tiles of the kernel.
fn listed<W: Word>(suite: &Suite<Cuda>) {
    for (which, list) in lists(W::BITS, suite.thorough).iter().enumerate() {
        let tile = crate::list_shape::ListShape::of(&list.0).list_tile;
        let lengths = [0, 1, 65, tile - 1, tile, tile + 1, 2 * tile + 7];
        for (l, &n) in lengths.iter().enumerate() {
            if suite.thorough || l % 2 == which % 2 {
                suite.list::<W>(list, n);
            }
        }
    }
}

#[test]
fn lists_of_bytes() {
    for suite in devices() {
        listed::<u8>(&suite);
        if suite.thorough {
            listed::<u16>(&suite);
            listed::<u32>(&suite);
        }
    }
}

#[test]
fn lists_of_words() {
    for suite in devices() {
        listed::<u64>(&suite);
        suite.list::<u32>(&bit_list(0, 32), 300);
        suite.list::<u16>(&digit_list(4, &[3, 3, 3, 2]), 300);
        if suite.thorough {
            for list in [
                bit_list(0, 64),
                digit_list(0, &[[3u32; 7].as_slice(), &[2; 21]].concat()),
                digit_list(16, &[4, 3]),
            ] {
                suite.list::<u64>(&list, 70_001);
            }
        }
    }
}
