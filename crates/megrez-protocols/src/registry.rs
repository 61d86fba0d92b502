//! Every protocol, once: the command line, the documentation and the conformance suite read this list.

use crate::Suite;
use crate::bicoptor::Bicoptor;
use crate::clear::Clear;
use crate::meteor::{Comparisons, Meteor};
use crate::mizar::Mizar;
use crate::replicated::{Adder, Replicated};
use megrez_kernels::{Baseline, Device};

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
    Some(match (name, ring) {
        ("mizar", 8) => visitor.visit(Mizar::<u8, D>::default()),
        ("mizar", 16) => visitor.visit(Mizar::<u16, D>::default()),
        ("mizar", 32) => visitor.visit(Mizar::<u32, D>::default()),
        ("mizar", 64) => visitor.visit(Mizar::<u64, D>::default()),
        ("aby3", 8) => visitor.visit(Replicated::<u8, D>::with_adder(Adder::Aby3)),
        ("aby3", 16) => visitor.visit(Replicated::<u16, D>::with_adder(Adder::Aby3)),
        ("aby3", 32) => visitor.visit(Replicated::<u32, D>::with_adder(Adder::Aby3)),
        ("aby3", 64) => visitor.visit(Replicated::<u64, D>::with_adder(Adder::Aby3)),
        ("meteor", 8) => visitor.visit(Meteor::<u8, D>::default()),
        ("meteor", 16) => visitor.visit(Meteor::<u16, D>::default()),
        ("meteor", 32) => visitor.visit(Meteor::<u32, D>::default()),
        ("meteor", 64) => visitor.visit(Meteor::<u64, D>::default()),
        ("alkaid", 8) => visitor.visit(Replicated::<u8, D>::with_adder(Adder::Alkaid)),
        ("alkaid", 16) => visitor.visit(Replicated::<u16, D>::with_adder(Adder::Alkaid)),
        ("alkaid", 32) => visitor.visit(Replicated::<u32, D>::with_adder(Adder::Alkaid)),
        ("alkaid", 64) => visitor.visit(Replicated::<u64, D>::with_adder(Adder::Alkaid)),
        ("alkaid-masked", 8) => visitor.visit(Meteor::<u8, D>::with_comparisons(Comparisons::Alkaid)),
        ("bicoptor", 8) => visitor.visit(Bicoptor::<u8, D>::default()),
        ("alkaid-masked", 16) => visitor.visit(Meteor::<u16, D>::with_comparisons(Comparisons::Alkaid)),
        ("bicoptor", 16) => visitor.visit(Bicoptor::<u16, D>::default()),
        ("alkaid-masked", 32) => visitor.visit(Meteor::<u32, D>::with_comparisons(Comparisons::Alkaid)),
        ("bicoptor", 32) => visitor.visit(Bicoptor::<u32, D>::default()),
        ("alkaid-masked", 64) => visitor.visit(Meteor::<u64, D>::with_comparisons(Comparisons::Alkaid)),
        ("bicoptor", 64) => visitor.visit(Bicoptor::<u64, D>::default()),
        ("concurrent", 8) => visitor.visit(Mizar::<u8, D>::with_lists(Baseline::Concurrent)),
        ("concurrent", 16) => visitor.visit(Mizar::<u16, D>::with_lists(Baseline::Concurrent)),
        ("concurrent", 32) => visitor.visit(Mizar::<u32, D>::with_lists(Baseline::Concurrent)),
        ("concurrent", 64) => visitor.visit(Mizar::<u64, D>::with_lists(Baseline::Concurrent)),
        ("aegis", 8) => visitor.visit(Mizar::<u8, D>::with_lists(Baseline::Aegis)),
        ("aegis", 16) => visitor.visit(Mizar::<u16, D>::with_lists(Baseline::Aegis)),
        ("aegis", 32) => visitor.visit(Mizar::<u32, D>::with_lists(Baseline::Aegis)),
        ("aegis", 64) => visitor.visit(Mizar::<u64, D>::with_lists(Baseline::Aegis)),
        ("clear", 8) => visitor.visit(Clear::<u8, D>::default()),
        ("clear", 16) => visitor.visit(Clear::<u16, D>::default()),
        ("clear", 32) => visitor.visit(Clear::<u32, D>::default()),
        ("clear", 64) => visitor.visit(Clear::<u64, D>::default()),
        _ => return None,
    })
}
