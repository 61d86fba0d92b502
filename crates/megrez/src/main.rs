//! The `megrez` command.

fn main() -> std::process::ExitCode {
    cli::main()
}

mod cli;
