//! `megrez completions` and `megrez man`: what shells and `man` are told of the command line, made
//! of the same description as its help.

use clap::{Args, Command};
use clap_complete::Shell;
use megrez::{Error, ErrorKind, Result};
use std::io::{ErrorKind as Io, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Args)]
pub(crate) struct Completions {
    /// The shell.
    #[arg(value_enum)]
    shell: Shell,
}

#[derive(Args)]
pub(crate) struct Man {
    /// The folder to write megrez.1, megrez-infer.1, … to; it must be there.
    folder: PathBuf,
}

/// Prints the script that completes the command in a shell.
pub(crate) fn completions(args: &Completions, mut command: Command) -> Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "megrez", &mut script);
    match std::io::stdout().write_all(&script) {
        // Whoever reads has read enough.
        Err(e) if e.kind() != Io::BrokenPipe => Err(Error::of(ErrorKind::Internal, e)),
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// Writes a page for every command.
pub(crate) fn man(args: &Man, command: Command) -> Result<ExitCode> {
    clap_mangen::generate_to(command, &args.folder).map_err(|e| Error::file(&args.folder, e))?;
    Ok(ExitCode::SUCCESS)
}
