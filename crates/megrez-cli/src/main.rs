//! The `megrez` command.

fn main() -> std::process::ExitCode {
    megrez_cli::main(std::env::args_os())
}
