//! Every protocol, once: the command line, the documentation and the conformance suite read this
//! list, and ask what a protocol can do in place of comparing its name.

pub use crate::protocol::{MIZAR_FLOAT, Numbers, Protocol, SECFLOAT, Security};

use crate::AnySuite;
use megrez_kernels::Device;
use megrez_ring::{U40, U48, Word};

/// The protocols on floating point.
pub const FLOAT_PROTOCOLS: &[Protocol] = &[SECFLOAT, MIZAR_FLOAT];

/// The suite on a ring of `W` that a protocol's name stands for: one line each.
macro_rules! suites {
    ($(#[$doc:meta])* $of:ident: $($module:ident => $suite:expr),+ $(,)?) => {
        $(#[$doc])*
        fn $of<W: Word, D: Device>(name: &str) -> Option<Box<dyn AnySuite<D>>> {
            $(if name == crate::$module::PROTOCOL.name {
                return Some(Box::new($suite));
            })+
            None
        }
    };
}

suites! {
    /// Those on every ring.
    on_ring:
    mizar => crate::mizar::Mizar::<W, D>::default(),
    aby3 => crate::aby3::Aby3::<W, D>::default(),
    meteor => crate::meteor::Meteor::<W, D>::default(),
    alkaid => crate::alkaid::Alkaid::<W, D>::default(),
    alkaid_masked => crate::alkaid_masked::AlkaidMasked::<W, D>::default(),
    falcon => crate::falcon::suite::<W, D>(),
    concurrent => crate::concurrent::suite::<W, D>(),
    aegis => crate::aegis::suite::<W, D>(),
    clear => crate::clear::Clear::<W, D>::default(),
}

suites! {
    /// To compare with, on rings that are a machine's words.
    on_words:
    bicoptor => crate::bicoptor::Bicoptor::<W, D>::default(),
}

/// The protocols on rings of words.
pub const PROTOCOLS: &[Protocol] = &[
    crate::mizar::PROTOCOL,
    crate::aby3::PROTOCOL,
    crate::meteor::PROTOCOL,
    crate::alkaid::PROTOCOL,
    crate::alkaid_masked::PROTOCOL,
    crate::bicoptor::PROTOCOL,
    crate::falcon::PROTOCOL,
    crate::concurrent::PROTOCOL,
    crate::aegis::PROTOCOL,
    crate::clear::PROTOCOL,
];

/// The protocol on rings of words of this name.
pub fn find(name: &str) -> Option<&'static Protocol> {
    PROTOCOLS.iter().find(|p| p.name == name)
}

/// Every protocol, floating point included.
pub fn all() -> impl Iterator<Item = &'static Protocol> {
    PROTOCOLS.iter().chain(FLOAT_PROTOCOLS)
}

/// The protocol of this name, floating point included.
pub fn find_any(name: &str) -> Option<&'static Protocol> {
    all().find(|p| p.name == name)
}

/// The suite of the protocol `name` on a ring of `ring` bits; `None` if there is none such.
pub fn suite<D: Device>(name: &str, ring: u32) -> Option<Box<dyn AnySuite<D>>> {
    match ring {
        32 => on_ring::<u32, D>(name).or_else(|| on_words::<u32, D>(name)),
        40 => on_ring::<U40, D>(name),
        48 => on_ring::<U48, D>(name),
        64 => on_ring::<u64, D>(name).or_else(|| on_words::<u64, D>(name)),
        _ => None,
    }
}

