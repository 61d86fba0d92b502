//! Files of stored models, as a party finds them after somebody else had its folder: whole ones,
//! and headers under a hash that is right.
#![no_main]

use libfuzzer_sys::fuzz_target;
use megrez_engine::files;
use megrez_service::party::{Models, check_models};

fuzz_target!(|bytes: &[u8]| {
    let folder = std::env::temp_dir().join(format!("megrez-fuzz-stored-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a temporary folder can be made");
    let models = Models::shared(&folder, None).expect("a folder without a key");
    let mut sealed = [b"megrez-model-005".as_slice(), bytes].concat();
    files::seal("megrez 2026 stored model", &mut sealed);
    for (name, content) in [("as-it-is", bytes), ("sealed", &sealed)] {
        std::fs::write(folder.join(format!("{name}.model")), content).expect("a temporary file");
    }
    let (files, wrong) = check_models(&models, 0).expect("the folder can be read");
    // The hash of what is as it is would have to be guessed.
    assert!(files == 2 && !wrong.is_empty());
});
