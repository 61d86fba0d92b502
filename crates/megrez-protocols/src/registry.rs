//! Every protocol, once: the command line, the documentation and the conformance suite read this list.

use crate::aby3::Aby3;
use crate::alkaid::Alkaid;
use crate::alkaid_masked::AlkaidMasked;
use crate::bicoptor::Bicoptor;
use crate::clear::Clear;
use crate::meteor::Meteor;
use crate::mizar::Mizar;
use crate::{Suite, aegis, concurrent};
use megrez_kernels::Device;
use megrez_ring::Word;

/// What users are told of a protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Protocol {
    /// Its name on the command line.
    pub name: &'static str,
    /// How many parties compute.
    pub parties: usize,
    /// Whom it protects against.
    pub security: &'static str,
    /// Where it comes from.
    pub source: &'static str,
    /// Whether it protects nothing or leaks, and runs only when the caller says `insecure`.
    pub insecure: bool,
    /// Whether it truncates a product and shares it in one go, so that plans do well to leave products as sums, and has no
    /// maximum of all pairs, so that plans spread them.
    pub sums: bool,
    /// How many bits a conjunction takes at most.
    pub factors: usize,
}

/// The protocols.
pub const PROTOCOLS: &[Protocol] = &[
    Protocol {
        name: "mizar",
        parties: 3,
        security: "semi-honest, one of three parties corrupted; party 2 deals",
        source: "MIZAR, corrected",
        insecure: false,
        sums: false,
        factors: 2,
    },
    Protocol {
        name: "aby3",
        parties: 3,
        security: "semi-honest, one of three parties corrupted",
        source: "ABY3, with exact truncation",
        insecure: false,
        sums: true,
        factors: 4,
    },
    Protocol {
        name: "meteor",
        parties: 3,
        security: "semi-honest, one of three parties corrupted",
        source: "METEOR, corrected, with exact truncation and carries of digits",
        insecure: false,
        sums: true,
        factors: 4,
    },
    Protocol {
        name: "alkaid",
        parties: 3,
        security: "semi-honest, one of three parties corrupted",
        source: "ALKAID, corrected, on replicated values",
        insecure: false,
        sums: true,
        factors: 4,
    },
    Protocol {
        name: "alkaid-masked",
        parties: 3,
        security: "semi-honest, one of three parties corrupted",
        source: "ALKAID's comparisons, corrected, on METEOR's masked values",
        insecure: false,
        sums: true,
        factors: 4,
    },
    Protocol {
        name: "bicoptor",
        parties: 3,
        security: "semi-honest, one of three parties corrupted, while values stay in the compared range; party 2 helps",
        source: "improved Bicoptor (probabilistic truncation), corrected",
        insecure: false,
        sums: false,
        factors: 2,
    },
    Protocol {
        name: "concurrent",
        parties: 3,
        security: "semi-honest, one of three parties corrupted; party 2 deals",
        source: "mizar with the concurrent single list (MIZAR, Remark 1), for comparison",
        insecure: false,
        sums: false,
        factors: 2,
    },
    Protocol {
        name: "aegis",
        parties: 3,
        security: "none against party 2: its two lists tell the dealer about the values compared",
        source: "mizar with Aegis's two lists (MIZAR, Fig. 3), for comparison of costs",
        insecure: true,
        sums: false,
        factors: 2,
    },
    Protocol {
        name: "clear",
        parties: 1,
        security: "none: the party sees everything",
        source: "plaintext oracle",
        insecure: true,
        sums: false,
        factors: 4,
    },
];

/// The protocol of this name.
pub fn find(name: &str) -> Option<&'static Protocol> {
    PROTOCOLS.iter().find(|p| p.name == name)
}

/// Something to do with a suite whose type is chosen at run time.
pub trait Visitor<D: Device> {
    /// What comes out.
    type Output;
    /// Runs with the chosen suite.
    fn visit<S: Suite<Device = D>>(self, suite: S) -> Self::Output;
}

/// Runs a visitor with the protocol `name` on a ring of `ring` bits; `None` if there is none such.
pub fn dispatch<D: Device, V: Visitor<D>>(name: &str, ring: u32, visitor: V) -> Option<V::Output> {
    match ring {
        #[cfg(any(test, feature = "testing"))]
        8 => on_ring::<u8, D, V>(name, visitor),
        #[cfg(any(test, feature = "testing"))]
        16 => on_ring::<u16, D, V>(name, visitor),
        32 => on_ring::<u32, D, V>(name, visitor),
        64 => on_ring::<u64, D, V>(name, visitor),
        _ => None,
    }
}

fn on_ring<W: Word, D: Device, V: Visitor<D>>(name: &str, visitor: V) -> Option<V::Output> {
    Some(match name {
        "mizar" => visitor.visit(Mizar::<W, D>::default()),
        "aby3" => visitor.visit(Aby3::<W, D>::default()),
        "meteor" => visitor.visit(Meteor::<W, D>::default()),
        "alkaid" => visitor.visit(Alkaid::<W, D>::default()),
        "alkaid-masked" => visitor.visit(AlkaidMasked::<W, D>::default()),
        "bicoptor" => visitor.visit(Bicoptor::<W, D>::default()),
        "concurrent" => visitor.visit(concurrent::suite::<W, D>()),
        "aegis" => visitor.visit(aegis::suite::<W, D>()),
        "clear" => visitor.visit(Clear::<W, D>::default()),
        _ => return None,
    })
}
