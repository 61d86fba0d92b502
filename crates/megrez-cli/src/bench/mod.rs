//! `megrez bench`: an operation, a model, a table of a paper, memory.

mod memory;
mod model;
mod op;
mod options;
mod table;
mod train;

use clap::Subcommand;
use megrez::Result;
use std::process::ExitCode;

#[derive(Subcommand)]
pub(crate) enum Bench {
    /// An operation on many elements.
    Op(op::BenchOp),
    /// A whole model on random data.
    Model(model::BenchModel),
    /// A step of training on random data: forward, backward and update.
    Train(train::BenchTrain),
    /// A table of a paper, with the figures measured here beside the printed ones.
    Table(table::BenchTable),
    /// The peak memory of each party on a GPU for a model, without running it: needs no GPU.
    Memory(model::BenchModel),
}

pub(crate) fn run(command: &Bench, json: bool) -> Result<ExitCode> {
    match command {
        Bench::Op(args) => op::run(args),
        Bench::Model(args) => model::run(args),
        Bench::Train(args) => train::run(args),
        Bench::Table(args) => table::run(args, json),
        Bench::Memory(args) => memory::run(args),
    }
}
