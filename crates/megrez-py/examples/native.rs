//! The module once more, out of the crates that the tests of Rust are built from: Python's tests
//! run with it, and wait for no wheel (docs/decisions/0026-tests-build-everything-once.md).

#[path = "../src/lib.rs"]
mod native;
