//! The top bit of a sum of two values that are known to some parties, on masked replicated bits:
//! ALKAID's nodes ([`super::adder`]) above digits ([`crate::steps::digits`]), whose signals P0 and
//! P1 know in parts. They open these to all under masks of their own, and nodes of four follow. The
//! last carry, with the top bits in it, is opened as the masked result.
//!
//! phase     rounds          bits per value, d digits                from → to
//! offline   1               3 for every pair                        P_i → P_{i−1}, each i
//! online    1               4·(2·d − 1)                             P0 → P1, P2 and P1 → P0, P2
//!           ⌈log4 d⌉        6 for an opened signal or the result    each to both others
//!
//! For 64 bits that is 39 + 172 bits, and 233 for the digits. Everybody sees uniform bits: what P0
//! and P1 send holds a component of the mask that the receiver lacks, and a stream of theirs hides
//! the parts of the sum from P2, who knows the rest.

use super::adder::keep;
use super::nodes::{Local, level, mask, receive_opening, send_opening};
use super::schedule::{Leaves, Schedule, opening, planes, remade};
use crate::rss::{Rss, draw};
use crate::steps::digits::Digits;
use crate::steps::planes::{Lanes, Plane, Sheet, Signal, add_zero, masked, recv, reshare};
use crate::steps::tree::Tree;
use crate::{Cost, Encode, EncodeError};
use megrez_kernels::{Bits, Circuit, Device};
use megrez_session::{Error, Party};

/// `alkaid`'s digits below the top bit of `width`.
pub(crate) fn digits(width: usize) -> Digits {
    // Two signals of a digit; three digits more are a node more, with two signals and three pairs.
    Digits::new(width, 4, |count| 8.0 * count as f64 + 21.0 * count as f64 / 3.0)
}

/// The tree over digits, and what is multiplied and opened.
fn over(digits: &Digits) -> (Tree, Schedule) {
    let tree = Tree::carry(digits.count(), 4);
    let schedule = Schedule::new(&tree, Leaves::Digits);
    (tree, schedule)
}

/// The cost from the digits' signals on, of `n` values.
pub(crate) fn cost(digits: &Digits, n: usize) -> Cost {
    let (_, schedule) = over(digits);
    let cost = remade(Cost::LOCAL, 1, schedule.pairs.len(), n);
    let two = |cost: Cost, count| {
        [(0, 1), (0, 2), (1, 0), (1, 2)]
            .into_iter()
            .fold(cost, |cost: Cost, (from, to)| cost.online(1, from, to, n, planes(count)))
    };
    if digits.count() == 1 {
        return two(cost, 1);
    }
    let cost = two(cost, digits.signals());
    (2..)
        .zip(&schedule.levels)
        .fold(cost, |cost, (round, (opened, results))| opening(cost, round, opened.len() + results.len(), n))
}

/// What a top bit takes from the offline phase: the masks of what is opened, and products of masks.
pub struct Material<D: Device> {
    opened: Rss<Bits<D>>,
    pairs: Rss<Bits<D>>,
}

impl<D: Device> Encode<D> for Material<D> {
    fn write(&self, device: &D, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        self.opened.write(device, out)?;
        self.pairs.write(device, out)
    }
    fn read(device: &D, input: &mut &[u8]) -> Result<Self, EncodeError> {
        Ok(Material { opened: Encode::<D>::read(device, input)?, pairs: Encode::<D>::read(device, input)? })
    }
}

/// Draws the masks of what is opened and makes their products.
pub(crate) fn offline<D: Device>(
    party: &mut Party<D>,
    digits: &Digits,
    lanes: Lanes,
) -> Result<Material<D>, Error> {
    let (me, words) = (party.me(), lanes.words());
    let schedule = over(digits).1;
    let (opened, count) = (schedule.opened(), schedule.pairs.len());
    let masks = Rss::of(me, |c| draw::<u64, D>(party, c, "opened", opened.len() * words))?;
    let mut sheet = Sheet::new();
    sheet.add_rss(me, masks.clone(), |c| opened.iter().map(|&s| Plane::Mask(s, c)).collect());
    let mut pairs = Rss::of(me, |_| party.device().upload(vec![]))?;
    if count > 0 {
        add_zero(party, &mut sheet, "pairs", count, lanes)?;
        let mut circuit = Circuit::default();
        let products = schedule.pairs.iter().enumerate().map(|(k, &(a, b))| {
            let [a, b] = [a, b].map(|s| mask(&sheet, &mut circuit, me, s));
            let product = a.and(&mut circuit, b);
            masked(&sheet, &mut circuit, k, product)
        });
        let products = products.collect();
        circuit.output(products);
        let share = sheet.run(party.device(), &circuit, words)?.remove(0);
        pairs = reshare(party, "pairs", share, count, lanes)?;
    }
    let kept = |planes: Rss<D::Buf<u64>>, count| Rss {
        own: keep(count, words, planes.own),
        next: keep(count, words, planes.next),
    };
    Ok(Material { opened: kept(masks, opened.len()), pairs: kept(pairs, count) })
}

