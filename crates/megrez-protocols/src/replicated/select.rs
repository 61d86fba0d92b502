//! b·x for a replicated bit and a replicated value, and the bit as a ring value: ours, with the split of `meteor`'s cheaper Bit2A
//! (the papers convert the bit first and multiply then: 6·ℓ bits in 3 rounds).
//!
//! P0 knows A = b_0 ⊕ b_1, the others c = b_2, and b·x = (1−2c)·A·x + c·x. Of A·x = A·(x_0+x_1) + A·x_2, P0 knows the first
//! summand and P1, P2 know x_2; so P0 deals [A] and [A·(x_0+x_1)] to P1 and P2 (P2's shares from a stream), who then hold
//! [b·x] and reshare it: y_0 and y_1 are drawn, y_2 is what they open to each other. Without x, the same with x = 1.
//!
//! phase     rounds  bits per element               from → to
//! online    2       2·ℓ (ℓ without x)              P0 → P1
//!                   2·ℓ                            P1 ↔ P2
//!
//! P1 and P2 see uniform elements, P0 nothing.

use crate::rss::{Rss, draw};
use crate::{Cost, Unit};
use megrez_kernels::{Bits, Device, Tensor};
use megrez_ring::Word;
use megrez_session::{Error, Party};

pub(crate) fn cost(ring: u32, n: usize, with_value: bool) -> Cost {
    let element = Unit::Bits(ring);
    let dealt = Cost::LOCAL.online(1, 0, 1, n, element);
    let dealt = if with_value { dealt.online(1, 0, 1, n, element) } else { dealt };
    dealt.online_swap(2, 1, 2, n, element)
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
    if party.me() == 0 {
        let known = party.device().xor(&[&bit.own.buf, &bit.next.buf], false, n)?;
        let deal = |party: &mut Party<D>, label: &str, secret: D::Buf<W>| {
            let stream = party.stream(2, label)?;
            let other = party.device().random::<W>(&stream, n)?;
            let share = party.device().combine(&[(one, &secret), (minus, &other)], W::ZERO, n)?;
            party.send_ring::<W>(1, label, share)
        };
        let a = party.device().bit_times(&known, None, n)?;
        deal(party, "A", a)?;
        if let Some(x) = value {
            let both = party.device().combine(&[(one, &x.own.buf), (one, &x.next.buf)], W::ZERO, n)?;
            let product = party.device().bit_times(&known, Some(&both), n)?;
            deal(party, "Ax", product)?;
        }
        return Rss::of(0, |c| Ok(tensor(draw(party, c, "y", n)?)));
    }
    let me = party.me();
    let dealt = |party: &mut Party<D>, label: &str| match me {
        1 => party.recv_ring::<W>(0, label, n),
        _ => {
            let stream = party.stream(0, label)?;
            Ok(party.device().random(&stream, n)?)
        }
    };
    // [A·x] and this party's share of x: P1 takes x_1 + x_2 (or 1), P2 takes x_0 (or 0).
    let a = dealt(party, "A")?;
    let (product, x) = match value {
        None => (a, party.device().combine(&[], if me == 1 { one } else { W::ZERO }, n)?),
        Some(x) => {
            let dealt = dealt(party, "Ax")?;
            let product = party.device().products(&[(one, &a, &x.component(me, 2).buf)], &[(one, &dealt)])?;
            let mine = match me {
                1 => party.device().combine(&[(one, &x.own.buf), (one, &x.next.buf)], W::ZERO, n)?,
                _ => x.next.buf.clone(),
            };
            (product, mine)
        }
    };
    // (1−2c)·[A·x] + c·[x] = [A·x] + c·([x] − 2·[A·x]).
    let difference = party.device().combine(&[(one, &x), (W::from_i64(-2), &product)], W::ZERO, n)?;
    let chosen = party.device().bit_times(&bit.component(me, 2).buf, Some(&difference), n)?;
    // P1 holds y_1, P2 holds y_0.
    let drawn = draw::<W, D>(party, 2 - me, "y", n)?;
    let masked = party.device().combine(&[(one, &product), (one, &chosen), (minus, &drawn)], W::ZERO, n)?;
    party.send_ring::<W>(3 - me, "y", masked.clone())?;
    let other = party.recv_ring::<W>(3 - me, "y", n)?;
    let opened = tensor(party.device().combine(&[(one, &masked), (one, &other)], W::ZERO, n)?);
    Ok(match me {
        1 => Rss { own: tensor(drawn), next: opened },
        _ => Rss { own: opened, next: tensor(drawn) },
    })
}