/// As [`suite`], also on the rings of 8 and 16 bits on which tests try all values. A function of
/// its own, since whoever calls it compiles every protocol for them.
#[cfg(feature = "testing")]
pub fn any_suite<D: Device>(name: &str, ring: u32) -> Option<Box<dyn AnySuite<D>>> {
    match ring {
        8 => on_ring::<u8, D>(name).or_else(|| on_words::<u8, D>(name)),
        16 => on_ring::<u16, D>(name).or_else(|| on_words::<u16, D>(name)),
        _ => suite(name, ring),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Call;
    use megrez_kernels::Reference;
    use megrez_plan::{Gives, Kind, List, Op, SignBit, Value, Winner};
    use megrez_session::Phase;
    use std::collections::HashSet;

    #[test]
    fn names_are_different_and_found() {
        let names: HashSet<&str> = all().map(|p| p.name).collect();
        assert_eq!(names.len(), all().count());
        assert!(all().all(|p| find_any(p.name) == Some(p)));
        assert!(find(SECFLOAT.name).is_none(), "no suite on a ring");
    }

    /// What a suite says of itself, by what it has formulas for.
    fn capabilities(suite: &dyn AnySuite<Reference>) -> (usize, [bool; 3], [bool; 2], usize, bool) {
        let value = |kind| Value { shape: [1].into(), kind };
        let (ring, sum, bit) =
            (value(Kind::Ring { frac: 0 }), value(Kind::Additive { frac: 0 }), value(Kind::Bit));
        let has =
            |op: Op, inputs: &[&Value], output: &Value| suite.cost(Call { op: &op, inputs, output }).is_ok();
        let sign = SignBit { list: List::Bits, cut: 0, bits: Some(8) };
        let maximum = has(Op::Maximum(sign), &[&ring; 2], &ring);
        let sums = has(Op::Additive(Box::new(Op::Mul)), &[&ring; 2], &sum);
        let fine = value(Kind::Ring { frac: 1 });
        let selects = has(Op::Select { truncate: 1 }, &[&bit, &fine], &ring);
        let summed = Op::SelectSum { groups: vec![1] };
        assert_eq!(has(summed, &[&bit, &ring], &ring), selects, "whoever truncates adds up");
        let table =
            megrez_plan::Lookup { cut: 0, low: 1, degree: 0, pieces: vec![0; 2], frac: 0, beyond: None };
        let looked_up = Op::Lookup(table);
        let offloaded = Op::Offloaded(Box::new(looked_up.clone()));
        let lookup = [looked_up, offloaded].map(|op| has(op, &[&ring], &ring));
        let two = Value { shape: [2].into(), kind: Kind::Ring { frac: 0 } };
        let winner = Op::Winner(Winner { cut: 0, bits: 2, gives: Gives::OneHot });
        let offloaded = Op::Offloaded(Box::new(winner.clone()));
        assert_eq!([winner, offloaded].map(|op| has(op, &[&two], &two)), lookup, "as tables are");
        let factors = (2..=4).rev().find(|&n| has(Op::And, &vec![&bit; n], &bit)).unwrap_or(0);
        let truncate = Op::Truncate { bits: 1 };
        let own: [(Op, &[&Value], &Value); 3] = [
            (Op::Mul, &[&ring; 2], &ring),
            (Op::NonNegative(SignBit::FULL), &[&ring], &bit),
            (truncate, &[&ring], &ring),
        ];
        let offline = own.iter().any(|(op, inputs, output)| {
            let cost = suite.cost(Call { op, inputs, output }).unwrap_or_default();
            cost.transfers.iter().any(|t| t.phase == Phase::Offline)
        });
        (suite.parties(), [maximum, sums, selects], lookup, factors, offline)
    }

    #[test]
    fn protocols_can_do_what_they_say() {
        for p in PROTOCOLS {
            assert_eq!(p.insecure, p.level == Security::None, "{}", p.name);
            for &ring in p.rings {
                let (parties, forms, lookup, factors, offline) =
                    capabilities(&*suite(p.name, ring).expect("registered on this ring"));
                assert_eq!((parties, offline), (p.parties, p.offline), "{}", p.name);
                // The plaintext oracle has everything; what it is asked for is what its plans are
                // to look like.
                if !p.insecure {
                    let said = [p.native_maximum, p.deferred_resharing, p.selects_truncated];
                    assert_eq!(forms, said, "{}", p.name);
                    assert_eq!(lookup, [p.lookup, p.offload], "{}", p.name);
                }
                assert_eq!((lookup[0], factors), (p.lookup, p.factors), "{}", p.name);
            }
        }
    }
}
