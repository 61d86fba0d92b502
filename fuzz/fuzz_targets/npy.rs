//! NumPy files: refused, or written and read again the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use megrez_graph::npy;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(tensor) = npy::parse(bytes) {
        let mut written = vec![];
        npy::write(&mut written, &tensor).unwrap();
        let again = npy::parse(&written).unwrap();
        assert_eq!(again.shape, tensor.shape);
        let bits = |t: &megrez_graph::Tensor| t.data.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&again), bits(&tensor));
    }
});
