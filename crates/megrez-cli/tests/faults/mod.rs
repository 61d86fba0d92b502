//! Faults: what is damaged, stale, mismatched or sent by somebody who deviates gives an error that
//! says who and what, at once and at every party, and never a number.

mod cluster;
mod generated;
mod material;
mod stored;
