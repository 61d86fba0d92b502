//! Symbolic masks.
