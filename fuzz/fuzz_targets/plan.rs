//! Plans: refused, or valid and canonical, with a price.
#![no_main]

use libfuzzer_sys::fuzz_target;
use megrez_plan::Plan;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(plan) = Plan::from_bytes(bytes) {
        plan.validate().unwrap();
        assert_eq!(Plan::from_bytes(&plan.to_bytes()).unwrap(), plan);
        for protocol in megrez_protocols::registry::PROTOCOLS {
            let _ = megrez_service::protocols::cost(protocol.name, &plan);
        }
    }
});
