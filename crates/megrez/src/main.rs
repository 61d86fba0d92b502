//! The `megrez` command.

fn main() -> std::process::ExitCode {
    megrez::cli::main(std::env::args_os())
}
