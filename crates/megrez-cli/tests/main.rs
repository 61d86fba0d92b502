//! One binary for all tests: every suite is compiled and linked once.

mod approvals;
#[cfg(unix)]
mod boost;
mod cli;
mod common;
#[cfg(unix)]
mod deployment;
mod faces;
#[cfg(unix)]
mod faults;
#[cfg(unix)]
mod floats;
#[cfg(unix)]
mod jobs;
mod language;
#[cfg(unix)]
mod limits;
#[cfg(unix)]
mod parties;
mod public;
#[cfg(unix)]
mod replicas;
mod shell;
mod study;
mod training;