/// The first round: P0 and P1 send their shares of the digits' signals, masked; every party gives
/// what it adds to those that it receives. `share` is there at P0 and P1, and `r` is the mask of
/// the result.
pub(crate) fn send<D: Device>(
    party: &mut Party<D>,
    digits: &Digits,
    lanes: Lanes,
    share: Option<D::Buf<u64>>,
    material: &Material<D>,
    r: &Rss<D::Buf<u64>>,
) -> Result<Option<D::Buf<u64>>, Error> {
    let Some(share) = share else { return Ok(None) };
    let (me, planes) = (party.me(), digits.signals());
    // Of the masks of all that is opened, those of the digits come first; a lone digit's signal is
    // the result.
    let masks = match digits.count() {
        1 => r.clone(),
        _ => Rss { own: material.opened.own.buf.clone(), next: material.opened.next.buf.clone() },
    };
    let hidden = draw::<u64, D>(party, 1, "digits", planes * lanes.words())?;
    let count = planes * lanes.words() * 64;
    // P0 adds components 0 and 1, P1 component 2.
    let masked = match me {
        0 => party.device().xor(&[&share, &hidden, &masks.own, &masks.next], false, count)?,
        _ => party.device().xor(&[&share, &hidden, &masks.next], false, count)?,
    };
    send_opening(party, "digits", &masked, planes, lanes)?;
    Ok(Some(masked))
}

/// m of the top bit of u + v under the mask `r`, once the digits' signals are on their way.
pub(crate) fn receive<D: Device>(
    party: &mut Party<D>,
    digits: &Digits,
    lanes: Lanes,
    sent: Option<D::Buf<u64>>,
    material: Material<D>,
    r: &Rss<D::Buf<u64>>,
) -> Result<D::Buf<u64>, Error> {
    let (me, planes) = (party.me(), digits.signals());
    let mut receive = |from: usize| recv(party, from, "digits", planes, lanes);
    let shares = match sent {
        Some(mine) => [mine, receive(1 - me)?],
        None => [receive(0)?, receive(1)?],
    };
    let m = party.device().xor(&[&shares[0], &shares[1]], false, planes * lanes.words() * 64)?;
    if digits.count() == 1 {
        return Ok(m);
    }
    let (tree, schedule) = over(digits);
    let opened = schedule.opened();
    let mut sheet = Sheet::new();
    sheet.add(m, schedule.digits.iter().map(|&s| Plane::Masked(s)));
    let planes = |kept: Rss<Bits<D>>| Rss { own: kept.own.buf, next: kept.next.buf };
    sheet.add_rss(me, planes(material.opened), |c| opened.iter().map(|&s| Plane::Mask(s, c)).collect());
    sheet.add_rss(me, planes(material.pairs), |c| {
        schedule.pairs.iter().map(|&(a, b)| Plane::Pair(a, b, c)).collect()
    });
    for depth in 0..tree.levels.len() {
        level(party, &tree, &schedule, depth, lanes, &mut sheet, false)?;
    }
    add_zero(party, &mut sheet, "top", 1, lanes)?;
    let mut circuit = Circuit::default();
    let root = &tree.levels.last().expect("nodes above more than one digit")[0];
    let carry = Local { sheet: &sheet, me }.additive(&mut circuit, root, Signal::Generate(root.span));
    let share = masked(&sheet, &mut circuit, 0, carry);
    circuit.output(vec![share]);
    let share = sheet.run(party.device(), &circuit, lanes.words())?.remove(0);
    let share = party.device().xor(&[&share, &r.own], false, lanes.words() * 64)?;
    send_opening(party, "top", &share, 1, lanes)?;
    receive_opening(party, "top", &share, 1, lanes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use megrez_session::Phase::{Offline, Online};

    #[test]
    fn the_cost_of_the_top_bit_is_that_of_the_head() {
        let cost = cost(&digits(64), 1);
        assert_eq!((cost.bits(Offline), cost.bits(Online), cost.rounds(Online)), (39.0, 172.0, 3));
        assert_eq!(digits(64).cost(Online, 1).bits(Online), 233.0);
    }
}
