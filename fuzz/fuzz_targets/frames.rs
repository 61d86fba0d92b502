//! What a connection begins with and what frames are made of: refused, or written again as it was
//! read.
#![no_main]

use libfuzzer_sys::fuzz_target;
use megrez_net::frame;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(header) = frame::parse_header(bytes) {
        assert_eq!(header.encode(), bytes[..frame::HEADER_LEN]);
    }
    if let Ok(hello) = frame::parse_hello(bytes) {
        assert_eq!(hello.encode(), bytes[..frame::HELLO_LEN]);
    }
    if let Ok(welcome) = frame::parse_welcome(bytes) {
        assert_eq!(welcome.encode(), bytes[..frame::HELLO_LEN]);
    }
    if let Ok(abort) = frame::parse_abort(bytes) {
        assert!(abort.reason.len() <= megrez_net::MAX_REASON);
        assert!(!abort.reason.chars().any(char::is_control));
    }
});
