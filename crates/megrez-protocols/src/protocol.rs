//! What a suite says of itself: its name, whom it protects against, what it can do. The suites
//! state it, and [`crate::registry`] collects it.

/// What a protocol computes with.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Numbers {
    /// Fixed point on a ring of words.
    Fixed,
    /// Single-precision floating point.
    Float32,
}

/// Whom a protocol protects against.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Security {
    /// Nobody: it shows secrets to some party, and runs only when the caller says `insecure`.
    None,
    /// One corrupted party that follows the protocol.
    SemiHonest,
    /// One corrupted party that does what it likes: others may be left without a result, but with
    /// no false one.
    MaliciousAbort,
}

/// What users are told of a protocol, and what it can do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Protocol {
    /// Its name on the command line.
    pub name: &'static str,
    /// How many parties compute.
    pub parties: usize,
    /// The level of security.
    pub level: Security,
    /// Whom it protects against, in a sentence.
    pub security: &'static str,
    /// Where it comes from.
    pub source: &'static str,
    /// Whether it protects nothing or leaks, and runs only when the caller says `insecure`.
    pub insecure: bool,
    /// What it computes with.
    pub numbers: Numbers,
    /// The rings that it computes on, in bits; none for floating point.
    pub rings: &'static [u32],
    /// Whether it has an offline phase, whose material can be made ahead and stored. Steps that a
    /// protocol without one offloads to the dealer are dealt online.
    pub offline: bool,
    /// Whether it has a maximum of all pairs; plans for others spread maxima or run tournaments.
    pub native_maximum: bool,
    /// Whether it truncates a product and shares it in one go, so that plans do well to leave
    /// products in additive sharing (deferred resharing). Reports call it `sums`, as they always
    /// have.
    #[serde(rename = "sums")]
    pub deferred_resharing: bool,
    /// Whether a selection by a secret bit truncates what it selects, or adds it up; plans for
    /// others do one after the other.
    pub selects_truncated: bool,
    /// Whether a product element by element truncates its factors; plans for others do one after
    /// the other.
    pub multiplies_truncated: bool,
    /// Whether it opens a product, or a function by pieces, only behind linear steps that make less
    /// of it ([`megrez_plan::Op::Reshare`]); plans for others open it at once, or share it as it is
    /// truncated.
    pub reshares: bool,
    /// Whether it multiplies matrices of bits, and takes lowest bits of words for that; plans for
    /// others have none.
    pub multiplies_bits: bool,
    /// Whether it looks up functions of one value, and winners, in tables; plans for others compare
    /// and multiply.
    pub lookup: bool,
    /// Whether steps of two workers and a dealer are computed so for equal parties, tables among
    /// them ([`megrez_plan::Op::Offloaded`]).
    pub offload: bool,
    /// How many bits a conjunction takes at most.
    pub factors: usize,
    /// The protocol that computes its plans in floating point. Replicated values are masked shares
    /// of two workers and a dealer without a message, and every block of floats is a step of these,
    /// so nothing of such a plan is left to the replicated protocol itself.
    pub floats: Option<&'static str>,
}

/// The rings that suites compute on.
const RINGS: &[u32] = &[32, 40, 48, 64];

impl Protocol {
    /// A suite of three parties with an offline phase, which multiplies two values at a time; the
    /// builders below say what is different.
    pub(crate) const fn suite(
        name: &'static str,
        level: Security,
        security: &'static str,
        source: &'static str,
    ) -> Self {
        Protocol {
            name,
            parties: 3,
            level,
            security,
            source,
            insecure: matches!(level, Security::None),
            numbers: Numbers::Fixed,
            rings: RINGS,
            offline: true,
            native_maximum: false,
            selects_truncated: false,
            multiplies_truncated: false,
            reshares: false,
            multiplies_bits: false,
            lookup: false,
            offload: false,
            deferred_resharing: false,
            factors: 2,
            floats: None,
        }
    }

    pub(crate) const fn of_parties(self, parties: usize) -> Self {
        Protocol { parties, ..self }
    }

    /// On rings that are a machine's words, and no others.
    pub(crate) const fn on_words(self) -> Self {
        Protocol { rings: &[32, 64], ..self }
    }

    pub(crate) const fn without_offline_phase(self) -> Self {
        Protocol { offline: false, ..self }
    }

    pub(crate) const fn with_native_maximum(self) -> Self {
        Protocol { native_maximum: true, ..self }
    }

    pub(crate) const fn with_truncating_selection(self) -> Self {
        Protocol { selects_truncated: true, ..self }
    }

    pub(crate) const fn with_truncating_products(self) -> Self {
        Protocol { multiplies_truncated: true, ..self }
    }

    pub(crate) const fn with_resharing(self) -> Self {
        Protocol { reshares: true, ..self }
    }

    pub(crate) const fn with_bit_matrices(self) -> Self {
        Protocol { multiplies_bits: true, ..self }
    }

    pub(crate) const fn with_lookup(self) -> Self {
        Protocol { lookup: true, ..self }
    }

    pub(crate) const fn with_offload(self) -> Self {
        Protocol { offload: true, ..self }
    }

    pub(crate) const fn with_deferred_resharing(self) -> Self {
        Protocol { deferred_resharing: true, ..self }
    }

    /// Floating point under `other`, of the same parties and the same trust.
    pub(crate) const fn with_floats(self, other: &Protocol) -> Self {
        Protocol { floats: Some(other.name), ..self }
    }

    pub(crate) const fn with_factors(self, factors: usize) -> Self {
        Protocol { factors, ..self }
    }
}

/// Floating point between two parties: `megrez-twoparty`, which computes float plans and no others.
pub const SECFLOAT: Protocol = Protocol {
    numbers: Numbers::Float32,
    rings: &[],
    ..Protocol::suite(
        "secfloat",
        Security::SemiHonest,
        "semi-honest, one of two parties corrupted; no dealer, oblivious transfer from Diffie-Hellman on Ristretto",
        "SECFLOAT on SIRNN's blocks, corrected; single precision, correctly rounded",
    )
    .of_parties(2)
    .without_offline_phase()
};

/// Floating point between two workers with a dealer: `dealt` in `megrez-twoparty`. What is dealt
/// depends on no data, but is sent while the session runs, and not kept.
pub const MIZAR_FLOAT: Protocol = Protocol {
    numbers: Numbers::Float32,
    rings: &[],
    ..Protocol::suite(
        "mizar-float",
        Security::SemiHonest,
        "semi-honest, one of three parties corrupted; party 2 deals randomness and sees nothing",
        "SECFLOAT's programs on blocks from a dealer, in MIZAR's masked sharing; single precision, correctly rounded",
    )
    .without_offline_phase()
};
