//! The CPU's kernels for masked lists equal the algebra of `mizar::SignList` bit for bit, for every
//! set of instructions.

use megrez_kernels::testing::Suite;
use megrez_kernels::{Cpu, ListSpec};
use megrez_plan::{List, SignBit};
use megrez_prg::Level;
use megrez_protocols::mizar::SignList;
use megrez_ring::Word;

/// The list of `cut` and `width`, of bits or of digits, if the ring has room for it.
fn list(ring: u32, cut: u32, width: u32, digits: Option<Vec<u32>>) -> Option<SignList> {
    let list = digits.map_or(List::Bits, List::Digits);
    let sign = SignBit { list, cut, bits: Some(width) };
    (cut + width <= ring).then(|| SignList(ListSpec::new(&sign, ring)))
}

/// Every kind of list that a plan can ask for, by width, with cuts where the ring leaves room.
fn lists(ring: u32) -> Vec<SignList> {
    let mut lists = vec![];
    for width in 2..=ring {
        lists.extend([0, 3, ring - width].map(|cut| list(ring, cut, width, None)));
        for w in [1, 2, 3, 4, 5, 7, 8] {
            let low = width - 1;
            let mut widths = vec![w; (low / w) as usize];
            widths.extend(Some(low % w).filter(|&r| r > 0));
            lists.push(list(ring, ring - width, width, Some(widths.clone())));
            widths.reverse();
            lists.push(list(ring, 0, width, Some(widths)));
        }
    }
    for widths in [
        &[4u32, 3][..],
        &[3, 3, 3, 2],
        &[3, 3, 3, 2, 2, 2],
        &[[2u32; 11].as_slice(), &[1]].concat(),
        &[[3u32; 7].as_slice(), &[2; 5]].concat(),
        &[[3u32; 7].as_slice(), &[2; 21]].concat(),
        &[1, 8, 2, 7, 1],
    ] {
        let width = widths.iter().sum::<u32>() + 1;
        lists.extend([0, 5, 16].map(|cut| list(ring, cut, width, Some(widths.to_vec()))));
    }
    lists.into_iter().flatten().collect()
}

/// Every list at a few lengths; many lengths for some.
fn compare<W: Word>(suite: &Suite<Cpu>) {
    for (which, list) in lists(W::BITS).iter().enumerate() {
        let lengths =
            if which % 37 == 0 { &[0, 1, 7, 63, 64, 200, 513, 2083][..] } else { &[1, 65, 200][which % 2..] };
        lengths.iter().for_each(|&n| suite.list::<W>(list, n));
    }
}

fn compare_all(suite: &Suite<Cpu>) {
    compare::<u8>(suite);
    compare::<u16>(suite);
    compare::<u32>(suite);
    compare::<u64>(suite);
}

#[test]
fn every_level_equals_the_algebra() {
    Level::all().into_iter().for_each(|level| compare_all(&Suite::new(Cpu::at_level(level, 1), true)));
}

#[test]
fn threads_do_not_change_lists() {
    let suite = Suite::new(Cpu::new(3), true);
    compare::<u16>(&suite);
    for (width, digits) in [(64, None), (64, Some(vec![3; 21])), (16, Some(vec![3, 3, 3, 2, 2, 2]))] {
        let list = list(64, 0, width, digits).expect("the ring has 64 bits");
        // More than one thread's work.
        let n = (1 << 19) / list.0.length() + 1003;
        suite.list::<u64>(&list, n);
    }
}
