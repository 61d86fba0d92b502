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

/// As [`suite`], also on the ring of 8 bits on which tests try all values. A function of its own,
/// since whoever calls it compiles every protocol for it.
#[cfg(feature = "testing")]
pub fn any_suite<D: Device>(name: &str, ring: u32) -> Option<Box<dyn AnySuite<D>>> {
    match ring {
        8 => on_ring::<u8, D>(name).or_else(|| on_words::<u8, D>(name)),
        _ => suite(name, ring),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_are_different_and_found() {
        let names: HashSet<&str> = all().map(|p| p.name).collect();
        assert_eq!(names.len(), all().count());
        assert!(all().all(|p| find_any(p.name) == Some(p)));
        assert!(find(SECFLOAT.name).is_none(), "no suite on a ring");
    }
}
