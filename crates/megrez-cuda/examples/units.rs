//! Writes every kernel file, in the forms that are compiled at run time, to a folder:
//! `units FOLDER`.

use std::{env, fs, path::Path, process::ExitCode};

fn main() -> ExitCode {
    let Some(folder) = env::args().nth(1) else {
        eprintln!("usage: units FOLDER");
        return ExitCode::FAILURE;
    };
    for (name, source) in megrez_cuda::every_unit() {
        let file = Path::new(&folder).join(name).with_extension("cu");
        if let Err(error) = fs::write(&file, source) {
            eprintln!("{}: {error}", file.display());
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
