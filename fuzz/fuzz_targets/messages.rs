//! Requests of clients and answers of parties.
#![no_main]

use libfuzzer_sys::fuzz_target;
use megrez_service::wire::{Reply, Request};

fuzz_target!(|bytes: &[u8]| {
    let _ = postcard::from_bytes::<Request>(bytes);
    let _ = postcard::from_bytes::<Reply>(bytes);
});
