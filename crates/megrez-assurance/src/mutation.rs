//! What is weakened of the randomness of a walk, and where.

use std::fmt;

/// One weakening of the streams of a walk.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Mutation {
    /// The stream gives zeros.
    Zeros(Address),
    /// The first stream is the second.
    Same(Address, Address),
    /// All elements are one.
    One(Address),
    /// So many parts of the elements are the same.
    Fold(Address, usize),
    /// The stream of every run is that of the first.
    Again(Address),
}

/// A stream's address: which parties, when, where, what for.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Address {
    /// Who shares it, the lower number first.
    pub parties: [usize; 2],
    /// The phase, as it prints.
    pub phase: String,
    /// The step with its scopes.
    pub place: String,
    /// What it is for.
    pub purpose: String,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b] = self.parties;
        write!(f, "{} {} `{}` of P{a} and P{b}", self.phase, self.place, self.purpose)
    }
}

impl fmt::Display for Mutation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Mutation::Zeros(a) => write!(f, "{a} gives zeros"),
            Mutation::Same(a, b) => write!(f, "{a} is {b}"),
            Mutation::One(a) => write!(f, "{a} gives one value to all elements"),
            Mutation::Again(a) => write!(f, "{a} is the same in every run"),
            Mutation::Fold(a, parts) => write!(f, "{a} gives the same to {parts} parts of its elements"),
        }
    }
}

/// A stream of a walk.
#[derive(Clone, Debug)]
pub struct Stream {
    /// Its address.
    pub address: Address,
    /// Elements that are drawn from it.
    pub elements: usize,
}
