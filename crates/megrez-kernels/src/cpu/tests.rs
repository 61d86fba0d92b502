//! The CPU's every set of instructions against the reference.

use super::Cpu;
use crate::testing::Suite;
#[cfg(not(miri))]
use {crate::KeySpec, megrez_plan::ConvGeometry, megrez_prg::Level};

/// Miri sees no vectors, but every unsafe block that threads and uninitialised memory need.
#[cfg(miri)]
mod the_portable_code_is_sound {
    crate::differential_tests!([super::Suite::new(super::Cpu::new(2), false)]);
}

#[cfg(not(miri))]
mod the_cpu_equals_the_reference {
    crate::differential_tests!([super::Suite::new(super::Cpu::new(1), true)]);
}

/// Sizes at which a device divides work, too.
#[test]
#[cfg(not(miri))]
fn threads_do_not_change_results() {
    let suite = Suite::new(Cpu::new(3), true);
    suite.run();
    suite.elements_of::<u64>(300_001);
    suite.openings_of::<u32>(300_001);
    suite.signed_sums_of::<u32>(300_001);
    suite.keys_of::<u64>(KeySpec { cut: 16, width: 16, truncate: 16 }, 2051);
    let padded = ConvGeometry { pad: [1; 4], ..Default::default() };
    suite.image::<u64>([2, 32, 30, 31], [40, 32, 3, 3], padded);
    suite.image::<u32>([70, 32, 5, 6], [40, 32, 3, 3], padded);
    suite.image::<u64>([1, 32, 60, 60], [40, 16, 3, 3], ConvGeometry { groups: 2, ..padded });
    suite.image::<u64>([2, 32, 200, 201], [32, 1, 3, 3], ConvGeometry { groups: 32, ..padded });
    suite.image::<u64>([1, 640, 2, 3], [640, 640, 3, 3], padded);
}

#[test]
#[cfg(not(miri))]
fn every_level_equals_the_reference() {
    // The last level is the one that `new` chooses.
    let levels = Level::all();
    levels[..levels.len() - 1].iter().for_each(|&level| Suite::new(Cpu::at_level(level, 1), true).run());
}
