//! b·x for a replicated bit and a replicated value, and the bit as a ring value: ours, with the
//! split of `meteor`'s cheaper Bit2A (the papers convert the bit first and multiply then: 6·ℓ bits
//! in 3 rounds).
//!
//! P2 knows A = b_2 ⊕ b_0, the others c = b_1, and b·x = (1−2c)·A·x + c·x. Of A·x = A·(x_2+x_0) +
//! A·x_1, P2 knows the first summand and P0, P1 know x_1; so P2 deals [A] and [A·(x_2+x_0)] to P0
//! and P1 (P1's shares from a stream), who then hold [b·x] and share it: y_2 and y_0 are drawn, y_1
//! is what they open to each other. Without x, the same with x = 1.
//!
//! phase     rounds  bits per element               from → to
//! online    2       2·ℓ (ℓ without x)              P2 → P0
//!                   2·ℓ                            P0 ↔ P1
//!
//! P0 and P1 see uniform elements, P2 nothing.

use crate::rss::{Rss, draw};
use crate::{Cost, Unit};
use megrez_kernels::{Bits, Device, Tensor};
use megrez_ring::Word;
use megrez_session::{Error, Party};

pub(crate) fn cost(ring: u32, n: usize, with_value: bool) -> Cost {
    let element = Unit::Bits(ring);
    let dealt = Cost::LOCAL.online(1, 2, 0, n, element);
    let dealt = if with_value { dealt.online(1, 2, 0, n, element) } else { dealt };
    dealt.online_swap(2, 0, 1, n, element)
}

/// b·x, or b as 0 or 1 without x.
pub(crate) fn online<W: Word, D: Device>(
    party: &mut Party<D>,
    bit: &Rss<Bits<D>>,
    value: Option<&Rss<Tensor<W, D>>>,
) -> Result<Rss<Tensor<W, D>>, Error> {
    let shape = bit.own.shape.clone();
    let n = shape.elements();
    let (one, minus) = (W::ONE, W::ONE.neg());
    let tensor = |buf| Tensor::new(shape.clone(), buf);
    if party.me() == 2 {
        let known = party.device().xor(&[&bit.own.buf, &bit.next.buf], false, n)?;
        let deal = |party: &mut Party<D>, label: &str, secret: D::Buf<W>| {
            let stream = party.stream(1, label)?;
            let other = party.device().random::<W>(&stream, n)?;
            let share = party.device().combine(&[(one, &secret), (minus, &other)], W::ZERO, n)?;
            party.send_ring::<W>(0, label, share)
        };
        let a = party.device().bit_times(&known, None, n)?;
        deal(party, "A", a)?;
        if let Some(x) = value {
            let both = party.device().combine(&[(one, &x.own.buf), (one, &x.next.buf)], W::ZERO, n)?;
            let product = party.device().bit_times(&known, Some(&both), n)?;
            deal(party, "Ax", product)?;
        }
        return Rss::of(2, |c| Ok(tensor(draw(party, c, "y", n)?)));
    }
    let me = party.me();
    let dealt = |party: &mut Party<D>, label: &str| match me {
        0 => party.recv_ring::<W>(2, label, n),
        _ => {
            let stream = party.stream(2, label)?;
            Ok(party.device().random(&stream, n)?)
        }
    };
    // [A·x] and this party's share of x: P0 takes x_0 + x_1 (or 1), P1 takes x_2 (or 0).
    let a = dealt(party, "A")?;
    let (product, x) = match value {
        None => (a, party.device().combine(&[], if me == 0 { one } else { W::ZERO }, n)?),
        Some(x) => {
            let dealt = dealt(party, "Ax")?;
            let product = party.device().products(&[(one, &a, &x.component(me, 1).buf)], &[(one, &dealt)])?;
            let mine = match me {
                0 => party.device().combine(&[(one, &x.own.buf), (one, &x.next.buf)], W::ZERO, n)?,
                _ => x.next.buf.clone(),
            };
            (product, mine)
        }
    };
    // (1−2c)·[A·x] + c·[x] = [A·x] + c·([x] − 2·[A·x]).
    let difference = party.device().combine(&[(one, &x), (W::from_i64(-2), &product)], W::ZERO, n)?;
    let chosen = party.device().bit_times(&bit.component(me, 1).buf, Some(&difference), n)?;
    // P0 holds y_0, P1 holds y_2.
    let drawn = draw::<W, D>(party, 2 * me, "y", n)?;
    let masked = party.device().combine(&[(one, &product), (one, &chosen), (minus, &drawn)], W::ZERO, n)?;
    party.send_ring::<W>(1 - me, "y", masked.clone())?;
    let other = party.recv_ring::<W>(1 - me, "y", n)?;
    let opened = tensor(party.device().combine(&[(one, &masked), (one, &other)], W::ZERO, n)?);
    Ok(match me {
        0 => Rss { own: tensor(drawn), next: opened },
        _ => Rss { own: opened, next: tensor(drawn) },
    })
}
