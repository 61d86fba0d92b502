//! Files of operators and owners: who may do what, where parties are, how one is set up, rules of
//! rows.
#![no_main]

use libfuzzer_sys::fuzz_target;
use megrez_service::approval::Rules;
use megrez_service::config::{ClusterConfig, PartyConfig};
use megrez_service::party::Rights;

fuzz_target!(|bytes: &[u8]| {
    let path = std::env::temp_dir().join(format!("megrez-fuzz-{}.toml", std::process::id()));
    std::fs::write(&path, bytes).expect("a temporary file can be written");
    let _ = Rights::load(&path);
    let _ = Rules::load(&path);
    let _ = PartyConfig::load(&path);
    if let Ok(cluster) = ClusterConfig::load(&path) {
        // At most as many as a file may name.
        assert!(cluster.triples().len() <= 1024);
    }
});
